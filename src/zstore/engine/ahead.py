"""A hierarchy beyond a network, asked for at once before it is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from zstore.base.byterange import ByteRange
from zstore.engine.documents import METADATA_NAMES, V1_KEYS
from zstore.engine.pool import map_threads
from zstore.errors import StoreError
from zstore.model import v2, v3
from zstore.storage.base import Entry, Found, Names, Part, Parts, PrefixStore, Store, Values, document_range

__all__ = ["AheadStore", "look_ahead"]

DOCUMENTS = METADATA_NAMES.union(V1_KEYS)
# How many keys one listing tells, and how many bytes are asked for before anybody wants them, and of a chunk.
MOST_KEYS = 999
MOST_READ = 4 << 20
MOST_SINGLE = 64 << 10


class AheadStore(PrefixStore):
    """A store of which all keys and some values may be known until `forget`; for reading."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "", read_only=True)
        self._values: dict[str, bytes | memoryview] = {}
        self._keys: frozenset[str] | None = None
        self._names: dict[str, Names] = {}
        # By prefix and choices; None: nothing is known any more.
        self._found: dict[tuple[str, Any], dict[str, bytes | memoryview]] | None = {}

    def forget(self) -> None:
        """Ask the store for everything from now on."""
        self._values, self._keys, self._names, self._found = {}, None, {}, None

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        """The value, or those bytes of it, as they are known."""
        return self.get_many([(key, byte_range)])[0]

    def get_many(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Values:
        """`get` for many keys at once."""
        return [None if part is None else part.data for part in self.get_parts(requests)]

    def get_parts(self, requests: Sequence[tuple[str, ByteRange | None]]) -> Parts:
        """`get_many`, with sizes; of known values without a version."""
        values, keys = self._values, self._keys
        others = [wish for wish in requests if wish[0] not in values and (keys is None or wish[0] in keys)]
        asked = iter(self.store.get_parts(others) if others else ())
        parts: Parts = []
        for key, byte_range in requests:
            if key in values:
                begin, end = (byte_range or ByteRange(0)).resolve(len(values[key]))
                parts.append(Part(memoryview(values[key])[begin:end], len(values[key])))
            else:
                parts.append(next(asked) if keys is None or key in keys else None)
        return parts

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """As of every store; what was asked for before is known."""
        if self._found is None:
            return self.store.get_first(prefixes, choices)
        found, kind = self._found, tuple(map(tuple, choices))
        asked = [prefix for prefix in prefixes if (prefix, kind) not in found]
        if asked:
            answers = (
                Store.get_first(self, asked, choices)
                if self._values
                else self.store.get_first(asked, choices)
            )
            found.update(zip(((prefix, kind) for prefix in asked), answers, strict=True))
        return [dict(found[prefix, kind]) for prefix in prefixes]

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`; what was asked for before is known."""
        if self._found is None:
            return self.store.list_children(prefix)
        if prefix not in self._names:
            self._names[prefix] = self._children(prefix)
        return list(self._names[prefix])

    def _children(self, prefix: str) -> Names:
        if self._keys is None:
            return self.store.list_children(prefix)
        above = f"{prefix}/" if prefix else ""
        return sorted({key[len(above) :].partition("/")[0] for key in self._keys if key.startswith(above)})

    def ask(self) -> None:
        """Know what one listing names and what documents say, in two rounds of requests at most."""
        asks: list[Callable[[], Any]] = [self._list, partial(self._ask, [v3.KEY])]
        entries, root = map_threads(lambda ask: ask(), asks, waiting_count=2)
        is_gathered = b'"consolidated_metadata"' in bytes(root.get(v3.KEY, b""))
        wanted = [] if entries is None or is_gathered else _wanted(entries)
        self._values = root | self._ask([key for key in wanted if key not in root])
        if entries is not None:
            self._keys = frozenset(entry.key for entry in entries)

    def _list(self) -> Sequence[Entry] | None:
        try:
            return self.store.few_entries("", MOST_KEYS)
        except StoreError:  # who may not list is told so by whatever needs it
            return None

    def _ask(self, keys: Sequence[str]) -> dict[str, bytes | memoryview]:
        limit = document_range()
        try:
            values = self.store.get_many([(key, limit) for key in keys]) if keys else []
        except StoreError:  # it comes up again where the value is needed
            return {}
        found = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
        return {key: value for key, value in found.items() if len(value) < (limit.size or 0)}


@contextmanager
def look_ahead(store: Store) -> Iterator[Store]:
    """The store, with what opening will ask of it until the context ends, where it lies beyond a network.

    Of a store that one listing names all keys of, documents and the chunks of short coordinates are asked for
    in two rounds of requests; where its root has consolidated metadata, these in one.
    """
    if store.request_count == 1:
        yield store
        return
    ahead = AheadStore(store)
    ahead.ask()
    try:
        yield ahead
    finally:
        ahead.forget()


def _wanted(entries: Sequence[Entry]) -> list[str]:
    """The keys of documents, and of the only chunks of arrays of one dimension; [] where that is much."""
    sizes = {entry.key: entry.size for entry in entries if entry.key.rpartition("/")[2] in DOCUMENTS}
    counts = Counter(entry.key.rpartition("/")[0] for entry in entries if entry.key not in sizes)
    for key, size, _ in entries:
        place, _, name = key.rpartition("/")
        documents = (f"{place.removesuffix('/c')}/{v3.KEY}", f"{place}/{v2.ARRAY_KEY}")
        is_array = (documents[0] if place.endswith("/c") else documents[1]) in sizes
        if name == "0" and is_array and counts[place] == 1 and size <= MOST_SINGLE:
            sizes[key] = size
    return list(sizes) if sum(sizes.values()) <= MOST_READ else []
