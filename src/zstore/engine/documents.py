"""Reading and writing the metadata documents of arrays and groups in a store, and consolidated metadata.

Nothing that zstore changes is ever hidden by consolidated metadata: before a node is written, created or
deleted, the consolidated blocks of the groups above it are removed from the store (docs/design/0002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from zstore.base.limits import current_limits
from zstore.base.once import COUNT_LIMIT, SIZE_LIMIT, ByContent, look_up
from zstore.engine.schedulers import map_threads
from zstore.errors import (
    ChangedError,
    MetadataError,
    NotFoundError,
    StoreError,
    UnsupportedError,
    ZstoreError,
)
from zstore.model import v1, v2, v3
from zstore.model.array import ArrayModel, may_be_shared
from zstore.model.document import parse_json, render_json
from zstore.model.group import Consolidated, GroupModel
from zstore.storage.base import Store, document_range, join_key, join_url

Model = ArrayModel | GroupModel
Documents = dict[str, bytes | memoryview]


class ModelStore(Store):
    """A store that has models of its nodes, and makes documents of them when one is asked for.

    models  of all nodes, by their paths, or the error of one that cannot be read; None: it has documents only
    """

    models: Mapping[str, Model | ZstoreError] | None = None


V2_KEYS = (v2.ARRAY_KEY, v2.GROUP_KEY, v2.ATTRIBUTES_KEY)
V1_KEYS = (v1.ARRAY_KEY, v1.ATTRIBUTES_KEY)
KEYS = {1: V1_KEYS, 2: V2_KEYS, 3: (v3.KEY,), None: (v3.KEY, *V2_KEYS)}
# The documents of one node, in order of precedence: of the first choice whose first key exists, all are read.
ARRAY_AND_GROUP = ((v2.ARRAY_KEY, v2.ATTRIBUTES_KEY), (v2.GROUP_KEY, v2.ATTRIBUTES_KEY))
CHOICES = {1: (V1_KEYS,), 2: ARRAY_AND_GROUP, 3: ((v3.KEY,),), None: ((v3.KEY,), *ARRAY_AND_GROUP)}
# Names below a group that are its own documents, never members.
METADATA_NAMES = frozenset((v3.KEY, *V2_KEYS, v2.CONSOLIDATED_KEY))
# The document that makes a node an array; it is locked while it or a chunk changes.
ARRAY_KEYS = {1: v1.ARRAY_KEY, 2: v2.ARRAY_KEY, 3: v3.KEY}
GROUP_KEYS = {2: v2.GROUP_KEY, 3: v3.KEY}
RENDER_ARRAY = {1: v1.render_array, 2: v2.render_array, 3: v3.render_array}


def document_keys(path: str, zarr_format: int | None) -> list[str]:
    """The keys under which the documents of a node are stored, as far as it has them."""
    return [join_key(path, name) for name in KEYS[zarr_format]]


def place(store: Store, path: str) -> str:
    """The URL of the node at `path`, as error messages name it."""
    return join_url(store.url, path)


def check_path(path: str | None) -> str:
    """Normalize the path of a node: without leading, trailing and double slashes; "" is the store's root.

    Raises
        StoreError: it has a part "." or "..", or a NUL.
    """
    if not path:
        return ""
    if not isinstance(path, str):
        raise TypeError(f"path is {path!r}; expected a text, names joined by '/'")
    parts = [part for part in path.split("/") if part]
    if "\0" in path or "." in parts or ".." in parts:
        raise StoreError(
            f"path {path!r} leaves the store or names nothing; expected names joined by '/'", path=path
        )
    return "/".join(parts)


def read_documents(
    store: Store, paths: Sequence[str], zarr_format: int | None = None, *, consolidated: bool = False
) -> list[Documents]:
    """For each path, all its metadata documents by name; all are requested at once.

    `consolidated` includes v2's `.zmetadata` (v3's is part of `zarr.json`). Without a format, v1's documents
    are requested in a second round, for the paths without any other.

    Raises
        UnsupportedError: a format that zstore does not have.
        StoreError: the store failed.
    """
    zarr_format = check_format(zarr_format, store)
    names = KEYS[zarr_format]
    if consolidated and zarr_format in (2, None):
        names = (*names, v2.CONSOLIDATED_KEY)
    wish = document_range()
    values = iter(store.get_many([(join_key(path, name), wish) for path in paths for name in names]))
    found = [
        {name: value for name, value in zip(names, values, strict=False) if value is not None} for _ in paths
    ]
    if zarr_format is None:
        others = [index for index, documents in enumerate(found) if node_kind(documents) is None]
        if others:
            old = read_documents(store, [paths[index] for index in others], 1)
            for index, documents in zip(others, old, strict=True):
                found[index].update(documents)
    return found


def find_documents(
    store: Store, paths: Sequence[str], zarr_format: int | None = None, *, consolidated: bool = False
) -> list[Documents]:
    """For each path, the documents of the node there, by name: v3's, else a v2 array's or group's, else v1's.

    Unlike `read_documents`, it requests no more than it takes to tell which node it is.

    Raises
        UnsupportedError, StoreError: as `read_documents`.
    """
    zarr_format = check_format(zarr_format, store)
    choices = CHOICES[zarr_format]
    if consolidated and zarr_format in (2, None):
        choices = (*choices[:-1], (*choices[-1], v2.CONSOLIDATED_KEY))
    if zarr_format is not None:
        return store.get_first(paths, choices)
    found: list[Documents]
    if store.request_count > 1:
        # v3 is the usual case: for others, a second round trip costs less than four more requests for all.
        rest = choices[1:]
        try:
            found = store.get_first(paths, choices[:1])
        except StoreError as error:
            # Servers deny access to keys that do not exist, too, unless the caller may list.
            if not error.is_denied:
                raise
            found, rest = [{} for _ in paths], choices
        find_others(store, paths, found, rest)
    else:
        found = store.get_first(paths, choices)
    find_others(store, paths, found, CHOICES[1])
    return found


def find_others(
    store: Store, paths: Sequence[str], found: list[Documents], choices: Sequence[Sequence[str]]
) -> None:
    """Read the documents of `choices` for the paths that have none in `found` yet."""
    others = [index for index, documents in enumerate(found) if not documents]
    if others:
        asked = store.get_first([paths[index] for index in others], choices)
        for index, documents in zip(others, asked, strict=True):
            found[index] = documents


def check_format(zarr_format: int | None, store: Store) -> int | None:
    """The Zarr format to look for, None for any; a store that was opened for one format decides.

    Raises
        UnsupportedError: zstore has no such format.
        MetadataError: the store was opened for another format.
    """
    if zarr_format not in KEYS:
        raise UnsupportedError(f"zarr_format is {zarr_format!r}; expected 1, 2, 3 or None for any")
    if store.zarr_format is None or zarr_format == store.zarr_format:
        return zarr_format
    if zarr_format is None:
        return store.zarr_format
    raise MetadataError(
        f"zarr_format is {zarr_format}; expected {store.zarr_format}, as the store was opened for",
        path=store.url,
    )


def list_nodes(store: Store, path: str, zarr_format: int | None = None) -> Iterator[tuple[str, Documents]]:
    """(name, documents) of all children of the group at `path`, nodes or not.

    The call itself lists the names, and fails if the store cannot; the documents are read for the first pair.

    Raises
        UnsupportedError, StoreError: as `find_documents`.
    """
    names = _list_names(store, path)

    def pairs() -> Iterator[tuple[str, Documents]]:
        paths = [join_key(path, name) for name in names]
        yield from zip(names, find_documents(store, paths, zarr_format), strict=True)

    return pairs()


def list_below(
    store: Store, paths: Sequence[str], zarr_format: int | None = None
) -> Sequence[list[tuple[str, Documents]] | None]:
    """For each of the groups at `paths`, the pairs of `list_nodes`; None to call that one by one.

    In a store with latency, all groups are listed concurrently, and all documents requested at once.
    """
    if store.request_count == 1 or len(paths) < 2:
        return [None] * len(paths)
    try:
        names_of, at_once = partial(_list_names, store), store.request_count
        listed = map_threads(names_of, paths, waiting_count=at_once, only_asks=True)
        below = [join_key(path, name) for path, names in zip(paths, listed, strict=True) for name in names]
        found = iter(find_documents(store, below, zarr_format))
    except StoreError:  # listing one by one tells which group it is about
        return [None] * len(paths)
    return [list(zip(names, islice(found, len(names)), strict=True)) for names in listed]


def _list_names(store: Store, path: str) -> list[str]:
    return [name for name in store.list_children(path) if name not in METADATA_NAMES]


def node_kind(documents: Mapping[str, Any]) -> str | None:
    """The kind of node: "v3", "v1", v2's "array" or "group"; None if the documents make no node.

    v1's document has the name "meta", which any file may have: it counts if there are no other documents and
    it has a member that v1 requires.
    """
    if not documents:
        return None
    if v3.KEY in documents:
        return "v3"
    if v2.ARRAY_KEY in documents:
        return "array"
    if v2.GROUP_KEY in documents:
        return "group"
    meta = bytes(documents.get(v1.ARRAY_KEY, b""))
    return "v1" if b'"compression"' in meta or b'"zarr_format"' in meta else None


# Models of arrays and groups by their documents, of those that fit into any place.
_models: dict[bytes, Model] = {}


def parse_node(documents: Mapping[str, bytes | memoryview], where: str) -> Model | None:
    """The model of the node with these documents, None if they make no node.

    Raises
        MetadataError, UnsupportedError: what the documents say cannot be read.
    """
    kind = node_kind(documents)
    if kind is None:
        return None
    if kind == "v3":
        return _parse_v3(documents[v3.KEY], where)
    names = V1_KEYS if kind == "v1" else (*V2_KEYS, v2.CONSOLIDATED_KEY)
    parsed = {
        name: parse_json(data, path=where, key=name) for name, data in documents.items() if name in names
    }
    if kind == "v1":
        return v1.parse_array(parsed, path=where)
    return v2.parse_array(parsed, path=where) if kind == "array" else v2.parse_group(parsed, path=where)


def _parse_v3(data: bytes | memoryview, where: str) -> Model:
    """The model of a document; nodes with equal ones, as files of a series have, share it."""
    content = bytes(data) if len(data) <= min(SIZE_LIMIT, current_limits().document_size) else None
    kept = None if content is None else look_up(_models, content)
    if kept is not None:
        return kept
    model = v3.parse_node({v3.KEY: parse_json(data, path=where, key=v3.KEY)}, where)
    if content is not None:
        keep_model(content, model)
    return model


def keep_model(document: bytes, model: Model) -> None:
    """Keep the model of a node of v3, so that its document need not be parsed again."""
    fits = may_be_shared(model.fill_value) if isinstance(model, ArrayModel) else model.consolidated is None
    if fits and len(document) <= SIZE_LIMIT:
        if len(_models) >= COUNT_LIMIT:
            _models.clear()
        _models[document] = model


def known_models(store: Store) -> Mapping[str, Model | ZstoreError] | None:
    """The models of all nodes of a store by path, or their errors, where it has them."""
    return store.models if isinstance(store, ModelStore) else None


def parse_stored(store: Store, path: str, documents: Mapping[str, bytes | memoryview]) -> Model | None:
    """The model of a node that the store has these documents of, None if they make no node.

    Raises
        MetadataError, UnsupportedError: what they say cannot be read, or the store has an error in its place.
    """
    known = (known_models(store) or {}).get(path)
    if isinstance(known, ZstoreError):
        raise known.with_traceback(None)
    return parse_node(documents, place(store, path))


def read_node(store: Store, path: str, zarr_format: int | None = None) -> Model | None:
    """The model of the array or group at `path`, of any format or of `zarr_format`; None without one.

    Raises
        MetadataError, UnsupportedError: a document that cannot be read.
        StoreError: the store failed.
    """
    models = known_models(store)
    known = None if models is None else models.get(path)
    if isinstance(known, ZstoreError):
        raise known.with_traceback(None)
    if known is not None and zarr_format in (None, known.zarr_format):
        return known
    return parse_node(find_documents(store, [path], zarr_format, consolidated=True)[0], place(store, path))


def render_node(model: Model) -> dict[str, dict[str, Any]]:
    """The node's documents by name, in the order in which to write them."""
    zarr_format, is_array = model.zarr_format, isinstance(model, ArrayModel)
    if zarr_format not in (ARRAY_KEYS if is_array else GROUP_KEYS):
        what = "Zarr v1 has no groups" if zarr_format == 1 else "zstore writes 1, 2 and 3"
        raise UnsupportedError(f"zarr_format is {zarr_format!r}; {what}")
    if isinstance(model, ArrayModel):
        documents = RENDER_ARRAY[zarr_format](model)
    else:
        documents = v3.render_group(model) if zarr_format == 3 else v2.render_group(model)
    return dict(reversed(documents.items())) if len(documents) > 1 else documents


def change_node(
    store: Store, path: str, zarr_format: int, change: Callable[[Model | None], Model | None]
) -> None:
    """Change the documents of a node as `change` changes its model (None: not at all).

    They are those of the node that was read: what was removed meanwhile is not made again, where the store
    has locks, or values that it can `swap`.

    Raises
        as `write_node`.
    """
    found = find_documents(store, [path], zarr_format, consolidated=True)[0]
    previous = parse_stored(store, path, found)
    model = change(previous)
    if model is not None:
        write_node(store, path, model, previous, found)


def write_node(
    store: Store, path: str, model: Model, previous: Model | None = None, found: Documents | None = None
) -> None:
    """Write a node's documents over those that exist; with `previous`, only the ones that differ from its.

    found  the stored documents of `previous`, which must still be there as far as the store can `swap`

    Raises
        ChangedError: they are not.
        UnsupportedError: the model cannot be said in its format.
        ReadOnlyError, StoreError: the store refused.
    """
    documents = render_node(model)
    before = {} if previous is None else render_node(previous)
    encoded = {
        name: render_json(document) for name, document in documents.items() if before.get(name) != document
    }
    optional = (v2.ATTRIBUTES_KEY, v2.CONSOLIDATED_KEY) if model.zarr_format == 2 else ()
    gone = [name for name in (optional if previous is None else before) if name not in documents]
    forget_consolidated(store, path, model.zarr_format)
    if found and store.request_count == 1 and store.swap({}) is not None:
        changes = {**dict.fromkeys(found, ...), **encoded, **dict.fromkeys(gone)}
        if not store.swap({join_key(path, name): (found.get(name), new) for name, new in changes.items()}):
            message = "somebody else has just changed or removed the node; nothing was written"
            raise ChangedError(message, path=place(store, path))
        return
    for name, data in encoded.items():
        store.put(join_key(path, name), data)
    for name in gone:
        store.delete(join_key(path, name))


# Documents as they are stored; files of a series have most of theirs alike.
_encoded: ByContent[bytes] = ByContent()


def encode_nodes(models: Mapping[str, Model]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(path, documents by name) of each node; made once for each model."""
    made: dict[int, dict[str, bytes]] = {}
    for path, model in models.items():
        documents = made.get(id(model))
        if documents is None:
            documents = made[id(model)] = encode_node(model)
        yield path, documents


def encode_node(model: Model) -> dict[str, bytes]:
    """The node's documents by name, as they are stored, in the order in which to write them."""
    return {name: _encoded.get(document, render_json) for name, document in render_node(model).items()}


def publish_nodes(store: Store, base: str, models: Mapping[str, Model], *, replaces: bool = False) -> None:
    """Write the documents of complete nodes, by their paths below `base`.

    Arrays come first, then groups from the deepest up: the topmost one makes all of them visible. `replaces`
    writes over whatever is there; otherwise only over what an interrupted call of the same models wrote.

    Raises
        UnsupportedError: the format of a model cannot express it.
        StoreError: somebody else has made another node there.
        ReadOnlyError, StoreError: the store refused.
    """

    def order(below: str) -> tuple[bool, bool, int, str]:
        return not below, isinstance(models[below], GroupModel), -below.count("/"), below

    for below in sorted(models, key=order):
        path, model = join_key(base, below), models[below]
        if not replaces:
            # The last document makes the node: where there is none, nobody else has made one.
            *_, name = documents = render_node(model)
            try:
                forget_consolidated(store, path, model.zarr_format)
                for other in [*documents][:-1]:
                    store.put(join_key(path, other), _encoded.get(documents[other], render_json))
                store.put_new(join_key(path, name), _encoded.get(documents[name], render_json))
            except ChangedError:
                check_own(store, base, {below: model})
            else:
                continue
        write_node(store, path, model)


def check_own(store: Store, base: str, models: Mapping[str, Model]) -> None:
    """Check that the nodes at paths of unfinished work are those that it makes, by path below `base`.

    Those are arrays that differ in nothing but further attributes, and groups with all attributes or none.

    Raises
        StoreError: somebody else has made another node there.
    """
    paths = [join_key(base, below) for below in models]
    for path, model, documents in zip(paths, models.values(), find_documents(store, paths), strict=True):
        if node_kind(documents) is not None and not _is_own(documents, model, place(store, path)):
            raise StoreError(
                "somebody else has made a node where unfinished work is to make one; expected it to be moved "
                "or deleted, or the work to be begun anew with overwrite",
                path=place(store, path),
            )


def _is_own(documents: Documents, model: Model, where: str) -> bool:
    try:
        found = parse_node(documents, where)
    except (MetadataError, UnsupportedError):
        return False
    if isinstance(found, GroupModel) and isinstance(model, GroupModel):
        is_same = not found.attributes or model.attributes.keys() <= found.attributes.keys()
        return is_same and found.zarr_format == model.zarr_format
    if not isinstance(found, ArrayModel) or not isinstance(model, ArrayModel):
        return False
    bare, own = (render_node(one.with_attributes({})) for one in (found, model))
    return bare == own and model.attributes.keys() <= found.attributes.keys()


def check_above(store: Store, path: str, zarr_format: int) -> None:
    """Check that a node at `path` would be visible: all nodes above it are groups of its format.

    Raises
        MetadataError: a node above is an array, or has another format.
    """
    above = list(ancestors(path))
    check_groups(store, above, find_documents(store, above) if above else [], zarr_format)


def check_groups(store: Store, above: Sequence[str], found: Sequence[Documents], zarr_format: int) -> None:
    """Check the nodes above new ones by their documents, as `check_above` does."""
    for parent, documents in zip(above, found, strict=True):
        kind = node_kind(documents)
        if kind is None:
            continue
        actual = {"v3": 3, "v1": 1}.get(kind, 2)
        if actual != zarr_format:
            message = f"cannot create a Zarr v{zarr_format} node below a Zarr v{actual} one"
            raise MetadataError(message, path=place(store, parent))
        if kind == "v3":
            kind = _node_type(store, parent, documents[v3.KEY])
        if kind != "group":
            message = f"cannot create a node below what is no group but {kind!r}"
            raise MetadataError(message, path=place(store, parent))


# What documents of v3 say that they are: those above new nodes are read again for each.
_node_types: dict[bytes, Any] = {}


def _node_type(store: Store, path: str, data: bytes | memoryview) -> Any:
    content = bytes(data)
    kind = look_up(_node_types, content)
    if kind is None:
        kind = parse_json(data, path=place(store, path), key=v3.KEY).get("node_type")
        if len(content) <= SIZE_LIMIT:
            if len(_node_types) >= COUNT_LIMIT:
                _node_types.clear()
            _node_types[content] = kind
    return kind


def ancestors(path: str) -> Iterator[str]:
    """The paths above `path`, the root "" first."""
    if not path:
        return
    yield ""
    at = path.find("/")
    while at != -1:
        yield path[:at]
        at = path.find("/", at + 1)


def forget_consolidated(store: Store, path: str, zarr_format: int | None) -> None:
    """Remove the consolidated metadata of the groups above `path`, before it gets outdated."""
    forget(store, consolidated_keys(path, zarr_format))


def consolidated_keys(path: str, zarr_format: int | None) -> list[str]:
    """The keys above `path` where consolidated metadata may be."""
    names = {2: (v2.CONSOLIDATED_KEY,), None: (v3.KEY, v2.CONSOLIDATED_KEY)}.get(zarr_format, (v3.KEY,))
    return [join_key(parent, name) for parent in ancestors(path) for name in names]


def forget(store: Store, keys: list[str], values: Sequence[Any] | None = None) -> None:
    """Remove the consolidated metadata under these keys; `values` are their contents, if they were read."""
    if values is None:
        values = store.get_many([(key, None) for key in keys]) if keys else []
    for key, value in zip(keys, values, strict=True):
        if value is not None and key.endswith(v2.CONSOLIDATED_KEY):
            store.delete(key)
        elif value is not None and b'"consolidated_metadata"' in bytes(value):
            store.update(key, partial(_forget_within, store, key))


def _forget_within(store: Store, key: str) -> None:
    data = store.get(key)
    document = {} if data is None else parse_json(data, path=place(store, ""), key=key)
    if document.pop("consolidated_metadata", None) is None:
        return
    told = render_json(document)
    if store.request_count > 1 or (is_told := store.swap({key: (data, told)})) is None:
        store.put(key, told)
    elif not is_told:
        raise ChangedError("somebody else has just changed or removed the group", path=store.url, key=key)


# Consolidated metadata

# How often to consolidate what others change meanwhile; then it is left to be listed.
CONSOLIDATIONS = 4


def consolidate_node(store: Store, path: str, zarr_format: int) -> GroupModel:
    """Write the documents of everything below the group at `path` into its own, and return its model.

    Documents are copied as they are: a node that zstore cannot read is consolidated like the others.

    Raises
        NotFoundError: there is no such group.
        MetadataError: a document is no JSON object.
        ReadOnlyError, StoreError: the store refused.
    """
    key = join_key(path, v3.KEY if zarr_format == 3 else v2.GROUP_KEY)
    store.check_writable(key)
    told = join_key(path, v3.KEY if zarr_format == 3 else v2.CONSOLIDATED_KEY)
    parse = v3.parse_node if zarr_format == 3 else v2.parse_node
    made: GroupModel | None = None
    data = b""

    def gather() -> None:
        nonlocal made, data
        model = read_node(store, path, zarr_format)
        if not isinstance(model, GroupModel):
            raise NotFoundError("there is no group to consolidate", path=place(store, path), key=key)
        nodes: dict[str, dict[str, Any]] = {}
        _gather(store, path, "", zarr_format, nodes)
        made = replace(model, consolidated=Consolidated(nodes, parse, base=place(store, path)))
        data = render_json(render_node(made)[told.rpartition("/")[2]])

    def put() -> None:
        gather()
        store.put(told, data)

    for _ in range(CONSOLIDATIONS):
        store.update(key, put)
        before = data
        # Who changes a node removes what was consolidated before, and may have looked when there was nothing.
        if store.request_count == 1:
            gather()
        if data == before and made is not None:
            return made
    assert made is not None
    forget(store, [told])
    return replace(made, consolidated=None)


def _gather(store: Store, base: str, below: str, zarr_format: int, nodes: dict[str, dict[str, Any]]) -> None:
    for name, documents in list_nodes(store, join_key(base, below), zarr_format):
        if node_kind(documents) is None:
            continue
        path = join_key(below, name)
        where = place(store, join_key(base, path))
        parsed = {name: parse_json(data, path=where, key=name) for name, data in documents.items()}
        for document in parsed.values():
            if zarr_format == 3 and document.get("node_type") == "group":
                document.pop("consolidated_metadata", None)
        nodes[path] = parsed
        if v2.GROUP_KEY in parsed or (v3.KEY in parsed and parsed[v3.KEY].get("node_type") == "group"):
            _gather(store, base, path, zarr_format, nodes)
