"""Times and durations as in numpy: 64-bit counts of a unit, the lowest of which means "not a time".

Spec
    zarr-extensions, data types "numpy.datetime64" and "numpy.timedelta64"; Zarr v2, kinds "M" and "m".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.model.dtype import DataType, Order, refuse

UNITS = ("generic", "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
SCALE_LIMIT = 2**31 - 1
NOT_A_TIME = -(2**63)


class TimeFill:
    """Times: an integer count of the unit, or "NaT"."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(value, str) and value == "NaT":
            number = NOT_A_TIME
        if type(number) is not int or not NOT_A_TIME <= number < 2**63:
            raise refuse(value, dtype, 'an integer of 64 bits or "NaT"')
        return np.array([number], "i8").view(dtype)[0]

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        number = int(np.asarray(value, dtype).reshape(1).view("i8")[0])
        return "NaT" if number == NOT_A_TIME and zarr_format == 3 else number


class _Times:
    """The base of both types: a unit, and a multiple of it."""

    name: str
    kind: str

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        unit, scale = configuration.get("unit"), configuration.get("scale_factor")
        unit = "us" if unit == "μs" else unit
        if configuration.keys() != {"unit", "scale_factor"} or unit not in UNITS:
            raise MetadataError(
                f"configuration of data type {name!r} is {dict(configuration)!r}; "
                f"expected scale_factor and a unit of {', '.join(UNITS)}"
            )
        if type(scale) is not int or not 0 < scale <= SCALE_LIMIT:
            raise MetadataError(
                f"scale_factor of data type {name!r} is {scale!r}; expected an integer from 1 to 2^31-1"
            )
        return cls._make(unit, scale)

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        return cls._make(*np.datetime_data(dtype)) if dtype.kind == cls.kind else None

    @classmethod
    def _make(cls, unit: str, scale: int) -> DataType:
        # A generic unit has no multiples: numpy would ignore the 7 of "7generic".
        dtype = np.dtype(f"{cls.kind}8" if unit == "generic" else f"{cls.kind}8[{scale}{unit}]")
        default = np.array([NOT_A_TIME], "i8").view(dtype)[0]
        return DataType(cls.name, {"unit": unit, "scale_factor": scale}, dtype, TimeFill(), default=default)


class DateTime64(_Times):
    """Points in time, counted from 1970."""

    name = "numpy.datetime64"
    kind = "M"


class TimeDelta64(_Times):
    """Durations."""

    name = "numpy.timedelta64"
    kind = "m"
