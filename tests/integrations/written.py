"""Stores of every kind, as zstore writes them, for the tests of what readers make of them."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Affine, Band, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.timeaxis import TimeAxis
from zstore.geo.conventions.write import render_geo

LEVELS = 3
SHAPE = (200, 173)
TILE = 64
UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
DEGREES = Affine(0.01, 0.0, 10.0, 0.0, -0.01, 50.0)
U2 = Variable(np.dtype("u2"), nodata=0, long_name="digital number", area_or_point="Area")
F4 = Variable(np.dtype("f4"), nodata=-9999.0, units="K", standard_name="air_temperature")
PACKED = Variable(np.dtype("i2"), nodata=-32768, scale_factor=0.01, add_offset=273.15, units="K")
CLASSES = Variable(
    np.dtype("u1"), nodata=255, flag_values=(1, 2, 3), flag_meanings=("water", "land", "cloud"),
    long_name="class",
)  # fmt: skip
RED, NIR = Band("B04", common_name="red", wavelength=0.665), Band("B08", common_name="nir", wavelength=0.842)
TIME = TimeAxis.from_dates(["2024-02-28", "2024-02-29", "2024-03-01"])


@dataclass(frozen=True)
class Case:
    """One store: where it is, and what its arrays hold."""

    crs: str
    affine: Affine
    variables: dict[str, Variable]
    time: TimeAxis | None = None
    dimensions: tuple[str, str] = ("y", "x")
    shard: int | None = None

    @property
    def name(self) -> str:
        """The array that the readers are asked for."""
        return next(iter(self.variables))

    @property
    def variable(self) -> Variable:
        return self.variables[self.name]


CASES = {
    "projected": Case("EPSG:32632", UTM, {"dn": U2}),
    "geographic": Case("EPSG:4326", DEGREES, {"t2m": F4}, dimensions=("lat", "lon")),
    "northing first": Case("EPSG:2193", UTM._replace(c=1500000.0), {"dn": U2}),
    "south-up": Case("EPSG:32632", Affine(10.0, 0.0, 300000.0, 0.0, 10.0, 4990000.0), {"dn": U2}),
    "time": Case(
        "EPSG:4326", DEGREES, {"t2m": replace(F4, dimensions=("time", "y", "x"))}, TIME
    ),
    "bands": Case("EPSG:32632", UTM, {"B04": replace(U2, bands=(RED,)), "B08": replace(U2, bands=(NIR,))}),
    "packed": Case("EPSG:32632", UTM, {"sst": PACKED}),
    "categorical": Case("EPSG:32632", UTM, {"scl": CLASSES}),
    "sharded": Case("EPSG:32632", UTM, {"dn": U2}, shard=2 * TILE),
}  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A store on disk, and what zstore itself says that is there."""

    case: Case
    path: str
    zarr_format: int
    geo: GeoModel

    def values(self, level: str) -> np.ndarray:
        array = zstore.open_array(self.path, f"{level}/{self.case.name}", mode="r")
        return array[...]


def fill(variable: Variable, shape: tuple[int, ...]) -> np.ndarray:
    values = (np.arange(np.prod(shape)).reshape(shape) * 7 % 3 + 1).astype(variable.dtype)
    values[..., :9, :13] = variable.nodata
    return values


def write(case: Case, path: Path, zarr_format: int, profile: str | None = None) -> Written:
    geo = GeoModel(
        Crs.from_user(case.crs), case.affine, SHAPE, case.dimensions, variables=case.variables, time=case.time
    )
    documents, notices = render_geo(geo, zarr_format, profile=profile)
    assert notices == [] or profile in ("ome", "multiscale-arrays")
    root = zstore.create_group(path, zarr_format=zarr_format)
    base = root.create_group("0", attributes=documents.pop("")["attributes"])
    codec = "zlib" if zarr_format == 2 else "gzip"
    for name, document in documents.items():
        variable = case.variables.get(name)
        dims = document["dimension_names"]
        sizes = {"time": 0 if case.time is None else case.time.values.size}
        sizes |= dict(zip(case.dimensions, SHAPE, strict=True))
        data = document.get("data")
        data = fill(variable, tuple(sizes[dim] for dim in dims)) if variable is not None else data
        chunks = [TILE if dim in case.dimensions and len(dims) > 1 else sizes.get(dim) for dim in dims]
        base.create_array(
            name,
            data=data,
            chunks=tuple(chunks) or "auto",
            shards=case.shard if variable is not None else None,
            compressors=codec,
            fill_value=document["fill_value"],
            attributes=document["attributes"],
            dimension_names=dims,
        )
    zstore.build_pyramid(base, root, levels=LEVELS - 1, profile=profile, shards=case.shard or "auto")
    found, findings = read_geo(zstore.open_group(path, mode="r"))
    assert [finding for finding in findings if finding.severity != "note"] == []
    return Written(case, str(path), zarr_format, found)


EVERY_STORE = [
    pytest.param(name, version, id=f"{name}, v{version}")
    for name, case in CASES.items()
    for version in (2, 3)
    if version == 3 or case.shard is None
]
each_store = pytest.mark.parametrize(("name", "zarr_format"), EVERY_STORE)


def expected_levels(written: Written) -> Iterator[tuple[str, Affine, tuple[int, int]]]:
    """The path, affine and shape of each level."""
    for level in written.geo.levels:
        yield level.path, level.affine, level.shape


def gdal_name(written: Written, path: str) -> str:
    """One raster; of a cube, the first moment."""
    moment = ":0" if written.case.time is not None else ""
    return f'ZARR:"{written.path}":/{path}/{written.case.name}{moment}'


def gdal_cannot_open(written: Written, version: tuple[int, ...]) -> str | None:
    """What of the store a GDAL of that version does not know, by its own list of changes."""
    if written.zarr_format == 3 and version < (3, 11):
        return "cannot open Zarr v3 as it is now"
    if written.case.shard is not None and version < (3, 13):
        return "has no codec for shards"
    return None


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of a folder, on loopback."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def in_openlayers(urls: list[str]) -> list[dict[str, Any]]:
    """What OpenLayers makes of the band at each URL, "STORE#BAND"; skips where there is none."""
    modules, node = os.environ.get("ZSTORE_OPENLAYERS"), shutil.which("node")
    if not modules or node is None:
        pytest.skip("ZSTORE_OPENLAYERS names no node_modules with OpenLayers, or there is no node")
    script = Path(__file__).parent / "readers" / "openlayers.mjs"
    result = subprocess.run(
        [node, script, Path(modules).resolve(), *urls], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def free_port() -> int:
    """A port on loopback that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


__all__ = [
    "CASES", "EVERY_STORE", "SHAPE", "TILE", "Case", "Written", "each_store", "expected_levels", "free_port",
    "gdal_cannot_open", "gdal_name", "in_openlayers", "serving", "write",
]  # fmt: skip
