"""CF's standard names, their canonical units and aliases, as shipped.

The file beside this module is distilled by tools/refresh_standard_names.py from the table that the CF
community publishes (cfconventions.org, "Standard Names"). Its head names the version; descriptions are left
out.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# CF, appendix C: what may follow a name, and the units that the whole then has (None: those of the name).
MODIFIERS: Mapping[str, str | None] = {
    "detection_minimum": None,
    "number_of_observations": "1",
    "standard_error": None,
    "status_flag": "",
}


@dataclass(frozen=True)
class StandardNames:
    """`units` by name; the names for each alias; `version` from the head of the table."""

    version: str
    units: Mapping[str, str]
    aliases: Mapping[str, tuple[str, ...]]


@cache
def load_standard_names() -> StandardNames:
    """The table that comes with zstore."""
    data = files("zstore.geo.validation").joinpath("cf-standard-names.txt.gz").read_bytes()
    head, *lines = gzip.decompress(data).decode().splitlines()
    units: dict[str, str] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if not line.startswith("#"):
            name, second, *rest = line.split("\t")
            if rest:
                aliases[name] = tuple(rest[0].split())
            else:
                units[name] = second
    return StandardNames(head.removeprefix("# "), units, aliases)
