"""The codecs of HDF5 and TIFF by the contracts of zstore, and beside imagecodecs' own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import imagecodecs.numcodecs
import numpy as np
import pytest
from zstore_virtual.scan.codecs import (
    Delta,
    Floatpred,
    Hdf5Shuffle,
    Lz4h5,
    Lzf,
    Lzw,
    Packbits,
    Packints,
    Szip,
    TiffPredictor,
)

from zstore.codecs.base import BytesCodec, ChunkSpec
from zstore.errors import CodecError, MetadataError
from zstore.testing.codecs import CodecContract, NativeCodecContract, OptionContract

NUMBERS = np.arange(6000, dtype="<i2") // 7
STREAMS: list[tuple[type[Any], dict[str, Any]]] = [
    (Lzw, {}),
    (Packbits, {}),
    (Lzf, {"header": False}),
    (Lzf, {}),
    (Lz4h5, {}),
    (Szip, {"options_mask": 133, "pixels_per_block": 16, "bits_per_pixel": 16, "pixels_per_scanline": 256}),
]


@pytest.mark.parametrize(("kind", "options"), STREAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_streams_are_those_of_imagecodecs(kind: type[Any], options: dict[str, Any]) -> None:
    codec = kind.from_configuration(options)
    peer = getattr(imagecodecs.numcodecs, kind.__name__)(**options)
    data = NUMBERS.tobytes()
    assert bytes(codec.decode(peer.encode(data), len(data))) == data
    assert bytes(codec.decode(codec.encode(memoryview(data)), len(data))) == data
    with pytest.raises(CodecError):
        codec.decode(codec.encode(memoryview(data)), len(data) - 2)


def test_damaged_streams_are_errors_or_other_bytes_within_the_limit() -> None:
    random = np.random.default_rng(3)
    data = NUMBERS.tobytes()
    for kind, options in STREAMS:
        codec = kind.from_configuration(options)
        encoded = bytearray(codec.encode(memoryview(data)))
        for _ in range(100):
            damaged = bytearray(encoded)
            damaged[random.integers(len(damaged))] ^= 1 << random.integers(8)
            with suppress(CodecError):
                assert len(codec.decode(bytes(damaged), len(data))) <= len(data)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8"])
@pytest.mark.parametrize("shape", [(40, 30), (8, 10, 3)])
def test_delta(dtype: str, shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    axis = 1 - len(shape)
    codec = Delta.from_configuration({"axis": axis}).bind(ChunkSpec(shape, data.dtype, 0))
    expected = np.diff(data, axis=axis, prepend=np.zeros_like(data.take([0], axis)))
    np.testing.assert_array_equal(codec.encode(data), expected)
    np.testing.assert_array_equal(codec.decode(codec.encode(data)), data)


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2"])
def test_floatpred(dtype: str) -> None:
    data = np.random.default_rng(1).random((40, 30)).astype(dtype)
    codec = Floatpred.from_configuration({"shape": [40, 30], "dtype": dtype})
    peer = imagecodecs.numcodecs.Floatpred(shape=(40, 30), dtype=dtype)
    assert bytes(codec.decode(peer.encode(data), data.nbytes)) == data.tobytes()
    assert bytes(codec.decode(codec.encode(data.tobytes()), data.nbytes)) == data.tobytes()
    with pytest.raises(CodecError, match="not rows of"):
        codec.decode(bytes(data.nbytes + 1), data.nbytes + 1)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_packints(bits: int) -> None:
    items = np.random.default_rng(1).integers(0, 1 << bits, (7, 13)).astype("u1")
    codec = Packints.from_configuration({"bitspersample": bits, "runlen": 13})
    encoded = codec.encode(items.tobytes())
    assert len(encoded) == 7 * -(-13 * bits // 8)
    assert bytes(codec.decode(encoded, items.size)) == items.tobytes()
    with pytest.raises(CodecError, match="do not hold"):
        codec.decode(encoded[:-1], items.size)
    with pytest.raises(CodecError, match="expected less than"):
        codec.encode(bytes([1 << bits]) * 13)


def test_hdf5_shuffle_keeps_the_bytes_behind_the_last_item() -> None:
    codec = Hdf5Shuffle.from_configuration({"elementsize": 4})
    assert codec.encode(b"abcdABCDxy") == b"aAbBcCdDxy"
    assert codec.decode(b"aAbBcCdDxy", 10) == b"abcdABCDxy"
    with pytest.raises(CodecError, match="at most 9"):
        codec.decode(b"aAbBcCdDxy", 9)


class _OfFiles(CodecContract):
    """Streams whose readers, libtiff and HDF5's filters among them, pass over what follows."""

    sizes = (0, 1, 7, 16, 127, 128, 129, 4096)
    knows_its_end = False
    kind: type[Any]

    def make(self) -> BytesCodec:
        made: BytesCodec = self.kind.from_configuration({})
        return made


class TestPackbits(_OfFiles):
    kind = Packbits


class TestLzw(NativeCodecContract):
    sizes = (0, 1, 7, 255, 256, 4096, 240_000)
    knows_its_end = False

    def make(self) -> BytesCodec:
        made: BytesCodec = Lzw.from_configuration({})
        return made


@pytest.mark.parametrize("size", [1, 255, 4000, 1_000_003])
def test_streams_of_lzw_are_those_of_imagecodecs(size: int) -> None:
    imagecodecs = pytest.importorskip("imagecodecs", reason="imagecodecs is not installed")
    codec, chance = Lzw.from_configuration({}), np.random.default_rng(size)
    runs = np.repeat(chance.integers(0, 256, size // 50 + 1), 50).astype("u1").tobytes()[:size]
    for data in (bytes(size), chance.bytes(size), runs):
        assert imagecodecs.lzw_decode(bytes(codec.encode(data)), out=size + 1) == data
        assert codec.decode(imagecodecs.lzw_encode(data), size) == data


def test_changed_streams_of_lzw_are_refused_or_as_long_as_allowed() -> None:
    codec, chance, refused = Lzw.from_configuration({}), np.random.default_rng(0), 0
    whole = bytes(codec.encode(np.add.outer(np.arange(53), np.arange(70) * 3).astype("u1").tobytes()))
    for number in range(2000):
        changed = bytearray(whole)
        for at in chance.integers(0, len(whole) - 9, 3):
            if number % 2:
                changed[at] = int(chance.integers(256))
            else:
                del changed[at : at + int(chance.integers(9))]
        size = int(chance.choice([0, 1, 100, 53 * 70, 1 << 16]))
        try:
            assert len(codec.decode(memoryview(changed), size)) <= size
        except CodecError:
            refused += 1
    assert 0 < refused < 2000
    with pytest.raises(CodecError):
        codec.decode(memoryview(b"\0\1\2\3"), 100)


class TestLz4h5(_OfFiles):
    kind = Lz4h5


class TestHdf5Shuffle(CodecContract):
    sizes = (0, 1, 7, 16, 127, 128, 129, 4096)

    def make(self) -> BytesCodec:
        return Hdf5Shuffle.from_configuration({"elementsize": 4})


class TestTiffPredictor(NativeCodecContract):
    sizes = (0, 120, 1200, 65_520, 240_000)

    def make(self) -> BytesCodec:
        made: BytesCodec = TiffPredictor.from_configuration({"elementsize": 4, "row": 30})
        return made


class TestFloatpred(NativeCodecContract):
    """Of chunks of the contract's own arrays, whose items are of four bytes too."""

    sizes = (120, 1200, 2400)

    def make(self) -> BytesCodec:
        made: BytesCodec = Floatpred.from_configuration({"shape": [20, 30], "dtype": "<f4"})
        return made


class _Options(OptionContract):
    cases: tuple[tuple[type[Any], dict[str, Any]], ...] = (
        (Delta, {"axis": -2}),
        (Floatpred, {"shape": [4, 5], "dtype": "<f4"}),
        (Hdf5Shuffle, {"elementsize": 8}),
        (Lz4h5, {}),
        (Lzf, {"header": False}),
        (Lzw, {}),
        (Packbits, {}),
        (Packints, {"bitspersample": 2, "runlen": 5}),
        (
            Szip,
            {"options_mask": 133, "pixels_per_block": 16, "bits_per_pixel": 16, "pixels_per_scanline": 256},
        ),
    )
    kind: type[Any]
    options: dict[str, Any]

    def make(self) -> BytesCodec:
        made: BytesCodec = self.kind.from_configuration(self.options)
        return made


def _classes() -> Iterator[tuple[str, type[Any]]]:
    for kind, options in _Options.cases:
        name = f"Test{kind.__name__}Options"
        yield name, type(name, (_Options,), {"kind": kind, "options": options})


globals().update(_classes())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Szip, {}),
        (Lzf, {"header": 1}),
        (Packints, {"bitspersample": 12}),
        (Packints, {"bitspersample": 1, "dtype": "<u2"}),
        (Delta, {"axis": "x"}),
        (Floatpred, {"shape": [4], "dtype": "<f4"}),
        (Floatpred, {"shape": [4, 5], "dtype": "<i4"}),
        (Hdf5Shuffle, {"elementsize": 0}),
        (TiffPredictor, {"elementsize": 3, "row": 4}),
        (TiffPredictor, {"elementsize": 4}),
        (TiffPredictor, {"elementsize": 4, "row": 4, "distance": 65}),
    ],
)
def test_wrong_options_are_refused(kind: type[Any], options: dict[str, Any]) -> None:
    with pytest.raises(MetadataError, match=kind.name):
        kind.from_configuration(options)
