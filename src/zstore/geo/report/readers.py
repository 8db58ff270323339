"""The programs that can open an array or a group, and the obstacles for others.

Judged by the documents alone, from what these versions of the programs were seen to need; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zstore.geo.conventions.base import GeoModel
from zstore.geo.conventions.cf import is_fill_nodata
from zstore.geo.conventions.geozarr import is_declared
from zstore.geo.conventions.levels import is_ome
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.zarr_names import list_codecs

# fmt: off
BROWSER_CODECS = frozenset((
    "bytes", "transpose", "gzip", "blosc", "zstd", "crc32c", "zlib", "lz4", "sharding_indexed",
))
GDAL_CODECS = frozenset((
    *BROWSER_CODECS - {"sharding_indexed"}, "lzma", "shuffle", "delta", "fixedscaleoffset",
))
# fmt: on


@dataclass(frozen=True)
class Reader:
    """A program, its obstacle to opening the data (`obstacle`), and its misreading of it (`mistake`).

    Both are "" where there is nothing of the kind.
    """

    name: str
    obstacle: str
    mistake: str = ""


@dataclass(frozen=True)
class _ReaderFacts:
    """The facts by which readers are judged: a node, its finest level, an array of data there, its codecs."""

    node: Array | Group
    geo: GeoModel
    level: Array | Group
    data: Array
    codecs: frozenset[str]
    is_consolidated: bool

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self.node.attrs

    @property
    def multiscales(self) -> Mapping[str, Any]:
        stated = self.node.attrs.get("multiscales")
        return stated if isinstance(stated, Mapping) else {}


def judge_readers(node: Array | Group, geo: GeoModel | None) -> list[Reader]:
    """The judgement on every program in zstore's table; [] if there is no raster."""
    seen = _look(node, geo)
    if seen is None:
        return []
    mistaken = {name: _gdal_mistake(seen) for name in JUDGEMENTS if name.startswith("GDAL")}
    return [Reader(name, judge(seen) or "", mistaken.get(name, "")) for name, judge in JUDGEMENTS.items()]


def _look(node: Array | Group, geo: GeoModel | None) -> _ReaderFacts | None:
    if geo is None or not geo.variables:
        return None
    level: Any = node
    if geo.levels and isinstance(node, Group):
        level = node.get(geo.levels[0].path)
    name = next(iter(geo.variables))
    data = level if isinstance(level, Array) else level.get(name) if isinstance(level, Group) else None
    if not isinstance(data, Array):
        return None
    is_consolidated = isinstance(node, Group) and node.model.consolidated is not None
    return _ReaderFacts(node, geo, level, data, frozenset(list_codecs(data.model.codecs)), is_consolidated)


def _gdal(seen: _ReaderFacts) -> str | None:
    if seen.data.zarr_format == 1:
        return "it knows no Zarr v1"
    if "sharding_indexed" in seen.codecs:
        return "it reads shards from 3.13 on"
    unknown = sorted(seen.codecs - GDAL_CODECS)
    if unknown:
        return f"it does not know the codec {', '.join(unknown)}"
    if seen.data.dtype.kind not in "iufc":
        return f"it has no data type {seen.data.dtype}"
    has_crs = "_CRS" in seen.data.attrs or "grid_mapping" in seen.data.attrs
    if not (has_crs or seen.geo.crs is None or is_declared(seen.level, "proj")):
        return "nothing that it reads gives the CRS"
    if seen.geo.affine is not None and seen.geo.affine.is_rotated:
        return "it takes no rotated grid before 3.13"
    return _has_coordinates(seen)


def _gdal_mistake(seen: _ReaderFacts) -> str:
    names = [n for n, v in seen.geo.variables.items() if is_fill_nodata(v, seen.data.zarr_format)]
    whose = f" of {', '.join(names)}" if any(names) else ""
    return f"takes the fill value{whose} for nodata" if names else ""


def _gdal_new(seen: _ReaderFacts) -> str | None:
    if not seen.geo.levels:
        return "there are no levels"
    if seen.node.zarr_format != 3:
        return "it reads levels of Zarr v3 only"
    if not is_declared(seen.node, "multiscales") or "layout" not in seen.multiscales:
        return "there is no layout that zarr_conventions declares"
    return None


def _xarray(seen: _ReaderFacts) -> str | None:
    group = seen.level if isinstance(seen.level, Group) else None
    beside = [seen.data] if group is None else [one for _, one in group.members(unreadable={})]
    if any(isinstance(one, Array) and (one.dims is None or None in one.dims) for one in beside):
        return "not all dimensions have names"
    fill = seen.data.attrs.get("_FillValue")
    if seen.data.zarr_format == 3 and seen.data.dtype.kind == "f" and isinstance(fill, (int, float)):
        return "_FillValue is a number; of floats in Zarr v3 it wants base64"
    return None


def _rioxarray(seen: _ReaderFacts) -> str | None:
    if seen.geo.crs is None:
        return "there is no CRS"
    name = seen.data.attrs.get("grid_mapping")
    if not isinstance(name, str):
        return "there is no grid mapping"
    if name.split()[0].rstrip(":") not in str(seen.data.attrs.get("coordinates", "")).split():
        return "only with decode_coords='all': `coordinates` does not list the grid mapping"
    return _xarray(seen) or _has_coordinates(seen)


def _datatree(seen: _ReaderFacts) -> str | None:
    if seen.geo.levels and seen.geo.levels[0].path == "":
        return "the finest level is the group itself: its coordinates and its levels' conflict"
    return _xarray(seen)


def _openlayers(seen: _ReaderFacts) -> str | None:
    multiscales, attributes = seen.multiscales, seen.attributes
    if not seen.geo.levels:
        return "there are no levels"
    if not seen.is_consolidated:
        return "there is no consolidated metadata"
    unknown = sorted(seen.codecs - BROWSER_CODECS)
    if unknown:
        return f"it does not know the codec {', '.join(unknown)}"
    if "tile_matrix_set" in multiscales:
        if isinstance(multiscales["tile_matrix_set"], str):
            return "tile_matrix_set is a name; it wants the object"
        if "tile_matrix_limits" not in multiscales:
            return "there are no tile_matrix_limits"
    elif not ("layout" in multiscales and "spatial:bbox" in attributes):
        return "there is neither a tile matrix set, nor a layout and spatial:bbox"
    return None


def _rio_tiler(seen: _ReaderFacts) -> str | None:
    if not seen.geo.levels:
        return None if _rioxarray(seen) is None else f"as rioxarray: {_rioxarray(seen)}"
    missing = [n for n in ("multiscales", "proj", "spatial") if not is_declared(seen.node, n)]
    if missing:
        return f"zarr_conventions do not declare {', '.join(missing)}"
    return None if "layout" in seen.multiscales else "multiscales has no layout"


def _ome_zarr(seen: _ReaderFacts) -> str | None:
    ome, former = seen.attributes.get("ome"), seen.attributes.get("multiscales")
    if seen.node.zarr_format == 3:
        return None if isinstance(ome, Mapping) and "multiscales" in ome else "there is no `ome`"
    return None if is_ome(former) else "there are no OME multiscales"


def _has_coordinates(seen: _ReaderFacts) -> str | None:
    group = seen.level
    if isinstance(group, Group) and not all(name in group for name in seen.geo.dimensions):
        return f"there are no coordinates {' and '.join(seen.geo.dimensions)}"
    return None


JUDGEMENTS: dict[str, Callable[[_ReaderFacts], str | None]] = {
    "GDAL 3.12": _gdal,
    "GDAL 3.13, levels": _gdal_new,
    "xarray": _xarray,
    "rioxarray": _rioxarray,
    "xarray DataTree": _datatree,
    "OpenLayers 10.11": _openlayers,
    "rio-tiler 9": _rio_tiler,
    "ome-zarr": _ome_zarr,
}
