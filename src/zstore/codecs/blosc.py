"""Blosc compression: the chunk is cut into blocks, each shuffled and compressed by itself.

Spec     Zarr v3 codec "blosc" 1.0; Blosc1 frames, as c-blosc 1.x reads and writes them (not Blosc2's)
v3 name  blosc
v2 id    blosc
Example  {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4,
                                             "blocksize": 0}}
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from zstore._ext.codecs import native
from zstore.codecs.base import ChunkSpec
from zstore.codecs.native import NativeCodec, Options
from zstore.errors import CodecError, UnsupportedError

__all__ = ["Blosc", "NumcodecsBlosc"]

_CNAMES = ("lz4", "lz4hc", "blosclz", "snappy", "zlib", "zstd")
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_AUTO = -1
_TYPESIZE_MAX = 255
_TYPESIZE_LIMIT = 2**31 - 1
_BLOCKSIZE_MAX = 2**31 - 1
_SNAPPY_FORMAT = 2


class _BloscFrames(NativeCodec):
    """What both configurations share; `shuffle` is 0 none, 1 bytes, 2 bits, -1 by the item's size."""

    def __init__(self, cname: str, clevel: int, shuffle: int, typesize: int | None, blocksize: int) -> None:
        self.cname = cname
        self.clevel = clevel
        self.shuffle = shuffle
        self.typesize = typesize
        self.blocksize = blocksize
        super().__init__()

    @property
    def _item_size(self) -> int:
        """The item's size for shuffling; like in c-blosc, one too large for the header's byte counts as 1."""
        size = self.typesize or 1
        return size if size <= _TYPESIZE_MAX else 1

    @property
    def _shuffle_code(self) -> int:
        if self.shuffle == _AUTO:
            return 2 if self._item_size == 1 else 1
        return self.shuffle

    def _make_capsule(self) -> object:
        # Frames say by themselves which compressor they need, so reading under the name "snappy" needs no
        # other capsule; writing is refused in `encode`.
        cname = "lz4" if self.cname == "snappy" else self.cname
        return native.blosc(cname, self.clevel, self._shuffle_code, self._item_size, self.blocksize)

    def _replace(self, **options: Any) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update(options)
        changed._capsule = changed._make_capsule()
        return changed

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
        """Bytes `start` to `start + size` of what `decode` gives; only the blocks that hold them are decoded.

        Raises
            CodecError: damaged, or there are no such bytes.
        """
        try:
            part = native.decode_range(self._capsule, data, start, size)
        except (ValueError, RuntimeError) as error:
            raise CodecError(
                f"codec {self.name!r} failed to decode {size} bytes from {start}: {error}",
                codec=self.name,
                offset=start,
            ) from error
        assert part is not None
        return part


class Blosc(_BloscFrames):
    """Blosc frames, as Zarr v3 configures them; `typesize` follows from the chunk where it is not given."""

    name: ClassVar[str] = "blosc"

    def __init__(
        self,
        cname: str = "lz4",
        clevel: int = 5,
        shuffle: str | None = None,
        typesize: int | None = None,
        blocksize: int = 0,
    ) -> None:
        code = _AUTO if shuffle is None else _SHUFFLES.index(shuffle)
        super().__init__(cname, clevel, code, typesize, blocksize)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        options = Options(cls.name, configuration)
        cname = options.choice("cname", _CNAMES)
        clevel = options.integer("clevel", 0, 9)
        shuffle = options.choice("shuffle", _SHUFFLES) if configuration.get("shuffle") is not None else None
        # The spec has the value ignored where nothing is shuffled, and writers put anything there.
        lowest = 0 if shuffle == "noshuffle" else 1
        typesize = (
            options.integer("typesize", lowest, _TYPESIZE_LIMIT) if "typesize" in configuration else None
        )
        blocksize = options.integer("blocksize", 0, _BLOCKSIZE_MAX, 0)
        if shuffle is None:
            options.take("shuffle", None)
        options.end()
        return cls(cname, clevel, shuffle, typesize, blocksize)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document; complete only once bound."""
        shuffle = {} if self.shuffle == _AUTO else {"shuffle": _SHUFFLES[self.shuffle]}
        typesize = {} if self.typesize is None else {"typesize": self.typesize}
        return {
            "cname": self.cname,
            "clevel": self.clevel,
            **shuffle,
            **typesize,
            "blocksize": self.blocksize,
        }

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec with `typesize` and `shuffle` filled in where they were not given."""
        if self.typesize is not None and self.shuffle != _AUTO:
            return self
        bound = self._replace(typesize=self.typesize or max(1, spec.dtype.itemsize))
        bound.shuffle = bound._shuffle_code
        return bound


class NumcodecsBlosc(_BloscFrames):
    """Blosc frames, as numcodecs configures them; shuffle -1 is 2 (bits) for items of one byte, else 1.

    The item's size follows from the chunk unless the configuration gives it, as newer numcodecs may.
    """

    name: ClassVar[str] = "numcodecs.blosc"

    def __init__(
        self,
        cname: str = "lz4",
        clevel: int = 5,
        shuffle: int = 1,
        blocksize: int = 0,
        typesize: int | None = None,
    ) -> None:
        self._is_typesize_given = typesize is not None
        super().__init__(cname, clevel, shuffle, typesize, blocksize)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec that a metadata document describes."""
        options = Options(cls.name, configuration)
        cname = options.choice("cname", _CNAMES, "lz4")
        clevel = options.integer("clevel", 0, 9, 5)
        shuffle = options.integer("shuffle", _AUTO, 2, 1)
        blocksize = options.integer("blocksize", 0, _BLOCKSIZE_MAX, 0)
        typesize = options.integer("typesize", 1, _TYPESIZE_LIMIT) if "typesize" in configuration else None
        options.end()
        return cls(cname, clevel, shuffle, blocksize, typesize)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        typesize = {"typesize": self.typesize} if self._is_typesize_given else {}
        return {
            "cname": self.cname,
            "clevel": self.clevel,
            "shuffle": self.shuffle,
            "blocksize": self.blocksize,
            **typesize,
        }

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for items of the chunk's size."""
        if self.typesize is not None:
            return self
        return self._replace(typesize=max(1, spec.dtype.itemsize))
