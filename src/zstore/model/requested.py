"""What callers of `create_array` ask for: data types and fill values, in the forms people have at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.dtype import DataType
from zstore.model.order import Order, order_of
from zstore.model.typestr import OBJECT_CODECS

__all__ = ["make_data_type", "make_fill_value"]


def make_data_type(dtype: Any, codecs: Iterable[str], zarr_format: int) -> tuple[DataType, Order]:
    """The data type that `dtype` names, and the byte order to store it in.

    `str` and `bytes` (numpy's "U" and "S" without a length) are strings and bytes of any length; `object` is
    what the object codec among the names `codecs` encodes. What numpy does not know is a name of Zarr v3.

    Raises
        MetadataError: None, which numpy takes for float64.
        UnsupportedError: no dtype that zstore has, or objects without a codec for them.
    """
    if dtype is None:
        raise MetadataError("dtype is None; expected a dtype, which numpy would otherwise take for float64")
    if isinstance(dtype, DataType):
        return dtype, _stored_order(dtype, "little")
    if isinstance(dtype, Mapping) and "name" in dtype:
        named = DataType.from_name(dtype)
        return named, _stored_order(named, "little")
    try:
        given = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        if not isinstance(dtype, str):
            raise UnsupportedError(f"dtype {dtype!r} is not supported: {error}") from None
        named = DataType.from_name(dtype)
        return named, _stored_order(named, "little")
    if given.kind == "O":
        return _object_type(codecs), None
    if given.kind in "SU" and not given.itemsize:
        return DataType.from_name("string" if given.kind == "U" else "bytes"), None
    order = order_of(given)
    data_type = DataType.from_numpy(given)
    # Zarr v3 has one order for all fields.
    return data_type, "little" if isinstance(order, list) and zarr_format == 3 else order


def _stored_order(data_type: DataType, order: str) -> Order:
    return None if data_type.is_object or order_of(data_type.numpy) is None else order


def _object_type(codecs: Iterable[str]) -> DataType:
    for name in codecs:
        known = OBJECT_CODECS.get(name.removeprefix("numcodecs."))
        if known is not None:
            return DataType.restore(known)
    raise UnsupportedError(
        "dtype object does not say what its items are; expected str, bytes, "
        f"or a codec for objects: {', '.join(OBJECT_CODECS)}"
    )


def make_fill_value(value: Any, data_type: DataType, zarr_format: int) -> Any:
    """The scalar that a caller's fill value means; "auto" is the default of the type.

    Raises
        MetadataError: not a value of the type, or one that would be changed on the way.
    """
    if isinstance(value, str) and value == "auto":
        return data_type.default_fill()
    if value is None:
        return None if zarr_format == 2 else data_type.default_fill()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if data_type.is_object:
        return _make_object(value, data_type)
    dtype = data_type.numpy
    if isinstance(value, np.generic) and value.dtype == dtype:
        return value
    if dtype.kind in "Mm":
        return _make_time(value, data_type, zarr_format)
    if dtype.names is not None and isinstance(value, tuple | Mapping | np.void):
        return _make_struct(value, dtype)
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        value = value.item()
    if dtype.kind == "S" or dtype.type is np.void:
        return _make_bytes(value, data_type, zarr_format)
    if dtype.kind == "b" and not isinstance(value, bool) and value in (0, 1):
        value = bool(value)
    elif dtype.kind in "cW" and isinstance(value, int | float | complex):
        value = [complex(value).real, complex(value).imag]
    elif dtype.kind == "U" and isinstance(value, int) and value == 0:
        value = ""
    return data_type.parse_fill(value, zarr_format)


def _refusal(value: Any, data_type: DataType, expected: str) -> MetadataError:
    return MetadataError(f"fill_value is {value!r}; expected {expected} for data type {data_type.name}")


def _make_object(value: Any, data_type: DataType) -> Any:
    if data_type.name == "string":
        return data_type.parse_fill("" if type(value) is int and value == 0 else value, 3)
    if data_type.name == "bytes":
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise _refusal(value, data_type, "bytes")
    return value


def _make_bytes(value: Any, data_type: DataType, zarr_format: int) -> Any:
    """Of "S", text of ASCII is taken too; of raw bytes and structured items, what documents hold."""
    if data_type.numpy.kind == "S" and isinstance(value, str) and value.isascii():
        value = value.encode()
    if isinstance(value, np.void):
        value = value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        value = list(bytes(value))
        if data_type.numpy.names is not None:
            if len(value) != data_type.numpy.itemsize:
                raise _refusal(bytes(value), data_type, f"{data_type.numpy.itemsize} bytes")
            return np.frombuffer(bytes(value), data_type.numpy)[0]
    elif type(value) is int and value == 0:
        return np.zeros(1, data_type.numpy)[0]
    return data_type.parse_fill(value, zarr_format)


def _make_time(value: Any, data_type: DataType, zarr_format: int) -> Any:
    dtype = data_type.numpy
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    # Nothing without a unit of its own reaches numpy, which no longer likes that.
    if isinstance(value, str) and value.lower() in ("nat", ""):
        return data_type.parse_fill("NaT", zarr_format)
    is_count = isinstance(value, np.integer) and not isinstance(value, np.timedelta64)
    if dtype.kind == "m":
        is_count |= isinstance(value, bool) or (isinstance(value, str) and value.lstrip("+-").isdecimal())
    if is_count:
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return data_type.parse_fill(value, zarr_format)
    if isinstance(value, list | tuple | np.ndarray):
        raise _refusal(value, data_type, "a time")
    try:
        given = np.asarray(value, None if isinstance(value, np.generic) else dtype.kind + "8")
    except (TypeError, ValueError) as error:
        raise _refusal(value, data_type, f"a time ({error})") from None
    if given.dtype.kind != dtype.kind:
        raise _refusal(value, data_type, "a time")
    made = given.astype(dtype)
    if not np.isnat(given) and (np.isnat(made) or made.astype(given.dtype) != given):
        raise _refusal(value, data_type, f"a whole number of the unit of {dtype}")
    return made[()]


def _make_struct(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, np.void) and value.dtype.names != dtype.names:
        raise MetadataError(f"fill_value has the fields {value.dtype.names}; expected {dtype.names}")
    try:
        if isinstance(value, np.void):
            return np.asarray(value).astype(dtype)[()]
        return np.array([_as_tuple(value, dtype)], dtype)[0]
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise MetadataError(f"fill_value is {value!r}; expected a value for {dtype}: {error}") from None


def _as_tuple(value: Any, dtype: np.dtype[Any]) -> Any:
    """Mappings by field name become tuples, all the way down."""
    if not isinstance(value, Mapping) or dtype.names is None:
        return value
    if value.keys() != set(dtype.names):
        raise KeyError(f"fields {sorted(value)}")
    assert dtype.fields is not None
    return tuple(_as_tuple(value[name], dtype.fields[name][0]) for name in dtype.names)
