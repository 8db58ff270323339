"""Structured data types: named fields, stored one after the other without gaps.

In Zarr v2, not in v3, fields can be arrays themselves; such a field has a "shape" in the configuration.

Spec
    zarr-extensions, data types "struct" and "structured" (how zarr-python wrote it before); Zarr v2, "Data
    type encoding".
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.dtype import DataType, Order, check_item_size, parse_bytes, refuse, stored_dtype

DEPTH_LIMIT = 32
LEGACY = "structured"


class Field(NamedTuple):
    """One field; `shape` is () except for v2's fields that are arrays."""

    name: str
    data_type: DataType
    shape: tuple[int, ...] = ()

    @property
    def numpy(self) -> Any:
        """The field as an entry of a numpy dtype."""
        return (
            (self.name, self.data_type.numpy, self.shape) if self.shape else (self.name, self.data_type.numpy)
        )


class StructFill:
    """Structured items: {"field": fill value, …} in v3; Base64 of the stored bytes in v2 and in older v3.

    Forms of other writers are read, too: a list in the order of the fields, and 0 for zero bytes.
    """

    def __init__(self, fields: Sequence[Field], *, is_legacy: bool) -> None:
        self._fields = fields
        self._is_legacy = is_legacy

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if isinstance(value, str):
            raw = parse_bytes(value, dtype)
            if len(raw) != dtype.itemsize:
                raise refuse(value, dtype, f"{dtype.itemsize} bytes in Base64")
            return np.frombuffer(raw, stored_dtype(dtype, order or "little")).astype(dtype)[0]
        if type(value) is int and value == 0:
            return np.zeros(1, dtype)[0]
        names = [field.name for field in self._fields]
        if isinstance(value, list) and len(value) == len(names):
            value = dict(zip(names, value, strict=True))
        if not isinstance(value, dict) or value.keys() != set(names):
            raise refuse(value, dtype, f"an object with a value for each of {names}")
        orders = order if isinstance(order, list) else [order] * len(names)
        raw = b"".join(
            _parse_field_fill(field, value[field.name], zarr_format, part)
            for field, part in zip(self._fields, orders, strict=True)
        )
        return np.frombuffer(raw, dtype)[0]

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if zarr_format == 2 or self._is_legacy:
            stored = np.asarray(value, dtype).reshape(1).astype(stored_dtype(dtype, order or "little"))
            return base64.b64encode(stored.tobytes()).decode()
        return {
            field.name: field.data_type.render_fill(value[field.name], zarr_format, order)
            for field in self._fields
        }


def _parse_field_fill(field: Field, value: Any, zarr_format: int, order: Order) -> bytes:
    """Parse the fill value of one field to its bytes; a single value stands for all items of the field."""
    count = prod(field.shape)
    items = [value] * count
    if field.shape and isinstance(value, list):
        items = _flatten(value, len(field.shape))
    scalars = [field.data_type.parse_fill(item, zarr_format, order) for item in items]
    if len(items) != count or any(scalar is None for scalar in scalars):
        raise refuse(value, field.data_type.name, f"{count} values in field {field.name!r}, each")
    return b"".join(np.asarray(scalar, field.data_type.numpy).tobytes() for scalar in scalars)


def _flatten(value: list[Any], depth: int) -> list[Any]:
    if depth == 1:
        return value
    parts = [_flatten(item, depth - 1) if isinstance(item, list) else [item] for item in value]
    return [item for part in parts for item in part]


class Struct:
    """Makes structured data types from a list of fields."""

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        return _parse_struct(name, configuration, 0)

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        if dtype.names is None:
            return None
        return _make(_fields_of(dtype), "struct")


def _parse_struct(name: str, configuration: Mapping[str, Any], depth: int) -> DataType:
    if depth == DEPTH_LIMIT:
        raise MetadataError(f"data type {name!r} has fields nested more than {DEPTH_LIMIT} deep")
    items = configuration.get("fields")
    if configuration.keys() != {"fields"} or not isinstance(items, list) or not items:
        raise MetadataError(
            f"configuration of data type {name!r} is {dict(configuration)!r}; expected a list of fields only"
        )
    return _make([_parse_field(item, depth) for item in items], name)


def _parse_field(value: Any, depth: int) -> Field:
    shape: Any = []
    if isinstance(value, list) and len(value) in (2, 3):
        name, data_type, *rest = value
        shape = rest[0] if rest else []
    elif isinstance(value, Mapping) and {"name", "data_type"} <= value.keys() <= {
        "name",
        "data_type",
        "shape",
    }:
        name, data_type, shape = value["name"], value["data_type"], value.get("shape", [])
    else:
        raise MetadataError(f"field of a structured data type is {value!r}; expected name and data_type")
    if not isinstance(name, str) or not name:
        raise MetadataError(f"field of a structured data type has the name {name!r}; expected a string")
    if not isinstance(shape, list) or not all(type(length) is int and length > 0 for length in shape):
        raise MetadataError(f"field {name!r} has the shape {shape!r}; expected integers of at least 1")
    if isinstance(data_type, Mapping) and data_type.get("name") in ("struct", LEGACY):
        configuration = data_type.get("configuration")
        if not isinstance(configuration, Mapping):
            raise MetadataError(f"field {name!r} has the data type {data_type!r}; expected a configuration")
        return Field(name, _parse_struct(data_type["name"], configuration, depth + 1), tuple(shape))
    return Field(name, DataType.restore(data_type), tuple(shape))


def _fields_of(dtype: np.dtype[Any]) -> list[Field]:
    """The fields of a numpy dtype, without the gaps between them.

    Raises
        UnsupportedError: fields that overlap, or have titles.
    """
    assert dtype.names is not None
    assert dtype.fields is not None
    fields, end = [], 0
    for name in sorted(dtype.names, key=lambda name: dtype.fields[name][1]):  # type: ignore[index]
        if len(dtype.fields[name]) > 2:
            raise UnsupportedError(f"dtype has the field {name!r} with a title; Zarr has no titles")
        if dtype.fields[name][1] < end:
            raise UnsupportedError(f"dtype has the field {name!r}, which overlaps another; Zarr has no such")
        end = dtype.fields[name][1] + dtype.fields[name][0].itemsize
    for name in dtype.names:
        inner = dtype.fields[name][0]
        base, shape = (inner, ()) if inner.subdtype is None else inner.subdtype
        fields.append(Field(name, DataType.from_numpy(base), tuple(shape)))
    return fields


def _make(fields: list[Field], name: str) -> DataType:
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise MetadataError(f"data type {name!r} has the fields {names}; expected each name once")
    for field in fields:
        if field.data_type.is_object:
            raise MetadataError(
                f"field {field.name!r} has the data type {field.data_type.name!r}; expected one of fixed size"
            )
    try:
        dtype = np.dtype([field.numpy for field in fields])
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(f"data type {name!r} with the fields {names} cannot be had: {error}") from None
    check_item_size(dtype.itemsize, name)
    formats = tuple(
        number
        for number in (2, 3)
        if all(number in field.data_type.formats and not (number == 3 and field.shape) for field in fields)
    )
    configuration = {"fields": [_describe(field) for field in fields]}
    written = None
    if name == LEGACY:
        written = {"name": LEGACY, "configuration": {"fields": [_describe_legacy(field) for field in fields]}}
    fill = StructFill(fields, is_legacy=name == LEGACY)
    return DataType("struct", configuration, dtype, fill, formats=formats, written=written)


def _describe(field: Field) -> dict[str, Any]:
    described = {"name": field.name, "data_type": field.data_type.describe(as_written=False)}
    return {**described, "shape": list(field.shape)} if field.shape else described


def _describe_legacy(field: Field) -> list[Any]:
    described = [field.name, field.data_type.describe()]
    return [*described, list(field.shape)] if field.shape else described
