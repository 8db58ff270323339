"""Codecs of HDF5 and TIFF files that Zarr lacks; most call imagecodecs and have its names.

Spec     imagecodecs.numcodecs, whose ids and options these are; HDF5's registered filters; TIFF 6.0,
         sections 13 and 14, and Adobe's technical note 3 (predictors)
v3 name  numcodecs.imagecodecs_lzw and so on
v2 id    imagecodecs_lzw and so on
Example  {"name": "numcodecs.imagecodecs_szip", "configuration": {"options_mask": 133, "pixels_per_block": 16,
         "bits_per_pixel": 16, "pixels_per_scanline": 256}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.plugin.codecs import (
    ArrayCodec,
    BytesCodec,
    ChunkSpec,
    NativeCodec,
    Option,
    choice,
    integer,
    optional,
    refuse_unknown,
)
from zstore.plugin.kernels import native

__all__ = [
    "Delta",
    "Floatpred",
    "Hdf5Shuffle",
    "Lz4h5",
    "Lzf",
    "Lzw",
    "Packbits",
    "Packints",
    "Szip",
    "TiffPredictor",
]

PIECE_SIZE = 16 << 10
# What imagecodecs raises: each codec's own error is a RuntimeError.
FAILURES = (RuntimeError, ValueError, TypeError, IndexError, OverflowError)


class _Codec:
    """A codec that calls imagecodecs' functions of the same name."""

    name: ClassVar[str]
    known: ClassVar[Mapping[str, Any]] = {}
    """The options with their defaults, None where an option must be given."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Options that are accepted and not used: they follow from the chunk."""

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec | None = None) -> None:
        self._configuration = dict(configuration)
        self._spec = spec
        self._options = {**self.known, **self._configuration}

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        refuse_unknown(cls.name, configuration, (*cls.known, *cls.ignored))
        for option, default in cls.known.items():
            value = configuration.get(option, default)
            kind = bool if isinstance(default, bool) else int
            if type(value) is not kind:
                raise cls.refuse(f"has {option} {value!r}; expected {kind.__name__}")  # type: ignore[attr-defined]
        return cls(configuration)

    def to_configuration(self) -> dict[str, Any]:
        return dict(self._configuration)

    def bind(self, spec: ChunkSpec) -> Self:
        return type(self)(self._configuration, spec)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._configuration, self._spec))

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._configuration.items())
        return f"{type(self).__name__}({options})"

    def _call(self, verb: str, data: Any, *more: Any, **options: Any) -> Any:
        """Encode or decode the data with imagecodecs."""
        with optional(f"codec {self.name!r} needs imagecodecs", "tiff", owner="zstore-virtual"):
            import imagecodecs
        function = f"{self.name.rpartition('_')[2]}_{verb}"
        try:
            return getattr(imagecodecs, function)(data, *more, **options)
        except FAILURES as error:
            size = memoryview(data).nbytes
            raise self.fail(f"to {verb} {size} bytes: {error}") from error  # type: ignore[attr-defined]


class _Stream(_Codec, BytesCodec):
    """A codec from bytes to bytes, for which the calls of imagecodecs are enough."""

    def encode(self, data: Any) -> bytes:
        return bytes(self._call("encode", bytes(data), **self._options))

    def decode(self, data: Any, size_limit: int) -> bytes:
        # With room for one byte more, data that decode to too many bytes are noticed.
        decoded = self._call("decode", bytes(data), out=size_limit + 1, **self._options)
        if len(decoded) > size_limit:
            raise self.fail(f"decodes to more than the {size_limit} bytes allowed")
        return bytes(decoded)


@dataclass(frozen=True)
class Lzw(NativeCodec):
    """TIFF's LZW, by a kernel: imagecodecs crashes on some damaged streams."""

    name: ClassVar[str] = "numcodecs.imagecodecs_lzw"

    def _make_capsule(self) -> object:
        return native.lzw()


class Packbits(_Stream):
    """TIFF's PackBits, encoded by pieces: imagecodecs takes time by the square of the size."""

    name: ClassVar[str] = "numcodecs.imagecodecs_packbits"

    def encode(self, data: Any) -> bytes:
        view = memoryview(data).cast("B")
        pieces = (view[at : at + PIECE_SIZE] for at in range(0, len(view), PIECE_SIZE))
        return b"".join(super(Packbits, self).encode(piece) for piece in pieces)


class Lzf(_Stream):
    """LZF; h5py writes it without a header."""

    name: ClassVar[str] = "numcodecs.imagecodecs_lzf"
    known: ClassVar[Mapping[str, Any]] = {"header": True}


class Szip(_Stream):
    """HDF5's szip, whose header says how many bytes it decodes to."""

    name: ClassVar[str] = "numcodecs.imagecodecs_szip"
    known: ClassVar[Mapping[str, Any]] = {
        **dict.fromkeys(("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")),
        "header": True,
    }

    def decode(self, data: Any, size_limit: int) -> bytes:
        stated = int.from_bytes(bytes(data[:4]), "little") if self._options["header"] else size_limit
        if stated > size_limit:
            raise self.fail(f"decodes to {stated} bytes, at most {size_limit} allowed")
        return bytes(self._call("decode", bytes(data), out=stated, **self._options))


class Lz4h5(_Stream):
    """LZ4 in blocks, as HDF5's filter 32004 writes it."""

    name: ClassVar[str] = "numcodecs.imagecodecs_lz4h5"


class Hdf5Shuffle(_Codec, BytesCodec):
    """HDF5's shuffle of any number of bytes: what is left behind the last whole item stays at the end."""

    name: ClassVar[str] = "zstore.hdf5_shuffle"
    known: ClassVar[Mapping[str, Any]] = {"elementsize": None}

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        made = super().from_configuration(configuration)
        if made._options["elementsize"] < 1:
            raise cls.refuse(f"has elementsize {made._options['elementsize']}; expected 1 or more")
        return made

    def encode(self, data: Any) -> bytes:
        return self._transpose(data, (-1, self._options["elementsize"]))

    def decode(self, data: Any, size_limit: int) -> bytes:
        if memoryview(data).nbytes > size_limit:
            raise self.fail(f"decodes to {memoryview(data).nbytes} bytes, at most {size_limit} allowed")
        return self._transpose(data, (self._options["elementsize"], -1))

    def _transpose(self, data: Any, shape: tuple[int, int]) -> bytes:
        source = np.frombuffer(data, np.uint8)
        whole = source.size - source.size % self._options["elementsize"]
        return source[:whole].reshape(shape).T.tobytes() + source[whole:].tobytes()

    def encoded_bound(self, size: int) -> int | None:
        return size


class Packints(_Codec, BytesCodec):
    """Integers of 1, 2 or 4 bits, the highest bits first; each run of `runlen` items begins with a byte."""

    name: ClassVar[str] = "numcodecs.imagecodecs_packints"
    known: ClassVar[Mapping[str, Any]] = {"bitspersample": None, "runlen": 0}
    ignored: ClassVar[frozenset[str]] = frozenset(("dtype", "bitorder"))

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        made = super().from_configuration(configuration)
        if configuration.get("dtype", "|u1") not in ("|u1", "uint8") or configuration.get("bitorder"):
            raise cls.refuse(f"with {dict(configuration)!r}; expected items of |u1, no bitorder")
        if made._options["bitspersample"] not in (1, 2, 4):
            raise cls.refuse(f"has bitspersample {made._options['bitspersample']}; expected 1, 2 or 4")
        return made

    def encode(self, data: Any) -> bytes:
        items = np.frombuffer(data, np.uint8)
        bits = self._options["bitspersample"]
        if items.size and items.max() >> bits:
            raise self.fail(f"to encode {items.max()}: expected less than {1 << bits}")
        return bytes(self._call("encode", items, bits, runlen=self._options["runlen"]))

    def decode(self, data: Any, size_limit: int) -> memoryview:
        bits, run = self._options["bitspersample"], self._options["runlen"] or size_limit
        if memoryview(data).nbytes != -(-run * bits // 8) * (size_limit // max(run, 1)):
            raise self.fail(
                f"{memoryview(data).nbytes} bytes do not hold {size_limit} items in runs of {run}"
            )
        found = self._call("decode", bytes(data), "|u1", bits, runlen=self._options["runlen"])
        return np.ascontiguousarray(found).reshape(-1)[:size_limit].data


class Delta(_Codec, ArrayCodec):
    """TIFF's predictor 2: each sample is replaced by its difference to the one before it in the row."""

    name: ClassVar[str] = "numcodecs.imagecodecs_delta"
    known: ClassVar[Mapping[str, Any]] = {"axis": -1, "dist": 1}
    ignored: ClassVar[frozenset[str]] = frozenset(("shape", "dtype"))

    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        return spec

    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._apply("encode", chunk)

    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._apply("decode", chunk)

    def _apply(self, verb: str, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        native = np.ascontiguousarray(chunk, chunk.dtype.newbyteorder("="))
        items = native.view(f"u{native.dtype.itemsize}") if native.dtype.kind == "i" else native
        made = np.asarray(self._call(verb, items, **self._options))
        turned: np.ndarray[Any, Any] = made.view(native.dtype).reshape(chunk.shape)
        return turned


@dataclass(frozen=True)
class TiffPredictor(NativeCodec):
    """TIFF's predictor 2 over stored bytes: each integer less the one `distance` items before in its row."""

    name: ClassVar[str] = "zstore.tiff_predictor"
    options: ClassVar[tuple[Option, ...]] = (
        integer("elementsize", 1, 8),
        integer("row", 1, 1 << 31),
        integer("distance", 1, native.DISTANCE_LIMIT, 1),
        choice("endian", ("little", "big"), "little"),
    )

    elementsize: int
    row: int
    distance: int = 1
    endian: str = "little"

    def _make_capsule(self) -> object:
        try:
            return native.delta(self.elementsize, self.row, self.distance, is_big=self.endian == "big")
        except ValueError as error:
            raise self.refuse(f"cannot be made: {error}") from None


class Floatpred(_Codec, BytesCodec):
    """TIFF's predictor 3: the floats of a row as planes of bytes, the highest byte first, then differences.

    It stands behind `bytes` of little-endian items whatever the file's byte order: planes of bytes do not
    depend on it.
    """

    name: ClassVar[str] = "numcodecs.imagecodecs_floatpred"
    known: ClassVar[Mapping[str, Any]] = {"axis": -1, "dist": 1}
    ignored: ClassVar[frozenset[str]] = frozenset(("shape", "dtype"))

    def bind(self, spec: ChunkSpec) -> Self:
        # Behind `bytes` the spec is that of bytes: shape and dtype come from the document.
        return type(self)(self._configuration, spec)

    def _items(self, data: Any) -> np.ndarray[Any, Any]:
        dtype = np.dtype(self._configuration["dtype"]).newbyteorder("<")
        shape = tuple(self._configuration["shape"])
        items = np.frombuffer(data, np.uint8)
        if items.nbytes != prod(shape) * dtype.itemsize:
            # The last strip of an image has fewer rows.
            row = prod(shape[1:]) * dtype.itemsize
            if items.nbytes % row or items.nbytes > shape[0] * row:
                raise self.fail(f"{items.nbytes} bytes are not rows of {row} bytes")
            shape = (items.nbytes // row, *shape[1:])
        return items.view(dtype).reshape(shape)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        shape, dtype = configuration.get("shape"), configuration.get("dtype")
        try:
            is_right = np.dtype(dtype).kind == "f" and all(type(n) is int and n > 0 for n in shape or ())
        except TypeError:
            is_right = False
        if not is_right or not isinstance(shape, list | tuple) or len(shape) < 2:
            raise cls.refuse(f"has shape {shape!r} and dtype {dtype!r}; expected those of chunks of floats")
        return super().from_configuration(configuration)

    @property
    def __zstore_codec__(self) -> Callable[[], object] | None:
        """The kernel, where chunks are rows of pixels with few enough samples; None elsewhere."""
        shape, axis = self._configuration["shape"], self._options["axis"]
        distance = prod(shape[2:])
        is_row = axis in (1, 1 - len(shape)) and self._options["dist"] == 1
        if not is_row or len(shape) > 3 or distance > native.DISTANCE_LIMIT or prod(shape[1:]) >> 31:
            return None
        size = np.dtype(self._configuration["dtype"]).itemsize
        return partial(native.planes, size, prod(shape[1:]), distance)

    def encode(self, data: Any) -> bytes:
        return bytes(
            np.ascontiguousarray(self._call("encode", self._items(data), **self._dimension)).tobytes()
        )

    def decode(self, data: Any, size_limit: int) -> memoryview:
        if memoryview(data).nbytes > size_limit:
            raise self.fail(f"decodes to {memoryview(data).nbytes} bytes, at most {size_limit} allowed")
        found = self._call("decode", self._items(data), **self._dimension)
        return np.ascontiguousarray(found).reshape(-1).view(np.uint8).data

    @property
    def _dimension(self) -> dict[str, Any]:
        return {name: self._options[name] for name in ("axis", "dist")}

    def encoded_bound(self, size: int) -> int | None:
        return size
