"""NetCDF-4 and HDF5 files to Zarr: what xarray reads of the one it reads of the other."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore._ext.codecs.native import checksum_lookup3
from zstore.errors import MetadataError, NotFoundError, ReadingWarning, StoreError, UnsupportedError
from zstore.geo.rasters import hdf5_headers, netcdf_sources, netcdf_to_zarr
from zstore.geo.rasters.hdf5_headers import FileForm, UnusualError
from zstore.geo.rasters.netcdf import open_netcdf
from zstore.geo.rasters.netcdf_hdf5 import HeaderGroup
from zstore.model.json_attributes import AttributeWarning
from zstore.storage.kinds import is_netcdf

h5netcdf = pytest.importorskip("h5netcdf", reason="NetCDF is read with h5netcdf (extra 'netcdf')")
h5py = pytest.importorskip("h5py", reason="NetCDF is read with h5py (extra 'netcdf')")
xr = pytest.importorskip("xarray", reason="what is read is compared by xarray (extra 'xarray')")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Packed data, times, strings, characters, scalars and groups, made by xarray and by hand."""
    rng = np.random.default_rng(5)
    packed = rng.integers(0, 3000, (7, 20, 31)) / 100
    packed[0, 0, :3] = np.nan
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), packed, {"units": "K", "standard_name": "air_temperature"}),
            "name": ("lat", np.array([f"ж{i}" for i in range(20)], object)),
            "code": ("lat", np.array([b"ab", b"c"] * 10)),
            "flag": ("lon", np.arange(31) % 2 == 0),
            "count": ((), np.int32(7), {"levels": np.array([1, 2], "i2")}),
        },
        {
            "time": np.datetime64("2001-01-01") + np.arange(7).astype("m8[D]"),
            "lat": np.linspace(-10, 10, 20),
            "lon": np.linspace(0, 30, 31).astype("f4"),
        },
        {"title": "a test", "one": np.float32(1.5), "many": np.array([1.0, 2.0])},
    )
    path = tmp_path / "in.nc"
    data.to_netcdf(
        path,
        engine="h5netcdf",
        encoding={
            "t2m": {
                "dtype": "i2",
                "scale_factor": 0.01,
                "add_offset": 5.0,
                "_FillValue": -9999,
                "chunksizes": (2, 7, 9),
                "zlib": True,
            },
            "time": {"units": "hours since 2000-12-01", "dtype": "i4"},
        },
    )
    with h5netcdf.File(path, "a") as opened:
        group = opened.create_group("inner/most")
        group.attrs["where"] = "inside"
        group.create_variable("big", ("lat",), ">i4", data=np.arange(20), fillvalue=-5)
    return path


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_xarray_reads_the_same_of_both(file, tmp_path, zarr_format):
    netcdf_to_zarr(file, tmp_path / "out.zarr", zarr_format=zarr_format)
    pytest.importorskip("zarr", reason="xarray's own engine needs zarr-python")
    for options in ({}, {"mask_and_scale": False, "decode_times": False}):
        with xr.open_dataset(file, engine="h5netcdf", **options) as expected:
            found = xr.open_dataset(tmp_path / "out.zarr", engine="zarr", consolidated=True, **options)
            expected, found = expected.load(), found.load()
        if zarr_format == 2 and options:
            # In Zarr v2 xarray takes fill values for `_FillValue`; NaN has no word in JSON.
            for name in expected.variables:
                expected[name].attrs.pop("_FillValue", None)
                found[name].attrs.pop("_FillValue", None)
        expected["name"] = expected["name"].astype(found["name"].dtype)
        xr.testing.assert_identical(found, expected)
        assert {n: found[n].dtype for n in found if n != "name"} == {
            n: expected[n].dtype for n in expected if n != "name"
        }
    inner = zstore.open(tmp_path / "out.zarr", "inner/most", "r")
    assert dict(inner.attrs) == {"where": "inside"}
    assert inner["big"].dtype == np.dtype("i4") and inner["big"].fill_value == -5
    np.testing.assert_array_equal(inner["big"][...], np.arange(20))


def test_packed_values_stay_packed(file, tmp_path):
    group = netcdf_to_zarr(
        file, tmp_path / "out.zarr", chunks={"time": 3, "lat": 5}, shards={"time": 6, "lat": 10}
    )
    packed = group["t2m"]
    assert packed.dtype == np.dtype("i2")
    assert packed.chunks == (3, 5, 31) and packed.shards == (6, 10, 31)
    assert packed.fill_value == -9999 and packed.attrs["_FillValue"] == -9999
    assert packed.dims == ("time", "lat", "lon")
    with h5py.File(file) as opened:
        np.testing.assert_array_equal(packed[...], opened["t2m"][...])
    assert group["lat"].chunks == (20,) and group["name"][3] == "ж3"
    named = netcdf_to_zarr(file, tmp_path / "named.zarr", chunks={"time": 2, "lat": "auto", "lon": -1})
    assert named["t2m"].chunks == (2, 20, 31)
    with pytest.raises(MetadataError, match="there is no dimension 'y' to cut; expected one of"):
        netcdf_to_zarr(file, tmp_path / "none.zarr", chunks={"y": 2})


def test_one_length_is_for_both_dimensions_of_a_grid(file, tmp_path):
    group = netcdf_to_zarr(file, tmp_path / "out.zarr", chunks=4, shards=(8, 8))
    assert (group["t2m"].chunks, group["t2m"].shards) == ((1, 4, 4), (1, 8, 8))
    assert (group["lat"].chunks, group["lat"].shards) == ((4,), (8,))
    assert group["count"].shape == ()


def test_progress_ends_with_everything(file, tmp_path):
    told: list[tuple[int, int]] = []
    netcdf_to_zarr(file, tmp_path / "out.zarr", progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 7 * 20 * 31


def test_windows_smaller_than_the_variable(file, tmp_path, monkeypatch):
    monkeypatch.setattr("zstore.geo.rasters.files.WINDOW_SIZE", 500)
    group = netcdf_to_zarr(file, tmp_path / "out.zarr", chunks=(3, 4))
    with h5py.File(file) as opened:
        np.testing.assert_array_equal(group["t2m"][...], opened["t2m"][...])


def test_a_dry_run_counts_the_memory_of_the_windows_that_are_read_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("zstore.geo.rasters.files.WINDOW_SIZE", 8 * 64)
    with h5py.File(tmp_path / "a.h5", "w") as made:
        made.create_dataset("v", data=np.ones((40, 64), "i1"), chunks=(8, 64))

    def memory_of(**words):
        estimate = netcdf_to_zarr(tmp_path / "a.h5", tmp_path / "out", dry_run=True, chunks=(8, 64), **words)
        assert estimate.unit_count == 5 and not (tmp_path / "out").exists()
        return estimate.memory_size

    one = 2 * 8 * 64
    for module in ("zstore.jobs.how", "zstore.geo.rasters.files"):
        monkeypatch.setattr(f"{module}.units_at_once", lambda: 4)
    assert [memory_of(memory=memory) for memory in (None, 9 * one, 3 * one, one)] == [
        4 * one,
        4 * one,
        3 * one,
        one,
    ]
    for module in ("zstore.jobs.how", "zstore.geo.rasters.files"):
        monkeypatch.setattr(f"{module}.units_at_once", lambda: 40)
    assert memory_of() == 5 * one, "there are no more windows"
    with pytest.raises(
        MetadataError, match=f"memory is {one - 1} bytes; expected {one} at least, for one unit"
    ):
        memory_of(memory=one - 1)


def test_plain_hdf5_and_odd_types(tmp_path):
    path = tmp_path / "in.h5"
    with h5py.File(path, "w") as made:
        made["plain"] = np.arange(6.0).reshape(2, 3)
        made.create_dataset("empty", (0, 4), "f4")
        made["pairs"] = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
        made["wave"] = np.array([1 + 2j, 3j])
        made["kind"] = np.array([0, 2], h5py.enum_dtype({"land": 0, "open sea": 2}, "u1"))
        made["plain"].attrs["none"] = h5py.Empty("S1")
    group = netcdf_to_zarr(path, tmp_path / "out.zarr")
    np.testing.assert_array_equal(group["plain"][...], np.arange(6.0).reshape(2, 3))
    assert group["plain"].dims is not None and group["plain"].attrs["none"] == ""
    assert group["empty"].shape == (0, 4)
    assert group["pairs"][1]["b"] == 4.5 and group["wave"][0] == 1 + 2j
    assert group["kind"][1] == 2
    assert group["kind"].attrs["flag_values"] == [0, 2]
    assert group["kind"].attrs["flag_meanings"] == "land open_sea"


GAPS = np.dtype([("a", "i1"), ("b", ">f8")], align=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "dtype",
    [
        GAPS,
        np.dtype({"names": ["b", "a"], "formats": ["i2", "u1"], "offsets": [0, 4], "itemsize": 12}),
        np.dtype([("in", GAPS), ("b", "f4")], align=True),
        np.dtype([("a", "i1"), ("v", "f8", (2,))], align=True),
        np.dtype([("s", "S1", (3,)), ("b", "f8")], align=True),
    ],
    ids=str,
)
def test_compound_types_with_gaps(tmp_path, dtype, zarr_format):
    """In files of the NetCDF library all of them have gaps. Arrays in them can be said in v2 alone."""
    path, raw = tmp_path / "in.nc", np.arange(5 * dtype.itemsize, dtype="u1") % 13 + 48
    items = raw.view(dtype)
    with h5netcdf.File(path, "w") as made:
        made.dimensions = {"x": 5, "t": None}
        made.resize_dimension("t", 7)
        kind = made.create_cmptype(dtype, "kind")
        made.create_variable("v", ("x",), kind, data=items).attrs["_FillValue"] = items[1:2]
        made.create_variable("grown", ("t",), kind)
        made["grown"]._h5ds.resize((5,))
        made["grown"]._h5ds[...] = items
    if zarr_format == 3 and any(dtype[name].subdtype for name in dtype.names):
        with pytest.raises(UnsupportedError, match=r"only in v2 \(at 'v' of '.*in.nc'\)"):
            netcdf_to_zarr(path, tmp_path / "out.zarr")
        return
    group = netcdf_to_zarr(path, tmp_path / "out.zarr", zarr_format=zarr_format)
    found = group["v"][...]
    assert found.dtype.itemsize < dtype.itemsize
    assert str(found.tolist()) == str(items.tolist())
    assert str(group["v"].fill_value.tolist()) == str(items[1].tolist())
    grown = [*items.tolist(), *np.zeros(2, dtype).tolist()]
    assert str(group["grown"][...].tolist()) == str(grown)


def test_numbers_that_json_has_not_become_words(tmp_path):
    path = tmp_path / "in.nc"
    with h5netcdf.File(path, "w") as made:
        made.dimensions = {"x": 2}
        made.create_variable("v", ("x",), "f4", data=[1, 2]).attrs["range"] = np.array([np.nan, np.inf])
    with pytest.warns(AttributeWarning, match="range"):
        group = netcdf_to_zarr(path, tmp_path / "out.zarr")
    assert group["v"].attrs["range"] == ["NaN", "Infinity"]


def test_what_zarr_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "in.h5"
    with h5py.File(path, "w") as made:
        made.create_dataset("lists", (2,), h5py.vlen_dtype(np.int32))
    with pytest.raises(UnsupportedError, match="'/lists' has lists of int32 of any length"):
        netcdf_to_zarr(path, tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(
    "value, said",
    [
        (h5py.Empty("f4"), "'/x' has no dataspace"),
        (3, "attribute 'to' of '/x' is a reference"),
    ],
)
def test_what_zarr_has_no_form_for_is_named(tmp_path, value, said):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = value
        if value == 3:
            file["x"].attrs["to"] = file["x"].ref
    with pytest.raises(UnsupportedError, match=said):
        netcdf_to_zarr(tmp_path / "a.h5", tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_a_scale_of_several_dimensions_that_nothing_names_is_refused_by_name(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros((2, 3))
        file["x"].make_scale("x")
    with pytest.raises(UnsupportedError, match="'x' has no dimension of length 3"):
        zstore.open(tmp_path / "a.h5")


def _write_netcdf4(path):
    netCDF4 = pytest.importorskip("netCDF4", reason="the NetCDF library itself writes it")
    with netCDF4.Dataset(path, "w") as made:
        for name, length in {"time": None, "x": 3, "text": 4, "other": None}.items():
            made.createDimension(name, length)
        made.createVariable("time", "f8", ("time",))[:] = [1, 2]
        made.createVariable("long", "i2", ("other", "x"), fill_value=-1)[:5] = 1
        made.createVariable("short", "i2", ("other",))[:2] = 1
        made.createVariable("x", "S1", ("x", "text"))  # a coordinate of two dimensions
        made.createVariable("scalar", "f4", ())
        made.createVariable("square", "f4", ("x", "x"))
        made.setncatts(
            {"one": [1], "two": [1, 2], "none": "", "texts": ["a", "ä"], "text": "ä", "letter": "a"}
        )
        below = made.createGroup("a").createGroup("b")
        below.createDimension("x", 7)
        below.createVariable("of_below", "u1", ("x",))
        below.createVariable("of_above", str, ("time",))
        below.createVariable("time", "u1", ("x",))  # not the dimension that has its name


def _write_h5py(path):
    with h5py.File(path, "w") as made:
        for name, shape in {"a": (2, 2, 3), "b": (3,), "c": (2,), "g/d": (3, 4), "g/h/e": ()}.items():
            made[name] = np.zeros(shape)
        made["b"].make_scale("b")
        made["named"] = np.dtype("i4")
        del made["named"]
        for name, value in {
            "fixed": np.bytes_(b"ab\0"),
            "one": np.array([b"a"]),
            "letters": np.array([b"a", b"b"]),
            "words": np.array([b"ab", b"c"]),
            "empty": h5py.Empty("S1"),
            "nothing": h5py.Empty("f4"),
            "square": np.eye(2),
        }.items():
            made.attrs[name] = made["a"].attrs[name] = value


@pytest.mark.parametrize("write", [_write_netcdf4, _write_h5py])
def test_headers_are_read_as_h5netcdf_reads_them(tmp_path, write):
    write(tmp_path / "a.nc")

    def same(group, expected):
        assert [*group.variables] == [*expected.variables] and [*group.groups] == [*expected.groups]
        assert repr(group.attrs) == repr(dict(expected.attrs))
        assert group.growing == [name for name, one in expected.dimensions.items() if one.isunlimited()]
        for name, variable in expected.variables.items():
            read = group.variables[name]
            assert (read.dimensions, read.shape, read.dtype, read.chunks) == (
                variable.dimensions,
                variable.shape,
                variable.dtype,
                variable.chunks if variable.shape else None,
            )
            assert repr(read.attrs) == repr(dict(variable.attrs))
            # Where a variable of texts ends before its dimension does, h5netcdf adds none.
            count = tuple(map(slice, variable[...].shape))
            np.testing.assert_array_equal(read[...][count], variable[...])
            assert read[...].shape == read.shape
        for name in expected.groups:
            same(group.groups[name], expected.groups[name])

    options = {"decode_vlen_strings": False, "phony_dims": "sort"}
    with open_netcdf(tmp_path / "a.nc") as file, h5netcdf.File(tmp_path / "a.nc", **options) as expected:
        same(file, expected)


def _facts(group):
    variables = {
        name: (one.dimensions, one.shape, one.chunks, str(one.dtype), repr(one.attrs))
        for name, one in group.variables.items()
    }
    below = [(name, _facts(one)) for name, one in group.groups.items()]
    return [repr(group.attrs), repr(group.dimensions), [*variables.items()], below]


def _write_many(path):
    """Attributes and links in heaps and trees of two levels, chunks of each kind, texts of any length."""
    netCDF4 = pytest.importorskip("netCDF4", reason="the NetCDF library itself writes it")
    with netCDF4.Dataset(path, "w") as made:
        made.setncatts({f"a{at}": "x" * (7 * at + 1) for at in range(99)})
        made.setncattr_string("any", "length")
        for name, length in {"time": None, "x": 3}.items():
            made.createDimension(name, length)
        for at in range(66):
            one = made.createVariable(f"v{at}", "f4" if at % 2 else "i2", ("time", "x"), zlib=at % 3 == 0)
            one.setncatts({f"a{number}": number for number in range(at // 4)})
            one[: at % 3] = 1


def _write_newer(path, first=0):
    """Chunks with the indexes of HDF5 1.10, and items that lie in the header."""
    items = np.arange(first, first + 400, dtype="i4").reshape(10, 40)
    with h5py.File(path, "w", libver=("v110", "v110"), track_order=True) as made:
        for name, options in {
            "whole": {"chunks": (10, 40)},
            "whole_deflated": {"chunks": (10, 40), "compression": "gzip"},
            "fixed": {"chunks": (5, 10)},
            "deflated": {"chunks": (5, 16), "compression": "gzip", "shuffle": True},
            "growing": {"chunks": (5, 10), "maxshape": (None, 40)},
            "growing_twice": {"chunks": (5, 10), "maxshape": (None, None)},
        }.items():
            made.create_dataset(name, data=items, track_order=True, **options)
        kept = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        kept.set_layout(h5py.h5d.COMPACT)
        kept.set_attr_creation_order(h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED)
        space = h5py.h5s.create_simple((3, 4))
        compact = h5py.h5d.create(made.id, b"compact", h5py.h5t.NATIVE_INT32, space, kept)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, items[:3, :4].copy())


def test_series_in_newer_layouts_hold_what_h5py_reads(tmp_path):
    for number in range(3):
        path = tmp_path / f"{number}.nc"
        _write_newer(path, number)
        assert HeaderGroup.of_file(path).variables["growing_twice"].chunks == (5, 10)
        group = netcdf_to_zarr(path, tmp_path / f"{number}.zarr")
        with h5py.File(path) as file:
            assert len(file) == 7
            for name, dataset in file.items():
                np.testing.assert_array_equal(group[name][...], dataset[...], err_msg=name)


@pytest.mark.parametrize("write", [_write_netcdf4, _write_many, _write_newer])
def test_headers_are_parsed_as_h5py_reads_them(tmp_path, write):
    """Of a file with damage, as h5py reads it, or not at all; what is not needed may be damaged."""
    path = tmp_path / "a.nc"
    write(path)
    with open_netcdf(path) as expected:
        facts = _facts(expected)
    assert _facts(HeaderGroup.of_file(path)) == facts
    sound, rng, left = path.read_bytes(), np.random.default_rng(0), 0
    for at in rng.integers(0, len(sound), 60):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.integers(8)]) + sound[at + 1 :])
        try:
            parsed = _facts(HeaderGroup.of_file(path))
        except UnusualError:
            left += 1
            continue
        try:
            with open_netcdf(path) as expected:
                assert parsed == _facts(expected)
        except StoreError:
            assert parsed == facts
    assert 0 < left < 60


def test_files_of_a_series_are_told_apart(tmp_path, monkeypatch):
    """What is alike in files, at the same places or others, is parsed once; in one thing they differ."""
    cast, alike = FileForm.cast, list[bool]()

    def counted(*arguments):
        made = cast(*arguments)
        alike.append(made is not None)
        return made

    monkeypatch.setattr(FileForm, "cast", counted)
    netCDF4 = pytest.importorskip("netCDF4", reason="the NetCDF library itself writes it")
    words = {f"a{at}": f"word {at}" for at in range(12)}

    def write(
        path,
        *,
        units="K",
        length=3,
        fill=-9,
        names=("p", "q"),
        moved=0,
        few=False,
        word=0,
        time=1.5,
        **others,
    ):
        said = {} if few else words
        with netCDF4.Dataset(path, "w") as made:
            if moved:  # all that follows lies elsewhere
                made.createVariable("first", "i1", ())
                made.sync()
                made.createDimension("many", moved)
                made.createVariable("second", "i1", ("many",))[:] = 1
            made.setncatts({**said, **others})
            made.createDimension("time", None)
            made.createDimension("x", length)
            made.setncattr_string("any", f"length {word}")
            made.createVariable("time", "f8", ("time",))[:] = [time]
            for name in names:
                one = made.createVariable(name, "i4", ("time", "x"), fill_value=fill)
                one.setncatts({**said, **others, "units": units})
                one[:] = np.arange(length)[None]

    changes = [{}, {"units": "C"}, {"length": 4}, {"fill": -8}, {"names": ("q", "p")}, {"a7": "other!"}, {}]
    changes += [{"word": 1}, {"time": 2.5}, {"word": 22}]
    moved = [
        {"moved": 9},
        {"moved": 900, "time": 7.25},
        {"moved": 70, "units": "C"},
        {"moved": 800, "a7": "other!"},
    ]
    for at, (change, few) in enumerate(product(changes + moved, (False, True))):
        path = tmp_path / f"{at}.nc"
        write(path, few=few, **change)
        with open_netcdf(path) as expected:
            assert _facts(HeaderGroup.of_file(path)) == _facts(expected)
        opened, length = zstore.open_group(path), change.get("length", 3)
        assert dict(opened["p"].attrs)["units"] == change.get("units", "K")
        assert opened["q"].shape == (1, length) and opened["q"][...].tolist() == [[*range(length)]]
        assert opened["time"][...] == change.get("time", 1.5) and opened.attrs["any"].endswith(
            f" {change.get('word', 0)}"
        )
        assert opened["q"].attrs.get("a7") == change.get("a7", None if few else "word 7")
    assert sum(alike) > 8


def test_what_leads_elsewhere_is_no_file_of_the_series(tmp_path, monkeypatch):
    """Of changed headers, checksums made anew: as without a form, or left to h5py."""
    netCDF4 = pytest.importorskip("netCDF4", reason="the NetCDF library itself writes it")
    _write_netcdf4(tmp_path / "a.nc")
    with netCDF4.Dataset(tmp_path / "a.nc", "a") as made:
        for name in ("twin", "other twin"):
            made.createVariable(name, "i4", ())[...] = 1
    sound, rng, outcomes = (tmp_path / "a.nc").read_bytes(), np.random.default_rng(3), Counter()
    forms: list[FileForm] = []
    monkeypatch.setattr(hdf5_headers, "_forms", forms)
    HeaderGroup.of_file(tmp_path / "a.nc")
    [form] = forms

    def facts(changes):
        data = bytearray(sound)
        for begin, new in changes.items():
            data[begin : begin + len(new)] = new
        for one in form._blocks:
            part, at = data[one.address : one.address + len(one.data)], one.sum
            if at >= 0:
                part[at : at + 4] = bytes(4)
                sum = checksum_lookup3(bytes(part if at < len(part) - 4 else part[:at]))
                data[one.address + at : one.address + at + 4] = sum.to_bytes(4, "little")
        (tmp_path / "b.nc").write_bytes(data)
        try:
            group = HeaderGroup.of_file(tmp_path / "b.nc")
        except UnusualError:
            return None
        return repr((_facts(group), group.rows))

    own = [(one.address + at, end - at, who) for one in form._blocks for at, (end, who) in one.spots.items()]
    leads = [begin for begin, _, who in own if who == ()]
    others = [(begin, size) for begin, size, who in own if who]
    links = [sound[begin : begin + 8] for begin in leads]
    changes = [{begin: bytes([255] * 8)} for begin in leads]
    changes += [{begin: links[rng.integers(len(links))]} for begin in leads * 3]
    changes += [{begin + int(rng.integers(size)): bytes([int(rng.integers(256))])} for begin, size in others]
    twins = [at for at in leads if sound[at - 4 : at] == b"twin"]
    changes += [{twins[0]: sound[twins[1] : twins[1] + 8]}]
    for change in changes:
        forms.clear()
        expected = facts(change)
        forms[:] = [form]
        found = facts(change)
        assert found in (expected, None)
        outcomes[expected is None, found is None, len(forms)] += 1
    assert outcomes[False, False, 1] > 5 and outcomes[True, True, 1] > 20


def test_a_link_to_the_group_itself_is_left_to_h5py(tmp_path):
    h5py = pytest.importorskip("h5py", reason="it writes such a link")
    with h5py.File(tmp_path / "a.nc", "w", libver=("v108", "v108"), track_order=True) as made:
        made["round"] = made["/"]
    with pytest.raises(UnusualError, match="two names"):
        HeaderGroup.of_file(tmp_path / "a.nc")


def test_small_variables_are_read_without_h5py(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4", reason="the NetCDF library itself writes it")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as made:
        for name, length in {"time": None, "x": 3, "text": 4}.items():
            made.createDimension(name, length)
        items = {
            "time": (("time",), np.array([4.0, 5.0])),
            "x": (("x",), np.array([1, 2, 3], ">i2")),
            "word": (("x", "text"), np.array([b"ab", b"c", b""], "S4").view("S1").reshape(3, 4)),
        }
        for name, (dimensions, values) in items.items():
            made.createVariable(name, values.dtype, dimensions, endian="big" if name == "x" else "native")
            made[name][:] = values
        made.createVariable("later", "i2", ("time",), fill_value=-9)  # has no chunk, so no row
        bounds = np.arange(6, dtype="i4").reshape(2, 3)
        for name, begins in {"bounds": (1, 0), "half": (1,)}.items():  # a chunk each; of one, none is stored
            made.createVariable(name, "i4", ("time", "x"), chunksizes=(1, 3), fill_value=-1)
            for at in begins:
                made[name][at] = bounds[at]
    items["bounds"] = ("time", "x"), bounds
    sources = netcdf_sources(tmp_path / "a.nc")
    rows = {name for name, one in sources.items() if one.row is not None}
    assert rows == {"time", "x", "word", "bounds"}
    assert sources["half"].read((slice(0, 2), slice(0, 3))).tolist() == [[-1] * 3, [3, 4, 5]]
    for name, (_, values) in items.items():
        everything = tuple(slice(0, length) for length in values.shape)
        np.testing.assert_array_equal(sources[name].read(everything), values)
        assert sources[name].read((slice(1, 2), *everything[1:])).tolist() == values[1:2].tolist()
    assert sources["later"].read((slice(0, 2),)).tolist() == [-9, -9]
    (tmp_path / "a.nc").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be read"):
        sources["time"].read((slice(0, 2),))
    (tmp_path / "a.nc").unlink()
    with pytest.raises(NotFoundError, match="no file there"):
        sources["time"].read((slice(0, 2),))


def test_what_is_no_file_or_not_netcdf4(file, tmp_path):
    with pytest.raises(NotFoundError, match="no file"):
        netcdf_to_zarr(tmp_path / "none.nc", tmp_path / "out.zarr")
    (tmp_path / "classic.nc").write_bytes(b"CDF\x03" + bytes(60))
    with pytest.raises(UnsupportedError, match="begins with"):
        netcdf_to_zarr(tmp_path / "classic.nc", tmp_path / "out.zarr")
    (tmp_path / "noise.nc").write_bytes(b"noise" * 100)
    with pytest.raises(StoreError, match="not an HDF5 file"):
        netcdf_to_zarr(tmp_path / "noise.nc", tmp_path / "out.zarr")
    cut = tmp_path / "cut.nc"
    cut.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(StoreError):
        netcdf_to_zarr(cut, tmp_path / "out.zarr")
    assert is_netcdf(file) and not is_netcdf(tmp_path / "noise.nc") and not is_netcdf(tmp_path)


def test_a_group_of_another_file_is_refused(tmp_path):
    """What has its name in this file would be read in its place."""
    for name, value in (("other.h5", 100), ("a.h5", 0)):
        with h5py.File(tmp_path / name, "w") as made:
            made["sub/x"] = np.arange(5) + value
    with h5py.File(tmp_path / "a.h5", "a") as made:
        made["linked"] = h5py.ExternalLink("other.h5", "/sub")
    with pytest.raises(UnsupportedError, match=r"'linked' is one of .*other\.h5', to which a link leads"):
        netcdf_to_zarr(tmp_path / "a.h5", tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_there_already(file, tmp_path):
    netcdf_to_zarr(file, tmp_path / "out.zarr")
    with pytest.raises(StoreError, match="already"):
        netcdf_to_zarr(file, tmp_path / "out.zarr")
    netcdf_to_zarr(file, tmp_path / "out.zarr", overwrite=True)
    inside = tmp_path / "out.zarr" / "in.nc"
    shutil.copy(file, inside)
    with pytest.raises(StoreError, match="cannot replace what holds"):
        netcdf_to_zarr(inside, tmp_path / "out.zarr", overwrite=True)
    assert inside.read_bytes() == file.read_bytes()


def test_the_command(file, tmp_path):
    pytest.importorskip("click", reason="the command needs click (extra 'cli')")
    command = [
        sys.executable,
        "-m",
        "zstore",
        "convert",
        str(file),
        str(tmp_path / "out.zarr"),
        "--chunks",
        "8",
    ]
    shown = subprocess.run(command, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "t2m" in shown.stdout
    assert zstore.open(tmp_path / "out.zarr", "t2m", "r").chunks == (1, 8, 8)
    again = subprocess.run([*command, "--pyramid", "--overwrite"], capture_output=True, text=True)
    assert again.returncode == 2 and "zstore pyramid" in again.stderr


def _fields(*kinds):
    def make(file, folder):
        dtype = np.dtype([(f"f{n}", kind) for n, kind in enumerate(kinds)], align=kinds[0] == "u1")
        items = np.zeros(9, dtype)
        items["f1"] = np.arange(9)
        file.create_dataset("v", data=items)

    return make


def _scale_offset(file, folder):
    file.create_dataset("v", data=np.arange(6000).reshape(60, 100), chunks=(20, 30), scaleoffset=0)


def _external(file, folder):
    (folder / "beside.bin").write_bytes(np.arange(40, dtype="i4").tobytes())
    file.create_dataset("v", (40,), "i4", external=[(str(folder / "beside.bin"), 0, 160)])


def _virtual(file, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["d"] = np.arange(40)
    layout = h5py.VirtualLayout((40,), "i8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "d", (40,))
    file.create_virtual_dataset("v", layout)


# None of them can be told by references to stretches of the file (docs/design/0025-files-by-windows.md).
LAYOUTS = {
    "scaleoffset": _scale_offset,
    "external": _external,
    "virtual": _virtual,
    "gaps between fields": _fields("u1", "f8"),
    "big-endian fields": _fields(">i4", ">f8"),
    "fields within fields": _fields([("inner", "<i4")], "<f8"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_that_are_no_stretches_of_the_file(layout, tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        LAYOUTS[layout](file, tmp_path)
        expected = file["v"][...]
    made = netcdf_to_zarr(tmp_path / "in.h5", tmp_path / "out.zarr")["v"][...]
    for name in expected.dtype.names or ((),):
        np.testing.assert_array_equal(made[name].astype(expected[name].dtype), expected[name])


def test_variables_are_sources_of_jobs(file, tmp_path):
    variables = netcdf_sources(file)
    group = netcdf_to_zarr(file, tmp_path / "out.zarr")
    assert {*variables} == {path for path, node in group.members(max_depth=None) if hasattr(node, "shape")}
    packed, whole = variables["t2m"], group["t2m"]
    assert packed.dtype == whole.dtype
    box = (slice(2, 4), slice(0, 9), slice(30, 31))
    np.testing.assert_array_equal(packed.read(box), whole[box])
    expected = zstore.reduce(whole, "max", axis=0)
    np.testing.assert_array_equal(zstore.reduce(packed, "max", axis=0), expected)
    np.testing.assert_array_equal(zstore.convert(packed, tmp_path / "t2m", chunks=(7, 4, 4))[...], whole[...])


def test_a_variable_that_zarr_has_no_array_for_hides_no_others(tmp_path: Path) -> None:
    """Whoever lists, opens, copies or converts learns of it, and why; a conversion of the file is refused."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"], file["g/good"] = np.arange(3), np.arange(2.0)
        for name in ("lists", "g/lists"):
            file.create_dataset(name, shape=(3,), dtype=h5py.vlen_dtype("i4"))
        file["leads"] = np.arange(3)
        file["leads"].attrs["to"] = file["good"].ref
    group = zstore.open(path)
    assert sorted(group) == ["g", "good", "leads", "lists"] and "lists" in group
    assert group["good"][...].tolist() == [0, 1, 2] and group["g/good"][...].tolist() == [0, 1]
    assert "lists (variable '/lists' has lists of int32 of any length, which Zarr does not have)" in str(
        group.tree()
    )
    for name, said in {
        "lists": "lists of int32",
        "g/lists": "lists of int32",
        "leads": "is a reference",
    }.items():
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=said) as caught:
                group[name]
            assert (caught.value.path, caught.value.key) == (str(path), name)
    with pytest.raises(UnsupportedError, match="is a reference"):
        group.members()
    with pytest.warns(
        ReadingWarning, match=r"'(lists|leads)' is left out: .*(lists of int32|is a reference)"
    ):
        assert [*xr.open_dataset(path, engine="zstore")] == ["good"]
    with pytest.warns(ReadingWarning, match="left out"), pytest.raises(UnsupportedError, match="lists of"):
        zstore.convert(group.store, tmp_path / "converted.zarr")
    assert zstore.open(tmp_path / "converted.zarr", mode="r")["g/good"][...].tolist() == [0, 1]
    zstore.copy(group.store, tmp_path / "copied.zarr")
    with pytest.raises(MetadataError):
        zstore.open(tmp_path / "copied.zarr", mode="r")["lists"]
    for act in (lambda: netcdf_to_zarr(path, tmp_path / "b.zarr"), lambda: netcdf_sources(path)):
        with pytest.raises(UnsupportedError, match=r"lists of int32|is a reference"):
            act()
