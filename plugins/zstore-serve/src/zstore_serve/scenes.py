"""Scenes: the grids of the given stores, with their levels, bands and other dimensions."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import zstore
from zstore.errors import (
    MetadataError,
    NotFoundError,
    StoreError,
    UnsupportedError,
    ZstoreError,
    leave_out,
    left_out,
)
from zstore.plugin.conventions import Affine, Crs, TimeAxis, Variable
from zstore.plugin.nodes import decode, open_ahead
from zstore.plugin.pictures import PictureBand, bands_of, find_band, find_rgb_bands
from zstore.plugin.pyramids import Dataset, find_mask, open_levels, other_grids
from zstore_serve.meshes import open_meshes, unstructured
from zstore_serve.problems import Problem

__all__ = ["SITE_FILES", "Dimension", "PictureBand", "Scene", "full_turn", "open_scenes"]

log = logging.getLogger("zstore_serve")

CRS84 = Crs.from_user("OGC:CRS84")
# How many groups deep grids are looked for, and how many grids are served at most.
DEPTH = 3
MOST_SCENES = 64
# Bytes of a store with latency that are kept in memory: a map of one screen needs some 5 to 50 MB.
KEPT_SIZE = 128 << 20
LONGEST_TITLE = 120
MIDNIGHT = "T00:00:00"
# So many are shown together at most.
MOST_CHANNELS = 16
# Files of an exported site, which lie beside the folders of its scenes; no scene may have such an id.
SITE_FILES = ("tilejson.json", "index.html", "ol.js", "ol.css")


@dataclass(frozen=True)
class Dimension:
    """A dimension beside y and x, with the values of its coordinate.

    labels   the values as text; () without a coordinate
    numbers  the values, where they are numbers
    is_time  whether the values are times
    units    of numbers; "" where none are stated
    """

    name: str
    size: int
    labels: tuple[str, ...] = ()
    numbers: np.ndarray[Any, Any] | None = None
    is_time: bool = False
    units: str = ""

    def index(self, text: str) -> int:
        """The index of the item that `text` names: "@3" is number 3, all else is a value of the coordinate.

        Of numbers the nearest is taken; of other values the first that begins with `text`.

        Raises
            Problem: no item is named so.
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
            raise Problem(400, f"{self.name} is {text!r}; expected one of {self.size} values from {known}")
        return starts[0]


@dataclass(frozen=True)
class Scene:
    """One grid with all its levels, the finest first; "collection" in addresses, as OGC's APIs call it.

    dimensions      those beside y and x that are not bands
    crs             None: the scene has no place on the ground, and is shown by its own pixels
    factors         of each level, the (y, x) size of its cells in cells of the finest level
    mask            the array that says where all others are valid
    window          (y, x) of the finest level that holds data
    rgb_bands       the bands that are red, green and blue; () where no three are
    channels        of a microscope's image, the bands that are shown together, and the colour of each
    source          what to open it by where its store lies: the store's name, and the path in it
    path            that path, where the arrays are stored below it; None: they are made
    ome_dimensions  the names of all arrays' dimensions, where OME-Zarr's metadata have them; else ()
    limits          of values, by band and selection, kept as long as the scene: both are of one state
    """

    id: str
    title: str
    levels: Sequence[Dataset]
    bands: Mapping[str, PictureBand]
    dimensions: Mapping[str, Dimension]
    crs: Crs | None
    factors: Sequence[tuple[float, float]]
    mask: str | None = None
    window: tuple[slice, slice] = (slice(0, 0), slice(0, 0))
    rgb_bands: tuple[str, ...] = ()
    ome_dimensions: tuple[str, ...] = ()
    channels: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    path: str | None = None
    limits: dict[Any, tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)

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

    def variable(self, band: PictureBand) -> Variable:
        """What the values of a band mean."""
        return self.finest.geo.variables[band.array]

    def band(self, name: str) -> PictureBand:
        """The band that `name` means: its name, its number from 1 ("2", "b2"), or STAC's common name of it.

        Raises
            Problem: no band is meant by it.
        """
        band = find_band(self.bands, self.finest.geo.variables, name)
        if band is not None:
            return band
        known = ", ".join(list(self.bands)[:20])
        raise Problem(400, f"no band {name[:80]!r}; there are {known}")

    def path_of(self, band: PictureBand) -> str | None:
        """The path of a band's array in what `source` opens; None where it is not stored."""
        path: str = self.finest.arrays[band.array].path
        return None if self.path is None else path.removeprefix(self.path).strip("/")

    def dimension_names(self, array: str) -> tuple[str, ...]:
        """The names of an array's dimensions, which are the same on all levels."""
        return self.ome_dimensions or self.finest.dimensions(array)

    def dimensions_of(self, band: PictureBand) -> list[Dimension]:
        """The dimensions of a band of which a parameter chooses an item."""
        names = self.dimension_names(band.array)
        held = {*self.finest.geo.dimensions, *band.fixed}
        return [self.dimensions[name] for name in names if name not in held]

    def affine(self, level: int) -> Affine:
        """The affine of a level; without a place on the ground, in pixels of the finest level, y upwards."""
        own = self.levels[level].geo.affine
        if self.crs is not None and own is not None:
            return own
        y, x = self.factors[level]
        if own is not None and own.e > 0 and not self.finest.is_image:
            return Affine(x, 0.0, 0.0, 0.0, y, -float(self.shape[0]))
        # The first row is at the top of the screen, as OME-Zarr's images have it.
        return Affine(x, 0.0, 0.0, 0.0, -y, 0.0)

    def bounds(self) -> tuple[float, float, float, float]:
        """(xmin, ymin, xmax, ymax) in the scene's own CRS."""
        rows, columns = self.window
        held = self.affine(0).moved(columns.start, rows.start)
        return held.bounds((rows.stop - rows.start, columns.stop - columns.start))

    def geographic_bounds(self) -> tuple[float, float, float, float] | None:
        """(west, south, east, north) in degrees, east > 180 across the antimeridian; None without a place."""
        if self.crs is None:
            return None
        rows, columns = (np.linspace(side.start, side.stop, 65) for side in self.window)
        columns, rows = np.meshgrid(columns, rows)
        return self.crs.degrees_around(*self.affine(0).at(columns, rows))


def full_turn(crs: Crs) -> float:
    """360 degrees, in units of a geographic CRS."""
    return 2 * math.pi / crs.radians_per_unit


def open_scenes(
    sources: Iterable[Any],
    storage_options: Mapping[str, Any] | None = None,
    others: Collection[str] = (),
    *,
    max_age: float = 0,
) -> dict[str, Scene]:
    """The scenes of the given stores by id; of a store that is no grid itself, those of the groups in it.

    others   the ids of other scenes, which these do not get
    max_age  seconds for which chunks of stores with latency are kept, KEPT_SIZE bytes of each store; 0: not

    Raises
        NotFoundError: one of the stores does not exist.
        MetadataError: one of the stores holds no grid of two dimensions.
    """
    scenes: dict[str, Scene] = {}
    for source in sources:
        if isinstance(source, zstore.Array | zstore.Group):
            _add_scenes(_kept(source, max_age), scenes, others)
            continue
        with open_ahead(source, storage_options=storage_options) as node:
            _add_scenes(_kept(node, max_age), scenes, others)
    return scenes


def _kept(node: Any, max_age: float) -> Any:
    """The node with the chunks of its store kept in memory, if that has latency and tells of changes."""
    if max_age > 0 and node.store.request_count > 1:
        with suppress(StoreError):
            return node.cached(KEPT_SIZE, fresh_for=max_age)
    return node


def _add_scenes(node: Any, scenes: dict[str, Scene], others: Collection[str]) -> None:
    """Add the scenes at a node and below it to those of nodes before."""
    found = list(_find_grids(node, DEPTH))
    if not found:
        cells = unstructured(node) if isinstance(node, zstore.Group) else ""
        if cells:
            raise UnsupportedError(
                f"{cells}; expected rows and columns, or HEALPix", path=_public_place(node, node.path)
            )
        raise MetadataError("there is no grid of two dimensions here or below", path=node.store.url)
    # Grids that have a place on the ground come first.
    found.sort(key=lambda pair: None in (pair[1][0].geo.crs, pair[1][0].geo.affine))
    for owner, levels in found[: MOST_SCENES - len(scenes) - len(others)]:
        scene = _make_scene(owner, levels, {*scenes, *others})
        if len(found) > 1:
            title = owner.path[len(node.path) :].strip("/") or scene.title
            is_shared = sum(other is owner for other, _ in found) > 1
            grid = f": {', '.join(levels[0].arrays)}" if is_shared else ""
            scene = replace(scene, title=f"{title}{grid}"[:LONGEST_TITLE])
        scenes[scene.id] = scene


def _find_grids(node: Any, depth: int) -> Iterable[tuple[Any, Sequence[Dataset]]]:
    """The levels of every grid at a node or below it, each with the node that it was found at."""
    try:
        with warnings.catch_warnings(), _told():
            warnings.simplefilter("ignore")  # faults of documents are for `zstore validate` to report
            levels = open_levels(node)
        if None in (levels[0].geo.crs, levels[0].geo.affine) and isinstance(node, zstore.Group):
            meshes = open_meshes(node)
            yield from ((node, mesh) for mesh in meshes)
            if {*levels[0].arrays} <= {name for mesh in meshes for name in mesh[0].arrays}:
                return
        if any(array.dtype.kind in "iufb" for array in levels[0].arrays.values()):
            is_alone = isinstance(node, zstore.Group) and len(levels) == 1
            others = other_grids(node, levels[0]) if is_alone else []
            yield node, [_rename_array(level, levels[0]) for level in levels]
            yield from ((node, [other]) for other in others)
            return
    except (MetadataError, UnsupportedError, NotFoundError):
        meshes = open_meshes(node) if isinstance(node, zstore.Group) else []
        yield from ((node, mesh) for mesh in meshes)
        if depth == 0 or meshes:
            return
    if isinstance(node, zstore.Group):
        for name, group in sorted(node.members(unreadable={})):
            try:
                yield from _find_grids(group, depth - 1) if isinstance(group, zstore.Group) else ()
            except ZstoreError as error:
                # A group that cannot be read does not keep its neighbours from being served.
                log.warning("%s is left out: %s", name, error)


@contextmanager
def _told() -> Iterator[None]:
    """Context that logs the members of groups that are left out within it; the call goes on without them."""
    left = dict[str, ZstoreError]()
    try:
        with left_out() as left:
            yield
    finally:
        for path, reason in left.items():
            log.warning("%s is left out: %s", path, reason)
            leave_out(path, reason)


def _rename_array(level: Dataset, finest: Dataset) -> Dataset:
    """A level that is a single array, renamed to the finest level's array; other levels as they are."""
    if level.is_group or finest.is_group or level.arrays.keys() == finest.arrays.keys():
        return level
    (name,), (array,), (variable,) = finest.arrays, level.arrays.values(), level.geo.variables.values()
    return replace(level, arrays={name: array}, geo=replace(level.geo, variables={name: variable}))


def _ome_names(node: Any, finest: Dataset) -> tuple[tuple[str, ...], list[str]]:
    """(names of the dimensions, labels of the channels) in OME-Zarr's metadata; () and [] without it."""
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


def _channels(node: Any, bands: Sequence[str]) -> dict[str, str]:
    """The bands that are active channels in OME-Zarr's metadata, with their colours; {} unless all have."""
    stated = node.attrs.get("ome", node.attrs)
    omero = stated.get("omero") if isinstance(stated, Mapping) else None
    listed = omero.get("channels") if isinstance(omero, Mapping) else None
    channels = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    colours = [str(one.get("color", "")) for one in channels]
    if len(channels) != len(bands) or not all(re.fullmatch("[0-9a-fA-F]{6}", one) for one in colours):
        return {}
    named = zip(bands, channels, colours, strict=True)
    active = {band: colour for band, one, colour in named if one.get("active", True) is not False}
    return active if len(active) <= MOST_CHANNELS else {}


def _make_scene(node: Any, levels: Sequence[Dataset], known: Collection[str]) -> Scene:
    """The scene of these levels, with an id that none of the `known` has."""
    finest = levels[0]
    is_image = isinstance(node, zstore.Group) and not finest.is_group
    place = _public_place(node if is_image else finest.root, finest.place)
    name = "data" if place.startswith("memory://") else place.rpartition("/")[2] or "data"
    said = node.attrs.get("title")
    title = said.strip()[:LONGEST_TITLE] if isinstance(said, str) and said.strip() else name
    mask = find_mask(finest)
    bands: dict[str, PictureBand] = {}
    dimensions: dict[str, Dimension] = {}
    ome_dimensions, channels = _ome_names(node, finest) if is_image else ((), [])
    for array_name in finest.band_names:
        array = finest.arrays[array_name]
        if array.dtype.kind not in "iufb" or (array_name == mask and len(finest.arrays) > 1):
            continue
        names = ome_dimensions or finest.dimensions(array_name)
        sizes = {
            n: size for n, size in zip(names, array.shape, strict=True) if n not in finest.geo.dimensions
        }
        for dimension, size in sizes.items():
            dimensions.setdefault(dimension, _read_dimension(finest, dimension, size))
        stated = [band.name for band in finest.geo.variables[array_name].bands]
        bands |= bands_of(
            array_name, sizes, [stated, channels], lambda split: dimensions[split].labels,
            name=name if is_image else "", taken=bands,
        )  # fmt: skip
    if not bands:
        raise MetadataError("no array holds numbers", path=place)
    geo = finest.geo
    window = (slice(0, geo.shape[0]), slice(0, geo.shape[1]))
    stated_levels = None if finest.root is None else finest.root.attrs.get("multiscales")
    if finest.root is not None and isinstance(stated_levels, Mapping) and "tile_matrix_set" in stated_levels:
        window = zstore.open_tiles(finest.root).window(finest.level, geo.shape)
    return Scene(
        _free_id(name, known), title, levels, bands, dimensions, geo.crs if geo.affine is not None else None,
        _factors(levels), mask, window, find_rgb_bands(finest, bands), ome_dimensions,
        _channels(node, [*bands]) if is_image else {}, _source(node, place),
        node.path if {array.store for array in finest.arrays.values()} <= {node.store} else None,
    )  # fmt: skip


def _source(node: Any, place: str) -> str:
    """The name of a store and the path of a node in it; no folder and no server is told."""
    store = _public_place(node, place).removesuffix(node.path).rstrip("/")
    return "/".join(filter(None, (store.rpartition("/")[2], node.path)))


def _public_place(root: Any, place: str) -> str:
    """Where a grid is, without the query of a web address: it may hold signatures and tokens."""
    url, path = (place, "") if root is None else (root.store.url, root.path)
    if "://" in url and not url.startswith("file:"):
        url = url.partition("?")[0].partition("#")[0]
    return f"{url.rstrip('/')}/{path}".rstrip("/")


def _free_id(name: str, known: Collection[str]) -> str:
    """A name as an id for addresses, with a number behind it where another scene has that id."""
    word = "".join(c if (c.isalnum() and c.isascii()) or c in "-_." else "-" for c in name).strip(".")
    word = found = word or "data"
    count = 2
    while found in known or found in SITE_FILES:
        found, count = f"{word}-{count}", count + 1
    return found


def _factors(levels: Sequence[Dataset]) -> list[tuple[float, float]]:
    """The (y, x) size of each level's cells, in cells of the finest level."""
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


def _read_dimension(finest: Dataset, name: str, size: int) -> Dimension:
    """A dimension with its coordinate's values, as far as there is a coordinate that can be read."""
    held = finest.extras.get(name)
    time = finest.geo.time
    try:
        if time is not None and time.name == name and time.values.shape == (size,):
            return Dimension(name, size, _date_labels(time), is_time=True)
        if held is None or held.shape != (size,) or size > 1 << 20:
            return Dimension(name, size)
        stored = np.asarray(held[...])
        units = held.attrs.get("units")
        if stored.dtype.kind == "M" or (isinstance(units, str) and " since " in units):
            calendar = held.attrs.get("calendar", "standard")
            labels = _date_labels(TimeAxis(name, stored, units, str(calendar)))
            return Dimension(name, size, labels, is_time=True)
        values = decode(stored, held.attrs)
        numbers = values.astype(np.float64) if values.dtype.kind in "iuf" else None
        said = units if isinstance(units, str) and units != "1" else ""
        return Dimension(name, size, tuple(map(str, values.tolist())), numbers, units=said)
    except (ZstoreError, TypeError, ValueError) as error:
        log.warning("coordinate %s of %s is left out: %s", name, finest.place, error)
        return Dimension(name, size)


def _date_labels(axis: TimeAxis) -> tuple[str, ...]:
    """Times as ISO 8601 writes them, all to the same unit; "" where there is none."""
    dates = axis.dates()
    if dates.dtype.kind == "M":
        units = ("D", "m", "s", "ms", "us", "ns")
        known = dates[~np.isnat(dates)]
        unit = next((unit for unit in units if (known.astype(f"M8[{unit}]") == known).all()), "auto")
        return tuple(np.datetime_as_string(dates, unit=unit, casting="unsafe").tolist())
    labels = tuple("" if date is None else date.isoformat() for date in dates.tolist())
    are_days = all(label.endswith(MIDNIGHT) for label in labels if label)
    return tuple(label.removesuffix(MIDNIGHT) for label in labels) if are_days else labels
