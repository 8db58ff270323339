"""Files of NetCDF and stores compared with what they were made of: all that is in them, as it is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zstore

netCDF4 = pytest.importorskip("netCDF4", reason="files are compared by netCDF4")


def same_value(found: Any, expected: Any) -> bool:
    if isinstance(expected, str) or isinstance(found, str):
        return bool(found == expected)
    found, expected = np.asarray(found), np.asarray(expected)
    return found.shape == expected.shape and np.array_equal(
        found, expected, equal_nan=expected.dtype.kind == "f"
    )


def compare_files(found: Any, expected: Any) -> None:
    assert set(found.ncattrs()) - {"_zarr"} == set(expected.ncattrs()) - {"_zarr"}
    for name in expected.ncattrs():
        assert same_value(found.getncattr(name), expected.getncattr(name)), name
    used = {name for one in expected.variables.values() for name in one.dimensions}
    for name, one in expected.dimensions.items():
        if name in used or expected.groups:
            there = found.dimensions[name]
            assert (len(there), there.isunlimited()) == (len(one), one.isunlimited()), name
    assert found.variables.keys() == expected.variables.keys()
    for name, one in expected.variables.items():
        there = found.variables[name]
        for side in (one, there):
            side.set_auto_maskandscale(False)
            side.set_auto_chartostring(False)
        assert there.dimensions == one.dimensions, name
        kinds = (np.dtype(side.dtype).newbyteorder("=") for side in (there, one))
        assert len({str(kind) for kind in kinds}) == 1, name
        flags = {"flag_values", "flag_meanings"} if isinstance(one.datatype, netCDF4.EnumType) else set()
        assert set(there.ncattrs()) == {*one.ncattrs(), *flags}, name
        for key in one.ncattrs():
            assert same_value(there.getncattr(key), one.getncattr(key)), (name, key)
        np.testing.assert_array_equal(there[...], one[...], err_msg=name)
    assert found.groups.keys() == expected.groups.keys()
    for name, one in expected.groups.items():
        compare_files(found.groups[name], one)


def compare_stores(found: zstore.Group, expected: zstore.Group) -> None:
    assert dict(found.attrs) == dict(expected.attrs)
    there, wanted = dict(found.members(None)), dict(expected.members(None))
    assert there.keys() == wanted.keys()
    for name, one in wanted.items():
        other = there[name]
        assert dict(other.attrs) == dict(one.attrs), name
        if isinstance(one, zstore.Array):
            assert isinstance(other, zstore.Array)
            assert (other.shape, other.dtype, other.dims) == (one.shape, one.dtype, one.dims), name
            fills = [np.asarray(side.fill_value) for side in (other, one)]
            assert str(fills[0]) == str(fills[1]) and fills[0].dtype == fills[1].dtype, name
            np.testing.assert_array_equal(other[...], one[...], err_msg=name)
