"""Sampling at any places: against gdalwarp, and by its own rules."""

from __future__ import annotations

import numpy as np
import pytest

from zstore._ext.resample import warp
from zstore.geo.resampling.sample import AREAS, PICKING, SAMPLINGS, sample

CELL = 30.0


def places(
    shape: tuple[int, int], cell: float, shift: float, *, corners: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Of a grid of cells that long, whose corner is shifted right and down."""
    more, offset = (1, 0.0) if corners else (0, 0.5)
    rows, columns = (np.arange(n + more) + offset for n in shape)
    grid = np.meshgrid(columns * (cell / CELL) + shift / CELL, rows * (cell / CELL) + 0.7 * shift / CELL)
    return grid[0], grid[1]


def identity(shape: tuple[int, int], method: str) -> tuple[np.ndarray, np.ndarray]:
    return places(shape, CELL, 0.0, corners=method in AREAS)


@pytest.mark.parametrize("cell, shift", [(24.7, -333.3), (30.0, -151.5), (38.2185, -500.123), (100.0, 777.7)])
@pytest.mark.parametrize("nodata", [None, 7])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
@pytest.mark.parametrize("method", SAMPLINGS)
def test_numbers_are_gdalwarps(
    method: str, dtype: str, nodata: int | None, cell: float, shift: float
) -> None:
    rasterio = pytest.importorskip("rasterio")
    from rasterio.transform import Affine
    from rasterio.warp import reproject

    version = tuple(map(int, rasterio.__gdal_version__.split(".")[:2]))
    if method == "mode" and (version < (3, 12) or dtype == "f4"):
        pytest.skip("GDAL counts cells of floats whole that lie in an area in part; before 3.12, all")
    random = np.random.default_rng(0)
    # Steps of ten, so that no mean of some cells comes out as nodata but the holes themselves.
    source = (random.integers(1, 20, (120, 130)) * 10).astype(dtype)
    if nodata is not None:
        source[random.random(source.shape) < 0.1] = nodata
    hole, shape = 0 if nodata is None else nodata, (130, 125)
    scale = CELL / cell
    want = np.full(shape, hole, dtype)
    # The same CRS: then GDAL's places are exact, and what is compared are the kernels.
    stretch = {"XSCALE": repr(scale), "YSCALE": repr(scale)} if method in ("bilinear", "cubic") else {}
    reproject(
        source,
        want,
        src_transform=Affine(CELL, 0, 600000, 0, -CELL, 5300000),
        src_crs="EPSG:32632",
        src_nodata=nodata,
        dst_transform=Affine(cell, 0, 600000 + shift, 0, -cell, 5300000 - 0.7 * shift),
        dst_crs="EPSG:32632",
        dst_nodata=hole,
        resampling=rasterio.enums.Resampling[method],
        **stretch,
    )
    columns, rows = places(shape, cell, shift, corners=method in AREAS)
    got = sample(source, columns, rows, method, nodata=nodata, scale=(scale, scale))
    off = np.abs(got.astype(float) - want.astype(float))
    if method in AREAS:
        # At the rim of the source, GDAL weighs cells that are cut as whole ones.
        inner = (
            (columns[:-1, :-1] > 0) & (columns[1:, 1:] < 130) & (rows[:-1, :-1] > 0) & (rows[1:, 1:] < 120)
        )
        off, got, want = off[inner], got[inner], want[inner]
    if method in PICKING:
        assert off.max() == 0
    elif dtype == "f4":
        assert off.max() <= 1e-6 * 200
    else:
        # A mean that is half-way between two integers may round to either; one that is nodata moves aside.
        aside = (np.abs(got.astype(int) - hole) <= 2) | (np.abs(want.astype(int) - hole) <= 2)
        assert off[~aside].max() <= 1 and off.max() <= 2
        assert (off > 0).mean() < 0.02
    assert ((got == hole) != (want == hole)).mean() < (0.02 if nodata is None and dtype != "f4" else 1e-3)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", ">u2", "i4", "u8", "i8", "f2", ">f4", "f8", "M8[s]"])
@pytest.mark.parametrize("method", SAMPLINGS)
def test_its_own_cells_come_back(method: str, dtype: str) -> None:
    data = (np.arange(2 * 7 * 9).reshape(2, 7, 9) % 100).astype(dtype)
    if method not in PICKING and data.dtype.kind in "bM":
        with pytest.raises(TypeError):
            sample(data, *identity((7, 9), method), method)
        return
    made = sample(data, *identity((7, 9), method), method, threads=2)
    assert made.dtype == data.dtype.newbyteorder("=")
    np.testing.assert_array_equal(made, data)


def test_nearest_keeps_every_bit() -> None:
    data = np.array([[2**64 - 1, 2**63 + 1]], "u8")
    assert (sample(data, *identity((1, 2), "nearest"), "nearest") == data).all()


@pytest.mark.parametrize("method", ["nearest", "bilinear", "cubic"])
def test_places_without_cells_give_nodata(method: str) -> None:
    data = np.full((5, 5), 3, "i2")
    columns = np.array([[-1e-6, np.nan, np.inf, -np.inf, 1e300, 5.001, 0.0, 5.0, 2.5]])
    rows = np.full_like(columns, 2.5)
    made = sample(data, columns, rows, method, nodata=-9)
    assert made.tolist() == [[-9, -9, -9, -9, -9, -9, 3, 3, 3]]
    assert sample(data, rows, columns, method, empty=-7).tolist() == [[-7, -7, -7, -7, -7, -7, 3, 3, 3]]


def test_the_mode_of_an_area_is_the_value_of_most_of_it() -> None:
    data = np.array([[5, 7, 7, 9]], "u1")
    for begin, end, value in (
        (0, 1.4, 5),
        (0.3, 1.9, 7),
        (0.5, 1.5, 5),
        (1.5, 3.5, 7),
        (2.2, 4, 9),
        (0, 4, 7),
    ):
        columns, rows = np.array([[begin, end]] * 2, "f8"), np.array([[0.0, 0.0], [1.0, 1.0]])
        assert sample(data, columns, rows, "mode")[0, 0] == value, (begin, end)
    # What is missing has no part in it.
    columns, rows = np.array([[0.0, 4.0]] * 2), np.array([[0.0, 0.0], [1.0, 1.0]])
    assert sample(data, columns, rows, "mode", nodata=7)[0, 0] == 5


def test_areas_beyond_the_source_count_as_far_as_they_lie_in_it() -> None:
    data = np.array([[1.0, 3.0], [5.0, 7.0]])
    columns, rows = np.meshgrid([-1e300, 0.0, 1.5, 1e300], [0.0, 2.0, 9.0])
    made = sample(data, columns, rows, "average", nodata=np.nan)
    np.testing.assert_allclose(made[0], [np.nan, (1 + 5 + 0.5 * (3 + 7)) / 3, 5])
    assert np.isnan(made[1]).all()


def test_a_hole_weighs_nothing_and_a_cubic_without_a_cell_is_bilinear() -> None:
    data = np.tile(np.arange(6.0), (6, 1))
    data[2, 3] = np.nan
    columns, rows = np.array([[2.75]]), np.array([[3.0]])
    # Of the four cells around it, (2, 3) is missing: 2 weighs 1/2 · 3/4 twice, 3 weighs 1/2 · 1/4 once.
    expected = (2 * 0.75 + 3 * 0.125) / 0.875
    for method in ("bilinear", "cubic"):
        assert sample(data, columns, rows, method, nodata=np.nan)[0, 0] == pytest.approx(expected)
    masked = np.where(np.isnan(data), 99.0, data)
    for method in ("bilinear", "cubic"):
        made = sample(masked, columns, rows, method, nodata=-1, valid=~np.isnan(data))
        assert made[0, 0] == pytest.approx(expected)
    assert (
        sample(masked, np.array([[3.5]]), np.array([[2.5]]), "nearest", nodata=-1, valid=~np.isnan(data))
        == -1
    )


def test_valid_results_are_never_nodata_and_integers_stop_at_their_bounds() -> None:
    data = np.array([[4, 6]], "u1")
    assert sample(data, np.array([[1.0]]), np.array([[0.5]]), "bilinear", nodata=5).item() == 6
    steps = np.tile(np.array([0, 0, 255, 255], "u1"), (4, 1))
    made = sample(steps, np.array([[2.7, 1.3]]), np.array([[2.0, 2.0]]), "cubic")
    assert made.tolist() == [[255, 0]]
    big = np.full((2, 2), 2**63 - 1, "i8")
    assert 0 <= 2**63 - 1 - int(sample(big, *identity((2, 2), "bilinear"), "bilinear")[0, 0]) <= 1024


def test_bad_input_is_named() -> None:
    data = np.zeros((3, 3), "u1")
    with pytest.raises(ValueError, match="300"):
        sample(data, *identity((3, 3), "bilinear"), "bilinear", nodata=300)
    with pytest.raises(TypeError, match="complex"):
        sample(data.astype("c8"), *identity((3, 3), "bilinear"), "bilinear")
    with pytest.raises(ValueError, match="places"):
        sample(data, np.zeros((2, 3)), np.zeros((3, 3)), "nearest")
    assert sample(data, np.zeros((0, 3)), np.zeros((0, 3)), "nearest").shape == (0, 3)
    with pytest.raises(ValueError, match="no cells"):
        sample(data[:0], np.zeros((2, 3)), np.zeros((2, 3)), "nearest")
    with pytest.raises(ValueError, match="scales"):
        sample(data, *identity((3, 3), "bilinear"), "bilinear", scale=(0.0, 1.0))
    with pytest.raises(ValueError, match="three dimensions"):
        warp.sample(data, None, data, data, data, data, method=0)
