"""NetCDF-4 files made of a Zarr: files of all shapes go into a Zarr and out of it, and stores there and back.

Files are compared by netCDF4, without its masking and scaling. What changes on the way is named in
`docs/xarray.md`: an enumeration is its numbers with CF's flags, a dimension without a variable is gone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError, MetadataError, StoreError, UnsupportedError
from zstore.jobs.plan import Estimate
from zstore.model.array import ZarrFormat
from zstore.model.json_attributes import AttributeWarning
from zstore.storage.memory import MemoryStore

from .compared import compare_files, compare_stores

netCDF4 = pytest.importorskip("netCDF4", reason="files are made and compared by netCDF4")
pytest.importorskip("h5netcdf", reason="NetCDF is written with h5netcdf (extra 'netcdf')")

CALENDARS = (
    *("standard", "gregorian", "proleptic_gregorian", "julian", "noleap", "365_day", "all_leap", "366_day"),
    *("360_day", "none"),
)
NUMBERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
Maker = Callable[[Any], None]
SHAPES: dict[str, Maker] = {}


def shape_of_file(name: str) -> Callable[[Maker], Maker]:
    def add(maker: Maker) -> Maker:
        SHAPES[name] = maker
        return maker

    return add


def dims(group: Any, **lengths: int | None) -> None:
    for name, length in lengths.items():
        group.createDimension(name, length)


def variable(
    group: Any, name: str, kind: Any, along: tuple[str, ...], values: Any, *, more: Any = None, **said: Any
) -> Any:
    made = group.createVariable(name, kind, along, **(more or {}))
    made.set_auto_maskandscale(False)
    made.setncatts(said)
    if values is not None:
        made[...] = values
    return made


def grid(
    group: Any,
    *,
    times: int = 3,
    units: str = "days since 2000-01-01",
    calendar: str = "standard",
    unlimited: bool = True,
) -> None:
    dims(group, time=None if unlimited else times, lat=6, lon=8)
    bounds = {"standard_name": "time", "axis": "T", "units": units, "calendar": calendar}
    variable(group, "time", "f8", ("time",), np.arange(times) + 0.5, **bounds)
    variable(
        group, "lat", "f4", ("lat",), np.linspace(75, -75, 6), units="degrees_north", standard_name="latitude"
    )
    variable(
        group, "lon", "f4", ("lon",), np.linspace(0, 315, 8), units="degrees_east", standard_name="longitude"
    )


def field(group: Any, name: str = "tas", kind: str = "f4", *, more: Any = None, **said: Any) -> Any:
    values = np.arange(3 * 6 * 8).reshape(3, 6, 8) % 100
    return variable(group, name, kind, ("time", "lat", "lon"), values, more=more, **said)


for _calendar in CALENDARS:

    @shape_of_file(f"calendar {_calendar}")
    def _(group: Any, calendar: str = _calendar) -> None:
        grid(group, units="hours since 1850-01-01 06:00:00", calendar=calendar)
        field(group, cell_methods="time: mean")


for _kind in NUMBERS:

    @shape_of_file(f"numbers {_kind}")
    def _(group: Any, kind: str = _kind) -> None:
        grid(group)
        limits = np.array([1, 90], kind)
        field(
            group,
            kind=kind,
            more={"fill_value": np.array(99, kind)},
            valid_range=limits,
            missing_value=limits[:1],
        )

    @shape_of_file(f"packed {_kind}")
    def _(group: Any, kind: str = _kind) -> None:
        grid(group)
        more = {"zlib": True, "complevel": 3, "chunksizes": (1, 3, 8), "fill_value": np.array(7, kind)}
        field(group, kind=kind, more=more, scale_factor=0.01, add_offset=np.float32(273.15), units="K")


for _name, _more in {
    "contiguous": {"contiguous": True},
    "deflate 9": {"zlib": True, "complevel": 9, "shuffle": False, "chunksizes": (3, 6, 8)},
    "shuffled": {"zlib": True, "complevel": 1, "chunksizes": (2, 4, 5)},
    "chunks alone": {"chunksizes": (3, 2, 2)},
}.items():

    @shape_of_file(_name)
    def _(group: Any, more: Any = _more) -> None:
        grid(group, unlimited=False)
        field(group, more=more)


@shape_of_file("big-endian")
def _(group: Any) -> None:
    grid(group)
    field(group, kind=">f4", more={"endian": "big", "fill_value": np.array(5, ">f4")})


@shape_of_file("enumeration")
def _(group: Any) -> None:
    dims(group, x=4)
    kind = group.createEnumType("u1", "surface", {"land": 0, "open_sea": 2, "lake": 5})
    variable(group, "kind", kind, ("x",), np.array([0, 2, 2, 5], "u1"), more={"fill_value": np.uint8(0)})


@shape_of_file("CMIP6")
def _(group: Any) -> None:
    grid(group, units="days since 1850-01-01", calendar="noleap")
    dims(group, bnds=2)
    group["time"].bounds = "time_bnds"
    variable(group, "time_bnds", "f8", ("time", "bnds"), np.array([[0, 1], [1, 2], [2, 3]]))
    variable(group, "height", "f8", (), 2.0, units="m", axis="Z", positive="up", standard_name="height")
    more = {"fill_value": np.float32(1e20), "zlib": True, "chunksizes": (1, 6, 8)}
    field(
        group,
        more=more,
        missing_value=np.float32(1e20),
        coordinates="height",
        cell_measures="area: areacella",
    )
    group.setncatts(
        {"Conventions": "CF-1.7 CMIP-6.2", "branch_time_in_parent": 0.0, "realization_index": np.int32(1)}
    )
    group.tracking_id = "hdl:21.14100/abc"


@shape_of_file("ERA5")
def _(group: Any) -> None:
    dims(group, valid_time=3, latitude=5, longitude=4, expver=2)
    since = {"units": "hours since 1900-01-01 00:00:00.0", "calendar": "gregorian"}
    variable(group, "valid_time", "i4", ("valid_time",), np.arange(3) + 1051896, **since)
    variable(group, "latitude", "f4", ("latitude",), np.linspace(90, 89, 5), units="degrees_north")
    variable(group, "longitude", "f4", ("longitude",), np.linspace(0, 0.75, 4), units="degrees_east")
    variable(group, "expver", str, ("expver",), np.array(["0001", "0005"], object))
    values = np.arange(120).reshape(3, 2, 5, 4) - 60
    along, more = ("valid_time", "expver", "latitude", "longitude"), {"fill_value": np.int16(-32767)}
    packing = {"scale_factor": 0.0012, "add_offset": 285.1, "missing_value": np.int16(-32767)}
    variable(group, "t2m", "i2", along, values, more=more, **packing, units="K")
    group.history = "2024-01-01 GRIB to CDM+CF via cfgrib — 0.9"


@shape_of_file("GOES")
def _(group: Any) -> None:
    dims(group, y=6, x=8, number_of_time_bounds=2)
    scaled = {"scale_factor": np.float32(5.6e-05), "add_offset": np.float32(-0.1), "units": "rad"}
    variable(group, "x", "i2", ("x",), np.arange(8), **scaled, axis="X")
    variable(group, "y", "i2", ("y",), np.arange(6), **scaled, axis="Y")
    more = {"fill_value": np.int16(-1), "zlib": True, "chunksizes": (3, 4)}
    said = {
        "_Unsigned": "true",
        "valid_range": np.array([0, -6], "i2"),
        "grid_mapping": "goes_imager_projection",
    }
    values = np.arange(48).reshape(6, 8) * 700
    variable(group, "CMI", "i2", ("y", "x"), values.astype("u2").view("i2"), more=more, **said, **scaled)
    flags = {"flag_values": np.array([0, 1, 2], "i1"), "flag_meanings": "good conditional out_of_range"}
    variable(group, "DQF", "i1", ("y", "x"), values % 3, more={"fill_value": np.int8(-1)}, **flags)
    place = {"perspective_point_height": 35786023.0, "sweep_angle_axis": "x", "semi_major_axis": 6378137.0}
    variable(
        group, "goes_imager_projection", "i4", (), -2147483647, grid_mapping_name="geostationary", **place
    )
    since = {"units": "seconds since 2000-01-01 12:00:00", "bounds": "time_bounds"}
    variable(group, "t", "f8", (), 7e8, **since)
    variable(group, "time_bounds", "f8", ("number_of_time_bounds",), [7e8, 7e8 + 30])


@shape_of_file("OSI SAF")
def _(group: Any) -> None:
    dims(group, time=1, nv=2, yc=5, xc=4)
    variable(
        group, "time", "f8", ("time",), [1.3e9], units="seconds since 1978-01-01 00:00:00", bounds="time_bnds"
    )
    variable(group, "time_bnds", "f8", ("time", "nv"), [[1.3e9, 1.3e9 + 86400]])
    variable(
        group, "xc", "f8", ("xc",), np.arange(4) * 25.0, units="km", standard_name="projection_x_coordinate"
    )
    variable(
        group, "yc", "f8", ("yc",), np.arange(5) * -25.0, units="km", standard_name="projection_y_coordinate"
    )
    for name in ("lat", "lon"):
        variable(group, name, "f4", ("yc", "xc"), np.arange(20).reshape(5, 4), units=f"degrees_{name}")
    said = {"scale_factor": 0.01, "grid_mapping": "Polar_Stereographic_Grid", "coordinates": "time lat lon"}
    variable(group, "ice_conc", "i4", ("time", "yc", "xc"), 55, more={"fill_value": np.int32(-999)}, **said)
    masks = {"flag_masks": np.array([1, 2, 4], "i2"), "flag_meanings": "land lake open_water"}
    variable(group, "status_flag", "i2", ("time", "yc", "xc"), 5, **masks)
    crs = {"grid_mapping_name": "polar_stereographic", "straight_vertical_longitude_from_pole": -45.0}
    variable(group, "Polar_Stereographic_Grid", "i4", (), 0, **crs, proj4_string="+proj=stere +lat_0=90")


@shape_of_file("groups")
def _(group: Any) -> None:
    grid(group)
    group.title = "outer"
    for name in ("a", "b/c"):
        inner = group.createGroup(name)
        inner.setncatts({"where": name, "number": 5})
        dims(inner, own=4)
        variable(inner, "inherited", "i2", ("time", "lat"), np.arange(18).reshape(3, 6))
        variable(inner, "own", "f8", ("own",), np.arange(4))


@shape_of_file("groups with dimensions of one name")
def _(group: Any) -> None:
    for name, length in {"full": 8, "half": 4}.items():
        inner = group.createGroup(name)
        dims(inner, y=length, x=length)
        variable(inner, "x", "f8", ("x",), np.arange(length))
        variable(inner, "band", "u2", ("y", "x"), np.arange(length**2).reshape(length, length))


@shape_of_file("groups without variables")
def _(group: Any) -> None:
    group.createGroup("empty/emptier").note = "nothing"


@shape_of_file("strings")
def _(group: Any) -> None:
    dims(group, station=None, other=2)
    variable(group, "name", str, ("station",), np.array(["Zürich", "", "北京"], object), long_name="имя")
    variable(group, "table", str, ("station", "other"), np.array([["a", "b"], ["c", ""], ["e", "ж"]], object))
    group.setncatts({"words": ["one", "два"], "empty": "", "letter": "K"})


@shape_of_file("characters")
def _(group: Any) -> None:
    dims(group, station=3, strlen=5)
    texts = np.array([b"abc", b"defgh", b""], "S5")
    variable(
        group, "id", "S1", ("station", "strlen"), texts.view("S1").reshape(3, 5), cf_role="timeseries_id"
    )
    variable(group, "letter", "S1", ("station",), np.array([b"a", b"b", b"c"]))


@shape_of_file("scalars and numbers of all types as attributes")
def _(group: Any) -> None:
    variable(group, "crs", "i4", (), 0, grid_mapping_name="latitude_longitude", inverse_flattening=298.257)
    variable(group, "text", str, (), np.array("one", object))
    for kind in NUMBERS:
        group.setncattr(f"one_{kind}", np.array(7, kind))
        group.setncattr(f"many_{kind}", np.array([7, 8, 9], kind))
    group.large = np.uint64(2**63 + 1)


@shape_of_file("two unlimited dimensions")
def _(group: Any) -> None:
    dims(group, time=None, obs=None)
    variable(group, "v", "f4", ("time", "obs"), np.arange(15).reshape(3, 5))


@shape_of_file("an unlimited dimension without items")
def _(group: Any) -> None:
    dims(group, time=None, x=3)
    variable(group, "time", "f8", ("time",), None, units="days since 2000-01-01")
    variable(group, "v", "f4", ("time", "x"), None)
    variable(group, "x", "f8", ("x",), np.arange(3))


@shape_of_file("fields")
def _(group: Any) -> None:
    kind = np.dtype([("depth", "f4"), ("count", "i2"), ("at", "f8")])
    dims(group, obs=4)
    pair = group.createCompoundType(kind, "reading")
    values = np.array([(1.5, 2, 3.0)] * 4, kind)
    variable(group, "readings", pair, ("obs",), values, units="m")


@shape_of_file("NaN as what is missing")
def _(group: Any) -> None:
    grid(group)
    field(group, more={"fill_value": np.float32("nan")}, missing_value=np.float32("nan"))
    field(group, "other", "f8", more={"fill_value": np.float64("nan")})


@shape_of_file("a coordinate of two dimensions named like one of them")
def _(group: Any) -> None:
    dims(group, y=3, x=4)
    variable(group, "x", "f8", ("y", "x"), np.arange(12).reshape(3, 4))
    variable(group, "v", "f8", ("y", "x"), np.arange(12).reshape(3, 4), coordinates="x")


FORMATS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4_CLASSIC")
for _format in FORMATS:
    SHAPES[_format] = SHAPES["CMIP6"]
# Of the shapes that differ in one word only, every fifth is among the others.
ALIKE = [name for name in SHAPES if name.split()[0] in ("calendar", "numbers", "packed")]
# Those that go through both formats of Zarr, not the third alone.
BOTH = ("ERA5", "strings", "groups", "fields")
SLOW = {name for at, name in enumerate(ALIKE) if at % 5}


def make_file(path: Path, name: str) -> Path:
    with netCDF4.Dataset(path, "w", format=name if name in FORMATS else "NETCDF4") as made:
        SHAPES[name](made)
    return path


@pytest.mark.parametrize(
    ("name", "zarr_format"),
    [
        pytest.param(name, zarr_format, marks=[pytest.mark.slow] if is_slow else [])
        for name in SHAPES
        for zarr_format, is_slow in ((2, name not in BOTH), (3, name in SLOW))
    ],
)
def test_files_of_all_shapes_go_into_a_zarr_and_out_of_it(
    name: str, zarr_format: ZarrFormat, tmp_path: Path
) -> None:
    path = make_file(tmp_path / "in.nc", name)
    if name == "NaN as what is missing":
        warnings.simplefilter("ignore", AttributeWarning)
    group = zstore.netcdf_to_zarr(path, MemoryStore(), zarr_format=zarr_format)
    back = zstore.zarr_to_netcdf(group, tmp_path / "out.nc")
    with netCDF4.Dataset(path) as expected, netCDF4.Dataset(back) as found:
        compare_files(found, expected)
    compare_stores(zstore.netcdf_to_zarr(back, MemoryStore(), zarr_format=zarr_format), group)


def whole_store(zarr_format: ZarrFormat) -> zstore.Group:
    """A store with what NetCDF has forms for, and with what it has none for."""
    words = {"title": "ж", "number": 3, "one": [1], "tree": {"a": [None, True]}, "yes": True, "none": None}
    lists = {"mixed": [1, "a"], "empty": [], "words": ["a", "b"], "no text": "", "huge": 2**70, "NAME": "x"}
    growing = {"_nc_unlimited_dimensions": ["time"]}
    group = zstore.create_group(
        MemoryStore(), zarr_format=zarr_format, attributes={**words, **lists, **growing}
    )
    packing = {"scale_factor": 0.01, "add_offset": 5.0, "valid_range": [0, 50], "_FillValue": -99}
    values = np.arange(6000).reshape(10, 20, 30) % 200
    along = ("time", "lat", "lon")
    group.create_array(
        "t2m",
        data=values.astype("i2"),
        chunks=(3, 20, 7),
        dimension_names=along,
        attributes=packing,
        fill_value=-99,
    )
    for name, data in {
        "half": np.arange(3, dtype="f2"),
        "flag": np.array([True, False, True]),
        "wave": np.array([1j, 2, 3], "c8"),
        "at": np.array(["2000-01-01", "NaT", "2001-01-01"], "M8[ns]"),
        "lag": np.array([1, 2, 3], "m8[s]"),
        "code": np.array([b"ab", b"c", b""]),
        "letter": np.array([b"a", b"b", b"c"]),
        "name": np.array(["aж", "b", ""]),
        "pair": np.array([(1, 2.0), (2, 3.0), (3, 4.0)], [("a", "i4"), ("b", "f8")]),
        "large": np.array([1, 2, 2**63], "u8"),
    }.items():
        group.create_array(name, data=data, dimension_names=("x",))
    group.create_array("text", data=np.array(["aж", "b", ""], object), dtype=str, dimension_names=("x",))
    group.create_array("nameless", data=np.zeros((3, 3)), fill_value=7.0)
    group.create_array("scalar", data=np.int32(4), attributes={"units": "K", "unit tree": {"K": 1}})
    group.create_array("lat", data=np.arange(20.0), dimension_names=("lat",))
    inner = group.create_group("in/ner", attributes={"deep": [[1]]})
    inner.create_array("v", data=np.arange(20.0), dimension_names=("lat",))
    inner.create_array("w", data=np.arange(4), dimension_names=("lon",))
    return group


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_netcdf_has_no_form_for_comes_back(zarr_format: ZarrFormat, tmp_path: Path) -> None:
    group = whole_store(zarr_format)
    path = zstore.zarr_to_netcdf(group, tmp_path / "a.nc")
    compare_stores(zstore.netcdf_to_zarr(path, MemoryStore(), zarr_format=zarr_format), group)
    with netCDF4.Dataset(path) as opened:
        assert opened.dimensions["time"].isunlimited() and not opened.dimensions["lat"].isunlimited()
        assert "lat" not in opened["in/ner"].dimensions and len(opened["in/ner"].dimensions["lon"]) == 4
        assert opened["t2m"].chunking() == [3, 20, 7] and opened["t2m"].filters()["complevel"] == 4
        assert opened["t2m"].valid_range.dtype == opened["t2m"]._FillValue.dtype == np.int16


def test_compressions_and_checksums_are_the_arrays_own(tmp_path: Path) -> None:
    group = zstore.create_group(MemoryStore())
    codecs = {"zstd": "zstd", "gzip": [{"name": "gzip", "configuration": {"level": 7}}], "none": None}
    summed = [{"name": "zstd", "configuration": {}}, {"name": "crc32c"}]
    for name, compressors in {**codecs, "summed": summed}.items():
        group.create_array(
            name,
            data=np.zeros((8, 8)),
            chunks=(4, 4),
            shards=(8, 4),
            compressors=compressors,
            dimension_names=("y", "x"),
        )
    cases: list[tuple[str | None, dict[str, int]]] = [
        ("auto", {"zstd": 4, "gzip": 7, "none": 0, "summed": 4}),
        (None, dict.fromkeys((*codecs, "summed"), 0)),
        ("zlib:9", dict.fromkeys((*codecs, "summed"), 9)),
    ]
    for compress, levels in cases:
        path = zstore.zarr_to_netcdf(group, tmp_path / "a.nc", compress=compress, overwrite=True)
        with netCDF4.Dataset(path) as opened:
            for name, level in levels.items():
                found = opened[name].filters()
                assert (found["complevel"], found["fletcher32"]) == (level, name == "summed"), (
                    compress,
                    name,
                )
                assert opened[name].chunking() == [4, 4]
    for wrong in ("zstd", "deflate:10", "deflate:x"):
        with pytest.raises(UnsupportedError, match="expected deflate"):
            zstore.zarr_to_netcdf(group, tmp_path / "b.nc", compress=wrong)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    values = np.arange(40_000.0).reshape(200, 200)
    made = zstore.create_group(tmp_path / "s.zarr")
    array = made.create_array("v", data=values, chunks=(50, 200), dimension_names=("y", "x"))
    target, told = tmp_path / "a.nc", list[tuple[int, int]]()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    def change(done: int, total: int) -> None:
        array[0, 0] = -1

    with pytest.raises(KeyboardInterrupt):
        zstore.zarr_to_netcdf(made, target, progress=stop)
    with pytest.raises(ChangedError):
        zstore.zarr_to_netcdf(made, target, progress=change)
    assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]
    array[0, 0] = 0
    estimate: Any = zstore.zarr_to_netcdf(made, target, dry_run=True)
    assert isinstance(estimate, Estimate) and estimate.write_size == values.nbytes and not target.exists()
    with pytest.raises(MetadataError, match="for one unit"):
        zstore.zarr_to_netcdf(made, target, memory=100)
    limited = zstore.zarr_to_netcdf(tmp_path / "s.zarr", target, memory=2 * values.nbytes, durable=True)
    again = zstore.zarr_to_netcdf(made["v"], tmp_path / "b.nc", progress=lambda *at: told.append(at))
    assert told[-1] == (values.size, values.size)
    for path in (limited, again):
        with netCDF4.Dataset(path) as opened:
            np.testing.assert_array_equal(opened["v"][...], values)
    with pytest.raises(StoreError, match="there already"):
        zstore.zarr_to_netcdf(made, target)
    before = target.read_bytes()
    assert zstore.zarr_to_netcdf(made, target, overwrite=True).read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_no_netcdf_file_can_be_is_refused(tmp_path: Path) -> None:
    group = zstore.create_group(MemoryStore())
    group.create_array("fine", data=np.zeros((6, 8)), dimension_names=("y", "x"))
    group.create_array("coarse", data=np.zeros((3, 4)), dimension_names=("y", "x"))
    with pytest.raises(UnsupportedError, match="dimension 'y' has 6 items, and 3 of another array"):
        zstore.zarr_to_netcdf(group, tmp_path / "a.nc")
    other = zstore.create_group(MemoryStore())
    other.create_array("raw", shape=3, dtype="V5")
    with pytest.raises(UnsupportedError, match="for which NetCDF has none"):
        zstore.zarr_to_netcdf(other, tmp_path / "a.nc")
    for name in ("a.h5", "a.tif", "a.zarr"):
        with pytest.raises(StoreError, match="expected a NetCDF file"):
            zstore.zarr_to_netcdf(group, tmp_path / name)
    with pytest.raises(StoreError, match=r"classic NetCDF; expected \.nc"):
        zstore.zarr_to_netcdf(group, tmp_path / "a.nc3")
    with pytest.raises(StoreError, match="no directory"):
        zstore.zarr_to_netcdf(group, tmp_path / "none" / "a.nc")
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("click.testing", reason="the command line is made with click")
    from zstore.cli.root import zstore as command

    monkeypatch.chdir(tmp_path)
    make_file(Path("in.nc"), "groups")
    for line, said in {
        "in.nc a.zarr": "inherited",
        "a.zarr b.nc": "b.nc: ",
        "in.nc/a c.nc --codec none": "c.nc: ",
        "a.zarr d.nc --dry-run": "units",
    }.items():
        result = testing.CliRunner().invoke(command, f"convert {line}".split())
        assert result.exit_code == 0 and said in result.output, result.output
    with netCDF4.Dataset("in.nc") as expected, netCDF4.Dataset("b.nc") as found:
        compare_files(found, expected)
    with netCDF4.Dataset("c.nc") as found:
        assert found.where == "a" and found["inherited"].dimensions == ("time", "lat")
    assert not Path("d.nc").exists()
    refused = testing.CliRunner().invoke(command, ["convert", "a.zarr", "e.nc", "--chunks", "8"])
    assert refused.exit_code == 2 and "--chunks does not go with a NetCDF file" in refused.output
