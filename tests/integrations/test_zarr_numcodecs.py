"""zstore's codecs where numcodecs' are expected."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numcodecs
import numpy as np
import pytest

from zstore.errors import ChecksumError, CodecError
from zstore.guests.numcodecs import CRC32C, LZ4, Blosc, GZip, Zlib, Zstd, register, unregister

CODECS = [
    Zstd(3),
    Zstd(level=-2, checksum=True),
    Blosc("zstd", 4, shuffle=2),
    Blosc(),
    GZip(1),
    Zlib(level=9),
    LZ4(),
    CRC32C(),
    CRC32C(location="start"),
]
DATA = [
    np.arange(1000, dtype="<i4"),
    np.linspace(0, 1, 360).reshape(10, 36),
    np.asfortranarray(np.arange(60, dtype=">i2").reshape(6, 10)),
    np.array(["2020-01-01", "NaT"], "M8[D]"),
    np.zeros(0, "f8"),
    b"plain bytes" * 9,
]


@pytest.fixture
def registered() -> Iterator[None]:
    register()
    yield
    unregister()


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@pytest.mark.parametrize("data", DATA, ids=lambda data: str(getattr(data, "dtype", "bytes")))
def test_both_libraries_read_each_other(codec, data):
    other = numcodecs.get_codec(codec.get_config())
    plain = data if isinstance(data, bytes) else data.tobytes("A")
    encoded = codec.encode(data)
    assert bytes(codec.decode(encoded)) == plain
    if not plain:
        return  # numcodecs cannot read some of what it writes itself
    assert bytes(other.decode(bytes(encoded))) == plain
    assert bytes(codec.decode(other.encode(data))) == plain
    out = np.empty(len(plain), "u1")
    assert codec.decode(encoded, out=out) is out
    assert out.tobytes() == plain


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_damage_and_wrong_room_are_errors(codec):
    data = np.arange(1000, dtype="<i4")
    encoded = bytes(codec.encode(data))
    for size in (3999, 4001):
        with pytest.raises(CodecError):
            codec.decode(encoded, out=np.empty(size, "u1"))
    with pytest.raises(CodecError):
        codec.decode(encoded[:3])
    if codec.codec_id == "crc32c":
        with pytest.raises(ChecksumError):
            codec.decode(encoded[:100] + b"x" + encoded[101:])


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_configurations_and_pickles_come_back(codec):
    config = codec.get_config()
    again = type(codec).from_config({name: value for name, value in config.items() if name != "id"})
    assert again == codec and again.get_config() == config
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert repr(codec).startswith(type(codec).__name__)


def test_options_are_checked():
    with pytest.raises(TypeError):
        Zstd(speed=3)
    with pytest.raises(ValueError, match="clevel"):
        Blosc(clevel=17)


def test_nothing_changes_before_it_is_asked_for(registered):
    assert isinstance(numcodecs.get_codec({"id": "zstd", "level": 1}), Zstd)
    assert isinstance(numcodecs.get_codec({"id": "blosc"}), Blosc)
    register()
    unregister()
    assert type(numcodecs.get_codec({"id": "zstd"})) is numcodecs.Zstd
    assert type(numcodecs.get_codec({"id": "gzip"})) is numcodecs.GZip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_zarr_takes_them_as_compressors():
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array({}, shape=(30,), chunks=(7,), dtype="i4", zarr_format=2, compressors=Zstd(5))
    array[...] = np.arange(30)
    assert np.array_equal(array[...], np.arange(30))
