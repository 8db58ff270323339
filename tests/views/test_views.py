"""Views of arrays: what is read and when, writing through them, and what they are to other libraries."""

from __future__ import annotations

import asyncio
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import zstore
from zstore.errors import NotFoundError, SelectionError, UnsupportedError
from zstore.nodes.array import Array, join_array
from zstore.storage.memory import MemoryStore

DATA = np.arange(7 * 5 * 9).reshape(7, 5, 9)


@pytest.fixture
def array(tmp_path: Path) -> zstore.Array:
    return zstore.create_array(tmp_path / "a.zarr", data=DATA, chunks=(3, 2, 4))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The reads of stored arrays: the path of each, and how many selections it has."""
    made: list[tuple[str, int]] = []
    real = Array.read_many_with

    async def read(self: Array, scheduler: Any, selections: Any, **options: Any) -> Any:
        made.append((self.path, len(selections)))
        return await real(self, scheduler, selections, **options)

    def join(others: Any, array: Array, *given: Any) -> bool:
        joins = join_array(others, array, *given)
        made.extend([(array.path, 1)] * joins)
        return joins

    monkeypatch.setattr(Array, "read_many_with", read)
    monkeypatch.setattr("zstore.views.plan.join_array", join)
    return made


def test_nothing_is_read_until_it_is_wanted(array: zstore.Array, reads: list[Any]) -> None:
    view = array.lazy[1:6][:, ::-1, 2:]
    narrower = view[2, :, 1:3]
    assert reads == [] and narrower.shape == (5, 2)
    np.testing.assert_array_equal(np.asarray(narrower), DATA[1:6][:, ::-1, 2:][2, :, 1:3])
    assert len(reads) == 1


def test_sources_without_items_in_the_selection_are_left_alone(tmp_path: Path, reads: list[Any]) -> None:
    group = zstore.create_group(tmp_path)
    days = [group.create_array(f"{n}", data=DATA[n], chunks=(2, 4)) for n in range(7)]
    stack = zstore.stack(days)
    np.testing.assert_array_equal(stack[2:4, 1:].read(), DATA[2:4, 1:])
    assert sorted(reads) == [("2", 1), ("3", 1)]
    np.testing.assert_array_equal(stack[::-3, ::-1].read(), DATA[::-3, ::-1])
    np.testing.assert_array_equal(zstore.concat(days, 1)[3, 10:20].read(), np.concatenate(DATA, 1)[3, 10:20])


def test_a_source_that_is_named_twice_is_read_once(array: zstore.Array, reads: list[Any]) -> None:
    red, infrared = zstore.view(array)[0], array.lazy[1]
    index = (infrared - red) / (infrared + red + 1.0)
    np.testing.assert_array_equal(index.read(), (DATA[1] - DATA[0]) / (DATA[1] + DATA[0] + 1.0))
    assert reads == [("", 2)]  # two selections of one array, together


def test_memory_is_bounded_by_blocks(array: zstore.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zstore.views.plan.BLOCK_SIZE", 3 * 2 * 4 * 8)
    blocks: list[tuple[int, ...]] = []

    def double(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        blocks.append(block.shape)
        return block * 2

    np.testing.assert_array_equal(array.lazy.map(double, dtype=DATA.dtype).read(), DATA * 2)
    assert len(blocks) == 3 * 3 * 3 and max(blocks) == (3, 2, 4)  # the chunks
    with pytest.raises(ValueError, match=r"of shape \(1,\) of a block of \(3, 2, 4\); expected the same"):
        array.lazy.map(lambda block: block.ravel()[:1], dtype="i8").read()


def test_a_sum_of_many_arrays_holds_few_of_them() -> None:
    group = zstore.create_group(MemoryStore())
    shape = {"shape": (512, 1024), "chunks": (256, 1024), "dtype": "f4"}
    arrays = [group.create_array(f"{n}", fill_value=n, **shape) for n in range(100)]
    total = sum((array.lazy for array in arrays[1:]), start=arrays[0].lazy)
    out = np.empty(total.shape, total.dtype)
    tracemalloc.start()
    try:
        total.read(..., out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (out == 99 * 50).all()
    assert peak < 40 << 20  # of 200 MiB


def test_new_axes(array: zstore.Array) -> None:
    view = array.lazy[None, 2, ..., None]
    assert view.shape == (1, 5, 9, 1)
    assert view[0, ..., 0].shape == (5, 9)
    np.testing.assert_array_equal(np.asarray(view[:, 1:3]), DATA[None, 2, ..., None][:, 1:3])
    assert view[:0].read().shape == (0, 5, 9, 1)
    with pytest.raises(SelectionError, match="out of bounds"):
        view[1]


@pytest.mark.parametrize("selection", [1.5, "x", (0, 0, 0, 0), 7, (..., 0, ...), ([0, 1], [0, 1, 2])])
def test_a_selection_that_does_not_fit(array: zstore.Array, selection: Any) -> None:
    with pytest.raises(SelectionError):
        array.lazy[selection]


@settings(max_examples=40)
@given(st.data())
def test_writing_through_views(data: st.DataObject) -> None:
    expected = [DATA.copy(), DATA + 1000, DATA + 2000]
    arrays = [zstore.create_array(MemoryStore(), data=one, chunks=(3, 2, 4)) for one in expected[:2]]
    sources = [*arrays, expected[2].copy()]
    axis = data.draw(st.integers(0, 3))
    joined = zstore.stack(sources, axis) if axis < 3 else zstore.concat(sources, 1)
    every = np.stack(expected, axis) if axis < 3 else np.concatenate(expected, 1)
    order = data.draw(st.permutations(range(every.ndim)))
    view, there = joined.transpose(order), every.transpose(order)
    selection = data.draw(hnp.basic_indices(there.shape, allow_newaxis=True))
    if data.draw(st.booleans()):
        number = st.integers(0, there.shape[0] - 1)
        selection = data.draw(st.lists(number, unique=True)), slice(None, None, -2)
    value = np.arange(there[selection].size).reshape(there[selection].shape) - 9999
    if data.draw(st.booleans()):
        view[selection] = value
    else:
        asyncio.run(view.write_async(selection, value))
    there[selection] = value
    np.testing.assert_array_equal(joined.read(), every)


def test_steps_that_cannot_be_inverted_are_not_written_through(array: zstore.Array) -> None:
    view = array.lazy
    for one, name in [
        (view + 1, "add"),
        (view.astype("f4"), "astype"),
        (zstore.overlay([view, view]), "overlay"),
        (zstore.concat([view, np.zeros(DATA.shape)]), "astype"),
        (np.broadcast_to(view, (2, 7, 5, 9)), "repeats items"),
    ]:
        with pytest.raises(UnsupportedError, match=name):
            one[...] = 0
    with pytest.raises(UnsupportedError, match=r"add .*no out"):
        view += 1
    with pytest.raises(SelectionError, match="could not broadcast"):
        view[0] = np.zeros((3, 3))
    np.testing.assert_array_equal(array[...], DATA)


def test_into_memory_that_is_there(array: zstore.Array) -> None:
    out = np.empty((2, 5, 9), DATA.dtype)
    assert array.lazy[2:4].read(out=out) is out
    np.testing.assert_array_equal(out, DATA[2:4])
    for wrong in (np.empty((2, 5, 8), DATA.dtype), np.empty((2, 5, 9), "f4")):
        with pytest.raises(ValueError, match="out has shape"):
            array.lazy[2:4].read(out=wrong)


def test_views_are_arrays_to_others(array: zstore.Array) -> None:
    view = array.lazy[2:4, 0]
    assert len(view) == 2 and view.dtype == array.dtype and view.nbytes == 2 * 9 * 8
    assert np.asarray(view, "f4").dtype == np.dtype("f4")
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(view, copy=False)
    np.testing.assert_array_equal(np.asarray(np.add(view, 1)), DATA[2:4, 0] + 1)
    # numpy's other functions, and reductions, take the items.
    assert (
        np.median(view) == np.median(DATA[2:4, 0])
        and np.add.reduce(view).tolist() == DATA[2:4, 0].sum(0).tolist()
    )
    assert (np.shape(view), np.ndim(view), np.size(view)) == ((2, 9), 2, 18)
    again = pickle.loads(pickle.dumps(view * 2 + np.float32(1)))
    np.testing.assert_array_equal(again.read(), DATA[2:4, 0] * 2 + np.float32(1))
    assert "shape=(2, 9)" in repr(view) and view.sources == [array]
    with pytest.raises(TypeError, match="0-d"):
        len(array.lazy[0, 0, 0])
    with pytest.raises(TypeError, match="0-d"):
        iter(array.lazy[0, 0, 0])
    assert [row.read().tolist() for row in view] == DATA[2:4, 0].tolist()
    assert np.asarray(array.lazy[0, 0, 1]) == DATA[0, 0, 1]
    with pytest.raises(UnsupportedError, match="matmul makes items from several places"):
        view @ view.T
    with pytest.raises(TypeError, match="nothing to view"):
        zstore.view(object())


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.divmod(a, 4)[0],
        lambda a: np.divmod(a, 4)[1],
        lambda a: np.clip(a, 3, None),
        lambda a: np.where(a % 2 == 0, a, -1.5),
        lambda a: np.where(True, 7, a),
        lambda a: np.isin(a, [3, 8, 9]),
        lambda a: np.round(a / 7, 2),
        lambda a: (a.astype("u2") & 0b1010) == 0,
        lambda a: np.swapaxes(a, 0, -1),
        lambda a: np.expand_dims(a, (0, 2)),
        lambda a: np.squeeze(a[:1]),
        lambda a: np.flip(a, 1),
        lambda a: np.concatenate([a, a + 0.5], axis=2),
        lambda a: np.add(a, [[1], [2], [3], [4], [5]]),
        lambda a: np.add(a, 1, dtype="f4"),
        lambda a: -abs(2**a[0] - a.T[:, :, :1]),
    ],
)  # fmt: skip
def test_functions_of_numpy_make_views(array: zstore.Array, function: Any) -> None:
    made, expected = function(array.lazy), function(DATA)
    assert isinstance(made, zstore.View) and made.dtype == expected.dtype
    np.testing.assert_array_equal(made.read(), expected)


def test_functions_that_make_no_view_are_numpys_of_the_items(array: zstore.Array) -> None:
    view = array.lazy
    for found, expected in [
        (np.where(view % 5 == 0), np.where(DATA % 5 == 0)),
        (np.clip(view, 3, 9, out=np.zeros_like(DATA)), DATA.clip(3, 9)),
        (np.nan_to_num(view / 2, copy=False), DATA / 2),
        (np.isin([3, -3], view), [True, False]),
    ]:
        assert not isinstance(found, zstore.View)
        np.testing.assert_array_equal(found, expected)
    one, last = view[0, 1, 2], DATA[0, 1, 2]
    assert (bool(one), int(one), float(one), complex(one)) == (bool(last), last, last, last)
    assert bool(view[0, 0, :1] == DATA[0, 0, 0]) and 3 in view and -3 not in view
    for kind, word in ((bool, "truth value"), (int, "an integer"), (float, "a float")):
        with pytest.raises(ValueError, match=rf"{word} of a view of shape \({len(view)}, .* ambiguous"):
            kind(view)


def test_depth_and_breadth(array: zstore.Array) -> None:
    view, expected = array.lazy, DATA
    for number in range(200):
        view, expected = [
            (view[::-1], expected[::-1]),
            (view + 1, expected + 1),
            (zstore.concat([view[:3], view[3:]]), expected),
            (view.T.T, expected),
        ][number % 4]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(view)).read(), expected)
    total = sum((array.lazy[n % 7] for n in range(2000)), start=array.lazy[0])
    np.testing.assert_array_equal(total.read(), sum((DATA[n % 7] for n in range(2000)), start=DATA[0]))


def test_numbers_are_unpacked(tmp_path: Path) -> None:
    packed = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -1, "_Unsigned": "true"}
    array = zstore.create_array(tmp_path, data=np.array([0, 3, -1, -2], "i1"), attributes=packed)
    np.testing.assert_array_equal(zstore.unpack(array).read(), [10, 11.5, np.nan, 137])
    assert zstore.unpack(array, dtype="f4").dtype == np.float32
    np.testing.assert_array_equal(array.lazy.scale(2, 1, nodata=[3, -1]).read(), [1, np.nan, np.nan, -3])
    plain = zstore.create_array(MemoryStore(), data=DATA)
    assert zstore.unpack(plain).dtype == DATA.dtype
    with pytest.raises(UnsupportedError, match="no attributes to unpack by"):
        zstore.unpack(array.lazy)
    with pytest.raises(UnsupportedError, match="not scaled to int64"):
        array.lazy.scale(2, dtype="i8")


def test_overlays(tmp_path: Path, reads: list[Any]) -> None:
    one = zstore.create_array(tmp_path / "1", data=np.array([[1, 2], [0, 4]], "u1"))
    other = zstore.create_array(tmp_path / "2", data=np.array([[9, 0], [0, 8]], "u1"))
    at = [(0, 0), (1, 1)]
    last = zstore.overlay([one, other], at, nodata=0)
    assert last.read().tolist() == [[1, 2, 0], [0, 9, 0], [0, 0, 8]]
    assert zstore.overlay([one, other], at, nodata=0, first=True).read().tolist()[1] == [0, 4, 0]
    del reads[:]
    assert last[:1].read().tolist() == [[1, 2, 0]] and len(reads) == 1
    assert last[[2, 0], [2, 1]].read().tolist() == [8, 2]
    # What is seen of others alone is not read.
    whole = zstore.create_array(tmp_path / "3", data=np.full((2, 2), 5, "u1"))
    del reads[:]
    assert zstore.overlay([one, whole, other], nodata=0).read().tolist() == [[9, 5], [5, 8]]
    assert zstore.overlay([one, whole, other], nodata=0)[[0, 1], [0, 1]].read().tolist() == [9, 8]
    assert len(reads) == 2 + 1
    with pytest.raises(ValueError, match="out of the shape"):
        zstore.overlay([one, other], at, shape=(2, 3), nodata=0)
    with pytest.raises(ValueError, match="expected a fill_value"):
        zstore.overlay([one, other], at)
    # Sources that touch lie in the result at once.
    tiles = zstore.overlay([one, other], [(0, 0), (0, 2)], nodata=0)
    assert tiles.read().tolist() == [[1, 2, 9, 0], [0, 4, 0, 8]]
    times = np.array(["2020-01-01", "NaT"], "M8[D]")
    made = zstore.overlay([np.array(["2019-01-01"] * 2, "M8[D]"), times]).read()
    assert made.tolist() == np.array(["2020-01-01", "2019-01-01"], "M8[D]").tolist()


def test_what_cannot_be_joined() -> None:
    for join in (zstore.concat, zstore.stack, zstore.overlay):
        with pytest.raises(ValueError, match="no sources"):
            join([])
    with pytest.raises(ValueError, match=r"source 1 has shape \(3, 2\)"):
        zstore.concat([np.zeros((2, 3)), np.zeros((3, 2))])
    with pytest.raises(ValueError, match=r"source 1 has shape \(3, 2\)"):
        zstore.stack([np.zeros((2, 3)), np.zeros((3, 2))])
    with pytest.raises(np.exceptions.AxisError):
        zstore.concat([np.zeros(3)], axis=1)
    assert zstore.concat([np.zeros((0, 3)), np.ones((2, 3), ">i4")]).read().tolist() == [[1.0] * 3] * 2


def test_chunks_that_are_missing_are_errors_where_asked(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path, shape=(4,), dtype="i4", chunks=(2,))
    strict = zstore.open_array(tmp_path, missing="error")
    array[:2] = 1
    view = zstore.concat([array, strict])
    assert view.read(missing="fill").tolist() == [1, 1, 0, 0] * 2
    for read in (view.read, view[4:].read, (view + 1).read, lambda: view[:4].read(missing="error")):
        with pytest.raises(NotFoundError, match="chunk"):
            read()


def test_awaited_reads(array: zstore.Array) -> None:
    async def read() -> list[Any]:
        views = [array.lazy[n] * 2 for n in range(7)]
        return await asyncio.gather(*(view.read_async() for view in views))

    np.testing.assert_array_equal(asyncio.run(read()), DATA * 2)


def test_warnings_of_numpy_are_the_callers(array: zstore.Array) -> None:
    ratio = array.lazy / array.lazy
    with np.errstate(invalid="ignore"):
        assert np.isnan(ratio.read()[0, 0, 0])
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        ratio.read()


def test_an_array_that_is_resized_meanwhile(array: zstore.Array) -> None:
    view, later = array.lazy[3:], array.lazy[:, :, ::-1] * 2
    array.resize((9, 5, 9))
    np.testing.assert_array_equal(view.read(), DATA[3:])
    array.resize((5, 5, 9))
    for read in (view.read, later.read, lambda: view.__setitem__(..., 0)):
        with pytest.raises(
            SelectionError, match=r"index 6 is out of bounds for axis 0 with size 5 .*a\.zarr"
        ):
            read()
    np.testing.assert_array_equal(view[:2].read(), DATA[3:5])


def test_an_array_viewed_as_another_type_is_another_source(array: zstore.Array) -> None:
    unsigned = array.viewed_as("u8").lazy
    view = zstore.concat(
        [array.lazy - 400 == unsigned - np.uint64(400), array.lazy < unsigned + np.uint64(1)]
    )
    np.testing.assert_array_equal(view.read()[7:], DATA >= 0)
    assert zstore.stack([array.lazy, unsigned.astype("i8")]).read().tolist() == [DATA.tolist()] * 2


def test_names_from_a_store_are_shown_with_escapes_escaped(tmp_path: Path) -> None:
    name = "red\x1b[31m"
    array = zstore.create_array(tmp_path, name, shape=1, dtype="u1")
    assert "\x1b" not in repr(array.lazy[:]) and "\\x1b[31m" in repr(array.lazy[:])


def test_items_read_are_anybodys_buffer(array: zstore.Array) -> None:
    items = array[2:4]
    assert memoryview(items).nbytes == items.nbytes
    np.testing.assert_array_equal(np.from_dlpack(items), DATA[2:4])
    assert np.asarray(array).shape == array.shape
    assert np.asarray(array, copy=True) is not np.asarray(array)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(array, copy=False)


def test_arrays_in_memory_do_not_pickle_and_say_why() -> None:
    array = zstore.create_array(MemoryStore(), data=DATA)
    for one in (array, array.lazy[1:]):
        with pytest.raises(zstore.errors.StoreError, match="cannot be pickled"):
            pickle.dumps(one)
