"""A hierarchy as stored, each node's documents as written, and the interface of rules.

A node that cannot be read is part of it, with the reason; no content of a store makes this fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from zstore.base.once import once
from zstore.engine.documents import (
    METADATA_NAMES,
    Documents,
    node_kind,
    parse_node,
    place,
    read_documents,
)
from zstore.engine.intents import Unfinished, find_unfinished
from zstore.errors import NotFoundError, StoreError, ZstoreError
from zstore.geo.conventions.base import (
    Convention,
    Finding,
    GeoModel,
    HeldArray,
    HeldGroup,
    HeldNode,
    Mend,
    Severity,
    surroundings,
)
from zstore.geo.conventions.cf import find_mapping
from zstore.geo.conventions.content import read_values
from zstore.geo.conventions.levels import Grid
from zstore.geo.conventions.meaning import Meaning, Pyramid
from zstore.geo.conventions.write import Profile
from zstore.model import v1, v2, v3
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.nodes.array import Array
from zstore.nodes.nearby import say_near
from zstore.nodes.node import Access
from zstore.storage.base import Store, join_key

DEEPEST = 40
ATTRIBUTES_KEYS = {1: v1.ATTRIBUTES_KEY, 2: v2.ATTRIBUTES_KEY, 3: v3.KEY}
MOST_STRAYS = 1000


@dataclass(eq=False)
class NodeView(HeldNode):
    """One node, whether or not it can be read.

    documents   by key name, as they parse; one that is no JSON is missing
    stored      attributes as they are written, `_ARRAY_DIMENSIONS` among them
    troubles    (key name, what is wrong) of documents that cannot be read
    """

    store: Store
    path: str
    kind: str
    zarr_format: ZarrFormat
    raw: dict[str, bytes]
    documents: dict[str, Any]
    troubles: list[tuple[str, str]]
    parent: HeldGroup | None = None

    @property
    def document(self) -> Mapping[str, Any]:
        """The node's main document; {} if it is no JSON object."""
        for name in (v3.KEY, v2.ARRAY_KEY, v2.GROUP_KEY, v1.ARRAY_KEY):
            if isinstance(self.documents.get(name), dict):
                return self.documents[name]  # type: ignore[no-any-return]
        return {}

    @property
    def attributes_key(self) -> str:
        """The name of the document that holds the attributes."""
        return ATTRIBUTES_KEYS[self.zarr_format]

    @property
    def stored(self) -> Mapping[str, Any]:
        """The attributes as written; {} if they are no JSON object."""
        if self.zarr_format == 3:
            found = self.document.get("attributes")
        else:
            found = self.documents.get(self.attributes_key)
        return found if isinstance(found, dict) else {}

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.stored


@dataclass(eq=False)
class ArrayView(NodeView, HeldArray):
    """An array that zstore can open; its values are read once."""

    _values: np.ndarray[Any, Any] | None = None

    @once
    def node(self) -> Array:
        """The array, opened by zstore."""
        model = parse_node(self.raw, place(self.store, self.path))
        assert isinstance(model, ArrayModel)
        return Array(self.store, self.path, model, Access(read_only=True))

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.node.model.attributes

    def values(self) -> np.ndarray[Any, Any] | None:
        """All values, decoded; None if they cannot be read or are too many."""
        return read_values(self, [])

    def numbers(self) -> np.ndarray[Any, Any] | None:
        """All values as floats, without their units; None if they are no numbers or cannot be read."""
        values = self.values() if self.dtype.kind in "iuf" else None
        return None if values is None else values.astype(np.float64)


@dataclass(eq=False)
class GroupView(NodeView, HeldGroup):
    """A group that zstore can open, and every node right below it; `strays` are names without nodes."""

    children: dict[str, NodeView] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Hierarchy:
    """All nodes at and below a root, the root first, and their meaning."""

    store: Store
    root: NodeView
    nodes: list[NodeView]
    profile: Profile | None = None
    is_deep: bool = False
    unfinished: list[Unfinished] = field(default_factory=list)

    @property
    def wants_all(self) -> bool:
        """Whether the profile requires everything that it describes."""
        return self.profile is not None and self.profile.wants_all

    @once
    def meaning(self) -> Meaning:
        """The meaning of the nodes."""
        return Meaning()

    @property
    def arrays(self) -> list[ArrayView]:
        """Every array that can be read."""
        return [node for node in self.nodes if isinstance(node, ArrayView)]

    @property
    def groups(self) -> list[GroupView]:
        """Every group that can be read."""
        return [node for node in self.nodes if isinstance(node, GroupView)]

    @once
    def grids(self) -> dict[str, Grid]:
        """Every array of data that has a y and an x dimension, by its path."""
        found = [grid for group in self.groups for grid in self.meaning.grids(group).values()]
        alone = self.meaning.grid(self.root) if isinstance(self.root, ArrayView) else None
        found += [alone] if alone is not None and alone.is_known else []
        return {grid.node.path: grid for grid in found}

    @once
    def pyramids(self) -> list[Pyramid]:
        """Every multiscale group."""
        found = (self.meaning.pyramid(group) for group in self.groups)
        return [pyramid for pyramid in found if pyramid is not None]

    @once
    def values(self) -> list[tuple[NodeView, str, str, Any]]:
        """(node, position, name, value) of every value in its attributes, however deep, outer ones first."""
        return [(node, *found) for node in self.nodes for found in walk(dict(node.stored))]

    @once
    def readings(self) -> list[Finding]:
        """The findings of parsing every node, of reading the georeference, and of the conventions' checks."""
        return [*_parsed(self), *_read(self)]

    def is_read(self, rule: str, path: str, severity: Severity) -> bool:
        """Whether reading has a finding of that rule and severity at a node."""
        return any((f.rule, f.path, f.severity) == (rule, path, severity) for f in self.readings)


def walk(value: Any) -> Iterator[tuple[str, str, Any]]:
    """(position, name, value) of everything in a JSON value, itself first, however deep."""
    waiting = [("", "", value)]
    while waiting:
        where, name, found = waiting.pop()
        yield where, name, found
        if isinstance(found, dict):
            waiting += [(f"{where}.{key}" if where else key, key, item) for key, item in found.items()]
        elif isinstance(found, list):
            waiting += [(f"{where}[{index}]", name, item) for index, item in enumerate(found)]


def _parsed(hierarchy: Hierarchy) -> Iterator[Finding]:
    for node in (*hierarchy.groups, *hierarchy.arrays):
        for facts in hierarchy.meaning.facts(node):
            yield from facts.findings


def _read(hierarchy: Hierarchy) -> Iterator[Finding]:
    """The findings about every pyramid, and every group or array that is no level of one."""
    meaning = hierarchy.meaning
    inner = {id(level.node) for pyramid in hierarchy.pyramids for level in pyramid.levels}
    for node in hierarchy.nodes:
        pyramid = meaning.pyramid(node) if isinstance(node, GroupView) else None
        is_grid = node.path in hierarchy.grids if isinstance(node, ArrayView) else pyramid is not None
        if pyramid is None and (
            id(node) in inner or not (isinstance(node, GroupView) or (node is hierarchy.root and is_grid))
        ):
            continue
        # Of a group without a grid, what its attributes say is checked all the same.
        geo = GeoModel(None, None, (1, 1))
        if is_grid or (isinstance(node, GroupView) and meaning.grids(node)):
            reading = meaning.read(node)
            yield from reading.findings
            geo = reading.geo or geo
        # One that is inherited only parses again.
        checks = [c.check for c in meaning.conventions if type(c).check is not Convention.check]
        for check in checks:
            for checked in _checked(hierarchy, node):
                yield from check(checked, geo, checked.parent)


def _checked(hierarchy: Hierarchy, node: NodeView) -> Iterator[Any]:
    """The node itself, and every grid of it and of its levels."""
    yield node
    if isinstance(node, GroupView):
        pyramid = hierarchy.meaning.pyramid(node)
        places = [node] if pyramid is None else [level.node for level in pyramid.levels]
        for place in places:
            if isinstance(place, GroupView):
                yield from [] if place is node else [place]
                yield from (grid.node for grid in hierarchy.meaning.grids(place).values())


def mapping_of(array: HeldNode) -> tuple[str | None, Any]:
    """(name in `grid_mapping` of an array, the array of that name beside it or in a group above)."""
    return find_mapping(array, array.parent)


def coordinate_of(array: Any, dimension: str | None) -> Any:
    """The coordinate variable of a dimension: the array of its name beside this one."""
    return None if dimension is None or array.parent is None else array.parent.arrays.get(dimension)


def load_hierarchy(store: Store, path: str = "") -> Hierarchy:
    """Everything at and below `path`, whether or not it can be read.

    Raises
        NotFoundError: there is no node, and nothing that could be one.
        StoreError: the store failed.
    """
    documents, unfinished = read_documents(store, [path], consolidated=True)[0], find_unfinished(store, path)
    if node_kind(documents) is None and v2.ATTRIBUTES_KEY not in documents:
        root: NodeView = _implied(store, path, unfinished)
    else:
        root = _view(store, path, documents, None)
        if isinstance(root, ArrayView):
            root.parent = surroundings(root)
    nodes: list[NodeView] = []
    waiting: list[tuple[NodeView, int]] = [(root, 0)]
    while waiting:
        node, depth = waiting.pop(0)
        nodes.append(node)
        if isinstance(node, GroupView):
            if depth >= DEEPEST:
                node.troubles.append(("depth", f"nested deeper than {DEEPEST} groups; not looked into"))
                continue
            _list(node)
            waiting += [(child, depth + 1) for child in node.children.values()]
    return Hierarchy(store, root, nodes, unfinished=unfinished)


def _implied(store: Store, path: str, unfinished: list[Unfinished]) -> GroupView:
    """The group at a path without a document, implied by nodes in it or one being made there."""
    names = store.list_children(path)
    found = read_documents(store, [join_key(path, name) for name in names])
    kinds = {kind for documents in found if (kind := node_kind(documents)) is not None}
    if not kinds and not unfinished:
        said = "no array or group there; looked for zarr.json, .zarray, .zgroup"
        raise NotFoundError(said, path=place(store, path), hint=partial(say_near, store, path))
    # v1 has no groups: its arrays are what is there only where there is nothing newer.
    zarr_format: ZarrFormat = 3 if "v3" in kinds or not kinds else 1 if kinds == {"v1"} else 2
    return GroupView(store, path, "", zarr_format, {}, {}, [])


def _list(group: GroupView) -> None:
    """Fill in the children of a group, and the names in it without nodes."""
    store = group.store
    try:
        names = [name for name in store.list_children(group.path) if name not in METADATA_NAMES]
    except StoreError as error:
        names = _consolidated_names(group)
        if not names:
            group.troubles.append(("listing", str(error)))
    found = read_documents(store, [join_key(group.path, name) for name in names], group.zarr_format)
    for name, documents in zip(names, found, strict=True):
        if node_kind(documents) is not None:
            path = join_key(group.path, name)
            group.children[name] = _view(store, path, documents, group)
        elif len(group.strays) < MOST_STRAYS:
            group.strays.append(name)


def _consolidated_names(group: GroupView) -> list[str]:
    """The names of the children in consolidated metadata, for stores that cannot list."""
    prefix = group.path
    for above in [group, *group.ancestors()]:
        known = consolidated_documents(above)
        if known:
            below = prefix[len(above.path) :].strip("/")
            skip = f"{below}/" if below else ""
            return sorted({path[len(skip) :].split("/")[0] for path in known if path.startswith(skip)} - {""})
    return []


def consolidated_documents(node: Any) -> dict[str, dict[str, Any]]:
    """The documents of nodes in a group's consolidated metadata, by path below it and key name."""
    is_v3 = node.zarr_format == 3
    block = node.document.get("consolidated_metadata") if is_v3 else node.documents.get(v2.CONSOLIDATED_KEY)
    metadata = block.get("metadata") if isinstance(block, dict) else None
    found: dict[str, dict[str, Any]] = {}
    for key, document in metadata.items() if isinstance(metadata, dict) else ():
        path, _, name = (key, "", v3.KEY) if is_v3 else key.rpartition("/")
        found.setdefault(path, {})[name] = document
    return found


def _view(store: Store, path: str, documents: Documents, parent: GroupView | None) -> NodeView:
    """The node of these documents, with the reasons if they cannot be read."""
    raw = {name: bytes(data) for name, data in documents.items()}
    parsed: dict[str, Any] = {}
    troubles: list[tuple[str, str]] = []
    for name, data in raw.items():
        try:
            parsed[name] = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
            troubles.append((name, f"no JSON document: {reason}"))
    kind = next(key for key in (v3.KEY, v2.ARRAY_KEY, v2.GROUP_KEY, v1.ARRAY_KEY, *raw) if key in raw)
    zarr_format: ZarrFormat = 3 if kind == v3.KEY else 1 if kind == v1.ARRAY_KEY else 2
    fields = (store, path, kind, zarr_format, raw, parsed, troubles, parent)
    try:
        model = parse_node(documents, place(store, path))
        if model is not None:
            return ArrayView(*fields) if isinstance(model, ArrayModel) else GroupView(*fields)
        troubles.append((kind, "there are attributes, but neither an array nor a group"))
    except ZstoreError as error:
        troubles += [] if troubles else [(error.key or kind, error.message)]
    except RecursionError:
        troubles.append((kind, "nested too deep"))
    except Exception as error:
        # Whatever a store holds, its other nodes are read.
        troubles.append((kind, f"{type(error).__name__}: {error}"))
    return NodeView(*fields)


RequirementsClass = Literal[
    "core", "time", "crs", "geotransform", "overviews", "stac", "projected", "bands", "proj", "spatial",
    "multiscales",
]  # fmt: skip
CLASSES: tuple[RequirementsClass, ...] = (
    "core", "time", "crs", "geotransform", "overviews", "stac", "projected", "bands",
)  # fmt: skip
# Those of GeoZarr 1.0's release candidate: one for each convention that it pins.
CANDIDATE_CLASSES: tuple[RequirementsClass, ...] = ("core", "proj", "spatial", "multiscales")
CLASS_URI = "http://www.opengis.net/spec/geozarr/1.0/conf/"
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Found(NamedTuple):
    """One breach of a rule at a node; `severity` if it is milder than the rule's; `mend` as of a finding."""

    node: Any
    message: str
    expected: Any = None
    found: Any = None
    severity: Severity | None = None
    mend: Mend | None = None


Check = Callable[[Any], Iterator[Found]]
CheckT = TypeVar("CheckT", bound=Check)
# Every rule by its id; the modules of `zstore.geo.validation.rules` fill it, which `run` imports.
RULES: dict[str, Rule] = {}


@dataclass(eq=False)
class Rule:
    """One requirement of a specification; as a decorator, it makes a function its check.

    severity   of a finding where a profile that has the rule is asked for: what the document's verb says
    clause     where it is written
    says       the requirement in one sentence
    fix        how to fix what breaks it
    general    the severity where no profile is asked for, where it is milder than that
    profiles   the profiles that have it; () is all of them
    same_as    the rule that says the same, which stands for both where no profile is asked for
    is_deep    whether it needs more than metadata and coordinates
    is_general whether it applies where no profile is asked for
    each       the nodes of a hierarchy that the check gets one by one; "": it gets the hierarchy itself
    check      finds what breaks it beside what reading finds; None where that is all
    """

    id: str
    severity: Severity
    requirements_class: RequirementsClass
    clause: str
    says: str
    fix: str
    general: Severity | None = None
    profiles: tuple[Profile, ...] = ()
    same_as: str | None = None
    is_deep: bool = False
    is_general: bool = True
    each: Literal["", "nodes", "arrays", "groups", "pyramids"] = ""
    check: Check | None = None

    def __post_init__(self) -> None:
        if self.id in RULES:
            raise ValueError(f"rule {self.id!r} is there twice; expected one check per rule")
        RULES[self.id] = self

    def __call__(self, check: CheckT) -> CheckT:
        self.check = check
        check.__doc__ = check.__doc__ or self.says
        return check

    def find(self, hierarchy: Hierarchy) -> Iterator[Found]:
        """All breaches of the rule in a hierarchy."""
        for subject in getattr(hierarchy, self.each) if self.each else (hierarchy,):
            yield from self.check(subject) if self.check is not None else ()

    @property
    def is_mended(self) -> bool:
        """Whether `zstore fix` mends a breach, where the store itself tells the right value."""
        return "zstore fix" in self.fix

    def severity_under(self, profile: Profile | str | None) -> Severity:
        """The severity of this rule's findings under a profile, or under none."""
        return self.severity if profile is not None or self.general is None else self.general

    def is_in(self, profile: Profile | None) -> bool:
        """Whether the rule applies under a profile, or under none."""
        if profile is None:
            return self.same_as is None and self.is_general
        if profile.rules is not None:
            return self.id in profile.rules
        return not self.profiles or profile in self.profiles


def find_mends(hierarchy: Hierarchy) -> Iterator[tuple[str, str, Mend]]:
    """(rule, path, mend) of every finding that has one, whatever the profile."""
    for finding in hierarchy.readings:
        if finding.mend is not None:
            yield finding.rule, finding.path, finding.mend
    for rule in RULES.values():
        for found in rule.find(hierarchy) if rule.is_mended and not rule.is_deep else ():
            if found.mend is not None:
                yield rule.id, found.node.path, found.mend


def milder(one: Severity, other: Severity | None) -> Severity:
    """The less severe of the two."""
    return one if other is None else max(one, other, key=SEVERITIES.index)
