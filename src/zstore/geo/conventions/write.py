"""Every attribute of a raster or a pyramid, in every dialect at once, out of one affine and one CRS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zstore.errors import MetadataError
from zstore.extensions import builtin
from zstore.geo.conventions.base import Document, Documents, Finding, GeoModel, Severity, load_conventions
from zstore.geo.conventions.cf import CRS_VARIABLE
from zstore.geo.conventions.geozarr import UUIDS, why_no_tiles
from zstore.geo.conventions.levels import Multiscales, to_06
from zstore.model.document import spelled

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
RULED = builtin.PROFILES


# Attributes of groups that are rendered anew, and those of a single grid that they replace.
RENDERED = frozenset(("Conventions", "grid_mapping", "multiscales", "_ARRAY_DIMENSIONS"))
RENDERED_PREFIXES = ("proj:", "spatial:")
RENDERED_UUIDS = frozenset(UUIDS[name] for name in ("multiscales", "proj", "spatial"))


def render_geo(
    geo: GeoModel, zarr_format: int, conventions: Sequence[str] | None = None, *, profile: str | None = None
) -> tuple[Documents, list[Finding]]:
    """The documents of a raster or a pyramid by path relative to its group, and findings about gaps in them.

    "" is the group itself. A pyramid has one group per level; each holds the arrays of data, the coordinate
    variables and `spatial_ref`, whose values come along as `data`. Arrays of data are for the caller to cut,
    encode and fill: their documents hold attributes, dimension names and `fill_value` only.

    `profile` is one of `zstore.geo.conventions.write.PROFILES`, for readers or documents that the default
    cannot satisfy; `conventions` are taken in place of the profile's.

    Raises
        MetadataError: the model contradicts itself, two conventions say different things in one attribute, or
            there is no such profile, or none for this model or format.
    """
    chosen = load_profile(profile)
    if zarr_format not in (2, 3):
        raise MetadataError(f"Zarr format is {zarr_format!r}; expected 2 or 3")
    _check_model(geo)
    documents: Documents = {}
    names = (*chosen.conventions, *geo.plugins) if conventions is None else conventions
    for convention in load_conventions(list(dict.fromkeys(names))):
        for path, document in convention.render(geo, zarr_format).items():
            _merge(documents.setdefault(path, Document(attributes={})), document, path, convention.name)
    if chosen.finish is not None:
        chosen.finish(geo, zarr_format, documents)
    return documents, _notices(geo, chosen)


def _merge(into: Document, document: Document, path: str, name: str) -> None:
    attributes = into["attributes"]
    for key, value in spelled(document.get("attributes", {})).items():
        if key in attributes and attributes[key] != value:
            if key == "zarr_conventions":
                attributes[key] = attributes[key] + [entry for entry in value if entry not in attributes[key]]
                continue
            raise MetadataError(
                f"convention {name!r} wants {key!r} to be {value!r}, another one {attributes[key]!r}; "
                "expected one value",
                path=path,
            )
        attributes[key] = value
    if document.get("kind", into.get("kind")) != into.get("kind", document.get("kind")):
        raise MetadataError(f"convention {name!r} wants another kind of node than the others", path=path)
    into.update({**document, "attributes": attributes})


def _check_model(geo: GeoModel) -> None:
    taken = {*geo.dimensions, "spatial_ref"} & set(geo.variables)
    if taken:
        raise MetadataError(
            f"arrays of data are named {sorted(taken)}; those names are the coordinates' and the CRS's"
        )
    if len(set(geo.dimensions)) != 2:
        raise MetadataError(f"dimensions are {geo.dimensions!r}; expected two names")
    for name, variable in geo.variables.items():
        if variable.dimensions and not set(geo.dimensions) <= set(variable.dimensions):
            raise MetadataError(
                f"dimensions of {name!r} are {variable.dimensions!r}; expected {geo.dimensions!r} in them"
            )
    if not geo.levels:
        return
    base = geo.levels[0]
    if base.shape != geo.shape or base.affine != geo.affine:
        raise MetadataError(
            f"the finest level is {base.shape} at {base.affine}; expected {geo.shape} at {geo.affine}"
        )
    paths = [level.path for level in geo.levels]
    if "" in paths or len(set(paths)) != len(paths):
        raise MetadataError(f"paths of the levels are {paths}; expected different names below the group")
    for level in geo.levels:
        if geo.affine is not None and level.affine != geo.affine.scaled(level.factors):
            raise MetadataError(
                f"affine of level {level.path!r} is {level.affine}; expected "
                f"{geo.affine.scaled(level.factors)}: cells {level.factors} times the finest, one corner"
            )


def _notices(geo: GeoModel, profile: Profile) -> list[Finding]:
    findings = []
    if profile.needs_levels and not geo.levels:
        message = f"profile {profile.name!r} lists the levels of a pyramid; a plain raster has none to list"
        findings.append(Finding("GZ-37", "note", "", message))
    if geo.crs is None:
        message = "no CRS: proj:, _CRS, grid_mapping and spatial_ref are left out"
        findings.append(Finding("MS-04", "note", "", message))
    if geo.affine is None:
        findings.append(Finding("ZC-05", "note", "", "no affine: transforms and coordinates are left out"))
    elif geo.affine.is_rotated:
        message = (
            "the grid is rotated: there are no coordinates per dimension, the affine alone says where it is"
        )
        findings.append(Finding("MS-11", "note", "", message))
    reason = why_no_tiles(geo) if geo.levels else None
    if reason is not None and profile.has_tiles:
        # Of what lies nowhere known, nobody expects tiles.
        severity: Severity = "note" if geo.crs is None or geo.affine is None else "warning"
        findings.append(Finding("GZ-37", severity, "", f"no tile_matrix_set: {reason}"))
    return findings
