"""Pcodec: lossless compression of numbers, by the package `pcodec` (extra "pcodec").

Spec     numcodecs' documentation, PCodec; pcodec's standalone format
v3 name  numcodecs.pcodec, in the serializer's place
v2 id    pcodec
Example  {"name": "numcodecs.pcodec", "configuration": {"level": 8, "mode_spec": "auto", "delta_spec": "auto",
          "paging_spec": "equal_pages_up_to", "delta_encoding_order": null, "equal_pages_up_to": 262144}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ChunkSpec, Option, SerializerOrBytesCodec, choice, integer, refuse_option
from zstore.extensions.extras import optional

# The byte that ends a stream, and the item types by the byte that begins a chunk of it.
END = b"\0"
ITEM_TYPES = {1: "u4", 2: "u8", 3: "i4", 4: "i8", 5: "f4", 6: "f8", 7: "u2", 8: "i2", 9: "f2"}
DELTAS = ("auto", "none", "no_op", "try_consecutive", "try_lookback")


class NumcodecsPcodec(SerializerOrBytesCodec):
    """Pcodec as the serializer of chunks, or (as in Zarr v2) as a bytes codec after another serializer."""

    name: ClassVar[str] = "numcodecs.pcodec"
    options: ClassVar[tuple[Option, ...]] = (
        integer("level", 0, 12, 8),
        choice("mode_spec", ("auto", "classic"), "auto"),
        choice("delta_spec", DELTAS, "auto"),
        choice("paging_spec", ("equal_pages_up_to",), "equal_pages_up_to"),
        integer("equal_pages_up_to", 1, 1 << 31, 1 << 18),
        integer("delta_encoding_order", 0, 7, None, may_be_null=True),
    )

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec of a metadata document's entry."""
        made = super().from_configuration(configuration)
        delta = configuration.get("delta_spec", "auto")
        if configuration.get("delta_encoding_order") is not None and delta not in ("auto", "try_consecutive"):
            raise refuse_option(cls.name, "delta_spec", delta, "'try_consecutive' with delta_encoding_order")
        return made

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`.

        Raises
            MetadataError: items that pcodec does not take.
        """
        sizes = {"i": (2, 4, 8), "u": (2, 4, 8), "f": (2, 4, 8)}
        if spec.dtype.itemsize not in sizes.get(spec.dtype.kind, ()) or not spec.dtype.isnative:
            raise self.refuse(
                "takes integers and floats of 16 to 64 bits in native byte order,"
                f" the chunk's items are {spec.dtype.str}"
            )
        return super().bind(spec)

    def _chunk_config(self) -> Any:
        pcodec = _pcodec()
        option = self._configuration.get
        delta, order = option("delta_spec", "auto"), option("delta_encoding_order")
        if delta == "try_consecutive" or order is not None:
            delta_spec = pcodec.DeltaSpec.try_consecutive(1 if order is None else order)
        elif delta in ("none", "no_op"):
            # Releases of pcodec, and of numcodecs, differ in the name.
            none = getattr(pcodec.DeltaSpec, "no_op", None) or pcodec.DeltaSpec.none
            delta_spec = none()
        else:
            delta_spec = getattr(pcodec.DeltaSpec, delta)()
        return pcodec.ChunkConfig(
            compression_level=option("level", 8),
            delta_spec=delta_spec,
            mode_spec=getattr(pcodec.ModeSpec, option("mode_spec", "auto"))(),
            paging_spec=pcodec.PagingSpec.equal_pages_up_to(option("equal_pages_up_to", 1 << 18)),
        )

    def _encode_items(self, items: np.ndarray[Any, Any]) -> bytes:
        config = self._chunk_config()
        with self._failures("encode", items.nbytes):
            return bytes(_pcodec().standalone.simple_compress(items.reshape(-1), config))

    def decode(self, data: Any, size_limit: int | None = None) -> Any:
        if self._spec is None:
            return self._decode_unbound(bytes(data), size_limit)
        dtype, shape = self._spec.dtype, self._spec.shape
        count = prod(shape)
        if size_limit is not None:
            count = min(count, size_limit // dtype.itemsize)
        items = np.empty(count, dtype)
        with self._failures("decode", len(data)):
            trouble = _decode_into(bytes(data), items)
        if trouble:
            raise self.fail(trouble)
        return items.reshape(shape) if size_limit is None else items.view(np.uint8).data

    def _decode_unbound(self, data: bytes, size_limit: int | None) -> Any:
        """Decode by the type in the data alone, for a codec that is used without a chain."""
        with self._failures("decode", len(data)):
            items = _pcodec().standalone.simple_decompress(data)
        decoded = np.empty(0, np.uint8) if items is None else items.view(np.uint8)
        if size_limit is not None and decoded.nbytes > size_limit:
            raise self.fail(f"decodes to {decoded.nbytes} bytes, at most {size_limit} allowed")
        return decoded.data

    @contextmanager
    def _failures(self, verb: str, size: int) -> Iterator[None]:
        try:
            yield
        except (TypeError, RuntimeError, ValueError) as error:
            raise self.fail(error, f"{verb} {size} bytes") from error


def _decode_into(data: bytes, items: np.ndarray[Any, Any]) -> str:
    """Decode a stream into `items`; returns a message that describes the error, or "".

    The package's function for whole streams does not tell where a stream ends, its lower-level ones do.
    """
    at = _header_size(data)
    decompressor, size = _pcodec().wrapped.FileDecompressor.new(data[at:])
    at += size
    name = f"{items.dtype.kind}{8 * items.dtype.itemsize}"
    filled, expected = 0, f"expected {items.size} of {items.dtype}"
    while data[at : at + 1] not in (b"", END):
        count = int.from_bytes(data[at + 1 : at + 4], "little") + 1
        if ITEM_TYPES.get(data[at]) != items.dtype.str[1:]:
            return f"holds items of {ITEM_TYPES.get(data[at], 'an unknown type')}, {expected}"
        if filled + count > items.size:
            return f"decodes to {filled + count} items or more, {expected}"
        chunk, size = decompressor.chunk_decompressor(data[at + 4 :], name)
        at += 4 + size
        progress, size = chunk.read_page_into(data[at:], count, items[filled : filled + count])
        if progress.n_processed != count or not progress.finished:
            return f"decodes to {filled + progress.n_processed} items, {expected}"
        at += size
        filled += count
    if data[at:] != END:
        return f"{len(data) - at - 1} bytes behind the end" if at < len(data) else "the stream ends too early"
    return "" if filled == items.size else f"decodes to {filled} items, {expected}"


def _header_size(data: bytes) -> int:
    """The size of the header up to the part that the package reads: magic word, version and item count."""
    if data[:4] != b"pco!" or len(data) < 8:
        raise ValueError(f"begins with {data[:8].hex()}, expected 'pco!' and more")
    version = data[4]
    if version < 2:
        return 4
    at = 6 if version > 2 else 5
    return at + -(-(7 + (data[at] & 63)) // 8)


def _pcodec() -> Any:
    with optional("codec 'numcodecs.pcodec' needs the package pcodec", "pcodec", "numcodecs.pcodec"):
        import pcodec
    return pcodec
