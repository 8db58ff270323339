"""GeoTIFF and COG: tifffile's tables of tiles and strips, GDAL's words for the rest, overviews as levels.

Bands that lie apart (one band, or PLANARCONFIG_SEPARATE) become arrays of two dimensions, as `raster_to_zarr`
makes them; those that lie together pixel by pixel one array with the dimension "band" last.
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

from zstore._ext.codecs.native import DISTANCE_LIMIT
from zstore.conventions.model import Band, GeoModel, Level, Variable
from zstore.conventions.write import render_geo
from zstore.errors import StoreError, UnsupportedError
from zstore.extensions.extras import optional
from zstore.integrations.rasters.raster import describe_raster
from zstore.integrations.rasters.writing import RasterWarning, open_raster
from zstore.pyramid.dataset import join_attributes
from zstore.pyramid.levels import draft_auxiliaries
from zstore.storage.base import join_key
from zstore_virtual.manifest import ABSENT
from zstore_virtual.scan.draft import Draft, cut_contiguous, refer_contiguous
from zstore_virtual.scan.origin import Origin

__all__ = ["scan_tiff"]

# What tifffile raises of files that say what it did not think of.
DAMAGES = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error)
# Of NewSubfileType.
REDUCED, MASK = 1, 4
LAST_SAMPLES = "band"
IMAGE = "image"
# By TIFF's number: codecs behind `bytes`.
STREAMS: dict[int, list[dict[str, Any]]] = {
    1: [],
    5: [{"name": "numcodecs.imagecodecs_lzw"}],
    8: [{"name": "numcodecs.zlib", "configuration": {"level": 6}}],
    32773: [{"name": "numcodecs.imagecodecs_packbits"}],
    32946: [{"name": "numcodecs.zlib", "configuration": {"level": 6}}],
    34925: [{"name": "numcodecs.lzma"}],
    50000: [{"name": "numcodecs.zstd", "configuration": {"level": 9}}],
}
# Codecs in the place of `bytes`.
IMAGES = {7: "jpeg", 34887: "lerc", 50001: "webp"}
# Of the bits of a mask, 1 is valid; GDAL and the arrays that rasters' masks become say 255.
MASK_CAST = {
    "name": "cast_value",
    "configuration": {
        "data_type": "uint8",
        "scalar_map": {"encode": [[255, 1]], "decode": [[1, 255]]},
    },
}


def scan_tiff(origin: Origin, draft: Draft, drop: frozenset[str] = frozenset()) -> None:
    """Add what a GeoTIFF holds: a group of arrays, or a pyramid where there are overviews.

    Raises
        StoreError: it cannot be read.
        UnsupportedError: a compression, a layout or a type that references cannot say; it is named.
    """
    with optional("GeoTIFF files can be scanned only with tifffile", "tiff", owner="zstore-virtual"):
        import tifffile
    path = origin.address
    opener = None if origin.ranges is None else _only(origin)
    try:
        # First, as it takes the tables of all levels: GDAL finds them in the blocks that are held then.
        with tifffile.TiffFile(origin.open() or path) as file:
            images, masks = _sort_pages(file, path)
            with open_raster(path, opener=opener) as raster:
                found = describe_raster(raster, path)
            _add_levels(found, images, masks, file.byteorder, origin, draft, drop)
    except (tifffile.TiffFileError, *DAMAGES) as error:
        raise StoreError(f"TIFF file cannot be read: {error}", path=path) from error


def _only(origin: Origin) -> Any:
    """What lets GDAL read a file that is not on this machine, and find no other beside it."""
    from rasterio.abc import FileContainer

    class Only(FileContainer):  # type: ignore[misc]
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

    return Only()


def _sort_pages(file: Any, path: str) -> tuple[list[Any], list[Any]]:
    """(images, masks) from the finest level to the coarsest."""
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


def _add_levels(
    found: Any,
    images: Sequence[Any],
    masks: Sequence[Any],
    order: str,
    origin: Origin,
    draft: Draft,
    drop: frozenset[str],
) -> None:
    path = origin.address
    bands = [name for number, name in found.rasters[0].bands if number]
    mask = next((name for number, name in found.rasters[0].bands if not number), None)
    is_together = images[0].planarconfig == 1 and len(bands) > 1
    variables: dict[str, Variable] = dict(found.geo.variables)
    attributes = dict(found.attributes)
    if is_together:
        variables = {IMAGE: _join_bands([variables[name] for name in bands], bands, path)}
        attributes.pop("bands")
        if mask is not None:
            variables[mask] = found.geo.variables[mask]
    for name in drop & set(variables):
        del variables[name]
    if mask in variables and len(masks) != len(images):
        raise UnsupportedError(
            f"file has {len(masks)} masks for {len(images)} levels; expected one for each, or to have "
            f"{mask!r} "
            "left out (drop)",
            path=path,
        )
    levels = tuple(_level(found.geo, number, page) for number, page in enumerate(images))
    geo = replace(found.geo, variables=variables, levels=levels if len(levels) > 1 else ())
    documents, _ = render_geo(geo, 3)
    source = draft.add_source(origin)
    draft.add_group("", join_attributes(attributes, documents[""]["attributes"]))
    for number, (grid, image) in enumerate(zip(geo.grids, images, strict=True)):
        if grid.path:
            draft.add_group(grid.path, documents[grid.path]["attributes"])
        draft_auxiliaries(None, draft, documents, grid.path)
        for name, variable in variables.items():
            page = masks[number] if name == mask else image
            if page.imagelength != grid.shape[0] or page.imagewidth != grid.shape[1]:
                raise UnsupportedError(
                    f"{name!r} of level {number} has {page.imagelength} rows, {page.imagewidth} columns; "
                    "expected "
                    f"{grid.shape}",
                    path=path,
                )
            document = documents[join_key(grid.path, name)]
            options = {
                "fill_value": document["fill_value"],
                "attributes": document["attributes"],
                "dimension_names": variable.dimensions or geo.dimensions,
            }
            plane = bands.index(name) if name in bands else 0
            place = join_key(grid.path, name)
            _Image(page, order, path, place, is_mask=name == mask).add_to(draft, source, plane, options)


def _join_bands(variables: Sequence[Variable], names: Sequence[str], path: str) -> Variable:
    """One variable for bands that lie together."""
    first = variables[0]
    for name in ("dtype", "nodata", "scale_factor", "add_offset", "units"):
        stated = [getattr(variable, name) for variable in variables]
        if len({repr(value) for value in stated}) > 1:
            raise UnsupportedError(
                f"bands lie together and have {name} {stated}; expected one for all", path=path
            )
    attributes = {
        key: value
        for key, value in first.attributes.items()
        if all(variable.attributes.get(key) == value for variable in variables)
    }
    bands = tuple(Band(name=name) for name in names)
    dimensions = ("y", "x", LAST_SAMPLES)
    kept = replace(first, dimensions=dimensions, bands=bands, attributes=attributes, long_name=None)
    return replace(kept, flag_values=None, flag_meanings=None)


def _level(geo: GeoModel, number: int, page: Any) -> Level:
    """A level whose cells are so many of the finest that its shape follows; else it has the same bounds."""
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
    """One page of the file, or one plane of it, as an array."""

    page: Any
    order: str
    path: str
    place: str
    is_mask: bool = False

    def fail(self, what: str) -> UnsupportedError:
        """The error for a page that cannot be said by references."""
        return UnsupportedError(f"image {self.place!r} {what}", path=self.path, key=self.place)

    def add_to(self, draft: Draft, source: int, plane: int, options: dict[str, Any]) -> None:
        """Add the array of a plane, and its references."""
        page = self.page
        samples = page.samplesperpixel if page.planarconfig == 1 and page.samplesperpixel > 1 else 0
        last = (samples,) if samples else ()
        shape = (page.imagelength, page.imagewidth, *last)
        cell = (page.tilelength, page.tilewidth) if page.is_tiled else self._strip()
        grid = tuple(-(-length // step) for length, step in zip(shape, cell, strict=False))
        count = grid[0] * grid[1]
        offsets = np.array(page.dataoffsets, np.int64)[plane * count : (plane + 1) * count]
        sizes = np.array(page.databytecounts, np.int64)[plane * count : (plane + 1) * count]
        if len(offsets) != count or len(sizes) != count:
            raise self.fail(f"has {len(offsets)} offsets and {len(sizes)} sizes; expected {count} of each")
        dtype, codecs = self._codecs((*cell, *last))
        options = {"shape": shape, "dtype": dtype, "chunks": (*cell, *last), **codecs, **options}
        missing = (offsets == 0) | (sizes == 0)
        is_stored = page.compression == 1 and not codecs["filters"] and not codecs["compressors"]
        if is_stored:
            rows = np.full(count, cell[0])
            if not page.is_tiled:
                rows[-1] = shape[0] - cell[0] * (count - 1)
            expected = rows * prod((cell[1], *last)) * dtype.itemsize
            if np.any((sizes != expected) & ~missing):
                raise self.fail(f"has chunks of {sorted(set(sizes.tolist()))} bytes; expected {expected[0]}")
            if not page.is_tiled and not missing.any() and np.all(np.diff(offsets) == sizes[:-1]):
                options["chunks"] = cut_contiguous(shape, dtype.itemsize)
                array = draft.add_array(self.place, **options)
                refer_contiguous(draft, self.place, array, source, int(offsets[0]))
                return
        if not page.is_tiled and shape[0] % cell[0]:
            # The last strip holds what is left.
            edges = [[cell[0]] * (count - 1) + [shape[0] - cell[0] * (count - 1)], [cell[1]]]
            options["chunks"] = [*edges, *([n] for n in last)]
        array = draft.add_array(self.place, **options)
        draft.refer(self.place, array, np.where(missing, ABSENT, source), offsets, sizes)

    def _strip(self) -> tuple[int, int]:
        return min(self.page.rowsperstrip, self.page.imagelength), self.page.imagewidth

    def _codecs(self, chunk: tuple[int, ...]) -> tuple[np.dtype[Any], dict[str, Any]]:
        """The items' type as it is stored, and filters, serializer and compressors."""
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
                "integers, floats "
                "or complex floats"
            )
        dtype = np.dtype(dtype)
        if compression in IMAGES:
            return dtype, {"filters": [], "compressors": [], "serializer": self._image(compression)}
        stored = dtype.newbyteorder(self.order) if dtype.itemsize > 1 else dtype
        filters: list[dict[str, Any]] = []
        compressors = list(STREAMS[compression])
        predictor = int(page.predictor) if compressors else 1
        told: dict[str, Any] = {"axis": -2 if len(chunk) > 2 else -1, "dist": 1}
        distance = prod(chunk[2:])
        if predictor == 2 and dtype.kind in "iu" and distance <= DISTANCE_LIMIT:
            endian = "big" if stored.byteorder == ">" else "little"
            row = {"elementsize": dtype.itemsize, "row": prod(chunk[1:]), "distance": distance}
            compressors.insert(
                0, {"name": "zstore.tiff_predictor", "configuration": row | {"endian": endian}}
            )
        elif predictor == 2 and dtype.kind in "iu":
            filters = [{"name": "numcodecs.imagecodecs_delta", "configuration": told}]
        elif predictor == 3 and dtype.kind == "f":
            told |= {"shape": list(chunk), "dtype": dtype.newbyteorder("<").str}
            compressors.insert(0, {"name": "numcodecs.imagecodecs_floatpred", "configuration": told})
            stored = dtype
        elif predictor != 1:
            raise self.fail(f"has predictor {predictor} of {dtype}; expected 2 of integers or 3 of floats")
        return stored, {"filters": filters, "compressors": compressors}

    def _packed(self, chunk: tuple[int, ...], bits: int, streams: Sequence[Any]) -> dict[str, Any]:
        if int(self.page.predictor) != 1 and int(self.page.compression) != 1:
            raise self.fail(f"has predictor {self.page.predictor} of {bits} bits; expected none")
        told = {"bitspersample": bits, "runlen": prod(chunk[1:])}
        packed = {"name": "numcodecs.imagecodecs_packints", "configuration": told}
        return {"filters": [MASK_CAST] if self.is_mask else [], "compressors": [packed, *streams]}

    def _image(self, compression: int) -> dict[str, Any]:
        """The serializer of chunks that are image files."""
        page, told = self.page, dict[str, Any]()
        if compression == 7:
            import tifffile.tifffile

            spaces = (page.photometric, page.planarconfig, page.extrasamples, page.is_jfif)
            jpeg, data = tifffile.tifffile.jpeg_decode_colorspace(*spaces)
            for name, value in (("colorspace_jpeg", jpeg), ("colorspace_data", data)):
                if value is not None:
                    told[name] = value if isinstance(value, str) else int(value)
            if page.photometric == 6 and page.tags.valueof(530, default=(2, 2)) != (1, 1):
                text = (
                    f"{self.place!r} of {self.path!r} is JPEG with colours at half the resolution: they are "
                )
                text += "interpolated, as libjpeg does by default, where GDAL repeats them"
                warnings.warn(RasterWarning(text), stacklevel=2)
            if page.jpegtables is not None:
                told["tables"] = base64.b64encode(page.jpegtables).decode()
        elif compression == 34887 and page.tags.get(50674) and page.tags[50674].value[1] != 0:
            raise self.fail("has LERC within another compression; expected LERC alone")
        elif compression == 50001 and page.samplesperpixel == 4:
            told["hasalpha"] = True
        return {"name": f"numcodecs.imagecodecs_{IMAGES[compression]}", "configuration": told}
