"""The choice of a grid's affine among all that documents state, with findings where those disagree."""

from __future__ import annotations

from collections.abc import Sequence

from zstore.geo.conventions.base import Facts, Finding, LevelEntry
from zstore.geo.conventions.model import Affine

# The exact statements first; a coordinate is rounded, and says nothing of a grid with one row or column.
ORDER = ("spatial:transform", "layout", "GeoTransform", "proj:transform")
# In cells: float32 coordinates of metres are off by a twentieth of a 10 m cell.
TOLERANCE = 0.1


def choose_affine(
    facts: Sequence[Facts],
    entry: LevelEntry | None,
    shape: tuple[int, int],
    path: str,
    findings: list[Finding],
) -> Affine | None:
    """The affine of a grid: the first stated one that its coordinates confirm, else that of the coordinates.

    Half a cell between the two is the usual mistake of taking edges for centres: the stated one counts then
    (except that `AREA_OR_POINT: Point` allows it of `GeoTransform`). Anything else is a transform that was
    left behind when the grid was cut or coarsened: the coordinates count. With neither, what a tile matrix
    or OME's scale come to, if the array fits it; then the bounding box divided by the shape.
    """
    stated = [pair for found in facts for pair in found.affines]
    if entry is not None and entry.affine is not None:
        stated.append(("layout", entry.affine))
    stated.sort(key=lambda pair: _rank(pair[0]))
    coordinates = next((f.coordinate_affine for f in facts if f.coordinate_affine is not None), None)
    is_point = any(f.variable is not None and f.variable.area_or_point == "Point" for f in facts)
    for position, (source, affine) in enumerate(stated, 1):
        if coordinates is None or _is_confirmed(source, affine, coordinates, shape, is_point, path, findings):
            for other in stated[position:]:
                _compare(other, (source, affine), shape, is_point, path, findings)
            return affine
    if coordinates is not None:
        return coordinates
    if entry is not None and entry.fallback_affine is not None and _fits(entry, shape, path, findings):
        findings.append(
            Finding("MS-28", "note", path, "the affine is the tile matrix's or OME's; nothing else says one")
        )
        return entry.fallback_affine
    bbox = next((f.bbox for f in facts if f.bbox is not None), None)
    if bbox is None:
        return None
    findings.append(Finding("ZC-05", "note", path, "the affine is the bounding box divided by the shape"))
    xmin, ymin, xmax, ymax = bbox
    return Affine((xmax - xmin) / shape[1], 0.0, xmin, 0.0, (ymin - ymax) / shape[0], ymax)


def _rank(source: str) -> int:
    return next((place for place, name in enumerate(ORDER) if source.endswith(name)), len(ORDER))


def _is_confirmed(
    source: str,
    affine: Affine,
    coordinates: Affine,
    shape: tuple[int, int],
    is_point: bool,
    path: str,
    findings: list[Finding],
) -> bool:
    """Whether the stated affine counts beside the coordinates'; a finding tells how the two differ."""
    shifts = _shifts(affine, coordinates, shape)
    largest = max(abs(shift) for pair in shifts for shift in pair)
    if largest <= TOLERANCE:
        return True
    is_constant = all(abs(one - other) <= TOLERANCE for one, other in zip(*shifts, strict=True))
    is_half = all(min(abs(abs(shift) - 0.5), abs(shift)) <= TOLERANCE for pair in shifts for shift in pair)
    if is_constant and is_half:
        if is_point and source.endswith("GeoTransform"):
            message = f"{source} gives the first point, as AREA_OR_POINT allows; the coordinates count"
            findings.append(Finding("GZ-29", "note", path, message, list(coordinates), list(affine)))
            return False
        message = f"coordinates are half a cell off {source}: edges taken for centres; {source} counts"
        findings.append(Finding("GZ-29", "error", path, message, list(affine), list(coordinates)))
        return True
    message = f"{source} is up to {largest:.4g} cells off the coordinates; the coordinates count"
    findings.append(Finding("MS-28", "error", path, message, list(coordinates), list(affine)))
    return False


def _shifts(affine: Affine, other: Affine, shape: tuple[int, int]) -> list[tuple[float, float]]:
    """(right, down) distances of another affine in cells, at the centres of the first and the last cell."""
    height, width = affine.cell
    shifts = []
    for column, row in ((0.5, 0.5), (shape[1] - 0.5, shape[0] - 0.5)):
        (x, y), (other_x, other_y) = affine.at(column, row), other.at(column, row)
        shifts.append(((other_x - x) / width, (other_y - y) / height))
    return shifts


def _compare(
    other: tuple[str, Affine],
    chosen: tuple[str, Affine],
    shape: tuple[int, int],
    is_point: bool,
    path: str,
    findings: list[Finding],
) -> None:
    """Find that another stated affine differs from the chosen one."""
    if other[0] == "layout":
        # What a layout says of its levels has a rule of its own.
        return
    largest = max(abs(shift) for pair in _shifts(chosen[1], other[1], shape) for shift in pair)
    may_be_half = is_point and other[0].endswith("GeoTransform")
    if largest > (0.5 + TOLERANCE if may_be_half else TOLERANCE):
        message = f"{other[0]} is up to {largest:.4g} cells off {chosen[0]}, which counts"
        findings.append(Finding("MS-28", "error", path, message, list(chosen[1]), list(other[1])))


def _fits(entry: LevelEntry, shape: tuple[int, int], path: str, findings: list[Finding]) -> bool:
    """Whether an array of that shape can be the whole of the tile matrix that its level names."""
    if entry.extent is None:
        return True
    tiles = entry.tile_shape or (1, 1)
    if all(0 <= extent - size < tile for extent, size, tile in zip(entry.extent, shape, tiles, strict=True)):
        return True
    if all(extent == size * tile for extent, size, tile in zip(entry.extent, shape, tiles, strict=True)):
        expected = tuple(-(-size // tile) for size, tile in zip(shape, tiles, strict=True))
        message = f"the tile matrix counts cells, not tiles: {shape}; expected {expected}"
        findings.append(Finding("GZ-44", "error", path, message, expected, shape))
        return True
    message = f"the tile matrix covers {entry.extent} cells, the array {shape}; where it begins is not known"
    findings.append(Finding("GZ-44", "warning", path, message, shape, entry.extent))
    return False
