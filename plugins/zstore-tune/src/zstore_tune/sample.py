"""A sample of an array: one box of it, small enough to be stored many times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import zstore
from zstore.errors import (
    MetadataError,
    NotFoundError,
    UnsupportedError,
    ZstoreError,
    leave_out,
    without_secrets,
)
from zstore.plugin.commands import format_lengths
from zstore.plugin.nodes import RectilinearGrid

# The assumed size, in bytes, of an item of any length, before a sample tells more.
TEXT_SIZE = 32
# The lengths that a sample should have: along y and x, along time, along others; and along time for series.
SPACE, TIME, OTHERS = 512, 64, 16
SERIES = 1024
Lengths = Mapping[str | int, int]
TIMES = ("time", "t", "date", "datetime", "valid_time", "step")


@dataclass(frozen=True)
class Sample:
    """Items of an array, and what is known of the whole array.

    time     the number of the dimension that series run along
    windows  lengths of the samples of a training run along dimensions, by their numbers
    crops    the same of samples at random positions
    now      the arguments of `create_array` that describe how the array is stored; None where it is no Zarr
             array, or its chunks differ in shape
    notes    what to keep in mind about the sample when reading the results
    """

    where: str
    values: np.ndarray
    start: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: Any
    dims: tuple[str | None, ...]
    time: int
    windows: Mapping[int, int]
    crops: Mapping[int, int]
    now: Mapping[str, Any] | None
    notes: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of its items; items of any length count as UTF-8."""
        if self.values.dtype.kind not in "OT":
            return self.values.nbytes
        return sum(
            len(item) if isinstance(item, bytes) else len(str(item).encode()) for item in self.values.flat
        )


def take_sample(
    source: Any,
    array: str | None,
    size: int,
    accesses: Sequence[str],
    windows: Lengths,
    crops: Lengths,
    storage_options: Mapping[str, Any] | None,
) -> Sample:
    """A sample of about `size` bytes at most, of the array that `source` is, names or holds.

    windows, crops  of training, by names or numbers of dimensions

    Raises
        NotFoundError: there is no such array or file.
        MetadataError: the array has no items, or no such dimension.
        UnsupportedError: items of this kind, or a file of this kind, cannot be measured.
    """
    cut = partial(_cut, size=size, accesses=accesses, windows=windows, crops=crops)
    if isinstance(source, np.ndarray):
        return cut(source, "an array in memory", (), None)
    if not isinstance(source, zstore.Array | zstore.Group):
        suffix = Path(str(source)).suffix.lower()
        if suffix == ".npy":
            try:
                return cut(np.load(source, mmap_mode="r"), str(source), (), None)
            except FileNotFoundError as error:
                raise NotFoundError("no file there", path=str(source)) from error
            except (EOFError, ValueError) as error:
                raise UnsupportedError(f"file cannot be read: {error}", path=str(source)) from error
        source = zstore.open(source, mode="r", storage_options=storage_options)
    held = _choose(source, array)
    where = without_secrets("/".join(filter(None, (held.store.url, held.path))))
    dims = tuple(held.dims or ())
    return cut(held, where, dims, _stored_as(held))


def _choose(node: zstore.Array | zstore.Group, name: str | None) -> zstore.Array:
    if name is not None:
        node = node[name] if isinstance(node, zstore.Group) else node
    if isinstance(node, zstore.Array):
        return node
    unreadable = dict[str, ZstoreError]()
    members = node.members(None, unreadable=unreadable)
    found = [member for _, member in members if isinstance(member, zstore.Array)]
    for path, error in unreadable.items():
        leave_out(path, error)
    if not found:
        raise NotFoundError("group holds no array; expected one that does", path=node.name)
    # The one with the most data: the finest level of a pyramid, and never a coordinate.
    return max(found, key=lambda one: one.nbytes)


def _stored_as(array: zstore.Array) -> dict[str, Any] | None:
    if isinstance(array.model.grid, RectilinearGrid):
        return None
    said: dict[str, Any] = {"chunks": array.chunks, "shards": array.shards}
    for name in ("filters", "compressors"):
        said[name] = [codec.describe() for codec in getattr(array, name)] or None
    if array.serializer is not None:
        said["serializer"] = array.serializer.describe()
    return {"zarr_format": array.zarr_format, **said}


def _cut(
    source: Any,
    where: str,
    dims: tuple[str | None, ...],
    now: dict[str, Any] | None,
    size: int,
    accesses: Sequence[str],
    windows: Lengths,
    crops: Lengths,
) -> Sample:
    shape, dtype = tuple(source.shape), source.dtype
    if not shape:
        raise UnsupportedError(
            "array has no dimensions: one item, in one chunk; there is nothing to choose", path=where
        )
    if prod(shape) == 0:
        raise MetadataError(f"array of shape {shape} holds nothing; expected items to measure", path=where)
    if not dims:
        dims = (None,) * len(shape)
    time = next((n for n, name in enumerate(dims) if name and name.lower() in TIMES), 0)
    item_size = TEXT_SIZE if dtype.kind in "OT" else max(1, dtype.itemsize)
    windows, crops = (_by_number(lengths, dims, shape, where) for lengths in (windows, crops))
    box = choose_box(shape, max(1, size // item_size), time, accesses, {**windows, **crops})
    values, start, notes = None, (), []
    step = getattr(source, "chunks", None) or (1,) * len(shape)
    for place in _places(shape, box, step):
        start = place
        values = np.asarray(source[tuple(slice(a, a + n) for a, n in zip(place, box, strict=True))])
        if not is_constant(values):
            break
    else:
        notes.append(
            "the sample holds one value only: sizes and times say nothing of data that differ, "
            "and the array may be empty elsewhere too"
        )
    assert values is not None
    if dtype.kind == "O":
        dtype = _type_of(values, where)
    if box != shape:
        notes.append(f"a sample of {format_lengths(box)} from {list(start)}, of {format_lengths(shape)}")
    windows, crops = (
        {axis: min(length, box[axis]) for axis, length in one.items()} for one in (windows, crops)
    )
    return Sample(where, values, start, shape, dtype, dims, time, windows, crops, now, tuple(notes))


def _by_number(
    lengths: Lengths, dims: Sequence[str | None], shape: Sequence[int], where: str
) -> dict[int, int]:
    """Lengths along dimensions, by the numbers of these."""
    made = dict[int, int]()
    for name, length in lengths.items():
        if name in dims:
            name = dims.index(str(name))
        if not isinstance(name, int) or not 0 <= name < len(shape):
            raise MetadataError(
                f"array has no dimension {name!r}; expected one of {[*filter(None, dims)] or len(shape)}",
                path=where,
            )
        if not 0 < length <= shape[name]:
            raise MetadataError(
                f"a sample has {length} items along {dims[name] or name!r}; expected 1 to {shape[name]}",
                path=where,
            )
        made[name] = length
    return made


def _type_of(values: np.ndarray, where: str) -> type:
    """`str` or `bytes`, whichever the items are."""
    for kind in (str, bytes):
        if all(isinstance(item, kind) for item in values.flat):
            return kind
    raise UnsupportedError(
        "items are Python objects; expected numbers, times, text, bytes or structures", path=where
    )


def choose_box(
    shape: tuple[int, ...], count: int, time: int, accesses: Sequence[str], windows: Mapping[int, int]
) -> tuple[int, ...]:
    """The shape of a sample of at most `count` items, long in the dimensions that the accesses read along.

    windows  the lengths of the samples of a training run, which have all items along other dimensions
    """
    ndim = len(shape)
    least = [OTHERS] * ndim
    for axis in range(max(0, ndim - 2), ndim):
        least[axis] = SPACE
    if ndim > 2:
        least[time] = SERIES if "series" in accesses else TIME
    floors = [windows.get(axis, 1) for axis in range(ndim)]
    if windows:
        least = [windows.get(axis, length) for axis, length in enumerate(shape)]
    lengths = list(shape)
    while prod(lengths) > count:
        axis = max(range(ndim), key=lambda n: (lengths[n] > floors[n], lengths[n] / least[n]))
        if lengths[axis] <= floors[axis]:
            break
        lengths[axis] = max(floors[axis], (lengths[axis] + 1) // 2)
    return tuple(lengths)


def _places(shape: tuple[int, ...], box: tuple[int, ...], chunks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Where a sample may begin, on edges of chunks: in the middle, at the quarters, at the ends."""
    seen = set()
    for share in (0.5, 0.25, 0.75, 0.0, 1.0):
        start = tuple(
            min(n - length, int((n - length) * share) // step * step)
            for n, length, step in zip(shape, box, chunks, strict=True)
        )
        if start not in seen:
            seen.add(start)
            yield start


def is_constant(values: np.ndarray) -> bool:
    """Whether all items are equal, where NaN equals NaN."""
    first = values.flat[0]
    if values.dtype.kind in "fc" and np.isnan(first):
        return bool(np.isnan(values).all())
    return bool((values == first).all())
