"""Bounds of coordinates: the two edges of every cell, where a file states more than the centres.

Spec: CF 1.11 §7.1 (cell boundaries): `bounds` names an array (n, 2); it may leave out units, which are the
coordinate's then, and is packed by its own attributes.
Example: {"standard_name": "latitude", "units": "degrees_north", "bounds": "lat_bnds"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.geo.conventions.base import ArrayNode, Finding
from zstore.geo.conventions.decoding import read_values, rounding_of
from zstore.geo.conventions.units import angle_of, length_of
from zstore.model.packing import quantum

Numbers = np.ndarray[Any, np.dtype[np.float64]]
# How far an edge may be from where it should be, and how far a centre from the middle, in cells.
TOLERANCE = 1e-3
OFF_CENTRE = 1e-2
# The most that rounding packed numbers may move an edge, in cells.
MOST_ROUNDING = 0.1


def read_bounds(
    coordinate: ArrayNode, siblings: Mapping[str, Any], findings: list[Finding]
) -> tuple[Numbers, float] | None:
    """The decoded edges of every cell of a coordinate, in the order stored, and how far they may be off.

    None where the coordinate has no bounds; with a finding, where it has some that cannot be used.

    Shapes
        edges (n, 2) for a coordinate (n).
    Units
        those of the coordinate.
    """
    name = coordinate.attrs.get("bounds")
    if not isinstance(name, str) or not name.strip():
        return None
    found = siblings.get(name)
    if found is None:
        message = f"bounds name {name!r}, which is not beside the coordinate"
        findings.append(Finding("GZ-29", "note", coordinate.path, message, sorted(siblings), name))
        return None
    wrong = _misfit(coordinate, found)
    if wrong is not None:
        message = f"bounds {name!r} {wrong}; they are not used"
        findings.append(Finding("GZ-29", "error", found.path, message))
        return None
    values = read_values(found, findings)
    if values is None:
        return None
    edges = values.astype(np.float64)
    if not np.isfinite(edges).all() or (edges[:, 0] == edges[:, 1]).any():
        message = f"bounds {name!r} are not finite, or leave a cell no room; they are not used"
        findings.append(Finding("GZ-29", "error", found.path, message))
        return None
    packed = quantum(found.attrs, np.dtype(found.dtype)) / 2
    widest = float(np.abs(edges[:, 1] - edges[:, 0]).max())
    return edges, rounding_of(found, values) + min(packed, MOST_ROUNDING * widest)


def _misfit(coordinate: ArrayNode, bounds: ArrayNode) -> str | None:
    """Why an array cannot hold the bounds of a coordinate; None where it can."""
    if bounds.shape != (*coordinate.shape, 2) or np.dtype(bounds.dtype).kind not in "iuf":
        return f"are {bounds.dtype} of the shape {bounds.shape}; expected numbers of {(*coordinate.shape, 2)}"
    stated, own = bounds.attrs.get("units"), coordinate.attrs.get("units")
    if stated in (None, "", own):
        return None
    measures = [
        None if not isinstance(units, str) else (length_of(units), angle_of(units)) for units in (stated, own)
    ]
    is_same = measures[0] == measures[1] not in (None, (None, None))
    return None if is_same else f"have the units {stated!r}; expected the coordinate's, {own!r}"


def check_bounds(
    coordinate: ArrayNode,
    centres: Numbers,
    bounds: tuple[Numbers, float],
    is_regular: bool,
    findings: list[Finding],
) -> tuple[float, float] | None:
    """The middle of the first cell and the step by the bounds, where those differ from the centres.

    None where both agree, where the cells are not of one size, and where the two contradict each other: the
    centres count then, and a finding says so.
    """
    name, edges, size = coordinate.path.rpartition("/")[2], bounds[0], len(centres)
    # Either edge may come first, whichever way the centres run.
    falls = centres[-1] < centres[0] if size > 1 else edges[0, 1] < edges[0, 0]
    edges = np.sort(edges, axis=1)[:, ::-1] if falls else np.sort(edges, axis=1)
    begins, ends = edges[:, 0], edges[:, 1]
    step = float(ends[-1] - begins[0]) / size
    close = TOLERANCE * abs(step) + bounds[1] + rounding_of(coordinate, centres)
    outside = np.abs(centres - (begins + ends) / 2) > np.abs(ends - begins) / 2 + close
    if outside.any():
        message = (
            f"{outside.sum()} of {size} values of {name!r} lie outside of their bounds; the values count"
        )
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return None
    places = begins[0] + step * np.arange(size + 1)
    off = np.abs(np.append(begins, ends[-1]) - places)
    gap = np.abs(ends[:-1] - begins[1:]).max(initial=0.0)
    if max(off.max(), gap) > close:
        if is_regular:
            _report_uneven(coordinate, centres, edges, close, findings)
        return None
    first = float(begins[0]) + step / 2
    shift = max(abs(first - centres[0]), abs(first + step * (size - 1) - centres[-1]))
    is_middle = is_regular and shift <= OFF_CENTRE * abs(step) + close
    if is_middle and size > 1:
        return None
    if not is_middle:
        message = f"values of {name!r} are not the middles of its cells, which are regular; the bounds count"
        findings.append(Finding("GZ-29", "warning", coordinate.path, message, first, float(centres[0])))
    return first, step


def _report_uneven(
    coordinate: ArrayNode, centres: Numbers, edges: Numbers, close: float, findings: list[Finding]
) -> None:
    """Find that cells do not reach half way to their neighbours' centres; a grid may stop at the pole."""
    half, name = (centres[-1] - centres[0]) / (len(centres) - 1) / 2, coordinate.path.rpartition("/")[2]
    off = np.abs(edges - np.stack([centres - half, centres + half], axis=1)) > close
    is_cut = not off[1:-1].any() and not off[0, 1] and not off[-1, 0]
    what = "cells at the ends of" if is_cut else "cells of"
    message = (
        f"{what} {name!r} are not half way around its values, and no affine can say it; the values count"
    )
    findings.append(Finding("GZ-29", "note" if is_cut else "warning", coordinate.path, message))
