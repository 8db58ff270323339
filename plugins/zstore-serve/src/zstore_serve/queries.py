"""What a query string asks for, every word of it checked before anything is read."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from zstore_serve.drawing import colour_map
from zstore_serve.expressions import Expression, parse_expression
from zstore_serve.frames import SAMPLINGS
from zstore_serve.problems import Problem
from zstore_serve.scenes import Axis, Band, Scene

__all__ = [
    "LAYER_WORDS",
    "STYLE_WORDS",
    "Asked",
    "Layer",
    "Style",
    "choose_items",
    "parse_layer",
    "parse_style",
]

LAYER_WORDS = frozenset(("bands", "expression", "resampling"))
STYLE_WORDS = frozenset(("rescale", "percentiles", "colormap", "algorithm", "azimuth", "altitude"))
ALGORITHMS = ("hillshade", "terrainrgb")
PERCENTILES = (2.0, 98.0)
# The most that a query string, and the most that an expression's bands, come to.
LONGEST = 4096
MOST_BANDS = 16


class Asked:
    """The parameters of a request; one that is given twice, or that nobody takes, is refused."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, str] = {}
        length = 0
        for name, value in pairs:
            length += len(name) + len(value)
            if name in self._values:
                raise Problem(400, f"{name[:80]!r} is given twice")
            self._values[name] = value
        if length > LONGEST:
            raise Problem(414, f"the query has {length} characters; expected {LONGEST} at most")

    def check(self, *known: Collection[str]) -> None:
        """Refuse every parameter that is in none of the collections."""
        unknown = sorted(set(self._values).difference(*known))
        if unknown:
            taken = ", ".join(sorted({word for words in known for word in words}))
            raise Problem(400, f"no parameter {unknown[0][:80]!r}; there are {taken}")

    def text(self, name: str, default: str = "") -> str:
        """The parameter as it is written."""
        return self._values.get(name, default)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def numbers(self, name: str, counts: Collection[int]) -> list[float]:
        """Finite numbers separated by commas, as many as one of the counts says."""
        parts = self._values[name].split(",")
        try:
            found = [float(part) for part in parts]
        except ValueError:
            found = []
        if len(found) not in counts or not all(map(math.isfinite, found)):
            expected = " or ".join(map(str, sorted(counts)))
            raise Problem(400, f"{name} is {self._values[name][:80]!r}; expected {expected} numbers")
        return found

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A number between two others."""
        if name not in self._values:
            if default is None:
                raise Problem(400, f"{name} is missing; expected a number from {low:g} to {high:g}")
            return default
        (found,) = self.numbers(name, (1,))
        if not low <= found <= high:
            raise Problem(400, f"{name} is {found:g}; expected a number from {low:g} to {high:g}")
        return found

    def whole(self, name: str, low: int, high: int, default: int) -> int:
        """A whole number between two others."""
        found = self.number(name, low, high, default)
        if found != int(found):
            raise Problem(400, f"{name} is {found:g}; expected a whole number")
        return int(found)


@dataclass(frozen=True)
class Layer:
    """Which values are wanted of a scene.

    bands   what is read, by the name that the expression, or the answer, has for it
    chosen  of each dimension beside y and x, the number of an item
    """

    bands: Mapping[str, Band]
    chosen: Mapping[str, int]
    sampling: str
    expression: Expression | None = None


@dataclass(frozen=True)
class Style:
    """How they become a picture; `limits` None: by percentiles."""

    limits: tuple[tuple[float, float], ...] | None
    percentiles: tuple[float, float]
    colour_map: str | None
    algorithm: str | None = None
    azimuth: float = 315.0
    altitude: float = 45.0


def parse_layer(scene: Scene, asked: Asked) -> Layer:
    """The values that the parameters ask for; of bands the first, or those that are red, green and blue.

    Raises
        Problem: there are no such bands, or no such items of a dimension.
    """
    sampling = asked.text("resampling", "nearest")
    if sampling not in SAMPLINGS:
        raise Problem(400, f"resampling is {sampling[:80]!r}; expected one of {', '.join(SAMPLINGS)}")
    expression = None
    if "expression" in asked:
        if "bands" in asked:
            raise Problem(400, "bands and expression are both given; expected one of them")
        expression = parse_expression(asked.text("expression"))
        names: Iterable[str] = expression.bands
    elif "bands" in asked:
        names = asked.text("bands").split(",")
    else:
        names = scene.preferred or list(scene.bands)[:1]
    bands = {name: scene.band(name) for name in names}
    if len(bands) > MOST_BANDS:
        raise Problem(400, f"{len(bands)} bands are asked for; expected {MOST_BANDS} at most")
    return Layer(bands, choose_items(scene, bands.values(), asked), sampling, expression)


def choose_items(scene: Scene, bands: Iterable[Band], asked: Asked) -> dict[str, int]:
    """Of each dimension of the bands the item that is asked for, else the first."""
    taken: dict[str, Axis] = {axis.name: axis for band in bands for axis in scene.axes_of(band)}
    for name in scene.axes:
        if name in asked and name not in taken:
            raise Problem(400, f"{name} is given; what is asked for has no such dimension to choose from")
    return {name: axis.index(asked.text(name)) if name in asked else 0 for name, axis in taken.items()}


def parse_style(asked: Asked, band_count: int) -> Style:
    """The look that the parameters ask for.

    Raises
        Problem: they ask for none that there is.
    """
    if band_count not in (1, 3):
        raise Problem(
            400, f"{band_count} bands make no picture; expected one, or three for red, green and blue"
        )
    limits = None
    if "rescale" in asked:
        numbers = asked.numbers("rescale", (2, 2 * band_count))
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True)) * (band_count if len(numbers) == 2 else 1)
        limits = tuple(pairs)
        if any(low > high for low, high in limits):
            raise Problem(400, f"rescale is {asked.text('rescale')[:80]!r}; expected the lower number first")
    percentiles = PERCENTILES
    if "percentiles" in asked:
        low, high = asked.numbers("percentiles", (2,))
        if not 0 <= low < high <= 100:
            raise Problem(400, f"percentiles are {low:g} and {high:g}; expected two from 0 to 100, in order")
        percentiles = (low, high)
    name = asked.text("colormap") or None
    if name is not None:
        colour_map(name)
        if band_count == 3:
            raise Problem(400, "colormap is given with three bands; expected one band")
    algorithm = asked.text("algorithm") or None
    if algorithm is not None and (algorithm not in ALGORITHMS or band_count != 1):
        expected = f"expected one of {', '.join(ALGORITHMS)}, of one band"
        raise Problem(400, f"algorithm is {algorithm[:80]!r}; {expected}")
    azimuth = asked.number("azimuth", 0, 360, 315.0)
    altitude = asked.number("altitude", 0, 90, 45.0)
    return Style(limits, percentiles, name, algorithm, azimuth, altitude)
