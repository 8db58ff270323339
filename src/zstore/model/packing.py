"""Packed numbers: from stored numbers to physical ones by the attributes of their array, and back.

Spec: CF 1.11 §2.5.1 (missing data), §8.1 (packed data); NetCDF Users Guide, attribute conventions.
Example: {"scale_factor": 0.01, "add_offset": 40.0, "_FillValue": -32768, "units": "degrees_north"}
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import MetadataError

SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SCALING = ("scale_factor", "add_offset")
FILLS = ("_FillValue", "missing_value")
# The attributes that only say how numbers are stored.
PACKING = (*SCALING, *FILLS, "_Unsigned")

# Shorter means of unit vectors are what rounding, to float32 too, leaves of vectors that cancel each other.
LEAST_VECTOR = 1e-6

# Words of standard names whose values are angles along a whole circle.
CIRCULAR = frozenset(("direction", "azimuth", "course", "orientation", "phase"))


def is_circular(standard_name: Any) -> bool:
    """Whether a standard name means angles on a whole circle, as wind_from_direction does."""
    return bool(CIRCULAR.intersection(str(standard_name).split("_")))


class Packing(NamedTuple):
    """The rule of packed numbers: number = stored · scale + offset; `nodata`, `others`, NaN are missing."""

    nodata: int | float | None = None
    scale: float = 1.0
    offset: float = 0.0
    others: tuple[int | float, ...] = ()

    @classmethod
    def parse(
        cls, attributes: Mapping[str, Any], dtype: np.dtype[Any], fill_value: Any, zarr_format: int
    ) -> Packing:
        """The packing of an array, from its attributes, data type and fill value.

        Raises
            MetadataError: scale, offset or nodata is invalid.
        """
        fills = parse_fills(attributes, dtype)
        for fill in fills.values():
            if isinstance(fill, MetadataError):
                raise fill
        scale, offset = parse_packing(attributes)
        nodata = choose_nodata(attributes, dtype, fill_value, zarr_format, fills)
        others = tuple(distinct_fills(fills).values())[1:]
        return cls(nodata, 1.0 if scale is None else scale, 0.0 if offset is None else offset, others)


class Circle(NamedTuple):
    """A whole circle in stored numbers, for directions and phases: its length, and its first number.

    Their mean is the direction of the sum of their unit vectors: of 350 and 10 degrees it is 0.
    """

    turn: float
    first: float

    def vectors(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The unit vectors of numbers, as complex128; NaN has NaN."""
        made: np.ndarray[Any, Any] = np.exp(numbers.astype(np.float64) * (2j * math.pi / self.turn))
        return made

    def numbers(self, vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The stored numbers (float64) of means of unit vectors; NaN where these cancel each other out."""
        made = self.first + (np.angle(vectors) * (self.turn / (2 * math.pi)) - self.first) % self.turn
        made = np.where(made >= self.first + self.turn, self.first, made)
        return np.where(np.abs(vectors) > LEAST_VECTOR, made, np.nan)


def fit_nodata(value: Any, dtype: np.dtype[Any] | None) -> int | float:
    """`value` as a scalar of the stored type.

    Raises
        MetadataError: the type cannot hold it.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise MetadataError(f"nodata is {value!r}; expected a number")
    if isinstance(value, int) and abs(value) > 2**64:
        raise MetadataError(f"nodata is {value!r}; expected a number of 64 bits")
    if dtype is None:
        return value.item() if isinstance(value, np.generic) else value
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            fitted = float(dtype.type(value))
        if math.isfinite(value) and not math.isfinite(fitted):
            raise MetadataError(f"nodata is {value!r}; expected a value that {dtype.name} can hold")
        return fitted
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not math.isfinite(value) or int(value) != value or not limits.min <= value <= limits.max:
            raise MetadataError(
                f"nodata is {value!r}; expected an integer from {limits.min} to {limits.max} ({dtype.name})"
            )
        return int(value)
    raise MetadataError(f"nodata is {value!r}; {dtype.name} arrays have none that zstore knows")


def render_nodata(
    value: int | float, dtype: np.dtype[Any], zarr_format: int, others: Sequence[int | float] = ()
) -> dict[str, Any]:
    """The attributes for nodata: `_FillValue` as xarray reads it, and `missing_value` beside base64.

    `others` are further values of nodata, which `missing_value` lists.

    JSON has no NaN: of floats in Zarr v3, xarray wants the base64 of a little-endian float64, and
    `missing_value` is the plain number for all other readers. In Zarr v2, xarray takes the array's own fill
    value, and nothing is stated of a value that is not finite.
    """
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if dtype.kind == "f" and zarr_format == 3:
        encoded = base64.standard_b64encode(struct.pack("<d", value)).decode("ascii")
        made: dict[str, Any] = {"_FillValue": encoded}
        listed = [*([value] if is_finite else []), *others]
    else:
        made, listed = {"_FillValue": value} if is_finite else {}, [*others]
    return {**made, "missing_value": listed if len(listed) > 1 else listed[0]} if listed else made


def decode_fill(value: Any, dtype: np.dtype[Any] | None) -> int | float:
    """The nodata in a `_FillValue` or `missing_value` attribute, in any of the forms in use.

    Raises
        MetadataError: it is no value of the type.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        if value in SPECIAL_FLOATS:
            value = SPECIAL_FLOATS[value]
        else:
            try:
                (value,) = struct.unpack("<d", base64.b64decode(value, validate=True))
            except (binascii.Error, struct.error, ValueError) as error:
                raise MetadataError(
                    f"_FillValue is {value!r}; expected a number or base64 of 8 bytes"
                ) from error
    return fit_nodata(value, dtype)


def parse_fills(
    attributes: Mapping[str, Any], dtype: np.dtype[Any]
) -> dict[str, int | float | MetadataError]:
    """The nodata of `_FillValue` and `missing_value` by attribute; an error for one that the type lacks.

    Further values of `missing_value` are "missing_value[1]" and so on.
    """
    fills: dict[str, int | float | MetadataError] = {}
    for name in FILLS:
        stated = attributes.get(name)
        values = stated if isinstance(stated, (list, tuple)) and len(stated) > 1 else [stated]
        for place, value in enumerate(values if name == "missing_value" else [stated]):
            if value is not None:
                try:
                    fills[f"{name}[{place}]" if place else name] = decode_fill(value, dtype)
                except MetadataError as error:
                    fills[name] = error
    return fills


def distinct_fills(fills: Mapping[str, int | float | MetadataError]) -> dict[str, int | float]:
    """The different nodata numbers, by the first attribute that has each; NaN always is nodata."""
    found: dict[str, int | float] = {}
    for name, fill in fills.items():
        if not isinstance(fill, MetadataError) and not math.isnan(fill) and fill not in found.values():
            found[name] = fill
    return found


def with_one_nodata(
    items: np.ndarray[Any, Any], nodata: Any, others: Sequence[int | float] = ()
) -> np.ndarray[Any, Any]:
    """`items` with `nodata` in the place of `others`, and of NaN; the same array where there are none.

    Without a nodata, NaN alone is one, and the items stay as they are.
    """
    if nodata is None:
        return items
    # The least of items is NaN where any is, which takes a third of the time of a mask.
    has_nan = items.dtype.kind == "f" and nodata == nodata and np.isnan(items.min(initial=0))
    if not (others or has_nan):
        return items
    missing = np.isnan(items) if has_nan else np.zeros(items.shape, bool)
    for other in others:
        missing |= items == items.dtype.type(other)
    return np.where(missing, items.dtype.type(nodata), items) if missing.any() else items


def choose_nodata(
    attributes: Mapping[str, Any],
    dtype: np.dtype[Any],
    fill_value: Any,
    zarr_format: int,
    fills: Mapping[str, int | float | MetadataError],
) -> int | float | None:
    """The nodata of an array, None if it has none; `fills` come from `parse_fills`.

    `_FillValue`, then `missing_value` (a number before NaN, which is nodata in any case), odc-geo's `nodata`,
    and the array's `fill_value` as far as it means nodata: any in Zarr v2 (so read xarray and GDAL), NaN in
    v3, and any in v3 where GDAL alone described the array.
    """
    for fill in (*distinct_fills(fills).values(), *fills.values()):
        if not isinstance(fill, MetadataError):
            return fill
    if isinstance(attributes.get("nodata"), (int, float)):
        # odc-geo's word for it, which others may mean otherwise.
        with suppress(MetadataError):
            return fit_nodata(attributes["nodata"], dtype)
    if fill_value is None or dtype.kind not in "iuf":
        return None
    is_nan = dtype.kind == "f" and bool(np.isnan(fill_value))
    is_gdals = "_CRS" in attributes and "grid_mapping" not in attributes
    return fit_nodata(fill_value, dtype) if zarr_format == 2 or is_nan or is_gdals else None


def check_packing(name: str, number: Any) -> None:
    """Check that a number is usable as the attribute `name`, `scale_factor` or `add_offset`.

    Raises
        MetadataError: it is not finite, or a scale of 0.
    """
    if (
        isinstance(number, (bool, str))
        or not math.isfinite(number)
        or (name == "scale_factor" and number == 0)
    ):
        raise MetadataError(f"{name} is {number!r}; expected a finite number, and a scale other than 0")


def parse_packing(attributes: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """(scale_factor, add_offset), None for an attribute that is missing.

    Raises
        MetadataError: one of them is no number to pack by.
    """
    return packing_number(attributes, "scale_factor"), packing_number(attributes, "add_offset")


def packing_number(attributes: Mapping[str, Any], name: str) -> float | None:
    """The `scale_factor` or `add_offset` of attributes; None if it is missing.

    A list of one number counts as the number.

    Raises
        MetadataError: it is no number to pack by.
    """
    number: Any = attributes.get(name)
    if isinstance(number, (list, tuple)) and len(number) == 1:
        number = number[0]
    if name not in attributes:
        return None
    try:
        check_packing(name, number)
        return float(number)
    except (OverflowError, TypeError, ValueError) as error:
        expected = "expected a finite number, and a scale other than 0"
        raise MetadataError(f"{name} is {number!r}; {expected}") from error


def quantum(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> float:
    """The step between neighbouring packed numbers, decoded; 0 if numbers are not packed into integers."""
    scale, _ = parse_packing(attributes)
    return abs(scale) if scale is not None and dtype.kind in "iu" else 0.0


def decode(stored: np.ndarray[Any, Any], attributes: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The physical numbers of stored ones.

    Missing ones are NaN. What is neither packed nor missing keeps its type, so that counts stay exact; all
    else is float64. As `xarray.decode_cf` reads them, which may round them to float32.

    Raises
        MetadataError: the packing, or what stands for missing values, is none.
    """
    if stored.dtype.kind not in "iuf":
        return stored
    numbers = stored.view(meant_type(stored.dtype, attributes))
    scale, offset = parse_packing(attributes)
    missing = np.zeros(numbers.shape, bool)
    for fill in meant_fills(stored.dtype, attributes):
        missing |= numbers == fill
    if scale is None and offset is None and not missing.any():
        return numbers
    decoded = numbers.astype(np.float64)
    decoded[missing] = np.nan
    decoded *= 1.0 if scale is None else scale
    decoded += 0.0 if offset is None else offset
    return decoded


def encode(
    numbers: np.ndarray[Any, Any], attributes: Mapping[str, Any], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """`numbers` packed by the attributes, each to the nearest that `dtype` can hold; inverse of `decode`."""
    scale, offset = parse_packing(attributes)
    packed = (numbers - (offset or 0.0)) / (1.0 if scale is None else scale)
    signed = meant_type(dtype, attributes)
    if signed.kind in "iu":
        limits = np.iinfo(signed)
        packed = np.clip(np.rint(packed), limits.min, limits.max)
    return packed.astype(signed).view(dtype)


def meant_type(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> np.dtype[Any]:
    """The data type of the numbers: `_Unsigned` turns integers into unsigned or signed ones."""
    unsigned = str(attributes.get("_Unsigned", "")).lower()
    kinds = {("i", "true"): "u", ("u", "false"): "i"}
    kind = kinds.get((dtype.kind, unsigned))
    return dtype if kind is None else np.dtype(f"{dtype.byteorder}{kind}{dtype.itemsize}")


def meant_fills(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> list[int | float]:
    """The numbers that mark missing values, in the data type of `meant_type`; NaN always does."""
    fills, signed = [], meant_type(dtype, attributes)
    for name in FILLS:
        stored = attributes.get(name)
        for value in stored if isinstance(stored, (list, tuple)) else [] if stored is None else [stored]:
            try:
                fill = np.array(decode_fill(value, dtype), dtype).view(signed).item()
            except MetadataError:
                if signed is dtype:
                    raise
                fill = decode_fill(value, signed)
            fills.append(fill)
    return fills
