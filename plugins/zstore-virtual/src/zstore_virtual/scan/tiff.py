"""Scans GeoTIFF files and COGs: tifffile lists tiles and strips, GDAL tells the rest.

Bands that are stored apart (a single one, or PLANARCONFIG_SEPARATE) become arrays of two dimensions, as
`raster_to_zarr` makes them; interleaved bands become one array with a last dimension "band". Overviews become
levels of a pyramid.
"""

from __future__ import annotations

import base64
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from zstore.errors import RasterWarning, StoreError, UnsupportedError
from zstore.plugin.codecs import optional
from zstore.plugin.conventions import Band, GeoModel, Level, Variable, render_geo
from zstore.plugin.kernels import native
from zstore.plugin.pyramids import add_auxiliaries, join_attributes
from zstore.plugin.rasters import describe_raster, open_raster
from zstore.plugin.stores import join_key
from zstore_virtual.manifest import ABSENT
from zstore_virtual.scan.draft import Draft, cut_contiguous, refer_contiguous
from zstore_virtual.scan.origin import Origin

__all__ = ["scan_tiff"]

# Errors that tifffile raises for damaged files.
DAMAGES = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error)
# Bits of NewSubfileType.
REDUCED, MASK = 1, 4
# The dimension and the array of interleaved bands.
BAND_DIMENSION, IMAGE = "band", "image"
# By TIFF's number of the compression: codecs behind `bytes`.
STREAMS: dict[int, list[dict[str, Any]]] = {
    1: [],
    5: [{"name": "numcodecs.imagecodecs_lzw"}],
    8: [{"name": "numcodecs.zlib", "configuration": {"level": 6}}],
    32773: [{"name": "numcodecs.imagecodecs_packbits"}],
    32946: [{"name": "numcodecs.zlib", "configuration": {"level": 6}}],
    34925: [{"name": "numcodecs.lzma"}],
    50000: [{"name": "numcodecs.zstd", "configuration": {"level": 9}}],
}
# By the same number: codecs in place of `bytes`.
JPEG, LERC = 7, 34887
IMAGES = {JPEG: "jpeg", LERC: "lerc", 50001: "webp"}
# libtiff's tag of LERC's parameters; by the second of them: the compression of the blobs.
LERC_PARAMETERS = 50674
LERC_OUTER = {0: 1, 1: 8, 2: 50000}
# Of ExtraSamples: an alpha that colours are not multiplied by.
UNASSOCIATED = 2
# In a mask's bits 1 means valid; GDAL, and arrays of masks in zstore, have 255 for it.
MASK_CAST = {
    "name": "cast_value",
    "configuration": {
        "data_type": "uint8",
        "scalar_map": {"encode": [[255, 1]], "decode": [[1, 255]]},
    },
}


def scan_tiff(origin: Origin, draft: Draft, drop: frozenset[str] = frozenset()) -> None:
    """Add the arrays of a GeoTIFF: a group, or a pyramid where there are overviews.

    Raises
        StoreError: the file cannot be read.
        UnsupportedError: a compression, a layout or a type that references cannot express; it is named.
    """
    with optional("GeoTIFF files can be scanned only with tifffile", "tiff", owner="zstore-virtual"):
        import tifffile
    path = origin.address
    opener = None if origin.ranges is None else _opener(origin)
    try:
        # tifffile first: it fetches the tables of all levels, which GDAL then finds among the held blocks.
        with tifffile.TiffFile(origin.open() or path) as file:
            images, masks = _sort_pages(file, path)
            with open_raster(path, opener=opener) as raster:
                _check_colours(raster.tags(ns="IMAGE_STRUCTURE").get("SOURCE_COLOR_SPACE"), images[0], path)
                found = describe_raster(raster, path)
            _add_levels(found, images, masks, file.byteorder, origin, opener, draft, drop)
    except (tifffile.TiffFileError, *DAMAGES) as error:
        raise StoreError(f"TIFF file cannot be read: {error}", path=path) from error


def _opener(origin: Origin) -> Any:
    """An opener for rasterio with which GDAL reads a remote file, and finds no other file beside it."""
    from rasterio.abc import FileContainer

    class OneFile(FileContainer):  # type: ignore[misc]
        def open(self, path: str, mode: str = "r", **_: Any) -> Any:
            if not self.isfile(path) or "w" in mode or "+" in mode:
                raise FileNotFoundError(path)
            return origin.open()

        def isfile(self, path: str) -> bool:
            return path == origin.address

        def isdir(self, path: str) -> bool:
            return False

        def ls(self, path: str) -> list[str]:
            return []

        def mtime(self, path: str) -> int:
            return 0

        def size(self, path: str) -> int:
            return origin.size

        def rm(self, path: str) -> None:
            raise PermissionError(path)

    return OneFile()


def _sort_pages(file: Any, path: str) -> tuple[list[Any], list[Any]]:
    """The pages of images and those of masks, each from the finest level to the coarsest."""
    pages = [*file.pages]
    pages += [page for main in file.pages if main.subifds for page in main.pages]
    images = [page for page in pages if not page.subfiletype & MASK]
    masks = [page for page in pages if page.subfiletype & MASK]
    whole = [page for page in images if not page.subfiletype & REDUCED]
    if len(whole) != 1:
        raise UnsupportedError(f"file holds {len(whole)} images; expected one and its overviews", path=path)
    images.sort(key=lambda page: -page.imagewidth * page.imagelength)
    masks.sort(key=lambda page: -page.imagewidth * page.imagelength)
    return images, masks


def _check_colours(space: str | None, page: Any, path: str) -> None:
    """Raise UnsupportedError where GDAL makes red, green and blue of other colours, as of CMYK.

    Those of JPEG are made by its codec.
    """
    if space is not None and (space != "YCbCr" or int(page.compression) != JPEG):
        raise UnsupportedError(
            f"image has colours of {space}, of which GDAL makes others; expected red, green and blue",
            path=path,
        )


def _add_levels(
    found: Any,
    images: Sequence[Any],
    masks: Sequence[Any],
    order: str,
    origin: Origin,
    opener: Any,
    draft: Draft,
    drop: frozenset[str],
) -> None:
    """Add the groups of all levels, with an array for each band, or for all of them, and one for the mask.

    found   what GDAL tells of the raster
    order   the byte order of the file, as in numpy
    opener  what GDAL reads the file by
    """
    path = origin.address
    bands = [name for number, name in found.rasters[0].bands if number]
    mask = next((name for number, name in found.rasters[0].bands if not number), None)
    variables: dict[str, Variable] = dict(found.geo.variables)
    attributes = dict(found.attributes)
    if images[0].planarconfig == 1 and len(bands) > 1:
        attributes.pop("bands")
        variables = {IMAGE: _join_bands([variables[name] for name in bands], bands, path)}
        if mask is not None:
            variables[mask] = found.geo.variables[mask]
    for name in drop & set(variables):
        del variables[name]
    if mask in variables and len(masks) != len(images):
        raise UnsupportedError(
            f"file has {len(masks)} masks for {len(images)} levels; expected one for each, or to have "
            f"{mask!r} left out (drop)",
            path=path,
        )
    levels = tuple(_level(found.geo, number, page) for number, page in enumerate(images))
    geo = replace(found.geo, variables=variables, levels=levels if len(levels) > 1 else ())
    documents, _ = render_geo(geo, 3)
    source = draft.add_source(origin)
    draft.add_group("", join_attributes(attributes, documents[""]["attributes"]))
    for number, grid in enumerate(geo.grids):
        if grid.path:
            draft.add_group(grid.path, documents[grid.path]["attributes"])
        add_auxiliaries(draft, documents, grid.path)
        for name, variable in variables.items():
            page = (masks if name == mask else images)[number]
            if (page.imagelength, page.imagewidth) != tuple(grid.shape):
                raise UnsupportedError(
                    f"{name!r} of level {number} has {page.imagelength} rows, {page.imagewidth} columns; "
                    f"expected {grid.shape}",
                    path=path,
                )
            array_path = join_key(grid.path, name)
            document = documents[array_path]
            options = {
                "fill_value": document["fill_value"],
                "attributes": document["attributes"],
                "dimension_names": variable.dimensions or geo.dimensions,
            }
            plane = bands.index(name) if name in bands else 0
            image = _Image(page, order, path, array_path, number, opener, is_mask=name == mask)
            image.add_to(draft, source, plane, options)


def _join_bands(variables: Sequence[Variable], names: Sequence[str], path: str) -> Variable:
    """One variable for interleaved bands."""
    first = variables[0]
    for name in ("dtype", "nodata", "scale_factor", "add_offset", "units"):
        stated = [getattr(variable, name) for variable in variables]
        if len({repr(value) for value in stated}) > 1:
            raise UnsupportedError(f"interleaved bands have {name} {stated}; expected one for all", path=path)
    attributes = {
        key: value
        for key, value in first.attributes.items()
        if all(variable.attributes.get(key) == value for variable in variables)
    }
    bands = tuple(Band(name=name) for name in names)
    dimensions = ("y", "x", BAND_DIMENSION)
    kept = replace(first, dimensions=dimensions, bands=bands, attributes=attributes, long_name=None)
    return replace(kept, flag_values=None, flag_meanings=None)


def _level(geo: GeoModel, number: int, page: Any) -> Level:
    """The level of a page; its factors are whole numbers where these give its shape, else ratios."""
    shape = (page.imagelength, page.imagewidth)
    factors: list[float] = []
    for whole, length in zip(geo.shape, shape, strict=True):
        step = round(whole / length)
        factors.append(step if -(-whole // step) == length else whole / length)
    pair = (factors[0], factors[1])
    affine = None if geo.affine is None else geo.affine.scaled(pair)
    return Level(str(number), shape, affine, pair, (page.chunks[0], page.chunks[1]))


@dataclass(frozen=True)
class _Image:
    """A page of the file, or one plane of it, that becomes an array.

    order    the byte order of the file, as in numpy
    address  of the file
    path     of the array
    level    0 for the raster, 1 for its finest overview
    opener   what GDAL reads the file by
    """

    page: Any
    order: str
    address: str
    path: str
    level: int
    opener: Any
    is_mask: bool = False

    def fail(self, what: str) -> UnsupportedError:
        """The error for an image that references cannot express."""
        return UnsupportedError(f"image {self.path!r} {what}", path=self.address, key=self.path)

    def add_to(self, draft: Draft, source: int, plane: int, options: dict[str, Any]) -> None:
        """Add the array of a plane, and its references."""
        page = self.page
        samples = page.samplesperpixel if page.planarconfig == 1 and page.samplesperpixel > 1 else 0
        last = (samples,) if samples else ()
        shape = (page.imagelength, page.imagewidth, *last)
        chunk = (page.tilelength, page.tilewidth) if page.is_tiled else self._strip()
        grid = tuple(-(-length // step) for length, step in zip(shape, chunk, strict=False))
        count = grid[0] * grid[1]
        offsets = np.array(page.dataoffsets, np.int64)[plane * count : (plane + 1) * count]
        sizes = np.array(page.databytecounts, np.int64)[plane * count : (plane + 1) * count]
        if len(offsets) != count or len(sizes) != count:
            raise self.fail(f"has {len(offsets)} offsets and {len(sizes)} sizes; expected {count} of each")
        dtype, codecs = self._codecs((*chunk, *last))
        options = {"shape": shape, "dtype": dtype, "chunks": (*chunk, *last), **codecs, **options}
        is_missing = (offsets == 0) & (sizes == 0)
        if np.any(((offsets == 0) | (sizes == 0)) & ~is_missing):
            number = int(np.flatnonzero(((offsets == 0) | (sizes == 0)) & ~is_missing)[0])
            raise StoreError(
                f"chunk {number} of {self.path!r} has {sizes[number]} bytes at {offsets[number]}; expected "
                "both to be 0, as of chunks that were never written, or neither",
                path=self.address,
                key=self.path,
            )
        if is_missing.any() and not self.is_mask:
            number = int(np.argmax(is_missing))
            corner = (number // grid[1] * chunk[0], number % grid[1] * chunk[1])
            options["fill_value"] = self._unwritten(corner, plane).astype(dtype)
        # The last strip of an image has the rows that are left.
        rows = np.full(count, chunk[0])
        if not page.is_tiled:
            rows[-1] = shape[0] - chunk[0] * (count - 1)
        if page.compression == 1 and not codecs["filters"] and not codecs["compressors"]:
            expected = rows * prod((chunk[1], *last)) * dtype.itemsize
            if np.any((sizes != expected) & ~is_missing):
                raise self.fail(f"has chunks of {sorted(set(sizes.tolist()))} bytes; expected {expected[0]}")
            if not page.is_tiled and not is_missing.any() and np.all(np.diff(offsets) == sizes[:-1]):
                options["chunks"] = cut_contiguous(shape, dtype.itemsize)
                array = draft.add_array(self.path, **options)
                refer_contiguous(draft, self.path, array, source, int(offsets[0]))
                return
        if rows[-1] != chunk[0]:
            options["chunks"] = [rows.tolist(), [chunk[1]], *([n] for n in last)]
        array = draft.add_array(self.path, **options)
        draft.refer(self.path, array, np.where(is_missing, ABSENT, source), offsets, sizes)

    def _strip(self) -> tuple[int, int]:
        """Rows and columns of a strip."""
        return min(self.page.rowsperstrip, self.page.imagelength), self.page.imagewidth

    def _unwritten(self, corner: tuple[int, int], plane: int) -> Any:
        """The value that GDAL reads in a chunk that was never written, from the cell at its corner.

        It is nodata (that of a file beside this one goes before), rounded or cut to the limits of the data
        type, else 0; an overview has a nodata of its own.
        """
        row, column = corner
        with open_raster(self.address, opener=self.opener, level=self.level) as raster:
            bands = plane + 1 if self.page.planarconfig != 1 else None
            cells = raster.read(bands, window=((row, row + 1), (column, column + 1))).ravel()
        if not all(np.array_equal(cell, cells[0], equal_nan=cell.dtype.kind in "fc") for cell in cells[1:]):
            raise self.fail(
                f"has chunks that were never written, of values {cells.tolist()}; expected one value"
            )
        return cells[0]

    def _codecs(self, chunk: tuple[int, ...]) -> tuple[np.dtype[Any], dict[str, Any]]:
        """The stored data type, and filters, serializer and compressors, as options of `create_array`."""
        page = self.page
        if page.fillorder != 1:
            raise self.fail(f"has FillOrder {page.fillorder}; expected 1")
        compression = int(page.compression)
        if compression not in STREAMS and compression not in IMAGES:
            known = ", ".join(map(str, sorted({*STREAMS, *IMAGES})))
            name = getattr(page.compression, "name", "?")
            raise self.fail(f"has the compression {compression} ({name}); expected one of {known}")
        bits, dtype = page.bitspersample, page.dtype
        if bits in (1, 2, 4) and page.sampleformat == 1 and compression in STREAMS:
            return np.dtype("u1"), self._packed(chunk, bits, STREAMS[compression])
        if dtype is None or page.sampleformat not in (1, 2, 3, 6) or bits != 8 * np.dtype(dtype).itemsize:
            raise self.fail(
                f"has {bits} bits per sample in format {page.sampleformat}; expected whole bytes of "
                "integers, floats or complex floats"
            )
        dtype = np.dtype(dtype)
        if compression in IMAGES:
            outer = self._lerc_outer() if compression == LERC else []
            return dtype, {"filters": [], "compressors": outer, "serializer": self._image(compression, chunk)}
        stored = dtype.newbyteorder(self.order) if dtype.itemsize > 1 else dtype
        filters: list[dict[str, Any]] = []
        compressors = list(STREAMS[compression])
        predictor = int(page.predictor) if compressors else 1
        along: dict[str, Any] = {"axis": -2 if len(chunk) > 2 else -1, "dist": 1}
        distance = prod(chunk[2:])
        if predictor == 2 and dtype.kind in "iu" and distance <= native.DISTANCE_LIMIT:
            endian = "big" if stored.byteorder == ">" else "little"
            row = {"elementsize": dtype.itemsize, "row": prod(chunk[1:]), "distance": distance}
            compressors.insert(
                0, {"name": "zstore.tiff_predictor", "configuration": row | {"endian": endian}}
            )
        elif predictor == 2 and dtype.kind in "iu":
            filters = [{"name": "numcodecs.imagecodecs_delta", "configuration": along}]
        elif predictor == 3 and dtype.kind == "f":
            along |= {"shape": list(chunk), "dtype": dtype.newbyteorder("<").str}
            compressors.insert(0, {"name": "numcodecs.imagecodecs_floatpred", "configuration": along})
            stored = dtype
        elif predictor != 1:
            raise self.fail(f"has predictor {predictor} of {dtype}; expected 2 of integers or 3 of floats")
        return stored, {"filters": filters, "compressors": compressors}

    def _packed(self, chunk: tuple[int, ...], bits: int, streams: Sequence[Any]) -> dict[str, Any]:
        """Filters and compressors for samples of 1, 2 or 4 bits."""
        if int(self.page.predictor) != 1 and int(self.page.compression) != 1:
            raise self.fail(f"has predictor {self.page.predictor} of {bits} bits; expected none")
        configuration = {"bitspersample": bits, "runlen": prod(chunk[1:])}
        packed = {"name": "numcodecs.imagecodecs_packints", "configuration": configuration}
        return {"filters": [MASK_CAST] if self.is_mask else [], "compressors": [packed, *streams]}

    def _lerc_outer(self) -> list[dict[str, Any]]:
        """The compressors of LERC blobs: the second of libtiff's parameters of LERC names one."""
        parameters = self.page.tags.valueof(LERC_PARAMETERS, default=(0, 0))
        number = parameters[1] if len(parameters) > 1 else 0
        if number not in LERC_OUTER:
            raise self.fail(f"has LERC within compression {number}; expected one of {[*LERC_OUTER]}")
        return STREAMS[LERC_OUTER[number]]

    def _image(self, compression: int, chunk: tuple[int, ...]) -> dict[str, Any]:
        """The serializer of chunks that are image files."""
        page, configuration = self.page, dict[str, Any]()
        if compression == JPEG:
            import tifffile.tifffile

            # Of samples that are stored apart, each is an image of one.
            spaces = (page.photometric, page.planarconfig, page.extrasamples, page.is_jfif)
            jpeg, data = tifffile.tifffile.jpeg_decode_colorspace(*spaces) if len(chunk) > 2 else (None, None)
            for name, value in (("colorspace_jpeg", jpeg), ("colorspace_data", data)):
                if value is not None:
                    configuration[name] = value if isinstance(value, str) else int(value)
            if page.photometric == 6 and page.tags.valueof(530, default=(2, 2)) != (1, 1):
                text = (
                    f"{self.path!r} of {self.address!r} is JPEG with colours at half the resolution: they "
                    "are interpolated, as libjpeg does by default, where GDAL repeats them"
                )
                warnings.warn(RasterWarning(text), stacklevel=2)
            if page.jpegtables is not None:
                configuration["tables"] = base64.b64encode(page.jpegtables).decode()
        elif compression == LERC:
            if len(chunk) > 2 or 1 in chunk:
                configuration["tiff"] = "alpha" if UNASSOCIATED in page.extrasamples[-1:] else "bands"
        elif compression == 50001 and page.samplesperpixel == 4:
            configuration["hasalpha"] = True
        return {"name": f"numcodecs.imagecodecs_{IMAGES[compression]}", "configuration": configuration}
