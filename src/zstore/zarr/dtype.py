"""`zarr.dtype`: data types as objects under zarr-python's names, over zstore's `DataType`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from zstore.errors import UnsupportedError, missing_name
from zstore.model.dtype import RAW_BITS, DataType, order_of, stored_dtype
from zstore.model.typestr import OBJECT_CODECS
from zstore.zarr.errors import raising

Endianness = Literal["little", "big"]


@dataclass(frozen=True, kw_only=True)
class ZDType:
    """A data type: its numpy dtype, and its names in documents."""

    kind: ClassVar[str] = ""

    def __class_getitem__(cls, item: Any) -> type[Self]:
        # Programs annotate with the numpy dtype and the scalar.
        return cls

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        """The data type of a numpy dtype.

        Raises
            DataTypeValidationError: the dtype is of another type.
        """
        made = of_native(np.dtype(dtype))
        if not isinstance(made, cls):
            raise UnsupportedError(f"dtype is {dtype!r}; expected one of {cls.__name__}")
        return made

    @classmethod
    def from_json(cls, data: Any, *, zarr_format: int) -> Self:
        """The data type of a document's member: v3's name, or {"name": v2's dtype, "object_codec_id": …}."""
        made = parse_dtype(data, zarr_format=zarr_format)
        if not isinstance(made, cls):
            raise UnsupportedError(f"data type is {data!r}; expected one of {cls.__name__}")
        return made

    def _options(self) -> dict[str, Any]:
        return dict(vars(self))

    def to_native_dtype(self) -> np.dtype[Any]:
        """The numpy dtype, in the stored byte order."""
        order = {"little": "<", "big": ">"}.get(self._options().get("endianness", ""), "=")
        return np.dtype(self.kind).newbyteorder(order)  # type: ignore[arg-type]

    @property
    def model(self) -> DataType:
        """The data type as zstore has it."""
        return DataType.from_numpy(self.to_native_dtype())

    def to_json(self, zarr_format: int) -> Any:
        """The document's member: in v3 the name, in v2 {"name": dtype, "object_codec_id": …}."""
        if zarr_format == 3:
            return self._named()
        codec = next((c for c, name in OBJECT_CODECS.items() if name == self.model.name), None)
        order = self._options().get("endianness", "little")
        return {"name": self.model.typestr(order), "object_codec_id": codec if self.model.is_object else None}

    def _named(self) -> Any:
        return self.model.render_name()

    def default_scalar(self) -> Any:
        """The fill value of a new array."""
        return self.model.default_fill()

    def to_json_scalar(self, data: Any, *, zarr_format: int) -> Any:
        """A fill value as documents have it."""
        return self.model.render_fill(self.cast_scalar(data), zarr_format)

    def from_json_scalar(self, data: Any, *, zarr_format: int) -> Any:
        """A fill value of a document."""
        return self.model.parse_fill(data, zarr_format)

    def cast_scalar(self, data: Any) -> Any:
        """A value as an item of this type."""
        return np.asarray(data, self.to_native_dtype())[()]

    @property
    def item_size(self) -> int:
        """The bytes of an item."""
        return self.to_native_dtype().itemsize


def _number(name: str, kind: str) -> type[ZDType]:
    """The class of a data type of numbers; those of several bytes have a byte order."""
    members: dict[str, Any] = {"kind": kind, "__doc__": f"Items of numpy's dtype {kind!r}."}
    if np.dtype(kind).itemsize > 1:
        members |= {"endianness": "little", "__annotations__": {"endianness": Endianness}}
    return dataclass(frozen=True, kw_only=True)(type(name, (ZDType,), {**members, "__module__": __name__}))


Bool = _number("Bool", "?")
Int8, UInt8 = _number("Int8", "i1"), _number("UInt8", "u1")
Int16, UInt16 = _number("Int16", "i2"), _number("UInt16", "u2")
Int32, UInt32 = _number("Int32", "i4"), _number("UInt32", "u4")
Int64, UInt64 = _number("Int64", "i8"), _number("UInt64", "u8")
Float16, Float32, Float64 = _number("Float16", "f2"), _number("Float32", "f4"), _number("Float64", "f8")
Complex64, Complex128 = _number("Complex64", "c8"), _number("Complex128", "c16")


@dataclass(frozen=True, kw_only=True)
class _Sized(ZDType):
    """Items of `length` bytes or characters."""

    length: int

    def to_native_dtype(self) -> np.dtype[Any]:
        order = {"little": "<", "big": ">"}.get(self._options().get("endianness", ""), "|")
        return np.dtype(f"{order}{self.kind}{self.length}")


@dataclass(frozen=True, kw_only=True)
class FixedLengthUTF32(_Sized):
    """Strings of at most `length` characters."""

    kind: ClassVar[str] = "U"
    endianness: Endianness = "little"


@dataclass(frozen=True, kw_only=True)
class NullTerminatedBytes(_Sized):
    """Bytes, at most `length` of them, without zeros at their end."""

    kind: ClassVar[str] = "S"


@dataclass(frozen=True, kw_only=True)
class RawBytes(_Sized):
    """Exactly `length` bytes."""

    kind: ClassVar[str] = "V"

    def _named(self) -> Any:
        return {"name": "raw_bytes", "configuration": {"length_bytes": self.length}}


@dataclass(frozen=True, kw_only=True)
class _Time(ZDType):
    """Whole numbers of `scale_factor` units of time."""

    endianness: Endianness = "little"
    scale_factor: int = 1
    unit: str = "generic"

    def to_native_dtype(self) -> np.dtype[Any]:
        order = "<" if self.endianness == "little" else ">"
        factor = self.scale_factor if self.scale_factor != 1 else ""
        return np.dtype(f"{order}{self.kind}8" + ("" if self.unit == "generic" else f"[{factor}{self.unit}]"))


@dataclass(frozen=True, kw_only=True)
class DateTime64(_Time):
    """Moments."""

    kind: ClassVar[str] = "M"


@dataclass(frozen=True, kw_only=True)
class TimeDelta64(_Time):
    """Times that something takes."""

    kind: ClassVar[str] = "m"


@dataclass(frozen=True, kw_only=True)
class Struct(ZDType):
    """Several fields, by name."""

    kind: ClassVar[str] = "V"
    fields: tuple[tuple[str, ZDType], ...]

    def to_native_dtype(self) -> np.dtype[Any]:
        return np.dtype([(name, one.to_native_dtype()) for name, one in self.fields])


Structured = Struct


class _Objects(ZDType):
    """Items of any length."""

    def to_native_dtype(self) -> np.dtype[Any]:
        return np.dtype("O")

    @property
    def model(self) -> DataType:
        return DataType.restore(self.kind)

    def cast_scalar(self, data: Any) -> Any:
        return data


@dataclass(frozen=True, kw_only=True)
class VariableLengthUTF8(_Objects):
    """Strings of any length."""

    kind: ClassVar[str] = "string"

    def to_native_dtype(self) -> np.dtype[Any]:
        return strings()


@dataclass(frozen=True, kw_only=True)
class VariableLengthBytes(_Objects):
    """Bytes of any length."""

    kind: ClassVar[str] = "bytes"


@dataclass(frozen=True, kw_only=True)
class OtherDType(ZDType):
    """A data type that zstore has and zarr-python has not."""

    name: str

    @property
    def model(self) -> DataType:
        return DataType.restore(self.name)

    def to_native_dtype(self) -> np.dtype[Any]:
        return self.model.numpy


_NUMBERS = {
    np.dtype(kind.kind).str[1:]: kind
    for kind in (
        *(Bool, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float16, Float32, Float64),
        *(Complex64, Complex128),
    )
}
_SIZED = {kind.kind: kind for kind in (FixedLengthUTF32, NullTerminatedBytes, RawBytes)}


def strings() -> np.dtype[Any]:
    """The numpy dtype of strings of any length: numpy's own, which version 1 does not have, or objects."""
    made: np.dtype[Any] = np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else np.dtype("O")
    return made


def of_native(dtype: np.dtype[Any]) -> ZDType:
    """The data type of a numpy dtype.

    Raises
        UnsupportedError: there is none, or it is `object`, which does not say what items are.
    """
    if dtype.isbuiltin == 2:  # of a package, such as bfloat16
        return OtherDType(name=DataType.from_numpy(dtype).name)
    order: dict[str, Any] = {"endianness": order_of(dtype) or "little"} if dtype.names is None else {}
    if dtype.names is not None:
        assert dtype.fields is not None
        return Struct(fields=tuple((name, of_native(dtype.fields[name][0])) for name in dtype.names))
    if dtype.kind == "T":
        return VariableLengthUTF8()
    if (number := _NUMBERS.get(dtype.str[1:])) is not None:
        return number(**(order if dtype.itemsize > 1 else {}))
    if (sized := _SIZED.get(dtype.kind)) is not None:
        length = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        return sized(length=length, **(order if dtype.kind == "U" else {}))
    if dtype.kind in "Mm":
        unit, factor = np.datetime_data(dtype)
        return (DateTime64 if dtype.kind == "M" else TimeDelta64)(unit=unit, scale_factor=factor, **order)
    return OtherDType(name=DataType.from_numpy(dtype).name)


def of_model(model: DataType, order: Any = None) -> ZDType:
    """The data type of zstore's, stored in a byte order."""
    named = {"string": VariableLengthUTF8, "bytes": VariableLengthBytes}.get(model.name)
    if named is not None:
        return named()
    if model.is_object:
        return OtherDType(name=model.name)
    return of_native(model.numpy if order is None else stored_dtype(model.numpy, order))


@raising
def parse_dtype(dtype_spec: Any, *, zarr_format: int = 3) -> ZDType:
    """The data type that a dtype, a name or a document's member says.

    Raises
        ValueError: none is meant, or it is ambiguous (`object`).
    """
    if isinstance(dtype_spec, ZDType):
        return dtype_spec
    if dtype_spec is str:
        return VariableLengthUTF8()
    if dtype_spec is bytes:
        return VariableLengthBytes()
    if isinstance(dtype_spec, dict):
        codec = dtype_spec.get("object_codec_id")
        if zarr_format == 2:
            return of_model(*DataType.from_typestr(dtype_spec["name"], codec))
        return of_model(DataType.from_name(dtype_spec))
    try:
        return of_native(np.dtype(dtype_spec))
    except TypeError:
        if not isinstance(dtype_spec, str):
            raise
    return of_model(DataType.from_name(dtype_spec))


parse_data_type = parse_dtype


def as_request(dtype: Any, zarr_format: int) -> Any:
    """The dtype as `zstore.create_array` takes it."""
    native = dtype.to_native_dtype() if isinstance(dtype, ZDType) else dtype
    if zarr_format == 3 and _is_void(native):
        return DataType.from_name(_as_zarr_names(DataType.from_numpy(np.dtype(native)).render_name()))
    if not isinstance(dtype, ZDType):
        is_strings = isinstance(dtype, np.dtype) and dtype.kind == "T"
        return str if is_strings else dtype
    return dtype.model if isinstance(dtype, _Objects | OtherDType) else native


def _is_void(dtype: Any) -> bool:
    try:
        return bool(np.dtype(dtype).kind == "V")
    except TypeError:
        return False


def _as_zarr_names(named: Any) -> Any:
    """The name of a data type, in which plain bytes are "raw_bytes": zarr-python reads no "r24"."""
    if isinstance(named, str):
        is_raw = RAW_BITS.fullmatch(named) is not None
        return RawBytes(length=int(named[1:]) // 8)._named() if is_raw else named
    fields = named["configuration"].get("fields", [])
    made = [{**field, "data_type": _as_zarr_names(field["data_type"])} for field in fields]
    return {**named, "configuration": {**named["configuration"], **({"fields": made} if made else {})}}


def __getattr__(name: str) -> Any:
    raise missing_name(
        f"module {__name__!r}", name, "parse_dtype, or a data type of a plugin (zstore.plugin.types)"
    )
