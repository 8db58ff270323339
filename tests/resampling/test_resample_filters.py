"""The methods with weights, in whole and in parts, against their definition; names, aliases and plugins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from zstore.errors import ExtensionError, UnknownExtensionError, UnsupportedError
from zstore.extensions.builtin import RESAMPLERS
from zstore.extensions.offers import Offer
from zstore.extensions.plugins import Plugin
from zstore.extensions.registry import Registry
from zstore.geo.conventions.base import RESAMPLING_METHODS
from zstore.geo.resampling.methods import METHODS, Average, CubicSpline, Resampler, downsample, plan_part
from zstore.testing.resamplers import ResamplerContract

WEIGHTED = ("gauss", "bilinear", "cubic", "cubic_spline", "lanczos")


def lanczos(x: float) -> float:
    return 1.0 if x == 0 else math.sin(math.pi * x) * math.sin(math.pi * x / 3) * 3 / (math.pi * x) ** 2


def cubic(x: float) -> float:
    return 1.5 * x**3 - 2.5 * x**2 + 1 if x <= 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2


def spline(x: float) -> float:
    return (4 - 6 * x**2 + 3 * x**3) / 6 if x <= 1 else (2 - x) ** 3 / 6


KERNELS: dict[str, tuple[Callable[[float], float], int]] = {
    "bilinear": (lambda x: 1 - x, 1),
    "cubic": (cubic, 2),
    "cubic_spline": (spline, 2),
    "lanczos": (lanczos, 3),
}


def window(method: str, size: int, factor: int, at: int) -> tuple[int, list[float]]:
    """(first cell, weights) of one output, on the aligned grid."""
    if method == "gauss":
        length = 3 if factor <= 2 else 5 if factor <= 4 else 7
        first = at * factor + (factor + 1) // 2 - length // 2
        cells = [(first + k, float(math.comb(length - 1, k))) for k in range(length)]
    else:
        kernel, radius = KERNELS[method]
        cells = [
            (k, kernel(abs(k + 0.5 - (at + 0.5) * factor) / factor))
            for k in range((at - radius) * factor, (at + radius + 1) * factor)
            if abs(k + 0.5 - (at + 0.5) * factor) < radius * factor
        ]
    inside = [(k, w) for k, w in cells if 0 <= k < size]
    return inside[0][0], [w for _, w in inside]


def weighed(array: np.ndarray, axis: int, factor: int, method: str) -> np.ndarray:
    size = array.shape[axis]
    moved = np.moveaxis(array, axis, 0)
    rows = []
    for at in range(-(-size // factor)):
        first, weights = window(method, size, factor, at)
        part = np.tensordot(np.array(weights) / sum(weights), moved[first : first + len(weights)], 1)
        rows.append(part)
    return np.moveaxis(np.array(rows), 0, axis)


def expected(array: np.ndarray, factors: tuple[int, ...], method: str) -> np.ndarray:
    result = array.astype("f8")
    for axis, factor in enumerate(factors):
        if factor > 1:
            result = weighed(result, axis, factor, method)
    return result


@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.parametrize(
    ("shape", "factors"),
    [
        ((40, 52), (2, 2)),
        ((41, 53), (2, 2)),
        ((37, 61), (3, 5)),
        ((3, 30, 33), (1, 2, 3)),
        ((31, 33, 3), (2, 4, 1)),
        ((300, 700), (2, 1)),
        ((300, 1301), (2, 2)),
        ((4, 700), (1, 4)),
        ((13, 14, 15), (2, 3, 2)),
        ((1, 1, 9, 5), (2, 1, 7, 1)),
        ((1500, 20), (300, 2)),
        ((7,), (2,)),
        ((2, 3), (5, 10**30)),
    ],
)
def test_the_definition(method: str, shape: tuple[int, ...], factors: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).random(shape) * 200
    if max(factors) < 10**6:
        wanted = expected(array, factors, method)
        np.testing.assert_allclose(downsample(array, factors, method), wanted, rtol=1e-12, atol=1e-9)
        whole = np.rint(array).astype("u1")
        rounded = np.clip(np.floor(expected(whole, factors, method) + 0.5), 0, 255)
        np.testing.assert_allclose(downsample(whole, factors, method), rounded, rtol=0, atol=1)
        assert (downsample(whole, factors, method) == rounded).mean() > 0.99  # all but ties
    elif method != "gauss":
        assert downsample(array, factors, method)[0, 0] == pytest.approx(array.mean(), rel=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_any_layout_gives_the_same(method: str) -> None:
    rng = np.random.default_rng(2)
    array = rng.integers(0, 9, (3, 40, 37)).astype("f4")
    wanted = downsample(array, (1, 2, 3), method, nodata=4, grid="gdal")
    for dtype in (">f4", "f8", "i2", ">i4", "u1", "f2"):
        other = array.astype(dtype)
        found = downsample(other, (1, 2, 3), method, nodata=4, grid="gdal")
        assert found.dtype == other.dtype.newbyteorder("=")
        # integers round, and then step aside if that gives nodata
        near = np.abs(found.astype("f8") - wanted)
        assert near.max() <= (1.5 if other.dtype.kind in "iu" else 0.1)
        for moved in (np.asfortranarray(other), np.repeat(other, 2, 2)[:, :, ::2], other[:, ::-1][:, ::-1]):
            np.testing.assert_array_equal(downsample(moved, (1, 2, 3), method, nodata=4, grid="gdal"), found)
        turned = downsample(other.transpose(1, 2, 0), (2, 3, 1), method, nodata=4, grid="gdal")
        np.testing.assert_array_equal(turned.transpose(2, 0, 1), found)
        odd = np.zeros(other.nbytes + 1, "u1")[1:].view(other.dtype).reshape(other.shape)
        odd[...] = other
        np.testing.assert_array_equal(downsample(odd, (1, 2, 3), method, nodata=4, grid="gdal"), found)


@pytest.mark.parametrize("method", WEIGHTED)
def test_constant_stays_constant_and_holes_do_not_show(method: str) -> None:
    rng = np.random.default_rng(3)
    for dtype in ("u1", "i2", "i8", "f4", "f8"):
        array = np.full((61, 75), 17, dtype)
        np.testing.assert_allclose(downsample(array, (2, 3), method), np.full((31, 25), 17), rtol=1e-6)
        array[rng.random(array.shape) < 0.02] = 99
        found = downsample(array, (2, 3), method, nodata=99)
        np.testing.assert_allclose(found[found != 99], 17, rtol=1e-6)
        assert (found == 99).mean() < 0.2
    nothing = np.full((20, 20), 99, "u1")
    assert (downsample(nothing, (2, 2), method, nodata=99) == 99).all()


@pytest.mark.parametrize("method", WEIGHTED)
def test_nan_and_infinity(method: str) -> None:
    array = np.random.default_rng(4).random((30, 40)).astype("f4")
    holed = array.copy()
    holed[10:14, 20:30] = np.nan
    assert np.isnan(downsample(holed, (2, 2), method, nodata="none")).any()
    skipped = downsample(holed, (2, 2), method, nodata=np.nan)
    zero = np.where(np.isnan(holed), np.float32(-5), holed)
    other = downsample(zero, (2, 2), method, nodata=-5)
    np.testing.assert_array_equal(np.where(np.isnan(skipped), -5, skipped), other)
    array[3, 3] = np.inf
    assert not np.isfinite(downsample(array, (2, 2), method)[1, 1])


def test_values_stop_at_the_types_bounds() -> None:
    steps = np.zeros((16, 64), "u1")
    steps[:, 32:] = 255
    for method in ("cubic", "lanczos"):
        found = downsample(steps, (2, 2), method)
        assert set(np.unique(found)) >= {0, 255} and found[0, 0] == 0 and found[0, -1] == 255
    lows = np.where(steps == 0, np.iinfo("i8").min, np.iinfo("i8").max)
    found = downsample(lows, (2, 2), "lanczos")
    assert found.min() == np.iinfo("i8").min and found.max() == np.iinfo("i8").max


@pytest.mark.parametrize("method", WEIGHTED)
def test_a_valid_value_never_reads_as_nodata(method: str) -> None:
    array = np.tile(np.array([4, 6], "u1"), (12, 6))
    assert 5 in downsample(array, (2, 2), method)
    assert 5 not in downsample(array, (2, 2), method, nodata=5)
    assert 5 in downsample(array.astype("f4") * 0 + 5, (2, 2), method)


def boxes(shape: tuple[int, ...], step: int) -> Iterator[tuple[slice, ...]]:
    for index in np.ndindex(*(-(-n // step) for n in shape)):
        yield tuple(slice(i * step, min((i + 1) * step, n)) for i, n in zip(index, shape, strict=True))


@pytest.mark.parametrize("grid", ["aligned", "gdal"])
@pytest.mark.parametrize("method", METHODS)
def test_parts_are_the_whole(method: str, grid: str) -> None:
    rng = np.random.default_rng(5)
    for dtype, factors in (("u1", (2, 3)), ("f8", (3, 2)), ("i4", (1, 5))):
        array = rng.integers(0, 50, (47, 58)).astype(dtype)
        array[rng.random(array.shape) < 0.2] = 7
        for nodata in (None, 7):
            whole = downsample(array, factors, method, nodata=nodata, grid=grid)
            built = np.zeros_like(whole)
            for region in boxes(whole.shape, 6):
                part = plan_part(array.shape, factors, method, region, grid=grid)
                piece = array[part.source]
                downsample(piece, factors, method, nodata=nodata, grid=grid, part=part, out=built[region])
            np.testing.assert_array_equal(built, whole)


def test_parts_know_how_far_they_look() -> None:
    region = (slice(4, 8),)
    assert plan_part((100,), (2,), "average", region).source == (slice(8, 16),)
    assert plan_part((100,), (2,), "bilinear", region).source == (slice(7, 17),)
    assert plan_part((100,), (2,), "lanczos", region).source == (slice(3, 21),)
    assert plan_part((100,), (1,), "lanczos", region).source == (slice(4, 8),)
    assert plan_part((0,), (2,), "lanczos", (slice(0, 0),)).source == (slice(0, 0),)


def test_parts_that_do_not_fit() -> None:
    part = plan_part((100,), (2,), "lanczos", (slice(4, 8),))
    with pytest.raises(ValueError, match=r"expected \(slice\(3, 21"):
        downsample(np.zeros(20), (2,), "lanczos", part=part)
    with pytest.raises(ValueError, match="does not make"):
        downsample(np.zeros(18), (2,), "average", part=part)
    for region in [(slice(4, 51),), (slice(4, 3),), (slice(None),), (slice(0, 4, 2),), ()]:
        with pytest.raises(ValueError, match="expected slices inside the result of shape"):
            plan_part((100,), (2,), "average", region)


def test_windows_that_end_before_a_kernel_begins() -> None:
    # the last window holds one cell, and a gauss kernel of 7 cells lies beyond it
    array = np.arange(15.0)
    assert downsample(array, (7,), "gauss")[-1] == 14
    assert downsample(array, (14,), "gauss")[-1] == 14
    assert downsample(array, (14,), "gauss", nodata=14)[-1] == 14


@pytest.mark.parametrize("method", METHODS)
def test_empty_scalar_and_untouched_on_both_grids(method: str) -> None:
    for grid in ("aligned", "gdal"):
        assert downsample(np.zeros((0, 5), "f4"), (2, 2), method, grid=grid).shape == (0, 3)
        assert downsample(np.float32(3), (), method, grid=grid).item() == 3
        assert downsample([[1, 2], [1, 4]], (1, 1), method, grid=grid).tolist() == [[1, 2], [1, 4]]
        assert downsample(np.arange(3.0), (7,), method, grid=grid).shape == (1,)
        assert downsample(np.full((1, 1), 5), (2, 2), method, grid=grid).tolist() == [[5]]


def test_threads_do_not_change_the_result() -> None:
    array = np.random.default_rng(6).random((601, 702)).astype("f4")
    for method in METHODS:
        one = downsample(array, (2, 3), method, threads=1, grid="gdal")
        np.testing.assert_array_equal(one, downsample(array, (2, 3), method, threads=7, grid="gdal"))


def test_names_are_geozarrs_and_aliases_gdals() -> None:
    assert sorted(METHODS) == sorted(RESAMPLING_METHODS) == sorted(offer.name for offer in RESAMPLERS)
    array = np.random.default_rng(7).integers(0, 99, (20, 20))
    for alias, name in (("median", "med"), ("cubicspline", "cubic_spline"), ("near", "nearest")):
        np.testing.assert_array_equal(downsample(array, (2, 2), alias), downsample(array, (2, 2), name))
    with pytest.raises(UnknownExtensionError, match="'mean'"):
        downsample(array, (2, 2), "mean")


def test_the_registry_gives_what_downsample_uses() -> None:
    from zstore.extensions.registry import resamplers

    assert resamplers.resolve("average") is Average
    assert resamplers.resolve("cubicspline") is CubicSpline
    array = np.random.default_rng(8).integers(0, 99, (20, 21))
    for name in METHODS:
        found = resamplers.resolve(name)
        assert issubclass(found, Resampler) and found.method == name
        np.testing.assert_array_equal(
            found()(array, (2, 2), nodata=3), downsample(array, (2, 2), name, nodata=3)
        )


class Last:
    """A plugin's method: the last cell of each window of an even array."""

    def __call__(self, array: Any, factors: Any, *, nodata: Any = None, out: Any = None) -> Any:
        last = array[tuple(slice(f - 1, None, f) for f in factors)]
        if out is None:
            return last.copy()
        out[...] = last
        return out


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    offer = Offer("last", f"{__name__}:Last", ("final",))
    loaded = [Plugin("p", "p", "zstore-last", "1", "ok", (("resampler", offer),))]
    monkeypatch.setattr(
        "zstore.geo.resampling.methods.resamplers", Registry("resampler", RESAMPLERS, load=lambda: loaded)
    )


@pytest.mark.usefixtures("plugin")
def test_a_plugins_method_is_known_by_name() -> None:
    array = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(downsample(array, (2, 3), "last"), array[1::2, 2::3])
    out = np.zeros((2, 2), array.dtype)
    assert downsample(array, (2, 3), method="final", out=out) is out
    np.testing.assert_array_equal(out, array[1::2, 2::3])
    with pytest.raises(ExtensionError, match=r"gave shape \(2, 1\) for \(4, 5\).*expected \(2, 2\)"):
        downsample(array[:, :5], (2, 3), "last")
    with pytest.raises(UnsupportedError, match="takes no grid"):
        downsample(array, (2, 3), "last", grid="gdal")
    with pytest.raises(UnsupportedError, match="takes no threads"):
        downsample(array, (2, 3), "last", threads=2)
    with pytest.raises(UnsupportedError, match="cannot be made in parts"):
        plan_part((4, 6), (2, 3), "last", (slice(0, 1), slice(0, 1)))


class Named(ResamplerContract):
    @pytest.fixture(autouse=True)
    def named(self, method: str) -> None:
        self.method = method


@pytest.mark.parametrize("method", [offer.name for offer in RESAMPLERS if offer.name not in WEIGHTED])
class TestBuiltIn(Named):
    pass


@pytest.mark.parametrize("method", WEIGHTED)
class TestWeighted(Named):
    has_own_windows = False


def test_the_contract_notices_what_would_spoil_a_pyramid() -> None:
    class Smoothed(ResamplerContract):
        def make(self) -> Any:
            return downsample_cubic

    def downsample_cubic(cells: Any, factors: Any, *, nodata: Any = None, out: Any = None) -> Any:
        return downsample(cells, factors, "cubic", nodata=nodata)

    with pytest.raises(AssertionError):
        Smoothed().test_windows_lie_side_by_side()
    with pytest.raises(AssertionError):
        Smoothed().test_out_takes_the_result()


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="unknown grid 'warp', expected one of aligned, gdal"):
        downsample(np.zeros((4, 4)), (2, 2), "cubic", grid="warp")
    for dtype in ("?", "c8", "M8[s]", "S3"):
        with pytest.raises(TypeError, match="'lanczos' does not take data type"):
            downsample(np.zeros(4, dtype), (2,), "lanczos")
    with pytest.raises(ValueError, match="out is a"):
        downsample(np.zeros((4, 4)), (2, 2), "cubic", out=np.zeros((2, 3)))
