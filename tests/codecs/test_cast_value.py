"""The codec "cast_value"."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.codecs.base import ChunkSpec
from zstore.codecs.cast_value import CastValue
from zstore.errors import CodecError, MetadataError, UnsupportedError
from zstore.storage.memory import MemoryStore
from zstore.testing.chunk_codecs import ArrayCodecContract


def bound(dtype, fill_value=None, **configuration) -> CastValue:
    codec = CastValue.from_configuration(configuration)
    spec = ChunkSpec((4,), np.dtype(dtype), fill_value)
    codec = codec.bind(spec)
    codec.encoded_spec(spec)
    return codec


class TestIntegers(ArrayCodecContract):
    specs = (ChunkSpec((3, 4), np.dtype("i8"), np.int64(7)), ChunkSpec((), np.dtype("f4"), np.float32(1)))

    def make(self):
        return CastValue.from_configuration({"data_type": "uint8"})


class TestFloats(ArrayCodecContract):
    specs = (ChunkSpec((3, 4), np.dtype("f8"), np.float64("nan")),)

    def make(self):
        scalar_map = {"encode": [["NaN", 255]], "decode": [[255, "NaN"]]}
        return CastValue.from_configuration({"data_type": "uint8", "scalar_map": scalar_map})


def test_the_example_of_the_specification():
    scalar_map = {"encode": [["NaN", 0], ["+Infinity", 0], ["-Infinity", 0]]}
    codec = bound(
        "f8", data_type="uint8", rounding="towards-zero", out_of_range="wrap", scalar_map=scalar_map
    )
    given = np.array([np.nan, np.inf, -np.inf, 300.7, -1.5, 2.9])
    assert codec.encode(given).tolist() == [0, 0, 0, 44, 255, 2]
    assert np.isnan(given[0]), "what was given stays"


@pytest.mark.parametrize(("out_of_range", "expected"), [("clamp", 127), ("wrap", -128), (None, None)])
def test_out_of_range(out_of_range, expected):
    options = {} if out_of_range is None else {"out_of_range": out_of_range}
    codec = bound("f8", data_type="int8", **options)
    if expected is None:
        with pytest.raises(CodecError, match=r"128\.0 of float64 is out of range for int8"):
            codec.encode(np.array([128.0]))
    else:
        assert codec.encode(np.array([128.0])).tolist() == [expected]


def test_maps_come_first_and_the_first_key_counts():
    scalar_map = {"encode": [[1, 9], [2, 1], [1, 5]], "decode": [[9, 1], [1, 2]]}
    codec = bound("i4", data_type="uint8", scalar_map=scalar_map)
    assert codec.encode(np.array([1, 2, 3, 9])).tolist() == [9, 1, 3, 9]
    assert codec.decode(np.array([9, 1, 3], "u1")).tolist() == [1, 2, 3]


def test_kinds_of_nan_as_keys():
    bits = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], "u4")
    every = bound("f4", data_type="uint8", scalar_map={"encode": [["NaN", 3]]})
    assert every.encode(bits.view("f4")).tolist() == [3, 3, 3]
    one = bound("f4", data_type="uint8", scalar_map={"encode": [["0x7fc00001", 5], ["NaN", 3]]})
    assert one.encode(bits.view("f4")).tolist() == [3, 5, 3]


def test_a_type_cast_to_itself_gives_what_it_was_given():
    codec = bound("f8", data_type="float64", scalar_map={"encode": [[1.0, 2.0]]})
    given = np.array([1.0, -0.0])
    assert codec.encode(given).tolist() == [2, 0]
    assert given.tolist() == [1, 0]


@pytest.mark.parametrize("fill_value", [np.float64("nan"), np.float64(300), np.float64(1.5)])
def test_fill_values_that_would_not_come_back(fill_value):
    with pytest.raises(MetadataError, match="fill value"):
        bound("f8", fill_value, data_type="uint8")


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"data_type": "bool"},
        {"data_type": "complex64"},
        {"data_type": "uint8", "rounding": "up"},
        {"data_type": "uint8", "out_of_range": None},
        {"data_type": "float32", "out_of_range": "wrap"},
        {"data_type": "uint8", "scalar_map": None},
        {"data_type": "uint8", "scalar_map": {"both": []}},
        {"data_type": "uint8", "scalar_map": {"encode": [[1]]}},
        {"data_type": "uint8", "scalar_map": {"encode": {"1": 2}}},
    ],
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match="codec 'cast_value'"):
        CastValue.from_configuration(configuration)


def test_a_data_type_that_nobody_has():
    with pytest.raises(UnsupportedError, match="int3"):
        CastValue.from_configuration({"data_type": "int3"})


@pytest.mark.parametrize(
    ("dtype", "pair"), [("f8", ["NaN", "NaN"]), ("f8", [1, 256]), ("u1", [-1, 0]), ("i4", [None, 0])]
)
def test_maps_of_values_that_the_types_do_not_have(dtype, pair):
    codec = CastValue.from_configuration({"data_type": "uint8", "scalar_map": {"encode": [pair]}})
    with pytest.raises(MetadataError, match="scalar_map"):
        codec.bind(ChunkSpec((4,), np.dtype(dtype), None))


@pytest.mark.parametrize("dtype", ["?", "c8", "M8[s]", "S3"])
def test_chunks_of_what_is_no_number(dtype):
    with pytest.raises(MetadataError, match="converts integers and real floats"):
        bound(dtype, data_type="uint8")


CHAIN = [
    {"name": "scale_offset", "configuration": {"offset": -10, "scale": 0.1}},
    {
        "name": "cast_value",
        "configuration": {
            "data_type": "uint8",
            "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]},
        },
    },
]


@pytest.mark.parametrize("shards", [None, (8, 12)])
@pytest.mark.parametrize("is_outside", [False, True])
def test_packed_floats_in_an_array(shards, is_outside):
    """The third example of the specification of scale_offset: 0 to 2540 in a byte, NaN kept."""
    items = np.full((13, 17), np.nan)
    items[2:11, 3:] = np.random.default_rng(0).integers(0, 255, (9, 14)) * 10
    options = {"filters": CHAIN, "shards": shards}
    if is_outside and shards:
        inner = [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1}}]
        index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        sharding = {"chunk_shape": [4, 6], "codecs": inner, "index_codecs": index}
        serializer = {"name": "sharding_indexed", "configuration": sharding}
        options = {"filters": CHAIN, "serializer": serializer, "compressors": None}
    chunks = (8, 12) if is_outside and shards else (4, 6)
    store = MemoryStore()
    array = zstore.create_array(
        store, shape=(13, 17), chunks=chunks, dtype="f8", fill_value=np.nan, **options
    )
    array[2:11, 3:] = items[2:11, 3:]
    np.testing.assert_allclose(zstore.open_array(store)[...], items, atol=1e-9)
    array[0, 0] = items[0, 0] = 20
    np.testing.assert_allclose(array[:3, ::-1], items[:3, ::-1], atol=1e-9)
    with pytest.raises(CodecError, match="out of range for uint8"):
        array[0, 0] = 1e6
