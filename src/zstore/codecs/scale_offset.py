"""Scale and offset: stores (value - offset) * scale, computed in the chunk's own data type.

Spec     zarr-extensions codec "scale_offset"
v3 name  scale_offset
v2 id    none (numcodecs' fixedscaleoffset rounds and converts as well)
Example  {"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}

A result that the type cannot represent is an error: an integer that is out of range or not whole, a finite
float that would become infinite. Followed by "cast_value", it packs a range of values into few bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ArrayCodec, ChunkSpec, Option
from zstore.errors import CodecError, MetadataError
from zstore.model.dtype import DataType


def _not_null(value: Any) -> Any:
    if value is None:
        raise ValueError(value)
    return value


@dataclass(frozen=True)
class ScaleOffset(ArrayCodec):
    """The codec: `offset` and `scale` are None if left out; `bind` makes them the scalars below."""

    name: ClassVar[str] = "scale_offset"
    options: ClassVar[tuple[Option, ...]] = (
        Option("offset", "a number", _not_null, None),
        Option("scale", "a number", _not_null, None),
    )

    offset: Any = None
    scale: Any = None
    subtracted: Any = None
    factor: Any = None

    def bind(self, spec: ChunkSpec) -> Self:
        dtype = spec.dtype
        is_float = dtype.kind in "fc" or dtype.name == "bfloat16"
        if dtype.kind not in "iu" and not is_float:
            raise self.refuse(f"reckons with integers and floats, the chunk's items are {dtype}")
        data_type = DataType.from_numpy(dtype)
        scalars = []
        for option, value, neutral in (("offset", self.offset, 0), ("scale", self.scale, 1)):
            try:
                scalar = data_type.parse_fill(value, 3) if value is not None else dtype.type(neutral)
            except MetadataError as error:
                raise self.refuse(f"has {option} {value!r}: {error}") from error
            if is_float and not np.isfinite(scalar):
                raise self.refuse(f"has {option} {value!r}, expected a finite number")
            scalars.append(scalar)
        if scalars[1] == 0:
            raise self.refuse(f"has scale {self.scale!r}, by which nothing can be divided again")
        return type(self)(self.offset, self.scale, *scalars)

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """The kind of chunks that the next codec gets.

        Raises
            MetadataError: the chunk's data type cannot represent the encoded fill value.
        """
        if spec.fill_value is None:
            return spec
        bound = self if self.factor is not None else self.bind(spec)
        try:
            return spec._replace(fill_value=bound.encode(np.asarray(spec.fill_value, spec.dtype))[()])
        except CodecError as error:
            raise self.refuse(f"cannot convert the fill value {spec.fill_value}: {error}") from error

    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self.offset is None and self.scale is None:
            return chunk
        if chunk.dtype.kind in "iu":
            shift, factor = int(self.subtracted), int(self.factor)
            self._check_range(chunk, lambda value: value - shift)
            self._check_range(chunk, lambda value: (value - shift) * factor)
        return self._reckon(chunk, lambda: (chunk - self.subtracted) * self.factor)

    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self.offset is None and self.scale is None:
            return chunk
        if chunk.dtype.kind not in "iu":
            return self._reckon(chunk, lambda: chunk / self.factor + self.subtracted)
        shift, factor = int(self.subtracted), int(self.factor)
        self._check_range(chunk, lambda value: value // factor)
        if factor not in (1, -1):
            rests = chunk % self.factor
            if rests.any():
                value = chunk.reshape(-1)[np.argmax(rests.reshape(-1) != 0)]
                raise self.fail(f"{value} is no multiple of scale {factor}")
        self._check_range(chunk, lambda value: value // factor + shift)
        return self._reckon(chunk, lambda: chunk // self.factor + self.subtracted)

    def _check_range(self, chunk: np.ndarray[Any, Any], formula: Any) -> None:
        """Check that a monotonic formula stays within the range of the chunk's data type.

        Raises
            CodecError: it does not, for the smallest or the largest item.
        """
        if not chunk.size:
            return
        limits = np.iinfo(chunk.dtype)
        for value in (int(chunk.min()), int(chunk.max())):
            result = formula(value)
            if not limits.min <= result <= limits.max:
                raise self.fail(f"{value} becomes {result}, out of range for {chunk.dtype}")

    def _reckon(self, chunk: np.ndarray[Any, Any], formula: Any) -> np.ndarray[Any, Any]:
        # Overflow is found by comparing with the input, not by flags, which not all types set.
        with np.errstate(all="ignore"):
            result = np.asarray(formula())
        if chunk.dtype.kind not in "iu":
            lost = np.isfinite(chunk) & ~np.isfinite(result)
            if lost.any():
                raise self.fail(f"{chunk[lost].reshape(-1)[0]} becomes too large for {chunk.dtype}")
        return result.astype(chunk.dtype, copy=False).reshape(chunk.shape)
