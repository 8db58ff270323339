"""Requests for some bytes of a value, and responses that say its size and version too.

fsspec's `cat` gives the bytes only. HTTP, S3 and what obstore reaches say the rest in the same response, so
they are asked here, with the session, the credentials and the settings of their fsspec filesystems.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["MISSING", "Request", "Response", "choose_send", "is_directory", "send_all"]

# What says that there is nothing under a key; any other exception is trouble.
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

# How often a body that broke off is asked for, where the filesystem itself asks again for what fails.
ATTEMPTS = 3

# Of a body, how much waits to be taken; with aiohttp's own 64 KiB, reading takes a tenth longer.
BODY_SIZE = 1 << 20
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Request(NamedTuple):
    """Bytes `start` to `end` of `path`; a negative start counts back from the end, None is all of it."""

    path: str
    start: int | None = None
    end: int | None = None


class Response(NamedTuple):
    """What came, where in the value it begins, the value's size and version, as far as is known."""

    data: bytes | memoryview
    begin: int | None = None
    total_size: int | None = None
    version: str | None = None


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
        span, version = _parse_range(response.headers), _strong(response.headers.get("ETag"))
        if response.status == 416 and _is_past_end(request.start, span.total_size):
            return Response(b"", span.total_size, span.total_size, version)
        response.raise_for_status()
        data = await response.read()
        if response.status != 206:
            return Response(data, 0, len(data), version)
        return _partial(data, span, version)


async def _send_s3(filesystem: Any, request: Request) -> Response:
    # As it says itself what is worth another try, ask it; importing it costs nothing by now.
    failures = importlib.import_module("s3fs.core").S3_RETRYABLE_ERRORS
    bucket, key, version_id = filesystem.split_path(request.path)
    options = {"Range": _range_header(request)} if request.start is not None else {}
    if version_id is not None:
        options["VersionId"] = version_id
    for attempt in range(ATTEMPTS):
        reply = await filesystem._call_s3("get_object", Bucket=bucket, Key=key, **options)
        body = reply["Body"]
        try:
            data = await body.read()
        except failures:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        finally:
            body.close()
        version = _strong(reply.get("ETag"))
        if len(data) != reply.get("ContentLength", len(data)):
            raise OSError(f"the server promised {reply['ContentLength']} bytes, {len(data)} came")
        if "ContentRange" not in reply:
            return Response(data, 0, len(data), version)
        return _partial(data, _parse_range({"Content-Range": reply["ContentRange"]}), version)
    raise AssertionError("the last attempt returns or raises")


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
    return Response(data, begin, meta["size"], _strong(meta.get("e_tag")))


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


def _strong(tag: str | None) -> str | None:
    """The entity tag, unless it is a weak one, which two values may share."""
    return None if tag is None or tag.startswith("W/") else tag
