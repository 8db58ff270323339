"""zfp: mostly lossy compression of chunks of 1 to 4 dimensions, by the package `zfpy` (extra "zfpy").

Spec     numcodecs' documentation, ZFPY; zfp's compressed format with its full header
v3 name  numcodecs.zfpy, in the serializer's place
v2 id    zfpy
Example  {"name": "numcodecs.zfpy", "configuration": {"mode": 4, "tolerance": 0.01}}

zfp's decoder does not check where its input ends. So its input is padded to as much as it can ever read, in
two ways: if the results differ, the input was cut short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ChunkSpec, Option, SerializerOrBytesCodec, anything, failure, integer
from zstore.extensions.extras import optional

FIXED_RATE, FIXED_PRECISION, FIXED_ACCURACY, REVERSIBLE = 2, 3, 4, 5
# The item types, by their number in a header.
ITEM_TYPES = tuple(np.dtype(name) for name in ("int32", "int64", "float32", "float64"))
# The fewest bits of a block of floats: one, and an exponent. With fewer, zfp writes out of bounds.
LEAST_BITS = {np.dtype(np.float32): 9, np.dtype(np.float64): 12}


def _parse_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(value)
    return value


class NumcodecsZfpy(SerializerOrBytesCodec):
    """zfp as the serializer of chunks, or (as in Zarr v2) as a bytes codec after another serializer."""

    name: ClassVar[str] = "numcodecs.zfpy"
    options: ClassVar[tuple[Option, ...]] = (
        integer("mode", FIXED_RATE, REVERSIBLE, FIXED_ACCURACY),
        *(Option(name, "a number", _parse_number, -1) for name in ("tolerance", "rate", "precision")),
        # Written by numcodecs; it follows from the other options.
        anything("compression_kwargs", None),
    )

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`.

        Raises
            MetadataError: items or a number of dimensions that zfp does not take.
        """
        if spec.dtype not in ITEM_TYPES or not spec.dtype.isnative or len(spec.shape) > 4:
            raise self.refuse(
                f"takes integers and floats of 32 or 64 bits in native byte order and up"
                f" to 4 dimensions, the chunk has {len(spec.shape)} and items of {spec.dtype.str}"
            )
        return super().bind(spec)

    def _encode_items(self, items: np.ndarray[Any, Any]) -> bytes:
        mode = self._configuration.get("mode", FIXED_ACCURACY)
        option = {FIXED_RATE: "rate", FIXED_PRECISION: "precision", FIXED_ACCURACY: "tolerance"}.get(mode)
        options = {} if option is None else {option: self._configuration.get(option, -1)}
        return encode_stream(
            items.reshape(self._spec.shape or (1,)), options, has_header=True, codec=self.name
        )

    def decode(self, data: Any, size_limit: int | None = None) -> Any:
        shape, dtype, rate_bits = _parse_header(bytes(data[:20]), self.name)
        spec, size = self._spec, prod(shape) * dtype.itemsize
        if spec is not None and (dtype != spec.dtype or prod(shape) != prod(spec.shape)):
            raise self.fail(f"holds {dtype} of shape {shape}, expected {spec.dtype} of shape {spec.shape}")
        if size_limit is not None and size > size_limit:
            raise self.fail(f"decodes to {size} bytes, at most {size_limit} allowed")
        decompress = zfpy().decompress_numpy
        items = decode_stream(decompress, data, shape, dtype, rate_bits, codec=self.name)
        if size_limit is not None:
            return items.reshape(-1).view(np.uint8).data
        return items.reshape(spec.shape)


def _parse_header(data: bytes, codec: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """(shape, dtype, bits of a block if fixed, else 0) from a stream's first 96 or 148 bits."""
    if len(data) < 12 or data[:3] != b"zfp":
        raise failure(codec, f"{len(data)} bytes that do not begin with zfp's header")
    bits = int.from_bytes(data, "little") >> 32
    type_number, ndim, lengths = bits & 3, (bits >> 2 & 3) + 1, bits >> 4
    width = 48 // ndim
    shape = tuple((lengths >> width * d & (1 << width) - 1) + 1 for d in range(ndim))
    mode = bits >> 52 & 0xFFF
    rate_bits = mode + 1 if mode < 2048 else 0
    if mode == 0xFFF:
        least, most = (bits >> 64 & 0x7FFF) + 1, (bits >> 79 & 0x7FFF) + 1
        rate_bits = least if least == most else 0
        if least > most or (least > 1 and not rate_bits):
            raise failure(codec, f"blocks of {least} to {most} bits")
    return shape[::-1], ITEM_TYPES[type_number], rate_bits


def encode_stream(
    items: np.ndarray[Any, Any], settings: Mapping[str, Any], *, has_header: bool, codec: str
) -> bytes:
    """Encode contiguous items as a zfp stream; `settings` are zfpy's arguments.

    Raises
        CodecError: zfp does not take them, or the rate leaves a block too few bits.
    """
    bits, least = 4**items.ndim * settings.get("rate", -1) + 0.5, LEAST_BITS.get(items.dtype, 1)
    if 0 < bits < least:
        block = f"a block of {4**items.ndim} {items.dtype} {int(bits)} bits"
        raise failure(codec, f"rate {settings['rate']} gives {block}, expected {least} at least")
    try:
        return bytes(zfpy().compress_numpy(items, write_header=has_header, **settings))
    except (TypeError, ValueError, RuntimeError) as error:
        raise failure(codec, error, f"encode {items.nbytes} bytes") from error


def decode_stream(
    decompress: Callable[[bytes], Any],
    data: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    rate_bits: int,
    *,
    codec: str,
) -> np.ndarray[Any, Any]:
    """Decode a zfp stream by `decompress`, which may read beyond the end of its input.

    `rate_bits` is the number of bits of each block if that is fixed, else 0.

    Raises
        CodecError: damaged or cut short.
    """
    block_count = prod(-(-length // 4) for length in shape)
    item_count = 4 ** len(shape)
    if rate_bits < LEAST_BITS.get(dtype, 1):
        rate_bits = 0  # zfp ignores a rate that leaves no room for an exponent
    # The most bits of a block: all bit planes of all items, a test bit each, exponent and precision.
    block_bits = rate_bits or item_count * (8 * dtype.itemsize + 1) + 32
    most = (160 + block_count * block_bits) // 8 + 16
    data = bytes(data)
    # Streams consist of words of 8 bytes; the last may be partly used.
    longest = -(-most // 8) * 8
    if len(data) > longest:
        raise failure(codec, f"{len(data)} bytes, expected {longest} at most")
    results = []
    for filler in (b"\0", b"\xff") if len(data) < most else (b"",):
        try:
            items = decompress(data + filler * max(0, most - len(data)))
        except (TypeError, ValueError, RuntimeError) as error:
            raise failure(codec, error, f"decode {len(data)} bytes") from error
        results.append(np.ascontiguousarray(items).reshape(-1).view(np.uint8))
    if not np.array_equal(results[0], results[-1]):
        raise failure(codec, f"stream ends too early, after {len(data)} bytes")
    return results[0].view(dtype).reshape(shape)


def zfpy() -> Any:
    """The package zfpy, imported.

    Raises
        UnsupportedError: it is not installed.
    """
    with optional("codec 'numcodecs.zfpy' needs the package zfpy", "zfpy", "numcodecs.zfpy"):
        import zfpy
    return zfpy
