"""Fields of structured arrays: names in selections."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.errors import CodecError, SelectionError
from zstore.indexing.select import split_fields
from zstore.storage.memory import MemoryStore

PIXEL = np.dtype([("r", "u1"), ("g", "<f4"), ("at", "<i2", (2,))])


@pytest.fixture
def array():
    made = zstore.create_array(
        MemoryStore(), "a", shape=(4, 5), chunks=(3, 3), dtype=PIXEL, zarr_format=2, compressors=None
    )
    items = np.zeros((4, 5), PIXEL)
    items["r"] = np.arange(20).reshape(4, 5)
    items["g"] = items["r"] / 2
    items["at"][..., 1] = items["r"]
    made[...] = items
    return made


@pytest.mark.parametrize(
    ("selection", "fields", "rest"),
    [
        ("r", "r", ...),
        (("r",), "r", ...),
        (["r"], ("r",), ...),
        (["r", "g"], ("r", "g"), ...),
        (("r", "g"), ("r", "g"), ...),
        (("r", 0), "r", (0,)),
        ((slice(2), "r", 1), "r", (slice(2), 1)),
        ((["g", "r"], [0, 1]), ("g", "r"), ([0, 1],)),
        (("r", ...), "r", (...,)),
        ((0, [1, 2]), None, (0, [1, 2])),
        ([], None, []),
    ],
)
def test_names_are_told_from_other_entries(selection, fields, rest):
    assert split_fields(selection, PIXEL) == (fields, rest)


@pytest.mark.parametrize("selection", ["x", ["r", "x"], ("r", "r"), ["r", "r"], (0, "")])
def test_names_that_are_not_there(array, selection):
    with pytest.raises(SelectionError, match="field"):
        array[selection]
    with pytest.raises(SelectionError, match="field"):
        array[selection] = 0


def test_arrays_without_fields_say_so():
    plain = zstore.create_array(MemoryStore(), "a", shape=(2,), dtype="i4")
    with pytest.raises(SelectionError, match="'r' is not there; items of int32 have no fields"):
        plain["r"]


def test_every_way_to_select(array):
    items = array[...]
    assert array["r"].flags.c_contiguous
    assert array["r"].tolist() == items["r"].tolist()
    assert array["r"][1:, 0].tolist() == items["r"][1:, 0].tolist()
    assert array["r", 1:, 0].tolist() == items["r"][1:, 0].tolist()
    assert array["r", 3, 4] == 19
    assert isinstance(array["r", 3, 4], np.uint8)
    assert array["at", 3, 4].tolist() == [0, 19]
    assert array[["r", "g"]].dtype == np.dtype([("r", "u1"), ("g", "<f4")])
    assert array["r", [0, 3], [1, 2]].tolist() == [1, 17]
    assert array.oindex["r", [0, 3], [1, 2]].tolist() == [[1, 2], [16, 17]]
    assert array.vindex["r", [0, 3], [1, 2]].tolist() == [1, 17]
    assert array.blocks["r", 1, 1].tolist() == [[18, 19]]
    assert array.read("g").dtype == np.float32
    out = np.zeros((4, 10), "u1")[:, ::2]
    assert array.read("r", out=out) is out
    assert out.tolist() == items["r"].tolist()
    with pytest.raises(ValueError, match="dtype"):
        array.read("g", out=out)


def test_every_way_to_assign(array):
    items = array[...]
    array["r"] = items["r"] = 7
    array["g", 1:3, ::2] = items["g"][1:3, ::2] = [[1.5, 2.5, 3.5]]
    array["at", :, 0] = items["at"][:, 0] = [8, 9]
    array.oindex["r", [0, 3], [1]] = 1
    items["r"][np.ix_([0, 3], [1])] = 1
    array.vindex["r", [0, 3], [2, 4]] = items["r"][[0, 3], [2, 4]] = [3, 4]
    array[["g", "r"], 2, 2] = (0.25, 9)
    items["g"][2, 2], items["r"][2, 2] = 0.25, 9
    array.blocks["r", 1, 1] = items["r"][3:, 3:] = 5
    assert array[...].tobytes() == items.tobytes()
    with pytest.raises(SelectionError, match="broadcast"):
        array["r", :2] = [1, 2, 3]
    assert array[...].tobytes() == items.tobytes()


def test_a_chunk_that_comes_to_hold_the_fill_value_alone_goes(array):
    store = array.store
    assert store.get("a/1.1") is not None
    for name in PIXEL.names:
        array[name, 3:, 3:] = 0
    assert store.get("a/1.1") is None


def test_other_fields_are_never_lost(array):
    array.store.put("a/1.1", b"damaged")
    with pytest.raises(CodecError, match=r"a/1\.1"):
        array["r"] = 5
    with pytest.raises(CodecError, match=r"a/1\.1"):
        array.blocks["r", 1, 1] = 5
