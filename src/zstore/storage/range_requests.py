"""Requests for some bytes of a value, and responses that say its size and version too.

fsspec's `cat` gives the bytes only. HTTP, S3 and what obstore reaches say the rest in the same response, so
they are asked here, with the session, the credentials and the settings of their fsspec filesystems.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

from zstore.base.limits import current_limits

# What says that there is nothing under a key; any other exception is trouble.
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

# How often a body that broke off is asked for, where the filesystem itself asks again for what fails.
ATTEMPTS = 3

# Of a body, how much waits to be taken; with aiohttp's own 64 KiB, reading takes a tenth longer.
BODY_SIZE = 1 << 20
# In `read_time` of the limits, as many bytes of a body must come as these, or its end.
PROGRESS_SIZE = 1024

# Of HTTP: the answers that say "not now", and how long to wait then (seconds), twice as long each time.
PASSING = {408, 425, 429, 500, 502, 503, 504}
FIRST_PAUSE = 0.25
LAST_PAUSE = 5.0
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Request(NamedTuple):
    """Bytes `start` to `end` of `path`; a negative start counts back from the end.

    Where `start` is None, all of it; where there is an `end` then, no more bytes than that are wanted.
    """

    path: str
    start: int | None = None
    end: int | None = None

    @property
    def limit(self) -> int | None:
        """The most bytes that are wanted of all of it."""
        return self.end if self.start is None else None


class Response(NamedTuple):
    """What came, where in the value it begins, the value's size and version, as far as is known."""

    data: bytes | memoryview
    begin: int | None = None
    total_size: int | None = None
    version: str | None = None


def make_timeout() -> Any:
    """The times of the limits, as aiohttp's sessions take them."""
    limits = current_limits()
    return importlib.import_module("aiohttp").ClientTimeout(
        total=limits.total_time,
        connect=None,
        sock_connect=limits.connect_time,
        sock_read=limits.read_time,
    )


Send = Callable[[Any, Request], Awaitable[Response]]


def choose_send(filesystem: Any) -> Send | None:
    """How to ask such a filesystem for bytes with size and version; None where it has no way of its own."""
    if hasattr(filesystem, "_construct_store"):
        return _send_obstore
    protocol = filesystem.protocol
    protocols = {protocol} if isinstance(protocol, str) else set(protocol)
    if protocols & {"s3", "s3a"} and hasattr(filesystem, "_call_s3"):
        return _send_s3
    if protocols & {"http", "https"} and hasattr(filesystem, "set_session"):
        return _send_http
    return None


async def send_all(
    function: Callable[..., Awaitable[Any]], items: Sequence[tuple[Any, ...]], limit: int
) -> list[Any]:
    """What `function` gives for each of the items, or the exception it raises, `limit` at a time."""
    turn = asyncio.Semaphore(limit)

    async def one(item: tuple[Any, ...]) -> Any:
        async with turn:
            return await function(*item)

    return await asyncio.gather(*map(one, items), return_exceptions=True)


def _range_header(request: Request) -> str:
    assert request.start is not None
    if request.start < 0:
        return f"bytes={request.start}"
    return f"bytes={request.start}-{'' if request.end is None else request.end - 1}"


async def _send_http(filesystem: Any, request: Request) -> Response:
    """What the server answers, asked again after a while where it failed in a way that may pass."""
    limits, begin = current_limits(), monotonic()
    for attempt in range(1, limits.attempt_count):
        try:
            return await _ask_http(filesystem, request)
        except MISSING:
            raise
        except Exception as error:
            pause = _pause_after(error, attempt)
            if pause is None or monotonic() - begin + pause > limits.total_time:
                raise
        await asyncio.sleep(pause)
    return await _ask_http(filesystem, request)


def _pause_after(error: Exception, attempt: int) -> float | None:
    """Seconds to wait before the same is asked again; None where that would help nobody."""
    failures = importlib.import_module("aiohttp")
    if isinstance(error, failures.ClientResponseError):
        if error.status not in PASSING:
            return None
        wanted = (error.headers or {}).get("Retry-After", "")
        if wanted.isdecimal():
            return min(float(wanted), LAST_PAUSE)
    elif isinstance(error, failures.ClientConnectorError):
        return None  # there is no such server
    elif not isinstance(error, (failures.ClientConnectionError, failures.ClientPayloadError, OSError)):
        return None
    elif getattr(error, "errno", None) in (errno.EFBIG, errno.EXDEV):
        return None  # of what is too large, there will be no less; what leads elsewhere will go on to
    longest: float = min(FIRST_PAUSE * 2**attempt, LAST_PAUSE)
    return random.uniform(0.5, 1) * longest


async def _ask_http(filesystem: Any, request: Request) -> Response:
    options = {"read_bufsize": BODY_SIZE, **filesystem.kwargs}
    headers = dict(options.pop("headers", None) or {})
    if request.start is not None:
        headers["Range"] = _range_header(request)
        # Of a body that is compressed on its way, a range would be one of the compressed bytes.
        headers["Accept-Encoding"] = "identity"
    session = await filesystem.set_session()
    async with session.get(filesystem.encode_url(request.path), headers=headers, **options) as response:
        if response.status == 404:
            raise FileNotFoundError(request.path)
        if is_directory(response.url):
            raise IsADirectoryError(request.path)
        if 300 <= response.status < 400 and not options.get("allow_redirects", True):
            raise OSError(errno.EXDEV, f"the server sends on to {response.headers.get('Location')!r}")
        span, version = _parse_range(response.headers), strong_tag(response.headers.get("ETag"))
        if response.status == 416 and _is_past_end(request.start, span.total_size):
            return Response(b"", span.total_size, span.total_size, version)
        response.raise_for_status()
        most = request.limit
        if response.status == 206 and span.begin is not None and span.end is not None:
            most = span.end - span.begin + 1  # one more would be one too many
        data = await _read_body(response, most)
        if response.status != 206:
            return Response(data, 0, len(data), version)
        return _partial(data, span, version)


async def _read_body(response: Any, most: int | None) -> bytes:
    """The body, of which no more than `most` bytes are taken.

    Raises
        TimeoutError: less than a KiB came in `read_time` of the limits.
        OSError: it goes on beyond `value_size` of the limits, and nobody said so.
    """
    limits, parts, size = current_limits(), [], 0
    # What is compressed on its way is as long as it is.
    is_said = response.content_length is not None and "Content-Encoding" not in response.headers
    content = response.content
    while not content.at_eof():
        goal = size + PROGRESS_SIZE
        try:
            async with asyncio.timeout(limits.read_time):
                while size < goal and (part := await content.readany()):
                    parts.append(part)
                    size += len(part)
        except TimeoutError as error:
            slow = f"less than {PROGRESS_SIZE} bytes came in {limits.read_time:g} s"
            raise TimeoutError(f"{slow}, the limit read_time (zstore.set_limits)") from error
        if most is not None and size > most:
            break
        if not is_said and size > limits.value_size:
            reason = f"the body goes on after {limits.value_size} bytes, the limit value_size"
            raise OSError(errno.EFBIG, f"{reason} (zstore.set_limits)")
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    return data if most is None else data[:most]


async def _send_s3(filesystem: Any, request: Request) -> Response:
    # As it says itself what is worth another try, ask it; importing it costs nothing by now.
    failures = importlib.import_module("s3fs.core").S3_RETRYABLE_ERRORS
    bucket, key, version_id = filesystem.split_path(request.path)
    options = {"Range": _range_header(request)} if request.start is not None else {}
    if version_id is not None:
        options["VersionId"] = version_id
    for attempt in range(ATTEMPTS):
        reply = await filesystem._call_s3("get_object", Bucket=bucket, Key=key, **options)
        body, size = reply["Body"], reply.get("ContentLength")
        is_cut = request.limit is not None and size is not None and size > request.limit
        try:
            data = await body.read() if not is_cut else await _read_some(body, request.limit or 0)
        except failures:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        finally:
            body.close()
        version = strong_tag(reply.get("ETag"))
        if not is_cut and size not in (None, len(data)):
            raise OSError(f"the server promised {size} bytes, {len(data)} came")
        if "ContentRange" not in reply:
            return Response(data, 0, len(data), version)
        return _partial(data, _parse_range({"Content-Range": reply["ContentRange"]}), version)
    raise AssertionError("the last attempt returns or raises")


async def _read_some(body: Any, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := await body.read(size - len(data))):
        data += part
    return data


async def _send_obstore(filesystem: Any, request: Request) -> Response:
    bucket, path = filesystem._split_path(request.path)
    options: dict[str, Any] = {}
    if request.start is not None and request.start < 0:
        options["range"] = {"suffix": -request.start}
    elif request.start is not None:
        options["range"] = {"offset": request.start} if request.end is None else (request.start, request.end)
    reply = await filesystem._construct_store(bucket).get_async(path, options=options)
    data = memoryview(await reply.bytes_async())
    meta, (begin, end) = reply.meta, reply.range
    if len(data) != end - begin:
        raise OSError(f"the server promised bytes {begin} to {end}, {len(data)} bytes came")
    return Response(data, begin, meta["size"], strong_tag(meta.get("e_tag")))


def is_directory(url: object) -> bool:
    """Whether a server's answer is about a directory: asked for "a/b", it sends one on to "a/b/".

    What it has to say there (a page for people, or that it will not show one) is no value; no key ends so.
    """
    return str(url).partition("?")[0].endswith("/")


class _ContentRange(NamedTuple):
    begin: int | None = None
    end: int | None = None
    total_size: int | None = None


def _parse_range(headers: Mapping[str, str]) -> _ContentRange:
    match = CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    if match is None:
        return _ContentRange()
    first, last, total = match.groups()
    return _ContentRange(
        None if first is None else int(first),
        None if last is None else int(last) + 1,
        None if total == "*" else int(total),
    )


def _partial(data: bytes, span: _ContentRange, version: str | None) -> Response:
    if span.begin is not None and span.end != span.begin + len(data):
        raise OSError(f"the server promised bytes {span.begin} to {span.end}, {len(data)} bytes came")
    return Response(data, span.begin, span.total_size, version)


def _is_past_end(start: int | None, total_size: int | None) -> bool:
    if start is None or total_size is None:
        return False
    return total_size == 0 if start < 0 else start >= total_size


def strong_tag(tag: str | None) -> str | None:
    """The entity tag, unless it is a weak one, which two values may share."""
    return None if tag is None or tag.startswith("W/") else tag
