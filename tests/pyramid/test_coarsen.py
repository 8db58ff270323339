"""Coarser views: equal to `downsample` of the whole array in any box, with grid, nodata and coordinates."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import UnknownExtensionError, UnsupportedError

PLACE = {"proj:code": "EPSG:32632", "spatial:transform": [10.0, 0.0, 600000.0, 0.0, -10.0, 5300000.0]}


def _cube(path: Path, dtype: str = "i2", nodata: Any = -1) -> Any:
    group = zstore.create_group(path)
    data = np.random.default_rng(0).integers(0, 50, (2, 53, 47)).astype(dtype)
    data[:, 10:20, 5:30] = nodata
    said = {**PLACE, "spatial:dimensions": ["y", "x"], "_FillValue": nodata, "units": "K"}
    group.create_array(
        "t", data=data, chunks=(1, 16, 16), dimension_names=("time", "y", "x"), attributes=said
    )
    group.create_array(
        "time", data=np.arange(2), dimension_names=("time",), attributes={"units": "days since 2020-01-01"}
    )
    return group["t"]


@pytest.mark.parametrize("method", ["nearest", "average", "mode", "max", "med", "bilinear", "lanczos"])
@pytest.mark.parametrize(
    ("factors", "each"),
    [
        (3, (1, 3, 3)),
        ((4, 2), (1, 4, 2)),
        ((2, 2, 5), (2, 2, 5)),
        ({"x": 2, "time": 2}, (2, 1, 2)),
    ],
)
def test_any_box_is_that_of_the_whole_downsampled(
    tmp_path: Path, method: str, factors: Any, each: tuple[int, ...]
) -> None:
    array = _cube(tmp_path / "a")
    expected = zstore.downsample(array[:], each, method, nodata=-1)
    made = zstore.coarsen(array, factors, method)
    assert made.shape == expected.shape
    np.testing.assert_array_equal(made.read(), expected)
    again = pickle.loads(pickle.dumps(made))
    for box in (np.s_[0, 3:9, 2:5], np.s_[-1, ::-2, 1], np.s_[:, :0], np.s_[..., -1:]):
        np.testing.assert_array_equal(again[box].read(), expected[box])


def test_the_grid_grows_and_other_coordinates_stay(tmp_path: Path) -> None:
    array = _cube(tmp_path / "a")
    group: Any = zstore.convert(zstore.coarsen(array.lazy[:, 1:], 4) * 2.0, tmp_path / "b")
    assert tuple(zstore.GeoGrid.of(group).affine) == (40, 0, 600000, 0, -40, 5299990)
    assert group["time"][...].tolist() == [0, 1] and group["t"].shape == (2, 13, 12)
    assert "time" not in zstore.coarsen(array, (2, 1, 1)).carried.coordinates  # type: ignore[attr-defined]
    stored: Any = zstore.convert(zstore.coarsen(array, 4), tmp_path / "c", resume=True)
    assert (stored["t"].attrs["units"], stored["t"].fill_value) == ("K", -1)
    line = zstore.create_array(tmp_path / "line", data=np.arange(7.0))
    assert zstore.coarsen(line, [2]).read().tolist() == [0.5, 2.5, 4.5, 6.0]


@pytest.mark.parametrize(
    ("factors", "method", "error", "match"),
    [
        (0, "average", ValueError, "factor"),
        ((2, 2, 2, 2), "average", ValueError, "expected one, two of rows and columns, or 3, for"),
        ({"z": 2}, "average", ValueError, "factors name 'z'; the dimensions are time, y, x"),
        ({"y": -2}, "average", ValueError, "factor"),
        (2, "no", UnknownExtensionError, "'no'"),
    ],
)
def test_what_does_not_go_is_refused_at_once(
    tmp_path: Path, factors: Any, method: str, error: Any, match: str
) -> None:
    with pytest.raises(error, match=match):
        zstore.coarsen(_cube(tmp_path / "a"), factors, method)


def test_types_and_masks_that_it_does_not_take(tmp_path: Path) -> None:
    text = zstore.create_array(tmp_path / "t", data=np.array([["a", "b"]]))
    with pytest.raises(TypeError):
        zstore.coarsen(text, 2)
    made = zstore.create_group(tmp_path / "m")
    for name, said in (("b", {}), ("mask", {"flag_values": [0, 255], "flag_meanings": "invalid valid"})):
        attributes = {**PLACE, "spatial:dimensions": ["y", "x"], **said}
        made.create_array(
            name, data=np.zeros((4, 4), "u1"), dimension_names=("y", "x"), attributes=attributes
        )
    with pytest.raises(UnsupportedError, match="has a mask"):
        zstore.coarsen(made, 2)
