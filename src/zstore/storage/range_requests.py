"""Range requests through fsspec's filesystems, whose responses also give the value's size and version.

fsspec's own `cat` gives the bytes only. HTTP and S3 have the rest in the same response, so requests are made
here, by the public clients of the fsspec filesystem: its aiohttp session, and its aiobotocore client.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from zstore.base.limits import current_limits
from zstore.errors import without_secrets
from zstore.storage import remote
from zstore.storage.base import Fetch
from zstore.storage.remote import (
    PASSING,
    RequestLine,
    is_directory,
    pause_before,
    repeated,
    strong_tag,
    too_slow,
)

# The exceptions that mean that there is nothing under a key.
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

# Bytes of a body that aiohttp buffers; with its own default of 64 KiB, reading takes a tenth longer.
BODY_SIZE = 1 << 20
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Response(NamedTuple):
    """Bytes of a response, their position in the value, its size and its version; None: unknown."""

    data: bytes | memoryview
    begin: int | None = None
    total_size: int | None = None
    version: str | None = None


def make_timeout() -> Any:
    """The times of `zstore.set_limits`, in the form of aiohttp's sessions."""
    limits = current_limits()
    return importlib.import_module("aiohttp").ClientTimeout(
        total=limits.total_time,
        connect=None,
        sock_connect=limits.connect_time,
        sock_read=limits.read_time,
    )


# Sends a request (whose key is a path) through a filesystem.
Send = Callable[[Any, Fetch], Awaitable[Response]]


def choose_send(filesystem: Any) -> Send | None:
    """The function that sends this module's requests through a filesystem; None for other filesystems."""
    if is_s3(filesystem):
        return _send_s3
    if protocols_of(filesystem) & {"http", "https"} and hasattr(filesystem, "set_session"):
        return _send_http
    return None


def protocols_of(filesystem: Any) -> set[str]:
    """The names of a filesystem's protocol."""
    protocol = filesystem.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)


def is_s3(filesystem: Any) -> bool:
    """Whether a filesystem is s3fs', whose responses and lists have versions."""
    return bool(protocols_of(filesystem) & {"s3", "s3a"}) and hasattr(filesystem, "get_s3")


async def send_all(
    function: Callable[..., Awaitable[Any]], items: Sequence[tuple[Any, ...]], limit: int
) -> list[Any]:
    """The result of `function` for each item, or the exception that it raised; `limit` run at a time."""
    turn = asyncio.Semaphore(limit)

    async def one(item: tuple[Any, ...]) -> Any:
        async with turn:
            return await function(*item)

    return await asyncio.gather(*map(one, items), return_exceptions=True)


async def _send_http(filesystem: Any, request: Fetch) -> Response:
    ask = partial(_ask_http, filesystem, request)
    line = RequestLine("GET", without_secrets(request.key))
    return await repeated(ask, _pause_after, asyncio.sleep, current_limits(), is_bucket=False, line=line)


def _pause_after(error: Exception, attempt: int) -> float | None:
    """Seconds to wait before the request is repeated; None if repeating is of no use."""
    failures = importlib.import_module("aiohttp")
    if isinstance(error, MISSING):
        return None
    if isinstance(error, failures.ClientResponseError):
        if error.status not in PASSING:
            return None
        wanted = (error.headers or {}).get("Retry-After", "")
        if wanted.isdecimal():
            return min(float(wanted), remote.LAST_PAUSE)
    elif isinstance(error, failures.ClientConnectorError):
        return None  # there is no such server
    elif not isinstance(error, (failures.ClientConnectionError, failures.ClientPayloadError, OSError)):
        return None
    elif getattr(error, "errno", None) in (errno.EFBIG, errno.EXDEV):
        return None  # the value stays too large, and the redirect stays
    return pause_before(attempt)


async def _ask_http(filesystem: Any, request: Fetch) -> Response:
    options = {"read_bufsize": BODY_SIZE, **filesystem.kwargs}
    headers = dict(options.pop("headers", None) or {})
    if request.start is not None:
        headers["Range"] = f"bytes={request.span}"
        # With a compressed body, the range would be one of compressed bytes.
        headers["Accept-Encoding"] = "identity"
    session = await filesystem.set_session()
    async with session.get(filesystem.encode_url(request.key), headers=headers, **options) as response:
        if response.status == 404:
            raise FileNotFoundError(request.key)
        if is_directory(response.url):
            raise IsADirectoryError(request.key)
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
    """The body, or its first `most` bytes.

    Raises
        TimeoutError: it arrives slower than the limits allow.
        OSError: it is longer than `value_size` of the limits, and the server did not say its length.
    """
    limits, parts, size, begin = current_limits(), [], 0, monotonic()
    # The length of a compressed body says nothing of what it decompresses to.
    is_length_known = response.content_length is not None and "Content-Encoding" not in response.headers
    content = response.content
    while not content.at_eof():
        try:
            async with asyncio.timeout(begin + limits.body_time(size) - monotonic()):
                part = await content.readany()
        except TimeoutError as error:
            raise too_slow(limits) from error
        parts.append(part)
        size += len(part)
        if most is not None and size > most:
            break
        if not is_length_known and size > limits.value_size:
            reason = f"the body goes on after {limits.value_size} bytes, the limit value_size"
            raise OSError(errno.EFBIG, f"{reason} (zstore.set_limits)")
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    return data if most is None else data[:most]


async def _send_s3(filesystem: Any, request: Fetch) -> Response:
    ask = partial(_ask_s3, filesystem, request)
    try:
        limits, line = current_limits(), RequestLine("GET", request.key)
        return await repeated(ask, _pause_after_s3, asyncio.sleep, limits, is_bucket=True, line=line)
    except Exception as error:
        told = importlib.import_module("s3fs.errors").translate_boto_error(error)
        raise told if isinstance(told, Exception) else error from error


def _pause_after_s3(error: Exception, attempt: int) -> float | None:
    """As `_pause_after`, for the errors of botocore and of bodies."""
    answer = getattr(error, "response", None)
    if isinstance(answer, Mapping):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return pause_before(attempt) if status in PASSING else None
    # s3fs lists what its own requests are repeated after.
    may_pass = isinstance(error, importlib.import_module("s3fs.core").S3_RETRYABLE_ERRORS)
    return pause_before(attempt) if may_pass else None


async def _ask_s3(filesystem: Any, request: Fetch) -> Response:
    bucket, key, version_id = filesystem.split_path(request.key)
    await filesystem.set_session()
    client = await filesystem.get_s3(bucket)
    known = client.meta.service_model.operation_model("GetObject").input_shape.members
    options = {**filesystem.s3_additional_kwargs, **filesystem.req_kw}
    options = {name: value for name, value in options.items() if name in known and value is not None}
    if request.start is not None:
        options["Range"] = f"bytes={request.span}"
    if version_id is not None:
        options["VersionId"] = version_id
    reply = await client.get_object(Bucket=bucket, Key=key, **options)
    body, size = reply["Body"], reply.get("ContentLength")
    is_cut = request.limit is not None and size is not None and size > request.limit
    try:
        data = await body.read() if not is_cut else await _read_some(body, request.limit or 0)
    finally:
        body.close()
    version = strong_tag(reply.get("ETag"))
    if not is_cut and size not in (None, len(data)):
        raise OSError(f"the server promised {size} bytes, {len(data)} came")
    if "ContentRange" not in reply:
        return Response(data, 0, len(data), version)
    return _partial(data, _parse_range({"Content-Range": reply["ContentRange"]}), version)


async def _read_some(body: Any, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := await body.read(size - len(data))):
        data += part
    return data


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
