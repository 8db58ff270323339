"""From a URL to obstore's store for its bucket, and the prefix below that."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from zstore.base.locks import Lock
from zstore.errors import StoreError
from zstore_obstore.library import library

__all__ = ["SCHEME", "Place", "find_place", "make_store", "place_of"]

SCHEME = "obstore+"
EXPECTED = "expected obstore+SCHEME://BUCKET/PREFIX"

_memories: dict[str, Any] = {}
_lock = Lock()


class Place(NamedTuple):
    """`kind` is the scheme behind "obstore+"; `bucket` is the URL (or path, or name) without the prefix."""

    kind: str
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        """The URL behind "obstore+"."""
        if self.kind in ("file", "memory"):
            return f"{self.kind}://{quote(self.bucket)}"
        return f"{self.bucket}/{self.prefix}".rstrip("/")


def find_place(url: str) -> Place:
    """The parts of an "obstore+" URL.

    Raises
        StoreError: it names no bucket, server or directory.
    """
    kind, mark, rest = url.removeprefix(SCHEME).partition("://")
    kind = kind.lower()
    if not url.startswith(SCHEME) or not mark or not rest.strip("/"):
        raise StoreError(EXPECTED, path=url)
    if kind == "file":
        if not rest.startswith("/"):
            raise StoreError("expected obstore+file:///PATH, with an absolute path", path=url)
        return Place(kind, unquote(rest), "")
    if kind == "memory":
        return Place(kind, unquote(rest.strip("/")), "")
    if kind in ("http", "https"):
        # The path may mean anything to a server, so it stays as it is written.
        if urlsplit(f"{kind}://{rest}").query:
            raise StoreError("obstore cannot ask for URLs that end in a query", path=url)
        return Place(kind, f"{kind}://{rest.rstrip('/')}", "")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise StoreError(EXPECTED, path=url)
    return Place(kind, f"{kind}://{bucket}", prefix.strip("/"))


def place_of(target: Any) -> Place:
    """Where one of obstore's own stores lies, as far as it says so.

    Raises
        StoreError: it is none that zstore knows.
    """
    name = type(target).__name__
    if name == "MemoryStore":
        with _lock:
            _memories[str(id(target))] = target
        return Place("memory", str(id(target)), "")
    if name == "LocalStore":
        return Place("file", str(target.prefix or "/"), "")
    if name == "HTTPStore":
        return Place(urlsplit(target.url).scheme, target.url.rstrip("/"), "")
    kinds = {
        "S3Store": ("s3", "bucket"),
        "GCSStore": ("gs", "bucket"),
        "AzureStore": ("az", "container_name"),
    }
    if name not in kinds:
        raise StoreError(f"expected a store of obstore's, got {target!r}")
    kind, setting = kinds[name]
    prefix = str(target.prefix or "").strip("/")
    return Place(kind, f"{kind}://{target.config[setting]}{prefix and '/'}{prefix}", "")


def make_store(place: Place, options: Mapping[str, Any], *, read_only: bool, must_exist: bool = False) -> Any:
    """obstore's store for `place`; `options` are its own.

    Raises
        StoreError: `must_exist`, and it is memory that this process does not have.
        Exception: whatever obstore says to an option.
    """
    if place.kind == "memory":
        if options:
            raise StoreError(f"memory takes no storage options, got {sorted(options)}", path=place.bucket)
        # Every process that forked goes on with what it had: a store in memory needs none of the threads.
        with _lock:
            if must_exist and place.bucket not in _memories:
                raise StoreError("is the memory of another process", path=f"{SCHEME}{place.url}")
            if place.bucket not in _memories:
                _memories[place.bucket] = importlib.import_module("obstore.store").MemoryStore()
            return _memories[place.bucket]
    store = library().store
    if place.kind == "file":
        if read_only and not os.path.isdir(place.bucket):  # noqa: PTH112
            raise StoreError("cannot open: there is no such directory", path=place.bucket)
        return store.LocalStore(place.bucket, automatic_cleanup=True, mkdir=not read_only, **options)
    if place.kind in ("http", "https"):
        client = {"allow_http": place.kind == "http", **options.get("client_options", {})}
        return store.HTTPStore.from_url(place.bucket, **{**options, "client_options": client})
    return store.from_url(place.bucket, **options)
