"""What downsample refuses: types, factors, nodata and outputs that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zstore.geo.resampling.methods import downsample


@pytest.mark.parametrize(
    ("array", "method", "message"),
    [
        (np.zeros(4, "?"), "average", "'average' does not take data type bool"),
        (np.zeros(4, "M8[s]"), "average", "'average' does not take data type datetime64"),
        (np.zeros(4, "S4"), "mode", r"'mode' does not take data type \|S4"),
        (np.zeros(4, "?"), "sum", "'sum' does not take data type bool"),
        (np.zeros(4, "c8"), "max", "'max' does not take data type complex64"),
        (np.zeros(4, "c8"), "mode", "'mode' does not take data type complex64"),
        (np.zeros(4, "O"), "nearest", "Python objects"),
        (np.ma.masked_array([1, 2]), "nearest", "masked array"),
    ],
)
def test_types_a_method_cannot_take(array: np.ndarray, method: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        downsample(array, (2,), method)


@pytest.mark.parametrize("factors", [(2,), (2, 0), (2, -1), (2, 2, 2), (2, 1.5), 2, None, ("2", "2")])
def test_bad_factors(factors: Any) -> None:
    with pytest.raises(ValueError, match="factors"):
        downsample(np.zeros((4, 4)), factors)


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [
        ("u1", 256),
        ("u1", -1),
        ("i2", 0.5),
        ("i4", np.nan),
        ("u8", 2**64),
        ("f4", 1e39),
        ("f4", "x"),
        ("f4", [0.0, 1.0]),
        ("M8[s]", 0),
    ],
)
def test_nodata_that_the_type_cannot_hold(dtype: str, nodata: Any) -> None:
    with pytest.raises(ValueError, match="nodata"):
        downsample(np.zeros(4, dtype), (2,), "mode", nodata=nodata)


def test_nodata_of_a_float_is_rounded_to_its_type() -> None:
    array = np.array([0.1, 0.1, 2, 4], "f4")
    assert downsample(array, (4,), nodata=0.1)[0] == 3


def test_bad_options() -> None:
    array = np.zeros((4, 4), "i4")
    with pytest.raises(ValueError, match="threads"):
        downsample(array, (2, 2), threads=0)
    with pytest.raises(ValueError, match=r"out is a writable int32 of shape \(2, 3\)"):
        downsample(array, (2, 2), out=np.zeros((2, 3), "i4"))
    with pytest.raises(ValueError, match="float32"):
        downsample(array, (2, 2), out=np.zeros((2, 2), "f4"))
    fixed = np.zeros((2, 2), "i4")
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        downsample(array, (2, 2), out=fixed)
