"""Blosc2 compression, as ocf_blosc2 writes it, by the package `blosc2` (extra "blosc2").

Spec     https://pypi.org/project/ocf-blosc2/; c-blosc2's README_CHUNK_FORMAT
v3 name  numcodecs.blosc2
v2 id    blosc2
Example  {"name": "numcodecs.blosc2", "configuration": {"cname": "zstd", "clevel": 5}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zstore.codecs.base import BytesCodec, Option, choice, integer
from zstore.extensions.extras import optional

# ocf_blosc2's names of compressors, and Blosc2's.
CNAMES = {"blosc2": "BLOSCLZ", "zstd": "ZSTD"}
# ocf_blosc2 does not know the dtype, and shuffles items of this size.
ITEM_SIZE = 8
HEADER_SIZE = 32


@dataclass(frozen=True)
class NumcodecsBlosc2(BytesCodec):
    """Reads Blosc2 chunks of any filters and compressors; writes byte-shuffled ones."""

    name: ClassVar[str] = "numcodecs.blosc2"
    options: ClassVar[tuple[Option, ...]] = (
        choice("cname", tuple(CNAMES), "blosc2"),
        integer("clevel", 0, 9, 5),
    )

    cname: str = "blosc2"
    clevel: int = 5

    def encode(self, data: memoryview) -> bytes:
        """The encoded bytes."""
        blosc2 = _blosc2()
        made: bytes = blosc2.compress2(
            bytes(data),
            codec=blosc2.Codec[CNAMES[self.cname]],
            clevel=self.clevel,
            typesize=ITEM_SIZE,
            filters=[blosc2.Filter.SHUFFLE],
            nthreads=1,
        )
        return made

    def decode(self, data: memoryview, size_limit: int) -> bytes:
        """The bytes as they were before `encode`, never more than `size_limit` of them.

        Raises
            CodecError: damaged, or decodes to more than `size_limit` bytes.
        """
        frame = bytes(data)
        size, stored = (int.from_bytes(frame[at : at + 4], "little") for at in (4, 12))
        if len(frame) < HEADER_SIZE or stored != len(frame):
            raise self.fail(f"chunk says that it has {stored} bytes, got {len(frame)}")
        if size > size_limit:
            raise self.fail(f"chunk decodes to {size} bytes, at most {size_limit} allowed")
        if not size:
            return b""
        try:
            made: bytes = _blosc2().decompress2(frame, nthreads=1)
        except (RuntimeError, ValueError) as error:
            raise self.fail(error) from error
        if len(made) != size:
            raise self.fail(f"chunk decodes to {len(made)} bytes, expected {size}")
        return made


def _blosc2() -> Any:
    with optional("codec 'numcodecs.blosc2' needs the package blosc2", "blosc2", "numcodecs.blosc2"):
        import blosc2
    return blosc2
