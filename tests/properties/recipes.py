"""Arrays of every kind that zstore makes, as hypothesis strategies, and how to make one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any
from uuid import uuid4

import numpy as np
from hypothesis import strategies as st

import zstore
from zstore.nodes.create import ArrayRequest
from zstore.storage.base import Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]

# Codecs of one kind that turn bytes into bytes, by format; the ones marked * exist in Python only.
BYTES_CODECS: dict[int, list[list[Any]]] = {
    3: [
        [],
        ["zstd"],
        [{"name": "zstd", "configuration": {"level": 1, "checksum": True}}],
        ["gzip"],
        ["crc32c"],
        [
            {
                "name": "blosc",
                "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
            }
        ],
        [
            {
                "name": "blosc",
                "configuration": {"cname": "zstd", "clevel": 3, "shuffle": "bitshuffle", "blocksize": 256},
            }
        ],
        [
            {
                "name": "blosc",
                "configuration": {"cname": "zlib", "clevel": 1, "shuffle": "noshuffle", "blocksize": 0},
            }
        ],
        ["zstd", "crc32c"],
        ["crc32c", "gzip"],
        [{"name": "numcodecs.bz2", "configuration": {"level": 1}}],  # *
        [{"name": "numcodecs.lzma", "configuration": {"preset": 0}}, "crc32c"],  # *
        [{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}],
    ],
    2: [
        [],
        [{"id": "zstd", "level": 1}],
        [{"id": "gzip", "level": 1}],
        [{"id": "zlib", "level": 1}],
        [{"id": "lz4", "acceleration": 1}],
        [{"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}],
        [{"id": "blosc", "cname": "blosclz", "clevel": 9, "shuffle": 2, "blocksize": 0}],
        [{"id": "bz2", "level": 1}],  # *
        [{"id": "lzma", "preset": 0}],  # *
    ],
}


@dataclass(frozen=True)
class Recipe:
    """What to make, in the words of `create_array`; `stored` names the kind of store."""

    stored: str
    shape: tuple[int, ...]
    dtype: str
    fill_value: Any
    options: dict[str, Any]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype in memory."""
        stored = np.dtype(self.dtype)
        return stored if self.options.get("zarr_format") == 2 else stored.newbyteorder("=")

    @property
    def fill(self) -> np.ndarray[Any, Any]:
        """The fill value as a 0-d array."""
        return np.zeros((), self.numpy) if self.fill_value is None else np.array(self.fill_value, self.numpy)

    def make_store(self, directory: Any) -> Store:
        """A new store of that kind."""
        if self.stored == "memory":
            return MemoryStore()
        if self.stored == "local":
            return LocalStore(directory / "store")
        return fsspec_memory()

    def make(self, directory: Any) -> zstore.Array:
        """A new array of that kind."""
        return zstore.create_array(
            self.make_store(directory),
            "a",
            shape=self.shape,
            dtype=self.dtype,
            fill_value=self.fill_value,
            **self.options,
        )


def fsspec_memory() -> Store:
    """fsspec's memory file system, below a place of its own."""
    from zstore.storage.fsspec import FsspecStore

    return FsspecStore.from_url(f"memory://{uuid4().hex}")


def shapes(max_ndim: int = 5, max_size: int = 400) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes from 0-d on, now and then with a dimension of no length."""
    length = st.one_of(
        st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.just(0), st.integers(1, 40)
    )
    return st.lists(length, max_size=max_ndim).map(tuple).filter(lambda shape: prod(shape) <= max_size)


def fill_values(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    """Fill values that something could get wrong."""
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind == "f":
        return st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5])
    if dtype.kind == "c":
        return st.sampled_from(
            [0j, complex(-0.0, 0.0), complex(float("nan"), -1.5), complex(0, float("inf"))]
        )
    info = np.iinfo(dtype)
    return st.sampled_from([0, 1, int(info.min), int(info.max)])


@st.composite
def recipes(draw: st.DrawFn, max_ndim: int = 5) -> Recipe:
    """Any array."""
    zarr_format = draw(st.sampled_from([3, 3, 2]))
    shape = draw(shapes(max_ndim))
    kind = draw(st.sampled_from(DTYPES))
    order = draw(st.sampled_from("<>"))
    dtype = np.dtype(order + kind)
    inner = tuple(draw(st.integers(1, max(1, n + 2))) for n in shape)
    options: dict[str, Any] = {"zarr_format": zarr_format}
    fill_value = draw(fill_values(dtype))
    bytes_codecs = draw(st.sampled_from(BYTES_CODECS[zarr_format]))
    if zarr_format == 2:
        options["order"] = draw(st.sampled_from("CF"))
        options["chunk_key_encoding"] = ("v2", draw(st.sampled_from("./")))
        options["chunks"] = inner
        options["compressors"] = bytes_codecs
        if dtype.kind in "iu" and draw(st.integers(0, 4)) == 0:
            options["filters"] = [{"id": "delta", "dtype": dtype.str}]
        if draw(st.integers(0, 5)) == 0:
            fill_value = None
    else:
        options["chunk_key_encoding"] = draw(
            st.sampled_from([("default", "/"), ("default", "."), ("v2", "."), ("v2", "/")])
        )
        chain = _array_codecs(draw, len(shape), dtype)
        endian = {"endian": "little" if order == "<" else "big"} if dtype.itemsize > 1 else {}
        chain += [{"name": "bytes", "configuration": endian}]
        chain += [{"name": codec} if isinstance(codec, str) else codec for codec in bytes_codecs]
        chunk = inner
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 1, 2, 3]))):
            serializer, chunk = _shard(draw, chunk, chain, dtype)
            chain = [serializer]
            if draw(st.integers(0, 7)) == 0:
                chain.append({"name": "crc32c"})
            if draw(st.integers(0, 7)) == 0:
                chain.insert(0, {"name": "transpose", "configuration": {"order": list(range(len(shape)))}})
        serializers = [c["name"] in ("bytes", "sharding_indexed") for c in chain]
        at = serializers.index(True)
        options["filters"] = chain[:at] or None
        options["serializer"] = _filled(chain[at], dtype)
        options["compressors"] = [_filled(codec, dtype) for codec in chain[at + 1 :]] or None
        options["chunks"] = chunk
    stored = draw(st.sampled_from(["memory", "local", "local", "local", "fsspec"]))
    return Recipe(stored, shape, dtype.str, fill_value, options)


def _array_codecs(draw: st.DrawFn, ndim: int, dtype: np.dtype[Any]) -> list[dict[str, Any]]:
    chain: list[dict[str, Any]] = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        order = draw(st.permutations(range(ndim)))
        chain.append({"name": "transpose", "configuration": {"order": list(order)}})
    if dtype.kind in "iu" and draw(st.integers(0, 6)) == 0:
        chain.append({"name": "numcodecs.delta", "configuration": {"dtype": dtype.newbyteorder("=").str}})
    return chain


def _shard(
    draw: st.DrawFn, chunk: tuple[int, ...], chain: list[dict[str, Any]], dtype: np.dtype[Any]
) -> tuple[dict[str, Any], tuple[int, ...]]:
    counts = tuple(draw(st.integers(1, 3)) for _ in chunk)
    index: list[dict[str, Any]] = [
        {"name": "bytes", "configuration": {"endian": draw(st.sampled_from(["little", "little", "big"]))}}
    ]
    if draw(st.booleans()):
        index.append({"name": "crc32c"})
    configuration = {
        "chunk_shape": list(chunk),
        "codecs": [_filled(codec, dtype) for codec in chain],
        "index_codecs": index,
        "index_location": draw(st.sampled_from(["end", "start"])),
    }
    shard = {"name": "sharding_indexed", "configuration": configuration}
    return shard, tuple(n * c for n, c in zip(chunk, counts, strict=True))


def _filled(codec: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """A codec with the options that `create_array` would fill in at the outermost level."""
    if codec["name"] in ("bytes", "sharding_indexed", "transpose", "crc32c"):
        return codec
    model = ArrayRequest(
        shape=(1,), dtype=dtype, compressors=[codec if codec.get("configuration") else codec["name"]]
    ).model()
    made = model.codecs[-1]
    return {"name": made.name, "configuration": dict(made.configuration)}


def random_items(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Items of any bit pattern: NaNs of every payload, infinities, subnormals."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    count = prod(shape)
    raw = rng.integers(0, 256, count * dtype.itemsize, np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape).copy()


def assert_same(got: Any, expected: Any) -> None:
    """Equal in shape, dtype and every bit."""
    assert np.shape(got) == np.shape(expected)
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    if got.tobytes() != expected.tobytes():
        np.testing.assert_array_equal(got, expected)
        raise AssertionError(f"equal values, other bits: {got!r} {expected!r}")
