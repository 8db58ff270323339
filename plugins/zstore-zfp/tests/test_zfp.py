"""The plugin as a third party's: its codec, the contract, and through its installed entry point."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zfpy", reason="the package behind the codec")
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from zstore_zfp.codec import Zfp

import zstore
from zstore.codecs.base import ChunkSpec
from zstore.errors import CodecError, MetadataError, UnsupportedError
from zstore.storage.memory import MemoryStore
from zstore.testing.chunk_codecs import SerializerContract

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
SHAPES = ((), (7,), (5, 6), (3, 4, 5), (2, 3, 4, 5))


def bound(configuration, dtype="f4", shape=(5, 6)) -> Zfp:
    return Zfp.from_configuration(configuration).bind(ChunkSpec(shape, np.dtype(dtype), None))


class TestZfp(SerializerContract):
    knows_its_end = False  # blocks of any length end where the last bit does, which zfpy does not say
    specs = tuple(ChunkSpec(shape, np.dtype(name), None) for name in DTYPES for shape in SHAPES[:3])
    damage_count = 20

    def make(self):
        return Zfp.from_configuration({"mode": "reversible"})


class TestLossy(SerializerContract):
    knows_its_end = False  # blocks of any length end where the last bit does, which zfpy does not say
    is_lossless = False
    specs = tuple(ChunkSpec(shape, np.dtype("f8"), None) for shape in SHAPES)
    damage_count = 20

    def make(self):
        return Zfp.from_configuration({"mode": "fixed_precision", "precision": 40})

    def test_what_is_encoded_decodes_to_the_same(self):
        for spec, codec, chunk in self.samples():
            decoded = codec.decode(self.as_memory(codec.encode(chunk)))
            assert (decoded.shape, decoded.dtype) == (spec.shape, spec.dtype)
            np.testing.assert_allclose(decoded, chunk, atol=1e-6)


@pytest.mark.parametrize("tolerance", [0.5, 0.01])
def test_a_tolerance_is_kept(tolerance):
    chunk = np.random.default_rng(0).normal(size=(9, 10)).cumsum(axis=1)
    codec = bound({"mode": "fixed_accuracy", "tolerance": tolerance}, "f8", (9, 10))
    assert abs(codec.decode(memoryview(codec.encode(chunk))) - chunk).max() <= tolerance


@pytest.mark.parametrize(
    ("numbers", "configuration"),
    [
        ((1, 16658, 64, -1075), {"mode": "reversible"}),
        ((1, 16658, 64, -6), {"mode": "fixed_accuracy", "tolerance": 2**-6}),
        ((1, 16658, 20, -1074), {"mode": "fixed_precision", "precision": 20}),
        ((128, 128, 64, -1074), {"mode": "fixed_rate", "rate": 8}),
    ],
)
def test_experts_say_the_same_in_other_words(numbers, configuration):
    names = ("minbits", "maxbits", "maxprec", "minexp")
    expert = bound({"mode": "expert", **dict(zip(names, numbers, strict=True))})
    chunk = np.random.default_rng(0).normal(size=(5, 6)).astype("f4")
    assert expert.encode(chunk) == bound(configuration).encode(chunk)
    assert expert.to_configuration()["mode"] == "expert"


def test_what_cannot_be_had():
    with pytest.raises(UnsupportedError, match="which zfpy cannot do; expected"):
        bound({"mode": "expert", "minbits": 3, "maxbits": 90, "maxprec": 20, "minexp": -5})
    with pytest.raises(CodecError, match="4294967295 of uint32 is larger than 2147483647"):
        bound({"mode": "reversible"}, "u4", (1,)).encode(np.array([2**32 - 1], "u4"))
    for dtype, shape in (("?", (3,)), ("c8", (3,)), ("f4", (1, 2, 3, 4, 5))):
        with pytest.raises(MetadataError, match="codec 'zfp' takes"):
            bound({"mode": "reversible"}, dtype, shape)


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"mode": 5},
        {"mode": "reversible", "rate": 1},
        {"mode": "fixed_rate"},
        {"mode": "fixed_rate", "rate": 0},
        {"mode": "fixed_accuracy", "tolerance": "1"},
        {"mode": "fixed_precision", "precision": 65},
        {"mode": "expert", "minbits": 1},
        {"mode": "reversible", "write_header": True},
    ],
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match="codec 'zfp'"):
        Zfp.from_configuration(configuration)


@pytest.mark.skipif(not entry_points(group="zstore", name="zfp"), reason="zstore-zfp is not installed")
@pytest.mark.parametrize("shards", [None, (8, 12)])
def test_in_an_array(shards):
    store = MemoryStore()
    items = np.arange(221, dtype="f4").reshape(13, 17)
    serializer = {"name": "zfp", "configuration": {"mode": "reversible"}}
    zstore.create_array(
        store, data=items, chunks=(4, 6), shards=shards, serializer=serializer, compressors=None
    )
    np.testing.assert_array_equal(zstore.open_array(store)[...], items)
