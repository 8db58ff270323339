"""Rules about where things lie: CRS and affine, in every dialect that says them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zstore.conventions.crs import Crs
from zstore.conventions.gdal import parse_geotransform
from zstore.conventions.levels import Grid
from zstore.conventions.profiles import DRAFT, MINI
from zstore.errors import MetadataError
from zstore.validation.rule import Found, rule
from zstore.validation.view import GroupView, Hierarchy, mapping_of

__all__ = ["found_by_reading", "is_longitude_latitude"]

DEGREES = ("degrees_east", "degrees_north", "degree_east", "degree_north")


def found_by_reading(hierarchy: Hierarchy) -> Iterator[Found]:
    """What reading the georeference finds is all there is to these rules."""
    yield from ()


@rule("GZ-28", "error", "geotransform", "draft 8.1.8",
      "GeoTransform is six numbers in GDAL's order, AREA_OR_POINT Area or Point, spatial_ref a CRS.",
      "write c a b f d e: x of the corner, width, 0, y of the corner, 0, minus the height")  # fmt: skip
def check_gdal_keys(hierarchy: Hierarchy) -> Iterator[Found]:
    for node in hierarchy.nodes:
        if "GeoTransform" in node.attrs:
            found = node.attrs["GeoTransform"]
            try:
                affine = parse_geotransform(found)
            except MetadataError as error:
                yield Found(node, error.message, "six numbers", found)
                continue
            if affine.a == 0 and affine.e != 0:
                # No rotation comes to that; a b c d e f does.
                message = f"GeoTransform is {found!r}, which is in rasterio's order"
                yield Found(node, message, "c a b f d e", found)
        found = node.attrs.get("AREA_OR_POINT")
        if found not in (None, "Area", "Point"):
            yield Found(node, f"AREA_OR_POINT is {found!r}", "Area or Point", found)
    for grid in hierarchy.grids.values():
        if "spatial_ref" in grid.node.attrs:
            trouble = _crs_trouble(grid.node.attrs["spatial_ref"])
            if trouble is not None:
                yield Found(grid.node, f"spatial_ref: {trouble}", "a CRS", grid.node.attrs["spatial_ref"])


def _crs_trouble(value: Any) -> str | None:
    try:
        Crs.from_user(value)
    except MetadataError as error:
        return error.message
    return None


rule("GZ-29", "error", "geotransform", "draft 8.1.8",
     "Coordinates are the centres of the cells that the transform gives, regularly spaced.",
     "write the centres (zstore fix does)", is_read=True)(found_by_reading)  # fmt: skip
rule("MS-28", "error", "overviews", "mini spec, derived",
     "Origin, cell size, GeoTransform and coordinates of every level agree.",
     "write the transform of each level's own grid (zstore fix does)",
     is_read=True)(found_by_reading)  # fmt: skip
rule("OC-05", "error", "crs", "OGC Zarr 2.0 4.4.1; CF 5.6",
     "crs_wkt of the grid mapping variable is a CRS, and its parameters say the same.",
     "write the parameters of the CRS that crs_wkt is (zstore fix does)",
     is_read=True)(found_by_reading)  # fmt: skip
rule("OC-06", "error", "crs", "OGC Zarr 2.0 4.4.2",
     "_CRS is an object with url, wkt or projjson, on the array.",
     'write {"url": ..., "wkt": ..., "projjson": ...} (zstore fix does)',
     is_read=True)(found_by_reading)  # fmt: skip
rule("OC-07", "error", "crs", "OGC Zarr 2.0 4.4.2",
     "Every member of _CRS is a CRS: readers try url, then wkt, then projjson.",
     "correct the member, or leave it out (zstore fix does)", general="warning", is_read=True)(
     found_by_reading)  # fmt: skip


@rule("OC-08", "error", "crs", "OGC Zarr 2.0 4.4",
      "Everything that states a CRS for an array states the same.",
      "decide which is right, and write it everywhere (zstore fix --crs does)")  # fmt: skip
def check_one_crs(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid in hierarchy.grids.values():
        for source, crs in grid.stated_crs[1:]:
            first, other = grid.stated_crs[0]
            if not crs.is_same(other):
                names = [found.code or found.wkt.partition(",")[0] for found in (crs, other)]
                message = f"{source} is {names[0]}, {first} is {names[1]}"
                yield Found(grid.node, message, names[1], names[0])


def is_longitude_latitude(hierarchy: Hierarchy, grid: Grid) -> bool:
    """Whether a grid's coordinates are degrees of longitude and latitude by their own attributes."""
    parent = grid.node.parent
    arrays = {} if parent is None else parent.arrays
    y, x = (arrays[name].attrs if name in arrays else {} for name in grid.dimensions)
    names = (y.get("standard_name"), x.get("standard_name"))
    return names == ("latitude", "longitude") or (y.get("units") in DEGREES and x.get("units") in DEGREES)


@rule("OC-09", "note", "crs", "OGC Zarr 2.0 4.4",
      "Data by longitude and latitude without a CRS are common, and taken for OGC:CRS84.",
      "state the CRS")  # fmt: skip
def check_assumed_crs(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid in hierarchy.grids.values():
        if grid.crs is None and is_longitude_latitude(hierarchy, grid):
            yield Found(grid.node, "there is no CRS; OGC:CRS84 is assumed", "a CRS")


def _has_mapping(hierarchy: Hierarchy, group: GroupView) -> bool:
    named = [mapping_of(array)[1] for array in hierarchy.roles(group).data.values()]
    return any(mapping is not None and _carries_crs(mapping.attrs) for mapping in named)


def _carries_crs(attributes: Mapping[str, Any]) -> bool:
    return any(name in attributes for name in ("crs_wkt", "spatial_ref", "grid_mapping_name"))


@rule("MS-04", "error", "crs", "mini spec, Dataset, attributes",
      "A group of grids has an array with the CRS, which grid_mapping names.",
      "add spatial_ref, and grid_mapping to the data (zstore fix does, where a CRS is stated anywhere)",
      general="warning")  # fmt: skip
def check_has_crs(hierarchy: Hierarchy) -> Iterator[Found]:
    for group in hierarchy.groups:
        held = hierarchy.grids_of(group)
        if not held or _has_mapping(hierarchy, group):
            continue
        if hierarchy.wants_all:
            yield Found(group, "no grid_mapping of its arrays leads to a CRS", "spatial_ref")
        else:
            is_stated = any(g.crs is not None or is_longitude_latitude(hierarchy, g) for g in held.values())
            is_above = any("proj:" in name for node in group.ancestors() for name in node.attrs)
            if not is_stated and not is_above:
                yield Found(group, "nothing says the CRS of its arrays", "a CRS")


@rule("MS-05", "error", "crs", "mini spec, Dataset, CF compliance",
      "Every array of data names its grid mapping, which carries a CRS.",
      "add grid_mapping (zstore fix does, where a CRS is stated anywhere)", general="warning",
      profiles=(MINI, DRAFT))  # fmt: skip
def check_data_mapping(hierarchy: Hierarchy) -> Iterator[Found]:
    for grid in hierarchy.grids.values():
        parent = grid.node.parent
        name, mapping = mapping_of(grid.node)
        if name is None:
            neighbours = parent is not None and _has_mapping(hierarchy, parent)
            if neighbours or grid.crs is not None:
                yield Found(grid.node, "there is no grid_mapping", "the name of the array with the CRS")
        elif mapping is not None and not _carries_crs(mapping.attrs):
            yield Found(grid.node, f"grid_mapping is {name!r}, which carries no CRS", "crs_wkt", name)
