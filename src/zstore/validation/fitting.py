"""Which profile a hierarchy was written by, told by the dialects that it speaks."""

from __future__ import annotations

from collections.abc import Mapping

from zstore.conventions.lists import is_image
from zstore.conventions.profiles import ARRAYS, CANDIDATE, GDAL, OME, OME_06
from zstore.conventions.zarr_conventions import CRS_MEMBERS, declared
from zstore.validation.view import Hierarchy


def find_profile(hierarchy: Hierarchy) -> str | None:
    """The name of the one profile whose document a hierarchy follows.

    None where it follows several, as what zstore writes does, or none that has a profile, as CF alone.
    """
    groups = hierarchy.groups
    images = [group for group in groups if is_image(group)]
    stated = [group.attrs.get("multiscales") for group in groups]
    objects = [found for found in stated if isinstance(found, Mapping)]
    if images and not objects:
        versions = [g.attrs["ome"].get("version") for g in images if isinstance(g.attrs.get("ome"), Mapping)]
        return OME_06.name if any(str(version).startswith("0.6") for version in versions) else OME.name
    items = [item for found in stated if isinstance(found, list) for item in found]
    if items and all(isinstance(item, Mapping) and item.get("version") == "0.1" for item in items):
        return ARRAYS.name
    has_mapping = any("grid_mapping" in array.attrs for array in hierarchy.arrays)
    has_crs = any("_CRS" in array.attrs for array in hierarchy.arrays)
    conventions = {name for group in groups for name in declared(group)} & {"proj", "spatial", "multiscales"}
    if conventions and not has_crs and not any("tile_matrix_set" in found for found in objects):
        return CANDIDATE.name
    is_gdals = (
        has_crs and not has_mapping and not any(name in g.attrs for g in groups for name in CRS_MEMBERS)
    )
    return GDAL.name if is_gdals else None
