"""The plan of a fix: what it changes in a hierarchy, and what it leaves; nothing is written here."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from zstore.base.byterange import ByteRange
from zstore.engine.documents import METADATA_NAMES, ancestors, consolidate_node
from zstore.errors import MetadataError, ZstoreError
from zstore.geo.conventions.base import Convention, load_conventions
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import Profile
from zstore.geo.validation.fixing.evidence import Evidence
from zstore.geo.validation.run import check_hierarchy
from zstore.geo.validation.verdict import Verdict
from zstore.geo.validation.view import (
    ArrayView,
    GroupView,
    Hierarchy,
    NodeView,
    consolidated_documents,
    load_hierarchy,
)
from zstore.model import v2, v3
from zstore.model.document import render_json
from zstore.storage.base import Names, Store, check_key, join_key
from zstore.storage.memory import MemoryStore


class OverlayStore(Store):
    """A store over `base` that keeps all changes in memory and reads everything else from `base`.

    `version` counts the changes.
    """

    def __init__(self, base: Store) -> None:
        self.base = base
        self.version = 0
        self._put = MemoryStore()
        self._deleted: set[str] = set()

    @property
    def url(self) -> str:
        return self.base.url

    def changes(self) -> dict[str, bytes | None]:
        """The changes by key: the new value, or None where the key was deleted."""
        changed: dict[str, bytes | None] = {}
        for key in self._put.list():
            value = bytes(self._put.get(key) or b"")
            before = self.base.get(key)
            if before is None or bytes(before) != value:
                changed[key] = value
        for key in self._deleted:
            if self.base.get(key) is not None:
                changed[key] = None
        return dict(sorted(changed.items()))

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        if key in self._deleted:
            return None
        value = self._put.get(key, byte_range)
        return self.base.get(key, byte_range) if value is None else value

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.version += 1
        self._put.put(check_key(key), value)
        self._deleted.discard(key)

    def delete(self, key: str) -> None:
        self.version += 1
        self._put.delete(key)
        self._deleted.add(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        here = set(self._put.list(prefix))
        yield from here
        for key in self.base.list(prefix):
            if key not in here and key not in self._deleted:
                yield key

    def list_children(self, prefix: str = "") -> Names:
        skip = len(prefix) + 1 if prefix else 0
        names = {key[skip:].partition("/")[0] for key in self._put.list(prefix)}
        touched = {key[skip:].partition("/")[0] for key in self._deleted if key.startswith(prefix)}
        for name in self.base.list_children(prefix):
            # Only where something was deleted must the store be asked whether anything is left.
            whole = f"{prefix}/{name}" if prefix else name
            if name not in touched or self.get(whole) is not None or next(self.list(whole), None) is not None:
                names.add(name)
        return sorted(names)

    def lock(self, key: str) -> AbstractContextManager[None]:
        return nullcontext()


# Each round starts from what the last one fixed: a group that can be read, a CRS that is stated.
ROUNDS = 4


class Fix(NamedTuple):
    """One fix that was made, or one that was refused with the reason."""

    rule: str
    path: str
    message: str


@dataclass
class Draft:
    """The changes that fixes make, and one reading of the hierarchy for them to work on.

    crs, method, fill_value  the user's word, where the hierarchy states none, or several
    """

    hierarchy: Hierarchy
    store: OverlayStore
    profile: Profile | None = None
    crs: Crs | None = None
    method: str | None = None
    fill_value: int | float | None = None
    fixed: list[Fix] = field(default_factory=list)
    refused: list[Fix] = field(default_factory=list)
    evidence: Evidence = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.hierarchy)

    @property
    def has_mapping(self) -> bool:
        """Whether grids get a grid mapping variable."""
        return self.profile is None or self.profile.has_mapping

    @property
    def levels_in(self) -> Convention | None:
        """The convention that is to say the levels; None for the one that does."""
        name = None if self.profile is None else self.profile.levels_in
        return None if name is None else load_conventions([name])[0]

    def note(self, rule: str, node: NodeView | str, message: str) -> None:
        """Record a fix."""
        self.fixed.append(Fix(rule, node if isinstance(node, str) else node.path, message))

    def refuse(self, rule: str, node: NodeView | str, message: str) -> None:
        """Record a refusal with its reason."""
        self.refused.append(Fix(rule, node if isinstance(node, str) else node.path, message))

    def is_occupied(self, rule: str, path: str) -> bool:
        """Whether values lie at a path that has no node: an array made there would have them as cells.

        It is recorded as refused then.
        """
        found = next(iter(self.store.list(path)), None)
        if found is not None:
            message = f"{found!r} is there, without a node; expected nothing, to write an array"
            self.refuse(rule, path, message)
        return found is not None

    def attributes(self, node: NodeView) -> dict[str, Any]:
        """A copy of the node's attributes, as they are stored, earlier changes included."""
        document = self._load(node)
        found = document.get("attributes", {}) if node.zarr_format == 3 else document
        return dict(found) if isinstance(found, dict) else {}

    def set_attributes(self, node: NodeView, attributes: Mapping[str, Any]) -> None:
        """Replace the node's attributes."""
        key = join_key(node.path, node.attributes_key)
        document = self._load(node)
        document = {**document, "attributes": dict(attributes)} if node.zarr_format == 3 else dict(attributes)
        self.store.put(key, render_json(document))

    def edit(self, node: NodeView, changes: Mapping[str, Any]) -> None:
        """Set members of the node's own document."""
        key = join_key(node.path, node.kind)
        document = json.loads(bytes(self.store.get(key) or b"{}"))
        self.store.put(key, render_json(document | changes))

    def _load(self, node: NodeView) -> dict[str, Any]:
        data = self.store.get(join_key(node.path, node.attributes_key))
        document = {} if data is None else json.loads(bytes(data))
        return document if isinstance(document, dict) else {}

    def rename(self, rule: str, node: NodeView, names: Mapping[str, str]) -> None:
        """Give attributes other names, in their places."""
        self.set_attributes(node, {names.get(name, name): v for name, v in self.attributes(node).items()})
        spelt = ", ".join(f"{old!r} is spelt {new!r}" for old, new in names.items())
        self.note(rule, node, spelt)

    def update(self, rule: str, node: NodeView, message: str, changes: Mapping[str, Any]) -> bool:
        """Set attributes that differ; whether any did."""
        attributes = self.attributes(node)
        differing = {name: value for name, value in changes.items() if attributes.get(name) != value}
        if differing:
            self.set_attributes(node, attributes | differing)
            self.note(rule, node, message)
        return bool(differing)


@dataclass(frozen=True)
class Plan:
    """The changes of a fix, its refusals, and the verdicts before and after.

    changes    by key, what would be stored there; None where the key would be deleted
    fixed      what that fixes; `refused` what is left because it is not mechanical
    before, after  the verdicts on the hierarchy as it is, and as it would be
    path       of the hierarchy's root
    is_left    whether an earlier fix was interrupted there
    """

    store: OverlayStore
    changes: Mapping[str, bytes | None]
    fixed: tuple[Fix, ...]
    refused: tuple[Fix, ...]
    before: Verdict
    after: Verdict
    path: str = ""
    is_left: bool = False

    def documents(self) -> list[str]:
        """The keys of metadata documents among the changes."""
        return [key for key in self.changes if key.rpartition("/")[2] in METADATA_NAMES]

    def diff(self) -> Iterator[str]:
        """The lines of a unified diff of the documents; chunks of coordinates are named."""
        for key in self.documents():
            before, after = self.store.base.get(key), self.changes[key]
            yield from difflib.unified_diff(
                _pretty(None if before is None else bytes(before)),
                _pretty(after),
                "/dev/null" if before is None else f"a/{key}",
                "/dev/null" if after is None else f"b/{key}",
                lineterm="",
            )
        for key in self.changes:
            if key not in self.documents():
                yield f"Values of coordinates {'removed' if self.changes[key] is None else 'written'}: {key}"


def _pretty(data: bytes | None) -> list[str]:
    if data is None:
        return []
    try:
        return render_json(json.loads(data)).decode("utf-8", "replace").splitlines()
    except (ValueError, RecursionError, ZstoreError):
        return data.decode("utf-8", "replace").splitlines()


def make_plan(
    hierarchy: Hierarchy,
    fixes: tuple[Callable[[Draft], None], ...],
    *,
    crs: Crs | None = None,
    method: str | None = None,
    fill_value: int | float | None = None,
) -> Plan:
    """The plan of all `fixes`, made one after the other until they find nothing more.

    The last ones are left out as long as they would make something wrong that was right before.
    """
    path, before = hierarchy.root.path, check_hierarchy(hierarchy)
    is_left = any(work.work == "fix" and work.path == path for work in hierarchy.unfinished)
    nothing = Plan(OverlayStore(hierarchy.store), {}, (), (), before, before, path, is_left)
    lost = _unfinished(hierarchy) or _only_consolidated(hierarchy) or _first_format(hierarchy)
    if lost:
        return replace(nothing, refused=tuple(lost))
    broken: list[Fix] = []
    for count in range(len(fixes), 0, -1):
        blank = Draft(hierarchy, OverlayStore(hierarchy.store), hierarchy.profile, crs, method, fill_value)
        plan = _carry_out(fixes[:count], blank, nothing)
        worse = _made_worse(hierarchy, plan)
        if not worse:
            return replace(plan, refused=tuple(_leftovers(plan, broken)))
        broken += worse
    return replace(nothing, refused=tuple(dict.fromkeys(broken)))


def _carry_out(fixes: tuple[Callable[[Draft], None], ...], blank: Draft, nothing: Plan) -> Plan:
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
        nothing, store=store, changes=changes, fixed=tuple(fixed), refused=tuple(refused), after=after
    )


def _leftovers(plan: Plan, broken: list[Fix]) -> Iterator[Fix]:
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


def _made_worse(hierarchy: Hierarchy, plan: Plan) -> list[Fix]:
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
    """Refusals for nodes that consolidated metadata alone has, which consolidating again would lose."""
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
        before = store.base.get(key)
        if value is None or before is None or key.rpartition("/")[2] not in METADATA_NAMES:
            continue
        try:
            if json.loads(value) == json.loads(bytes(before)):
                store.put(key, bytes(before))
        except (ValueError, RecursionError):
            continue
