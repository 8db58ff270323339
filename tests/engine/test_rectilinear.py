"""Arrays on rectilinear grids, held against numpy."""

from __future__ import annotations

import random

import numpy as np
import pytest

import zstore
from zstore.engine.chunks import RectilinearChunks, RegularChunks, open_chunks
from zstore.errors import CodecError, MetadataError, NotFoundError, SelectionError
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore


class Distant(MemoryStore):
    """A store with many requests under way."""

    request_count = 8
    in_memory = False


def edges(draw: random.Random, length: int) -> list[int]:
    found: list[int] = []
    while sum(found) < length:
        found.append(draw.randint(1, max(1, length // 2)))
    return found


def bounds(draw: random.Random, length: int) -> slice:
    ends = [draw.choice([None, draw.randint(-length - 2, length + 2)]) for _ in range(2)]
    return slice(*ends, draw.choice([None, 1, 2, 3, -1, -2]))


def selection(draw: random.Random, shape: tuple[int, ...]) -> tuple:
    entries: list = []
    for length in shape:
        kind = draw.random()
        if kind < 0.25:
            entries.append(draw.randrange(-length, length))
        elif kind < 0.75 or any(isinstance(entry, list) for entry in entries):
            entries.append(bounds(draw, length))
        else:
            entries.append(draw.sample(range(length), draw.randint(0, length)))
    return tuple(entries)


@pytest.mark.parametrize("seed", range(40))
def test_every_selection_reads_and_writes_as_numpys(seed, tmp_path):
    draw, values = random.Random(seed), np.random.default_rng(seed)
    shape = tuple(draw.randint(1, 12) for _ in range(draw.randint(1, 3)))
    chunks: list = [draw.choice([edges(draw, n), edges(draw, n), draw.randint(1, n)]) for n in shape]
    chunks[0] = edges(draw, shape[0])
    store = [MemoryStore(), LocalStore(tmp_path), Distant()][seed % 3]
    options = {"fill_value": draw.choice([0, 7]), "order": draw.choice("CF")}
    array = zstore.create_array(store, shape=shape, chunks=chunks, dtype="i4", **options)
    items = np.full(shape, options["fill_value"], "i4")
    for _ in range(6):
        where = selection(draw, shape)
        array[where] = items[where] = values.integers(0, 99, items[where].shape)
        np.testing.assert_array_equal(array[...], items)
        where = selection(draw, shape)
        np.testing.assert_array_equal(array[where], items[where], strict=True)
    mask = values.random(shape) < 0.3
    array[mask] = items[mask] = 3
    np.testing.assert_array_equal(array[mask], items[mask])
    points = tuple(values.integers(-n, n, 5) for n in shape)
    np.testing.assert_array_equal(array.vindex[points], items[points])
    np.testing.assert_array_equal(array.oindex[points], items[np.ix_(*points)])
    np.testing.assert_array_equal(array[None, ..., None], items[None, ..., None], strict=True)
    out = np.empty(shape[::-1], "i4").T
    array.read(out=out)
    np.testing.assert_array_equal(zstore.open_array(store)[...], out)


@pytest.mark.parametrize("seed", range(20))
def test_resizing_and_appending(seed):
    draw = random.Random(seed)
    shape = tuple(draw.randint(1, 10) for _ in range(2))
    store = MemoryStore()
    array = zstore.create_array(
        store, shape=shape, chunks=[edges(draw, n) for n in shape], dtype="i4", fill_value=-1
    )
    items = np.random.default_rng(seed).integers(0, 99, shape)
    array[...] = items
    for _ in range(3):
        new = tuple(draw.randint(0, 14) for _ in shape)
        grown = np.full([max(a, b) for a, b in zip(new, items.shape, strict=True)], -1)
        grown[: items.shape[0], : items.shape[1]] = items
        items = grown[: new[0], : new[1]]
        array.resize(new)
        np.testing.assert_array_equal(array[...], items)
    more = np.arange(3 * items.shape[1]).reshape(3, -1)
    array.append(more)
    items = np.concatenate([items, more])
    np.testing.assert_array_equal(zstore.open_array(store)[...], items)


def test_what_the_chunks_are():
    array = zstore.create_array(MemoryStore(), shape=(6, 5), chunks=[[1, 2, 3], 2], dtype="i4")
    assert array.chunks == (3, 2)
    assert array.shards is None
    assert array.read_chunk_sizes == array.write_chunk_sizes == ((1, 2, 3), (2, 2, 1))
    array[...] = np.arange(30).reshape(6, 5)
    np.testing.assert_array_equal(array.blocks[1:, 2], np.arange(30).reshape(6, 5)[1:, 4:])
    sharded = zstore.create_array(MemoryStore(), shape=(12,), chunks=(2,), shards=[[4, 8]], dtype="i4")
    assert (sharded.chunks, sharded.shards) == ((2,), (8,))
    assert (sharded.read_chunk_sizes, sharded.write_chunk_sizes) == (((2,) * 6,), ((4, 8),))
    sharded[3:] = np.arange(9)
    assert sharded[...].tolist() == [0, 0, 0, *range(9)]


def test_chunks_are_stored_as_large_as_the_grid_says():
    store = MemoryStore()
    array = zstore.create_array(
        store, shape=(6,), chunks=[[1, 2, 9]], dtype="u1", compressors=None, fill_value=5
    )
    array[...] = range(6)
    stored = [bytes(store.get(f"c/{place}")) for place in range(3)]
    assert stored == [b"\0", b"\1\2", b"\3\4\5" + b"\5" * 6]
    array[1:3] = 5
    assert store.get("c/1") is None


def test_even_grids_take_the_kernels_way():
    store = MemoryStore()
    array = zstore.create_array(store, shape=(7, 6), chunks=[[[4, 2]], 3], dtype="i4")
    assert isinstance(open_chunks(store, "", array.model), RegularChunks)
    array[...] = items = np.arange(42).reshape(7, 6)
    np.testing.assert_array_equal(array[::-2, 1:], items[::-2, 1:])
    array.append(items[:1])
    np.testing.assert_array_equal(array[...], np.concatenate([items, items[:1]]))
    array.append(items[:3])
    assert array.model.grid.render() == [[[4, 2], 3], 3]
    assert isinstance(open_chunks(store, "", array.model), RectilinearChunks)
    np.testing.assert_array_equal(array[8:], items[:3])


def test_strings_and_fields():
    text = zstore.create_array(MemoryStore(), shape=(12,), chunks=[[4, 8]], dtype=str)
    text[3:6] = ["a", "bb", "c"]
    assert text[...].tolist() == ["", "", "", "a", "bb", "c", *[""] * 6]
    points = zstore.create_array(MemoryStore(), shape=(5,), chunks=[[2, 3]], dtype=[("x", "u1"), ("y", "f4")])
    points[...] = (1, 2.5)
    points["x"] = np.arange(5)
    assert points[...].tolist() == [(k, 2.5) for k in range(5)]
    assert points["y"].tolist() == [2.5] * 5


def test_damage_and_gaps_name_the_chunk():
    store = MemoryStore()
    array = zstore.create_array(store, "a", shape=(6,), chunks=[[1, 2, 3]], dtype="i4")
    array[:3] = 1
    with pytest.raises(NotFoundError, match="a/c/2"):
        array.read(missing="error")
    store.put("a/c/1", b"no zstd")
    with pytest.raises(CodecError, match="a/c/1"):
        array[...]
    with pytest.raises(CodecError, match="a/c/1"):
        array[1] = 5
    array[1:3] = 7
    assert array[...].tolist() == [1, 7, 7, 0, 0, 0]


@pytest.mark.parametrize("wrong", [6, (0, 0), slice("a"), [9], np.array([0.5]), (..., ...)])
def test_selections_that_do_not_fit(wrong):
    array = zstore.create_array(MemoryStore(), shape=(6,), chunks=[[1, 5]], dtype="i4")
    with pytest.raises((SelectionError, TypeError)):
        array[wrong]


def test_shards_that_their_chunks_do_not_divide_are_refused_before_anything_is_written():
    store = MemoryStore()
    sharding = {
        "chunk_shape": [2],
        "codecs": [{"name": "bytes"}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    serializer = {"name": "sharding_indexed", "configuration": sharding}
    with pytest.raises(MetadataError, match="cannot cut shards"):
        zstore.create_array(
            store, shape=(7,), chunks=[[4, 3]], dtype="u1", serializer=serializer, compressors=None
        )
    assert list(store.list()) == []
