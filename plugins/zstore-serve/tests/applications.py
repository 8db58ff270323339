"""What the tests of answers, exports and the page share: rasters, and requests to an application."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import uvicorn
from PIL import Image

import zstore
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.levels import add_auxiliaries


def write(
    place: Any,
    values: np.ndarray,
    crs: str | None,
    affine: Affine | None,
    dimensions: tuple[str, ...] = ("y", "x"),
    chunks: int = 64,
    **variable: Any,
) -> zstore.Group:
    """A group with one array "v" of these values, on a grid unless there is no CRS."""
    group = zstore.create_group(place, overwrite=True)
    if crs is None:
        group.create_array("v", data=values, chunks=chunks, dimension_names=dimensions)
        return group
    variables = {"v": Variable(values.dtype, dimensions, **variable)}
    geo = GeoModel(Crs.from_user(crs), affine, values.shape[-2:], dimensions[-2:], variables=variables)
    documents, _ = render_geo(geo, 3)
    group.attrs.update(documents[""]["attributes"])
    document = documents["v"]
    stated = {name: document[name] for name in ("fill_value", "attributes", "dimension_names")}
    group.create_array("v", data=values, chunks=chunks, **stated)
    add_auxiliaries(group, documents, "")
    return group


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.content)

    @property
    def cells(self) -> np.ndarray:
        return np.load(io.BytesIO(self.content))

    @property
    def picture(self) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(self.content)).convert("RGBA"))


def ask(application: Any, path: str, headers: dict[str, str] | None = None) -> Answer:
    """What an ASGI application answers, without a server between."""
    return asyncio.run(ask_async(application, path, headers))


async def forever() -> Any:
    """A client that waits for its answer."""
    await asyncio.Event().wait()


async def ask_async(
    application: Any, path: str, headers: dict[str, str] | None = None, receive: Callable[[], Any] = forever
) -> Answer:
    place, _, query = path.partition("?")
    given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {
        "type": "http", "method": "GET", "path": place, "raw_path": place.encode(),
        "query_string": query.encode(), "headers": [(b"host", b"localhost"), *given],
        "scheme": "http", "server": ("localhost", 80), "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    start = sent[0]
    said = {k.decode(): v.decode() for k, v in start["headers"]}
    return Answer(start["status"], said, b"".join(m.get("body", b"") for m in sent[1:]))


def get(application: Any, path: str) -> Answer:
    answer = ask(application, path)
    assert answer.status == 200, (path, answer.content[:500])
    return answer


@contextmanager
def listening(application: Any, **options: Any) -> Iterator[str]:
    """The address of a server in this process."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
