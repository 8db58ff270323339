"""NetCDF classic files to Zarr: the NetCDF library reads the same of them; damaged ones are refused."""

from __future__ import annotations

import struct
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import StoreError, UnsupportedError, ZstoreError
from zstore.geo.rasters import netcdf_to_zarr
from zstore.geo.rasters.netcdf_classic import ClassicFile
from zstore.model.json_attributes import AttributeWarning
from zstore.storage.kinds import is_netcdf

netCDF4 = pytest.importorskip("netCDF4", reason="files are written, and compared, by the NetCDF library")
xr = pytest.importorskip("xarray", reason="what is read is compared by xarray (extra 'xarray')")

KINDS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
TYPES = {kind: ["i1", "i2", "i4", "f4", "f8"] for kind in KINDS}
TYPES[KINDS[2]] += ["u1", "u2", "u4", "i8", "u8"]


def write(path: Path, kind: str, *, records: int = 3) -> Path:
    """Every type, with records and without, packed data, times, characters and scalars."""
    rng = np.random.default_rng(7)
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.set_auto_maskandscale(False)
        for name, length in {"time": None, "lat": 5, "lon": 7, "letters": 6, "none": 1}.items():
            file.createDimension(name, length)
        for dtype in TYPES[kind]:
            for where in (("time", "lat", "lon"), ("lat", "lon"), ("time",), ()):
                made = file.createVariable("_".join((dtype, *where)), dtype, where, fill_value=7)
                shape = tuple(records if name == "time" else len(file.dimensions[name]) for name in where)
                made[...] = rng.integers(0, 100, shape).astype(dtype)
                made.valid_range = np.array([0, 100], dtype)
        packed = file.createVariable("t2m", "i2", ("time", "lat", "lon"), fill_value=-9999)
        packed.set_auto_maskandscale(False)
        packed[...] = rng.integers(-99, 99, (records, 5, 7))
        packed.scale_factor, packed.add_offset, packed.units = 0.01, 5.0, "K"
        time = file.createVariable("time", "i4", ("time",))
        time[...] = np.arange(records) * 6
        time.units, time.calendar = "hours since 2000-02-28", "noleap"
        names = file.createVariable("name", "S1", ("lat", "letters"))
        names._Encoding = "utf-8"
        names[...] = np.array(["æther", "b", "", "dddddd", "e"])
        plain = file.createVariable("code", "S1", ("letters",), fill_value="x")
        plain[...] = np.array(list("abxcdx"), "S1")
        file.title, file.one, file.many = "café", np.float32(1.5), np.array([1.0, 2.0])
        file.empty = ""
    return path


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_xarray_reads_the_same_of_both(tmp_path: Path, kind: str, zarr_format: int) -> None:
    pytest.importorskip("zarr", reason="xarray's own engine needs zarr-python")
    path = write(tmp_path / "in.nc", kind)
    netcdf_to_zarr(path, tmp_path / "out.zarr", zarr_format=zarr_format, chunks=(2, 3))
    for options in ({}, {"mask_and_scale": False, "decode_times": False, "concat_characters": False}):
        with xr.open_dataset(path, engine="netcdf4", **options) as expected:
            found = xr.open_dataset(tmp_path / "out.zarr", engine="zarr", consolidated=True, **options)
            expected, found = expected.load(), found.load()
        if zarr_format == 2 and options:
            # In Zarr v2 xarray takes fill values for `_FillValue`, in its own spelling.
            for name in expected.variables:
                expected[name].attrs.pop("_FillValue", None)
                found[name].attrs.pop("_FillValue", None)
        if zarr_format == 3:
            # Bytes keep what is missing as their fill value only: xarray cannot read the attribute there.
            assert zstore.open_array(tmp_path / "out.zarr", "code", mode="r").fill_value == b"x"
            found, expected = found.drop_vars("code"), expected.drop_vars("code")
        xr.testing.assert_identical(found, expected)
        assert {n: v.dtype for n, v in found.variables.items()} == {
            n: v.dtype for n, v in expected.variables.items()
        }


@pytest.mark.parametrize(
    ("package", "name"),
    [("xarray/tests", "example_1.nc"), ("xarray/tests", "bears.nc"), ("scipy/io/tests", "")],
)
def test_files_of_other_writers(tmp_path: Path, package: str, name: str) -> None:
    pytest.importorskip("zarr", reason="xarray's own engine needs zarr-python")
    folder = Path(xr.__file__).parents[1] / package / "data"
    files = [folder / name] if name else [folder / f"example_{number}.nc" for number in (1, 2)]
    if not all(file.is_file() for file in files):
        pytest.skip(f"{package} is installed without its files")
    for file in files:
        netcdf_to_zarr(file, tmp_path / f"{file.stem}.zarr")
        with xr.open_dataset(file, engine="netcdf4") as expected:
            xr.testing.assert_identical(
                xr.open_dataset(tmp_path / f"{file.stem}.zarr", engine="zarr"), expected
            )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("records", [0, 1, 4])
def test_stored_values_and_windows(tmp_path: Path, kind: str, records: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("zstore.geo.rasters.files.WINDOW_SIZE", 40)
    path = write(tmp_path / "in.nc", kind, records=records)
    assert is_netcdf(path)
    group = netcdf_to_zarr(path, tmp_path / "out.zarr", chunks=(2, 3))
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert set(group) == set(file.variables)
        for name, variable in file.variables.items():
            np.testing.assert_array_equal(group[name][...], variable[...])
            assert group[name].dtype == variable.dtype and group[name].dims == variable.dimensions
    assert group["t2m"].attrs["scale_factor"] == 0.01 and group["t2m"].fill_value == -9999
    assert group.attrs["title"] == "café" and group.attrs["empty"] == ""


@pytest.mark.parametrize("stretch", [1, 100, 1000])
def test_a_window_takes_short_stretches_of_the_file(tmp_path: Path, stretch: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("zstore.geo.rasters.netcdf_classic.STRETCH_SIZE", stretch)
    path, chance = write(tmp_path / "in.nc", KINDS[1], records=9), np.random.default_rng(0)

    class Counted:
        def __init__(self, file: Any) -> None:
            self.seek, self._read, self.sizes = file.seek, file.read, list[int]()

        def read(self, size: int) -> bytes:
            self.sizes.append(size)
            return self._read(size)

    with netCDF4.Dataset(path) as expected, ClassicFile(path) as file:
        expected.set_auto_maskandscale(False)
        expected.set_auto_chartostring(False)
        for name, variable in file.variables.items():
            items = np.asarray(expected[name][...])
            for _ in range(5):
                ends = [sorted(chance.integers(0, n + 1, 2).tolist()) for n in variable.shape]
                window = tuple(slice(*end) for end in ends)
                counted = replace(variable, file=Counted(variable.file))
                np.testing.assert_array_equal(counted[window or ...], items[window or ...])
                wanted = items[window or ...].nbytes
                assert max(counted.file.sizes, default=0) <= max(stretch, wanted)
                assert sum(counted.file.sizes) <= max(stretch, variable.dtype.itemsize) * max(
                    1, items[window or ...].size
                )


def test_records_of_one_variable_are_not_aligned(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "in.nc", "w", format=KINDS[0]) as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createVariable("v", "i1", ("time", "x"))[...] = np.arange(15).reshape(5, 3)
    group = netcdf_to_zarr(tmp_path / "in.nc", tmp_path / "out.zarr")
    np.testing.assert_array_equal(group["v"][...], np.arange(15).reshape(5, 3))


def test_a_count_of_records_that_was_never_written(tmp_path: Path) -> None:
    path = write(tmp_path / "in.nc", KINDS[0])
    content = bytearray(path.read_bytes())
    assert struct.unpack_from(">I", content, 4) == (3,)
    struct.pack_into(">I", content, 4, 0xFFFFFFFF)
    path.write_bytes(content)
    assert netcdf_to_zarr(path, tmp_path / "out.zarr")["t2m"].shape == (3, 5, 7)


def test_text_that_is_no_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "in.nc", KINDS[0])
    path.write_bytes(path.read_bytes().replace("café".encode(), b"caf\xe9 "))
    with pytest.warns(AttributeWarning, match=r"'title' of .* is no UTF-8"):
        group = netcdf_to_zarr(path, tmp_path / "out.zarr")
    assert group.attrs["title"] == "café "


@pytest.mark.parametrize("names", [(b"var_a", b"var_b"), (b"dim_a", b"dim_b")])
def test_two_of_one_name_are_an_error(tmp_path: Path, names: tuple[bytes, bytes]) -> None:
    """Not one of them, nor the shape of the other."""
    path = tmp_path / "in.nc"
    with netCDF4.Dataset(path, "w", format=KINDS[0]) as file:
        for n, letter in enumerate("ab"):
            file.createDimension(f"dim_{letter}", 4 + n)
            file.createVariable(f"var_{letter}", "i4", (f"dim_{letter}",))[:] = n
    path.write_bytes(path.read_bytes().replace(*names))
    with pytest.raises(StoreError, match="header is damaged"):
        netcdf_to_zarr(path, tmp_path / "out.zarr")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "in.nc", kind)
    content = path.read_bytes()
    with ClassicFile(path) as file:
        end = file.end
    for size in [4, 7, 12, 60, 300, len(content) // 2, end - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(StoreError, match=r"cut short|damaged") as caught:
            netcdf_to_zarr(path, tmp_path / "out.zarr")
        assert caught.value.path == str(path) and not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_headers_that_the_netcdf_library_refuses_are_refused(tmp_path: Path, kind: str) -> None:
    """Variables that lie in one another or in the header, along another dimension, in lists of other tags."""
    path = tmp_path / "in.nc"
    with netCDF4.Dataset(path, "w", format=kind) as file:
        for name, length in {"time": None, "lat": 5, "lon": 7}.items():
            file.createDimension(name, length)
        for name, where in {"aaaa": ("lat",), "bbbb": ("lat",), "cccc": ("time",), "dddd": ("time",)}.items():
            file.createVariable(name, "i4", where)[...] = range(5)
    content, wide = path.read_bytes(), 8 if kind == KINDS[2] else 4
    end = 4 if kind == KINDS[0] else 8
    places = {name: content.index(name + b"\0") for name in (b"aaaa", b"bbbb", b"cccc", b"dddd")}
    # (where, the bytes there instead, what is said of it)
    damages = [
        (4 + wide + 3, b"\x0b", "tag 11, expected 10"),
        (4 + wide + 4 + 2 * wide + 1, b"\0", "the name"),
    ]
    for place in places.values():
        # The number of dimensions, one, an empty list of attributes, the type and the size come before.
        begin = place + 4 + wide + wide + (4 + wide) + 4 + wide
        before = int.from_bytes(content[begin : begin + end]) - 4
        damages.append((begin, before.to_bytes(end), "header is damaged"))
    along_lon = places[b"aaaa"] + 4 + wide + wide - 1
    damages.append((along_lon, b"\2", "header is damaged: 'bbbb' begins at byte"))
    for at, instead, said in damages:
        path.write_bytes(content[:at] + instead + content[at + len(instead) :])
        with pytest.raises(StoreError, match=said):
            ClassicFile(path)
        if said != "the name":  # in the library, it ends at the 0
            with pytest.raises(OSError):
                netCDF4.Dataset(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_header_is_an_error_or_a_file(tmp_path: Path, data: st.DataObject) -> None:
    original = tmp_path / "in.nc"
    if not original.exists():
        write(original, KINDS[2])
    content = bytearray(original.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, 1500))] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.nc"
    damaged.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AttributeWarning)
            with ClassicFile(damaged) as file:
                assert file.end <= len(content)
                for variable in file.variables.values():
                    assert variable[...].shape == variable.shape
    except ZstoreError as error:
        assert error.path == str(damaged)


def test_the_command(tmp_path: Path) -> None:
    testing = pytest.importorskip("click.testing", reason="the command needs click (extra 'cli')")
    from zstore.cli.root import zstore as command

    path = write(tmp_path / "in.nc", KINDS[1])
    result = testing.CliRunner().invoke(command, ["convert", str(path), str(tmp_path / "out.zarr")])
    assert result.exit_code == 0 and "t2m" in result.output
    assert zstore.open_array(tmp_path / "out.zarr", "t2m", mode="r").dtype == np.dtype("i2")


def test_a_type_of_another_version(tmp_path: Path) -> None:
    path = write(tmp_path / "in.nc", KINDS[2])
    content = path.read_bytes()
    place = content.index(b"u8_time\0")
    at = content.index(struct.pack(">I", 11), place + 8)
    path.write_bytes(content[:at] + struct.pack(">I", 12) + content[at + 4 :])
    with pytest.raises((UnsupportedError, StoreError)):
        netcdf_to_zarr(path, tmp_path / "out.zarr")
