"""Lists and patterns of files and Zarrs as one source, against xarray's own joining."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, UnsupportedError, ZstoreError
from zstore.geo.rasters.netcdf import NetcdfStore

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
xr = pytest.importorskip("xarray", reason="what is joined is compared by xarray (extra 'xarray')")
netCDF4 = pytest.importorskip("netCDF4", reason="NetCDF files are written with netCDF4")
pytest.importorskip("h5netcdf", reason="NetCDF-4 is read with h5netcdf")
from zstore.cli.root import zstore as command  # noqa: E402

LATITUDES = ("lat", np.array([10.0, 5.0]), {"units": "degrees_north"})
LONGITUDES = ("lon", np.array([1.0, 2.0, 3.0]), {"units": "degrees_east"})


def day(number: int, **more: Any) -> Any:
    """The dataset of some times of one day."""
    hours = np.arange(number * 24, number * 24 + 24, 8).astype("timedelta64[h]").astype("m8[ns]")
    items = number * 100 + np.arange(18, dtype="f4").reshape(3, 2, 3)
    return xr.Dataset(
        {"t2m": (("time", "lat", "lon"), items, {"units": "K"}), **more},
        {"time": np.datetime64("2001-01-01", "ns") + hours, "lat": LATITUDES, "lon": LONGITUDES},
        {"title": "days", "history": f"written on day {number}"},
    )


def save(here: Path, datasets: list[Any], encodings: list[dict[str, Any]] | None = None) -> list[str]:
    """The names of the files, which lie in another order than their times."""
    names = []
    for number, dataset in enumerate(datasets):
        name = here / f"{len(datasets) - number:02}.nc"
        encoding = {} if encodings is None else encodings[number]
        dataset.to_netcdf(name, encoding={"time": {"units": "hours since 2001-01-01"}, **encoding})
        names.append(str(name))
    return names


def check(here: Path, **options: Any) -> Any:
    """The joined dataset, which is that of xarray by all values, dtypes but for floats, and attributes."""
    how = {"combine": "by_coords", "combine_attrs": "drop_conflicts", "data_vars": "all", "engine": "netcdf4"}
    expected = xr.open_mfdataset(f"{here}/*.nc", **how, **options).load()
    expected.close()
    with xr.open_dataset(f"{here}/*.nc", engine="zstore", **options) as found:
        xr.testing.assert_identical(found.load(), expected)
        assert {n: v.dtype.kind for n, v in found.variables.items()} == {
            n: v.dtype.kind for n, v in expected.variables.items()
        }
    return found


def test_patterns_join_as_xarray_does(tmp_path: Path) -> None:
    names = save(tmp_path, [day(0), day(1), day(2)])
    found = check(tmp_path)
    assert found.attrs == {"title": "days"}
    # Nothing stays open behind a context, so that others can write to the files.
    with netCDF4.Dataset(names[0], "a") as file:
        file.title = "days"
    for source in (names, tuple(map(Path, names[::-1])), [zstore.open(name) for name in names]):
        group = zstore.open(source)
        np.testing.assert_array_equal(group["t2m"][...], found.t2m)
        assert group["time"][...].tolist() == [*range(0, 72, 8)]
    assert zstore.open(f"{tmp_path}/*.nc/t2m")[3:5, 1].tolist() == found.t2m[3:5, 1].values.tolist()
    assert zstore.open(f"{tmp_path}/0[12].nc#t2m", mode="r").shape == (6, 2, 3)
    assert zstore.open(tmp_path / "*.nc").store.url == f"joined::{tmp_path}/*.nc"
    assert pickle.loads(pickle.dumps(zstore.open(names)["t2m"]))[8, 1, 2] == found.t2m[8, 1, 2]
    # One is itself.
    assert zstore.open(names[:1]).store.url == zstore.open(names[0]).store.url


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day"])
def test_times_that_are_counted_differently(tmp_path: Path, calendar: str) -> None:
    units = ["hours since 2001-01-01", "days since 2001-01-02", "minutes since 2001-01-03 12:00:00"]
    bounds = [
        {"time_bnds": (("time", "nv"), np.arange(6.0).reshape(3, 2) + n), "issued": ((), np.int32(n))}
        for n in range(3)
    ]
    datasets = [day(number, **bounds[number]) for number in range(3)]
    for number, one in enumerate(datasets):
        counts = {"hours": 8, "days": 1 / 3, "minutes": 480}[units[number].split()[0]]
        start = {"hours": 0, "days": 0, "minutes": -720}[units[number].split()[0]]
        values = start + counts * np.arange(3)
        second = {"standard": "gregorian", "noleap": "365_day"}.get(calendar, calendar)
        said = {"units": units[number], "calendar": (calendar, second)[number % 2], "bounds": "time_bnds"}
        one["time"] = ("time", values.round(12) if number == 1 else values.astype("i4"), said)
        one["time_bnds"] = ("nv", "time"), np.array([values, values + counts])
        one["time_bnds"] = one["time_bnds"].transpose("time", "nv")
        one.to_netcdf(tmp_path / f"{number}.nc")
    found = check(tmp_path)
    dates = found.time.values if calendar != "standard" else found.time.values.astype("M8[s]")
    assert str(dates[3])[:16].replace(" ", "T") == "2001-01-02T00:00"
    # What differs between members without a place in time has one of each.
    assert found.issued.dims == ("time",)
    for number in range(2):
        said = {"units": units[0], "calendar": (calendar, second)[number]}
        one = datasets[number].isel(time=[0]).drop_vars(["time_bnds", "issued"])
        one.assign_coords(time=("time", [number * 24], said)).to_netcdf(tmp_path / f"{number}.nc")
    (tmp_path / "2.nc").unlink()
    check(tmp_path)


def test_packing_that_differs_is_undone(tmp_path: Path) -> None:
    packed = [
        {"t2m": {"dtype": "i2", "scale_factor": 0.5 / (n + 1), "add_offset": 10.0 * n, "_FillValue": -9 - n}}
        for n in range(2)
    ]
    datasets = [day(0), day(1)]
    datasets[0].t2m[1, 1, 1] = np.nan
    save(tmp_path, datasets, packed)
    check(tmp_path)
    array = zstore.open(f"{tmp_path}/*.nc")["t2m"]
    assert array.dtype == "f8" and "scale_factor" not in array.attrs
    # One has nothing to undo.
    plain = tmp_path / "plain"
    plain.mkdir()
    whole = datasets[1].assign(t2m=datasets[1].t2m.astype("i2"))
    save(plain, [datasets[0], whole], [packed[0], {}])
    check(plain)
    # The same packing stays.
    below = tmp_path / "same"
    below.mkdir()
    save(below, datasets, packed[:1] * 2)
    check(below)
    array = zstore.open(f"{below}/*.nc")["t2m"]
    assert array.dtype == "i2" and array.attrs["scale_factor"] == 0.5


def test_other_dimensions_groups_and_names(tmp_path: Path) -> None:
    for number, letters in enumerate(["ab", "c"]):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("station", None)
            file.createVariable("station", str, ("station",))[: len(letters)] = np.array([*letters], object)
            group = file.createGroup("deep")
            group.createVariable("height", "i4", ("station",))[...] = np.arange(len(letters)) + 10 * number
            group.createVariable("kind", "S1", ())[...] = b"x"
    group = zstore.open(f"{tmp_path}/*.nc")
    assert group["station"][...].tolist() == ["a", "b", "c"]
    assert group["deep/height"][...].tolist() == [0, 1, 10] and group["deep/kind"].shape == ()
    # Records without a coordinate go on along their dimension, in the order of the names.
    for number in range(2):
        with netCDF4.Dataset(tmp_path / f"r{number}.nc4", "w") as file:
            file.createDimension("record", None)
            file.createVariable("value", "i8", ("record",))[:2] = [number, number]
    assert zstore.open(f"{tmp_path}/r*.nc4/value")[...].tolist() == [0, 0, 1, 1]


def test_zarrs_along_descending_latitudes(tmp_path: Path) -> None:
    whole = xr.concat([day(0), day(0).assign_coords(lat=("lat", [3.0, 1.0], LATITUDES[2]))], "lat")
    for number, part in enumerate([slice(3, 4), slice(0, 3)]):
        whole.isel(lat=part).to_zarr(tmp_path / f"{number}.zarr", zarr_format=3, consolidated=False)
    with xr.open_dataset([f"{tmp_path}/{n}.zarr" for n in range(2)], engine="zstore") as joined:
        xr.testing.assert_equal(joined.load(), whole)


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
def test_an_array_that_cannot_be_read_in_one_is_left_out_of_all(tmp_path: Path) -> None:
    for number in range(2):
        made = day(number, bad=("time", np.arange(3)))
        made.to_zarr(tmp_path / f"{number}.zarr", zarr_format=3, consolidated=False)
    (tmp_path / "1.zarr" / "bad" / "zarr.json").write_text("no document")
    with pytest.raises(MetadataError, match=r"1\.zarr/bad"):
        zstore.convert(f"{tmp_path}/*.zarr", tmp_path / "made")
    made = zstore.open_group(tmp_path / "made", mode="r")
    assert sorted(made.array_keys()) == ["lat", "lon", "t2m", "time"] and made["t2m"].shape == (6, 2, 3)


def test_commands_take_patterns_and_several_sources(tmp_path: Path) -> None:
    names = save(tmp_path, [day(0), day(1)])
    expected = check(tmp_path).t2m.values

    def type_words(*words: str) -> str:
        result = testing.CliRunner().invoke(command, words)
        assert result.exit_code == 0, (words, result.output)
        return str(result.output)

    pattern = f"{tmp_path}/*.nc"
    type_words("convert", *names, f"{tmp_path}/one.zarr", "--chunks", "time=4,lat=all")
    type_words("convert", pattern, f"{tmp_path}/two.zarr", "--select", "time=2001-01-02")
    type_words("convert", pattern, f"{tmp_path}/back.nc4")
    type_words("copy", pattern, f"{tmp_path}/three.zarr")
    type_words("reduce", f"{pattern}/t2m", f"{tmp_path}/mean.zarr", "--axis", "time")
    assert "2 × 3" in type_words("info", pattern) or "6 × 2 × 3" in type_words("info", pattern)
    np.testing.assert_array_equal(zstore.open(tmp_path / "one.zarr")["t2m"][...], expected)
    assert zstore.open(tmp_path / "one.zarr")["t2m"].chunks == (4, 2, 3)
    np.testing.assert_array_equal(zstore.open(tmp_path / "two.zarr")["t2m"][...], expected[3:])
    np.testing.assert_array_equal(zstore.open(tmp_path / "three.zarr")["t2m"][...], expected)
    np.testing.assert_allclose(zstore.open(tmp_path / "mean.zarr")[...], expected.mean(0))
    with xr.open_dataset(tmp_path / "back.nc4") as back:
        np.testing.assert_array_equal(back.t2m, expected)


def broken(kind: str) -> list[Any]:
    """Datasets that cannot be one."""
    one, other = day(0), day(1)
    if kind == "missing":
        other = other.drop_vars("t2m")
    elif kind == "units":
        other.t2m.attrs["units"] = "degC"
    elif kind == "overlap":
        other = day(0).isel(time=[2])
    elif kind == "two":
        other = other.assign_coords(lat=("lat", [3.0, 2.0], LATITUDES[2]))
    elif kind == "same":
        other = day(0)
    elif kind == "direction":
        other = other.isel(time=[2, 1])
    elif kind == "transposed":
        other = other.transpose("lat", "lon", "time")
    elif kind == "type":
        other["t2m"] = other.t2m.astype("i8")
    return [one, other]


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("missing", MetadataError, "no 't2m', which .*02.nc has"),
        ("units", MetadataError, "units of 't2m' are 'degC', and 'K' in"),
        ("overlap", MetadataError, "overlap"),
        ("two", MetadataError, "differ along 'lat', 'time'|differ along 'time', 'lat'"),
        ("same", MetadataError, "along no dimension"),
        ("direction", MetadataError, "'time' rises, and falls in others"),
        ("transposed", MetadataError, "has dimensions"),
        ("type", MetadataError, "expected one data type"),
    ],
)
def test_what_cannot_be_joined_says_why(
    tmp_path: Path, kind: str, error: type[ZstoreError], words: str
) -> None:
    names = save(tmp_path, broken(kind))
    with pytest.raises(error, match=words):
        zstore.open(names)


def test_documents_of_thousands_of_files_are_not_kept(tmp_path: Path) -> None:
    save(tmp_path, [day(0), day(1), day(2)])
    joined = zstore.open_group(f"{tmp_path}/*.nc", mode="r")
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one) is NetcdfStore and str(tmp_path) in one.url]
    assert len(kept) <= 1
    np.testing.assert_array_equal(joined["t2m"][::3, 0, 0], [0, 100, 200])
    joined.store.close()


def test_patterns_that_match_nothing(tmp_path: Path) -> None:
    save(tmp_path, [day(0)])
    with pytest.raises(NotFoundError, match=r"no name matches 'x\*.nc' in .*; there are '01.nc'"):
        zstore.open(f"{tmp_path}/x*.nc")
    with pytest.raises(NotFoundError, match="without members"):
        zstore.open([])
    array = zstore.create_array(tmp_path / "a.zarr", data=np.arange(3))
    with pytest.raises(UnsupportedError, match=r"zstore\.concat"):
        zstore.open([array, array])
    # A directory of such a name is none, and new ones are made.
    zstore.create_array(tmp_path / "a*.zarr", data=np.arange(4))
    assert zstore.open(tmp_path / "a*.zarr").shape == (4,)


def test_small_values_of_files_are_the_callers_own(tmp_path: Path) -> None:
    """xarray gets copies: of one dataset that is changed, another one of the same file has nothing."""
    day(0, issued=((), np.int32(7))).to_netcdf(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc", engine="zstore") as opened:
        changed = opened.copy().load()
        changed.issued.values[()] = 8
        assert changed.issued == 8 and opened.issued.load() == 7
        opened.t2m.attrs["units"] = "C"
    with xr.open_dataset(tmp_path / "a.nc", engine="zstore") as again:
        assert again.t2m.attrs["units"] == "K"
