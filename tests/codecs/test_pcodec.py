"""pcodec through its Python package, as numcodecs configures it."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.pcodec import NumcodecsPcodec
from zstore.errors import CodecError, MetadataError
from zstore.testing.chunk_codecs import SerializerContract
from zstore.testing.codecs import CodecContract

pytest.importorskip("pcodec", reason="the package behind the codec")

DTYPES = ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8")


def bound(configuration, dtype="i4", shape=(40, 5)) -> NumcodecsPcodec:
    return NumcodecsPcodec.from_configuration(configuration).bind(ChunkSpec(shape, np.dtype(dtype), None))


class TestChunks(SerializerContract):
    specs = tuple(ChunkSpec(shape, np.dtype(name), None) for name in DTYPES for shape in ((40, 5), ()))
    damage_count = 25

    def make(self):
        return NumcodecsPcodec.from_configuration({"level": 3})


class TestBytes(CodecContract):
    sizes = (4000,)
    bound_to = ChunkSpec((1000,), np.dtype("i4"), None)
    damage_count = 60

    def make(self):
        return bound({}, "i4", (1000,))


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"level": 1, "mode_spec": "classic"},
        {"level": 8, "equal_pages_up_to": 50},
        {"level": 8, "delta_spec": "try_consecutive", "delta_encoding_order": 2},
        {"level": 8, "delta_spec": "try_lookback", "paging_spec": "equal_pages_up_to"},
        {"level": 8, "delta_encoding_order": 1},
    ],
)
def test_numcodecs_reads_ours_and_we_read_numcodecs(configuration):
    chunk = np.cumsum(np.random.default_rng(0).integers(-3, 4, (40, 5))).astype("i4").reshape(40, 5)
    codec = bound(configuration)
    peer = numcodecs.get_codec({"id": "pcodec", **configuration})
    encoded = codec.encode(chunk)
    assert encoded == bytes(peer.encode(chunk))
    np.testing.assert_array_equal(codec.decode(memoryview(encoded)), chunk, strict=True)
    assert bytes(codec.decode(memoryview(encoded), chunk.nbytes)) == chunk.tobytes()
    loose = NumcodecsPcodec.from_configuration(configuration)
    assert bytes(loose.decode(memoryview(encoded), chunk.nbytes)) == chunk.tobytes()
    with pytest.raises(CodecError, match="at most 799 allowed"):
        loose.decode(memoryview(encoded), 799)


def test_no_deltas_in_either_spelling():
    chunk = np.arange(200, dtype="i4").reshape(40, 5)
    none, no_op, auto = (bound({"delta_spec": name}).encode(chunk) for name in ("none", "no_op", "auto"))
    assert none == no_op
    assert len(none) > len(auto)
    np.testing.assert_array_equal(bound({}).decode(memoryview(none)), chunk)


def test_a_chunk_of_another_kind_is_refused():
    encoded = bound({}).encode(np.zeros((40, 5), "i4"))
    for dtype, shape in (("i4", (199,)), ("i4", (201,)), ("f4", (40, 5)), ("i8", (100,))):
        with pytest.raises(CodecError, match=r"codec 'numcodecs\.pcodec' failed"):
            bound({}, dtype, shape).decode(memoryview(encoded))


@pytest.mark.parametrize("dtype", ["u1", ">i4", "c8", "?", "M8[s]"])
def test_items_that_pcodec_does_not_take(dtype):
    with pytest.raises(MetadataError, match=r"codec 'numcodecs\.pcodec' takes"):
        bound({}, dtype)


@pytest.mark.parametrize(
    "configuration",
    [
        {"level": 13},
        {"mode_spec": "float"},
        {"delta_spec": "none", "delta_encoding_order": 1},
        {"delta_encoding_order": 8},
        {"equal_pages_up_to": 0},
        {"paging_spec": "pages"},
        {"x": 1},
    ],
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match=r"codec 'numcodecs\.pcodec'"):
        NumcodecsPcodec.from_configuration(configuration)
