"""Making and removing nodes, so that an interruption leaves the old state, the new one, or a marked rest.

An intent says that the nodes at and below a path are being made or removed. Node documents are written last
and deleted first; called again, the same operation clears away what an interrupted one left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import EDEADLK
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from zstore.base.byterange import ByteRange
from zstore.base.waits import in_haste
from zstore.engine.documents import (
    ARRAY_KEYS,
    CHOICES,
    GROUP_KEYS,
    METADATA_NAMES,
    V1_KEYS,
    Documents,
    ancestors,
    check_above,
    check_format,
    check_groups,
    encode_node,
    encode_nodes,
    find_documents,
    find_others,
    forget,
    forget_consolidated,
    node_kind,
    place,
    read_documents,
)
from zstore.engine.intents import (
    FORMER,
    INTENT,
    JOB,
    REPLACE,
    Mark,
    in_the_way,
    is_claimed,
    is_same_work,
    marked,
    parse_intent,
)
from zstore.engine.schedulers import map_threads
from zstore.errors import ChangedError, ExistsError, MetadataError, StoreError, ZstoreError
from zstore.model import v2, v3
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.grid import ChunkKeys
from zstore.model.group import GroupModel
from zstore.storage.base import (
    DOCUMENTS,
    SHAPE_LOCK,
    Part,
    PrefixStore,
    Request,
    Store,
    Values,
    choose_documents,
    document_keys,
    document_range,
    join_key,
    key_below,
)

Model = ArrayModel | GroupModel
Choices = Sequence[Sequence[str]]
# What puts a mark at a path, by path.
_Early = Mapping[str, Callable[[str], None]]

# What may exist where a new node goes: a node, the rest of one, or attributes without a node.
ANY = (*CHOICES[None], (INTENT,), (FORMER,), (v2.ATTRIBUTES_KEY, *V1_KEYS), V1_KEYS)
NODE_NAMES = frozenset(name.partition("/")[0] for choice in ANY for name in choice)
# The documents that make a node, or tell of one: without them, attributes and chunks are nothing.
NODE_MAKERS = frozenset((*ARRAY_KEYS.values(), *GROUP_KEYS.values(), v2.CONSOLIDATED_KEY))
# Those of an array and a group, by format.
NODES = {zarr_format: {key, GROUP_KEYS.get(zarr_format, key)} for zarr_format, key in ARRAY_KEYS.items()}
# How keys begin that say what is under way, or keep others out.
OWN_NAMES = ".zstore-"
# So many documents are put at once.
PUT_COUNT = 1024
# Listing more keys than this takes longer than a request for one document.
FEW = 128
# Documents of groups above new nodes are remembered: at most this many per store, each of at most this size.
SEEN_COUNT = 1024
SEEN_SIZE = 16 << 10
# After this many lists in a row that showed changed documents, a store's documents are read each time.
MISSES = 2


class _Seen:
    """The documents of groups above new nodes, by key, as last read from a store; None for missing ones."""

    def __init__(self) -> None:
        self.parts: dict[str, Part | None] = {}
        self.miss_count = 0

    def note(self, keys: Iterable[str], parts: Sequence[Part | None]) -> None:
        """Remember these, if a list of the store can show whether they have changed."""
        if all(part is None or (part.version and part.total_size <= SEEN_SIZE) for part in parts):
            if len(self.parts) >= SEEN_COUNT:
                self.parts = {}
            self.parts.update(zip(keys, parts, strict=True))


_seen: WeakKeyDictionary[Store, _Seen] = WeakKeyDictionary()


def _check_names(store: Store, path: str, zarr_format: int) -> None:
    """Check that a new node's name is allowed; existing nodes may have any name.

    Spec
        Zarr v3, "Node names": no name of periods only, none that begins with "__".
    """
    for name in path.split("/") if path else ():
        if zarr_format == 3 and (name.startswith("__") or not name.strip(".")):
            expected = (
                "no name of periods only, and none that begins with '__', which Zarr v3 keeps for itself"
            )
        elif name in METADATA_NAMES or name.startswith(OWN_NAMES):
            expected = "none that a document has, or what zstore keeps beside them"
        else:
            continue
        message = f"cannot create a node named {name!r}; expected {expected}"
        raise MetadataError(message, path=place(store, path))


def create_node(
    store: Store,
    path: str,
    model: Model,
    *,
    overwrite: bool = False,
    fill: Callable[[Store], None] | None = None,
) -> None:
    """Write a new node, and the missing groups above it.

    `overwrite` replaces the node at `path` with everything below it, and nothing else. `fill` stores what the
    node holds, in a view of the store, before its documents make it one; where that fails, what it stored is
    removed. Whatever interrupts this leaves the old node, the new one, or what the same call clears away.

    Raises
        as `create_nodes`.
    """
    with store.held_open():
        [new], told = _clear_places(store, {path: model}, overwrite=overwrite)
        if fill is None or isinstance(model, GroupModel):
            new.put(told=told)
            return
    made = {"keys": [model.keys.name, model.keys.separator, model.ndim]}
    # What was there is gone: whoever comes first with a mark is alone, whether it replaces something or not.
    with marked(store, path, "create", made, is_new=True) as mark:
        is_ours = is_filled = False
        # What is left of a node that was replaced makes way.
        chunks = NewChunks(store) if store.notices_changes and not new.is_replaced else None
        try:
            if _is_made(store, path, {*new.documents, *NODES[model.zarr_format]}):
                # Whoever was first has finished, and removed the mark, before this one was put.
                raise _taken(store, path)
            is_ours = True
            fill(chunks or store)
            if not mark.is_held():
                raise _taken(store, path)
            is_filled = True
            new.put(mark, told=told)
        except BaseException as error:
            # If cleaning up fails, too, the first error is the one to raise.
            with suppress(ZstoreError), in_haste(error):
                if mark.is_held():
                    # A node there is somebody else's, who has not ended yet where makers look for marks.
                    is_taken = isinstance(error, _TakenError)
                    if is_filled and not is_taken:
                        new.take_back(new.documents)
                    is_others = (is_taken or chunks is not None) and _is_made(store, path, new.documents)
                    if is_ours and (not is_others or _meets_marks(store)):
                        _delete_chunks(store, path, made)
                    elif is_ours and chunks is not None:
                        chunks.take_back()
                    mark.remove()
                elif is_ours:
                    _clear_behind(new, mark, made, chunks)
            raise
        with suppress(StoreError):
            mark.remove()  # beside a complete node a mark means nothing


def _clear_behind(new: _New, mark: Mark, made: Mapping[str, Any], chunks: NewChunks | None) -> None:
    """Remove the chunks of a new array that came after somebody had removed its mark with a group above.

    Raises
        ZstoreError: somebody else makes a node there; or an array is above, whose chunks may have such names.
    """
    if chunks is not None:
        chunks.take_back()
        return
    check_above(new.store, new.path, new.model.zarr_format)
    new.store.put_new(mark.key, mark.data)
    if node_kind(find_documents(new.store, [new.path])[0]) is None:
        _delete_chunks(new.store, new.path, made)
    mark.remove()


class NewChunks(PrefixStore):
    """A view of a store that puts chunks where there are none, and reads nothing.

    Where looking takes a request, who makes the same array without data sees no mark, and may be first.

    versions  of the chunks that were put, by key
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, "")
        self.in_memory = False
        self.versions = dict[str, str | None]()

    def get(self, key: str, byte_range: ByteRange | None = None) -> None:
        return None

    def get_many(self, requests: Sequence[Request]) -> Values:
        return [None] * len(requests)

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        try:
            self.versions[key] = self.store.put_new(key, value)
        except ChangedError as error:
            raise _taken(self.store, key) from error

    def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[bytes | bytearray | memoryview],
        versions: Sequence[str | None] | None = None,
    ) -> Sequence[str | ChangedError | None] | None:
        found = self.store.put_new_many(keys, [*map(bytes, values)])
        for key, one in zip(keys, found or (), strict=False):
            if not isinstance(one, ChangedError):
                self.versions[key] = one
        for key, one in zip(keys, found or (), strict=False):
            if isinstance(one, ChangedError):
                raise _taken(self.store, key) from one
        return found

    def delete(self, key: str) -> None:
        """Nothing: a chunk there would be somebody else's."""

    def delete_many(self, keys: Sequence[str]) -> bool:
        return True

    def take_back(self) -> None:
        """Remove the chunks, but for those that somebody else has replaced since."""

        def remove(key: str) -> None:
            found = self.store.entry(key)
            if found is not None and found.version and found.version == self.versions[key]:
                self.store.delete(key)

        map_threads(remove, [*self.versions], waiting_count=self.store.request_count)


def create_nodes(store: Store, models: Mapping[str, Model], *, overwrite: bool = False) -> None:
    """Write new nodes by their paths, and the missing groups between and above them.

    `overwrite` replaces those that are there, with everything below them. A group that is new comes when
    all that lies below it is there, and until then a mark says so; of nodes in a group that is there, each
    comes as a whole.

    Raises
        StoreError: there is a node already, or what looks like chunks of an array that is gone, or somebody
            else is just making or removing one.
        MetadataError: something above is an array, or a node of another Zarr format; or a name is one that
            Zarr v3 keeps for itself.
        UnsupportedError: a model cannot be said in its format.
    """
    complete = dict(models)
    for path, model in models.items():
        for above in ancestors(path):
            if isinstance(complete.get(above), ArrayModel):
                raise MetadataError("an array holds no nodes; expected a group", path=place(store, above))
            # Between two of the nodes there are groups; above all of them only where there is none yet.
            if any(higher in models for higher in (*ancestors(above), above)):
                complete.setdefault(above, GroupModel(model.zarr_format))
    if not complete:
        return
    inner = [path for path in complete if any(above in complete for above in ancestors(path))]
    tops = complete.keys() - inner
    groups = {above for path in inner for above in ancestors(path)} & tops
    made: dict[str, Mark] = {}

    def put(path: str) -> None:
        news[path].put(is_alone=path in made)

    def put_all(paths: Sequence[str]) -> None:
        for first in range(0, len(paths), PUT_COUNT):
            some = paths[first : first + PUT_COUNT]
            if not _put_together(store, [news[path] for path in some]):
                map_threads(put, some, waiting_count=store.request_count)

    with store.held_open(), ExitStack() as marks:

        def mark(path: str) -> None:
            made[path] = marks.enter_context(marked(store, path, "create", is_new=True))

        # Over a network new groups are marked while their places are looked at: most are free.
        early = groups if store.request_count > 1 and not overwrite else ()
        try:
            found, told = _clear_places(
                store, complete, overwrite=overwrite, early=dict.fromkeys(early, mark)
            )
        except BaseException as error:
            with suppress(StoreError), in_haste(error):
                for one in made.values():
                    one.remove()
            raise
        news = {new.path: new for new in found}
        held = {path for path in groups if news[path].is_empty}
        for path in made.keys() - held:
            made.pop(path).remove()
        for path in held - made.keys():
            mark(path)
        is_put = False
        try:
            put_all(inner)
            put_all([*tops])
            is_put = True
            if _meets_marks(store) and told:
                values = store.get_many([(key, None) for key in told])
                _check_still_groups(store, told, values, next(iter(models.values())).zarr_format)
                forget(store, told, values)
        except _TakenError:
            # The node there belongs to somebody else; the marks say that the others are unfinished.
            raise
        except BaseException as error:
            with suppress(StoreError), in_haste(error):
                for path in news.keys() - made.keys() if is_put else ():
                    news[path].take_back(news[path].documents)
                for path, one in made.items():
                    _remove_marked(store, path, one)
            raise
        with suppress(StoreError):
            for one in made.values():
                one.remove(waits=False)


class _TakenError(ExistsError):
    """Another writer made a node while this one was being made."""


def _is_made(store: Store, path: str, names: Iterable[str]) -> bool:
    """Whether there is one of these documents, as far as the caller may know."""
    try:
        return any(store.size(join_key(path, name)) is not None for name in names)
    except StoreError as error:
        if not error.is_denied:
            raise
        return False


def _taken(store: Store, path: str) -> _TakenError:
    message = "cannot create: somebody else has just made a node there; to replace it, pass overwrite=True"
    return _TakenError(message, path=place(store, path))


def _gone_above(store: Store, path: str) -> ChangedError:
    message = "cannot create: somebody else has just removed the group above; expected it to stay"
    return ChangedError(message, path=place(store, path))


class _New(NamedTuple):
    """A new node.

    documents    by name, in the order in which they are put
    is_empty     whether there is nothing at its path
    is_stray     whether there are attributes of v2 at its path, but no node
    is_replaced  whether there was a node at its path, or the rest of one
    """

    store: Store
    path: str
    model: Model
    documents: dict[str, bytes]
    is_empty: bool
    is_stray: bool
    is_replaced: bool

    def put(self, mark: Mark | None = None, *, is_alone: bool = False, told: Sequence[str] = ()) -> None:
        """Put the documents.

        The last one makes the node. Where attributes of v2 are there already, the first does: they may be
        those of another maker, which has not come to an end.

        mark      the caller's, which is to be there still; without it, one that is there now is of another
                  maker, who may have begun to store chunks
        is_alone  whether no mark is looked for: one of the caller's keeps others away
        told      keys of metadata that are removed where they were consolidated meanwhile, without the node

        Raises
            StoreError: somebody else has made a node there, or makes one, as far as the store can tell.
            ChangedError: somebody else has removed or replaced the mark.
        """
        store, path = self.store, self.path
        names = [*reversed(self.documents)] if self.is_stray else [*self.documents]
        for number, name in enumerate(names):
            key, data = join_key(path, name), self.documents[name]
            if self.is_stray and number:
                store.put(key, data)
                continue
            try:
                version = store.put_new(key, data)
            except ChangedError as error:
                with suppress(StoreError):
                    self.take_back(names[:number])
                raise _taken(store, path) from error
            self.note(name, version)
        # Of two who replace the same, the other may store chunks by now, everywhere.
        if _meets_marks(store) or (mark is None and self.is_replaced):
            self._look_beside(mark, told, is_alone=is_alone)
        if self.is_stray and v2.ATTRIBUTES_KEY not in self.documents:
            store.delete(join_key(path, v2.ATTRIBUTES_KEY))

    def note(self, name: str, version: str | None) -> None:
        """Remember a group's document that was put, if a list can show that it has changed."""
        if self.store.lists_versions and isinstance(self.model, GroupModel):
            data = self.documents[name]
            part = Part(data, len(data), version)
            _seen.setdefault(self.store, _Seen()).note([join_key(self.path, name)], [part])

    def _look_beside(self, mark: Mark | None, told: Sequence[str], *, is_alone: bool) -> None:
        """Check that nobody has put another node beside the documents; forget metadata consolidated since.

        An array and a group of v2 have documents of different names: of two makers, one sees the other's.
        Whoever removes a group above removes the mark of a new array before its chunks.

        Raises
            as `put`; the documents are gone.
        """
        store, path = self.store, self.path
        others = [name for name in NODES[self.model.zarr_format] if name not in self.documents]
        asked = [join_key(path, name) for name in (others if is_alone else (*others, INTENT))]
        if not asked and not told:
            return
        found = store.get_many([(key, None) for key in (*asked, *told)])
        if any(value is not None for value in found[: len(others)]):
            self.take_back(self.documents)
            raise _taken(store, path)
        intent = None if is_alone else found[len(others)]
        if mark is not None:
            if intent is None or bytes(intent) != mark.data:
                self.take_back(self.documents)
                message = "cannot create: somebody else has just removed or replaced what is there, "
                raise ChangedError(f"{message}or a group above; expected neither", path=place(store, path))
        elif intent is not None and self.take_back(self.documents, intent):
            raise in_the_way(store, path, intent, "expected nothing there")
        if told:
            try:
                _check_still_groups(store, told, found[len(asked) :], self.model.zarr_format)
            except ZstoreError:
                self.take_back(self.documents)
                raise
            forget(store, [*told], found[len(asked) :])

    def take_back(self, names: Iterable[str], intent: bytes | memoryview | None = None) -> bool:
        """Remove documents that were put and are not to be a node: they would be another one's.

        False where that `intent` of another's is there no more: he has found them, and made way, or has
        removed them, and what is there is his, however equal.
        """
        for name in reversed([*names]):
            with self.store.lock(key := join_key(self.path, name)):
                if intent is not None and not is_same_work(
                    intent, self.store.get(join_key(self.path, INTENT))
                ):
                    return False
                if self.store.get(key) == self.documents[name]:
                    self.store.delete(key)
            intent = None  # the document that makes the node comes first
        return True


def _check_still_groups(
    store: Store, told: Sequence[str], values: Sequence[Any], zarr_format: ZarrFormat
) -> None:
    """Check that nobody has removed or replaced the groups above new nodes while these were made.

    told, values  keys above them where metadata may be consolidated, and what is there

    Raises
        ChangedError: a group is gone.
        MetadataError: it is one no more.
    """
    above = [key.rpartition("/")[0] for key in told]
    if zarr_format == 2:
        values = store.get_many([(join_key(parent, v2.GROUP_KEY), None) for parent in above])
    for parent, value in zip(above, values, strict=True):
        if value is None and zarr_format in GROUP_KEYS:
            raise _gone_above(store, parent)
    if zarr_format == 3:
        check_groups(store, above, [{v3.KEY: value} for value in values], zarr_format)


def _clear_places(
    store: Store, models: Mapping[str, Model], *, overwrite: bool, early: _Early = MappingProxyType({})
) -> tuple[list[_New], list[str]]:
    """Check that the nodes can be made, make the groups above them, and remove the nodes they replace.

    Returns the new nodes, and the keys above them where metadata may be consolidated.

    early  what puts marks at some paths meanwhile, if there are none; where it has, they do not count
    """
    zarr_format = next(iter(models.values())).zarr_format
    check_format(zarr_format, store)
    for path, model in models.items():
        if model.zarr_format != zarr_format:
            message = f"zarr_format is {model.zarr_format}, expected {zarr_format} as of the other nodes"
            raise MetadataError(message, path=place(store, path))
        store.check_writable(join_key(path, ARRAY_KEYS.get(zarr_format, v3.KEY)))
        _check_names(store, path, zarr_format)
    encoded = dict(encode_nodes(models))
    above = [*dict.fromkeys(parent for path in models for parent in ancestors(path) if parent not in models)]
    found_above, found, empty = _survey(store, above, list(models), zarr_format, early)
    check_groups(store, above, found_above, zarr_format)
    for parent, documents in zip(above, found_above, strict=True):
        if (intent := _intent_in(documents)) is not None:
            expected = "expected the node above to be made or deleted"
            raise in_the_way(store, parent, intent, expected)
    gone: set[str] = set()
    replaced = []
    for path in sorted(found):
        if gone and gone.intersection(ancestors(path)):
            gone.add(path)
            continue
        if not found[path]:
            continue
        _check_free(store, path, found[path], overwrite=overwrite)
        intent = _intent_in(found[path])
        if intent is not None or node_kind(found[path]) is not None:
            replaced.append(path)
            if intent is None or parse_intent(intent).made is None:
                gone.add(path)
    for path in replaced:
        delete_node(store, path)
        while path not in gone:  # chunks of an array were removed, and what else is there stays
            [found[path]] = store.get_first([path], ANY)
            _check_free(store, path, found[path], overwrite=overwrite)
            if node_kind(found[path]) is None:
                break
            # Whoever was making it has come to the end.
            delete_node(store, path)
    for path in found.keys() - gone - empty:
        if isinstance(model := models[path], ArrayModel):
            _check_no_chunks(store, path, model)
    told = [join_key(parent, v2.CONSOLIDATED_KEY if zarr_format == 2 else v3.KEY) for parent in above]
    if zarr_format == 2:
        forget(store, [key for key, documents in zip(told, found_above, strict=True) if documents])
    else:
        forget(store, told, [documents.get(v3.KEY) for documents in found_above])
    for parent, documents in zip(above, found_above, strict=True):
        if node_kind(documents) is None and zarr_format in GROUP_KEYS:
            _create_group(store, parent, zarr_format)
    stray = {path for path in found.keys() - gone if v2.ATTRIBUTES_KEY in found[path] and zarr_format == 2}
    empty |= gone
    there = {*replaced}
    news = [
        _New(store, path, model, encoded[path], path in empty, path in stray, path in there)
        for path, model in models.items()
    ]
    return news, told


def _check_free(store: Store, path: str, found: Documents, *, overwrite: bool) -> None:
    """Check that no node is at `path`, and none being made there, unless it is to be replaced."""
    if overwrite:
        return
    intent = _intent_in(found)
    if intent is not None and is_claimed(intent):
        raise in_the_way(store, path, intent, REPLACE)
    if (kind := node_kind(found)) is not None:
        there = {"v3": "a node", "v1": "a Zarr v1 array", "array": "an array"}.get(kind, f"a {kind}")
        raise ExistsError(
            f"cannot create: {there} is there already; pass overwrite=True to replace it",
            path=place(store, path),
        )


def _intent_in(found: Documents) -> bytes | memoryview | None:
    """The intent among the documents at a path."""
    return found.get(INTENT, found.get(FORMER))


def _survey(
    store: Store, above: list[str], paths: list[str], zarr_format: int, early: _Early
) -> tuple[list[Documents], dict[str, Documents], set[str]]:
    """The documents above new nodes, the documents at their paths, and the paths that are empty.

    For v3, the document of each path above is requested. The new paths are listed, several in one listing
    where they have one parent: a listing is one request, reading every possible document would be seven.
    Where the documents above were read before, one listing of the store tells whether they are unchanged.
    """
    names: dict[str, set[str]] = {}
    asked = CHOICES[3] if zarr_format == 3 else CHOICES[None]
    found_above: list[Documents] = []
    ours: set[str] = set()

    def put_early(path: str) -> None:
        with suppress(StoreError):  # somebody else's is there, as the list says
            early[path](path)
            ours.add(path)

    def documents(paths: list[str]) -> dict[str, Documents]:
        """The documents at paths, without our own marks."""
        found = dict(zip(paths, store.get_first(paths, ANY) if paths else (), strict=True))
        for path in ours.intersection(found):
            found[path].pop(INTENT, None)
        return found

    try:
        unchanged = _list_unchanged(store, above, paths, asked, names)
        if unchanged is not None:
            found_above = unchanged
        elif store.request_count == 1:
            _list_places(store, paths, names)
            found_above = _read_above(store, above, asked) if above else []
        else:
            asks: list[Callable[[], None]] = [lambda: _list_places(store, paths, names)]
            asks.extend(partial(put_early, path) for path in early)
            if above:
                asks.append(lambda: found_above.extend(_read_above(store, above, asked)))
            map_threads(lambda ask: ask(), asks, waiting_count=store.request_count, only_asks=True)
    except StoreError as error:
        # A caller that may read and write, but not list, requests every document.
        if not error.is_no_list:
            raise
        found = documents([*above, *paths])
        return [found.pop(path) for path in above], found, set()
    find_others(store, above, found_above, ANY)
    names = {path: names[path] - {JOB} if path in ours else names[path] for path in paths}
    found = documents([path for path in paths if names[path] & NODE_NAMES])
    return found_above, {path: {} for path in paths} | found, {path for path in paths if not names[path]}


def _list_unchanged(
    store: Store, above: list[str], paths: list[str], asked: Choices, names: dict[str, set[str]]
) -> list[Documents] | None:
    """The cached documents of the groups above a new node, if one listing shows that they are unchanged.

    The list also gives the `names` at the node's path. None where documents are not remembered or have
    changed, or where the store holds too many keys to list.
    """
    seen = _seen.get(store) if store.lists_versions else None
    if seen is None or seen.miss_count >= MISSES or len(paths) > 1:
        return None
    keys = document_keys(above, asked)
    known = {key: seen.parts[key] for key in keys if key in seen.parts}
    if not known or len(known) < len(keys):
        return None
    entries = store.few_entries("", FEW)
    if entries is None:
        seen.miss_count = MISSES
        return None
    versions = {entry.key: entry.version for entry in entries}
    if any(versions.get(key) != (part and part.version) for key, part in known.items()):
        seen.miss_count += 1
        return None
    seen.miss_count = 0
    [path] = paths
    names[path] = {key[len(path) + 1 :].partition("/")[0] for key in versions if key.startswith(f"{path}/")}
    return choose_documents(above, asked, [part and part.data for part in known.values()], {})


def _read_above(store: Store, above: list[str], asked: Choices) -> list[Documents]:
    """Read the documents above new nodes, and remember them if a list can show that they have changed."""
    if not store.lists_versions:
        return store.get_first(above, asked)
    keys, wish = document_keys(above, asked), document_range()
    parts = store.get_parts([(key, wish) for key in keys])
    _seen.setdefault(store, _Seen()).note(keys, parts)
    return choose_documents(above, asked, [part and part.data for part in parts], {})


def _list_places(store: Store, paths: Sequence[str], names: dict[str, set[str]]) -> None:
    """Find the names of each path's children with as few listings as possible."""
    if len(paths) == 1:
        names[paths[0]] = set(store.list_children(paths[0]))
        return
    parents = Counter(path.rpartition("/")[0] for path in paths if path)
    for depth in range(-1, max(map(_depth, paths)) + 1):
        here = [path for path in paths if _depth(path) == depth]
        if depth >= 0:
            # A parent of several paths is listed, unless the level above was enough to tell.
            held = {path.rpartition("/")[0] for path in here}
            _list_all(store, [parent for parent in held if parents[parent] > 1], names)
            for path in here:
                parent, _, name = path.rpartition("/")
                if name not in names.get(parent, {name}):
                    names[path] = set()
        _list_all(store, here, names)


def _list_all(store: Store, paths: Iterable[str], names: dict[str, set[str]]) -> None:
    wanted = [path for path in paths if path not in names]
    listed = map_threads(store.list_children, wanted, waiting_count=store.request_count, only_asks=True)
    names.update(zip(wanted, map(set, listed), strict=True))


def _depth(path: str) -> int:
    """The number of path parts above the last one; -1 for the root."""
    return path.count("/") if path else -1


def _put_together(store: Store, news: Sequence[_New]) -> bool:
    """`put` nodes with one document each, all at once; False if not, and nothing is done."""
    is_simple = all(len(new.documents) == 1 and not new.is_stray and not new.is_replaced for new in news)
    if _meets_marks(store) or len(news) < 2 or not is_simple:
        return False
    keys = [join_key(new.path, *new.documents) for new in news]
    values = [data for new in news for data in new.documents.values()]
    versions = store.put_new_many(keys, values)
    if versions is None:
        return False
    for new, version in zip(news, versions, strict=True):
        if not isinstance(version, ChangedError):
            [name] = new.documents
            new.note(name, version)
    for new, version in zip(news, versions, strict=True):
        if isinstance(version, ChangedError):
            raise _taken(store, new.path) from version
    return True


def _meets_marks(store: Store) -> bool:
    """Whether makers look for marks once more when they have put their documents: where it takes no request.

    They look for metadata that were consolidated meanwhile, too, as who deletes does. Of a maker
    who stores chunks below a mark and one who does not, at the same moment, one sees the other.
    """
    return store.request_count == 1


def delete_node(store: Store, path: str, zarr_format: int | None = None) -> bool:
    """Remove the node at `path` and all below it (of that format, if not None); False if there is none.

    Some stores remove all of it at once. In others an intent says that it is being removed, and is deleted
    last: called again, this finishes an interrupted removal. Of an array that was never completed, only the
    chunks are removed; of unfinished jobs everything.

    Raises
        ReadOnlyError, StoreError: the store refused, or somebody else is making or removing a node there.
    """
    store.check_writable(join_key(path, v3.KEY))
    with store.held_open():
        found = read_documents(store, [path], zarr_format, consolidated=True)[0]
        if node_kind(found) is None:
            return _delete_rest(store, path)
        with marked(store, path, "delete") as mark:
            forget_consolidated(store, path, None)
            with _document_locked(store, path, found):
                _remove_marked(store, path, mark, found)
        if _meets_marks(store):
            forget_consolidated(store, path, None)
    return True


def _delete_rest(store: Store, path: str) -> bool:
    """Remove what unfinished work has left where there is no node; False if it is none, or has become one."""
    rest = store.get(join_key(path, INTENT))
    found = rest if rest is not None else store.get(join_key(path, FORMER))
    if found is None:
        return False
    made = parse_intent(found).made
    with marked(store, path, "delete" if made is None else "create", made, seen=rest) as mark:
        # Whoever was making it may have put the documents before he ended.
        is_node = node_kind(find_documents(store, [path])[0]) is not None
        if made is None and not is_node:
            forget_consolidated(store, path, None)
            _remove_marked(store, path, mark)
            return True
        if not is_node:
            _delete_chunks(store, path, made)
        store.delete(join_key(path, FORMER))
        mark.remove()
    return not is_node


@contextmanager
def _document_locked(store: Store, path: str, found: Documents) -> Iterator[None]:
    """Hold the locks of a node's shape and document, so that no change under way writes it again."""
    name = next((name for name in (*DOCUMENTS, v2.GROUP_KEY) if name in found), None)
    with ExitStack() as held:
        # Where a store has no locks for it, the intent keeps changes of shape away.
        if name in DOCUMENTS and not store.notices_changes and not store.locks_below:
            held.enter_context(store.lock(join_key(path, SHAPE_LOCK)))
        if name is not None:
            try:
                held.enter_context(store.lock(join_key(path, name)))
            except StoreError as error:
                # Somebody else has just removed it with a group above, and a directory has the lock of that.
                if error.errno != EDEADLK:
                    raise
        yield


def clear(store: Store, path: str) -> None:
    """Remove everything at and below `path` but the intent of the work that replaces it; documents first.

    Raises
        StoreError: the store refused.
    """
    forget_consolidated(store, path, None)
    found = read_documents(store, [path], consolidated=True)[0]
    with _document_locked(store, path, found):
        _delete_below(store, path, found)


def _remove_marked(store: Store, path: str, mark: Mark, found: Documents | None = None) -> None:
    """Remove everything below `path`, the documents `found` there first, and the mark last."""
    if path and store.removes_whole:
        store.delete_prefix(path)
        return
    _delete_below(store, path, found or {})
    mark.remove()


def _delete_chunks(store: Store, path: str, made: Any) -> None:
    """Remove the chunks of the array that a mark's `made` describes (written by `create_node`)."""
    try:
        name, separator, ndim = made["keys"]
        keys = ChunkKeys(str(name), str(separator))
        below = {key: key_below(path, key) for key in store.list(path)}
        stored = [key for key, rest in below.items() if keys.cell(rest, int(ndim)) is not None]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise StoreError(
            "cannot tell what was being made; expected what zstore writes",
            path=place(store, path),
            key=INTENT,
        ) from error
    # What looks like chunks may be those of nodes that others make below.
    held = {
        key.removesuffix(f"/{INTENT}") if key.endswith(f"/{INTENT}") else key.rpartition("/")[0]
        for key, rest in below.items()
        if "/" in rest and (makes_node(key) or key.endswith(f"/{INTENT}"))
    } - {path}
    delete_keys(store, [key for key in stored if held.isdisjoint(ancestors(key))])


def delete_keys(store: Store, keys: Sequence[str], most: int | None = None) -> None:
    """Delete keys, many by one request where the store can; else `most` of them at a time.

    Of the keys of nodes, those that `makes_node` come in an earlier call: so no array lacks chunks.

    Raises
        StoreError: the store refused.
    """
    if not store.delete_many(keys):
        map_threads(store.delete, keys, waiting_count=most or store.request_count)


def makes_node(key: str) -> bool:
    """Whether a key is that of a document that makes a node, or tells of one."""
    return key.rpartition("/")[2] in NODE_MAKERS


def _delete_below(store: Store, path: str, found: Documents) -> None:
    """Remove everything below `path` but the intent there: documents first, so that no array lacks chunks.

    found  the documents of the node at `path`
    """
    intent = join_key(path, INTENT)
    if store.removes_whole:
        delete_keys(store, [join_key(path, name) for name in found])
        for name in sorted({*store.list_children(path)} - {JOB}):
            store.delete_prefix(join_key(path, name))
            store.delete(join_key(path, name))
        for name in {*store.list_children(join_key(path, JOB))} - {INTENT.rpartition("/")[2]}:
            store.delete_prefix(join_key(path, JOB, name))
        return
    # Who makes a node below may put its document before he learns of this: then there is more to remove.
    is_joined, keys = True, list[str]()
    while is_joined:
        former, keys = keys, [key for key in store.list(path) if key != intent]
        is_joined = any(key.endswith(f"/{INTENT}") for key in keys)
        is_joined |= _meets_marks(store) and bool(keys) and keys != former
        first = [key for key in keys if makes_node(key) or key.endswith(f"/{INTENT}")]
        delete_keys(store, first)
        _delete_rest_below(store, path, [*{*keys}.difference(first)])


def _delete_rest_below(store: Store, path: str, keys: Sequence[str]) -> None:
    """Remove keys below `path` that make no node."""
    if store.delete_many(keys):
        return
    below = {key: key_below(path, key) for key in keys}
    for name in sorted({rest.partition("/")[0] for rest in below.values() if "/" in rest} - {JOB}):
        store.delete_prefix(join_key(path, name))
    delete_keys(store, [key for key, rest in below.items() if "/" not in rest or rest.startswith(f"{JOB}/")])


def clear_rests(store: Store, path: str) -> None:
    """Remove the rests of unfinished work below `path`: all keys outside of nodes, except the intent.

    Raises
        StoreError: the store refused.
    """
    held: dict[str, bool] = {}
    for key in store.list(path):
        name = key_below(path, key).partition("/")[0]
        held[name] = held.get(name, False) or makes_node(key)
    for name in [name for name, is_node in held.items() if not is_node and name != JOB]:
        store.delete_prefix(join_key(path, name))
        store.delete(join_key(path, name))


def _check_no_chunks(store: Store, path: str, model: ArrayModel) -> None:
    """Check that there are no chunks of an array whose metadata is gone: a new array would show their values.

    Nor may an array cover unfinished work below it, which nobody would find there. Does nothing if the caller
    may not list the store.
    """
    try:
        names = store.list_children(path)
    except StoreError as error:
        if not error.is_no_list:
            raise
        return
    for name in names:
        is_chunk = (
            name == model.keys.prefix
            or (name[0] in "0123456789" and not model.keys.prefix)
            or name.startswith("c.")
        )
        key = join_key(path, name)
        # An empty directory holds nothing that could be shown.
        if is_chunk and (store.size(key) is not None or next(iter(store.list(key)), None) is not None):
            # They may be of whoever has come since the look for a node.
            if (intent := store.get(join_key(path, INTENT))) is not None:
                raise in_the_way(store, path, intent, REPLACE)
            if node_kind(find_documents(store, [path])[0]) is not None:
                raise _taken(store, path)
            raise StoreError(
                f"cannot create: {name!r} is there, which would be read as chunks of the new array; "
                f"expected nothing or a whole node",
                path=place(store, path),
            )
    for below in store.list(path) if set(names) - NODE_NAMES else ():
        if below.endswith((f"/{INTENT}", f"/{FORMER}")):
            above = below.removesuffix(FORMER).removesuffix(INTENT).rstrip("/")
            if above != path:
                raise in_the_way(
                    store, above, store.get(below) or b"", "expected nothing below the new array"
                )


def _create_group(store: Store, path: str, zarr_format: ZarrFormat) -> None:
    """Make a group above a new node, or take that which somebody else has just made."""
    [(name, data)] = encode_node(GroupModel(zarr_format)).items()
    is_ours = True
    try:
        store.put_new(join_key(path, name), data)
    except ChangedError:
        is_ours = False
    # An array of v2 has a document of another name; its maker looks for that of a group, too.
    if not is_ours or (zarr_format == 2 and _meets_marks(store)):
        found = find_documents(store, [path])
        if node_kind(found[0]) is None:
            raise _gone_above(store, path)
        try:
            check_groups(store, [path], found, zarr_format)
        except MetadataError:
            if is_ours:
                store.delete(join_key(path, name))
            raise
