"""The type of an array's items: its name in the documents and its numpy dtype in memory.

A data type is a row: name, configuration, numpy dtype, and the rule for its fill values. The core types are
the table below; a type with a configuration makes its row from it (`_PARAMETRIC`).

Spec
    Zarr v3 core, "Data types"; Zarr v2, "Data type encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.fill import BoolFill, ComplexFill, FillRule, FloatFill, IntegerFill

__all__ = ["DataType"]


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type by its v3 name, with the numpy dtype (native byte order) that holds it.

    >>> DataType.from_name("float32").typestr("big")
    '>f4'
    """

    name: str
    configuration: Mapping[str, Any]
    numpy: np.dtype[Any]
    fill: FillRule = field(repr=False, compare=False)

    @classmethod
    def from_name(cls, value: str | Mapping[str, Any]) -> DataType:
        """The data type that a v3 `data_type` member names: a string, or {"name": …, "configuration": …}.

        Raises
            MetadataError: neither of the two forms, or a configuration that the type does not take.
            UnsupportedError: a data type that zstore does not have.
        """
        name, configuration = (value, _NOTHING) if isinstance(value, str) else _parse_object(value)
        row = _CORE.get(name)
        if row is not None:
            if configuration:
                raise MetadataError(f"data type {name!r} takes no configuration, got {configuration!r}")
            return row
        make = _PARAMETRIC.get(name)
        if make is None:
            raise UnsupportedError(f"data type {name!r} is not supported; zstore has {', '.join(_CORE)}")
        return make(configuration)

    @classmethod
    def from_numpy(cls, dtype: Any) -> DataType:
        """The data type whose items numpy holds as `dtype`, whatever its byte order.

        Raises
            UnsupportedError: a dtype that zstore does not have.
        """
        dtype = np.dtype(dtype)
        row = _BY_TYPESTR.get(dtype.str[1:])
        if row is None:
            raise UnsupportedError(f"dtype {dtype.str!r} is not supported; zstore has {', '.join(_CORE)}")
        return row

    @classmethod
    def from_typestr(cls, typestr: Any) -> tuple[DataType, str | None]:
        """The data type and byte order ("little", "big", None for one byte) of a v2 `dtype` member.

        Raises
            MetadataError: no typestr, or one without a byte order where it matters.
            UnsupportedError: a data type that zstore does not have.
        """
        if isinstance(typestr, list):
            raise UnsupportedError(f"structured dtype {typestr!r} is not supported")
        if not isinstance(typestr, str) or typestr[:1] not in ("<", ">", "|") or len(typestr) < 2:
            raise MetadataError(f"dtype is {typestr!r}; expected a typestr such as '<f8', '>i4' or '|u1'")
        row = _BY_TYPESTR.get(typestr[1:])
        if row is None:
            raise UnsupportedError(f"dtype {typestr!r} is not supported; zstore has {', '.join(_CORE)}")
        if row.numpy.itemsize == 1:
            return row, None
        if typestr[0] == "|":
            raise MetadataError(
                f"dtype {typestr!r} has no byte order; expected '<' or '>' before {typestr[1:]!r}"
            )
        return row, "little" if typestr[0] == "<" else "big"

    def typestr(self, endian: str | None) -> str:
        """The v2 `dtype` member for items stored in that byte order; one-byte types ignore it."""
        order = "|" if self.numpy.itemsize == 1 else (">" if endian == "big" else "<")
        return order + self.numpy.str[1:]

    def render_name(self) -> str | dict[str, Any]:
        """The v3 `data_type` member."""
        if not self.configuration:
            return self.name
        return {"name": self.name, "configuration": dict(self.configuration)}

    def parse_fill(self, value: Any, zarr_format: int, endian: str = "little") -> np.generic | None:
        """The scalar that a `fill_value` member means; None for null.

        Null is v2's word for "undefined". v3 has none, but GDAL writes it there too, so it is read and kept.

        Raises
            MetadataError: not a value of this type.
        """
        if value is None:
            return None
        return self.fill.parse(value, self.numpy, zarr_format, endian)

    def render_fill(self, value: np.generic | None, zarr_format: int) -> Any:
        """The `fill_value` member for `value`, bit for bit.

        Raises
            UnsupportedError: that format cannot say it.
        """
        if value is None:
            return None
        return self.fill.render(value, self.numpy, zarr_format)

    def default_fill(self) -> np.generic:
        """Zero, false: what arrays are filled with when nobody says otherwise."""
        scalar: np.generic = np.zeros(1, self.numpy)[0]
        return scalar

    def __reduce__(self) -> tuple[Any, ...]:
        return DataType.from_name, (self.render_name(),)


_NOTHING: Mapping[str, Any] = {}


def _parse_object(value: Any) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise MetadataError(f"data_type is {value!r}; expected a name or an object with a name")
    configuration = value.get("configuration", {})
    if not isinstance(configuration, Mapping):
        raise MetadataError(
            f"configuration of data type {value['name']!r} is {configuration!r}; expected an object"
        )
    unknown = value.keys() - {"name", "configuration", "must_understand"}
    if unknown or value.get("must_understand", True) is not True:
        raise MetadataError(f"data_type is {value!r}; expected name and configuration only")
    return value["name"], configuration


def _core(name: str, fill: FillRule) -> DataType:
    return DataType(name, {}, np.dtype(name), fill)


_INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_CORE: dict[str, DataType] = {
    "bool": _core("bool", BoolFill()),
    **{name: _core(name, IntegerFill()) for name in _INTEGERS},
    **{name: _core(name, FloatFill()) for name in ("float16", "float32", "float64")},
    **{name: _core(name, ComplexFill()) for name in ("complex64", "complex128")},
}
_BY_TYPESTR = {row.numpy.str[1:]: row for row in _CORE.values()}
# name -> a function that makes the row from a configuration, for types that have one
_PARAMETRIC: dict[str, Callable[[Mapping[str, Any]], DataType]] = {}
