"""Looks: the colour map that suits a variable by its meaning, and how the map's ends are chosen.

The first rule that fits a variable is its look. A rule names words of its standard name, long name or name,
or its units. The maps are perceptually uniform and made for eyes of every kind: cmocean's, Crameri's and
ColorBrewer's. Light is drawn in greys by its square root, as prints of it are (gamma 2): most of it is dark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from zstore.geo.conventions.base import Variable
from zstore.geo.conventions.content import colours_of
from zstore.geo.pictures.colours import CATEGORY_COLOURS

# How many times the least value the greatest is on a logarithmic scale of values down to 0.
LOG_SPAN = 1000.0


@dataclass(frozen=True)
class Look:
    """A colour map, and how its ends are chosen.

    colours   the name of the colour map
    centre    the value in the middle of the map, equally far from both ends; None: percentiles alone
    ends      the values at its two ends, of circles; None: percentiles
    is_lit    whether they are heights, whose colours are lit as a relief is
    is_log    whether equal steps of colour are equal factors, from the lower limit on
    """

    colours: str
    centre: float | None = None
    ends: tuple[float, float] | None = None
    is_lit: bool = False
    is_log: bool = False

    def limits(self, low: float, high: float) -> tuple[float, float]:
        """The values at the two ends of the map, of data between `low` and `high`."""
        if self.ends is not None:
            return self.ends
        if self.is_log and low <= 0 < high:
            low = high / LOG_SPAN
        if self.centre is None:
            return low, high
        reach = max(abs(low - self.centre), abs(high - self.centre))
        return (self.centre - reach, self.centre + reach) if reach else (low, high)


@dataclass(frozen=True)
class LookRule:
    """The look of variables whose names have one of `words`, or whose units are among `units`."""

    words: str
    look: Look
    units: frozenset[str] = frozenset()

    def fits(self, names: str, units: str) -> bool:
        """Whether a variable of these names, in lower case, and of these units is one of the rule's."""
        return units in self.units or re.search(rf"(?<![a-z])(?:{self.words})(?![a-z])", names) is not None


KELVINS = frozenset(("K", "kelvin", "degC", "deg_C", "degree_Celsius", "degrees_Celsius", "celsius", "°C"))
# Numbers whose meaning nothing tells are grey, as pictures are; other quantities have the second map.
PLAIN, MEASURED = Look("grey"), Look("viridis")
RULES = (
    LookRule("ndvi|evi|lai|leaf_area_index|[a-z_]*vegetation[a-z_]*", Look("YlGn")),
    LookRule("anomaly|anomalies|difference|departure|bias|trend|tendency", Look("vik", centre=0.0)),
    LookRule("[a-z_]*direction|azimuth|aspect", Look("phase", ends=(0.0, 360.0))),
    LookRule(
        "(?:east|north|up)ward_[a-z_]*|[uv]10|[xy]_wind|[uv]_component[a-z0-9_ ]*|vorticity|divergence",
        Look("balance", centre=0.0),
    ),
    LookRule("wind_speed|wind speed|speed|gust", Look("speed")),
    LookRule("reflectance|radiance|panchromatic", Look("gamma")),
    LookRule("brightness[_ ]temperature", Look("grey_r")),
    LookRule("sea_ice[a-z_]*|sea ice|ice|snow", Look("Blues_r")),
    LookRule("precipitation[a-z_]*|rain[a-z_]*|tp", Look("rain")),
    LookRule("[a-z_]*temperature|sst|t2m", Look("thermal"), KELVINS),
    LookRule("[a-z_]*salinity", Look("haline")),
    LookRule("chlorophyll[a-z_]*|chlor_a", Look("algae", is_log=True)),
    LookRule("[a-z_]*oxygen[a-z_]*", Look("dense")),
    LookRule("turbidity", Look("turbid")),
    LookRule("[a-z_]*humidity[a-z_]*|soil_moisture[a-z_]*|water_vapou?r[a-z_]*", Look("tempo")),
    LookRule("[a-z_]*depth|bathymetry", Look("deep")),
    LookRule(
        "[a-z_]*altitude|elevation|dem|dsm|dtm|orography|topography|[a-z_]*surface_height",
        Look("batlow", is_lit=True),
    ),
    LookRule("[a-z_]*cloud[a-z_]*", PLAIN),
)  # fmt: skip


def look_of(variable: Variable, name: str = "") -> Look:
    """The look of a variable's values by its names and units; grey without units and standard name."""
    said = (variable.standard_name, variable.long_name, name)
    names = " ".join(text for text in said if text).lower()
    units = (variable.units or "").strip()
    for rule in RULES:
        if rule.fits(names, units):
            return rule.look
    is_measured = units not in ("", "1") or variable.standard_name is not None
    return MEASURED if is_measured else PLAIN


def categories_of(variable: Variable) -> dict[int, tuple[tuple[int, ...], str]]:
    """The (colour, name) of each value that is a category; {} where values are no categories.

    Colours are those of `color_table`, else of `flag_colors`, else made up, one for each of `flag_values`.
    """
    names = dict(zip(variable.flag_values or (), variable.flag_meanings or (), strict=False))
    table = colours_of(variable)
    if table:
        return {value: (colour, names.get(value, "")) for value, colour in table.items()}
    if variable.flag_masks is not None:
        return {}
    said = variable.attributes.get("flag_colors")
    words = [word.lstrip("#") for word in said.split()] if isinstance(said, str) else []
    words += [""] * (len(names) - len(words))
    made = {}
    for number, ((value, name), word) in enumerate(zip(names.items(), words, strict=False)):
        if re.fullmatch("-?[0-9]{1,19}", format(value, ".0f")) and value == int(value):
            is_colour = re.fullmatch("[0-9a-fA-F]{6}", word) is not None
            plain = CATEGORY_COLOURS[number % len(CATEGORY_COLOURS)]
            made[int(value)] = ((*bytes.fromhex(word), 255) if is_colour else plain, name)
    return made
