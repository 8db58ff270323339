"""zfp through its Python package, as numcodecs configures it."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.zfpy import NumcodecsZfpy
from zstore.errors import CodecError, MetadataError
from zstore.testing.chunk_codecs import SerializerContract
from zstore.testing.codecs import CodecContract

pytest.importorskip("zfpy", reason="the package behind the codec")

REVERSIBLE = {"mode": 4, "tolerance": -1}
SHAPES = [(), (7,), (5, 6), (3, 4, 5), (2, 3, 4, 5)]
MODES = [
    REVERSIBLE,
    {"mode": 4, "tolerance": 0.01},
    {"mode": 2, "rate": 17},
    {"mode": 3, "precision": 20},
    {"mode": 5},
]


def spec_of(dtype, shape=(5, 6)) -> ChunkSpec:
    return ChunkSpec(shape, np.dtype(dtype), None)


def bound(configuration, dtype="f4", shape=(5, 6)) -> NumcodecsZfpy:
    return NumcodecsZfpy.from_configuration(configuration).bind(spec_of(dtype, shape))


class TestChunks(SerializerContract):
    specs = tuple(spec_of(name, shape) for name in ("i4", "i8", "f4", "f8") for shape in SHAPES)
    damage_count = 25
    knows_its_end = (
        False  # a stream of blocks of any length ends where its last bit does, which zfpy does not say
    )

    def make(self):
        return NumcodecsZfpy.from_configuration(REVERSIBLE)


class TestBytes(CodecContract):
    sizes = (4000,)
    knows_its_end = False  # as above
    bound_to = spec_of("i4", (1000,))
    damage_count = 60

    def make(self):
        return bound(REVERSIBLE, "i4", (1000,))


@pytest.mark.parametrize("configuration", MODES)
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_numcodecs_reads_ours_and_we_read_numcodecs(configuration, shape):
    chunk = np.cumsum(np.random.default_rng(0).normal(size=shape), axis=-1).astype("f4")
    codec = bound(configuration, "f4", shape)
    encoded = codec.encode(chunk)
    decoded = codec.decode(memoryview(encoded))
    np.testing.assert_allclose(decoded, chunk, atol=0.1)
    if configuration["mode"] != 5:
        peer = numcodecs.get_codec({"id": "zfpy", **configuration})
        assert bytes(peer.encode(chunk)) == encoded
        np.testing.assert_array_equal(peer.decode(encoded), decoded)
    np.testing.assert_array_equal(
        codec.decode(memoryview(encoded), chunk.nbytes), decoded.reshape(-1).view("u1")
    )


def test_streams_that_end_too_early_are_refused_everywhere():
    chunk = np.random.default_rng(0).normal(size=(9, 10)).astype("f8")
    for configuration in MODES:
        codec = bound(configuration, "f8", (9, 10))
        encoded = codec.encode(chunk)
        for size in range(0, len(encoded) - 16, 8):
            with pytest.raises(CodecError):
                codec.decode(memoryview(encoded[:size]))


def test_a_chunk_of_another_kind_is_refused():
    encoded = bound(REVERSIBLE).encode(np.zeros((5, 6), "f4"))
    for dtype, shape in (("f8", (5, 3)), ("i4", (5, 6)), ("f4", (5, 7))):
        with pytest.raises(CodecError, match="holds float32 of shape"):
            bound(REVERSIBLE, dtype, shape).decode(memoryview(encoded))
    huge = bytearray(encoded)
    huge[5:11] = b"\xff" * 6
    loose = NumcodecsZfpy.from_configuration(REVERSIBLE)
    with pytest.raises(CodecError, match=r"at most 1000 allowed|blocks"):
        loose.decode(memoryview(bytes(huge)), 1000)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("u4", (4,)), ("f2", (4,)), (">f4", (4,)), ("f4", (1, 2, 3, 4, 5))]
)
def test_chunks_that_zfp_does_not_take(dtype, shape):
    with pytest.raises(MetadataError, match=r"codec 'numcodecs\.zfpy' takes"):
        bound(REVERSIBLE, dtype, shape)


@pytest.mark.parametrize(
    "configuration", [{"mode": 1}, {"mode": "rate"}, {"rate": "8"}, {"tolerance": True}, {"x": 1}]
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match=r"codec 'numcodecs\.zfpy'"):
        NumcodecsZfpy.from_configuration(configuration)


@pytest.mark.parametrize(("dtype", "least"), [("f4", 9), ("f8", 12)])
@pytest.mark.parametrize("shape", SHAPES[1:4])
def test_a_rate_without_room_for_an_exponent_is_refused_before_memory_is_harmed(dtype, least, shape):
    chunk = np.linspace(-3, 900, int(np.prod(shape))).astype(dtype).reshape(shape)
    for bits in range(least):
        with pytest.raises(CodecError, match=f"expected {least} at least"):
            bound({"mode": 2, "rate": bits / 4**chunk.ndim}, dtype, shape).encode(chunk)
    codec = bound({"mode": 2, "rate": least / 4**chunk.ndim}, dtype, shape)
    assert codec.decode(codec.encode(chunk)).shape == shape


def test_streams_whose_rate_zfp_passed_over_are_read_to_their_end():
    # numcodecs' at a rate of 0.1: its header says a bit for each block, and all planes are there.
    stream = bytes.fromhex(
        "7a667005330000000000f0ff000000c0af87f7835c0d27ff0f277f87"
        "02d877a85d2800002bb4c5edededededededededededed0500000000"
    )
    codec = bound(REVERSIBLE, "f8", (4,))
    np.testing.assert_allclose(codec.decode(stream), [1, 2.5, -3e9, 1 / 3], rtol=1e-7)
    with pytest.raises(CodecError, match="too early"):
        codec.decode(stream[:-16])
