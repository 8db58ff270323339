"""Files in buckets and on web servers, scanned by their headers: the same manifests, in few requests."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import entry_points
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import rasterio
import xarray as xr
from click.testing import CliRunner

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.forms import open_manifest, write_manifest
from zstore_virtual.manifest import Manifest
from zstore_virtual.scan import parts as scan_parts
from zstore_virtual.scan.command import virtualize as command
from zstore_virtual.scan.files import SMALL_SIZE, scan_file
from zstore_virtual.scan.origin import BLOCK_SIZE, FIRST_SIZE
from zstore_virtual.scan.virtualize import JOURNAL, virtualize
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import NotFoundError, StoreError, UnsupportedError

pytest.importorskip("tifffile", reason="tifffile is not installed")

_place = Path(__file__).parents[3] / "tests" / "storage" / "bucket_server.py"
_spec = importlib.util.spec_from_file_location("bucket_server", _place)
assert _spec is not None and _spec.loader is not None
bucket_server = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bucket_server)

NOISE = np.random.default_rng(5).integers(0, 1 << 15, (1024, 1024))


@pytest.fixture
def server() -> Iterator[Any]:
    with bucket_server.BucketServer() as served:
        yield served


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=NOISE.astype("i4"), chunks=(32, 32), compression="gzip", shuffle=True)
        file.create_dataset("names", data=["a", "bcd"], dtype=h5py.string_dtype())
        file["names"].attrs["note"] = "kept"


def write_cog(path: Path) -> None:
    told = {"driver": "COG", "count": 1, "height": 1024, "width": 1024, "dtype": "uint16", "blocksize": 128}
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500000, 0, -10, 3000000)}
    with rasterio.open(path, "w", **told, **place, compress="deflate", predictor=2) as raster:
        raster.write(NOISE.astype("u2")[None])
        raster.update_tags(made="here")


def write_classic(path: Path) -> None:
    """Its header alone is longer than what is fetched first."""
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("time", None)
        file.createDimension("x", 300)
        file.setncattr("history", "x" * (FIRST_SIZE + 7 * BLOCK_SIZE // 2))
        file.createVariable("a", "f8", ("time", "x"))[:] = NOISE[:20, :300]
        file.createVariable("b", "i2", ("x",))[:] = NOISE[0, :300]


def write_zarr(path: Path) -> None:
    group = zstore.create_group(path)
    group.create_array("below/a", data=NOISE[:64, :64], chunks=(16, 16), dimension_names=["y", "x"])


# The writer, and how many requests scanning takes at most: the first, and blocks of what lies further on.
KINDS = {
    "a.h5": (write_hdf5, 12),
    "a.tif": (write_cog, 2),
    "a.nc": (write_classic, 3),
}


def same(one: Manifest, other: Manifest) -> None:
    assert one.documents == other.documents and one.chunks.keys() == other.chunks.keys()
    for path, chunks in one.chunks.items():
        for name in ("grid", "source", "offset", "size", "inline"):
            assert np.array_equal(getattr(chunks, name), getattr(other.chunks[path], name)), (path, name)


@pytest.mark.parametrize("scheme", ["s3", "http"])
@pytest.mark.parametrize("name", KINDS)
def test_a_remote_file_is_scanned_by_its_header(tmp_path: Path, server: Any, name: str, scheme: str) -> None:
    """Whatever it holds: offsets are those of the file here, and chunks are not fetched."""
    write, most = KINDS[name]
    write(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    server.values[f"/bucket/in/{name}"] = data
    top = f"{server.url}/bucket/in" if scheme == "http" else "s3://bucket/in"
    options = server.options() if scheme == "s3" else None
    manifest = virtualize(f"{top}/{name}", storage_options=options)
    assert {path for _, path in server.requests} == {f"/bucket/in/{name}"}
    assert len(server.requests) <= most
    here = virtualize(tmp_path / name)
    same(manifest, here)
    kept = scan_file(f"{top}/{name}", storage_options=options, keeps_small=True)
    assert all(
        len(chunks.inline) <= SMALL_SIZE + len(here.chunks[p].inline) for p, chunks in kept.chunks.items()
    )
    server.requests.clear()
    beside = VirtualStore(kept, allow=[top], remote_options=options)
    for path, chunks in kept.chunks.items():
        expected = zstore.open_array(VirtualStore(here, allow=[tmp_path]), path)[...]
        if not (chunks.source >= 0).any():
            np.testing.assert_array_equal(zstore.open_array(beside, path)[...], expected)
    assert not server.requests
    source = manifest.sources[0]
    assert (source.address, source.size) == (f"{top}/{name}", len(data))
    assert source.modified is None and source.tag == server.tag(f"/bucket/in/{name}")
    write_manifest(manifest, tmp_path / "far.json")
    store = VirtualStore(open_manifest(tmp_path / "far.json"), allow=[top], remote_options=options)
    near = VirtualStore(here, allow=[tmp_path])
    for path in manifest.chunks:
        expected = zstore.open_array(near, path)[...]
        np.testing.assert_array_equal(zstore.open_array(store, path)[...], expected)
    server.values[f"/bucket/in/{name}"] = data[:-1] + b"?"
    server.tags[f"/bucket/in/{name}"] = '"another"'
    fresh = VirtualStore(open_manifest(tmp_path / "far.json"), allow=[top], remote_options=options)
    path = next(path for path, chunks in manifest.chunks.items() if (chunks.source >= 0).any())
    with pytest.raises(StoreError, match="has changed"):
        zstore.open_array(fresh, path)[...]


def write_netcdf4(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 300)
        file.createVariable("a", "f4", ("x",), zlib=True, chunksizes=(50,))[:] = NOISE[0, :300]


# All that is scanned, by its name.
SCANNED = {
    "a.h5": write_hdf5,
    "a.nc4": write_netcdf4,
    "a.nc": write_classic,
    "a.tif": write_cog,
    "a.zarr": write_zarr,
}
PLACES = ("local", "http", "s3")
CHANGES = ("same size", "shorter", "longer", "replaced", "gone")


@pytest.mark.parametrize("form", ["json", "parq"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("name", "where"),
    # A web server has no hierarchies: it does not list.
    [(name, where) for name in SCANNED for where in PLACES if (name, where) != ("a.zarr", "http")],
)
def test_a_changed_source_is_an_error(
    tmp_path: Path, server: Any, name: str, where: str, change: str, form: str
) -> None:
    """Of every scanner, wherever the source is: for who has the manifest open, and for who opens it then."""
    here = tmp_path / "in"
    here.mkdir()
    SCANNED[name](here / name)
    files = [path for path in (here / name).rglob("*") if path.is_file()] or [here / name]
    top = {"local": str(here), "http": f"{server.url}/bucket/in", "s3": "s3://bucket/in"}[where]
    remote = server.options() if where == "s3" else None
    server.values = {f"/bucket/in/{path.relative_to(here)}": path.read_bytes() for path in files}
    write_manifest(virtualize(f"{top}/{name}", storage_options=remote), tmp_path / f"made.{form}")

    def open_arrays() -> list[Any]:
        store = VirtualStore(open_manifest(tmp_path / f"made.{form}"), allow=[top], remote_options=remote)
        there = [path for path, chunks in store.manifest.chunks.items() if (chunks.source >= 0).any()]
        return [zstore.open_array(store, path) for path in there]

    kept = open_arrays()
    expected = [array[...] for array in kept]
    # Of a hierarchy, a chunk; documents are in the manifest.
    changed = next(path for path in files if len(files) == 1 or "c" in path.parts)
    key, old, facts = f"/bucket/in/{changed.relative_to(here)}", changed.read_bytes(), changed.stat()
    new = {"shorter": old[:-1], "longer": old + b"x", "gone": None}.get(
        change, old[:-1] + bytes([old[-1] ^ 1])
    )
    aside = tmp_path / "aside"
    aside.write_bytes(new or b"")
    if new is None:
        changed.unlink()
        del server.values[key]
    else:
        server.values[key], server.tags[key] = new, f'"{change}"'
        if change == "replaced":
            aside.replace(changed)
        else:
            changed.write_bytes(new)
        is_seen = change in ("same size", "replaced")
        os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns + is_seen))
    source = f"{top}/{changed.relative_to(here)}"
    for array in [*kept, *open_arrays()]:
        with pytest.raises(StoreError) as caught:
            array[...]
        assert source in str(caught.value)
    changed.write_bytes(old)
    os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    server.values[key] = old
    server.tags.pop(key, None)
    for array, items in zip(open_arrays(), expected, strict=True):
        np.testing.assert_array_equal(array[...], items)


def test_a_hierarchy_in_a_bucket(tmp_path: Path, server: Any) -> None:
    write_zarr(tmp_path / "z")
    for file in (tmp_path / "z").rglob("*"):
        if file.is_file():
            server.values[f"/bucket/{file.relative_to(tmp_path)}"] = file.read_bytes()
    options = server.options()
    for url in ("s3://bucket/z", "s3a://bucket/z/"):
        server.requests.clear()
        manifest = virtualize(url, storage_options=options)
        same(manifest, virtualize(tmp_path / "z"))
        assert not any("/c/" in path for _, path in server.requests)
        store = VirtualStore(manifest, allow=["s3://bucket/z"], remote_options=options)
        np.testing.assert_array_equal(zstore.open_array(store, "below/a")[...], NOISE[:64, :64])
    assert manifest.sources[0].tag == server.tag("/bucket/z/below/a/c/0/0")
    with pytest.raises(NotFoundError):
        virtualize("s3://bucket/none", storage_options=options)
    server.values["/bucket/text"] = b"no such thing"
    with pytest.raises(UnsupportedError, match="no s"):
        virtualize("s3://bucket/text", storage_options=options)


def write_days(place: Path, count: int) -> list[Path]:
    paths = []
    for day in range(count):
        made = xr.Dataset(
            {"t": (("time", "y", "x"), NOISE[:10, :12].astype("f4")[None] + day)},
            {"time": [np.datetime64("2000-01-01", "ns") + np.timedelta64(day, "D")], "y": range(10),
             "x": range(12), "lat": (("y", "x"), NOISE[:10, :12] / 7)},
        )  # fmt: skip
        made["time"].encoding = {"units": "days since 2000-01-01", "dtype": "i4"}
        paths.append(place / f"{day:02}.nc")
        made.to_netcdf(paths[-1], engine="h5netcdf", unlimited_dims=["time"])
    return paths


def test_a_pattern_in_a_bucket_appended_daily(tmp_path: Path, server: Any) -> None:
    """By the command; what is held is looked at once, and nothing is scanned twice."""
    paths = write_days(tmp_path, 4)
    for path in paths[:3]:
        server.values[f"/bucket/days/{path.name}"] = path.read_bytes()
    server.values["/bucket/days/below/00.nc"] = b"of another directory"
    target = tmp_path / "all.json"
    told = server.options()
    options = [word for name, value in told.items() for word in ("--storage-option", f"{name}={value}")]
    asked = ["s3://bucket/days/*.nc", str(target), "--concat", "time", *options]
    made = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert made.exit_code == 0 and "3 files" in made.output
    server.values[f"/bucket/days/{paths[3].name}"] = paths[3].read_bytes()
    server.requests.clear()
    more = [*asked, "--append", "--allow", "s3://bucket/days"]
    made = CliRunner().invoke(command, more, catch_exceptions=False)
    assert "4 files, 1 new" in made.output
    once = [path for _, path in server.requests if path.endswith(("00.nc", "01.nc"))]
    assert once.count("/bucket/days/01.nc") == 1
    there = {"allow": ["s3://bucket/days"], "remote_options": told}
    got = xr.open_dataset(f"virtual://{target}", engine="zstore", storage_options=there)
    with xr.open_mfdataset(paths, combine="nested", concat_dim="time", data_vars="minimal") as expected:
        xr.testing.assert_equal(got.load(), expected.load())
    server.tags["/bucket/days/01.nc"] = '"another"'
    refused = CliRunner().invoke(command, more)
    assert isinstance(refused.exception, StoreError) and "01.nc" in str(refused.exception)
    with pytest.raises(NotFoundError, match="no file matches"):
        virtualize("s3://bucket/days/*.h5", storage_options=told)


def test_a_file_that_changes_or_fails_while_it_is_scanned_is_an_error(
    tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one of HDF5 or GDAL, which lose what their files say."""
    write_hdf5(tmp_path / "a.h5")
    server.values["/bucket/a.h5"] = (tmp_path / "a.h5").read_bytes()
    answer, count = server.answer, 0

    def changed(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            server.tags["/bucket/a.h5"] = '"another"'
        return answer(*args)

    monkeypatch.setattr(server, "answer", changed)
    with pytest.raises(StoreError, match="has changed while it was scanned") as caught:
        virtualize("s3://bucket/a.h5", storage_options=server.options())
    assert "s3://bucket/a.h5" in str(caught.value)
    count = 0

    def forbidden(*args: Any) -> Any:
        nonlocal count
        count += 1
        server.allowed = "" if count < 3 else "/none"
        return answer(*args)

    monkeypatch.setattr(server, "answer", forbidden)
    with pytest.raises(StoreError, match=r"a\.h5") as caught:
        virtualize("s3://bucket/a.h5", storage_options=server.options())
    assert caught.value.is_denied


@pytest.mark.parametrize("name", ["all.json", "all.parquet"])
def test_a_signature_that_is_written_is_warned_of(tmp_path: Path, name: str) -> None:
    manifest = Manifest()
    manifest.add_source("https://host/a.nc?sig=SECRET&part=1")
    with pytest.warns(UserWarning, match=r"a\.nc\?sig=\.\.\.&part=1' is written in full") as told:
        write_manifest(manifest, tmp_path / name)
    assert "SECRET" not in str(told[0].message)


def test_an_interrupted_scan_goes_on_with_unchanged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_days(tmp_path, 6)
    target = tmp_path / "all.json"
    expected = virtualize(paths, concat="time")
    scanned: list[str] = []
    scan = scan_parts.scan_file

    def count(path: str, **options: Any) -> Manifest:
        scanned.append(Path(path).name)
        return scan(path, **options)

    monkeypatch.setattr(scan_parts, "scan_file", count)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    def interrupted() -> set[str]:
        """What is not scanned again afterwards."""
        with pytest.raises(KeyboardInterrupt):
            virtualize(paths, target, concat="time", progress=stop)
        assert not target.exists() and (tmp_path / f"all.json{JOURNAL}").is_dir()
        [work] = zstore.verify(tmp_path).unfinished
        assert work.path == f"all.json{JOURNAL}" and "zstore_virtual.virtualize(" in work.again
        scanned.clear()
        same(virtualize(paths, target, concat="time"), expected)
        same(open_manifest(target), expected)
        assert not (tmp_path / f"all.json{JOURNAL}").exists()
        target.unlink()
        return {path.name for path in paths} - {*scanned}

    assert len(interrupted()) >= 4

    def other(done: int, total: int) -> None:
        if done == 6:
            paths[0].touch()
            raise KeyboardInterrupt

    stop_first, stop = stop, other
    known = interrupted()
    assert known == {path.name for path in paths[1:]}
    stop = stop_first
    with pytest.raises(KeyboardInterrupt):
        virtualize(paths, target, concat="time", progress=stop)
    for file in (tmp_path / f"all.json{JOURNAL}").rglob("*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
    same(virtualize(paths, target, concat="time"), virtualize(paths, concat="time"))


@pytest.mark.parametrize("words", [{"concat": "time"}, {"stack_along": "run"}])
def test_scans_in_processes_make_the_same_manifest(tmp_path: Path, words: dict[str, str]) -> None:
    paths = write_days(tmp_path, 3)
    if "stack_along" in words:
        paths = [path.rename(tmp_path / f"run{n}.nc") for n, path in enumerate(write_runs(tmp_path))]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        same(virtualize(paths, executor=pool, **words), virtualize(paths, **words))


def write_runs(place: Path) -> list[Path]:
    [path] = write_days(place, 1)
    (place / "second").write_bytes(path.read_bytes())
    return [path, place / "second"]
