"""Every attribute of a raster or a pyramid, in every dialect at once, out of one affine and one CRS."""

from __future__ import annotations

from collections.abc import Sequence

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Document, Documents, Finding, Severity, load_conventions
from zstore.geo.conventions.geozarr import UUIDS, why_no_tiles
from zstore.geo.conventions.model import GeoModel
from zstore.geo.conventions.profiles import Profile, load_profile

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

    `profile` is one of `zstore.geo.conventions.profiles.PROFILES`, for readers or documents that the default
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
    for key, value in document.get("attributes", {}).items():
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
