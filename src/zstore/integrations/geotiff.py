"""What a GeoTIFF made of arrays is: its bands, its profile, its tags, and its data window by window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from types import ModuleType
from typing import Any

import numpy as np

from zstore.array import Array
from zstore.conventions.model import Variable
from zstore.errors import NotFoundError, UnsupportedError
from zstore.pyramid.cascade import windows
from zstore.pyramid.dataset import Dataset

__all__ = ["Band", "copy_bands", "describe_file", "find_mask", "plan_bands", "plan_file"]

TILE_LENGTH = 256
# Larger chunks are read in parts rather than held in memory together.
CHUNK_LENGTH = 4096
# What the array of a raster's mask says of its values.
MASK_VALUES = (0, 255)
MASK_MEANINGS = ("invalid", "valid")


@dataclass(frozen=True)
class Band:
    """One band to write: the array, and the item of its third dimension, if it has one."""

    array: Array
    axes: tuple[int, int]
    item: int | None
    variable: Variable

    def read(self, window: tuple[slice, slice]) -> np.ndarray[Any, Any]:
        region: list[Any] = [self.item] * self.array.ndim
        for axis, part in zip(self.axes, window, strict=True):
            region[axis] = part
        found: np.ndarray[Any, Any] = self.array[tuple(region)]
        return found if self.axes[0] < self.axes[1] else found.T


def plan_bands(dataset: Dataset, wanted: Sequence[str] | None) -> list[Band]:
    """The bands that the arrays make, in the order wanted, else in the order that the group states."""
    names = dataset.band_names if wanted is None else list(wanted)
    bands: list[Band] = []
    for name in names:
        if name not in dataset.arrays:
            known = ", ".join(dataset.arrays)
            raise NotFoundError(f"no array {name!r} on the grid; there are {known}", path=dataset.place)
        array, axes = dataset.arrays[name], dataset.axes(name)
        if array.ndim > 3:
            expected = "expected two, or a third for the bands"
            raise UnsupportedError(f"{name!r} has {array.ndim} dimensions; {expected}", path=dataset.place)
        third = [n for axis, n in enumerate(array.shape) if axis not in axes]
        items: list[int | None] = list(range(third[0])) if third else [None]
        bands += [Band(array, axes, item, dataset.geo.variables[name]) for item in items]
    return bands


def find_mask(dataset: Dataset, bands: Sequence[Band]) -> Band | None:
    """The array that a raster's mask has become, unless it is among the bands."""
    for name, variable in dataset.geo.variables.items():
        array = dataset.arrays.get(name)
        if array is None or array.ndim != 2 or variable.flag_meanings != MASK_MEANINGS:
            continue
        if variable.flag_values == MASK_VALUES and array.basename not in {b.array.basename for b in bands}:
            return Band(array, dataset.axes(name), None, variable)
    return None


def plan_file(
    rasterio: ModuleType, dataset: Dataset, bands: Sequence[Band], compress: str | None
) -> dict[str, Any]:
    """What the file as a whole is: one data type, one nodata, one place."""
    kinds = {band.array.dtype.name: band.array.basename for band in bands}
    holes = {repr(band.variable.nodata): band.array.basename for band in bands}
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
    profile: dict[str, Any] = {
        "width": dataset.geo.shape[1],
        "height": dataset.geo.shape[0],
        "count": len(bands),
        "dtype": kind,
        "nodata": bands[0].variable.nodata,
        "crs": None if dataset.geo.crs is None else dataset.geo.crs.code or dataset.geo.crs.wkt,
        "tiled": True,
        "blockxsize": TILE_LENGTH,
        "blockysize": TILE_LENGTH,
        "bigtiff": "IF_SAFER",
    }
    if dataset.geo.affine is not None:
        profile["transform"] = rasterio.Affine(*dataset.geo.affine)
    return profile if compress is None else {**profile, "compress": compress}


def describe_file(rasterio: ModuleType, raster: Any, dataset: Dataset, bands: Sequence[Band]) -> None:
    """Give an open file its tags, and the bands theirs: description, unit, packing, colours."""
    raster.update_tags(**_tags(dataset.attributes.get("tags")))
    for index, band in enumerate(bands, 1):
        said, attributes = band.variable, band.variable.attributes
        name = said.long_name or band.array.basename
        raster.set_band_description(index, name if band.item is None else f"{name} {band.item}")
        if said.units is not None:
            raster.set_band_unit(index, said.units)
        raster.update_tags(index, **_tags(attributes.get("tags")))
        table = attributes.get("color_table")
        if isinstance(table, Mapping) and band.array.dtype.name in ("uint8", "uint16") and index == 1:
            raster.write_colormap(index, {int(value): tuple(rgba) for value, rgba in table.items()})
    if any(band.variable.scale_factor is not None or band.variable.add_offset is not None for band in bands):
        raster.scales = [1.0 if b.variable.scale_factor is None else b.variable.scale_factor for b in bands]
        raster.offsets = [b.variable.add_offset or 0.0 for b in bands]
    point = bands[0].variable.area_or_point
    if point is not None:
        raster.update_tags(AREA_OR_POINT=point)
    colours = [band.variable.attributes.get("color_interpretation") for band in bands]
    known = rasterio.enums.ColorInterp.__members__
    if all(colour in known and colour != "palette" for colour in colours):
        raster.colorinterp = [known[colour] for colour in colours]


def _tags(found: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


def copy_bands(
    raster: Any, bands: Sequence[Band], mask: Band | None, progress: Callable[[int, int], None] | None
) -> None:
    """Fill an open file window by window; of whole tiles, and whole chunks where that can be."""
    unit = (TILE_LENGTH, TILE_LENGTH)
    for band in bands:
        lengths = band.array.shards or band.array.chunks
        y, x = (lengths[axis] for axis in band.axes)
        unit = (lcm(unit[0], y), lcm(unit[1], x)) if max(y, x) <= CHUNK_LENGTH else unit
    total, done = len(bands) * raster.width * raster.height, 0
    for window in windows(
        (raster.height, raster.width), unit, sum(band.array.dtype.itemsize for band in bands)
    ):
        place = tuple((part.start, part.stop) for part in window)
        for index, band in enumerate(bands, 1):
            block = band.read(window)
            raster.write(block, index, window=place)
            done += block.size
            if progress is not None:
                progress(done, total)
        if mask is not None:
            raster.write_mask(mask.read(window), window=place)
