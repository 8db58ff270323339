"""Casting: stores numbers as another data type, converted by value.

Spec     zarr-extensions codec "cast_value"
v3 name  cast_value
v2 id    none (numcodecs' astype wraps around silently)
Example  {"name": "cast_value", "configuration": {"data_type": "uint8", "rounding": "towards-zero",
          "out_of_range": "clamp", "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}}}

A value that the other type cannot represent is an error, unless `out_of_range` or `scalar_map` replaces it.
The key "NaN" of a map stands for every NaN, a NaN in hex digits for that one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import UNBOUND, ArrayCodec, ChunkSpec, Option, choice
from zstore.codecs.casting import ROUNDINGS, cast, is_integer, is_number
from zstore.errors import CodecError, MetadataError, ZstoreError
from zstore.model.dtype import DataType

# (key, value) pairs of numpy scalars, in the order in which they are looked up.
Pairs = tuple[tuple[np.generic, np.generic], ...]


def _parse_type(name: Any) -> DataType:
    try:
        data_type = DataType.from_name(name)
    except ZstoreError as error:
        error.codec = error.codec or CastValue.name
        raise
    if not is_number(data_type.numpy):
        raise ValueError(name)
    return data_type


def _parse_maps(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or set(value) - {"encode", "decode"}:
        raise ValueError(value)
    for pairs in value.values():
        if not isinstance(pairs, list | tuple) or not all(
            isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
        ):
            raise ValueError(value)
    return value


@dataclass(frozen=True)
class CastValue(ArrayCodec):
    """Stores numbers as `data_type`; `bind` fills in `source` and the scalars of the maps."""

    name: ClassVar[str] = "cast_value"

    options: ClassVar[tuple[Option, ...]] = (
        Option("data_type", "integers or real floats", _parse_type, render=DataType.render_name),
        choice("rounding", ROUNDINGS, None),
        choice("out_of_range", ("clamp", "wrap"), None),
        Option("scalar_map", "an object with 'encode' and 'decode', lists of pairs", _parse_maps, None, dict),
    )

    data_type: DataType
    rounding: str | None = None
    out_of_range: str | None = None
    scalar_map: Mapping[str, Any] | None = None
    source: np.dtype[Any] = UNBOUND
    encode_map: Pairs = ()
    decode_map: Pairs = ()

    def __post_init__(self) -> None:
        if self.out_of_range == "wrap" and not is_integer(self.data_type.numpy):
            raise self.refuse(
                f"has out_of_range 'wrap' and data_type {self.data_type.name!r}, expected integers for it"
            )

    def bind(self, spec: ChunkSpec) -> Self:
        if not is_number(spec.dtype):
            raise self.refuse(f"converts integers and real floats, the chunk's items are {spec.dtype}")
        source = DataType.from_numpy(spec.dtype)
        maps = {} if self.scalar_map is None else self.scalar_map
        return replace(
            self,
            source=spec.dtype,
            encode_map=_parse_map(maps.get("encode", ()), source, self.data_type),
            decode_map=_parse_map(maps.get("decode", ()), self.data_type, source),
        )

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """The kind of chunks that the next codec gets.

        Raises
            MetadataError: the fill value does not decode to itself, which items never written rely on.
        """
        dtype = self.data_type.numpy
        if spec.fill_value is None:
            return spec._replace(dtype=dtype)
        bound = self if self.source is not None else self.bind(spec)
        fill = np.asarray(spec.fill_value, spec.dtype).reshape(1)
        try:
            encoded = bound.encode(fill)
            decoded = bound.decode(encoded)
        except CodecError as error:
            raise self.refuse(f"cannot convert the fill value {fill[0]}: {error}") from error
        if not (decoded == fill).all() and not (fill != fill).all() & (decoded != decoded).all():
            raise self.refuse(f"makes {decoded[0]} of the fill value {fill[0]} by way of {encoded[0]}")
        return spec._replace(dtype=dtype, fill_value=encoded[0])

    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._convert(chunk, self.data_type.numpy, self.encode_map)

    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._convert(chunk, self.source, self.decode_map)

    def _convert(
        self, chunk: np.ndarray[Any, Any], dtype: np.dtype[Any], pairs: Pairs
    ) -> np.ndarray[Any, Any]:
        out_of_range = self.out_of_range
        if out_of_range == "wrap" and not is_integer(dtype):
            out_of_range = None  # means nothing when decoding to floats
        matches = [_matches(chunk, key) for key, _ in pairs]
        is_mapped = np.logical_or.reduce(matches) if matches else None
        if is_mapped is not None and is_mapped.any():
            # The mapped values are not converted: any value that can be takes their place.
            chunk = chunk.copy()
            chunk[is_mapped] = np.ones((), chunk.dtype)
        result = cast(chunk, dtype, self.rounding or "nearest-even", out_of_range)
        if is_mapped is None or not is_mapped.any():
            return result
        result = result.copy() if result is chunk else result
        # The first matching key counts, so it is written last.
        for (_, value), where in zip(reversed(pairs), reversed(matches), strict=True):
            result[where] = value
        return result


def _parse_map(pairs: Any, keys: DataType, values: DataType) -> Pairs:
    return tuple((_parse_scalar(key, keys), _parse_scalar(value, values)) for key, value in pairs)


def _parse_scalar(value: Any, data_type: DataType) -> Any:
    # The specification's example writes infinity with a plus sign.
    scalar: Any = None
    if value is not None:
        try:
            scalar = data_type.parse_fill("Infinity" if value == "+Infinity" else value, 3)
        except MetadataError as error:
            raise CastValue.refuse(f"has {value!r} in scalar_map: {error}") from error
    if scalar is None:
        raise CastValue.refuse(f"has {value!r} in scalar_map, expected a value of {data_type.name}")
    return scalar


def _matches(chunk: np.ndarray[Any, Any], key: np.generic) -> np.ndarray[Any, Any]:
    matches: np.ndarray[Any, Any]
    if key == key:
        matches = np.asarray(chunk == key)
    elif key.tobytes() == np.asarray(np.nan).astype(chunk.dtype).tobytes():
        matches = np.asarray(chunk != chunk)
    else:
        word = np.dtype(f"u{chunk.dtype.itemsize}")
        matches = chunk.view(word) == np.frombuffer(key.tobytes(), word)[0]
    return matches
