"""Arrays, groups and views over HTTP as Zarr: any reader of Zarr opens their addresses.

Spec: Zarr v2 and v3; RFC 9110 (ranges, entity tags).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

import zstore
from zstore.errors import ZstoreError
from zstore.plugin.jobs import Source, SourceStore
from zstore.plugin.nodes import document_keys, parse_json, render_json
from zstore.plugin.stores import ByteRange, Part, Store, join_key, open_store
from zstore_serve.problems import Problem, answer_unless_gone

__all__ = ["zarr_router"]

log = logging.getLogger("zstore_serve")

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
# Keys that are served: documents, and chunks by the key encodings of v2 and v3; nothing else that lies there.
KEY = re.compile(r"(?:[^/]+/)*(?:zarr\.json|\.z(?:array|group|attrs|metadata)|c|(?:c[/.])?\d+(?:[/.]\d+)*)")
RANGE = re.compile(r"bytes=(?:(?P<first>\d+)-(?P<last>\d*)|-(?P<count>\d+))")


class _Place(NamedTuple):
    """A hierarchy: the store and the path of the node that is its root, and the address that names it."""

    store: Store
    path: str
    address: str


class ZarrService:
    """Answers requests for the keys of hierarchies.

    max_age  seconds for which answers may be kept, and consolidated metadata made here are
    time     seconds that one answer may take
    """

    def __init__(self, places: Mapping[str, _Place], *, max_age: int, time: float) -> None:
        self._places, self._max_age, self._time = dict(places), max_age, time
        self._turns = asyncio.Semaphore(32 * (os.cpu_count() or 1))
        self._consolidated: dict[str, tuple[float, dict[str, bytes]]] = {}

    async def answer(self, request: Request) -> Response:
        """The value of a key, a part of it, or why there is none."""

        async def explain(error: Exception) -> Problem:
            # The error may name places: it is for the log, not for the client.
            log.error("%s failed", request.url.path, exc_info=error)
            return Problem(503, "the value is out of reach; the server's log says why")

        return await answer_unless_gone(request, self._in_turn(request), explain)

    async def names(self, request: Request) -> Response:
        """The addresses of the hierarchies, as a JSON document."""
        base = f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}".rstrip("/")
        content = json.dumps({"zarr": [f"{base}/{quote(name)}" for name in self._places]}).encode()
        return Response(content, media_type="application/json")

    async def _in_turn(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self._time), self._turns:
                return await self._value(request)
        except TimeoutError:
            raise Problem(503, f"the answer took more than {self._time:g} seconds") from None

    async def _value(self, request: Request) -> Response:
        name, key = request.path_params["name"], request.path_params["key"]
        if name not in self._places or KEY.fullmatch(key) is None:
            raise Problem(404, "no such key; the names of what is served are at /")
        wanted = _range_of(request.headers.get("range", ""))
        part = await self._part(name, key, wanted)
        if part is None:
            raise Problem(404, "no such key")
        headers = {
            "Accept-Ranges": "bytes",
            "Cache-Control": f"public, max-age={self._max_age}",
            "Content-Type": "application/json" if key.endswith(DOCUMENTS) else "application/octet-stream",
        }
        if part.version is not None or wanted is None:
            headers["ETag"] = _tag(part)
            known = request.headers.get("if-none-match", "").split(",")
            if {headers["ETag"], "*"} & {word.strip().removeprefix("W/") for word in known}:
                return Response(status_code=304, headers=headers)
        if wanted is None:
            return Response(bytes(part.data), headers=headers)
        begin, end = wanted.resolve(part.total_size)
        if begin >= end:
            headers["Content-Range"] = f"bytes */{part.total_size}"
            return Response(status_code=416, headers=headers)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{part.total_size}"
        return Response(bytes(part.data), 206, headers)

    async def _part(self, name: str, key: str, wanted: ByteRange | None) -> Part | None:
        place = self._places[name]
        if key in ("zarr.json", ".zmetadata"):
            document = (await asyncio.to_thread(self._consolidate, name)).get(key)
            if document is not None:
                begin, end = (wanted or ByteRange(0)).resolve(len(document))
                version = hashlib.blake2b(document, digest_size=12).hexdigest()
                return Part(document[begin:end], len(document), version)
        whole = join_key(place.path, key)
        # Files come without versions. Asked for first, a tag is at most older than its value, never newer.
        is_near = place.store.request_count == 1
        entry = await asyncio.to_thread(place.store.entry, whole) if is_near else None
        [part] = await place.store.get_parts_async([(whole, wanted)])
        return part if part is None or entry is None else part._replace(version=entry.version)

    def _consolidate(self, name: str) -> dict[str, bytes]:
        """The root's documents, with those of all members in them: HTTP has no lists of keys."""
        made, documents = self._consolidated.get(name, (0.0, {}))
        if documents and monotonic() - made < self._max_age:
            return documents
        documents = _root_documents(self._places[name])
        self._consolidated[name] = monotonic(), documents
        return documents


def _tag(part: Part) -> str:
    """The entity tag of a value: a hash of its version, or of its bytes."""
    content = bytes(part.data) if part.version is None else part.version.encode()
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def _root_documents(place: _Place) -> dict[str, bytes]:
    node = zstore.open(place.store, place.path, mode="r")
    if not isinstance(node, zstore.Group):
        return {}
    try:
        paths = ["", *(path for path, _ in node.members(None, unreadable={}))]
    except ZstoreError:  # a store that lists nothing
        return {}
    keys = [key for path in paths for key in document_keys(path, node.zarr_format)]
    values = place.store.get_many([(join_key(place.path, key), None) for key in keys])
    memory = open_store("memory://")
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            memory.put(key, value)
    zstore.consolidate(memory)
    name = "zarr.json" if node.zarr_format == 3 else ".zmetadata"
    return {name: bytes(memory.get(name) or b"")}


def _place_of(source: Any, storage_options: Mapping[str, Any] | None) -> _Place:
    is_open = isinstance(source, zstore.Array | zstore.Group | Source)
    node = source if is_open else zstore.open(source, mode="r", storage_options=storage_options)
    is_source = isinstance(node, Source)
    store, path = (_regular(SourceStore.of(node)), "") if is_source else (node.store, node.path)
    address = os.fspath(source) if isinstance(source, str | os.PathLike) else path or store.url
    return _Place(store, path, address)


def _regular(store: SourceStore) -> SourceStore:
    """The store, its arrays in chunks of one shape: most readers of Zarr know no others."""
    for path in store.sources:
        key = join_key(path, "zarr.json")
        document = parse_json(store.documents.get(key) or b"{}", path=key)
        if document.get("chunk_grid", {}).get("name") == "rectilinear":
            shape = list(store.model(path).grid.chunk_shape)
            document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": shape}}
            store.documents.put(key, render_json(document))
    return store


def _named(places: list[_Place]) -> dict[str, _Place]:
    """The hierarchies by the last names of their addresses; a number tells equal names apart."""
    found: dict[str, _Place] = {}
    for place in places:
        name = unquote(urlsplit(place.address).path.rstrip("/").rpartition("/")[2]) or "data"
        name = name.removesuffix(".view.json").removesuffix(".zip")
        while name in found:
            stem, mark, number = name.rpartition("~")
            name = f"{stem}~{int(number) + 1}" if mark and number.isdecimal() else f"{name}~2"
        found[name] = place
    return found


def zarr_router(
    *sources: Any,
    storage_options: Mapping[str, Any] | None = None,
    max_age: int = 60,
    time: float = 30.0,
) -> Router:
    """An ASGI application that serves stores, arrays, views and files over HTTP as Zarr, each under its name.

    Keys are those of the store, in its own format; those of views and files are made when they are asked for.
    Groups have consolidated metadata, made here where the store has none, as HTTP has no lists of keys.
    Nothing but documents and chunks is served.

    max_age  seconds for which clients may keep answers
    time     seconds that one answer may take

    Raises
        NotFoundError: one of the sources does not exist.
    """
    places = _named([_place_of(source, storage_options) for source in sources])
    service = ZarrService(places, max_age=max_age, time=time)
    methods = ["GET", "HEAD"]
    routes = [
        Route("/", service.names, methods=methods),
        Route("/{name}/{key:path}", service.answer, methods=methods),
    ]
    return Router(routes=routes, redirect_slashes=False)


def _range_of(text: str) -> ByteRange | None:
    """The range that a header asks for; None for the whole value, as for anything that is not one range."""
    found = RANGE.fullmatch(text.strip())
    if found is None:
        return None
    if found["count"]:
        return ByteRange(-int(found["count"])) if int(found["count"]) else None
    first, last = int(found["first"]), found["last"]
    if last and int(last) < first:
        return None
    return ByteRange(first, int(last) + 1 - first if last else None)
