"""Rasters that GDAL reads, turned into Zarr window by window."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from xml.etree import ElementTree

import numpy as np

from zstore.conventions.base import Documents
from zstore.conventions.crs import Crs
from zstore.conventions.decoding import fit_nodata
from zstore.conventions.model import Affine, GeoModel, Variable
from zstore.conventions.write import render_geo
from zstore.engine.pool import ahead
from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.integrations.rasters.geotiff import (
    MASK_MEANINGS,
    MASK_VALUES,
    WIDE,
    import_rasterio,
    usual_colours,
)
from zstore.model.array import ZarrFormat
from zstore.nodes.group import Group
from zstore.nodes.open import create_group
from zstore.pyramid.boxes import windows as cut_windows
from zstore.pyramid.build import build_pyramid
from zstore.pyramid.dataset import PlaceLike, join_attributes, place_of
from zstore.pyramid.levels import create_auxiliaries, rehearse

__all__ = ["RasterWarning", "raster_to_zarr"]

Progress: TypeAlias = Callable[[int, int], None]
RasterPath: TypeAlias = str | os.PathLike[str]

TILE_LENGTH = 256
NAME_SIZE = 200  # bytes of an array's name, which directories have to hold


class RasterWarning(UserWarning):
    """Something that a raster does not say, or says in a way that Zarr cannot repeat."""


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
    overwrite: bool = False,
    profile: str | None = None,
    progress: Progress | None = None,
) -> Group:
    """The group at `target`, with one array per band of the raster at `source`, and where it all lies.

    Arrays have the names of the bands' descriptions, or "band_1", "band_2", ...; the group's attribute
    `bands` keeps their order. Nodata, scale, offset, unit, tags and colours go along, a raster's mask as an
    array of its own. Rotated grids keep their affine and have no coordinates per dimension.

    levels     0: a plain group; a number or None: a pyramid, with the raster as level "0" (`build_pyramid`)
    bands      from 1; None for all
    profile    what the documents are for, where it is not all readers together: one of
               `zstore.conventions.profiles.PROFILES`
    progress   called with (cells done, cells to do)

    Raises
        NotFoundError, StoreError: the raster is not there or cannot be read; the target is there already.
        UnsupportedError: rasterio is missing, a data type that Zarr does not have, or a raster that ground
            control points or RPCs place, rather than an affine.
    Warns
        RasterWarning: no CRS, no affine, or a nodata value that the data type cannot hold.
    """
    with _opened(import_rasterio(), source) as raster:
        found = _describe(raster, os.fspath(source), bands)
        documents, _ = render_geo(found.geo, zarr_format, profile=profile)
        plans = _plan_arrays(found, documents, chunks, shards, compressors)
        for plan in plans.values():
            rehearse(zarr_format, plan)
        resamplers.resolve(method)
        root = _make_root(target, zarr_format, overwrite=overwrite)
        group = root if levels == 0 else root.create_group("0")
        share = 1 if levels == 0 else 2
        total = share * prod(found.geo.shape) * len(found.bands)
        tell = progress or (lambda done, total: None)
        _write_bands(raster, found, group, documents, plans, lambda done: tell(done, total))
    if levels == 0:
        return root.consolidate()
    half = total // share
    return build_pyramid(
        group,
        root,
        levels=levels,
        method=method,
        profile=profile,
        progress=lambda done, of: tell(half + half * done // of, total),
    )


@dataclass(frozen=True)
class _Raster:
    """What a raster says of itself: geography, and (band number, array name), 0 for the mask."""

    geo: GeoModel
    bands: tuple[tuple[int, str], ...]
    attributes: dict[str, Any]


@contextmanager
def _opened(rasterio: ModuleType, source: RasterPath) -> Iterator[Any]:
    path = os.fspath(source)
    if "://" not in path and not path.startswith("/vsi") and ":" not in path and not Path(path).exists():
        raise NotFoundError("no raster there", path=path)
    try:
        with warnings.catch_warnings():
            # A raster without a place is told of by a warning of our own.
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            raster = rasterio.open(path)
    except rasterio.errors.RasterioIOError as error:
        raise StoreError(f"not a raster that GDAL can open: {error}", path=path) from error
    with raster:
        try:
            yield raster
        except rasterio.errors.RasterioIOError as error:
            reason = error.__cause__ or error
            raise StoreError(f"raster cannot be read: {reason}", path=path) from error


def _describe(raster: Any, path: str, bands: Sequence[int] | None) -> _Raster:
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
        warnings.warn(RasterWarning(text), stacklevel=4)
    names = _names([raster.descriptions[band - 1] for band in wanted], wanted)
    usual = usual_colours(len(names))
    variables = {n: _variable(raster, b, path, u) for n, b, u in zip(names, wanted, usual, strict=True)}
    pairs = list(zip(wanted, names, strict=True))
    masks = [{flag.name for flag in raster.mask_flag_enums[band - 1]} for band in wanted]
    if not all(masks):
        text = f"raster {path!r} has a mask of its own for each band, which is left out"
        warnings.warn(RasterWarning(text), stacklevel=4)
    elif masks[0] == {"per_dataset"}:
        mask = Variable(np.dtype("u1"), flag_values=MASK_VALUES, flag_meanings=MASK_MEANINGS)
        pairs.append((0, _names(["mask", *names], [0, *wanted])[0]))
        variables[pairs[-1][1]] = mask
    tags = {name: value for name, value in raster.tags().items() if name != "AREA_OR_POINT"}
    attributes: dict[str, Any] = {"bands": names, **({"tags": tags} if tags else {})}
    geo = GeoModel(crs, affine, (raster.height, raster.width), variables=variables)
    return _Raster(geo, tuple(pairs), attributes)


def _affine(raster: Any, path: str) -> Affine | None:
    if not raster.transform.is_identity:
        return Affine.from_user(raster.transform[:6])
    points, _ = raster.gcps
    placed = f"{len(points)} ground control points" if points else "RPCs" if raster.rpcs else None
    if placed is None:
        return None
    raise UnsupportedError(
        f"raster is placed by {placed}; expected an affine (gdalwarp gives the raster one)", path=path
    )


def _names(wanted: Sequence[str | None], bands: Sequence[int]) -> list[str]:
    """One name per band: its description as far as it makes a name, and one of its own."""
    names: list[str] = []
    for description, band in zip(wanted, bands, strict=True):
        name = re.sub(r"[^\w.-]+", "_", description or "").strip("_.-")
        name = name.encode()[:NAME_SIZE].decode(errors="ignore") or f"band_{band}"
        while name in (*names, "x", "y", "spatial_ref", "zarr.json") or name.startswith("__"):
            name = f"{name.strip('_')}_{band}"
        names.append(name)
    return names


def _variable(raster: Any, band: int, path: str, usual_colour: str) -> Variable:
    index = band - 1
    try:
        dtype = np.dtype(raster.dtypes[index])
    except TypeError:
        raise UnsupportedError(
            f"band {band} has the data type {raster.dtypes[index]!r}, which Zarr does not have", path=path
        ) from None
    nodata: Any = _wide_nodata(raster, index) if dtype.name in WIDE else raster.nodatavals[index]
    if nodata is not None:
        try:
            nodata = fit_nodata(nodata, dtype)
        except MetadataError as error:
            text = f"band {band} of raster {path!r}: {error.message}; it is left out"
            warnings.warn(RasterWarning(text), stacklevel=5)
            nodata = None
    attributes: dict[str, Any] = {}
    # Statistics go stale with the first write, and are other at every level.
    tags = {name: value for name, value in raster.tags(band).items() if not name.startswith("STATISTICS_")}
    if tags:
        attributes["tags"] = tags
    colour = raster.colorinterp[index].name
    if colour != usual_colour:
        attributes["color_interpretation"] = colour
    if colour == "palette":
        table = raster.colormap(band)
        attributes["color_table"] = {str(value): list(rgba) for value, rgba in table.items()}
    scale, offset = raster.scales[index], raster.offsets[index]
    point = raster.tags().get("AREA_OR_POINT")
    return Variable(
        dtype,
        nodata=nodata,
        scale_factor=None if (scale, offset) == (1.0, 0.0) else scale,
        add_offset=None if (scale, offset) == (1.0, 0.0) else offset,
        units=raster.units[index] or None,
        long_name=raster.descriptions[index] or None,
        area_or_point=point if point in ("Area", "Point") else None,
        attributes=attributes,
    )


def _wide_nodata(raster: Any, index: int) -> int | None:
    """The nodata of a band of 64-bit integers, which rasterio itself rounds to a float or leaves out."""
    from rasterio import shutil
    from rasterio.io import MemoryFile

    with MemoryFile(ext=".vrt") as memory:
        shutil.copy(raster, memory.name, driver="VRT")
        bands = ElementTree.fromstring(memory.read()).findall("VRTRasterBand")
    stated = bands[index].findtext("NoDataValue")
    return None if stated is None else int(float(stated) if "." in stated or "e" in stated else stated)


def _make_root(target: Group | PlaceLike, zarr_format: ZarrFormat, *, overwrite: bool) -> Group:
    if not isinstance(target, Group):
        return create_group(target, zarr_format=zarr_format, overwrite=overwrite)
    if target.zarr_format != zarr_format:
        raise MetadataError(
            f"zarr_format is {zarr_format}; expected the target group's {target.zarr_format}",
            path=place_of(target),
        )
    return target


def _plan_arrays(
    found: _Raster, documents: Documents, chunks: Any, shards: Any, compressors: Any
) -> dict[str, dict[str, Any]]:
    """What `create_array` takes for each band."""
    return {
        name: {
            "shape": found.geo.shape,
            "dtype": found.geo.variables[name].dtype,
            "chunks": chunks,
            "shards": shards,
            "compressors": compressors,
            "fill_value": documents[name]["fill_value"],
            "attributes": documents[name]["attributes"],
            "dimension_names": found.geo.dimensions,
        }
        for _, name in found.bands
    }


def _write_bands(
    raster: Any,
    found: _Raster,
    group: Group,
    documents: Documents,
    plans: Mapping[str, dict[str, Any]],
    tell: Callable[[int], None],
) -> None:
    create_auxiliaries(group, documents, "")
    arrays = {band: group.create_array(name, **plans[name]) for band, name in found.bands}
    first = next(iter(arrays.values()))
    y, x = first.shards or first.chunks
    windows = cut_windows(found.geo.shape, (y, x), sum(a.dtype.itemsize for a in arrays.values()))

    def read() -> Iterator[tuple[tuple[slice, slice], list[Any]]]:
        for window in windows:
            place = tuple((part.start, part.stop) for part in window)
            yield (
                window,
                [raster.read(b, window=place) if b else raster.dataset_mask(window=place) for b in arrays],
            )

    done = 0
    # GDAL decodes the next window while this one is encoded; one thread, as its datasets want it.
    with closing(ahead(read())) as found_ahead:
        for window, blocks in found_ahead:
            for array, block in zip(arrays.values(), blocks, strict=True):
                array[window] = block
                done += block.size
            tell(done)
    # The place comes last: a conversion that was interrupted says nowhere what it is.
    group.attrs.put(join_attributes({**group.attrs, **found.attributes}, documents[""]["attributes"]))
