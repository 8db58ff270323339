"""Hierarchies beyond a network: their documents are requested together, before they are opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zstore.base.byterange import ByteRange
from zstore.engine.documents import METADATA_NAMES, V1_KEYS
from zstore.engine.schedulers import map_threads
from zstore.errors import StoreError
from zstore.model import v2, v3
from zstore.storage.base import (
    BatchStore,
    Entry,
    Found,
    Names,
    Part,
    Parts,
    PrefixStore,
    Request,
    Store,
    document_range,
)

DOCUMENTS = METADATA_NAMES.union(V1_KEYS)
# How many keys one listing tells, and how many bytes are asked for before anybody wants them, and of a chunk.
MOST_KEYS = 999
MOST_READ = 4 << 20
MOST_SINGLE = 64 << 10


@dataclass
class _Answers:
    """The answers of a store so far: values, each key's version from one listing, results of `get_first`.

    `versions` is None where no listing tells all keys.
    """

    values: dict[str, Part] = field(default_factory=dict)
    versions: dict[str, str | None] | None = None
    names: dict[str, Names] = field(default_factory=dict)
    # By prefix and choices.
    found: dict[tuple[str, Any], dict[str, bytes | memoryview]] = field(default_factory=dict)

    def has(self, key: str) -> bool:
        """Whether a value under this key is possible."""
        return self.versions is None or key in self.versions

    def is_as_listed(self, parts: Iterable[tuple[str, Part | None]]) -> bool:
        """Whether the values read under these keys are those of the listing."""
        versions = self.versions
        return versions is None or all(
            part is None or (part.version is not None and part.version == versions.get(key))
            for key, part in parts
        )


class AheadStore(BatchStore, PrefixStore):
    """A store for reading, with all keys and some values requested ahead; valid until `forget`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "", read_only=True)
        self._held: _Answers | None = _Answers()

    def forget(self) -> None:
        """Send every request to the store from now on."""
        self._held = None

    # Nothing is read asynchronously while a hierarchy is being opened.
    get_parts_async = PrefixStore.get_parts_async
    size = PrefixStore.size

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with sizes and versions."""
        held = self._held
        if held is None:
            return self.store.get_parts(requests)
        others = [wish for wish in requests if wish[0] not in held.values and held.has(wish[0])]
        answers = self.store.get_parts(others) if others else []
        self._compare(held, zip((key for key, _ in others), answers, strict=True))
        asked = iter(answers)
        parts: Parts = []
        for key, byte_range in requests:
            if (value := held.values.get(key)) is not None:
                begin, end = (byte_range or ByteRange(0)).resolve(value.total_size)
                parts.append(value._replace(data=memoryview(value.data)[begin:end]))
            else:
                parts.append(next(asked) if held.has(key) else None)
        return parts

    def _compare(self, held: _Answers, parts: Iterable[tuple[str, Part | None]]) -> None:
        """Forget all answers if others wrote meanwhile: new documents may imply unlisted chunks."""
        if not held.is_as_listed(parts):
            self.forget()

    def get_first(self, prefixes: Sequence[str], choices: Sequence[Sequence[str]]) -> Found:
        """The documents of the first choice below each prefix; those requested ahead come from memory."""
        held = self._held
        if held is None:
            return self.store.get_first(prefixes, choices)
        found, kind = held.found, tuple(map(tuple, choices))
        asked = [prefix for prefix in prefixes if (prefix, kind) not in found]
        if asked:
            answers = (
                Store.get_first(self, asked, choices)
                if held.values or held.versions is not None
                else self.store.get_first(asked, choices)
            )
            found.update(zip(((prefix, kind) for prefix in asked), answers, strict=True))
        return [dict(found[prefix, kind]) for prefix in prefixes]

    def list_children(self, prefix: str = "") -> Names:
        """The sorted names right below `prefix`; listings that were requested ahead come from memory."""
        held = self._held
        if held is None:
            return self.store.list_children(prefix)
        if prefix not in held.names:
            held.names[prefix] = self._children(held, prefix)
        return list(held.names[prefix])

    def _children(self, held: _Answers, prefix: str) -> Names:
        if held.versions is None:
            return self.store.list_children(prefix)
        above = f"{prefix}/" if prefix else ""
        below = (key[len(above) :] for key in held.versions if key.startswith(above))
        return sorted({name.partition("/")[0] for name in below})

    def ask(self) -> None:
        """Request one listing, and the documents and chunks that it implies, in two rounds at most."""
        asks: list[Callable[[], Any]] = [self._list, partial(self._ask, [v3.KEY])]
        entries, root = map_threads(lambda ask: ask(), asks, waiting_count=2, only_asks=True)
        is_gathered = v3.KEY in root and b'"consolidated_metadata"' in bytes(root[v3.KEY].data)
        wanted = [] if entries is None or is_gathered else _wanted(entries)
        held = _Answers(root | self._ask([key for key in wanted if key not in root]))
        if entries is not None:
            held.versions = {entry.key: entry.version for entry in entries}
        self._held = held
        self._compare(held, held.values.items())

    def _list(self) -> Sequence[Entry] | None:
        try:
            return self.store.few_entries("", MOST_KEYS)
        except StoreError:  # who may not list is told so by whatever needs it
            return None

    def _ask(self, keys: Sequence[str]) -> dict[str, Part]:
        limit = document_range()
        try:
            parts = self.store.get_parts([(key, limit) for key in keys]) if keys else []
        except StoreError:  # it comes up again where the value is needed
            return {}
        found = {key: part for key, part in zip(keys, parts, strict=True) if part is not None}
        return {key: part for key, part in found.items() if part.total_size < (limit.size or 0)}


@contextmanager
def look_ahead(store: Store) -> Iterator[Store]:
    """The store, with everything that opening needs requested ahead if it lies beyond a network.

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
    """The keys of documents, and of the single chunks of 1-d arrays; [] if that is too much."""
    sizes = {entry.key: entry.size for entry in entries if entry.key.rpartition("/")[2] in DOCUMENTS}
    counts = Counter(entry.key.rpartition("/")[0] for entry in entries if entry.key not in sizes)
    for key, size, _ in entries:
        place, _, name = key.rpartition("/")
        documents = (f"{place.removesuffix('/c')}/{v3.KEY}", f"{place}/{v2.ARRAY_KEY}")
        is_array = (documents[0] if place.endswith("/c") else documents[1]) in sizes
        if name == "0" and is_array and counts[place] == 1 and size <= MOST_SINGLE:
            sizes[key] = size
    return list(sizes) if sum(sizes.values()) <= MOST_READ else []
