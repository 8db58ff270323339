"""The physical dimension of units in UDUNITS' notation, by which two units can be compared.

Multiples and prefixes do not count: km and m have the same dimension, m and s have not. Lengths and angles
are those of `zstore.geo.conventions.content`.
"""

from __future__ import annotations

import re

from zstore.geo.conventions.content import METRES, angle_of, length_of

# Exponents of m, kg, s, K, mol, A, cd. Angles and counts are numbers, as in UDUNITS.
BASE = {
    "m": (1, 0, 0, 0, 0, 0, 0), "g": (0, 1, 0, 0, 0, 0, 0), "s": (0, 0, 1, 0, 0, 0, 0),
    "K": (0, 0, 0, 1, 0, 0, 0), "mol": (0, 0, 0, 0, 1, 0, 0), "A": (0, 0, 0, 0, 0, 1, 0),
    "cd": (0, 0, 0, 0, 0, 0, 1),
    "N": (1, 1, -2, 0, 0, 0, 0), "Pa": (-1, 1, -2, 0, 0, 0, 0), "J": (2, 1, -2, 0, 0, 0, 0),
    "W": (2, 1, -3, 0, 0, 0, 0), "Hz": (0, 0, -1, 0, 0, 0, 0), "Bq": (0, 0, -1, 0, 0, 0, 0),
    "V": (2, 1, -3, 0, 0, -1, 0), "C": (0, 0, 1, 0, 0, 1, 0), "S": (-2, -1, 3, 0, 0, 2, 0),
    "T": (0, 1, -2, 0, 0, -1, 0), "lm": (0, 0, 0, 0, 0, 0, 1), "lx": (-2, 0, 0, 0, 0, 0, 1),
    "L": (3, 0, 0, 0, 0, 0, 0), "l": (3, 0, 0, 0, 0, 0, 0), "bar": (-1, 1, -2, 0, 0, 0, 0),
    "t": (0, 1, 0, 0, 0, 0, 0), "h": (0, 0, 1, 0, 0, 0, 0), "d": (0, 0, 1, 0, 0, 0, 0),
    "F": (-2, -1, 4, 0, 0, 2, 0), "H": (2, 1, -2, 0, 0, -2, 0), "Sv": (2, 0, -2, 0, 0, 0, 0),
}  # fmt: skip
Dimension = tuple[int, ...]
NUMBER: Dimension = (0,) * 7
WORDS = {
    "gram": "g", "second": "s", "sec": "s", "kelvin": "K", "degree_kelvin": "K", "mole": "mol", "ampere": "A",
    "newton": "N", "pascal": "Pa", "joule": "J", "watt": "W", "hertz": "Hz", "volt": "V", "coulomb": "C",
    "siemens": "S", "tesla": "T", "litre": "L", "liter": "L", "tonne": "t", "minute": "s", "min": "s",
    "hour": "s", "hr": "s", "day": "s", "week": "s", "month": "s", "year": "s", "yr": "s", "common_year": "s",
    "celsius": "K", "degree_celsius": "K", "degree_c": "K", "degrees_celsius": "K", "degc": "K", "deg_c": "K",
    "knot": "m/s", "kt": "m/s", "inch": "m", "hectare": "m2", "ha": "m2", "dobson": "m-2 mol",
    "du": "m-2 mol",
}  # fmt: skip
NUMBERS = frozenset((
    "1", "%", "percent", "ppm", "ppmv", "ppb", "ppbv", "ppt", "pptv", "sr", "steradian", "psu", "pss-78",
    "level", "layer", "count", "dbz", "db", "bel", "decibel", "sigma_level", "dn", "bit", "byte", "cycle",
))  # fmt: skip
PREFIXES = (
    "da", "Y", "Z", "E", "P", "T", "G", "M", "k", "h", "d", "c", "m", "u", "µ", "n", "p", "f", "a",
    "kilo", "hecto", "centi", "milli", "micro", "nano", "mega", "giga", "pico", "deci",
)  # fmt: skip
TERM = re.compile(r"([A-Za-z_%µ°][A-Za-z_%µ°\-]*?)\^?([-+]?\d+)?$")


def dimension_of(units: str) -> Dimension | None:
    """Exponents of metre, kilogram, second, kelvin, mole, ampere and candela; None for unknown units."""
    text = re.split(r"\s(?:since|@|ref|from)\s", f"{units.strip()} ")[0].strip()
    if not text:
        return NUMBER
    text = text.replace("**", "^").replace("*", " ").replace("·", " ")
    total = NUMBER
    for place, part in enumerate(re.split(r"\s*(?:/|\bper\b)\s*", text)):
        for word in re.split(r"[\s.()]+(?!\d)", part.strip("() ")):
            found = _term(word) if word else NUMBER
            if found is None:
                return None
            sign = -1 if place else 1
            total = tuple(a + sign * b for a, b in zip(total, found, strict=True))
    return total


def _term(word: str) -> Dimension | None:
    if re.fullmatch(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?:\^?[-+]?\d+)?", word):
        return NUMBER
    if word.lower() in NUMBERS:
        return NUMBER
    match = TERM.match(word)
    if match is None:
        return None
    found = _name(match[1])
    return None if found is None else tuple(n * int(match[2] or 1) for n in found)


def _name(name: str) -> Dimension | None:
    if name in METRES:
        return BASE["m"]  # "ft" is no femtotonne
    for candidate in (name, name[:-1] if name.endswith("s") and len(name) > 2 else name):
        if candidate.lower() in NUMBERS:
            return NUMBER
        if candidate in BASE:
            return BASE[candidate]
        if candidate.lower() in WORDS:
            return dimension_of(WORDS[candidate.lower()])
        for prefix in PREFIXES:
            rest = candidate.removeprefix(prefix)
            if rest != candidate and rest in BASE:
                return BASE[rest]
            if rest != candidate and rest.lower() in WORDS and len(rest) > 2:
                return dimension_of(WORDS[rest.lower()])
    if length_of(name) is not None:
        return BASE["m"]
    return None if angle_of(name) is None else NUMBER
