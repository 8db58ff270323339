"""Which dialects a hierarchy speaks, told by what its documents have, not by whether it is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zstore.conventions.base import Node, is_array, is_group
from zstore.conventions.lists.datasets import is_ome
from zstore.conventions.zarr_conventions import DECLARED

__all__ = ["is_declared", "list_dialects"]

NCZARR = (
    "_nczarr_group",
    "_nczarr_array",
    "_nczarr_attrs",
    "_NCPROPERTIES",
    "_NCZARR_GROUP",
    "_NCZARR_ARRAY",
)


def list_dialects(node: Node, level: str | None = None) -> list[str]:
    """The names of the dialects, of the group, of its finest level at `level`, and of the arrays in both.

    Sorted by what they say: values and coordinates, CRS, place, pyramid, catalogue.
    """
    found: dict[str, None] = {}
    for place in _groups(node, level):
        found |= dict.fromkeys(_of_group(place.attrs) if is_group(place) else _of_array(place.attrs))
        for _, child in place.members() if is_group(place) else ():
            if is_array(child):
                found |= dict.fromkeys(_of_array(child.attrs))
    return list(found)


def is_declared(attributes: Mapping[str, Any], name: str) -> bool:
    """Whether `zarr_conventions` has an entry with the UUID of the convention of this name."""
    stated = attributes.get("zarr_conventions")
    entries = stated if isinstance(stated, (list, tuple)) else ()
    return any(isinstance(entry, Mapping) and entry.get("uuid") == DECLARED[name][0] for entry in entries)


def _groups(node: Node, level: str | None) -> Iterator[Any]:
    yield node
    below: Any = node
    for part in filter(None, (level or "").split("/")):
        below = dict(below.members()).get(part) if is_group(below) else None
    if level and below is not None:
        yield below


def _of_group(attributes: Mapping[str, Any]) -> Iterable[str]:
    if "CF-" in str(attributes.get("Conventions", "")):
        yield "CF"
    if any(key in attributes for key in NCZARR):
        yield "NCZarr"
    yield from _of_place(attributes)
    stated, ome = attributes.get("multiscales"), attributes.get("ome")
    if isinstance(stated, Mapping):
        if "layout" in stated:
            yield "zarr-conventions multiscales" if is_declared(attributes, "multiscales") else "layout"
        if "tile_matrix_set" in stated:
            yield "GeoZarr tile matrix set"
    elif isinstance(stated, (list, tuple)):
        yield f"OME-Zarr {_version(stated[0])}" if is_ome(stated) else "Multiscale Arrays"
    if isinstance(ome, Mapping):
        yield f"OME-Zarr {_version(ome)}"
    if any(key.startswith("stac:") for key in attributes):
        yield "STAC"


def _of_array(attributes: Mapping[str, Any]) -> Iterable[str]:
    if "grid_mapping" in attributes:
        yield "CF grid mapping"
    if "_CRS" in attributes:
        yield "GDAL _CRS"
    if "GeoTransform" in attributes:
        yield "GDAL GeoTransform"
    if any(key in attributes for key in NCZARR):
        yield "NCZarr"
    yield from _of_place(attributes)
    if "bands" in attributes or "eo:bands" in attributes:
        yield "STAC bands"


def _of_place(attributes: Mapping[str, Any]) -> Iterable[str]:
    for name in ("proj", "spatial"):
        if any(key.startswith(f"{name}:") for key in attributes):
            # A convention is its UUID; the same words without it are older, or STAC's.
            yield f"zarr-conventions {name}" if is_declared(attributes, name) else f"{name}:"


def _version(stated: Any) -> str:
    return str(stated.get("version", "")) if isinstance(stated, Mapping) else ""
