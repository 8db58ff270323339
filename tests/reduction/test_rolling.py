"""Rolling windows beside xarray's: values, missing items, both ends, bounds, and where work goes on."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import MetadataError, StoreError, UnsupportedError
from zstore.jobs.reduction import plan
from zstore.storage.memory import MemoryStore

xr = pytest.importorskip("xarray")

METHODS = ("sum", "mean", "min", "max", "count", "std", "var")


@settings(max_examples=15)
@given(st.data())
def test_windows_are_those_of_xarray(data):
    compare_windows(data)


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.data())
def test_many_windows_are_those_of_xarray(data):
    compare_windows(data)


def compare_windows(data):
    shape = data.draw(st.tuples(*[st.integers(1, n) for n in (40, 5, 4)]))
    dim = data.draw(st.sampled_from("tyx"))
    length = data.draw(st.integers(1, shape["tyx".index(dim)]))
    words = {
        "min_periods": data.draw(st.none() | st.integers(1, length)),
        "center": data.draw(st.booleans()),
    }
    dtype = data.draw(st.sampled_from(["f4", "f8", "i2", "u1", "i8"]))
    values = np.random.default_rng(data.draw(st.integers(0, 99))).normal(50, 9, shape).astype(dtype)
    values[values < 45] = 0
    said, nodata = {}, None
    if data.draw(st.booleans()):
        nodata = 50
        values[values > 55] = nodata
        said = {"_FillValue": nodata, "scale_factor": 0.5, "add_offset": 3.0}
    elif dtype[0] == "f":
        values[values > 55] = np.nan
    chunks = [data.draw(st.integers(1, n)) for n in shape]
    array = zstore.create_array(
        MemoryStore(), data=values, chunks=chunks, dimension_names=[*"tyx"], attributes=said
    )
    decoded = values.astype("f8")
    if nodata is not None:
        decoded = np.where(values == nodata, np.nan, decoded * 0.5 + 3)
    method = data.draw(st.sampled_from(METHODS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = getattr(xr.DataArray(decoded, dims=[*"tyx"]).rolling({dim: length}, **words), method)()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan, "BOX_LIMIT", 1 << data.draw(st.integers(4, 12)))
        patched.setattr(plan, "BOX_SIZE", 1 << 9)
        patched.setattr("zstore.jobs.reduction.rolling.CELLS_SIZE", 1 << 11)
        made = array.reduce(method, rolling={dim: length}, unpack=nodata is not None, **words)
    np.testing.assert_allclose(made, wanted, rtol=1e-5 if dtype == "f4" else 1e-9, atol=1e-3)


def make_days(store):
    group = zstore.create_group(store, attributes={"title": "days"})
    time = {"units": "days since 2001-01-01", "calendar": "noleap", "bounds": "time_bnds"}
    middles = np.arange(20) + 0.5
    group.create_array("time", data=middles, dimension_names=["time"], attributes=time)
    bounds = np.stack([middles - 0.5, middles + 0.5], 1)
    group.create_array("time_bnds", data=bounds, dimension_names=["time", "nv"])
    group.create_array("step", data=np.arange(20), dimension_names=["time"])
    lat = {"units": "degrees_north"}
    group.create_array("lat", data=[60.0, 0, -60], dimension_names=["lat"], attributes=lat)
    said = {"units": "K", "cell_methods": "time: maximum", "coordinates": "step"}
    values = np.random.default_rng(0).normal(280, 9, (20, 3)).astype("f4")
    group.create_array(
        "t", data=values, chunks=(6, 3), dimension_names=["time", "lat"], attributes=said
    )  # fmt: skip
    return values


def test_windows_of_a_group_say_where_they_begin_and_end(tmp_path: Path):
    values = make_days(tmp_path / "s")
    made = zstore.reduce(tmp_path / "s", "mean", rolling={"time": 4}, out=tmp_path / "m")
    assert sorted(name for name, _ in made.members()) == ["lat", "step", "t", "time", "time_bnds"]
    said = dict(made["t"].attrs)
    assert said["cell_methods"] == "time: maximum time: mean (interval: 1 day comment: rolling window of 4)"
    assert said["units"] == "K" and said["coordinates"] == "step" and made.attrs["title"] == "days"
    np.testing.assert_array_equal(made["time"][...], np.arange(20) + 0.5)
    begins = np.maximum(np.arange(20) - 3, 0)
    np.testing.assert_array_equal(made["time_bnds"][...], np.stack([begins, np.arange(20) + 1], 1))
    wanted = xr.DataArray(values, dims=["time", "lat"]).rolling(time=4).mean()
    np.testing.assert_allclose(made["t"][...], wanted, rtol=1e-6)
    assert not [f for f in zstore.validate(tmp_path / "m").findings if f.severity == "error"]
    rows = zstore.reduce(
        tmp_path / "s", "max", rolling={"lat": 2}, min_periods=1, center=True, out=MemoryStore()
    )
    # Of values that decrease, bounds do.
    np.testing.assert_array_equal(rows["lat_bnds"][...], [[60, 60], [60, 0], [0, -60]])
    assert rows["t"].attrs["cell_methods"].endswith("lat: maximum (comment: rolling window of 2)")
    np.testing.assert_array_equal(rows["t"][:, 1], values[:, :2].max(1))
    alone = zstore.reduce(tmp_path / "s/t", "std", rolling={0: 3}, out=tmp_path / "one")
    assert alone.dims == ("time", "lat")
    assert alone.attrs["cell_methods"].endswith("time: standard_deviation (comment: rolling window of 3)")


class Lost(MemoryStore):
    """A store that is out of reach after some chunks."""

    left = 1 << 30

    def get(self, key, byte_range=None):
        self.left -= key.startswith("t/c/")
        if self.left < 0:
            raise StoreError("the store is gone", key=key)
        return super().get(key, byte_range)


def test_windows_go_on_where_they_were_and_need_few_boxes(monkeypatch):
    monkeypatch.setattr(plan, "BOX_LIMIT", 120)
    monkeypatch.setattr(plan, "BOX_SIZE", 16)
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)
    source, target, whole = Lost(), MemoryStore(), MemoryStore()
    make_days(source)
    group = zstore.open_group(source, mode="r+")
    words = {"method": "mean", "rolling": {"time": 3}, "center": True}
    zstore.reduce(group, out=whole, **words)
    source.left = 5
    with pytest.raises(StoreError, match="gone"):
        zstore.reduce(group, out=target, **words)
    source.left = 1 << 30
    with pytest.raises(MetadataError, match="other arguments"):
        zstore.reduce(group, out=target, resume=True, **words | {"rolling": {"time": 4}})
    zstore.reduce(group, out=target, resume=True, **words)
    assert {key: target.get(key) for key in target.list("") if not key.startswith(".zstore")} == {
        key: whole.get(key) for key in whole.list("")
    }
    said = zstore.reduce(group, out=MemoryStore(), dry_run=True, **words)
    assert said.unit_count == 4 and said.read_size == (20 + 6) * 12


def test_windows_that_cannot_be_are_refused():
    make_days(store := MemoryStore())
    array = zstore.open_array(store, "t")
    for words, said in [
        ({"rolling": 30}, "rolling is 30; expected a dimension and a length, as {'time': 30}"),
        ({"rolling": {"time": 2, "lat": 2}}, "expected a dimension and a length"),
        ({"rolling": {"time": 0}}, "a window of 0; expected a number of items, 1 at least"),
        ({"rolling": {"time": 2}, "min_periods": 3}, "min_periods is 3; expected 1 to 2"),
        ({"rolling": {"time": 2}, "axis": 0}, "axis does not go with rolling"),
        ({"rolling": {"time": 2}, "keepdims": True}, "keepdims does not go with rolling"),
        ({"center": True}, "min_periods and center go with rolling windows"),
        ({"rolling": {"depth": 2}}, "axis 'depth', expected one of the dimensions"),
    ]:
        with pytest.raises(ValueError, match=said):
            array.reduce("mean", **words)
    with pytest.raises(UnsupportedError, match="argmax of rolling windows of float32; expected sum, mean"):
        array.reduce("argmax", rolling={"time": 2})
    with pytest.raises(UnsupportedError, match="as int32; expected floats, which can be NaN"):
        array.reduce("max", rolling={"time": 2}, dtype="i4")


def test_windows_are_made_at_the_prompt(tmp_path: Path):
    testing = pytest.importorskip("click.testing", reason="the command line is made with click")
    pytest.importorskip("rich", reason="the command line draws with rich")
    from zstore.cli.root import zstore as command

    values = make_days(tmp_path / "s")
    said = ["reduce", str(tmp_path / "s"), str(tmp_path / "m"), "--rolling", "time=3", "--min-periods", "2"]
    result = testing.CliRunner().invoke(command, [*said, "--center", "--method", "sum"])
    assert result.exit_code == 0, result.output
    wanted = xr.DataArray(values, dims=["time", "lat"]).rolling(time=3, min_periods=2, center=True).sum()
    np.testing.assert_allclose(zstore.open_array(tmp_path / "m", "t")[...], wanted, rtol=1e-6)
    result = testing.CliRunner().invoke(command, [*said[:4], "time", "--overwrite"])
    assert result.exit_code == 2 and "expected a dimension and a number of items, as time=30" in result.output
