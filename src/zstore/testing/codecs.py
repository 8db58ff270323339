"""The contract of bytes codecs, as a test class to inherit from.

    from zstore.testing.codecs import CodecContract

    class TestMyCodec(CodecContract):
        def make(self):
            return MyCodec(level=3)

`NativeCodecContract` is for codecs with a capsule, whose C functions the kernels call. Damage is drawn from a
fixed seed, so a failure repeats.
"""

from __future__ import annotations

import json
import pickle
import random
import tracemalloc
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from zstore._ext.codecs import native
from zstore.base.system import growth_of
from zstore.codecs.base import BytesCodec, ChunkSpec, Codec
from zstore.errors import CodecError, MetadataError, UnsupportedError, ZstoreError
from zstore.nodes.open import create_array, open_array
from zstore.testing.contract import Contract, needs

PLAIN = (str, bytes, int, float, bool, type(None), tuple, np.dtype)
BOMB_SIZE = 1 << 25
# Values to try for options; those that an option refuses are skipped.
VALUES: tuple[Any, ...] = (False, True, 0, 1, 2, 3, 4, 5, 7, 9, 16, 1000, -1, 0.5)

__all__ = ["CodecContract", "NativeCodecContract", "OptionContract", "damage"]


def damage(encoded: bytes, draw: random.Random, count: int) -> Iterator[bytes]:
    """Shorter, longer and changed copies of `encoded`; most changes are where headers are."""
    for _ in range(count if encoded else 0):
        place = min(draw.randrange(len(encoded)), draw.choice([16, 64, len(encoded) - 1]))
        changed = bytearray(encoded)
        kind = draw.randrange(5)
        if kind == 0:
            del changed[place:]
        elif kind == 1:
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 2:
            changed[place : place + 4] = draw.choice([b"\0", b"\xff", b"\x7f"]) * len(
                changed[place : place + 4]
            )
        elif kind == 3:
            changed += draw.randbytes(draw.choice([1, 4, 17]))
        else:
            changed[place:] = draw.randbytes(len(changed) - place)
        yield bytes(changed)


def _varied(codec: Codec) -> Iterator[dict[str, Any]]:
    """The codec's configurations with one declared option changed."""
    base = json.loads(json.dumps(codec.to_configuration()))
    for option in codec.options:
        # The words that an option allows are in the text of what it expects.
        words = [
            word for word in option.expected.replace("'", " ").replace(",", " ").split() if len(word) > 1
        ]
        for value in (*VALUES, *words):
            configuration = {**base, option.name: value}
            try:
                if (
                    json.loads(json.dumps(option.render(option.parse(value)))) != value
                    or value == option.default
                ):
                    continue
                type(codec).from_configuration(configuration)
            except (ZstoreError, TypeError, ValueError, KeyError, AttributeError):
                continue
            yield configuration


class OptionContract(Contract):
    """The tests of configurations, for codecs of every kind."""

    def make(self) -> Codec:
        """The codec to test."""
        raise NotImplementedError

    def make_again(self) -> Codec:
        """A codec made from the configuration of `make()`, by way of JSON."""
        codec = self.make()
        return type(codec).from_configuration(json.loads(json.dumps(codec.to_configuration())))

    def test_the_configuration_makes_the_same_codec(self) -> None:
        assert self.make_again().to_configuration() == self.make().to_configuration()

    # Further configurations to try, for a codec that does not declare its `options`.
    configurations: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    def test_no_option_is_lost(self) -> None:
        codec, again = self.make(), self.make_again()
        declared = {option.name for option in codec.options}
        kept, found = (
            {
                name: value
                for name, value in vars(one).items()
                if isinstance(value, PLAIN) and (name in declared or not declared)
            }
            for one in (codec, again)
        )
        assert found == kept, "the configuration makes another codec"
        for configuration in (*self.configurations, *_varied(codec)):
            made = type(codec).from_configuration(configuration)
            stated = json.loads(json.dumps(made.to_configuration()))
            parsed = {option.name: option.parse for option in codec.options}
            lost = {
                name: value
                for name, value in configuration.items()
                if name not in stated or parsed.get(name, repr)(stated[name]) != parsed.get(name, repr)(value)
            }
            assert not lost, f"{lost} of {configuration} is not in {stated}"

    def test_an_unknown_option_is_refused(self) -> None:
        codec = self.make()
        configuration = {**codec.to_configuration(), "an option that nobody has": 1}
        try:
            type(codec).from_configuration(configuration)
        except MetadataError:
            return
        raise AssertionError(f"{type(codec).__name__} took {configuration}")


class CodecContract(OptionContract):
    """The tests of a bytes codec: inherit and define `make`.

    sizes           the numbers of bytes to encode; for a codec of items, multiples of their size
    damage_count    the number of damaged copies of each encoded sample to decode
    bound_to        the chunks that `make` has bound the codec to, if any
    knows_its_end   whether the codec refuses bytes after the end of its own
    configurations  further ones to try, for a codec that declares no `options`
    """

    sizes: ClassVar[tuple[int, ...]] = (0, 1, 7, 16, 127, 128, 129, 4096, 65537, 300_000)
    damage_count: ClassVar[int] = 200
    bound_to: ClassVar[ChunkSpec | None] = None
    knows_its_end: ClassVar[bool] = True

    def make(self) -> BytesCodec:
        """The codec to test, bound if it needs that."""
        raise NotImplementedError

    def samples(self) -> Iterator[bytes]:
        """Bytes of every size: noise, smooth numbers, a single value."""
        generator = np.random.default_rng(7)
        for size in self.sizes:
            smooth = np.cumsum(generator.integers(-2, 3, size // 4 + 1), dtype=np.int32)
            yield generator.bytes(size)
            yield smooth.tobytes()[:size]
            yield bytes(size)

    def test_what_is_encoded_decodes_to_the_same(self) -> None:
        codec = self.make()
        for sample in self.samples():
            encoded = codec.encode(memoryview(sample))
            assert bytes(codec.decode(memoryview(encoded), len(sample))) == sample, len(sample)
            assert bytes(codec.decode(memoryview(encoded), len(sample) + 1000)) == sample, len(sample)

    def test_encoded_bytes_stay_within_the_bound(self) -> None:
        codec = self.make()
        for sample in self.samples():
            bound = codec.encoded_bound(len(sample))
            assert bound is None or len(codec.encode(memoryview(sample))) <= bound, len(sample)

    def test_the_configuration_encodes_to_the_same(self) -> None:
        codec, again = self.make(), self.make_again()
        if self.bound_to is not None:
            again = again.bind(self.bound_to)
        for sample in self.samples():
            encoded = codec.encode(memoryview(sample))
            assert bytes(again.encode(memoryview(sample))) == bytes(encoded), len(sample)  # type: ignore[attr-defined]

    @needs("knows_its_end")
    def test_what_follows_is_refused(self) -> None:
        codec = self.make()
        for sample in self.samples():
            encoded = bytes(codec.encode(memoryview(sample)))
            for tail in (b"\0", b"\xff", b"tail", bytes(64), encoded[: len(encoded) // 2]):
                if sample and tail:
                    found = self._decode(codec, encoded + tail, len(sample) + 1000)
                    assert found != sample, f"{tail!r} behind {len(encoded)} bytes makes no difference"

    def test_a_bomb_is_refused_before_it_is_decoded(self) -> None:
        codec = self.make()
        try:
            encoded = bytes(codec.encode(memoryview(bytes(BOMB_SIZE))))
        except (CodecError, ValueError):
            return  # the codec is bound to chunks of another size
        if len(encoded) > BOMB_SIZE // 8:
            return  # the codec does not compress
        for size_limit in (0, 1000):
            tracemalloc.start()
            try:
                peak = growth_of(partial(self._decode, codec, encoded, size_limit))
                made = max(tracemalloc.get_traced_memory()[1], peak)
            finally:
                tracemalloc.stop()
            assert made < BOMB_SIZE // 2, f"{made} bytes were taken to find that {size_limit} are too few"

    def test_one_byte_too_many_is_refused(self) -> None:
        codec = self.make()
        for sample in self.samples():
            encoded = codec.encode(memoryview(sample))
            if sample:
                assert self._decode(codec, bytes(encoded), len(sample) - 1) is None, len(sample)

    def test_damage_gives_an_error_or_bytes_within_the_limit(self) -> None:
        codec = self.make()
        draw = random.Random(11)
        for sample in self.samples():
            encoded = bytes(codec.encode(memoryview(sample)))
            for damaged in (b"", *damage(encoded, draw, self.damage_count)):
                self._decode(codec, damaged, len(sample))

    def test_threads_share_a_codec(self) -> None:
        codec = self.make()
        samples = [sample for sample in self.samples() if len(sample) < 100_000]

        def work(start: int) -> bool:
            return all(
                bytes(codec.decode(memoryview(codec.encode(memoryview(sample))), len(sample))) == sample
                for sample in samples[start:] + samples[:start]
            )

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(16)))

    def test_nothing_given_is_changed(self) -> None:
        codec = self.make()
        before = codec.to_configuration()
        for sample in self.samples():
            given = bytearray(sample)
            encoded = bytearray(codec.encode(memoryview(given)))
            kept = bytes(encoded)
            decoded = codec.decode(memoryview(encoded), len(sample))
            assert given == sample
            assert encoded == kept
            codec.decode(memoryview(encoded), len(sample))
            assert bytes(decoded) == sample
        assert codec.to_configuration() == before

    def test_it_can_be_pickled(self) -> None:
        codec = self.make()
        again = pickle.loads(pickle.dumps(codec))
        for sample in self.samples():
            assert bytes(again.encode(memoryview(sample))) == bytes(codec.encode(memoryview(sample)))

    def test_the_capsule_does_what_the_methods_do(self) -> None:
        codec = self.make()
        offer = getattr(codec, "__zstore_codec__", None)
        if offer is None:
            return
        capsule = offer()
        for sample in self.samples():
            encoded = codec.encode(memoryview(sample))
            assert native.decode(capsule, encoded, len(sample), len(sample)) == sample
            assert bytes(codec.decode(memoryview(native.encode(capsule, sample)), len(sample))) == sample
            claimed = native.decoded_size(capsule, encoded)
            assert claimed is None or claimed == len(sample)
            start, size = len(sample) // 3, len(sample) // 2
            part = native.decode_range(capsule, encoded, start, size)
            assert part is None or part == sample[start : start + size]

    def _decode(self, codec: BytesCodec, encoded: bytes, size_limit: int) -> bytes | None:
        """The decoded bytes, checked against the limit; None for a CodecError or an UnsupportedError."""
        try:
            decoded = bytes(codec.decode(memoryview(encoded), size_limit))
        except (CodecError, UnsupportedError):
            return None
        assert len(decoded) <= size_limit
        return decoded


class NativeCodecContract(CodecContract):
    """The tests of a codec with a capsule; its package must be installed, for zstore to find it by name."""

    def test_the_compiled_batch_does_the_work(self, tmp_path: Path) -> None:
        codec = self.make()
        assert hasattr(codec, "__zstore_codec__"), f"{type(codec).__name__} offers no capsule"
        stated = {"name": codec.name, "configuration": codec.to_configuration()}
        items = np.arange(60 * 80, dtype="<i4").reshape(60, 80)

        def refuse(*_: object) -> Any:
            raise AssertionError(f"the Python side of {codec.name!r} was called")

        with patch.object(type(codec), "encode", refuse), patch.object(type(codec), "decode", refuse):
            for name, shards in (("whole", None), ("sharded", (40, 60))):
                create_array(
                    tmp_path / name, data=items, chunks=(20, 30), shards=shards, compressors=[stated]
                )
                assert np.array_equal(open_array(tmp_path / name, mode="r")[...], items)
