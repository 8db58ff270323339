"""Views as JSON documents: written, opened again, and refused where they are damaged or lead elsewhere."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import (
    ChangedError,
    MetadataError,
    NotFoundError,
    StoreError,
    UnsupportedError,
    ZstoreError,
)
from zstore.geo.rasters.raster import raster_sources
from zstore.jobs.chunks import as_array
from zstore.jobs.source import Source
from zstore.model.grid import RegularGrid
from zstore.views import document
from zstore.views.tables import Tables, render_tables

DATA = np.arange(6 * 8).reshape(6, 8).astype("i2")


@pytest.fixture
def array(tmp_path: Path) -> zstore.Array:
    return zstore.create_array(
        tmp_path / "data" / "a.zarr", "inner/a", data=DATA, chunks=(3, 4), attributes={"scale_factor": 2}
    )


def made_of(array: zstore.Array) -> list[Any]:
    """Views with every kind of step, constant and transform."""
    view = array.lazy
    return [
        view,
        view[::-2, None, 3],
        view.oindex[[0, 5, 2], ::-1],
        view.vindex[[[0, 1]], [[5, 6]]],
        zstore.concat([view, view[:2]]),
        zstore.stack([view, view], 1).T,
        zstore.overlay([view, view], [(0, 0), (3, 4)], nodata=[0, None], fill_value=7, first=True),
        zstore.overlay([view * 1.5, view * 2.5]),
        view.astype(">f8"),
        zstore.unpack(array),
        view.scale(0.5, 1, nodata=[3, 4]),
        (view - 1) / (view + np.float32(2)) * 3.5 + True,
        np.where(view > 5, view, np.nan),
        np.where(view > 5, 1 + 2j, np.inf),
        np.clip(view, None, np.int64(9)),
        np.isin(view, [3, 4, 5]),
        np.divmod(view, 4)[1],
        np.add(view, 1, dtype="f4"),
        np.round(view / 7, 2),
        np.broadcast_to(view, (2, 6, 8)) + np.arange(8),
        np.nanmedian(np.where(view > 20, view, np.nan), axis=0),
        np.nanmax(view, axis=1),
    ]


@pytest.mark.parametrize("count", [0, document.TABLE_COUNT])
@pytest.mark.parametrize("number", range(22))
def test_views_are_opened_as_they_were_saved(
    array: zstore.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, count: int
) -> None:
    monkeypatch.setattr(document, "TABLE_COUNT", count)
    view = made_of(array)[number]
    view.save(tmp_path / "a.view.json")
    again: Any = zstore.open(tmp_path / "a.view.json")
    assert isinstance(again, zstore.View) and again.dtype == view.dtype
    np.testing.assert_array_equal(again.read(), view.read())
    # What was read is rendered as it was.
    before = (tmp_path / "a.view.json").read_bytes()
    again.save(tmp_path / "a.view.json")
    assert (tmp_path / "a.view.json").read_bytes() == before
    assert (b"tables" in before) == (count == 0)
    unpickled = pickle.loads(pickle.dumps(again))
    assert unpickled.__dask_tokenize__() == again.__dask_tokenize__()
    np.testing.assert_array_equal(unpickled.read(), view.read())


def test_documents_move_with_their_arrays(array: zstore.Array, tmp_path: Path) -> None:
    (array.lazy + 1).save(tmp_path / "data" / "a.view.json")
    text = (tmp_path / "data" / "a.view.json").read_text()
    assert '"url":"a.zarr","path":"inner/a"' in text and str(tmp_path) not in text
    moved = tmp_path / "mövéd #1, 50 %+20"
    (tmp_path / "data").rename(moved)
    opened: Any = zstore.open(f"{moved}/a.view.json", mode="r")
    np.testing.assert_array_equal(opened.read(), DATA + 1)
    opened.save(moved / "again.view.json")
    zstore.open_array(moved / "a.zarr", "inner/a").lazy.save(moved.as_uri() + "/opened.view.json")
    assert (moved / "again.view.json").read_text() == text
    np.testing.assert_array_equal(zstore.open(moved / "opened.view.json")[...].read(), DATA)
    moved = moved.rename(tmp_path / "moved")
    zstore.open_array(moved / "a.zarr", "inner/a").resize((5, 8))
    with pytest.raises(ChangedError, match=r"shape \(5, 8\) .* expected \(6, 8\)"):
        zstore.open(f"{tmp_path}/moved/a.view.json")[...].read()
    (tmp_path / "moved" / "a.zarr").rename(tmp_path / "gone")
    with pytest.raises(NotFoundError, match=r"a\.zarr"):
        zstore.open(f"{tmp_path}/moved/a.view.json")[...].read()


def test_arrays_elsewhere_are_read_where_they_are_allowed(array: zstore.Array, tmp_path: Path) -> None:
    document = tmp_path / "views" / "a.view.json"
    array.lazy.save(document)
    with pytest.raises(StoreError, match=r"leads to '/.*a\.zarr', out of the place of its document"):
        zstore.open(document)
    for allowed in (tmp_path / "data", [str(tmp_path / "data"), "s3://bucket"], tmp_path):
        view: Any = zstore.open(document, storage_options={"allow": allowed})
        np.testing.assert_array_equal(view.read(), DATA)
    with pytest.raises(StoreError, match="out of the place"):
        zstore.open(document, storage_options={"allow": tmp_path / "dat"})
    document.write_text(document.read_text().replace(f"{tmp_path}/data/a.zarr", "s3://bucket/a"))
    view = zstore.open(document, storage_options={"allow": "s3://bucket", "region": "eu"})
    assert view._step.array.storage_options == {"region": "eu"}, "options of arrays in a bucket"
    with pytest.raises(StoreError, match=r"unknown storage options \['region'\]"):
        zstore.open(document, storage_options={"allow": tmp_path, "region": "eu"})


class Numbered(Source):
    """A source whose URL opens nothing."""

    shape, dtype, grid, url = (3,), np.dtype("i8"), RegularGrid((2,)), "numbered:3"

    def version(self) -> str:
        return "1"

    def read(self, box: Any, out: Any = None) -> Any:
        return np.arange(3)[box]


def test_views_of_files_and_of_their_sources_lead_to_the_files(array: zstore.Array, tmp_path: Path) -> None:
    place = tmp_path / "data"
    zstore.copy(place / "a.zarr", place / "a.zip")
    cached = zstore.CachedStore(str(place / "a.zarr"), tmp_path / "kept")
    found: list[tuple[Any, str]] = [(zstore.open_array(place / "a.zip", "inner/a"), "a.zip")]
    found += [(zstore.open_array(cached, "inner/a", mode="r"), "a.zarr")]
    if find_spec("rasterio"):
        where = {"proj:code": "EPSG:32632", "spatial:dimensions": ["y", "x"]}
        where["spatial:transform"] = [10, 0, 0, 0, -10, 0]
        scene = zstore.create_group(tmp_path / "scene", attributes=where)
        scene.create_array("b", data=DATA, dimension_names=["y", "x"])
        zstore.zarr_to_raster(scene, place / "a.tif")
        [source] = raster_sources(place / "a.tif").values()
        found += [(zstore.open(place / "a.tif")["b"], "a.tif"), (source, "a.tif")]
        found += [(as_array(source), "a.tif")]
    for source, name in found:
        view = zstore.view(source) + 1
        view.save(place / "a.view.json")
        assert json.loads((place / "a.view.json").read_text())["steps"][0]["url"] == name
        for options in (None, {"allow": tmp_path}):
            again: Any = zstore.open(place / "a.view.json", storage_options=options)
            np.testing.assert_array_equal(again.read(), DATA + 1)


@pytest.mark.parametrize(
    "url",
    [
        "../other/a.zarr",
        "/etc/passwd",
        "file:///etc",
        "a.zarr/../../../data",
        "s3://bucket/a",
        "memory://a",
        "virtual:///etc/refs.json",
        "simplecache::https://example.com/a",
        "a.zip|zip:a",
        "%2e%2e/data",
    ],
)
def test_addresses_that_lead_elsewhere(array: zstore.Array, tmp_path: Path, url: str) -> None:
    array.lazy.save(tmp_path / "data" / "a.view.json")
    said = json.loads((tmp_path / "data" / "a.view.json").read_text())
    said["steps"][0]["url"] = url
    (tmp_path / "data" / "a.view.json").write_text(json.dumps(said))
    with pytest.raises(StoreError, match="it leads to"):
        zstore.open(tmp_path / "data" / "a.view.json")
    # Of many, those that are read.
    count = document.TABLE_COUNT
    said["steps"] = [*said["steps"] * count, {"step": "concat", "of": [*range(count)], "axis": 0}]
    (tmp_path / "data" / "a.view.json").write_text(json.dumps(said))
    with pytest.raises(StoreError, match="it leads to"):
        zstore.open(tmp_path / "data" / "a.view.json")[:1].read()


def test_what_has_no_document(array: zstore.Array, tmp_path: Path) -> None:
    objects = zstore.create_array(tmp_path / "o", data=np.array(["a", "bb"], object), dtype=str)
    piped = zstore.create_array(tmp_path / "a|b", data=DATA)
    in_memory = zstore.create_array("memory://a", data=DATA, overwrite=True)
    for view, message in [
        (array.lazy.map(abs, dtype="i2"), "function abs has no document"),
        (zstore.view(np.zeros(100_000)), "800,000 bytes in memory"),
        (in_memory.lazy, "in memory has no document"),
        (objects.lazy, "expected numbers, times"),
        (piped.lazy, r"no document leads to an address with '::' or '\|'"),
        (np.divmod(array.lazy, 2)[0].map(len, dtype="i2"), "function len"),
        (zstore.view(Numbered()), "a view of a Numbered has no document; .* or a source whose URL opens it"),
        (zstore.view(as_array(Numbered())), "in memory has no document"),
    ]:
        with pytest.raises(UnsupportedError, match=message):
            view.save(tmp_path / "a.view.json")
    with pytest.raises(UnsupportedError, match=r"expected one that ends in '\.view\.json'"):
        array.lazy.save(tmp_path / "a.json")
    assert not (tmp_path / "a.view.json").exists()
    with pytest.raises(NotFoundError, match="no view there"):
        zstore.open(tmp_path / "b.view.json")
    with pytest.raises(MetadataError, match="expected no path, got 'b'"):
        zstore.open(tmp_path / "b.view.json", "b")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"zstore_view": 2, "steps": []}', '{"zstore_view": 1}', "[" * 9999]
)
def test_what_is_no_document(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.view.json").write_text(text)
    with pytest.raises(MetadataError, match="view"):
        zstore.open(tmp_path / "a.view.json")


VALUES = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        2,
        7,
        1 << 70,
        0.5,
        "",
        "add",
        "matmul",
        "open",
        "<i2",
        "|O",
        "i4,i4",
        [],
        [0],
        [[0]],
        {},
    ]
)


@settings(max_examples=120)
@given(data=st.data())
def test_damaged_documents_are_refused_or_read(data: st.DataObject, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("damaged")
    array = zstore.create_array(path / "a.zarr", data=DATA, chunks=(3, 4))
    views = made_of(array)
    with patch.object(document, "TABLE_COUNT", data.draw(st.sampled_from([0, 1000]))):
        data.draw(st.sampled_from(views)).save(path / "a.view.json")
    said = json.loads((path / "a.view.json").read_text())
    place: Any = said
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.integers(0, 4)) == 0:
            place[key] = data.draw(VALUES)
            break
        place = place[key]
    (path / "a.view.json").write_text(json.dumps(said))
    try:
        view: Any = zstore.open(path / "a.view.json")
    except ZstoreError:
        return
    if view.size < 10_000:
        try:
            with np.errstate(all="ignore"):
                assert view.read().shape == view.shape
        except (ZstoreError, ValueError, TypeError):
            return


def test_of_many_sources_only_those_that_are_read_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = zstore.create_array(tmp_path / "a.zarr", data=DATA, chunks=(3, 4))
    array.lazy.save(tmp_path / "a.view.json")
    said = json.loads((tmp_path / "a.view.json").read_text())
    [one] = said["steps"]
    count = 20_000
    days = [{**one, "url": f"days/{n}.zarr"} for n in range(count)]
    days[17_001] = one
    said["steps"] = [*days, {"step": "concat", "of": [*range(count)], "axis": 0}]
    (tmp_path / "a.view.json").write_text(json.dumps(said))
    zstore.open(tmp_path / "a.view.json").save(tmp_path / "tables.view.json")
    assert (tmp_path / "tables.view.json").stat().st_size < count * 40
    made, parse = list[Any](), document.Steps._parse
    monkeypatch.setattr(
        document.Steps, "_parse", lambda steps, *given: made.append(given) or parse(steps, *given)
    )
    for name, most in (("a.view.json", 40e6), ("tables.view.json", 20e6)):
        del made[:]
        tracemalloc.start()
        view: Any = zstore.open(tmp_path / name)
        first = 17_001 * 6
        np.testing.assert_array_equal(view[first : first + 6].read(), DATA)
        assert repr(view) == "<View shape=(120000, 8) dtype=int16 of 20,000 inputs>"
        assert tracemalloc.get_traced_memory()[1] < most
        tracemalloc.stop()
        # The first one, the one that is read, and what joins them.
        assert len(made) == 3
        again = pickle.loads(pickle.dumps(view))
        np.testing.assert_array_equal(again[first : first + 6].read(), DATA)
        assert len(made) == 5 and again.__dask_tokenize__() == view.__dask_tokenize__()


JSON = st.recursive(
    VALUES | st.integers() | st.lists(st.integers()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=9,
)


@settings(max_examples=150)
@given(members=st.lists(st.dictionaries(st.sampled_from("abc"), JSON), min_size=1, max_size=9))
def test_objects_of_tables_are_as_they_were(members: list[Any]) -> None:
    tables = tables_of(members)
    assert json.dumps([*tables]) == json.dumps(members)
    numbers = np.arange(len(members))[::-1]
    assert tables.many(numbers, "a") == [member.get("a") for member in members[::-1]]


def tables_of(members: list[Any]) -> Tables:
    """Objects as tables, by way of JSON."""
    return Tables(json.loads(json.dumps(render_tables(members))))


COMMANDS: list[tuple[list[str], str]] = [
    (["info", "v.view.json"], "float64"),
    (["tree", "v.view.json"], "spatial_ref"),
    (["verify", "v.view.json"], "sound"),
    (["validate", "v.view.json"], "/v.view.json: 0 errors"),
    (["convert", "v.view.json", "c.zarr", "-q"], "spatial_ref"),
    (["convert", "v.view.json", "o.tif", "-q"], "o.tif"),
    (["copy", "v.view.json", "cc.zarr", "-q"], "copied"),
    (["pyramid", "v.view.json", "p.zarr", "-q"], "t (2, 4, 6)"),
    (["quicklook", "v.view.json", "-o", "q.png"], "q.png"),
    (["reduce", "v.view.json", "--method", "max", "-q"], "47"),
    (["mosaic", "v.view.json", "m.zarr", "-q"], "m.zarr"),
    (["info", "w.view.json"], "3 × 4"),
]


@pytest.mark.parametrize(("words", "said"), COMMANDS)
def test_commands_take_views_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    pytest.importorskip("click", reason="the command line needs click (extra 'cli')")
    pytest.importorskip("rasterio")
    from click.testing import CliRunner

    from zstore.cli.root import zstore as command

    monkeypatch.chdir(tmp_path)
    place = {"proj:code": "EPSG:32632", "spatial:transform": [10, 0, 600000, 0, -10, 5300000]}
    place |= {"spatial:dimensions": ["y", "x"], "_FillValue": -1}
    data, names = np.arange(48, dtype="i2").reshape(2, 4, 6), ("time", "y", "x")
    cube = zstore.create_array("t", data=data, attributes=place, dimension_names=names)
    cube.lazy[:].save("v.view.json")
    zstore.create_array("bare", data=np.zeros((3, 4))).lazy.save("w.view.json")
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0 and said in result.output, result.output
