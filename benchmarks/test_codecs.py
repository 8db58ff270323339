"""How fast are our codecs beside numcodecs' on the same bytes?

Each group is one codec, one direction and one chunk size; compare the two rows in it. On a busy machine read
ratios from several runs.
"""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from zstore._ext.codecs import native

PAIRS = {
    "blosc lz4 5 shuffle": (native.blosc("lz4", 5, 1, 4), numcodecs.Blosc("lz4", 5, 1)),
    "blosc zstd 3 bitshuffle": (native.blosc("zstd", 3, 2, 4), numcodecs.Blosc("zstd", 3, 2)),
    "zstd 3": (native.zstd(3), numcodecs.Zstd(3)),
    "gzip 5": (native.gzip(5), numcodecs.GZip(5)),
    "zlib 1": (native.zlib(1), numcodecs.Zlib(1)),
    "lz4": (native.lz4(), numcodecs.LZ4()),
    "crc32c": (native.crc32c(), numcodecs.CRC32C()),
}
SIZES = {"16 KiB": 1 << 14, "1 MiB": 1 << 20}


def temperatures(size: int) -> np.ndarray:
    """Something like a field of temperatures to two decimals."""
    steps = np.random.default_rng(0).normal(size=size // 4)
    return (np.cumsum(steps) * 0.1 + 280).round(2).astype("<f4")


@pytest.fixture(autouse=True)
def one_thread():
    numcodecs.blosc.use_threads = False
    yield
    numcodecs.blosc.use_threads = None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("who", ["zstore", "numcodecs"])
@pytest.mark.parametrize("name", PAIRS)
def test_encode(benchmark, name, who, size):
    capsule, peer = PAIRS[name]
    chunk = temperatures(SIZES[size])
    benchmark.group = f"encode {name}, {size}"
    encoded = benchmark(native.encode, capsule, chunk) if who == "zstore" else benchmark(peer.encode, chunk)
    benchmark.extra_info["encoded_size"] = memoryview(encoded).nbytes


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("who", ["zstore", "numcodecs"])
@pytest.mark.parametrize("name", PAIRS)
def test_decode(benchmark, name, who, size):
    capsule, peer = PAIRS[name]
    chunk = temperatures(SIZES[size])
    benchmark.group = f"decode {name}, {size}"
    encoded = bytes(peer.encode(chunk))
    if who == "zstore":
        decoded = benchmark(native.decode, capsule, encoded, chunk.nbytes)
    else:
        decoded = benchmark(peer.decode, encoded)
    assert bytes(decoded) == chunk.tobytes()
