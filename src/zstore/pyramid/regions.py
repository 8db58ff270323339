"""What has changed of the arrays that a pyramid was made of: as asked for, as found, as left undone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from zstore.errors import MetadataError, SelectionError
from zstore.pyramid.cascade import Box, Shape, volume
from zstore.pyramid.dataset import Dataset
from zstore.pyramid.jobs import Job
from zstore.pyramid.record import Record

__all__ = [
    "Boxes",
    "Region",
    "changed_boxes",
    "check_arrays",
    "check_dimensions",
    "former_shape",
    "plain_boxes",
]

Region: TypeAlias = Mapping[str, Any] | Sequence[Any] | None
Boxes: TypeAlias = dict[str, list[Box]]


def changed_boxes(
    job: Job,
    dataset: Dataset,
    record: Record,
    region: Region,
    *,
    is_asked: bool,
    has_new_shapes: bool,
    stretched: Collection[int] = (),
) -> list[Box]:
    """What has changed of the source of a job, or may have.

    is_asked        whether the region is of this array, too
    has_new_shapes  whether any array has grown or shrunk: then no region means none beyond that
    stretched       the dimensions that everything depends on the length of
    """
    shape, former = job.source.shape, former_shape(job, record)
    whole = tuple(slice(0, n) for n in shape)
    grown = [
        (axis, slice(min(old, max(new - 1, 0)), new))
        for axis, (old, new) in enumerate(zip(former, shape, strict=True))
        if old != new
    ]
    if any(axis in stretched for axis, _ in grown):
        return [whole]
    found = [tuple(side if i == axis else w for i, w in enumerate(whole)) for axis, side in grown]
    pending = record.get("pending", {}).get(job.name, [])
    found += [
        tuple(slice(min(a, n), min(b, n)) for (a, b), n in zip(box, shape, strict=True)) for box in pending
    ]
    if is_asked:
        if region is not None:
            found += _box(region, job, dataset)
        elif not has_new_shapes:
            found = [whole]
    return [box for box in found if volume(box)]


def former_shape(job: Job, record: Record) -> Shape:
    """How long the source of a job was when the pyramid was built."""
    return tuple(record["variables"][job.name]["shape"])


def plain_boxes(boxes: Boxes) -> dict[str, Any]:
    """The boxes as JSON can hold them."""
    return {name: [[[s.start, s.stop] for s in box] for box in found] for name, found in boxes.items()}


def check_arrays(record: Record, dataset: Dataset, arrays: Sequence[str] | None) -> None:
    """See that the arrays named, and all that the pyramid was built of, are there.

    Raises
        MetadataError: one is not.
    """
    said = record["variables"]
    missing = [name for name in {*said, *(arrays or ())} if name not in dataset.arrays or name not in said]
    if missing:
        raise MetadataError(
            f"arrays {', '.join(sorted(missing))} are not both in the finest level and in the pyramid; "
            f"it was built of {', '.join(said)}",
            path=dataset.place,
        )


def check_dimensions(region: Region, jobs: Sequence[Job], dataset: Dataset) -> None:
    """See that a region names dimensions that there are.

    Raises
        SelectionError: it names another one.
    """
    if isinstance(region, Mapping):
        known = {name for job in jobs for name in dataset.dimensions(job.name)}
        if not set(region) <= known:
            raise SelectionError(
                f"region names {', '.join(sorted(map(str, set(region) - known)))}; the dimensions are "
                f"{', '.join(sorted(known))}",
                path=dataset.place,
            )


def _box(region: Region, job: Job, dataset: Dataset) -> list[Box]:
    """The region in one array; nothing where it names only dimensions that the array does not have."""
    shape, names = job.source.shape, dataset.dimensions(job.name)
    if isinstance(region, Mapping):
        if not set(region) & set(names):
            return []
        given = [region.get(name, slice(None)) for name in names]
    else:
        given = list(region or ())
    if len(given) != len(shape):
        raise SelectionError(
            f"region has {len(given)} slices; expected {len(shape)}, for {names}", path=dataset.place
        )
    return [tuple(_side(side, size, name) for side, size, name in zip(given, shape, names, strict=True))]


def _side(side: Any, size: int, name: str) -> slice:
    if isinstance(side, int) and not isinstance(side, bool):
        index = side + size if side < 0 else side
        if 0 <= index < size:
            return slice(index, index + 1)
    elif isinstance(side, slice) and side.step in (None, 1):
        begin, end, _ = side.indices(size)
        return slice(begin, max(begin, end))
    raise SelectionError(f"region has {side!r} for {name!r}; expected an index or a slice in {size} cells")
