"""The page in headless Chromium, driven through its debugging port: colours, controls, links, no errors."""

from __future__ import annotations

import base64
import importlib.resources
import io
import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

if not entry_points(group="zstore", name="serve"):
    pytest.skip("zstore-serve is not installed, so it has no entry point", allow_module_level=True)
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
sockets = pytest.importorskip("websockets.sync.client", reason="Chromium is driven through websockets")

from PIL import Image  # noqa: E402
from zstore_serve import router  # noqa: E402
from zstore_serve.pictures import Settings  # noqa: E402
from zstore_serve.service import VENDOR  # noqa: E402
from zstore_serve.vendored import read_vendored  # noqa: E402

import zstore  # noqa: E402
from zstore.geo.conventions.base import Affine  # noqa: E402
from zstore.geo.conventions.crs import Crs  # noqa: E402

from .applications import listening, write  # noqa: E402

SIZE = (1000, 700)
SCREEN = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = os.environ.get("ZSTORE_BROWSER") or shutil.which(name)
        if found:
            return found
    pytest.skip("Chromium is not installed (Debian's package chromium has it)")


class Browser:
    """One page of a Chromium."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.count, self.said = 0, list[str]()
        self.refused = list[str]()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", **SCREEN)

    def call(self, method: str, **options: Any) -> Any:
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": options}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("method") in (
                "Runtime.exceptionThrown",
                "Runtime.consoleAPICalled",
                "Log.entryAdded",
            ):
                self.said.append(json.dumps(message["params"])[:1500])
            if message.get("method") == "Network.responseReceived":
                response = message["params"]["response"]
                if response["status"] >= 400:
                    self.refused.append(f"{response['status']} {response['url']}")
            if message.get("id") == self.count:
                assert "error" not in message, message
                return message["result"]

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, code: str) -> None:
        """Until an expression is true."""
        for _ in range(600):
            if self.run(code):
                return
            time.sleep(0.05)
        raise AssertionError(f"{code} never came true; {self.run('document.body.innerText')}; {self.said}")

    def open(self, address: str) -> None:
        self.leave()
        self.call("Page.navigate", url=address)
        self.wait(
            "document.body && Number(document.body.dataset.drawn) > 0 && typeof layer === 'object' "
            "&& !!layer.getSource()"
        )
        self.settle()

    def settle(self) -> None:
        """Until nothing is under way, and what was asked for is drawn."""
        self.wait("typeof isBusy === 'undefined' || !isBusy()")
        self.run("new Promise(done => { map.once('rendercomplete', () => done()); map.render(); })")

    def leave(self) -> None:
        """Ends the page, and with it what it may still ask for, before its server does."""
        self.call("Page.navigate", url="about:blank")

    def change(self, id: str, value: str) -> None:
        self.run(f"(e => {{ e.value = {json.dumps(value)}; (e.onchange || e.oninput)(); }})(at({id!r}))")
        self.settle()

    def slide(self, dimension: str, value: int, side: str = "dimensions") -> None:
        name = f"[data-dimension={dimension}][data-side={side}]"
        self.run(f"(e => {{ e.value = {value}; e.oninput(); }})(document.querySelector({name!r}))")
        self.settle()

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def drag(self, *places: tuple[float, float]) -> None:
        kinds = ["mousePressed", *["mouseMoved"] * (len(places) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*places, places[-1]], strict=True):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        self.settle()

    def picture(self, keep: Path | None = None) -> np.ndarray:
        content = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if keep is not None:
            keep.write_bytes(content)
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)

    def at(self, lon: float, lat: float) -> list[float]:
        """The coordinate of the map at a place in degrees."""
        return self.run(f"ol.proj.fromLonLat([{lon}, {lat}], map.getView().getProjection())")

    def pixel(self, coordinate: list[float]) -> list[float]:
        """Where in the window a coordinate of the map is."""
        return self.run(f"map.getPixelFromCoordinate({coordinate})")

    def click(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def microscope(place: Path) -> None:
    """An image of two channels and three planes as OME-Zarr, in levels; bright at the top left."""
    planes = np.zeros((2, 3, 500, 700), "u2")
    planes[0] = (np.arange(3) * 100 + 50)[:, None, None]
    planes[1, :, :120, :160] = 250
    group = zstore.create_group(place)
    names = ("c", "z", "y", "x")
    datasets = []
    for level in range(3):
        step = 2**level
        group.create_array(
            str(level), data=planes[:, :, ::step, ::step], chunks=(1, 1, 128, 128), dimension_names=names
        )
        scale = [1.0, 2.0, 0.5 * step, 0.5 * step]
        datasets.append({
            "path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]
        })  # fmt: skip
    axes = [{"name": name, "type": "channel" if name == "c" else "space"} for name in names]
    channels = [{"label": "DAPI", "color": "0000FF"}, {"label": "GFP", "color": "00FF00"}]
    images = [{"name": "cells", "axes": axes, "datasets": datasets}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": images, "omero": {"channels": channels}}


# Meteosat's place and grid mapping.
SATELLITE = {
    "grid_mapping_name": "geostationary", "perspective_point_height": 35785831.0, "sweep_angle_axis": "y",
    "longitude_of_projection_origin": 9.5, "latitude_of_projection_origin": 0.0,
    "semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414,
}  # fmt: skip


def disk(place: Path, side: int) -> Crs:
    """The disk of the Earth from a satellite in so many rows: dark in the west, bright in the east."""
    crs, cell = Crs.from_user(SATELLITE), 1.1e7 / side
    y, x = (np.indices((side, side)) + 0.5 - side / 2) * cell
    seen = np.isfinite(crs.transform(Crs.from_user("OGC:CRS84"), x, -y)[0])
    values = np.where(seen, np.where(x < 0, 10.0, 90.0), np.nan).astype("f4")
    write(place, values, crs, Affine(cell, 0, -5.5e6, 0, -cell, 5.5e6))
    return crs


@contextmanager
def visited(browser: Browser, *sources: Path) -> Iterator[str]:
    """The address of a server of these stores, which the page leaves before it ends."""
    with listening(router(*sources)) as address:
        try:
            yield address
        finally:
            browser.leave()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    """A server with a scene of each kind."""
    if any(read_vendored(name) is None for name in VENDOR):
        pytest.skip("zstore-serve was built without OpenLayers (npm has it)")
    columns = np.indices((180, 360))[1]
    write(
        place / "globe.zarr",
        np.where(columns < 180, 10.0, 90.0).astype("f4"),
        "OGC:CRS84",
        Affine(1, 0, 0, 0, -1, 90),
        ("lat", "lon"),
    )
    times = np.stack([np.full((60, 80), 10 * n + 5, "u1") for n in range(4)])
    write(
        place / "times.zarr",
        times,
        "EPSG:32632",
        Affine(1000.0, 0, 480000.0, 0, -1000.0, 5500000.0),
        ("time", "y", "x"),
    )
    zstore.open_group(place / "times.zarr", mode="a").create_array(
        "time",
        data=np.arange(4),
        dimension_names=("time",),
        attributes={"units": "days since 2020-01-01", "standard_name": "time"},
    )
    kinds = np.where(columns[:60, :80] < 40, 1, 2).astype("u1")
    write(
        place / "kinds.zarr", kinds, "EPSG:32632", Affine(1000.0, 0, 480000.0, 0, -1000.0, 5500000.0),
        ("y", "x"),
        flag_values=(1, 2), flag_meanings=("wood", "water"),
        attributes={"color_table": {"1": [10, 120, 30, 255], "2": [20, 60, 200, 255]}},
    )  # fmt: skip
    stack = np.stack([np.full((400, 600), n * 20 + 40, "u1") for n in range(3)])
    zstore.create_group(place / "stack.zarr").create_array(
        "v", data=stack, chunks=(1, 128, 128), dimension_names=("z", "y", "x")
    )
    microscope(place / "cells.zarr")
    cap = np.where(columns[:80, :80] < 40, 10.0, 90.0).astype("f4")
    write(place / "cap.zarr", cap, "EPSG:3413", Affine(1e5, 0, -4e6, 0, -1e5, 4e6))
    disk(place / "disk.zarr", 110)
    names = ("globe", "times", "kinds", "stack", "cells", "cap", "disk")
    with listening(router(*(place / f"{name}.zarr" for name in names))) as found:
        yield found


def page_of(process: subprocess.Popen[bytes], told: Path) -> str:
    """The address of the first page of a Chromium that begins, and tells its port in a file."""
    for _ in range(1200):
        assert process.poll() is None, f"Chromium ended with {process.returncode}"
        if told.exists() and told.read_text().count("\n"):
            pages = json.load(urlopen(f"http://127.0.0.1:{told.read_text().split()[0]}/json/list"))
            if found := [page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"]:
                return str(found[0])
        time.sleep(0.05)
    raise AssertionError("Chromium has shown no page within a minute")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, address: str) -> Iterator[Browser]:
    place = tmp_path_factory.mktemp("chromium")
    words = [
        chromium(), "--headless", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={place}",
        "--disable-gpu", "--disable-background-networking", "--no-first-run", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with sockets.connect(page_of(process, place / "DevToolsActivePort"), max_size=1 << 26) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the picture of a test goes: below ZSTORE_SCREENSHOTS, to be looked at."""
    folder = Path(os.environ.get("ZSTORE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{request.node.name}.png"


@pytest.fixture(autouse=True)
def silent(browser: Browser) -> Iterator[None]:
    browser.said.clear()
    yield
    assert browser.said == []


def colour_at(browser: Browser, coordinate: list[float], keep: Path | None = None) -> list[int]:
    x, y = browser.pixel(coordinate)
    return browser.picture(keep)[round(y), round(x)].tolist()


def test_a_field_from_0_to_360_lies_where_it_should(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=globe.zarr&low=0&high=100&view=0,0,40000")
    browser.change("colormap", "viridis")
    import cmap

    lut = np.rint(cmap.Colormap("viridis").lut(256) * 255)[:, :3]
    for lon, value in ((-100, 90), (-33, 90), (33, 10), (100, 10)):
        x, y = browser.at(lon, -58)
        assert np.abs(np.array(colour_at(browser, [x, y], kept)) - lut[int(value * 2.55 + 0.5)]).max() <= 3, (
            lon
        )
    assert browser.run("at('problem').textContent") == ""


def test_time_is_slid_clicked_and_kept_in_the_link(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=51&kind=one")
    middle = browser.run("map.getView().getCenter()")
    assert colour_at(browser, middle) == [25, 25, 25]
    browser.slide("time", 3)
    assert colour_at(browser, middle) == [175, 175, 175]
    assert "2020-01-04" in browser.run("document.querySelector('#dimensions output').textContent")
    date = "document.querySelector('#dimensions [type=date]')"
    for day, item in (("2020-01-02", 1), ("2020-01-04", 3)):
        browser.run(f"(e => {{ e.value = '{day}'; e.onchange(); }})({date})")
        assert browser.run("chosen.time") == item
    # Of days that no browser knows, there is no calendar.
    days = ["2020-02-28", "2020-02-29", "2020-02-30"]
    dated = [browser.run(f"isDated({{is_time: true, labels: {days[:count]}}})") for count in (2, 3)]
    assert dated == [True, False]
    browser.settle()
    browser.click(*browser.pixel(middle))
    browser.wait("at('chart').style.display === 'block' && at('values').textContent.includes('35')")
    assert browser.run("document.querySelectorAll('#chart path').length") == 1
    browser.picture(kept)
    link = browser.run("location.href")
    assert "%40time=3" in link
    browser.open(link)
    assert colour_at(browser, middle) == [175, 175, 175]
    assert browser.run("graticule.getVisible()")
    browser.run("at('lines').click()")
    browser.open(browser.run("location.href"))
    assert not browser.run("graticule.getVisible()") and not browser.run("at('lines').checked")
    assert browser.run("map.getView().getCenter()") == pytest.approx(middle)


def test_the_legend_is_dragged_and_stepped(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=50&kind=one")
    x, y, width = browser.run("(b => [b.left, b.top + 5, b.width])(at('legend').getBoundingClientRect())")
    browser.drag(*((x + part * width, y) for part in (0.9, 0.6, 0.4)))
    assert float(browser.run("at('high').value")) == pytest.approx(25, abs=0.5)
    middle = browser.run("map.getView().getCenter()")
    assert colour_at(browser, middle)[0] == pytest.approx(51, abs=2)
    # Steps of colour lie between round values: of 2 to 24, the value 5 is in the second of five.
    browser.change("low", "2")
    browser.change("high", "24")
    browser.run("at('stepped').click()")
    browser.settle()
    assert browser.run("range()") == {"low": 0, "high": 25, "steps": 5}
    assert colour_at(browser, middle, kept) == [255 // 4] * 3
    ticks = browser.run("[...at('ticks').querySelectorAll('text')].map(e => e.textContent).join()")
    assert ticks == "0,5,10,15,20,25" and "stepped=1" in browser.run("location.href")


def test_categories_have_their_colours_and_names(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=kinds.zarr")
    for lon, colour in ((9.1, [10, 120, 30]), (9.45, [20, 60, 200])):
        assert colour_at(browser, browser.at(lon, 49.4), kept) == colour
    assert browser.run("at('categories').innerText").split() == ["1", "wood", "2", "water"]


def test_pixels_without_a_place(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=stack.zarr&low=0&high=255")
    assert colour_at(browser, [300, -200]) == [40, 40, 40]
    browser.slide("z", 2)
    assert colour_at(browser, [300, -200], kept) == [80, 80, 80]
    outside = colour_at(browser, [300, 30])
    assert outside != [80, 80, 80]
    browser.click(*browser.pixel([300.5, -200.5]))
    browser.wait("at('values').textContent.includes('80')")


def test_a_microscope_stack_lies_as_it_was_seen(browser: Browser, address: str, kept: Path) -> None:
    # The first view has all channels, each in its colour.
    browser.open(f"{address}#scene=cells.zarr")
    assert browser.run("[kindOf(), at('categories').innerText].join()").split() == ["mix,", "DAPI", "GFP"]
    assert browser.run("at('legend').hidden")
    bright, dark = colour_at(browser, [40, -40], kept), colour_at(browser, [400, -400])
    assert bright[0] == 0 and bright[1] == 255 and dark[:2] == [0, 0]
    browser.open(f"{address}#scene=cells.zarr&kind=one&low=0&high=255&band=GFP")
    assert browser.run("[...at('band').options].map(o => o.value).join()") == "DAPI,GFP"
    assert colour_at(browser, [40, -40], kept) == [250] * 3
    # In tiles with transparent pixels the darkest of 256 steps is drawn as the next.
    assert max(*colour_at(browser, [400, -400]), *colour_at(browser, [40, -400])) <= 1
    browser.change("band", "DAPI")
    browser.change("low", "0")
    browser.change("high", "255")
    browser.slide("z", 2)
    assert colour_at(browser, [400, -400]) == [250] * 3
    browser.run("map.getView().setResolution(4)")
    browser.settle()
    browser.slide("z", 1)
    assert colour_at(browser, [400, -400]) == [150] * 3
    assert browser.run("at('problem').textContent") == ""


def test_two_times_are_swiped(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=51&kind=one")
    browser.change("beside", "times.zarr")
    browser.slide("time", 3, "besides")
    middle = browser.run("map.getView().getCenter()")
    _, y = browser.pixel(middle)
    at = browser.run("beside.part * map.getSize()[0]")
    left, right = (browser.picture(kept)[round(y), round(at) + off].tolist() for off in (-80, 80))
    assert (left, right) == ([25] * 3, [175] * 3)
    browser.drag((at, y), (at - 60, y), (at - 120, y))
    shown = browser.picture()
    assert [shown[round(y), round(at) + off].tolist() for off in (-160, -80)] == [[25] * 3, [175] * 3]
    browser.click(at - 80, y)
    browser.wait("at('chart').style.display === 'block' && at('values').textContent.endsWith(': 35')")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=at - 180, y=y)
    browser.wait("at('values').textContent.endsWith(': 5')")
    part = browser.run("beside.part")
    browser.run("at('divider').focus()")
    browser.press("ArrowLeft", 37)
    assert browser.run("beside.part") == pytest.approx(part - 0.02)
    link = browser.run("location.href")
    browser.open(link)
    assert browser.run("beside.part") == pytest.approx(part - 0.02, abs=1e-4)
    shown = browser.picture()
    assert [shown[round(y), round(at) + off].tolist() for off in (-200, -80)] == [[25] * 3, [175] * 3]
    browser.change("beside", "")
    assert browser.picture()[round(y), round(at) + 80].tolist() == [25] * 3


def test_two_layers_are_swiped_each_by_its_own_colours(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=51&kind=one&beside=kinds.zarr")
    _, y = browser.pixel(browser.run("map.getView().getCenter()"))
    at = round(browser.run("beside.part * map.getSize()[0]"))
    shown = browser.picture(kept)
    assert shown[round(y), at - 40].tolist() == [25] * 3
    assert shown[round(y), at + 100].tolist() == [20, 60, 200]
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=at + 100, y=y)
    browser.wait("at('values').textContent.endsWith('2 (water)')")


def test_layers_lie_on_top_of_each_other(browser: Browser, address: str, kept: Path) -> None:
    """Each has its own colours, legend and opacity, which the link keeps; those of other CRSs are warped."""
    browser.open(f"{address}#scene=times.zarr&low=0&high=51&kind=one")
    layers = "[...at('others').querySelectorAll('li')].map(e => e.firstChild.textContent)"
    assert browser.run(layers) == ["globe.zarr", "kinds.zarr", "cap.zarr", "disk.zarr"]
    browser.run("at('stack').open = true")
    browser.run("at('others').querySelectorAll('[type=checkbox]')[1].click()")
    browser.wait("over.has('kinds.zarr')")
    browser.settle()
    wood, water = browser.at(9.1, 49.4), browser.at(9.45, 49.4)
    assert [colour_at(browser, place) for place in (wood, water)] == [[10, 120, 30], [20, 60, 200]]
    browser.run("(e => { e.value = 0.5; e.oninput(); })(at('others').querySelector('[type=range]'))")
    browser.settle()
    mixed = [(25 + colour) / 2 for colour in (10, 120, 30)]
    assert colour_at(browser, wood) == pytest.approx(mixed, abs=2)
    browser.open(browser.run("location.href"))
    assert colour_at(browser, browser.at(9.1, 49.4)) == pytest.approx(mixed, abs=2)
    browser.run("at('others').querySelectorAll('[type=checkbox]')[0].click()")
    browser.wait("at('others').textContent.includes('v: 10 to 90')")
    browser.settle()
    assert colour_at(browser, browser.at(9.1, 49.4)) == [0, 0, 0]
    assert np.ptp(colour_at(browser, browser.at(9.45, 49.06), kept)) == 0 and not browser.refused
    for number in (0, 1):
        browser.run(f"at('others').querySelectorAll('[type=checkbox]')[{number}].click()")
    browser.settle()
    assert colour_at(browser, browser.at(9.1, 49.4)) == [25] * 3


def test_levels_and_requests_are_shown_on_demand(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=cells.zarr&low=0&high=255&view=350,-250,4")
    assert browser.run("at('levels').children.length") == 0
    browser.run("at('inside').open = true")
    browser.wait("at('levels').querySelectorAll('.drawn').length === 1")
    assert "level 2: 125 × 175, drawn last" in browser.run("at('levels').innerText")
    browser.run("map.getView().setResolution(1)")
    browser.wait("at('levels').innerText.includes('level 0: 500 × 700, drawn last')")
    assert " KiB, median " in browser.run("at('requests').innerText")
    browser.picture(kept)


@pytest.mark.parametrize("is_empty", [False, True])
def test_what_a_band_is_stands_beside_it(
    browser: Browser, address: str, tmp_path: Path, kept: Path, is_empty: bool
) -> None:
    """One moment has no slider, one layer no choice; where all is nodata, the page says so."""
    values = np.full((1, 60, 80), np.nan if is_empty else 280.0, "f4")
    values[0, :, :40] -= 5
    affine = Affine(1000.0, 0, 480000.0, 0, -1000.0, 5500000.0)
    said = {"long_name": "air temperature", "units": "K"}
    write(tmp_path / "one.zarr", values, "EPSG:32632", affine, ("time", "y", "x"), nodata=-1, **said)
    group = zstore.open_group(tmp_path / "one.zarr", mode="a")
    group.attrs["title"] = "One moment"
    units = {"units": "hours since 2020-01-01", "standard_name": "time"}
    group.create_array("time", data=np.array([6]), dimension_names=("time",), attributes=units)
    with visited(browser, tmp_path / "one.zarr") as own:
        browser.open(own)
        shown = browser.run("[at('title'), at('about'), at('dimensions')].map(e => e.innerText.trim())")
        browser.picture(kept)
        assert browser.run("at('scene').parentElement.hidden && !at('dimensions').querySelector('input')")
        holes = browser.run("at('missing').hidden ? '' : at('missing').textContent")
    assert holes == "no data (stored as -1), transparent"
    kind = "air temperature, K" + (", no values here" if is_empty else "")
    assert shown[:2] == ["One moment", kind] and shown[2].split() == ["time", "2020-01-01T06:00"]


def test_the_first_view_is_chosen_by_meaning(
    browser: Browser, address: str, tmp_path: Path, kept: Path
) -> None:
    """Colours of the quantity, the latest time with values; bands of an instrument in their true colours."""
    affine = Affine(1000.0, 0, 480000.0, 0, -1000.0, 5500000.0)
    values = np.full((6, 60, 80), np.nan, "f4")
    values[:4] = (280 + np.arange(4))[:, None, None] + np.linspace(0, 8, 80)[None, None]
    warm = {"standard_name": "air_temperature", "units": "K"}
    write(tmp_path / "warm.zarr", values, "EPSG:32632", affine, ("time", "y", "x"), **warm)
    said = {"units": "days since 2020-01-01", "standard_name": "time"}
    zstore.open_group(tmp_path / "warm.zarr", mode="a").create_array(
        "time", data=np.arange(6), dimension_names=("time",), attributes=said
    )
    scene = tmp_path / "scene.zarr"
    write(scene, np.full((60, 80), 1000, "u2"), "EPSG:32632", affine, ("y", "x"))
    group = zstore.open_group(scene, mode="a")
    (name,) = (name for name, array in group.arrays() if array.shape == (60, 80))
    for band in ("B02", "B03", "B04"):
        made = group.create_array(band, data=group[name][...], dimension_names=("y", "x"))
        made.attrs.update(dict(group[name].attrs))
    del group[name]
    green = 10.0 ** np.linspace(-2, 2, 4800).reshape(60, 80)
    write(tmp_path / "sea.zarr", green, "EPSG:32632", affine, ("y", "x"), long_name="chlorophyll")
    with visited(browser, tmp_path / "warm.zarr", scene, tmp_path / "sea.zarr") as own:
        browser.open(f"{own}#scene=sea.zarr")
        texts = browser.run("[...at('ticks').querySelectorAll('text')].map(e => e.textContent)")
        assert texts == ["0.1", "1", "10"]
        browser.open(f"{own}#scene=nowhere")
        assert "There is no layer nowhere" in browser.run("at('notice').textContent")
        first = browser.run("[chosen.time, meant(), at('kind').options[1].disabled, at('low').value * 1]")
        assert first[:3] == [3, "thermal", True] and 283 < first[3] < 284
        assert "2020-01-04" in browser.run("document.querySelector('#dimensions output').textContent")
        assert browser.run(
            "[...at('ticks').querySelectorAll('text')].map(e => e.textContent).includes('286')"
        )
        browser.run("at('swatches').open = true")
        browser.picture(kept)
        pressed = "document.querySelector('#swatches button[aria-pressed=true]').name"
        assert browser.run(pressed) == "thermal"
        browser.run("document.querySelector('#swatches button[name=deep]').click()")
        browser.settle()
        assert browser.run(f"[{pressed}, at('colormap').value]") == ["deep", "deep"]
        browser.change("colormap", "")
        browser.slide("time", 5)
        browser.run("at('auto').click()")
        browser.wait("at('notice').textContent.startsWith('Every cell is without a value')")
        browser.open(f"{own}#scene=scene.zarr")
        chosen = browser.run("['kind', 'red', 'green', 'blue'].map(id => at(id).value)")
        assert chosen == ["three", "B04", "B03", "B02"]


def test_a_dimension_plays_until_it_is_stopped(browser: Browser, address: str) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=51&kind=one")
    browser.run("document.querySelector('#dimensions button').focus()")
    browser.press(" ", 32)
    browser.wait("chosen.time > 0")
    browser.run("document.querySelector('#dimensions button').click()")
    stopped = browser.run("chosen.time")
    assert browser.run("playing") is None
    browser.settle()
    assert colour_at(browser, browser.run("map.getView().getCenter()")) == [stopped * 50 + 25] * 3


def test_keys_move_the_map(browser: Browser, address: str) -> None:
    browser.open(f"{address}#scene=kinds.zarr")
    before = browser.run("[...map.getView().getCenter(), map.getView().getResolution()]")
    browser.run("at('map').focus()")
    browser.press("ArrowRight", 39)
    browser.wait(f"map.getView().getCenter()[0] > {before[0]}")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="+", text="+", windowsVirtualKeyCode=187)
    browser.wait(f"map.getView().getResolution() < {before[2]}")


def test_dark_and_narrow(browser: Browser, address: str, kept: Path) -> None:
    try:
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        browser.call("Emulation.setEmulatedMedia", features=features)
        narrow = {"width": 400, "height": 720, "deviceScaleFactor": 1, "mobile": True}
        browser.call("Emulation.setDeviceMetricsOverride", **narrow)
        browser.open(f"{address}#scene=kinds.zarr")
        shown = browser.picture(kept)
        assert shown.shape[:2] == (720, 400)
        assert shown[2, 200].tolist() == [35, 44, 54]  # land
        edges = "(b => [b.left, b.top, b.right, b.bottom])(at('panel').getBoundingClientRect())"
        # All that is shown lies above the panel, which is closed at first.
        closed = browser.run(edges)[1]
        x, y = browser.pixel(browser.at(9.2, 49.1))
        assert 0 < x < 400 and 0 < y < closed and closed > 0.75 * 720
        browser.run("at('controls').open = true")
        # What is pressed is as large as a thumb; beside a box that is ticked, its words are pressed as well.
        kinds = ("#panel button", "#panel select", "#panel summary", "#panel input:not([type=checkbox])")
        sides = (
            f"[...document.querySelectorAll('{', '.join(kinds)}')].map(e => e.getBoundingClientRect().height)"
        )
        assert min(filter(None, browser.run(sides))) >= 32
        box = browser.run(edges)
        assert box[0] >= 0 and box[2] <= 400 and box[3] <= 720 and box[1] >= 0.5 * 720
        assert browser.run("document.documentElement.scrollWidth") <= 400
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])
        browser.call("Emulation.setDeviceMetricsOverride", **SCREEN)


def test_the_landsat_scene_of_the_demo(browser: Browser, place: Path, kept: Path) -> None:
    """Its brightness at places of the ground is what GDAL reads there."""
    rasterio = pytest.importorskip("rasterio", reason="the raster is read through rasterio (extra 'raster')")
    from rasterio.warp import transform

    from zstore.geo.rasters import raster_to_zarr

    raster = Path(__file__).parents[3] / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"
    raster_to_zarr(raster, place / "landsat.zarr", chunks=256, shards=1024, levels=None)
    with rasterio.open(raster) as source:
        cells = source.read(1)
        places = [[int(part * size) for size in cells.shape] for part in (0.35, 0.5, 0.62)]
        wanted = [cells[row, column] for row, column in places]
        x, y = zip(*(source.xy(*place) for place in places), strict=True)
        east, north = transform(source.crs, "EPSG:3857", x, y)
    with visited(browser, place / "landsat.zarr") as address:
        browser.open(address)
        browser.picture(kept)
        # So far in that each cell is many pixels.
        for x, y, value in zip(east, north, wanted, strict=True):
            browser.open(f"{address}#low=5000&high=20000&kind=one&view={x},{y},2")
            browser.run("graticule.setVisible(false)")
            browser.settle()
            grey = np.clip((float(value) - 5000) * 255 / 15000 + 0.5, 0, 255)
            assert colour_at(browser, [x, y]) == [int(grey)] * 3


def test_an_exported_site_is_shown_by_any_web_server(
    browser: Browser, place: Path, address: str, kept: Path
) -> None:
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    from zstore_serve.export import export_site

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    export_site([place / "kinds.zarr", place / "cells.zarr"], place / "site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=place / "site"))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.server_port}/")
        browser.wait("document.body && document.body.dataset.drawn === '1' && !!layer.getSource()")
        browser.settle()
        for lon, colour in ((9.1, [10, 120, 30]), (9.45, [20, 60, 200])):
            assert colour_at(browser, browser.at(lon, 49.4), kept) == colour
        browser.change("scene", "cells.zarr")
        assert colour_at(browser, [100, -100]) == colour_at(browser, [600, -400])
        assert colour_at(browser, [100, -100]) != colour_at(browser, [600, 10])
    finally:
        browser.leave()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("crs", "north"), [("EPSG:3413", True), ("EPSG:3031", False)])
def test_what_lies_around_a_pole_is_shown_around_it(
    browser: Browser, tmp_path: Path, kept: Path, crs: str, north: bool
) -> None:
    columns = np.indices((80, 80))[1]
    affine = Affine(1e5, 0, -4e6, 0, -1e5, 4e6)
    write(tmp_path / "ice.zarr", np.where(columns < 40, 10.0, 90.0).astype("f4"), crs, affine)
    sign = 1 if north else -1
    with visited(browser, tmp_path / "ice.zarr") as own:
        browser.open(f"{own}#low=0&high=100&colormap=grey")
        code = browser.run("map.getView().getProjection().getCode()")
        assert code == ("EPSG:5041" if north else "EPSG:5042")
        lon, lat = np.array([10.0, -170, 77.7, 0]), sign * np.array([89.0, 71, 66.6, 90])
        x, y = Crs.from_user("OGC:CRS84").transform(Crs.from_user(code), lon, lat)
        for n in range(4):
            place = [float(lon[n]), float(lat[n])]
            found = browser.run(f"ol.proj.fromLonLat({place}, '{code}')")
            assert np.abs(np.array(found) - (x[n], y[n])).max() < 0.01
            again = browser.run(f"ol.proj.toLonLat({found}, '{code}')")
            assert n == 3 or np.abs(np.array(again) - place).max() < 1e-9
        # Half the cap is dark: which half, the CRS's own middle meridian tells.
        for away, shade in ((-5e5, 26), (5e5, 230)):
            place = [float(one[0]) for one in Crs.from_user(crs).transform(
                Crs.from_user(code), np.array([away]), np.array([2e5]))]  # fmt: skip
            assert np.abs(np.array(colour_at(browser, place, kept)) - shade).max() <= 2
        browser.run(f"point(ol.proj.fromLonLat([10, {sign * 80}], '{code}'))")
        browser.wait(f"at('values').textContent.includes('lat {sign * 80}.0000')")


def test_grids_of_satellites_and_zones_are_seen_as_they_are(
    browser: Browser, tmp_path: Path, kept: Path
) -> None:
    """Coordinates are PROJ's, the ground is around the data, and no projection asks for what is refused."""
    satellite = disk(tmp_path / "disk.zarr", 550)
    zone = np.where(np.indices((700, 700))[1] < 350, 10.0, 90.0).astype("f4")
    write(tmp_path / "zone.zarr", zone, "EPSG:25833", Affine(10.0, 0, 4e5, 0, -10.0, 5.5e6))
    browser.refused.clear()
    with visited(browser, tmp_path / "disk.zarr", tmp_path / "zone.zarr") as own:
        for name, crs, lon, lat in (
            ("disk", satellite, [9.5, -20, 60, 30], [0, 45, -50, 66.6]),
            ("zone", Crs.from_user("EPSG:25833"), [13.6, 15, 13.65], [49.6, 49.64, 49.6]),
        ):
            browser.open(f"{own}#scene={name}.zarr&low=0&high=100&colormap=grey")
            assert browser.run("[seen, at('seen').options.length].join()") == "native,5"
            east, north = Crs.from_user("OGC:CRS84").transform(crs, np.array(lon), np.array(lat))
            for place in zip(lon, lat, east, north, strict=True):
                assert np.abs(np.array(browser.at(*place[:2])) - place[2:]).max() < 0.01
            browser.picture(kept.with_stem(f"{kept.stem}-{name}"))
            width = 5e6 if name == "disk" else 3000
            middle = browser.run("ol.extent.getCenter(scene.bounds)")
            for away, shade in ((-width / 2, 26), (width / 2, 230)):
                assert abs(colour_at(browser, [middle[0] + away, middle[1] + width / 20])[0] - shade) <= 2
            browser.run(f"point([{middle[0] + width / 3}, {middle[1] + width / 9}])")
            browser.wait("at('values').textContent.endsWith(': 90')")
            browser.run("at('all').click()")
            browser.wait("at('places').textContent.includes('mean 50')")
            assert browser.run("at('locator').hidden") == (name == "disk")
            for view in ("WebMercatorQuad", "UPSArcticWGS84Quad", "UPSAntarcticWGS84Quad"):
                browser.change("seen", view)
                browser.picture(kept.with_stem(f"{kept.stem}-{name}-{view}"))
                assert browser.run("coasts.getSource().getFeatures().length") > 100
            browser.open(browser.run("location.href"))
            assert browser.run("seen") == "UPSAntarcticWGS84Quad"
        browser.run("at('scene').value = 'disk.zarr'; at('scene').onchange()")
        browser.wait("scene.id === 'disk.zarr' && seen === 'native'")
        browser.settle()
        browser.run("point([-5.4e6, 5.4e6])")
        browser.wait("at('values').textContent === 'beside the Earth'")
        browser.click(700 / 40, 700 / 40)
        names = browser.run("countries.getSource().getFeatures().map(each => each.get('name'))")
        assert {"Germany", "South Africa"} <= {*names} and "Japan" not in names
        assert not browser.refused and browser.run("at('problem').textContent") == ""


def test_the_globe_is_turned_by_hand_and_by_keys(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=globe.zarr&low=0&high=100&seen=globe&globe=0,40")
    crs, degrees = Crs.from_user("+proj=ortho +lat_0=40 +lon_0=0 +R=6378137"), Crs.from_user("OGC:CRS84")
    lon, lat = np.array([0.0, 60, -100, 10]), np.array([90.0, 0, 70, -30])
    for place, *wanted in zip(zip(lon, lat, strict=True), *degrees.transform(crs, lon, lat), strict=True):
        seen = browser.at(*map(float, place))
        assert np.abs(np.array(seen) - wanted).max() < 0.01
        back = browser.run(f"ol.proj.toLonLat({seen}, 'globe')")
        assert abs(back[1] - place[1]) < 1e-6 and (place[1] == 90 or abs(back[0] - place[0]) < 1e-6)
    # The field begins in the west with 10 at longitude 0 and ends with 90.
    assert [colour_at(browser, browser.at(lon, 40), kept)[0] for lon in (-50, 50)] == [229, 26]
    x, y = browser.pixel(browser.at(0, 40))
    browser.click(x, y - 40)
    browser.wait("at('places').textContent.includes('0.0000')")
    marked = browser.run("places[0].geometry.getCoordinates()")
    browser.drag((x, y), (x + 60, y), (x + 120, y + 50))
    assert -60 < browser.run("globe.lon") < -10 and 40 < browser.run("globe.lat") < 70
    assert colour_at(browser, browser.at(-20, 40), kept)[0] == 229
    assert browser.run("map.getView().getCenter()") == [0, 0]
    assert browser.run("places[0].geometry.getCoordinates()[0]") > marked[0] + 1e6
    browser.run("at('map').focus()")
    longitude = browser.run("globe.lon")
    browser.press("ArrowRight", 39)
    browser.wait(f"globe.lon > {longitude}")
    browser.settle()
    browser.run("at('all').click()")
    browser.wait("at('places').textContent.includes('cells')")
    browser.open(browser.run("location.href"))
    assert browser.run("[seen, globe.lon > -60].join()") == "globe,true"
    assert not browser.refused and browser.run("at('problem').textContent") == ""


def test_a_picture_and_a_series_can_be_taken_away(
    browser: Browser, address: str, place: Path, kept: Path
) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=100&colormap=grey&@time=2")
    at = browser.at(9.1, 49.4)
    content = base64.b64decode(browser.run("picture().toDataURL()").partition(",")[2])
    kept.write_bytes(content)
    picture = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    x, y = browser.pixel(at)
    # The controls lie beside the map, not above it.
    assert picture.shape == (SIZE[1] + 56, browser.run("innerWidth") - 306, 3)
    assert 0 <= browser.run("at('panel').getBoundingClientRect().left") - picture.shape[1] < 10
    assert picture[round(y), round(x)].tolist() == colour_at(browser, at)
    bar = picture[SIZE[1] + 30, 12:308, 0]
    assert (np.diff(bar) >= 0).all() and bar[0] < 5 and bar[-1] > 250
    assert browser.run("at('csv').hidden")
    browser.click(x, y)
    browser.wait("!at('csv').hidden")
    head, *lines = browser.run("csv()").splitlines()
    assert head.startswith('"time","v, 9.1') and lines == [
        f'"2020-01-0{n + 1}",{10 * n + 5}' for n in range(4)
    ]
    browser.run("at('save').click()")
    line = browser.run("python()")
    assert line == (
        'zstore.quicklook(zstore.select("times.zarr", {"time": "2020-01-03"}), bands=["v"], '
        'colours="grey", limits=(0, 100))'
    )
    drawn = drawn_by(line, place)
    assert (drawn == 64).all() and drawn.shape[:2] == (60, 80)
    browser.run("at('python').click()")
    browser.wait(f"at('copied').value === {json.dumps(line)}")
    browser.run("at('share').click()")
    assert browser.run("at('copied').value === location.href")


def drawn_by(line: str, place: Path) -> np.ndarray:
    """What a line of "Copy Python" draws, where the stores lie."""
    with chdir(place):
        return eval(line, {"zstore": zstore})


CELLS = 'zstore.view(zstore.open("cells.zarr")["0"])'


@pytest.mark.parametrize(
    ("state", "line", "last", "value"),
    [
        ("stack.zarr&@z=2", 'zstore.view(zstore.open("stack.zarr")["v"])[2]', "[590, -390]", 80),
        (
            "cells.zarr&kind=expression&expression='GFP' / 5 %2B b1 - 1e1&@z=1",
            f"""zstore.calculate("'GFP' / 5 + b1 - 1e1", {{"GFP": {CELLS}[1, 1], "b1": {CELLS}[0, 1]}}), """
            'colours="grey"',
            "[690, -490]",
            140,
        ),
        (
            "globe.zarr&view=0,0,40000&kind=expression"
            "&expression=where(b1 > 50, min(b1, 20), sqrt(b1 / 0.1))",
            'zstore.calculate("where(b1 > 50, min(b1, 20), sqrt(b1 / 0.1))", '
            '{"b1": zstore.open("globe.zarr")["v"]}), colours="grey"',
            "ol.proj.fromLonLat([-33, -58])",
            20,
        ),
    ],
)
def test_the_line_of_python_draws_what_is_seen(
    browser: Browser, address: str, place: Path, state: str, line: str, last: str, value: int
) -> None:
    """Items without a coordinate by their numbers, expressions as views."""
    browser.open(f"{address}#scene={state}&low=0&high=255")
    assert browser.run("python()") == f"zstore.quicklook({line}, limits=(0, 255))"
    drawn = drawn_by(browser.run("python()"), place)
    assert drawn[-1, -1, 0] == colour_at(browser, browser.run(last))[0] == value


def test_areas_are_drawn_and_compared_as_lines(browser: Browser, address: str, kept: Path) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=51&kind=one&@time=2")
    corners = [browser.pixel(browser.at(lon, 49.4)) for lon in (9.0, 9.4)]
    browser.run("at('box').click()")
    (left, y), (right, _) = corners
    for x, down in ((left, y), (right, y + 60)):
        browser.click(x, down)
    browser.wait("places.length === 1 && at('places').textContent.includes('mean 25,')")
    browser.wait("!drawing")
    browser.run("at('polygon').click()")
    for x, down in ((left, y - 10), (right, y - 10), (right, y - 60), (left, y - 10)):
        browser.click(x, down)
    browser.wait("places.length === 2 && at('places').textContent.split('mean 25,').length === 3")
    browser.wait("!drawing")
    browser.click(left, y)
    browser.wait("at('chart').querySelectorAll('path').length === 3")
    browser.picture(kept)
    head, *lines = browser.run("csv()").splitlines()
    assert head.startswith('"time","v, area 1","v, area 2","v, 9.0')
    cells = [line.split(",") for line in lines]
    assert [day for day, *_ in cells] == [f'"2020-01-0{n + 1}"' for n in range(4)]
    for n, (_, *values) in enumerate(cells):
        assert [float(value) for value in values] == pytest.approx([10 * n + 5] * 3)
    browser.slide("time", 3)
    browser.wait("at('places').textContent.split('mean 35,').length === 3")
    browser.run("at('all').click()")
    browser.wait("at('places').textContent.includes('4800 cells')")
    # An outline that crosses itself is asked for nowhere.
    browser.run("at('polygon').click()")
    for x, down in ((left, y), (right, y + 40), (right, y), (left, y + 40), (left, y)):
        browser.click(x, down)
    browser.wait("at('problem').textContent.includes('crosses itself')")
    assert browser.run("places.length") == 4 and not browser.refused
    browser.run("at('clear').click()")
    browser.wait("!at('places').children.length && at('csv').hidden")


def test_what_plays_ends_where_it_may(browser: Browser, address: str) -> None:
    browser.open(f"{address}#scene=times.zarr&low=0&high=51&kind=one&@time=2")
    browser.run("at('loop').checked = false")
    browser.run("at('speed').value = '250'")
    browser.run("document.querySelector('#dimensions button').click()")
    browser.wait("playing === null")
    assert browser.run("chosen.time") == 3


def test_the_first_picture_is_asked_for_once_and_beside_its_limits(browser: Browser, address: str) -> None:
    browser.open(f"{address}#scene=globe.zarr")
    entries = "performance.getEntriesByType('resource').map(({name}) => name)"
    tiles = [name for name in browser.run(entries) if "/tiles/" in name]
    assert len({*tiles}) == len(tiles) > 0 and "rescale" not in str(tiles)
    assert browser.run("[at('low').value, at('high').value].join()") == "10,90"
    browser.run("at('high').value = 50; at('high').onchange()")
    browser.settle()
    assert "rescale=10%2C50" in browser.run(entries)[-1]


def test_what_the_map_has_moved_on_from_is_given_up(browser: Browser, address: str) -> None:
    """Tiles that come too late are asked for no longer, and come when the map is there again."""
    browser.open(f"{address}#scene=globe.zarr&low=0&high=100&view=0,0,40000")
    try:
        browser.run("tell = fetch; ended = []; released = new Promise((done) => { release = done; }); 0")
        browser.run(
            "window.fetch = async (place, words) => { if (/.tiles./.test(place)) {"
            " words.signal.onabort = () => ended.push(place); await released; }"
            " return tell(place, words); }; 0"
        )
        # What was shown stays until there is something else to show.
        browser.run("at('high').value = 180; at('high').onchange()")
        browser.wait("askedIn(layer).length > 3")
        assert colour_at(browser, browser.at(-20, 3))[0] == 229
        browser.run("ended.length = 0; map.getView().setResolution(5000)")
        browser.wait("askedIn(layer).length > 3")
        browser.run("map.getView().setCenter([8e6, 5e6])")
        browser.wait("ended.length > 0")
        first = browser.run("askedIn(layer).filter(([, ender]) => !ender.signal.aborted).length")
        browser.run("draw(); at('high').value = 90; at('high').onchange()")
        browser.wait(f"ended.length > {first}")
    finally:
        browser.run("release(); window.fetch = tell; 0")
    browser.run("map.getView().setCenter([0, 0])")
    browser.settle()
    assert [colour_at(browser, browser.at(lon, 3))[0] for lon in (-8, 8)] == [255, 28]
    assert browser.run("at('problem').textContent") == "" and browser.run("askedIn(layer).length") == 0


def test_stores_without_levels_are_shown_from_near(browser: Browser, address: str, place: Path) -> None:
    """What the server would refuse to read at once is not asked for."""
    values = np.arange(2 * 400 * 600, dtype="f4").reshape(2, 400, 600)
    utm = Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0)
    write(place / "flat.zarr", values, "EPSG:32632", utm, ("time", "y", "x"))
    with listening(router(place / "flat.zarr", settings=Settings(cell_count=70_000))) as own:
        browser.refused.clear()
        browser.open(f"{own}#")
        assert browser.run("[at('notice').textContent, layer.getMaxResolution() < 40].join()") == ",true"
        assert 55_000 < float(browser.run("at('low').value")) < 80_000
        browser.run("at('all').click()")
        browser.wait("at('places').textContent.includes('cells')")
        browser.run("map.getView().setResolution(60)")
        browser.wait("at('notice').textContent.startsWith('Zoom in')")
        browser.run("at('all').click()")
        browser.wait("at('places').textContent.includes('too many cells')")
        browser.run("map.getView().setResolution(20)")
        browser.wait("at('notice').textContent === ''")
        browser.click(300, 300)
        browser.wait("places.length === 3")
        browser.settle()
        assert not browser.refused and browser.run("at('problem').textContent") == ""
        browser.leave()


def test_keys_mark_places_and_little_motion_is_respected(browser: Browser, address: str) -> None:
    still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.call("Emulation.setEmulatedMedia", features=still)
    try:
        browser.open(f"{address}#scene=globe.zarr&low=0&high=100&view=1000000,0,40000")
        browser.run("turns = 0; map.getView().on('change:resolution', () => { turns++; }); at('map').focus()")
        browser.press("Enter", 13)
        browser.wait("places.length === 1 && at('values').textContent.endsWith(': 10')")
        browser.run("document.querySelector('.ol-zoom-in').click()")
        browser.settle()
        assert browser.run("[turns, map.getView().getResolution()].join()") == "1,20000"
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])


def test_the_map_has_most_of_a_phone(browser: Browser, address: str, kept: Path) -> None:
    browser.call(
        "Emulation.setDeviceMetricsOverride", **{**SCREEN, "width": 390, "height": 780, "mobile": True}
    )
    try:
        browser.open(f"{address}#scene=globe.zarr&low=0&high=100")
        for is_open in (False, True):
            browser.run(f"at('controls').open = {json.dumps(is_open)}; 0")
            top, legend, tip = browser.run(
                "[at('panel'), at('legend'), at('ticks')].map((each) => each.getBoundingClientRect().bottom)"
                ".with(0, at('panel').getBoundingClientRect().top)"
            )
            browser.picture(kept.with_stem(f"{kept.stem}-{is_open}"))
            assert 0.75 * 780 <= top < legend < tip < 780
    finally:
        browser.call("Emulation.setDeviceMetricsOverride", **SCREEN)


def test_opacity_expressions_and_what_is_refused(browser: Browser, address: str) -> None:
    browser.open(f"{address}#scene=stack.zarr&low=0&high=255")
    browser.change("kind", "expression")
    browser.change("expression", "b1 * 2")
    browser.change("low", "0")
    browser.change("high", "255")
    assert colour_at(browser, [300, -200]) == [80, 80, 80]
    browser.change("opacity", "0")
    assert colour_at(browser, [300, -200]) == colour_at(browser, [300, 30])
    browser.run("at('expression').value = 'b1 *'; at('expression').onchange()")
    browser.wait("at('problem').textContent.includes('expression ends')")
    browser.change("low", "300")
    browser.change("expression", "b1")
    browser.change("low", "300")
    browser.change("high", "255")
    assert "300, is above the greatest, 255" in browser.run("at('problem').textContent")
    assert "rescale=300" not in browser.run("layer.getSource().getUrls().join()")


# What a hand may do on the page: each is a function of a random number from 0 to 1, and of another.
WALK = """
(one, two) => {
  const kinds = ['select', 'input', 'button', 'summary'].map((kind) => `#panel ${kind}`);
  const shown = [...document.querySelectorAll([...kinds, '#divider'].join())]
    .filter((each) => each.offsetParent !== null && !each.disabled);
  const control = shown[Math.floor(one * shown.length)];
  const words = ['', 'b1', 'b1 *', '(b1 - b2) / (b1 + b2)', 'nonsense', 'https://', '-5', '1e3', '40', '90'];
  const fit = control.type === 'number' ? words.filter((each) => !isNaN(each)) : words;
  const word = fit[Math.floor(two * fit.length)];
  control.focus();
  if (control.tagName === 'SELECT') {
    const free = [...control.options].filter((option) => !option.disabled);
    control.value = free[Math.floor(two * free.length)].value;
  } else if (control.type === 'range') {
    control.value = Number(control.min) + two * (Number(control.max) - Number(control.min));
  } else if (control.type === 'checkbox') control.checked = !control.checked;
  else if (control.tagName === 'INPUT') control.value = word;
  else { control.click(); return `click ${control.id || control.title || control.textContent}`; }
  for (const kind of ['input', 'change']) control.dispatchEvent(new Event(kind, {bubbles: true}));
  return `${control.id || control.dataset.dimension} = ${control.value}`;
}
"""


@pytest.mark.parametrize(
    ("screen", "count"),
    [
        ("desktop", 25),
        ("phone", 15),
        pytest.param("desktop", 200, marks=pytest.mark.slow),
        pytest.param("phone", 200, marks=pytest.mark.slow),
    ],
)
def test_no_walk_through_the_controls_is_refused_or_bars_anybody(
    browser: Browser, address: str, screen: str, count: int
) -> None:
    """Random actions, others by ZSTORE_SEED: no response of 400, no console error, no finding of axe."""
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text()
    chance = random.Random(int(os.environ.get("ZSTORE_SEED", "5")) + count)
    size = SCREEN if screen == "desktop" else {**SCREEN, "width": 390, "height": 780, "mobile": True}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(address)
        browser.run(f"{axe}; 0")
        browser.refused.clear()
        done = list[str]()
        for number in range(count):
            place = chance.random() * size["width"], chance.random() * size["height"]
            if chance.random() < 0.2:
                done.append(f"click {place}")
                browser.click(*place)
            elif chance.random() < 0.1:
                key, code = chance.choice([("Tab", 9), ("ArrowLeft", 37), ("ArrowDown", 40), ("+", 107)])
                done.append(key)
                browser.press(key, code)
            else:
                done.append(browser.run(f"({WALK})({chance.random()}, {chance.random()})"))
            if number % 5 == 4:
                browser.settle()
            else:
                time.sleep(0.05)
            trouble = [*browser.refused, *browser.said]
            if number % 20 == 14:
                found = browser.run("axe.run().then((all) => all.violations)")
                trouble += [f"{one['id']}, {one['help']}: {one['nodes'][0]['html']}" for one in found]
            assert not trouble, "\n".join([*done, *trouble])
    finally:
        browser.call("Emulation.setDeviceMetricsOverride", **SCREEN)


def test_the_page_runs_nothing_that_it_did_not_bring(browser: Browser, address: str) -> None:
    browser.open(f"{address}#scene=stack.zarr")
    blocked = browser.run(
        "new Promise(done => { const s = document.createElement('script'); "
        "s.textContent = 'window.planted = 1'; "
        "document.body.append(s); setTimeout(() => done(window.planted === undefined), 50); })"
    )
    assert blocked
    # The browser says so when it comes to it.
    for _ in range(600):
        if any("Content Security Policy" in line for line in browser.said):
            break
        browser.run("new Promise(done => setTimeout(done, 50))")
    else:
        raise AssertionError(browser.said)
    browser.said.clear()
