"""The gallery's stores as titiler's viewer and carbonplan's zarr-layer show them, beside `zstore view`.

    python tools/viewers.py PYTHON [directory for the pictures; docs/views by default] [names]

PYTHON is an interpreter that has `titiler.xarray[full]`, of which the version is printed; zarr-layer, and
what both viewers load from elsewhere, come from npm. Both are told the variable, the item of time that zstore
chooses, limits (the percentiles 2 and 98) and a colour map, for neither chooses any. titiler's base maps are
of servers that are not asked; zarr-layer has no page of its own, so the one here draws borders over it.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from first_views import QUALITY, SIZE, STORES, Page, served
from pictures import ROOT
from PIL import Image
from shots import chromium
from zstore_serve import router
from zstore_serve.drawing import colour_map
from zstore_serve.vendored import read_vendored

# The width of each of the three panels, in pixels, and the seconds that another viewer has for its picture.
PANEL, WAIT = 480, 9
NPM = (
    "@carbonplan/zarr-layer@0.5.0", "maplibre-gl@5.24.1", "topojson-client@3.1.0", "esbuild@0.28.2",
    "leaflet@1.9.4", "proj4@2.3.14", "proj4leaflet@1.0.2",
)  # fmt: skip
FILES = {
    "leaflet/dist/leaflet.js": "leaflet.js", "leaflet/dist/leaflet.css": "leaflet.css",
    "proj4/dist/proj4.js": "proj4.js", "proj4leaflet/src/proj4leaflet.js": "proj4leaflet.js",
    "maplibre-gl/dist/maplibre-gl.css": "maplibre-gl.css",
}  # fmt: skip
# Of each store the variable and the item of time; for titiler the items of other dimensions; for zarr-layer
# the CRS and the version of Zarr.
UTM = "+proj=utm +datum=WGS84 +units=m +zone="
GEOS = "+proj=geos +h=35786023 +lon_0=-75 +sweep=x +a=6378137 +b=6356752.31414"
VARIABLES: dict[str, dict[str, Any]] = {
    "sentinel-2": {"variable": "B04", "proj4": f"{UTM}32", "zarrVersion": 2},
    "landsat": {"variable": "B5", "proj4": f"{UTM}22"},
    "elevation": {"variable": "dem", "proj4": f"{UTM}33"},
    "land-cover": {"variable": "cover"},
    "temperature": {"variable": "t2m", "item": 3, "zarrVersion": 2},
    "anomaly": {"variable": "ssta", "item": 5},
    "rain": {"variable": "pr"},
    "sea-ice": {"variable": "siconc", "proj4": "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84"},
    "geostationary": {"variable": "CMI_C13", "proj4": GEOS, "zarrVersion": 2},
    "cells": {"variable": "0"},
    "healpix": {"variable": "prw"},
    "ensemble": {"variable": "ua", "item": 2, "titiler": "&sel=member=1&sel=level=250"},
}
LAYER = """
import * as maplibregl from 'maplibre-gl';
import { ZarrLayer } from '@carbonplan/zarr-layer';
import { mesh } from 'topojson-client';
window.start = async ({box, ...options}) => {
  const atlas = await (await fetch('files/countries.json')).json(), lines = [];
  for (const line of mesh(atlas, atlas.objects.countries).coordinates)
    line.slice(1).forEach((end, n) => Math.abs(end[0] - line[n][0]) < 180 && lines.push([line[n], end]));
  const borders = {type: 'geojson', data: {type: 'MultiLineString', coordinates: lines}};
  const layers = [
    {id: 'ground', type: 'background', paint: {'background-color': '#1b1e23'}},
    {id: 'borders', type: 'line', source: 'borders', paint: {'line-color': '#ebebec', 'line-width': 0.7}},
  ];
  const style = {version: 8, sources: {borders}, layers}, more = {attributionControl: false, bounds: box};
  const map = new maplibregl.Map({container: 'map', style, fitBoundsOptions: {padding: 30}, ...more});
  map.on('load', () => map.addLayer(new ZarrLayer({id: 'zarr', ...options}), 'borders'));
};
"""
SERVER = """
import re, sys
import titiler.xarray, uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles
from titiler.core.errors import DEFAULT_STATUS_CODES, add_exception_handlers
from titiler.xarray.factory import TilerFactory

application = FastAPI()
application.include_router(TilerFactory(router_prefix='/md').router, prefix='/md')
add_exception_handlers(application, DEFAULT_STATUS_CODES)

@application.middleware('http')
async def own(request, ask):
    answer = await ask(request)
    if not request.url.path.endswith('map.html'):
        return answer
    page = b''.join([part async for part in answer.body_iterator]).decode()
    page = re.sub(r'https://unpkg.com/[^"]*/', '/files/', page)
    return HTMLResponse(re.sub(r' integrity="[^"]*"| crossorigin(="[^"]*")?', '', page))

@application.get('/layer')
def layer(options: str):
    style = '<link rel=stylesheet href=files/maplibre-gl.css><style>#map{position:absolute;inset:0}</style>'
    script = f'<script src=files/layer.js></script><script>start({options})</script>'
    return HTMLResponse(f'<!doctype html>{style}<div id=map></div>{script}')

application.mount('/files', StaticFiles(directory=sys.argv[1]))
application.mount('/stores', StaticFiles(directory=sys.argv[2]))
server = uvicorn.Server(uvicorn.Config(application, port=0, log_level='error'))
import asyncio

async def main():
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.02)
    print(server.servers[0].sockets[0].getsockname()[1], titiler.xarray.__version__, flush=True)
    await task

asyncio.run(main())
"""


def bundle(place: Path) -> None:
    """Take what both viewers need from npm, and make one script of zarr-layer's page."""
    subprocess.run(["npm", "install", "--silent", "--prefix", place, *NPM], check=True)
    (place / "layer.js").write_text(LAYER)
    line = [
        place / "node_modules/.bin/esbuild",
        "layer.js",
        "--bundle",
        "--format=iife",
        "--outfile=files/layer.js",
    ]
    subprocess.run([*line, "--log-level=error"], check=True, cwd=place)
    for source, name in FILES.items():
        (place / "files" / name).write_bytes((place / "node_modules" / source).read_bytes())
    countries = read_vendored("countries-110m.json")
    assert countries is not None
    (place / "files" / "countries.json").write_bytes(countries)


@contextmanager
def other_viewers(python: str, files: Path, stores: Path) -> Iterator[str]:
    """The address of titiler and of zarr-layer's page."""
    with subprocess.Popen(
        [python, "-c", SERVER, files, stores], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            port, version = process.stdout.readline().split()
            print(f"titiler.xarray {version}, {NPM[0]}", flush=True)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def told(address: str, name: str) -> tuple[list[float], list[float], list[float]]:
    """(bounds in degrees, bounds in the CRS, limits) of a store, as zstore's server has them."""
    (scene,) = json.load(urlopen(f"{address}collections"))["collections"]
    item = VARIABLES[name].get("item")
    words = "bands=1" + ("" if item is None else f"&time=@{item}")
    found = json.load(urlopen(f"{address}collections/{scene['id']}/statistics?{words}"))["statistics"]
    (values,) = found.values()
    west, south, east, north = scene.get("extent", {"spatial": {"bbox": [[0, 0, 9, 9]]}})["spatial"]["bbox"][
        0
    ]
    box = [west, max(-80, south), min(east, west + 350), min(83, north)]
    return box, scene["bounds"], [values["percentile_2"], values["percentile_98"]]


def addresses(
    base: str, place: Path, box: list[float], bounds: list[float], limits: list[float]
) -> tuple[str, str]:
    """The pages of titiler's viewer and of zarr-layer that show a store."""
    said = VARIABLES[place.stem]
    item, variable = said.get("item"), said["variable"]
    is_plain = place.stem in ("sentinel-2", "landsat")
    words = f"rescale={limits[0]},{limits[1]}&colormap_name={'gray' if is_plain else 'viridis'}"
    words += said.get("titiler", "") + ("" if item is None else f"&bidx={item + 1}")
    titiler = f"{base}/md/WebMercatorQuad/map.html?url={quote(str(place))}&variable={variable}&{words}"
    colours = colour_map("grey" if is_plain else "viridis")[::15, :3]
    options = {
        "source": f"{base}/stores/{place.name}", "variable": variable, "clim": limits,
        "colormap": [f"#{bytes(colour).hex()}" for colour in colours], "box": [box[:2], box[2:]],
        "zarrVersion": said.get("zarrVersion", 3),
        "selector": {} if item is None else {"time": {"selected": item, "type": "index"}},
    }  # fmt: skip
    placed = {"proj4": said["proj4"], "bounds": bounds} if "proj4" in said else {}
    layer = json.dumps({**options, **placed})
    return titiler, f"{base}/layer?options={quote(layer)}"


def still(page: Page, address: str) -> bytes:
    """Another viewer's page as PNG, some seconds after it was asked for."""
    page.call("Page.navigate", url=address)
    time.sleep(WAIT)
    return base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"])


def main(python: str, target: Path, names: list[str]) -> None:
    """Take the pictures, three side by side for each store."""
    height = round(PANEL * SIZE[1] / SIZE[0])
    with (
        tempfile.TemporaryDirectory() as made,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
    ):
        files, stores = Path(made) / "npm", Path(made) / "stores"
        stores.mkdir()
        bundle(files)
        page = Page(chromium(), Path(profile), ("--use-angle=swiftshader", "--enable-unsafe-swiftshader"))
        with other_viewers(python, files / "files", stores) as base:
            for name in names:
                place = stores / f"{name}.zarr"
                STORES[name](place)
                with served(router(place)) as address:
                    shown = [page.shoot(address)]
                    others = addresses(base, place, *told(address, name))
                shown += [still(page, other) for other in others]
                strip = Image.new("RGB", (3 * PANEL + 8, height), "white")
                for number, picture in enumerate(shown):
                    panel = Image.open(io.BytesIO(picture)).convert("RGB")
                    panel = panel.resize((PANEL, height), Image.Resampling.LANCZOS)
                    strip.paste(panel, (number * (PANEL + 4), 0))
                strip.save(target / f"beside-{name}.webp", quality=QUALITY, method=6)
                print(target / f"beside-{name}.webp", flush=True)
        page.close()


if __name__ == "__main__":
    interpreter, *more = sys.argv[1:]
    folder, *chosen = more or [str(ROOT / "docs" / "views")]
    main(interpreter, Path(folder), chosen or [*VARIABLES])
