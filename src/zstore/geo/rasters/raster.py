"""Conversion of a raster that GDAL reads into Zarr."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack
from xml.etree import ElementTree

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.packing import Packing
from zstore.geo.pyramid.dataset import MASK_MEANINGS, MASK_VALUES, PlaceLike
from zstore.geo.rasters.classes import parse_categories, parse_table
from zstore.geo.rasters.geotiff import WIDE, usual_colours
from zstore.geo.rasters.targets import find_version
from zstore.geo.rasters.writing import (
    Description,
    PlacedRaster,
    RasterJob,
    RasterPath,
    RasterWarning,
    WriteOptions,
    open_raster,
)
from zstore.model.array import ZarrFormat
from zstore.model.packing import fit_nodata
from zstore.nodes.group import Group
from zstore.plugin.jobs import NOT_BY_KEYS, How, HowWords, long_call
from zstore.storage.url import with_storage_options

TILE_LENGTH = 256
NAME_SIZE = 200  # bytes of an array's name, which directories have to hold


@long_call(if_exists=NOT_BY_KEYS)
@with_storage_options
def raster_to_zarr(
    source: RasterPath,
    target: Group | PlaceLike,
    *,
    zarr_format: ZarrFormat = 3,
    chunks: int | tuple[int, int] = TILE_LENGTH,
    shards: int | tuple[int, int] | None = None,
    compressors: Any = "auto",
    bands: Sequence[int] | None = None,
    levels: int | None = 0,
    method: str = "average",
    profile: str | None = None,
    packing: Packing = "attributes",
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Group:
    """The group at `target`, with one array per band of the raster at `source`, and its georeference.

    Arrays have the names of the bands' descriptions, or "band_1", "band_2", ...; the group's attribute
    `bands` keeps their order. Nodata, scale, offset, unit, tags and colours go along, a raster's mask as an
    array of its own. Rotated grids keep their affine and have no coordinates per dimension.

    levels     0: a plain group; a number or None: a pyramid, with the raster as level "0" (`build_pyramid`)
    bands      from 1; None for all
    profile    one of `zstore.geo.conventions.write.PROFILES`; None: for all readers together
    packing    "codecs": bands with a scale and an offset become floats that codecs pack (`scale_offset` and
               `cast_value`, Zarr v3), nodata NaN among them; what is stored is as small

    Raises
        MetadataError: no such band or packing, or no float that holds what is packed; `resume`, and what was
            interrupted there is something else.
        ChangedError: a file of the raster was written meanwhile, or since what is to be gone on with.
        NotFoundError, StoreError: the raster is not there or cannot be read; the target is there already.
        UnsupportedError: rasterio is missing, a data type that Zarr does not have, or a raster that ground
            control points or RPCs place, rather than an affine.
    Warns
        RasterWarning: no CRS, no affine, a nodata value that the data type cannot hold, or what GDAL will not
            find of it in Zarr v3: that there is no nodata, where cells have the fill value; a rotated affine.
    """
    how = How(**words)
    return plan_raster(source, target, bands, WriteOptions.among(locals())).carry_out()


def plan_raster(
    source: RasterPath, target: Group | PlaceLike, bands: Sequence[int] | None, options: WriteOptions
) -> RasterJob:
    """The job of `raster_to_zarr`, before it is done; raises and warns likewise."""
    with open_raster(source) as raster:
        found = describe_raster(raster, os.fspath(source), bands)
    return RasterJob(found, target, options)


def describe_raster(raster: Any, path: str, bands: Sequence[int] | None = None) -> Description:
    """The description of one open raster.

    Raises, warns
        as `raster_to_zarr`.
    """
    version = find_version([*raster.files] or [path])
    if not raster.count:
        inside = ", ".join(raster.subdatasets) or "none"
        raise MetadataError(f"raster has no bands; it holds the datasets: {inside}", path=path)
    wanted = list(raster.indexes) if bands is None else list(bands)
    if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(raster.indexes):
        raise MetadataError(
            f"bands are {wanted!r}; expected different ones of 1 to {raster.count}", path=path
        )
    affine = _affine(raster, path)
    crs = None if raster.crs is None else Crs.from_user(raster.crs)
    missing = [name for name, value in (("CRS", crs), ("affine", affine)) if value is None]
    if missing:
        text = f"raster {path!r} has no {' and no '.join(missing)}: none is written, nothing is made up"
        warnings.warn(RasterWarning(text), stacklevel=6)
    told, flags = _tell_bands(raster), raster.mask_flag_enums
    names = choose_names([told[band - 1].description for band in wanted], wanted)
    usual = usual_colours(len(names))
    vrt = _vrt_bands(raster)
    variables = {
        n: _variable(raster, b, path, u, vrt[b - 1], told[b - 1])
        for n, b, u in zip(names, wanted, usual, strict=True)
    }
    pairs = list(zip(wanted, names, strict=True))
    masks = [{flag.name for flag in flags[band - 1]} for band in wanted]
    if not all(masks):
        text = f"raster {path!r} has a mask of its own for each band, which is left out"
        warnings.warn(RasterWarning(text), stacklevel=6)
    elif masks[0] == {"per_dataset"}:
        mask = Variable(np.dtype("u1"), flag_values=MASK_VALUES, flag_meanings=MASK_MEANINGS)
        pairs.append((0, choose_names(["mask", *names], [0, *wanted])[0]))
        variables[pairs[-1][1]] = mask
    tags = {name: value for name, value in raster.tags().items() if name != "AREA_OR_POINT"}
    attributes: dict[str, Any] = {"bands": names, **({"tags": tags} if tags else {})}
    geo = GeoModel(crs, affine, (raster.height, raster.width), variables=variables)
    placed = PlacedRaster(path, geo.shape, tuple(pairs), version=version)
    return Description(geo, (placed,), attributes)


def _affine(raster: Any, path: str) -> Affine | None:
    if not raster.transform.is_identity:
        return Affine.from_user(raster.transform[:6])
    points, _ = raster.gcps
    if not points and not raster.rpcs:
        return None
    placed, option = (f"{len(points)} ground control points", "-tps") if points else ("RPCs", "-rpc")
    raise UnsupportedError(
        f"raster is placed by {placed}; expected an affine, which this gives it: "
        f"gdalwarp {option} -t_srs EPSG:4326 {shlex.quote(path)} warped.tif",
        path=path,
    )


def choose_names(wanted: Sequence[str | None], bands: Sequence[int]) -> list[str]:
    """A unique name for each band: its description if that makes a name, else its number."""
    names: list[str] = []
    taken = {"x", "y", "spatial_ref", "zarr.json"}
    for description, band in zip(wanted, bands, strict=True):
        name = re.sub(r"[^\w.-]+", "_", description or "").strip("_.-")
        name = name.encode()[:NAME_SIZE].decode(errors="ignore") or f"band_{band}"
        while name in taken or name.startswith("__"):
            name = f"{name.strip('_')}_{band}"
        names.append(name)
        taken.add(name)
    return names


class _Told(NamedTuple):
    """The properties of a band in rasterio."""

    dtype: str
    nodata: Any
    scale: float
    offset: float
    unit: str | None
    description: str | None
    colour: Any


def _tell_bands(raster: Any) -> list[_Told]:
    """The properties of each band; each of them is read for all bands at once."""
    known = (
        raster.dtypes,
        raster.nodatavals,
        raster.scales,
        raster.offsets,
        raster.units,
        raster.descriptions,
    )
    return [_Told(*each) for each in zip(*known, raster.colorinterp, strict=True)]


def _variable(
    raster: Any, band: int, path: str, usual_colour: str, vrt: ElementTree.Element, told: _Told
) -> Variable:
    try:
        dtype = np.dtype(told.dtype)
    except TypeError:
        raise UnsupportedError(
            f"band {band} has the data type {told.dtype!r}, which Zarr does not have", path=path
        ) from None
    nodata: Any = _wide_nodata(vrt) if dtype.name in WIDE else told.nodata
    if nodata is not None:
        try:
            nodata = fit_nodata(nodata, dtype)
        except MetadataError as error:
            text = f"band {band} of raster {path!r}: {error.message}; it is left out"
            warnings.warn(RasterWarning(text), stacklevel=7)
            nodata = None
    attributes: dict[str, Any] = {}
    # Statistics go stale with the first write, and are other at every level.
    tags = {name: value for name, value in raster.tags(band).items() if not name.startswith("STATISTICS_")}
    if tags:
        attributes["tags"] = tags
    colour = told.colour.name
    if colour != usual_colour:
        attributes["color_interpretation"] = colour
    if colour == "palette":
        table = raster.colormap(band)
        attributes["color_table"] = {str(value): list(rgba) for value, rgba in table.items()}
    categories = parse_categories(vrt) if dtype.kind in "iu" else {}
    table = parse_table(vrt)
    if table:
        attributes["raster_attribute_table"] = table
    if categories:
        attributes["categories"] = {str(value): name for value, name in categories.items()}
    scale, offset = told.scale, told.offset
    point = raster.tags().get("AREA_OR_POINT")
    return Variable(
        dtype,
        nodata=nodata,
        scale_factor=None if (scale, offset) == (1.0, 0.0) else scale,
        add_offset=None if (scale, offset) == (1.0, 0.0) else offset,
        units=told.unit or None,
        long_name=told.description or None,
        area_or_point=point if point in ("Area", "Point") else None,
        flag_values=tuple(categories) or None,
        # CF's meanings are words.
        flag_meanings=tuple("_".join(name.split()) for name in categories.values()) or None,
        attributes=attributes,
    )


def _vrt_bands(raster: Any) -> list[ElementTree.Element]:
    """GDAL's XML of each band, with properties that rasterio lacks."""
    from rasterio import shutil
    from rasterio.io import MemoryFile

    with MemoryFile(ext=".vrt") as memory:
        shutil.copy(raster, memory.name, driver="VRT")
        # Texts of the file stand in it as they are, in whatever encoding.
        return ElementTree.fromstring(memory.read().decode("utf-8", "replace")).findall("VRTRasterBand")


def _wide_nodata(band: ElementTree.Element) -> int | None:
    """The nodata of a band of 64-bit integers, which rasterio itself rounds to a float or leaves out."""
    stated = band.findtext("NoDataValue")
    return None if stated is None else int(float(stated) if "." in stated or "e" in stated else stated)
