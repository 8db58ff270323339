"""Targets by their endings: commands and functions make the file that a name promises, or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError, ZstoreError
from zstore.storage.kinds import KINDS, REFERENCES, kind_by_name
from zstore.storage.url import open_store

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
from zstore.cli.root import zstore as command  # noqa: E402

PLACE = {
    "proj:code": "EPSG:32633",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 500000, 0, -30, 3000000],
}
# Endings that nobody makes, slips, and those of all kinds of files.
ENDINGS = [
    *(ending for kind in KINDS for ending in kind.endings if ending not in (".zarr", ".zip")),
    *(".pmtile", ".NC", ".tif1", ".jsn"),
]
LINES = ["convert a.zarr {}", "copy a.zarr {}", "pyramid a.zarr {}", "reduce a.zarr/b {}", "mosaic a.zarr {}"]
CALLS = {
    "create_array": lambda target: zstore.create_array(target, shape=3, dtype="i4"),
    "create_group": zstore.create_group,
    "create_hierarchy": lambda target: dict(zstore.create_hierarchy(target, {"a": {}})),
    "open": lambda target: zstore.open(target, mode="a"),
    "open_array": lambda target: zstore.open_array(target, mode="w", shape=3, dtype="i4"),
    "open_group": lambda target: zstore.open_group(target, mode="w-"),
    "zeros": lambda target: zstore.zeros(3, store=target),
    "save": lambda target: zstore.save(target, np.arange(3)),
    "convert": lambda target: zstore.convert("a.zarr", target),
    "copy": lambda target: zstore.copy("a.zarr", target),
    "reduce": lambda target: zstore.reduce("a.zarr/b", "mean", out=target),
    "build_pyramid": lambda target: zstore.build_pyramid("a.zarr", target),
    "build_tile_pyramid": lambda target: zstore.build_tile_pyramid("a.zarr", target),
    "raster_to_zarr": lambda target: zstore.raster_to_zarr("a.tif", target),
    "rasters_to_zarr": lambda target: zstore.rasters_to_zarr(["a.tif"], target, stack="bands"),
}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    group = zstore.create_group("a.zarr", attributes=PLACE)
    group.create_array("b", data=np.arange(64.0).reshape(8, 8), dimension_names=["y", "x"])
    return tmp_path


def listed() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


def type_line(line: str) -> tuple[int, str]:
    result = testing.CliRunner().invoke(command, line.split())
    return result.exit_code, " ".join(result.stderr.split())


# What a command makes of its own of an ending.
MAKES = {
    ("convert", ".png"): "a PNG file",
    ("convert", ".pmtiles"): "an archive of tiles",
    ("convert", ".mbtiles"): "an archive of tiles",
    **{("convert", ending): "references" for ending in REFERENCES.endings},
    **{("convert", ending): "NetCDF-4" for ending in (".nc", ".nc4", ".cdf", ".netcdf", ".NC")},
    **{("convert", ending): "a GeoTIFF" for ending in (".tif", ".tiff", ".gtiff", ".geotiff")},
}


@pytest.mark.parametrize("line", LINES)
def test_a_command_makes_what_the_ending_promises_or_nothing(line, here):
    word = line.partition(" ")[0]
    before = listed()
    for ending in ENDINGS:
        if (word, ending) in MAKES:
            continue
        code, said = type_line(line.format(f"out{ending}"))
        assert code in (1, 2), (ending, said)
        assert "foresee" not in said
        assert "zstore " in said or "numpy" in said, (ending, said)
        assert listed() == before, ending


@pytest.mark.parametrize("name", CALLS)
def test_a_function_refuses_a_name_that_promises_something_else(name, here):
    if name.startswith("raster"):
        rasterio = pytest.importorskip("rasterio", reason="rasters are read with rasterio")
        place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500000, 0, -10, 3000000)}
        with rasterio.open("a.tif", "w", "GTiff", 8, 8, 1, dtype="uint8", **place) as raster:
            raster.write(np.ones((1, 8, 8), "u1"))
    before = listed()
    for ending in ENDINGS:
        with pytest.raises(StoreError, match=r"is the ending of|is nearly"):
            CALLS[name](f"out{ending}")
        assert listed() == before, ending
        with pytest.raises(StoreError):
            CALLS[name](Path("below") / f"out{ending}")
        assert listed() == before, ending


@pytest.mark.parametrize("ending", [ending for word, ending in MAKES if word == "convert"])
def test_convert_makes_the_file_that_another_command_makes(ending, here):
    if ending in (".pmtiles", ".mbtiles"):
        pytest.importorskip("zstore_serve", reason="tiles are made by zstore-serve")
    if ending in REFERENCES.endings:
        pytest.importorskip("zstore_virtual", reason="references are made by zstore-virtual")
    if "nc" in ending.lower() or ending in (".cdf", ".netcdf"):
        pytest.importorskip("h5netcdf", reason="NetCDF is written with h5netcdf")
    if "tif" in ending:
        pytest.importorskip("rasterio", reason="GeoTIFFs are written with rasterio")
    code, said = type_line(f"convert a.zarr out{ending}")
    assert code == 0, said
    assert Path(f"out{ending}").is_dir() is (ending in (".parq", ".parquet"))
    assert Path(f"out{ending}").exists()


def test_what_an_ending_takes_no_option_for_is_refused(here):
    code, said = type_line("convert a.zarr out.png --chunks 8")
    assert code == 2
    assert "--chunks does not go with a PNG file; `zstore quicklook --help` lists what does" in said


def test_a_geotiff_has_the_ending_of_one(here):
    pytest.importorskip("rasterio", reason="GeoTIFFs are written with rasterio")
    for name in ("out.zarr", "out.png", "out.nc"):
        with pytest.raises(StoreError, match=r"expected a GeoTIFF, named \*\.tif or \*\.tiff"):
            zstore.zarr_to_raster("a.zarr", name)
    assert listed() == {
        "a.zarr",
        *(f"a.zarr/{n}" for n in ("b", "zarr.json", "b/zarr.json", "b/c", "b/c/0", "b/c/0/0")),
    }


def test_other_endings_and_directories_that_are_there_are_free(here):
    for name in ("run-1.2", "model_v1.2", "scene.SAFE", "a.n6", ".hidden", "2024-01-01T00:00", "x.zarr3"):
        assert kind_by_name(name) is None
        zstore.create_group(name)
    Path("old.nc").mkdir()
    zstore.create_group("old.nc")
    assert zstore.open("old.nc", mode="r").members() == ()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("s3:/bucket/y.zarr", "s3://bucket/y.zarr"),
        ("gs:/bucket/y.zarr", "gs://bucket/y.zarr"),
        ("file:/tmp/y.zarr", "file:///tmp/y.zarr"),
    ],
)
def test_a_scheme_with_one_slash_is_no_directory(typed, meant, here):
    before = listed()
    for make in (make for name, make in CALLS.items() if not name.startswith("raster")):
        with pytest.raises(ZstoreError, match=meant):
            make(typed)
    for line in LINES:
        code, said = type_line(line.format(typed))
        assert code == 1
        assert f"did you mean '{meant}'?" in said
    with pytest.raises(ZstoreError, match=meant):
        zstore.open(typed)
    assert listed() == before


def test_a_directory_that_is_named_like_a_scheme_is_one(here):
    Path("s3:").mkdir()
    zstore.create_group("s3:/y.zarr")
    assert (here / "s3:" / "y.zarr").is_dir()


def test_new_stores_in_buckets_have_no_ending_of_other_files():
    with pytest.raises(StoreError, match=r"'\.nc' is the ending of a NetCDF file"):
        open_store("s3://bucket/out.nc", storage_options={"anon": "true"})


def test_a_raster_of_selected_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasters are written with rasterio")
    monkeypatch.chdir(tmp_path)
    data = np.arange(3 * 2 * 4 * 5, dtype="i2").reshape(3, 2, 4, 5)
    group = zstore.create_group("cube.zarr", attributes=PLACE)
    group.create_array("t", data=data, dimension_names=("time", "level", "y", "x"), attributes=PLACE)
    days = {"units": "days since 2020-05-31"}
    group.create_array("time", data=np.arange(3), dimension_names=["time"], attributes=days)
    group.create_array("level", data=np.array([500, 700]), dimension_names=["level"])

    def convert(line: str) -> tuple[int, str]:
        result = testing.CliRunner().invoke(command, f"convert cube.zarr {line}".split())
        return result.exit_code, result.stderr

    assert convert("june.tif --select time=2020-06,level=700")[0] == 0
    with rasterio.open("june.tif") as raster:
        np.testing.assert_array_equal(raster.read(), data[1:, 1])
    for line, said in {
        "other.tif --select level": "'level' is no selection, like time=2020-06,level=700",
        "other.tif --select level=1,level=2": "has a dimension twice",
        "other.tif --select level=600": "no item of 'level' is '600'; there are 500, 700",
    }.items():
        code, error = convert(line)
        assert (code != 0, said in " ".join(error.split())) == (True, True), error
        assert not Path(line.split()[0]).exists()
