"""Fixes of where grids lie: coordinates, GeoTransform and `spatial:`, from one affine per grid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.cf import coordinate_attributes
from zstore.geo.conventions.decoding import angle_of, rounding_of
from zstore.geo.conventions.gdal import parse_geotransform, render_geotransform
from zstore.geo.conventions.geozarr import member_of, parse_numbers
from zstore.geo.conventions.levels import Grid, LevelPlace
from zstore.geo.conventions.meaning import Pyramid
from zstore.geo.conventions.model import Affine
from zstore.geo.validation.fixing.crs import crs_of
from zstore.geo.validation.fixing.evidence import fit_line
from zstore.geo.validation.fixing.plan import Draft
from zstore.geo.validation.rules.georeference import SYNONYMS, TIME_UNITS, coordinate_corner, is_length
from zstore.geo.validation.units import dimension_of
from zstore.geo.validation.view import ArrayView, GroupView, NodeView, coordinate_of, mapping_of
from zstore.model.array import ZarrFormat
from zstore.model.packing import decode, encode, quantum
from zstore.nodes.open import create_array, open_array
from zstore.storage.base import join_key

# Of a cell: what is nearer is right, but for how numbers are rounded.
CLOSE = 1e-3
NEAR = 0.02


def affine_of(draft: Draft, grid: Grid) -> Affine | None:
    """The affine that most statements about a grid support; None, with the reason noted, where none wins."""
    place = draft.evidence.pyramid_of(grid)
    settled = draft.evidence.settle(grid)
    if place is None or place[1] is place[0].levels[0] or grid.shape != place[1].shape:
        found = settled.affine
    else:
        found = _level_affine(draft, *place, grid, settled.affine)
    if found is None and settled.trouble is not None:
        draft.refuse("MS-28", grid.node, settled.trouble)
    return found


def _level_affine(
    draft: Draft, pyramid: Pyramid, level: LevelPlace, grid: Grid, found: Affine | None
) -> Affine | None:
    """The affine of a coarser level, whose coordinates may be edges, or a selection of the finest level's."""
    base = pyramid.levels[0]
    base_grid = next((held for held in base.grids.values() if held.shape == base.shape), None)
    settled = None if base_grid is None else draft.evidence.settle_finest(base_grid)
    if settled is None or settled.trouble is not None:
        # Nothing is made to agree with a place that cannot be told.
        return found
    affine = settled.affine or base.affine
    if affine is None or base.shape is None or affine.is_rotated or (found is None and level.affine is None):
        return found
    factors = [
        round(finer / coarser) if coarser else 0
        for finer, coarser in zip(base.shape, grid.shape, strict=True)
    ]
    whole = all(
        f >= 1 and m in (n // f, -(-n // f)) for f, n, m in zip(factors, base.shape, grid.shape, strict=True)
    )
    place = coordinate_corner(grid)
    if not whole or place is None:
        return found
    expected = affine.scaled((factors[0], factors[1]))
    kinds = []
    for axis, (corner, step) in enumerate(((expected.f, expected.e), (expected.c, expected.a))):
        stretch = place[1][axis] / step - 1
        shift = (place[0][axis] + place[1][axis] / 2 - corner) / step - 0.5
        length, factor = grid.shape[axis], factors[axis]
        kinds.append(_kind(shift, stretch, length, factor))
    if set(kinds) <= {"right", "edges"} and "edges" in kinds:
        return expected
    if set(kinds) <= {"right", "every"} and "every" in kinds:
        method = member_of(pyramid.stated, "resampling_method")
        if method in (None, "nearest"):
            message = "coordinates are every so many of the finest level's, as picking cells would have it"
            draft.refuse("MS-14", grid.node, message)
            return None
        return expected
    return found


def _kind(shift: float, stretch: float, length: int, factor: int) -> str:
    """What is wrong with an axis: "right", "every", "edges" or "other".

    It begins `shift` cells off, and its steps are `stretch` of a cell too long.
    """
    if abs(stretch) < 1e-6 and abs(shift) < NEAR:
        return "right"
    if abs(stretch) < 1e-6 and abs(shift + 0.5 - 0.5 / factor) < NEAR:
        return "every"
    # Odd trailing cells that were dropped while the extent was kept stretch the steps.
    return "edges" if abs(shift + 0.5) < NEAR and abs(stretch) * length < 1.5 else "other"


def fix_time(draft: Draft) -> None:
    """Add the attributes that CF asks of time coordinates, where their units show that they are such."""
    for group in draft.hierarchy.groups:
        for coordinate in draft.hierarchy.meaning.roles(group).coordinates.values():
            units = coordinate.attrs.get("units")
            if not isinstance(units, str) or not TIME_UNITS.fullmatch(units):
                continue
            # Without a calendar, CF has it for the standard one.
            wanted = {"standard_name": "time", "axis": "T", "calendar": "standard"}
            missing = {name: value for name, value in wanted.items() if name not in coordinate.attrs}
            draft.update("MS-09", coordinate, f"{', '.join(sorted(missing))} added", missing)


def fix_places(draft: Draft) -> None:
    """Fix the coordinates of every grid, and the transforms that are stated of it."""
    done: set[tuple[str, str]] = set()
    for grid in draft.hierarchy.grids.values():
        affine = affine_of(draft, grid)
        if affine is None:
            continue
        centres = affine.coordinates(grid.shape)
        for axis in (0, 1) if centres is not None else ():
            dimension = grid.dimensions[axis]
            parent = grid.node.parent
            if (
                centres is None
                or not isinstance(parent, GroupView)
                or not dimension
                or (parent.path, dimension) in done
            ):
                continue
            done.add((parent.path, dimension))
            _fix_coordinate(draft, grid, parent, axis, centres[axis])
        if grid.node.attrs.get("AREA_OR_POINT") != "Point":
            _fix_transforms(draft, grid, affine)


def _fix_coordinate(
    draft: Draft, grid: Grid, group: GroupView, axis: int, centres: np.ndarray[Any, Any]
) -> None:
    dimension = grid.dimensions[axis]
    wanted = _axis_attributes(draft, grid, axis)
    coordinate = coordinate_of(grid.node, dimension)
    if coordinate is None:
        if dimension in group.children or dimension.startswith("/"):
            return
        path = join_key(group.path, dimension)
        if draft.is_occupied("MS-11", path):
            return
        _create_coordinate(draft, path, group.zarr_format, dimension, centres, wanted)
        draft.note("MS-11", path, "coordinates written")
        return
    missing = {name: value for name, value in wanted.items() if name not in coordinate.attrs}
    if "units" in missing and coordinate.attrs.get(
        "standard_name", wanted.get("standard_name")
    ) != wanted.get("standard_name"):
        missing = {}
    draft.update("GZ-14", coordinate, f"{', '.join(sorted(missing))} added", missing)
    if len(coordinate.shape) == 1 and coordinate.shape != centres.shape:
        _fix_length(draft, grid, coordinate, centres)
        return
    _fix_description(draft, grid, coordinate, centres, wanted)
    _fix_values(draft, coordinate, centres, wanted)


def _create_coordinate(
    draft: Draft,
    path: str,
    zarr_format: ZarrFormat,
    dimension: str,
    centres: np.ndarray[Any, Any],
    attributes: Mapping[str, Any],
    **options: Any,
) -> None:
    create_array(
        draft.store,
        path,
        data=centres,
        chunks=-1,
        compressors=None,
        fill_value=float("nan"),
        zarr_format=zarr_format,
        dimension_names=(dimension,),
        attributes=attributes,
        **options,
    )


def _fix_length(draft: Draft, grid: Grid, coordinate: ArrayView, centres: np.ndarray[Any, Any]) -> None:
    """Write coordinates of another length anew, where the grid's own length is confirmed."""
    is_level = draft.evidence.pyramid_of(grid) is not None
    shapes = [coordinate.parent.attrs.get("spatial:shape")] if coordinate.parent is not None else []
    if not is_level and list(grid.shape) not in shapes:
        message = f"coordinates are {coordinate.shape[0]} long, the dimension {len(centres)}"
        draft.refuse("MS-11", coordinate, f"{message}; expected spatial:shape to say which is right")
        return
    attributes = {**draft.attributes(coordinate)}
    attributes.pop("_ARRAY_DIMENSIONS", None)
    _create_coordinate(
        draft, coordinate.path, coordinate.zarr_format, coordinate.name, centres, attributes, overwrite=True
    )
    draft.note("MS-11", coordinate, f"as many coordinates as cells written: {len(centres)}")


DEGREES = re.compile(r"degrees?(_[a-z]+|[ENSW])?", re.IGNORECASE)
FULL_CIRCLE = 361.0


def _fix_description(
    draft: Draft, grid: Grid, coordinate: ArrayView, centres: np.ndarray[Any, Any], wanted: Mapping[str, Any]
) -> None:
    """Correct `standard_name`, `units` and `axis` of another CRS, where the numbers are this one's."""
    attributes = draft.attributes(coordinate)
    found = {name: attributes.get(name) for name in ("standard_name", "units", "axis")}
    wrong = {
        name: wanted[name]
        for name in found
        if name in wanted and found[name] is not None and not _is_right(name, found[name], wanted[name])
    }
    values = coordinate.numbers()
    is_confirmed = values is not None and _are_centres(coordinate, values, centres)
    projection = None if grid.crs is None else grid.crs.cf.get("grid_mapping_name")
    is_view = projection == "geostationary" and angle_of(str(found["units"])) is not None
    if not is_confirmed and (is_view or is_length(found["units"], str(wanted.get("units")))):
        # Readers convert them.
        wrong.pop("units", None)
    if not wrong:
        return
    if is_confirmed and not grid.stated_affines and draft.evidence.pyramid_of(grid) is None:
        # The numbers are all there is: they may be in the units that are stated.
        is_confirmed = dimension_of(str(found["units"])) in (None, dimension_of(str(wanted.get("units"))))
    rule = "MS-08" if "units" in wrong else "MS-07"
    if values is not None and {"standard_name", "units"} <= set(wrong) and not _is_impossible(found, values):
        # Both say another kind of CRS, and the numbers allow it.
        message = f"standard_name {found['standard_name']!r} and units {found['units']!r} are another CRS's"
        draft.refuse(rule, coordinate, f"{message}; expected --crs, or the attributes corrected")
    elif is_confirmed or (values is not None and _is_impossible(found, values)) or rule == "MS-07":
        draft.update(rule, coordinate, f"{', '.join(sorted(wrong))} are the CRS's", wrong)
    else:
        draft.refuse(rule, coordinate, f"units are {found['units']!r}, and no transform confirms the numbers")


def _is_right(name: str, found: Any, wanted: str) -> bool:
    """Whether an attribute of a coordinate says what is wanted, in any of the forms in use."""
    if name == "units":
        return found in SYNONYMS.get(wanted, (wanted,))
    return found in (wanted, wanted.replace("_coordinate", "_angular_coordinate"))


def _is_impossible(found: Mapping[str, Any], values: np.ndarray[Any, Any]) -> bool:
    """Whether the numbers cannot be what the attributes say they are: degrees."""
    is_angle = isinstance(found["units"], str) and DEGREES.fullmatch(found["units"])
    is_named = found["standard_name"] in ("longitude", "latitude")
    return bool(is_angle or is_named) and bool(np.nanmax(np.abs(values), initial=0.0) > FULL_CIRCLE)


def _axis_attributes(draft: Draft, grid: Grid, axis: int) -> dict[str, Any]:
    """The attributes that the coordinate of an axis should have under the grid's CRS."""
    letter = "YX"[axis]
    stated = coordinate_attributes(grid.crs if crs_of(draft, grid) is not None else None, letter)
    return {name: value for name, value in stated.items() if name != "long_name"}


def _are_centres(coordinate: ArrayView, values: np.ndarray[Any, Any], centres: np.ndarray[Any, Any]) -> bool:
    """Whether a coordinate's values are the centres, as far as it can store them."""
    if values.shape != centres.shape:
        return False
    step = abs(float(centres[-1] - centres[0])) / max(len(centres) - 1, 1) or 1.0
    packed = min(quantum(coordinate.attrs, coordinate.dtype), CLOSE * step)
    rounding = rounding_of(coordinate, centres) + packed
    return bool(np.abs(values - centres).max(initial=0.0) <= CLOSE * step + rounding)


def _fix_values(
    draft: Draft, coordinate: ArrayView, centres: np.ndarray[Any, Any], wanted: Mapping[str, Any]
) -> None:
    values = coordinate.numbers()
    if values is None or values.shape != centres.shape or _are_centres(coordinate, values, centres):
        return
    units = draft.attributes(coordinate).get("units", wanted.get("units"))
    if units not in SYNONYMS.get(str(wanted.get("units")), (wanted.get("units"),)):
        # Written in other units than the CRS's, the numbers say something else.
        return
    steps = np.diff(values)
    is_ordered = bool(np.all(steps > 0) or np.all(steps < 0))
    if is_ordered and fit_line(coordinate, values) is None:
        message = "coordinates are in order, and not regularly spaced: no transform can say where they are"
        draft.refuse("GZ-29", coordinate, message)
        return
    step = abs(float(centres[-1] - centres[0])) / max(len(centres) - 1, 1) or 1.0
    fitting = encode(centres, coordinate.attrs, coordinate.dtype)
    held = decode(fitting, coordinate.attrs).astype(np.float64)
    if coordinate.dtype.kind in "iu" and not np.allclose(held, centres, rtol=0, atol=CLOSE * step):
        stored = f"{coordinate.dtype}{' with packing' if quantum(coordinate.attrs, coordinate.dtype) else ''}"
        draft.refuse("GZ-29", coordinate, f"centres are no numbers that {stored} holds")
        return
    open_array(draft.store, coordinate.path, mode="r+")[...] = fitting
    off = np.nanmax(np.abs(values - centres), initial=0.0) / step
    draft.note("GZ-29", coordinate, f"centres of the cells written; they were up to {off:.3g} cells off")


def _fix_transforms(draft: Draft, grid: Grid, affine: Affine) -> None:
    mapping = mapping_of(grid.node)[1]
    # What one in a group above says is not this grid's alone.
    is_beside = mapping is not None and mapping.parent is grid.node.parent
    stating: list[NodeView] = [grid.node, mapping] if is_beside else [grid.node]
    for node in stating:
        stated = draft.attributes(node).get("GeoTransform")
        if stated is None or not _is_alone(draft, grid, node):
            continue
        try:
            numbers: Any = list(parse_geotransform(stated))
        except MetadataError:
            numbers = None
        if not is_near(numbers, affine, affine):
            value = render_geotransform(affine)
            draft.update("MS-28", node, "GeoTransform is the grid's own", {"GeoTransform": value})
    group = grid.node.parent
    placed: list[NodeView] = [grid.node, group] if isinstance(group, GroupView) else [grid.node]
    for node in placed:
        if any(name.startswith("spatial:") for name in node.attrs) and _is_alone(draft, grid, node):
            _fix_spatial(draft, grid, node, affine)


def _is_alone(draft: Draft, grid: Grid, node: NodeView) -> bool:
    """Whether what `node` says of a grid is said of this one only."""
    others = [g for g in draft.hierarchy.grids.values() if g.node.parent is grid.node.parent]
    if {other.shape for other in others} == {grid.shape} or node is grid.node:
        return True
    draft.refuse("MS-28", node, "its grids have several shapes: one transform cannot be all theirs")
    return False


def is_near(numbers: Sequence[float] | None, wanted: Sequence[float], affine: Affine) -> bool:
    """Whether stated numbers are those that are wanted, within a millionth of a cell."""
    small = 1e-6 * min(affine.cell)
    return numbers is not None and all(abs(a - b) <= small for a, b in zip(numbers, wanted, strict=True))


def _fix_spatial(draft: Draft, grid: Grid, node: NodeView, affine: Affine) -> None:
    attributes = draft.attributes(node)
    changes: dict[str, Any] = {}
    if attributes.get("spatial:registration") not in (None, "pixel"):
        return
    if "spatial:dimensions" not in attributes and "spatial:dimensions" not in getattr(
        node.parent, "attrs", {}
    ):
        changes["spatial:dimensions"] = list(grid.dimensions)
    stated = parse_numbers(attributes.get("spatial:transform"), 6)
    if "spatial:transform" in attributes and not is_near(stated, affine, affine):
        changes["spatial:transform"] = list(affine)
    if "spatial:shape" in attributes and attributes["spatial:shape"] != list(grid.shape):
        changes["spatial:shape"] = list(grid.shape)
    if "spatial:bbox" in attributes:
        bounds = affine.bounds(grid.shape)
        if not is_near(parse_numbers(attributes["spatial:bbox"], 4), bounds, affine):
            changes["spatial:bbox"] = list(bounds)
    draft.update("ZC-05", node, f"{', '.join(changes)} are the grid's own", changes)
