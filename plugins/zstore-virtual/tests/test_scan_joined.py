"""Many files as one array: what xarray makes of all files, read lazily through references to them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
import xarray as xr
from click.testing import CliRunner

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.forms import open_manifest, write_manifest
from zstore_virtual.manifest import Manifest
from zstore_virtual.scan import parts
from zstore_virtual.scan.command import virtualize as command
from zstore_virtual.scan.virtualize import virtualize
from zstore_virtual.store import VirtualStore

import zstore
from zstore.cli.root import zstore as root_command
from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError, ZstoreError
from zstore.model.grid import RectilinearGrid
from zstore.testing.commands import CommandContract


class TestVirtualize(CommandContract):
    name = "virtualize"


def write_days(place: Path, lengths: Sequence[int], **options: Any) -> list[Path]:
    """Files of so many days each, one after the other."""
    paths, begin = [], 0
    units = options.pop("units", lambda number: "days since 2000-01-01")
    unlimited = ["time"] if options.pop("unlimited", True) else None
    shape = options.pop("shape", (20, 30))
    kind = options.pop("format", "NETCDF4")
    for number, length in enumerate(lengths):
        days = np.datetime64("2000-01-01", "ns") + np.arange(begin, begin + length) * np.timedelta64(1, "D")
        begin += length
        values = np.random.default_rng(number).random((length, *shape)).astype("f4")
        made = xr.Dataset(
            {"t2m": (("time", "y", "x"), values, {"units": "K"}), "crs": ((), 1, {"grid_mapping_name": "x"})},
            {"time": days, "y": np.arange(float(shape[0])), "x": np.arange(float(shape[1]))},
            {"title": "trial", "number": number},
        )
        paths.append(place / f"{number:03}.nc")
        encoding: dict[str, Any] = {"t2m": options, "time": {"units": units(number), "dtype": "i4"}}
        made.to_netcdf(paths[-1], format=kind, unlimited_dims=unlimited, encoding=encoding)
    return paths


def compare(manifest: Manifest, place: Path, paths: Sequence[Path]) -> VirtualStore:
    store = VirtualStore(manifest, allow=[place])
    got = xr.open_dataset(store, engine="zstore")
    assert ("number" in got.attrs) == (len(paths) == 1) and got.attrs["title"] == "trial"
    parts = [xr.open_dataset(path) for path in paths]
    expected = xr.concat(
        parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    xr.testing.assert_identical(got.drop_attrs().load(), expected.drop_attrs().load())
    assert got.t2m.attrs == parts[0].t2m.attrs
    for part in parts:
        part.close()
    return store


JOINED = {
    "records": ([3, 4, 5], {}),
    "months, whole": ([31, 28, 31], {"unlimited": False}),
    "months, whole and large": ([31, 28, 31], {"unlimited": False, "shape": (64, 64)}),
    "months, compressed": ([31, 28, 31], {"unlimited": False, "zlib": True}),
    "chunks that fit": ([4, 6, 3], {"zlib": True, "shuffle": True, "chunksizes": (2, 10, 30)}),
    "small chunks that do not": ([3, 3, 3], {"zlib": True, "chunksizes": (2, 10, 30)}),
    "classic records": ([3, 4], {"format": "NETCDF3_CLASSIC"}),
    "classic, whole": ([3, 4], {"format": "NETCDF3_64BIT", "unlimited": False}),
    "packed": ([3, 4], {"dtype": "i2", "scale_factor": 0.001, "add_offset": 0.5, "_FillValue": -1}),
    "one file": ([5], {}),
    "levels of effort": ([2, 2], {"zlib": True, "complevel": 9}),
}


@pytest.mark.parametrize("name", JOINED)
def test_files_joined_along_time(tmp_path: Path, name: str) -> None:
    lengths, options = JOINED[name]
    paths = write_days(tmp_path, lengths, **options)
    manifest = virtualize(paths, concat="time")
    store = compare(manifest, tmp_path, paths)
    grid = zstore.open_array(store, "t2m").model.grid
    assert isinstance(grid, RectilinearGrid) == (
        name in ("months, whole", "months, compressed", "classic, whole")
    )
    if not name.startswith("small"):
        assert (manifest.chunks["t2m"].source >= 0).all()
    # Where chunks could be cut, each is one day now.
    if name == "months, whole and large":
        assert manifest.chunks["t2m"].grid == (90, 1, 1)


def test_times_are_converted_to_the_units_of_the_first_file(tmp_path: Path) -> None:
    paths = write_days(tmp_path, [3, 4, 2], units=lambda number: f"hours since 2000-01-0{number + 1}")
    compare(virtualize(paths, concat="time"), tmp_path, paths)


def test_files_that_match_a_pattern_are_appended_daily(tmp_path: Path) -> None:
    """By the command, as a job that runs every day would; files that are there already are passed over."""
    paths = write_days(tmp_path, [1, 1, 1, 1], zlib=True)
    later = paths[3].rename(tmp_path / "003.later")
    target, runner = tmp_path / "all.json", CliRunner()
    asked = [str(tmp_path / "*.nc"), str(target), "--concat", "time"]
    made = runner.invoke(command, asked, catch_exceptions=False)
    assert made.exit_code == 0 and "3 files" in made.output
    later.rename(paths[3])
    assert isinstance(runner.invoke(command, asked).exception, StoreError)
    made = runner.invoke(command, [*asked, "--append"], catch_exceptions=False)
    assert made.exit_code == 0 and "4 files, 1 new" in made.output
    made = runner.invoke(command, [*asked, "--append"], catch_exceptions=False)
    assert "4 files, 0 new" in made.output
    compare(open_manifest(target), tmp_path, paths)
    got = xr.open_dataset(f"virtual://{target}", engine="zstore")
    assert dict(got.sizes) == {"time": 4, "y": 20, "x": 30}
    with h5py.File(paths[0], "r+") as file:
        file["t2m"].attrs["changed"] = 1
    os.utime(paths[0], ns=(1, 1))
    refused = runner.invoke(command, [*asked, "--append"])
    assert isinstance(refused.exception, StoreError) and "000.nc" in str(refused.exception)


@pytest.mark.parametrize("name", ["all.json", "all.parquet"])
def test_only_new_files_are_appended(tmp_path: Path, name: str) -> None:
    """However files and the manifest are said: from elsewhere, with "..", as URLs, in Parquet."""
    paths = write_days(tmp_path, [1, 1, 1])
    below = tmp_path / "below"
    below.mkdir()
    target = tmp_path / name
    said = {"concat": "time"}
    write_manifest(virtualize(paths[:2], **said), target)
    given = [below / ".." / paths[0].name, f"file://{paths[1]}", paths[2]]
    write_manifest(virtualize(given, append_to=open_manifest(target), **said), target)
    compare(open_manifest(target), tmp_path, paths)
    alone = CliRunner().invoke(
        command, [str(paths[2]), f"file://{target}", "--concat", "time", "--append"], catch_exceptions=False
    )
    assert "3 files, 0 new" in alone.output
    paths[0].unlink()
    with pytest.raises(NotFoundError, match=r"the manifest has is not there .*000.nc"):
        virtualize([paths[0]], append_to=open_manifest(target), **said)


def test_relative_addresses_begin_beside_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_days(tmp_path, [1, 1, 1])
    manifest = virtualize(paths[:2], concat="time")
    manifest.sources = [s._replace(address=Path(s.address).name) for s in manifest.sources]
    write_manifest(manifest, tmp_path / "all.json")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    made = virtualize(["../000.nc", "../002.nc"], concat="time", append_to=open_manifest("../all.json"))
    assert [source.address for source in made.sources][:2] == ["000.nc", "001.nc"]
    write_manifest(made, "../all.json")
    write_manifest(made, "moved.parquet")
    for place in ("../all.json", "moved.parquet"):
        got = xr.open_dataset(place, engine="zstore", storage_options={"allow": [str(tmp_path)]})
        for number, path in enumerate(paths):
            np.testing.assert_array_equal(got["t2m"][number], xr.open_dataset(path)["t2m"][0])


def test_a_strangers_manifest_opens_only_named_places(tmp_path: Path) -> None:
    """Its coordinates are compared and copied: from where it is, from what is given, from what is allowed."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    paths = write_days(tmp_path / "mine", [1, 1, 1])
    target = tmp_path / "theirs" / "all.json"
    write_manifest(virtualize(paths[:2], concat="time"), target)
    asked = [str(paths[2]), str(target), "--concat", "time", "--append"]
    refused = CliRunner().invoke(command, asked)
    assert isinstance(refused.exception, StoreError) and "000.nc" in str(refused.exception)
    assert "outside the allowed places" in str(refused.exception)
    assert open_manifest(target).count == virtualize(paths[:2], concat="time").count
    for more in (["--allow", str(paths[0])], ["--allow", str(tmp_path / "mine")]):
        made = CliRunner().invoke(command, [*asked, *more], catch_exceptions=False)
        assert made.exit_code == 0
    write_manifest(virtualize(paths[:2], concat="time"), target)
    CliRunner().invoke(command, [str(path) for path in paths] + asked[1:], catch_exceptions=False)
    compare(open_manifest(target), tmp_path, paths)


def test_the_command_is_registered() -> None:
    shown = CliRunner().invoke(root_command, ["virtualize", "--help"])
    assert shown.exit_code == 0 and "--concat" in shown.output
    assert "virtualize" in CliRunner().invoke(root_command, ["--help"]).output


def test_a_joined_manifest_is_read_from_json_and_parquet(tmp_path: Path) -> None:
    paths = write_days(tmp_path, [2, 3])
    manifest = virtualize(paths, concat="time")
    for name in ("a.json", "a.parquet"):
        write_manifest(manifest, tmp_path / name)
        compare(open_manifest(tmp_path / name), tmp_path, paths)


def test_files_stacked_along_a_new_dimension(tmp_path: Path) -> None:
    """Coordinates that all share stay as they are; scalars that differ become coordinates of it."""
    paths = []
    for member in range(3):
        values = np.random.default_rng(member).random((4, 5)).astype("f4")
        made = xr.Dataset(
            {"t": (("y", "x"), values), "mapping": ((), 0)},
            {"y": range(4), "x": range(5), "lat": (("y", "x"), np.ones((4, 5))), "member": member},
        )
        paths.append(tmp_path / f"{member}.nc")
        made.to_netcdf(paths[-1], encoding={"t": {"zlib": True, "chunksizes": (2, 5)}})
    manifest = virtualize(paths, stack_along="member")
    got = xr.open_dataset(VirtualStore(manifest, allow=[tmp_path]), engine="zstore")
    expected = xr.concat(
        [xr.open_dataset(path) for path in paths], "member", data_vars=["t"], coords="minimal"
    )
    assert got["mapping"].dims == () and got["lat"].dims == ("y", "x")
    got, expected = got.drop_vars("mapping"), expected.drop_vars("mapping")
    xr.testing.assert_equal(got.load(), expected.load())
    more = virtualize(paths[2:], stack_along="member", append_to=virtualize(paths[:2], stack_along="member"))
    got = xr.open_dataset(VirtualStore(more, allow=[tmp_path]), engine="zstore").drop_vars("mapping")
    xr.testing.assert_equal(got.load(), expected.load())


@pytest.mark.parametrize("interleave", ["band", "pixel"])
def test_rasters_stacked_in_time(tmp_path: Path, interleave: str) -> None:
    told = {
        "driver": "COG" if interleave == "pixel" else "GTiff",
        "count": 2,
        "height": 150,
        "width": 230,
        "dtype": "uint16",
        "crs": "EPSG:32633",
    }
    place = rasterio.Affine(10, 0, 500000, 0, -10, 3000000)
    coding = {"compress": "deflate", "predictor": 2, "interleave": interleave}
    coding |= (
        {"blocksize": 64} if interleave == "pixel" else {"tiled": True, "blockxsize": 64, "blockysize": 48}
    )
    data = np.random.default_rng(0).integers(0, 99, (3, 2, 150, 230)).astype("u2")
    for day, values in enumerate(data):
        with rasterio.open(tmp_path / f"{day}.tif", "w", **told, transform=place, **coding) as raster:
            raster.write(values)
    days = ["2024-01-01", "2024-01-05", "2024-02-01"]
    manifest = virtualize(tmp_path / "*.tif", stack_along="time", values=days)
    store = VirtualStore(manifest, allow=[tmp_path])
    got = xr.open_dataset(store, engine="zstore", group="0" if interleave == "pixel" else None)
    if interleave == "pixel":
        np.testing.assert_array_equal(got["image"].transpose("time", "band", "y", "x"), data)
    else:
        np.testing.assert_array_equal(got["band_2"], data[:, 1])
    times = xr.open_dataset(store, engine="zstore")["time"]
    assert times.values.astype("M8[D]").astype(str).tolist() == days


def test_zarr_hierarchies_joined(tmp_path: Path) -> None:
    """Of v2 and v3, with shards and without: chunks are whole files."""
    for number, options in enumerate(({"zarr_format": 2}, {"zarr_format": 3})):
        parts = []
        for part in range(2):
            place = tmp_path / f"{number}-{part}.zarr"
            group = zstore.create_group(place, zarr_format=options["zarr_format"])
            told = {"chunks": (2, 3), **({"shards": (4, 3)} if number else {})}
            data = np.arange(24).reshape(8, 3) + 100 * part
            group.create_array("a", data=data, dimension_names=["t", "x"], **told)
            parts.append(place)
        manifest = virtualize(parts, concat="t")
        got = zstore.open_array(VirtualStore(manifest, allow=[tmp_path]), "a")
        np.testing.assert_array_equal(
            got[...], np.concatenate([zstore.open(part)["a"][...] for part in parts])
        )
        assert len(manifest.sources) == (4 if number else 8)
        assert virtualize(parts, concat="t", append_to=manifest) is manifest


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
def test_a_broken_array_of_a_hierarchy_is_left_out(tmp_path: Path) -> None:
    """References to all others are written, and the command ends with its error, also when it goes on."""
    source, target, whole = tmp_path / "source", tmp_path / "target.json", tmp_path / "whole"
    make_two(whole)
    for change in ({"shape": "four"}, {"codecs": [{"name": "nobodys_codec"}]}, None):
        make_two(source)
        document = json.loads((source / "bad/zarr.json").read_text())
        (source / "bad/zarr.json").write_text(json.dumps(document | (change or {})))
        if change is None:
            (source / "bad/c/1").unlink()
            (source / "bad/c/1").symlink_to("1")
        words = ["virtualize", str(target), "--overwrite"]
        for sources, count in (([source], 1), ([source], 1), ([whole, source], 2)):
            more = ["--concat", "t"] if count > 1 else []
            result = CliRunner().invoke(root_command, [words[0], *map(str, sources), *words[1:], *more])
            assert result.exit_code == 1
            assert "'bad' is left out" in result.output
            got = zstore.open_group(VirtualStore(open_manifest(target), allow=[tmp_path]), mode="r")
            assert [*got.array_keys()] == ["good"]
            np.testing.assert_array_equal(got["good"][...], np.tile(np.arange(24), count))
            assert {*tmp_path.iterdir()} == {source, target, whole}


def make_two(place: Path) -> None:
    group = zstore.create_group(place, overwrite=True)
    for name in ("bad", "good"):
        group.create_array(name, data=np.arange(24), chunks=12, dimension_names=["t"])


def test_every_file_that_cannot_be_read_is_named_and_no_other_is_scanned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, target = write_days(tmp_path, [2, 2, 2, 2]), tmp_path / "all.json"
    stored = {path: path.read_bytes() for path in paths[1:3]}
    paths[1].write_bytes(b"no file of any format")
    paths[2].write_bytes(stored[paths[2]][:5000])
    with pytest.raises(ZstoreError, match=r"begins with b'no f'.*nor can these be read: \S+002.nc .*001.nc"):
        virtualize(paths, target, concat="time")
    assert not target.exists()
    for path, data in stored.items():
        path.write_bytes(data)
    scanned: list[str] = []
    scan = parts.scan_file
    monkeypatch.setattr(parts, "scan_file", lambda path, **o: scanned.append(path) or scan(path, **o))
    compare(virtualize(paths, target, concat="time"), tmp_path, paths)
    assert scanned == [str(path) for path in stored]
    assert {*tmp_path.iterdir()} == {*paths, target}


def _other_variable(place: Path) -> None:
    with h5py.File(place / "001.nc", "r+") as file:
        file["extra"] = 1


def _other_coordinate(place: Path) -> None:
    with h5py.File(place / "001.nc", "r+") as file:
        file["x"][0] = -1


def _other_units(place: Path) -> None:
    with h5py.File(place / "001.nc", "r+") as file:
        file["t2m"].attrs["units"] = "degC"


def _other_order(place: Path) -> None:
    (place / "001.nc").rename(place / "000a.nc")
    (place / "000.nc").rename(place / "002.nc")


def _other_calendar(place: Path) -> None:
    with h5py.File(place / "001.nc", "r+") as file:
        file["time"].attrs["calendar"] = "noleap"


MISFITS: dict[str, tuple[str, type[Exception], Any]] = {
    "variable": ("'extra' is in .*001.nc.* and not in .*000.nc", MetadataError, _other_variable),
    "coordinate": ("values of 'x' in .*001.nc", MetadataError, _other_coordinate),
    "units": ("'units'.* of 't2m' is 'degC' in .*001.nc", MetadataError, _other_units),
    "order": ("'time' ends at 5 in .*expected files in order", MetadataError, _other_order),
    "calendar": ("'calendar'.* of 'time' is 'noleap'", MetadataError, _other_calendar),
}


@pytest.mark.parametrize("name", MISFITS)
def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path, name: str) -> None:
    said, kind, spoil = MISFITS[name]
    write_days(tmp_path, [3, 3])
    spoil(tmp_path)
    with pytest.raises(kind, match=said):
        virtualize(tmp_path / "*.nc", concat="time")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"chunksizes": (1, 100, 600)}, {"chunksizes": (1, 200, 600)}, "chunks along dimension 1"),
        ({"zlib": True}, {"zlib": False}, "codecs of 't2m'"),
        ({"dtype": "f4"}, {"dtype": "f8"}, "data type of 't2m'"),
        (
            {"chunksizes": (2, 200, 600), "zlib": True},
            {"chunksizes": (2, 200, 600), "zlib": True},
            "reach past",
        ),
    ],
)
def test_chunks_and_codecs_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], said: str
) -> None:
    """Arrays too large to be copied, whose chunks cannot follow each other."""
    shape = (800, 1200)
    one = write_days(tmp_path, [3], shape=shape, **{"chunksizes": (1, *shape), **first})
    one[0].rename(tmp_path / "first.nc")
    two = write_days(tmp_path, [3, 3], shape=shape, **{"chunksizes": (1, *shape), **second})
    with pytest.raises((MetadataError, UnsupportedError), match=said):
        virtualize([tmp_path / "first.nc", two[1]], concat="time")


def test_nothing_but_a_manifest_is_replaced(tmp_path: Path) -> None:
    """Whoever forgets the target names the last of the files in its place."""
    one, other = write_days(tmp_path, [2, 2])
    data = other.read_bytes()
    with pytest.raises(
        StoreError, match=r"'\.nc' is the ending of a NetCDF file.*expected a file of references"
    ):
        virtualize(one, other)
    with pytest.raises(StoreError, match="what is there is not a manifest"):
        write_manifest(virtualize(one), other)
    assert other.read_bytes() == data
    for _ in range(2):
        virtualize(one, tmp_path / "one.json")
    with pytest.raises(StoreError, match="expected the name of something in a bucket"):
        virtualize(one, "memory://one.json")


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    paths = write_days(tmp_path, [2, 2])
    with pytest.raises(MetadataError, match="no dimension"):
        virtualize(paths)
    with pytest.raises(MetadataError, match="no array has the dimension 'level'"):
        virtualize(paths, concat="level")
    with pytest.raises(MetadataError, match="has the dimension 'time' already"):
        virtualize(paths, stack_along="time")
    with pytest.raises(MetadataError, match="expected one of them"):
        virtualize(paths, stack_along="a", concat="time")
    with pytest.raises(MetadataError, match="1 values of 'a' given"):
        virtualize(paths, stack_along="a", values=[1], drop=["time"])
    with pytest.raises(NotFoundError, match="no file matches"):
        virtualize(tmp_path / "*.grib", concat="time")


def test_a_copy_keeps_the_chunks_and_a_conversion_makes_others(tmp_path: Path) -> None:
    values = np.arange(1600, dtype="i4").reshape(40, 40)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=values, chunks=(10, 10), compression="gzip", shuffle=True)
        file.create_dataset("b", data=values)
    chunks = virtualize(tmp_path / "a.h5", tmp_path / "a.json").chunks["a"]
    zstore.copy(tmp_path / "a.json", tmp_path / "copy.zarr")
    zstore.convert(tmp_path / "a.json", tmp_path / "anew.zarr", chunks=20)
    stored = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").unlink()
    for row, (begin, size) in enumerate(zip(chunks.offset, chunks.size, strict=True)):
        copied = (tmp_path / "copy.zarr" / "a" / "c" / str(row // 4) / str(row % 4)).read_bytes()
        assert copied == stored[begin : begin + size]
    for name in ("copy.zarr", "anew.zarr"):
        for array in ("a", "b"):
            np.testing.assert_array_equal(zstore.open(tmp_path / name)[array][...], values)
    assert zstore.open(tmp_path / "anew.zarr")["a"].chunks == (20, 20)
