"""Reads and writes of stores with latency: how many requests, what when a shard is replaced meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zstore
from zstore.base.byterange import ByteRange, choose_gap, merge_ranges
from zstore.base.limits import set_limits
from zstore.engine import fetch
from zstore.engine.fetch import Shard, ShardIndexes
from zstore.errors import CodecError, StoreError
from zstore.storage.base import Part, Parts, PrefixStore, Request, Store, Values
from zstore.storage.memory import MemoryStore


class FarStore(MemoryStore):
    """A memory store that counts requests, takes its time, and can change values behind a reader's back."""

    in_memory = False
    request_count = 32
    gives_each = False

    def __init__(self, *, has_versions: bool = True) -> None:
        super().__init__()
        self.has_versions = has_versions
        self.requests: list[tuple[str, str, ByteRange | None]] = []
        self.before_request: Any = None
        self.delay = 0.0
        self.busy = self.most_busy = self.rounds = 0
        self._guard = threading.Lock()

    def note(self, verb: str, key: str, byte_range: ByteRange | None = None) -> None:
        with self._guard:
            self.requests.append((verb, key, byte_range))
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        time.sleep(self.delay)
        with self._guard:
            self.busy -= 1

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        self.note("get", key, byte_range)
        return super().get(key, byte_range)

    def get_many(self, requests: Sequence[Request]) -> Values:
        return [None if part is None else part.data for part in self.get_parts(requests)]

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        parts: Parts = []
        self.rounds += 1
        for key, byte_range in requests:
            if self.before_request is not None:
                self.before_request(key, byte_range)
            value = self._values.get(key)
            self.note("get", key, byte_range)
            begin, end = (byte_range or ByteRange(0)).resolve(len(value or b""))
            version = f"{hash(value)}" if self.has_versions else None
            parts.append(None if value is None else Part(value[begin:end], len(value), version))
        return parts

    def get_each(self, requests: Sequence[Request], value_size: int, share: int) -> Any:
        if not self.gives_each:
            return None
        return ([(at, self.get_parts([requests[at]])[0])] for at in reversed(range(len(requests))))

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.note("put", key)
        super().put(key, value)

    def delete(self, key: str) -> None:
        self.note("delete", key)
        super().delete(key)

    def size(self, key: str) -> int | None:
        self.note("size", key)
        return super().size(key)

    def as_read_only(self) -> Any:
        return PrefixStore(self, "", read_only=True)

    def take_rounds(self) -> int:
        """How many times several values were asked for at once since the last time."""
        taken, self.rounds = self.rounds, 0
        return taken

    def take(self) -> list[str]:
        """What was asked for since the last time, "verb key"."""
        taken = [f"{verb} {key}" for verb, key, _ in self.requests]
        self.requests.clear()
        return taken


@pytest.fixture(params=["in portions", "as they come"])
def coming(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner chunks come in either way."""
    if request.param == "as they come":
        monkeypatch.setattr(FarStore, "gives_each", True)
        monkeypatch.setattr(fetch, "COMING_SIZES", (0, 1 << 30))


def shards(store: Store, **options: Any) -> zstore.Array:
    """16 × 16 in shards of 8 × 8, of chunks of 2 × 2; raw items look right wherever they are from."""
    settings = {"chunks": (2, 2), "shards": (8, 8), "compressors": None, **options}
    array = zstore.create_array(store, "a", shape=(16, 16), dtype="u2", **settings)
    array[...] = np.arange(1, 257).reshape(16, 16)
    return array


@pytest.mark.parametrize(("gives_each", "rounds"), [(True, 64), (False, 8)])
def test_more_chunks_than_a_window_has_come_one_by_one_where_they_can(
    monkeypatch: pytest.MonkeyPatch, gives_each: bool, rounds: int
) -> None:
    store, values = FarStore(), np.arange(1, 257, dtype="u2").reshape(16, 16)
    array = zstore.create_array(store, "a", data=values, chunks=(2, 2), fill_value=9)
    store.delete("a/c/0/3")
    monkeypatch.setattr(FarStore, "gives_each", gives_each)
    monkeypatch.setattr(fetch, "WINDOW_COUNT", 8)
    values[:2, 6:8] = 9
    store.take_rounds()
    np.testing.assert_array_equal(array[:2], values[:2])
    assert store.take_rounds() == 1  # 8 chunks are one window
    np.testing.assert_array_equal(array[:], values)
    assert store.take_rounds() == rounds


def again(array: zstore.Array) -> zstore.Array:
    return zstore.open_array(array.store, array.path, mode="r")


def test_opening_asks_for_v3_and_then_for_what_else_there_may_be() -> None:
    store = FarStore()
    shards(store)
    for zarr_format in (3, None):
        store.take()
        zstore.open_array(store, "a", mode="r", zarr_format=zarr_format)
        assert store.take() == ["get a/zarr.json"]
    store = FarStore()
    zstore.create_array(store, "b", shape=4, dtype="u1", zarr_format=2)
    store.take()
    zstore.open_array(store, "b", mode="r")
    assert store.take() == [
        "get b/zarr.json",
        *(f"get b/{name}" for name in (".zarray", ".zattrs", ".zgroup", ".zmetadata")),
    ]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_members_by_name_and_all_members_are_asked_for_at_once(zarr_format: Any) -> None:
    store = FarStore()
    root = zstore.create_group(store, zarr_format=zarr_format)
    names = [f"g{i}/a{k}" for i in range(3) for k in range(4)]
    for name in names:
        root.create_array(name, shape=4, dtype="u1")
    store.take_rounds()
    found = root.open_many([*names, "g1", names[0]])
    assert [member.path for member in found] == [*names, "g1", names[0]]
    assert store.take_rounds() == 1
    with pytest.raises(KeyError, match="'not'"):
        root.open_many(["g0", "not"])
    with pytest.raises(TypeError, match="several names"):
        root.open_many("g0")
    store.take_rounds()
    assert [path for path, _ in root.members(None)] == sorted([*names, "g0", "g1", "g2"])
    assert store.take_rounds() == 2  # of the groups, and of all that is in them
    assert str(root.tree()).count("a3") == 3
    assert store.take_rounds() == 2
    assert [member.path for member in root.consolidate().open_many(names)] == names


def test_consolidated_metadata_is_one_request() -> None:
    store = FarStore()
    zstore.create_group(store)
    shards(store)
    zstore.consolidate(store)
    store.take()
    group = zstore.open_group(store, mode="r", zarr_format=3)
    group["a"]
    assert store.take() == ["get zarr.json"]


def test_an_inner_chunk_is_an_index_and_a_range_then_a_range() -> None:
    store = FarStore()
    array = again(shards(store))
    store.take()
    assert array[0, 0] == 1
    size = 16 * 16 + 4
    assert store.requests == [
        ("get", "a/c/0/0", ByteRange(-size)),
        ("get", "a/c/0/0", ByteRange(0, 8)),
    ]
    store.take()
    assert array[1, 3] == 20
    assert store.requests == [("get", "a/c/0/0", ByteRange(8, 8))]


def test_an_index_at_the_start_is_asked_for_there() -> None:
    store = FarStore()
    serializer = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [2, 2],
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "start",
        },
    }
    array = again(shards(store, chunks=(8, 8), shards=None, serializer=serializer))
    store.take()
    assert array[0, 0] == 1
    assert store.requests[0] == ("get", "a/c/0/0", ByteRange(0, 260))
    assert len(store.requests) == 2


def test_a_window_over_four_shards_is_two_rounds() -> None:
    store = FarStore()
    array = again(shards(store))
    store.take()
    np.testing.assert_array_equal(array[7:9, 7:9], np.arange(1, 257).reshape(16, 16)[7:9, 7:9])
    keys = ["get a/c/0/0", "get a/c/0/1", "get a/c/1/0", "get a/c/1/1"]
    assert store.take() == keys * 2
    array[7:9, 7:9]
    assert store.take() == keys


def test_most_of_a_shard_is_one_request() -> None:
    store = FarStore()
    array = again(shards(store))
    store.take()
    np.testing.assert_array_equal(array[:8, :8], np.arange(1, 257).reshape(16, 16)[:8, :8])
    assert store.requests == [("get", "a/c/0/0", None)]
    store.take()
    array[1:8, 1:8]
    assert store.requests == [("get", "a/c/0/0", None)]
    store.take()
    assert array[...].sum() == 256 * 257 // 2
    assert sorted(store.take()) == ["get a/c/0/0", "get a/c/0/1", "get a/c/1/0", "get a/c/1/1"]
    np.testing.assert_array_equal(array[:, 6:], np.arange(1, 257).reshape(16, 16)[:, 6:])


@pytest.mark.usefixtures("coming")
@pytest.mark.parametrize("compressors", [None, "zstd", {"id": "lzma"}])
@pytest.mark.parametrize("has_versions", [True, False])
def test_whatever_is_selected_is_what_was_written(
    monkeypatch: pytest.MonkeyPatch, compressors: Any, has_versions: bool
) -> None:
    """By windows so small that every one of them ends amid the plan."""
    monkeypatch.setattr(fetch, "WINDOW_COUNT", 3)
    monkeypatch.setattr(fetch, "WINDOW_SIZE", 150)
    store = FarStore(has_versions=has_versions)
    if isinstance(compressors, dict):
        options: dict[str, Any] = {"compressors": [{"name": "numcodecs.lzma", "configuration": {}}]}
    else:
        options = {"compressors": compressors}
    array = shards(store, **options)
    expected = np.arange(1, 257, dtype="u2").reshape(16, 16)
    random = np.random.default_rng(0)
    for _ in range(40):
        a, b, c, d = random.integers(0, 17, 4)
        window = slice(min(a, b), max(a, b)), slice(min(c, d), max(c, d), random.integers(1, 4))
        np.testing.assert_array_equal(array[window], expected[window])
        rows, columns = random.integers(0, 16, (2, random.integers(1, 9)))
        np.testing.assert_array_equal(array.vindex[rows, columns], expected[rows, columns])
        np.testing.assert_array_equal(array.oindex[rows, columns], expected[np.ix_(rows, columns)])


def test_a_hundred_chunks_are_a_hundred_requests() -> None:
    store = FarStore()
    array = zstore.create_array(store, "a", shape=1000, chunks=10, dtype="u2", compressors=None)
    store.delay = 0.1
    store.take()
    array[...] = np.arange(1, 1001)
    assert sorted(store.take()) == sorted(f"put a/c/{n}" for n in range(100))
    assert store.most_busy == 32
    store.delay = 0
    reader = again(array)
    store.take()
    np.testing.assert_array_equal(reader[...], np.arange(1, 1001))
    assert sorted(store.take()) == sorted(f"get a/c/{n}" for n in range(100))


def test_a_partial_write_is_one_get_and_one_put() -> None:
    store = FarStore()
    array = shards(store)
    store.take()
    array[:8, :8] = 5
    assert store.take() == ["put a/c/0/0"]
    array[3, 3] = 6
    assert store.take() == ["get a/c/0/0", "put a/c/0/0"]
    assert array[3, 3] == 6


def test_an_error_stops_a_write_and_names_its_key() -> None:
    class Full(FarStore):
        def put(self, key: str, value: Any) -> None:
            if key == "a/c/7":
                raise StoreError("no room", path=self.url, key=key)
            super().put(key, value)

    array = zstore.create_array(Full(), "a", shape=1000, chunks=10, dtype="u2")
    with pytest.raises(StoreError, match="no room") as caught:
        array[...] = 1
    assert caught.value.key == "a/c/7"


@pytest.mark.usefixtures("coming")
class TestReplacedShards:
    """Two shards of the same size and with the same chunks, in another order."""

    def swapped(self, value: bytes) -> bytes:
        index = np.frombuffer(value[-260:-4], "<u8").reshape(16, 2).copy()
        index[[0, 1]] = index[[1, 0]]
        from numcodecs import CRC32C

        data = value[8:16] + value[:8] + value[16:-260]
        return data + bytes(CRC32C(location="end").encode(index.tobytes()))

    def test_by_others_since_the_index_was_cached(self) -> None:
        store = FarStore()
        array = again(shards(store))
        assert array[0, 0] == 1
        store._values["a/c/0/0"] = self.swapped(store._values["a/c/0/0"])
        assert array[0, 0] == 1
        assert array[0, 2] == 3

    def test_between_index_and_chunks(self) -> None:
        store = FarStore()
        array = again(shards(store))
        count = 0

        def replace(key: str, byte_range: ByteRange | None) -> None:
            nonlocal count
            if byte_range is not None and byte_range.start >= 0 and count == 0:
                count += 1
                store._values[key] = self.swapped(store._values[key])

        store.before_request = replace
        assert array[0, 0] == 1
        assert count == 1

    def test_again_and_again_is_read_whole(self) -> None:
        store = FarStore()
        array = again(shards(store))

        def replace(key: str, byte_range: ByteRange | None) -> None:
            if byte_range is not None and byte_range.start >= 0:
                store._values[key] = self.swapped(store._values[key])

        store.before_request = replace
        assert array[0, 0] == 1 and array[0, 2] == 3
        assert (array[:3, :3] == again(shards(FarStore()))[:3, :3]).all()
        store.requests.clear()
        assert asyncio.run(array.read_async((0, 2))) == 3
        assert store.requests[-1][1:] == ("a/c/0/0", None)

    def test_by_a_shorter_one_without_versions(self) -> None:
        store = FarStore(has_versions=False)
        array = again(shards(store, compressors="zstd"))
        short = FarStore()
        shards(short, compressors="zstd")[...] = 7
        is_first = True

        def replace(key: str, byte_range: ByteRange | None) -> None:
            nonlocal is_first
            if byte_range is not None and byte_range.start > 100 and is_first:
                is_first = False
                store._values[key] = short._values[key]

        store.before_request = replace
        assert array[7, 7] == 7
        assert not is_first

    def test_what_was_missing_is_asked_for_again(self) -> None:
        store = FarStore()
        array = zstore.create_array(store, "a", shape=(8, 8), dtype="u2", chunks=(2, 2), shards=(8, 8))
        array[0, 0] = 1
        reader = again(array)
        assert reader[0, 0] == 1
        assert reader[7, 7] == 0
        array[7, 7] = 5
        assert reader[7, 7] == 5

    def test_own_writes_are_seen(self) -> None:
        array = shards(FarStore())
        assert array[0, 0] == 1
        array[0, 0] = 9
        assert array[0, 0] == 9


@pytest.mark.usefixtures("coming")
def test_a_damaged_chunk_is_an_error_after_another_try() -> None:
    store = FarStore(has_versions=False)
    array = again(shards(store, compressors="zstd"))
    value = bytearray(store._values["a/c/0/0"])
    value[:8] = bytes(8)
    store._values["a/c/0/0"] = bytes(value)
    store.take()
    with pytest.raises(CodecError, match="zstd"):
        array[0, 0]
    assert [verb for verb, _, _ in store.requests] == ["get"] * 4


def test_indexes_are_kept_within_bounds() -> None:
    known = ShardIndexes(limit_size=2000)
    for n in range(10):
        known.keep(f"{n}", Shard(100, "v"))
    assert [key for key in map(str, range(10)) if known.get(key)] == ["7", "8", "9"]
    known.drop("8")
    known.keep("10", Shard(100, "v"))
    assert known.get("7") is not None
    for _ in range(9):  # once more the same takes no more room
        known.keep("7", Shard(100, "v"))
    assert known.get("9") is not None and known.get("10") is not None
    known.keep("none", Shard(100, None))
    assert known.get("none") is None


def test_reads_from_many_threads_at_once() -> None:
    store = FarStore()
    array = again(shards(store))
    store.delay = 0.001
    wrong: list[Any] = []

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(20):
            a, b = sorted(random.integers(0, 17, 2))
            if not np.array_equal(array[a:b, a:b], np.arange(1, 257).reshape(16, 16)[a:b, a:b]):
                wrong.append((a, b))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_what_lies_between_is_fetched_only_where_that_spares_a_round() -> None:
    near = [(0, 100), (4000, 100), (10_000, 100)]
    assert choose_gap([near]) == 4096
    assert [(m.start, m.size) for m in merge_ranges(near)] == [(0, 4100), (10_000, 100)]
    # A thousand requests would be many rounds; the narrowest gaps go first, none that is wider than 1 MiB.
    many = [(number * 5_000 + number**2, 100) for number in range(1000)]
    gap = choose_gap([many])
    assert len(merge_ranges(many, gap_size=gap)) == 256
    assert len(merge_ranges(many, gap_size=gap - 1)) == 257
    far = [(number << 22, 100) for number in range(1000)]
    assert len(merge_ranges(far, gap_size=choose_gap([far]))) == 1000
    assert choose_gap([[(0, 10), (5, 100), (20, 10)]] * 300) == 4096
    # Where far more lies between than is wanted: 16 MiB of that, or as much as is wanted, and no more.
    for size in (1 << 10, 60 << 10):
        wide = [(number * 500_000 + number**2, size) for number in range(1000)]
        merged = merge_ranges(wide, gap_size=choose_gap([wide]))
        vain = sum(one.size for one in merged) - 1000 * size
        assert 0.9 < vain / max(16 << 20, 1000 * size) <= 1
    set_limits(gap_size=1 << 20)
    try:
        assert choose_gap([near]) == 1 << 20
    finally:
        set_limits(gap_size=None)


@given(st.lists(st.tuples(st.integers(0, 1 << 22), st.integers(0, 1 << 16)), max_size=400))
def test_merged_requests_cover_every_wish(ranges: list[tuple[int, int]]) -> None:
    merged = merge_ranges(ranges, gap_size=choose_gap([ranges]))
    assert sorted(member for one in merged for member in one.members) == list(range(len(ranges)))
    for one in merged:
        for member in one.members:
            start, size = ranges[member]
            assert one.start <= start
            assert start + size <= one.start + one.size
