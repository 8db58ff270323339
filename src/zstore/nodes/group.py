"""Groups in a store: a mapping of names to arrays and groups, with methods that create and delete nodes."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSet,
    Sequence,
)
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from zstore.engine.documents import (
    Documents,
    check_path,
    consolidate_node,
    find_documents,
    known_models,
    list_below,
    list_nodes,
    node_kind,
    parse_node,
    place,
)
from zstore.engine.making import create_node, create_nodes, delete_node
from zstore.errors import MetadataError, NotFoundError, ZstoreError, leave_out, printable, without_secrets
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import check_attributes
from zstore.model.group import Consolidated, GroupModel
from zstore.nodes import above
from zstore.nodes.array import Array
from zstore.nodes.create import ArrayRequest, check_codecs, make_array, make_models
from zstore.nodes.nearby import say_names, say_near
from zstore.nodes.node import Access, advise_options
from zstore.nodes.zarr_names import GroupNames
from zstore.storage.base import Store, join_key, join_url

# (name, documents) of the children of a group.
Stored = list[tuple[str, Documents]]


class MemberNotFoundError(NotFoundError, KeyError):
    """A group has no member of that name."""


def node(store: Store, path: str, model: ArrayModel | GroupModel, access: Access) -> Array | Group:
    """The array or group at `path` that `model` describes."""
    if isinstance(model, GroupModel):
        return Group(store, path, model, access)
    return Array(store, path, model, access)


def make_group(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    access: Access,
    *,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Group:
    """Create a group, and the groups above it that do not exist.

    Raises
        StoreError: as `create_node`.
        MetadataError: attributes that JSON cannot represent.
    """
    plain = check_attributes(attributes, path=place(store, path)) if attributes else {}
    model = GroupModel(zarr_format, plain)
    create_node(store, path, model, overwrite=overwrite)
    return Group(store, path, model, access)


def make_hierarchy(
    store: Store,
    base: str,
    nodes: Mapping[str, Any],
    zarr_format: ZarrFormat | None,
    access: Access,
    *,
    overwrite: bool = False,
) -> Iterator[tuple[str, Array | Group]]:
    """Create nodes by their paths below `base`; returns (path below `base`, node) of each.

    Raises
        as `make_models` and `create_nodes`.
    """
    models = make_models(store, base, nodes, zarr_format, access)
    create_nodes(store, models, overwrite=overwrite)
    return iter(
        [
            (below, node(store, path, model, access))
            for below, (path, model) in zip(nodes, models.items(), strict=True)
        ]
    )


def members_of(groups: Sequence[Group]) -> list[tuple[tuple[str, Array | Group], ...] | None]:
    """The members of each of these groups of one store, requested together; None if that gains nothing.

    It is None too where a member cannot be read, which the group's own `members` tells.
    """
    gathered: list[tuple[tuple[str, Array | Group], ...] | None] = []
    below = groups[0]._stored_below([(group.path, group) for group in groups]) if groups else {}
    for group in groups:
        stored = below.get(group.path)
        try:
            gathered.append(None if stored is None else tuple(group._walk("", 0, None, stored)))
        except ZstoreError:
            gathered.append(None)
    return gathered


def readable_members(
    group: Group,
    max_depth: int | None = 0,
    *,
    dropped: Container[str] = (),
    is_decoded: bool = False,
    lost: MutableSet[str] | None = None,
) -> Iterator[tuple[str, Array | Group]]:
    """(path, member) of the group's members whose documents can be read; the others are left out.

    max_depth   as for `Group.members`
    dropped     paths of members that nobody asks for
    is_decoded  whether arrays are left out, too, that do not have all their codecs (`is_decodable`)
    lost        takes the paths of those that are left out

    Warns
        ReadingWarning: of each member that is left out.
    """
    unreadable = dict[str, ZstoreError]()
    lost = set() if lost is None else lost
    for path, member in group.members(max_depth, unreadable=unreadable):
        if path in dropped:
            continue
        if not is_decoded or isinstance(member, Group) or is_decodable(member):
            yield path, member
        else:
            lost.add(path)
    for path, reason in unreadable.items():
        if path not in dropped:
            lost.add(path)
            leave_out(join_key(group.path, path), reason)


def is_decodable(array: Array) -> bool:
    """Whether there are all codecs of an array, and they fit it; else it is left out.

    Warns
        ReadingWarning: it is left out.
    """
    try:
        check_codecs(array.model, allow_pickle=array.access.allow_pickle)
    except ZstoreError as error:
        leave_out(array.path, error.locate(path=join_url(array.store.url, array.path)))
        return False
    return True


class Tree:
    """A drawing of a group and the nodes below it, as text (`str` or `repr`)."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class Group(GroupNames):
    """A group in a store: its members by name; a path such as "a/b" reaches members of members.

    A group that was opened for reading uses its consolidated metadata, if it has any; a writable one always
    reads the store, so that it never shows outdated members.
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> Array | Group:
        return self.open_many([name])[0]

    def open_many(self, names: Iterable[str]) -> list[Array | Group]:
        """The members of these names, in their order, requested together: in one round trip over a network.

        >>> group.open_many(["t2m", "levels/0"])  # doctest: +SKIP
        [<zstore.Array s3://bucket/era/t2m ...>, <zstore.Array s3://bucket/era/levels/0 ...>]

        Raises
            MemberNotFoundError: there is no member of one of the names; the message has the first such name.
            MetadataError, UnsupportedError: a document cannot be read.
        """
        if isinstance(names, str):
            raise TypeError(f"names is the text {names!r}; expected several names")
        wanted = [(name, self._member_path(name)) for name in names]
        paths = list(dict.fromkeys(path for _, path in wanted))
        models: list[ArrayModel | GroupModel | None]
        consolidated = self._consolidated()
        if consolidated is None:
            asked = [join_key(self._path, path) for path in paths]
            documents = find_documents(self._store, asked, self.zarr_format)
            where = self._where()
            models = [parse_node(one, f"{where}/{path}") for path, one in zip(paths, documents, strict=True)]
        else:
            models = [consolidated.get(path) for path in paths]
        opened = {
            path: self._open(path, model)
            for path, model in zip(paths, models, strict=True)
            if model is not None
        }
        for name, path in wanted:
            if path not in opened:
                raise self._missing(name)
        return [opened[path] for _, path in wanted]

    def get(self, name: str, default: Any = None) -> Any:
        """The member of that name, or `default` if there is none."""
        try:
            return self[name]
        except MemberNotFoundError:
            return default

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not name.strip("/"):
            return False
        path = self._member_path(name)
        consolidated = self._consolidated()
        if consolidated is not None:
            return path in consolidated
        return (
            node_kind(find_documents(self._store, [join_key(self._path, path)], self.zarr_format)[0])
            is not None
        )

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        consolidated = self._consolidated()
        return sum(1 for _ in self._stored()) if consolidated is None else len(consolidated.names())

    def keys(self) -> Iterator[str]:
        """The names of the group's direct members, sorted."""
        consolidated = self._consolidated()
        if consolidated is not None:
            return iter(consolidated.names())
        return (name for name, _ in self._stored())

    def values(self) -> Iterator[Array | Group]:
        """The group's direct members, in the order of their names."""
        return (member for _, member in self.items())

    def items(self) -> Iterator[tuple[str, Array | Group]]:
        """(name, member) of the group's direct members, in the order of their names."""
        return ((name, self._open(name, model)) for name, model in self._models())

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """(name, array) of the arrays among the direct members.

        The error of a member that cannot be read is raised after all others were given.
        """
        for name, model in self._models():
            if isinstance(model, ArrayModel):
                yield name, Array(self._store, join_key(self._path, name), model, self._access)

    def groups(self) -> Iterator[tuple[str, Group]]:
        """(name, group) of the groups among the direct members."""
        for name, model in self._models():
            if isinstance(model, GroupModel):
                yield name, Group(self._store, join_key(self._path, name), model, self._access)

    def array_keys(self) -> Iterator[str]:
        """The names of the arrays among the direct members."""
        return (name for name, model in self._models() if isinstance(model, ArrayModel))

    def group_keys(self) -> Iterator[str]:
        """The names of the groups among the direct members."""
        return (name for name, model in self._models() if isinstance(model, GroupModel))

    def members(
        self, max_depth: int | None = 0, *, unreadable: MutableMapping[str, ZstoreError] | None = None
    ) -> tuple[tuple[str, Array | Group], ...]:
        """(path, member) of the direct members, and of those `max_depth` levels further down (None: all).

        The error of a member that cannot be read is put into `unreadable`, by the member's path, or raised if
        that is not given.
        """
        return tuple(self._walk("", max_depth, unreadable))

    def cached(self, size: int, *, fresh_for: float = 0) -> Group:
        """The same group, whose arrays share a cache in memory of at most `size` bytes, as `Array.cached`.

        With `fresh_for`, what threads ask for at one time is asked for once. Arrays in a directory have the
        cache of the process (`set_cache_size`) in any case.

        Raises
            StoreError: the store does not tell whether values have changed; expected `fresh_for=math.inf`.
        """
        return Group(self._kept_store(size, fresh_for), self._path, self._model, self._access)

    def batches(self, names: Iterable[str] | None = None, **options: Any) -> Any:
        """Batches of samples of arrays, by name: `group.batches(["t2m", "z"], sample={"time": 2})`.

        `zstore.batches` has the options. Without names, the arrays are all that have a sampled dimension,
        but for coordinates.
        """
        return above.group_batches(self, names, **options)

    def tree(self, level: int | None = None) -> Tree:
        """A drawing of the group and the nodes below it, down to `level` levels (None: all).

        For a member that cannot be read, it shows the reason.
        """
        return Tree("\n".join([printable(self.name), *self._draw("", level)]))

    def _draw(self, indent: str, level: int | None, stored: Stored | None = None) -> Iterator[str]:
        if level is not None and level < 1:
            return
        deeper = None if level is None else level - 1
        members: list[tuple[str, Array | Group | ZstoreError]] = []
        for name, load in self._loaders(stored):
            try:
                members.append((name, self._open(name, load())))
            except ZstoreError as error:
                members.append((name, error))
        below = {} if deeper == 0 else self._stored_below(members)
        for index, (name, member) in enumerate(members):
            branch, further = ("└── ", "    ") if index == len(members) - 1 else ("├── ", "│   ")
            shown = printable(name)
            if isinstance(member, ZstoreError):
                yield f"{indent}{branch}{shown} ({printable(member.message)})"
            elif isinstance(member, Array):
                yield f"{indent}{branch}{shown} {member.shape} {member.model.dtype}"
            else:
                yield f"{indent}{branch}{shown}"
                yield from member._draw(indent + further, deeper, below.get(name))

    @advise_options
    def create_group(
        self, name: str, *, attributes: Mapping[str, Any] | None = None, overwrite: bool = False
    ) -> Group:
        """Create a group below this one, and the groups between them that do not exist.

        Raises
            StoreError: there is a node of that name (unless `overwrite`, which replaces it).
            ReadOnlyError: the group was opened for reading.
        """
        path = join_key(self._path, self._member_path(name))
        return make_group(
            self._store,
            path,
            self.zarr_format,
            self._to_write(),
            attributes=attributes,
            overwrite=overwrite,
        )

    @advise_options
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
        checksum: bool = False,
        fill_value: Any = "auto",
        order: Literal["C", "F"] = "C",
        attributes: Mapping[str, Any] | None = None,
        chunk_key_encoding: Any = None,
        dimension_names: Iterable[str | None] | None = None,
        overwrite: bool = False,
    ) -> Array:
        """Create an array below this group; the arguments are those of `zstore.create_array`.

        Raises
            StoreError: there is a node of that name (unless `overwrite`, which replaces it).
            ReadOnlyError: the group was opened for reading.
        """
        request = ArrayRequest(
            shape=shape,
            dtype=dtype,
            data=data,
            chunks=chunks,
            shards=shards,
            filters=filters,
            compressors=compressors,
            serializer=serializer,
            checksum=checksum,
            fill_value=fill_value,
            order=order,
            zarr_format=self.zarr_format,
            attributes=attributes,
            chunk_key_encoding=chunk_key_encoding,
            dimension_names=dimension_names,
        )
        path = join_key(self._path, self._member_path(name))
        return make_array(self._store, path, request, self._to_write(), overwrite=overwrite)

    def create_hierarchy(
        self, nodes: Mapping[str, Any], *, overwrite: bool = False
    ) -> Iterator[tuple[str, Array | Group]]:
        """Create many nodes below this group in few requests; see `zstore.create_hierarchy`.

        Raises
            StoreError: there is a node already at one of the paths (unless `overwrite`, which replaces it).
            ReadOnlyError: the group was opened for reading.
        """
        for name in nodes:
            self._member_path(name)
        access = self._to_write()
        return make_hierarchy(self._store, self._path, nodes, self.zarr_format, access, overwrite=overwrite)

    def require_group(self, name: str, *, overwrite: bool = False) -> Group:
        """The group of that name, created if there is none.

        Raises
            MetadataError: there is an array of that name.
        """
        member = None if overwrite else self.get(name)
        if member is None:
            return self.create_group(name, overwrite=overwrite)
        if isinstance(member, Group):
            return member
        raise MetadataError(f"{name!r} is an array, expected a group", path=self._where())

    def require_array(
        self, name: str, *, shape: Any, dtype: Any = None, exact: bool = False, **options: Any
    ) -> Array:
        """The array of that name, created if there is none; `options` are those of `create_array`.

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
        """Write the metadata of all nodes below into this group's own; see `zstore.consolidate`."""
        self._model = consolidate_node(self._store, self._path, self.zarr_format)
        return self

    def __delitem__(self, name: str) -> None:
        path = join_key(self._path, self._member_path(name))
        if not delete_node(self._store, path, self.zarr_format):
            raise self._missing(name)

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
        ending = " read-only" if self.read_only else ""
        return f"<zstore.Group {printable(without_secrets(self._where()))} v{self.zarr_format}{ending}>"

    def _member_path(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"member name {name!r} is no text; expected a name, as in group['t2m']")
        path = check_path(name)
        if path:
            return path
        raise MemberNotFoundError(f"member name {name!r} names nothing", path=self._where())

    def _missing(self, name: str) -> MemberNotFoundError:
        said, where = f"group has no array and no group {name!r}", self._where()
        return MemberNotFoundError(said, path=where, hint=partial(self._say_near, check_path(name)))

    def _say_near(self, path: str) -> str:
        consolidated = self._consolidated()
        if consolidated is None:
            return say_near(self._store, join_key(self._path, path))
        return say_names(path, consolidated.names())

    def _consolidated(self) -> Consolidated | None:
        if not self.read_only:
            return None
        models, consolidated = known_models(self._store), self._model.consolidated
        if models is not None:
            return Consolidated.of(models, self._path)
        return consolidated if isinstance(consolidated, Consolidated) else None

    def _open(self, path: str, model: ArrayModel | GroupModel) -> Array | Group:
        return node(self._store, join_key(self._path, path), model, self._access)

    def _to_write(self) -> Access:
        """The access of nodes that are created below."""
        return replace(self._access, read_only=False) if self._access.read_only else self._access

    def _stored(self, stored: Stored | None = None) -> Iterator[tuple[str, Documents]]:
        """(name, documents) of the members: those in `stored`, else read from the store."""
        children = list_nodes(self._store, self._path, self.zarr_format) if stored is None else stored
        return ((name, documents) for name, documents in children if node_kind(documents))

    def _stored_below(self, members: Iterable[tuple[str, object]]) -> dict[str, Stored | None]:
        """The children of each group among the members, if reading those of all groups at once is better."""
        groups = {name: g for name, g in members if isinstance(g, Group) and g._consolidated() is None}
        paths = [group.path for group in groups.values()]
        return dict(zip(groups, list_below(self._store, paths, self.zarr_format), strict=True))

    def _loaders(
        self, stored: Stored | None = None
    ) -> Iterator[tuple[str, Callable[[], ArrayModel | GroupModel]]]:
        """(name, function that loads its model) of the members, so that each can fail by itself."""
        consolidated = self._consolidated()
        if consolidated is not None:
            for name in consolidated.names():
                yield name, partial(consolidated.__getitem__, name)
            return
        for name, documents in self._stored(stored):
            yield name, partial(_load, documents, f"{self._where()}/{name}")

    def _models(self) -> Iterator[tuple[str, ArrayModel | GroupModel]]:
        """(name, model) of the members; the error of one that cannot be read comes after all others."""
        unreadable: ZstoreError | None = None
        for name, load in self._loaders():
            try:
                model = load()
            except ZstoreError as error:
                unreadable = unreadable or error
            else:
                yield name, model
        if unreadable is not None:
            raise unreadable

    def _walk(
        self,
        prefix: str,
        max_depth: int | None,
        unreadable: MutableMapping[str, ZstoreError] | None,
        stored: Stored | None = None,
    ) -> Iterator[tuple[str, Array | Group]]:
        members = []
        for name, load in self._loaders(stored):
            try:
                members.append((name, self._open(name, load())))
            except ZstoreError as error:
                if unreadable is None:
                    raise
                unreadable[prefix + name] = error
        below = {} if max_depth == 0 else self._stored_below(members)
        for name, member in members:
            yield prefix + name, member
            if isinstance(member, Group) and max_depth != 0:
                deeper = None if max_depth is None else max_depth - 1
                yield from member._walk(f"{prefix}{name}/", deeper, unreadable, below.get(name))


def _load(documents: Documents, where: str) -> ArrayModel | GroupModel:
    model = parse_node(documents, where)
    assert model is not None
    return model
