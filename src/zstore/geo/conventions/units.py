"""Units of length in metres and units of angle in radians, by the names that CF's coordinates have for them.

Spec: CF 1.11 §3.1 (units, as UDUNITS writes them), §4.
Example: length_of("km") is 1000.0, angle_of("microradian") is 1e-6
"""

from __future__ import annotations

import math
import re

METRES = {
    "m": 1.0, "metre": 1.0, "meter": 1.0,
    "ft": 0.3048, "foot": 0.3048, "feet": 0.3048, "international_foot": 0.3048, "international_feet": 0.3048,
    "us_survey_foot": 1200 / 3937, "us_survey_feet": 1200 / 3937, "survey_foot": 1200 / 3937,
    "survey_feet": 1200 / 3937, "ftus": 1200 / 3937,
    "micron": 1e-6, "yard": 0.9144, "mile": 1609.344, "international_mile": 1609.344, "nautical_mile": 1852.0,
}  # fmt: skip
RADIANS = {
    "rad": 1.0, "radian": 1.0, "1": 1.0,
    "degree": math.radians(1), "deg": math.radians(1), "arcdeg": math.radians(1), "°": math.radians(1),
    "degree_east": math.radians(1), "degree_north": math.radians(1), "degree_e": math.radians(1),
    "degree_n": math.radians(1), "degreee": math.radians(1), "degreen": math.radians(1),
    "arcdegree": math.radians(1), "degree_true": math.radians(1),
    "arcminute": math.radians(1 / 60), "arcmin": math.radians(1 / 60), "arc_minute": math.radians(1 / 60),
    "arcsecond": math.radians(1 / 3600), "arcsec": math.radians(1 / 3600),
    "arc_second": math.radians(1 / 3600),
    "grad": math.pi / 200, "grade": math.pi / 200, "gon": math.pi / 200,
}  # fmt: skip
SYMBOLS = {"k": 1e3, "h": 1e2, "d": 1e-1, "c": 1e-2, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
PREFIXES = {
    "mega": 1e6, "kilo": 1e3, "hecto": 1e2, "deca": 1e1, "deci": 1e-1, "centi": 1e-2, "milli": 1e-3,
    "micro": 1e-6, "nano": 1e-9, "pico": 1e-12, "giga": 1e9,
}  # fmt: skip
# What may bear a symbol as its prefix: nobody writes "kfoot".
SHORT = ("m", "rad")
COMPOUND = re.compile(r"^(us|international|nautical|arc)\s+(survey\s+)?", re.IGNORECASE)
TERM = re.compile(r"(?:([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*[ *·]\s*)?(\S+)")


def length_of(units: str) -> float | None:
    """The metres in a unit; None where it is no unit of length."""
    return _measure(units, METRES)


def angle_of(units: str) -> float | None:
    """The radians in a unit; None where it is no unit of angle."""
    return _measure(units, RADIANS)


def _measure(units: str, known: dict[str, float]) -> float | None:
    found = TERM.fullmatch(COMPOUND.sub(lambda words: f"{'_'.join(words[0].split())}_", units.strip()))
    if found is None:
        return None
    one = _word(found[2], known)
    return None if one is None else one * float(found[1] or 1)


def _word(word: str, known: dict[str, float]) -> float | None:
    name = word.lower().replace("degrees", "degree")
    # "ms" are milliseconds, and no metres.
    for candidate in (name, name.removesuffix("s") if len(name) > 2 else name):
        if candidate in known:
            return known[candidate]
        for prefix, times in PREFIXES.items():
            if candidate.startswith(prefix) and candidate.removeprefix(prefix) in known:
                return times * known[candidate.removeprefix(prefix)]
    # In symbols, capitals count.
    if word[:1] in SYMBOLS and word[1:] in SHORT and word[1:] in known:
        return SYMBOLS[word[0]] * known[word[1:]]
    return None
