"""zstore's own jobs, held to the contract of all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.testing.jobs import JobContract

CELLS = np.arange(40 * 40, dtype="u2").reshape(40, 40)
GROUND = {
    "proj:code": "EPSG:32632",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 6e5, 0, -30, 5e6],
}


class Zarrs(JobContract):
    """A job from a Zarr to a Zarr: what it has made is its chunks."""

    def arguments(self, place: Path) -> dict[str, object]:
        scene = zstore.create_group(place / "source", attributes=GROUND)
        said = {"_FillValue": 65535}
        scene.create_array("v", data=CELLS, chunks=10, dimension_names=["y", "x"], attributes=said)
        return {"source": str(place / "source"), "target": str(place / "target")}

    def outcome(self, place: Path) -> dict[str, bytes]:
        keys = (path.relative_to(place).as_posix() for path in place.rglob("target/**/c/**/*"))
        return {key: (place / key).read_bytes() for key in keys if (place / key).is_file()}


class TestCopy(Zarrs):
    name = "copy"


class TestConvert(Zarrs):
    name = "convert"


class TestPyramid(Zarrs):
    name = "build_pyramid"


class TestTilePyramid(Zarrs):
    name = "build_tile_pyramid"

    def arguments(self, place: Path) -> dict[str, object]:
        return {**super().arguments(place), "tile_matrix_set": "WebMercatorQuad", "nodata": 0}


class TestReduce(Zarrs):
    name = "reduce"

    def arguments(self, place: Path) -> dict[str, object]:
        found = super().arguments(place)
        return {"source": f"{found['source']}/v", "method": "max", "axis": "y", "out": found["target"]}


class TestRaster(Zarrs):
    name = "raster_to_zarr"

    def arguments(self, place: Path) -> dict[str, object]:
        pytest.importorskip("rasterio", reason="rasters are read with rasterio (extra 'raster')")
        made = super().arguments(place)
        zstore.zarr_to_raster(made["source"], place / "a.tif")
        return {"source": str(place / "a.tif"), "target": made["target"], "chunks": 10}


class TestRasters(TestRaster):
    name = "rasters_to_zarr"

    def arguments(self, place: Path) -> dict[str, object]:
        made = super().arguments(place)
        return {"sources": [made["source"]], "target": made["target"], "chunks": 10, "stack": "bands"}


class TestNetcdf(Zarrs):
    name = "netcdf_to_zarr"

    def arguments(self, place: Path) -> dict[str, object]:
        library = pytest.importorskip("h5netcdf.legacyapi", reason="NetCDF-4 needs h5netcdf (extra 'netcdf')")
        with library.Dataset(place / "a.nc", "w") as file:
            for name in ("y", "x"):
                file.createDimension(name, 40)
            file.createVariable("v", "u2", ("y", "x"))[...] = CELLS
        return {"source": str(place / "a.nc"), "target": str(place / "target"), "chunks": 10}
