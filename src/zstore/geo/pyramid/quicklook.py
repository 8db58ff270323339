"""8-bit pictures of a raster or a pyramid: the level that fits, stretched, north up; and PNG files."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.geo.conventions.base import Affine, Variable
from zstore.geo.conventions.content import colours_of
from zstore.geo.pyramid.boxes import lengths
from zstore.geo.pyramid.dataset import Dataset, PlaceLike, find_mask, open_levels, pick_level
from zstore.geo.pyramid.tiles import open_tiles
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.storage.url import with_storage_options

Image = np.ndarray[Any, np.dtype[np.uint8]]

# Beyond these, a few bright clouds or dark shadows would take up the whole scale.
PERCENTILES = (2.0, 98.0)
# Transparent columns between the levels of a preview.
GAP = 4
# The most cells a side that are read to see where the data of a tile matrix lie.
PROBE = 512
# PNG's colour types, by how many samples a pixel has.
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


@with_storage_options
def quicklook(
    source: Array | Group | PlaceLike,
    *,
    size: int = 1024,
    bands: Sequence[str | int] | None = None,
    level: int | None = None,
    most_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Image:
    """A picture of `source`, at most `size` cells high and wide.

    bands   one array's name for grey, three for red, green and blue; numbers count from 1; None: the arrays
            that say they are red, green and blue, else the first
    level   of the pyramid; None: the finest that fits, else the coarsest, thinned out
    most_bytes  of items that are decoded for it, in whole chunks; None: as many as it takes
    storage_options   how to reach a bucket or web server that `source` names by URL

    Every band is stretched from its 2nd to its 98th percentile; a colour table is used as it is. Cells
    without data, and those that a mask or alpha leaves out, are transparent. Of levels that span tile
    matrices, what holds data is shown.

    Shapes
        result (rows, columns, samples), samples 1 or 3, one more where some cells are transparent.
    Raises
        NotFoundError: there is no such source, level or band.
        UnsupportedError: values that make no picture, no values, or what takes more than `most_bytes`.
    """
    if not isinstance(size, int | np.integer) or size < 1:
        raise MetadataError(f"size is {size!r}; expected a whole number of at least 1")
    levels = open_levels(source)
    windows = _windows(levels, bands)
    if level is None:
        level = next((n for n, w in enumerate(windows) if max(lengths(w)) <= size), len(windows) - 1)
    dataset = pick_level(levels, level)
    if most_bytes is not None:
        _check_cost(dataset, bands, most_bytes)
    return _picture(dataset, windows[level], size, bands)


def _check_cost(dataset: Dataset, bands: Sequence[str | int] | None, most_bytes: int) -> None:
    """Refuse to decode more bytes than that: of dimensions beside the two, the chunk of the first item."""
    cost = 0
    for name in _choose_bands(dataset, bands):
        array, axes = dataset.arrays[name], dataset.axes(name)
        read = [n if d in axes else c for d, (n, c) in enumerate(zip(array.shape, array.chunks, strict=True))]
        cost += math.prod(read) * array.dtype.itemsize
    if cost > most_bytes:
        raise UnsupportedError(
            f"picture takes {cost} bytes; expected {most_bytes} at most", path=dataset.place
        )


def _picture(
    dataset: Dataset, window: tuple[slice, slice], size: int, bands: Sequence[str | int] | None
) -> Image:
    names = _choose_bands(dataset, bands)
    step = max(1, *(-(-length // size) for length in lengths(window)))
    read = [_read(dataset, name, window, step) for name in names]
    valid = _all_valid(dataset, names, read)
    mask = find_mask(dataset)
    if mask is not None and mask not in names:
        valid &= _read(dataset, mask, window, step) != 0
    table = colours_of(dataset.geo.variables[names[0]]) if len(names) == 1 else {}
    if table and read[0].dtype.kind in "iu":
        image, valid = _coloured(read[0], table, valid)
    else:
        image = np.stack([_stretched(values, valid) for values in read], axis=-1)
    if lengths(window) != dataset.geo.shape:
        image, valid = _cropped(image, valid)
    affine = dataset.geo.affine
    if affine is not None and affine.is_rotated and affine.a * affine.e != affine.b * affine.d:
        image, valid = _turned(image, valid, affine, size)
    if not valid.all():
        image = np.concatenate([image, np.where(valid, 255, 0).astype(np.uint8)[..., None]], axis=-1)
    return image if dataset.is_image else _north_up(image, affine)


@with_storage_options
def preview(
    source: Array | Group | PlaceLike,
    *,
    size: int = 256,
    bands: Sequence[str | int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Image:
    """The levels of `source` side by side, finest first, each enlarged or thinned out to about `size` cells.

    Levels are stretched one by one, as by `quicklook`.

    Shapes
        result (rows, columns, 4), rows at most `size`.
    Raises
        NotFoundError: there is no such source or band.
        UnsupportedError: values that make no picture.
    """
    levels = open_levels(source)
    pictures = [
        _opaque(_enlarged(_picture(level, window, size, bands), size))
        for level, window in zip(levels, _windows(levels, bands), strict=True)
    ]
    width = sum(picture.shape[1] + GAP for picture in pictures) - GAP
    canvas = np.zeros((max(picture.shape[0] for picture in pictures), width, 4), np.uint8)
    column = 0
    for picture in pictures:
        rows, columns, _ = picture.shape
        canvas[:rows, column : column + columns] = picture
        column += columns + GAP
    return canvas


def _enlarged(image: Image, size: int) -> Image:
    """The picture with every cell repeated, both ways, as often as fits into `size`."""
    times = max(1, size // max(image.shape[:2]))
    return image.repeat(times, axis=0).repeat(times, axis=1)


def _opaque(image: Image) -> Image:
    """The same picture with four samples: red, green, blue, alpha."""
    has_alpha = image.shape[2] in (2, 4)
    colours = image[..., :-1] if has_alpha else image
    alpha = image[..., -1:] if has_alpha else np.full((*image.shape[:2], 1), 255, np.uint8)
    return np.concatenate([np.broadcast_to(colours, (*image.shape[:2], 3)), alpha], axis=-1)


def _windows(levels: Sequence[Dataset], bands: Sequence[str | int] | None) -> list[tuple[slice, slice]]:
    """The (y, x) window of each level to show: all of it, or the part of a tile matrix with data."""
    shapes, root = [level.geo.shape for level in levels], levels[0].root
    whole = [(slice(0, rows), slice(0, columns)) for rows, columns in shapes]
    stated = None if root is None else root.attrs.get("multiscales")
    if root is None or not isinstance(stated, Mapping) or "tile_matrix_set" not in stated:
        return whole
    finest = open_tiles(root).window(levels[0].level, shapes[0])
    if finest == whole[0]:
        return whole
    windows = [_scaled(finest, shapes[0], shape, 0) for shape in shapes]
    # Limits are whole tiles: where the data lie in them shows in a level that is quickly read.
    number = next((n for n, w in enumerate(windows) if max(lengths(w)) <= PROBE), len(windows) - 1)
    probe, window = levels[number], windows[number]
    names = _choose_bands(probe, bands)
    valid = _all_valid(probe, names, [_read(probe, name, window, 1) for name in names])
    if not valid.any():
        return windows
    sides = zip((_span(valid, 1), _span(valid, 0)), window, strict=True)
    rows, columns = (slice(side.start + near.start, side.start + near.stop) for near, side in sides)
    return [_scaled((rows, columns), shapes[number], shape, 1) for shape in shapes]


def _scaled(
    window: tuple[slice, slice], shape: tuple[int, int], other: tuple[int, int], margin: int
) -> tuple[slice, slice]:
    """The window of a level of that shape, and `margin` cells around it, in cells of another level."""
    rows, columns = (
        slice(
            max(0, math.floor((side.start - margin) * length / size)),
            min(length, math.ceil((side.stop + margin) * length / size)),
        )
        for side, size, length in zip(window, shape, other, strict=True)
    )
    return rows, columns


def _span(valid: np.ndarray[Any, Any], axis: int) -> slice:
    """The span along the other axis with valid cells."""
    found = np.flatnonzero(valid.any(axis=axis))
    return slice(int(found[0]), int(found[-1]) + 1)


def _cropped(image: Image, valid: np.ndarray[Any, Any]) -> tuple[Image, np.ndarray[Any, Any]]:
    """The picture without the empty rows and columns around the data; whole if there are no data."""
    if not valid.any():
        return image, valid
    box = _span(valid, 1), _span(valid, 0)
    return image[box], valid[box]


def _choose_bands(dataset: Dataset, wanted: Sequence[str | int] | None) -> list[str]:
    order = dataset.band_names
    if wanted is None:
        colours = [_band_of(dataset, colour) for colour in ("red", "green", "blue")]
        found = [name for name in colours if name is not None]
        return found if len(found) == 3 else order[:1]
    if len(wanted) not in (1, 3):
        raise MetadataError(f"bands are {list(wanted)!r}; expected one, or three for red, green and blue")
    names = []
    for name in map(str, wanted):
        is_number = name not in order and name.isdecimal() and 0 < int(name) <= len(order)
        names.append(order[int(name) - 1] if is_number else name)
        if names[-1] not in order:
            raise NotFoundError(f"no band {name!r}; there are {', '.join(order)}", path=dataset.place)
    return names


def _band_of(dataset: Dataset, colour: str) -> str | None:
    """The name of the array of a colour, by its interpretation, its one band, or its name; None without."""
    variables = dataset.geo.variables
    tests: tuple[Callable[[str, Variable], Any], ...] = (
        lambda _, variable: variable.attributes.get("color_interpretation"),
        lambda _, variable: variable.bands[0].common_name if len(variable.bands) == 1 else None,
        lambda name, _: name.lower(),
        lambda _, variable: (variable.long_name or "").lower(),
    )
    for said in tests:
        for name, variable in variables.items():
            if said(name, variable) == colour:
                return name
    return None


def _read(dataset: Dataset, name: str, window: tuple[slice, slice], step: int) -> np.ndarray[Any, Any]:
    """Every `step`-th cell of the array's window, at the first item of its other dimensions."""
    array = dataset.arrays[name]
    if array.dtype.kind not in "iufb":
        raise UnsupportedError(f"{name!r} of data type {array.dtype} makes no picture", path=dataset.place)
    if not array.size:
        raise UnsupportedError(f"{name!r} of shape {array.shape} makes no picture", path=dataset.place)
    return dataset.read(name, window, step=step)


def _all_valid(
    dataset: Dataset, names: Sequence[str], read: Sequence[np.ndarray[Any, Any]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether the cells of all these arrays are finite and not nodata."""
    valid: np.ndarray[Any, np.dtype[np.bool_]] = np.ones(read[0].shape, bool)
    for name, values in zip(names, read, strict=True):
        nodata = dataset.geo.variables[name].nodata
        valid &= np.isfinite(values) & (True if nodata is None else values != nodata)
    return valid


def _stretched(values: np.ndarray[Any, Any], valid: np.ndarray[Any, Any]) -> Image:
    # The halves: differences of numbers at the two ends of the type would be infinite.
    seen = values[valid].astype(np.float64) / 2
    if not seen.size:
        return np.zeros(values.shape, np.uint8)
    low, high = np.percentile(seen, PERCENTILES)
    if low == high:
        low, high = seen.min(), seen.max()
    if low == high:
        return np.full(values.shape, 128, np.uint8)
    image = np.zeros(values.shape, np.uint8)
    image[valid] = (np.clip(seen, low, high) - low) / (high - low) * 255 + 0.5
    return image


def _coloured(
    values: np.ndarray[Any, Any], table: Mapping[int, tuple[int, ...]], valid: np.ndarray[Any, Any]
) -> tuple[Image, np.ndarray[Any, Any]]:
    """The table's colours; a cell whose colour is missing or wholly transparent shows nothing."""
    found, places = np.unique(values, return_inverse=True)
    colours = np.zeros((found.size, 4), np.uint8)
    for place, value in enumerate(found.tolist()):
        colours[place] = table.get(value, (0, 0, 0, 0))
    painted = colours[places.reshape(values.shape)]
    return painted[..., :3], valid & (painted[..., 3] > 0)


def _turned(
    image: Image, valid: np.ndarray[Any, Any], affine: Affine, size: int
) -> tuple[Image, np.ndarray[Any, Any]]:
    """A rotated raster's picture, north up: each pixel shows the cell around its middle."""
    rows, columns = valid.shape
    forth = np.array([[affine.a, affine.b], [affine.d, affine.e]])
    corners = forth @ np.array([[0, columns, 0, columns], [0, 0, rows, rows]])
    (left, bottom), (right, top) = corners.min(axis=1), corners.max(axis=1)
    pixel = max(math.sqrt(abs(np.linalg.det(forth))), (right - left) / size, (top - bottom) / size)
    width, height = (max(1, round(length / pixel)) for length in (right - left, top - bottom))
    x, y = np.meshgrid(left + pixel * (np.arange(width) + 0.5), top - pixel * (np.arange(height) + 0.5))
    across, down = np.linalg.inv(forth) @ np.stack([x.ravel(), y.ravel()])
    found = (across >= 0) & (across < columns) & (down >= 0) & (down < rows)
    cells = np.where(found, down, 0).astype(int), np.where(found, across, 0).astype(int)
    shown = (found & valid[cells]).reshape(height, width)
    return image[cells].reshape(height, width, -1), shown


def _north_up(image: Image, affine: Affine | None) -> Image:
    if affine is None or affine.is_rotated:
        return image
    image = image[::-1] if affine.e > 0 else image
    return image[:, ::-1] if affine.a < 0 else image


def encode_png(
    image: Image,
    *,
    palette: Image | None = None,
    compress: Callable[[bytes], Any] = partial(zlib.compress, level=6),  # noqa: B008
) -> bytes:
    """The bytes of a PNG file of `image`.

    palette   colours that the samples of `image` are numbers of
    compress  what makes a zlib stream; other libraries have faster ones than Python's

    Shapes
        image (rows, columns, samples), samples 1 to 4: grey, with or without alpha; RGB, with or without.
        palette (colours, 4), at most 256: red, green, blue, alpha; `image` has one sample then.
    Spec
        ISO/IEC 15948 (PNG), 8 bits per sample, every row filtered by "Up".
    """
    rows, columns, samples = image.shape
    flat = np.ascontiguousarray(image).reshape(rows, columns * samples)
    filtered = np.full((rows, columns * samples + 1), 2, np.uint8)
    filtered[:, 1:] = flat
    filtered[1:, 1:] -= flat[:-1]
    header = struct.pack(
        ">IIBBBBB", columns, rows, 8, 3 if palette is not None else COLOUR_TYPES[samples], 0, 0, 0
    )
    parts = [(b"IHDR", header)]
    if palette is not None:
        parts += [(b"PLTE", palette[:, :3].tobytes()), (b"tRNS", palette[:, 3].tobytes())]
    parts += [(b"IDAT", compress(filtered.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
