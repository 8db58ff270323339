"""Requests to a bucket, server, directory or memory by obstore, as coroutines, repeated where needed."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from inspect import iscoroutinefunction
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPErrorProcessor, Request, build_opener, urlopen

from zstore.base.limits import current_limits
from zstore.base.locks import Lock
from zstore.errors import NotFoundError, StoreError
from zstore.storage.base import ByteRange, Fetch, Names, in_thread
from zstore.storage.objects.failures import (
    Elsewhere,
    changed,
    failed,
    first_line,
    is_changed,
    is_unsupported,
    missing_bucket,
    named_region,
    no_bucket,
    pause_after,
    status_of,
    telling,
)
from zstore.storage.objects.library import ask_all, awaited, forks, is_direct, library, pause, turn, wait_for
from zstore.storage.objects.options import read_options
from zstore.storage.objects.places import Place, make_client, open_directory, open_memory
from zstore.storage.range_requests import is_directory

T = TypeVar("T")

# Within a bucket, `list` is the method.
Listing = list[dict[str, Any]]

# What is sent in one piece: S3 takes 5 GiB so, and a condition holds for one piece only.
PIECE = 4 << 30
# Of the body of a web server's answer, how much must come in `read_time` of the limits.
PROGRESS_SIZE = 64 << 10
# Where conditions are known to hold; any other server that speaks S3 is tried once.
CONDITIONAL = (".amazonaws.com", ".amazonaws.com.cn", ".r2.cloudflarestorage.com")
PROBE = ".zstore-conditions"
AMAZON = "https://s3.amazonaws.com"

# By client, whether its server keeps conditions; what is known of one is known in the whole process.
_keeps: dict[int, tuple[Any, bool]] = {}
_probing = Lock()
# By bucket, the region that it turned out to be in.
_regions: dict[str, str] = {}


class Version(NamedTuple):
    """The version of a value as obstore gives it; both fields are None where there are no versions."""

    e_tag: str | None = None
    version: str | None = None

    @property
    def mode(self) -> dict[str, str] | None:
        """The condition that this is still the version."""
        return {name: value for name, value in self._asdict().items() if value is not None} or None

    @property
    def strong(self) -> str | None:
        """The tag, unless it is a weak one, which two values may share."""
        return None if self.e_tag is None or self.e_tag.startswith("W/") else self.e_tag


class Answer(NamedTuple):
    """The response to a request: bytes from `begin` on, the value's size and its version."""

    data: memoryview
    begin: int
    total_size: int
    version: Version


class Bucket:
    """A bucket, a web server, a directory or memory, below a prefix; errors name keys below `url`.

    With `target`, one of obstore's own stores is what is asked; else one is made of the options.
    """

    def __init__(
        self, place: Place, url: str, options: Mapping[str, Any], *, read_only: bool, target: Any = None
    ) -> None:
        self.place = place
        self.url = url
        self.options = dict(options)
        self.target = target
        self.has_ranges = True
        self.is_http = place.kind == "http"
        limits = current_limits()
        self.request_count = limits.request_count if self.is_http else limits.bucket_request_count
        self.has_versions = place.kind != "file"
        self._is_served = place.kind not in ("file", "memory")
        self._is_anonymous = False
        self._may_move = False
        self.needs_loop = _is_awaited(getattr(target, "credential_provider", None))
        self._client = target
        self._forks = forks()
        if target is None:
            self._open(read_only=read_only, must_exist=False)

    def _open(self, *, read_only: bool, must_exist: bool) -> None:
        """Take obstore's store for the place: the first time, after a fork, and when unpickled."""
        place, options = self.place, dict(self.options)
        if place.kind in ("file", "memory"):
            self.has_versions = options.pop("check_versions", True) and place.kind != "file"
            if options:
                what = "a directory" if place.kind == "file" else "memory"
                raise StoreError(f"{what} takes no storage options, got {sorted(options)}", path=self.url)
            with telling("open", self.url, None):
                if place.kind == "file":
                    self._client = open_directory(place.bucket, read_only=read_only)
                else:
                    self._client = open_memory(place.bucket, must_exist=must_exist)
            return
        settings = read_options(place.kind, options, place.bucket)
        self.has_versions = settings.check_versions
        self._is_anonymous = settings.is_anonymous
        self.needs_loop = _is_awaited(settings.provider)
        self._may_move = place.kind == "s3" and not settings.is_named
        region = _regions.get(place.bucket) if self._may_move else None
        with telling("open", self.url, None, place.kind):
            self._client = make_client(place, settings, region)

    @property
    def client(self) -> Any:
        """obstore's store; in a forked process another one like it."""
        if self._forks != forks():
            if self.place.kind == "memory":
                pass  # what it holds was copied by the fork
            elif self.target is None:
                self._open(read_only=True, must_exist=True)
            else:
                with telling("open again after a fork", self.url, None):
                    arguments, options = self.target.__getnewargs_ex__()
                    kind = getattr(library().store, type(self.target).__name__)
                    self._client = self.target = kind(*arguments, **options)
            self._forks = forks()
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        client = self.client  # of this process, as is the target
        kept = {name: value for name, value in self.__dict__.items() if name != "_client"}
        if client is self.target and self.place.kind == "memory":
            kept["target"] = None
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _forks=forks(), _client=state["target"])
        if self.target is None:
            with telling("open again", self.url, None):
                self._open(read_only=True, must_exist=True)

    async def fetch(self, fetch: Fetch) -> Answer | None:
        """The response to one request; None where there is no such value.

        Raises
            Elsewhere: a web server that obstore cannot read.
        """
        key, start, end, _ = fetch
        wanted: Any = None
        if start is not None:
            wanted = {"suffix": -start} if start < 0 else {"offset": start} if end is None else (start, end)
        try:
            return await self._again(partial(self._ask, key, wanted, end if start is None else None))
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None
        except (StoreError, Elsewhere):
            raise
        except Exception as error:  # sorted out here: a range that holds nothing is refused by every server
            if self.is_http and (status_of(error) or 0) // 100 == 3 and has_aiohttp():
                raise Elsewhere("a server that sends on to where obstore does not go") from error
            is_outside = status_of(error) == 416 or "Wanted range" in str(error)
            is_refused = is_outside or is_unsupported(error) or not self._is_served
            size, version = await self.head(key) if start is not None and is_refused else (None, Version())
            if start is not None and is_refused and size is None:
                return None
            if start is None or size is None:
                if self._is_nothing(key) or await self._is_page(key, error):
                    return None
                raise self.failed("read", key, error) from error
            first, last = ByteRange(start, None if end is None else end - start).resolve(size)
            if first >= last:
                return Answer(memoryview(b""), first, size, version)
            if is_unsupported(error):
                # Azure has no ranges that count from the end, some web servers have none at all.
                if start < 0:
                    return await self.fetch(fetch._replace(start=first, end=last))
                self.has_ranges = False
                return await self.fetch(fetch._replace(start=None, end=None))
            raise self.failed("read", key, error) from error

    def _check_bucket(self, error: FileNotFoundError) -> None:
        """Raise NotFoundError where it is the bucket itself that is not there."""
        if missing_bucket(error):
            raise no_bucket(self.url) from error

    async def head(self, key: str) -> tuple[int | None, Version]:
        """The size and the version of a value; None where there is none."""
        try:
            meta = await self._again(partial(self._do, "head", self.path(key)))
        except Exception as error:  # obstore's have no base but this; all but a missing value are trouble
            if isinstance(error, FileNotFoundError):
                # The answer to HEAD has no body that could name a missing bucket.
                return None, Version()
            if self._is_nothing(key):
                return None, Version()
            if self.is_http and status_of(error) in (405, 501):
                found = await self._again(partial(self._ask, key, None, 1))
                return found.total_size, found.version
            raise self.failed("read", key, error) from error
        return int(meta["size"]), Version(meta.get("e_tag"), meta.get("version"))

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The result of `ask`, which is repeated after failures that may be temporary."""
        limits, begin = current_limits(), monotonic()
        most = limits.attempt_count if self.is_http else limits.bucket_attempt_count
        for attempt in count(1):
            client = self.client
            try:
                async with turn(self.request_count):
                    return await ask()
            except (StoreError, Elsewhere, FileNotFoundError):
                raise
            except Exception as error:
                if await self._moved(error, client):
                    continue
                wait = pause_after(error, attempt, self.is_http)
                if wait is None or attempt >= most or monotonic() - begin + wait > limits.total_time:
                    raise
            await pause(wait)
        raise AssertionError

    async def _moved(self, error: Exception, client: Any) -> bool:
        """Whether the bucket is in another region than that of `client`, and another client is used now."""
        region = named_region(error)
        if region is None or (self._client is client and not self._may_move):
            return False
        if self._client is not client:  # another request has found it out
            return True
        bucket = self.place.bucket.partition("://")[2]
        endpoint = _endpoint(client) or AMAZON
        if not region and is_direct():
            region = _ask_region(endpoint, bucket)
        elif not region:
            region = await in_thread(_ask_region, endpoint, bucket)
        if region is None or self._client is not client:
            return region is not None
        self._may_move = False
        _regions[self.place.bucket] = region
        self._client = make_client(
            self.place, read_options(self.place.kind, self.options, self.place.bucket), region
        )
        return True

    async def _do(self, name: str, *arguments: Any, **options: Any) -> Any:
        """The result of a method of obstore's store; memory needs no threads, which a forked child lacks."""
        if self.is_direct:
            return getattr(self.client, name)(*arguments, **options)
        return await awaited(getattr(self.client, f"{name}_async")(*arguments, **options))

    @property
    def is_direct(self) -> bool:
        """Whether obstore's store is asked without a loop."""
        return self.place.kind == "memory" or is_direct()

    async def _ask(self, key: str, wanted: Any, limit: int | None = None) -> Answer:
        try:
            reply = await self._do(
                "get", self.path(key), options=None if wanted is None else {"range": wanted}
            )
        except Exception as error:
            if self.is_http and "Content-Length Header missing" in str(error):
                raise Elsewhere("a server that does not say how long its answers are") from error
            raise
        meta, (begin, end) = reply.meta, reply.range
        if self.is_http:
            self._check_answer(key, reply.attributes)
        version = Version(meta.get("e_tag"), meta.get("version"))
        if limit is not None and end - begin > limit:
            return Answer(
                await _first_of(reply, limit, directly=self.is_direct), begin, meta["size"], version
            )
        if self.is_direct:
            data = memoryview(reply.bytes())
        elif self.is_http:
            limits = current_limits()
            longest = limits.read_time * (1 + (end - begin) // PROGRESS_SIZE)
            try:
                async with asyncio.timeout(longest):
                    data = memoryview(await awaited(reply.bytes_async()))
            except TimeoutError as error:
                raise TimeoutError(
                    f"less than {PROGRESS_SIZE} bytes came in {limits.read_time:g} s, the limit read_time "
                    "(zstore.set_limits)"
                ) from error
        else:
            data = memoryview(await awaited(reply.bytes_async()))
        if data.nbytes != end - begin:
            raise OSError(f"the server promised bytes {begin} to {end}, {data.nbytes} bytes came")
        return Answer(data, begin, meta["size"], version)

    def _check_answer(self, key: str, attributes: Mapping[str, Any]) -> None:
        """Leave to fsspec what obstore does not tell: what is packed, and which address a page is from."""
        if "Content-Encoding" in attributes:
            raise Elsewhere("a server that packs its answers")
        is_page = str(attributes.get("Content-Type", "")).startswith("text/html")
        if is_page and not key.endswith((".html", ".htm")) and has_aiohttp():
            raise Elsewhere("a server that may show a directory as a page")

    async def put(self, key: str, value: bytes | bytearray | memoryview, mode: Any) -> Version:
        """Write a value, whole or not at all: "overwrite", "create", or on condition of a version.

        Raises
            ChangedError: the condition does not hold.
        """
        data = bytes(value)
        attempts = 0

        async def put() -> Any:
            nonlocal attempts
            attempts += 1
            pieces = None if len(data) > PIECE else False
            return await self._do("put", self.path(key), data, mode=mode, use_multipart=pieces)

        try:
            result = await self._again(put)
        except Exception as error:  # obstore's have no base but this
            is_gone = isinstance(error, FileNotFoundError) and not missing_bucket(error)
            if mode != "overwrite" and (is_changed(error) or is_gone):
                # An earlier attempt may have come through, and its answer not.
                found = await self.fetch(Fetch(key, None, None, ())) if attempts > 1 else None
                if found is not None and found.data == data:
                    return found.version
                is_weak = mode != "create" and str(mode.get("e_tag")).startswith("W/")
                # By a weak tag, no server that keeps to HTTP finds the value unchanged.
                if is_weak and (await self.head(key))[1].mode == mode:
                    raise self._unconditional(key, f"its tags are weak: {mode['e_tag']}") from error
                raise changed(self.url, key) from error
            if mode != "overwrite" and is_unsupported(error):
                raise self._unconditional(key, first_line(error)) from error
            raise self.failed("write", key, error) from error
        return Version(result.get("e_tag"), result.get("version"))

    async def put_new(self, key: str, value: bytes | bytearray | memoryview) -> Version:
        """Write a value that is not there; where the server keeps no conditions, over one that is.

        Raises
            ChangedError: it is there.
        """
        try:
            return await self.put(key, value, "create")
        except StoreError as error:
            if error.__cause__ is None or not is_unsupported(error.__cause__):
                raise
        return await self.put(key, value, "overwrite")

    def is_beside(self, other: Bucket) -> bool:
        """Whether both are parts of one bucket, reached with the same options."""
        place, there = self.place, other.place
        is_one = (place.kind, place.bucket) == (there.kind, there.bucket) and self.options == other.options
        return is_one and self._is_served and not self.is_http and self.target is other.target

    async def copy(self, key: str, path: str) -> bool:
        """Copy the object of a whole path to a key, on the server; False where it does not do that.

        Raises
            NotFoundError: there is no such object.
        """
        try:
            await self._again(partial(self._do, "copy", path, self.path(key)))
        except FileNotFoundError as error:
            raise NotFoundError("there is no such value", path=self.url, key=path) from error
        except Exception as error:  # obstore's have no base but this
            # S3 copies no object of more than 5 GiB in one request, some servers copy none.
            if is_unsupported(error) or status_of(error) in (400, 405, 501):
                return False
            raise self.failed("write", key, error) from error
        return True

    def check_conditions(self, key: str) -> None:
        """Find out, once for each client, whether its server keeps conditions; called outside of any loop.

        Raises
            StoreError: it does not, and would let writers overwrite each other.
        """
        client = self.client
        if self.place.kind != "s3":
            return
        with _probing:
            _, keeps = _keeps.get(id(client), (None, None))
            if keeps is None:
                host = _endpoint(client).partition("://")[2].partition("/")[0].partition(":")[0]
                keeps = not host or host.endswith(CONDITIONAL) or wait_for(self._probe())
                # The client is kept beside it, so that no other one gets its number.
                _keeps[id(client)] = client, keeps
        if not keeps:
            raise self._unconditional(key, "it overwrote in spite of a condition")

    async def _probe(self) -> bool:
        """Whether the server keeps the conditions of writes, tried with a temporary value.

        It has one name for all, so that what a killed process leaves goes with the next trial. Where that
        fails, another process may have removed the value meanwhile: a name of one's own tells.
        """
        return await self._keeps_at(PROBE) or await self._keeps_at(f"{PROBE}-{os.urandom(8).hex()}")

    async def _keeps_at(self, probe: str) -> bool:
        path = self.path(probe)

        async def holds(mode: Any) -> bool:
            try:
                await self._again(partial(self._do, "put", path, b"", mode=mode, use_multipart=False))
            except Exception as error:
                if is_changed(error) or is_unsupported(error) or isinstance(error, FileNotFoundError):
                    return is_changed(error)
                raise self.failed("write", None, error) from error
            return False

        with telling("write", self.url, None, self.place.kind):
            await self._again(partial(self._do, "put", path, b"", mode="overwrite", use_multipart=False))
        try:
            return all(await ask_all(holds, ["create", {"e_tag": '"zstore"'}]))
        finally:
            with suppress(StoreError):  # whoever may not delete may write
                await self.delete(probe)

    def _unconditional(self, key: str, reason: str) -> StoreError:
        error = StoreError(
            "cannot write on condition that nobody else did: this server does not keep such conditions"
            f" ({reason}), and writers of parts of one value would lose each other's; expected a server that"
            " does, or the storage option check_versions=False where nobody else writes",
            path=self.url,
            key=key,
        )
        error.errno = errno.ENOTSUP
        return error

    async def delete(self, keys: str | Names) -> None:
        """Remove a value, or many at a time; nothing happens where there is none."""
        key = keys if isinstance(keys, str) else None
        try:
            paths = self.path(key) if key is not None else [self.path(each) for each in keys]
            await self._again(partial(self._do, "delete", paths))
        except FileNotFoundError:
            if key is None:
                # Where servers say so of what is gone, that ended the request, and others are still there.
                await ask_all(self.delete, keys)
        except Exception as error:  # obstore's have no base but this
            if key is None or not self._is_nothing(key):
                raise self.failed("delete", key, error) from error

    async def list_children(self, prefix: str) -> Names:
        """The whole paths right below `prefix`, of values and of prefixes."""
        ask = partial(self._do, "list_with_delimiter", self.path(prefix) or None)
        found = await self.listed(prefix, ask)
        return [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]

    async def listed(self, prefix: str, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` gives, asked again where that may help."""
        try:
            return await self._again(ask)
        except FileNotFoundError as error:
            raise no_bucket(self.url) from error
        except Exception as error:  # obstore's have no base but this
            raise self.failed("list", prefix or None, error) from error

    def path(self, key: str) -> str:
        """The whole path of a key; of "", the prefix."""
        prefix = self.place.prefix
        return f"{prefix}/{key}" if prefix and key else prefix or key

    def file(self, key: str) -> str:
        """Where in the file system a key of a directory lies."""
        return os.path.join(self.place.bucket, key) if key else self.place.bucket  # noqa: PTH118

    def _is_nothing(self, key: str) -> bool:
        """Whether there is no file of that name, for which obstore has other words below a file."""
        if self.place.kind != "file":
            return False
        mode = self.mode(key)
        return mode is None or stat.S_ISDIR(mode)

    async def _is_page(self, key: str, error: Exception) -> bool:
        """Whether a web server refuses no value but a directory: asked for "a", it sends on to "a/"."""
        if not self.is_http or status_of(error) != 403:
            return False
        return is_directory(await in_thread(_lead, f"{self.place.bucket}/{quote(self.path(key))}"))

    def mode(self, key: str) -> int | None:
        """The mode of a directory's file; None where there is none."""
        try:
            return Path(self.file(key)).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self.failed("read", key, error) from error

    def failed(self, action: str, key: str | None, error: BaseException) -> StoreError:
        """The error to raise for an exception of obstore."""
        kind = self.place.kind
        return failed(action, self.url, key, error, kind, anonymous=self._is_anonymous)


async def _first_of(reply: Any, size: int, *, directly: bool) -> memoryview:
    """The first bytes of a body, of which no more is taken than that."""
    data, parts = bytearray(), reply.stream(min_chunk_size=1)
    while len(data) < size:
        part = next(parts, b"") if directly else await next_of(parts)
        if not part:
            break
        data += memoryview(part)
    return memoryview(bytes(data[:size]))


async def next_of(parts: Any) -> Any:
    """The next part of what obstore gives piece by piece; b"" at the end."""
    try:
        return await awaited(parts.__anext__())
    except StopAsyncIteration:
        return b""


def _is_awaited(provider: Any) -> bool:
    """Whether what gives credentials is a coroutine function, or an object that is called as one."""
    return callable(provider) and (
        iscoroutinefunction(provider) or iscoroutinefunction(type(provider).__call__)
    )


def has_aiohttp() -> bool:
    """Whether fsspec can ask web servers."""
    return find_spec("aiohttp") is not None


class _Unfollowed(HTTPErrorProcessor):
    """Hands back every answer, whatever its status."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


def _endpoint(client: Any) -> str:
    """The address that was given instead of Amazon's, if any."""
    return str(client.config.get("endpoint") or client.config.get("aws_endpoint") or "")


def _ask_region(endpoint: str, bucket: str) -> str | None:
    """The region that the server says a bucket is in, to anybody."""
    try:
        request = Request(f"{endpoint.rstrip('/')}/{bucket}", method="HEAD")
        with build_opener(_Unfollowed).open(request, timeout=current_limits().connect_time) as answer:
            found: str | None = answer.headers.get("x-amz-bucket-region")
            return found
    except (OSError, ValueError):
        return None


def _lead(url: str) -> str:
    """The address that a web server redirects to; "" where it does not respond."""
    try:
        with urlopen(Request(url, method="HEAD"), timeout=current_limits().connect_time) as answer:
            return str(answer.url)
    except HTTPError as error:
        with error:
            return str(error.url)
    except (OSError, ValueError):
        return ""
