"""Items of arrays as Arrow arrays: physical numbers, moments as timestamps, and null where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from zstore import Array
from zstore.errors import UnsupportedError
from zstore.plugin.conventions import TimeAxis, Variable, parse_variable
from zstore.plugin.nodes import decode

__all__ = ["Conversion", "conversion_of"]

Items = np.ndarray[Any, Any]

# Calendars whose moments Arrow's timestamps are.
GREGORIAN = ("standard", "gregorian", "proleptic_gregorian")
# The units of Arrow's timestamps and durations by those of numpy's; months and years have no one length.
UNITS = {"ns": "ns", "us": "us", "ms": "ms", **dict.fromkeys(("s", "m", "h", "D", "W"), "s")}
DATES = {**UNITS, **dict.fromkeys(("D", "W", "M", "Y"), "D")}


class Conversion(NamedTuple):
    """The Arrow type of the items of an array, and the function that makes an Arrow array of some of them.

    Shapes
        items (n); result n.
    """

    type: pa.DataType
    convert: Callable[[Items], pa.Array]


def conversion_of(name: str, array: Array, *, is_coordinate: bool = False) -> Conversion:
    """The conversion of an array's items, by its data type and attributes.

    is_coordinate  whether they are a dimension's coordinate, where only attributes make nodata

    Raises
        UnsupportedError: Arrow has no such type.
        MetadataError: they are counted from no moment, or in no calendar.
    """
    variable = parse_variable(array, None)[0]
    units = str(variable.units or "")
    if array.dtype.kind in "iuf" and (" since " in units or "%Y" in units):
        return _moments(name, array, units)
    if array.dtype.kind not in "iuf" and not _is_small(array.dtype):
        return _plain(name, array.dtype, array.model.data_type.name)
    missing = [] if variable.nodata is None else [variable.nodata, *variable.other_nodata]
    if is_coordinate and not {"_FillValue", "missing_value"} & set(array.attrs):
        missing = []
    return _numbers(name, array, variable, missing)


def _moments(name: str, array: Array, units: str) -> Conversion:
    """Counts of a unit since a moment: timestamps, in calendars of models the texts of dates (ISO 8601)."""
    calendar = str(array.attrs.get("calendar", "standard")).lower()
    own = {key: value for key, value in array.attrs.items() if key not in ("units", "calendar")}

    def axis(items: Items) -> TimeAxis:
        is_packed = "scale_factor" in own or "add_offset" in own
        return TimeAxis(name, decode(items, own) if is_packed else items, units, calendar, own)

    axis(np.zeros(0, array.dtype))  # raises for what is no unit or calendar
    if calendar not in GREGORIAN:
        return Conversion(pa.string(), lambda items: _dates(axis(items).dates()))
    kind = pa.timestamp("ns" if units.lower().startswith(("ns", "nano")) else "us")
    return Conversion(kind, lambda items: _timestamps(axis(items), kind))


def _dates(dates: Items) -> pa.Array:
    return pa.array([None if date is None else date.isoformat() for date in dates], pa.string())


def _timestamps(axis: TimeAxis, kind: pa.DataType) -> pa.Array:
    dates = axis.dates()
    if dates.dtype.kind == "M":
        return pa.array(dates).cast(kind)
    ticks, missing = axis.ticks()  # of dates before 1582, which are Julian
    return pa.array(ticks, pa.timestamp("us"), mask=missing).cast(kind)


def _numbers(name: str, array: Array, variable: Variable, missing: list[int | float]) -> Conversion:
    """Physical numbers: of packed ones float64, of all others their own type."""
    stored = array.dtype.newbyteorder("=")
    unsigned = {("i", "true"): "u", ("u", "false"): "i"}
    kind = unsigned.get((stored.kind, str(array.attrs.get("_Unsigned", "")).lower()), stored.kind)
    meant = np.dtype(f"{kind}{stored.itemsize}") if stored.kind in "iu" else stored
    if _is_small(stored):
        meant = np.dtype("i1" if "int" in stored.name else "f4")
    scale, offset = variable.scale_factor, variable.add_offset
    if scale is not None or offset is not None:
        meant = np.dtype("f8")
    fills = [fill for fill in missing if fill == fill]

    def convert(items: Items) -> pa.Array:
        items = items.astype(stored, copy=False)
        masks = [items == items.dtype.type(fill) for fill in fills]
        mask = reduce(np.logical_or, masks) if masks else None
        if kind != stored.kind:
            items = items.view(f"{kind}{stored.itemsize}")
        numbers = items.astype(meant, copy=scale is not None or offset is not None)
        if scale is not None:
            numbers *= scale
        if offset is not None:
            numbers += offset
        if meant.kind != "f":
            return pa.array(numbers, mask=mask)
        if mask is not None and mask.any():
            numbers = np.where(mask, meant.type("nan"), numbers)
        has_nan = np.isnan(numbers.min(initial=0))  # the least is NaN where any is
        return pa.array(numbers, from_pandas=bool(has_nan))  # NaN is null

    return Conversion(_plain(name, meant, "").type, convert)


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Whether numbers are of a type that numpy does not have, as bfloat16."""
    return dtype.kind == "V" and dtype.type is not np.void


def _plain(name: str, dtype: np.dtype[Any], stored: str) -> Conversion:
    """The conversion of items that are what they are stored as.

    stored  the name of the data type in Zarr v3
    """
    kind = dtype.kind
    native = dtype.newbyteorder("=") if kind in "iubf" else dtype
    if kind in "iub" or (kind == "f" and dtype.itemsize <= 8):
        return _of_type(pa.from_numpy_dtype(native), lambda items: items.astype(native, copy=False))
    if kind in "Mm" and (unit := (DATES if kind == "M" else UNITS).get(np.datetime_data(dtype)[0])):
        counted = np.dtype(f"{kind}8[{unit}]")
        return _of_type(pa.from_numpy_dtype(counted), lambda items: items.astype(counted))
    if kind in "UT" or stored == "string":
        return _of_type(pa.string(), lambda items: items.tolist())
    if kind == "S" or stored in ("bytes", "variable_length_bytes"):
        return _of_type(pa.binary(), lambda items: items.tolist())
    if kind == "c" and dtype.itemsize <= 16:
        real = np.dtype(f"f{dtype.itemsize // 2}")
        return _struct({"real": (real, lambda items: items.real), "imag": (real, lambda items: items.imag)})
    if dtype.names is not None:
        fields = {field: (dtype[field], partial(_field, field)) for field in dtype.names}
        return _struct(fields, name)
    if dtype.type is np.void and dtype.subdtype is None:
        return _of_type(pa.binary(dtype.itemsize), lambda items: [item.tobytes() for item in items])
    raise UnsupportedError(
        f"{name!r} has the data type {stored or dtype}, for which Arrow has none; expected other arrays=[...]"
    )


def _of_type(made: pa.DataType, items_of: Callable[[Items], Any]) -> Conversion:
    return Conversion(made, lambda items: pa.array(items_of(items), made))


def _field(name: str, items: Items) -> Items:
    field: Items = items[name]
    return field


def _struct(
    fields: Mapping[str, tuple[np.dtype[Any], Callable[[Items], Items]]], name: str = ""
) -> Conversion:
    members = {field: _plain(f"{name}.{field}", dtype, "") for field, (dtype, _) in fields.items()}
    made = pa.struct({field: member.type for field, member in members.items()})

    def convert(items: Items) -> pa.Array:
        arrays = [
            members[field].convert(np.ascontiguousarray(part(items))) for field, (_, part) in fields.items()
        ]
        return pa.StructArray.from_arrays(arrays, fields=[*made])

    return Conversion(made, convert)
