"""Arrays and groups as conventions read them: each knows its parent, and lists and reads everything once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

from zstore.base.once import once
from zstore.errors import MetadataError, NotFoundError, StoreError, ZstoreError
from zstore.geo.conventions.base import GroupNode, is_array
from zstore.nodes.group import Group, members_of
from zstore.nodes.open import open as open_node
from zstore.nodes.open import open_group

# An array of more values is no coordinate, and is not read whole.
MOST_VALUES = 1 << 24

# The arrays whose values somebody asked for while none are to be read.
_wanted: ContextVar[dict[HeldArray, None] | None] = ContextVar("wanted", default=None)


class HeldNode:
    """A node with the group that holds it, where that is known."""

    node: Any = None
    path: str
    parent: HeldGroup | None
    zarr_format: int

    def __init__(self, node: Any, parent: HeldGroup | None = None) -> None:
        self.node, self.parent = node, parent
        self.path, self.zarr_format = node.path, node.zarr_format
        self._attributes: Mapping[str, Any] = node.attrs

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes, without Zarr v2's names of dimensions."""
        return self._attributes

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def ancestors(self) -> Iterator[HeldGroup]:
        """The held groups above the node, the nearest first."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent


class HeldArray(HeldNode):
    """An array whose values are read once."""

    is_damaged = False
    _values: np.ndarray[Any, Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths per dimension."""
        return self.node.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the stored values."""
        return self.node.dtype  # type: ignore[no-any-return]

    @property
    def fill_value(self) -> Any:
        """The value of cells where no chunk is stored."""
        return self.node.fill_value

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """Names of the dimensions."""
        return self.node.dims  # type: ignore[no-any-return]

    @property
    def chunks(self) -> tuple[int, ...]:
        """Lengths of a chunk, or of an inner chunk of a shard."""
        return self.node.chunks  # type: ignore[no-any-return]

    def __getitem__(self, selection: Any) -> Any:
        if selection is not Ellipsis:
            return self._read(selection)
        if self._values is None:
            if np.prod(self.shape, dtype=float) > MOST_VALUES:
                raise MetadataError(
                    f"array has the shape {self.shape}; expected {MOST_VALUES} values at most for all of it",
                    path=self.path,
                )
            wanted = _wanted.get()
            if wanted is not None:
                wanted[self] = None
                raise MetadataError("values are not to be read yet", path=self.path)
            self._values = self._read(selection)
        return self._values

    def _read(self, selection: Any) -> Any:
        return self.node[selection]


class HeldGroup(HeldNode):
    """A group whose children are listed once."""

    _members: Iterable[tuple[str, Any]] | None = None

    @once
    def children(self) -> Mapping[str, Any]:
        """The direct children by name, in the order of their names."""
        members = self.node.members() if self._members is None else self._members
        found = sorted(members, key=lambda member: member[0])
        return {name: hold(child, self) for name, child in found}

    @once
    def arrays(self) -> Mapping[str, Any]:
        """The direct child arrays that can be read, by name."""
        return {name: child for name, child in self.children.items() if isinstance(child, HeldArray)}

    @once
    def groups(self) -> Mapping[str, Any]:
        """The direct child groups that can be read, by name."""
        return {name: child for name, child in self.children.items() if isinstance(child, HeldGroup)}

    @once
    def outer(self) -> HeldGroup | None:
        """The group that holds this one; where that is not held, it is looked for in the store."""
        above = None if self.parent is not None else group_above(self if self.node is None else self.node)
        return self.parent if above is None else HeldGroup(above)

    def members(self) -> Iterator[tuple[str, Any]]:
        """The direct children that can be read, by name."""
        for name, child in self.children.items():
            if isinstance(child, HeldArray | HeldGroup):
                yield name, child

    def below(self, path: str) -> Any:
        """The node at a path relative to this group; None where there is none."""
        found: Any = self
        for part in filter(None, path.split("/")):
            found = found.children.get(part) if isinstance(found, HeldGroup) else None
        return found


def hold(node: Any, parent: HeldGroup | None = None) -> HeldArray | HeldGroup:
    """The node, wrapped to be read once; unchanged where it is wrapped already."""
    if isinstance(node, HeldArray | HeldGroup):
        return node
    return HeldArray(node, parent) if is_array(node) else HeldGroup(cast("GroupNode", node), parent)


def hold_members(groups: Iterable[HeldGroup]) -> None:
    """Ask for the children of these groups of one store at once, where they lie beyond a network."""
    asked = [group for group in groups if isinstance(group.node, Group)]
    for group, members in zip(asked, members_of([group.node for group in asked]), strict=True):
        group._members = members


@contextmanager
def note_values() -> Iterator[Mapping[HeldArray, None]]:
    """Collect the arrays whose values are asked for within the block, without reading them."""
    wanted: dict[HeldArray, None] = {}
    token = _wanted.set(wanted)
    try:
        yield wanted
    finally:
        _wanted.reset(token)


def read_at_once(arrays: Sequence[HeldArray], request_count: int) -> None:
    """Read all values of these arrays side by side; one that fails does so again when it is asked for."""

    def read(array: HeldArray) -> None:
        with suppress(ZstoreError):
            array[...]

    if arrays:
        # Imported here: what lies on a disk is read without it.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(request_count, len(arrays))) as pool:
            list(pool.map(read, arrays))


def hold_group(node: Any) -> HeldGroup | None:
    """The group, wrapped to be read once; None for anything else."""
    held = None if node is None else hold(node)
    return held if isinstance(held, HeldGroup) else None


def arrays_of(group: GroupNode) -> Mapping[str, Any]:
    """The direct child arrays of a group by name."""
    if isinstance(group, HeldGroup):
        return group.arrays
    return {name: child for name, child in group.members() if is_array(child)}


def arrays_along(node: Any, group: GroupNode) -> dict[str, Any]:
    """The arrays beside an array by name, and by "/name" those above it that its dimensions refer to.

    Spec
        GeoZarr draft 8.1.2: a dimension called "/time".
    """
    found = dict(arrays_of(group))
    for name in [name for name in node.dims or () if name is not None and name.startswith("/")]:
        above: GroupNode | None = group
        while above is not None and name not in found:
            coordinate = arrays_of(above).get(plain_name(name))
            if coordinate is not None:
                found[name] = coordinate
            above = group_outside(above)
    return found


def plain_name(dimension: str) -> str:
    """The name of a dimension without the "/" that marks a coordinate in a group above."""
    return dimension.removeprefix("/")


def group_outside(group: GroupNode) -> GroupNode | None:
    """The group that holds a group; None where there is none, or none that can be found."""
    return group.outer if isinstance(group, HeldGroup) else None


def group_above(node: Any) -> Group | None:
    """The group that holds an array or a group of a store, where there is one that can be read."""
    if not hasattr(node, "store"):
        return None
    try:
        if node.path:
            above = open_node(node.store, node.path.rpartition("/")[0], mode="r")
            return above if isinstance(above, Group) else None
        if node.store.request_count > 1:
            return None  # what lies above a place elsewhere was not named, and may be another's
        scheme, _, rest = node.store.url.rstrip("/").partition("://")
        above_place = rest.rpartition("/")[0]
        # "memory://name" and "s3://bucket" have nothing above them.
        return open_group(f"{scheme}://{above_place}", mode="r") if above_place else None
    except (MetadataError, NotFoundError, StoreError):
        return None
