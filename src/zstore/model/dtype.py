"""Data types of items: their names in documents, their numpy dtypes in memory, and their fill values.

A `DataType` has a name, a configuration, a numpy dtype, and the rule for its fill values. The core types are
in the table below. Any other is made by a class (`DataTypeMaker`) that zstore (`extensions/builtin.py`) or a
plugin offers, from its name and configuration, or from a numpy dtype.

Spec
    Zarr v3 core, "Data types"; zarr-extensions, data-types; Zarr v2, "Data type encoding".
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from zstore.base.once import look_up
from zstore.errors import MetadataError, UnknownExtensionError, UnsupportedError
from zstore.extensions.registry import BUILT_IN_PACKAGE
from zstore.extensions.registry import data_types as registry
from zstore.model.typestr import OBJECT_CODECS, parse_typestr, render_typestr

HEX = re.compile("0x[0-9a-fA-F]+")
SPECIAL = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


class FillRule(Protocol):
    """The rule for the fill values of one kind of data type."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        """Parse a JSON value to a scalar of `dtype`; `order` is the byte order of raw bytes.

        Raises
            MetadataError: not a value of this type, or out of its range.
        """

    def render(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        """Render a scalar as the JSON value that `parse` turns into the same bits.

        Raises
            UnsupportedError: that format cannot represent it.
        """


def in_words(value: Any, write: Callable[[Any], str] = repr) -> str:
    """A value as text, by numpy; its bits, if numpy cannot write it (as with very distant times)."""
    try:
        return write(value)
    except OverflowError:
        return f"0x{np.asarray(value).tobytes().hex()} of {np.asarray(value).dtype}"


def refuse(value: Any, dtype: np.dtype[Any] | str, expected: str) -> MetadataError:
    """The error for a fill value that is invalid for a data type; `dtype` is the dtype or its name."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return MetadataError(f"fill_value is {in_words(value)}; expected {expected} for data type {name}")


def parse_bytes(value: Any, dtype: np.dtype[Any] | str) -> bytes:
    """Parse bytes from Base64 or from a list of integers.

    Raises
        MetadataError: neither of the two.
    """
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise refuse(value, dtype, "Base64 or a list of integers from 0 to 255") from None
    if isinstance(value, list) and all(type(item) is int and 0 <= item <= 255 for item in value):
        return bytes(value)
    raise refuse(value, dtype, "Base64 or a list of integers from 0 to 255")


class BoolFill:
    """Booleans: true and false; 0 and 1 are read as these, as other readers do."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if isinstance(value, bool):
            return np.bool_(value)
        if isinstance(value, int | float) and value in (0, 1):
            return np.bool_(value)
        raise refuse(value, dtype, "true or false")

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return bool(value)


class IntegerFill:
    """Integers: a JSON integer in range; 1.0 is read as 1, as other readers do."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        limits = self._limits(dtype)
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if type(number) is int and limits.min <= number <= limits.max:
            return dtype.type(number)
        raise refuse(value, dtype, f"an integer from {limits.min} to {limits.max}")

    def _limits(self, dtype: np.dtype[Any]) -> Any:
        return np.iinfo(dtype)

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        return int(value)


class FloatFill:
    """Floats: a number, "NaN", "Infinity", "-Infinity", or (v3) the bits as a hex string."""

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if isinstance(value, str):
            return self._parse_text(value, dtype, zarr_format)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refuse(value, dtype, "a number")
        return self._parse_number(value, dtype)

    def _parse_number(self, value: int | float, dtype: np.dtype[Any]) -> Any:
        if not value:
            return dtype.type(value)
        try:
            with np.errstate(over="ignore"):
                scalar = dtype.type(value)
        except OverflowError:
            raise refuse("an integer of that size", dtype, "a number in range") from None
        if np.isinf(scalar) and value not in (np.inf, -np.inf):
            raise refuse(value, dtype, f"a number in range, at most {np.finfo(dtype).max}")
        return scalar

    def _parse_text(self, text: str, dtype: np.dtype[Any], zarr_format: int) -> Any:
        if text in SPECIAL:
            return dtype.type(SPECIAL[text])
        digit_count = 2 * dtype.itemsize
        if zarr_format == 3 and HEX.fullmatch(text) and len(text) == 2 + digit_count:
            raw = int(text, 16).to_bytes(dtype.itemsize, "little")
            return np.frombuffer(raw, dtype.newbyteorder("<"))[0]
        expected = 'a number, "NaN", "Infinity" or "-Infinity"'
        if zarr_format == 3:
            expected += f' or "0x" and {digit_count} hex digits'
        raise refuse(text, dtype, expected)

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        number = float(value)
        if number != number:
            return self._render_nan(value, dtype, zarr_format)
        if number in (np.inf, -np.inf):
            return "Infinity" if number > 0 else "-Infinity"
        return number

    def _render_nan(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int) -> str:
        raw = value.tobytes()
        if raw == dtype.type("nan").tobytes():
            return "NaN"
        digits = f"0x{int(np.frombuffer(raw, f'u{dtype.itemsize}')[0]):0{2 * dtype.itemsize}x}"
        if zarr_format == 3:
            return digits
        raise UnsupportedError(
            f"fill_value is a NaN with the bits {digits}; Zarr v{zarr_format} can say the plain NaN only"
        )


class ComplexFill:
    """Complex numbers: [real, imaginary], each as a float; in Zarr v2, also the raw bytes in Base64."""

    def __init__(self, part: FillRule | None = None, dtype: np.dtype[Any] | None = None) -> None:
        self._part: FillRule = FloatFill() if part is None else part
        self._part_dtype = dtype

    def parse(self, value: Any, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        if zarr_format == 2 and isinstance(value, str):
            return self._parse_base64(value, dtype, order)
        if not isinstance(value, list) or len(value) != 2:
            raise refuse(value, dtype, "a list of two numbers, [real, imaginary]")
        part = self._part_dtype or np.dtype(f"f{dtype.itemsize // 2}")
        raw = b"".join(self._part.parse(item, part, zarr_format, order).tobytes() for item in value)
        return np.frombuffer(raw, dtype)[0]

    def _parse_base64(self, text: str, dtype: np.dtype[Any], order: Order) -> Any:
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise refuse(text, dtype, "[real, imaginary] or Base64") from None
        if len(raw) != dtype.itemsize:
            raise refuse(text, dtype, f"{dtype.itemsize} bytes in Base64")
        return np.frombuffer(raw, stored_dtype(dtype, order or "little")).astype(dtype)[0]

    def render(self, value: np.generic, dtype: np.dtype[Any], zarr_format: int, order: Order) -> Any:
        part = self._part_dtype or np.dtype(f"f{dtype.itemsize // 2}")
        return [
            self._part.render(item, part, zarr_format, order) for item in np.frombuffer(value.tobytes(), part)
        ]


# The most bytes of an item: a document of a few bytes must not make its reader allocate gigabytes.
ITEM_LIMIT = 1 << 24


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type: its name in v3, and the numpy dtype (in native byte order) of its items in memory.

    name, configuration  as in zarr-extensions; for types that v3 does not have, zstore's own
    fill                 reads and writes fill values, by `parse` and `render` as `IntegerFill` has them
    is_object            items are Python objects or strings of any length, which the kernels cannot move
    default              the default fill value; None: zero bits
    formats              the Zarr formats (2, 3) that have the type
    written              the `data_type` member as a v3 document has it, if in another form, to write it back

    >>> DataType.from_name("float32").typestr("big")
    '>f4'
    """

    name: str
    configuration: Mapping[str, Any]
    numpy: np.dtype[Any]
    fill: FillRule = field(repr=False, compare=False)
    is_object: bool = field(default=False, repr=False, compare=False)
    default: Any = field(default=None, repr=False, compare=False)
    formats: tuple[int, ...] = field(default=(2, 3), repr=False, compare=False)
    written: str | Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_name(cls, value: str | Mapping[str, Any]) -> DataType:
        """The data type of a v3 `data_type` member: a string, or {"name": …, "configuration": …}.

        Raises
            MetadataError: neither of the two forms, or a configuration that the type does not take.
            UnsupportedError: a data type that zstore does not have.
            ExtensionError: a plugin offers it, but cannot be imported.
        """
        row = cls.restore(value)
        if 3 not in row.formats:
            raise UnsupportedError(f"data type {row.name!r} is not one of Zarr v3")
        return row

    @classmethod
    def from_numpy(cls, dtype: Any) -> DataType:
        """The data type for a numpy dtype of any byte order.

        Raises
            UnsupportedError: a dtype that zstore does not have, or `object`, which names no type of items.
        """
        dtype = np.dtype(dtype)
        core = look_up(_BY_TYPESTR, dtype.str[1:]) if dtype.isbuiltin < 2 else None
        if core is not None:
            return core
        if dtype.kind == "O":
            raise UnsupportedError("dtype object does not say what its items are; expected an object codec")
        for maker in _makers(dtype.kind):
            row = maker.from_numpy(dtype)
            if row is not None:
                return row
        raise UnsupportedError(f"dtype {dtype.str!r} is not supported; zstore has {', '.join(_CORE)}")

    @classmethod
    def from_typestr(cls, typestr: Any, object_codec: str | None = None) -> tuple[DataType, Order]:
        """The data type and byte order of a v2 `dtype` member; the order is None for items of single bytes.

        `object_codec` is the id of the filter that encodes objects, if there is one.

        Raises
            MetadataError: no typestr, or one without a byte order where it matters.
            UnsupportedError: a data type that zstore does not have.
        """
        if typestr == "|O":
            if object_codec is None:
                raise MetadataError("dtype is '|O', but none of the filters encodes objects")
            return _find(OBJECT_CODECS.get(object_codec, "object"), _NOTHING), None
        if isinstance(typestr, str):
            return _parse_plain(typestr)
        dtype = parse_typestr(typestr)
        return cls.from_numpy(dtype), order_of(dtype)

    def typestr(self, order: Order) -> Any:
        """The v2 `dtype` member for items stored in that byte order, which items of single bytes ignore.

        Raises
            UnsupportedError: Zarr v2 does not have this type.
        """
        if 2 not in self.formats:
            raise UnsupportedError(f"data type {self.name!r} cannot be said in Zarr v2")
        if self.is_object:
            return "|O"
        return render_typestr(stored_dtype(self.numpy, order))

    @classmethod
    def restore(cls, value: str | Mapping[str, Any]) -> DataType:
        """The data type that `describe` has described, even if v3 does not have it.

        Raises
            MetadataError, UnsupportedError, ExtensionError: as `from_name`.
        """
        return _find(*((value, _NOTHING) if isinstance(value, str) else _parse_object(value)))

    def describe(self, *, as_written: bool = True) -> str | dict[str, Any]:
        """The name and configuration, for `restore`; with `as_written`, in the form of the document."""
        if as_written and self.written is not None:
            return self.written if isinstance(self.written, str) else dict(self.written)
        if not self.configuration:
            return self.name
        return {"name": self.name, "configuration": dict(self.configuration)}

    def render_name(self) -> str | dict[str, Any]:
        """The v3 `data_type` member.

        Raises
            UnsupportedError: Zarr v3 does not have this type.
        """
        if 3 not in self.formats:
            hint = ", only in v2" if 2 in self.formats else ""
            raise UnsupportedError(f"data type {self.name!r}, {self.numpy}, cannot be said in Zarr v3{hint}")
        return self.describe()

    def parse_fill(self, value: Any, zarr_format: int, order: Order = "little") -> Any:
        """Parse a `fill_value` member to a scalar, null to None; `order` is the byte order of raw bytes.

        Null means "undefined" in v2. v3 does not allow it, but GDAL writes it there, too, so it is preserved.

        Raises
            MetadataError: not a value of this type.
        """
        if value is None:
            return None
        return self.fill.parse(value, self.numpy, zarr_format, order)

    def render_fill(self, value: Any, zarr_format: int, order: Order = "little") -> Any:
        """Render a fill value as the `fill_value` member, bit for bit.

        Raises
            UnsupportedError: that format cannot represent it.
        """
        if value is None:
            return None
        return self.fill.render(value, self.numpy, zarr_format, order)

    def default_fill(self) -> Any:
        """The default fill value: zero, false, the empty string, not-a-time."""
        if self.default is not None or self.is_object:
            return self.default
        return np.zeros(1, self.numpy)[0]

    def fill_bits(self, value: Any) -> Any:
        """A key by which fill values are compared: their bytes, or the object itself."""
        if value is None or self.is_object:
            return value
        if self.numpy.type in (np.longdouble, np.clongdouble):
            return repr(value)  # long floats have padding bytes
        return np.asarray(value, self.numpy).tobytes()

    def __reduce__(self) -> tuple[Any, ...]:
        return DataType.restore, (self.describe(),)


class DataTypeMaker(Protocol):
    """The interface of classes that make data types.

    A plugin's `register_data_types` offers it under each name that its types have in v3 documents.
    """

    @classmethod
    def from_name(cls, name: str, configuration: Mapping[str, Any]) -> DataType:
        """Make the data type of that name.

        Raises
            MetadataError: a configuration that the type does not take.
            UnsupportedError: a type that this machine does not have.
        """

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType | None:
        """Make the data type for a numpy dtype of any byte order; None if the dtype is not of this class."""


def refuse_configuration(name: str, configuration: Mapping[str, Any]) -> None:
    """Check that a data type without options has no configuration.

    Raises
        MetadataError: it has one.
    """
    if configuration:
        raise MetadataError(f"data type {name!r} takes no configuration, got {dict(configuration)!r}")


def check_item_size(size: int, name: str) -> int:
    """Check that the bytes of an item are as many as its type has, and return them.

    Raises
        UnsupportedError: no bytes, or more than 16 MiB.
    """
    if 0 < size <= ITEM_LIMIT:
        return size
    raise UnsupportedError(
        f"data type {name!r} has items of {size} bytes; expected at least one byte and at most {ITEM_LIMIT}"
    )


_NOTHING: Mapping[str, Any] = {}
RAW_BITS = re.compile("r[1-9][0-9]*")
# kind of numpy dtype -> the names of the data types for it: only their classes are imported.
_MAKERS: dict[str, tuple[str, ...]] = {
    "M": ("numpy.datetime64",),
    "m": ("numpy.timedelta64",),
    "S": ("null_terminated_bytes",),
    "U": ("fixed_length_utf32",),
    "T": ("string",),
    "V": ("struct", "raw_bytes", "bfloat16"),
    "W": ("bfloat16",),
    "f": ("bfloat16", "numpy.longdouble"),
    "c": ("numpy.longdouble",),
}


@lru_cache(maxsize=128)
def _parse_plain(typestr: str) -> tuple[DataType, Order]:
    """`from_typestr` with a cache: hierarchies have thousands of arrays and a few types."""
    dtype = parse_typestr(typestr)
    return DataType.from_numpy(dtype), order_of(dtype)


def _makers(kind: str) -> Iterator[DataTypeMaker]:
    """The classes that may have a data type for this kind of numpy dtype: built-in ones, then plugins'."""
    for name in _MAKERS.get(kind, ()):
        yield registry.resolve(name)
    for line in registry.listings():
        if line.state == "ok" and line.package != BUILT_IN_PACKAGE:
            yield registry.resolve(line.name)


def _find(name: str, configuration: Mapping[str, Any]) -> DataType:
    row = look_up(_CORE, name)
    if row is not None:
        refuse_configuration(name, configuration)
        return row
    try:
        maker: DataTypeMaker = registry.resolve("raw_bytes" if RAW_BITS.fullmatch(name) else name)
    except UnknownExtensionError as error:
        from difflib import get_close_matches

        near = get_close_matches(name, _CORE, 1)
        meant = f"did you mean {near[0]!r}?; " if near else ""
        raise UnsupportedError(
            f"data type {name!r} is not supported; zstore has {', '.join(_CORE)}; {meant}{error.message}"
        ) from error
    return maker.from_name(name, configuration)


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


# type of the order -> the codec that has it: one order for all, none, or one for each field.
ORDER_CODECS = {str: "bytes", type(None): "bytes", list: "zstore.bytes_by_field"}
Order = Any  # str | None | list[Order]; what a `bytes` codec's configuration holds


def unit_size(dtype: np.dtype[Any]) -> int:
    """The number of bytes that a byte order applies to: an item, a part of a complex one, or a character."""
    if dtype.kind == "U":
        return 4
    if dtype.kind == "S" or dtype.type is np.void:
        return 1
    # "W" is the kind of ml_dtypes' complex items.
    return dtype.itemsize // 2 if dtype.kind in "cW" else dtype.itemsize


def order_of(dtype: np.dtype[Any]) -> Order:
    """The byte order of a numpy dtype."""
    if dtype.subdtype is not None:
        return order_of(dtype.subdtype[0])
    if dtype.names is None:
        if unit_size(dtype) < 2:
            return None
        return {"<": "little", ">": "big"}.get(dtype.byteorder, sys.byteorder)
    assert dtype.fields is not None
    orders = [order_of(dtype.fields[name][0]) for name in dtype.names]
    marked = [order for order in orders if order is not None]
    if not marked:
        return None
    return marked[0] if isinstance(marked[0], str) and all(order == marked[0] for order in marked) else orders


def stored_dtype(dtype: np.dtype[Any], order: Order) -> np.dtype[Any]:
    """The dtype of the same items in this byte order."""
    if order is None:
        return dtype
    if isinstance(order, str):
        return dtype.newbyteorder("<" if order == "little" else ">")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((stored_dtype(base, order), shape))
    assert dtype.names is not None and dtype.fields is not None, "an order per field, but no fields"
    fields = [
        stored_dtype(dtype.fields[name][0], part) for name, part in zip(dtype.names, order, strict=True)
    ]
    offsets = [dtype.fields[name][1] for name in dtype.names]
    return np.dtype(
        {"names": list(dtype.names), "formats": fields, "offsets": offsets, "itemsize": dtype.itemsize}
    )


def is_same_type(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether two dtypes are the same except for their byte order."""
    if one == other:
        return True
    # Strings of any length have no byte order.
    return "T" not in (one.kind, other.kind) and one.newbyteorder("=") == other.newbyteorder("=")


def split_swaps(dtype: np.dtype[Any], order: Order) -> list[tuple[int, int, int]]:
    """(offset, unit, count) of the fields and parts of an item whose byte order differs from that of `dtype`.

    Neighbouring parts with the same unit are joined; empty if all bytes are in the same order.
    """
    swaps: list[tuple[int, int, int]] = []
    for offset, unit, count in _swaps(dtype, order, 0):
        if swaps and swaps[-1][1] == unit and swaps[-1][0] + swaps[-1][2] * unit == offset:
            offset, _, before = swaps.pop()
            count += before
        swaps.append((offset, unit, count))
    return swaps


def _swaps(dtype: np.dtype[Any], order: Order, offset: int) -> list[tuple[int, int, int]]:
    if order is None:
        return []
    if dtype.subdtype is not None:
        base, size = dtype.subdtype[0], dtype.itemsize
        if base.names is None:
            unit = unit_size(base)
            return [(offset, unit, size // unit)] if order_of(base) not in (None, order) else []
        return [
            part for at in range(offset, offset + size, base.itemsize) for part in _swaps(base, order, at)
        ]
    if dtype.names is None:
        unit = unit_size(dtype)
        return [(offset, unit, dtype.itemsize // unit)] if order_of(dtype) not in (None, order) else []
    assert dtype.fields is not None
    orders = [order] * len(dtype.names) if isinstance(order, str) else order
    return [
        part
        for name, inner in zip(dtype.names, orders, strict=True)
        for part in _swaps(dtype.fields[name][0], inner, offset + dtype.fields[name][1])
    ]
