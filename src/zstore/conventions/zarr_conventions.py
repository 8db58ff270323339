"""The `proj` and `spatial` conventions, and how conventions are declared.

Spec: zarr-conventions/proj v0.1, zarr-conventions/spatial v0.1; STAC's `proj:epsg` and `proj:transform`.
Example: {"proj:code": "EPSG:32632", "spatial:transform": [10, 0, 300000, 0, -10, 5000040]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from sys import float_info
from typing import Any

from zstore.conventions.base import ArrayNode, Facts, Finding, GroupNode, Node, is_array
from zstore.conventions.crs import Crs
from zstore.conventions.model import Affine, GeoModel, Level
from zstore.errors import MetadataError

__all__ = ["declare", "is_number", "parse_numbers", "parse_place", "render_place"]

LARGEST = float_info.max
# name -> (uuid, description). The schemas pin every member of an entry, and readers match the uuid.
DECLARED = {
    "multiscales": ("d35379db-88df-4056-af3a-620245f8e347", "Multiscale layout of zarr datasets"),
    "proj": (
        "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "Coordinate reference system information for geospatial data",
    ),
    "spatial": ("689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "Spatial coordinate information"),
}


def declare(names: Iterable[str]) -> list[dict[str, str]]:
    """The `zarr_conventions` entries of these conventions."""
    return [
        {
            "schema_url": f"https://raw.githubusercontent.com/zarr-conventions/{name}/refs/tags/v0.1/schema.json",
            "spec_url": f"https://github.com/zarr-conventions/{name}/blob/v0.1/README.md",
            "uuid": DECLARED[name][0],
            "name": name,
            "description": DECLARED[name][1],
        }
        for name in names
    ]


def render_place(geo: GeoModel, grid: Level) -> dict[str, Any]:
    """The `proj:` and `spatial:` attributes of a group that holds `grid`.

    `spatial:registration` is left out: "pixel" is its default, and readers that see it stated ask more of
    every level's `transform` than a group of arrays of several ranks can give.
    """
    attributes: dict[str, Any] = {}
    if geo.crs is not None and geo.crs.code is not None:
        attributes["proj:code"] = geo.crs.code
    elif geo.crs is not None:
        attributes["proj:wkt2"] = geo.crs.wkt
    attributes["spatial:dimensions"] = list(geo.dimensions)
    attributes["spatial:shape"] = list(grid.shape)
    if grid.affine is not None:
        attributes["spatial:transform_type"] = "affine"
        attributes["spatial:transform"] = list(grid.affine)
        attributes["spatial:bbox"] = list(grid.affine.bounds(grid.shape))
    return attributes


def parse_place(node: Node, parent: GroupNode | None) -> Facts:
    """What `proj:` and `spatial:` say of a node: its own attributes, then what its direct parent hands down.

    A parent's transform is another grid's where the shapes differ, and is left alone then.
    """
    own = _parse_own(node)
    if parent is None or not is_array(node):
        return own
    handed = _parse_own(parent)
    dimensions = own.dimensions or handed.dimensions
    affines, bbox = handed.affines, handed.bbox
    if handed.shape is not None and _shape(node, dimensions) not in (handed.shape, None):
        affines, bbox = (), None
    return replace(
        own,
        crs=own.crs + handed.crs,
        affines=own.affines + affines,
        dimensions=dimensions,
        bbox=own.bbox or bbox,
    )


def _shape(node: ArrayNode, dimensions: tuple[str, str] | None) -> tuple[int, int] | None:
    """(y, x) of an array; the last two where nothing names them."""
    names = node.dims or ()
    if dimensions is not None and set(dimensions) <= set(names):
        return node.shape[names.index(dimensions[0])], node.shape[names.index(dimensions[1])]
    return None if len(node.shape) < 2 else (node.shape[-2], node.shape[-1])


def _parse_own(node: Node) -> Facts:
    attributes = node.attrs
    findings: list[Finding] = []
    dimensions = attributes.get("spatial:dimensions")
    if dimensions is not None and not _is_names(dimensions):
        findings.append(_wrong(node, "spatial:dimensions", "two names"))
        dimensions = None
    elif dimensions is not None and is_array(node) and not set(dimensions) <= set(node.dims or ()):
        findings.append(_wrong(node, "spatial:dimensions", f"two of {node.dims!r}"))
        dimensions = None
    shape = parse_numbers(attributes.get("spatial:shape"), 2)
    if "spatial:shape" in attributes and (shape is None or any(n < 1 or n != int(n) for n in shape)):
        findings.append(_wrong(node, "spatial:shape", "two positive integers"))
        shape = None
    bbox = parse_numbers(attributes.get("spatial:bbox"), 4)
    if "spatial:bbox" in attributes and (bbox is None or bbox[0] >= bbox[2] or bbox[1] >= bbox[3]):
        findings.append(_wrong(node, "spatial:bbox", "[xmin, ymin, xmax, ymax]"))
        bbox = None
    bbox = bbox or parse_numbers(node.attrs.get("proj:bbox"), 4)
    return Facts(
        crs=_parse_crs(node, findings),
        affines=_parse_transform(node, findings),
        dimensions=None if dimensions is None else (dimensions[0], dimensions[1]),
        shape=None if shape is None else (int(shape[0]), int(shape[1])),
        bbox=None if bbox is None else (bbox[0], bbox[1], bbox[2], bbox[3]),
        findings=tuple(findings),
    )


def _parse_crs(node: Node, findings: list[Finding]) -> tuple[tuple[str, Crs], ...]:
    found: list[tuple[str, Crs]] = []
    for name in ("proj:code", "proj:wkt2", "proj:projjson", "proj:epsg"):
        stated = node.attrs.get(name)
        if stated is None:
            continue
        is_right = isinstance(stated, {"proj:projjson": Mapping, "proj:epsg": int}.get(name, str))
        try:
            if not is_right:
                raise MetadataError(f"it is {stated!r}")
            found.append((name, Crs.from_user(stated)))
        except MetadataError as error:
            findings.append(Finding("ZC-07", "error", node.path, f"{name}: {error.message}", None, stated))
    return tuple(found)


def _parse_transform(node: Node, findings: list[Finding]) -> tuple[tuple[str, Affine], ...]:
    found: list[tuple[str, Affine]] = []
    kind = node.attrs.get("spatial:transform_type", "affine")
    if kind != "affine":
        message = f"spatial:transform_type is {kind!r}, which zstore does not know; the transform is not used"
        findings.append(Finding("ZC-05", "warning", node.path, message, "affine", kind))
    for name in ("spatial:transform", "proj:transform"):
        stated = node.attrs.get(name)
        if stated is None or (name == "spatial:transform" and kind != "affine"):
            continue
        if name == "proj:transform" and not _is_of_this_shape(node, findings):
            continue
        try:
            if not isinstance(stated, (list, tuple)):
                raise MetadataError(f"it is {stated!r}; expected six numbers")
            affine = Affine.from_user(stated)
        except MetadataError as error:
            findings.append(Finding("ZC-05", "error", node.path, f"{name}: {error.message}", None, stated))
            continue
        if name == "spatial:transform" and node.attrs.get("spatial:registration") == "node":
            # The origin is the centre of the first cell then.
            x, y = affine.at(-0.5, -0.5)
            affine = affine._replace(c=x, f=y)
        found.append((name, affine))
    return tuple(found)


def _is_of_this_shape(node: Node, findings: list[Finding]) -> bool:
    """Whether STAC's `proj:shape`, where it is stated, is the array's: overviews inherit the finest's."""
    shape = parse_numbers(node.attrs.get("proj:shape"), 2)
    if shape is None or not is_array(node) or set(shape) <= set(node.shape):
        return True
    message = f"proj:shape is {shape}, the array's shape {node.shape}; proj:transform is another grid's"
    findings.append(Finding("ZC-06", "error", node.path, message, node.shape, shape))
    return False


def parse_numbers(value: Any, count: int) -> tuple[float, ...] | None:
    """`count` finite numbers out of a JSON list; None for anything else."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        return None
    return tuple(value) if all(is_number(number) for number in value) else None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number that float64 can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(name, str) for name in value)
        and value[0] != value[1]
    )


def _wrong(node: Node, name: str, expected: str) -> Finding:
    found = node.attrs[name]
    message = f"{name} is {found!r}; expected {expected}; it is not used"
    return Finding("ZC-05", "error", node.path, message, expected, found)
