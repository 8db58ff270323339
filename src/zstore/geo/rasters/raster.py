"""Rasters that GDAL reads, as sources of jobs and converted to Zarr."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, Unpack
from xml.etree import ElementTree

import numpy as np

from zstore.base.boxes import Box, Items, inside, lengths, meet
from zstore.base.once import once
from zstore.errors import MetadataError, NotFoundError, RasterWarning, StoreError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.cf import is_fill_nodata
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.build import build_pyramid, update_levels
from zstore.geo.pyramid.dataset import MASK_MEANINGS, MASK_VALUES, PlaceLike, join_attributes
from zstore.geo.pyramid.levels import add_auxiliaries
from zstore.geo.rasters.classes import parse_categories, parse_table
from zstore.geo.rasters.files import (
    FileArray,
    FileJob,
    FileStore,
    FileWindows,
    OpenFiles,
    Version,
    check_version,
    file_in,
    find_version,
    mark_of,
)
from zstore.geo.rasters.geotiff import WIDE, import_rasterio, usual_colours
from zstore.jobs.how import NOT_BY_KEYS, How, HowWords, long_call
from zstore.jobs.plan import as_part, name_job
from zstore.jobs.source import Marks
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.codec_packing import Packed, Packing, check_packing_kind, pack_by_codecs
from zstore.model.packing import fit_nodata
from zstore.nodes.group import Group
from zstore.storage.base import join_key
from zstore.storage.kinds import kind_by_name
from zstore.storage.memory import MemoryStore
from zstore.storage.objects.options import kind_of
from zstore.storage.url import current_storage_options, with_storage_options

RasterPath: TypeAlias = str | os.PathLike[str]

# An odd number with irregular bits, as hash functions multiply by.
MIXING = np.uint64(0x9E3779B97F4A7C15)
TILE_LENGTH = 256
HEADER_SIZE = 8  # of a TIFF
NAME_SIZE = 200  # bytes of an array's name, which directories have to hold
# By kind of bucket, where GDAL takes credentials and endpoints from.
GDAL_SETTINGS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_S3_ENDPOINT, ...",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_CONNECTION_STRING",
}


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
    with open_raster(source) as raster:
        described = describe_raster(raster, os.fspath(source), bands)
    return RasterJob(described, target, WriteOptions.among(locals())).carry_out()


class RasterStore(FileStore):
    """A raster as the group that `raster_to_zarr` makes of it, with an array for each band."""

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> RasterStore:
        """The raster at "raster://PATH", or at another address that GDAL opens.

        Raises, warns
            as `raster_to_zarr`.
        """
        return cls.of_job(_plan_raster(file_in(url, storage_options), None), url)


def raster_sources(source: RasterPath, bands: Sequence[int] | None = None) -> Mapping[str, FileArray]:
    """The bands of a raster, and its mask, as sources of jobs, by the names that `raster_to_zarr` gives them.

    Raises, warns
        as `raster_to_zarr`.
    """
    return _plan_raster(source, bands).file_arrays


def _plan_raster(source: RasterPath, bands: Sequence[int] | None) -> RasterJob:
    """The conversion of a raster into memory."""
    with open_raster(source) as raster:
        described = describe_raster(raster, os.fspath(source), bands)
    return RasterJob(described, MemoryStore(), WriteOptions(compressors=None))


@contextmanager
def open_raster(source: RasterPath, *, opener: Any = None, level: int = 0) -> Iterator[Any]:
    """The raster, or one of its overviews, open in rasterio.

    opener  what GDAL is to read files by: rasterio's `FileContainer`
    level   0 for the raster, 1 for its finest overview

    Raises
        NotFoundError, StoreError: it is not there or cannot be read.
        UnsupportedError: rasterio is missing; a bucket with storage options, which GDAL does not take.
    """
    rasterio = import_rasterio()
    # What stays open to the end of a process is closed when modules are gone.
    failed = rasterio.errors.RasterioIOError
    path = os.fspath(source)
    settings = GDAL_SETTINGS.get(kind_of(path.partition("://")[0]))
    if opener is None and settings is not None and current_storage_options():
        raise UnsupportedError(
            "GDAL reads buckets by settings of its own, not by storage options; "
            f"expected {settings} in the environment",
            path=path,
        )
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
            options = {} if opener is None else {"opener": opener}
            if level:
                options["overview_level"] = level - 1
            raster = rasterio.open(path, **options)
    except failed as error:
        kind, expected = kind_by_name(path), "expected a raster, a Zarr, NetCDF or HDF5"
        if kind is not None and kind.scheme is None and "zstore convert" not in kind.reading:
            expected += f"; {kind.reading.format(path=path)}"
        raise StoreError(f"not a raster that GDAL can open: {error}; {expected}", path=path) from error
    with closing(raster):
        try:
            yield raster
        except failed as error:
            reason = error.__cause__ or error
            raise StoreError(f"raster cannot be read: {reason}", path=path) from error


@dataclass(frozen=True)
class PlacedRaster:
    """One of the rasters that are written together, and its position in their arrays.

    shape    (y, x) of the raster itself
    bands    (band number, array name), 0 for the mask
    block    (y, x) shape of the blocks in which the file holds it
    place    its index along the dimensions before y and x
    corner   (y, x) of its first cell in the arrays
    version  of its files, as they are when it is described
    """

    path: str
    shape: tuple[int, int]
    bands: tuple[tuple[int, str], ...]
    block: tuple[int, int]
    place: tuple[int, ...] = ()
    corner: tuple[int, int] = (0, 0)
    version: Version = ()

    @once
    def numbers(self) -> dict[str, int]:
        """The numbers of the bands, by the names of the arrays."""
        return {name: band for band, name in self.bands}

    @property
    def box(self) -> Box:
        """The raster's (y, x) box in the arrays."""
        return tuple(slice(at, at + length) for at, length in zip(self.corner, self.shape, strict=True))


@dataclass(frozen=True)
class Description:
    """Rasters as one group: their model, the attributes of the group, and each raster's position.

    source  the path of the raster; "" for several
    """

    geo: GeoModel
    rasters: tuple[PlacedRaster, ...]
    attributes: dict[str, Any]
    source: str = ""

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of an array: that of the grid, behind the length of the time axis if it has one."""
        time = self.geo.time
        is_stacked = time is not None and time.name in self.geo.variables[name].dimensions
        return (len(time.values), *self.geo.shape) if time is not None and is_stacked else self.geo.shape


class RasterBand(FileArray):
    """The cells of one array: a band of a raster, of one raster after the other, or of many side by side.

    Where rasters meet, valid cells of later ones lie on top; what none of them covers has the fill value.

    rasters  those that have the array, of one grid
    model    of the array
    packed   the packing by codecs, which is taken off what is read; None where values stay as they are
    """

    def __init__(
        self,
        name: str,
        rasters: Sequence[PlacedRaster],
        model: ArrayModel,
        packed: Packed[Variable] | None,
        files: OpenFiles,
    ) -> None:
        first, shape = rasters[0], model.shape
        ahead = (1,) * (len(shape) - 2)
        versions = {part.path: part.version for part in rasters}
        block, span = (*ahead, *first.block), (*ahead, *shape[-2:])
        super().__init__(name, first.path, versions, model, block, span, files)
        self.packed = packed
        self._layers = defaultdict[tuple[int, ...], list[PlacedRaster]](list)
        for part in rasters:
            self._layers[part.place if ahead else ()].append(part)

    def marks(self) -> Marks:
        marks = np.ones(self.counts, np.uint64)
        for place, parts in self._layers.items():
            for part in parts:
                steps = zip(part.box, self.grid.chunk_shape[-2:], strict=True)
                sides: Any = (slice(side.start // n, -(-side.stop // n)) for side, n in steps)
                # The order of rasters counts where they meet.
                held = marks[(*place, *sides)]
                held *= MIXING
                held ^= mark_of([part.path, part.version, part.corner, self.name])
        return marks | np.uint64(1)

    def covered(self, box: Box) -> Iterator[Box]:
        for place, window in _layers_of(box):
            for part in self._met(place, window):
                yield (*(slice(at, at + 1) for at in place), *meet(part.box, window))

    def _met(self, place: tuple[int, ...], window: Box) -> list[PlacedRaster]:
        """The rasters at a place of the dimensions before y and x that have cells of a window."""
        return [part for part in self._layers.get(place, ()) if _meets(part.box, window)]

    def read(self, box: Box, out: Items | None = None) -> Items:
        layers = [(self._met(place, window), window) for place, window in _layers_of(box)]
        if out is None and len(layers) == 1:
            [(met, window)] = layers
            if len(met) == 1 and meet(met[0].box, window) == window:
                return self._cells(met[0], window)[0].reshape(lengths(box))
        items = np.empty(lengths(box), self.dtype) if out is None else out
        items[...] = self.fill_value
        for (met, window), layer in zip(layers, items.reshape(-1, *lengths(box[-2:])), strict=True):
            for number, part in enumerate(met):
                shared = meet(part.box, window)
                # Where another raster lies below, only valid cells cover it.
                is_above = any(_meets(other.box, shared) for other in met[:number])
                cells, valid = self._cells(part, shared, has_mask=is_above)
                np.copyto(layer[inside(shared, window)], cells, casting="unsafe", where=valid)
        return items

    def _cells(self, part: PlacedRaster, box: Box, *, has_mask: bool = False) -> tuple[Items, Any]:
        """(the cells of one raster in a box of the grid, whether each is valid; only with `has_mask`)."""
        place = tuple((side.start, side.stop) for side in inside(box, part.box))
        band = part.numbers[self.name]
        with self.files.open(open_raster, part.path) as raster:
            if band:
                _check_blocks(raster, band, place, part.path)
            cells: Items = raster.read(band, window=place) if band else raster.dataset_mask(window=place)
            valid: Any = True
            if has_mask:
                mask = raster.read_masks(band, window=place) if band else raster.dataset_mask(window=place)
                valid = mask != 0
        check_version(part.version, part.path)
        return cells if self.packed is None else self.packed.unpack(cells), valid


def _check_blocks(raster: Any, band: int, window: Sequence[tuple[int, int]], path: str) -> None:
    """Refuse a window of a TIFF with a block in its header, which GDAL reads as cells if uncompressed."""
    if raster.driver != "GTiff":
        return
    sides = zip(window, raster.block_shapes[band - 1], strict=True)
    for y, x in product(*(range(start // n, -(-stop // n)) for (start, stop), n in sides)):
        # None where the block was never written.
        offset = raster.get_tag_item(f"BLOCK_OFFSET_{x}_{y}", "TIFF", bidx=band)
        if offset is not None and int(offset) < HEADER_SIZE:
            raise StoreError(
                f"block ({y}, {x}) of band {band} lies at byte {offset}, in the file's header; "
                "the file is damaged",
                path=path,
            )


def _layers_of(box: Box) -> Iterator[tuple[tuple[int, ...], Box]]:
    """(place along the dimensions before y and x, y and x) of each layer of a box."""
    for place in product(*(range(side.start, side.stop) for side in box[:-2])):
        yield place, box[-2:]


def _meets(one: Box, other: Box) -> bool:
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of writing rasters, which are the parameters of `raster_to_zarr`."""

    zarr_format: ZarrFormat = 3
    chunks: int | tuple[int, int] = TILE_LENGTH
    shards: int | tuple[int, int] | None = None
    compressors: Any = "auto"
    levels: int | None = 0
    method: str = "average"
    profile: str | None = None
    packing: Packing = "attributes"
    how: How = field(default_factory=How)

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> WriteOptions:
        """The options among the arguments of a function."""
        return cls(**{one.name: arguments[one.name] for one in fields(cls)})


class RasterJob(FileJob):
    """The conversion of rasters into the arrays of one group at `target`; `carry_out` writes them.

    Raises
        as `raster_to_zarr`, of what does not depend on what the target holds.
    """

    work = "raster_to_zarr"

    def __init__(self, described: Description, target: Group | PlaceLike, options: WriteOptions) -> None:
        zarr_format, variables = options.zarr_format, described.geo.variables
        check_packing_kind(options.packing, zarr_format)
        packed = {
            name: packed
            for name, variable in (variables if options.packing == "codecs" else {}).items()
            if (packed := pack_by_codecs(variable)) is not None
        }
        variables = {**variables, **{name: one.variable for name, one in packed.items()}}
        self.described = replace(described, geo=replace(described.geo, variables=variables))
        self.options = options
        self.documents, _ = render_geo(self.described.geo, zarr_format, profile=options.profile)
        plans = {name: self._plan(name) for name in variables}
        for name, one in packed.items():
            plans[name] |= {"filters": one.filters, "fill_value": one.fill_value}
        resamplers.resolve(options.method)
        super().__init__(target, zarr_format, {p.path: p.version for p in described.rasters}, options.how)
        # A pyramid has the rasters as its finest level.
        self.level = "" if options.levels == 0 else "0"
        self.shares = 2 if self.level else 1
        for name in variables:
            path = join_key(self.level, name)
            model = self.make_model(path, plans[name])
            self.add_model(name, path, model)
            rasters = [part for part in described.rasters if name in part.numbers]
            self.file_arrays[name] = RasterBand(name, rasters, model, packed.get(name), self.files)

    @property
    def names(self) -> list[str]:
        return [self.level] if self.level else list(self.array_models)

    def windows(self) -> FileWindows:
        groups = dict.fromkeys(tuple(part.numbers) for part in self.described.rasters)
        variables = self.described.geo.variables
        bands = {name for part in self.described.rasters for band, name in part.bands if band}
        bare = [name for name in bands if is_fill_nodata(variables[name], self.options.zarr_format)]
        return FileWindows.of(groups, self.file_arrays, self.arrays, bare)

    def _plan(self, name: str) -> dict[str, Any]:
        """The arguments of `create_array` for one of the arrays."""
        variable, said, options = self.described.geo.variables[name], self.documents[name], self.options
        return {
            "shape": self.described.shape_of(name),
            "dtype": variable.dtype,
            "chunks": _lengths(options.chunks, variable.dimensions),
            "shards": _lengths(options.shards, variable.dimensions),
            "compressors": options.compressors,
            "fill_value": said["fill_value"],
            "attributes": said["attributes"],
            "dimension_names": variable.dimensions or self.described.geo.dimensions,
        }

    def call(self) -> dict[str, Any]:
        options = self.options
        return {
            "source": self.described.source,
            "levels": options.levels,
            "method": options.method,
            "profile": options.profile,
        }

    def describe(self) -> dict[str, Any]:
        if self.renewed is not None:
            return super().describe()
        rasters = self.described.rasters
        parts = name_job([[part.bands, part.place, part.corner, part.shape] for part in rasters])
        return {**super().describe(), "sources": [part.path for part in rasters], "parts": parts}

    def draft(self) -> None:
        # Coordinates are made again with what lies along them.
        is_beside = not self.level and self.renewed is None
        group = self.held if is_beside else None
        add_auxiliaries(self.nodes, self.documents, "", group=group, below=self.level)
        if self.existing is None or self.level:
            self.nodes.add_group(self.level, self._attributes())
        if self.existing is None and self.level:
            # What holds a pyramid says what it is when that is whole.
            self.nodes.add_group("", {})

    def _attributes(self, held: Mapping[str, Any] = {}) -> dict[str, Any]:
        """The attributes of the rasters' group, beside those that it has."""
        own = {**held, **self.described.attributes}
        return join_attributes(own, self.documents[""]["attributes"])

    def complete(self, root: Group) -> None:
        fills = ", ".join(f"{self.arrays[name].model.fill_value} of {name!r}" for name in sorted(self.filled))
        _warn_of_gdal(self.described, fills)
        if self.existing is not None and not self.level:
            add_auxiliaries(root, self.documents, "")
            root.attrs.put(self._attributes(root.attrs))
        if self.level:
            self._add_levels(root)
        else:
            root.consolidate()

    def _add_levels(self, root: Group) -> None:
        """Make or update the coarser levels; of a job in parts, the last part does."""
        options, how, half = self.options, self.how, self.item_count

        def tell(done: int, of: int) -> None:
            assert how.progress is not None
            how.progress(half + half * done // of, 2 * half)

        words: HowWords = {"memory": how.memory, "executor": how.executor}
        if how.progress is not None:
            words["progress"] = tell
        if self.renewed is not None:
            boxes = {name: self.renewed.boxes(name, array) for name, array in self.file_arrays.items()}
            update_levels(root, boxes, How(**words))
            return
        words["resume"] = how.resume
        ways: dict[str, Any] = {"method": options.method, "profile": options.profile}
        with as_part(None):
            build_pyramid(root["0"], root, levels=options.levels, **ways, **words)


def _lengths(lengths: Any, dimensions: Sequence[str]) -> Any:
    """Lengths of chunks or shards along all dimensions: 1 along those before y and x."""
    if lengths is None or not dimensions:
        return lengths
    pair = (lengths, lengths) if isinstance(lengths, int) else tuple(lengths)
    return (*(1 for _ in dimensions[:-2]), *pair)


def _warn_of_gdal(described: Description, fills: str) -> None:
    """Warn of facts that GDAL, which could read the raster, will read otherwise from Zarr."""
    path = described.rasters[0].path
    if fills:
        text = f"raster {path!r} has no nodata: in Zarr v3, GDAL takes the fill value for it ({fills})"
        warnings.warn(RasterWarning(text), stacklevel=6)
    if described.geo.affine is not None and described.geo.affine.is_rotated:
        text = f"raster {path!r} is rotated: before 3.13, GDAL finds no place of it in Zarr"
        warnings.warn(RasterWarning(text), stacklevel=6)


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
    block = raster.block_shapes[wanted[0] - 1]
    placed = PlacedRaster(path, geo.shape, tuple(pairs), block, version=version)
    return Description(geo, (placed,), attributes, path)


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
