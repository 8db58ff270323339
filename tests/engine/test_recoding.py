"""A chunk of which a part is written: blocks that are not touched keep their encoded bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import CodecError

SHAPE = (256, 200)


def blosc(cname: str, shuffle: str, clevel: int, blocksize: int) -> dict[str, object]:
    configuration = {"cname": cname, "clevel": clevel, "shuffle": shuffle, "blocksize": blocksize}
    return {"name": "blosc", "configuration": configuration}


def smooth(dtype: str) -> np.ndarray:
    return np.add.outer(np.arange(SHAPE[0]) * 3, np.arange(SHAPE[1])).astype(dtype)


@pytest.mark.parametrize("shards", [None, SHAPE])
@pytest.mark.parametrize("dtype", ["u1", "<i4", ">f8"])
@pytest.mark.parametrize(
    "codec",
    [
        blosc("lz4", "shuffle", 5, 4096),
        blosc("lz4", "bitshuffle", 9, 10_000),
        blosc("zstd", "shuffle", 3, 8192),
        blosc("blosclz", "noshuffle", 1, 2048),
        blosc("zlib", "shuffle", 1, 0),
        blosc("lz4hc", "shuffle", 0, 4096),
    ],
    ids=lambda codec: f"{codec['configuration']['cname']}-{codec['configuration']['clevel']}",
)
def test_the_file_is_as_if_written_at_once(tmp_path, codec, dtype, shards):
    rng = np.random.default_rng(5)
    items = smooth(dtype[1:] if dtype[0] in "<>" else dtype)
    endian = {"name": "bytes", "configuration": {"endian": "big" if dtype[0] == ">" else "little"}}
    options = {"shape": SHAPE, "dtype": items.dtype, "chunks": (128, 200) if shards else SHAPE}
    options |= {
        "shards": shards,
        "compressors": codec,
        "serializer": endian if items.itemsize > 1 else "bytes",
    }
    array = zstore.create_array(tmp_path / "a", **options)
    array[...] = items
    for _ in range(6):
        y, x, height, width = (int(rng.integers(0, limit)) for limit in (250, 190, 60, 200))
        window = np.s_[y : y + 1 + height, x : x + 1 + width : int(rng.integers(1, 4))]
        items[window] = rng.integers(0, 200, items[window].shape).astype(items.dtype)
        array[window] = items[window]
    array[::-90, [3, 7]] = items[::-90, [3, 7]] = 5
    array.vindex[[9, 200], [1, 2]] = items[[9, 200], [1, 2]] = 6
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "a")[...], items)
    whole = zstore.create_array(tmp_path / "b", **options)
    whole[...] = items
    assert (tmp_path / "a/c/0/0").read_bytes() == (tmp_path / "b/c/0/0").read_bytes()


def make(path: Path, **options) -> zstore.Array:
    options = {"compressors": blosc("lz4", "shuffle", 5, 4096), **options}
    return zstore.create_array(path, shape=SHAPE, dtype="i4", chunks=SHAPE, **options)


def test_a_chunk_that_becomes_the_fill_value(tmp_path):
    array = make(tmp_path / "a", fill_value=0)
    array[7:9] = 4
    array[100:102] = 4
    array[7:9] = 0
    assert (tmp_path / "a/c/0/0").exists()
    array[100:102] = 0
    assert not (tmp_path / "a/c/0/0").exists()


def test_a_chunk_that_no_longer_gets_smaller(tmp_path):
    array = make(tmp_path / "a")
    items = smooth("i4")
    array[...] = items
    noise = np.random.default_rng(1).integers(-(2**31), 2**31, SHAPE, dtype="i4")
    for first in range(0, SHAPE[0], 16):
        items[first : first + 16] = array[first : first + 16] = noise[first : first + 16]
        np.testing.assert_array_equal(array[...], items)
    assert (tmp_path / "a/c/0/0").stat().st_size == items.nbytes + 16
    items[40:50] = array[40:50] = 1
    np.testing.assert_array_equal(array[...], items)


def test_frames_cut_otherwise(tmp_path):
    items = smooth("i4")
    make(tmp_path / "b", compressors=blosc("zstd", "noshuffle", 3, 512))[...] = items
    array = make(tmp_path / "a")
    array[...] = items
    (tmp_path / "a/c/0/0").write_bytes((tmp_path / "b/c/0/0").read_bytes())
    items[3:5, 7:100] = array[3:5, 7:100] = -9
    np.testing.assert_array_equal(array[...], items)


@pytest.mark.parametrize("damage", ["cut", "touched block", "offset", "size"])
def test_damage(tmp_path, damage):
    array = make(tmp_path / "a")
    array[...] = smooth("i4")
    file = tmp_path / "a/c/0/0"
    data = bytearray(file.read_bytes())
    if damage == "cut":
        del data[-100:]
    elif damage == "touched block":
        at = int.from_bytes(data[16:20], "little")
        data[at : at + 4] = b"\xff\xff\xff\x7f"
    elif damage == "offset":
        data[16 + 4 * 3 : 20 + 4 * 3] = (len(data) + 5).to_bytes(4, "little")
    else:
        data[4:8] = (SHAPE[0] * SHAPE[1] * 4 - 4096).to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(CodecError):
        array[0:2, 3:50] = 1
    assert file.read_bytes() == data
