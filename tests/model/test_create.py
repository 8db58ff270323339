"""The model of a new array: each way to say a codec, a chunk shape or a fill value, and what says nothing."""

from __future__ import annotations

from math import prod

import numcodecs
import numpy as np
import pytest
import zarr.codecs
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import MetadataError, UnsupportedError
from zstore.model import v2, v3
from zstore.model.array import CodecModel
from zstore.model.grid import ChunkKeys
from zstore.nodes.create import ArrayRequest


def make(shape=(100, 200), dtype="float32", **options):
    model = ArrayRequest(shape=shape, dtype=dtype, **options).model()
    # Whatever is made can be written, and reads back as the same.
    module = v3 if model.zarr_format == 3 else v2
    again = module.parse_array(module.render_array(model), path="")
    if model.fill_value is None or model.fill_value == model.fill_value:
        assert again == model
    return model


def test_what_is_made_when_nothing_is_said():
    model = make()
    assert model.grid.chunk_shape == (100, 200)
    assert model.keys == ChunkKeys("default", "/")
    assert model.fill_value == 0
    assert model.codecs == (
        CodecModel("bytes", {"endian": "little"}),
        CodecModel("zstd", {"level": 3, "checksum": True}),
    )
    assert make(dtype="uint8").codecs[0] == CodecModel("bytes")
    document = v2.render_array(make(zarr_format=2))[".zarray"]
    assert document["compressor"] == {"id": "zstd", "level": 3}
    assert document["dimension_separator"] == "."


@given(st.lists(st.integers(0, 10**7), max_size=4), st.sampled_from(["uint8", "float64", "complex128"]))
def test_automatic_chunks_are_of_a_size_to_work_with(shape, dtype):
    item_size = np.dtype(dtype).itemsize
    chunk_shape = make(shape=shape, dtype=dtype).grid.chunk_shape
    size = prod(chunk_shape) * item_size
    assert all(1 <= chunk <= max(1, length) for chunk, length in zip(chunk_shape, shape, strict=True))
    assert size <= 1 << 20
    assert size >= 1 << 18 or chunk_shape == tuple(max(1, length) for length in shape)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (10, (10, 10)),
        ((10, -1), (10, 200)),
        ([None, 7], (100, 7)),
        ((1000, 1), (1000, 1)),
        (np.array([5, 6]), (5, 6)),
        ("auto", (100, 200)),
    ],
)
def test_chunks_in_every_form(chunks, expected):
    assert make(chunks=chunks).grid.chunk_shape == expected


def test_shards_hold_the_chain():
    model = make(shards=(50, 100), chunks=(10, 20), filters=[], compressors="gzip", order="F")
    assert model.grid.chunk_shape == (50, 100)
    (codec,) = model.codecs
    assert codec.name == "sharding_indexed"
    assert codec.configuration == {
        "chunk_shape": [10, 20],
        "codecs": [
            {"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "gzip", "configuration": {"level": 5}},
        ],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
    }
    inner = make(shape=(4096, 4096), shards=(2048, 4096)).codecs[0].configuration["chunk_shape"]
    assert inner == [512, 512]


class OwnCodec:
    name = "own"

    def to_configuration(self):
        return {"x": 1}


BLOSC = {"cname": "zstd", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (None, ()),
        ([], ()),
        ("gzip", (CodecModel("gzip", {"level": 5}),)),
        ("blosc", (CodecModel("blosc", BLOSC),)),
        (["zstd", "crc32c"], (CodecModel("zstd", {"level": 3, "checksum": True}), CodecModel("crc32c"))),
        ({"name": "gzip", "configuration": {"level": 1}}, (CodecModel("gzip", {"level": 1}),)),
        ({"id": "lz4", "acceleration": 2}, (CodecModel("numcodecs.lz4", {"acceleration": 2}),)),
        (numcodecs.LZ4(acceleration=2), (CodecModel("numcodecs.lz4", {"acceleration": 2}),)),
        (OwnCodec(), (CodecModel("own", {"x": 1}),)),
        (CodecModel("own"), (CodecModel("own"),)),
        (zarr.codecs.GzipCodec(level=2), (CodecModel("gzip", {"level": 2}),)),
        (zarr.codecs.ZstdCodec(level=2), (CodecModel("zstd", {"level": 2, "checksum": False}),)),
        (zarr.codecs.BloscCodec(cname="zstd", typesize=4, shuffle="shuffle"), (CodecModel("blosc", BLOSC),)),
    ],
)
def test_compressors_in_every_form(given_, expected):
    assert make(compressors=given_).codecs[1:] == expected


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (None, None),
        ("gzip", {"id": "gzip", "level": 5}),
        ("zlib", {"id": "zlib", "level": 1}),
        ("numcodecs.bz2", {"id": "bz2", "level": 1}),
        ({"name": "gzip", "configuration": {"level": 1}}, {"id": "gzip", "level": 1}),
        (zarr.codecs.GzipCodec(level=2), {"id": "gzip", "level": 2}),
        (
            {"name": "blosc", "configuration": BLOSC},
            {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": 0},
        ),
        (numcodecs.BZ2(level=3), {"id": "bz2", "level": 3}),
        ([{"id": "own"}], {"id": "own"}),
    ],
)
def test_v2_compressors_in_every_form(given_, expected):
    model = make(compressors=given_, zarr_format=2, filters=[numcodecs.Delta("<f4")], dtype=">f4", order="F")
    document = v2.render_array(model)[".zarray"]
    assert document["compressor"] == expected
    assert document["filters"] == [{"id": "delta", "dtype": "<f4", "astype": "<f4"}]
    assert (document["dtype"], document["order"]) == (">f4", "F")


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (None, ChunkKeys("default", "/")),
        (".", ChunkKeys("default", ".")),
        ("v2", ChunkKeys("v2", ".")),
        (("v2", "/"), ChunkKeys("v2", "/")),
        ({"name": "v2", "separator": "/"}, ChunkKeys("v2", "/")),
        ({"name": "default", "configuration": {"separator": "."}}, ChunkKeys("default", ".")),
        (ChunkKeys("v2", "/"), ChunkKeys("v2", "/")),
    ],
)
def test_chunk_keys_in_every_form(given_, expected):
    assert make(chunk_key_encoding=given_).keys == expected


@pytest.mark.parametrize(
    ("dtype", "fill_value", "expected"),
    [
        ("int16", -9999.0, np.int16(-9999)),
        ("float32", np.float64("nan"), np.float32("nan")),
        ("float32", "NaN", np.float32("nan")),
        ("float64", np.array(2.5), np.float64(2.5)),
        ("float32", np.frombuffer(b"\x01\x00\xc0\x7f", "f4")[0], np.frombuffer(b"\x01\x00\xc0\x7f", "f4")[0]),
        ("complex64", 1 + 2j, np.complex64(1 + 2j)),
        ("complex64", 3, np.complex64(3)),
        ("bool", 1, np.bool_(True)),
        ("bool", np.True_, np.bool_(True)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("int8", None, np.int8(0)),
    ],
)
def test_fill_values_in_every_form(dtype, fill_value, expected):
    value = make(dtype=dtype, fill_value=fill_value).fill_value
    assert (value.dtype, value.tobytes()) == (expected.dtype, expected.tobytes())
    assert make(zarr_format=2, fill_value=None).fill_value is None


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"shape": (-1,)}, MetadataError, "shape is"),
        ({"shape": "ab"}, MetadataError, "shape is 'ab'"),
        ({"shape": (1.5, 2)}, MetadataError, "expected an integer"),
        ({"shape": None}, MetadataError, "shape is None"),
        ({"dtype": None}, MetadataError, "dtype is None"),
        ({"dtype": "nothing"}, UnsupportedError, "'nothing' is not supported"),
        ({"dtype": object}, UnsupportedError, "does not say what its items are"),
        ({"dtype": "int4", "zarr_format": 2}, UnsupportedError, "cannot be said in Zarr v2"),
        ({"dtype": [("a", "f4", (2,))]}, UnsupportedError, r"\(2,\).* cannot be said in Zarr v3, only in v2"),
        ({"chunks": (0, 1)}, MetadataError, "at least 1"),
        ({"chunks": (1,)}, MetadataError, "expected 2 lengths"),
        ({"chunks": True}, MetadataError, "chunks is True"),
        ({"chunks": (2**40, 2**40)}, MetadataError, "at most 2"),
        (
            {"shards": (50, 100), "chunks": (20, 20)},
            MetadataError,
            r"shards \(50, 100\) are not a multiple of chunks \(20, 20\)",
        ),
        ({"shards": (50, 100), "zarr_format": 2}, UnsupportedError, "only v3 has sharding"),
        ({"order": "A"}, MetadataError, "order is 'A'"),
        ({"zarr_format": 4}, UnsupportedError, "zarr_format is 4"),
        ({"compressors": 5}, MetadataError, "codec is 5"),
        ({"compressors": ["zstd", "gzip"], "zarr_format": 2}, UnsupportedError, "it has one only"),
        ({"filters": {"name": "bitround"}, "zarr_format": 2}, UnsupportedError, "'bitround' cannot be said"),
        ({"serializer": "own", "zarr_format": 2}, UnsupportedError, "serializer 'own'"),
        ({"chunk_key_encoding": "n5"}, UnsupportedError, "'n5' is not one"),
        ({"chunk_key_encoding": "default", "zarr_format": 2}, UnsupportedError, "expected 'v2'"),
        ({"chunk_key_encoding": ("v2", "-")}, MetadataError, "separator"),
        ({"chunk_key_encoding": 5}, MetadataError, "chunk_key_encoding is 5"),
        ({"fill_value": 300, "dtype": "int8"}, MetadataError, "fill_value is 300"),
        ({"fill_value": np.nan, "dtype": "int8"}, MetadataError, "fill_value is nan"),
        ({"fill_value": np.float64(1e300)}, MetadataError, "in range"),
        ({"fill_value": [1, 2]}, MetadataError, "expected a number"),
        ({"dimension_names": ("a",)}, MetadataError, "expected 2 names"),
        ({"dimension_names": ("a", 1)}, MetadataError, "expected 2 names"),
    ],
)
def test_arguments_that_make_no_array(options, error, reason):
    with pytest.raises(error, match=reason):
        make(**options)
