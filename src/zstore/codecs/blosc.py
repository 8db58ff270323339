"""Blosc compression: cuts the chunk into blocks, each shuffled and compressed on its own.

Spec     Zarr v3 codec "blosc" 1.0; Blosc1 frames, as c-blosc 1.x reads and writes them (not Blosc2's)
v3 name  blosc
v2 id    blosc
Example  {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4,
                                             "blocksize": 0}}
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from zstore._ext.codecs import native
from zstore.codecs.base import ChunkSpec, NativeCodec, Option, choice, integer, refuse_option
from zstore.errors import CodecError, UnsupportedError

_CNAMES = ("lz4", "lz4hc", "blosclz", "snappy", "zlib", "zstd")
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_AUTO = -1
_LARGEST_ITEM = 255
_LARGEST = 2**31 - 1
_SNAPPY_FORMAT = 2


class _BloscFrames(NativeCodec):
    """The codec of Blosc frames, without its options."""

    cname: str
    clevel: int
    blocksize: int
    typesize: int | None
    chunk_item_size: int = 1

    @property
    def _item_size(self) -> int:
        """The item size to shuffle by; one that does not fit the header's byte counts as 1, as in c-blosc."""
        size = self.typesize or self.chunk_item_size
        return size if size <= _LARGEST_ITEM else 1

    @property
    @abstractmethod
    def _shuffle_code(self) -> int:
        """The code of a kind of shuffling: 0 none, 1 bytes, 2 bits."""

    def _make_capsule(self) -> object:
        # Each frame names its compressor, so a codec that is configured for "snappy" can read other frames
        # with any capsule. It is not offered to the engine, which would write frames of another compressor.
        cname = "lz4" if self.cname == "snappy" else self.cname
        return native.blosc(cname, self.clevel, self._shuffle_code, self._item_size, self.blocksize)

    def __zstore_codec__(self) -> object:
        return None if self.cname == "snappy" else super().__zstore_codec__()

    def encode(self, data: memoryview) -> bytes | memoryview:
        """The encoded bytes.

        Raises
            UnsupportedError: the compressor is snappy.
        """
        if self.cname == "snappy":
            raise UnsupportedError(
                f"codec {self.name!r} can't write 'snappy' frames; choose another cname", codec=self.name
            )
        return super().encode(data)

    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        """The bytes as they were before `encode`, never more than `size_limit` of them.

        Raises
            UnsupportedError: a snappy frame.
        """
        try:
            return super().decode(data, size_limit)
        except CodecError as error:
            flags = memoryview(data).cast("B")[2:3].tobytes()
            if flags and flags[0] >> 5 == _SNAPPY_FORMAT:
                raise UnsupportedError(
                    f"codec {self.name!r} can't read 'snappy' frames", codec=self.name
                ) from error
            raise

    def decode_range(self, data: memoryview, start: int, size: int) -> bytes:
        """Bytes `start` to `start + size` of the decoded chunk; decodes only the blocks that hold them.

        Raises
            CodecError: damaged, or the chunk is shorter.
        """
        try:
            part = native.decode_range(self._capsule, data, start, size)
        except (ValueError, RuntimeError) as error:
            failed = self.fail(error, f"decode {size} bytes from {start}")
            failed.offset = start
            raise failed from error
        assert part is not None
        return part


@dataclass(frozen=True)
class Blosc(_BloscFrames):
    """Blosc with the configuration of Zarr v3; `typesize` and `shuffle` follow from the chunk by default."""

    name: ClassVar[str] = "blosc"
    options: ClassVar[tuple[Option, ...]] = (
        choice("cname", _CNAMES, usual="zstd"),
        integer("clevel", 0, 9, usual=5),
        choice("shuffle", _SHUFFLES, None, may_be_null=True),
        integer("typesize", 0, _LARGEST, None),
        integer("blocksize", 0, _LARGEST, 0),
    )

    cname: str = "lz4"
    clevel: int = 5
    shuffle: str | None = None
    typesize: int | None = None
    blocksize: int = 0

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        made = super().from_configuration(configuration)
        # By the spec the value is ignored if nothing is shuffled, so writers leave anything there.
        if made.typesize == 0 and made.shuffle != "noshuffle":
            raise refuse_option(cls.name, "typesize", 0, f"an integer from 1 to {_LARGEST}")
        return made

    @property
    def _shuffle_code(self) -> int:
        return (2 if self._item_size == 1 else 1) if self.shuffle is None else _SHUFFLES.index(self.shuffle)

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`, with `typesize` and `shuffle` filled in."""
        if self.typesize is not None and self.shuffle is not None:
            return self
        sized = replace(self, typesize=self.typesize or max(1, spec.dtype.itemsize))
        return replace(sized, shuffle=_SHUFFLES[sized._shuffle_code])


@dataclass(frozen=True)
class NumcodecsBlosc(_BloscFrames):
    """Blosc with the configuration of numcodecs; shuffle -1 means 2 (bits) for items of one byte, else 1.

    The item size follows from the chunk unless the configuration has it, as that of newer numcodecs may.
    """

    name: ClassVar[str] = "numcodecs.blosc"
    options: ClassVar[tuple[Option, ...]] = (
        choice("cname", _CNAMES, "lz4"),
        integer("clevel", 0, 9, 5),
        integer("shuffle", _AUTO, 2, 1),
        integer("blocksize", 0, _LARGEST, 0),
        integer("typesize", 1, _LARGEST, None),
    )

    cname: str = "lz4"
    clevel: int = 5
    shuffle: int = 1
    blocksize: int = 0
    typesize: int | None = None
    chunk_item_size: int = 1

    @property
    def _shuffle_code(self) -> int:
        return (2 if self._item_size == 1 else 1) if self.shuffle == _AUTO else self.shuffle

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for items of the chunk's size."""
        return replace(self, chunk_item_size=max(1, spec.dtype.itemsize))
