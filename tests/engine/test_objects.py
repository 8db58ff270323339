"""Strings and other objects through the engine: what is stored, what is fetched, what goes wrong."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest

import zstore
from zstore.engine.objects import ObjectTable, SpanTable, as_items, single
from zstore.errors import CodecError, NotFoundError, SelectionError, UnsupportedError
from zstore.model.dtype import DataType
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

STRINGS = getattr(np.dtypes, "StringDType", lambda: np.dtype(object))()


def strings(store, **options):
    options = {"shape": (10,), "chunks": (3,), "compressors": None, **options}
    return zstore.create_array(store, "a", dtype=str, **options)


def objects(*items: object) -> np.ndarray:
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made


def keys(store) -> list[str]:
    return sorted(key for key in store.list("a") if not key.endswith("zarr.json"))


@pytest.mark.parametrize("fill", ["", "none"])
@pytest.mark.parametrize("kind", ["memory", "local"])
def test_chunks_of_nothing_but_the_fill_value_are_not_stored(tmp_path, kind, fill):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "s")
    array = strings(store, fill_value=fill)
    array[...] = fill
    assert keys(store) == []
    array[4] = "x"
    assert keys(store) == ["a/c/1"]
    array[2:5] = fill
    assert keys(store) == []
    assert array[...].tolist() == [fill] * 10


def test_inner_chunks_are_read_alone_and_empty_ones_take_no_room(tmp_path):
    store = MemoryStore()
    array = strings(store, shape=(12,), shards=(12,))
    array[4] = "x" * 1000
    stored = store.get("a/c/0")
    assert len(stored) < 1200
    damaged = bytearray(stored)
    damaged[0:4] = b"\xff" * 4  # the count of the only inner chunk
    store.put("a/c/0", bytes(damaged))
    assert array[:3].tolist() == [""] * 3
    with pytest.raises(CodecError, match=r"count of 4294967295, expected 3.*'a/c/0'"):
        array[3:6]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes"),
        (struct.pack("<I", 4) + bytes(16), "count of 4, expected 3"),
        (struct.pack("<IIII", 3, 0, 0, 9), "more than is left"),
        (struct.pack("<IIII", 3, 0, 0, 0) + b"?", "follow the last item"),
        (struct.pack("<IIII", 3, 0, 0, 1) + b"\x80", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("kind", ["memory", "local"])
def test_damage_names_the_chunk(tmp_path, kind, data, message):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "s")
    array = strings(store)
    array[...] = "a"
    store.put("a/c/1", data)
    for selection in (..., 4, [0, 5], slice(None, None, -2)):
        with pytest.raises(CodecError, match=message) as caught:
            array[selection]
        assert caught.value.key == "a/c/1"
        assert caught.value.path == store.url
    assert array[:3].tolist() == ["a"] * 3
    with pytest.raises(CodecError, match=message):
        array[4] = "b"  # the rest of the chunk would be lost
    array[3:6] = "b"  # nothing of it is kept
    assert array[...].tolist() == ["a"] * 3 + ["b"] * 3 + ["a"] * 4


def test_missing_chunks_can_be_a_fault():
    array = strings(MemoryStore(), fill_value="nothing")
    array[0] = "a"
    assert array.read(missing="fill")[-1] == "nothing"
    with pytest.raises(NotFoundError):
        array.read(missing="error")
    assert array.read(slice(0, 3), missing="error").tolist() == ["a", "nothing", "nothing"]


@pytest.mark.parametrize(
    "value", [None, 5, b"a", ["a"] * 9 + [None], np.arange(10), objects(*"abcdefghi", 1.5)]
)
def test_what_is_no_string_is_refused_and_changes_nothing(value):
    array = strings(MemoryStore())
    array[...] = "kept"
    with pytest.raises(CodecError, match=r"item \(.*\) is .*expected a string"):
        array[...] = value
    assert set(array[...].tolist()) == {"kept"}


def test_missing_values_of_numpy_strings_are_refused():
    if np.dtype(object) == STRINGS:
        pytest.skip("numpy has no StringDType")
    dtype = np.dtypes.StringDType(na_object=None)
    array = strings(MemoryStore())
    with pytest.raises(CodecError, match=r"item \(1,\) is None"):
        array[:2] = np.array(["a", None], dtype)
    array[:2] = np.array(["a", "b"], dtype)
    assert array[:3].tolist() == ["a", "b", ""]


@pytest.mark.parametrize(
    "value",
    [
        ["a", "é"],
        ("a", "é"),
        np.array(["a", "é"]),
        objects("a", "é"),
        np.array(["a", "é"], STRINGS),
        [np.str_("a"), "é"],
    ],
)
def test_strings_of_every_kind_are_taken(value):
    array = strings(MemoryStore())
    array[3:5] = value
    assert array[2:6].tolist() == ["", "a", "é", ""]
    assert array.append(value) == (12,)
    assert array[-2:].tolist() == ["a", "é"]


def test_values_that_do_not_fit_the_selection():
    array = strings(MemoryStore())
    with pytest.raises(SelectionError, match="broadcast"):
        array[:3] = ["a", "b"]
    array[:3] = [["a", "b", "c"]]
    assert array[:3].tolist() == ["a", "b", "c"]


def test_a_scalar_is_a_str_and_no_dimension_is_an_array():
    array = strings(MemoryStore(), shape=(), chunks=())
    assert array[()] == ""
    array[...] = "é"
    assert type(array[()]) is str
    assert array[...].shape == ()
    assert array[...][()] == "é"


def test_one_string_over_a_huge_selection_is_encoded_once():
    array = zstore.create_array(
        MemoryStore(), "a", shape=(1000, 1000), chunks=(1000, 1000), dtype=str, fill_value="-"
    )
    array[:, :5] = "x" * 100
    assert array[999, 4] == "x" * 100
    assert array[0, 5] == "-"
    assert (array[:2, :6] == [["x" * 100] * 5 + ["-"]] * 2).all()


def test_ragged_arrays():
    array = zstore.create_array(
        MemoryStore(),
        "a",
        shape=(5,),
        chunks=(2,),
        dtype=object,
        filters=[{"id": "vlen-array", "dtype": "<i2"}],
        zarr_format=2,
    )
    array[0] = np.array([1, 2, 3])
    array[1] = []
    array[2:4] = [np.array([1, 2]), np.array([3, 4])]
    assert [np.asarray(item).tolist() for item in array[:4]] == [[1, 2, 3], [], [1, 2], [3, 4]]
    assert array[4] is None
    array.append([np.array([9])])
    assert array[5].tolist() == [9]
    with pytest.raises(CodecError, match=r"item \(1,\) is .*'a/2'"):
        array[5] = np.array([1.5])
    assert array[5].tolist() == [9]


def test_pickles_are_read_by_those_who_say_so(tmp_path):
    place = tmp_path / "s"
    options = {
        "shape": (4,),
        "chunks": (2,),
        "dtype": object,
        "filters": [{"id": "pickle"}],
        "zarr_format": 2,
    }
    with pytest.raises(UnsupportedError, match="allow_pickle"):
        zstore.create_array(place, "s", **options)
    assert not place.exists()
    array = zstore.create_array(place, "s", allow_pickle=True, **options)
    array[:3] = [{1}, (2, 3), None]
    array.resize((3,))
    array.append([4])
    for opened in (
        zstore.open(place, "s", allow_pickle=True),
        zstore.open_array(place, "s", "r", allow_pickle=True),
        zstore.open(place, allow_pickle=True)["s"],
    ):
        assert opened[...].tolist() == [{1}, (2, 3), None, 4]
    for opened in (
        zstore.open(place, "s"),
        zstore.open_array(place, "s", "r"),
        zstore.open_group(place)["s"],
    ):
        assert opened.shape == (4,)
        with pytest.raises(UnsupportedError, match="allow_pickle=True"):
            opened[0]
    with pytest.raises(UnsupportedError, match="allow_pickle=True"):
        zstore.open_array(place, "s")[0] = 1


def test_writers_of_parts_of_a_chunk_wait_for_each_other(tmp_path):
    array = strings(LocalStore(tmp_path / "s"), shape=(32,), chunks=(16,), shards=(32,))
    point = np.dtype([("a", "i4"), ("b", "i4")])
    fields = zstore.create_array(LocalStore(tmp_path / "s"), "f", shape=(8,), chunks=(8,), dtype=point)

    def work(n: int) -> None:
        for i in range(4):
            array[4 * n + i] = f"{n}-{i}"
            fields["ab"[n % 2], n] = n

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert array[...].tolist() == [f"{n}-{i}" for n in range(8) for i in range(4)]
    assert fields["a"].tolist() == [n if n % 2 == 0 else 0 for n in range(8)]
    assert fields["b"].tolist() == [n if n % 2 else 0 for n in range(8)]


def test_forked_tables_share_what_was_there():
    table = ObjectTable(None)
    first = table.take_in(objects("a", [1], None))
    fork, other = table.fork(), table.fork()
    second = fork.take_in(objects("b"))
    other.take_in(objects("c", "d"))
    assert first[2] == 0
    assert fork.items(np.concatenate([second, first])).tolist() == ["b", "a", [1], None]
    for _ in range(3):
        third = fork.take_in(objects("e"))
    assert fork.items(np.concatenate([third, first, second])).tolist() == ["e", "a", [1], None, "b"]


def test_only_what_compares_safely_is_taken_for_the_fill_value():
    assert ObjectTable(0.0).take_in(objects(0.0, -0.0, 0)).tolist() == [1, 2, 3]
    assert ObjectTable(1).take_in(objects(True, 1, 1.0, np.array([1, 1]))).tolist() == [1, 0, 3, 4]
    assert ObjectTable([]).take_in(objects([], [1])).tolist() == [1, 2]


def test_strings_are_kept_as_long_as_their_handles_are_used():
    from zstore.codecs.base import ChunkSpec
    from zstore.codecs.vlen import VlenUtf8

    table = SpanTable(VlenUtf8(ChunkSpec((2,), STRINGS, "fill")))
    handles = [
        table.take_in(np.array([f"{i} and more than fifteen bytes", "fill"], STRINGS)) for i in range(50)
    ]
    fork = table.fork()
    del table
    expected = [text for i in range(50) for text in (f"{i} and more than fifteen bytes", "fill")]
    assert fork.items(np.concatenate(handles)).tolist() == expected


def test_items_may_be_sequences():
    generic = DataType.from_typestr("|O", "json2")[0]
    assert as_items([1, 2], generic, ()).tolist() == [1, 2]
    assert as_items([1, 2], generic, ()).shape == ()
    assert as_items([[1, 2], [3, 4]], generic, (2,)).tolist() == [[1, 2], [3, 4]]
    assert as_items([[1, 2], [3, 4]], generic, (2, 2)).shape == (2, 2)
    assert as_items(5, generic, (3,)).tolist() == 5
    assert single([1, 2])[()] == [1, 2]
