"""Compression of chunks of up to 4 dimensions by zfp, without a header.

Spec     zarr-extensions codec "zfp"
v3 name  zfp
v2 id    none (numcodecs' zfpy writes a header)
Example  {"name": "zfp", "configuration": {"mode": "fixed_accuracy", "tolerance": 0.05}}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from zstore.errors import CodecError, MetadataError, UnsupportedError
from zstore.plugin.codecs import ChunkSpec, Option, Serializer, choice, integer, parse_options
from zstore.plugin.kernels import zfpy

__all__ = ["Zfp"]

# ZFP_MIN_BITS, ZFP_MAX_BITS, ZFP_MAX_PREC and ZFP_MIN_EXP of zfp.h: with these values a bound has no effect.
MIN_BITS, MAX_BITS, MAX_PRECISION, MIN_EXPONENT = 1, 16658, 64, -1074

# Types that zfp does not take: which type is compressed instead, and how many bits integers are shifted up.
PROMOTED = {"int8": ("int32", 23), "uint8": ("int32", 23), "int16": ("int32", 15), "uint16": ("int32", 15)}
SAME_RANGE = {"uint32": "int32", "uint64": "int64", "float16": "float32", "bfloat16": "float32"}


def _parse_positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(value)
    return value


# The options of each mode.
MODES: dict[str, tuple[Option, ...]] = {
    "reversible": (),
    "expert": (
        *(integer(name, 0, 1 << 16) for name in ("minbits", "maxbits", "maxprec")),
        integer("minexp", -(1 << 15), 1 << 15),
    ),
    "fixed_accuracy": (Option("tolerance", "a number above 0", _parse_positive),),
    "fixed_rate": (Option("rate", "a number above 0", _parse_positive),),
    "fixed_precision": (integer("precision", 1, MAX_PRECISION),),
}


@dataclass(frozen=True)
class Zfp(Serializer):
    """zfp: `given` are the options of the mode; `settings`, which `bind` sets, are the arguments for zfpy."""

    name: ClassVar[str] = "zfp"

    mode: str
    given: Mapping[str, Any] = field(default_factory=dict)
    spec: ChunkSpec | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        mode = configuration.get("mode") if isinstance(configuration, Mapping) else None
        options = (choice("mode", tuple(MODES)), *(MODES.get(mode, ()) if isinstance(mode, str) else ()))
        given = parse_options(cls.name, options, configuration)
        return cls(given.pop("mode"), given)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return {"mode": self.mode, **self.given}

    def bind(self, spec: ChunkSpec) -> Self:
        name = spec.dtype.name
        if len(spec.shape) > 4 or not (
            spec.dtype in zfpy.ITEM_TYPES or name in PROMOTED or name in SAME_RANGE
        ):
            raise MetadataError(
                "codec 'zfp' takes integers and floats of up to 64 bits and up to 4 dimensions,"
                f" the chunk has {len(spec.shape)} and items of type {name}",
                codec=self.name,
            )
        settings = self._expert(spec) if self.mode == "expert" else dict(self.given)
        return type(self)(self.mode, self.given, spec, settings)

    def _expert(self, spec: ChunkSpec) -> dict[str, Any]:
        """The arguments for zfpy that mean the same as the four numbers of mode "expert"."""
        least, most, precision, exponent = (
            self.given[name] for name in ("minbits", "maxbits", "maxprec", "minexp")
        )
        are_bits_free = least <= MIN_BITS and most >= MAX_BITS
        if are_bits_free and precision >= MAX_PRECISION and exponent < MIN_EXPONENT:
            return {}
        if are_bits_free and precision >= MAX_PRECISION and exponent > MIN_EXPONENT:
            return {"tolerance": math.ldexp(1.0, exponent)}
        if are_bits_free and 0 < precision <= MAX_PRECISION and exponent == MIN_EXPONENT:
            return {"precision": precision}
        if least == most > 0 and precision >= MAX_PRECISION and exponent == MIN_EXPONENT:
            return {"rate": most / 4 ** max(1, len(spec.shape))}
        raise UnsupportedError(
            f"codec 'zfp' has mode 'expert' with {dict(self.given)}, which zfpy cannot do;"
            " expected numbers that mean a rate, a precision, a tolerance of a power of two, or reversible",
            codec=self.name,
        )

    @property
    def _zfp_type(self) -> np.dtype[Any]:
        assert self.spec is not None, "bound before use"
        name = self.spec.dtype.name
        return np.dtype(PROMOTED[name][0] if name in PROMOTED else SAME_RANGE.get(name, name))

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        items = np.ascontiguousarray(self._promote(chunk)).reshape(chunk.shape or (1,))
        return zfpy.encode_stream(items, self.settings, has_header=False, codec=self.name)

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        assert self.spec is not None, "bound before use"
        package, dtype, shape = zfpy.zfpy(), self._zfp_type, self.spec.shape or (1,)
        number = package.dtype_to_ztype(dtype.type)

        def decompress(stream: bytes) -> Any:
            return package._decompress(stream, number, shape, **self.settings)

        rate_bits = 0
        if "rate" in self.settings:
            rate_bits = math.floor(4 ** len(shape) * self.settings["rate"] + 0.5)
        items = zfpy.decode_stream(decompress, data, shape, dtype, rate_bits, codec=self.name)
        return self._demote(items).reshape(self.spec.shape)

    def _promote(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        name = chunk.dtype.name
        if name in PROMOTED:
            shift = PROMOTED[name][1]
            middle = (1 << (30 - shift)) if chunk.dtype.kind == "u" else 0
            return (chunk.astype(np.int32) - np.int32(middle)) << np.int32(shift)
        if chunk.dtype.kind == "u" and chunk.size and int(chunk.max()) > np.iinfo(self._zfp_type).max:
            raise CodecError(
                f"codec 'zfp' failed: {chunk.max()} of {name} is larger than {np.iinfo(self._zfp_type).max}",
                codec=self.name,
            )
        return chunk.astype(self._zfp_type, copy=False)

    def _demote(self, items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert self.spec is not None, "bound before use"
        dtype = self.spec.dtype
        if dtype.name in PROMOTED:
            shift = PROMOTED[dtype.name][1]
            limits = np.iinfo(dtype)
            middle = (1 << (30 - shift)) if dtype.kind == "u" else 0
            items = np.clip((items >> np.int32(shift)) + np.int32(middle), limits.min, limits.max)
        elif dtype.kind == "u":
            items = np.maximum(items, 0)
        with np.errstate(over="ignore"):
            chunk = items.astype(dtype, copy=False)
        lost = np.isfinite(items) & ~np.isfinite(chunk)
        if lost.any():
            raise CodecError(
                f"codec 'zfp' failed: decodes to {items[lost][0]}, too large for {dtype.name}",
                codec=self.name,
            )
        return chunk
