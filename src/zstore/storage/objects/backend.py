"""Requests through obstore, as coroutines, repeated after temporary failures: for all kinds of stores."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from zstore._ext.requests.curl import DONE, Answer
from zstore.base.byterange import ByteRange
from zstore.base.limits import current_limits
from zstore.base.waits import current_waits
from zstore.errors import StoreError
from zstore.storage.base import Fetch, Names
from zstore.storage.objects.clients import Address, Client, make_client
from zstore.storage.objects.curl import CurlClient, HttpError, Untried, error_of
from zstore.storage.objects.failures import (
    Elsewhere,
    changed,
    failed,
    first_line,
    is_changed,
    is_unsupported,
    missing_bucket,
    no_bucket,
    pause_after,
    status_of,
    telling,
)
from zstore.storage.objects.library import (
    ask_all,
    awaited,
    end_alone,
    forks,
    is_direct,
    library,
    pause,
    take_turn,
    turn,
    wait_for,
)
from zstore.storage.objects.listings import Listing, ListPage, read_page
from zstore.storage.objects.options import Settings, read_options
from zstore.storage.remote import RequestLine, note_answers, repeated, strong_tag

T = TypeVar("T")

# The bytes that are sent in one piece: S3 takes 5 GiB so, and a condition holds for one piece only.
PIECE = 4 << 30
# Bytes of large values that have begun to come and were not taken. Others are asked for, and wait.
RECEIVED_SIZE = 14 << 20


class Version(NamedTuple):
    """The version of a value from obstore; both fields are None if there are no versions."""

    e_tag: str | None = None
    version: str | None = None

    @property
    def mode(self) -> dict[str, str] | None:
        """The condition that the value still has this version."""
        return {name: value for name, value in self._asdict().items() if value is not None} or None

    @property
    def strong(self) -> str | None:
        """The tag, unless it is a weak one."""
        return strong_tag(self.e_tag)

    @property
    def text(self) -> str | None:
        """The version as a text, which `of` reads; None for one that is no condition."""
        return f"{self.e_tag}\n{self.version or ''}" if self.strong else None

    @classmethod
    def of(cls, text: str) -> Version:
        """The version with that `text`."""
        e_tag, _, version = text.partition("\n")
        return cls(e_tag, version or None)


class Reply(NamedTuple):
    """The response to a request: bytes from `begin` on, the value's size and its version."""

    data: memoryview
    begin: int
    total_size: int
    version: Version


# The result of an attempt: the response, None where there is no such value, or the error.
Tried = Reply | None | Exception


def is_range(fetch: Fetch, reply: Reply) -> bool:
    """Whether a response begins and ends where the request says."""
    start, end = fetch.start, fetch.end
    if start is None:
        return True
    total_size, last = reply.total_size, reply.begin + reply.data.nbytes
    if start < 0 or end is None:
        return (reply.begin, last) == ByteRange(start).resolve(total_size)
    return reply.begin == min(start, total_size) and last == min(end, total_size)


class Backend:
    """Requests for values below an address; errors name keys below `url`.

    With `target`, one of obstore's own stores is asked; else one is made of the options. The subclasses have
    what is particular to a bucket, a web server and memory.
    """

    is_http = False
    is_served = False
    """Whether a server answers, which refuses a range only where it holds nothing."""
    is_durable = False
    """Whether a value that was written is kept whatever happens."""
    has_versions = True
    """Whether a write may depend on the version that a value has."""

    def __init__(
        self, address: Address, url: str, options: Mapping[str, Any], *, read_only: bool, target: Any = None
    ) -> None:
        self.address = address
        self.url = url
        self.options = dict(options)
        self.target = target
        self.has_ranges = True
        self.request_count = current_limits().bucket_request_count
        self._is_anonymous = self._hides_missing = False
        self._total_time: float | None = None
        self.needs_loop = _is_awaited(getattr(target, "credential_provider", None))
        self._client = target
        self._curl: CurlClient | None = None
        self._forks = forks()
        if target is None:
            self._open(read_only=read_only, must_exist=False)

    def _open(self, *, read_only: bool, must_exist: bool) -> None:
        """Take obstore's store for the address: at first use, after a fork, and after unpickling."""
        settings = read_options(self.address.kind, dict(self.options), self.address.bucket)
        self.has_versions = settings.check_versions
        self._is_anonymous = settings.is_anonymous
        self._hides_missing = settings.hides_missing
        self._total_time = settings.total_time
        self.needs_loop = _is_awaited(settings.provider)
        with telling("open", self.url, None, self.address.kind):
            self._client, self._curl = self._make_client(settings)

    def _make_client(self, settings: Settings) -> Client:
        return make_client(self.address, settings)

    @property
    def client(self) -> Any:
        """obstore's store; in a forked process another one like it."""
        if self._forks != forks():
            self._open_after_fork()
            self._forks = forks()
        return self._client

    def _open_after_fork(self) -> None:
        if self.target is None:
            self._open(read_only=True, must_exist=True)
            return
        with telling("open again after a fork", self.url, None):
            arguments, options = self.target.__getnewargs_ex__()
            kind = getattr(library().store, type(self.target).__name__)
            self._client = self.target = kind(*arguments, **options)

    def __getstate__(self) -> dict[str, Any]:
        self._client = self.client  # of this process, as is the target
        return {name: value for name, value in self.__dict__.items() if name not in ("_client", "_curl")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _forks=forks(), _client=state["target"], _curl=None)
        if self.target is None:
            with telling("open again", self.url, None):
                self._open(read_only=True, must_exist=True)

    @property
    def under_way_size(self) -> int:
        """The bytes of large values to request at once: by obstore, each byte under way takes two."""
        return (32 if self._curl is None else 40) << 20

    def _by_curl(self) -> tuple[Any, CurlClient] | None:
        """obstore's store, and libcurl's client for attempts in its place; None where libcurl makes none."""
        client = self.client  # after a fork, both are others
        return None if self._curl is None or self.needs_loop else (client, self._curl)

    def tried(self, fetches: Sequence[Fetch]) -> list[Tried] | None:
        """The results of the first attempts at requests, made by the calling thread; None where it cannot.

        Each is the response, None if there is no such value, or the error after which `fetch` goes on.
        """
        if (found := self._by_curl()) is None:
            return None
        client, curl = found
        progress_size = current_limits().progress_size if self.is_http else 0
        paths = [self.path(fetch.key) for fetch in fetches]
        waits = current_waits()
        share = 1 if waits is None else waits.thread_count
        answers = curl.get(paths, fetches, self.request_count, progress_size, share)
        if answers is None:
            return None
        return self._noted(client, fetches, answers)

    def tried_each(
        self, fetches: Iterable[Fetch], count: int, share: int
    ) -> Iterator[list[tuple[Fetch, Tried]]] | None:
        """Requests with the results of their first attempts, as `tried` gives them, some at a time.

        count  requests at once at the beginning
        share  as that of `Store.get_each`
        """
        if (by_curl := self._by_curl()) is None:
            return None
        client, curl = by_curl
        progress_size = current_limits().progress_size if self.is_http else 0
        items = ((self.path(fetch.key), fetch) for fetch in fetches)
        found = curl.get_each(items, self.request_count, progress_size, count, RECEIVED_SIZE // share)
        return map(partial(self._noted_some, client), found)

    def _noted_some(
        self, client: Any, some: Sequence[tuple[Fetch, Answer | None]]
    ) -> list[tuple[Fetch, Tried]]:
        answers = [answer for _, answer in some if answer is not None]
        fetches = [fetch for fetch, _ in some]
        tried = self._noted(client, fetches, answers) if answers else [Untried() for _ in some]
        return [*zip(fetches, tried, strict=True)]

    def _noted(self, client: Any, fetches: Sequence[Fetch], answers: Sequence[Answer]) -> list[Tried]:
        """The results of attempts that libcurl has made, which are counted."""
        tried = [*map(self._tried, fetches, answers)]
        _note("GET", client, answers, tried, [(fetch.key, 0) for fetch in fetches])
        return tried

    def _tried(self, fetch: Fetch, answer: Answer) -> Tried:
        """The result of an attempt that libcurl has made."""
        if answer.outcome == DONE:
            version = _version_of(answer, is_http=self.is_http)
            reply = Reply(answer.body, answer.begin, answer.total_size, version)
            return reply if is_range(fetch, reply) else Untried()
        error = error_of(answer)
        is_missing = isinstance(error, FileNotFoundError) and not missing_bucket(error)
        return None if is_missing else error

    async def fetch(self, fetch: Fetch, failure: Exception | None = None) -> Reply | None:
        """The response to one request; None if there is no such value.

        failure  the error of an attempt that was made already

        Raises
            Elsewhere: a web server that obstore cannot read.
        """
        key, start, end, _ = fetch
        wanted: Any = None
        if start is not None:
            wanted = {"suffix": -start} if start < 0 else {"offset": start} if end is None else (start, end)
        try:
            ask = partial(self._ask, key, wanted, end if start is None else None)
            return await self._again(ask, RequestLine("GET", key), failure)
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None
        except (StoreError, Elsewhere):
            raise
        except Exception as error:  # sorted out here: a range that holds nothing is refused by every server
            is_outside = status_of(error) == 416 or "Wanted range" in str(error)
            is_refused = is_outside or is_unsupported(error) or not self.is_served
            size, version = await self.head(key) if start is not None and is_refused else (None, Version())
            if start is not None and is_refused and size is None:
                return None
            if start is None or size is None:
                if await self._is_page(key, error) or await self._is_missing(key, error):
                    return None
                raise self.failed("read", key, error) from error
            first, last = ByteRange(start, None if end is None else end - start).resolve(size)
            if first >= last:
                return Reply(memoryview(b""), first, size, version)
            if is_unsupported(error):
                # Azure has no ranges that count from the end, some web servers have none at all.
                if start < 0:
                    return await self.fetch(fetch._replace(start=first, end=last))
                self.has_ranges = False
                return await self.fetch(fetch._replace(start=None, end=None))
            raise self.failed("read", key, error) from error

    def _check_bucket(self, error: FileNotFoundError) -> None:
        """Raise NotFoundError if it is the bucket itself that is missing."""
        if missing_bucket(error):
            raise no_bucket(self.url) from error

    async def head(self, key: str) -> tuple[int | None, Version]:
        """The size and the version of a value; None if there is none."""
        try:
            meta = await self._again(partial(self._do, "head", self.path(key)), RequestLine("HEAD", key))
        except Exception as error:  # obstore's have no base but this; all but a missing value are trouble
            # The response to HEAD has no body that could name a missing bucket.
            if isinstance(error, FileNotFoundError) or await self._is_missing(key, error):
                return None, Version()
            return await self._head_again(key, error)
        return int(meta["size"]), Version(meta.get("e_tag"), meta.get("version"))

    async def _head_again(self, key: str, error: Exception) -> tuple[int | None, Version]:
        """The size and the version of a value, requested in another way after HEAD has failed."""
        raise self.failed("read", key, error) from error

    async def _again(
        self, ask: Callable[[], Awaitable[T]], line: RequestLine, failure: Exception | None = None
    ) -> T:
        """The result of `ask`, which is repeated after failures that may be temporary.

        failure  the error of an attempt that was made already
        """
        made = [] if failure is None or isinstance(failure, Untried) else [failure]
        spent = failure.seconds if isinstance(failure, HttpError) else 0.0

        async def attempt() -> T:
            if made:
                raise made.pop()
            return await ask()

        limits, is_bucket = current_limits(), not self.is_http
        pause_before = partial(pause_after, is_http=self.is_http)
        if self._total_time is not None:
            limits = replace(limits, total_time=self._total_time)
        if spent:
            limits = replace(limits, total_time=max(0.0, limits.total_time - spent))
        begin = monotonic() - spent
        try:
            once = partial(self._once, attempt)
            return await repeated(once, pause_before, pause, limits, is_bucket=is_bucket, line=line)
        except Exception as error:
            is_over = self._total_time is not None and monotonic() - begin >= self._total_time
            if not is_over or pause_before(error, 1) is None:
                raise
            raise TimeoutError(
                f"no whole answer came in {self._total_time:g} s, the storage option timeout"
            ) from error

    async def _once(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The result of `ask`, asked again if the bucket turns out to be elsewhere."""
        while True:
            client = self.client
            try:
                async with turn(self.request_count):
                    return await ask()
            except (StoreError, Elsewhere, FileNotFoundError):
                raise
            except Exception as error:
                if not await self._moved(error, getattr(error, "client", client)):
                    raise

    async def _moved(self, error: Exception, client: Any) -> bool:
        """Whether another client than `client` is used now, because the error names the bucket's place."""
        return False

    async def _do(self, name: str, *arguments: Any, **options: Any) -> Any:
        """The result of a method of obstore's store."""
        if self.is_direct:
            return getattr(self.client, name)(*arguments, **options)
        return await awaited(getattr(self.client, f"{name}_async")(*arguments, **options))

    @property
    def is_direct(self) -> bool:
        """Whether requests to obstore's store need no event loop."""
        return is_direct()

    async def _ask(self, key: str, wanted: Any, limit: int | None = None) -> Reply:
        """The response to one attempt."""
        reply = await self._do("get", self.path(key), options=None if wanted is None else {"range": wanted})
        meta, (begin, end) = reply.meta, reply.range
        self._check_reply(key, reply.attributes)
        version = Version(meta.get("e_tag"), meta.get("version"))
        if limit is not None and end - begin > limit:
            return Reply(await _first_of(reply, limit, directly=self.is_direct), begin, meta["size"], version)
        data = memoryview(reply.bytes() if self.is_direct else await self._body(reply, end - begin))
        if data.nbytes != end - begin:
            raise OSError(f"the server promised bytes {begin} to {end}, {data.nbytes} bytes came")
        return Reply(data, begin, meta["size"], version)

    async def _body(self, reply: Any, size: int) -> Any:
        """The body of a response that has announced this many bytes."""
        return await awaited(reply.bytes_async())

    def _check_reply(self, key: str, attributes: Mapping[str, Any]) -> None:
        """Raise Elsewhere if obstore cannot read the response."""

    def put_tried(self, items: Sequence[tuple[str, bytes, Any]]) -> list[Version | Exception | None]:
        """The results of the first attempts at `put`, made by the calling thread.

        Each is the new version, the error after which `put` goes on, or None where there was no attempt. What
        is under way when the thread is to wait no longer comes to its end, for which others wait who change
        the bucket.
        """
        found = self._by_curl()
        if found is None or any(len(value) > PIECE for _, value, _ in items):
            return [None] * len(items)
        client, curl = found
        bucket = self.address.kind, self.address.bucket
        asked = [(self.path(key), value, mode) for key, value, mode in items]
        take_turn(bucket, [(bucket, path) for path, _, _ in asked])
        answers = curl.put(asked, self.request_count, partial(end_alone, bucket=bucket))
        if answers is None:
            return [None] * len(items)
        tried: list[Version | Exception | None] = [*map(_put_version, answers)]
        _note("PUT", client, answers, tried, [(key, len(value)) for key, value, _ in items])
        return tried

    async def put(
        self, key: str, data: bytes, mode: Any, failure: Exception | None = None, *, is_unique: bool = True
    ) -> Version:
        """Write a value, whole or not at all: "overwrite", "create", or on condition of a version.

        failure    the error of an attempt that was made already
        is_unique  whether nobody else writes the same there: who finds it after an attempt whose answer did
                   not come has written it

        Raises
            ChangedError: the condition does not hold.
        """
        attempts = int(isinstance(failure, HttpError) and failure.is_sent)

        async def put() -> Any:
            nonlocal attempts
            attempts += 1
            pieces = None if len(data) > PIECE else False
            return await self._do("put", self.path(key), data, mode=mode, use_multipart=pieces)

        try:
            result = await self._again(put, RequestLine("PUT", key, len(data)), failure)
        except Exception as error:  # obstore's have no base but this
            is_gone = isinstance(error, FileNotFoundError) and not missing_bucket(error)
            if mode != "overwrite" and (is_changed(error) or is_gone):
                # An earlier attempt may have come through, and its answer not.
                is_asked = is_unique and attempts > 1
                found = await self.fetch(Fetch(key, None, None, ())) if is_asked else None
                if found is not None and found.data == data:
                    return found.version
                is_weak = mode != "create" and str(mode.get("e_tag")).startswith("W/")
                # By a weak tag, no server that keeps to HTTP finds the value unchanged.
                if is_weak and (await self.head(key))[1].mode == mode:
                    raise self.unconditional(key, f"its tags are weak: {mode['e_tag']}") from error
                trouble = changed(self.url, key)
                trouble.is_sure = attempts <= 1
                raise trouble from error
            if mode != "overwrite" and is_unsupported(error):
                raise self.unconditional(key, first_line(error)) from error
            raise self.failed("write", key, error) from error
        return Version(result.get("e_tag"), result.get("version"))

    async def put_new(self, key: str, data: bytes, failure: Exception | None = None) -> Version:
        """Write a value under a free key; if the server knows no conditions, over a value there.

        failure  the error of an attempt that was made already

        Raises
            ChangedError: it is there.
        """
        try:
            return await self.put(key, data, "create", failure)
        except StoreError as error:
            if error.__cause__ is None or not is_unsupported(error.__cause__):
                raise
        return await self.put(key, data, "overwrite")

    def check_conditions(self, key: str) -> None:
        """Raise StoreError if conditions of writes are not kept; called outside of any loop."""

    def is_beside(self, other: Backend) -> bool:
        """Whether the server can copy objects of another backend by itself (`copy`)."""
        return False

    async def copy(self, key: str, path: str) -> bool:
        """Copy the object of a whole path to a key; False if the server does not."""
        return False

    def unconditional(self, key: str, reason: str) -> StoreError:
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
        """Remove one value or many at a time; missing ones are no error."""
        key = keys if isinstance(keys, str) else None
        try:
            paths = self.path(key) if key is not None else [self.path(each) for each in keys]
            await self._again(partial(self._do, "delete", paths), RequestLine("DELETE", key or ""))
        except FileNotFoundError:
            if key is None:
                # Where servers say so of what is gone, that ended the request, and others are still there.
                await ask_all(self.delete, keys)
        except Exception as error:  # obstore's have no base but this
            raise self.failed("delete", key, error) from error

    def page_tried(
        self, prefix: str, size: int, *, delimiter: str = "", token: str | None = None
    ) -> ListPage | Exception | None:
        """The result of the first attempt at a page of the list below `prefix`, made by the calling thread.

        It is the page, the error after which `listed` goes on, or None where there was no attempt.

        size   objects and prefixes at most
        token  that of the page before; None: the first one
        """
        if (found := self._by_curl()) is None:
            return None
        client, curl = found
        top = self.path(prefix)
        query = {"list-type": "2", "max-keys": f"{size}", "prefix": f"{top}/" if top else ""}
        query |= {"continuation-token": token or "", "delimiter": delimiter}
        answer = curl.page({name: text for name, text in query.items() if text}, self.request_count)
        if answer is None:
            return None
        said = bytes(answer.body)
        tried: ListPage | Exception | None = read_page(said) if answer.outcome == DONE else error_of(answer)
        if tried is None and said and b"ListBucketResult" not in said:  # which is an empty list to obstore
            tried = HttpError("the server sent something that is no list")
        elif isinstance(tried, FileNotFoundError):  # as obstore has it of a bucket
            tried = HttpError(f"the server answers with status code: 404: {tried}")
        tried = Untried() if tried is None else tried
        _note("LIST", client, [answer], [tried], [(prefix, 0)])
        return tried

    async def list_children(self, prefix: str, failure: Exception | None = None) -> Names:
        """The whole paths right below `prefix`, of values and of prefixes.

        failure  the error of an attempt that was made already
        """
        ask = partial(self._do, "list_with_delimiter", self.path(prefix) or None)
        found = await self.listed(prefix, ask, failure)
        return [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]

    async def listed(
        self, prefix: str, ask: Callable[[], Awaitable[T]], failure: Exception | None = None
    ) -> T:
        """The result of `ask`, asked again after failures that may be temporary.

        failure  the error of an attempt that was made already
        """
        try:
            return await self._again(ask, RequestLine("LIST", prefix), failure)
        except FileNotFoundError as error:
            raise no_bucket(self.url) from error
        except Exception as error:  # obstore's have no base but this
            raise self.failed("list", prefix or None, error) from error

    def path(self, key: str) -> str:
        """The whole path of a key; for "", the prefix."""
        prefix = self.address.prefix
        return f"{prefix}/{key}" if prefix and key else prefix or key

    async def _is_missing(self, key: str, error: Exception) -> bool:
        """Whether a refusal means a missing value, by the caller's word or the server's list."""
        return status_of(error) == 403 and (self._hides_missing or await self._is_unlisted(key))

    async def _is_unlisted(self, key: str) -> bool:
        """Whether the server's own list lacks a key; False without a list."""
        return False

    async def _is_page(self, key: str, error: Exception) -> bool:
        """Whether the error means that a directory of that name exists."""
        return False

    def failed(self, action: str, key: str | None, error: BaseException) -> StoreError:
        """The error to raise for an exception of obstore."""
        kind = self.address.kind
        return failed(action, self.url, key, error, kind, anonymous=self._is_anonymous)


class Pages:
    """A listing, requested page by page: after a failure, the pages before it are not requested again.

    after  a whole path, behind which it begins
    """

    def __init__(self, backend: Backend, prefix: str, size: int, *, after: str | None = None) -> None:
        self._backend = backend
        self._prefix = prefix
        self._size = size
        self._stream: Any = None
        self._made_at = -1
        self._last: Listing = [] if after is None else [{"path": after}]
        self._behind = ""
        self._has_begun = after is not None
        self.has_more = True

    def take(self) -> Listing:
        """The next page, for which the calling thread waits; the first one it asks for, where it can."""
        tried = None if self._has_begun else self._backend.page_tried(self._prefix, self._size)
        self._has_begun = True
        if isinstance(tried, ListPage):
            paths = [meta["path"] for meta in tried.objects]
            # Those behind it are quicker read by obstore, which goes on behind the last path.
            if tried.token is None or paths == sorted(paths):
                self._last, self.has_more = tried.objects, tried.token is not None
                return tried.objects
            tried = None
        return wait_for(self.next(tried))

    async def next(self, failure: Exception | None = None) -> Listing:
        """The next page; an empty one at the end.

        failure  the error of an attempt that was made already
        """
        page: Listing = await self._backend.listed(self._prefix, self._ask, failure)
        self.has_more = len(page) == self._size
        self._last = page
        # A server that does not begin there has sent again what came before.
        return [meta for meta in page if meta["path"] > self._behind or _is_mark(meta, self._behind)]

    async def _ask(self) -> Listing:
        if self._stream is None or self._made_at != forks():
            self._stream, self._made_at = self._begin(), forks()
        try:
            if self._backend.is_direct:
                return [*next(self._stream, ())]
            return [*await awaited(self._stream.__anext__())]
        except StopAsyncIteration:
            return []
        except asyncio.CancelledError:
            self._leave()
            raise
        except BaseException:
            self._stream = None
            raise

    def _leave(self) -> None:
        """Give up a request under way, so that a thread of obstore is the last to hold it and ends it."""
        rest, self._stream = self._stream.collect_async(), None
        rest.cancel()

    def _begin(self) -> Any:
        backend, paths = self._backend, [meta["path"] for meta in self._last]
        if paths != sorted(paths):
            raise OSError("the list broke off, and is in no order by which to go on")
        last = paths[-1] if paths else None
        self._behind = last or ""
        return backend.client.list(backend.path(self._prefix) or None, offset=last, chunk_size=self._size)


def _note(
    method: str,
    client: Any,
    answers: Sequence[Answer],
    tried: Sequence[object],
    asked: Iterable[tuple[str, int]],
) -> None:
    """Count the attempts that libcurl has made in place of `client`; errors get the client and their seconds.

    asked  key and bytes sent of each
    """
    each = [*zip(answers, tried, asked, strict=True)]
    for answer, one, _ in each:
        if isinstance(one, HttpError):
            one.client, one.seconds, one.is_sent = client, answer.seconds, answer.is_sent
    note_answers(
        method,
        ((*own, answer.size, answer.seconds) for answer, one, own in each if not isinstance(one, Exception)),
    )


def _is_mark(meta: Mapping[str, Any], path: str) -> bool:
    """Whether an object may mark a directory, and comes behind a path by the "/" that its own has lost."""
    return not meta["size"] and f"{meta['path']}/" > path


async def _first_of(reply: Any, size: int, *, directly: bool) -> memoryview:
    """The first bytes of a body, of which no more is read than that."""
    data, parts = bytearray(), reply.stream(min_chunk_size=1)
    while len(data) < size:
        part = next(parts, b"") if directly else await next_of(parts)
        if not part:
            break
        data += memoryview(part)
    return memoryview(bytes(data[:size]))


async def next_of(parts: Any) -> Any:
    """The next piece of a body or listing of obstore's; b"" at the end."""
    try:
        return await awaited(parts.__anext__())
    except StopAsyncIteration:
        return b""


def _put_version(answer: Answer) -> Version | Exception:
    """The version of a value that libcurl has put; else the error."""
    if answer.outcome != DONE:
        return error_of(answer)
    if not answer.tag:
        return HttpError("ETag Header missing from response")
    return _version_of(answer)


def _version_of(answer: Answer, *, is_http: bool = False) -> Version:
    version = None if is_http else answer.version.decode("latin-1")
    return Version(answer.tag.decode("latin-1") or None, version or None)


def _is_awaited(provider: Any) -> bool:
    """Whether a provider of credentials is a coroutine function, or an object with an async `__call__`."""
    return callable(provider) and (
        iscoroutinefunction(provider) or iscoroutinefunction(type(provider).__call__)
    )
