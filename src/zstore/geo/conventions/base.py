"""Conventions: the nodes that they read, the model of a georeference, and the choice of conventions.

Of two conventions that state the same fact, the one that is asked first counts. By default zstore's own
come first, then those of plugins by name. Another order is chosen for one call (`read_geo(...,
conventions=...)`), for a stretch of a program (`use_conventions`), or for a process (the environment
variable ZSTORE_CONVENTIONS, names separated by commas). "..." among the names stands for all that are not
named: "acme,..." asks `acme` first.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, TypeGuard, TypeVar, cast

import numpy as np

from zstore.base.once import once
from zstore.base.waits import Waits
from zstore.errors import (
    ExtensionError,
    MetadataError,
    NotFoundError,
    ReadingWarning,
    StoreError,
    ZstoreError,
    leave_out,
)
from zstore.extensions.builtin import CONVENTIONS
from zstore.extensions.registry import conventions as registry
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.timeaxis import TimeAxis
from zstore.model.packing import with_one_nodata
from zstore.nodes.group import Group, members_of
from zstore.nodes.open import open as open_node
from zstore.storage.base import join_key

# fmt: off
RESAMPLING_METHODS = (
    "nearest", "average", "bilinear", "cubic", "cubic_spline", "lanczos", "mode", "max", "min", "med", "sum",
    "q1", "q3", "rms", "gauss",
)
# fmt: on
Places = TypeVar("Places", float, np.ndarray[Any, np.dtype[np.float64]])


class Affine(NamedTuple):
    """From (column, row) to (x, y): x = a·column + b·row + c, y = d·column + e·row + f.

    (0, 0) is the outer corner of the first cell and (0.5, 0.5) its centre. This is rasterio's order and
    `spatial:transform`'s; the same six numbers in GDAL's order (c, a, b, f, d, e) are called `geotransform`.
    """

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    @classmethod
    def from_user(cls, numbers: Iterable[Any]) -> Affine:
        """The affine of six numbers, or of the nine of a 3 by 3 matrix.

        Raises
            MetadataError: not six finite numbers, or they map the plane onto a line.
        """
        found = list(numbers)
        if len(found) == 9 and found[6:] == [0, 0, 1]:
            found = found[:6]
        if len(found) != 6 or any(
            isinstance(n, bool) or not isinstance(n, (int, float, np.number)) for n in found
        ):
            raise MetadataError(f"affine is {found!r}; expected six numbers")
        try:
            affine = cls(*(float(number) for number in found))
        except OverflowError as error:
            raise MetadataError(f"affine is {found!r}; expected numbers that float64 holds") from error
        if not all(map(math.isfinite, affine)) or affine.a * affine.e == affine.b * affine.d:
            raise MetadataError(f"affine is {found!r}; expected six finite numbers that span a plane")
        return affine

    @classmethod
    def from_geotransform(cls, numbers: Iterable[Any]) -> Affine:
        """The affine of six numbers in GDAL's order."""
        found = list(numbers)
        if len(found) != 6:
            raise MetadataError(f"geotransform is {found!r}; expected six numbers")
        c, a, b, f, d, e = found
        return cls.from_user((a, b, c, d, e, f))

    @property
    def geotransform(self) -> tuple[float, float, float, float, float, float]:
        """The six numbers in GDAL's order."""
        return (self.c, self.a, self.b, self.f, self.d, self.e)

    @property
    def is_rotated(self) -> bool:
        """Whether rows and columns do not run along the axes of the CRS."""
        return self.b != 0 or self.d != 0

    @property
    def cell(self) -> tuple[float, float]:
        """Height and width of a cell, both positive."""
        return (math.hypot(self.b, self.e), math.hypot(self.a, self.d))

    def scaled(self, factors: tuple[float, float]) -> Affine:
        """The affine of cells `factors` (y, x) times as large, with the same outer corner."""
        y, x = factors
        return Affine(self.a * x, self.b * y, self.c, self.d * x, self.e * y, self.f)

    def at(self, column: Places, row: Places) -> tuple[Places, Places]:
        """(x, y) of a position on the grid, or of arrays of positions."""
        return (self.a * column + self.b * row + self.c, self.d * column + self.e * row + self.f)

    def cell_at(self, x: Places, y: Places) -> tuple[Places, Places]:
        """(column, row) of a position on the ground, or of arrays of positions; the inverse of `at`."""
        east, north = x - self.c, y - self.f
        if not self.is_rotated:
            return (east / self.a, north / self.e)
        size = self.a * self.e - self.b * self.d
        return ((self.e * east - self.b * north) / size, (self.a * north - self.d * east) / size)

    def moved(self, column: float, row: float) -> Affine:
        """The affine of the same cells counted from (column, row) of this one."""
        x, y = self.at(column, row)
        return self._replace(c=x, f=y)

    def bounds(self, shape: tuple[int, int]) -> tuple[float, float, float, float]:
        """(xmin, ymin, xmax, ymax) of a grid of `shape` (y, x), outer edges."""
        height, width = shape
        corners = [self.at(column, row) for column in (0, width) for row in (0, height)]
        xs, ys = zip(*corners, strict=True)
        return (min(xs), min(ys), max(xs), max(ys))

    def coordinates(self, shape: tuple[int, int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
        """Centres of the rows and of the columns; None for a rotated grid, which has none per axis.

        Shapes
            shape (y, x); result float64 (y), (x).
        Units
            those of the CRS.
        """
        if self.is_rotated:
            return None
        rows, columns = (np.arange(size, dtype=np.float64) + 0.5 for size in shape)
        return (self.f + self.e * rows, self.c + self.a * columns)


@dataclass(frozen=True)
class Band:
    """One spectral band, in STAC's words.

    name         the band's identifier: "B02", "vv"
    common_name  "red", "nir", ...
    wavelength   of its centre, in micrometres; `width` is at half of the maximum
    others       what else is said of it, kept as it is
    """

    name: str | None = None
    description: str | None = None
    common_name: str | None = None
    wavelength: float | None = None
    width: float | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stac:
    """The data's entry in a STAC catalogue, or a reference to it.

    kind     "item" or "collection": `content` is the object; "link": it is a link object, with an `href`;
             "key": it is the key of a JSON value in the store
    """

    kind: Literal["item", "collection", "link", "key"]
    content: Mapping[str, Any] | str


class ImageAxis(NamedTuple):
    """A dimension as an image of OME-Zarr states it; the items of the finest level lie `step` apart.

    first  the centre of the first of them
    """

    type: str | None = None
    unit: str | None = None
    step: float = 1.0
    first: float = 0.0

    def coarser(self, factor: int) -> ImageAxis:
        """The axis of a level with one item of `factor`."""
        return self._replace(step=self.step * factor, first=self.first + self.step * (factor - 1) / 2)


@dataclass(frozen=True)
class Variable:
    """The meaning of the values of one array.

    dtype         the stored numpy dtype; None where it is not known
    dimensions    all of the array's dimension names; () stands for the model's two
    bands         the one band that the array holds, or those along its dimension of bands, in order
    nodata        the stored value that means "nothing here", before scale and offset; may be NaN
    other_nodata  further ones, none of them NaN, which means nothing in any case
    attributes    every other attribute, kept as it is
    """

    dtype: np.dtype[Any] | None = None
    dimensions: tuple[str, ...] = ()
    nodata: int | float | None = None
    other_nodata: tuple[int | float, ...] = ()
    scale_factor: float | None = None
    add_offset: float | None = None
    units: str | None = None
    standard_name: str | None = None
    long_name: str | None = None
    area_or_point: Literal["Area", "Point"] | None = None
    valid_range: tuple[float, float] | None = None
    flag_values: tuple[int, ...] | None = None
    flag_masks: tuple[int, ...] | None = None
    flag_meanings: tuple[str, ...] | None = None
    bands: tuple[Band, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Variable):
            return NotImplemented
        return self._comparable() == other._comparable()

    __hash__ = None  # type: ignore[assignment]

    def _comparable(self) -> tuple[Any, ...]:
        # NaN is a nodata value like any other: two variables that have it are equal.
        nodata = "nan" if isinstance(self.nodata, float) and math.isnan(self.nodata) else self.nodata
        others = (value for name, value in vars(self).items() if name != "nodata")
        return (nodata, *others)

    def with_one_nodata(self, items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Stored items with `nodata` in the place of all others that mean nothing."""
        return with_one_nodata(items, self.nodata, self.other_nodata)


@dataclass(frozen=True)
class Level:
    """One level of a pyramid; `path` is relative to the multiscale group.

    shape, affine  of the level's own grid; affine is None where nothing says it
    factors        (y, x) size of a cell in cells of the finest level
    tile_shape     (y, x) of the chunks that readers fetch
    others         by dimension beside y and x, how many items of the finest level make one, where several do
    """

    path: str
    shape: tuple[int, int]
    affine: Affine | None
    factors: tuple[float, float] = (1, 1)
    tile_shape: tuple[int, int] | None = None
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def cell_text(self) -> str:
        """The width and height of a cell as text: "10 × 10"; "" if unknown."""
        return "" if self.affine is None else " × ".join(f"{n:.12g}" for n in reversed(self.affine.cell))


@dataclass(frozen=True)
class GeoModel:
    """A raster, or a pyramid of rasters, on the ground.

    crs, affine   None where nothing says them
    shape         (y, x) of the finest level
    dimensions    names of the y and of the x dimension
    levels        finest first; () for a plain raster
    resampling    how the coarser levels were made, one of RESAMPLING_METHODS
    variables     by array name
    time          when the data are of
    stac          what a catalogue says of them
    plugins       conventions of plugins that say any of it, and that say it again where it is written
    sources       by fact ("crs", "affine", "levels"), what states it: an attribute, and the path of its node
    axes          of an image of OME-Zarr, its dimensions by name
    """

    crs: Crs | None
    affine: Affine | None
    shape: tuple[int, int]
    dimensions: tuple[str, str] = ("y", "x")
    levels: tuple[Level, ...] = ()
    resampling: str | None = None
    variables: Mapping[str, Variable] = field(default_factory=dict)
    time: TimeAxis | None = None
    stac: Stac | None = None
    plugins: tuple[str, ...] = field(default=(), compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    axes: Mapping[str, ImageAxis] = field(default_factory=dict, compare=False, repr=False)

    @property
    def bounds(self) -> tuple[float, float, float, float] | None:
        """(xmin, ymin, xmax, ymax) of the finest level's outer edges."""
        return None if self.affine is None else self.affine.bounds(self.shape)

    @property
    def cell_size(self) -> tuple[float, float] | None:
        """Height and width of a cell of the finest level."""
        return None if self.affine is None else self.affine.cell

    @property
    def is_geographic(self) -> bool:
        """Whether the coordinates are longitude and latitude."""
        return self.crs is not None and self.crs.is_geographic

    @property
    def grids(self) -> tuple[Level, ...]:
        """The grids with data: the levels, or the one grid of a plain raster, at path ""."""
        return self.levels or (Level("", self.shape, self.affine),)

    def plan_level(
        self, path: str, factors: tuple[int, int], tile_shape: tuple[int, int] | None = None
    ) -> Level:
        """The level whose cells are `factors` (y, x) times those of the finest, from the same outer corner.

        Shapes
            ceil(n / factor): the last cells may reach beyond the finest level's edge.
        Raises
            MetadataError: a factor below 1 or not an integer.
        """
        if any(isinstance(f, bool) or int(f) != f or f < 1 for f in factors):
            raise MetadataError(f"factors of level {path!r} are {factors!r}; expected integers of at least 1")
        shape = (-(-self.shape[0] // int(factors[0])), -(-self.shape[1] // int(factors[1])))
        affine = None if self.affine is None else self.affine.scaled(factors)
        return Level(path, shape, affine, factors, tile_shape)


Severity = Literal["error", "warning", "note"]


class Witness(NamedTuple):
    """The statement of one attribute about a fact: the attribute's name, and the value that it comes to."""

    source: str
    value: Any


@dataclass(frozen=True)
class Mend:
    """The change of a node's document that mends a finding; without any change, a refusal.

    message     what is written, or why nothing is
    attributes  to store; None for one to remove, whose position the first new one takes
    members     of the node's own document, likewise
    """

    message: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    members: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """An error, a doubt or a gap in the document of a node at `path`.

    witnesses   of a contradiction: the attribute that counts, and the one that says otherwise
    mend        the change that mends it, where the document alone tells that
    """

    rule: str
    severity: Severity
    path: str
    message: str
    expected: Any = None
    found: Any = None
    witnesses: tuple[Witness, ...] = ()
    mend: Mend | None = None


class Node(Protocol):
    """An array or a group in the form for conventions."""

    @property
    def attrs(self) -> Mapping[str, Any]: ...
    @property
    def path(self) -> str: ...
    @property
    def zarr_format(self) -> int: ...


class ArrayNode(Node, Protocol):
    """An array in the form for conventions; `dims` is None if no dimension has a name."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def fill_value(self) -> Any: ...
    @property
    def dims(self) -> tuple[str | None, ...] | None: ...
    def __getitem__(self, selection: Any) -> Any: ...


class GroupNode(Node, Protocol):
    """A group in the form for conventions: its direct children by name."""

    def members(self) -> Iterable[tuple[str, Any]]: ...


def is_group(node: Any) -> TypeGuard[GroupNode]:
    """Whether the node is a group."""
    return hasattr(type(node), "members")


def is_array(node: Any) -> TypeGuard[ArrayNode]:
    """Whether the node is an array."""
    return not is_group(node)


@dataclass(frozen=True)
class LevelEntry:
    """One level in a dialect's list: its path and its geometry there.

    path             relative to the multiscale group
    affine           the level's own, as stated
    fallback_affine  what a tile matrix or OME's scale comes to: the level's own only where its array fits
    extent           (y, x) cells that the tile matrix covers
    cell             (height, width) of a cell, in CRS units
    scale            (y, x) factors to the finest level
    names_axes       whether the list says that the last two axes are y and x
    """

    path: str
    affine: Affine | None = None
    fallback_affine: Affine | None = None
    extent: tuple[int, int] | None = None
    shape: tuple[int, int] | None = None
    cell: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    tile_shape: tuple[int, int] | None = None
    resampling: str | None = None
    names_axes: bool = False


@dataclass(frozen=True)
class Facts:
    """The facts about one node in one convention; any of them may be missing.

    crs, affines  candidates, the most trustworthy first, each with the name of the attribute. A group's CRS
                  counts for all arrays in it, its affines for those of its `shape`, if it states one
    dimensions    names of the y and the x dimension, as stated
    coordinate_affine, coordinate_dimensions  those of the node's coordinate variables
    shape         (y, x) of the grid that a group describes; None: not stated
    bbox          (xmin, ymin, xmax, ymax)
    levels        of a pyramid, () if its levels are unknown; None: no pyramid
    variable      of an array: its nodata, scale, units, flags, bands
    axes          of an image of OME-Zarr, its dimensions by name
    convention    its name, which reading fills in
    """

    crs: tuple[tuple[str, Crs], ...] = ()
    affines: tuple[tuple[str, Affine], ...] = ()
    dimensions: tuple[str, str] | None = None
    coordinate_affine: Affine | None = None
    coordinate_dimensions: tuple[str, str] | None = None
    shape: tuple[int, int] | None = None
    bbox: tuple[float, float, float, float] | None = None
    levels: tuple[LevelEntry, ...] | None = None
    resampling: str | None = None
    variable: Variable | None = None
    time: TimeAxis | None = None
    stac: Stac | None = None
    axes: Mapping[str, ImageAxis] = field(default_factory=dict)
    findings: tuple[Finding, ...] = field(default=(), compare=False)
    convention: str = field(default="", compare=False)


class Document(TypedDict, total=False):
    """One node to be created. Arrays: `dimension_names` and `fill_value`, and `data` if zstore knows it.

    The dimensions' names are not among the attributes, in Zarr v2 either: that is the format's business.
    """

    kind: Literal["group", "array"]
    attributes: dict[str, Any]
    dimension_names: tuple[str, ...]
    data: np.ndarray[Any, Any]
    fill_value: Any


Documents = dict[str, Document]


def unused_attribute(node: Node, rule: str, name: str, expected: str, mend: Mend | None = None) -> Finding:
    """The finding that an attribute has an invalid value and is not used."""
    found = node.attrs[name]
    message = f"{name} is {found!r}; expected {expected}; it is not used"
    return Finding(rule, "error", node.path, message, expected, found, mend=mend)


def parse_crs(
    source: str, stated: Any, rule: str, path: str, findings: list[Finding]
) -> Iterator[tuple[str, Crs]]:
    """(source, CRS) of a value in a document; nothing, with a finding, if the value is no CRS."""
    try:
        yield source, Crs.from_user(stated)
    except MetadataError as error:
        findings.append(Finding(rule, "error", path, f"{source}: {error.message}", None, stated))


class Convention(Protocol):
    """One dialect of georeference and meaning: how to parse, render and check it.

    parse     the facts that one node states in this dialect; `parent` is the group that holds it, for
              attributes that an array inherits, and arrays beside it
    render    this dialect's attributes of every node, by its path; a node that is left out has none of them
    check     the faults of a node whose model is `geo`; inherited, the findings of `parse`
    dialects  not required: the names by which people know what the attributes of a node are written in;
              without it, `name` stands for them all
    """

    name: str

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts: ...
    def render(self, geo: GeoModel, zarr_format: int) -> Documents: ...

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """The findings of parsing the node."""
        return list(self.parse(node, parent).findings)


VARIABLE = "ZSTORE_CONVENTIONS"
REST = "..."
# As they are offered: coordinates and the grid mapping, GDAL's attributes, then those of pyramids.
OWN = tuple(offer.name for offer in CONVENTIONS)

_chosen: ContextVar[tuple[str, ...] | None] = ContextVar("zstore_conventions", default=None)


def order_conventions(names: Sequence[str] | None = None) -> list[str]:
    """The names of the conventions to apply, in order; `names` replace an earlier choice."""
    stated = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    chosen = names if names is not None else _chosen.get() or stated or [REST]
    known = [*OWN, *(name for name in registry.names() if name not in OWN)] if REST in chosen else []
    rest = [name for name in known if name not in chosen]
    return [name for word in chosen for name in (rest if word == REST else [word])]


def load_conventions(names: Sequence[str] | None = None) -> list[Convention]:
    """The conventions of these names, built in or a plugin's; None: those of an earlier choice, or all.

    Raises
        UnknownExtensionError: nobody offers one of the names.
        ExtensionError: one that is named cannot be imported. Others are left out.
    Warns
        ReadingWarning: a plugin's convention that nobody named cannot be imported.
    """
    loaded: list[Convention] = []
    for name in order_conventions(names):
        try:
            loaded.append(registry.resolve(name)())
        except ExtensionError as error:
            if name in OWN or name in (names or ()):
                raise
            warnings.warn(ReadingWarning(f"convention {name!r} is not asked: {error}"), stacklevel=3)
    return loaded


@contextmanager
def use_conventions(*names: str) -> Iterator[None]:
    """Apply these conventions, in this order, to all reading within the `with` block.

    Raises
        UnknownExtensionError: nobody offers one of the names.
    """
    load_conventions(names)
    token = _chosen.set(names)
    try:
        yield
    finally:
        _chosen.reset(token)


def warn_of(findings: Sequence[Finding], *, stacklevel: int = 2) -> None:
    """Warn of findings that came up while something was read for another purpose.

    Warns
        ReadingWarning: once for each finding that is more than a note.
    """
    for finding in findings:
        if finding.severity != "note":
            text = f"{finding.severity} {finding.rule} at {finding.path or '/'}: {finding.message}"
            warnings.warn(ReadingWarning(text), stacklevel=stacklevel + 1)


# An array of more values is no coordinate, and is not read whole.
MOST_VALUES = 1 << 24

# The arrays whose values somebody asked for while none are to be read.
_wanted: ContextVar[dict[HeldArray, None] | None] = ContextVar("wanted", default=None)


class HeldNode:
    """A node with the group that contains it, if that is known."""

    node: Any = None
    path: str
    parent: HeldGroup | None
    zarr_format: int

    def __init__(self, node: Any, parent: HeldGroup | None = None) -> None:
        self.node, self.parent = node, parent
        self.path, self.zarr_format = node.path, node.zarr_format
        self._attributes: Mapping[str, Any] = node.attrs

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes, without Zarr v2's names of dimensions."""
        return self._attributes

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def ancestors(self) -> Iterator[HeldGroup]:
        """The held groups above the node, the nearest first."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent


class HeldArray(HeldNode):
    """An array whose values are read once."""

    _values: np.ndarray[Any, Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths per dimension."""
        return self.node.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the stored values."""
        return self.node.dtype  # type: ignore[no-any-return]

    @property
    def fill_value(self) -> Any:
        """The value of cells in chunks that are not stored."""
        return self.node.fill_value

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """Names of the dimensions."""
        return self.node.dims  # type: ignore[no-any-return]

    @property
    def chunks(self) -> tuple[int, ...]:
        """Lengths of a chunk, or of an inner chunk of a shard."""
        return self.node.chunks  # type: ignore[no-any-return]

    def __getitem__(self, selection: Any) -> Any:
        if selection is not Ellipsis:
            return self._read(selection)
        if self._values is None:
            if np.prod(self.shape, dtype=float) > MOST_VALUES:
                raise MetadataError(
                    f"array has the shape {self.shape}; expected {MOST_VALUES} values at most for all of it",
                    path=self.path,
                )
            wanted = _wanted.get()
            if wanted is not None:
                wanted[self] = None
                raise MetadataError("values are not to be read yet", path=self.path)
            self._values = self._read(selection)
        return self._values

    def _read(self, selection: Any) -> Any:
        return self.node[selection]


class HeldGroup(HeldNode):
    """A group whose children are listed once."""

    _members: Iterable[tuple[str, Any]] | None = None

    @once
    def children(self) -> Mapping[str, Any]:
        """The direct children by name, in the order of their names; the error of one that cannot be read."""
        members = self._list() if self._members is None else self._members
        found = sorted(members, key=lambda member: member[0])
        return {name: self._hold(child) for name, child in found}

    def _hold(self, child: Any) -> Any:
        if isinstance(child, HeldNode | ZstoreError):
            return child
        return HeldArray(child, self) if is_array(child) else type(self)(child, self)

    def _list(self) -> Iterable[tuple[str, Any]]:
        if not isinstance(self.node, Group):
            return self.node.members()  # type: ignore[no-any-return]
        unreadable = dict[str, ZstoreError]()
        members = self.node.members(unreadable=unreadable)
        for name, error in unreadable.items():
            self._leave_out(join_key(self.path, name), error)
        return [*members, *unreadable.items()]

    def _leave_out(self, path: str, error: ZstoreError) -> None:
        leave_out(path, error)

    @once
    def arrays(self) -> Mapping[str, Any]:
        """The direct child arrays that can be read, by name."""
        return {name: child for name, child in self.children.items() if isinstance(child, HeldArray)}

    @once
    def groups(self) -> Mapping[str, Any]:
        """The direct child groups that can be read, by name."""
        return {name: child for name, child in self.children.items() if isinstance(child, HeldGroup)}

    @once
    def outer(self) -> HeldGroup | None:
        """The group that contains this one; read from the store if it is not wrapped with its group."""
        above = None if self.parent is not None else surroundings(self if self.node is None else self.node)
        return above or self.parent

    def members(self) -> Iterator[tuple[str, Any]]:
        """The direct children that can be read, by name."""
        for name, child in self.children.items():
            if isinstance(child, HeldArray | HeldGroup):
                yield name, child

    def below(self, path: str) -> Any:
        """The node at a path relative to this group; None if there is none that can be read."""
        found = self._look(path)
        return None if isinstance(found, ZstoreError) else found

    def is_unreadable(self, path: str) -> bool:
        """Whether the node at a path relative to this group, or a group above it, cannot be read."""
        return isinstance(self._look(path), ZstoreError)

    def _look(self, path: str) -> Any:
        found: Any = self
        for part in filter(None, path.split("/")):
            if not isinstance(found, ZstoreError):
                found = found.children.get(part) if isinstance(found, HeldGroup) else None
        return found


class Surroundings(HeldGroup):
    """The group that contains a node: the nodes beside it that cannot be read are no error of reading it."""

    def _leave_out(self, path: str, error: ZstoreError) -> None:
        leave_out(path, error, is_asked=False)


class ReadableGroup(HeldGroup):
    """A group without its unreadable members, of which its user tells by itself."""

    def _leave_out(self, path: str, error: ZstoreError) -> None:
        pass


def hold(node: Any, parent: HeldGroup | None = None) -> HeldArray | HeldGroup:
    """The node, wrapped to be read once; unchanged if it is wrapped already."""
    if isinstance(node, HeldArray | HeldGroup):
        return node
    return HeldArray(node, parent) if is_array(node) else HeldGroup(cast("GroupNode", node), parent)


def hold_members(groups: Iterable[HeldGroup]) -> None:
    """Request the children of these groups of one store together, if they lie beyond a network."""
    asked = [group for group in groups if isinstance(group.node, Group)]
    for group, members in zip(asked, members_of([group.node for group in asked]), strict=True):
        group._members = members


@contextmanager
def note_values() -> Iterator[Mapping[HeldArray, None]]:
    """Collect the arrays whose values are requested within the block, without reading them."""
    wanted: dict[HeldArray, None] = {}
    token = _wanted.set(wanted)
    try:
        yield wanted
    finally:
        _wanted.reset(token)


def read_at_once(arrays: Sequence[HeldArray], request_count: int) -> None:
    """Read all values of these arrays side by side; an error is raised when its array is asked for."""

    def read(array: HeldArray) -> None:
        with suppress(ZstoreError):
            array[...]

    if arrays:
        # Imported here: what lies on a disk is read without it.
        from concurrent.futures import ThreadPoolExecutor

        waits = Waits()
        with ThreadPoolExecutor(min(request_count, len(arrays)), initializer=waits.enter) as pool, waits:
            list(pool.map(read, arrays))


def hold_group(node: Any) -> HeldGroup | None:
    """The group, wrapped to be read once; None for anything else."""
    held = None if node is None else hold(node)
    return held if isinstance(held, HeldGroup) else None


def arrays_of(group: GroupNode) -> Mapping[str, Any]:
    """The direct child arrays of a group by name."""
    if isinstance(group, HeldGroup):
        return group.arrays
    return {name: child for name, child in group.members() if is_array(child)}


def arrays_along(node: Any, group: GroupNode) -> dict[str, Any]:
    """The arrays beside an array by name, and by "/name" those above it to which its dimensions refer.

    Spec
        GeoZarr draft 8.1.2: a dimension called "/time".
    """
    found = dict(arrays_of(group))
    for name in [name for name in node.dims or () if name is not None and name.startswith("/")]:
        above: GroupNode | None = group
        while above is not None and name not in found:
            coordinate = arrays_of(above).get(plain_name(name))
            if coordinate is not None:
                found[name] = coordinate
            above = group_outside(above)
    return found


def plain_name(dimension: str) -> str:
    """The name of a dimension without the "/" that marks a coordinate in a group above."""
    return dimension.removeprefix("/")


def dimensions_of(array: ArrayNode) -> tuple[str, ...]:
    """The names of an array's dimensions; "" for one without."""
    return tuple(plain_name(dim or "") for dim in array.dims or ("",) * len(array.shape))


def group_outside(group: GroupNode) -> GroupNode | None:
    """The group that contains a group; None if there is none, or it cannot be read."""
    return group.outer if isinstance(group, HeldGroup) else None


def surroundings(node: Any) -> Surroundings | None:
    """The group that contains a node, wrapped to be read once; None as of `group_above`."""
    above = group_above(node)
    return None if above is None else Surroundings(above)


def group_above(node: Any) -> Group | None:
    """The group that contains a node, if it exists and can be read; None above the root of the store."""
    if not hasattr(node, "store") or not node.path:
        return None
    try:
        above = open_node(node.store, node.path.rpartition("/")[0], mode="r")
        return above if isinstance(above, Group) else None
    except (MetadataError, NotFoundError, StoreError):
        return None
