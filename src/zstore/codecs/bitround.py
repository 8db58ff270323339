"""Bit rounding: keeps only the leading bits of numbers, so that the bytes compress better.

Spec     zarr-extensions codec "bitround"
v3 name  bitround
v2 id    bitround (numcodecs, floats only; see `zstore.codecs.numcodecs`)
Example  {"name": "bitround", "configuration": {"keepbits": 10}}

Halves go to the even neighbour. A value that would round past the largest of its type is rounded down; NaN,
infinity and NaT stay as they are. Negative integers are rounded like their absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ArrayCodec, ChunkSpec, Option, integer, refuse_option

Numbers = np.ndarray[Any, Any]

# dtype -> (bits of the mantissa, bits in all); for complex items, of each part.
MANTISSAS = {"float16": (10, 16), "float32": (23, 32), "float64": (52, 64), "bfloat16": (7, 16)}


@dataclass(frozen=True)
class Bitround(ArrayCodec):
    """Rounds to `keepbits` bits of the mantissa; of integers, counted from the first bit that is set."""

    name: ClassVar[str] = "bitround"
    options: ClassVar[tuple[Option, ...]] = (integer("keepbits", 0, 64),)

    keepbits: int

    def bind(self, spec: ChunkSpec) -> Self:
        name = _part(spec.dtype).name
        if name in MANTISSAS:
            low, high = 0, MANTISSAS[name][0]
        elif spec.dtype.kind in "iumM":
            low, high = 1, 8 * spec.dtype.itemsize
        else:
            raise self.refuse(f"works on integers and floats, the chunk's items are {spec.dtype}")
        if not low <= self.keepbits <= high:
            raise refuse_option(self.name, "keepbits", self.keepbits, f"{low} to {high} for {spec.dtype}")
        return self

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        if spec.fill_value is None:
            return spec
        return spec._replace(fill_value=self.encode(np.asarray(spec.fill_value, spec.dtype))[()])

    def encode(self, chunk: Numbers) -> Numbers:
        part = _part(chunk.dtype)
        parts = np.ascontiguousarray(chunk).reshape(-1).view(part)
        if part.name in MANTISSAS:
            rounded: Numbers = _round_floats(parts, self.keepbits, *MANTISSAS[part.name])
        elif part.kind == "u":
            rounded = _round_integers(parts, self.keepbits)
        else:
            rounded = _round_signed(parts.view(f"i{part.itemsize}"), self.keepbits)
            if part.kind in "mM":
                rounded[np.isnat(parts)] = np.iinfo(np.int64).min
        result: Numbers = rounded.view(chunk.dtype)
        return result.reshape(chunk.shape)

    def decode(self, chunk: Numbers) -> Numbers:
        return chunk


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of an item, or of one part of a complex item."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _round_floats(values: Numbers, keepbits: int, mantissa_bits: int, bit_count: int) -> Numbers:
    word = np.dtype(f"u{bit_count // 8}").type
    dropped = mantissa_bits - keepbits
    bits = values.view(word)
    if dropped == 0:
        return values
    magnitude = bits & word((1 << (bit_count - 1)) - 1)
    infinity = word(((1 << (bit_count - 1 - mantissa_bits)) - 1) << mantissa_bits)
    mask = word(((1 << bit_count) - 1) ^ ((1 << dropped) - 1))
    up = ((bits >> word(dropped)) & word(1)) + word((1 << (dropped - 1)) - 1)
    is_up = (magnitude + up) & mask < infinity
    rounded = np.where(is_up, bits + up, bits) & mask
    result: Numbers = np.where(magnitude >= infinity, bits, rounded)
    return result


def _round_integers(values: Numbers, keepbits: int, limit: int = 0) -> Numbers:
    """Round unsigned integers, but none up past `limit` (or the largest of their type)."""
    word = values.dtype.type
    dropped = np.maximum(_bit_length(values), keepbits).astype(values.dtype) - word(keepbits)
    quantum = np.left_shift(word(1), dropped)
    low = values & (quantum - word(1))
    down = values - low
    half = quantum >> word(1)
    is_odd = ((values >> dropped) & word(1)).astype(bool)
    is_up = (dropped > 0) & ((low > half) | ((low == half) & is_odd))
    is_up &= down <= word(limit or np.iinfo(values.dtype).max) - quantum
    result: Numbers = down + np.where(is_up, quantum, word(0))
    return result


def _round_signed(values: Numbers, keepbits: int) -> Numbers:
    word = np.dtype(f"u{values.dtype.itemsize}").type
    is_negative = values < 0
    bits = values.view(word)
    magnitude = np.where(is_negative, ~bits + word(1), bits)
    largest = int(np.iinfo(values.dtype).max)
    # There is one more negative value than positive ones.
    rounded = np.where(
        is_negative,
        _round_integers(magnitude, keepbits, largest + 1),
        _round_integers(magnitude, keepbits, largest),
    )
    result: Numbers = np.where(is_negative, ~rounded + word(1), rounded)
    return result.view(values.dtype)


def _bit_length(values: Numbers) -> Numbers:
    """The number of bits from the first one that is set, 0 for 0."""
    high = (values >> values.dtype.type(values.dtype.itemsize * 4)).astype(np.float64)
    low_bits = values.dtype.itemsize * 4
    low = (values & values.dtype.type((1 << low_bits) - 1)).astype(np.float64)
    result: Numbers = np.where(high > 0, np.frexp(high)[1] + low_bits, np.frexp(low)[1])
    return result
