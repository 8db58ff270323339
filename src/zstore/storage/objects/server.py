"""Requests to a web server; responses that obstore cannot read are left to fsspec."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from zstore._ext.requests.curl import DONE, UNSIZED, Answer
from zstore.base.limits import current_limits
from zstore.storage.base import Fetch, in_thread
from zstore.storage.objects.backend import Backend, Reply, Tried, Version
from zstore.storage.objects.failures import Elsewhere, status_of
from zstore.storage.objects.library import awaited
from zstore.storage.remote import RequestLine, is_directory, too_slow

UNSAID = "a server that does not say how long its answers are"


class Server(Backend):
    """A web server, which has no listing and takes no writes."""

    is_http = True
    is_served = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.request_count = current_limits().request_count

    async def _head_again(self, key: str, error: Exception) -> tuple[int | None, Version]:
        if status_of(error) not in (405, 501):
            raise self.failed("read", key, error) from error
        reply = await self._again(partial(self._ask, key, None, 1), RequestLine("GET", key))
        return reply.total_size, reply.version

    def _tried(self, fetch: Fetch, answer: Answer) -> Tried:
        attributes = {"Content-Type": answer.content_type.decode("latin-1")}
        if answer.content_encoding:
            attributes["Content-Encoding"] = answer.content_encoding.decode("latin-1")
        try:
            if answer.outcome == DONE:
                self._check_reply(fetch.key, attributes)
        except Elsewhere as error:
            return error
        if answer.outcome == UNSIZED:
            return Elsewhere(UNSAID)
        return super()._tried(fetch, answer)

    async def _ask(self, key: str, wanted: Any, limit: int | None = None) -> Reply:
        try:
            return await super()._ask(key, wanted, limit)
        except Exception as error:
            if "Content-Length Header missing" in str(error):
                raise Elsewhere(UNSAID) from error
            if (status_of(error) or 0) // 100 == 3 and has_aiohttp():
                raise Elsewhere("a server that sends on to where obstore does not go") from error
            raise

    async def _body(self, reply: Any, size: int) -> Any:
        limits = current_limits()
        try:
            async with asyncio.timeout(limits.body_time(size)):
                return await awaited(reply.bytes_async())
        except TimeoutError as error:
            raise too_slow(limits) from error

    def _check_reply(self, key: str, attributes: Mapping[str, Any]) -> None:
        """Leave packed bodies and redirected pages to fsspec, because obstore does not report them."""
        if "Content-Encoding" in attributes:
            raise Elsewhere("a server that packs its answers")
        is_page = str(attributes.get("Content-Type", "")).startswith("text/html")
        if is_page and not key.endswith((".html", ".htm")) and has_aiohttp():
            raise Elsewhere("a server that may show a directory as a page")

    async def _is_page(self, key: str, error: Exception) -> bool:
        """Whether the server refuses a directory, not a value: it redirects "a" to "a/"."""
        if status_of(error) != 403:
            return False
        return is_directory(await in_thread(_lead, f"{self.address.bucket}/{quote(self.path(key))}"))


def has_aiohttp() -> bool:
    """Whether fsspec can send requests to web servers."""
    return find_spec("aiohttp") is not None


def _lead(url: str) -> str:
    """The address that a web server redirects to; "" if it does not respond."""
    try:
        with urlopen(Request(url, method="HEAD"), timeout=current_limits().connect_time) as answer:
            return str(answer.url)
    except HTTPError as error:
        with error:
            return str(error.url)
    except (OSError, ValueError):
        return ""
