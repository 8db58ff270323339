"""The engine "zstore" reads what xarray's own engine reads, and `ds.zstore` writes what its writer writes."""

from __future__ import annotations

import asyncio
import json
import pickle
import tomllib
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, ReadingWarning, StoreError, UnsupportedError
from zstore.plugin.conventions import Crs

xr = pytest.importorskip("xarray", reason="xarray's engine needs xarray (extra 'xarray')")
pytest.importorskip("zarr", reason="xarray's own engine needs zarr-python")
pytest.importorskip("dask", reason="chunked datasets need dask (extra 'dask')")

from zstore.guests.xarray import ZstoreBackendEntrypoint, to_zarr  # noqa: E402

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT.parent / "shared" / "fixtures" / "stores"
ENGINE = ZstoreBackendEntrypoint
PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 1.0, "_FillValue": -9999}
# Ours are the stored objects; the other engine's are the chunks inside of them.
OWN_ENCODING = {"preferred_chunks", "source"}


def make_dataset(begin: int = 0, count: int = 5) -> xr.Dataset:
    rng = np.random.default_rng(begin)
    values = rng.random((count, 6)).astype("f4")
    values[0, 0] = np.nan
    return xr.Dataset(
        {
            "t": (("time", "y"), values, {"units": "K", "valid_range": np.array([0.0, 1.0])}),
            "p": (("time", "y"), np.round(rng.random((count, 6)), 2)),
            "fixed": ("y", np.array(list("abcdéf"))),
            "text": ("y", np.array(["x", "yy", "", "zz", "q", "ж"], object)),
            "flag": ("y", np.arange(6) % 2 == 0),
            "wave": ("y", np.arange(6) + 1j),
            "code": ("y", np.array([b"ab", b"c"] * 3)),
            "scalar": ((), 3.5),
            "empty": (("none", "y"), np.zeros((0, 6), "i4")),
        },
        {
            "time": np.datetime64("2000-01-01") + (begin + np.arange(count)).astype("m8[D]"),
            "y": np.arange(6.0),
            "step": ("time", (begin + np.arange(count)).astype("m8[s]").astype("m8[ns]")),
        },
        {"title": "a test", "list": [1, 2]},
    )


def theirs(path: Path, **options: object) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_dataset(path, engine="zarr", **{"consolidated": False, **options})


def write_theirs(data: xr.Dataset, path: Path, zarr_format: int, **options: object) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_zarr(path, mode="w", zarr_format=zarr_format, consolidated=False, **options)
    return path


def encoding_of(zarr_format: int) -> dict[str, dict[str, object]]:
    shards = {"shards": (4, 6)} if zarr_format == 3 else {}
    return {"t": {"chunks": (2, 3), **shards}, "p": dict(PACKED), "time": {"units": "days since 2000-01-01"}}


def assert_same_encodings(found: xr.Dataset, expected: xr.Dataset, *, but: set[str] = frozenset()) -> None:
    for name in expected.variables:
        ours, others = found[name].encoding, expected[name].encoding
        for key in (ours.keys() | others.keys()) - OWN_ENCODING - but:
            one, other = ours.get(key, "missing"), others.get(key, "missing")
            assert one == other or (one != one and other != other), (name, key, one, other)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("decoded", [True, False])
def test_reads_what_the_other_engine_reads(tmp_path, zarr_format, decoded):
    path = write_theirs(make_dataset(), tmp_path / "a.zarr", zarr_format, encoding=encoding_of(zarr_format))
    options = {"mask_and_scale": decoded, "decode_times": decoded}
    expected = theirs(path, **options)
    found = xr.open_dataset(path, engine=ENGINE, **options)
    xr.testing.assert_identical(found, expected)
    assert {n: v.dtype for n, v in found.variables.items()} == {
        n: v.dtype for n, v in expected.variables.items()
    }
    assert_same_encodings(found, expected)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_writes_what_the_other_writer_writes(tmp_path, zarr_format):
    encoding = encoding_of(zarr_format)
    path = write_theirs(make_dataset(), tmp_path / "a.zarr", zarr_format, encoding=encoding)
    make_dataset().zstore.to_zarr(tmp_path / "b.zarr", zarr_format=zarr_format, encoding=encoding)
    expected, found = theirs(path), theirs(tmp_path / "b.zarr")
    xr.testing.assert_identical(found, expected)
    # Codecs differ by default: zstore writes a checksum with every chunk, in v2 zstd in place of blosc.
    assert_same_encodings(found, expected, but={"compressors"})


def test_codecs_are_plain_data_and_equal_to_the_objects(tmp_path):
    path = write_theirs(make_dataset(), tmp_path / "a.zarr", 3)
    (ours,) = xr.open_dataset(path, engine=ENGINE).t.encoding["compressors"]
    (other,) = theirs(path).t.encoding["compressors"]
    assert ours["name"] == "zstd" and ours == other and other == ours
    assert ours != {"name": "gzip"} and ours != 5
    # Both writers take them as they are.
    found = xr.open_dataset(path, engine=ENGINE)
    write_theirs(found, tmp_path / "b.zarr", 3)
    found.zstore.to_zarr(tmp_path / "c.zarr")
    for name in ("b.zarr", "c.zarr"):
        assert theirs(tmp_path / name).t.encoding["compressors"] == (other,)


@pytest.mark.parametrize(
    ("read", "written"), [(2, 3), (3, 2)], ids=["from two to three", "from three to two"]
)
def test_another_format_takes_its_own_codecs(tmp_path, read, written):
    path = write_theirs(make_dataset(), tmp_path / "a.zarr", read, encoding=encoding_of(read))
    source = xr.open_dataset(path, engine=ENGINE)
    source.zstore.to_zarr(tmp_path / "b.zarr", zarr_format=written)
    xr.testing.assert_equal(theirs(tmp_path / "b.zarr"), theirs(path))


@pytest.mark.parametrize("is_awaited", [False, True])
def test_selections_go_down_to_the_array(tmp_path, monkeypatch, is_awaited):
    make_dataset().zstore.to_zarr(tmp_path / "a.zarr")
    found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE).t.variable
    expected = make_dataset().t.values
    read_items = []
    real = zstore.Array._read_selected
    monkeypatch.setattr(
        zstore.Array,
        "_read_selected",
        lambda self, scheduler, chunks, selected, *a: (
            read_items.append((type(scheduler).__name__, np.prod(selected.shape)))
            or real(self, scheduler, chunks, selected, *a)
        ),
    )

    def check(variable, values):
        if is_awaited:
            assert asyncio.run(variable.load_async()) is variable
        np.testing.assert_array_equal(variable, values)

    check(found[1, 2:4], expected[1, 2:4])
    check(found.isel(time=[4, 0], y=[1, 1, 5]), expected[[4, 0]][:, [1, 1, 5]])
    points = xr.Variable("point", [3, 0, 2])
    check(found.isel(time=points, y=points), expected[[3, 0, 2], [3, 0, 2]])
    check(found[::-2, ::3][:, -1], expected[::-2, ::3][:, -1])
    assert read_items == [("AsyncScheduler" if is_awaited else "Scheduler", size) for size in (2, 6, 3, 3)]


def test_a_lazy_dataset_pickles_and_loads_in_an_event_loop(tmp_path):
    make_dataset().zstore.to_zarr(tmp_path / "a.zarr")
    found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE)
    xr.testing.assert_identical(pickle.loads(pickle.dumps(found)), make_dataset_as_read(tmp_path / "a.zarr"))
    asyncio.run(found.load_async())
    np.testing.assert_array_equal(found.t, make_dataset().t)


def make_dataset_as_read(path: Path) -> xr.Dataset:
    return theirs(path).load()


def test_dask_chunks_are_stored_objects(tmp_path):
    make_dataset().zstore.to_zarr(tmp_path / "a.zarr", encoding=encoding_of(3))
    found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, chunks={})
    assert found.t.chunks == ((4, 1), (6,))
    np.testing.assert_array_equal(found.t, make_dataset().t)


def test_fixtures_read_as_by_the_other_engine():
    if not FIXTURES.is_dir():
        pytest.skip("the collection of stores by other writers is not beside the project")
    same = 0
    for mark in sorted([*FIXTURES.rglob(".zgroup"), *FIXTURES.rglob("zarr.json")])[::6]:
        try:
            expected = theirs(mark.parent, consolidated=None)
            corner = {name: slice(2000) for name in expected.sizes}  # whole scenes take long
            expected = expected.isel(corner).load()
        except Exception:
            continue  # what the other engine cannot read is no measure
        if not any(path.is_dir() for path in mark.parent.iterdir()):
            continue  # documents of arrays that are not there
        found = xr.open_dataset(mark.parent, engine=ENGINE)
        xr.testing.assert_identical(found.isel(corner).load(), expected)
        same += 1
    assert same > 3


def real_files() -> list[Path]:
    rasters = [ROOT / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"]
    rasters += [ROOT.parent / "shared" / "fixtures" / "rasters" / name for name in RASTERS]
    return [*rasters, *(Path(xr.__file__).parent / "tests" / "data" / name for name in NETCDF)]


RASTERS = ("RGB.byte.tif", "float_raster_with_nodata.tif")
NETCDF = ("example_1.nc", "bears.nc")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("source", real_files(), ids=lambda path: path.name)
def test_real_files_are_to_both_engines_the_same(tmp_path, source, zarr_format):
    from zstore.geo.rasters import netcdf_to_zarr, raster_to_zarr

    if not source.is_file():
        pytest.skip(f"{source.name} is not beside the project")
    if source.suffix == ".nc":
        netcdf_to_zarr(source, tmp_path / "a.zarr", zarr_format=zarr_format)
    else:
        pytest.importorskip("rasterio", reason="rasters are read with rasterio")
        raster_to_zarr(source, tmp_path / "a.zarr", zarr_format=zarr_format)
    for options in ({}, {"mask_and_scale": False, "decode_times": False, "decode_coords": "all"}):
        expected = theirs(tmp_path / "a.zarr", **options)
        found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, **options)
        xr.testing.assert_identical(found, expected)
        assert found.sizes == expected.sizes and set(found.coords) == set(expected.coords)
        assert_same_encodings(found, expected)
    # And on to another store, by either writer.
    write_theirs(expected, tmp_path / "b.zarr", zarr_format)
    expected.zstore.to_zarr(tmp_path / "c.zarr", zarr_format=zarr_format)
    again, ours = theirs(tmp_path / "b.zarr"), theirs(tmp_path / "c.zarr")
    xr.testing.assert_identical(ours, again)
    assert_same_encodings(ours, again)


@pytest.mark.parametrize("options", [{}, {"group": "a"}, {"consolidated": False}])
def test_trees(tmp_path, options):
    data = make_dataset()
    tree = xr.DataTree.from_dict({"/": data[["t"]], "/a": data[["p"]], "/a/b": data[["scalar"]]})
    tree.zstore.to_zarr(tmp_path / "a.zarr", encoding={"/a": {"p": PACKED}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = xr.open_datatree(tmp_path / "a.zarr", engine="zarr", **options)
    found = xr.open_datatree(tmp_path / "a.zarr", engine=ENGINE, **options)
    xr.testing.assert_identical(found, expected)
    groups = xr.open_groups(tmp_path / "a.zarr", engine=ENGINE, **options)
    assert set(groups) == set(found.groups)


def test_trees_through_dask(tmp_path):
    tree = xr.DataTree.from_dict({"/": make_dataset()[["t"]], "/a": make_dataset()[["p"]]}).chunk(y=3)
    delayed = to_zarr(tree, tmp_path / "a.zarr", compute=False)
    assert np.isnan(xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, group="a").p).all()
    delayed.compute()
    np.testing.assert_array_equal(
        xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, group="a").p, make_dataset().p
    )
    with pytest.raises(MetadataError, match="encoding names"):
        to_zarr(tree, tmp_path / "b.zarr", encoding={"/nowhere": {}})


# Writing


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_append_and_region(tmp_path, zarr_format):
    path = tmp_path / "a.zarr"
    encoding = {**encoding_of(zarr_format), "t": {"chunks": (2, 3)}}
    first, second = make_dataset()[["t", "p"]], make_dataset(5)[["t", "p"]]
    first.zstore.to_zarr(path, zarr_format=zarr_format, encoding=encoding)
    second.zstore.to_zarr(path, append_dim="time")
    both = xr.concat([first, second], "time")
    xr.testing.assert_allclose(xr.open_dataset(path, engine=ENGINE), both)
    assert theirs(path).sizes["time"] == 10 and "days since 2000-01-01" in theirs(path).time.encoding["units"]
    part = both[["t"]].isel(time=slice(3, 7), y=slice(1, 4)) * 0 + 7
    part.zstore.to_zarr(path, region="auto")
    part.drop_vars(["time", "y", "step"]).zstore.to_zarr(path, region={"time": slice(0, 4), "y": slice(0, 3)})
    found = xr.open_dataset(path, engine=ENGINE).t.values
    expected = both.t.values.copy()
    expected[3:7, 1:4] = part.t.values
    expected[0:4, 0:3] = part.t.values
    np.testing.assert_array_equal(found, expected)


def test_append_never_changes_what_numbers_mean(tmp_path):
    path = tmp_path / "a.zarr"
    make_dataset()[["p"]].zstore.to_zarr(
        path, encoding={"p": PACKED, "time": {"units": "days since 2000-01-01", "dtype": "i4"}}
    )
    odd = make_dataset(5)[["p"]]
    odd["time"] = odd.time + np.timedelta64(1, "h")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(MetadataError, match="units"):
            odd.zstore.to_zarr(path, append_dim="time")
    assert xr.open_dataset(path, engine=ENGINE).sizes["time"] == 5


def test_a_region_is_found_by_coordinates_or_is_all_there_is(tmp_path):
    data = xr.Dataset({"v": (("a", "b"), np.zeros((4, 6)))}, coords={"b": [1, 2, 3, 4, 5, 5]})
    bare, part = data.drop_vars("b"), data.isel(b=slice(1, 3))
    for stored, written, changed in [
        (bare, bare, np.s_[:, :]),
        (data, bare, np.s_[:, :]),
        (bare, bare.isel(b=slice(1, 3)), "no coordinate to tell it"),
        (bare, part, "no coordinate to tell it"),
        (data, part, "has one of its coordinates twice"),
        (data.isel(b=slice(0, 5)), part, np.s_[:, 1:3]),
        (data.isel(b=slice(0, 5)), part.rename(a="q"), "region of 'q' is 'auto', and there is no coordinate"),
    ]:
        stored.zstore.to_zarr(tmp_path / "a.zarr", mode="w")
        expected = stored.v.values.copy()
        if isinstance(changed, str):
            with pytest.raises(MetadataError, match=changed):
                (written + 1).zstore.to_zarr(tmp_path / "a.zarr", region="auto")
        else:
            (written + 1).zstore.to_zarr(tmp_path / "a.zarr", region="auto")
            expected[changed] = 1
        assert np.array_equal(zstore.open(tmp_path / "a.zarr")["v"][...], expected)


@pytest.mark.parametrize(
    ("stored", "values"),
    [
        ("i4", np.array([2**40, 1])),
        ("u1", np.array([300, 1])),
        ("u1", np.array([-1, 1], "i2")),
        ("i8", np.array([2**63, 1], "u8")),
        ("u8", np.array([-1, 1])),
        ("f4", np.array([1e300, 1])),
        ("i4", np.array([1.5, 1])),
        ("i4", np.array([np.nan, 1])),
        ("i4", np.array([np.inf, 1])),
        ("i4", np.array([1e10, 1])),
    ],
)
@pytest.mark.parametrize("options", [{"mode": "a"}, {"append_dim": "x"}, {"region": {"x": slice(0, 2)}}])
def test_numbers_that_the_array_there_has_not_are_refused(tmp_path, stored, values, options):
    path = tmp_path / "a.zarr"
    xr.Dataset({"v": ("x", np.zeros(2, stored))}).zstore.to_zarr(path)
    before = files_below(path)
    data = xr.Dataset({"v": ("x", values)})
    with pytest.raises(MetadataError, match="has the dtype"):
        data.zstore.to_zarr(path, **options)
    if stored != "f4":
        with pytest.raises(MetadataError, match="has the dtype"):
            data.chunk(x=2).zstore.to_zarr(path, **options)
    assert files_below(path) == before
    fitting = np.full(2, 7, "i8" if stored == "i4" else values.dtype)
    xr.Dataset({"v": ("x", fitting)}).zstore.to_zarr(path, **options)
    assert zstore.open_array(path, "v", mode="r")[-1] == 7


def test_what_contradicts_itself_is_refused_and_changes_nothing(tmp_path):
    path = tmp_path / "a.zarr"
    data = make_dataset()[["t", "p"]]
    data.zstore.to_zarr(path)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    refused = [
        (data, {}, StoreError, "already"),
        (data, {"mode": "x"}, MetadataError, "mode is 'x'"),
        (data, {"mode": "w", "chunk": 4}, TypeError, "no option 'chunk'; expected mode, encoding"),
        (data, {"mode": "w", "append_dim": "time"}, MetadataError, "append_dim"),
        (data, {"mode": "w", "region": "auto"}, MetadataError, "region"),
        (data, {"append_dim": "nowhere"}, MetadataError, "append_dim"),
        (data, {"mode": "a", "zarr_format": 2}, MetadataError, "zarr_format"),
        (data.assign(more=data.t), {"mode": "r+"}, MetadataError, "'more'"),
        (data.isel(time=slice(3)), {"mode": "a"}, MetadataError, "has 3 items"),
        (data, {"mode": "a", "encoding": {"t": {"chunks": (1, 1)}}}, MetadataError, "encoding"),
        (data, {"mode": "w", "encoding": {"t": {"chunk": (1, 1)}}}, MetadataError, "'chunk'"),
        (data, {"mode": "w", "encoding": {"u": {}}}, MetadataError, "'u'"),
        (data, {"mode": "w", "encoding": {"t": {"compressors": "nope"}}}, Exception, "nope"),
        (data, {"region": {"time": slice(0, 4)}}, MetadataError, "expected 5 items"),
        (data, {"region": {"lon": slice(0, 4)}}, MetadataError, "'lon'"),
        (data[["t"]].assign_coords(y=data.y + 0.5), {"region": "auto"}, MetadataError, "coordinates"),
        (data[["t"]].isel(time=[0, 2]), {"region": "auto"}, MetadataError, "next to each other"),
        (data.rename(t="a/b"), {"mode": "w"}, MetadataError, "a/b"),
    ]
    for what, options, kind, words in refused:
        with pytest.raises(kind, match=words):
            what.zstore.to_zarr(path, **options)
        assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before, options
    lazy = xr.open_dataset(path, engine=ENGINE)
    with pytest.raises(MetadataError, match="load"):
        lazy.zstore.to_zarr(path, mode="w")
    lazy.load().zstore.to_zarr(path, mode="w")


def test_dask_chunks_that_meet_within_shards_are_refused_or_cut_anew(tmp_path):
    path = tmp_path / "a.zarr"
    data = make_dataset(count=8)[["t"]].chunk(time=2, y=3)
    encoding = {"t": {"chunks": (2, 3), "shards": (4, 6)}}
    with pytest.raises(MetadataError, match="stored objects of 4 items"):
        data.zstore.to_zarr(path, encoding=encoding)
    assert not path.exists()
    data.zstore.to_zarr(path, encoding=encoding, align_chunks=True)
    np.testing.assert_array_equal(xr.open_dataset(path, engine=ENGINE).t, data.t)
    # On a directory the engine's locks make it safe all the same.
    data.zstore.to_zarr(path, mode="w", encoding=encoding, safe_chunks=False)
    np.testing.assert_array_equal(xr.open_dataset(path, engine=ENGINE).t, data.t)
    with pytest.raises(MetadataError, match="stored objects"):
        data.isel(time=slice(1, 5)).chunk(y=6, time=4).drop_vars(["y", "time", "step"]).zstore.to_zarr(
            path, region={"time": slice(1, 5)}
        )


def test_dask_arrays_are_written_without_being_loaded(tmp_path):
    import dask.array

    largest = []

    def make(block_info=None):
        largest.append(1)
        return np.full((1, 64, 64), len(largest), "f4")

    lazy = dask.array.map_blocks(make, chunks=((1,) * 6, (64,), (64,)), dtype="f4")
    data = xr.Dataset({"t": (("time", "y", "x"), lazy)})
    largest.clear()
    delayed = data.zstore.to_zarr(tmp_path / "a.zarr", compute=False)
    assert largest == []
    assert xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE).t.encoding["chunks"] == (1, 64, 64)
    delayed.compute()
    assert len(largest) == 6
    assert xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE).t.values.min() >= 1


def test_stores_of_every_kind_and_groups(tmp_path):
    data = make_dataset()
    for store in (zstore.create_group(tmp_path / "g.zarr"), str(tmp_path / "z.zip"), "memory://to-xarray"):
        data.zstore.to_zarr(store, group="a/b")
        found = xr.open_dataset(store, engine=ENGINE, group="a/b")
        np.testing.assert_array_equal(found.t, data.t)
        found.close()
    data.t.zstore.to_zarr(tmp_path / "array.zarr")
    np.testing.assert_array_equal(xr.open_dataset(tmp_path / "array.zarr", engine=ENGINE).t, data.t)
    with pytest.raises(MetadataError, match="data array is named None"):
        data.t.rename(None).zstore.to_zarr(tmp_path / "none.zarr")


# Opening


BROKEN = {
    "document": {"shape": "four"},
    "data type": {"data_type": "nobodys_type"},
    "codec": {"codecs": [{"name": "nobodys_codec"}]},
    "kind of node": {"node_type": "neither"},
    "chunks": {},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_array_does_not_hide_its_neighbours(tmp_path, broken):
    root = zstore.create_group(tmp_path / "a.zarr")
    for group in (root, root.create_group("low")):
        # Of arrays with values out of reach, xarray itself needs those of coordinates.
        for name, dim in {"bad": "bad", "t": "x"}.items():
            group.create_array(name, data=np.arange(4.0), dimension_names=(dim,))
        place = tmp_path / "a.zarr" / group.path / "bad"
        document = json.loads((place / "zarr.json").read_text())
        (place / "zarr.json").write_text(json.dumps(document | BROKEN[broken]))
        if broken == "chunks":
            (place / "c" / "0").unlink()
            (place / "c" / "0").symlink_to("0")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dataset = xr.open_dataset(tmp_path / "a.zarr", engine="zstore")
    [warning] = told
    assert warning.category is ReadingWarning
    assert str(warning.message).startswith("'bad' is left out: ")
    assert list(dataset.variables) == ["t"]
    assert dataset["t"].values.tolist() == [0, 1, 2, 3]
    dataset.close()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tree = xr.open_datatree(tmp_path / "a.zarr", engine="zstore")
    assert [str(one.message).partition(":")[0] for one in told] == [
        "'bad' is left out",
        "'low/bad' is left out",
    ]
    assert tree["low/t"].values.tolist() == [0, 1, 2, 3]
    tree.close()
    xr.open_dataset(tmp_path / "a.zarr", engine="zstore", drop_variables="bad").close()


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        xr.open_dataset(tmp_path / "none.zarr", engine=ENGINE)
    with pytest.raises(NotFoundError):
        xr.open_dataset(tmp_path / "none.zarr", engine=ENGINE)
    group = zstore.create_group(tmp_path / "a.zarr")
    group.create_array("nameless", shape=(3,), dtype="i4")
    group.create_array("v", shape=(3,), dtype="i4", dimension_names=["x"])
    with pytest.warns(ReadingWarning, match="'nameless' is left out: .*drop_variables='nameless'"):
        assert list(xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE)) == ["v"]
    assert list(xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, drop_variables="nameless")) == ["v"]
    with pytest.raises(MetadataError, match="no consolidated metadata"):
        xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE, consolidated=True, drop_variables="nameless")


def test_fill_values_as_other_writers_spell_them(tmp_path):
    group = zstore.create_group(tmp_path / "a.zarr")
    for name, dtype, value in (
        ("f", "f4", -1.0),
        ("n", "f8", "NaN"),
        ("i", "i2", 3),
        ("b", "f4", "AAAAAAAA8L8="),
    ):
        group.create_array(
            name, data=np.array([3, -1], dtype), dimension_names=["x"], attributes={"_FillValue": value}
        )
    found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE)
    assert [np.isnan(found[name]).sum() for name in "fib"] == [1, 1, 1]
    group["f"].attrs["_FillValue"] = "none"
    with pytest.warns(ReadingWarning, match="'f' is left out: _FillValue is 'none'"):
        assert "f" not in xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE)


def test_nczarr_dimensions(tmp_path):
    group = zstore.create_group(tmp_path / "a.zarr", zarr_format=2)
    attributes = {"_nczarr_array": {"dimension_references": ["/y", "/x"]}, "units": "m"}
    group.create_array("v", data=np.ones((2, 3)), fill_value=None, attributes=attributes)
    found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE)
    assert found.v.dims == ("y", "x") and found.v.attrs == {"units": "m"}


def test_guessing(tmp_path):
    guess = ZstoreBackendEntrypoint().guess_can_open
    zstore.create_group(tmp_path / "plain")
    assert (
        guess(tmp_path / "plain") and guess("s3://bucket/a.zarr/") and guess(zstore.open(tmp_path / "plain"))
    )
    assert not guess(tmp_path) and not guess("file.nc") and not guess(b"bytes") and not guess(3)


def test_the_entry_point_names_the_engine():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "xarray.backends"
    ]
    module, _, name = stated["zstore"].partition(":")
    assert getattr(import_module(module), name) is ZstoreBackendEntrypoint


# GeoZarr


def test_geozarr(tmp_path):
    pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    pytest.importorskip("rioxarray", reason="the CRS comes from rioxarray here")
    values = np.arange(600 * 700.0, dtype="f4").reshape(600, 700)
    coords = {"y": 6_000_000.0 - 10 * np.arange(600) - 5, "x": 300_000.0 + 10 * np.arange(700) + 5}
    data = xr.Dataset({"red": (("y", "x"), values, {"units": "1"})}, coords).rio.write_crs("EPSG:32632")
    group = data.zstore.to_geozarr(tmp_path / "flat.zarr")
    assert group.attrs["proj:code"] == "EPSG:32632"
    assert group.attrs["spatial:transform"] == [10.0, 0.0, 300000.0, 0.0, -10.0, 6000000.0]
    np.testing.assert_array_equal(xr.open_dataset(tmp_path / "flat.zarr", engine=ENGINE).red, values)
    assert theirs(tmp_path / "flat.zarr").red.attrs["units"] == "1"
    pyramid = data.zstore.to_geozarr(tmp_path / "deep.zarr", levels=2, mode="w")
    assert [name for name, _ in pyramid.groups()] == ["0", "1", "2"] and "multiscales" in pyramid.attrs
    coarse = xr.open_dataset(tmp_path / "deep.zarr", engine=ENGINE, group="2")
    assert coarse.red.shape == (150, 175)
    np.testing.assert_allclose(coarse.red[0, 0], values[:4, :4].mean())
    lazy = data.chunk(y=300, x=350)
    delayed = lazy.zstore.to_geozarr(tmp_path / "lazy.zarr", compute=False)
    delayed.compute()
    assert zstore.open(tmp_path / "lazy.zarr", mode="r").attrs["proj:code"] == "EPSG:32632"
    np.testing.assert_array_equal(xr.open_dataset(tmp_path / "lazy.zarr", engine=ENGINE).red, values)


def files_below(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def refused_datasets() -> dict[str, tuple[xr.Dataset, dict[str, object], str]]:
    grid = xr.Dataset(
        {"t": (("y", "x"), np.ones((40, 50), "f4"))}, {"y": 400.0 - np.arange(40), "x": np.arange(50.0)}
    )
    return {
        "no grid": (xr.Dataset({"a": ("x", np.arange(5.0))}), {}, "no array of two or more dimensions"),
        "a name is taken": (grid.assign(spatial_ref=grid.t * 2), {}, "spatial_ref"),
        "no such profile": (grid, {"profile": "nope"}, "nope"),
        "no such method": (grid, {"levels": 1, "method": "avarage"}, "avarage"),
        "levels": (grid, {"levels": -1}, "levels is -1"),
        "a type without a mean": (grid.assign(s=grid.t.astype(str)), {"levels": 1}, "'s'"),
        "an attribute": (grid.assign_attrs(a=1j), {}, "'a' is a complex"),
        "a variable's attribute": (grid.assign(t=grid.t.assign_attrs(a=object())), {}, "'a' is a object"),
        "a document's name": (grid.assign({"zarr.json": grid.t}), {}, "zarr.json"),
        "no codec": (grid, {"encoding": {"t": {"compressors": "nope"}}}, "nope"),
        "dask's chunks": (grid.chunk(y=7), {"encoding": {"t": {"chunks": (20, 50)}}}, "stored objects"),
    }


@pytest.mark.filterwarnings("ignore::zstore.guests.xarray.geo.GeoWarning")
@pytest.mark.parametrize("reason", refused_datasets())
def test_geozarr_that_is_refused_leaves_nothing_and_takes_nothing(tmp_path, reason):
    data, options, words = refused_datasets()[reason]
    old = tmp_path / "old.zarr"
    make_dataset()[["t"]].zstore.to_zarr(old, group="kept")
    before = files_below(tmp_path)
    for place, mode in (("new.zarr", None), ("new.zip", None), ("old.zarr", "w")):
        for levels in (1,) if "levels" in options else (0, 1):
            with pytest.raises(zstore.errors.ZstoreError, match=words) as caught:
                data.zstore.to_geozarr(tmp_path / place, mode=mode, **{"levels": levels, **options})
            assert "memory" not in str(caught.value)
            assert files_below(tmp_path) == before and [*tmp_path.iterdir()] == [old]


def test_geozarr_without_a_place_says_so(tmp_path):
    from zstore.guests.xarray.geo import GeoWarning

    data = xr.Dataset({"t": (("y", "x"), np.ones((4, 5)))})
    with pytest.warns(GeoWarning, match="no CRS and no affine"):
        data.zstore.to_geozarr(tmp_path / "a.zarr")
    with pytest.raises(MetadataError, match="pyramid"):
        pyramid = zstore.create_group(tmp_path / "b.zarr", attributes={"multiscales": {}})
        data.zstore.to_geozarr(pyramid, mode="a")
    assert list(pyramid) == []


def test_geozarr_grows_by_region_and_append(tmp_path):
    pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    data = xr.Dataset(
        {"t": (("time", "y", "x"), np.arange(24.0).reshape(2, 3, 4))},
        {"time": [0, 1], "y": [30.0, 20.0, 10.0], "x": [5.0, 15.0, 25.0, 35.0], "spatial_ref": 0},
    )
    data.spatial_ref.attrs["crs_wkt"] = "EPSG:32632"
    data.t.attrs["grid_mapping"] = "spatial_ref"
    data.time.attrs["standard_name"] = "forecast_period"
    data.zstore.to_geozarr(tmp_path / "a.zarr")
    south = data.assign_coords(y=[0.0, -10.0, -20.0])
    group = south.zstore.to_geozarr(tmp_path / "a.zarr", append_dim="y")
    assert group.attrs["spatial:shape"] == [6, 4] and group.attrs["proj:code"] == "EPSG:32632"
    assert group.attrs["spatial:transform"] == [10.0, 0.0, 0.0, 0.0, -10.0, 35.0]
    (south[["t"]] * 0).drop_vars("spatial_ref").zstore.to_geozarr(tmp_path / "a.zarr", region="auto")
    assert group["t"][:, :3].sum() == data.t.sum() and not group["t"][:, 3:].any()
    before = files_below(tmp_path)
    with pytest.raises(MetadataError, match="coordinates"):
        data[["t"]].assign_coords(y=data.y + 5).zstore.to_geozarr(tmp_path / "a.zarr", region="auto")
    assert files_below(tmp_path) == before


def test_a_tree_is_checked_whole_before_its_first_node_is_written(tmp_path):
    good, bad = make_dataset()[["t"]], make_dataset()[["t"]].assign_attrs(a=1j)
    tree = xr.DataTree.from_dict({"/": good, "/a": good, "/b": bad})
    with pytest.raises(MetadataError, match="complex"):
        tree.zstore.to_zarr(tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()
    good.zstore.to_zarr(tmp_path / "a.zarr", group="b/c")
    before = files_below(tmp_path)
    for what, mode in ((tree, "w"), (xr.DataTree.from_dict({"/": good, "/b/c": good}), "w-")):
        with pytest.raises((MetadataError, StoreError)):
            what.zstore.to_zarr(tmp_path / "a.zarr", mode=mode)
        assert files_below(tmp_path) == before
    xr.DataTree.from_dict({"/": good, "/b": good}).zstore.to_zarr(tmp_path / "a.zarr", mode="w")
    assert [*zstore.open_group(tmp_path / "a.zarr", "b", mode="r")] == ["step", "t"]


def test_an_array_is_not_written_over_a_group(tmp_path):
    data = make_dataset()[["t"]]
    data.zstore.to_zarr(tmp_path / "a.zarr", group="p")
    before = files_below(tmp_path)
    with pytest.raises(StoreError, match="'p' is to be where a group is"):
        make_dataset()[["p"]].zstore.to_zarr(tmp_path / "a.zarr", mode="a")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("select", ["none", "basic", "outer", "points"])
@pytest.mark.parametrize("kind", ["variable", "array", "dataset"])
def test_all_that_is_selected_loads_in_an_event_loop(tmp_path, kind, select):
    make_dataset().zstore.to_zarr(tmp_path / "a.zarr")
    points = xr.Variable("points", [0, 2])
    chosen = {
        "none": {},
        "basic": {"time": 1, "y": slice(1, 5, 2)},
        "outer": {"time": [3, 0], "y": [1, 4]},
        "points": {"time": points, "y": points},
    }[select]

    def pick(data):
        found = {"variable": data.t.variable, "array": data.t, "dataset": data[["t", "p"]]}[kind]
        return found.isel(chosen)

    found = pick(xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE))
    asyncio.run(found.load_async())
    assert found.identical(pick(make_dataset_as_read(tmp_path / "a.zarr")))


def test_an_encoding_of_storage_alone_leaves_packing_and_units(tmp_path):
    packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    dataset = xr.Dataset({"a": (("t", "x"), np.arange(24.0).reshape(4, 6))}, {"t": np.arange(4)})
    to_zarr(dataset, tmp_path / "first", encoding={"a": packing})
    opened = xr.open_dataset(tmp_path / "first", engine="zstore")
    made = to_zarr(opened, tmp_path / "second", encoding={"a": {"chunks": (2, 3), "shards": (4, 6)}})
    assert made["a"].dtype == np.dtype("i2") and made["a"].chunks == (2, 3)
    assert made["a"].attrs["scale_factor"] == 0.5 and made["a"].attrs["_FillValue"] == -1
    xr.testing.assert_equal(xr.open_dataset(tmp_path / "second", engine="zstore"), dataset)
    whole = to_zarr(opened, tmp_path / "third", encoding={"a": {"dtype": "f4", "chunks": (2, 3)}})
    assert whole["a"].dtype == np.dtype("f4") and "scale_factor" not in whole["a"].attrs


def test_chunks_that_do_not_fit_shards_are_told_by_the_remedy_first(tmp_path):
    dataset = xr.Dataset({"a": (("t",), np.arange(5000.0))}).chunk({"t": 7})
    with pytest.raises(
        MetadataError, match=r"^expected align_chunks=True, or safe_chunks=False: dask"
    ) as said:
        to_zarr(dataset, tmp_path / "a", encoding={"a": {"chunks": (10,), "shards": (50,)}})
    assert "(7, 7, 7, ...)" in str(said.value) and len(str(said.value)) < 500
    to_zarr(dataset, tmp_path / "a", encoding={"a": {"chunks": (10,), "shards": (50,)}}, align_chunks=True)


@pytest.mark.parametrize("decode_cf", [True, False])
def test_structured_items_are_read_beside_others_and_written_back(tmp_path, decode_cf):
    """xarray's engine for Zarr opens no group that has such an array."""
    items = np.array([(1, 2.5, b"xy"), (3, -1, b"")], [("a", "<i4"), ("b", ">f8"), ("c", "S3")])
    group = zstore.create_group(tmp_path / "a.zarr", zarr_format=2)
    group.create_array("fields", data=items, dimension_names=("x",), fill_value=items[0])
    group.create_array("numbers", data=np.arange(1, 3), dimension_names=("x",))
    found = xr.open_dataset(tmp_path / "a.zarr", engine="zstore", decode_cf=decode_cf)
    assert found.fields.values.tolist() == items.tolist() and found.fields.dtype.isnative
    assert found.numbers.values.tolist() == [1, 2]
    found.zstore.to_zarr(tmp_path / "b.zarr", zarr_format=2)
    written = zstore.open_array(tmp_path / "b.zarr/fields")
    assert written[...].tolist() == items.tolist() and written.fill_value == items[0].astype(written.dtype)


# Data on the ground


def placed_data() -> xr.Dataset:
    """Two days of a packed variable in UTM, one without nodata, and one that lies nowhere."""
    pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
    values = np.random.default_rng(7).random((2, 30, 40)).astype("f4")
    values[:, :4, :6] = np.nan
    coords = {
        "time": np.array(["2020-01-01", "2020-01-02"], "M8[ns]"),
        "y": 5_000_000.0 - 10 * np.arange(30) - 5,
        "x": 400_000.0 + 10 * np.arange(40) + 5,
        "spatial_ref": ((), 0, Crs.from_user(32632).cf),
    }
    ground = {"grid_mapping": "spatial_ref"}
    data = {
        "t": (("time", "y", "x"), values, ground | {"units": "K"}, PACKED),
        "n": (("y", "x"), np.arange(1200, dtype="i2").reshape(30, 40), ground),
        "k": ("time", [1, 2]),
    }
    return xr.Dataset(data, coords, {"title": "a scene"})


@pytest.mark.parametrize("chunks", [None, {}, {"y": (13, 17), "x": 11}], ids=["plain", "dask", "dask's own"])
def test_data_on_the_ground_are_as_what_is_stored_of_them(tmp_path, chunks):
    placed_data().zstore.to_geozarr(tmp_path / "packed.zarr")
    data = xr.open_dataset(tmp_path / "packed.zarr", engine=ENGINE)
    data = data if chunks is None else data.chunk(chunks)
    stored = data.compute().drop_encoding().zstore.to_geozarr(tmp_path / "a.zarr")
    assert data.zstore.crs == Crs.from_user(data.spatial_ref.attrs)
    assert data.t.zstore.grid == zstore.GeoGrid.of(stored["t"])
    grid = zstore.GeoGrid.around([stored], crs="EPSG:4326", resolution=0.0003)
    moved = data.zstore.reproject(grid, resampling="bilinear", nodata=-1)
    assert [*moved.data_vars] == [*data.data_vars] and moved.k[1] == 2
    assert moved.attrs == {"title": "a scene", "Conventions": "CF-1.11"}
    assert moved.zstore.grid == grid and "y" in moved.indexes
    for name, nodata in (("t", None), ("n", -1)):
        view = zstore.reproject(stored[name], grid, resampling="bilinear", nodata=nodata)
        expected = xr.open_dataset(view, engine=ENGINE)[name].variable
        del expected.attrs["_CRS"]  # and what else no NetCDF file can hold
        xr.testing.assert_identical(moved[name].variable, expected)
    onto = data.t.rename(None).zstore.reproject(moved)
    assert onto.name is None and onto.shape == (2, *grid.shape) and onto.attrs["units"] == "K"
    np.testing.assert_array_equal(
        onto, data.t.zstore.reproject("EPSG:4326", resolution=0.0003), "the same by CRS and resolution"
    )
    corners = [(400_055, 4_999_905), (400_255, 4_999_905), (400_055, 4_999_765), (400_055, 4_999_905)]
    field = {"type": "Polygon", "coordinates": [corners]}
    zones = {"type": "Feature", "id": "f1", "geometry": field, "properties": {"kind": "wheat"}}
    clipped = data.t.zstore.clip(zones, crs=32632)
    assert clipped.shape == (2, 15, 21) and 0.4 < clipped.isnull().mean() < 0.6
    np.testing.assert_array_equal(clipped[:, 0, 3], data.t.isel(y=9, x=8))
    sums = data.t.zstore.zonal_statistics(zones, ["mean", "count"], crs=32632)
    found = zstore.zonal_statistics(stored["t"], zones, ["mean", "count"], crs=32632)
    assert sums["mean"].dims == ("time", "zone") and str(sums.kind[0].item()) == "wheat"
    assert sums.sel(zone="f1", time="2020-01-02")["mean"].item() == found["mean"][1, 0]
    assert data.t.zstore.zonal_statistics(zones, "max", crs=32632)["max"].shape == (2, 1)


@pytest.mark.parametrize("chunks", [None, {"y": 7}], ids=["plain", "dask"])
def test_moments_and_durations_have_nat_beside_the_data(chunks):
    data = placed_data()[["n"]].astype("f8")
    since = np.timedelta64(1, "D") * np.arange(-600, 600).reshape(30, 40) + np.timedelta64(1, "ns")
    since[3:5] = np.timedelta64("NaT", "ns")
    ground = {"grid_mapping": "spatial_ref"}
    data["late"] = ("y", "x"), since, ground
    data["seen"] = ("y", "x"), np.datetime64("2020-01-05", "ns") + since, ground
    moved = (data if chunks is None else data.chunk(chunks)).zstore.reproject("EPSG:4326", resolution=0.0003)
    cells = np.nan_to_num(moved.n.values).astype(int)
    for name in ("late", "seen"):
        values = data[name].values.ravel()
        expected = np.where(np.isnan(moved.n), np.array("NaT", values.dtype), values[cells])
        np.testing.assert_array_equal(moved[name], expected)


def test_no_property_of_a_zone_hides_a_statistic():
    ring = [(400_055, 4_999_905), (400_255, 4_999_905), (400_055, 4_999_765), (400_055, 4_999_905)]
    field = {"type": "Polygon", "coordinates": [ring]}
    said = {"mean": 7, "time": "noon", "zone": "a", "kind": "wheat"}
    zones = {"type": "Feature", "geometry": field, "properties": said}
    sums = placed_data().t.zstore.zonal_statistics(zones, "mean", crs=32632)
    assert sums["mean"].shape == (2, 1) and (sums["mean"] < 1).all() and "time" in sums.indexes
    names = ("zone_mean", "zone_time", "zone_zone", "kind")
    assert [sums[name].item() for name in names] == [*said.values()]


def test_data_without_ground_say_what_they_need():
    data, zones = placed_data(), {"type": "Polygon", "coordinates": [[(0, 0), (1, 0), (0, 1), (0, 0)]]}
    shifted = {"type": "Polygon", "coordinates": [[(0, 4.99e6), (9, 4.99e6), (0, 5e6), (0, 4.99e6)]]}
    coarse = data[["n"]].isel(x=slice(None, None, 2)).rename(n="rough", x="x2", y="y2")
    for call, said in {
        "zonal_statistics of a Dataset": lambda: data.zstore.zonal_statistics(zones),
        "data is a DataTree; expected a dataset": lambda: xr.DataTree(data).zstore.crs,
        "holds no grid": lambda: data[["k"]].zstore.grid,
        "have no CRS": lambda: (
            data.t.drop_vars("spatial_ref").drop_attrs().zstore.reproject(4326, resolution=1)
        ),
        "no zone lies on a cell": lambda: data.t.zstore.clip(zones),
        "has no nodata": lambda: data.zstore.clip(zones, crs=32632),
        "'rough'. lie on other grids than": lambda: data.merge(coarse).zstore.reproject(data, nodata=-1),
        "latitude 4.99e": lambda: data.t.zstore.zonal_statistics(shifted),
        "dimension is named 'zone'": lambda: data.t.rename(time="zone").zstore.zonal_statistics(zones),
        "statistics of timedelta64": lambda: (data.n * np.timedelta64(1, "D")).zstore.zonal_statistics(zones),
    }.items():
        with pytest.raises((MetadataError, UnsupportedError), match=call):
            said()
