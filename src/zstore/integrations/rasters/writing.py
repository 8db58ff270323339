"""Writing of rasters to Zarr: one or many, window by window, into the arrays of one group."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from zstore.conventions.gdal import is_fill_nodata
from zstore.conventions.model import GeoModel
from zstore.conventions.packing import Packed, Packing, check_packing_kind, pack_by_codecs
from zstore.conventions.write import render_geo
from zstore.engine.pool import ahead
from zstore.errors import NotFoundError, StoreError
from zstore.extensions.registry import resamplers
from zstore.integrations.rasters.geotiff import import_rasterio
from zstore.integrations.rasters.targets import begin_in, open_place
from zstore.jobs.plan import Progress
from zstore.jobs.runner import counter
from zstore.model.array import ZarrFormat
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.pyramid.boxes import windows
from zstore.pyramid.build import build_pyramid
from zstore.pyramid.dataset import PlaceLike, join_attributes, place_of
from zstore.pyramid.levels import create_auxiliaries, draft_auxiliaries, rehearse
from zstore.storage.base import join_key

RasterPath: TypeAlias = str | os.PathLike[str]
Window: TypeAlias = tuple[slice, slice]


class RasterWarning(UserWarning):
    """Something that a raster does not say, or says in a way that Zarr cannot repeat."""


@dataclass(frozen=True)
class PlacedRaster:
    """One of the rasters that are written together, and its place in their arrays.

    shape    (y, x) of the raster itself
    bands    (band number, array name), 0 for the mask
    place    its index along the dimensions before y and x
    corner   (y, x) of its first cell in the arrays
    """

    path: str
    shape: tuple[int, int]
    bands: tuple[tuple[int, str], ...]
    place: tuple[int, ...] = ()
    corner: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Description:
    """Rasters as one group: their model, the attributes of the group, and each raster's place."""

    geo: GeoModel
    rasters: tuple[PlacedRaster, ...]
    attributes: dict[str, Any]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of an array: that of the grid, behind the length of the time axis where it has one."""
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
    overwrite: bool
    profile: str | None
    packing: Packing
    progress: Progress | None


def write_rasters(found: Description, target: Group | PlaceLike, options: WriteOptions) -> Group:
    """The group at `target` with all rasters that are described."""
    zarr_format, levels = options.zarr_format, options.levels
    check_packing_kind(options.packing, zarr_format)
    by_codecs = {
        name: packed
        for name, variable in (found.geo.variables if options.packing == "codecs" else {}).items()
        if (packed := pack_by_codecs(variable)) is not None
    }
    variables = {**found.geo.variables, **{name: packed.variable for name, packed in by_codecs.items()}}
    found = replace(found, geo=replace(found.geo, variables=variables))
    documents, _ = render_geo(found.geo, zarr_format, profile=options.profile)
    plans: dict[str, dict[str, Any]] = {
        name: {
            "shape": found.shape_of(name),
            "dtype": variable.dtype,
            "chunks": _lengths(options.chunks, variable.dimensions),
            "shards": _lengths(options.shards, variable.dimensions),
            "compressors": options.compressors,
            "fill_value": documents[name]["fill_value"],
            "attributes": documents[name]["attributes"],
            "dimension_names": variable.dimensions or found.geo.dimensions,
        }
        for name, variable in found.geo.variables.items()
    }
    for name, packed in by_codecs.items():
        plans[name] |= {"filters": packed.filters, "fill_value": packed.fill_value}
    for plan in plans.values():
        rehearse(zarr_format, plan)
    resamplers.resolve(options.method)
    store, base, held = open_place(target, zarr_format)
    below = "" if levels == 0 else "0"
    names = [below] if below else list(plans)
    taken = [name for name in names if held is not None and name in held]
    if taken and held is not None:
        expected = "expected a group without them"
        raise StoreError(f"{', '.join(taken)} are there already; {expected}", path=place_of(held))
    said = {"sources": [raster.path for raster in found.rasters]}
    job = begin_in(
        store, base, held, zarr_format, "raster_to_zarr", said, sources=said["sources"],
        overwrite=options.overwrite,
    )  # fmt: skip
    share = 1 if levels == 0 else 2
    total = share * sum(prod(raster.shape) * len(raster.bands) for raster in found.rasters)
    tell = counter(total, options.progress)
    nodes = NewNodes(store, base, zarr_format)
    draft_auxiliaries(None if below else held, nodes, documents, "", below)
    arrays = {name: nodes.add_array(join_key(below, name), **plan) for name, plan in plans.items()}
    bands = {name for raster in found.rasters for band, name in raster.bands if band}
    bare = {name for name in bands if is_fill_nodata(found.geo.variables[name], zarr_format)}
    filled = dict[str, Array]()
    laid = defaultdict[tuple[int, ...], list[PlacedRaster]](list)
    for raster in found.rasters:
        for cells in _write_raster(raster, laid[raster.place], arrays, by_codecs, bare, filled):
            tell(cells)
        laid[raster.place].append(raster)
    _warn_of_gdal(found, filled)
    placed = documents[""]["attributes"]
    if held is None or below:
        nodes.add_group(below, join_attributes(found.attributes, placed))
    if held is None and below:
        # What holds a pyramid says what it is when that is whole.
        nodes.add_group("", {})
    nodes.publish()
    root = open_group(store, base, mode="r+")
    if held is not None and not below:
        create_auxiliaries(root, documents, "")
        root.attrs.put(join_attributes({**root.attrs, **found.attributes}, placed))
    if below:
        half, progress = total // share, options.progress
        root = build_pyramid(
            root["0"],
            root,
            levels=levels,
            method=options.method,
            profile=options.profile,
            progress=None if progress is None else lambda done, of: progress(half + half * done // of, total),
        )
    else:
        root = root.consolidate()
    job.end()
    return root


def _lengths(lengths: Any, dimensions: Sequence[str]) -> Any:
    """Lengths of chunks or shards along all dimensions: 1 along those before y and x."""
    if lengths is None or not dimensions:
        return lengths
    pair = (lengths, lengths) if isinstance(lengths, int) else tuple(lengths)
    return (*(1 for _ in dimensions[:-2]), *pair)


def _warn_of_gdal(found: Description, filled: Mapping[str, Array]) -> None:
    """Warn of what GDAL reads differently in the Zarr than in the raster."""
    path = found.rasters[0].path
    if filled:
        fills = ", ".join(f"{filled[name].fill_value} of {name!r}" for name in sorted(filled))
        text = f"raster {path!r} has no nodata: in Zarr v3, GDAL takes the fill value for it ({fills})"
        warnings.warn(RasterWarning(text), stacklevel=4)
    if found.geo.affine is not None and found.geo.affine.is_rotated:
        text = f"raster {path!r} is rotated: before 3.13, GDAL finds no place of it in Zarr"
        warnings.warn(RasterWarning(text), stacklevel=4)


def _write_raster(
    placed: PlacedRaster,
    earlier: Sequence[PlacedRaster],
    arrays: Mapping[str, Array],
    by_codecs: Mapping[str, Packed],
    bare: Container[str],
    filled: dict[str, Array],
) -> Iterator[int]:
    """Write one raster over the `earlier` ones of its place; gives the number of cells of each window.

    Into `filled` go those of the `bare` arrays, which have no nodata, that have cells of their fill value.
    """
    packed = [by_codecs.get(name) for _, name in placed.bands]
    mine = [(band, arrays[name]) for band, name in placed.bands]
    first = mine[0][1]
    unit = (first.shards or first.chunks)[-2:]
    below = [other for other in earlier if _overlap(other, placed)]
    with open_raster(placed.path) as raster:

        def read() -> Iterator[tuple[Window, list[Any], list[Any]]]:
            for window in _windows(placed, unit, sum(array.dtype.itemsize for _, array in mine)):
                place = tuple((piece.start, piece.stop) for piece in window)
                blocks = [
                    raster.read(b, window=place) if b else raster.dataset_mask(window=place) for b, _ in mine
                ]
                # Where another raster lies below, only valid cells cover it.
                valid = [
                    (raster.read_masks(b, window=place) if b else raster.dataset_mask(window=place)) != 0
                    for b, _ in (mine if below else ())
                ]
                yield window, blocks, valid

        # GDAL decodes the next window while this one is encoded; one thread, as its datasets want it.
        with closing(ahead(read())) as found:
            for window, blocks, valid in found:
                region = tuple(
                    slice(piece.start + at, piece.stop + at)
                    for piece, at in zip(window, placed.corner, strict=True)
                )
                for index, ((_, array), block) in enumerate(zip(mine, blocks, strict=True)):
                    if (codecs := packed[index]) is not None:
                        block = codecs.unpack(block)
                    where = (*(placed.place if array.ndim > 2 else ()), *region)
                    if valid and not valid[index].all():
                        block = np.where(valid[index], block, array[where])
                    array[where] = block
                    name = placed.bands[index][1]
                    if name in bare and name not in filled and (block == array.fill_value).any():
                        filled[name] = array
                yield sum(block.size for block in blocks)


def _overlap(a: PlacedRaster, b: PlacedRaster) -> bool:
    return all(
        at < other + size and other < at + length
        for at, length, other, size in zip(a.corner, a.shape, b.corner, b.shape, strict=True)
    )


def _windows(placed: PlacedRaster, unit: tuple[int, ...], item_size: int) -> Iterator[Window]:
    """Windows of the raster that end where the chunks of the arrays do."""
    skip = (placed.corner[0] % unit[0], placed.corner[1] % unit[1])
    shape = (placed.shape[0] + skip[0], placed.shape[1] + skip[1])
    for window in windows(shape, (unit[0], unit[1]), item_size):
        y, x = (
            slice(max(piece.start - before, 0), piece.stop - before)
            for piece, before in zip(window, skip, strict=True)
        )
        if y.stop > 0 and x.stop > 0:
            yield y, x
