"""Many selections in one batch: what is fetched and decoded, and what goes wrong."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

import zstore
from zstore._ext.engine.select import plan_basic
from zstore._ext.engine.transfer import Bundle
from zstore.engine.chunks import RegularChunks
from zstore.errors import CodecError, NotFoundError, SelectionError
from zstore.storage.base import PrefixStore, Store
from zstore.storage.fsspec import FsspecStore
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

EDGE = 96
ITEMS = np.arange(EDGE * EDGE, dtype="i4").reshape(EDGE, EDGE)
TILES = [np.s_[y : y + 20, x : x + 20] for y in range(0, EDGE, 8) for x in range(0, EDGE, 8)]
BZ2 = [{"name": "numcodecs.bz2", "configuration": {"level": 1}}]
BLOSC = {
    "name": "blosc",
    "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 256},
}
KINDS = {
    "chunks": {"chunks": (32, 32)},
    "plain": {"chunks": (32, 32), "compressors": None},
    "blosc": {"chunks": (32, 32), "compressors": BLOSC},
    "shards": {"chunks": (8, 8), "shards": (32, 32)},
    "python": {"chunks": (32, 32), "compressors": BZ2},
    "python shards": {"chunks": (8, 8), "shards": (32, 32), "compressors": BZ2},
}


class Counting(PrefixStore):
    """Another store, of which every request is counted; slow, as a store far away is."""

    def __init__(self, store: Store, request_count: int = 8) -> None:
        super().__init__(store, "")
        self.request_count = request_count
        self.in_memory = False
        self.asked: list[str] = []
        self.lock_of_asked = threading.Lock()

    def local_path(self, path: str) -> Path | None:
        return None

    def get_many(self, requests):
        with self.lock_of_asked:
            self.asked += [key for key, _ in requests]
        return super().get_many(requests)


def make(store: Store | str | Path, kind: str) -> zstore.Array:
    array = zstore.create_array(store, "a", shape=ITEMS.shape, dtype=ITEMS.dtype, **KINDS[kind])
    array[...] = ITEMS
    return array


@pytest.fixture(params=["local", "memory", "fsspec", "far"])
def store(request, tmp_path):
    if request.param == "local":
        return LocalStore(tmp_path / "store")
    if request.param == "fsspec":
        return FsspecStore.from_url(f"memory://{uuid4().hex}")
    return MemoryStore() if request.param == "memory" else Counting(MemoryStore())


@pytest.mark.parametrize("kind", KINDS)
def test_overlapping_tiles(store, kind):
    array = make(store, kind)
    for tile, items in zip(TILES, array.read_many(TILES), strict=True):
        np.testing.assert_array_equal(items, ITEMS[tile], strict=True)


@pytest.mark.parametrize("kind", ["chunks", "python"])
def test_a_chunk_is_asked_for_once(kind):
    store = Counting(MemoryStore())
    array = make(store, kind)
    store.asked.clear()
    array.read_many(TILES)
    assert sorted(store.asked) == sorted(f"a/c/{y}/{x}" for y in range(3) for x in range(3))


@pytest.mark.parametrize(("kind", "count"), [("python", 1), ("python shards", 16)])
def test_a_chunk_is_decoded_once(tmp_path, monkeypatch, kind, count):
    array = make(tmp_path if count == 1 else Counting(MemoryStore()), kind)
    decoded = []
    decode = RegularChunks._decode
    monkeypatch.setattr(
        RegularChunks, "_decode", lambda chunks, *given: decoded.append(given[1][1]) or decode(chunks, *given)
    )
    array.read_many(TILES)
    assert sorted(decoded) == sorted(count * [f"a/c/{y}/{x}" for y in range(3) for x in range(3)])


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_chunk_is_named(tmp_path, kind, is_far):
    array = make(Counting(LocalStore(tmp_path)) if is_far else tmp_path, kind)
    path = tmp_path / "a" / "c" / "1" / "2"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CodecError, match="c/1/2"):
        array.read_many(TILES)
    np.testing.assert_array_equal(array.read_many([np.s_[:32, :], np.s_[:, :64]])[1], ITEMS[:, :64])


def test_missing_chunks(store):
    array = zstore.create_array(store, "a", shape=(8, 8), dtype="i2", chunks=(4, 4), fill_value=7)
    array[:4, :4] = 1
    first, second = array.read_many([np.s_[:4, 2:6], np.s_[5]])
    assert first.tolist() == [[1, 1, 7, 7]] * 4
    assert second.tolist() == [7] * 8
    assert (array.read_many([np.s_[:4, 2:4]], missing="error")[0] == 1).all()
    with pytest.raises(NotFoundError, match="c/1/1"):
        array.read_many([np.s_[:4, :4], np.s_[5, 5]], missing="error")
    with pytest.raises(ValueError, match="maybe"):
        array.read_many([], missing="maybe")


def test_what_out_must_be(tmp_path):
    array = make(tmp_path, "chunks")
    with pytest.raises(ValueError, match="1 arrays, expected 2"):
        array.read_many([0, 1], out=[np.empty(EDGE, ITEMS.dtype)])
    with pytest.raises(ValueError, match="expected"):
        array.read_many([0], out=[np.empty(EDGE + 1, ITEMS.dtype)])
    with pytest.raises(SelectionError, match="out of bounds"):
        array.read_many([0, EDGE])
    memory = np.zeros((3, EDGE), ITEMS.dtype)
    array.read_many([0, EDGE - 1], out=memory[::2])
    assert (memory == np.stack([ITEMS[0], np.zeros(EDGE, ITEMS.dtype), ITEMS[-1]])).all()


def test_objects_and_uneven_chunks_and_fields(tmp_path):
    words = zstore.create_array(tmp_path, "words", shape=6, dtype="string", chunks=(4,))
    words[...] = ["a", "bc", "", "def", "g", "hi"]
    assert [list(one) for one in words.read_many([np.s_[:3], np.s_[2:]])] == [
        ["a", "bc", ""],
        ["", "def", "g", "hi"],
    ]
    uneven = zstore.create_array(tmp_path, "uneven", shape=6, dtype="i4", chunks=[[1, 2, 3]])
    uneven[...] = np.arange(6)
    assert [one.tolist() for one in uneven.read_many([np.s_[:4], np.s_[::-2]])] == [[0, 1, 2, 3], [5, 3, 1]]
    pairs = zstore.create_array(tmp_path, "pairs", shape=6, dtype=[("r", "u1"), ("g", "<f4")], chunks=(4,))
    pairs["r"] = np.arange(6)
    got = pairs.read_many(["r", ("r", 3), np.s_[4:]])
    assert got[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert got[1] == 3
    assert got[2].tolist() == [(4, 0.0), (5, 0.0)]


def test_no_dimensions_and_no_items(tmp_path):
    point = zstore.create_array(tmp_path, "point", shape=(), dtype="i4")
    point[...] = 5
    first, second = point.read_many([(), ...])
    assert isinstance(first, np.int32)
    assert (first, second.shape, second) == (5, (), 5)
    nothing = zstore.create_array(tmp_path, "nothing", shape=(0, 3), dtype="i4", chunks=(1, 1))
    assert [one.shape for one in nothing.read_many([..., np.s_[:, 1]])] == [(0, 3), (0,)]


def test_a_large_grid_takes_few_numbers(tmp_path):
    array = zstore.create_array(tmp_path, "a", shape=(1 << 40, 1 << 40), dtype="u1", chunks=(1, 4))
    array[1 << 39, 1 << 39] = 9
    with pytest.raises(OverflowError, match="numbered"):
        Bundle([plan_basic(array._chunks.layout, at) for at in [(0, 0), ((1 << 40) - 1, (1 << 40) - 1)]])
    got = array.read_many([(0, 0), (1 << 39, 1 << 39), ((1 << 40) - 1, (1 << 40) - 1)])
    assert got == [0, 9, 0]


def test_reads_go_on_while_the_array_grows(tmp_path):
    array = zstore.create_array(tmp_path, "a", shape=64, dtype="i4", chunks=(8,))
    array[...] = np.arange(64)
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            array.resize(64 + (len(array) - 63) % 100)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(30):
            for begin, items in enumerate(array.read_many([np.s_[k : k + 9] for k in range(50)])):
                assert items.tolist() == list(range(begin, begin + 9))
    finally:
        stop.set()
        thread.join()
