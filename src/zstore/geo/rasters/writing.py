"""Writing of rasters to Zarr: one or many, window by window, into the arrays of one group."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from zstore.errors import NotFoundError, StoreError
from zstore.extensions.registry import resamplers
from zstore.geo.conventions.base import GeoModel
from zstore.geo.conventions.cf import is_fill_nodata
from zstore.geo.conventions.packing import Packed, Packing, check_packing_kind, pack_by_codecs
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.boxes import Box, Items, inside, lengths, meet, volume, windows
from zstore.geo.pyramid.build import build_pyramid
from zstore.geo.pyramid.dataset import PlaceLike, join_attributes
from zstore.geo.pyramid.levels import create_auxiliaries, draft_auxiliaries
from zstore.geo.rasters.geotiff import import_rasterio
from zstore.geo.rasters.targets import FileJob, FileWindows, Version, Written, check_version
from zstore.model.array import ZarrFormat
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.plugin.jobs import (
    BegunJob,
    Estimate,
    How,
    StoredArray,
    Unit,
    as_part,
    counter,
    name_job,
    units_at_once,
)
from zstore.storage.base import join_key

RasterPath: TypeAlias = str | os.PathLike[str]


class RasterWarning(UserWarning):
    """The warning that a raster lacks something, or has something that Zarr cannot express."""


@dataclass(frozen=True)
class PlacedRaster:
    """One of the rasters that are written together, and its position in their arrays.

    shape    (y, x) of the raster itself
    bands    (band number, array name), 0 for the mask
    place    its index along the dimensions before y and x
    corner   (y, x) of its first cell in the arrays
    version  of its files, as they are when it is described
    """

    path: str
    shape: tuple[int, int]
    bands: tuple[tuple[int, str], ...]
    place: tuple[int, ...] = ()
    corner: tuple[int, int] = (0, 0)
    version: Version = ()

    @property
    def box(self) -> Box:
        """The raster's (y, x) box in the arrays."""
        return tuple(slice(at, at + length) for at, length in zip(self.corner, self.shape, strict=True))


@dataclass(frozen=True)
class Description:
    """Rasters as one group: their model, the attributes of the group, and each raster's position."""

    geo: GeoModel
    rasters: tuple[PlacedRaster, ...]
    attributes: dict[str, Any]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of an array: that of the grid, behind the length of the time axis if it has one."""
        time = self.geo.time
        is_stacked = time is not None and time.name in self.geo.variables[name].dimensions
        return (len(time.values), *self.geo.shape) if time is not None and is_stacked else self.geo.shape


@contextmanager
def open_raster(source: RasterPath, *, opener: Any = None) -> Iterator[Any]:
    """The raster, open in rasterio.

    opener  what GDAL is to read files by: rasterio's `FileContainer`

    Raises
        NotFoundError, StoreError: it is not there or cannot be read.
        UnsupportedError: rasterio is missing.
    """
    rasterio = import_rasterio()
    path = os.fspath(source)
    if (
        opener is None
        and "://" not in path
        and not path.startswith("/vsi")
        and ":" not in path
        and not Path(path).exists()
    ):
        raise NotFoundError("no raster there, and no Zarr or NetCDF", path=path)
    try:
        with warnings.catch_warnings():
            # A raster without a place is told of by a warning of our own.
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            # Only rasterio 1.4 and newer have the argument.
            raster = rasterio.open(path, **({} if opener is None else {"opener": opener}))
    except rasterio.errors.RasterioIOError as error:
        raise StoreError(f"not a raster that GDAL can open: {error}", path=path) from error
    with raster:
        try:
            yield raster
        except rasterio.errors.RasterioIOError as error:
            reason = error.__cause__ or error
            raise StoreError(f"raster cannot be read: {reason}", path=path) from error


@dataclass(frozen=True)
class WriteOptions:
    """The options of writing rasters, which are the parameters of `raster_to_zarr`."""

    zarr_format: ZarrFormat
    chunks: int | tuple[int, int]
    shards: int | tuple[int, int] | None
    compressors: Any
    levels: int | None
    method: str
    profile: str | None
    packing: Packing
    how: How

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> WriteOptions:
        """The options among the arguments of a function."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})


class RasterJob(FileJob):
    """Rasters that become the arrays of one group at `target`; nothing is written before `carry_out`.

    Raises
        as `raster_to_zarr`, of what does not depend on what the target holds.
    """

    def __init__(self, found: Description, target: Group | PlaceLike, options: WriteOptions) -> None:
        zarr_format = options.zarr_format
        check_packing_kind(options.packing, zarr_format)
        by_codecs = {
            name: packed
            for name, variable in (found.geo.variables if options.packing == "codecs" else {}).items()
            if (packed := pack_by_codecs(variable)) is not None
        }
        variables = {**found.geo.variables, **{name: packed.variable for name, packed in by_codecs.items()}}
        self.found = found = replace(found, geo=replace(found.geo, variables=variables))
        self.options = options
        self.documents, _ = render_geo(found.geo, zarr_format, profile=options.profile)
        plans = {name: self._plan(name) for name in found.geo.variables}
        for name, packed in by_codecs.items():
            plans[name] |= {"filters": packed.filters, "fill_value": packed.fill_value}
        resamplers.resolve(options.method)
        versions = {part.path: part.version for part in found.rasters}
        super().__init__(target, zarr_format, versions, options.how)
        # A pyramid has the rasters as its finest level.
        self.level = "" if options.levels == 0 else "0"
        for name, plan in plans.items():
            self.add_array(name, join_key(self.level, name), plan)
        bands = {name for part in found.rasters for band, name in part.bands if band}
        bare = frozenset(name for name in bands if is_fill_nodata(found.geo.variables[name], zarr_format))
        self.writing = RasterWindows(_groups(found.rasters), self.arrays, by_codecs, bare)

    def _plan(self, name: str) -> dict[str, Any]:
        """The arguments of `create_array` for one of the arrays."""
        variable, said, options = self.found.geo.variables[name], self.documents[name], self.options
        return {
            "shape": self.found.shape_of(name),
            "dtype": variable.dtype,
            "chunks": _lengths(options.chunks, variable.dimensions),
            "shards": _lengths(options.shards, variable.dimensions),
            "compressors": options.compressors,
            "fill_value": said["fill_value"],
            "attributes": said["attributes"],
            "dimension_names": variable.dimensions or self.found.geo.dimensions,
        }

    def estimate(self) -> Estimate:
        """The estimate of the conversion, without the levels of a pyramid."""
        most = 1 if self.how.executor else units_at_once()
        about = {"sources": self.versions, "levels_counted": not self.level}
        return replace(self.writing.estimate(most), about=about)

    def carry_out(self) -> Group:
        """Write the cells, the documents, and the levels of a pyramid; returns the resulting group."""
        options, held, below = self.options, self.held, self.level
        self.how.stop_if_dry(self.estimate)
        call = self._describe()
        if self.is_made(call):
            return open_group(self.store, self.base, mode="r+")
        self.check_fits(self.writing)
        most = None if self.how.memory is None else self.how.at_once(self.writing.most_size())
        job = self._begin({**call, "arrays": self.name_arrays()})
        share = 1 if options.levels == 0 else 2
        total = share * sum(prod(part.shape) * len(part.bands) for part in self.found.rasters)
        tick, filled = counter(total, self.how.progress), dict[str, Any]()

        def take(unit: Unit, written: Written) -> None:
            for name in written.filled:
                filled[name] = self.arrays[name].model.fill_value
            tick(self.writing.count(unit))

        draft_auxiliaries(None if below else held, self.nodes, self.documents, "", below)
        with job.runner(self.how.executor, most) as runner:
            runner.run(self.writing, "windows", take)
        _warn_of_gdal(self.found, filled)
        placed = self.documents[""]["attributes"]
        if held is None or below:
            self.nodes.add_group(below, join_attributes(self.found.attributes, placed))
        if held is None and below:
            # What holds a pyramid says what it is when that is whole.
            self.nodes.add_group("", {})
        job.check()
        self.nodes.publish()
        root = open_group(self.store, self.base, mode="r+")
        if held is not None and not below:
            create_auxiliaries(root, self.documents, "")
            root.attrs.put(join_attributes({**root.attrs, **self.found.attributes}, placed))
        root = self._add_levels(root, total // 2, total) if below else root.consolidate()
        self.end(job, call)
        return root

    def _describe(self) -> dict[str, Any]:
        """The rasters, and how they are written."""
        options, rasters = self.options, self.found.rasters
        return {
            "sources": [part.path for part in rasters],
            "parts": name_job([[part.bands, part.place, part.corner, part.shape] for part in rasters]),
            "levels": options.levels,
            "method": options.method,
            "profile": options.profile,
        }

    def _begin(self, said: Mapping[str, Any]) -> BegunJob:
        """Record at the target that the job begins or goes on."""
        taken = self.taken([self.level] if self.level else self.arrays, resume=self.how.resume)
        if taken:
            expected = "expected a group without them"
            raise StoreError(f"{', '.join(taken)} are there already; {expected}", path=self.where)
        return self.begin("raster_to_zarr", said, overwrite=self.how.overwrite, resume=self.how.resume)

    def _add_levels(self, root: Group, half: int, total: int) -> Group:
        """Make coarser levels of the finest; for a job in parts, done by whoever ends it."""
        options, progress = self.options, self.how.progress
        with as_part(None):
            return build_pyramid(
                root["0"],
                root,
                levels=options.levels,
                method=options.method,
                profile=options.profile,
                resume=self.how.resume,
                memory=self.how.memory,
                executor=self.how.executor,
                progress=None
                if progress is None
                else lambda done, of: progress(half + half * done // of, total),
            )


def _lengths(lengths: Any, dimensions: Sequence[str]) -> Any:
    """Lengths of chunks or shards along all dimensions: 1 along those before y and x."""
    if lengths is None or not dimensions:
        return lengths
    pair = (lengths, lengths) if isinstance(lengths, int) else tuple(lengths)
    return (*(1 for _ in dimensions[:-2]), *pair)


def _warn_of_gdal(found: Description, filled: Mapping[str, Any]) -> None:
    """Warn of facts that GDAL, which could read the raster, will read otherwise from Zarr."""
    path = found.rasters[0].path
    if filled:
        fills = ", ".join(f"{filled[name]} of {name!r}" for name in sorted(filled))
        text = f"raster {path!r} has no nodata: in Zarr v3, GDAL takes the fill value for it ({fills})"
        warnings.warn(RasterWarning(text), stacklevel=6)
    if found.geo.affine is not None and found.geo.affine.is_rotated:
        text = f"raster {path!r} is rotated: before 3.13, GDAL finds no place of it in Zarr"
        warnings.warn(RasterWarning(text), stacklevel=6)


def _groups(rasters: Sequence[PlacedRaster]) -> tuple[tuple[PlacedRaster, ...], ...]:
    """Rasters that are written to the same cells of the same arrays, or beside each other in them."""
    groups = defaultdict[Any, list[PlacedRaster]](list)
    for part in rasters:
        groups[part.place, tuple(name for _, name in part.bands)].append(part)
    return tuple(map(tuple, groups.values()))


@dataclass(frozen=True)
class RasterWindows(FileWindows):
    """The cells of rasters into arrays; units are (number of a group, y, x): windows of whole chunks.

    groups  rasters that may share chunks; of those that meet, later ones lie on top
    bare    arrays without a nodata
    """

    groups: tuple[tuple[PlacedRaster, ...], ...]
    arrays: dict[str, StoredArray]
    by_codecs: dict[str, Packed]
    bare: frozenset[str]

    def units(self) -> Iterator[Unit]:
        for number, group in enumerate(self.groups):
            arrays = [self.arrays[name] for _, name in group[0].bands]
            *_, height, width = arrays[0].model.grid.chunk_shape
            item_size = sum(array.item_size for array in arrays)
            *_, rows, columns = arrays[0].model.shape
            for y, x in windows((rows, columns), (height, width), item_size):
                if any(_meets(part.box, (y, x)) for part in group):
                    yield number, y.start, y.stop, x.start, x.stop

    def estimate(self, most: int) -> Estimate:
        """The estimate of the conversion, with this number of units at a time."""
        sizes = [self._size(unit) for unit in self.units()]
        rasters = [raster for group in self.groups for raster in group]
        cells = ((name, prod(raster.shape)) for raster in rasters for _, name in raster.bands)
        return Estimate(
            unit_count=len(sizes),
            read_size=sum(count * self.arrays[name].item_size for name, count in cells),
            write_size=sum(prod(array.model.shape) * array.item_size for array in self.arrays.values()),
            request_count=sum(prod(array.counts) for array in self.arrays.values()),
            memory_size=most * max(sizes, default=0),
        )

    def most_size(self) -> int:
        """The most bytes of memory for a unit."""
        return max(map(self._size, self.units()), default=0)

    def _size(self, unit: Unit) -> int:
        """The bytes of a unit's cells, and of those of one array of it in transit."""
        sizes = [self.arrays[name].item_size * volume(box) for name, box in self.boxes(unit)]
        return sum(sizes) + max(sizes)

    def _parts(self, unit: Unit) -> tuple[Box, list[tuple[PlacedRaster, Box]]]:
        """The window of a unit, and the part of it from each raster."""
        number, top, bottom, left, right = unit
        window = slice(top, bottom), slice(left, right)
        met = [part for part in self.groups[number] if _meets(part.box, window)]
        return window, [(part, meet(part.box, window)) for part in met]

    def count(self, unit: Unit) -> int:
        """The number of cells of rasters that a unit reads."""
        return sum(volume(box) * len(part.bands) for part, box in self._parts(unit)[1])

    def boxes(self, unit: Unit) -> Iterator[tuple[str, Box]]:
        """The arrays that a unit writes to, by name, and the box in each."""
        window, [(part, _), *_] = self._parts(unit)
        for _, name in part.bands:
            before = part.place if self.arrays[name].model.ndim > 2 else ()
            yield name, (*(slice(at, at + 1) for at in before), *window)

    def make(self, unit: Unit) -> Written:
        """Write a window."""
        window, parts = self._parts(unit)
        items, filled = dict[str, Items](), set[str]()
        for number, (part, box) in enumerate(parts):
            # Where another raster lies below, only valid cells cover it.
            is_above = any(_meets(other, box) for _, other in parts[:number])
            place = tuple((side.start, side.stop) for side in inside(box, part.box))
            with open_raster(part.path) as raster:
                for band, name in part.bands:
                    read = partial(raster.read, band) if band else raster.dataset_mask
                    block, valid = read(window=place), True
                    if is_above:
                        masks = partial(raster.read_masks, band) if band else raster.dataset_mask
                        valid = masks(window=place) != 0
                    if name in self.by_codecs:
                        block = self.by_codecs[name].unpack(block)
                    model = self.arrays[name].model
                    if name in self.bare and (block == model.effective_fill_value).any():
                        filled.add(name)
                    if box == window and not is_above:
                        items[name] = block
                        continue
                    if name not in items:
                        items[name] = np.full(lengths(window), model.effective_fill_value, model.dtype)
                    elif not items[name].flags.writeable:
                        items[name] = items[name].copy()
                    np.copyto(items[name][inside(box, window)], block, casting="unsafe", where=valid)
            check_version(part.version, part.path)
        return self.store(unit, (items[name] for name, _ in self.boxes(unit)), filled)


def _meets(one: Box, other: Box) -> bool:
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(one, other, strict=True))
