"""The plugin as a third party's: the contract, peers' blocks, and that the compiled batch calls it."""

from __future__ import annotations

import random
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import CodecError
from zstore.testing.codecs import NativeCodecContract

if not entry_points(group="zstore", name="snappy"):
    pytest.skip("zstore-snappy is not installed, so it has no entry point", allow_module_level=True)
native: Any = pytest.importorskip("zstore_snappy.native", reason="the compiled part")
Snappy: Any = pytest.importorskip("zstore_snappy.codec").Snappy

NAME = "numcodecs.imagecodecs_snappy"


class TestSnappy(NativeCodecContract):
    def make(self) -> Any:
        return Snappy.from_configuration({})


def decode(data: bytes, limit: int = 100) -> bytes:
    return bytes(Snappy().decode(memoryview(data), limit))


@pytest.mark.parametrize(
    ("block", "decoded"),
    [
        (b"\x00", b""),
        (b"\x03\x08abc", b"abc"),
        (b"\x03\xf0\x02abc", b"abc"),
        (b"\x03\xf4\x02\x00abc", b"abc"),
        (b"\x03\xf8\x02\x00\x00abc", b"abc"),
        (b"\x03\xfc\x02\x00\x00\x00abc", b"abc"),
        (b"\x08\x04ab\x09\x02", b"abababab"),
        (b"\x08\x04ab\x16\x02\x00", b"abababab"),
        (b"\x08\x04ab\x17\x02\x00\x00\x00", b"abababab"),
    ],
)
def test_every_element_of_the_format(block: bytes, decoded: bytes) -> None:
    assert decode(block) == decoded


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\x1f\x00",
        b"\x03\x08ab",
        b"\x02\x08abc",
        b"\x04\x08abc",
        b"\x03\xf0",
        b"\x08\x04ab\x16\x00\x00",
        b"\x08\x04ab\x16\x03\x00",
        b"\x07\x04ab\x16\x02\x00",
        b"\x08\x04ab\x17\x02\x00\x00",
        b"\x08\x09\x01",
    ],
)
def test_what_is_no_block(block: bytes) -> None:
    with pytest.raises(CodecError):
        decode(block)


@pytest.mark.parametrize("size", [0, 1, 60, 61, 256, 257, 65535, 65536, 65537, 300_000])
def test_imagecodecs_reads_and_writes_the_same(size: int) -> None:
    peers = pytest.importorskip("imagecodecs.numcodecs", reason="the peer")
    draw = random.Random(size)
    for data in (draw.randbytes(size), bytes(size), bytes(draw.choices(b"abc", k=size))):
        assert peers.Snappy().decode(Snappy().encode(memoryview(data))) == data
        assert decode(peers.Snappy().encode(data), size) == data


def test_options_that_imagecodecs_writes_are_taken() -> None:
    peers = pytest.importorskip("imagecodecs.numcodecs", reason="the peer")
    for written in (peers.Snappy().get_config(), {"id": "imagecodecs_snappy", "level": None}):
        assert written.pop("id") == "imagecodecs_snappy"
        assert Snappy.from_configuration(written).to_configuration() == {}
    assert Snappy.from_configuration({"level": 2}).to_configuration() == {"level": 2}


@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (40, 60))])
def test_the_batch_decodes_natively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zarr_format: int, shards: tuple[int, int] | None
) -> None:
    items = np.arange(80 * 120, dtype="i4").reshape(80, 120)
    compressor = {"id": "imagecodecs_snappy"} if zarr_format == 2 else {"name": NAME, "configuration": {}}
    zstore.create_array(
        tmp_path,
        data=items,
        chunks=(20, 30),
        shards=shards,
        compressors=[compressor],
        zarr_format=zarr_format,
    )
    array = zstore.open_array(tmp_path, mode="r")

    def never(*_: object) -> Any:
        raise AssertionError("the Python side of the codec was called")

    # Whatever decodes now is not the class.
    monkeypatch.setattr(Snappy, "decode", never)
    before = native.decode_count()
    assert np.array_equal(array[...], items)
    assert native.decode_count() - before == 16


def test_the_header_is_zstores() -> None:
    copy = Path(__file__).parents[1] / "src" / "zstore_snappy" / "zstore_codec.h"
    assert copy.read_bytes() == (Path(zstore.get_include()) / copy.name).read_bytes()


def test_damage_in_an_array_is_an_error(tmp_path: Path) -> None:
    items = np.arange(100, dtype="i4")
    zstore.create_array(
        tmp_path, data=items, chunks=(100,), compressors=[{"name": NAME, "configuration": {}}]
    )
    chunk = tmp_path / "c/0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(CodecError, match="imagecodecs_snappy"):
        zstore.open_array(tmp_path, mode="r")[...]
