"""The parameters of a request, parsed and checked before anything is read."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from zstore_serve.drawing import colour_map
from zstore_serve.expressions import Expression, parse_expression
from zstore_serve.frames import SAMPLINGS
from zstore_serve.problems import Problem
from zstore_serve.scenes import Dimension, PictureBand, Scene

__all__ = [
    "PERCENTILES",
    "SELECTION_PARAMETERS",
    "STYLE_PARAMETERS",
    "Parameters",
    "Selection",
    "Style",
    "choose_items",
    "parse_selection",
    "parse_steps",
    "parse_style",
]

SELECTION_PARAMETERS = frozenset(("bands", "expression", "resampling"))
STYLE_PARAMETERS = frozenset(
    ("rescale", "percentiles", "colormap", "steps", "algorithm", "azimuth", "altitude", "scale", "mix")
)
ALGORITHMS = ("hillshade", "relief", "terrainrgb")
PERCENTILES = (2.0, 98.0)
# The longest query string, in characters, and the most bands of one request.
LONGEST = 4096
MOST_BANDS = 16
MOST_STEPS = 64


class Parameters:
    """The parameters of a request by name; one that is given twice is refused."""

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
        """Refuse parameters whose names are in none of the `known` collections."""
        unknown = sorted(set(self._values).difference(*known))
        if unknown:
            taken = ", ".join(sorted({word for words in known for word in words}))
            raise Problem(400, f"no parameter {unknown[0][:80]!r}; there are {taken}")

    def text(self, name: str, default: str = "") -> str:
        """The value of a parameter as it was written."""
        return self._values.get(name, default)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def numbers(self, name: str, counts: Collection[int], said: str = "") -> list[float]:
        """The finite numbers of a parameter, separated by commas.

        counts  how many will do
        said    the same in words
        """
        parts = self._values[name].split(",")
        try:
            found = [float(part) for part in parts]
        except ValueError:
            found = []
        if len(found) not in counts or not all(map(math.isfinite, found)):
            expected = said or " or ".join(map(str, sorted(counts)))
            raise Problem(400, f"{name} is {self._values[name][:80]!r}; expected {expected} numbers")
        return found

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """The number of a parameter, from `low` to `high`; without a default it must be given."""
        if name not in self._values:
            if default is None:
                raise Problem(400, f"{name} is missing; expected a number from {low:g} to {high:g}")
            return default
        (found,) = self.numbers(name, (1,))
        if not low <= found <= high:
            raise Problem(400, f"{name} is {found:g}; expected a number from {low:g} to {high:g}")
        return found

    def whole(self, name: str, low: int, high: int, default: int) -> int:
        """The whole number of a parameter, from `low` to `high`."""
        found = self.number(name, low, high, default)
        if found != int(found):
            raise Problem(400, f"{name} is {found:g}; expected a whole number")
        return int(found)


@dataclass(frozen=True)
class Selection:
    """Which values of a scene are asked for.

    bands    those that are read, by their names in the expression or the answer
    indices  the item of each dimension beside y and x
    """

    bands: Mapping[str, PictureBand]
    indices: Mapping[str, int]
    sampling: str
    expression: Expression | None = None


@dataclass(frozen=True)
class Style:
    """How values become a picture; with `limits` None, percentiles are the limits.

    mix    the colour of each band's greatest values, where bands are added; (): one band, or red, green, blue
    steps  how many colours of the map are drawn, each of as many values; 0: all
    """

    limits: tuple[tuple[float, float], ...] | None
    percentiles: tuple[float, float]
    colour_map: str | None
    algorithm: str | None = None
    azimuth: float = 315.0
    altitude: float = 45.0
    scale: str | None = None
    mix: tuple[tuple[int, int, int], ...] = ()
    steps: int = 0


def parse_selection(scene: Scene, parameters: Parameters) -> Selection:
    """The values that the parameters ask for; where they name no bands, red, green and blue, or the first.

    Raises
        Problem: the scene has no such band, or a dimension no such item.
    """
    sampling = parameters.text("resampling", "nearest")
    if sampling not in SAMPLINGS:
        raise Problem(400, f"resampling is {sampling[:80]!r}; expected one of {', '.join(SAMPLINGS)}")
    expression = None
    if "expression" in parameters:
        if "bands" in parameters:
            raise Problem(400, "bands and expression are both given; expected one of them")
        expression = parse_expression(parameters.text("expression"))
        names: Iterable[str] = expression.bands
    elif "bands" in parameters:
        names = parameters.text("bands").split(",")
    else:
        names = scene.rgb_bands or list(scene.bands)[:1]
    bands = {name: scene.band(name) for name in names}
    if len(bands) > MOST_BANDS:
        raise Problem(400, f"{len(bands)} bands are asked for; expected {MOST_BANDS} at most")
    return Selection(bands, choose_items(scene, bands.values(), parameters), sampling, expression)


def choose_items(scene: Scene, bands: Iterable[PictureBand], parameters: Parameters) -> dict[str, int]:
    """The index of the item that is asked for along each dimension of the bands; 0 where none is named."""
    taken: dict[str, Dimension] = {axis.name: axis for band in bands for axis in scene.dimensions_of(band)}
    for name in scene.dimensions:
        if name in parameters and name not in taken:
            raise Problem(400, f"{name} is given; the bands that are asked for have no such dimension")
    return {
        name: axis.index(parameters.text(name)) if name in parameters else 0 for name, axis in taken.items()
    }


def parse_style(parameters: Parameters, selection: Selection) -> Style:
    """How the parameters want the values drawn.

    Raises
        Problem: a parameter has a value that means nothing, or that does not fit so many bands.
    """
    band_count = 1 if selection.expression is not None else len(selection.bands)
    mix = _parse_mix(parameters, band_count) if "mix" in parameters else ()
    if band_count not in (1, 3) and not mix:
        raise Problem(
            400, f"{band_count} bands make no picture; expected one, or three for red, green and blue"
        )
    limits = None
    if "rescale" in parameters:
        numbers = parameters.numbers("rescale", (2, 2 * band_count))
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True)) * (band_count if len(numbers) == 2 else 1)
        limits = tuple(pairs)
        if any(low > high for low, high in limits):
            raise Problem(
                400, f"rescale is {parameters.text('rescale')[:80]!r}; expected the lower number first"
            )
    percentiles = PERCENTILES
    if "percentiles" in parameters:
        low, high = parameters.numbers("percentiles", (2,))
        if not 0 <= low < high <= 100:
            raise Problem(400, f"percentiles are {low:g} and {high:g}; expected two from 0 to 100, in order")
        percentiles = (low, high)
    name = parameters.text("colormap") or None
    if name is not None:
        colour_map(name)
        if band_count != 1:
            raise Problem(400, f"colormap is given with {band_count} bands; expected one band")
    algorithm = parameters.text("algorithm") or None
    if algorithm is not None and (algorithm not in ALGORITHMS or band_count != 1):
        expected = f"expected one of {', '.join(ALGORITHMS)}, of one band"
        raise Problem(400, f"algorithm is {algorithm[:80]!r}; {expected}")
    azimuth = parameters.number("azimuth", 0, 360, 315.0)
    altitude = parameters.number("altitude", 0, 90, 45.0)
    scale = parameters.text("scale") or None
    if scale not in (None, "linear", "log"):
        raise Problem(400, f"scale is {scale[:80]!r}; expected linear or log")
    steps = parse_steps(parameters)
    if steps and band_count != 1:
        raise Problem(400, f"steps is given with {band_count} bands; expected one band")
    return Style(limits, percentiles, name, algorithm, azimuth, altitude, scale, mix, steps)


def parse_steps(parameters: Parameters) -> int:
    """How many colours of a colour map are drawn; 0: all."""
    return parameters.whole("steps", 2, MOST_STEPS, 0)


def _parse_mix(parameters: Parameters, band_count: int) -> tuple[tuple[int, int, int], ...]:
    """The colours of bands that are added."""
    words = parameters.text("mix").split(",")
    if len(words) != band_count or not all(re.fullmatch("[0-9a-fA-F]{6}", word) for word in words):
        expected = f"expected {band_count} colours as 00FF00, one for each band"
        raise Problem(400, f"mix is {parameters.text('mix')[:80]!r}; {expected}")
    if any(name in parameters for name in ("colormap", "steps", "algorithm")):
        raise Problem(400, "mix is given with colormap, steps or algorithm; expected one of them")
    return tuple((colour[0], colour[1], colour[2]) for colour in map(bytes.fromhex, words))
