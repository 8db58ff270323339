"""Profiles: what is written for one reader or one specification, where no hierarchy satisfies them all.

What is written by default satisfies GeoZarr's draft and mini spec as far as they agree, zarr-conventions, CF,
GDAL, xarray and rioxarray, OpenLayers, rio-tiler and morecantile together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Documents
from zstore.geo.conventions.gdal import CRS_VARIABLE
from zstore.geo.conventions.geozarr import UUIDS
from zstore.geo.conventions.lists import Multiscales, to_06
from zstore.geo.conventions.model import GeoModel

DEFAULT = ("geozarr", "cf", "gdal", "time", "bands", "stac")


@dataclass(frozen=True)
class Profile:
    """A choice of conventions to write, and of changes to their documents.

    levels_in     the convention that has to state the levels; None: any of them
    needs_levels  whether it differs from the default only for pyramids
    has_tiles     whether a tile matrix set is written
    has_mapping   whether there is a grid mapping variable
    wants_all     whether it requires all that it describes: coordinates however long, every attribute
    rules         the ids of its rules, each with its conformance class; None: all rules that are not another
                  profile's, in the classes of GeoZarr's draft
    """

    name: str
    conventions: tuple[str, ...] = DEFAULT
    finish: Callable[[GeoModel, int, Documents], None] | None = None
    levels_in: str | None = None
    needs_levels: bool = False
    has_tiles: bool = True
    has_mapping: bool = True
    wants_all: bool = False
    rules: Mapping[str, str] | None = None


def load_profile(name: str | None) -> Profile:
    """The profile of that name; None is the default.

    Raises
        MetadataError: there is none.
    """
    if name is None:
        return DEFAULT_PROFILE
    if name not in PROFILES:
        raise MetadataError(f"profile is {name!r}; expected one of {', '.join(PROFILES)}")
    return PROFILES[name]


def _finish_draft(geo: GeoModel, zarr_format: int, documents: Documents) -> None:
    # The draft demands TMS 1.0's member beside the 2.0 set; morecantile takes no set that has both.
    tile_matrix_set = documents[""]["attributes"].get("multiscales", {}).get("tile_matrix_set")
    if tile_matrix_set is not None:
        tile_matrix_set["supportedCRS"] = tile_matrix_set["crs"]


def _finish_mini(geo: GeoModel, zarr_format: int, documents: Documents) -> None:
    has_mapping = any(path.rpartition("/")[2] == CRS_VARIABLE for path in documents)
    for document in documents.values():
        attributes = document["attributes"]
        if document.get("kind") == "array" and zarr_format == 3:
            attributes["_ARRAY_DIMENSIONS"] = list(document["dimension_names"])
    for path in [level.path for level in geo.grids] if has_mapping else []:
        documents[path]["attributes"]["grid_mapping"] = CRS_VARIABLE


def _finish_list(geo: GeoModel, zarr_format: int, documents: Documents) -> None:
    if not geo.levels:
        return
    attributes = documents[""]["attributes"]
    attributes.update(Multiscales().render(geo, zarr_format)[""]["attributes"])
    uuid = UUIDS["multiscales"]
    attributes["zarr_conventions"] = [e for e in attributes["zarr_conventions"] if e.get("uuid") != uuid]


def _finish_gdal(geo: GeoModel, zarr_format: int, documents: Documents) -> None:
    for path in [path for path in documents if path.rpartition("/")[2] == CRS_VARIABLE]:
        del documents[path]
    for document in documents.values():
        attributes = document["attributes"]
        if attributes.pop("grid_mapping", None) is None:
            continue
        others = [name for name in attributes["coordinates"].split() if name != CRS_VARIABLE]
        attributes["coordinates"] = " ".join(others)
        if not others:
            del attributes["coordinates"]


def _finish_ome_06(geo: GeoModel, zarr_format: int, documents: Documents) -> None:
    attributes = documents[""]["attributes"]
    if "ome" in attributes:
        attributes["ome"] = to_06(attributes["ome"])


# What all readers take together.
DEFAULT_PROFILE = Profile("default")
# GeoZarr's draft to the letter: supportedCRS, too.
DRAFT = Profile("geozarr-draft", finish=_finish_draft, levels_in="geozarr")
# GeoZarr's mini spec to the letter: _ARRAY_DIMENSIONS in Zarr v3, grid_mapping of groups.
MINI = Profile("geozarr-mini", finish=_finish_mini, levels_in="geozarr", wants_all=True)
# Multiscale Arrays' list as `multiscales`, in place of GeoZarr's object.
ARRAYS = Profile(
    "multiscale-arrays", finish=_finish_list, levels_in="multiscales", needs_levels=True, has_tiles=False
)
# OME-Zarr 0.5 as well; Zarr v3 only.
OME = Profile("ome", (*DEFAULT, "ome"), levels_in="ome", needs_levels=True)
# OME-Zarr 0.6 as well, with coordinateSystems; Zarr v3 only.
OME_06 = Profile("ome-0.6", (*DEFAULT, "ome"), _finish_ome_06, levels_in="ome", needs_levels=True)
# What GDAL writes itself: _CRS and coordinates, no grid mapping, no tile matrix set.
GDAL = Profile(
    "gdal",
    ("zarr_conventions", "cf", "gdal", "time", "bands", "stac"),
    _finish_gdal,
    has_tiles=False,
    has_mapping=False,
)
# The rules of each of the three conventions, and those of any Zarr.
CANDIDATE_RULES = {
    "proj": ("GC-02", "ZC-07", "OC-08"),
    "spatial": ("GC-03", "ZC-05"),
    "multiscales": ("GC-04", "ZC-02", "ZC-03", "ZC-06", "GZ-33", "GZ-49"),
    "core": (
        "GC-01", "ZC-01", "GZ-04", "GZ-05", "GZ-06", "GZ-07", "GZ-20", "ZS-01", "ZS-02", "ZS-03", "ZS-04",
    ),
}  # fmt: skip
# GeoZarr 1.0's release candidate: the conventions proj, spatial and multiscales v0.1, no tile matrix set.
CANDIDATE = Profile(
    "geozarr-1.0",
    ("zarr_conventions", "cf", "gdal", "time", "bands", "stac"),
    levels_in="zarr_conventions",
    has_tiles=False,
    rules={rule: name for name, rules in CANDIDATE_RULES.items() for rule in rules},
)
PROFILES = {
    profile.name: profile for profile in (DEFAULT_PROFILE, DRAFT, MINI, CANDIDATE, ARRAYS, OME, OME_06, GDAL)
}
# This name stands for the profile that a hierarchy was written by.
AUTO = "auto"
# The profiles that can be validated against; without one, all rules apply.
RULED = tuple(name for name in PROFILES if name != DEFAULT_PROFILE.name)
