"""Fixes of a hierarchy that do not touch its data: planned, written with a backup, and undone.

A backup is a directory: `manifest.json` lists the keys that were written or deleted, and `before/` holds what
was stored under them, each as a file of its key's name. It is whole before anything is changed, and
durable if the store is. The intent of the fix says where it is; it outlives the intent, so that a fix that
has ended can be undone, too.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zstore.engine.documents import METADATA_NAMES, ancestors, consolidate_node
from zstore.engine.intents import read_intent
from zstore.errors import MetadataError, NotFoundError, StoreError, ZstoreError, clean
from zstore.geo.conventions.base import RESAMPLING_METHODS, Finding
from zstore.geo.conventions.crs import Crs
from zstore.geo.validation.fixing.documents import (
    Draft,
    Fix,
    OverlayStore,
    fix_dimensions,
    fix_fill_values,
    fix_findings,
    fix_methods,
    fix_shared,
)
from zstore.geo.validation.fixing.evidence import Evidence, is_named
from zstore.geo.validation.fixing.georeference import fix_crs, fix_levels, fix_places
from zstore.geo.validation.run import Target, check_hierarchy, open_hierarchy
from zstore.geo.validation.verdict import Verdict
from zstore.geo.validation.view import (
    RULES,
    ArrayView,
    GroupView,
    Hierarchy,
    consolidated_documents,
    load_hierarchy,
)
from zstore.jobs.chunks import Location
from zstore.jobs.how import long_call
from zstore.jobs.plan import name_job
from zstore.jobs.record import begin, forget
from zstore.model import v2, v3
from zstore.model.document import render_json
from zstore.storage.base import Store, check_key, join_key
from zstore.storage.local import LocalStore
from zstore.storage.url import open_store

# In this order: what can be read first, then the CRS, then places, then the pyramid that is made of them.
FIXES = (
    fix_findings, fix_dimensions, fix_fill_values, fix_methods, fix_crs, fix_places, fix_levels, fix_shared,
)  # fmt: skip
# Each round starts from what the last one fixed: a group that can be read, a CRS that is stated.
ROUNDS = 4
MANIFEST = "manifest.json"
VERSION = 1


@dataclass(frozen=True)
class FixPlan:
    """The changes of a fix, its refusals, and the verdicts before and after.

    store      the hierarchy's store as it would be
    stored     by key of a change, the value that it replaces; None where the key is missing
    changes    by key, what would be stored there; None where the key would be deleted
    fixed      what that fixes; `refused` what is left because it is not mechanical
    before, after  the verdicts on the hierarchy as it is, and as it would be
    path       of the hierarchy's root
    is_left    whether an earlier fix was interrupted there
    """

    store: Store
    stored: Mapping[str, bytes | None] = field(repr=False)
    changes: Mapping[str, bytes | None] = field(repr=False)
    fixed: tuple[Fix, ...]
    refused: tuple[Fix, ...]
    before: Verdict = field(repr=False)
    after: Verdict = field(repr=False)
    path: str = ""
    is_left: bool = False

    def __str__(self) -> str:
        words = [
            f"{v.count('error')} errors and {v.count('warning')} warnings" for v in (self.before, self.after)
        ]
        return "\n".join(
            [
                *(f"fixed {done.rule} /{clean(done.path)}: {clean(done.message)}" for done in self.fixed),
                *(f"left {done.rule} /{clean(done.path)}: {clean(done.message)}" for done in self.refused),
                f"{words[0]} before, {words[1]} after; {len(self.changes)} keys change",
            ]
        )

    def documents(self) -> list[str]:
        """The keys of metadata documents among the changes."""
        return [key for key in self.changes if key.rpartition("/")[2] in METADATA_NAMES]

    def diff(self) -> Iterator[str]:
        """The lines of a unified diff of the documents; chunks of coordinates are named."""
        for key in self.documents():
            before, after = self.stored[key], self.changes[key]
            yield from difflib.unified_diff(
                _pretty(before),
                _pretty(after),
                "/dev/null" if before is None else f"a/{key}",
                "/dev/null" if after is None else f"b/{key}",
                lineterm="",
            )
        for key in self.changes:
            if key not in self.documents():
                yield f"Values of coordinates {'removed' if self.changes[key] is None else 'written'}: {key}"

    def write(self, store: Store, backup: str | Path | None = None) -> Path:
        """Carry out the plan; returns the new directory with the replaced documents, by default beside it.

        Raises
            StoreError: there can be no backup, something has changed since, or the store failed.
        """
        where = backup_place(store, self.path) if backup is None else Path(backup)
        write_plan(self, store, where)
        return where


def _pretty(data: bytes | None) -> list[str]:
    if data is None:
        return []
    try:
        return render_json(json.loads(data)).decode("utf-8", "replace").splitlines()
    except (ValueError, RecursionError, ZstoreError):
        return data.decode("utf-8", "replace").splitlines()


def plan_fix(
    target: Target,
    profile: str | None = None,
    *,
    crs: Any = None,
    method: str | None = None,
    fill_value: int | float | None = None,
    trust: str | Sequence[str] = (),
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FixPlan:
    """The plan of a hierarchy's fixes, which touch no chunk of data; nothing is written.

    profile  convert `multiscales` to what this document wants, too
    crs      the CRS to write everywhere, where several are stated
    method   how the levels were made, where nothing says it
    fill_value  what Zarr v3 arrays without a fill value, as GDAL writes them, are to hold where no chunk is
    trust    what to believe where statements of a CRS or a position contradict each other: an attribute
             ("GeoTransform", "proj:code", "_CRS"), the array that has it ("spatial_ref"), "coordinates",
             "layout", "tile_matrix_set", or a convention ("cf", "gdal"); of several, the first that is there

    Raises
        MetadataError: no such profile, CRS or method; no statement has a name that is to be trusted.
        NotFoundError, StoreError, UnsupportedError: as `zstore.validate`.
    """
    if method is not None and method not in RESAMPLING_METHODS:
        raise MetadataError(f"method is {method!r}; expected one of {', '.join(RESAMPLING_METHODS)}")
    chosen = None if crs is None else Crs.from_user(crs)
    hierarchy = open_hierarchy(target, profile, path=path, storage_options=storage_options)
    trusted = (trust,) if isinstance(trust, str) else tuple(trust)
    return make_plan(hierarchy, crs=chosen, method=method, fill_value=fill_value, trust=trusted)


def make_plan(
    hierarchy: Hierarchy,
    *,
    crs: Crs | None = None,
    method: str | None = None,
    fill_value: int | float | None = None,
    trust: tuple[str, ...] = (),
) -> FixPlan:
    """The plan of all fixes, made one after the other until they find nothing more.

    The last ones are left out as long as they would make something wrong that was right before.
    """
    path, before = hierarchy.root.path, check_hierarchy(hierarchy)
    is_left = any(work.work == "fix" and work.path == path for work in hierarchy.unfinished)
    nothing = FixPlan(hierarchy.store, {}, {}, (), (), before, before, path, is_left)
    lost = _unfinished(hierarchy) or _only_consolidated(hierarchy) or _first_format(hierarchy)
    if lost:
        return replace(nothing, refused=tuple(lost))
    _check_trust(hierarchy, trust)
    asked = (hierarchy.profile, crs, method, fill_value)
    if asked == (None,) * 4 and not any(map(_is_mended, before.findings)):
        return nothing
    broken: list[Fix] = []
    for count in range(len(FIXES), 0, -1):
        store = OverlayStore(hierarchy.store)
        blank = Draft(hierarchy, store, hierarchy.profile, crs, method, fill_value, trust)
        plan = _carry_out(FIXES[:count], blank, nothing)
        worse = _made_worse(hierarchy, plan)
        if not worse:
            return replace(plan, refused=tuple(_leftovers(plan, broken)))
        broken += worse
    return replace(nothing, refused=tuple(_leftovers(nothing, broken)))


def _check_trust(hierarchy: Hierarchy, trust: tuple[str, ...]) -> None:
    """Refuse a trusted name that no statement has: it would decide nothing."""
    sources = set(Evidence(hierarchy).sources()) if trust else set()
    for word in trust:
        if not any(is_named(word, *source) for source in sources):
            known = ", ".join(sorted({name for source in sources for name in source}))
            raise MetadataError(
                f"trust is {word!r}, which states neither CRS nor position; expected of {known}"
            )


def _is_mended(finding: Finding) -> bool:
    """Whether a finding is for the fixes to mend, or to refuse with the reason."""
    rule = RULES.get(finding.rule)
    return finding.severity != "note" or (rule is not None and rule.is_mended)


def _carry_out(fixes: tuple[Callable[[Draft], None], ...], blank: Draft, nothing: FixPlan) -> FixPlan:
    """The plan of all of the fixes; `nothing` is the plan that changes nothing."""
    hierarchy, store = blank.hierarchy, blank.store
    fixed: dict[Fix, None] = {}
    refused: dict[Fix, None] = {}
    seen, now = store.version, hierarchy
    for _ in range(ROUNDS):
        count = len(fixed)
        refused = {}
        for fix in fixes:
            if store.version != seen:
                seen, now = store.version, _reload(hierarchy, store)
            draft = replace(blank, hierarchy=now, fixed=[], refused=[])
            fix(draft)
            fixed |= dict.fromkeys(draft.fixed)
            refused |= dict.fromkeys(draft.refused)
        if len(fixed) == count:
            break
    try:
        for done in _consolidate(hierarchy, store):
            fixed[done] = None
    except MetadataError as error:
        message = f"metadata cannot be consolidated again, so that nothing is changed: {error}"
        left = Fix("ZS-02", hierarchy.root.path, message)
        return replace(nothing, refused=(*refused, left))
    _drop_restyled(store)
    changes = store.changes()
    after = check_hierarchy(_reload(hierarchy, store)) if changes else nothing.before
    return replace(
        nothing,
        store=store,
        stored={key: store.stored[key] for key in changes},
        changes=changes,
        fixed=tuple(fixed),
        refused=tuple(refused),
        after=after,
    )


def _leftovers(plan: FixPlan, broken: list[Fix]) -> Iterator[Fix]:
    """Everything left unfixed, with the reason: refusals first, then other remaining errors."""
    named = dict.fromkeys((*plan.refused, *broken))
    yield from named
    places = {(fix.rule, fix.path) for fix in named}
    errors = [found for found in plan.after.findings if found.severity == "error"]
    yield from dict.fromkeys(
        Fix(found.rule, found.path, found.message)
        for found in errors
        if (found.rule, found.path) not in places
    )


def _made_worse(hierarchy: Hierarchy, plan: FixPlan) -> list[Fix]:
    """Errors that the plan itself would cause; those of nodes unreadable before do not count."""
    known = {(f.rule, f.path) for f in plan.before.findings if f.severity == "error"}
    read = {node.path for node in hierarchy.nodes if isinstance(node, ArrayView | GroupView)}
    return [
        Fix(f.rule, f.path, f"left, as fixing more would come to this: {f.message}")
        for f in plan.after.findings
        if f.severity == "error" and (f.rule, f.path) not in known and f.path in read
    ]


def _unfinished(hierarchy: Hierarchy) -> list[Fix]:
    """Unfinished work, which is to be continued rather than fixed; a fix is continued by fixing again."""
    others = [work for work in hierarchy.unfinished if work.work != "fix"]
    return [Fix("ZS-09", work.path, f"nothing is changed: {work}") for work in others]


def _only_consolidated(hierarchy: Hierarchy) -> list[Fix]:
    """Refusals for nodes in consolidated metadata alone, which consolidating again would lose."""
    by_path = {node.path for node in hierarchy.nodes}
    found = []
    for group in hierarchy.groups:
        for path in consolidated_documents(group):
            if path and join_key(group.path, path) not in by_path:
                message = f"{path!r} is in consolidated metadata only; expected its documents"
                message += ", or `zstore consolidate` where it is gone"
                found.append(Fix("ZS-02", group.path, message))
    return found


def _first_format(hierarchy: Hierarchy) -> list[Fix]:
    """A refusal for Zarr v1, which has neither groups nor variables without dimensions."""
    if hierarchy.root.zarr_format != 1:
        return []
    return [Fix("GZ-04", hierarchy.root.path, "Zarr v1 is left as it is; expected `zstore convert` first")]


def _reload(hierarchy: Hierarchy, store: OverlayStore) -> Hierarchy:
    found = load_hierarchy(store, hierarchy.root.path)
    found.profile, found.is_deep = hierarchy.profile, hierarchy.is_deep
    return found


def _consolidate(hierarchy: Hierarchy, store: OverlayStore) -> Iterator[Fix]:
    """Consolidate again every group that was consolidated, the innermost first."""
    zarr_format = hierarchy.root.zarr_format
    name = v3.KEY if zarr_format == 3 else v2.CONSOLIDATED_KEY
    above = list(ancestors(hierarchy.root.path)) if store.changes() else []
    had = [group.path for group in hierarchy.groups if consolidated_documents(group)]
    had += [path for path in above if _is_consolidated(store.base.get(join_key(path, name)), zarr_format)]
    for path in sorted(had, key=lambda path: -path.count("/") - bool(path)):
        before = store.base.get(join_key(path, name))
        consolidate_node(store, path, zarr_format)
        after = store.get(join_key(path, name))
        if before is None or after is None or json.loads(bytes(before)) != json.loads(bytes(after)):
            yield Fix("ZS-02", path, "metadata consolidated again")


def _is_consolidated(data: bytes | memoryview | None, zarr_format: int) -> bool:
    return data is not None and (zarr_format == 2 or b'"consolidated_metadata"' in bytes(data))


def _drop_restyled(store: OverlayStore) -> None:
    """Forget changes that only write a document in another style."""
    for key, value in store.changes().items():
        before = store.stored[key]
        if value is None or before is None or key.rpartition("/")[2] not in METADATA_NAMES:
            continue
        try:
            if json.loads(value) == json.loads(before):
                store.put(key, before)
        except (ValueError, RecursionError):
            continue


@long_call()
def fix(
    target: Target,
    profile: str | None = None,
    *,
    crs: Any = None,
    method: str | None = None,
    fill_value: int | float | None = None,
    trust: str | Sequence[str] = (),
    backup: str | Path | None = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[FixPlan, Path | None]:
    """Fix a hierarchy; returns (the plan that was carried out, the backup of the replaced documents).

    The backup is None where there is nothing to fix.

    `backup` is a new directory; by default one beside the store's, where that is a directory.

    Raises
        StoreError: no place for the backup, or the store failed.
    """
    plan = plan_fix(
        target,
        profile,
        crs=crs,
        method=method,
        fill_value=fill_value,
        trust=trust,
        path=path,
        storage_options=storage_options,
    )
    if not plan.changes and not plan.is_left:
        return plan, None
    store = Location.open(target, None, storage_options, read_only=False).store
    return plan, plan.write(store, backup)


def backup_place(store: Store, path: str = "") -> Path:
    """The directory for the backup of a fix, beside the store and named by the time.

    That of an interrupted fix, if it lies there, is gone on with.

    Raises
        StoreError: the store is no directory: expected a place for the backup.
    """
    root = store.local_path()
    if root is None:
        raise StoreError("the store is no directory; expected --backup with a directory", path=store.url)
    above, name = root.resolve().parent, f"{root.resolve().name}.backup-"
    former = read_intent(store, path)
    if former is not None and former.work == "fix" and isinstance(former.plan, dict):
        # A record may be anybody's: its backup counts only where this function would have put it.
        begun = Path(str(former.plan.get("backup", "")))
        if begun.parent == above and begun.name.startswith(name) and (begun / MANIFEST).is_file():
            return begun
    name += datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    free = (name if number == 0 else f"{name}-{number}" for number in range(1000))
    return next(above / candidate for candidate in free if not (above / candidate).exists())


def write_plan(plan: FixPlan, store: Store, backup: Path) -> None:
    """Copy the documents that the plan replaces to the directory `backup`, then write the changes.

    Values of coordinates are written before documents, inner documents before outer ones: an interruption
    leaves nothing that a second run does not fix, and is named until then. Each document is replaced whole.
    The directory is new, or what an interrupted run left: what that had copied stays as it is.

    Raises
        StoreError: the backup cannot be made, something changed since the plan was made, or the store failed.
    """
    keys = sorted(plan.changes, key=_order)
    for key in keys:
        store.check_writable(key)
    before = {key: store.get(key) for key in keys}
    for key, value in before.items():
        _check_same(key, value, plan.stored[key])
    _make_backup(backup, plan, store, before)
    said = {"backup": str(backup.absolute())}
    job = begin(store, plan.path, "fix", said, name=name_job({}), replace=plan.is_left)
    for key in keys:
        with store.lock(key):
            _check_same(key, store.get(key), before[key])
            _put(store, key, plan.changes[key])
    job.end()


def _check_same(key: str, found: Any, planned: Any) -> None:
    if (None if found is None else bytes(found)) != (None if planned is None else bytes(planned)):
        raise StoreError("changed since the plan was made; expected nobody else to write", key=key)


def _put(store: Store, key: str, value: Any) -> None:
    if value is None:
        store.delete(key)
    else:
        store.put(key, value)


def _order(key: str) -> tuple[bool, int, str]:
    return key.rpartition("/")[2] in METADATA_NAMES, -key.count("/"), key


def _make_backup(backup: Path, plan: FixPlan, store: Store, before: dict[str, Any]) -> None:
    try:
        place = LocalStore(backup, durable=store.durable)
        kept: dict[str, Any] = {"before": [], "absent": []}
        if backup.exists():
            kept = _left_by_another_run(place, plan, store, before)
            before = {
                key: value for key, value in before.items() if key not in kept["before"] + kept["absent"]
            }
        for key, value in before.items():
            if value is not None:
                place.put(f"before/{check_key(key)}", bytes(value))
        kept["before"] += [key for key, value in before.items() if value is not None]
        kept["absent"] += [key for key, value in before.items() if value is None]
        manifest = {"version": VERSION, "store": store.url, "path": plan.path, **kept}
        # The manifest comes last: a backup that has one is whole.
        place.put(MANIFEST, json.dumps(manifest, indent=2).encode())
    except OSError as error:
        reason = error.message if isinstance(error, StoreError) else error.strerror
        raise StoreError(f"backup cannot be made: {reason}", path=str(backup)) from error


def _left_by_another_run(
    place: LocalStore, plan: FixPlan, store: Store, before: dict[str, Any]
) -> dict[str, Any]:
    """The keys that an interrupted run has copied to an existing directory.

    Without a manifest, nothing had been changed. With one, the store may be changed in part, and the copies
    are what was there before.

    Raises
        StoreError: anything else is there.
    """
    manifest, kept = place.get(MANIFEST), dict[str, Any](before=[], absent=[])
    copies = {key: place.get(key) for key in place.list()}
    if manifest is None:
        expected = {f"before/{key}": bytes(value) for key, value in before.items() if value is not None}
        if all(expected.get(key) == value for key, value in copies.items()):
            return kept
    else:
        said = _parse_manifest(manifest, place.root)
        kept = {name: said[name] for name in kept}
        then = {
            **{key: copies.get(f"before/{key}") for key in kept["before"]},
            **dict.fromkeys(kept["absent"]),
        }
        now = {key: store.get(key) for key in then}
        is_as_it_was = {key: value and bytes(value) for key, value in now.items()} == then
        if said.get("store") == store.url and (plan.is_left or is_as_it_was):
            return kept
    raise StoreError("something else is there; expected no directory", path=place.url)


def _parse_manifest(data: bytes, where: Path) -> dict[str, Any]:
    """A backup's manifest.

    Raises
        MetadataError: it is none.
    """
    try:
        said = json.loads(data)
    except ValueError as error:
        raise MetadataError(f"manifest cannot be read: {error}", path=str(where / MANIFEST)) from error
    is_whole = isinstance(said, dict) and said.get("version") == VERSION
    if not is_whole or not all(isinstance(said.get(name), list) for name in ("before", "absent")):
        raise MetadataError(f"manifest is none of version {VERSION}", path=str(where / MANIFEST))
    return {**said, **{name: [check_key(str(key)) for key in said[name]] for name in ("before", "absent")}}


def restore_backup(target: str | Path | Store, backup: str | Path) -> int:
    """Restore the values of a backup and delete added keys; returns the number of keys.

    Raises
        NotFoundError: there is no backup.
        MetadataError: its manifest is none.
    """
    store, place = open_store(target), LocalStore(backup, read_only=True)
    manifest = place.get(MANIFEST)
    if manifest is None:
        raise NotFoundError(f"no {MANIFEST} there: no backup, or one that was interrupted", path=str(backup))
    said = _parse_manifest(manifest, Path(backup))
    values = {key: place.get(f"before/{key}") for key in said["before"]}
    missing = [key for key, value in values.items() if value is None]
    if missing:
        raise NotFoundError("backup lacks what was stored", path=str(backup), key=missing[0])
    values |= dict.fromkeys(said["absent"])
    for key in sorted(values, key=_order):
        _put(store, key, values[key])
    forget(store, str(said.get("path", "")), "fix")
    return len(values)
