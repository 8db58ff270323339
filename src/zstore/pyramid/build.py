"""Pyramids: a dataset and smaller and smaller versions of it, each with its place on the ground."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from zstore.conventions.base import Documents
from zstore.conventions.model import GeoModel
from zstore.conventions.write import render_geo
from zstore.errors import MetadataError, NotFoundError
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.pyramid.dataset import Dataset, PlaceLike, join_attributes, open_dataset, place_of
from zstore.pyramid.execute import Executor, counter, run_passes
from zstore.pyramid.jobs import DERIVATIONS, Cut, Job, Wishes, make_job, own_tile, plan_geo
from zstore.pyramid.levels import create_level, plan_array, prepare_root, rehearse
from zstore.pyramid.record import MEMBER, Journal, Record, join_member, mark_levels
from zstore.pyramid.sizes import Budget

__all__ = ["build_pyramid"]

Lengths: TypeAlias = int | Sequence[int]
Progress: TypeAlias = Callable[[int, int], None]

# The source's chunks are kept as tiles where they have such lengths; others are cut anew.
TILE_LENGTHS = range(64, 2049)
TILE_LENGTH = 512


def build_pyramid(
    source: Array | Group | PlaceLike,
    target: Group | PlaceLike | None = None,
    *,
    levels: int | None = None,
    method: str | Mapping[str, str] = "average",
    nodata: Any = "auto",
    mask: str | Array | Mapping[str, str | Array] | None = None,
    factors: Lengths = 2,
    chunks: Lengths | None = None,
    shards: Lengths | str | None = "auto",
    compressors: Any = "auto",
    zarr_format: int | None = None,
    derive: str = "auto",
    grid: str = "aligned",
    copy_base: bool | None = None,
    profile: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Group:
    """The group at `target`, with the levels of `source` as groups: "0" as it is, "1", "2", ... coarser.

    `source` is an array, a group of arrays on one grid, or a pyramid, whose finest level counts. Where it is
    a level of `target`, or there is no `target`, the levels are made beside it. A single array gives the
    coarser levels only, unless `copy_base`.

    levels       how many coarser ones; None: until one tile holds the coarsest
    method       any that `downsample` takes; or by the arrays' names, "" for all others. "average" means
                 "mode" for flags (`flag_values`, `flag_masks`, `flag_meanings`) and bool, "max" for a mask
    nodata       "auto": what the arrays say; a value, None for "there is none" (but NaN), or either by name
    mask         an array whose cells are 0 where the data is not valid, or its name in the source; or either
                 by the arrays' names. What it leaves out counts as nodata
    chunks       tiles, one length or (y, x); None: the source's where they are 64 to 2048 long, else 512
    factors      how many cells of a level make one of the next; one number or (y, x)
    shards       one length or (y, x); None: no shards; "auto": the source's where the chunks are the source's
    compressors  as for `create_array`; "auto": the source's codecs where the format is the same
    derive       "base": each level from the finest, so that nothing is rounded twice and a mode is that of
                 all cells; "cascade": each from the one before, which gives the numbers of `gdaladdo`;
                 "auto": "base" on the aligned grid for average, rms, sum, mode, med, q1, q3 and nearest (as
                 long as a window is not more than 64 MiB, and on from there), "cascade" for all else
    grid         "aligned": cells whole multiples of the finest's, in size and place; the last window of a row
                 or column is made of the cells there are, as GDAL would make it of a raster padded with
                 nodata. "gdal": the cells of a level cover the extent evenly, so that they are a little less
                 than `factors` as large where these do not divide the size; with that, and "cascade", levels
                 are `gdaladdo`'s. No tile matrix set can say such levels
    profile      which of `zstore.conventions.profiles.PROFILES` the geography is written for
    overwrite    make those levels anew that are there already
    resume       go on with a build of the same arguments that was interrupted, or begin it
    memory       bytes to hold at once, about; with an executor, in each of its workers
    executor     what makes the units, e.g. a process pool or a `dask.distributed.Client`; None: threads here
    progress     called with (cells read, cells to read)

    The source is read once, and all levels are made of that: reading, resampling and writing go on side by
    side. Every chunk or shard is written once and whole. (Where windows overlap, neighbouring units read
    some cells twice; `derive="base"` reads what windows reach, however large.) Packed values stay packed, and
    coordinates come from the affine. `multiscales` is written last, so that an interrupted build claims no
    levels; until then every level's attribute `zstore` has a `state`, and afterwards the name of the build.

    Raises
        MetadataError: arguments or geography that contradict each other.
        StoreError: a level is there already (unless `overwrite`, or `resume` of its build).
        UnsupportedError: the method does not take the data type, or the format has no such layout.
        UnknownExtensionError: nobody offers the method.
    """
    dataset = open_dataset(source)
    if target is None and dataset.root is not None and not isinstance(source, Array | Group):
        target = place_of(dataset.root)
    root, level, overall = _target(dataset, target, zarr_format)
    dataset = replace(dataset, level=level)
    budget = Budget.of(memory)
    _check_choice(grid, "grid", ("aligned", "gdal"))
    _check_choice(derive, "derive", DERIVATIONS)
    pair, tile, stored = _pair(factors, "factors"), _tile(dataset, chunks), _shards(shards)
    cut = Cut(pair, grid, tile, stored, compressors, overall)
    has_copy = not level and (dataset.is_group if copy_base is None else copy_base)
    has_base = bool(level) or has_copy
    names = _names(level or "0", _count(dataset.geo.shape, cut) if levels is None else levels, has_base)
    wishes = Wishes(method, nodata, derive, mask)
    jobs = [make_job(dataset, name, wishes, cut) for name in dataset.geo.variables]
    geo = plan_geo(dataset, jobs, method, cut, names, has_base=has_base)
    documents, _ = render_geo(geo, cut.zarr_format, profile=profile)
    made = names if has_copy else names[1:]
    building = _Building(dataset, geo, documents, jobs, cut, made, has_copy)
    building.rehearse(budget)
    plan = _record(dataset, jobs, cut, names, made, profile, geo.resampling)
    start = prepare_root(root, plan, level, cut.zarr_format, overwrite=overwrite, resume=resume)
    group = start.group
    if start.is_done:
        return group
    building.create(group, start.build)
    journal = Journal(group.store, group.path, start.build)
    building.fill(group, journal, budget, executor, progress)
    mark_levels(group, made, start.build, None)
    held = group.attrs if level else {**dataset.attributes, **group.attrs}
    joined = join_attributes(held, documents[""]["attributes"])
    record = {**plan, "build": start.build}
    group.attrs.put({**joined, MEMBER: join_member(group.attrs.get(MEMBER), {"pyramid": record})})
    journal.drop()
    return group.consolidate()


def _check_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise MetadataError(f"{name} is {value!r}; expected {', '.join(map(repr, choices))}")


def _pair(value: Any, name: str) -> tuple[int, int]:
    numbers = (value, value) if isinstance(value, int) else value
    if isinstance(numbers, Sequence) and len(numbers) == 2:
        y, x = numbers
        if all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (y, x)):
            return y, x
    raise MetadataError(f"{name} is {value!r}; expected a whole number of at least 1, or two (y, x)")


def _tile(dataset: Dataset, chunks: Any) -> tuple[int, int]:
    if not dataset.arrays:
        raise MetadataError("there are no arrays of data to make levels of", path=dataset.place)
    if chunks is not None:
        return _pair(chunks, "chunks")
    y, x = own_tile(dataset)
    return (y, x) if y in TILE_LENGTHS and x in TILE_LENGTHS else (TILE_LENGTH, TILE_LENGTH)


def _shards(shards: Any) -> tuple[int, int] | str | None:
    return shards if shards is None or shards == "auto" else _pair(shards, "shards")


def _count(shape: tuple[int, int], cut: Cut) -> int:
    """How many times the grid is made smaller until it fits into a tile."""
    (rows, columns), (y, x), count = shape, cut.factors, 0
    while (rows > cut.tile[0] and y > 1) or (columns > cut.tile[1] and x > 1):
        rows, columns, count = -(-rows // y), -(-columns // x), count + 1
    return count


def _names(base: str, count: Any, has_base: bool) -> list[str]:
    """The levels' names, the finest first."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise MetadataError(f"levels is {count!r}; expected a whole number, or None")
    names = [base, *map(str, range(1, count + 1))]
    if len(set(names)) != len(names):
        raise MetadataError(f"the finest level is named {base!r}, as one of {count} coarser ones would be")
    if not count and not has_base:
        raise MetadataError("there is no level to make: the array fits a tile, and is not to be copied")
    return names


def _target(
    dataset: Dataset, target: Group | PlaceLike | None, zarr_format: int | None
) -> tuple[Group | PlaceLike, str, int]:
    """(where the levels go, the dataset's own name where it is one of them, the format)."""
    own = next(iter(dataset.arrays.values())).zarr_format if dataset.arrays else 3
    root_place = None if dataset.root is None else place_of(dataset.root)
    if target is None:
        if dataset.root is None:
            raise MetadataError("source is no level of a pyramid; expected a target", path=dataset.place)
        target = dataset.root
    place = place_of(target)
    if place == dataset.place:
        raise MetadataError("source and target are one; expected another target", path=place)
    level = dataset.level if place == root_place else ""
    if not level and dataset.is_group and place == dataset.place.rpartition("/")[0]:
        level = dataset.place.rpartition("/")[2]
    if not isinstance(target, Group):
        try:
            target = open_group(target, mode="r+")
        except NotFoundError:
            return target, level, zarr_format or own
    if zarr_format not in (None, target.zarr_format):
        expected = f"expected {target.zarr_format}, the target's own"
        raise MetadataError(f"zarr_format is {zarr_format!r}; {expected}", path=place)
    return target, level, target.zarr_format


def _record(
    dataset: Dataset,
    jobs: Sequence[Job],
    cut: Cut,
    names: Sequence[str],
    made: Sequence[str],
    profile: str | None,
    resampling: str | None,
) -> Record:
    """What the pyramid will say of how it was made."""
    return {
        "source": dataset.place,
        "finest": names[0] if names[0] == dataset.level or names[0] in made else None,
        "levels": list(names[1:]),
        "copied": names[0] in made,
        "factors": list(cut.factors),
        "grid": cut.grid,
        "profile": profile,
        "resampling": resampling,
        "affine": None if dataset.geo.affine is None else list(dataset.geo.affine),
        "variables": {job.name: job.describe() for job in jobs},
    }


@dataclass(frozen=True)
class _Building:
    """A pyramid that is being built: all that was settled before anything was written."""

    dataset: Dataset
    geo: GeoModel
    documents: Documents
    jobs: Sequence[Job]
    cut: Cut
    made: Sequence[str]
    has_copy: bool

    def rehearse(self, budget: Budget) -> None:
        """Make what nobody keeps, so that nothing fails half-way that could have failed before."""
        for job in self.jobs:
            arrays = [
                rehearse(self.cut.zarr_format, plan_array(self.dataset, level, self.documents, job, self.cut))
                for level in self.geo.levels
                if level.path in self.made
            ]
            job.passes(*self._divide(arrays), budget)

    def _divide(self, arrays: list[Array]) -> tuple[Array | None, list[Array]]:
        """(the copy of the source, the levels) of the arrays that are made."""
        return (arrays[0], arrays[1:]) if self.has_copy else (None, arrays)

    def create(self, group: Group, build: str) -> None:
        """The levels' groups and arrays, which say that they are being built."""
        marker = {MEMBER: {"build": build, "state": "building"}}
        for planned in self.geo.levels:
            added = marker if planned.path in self.made else {}
            create_level(group, self.dataset, planned, self.documents, self.jobs, self.cut, added)

    def fill(
        self,
        group: Group,
        journal: Journal,
        budget: Budget,
        executor: Executor | None,
        progress: Progress | None,
    ) -> None:
        """The levels' cells."""
        tick = counter(sum(job.source.size for job in self.jobs), progress)
        for job in self.jobs:
            arrays = [_array(group, f"{name}/{job.name}") for name in self.made]
            passes = job.passes(*self._divide(arrays), budget)
            run_passes(passes, executor=executor, journal=journal, label=job.name, tick=tick)


def _array(group: Group, path: str) -> Array:
    found = group[path]
    assert isinstance(found, Array)
    return found
