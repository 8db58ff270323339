"""Pictures of the site's pages and of the notebook view, as Chromium draws them, light and dark.

    python tools/shots.py [site] [directory for the pictures; shots by default]

To be looked at; exits with 1 where a page says something on the console, or is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from pictures import PLACE, heights

import zstore
from zstore.geo.report.notebook import render_html

PAGES = ("index", "tutorial", "gallery", "concepts", "comparison", "troubleshooting", "quickstart", "api")
SHADES = {"light": 1, "dark": 0}
HEIGHT = 3600
NOTEBOOK = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>:root{color-scheme:light dark}body{font:13px sans-serif;margin:1.5em}hr{opacity:.3}</style>"""


def notebook(place: Path) -> Path:
    """A page with a pyramid, an array with shards and a dataset, as a notebook shows them."""
    scene = zstore.create_group(
        place / "scene.zarr", attributes={**PLACE, "title": "Mountains <nobody> has climbed"}
    )
    scene.create_array("height", data=heights(), chunks=128, dimension_names=["y", "x"])
    pyramid = zstore.build_pyramid(scene, place / "pyramid.zarr", levels=2)
    cube = zstore.create_group(place / "cube.zarr", attributes={"source": "made up", "history": [1, 2, 3]})
    cube.create_array(
        "time", data=np.arange(8), dimension_names=["time"], attributes={"units": "days since 2024-01-01"}
    )
    cube.create_array(
        "t2m",
        data=np.add.outer(np.arange(8.0), heights(128) / 100).astype("f4"),
        chunks=(1, 32, 32),
        shards=(4, 128, 128),
        dimension_names=["time", "y", "x"],
        compressors={"name": "blosc", "configuration": {"cname": "zstd", "clevel": 5, "shuffle": "shuffle"}},
        attributes={"units": "K", "long_name": "2 metre temperature"},
    )
    shown = (
        render_html(node).replace("<details>", "<details open>") for node in (pyramid, cube["t2m"], cube)
    )
    page = place / "notebook.html"
    page.write_text(NOTEBOOK + "<hr>".join(shown))
    return page


def chromium() -> str:
    """The browser."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("Chromium is not installed (Debian's package chromium has it)")
    return found


def shoot(browser: str, page: Path, picture: Path, shade: str, height: int) -> str:
    """Take a picture of a page, and give what it says on the console."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--user-data-dir={profile}", "--allow-file-access-from-files", "--enable-logging=stderr"),
                *(f"--window-size=1200,{height}", "--virtual-time-budget=3000"),
                f"--blink-settings=preferredColorScheme={SHADES[shade]}",
                *(f"--screenshot={picture}", page.resolve().as_uri()),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    return "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def main(site: Path, place: Path) -> int:
    """Take all pictures; how many pages have something amiss."""
    browser, amiss = chromium(), 0
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        pages = {name: site / ("" if name == "index" else name) / "index.html" for name in PAGES}
        pages = {"notebook": notebook(Path(made)), **pages}
        for name, page in pages.items():
            if not page.is_file():
                print(f"{name}: there is no {page}")
                amiss += 1
                continue
            for shade in SHADES:
                picture = place / f"{name}-{shade}.png"
                said = shoot(browser, page, picture, shade, HEIGHT)
                amiss += bool(said) or not picture.is_file()
                print(f"{picture} {said}".rstrip())
    return amiss


if __name__ == "__main__":
    given = [*sys.argv[1:], *("site", "shots")[len(sys.argv) - 1 :]]
    raise SystemExit(min(1, main(Path(given[0]), Path(given[1]))))
