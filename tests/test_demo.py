"""The demo runs, and fails when a comparison does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rasterio", reason="the demo reads a GeoTIFF")
pytest.importorskip("rich", reason="the demo prints with rich")
pytest.importorskip("pyproj", reason="the demo's raster has a CRS")

PROJECT = Path(__file__).parent.parent


def run(*words: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_the_demo_compares_everything(tmp_path: Path) -> None:
    done = run(PROJECT / "examples" / "demo.py", tmp_path / "made")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same  ") == 12 and "DIFFERENT" not in done.stdout
    assert (tmp_path / "made" / "quicklook.png").read_bytes().startswith(b"\x89PNG")
    again = run(PROJECT / "examples" / "demo.py", tmp_path / "made")
    assert again.returncode == 0, again.stdout + again.stderr


def test_the_demo_fails_where_cells_differ(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(PROJECT / "examples")!r})
import demo
whole = demo.raster_to_zarr
def spoiled(*args, **options):
    group = whole(*args, **options)
    group["0/band_1"][5, 5] = 1
    return group
demo.raster_to_zarr = spoiled
sys.exit(demo.main(demo.Path({str(tmp_path / "made")!r})))
"""
    done = run("-c", script)
    assert done.returncode == 1 and "DIFFERENT" in done.stdout
