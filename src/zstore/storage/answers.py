"""What a server answers to a request for some bytes of a value: the bytes, the value's size, its version.

fsspec's `cat` gives the bytes only. HTTP, S3 and what obstore reaches say the rest in the same answer, so
they are asked here, with the session, the credentials and the settings of their fsspec filesystems.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["MISSING", "Answer", "Wish", "ask_all", "choose_ask", "is_directory"]

# What says that there is nothing under a key; any other exception is trouble.
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

# How often a body that broke off is asked for, where the filesystem itself asks again for what fails.
ATTEMPTS = 3

# Of a body, how much waits to be taken; with aiohttp's own 64 KiB, reading takes a tenth longer.
BODY_SIZE = 1 << 20
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Wish(NamedTuple):
    """Bytes `start` to `end` of `path`; a negative start counts back from the end, None is all of it."""

    path: str
    start: int | None = None
    end: int | None = None


class Answer(NamedTuple):
    """What came, where in the value it begins, the value's size and version, as far as is known."""

    data: bytes | memoryview
    begin: int | None = None
    total_size: int | None = None
    version: str | None = None


Ask = Callable[[Any, Wish], Awaitable[Answer]]


def choose_ask(filesystem: Any) -> Ask | None:
    """How to ask such a filesystem for bytes with size and version; None where it has no way of its own."""
    if hasattr(filesystem, "_construct_store"):
        return _ask_obstore
    protocol = filesystem.protocol
    protocols = {protocol} if isinstance(protocol, str) else set(protocol)
    if protocols & {"s3", "s3a"} and hasattr(filesystem, "_call_s3"):
        return _ask_s3
    if protocols & {"http", "https"} and hasattr(filesystem, "set_session"):
        return _ask_http
    return None


async def ask_all(
    function: Callable[..., Awaitable[Any]], items: Sequence[tuple[Any, ...]], limit: int
) -> list[Any]:
    """What `function` gives for each of the items, or the exception it raises, `limit` at a time."""
    turn = asyncio.Semaphore(limit)

    async def one(item: tuple[Any, ...]) -> Any:
        async with turn:
            return await function(*item)

    return await asyncio.gather(*map(one, items), return_exceptions=True)


def _range_header(wish: Wish) -> str:
    assert wish.start is not None
    if wish.start < 0:
        return f"bytes={wish.start}"
    return f"bytes={wish.start}-{'' if wish.end is None else wish.end - 1}"


async def _ask_http(filesystem: Any, wish: Wish) -> Answer:
    options = {"read_bufsize": BODY_SIZE, **filesystem.kwargs}
    headers = dict(options.pop("headers", None) or {})
    if wish.start is not None:
        headers["Range"] = _range_header(wish)
        # Of a body that is compressed on its way, a range would be one of the compressed bytes.
        headers["Accept-Encoding"] = "identity"
    session = await filesystem.set_session()
    async with session.get(filesystem.encode_url(wish.path), headers=headers, **options) as response:
        if response.status == 404:
            raise FileNotFoundError(wish.path)
        if is_directory(response.url):
            raise IsADirectoryError(wish.path)
        place = _parse_range(response.headers)
        if response.status == 416 and wish.start is not None and _is_past_end(wish.start, place.total_size):
            return Answer(b"", place.total_size, place.total_size, _strong(response.headers.get("ETag")))
        response.raise_for_status()
        data = await response.read()
        version = _strong(response.headers.get("ETag"))
        if response.status != 206:
            return Answer(data, 0, len(data), version)
        return _placed(data, place, version)


async def _ask_s3(filesystem: Any, wish: Wish) -> Answer:
    # As it says itself what is worth another try, ask it; importing it costs nothing by now.
    failures = importlib.import_module("s3fs.core").S3_RETRYABLE_ERRORS
    bucket, key, version_id = filesystem.split_path(wish.path)
    options = {"Range": _range_header(wish)} if wish.start is not None else {}
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
            return Answer(data, 0, len(data), version)
        return _placed(data, _parse_range({"Content-Range": reply["ContentRange"]}), version)
    raise AssertionError("the last attempt returns or raises")


async def _ask_obstore(filesystem: Any, wish: Wish) -> Answer:
    bucket, path = filesystem._split_path(wish.path)
    options: dict[str, Any] = {}
    if wish.start is not None and wish.start < 0:
        options["range"] = {"suffix": -wish.start}
    elif wish.start is not None:
        options["range"] = {"offset": wish.start} if wish.end is None else (wish.start, wish.end)
    reply = await filesystem._construct_store(bucket).get_async(path, options=options)
    data = memoryview(await reply.bytes_async())
    meta, (begin, end) = reply.meta, reply.range
    if len(data) != end - begin:
        raise OSError(f"the server promised bytes {begin} to {end}, {len(data)} bytes came")
    return Answer(data, begin, meta["size"], _strong(meta.get("e_tag")))


def is_directory(url: object) -> bool:
    """Whether a server's answer is about a directory: asked for "a/b", it sends one on to "a/b/".

    What it has to say there (a page for people, or that it will not show one) is no value; no key ends so.
    """
    return str(url).partition("?")[0].endswith("/")


class _Place(NamedTuple):
    begin: int | None = None
    end: int | None = None
    total_size: int | None = None


def _parse_range(headers: Mapping[str, str]) -> _Place:
    match = CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    if match is None:
        return _Place()
    first, last, total = match.groups()
    return _Place(
        None if first is None else int(first),
        None if last is None else int(last) + 1,
        None if total == "*" else int(total),
    )


def _placed(data: bytes, place: _Place, version: str | None) -> Answer:
    if place.begin is not None and place.end != place.begin + len(data):
        raise OSError(f"the server promised bytes {place.begin} to {place.end}, {len(data)} bytes came")
    return Answer(data, place.begin, place.total_size, version)


def _is_past_end(start: int, total_size: int | None) -> bool:
    return total_size is not None and (total_size == 0 if start < 0 else start >= total_size)


def _strong(tag: str | None) -> str | None:
    """The entity tag, unless it is a weak one, which two values may share."""
    return None if tag is None or tag.startswith("W/") else tag
