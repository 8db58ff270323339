"""Validation: a hierarchy is checked by every rule that applies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from zstore.engine.documents import check_path, place
from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.extensions import builtin
from zstore.geo.conventions.base import Finding
from zstore.geo.conventions.geozarr import CRS_MEMBERS, declared, uses
from zstore.geo.conventions.levels import is_image
from zstore.geo.conventions.write import (
    ARRAYS,
    AUTO,
    CANDIDATE,
    GDAL,
    OME,
    OME_06,
    RULED,
    Profile,
    load_profile,
)
from zstore.geo.validation.rules import documents, georeference, ome, pyramids, values
from zstore.geo.validation.rules.georeference import is_time
from zstore.geo.validation.verdict import ClassVerdict, State, Verdict
from zstore.geo.validation.view import (
    CANDIDATE_CLASSES,
    CLASS_URI,
    CLASSES,
    RULES,
    SEVERITIES,
    Hierarchy,
    Rule,
    load_hierarchy,
    milder,
)
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.node import advise_options
from zstore.nodes.open import StoreLike
from zstore.storage.url import open_by_content, open_store

Target = StoreLike | Array | Group
# The rules that belong to the class "projected" too, where a CRS is projected.
PROJECTED = frozenset(("MS-07", "MS-08", "OC-05", "GZ-40"))
# Every module of rules, and the first letters of their ids in the order of the documents that require them.
THEMES = (documents, georeference, pyramids, values, ome)
PREFIXES = ("GZ", "MS", "OC", "ZC", "GC", "OME", "ZS")
BAND_NAMES = ("band", "bands", "wavelength", "spectral")


@advise_options
def validate(
    target: Target,
    profile: str | None = None,
    classes: Iterable[str] | None = None,
    deep: bool = False,
    *,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Verdict:
    """The verdict on a hierarchy: errors, warnings and notes about its documents.

    profile  "geozarr-draft", "geozarr-mini", "geozarr-1.0", "multiscale-arrays", "ome", "ome-0.6" or
             "gdal": the rules of that document, as severe as it has them. "auto": of the document that the
             hierarchy was written by, if one is known. None: all rules; what only one document wants is a
             warning then
    classes  only the rules of these requirements classes: core, time, crs, geotransform, overviews, stac,
             projected, bands; under "geozarr-1.0" core, proj, spatial, multiscales
    deep     look at values too: samples of levels are made anew, stored chunks listed, units compared

    Whatever is wrong in the store becomes a finding; nothing is written.

    Raises
        NotFoundError: there is neither an array nor a group.
        MetadataError: no such profile or class.
        StoreError: the store failed.
        UnsupportedError: there is a CRS, and pyproj is not installed.
    """
    chosen = None if classes is None else tuple(classes)
    for name in chosen or ():
        if name not in builtin.CLASSES:
            raise MetadataError(f"class is {name!r}; expected one of {', '.join(builtin.CLASSES)}")
    hierarchy = open_hierarchy(target, profile, deep, path=path, storage_options=storage_options)
    return check_hierarchy(hierarchy, chosen)


def open_hierarchy(
    target: Target,
    profile: str | None = None,
    deep: bool = False,
    *,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Hierarchy:
    """The hierarchy to validate, read from its store; arguments and errors are those of `validate`."""
    if profile is not None and profile not in (*RULED, AUTO):
        raise MetadataError(f"profile is {profile!r}; expected one of {', '.join((*RULED, AUTO))}")
    if isinstance(target, Array | Group):
        store, base = target.store.as_read_only(), target.path
    else:
        store, base = open_store(target, read_only=True, storage_options=storage_options), ""
    below = check_path(path)
    try:
        hierarchy = load_hierarchy(store, "/".join(filter(None, (base, below))))
    except (NotFoundError, StoreError):
        file = open_by_content(target, storage_options)
        if file is None:
            raise
        hierarchy = load_hierarchy(file[0], "/".join(filter(None, (file[1], below))))
    name = _find_profile(hierarchy) if profile == AUTO else profile
    hierarchy.profile, hierarchy.is_deep = None if name is None else load_profile(name), deep
    return hierarchy


def _find_profile(hierarchy: Hierarchy) -> str | None:
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


def all_rules() -> dict[str, Rule]:
    """Every rule by its id, in the order of the specifications."""
    return dict(sorted(RULES.items(), key=lambda item: _rank(item[0])))


def _rank(id: str) -> tuple[int, str]:
    prefix = id.partition("-")[0]
    return (PREFIXES.index(prefix) if prefix in PREFIXES else len(PREFIXES), id)


def check_hierarchy(hierarchy: Hierarchy, classes: tuple[str, ...] | None = None) -> Verdict:
    """The verdict on a hierarchy."""
    rules = all_rules()
    is_projected = _is_projected(hierarchy)
    applied = [
        rule
        for rule in rules.values()
        if rule.is_in(hierarchy.profile)
        and (not rule.is_deep or hierarchy.is_deep)
        and (classes is None or _classes_of(rule, hierarchy.profile, is_projected) & set(classes))
    ]
    if hierarchy.profile is not None:
        # Where two rules say the same, the profile's own stands.
        stood_for = {rule.same_as for rule in applied}
        applied = [rule for rule in applied if rule.id not in stood_for]
    kept: dict[str, Finding] = {}
    for finding in _findings(hierarchy, {rule.id: rule for rule in applied}, rules):
        kept.setdefault(repr((finding.rule, finding.path, finding.message)), finding)
    findings = sorted(kept.values(), key=lambda f: (SEVERITIES.index(f.severity), f.rule, f.path))
    failed = {
        name
        for finding in findings
        if finding.severity == "error"
        for name in (
            _classes_of(rules[finding.rule], hierarchy.profile, is_projected)
            if finding.rule in rules
            else {"core"}
        )
    }
    has_own = hierarchy.profile is not None and hierarchy.profile.rules is not None
    names = CANDIDATE_CLASSES if has_own else CLASSES
    states = [ClassVerdict(name, _state(hierarchy, name, failed, classes)) for name in names]
    findings += _check_claims(hierarchy, states, applied)
    where = place(hierarchy.store, hierarchy.root.path)
    ids = tuple(rule.id for rule in applied)
    profile = None if hierarchy.profile is None else hierarchy.profile.name
    return Verdict(where, tuple(findings), ids, tuple(states), profile, hierarchy.is_deep)


def _findings(
    hierarchy: Hierarchy, applied: Mapping[str, Rule], rules: Mapping[str, Rule]
) -> Iterator[Finding]:
    # Under a profile, its own rule stands for the one that says the same.
    own = {rule.same_as: rule.id for rule in applied.values() if hierarchy.profile is not None}
    for finding in hierarchy.readings:
        finding = replace(finding, rule=own.get(finding.rule, finding.rule))
        rule = applied.get(finding.rule)
        if rule is None and finding.rule not in rules:
            # A convention that came with a plugin has rules of its own.
            yield finding
        elif rule is not None:
            # Without a profile, an error of `read_geo` is one here.
            is_error = hierarchy.profile is None and finding.severity == "error"
            mildest = finding.severity if is_error else rule.severity_under(hierarchy.profile)
            yield replace(finding, severity=milder(mildest, finding.severity))
    for rule in applied.values():
        try:
            for found in rule.find(hierarchy):
                severity = milder(rule.severity_under(hierarchy.profile), found.severity)
                path = found.node.path
                said = (found.message, found.expected, found.found)
                yield Finding(rule.id, severity, path, *said, mend=found.mend)
        except (StoreError, UnsupportedError):
            raise
        except Exception as error:
            # Whatever a store holds, the other rules are checked.
            message = f"rule {rule.id} could not be checked to its end: {type(error).__name__}: {error}"
            yield Finding("ZS-01", "error", hierarchy.root.path, message)


def _classes_of(rule: Rule, profile: Profile | None, is_projected: bool) -> set[str]:
    """The requirements classes that a rule is part of."""
    if profile is not None and profile.rules is not None:
        return {profile.rules.get(rule.id, "core")}
    more = {"projected"} if is_projected and rule.id in PROJECTED else set()
    return {rule.requirements_class, *more}


def _is_projected(hierarchy: Hierarchy) -> bool:
    return any(grid.crs is not None and not grid.crs.is_geographic for grid in hierarchy.grids.values())


def _state(hierarchy: Hierarchy, name: str, failed: set[str], classes: tuple[str, ...] | None) -> State:
    if classes is not None and name not in classes:
        return "not checked"
    if name in failed:
        return "fail"
    if not _is_applicable(hierarchy, name):
        return "not applicable"
    # All classes build upon core.
    return "fail" if "core" in failed else "pass"


def _is_applicable(hierarchy: Hierarchy, name: str) -> bool:
    """Whether a hierarchy has anything to which a requirements class applies."""
    held = hierarchy.grids.values()
    if name == "time":
        coordinates = (hierarchy.meaning.roles(group).coordinates.values() for group in hierarchy.groups)
        return any(is_time(coordinate) for found in coordinates for coordinate in found)
    if name == "crs":
        return any(grid.stated_crs for grid in held)
    if name == "geotransform":
        return any(grid.stated_affines for grid in held)
    if name == "overviews":
        return bool(hierarchy.pyramids)
    if name == "stac":
        return any(key.startswith("stac") for node in hierarchy.nodes for key in node.attrs)
    if name == "projected":
        return _is_projected(hierarchy)
    if name in CANDIDATE_CLASSES[1:]:
        return any(name in declared(group) or uses(group, name) for group in hierarchy.nodes)
    if name == "bands":
        names = {str(n).lower() for grid in held for n in grid.node.dims or ()}
        return bool(names & set(BAND_NAMES))
    return True


def _check_claims(
    hierarchy: Hierarchy, states: Iterable[ClassVerdict], applied: Iterable[Rule]
) -> Iterator[Finding]:
    """Report classes in `conformsTo` that are not met."""
    claimed = hierarchy.root.attrs.get("conformsTo")
    if not isinstance(claimed, list) or not any(rule.id == "GZ-01" for rule in applied):
        return
    by_uri = {verdict.uri: verdict for verdict in states}
    for uri in claimed:
        verdict = by_uri.get(uri) if isinstance(uri, str) else None
        is_unknown = verdict is None and isinstance(uri, str) and uri.startswith(CLASS_URI)
        if is_unknown or (verdict is not None and verdict.state in ("fail", "not applicable")):
            state = "unknown" if verdict is None else verdict.state
            message = f"conformsTo claims {uri!r}, which is: {state}"
            yield Finding("GZ-01", "note", hierarchy.root.path, message, "pass", state)
