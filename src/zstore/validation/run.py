"""Looking at a hierarchy by every rule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from zstore.conventions.base import Finding
from zstore.engine.documents import check_path, place
from zstore.errors import MetadataError
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.storage.base import Store
from zstore.storage.url import open_store
from zstore.validation.places import grids, pyramids, readings, roles
from zstore.validation.rule import CLASS_URI, CLASSES, PROFILES, SEVERITIES, Rule, all_rules, milder
from zstore.validation.rules.coordinates import is_time
from zstore.validation.verdict import ClassVerdict, State, Verdict
from zstore.validation.view import Hierarchy, load_hierarchy

__all__ = ["check_hierarchy", "open_hierarchy", "validate"]

Target = str | os.PathLike[str] | Store | Array | Group
# What a projected CRS makes part of its class too.
PROJECTED = frozenset(("MS-07", "MS-08", "OC-05", "GZ-40"))
BAND_NAMES = ("band", "bands", "wavelength", "spectral")


def validate(
    target: Target,
    profile: str | None = None,
    classes: Iterable[str] | None = None,
    deep: bool = False,
    *,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Verdict:
    """Whether what a hierarchy says of itself is right, and what readers will make of it.

    profile  "geozarr-draft", "geozarr-mini", "multiscale-arrays", "ome" or "gdal": the rules of that
             document, as severe as it has them. None: all rules; what only one document wants is a
             warning then
    classes  only the rules of these requirements classes: core, time, crs, geotransform, overviews, stac,
             projected, bands
    deep     look at values too: samples of levels are made anew, stored chunks listed, units compared

    Whatever the store holds comes out as a finding; nothing is written.

    Raises
        NotFoundError: there is neither an array nor a group.
        MetadataError: no such profile or class.
        StoreError: the store failed.
        UnsupportedError: there is a CRS, and pyproj is not installed.
    """
    chosen = None if classes is None else tuple(classes)
    for name in chosen or ():
        if name not in CLASSES:
            raise MetadataError(f"class is {name!r}; expected one of {', '.join(CLASSES)}")
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
    """What there is to look at; the arguments and errors are those of `validate`."""
    if profile is not None and profile not in PROFILES:
        raise MetadataError(f"profile is {profile!r}; expected one of {', '.join(PROFILES)}")
    if isinstance(target, Array | Group):
        store, base = target.store.as_read_only(), target.path
    else:
        store, base = open_store(target, read_only=True, storage_options=storage_options), ""
    below = check_path(path)
    hierarchy = load_hierarchy(store, "/".join(filter(None, (base, below))))
    hierarchy.profile, hierarchy.is_deep = profile, deep
    return hierarchy


def check_hierarchy(hierarchy: Hierarchy, classes: tuple[str, ...] | None = None) -> Verdict:
    """The verdict on a hierarchy."""
    rules = all_rules()
    is_projected = _is_projected(hierarchy)
    looked_at = [
        rule
        for rule in rules.values()
        if rule.is_in(hierarchy.profile)
        and (not rule.is_deep or hierarchy.is_deep)
        and (classes is None or _classes_of(rule, is_projected) & set(classes))
    ]
    if hierarchy.profile is not None:
        # Where two rules say the same, the profile's own stands.
        stood_for = {rule.same_as for rule in looked_at}
        looked_at = [rule for rule in looked_at if rule.id not in stood_for]
    kept: dict[str, Finding] = {}
    for finding in _findings(hierarchy, {rule.id: rule for rule in looked_at}, rules):
        kept.setdefault(repr((finding.rule, finding.path, finding.message)), finding)
    findings = sorted(kept.values(), key=lambda f: (SEVERITIES.index(f.severity), f.rule, f.path))
    failed = {
        name
        for finding in findings
        if finding.severity == "error"
        for name in (_classes_of(rules[finding.rule], is_projected) if finding.rule in rules else {"core"})
    }
    states = [ClassVerdict(name, _state(hierarchy, name, failed, classes)) for name in CLASSES]
    findings += _hold_to_claims(hierarchy, states, looked_at)
    where = place(hierarchy.store, hierarchy.root.path)
    ids = tuple(rule.id for rule in looked_at)
    return Verdict(where, tuple(findings), ids, tuple(states), hierarchy.profile, hierarchy.is_deep)


def _findings(
    hierarchy: Hierarchy, looked_at: Mapping[str, Rule], rules: Mapping[str, Rule]
) -> Iterator[Finding]:
    # Reading the georeference first: what it cannot read shows in the nodes' troubles.
    grids(hierarchy)
    read = list(readings(hierarchy))
    damaged = {array.path for array in hierarchy.arrays if array.is_damaged}
    for finding in read:
        if finding.rule == "GZ-29" and finding.path in damaged:
            # ZS-03 says so.
            continue
        rule = looked_at.get(finding.rule)
        if rule is None and finding.rule not in rules:
            # A convention that came with a plugin has rules of its own.
            yield finding
        elif rule is not None and rule.is_read:
            severity = milder(rule.severity_under(hierarchy.profile), finding.severity)
            yield replace(finding, severity=severity)
    for rule in looked_at.values():
        for complaint in rule.check(hierarchy) if rule.check is not None else ():
            severity = milder(rule.severity_under(hierarchy.profile), complaint.severity)
            path = complaint.node.path
            yield Finding(rule.id, severity, path, complaint.message, complaint.expected, complaint.found)


def _classes_of(rule: Rule, is_projected: bool) -> set[str]:
    more = {"projected"} if is_projected and rule.id in PROJECTED else set()
    return {rule.requirements_class, *more}


def _is_projected(hierarchy: Hierarchy) -> bool:
    return any(grid.crs is not None and not grid.crs.is_geographic for grid in grids(hierarchy).values())


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
    held = grids(hierarchy).values()
    if name == "time":
        return any(is_time(c) for group in hierarchy.groups for c in roles(group).coordinates.values())
    if name == "crs":
        return any(grid.stated_crs for grid in held)
    if name == "geotransform":
        return any(grid.cf.affines or grid.gdal.affines or grid.geozarr.affines for grid in held)
    if name == "overviews":
        return bool(pyramids(hierarchy))
    if name == "stac":
        return any(key.startswith("stac") for node in hierarchy.nodes for key in node.attrs)
    if name == "projected":
        return _is_projected(hierarchy)
    if name == "bands":
        names = {str(n).lower() for grid in held for n in grid.view.dims or ()}
        return bool(names & set(BAND_NAMES))
    return True


def _hold_to_claims(
    hierarchy: Hierarchy, states: Iterable[ClassVerdict], looked_at: Iterable[Rule]
) -> Iterator[Finding]:
    claimed = hierarchy.root.attrs.get("conformsTo")
    if not isinstance(claimed, list) or not any(rule.id == "GZ-01" for rule in looked_at):
        return
    by_uri = {verdict.uri: verdict for verdict in states}
    for uri in claimed:
        verdict = by_uri.get(uri) if isinstance(uri, str) else None
        is_unknown = verdict is None and isinstance(uri, str) and uri.startswith(CLASS_URI)
        if is_unknown or (verdict is not None and verdict.state in ("fail", "not applicable")):
            state = "unknown" if verdict is None else verdict.state
            message = f"conformsTo claims {uri!r}, which is: {state}"
            yield Finding("GZ-01", "note", hierarchy.root.path, message, "pass", state)
