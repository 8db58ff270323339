"""Which of an array's dimensions are y and x, and what their coordinate variables come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.conventions.base import ArrayNode, Finding
from zstore.conventions.crs import Crs
from zstore.conventions.reading.nodes import read_values

__all__ = ["AXIS_NAMES", "Axis", "parse_axes"]

AXIS_NAMES = {
    "y": "Y", "lat": "Y", "latitude": "Y", "northing": "Y", "row": "Y", "rlat": "Y",
    "x": "X", "lon": "X", "long": "X", "longitude": "X", "easting": "X", "col": "X", "rlon": "X",
}  # fmt: skip
STANDARD_NAMES = {
    "projection_y_coordinate": "Y", "projection_x_coordinate": "X",
    "projection_y_angular_coordinate": "Y", "projection_x_angular_coordinate": "X",
    "latitude": "Y", "longitude": "X",
    "grid_latitude": "Y", "grid_longitude": "X",
}  # fmt: skip
METRES = {
    "m": 1.0, "metre": 1.0, "meter": 1.0, "metres": 1.0, "meters": 1.0,
    "km": 1000.0, "kilometre": 1000.0, "kilometer": 1000.0, "kilometres": 1000.0, "kilometers": 1000.0,
    "US_survey_foot": 1200 / 3937, "international_foot": 0.3048,
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One spatial dimension; the first centre and the step where its coordinates are regular."""

    name: str
    first: float | None = None
    step: float | None = None


def parse_axes(
    node: ArrayNode, siblings: Mapping[str, Any], crs: Crs | None, findings: list[Finding]
) -> tuple[Axis, Axis] | None:
    """The array's y and x dimension: by `axis` or `standard_name` of their coordinates, then by name.

    None where the array does not have exactly one of each.
    """
    found: dict[str, list[str]] = {"Y": [], "X": []}
    for name in node.dims or ():
        kind = None if name is None else _kind(name, siblings.get(name))
        if name is not None and kind is not None:
            found[kind].append(name)
    if len(found["Y"]) != 1 or len(found["X"]) != 1:
        return None
    y, x = (_axis(node, found[kind][0], siblings, crs, findings) for kind in ("Y", "X"))
    return y, x


def _kind(name: str, coordinate: Any) -> str | None:
    attributes = {} if coordinate is None else coordinate.attrs
    if attributes.get("axis") in ("X", "Y"):
        return str(attributes["axis"])
    standard_name = attributes.get("standard_name")
    if isinstance(standard_name, str) and standard_name in STANDARD_NAMES:
        return STANDARD_NAMES[standard_name]
    return AXIS_NAMES.get(name.lower())


def _axis(
    node: ArrayNode, name: str, siblings: Mapping[str, Any], crs: Crs | None, findings: list[Finding]
) -> Axis:
    coordinate = siblings.get(name)
    if coordinate is None or coordinate.dims not in ((name,), None):
        return Axis(name)
    size = node.shape[(node.dims or ()).index(name)]
    if coordinate.shape != (size,):
        message = f"shape of coordinate {name!r} is {coordinate.shape}; expected {(size,)}; it is not used"
        findings.append(Finding("MS-11", "error", coordinate.path, message, (size,), coordinate.shape))
        return Axis(name)
    if size < 2 or np.dtype(coordinate.dtype).kind not in "iuf":
        return Axis(name)
    stored = read_values(coordinate, findings)
    if stored is None:
        return Axis(name)
    values = stored.astype(np.float64)
    step = (values[-1] - values[0]) / (size - 1)
    if not np.isfinite(values).all() or step == 0:
        message = f"coordinate {name!r} is not finite and monotonic; it is not used"
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return Axis(name)
    rounding = np.finfo(stored.dtype).eps * np.abs(values).max() * 4 if stored.dtype.kind == "f" else 0.0
    if np.abs(values - (values[0] + step * np.arange(size))).max() > 1e-3 * abs(step) + rounding:
        message = f"coordinate {name!r} is not regularly spaced; no affine can say it"
        findings.append(Finding("GZ-29", "warning", coordinate.path, message))
        return Axis(name)
    factor = _unit_factor(coordinate, crs, findings)
    return Axis(name, float(values[0]) * factor, float(step) * factor)


def _unit_factor(coordinate: ArrayNode, crs: Crs | None, findings: list[Finding]) -> float:
    units = coordinate.attrs.get("units")
    if crs is None or crs.is_geographic or not isinstance(units, str) or units not in METRES:
        return 1.0
    factor = METRES[units] / crs.metres_per_unit
    if abs(factor - 1) < 1e-9:
        return 1.0
    message = f"units are {units!r}, the CRS's {crs.units!r}; the coordinates are converted"
    findings.append(Finding("MS-08", "warning", coordinate.path, message, crs.units, units))
    return factor
