"""Packing as codecs in place of attributes: arrays of floats, stored as packed integers.

Spec: zarr-extensions, codecs "scale_offset" and "cast_value"; CF 1.11 §8.1, whose attributes they stand for.
Example: [{"name": "scale_offset", "configuration": {"offset": 273.15, "scale": 100.0}},
          {"name": "cast_value", "configuration": {"data_type": "int16"}}]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from zstore.errors import MetadataError
from zstore.model.dtype import DataType

Packing: TypeAlias = Literal["attributes", "codecs"]
PACKINGS: tuple[Packing, ...] = ("attributes", "codecs")
# How far a float may be off to come back as the same integer, in packed steps.
NEAR = 0.25


class PackedVariable(Protocol):
    """The facts about a variable that say how it is packed."""

    @property
    def dtype(self) -> np.dtype[Any] | None: ...
    @property
    def nodata(self) -> int | float | None: ...
    @property
    def scale_factor(self) -> float | None: ...
    @property
    def add_offset(self) -> float | None: ...
    @property
    def valid_range(self) -> tuple[float, float] | None: ...


V = TypeVar("V", bound=PackedVariable)


class Packed(NamedTuple, Generic[V]):
    """A variable whose packing is in codecs.

    variable    what its values mean now: floats, NaN where there is nothing, no packing
    filters     the codecs, as configurations
    fill_value  what the array holds where no chunk is
    stored      the type and the nodata that the floats are stored as
    """

    variable: V
    filters: list[dict[str, Any]]
    fill_value: float
    stored: V

    def unpack(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The physical numbers of stored integers, as floats."""
        floats = values.astype(np.float64)
        floats *= _number(self.stored.scale_factor, 1.0)
        floats += _number(self.stored.add_offset, 0.0)
        if self.stored.nodata is not None:
            floats[values == self.stored.nodata] = np.nan
        return floats.astype(self.variable.dtype)


def check_packing_kind(packing: str, zarr_format: int) -> None:
    """Check that there is a packing of this kind, and in this format.

    Raises
        MetadataError: there is no such packing, or none in that format.
    """
    if packing not in PACKINGS:
        raise MetadataError(f"packing is {packing!r}; expected one of {', '.join(PACKINGS)}")
    if packing == "codecs" and zarr_format != 3:
        raise MetadataError(f"packing by codecs is Zarr v3's; zarr_format is {zarr_format}")


def pack_by_codecs(variable: V) -> Packed[V] | None:
    """The variable with its packing in codecs; None if nothing is packed into integers.

    Raises
        MetadataError: no float tells all the integers apart that the packing tells apart.
    """
    dtype = variable.dtype
    is_packed = variable.scale_factor is not None or variable.add_offset is not None
    if not is_packed or dtype is None or dtype.kind not in "iu":
        return None
    scale, offset = _number(variable.scale_factor, 1.0), _number(variable.add_offset, 0.0)
    nodata = variable.nodata
    mapping = {} if nodata is None else {"encode": [["NaN", nodata]], "decode": [[nodata, "NaN"]]}
    cast: dict[str, Any] = {"data_type": DataType.from_numpy(dtype).name, "rounding": "nearest-even"}
    filters: list[dict[str, Any]] = [
        {"name": "scale_offset", "configuration": {"offset": offset, "scale": 1 / scale}},
        {"name": "cast_value", "configuration": cast | ({"scalar_map": mapping} if mapping else {})},
    ]
    limits = variable.valid_range
    valid = None if limits is None else sorted(n * scale + offset for n in limits)
    made: V = replace(  # type: ignore[type-var]
        variable,
        dtype=_float_for(dtype, scale, offset),
        nodata=None if nodata is None else float("nan"),
        scale_factor=None,
        add_offset=None,
        valid_range=None if valid is None else (valid[0], valid[1]),
    )
    return Packed(made, filters, offset if nodata is None else float("nan"), variable)


def _number(stated: float | None, neutral: float) -> float:
    return neutral if stated is None else float(stated)


def _float_for(dtype: np.dtype[Any], scale: float, offset: float) -> np.dtype[Any]:
    """The smallest float that tells all packed numbers apart."""
    ends = np.iinfo(dtype)
    largest = max(abs(int(end) * scale + offset) for end in (ends.min, ends.max)) + abs(offset)
    for candidate in (np.float32, np.float64):
        # The offset is taken off, and the rest divided: each rounds once.
        if largest < np.finfo(candidate).max and 2 * largest * np.finfo(candidate).eps < NEAR * abs(scale):
            return np.dtype(candidate)
    raise MetadataError(
        f"no float tells the packed values of {dtype} apart, scale_factor {scale!r}, add_offset {offset!r}; "
        "expected packing='attributes'"
    )
