"""A group: its children by name, its attributes, and the making and removing of nodes below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from zstore.engine.consolidate import METADATA_NAMES, consolidate_node
from zstore.engine.documents import (
    Documents,
    check_path,
    create_node,
    delete_node,
    find_documents,
    node_kind,
    parse_node,
    place,
)
from zstore.errors import MetadataError, NotFoundError
from zstore.model.array import ArrayModel
from zstore.model.consolidated import Consolidated
from zstore.model.create import make_array_model
from zstore.model.document import check_attributes
from zstore.model.group import GroupModel
from zstore.nodes.create import describe_data, put_array
from zstore.nodes.info import check_missing
from zstore.nodes.node import Node
from zstore.nodes.tree import Tree
from zstore.storage.base import Store, join_key

if TYPE_CHECKING:
    from zstore.nodes.array import Array

__all__ = ["Group", "MemberNotFoundError", "node"]


class MemberNotFoundError(NotFoundError, KeyError):
    """A group has no child of that name."""


def node(
    store: Store,
    path: str,
    model: ArrayModel | GroupModel,
    *,
    read_only: bool,
    allow_pickle: bool = False,
    missing: str = "fill",
) -> Array | Group:
    """The array or group that `model` describes."""
    if isinstance(model, GroupModel):
        return Group(store, path, model, read_only=read_only, missing=missing)
    from zstore.nodes.array import Array

    return Array(store, path, model, read_only=read_only, allow_pickle=allow_pickle, missing=missing)


class Group(Node[GroupModel]):
    """Arrays and groups by name; "a/b" reaches further down.

    A group that was opened for reading takes its members from consolidated metadata where it has them; a
    writable one always asks the store, so that it never shows what is not there.
    """

    __slots__ = ("_when_missing",)

    def __init__(
        self,
        store: Store,
        path: str,
        model: GroupModel,
        *,
        read_only: bool = False,
        missing: str = "fill",
    ) -> None:
        super().__init__(store, path, model, read_only=read_only)
        self._when_missing = check_missing(missing)

    def __getitem__(self, name: str) -> Array | Group:
        path = self._member_path(name)
        known = self._consolidated()
        if known is not None:
            if path not in known:
                raise self._missing(name)
            return self._open(path, known[path])
        documents = find_documents(self._store, [join_key(self._path, path)], self.zarr_format)[0]
        model = parse_node(documents, place(self._store, join_key(self._path, path)))
        if model is None:
            raise self._missing(name)
        return self._open(path, model)

    def get(self, name: str, default: Any = None) -> Any:
        """The member of that name, or `default` where there is none."""
        try:
            return self[name]
        except MemberNotFoundError:
            return default

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not name.strip("/"):
            return False
        path = self._member_path(name)
        known = self._consolidated()
        if known is not None:
            return path in known
        return (
            node_kind(find_documents(self._store, [join_key(self._path, path)], self.zarr_format)[0])
            is not None
        )

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        known = self._consolidated()
        return sum(1 for _ in self._stored()) if known is None else len(known.names())

    def keys(self) -> Iterator[str]:
        """The names of the group's own members, sorted."""
        known = self._consolidated()
        if known is not None:
            return iter(known.names())
        return (name for name, _ in self._stored())

    def values(self) -> Iterator[Array | Group]:
        """The group's own members, in the order of their names."""
        return (member for _, member in self.items())

    def items(self) -> Iterator[tuple[str, Array | Group]]:
        """(name, member) of the group's own members, in the order of their names."""
        return ((name, self._open(name, model)) for name, model in self._models())

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """(name, array) of the group's own arrays."""
        for name, model in self._models():
            if isinstance(model, ArrayModel):
                yield name, cast("Array", self._open(name, model))

    def groups(self) -> Iterator[tuple[str, Group]]:
        """(name, group) of the group's own groups."""
        for name, model in self._models():
            if isinstance(model, GroupModel):
                yield name, cast("Group", self._open(name, model))

    def array_keys(self) -> Iterator[str]:
        """The names of the group's own arrays."""
        return (name for name, model in self._models() if isinstance(model, ArrayModel))

    def group_keys(self) -> Iterator[str]:
        """The names of the group's own groups."""
        return (name for name, model in self._models() if isinstance(model, GroupModel))

    def members(self, max_depth: int | None = 0) -> tuple[tuple[str, Array | Group], ...]:
        """(path, member) of the group's own members and down to `max_depth` levels further; None for all."""
        return tuple(self._walk("", max_depth))

    def tree(self, level: int | None = None) -> Tree:
        """The group and what is below it, down to `level` levels, as a drawing (`str` or `repr`)."""
        return Tree(self, level)

    def create_group(
        self, name: str, *, attributes: Mapping[str, Any] | None = None, overwrite: bool = False
    ) -> Group:
        """Make a group below this one, and groups on the way to it where there are none.

        Raises
            StoreError: there is a node of that name (unless `overwrite`, which replaces it).
            ReadOnlyError: the group was opened for reading.
        """
        path = self._member_path(name)
        where = join_key(self._path, path)
        plain = check_attributes(attributes, path=place(self._store, where)) if attributes else {}
        model = GroupModel(self.zarr_format, plain)
        create_node(self._store, where, model, overwrite=overwrite)
        return Group(self._store, where, model, read_only=False, missing=self._when_missing)

    def create_array(
        self,
        name: str,
        *,
        shape: Any = None,
        dtype: Any = None,
        data: Any = None,
        chunks: Any = "auto",
        shards: Any = None,
        filters: Any = "auto",
        compressors: Any = "auto",
        serializer: Any = "auto",
        fill_value: Any = "auto",
        order: str = "C",
        attributes: Mapping[str, Any] | None = None,
        chunk_key_encoding: Any = None,
        dimension_names: Iterable[str | None] | None = None,
        overwrite: bool = False,
    ) -> Array:
        """Make an array below this group; the arguments are those of `zstore.create_array`.

        Raises
            StoreError: there is a node of that name (unless `overwrite`, which replaces it).
            ReadOnlyError: the group was opened for reading.
        """
        path = join_key(self._path, self._member_path(name))
        store = self._store
        if data is not None:
            data, shape, dtype = describe_data(data, shape, dtype)
        model = make_array_model(
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            shards=shards,
            filters=filters,
            compressors=compressors,
            serializer=serializer,
            fill_value=fill_value,
            order=order,
            zarr_format=self.zarr_format,
            attributes=check_attributes(attributes, path=place(store, path)) if attributes else {},
            chunk_key_encoding=chunk_key_encoding,
            dimension_names=dimension_names,
        )
        return put_array(store, path, model, data=data, overwrite=overwrite, missing=self._when_missing)

    def require_group(self, name: str, *, overwrite: bool = False) -> Group:
        """The group of that name, made where there is none.

        Raises
            MetadataError: there is an array of that name.
        """
        member = None if overwrite else self.get(name)
        if member is None:
            return self.create_group(name, overwrite=overwrite)
        if isinstance(member, Group):
            return member
        raise MetadataError(f"{name!r} is an array, expected a group", path=place(self._store, self._path))

    def require_array(
        self, name: str, *, shape: Any, dtype: Any = None, exact: bool = False, **options: Any
    ) -> Array:
        """The array of that name, made where there is none; `options` are those of `create_array`.

        Raises
            MetadataError: there is a group of that name, or an array of another shape, or of a dtype that
                `dtype` cannot be cast to (with `exact`: any other dtype).
        """
        member: Array | Group | None = self.get(name)
        if member is None:
            return self.create_array(name, shape=shape, dtype=dtype, **options)
        where = place(self._store, join_key(self._path, self._member_path(name)))
        if isinstance(member, Group):
            raise MetadataError(f"{name!r} is a group, expected an array", path=where)
        expected = (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)
        if tuple(member.shape) != expected:
            raise MetadataError(f"array has the shape {member.shape}, expected {expected}", path=where)
        if dtype is not None:
            fits = member.dtype == np.dtype(dtype) if exact else np.can_cast(dtype, member.dtype)
            if not fits:
                raise MetadataError(
                    f"array has the dtype {member.dtype}, expected {np.dtype(dtype)}", path=where
                )
        return member

    def consolidate(self) -> Group:
        """Write the metadata of everything below into this group's own; see `zstore.consolidate`."""
        self._model = consolidate_node(self._store, self._path, self.zarr_format)
        return self

    def __delitem__(self, name: str) -> None:
        path = self._member_path(name)
        if name not in self:
            raise self._missing(name)
        delete_node(self._store, join_key(self._path, path))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return (self._path, self.zarr_format, self._store.url) == (
            other._path,
            other.zarr_format,
            other._store.url,
        )

    def __hash__(self) -> int:
        return hash((self._path, self.zarr_format, self._store.url))

    def __repr__(self) -> str:
        ending = " read-only" if self._read_only else ""
        return f"<zstore.Group {place(self._store, self._path)} v{self.zarr_format}{ending}>"

    def _member_path(self, name: str) -> str:
        path = check_path(name)
        if path:
            return path
        raise MemberNotFoundError(f"member name {name!r} names nothing", path=place(self._store, self._path))

    def _missing(self, name: str) -> MemberNotFoundError:
        return MemberNotFoundError(
            f"group has no array and no group {name!r}", path=place(self._store, self._path)
        )

    def _consolidated(self) -> Consolidated | None:
        consolidated = self._model.consolidated
        return consolidated if self._read_only and isinstance(consolidated, Consolidated) else None

    def _open(self, path: str, model: ArrayModel | GroupModel) -> Array | Group:
        return node(
            self._store,
            join_key(self._path, path),
            model,
            read_only=self._read_only,
            missing=self._when_missing,
        )

    def _stored(self) -> Iterator[tuple[str, Documents]]:
        """(name, documents) of the members, from the store."""
        names = [name for name in self._store.list_children(self._path) if name not in METADATA_NAMES]
        paths = [join_key(self._path, name) for name in names]
        found = find_documents(self._store, paths, self.zarr_format)
        return (
            (name, documents) for name, documents in zip(names, found, strict=True) if node_kind(documents)
        )

    def _loaders(self) -> Iterator[tuple[str, Callable[[], ArrayModel | GroupModel]]]:
        """(name, what gives its model) of the members, so that one that cannot be read spoils no other."""
        known = self._consolidated()
        if known is not None:
            for name in known.names():
                yield name, partial(known.__getitem__, name)
            return
        base = place(self._store, self._path)
        for name, documents in self._stored():
            yield name, partial(_load, documents, f"{base}/{name}")

    def _models(self) -> Iterator[tuple[str, ArrayModel | GroupModel]]:
        return ((name, load()) for name, load in self._loaders())

    def _walk(self, prefix: str, max_depth: int | None) -> Iterator[tuple[str, Array | Group]]:
        for name, member in self.items():
            yield prefix + name, member
            if isinstance(member, Group) and (max_depth is None or max_depth > 0):
                yield from member._walk(f"{prefix}{name}/", None if max_depth is None else max_depth - 1)


def _load(documents: Documents, where: str) -> ArrayModel | GroupModel:
    model = parse_node(documents, where)
    assert model is not None
    return model
