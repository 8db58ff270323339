"""8-bit pictures of a raster or a pyramid: the level that fits, in colours by meaning, north up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from zstore.base.boxes import lengths, whole
from zstore.errors import MetadataError, NotFoundError, UnsupportedError, ZstoreError
from zstore.geo.conventions.base import Affine, Variable
from zstore.geo.pictures.bands import PictureBand, bands_of, find_band, find_rgb_bands
from zstore.geo.pictures.colours import colour_map
from zstore.geo.pictures.looks import PLAIN, Look, categories_of, look_of
from zstore.geo.pictures.png import Image
from zstore.geo.pictures.relief import ground_cell, light
from zstore.geo.pyramid.dataset import Dataset, PlaceLike, find_mask, open_levels, pick_level, sources_of
from zstore.geo.pyramid.selection import shown_values
from zstore.geo.pyramid.tiles import open_tiles
from zstore.jobs.source import Source, all_but_lost
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.storage.url import with_storage_options

R = TypeVar("R")
Cells = np.ndarray[Any, np.dtype[Any]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Window = tuple[slice, slice]
Items = Mapping[str, int]

# Beyond these, a few bright clouds or dark shadows would take up the whole scale.
PERCENTILES = (2.0, 98.0)
# Transparent columns between the levels of a preview.
GAP = 4
# The most cells a side that are read to see where the data of a tile matrix lie.
PROBE = 512
# So many of the latest times are looked at one by one for values, then ever longer steps back are taken.
LATEST = 9


@dataclass(frozen=True)
class Picture:
    """A picture, and what its colours mean.

    bands    the names of the bands that it shows
    items    by dimension beside y and x, the index that is shown of the first band; of times, the date
    colours  the name of the colour map; None: three bands, or categories
    limits   of each band, the values of the darkest and the brightest, or of a map's ends; () of categories
    units    of the limits
    """

    image: Image
    bands: tuple[str, ...]
    items: Mapping[str, int | str]
    colours: str | None
    limits: tuple[tuple[float, float], ...]
    units: str | None

    @property
    def caption(self) -> str:
        """The bands and the items of other dimensions, in a line."""
        return ", ".join((*self.bands, *(f"{name} {item}" for name, item in self.items.items())))


@dataclass(frozen=True)
class Style:
    """The bands, the colour map and the limits that a caller asks for: see `quicklook`."""

    bands: Sequence[str | int] | None = None
    colours: str | None = None
    limits: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.colours is not None:
            colour_map(self.colours)
        if self.limits is not None:
            pair = np.asarray(self.limits, np.float64)
            if pair.shape != (2,) or not np.isfinite(pair).all() or not pair[0] < pair[1]:
                raise MetadataError(f"limits are {self.limits!r}; expected two numbers, the lower one first")


@with_storage_options
def quicklook(
    source: Array | Group | Source | PlaceLike,
    *,
    size: int = 1024,
    bands: Sequence[str | int] | None = None,
    level: int | None = None,
    colours: str | None = None,
    limits: tuple[float, float] | None = None,
    most_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Image:
    """A picture of `source`, a view too, at most `size` cells high and wide.

    bands   one band's name, or three for red, green and blue; numbers count from 1; None: those that are red,
            green and blue, else the first
    level   of the pyramid; None: the finest that fits, else the coarsest, thinned out
    colours  a colour map's name, "grey" among them; "_r" reverses it. None: a colour table as it is, else the
            map that suits what the band means (docs/serve.md has the table)
    limits  the values at the two ends of the colour map, or of red, green and blue; None: the 2nd and the
            98th percentile of each band, moved where the meaning wants it: around 0 for anomalies
    most_bytes  of items that are decoded for it, in whole chunks; None: as many as it takes
    storage_options   how to reach a bucket or web server that `source` names by URL

    Of times, the latest that has values is shown; of other dimensions beside y and x, the first item. Cells
    without data, and those that a mask or alpha leaves out, are transparent. Of levels that span tile
    matrices, what holds data is shown.

    Shapes
        result (rows, columns, samples), samples 1 for grey or 3, one more where some cells are transparent.
    Raises
        NotFoundError: there is no such source, level, band or colour map.
        UnsupportedError: values that make no picture, no values, or what takes more than `most_bytes`.
    """
    return draw_picture(
        source, size=size, bands=bands, level=level, colours=colours, limits=limits, most_bytes=most_bytes
    ).image


def draw_picture(
    source: Array | Group | Source | PlaceLike,
    *,
    size: int = 1024,
    bands: Sequence[str | int] | None = None,
    level: int | None = None,
    colours: str | None = None,
    limits: tuple[float, float] | None = None,
    most_bytes: int | None = None,
) -> Picture:
    """The picture of `quicklook`, with what its colours mean; arguments and errors are the same."""
    if not isinstance(size, int | np.integer) or size < 1:
        raise MetadataError(f"size is {size!r}; expected a whole number of at least 1")
    style = Style(bands, colours, limits)

    def draw(dataset: Dataset, window: Window, chosen: Sequence[PictureBand], items: Items) -> Picture:
        return _picture(dataset, window, size, chosen, items, style)

    return _drawn(source, size, bands, level, most_bytes, draw)


def draw_times(source: Array | Group, *, size: int, count: int, most_bytes: int) -> list[Picture]:
    """Pictures of one band at up to `count` times, evenly apart; one of what has no time, and of three bands.

    The last one is that of `draw_picture`, whose limits all have; together they decode at most `most_bytes`.
    """

    def draw(dataset: Dataset, window: Window, chosen: Sequence[PictureBand], items: Items) -> list[Picture]:
        last = _picture(dataset, window, size, chosen, items, Style())
        if not items or len(chosen) > 1:
            return [last]
        ((time, at),) = items.items()
        (pair,) = last.limits or ((0.0, 0.0),)
        style = Style(limits=pair) if pair[0] < pair[1] else Style()
        some = max(1, min(count, at + 1, most_bytes // max(1, _cost(dataset, chosen))))
        earlier = np.linspace(0, at, some).round().astype(int)[: some - 1].tolist()
        return [*(_picture(dataset, window, size, chosen, {time: one}, style) for one in earlier), last]

    return _drawn(source, size, None, None, most_bytes, draw)


def _drawn(
    source: Array | Group | Source | PlaceLike, size: int, bands: Sequence[str | int] | None,
    level: int | None, most_bytes: int | None,
    make: Callable[[Dataset, Window, Sequence[PictureBand], Items], R],
) -> R:  # fmt: skip
    """The result of `make` of a level, its window, the bands and the item of time that a picture shows."""
    levels = open_levels(source, arrays=bands or ())

    def draw(chosen: Sequence[PictureBand]) -> R:
        windows = _windows(levels, chosen)
        fits = (number for number, window in enumerate(windows) if max(lengths(window)) <= size)
        number = next(fits, len(windows) - 1) if level is None else level
        dataset = pick_level(levels, number)
        if most_bytes is not None:
            _check_cost(dataset, chosen, most_bytes)
        items = _latest_items(levels[-1], chosen, most_bytes)
        return make(dataset, windows[number], chosen, items)

    return _of_readable_bands(levels, bands, draw)


@with_storage_options
def preview(
    source: Array | Group | Source | PlaceLike,
    *,
    size: int = 256,
    bands: Sequence[str | int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Image:
    """The levels of `source` side by side, finest first, each enlarged or thinned out to about `size` cells.

    Each level's colours and limits are chosen by itself, as by `quicklook`.

    Shapes
        result (rows, columns, 4), rows at most `size`.
    Raises
        NotFoundError: there is no such source or band.
        UnsupportedError: values that make no picture.
    """
    levels = open_levels(source, arrays=bands or ())

    def draw(chosen: Sequence[PictureBand]) -> list[Image]:
        items = _latest_items(levels[-1], chosen, None)
        return [
            _opaque(_enlarged(_picture(level, window, size, chosen, items, Style()).image, size))
            for level, window in zip(levels, _windows(levels, chosen), strict=True)
        ]

    pictures = _of_readable_bands(levels, bands, draw)
    width = sum(picture.shape[1] + GAP for picture in pictures) - GAP
    canvas = np.zeros((max(picture.shape[0] for picture in pictures), width, 4), np.uint8)
    column = 0
    for picture in pictures:
        rows, columns, _ = picture.shape
        canvas[:rows, column : column + columns] = picture
        column += columns + GAP
    return canvas


# Which bands and items


def _of_readable_bands(
    levels: Sequence[Dataset], wanted: Sequence[str | int] | None, draw: Callable[[Sequence[PictureBand]], R]
) -> R:
    """Draw the wanted bands; if none are named, red, green and blue, else the first, of readable arrays."""
    if wanted is not None:
        return draw(_choose_bands(levels[0], wanted))
    bands = _all_bands(levels[0])

    def draw_some(arrays: Sequence[str]) -> R:
        kept = {name: band for name, band in bands.items() if band.array in arrays}
        names: Sequence[str] = find_rgb_bands(levels[0], kept) or [*kept][:1]
        return draw([kept[name] for name in names])

    return all_but_lost(sources_of(levels), draw_some)


def _choose_bands(dataset: Dataset, wanted: Sequence[str | int]) -> list[PictureBand]:
    bands = _all_bands(dataset)
    if len(wanted) not in (1, 3):
        raise MetadataError(f"bands are {list(wanted)!r}; expected one, or three for red, green and blue")
    chosen = []
    for name in map(str, wanted):
        band = find_band(bands, dataset.geo.variables, name)
        if band is None:
            raise NotFoundError(f"no band {name!r}; there are {', '.join(bands)}", path=dataset.place)
        chosen.append(band)
    return chosen


def _all_bands(dataset: Dataset) -> dict[str, PictureBand]:
    bands: dict[str, PictureBand] = {}
    for array in dataset.band_names:
        names = [band.name for band in dataset.geo.variables[array].bands]
        sizes = dataset.other_sizes(array)
        bands |= bands_of(array, sizes, [names], partial(_labels, dataset, sizes), taken=bands)
    return bands


def _labels(dataset: Dataset, sizes: Mapping[str, int], dimension: str) -> list[str]:
    """The values of a dimension's coordinate as text; [] without one that can be read."""
    coordinate = dataset.extras.get(dimension)
    if coordinate is None or coordinate.shape != (sizes[dimension],):
        return []
    try:
        return shown_values(coordinate)
    except ZstoreError:
        return []


def _latest_items(dataset: Dataset, bands: Sequence[PictureBand], most_bytes: int | None) -> dict[str, int]:
    """The index along the dimension of time at which the level has values, of times the latest; {} without.

    No more than `most_bytes` are decoded to find it; the last time where no value is found.
    """
    time = None if dataset.geo.time is None else dataset.geo.time.name
    if time is None:
        return {}
    last = max(dataset.other_sizes(band.array).get(time, 0) for band in bands) - 1
    if last < 0:
        return {}
    back, spent, cost = 0, 0, _cost(dataset, bands)
    window = whole(dataset.geo.shape)
    while most_bytes is None or spent + cost <= most_bytes:
        tried = {time: max(0, last - back)}
        read = [_read(dataset, band, tried, window, 1) for band in bands]
        if _all_valid(dataset, bands, read).any():
            return tried
        if not tried[time]:
            break
        spent += cost
        back = back + 1 if back < LATEST - 1 else back * 2
    return {time: last}


def _check_cost(dataset: Dataset, bands: Sequence[PictureBand], most_bytes: int) -> None:
    """Refuse to decode more bytes than that."""
    cost = _cost(dataset, bands)
    if cost > most_bytes:
        raise UnsupportedError(
            f"picture takes {cost} bytes; expected {most_bytes} at most", path=dataset.place
        )


def _cost(dataset: Dataset, bands: Sequence[PictureBand]) -> int:
    """The bytes that are decoded for one item of each band, in whole chunks."""
    cost = 0
    for band in bands:
        array, axes = dataset.arrays[band.array], dataset.axes(band.array)
        read = [n if d in axes else c for d, (n, c) in enumerate(zip(array.shape, array.chunks, strict=True))]
        cost += math.prod(read) * array.dtype.itemsize
    return cost


# What is drawn


def _picture(
    dataset: Dataset, window: tuple[slice, slice], size: int, bands: Sequence[PictureBand],
    items: Mapping[str, int], style: Style,
) -> Picture:  # fmt: skip
    step = max(1, *(-(-length // size) for length in lengths(window)))
    read = [_read(dataset, band, items, window, step) for band in bands]
    valid = _all_valid(dataset, bands, read)
    mask = find_mask(dataset)
    if mask is not None and mask not in [band.array for band in bands]:
        valid &= _read(dataset, PictureBand(mask, mask), {}, window, step) != 0
    image, valid, colours, limits = _coloured(dataset, bands, read, valid, style, step)
    if lengths(window) != dataset.geo.shape:
        image, valid = _cropped(image, valid)
    affine = dataset.geo.affine
    if affine is not None and affine.is_rotated and affine.a * affine.e != affine.b * affine.d:
        image, valid = _turned(image, valid, affine, size)
    if not valid.all():
        image = np.concatenate([image, np.where(valid, 255, 0).astype(np.uint8)[..., None]], axis=-1)
    image = image if dataset.is_image else _north_up(image, affine)
    names, units = tuple(band.name for band in bands), dataset.geo.variables[bands[0].array].units
    return Picture(image, names, _shown_items(dataset, bands[0], items), colours, limits, units)


def _shown_items(dataset: Dataset, band: PictureBand, items: Mapping[str, int]) -> dict[str, int | str]:
    """By dimension the item that is shown: its index, or of times the date, where there is one."""
    found: dict[str, int | str] = {
        name: {**items, **band.fixed}.get(name, 0) for name in dataset.other_sizes(band.array)
    }
    time = dataset.geo.time
    if time is not None and time.name in items and time.values.ndim:
        with suppress(ZstoreError):
            extent = replace(time, values=time.values[items[time.name]]).extent()
            found[time.name] = extent[0] if extent else items[time.name]
    return found


def _coloured(
    dataset: Dataset,
    bands: Sequence[PictureBand],
    read: Sequence[Cells],
    valid: Bools,
    style: Style,
    step: int,
) -> tuple[Image, Bools, str | None, tuple[tuple[float, float], ...]]:
    """(the picture, its valid cells, the name of its colour map, the limits of each band)."""
    variables = [dataset.geo.variables[band.array] for band in bands]
    is_plain = style.colours is None and style.limits is None
    categories = categories_of(variables[0]) if is_plain and len(bands) == 1 else {}
    if categories and read[0].dtype.kind in "iu":
        table = {value: colour for value, (colour, _) in categories.items()}
        return *_in_categories(read[0], table, valid), None, ()
    look = look_of(variables[0], bands[0].name) if len(bands) == 1 else PLAIN
    halves = [_halves(values, variable) for values, variable in zip(read, variables, strict=True)]
    limits = tuple(style.limits or _limits(values[valid], look) for values in halves)
    parts = [
        _stretched(values, valid, pair, look.is_log) for values, pair in zip(halves, limits, strict=True)
    ]
    if len(parts) > 1:
        return np.stack(parts, axis=-1), valid, None, limits
    name = look.colours if style.colours is None else style.colours
    if name in ("grey", "gray"):
        return parts[0][..., None], valid, "grey", limits
    image = colour_map(name)[parts[0]]
    cell = _relief_cell(dataset, step) if look.is_lit and style.colours is None else None
    if cell is not None:
        heights, known = (np.pad(cells, 1, mode="edge") for cells in (halves[0] * 2, valid))
        image = light(image, heights, known, cell)
    return image, valid, name, limits


def _relief_cell(dataset: Dataset, step: int) -> tuple[float, float] | None:
    """The (height, width) of a picture's cell in metres, as `light` takes it; None without a place."""
    affine, crs = dataset.geo.affine, dataset.geo.crs
    if affine is None or crs is None or affine.is_rotated:
        return None
    height, width = ground_cell(affine, dataset.geo.shape, crs)
    return math.copysign(height, -affine.e) * step, math.copysign(width, affine.a) * step


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


def _windows(levels: Sequence[Dataset], bands: Sequence[PictureBand]) -> list[tuple[slice, slice]]:
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
    valid = _all_valid(probe, bands, [_read(probe, band, {}, window, 1) for band in bands])
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


def _read(
    dataset: Dataset, band: PictureBand, items: Mapping[str, int], window: tuple[slice, ...], step: int
) -> Cells:
    """Every `step`-th cell of a band's window, at these items along its other dimensions."""
    array = dataset.arrays[band.array]
    if array.dtype.kind not in "iufb":
        raise UnsupportedError(
            f"{band.array!r} of data type {array.dtype} makes no picture", path=dataset.place
        )
    if not array.size:
        raise UnsupportedError(f"{band.array!r} of shape {array.shape} makes no picture", path=dataset.place)
    rows, columns = window
    cells = dataset.read(band.array, (rows, columns), step=step, items={**items, **band.fixed})
    return dataset.geo.variables[band.array].with_one_nodata(cells)


def _all_valid(dataset: Dataset, bands: Sequence[PictureBand], read: Sequence[Cells]) -> Bools:
    """Whether the cells of all these bands are finite and not nodata."""
    valid: Bools = np.ones(read[0].shape, bool)
    for band, values in zip(bands, read, strict=True):
        nodata = dataset.geo.variables[band.array].nodata
        valid &= np.isfinite(values) & (True if nodata is None else values != nodata)
    return valid


def _halves(values: Cells, variable: Variable) -> Cells:
    """Half of the unpacked values, whose differences are finite for all types."""
    halves = values.astype(np.float64) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        if variable.scale_factor is not None:
            halves *= variable.scale_factor
        return halves + variable.add_offset / 2 if variable.add_offset is not None else halves


def _limits(halves: Cells, look: Look) -> tuple[float, float]:
    """The values at the two ends of a look's colour map; twice the same of a single value, or of none."""
    if not halves.size:
        return look.limits(0.0, 0.0)
    low, high = np.percentile(halves, PERCENTILES)
    if low == high:
        low, high = halves.min(), halves.max()
    most = np.finfo(np.float64).max
    low, high = look.limits(*np.clip([low, high], -most / 2, most / 2) * 2.0)
    return float(low), float(high)


def _stretched(halves: Cells, valid: Bools, limits: tuple[float, float], is_log: bool) -> Image:
    low, high = (limit / 2 for limit in limits)
    image = np.zeros(halves.shape, np.uint8)
    image[valid] = 128
    if low < high:
        shown = np.clip(halves[valid], low, high)
        if is_log and low > 0:
            shown, low, high = np.log(shown), math.log(low), math.log(high)
        image[valid] = (shown - low) / (high - low) * 255 + 0.5
    return image


def _in_categories(values: Cells, table: Mapping[int, tuple[int, ...]], valid: Bools) -> tuple[Image, Bools]:
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
