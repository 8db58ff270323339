"""Bands: the arrays of a dataset, and each item along a dimension of bands; which are red, green and blue."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from zstore.geo.conventions.base import Band as SpectralBand
from zstore.geo.conventions.base import Variable
from zstore.geo.pyramid.dataset import Dataset

# Each item along one of these dimensions is a band.
BAND_DIMENSIONS = frozenset(("band", "bands", "c", "channel", "channels", "wavelength"))
MOST_BANDS = 256
# Red, green and blue by the names that Sentinel-2 alone gives; numbers differ from one Landsat to the next.
SENTINEL = ("b04", "b03", "b02")
# The wavelengths of red, green and blue, in micrometres.
WAVELENGTHS = ((0.62, 0.70), (0.52, 0.59), (0.44, 0.515))
NUMBERED = re.compile(r"(?:.*:|[Bb]and[ _-]?|[Bb])([123])")


@dataclass(frozen=True)
class PictureBand:
    """A band: an array, or where `fixed` has the index along its dimension of bands, a part of that array."""

    name: str
    array: str
    fixed: Mapping[str, int] = field(default_factory=dict)


def bands_of(
    array: str,
    sizes: Mapping[str, int],
    names: Sequence[Sequence[str | None]],
    labels: Callable[[str], Sequence[str]],
    *,
    name: str = "",
    taken: Collection[str] = (),
) -> dict[str, PictureBand]:
    """The bands of an array by name: itself, or each item along its dimension of bands.

    An item is called by its own name, else by the array's or dimension's and its label, else its number.

    sizes   of the dimensions beside y and x, by name
    names   lists of the items' names; the first with one for every item counts
    labels  the values of the coordinate of a dimension
    name    of an array whose own name says nothing; its items are then called by the dimension's name
    taken   the names of other bands
    """
    split = next((n for n in sizes if n.lower() in BAND_DIMENSIONS and 1 < sizes[n] <= MOST_BANDS), None)
    if split is None:
        return {name or array: PictureBand(name or array, array)}
    size, prefix = sizes[split], split if name else array
    own = next((one for one in names if len(one) == size), [None] * size)
    numbered = labels(split)
    if len(set(numbered)) != size or not all(numbered):
        numbered = [str(number + 1) for number in range(size)]
    found: dict[str, PictureBand] = {}
    for number, (said, label) in enumerate(zip(own, numbered, strict=True)):
        is_free = said and said not in taken and said not in found
        key = said if said and is_free else f"{prefix}:{said or label}"
        found[key] = PictureBand(key, array, {split: number})
    return found


def find_band(
    bands: Mapping[str, PictureBand], variables: Mapping[str, Variable], name: str
) -> PictureBand | None:
    """The band that `name` means: its name, its number from 1 ("2", "b2"), or STAC's common name of it."""
    if name in bands:
        return bands[name]
    digits = name.removeprefix("b")
    if digits.isascii() and digits.isdecimal() and len(digits) < 6 and 0 < int(digits) <= len(bands):
        return list(bands.values())[int(digits) - 1]
    for band in bands.values():
        if any(one.common_name == name for one in variables[band.array].bands) and not band.fixed:
            return band
    return None


def find_rgb_bands(dataset: Dataset, bands: Mapping[str, PictureBand]) -> tuple[str, ...]:
    """The names of the bands that are red, green and blue; () where no three are.

    Metadata say so, or wavelengths, or Sentinel-2's names, or there are three numbered bands of bytes.
    """
    spectral = {name: _spectral_band(dataset, band) for name, band in bands.items()}
    stated = tuple(_band_of(dataset, bands, spectral, colour) for colour in ("red", "green", "blue"))
    if all(stated):
        return stated
    near = [
        [n for n, one in spectral.items() if low <= (one.wavelength or 0) <= high]
        for low, high in WAVELENGTHS
    ]
    if all(near):
        return tuple(names[0] for names in near)
    lower = {_label(name): name for name in bands}
    if all(name in lower for name in SENTINEL):
        return tuple(lower[name] for name in SENTINEL)
    # GDAL writes a picture as three bands of bytes, and may not say which colours they are.
    arrays = {band.array for band in bands.values()}
    is_bytes = all(dataset.arrays[name].dtype == np.uint8 for name in arrays)
    numbers = [number[1] for name in bands if (number := NUMBERED.fullmatch(name))]
    return tuple(bands) if is_bytes and len(bands) == 3 and numbers == ["1", "2", "3"] else ()


def _label(name: str) -> str:
    """The name of a band in lower case, without that of its array."""
    return name.lower().rpartition(":")[2]


def _spectral_band(dataset: Dataset, band: PictureBand) -> SpectralBand:
    """The band of light in the store's metadata; an empty one without."""
    bands, number = dataset.geo.variables[band.array].bands, next(iter(band.fixed.values()), 0)
    return bands[number] if number < len(bands) else SpectralBand()


def _band_of(
    dataset: Dataset, bands: Mapping[str, PictureBand], spectral: Mapping[str, SpectralBand], colour: str
) -> str:
    """The name of the band of a colour, by its interpretation, common name, name or long name; "" without."""
    said = [
        (
            dataset.geo.variables[band.array].attributes.get("color_interpretation"),
            spectral[name].common_name,
            _label(name),
            (dataset.geo.variables[band.array].long_name or "").lower(),
        )
        for name, band in bands.items()
    ]
    found = (
        name
        for words in zip(*said, strict=True)
        for name, word in zip(bands, words, strict=True)
        if word == colour
    )
    return next(found, "")
