"""A store in a Redis database: one string per value, below a prefix of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import redis

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

__all__ = ["RedisStore"]

# How many keys one round trip lists or deletes.
PAGE = 1000
# Escapes for the characters that have a meaning in patterns of MATCH.
SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\*?[]^-"})
EXPECTED = "expected redis://host:port/database/prefix, with '?' and '#' written as %3F and %23"
FAILURES = (redis.RedisError, UnicodeDecodeError, OSError)


class RedisStore(BatchStore):
    """A store in a Redis database: strings named `prefix`:key, with the layout of zarr-python 2.

    Every `put` and `delete` is atomic; many `get`s are one round trip. A lock is a key that expires after
    `lock_timeout` seconds, and is renewed while it is held; one that was lost nevertheless raises StoreError.
    `url` does not show the password: to open it again, give the password as a storage option.
    """

    request_count = 64

    def __init__(
        self,
        url: str = "redis://127.0.0.1/0",
        *,
        prefix: str = "zarr",
        read_only: bool = False,
        lock_timeout: float = 30.0,
        **options: Any,
    ) -> None:
        self.prefix = prefix
        self.read_only = read_only
        self.lock_timeout = lock_timeout
        self._address = url
        self._options = {"socket_timeout": 60.0, "socket_connect_timeout": 10.0, **options}
        self._client = self._connect()

    def _connect(self) -> redis.Redis:
        with failing("open", self.url, None, FAILURES):
            client = redis.Redis.from_url(self._address, **self._options)
            pool = client.connection_pool
            # This does not connect, but refuses unknown options.
            pool.connection_class(**pool.connection_kwargs)
            return client

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> RedisStore:
        """The store at "redis://host:port/database/prefix"; the default prefix is "zarr".

        Storage options are `lock_timeout` and those of `redis.Redis`, such as `username` and `password`.
        """
        parts = urlsplit(url)
        database, _, prefix = parts.path.strip("/").partition("/")
        if not parts.hostname or parts.query or parts.fragment or not (database or "0").isdecimal():
            raise StoreError(EXPECTED, path=without_password(url))
        address = urlunsplit((parts.scheme, parts.netloc, database or "0", "", ""))
        try:
            return cls(
                address, prefix=unquote(prefix) or "zarr", read_only=read_only, **(storage_options or {})
            )
        except (TypeError, ValueError) as error:
            raise StoreError(f"cannot open: {error}", path=without_password(url)) from error

    @property
    def url(self) -> str:
        """ "redis://host:port/database/prefix", without a password."""
        return f"{without_password(self._address)}/{quote(self.prefix, safe='')}"

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        """`get_many`, with the size that each value had when its bytes were read."""
        with failing("read", self.url, requests[0][0] if requests else None, FAILURES):
            pipe = self._client.pipeline(transaction=True)
            for key, byte_range in requests:
                name = self._name(key)
                pipe.exists(name)
                pipe.strlen(name)
                if byte_range is None:
                    pipe.get(name)
                else:
                    start, size = byte_range
                    end = -1 if size is None or start < 0 else start + size - 1
                    # A range that ends before it begins is empty, except that -1 is the end of the value.
                    pipe.getrange(name, *((1, 0) if size == 0 else (start, end)))
            found = pipe.execute()
        parts: Parts = []
        for (_, byte_range), exists, total_size, data in zip(
            requests, found[::3], found[1::3], found[2::3], strict=True
        ):
            if not exists:
                parts.append(None)
                continue
            is_suffix = byte_range is not None and byte_range.start < 0
            parts.append(Part(data[: byte_range.size] if byte_range and is_suffix else data, total_size))
        return parts

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Set the value; Redis takes 512 MB at most."""
        name = self._name(key)
        self.check_writable(key)
        with failing("write", self.url, key, FAILURES):
            self._client.set(name, bytes(value))

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Set the value of a key that does not exist.

        Raises
            ChangedError: the key exists; its value stays.
        """
        name = self._name(key)
        self.check_writable(key)
        with failing("write", self.url, key, FAILURES):
            is_new = self._client.set(name, bytes(value), nx=True)
        if not is_new:
            raise self._taken(key)

    def delete(self, key: str) -> None:
        """Remove the key, if it is there."""
        name = self._name(key)
        self.check_writable(key)
        with failing("delete", self.url, key, FAILURES):
            self._client.delete(name)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key below `prefix`, a thousand at a time."""
        check_prefix(prefix)
        self.check_writable(prefix)
        names = [self._name(key) for key in self.list(prefix)]
        with failing("delete", self.url, prefix, FAILURES):
            for first in range(0, len(names), PAGE):
                self._client.unlink(*names[first : first + PAGE])

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every key below `prefix`, for which Redis looks at all keys of the database.

        A key that is put or deleted meanwhile may or may not be among them.
        """
        start = check_prefix(prefix) and f"{prefix}/"
        return iter(self._scan(start))

    def _scan(self, start: str) -> set[str]:
        pattern = f"{self.prefix}:{start}".translate(SPECIAL) + "*"
        skip = len(f"{self.prefix}:".encode())
        with failing("list", self.url, start.rstrip("/"), FAILURES):
            found = self._client.scan_iter(match=pattern, count=PAGE)
            # SCAN may give a name twice.
            return {bytes(name)[skip:].decode() for name in found}

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Exclude every thread, process and machine that locks the same key of this prefix.

        The lock's name is the value's with "zstore-lock:" before it, so no listing shows it.
        """
        name = self._name(key)
        self.check_writable(key)
        # Threads of one process wait for each other without asking the server.
        with hold_name((self.url, key)):
            held = self._client.lock(
                f"zstore-lock:{name}", timeout=self.lock_timeout, sleep=0.005, thread_local=False
            )
            with failing("lock", self.url, key, FAILURES):
                held.acquire()
            done = threading.Event()
            renewing = threading.Thread(target=self._renew, args=(held, done), daemon=True)
            renewing.start()
            try:
                yield
            finally:
                done.set()
                renewing.join()
                with failing("unlock", self.url, key, FAILURES):
                    held.release()

    def _renew(self, held: Any, done: threading.Event) -> None:
        while not done.wait(self.lock_timeout / 3):
            try:
                held.reacquire()
            except redis.RedisError:
                # If the lock was lost, releasing it raises.
                continue

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        self._client.close()

    def as_read_only(self) -> RedisStore:
        """The same keys, refusing writes."""
        return self._with(read_only=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._client = self._connect()

    def _name(self, key: str) -> str:
        check_key(key)
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise StoreError(f"key cannot be UTF-8: {error}", path=self.url, key=key) from error
        return f"{self.prefix}:{key}"
