"""Opening and making: modes, formats, places that hold nothing or something else, and what peers see."""

from __future__ import annotations

import errno
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import zarr

import zstore
from zstore.errors import (
    ExistsError,
    MetadataError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    UnknownExtensionError,
    UnsupportedError,
)
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import consolidate, create_array, create_group, open, open_array, open_group
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.zip.store import ZipStore


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")


@pytest.fixture(params=[3, 2], ids=["v3", "v2"])
def zarr_format(request):
    return request.param


def test_r_and_r_plus_need_something_there(store):
    for opener in (open, open_array, open_group):
        for mode in ("r", "r+"):
            with pytest.raises(NotFoundError, match=r"looked for zarr\.json, \.zarray, \.zgroup") as caught:
                opener(store, "a/b", mode)
            assert caught.value.path == f"{store.url}/a/b"
    assert list(store.list()) == []


def test_a_makes_what_is_missing_and_opens_what_is_there(store, zarr_format):
    group = open_group(store, "g", "a", zarr_format=zarr_format, attributes={"a": 1})
    assert group.zarr_format == zarr_format
    assert open_group(store, "g", "a").attrs.asdict() == {"a": 1}
    array = open_array(store, "x", "a", zarr_format, shape=(3,), dtype="i2")
    assert array.shape == (3,)
    assert open_array(store, "x", "a", shape=(9,), dtype="i8").shape == (3,)
    assert isinstance(open(store, "x", "a"), Array)
    assert isinstance(open(store, "g", "a"), Group)
    assert isinstance(open(store, "new", "a", zarr_format=zarr_format), Group)
    assert isinstance(open(store, "newer", "a", zarr_format=zarr_format, shape=1, dtype="i1"), Array)
    with pytest.raises(NotFoundError):
        open_array(store, "nothing", "a")


def test_without_a_mode_nothing_is_made_and_what_is_there_can_be_written(store, zarr_format):
    for maker in (open, open_array, open_group):
        for options in ({}, {"shape": 3, "dtype": "i1"}):
            if maker is not open_group or not options:
                with pytest.raises(NotFoundError, match="looked for"):
                    maker(store, "x", zarr_format=zarr_format, **options)
    assert list(store.list()) == []
    create_array(store, "x", shape=(3,), dtype="i1", zarr_format=zarr_format)
    for maker in (open, open_array):
        maker(store, "x")[0] = 7
        assert maker(store.as_read_only(), "x").read_only
    assert not open_group(create_group(store, "g", zarr_format=zarr_format).store, "g").read_only


def urls_of_nothing(folder):
    """One for each kind of store in a file or a directory of its own."""
    place = folder / "sub" / "typo"
    yield from (
        str(place),
        f"{place}.zip",
        place.as_uri(),
        f"{place.as_uri()}.zip|zip:|zarr3:",
        f"zip::{place}.zip",
    )
    yield from (f"{place.as_uri()}|zarr2:", f"{place.as_uri()}|zarr3:a", f"tar://a::{place}.tar")
    yield from (f"{scheme}://{place}" for scheme in ("sqlite", "lmdb", "dbm"))


def test_opening_makes_no_file_and_no_directory(tmp_path):
    (tmp_path / "sub").mkdir()
    for url in urls_of_nothing(tmp_path):
        for opener in (open, open_array, open_group):
            for mode in (None, "r", "r+"):
                # What is no archive cannot be looked into at all.
                with pytest.raises((NotFoundError, StoreError, UnknownExtensionError)):
                    opener(url, mode=mode)
    ZipStore(tmp_path / "sub" / "typo.zip").close()
    LocalStore(tmp_path / "sub" / "typo").close()
    assert [*(tmp_path / "sub").iterdir()] == []


def test_a_miss_says_what_lies_near(tmp_path):
    root = create_group(tmp_path / "data" / "scene.zarr")
    root.create_array("bands/red", shape=(3,), dtype="i1")
    root.consolidate()
    with pytest.raises(NotFoundError, match="looked for") as caught:
        open(tmp_path / "data" / "scene.zarr" / "none")
    assert "is an array" not in str(caught.value)
    (tmp_path / "data" / "weather").write_bytes(b"GRIB rest")
    for store, path, hint in (
        (tmp_path / "data" / "scen.zarr", None, "near it: 'scene.zarr'"),
        ((tmp_path / "data" / "scene").as_uri(), None, "near it: 'scene.zarr'"),
        (tmp_path / "data", None, "there are nodes below it: 'scene.zarr'"),
        (tmp_path / "data" / "scene.zarr", "bands/rad", "near it: 'red'"),
        (
            tmp_path / "data" / "scene.zarr",
            "bands/red/0",
            "bands/red' is an array, which has no nodes below it",
        ),
        (tmp_path / "data" / "scene.zarr" / "bands" / "red" / "0", None, "is an array"),
        (
            tmp_path / "data" / "weather",
            None,
            f"found a GRIB file at '{tmp_path}/data/weather': "
            f"`zstore convert {tmp_path}/data/weather NAME.zarr` makes",
        ),
    ):
        with pytest.raises(NotFoundError, match=re.escape(hint)):
            open(store, path)


def test_a_name_that_is_missing_in_memory_has_neighbours_too():
    group = create_group(MemoryStore())
    group.create_array("temperature", shape=(3,), dtype="i1")
    with pytest.raises(NotFoundError, match="near it: 'temperature'"):
        open(group.store, "temprature")
    inner = MemoryStore()
    inner.put("data/zarr.json", group.store.get("zarr.json"))
    with pytest.raises(NotFoundError, match="there are nodes below it: 'data'"):
        open(inner)


def test_a_url_pipeline_is_read_and_never_a_directory(tmp_path):
    root = create_group((tmp_path / "a.zarr").as_uri() + "|zarr3:")
    root.create_array("b/x", data=np.arange(3))
    url = (tmp_path / "a.zarr").as_uri()
    assert open(f"{url}|zarr3:").store.local_path() == tmp_path / "a.zarr"
    assert open(f"{url}|zarr3:b/x")[...].tolist() == [0, 1, 2]
    with pytest.raises(NotFoundError):
        open(f"{url}|zarr2:")
    with pytest.raises(MetadataError, match="expected 3, as the store was opened for"):
        create_group(f"{url}|zarr3:c", zarr_format=2)
    with pytest.raises(UnsupportedError, match="no adapter 'ocdbt' for URL pipelines; expected zip:"):
        open(f"{url}|ocdbt:")
    with pytest.raises(StoreError, match="stands behind a node"):
        open(f"{url}|zarr3:|zip:")
    with create_group(tmp_path / "z.zip").store as store:
        create_array(store, "b/x", data=np.arange(3))
    packed = (tmp_path / "z.zip").as_uri()
    for url in (
        f"{packed}|zip:b|zarr3:x",
        f"{packed}|zip:|zarr3:b/x",
        f"{packed}|zip:/b/x/",
        f"{packed}|zarr3:b/x",
    ):
        assert open_array(url)[...].tolist() == [0, 1, 2]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.zarr", "z.zip"]


def test_a_pipeline_says_which_of_two_formats_counts(tmp_path):
    create_group(tmp_path, attributes={"format": 3})
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / ".zattrs").write_text('{"format": 2}')
    for zarr_format in (2, 3):
        group = open_group(f"{tmp_path.as_uri()}|zarr{zarr_format}:", mode="r")
        assert (group.zarr_format, group.attrs["format"]) == (zarr_format, zarr_format)


def test_w_replaces_that_node_only(store, zarr_format):
    root = open_group(store, mode="w", zarr_format=zarr_format, attributes={"root": 1})
    for path in ("a/x", "a/y", "ab"):
        root.create_array(path, shape=(3,), dtype="i1")[...] = 7
    array = open_array(store, "a/x", "w", zarr_format, shape=(5,), dtype="i2")
    assert np.array_equal(array[...], np.zeros(5))
    open_group(store, "a", "w", zarr_format)
    assert [path for path, _ in root.members(None)] == ["a", "ab"]
    assert np.array_equal(root["ab"][...], [7, 7, 7])
    assert root.attrs.asdict() == {"root": 1}


def test_w_minus_refuses_what_is_there(store, zarr_format):
    open_group(store, "g", "w-", zarr_format)
    for opener in (open_group, open):
        with pytest.raises(StoreError, match="is there already"):
            opener(store, "g", "w-", zarr_format)
    with pytest.raises(StoreError, match="is there already"):
        open_array(store, "g", "w-", zarr_format, shape=1, dtype="i1")


def test_a_root_that_holds_other_files_loses_none(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    open_group(tmp_path, mode="w")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_r_opens_for_reading_only(store):
    create_array(store, "x", shape=(3,), dtype="i1")
    array = open_array(store, "x", "r")
    group = open_group(store, mode="r")
    assert isinstance(open(store.as_read_only()), Group)
    for write in (
        lambda: array.attrs.update(a=1),
        lambda: group.attrs.update(a=1),
        lambda: group["x"].attrs.update(a=1),
        lambda: create_group(store.as_read_only(), "y"),
        lambda: open_group(store.as_read_only(), "x", "w"),
    ):
        with pytest.raises(ReadOnlyError):
            write()
    open_array(store, "x", "r+").attrs["a"] = 1


def test_the_other_kind_is_no_answer(store):
    create_array(store, "x", shape=(3,), dtype="i1")
    for mode in ("r", "r+", "a"):
        with pytest.raises(MetadataError, match="a group is there, expected an array"):
            open_array(store, "", mode, shape=1, dtype="i1")
        with pytest.raises(MetadataError, match="an array is there, expected a group"):
            open_group(store, "x", mode)


def test_v3_goes_before_v2_and_a_format_can_be_asked_for():
    store = MemoryStore()
    create_group(store, zarr_format=2, attributes={"format": 2})
    store.put("zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {"format": 3}}')
    assert open_group(store).attrs["format"] == 3
    assert open_group(store, zarr_format=2).attrs["format"] == 2
    with pytest.raises(NotFoundError, match=r"looked for zarr\.json"):
        open_group(MemoryStore(), mode="r", zarr_format=3)


def test_formats_that_there_are_not(store):
    for opener in (open, open_array, open_group):
        with pytest.raises(UnsupportedError, match="zarr_format is 7"):
            opener(store, "", "r", 7)
    for maker in (lambda: create_group(store, zarr_format=7), lambda: open_group(store, "", "w", 7)):
        with pytest.raises(UnsupportedError, match="zarr_format is 7"):
            maker()
    assert list(store.list()) == []


def test_damaged_documents_say_where(store):
    store.put("x/zarr.json", b'{"zarr_format": 3,')
    with pytest.raises(MetadataError, match="not valid") as caught:
        open(store, "x", "r")
    assert (caught.value.path, caught.value.key) == (f"{store.url}/x", "zarr.json")


def test_places_in_every_form(tmp_path):
    create_array(tmp_path / "a", "x", shape=(3,), dtype="i1", fill_value=4)
    for place in (tmp_path / "a", str(tmp_path / "a"), (tmp_path / "a").as_uri(), LocalStore(tmp_path / "a")):
        assert open_array(place, "/x/", "r")[...].tolist() == [4, 4, 4]
    assert open_array(tmp_path / "a" / "x", mode="r").shape == (3,)
    with pytest.raises(StoreError, match="leaves the store"):
        open(tmp_path / "a", "../a")


def test_arguments_that_make_nothing(store):
    with pytest.raises(MetadataError, match="mode is 'x'; expected one of r"):
        open(store, mode="x")
    for open_it in (open, open_array):
        with pytest.raises(MetadataError, match="overwrite is True; expected mode='w'"):
            open_it(store, mode="a", shape=3, dtype="u1", overwrite=True)
    with pytest.raises(MetadataError, match="expected both, or data"):
        create_array(store, "x", shape=(3,))
    with pytest.raises(UnsupportedError, match="dtype"):
        create_array(store, "x", shape=(3,), dtype=object)
    with pytest.raises(UnsupportedError, match="dimension_names"):
        create_array(store, "x", shape=(3,), dtype="i1", zarr_format=2, dimension_names=[None])
    assert list(store.list()) == []


def test_a_store_that_fails_is_not_a_store_with_nothing_in_it():
    class Failing(MemoryStore):
        def get(self, key, byte_range=None):
            raise StoreError("no route to host", key=key)

    for opener in (open, open_array, open_group, create_group):
        with pytest.raises(StoreError, match="no route"):
            opener(Failing(), "x")


def test_data_makes_an_array_and_fills_it(store, zarr_format):
    data = np.arange(12, dtype="f4").reshape(3, 4)
    create_array(store, "x", data=data, chunks=2, zarr_format=zarr_format)
    assert np.array_equal(open_array(store, "x", "r")[...], data)


def test_what_is_made_is_told_what_a_missing_chunk_is(store, zarr_format):
    """As if it had been there: `missing` goes to arrays, to groups, and to what groups make."""
    told = {"zarr_format": zarr_format, "missing": "error"}
    made = {"shape": 3, "dtype": "i1"}
    group = open(store, "g", "a", **told)
    arrays = [
        open(store, "a", "a", **told, **made),
        open(store, "b", "w", **told, **made),
        open_array(store, "c", "a", **told, **made),
        create_array(store, "d", **told, **made),
        group.create_array("e", **made),
        open_group(store, "h", "a", **told).create_array("f", **made),
        open_group(store, "p", "w", **told).create_group("i").create_array("j", **made),
        create_group(store, "k", **told).require_array("l", **made),
        group.require_group("m").require_array("n", **made),
        group["e"],
    ]
    for array in arrays:
        with pytest.raises(NotFoundError, match="chunk"):
            array[...]
        assert array.read(missing="fill").tolist() == [0, 0, 0]
    assert open_array(store, "o", "a", zarr_format=zarr_format, **made)[...].tolist() == [0, 0, 0]


@pytest.mark.parametrize("maker", [open, open_array, open_group, create_array, create_group])
def test_a_wrong_word_for_missing_makes_nothing(store, maker):
    options = {} if maker in (open_group, create_group) else {"shape": 3, "dtype": "i1"}
    if maker not in (create_array, create_group):
        options["mode"] = "a"
    with pytest.raises(ValueError, match="missing='no', expected 'fill' or 'error'"):
        maker(store, "a", missing="no", **options)
    assert list(store.list()) == []


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_zarr_python_opens_what_is_made_here(tmp_path, zarr_format):
    root = create_group(tmp_path, zarr_format=zarr_format, attributes={"a": 1})
    root.create_array("g/x", data=np.arange(10), chunks=3, dimension_names=["t"], attributes={"b": 2})
    consolidate(root)
    for use_consolidated in (True, False):
        theirs = zarr.open_group(tmp_path, mode="r", use_consolidated=use_consolidated)
        assert dict(theirs.attrs) == {"a": 1}
        assert theirs["g/x"].attrs["b"] == 2
        assert sorted(theirs["g"].keys()) == ["x"]
        assert theirs["g/x"][:].tolist() == list(range(10))
    theirs = zarr.open_group(tmp_path, mode="a", zarr_format=zarr_format)
    theirs.create_array("g/y", data=np.arange(4), dimension_names=None, overwrite=True)
    assert open_array(tmp_path, "g/y", "r")[...].tolist() == [0, 1, 2, 3]


def test_the_package_opens_and_creates():
    store = MemoryStore()
    assert isinstance(zstore.open(store, mode="a"), Group)
    assert isinstance(zstore.open(store, "x", "a", shape=1, dtype="i1"), Array)


def test_importing_loads_nothing_heavy():
    code = "import sys, zstore.nodes.open; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"zarr", "numcodecs", "blosc2", "fsspec", "pluggy", "pyproj", "rasterio", "xarray", "asyncio"}
    assert "numpy" in loaded
    assert not heavy.intersection(loaded)


@pytest.mark.parametrize("mode", ["r+", "a", "w", "w-"])
@pytest.mark.parametrize("opener", [zstore.open, zstore.open_array, zstore.open_group])
def test_modes_that_write_are_refused_where_the_store_can_be_read_only(opener, mode):
    store = MemoryStore()
    zstore.create_group(store)
    with pytest.raises(ReadOnlyError, match=f"expected mode='r', not {re.escape(repr(mode))}"):
        opener(store.as_read_only(), mode=mode)
    assert zstore.open(store.as_read_only()).read_only


def test_errors_are_those_that_programs_of_zarr_python_catch(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        open(tmp_path / "a")
    assert missing.value.errno == errno.ENOENT and isinstance(missing.value, LookupError)
    group = create_group(tmp_path / "a")
    with pytest.raises(KeyError):
        group["b"]
    group.create_array("b", shape=3, dtype="i1")
    for make in (
        lambda: group.create_array("b", shape=3, dtype="i1"),
        lambda: group.create_group("b"),
        lambda: create_group(tmp_path / "a"),
        lambda: open_group(tmp_path / "a", mode="w-"),
        lambda: open_array(tmp_path / "a" / "b", mode="w-", shape=3, dtype="i1"),
    ):
        with pytest.raises(FileExistsError) as taken:
            make()
        assert isinstance(taken.value, ValueError) and taken.value.errno == errno.EEXIST
        again = pickle.loads(pickle.dumps(taken.value))
        assert type(again) is ExistsError and str(again) == str(taken.value)
    with pytest.raises(ValueError, match="a group is there"):
        open_array(tmp_path / "a", mode="r")
