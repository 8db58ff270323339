"""NetCDF and HDF5 files of other writers, read in place: values, names and attributes are theirs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.manifest import INLINE, Manifest
from zstore_virtual.scan.files import scan_file
from zstore_virtual.scan.virtualize import virtualize
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import NotFoundError, StoreError, UnsupportedError

hdf5plugin = pytest.importorskip("hdf5plugin", reason="hdf5plugin is not installed")

rng = np.random.default_rng(1)
NUMBERS = rng.integers(0, 100, (30, 40)).astype("i4")
NOISE = rng.random((30, 40))


def opened(manifest: Manifest, place: Path) -> VirtualStore:
    return VirtualStore(manifest, allow=[place])


def read(manifest: Manifest, place: Path, path: str) -> Any:
    return np.asarray(zstore.open_array(opened(manifest, place), path)[...])


H5PY = {
    "contiguous": {"data": NUMBERS},
    "big-endian contiguous": {"data": NUMBERS.astype(">i2")},
    "chunks": {"data": NUMBERS, "chunks": (7, 11)},
    "shuffle, gzip, fletcher32": {
        "data": NUMBERS,
        "chunks": (7, 11),
        "compression": "gzip",
        "shuffle": True,
        "fletcher32": True,
    },
    "fletcher32 of odd lengths": {"data": NUMBERS.astype("u1"), "chunks": (7, 11), "fletcher32": True},
    "gzip of big-endian floats": {"data": NUMBERS.astype(">f8"), "chunks": (7, 11), "compression": "gzip"},
    "lzf": {"data": NUMBERS, "chunks": (7, 11), "compression": "lzf", "shuffle": True},
    "szip": {"data": NUMBERS.astype("i2"), "chunks": (8, 16), "compression": "szip"},
    "szip of floats": {"data": NUMBERS.astype("f4"), "chunks": (8, 16), "compression": "szip"},
    "zstd": {"data": NUMBERS, "chunks": (7, 11), **hdf5plugin.Zstd(5)},
    "lz4": {"data": NUMBERS, "chunks": (7, 11), **hdf5plugin.LZ4()},
    "bz2": {"data": NUMBERS, "chunks": (7, 11), **hdf5plugin.BZip2()},
    "noise that no filter shrinks": {"data": NOISE, "chunks": (7, 11), "compression": "lzf"},
    "some noise": {
        "data": np.where(np.arange(30)[:, None] < 14, NOISE, 0),
        "chunks": (7, 11),
        "compression": "gzip",
    },
    "compound": {"data": np.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", "f4")])},
    "fixed strings": {"data": np.array([b"a", b"bcd"])},
    "strings": {"data": ["a", "bcd", "日本"], "dtype": h5py.string_dtype()},
    "bool": {"data": np.array([True, False])},
    "complex": {"data": np.array([1 + 2j, 3])},
    "half floats": {"data": NUMBERS.astype("f2")},
    "scalar": {"data": 3.5},
    "empty": {"shape": (0, 5), "maxshape": (None, 5), "dtype": "f4", "chunks": (3, 5)},
    "never written": {"shape": (10, 10), "chunks": (3, 3), "fillvalue": -7, "dtype": "i2"},
    "never written, contiguous": {"shape": (10, 10), "fillvalue": -7, "dtype": "i2"},
    "chunks larger than the array": {"data": NUMBERS, "chunks": (64, 64), "maxshape": (None, None)},
    "five dimensions": {
        "data": np.arange(2 * 3 * 4 * 5 * 6).reshape(2, 3, 4, 5, 6),
        "chunks": (1, 2, 3, 4, 5),
    },
}


@pytest.mark.parametrize("name", H5PY)
@pytest.mark.parametrize("block", [0, 512])
def test_datasets_of_h5py(tmp_path: Path, name: str, block: int) -> None:
    """`block`: HDF5 may begin behind a block of the user's, from which addresses then count."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", userblock_size=block) as file:
        file.create_dataset("group/values", **H5PY[name])
    manifest = scan_file(path)
    got = read(manifest, tmp_path, "group/values")
    with h5py.File(path) as file:
        stored = file["group/values"]
        expected = stored.asstr()[...] if name == "strings" else stored[...]
    assert got.shape == np.shape(expected)
    np.testing.assert_array_equal(got, expected)
    if name != "strings":
        assert got.dtype == expected.dtype.newbyteorder("=")
        assert manifest.sources[0].size == path.stat().st_size


# Where another library of the process has its own Blosc, HDF5's filter fails: it has a process of its own.
BLOSC = """
import sys, h5py, hdf5plugin, numpy as np
with h5py.File(sys.argv[1], "w") as file:
    values = np.arange(1200, dtype="i4").reshape(30, 40)
    options = hdf5plugin.Blosc(cname=sys.argv[2], shuffle=int(sys.argv[3]))
    file.create_dataset("values", data=values, chunks=(7, 11), **options)
"""


@pytest.mark.parametrize(("name", "shuffle"), [("zstd", 2), ("lz4", 1), ("zlib", 0), ("blosclz", 1)])
def test_blosc_of_h5py(tmp_path: Path, name: str, shuffle: int) -> None:
    path = tmp_path / "a.h5"
    # Without the places of plugins that this process was told.
    told = {key: value for key, value in os.environ.items() if not key.startswith("HDF5")}
    asked = [sys.executable, "-W", "ignore", "-c", BLOSC, str(path), name, str(shuffle)]
    subprocess.run(asked, check=True, env=told)
    manifest = scan_file(path)
    np.testing.assert_array_equal(
        read(manifest, tmp_path, "values"), np.arange(1200, dtype="i4").reshape(30, 40)
    )


def test_values_in_the_header_and_written_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, properties)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(4, dtype="i4"))
        sparse = file.create_dataset(
            "sparse", (20, 20), "f4", chunks=(6, 6), fillvalue=np.nan, maxshape=(None, 20)
        )
        sparse[7:9, 3:15] = 5
    manifest = scan_file(path)
    assert set(manifest.chunks["compact"].source.tolist()) == {INLINE}
    np.testing.assert_array_equal(read(manifest, tmp_path, "compact"), range(4))
    assert len(manifest.chunks["sparse"].source) == 3
    with h5py.File(path) as file:
        np.testing.assert_array_equal(read(manifest, tmp_path, "sparse"), file["sparse"][...])


NETCDF4_OPTIONS = {
    "plain": {},
    "zlib": {"compression": "zlib", "shuffle": True, "chunksizes": (1, 5, 8)},
    "zlib, fletcher32": {"compression": "zlib", "fletcher32": True, "chunksizes": (2, 10, 8)},
    "szip": {"compression": "szip", "szip_pixels_per_block": 8, "chunksizes": (1, 10, 16)},
    "big": {"endian": "big", "compression": "zlib"},
    "contiguous": {"contiguous": True},
    "with fill": {"fill_value": -1},
}


@pytest.mark.parametrize("dtype", ["f4", "i2", "u1", "f8", "i8"])
@pytest.mark.parametrize("name", NETCDF4_OPTIONS)
def test_variables_of_netcdf4(tmp_path: Path, name: str, dtype: str) -> None:
    """Records that were never written are the library's default fill values."""
    path, options = tmp_path / "a.nc", NETCDF4_OPTIONS[name]
    if name == "with fill" and dtype == "u1":
        options = {"fill_value": 255}
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 4 if name == "contiguous" else None)
        file.createDimension("y", 10)
        file.createDimension("x", 16)
        file.createVariable("time", "f8", ("time",)).units = "hours since 2001-01-01"
        stored = f">{dtype}" if name == "big" and dtype != "u1" else dtype
        values = file.createVariable("values", stored, ("time", "y", "x"), **options)
        values.units = "K"
        values[:3] = np.arange(3 * 160).reshape(3, 10, 16) % 100
        file["time"][:] = range(4)
        file.title = "trial"
    manifest = scan_file(path)
    array = zstore.open_array(opened(manifest, tmp_path), "values")
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        np.testing.assert_array_equal(array[...], file["values"][...])
    assert array.dims == ("time", "y", "x") and array.attrs["units"] == "K"
    with xr.open_dataset(path, decode_times=False, engine="netcdf4") as expected:
        got = xr.open_dataset(opened(manifest, tmp_path), engine="zstore", decode_times=False)
        xr.testing.assert_identical(got.load(), expected.load())


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("has_records", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_netcdf_classic(tmp_path: Path, kind: str, has_records: bool, count: int) -> None:
    """`count`: a variable of records that is alone is not aligned."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.createDimension("time", None if has_records else 5)
        file.createDimension("x", 7)
        for number, dtype in zip(range(count), ("i1", "f8", "i2"), strict=False):
            values = file.createVariable(f"v{number}", dtype, ("time", "x"))
            values[:] = np.arange(35).reshape(5, 7)
        letters = file.createVariable("letters", "S1", ("x",))
        letters[:] = np.array([b"abcdefg"]).view("S1")
        file.createVariable("scalar", "i4", ())[...] = 42
    manifest = scan_file(path)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        for name, variable in file.variables.items():
            np.testing.assert_array_equal(read(manifest, tmp_path, name), variable[...])
    if has_records:
        assert manifest.chunks["v0"].grid == (5, 1)


CDL = {
    "times": """netcdf times {
dimensions: time = UNLIMITED ; lat = 3 ; lon = 4 ;
variables: double time(time) ; time:units = "days since 1990-1-1" ; time:calendar = "noleap" ;
  float lat(lat) ; lat:units = "degrees_north" ; float lon(lon) ; lon:units = "degrees_east" ;
  short tas(time, lat, lon) ; tas:scale_factor = 0.01 ; tas:add_offset = 273.15 ; tas:_FillValue = -32768s ;
  :Conventions = "CF-1.8" ;
data: time = 0.5, 1.5 ; lat = -30, 0, 30 ; lon = 0, 90, 180, 270 ;
  tas = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, _, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24 ; }""",
    "auxiliary": """netcdf auxiliary {
dimensions: j = 2 ; i = 3 ; nv = 2 ;
variables: double lat(j, i) ; lat:standard_name = "latitude" ;
  double lon(j, i) ; lon:standard_name = "longitude" ;
  float sst(j, i) ; sst:coordinates = "lat lon" ; sst:grid_mapping = "crs" ; int crs ;
  crs:grid_mapping_name = "latitude_longitude" ; double z(j) ; z:bounds = "z_bnds" ; double z_bnds(j, nv) ;
data: lat = 1, 2, 3, 4, 5, 6 ; lon = 6, 5, 4, 3, 2, 1 ; sst = 1, 2, 3, 4, 5, 6 ; crs = 1 ; z = 1, 2 ;
  z_bnds = 0, 1.5, 1.5, 3 ; }""",
    "station": """netcdf station {
dimensions: station = 2 ; name_len = 5 ; obs = UNLIMITED ;
variables: char name(station, name_len) ; name:cf_role = "timeseries_id" ;
  byte flag(obs) ; flag:flag_values = 0b, 1b ;
  flag:flag_meanings = "good bad" ; int index(obs) ; index:instance_dimension = "station" ;
data: name = "one", "two" ; flag = 0, 1, 0 ; index = 0, 0, 1 ; }""",
    "rotated pole": """netcdf rotated {
dimensions: rlon = 3 ; rlat = 2 ; lev = 2 ;
variables: float T(lev, rlat, rlon) ; T:long_name = "temperature" ; T:units = "K" ;
  T:coordinates = "lon lat" ;
  T:grid_mapping = "rotated_pole" ; char rotated_pole ;
  rotated_pole:grid_mapping_name = "rotated_latitude_longitude" ;
  rotated_pole:grid_north_pole_latitude = 32.5 ; rotated_pole:grid_north_pole_longitude = 170. ;
  float rlon(rlon) ; rlon:standard_name = "grid_longitude" ; float rlat(rlat) ;
  rlat:standard_name = "grid_latitude" ;
  float lev(lev) ; lev:units = "hPa" ; float lon(rlat, rlon) ; float lat(rlat, rlon) ;
data: rlon = -1, 0, 1 ; rlat = 5, 6 ; lev = 1000, 850 ; lon = 1, 2, 3, 4, 5, 6 ;
  lat = 50, 51, 52, 53, 54, 55 ;
  T = 270, 271, 272, 273, 274, 275, 276, 277, 278, 279, 280, _ ; }""",
    "hybrid levels": """netcdf hybrid {
dimensions: lev = 2 ; ilev = 3 ; x = 2 ;
variables: double lev(lev) ; lev:standard_name = "atmosphere_hybrid_sigma_pressure_coordinate" ;
  lev:formula_terms = "a: A b: B ps: PS p0: P0" ; double A(lev) ; double B(lev) ; double P0 ;
  P0:units = "Pa" ;
  float PS(x) ; PS:units = "Pa" ; float w(lev, x) ; w:cell_methods = "x: mean (interval: 1 km)" ;
data: lev = 0.9, 0.5 ; A = 0, 0.1 ; B = 0.9, 0.4 ; P0 = 100000 ; PS = 99000, 101000 ; w = 1, 2, 3, 4 ; }""",
    "climatology": """netcdf climatology {
dimensions: time = 2 ; nv = 2 ; station = 3 ;
variables: double time(time) ; time:climatology = "climatology_bounds" ; time:units = "days since 1960-1-1" ;
  double climatology_bounds(time, nv) ; short tmin(time, station) ; tmin:_FillValue = -99s ;
  tmin:cell_methods = "time: minimum within years time: mean over years" ; tmin:scale_factor = 0.1 ;
  tmin:valid_range = -500s, 500s ;
data: time = 45.5, 136.5 ; climatology_bounds = 0, 3743, 91, 3834 ; tmin = 1, 2, 3, 4, 5, -99 ; }""",
    "gathered points": """netcdf gathered {
dimensions: lat = 3 ; lon = 4 ; landpoint = 5 ; depth = 2 ;
variables: int landpoint(landpoint) ; landpoint:compress = "lat lon" ; float soil(depth, landpoint) ;
  float depth(depth) ; depth:positive = "down" ; depth:units = "m" ; float lat(lat) ; float lon(lon) ;
data: landpoint = 0, 3, 5, 8, 11 ; soil = 1, 2, 3, 4, 5, 6, 7, 8, 9, NaN ; depth = 0.1, 1 ; lat = 0, 1, 2 ;
  lon = 0, 1, 2, 3 ; }""",
    "contiguous profiles": """netcdf ragged {
dimensions: obs = 6 ; profile = 3 ; name_len = 4 ;
variables: int profile(profile) ; profile:cf_role = "profile_id" ; double time(profile) ;
  time:units = "hours since 2001-02-03 00:00" ; float lat(profile) ; float lon(profile) ;
  int rowSize(profile) ; rowSize:sample_dimension = "obs" ; float z(obs) ; z:axis = "Z" ; z:positive = "up" ;
  float pressure(obs) ; pressure:coordinates = "time lon lat z" ; pressure:missing_value = -1.f ;
  char flavour(obs, name_len) ; :featureType = "profile" ;
data: profile = 1, 2, 3 ; time = 1, 2, 3 ; lat = 1, 2, 3 ; lon = 4, 5, 6 ; rowSize = 1, 2, 3 ;
  z = 0, 0, 1, 0, 1, 2 ; pressure = 1, 2, -1, 4, 5, 6 ; flavour = "a", "bb", "ccc", "dddd", "", "e" ; }""",
    "polygons": """netcdf polygons {
dimensions: node = 7 ; instance = 2 ; time = UNLIMITED ; part = 2 ;
variables: double t(time) ; t:units = "days since 2000-01-01" ; t:calendar = "360_day" ;
  float someData(instance, part) ; someData:geometry = "geometry_container" ;
  int geometry_container ; geometry_container:geometry_type = "polygon" ;
  geometry_container:node_count = "node_count" ; geometry_container:node_coordinates = "x y" ;
  geometry_container:part_node_count = "part_node_count" ;
  geometry_container:interior_ring = "interior_ring" ;
  int node_count(instance) ; int part_node_count(part) ; byte interior_ring(part) ;
  double x(node) ; x:axis = "X" ; double y(node) ; y:axis = "Y" ; float pr(time, instance) ;
data: t = 30, 59.5, 90 ; someData = 1, 2, 3, 4 ; geometry_container = 1 ; node_count = 3, 4 ;
  part_node_count = 3, 4 ;
  interior_ring = 0, 1 ; x = 1, 2, 3, 4, 5, 6, 7 ; y = 7, 6, 5, 4, 3, 2, 1 ; pr = 1, 2, 3, 4, 5, 6 ; }""",
    "flags": """netcdf flags {
dimensions: depth = 2 ; lat = 2 ; lon = 3 ;
variables: byte current_speed_qc(depth, lat, lon) ; current_speed_qc:_FillValue = -128b ;
  current_speed_qc:flag_values = 0b, 1b, 2b ; current_speed_qc:flag_meanings = "good poor bad" ;
  byte sensor(depth, lat, lon) ; sensor:flag_masks = 1b, 2b, 12b ; sensor:flag_meanings = "low warm other" ;
  short packed(depth, lat, lon) ; packed:_Unsigned = "true" ; packed:_FillValue = -1s ;
  packed:add_offset = 2. ;
data: current_speed_qc = 0, 1, 2, 0, 1, _, 2, 1, 0, 2, 1, 0 ; sensor = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 ;
  packed = 0, 1, 2, -2, -3, -1, 6, 7, 8, 9, 10, 11 ; }""",
}

# What the newer format alone has.
CDL_EXTENDED = """netcdf extended {
dimensions: n = 3 ; m = UNLIMITED ;
variables: string label(n) ; ubyte a(n) ; ushort b(n) ; uint c(n) ; int64 d(n) ; uint64 e(n) ; float f(m, n) ;
  a:_DeflateLevel = 5 ; b:_Shuffle = "true" ; b:_DeflateLevel = 1 ; c:_Fletcher32 = "true" ;
  c:_Endianness = "big" ;
  d:_ChunkSizes = 2 ; e:_Storage = "contiguous" ; f:_ChunkSizes = 2, 2 ; f:_DeflateLevel = 9 ;
  f:_Shuffle = "true" ;
  string :words = "one", "two" ;
data: label = "alpha", "", "日本" ; a = 1, 2, 255 ; b = 1, 2, 65535 ; c = 1, 2, 4294967295 ;
  d = -9223372036854775807, 0, 1 ; e = 0, 1, 18446744073709551615 ; f = 1, 2, 3, 4, 5, 6, 7, 8, NaN ;
group: below { dimensions: k = 2 ; variables: double inner(k, n) ; data: inner = 1, 2, 3, 4, 5, 6 ; } }"""


def ncgen(path: Path, text: str, kind: str) -> Path:
    """The file that netCDF-C's own tool makes of CDL."""
    if shutil.which("ncgen") is None:
        pytest.skip("ncgen is not on PATH (Debian's package netcdf-bin)")
    path.with_suffix(".cdl").write_text(text)
    subprocess.run(["ncgen", "-k", kind, "-o", str(path), str(path.with_suffix(".cdl"))], check=True)
    return path


@pytest.mark.parametrize("kind", ["classic", "64-bit offset", "netCDF-4", "netCDF-4 classic model"])
@pytest.mark.parametrize("name", CDL)
def test_cf_examples_by_ncgen(tmp_path: Path, name: str, kind: str) -> None:
    path = ncgen(tmp_path / "a.nc", CDL[name], kind)
    got = xr.open_dataset(opened(scan_file(path), tmp_path), engine="zstore", decode_coords="all")
    engine = "netcdf4"
    with xr.open_dataset(path, engine=engine, decode_coords="all") as expected:
        xr.testing.assert_identical(got.load(), expected.load())


@pytest.mark.parametrize("group", ["", "below"])
def test_what_only_netcdf4_has_by_ncgen(tmp_path: Path, group: str) -> None:
    path = ncgen(tmp_path / "a.nc", CDL_EXTENDED, "netCDF-4")
    got = xr.open_dataset(opened(scan_file(path), tmp_path), engine="zstore", group=group)
    with xr.open_dataset(path, engine="netcdf4", group=group or None) as expected:
        xr.testing.assert_identical(got.load(), expected.load())


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_datasets_of_xarray(tmp_path: Path, engine: Any) -> None:
    path = tmp_path / "a.nc"
    made = xr.Dataset(
        {
            "t": (("time", "x"), NOISE[:5], {"units": "K"}),
            "n": ((), 3),
            "flag": ("x", np.arange(40) % 2 == 0),
        },
        {"time": np.arange("2001-01-01", "2001-01-06", dtype="M8[D]").astype("M8[ns]"), "x": np.arange(40.0)},
        {"title": "trial"},
    )
    encoding: dict[str, Any] = {"t": {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -9999}}
    made.to_netcdf(path, engine=engine, encoding=encoding, unlimited_dims=["time"])
    got = xr.open_dataset(opened(scan_file(path), tmp_path), engine="zstore")
    with xr.open_dataset(path, engine=engine) as expected:
        xr.testing.assert_identical(got.load(), expected.load())


def _bitshuffle(file: Any) -> None:
    file.create_dataset("a", data=NUMBERS, chunks=(7, 11), **hdf5plugin.Bitshuffle())


def _scaled(file: Any) -> None:
    file.create_dataset("a", data=NUMBERS, chunks=(7, 11), scaleoffset=0)


def _reference(file: Any) -> None:
    file.create_dataset("b", data=[1])
    file.create_dataset("a", data=[file["b"].ref], dtype=h5py.ref_dtype)


def _ragged(file: Any) -> None:
    file.create_dataset("a", (2,), h5py.vlen_dtype("i4"))


def _padded(file: Any) -> None:
    file.create_dataset("a", data=np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True)))


def _virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((10,), "i4")
    layout[...] = h5py.VirtualSource("other.h5", "b", (10,))
    file.create_virtual_dataset("a", layout)


def _external(file: Any) -> None:
    file.create_dataset("a", (10,), "i4", external=[("raw.bin", 0, 40)])


def _null(file: Any) -> None:
    file["a"] = h5py.Empty("f4")


def _mislaid(file: Any) -> None:
    file.create_dataset("a", data=NUMBERS, chunks=(2, 3), maxshape=(len(NUMBERS), None))


def _linked(file: Any) -> None:
    """In the place where it would be in this file, another has other values."""
    with h5py.File(f"{file.filename}.other", "w") as other:
        other.create_dataset("b", data=NUMBERS + 1)
    file["a"] = h5py.ExternalLink(f"{file.filename}.other", "b")


def _field(kind: Any) -> Callable[[Any], None]:
    """Writes a compound type with a field of this kind."""
    return lambda file: file.create_dataset("a", data=np.zeros(2, np.dtype([("n", "u1"), ("f", kind)])))


def _attribute(file: Any) -> None:
    file["a"] = NUMBERS
    file["a"].attrs["to"] = file["a"].ref


# As the table of docs/virtual.md has them, which names what is refused.
REFUSED: dict[str, list[Callable[[Any], None]]] = {
    "has the HDF5 filter": [_bitshuffle, _scaled],
    "which Zarr does not have": [_reference, _ragged],
    "is a reference": [_attribute],
    "with gaps between fields": [_padded],
    "expected little-endian fields": [_field(">f4")],
    "expected fields of plain types": [_field([("x", "f4"), ("y", "f4")]), _field("(2,)f4")],
    "is a virtual dataset": [_virtual],
    "is in external files": [_external],
    "to which a link leads": [_linked],
    "has no dataspace": [_null],
    "has chunks that HDF5 lists at other places": [_mislaid],
}


def test_what_is_refused_is_what_the_docs_name() -> None:
    page = Path(__file__).parents[3] / "docs" / "virtual.md"
    said = re.findall(r"^\| HDF5 \| .* \| `(.*)` \|$", page.read_text(), re.MULTILINE)
    assert {*said} == {*REFUSED}


@pytest.mark.parametrize(
    ("said", "make"), [(said, make) for said, makes in REFUSED.items() for make in makes]
)
def test_what_references_cannot_express_is_refused_by_name_or_left_out(
    tmp_path: Path, said: str, make: Callable[[Any], None]
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest" if make is _mislaid else None) as file:
        make(file)
        file.create_dataset("kept", data=NUMBERS)
    with pytest.raises(UnsupportedError, match=re.escape(said)) as caught:
        scan_file(path)
    assert "'a'" in str(caught.value) or "'/a'" in str(caught.value)
    np.testing.assert_array_equal(read(scan_file(path, drop=["a"]), tmp_path, "kept"), NUMBERS)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (lambda file: h5py.ExternalLink(f"{file.filename}.other", "group"), "to which a link leads"),
        (lambda file: h5py.ExternalLink("none.h5", "b"), "a link that leads to nothing"),
        (lambda file: h5py.SoftLink("/none"), "a link that leads to nothing"),
        (lambda file: h5py.SoftLink("/"), "a group above it"),
        (lambda file: file["/"], "a group above it"),
    ],
)
def test_links_that_lead_out_of_the_file_or_nowhere_are_refused(tmp_path: Path, link: Any, said: str) -> None:
    with h5py.File(tmp_path / "a.h5.other", "w") as other:
        other.create_dataset("group/b", data=NUMBERS + 1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("group/kept", data=NUMBERS)
        file["group/a"] = link(file)
    with pytest.raises(UnsupportedError, match=said):
        scan_file(tmp_path / "a.h5")


def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.nc")
    (tmp_path / "loop.nc").symlink_to("loop.nc")
    (tmp_path / "file.nc").touch()
    for name in ("pipe.nc", "loop.nc", "file.nc/below.nc", "x" * 300, "a\0b"):
        with pytest.raises(StoreError, match="cannot read"):
            scan_file(tmp_path / name)


def test_files_that_cannot_be_scanned_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        scan_file(tmp_path / "none.nc")
    with pytest.raises(NotFoundError):
        virtualize(tmp_path / "none.nc", tmp_path / "none.json")
    assert not [*tmp_path.iterdir()], "no journal stays of a call that has scanned nothing"
    for name in ("text.nc", "more.nc"):
        (tmp_path / name).write_text("no such thing")
    for files in ([tmp_path / "text.nc"], [tmp_path / "text.nc", tmp_path / "more.nc"]):
        with pytest.raises(UnsupportedError, match="no s"):
            virtualize(files, tmp_path / "none.json", concat="time")
        assert {path.name for path in tmp_path.iterdir()} == {"text.nc", "more.nc"}
    with pytest.raises(UnsupportedError, match="no s"):
        scan_file(tmp_path / "text.nc")
    path = tmp_path / "mixed.h5"
    with h5py.File(path, "w") as file:
        file["time"] = [1.0]
        file["time"].make_scale("time")
        file.create_dataset("a", (1, 4), "f4").dims[0].attach_scale(file["time"])
    with pytest.raises(UnsupportedError, match="a scale for some of its dimensions only"):
        scan_file(path)
    path = tmp_path / "short.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=NUMBERS)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(StoreError):
        scan_file(path)


def test_a_variable_shorter_than_its_dimension_needs_a_fill_value(tmp_path: Path) -> None:
    """The NetCDF library gives its default fill values for the rest, which are not in the file."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createVariable("time", "f8", ("time",))[:] = range(4)
        file.createVariable("a", "i2", ("time",), fill_value=False)[:3] = 1
    with pytest.raises(UnsupportedError, match=r"'a' has the shape \(3,\)"):
        scan_file(path)


def test_a_source_that_changed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=NUMBERS)
    manifest = scan_file(path)
    with h5py.File(path, "w") as file:
        file.create_dataset("longer", data=NOISE)
        file.create_dataset("a", data=NUMBERS)
    with pytest.raises(StoreError, match=r"a\.h5"):
        read(manifest, tmp_path, "a")
