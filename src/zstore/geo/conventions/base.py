"""Conventions: documents parsed into facts and findings, and rendered from a model; and which are asked.

Of two conventions that state the same fact, the one that is asked first counts. By default zstore's own
come first, then those of plugins by name. Another order is chosen for one call (`read_geo(...,
conventions=...)`), for a stretch of a program (`use_conventions`), or for a process (the environment
variable ZSTORE_CONVENTIONS, names separated by commas). "..." among the names stands for all that are not
named: "acme,..." asks `acme` first.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict, TypeGuard

import numpy as np

from zstore.errors import ExtensionError, MetadataError
from zstore.extensions.builtin import CONVENTIONS
from zstore.extensions.registry import conventions as registry
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.model import Affine, GeoModel, Stac, Variable
from zstore.geo.conventions.timeaxis import TimeAxis

__all__ = [
    "ArrayNode",
    "Convention",
    "Document",
    "Documents",
    "Facts",
    "Finding",
    "GroupNode",
    "LevelEntry",
    "Node",
    "Severity",
    "is_array",
    "is_group",
    "parse_crs",
    "unused_attribute",
]

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """An error, a doubt or a gap in the document of a node at `path`."""

    rule: str
    severity: Severity
    path: str
    message: str
    expected: Any = None
    found: Any = None


class Node(Protocol):
    """An array or a group, as conventions read it."""

    @property
    def attrs(self) -> Mapping[str, Any]: ...
    @property
    def path(self) -> str: ...
    @property
    def zarr_format(self) -> int: ...


class ArrayNode(Node, Protocol):
    """An array, as conventions read it; `dims` is None where no dimension has a name."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def fill_value(self) -> Any: ...
    @property
    def dims(self) -> tuple[str | None, ...] | None: ...
    def __getitem__(self, selection: Any) -> Any: ...


class GroupNode(Node, Protocol):
    """A group, as conventions read it: its direct children by name."""

    def members(self) -> Iterable[tuple[str, Any]]: ...


def is_group(node: Any) -> TypeGuard[GroupNode]:
    """Whether the node is a group."""
    return hasattr(node, "members")


def is_array(node: Any) -> TypeGuard[ArrayNode]:
    """Whether the node is an array."""
    return hasattr(node, "shape")


@dataclass(frozen=True)
class LevelEntry:
    """One level as a dialect lists it: its path and the geometry listed with it.

    path             relative to the multiscale group
    affine           the level's own, as stated
    fallback_affine  what a tile matrix or OME's scale comes to: the level's own only where its array fits
    extent           (y, x) cells that the tile matrix covers
    cell             (height, width) of a cell, in CRS units
    scale            (y, x) factors to the finest level
    """

    path: str
    affine: Affine | None = None
    fallback_affine: Affine | None = None
    extent: tuple[int, int] | None = None
    shape: tuple[int, int] | None = None
    cell: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    tile_shape: tuple[int, int] | None = None
    resampling: str | None = None


@dataclass(frozen=True)
class Facts:
    """The facts that one convention states of one node; any of them may be missing.

    crs, affines  candidates, the most trustworthy first, each with the name of what says it
    dimensions    names of the y and the x dimension, as stated
    coordinate_affine, coordinate_dimensions  what the node's coordinate variables come to
    bbox          (xmin, ymin, xmax, ymax)
    levels        of a pyramid, () where there is one whose levels nobody can tell; None: no pyramid
    """

    crs: tuple[tuple[str, Crs], ...] = ()
    affines: tuple[tuple[str, Affine], ...] = ()
    dimensions: tuple[str, str] | None = None
    coordinate_affine: Affine | None = None
    coordinate_dimensions: tuple[str, str] | None = None
    shape: tuple[int, int] | None = None
    bbox: tuple[float, float, float, float] | None = None
    levels: tuple[LevelEntry, ...] | None = None
    resampling: str | None = None
    variable: Variable | None = None
    time: TimeAxis | None = None
    stac: Stac | None = None
    findings: tuple[Finding, ...] = field(default=(), compare=False)


class Document(TypedDict, total=False):
    """One node to be created. Arrays: `dimension_names` and `fill_value`, and `data` where zstore knows it.

    The dimensions' names are not among the attributes, in Zarr v2 either: that is the format's business.
    """

    kind: Literal["group", "array"]
    attributes: dict[str, Any]
    dimension_names: tuple[str, ...]
    data: np.ndarray[Any, Any]
    fill_value: Any


Documents = dict[str, Document]


def unused_attribute(node: Node, rule: str, name: str, expected: str) -> Finding:
    """The finding that an attribute has an invalid value and is not used."""
    found = node.attrs[name]
    message = f"{name} is {found!r}; expected {expected}; it is not used"
    return Finding(rule, "error", node.path, message, expected, found)


def parse_crs(
    source: str, stated: Any, rule: str, path: str, findings: list[Finding]
) -> Iterator[tuple[str, Crs]]:
    """(source, CRS) of a value in a document; nothing, with a finding, where the value is no CRS."""
    try:
        yield source, Crs.from_user(stated)
    except MetadataError as error:
        findings.append(Finding(rule, "error", path, f"{source}: {error.message}", None, stated))


class Convention(Protocol):
    """One dialect of georeference and meaning: how to parse, render and check it.

    parse     the facts that one node states in this dialect; `parent` is the group that holds it, for what
              an array inherits or has beside it
    render    this dialect's part of every node's document
    check     what is wrong with a node whose model is `geo`; inherited, it gives what `parse` finds
    dialects  not required: the names by which people know what the attributes of a node are written in;
              without it, `name` stands for them all
    """

    name: str

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts: ...
    def render(self, geo: GeoModel, zarr_format: int) -> Documents: ...

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """The findings of parsing the node."""
        return list(self.parse(node, parent).findings)


VARIABLE = "ZSTORE_CONVENTIONS"
REST = "..."
# As they are offered: coordinates and the grid mapping, GDAL's attributes, then those of pyramids.
OWN = tuple(offer.name for offer in CONVENTIONS)

_chosen: ContextVar[tuple[str, ...] | None] = ContextVar("zstore_conventions", default=None)


class ReadingWarning(UserWarning):
    """Something wrong in documents that were read for another purpose than to be checked."""


def order_conventions(names: Sequence[str] | None = None) -> list[str]:
    """The names of the conventions to ask, in order; `names` replace a choice made elsewhere."""
    stated = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    chosen = names if names is not None else _chosen.get() or stated or [REST]
    known = [*OWN, *(name for name in registry.names() if name not in OWN)] if REST in chosen else []
    rest = [name for name in known if name not in chosen]
    return [name for word in chosen for name in (rest if word == REST else [word])]


def load_conventions(names: Sequence[str] | None = None) -> list[Convention]:
    """The conventions of these names, built in or a plugin's; None: those chosen elsewhere, or all.

    Raises
        UnknownExtensionError: nobody offers one of the names.
        ExtensionError: one that is named cannot be imported. Others are left out.
    Warns
        ReadingWarning: a plugin's convention that nobody named cannot be imported.
    """
    loaded: list[Convention] = []
    for name in order_conventions(names):
        try:
            loaded.append(registry.resolve(name)())
        except ExtensionError as error:
            if name in OWN or name in (names or ()):
                raise
            warnings.warn(ReadingWarning(f"convention {name!r} is not asked: {error}"), stacklevel=3)
    return loaded


@contextmanager
def use_conventions(*names: str) -> Iterator[None]:
    """Ask these conventions in this order in everything that reads within the `with` block.

    Raises
        UnknownExtensionError: nobody offers one of the names.
    """
    load_conventions(names)
    token = _chosen.set(names)
    try:
        yield
    finally:
        _chosen.reset(token)


def warn_of(findings: Sequence[Finding], *, stacklevel: int = 2) -> None:
    """Warn of findings that came up while something was read for another purpose.

    Warns
        ReadingWarning: once for each finding that is more than a note.
    """
    for finding in findings:
        if finding.severity != "note":
            text = f"{finding.severity} {finding.rule} at {finding.path or '/'}: {finding.message}"
            warnings.warn(ReadingWarning(text), stacklevel=stacklevel + 1)
