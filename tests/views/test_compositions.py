"""Random compositions of views have the items of the same compositions of numpy's arrays."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import zstore
from zstore.storage.memory import MemoryStore

Items = np.ndarray[Any, Any]
NUMBERS = count()
DTYPES = ["u1", "i2", ">i4", "f4", ">f8", "i8", "?"]
FUNCTIONS: list[Callable[..., Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    np.maximum,
    np.hypot,
    operator.le,
    lambda a, b: np.where(a > b, a, b),
    lambda a, b: np.clip(a, b, 100),
    lambda a, b: np.isin(a, [1, 2, 3]) | (b == 5),
]


def stored(items: Items, draw: Callable[[Any], Any], place: Path) -> Any:
    """A source with these items: a stored array of any layout, or the items themselves."""
    kinds = ["regular", "sharded", "rectilinear", "files", "files", "distant", "memory", "boxes"]
    kind = draw(st.sampled_from(kinds))
    if kind == "memory":
        return items
    chunks = tuple(draw(st.integers(1, max(length, 1))) for length in items.shape)
    options: dict[str, Any] = {"chunks": chunks}
    if kind == "sharded":
        options["shards"] = tuple(side * draw(st.integers(1, 2)) for side in chunks)
    if kind == "rectilinear" and items.ndim:
        options["chunks"] = [
            [draw(st.integers(1, 2)), max(length, 1)] if length > 1 else [max(length, 1)]
            for length in items.shape
        ]
    if kind == "files":
        # Large chunks, as each is a file; some arrays have one form, and some are shards.
        options = {"chunks": tuple(max(length // 2, 1) for length in items.shape)}
        options |= draw(st.sampled_from([{}, {"shards": tuple(2 * side for side in options["chunks"])}]))
        options["compressors"] = draw(st.sampled_from([None, "zstd", "blosc"]))
    array = zstore.create_array(
        Distant() if kind == "distant" else place / f"{next(NUMBERS)}" if kind == "files" else MemoryStore(),
        shape=items.shape,
        dtype=items.dtype,
        fill_value=draw(st.sampled_from([0, 1])),
        dimension_names=None,
        **options,
    )
    # What is the fill value is not stored.
    array[...] = items
    if kind == "boxes":
        return zstore.view(array) if draw(st.booleans()) else Sliced(items)
    return array


class Distant(MemoryStore):
    """A store that is read as one that waits for a server."""

    in_memory, request_count = False, 32


class Sliced:
    """The array of another library, which gives items by slices only."""

    def __init__(self, items: Items) -> None:
        self.items, self.shape, self.dtype = items, items.shape, items.dtype

    def __getitem__(self, box: Any) -> Items:
        assert all(isinstance(side, slice) for side in box)
        return self.items[box]


@st.composite
def pairs(draw: st.DrawFn, place: Path, depth: int = 3) -> tuple[Any, Items]:
    """A view, and the items that numpy makes of the same sources by the same steps."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
    number = draw(st.integers(1, 3))
    views, arrays = [], []
    for _ in range(number):
        dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        items = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 7, shape).astype(dtype)
        views.append(zstore.view(stored(items, draw, place)))
        arrays.append(items)
    view, expected = views[0], arrays[0]
    for _ in range(draw(st.integers(0, depth))):
        step = draw(st.sampled_from(STEPS))
        other = draw(st.integers(0, number - 1))
        view, expected = step(draw, view, expected, views[other], arrays[other])
        note(f"{step.__name__}, {other}: {view} for {expected.shape} {expected.dtype}")
        if expected.size > 5000 or expected.ndim > 6:
            break
    return view, np.asarray(expected)


def by_selection(draw: Any, view: Any, items: Items, *_: Any) -> tuple[Any, Items]:
    selection = draw(hnp.basic_indices(items.shape, allow_newaxis=True, max_dims=5))
    return view[selection], np.asarray(items[selection])


def by_arrays(draw: Any, view: Any, items: Items, *_: Any) -> tuple[Any, Items]:
    if not items.ndim or 0 in items.shape:
        return view, items
    selectors: list[Any] = []
    together = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4))
    kind = draw(st.sampled_from(["numpy", "outer", "points", "mask"]))
    if kind == "mask":
        mask = draw(hnp.arrays(bool, items.shape[: draw(st.integers(1, items.ndim))]))
        return view[mask], items[mask]
    for length in items.shape:
        number = st.integers(-length, length - 1)
        if kind == "outer":
            selectors.append(draw(st.lists(number, max_size=5)))
        elif kind == "numpy" and draw(st.booleans()):
            selectors.append(draw(st.one_of(st.slices(length), number)))
        else:
            sides = tuple(draw(st.sampled_from([side, 1])) for side in together)
            selectors.append(draw(hnp.arrays(np.int64, sides, elements=number)))
    if kind == "outer":
        return view.oindex[tuple(selectors)], items[np.ix_(*(np.array(one, np.int64) for one in selectors))]
    chosen = view.vindex[tuple(selectors)] if kind == "points" else view[tuple(selectors)]
    return chosen, np.asarray(items[tuple(selectors)])


def by_axes(draw: Any, view: Any, items: Items, *_: Any) -> tuple[Any, Items]:
    order = draw(st.permutations(range(items.ndim)))
    if draw(st.booleans()):
        return view.T, items.T
    if items.ndim and draw(st.booleans()):
        return np.moveaxis(view, 0, -1), np.moveaxis(items, 0, -1)
    return view.transpose(order), items.transpose(order)


def by_concat(draw: Any, view: Any, items: Items, other: Any, others: Items) -> tuple[Any, Items]:
    if items.shape != others.shape:
        other, others = view, items
    if not items.ndim:
        return view, items
    axis = draw(st.integers(-items.ndim, items.ndim - 1))
    half = slice(None, draw(st.integers(0, 3)))
    some = (slice(None),) * (axis % items.ndim) + (half,)
    return (
        zstore.concat([view, other[some], view], axis),
        np.concatenate([items, others[some], items], axis),
    )


def by_stack(draw: Any, view: Any, items: Items, other: Any, others: Items) -> tuple[Any, Items]:
    if items.shape != others.shape:
        other, others = view, items
    axis = draw(st.integers(-items.ndim - 1, items.ndim))
    return np.stack([other, view], axis), np.stack([others, items], axis)


def by_function(draw: Any, view: Any, items: Items, other: Any, others: Items) -> tuple[Any, Items]:
    try:
        np.broadcast_shapes(items.shape, others.shape)
    except ValueError:
        other, others = view, items
    if draw(st.integers(0, 3)) == 0:
        other = others = draw(st.sampled_from([2, 3.5, True, np.float32(1.5), np.arange(1)]))
    function = draw(st.sampled_from(FUNCTIONS))
    try:
        expected = function(items, others)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            np.asarray(function(view, other))
        return view, items
    return function(view, other), expected


def by_cast(draw: Any, view: Any, items: Items, *_: Any) -> tuple[Any, Items]:
    dtype = draw(st.sampled_from(["f8", ">f4", "i8", "c16"]))
    if items.dtype.kind == "c":
        return view.astype("c8"), items.astype("c8")
    return view.astype(dtype), items.astype(dtype)


def by_overlay(draw: Any, view: Any, items: Items, other: Any, others: Items) -> tuple[Any, Items]:
    if items.ndim != others.ndim or items.dtype.kind not in "iuf" or others.dtype.kind not in "iuf":
        other, others = view, items
    if items.dtype.kind not in "iuf":
        return view, items
    at = [[draw(st.integers(0, 3)) for _ in items.shape] for _ in range(2)]
    is_first = draw(st.booleans())
    nodata = draw(st.sampled_from([None, 1]))
    made = zstore.overlay([view, other], at, nodata=nodata, fill_value=9, first=is_first)
    dtype = np.result_type(items, others)
    expected = np.full(made.shape, 9, dtype)
    sources = [(at[0], items), (at[1], others)]
    for start, one in reversed(sources) if is_first else sources:
        place = tuple(slice(begin, begin + length) for begin, length in zip(start, one.shape, strict=True))
        valid = one == one if nodata is None else one != nodata
        expected[place] = np.where(valid, one.astype(dtype), expected[place])
    return made, expected


def by_map(draw: Any, view: Any, items: Items, *_: Any) -> tuple[Any, Items]:
    if items.dtype.kind not in "iuf":
        return view, items
    expected = doubled(items)
    return view.map(doubled, dtype=expected.dtype), expected


def doubled(block: Items) -> Items:
    return block * 2.0


STEPS: list[Callable[..., tuple[Any, Items]]] = [
    by_selection,
    by_selection,
    by_arrays,
    by_axes,
    by_concat,
    by_stack,
    by_function,
    by_function,
    by_cast,
    by_overlay,
    by_map,
]


def check(view: Any, expected: Items, draw: Callable[[Any], Any]) -> None:
    """Compare a view with numpy's items: whole, in part, into other memory, pickled, and in small blocks."""
    assert view.shape == expected.shape
    assert view.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(np.asarray(view), expected)
    selection = draw(hnp.basic_indices(expected.shape))
    out = np.empty(np.shape(expected[selection])[::-1], view.dtype).T
    assert view.read(selection, out) is out
    np.testing.assert_array_equal(out, expected[selection])
    if draw(st.booleans()):
        np.testing.assert_array_equal(asyncio.run(view.read_async(selection)), expected[selection])
    if find_spec("dask") and draw(st.integers(0, 9)) == 0:
        lazily = zstore.to_dask(view)[selection]
        np.testing.assert_array_equal(np.asarray(lazily.compute(scheduler="sync")), expected[selection])
    both = view.read_many([..., selection])
    np.testing.assert_array_equal(both[0], expected)
    np.testing.assert_array_equal(both[1], expected[selection])
    grid = view.grid
    assert grid.count(view.shape) == tuple(map(len, view.write_chunk_sizes))
    assert tuple(map(sum, view.write_chunk_sizes)) == view.shape


@contextmanager
def sometimes_in_small_parts(data: st.DataObject, size: int) -> Iterator[None]:
    """Blocks, and batches of reads, of so few bytes that views have several; or as they are."""
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            for name in ("views.plan.BLOCK_SIZE", "views.plan.BATCH_SIZE", "engine.chunks.JOINED_SIZE"):
                patch.setattr(f"zstore.{name}", size)
        yield


@settings(max_examples=150)
@given(st.data())
def test_compositions_are_numpys(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        view, expected = data.draw(pairs(Path(place)))
        with sometimes_in_small_parts(data, 16):
            check(view, expected, data.draw)


@pytest.mark.filterwarnings("ignore:All-NaN", "ignore:Mean of empty")
@pytest.mark.parametrize("dtype", ["f4", ">f8", "i2", "u1", "?"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reduced", [np.nanmin, np.nanmax, np.nanmean, np.nanmedian])
def test_reductions_that_leave_nan_out_are_numpys(reduced: Any, axis: int, dtype: str) -> None:
    """Also at places without a number."""
    items = np.random.default_rng(1).integers(0, 100, (5, 6, 7)).astype(dtype)
    if items.dtype.kind == "f":
        items[items < 40] = np.nan
        items[:, 2, 3] = items[1, :, 4] = items[2, 5] = np.nan
    array = zstore.create_array(MemoryStore(), data=items, chunks=(2, 3, 7))
    found, expected = reduced(array.lazy, axis=axis), reduced(items, axis=axis)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found.read(), expected, rtol=1e-6)


@pytest.mark.slow
@settings(max_examples=20_000)
@given(st.data())
def test_many_deep_compositions_are_numpys(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        view, expected = data.draw(pairs(Path(place), depth=7))
        with sometimes_in_small_parts(data, 64):
            check(view, expected, data.draw)
