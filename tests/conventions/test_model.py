"""The grid's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Affine, GeoModel, Variable

UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)


def test_the_two_orders_of_the_six_numbers() -> None:
    affine = Affine.from_user([1, 2, 3, 4, 5, 6])
    assert affine == Affine(a=1, b=2, c=3, d=4, e=5, f=6)
    assert affine.geotransform == (3, 1, 2, 6, 4, 5)
    assert Affine.from_geotransform(affine.geotransform) == affine
    assert Affine.from_user([1, 2, 3, 4, 5, 6, 0, 0, 1]) == affine


@pytest.mark.parametrize(
    "numbers",
    [
        [1, 2, 3],
        [10**400, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, float("nan"), 0],
        [1, 0, 0, 1, 0, 0],
        ["1", 0, 0, 0, 1, 0],
        [True, 0, 0, 0, 1, 0],
    ],
)
def test_what_is_no_affine_is_refused(numbers) -> None:
    with pytest.raises(MetadataError, match="affine is"):
        Affine.from_user(numbers)


def test_bounds_and_cells_of_a_rotated_grid() -> None:
    affine = Affine(3.0, 4.0, 100.0, 4.0, -3.0, 50.0)
    assert affine.cell == (5.0, 5.0)
    assert affine.bounds((2, 10)) == (100.0, 44.0, 138.0, 90.0)
    assert affine.coordinates((2, 10)) is None
    assert affine.scaled((2, 3)) == Affine(9.0, 8.0, 100.0, 12.0, -6.0, 50.0)


@pytest.mark.parametrize("affine", [UTM, Affine(3, 4, 100, 4, -3, 200)])
def test_places_and_cells_are_each_other_s_inverse(affine) -> None:
    columns, rows = np.meshgrid(np.arange(-2.0, 3), np.arange(4.0))
    for found, expected in zip(affine.cell_at(*affine.at(columns, rows)), (columns, rows), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    assert affine.moved(2, 5).at(0, 0) == affine.at(2, 5)
    assert affine.moved(2, 5).cell == affine.cell


def test_levels_share_the_corner_and_round_up() -> None:
    geo = GeoModel(None, UTM, (1095, 1093))
    level = geo.plan_level("r7", (7, 3))
    assert (level.shape, level.affine) == ((157, 365), Affine(30.0, 0.0, 300000.0, 0.0, -70.0, 5000040.0))
    assert (geo.bounds, geo.cell_size) == ((300000.0, 4989090.0, 310930.0, 5000040.0), (10.0, 10.0))
    y, x = level.affine.coordinates(level.shape)
    assert (y.dtype, y[0], x[0], len(y), len(x)) == (np.float64, 5000005.0, 300015.0, 157, 365)


@pytest.mark.parametrize("factors", [(0, 1), (1.5, 2), (True, 1)])
def test_factors_are_integers(factors) -> None:
    with pytest.raises(MetadataError, match="factors of level"):
        GeoModel(None, UTM, (8, 8)).plan_level("1", factors)


def test_variables_with_nan_for_nodata_are_equal() -> None:
    assert Variable(nodata=float("nan")) == Variable(nodata=float("nan"))
    assert Variable(nodata=float("nan")) != Variable(nodata=0.0)
    assert Variable(nodata=None) != Variable(nodata=0)
