"""Bucket or server and prefix of a URL, and obstore's clients, which the whole process shares."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from zstore.base.locks import Lock
from zstore.errors import StoreError
from zstore.storage.objects.curl import CurlClient, make_curl_client
from zstore.storage.objects.library import forks, library
from zstore.storage.objects.options import Settings, kind_of

SCHEME = "obstore+"
# The characters of a web address that every server takes for the same.
PLAIN = re.compile(r"[A-Za-z0-9._~/-]*")
# obstore does not repeat requests: zstore does, in the same way for all kinds of servers.
ONCE = {"max_retries": 0, "retry_timeout": timedelta(minutes=15)}
# The variables of the environment that matter to clients, by how they begin.
SURROUNDINGS = ("AWS_", "GOOGLE_", "AZURE_", "ZSTORE_LIBCURL")
# The most clients that are kept for reuse.
KEPT = 256

_lock = Lock()
_clients: dict[Any, Client] = {}
_clients_of = 0
_parents: list[object] = []
_memories: dict[str, Any] = {}


class Address(NamedTuple):
    """`kind` is s3, gs, az, http, file or memory; `bucket` the URL, path or name above the prefix."""

    kind: str
    bucket: str
    prefix: str


def find_address(url: str) -> Address:
    """The address of a URL, with or without "obstore+" before it.

    Raises
        StoreError: it names no bucket, server or directory.
    """
    scheme, mark, rest = url.removeprefix(SCHEME).partition("://")
    scheme, start = scheme.lower(), url.partition("://")[0]
    kind = kind_of(scheme)
    if not mark or not rest.strip("/"):
        expected = "HOST/PATH" if kind == "http" else "BUCKET/PREFIX"
        raise StoreError(f"expected {start}://{expected}", path=url)
    if kind == "file":
        if not rest.startswith("/"):
            raise StoreError(f"expected {start}:///PATH, with an absolute path", path=url)
        return Address(kind, unquote(rest), "")
    if kind == "memory":
        return Address(kind, unquote(rest.strip("/")), "")
    if kind == "http":
        parts = urlsplit(f"{scheme}://{rest}")
        if parts.query:
            raise StoreError("obstore cannot ask for URLs that end in a query", path=url)
        if parts.netloc and PLAIN.fullmatch(parts.path):
            return Address(kind, f"{scheme}://{parts.netloc}", parts.path.strip("/"))
        # The path may mean anything to a server, so it stays as it is written.
        return Address(kind, f"{scheme}://{rest.rstrip('/')}", "")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise StoreError(f"expected {start}://BUCKET/PREFIX", path=url)
    return Address(kind, f"{scheme}://{bucket}", prefix.strip("/"))


def address_of(target: Any) -> tuple[Address, str]:
    """(address, URL) of one of obstore's own stores.

    Raises
        StoreError: it is none that zstore knows.
    """
    name = type(target).__name__
    if name == "MemoryStore":
        with _lock:
            _memories[str(id(target))] = target
        return Address("memory", str(id(target)), ""), f"{SCHEME}memory://{id(target)}"
    if name == "LocalStore":
        path = str(target.prefix or "/")
        return Address("file", path, ""), f"{SCHEME}file://{quote(path)}"
    if name == "HTTPStore":
        address = target.url.rstrip("/")
        return Address("http", address, ""), f"{SCHEME}{address}"
    kinds = {
        "S3Store": ("s3", "bucket"),
        "GCSStore": ("gs", "bucket"),
        "AzureStore": ("az", "container_name"),
    }
    if name not in kinds:
        raise StoreError(f"expected a store of obstore's, got {target!r}")
    kind, setting = kinds[name]
    prefix = str(target.prefix or "").strip("/")
    bucket = f"{kind}://{target.config[setting]}"
    # Its paths begin where its own prefix ends.
    return Address(kind, bucket, ""), f"{SCHEME}{bucket}{prefix and '/'}{prefix}"


class Client(NamedTuple):
    """A bucket or server as one of obstore's stores, and by libcurl, where that can ask it."""

    store: Any
    curl: CurlClient | None


def make_client(address: Address, settings: Settings, region: str | None = None) -> Client:
    """The client for the bucket or server of `address`; equal arguments give the same one.

    Raises
        StoreError: obstore is not installed.
        Exception: whatever obstore says to an option.
    """
    global _clients, _clients_of
    names = [name for name in os.environ if name.startswith(SURROUNDINGS)]
    surroundings = sorted((name, os.environ.get(name)) for name in names)
    key = _frozen((address.kind, address.bucket, settings, region, surroundings))
    with _lock:
        if _clients_of != forks():
            # Those of the parent are let go of by nobody: their threads are not here.
            _parents.append(_clients)
            _clients, _clients_of = {}, forks()
        found = _clients.pop(key, None)
        if found is None:
            while len(_clients) >= KEPT:
                del _clients[next(iter(_clients))]
            found = _make(address, settings, region)
        _clients[key] = found
        return found


def _make(address: Address, settings: Settings, region: str | None) -> Client:
    curl = make_curl_client(address.kind, address.bucket, settings, region)
    return Client(_make_store(address, settings, region), curl)


def _make_store(address: Address, settings: Settings, region: str | None) -> Any:
    store = library().store
    config, client, retry, provider, *_ = settings
    options: dict[str, Any] = {"client_options": client, "retry_config": retry or ONCE}
    if address.kind == "http":
        return store.HTTPStore.from_url(address.bucket, **options)
    if region:
        config = {**config, "region": region}
    # A token of the environment belongs to the keys there, not to others.
    has_token = "session_token" in config or not (os.environ.keys() & {"AWS_SESSION_TOKEN", "AWS_TOKEN"})
    if provider is None and config.keys() >= {"access_key_id", "secret_access_key"} and not has_token:
        provider = Credentials(
            {"token": None, **{name: config[name] for name in ("access_key_id", "secret_access_key")}}
        )
    if provider is None and address.kind == "az" and "account_key" not in config:
        # A key of the environment would go before what the caller gives.
        token = next((name for name in ("sas_key", "token") if name in config), None)
        if token is not None and not settings.is_anonymous:
            provider = Credentials({"sas_token" if token == "sas_key" else token: config[token]})
    if provider is not None:
        options["credential_provider"] = provider
    return store.from_url(address.bucket, config=config, **options)


class Credentials(NamedTuple):
    """A provider of credentials that do not change."""

    said: Mapping[str, Any]

    def __call__(self) -> dict[str, Any]:
        return {**self.said, "expires_at": None}


def _frozen(value: Any) -> Any:
    """The value in a hashable form."""
    if isinstance(value, str):  # as most are: to see whether it is a mapping takes longer
        return "str", value
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _frozen(item)) for key, item in value.items()))
    if isinstance(value, tuple | list):
        return tuple(map(_frozen, value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value).__name__, value


def open_memory(name: str, *, must_exist: bool) -> Any:
    """obstore's store in memory of that name.

    Raises
        StoreError: `must_exist`, and this process does not have it.
    """
    # Every process that forked goes on with what it had: a store in memory needs none of the threads.
    with _lock:
        if name in _memories:
            return _memories[name]
    if must_exist:
        raise StoreError("is the memory of another process", path=f"{SCHEME}memory://{quote(name)}")
    made = importlib.import_module("obstore.store").MemoryStore()
    with _lock:
        return _memories.setdefault(name, made)
