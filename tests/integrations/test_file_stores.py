"""Rasters and NetCDF files as stores: read as the Zarr that they are converted to, and made pyramids of."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command
from zstore.engine.intents import find_unfinished
from zstore.errors import ChangedError, MetadataError, NotFoundError, ReadOnlyError, StoreError
from zstore.geo.rasters import netcdf_to_zarr, raster_to_zarr
from zstore.geo.rasters.joined import JoinedStore
from zstore.geo.rasters.netcdf import NetcdfStore
from zstore.geo.rasters.raster import RasterBand, RasterStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store
from zstore.testing.stores import StoreContract
from zstore.views.view import ViewStore

rasterio = pytest.importorskip("rasterio", reason="rasters are read with rasterio")
xr = pytest.importorskip("xarray", reason="NetCDF files are written with xarray")
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

SHAPE = (400, 320)


class TestRaster(StoreContract):
    """Of documents alone; the other tests are of chunks. The kinds differ in how they are opened."""

    can_write = False
    can_reopen = False
    kinds = (RasterStore, NetcdfStore, ViewStore, JoinedStore)

    def make_store(self, place: Path) -> Any:
        return self.make_store_with(place, {})

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Any:
        documents = MemoryStore()
        for key, value in values.items():
            documents.put(key, value)
        return self.kinds[len(values) % 4](f"raster://{place}/a.tif", documents, {})


@pytest.fixture
def raster(tmp_path: Path) -> Path:
    """Two bands, with nodata, a scale and a description."""
    items = np.random.default_rng(5).integers(0, 3000, (2, *SHAPE)).astype("uint16")
    items[0, :100, 50:120] = 65535
    profile = {"driver": "GTiff", "crs": "EPSG:32633", "nodata": 65535, "dtype": "uint16", "count": 2}
    profile |= {"height": SHAPE[0], "width": SHAPE[1], "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 4e6)}
    with rasterio.open(tmp_path / "a.tif", "w", **profile, tiled=True, blockxsize=64, blockysize=128) as file:
        file.write(items)
        file.scales = (0.1, 1.0)
        file.set_band_description(1, "red")
    return tmp_path / "a.tif"


@pytest.fixture(params=["NETCDF4", "NETCDF3_64BIT"])
def netcdf(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A packed variable of time, latitude and longitude."""
    axes = {"lat": np.linspace(60, 40.1, 200), "lon": np.linspace(0, 24.9, 250), "time": [0, 6, 12]}
    items = np.random.default_rng(6).normal(280, 5, (3, 200, 250))
    made = xr.Dataset({"t2m": (("time", "lat", "lon"), items, {"units": "K"})}, axes)
    for name, units in {
        "lat": "degrees_north",
        "lon": "degrees_east",
        "time": "hours since 2000-01-01",
    }.items():
        made[name].attrs["units"] = units
    packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4", format=request.param, encoding={"t2m": packing})
    return tmp_path / "a.nc"


def nodes(group: zstore.Group) -> dict[str, Any]:
    """The items, fill value and attributes of all arrays of a group, and the attributes of its groups."""
    found: dict[str, Any] = {}
    for path, node in group.members(max_depth=None):
        said = {name: value for name, value in node.attrs.items() if name != "zstore"}
        found[path] = (
            (node[...].tobytes(), node.dtype, repr(node.fill_value), node.chunks, node.dims, said)
            if isinstance(node, zstore.Array)
            else said
        )
    return found


def test_a_raster_is_read_as_what_is_made_of_it(raster: Path, tmp_path: Path) -> None:
    opened = zstore.open(f"raster://{raster}")
    assert isinstance(opened, zstore.Group)
    assert nodes(opened) == nodes(raster_to_zarr(raster, tmp_path / "z"))
    with rasterio.open(raster) as file:
        np.testing.assert_array_equal(opened["red"][90:130:3, 100:], file.read(1)[90:130:3, 100:])
    with pytest.raises(ReadOnlyError):
        opened.attrs["a"] = 1
    with pytest.raises(NotFoundError, match="no raster there"):
        zstore.open(f"raster://{tmp_path}/none.tif")
    for url, options in (("raster://", None), (f"raster://{raster}", {"a": 1})):
        with pytest.raises(StoreError, match=r"expected raster://PATH|takes no storage options"):
            open_store(url, storage_options=options)


@pytest.mark.filterwarnings("ignore:warning OC-09")
def test_a_netcdf_file_is_read_as_what_is_made_of_it(netcdf: Path, tmp_path: Path) -> None:
    opened, made = zstore.open(f"netcdf://{netcdf}"), netcdf_to_zarr(netcdf, tmp_path / "z")
    assert isinstance(opened, zstore.Group) and nodes(opened) == nodes(made)
    assert isinstance(opened.store, NetcdfStore)
    expected = nodes(zstore.build_pyramid(made, tmp_path / "expected", levels=2))
    assert nodes(zstore.build_pyramid(opened, tmp_path / "p", levels=2)) == expected
    one = zstore.build_pyramid(opened["t2m"], tmp_path / "one", levels=1, copy_base=True)
    assert nodes(one)["1/t2m"] == expected["1/t2m"]
    with pytest.raises(NotFoundError, match="no file there"):
        zstore.open(f"netcdf://{tmp_path}/none.nc")


def test_levels_of_a_raster_are_those_of_its_conversion_and_gdals(raster: Path, tmp_path: Path) -> None:
    made = zstore.build_pyramid(f"raster://{raster}", tmp_path / "p", levels=2, derive="cascade")
    stored = raster_to_zarr(raster, tmp_path / "z")
    assert nodes(made) == nodes(zstore.build_pyramid(stored, tmp_path / "q", levels=2, derive="cascade"))
    with rasterio.open(raster, "r+") as file:
        file.build_overviews([2, 4], rasterio.enums.Resampling.average)
    for level in (0, 1):
        with rasterio.open(raster, overview_level=level) as file:
            for band, name in enumerate(("red", "band_2"), 1):
                np.testing.assert_array_equal(made[f"{level + 1}/{name}"][...], file.read(band))


@pytest.mark.filterwarnings("ignore:warning OC-09")
def test_pyramids_are_made_of_files_by_their_paths(netcdf: Path, raster: Path, tmp_path: Path) -> None:
    of_variable = zstore.build_pyramid(f"{netcdf}/t2m", tmp_path / "v", levels=1, copy_base=True)
    assert of_variable["1/t2m"].shape == (3, 100, 125) and of_variable["1/t2m"].attrs["units"] == "K"
    result = CliRunner().invoke(command, ["pyramid", str(raster), str(tmp_path / "p"), "--levels", "1"])
    assert result.exit_code == 0, result.output
    expected = nodes(zstore.build_pyramid(f"raster://{raster}", tmp_path / "q", levels=1))
    assert nodes(zstore.open_group(tmp_path / "p")) == expected
    with rasterio.open(raster, "r+") as file:
        file.write(np.zeros((64, 64), "uint16"), 1, window=((0, 64), (0, 64)))
    updated = zstore.update_pyramid(tmp_path / "p", {"y": slice(0, 64), "x": slice(0, 64)}, source=raster)
    assert nodes(updated) == nodes(zstore.build_pyramid(raster, tmp_path / "anew", levels=1))
    with pytest.raises(StoreError, match=r"raster|read"):
        zstore.build_pyramid(updated, raster, levels=1)


@pytest.mark.parametrize("build", [zstore.build_pyramid, zstore.build_tile_pyramid])
def test_processes_and_memory(raster: Path, tmp_path: Path, build: Callable[..., zstore.Group]) -> None:
    expected = build(f"raster://{raster}", tmp_path / "a")
    with ProcessPoolExecutor(2, get_context("forkserver")) as pool:
        made = build(f"raster://{raster}", tmp_path / "b", executor=pool, memory=8 << 20)
    stores = [{key: one.store.get(key) for key in one.store.list()} for one in (expected, made)]
    assert stores[0] == stores[1] and len(stores[0]) > 10
    estimate: Any = build(f"raster://{raster}", tmp_path / "c", dry_run=True)
    assert estimate.unit_count > 0 and not (tmp_path / "c").exists()
    with pytest.raises(MetadataError, match="memory is 10 bytes; expected at least"):
        build(f"raster://{raster}", tmp_path / "c", memory=10)


def test_an_interrupted_pyramid_goes_on(
    raster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, read, boxes = f"raster://{raster}", RasterBand.read, list[Any]()

    def failing(self: RasterBand, box: Any, out: Any = None) -> Any:
        boxes.append(box)
        if len(boxes) == 2:
            raise StoreError("unplugged")
        return read(self, box, out)

    monkeypatch.setattr(RasterBand, "read", failing)
    monkeypatch.setenv("ZSTORE_THREADS", "1")
    with pytest.raises(StoreError, match="unplugged"):
        zstore.build_pyramid(url, tmp_path / "p", levels=1, resume=True)
    [left] = find_unfinished(open_store(tmp_path / "p"), "")
    assert "building of a pyramid" in str(left)
    made = zstore.build_pyramid(url, tmp_path / "p", levels=1, resume=True)
    assert len(boxes) == 3  # one band was made before the interruption
    assert nodes(made) == nodes(zstore.build_pyramid(url, tmp_path / "q", levels=1))
    boxes = [()] * 3
    zstore.build_pyramid(url, tmp_path / "p", levels=1, resume=True)
    assert len(boxes) == 3  # nothing has changed
    items = made["0/red"][...]
    with rasterio.open(raster, "r+") as file:
        file.write(np.zeros((64, 64), "uint16"), 1, window=((0, 64), (0, 64)))
    items[:64, :64] = 0
    again = zstore.build_pyramid(url, tmp_path / "p", levels=1, resume=True)
    np.testing.assert_array_equal(again["0/red"][...], items)


def test_a_raster_that_is_written_meanwhile_makes_no_pyramid(
    raster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = RasterBand.read

    def writing(self: RasterBand, box: Any, out: Any = None) -> Any:
        items = read(self, box, out)
        with rasterio.open(raster, "r+") as file:
            file.update_tags(a="b")
        return items

    monkeypatch.setattr(RasterBand, "read", writing)
    with pytest.raises(ChangedError):
        zstore.build_pyramid(f"raster://{raster}", tmp_path / "p", levels=1)
    with pytest.raises(NotFoundError):
        zstore.open(tmp_path / "p")


def test_n5_becomes_zarr_that_all_read(tmp_path):
    tensorstore = pytest.importorskip("tensorstore", reason="tensorstore writes N5")
    metadata = {
        "dimensions": [300, 200], "blockSize": [64, 64], "dataType": "uint16", "axes": ["x", "y"],
        "compression": {"type": "gzip"},
    }  # fmt: skip
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{tmp_path}/a.n5/dn/"}}
    items = np.random.default_rng(5).integers(0, 3000, (200, 300)).astype("uint16")
    tensorstore.open({**spec, "metadata": metadata}, create=True).result()[...] = items.T
    assert zstore.verify(tmp_path / "a.n5").damages == []
    usual = zstore.create_array(MemoryStore(), data=items).model.codecs
    made = {
        zarr_format: zstore.convert(tmp_path / "a.n5", MemoryStore(), zarr_format=zarr_format, check=True)[
            "dn"
        ]
        for zarr_format in (2, 3)
    }
    made["pyramid"] = zstore.build_pyramid(tmp_path / "a.n5", MemoryStore(), levels=1)["0/dn"]
    with xr.open_dataset(tmp_path / "a.n5") as opened:
        opened.to_zarr(tmp_path / "x.zarr", zarr_format=3, consolidated=False)
    made["xarray"] = zstore.open_array(tmp_path / "x.zarr", "dn")
    for way, array in made.items():
        np.testing.assert_array_equal(array[...], items, strict=True)
        assert array.dims == ("y", "x")
        assert "n5_default" not in [codec.name for codec in array.model.codecs], way
    assert made[3].model.codecs == made["pyramid"].model.codecs == usual
