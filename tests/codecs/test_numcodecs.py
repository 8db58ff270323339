"""numcodecs' codecs through the adapter, beside numcodecs itself and on bytes that older versions wrote."""

from __future__ import annotations

import bz2
import hashlib
import json
import lzma
import pickle
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import pytest

import zstore
from zstore.codecs.base import ArrayCodec, BytesCodec, ChunkSpec
from zstore.codecs.blosc import NumcodecsBlosc
from zstore.errors import ChecksumError, CodecError, MetadataError, UnknownExtensionError, UnsupportedError
from zstore.extensions.registry import codecs as registry
from zstore.storage.memory import MemoryStore
from zstore.testing.codecs import CodecContract, NativeCodecContract


def adapter(codec_id):
    """The class behind one of numcodecs' names, zstore's own or one that runs numcodecs' code."""
    return registry.resolve(f"numcodecs.{codec_id}")


FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"


class TestBz2(CodecContract):
    def make(self):
        return adapter("bz2").from_configuration({"level": 1})


class TestLzma(CodecContract):
    damage_count = 30

    def make(self):
        return adapter("lzma").from_configuration({"preset": 1})


class TestAdler32(CodecContract):
    def make(self):
        return adapter("adler32").from_configuration({})


class TestFletcher32(CodecContract):
    sizes = (2, 16, 128, 4096, 65538)

    def make(self):
        return adapter("fletcher32").from_configuration({})


class TestJenkins(CodecContract):
    sizes = (1, 16, 128, 4096, 65538)

    def make(self):
        return adapter("jenkins_lookup3").from_configuration({})


class TestShuffle(NativeCodecContract):
    sizes = (0, 4, 16, 128, 65540)

    def make(self):
        return adapter("shuffle").from_configuration({"elementsize": 4})


@pytest.mark.parametrize("size", [5, (1 << 31) - 1, 1 << 31, 1 << 63])
def test_items_that_the_chunk_is_no_whole_number_of(size):
    codec = {"name": "numcodecs.shuffle", "configuration": {"elementsize": size}}
    array = zstore.create_array(MemoryStore(), shape=12, chunks=12, dtype="i4", compressors=[codec])
    with pytest.raises(CodecError, match="shuffle"):
        array[...] = 1


class TestBase64(CodecContract):
    def make(self):
        return adapter("base64").from_configuration({})


class TestDelta(CodecContract):
    sizes = (4, 16, 128, 4096, 65540)

    def make(self):
        return adapter("delta").from_configuration({"dtype": "<i4"})


class TestAsType(CodecContract):
    sizes = (2, 16, 128, 4096)

    def make(self):
        return adapter("astype").from_configuration({"encode_dtype": "<i8", "decode_dtype": "<i2"})


VALUES = np.round(np.cumsum(np.random.default_rng(0).normal(size=600)), 3).reshape(20, 30)

# id, configuration, dtype of the chunk; what numcodecs makes of it is the expected value.
FILTERS = [
    ("delta", {"dtype": "<i4"}, "<i4"),
    ("delta", {"dtype": "<i4", "astype": "<i2"}, "<i4"),
    ("delta", {"dtype": ">f8"}, ">f8"),
    ("fixedscaleoffset", {"offset": 1, "scale": 100, "dtype": "<f8", "astype": "<i4"}, "<f8"),
    ("fixedscaleoffset", {"offset": 0, "scale": 10, "dtype": ">f4", "astype": ">i2"}, ">f4"),
    ("quantize", {"digits": 2, "dtype": "<f8"}, "<f8"),
    ("quantize", {"digits": 1, "dtype": "<f8", "astype": "<f4"}, "<f8"),
    ("bitround", {"keepbits": 5}, "<f4"),
    ("bitround", {"keepbits": 52}, "<f8"),
    ("astype", {"encode_dtype": "<f4", "decode_dtype": "<f8"}, "<f8"),
    ("packbits", {}, "|b1"),
    ("categorize", {"labels": ["1", "2", "-3"], "dtype": "<U4", "astype": "|u1"}, "<U4"),
]


def chunk_of(dtype: str) -> np.ndarray:
    if dtype == "|b1":
        return VALUES[:, :29] > 0
    if np.dtype(dtype).kind == "U":
        return VALUES.astype("i4").astype(dtype)
    return VALUES.astype(dtype)


def bound(codec_id, configuration, chunk):
    spec = ChunkSpec(chunk.shape, chunk.dtype, None)
    return adapter(codec_id).from_configuration(configuration).bind(spec)


@pytest.mark.parametrize(("codec_id", "configuration", "dtype"), FILTERS)
def test_a_filter_behind_the_serializer_gives_the_bytes_numcodecs_gives(codec_id, configuration, dtype):
    chunk = chunk_of(dtype)
    codec = bound(codec_id, configuration, chunk)
    peer = numcodecs.get_codec({"id": codec_id, **configuration})
    expected = np.ascontiguousarray(peer.encode(chunk))
    encoded = codec.encode(memoryview(chunk.tobytes()))
    assert bytes(encoded) == expected.tobytes()
    assert len(encoded) <= codec.encoded_bound(chunk.nbytes)
    decoded = np.ascontiguousarray(peer.decode(expected)).tobytes()
    assert bytes(codec.decode(memoryview(encoded), chunk.nbytes)) == decoded
    with pytest.raises(CodecError, match=f"at most {chunk.nbytes - 1} allowed"):
        codec.decode(memoryview(encoded), chunk.nbytes - 1)


# Chunks before the serializer are in native byte order.
@pytest.mark.parametrize(("codec_id", "configuration", "dtype"), [row for row in FILTERS if row[2][0] != ">"])
def test_a_filter_before_the_serializer_gives_arrays(codec_id, configuration, dtype):
    chunk = chunk_of(dtype)
    codec = bound(codec_id, configuration, chunk)
    peer = numcodecs.get_codec({"id": codec_id, **configuration})
    encoded = codec.encode(chunk)
    expected = np.ascontiguousarray(peer.encode(chunk))
    seen = codec.encoded_spec(ChunkSpec(chunk.shape, chunk.dtype, None))
    assert encoded.tobytes() == expected.tobytes()
    assert (encoded.shape, encoded.dtype) == (seen.shape, seen.dtype)
    decoded = codec.decode(encoded)
    assert (decoded.shape, decoded.dtype) == (chunk.shape, chunk.dtype)
    assert decoded.tobytes() == np.ascontiguousarray(peer.decode(expected)).tobytes()
    transposed = codec.encode(np.asfortranarray(chunk))
    assert transposed.tobytes() == encoded.tobytes()


@pytest.mark.parametrize("configured", ["<f4", ">f8"])
def test_items_of_another_size_or_order_are_refused(configured):
    codec = bound("fixedscaleoffset", {"offset": 0, "scale": 10, "dtype": configured}, VALUES)
    for work in (codec.encode, codec.decode):
        with pytest.raises(
            CodecError, match=f"configured for items of type {configured}, the chunk's are <f8"
        ):
            work(VALUES)


@pytest.mark.parametrize("codec_id", ["delta", "packbits", "bitround"])
def test_filters_can_stand_in_either_place(codec_id):
    assert issubclass(adapter(codec_id), ArrayCodec)
    assert issubclass(adapter(codec_id), BytesCodec)
    assert not issubclass(adapter("bz2"), ArrayCodec)


@pytest.mark.parametrize(
    ("codec_id", "configuration"),
    [
        ("bz2", {"level": 9}),
        ("lzma", {"format": 2, "check": -1, "preset": 1, "filters": None}),
        (
            "lzma",
            {"format": 3, "check": -1, "preset": None, "filters": [{"id": lzma.FILTER_LZMA2, "preset": 1}]},
        ),
        ("adler32", {"location": "end"}),
        ("crc32", {}),
        ("crc32", {"location": "end"}),
        ("crc32c", {"location": "start"}),
        ("fletcher32", {}),
        ("jenkins_lookup3", {"initval": 7}),
        ("shuffle", {"elementsize": 8}),
        ("base64", {}),
        ("blosc", {"cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}),
        ("gzip", {"level": 3}),
        ("zlib", {"level": 3}),
        ("lz4", {"acceleration": 2}),
        ("zstd", {"level": 3}),
    ],
)
def test_numcodecs_reads_ours_and_we_read_numcodecs(codec_id, configuration):
    data = VALUES.astype("<f4").tobytes()
    codec = adapter(codec_id).from_configuration(configuration)
    peer = numcodecs.get_codec({"id": codec_id, **configuration})
    assert codec.to_configuration() == configuration
    assert bytes(peer.decode(bytes(codec.encode(memoryview(data))))) == data
    encoded = bytes(peer.encode(data))
    assert bytes(codec.decode(memoryview(encoded), len(data))) == data
    with pytest.raises(CodecError):
        codec.decode(memoryview(encoded), len(data) - 1)


def test_native_codecs_are_used_where_there_are_any():
    assert adapter("blosc") is NumcodecsBlosc
    assert adapter("bz2") is adapter("bz2")
    assert adapter("bz2").name == "numcodecs.bz2"


@pytest.mark.parametrize(("codec_id", "compress"), [("bz2", bz2.compress), ("lzma", lzma.compress)])
def test_an_expansion_bomb_stops_at_the_limit(codec_id, compress):
    codec = adapter(codec_id).from_configuration({})
    encoded = compress(bytes(64 << 20))
    with pytest.raises(CodecError, match="decodes to more than the 1000 bytes allowed"):
        codec.decode(memoryview(encoded), 1000)
    two = compress(b"one ") + compress(b"two")
    assert bytes(codec.decode(memoryview(two), 7)) == b"one two"
    with pytest.raises(CodecError, match="without its end mark"):
        codec.decode(memoryview(encoded[:-9]), 64 << 20)
    with pytest.raises(CodecError):
        codec.decode(memoryview(b""), 10)


@pytest.mark.parametrize("codec_id", ["adler32", "crc32", "fletcher32", "jenkins_lookup3"])
def test_a_wrong_checksum_is_a_checksum_error(codec_id):
    codec = adapter(codec_id).from_configuration({})
    encoded = bytearray(codec.encode(memoryview(b"some bytes")))
    encoded[6] ^= 1
    with pytest.raises(ChecksumError, match=f"codec 'numcodecs.{codec_id}' failed to decode 14 bytes"):
        codec.decode(memoryview(encoded), 100)


def test_a_value_that_cannot_be_stored_is_refused():
    codec = adapter("fixedscaleoffset").from_configuration(
        {"offset": 0, "scale": 10, "dtype": "<f4", "astype": "<i2"}
    )
    with pytest.raises(CodecError, match="invalid value"):
        codec.encode(memoryview(np.array([1, np.nan], "<f4").tobytes()))


def test_what_the_configuration_leaves_out_follows_from_the_chunk():
    chunk = VALUES.astype("<f4")
    assert bound("shuffle", {}, chunk).to_configuration() == {"elementsize": 4}
    codec = bound("fixedscaleoffset", {"offset": 0, "scale": 10}, chunk)
    assert codec.to_configuration() == {"offset": 0, "scale": 10, "dtype": "float32"}
    loose = adapter("quantize").from_configuration({"digits": 2})
    with pytest.raises(CodecError, match="was not bound to a chunk's dtype"):
        loose.encode(memoryview(chunk.tobytes()))


@pytest.mark.parametrize(
    ("codec_id", "configuration"),
    [
        ("delta", {"dtype": "<i4", "order": 2}),
        ("delta", {"dtype": "not a type"}),
        ("delta", {}),
        ("bitround", {"keepbits": -1}),
        ("bitround", {}),
        ("quantize", {"digits": 1, "dtype": "<i4"}),
        ("crc32", {"location": "middle"}),
        ("bz2", {"id": "bz2"}),
    ],
)
def test_bad_configurations_are_refused(codec_id, configuration):
    with pytest.raises(MetadataError, match=f"codec 'numcodecs.{codec_id}'"):
        adapter(codec_id).from_configuration(configuration)


def test_bitround_refuses_bytes_in_another_order():
    """numcodecs rounds native floats only; other bytes must not be rounded as if they were."""
    with pytest.raises(CodecError, match=r"codec 'numcodecs\.bitround' failed to encode"):
        bound("bitround", {"keepbits": 5}, VALUES.astype(">f8")).encode(memoryview(VALUES.tobytes()))


def test_unknown_names():
    with pytest.raises(UnknownExtensionError, match="knows no codec 'brotli9'"):
        adapter("brotli9")
    with pytest.raises(UnsupportedError, match="Python objects"):
        adapter("categorize").from_configuration({"labels": ["a"], "dtype": "|O8"})


def test_codecs_can_be_pickled():
    chunk = VALUES.astype("<f4")
    codec = bound("bitround", {"keepbits": 4}, chunk)
    again = pickle.loads(pickle.dumps(codec))
    assert again.encode(chunk).tobytes() == codec.encode(chunk).tobytes()


# Not a bytes codec's: `tests/conformance` reads their vectors.
OF_OBJECTS = {"json2", "msgpack2", "vlen-array", "vlen-bytes", "vlen-utf8"}


def vectors() -> list[dict]:
    table = FIXTURES / "codecs" / "codecs.json"
    return json.loads(table.read_text())["entries"] if table.exists() else []


@pytest.mark.skipif(not vectors(), reason="the shared fixtures are not beside the project")
@pytest.mark.parametrize("codec_id", sorted({vector["codec"] for vector in vectors()} - OF_OBJECTS))
def test_bytes_that_numcodecs_has_written_over_the_years(codec_id):
    chosen = [vector for vector in vectors() if vector["codec"] == codec_id]
    if codec_id not in numcodecs.registry.codec_registry:
        pytest.skip(f"the package behind {codec_id!r} is not installed")
    for vector in chosen:
        configuration = {key: value for key, value in vector["config"].items() if key != "id"}
        if configuration.get("dtype") == "|O":
            continue  # categories of Python objects
        codec = adapter(codec_id).from_configuration(configuration)
        encoded = (FIXTURES / vector["encoded"]).read_bytes()
        expected = vector["expected"]
        decoded = bytes(codec.decode(memoryview(encoded), expected["nbytes"]))
        if expected.get("lossy"):
            values = np.load(FIXTURES / expected["npy"])
            assert np.allclose(np.frombuffer(decoded, values.dtype), values, rtol=1e-6, equal_nan=True)
        else:
            assert hashlib.sha256(decoded).hexdigest() == expected["sha256"], vector["name"]


def test_no_warning_escapes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        codec = adapter("delta").from_configuration({"dtype": "|u1"})
        assert bytes(codec.decode(codec.encode(memoryview(b"\x00\xff\x01")), 3)) == b"\x00\xff\x01"
