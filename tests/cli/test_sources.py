"""Sources by what they are: commands and functions take every kind of file that holds arrays."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import NotFoundError, RasterWarning, ReadOnlyError, StoreError, ZstoreError
from zstore.nodes.array import Array

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
rasterio = pytest.importorskip("rasterio", reason="rasters are written with rasterio")
netCDF4 = pytest.importorskip("netCDF4", reason="NetCDF files are written with netCDF4")
pytest.importorskip("h5netcdf", reason="NetCDF-4 is read with h5netcdf")
xr = pytest.importorskip("xarray", reason="what is opened is compared by xarray (extra 'xarray')")
pytest.importorskip("zstore_virtual", reason="references are read by zstore-virtual")
from zstore.cli.root import zstore as command  # noqa: E402

from ..storage.bucket_server import BucketServer, forget_settings  # noqa: E402

ITEMS = np.arange(64 * 80, dtype="f4").reshape(64, 80)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One raster as every kind of file."""
    here = tmp_path_factory.mktemp("kinds")
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500000, 0, -10, 3000000)}
    with rasterio.open(here / "a.tif", "w", "GTiff", 80, 64, 1, dtype="float32", **place) as raster:
        raster.write(ITEMS, 1)
        raster.set_band_description(1, "t2m")
    shutil.copy(here / "a.tif", here / "raster")
    with pytest.warns(RasterWarning, match="has no nodata"):
        group = zstore.raster_to_zarr(here / "a.tif", here / "a.zarr")
    zstore.copy(here / "a.zarr", here / "a.zip")
    for kind, name in {"NETCDF4": "a.nc", "NETCDF3_64BIT_OFFSET": "classic.nc"}.items():
        with netCDF4.Dataset(here / name, "w", format=kind) as file:
            file.createDimension("y", 64)
            file.createDimension("x", 80)
            for axis in "xy":
                file.createVariable(axis, "f8", (axis,))[...] = group[axis][...]
                file[axis].setncatts({"units": "m", "standard_name": f"projection_{axis}_coordinate"})
            file.createVariable("t2m", "f4", ("y", "x"))[...] = ITEMS
            file["t2m"].grid_mapping = "spatial_ref"
            words = {k: v for k, v in group["spatial_ref"].attrs.items() if isinstance(v, str | float)}
            file.createVariable("spatial_ref", "i4", ()).setncatts(words)
    for number in range(2):
        part = xr.open_dataset(here / "a.nc", decode_cf=False).isel(y=slice(32 * number, 32 * number + 32))
        part.to_netcdf(here / f"half_{number}.nc")
    shutil.copy(here / "a.nc", here / "a.h5")
    shutil.copy(here / "a.nc", here / "netcdf")
    result = testing.CliRunner().invoke(command, ["convert", str(here / "a.nc"), str(here / "a.json")])
    assert result.exit_code == 0, result.stderr
    result = testing.CliRunner().invoke(command, ["convert", str(here / "a.nc"), str(here / "a.parquet")])
    assert result.exit_code == 0, result.stderr
    return here


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the files, which is the current one; each test has its own for what it makes."""
    monkeypatch.chdir(made)
    return made


KINDS = [
    *("a.zarr", "a.zip", "a.tif", "raster", "a.nc", "classic.nc", "a.h5", "netcdf", "a.json", "a.parquet"),
    "half_*.nc",
]
LINES = [
    "info {}",
    "tree {}",
    "info {} --json",
    "validate {} --json",
    "verify {}",
    "manifest {} -o {out}/m.sha256",
    "copy {} {out}/copied.zarr",
    "convert {} {out}/made.zarr",
    "convert {} {out}/made.tif",
    "convert {} {out}/made.png",
    "quicklook {} -o {out}/seen.png",
    "pyramid {} {out}/p.zarr --levels 1",
    "reduce {}/t2m",
    "reduce {}#t2m {out}/mean.zarr --axis y",
    "convert {}/t2m {out}/one.zarr",
    "info {}#/t2m",
    "fix {}",
]


def type_line(line: str) -> tuple[int, str]:
    result = testing.CliRunner().invoke(command, line.split())
    return result.exit_code, result.output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_command_takes_every_kind_of_source(kind: str, here: Path, tmp_path: Path) -> None:
    for line in LINES:
        code, said = type_line(line.format(kind, out=tmp_path))
        # The rules may find something to say.
        assert code == 0 or (line.startswith("validate") and code == 1), (line, said)
        assert "foresee" not in said, line
    for path in ("copied.zarr/t2m", "made.zarr/t2m", "one.zarr", "p.zarr/0/t2m"):
        np.testing.assert_array_equal(zstore.open(tmp_path / path)[...], ITEMS, err_msg=path)
    with rasterio.open(tmp_path / "made.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), ITEMS)
    np.testing.assert_allclose(zstore.open(tmp_path / "mean.zarr")[...], ITEMS.mean(0))


@pytest.mark.parametrize("kind", KINDS)
def test_every_function_that_opens_takes_every_kind(kind: str, here: Path) -> None:
    for target in (kind, Path(kind), (here / kind).as_uri()):
        group = zstore.open(target, mode="r")
        assert {"t2m", "x", "y"} <= {*group.keys()}
        np.testing.assert_array_equal(group["t2m"][...], ITEMS)
    for target in (f"{kind}/t2m", f"{kind}#t2m", f"{kind}#/t2m/"):
        array = zstore.open(target)
        assert isinstance(array, Array) and array.dims == ("y", "x")
        np.testing.assert_array_equal(array[3:5], ITEMS[3:5])
    np.testing.assert_array_equal(zstore.open_array(kind, "t2m", mode="r")[...], ITEMS)
    np.testing.assert_array_equal(zstore.to_dask(f"{kind}/t2m").compute(), ITEMS)
    with xr.open_dataset(kind, engine="zstore") as dataset:
        np.testing.assert_array_equal(dataset.t2m, ITEMS)
    with pytest.raises(NotFoundError):
        zstore.open(f"{kind}/nothing")
    if kind != "a.zarr" and kind != "a.zip":
        # A pattern would be the name of a new Zarr.
        with pytest.raises(StoreError if "*" in kind else ReadOnlyError):
            zstore.open_group(kind, mode="a")


def test_the_engine_takes_no_files_that_others_open(here: Path, tmp_path: Path) -> None:
    engine = xr.backends.list_engines()["zstore"]
    assert engine.guess_can_open("a.zarr") and engine.guess_can_open("s3://bucket/a.zarr")
    assert engine.guess_can_open(zstore.open("a.nc", mode="r"))
    shutil.copy("a.nc", tmp_path / "a.zarr")
    for name in ("a.nc", "a.tif", "raster", "a.h5", "a.json", "s3://bucket/a.nc", tmp_path / "a.zarr"):
        assert not engine.guess_can_open(name), name


def test_content_counts_before_the_ending(here: Path, tmp_path: Path) -> None:
    shutil.copy("a.tif", tmp_path / "wrong.nc")
    np.testing.assert_array_equal(zstore.open(tmp_path / "wrong.nc" / "t2m")[...], ITEMS)


def test_a_directory_of_such_a_name_is_a_zarr(tmp_path: Path) -> None:
    (tmp_path / "dir.nc").mkdir()
    group = zstore.create_group(tmp_path / "dir.nc")
    group.create_array("b.tif", data=np.arange(3))
    assert zstore.open(tmp_path / "dir.nc" / "b.tif")[...].tolist() == [0, 1, 2]


def test_what_is_nothing_says_so_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.json").write_text('{"a": 1}')
    Path("notes").write_text("nothing")
    for name in ("notes.json", "notes", "notes/t2m", "none.tif", "none.nc/t2m", "none#t2m"):
        with pytest.raises(ZstoreError):
            zstore.open(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "notes.json"]


def serve(here: Path, answer: Any) -> None:
    """Serve the files of a directory, in a process of its own: while GDAL waits, no thread runs."""
    with BucketServer() as server:
        files = [path for path in here.rglob("*") if path.is_file()]
        server.fill("/b/", {str(path.relative_to(here)): path.read_bytes() for path in files})
        answer.send(server.options())
        answer.recv()


@pytest.fixture(scope="module")
def served(made: Path) -> Iterator[dict[str, str]]:
    """The options that lead to a bucket "b" with the files, and to a web server beside it."""
    ours, theirs = multiprocessing.get_context("forkserver").Pipe()
    process = multiprocessing.get_context("forkserver").Process(
        target=serve, args=(made, theirs), daemon=True
    )
    process.start()
    theirs.close()
    yield ours.recv()
    ours.send(None)
    process.join()


def refusal(kind: str, place: str, line: str) -> str:
    """What the error says where a place cannot do it: what can, or why not."""
    if kind in ("a.json", "a.parquet") and line != "tree {}":
        return "a reference leads to '"  # a path of the machine that made it
    if place == "http" and kind == "a.zarr" and line.startswith(("manifest", "copy")):
        return "or convert in place of a copy"
    if kind in ("raster", "netcdf") and "{}/t2m" in line:
        is_listed = place == "s3" or line.startswith("reduce")
        return "no array or group there" if is_listed else "HTTP has no listing; expected"
    return "has no listing" if place == "http" and "*" in kind else ""


def try_lines(kind: str, place: str, lines: list[str], options: dict[str, str], out: Path) -> None:
    address = {"http": f"{options['endpoint_url']}/b/", "s3": "s3://b/"}[place] + kind
    said_how = [f"--storage-option={name}={value}" for name, value in options.items() if place == "s3"]
    for line in lines:
        words = line.format(address, out=out).split()
        result = testing.CliRunner().invoke(command, [*words, *said_how])
        refused = refusal(kind, place, line)
        codes = (1,) if "listing" in refused else (0, 1, 3) if refused else (0, line.startswith("validate"))
        assert result.exit_code in codes, (line, result.output)
        assert "foresee" not in result.output, line
        assert result.exit_code == 0 or refused in result.output, (line, result.output)
    for path in ("copied.zarr/t2m", "made.zarr/t2m", "one.zarr", "p.zarr/0/t2m"):
        if (out / path).exists():
            np.testing.assert_array_equal(zstore.open(out / path)[...], ITEMS, err_msg=path)
    if (out / "made.tif").exists():
        with rasterio.open(out / "made.tif") as raster:
            np.testing.assert_array_equal(raster.read(1), ITEMS)


PLACES = [(kind, place) for kind in KINDS for place in ("http", "s3")]


@pytest.mark.parametrize("number", range(len(PLACES)))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_commands_take_every_kind_from_servers(
    number: int, here: Path, served: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the commands of each; all in the long form."""
    forget_settings(monkeypatch, tmp_path)
    try_lines(*PLACES[number], LINES[number % 5 :: 5], served, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind, place", PLACES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_command_takes_every_kind_from_servers(
    kind: str,
    place: str,
    here: Path,
    served: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_settings(monkeypatch, tmp_path)
    try_lines(kind, place, LINES, served, tmp_path)
