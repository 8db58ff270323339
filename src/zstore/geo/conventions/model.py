"""The model of a raster or a pyramid on the ground: one affine, one CRS, and the meaning of the values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.timeaxis import TimeAxis

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
        """(x, y) of a place on the grid, or of arrays of places."""
        return (self.a * column + self.b * row + self.c, self.d * column + self.e * row + self.f)

    def cell_at(self, x: Places, y: Places) -> tuple[Places, Places]:
        """(column, row) of a place on the ground, or of arrays of places; the inverse of `at`."""
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


@dataclass(frozen=True)
class Variable:
    """The meaning of the values of one array.

    dtype         the stored numpy dtype; None where it is not known
    dimensions    all of the array's dimension names; () stands for the model's two
    bands         the one band that the array holds, or those along its dimension of bands, in order
    nodata        the stored value that means "nothing here", before scale and offset; may be NaN
    attributes    every other attribute, kept as it is
    """

    dtype: np.dtype[Any] | None = None
    dimensions: tuple[str, ...] = ()
    nodata: int | float | None = None
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


@dataclass(frozen=True)
class Level:
    """One level of a pyramid; `path` is relative to the multiscale group.

    shape, affine  of the level's own grid; affine is None where nothing says it
    factors        (y, x) size of a cell in cells of the finest level
    tile_shape     (y, x) of the chunks that readers fetch
    """

    path: str
    shape: tuple[int, int]
    affine: Affine | None
    factors: tuple[float, float] = (1, 1)
    tile_shape: tuple[int, int] | None = None


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
        """The grids that hold data: the levels, or the one grid of a plain raster, at path ""."""
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
