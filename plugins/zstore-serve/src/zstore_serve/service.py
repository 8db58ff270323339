"""The web service: tiles, their descriptions, values and the page, of the stores given to it and no other.

Spec: OGC API – Tiles – Part 1 (20-057): landing page, conformance, tile matrix sets, tilesets, tiles;
TileJSON 3.0.0.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from zstore.conventions.model import Affine
from zstore.pyramid.boxes import Items
from zstore_serve import drawing
from zstore_serve.frames import Frame, Pixels, one_cell, plan_frame
from zstore_serve.pictures import STATISTICS_SIZE, Maker, Settings, meant
from zstore_serve.problems import Problem
from zstore_serve.queries import LAYER_WORDS, STYLE_WORDS, Asked, parse_layer, parse_style
from zstore_serve.scenes import LONGITUDES, Scene, open_scenes
from zstore_serve.tilings import (
    PIXELS,
    describe_tiles,
    matrices_of,
    own_set,
    set_names,
    tile_frame,
    tile_set,
    whole_frame,
)
from zstore_serve.vendored import vendor
from zstore_serve.wmts import PICTURES, STYLE, capabilities

__all__ = ["Service", "Settings", "router"]

log = logging.getLogger("zstore_serve")

VENDOR = ("ol.js", "ol.css", "land-110m.json")
TYPES = {".js": "text/javascript", ".css": "text/css", ".json": "application/json"}
CONFORMS = tuple(
    f"http://www.opengis.net/spec/ogcapi-{part}"
    for part in (
        "common-1/1.0/conf/core", "tiles-1/1.0/conf/core", "tiles-1/1.0/conf/tileset",
        "tiles-1/1.0/conf/tilesets-list", "tiles-1/1.0/conf/png", "tiles-1/1.0/conf/jpeg",
    )
)  # fmt: skip
BINS = 32
SERIES_MOST = 100_000
# Coordinates of places and windows, and the sides of windows, of which arithmetic still makes numbers.
FARTHEST = 1e12
NARROWEST = 1e-9

# What a tile is asked for by, beside its request.
WMTS_WORDS = ("LAYER", "FORMAT", "TILEMATRIXSET", "TILEMATRIX", "TILEROW", "TILECOL")

Answer = Callable[[Request], Awaitable[Response]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


def router(
    *sources: Any, settings: Settings | None = None, storage_options: Mapping[str, Any] | None = None
) -> Router:
    """An ASGI application that serves these stores: to be run, or mounted in Starlette's or FastAPI's.

        app.mount("/map", zstore_serve.router("scene.zarr"))

    Raises
        NotFoundError: there is nothing at one of the places.
        MetadataError: nothing there is a grid of two dimensions.
    """
    service = Service(open_scenes(sources, storage_options), settings or Settings())
    return Router(routes=service.routes(), redirect_slashes=False, default=_no_such_path)


class Service:
    """Answers requests about scenes."""

    def __init__(self, scenes: Mapping[str, Scene], settings: Settings) -> None:
        self.scenes, self.settings, self.maker = scenes, settings, Maker(settings)
        self._turns = asyncio.Semaphore(4 * (os.cpu_count() or 1))
        self._page = (files("zstore_serve") / "page.html").read_text("utf-8")

    def routes(self) -> list[Route]:
        """The paths that are answered."""
        one, tiles = "/collections/{scene}", "/collections/{scene}/map/tiles"
        found: list[tuple[str, Answer]] = [
            ("/", self.page),
            ("/assets/{name}", self.asset),
            ("/api", self.landing),
            ("/conformance", self.conformance),
            ("/colormaps", self.colour_maps),
            ("/colormaps/{name}", self.colour_map),
            ("/tileMatrixSets", self.matrix_sets),
            ("/tileMatrixSets/{tms}", self.matrix_set),
            ("/collections", self.collections),
            (one, self.info),
            (f"{one}/bounds", self.bounds),
            (f"{one}/tilejson.json", self.tilejson),
            (f"{one}/point", self.point),
            (f"{one}/timeseries", self.series),
            (f"{one}/statistics", self.statistics),
            (f"{one}/preview.{{format}}", self.preview),
            (f"{one}/tiles/{{tms}}/{{z}}/{{x}}/{{y}}.{{format}}", self.tile),
            (tiles, self.tilesets),
            (f"{tiles}/{{tms}}", self.tileset),
            (f"{tiles}/{{tms}}/{{z}}/{{y}}/{{x}}", self.tile),
            (f"{one}/window.{{format}}", self.window),
            ("/wmts", self.wmts),
            ("/wmts/1.0.0/WMTSCapabilities.xml", self.wmts),
            (f"/wmts/1.0.0/{{scene}}/{STYLE}/{{tms}}/{{z}}/{{y}}/{{x}}.{{format}}", self.tile),
        ]
        return [Route(path, partial(self._answer, answer), methods=["GET", "HEAD"]) for path, answer in found]

    async def _answer(self, answer: Answer, request: Request) -> Response:
        """The answer, or the problem as a document; given up when nobody waits for it any more."""
        work = asyncio.ensure_future(self._in_turn(answer, request))
        gone = asyncio.ensure_future(_until_gone(request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            response = await work if work.done() else Response(status_code=499)
        except Problem as problem:
            response = _problem(problem)
        except Exception:
            # What went wrong inside is the operator's to see: it may name places and values.
            log.exception("%s failed", request.url.path)
            response = _problem(Problem(500, "the answer could not be made; the server's log says why"))
        finally:
            work.cancel()
            gone.cancel()
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    async def _in_turn(self, answer: Answer, request: Request) -> Response:
        try:
            async with asyncio.timeout(self.settings.time):
                async with self._turns:
                    return await answer(request)
        except TimeoutError:
            raise Problem(503, f"the answer took more than {self.settings.time:g} seconds") from None

    # Documents.

    async def page(self, request: Request) -> Response:
        """The page, with OpenLayers; or a sentence that says how to get it."""
        missing = [name for name in VENDOR[:2] if vendor(name) is None]
        if missing:
            raise Problem(
                503,
                "this package was built without OpenLayers, which the page is drawn with: install npm and "
                "build zstore-serve again, or name the folder of npm's package ol in ZSTORE_SERVE_OL; tiles "
                "are served as ever",
            )
        hashes = {tag: _hash_of(self._page, tag) for tag in ("script", "style")}
        policy = (
            f"default-src 'none'; script-src 'self' '{hashes['script']}'; "
            f"style-src 'self' '{hashes['style']}'; "
            "img-src 'self' data: blob: https:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
        return Response(self._page, media_type="text/html; charset=utf-8", headers=headers)

    async def asset(self, request: Request) -> Response:
        """A file that the page is made of."""
        name = request.path_params["name"]
        content = vendor(name) if name in VENDOR else None
        if content is None:
            raise Problem(404, "no such file")
        return self._tagged(request, content, TYPES["." + name.rpartition(".")[2]])

    async def landing(self, request: Request) -> Response:
        """What there is, as OGC's landing page."""
        base = _base(request)
        links = [
            {"rel": "self", "type": "application/json", "href": f"{base}/api"},
            {"rel": "conformance", "type": "application/json", "href": f"{base}/conformance"},
            {"rel": "data", "type": "application/json", "href": f"{base}/collections"},
            {
                "rel": "http://www.opengis.net/def/rel/ogc/1.0/tiling-schemes",
                "href": f"{base}/tileMatrixSets",
            },
        ]
        return self._json(request, {"title": "zstore serve", "links": links})

    async def conformance(self, request: Request) -> Response:
        """The classes of OGC's requirements that are met."""
        return self._json(request, {"conformsTo": CONFORMS})

    async def matrix_sets(self, request: Request) -> Response:
        """The tile matrix sets that tiles come in."""
        base = _base(request)
        sets = [
            {"id": name, "links": [{"rel": "self", "href": f"{base}/tileMatrixSets/{name}"}]}
            for name in set_names()
        ]
        return self._json(request, {"tileMatrixSets": sets})

    async def matrix_set(self, request: Request) -> Response:
        """One tile matrix set as OGC writes it."""
        return self._json(request, dict(tile_set(request.path_params["tms"]).document))

    async def collections(self, request: Request) -> Response:
        """The scenes."""
        return self._json(
            request, {"collections": [self._about(request, scene) for scene in self.scenes.values()]}
        )

    async def info(self, request: Request) -> Response:
        """One scene: where it lies, its bands, dimensions and levels."""
        scene = self._scene(request)
        bands = []
        for name, band in scene.bands.items():
            variable = scene.variable(band)
            array = scene.finest.arrays[band.array]
            bands.append({
                "name": name, "array": band.array, "dtype": str(array.dtype),
                "nodata": _plain(variable.nodata),
                "units": variable.units, "title": variable.long_name or variable.standard_name or name,
                "dimensions": [axis.name for axis in scene.axes_of(band)],
                "categories": [
                    {"value": value, "colour": colour, "name": label}
                    for value, (colour, label) in drawing.category_colours(variable).items()
                ],
            })  # fmt: skip
        axes = [
            {"name": axis.name, "size": axis.size, "labels": axis.labels if axis.size <= 5000 else ()}
            for axis in scene.axes.values()
        ]
        levels = [
            {"shape": level.geo.shape, "factors": factors}
            for level, factors in zip(scene.levels, scene.factors, strict=True)
        ]
        about = {
            **self._about(request, scene), "bands": bands, "dimensions": axes, "levels": levels,
            "colours": scene.preferred, "size": scene.shape,
        }  # fmt: skip
        return self._json(request, about)

    def _about(self, request: Request, scene: Scene) -> dict[str, Any]:
        base = f"{_base(request)}/collections/{scene.id}"
        box = scene.longitudes()
        about: dict[str, Any] = {
            "id": scene.id, "title": scene.title, "dataType": "map",
            "crs": scene.crs_name, "bounds": scene.bounds(), "tiles": own_set(scene),
            "links": [
                {"rel": "self", "href": base},
                {"rel": "http://www.opengis.net/def/rel/ogc/1.0/tilesets-map", "href": f"{base}/map/tiles"},
                {"rel": "tilejson", "href": f"{base}/tilejson.json"},
            ],
        }  # fmt: skip
        if box:
            about["extent"] = {"spatial": {"bbox": [box]}}
        return about

    async def bounds(self, request: Request) -> Response:
        """Where a scene lies, in its own CRS and in degrees."""
        scene = self._scene(request)
        box = scene.longitudes()
        return self._json(request, {"bounds": scene.bounds(), "crs": scene.crs_name, "bbox": box})

    async def tilejson(self, request: Request) -> Response:
        """What map clients need to know of a scene's tiles; the query goes on to them."""
        scene, asked = self._asked(request)
        asked.check(LAYER_WORDS, STYLE_WORDS, scene.axes, ("tms",))
        name = asked.text("tms") or own_set(scene)
        query = str(request.url.query)
        url = f"{_base(request)}/collections/{scene.id}/tiles/{name}/{{z}}/{{x}}/{{y}}.png"
        return self._json(request, describe_tiles(scene, name, f"{url}?{query}" if query else url))

    async def tilesets(self, request: Request) -> Response:
        """The sets in which tiles of a scene come."""
        scene = self._scene(request)
        names = set_names() if scene.crs is not None else [PIXELS]
        return self._json(request, {"tilesets": [self._tileset(request, scene, name) for name in names]})

    async def tileset(self, request: Request) -> Response:
        """One of these sets."""
        scene, name = self._scene(request), request.path_params["tms"]
        matrices_of(scene, name)
        return self._json(request, self._tileset(request, scene, name))

    def _tileset(self, request: Request, scene: Scene, name: str) -> dict[str, Any]:
        base = _base(request)
        own = f"{base}/collections/{scene.id}/map/tiles/{name}"
        return {
            "title": f"{scene.title}, {name}", "dataType": "map",
            "tileMatrixSetURI": f"{base}/tileMatrixSets/{name}",
            "links": [
                {"rel": "self", "href": own},
                {
                    "rel": "item", "type": "image/png", "templated": True,
                    "href": f"{own}/{{tileMatrix}}/{{tileRow}}/{{tileCol}}",
                },
            ],
        }  # fmt: skip

    async def colour_maps(self, request: Request) -> Response:
        """The names of the colour maps."""
        return self._json(request, {"colormaps": drawing.colour_map_names()})

    async def colour_map(self, request: Request) -> Response:
        """The 256 colours of a map."""
        return self._json(request, {"colours": drawing.colour_map(request.path_params["name"]).tolist()})

    # Values.

    async def point(self, request: Request) -> Response:
        """The values at a place, given in degrees, or as x and y in the scene's own CRS (or its pixels)."""
        scene, asked = self._asked(request)
        asked.check(LAYER_WORDS, scene.axes, ("lon", "lat", "x", "y"))
        row, column = _cell(scene, asked)
        layer = parse_layer(scene, asked)
        plan = one_cell(row, column)
        measured = await self.maker.measure(scene, layer, plan)
        values = {name: _plain(v[0, 0].item()) if ok[0, 0] else None for name, (v, ok) in measured.items()}
        return self._json(request, {"values": values, "row": row, "column": column})

    async def series(self, request: Request) -> Response:
        """The values at a place along a dimension: time, or the one that `along` names."""
        scene, asked = self._asked(request)
        asked.check(("bands",), scene.axes, ("lon", "lat", "x", "y", "along"))
        row, column = _cell(scene, asked)
        layer = parse_layer(scene, asked)
        if len(layer.bands) != 1:
            raise Problem(400, f"{len(layer.bands)} bands are asked for; expected one for a series")
        (band,) = layer.bands.values()
        names = [axis.name for axis in scene.axes_of(band)]
        along = (
            asked.text("along")
            or next((n for n in names if n.lower() in ("time", "t")), "")
            or "".join(names[:1])
        )
        if along not in names:
            raise Problem(400, f"{band.name!r} has no dimension {along[:80]!r} to go along; it has {names}")
        axis, array = scene.axes[along], scene.finest.arrays[band.array]
        dims, (y, x) = scene.dimensions(band.array), scene.finest.axes(band.array)
        place = dims.index(along)
        touched = -(-axis.size // array.chunks[place]) * math.prod(array.chunks)
        if axis.size > SERIES_MOST or touched > 8 * self.settings.cell_count:
            raise Problem(
                422, f"a series along {along} would decode {touched} cells; its chunks are cut across it"
            )
        items = {**layer.chosen, **band.fixed}
        region: list[Any] = [items.get(name, 0) for name in dims]
        region[y], region[x], region[place] = row, column, slice(None)
        stored = await array.read_async(tuple(region))
        known = _valid(stored, scene.variable(band).nodata)
        if scene.mask is not None and scene.mask != band.array:
            known &= bool(await scene.finest.arrays[scene.mask].read_async((row, column)))
        values, valid = meant(scene, band, Pixels(stored, known))
        shown = [_plain(v) if ok else None for v, ok in zip(values.tolist(), valid.tolist(), strict=True)]
        return self._json(
            request, {"along": along, "labels": axis.labels, "values": shown, "band": band.name}
        )

    async def statistics(self, request: Request) -> Response:
        """Least, greatest, mean and more of each band in a window, of the level that `size` pixels need."""
        scene, asked = self._asked(request)
        asked.check(LAYER_WORDS, scene.axes, ("bbox", "size"))
        layer = parse_layer(scene, asked)
        size = asked.whole("size", 1, STATISTICS_SIZE, 512)
        frame = whole_frame(scene, size) if "bbox" not in asked else _boxed(scene, asked, size)
        plan = plan_frame(scene, frame, layer.sampling)
        found = {}
        for name, (values, valid) in (await self.maker.measure(scene, layer, plan)).items():
            seen = values[valid].astype(np.float64)
            if not seen.size:
                found[name] = {"count": 0}
                continue
            p2, median, p98 = np.percentile(seen, (2, 50, 98)).tolist()
            with np.errstate(over="ignore", invalid="ignore"):
                mean, std = seen.mean(), seen.std()
            found[name] = {
                "count": seen.size, "valid": seen.size / valid.size, "min": seen.min(), "max": seen.max(),
                "mean": mean, "std": std, "percentile_2": p2, "median": median,
                "percentile_98": p98, "histogram": _histogram(seen),
            }  # fmt: skip
        return self._json(request, {"statistics": found, "level": plan.level})

    # Pictures.

    async def preview(self, request: Request) -> Response:
        """All of a scene in one picture, on its own grid, north up."""
        scene, asked = self._asked(request)
        asked.check(LAYER_WORDS, STYLE_WORDS, scene.axes, ("size",))
        frame = whole_frame(scene, asked.whole("size", 1, self.settings.size, 1024))
        return await self._picture(request, scene, asked, frame, request.path_params["format"])

    async def tile(self, request: Request) -> Response:
        """A tile of a tile matrix set."""
        scene, asked = self._asked(request)
        asked.check(LAYER_WORDS, STYLE_WORDS, scene.axes, ("size", "f", "tms"))
        path = request.path_params
        return await self._tile(request, scene, asked, path, path.get("format") or asked.text("f", "png"))

    async def _tile(
        self, request: Request, scene: Scene, asked: Asked, path: Mapping[str, str], format: str
    ) -> Response:
        matrices = matrices_of(scene, path["tms"])
        if path["z"] not in matrices:
            raise Problem(404, f"no tile matrix {path['z'][:80]!r}; there are {', '.join(matrices)}")
        matrix = matrices[path["z"]]
        row, column = (_place(path[n], n, size) for n, size in zip("yx", matrix.matrix_shape, strict=True))
        size = asked.whole("size", 64, 1024, matrix.tile_shape[1])
        frame = tile_frame(scene, path["tms"], matrix, row, column, size)
        return await self._picture(request, scene, asked, frame, format)

    async def window(self, request: Request) -> Response:
        """The window that `bbox` says: on the scene's own grid; with `size`, in degrees and so long."""
        scene, asked = self._asked(request)
        asked.check(LAYER_WORDS, STYLE_WORDS, scene.axes, ("bbox", "size"))
        if "bbox" not in asked:
            raise Problem(400, "bbox is missing; expected west, south, east, north")
        size = asked.whole("size", 1, self.settings.size, self.settings.size)
        frame = _boxed(scene, asked, size)
        if "size" not in asked:
            frame = _on_own_grid(scene, frame, self.settings.cell_count)
        return await self._picture(request, scene, asked, frame, request.path_params["format"])

    async def wmts(self, request: Request) -> Response:
        """The capabilities of the WMTS, or a tile that is asked for by keys and values."""
        words = {name.upper(): value for name, value in request.query_params.multi_items()}
        kind = words.get("REQUEST", "GetCapabilities").lower()
        if kind == "getcapabilities":
            content = capabilities(_base(request), self.scenes)
            return self._tagged(request, content, "application/xml")
        if kind != "gettile":
            raise Problem(400, f"REQUEST is {words['REQUEST'][:80]!r}; expected GetCapabilities or GetTile")
        missing = [word for word in WMTS_WORDS if word not in words]
        if missing:
            raise Problem(400, f"{missing[0]} is missing; a tile is asked for by {', '.join(WMTS_WORDS)}")
        scene = self._scene_of(words["LAYER"])
        format = {kind: name for name, kind in drawing.FORMATS.items()}.get(words["FORMAT"])
        if format not in PICTURES or words.get("STYLE", STYLE) not in ("", STYLE):
            raise Problem(400, f"FORMAT and STYLE: expected image/png, jpeg or webp, and {STYLE}")
        own = (*WMTS_WORDS, "SERVICE", "REQUEST", "VERSION", "STYLE")
        pairs = [pair for pair in request.query_params.multi_items() if pair[0].upper() not in own]
        # Dimensions are called as they are, however a client writes them.
        called = {name.upper(): name for name in scene.axes}
        asked = Asked((called.get(name.upper(), name), value) for name, value in pairs)
        asked.check(LAYER_WORDS, STYLE_WORDS, scene.axes)
        path = {"tms": words["TILEMATRIXSET"], "z": words["TILEMATRIX"]}
        path |= {"y": words["TILEROW"], "x": words["TILECOL"]}
        return await self._tile(request, scene, asked, path, format)

    async def _picture(
        self, request: Request, scene: Scene, asked: Asked, frame: Frame, format: str
    ) -> Response:
        format = {"jpeg": "jpg"}.get(format, format)
        if format not in drawing.FORMATS:
            raise Problem(404, f"no format {format[:80]!r}; there are {', '.join(drawing.FORMATS)}")
        layer = parse_layer(scene, asked)
        if format in ("npy", "tif"):
            plan = plan_frame(scene, frame, layer.sampling)
            measured = await self.maker.measure(scene, layer, plan)
            if format == "npy":
                content = drawing.encode_npy([*measured.values()])
            else:
                content = await asyncio.to_thread(drawing.encode_tiff, measured, frame)
            return self._tagged(request, content, drawing.FORMATS[format], plan.level)
        style = parse_style(asked, 1 if layer.expression is not None else len(layer.bands))
        content, level = await self.maker.picture(scene, layer, style, frame, format)
        return self._tagged(request, content, drawing.FORMATS[format], level)

    # What all answers share.

    def _scene(self, request: Request) -> Scene:
        return self._scene_of(request.path_params["scene"])

    def _asked(self, request: Request) -> tuple[Scene, Asked]:
        return self._scene(request), Asked(request.query_params.multi_items())

    def _scene_of(self, name: str) -> Scene:
        if name not in self.scenes:
            raise Problem(404, f"no collection {name[:80]!r}; see /collections")
        return self.scenes[name]

    def _json(self, request: Request, document: Mapping[str, Any]) -> Response:
        dump = partial(json.dumps, default=_plain, allow_nan=False, separators=(",", ":"))
        try:
            content = dump(document)
        except ValueError:
            # Stores state NaN, and sums overflow, where JSON has no number.
            content = dump(_finite(document))
        return self._tagged(request, content.encode(), "application/json")

    def _tagged(self, request: Request, content: bytes, kind: str, level: int | None = None) -> Response:
        tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": tag, "Cache-Control": f"public, max-age={self.settings.max_age}"}
        if level is not None:
            headers["Zstore-Level"] = str(level)
        known = request.headers.get("if-none-match", "")
        if any(word.strip().removeprefix("W/") in (tag, "*") for word in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _problem(problem: Problem) -> Response:
    content = json.dumps(problem.document()).encode()
    return Response(content, problem.status, {"Cache-Control": "no-store"}, "application/problem+json")


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    await _problem(Problem(404, "no such path; see /api"))(scope, receive, send)


def _base(request: Request) -> str:
    url = request.url
    return f"{url.scheme}://{url.netloc}{request.scope.get('root_path', '')}".rstrip("/")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _finite(document: Any) -> Any:
    """A document whose numbers are finite; the others are null."""
    if isinstance(document, Mapping):
        return {str(key): _finite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return _plain(document)


def _valid(values: Items, nodata: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    valid: np.ndarray[Any, np.dtype[np.bool_]] = np.isfinite(values)
    return valid if nodata is None else valid & (values != nodata)


def _hash_of(page: str, tag: str) -> str:
    content = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _place(text: str, name: str, size: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and int(text) < size):
        raise Problem(404, f"{name} is {text[:80]!r}; this tile matrix has 0 to {size - 1}")
    return int(text)


def _boxed(scene: Scene, asked: Asked, size: int) -> Frame:
    """The window that `bbox` says: in degrees; of a scene without a place in its pixels, y downwards."""
    left, bottom, right, top = asked.numbers("bbox", (4,))
    if scene.crs is None:
        bottom, top = -max(bottom, top), -min(bottom, top)
    if not (left < right and bottom < top) or max(map(abs, (left, bottom, right, top))) > FARTHEST:
        raise Problem(400, f"bbox is {asked.text('bbox')[:80]!r}; expected west, south, east, north")
    if min(right - left, top - bottom) < NARROWEST:
        raise Problem(400, f"bbox is {asked.text('bbox')[:80]!r}; expected {NARROWEST:g} or more a side")
    ratio = (top - bottom) / (right - left)
    height, width = (size, max(1, int(size / ratio))) if ratio > 1 else (max(1, int(size * ratio)), size)
    affine = Affine((right - left) / width, 0.0, left, 0.0, (bottom - top) / height, top)
    return Frame(None if scene.crs is None else LONGITUDES, affine, (height, width))


def _on_own_grid(scene: Scene, frame: Frame, most: int) -> Frame:
    """The cells of the finest level that a frame touches, as a frame of their own."""
    own, (height, width) = scene.affine(0), scene.shape
    if own.is_rotated:
        raise Problem(400, "size is missing; a rotated grid has no windows of its own in degrees")
    x, y = frame.affine.at(*np.meshgrid(*(np.linspace(0, n, 33) for n in reversed(frame.shape))))
    if scene.crs is not None and frame.crs is not None:
        if scene.crs.is_geographic:
            # Longitudes are those of the scene, whichever turn they are told in.
            (west, _, east, _), turn = own.bounds(scene.shape), 2 * math.pi / scene.crs.radians_per_unit
            _, y = frame.crs.transform(scene.crs, np.clip(x - x.min(), 0, 360), y)
            first = frame.crs.transform(scene.crs, np.array([x.min()]), np.array([0.0]))[0][0]
            begin = west + (first - west) % turn
            x = (begin if begin < east else begin - turn) + (x - x.min()) * (turn / 360)
        else:
            x, y = frame.crs.transform(scene.crs, x, y)
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        raise Problem(404, "the window lies nowhere in the collection's CRS")
    sides = []
    for places, size in (((y - own.f) / own.e, height), ((x - own.c) / own.a, width)):
        low, high = places[known].min(), places[known].max()
        begin, end = max(0, math.floor(low + 1e-6)), min(size, math.ceil(high - 1e-6))
        if begin >= end:
            raise Problem(404, "the window lies outside of the collection")
        sides.append((begin, end))
    (top, bottom), (left, right) = sides
    if (bottom - top) * (right - left) > most:
        raise Problem(
            422, f"the window has {bottom - top} × {right - left} cells; expected {most}, or a size"
        )
    corner_x, corner_y = own.at(float(left), float(top))
    return Frame(scene.crs, own._replace(c=corner_x, f=corner_y), (bottom - top, right - left))


def _cell(scene: Scene, asked: Asked) -> tuple[int, int]:
    """(row, column) of the finest level at the place that is asked about."""
    own = scene.affine(0)
    if scene.crs is not None and "lon" in asked:
        lon, lat = asked.number("lon", -360, 360), asked.number("lat", -90, 90)
        x, y = LONGITUDES.transform(scene.crs, np.array([lon]), np.array([lat]))
        east, north = float(x[0]), float(y[0])
        if scene.crs.is_geographic:
            turn = 2 * math.pi / scene.crs.radians_per_unit
            west = own.bounds(scene.shape)[0]
            east = west + (east - west) % turn
    elif "x" in asked:
        east, north = asked.number("x", -FARTHEST, FARTHEST), asked.number("y", -FARTHEST, FARTHEST)
        north = -north if scene.crs is None else north
    else:
        raise Problem(400, "no place is given; expected lon and lat, or x and y in the collection's own CRS")
    if not (math.isfinite(east) and math.isfinite(north)):
        raise Problem(404, "the place lies nowhere in the collection's CRS")
    size = own.a * own.e - own.b * own.d
    column = (own.e * (east - own.c) - own.b * (north - own.f)) / size
    row = (own.a * (north - own.f) - own.d * (east - own.c)) / size
    if not (0 <= row <= scene.shape[0] and 0 <= column <= scene.shape[1]):
        raise Problem(404, "the place lies outside of the collection")
    # On the last edge, which may be a pole, is in the last cell.
    return min(int(row), scene.shape[0] - 1), min(int(column), scene.shape[1] - 1)


def _histogram(seen: Floats) -> list[list[Any]] | None:
    """[counts, edges]; None where the numbers lie too close, or too far apart, for bins between them."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(seen, BINS)
    except ValueError:
        return None
    return [counts.tolist(), edges.tolist()]
