"""Tables equal what xarray makes of the same arrays; engines read what they need of them, and no more."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import CodecError, MetadataError, NotFoundError, UnsupportedError
from zstore.storage.memory import MemoryStore

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pc = pytest.importorskip("pyarrow.compute", reason="pyarrow is not installed")
zstore_arrow = pytest.importorskip("zstore_arrow", reason="zstore-arrow is not installed")

from zstore_arrow import open_table, table  # noqa: E402

xr = pytest.importorskip("xarray", reason="xarray is not installed")

DIMS = ("time", "lat", "lon")
SHAPE = (5, 12, 16)


class Counted(MemoryStore):
    """Counts the chunks that are read, by array."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = Counter[str]()

    def get(self, key: str, byte_range: Any = None) -> Any:
        if "/c/" in key:
            self.reads[key.partition("/")[0]] += 1
        return super().get(key, byte_range)


@pytest.fixture(autouse=True)
def batches_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LEAST_ROWS", 1)


def weather(store: Any) -> zstore.Group:
    """A group of arrays with three dimensions, of which `lon` has no coordinate; chunks of (1, 6, 16)."""
    group = zstore.create_group(store)
    cells = np.arange(np.prod(SHAPE)).reshape(SHAPE)

    def add(name: str, data: Any, dims: Any = DIMS, chunks: Any = "auto", **attributes: Any) -> None:
        group.create_array(name, data=data, chunks=chunks, dimension_names=dims, attributes=attributes)

    chunks, on = (1, 6, 16), {"grid_mapping": "crs"}
    warm = np.where(cells % 7 == 0, np.nan, cells / 3).astype("f4")
    add("t2m", warm, chunks=chunks, units="K", coordinates="height area zone", **on)
    add("packed", cells.astype("i2"), chunks=chunks, scale_factor=0.5, add_offset=-10.0, _FillValue=3, **on)
    add("counts", cells.astype("u2"), chunks=chunks, _FillValue=5, **on)
    add("time", np.arange(5, dtype="i4"), DIMS[:1], units="hours since 2020-02-28T22:00", bounds="time_bnds")
    add("time_bnds", np.zeros((5, 2)), ("time", "nv"))
    add("lat", np.linspace(-55, 55, 12), DIMS[1:2], units="degrees_north")
    add("zone", np.array([*"abcdefghijkl"]), DIMS[1:2])
    add("area", cells[0].astype("f8"), DIMS[1:])
    add("height", np.float64(2), ())
    add("crs", np.int64(0), (), grid_mapping_name="latitude_longitude")
    return zstore.open_group(store, mode="r")


def test_a_table_has_the_cells_that_xarray_has(tmp_path: Path) -> None:
    weather(tmp_path / "a.zarr")
    found = open_table(tmp_path / "a.zarr")
    names = ["time", "lat", "lon", "zone", "area", "height", "counts", "packed", "t2m"]
    assert sorted(found.schema.names) == sorted(names) and found.schema.names[:3] == [*DIMS]
    assert found.schema.field("t2m").metadata == {b"units": b"K"}
    assert found.schema.field("zone").type == pa.dictionary(pa.int32(), pa.string())
    assert found.count_rows() == found.to_table().num_rows == 960
    expected = xr.open_dataset(tmp_path / "a.zarr", engine="zstore").drop_vars(["crs", "time_bnds"])
    frame = expected.to_dataframe().reset_index()
    got = found.to_table().to_pandas()
    for name in names:
        values = got[name].astype(frame[name].dtype) if name not in ("counts", "lon") else got[name]
        assert (values.isna() == frame[name].isna()).all(), name
        same = values.dropna().to_numpy() == frame[name].dropna().to_numpy()
        assert same.all(), name
    assert found.schema.field("counts").type == pa.uint16(), "integers with nodata stay what they are"


def test_chunks_that_a_filter_excludes_are_not_read() -> None:
    store = Counted()
    weather(store)
    found = open_table(zstore.open_group(store, mode="r"))
    whole = found.to_table().to_pandas()
    store.reads.clear()
    late = pa.scalar(datetime(2020, 2, 29, 1), pa.timestamp("us"))
    rows = found.to_table(["t2m"], (pc.field("time") >= late) & (pc.field("lat") > 0))
    assert rows.num_rows == 2 * 6 * 16 and store.reads == {"t2m": 2}
    store.reads.clear()
    # Of a chunk without a row, only the filter's own column is read.
    rows = found.to_table(["packed", "lat"], (pc.field("counts") > 950) & (pc.field("lat") > 0))
    assert rows.column("packed").to_pylist() == whole["packed"][whole["counts"] > 950].tolist()
    assert store.reads == {"counts": 5, "packed": 1}
    store.reads.clear()
    either = (pc.field("lat") > 50) | (pc.field("lat") < -50)
    assert found.count_rows(filter=either) == 2 * 5 * 16 and not store.reads, "coordinates are in memory"
    assert found.to_table(["t2m"], pc.field("lat") > 1000).num_rows == 0 and not store.reads
    assert found.to_table(["t2m"], pc.field("lat").is_null()).num_rows == 0 and not store.reads
    zones = found.to_table(["zone"], pc.field("zone").isin(["b", "l"]))
    assert zones.num_rows == 2 * 5 * 16


def test_filters_keep_the_rows_that_they_keep_of_the_whole_table(tmp_path: Path) -> None:
    weather(tmp_path / "a.zarr")
    found, draw = open_table(tmp_path / "a.zarr"), random.Random(0)
    whole = found.to_table()

    def compared() -> Any:
        name = draw.choice(whole.schema.names)
        field, values = pc.field(name), whole.column(name)
        value = draw.choice([value for value in values.to_pylist() if value is not None])
        kind = getattr(values.type, "value_type", values.type)
        known = pa.scalar(value, kind)
        ways = (field > known, field <= known, field != known, field.is_null(), field.isin([known]))
        return draw.choice(ways)

    def combined(depth: int) -> Any:
        if not depth:
            return compared()
        one, other = combined(depth - 1), combined(depth - 1)
        return draw.choice((one & other, one | other, ~one))

    for _ in range(20):
        wanted, names = combined(draw.randrange(4)), draw.sample(whole.schema.names, 3)
        expected = whole.filter(wanted).select(names).to_pylist()
        rows = found.to_table(names, wanted).to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, expected)), wanted


@pytest.mark.parametrize(
    ("values", "wanted", "reads"),
    [
        (np.array([3, 1, "NaT", 2], "m8[h]"), pc.field("x") < pa.scalar(7200, pa.duration("s")), 1),
        (np.array([3, np.nan, 1, 2], "f2"), pc.field("x").is_null(), 1),
        (np.array([3, 1j, 1, 2], "c8"), pc.field("y") == 0, 4),
    ],
)
def test_a_filter_beside_coordinates_that_pyarrow_does_not_order(
    values: Any, wanted: Any, reads: int
) -> None:
    store = Counted()
    group = zstore.create_group(store)
    group.create_array("x", data=values, dimension_names=["x"])
    cells = np.arange(8).reshape(4, 2)
    group.create_array("v", data=cells, dimension_names=["x", "y"], chunks=(1, 2))
    found = open_table(zstore.open_group(store, mode="r"))
    expected = found.to_table().filter(wanted)
    store.reads.clear()
    assert found.to_table(filter=wanted).equals(expected) and store.reads["v"] == reads


def test_columns_are_projected_and_computed() -> None:
    store = Counted()
    weather(store)
    found = open_table(zstore.open_group(store, mode="r"))
    store.reads.clear()
    doubled = found.to_table({"twice": pc.field("counts") * 2, "lat": pc.field("lat")}, pc.field("lon") == 3)
    assert doubled.schema.names == ["twice", "lat"] and doubled.num_rows == 60
    assert {*store.reads} == {"counts"}
    store.reads.clear()
    none = found.to_table([], pc.field("lon") == 3)
    assert (none.num_rows, none.num_columns) == (60, 0) and not store.reads
    with pytest.raises(pa.ArrowInvalid, match="nothing"):
        found.to_table(["t2m"], pc.field("nothing") > 1)
    with pytest.raises(KeyError, match="nothing"):
        found.to_table(["nothing"])


def test_rows_are_read_as_they_are_asked_for() -> None:
    store = Counted()
    weather(store)
    found = open_table(zstore.open_group(store, mode="r"), arrays=["t2m"])
    store.reads.clear()
    assert found.head(3).num_rows == 3 and store.reads["t2m"] < 10
    assert found.take([958, 0]).column("t2m").to_pylist() == [np.float32(958 / 3), None]
    big = zstore.create_array(MemoryStore(), shape=(1000, 1000, 1000), chunks=(1, 1000, 1000), dtype="i1")
    assert open_table(big).head(1).to_pylist() == [{"dim_0": 0, "dim_1": 0, "dim_2": 0, "data": 0}]


def test_a_part_is_selected_by_values_of_coordinates(tmp_path: Path) -> None:
    weather(tmp_path / "a.zarr")
    part = open_table(tmp_path / "a.zarr", {"time": "2020-02-29", "lat": slice(0, 20)}, arrays=["packed"])
    assert part.schema.names == ["time", "lat", "lon", "packed"] and part.count_rows() == 3 * 2 * 16
    first = part.head(1).to_pylist()[0]
    assert first == {"time": datetime(2020, 2, 29), "lat": 5.0, "lon": 0, "packed": (2 * 192 + 96) / 2 - 10}
    alone = open_table(tmp_path / "a.zarr/t2m")
    assert {*alone.schema.names} == {*DIMS, "zone", "area", "height", "t2m"}
    view = zstore.open_array(tmp_path / "a.zarr/t2m", mode="r")
    assert open_table(zstore.view(view)[0]).count_rows() == 12 * 16
    with pytest.raises(NotFoundError, match="no array 'nothing'"):
        open_table(tmp_path / "a.zarr", arrays=["nothing"])


@pytest.mark.parametrize(
    ("data", "expected", "options"),
    [
        (np.array([True, False]), pa.bool_(), {}),
        (np.array([1, 300], ">i2"), pa.int16(), {"zarr_format": 2}),
        (np.array([1.5, np.nan], ">f4"), pa.float32(), {"zarr_format": 2}),
        (np.array([1.5, 2.5], "f2"), pa.float16(), {}),
        (np.array([2**63, 1], "u8"), pa.uint64(), {}),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), pa.date32(), {}),
        (np.array(["2020-01-01T01", "NaT"], "M8[h]"), pa.timestamp("s"), {}),
        (np.array([1, 2], "m8[h]"), pa.duration("s"), {}),
        (np.array(["ä", "bc"]), pa.string(), {}),
        (np.array([b"a", b"bc"]), pa.binary(), {}),
        (np.array(["ä", "long" * 9], np.dtypes.StringDType()), pa.string(), {}),
        (np.array([1 + 2j, 3], "c8"), pa.struct({"real": pa.float32(), "imag": pa.float32()}), {}),
        (
            np.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", ">f8")]),
            pa.struct({"a": pa.int16(), "b": pa.float64()}),
            {"zarr_format": 2},
        ),
        (np.array([b"\0a", b"b\0"], "V2"), pa.binary(2), {}),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_items_keep_their_values(data: np.ndarray, expected: Any, options: Any) -> None:
    array = zstore.create_array(MemoryStore(), data=data, **options)
    found = open_table(array).to_table().column("data")
    assert found.type == expected
    for got, item in zip(found.to_pylist(), data.tolist(), strict=True):
        if isinstance(got, dict):
            assert (*got.values(),) == (item if isinstance(item, tuple) else (item.real, item.imag))
        else:
            assert got == (None if item != item else item)


def test_every_nodata_is_null_and_unsigned_numbers_are_what_they_mean() -> None:
    stored = np.array([-1, 5, 6, 7], "i1")
    said = {"_FillValue": 5, "missing_value": [5, 6], "_Unsigned": "true"}
    found = open_table(zstore.create_array(MemoryStore(), data=stored, attributes=said)).to_table()
    assert found.column("data").to_pylist() == [255, None, None, 7]
    said |= {"scale_factor": 0.5}
    found = open_table(zstore.create_array(MemoryStore(), data=stored, attributes=said)).to_table()
    assert found.column("data").to_pylist() == [127.5, None, None, 3.5]


def test_small_types_become_the_next_larger() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    for name, expected in (("bfloat16", pa.float32()), ("int4", pa.int8()), ("float8_e4m3fn", pa.float32())):
        data = np.array([1, -2], getattr(ml_dtypes, name))
        found = open_table(zstore.create_array(MemoryStore(), data=data)).to_table().column("data")
        assert found.type == expected and found.to_pylist() == [1, -2]


@pytest.mark.parametrize(
    ("units", "calendar", "stored", "expected"),
    [
        ("days since 2020-02-27", "standard", [1, 2], [datetime(2020, 2, 28), datetime(2020, 2, 29)]),
        ("days since 2019-02-28", "noleap", [0, 1], ["2019-02-28T00:00:00", "2019-03-01T00:00:00"]),
        ("days since 2019-02-28", "360_day", [2, -1], ["2019-02-30T00:00:00", None]),
        ("day as %Y%m%d.%f", "standard", [20200131, 20200201], [datetime(2020, 1, 31), datetime(2020, 2, 1)]),
        # The day after 4 October 1582, which was Julian, is 15 October.
        ("days since 1582-10-04", "standard", [0, 1], [datetime(1582, 10, 14), datetime(1582, 10, 15)]),
    ],
)
def test_moments_are_timestamps_or_dates_of_their_calendar(
    units: str, calendar: str, stored: Any, expected: Any
) -> None:
    attributes = {"units": units, "calendar": calendar, "_FillValue": -1}
    data = np.array(stored, "i8")
    group = zstore.create_group(MemoryStore())
    group.create_array("time", data=data, dimension_names=["time"], attributes=attributes)
    group.create_array("v", data=np.zeros((2, 3)), dimension_names=["time", "x"])
    group.create_array("valid", data=data[:, None] + [0, 0, 0], dimension_names=["time", "x"],
                       attributes=attributes)  # fmt: skip
    found = open_table(group).to_table()
    assert found.column("time").to_pylist()[::3] == expected
    assert found.column("valid").to_pylist()[::3] == expected


def test_what_no_table_can_have_is_refused_by_name() -> None:
    group = zstore.create_group(MemoryStore())
    group.create_array("a", data=np.zeros((2, 3)), dimension_names=["y", "x"])
    group.create_array("b", data=np.zeros((2, 4)), dimension_names=["y", "z"])
    with pytest.raises(MetadataError, match=r"'b' has the dimensions \{'y': 2, 'z': 4\}"):
        open_table(group)
    assert open_table(group, arrays=["b"]).count_rows() == 8
    group.create_array("z", data=np.zeros(3), dimension_names=["z"])
    with pytest.raises(MetadataError, match=r"'z' has the dimensions \{'z': 3\}, and other arrays"):
        open_table(group, arrays=["b"])
    objects = zstore.create_array(
        MemoryStore(), shape=2, dtype="O", zarr_format=2, filters=[{"id": "json2"}], fill_value=None
    )
    with pytest.raises(UnsupportedError, match="'data' has the data type object, for which Arrow has none"):
        open_table(objects)
    for name in ("filter", "join", "sort_by", "replace_schema"):
        with pytest.raises(UnsupportedError, match="only scanned"):
            getattr(open_table(group["a"]), name)(None)


def test_tables_without_dimensions_or_items() -> None:
    scalar = open_table(zstore.create_array(MemoryStore(), data=np.int8(7)))
    assert scalar.to_table().to_pylist() == [{"data": 7}]
    empty = open_table(zstore.create_array(MemoryStore(), shape=(0, 3), dtype="f4"))
    assert empty.to_table().schema == empty.schema and empty.count_rows() == empty.to_table().num_rows == 0
    pyramid = zstore.create_group(MemoryStore())
    pyramid.create_group("0").create_array("a", data=np.arange(2), dimension_names=["x"])
    with pytest.raises(MetadataError, match="no arrays; expected one with some, of its groups '0'"):
        open_table(pyramid)
    assert open_table(pyramid["0"]).to_table().to_pydict() == {"x": [0, 1], "a": [0, 1]}
    turned = zstore.create_group(MemoryStore())
    turned.create_array("a", data=np.arange(6).reshape(2, 3), dimension_names=["y", "x"], chunks=(1, 2))
    turned.create_array("b", data=np.arange(6).reshape(2, 3).T, dimension_names=["x", "y"], chunks=(3, 1))
    found = open_table(turned).to_table()
    assert found.column("a").to_pylist() == found.column("b").to_pylist()


def test_a_damaged_chunk_is_an_error_that_names_it(tmp_path: Path) -> None:
    weather(tmp_path / "a.zarr")
    (tmp_path / "a.zarr/t2m/c/3/1/0").write_bytes(b"no chunk")
    with pytest.raises(CodecError, match="t2m/c/3/1/0"):
        open_table(tmp_path / "a.zarr").to_table()
    reader = pa.RecordBatchReader.from_stream(open_table(tmp_path / "a.zarr"))
    with pytest.raises(pa.ArrowException, match="t2m/c/3/1/0"):
        reader.read_all()
    assert open_table(tmp_path / "a.zarr", arrays=["packed"]).to_table().num_rows == 960


def test_a_reader_that_is_left_alone_ends_with_its_process(tmp_path: Path) -> None:
    weather(tmp_path / "a.zarr")
    code = (
        "import sys, pyarrow, zstore_arrow, zstore_arrow.table as table; table.LEAST_ROWS = 1\n"
        "reader = pyarrow.RecordBatchReader.from_stream(zstore_arrow.open_table(sys.argv[1]))\n"
        "print(reader.read_next_batch().num_rows)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "a.zarr")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "96\n", "")


class TestEngines:
    """Each engine reads the same rows, and asks for no more chunks than it needs."""

    @pytest.fixture
    def store(self) -> Counted:
        store = Counted()
        weather(store)
        return store

    @pytest.fixture
    def found(self, store: Counted) -> Any:
        made = open_table(zstore.open_group(store, mode="r"))
        store.reads.clear()
        return made

    QUERY = (
        "SELECT lat, avg(packed) AS mean, count(*) AS n FROM found "
        "WHERE time >= TIMESTAMP '2020-02-29 00:00:00' GROUP BY lat ORDER BY lat"
    )

    def check(self, rows: Any, store: Counted) -> None:
        cells = np.arange(960).reshape(SHAPE) / 2 - 10
        assert [row[0] for row in rows] == np.linspace(-55, 55, 12).tolist()
        assert [row[1] for row in rows] == pytest.approx(cells[2:].mean((0, 2)).tolist())
        assert {row[2] for row in rows} == {48}
        assert store.reads == {"packed": 6}

    def test_duckdb(self, found: Any, store: Counted) -> None:
        duckdb = pytest.importorskip("duckdb", reason="an engine of SQL is not installed")
        connection = duckdb.connect()
        connection.register("found", found)
        self.check(connection.execute(self.QUERY).fetchall(), store)
        store.reads.clear()
        assert connection.execute("SELECT count(*) FROM found").fetchone() == (960,) and not store.reads
        some = "SELECT count(t2m) FROM found WHERE counts > 950 AND zone IN ('k', 'l')"
        assert connection.execute(some).fetchone() == (7,) and store.reads == {"counts": 5, "t2m": 1}

    def test_datafusion(self, found: Any, store: Counted) -> None:
        datafusion = pytest.importorskip("datafusion", reason="an engine of SQL is not installed")
        context = datafusion.SessionContext()
        context.register_dataset("found", found)
        self.check([(*row.values(),) for row in context.sql(self.QUERY).to_pylist()], store)
        store.reads.clear()
        assert context.sql("SELECT count(*) AS n FROM found").to_pylist() == [{"n": 960}] and not store.reads
        some = "SELECT count(t2m) AS n FROM found WHERE counts > 950 AND zone IN ('k', 'l')"
        assert context.sql(some).to_pylist() == [{"n": 7}] and store.reads == {"counts": 5, "t2m": 1}

    def test_polars(self, found: Any, store: Counted) -> None:
        pl = pytest.importorskip("polars", reason="an engine of SQL is not installed")
        late = pl.scan_pyarrow_dataset(found).filter(pl.col("time") >= datetime(2020, 2, 29))
        made = late.group_by("lat").agg(mean=pl.col("packed").mean(), n=pl.len())
        self.check(made.sort("lat").collect().rows(), store)
        assert pl.DataFrame(found).shape == (960, 9)

    def test_pandas(self, found: Any, store: Counted) -> None:
        late = pc.field("time") >= pa.scalar(datetime(2020, 2, 29), pa.timestamp("us"))
        frame = found.to_table(["lat", "packed"], late).to_pandas()
        made = frame.groupby("lat")["packed"].agg(mean="mean", n="size").reset_index()
        self.check(made.to_numpy().tolist(), store)


def test_a_forecast_is_compared_with_what_came_by_a_view_and_no_join(tmp_path: Path) -> None:
    inits, leads = np.arange(0, 12, 3), np.arange(4)
    rng = np.random.default_rng(0)
    truth, guess = rng.normal(size=(16, 5)), rng.normal(size=(4, 4, 5))
    obs, forecast = (zstore.create_group(tmp_path / name) for name in ("obs.zarr", "forecast.zarr"))
    obs.create_array("t", data=truth, chunks=(3, 5), dimension_names=["time", "lat"])
    forecast.create_array("t", data=guess, chunks=(1, 2, 5), dimension_names=["init", "lead", "lat"])
    forecast.create_array("lead", data=leads, dimension_names=["lead"])
    at = inits[:, None] + leads
    rows = open_table((zstore.view(forecast["t"]) - zstore.view(obs["t"])[at]) ** 2).to_table()
    means = rows.group_by("lead").aggregate([("t", "mean")]).sort_by("lead")
    expected = ((guess - truth[at]) ** 2).mean((0, 2))
    assert np.allclose(means["t_mean"].to_numpy(), expected)
