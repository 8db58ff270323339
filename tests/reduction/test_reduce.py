"""Reductions beside numpy's, whatever the shape, the chunks, the types, what is left out, and the threads."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import (
    ChangedError,
    CodecError,
    MetadataError,
    NotFoundError,
    ReadingWarning,
    StoreError,
    UnsupportedError,
)
from zstore.jobs.reduction import methods, plan, reduce
from zstore.jobs.source import MADE
from zstore.model.packing import render_nodata
from zstore.storage.memory import MemoryStore

INTEGERS = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
METHODS = ("sum", "mean", "min", "max", "var", "std", "any", "all", "argmin", "argmax", "count")
# How far a result may be from numpy's float64 one, in units of the last place of: the sum of all magnitudes
# (of sums), the greatest magnitude (means), its square (variances). Most of it is numpy's.
ULPS = 64


@pytest.fixture(autouse=True)
def _plain_numpy():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def make(values: np.ndarray, chunks=None, shards=None, **options) -> zstore.Array:
    cut = {"chunks": chunks} if chunks is not None else {}
    array = zstore.create_array(
        MemoryStore(), shape=values.shape, dtype=values.dtype, shards=shards, **cut, **options
    )
    if values.size:
        array[...] = values
    return array


@st.composite
def arrays(draw, dtypes=INTEGERS + FLOATS, least=0):
    """(values, chunks, shards): small arrays cut anyhow, ordinary numbers and edges of the type together."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 7, 19]), max_size=3)))
    shape = shape if draw(st.integers(0, 9)) else (*shape, least)
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = draw(st.booleans())
        few = min(int(limits.max), 1000)
        values = rng.integers(max(int(limits.min), -few), few, shape, dtype, endpoint=True)
        if whole:
            values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            values //= dtype.type(max(1, values.size)) if dtype.itemsize == 8 else dtype.type(1)
    elif dtype.kind == "b":
        values = rng.random(shape) < 0.5
    else:
        values = rng.normal(3, 10, shape)
        values = np.asarray(values + 1j * rng.normal(0, 5, shape) if dtype.kind == "c" else values, dtype)
        values[rng.random(shape) < draw(st.sampled_from([0, 0.1, 0.6]))] = np.nan
    values = np.asarray(values, dtype)
    inner = tuple(draw(st.integers(1, max(1, n + 1))) for n in shape)
    shards = None
    if shape and draw(st.booleans()):
        shards = tuple(n * draw(st.integers(1, 3)) for n in inner)
    return values, inner, shards


@st.composite
def some_axes(draw, ndim: int):
    if ndim == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([None, ()]))
    found = draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True))
    found = [d - ndim if draw(st.booleans()) else d for d in found]
    return found[0] if len(found) == 1 and draw(st.booleans()) else tuple(found)


def expected(values: np.ndarray, method: str, axis, nodata=None, keepdims: bool = False):
    """What numpy makes of it, with what is left out masked."""
    if nodata is None and values.dtype.kind in "fc":
        hole = np.isnan(values)
    elif nodata is None or (isinstance(nodata, str) and nodata == "none"):
        hole = np.zeros(values.shape, bool)
    else:
        hole = values == nodata
    if method == "count":
        return np.sum(~hole, axis=axis, keepdims=keepdims)
    exact = values
    if method in ("mean", "var", "std", "sum") and values.dtype.kind in "fc":
        exact = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    if method == "sum":
        return np.sum(np.where(hole, exact.dtype.type(0), exact), axis=axis, keepdims=keepdims)
    if method in ("any", "all"):
        return getattr(np, method)(np.where(hole, method == "all", values != 0), axis=axis, keepdims=keepdims)
    if method in ("mean", "var", "std"):
        return getattr(np, method)(exact, axis=axis, where=~hole, keepdims=keepdims)
    raise AssertionError(method)


def close(made, wanted, method: str, values: np.ndarray) -> None:
    """See that a result is as near as the page says, once it is rounded to its type."""
    made, wanted = np.asarray(made), np.asarray(wanted)
    assert made.shape == wanted.shape
    sizes = np.nan_to_num(np.abs(values.astype(np.complex128)), posinf=0)
    most = {"sum": sizes.sum(), "mean": sizes.max(initial=1)}.get(method, sizes.max(initial=1) ** 2)
    rounding = np.finfo(made.dtype).eps
    if method == "std":
        made, wanted, rounding = made.astype(np.float64) ** 2, wanted**2, 4 * rounding
    else:
        wanted = wanted.astype(made.dtype)
    np.testing.assert_allclose(made, wanted, rtol=rounding, atol=np.finfo(np.float64).eps * ULPS * most)


@settings(max_examples=120)
@given(arrays(), st.data())
def test_numbers_are_reduced_as_numpy_does(drawn, data):
    values, chunks, shards = drawn
    axis = data.draw(some_axes(values.ndim))
    keepdims = data.draw(st.booleans())
    array = make(values, chunks, shards)
    for method in ("sum", "mean", "var", "std", "any", "all", "count"):
        made = array.reduce(method, axis, keepdims=keepdims)
        wanted = expected(values, method, axis, keepdims=keepdims)
        if method in ("mean", "var", "std") or (method == "sum" and values.dtype.kind == "f"):
            close(made, wanted, method, values)
            wanted = wanted.astype(values.dtype) if values.dtype.kind == "f" else wanted
        else:
            np.testing.assert_array_equal(made, wanted, err_msg=method)
        assert np.asarray(made).dtype == np.asarray(wanted).dtype


@settings(max_examples=80)
@given(arrays(least=1), st.data())
def test_extremes_are_numpys(drawn, data):
    values, chunks, shards = drawn
    axis = data.draw(some_axes(values.ndim))
    array = make(values, chunks, shards)
    for method in ("min", "max"):
        choose = {"min": np.fmin, "max": np.fmax}[method]
        np.testing.assert_array_equal(
            array.reduce(method, axis), choose.reduce(values, axis=axis), err_msg=method
        )
        plain = array.reduce(method, axis, nodata="none")
        np.testing.assert_array_equal(plain, getattr(np, method)(values, axis=axis), err_msg=method)
        assert np.asarray(plain).dtype == values.dtype
    if values.ndim == 0 or not (axis is None or isinstance(axis, int)):
        return
    for method in ("argmin", "argmax"):
        wanted = getattr(np, method)(values, axis=axis)
        np.testing.assert_array_equal(array.reduce(method, axis, nodata="none"), wanted, err_msg=method)
        if values.dtype.kind == "f":
            bound = np.inf if method == "argmin" else -np.inf
            filled = np.where(np.isnan(values), bound, values)
            wanted = np.where(np.isnan(values).all(axis), -1, getattr(np, method)(filled, axis=axis))
            np.testing.assert_array_equal(array.reduce(method, axis), wanted, err_msg=method)


@settings(max_examples=50)
@given(arrays(dtypes=("uint8", "int16", "uint32", "int64", "float16", "float32", "float64")), st.data())
def test_nodata_is_left_out(drawn, data):
    values, chunks, shards = drawn
    axis = data.draw(some_axes(values.ndim))
    rng = np.random.default_rng(1)
    hole = data.draw(st.sampled_from([0, 7]))
    values[rng.random(values.shape) < 0.4] = hole
    values = np.nan_to_num(values)
    array = make(values, chunks, shards)
    for method in ("sum", "mean", "any", "count"):
        made, wanted = array.reduce(method, axis, nodata=hole), expected(values, method, axis, hole)
        if method == "mean" or (method == "sum" and values.dtype.kind == "f"):
            close(made, wanted, method, values)
        else:
            np.testing.assert_array_equal(made, wanted, err_msg=method)
    masked = np.ma.masked_equal(values, hole)
    for method in ("min", "max"):
        if axis != () and values.size:
            wanted = np.ma.filled(getattr(masked, method)(axis=axis), hole)
            np.testing.assert_array_equal(array.reduce(method, axis, nodata=hole), wanted, err_msg=method)


@settings(max_examples=30)
@given(arrays(dtypes=COMPLEX), st.data())
def test_complex_numbers_have_sums_and_means(drawn, data):
    values, chunks, shards = drawn
    axis = data.draw(some_axes(values.ndim))
    array = make(values, chunks, shards)
    np.testing.assert_array_equal(array.reduce("count", axis), expected(values, "count", axis))
    for method in ("sum", "mean"):
        made = array.reduce(method, axis)
        close(made, expected(values, method, axis), method, values)
        assert np.asarray(made).dtype == values.dtype
    with pytest.raises(UnsupportedError, match="min of data type complex"):
        array.reduce("min")


@settings(max_examples=60)
@given(arrays(dtypes=("uint8", "int32", "uint64", "float32", "float64"), least=1), st.data())
def test_groups_are_what_their_items_alone_would_be(drawn, data):
    values, chunks, shards = drawn
    if not values.ndim:
        return
    axis = data.draw(some_axes(values.ndim).filter(lambda found: found != ()))
    order = range(values.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    order = [d % values.ndim for d in order]
    lengths = tuple(values.shape[d] for d in order)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    held = tuple(n if data.draw(st.booleans()) else 1 for n in lengths)
    labels = np.array([-5, 2, 2**40, 9])[rng.integers(0, 4, held)]
    array = make(values, chunks, shards)
    whole = np.broadcast_to(labels, lengths)
    axes = sorted(order)
    spread = np.broadcast_to(
        np.expand_dims(whole.transpose(np.argsort(order)), [d for d in range(values.ndim) if d not in axes]),
        values.shape,
    )
    names = np.unique(labels)
    for method in ("sum", "count", "max", "mean", "var", "argmin"):
        made = array.reduce(method, axis, groups=labels)
        assert made.shape[axes[0]] == len(names)
        for k, name in enumerate(names):
            part = made.take(k, axis=axes[0])
            within = spread == name
            valid = within if values.dtype.kind != "f" else within & ~np.isnan(values)
            if method == "count":
                np.testing.assert_array_equal(part, valid.sum(axis=tuple(axes)))
            elif method == "sum" and values.dtype.kind in "iu":
                np.testing.assert_array_equal(part, np.sum(values, axis=tuple(axes), where=within))
            elif method == "max":
                low = -np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).min
                wanted = np.where(valid, values, values.dtype.type(low)).max(axis=tuple(axes))
                wanted = (
                    np.where(valid.any(axis=tuple(axes)), wanted, np.nan)
                    if values.dtype.kind == "f"
                    else wanted
                )
                np.testing.assert_array_equal(part, wanted)
            elif method in ("mean", "var", "sum"):
                wanted = getattr(np, method)(values.astype(np.float64), axis=tuple(axes), where=valid)
                close(part, wanted, method, values)
            elif method == "argmin":
                moved = np.moveaxis(values, axes, range(-len(axes), 0)).reshape(*part.shape, -1)
                ok = np.moveaxis(valid, axes, range(-len(axes), 0)).reshape(*part.shape, -1)
                for at in np.ndindex(part.shape):
                    found = [n for n in range(moved.shape[-1]) if ok[(*at, n)]]
                    first = min(found, key=lambda n, at=at: (moved[(*at, n)], n), default=-1)
                    assert part[at] == first


def test_labels_that_are_nothing_make_no_group():
    array = make(np.arange(6.0), (2,))
    labels = np.array([1.0, np.nan, 0, 1, np.nan, 0])
    np.testing.assert_array_equal(array.reduce("sum", groups=labels), [7, 3])
    days = np.array(["2020-01", "2020-02", "NaT", "2020-01", "2020-02", "2020-02"], "M8[M]")
    np.testing.assert_array_equal(array.reduce("sum", groups=days), [3, 10])
    masked = np.ma.array([1, 2, 3, 1, 2, 3], mask=[0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(array.reduce("sum", groups=masked), [3, 7])
    np.testing.assert_array_equal(array.reduce("max", groups=list("abcabc")), [3, 4, 5])
    for one, two in ((1, 2), ("a", "b")):
        objects = np.array([two, np.nan, one, two, np.nan, one], object)
        np.testing.assert_array_equal(array.reduce("sum", groups=objects), [7, 3])


def boxes_of(course, unit):
    number, first, last = unit
    return course.boxes(course.patch(number), first, last)


def test_many_groups_of_large_maps_are_made_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(plan, "PATCH_LIMIT", 4 << 10)
    monkeypatch.setattr(plan, "BOX_SIZE", 1 << 10)
    values = np.random.default_rng(0).integers(0, 100, (24, 16, 16)).astype("u2")
    array = make(values, (1, 16, 16))
    months = np.arange(24) % 12
    course = reduce.plan_reduction(array, "mean", 0, groups=months).course
    assert len(course.group_spans) > 1
    boxes = [box for unit in course.units() for box in boxes_of(course, unit)]
    maps = [number for box in boxes for number in range(box[0].start, box[0].stop)]
    assert sorted(maps) == list(range(24)), "a map is read once"
    made = array.reduce("mean", 0, groups=months)
    np.testing.assert_array_equal(made, [values[months == m].mean(0) for m in range(12)])


@pytest.mark.parametrize("limit", ["PATCH_LIMIT", "PATCH_SIZE", "BOX_SIZE", "BOX_LIMIT", "UNIT_SIZE"])
def test_results_and_chunks_of_any_size_are_gone_through_in_parts(monkeypatch, limit):
    values = np.random.default_rng(0).integers(-99, 99, (40, 30, 20)).astype("i4")
    array = make(values, (7, 30, 11))
    monkeypatch.setattr(plan, limit, 1 << 10)
    for axis, method in itertools.product([0, 1, (0, 2), None], ["sum", "argmax", "std"]):
        if method == "argmax" and axis == (0, 2):
            continue
        made, wanted = array.reduce(method, axis), getattr(np, method)(values, axis=axis)
        np.testing.assert_allclose(made, wanted, rtol=1e-14)


def test_of_equal_items_the_first_is_told_whatever_is_read_first(monkeypatch):
    for limit in ("BOX_SIZE", "UNIT_SIZE"):  # each chunk by itself
        monkeypatch.setattr(plan, limit, 1)
    values = np.ones((40, 40), "i4")
    values[1, 0] = values[0, 25] = 0  # the first of both is in the second chunk
    assert make(values, (20, 20)).reduce("argmin") == make(-values, (20, 20)).reduce("argmax") == 25
    values[0, 25] = 1
    assert make(values, (20, 20)).reduce("argmin") == 40


def test_chunks_of_any_lengths_and_chunks_that_are_not_stored():
    values = np.random.default_rng(0).normal(size=(10, 12)).astype("f4")
    array = make(values, [[3, 3, 4], [1, 5, 6]])
    np.testing.assert_allclose(array.reduce("mean", 1), values.mean(1, dtype=float), rtol=1e-6)
    empty = zstore.create_array(MemoryStore(), shape=(5, 4), chunks=(2, 2), dtype="i2", fill_value=3)
    empty[0, 0] = 5
    assert empty.reduce("sum") == 62
    with pytest.raises(NotFoundError):
        zstore.reduce(empty, "sum", missing="error")


def test_byte_orders_and_orders_of_memory():
    values = np.arange(60, dtype=">f8").reshape(6, 10)
    for options in ({"order": "F"}, {"zarr_format": 2}, {"zarr_format": 2, "order": "F"}):
        array = make(values, (4, 3), **options)
        np.testing.assert_array_equal(array.reduce("sum", 0), values.sum(0))
        np.testing.assert_array_equal(array.reduce("argmax", 1), values.argmax(1))


def test_times_have_extremes():
    days = np.array(["2020-03-01", "NaT", "2019-01-02", "2024-05-05"], "M8[s]").reshape(2, 2)
    array = make(days, (1, 2))
    assert array.reduce("min") == np.datetime64("2019-01-02")
    assert array.reduce("max", 0).tolist() == [days[0, 0].item(), days[1, 1].item()]
    assert array.reduce("count") == 3
    assert array.reduce("argmin") == 2
    assert np.isnat(make(np.array(["NaT"], "M8[s]")).reduce("max"))
    with pytest.raises(UnsupportedError, match="mean of data type datetime64"):
        array.reduce("mean")
    with pytest.raises(UnsupportedError, match="expected None"):
        array.reduce("max", nodata="none")


@pytest.mark.parametrize("dtype", ["<U3", "S2", [("a", "i4")], str])
def test_what_is_no_number_is_refused(dtype):
    array = zstore.create_array(MemoryStore(), shape=(3,), dtype=np.dtype(dtype) if dtype is not str else str)
    with pytest.raises(UnsupportedError, match="sum of data type"):
        array.reduce("sum")


def test_a_sum_that_does_not_fit_is_an_error():
    array = make(np.full(3, 2**62), (1,))
    with pytest.raises(OverflowError, match=str(3 * 2**62)):
        array.reduce("sum")
    assert array.reduce("sum", dtype="float64") == 3 * 2.0**62
    assert array.reduce("mean") == 2.0**62
    assert make(np.full(3, 2**62, "u8"), (1,)).reduce("sum") == 3 * 2**62
    minus = make(np.array([-(2**63), -(2**63), 2**62, 2**62, 2**62, -5]), (2,))
    assert minus.reduce("sum") == -(2**62) - 5
    assert make(np.array([-(2**63), 2**63 - 1, -4])).reduce("mean") == -5 / 3
    assert make(np.array([300, 2], "u2")).reduce("sum", dtype="u2") == 302
    with pytest.raises(OverflowError, match="does not fit uint8"):
        make(np.array([300, 2], "u2")).reduce("sum", dtype="u1")
    for out in (np.full((), 7, "u1"), zstore.create_array(MemoryStore(), data=np.full((), 7, "u1"))):
        with pytest.raises(OverflowError, match="does not fit uint8"):
            make(np.array([300, 2], "u2")).reduce("sum", out=out)
        assert out[()] == 7


@pytest.mark.parametrize(
    ("values", "method", "dtype"),
    [
        (np.array([300, 2]), "sum", "U2"),
        (np.array([300, 2]), "max", "M8[s]"),
        (np.array([300, 2]), "mean", object),
        (np.array([1, 2j]), "sum", "f8"),
        (np.array([1, 2j]), "mean", "i4"),
        (np.array([1, 2], "M8[s]"), "max", "i8"),
        (np.array([1, 2], "M8[s]"), "max", "m8[s]"),
    ],
)
def test_a_type_in_which_the_result_means_nothing_is_refused(values, method, dtype):
    with pytest.raises(UnsupportedError, match="has no meaning as"):
        make(values).reduce(method, dtype=dtype)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i4"])
def test_cells_of_very_many_items_use_wider_sums(monkeypatch, dtype):
    values = np.random.default_rng(0).integers(0, 120, (50, 40)).astype(dtype)
    monkeypatch.setattr(methods, "MANY", 8)
    array = make(values, (16, 16))
    for axis, method in itertools.product([0, 1, None], ["sum", "mean", "var"]):
        np.testing.assert_allclose(
            array.reduce(method, axis), getattr(np, method)(values, axis=axis), rtol=1e-14
        )
    groups = np.arange(40) % 3
    np.testing.assert_array_equal(
        array.reduce("sum", 1, groups=groups), np.stack([values[:, groups == g].sum(1) for g in range(3)], 1)
    )


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_cells_of_few_small_items_are_narrow_until_they_are_joined(dtype):
    method = methods.make_method("sum", np.dtype(dtype), 1 << 40)
    limit = 1 << (32 - 8 * method.dtype.itemsize)
    assert method.narrow(limit).fold == "narrow_sum" and method.narrow(limit + 1).fold == "sum"
    info = np.iinfo(dtype)
    # At the limit all bits of a cell are taken; the units after the first are joined to it.
    for extreme in (info.min, info.max):
        items = np.full((2, 1 << 16, 1), extreme, dtype)
        narrow, wide = method.narrow(1 << 16), method
        made = [one.make(1) for one in (narrow, wide)]
        for one, cells in zip((narrow, wide), made, strict=True):
            one.put(cells, items[0], (0, 1), None, (0, 0), (0, 0), groups=1, group_step=1, first_number=0)
        joined = method.begin(made[0])
        method.join(joined, made[0])
        method.join(joined, made[1])
        assert made[0].a.itemsize == 4 and joined.a[0] == 3 * int(extreme) << 16
    values = np.full((200, 3), info.max, dtype)
    values[::7, 1] = 0
    array = make(values, (50, 3), None)
    np.testing.assert_array_equal(array.reduce("sum", 0, nodata=0), values.astype(np.int64).sum(0))


def test_packed_values_are_unpacked_where_asked():
    stored = np.array([[100, 200, -1], [300, -1, -1]], "i2")
    said = {"scale_factor": -0.5, "add_offset": 10.0, "_FillValue": -1}
    array = make(stored, (1, 3), attributes=said)
    meant = np.where(stored == -1, np.nan, stored * -0.5 + 10)
    for method in ("sum", "mean", "min", "max", "var", "std"):
        made = array.reduce(method, 0, unpack=True)
        np.testing.assert_allclose(made[:2], getattr(np, f"nan{method}")(meant, axis=0)[:2])
        assert made[2] == 0 if method == "sum" else np.isnan(made[2])
    assert array.reduce("argmin", unpack=True) == np.nanargmin(meant)
    assert array.reduce("count", unpack=True) == 3
    assert array.reduce("sum") == 597, "stored values, where nothing is asked"
    with pytest.raises(UnsupportedError, match="unpack=False"):
        array.reduce("any", unpack=True)
    said = {"scale_factor": 0.1, "add_offset": 273.15}
    small = make(np.full(5, 0.1234567, "f4"), attributes=said)
    assert (
        small.reduce("min", unpack=True)
        == small.reduce("mean", unpack=True)
        == small.reduce("max", unpack=True)
    )
    assert make(np.array([1, 2j]), attributes=said).reduce("sum", unpack=True) == pytest.approx(546.4 + 0.2j)
    with pytest.raises(UnsupportedError, match="scale and offset of data type datetime64"):
        make(np.array([1, 2], "M8[s]"), attributes=said).reduce("min", unpack=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("scale", [None, 0.5, -2.0])
def test_unpacking_leaves_out_nan_beside_the_fill_value_as_xarray_does(tmp_path, zarr_format, dtype, scale):
    xarray = pytest.importorskip("xarray")
    rows = [[1, -99, np.nan, -99], [2, 3, np.nan, np.nan], [np.nan, 5, -99, np.nan], [4, np.nan, np.nan, -99]]
    packing = {} if scale is None else {"scale_factor": scale, "add_offset": 8.0}
    url, fill = tmp_path / "packed.zarr", render_nodata(-99.0, np.dtype(dtype), zarr_format)
    root = zstore.create_group(url, zarr_format=zarr_format)
    array = root.create_array(
        "v", data=np.array(rows, dtype), chunks=(3, 3), dimension_names=["y", "x"], fill_value=-99,
        attributes={**fill, **packing},
    )  # fmt: skip
    meant = xarray.open_zarr(url, consolidated=False)["v"].load()
    for method in ("count", "sum", "mean", "std", "min", "max"):
        for axis in ("y", "x", ["y", "x"]):
            made = np.asarray(array.reduce(method, axis, unpack=True), "f8")
            wanted = np.asarray(getattr(meant, method)(axis), "f8")
            if method in ("min", "max") and scale is None:
                wanted = np.where(np.isnan(wanted), -99, wanted)
            np.testing.assert_allclose(made, wanted, rtol=3e-3 if dtype == "f2" else 1e-6)
    found = array.reduce("argmin", unpack=True)
    assert meant.values.reshape(-1)[found] == meant.min()
    assert np.isnan(array.reduce("mean", nodata=-99)), "a number alone leaves NaN in"
    assert np.isnan(array.reduce("mean", nodata=-99, unpack=True))


@pytest.mark.parametrize(
    ("fills", "dtype"),
    [
        ({"_FillValue": "NaN", "missing_value": 1e20}, "f4"),
        ({"missing_value": ["NaN", 1e20]}, "f4"),
        ({"_FillValue": 1e20, "missing_value": [-5.0, 7.0]}, ">f4"),
        ({"_FillValue": 99, "missing_value": [-5, 7, 99]}, "i2"),
        ({"missing_value": [-5, 7, 99]}, ">i4"),
    ],
)
def test_every_value_of_nodata_is_left_out(fills, dtype):
    numbers = [1.0, 1e20, np.nan, 3.0] if "i" not in dtype else [1, 99, 99, 3]
    more = (
        [-5, 7] if len(np.ravel(fills["missing_value"])) > 1 and "NaN" not in fills["missing_value"] else []
    )
    array = make(np.array(numbers + more, dtype), attributes=fills)
    assert array.reduce("mean", unpack=True) == 2.0 and array.reduce("count", unpack=True) == 2


def test_packing_alone_decides_whether_values_can_be_unpacked():
    said = {"scale_factor": 2.0, "units": 5, "flag_values": "none"}
    assert make(np.array([1, 2], "i2"), attributes=said).reduce("sum", unpack=True) == 6
    faults = {
        "scale_factor is 0; expected": {"scale_factor": 0},
        "nodata is 300; expected an integer from 0 to 255": {"_FillValue": 300},
    }
    for message, attributes in faults.items():
        with pytest.raises(MetadataError, match=f"cannot unpack: {message}"):
            make(np.array([1, 2], "u1"), attributes=attributes).reduce("sum", unpack=True)


def test_sums_of_floats_lose_nothing():
    values = np.array([1e16, 1.0, -1e16, 3.0] * 1000)
    for shape, chunks in [((4000,), (7,)), ((1000, 4), (3, 4)), ((4, 1000), (1, 100))]:
        array = make(values.reshape(shape), chunks)
        assert array.reduce("sum") == 4000 if shape[0] != 4 else True
    assert make(values.reshape(1000, 4).T.copy(), (1, 100)).reduce("sum") == 4000
    assert make(np.array([np.inf, 1.0, 2.0])).reduce("sum") == np.inf
    assert np.isnan(make(np.array([np.inf, -np.inf])).reduce("sum"))
    shifted = np.random.default_rng(0).normal(1e9, 1, 20000)
    np.testing.assert_allclose(make(shifted, (999,)).reduce("var"), np.var(shifted), rtol=1e-9)


@pytest.mark.parametrize("method", ["sum", "mean", "var", "argmax"])
def test_the_number_of_threads_shows_nowhere(monkeypatch, method):
    monkeypatch.setattr(plan, "UNIT_SIZE", 1 << 12)
    monkeypatch.setattr(plan, "BOX_SIZE", 1 << 11)
    values = np.random.default_rng(0).normal(size=(64, 40, 10)) * 10.0 ** np.arange(10)
    array = make(values, (4, 20, 10))
    made = set()
    try:
        for threads in (1, 2, 3, 8):
            zstore.set_threads(threads)
            for axis in (None, 0, 1, (0, 2)):
                if method != "argmax" or not isinstance(axis, tuple):
                    made.add((axis, np.asarray(array.reduce(method, axis)).tobytes()))
    finally:
        zstore.set_threads(None)
    assert len(made) == len({axis for axis, _ in made})


def test_axes_by_name_and_what_is_kept():
    values = np.arange(24, dtype="u1").reshape(2, 3, 4)
    array = make(values, (1, 2, 4), dimension_names=["time", "y", "x"])
    np.testing.assert_array_equal(array.reduce("sum", "time"), values.sum(0))
    np.testing.assert_array_equal(array.reduce("sum", ["x", 0]), values.sum((0, 2)))
    assert array.reduce("sum", "y", keepdims=True).shape == (2, 1, 4)
    for axis, words in [("z", "one of the dimensions"), (3, "3 dimensions"), ((0, -3), "twice")]:
        with pytest.raises(ValueError, match=words):
            array.reduce("sum", axis)
    with pytest.raises(ValueError, match="expected one of sum, mean"):
        array.reduce("median")
    with pytest.raises(ValueError, match="nodata 300"):
        array.reduce("sum", nodata=300)
    with pytest.raises(ValueError, match="expected labels"):
        array.reduce("sum", 0, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="min of no items"):
        make(np.zeros((0, 3), "i2")).reduce("min", 0)


def test_results_go_where_they_are_wanted(tmp_path):
    values = np.random.default_rng(0).integers(0, 99, (20, 30, 10)).astype("u2")
    array = make(values, (5, 7, 10), dimension_names=["t", "y", "x"])
    memory = np.full((30, 10), -1.0)
    assert array.reduce("mean", 0, out=memory) is memory
    np.testing.assert_array_equal(memory, values.mean(0))
    turned = np.zeros((10, 30)).T
    np.testing.assert_array_equal(array.reduce("mean", 0, out=turned), values.mean(0))
    stored = zstore.create_array(tmp_path / "there", shape=(30, 10), chunks=(4, 4), dtype="f8")
    assert array.reduce("mean", 0, out=stored) is stored
    np.testing.assert_array_equal(stored[...], values.mean(0))
    for out in (np.zeros((30, 11)), np.zeros((30, 10), "i4")):
        with pytest.raises(ValueError, match="expected"):
            array.reduce("mean", 0, out=out)
    new = zstore.reduce(array, "sum", "t", out=tmp_path / "new")
    assert (new.dims, new.dtype) == (("y", "x"), np.uint64)
    np.testing.assert_array_equal(new[...], values.sum(0))
    with pytest.raises(StoreError, match="already"):
        zstore.reduce(array, "sum", "t", out=tmp_path / "new")
    new = zstore.reduce(array, "sum", "t", out=tmp_path / "new", overwrite=True, groups=["a", "b"] * 10)
    assert new.attrs["groups"] == ["a", "b"]
    np.testing.assert_array_equal(new[...], [values[::2].sum(0), values[1::2].sum(0)])
    assert zstore.reduce(array, "sum", out=tmp_path / "one")[...] == values.sum()
    for labels, words in (
        (np.repeat([0, 10], 10).astype("M8[ns]"), None),
        (np.repeat([1, np.inf], 10), [1.0, "inf"]),
    ):
        new = zstore.reduce(array, "sum", "t", out=MemoryStore(), groups=labels)
        assert new.attrs["groups"] == (words or np.unique(labels).astype(str).tolist())


def test_what_is_read_is_never_replaced(tmp_path):
    group = zstore.create_group(tmp_path / "g")
    array = group.create_array("a", data=np.arange(4))
    for place in (tmp_path / "g", tmp_path / "g" / "a", tmp_path / "g" / "a" / "below", array.store):
        with pytest.raises(StoreError, match="into itself"):
            zstore.reduce(array, "sum", out=place, overwrite=True)
    assert zstore.reduce(array, "sum", out=tmp_path / "g" / "b")[...] == 6
    memory = make(np.arange(4))
    with pytest.raises(StoreError, match="into itself"):
        zstore.reduce(memory, "sum", out=memory.store, overwrite=True)
    assert array.reduce("sum") == memory.reduce("sum") == 6


def test_damage_is_an_error_and_leaves_no_array(tmp_path):
    values = np.random.default_rng(0).integers(0, 99, (8, 50)).astype("u2")
    array = zstore.create_array(tmp_path / "a", shape=values.shape, chunks=(1, 50), dtype="u2")
    array[...] = values
    (tmp_path / "a" / "c" / "5" / "0").write_bytes(b"nothing of this")
    with pytest.raises(CodecError, match="c/5/0"):
        zstore.reduce(tmp_path / "a", "sum", 0, out=tmp_path / "made")
    with pytest.raises(NotFoundError):
        zstore.open_array(tmp_path / "made", mode="r")
    [work] = zstore.verify(tmp_path / "made").unfinished
    assert work.again.endswith("resume=True)")
    (tmp_path / "a" / "c" / "5" / "0").unlink()
    assert zstore.reduce(tmp_path / "a", "sum", 0, out=tmp_path / "made", overwrite=True).shape == (50,)


def test_an_interrupt_ends_it(tmp_path):
    program = f"""
import os, signal, threading, numpy as np, zstore
a = zstore.create_array({str(tmp_path / "a")!r}, shape=(600, 256, 256), chunks=(1, 256, 256), dtype="f4")
a[...] = 1
print("ready", flush=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests may have it ignored
seen = []
def progress(done, total):
    if not seen:
        seen.append(done)
        os.kill(os.getpid(), signal.SIGINT)
try:
    a.reduce("std", 0, progress=progress)
except KeyboardInterrupt:
    print("interrupted", threading.active_count())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ready", "interrupted", "1"]


def test_progress_comes_to_all_items():
    seen = []
    array = make(np.zeros((30, 8), "u1"), (4, 8))
    array.reduce("sum", 0, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (240, 240)


class Watched(MemoryStore):
    """Counts chunks that are read, and fails at the n-th."""

    reads = 0
    left = 1 << 30

    def get(self, key, byte_range=None):
        if "c/" in key:
            self.reads += 1
            if self.reads > self.left:
                raise StoreError("the store is gone", key=key)
        return super().get(key, byte_range)


@pytest.fixture
def _small_units(monkeypatch):
    for name, size in {
        "UNIT_SIZE": 1 << 10,
        "BOX_SIZE": 1 << 9,
        "PATCH_SIZE": 1 << 9,
        "PATCH_LIMIT": 1 << 10,
    }.items():
        monkeypatch.setattr(plan, name, size)
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)


@pytest.mark.parametrize(
    ("method", "axis"), [("std", 0), ("sum", 0), ("argmax", 1), ("min", None), ("var", None)]
)
@pytest.mark.parametrize("left", [0, 33, 127])
@pytest.mark.usefixtures("_small_units")
def test_what_was_interrupted_goes_on_where_it_was(axis, method, left):
    values = np.random.default_rng(0).normal(size=(64, 128)).astype("f4")
    source = zstore.create_array(Watched(), data=values, chunks=(8, 8))
    options = {"groups": np.arange(64) % 3} if method == "sum" and axis == 0 else {}
    expected, target = MemoryStore(), MemoryStore()
    source.store.reads = 0
    zstore.reduce(source, method, axis, out=expected, **options)
    whole = source.store.reads
    source.store.reads, source.store.left = 0, left
    with pytest.raises(StoreError, match="gone"):
        zstore.reduce(source, method, axis, out=target, **options)
    source.store.reads, source.store.left = 0, 1 << 30
    with pytest.raises(MetadataError, match="a reduction with other arguments was interrupted here: name"):
        zstore.reduce(source, "count", axis, out=target, resume=True, **options)
    zstore.reduce(source, method, axis, out=target, resume=True, **options)
    assert {key: target.get(key) for key in target.list("") if MADE not in key} == {
        key: expected.get(key) for key in expected.list("")
    }
    planned = reduce.plan_reduction(source, method, axis, **options)
    # Only units are made again that were under way, or waited to be joined; their boxes have two chunks.
    most = max(sum(1 for _ in boxes_of(planned.course, unit)) for unit in planned.course.units())
    assert source.store.reads <= whole - left + 2 * most * (planned.worker_count + 1)


@pytest.mark.usefixtures("_small_units")
def test_what_a_power_cut_took_is_made_again():
    values = np.random.default_rng(0).integers(1, 99, (64, 128)).astype("u2")
    source, target = zstore.create_array(Watched(), data=values, chunks=(8, 8)), MemoryStore()
    source.store.reads, source.store.left = 0, 100
    with pytest.raises(StoreError, match="gone"):
        zstore.reduce(source, "sum", 0, out=target)
    source.store.left = 1 << 30
    first, *others = sorted(key for key in target.list("c"))
    assert others
    target.delete(first)
    made = zstore.reduce(source, "sum", 0, out=target, resume=True)
    np.testing.assert_array_equal(made[...], values.sum(0))


@pytest.mark.usefixtures("_small_units")
def test_all_of_a_patch_that_was_lost_is_made_again(monkeypatch):
    """Also units that come up when the first of them have been joined anew."""
    values = np.random.default_rng(0).integers(1, 99, (400, 16)).astype("u2")
    source, target = zstore.create_array(Watched(), data=values, chunks=(1, 8)), MemoryStore()
    with monkeypatch.context() as patched:
        patched.setattr(reduce.StoredReduction, "publish", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            zstore.reduce(source, "sum", 0, out=target)
    target.delete(max(target.list("c")))
    made = zstore.reduce(source, "sum", 0, out=target, resume=True)
    np.testing.assert_array_equal(made[...], values.sum(0))


@pytest.mark.usefixtures("_small_units")
@pytest.mark.parametrize("is_late", [False, True], ids=["midway", "at the end"])
@pytest.mark.parametrize("change", ["chunk", "document", "removed"])
def test_a_source_that_changes_under_a_reduction_makes_no_array(tmp_path, change, is_late):
    source = zstore.create_array(
        tmp_path / "s", data=np.ones((64, 64), "f4"), chunks=(8, 8), fill_value=np.nan
    )
    moments = list[int]()

    def write(done: int, total: int) -> None:
        if not moments and (done == total or not is_late):
            moments.append(done)
            if change == "chunk":
                source[:8, :8] = 2
            elif change == "document":
                source.attrs["late"] = 1
            else:
                (tmp_path / "s" / "c" / "7" / "7").unlink()

    target = tmp_path / "t"
    with pytest.raises(ChangedError, match="the source changed while it was read"):
        zstore.reduce(tmp_path / "s", "mean", 0, out=target, progress=write)
    assert moments and not (target / "zarr.json").exists()
    if change != "document":
        with pytest.raises(ChangedError, match="written since the job began"):
            zstore.reduce(tmp_path / "s", "mean", 0, out=target, resume=True)
    made = zstore.reduce(tmp_path / "s", "mean", 0, out=target, overwrite=True)
    np.testing.assert_array_equal(made[...], zstore.open_array(tmp_path / "s").reduce("mean", 0))


def test_resuming_is_for_places_and_for_what_is_unfinished():
    array, target = make(np.arange(6, dtype="i4")), MemoryStore()
    for out in (None, np.empty((), "i8")):
        with pytest.raises(ValueError, match="resume without a place"):
            array.reduce("sum", out=out, resume=True)
    assert zstore.reduce(array, "sum", out=target, resume=True)[...] == 15
    with pytest.raises(StoreError, match="a reduction cannot begin: an array or group is there already"):
        zstore.reduce(array, "max", out=target, resume=True)


def test_ten_million_chunks_are_planned_in_little_memory():
    array = zstore.create_array(MemoryStore(), shape=(10**7, 1024, 1024), chunks=(1, 1024, 1024), dtype="u2")
    tracemalloc.start()
    try:
        planned = reduce.plan_reduction(array, "mean", 0)
        units = list(itertools.islice(planned.course.units(), 1000))
        planned.describe()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(set(units)) == 1000 and planned.course.box_count == 10**7 // 2
    assert peak < 1 << 20 and len(pickle.dumps(planned.course)) < 2000


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("f4", {"_FillValue": -9}),
        ("f8", {"valid_range": [-3.1415927, 3.1415927], "units": "radian", "standard_name": "longitude"}),
        (">u2", {"scale_factor": 0.01, "_FillValue": 65535}),
        ("i2", {"scale_factor": -0.02, "add_offset": 90.0, "_FillValue": -9, "missing_value": [-8, -9]}),
    ],
)
def test_the_mean_of_directions_is_that_of_a_circle(dtype, attributes):
    attributes = {"standard_name": "sea_surface_wave_to_direction", "units": "degree", **attributes}
    rng, turn = np.random.default_rng(1), 2 * np.pi if attributes["units"] == "radian" else 360.0
    low = -np.pi if "valid_range" in attributes else 0.0
    scale, offset = attributes.get("scale_factor", 1.0), attributes.get("add_offset", 0.0)
    angles = low + (rng.normal(0, 0.08, (40, 9)) % 1) * turn
    stored = (angles - offset) / scale
    stored = stored.astype(dtype) if "f" in dtype else np.rint(stored).astype(dtype)
    meant = stored.astype("f8") * scale + offset
    hidden = rng.random(stored.shape) < 0.2
    hidden[:, 3] = True
    if "_FillValue" in attributes:
        fills = [attributes["_FillValue"], *np.ravel(attributes.get("missing_value", []))]
        stored[hidden] = np.resize(fills, hidden.sum())
        meant[hidden] = np.nan
    array = make(stored, (7, 4), attributes=attributes)
    for axis in (0, 1, None):
        # As scipy.stats.circmean has it.
        sides = [np.nansum(side(meant * 2 * np.pi / turn), axis) for side in (np.sin, np.cos)]
        wanted = np.where(np.isnan(meant).all(axis), np.nan, np.arctan2(*sides) * turn / 2 / np.pi)
        found = array.reduce("mean", axis, unpack=True)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_allclose(np.sin((found - wanted) * 2 * np.pi / turn), 0 * wanted, atol=1e-5)
        assert not (np.asarray(found) < low).any() and not (np.asarray(found) > low + turn).any()
    pair = make(
        np.array([350.0, 10.0]), attributes={"standard_name": "wind_from_direction", "units": "degree"}
    )
    assert min(pair.reduce("mean"), 360 - pair.reduce("mean")) == pytest.approx(0, abs=1e-9)
    assert np.isnan(make(np.array([90.0, 270.0]), attributes=pair.attrs.asdict()).reduce("mean"))


@pytest.mark.parametrize("method", ["mean", "sum", "std", "max"])
def test_adding_directions_is_told(method):
    array = zstore.create_array(
        MemoryStore(), data=np.array([350.0, 10.0]), attributes={"standard_name": "wind_from_direction"}
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        array.reduce(method)
    assert [warning.category for warning in told] == ([] if method == "max" else [ReadingWarning])
