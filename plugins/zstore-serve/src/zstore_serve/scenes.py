"""What is served: the grids of the given stores, with their bands, other dimensions and levels."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import zstore
from zstore.conventions.content.timeaxis import TimeAxis
from zstore.conventions.crs import Crs
from zstore.conventions.decoding import decode
from zstore.conventions.model import Affine, Variable
from zstore.errors import MetadataError, NotFoundError, UnsupportedError, ZstoreError
from zstore.nodes.open import open_ahead
from zstore.pyramid.dataset import Dataset, open_levels
from zstore.pyramid.masks import find_mask
from zstore_serve.problems import Problem

__all__ = ["SITE_FILES", "Axis", "Band", "Scene", "open_scenes"]

log = logging.getLogger("zstore_serve")

LONGITUDES = Crs.from_user("OGC:CRS84")
# Dimensions whose items are bands of their own; all others are chosen from by a parameter.
BAND_DIMENSIONS = frozenset(("band", "bands", "c", "channel", "channels", "wavelength"))
MOST_BANDS = 256
NUMBERED = re.compile(r"(?:.*:|[Bb]and[ _-]?|[Bb])([123])")
# How far down a hierarchy grids are looked for, and how many are served.
DEPTH = 3
MOST_SCENES = 64
LONGEST_TITLE = 120
# What lies in an exported site beside the folders of scenes; no scene has such an id.
SITE_FILES = ("tilejson.json", "index.html", "ol.js", "ol.css")


@dataclass(frozen=True)
class Axis:
    """A dimension beside y and x: the values of its coordinate, as text and, where they are, as numbers."""

    name: str
    size: int
    labels: tuple[str, ...] = ()
    numbers: np.ndarray[Any, Any] | None = None

    def index(self, text: str) -> int:
        """The item that a parameter names: "@3" by its number, else by its coordinate (the nearest number).

        Raises
            Problem: there is none.
        """
        if text.startswith("@") or not self.labels:
            digits = text.removeprefix("@")
            if not digits.isascii() or not digits.isdecimal() or len(digits) > 12 or int(digits) >= self.size:
                raise Problem(400, f"{self.name} is {text!r}; expected a number from 0 to {self.size - 1}")
            return int(digits)
        if text in self.labels:
            return self.labels.index(text)
        if self.numbers is not None:
            try:
                wanted = float(text)
            except ValueError:
                wanted = np.nan
            if np.isfinite(wanted) and not np.isnan(self.numbers).all():
                return int(np.nanargmin(np.abs(self.numbers - wanted)))
        starts = [n for n, label in enumerate(self.labels) if len(text) >= 4 and label.startswith(text)]
        if not starts:
            known = f"{self.labels[0]} to {self.labels[-1]}"
            raise Problem(400, f"{self.name} is {text!r}; there are {self.size}, from {known}")
        return starts[0]


@dataclass(frozen=True)
class Band:
    """What a sample of a pixel is made of: an array, and the items of its dimensions that are settled."""

    name: str
    array: str
    fixed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """One grid with all its levels, the finest first.

    crs      None: the scene has no place on the ground, and is shown by its own pixels
    factors  (y, x) cells of the finest level in a cell of each level
    mask     the array that says of all others where they are valid
    window   (y, x) of the finest level that holds data
    named    the dimensions of all arrays, where a document beside them says them; () where they say them
    """

    id: str
    title: str
    levels: Sequence[Dataset]
    bands: Mapping[str, Band]
    axes: Mapping[str, Axis]
    crs: Crs | None
    factors: Sequence[tuple[float, float]]
    mask: str | None = None
    window: tuple[slice, slice] = (slice(0, 0), slice(0, 0))
    preferred: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    @property
    def finest(self) -> Dataset:
        """The finest level."""
        return self.levels[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the finest level."""
        return self.finest.geo.shape

    @property
    def crs_name(self) -> str | None:
        """The code of the CRS, else its WKT."""
        return None if self.crs is None else self.crs.code or self.crs.wkt

    def variable(self, band: Band) -> Variable:
        """What the values of a band mean."""
        return self.finest.geo.variables[band.array]

    def band(self, name: str) -> Band:
        """The band of that name, or of that number counted from 1.

        Raises
            Problem: there is none.
        """
        if name in self.bands:
            return self.bands[name]
        digits = name.removeprefix("b")
        if digits.isascii() and digits.isdecimal() and len(digits) < 6 and 0 < int(digits) <= len(self.bands):
            return list(self.bands.values())[int(digits) - 1]
        for band in self.bands.values():
            if any(one.common_name == name for one in self.variable(band).bands) and not band.fixed:
                return band
        known = ", ".join(list(self.bands)[:20])
        raise Problem(400, f"no band {name[:80]!r}; there are {known}")

    def dimensions(self, array: str) -> tuple[str, ...]:
        """The names of the dimensions of an array, on all levels."""
        return self.named or self.finest.dimensions(array)

    def axes_of(self, band: Band) -> list[Axis]:
        """The dimensions of a band that a parameter chooses from."""
        names = self.dimensions(band.array)
        held = {*self.finest.geo.dimensions, *band.fixed}
        return [self.axes[name] for name in names if name not in held]

    def affine(self, level: int) -> Affine:
        """From (column, row) of a level to (x, y); of a scene without a place, in pixels, rows downwards."""
        own = self.levels[level].geo.affine
        if self.crs is not None and own is not None:
            return own
        y, x = self.factors[level]
        if own is not None and own.e > 0 and not self.finest.is_image:
            return Affine(x, 0.0, 0.0, 0.0, y, -float(self.shape[0]))
        # Rows run downwards on the screen, which is where smaller y is; so do those of OME-Zarr's images.
        return Affine(x, 0.0, 0.0, 0.0, -y, 0.0)

    def bounds(self) -> tuple[float, float, float, float]:
        """(xmin, ymin, xmax, ymax) in the scene's own CRS."""
        rows, columns = self.window
        x, y = self.affine(0).at(float(columns.start), float(rows.start))
        held = self.affine(0)._replace(c=x, f=y)
        return held.bounds((rows.stop - rows.start, columns.stop - columns.start))

    def longitudes(self) -> tuple[float, float, float, float] | None:
        """(west, south, east, north) in degrees; None without a place. East may be beyond 180."""
        if self.crs is None:
            return None
        rows, columns = (np.linspace(side.start, side.stop, 65) for side in self.window)
        columns, rows = np.meshgrid(columns, rows)
        lon, lat = self.crs.transform(LONGITUDES, *self.affine(0).at(columns, rows))
        known = np.isfinite(lon) & np.isfinite(lat)
        if not known.any():
            return None
        south, north = max(-90.0, float(lat[known].min())), min(90.0, float(lat[known].max()))
        if self.crs.is_geographic:
            return float(lon[known].min()), south, float(lon[known].max()), north
        # The widest gap between meridians is what the scene leaves free.
        found = np.unique(np.round(lon[known] % 360, 9))
        gaps = np.diff(np.append(found, found[0] + 360))
        at = int(gaps.argmax())
        if gaps[at] < 30:
            return -180.0, south, 180.0, north
        west = float(found[(at + 1) % len(found)])
        width_in_degrees = 360 - float(gaps[at])
        west = west - 360 if west >= 180 else west
        return west, south, west + width_in_degrees, north


def open_scenes(sources: Iterable[Any], storage_options: Mapping[str, Any] | None = None) -> dict[str, Scene]:
    """The scenes of the given stores, by id: of one that is no grid itself, those of the groups below it.

    Raises
        NotFoundError: there is nothing at one of the places.
        MetadataError: nothing there is a grid of two dimensions.
    """
    scenes: dict[str, Scene] = {}
    for source in sources:
        if isinstance(source, zstore.Array | zstore.Group):
            _add(source, scenes)
            continue
        with open_ahead(source, storage_options=storage_options) as node:
            _add(node, scenes)
    return scenes


def _add(node: Any, scenes: dict[str, Scene]) -> None:
    found = list(_find(node, DEPTH))
    if not found:
        raise MetadataError("there is no grid of two dimensions here or below", path=node.store.url)
    # What has a place on the ground is what most come for.
    found.sort(key=lambda pair: None in (pair[1][0].geo.crs, pair[1][0].geo.affine))
    for owner, levels in found[: MOST_SCENES - len(scenes)]:
        scene = _scene(owner, levels, scenes)
        if len(found) > 1:
            scene = replace(scene, title=owner.path[len(node.path) :].strip("/") or scene.title)
        scenes[scene.id] = scene


def _find(node: Any, depth: int) -> Iterable[tuple[Any, Sequence[Dataset]]]:
    """The grids at a node or below it, each with the node whose levels it has."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `zstore validate` is who tells of what documents say wrongly
            levels = open_levels(node)
        if any(array.dtype.kind in "iufb" for array in levels[0].arrays.values()):
            yield node, [_renamed(level, levels[0]) for level in levels]
            return
    except (MetadataError, UnsupportedError, NotFoundError):
        if depth == 0:
            return
    if isinstance(node, zstore.Group):
        for name, group in sorted(node.groups()):
            try:
                yield from _find(group, depth - 1)
            except ZstoreError as error:
                # What is broken below takes nothing from what lies beside it.
                log.warning("%s is left out: %s", name, error)


def _renamed(level: Dataset, finest: Dataset) -> Dataset:
    """A level that is a single array, by the name that the finest has."""
    if level.is_group or finest.is_group or level.arrays.keys() == finest.arrays.keys():
        return level
    (name,), (array,), (variable,) = finest.arrays, level.arrays.values(), level.geo.variables.values()
    return replace(level, arrays={name: array}, geo=replace(level.geo, variables={name: variable}))


def _image(node: Any, finest: Dataset) -> tuple[tuple[str, ...], list[str]]:
    """The dimensions' names and the channels' labels that OME-Zarr says of an image; () and [] elsewhere."""
    stated = node.attrs.get("ome", node.attrs)
    lists = stated.get("multiscales") if isinstance(stated, Mapping) else None
    image = lists[0] if isinstance(lists, list) and lists else None
    axes = image.get("axes") if isinstance(image, Mapping) else None
    (name,) = finest.arrays
    if not isinstance(axes, list) or len(axes) != finest.arrays[name].ndim:
        return (), []
    names = [axis.get("name") if isinstance(axis, Mapping) else axis for axis in axes]
    for axis, dimension in zip(finest.axes(name), finest.geo.dimensions, strict=True):
        names[axis] = dimension
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        return (), []
    omero = stated.get("omero")
    channels = omero.get("channels") if isinstance(omero, Mapping) else None
    said = [one.get("label") if isinstance(one, Mapping) else None for one in channels or ()]
    labels = said if all(isinstance(label, str) and label for label in said) else []
    return tuple(names), labels if len(set(labels)) == len(labels) else []


def _scene(node: Any, levels: Sequence[Dataset], known: Mapping[str, Scene]) -> Scene:
    finest = levels[0]
    is_image = isinstance(node, zstore.Group) and not finest.is_group
    root = node if is_image else finest.root
    url, path = (finest.place, "") if root is None else (root.store.url, root.path)
    if "://" in url and not url.startswith("file:"):
        # Queries of addresses hold signatures and tokens, which are not for whoever looks at the map.
        url = url.partition("?")[0].partition("#")[0]
    place = f"{url.rstrip('/')}/{path}".rstrip("/")
    is_nameless = place.startswith("memory://")
    called = "data" if is_nameless else place.rpartition("/")[2] or "data"
    said = node.attrs.get("title")
    title = said.strip()[:LONGEST_TITLE] if isinstance(said, str) and said.strip() else called
    word = "".join(c if (c.isalnum() and c.isascii()) or c in "-_." else "-" for c in called).strip(".")
    word = word or "data"
    count, name = 2, word
    while name in known or name in SITE_FILES:
        name, count = f"{word}-{count}", count + 1
    mask = find_mask(finest)
    bands: dict[str, Band] = {}
    axes: dict[str, Axis] = {}
    named, channels = _image(node, finest) if is_image else ((), [])
    for array_name in finest.band_names:
        array = finest.arrays[array_name]
        if array.dtype.kind not in "iufb" or (array_name == mask and len(finest.arrays) > 1):
            continue
        dims = named or finest.dimensions(array_name)
        others = [(dim, array.shape[n]) for n, dim in enumerate(dims) if dim not in finest.geo.dimensions]
        for dim, size in others:
            axes.setdefault(dim, _axis(finest, dim, size))
        stated = finest.geo.variables[array_name].bands
        split = next((d for d, n in others if d.lower() in BAND_DIMENSIONS and 1 < n <= MOST_BANDS), None)
        if split is None:
            key = called if is_image else array_name
            bands[key] = Band(key, array_name)
            continue
        size = dict(others)[split]
        for number in range(size):
            said = channels[number] if len(channels) == size else None
            own = stated[number].name if len(stated) == size else said
            labels = axes[split].labels
            is_telling = len(set(labels)) == size and all(labels)
            label = own or (labels[number] if is_telling else f"{number + 1}")
            key = label if own and own not in bands else f"{split if is_image else array_name}:{label}"
            bands[key] = Band(key, array_name, {split: number})
    if not bands:
        raise MetadataError("no array holds numbers", path=place)
    geo = finest.geo
    crs = geo.crs if geo.affine is not None else None
    window = (slice(0, geo.shape[0]), slice(0, geo.shape[1]))
    stated = None if finest.root is None else finest.root.attrs.get("multiscales")
    if finest.root is not None and isinstance(stated, Mapping) and "tile_matrix_set" in stated:
        window = zstore.open_tiles(finest.root).window(finest.level, geo.shape)
    colours = _colours(finest, bands)
    return Scene(name, title, levels, bands, axes, crs, _factors(levels), mask, window, colours, named)


def _factors(levels: Sequence[Dataset]) -> list[tuple[float, float]]:
    base, shape = levels[0].geo.affine, levels[0].geo.shape
    found = []
    for level in levels:
        own = level.geo.affine
        if own is not None and base is not None:
            y, x = (mine / first for mine, first in zip(own.cell, base.cell, strict=True))
        else:
            ratios = [first / mine for first, mine in zip(shape, level.geo.shape, strict=True)]
            y, x = (
                float(round(ratio)) if abs(ratio - round(ratio)) < 0.1 * ratio else ratio for ratio in ratios
            )
        found.append((y, x))
    return found


def _colours(finest: Dataset, bands: Mapping[str, Band]) -> tuple[str, ...]:
    """The bands that are red, green and blue, as they say, or three of bytes that are numbered; else ()."""
    found = []
    for colour in ("red", "green", "blue"):
        for name, band in bands.items():
            variable = finest.geo.variables[band.array]
            number = next(iter(band.fixed.values()), 0)
            said = variable.bands[number].common_name if number < len(variable.bands) else None
            if colour in (said, name.lower(), variable.attributes.get("color_interpretation")):
                found.append(name)
                break
    if len(found) == 3:
        return tuple(found)
    # Three bands of bytes that say nothing are a picture, as GDAL writes them.
    arrays = {band.array for band in bands.values()}
    is_bytes = all(finest.arrays[name].dtype == np.uint8 for name in arrays)
    numbers = [number[1] for name in bands if (number := NUMBERED.fullmatch(name))]
    return tuple(bands) if is_bytes and len(bands) == 3 and numbers == ["1", "2", "3"] else ()


def _axis(finest: Dataset, name: str, size: int) -> Axis:
    held = finest.extras.get(name)
    time = finest.geo.time
    try:
        if time is not None and time.name == name and time.values.shape == (size,):
            return Axis(name, size, _dates(time))
        if held is None or held.shape != (size,) or size > 1 << 20:
            return Axis(name, size)
        stored = np.asarray(held[...])
        units = held.attrs.get("units")
        if stored.dtype.kind == "M" or (isinstance(units, str) and " since " in units):
            calendar = held.attrs.get("calendar", "standard")
            return Axis(name, size, _dates(TimeAxis(name, stored, units, str(calendar))))
        values = decode(stored, held.attrs)
        if values.dtype.kind in "iuf":
            return Axis(name, size, tuple(str(value) for value in values.tolist()), values.astype(np.float64))
        return Axis(name, size, tuple(str(value) for value in values.tolist()))
    except (ZstoreError, TypeError, ValueError):
        return Axis(name, size)


def _dates(axis: TimeAxis) -> tuple[str, ...]:
    dates = axis.dates()
    if dates.dtype.kind == "M":
        units = ("D", "m", "s", "ms", "us", "ns")
        known = dates[~np.isnat(dates)]
        unit = next((unit for unit in units if (known.astype(f"M8[{unit}]") == known).all()), "auto")
        return tuple(np.datetime_as_string(dates, unit=unit, casting="unsafe").tolist())
    return tuple("" if date is None else date.isoformat() for date in dates.tolist())
