"""Colour maps: the 256 colours from the least value to the greatest.

The file beside this module is written by tools/refresh_colours.py; its head names who made the maps, and
under which licences.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from zstore.errors import NotFoundError

Colours = np.ndarray[Any, np.dtype[np.uint8]]

# Twenty colours that are told apart, for categories without colours of their own: matplotlib's "tab20".
CATEGORIES = (
    "1f77b4 aec7e8 ff7f0e ffbb78 2ca02c 98df8a d62728 ff9896 9467bd c5b0d5 8c564b c49c94 e377c2 f7b6d2 "
    "7f7f7f c7c7c7 bcbd22 dbdb8d 17becf 9edae5"
)
CATEGORY_COLOURS = tuple((*bytes.fromhex(colour), 255) for colour in re.findall(r"\w+", CATEGORIES))


@cache
def _load() -> dict[str, Colours]:
    text = files("zstore.geo.pictures").joinpath("colours.txt").read_text("ascii")
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    maps = {name: np.frombuffer(bytes.fromhex(colours), np.uint8).reshape(256, 3) for name, colours in lines}
    share = np.arange(256) / 255
    greys = {"grey": share, "gamma": np.sqrt(share)}
    made = {
        name: np.rint(255 * grey).astype(np.uint8).repeat(3).reshape(256, 3) for name, grey in greys.items()
    }
    return made | maps


def colour_map_names() -> list[str]:
    """The names of the colour maps, in the order of the alphabet."""
    return sorted(_load())


def colour_map(name: str) -> Colours:
    """The colours of a colour map; "_r" at the end of its name reverses it.

    Shapes
        result (256, 3): red, green, blue.
    Raises
        NotFoundError: there is no colour map of that name.
    """
    plain = name.removesuffix("_r")
    found = _load().get("grey" if plain == "gray" else plain)
    if found is None:
        raise NotFoundError(f"no colour map {name[:64]!r}; there are {', '.join(colour_map_names())}")
    return found if plain == name else found[::-1]
