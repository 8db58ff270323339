"""The spectral bands that an array holds: their names, common names and wavelengths.

The array's attribute `bands` lists them in STAC 1.1's words, one object per band: one for an array that is a
band, as many as items for one with a dimension of bands. Read as well: STAC 1.0's `eo:bands`, either list on
the group, its objects named like the arrays, and coordinates of central wavelengths, as CF has them.
Spec: STAC 1.1 common metadata, "Bands"; STAC extension eo 2.0; CF standard name
sensor_band_central_radiation_wavelength; GeoZarr draft, class "bands".
Example: {"bands": [{"name": "B04", "eo:common_name": "red", "eo:center_wavelength": 0.665}]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zstore.geo.conventions.base import (
    ArrayNode,
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GroupNode,
    Node,
    is_array,
)
from zstore.geo.conventions.decoding import read_values
from zstore.geo.conventions.model import Band, GeoModel, Variable
from zstore.geo.conventions.nodes import arrays_of
from zstore.geo.conventions.units import length_of
from zstore.geo.conventions.zarr_conventions import is_number
from zstore.storage.base import join_key

LISTS = ("bands", "eo:bands")
# Member of Band -> its name in STAC 1.1, then in `eo:bands` of STAC 1.0.
MEMBERS = {
    "name": ("name",),
    "description": ("description",),
    "common_name": ("eo:common_name", "common_name"),
    "wavelength": ("eo:center_wavelength", "center_wavelength"),
    "width": ("eo:full_width_half_max", "full_width_half_max"),
}
NUMBERS = ("wavelength", "width")
BAND_NAMES = frozenset(("band", "bands", "wavelength", "wavelengths"))
WAVELENGTHS = frozenset(("sensor_band_central_radiation_wavelength", "radiation_wavelength"))
# In a metre.
MICROMETRES = 1e6


class Bands(Convention):
    """Spectral bands: which part of the spectrum an array, or each item of it, holds."""

    name = "bands"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """The array's own `bands`, its `eo:bands`, its group's, then wavelengths along a dimension."""
        if not is_array(node):
            return Facts()
        findings: list[Finding] = []
        bands = _of_attributes(node, parent, findings)
        if not bands and parent is not None:
            bands = _of_wavelengths(node, arrays_of(parent), findings)
        variable = Variable(bands=bands) if bands else None
        return Facts(variable=variable, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The attribute `bands` of every array that has any."""
        return {
            join_key(grid.path, name): Document(
                attributes={"bands": [_render_band(band) for band in variable.bands]}
            )
            for grid in geo.grids
            for name, variable in geo.variables.items()
            if variable.bands
        }

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where the bands are malformed, too many or too few, or others than the model's."""
        if not is_array(node):
            return []
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        expected = geo.variables.get(node.path.rpartition("/")[2])
        found = () if facts.variable is None else facts.variable.bands
        if expected is not None and expected.bands and found != expected.bands:
            names = [band.name for band in expected.bands]
            message = f"bands are {[band.name for band in found]}; the model's are {names}"
            findings.append(Finding("BANDS", "warning", node.path, message, names))
        return findings

    def dialects(self, node: Node) -> Iterator[str]:
        """The list of an array."""
        if is_array(node) and any(name in node.attrs for name in LISTS):
            yield "STAC bands"


def parse_bands(stated: Any) -> tuple[Band, ...] | None:
    """The bands that a `bands` or `eo:bands` attribute lists; None where it is no list of objects."""
    if not isinstance(stated, (list, tuple)) or not stated:
        return None
    if not all(isinstance(item, Mapping) for item in stated):
        return None
    return tuple(_parse_band(item) for item in stated)


def _parse_band(item: Mapping[str, Any]) -> Band:
    values: dict[str, Any] = {}
    others = dict(item)
    for member, names in MEMBERS.items():
        for name in names:
            value: Any = item.get(name)
            if member not in values and (is_number(value) if member in NUMBERS else isinstance(value, str)):
                values[member] = float(value) if member in NUMBERS else value
                del others[name]
    return Band(**values, others=others)


def _render_band(band: Band) -> dict[str, Any]:
    stated = {names[0]: getattr(band, member) for member, names in MEMBERS.items()}
    return {**{name: value for name, value in stated.items() if value is not None}, **band.others}


def listed_bands(node: ArrayNode) -> tuple[str, tuple[Band, ...]] | None:
    """(attribute, bands) of the first list among an array's attributes that is valid and fits its shape."""
    for name in LISTS:
        bands = parse_bands(node.attrs.get(name))
        if bands is not None and len(bands) in (1, _count(node)):
            return name, bands
    return None


def _of_attributes(node: ArrayNode, parent: GroupNode | None, findings: list[Finding]) -> tuple[Band, ...]:
    found = listed_bands(node)
    for name in LISTS:
        stated = node.attrs.get(name)
        if stated is None or (found is not None and found[0] == name):
            continue
        bands = parse_bands(stated)
        if bands is None or found is None:
            count = _count(node)
            shown = "no list of objects" if bands is None else f"a list of {len(bands)}"
            message = f"{name} is {shown}; expected {count} objects, one per band; it is not used"
            findings.append(Finding("BANDS", "warning", node.path, message, count))
    if found is not None:
        return found[1]
    own = node.path.rpartition("/")[2]
    for name in LISTS:
        listed = None if parent is None else parse_bands(parent.attrs.get(name))
        for band in listed or ():
            if band.name == own:
                return (band,)
    return ()


def _count(node: ArrayNode) -> int:
    """The number of bands along an array's dimension of bands; 1 where it has none."""
    for name, length in zip(node.dims or (), node.shape, strict=False):
        if str(name).lower() in BAND_NAMES:
            return length
    return node.shape[0] if len(node.shape) == 3 else 1


def _of_wavelengths(
    node: ArrayNode, siblings: Mapping[str, Any], findings: list[Finding]
) -> tuple[Band, ...]:
    for dim in node.dims or ():
        for name, coordinate in siblings.items():
            if coordinate.dims != (dim,) or not _is_wavelength(name, coordinate) or 0 in coordinate.shape:
                continue
            units = coordinate.attrs.get("units")
            metres = length_of(units) if isinstance(units, str) else None
            if metres is None:
                message = f"units of wavelengths {name!r} are {units!r}; expected a length; they are not used"
                findings.append(Finding("BANDS", "warning", coordinate.path, message, "um", units))
                continue
            values = read_values(coordinate, findings)
            if values is None:
                continue
            numbers = values.astype(np.float64) * (metres * MICROMETRES)
            if np.isfinite(numbers).all():
                return tuple(Band(wavelength=number) for number in numbers.tolist())
    return ()


def _is_wavelength(name: str, coordinate: ArrayNode) -> bool:
    if np.dtype(coordinate.dtype).kind not in "iuf":
        return False
    stated = coordinate.attrs.get("standard_name")
    return stated in WAVELENGTHS if isinstance(stated, str) else name.lower() in ("wavelength", "wavelengths")
