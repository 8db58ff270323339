"""The contract of array codecs and serializers, as test classes to inherit from.

    from zstore.codecs.base import ChunkSpec
    from zstore.testing.chunk_codecs import ArrayCodecContract, SerializerContract

    class TestMyFilter(ArrayCodecContract):
        specs = (ChunkSpec((4, 5), np.dtype("float32"), np.float32(0)),)

        def make(self):
            return MyFilter(digits=3)

`ArrayCodecContract` is for codecs from array to array, `SerializerContract` for those from array to bytes.
Values and damage are drawn from fixed seeds, so a failure repeats.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from zstore.codecs.base import ArrayCodec, ChunkSpec, Codec, Serializer
from zstore.errors import CodecError
from zstore.testing.codecs import OptionContract, damage
from zstore.testing.contract import needs

__all__ = ["ArrayCodecContract", "SerializerContract"]

Chunk = np.ndarray[Any, Any]


class _ChunkContract(OptionContract):
    """The tests for codecs of both kinds."""

    # The kinds of chunks to test the codec with.
    specs: ClassVar[tuple[ChunkSpec, ...]] = ()
    # Whether decoding gives exactly the original; else a decoded chunk must encode and decode to itself.
    is_lossless: ClassVar[bool] = True

    def make(self) -> Codec:
        """The codec to test, not bound."""
        raise NotImplementedError

    def chunks(self, spec: ChunkSpec) -> Iterator[Chunk]:
        """Chunks like `spec` to test with; numbers from 0 to 100, unless overridden."""
        generator = np.random.default_rng(7)
        noise = generator.integers(0, 2 if spec.dtype == bool else 101, spec.shape)
        yield noise.astype(spec.dtype)
        yield np.sort(noise, axis=None).reshape(spec.shape).astype(spec.dtype)
        yield np.zeros(spec.shape, spec.dtype)

    def bound(self) -> Iterator[tuple[ChunkSpec, Any]]:
        """Each spec, and the codec bound to it."""
        assert self.specs, "a contract without specs tests nothing"
        for spec in self.specs:
            yield spec, self.make().bind(spec)

    def samples(self) -> Iterator[tuple[ChunkSpec, Any, Chunk]]:
        """Every chunk, with its spec and the codec bound to that."""
        for spec, codec in self.bound():
            for chunk in self.chunks(spec):
                yield spec, codec, chunk

    def as_memory(self, encoded: Any) -> Any:
        """Encoded chunks in the memory in which the codec decodes them."""
        return encoded

    def test_what_is_encoded_decodes_to_the_same(self) -> None:
        for spec, codec, chunk in self.samples():
            decoded = codec.decode(self.as_memory(codec.encode(chunk)))
            assert (decoded.shape, decoded.dtype) == (spec.shape, spec.dtype)
            expected = chunk
            if not self.is_lossless:
                expected, decoded = decoded, codec.decode(self.as_memory(codec.encode(decoded)))
            assert _bytes(decoded) == _bytes(expected), spec

    def test_memory_in_another_order_gives_the_same(self) -> None:
        for spec, codec, chunk in self.samples():
            reordered = chunk.copy(order="F")
            assert _bytes(codec.encode(reordered)) == _bytes(codec.encode(chunk)), spec

    def test_nothing_given_is_changed(self) -> None:
        for _, codec, chunk in self.samples():
            kept = chunk.copy()
            encoded = codec.encode(chunk)
            assert _bytes(chunk) == _bytes(kept)
            again = _bytes(encoded)
            codec.decode(self.as_memory(encoded))
            assert _bytes(encoded) == again

    def test_threads_share_a_codec(self) -> None:
        samples = [(codec, chunk, _bytes(codec.encode(chunk))) for _, codec, chunk in self.samples()]

        def work(_: int) -> bool:
            return all(_bytes(codec.encode(chunk)) == encoded for codec, chunk, encoded in samples)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(16)))

    def test_the_configuration_encodes_to_the_same(self) -> None:
        again = self.make_again()
        for spec, codec, chunk in self.samples():
            assert _bytes(again.bind(spec).encode(chunk)) == _bytes(codec.encode(chunk))  # type: ignore[attr-defined]

    def test_a_bound_codec_can_be_pickled(self) -> None:
        for _, codec, chunk in self.samples():
            again = pickle.loads(pickle.dumps(codec))
            assert _bytes(again.encode(chunk)) == _bytes(codec.encode(chunk))


class ArrayCodecContract(_ChunkContract):
    """The tests of codecs from array to array: inherit and define `specs` and `make`."""

    def make(self) -> ArrayCodec:
        """The codec to test, not bound."""
        raise NotImplementedError

    def test_the_encoded_chunk_is_what_was_announced(self) -> None:
        for spec, codec, chunk in self.samples():
            encoded, announced = codec.encode(chunk), codec.encoded_spec(spec)
            assert (encoded.shape, encoded.dtype) == (announced.shape, announced.dtype), spec

    def test_the_fill_value_goes_the_way_of_the_items(self) -> None:
        for spec, codec in self.bound():
            announced = codec.encoded_spec(spec)
            if announced.fill_value is None:
                continue
            filled = np.full(spec.shape, spec.fill_value, spec.dtype)
            expected = np.full(announced.shape, announced.fill_value, announced.dtype)
            assert codec.encode(filled).tobytes() == expected.tobytes(), spec

    def test_a_chunk_without_fill_value_can_be_announced(self) -> None:
        for spec in self.specs:
            bare = spec._replace(fill_value=None)
            announced = self.make().bind(bare).encoded_spec(bare)
            assert announced.fill_value is None


class SerializerContract(_ChunkContract):
    """The tests of codecs from array to bytes: inherit and define `specs` and `make`."""

    # The number of damaged copies of each encoded chunk to decode.
    damage_count: ClassVar[int] = 60
    # Whether the codec refuses bytes after the end of its own.
    knows_its_end: ClassVar[bool] = True

    def make(self) -> Serializer:
        """The codec to test, not bound."""
        raise NotImplementedError

    def as_memory(self, encoded: Any) -> Any:
        """Encoded bytes as they come from a store."""
        return memoryview(bytes(encoded))

    def test_the_encoded_size_is_what_was_announced(self) -> None:
        for spec, codec, chunk in self.samples():
            size = codec.encoded_size(spec)
            assert size is None or len(bytes(codec.encode(chunk))) == size, spec

    def test_damage_gives_an_error_or_a_chunk(self) -> None:
        draw = random.Random(11)
        for spec, codec, chunk in self.samples():
            encoded = bytes(codec.encode(chunk))
            for damaged in damage(encoded, draw, self.damage_count):
                try:
                    decoded = codec.decode(memoryview(damaged))
                except CodecError:
                    continue
                assert (decoded.shape, decoded.dtype) == (spec.shape, spec.dtype)

    @needs("knows_its_end")
    def test_what_follows_is_refused(self) -> None:
        for spec, codec, chunk in self.samples():
            encoded = bytes(codec.encode(chunk))
            for tail in (b"\0", b"tail", bytes(64)) if encoded else ():
                try:
                    codec.decode(memoryview(encoded + tail))
                except CodecError:
                    continue
                raise AssertionError(f"{tail!r} behind {len(encoded)} bytes of {spec} makes no difference")

    def test_what_is_cut_short_never_gives_another_chunk(self) -> None:
        for spec, codec, chunk in self.samples():
            encoded = bytes(codec.encode(chunk))
            whole = _bytes(codec.decode(memoryview(encoded)))
            for size in {0, 1, len(encoded) // 2, len(encoded) - 1} & set(range(len(encoded))):
                try:
                    decoded = codec.decode(memoryview(encoded[:size]))
                except CodecError:
                    continue
                assert _bytes(decoded) == whole, f"{size} of {len(encoded)} bytes of {spec}"


def _bytes(given: Any) -> bytes:
    """The bytes of encoded data or of a chunk, to compare them; the repr of a chunk of objects."""
    if isinstance(given, np.ndarray) and given.dtype.kind in "OT":
        return repr(given.tolist()).encode()
    return given.tobytes() if isinstance(given, np.ndarray) else bytes(given)
