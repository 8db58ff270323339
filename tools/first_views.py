"""The first view of stores that other libraries made, as `zstore view` shows them: nothing is clicked.

    python tools/first_views.py [directory for the pictures; docs/views by default] [names]

Values are made up by formulas, over the land that the map's page has; xarray, zarr-python and rioxarray write
them. Needs zstore-serve, built with npm, and Chromium.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import rasterio.features
import rioxarray
import uvicorn
import xarray as xr
import zarr
from pictures import ROOT, heights
from PIL import Image
from shots import chromium
from websockets.sync.client import connect
from zstore_serve import router
from zstore_serve.vendored import read_vendored

SIZE, PHONE = (1200, 760), (390, 780)
SHOWN = 800
# What is shown on a phone, too.
ON_PHONE = "anomaly"
# Seconds until a page has to be drawn.
PATIENCE = 60
SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
QUALITY = 72
Numbers = np.ndarray[Any, np.dtype[Any]]


def land(step: float) -> Numbers:
    """Which cells of a global grid are land, rows from the north, columns from 180° west."""
    content = read_vendored("countries-110m.json")
    if content is None:
        raise SystemExit("zstore-serve was built without npm; its page has no land")
    topology = json.loads(content)
    scale, move = (np.array(topology["transform"][key]) for key in ("scale", "translate"))
    # Where a ring crosses the antimeridian it goes on beyond, and around the south pole it is closed there.
    arcs = [np.cumsum(np.array(arc), axis=0) * scale + move for arc in topology["arcs"]]

    def ring(numbers: list[int]) -> list[list[float]]:
        lines = [arcs[n] if n >= 0 else arcs[~n][::-1] for n in numbers]
        lon, lat = np.concatenate([lines[0], *(line[1:] for line in lines[1:])]).T
        lon = np.degrees(np.unwrap(np.radians(lon)))
        made = np.stack([lon, lat], axis=-1).tolist()
        is_around = abs(lon[0] - lon[-1]) > 180
        return [*made, [lon[-1], -90.0], [lon[0], -90.0], made[0]] if is_around else made

    shapes = []
    for part in topology["objects"]["land"]["geometries"]:
        polygons = [part["arcs"]] if part["type"] == "Polygon" else part["arcs"]
        shapes += [{"type": "Polygon", "coordinates": [ring(one) for one in polygon]} for polygon in polygons]
    rows, columns = round(180 / step), round(360 / step)
    place = rasterio.Affine(step, 0, -180, 0, -step, 90)
    made = np.zeros((rows, columns), bool)
    for turn in (-360, 0, 360):
        moved = place * rasterio.Affine.translation(turn / step, 0)
        made |= rasterio.features.rasterize(shapes, (rows, columns), transform=moved).astype(bool)
    return made


def waves(lon: Numbers, lat: Numbers, seed: int, octaves: int = 6, first: float = 2.0) -> Numbers:
    """Clouds of many lengths on the sphere, about from -1 to 1, the same every time."""
    chance = np.random.default_rng(seed)
    x, y = np.radians(lon), np.radians(lat)
    place = np.stack(np.broadcast_arrays(np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)))
    made = np.zeros(place.shape[1:])
    for octave in range(octaves):
        for _ in range(5):
            way = chance.normal(0, first * 1.9**octave, 3)
            turn = chance.random() * 2 * np.pi
            made += np.sin(np.tensordot(way, place, 1) + turn) / 1.75**octave
    return made / 3.2


def globe(step: float, west: float = -180.0) -> tuple[Numbers, Numbers, Numbers]:
    """(longitudes, latitudes, land) of a global grid that begins in the west or at Greenwich."""
    lon, lat = np.arange(west, west + 360, step) + step / 2, np.arange(90, -90, -step) - step / 2
    return lon, lat, np.roll(land(step), round((-180 - west) / step), axis=1)


def on_globe(lon: Numbers, lat: Numbers, names: tuple[str, str] = ("lat", "lon")) -> dict[str, Any]:
    """The coordinates of a grid of longitudes and latitudes, as CF has them."""
    y, x = names
    return {
        y: (y, lat, {"standard_name": "latitude", "units": "degrees_north"}),
        x: (x, lon, {"standard_name": "longitude", "units": "degrees_east"}),
    }


def warmth(lon: Numbers, lat: Numbers, ground: Numbers, seed: int = 1) -> Numbers:
    """Temperatures near the ground, in kelvins."""
    here = 301 - 46 * np.sin(np.radians(np.abs(lat[:, None] - 4))) ** 2
    return here + ground * (4 - np.abs(lat[:, None]) / 7) + 4 * waves(*np.meshgrid(lon, lat), seed)


def parcels(side: int) -> tuple[Numbers, Numbers, Numbers]:
    """(number of the parcel, shade of the soil, whether water flows) of fields beside a river."""
    y, x = np.mgrid[0:side, 0:side]
    bend = 28 * np.sin(y / 70) + 12 * np.sin(y / 23)
    turned = x * np.cos(0.3) + y * np.sin(0.3), y * np.cos(0.3) - x * np.sin(0.3)
    across = (turned[0] + 9 * np.sin(turned[1] / 60)) // 46
    number = (across * 37 + (turned[1] + across * 17) // 71 * 101).astype(int) % 997
    relief = heights(side) / 2800
    return number, relief, np.abs(x - side / 2 - bend) < 7 + 3 * np.sin(y / 40)


def sentinel(place: Path) -> None:
    """Bands as Sentinel-2 names them, in its own numbers, by xarray and rioxarray."""
    side = 900
    number, relief, river = parcels(side)
    chance = np.random.default_rng(5)
    crop = chance.random(997)[number]
    forest = (relief > 0.74) | (crop > 0.95)
    colours = {"B02": (250, 800, 220, 560), "B03": (700, 1050, 380, 640), "B04": (450, 1500, 260, 430)}
    made = {}
    for name, (green, soil, wood, water) in {**colours, "B08": (3900, 2100, 2600, 250)}.items():
        field = np.where(crop < 0.6, green + 400 * crop, soil * (0.6 + 1.5 * (crop - 0.6)))
        values = np.where(forest, wood, field)
        values = np.where(river, water, values) * (0.85 + 0.35 * relief) + chance.normal(0, 25, (side, side))
        made[name] = (("y", "x"), np.clip(values, 1, 10000).astype("u2"), {"_FillValue": 0})
    dataset = xr.Dataset(
        made, {"y": 5300000 - 10 * np.arange(side) - 5, "x": 600000 + 10 * np.arange(side) + 5.0}
    )
    dataset.rio.write_crs("EPSG:32632", inplace=True).to_zarr(place, zarr_format=2)


def landsat(place: Path) -> None:
    """The band of `examples/data`, by rioxarray."""
    (file,) = (ROOT / "examples" / "data").glob("*.tiff")
    band = rioxarray.open_rasterio(file).squeeze("band", drop=True).rename("B5")
    band.attrs["long_name"] = "near infrared, top of atmosphere reflectance"
    band.to_dataset().to_zarr(place, zarr_format=3)


def elevation(place: Path) -> None:
    """Mountains, by xarray and rioxarray."""
    values = heights(1024).astype("f4")
    dem = xr.Dataset(
        {"dem": (("y", "x"), values, {"standard_name": "surface_altitude", "units": "m"})},
        {"y": 5200000 - 30 * np.arange(1024) - 15.0, "x": 380000 + 30 * np.arange(1024) + 15.0},
    )
    dem.rio.write_crs("EPSG:32633", inplace=True).to_zarr(place, zarr_format=3)


CLASSES = {
    0: ("water", "4a7fb5"), 1: ("forest", "2f6b3a"), 2: ("grassland", "a9c46c"), 3: ("cropland", "e0c15c"),
    4: ("bare", "d8c7a5"), 5: ("built-up", "b5423c"), 6: ("snow_and_ice", "f2f6fa"),
}  # fmt: skip


def cover(place: Path) -> None:
    """Kinds of land, by xarray, with names and colours as CF 1.13 has them."""
    lon, lat, ground = globe(0.25)
    x, y = np.meshgrid(lon, lat)
    wet, cold = waves(x, y, 11) + 0.3 * np.cos(np.radians(6 * y)), np.abs(y) + 10 * waves(x, y, 12)
    made = np.select([wet > 0.25, wet > -0.1, wet > -0.3], [1, 2, 3], 4)
    made = np.where(cold > 68, 6, np.where((waves(x, y, 13, 8, 6) > 1.0) & (cold < 55), 5, made))
    said = {
        "flag_values": np.array([*CLASSES], "u1"), "long_name": "land cover",
        "flag_meanings": " ".join(name for name, _ in CLASSES.values()),
        "flag_colors": " ".join(f"#{colour}" for _, colour in CLASSES.values()),
    }  # fmt: skip
    values = (("lat", "lon"), np.where(ground, made, 0).astype("u1"), said)
    xr.Dataset({"cover": values}, on_globe(lon, lat)).to_zarr(place, zarr_format=3)


def hours(count: int) -> tuple[str, Numbers, dict[str, str]]:
    """Times of six hours each."""
    stated = {"standard_name": "time", "units": "hours since 2024-01-01", "calendar": "standard"}
    return "time", 6 * np.arange(count), stated


def reanalysis(place: Path) -> None:
    """Temperatures from 0° to 360°, packed, as reanalyses have them, by xarray."""
    lon, lat, ground = globe(0.5, 0.0)
    values = np.stack([warmth(lon, lat, ground, 1) + n for n in range(4)])
    packed = {"scale_factor": 0.002, "add_offset": 270.0, "dtype": "i2", "_FillValue": -32768}
    said = {"standard_name": "air_temperature", "long_name": "2 metre temperature", "units": "K"}
    coordinates = {**on_globe(lon, lat, ("latitude", "longitude")), "time": hours(4)}
    xr.Dataset({"t2m": (("time", "latitude", "longitude"), values, said)}, coordinates).to_zarr(
        place, zarr_format=2, encoding={"t2m": packed}
    )


def anomaly(place: Path) -> None:
    """Departures from a norm at sea, by xarray; the last month is not there yet."""
    lon, lat, ground = globe(1.0)
    x, y = np.meshgrid(lon, lat)
    tongue = 2.2 * np.exp(-((y / 7) ** 2)) * np.exp(-(((x + 115) / 38) ** 2))
    months = [np.where(ground, np.nan, tongue * n / 5 + 0.8 * waves(x, y, 20 + n)) for n in range(6)]
    months.append(np.full_like(months[0], np.nan))
    said = {"long_name": "sea surface temperature anomaly", "units": "K"}
    when = ("time", np.arange(7) * 30, {"standard_name": "time", "units": "days since 2023-07-01"})
    values = (("time", "lat", "lon"), np.stack(months).astype("f4"), said)
    xr.Dataset({"ssta": values}, {**on_globe(lon, lat), "time": when}).to_zarr(place, zarr_format=3)


def rain(place: Path) -> None:
    """Rates of rain, by xarray."""
    lon, lat, _ = globe(0.5)
    x, y = np.meshgrid(lon, lat)
    belts = 1.1 * np.exp(-((y - 6) ** 2) / 60) + 0.6 * np.exp(-((np.abs(y) - 48) ** 2) / 250)
    values = np.clip(9 * (belts + waves(x, y, 31, 7, 3) - 0.75), 0, None).astype("f4")
    said = {"standard_name": "precipitation_flux", "long_name": "rain", "units": "mm/day"}
    xr.Dataset({"pr": (("lat", "lon"), values, said)}, on_globe(lon, lat)).to_zarr(place, zarr_format=3)


def ice(place: Path) -> None:
    """Shares of sea ice around the north pole, by xarray and rioxarray."""
    from pyproj import Transformer

    step, side = 12500.0, 608
    x = y = (np.arange(side) + 0.5) * step - step * side / 2
    lon, lat = Transformer.from_crs(3413, 4326, always_xy=True).transform(*np.meshgrid(x, -y))
    ground = land(0.25)[np.clip(((90 - lat) * 4).astype(int), 0, 719), ((lon + 180) * 4).astype(int) % 1440]
    edge = 76 - 5 * np.cos(np.radians(lon - 20)) + 3 * waves(lon, lat, 41)
    values = np.where(ground | (lat < 45), np.nan, np.clip((lat - edge) / 4, 0, 1)).astype("f4")
    said = {"standard_name": "sea_ice_area_fraction", "units": "1"}
    made = xr.Dataset({"siconc": (("y", "x"), values, said)}, {"y": -y, "x": x})
    made.rio.write_crs("EPSG:3413", inplace=True).to_zarr(place, zarr_format=3)


def disk(place: Path) -> None:
    """Brightness as a geostationary satellite sees it, by zarr-python, placed as GOES's files are."""
    from pyproj import Transformer

    side, height = 1084, 35786023.0
    angle = (np.arange(side) + 0.5 - side / 2) * 0.151844 * 2 / side
    crs = f"+proj=geos +h={height} +lon_0=-75 +sweep=x +a=6378137 +b=6356752.31414"
    x, y = np.meshgrid(angle * height, -angle * height)
    lon, lat = Transformer.from_crs(crs, "OGC:CRS84", always_xy=True).transform(x, y)
    seen = np.isfinite(lon)
    lon, lat = np.where(seen, lon, 0), np.where(seen, lat, 0)
    ground = land(0.25)[np.clip(((90 - lat) * 4).astype(int), 0, 719), ((lon + 180) * 4).astype(int) % 1440]
    clouds = np.clip(0.9 * waves(lon, lat, 51, 8, 7) + 0.3 * np.cos(np.radians(5 * lat)) - 0.25, 0, 1)
    warm = 296 - 30 * np.sin(np.radians(lat)) ** 2 + 6 * ground
    values = np.where(seen, warm - (warm - 205) * clouds**1.5, np.nan)
    root = zarr.create_group(str(place), zarr_format=2)
    said = {
        "standard_name": "toa_brightness_temperature",
        "units": "K",
        "grid_mapping": "goes",
        "_ARRAY_DIMENSIONS": ["y", "x"],
    }
    band = root.create_array("CMI_C13", data=values.astype("f4"), chunks=(271, 271), fill_value=np.nan)
    band.attrs.update(said)
    goes = root.create_array("goes", shape=(), dtype="i4")
    goes.attrs.update({
        "grid_mapping_name": "geostationary", "perspective_point_height": height, "sweep_angle_axis": "x",
        "longitude_of_projection_origin": -75.0, "latitude_of_projection_origin": 0.0,
        "semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414, "_ARRAY_DIMENSIONS": [],
    })  # fmt: skip
    for name, values in (("x", angle), ("y", -angle)):
        axis = root.create_array(name, data=values)
        axis.attrs.update(
            {"standard_name": f"projection_{name}_coordinate", "units": "rad", "_ARRAY_DIMENSIONS": [name]}
        )


def cells(place: Path) -> None:
    """Cells under a microscope as OME-Zarr 0.5, with levels, by zarr-python."""
    side, chance = 1024, np.random.default_rng(61)
    y, x = np.mgrid[0:side, 0:side]
    image = np.zeros((2, side, side))
    for _ in range(70):
        row, column, long, wide, turn = (
            *chance.random(2) * side,
            *chance.uniform(18, 40, 2),
            chance.random() * 3,
        )
        across, down = (
            (x - column) * np.cos(turn) + (y - row) * np.sin(turn),
            (y - row) * np.cos(turn) - (x - column) * np.sin(turn),
        )
        far = np.hypot(across / long, down / wide)
        image[0] = np.maximum(image[0], np.clip(1.25 - far, 0, 0.4) * 2 * chance.uniform(0.5, 1))
        image[1] = np.maximum(image[1], 0.8 * np.exp(-((far - 1.7) ** 2) * 3) * chance.uniform(0.4, 1))
    image = image * 3000 + chance.poisson(60, image.shape)
    root = zarr.create_group(str(place), zarr_format=3)
    datasets = []
    for level in range(3):
        data = (
            image.reshape(2, side >> level, 1 << level, side >> level, 1 << level).mean((2, 4)).astype("u2")
        )
        root.create_array(str(level), data=data, chunks=(1, 256, 256), dimension_names=("c", "y", "x"))
        scale = [1.0, 0.325 * 2**level, 0.325 * 2**level]
        datasets.append(
            {"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]}
        )
    axes = [
        {"name": "c", "type": "channel"},
        *({"name": n, "type": "space", "unit": "micrometer"} for n in "yx"),
    ]
    channels = [
        {"label": "DAPI", "color": "0000FF", "active": True},
        {"label": "GFP", "color": "00FF00", "active": True},
    ]
    image_said = {"name": "cells", "axes": axes, "datasets": datasets}
    root.attrs["ome"] = {"version": "0.5", "multiscales": [image_said], "omero": {"channels": channels}}


def healpix(place: Path) -> None:
    """Water in the air on HEALPix, by xarray."""
    import healpix as hp

    sides = 128
    lon, lat = hp.pix2ang(sides, np.arange(12 * sides**2), nest=True, lonlat=True)
    lon = (lon + 180) % 360 - 180
    values = 52 * np.cos(np.radians(lat)) ** 3 * (0.75 + 0.3 * waves(lon, lat, 71))
    said = {"long_name": "column water vapour", "units": "kg m-2", "grid_mapping": "crs"}
    grid = {"grid_mapping_name": "healpix", "refinement_level": 7, "indexing_scheme": "nested"}
    made = {"prw": ("cell", np.clip(values, 0, None).astype("f4"), said)}
    xr.Dataset(made, {"crs": ((), 0, grid)}).to_zarr(place, zarr_format=3)


def model(place: Path) -> None:
    """An ensemble's winds, of member, time, level, latitude and longitude, by xarray."""
    lon, lat, _ = globe(1.5)
    x, y = np.meshgrid(lon, lat)
    jet = 38 * np.exp(-((np.abs(y) - 42) ** 2) / 180)
    winds = [[jet + 14 * waves(x, y, 80 + n + m) for n in range(3)] for m in range(2)]
    values = np.array(winds)[:, :, None] * np.array([1.0, 0.7, 0.3])[:, None, None]
    coordinates = {
        **on_globe(lon, lat), "time": hours(3), "member": ("member", [1, 2]),
        "level": ("level", [250, 500, 850], {"standard_name": "air_pressure", "units": "hPa"}),
    }  # fmt: skip
    said = {"standard_name": "eastward_wind", "units": "m s-1"}
    names = ("member", "time", "level", "lat", "lon")
    xr.Dataset({"ua": (names, values.astype("f4"), said)}, coordinates).to_zarr(place, zarr_format=3)


STORES: dict[str, Callable[[Path], None]] = {
    "sentinel-2": sentinel, "landsat": landsat, "elevation": elevation, "land-cover": cover,
    "temperature": reanalysis, "anomaly": anomaly, "rain": rain, "sea-ice": ice, "geostationary": disk,
    "cells": cells, "healpix": healpix, "ensemble": model,
}  # fmt: skip


@contextmanager
def served(application: Any) -> Iterator[str]:
    """The address of an application that this process serves."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


class Page:
    """A page of a browser, driven through its debugging port."""

    def __init__(self, browser: str, folder: Path, options: tuple[str, ...] = ("--disable-gpu",)) -> None:
        line = [browser, "--headless", "--no-sandbox", *options, "--remote-debugging-port=0"]
        self.process = subprocess.Popen(
            [*line, f"--user-data-dir={folder}"], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        address = next(each.split()[-1] for each in self.process.stderr if each.startswith("DevTools"))
        port = address.split("/")[2]
        pages = json.load(urlopen(f"http://{port}/json/list"))
        target = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self.socket, self.count, self.said = connect(target, max_size=1 << 26), 0, list[str]()
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(SIZE)

    def resize(self, size: tuple[int, int]) -> None:
        """Give the window a size; that of a phone makes it one."""
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.call("Emulation.setDeviceMetricsOverride", **screen)

    def call(self, method: str, **words: Any) -> Any:
        """The answer of the browser; what a page says meanwhile is kept."""
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": words}))
        while True:
            told = json.loads(self.socket.recv(PATIENCE))
            if told.get("id") == self.count:
                return told["result"]
            if told.get("method") in (
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ):
                self.said.append(json.dumps(told["params"]))

    def shoot(self, address: str) -> bytes:
        """The page as PNG, when its map is drawn and asks for nothing more."""
        self.call("Page.navigate", url=address)
        waits = """new Promise((done) => { const wait = setInterval(() => {
          if (!document.body.dataset.drawn || !layer || !layer.getSource()) return;
          clearInterval(wait);
          map.once('rendercomplete', () => setTimeout(done, 600));
          map.render();
        }, 400); })"""
        # The script that a wait is for begins a moment after the page is there.
        time.sleep(1)
        self.call("Runtime.evaluate", expression=waits, awaitPromise=True)
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End the browser."""
        self.socket.close()
        self.process.terminate()
        self.process.wait()


def keep(picture: bytes, file: Path) -> None:
    """Write a page's picture, of a wide window smaller than it was."""
    shown = Image.open(io.BytesIO(picture)).convert("RGB")
    if shown.width > SHOWN:
        height = round(SHOWN * shown.height / shown.width)
        shown = shown.resize((SHOWN, height), Image.Resampling.LANCZOS)
    shown.save(file, quality=QUALITY, method=6)
    print(file, flush=True)


def main(target: Path, names: list[str]) -> int:
    """Take the pictures; how many lines the pages have said on the console."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as profile:
        page = Page(chromium(), Path(profile))
        try:
            for name in names:
                place = Path(made) / f"{name}.zarr"
                STORES[name](place)
                with served(router(place)) as address:
                    keep(page.shoot(address), target / f"{name}.webp")
                    if name == ON_PHONE:
                        page.resize(PHONE)
                        keep(page.shoot(address), target / "phone.webp")
                        page.resize(SIZE)
        finally:
            page.close()
    print(*page.said, sep="\n")
    return len(page.said)


if __name__ == "__main__":
    folder, *chosen = sys.argv[1:] or [str(ROOT / "docs" / "views")]
    raise SystemExit(min(1, main(Path(folder), chosen or [*STORES])))
