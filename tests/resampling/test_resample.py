"""Each resampling method against its definition, spelt out window by window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zstore.geo.resampling.methods import downsample

INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
FLOATS = ("f2", "f4", "f8")


def windows(array: np.ndarray, factors: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
    """(output index, the window's cells in row-major order)."""
    shape = tuple(-(-n // f) for n, f in zip(array.shape, factors, strict=True))
    for index in np.ndindex(*shape):
        window = array[tuple(slice(i * f, (i + 1) * f) for i, f in zip(index, factors, strict=True))]
        yield index, list(window.ravel())


def is_hole(cell: Any, nodata: Any) -> bool:
    return nodata is not None and (cell == nodata or bool(cell != cell and nodata != nodata))


def mean(cells: list[Any], dtype: np.dtype, nodata: Any) -> Any:
    valid = [cell for cell in cells if not is_hole(cell, nodata)]
    if not valid:
        return nodata
    if dtype.kind == "f":
        return np.float64(math.fsum(map(float, valid)) / len(valid)).astype(dtype)
    exact = Fraction(sum(map(int, valid)), len(valid))
    result = int(abs(exact) + Fraction(1, 2)) * (-1 if exact < 0 else 1)
    if nodata is not None and result == nodata:
        result += -1 if result == np.iinfo(dtype).max else 1
    return result


def mode(cells: list[Any], dtype: np.dtype, nodata: Any) -> Any:
    best, top, counts = nodata, 0, dict[Any, int]()
    for cell in cells:
        if is_hole(cell, nodata):
            continue
        key = "NaN" if cell != cell else cell
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > top:
            best, top = cell, counts[key]
    return best


def total(cells: list[Any], dtype: np.dtype, nodata: Any) -> Any:
    valid = [cell for cell in cells if not is_hole(cell, nodata)]
    if not valid:
        return nodata
    if dtype.kind == "f":
        return np.float64(math.fsum(map(float, valid))).astype(dtype)
    limits = np.iinfo(dtype)
    result = min(max(sum(map(int, valid)), limits.min), limits.max)
    if nodata is not None and result == nodata:
        result += -1 if result == limits.max else 1
    return result


def root_mean_square(cells: list[Any], dtype: np.dtype, nodata: Any) -> Any:
    valid = [cell for cell in cells if not is_hole(cell, nodata)]
    if not valid:
        return nodata
    if dtype.kind == "f":
        return np.float64(math.sqrt(math.fsum(float(cell) ** 2 for cell in valid) / len(valid))).astype(dtype)
    square = Fraction(sum(int(cell) ** 2 for cell in valid), len(valid))
    root = math.isqrt(int(square))
    if dtype.name in ("uint8", "uint16"):
        root += square - root * root > (root + 1) ** 2 - square
    else:
        root += square >= (root + Fraction(1, 2)) ** 2
    root = min(root, int(np.iinfo(dtype).max))
    if nodata is not None and root == nodata:
        root += -1 if root == np.iinfo(dtype).max else 1
    return root


def ranked(position: Callable[[int], int]) -> Callable[[list[Any], np.dtype, Any], Any]:
    def pick(cells: list[Any], dtype: np.dtype, nodata: Any) -> Any:
        valid = [cell for cell in cells if not is_hole(cell, nodata)]
        if any(cell != cell for cell in valid):
            return np.nan
        return sorted(valid)[position(len(valid))] if valid else nodata

    return pick


def nearest(cells: list[Any], dtype: np.dtype, nodata: Any) -> Any:
    return cells[0]


REFERENCE: dict[str, Callable[[list[Any], np.dtype, Any], Any]] = {
    "average": mean,
    "mode": mode,
    "nearest": nearest,
    "sum": total,
    "rms": root_mean_square,
    "max": ranked(lambda count: count - 1),
    "min": ranked(lambda count: 0),
    "med": ranked(lambda count: math.ceil(count / 2) - 1),
    "q1": ranked(lambda count: math.ceil(count / 4) - 1),
    "q3": ranked(lambda count: math.ceil(3 * count / 4) - 1),
}


def expected(array: np.ndarray, factors: tuple[int, ...], method: str, nodata: Any = None) -> np.ndarray:
    shape = tuple(-(-n // f) for n, f in zip(array.shape, factors, strict=True))
    result = np.empty(shape, array.dtype.newbyteorder("="))
    if nodata is None and array.dtype.kind == "f":
        nodata = np.nan
    for index, cells in windows(array, factors):
        result[index] = REFERENCE[method](cells, result.dtype, nodata)
    return result


def check(
    array: np.ndarray, factors: tuple[int, ...], method: str, nodata: Any = None, **options: Any
) -> None:
    found = downsample(array, factors, method, nodata=nodata, **options)
    wanted = expected(array, factors, method, nodata)
    assert found.dtype == wanted.dtype
    if array.dtype.kind == "f" and method in ("average", "sum", "rms"):
        # the reference is exact before its one rounding; a float32 2 x 2 mean rounds at every addition
        limits = np.finfo(array.dtype)
        scale = float(np.nan_to_num(np.abs(array.astype("f8"))).max(initial=0.0)) * math.prod(factors)
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=4 * float(limits.eps) * scale + float(limits.tiny)
        )
    elif method == "rms" and array.dtype.itemsize == 8:  # through float64
        np.testing.assert_allclose(found.astype("f8"), wanted.astype("f8"), rtol=1e-14, atol=1)
    else:
        np.testing.assert_array_equal(found, wanted)


def cells_of(dtype: str, shape: tuple[int, ...], rng: np.random.Generator, *, few: bool) -> np.ndarray:
    if dtype[0] == "f":
        cells = rng.integers(0, 4, shape) / 2 if few else rng.standard_normal(shape) * 100
        return np.asarray(cells).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = (max(limits.min, -2), 4) if few else (limits.min, limits.max)
    return np.asarray(rng.integers(low, high, shape, dtype=dtype, endpoint=True))


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], str, Any, int]:
    """Arrays of every layout: any strides and signs, byte orders, odd addresses, with and without holes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(INTEGERS + FLOATS))
    shape = tuple(draw(st.lists(st.integers(0, 13), min_size=0, max_size=4)))
    factors = tuple(draw(st.integers(1, 6)) for _ in shape)
    array = cells_of(dtype, shape, rng, few=draw(st.booleans()))
    nodata = draw(st.sampled_from([None, 0, 1, "extreme"]))
    if nodata == "extreme":
        nodata = np.nan if dtype[0] == "f" else int(np.iinfo(dtype).max)
    if nodata is not None:
        array = np.where(rng.random(shape) < 0.4, np.array(nodata, dtype), array)
    if dtype[0] == "f" and draw(st.booleans()):
        array = np.where(rng.random(shape) < 0.1, np.array(np.nan, dtype), array)
    if draw(st.booleans()):
        array = np.asarray(array, array.dtype.newbyteorder(">"))
    if draw(st.booleans()):
        padded = np.zeros(array.nbytes + 1, "u1")
        moved = padded[1:].view(array.dtype).reshape(shape) if array.nbytes else array
        moved[...] = array
        array = moved
    if draw(st.booleans()) and shape:
        array = array.transpose(rng.permutation(len(shape)))
        array = array[tuple(slice(None, None, draw(st.sampled_from([1, -1, 2]))) for _ in shape)]
    return array, factors, draw(st.sampled_from(tuple(REFERENCE))), nodata, draw(st.sampled_from([1, 3]))


@settings(max_examples=600)
@given(cases())
def test_any_layout_follows_the_definition(case: tuple[np.ndarray, tuple[int, ...], str, Any, int]) -> None:
    array, factors, method, nodata, threads = case
    with np.errstate(all="ignore"):
        check(array, factors, method, nodata, threads=threads)


@pytest.mark.parametrize("method", REFERENCE)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_long_rows_follow_the_definition(dtype: str, method: str) -> None:
    # Rows longer than any vector and not a multiple of one: the unrolled bodies and their ends.
    rng = np.random.default_rng(5)
    for factors in [(2, 2), (3, 3), (1, 2), (2, 1), (4, 5), (2, 7)]:
        for few in (True, False):
            array = cells_of(dtype, (2 * factors[0] + 1, 211), rng, few=few)
            check(array, factors, method)
            check(array, factors, method, nodata=array[0, 0].item())
            if dtype[0] == "f":
                array[rng.random(array.shape) < 0.3] = np.nan
                check(array, factors, method, nodata=np.nan)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "f4"])
@pytest.mark.parametrize("factors", [(17, 19), (300, 2), (2, 300), (1, 9000), (9000, 1), (64, 64)])
def test_big_windows_do_not_overflow(dtype: str, factors: tuple[int, int]) -> None:
    shape = (factors[0] + 1, factors[1] + 1)
    extreme = np.full(shape, -(2.0**100) if dtype == "f4" else np.iinfo(dtype).min, dtype)
    check(extreme, factors, "average")
    extreme[:] = 2.0**100 if dtype == "f4" else np.iinfo(dtype).max
    check(extreme, factors, "average")
    check(extreme, factors, "average", nodata=0)
    noise = cells_of(dtype, shape, np.random.default_rng(2), few=True)
    check(noise, factors, "average", nodata=1)
    check(noise, factors, "mode", nodata=1)
    check(noise[:, ::-1], factors, "mode")
    for method in ("sum", "max", "min", "med", "q3"):
        check(noise, factors, method)
        check(noise, factors, method, nodata=1)


@pytest.mark.parametrize("factors", [(1, 2, 2), (2, 2, 1), (2, 1, 1), (1, 1, 2), (3, 2, 2), (2, 1, 3)])
@pytest.mark.parametrize("innermost", [1, 3, 4, 40])
@pytest.mark.parametrize("method", REFERENCE)
def test_resampled_dimensions_may_lie_anywhere(factors: tuple[int, ...], innermost: int, method: str) -> None:
    rng = np.random.default_rng(11)
    for dtype in ("u1", "i2", "f4"):
        array = cells_of(dtype, (5, 7, innermost), rng, few=True)
        check(array, factors, method)
        check(array, factors, method, nodata=1)
        check(np.asfortranarray(array), factors, method, nodata=1)


@pytest.mark.parametrize(
    ("cells", "winner"),
    [
        ([1, 2, 2, 1], 2),
        ([3, 1, 3, 1], 3),
        ([0, 0, 1, 1], 0),
        ([4, 3, 2, 1], 4),
        ([1, 2, 3, 2], 2),
        ([1, 2, 3, 3], 3),
    ],
)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "i8"])
def test_mode_goes_to_the_first_to_reach_the_top_count(cells: list[int], winner: int, dtype: str) -> None:
    assert downsample(np.array(cells, dtype).reshape(2, 2), (2, 2), "mode").item() == winner
    assert downsample(np.array(cells, dtype), (4,), "mode").item() == winner
    repeated = np.repeat(np.array(cells, dtype), 40)
    assert (
        downsample(repeated, (160,), "mode").item() == downsample(np.array(cells, dtype), (4,), "mode").item()
    )


def test_every_nan_is_one_value_for_mode() -> None:
    payload = np.array([0x7FC00001, 0x7FC00002, 0x3F800000, 0x40000000], "u4").view("f4")
    assert np.isnan(downsample(payload, (4,), "mode", nodata="none")[0])
    assert downsample(payload, (4,), "mode", nodata=np.nan)[0] == 1
    assert downsample(payload, (4,), "mode")[0] == 1
    assert downsample(np.array([0.0, -0.0, 1, 2], "f8"), (4,), "mode")[0] == 0


def test_rounding() -> None:
    def one(cells: list[int], dtype: str) -> Any:
        return downsample(np.array(cells, dtype).reshape(2, 2), (2, 2)).item()

    assert one([1, 1, 2, 2], "u1") == 2
    assert one([0, 0, 1, 1], "u2") == 1
    assert one([-1, -1, -2, -2], "i1") == -2
    assert one([-1, -1, -2, -2], "i2") == -2
    assert one([0, 0, -1, 0], "i4") == 0
    assert one([2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 3], "i8") == 2**63 - 1
    assert one([2**64 - 1] * 4, "u8") == 2**64 - 1
    assert one([2**53 + 1] * 4, "u8") == 2**53 + 1


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_a_valid_mean_never_reads_as_nodata(dtype: str) -> None:
    array = np.array([[4, 6], [4, 6]], dtype)
    found = downsample(array, (2, 2), nodata=5)[0, 0]
    assert found == (np.nextafter(np.array(5, dtype), np.array(6, dtype)) if dtype[0] == "f" else 6)
    assert downsample(np.full((2, 2), 5, dtype), (2, 2), nodata=5)[0, 0] == 5
    if dtype[0] != "f":
        top = np.iinfo(dtype).max
        near = np.array([top - 1, top, top, top], dtype)
        assert downsample(near[[0, 0, 0, 0]], (4,), nodata=top)[0] == top - 1


@pytest.mark.parametrize("method", ["sum", "rms", "max", "min", "med", "q1", "q3"])
@pytest.mark.parametrize("size", [4, 100, 9000])
def test_nan_wins_where_something_else_or_nothing_is_nodata(method: str, size: int) -> None:
    for dtype in FLOATS:
        array = np.arange(size).astype(dtype) % 7
        array[size // 2] = np.nan
        assert np.isnan(downsample(array, (size,), method, nodata="none")[0])
        assert np.isnan(downsample(array, (size,), method, nodata=3)[0])
        numbers = downsample(np.delete(array, size // 2), (size,), method)[0]
        for nodata in (np.nan, None):
            assert downsample(array, (size,), method, nodata=nodata)[0] == pytest.approx(numbers, rel=1e-3)


def test_nan_wins_an_average_where_something_else_is_nodata() -> None:
    for dtype in FLOATS:
        array = np.array([1, np.nan, 3, -9999 if dtype != "f2" else -999], dtype)
        assert np.isnan(downsample(array, (4,), nodata=array[3]))
        assert downsample(array[:3], (3,), nodata=np.nan) == 2
        assert np.isnan(downsample(np.full(4, np.nan, dtype), (4,), nodata=np.nan))


def test_infinities_stay_infinite() -> None:
    array = np.array([[np.inf, 1], [2, 3]], "f4")
    assert downsample(array, (2, 2))[0, 0] == np.inf
    assert downsample(array, (2, 2), nodata=np.inf)[0, 0] == 2


def test_half_floats_survive_conversion() -> None:
    every = np.arange(1 << 16, dtype="u2").view("f2")
    pairs = np.repeat(every, 2)
    found = downsample(pairs, (2,), "mode")
    np.testing.assert_array_equal(found, every)
    np.testing.assert_array_equal(downsample(pairs, (2,), "average"), every)


def test_complex_averages_part_by_part() -> None:
    array = (np.arange(24) + 1j * np.arange(24)[::-1]).reshape(4, 6)
    for dtype in ("c8", "c16", ">c16"):
        found = downsample(array.astype(dtype), (2, 3))
        wanted = array.reshape(2, 2, 2, 3).mean((1, 3))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert found.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(downsample(array.astype(dtype).T, (3, 2), "nearest"), array.T[::3, ::2])


@pytest.mark.parametrize(
    "dtype", ["?", "S3", "U2", "M8[s]", "m8[D]", "V5", "c8", "c16", "f2", [("a", "<i4"), ("b", ">f4")]]
)
def test_nearest_takes_every_type(dtype: Any) -> None:
    array = np.frombuffer(bytes(np.arange(240, dtype="u1") % 2) * 8, np.dtype(dtype), count=60).reshape(6, 10)
    np.testing.assert_array_equal(downsample(array, (2, 3), "nearest"), array[::2, ::3])
    np.testing.assert_array_equal(
        downsample(array[::-1, 1::2], (4, 2), "nearest"), array[::-1, 1::2][::4, ::2]
    )


def test_mode_of_flags_and_dates() -> None:
    flags = np.array([[True, False], [True, False]])
    assert downsample(flags, (2, 2), "mode").tolist() == [[True]]
    assert downsample(flags, (2, 2), "mode", nodata=True).tolist() == [[False]]
    dates = np.array(["2020-01-01", "NaT", "2021-01-01", "2021-01-01"], "M8[D]")
    assert downsample(dates, (4,), "mode")[0] == np.datetime64("2021-01-01")
    assert downsample(dates[:2], (2,), "mode", nodata=np.datetime64("NaT", "s"))[0] == dates[0]


@pytest.mark.parametrize("method", REFERENCE)
def test_empty_and_scalar_inputs(method: str) -> None:
    assert downsample(np.zeros((0, 5), "f4"), (2, 2), method).shape == (0, 3)
    assert downsample(np.zeros((5, 0), "f4"), (2, 9), method).shape == (3, 0)
    assert downsample(np.float32(3), (), method).item() == 3
    assert downsample([[1, 2], [1, 4]], (1, 1), method).tolist() == [[1, 2], [1, 4]]
    assert np.isnan(downsample(np.float32(np.nan), (), method))
    assert downsample(np.full((0, 5), np.nan), (3, 1), method).shape == (0, 5)
    assert downsample(np.arange(3.0), (10**30,), method).shape == (1,)


def test_out_may_be_any_view_and_only_its_box_changes() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(0, 255, (20, 30), dtype="u2")
    for method in REFERENCE:
        level = np.full((40, 60), 77, ">u2" if method in ("mode", "nearest") else "u2")
        box = level[5:25:2, 50:20:-2]
        returned = downsample(source, (2, 2), method, out=box)
        assert returned is box
        np.testing.assert_array_equal(box, downsample(source, (2, 2), method))
        level[5:25:2, 50:20:-2] = 77
        assert (level == 77).all()


def test_out_may_overlap_the_input() -> None:
    array = np.arange(64.0).reshape(8, 8)
    wanted = downsample(array, (2, 2))
    found = downsample(array, (2, 2), out=array[4:, 4:])
    np.testing.assert_array_equal(found, wanted)


def test_layout_follows_the_input_where_order_does_not_matter() -> None:
    array = np.asfortranarray(np.arange(600, dtype="u2").reshape(20, 30))
    assert downsample(array, (2, 2)).flags.f_contiguous
    np.testing.assert_array_equal(downsample(array, (2, 2)), downsample(array.copy("C"), (2, 2)))


def test_threads_do_not_change_the_result() -> None:
    array = np.random.default_rng(3).random((700, 900)).astype("f4")
    for method in REFERENCE:
        one = downsample(array, (3, 3), method, threads=1)
        np.testing.assert_array_equal(one, downsample(array, (3, 3), method, threads=7))
        np.testing.assert_array_equal(one, downsample(array, (3, 3), method))
