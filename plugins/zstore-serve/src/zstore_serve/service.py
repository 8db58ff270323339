"""The web service: tiles and their descriptions, values, and the page, for the stores it was given.

Spec: OGC API – Tiles – Part 1 (20-057): landing page, conformance, tile matrix sets, tilesets, tiles;
TileJSON 3.0.0.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
import math
import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from zstore.errors import CodecError, StoreError
from zstore.plugin.pictures import look_of
from zstore_serve import drawing
from zstore_serve.areas import AREA_PARAMETERS, Area, find_area, means
from zstore_serve.areas import statistics as statistics_of
from zstore_serve.frames import Frame, plan_frame
from zstore_serve.pictures import COARSE_SIZE, STATISTICS_SIZE, PictureMaker, Settings, percentiles
from zstore_serve.places import bbox_frame, find_cell, snap_to_cells
from zstore_serve.problems import Problem, answer_unless_gone, problem_answer
from zstore_serve.queries import (
    PERCENTILES,
    SELECTION_PARAMETERS,
    STYLE_PARAMETERS,
    Parameters,
    Selection,
    parse_selection,
    parse_steps,
    parse_style,
)
from zstore_serve.scenes import Scene
from zstore_serve.tilings import (
    NATIVE,
    PIXELS,
    default_set,
    load_set,
    native_view,
    render_tilejson,
    set_names,
    tile_frame,
    tile_matrices,
    view_set,
    whole_frame,
)
from zstore_serve.vendored import read_vendored
from zstore_serve.watch import Watch
from zstore_serve.wmts import PICTURES, STYLE, render_capabilities

__all__ = ["Service", "Settings", "router"]

log = logging.getLogger("zstore_serve")

VENDOR = ("ol.js", "ol.css", "countries-110m.json")
TYPES = {".js": "text/javascript", ".css": "text/css", ".json": "application/json"}
CONFORMS = tuple(
    f"http://www.opengis.net/spec/ogcapi-{part}"
    for part in (
        "common-1/1.0/conf/core", "tiles-1/1.0/conf/core", "tiles-1/1.0/conf/tileset",
        "tiles-1/1.0/conf/tilesets-list", "tiles-1/1.0/conf/png", "tiles-1/1.0/conf/jpeg",
    )
)  # fmt: skip
LOG_SAYS = "the server's log says"
# The keys of a GetTile request that say which tile.
WMTS_KEYS = ("LAYER", "FORMAT", "TILEMATRIXSET", "TILEMATRIX", "TILEROW", "TILECOL")

Handler = Callable[[Request], Awaitable[Response]]


def router(
    *sources: Any, settings: Settings | None = None, storage_options: Mapping[str, Any] | None = None
) -> Router:
    """An ASGI application that serves these stores: to be run, or mounted in another of Starlette or FastAPI.

        app.mount("/map", zstore_serve.router("scene.zarr"))

    Raises
        NotFoundError: one of the stores does not exist.
        MetadataError: one of the stores holds no grid of two dimensions.
    """
    settings = settings or Settings()
    service = Service(Watch(sources, storage_options, max_age=settings.max_age), settings)
    return Router(routes=service.routes(), redirect_slashes=False, default=_no_such_path)


class Service:
    """Answers requests about scenes."""

    def __init__(self, scenes: Watch, settings: Settings) -> None:
        self.scenes, self.settings, self.maker = scenes, settings, PictureMaker(settings)
        self._turns = asyncio.Semaphore(4 * (os.cpu_count() or 1))
        self._page = (files("zstore_serve") / "page.html").read_text("utf-8")

    def routes(self) -> list[Route]:
        """The route of every path that is answered."""
        one, tiles = "/collections/{scene}", "/collections/{scene}/map/tiles"
        found: list[tuple[str, Handler]] = [
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
            (f"{one}/expression", self.expression),
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

    async def _answer(self, answer: Handler, request: Request) -> Response:
        """The answer, or a problem document; the work is cancelled when the client has gone."""
        explain = partial(self._explain, request)
        response = await answer_unless_gone(request, self._in_turn(answer, request), explain)
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        return response

    async def _explain(self, request: Request, error: Exception) -> Problem:
        """The problem of an answer that failed: the store is gone, or what the log says more of."""
        # The error may name places and values: it is for the log, not for the client.
        log.exception("%s failed", request.url.path)
        try:
            await self.scenes.renew(request.path_params.get("scene"), at_once=True)
        except Problem as problem:
            return problem
        if isinstance(error, StoreError):
            return Problem(503, f"stored values are out of reach; {LOG_SAYS} which")
        if isinstance(error, CodecError):
            return Problem(500, f"stored values are damaged; {LOG_SAYS} which")
        return Problem(500, f"the answer could not be made; {LOG_SAYS} why")

    async def _in_turn(self, answer: Handler, request: Request) -> Response:
        try:
            async with asyncio.timeout(self.settings.time):
                async with self._turns:
                    await self.scenes.renew(request.path_params.get("scene"))
                    return await answer(request)
        except TimeoutError:
            raise Problem(503, f"the answer took more than {self.settings.time:g} seconds") from None

    # Documents.

    async def page(self, request: Request) -> Response:
        """The page; where OpenLayers is missing, a problem that says how to get it."""
        missing = [name for name in VENDOR[:2] if read_vendored(name) is None]
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
        answer = self._compressed(request, self._page.encode(), "text/html; charset=utf-8")
        answer.headers.update({"Content-Security-Policy": policy, "Cache-Control": "no-cache"})
        return answer

    async def asset(self, request: Request) -> Response:
        """A file that the page loads."""
        name = request.path_params["name"]
        content = read_vendored(name) if name in VENDOR else None
        if content is None:
            raise Problem(404, "no such file")
        return self._compressed(request, content, TYPES["." + name.rpartition(".")[2]])

    async def landing(self, request: Request) -> Response:
        """OGC's landing page: links to all there is."""
        base = _base_url(request)
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
        """The conformance classes of OGC's standards that are met."""
        return self._json(request, {"conformsTo": CONFORMS})

    async def matrix_sets(self, request: Request) -> Response:
        """The names of the tile matrix sets, with links."""
        base = _base_url(request)
        sets = [
            {"id": name, "links": [{"rel": "self", "href": f"{base}/tileMatrixSets/{name}"}]}
            for name in set_names()
        ]
        return self._json(request, {"tileMatrixSets": sets})

    async def matrix_set(self, request: Request) -> Response:
        """The definition of one tile matrix set, as OGC writes it."""
        return self._json(request, dict(load_set(request.path_params["tms"]).document))

    async def collections(self, request: Request) -> Response:
        """The collections, one for each scene."""
        return self._json(
            request,
            {"collections": [self._describe_collection(request, scene) for scene in self.scenes.values()]},
        )

    async def info(self, request: Request) -> Response:
        """One collection: its extent, bands, dimensions and levels."""
        scene = self._scene(request)
        bands = []
        for name, band in scene.bands.items():
            variable = scene.variable(band)
            look = look_of(variable, name)
            array = scene.finest.arrays[band.array]
            bands.append({
                "name": name, "array": band.array, "dtype": str(array.dtype),
                "nodata": _plain_value(variable.nodata),
                "units": variable.units, "colormap": look.colours,
                "scale": "log" if look.is_log else "linear",
                "title": variable.long_name or variable.standard_name or name,
                "dimensions": [axis.name for axis in scene.dimensions_of(band)],
                "series": self.maker.series_of(scene, band),
                "path": scene.path_of(band), "axes": scene.dimension_names(band.array), "fixed": band.fixed,
                "categories": [
                    {"value": value, "colour": colour, "name": label}
                    for value, (colour, label) in drawing.defined_colours(variable).items()
                ],
            })  # fmt: skip
        axes = [
            {
                "name": axis.name,
                "size": axis.size,
                "labels": axis.labels if axis.size <= 5000 else (),
                "is_time": axis.is_time,
                "units": axis.units,
            }
            for axis in scene.dimensions.values()
        ]
        levels = [
            {"shape": level.geo.shape, "factors": factors}
            for level, factors in zip(scene.levels, scene.factors, strict=True)
        ]
        about = {
            **self._describe_collection(request, scene), "bands": bands, "dimensions": axes, "levels": levels,
            "colours": scene.rgb_bands, "size": scene.shape, "source": scene.source,
            "channels": scene.channels, "own": _describe_own_grid(scene), "cells": self.settings.cell_count,
        }  # fmt: skip
        return self._json(request, about)

    def _describe_collection(self, request: Request, scene: Scene) -> dict[str, Any]:
        base = f"{_base_url(request)}/collections/{scene.id}"
        box = scene.geographic_bounds()
        about: dict[str, Any] = {
            "id": scene.id, "title": scene.title, "dataType": "map",
            "crs": scene.crs_name, "bounds": scene.bounds(), "tiles": view_set(scene),
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
        """The bounds of a collection, in its own CRS and in degrees."""
        scene = self._scene(request)
        box = scene.geographic_bounds()
        return self._json(request, {"bounds": scene.bounds(), "crs": scene.crs_name, "bbox": box})

    async def tilejson(self, request: Request) -> Response:
        """The TileJSON of a collection; its tiles get the query of this request."""
        scene, parameters = self._parse(request, SELECTION_PARAMETERS, STYLE_PARAMETERS, ("tms",))
        name = parameters.text("tms") or default_set(scene)
        query = str(request.url.query)
        url = f"{_base_url(request)}/collections/{scene.id}/tiles/{name}/{{z}}/{{x}}/{{y}}.png"
        return self._json(request, render_tilejson(scene, name, f"{url}?{query}" if query else url))

    async def tilesets(self, request: Request) -> Response:
        """The tilesets of a collection: one for each tile matrix set."""
        scene = self._scene(request)
        names = set_names() if scene.crs is not None else [PIXELS]
        return self._json(
            request, {"tilesets": [self._describe_tileset(request, scene, name) for name in names]}
        )

    async def tileset(self, request: Request) -> Response:
        """One tileset of a collection."""
        scene, name = self._scene(request), request.path_params["tms"]
        tile_matrices(scene, name)
        return self._json(request, self._describe_tileset(request, scene, name))

    def _describe_tileset(self, request: Request, scene: Scene, name: str) -> dict[str, Any]:
        base = _base_url(request)
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
        """The names of the colour maps, and by family those to choose among first."""
        swatches = {name: drawing.swatch(name) for names in drawing.FAMILIES.values() for name in names}
        known = {"colormaps": drawing.colour_map_names(), "families": drawing.FAMILIES, "swatches": swatches}
        return self._compressed(request, json.dumps(known).encode(), "application/json")

    async def colour_map(self, request: Request) -> Response:
        """The 256 colours of a colour map; with `steps`, of so many that differ."""
        parameters = Parameters(request.query_params.multi_items())
        parameters.check(("steps",))
        colours = drawing.stepped(drawing.colour_map(request.path_params["name"]), parse_steps(parameters))
        return self._json(request, {"colours": colours.tolist()})

    # Values.

    async def point(self, request: Request) -> Response:
        """The values of the cell at a place; null where it has none, and outside of the collection."""
        scene, parameters = self._parse(request, SELECTION_PARAMETERS, ("lon", "lat", "x", "y"))
        cell, selection = find_cell(scene, parameters), parse_selection(scene, parameters)
        if cell is None:
            names = [*selection.bands] if selection.expression is None else ["expression"]
            return self._json(request, {"values": dict.fromkeys(names), "row": None, "column": None})
        row, column = cell
        found = await self.maker.read_values(scene, selection, Area.of_cell(row, column).plan)
        values = {name: _plain_value(v[0, 0].item()) if ok[0, 0] else None for name, (v, ok) in found.items()}
        return self._json(request, {"values": values, "row": row, "column": column})

    async def series(self, request: Request) -> Response:
        """The values at a place, or the means of an area, along time or the dimension that `along` names.

        [] outside.
        """
        places = ("lon", "lat", "x", "y")
        scene, parameters = self._parse(request, ("bands",), places, AREA_PARAMETERS, ("along",))
        selection = parse_selection(scene, parameters)
        if len(selection.bands) != 1:
            raise Problem(400, f"{len(selection.bands)} bands are asked for; expected one for a series")
        (band,) = selection.bands.values()
        names = [dimension.name for dimension in scene.dimensions_of(band)]
        times = [name for name in names if name.lower() in ("time", "t")]
        along = parameters.text("along") or "".join((times or names)[:1])
        if along not in names:
            raise Problem(400, f"{band.name!r} has no dimension {along[:80]!r} to go along; it has {names}")
        dimension = scene.dimensions[along]
        is_area = "bbox" in parameters or "polygon" in parameters
        if is_area:
            area = find_area(scene, parameters, self.settings.cell_count // max(1, dimension.size))
        else:
            cell = find_cell(scene, parameters)
            area = None if cell is None else Area.of_cell(*cell)
        if area is None:
            nothing = {"along": along, "labels": (), "values": (), "band": band.name}
            return self._json(request, nothing)
        values, valid = await self.maker.read_series(scene, band, selection.indices, dimension, area)
        if is_area:
            values, valid = await asyncio.to_thread(means, values, valid, area.share)
        found = [
            _plain_value(v) if ok else None
            for v, ok in zip(values.ravel().tolist(), valid.ravel().tolist(), strict=True)
        ]
        document = {"along": along, "labels": dimension.labels, "values": found, "band": band.name}
        return self._json(request, {**document, "level": area.level})

    async def statistics(self, request: Request) -> Response:
        """Statistics of each band: of the cells in an area, else of the level that fits `size` pixels."""
        scene, parameters = self._parse(request, SELECTION_PARAMETERS, AREA_PARAMETERS, ("size",))
        selection = parse_selection(scene, parameters)
        is_area = "polygon" in parameters or ("bbox" in parameters and "size" not in parameters)
        if is_area:
            return self._json(request, await self._area_statistics(scene, selection, parameters))
        size = parameters.whole("size", 1, STATISTICS_SIZE, COARSE_SIZE)
        if "bbox" in parameters or size != COARSE_SIZE:
            is_box = "bbox" in parameters
            frame = bbox_frame(scene, parameters, size) if is_box else whole_frame(scene, size)
            plan = plan_frame(scene, frame, selection.sampling)
            values = await self.maker.read_values(scene, selection, plan)
        else:
            plan = self.maker.plan_coarse(scene, selection)
            values = await self.maker.read_coarse(scene, selection)
        look = self.maker.look(scene, selection)

        def make() -> dict[str, Any]:
            found = {name: statistics_of(*pair) for name, pair in values.items()}
            limits = [
                look.limits(*percentiles(*pair, PERCENTILES)) if found[name]["count"] else None
                for name, pair in values.items()
            ]
            return {"statistics": found, "limits": limits, "level": plan.level}

        return self._json(request, await asyncio.to_thread(make))

    async def _area_statistics(
        self, scene: Scene, selection: Selection, parameters: Parameters
    ) -> dict[str, Any]:
        """Statistics of the cells in an area, each weighed by its share, and the level that they are of."""
        names = [*selection.bands] if selection.expression is None else ["expression"]
        most = self.settings.cell_count // max(1, len(selection.bands))
        area = await asyncio.to_thread(find_area, scene, parameters, most)
        if area is None:
            return {"statistics": {name: {"count": 0} for name in names}, "level": None}
        values = await self.maker.read_values(scene, selection, area.plan)

        def make() -> dict[str, Any]:
            return {name: statistics_of(*pair, area.share) for name, pair in values.items()}

        found = await asyncio.to_thread(make)
        return {"statistics": found, "level": area.level, "exact": area.is_exact}

    async def expression(self, request: Request) -> Response:
        """The bands of an expression, or the problem why it is none: asked before its tiles are."""
        scene, parameters = self._parse(request, SELECTION_PARAMETERS)
        try:
            selection = parse_selection(scene, parameters)
        except Problem as problem:
            return self._json(request, {"problem": problem.detail})
        return self._json(request, {"bands": [band.name for band in selection.bands.values()]})

    # Pictures.

    async def preview(self, request: Request) -> Response:
        """A picture of a whole collection on its own grid."""
        scene, parameters = self._parse(request, SELECTION_PARAMETERS, STYLE_PARAMETERS, ("size",))
        frame = whole_frame(scene, parameters.whole("size", 1, self.settings.size, 1024))
        return await self._picture(request, scene, parameters, frame, request.path_params["format"])

    async def tile(self, request: Request) -> Response:
        """A tile, by its path."""
        scene, parameters = self._parse(request, SELECTION_PARAMETERS, STYLE_PARAMETERS, ("size", "f", "tms"))
        path = request.path_params
        return await self._tile(
            request, scene, parameters, path, path.get("format") or parameters.text("f", "png")
        )

    async def _tile(
        self, request: Request, scene: Scene, parameters: Parameters, path: Mapping[str, str], format: str
    ) -> Response:
        matrices = tile_matrices(scene, path["tms"])
        if path["z"] not in matrices:
            raise Problem(404, f"no tile matrix {path['z'][:80]!r}; there are {', '.join(matrices)}")
        matrix = matrices[path["z"]]
        row, column = (
            _parse_index(path[n], n, size) for n, size in zip("yx", matrix.matrix_shape, strict=True)
        )
        size = parameters.whole("size", 64, 1024, matrix.tile_shape[1])
        frame = tile_frame(scene, path["tms"], matrix, row, column, size)
        return await self._picture(request, scene, parameters, frame, format)

    async def window(self, request: Request) -> Response:
        """The window within `bbox`, on the collection's own grid; with `size`, in degrees."""
        scene, parameters = self._parse(request, SELECTION_PARAMETERS, STYLE_PARAMETERS, ("bbox", "size"))
        if "bbox" not in parameters:
            raise Problem(400, "bbox is missing; expected west, south, east, north")
        size = parameters.whole("size", 1, self.settings.size, self.settings.size)
        frame = bbox_frame(scene, parameters, size)
        if "size" not in parameters:
            frame = snap_to_cells(scene, frame, self.settings.cell_count)
        return await self._picture(request, scene, parameters, frame, request.path_params["format"])

    async def wmts(self, request: Request) -> Response:
        """The capabilities of the WMTS, or the tile that keys and values ask for."""
        words = {name.upper(): value for name, value in request.query_params.multi_items()}
        kind = words.get("REQUEST", "GetCapabilities").lower()
        if kind == "getcapabilities":
            content = render_capabilities(_base_url(request), self.scenes)
            return self._cacheable(request, content, "application/xml")
        if kind != "gettile":
            raise Problem(400, f"REQUEST is {words['REQUEST'][:80]!r}; expected GetCapabilities or GetTile")
        missing = [word for word in WMTS_KEYS if word not in words]
        if missing:
            raise Problem(400, f"{missing[0]} is missing; GetTile needs {', '.join(WMTS_KEYS)}")
        scene = self._scene_of(words["LAYER"])
        format = {kind: name for name, kind in drawing.FORMATS.items()}.get(words["FORMAT"])
        if format not in PICTURES or words.get("STYLE", STYLE) not in ("", STYLE):
            raise Problem(400, f"FORMAT, STYLE: expected image/png, image/jpeg or image/webp, and {STYLE}")
        own = (*WMTS_KEYS, "SERVICE", "REQUEST", "VERSION", "STYLE")
        pairs = [pair for pair in request.query_params.multi_items() if pair[0].upper() not in own]
        # Clients may write dimensions in any case.
        known = {name.upper(): name for name in scene.dimensions}
        parameters = Parameters((known.get(name.upper(), name), value) for name, value in pairs)
        parameters.check(SELECTION_PARAMETERS, STYLE_PARAMETERS, scene.dimensions)
        path = {"tms": words["TILEMATRIXSET"], "z": words["TILEMATRIX"]}
        path |= {"y": words["TILEROW"], "x": words["TILECOL"]}
        return await self._tile(request, scene, parameters, path, format)

    async def _picture(
        self, request: Request, scene: Scene, parameters: Parameters, frame: Frame, format: str
    ) -> Response:
        format = {"jpeg": "jpg"}.get(format, format)
        if format not in drawing.FORMATS:
            raise Problem(404, f"no format {format[:80]!r}; there are {', '.join(drawing.FORMATS)}")
        selection = parse_selection(scene, parameters)
        if format in ("npy", "tif"):
            plan = plan_frame(scene, frame, selection.sampling)
            measured = await self.maker.read_values(scene, selection, plan)
            if format == "npy":
                content = drawing.encode_npy([*measured.values()])
            else:
                content = await asyncio.to_thread(drawing.encode_tiff, measured, frame)
            return self._cacheable(request, content, drawing.FORMATS[format], plan.level)
        style = parse_style(parameters, selection)
        content, level = await self.maker.make(scene, selection, style, frame, format)
        return self._cacheable(request, content, drawing.FORMATS[format], level)

    # What all answers share.

    def _scene(self, request: Request) -> Scene:
        return self._scene_of(request.path_params["scene"])

    def _parse(self, request: Request, *known: Collection[str]) -> tuple[Scene, Parameters]:
        """The scene and the parameters of a request, which are `known` or dimensions of the scene."""
        scene, parameters = self._scene(request), Parameters(request.query_params.multi_items())
        parameters.check(*known, scene.dimensions)
        return scene, parameters

    def _scene_of(self, name: str) -> Scene:
        if name not in self.scenes:
            raise Problem(404, f"no collection {name[:80]!r}; see /collections")
        return self.scenes[name]

    def _json(self, request: Request, document: Mapping[str, Any]) -> Response:
        dump = partial(json.dumps, default=_plain_value, allow_nan=False, separators=(",", ":"))
        try:
            content = dump(document)
        except ValueError:
            # Documents of stores may state NaN, and statistics overflow: JSON has no such numbers.
            content = dump(_without_nonfinite(document))
        return self._cacheable(request, content.encode(), "application/json")

    def _compressed(self, request: Request, content: bytes, kind: str) -> Response:
        """An answer that is sent as gzip to who takes it."""
        takes_gzip = "gzip" in request.headers.get("accept-encoding", "")
        answer = self._cacheable(request, _gzipped(content) if takes_gzip else content, kind)
        answer.headers["Vary"] = "Accept-Encoding"
        if takes_gzip:
            answer.headers["Content-Encoding"] = "gzip"
        return answer

    def _cacheable(self, request: Request, content: bytes, kind: str, level: int | None = None) -> Response:
        tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": tag, "Cache-Control": f"public, max-age={self.settings.max_age}"}
        if level is not None:
            headers["Zstore-Level"] = str(level)
        known = request.headers.get("if-none-match", "")
        if any(word.strip().removeprefix("W/") in (tag, "*") for word in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)


def _describe_own_grid(scene: Scene) -> dict[str, Any] | None:
    """The tiles of a scene on its own grid, and its projection; None where the page cannot draw that."""
    view = native_view(scene)
    if scene.crs is not None and view is None:
        return None
    matrices = [*tile_matrices(scene, PIXELS if scene.crs is None else NATIVE).values()]
    cells = [matrix.cell_size for matrix in matrices]
    return {**(view or {}), "origin": matrices[0].origin, "cells": cells}


@lru_cache(8)
def _gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    await problem_answer(Problem(404, "no such path; see /api"))(scope, receive, send)


def _base_url(request: Request) -> str:
    url = request.url
    return f"{url.scheme}://{url.netloc}{request.scope.get('root_path', '')}".rstrip("/")


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _without_nonfinite(document: Any) -> Any:
    """A document with null for each number that is not finite."""
    if isinstance(document, Mapping):
        return {str(key): _without_nonfinite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_without_nonfinite(value) for value in document]
    return _plain_value(document)


def _hash_of(page: str, tag: str) -> str:
    content = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _parse_index(text: str, name: str, size: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and int(text) < size):
        raise Problem(404, f"{name} is {text[:80]!r}; this tile matrix has 0 to {size - 1}")
    return int(text)
