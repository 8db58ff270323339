"""Many reads at once: how many requests, how many rounds, how much is held; cancelled, on several loops."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine import awaiting
from zstore.engine.awaiting import BUDGET, WindowBudget
from zstore.errors import CodecError, StoreError
from zstore.storage.base import Parts, Request
from zstore.storage.memory import MemoryStore

from .stores import AwaitedStore

SIDE = 320
ITEMS = np.arange(SIDE * SIDE, dtype="i4").reshape(SIDE, SIDE)
WINDOWS = 1000


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    gc.collect()
    assert (BUDGET.count, BUDGET.size) == (0, 0)


def sharded(store: Any, **options: Any) -> zstore.Array:
    return zstore.create_array(store, "a", data=ITEMS, chunks=(10, 10), shards=(80, 80), **options)


def cells(seed: int = 0) -> list[tuple[slice, slice]]:
    """Places of inner chunks, some of them again and again."""
    places = np.random.default_rng(seed).integers(0, SIDE // 10, (WINDOWS, 2)) * 10
    return [(slice(int(y), int(y) + 10), slice(int(x), int(x) + 10)) for y, x in places]


async def read_all(array: zstore.Array, windows: list[Any]) -> None:
    async def one(window: Any) -> None:
        np.testing.assert_array_equal(await array.read_async(window), ITEMS[window])

    await asyncio.gather(*(asyncio.create_task(one(w), name=f"{n}") for n, w in enumerate(windows)))


@pytest.mark.parametrize("has_versions", [True, False])
def test_a_thousand_windows_ask_together(has_versions: bool) -> None:
    store = AwaitedStore(has_versions=has_versions, pause=0.001)
    array = sharded(store)
    windows = cells()
    asyncio.run(read_all(array, windows))
    # What several of them need is asked for once, but for what the first asks, who binds the codecs.
    cell_count = len({(y.start, x.start) for y, x in windows})
    assert cell_count + 16 <= store.count <= cell_count + 18
    # One after the other are the indexes, and then the chunks, of each shard by themselves.
    assert sum(store.rounds.values()) <= 4 + 16
    store.count = 0
    asyncio.run(read_all(array, windows))
    assert store.count == cell_count + (0 if has_versions else 16)


@pytest.mark.parametrize("fails", ["codec", "store"])
def test_of_those_who_ask_together_each_gets_its_own_error(fails: str) -> None:
    store = AwaitedStore()
    sharded(store)
    bad = "a/c/0/1"
    windows = [np.s_[y : y + 10, x : x + 10] for y in range(0, 160, 40) for x in range(0, 160, 20)]
    if fails == "codec":
        value = bytearray(store.get(bad) or b"")
        value[:500] = bytes(500)
        store.put(bad, value)

    class Failing(AwaitedStore):
        async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
            if fails == "store" and any(key == bad for key, _ in requests):
                raise StoreError("refused", path=self.url, key=bad)
            return await super().get_parts_async(requests)

    failing = Failing()
    failing._values = store._values
    reader = zstore.open_array(failing, "a", mode="r+")

    async def run() -> list[Any]:
        return await asyncio.gather(*map(reader.read_async, windows), return_exceptions=True)

    for _ in range(2):
        found = asyncio.run(run())
        is_error = [isinstance(one, StoreError if fails == "store" else CodecError) for one in found]
        for one, window, failed in zip(found, windows, is_error, strict=True):
            if not failed:
                np.testing.assert_array_equal(one, ITEMS[window])
        at_bad = [y.start < 80 <= x.start for y, x in windows]
        if fails == "store":
            assert is_error == at_bad
        else:
            assert any(is_error)
            assert all(at for failed, at in zip(is_error, at_bad, strict=True) if failed)
        assert all(bad in str(one) for one in found if isinstance(one, Exception))


def test_of_those_who_ask_together_some_go_away() -> None:
    store = AwaitedStore()
    array = sharded(store)
    # Each its own shard: what nobody waits for any more is not asked for.
    windows = [np.s_[y : y + 10, x : x + 10] for y in range(0, SIDE, 80) for x in range(0, SIDE, 80)]

    async def run(count: int, gone: int) -> None:
        memory = [np.zeros((10, 10), "i4") for _ in windows]
        tasks = [
            asyncio.ensure_future(array.read_async(window, out=out))
            for window, out in zip(windows, memory, strict=True)
        ]
        await steps(count)
        for task in tasks[:gone]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        left = [out.copy() for out in memory]
        asked = store.count
        await steps(8)
        assert store.count == asked or gone < len(tasks)
        for at, (one, window) in enumerate(zip(found, windows, strict=True)):
            np.testing.assert_array_equal(memory[at], left[at])
            if at >= gone or not isinstance(one, asyncio.CancelledError):
                np.testing.assert_array_equal(one, ITEMS[window])
        if gone == len(tasks):
            assert (BUDGET.count, BUDGET.size) == (0, 0)
        cancelled.add(sum(isinstance(one, asyncio.CancelledError) for one in found))

    cancelled: set[int] = set()
    asyncio.run(run(0, 0))
    for gone in (1, 9, len(windows)):
        for count in range(14):
            asyncio.run(run(count, gone))
    assert {1, 9, len(windows)} <= cancelled
    # Who goes away before the chunks are asked for takes his request along.
    fresh = zstore.open_array(store, "a", mode="r+")
    store.count = 0

    async def go() -> None:
        tasks = [asyncio.ensure_future(fresh.read_async(window)) for window in windows]
        for _ in range(1000):
            if store.count < len(windows):
                await asyncio.sleep(0)
        for task in tasks[3:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(go())
    assert store.count <= len(windows) + 1 + 3


def test_for_shards_that_are_not_there_nobody_waits_for_more_than_one_other() -> None:
    store = AwaitedStore(has_versions=False, pause=0.001)
    empty = zstore.create_array(store, "b", shape=(SIDE, SIDE), dtype="i4", chunks=(10, 10), shards=(80, 80))
    store.rounds.clear()

    async def run() -> None:
        assert not np.any(await asyncio.gather(*map(empty.read_async, cells())))

    asyncio.run(run())
    assert max(store.rounds.values()) == 1


def test_a_thousand_windows_in_one_call() -> None:
    store = AwaitedStore(pause=0.001)
    array = sharded(store)
    some, all_of_them = cells()[:300], cells()
    # What several of them need is asked for once, and shards of which most is needed are asked for whole.
    for windows, count in ((some, len({(y.start, x.start) for y, x in some}) + 16), (all_of_them, 16)):
        store.count = 0
        for got, window in zip(asyncio.run(array.read_many_async(windows)), windows, strict=True):
            np.testing.assert_array_equal(got, ITEMS[window])
        assert store.count == count


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaiting, "BUDGET", budget := WindowBudget(7, 2000))
    store = AwaitedStore()
    array = zstore.create_array(store, "a", data=ITEMS, chunks=(10, 10), compressors=None)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, budget.count)
        assert budget.size <= 2000

    store.on_ask = look
    asyncio.run(read_all(array, [np.s_[y : y + 10, :10] for y in range(0, SIDE, 10)]))
    assert most == 5
    # One that is larger than all there is goes alone.
    asyncio.run(read_all(array, [np.s_[:40, :40], *([np.s_[:10, :10]] * 9), np.s_[:40, :40]]))
    assert (budget.count, budget.size) == (0, 0)


class TestBudget:
    def test_who_comes_first_is_served_first(self) -> None:
        budget, order = WindowBudget(10, 100), []

        async def one(name: str, size: int) -> None:
            with await budget.reserve(size):
                order.append(name)
                await asyncio.sleep(0)

        async def run() -> None:
            await asyncio.gather(one("a", 60), one("large", 90), one("small", 10), one("last", 500))

        asyncio.run(run())
        assert order == ["a", "large", "small", "last"]
        assert (budget.count, budget.size) == (0, 0)

    def test_who_gives_up_leaves_the_room_to_the_next(self) -> None:
        budget = WindowBudget(1, 100)

        async def run(is_let_in: bool) -> None:
            hold = await budget.reserve(1)
            first, second = (asyncio.ensure_future(budget.reserve(1)) for _ in range(2))
            await asyncio.sleep(0)
            if is_let_in:
                hold.__exit__(None, None, None)
            first.cancel()
            if not is_let_in:
                hold.__exit__(None, None, None)
            with await second:
                assert budget.count == 1
            with pytest.raises(asyncio.CancelledError):
                await first

        asyncio.run(run(False))
        asyncio.run(run(True))
        assert (budget.count, budget.size) == (0, 0)

    def test_a_loop_that_is_closed_keeps_no_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(awaiting, "LOOK_TIME", 0.01)
        budget = WindowBudget(1, 100)
        loop = asyncio.new_event_loop()
        hold = loop.run_until_complete(budget.reserve(100))

        async def run() -> None:
            waiting = asyncio.ensure_future(budget.reserve(100))
            await asyncio.sleep(0.03)
            assert not waiting.done()
            loop.close()
            with await asyncio.wait_for(waiting, 30):
                hold.__exit__(None, None, None)  # when it is collected
                assert (budget.count, budget.size) == (1, 100)

        asyncio.run(run())
        assert (budget.count, budget.size) == (0, 0)

    def test_a_loop_that_is_closed_waits_for_nothing(self) -> None:
        budget = WindowBudget(1, 100)
        loop = asyncio.new_event_loop()
        hold = loop.run_until_complete(budget.reserve(1))
        waiting = budget.reserve(1)
        waiting_task = loop.create_task(waiting)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        hold.__exit__(None, None, None)
        assert (budget.count, budget.size) == (0, 0)

        async def run() -> None:
            with await budget.reserve(100):
                assert budget.count == 1

        asyncio.run(run())
        waiting.close()
        waiting_task._log_destroy_pending = False  # type: ignore[attr-defined]
        assert (budget.count, budget.size) == (0, 0)


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["chunks", "shards", "files", "codec"])
def test_cancelled_reads_leave_nothing(tmp_path: Any, kind: str) -> None:
    store = zstore.storage.local.LocalStore(tmp_path) if kind == "files" else AwaitedStore()
    options: dict[str, Any] = {"chunks": (40, 40)}
    if kind == "shards":
        options["shards"] = (80, 80)
    if kind == "codec":
        options["compressors"] = [{"name": "numcodecs.bz2"}]
    array = zstore.create_array(store, "a", data=ITEMS, **options)

    async def run() -> int:
        cancelled = 0
        for count in range(24):
            tasks = [asyncio.ensure_future(array.read_async(np.s_[n:])) for n in range(4)]
            await steps(count)
            for task in tasks:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            asked = getattr(store, "count", 0)
            for n, one in enumerate(found):
                cancelled += isinstance(one, asyncio.CancelledError)
                if not isinstance(one, asyncio.CancelledError):
                    np.testing.assert_array_equal(one, ITEMS[n:])
            assert (BUDGET.count, BUDGET.size) == (0, 0)
            await steps(5)
            assert getattr(store, "count", 0) == asked
        np.testing.assert_array_equal(await array.read_async(), ITEMS)
        return cancelled

    assert asyncio.run(run()) > 20


@pytest.mark.parametrize("kind", ["memory", "far", "files"])
def test_cancelled_writes_leave_whole_chunks_and_no_lock(tmp_path: Any, kind: str) -> None:
    store: Any = {"memory": MemoryStore, "far": AwaitedStore}.get(
        kind, lambda: zstore.storage.local.LocalStore(tmp_path)
    )()
    array = zstore.create_array(store, "a", shape=(64, 64), chunks=(8, 8), dtype="i4")
    array[...] = 0
    expected = np.zeros((64, 64), "i4")

    async def run() -> int:
        nonlocal expected
        cancelled = 0
        for value in range(1, 40):
            task = asyncio.ensure_future(array.write_async(np.s_[1:63, 1:63], value))
            await steps(value // 2)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                cancelled += 1
            now = array[...]  # at once, and by a call: nothing is under way, no lock is held
            for y in range(0, 64, 8):
                for x in range(0, 64, 8):
                    old, new = expected[y : y + 8, x : x + 8], expected[y : y + 8, x : x + 8].copy()
                    inside = np.zeros((64, 64), bool)
                    inside[1:63, 1:63] = True
                    new[inside[y : y + 8, x : x + 8]] = value
                    got = now[y : y + 8, x : x + 8]
                    assert np.array_equal(got, old) or np.array_equal(got, new)
            expected = now
            array[:1] = expected[:1]
        return cancelled

    assert asyncio.run(run()) > 5


def test_out_is_left_alone_after_a_cancellation() -> None:
    array = zstore.create_array(AwaitedStore(), "a", data=ITEMS, chunks=(160, 160))

    async def run() -> None:
        for count in range(16):
            memory = np.zeros_like(ITEMS)
            task = asyncio.ensure_future(array.read_async(out=memory))
            await steps(count)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            seen = memory.copy()
            await asyncio.sleep(0.002)
            np.testing.assert_array_equal(memory, seen)

    asyncio.run(run())


def test_several_loops_and_calls_at_once() -> None:
    array = sharded(AwaitedStore(pause=0.0005))
    wrong: list[BaseException] = []

    def guarded(work: Any) -> Any:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                wrong.append(error)

        return run

    def call() -> None:
        for window in cells(3)[:100]:
            np.testing.assert_array_equal(array[window], ITEMS[window])

    threads = [threading.Thread(target=guarded(call)) for _ in range(2)]
    for seed in range(3):
        windows = cells(seed)[:200]
        threads.append(
            threading.Thread(target=guarded(lambda windows=windows: asyncio.run(read_all(array, windows))))
        )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_the_number_of_threads_may_change_at_any_time() -> None:
    """With every call the pool is another one, and the one before it ends."""
    pool = awaiting.LazyPool("changing", itertools.cycle((1, 2, 3)).__next__)

    async def call(number: int) -> list[int]:
        calls = (pool.run(lambda item=item: number * item) for item in range(50))
        return await asyncio.gather(*calls)

    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(lambda number: asyncio.run(call(number)), range(16))]
    assert found == [[number * item for item in range(50)] for number in range(16)]


def test_a_call_on_the_loop_waits_for_no_task() -> None:
    array = sharded(AwaitedStore())

    async def run() -> None:
        reading = [asyncio.ensure_future(array.read_async(np.s_[:10, :10])) for _ in range(3)]
        await steps(2)
        np.testing.assert_array_equal(array[:10, :10], ITEMS[:10, :10])
        array[:10, :10] = ITEMS[:10, :10]
        await asyncio.gather(*reading)

    asyncio.run(run())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_closed_in_the_midst_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    array = sharded(AwaitedStore())
    for count in range(12):
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(array.read_async(np.s_[n : n + 100])) for n in range(3)]
        loop.run_until_complete(steps(count))
        loop.close()
        del tasks, loop
        gc.collect()
        asyncio.run(read_all(array, cells()[:5]))
    pool = awaiting.COMPUTING._pool()
    count = pool._max_workers
    met = threading.Barrier(count)  # of all threads, each of which has ended what it was at
    [*pool.map(lambda _: met.wait(60), range(count))]
    gc.collect()


def test_what_is_never_awaited_says_so_and_leaves_nothing() -> None:
    array = sharded(AwaitedStore())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        array.read_async(np.s_[:10])
        array.write_async(np.s_[:10], 0)
        zstore.aio.open_array(array.store, "a")
        gc.collect()
    assert ["never awaited" in str(one.message) for one in said] == [True] * 3
    np.testing.assert_array_equal(array[:10], ITEMS[:10])


def test_no_large_chunk_waits_for_the_slowest_of_those_before_it() -> None:
    count, size = 40, 1 << 20
    slow = ("a/c/0", "a/c/6", "a/c/12", "a/c/18")
    asked: set[str] = set()

    class SlowStore(AwaitedStore):
        """Gives some of the first 24 chunks when all others have been asked for."""

        async def get_parts_async(self, requests: Sequence[Request]) -> Parts:
            asked.update(key for key, _ in requests)
            if len(asked) == count:
                rest.set()
            if any(key in slow for key, _ in requests):
                await asyncio.wait_for(rest.wait(), 60)
            return await super().get_parts_async(requests)

    array = zstore.create_array(
        SlowStore(), "a", shape=(count * size,), dtype="u1", chunks=(size,), compressors=None
    )
    for number in range(count):
        array[number * size] = number + 1
    rest = asyncio.Event()
    found = asyncio.run(array.read_async())
    np.testing.assert_array_equal(found[::size], np.arange(1, count + 1))


def test_an_error_ends_the_other_windows_of_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from zstore.engine import fetch

    monkeypatch.setattr(fetch, "WINDOW_COUNT", 2)
    store = AwaitedStore()
    array = zstore.create_array(store, "a", data=ITEMS, chunks=(10, SIDE))

    def fail() -> None:
        if store.count >= 4:
            raise StoreError("enough", path=store.url)

    store.on_ask = fail
    with pytest.raises(StoreError, match="enough"):
        asyncio.run(array.read_async())
    assert store.count == 4


def test_a_forked_child_awaits_too() -> None:
    array = sharded(AwaitedStore())
    asyncio.run(read_all(array, cells()[:20]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            asyncio.run(read_all(array, cells(1)[:20]))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
