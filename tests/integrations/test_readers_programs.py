"""The same stores in programs: QGIS, gdalmdiminfo, and titiler's server, asked by HTTP.

`.ci/servers` installs Debian's packages of them where it may; `make readers` has titiler.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs

from .written import EVERY_STORE, Written, each_store, expected_levels, free_port, gdal_cannot_open, gdal_name

SCRIPT = Path(__file__).parent / "readers" / "qgis_open.py"
# A cell that holds data on every level, as (row, column).
CELL = (30, 25)


def centre_of(affine: Affine, cell: tuple[int, int] = CELL) -> tuple[float, float]:
    return affine.at(cell[1] + 0.5, cell[0] + 0.5)


def value_at(written: Written, level: str) -> float:
    """What the cell is worth, unpacked; of a cube, at the first moment."""
    stored = written.values(level)
    found = float((stored[0] if stored.ndim == 3 else stored)[CELL])
    variable = written.case.variable
    return found * (variable.scale_factor or 1) + (variable.add_offset or 0)


def qgis_python() -> str:
    """Debian's Python, or the one that ZSTORE_QGIS_PYTHON names, where it has QGIS."""
    python = os.environ.get("ZSTORE_QGIS_PYTHON", "/usr/bin/python3")
    words = [python, "-c", "import qgis.core"]
    if shutil.which(python) is None or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("QGIS is not installed (Debian's package python3-qgis has it)")
    return python


def test_qgis(stores) -> None:
    python = qgis_python()
    rows = [
        (written, level, affine, shape)
        for name, version in (parameter.values for parameter in EVERY_STORE)
        for written in (stores(name, version),)
        for level, affine, shape in expected_levels(written)
    ]
    words = []
    for written, level, affine, _ in rows:
        words += [gdal_name(written, level), ",".join(map(repr, centre_of(affine)))]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "GDAL_", "PROJ_"))
    }
    result = subprocess.run(
        [python, SCRIPT, *words], capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    gdal = tuple(map(int, lines[0]["gdal"].split(".")[:2]))
    seen = 0
    for (written, level, affine, shape), found in zip(rows, lines[1:], strict=True):
        if gdal_cannot_open(written, gdal) is not None:
            continue
        seen += 1
        assert found["is_valid"]
        assert (found["crs"], found["shape"]) == (written.case.crs, list(shape))
        np.testing.assert_allclose(found["bounds"], affine.bounds(shape), rtol=1e-12)
        assert found["nodata"] == float(written.case.variable.nodata)
        np.testing.assert_allclose(found["value"], value_at(written, level), rtol=1e-6)
    assert seen >= 24


@each_store
def test_gdalmdiminfo(stores, name, zarr_format) -> None:
    """The multidimensional view: axes, their coordinates, CRS, nodata and packing of every level."""
    command = shutil.which("gdalmdiminfo")
    if command is None:
        pytest.skip("gdalmdiminfo is not on PATH (Debian's package gdal-bin has it)")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    number = version.split()[1].rstrip(",")
    written = stores(name, zarr_format)
    case = written.case
    reason = gdal_cannot_open(written, tuple(map(int, number.split(".")[:2])))
    if reason is not None:
        pytest.skip(f"GDAL {number} {reason}")
    result = subprocess.run(
        [command, "-detailed", "-limit", "2", written.path], capture_output=True, text=True, check=True
    )
    groups = json.loads(result.stdout)["groups"]
    for level, affine, shape in expected_levels(written):
        array = groups[level]["arrays"][case.name]
        assert array["dimension_size"][-2:] == list(shape)
        assert array["dimensions"][-2:] == [f"/{level}/{dimension}" for dimension in case.dimensions]
        assert Crs.from_user(array["srs"]["wkt"]).is_same(written.geo.crs)
        assert array["nodata_value"] == case.variable.nodata
        assert array.get("scale", 1.0) == (case.variable.scale_factor or 1.0)
        assert array.get("offset", 0.0) == (case.variable.add_offset or 0.0)
        types = {row["name"]: row.get("type") for row in groups[level]["dimensions"]}
        assert [types[dimension] for dimension in case.dimensions] == ["HORIZONTAL_Y", "HORIZONTAL_X"]
        for dimension, expected in zip(case.dimensions, affine.coordinates(shape), strict=True):
            first = groups[level]["arrays"][dimension]["values"][0]
            np.testing.assert_allclose(first, expected[0], rtol=1e-12)
        if case.time is not None:
            assert groups[level]["arrays"]["time"]["unit"] == case.time.units


@pytest.fixture(scope="module")
def titiler() -> Iterator[str]:
    """titiler's own application, on loopback."""
    pytest.importorskip("titiler.xarray.main", reason="titiler-xarray is the reader")
    pytest.importorskip("uvicorn", reason="uvicorn serves titiler, which is the reader")
    url = f"http://127.0.0.1:{(port := free_port())}"
    words = ["-m", "uvicorn", "titiler.xarray.main:app", "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen([sys.executable, *words]) as server:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
                    break
                except urllib.error.HTTPError:
                    break
                except OSError:
                    assert server.poll() is None, "titiler's server ended"
                    time.sleep(0.1)
            yield url
        finally:
            server.terminate()


def ask(server: str, path: str, **parameters: Any) -> bytes:
    with urllib.request.urlopen(f"{server}{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
        return answer.read()


@each_store
def test_titilers_server(stores, titiler, name, zarr_format) -> None:
    written = stores(name, zarr_format)
    case = written.case
    for level, affine, shape in expected_levels(written):
        where = {"url": written.path, "variable": case.name, "group": level}
        found = json.loads(ask(titiler, "/info", **where))
        np.testing.assert_allclose(found["bounds"], affine.bounds(shape), rtol=1e-12)
        assert found["crs"].endswith(case.crs.replace("EPSG:", "/EPSG/0/"))
        assert (found["height"], found["width"]) == shape
        lon, lat = written.geo.crs.transform(Crs.from_user("OGC:CRS84"), *map(np.array, centre_of(affine)))
        values = json.loads(ask(titiler, f"/point/{float(lon)},{float(lat)}", **where))["values"]
        np.testing.assert_allclose(values[0], value_at(written, level), rtol=1e-6)
        # Its own cells, in its own CRS; the last plane is the mask: the least number, or the greatest.
        box = ",".join(map(repr, affine.bounds(shape)))
        answer = ask(
            titiler,
            f"/bbox/{box}/{shape[1]}x{shape[0]}.npy",
            **where,
            coord_crs=case.crs,
            dst_crs=case.crs,
            bidx=1,
        )
        found = np.load(io.BytesIO(answer))
        stored = np.atleast_3d(written.values(level).T).T[0]
        stored = stored[::-1] if affine.e > 0 else stored
        np.testing.assert_array_equal(found[-1] <= 0, stored == case.variable.nodata)
        expected = stored.astype("f8") * (case.variable.scale_factor or 1) + (case.variable.add_offset or 0)
        there = found[-1] > 0
        np.testing.assert_allclose(found[0][there], expected[there], rtol=1e-6)
