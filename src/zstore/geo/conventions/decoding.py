"""Values of coordinates, decoded by CF's attributes: packed numbers are never taken for positions or dates.

Spec: CF 1.11 §2.5.1 (missing data), §8.1 (packed data); NetCDF Users Guide, attribute conventions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import ZstoreError
from zstore.geo.conventions.base import ArrayNode, Finding
from zstore.model.packing import decode, parse_packing


def rounding_of(coordinate: ArrayNode, values: np.ndarray[Any, Any]) -> float:
    """The error of a coordinate's values from the rounding of floats; 0 for integers."""
    dtype = np.dtype(coordinate.dtype)
    return float(np.finfo(dtype).eps * np.abs(values).max(initial=0.0) * 4) if dtype.kind == "f" else 0.0


def read_values(coordinate: ArrayNode, findings: list[Finding]) -> np.ndarray[Any, Any] | None:
    """All values of a coordinate, decoded; None, with a finding, where they are damaged, gone or too many."""
    name, attributes = coordinate.path.rpartition("/")[2], coordinate.attrs
    try:
        values = decode(np.asarray(coordinate[...]), attributes)
    except ZstoreError as error:
        message = f"coordinate {name!r} cannot be read, and is not used: {error}"
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return None
    limits = _limits(attributes, np.dtype(coordinate.dtype))
    if limits is not None and values.dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            outside = int(np.count_nonzero((values < limits[0]) | (values > limits[1])))
        if outside:
            # Everybody else takes these for places, too: hiding them would leave the data without one.
            message = f"{outside} values of coordinate {name!r} are outside its valid range; they count"
            findings.append(Finding("GZ-16", "warning", coordinate.path, message, list(limits)))
    return values


def _limits(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[float, float] | None:
    """The least and the greatest valid number, decoded; None where nothing states them.

    Integers are packed as the values are; floats beside packed integers are decoded already.
    """
    stated = attributes.get("valid_range", [attributes.get("valid_min"), attributes.get("valid_max")])
    if not isinstance(stated, (list, tuple)) or len(stated) != 2 or stated == [None, None]:
        return None
    low, high = (
        default if number is None else number
        for number, default in zip(stated, (-math.inf, math.inf), strict=True)
    )
    if any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in (low, high)):
        return None
    is_packed = dtype.kind in "iu" and all(isinstance(n, int) for n in stated if n is not None)
    if not (is_packed or dtype.kind == "f"):
        return low, high
    scale, offset = parse_packing(attributes)
    ends = [n * (1.0 if scale is None else scale) + (offset or 0.0) for n in (low, high)]
    return min(ends), max(ends)
