"""The scenes that are served, opened anew when documents of their stores have changed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import accumulate
from time import monotonic
from typing import Any

import zstore
from zstore.errors import NotFoundError, ZstoreError
from zstore.plugin.nodes import document_keys
from zstore.plugin.stores import ByteRange, Store, file_of, join_key
from zstore_serve.problems import Problem
from zstore_serve.scenes import Scene, open_scenes

__all__ = ["Watch"]

log = logging.getLogger("zstore_serve")

# Seconds for which documents are taken for what they were: here, and beyond a network.
TRUST_TIME, FAR_TRUST_TIME = 1.0, 10.0
# How often a store is opened before it counts as one that is just being written.
MOST_TRIES = 3

# By the store's URL and key, a text that changes whenever the document does; "" where there is none.
Versions = dict[tuple[str, str], str]


class _Source:
    """A place that was given, its scenes, and the versions of their documents.

    At first these are unknown, so that the first look opens the store again: the first answer comes without
    further requests, and nothing is missed that was written between the two.
    """

    def __init__(self, place: Any, scenes: Mapping[str, Scene]) -> None:
        self.place = place
        self.scenes = scenes
        self.versions: Versions = {}
        self.checked = monotonic()
        self.lock = asyncio.Lock()
        self.is_near = all(array.store.request_count == 1 for array in _arrays_of(scenes))


class Watch(Mapping[str, Scene]):
    """The scenes of the given stores by id; those of one store are of one state of its documents.

    max_age  seconds for which chunks of stores with latency are kept in memory; 0: not

    Raises
        NotFoundError: one of the stores does not exist.
        MetadataError: one of the stores holds no grid of two dimensions.
    """

    def __init__(
        self, places: tuple[Any, ...], storage_options: Mapping[str, Any] | None = None, *, max_age: float = 0
    ) -> None:
        self._open = partial(open_scenes, storage_options=storage_options, max_age=max_age)
        self._sources: list[_Source] = []
        for place in places:
            self._sources.append(_Source(place, self._open([place], others=self)))

    def __getitem__(self, name: str) -> Scene:
        return next(source.scenes[name] for source in self._sources if name in source.scenes)

    def __contains__(self, name: object) -> bool:
        return any(name in source.scenes for source in self._sources)

    def __iter__(self) -> Iterator[str]:
        return (name for source in self._sources for name in source.scenes)

    def __len__(self) -> int:
        return sum(len(source.scenes) for source in self._sources)

    async def renew(self, name: str | None = None, *, at_once: bool = False) -> None:
        """Open anew the store of a scene whose documents have changed; without a name, every such store.

        at_once  whether to look even if that was done a moment ago

        Raises
            Problem: the store is gone, or cannot be read as it is now.
        """
        for source in self._sources:
            if name is None or name in source.scenes:
                async with source.lock:
                    trusted = TRUST_TIME if source.is_near else FAR_TRUST_TIME
                    if at_once or monotonic() - source.checked >= trusted:
                        await asyncio.to_thread(self._renew, source)

    def _renew(self, source: _Source) -> None:
        others = [name for one in self._sources if one is not source for name in one.scenes]
        try:
            versions = _find_versions(source.scenes)
            for _ in range(MOST_TRIES):
                if versions == source.versions:
                    source.checked = monotonic()
                    return
                if not any(versions.values()):
                    raise NotFoundError("all documents are gone")
                scenes = self._open([_reopened(source.place)], others=others)
                # What is written while the store is being opened shows here.
                before, versions = versions, _find_versions(scenes)
                if all(versions.get(document, version) == version for document, version in before.items()):
                    source.scenes, source.versions = scenes, versions
        except NotFoundError as error:
            raise Problem(410, "the store of this collection is no longer there") from error
        except ZstoreError as error:
            log.warning("%s cannot be opened anew: %s", ", ".join(source.scenes), error)
        raise Problem(503, "the store of this collection is being written, or is damaged")


def _reopened(place: Any) -> Any:
    """A node as its documents are now; other places as they are."""
    is_node = isinstance(place, zstore.Array | zstore.Group)
    return zstore.open(place.store, place.path, mode="r") if is_node else place


def _arrays_of(scenes: Mapping[str, Scene]) -> Iterator[zstore.Array]:
    return (array for scene in scenes.values() for level in scene.levels for array in level.arrays.values())


def _find_versions(scenes: Mapping[str, Scene]) -> Versions:
    """The versions of the documents of all arrays in the scenes, and of the groups above them."""
    keys: dict[Store, dict[str, None]] = {}
    for array in _arrays_of(scenes):
        for path in ("", *accumulate(array.path.split("/"), join_key)):
            keys.setdefault(array.store, {}).update(dict.fromkeys(document_keys(path, array.zarr_format)))
    versions = {
        (store.url, key): version for store, own in keys.items() for key, version in _ask(store, [*own])
    }
    for store in keys:
        # A store in one file (zip, SQLite) still reads the former one, when another takes its place.
        file = file_of(store) if store.local_path("") is None else None
        with suppress(OSError):
            versions[store.url, ""] = "" if file is None else repr(_identity(file.stat()))
    return versions


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _ask(store: Store, keys: list[str]) -> Iterator[tuple[str, str]]:
    """(key, version) of each value; in place of a version, a hash where the store knows none."""
    if store.request_count > 1:
        found: list[Any] = [*store.get_parts([(key, ByteRange(0, 1)) for key in keys])]
    else:
        found = [*map(store.entry, keys)]
    for key, one in zip(keys, found, strict=True):
        if one is None or one.version is not None:
            yield key, "" if one is None else one.version
        else:
            yield key, hashlib.blake2b(store.get(key) or b"").hexdigest()
