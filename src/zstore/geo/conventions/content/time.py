"""Time coordinates as CF writes them.

Spec: CF 1.11 §4.4 (time coordinate, calendars); GeoZarr draft, class "time".
Example: {"standard_name": "time", "units": "days since 2000-01-01", "calendar": "standard", "axis": "T"}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError
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
from zstore.geo.conventions.content.timeaxis import TimeAxis
from zstore.geo.conventions.decoding import read_values
from zstore.geo.conventions.model import GeoModel
from zstore.geo.conventions.nodes import arrays_along, plain_name
from zstore.model.packing import PACKING
from zstore.storage.base import join_key

NAMES = ("time", "t")
OWN = frozenset(("units", "calendar", "standard_name", "axis", "_ARRAY_DIMENSIONS", *PACKING))


class Time(Convention):
    """The time of the data: a coordinate of one dimension, or a single moment beside the data."""

    name = "time"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """The time coordinate of one of the array's dimensions, else a single moment beside it."""
        if not is_array(node) or parent is None:
            return Facts()
        findings: list[Finding] = []
        coordinate = _find(node, arrays_along(node, parent))
        axis = None if coordinate is None else _parse_axis(coordinate, findings)
        return Facts(time=axis, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The coordinate in every grid that has the dimension; a single moment in every grid."""
        axis = geo.time
        if axis is None:
            return {}
        is_single = axis.values.ndim == 0
        if not is_single and not any(axis.name in v.dimensions for v in geo.variables.values()):
            return {}
        attributes: dict[str, Any] = {"standard_name": "time", **axis.attributes}
        if not is_single:
            attributes["axis"] = "T"
        if axis.units is not None:
            attributes |= {"units": axis.units, "calendar": axis.calendar}
        # NaN and NaT are no moments, so that neither hides one; a number could.
        blanks = {"f": "nan", "M": "NaT"}
        blank = blanks.get(axis.values.dtype.kind)
        fill: Any = None if blank is None else np.array(blank, axis.values.dtype)[()]
        return {
            join_key(grid.path, axis.name): Document(
                kind="array",
                attributes=dict(attributes),
                dimension_names=() if is_single else (axis.name,),
                data=axis.values,
                fill_value=0 if fill is None and zarr_format == 3 else fill,
            )
            for grid in geo.grids
        }

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where the array's time coordinate cannot be read, lacks its name, or is not the model's."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        if facts.time is None or parent is None:
            return findings
        along = arrays_along(node, parent)
        found = along.get(facts.time.name, along.get(f"/{facts.time.name}"))
        assert found is not None
        stated = found.attrs.get("standard_name")
        if stated != "time":
            message = f"standard_name of the time coordinate is {stated!r}; expected 'time'"
            findings.append(Finding("MS-09", "warning", found.path, message, "time", stated))
        if geo.time is not None and facts.time != geo.time:
            message = f"time coordinate {facts.time.name!r} is another than the model's"
            findings.append(Finding("GZ-33", "error", found.path, message))
        return findings

    def dialects(self, node: Node) -> Iterable[str]:
        """None of its own: it is part of CF."""
        return ()


def _find(node: ArrayNode, siblings: Mapping[str, Any]) -> Any:
    for name in node.dims or ():
        coordinate = None if name is None else siblings.get(name)
        if name is None or coordinate is None or coordinate.dims not in ((plain_name(name),), None):
            continue
        if _is_time(plain_name(name), coordinate):
            return coordinate
    stated = node.attrs.get("coordinates")
    listed = stated.split() if isinstance(stated, str) else []
    for name in (*listed, *NAMES):
        single = siblings.get(name)
        if single is not None and single.shape == () and _is_time(name, single):
            return single
    return None


def _is_time(name: str, coordinate: ArrayNode) -> bool:
    attributes = coordinate.attrs
    kind = np.dtype(coordinate.dtype).kind
    if kind not in "iufM":
        return False
    units = attributes.get("units")
    is_count = isinstance(units, str) and " since " in units
    is_named = attributes.get("standard_name") == "time" or attributes.get("axis") == "T"
    # A forecast's reference time, or the like, is a count of time and no time coordinate.
    is_other = "standard_name" in attributes and attributes["standard_name"] != "time"
    return is_named or ((kind == "M" or is_count or name in NAMES) and not is_other)


def _parse_axis(coordinate: ArrayNode, findings: list[Finding]) -> TimeAxis | None:
    attributes = coordinate.attrs
    name = coordinate.path.rpartition("/")[2]
    if 0 in coordinate.shape:
        return None
    calendar = attributes.get("calendar", "standard")
    kept = {key: value for key, value in attributes.items() if key not in OWN}
    if attributes.get("standard_name", "time") != "time":
        kept["standard_name"] = attributes["standard_name"]
    is_count = np.dtype(coordinate.dtype).kind != "M"
    values = read_values(coordinate, findings)
    if values is None:
        return None
    try:
        return TimeAxis(
            name,
            values,
            attributes.get("units") if is_count else None,
            "standard" if not is_count else calendar.lower() if isinstance(calendar, str) else calendar,
            kept,
        )
    except MetadataError as error:
        message = f"time coordinate {name!r} is not used: {error.message}"
        findings.append(Finding("MS-09", "error", coordinate.path, message, None, attributes.get("units")))
        return None
