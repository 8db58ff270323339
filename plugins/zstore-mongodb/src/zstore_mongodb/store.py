"""A store in a MongoDB collection: one document per value."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import pymongo
from bson.errors import BSONError
from pymongo.errors import PyMongoError

from zstore.errors import StoreError
from zstore.plugin.stores import (
    BatchStore,
    Part,
    Parts,
    Request,
    check_key,
    check_prefix,
    failing,
    hold_name,
    without_password,
)

__all__ = ["MongodbStore"]

DATABASE, COLLECTION = "mongodb_zarr", "zarr_collection"
# How many keys one query asks for.
PAGE = 100
EXPECTED = "expected mongodb://host:port/database/collection"
FAILURES = (PyMongoError, BSONError, OSError, UnicodeError, KeyError)


class MongodbStore(BatchStore):
    """A store in a MongoDB collection: documents {"key": ..., "value": ...}, the layout of zarr-python 2.

    Every `put` and `delete` is atomic. A document, and so a value, holds 16 MB at most; for a byte range the
    whole value is read. `lock` excludes the threads of this process only. `url` does not show the password:
    to open it again, give the password as a storage option.
    """

    request_count = 16

    def __init__(
        self,
        url: str = "mongodb://127.0.0.1",
        *,
        database: str = DATABASE,
        collection: str = COLLECTION,
        read_only: bool = False,
        **options: Any,
    ) -> None:
        self.database = database
        self.collection = collection
        self.read_only = read_only
        self._address = url
        self._options = {"serverSelectionTimeoutMS": 10_000, **options}
        # By process: a client does not survive a fork, and closing the parent's would end its sessions.
        self._clients: dict[int, Any] = {}
        self._is_indexed = False
        self._documents()

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> MongodbStore:
        """The store at "mongodb://host:port/database/collection?options", with MongoDB's own options.

        Storage options are those of `pymongo.MongoClient`, such as `username` and `password`.
        """
        parts = urlsplit(url)
        names = parts.path.strip("/").split("/")
        if not parts.netloc or parts.fragment or len(names) > 2:
            raise StoreError(EXPECTED, path=without_password(url))
        database, collection = (*map(unquote, names), "")[:2]
        try:
            return cls(
                urlunsplit((parts.scheme, parts.netloc, "/", parts.query, "")),
                database=database or DATABASE,
                collection=collection or COLLECTION,
                read_only=read_only,
                **(storage_options or {}),
            )
        except (TypeError, ValueError) as error:
            raise StoreError(f"cannot open: {error}", path=without_password(url)) from error

    @property
    def url(self) -> str:
        """ "mongodb://host:port/database/collection", without a password."""
        parts = urlsplit(without_password(self._address))
        path = f"/{quote(self.database, safe='')}/{quote(self.collection, safe='')}"
        return urlunsplit(parts._replace(path=path))

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with the values' sizes."""
        keys = [*dict.fromkeys(check_key(key) for key, _ in requests)]
        found: dict[str, bytes] = {}
        for first in range(0, len(keys), PAGE):
            some = keys[first : first + PAGE]
            with failing("read", self.url, some[0], FAILURES):
                query = {"key": some[0] if len(some) == 1 else {"$in": some}}
                for document in self._documents().find(query):
                    found[document["key"]] = bytes(document["value"])
        parts: Parts = []
        for key, byte_range in requests:
            value = found.get(key)
            if value is None:
                parts.append(None)
                continue
            begin, end = byte_range.resolve(len(value)) if byte_range else (0, len(value))
            parts.append(Part(memoryview(value)[begin:end] if byte_range else value, len(value)))
        return parts

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Replace the document, or add it."""
        check_key(key)
        self.check_writable(key)
        with failing("write", self.url, key, FAILURES):
            documents = self._documents()
            if not self._is_indexed:
                # Without the index, two writers that add one key at the same time would add two documents.
                documents.create_index("key", unique=True)
                self._is_indexed = True
            documents.replace_one({"key": key}, {"key": key, "value": bytes(value)}, upsert=True)

    def delete(self, key: str) -> None:
        """Remove the document, if it is there."""
        check_key(key)
        self.check_writable(key)
        with failing("delete", self.url, key, FAILURES):
            self._documents().delete_many({"key": key})

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`, with one command."""
        query = _below(prefix)
        self.check_writable(prefix)
        with failing("delete", self.url, prefix, FAILURES):
            self._documents().delete_many(query)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`; a key that is put or deleted meanwhile may or may not be among them."""
        query = _below(prefix)
        with failing("list", self.url, prefix, FAILURES):
            found = self._documents().find(query, {"key": True, "_id": False})
            return iter([document["key"] for document in found])

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude the other threads of this process that lock the same key."""
        self.check_writable(key)
        return hold_name((self.url, check_key(key)))

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def as_read_only(self) -> MongodbStore:
        """The same documents, refusing writes."""
        return self._with(read_only=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clients": {}}

    def _documents(self) -> Any:
        client = self._clients.get(os.getpid())
        if client is None:
            with failing("open", self.url, None, FAILURES):
                client = pymongo.MongoClient(self._address, **self._options)
            client = self._clients.setdefault(os.getpid(), client)
        return client[self.database][self.collection]


def _below(prefix: str) -> dict[str, Any]:
    """The query for all keys below a prefix."""
    # "0" is the character after "/".
    return {"key": {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}} if check_prefix(prefix) else {}
