"""Threads that do everything at once, through handles that they share; each result is compared.

    python -m tests.faults.mix [THREADS [CALLS OF EACH [FOLDER]]]    64 threads, a million calls of each

Prints every minute what was done, with seconds of processor and the memory of the process. Most calls read an
item or a small window; every 256th is one of those that take longer.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import zstore
from zstore.errors import CodecError, NotFoundError, SelectionError
from zstore.storage.memory import MemoryStore

SIDE = 96
PLACES = 499
RARELY = 256
KEPT_FAILURES = 20


class Shared:
    """What all threads read, and what each has a part of."""

    def __init__(self, folder: Path, thread_count: int) -> None:
        self.folder = folder
        self.values = np.arange(SIDE * SIDE, dtype="f4").reshape(SIDE, SIDE)
        self.group = zstore.create_group(folder / "all.zarr")
        self.still = self.group.create_array("still", data=self.values, chunks=(8, 8), shards=(48, 48))
        self.plain = self.group.create_array("plain", data=self.values, chunks=(16, SIDE), compressors="lz4")
        self.cached = zstore.open_array(folder / "all.zarr" / "plain", mode="r").cached(1 << 20)
        self.memory = zstore.create_group(MemoryStore())
        self.kept = self.memory.create_array("kept", data=self.values, chunks=(32, 32), compressors=None)
        zstore.create_array(folder / "one.zip", data=self.values, chunks=(24, 48)).store.flush()
        self.zipped = zstore.open_array(folder / "one.zip", mode="r")
        # Two threads write into each chunk.
        own: dict[str, Any] = {"shape": (thread_count, SIDE), "dtype": "i4", "fill_value": 0}
        self.own = self.group.create_array("own", chunks=(2, 32), **own)
        self.beside = self.memory.create_array("own", chunks=(2, SIDE), **own)
        self.damaged = self.group.create_array("damaged", data=self.values, chunks=(48, 48))
        (folder / "all.zarr" / "damaged" / "c" / "1" / "1").write_bytes(b"no frame")


class Worker:
    """One thread's calls, and what they must give."""

    def __init__(self, shared: Shared, number: int, rarely: int) -> None:
        self.shared, self.number, self.rarely = shared, number, rarely
        self.done, self.failures = 0, list[str]()
        draw = random.Random(number)
        values = shared.values
        self.points = [(draw.randrange(SIDE), draw.randrange(SIDE)) for _ in range(PLACES)]
        self.items = [float(values[point]) for point in self.points]
        corners = [(draw.randrange(SIDE - 8), draw.randrange(SIDE - 8)) for _ in range(PLACES)]
        self.windows = [np.s_[y : y + draw.randint(1, 8), x : x + draw.randint(1, 8)] for y, x in corners]
        self.bytes = [values[window].tobytes() for window in self.windows]
        self.mine, self.beside = np.zeros(SIDE, "i4"), np.zeros(SIDE, "i4")
        home = f"thread-{number}"
        self.home = shared.group.create_group(home)
        self.grown = self.home.create_array("grown", shape=(0,), chunks=(7,), dtype="i8")
        self.stack = shared.memory.create_array(home, shape=(0, 3), chunks=(4, 2), dtype="u2", fill_value=9)
        self.length = 0
        read = (shared.still, shared.plain, shared.cached, shared.kept, shared.zipped)
        # Places in the order in which they are drawn: each kind of call comes for each kind of array.
        often: list[Callable[[int], None]] = [
            *(self._item(array) for array in (*read, *read, *read)),
            *(self._window(array) for array in (*read, *read)),
            *(self.own_row, self.own_item, self.beside_row, self.looks, self.own_item, self.beside_row),
            *(self.write_beside,),
        ]
        self.often = often * (64 // len(often)) + [self.write_own]
        self.rare = [getattr(self, name) for name in sorted(vars(Worker)) if name.startswith("now_and_then_")]

    def run(self, calls: int) -> None:
        """So many calls; what fails is noted, and the others go on."""
        often, rarely, rare = self.often, self.rarely, self.rare
        for turn in range(self.number, self.number + calls):
            try:
                if turn % rarely:
                    often[turn % len(often)](turn)
                else:
                    rare[turn // rarely % len(rare)](turn)
            except BaseException:
                if len(self.failures) < KEPT_FAILURES:
                    self.failures.append(f"thread {self.number}, call {turn}: {traceback.format_exc()}")
                else:
                    self.failures.append("")
            self.done += 1

    # Often

    def _item(self, array: Any) -> Callable[[int], None]:
        points, items = self.points, self.items

        def read_item(turn: int) -> None:
            place = turn % PLACES
            assert array[points[place]] == items[place]

        return read_item

    def _window(self, array: Any) -> Callable[[int], None]:
        windows, expected = self.windows, self.bytes

        def read_window(turn: int) -> None:
            place = turn % PLACES
            assert array[windows[place]].tobytes() == expected[place]

        return read_window

    def own_row(self, turn: int) -> None:
        assert self.shared.own[self.number].tobytes() == self.mine.tobytes()

    def own_item(self, turn: int) -> None:
        column = turn % SIDE
        assert self.shared.own[self.number, column] == self.mine[column]

    def beside_row(self, turn: int) -> None:
        assert self.shared.beside[self.number].tobytes() == self.beside.tobytes()

    def looks(self, turn: int) -> None:
        plain = self.shared.plain
        assert (plain.shape, plain.chunks, plain.dtype) == ((SIDE, SIDE), (16, SIDE), np.dtype("f4"))
        assert self.grown.shape == (self.length,)

    def write_own(self, turn: int) -> None:
        left = turn % (SIDE - 8)
        self.mine[left : left + 8] = turn
        self.shared.own[self.number, left : left + 8] = turn

    def write_beside(self, turn: int) -> None:
        left = turn % (SIDE - 8)
        self.beside[left : left + 8] = -turn
        self.shared.beside[self.number, left : left + 8] = -turn

    # Now and then

    def _indices(self, turn: int) -> tuple[list[int], list[int]]:
        first = turn % (PLACES - 5)
        rows, columns = zip(*self.points[first : first + 5], strict=True)
        return list(rows), list(columns)

    def now_and_then_points(self, turn: int) -> None:
        rows, columns = self._indices(turn)
        assert (self.shared.still.vindex[rows, columns] == self.shared.values[rows, columns]).all()

    def now_and_then_rows(self, turn: int) -> None:
        rows, columns = self._indices(turn)
        assert (self.shared.plain.oindex[rows, columns] == self.shared.values[np.ix_(rows, columns)]).all()

    def now_and_then_block(self, turn: int) -> None:
        row = turn % 6
        assert (self.shared.plain.blocks[row, 0] == self.shared.values[16 * row : 16 * row + 16]).all()

    def now_and_then_mask(self, turn: int) -> None:
        mask = self.shared.values % 97 == turn % 97
        assert (self.shared.kept[mask] == self.shared.values[mask]).all()

    def now_and_then_steps(self, turn: int) -> None:
        step = -1 - turn % 7
        assert (self.shared.still[::step, 3] == self.shared.values[::step, 3]).all()

    def now_and_then_many(self, turn: int) -> None:
        first = turn % (PLACES - 4)
        several = self.shared.plain.read_many(self.windows[first : first + 4])
        assert [one.tobytes() for one in several] == self.bytes[first : first + 4]

    def now_and_then_awaited(self, turn: int) -> None:
        place = turn % PLACES
        got = asyncio.run(self.shared.still.read_async(self.windows[place]))
        assert got.tobytes() == self.bytes[place]

    def now_and_then_open(self, turn: int) -> None:
        again = zstore.open_array(self.shared.folder / "all.zarr", "plain", mode="r")
        assert again[self.points[turn % PLACES]] == self.items[turn % PLACES]

    def now_and_then_open_zip(self, turn: int) -> None:
        again = zstore.open_array(self.shared.folder / "one.zip", mode="r")
        assert again[self.points[turn % PLACES]] == self.items[turn % PLACES]

    def now_and_then_open_group(self, turn: int) -> None:
        again = zstore.open_group(self.shared.folder / "all.zarr", mode="r")
        assert again["still"][self.points[turn % PLACES]] == self.items[turn % PLACES]
        assert f"thread-{self.number}" in again and "nobody" not in again

    def now_and_then_members(self, turn: int) -> None:
        assert "grown" in dict(self.home.members())
        assert {"kept", "own"} <= {*self.shared.memory}

    def now_and_then_pickled(self, turn: int) -> None:
        again = pickle.loads(pickle.dumps(self.shared.plain))
        assert again[self.points[turn % PLACES]] == self.items[turn % PLACES]

    def now_and_then_attributes(self, turn: int) -> None:
        self.home.update_attributes({"turn": turn, "of": [self.number]})
        assert dict(self.home.attrs) == {"turn": turn, "of": [self.number]}
        again = zstore.open_group(self.shared.folder / "all.zarr", f"thread-{self.number}", mode="r")
        assert again.attrs["turn"] == turn

    def now_and_then_metadata(self, turn: int) -> None:
        plain = self.shared.plain
        assert (plain.nchunks, plain.nchunks_initialized, plain.compressors[0].name) == (
            6,
            6,
            "numcodecs.lz4",
        )
        assert "Zarr format" in self.shared.still.info

    def now_and_then_append(self, turn: int) -> None:
        if self.length > 200:
            self.length = 5
            self.grown.resize((5,))
        self.grown.append(np.arange(self.length, self.length + 11))
        self.length += 11
        assert (self.grown[...] == np.arange(self.length)).all()

    def now_and_then_resize(self, turn: int) -> None:
        stack = self.stack
        stack.resize((6, 3))
        stack[2:6] = turn % 9
        stack.resize((3, 3))
        stack.resize((5, 3))
        assert stack[...].tolist() == [[9] * 3] * 2 + [[turn % 9] * 3] + [[9] * 3] * 2
        stack.resize((0, 3))

    def now_and_then_array(self, turn: int) -> None:
        words = ["zstd:1", "gzip:1", "lz4", "blosc", None]
        rows = self.shared.values[: 4 + turn % 4]
        made = self.home.create_array("made", data=rows, chunks=(3, 40), compressors=words[turn // 256 % 5])
        assert (self.home["made"][...] == rows).all()
        assert made.nchunks == made.nchunks_initialized
        del self.home["made"]
        assert "made" not in self.home

    def now_and_then_tree(self, turn: int) -> None:
        name = f"tree-{self.number}"
        tree = self.shared.memory.create_group(name, attributes={"turn": turn})
        tree.create_array("a/b", data=[turn, 2, 3])
        assert self.shared.memory[f"{name}/a/b"][0] == turn
        del self.shared.memory[name]
        assert name not in self.shared.memory

    def now_and_then_overwrite(self, turn: int) -> None:
        path = self.shared.folder / f"own-{self.number}.zarr"
        zstore.create_array(path, data=np.full(5, turn), overwrite=True)
        assert zstore.open_array(path, mode="r")[4] == turn

    def now_and_then_zip(self, turn: int) -> None:
        path = self.shared.folder / f"own-{self.number}.zip"
        zstore.create_array(path, data=np.full(9, turn), chunks=4).store.flush()
        assert zstore.load(path).tolist() == [turn] * 9
        path.unlink()

    def now_and_then_view(self, turn: int) -> None:
        values, window = self.shared.values, self.windows[turn % PLACES]
        joined = zstore.concat([self.shared.still, self.shared.plain], 0).read((slice(90, 102), window[1]))
        assert (joined == np.concatenate([values[90:], values[:6]])[:, window[1]]).all()

    def now_and_then_lazy(self, turn: int) -> None:
        window = self.windows[turn % PLACES]
        assert ((self.shared.plain.lazy[window] + 1).read() == self.shared.values[window] + 1).all()

    def now_and_then_reduce(self, turn: int) -> None:
        if turn // self.rarely % 8 == 0:  # makes threads of its own
            assert (self.shared.still.reduce("mean", 0) == self.shared.values.mean(0)).all()

    def now_and_then_batches(self, turn: int) -> None:
        if turn // self.rarely % 8 == 0:  # as well
            batches = self.shared.plain.batches(sample={0: 1}, batch_size=32, seed=turn)
            assert sum(float(batch.sum()) for batch in batches) == self.shared.values.sum(dtype="f8")

    def now_and_then_trace(self, turn: int) -> None:
        with zstore.trace(most=100) as trace:
            self._window(self.shared.still)(turn)
        assert trace.totals["read"].count >= 1

    def now_and_then_settings(self, turn: int) -> None:
        zstore.set_threads(1 + turn // self.rarely % 3)
        zstore.set_cache_size(1 << 12 + turn // self.rarely % 12)
        assert zstore.stats()["threads"] in (1, 2, 3)

    def now_and_then_explain(self, turn: int) -> None:
        assert self.shared.plain.explain(np.s_[:16]).chunk_count == 1

    def now_and_then_refused(self, turn: int) -> None:
        for call, error in (
            (lambda: self.shared.plain[SIDE], SelectionError),
            (lambda: self.shared.damaged[50:, 50:], CodecError),
            (lambda: zstore.open_array(self.shared.folder / "nothing.zarr"), NotFoundError),
        ):
            try:
                call()
            except error:
                continue
            raise AssertionError(f"no {error.__name__}")


def has_lock() -> bool:
    """Whether this Python's lock is on."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def run(folder: Path, thread_count: int, calls: int, rarely: int = RARELY, every: float = 0) -> list[str]:
    """Run the mix; says how far it is `every` so many seconds. Returns what failed."""
    shared = Shared(folder, thread_count)
    workers = [Worker(shared, number, rarely) for number in range(thread_count)]
    threads = [threading.Thread(target=worker.run, args=(calls,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    began = said = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        next(thread for thread in threads if thread.is_alive()).join(1)
        if every and time.monotonic() - said >= every:
            said = time.monotonic()
            _say(workers, said - began)
    if every:
        _say(workers, time.monotonic() - began)
    zstore.set_threads(None)
    zstore.set_cache_size(None)
    return [failure for worker in workers for failure in worker.failures]


def _say(workers: list[Worker], seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    done, failed = sum(worker.done for worker in workers), sum(len(worker.failures) for worker in workers)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    processor = used.ru_utime + used.ru_stime
    print(
        f"{seconds:7.0f} s  {done:>11,} calls (of one thread {min(worker.done for worker in workers):,} to "
        f"{max(worker.done for worker in workers):,})  {failed} failed  {processor:.0f} s of processor, "
        f"{processor / max(1, done) * 1e6:.1f} µs a call  {pages * resource.getpagesize() >> 20} MiB",
        flush=True,
    )


def main(thread_count: int = 64, calls: int = 1_000_000, folder: str | None = None) -> int:
    """The mix with its counts from the command line."""
    print(f"CPython {sys.version.split()[0]}, its lock is {'on' if has_lock() else 'off'}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        failures = run(Path(place), thread_count, calls, every=60)
    for failure in [text for text in failures if text][:KEPT_FAILURES]:
        print(failure)
    print(f"{thread_count * calls:,} calls by {thread_count} threads, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3]), *sys.argv[3:4]))
