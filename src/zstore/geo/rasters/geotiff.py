"""GeoTIFFs written from arrays: their bands, profile and tags, and the data window by window."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import lcm, prod
from pathlib import Path
from types import ModuleType
from typing import Any, Unpack
from xml.etree import ElementTree

import numpy as np

from zstore.base.boxes import Items, windows, with_sides
from zstore.base.once import once
from zstore.errors import NotFoundError, StoreError, UnsupportedError
from zstore.extensions.extras import optional
from zstore.geo.conventions.base import Variable
from zstore.geo.conventions.content import colours_of
from zstore.geo.pyramid.dataset import (
    Dataset,
    PlaceLike,
    find_mask,
    is_alpha,
    node_of,
    open_levels,
    other_grids,
    pick_level,
    sources_of,
    warn_of_above,
)
from zstore.geo.pyramid.selection import select as select_part
from zstore.geo.pyramid.selection import shown_values
from zstore.geo.rasters.classes import write_classes
from zstore.geo.rasters.new_file import check_new_file, make_file
from zstore.jobs.chunks import source_of
from zstore.jobs.how import How, HowWords, long_call
from zstore.jobs.plan import Estimate, Plan, Unit
from zstore.jobs.runner import Runner
from zstore.jobs.source import Source, all_but_lost
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.storage.kinds import GEOTIFF
from zstore.storage.url import with_storage_options

DRIVERS = ("GTiff", "COG")
TILE_LENGTH = 256
# Larger chunks are read in parts rather than held in memory together.
CHUNK_LENGTH = 4096
# Data types whose nodata rasterio hands to GDAL as a float, which has no more than these digits.
WIDE = ("int64", "uint64")
WIDE_LIMIT = 1 << 53
# The names that arrays have of bands without a description.
UNNAMED = re.compile(r"band_\d+")


# Bytes of blocks that GDAL keeps, of all files.
CACHE_SIZE = 128 << 20


def import_rasterio() -> ModuleType:
    """The package rasterio; an error names the extra to install if it is missing."""
    with optional("rasters can be read and written only with rasterio", "raster"):
        import rasterio
        import rasterio.shutil
    _limit_cache(rasterio)
    return rasterio  # type: ignore[no-any-return,unused-ignore]


@cache
def _limit_cache(rasterio: Any) -> None:
    """Keep GDAL from holding a twentieth of the machine's memory as blocks, unless its variable is set."""
    if "GDAL_CACHEMAX" not in os.environ:
        rasterio.env.set_gdal_config("GDAL_CACHEMAX", CACHE_SIZE)


@long_call(
    resume="a file appears whole or not at all, and nothing of it is kept",
    if_exists="it writes one file",
)
@with_storage_options
def zarr_to_raster(
    source: Array | Group | PlaceLike,
    target: str | os.PathLike[str],
    *,
    level: int = 0,
    driver: str = "GTiff",
    arrays: Sequence[str] | None = None,
    select: Mapping[str, Any] | None = None,
    compress: str | None = "deflate",
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Path:
    """The path of a GeoTIFF made from a group's arrays, one band each, with georeference and nodata.

    An array of more than two dimensions gives one band per item of one of the others; of the rest one item is
    selected. The array that a raster's mask became is its mask again. Names of classes, and what else of them
    a GeoTIFF has no tag for, go into `.aux.xml` beside it, as GDAL does it. The file appears once whole.

    level    of a pyramid, 0 for the finest
    driver   "GTiff" or "COG"; a COG's overviews are the pyramid's own coarser levels, where those lie on the
             same corner; of what is no pyramid, GDAL makes them
    arrays   names, in the order of the bands; None: the group's attribute `bands`, else all by name
    select   values of coordinates, as for `zstore.select`; an array without the dimension is whole

    Raises
        NotFoundError: there is no such source, level, array, dimension or value.
        ChangedError: an array was written to meanwhile; no file appears.
        StoreError: the target is there already (unless `overwrite`), cannot be written, or has another ending
            than a GeoTIFF's.
        UnsupportedError: rasterio is missing, or data types, nodata, dimensions or a compression that no one
            GeoTIFF has.
    """
    how = How(**words)
    rasterio = import_rasterio()
    if driver not in DRIVERS:
        raise UnsupportedError(f"driver is {driver!r}; expected one of {', '.join(DRIVERS)}")
    target = check_new_file(target, GEOTIFF, how)
    if select is not None:
        source = select_part(source, select)
    node = node_of(source)
    levels = open_levels(node, arrays=arrays or ())
    if node is not source:
        warn_of_above(node, levels[0])
    dataset = pick_level(levels, level)
    if arrays is None and isinstance(node, Group):
        _check_one_grid([dataset, *other_grids(node, dataset)])
    drawn = [dataset, *(_overviews(dataset, levels[level + 1 :]) if driver == "COG" else ())]

    def write(names: Sequence[str]) -> Path:
        # Levels that are arrays have names of their own.
        coarser = names if dataset.is_group else None
        files = [_File.plan(rasterio, one, names if one is dataset else coarser, compress) for one in drawn]
        return _write(rasterio, files, target, driver, compress, how)

    return write(arrays) if arrays is not None else all_but_lost(sources_of(drawn), write)


def _write(
    rasterio: ModuleType,
    files: Sequence[_File],
    target: Path,
    driver: str,
    compress: str | None,
    how: How,
) -> Path:
    """The path of a GeoTIFF of the first file, or of a COG whose overviews are the others."""

    def make(scratch: Path, runner: Runner, tell: Callable[[int], None]) -> Path:
        try:
            made = [scratch / f"{number}.tif" for number in range(len(files))]
            for path, file in zip(made, files, strict=True):
                file.write(rasterio, path, runner, tell)
            finished = made[0] if driver == "GTiff" else _make_cog(rasterio, made, files[0], compress)
            write_classes(finished, [band.variable for band in files[0].bands])
        except rasterio.errors.RasterioError as error:
            reason = error.__cause__ or error
            raise StoreError(f"raster cannot be written: {reason}", path=str(target)) from error
        return finished

    read = {band.source.url: band.source for file in files for band in file.read_bands}
    return make_file(
        target,
        how,
        make,
        read.values(),
        unit_size=max(file.window_size for file in files),
        cell_count=sum(file.cell_count for file in files),
        estimate=lambda n: Estimate.of({str(k): file.estimate(n) for k, file in enumerate(files)}),
    )


def _check_one_grid(grids: Sequence[Dataset]) -> None:
    """Refuse arrays on several grids, of which one GeoTIFF would drop some.

    Raises
        UnsupportedError: there are several.
    """
    if len(grids) > 1:
        said = [f"{', '.join(one.arrays)} ({one.geo.shape[0]} × {one.geo.shape[1]})" for one in grids]
        expected = "expected `arrays` (--bands) of one of them"
        raise UnsupportedError(
            f"arrays lie on {len(grids)} grids: {'; '.join(said)}; {expected}", path=grids[0].place
        )


@dataclass(frozen=True)
class _File:
    """One GeoTIFF to write: the bands, the mask, and rasterio's options for the whole file."""

    dataset: Dataset
    bands: Sequence[_Band]
    mask: _Band | None
    profile: Mapping[str, Any]

    @classmethod
    def plan(
        cls, rasterio: ModuleType, dataset: Dataset, arrays: Sequence[str] | None, compress: str | None
    ) -> _File:
        bands = _plan_bands(dataset, arrays)
        profile = _plan_file(rasterio, dataset, bands, compress)
        return cls(dataset, bands, _find_mask(dataset, bands), profile)

    @property
    def read_bands(self) -> list[_Band]:
        """The bands, and the mask."""
        return [*self.bands, *([] if self.mask is None else [self.mask])]

    @property
    def cell_count(self) -> int:
        return len(self.bands) * prod(self.dataset.geo.shape)

    @once
    def plan_of_windows(self) -> _WindowPlan:
        """The plan of windows of whole tiles, and of whole chunks where these are small."""
        unit = (TILE_LENGTH, TILE_LENGTH)
        for band in self.bands:
            lengths = band.array.shards or band.array.chunks
            y, x = (lengths[axis] for axis in band.axes)
            unit = (lcm(unit[0], y), lcm(unit[1], x)) if max(y, x) <= CHUNK_LENGTH else unit
        cell_size = sum(band.array.dtype.itemsize for band in self.bands)
        return _WindowPlan(tuple(self.read_bands), self.dataset.geo.shape, unit, cell_size)

    @once
    def window_size(self) -> int:
        """The bytes of the largest window."""
        return max(self._sizes(), default=0)

    def _sizes(self) -> list[int]:
        """The bytes of each window."""
        plan = self.plan_of_windows
        return [(bottom - top) * (right - left) * plan.cell_size for top, bottom, left, right in plan.units()]

    def estimate(self, at_once: int) -> Estimate:
        """The estimate of writing the file, with this number of windows at a time."""
        sizes = self._sizes()
        return Estimate(
            unit_count=len(sizes),
            read_size=sum(sizes),
            write_size=sum(sizes),
            request_count=len(sizes) * len(self.bands),
            memory_size=min(at_once, len(sizes)) * self.window_size,
        )

    def write(self, rasterio: ModuleType, path: Path, runner: Runner, tell: Callable[[int], None]) -> None:
        # A mask of its own file would be left behind.
        inside = rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True)
        with inside, rasterio.open(path, "w", driver="GTiff", **self.profile) as raster:
            _describe_file(rasterio, raster, self.dataset, self.bands)
            count = len(self.bands)

            def take(unit: Unit, blocks: list[Items]) -> None:
                top, bottom, left, right = unit
                window = ((top, bottom), (left, right))
                for index, block in enumerate(blocks[:count], 1):
                    raster.write(block, index, window=window)
                    tell(block.size)
                for block in blocks[count:]:
                    raster.write_mask(block, window=window)

            # In order, so that equal arrays make equal files.
            runner.run(self.plan_of_windows, path.stem, take, is_in_order=True)


@dataclass(frozen=True)
class _WindowPlan(Plan[list[Items]]):
    """The reading of a file's bands and its mask, window by window: (top, bottom, left, right).

    unit       the lengths of which windows are multiples
    cell_size  the bytes of a cell of all bands
    """

    bands: tuple[_Band, ...]
    shape: tuple[int, int]
    unit: tuple[int, int]
    cell_size: int

    def units(self) -> Iterator[Unit]:
        for y, x in windows(self.shape, self.unit, self.cell_size):
            yield y.start, y.stop, x.start, x.stop

    def make(self, unit: Unit) -> list[Items]:
        """Read a window of each band."""
        top, bottom, left, right = unit
        return [band.read((slice(top, bottom), slice(left, right))) for band in self.bands]


def _overviews(dataset: Dataset, coarser: Sequence[Dataset]) -> Sequence[Dataset]:
    """The coarser levels, if all of them cover the same ground; their last cells may reach beyond it."""
    fine = dataset.geo.affine
    for level in coarser:
        coarse = level.geo.affine
        if fine is None or coarse is None or fine.is_rotated or coarse.is_rotated or level.others:
            return ()
        wide = (coarse.a / fine.a, coarse.e / fine.e)
        lengths = (wide[1] * level.geo.shape[0], wide[0] * level.geo.shape[1])
        corner = ((coarse.f - fine.f) / fine.e, (coarse.c - fine.c) / fine.a)
        reach = [long - length for long, length in zip(lengths, dataset.geo.shape, strict=True)]
        if any(abs(at) > 0.01 for at in corner) or not all(
            -0.01 <= beyond < factor for beyond, factor in zip(reach, reversed(wide), strict=True)
        ):
            return ()
    return coarser


def _make_cog(rasterio: ModuleType, made: Sequence[Path], file: _File, compress: str | None) -> Path:
    """The first of these files as a COG, whose overviews are the others."""
    options = {} if compress is None else {"compress": compress}
    source, cog = made[0], made[0].with_name("cog.tif")
    if len(made) > 1:
        # The driver takes the overviews of what it copies: a VRT says which files those are.
        source = source.with_suffix(".vrt")
        rasterio.shutil.copy(made[0], source, driver="VRT")
        tree = ElementTree.parse(source)
        for band in tree.iter("VRTRasterBand"):
            number = band.get("band")
            for path in made[1:]:
                overview = ElementTree.SubElement(band, "Overview")
                ElementTree.SubElement(overview, "SourceFilename", relativeToVRT="1").text = path.name
                ElementTree.SubElement(overview, "SourceBand").text = number or "mask,1"
        tree.write(source)
        options["overviews"] = "FORCE_USE_EXISTING"
    rasterio.shutil.copy(source, cog, driver="COG", **options)
    return cog


def usual_colours(count: int) -> list[str]:
    """The colour interpretations of a file's bands if nothing states others."""
    return ["gray", *["undefined"] * (count - 1)][:count]


@dataclass(frozen=True)
class _Band:
    """One band to write: an array, and the items of its dimensions other than y and x.

    axes   the indices of the array's y and x dimension
    items  an index along each of the others, in the array's order
    words  the values of the others' coordinates there, or the indices along those without one
    """

    name: str
    array: Array
    variable: Variable
    axes: tuple[int, int]
    items: tuple[int, ...] = ()
    words: Sequence[str] = ()

    @classmethod
    def of(cls, dataset: Dataset, name: str, items: tuple[int, ...] = (), words: Sequence[str] = ()) -> _Band:
        """The band that an array of a dataset makes."""
        return cls(name, dataset.arrays[name], dataset.geo.variables[name], dataset.axes(name), items, words)

    @once
    def source(self) -> Source:
        """The items of the array."""
        return source_of(self.array)

    def read(self, window: tuple[slice, slice]) -> Items:
        """The cells of a window, y before x, with the one nodata that a GeoTIFF can have."""
        items = iter(self.items)
        sides = [0 if axis in self.axes else next(items, 0) for axis in range(self.array.ndim)]
        box = with_sides([slice(item, item + 1) for item in sides], self.axes, window)
        y, x = (side.stop - side.start for side in window)
        cells = self.variable.with_one_nodata(self.source.read(box))
        return cells.reshape(y, x) if self.axes[0] < self.axes[1] else cells.reshape(x, y).T


def _plan_bands(dataset: Dataset, wanted: Sequence[str] | None) -> list[_Band]:
    """The bands that the arrays make, in the order wanted, else in the order of the group's attribute."""
    names = dataset.band_names if wanted is None else list(wanted)
    bands: list[_Band] = []
    texts = {name: shown_values(one) for name, one in dataset.extras.items() if one.dims == (name,)}
    for name in names:
        if name not in dataset.arrays:
            known = ", ".join(dataset.arrays)
            raise NotFoundError(f"no array {name!r} on the grid; there are {known}", path=dataset.place)
        array, axes = dataset.arrays[name], dataset.axes(name)
        others = {
            dim: range(array.shape[axis])
            for axis, dim in enumerate(dataset.dimensions(name))
            if axis not in axes
        }
        long = [dim for dim, items in others.items() if len(items) > 1]
        if len(long) > 1:
            expected = "expected many items along one of these, for the bands: select a value of the others"
            raise UnsupportedError(
                f"{name!r} has {array.ndim} dimensions, among them {', '.join(long)}; {expected}",
                path=dataset.place,
            )
        for items in product(*others.values()):
            pairs = zip(others, items, strict=True)
            words = [texts[dim][item] if dim in texts else str(item) for dim, item in pairs]
            bands.append(_Band.of(dataset, name, items, words))
    return bands


def _find_mask(dataset: Dataset, bands: Sequence[_Band]) -> _Band | None:
    """The array made from a raster's mask, unless it is among the bands; an alpha is a band."""
    name = find_mask(dataset)
    if name is None or is_alpha(dataset.geo.variables[name]):
        return None
    return None if name in {band.name for band in bands} else _Band.of(dataset, name)


def _plan_file(
    rasterio: ModuleType, dataset: Dataset, bands: Sequence[_Band], compress: str | None
) -> dict[str, Any]:
    """The profile of the whole file for rasterio: one data type, one nodata, one georeference."""
    kinds = {band.array.dtype.name: band.name for band in bands}
    holes = {repr(band.variable.nodata): band.name for band in bands}
    for what, found in (("data types", kinds), ("nodata values", holes)):
        if len(found) != 1:
            listed = ", ".join(f"{value} ({name})" for value, name in found.items())
            expected = "expected one in one GeoTIFF: select arrays"
            raise UnsupportedError(
                f"arrays have the {what} {listed or 'of none'}; {expected}", path=dataset.place
            )
    (kind,) = kinds
    if not rasterio.dtypes.check_dtype(kind) or kind == "bool":
        raise UnsupportedError(f"a GeoTIFF cannot hold the data type {kind}", path=dataset.place)
    nodata = bands[0].variable.nodata
    if kind in WIDE and nodata is not None and abs(nodata) > WIDE_LIMIT:
        raise UnsupportedError(
            f"nodata is {nodata}; expected at most {WIDE_LIMIT} in a GeoTIFF, for rasterio would round it",
            path=dataset.place,
        )
    profile: dict[str, Any] = {
        "width": dataset.geo.shape[1],
        "height": dataset.geo.shape[0],
        "count": len(bands),
        "dtype": kind,
        "nodata": nodata,
        "crs": None if dataset.geo.crs is None else dataset.geo.crs.code or dataset.geo.crs.wkt,
        "tiled": True,
        "blockxsize": TILE_LENGTH,
        "blockysize": TILE_LENGTH,
        "bigtiff": "IF_SAFER",
    }
    if not _is_palette(bands):
        # Unless it is told, GDAL takes three bands of bytes for colours, and a fourth for their alpha.
        is_rgb = _colours(bands)[:3] == ["red", "green", "blue"]
        profile["photometric"] = "RGB" if is_rgb else "MINISBLACK"
    if dataset.geo.affine is not None:
        profile["transform"] = rasterio.Affine(*dataset.geo.affine)
    if compress is None:
        return profile
    _check_compression(rasterio, {**profile, "compress": compress}, dataset.place)
    return {**profile, "compress": compress}


def _check_compression(rasterio: ModuleType, profile: Mapping[str, Any], place: str) -> None:
    """Check the compression on one cell: GDAL itself only logs that it does not know one."""
    compress = str(profile["compress"])
    kept = ("count", "dtype", "compress", "photometric")
    one = {"driver": "GTiff", "width": 1, "height": 1, **{k: profile[k] for k in kept if k in profile}}
    refused = (
        f"compress is {compress!r}, which GDAL has not for GeoTIFF of {one['count']} {one['dtype']} bands"
    )
    with rasterio.MemoryFile() as memory, warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        try:
            with memory.open(**one) as made:
                made.write(np.zeros((one["count"], 1, 1), one["dtype"]))
            with memory.open() as made:
                is_used = made.compression is not None or compress.lower() == "none"
        except rasterio.errors.RasterioError as error:
            raise UnsupportedError(f"{refused}: {error.__cause__ or error}", path=place) from error
    if not is_used:
        raise UnsupportedError(refused, path=place)


def _describe_file(rasterio: ModuleType, raster: Any, dataset: Dataset, bands: Sequence[_Band]) -> None:
    """Set an open file's tags, and for each band its tags, description, unit, packing and colours."""
    raster.update_tags(**_tags(dataset.attributes.get("tags")))
    for index, band in enumerate(bands, 1):
        said, attributes = band.variable, band.variable.attributes
        name = said.long_name or band.array.basename
        if band.items or not UNNAMED.fullmatch(name):
            raster.set_band_description(index, " ".join([name, *band.words]))
        if said.units is not None:
            raster.set_band_unit(index, said.units)
        raster.update_tags(index, **_tags(attributes.get("tags")))
        table = colours_of(said)
        if table and band.array.dtype.name in ("uint8", "uint16") and index == 1:
            raster.write_colormap(index, table)
    if any(band.variable.scale_factor is not None or band.variable.add_offset is not None for band in bands):
        raster.scales = [1.0 if b.variable.scale_factor is None else b.variable.scale_factor for b in bands]
        raster.offsets = [b.variable.add_offset or 0.0 for b in bands]
    point = bands[0].variable.area_or_point
    if point is not None:
        raster.update_tags(AREA_OR_POINT=point)
    if not _is_palette(bands):
        raster.colorinterp = [rasterio.enums.ColorInterp[colour] for colour in _colours(bands)]


def _is_palette(bands: Sequence[_Band]) -> bool:
    return bands[0].variable.attributes.get("color_interpretation") == "palette"


def _colours(bands: Sequence[_Band]) -> list[str]:
    """The colour interpretation of each band: the one in the documents, if GDAL has it, or the usual."""
    import rasterio.enums

    known = rasterio.enums.ColorInterp.__members__
    stated = [band.variable.attributes.get("color_interpretation") for band in bands]
    return [
        str(colour) if colour in known and colour != "palette" else usual
        for colour, usual in zip(stated, usual_colours(len(bands)), strict=True)
    ]


def _tags(found: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}
