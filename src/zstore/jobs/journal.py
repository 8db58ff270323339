"""Journals: which units of a job are done, and their results, kept in a store until the job ends.

Below the name of each plan (a step of the job) there are the values

    done      a bit for each done unit without a result, compressed: at most 1.25 MB for 10^7 units, and some
              hundred bytes where units are done in order
    1, 2, ... results of many units: how many, their numbers, their sizes, their checksums, their bytes
    state     of a plan whose results are taken in order: a checksum, how many were taken, the joined state

Calls that make a part of a job each have a journal of their own, below `.parts`, and read those of the
others.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from zstore.base.byterange import ByteRange
from zstore.errors import StoreError
from zstore.jobs.plan import JobPart
from zstore.storage.base import Store, join_key

# The journal is written when this time has passed, or when so many bytes of results wait. After the first
# write, the pauses are PAUSE times as long as the last write took, or longer, so that writing takes a tenth
# of the time.
WAITING_SECONDS = 0.5
WAITING_SIZE = 16 << 20
PAUSE = 10
# The most bytes of `done` that are read.
DONE_SIZE = 1 << 28
DONE, STATE, VALUE = "done", "state", re.compile("[1-9][0-9]{0,15}")
PARTS = ".parts"
NUMBER = np.dtype("<u8")

Numbers: TypeAlias = np.ndarray[Any, Any]


class Journal:
    """The record of done units below a prefix of a store, by step (the name of the plan) and number.

    It is written from time to time, so that a short job writes none.

    part    the part of the job that is made; None: all of it
    record  the key that exists as long as the job is under way
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        *,
        is_new: bool = False,
        part: JobPart | None = None,
        record: str | None = None,
    ) -> None:
        self.part = part
        self._record = record
        self._store = store
        self._prefix = prefix
        self._own = join_key(prefix, PARTS, part.journal) if part is not None and part.number else prefix
        # Of a new job nothing is done, even if there are values of an older one.
        self._is_new = is_new or not any(True for _ in store.list(self._prefix))
        self._steps: dict[str, _Step] = {}
        self._written, self._pause = monotonic(), WAITING_SECONDS

    def put(self, step: str, number: int, data: bytes) -> None:
        """Note that a unit is done, with its result; it is stored with the next write."""
        found = self._step(step)
        if data:
            found.waiting[number] = data
            found.waiting_size += len(data)
        else:
            found.mark(number)
        self._write_if_due()

    def get(self, step: str, number: int) -> bytes | None:
        """The stored result of a unit; None if no journal has it."""
        return self._step(step).get(number)

    def has(self, step: str, number: int) -> bool:
        """Whether a unit is done according to the journals."""
        return self._step(step).has(number)

    def reload(self) -> None:
        """Read the results that other parts have stored meanwhile.

        Raises
            StoreError: the job has ended meanwhile; this part's journal is removed.
        """
        if self._own != self._prefix and self._record and self._store.size(self._record) is None:
            self._store.delete_prefix(self._own)
            raise StoreError(
                "the job was ended while a part of it was made", path=self._store.url, key=self._record
            )
        for step in self._steps.values():
            step.load(self._others())

    def _others(self) -> list[str]:
        """The prefixes of the job's other journals."""
        parts = self._store.list_children(join_key(self._prefix, PARTS))
        found = [self._prefix, *(join_key(self._prefix, PARTS, name) for name in sorted(parts))]
        return [prefix for prefix in found if prefix != self._own]

    def put_state(self, step: str, count: int, pack: Callable[[], bytes]) -> None:
        """Record how many results were taken; `pack` returns their joined state when it is written."""
        self._step(step).state = count, pack
        self._write_if_due()

    def forget_state(self, step: str) -> None:
        """Drop a state that was not written yet."""
        self._step(step).state = None

    def get_state(self, step: str) -> tuple[int, bytes]:
        """(number of results taken, their joined state); 0 if nothing is recorded."""
        value = None if self._is_new else self._store.get(self._step(step).key(STATE))
        data, size = bytes(value or b""), NUMBER.itemsize
        if len(data) < 2 * size or zlib.crc32(data[size:]) != int.from_bytes(data[:size], "little"):
            return 0, b""
        return int.from_bytes(data[size : 2 * size], "little"), data[2 * size :]

    def _write_if_due(self) -> None:
        size = sum(step.waiting_size for step in self._steps.values())
        if size > WAITING_SIZE or monotonic() - self._written >= self._pause:
            self.write()

    def write(self) -> None:
        """Write everything that was not written yet."""
        begun, has_results = monotonic(), False
        for step in self._steps.values():
            has_results |= bool(step.waiting)
            step.write()
        self._written = monotonic()
        self._pause = max(PAUSE * (self._written - begun), WAITING_SECONDS if has_results else 0)

    def _step(self, name: str) -> _Step:
        if name not in self._steps:
            self._steps[name] = _Step(self._store, self._own, name)
            if not self._is_new:
                self._steps[name].load(self._others())
        return self._steps[name]


@dataclass
class _Step:
    """The done units of one plan, whose name is `name`; below its own prefix and those of other journals.

    done     a bit for each unit without a result
    numbers  of the units whose results were stored when they were loaded, in order; their `places` are
             (index of the prefix, number of the value, first byte, number of bytes, checksum)
    waiting  results that are not stored yet, by number of the unit
    """

    store: Store
    own: str
    name: str
    prefixes: list[str] = field(default_factory=list)
    done: bytearray = field(default_factory=bytearray)
    numbers: Numbers = field(default_factory=lambda: np.empty(0, NUMBER))
    places: Numbers = field(default_factory=lambda: np.empty((0, 5), NUMBER))
    waiting: dict[int, bytes] = field(default_factory=dict)
    waiting_size: int = 0
    value_count: int = 0
    is_done_changed: bool = False
    state: tuple[int, Callable[[], bytes]] | None = None

    def key(self, name: str | int, prefix: str | None = None) -> str:
        return join_key(self.own if prefix is None else prefix, self.name, str(name))

    def mark(self, number: int) -> None:
        place = number >> 3
        if place >= len(self.done):
            self.done += bytes(max(1024, place + 1 - len(self.done), len(self.done) // 2))
        self.done[place] |= 1 << (number & 7)
        self.is_done_changed = True

    def _is_marked(self, number: int) -> bool:
        place = number >> 3
        return place < len(self.done) and bool(self.done[place] >> (number & 7) & 1)

    def _place(self, number: int) -> int | None:
        at = int(np.searchsorted(self.numbers, NUMBER.type(number)))
        return at if at < len(self.numbers) and self.numbers[at] == number else None

    def has(self, number: int) -> bool:
        return self._is_marked(number) or number in self.waiting or self._place(number) is not None

    def get(self, number: int) -> bytes | None:
        if self._is_marked(number):
            return b""
        at = self._place(number)
        if at is None:
            return None
        prefix, name, begin, size, checksum = self.places[at].tolist()
        value = bytes(self.store.get(self.key(name, self.prefixes[prefix]), ByteRange(begin, size)) or b"")
        return value if len(value) == size and zlib.crc32(value) == checksum else None

    def write(self) -> None:
        """Store everything that was not stored yet."""
        if self.waiting:
            parts = self.waiting.values()
            numbers = [len(parts), *self.waiting, *map(len, parts), *map(zlib.crc32, parts)]
            value = np.array(numbers, NUMBER).tobytes() + b"".join(parts)
            self.store.put(self.key(self.value_count + 1), value)
            self.value_count += 1
            self.waiting, self.waiting_size = {}, 0
        if self.is_done_changed:
            self.store.put(self.key(DONE), zlib.compress(self.done, 1))
            self.is_done_changed = False
        if self.state is not None:
            count, pack = self.state
            data = np.array([count], NUMBER).tobytes() + pack()
            self.store.put(self.key(STATE), np.array([zlib.crc32(data)], NUMBER).tobytes() + data)
            self.state = None

    def load(self, others: Sequence[str]) -> None:
        """Read what this and the other journals have stored; invalid values are ignored."""
        self.prefixes = [self.own, *others]
        numbers, places = [self.numbers[:0]], [self.places[:0]]
        for at, prefix in enumerate(self.prefixes):
            names = self.store.list_children(join_key(prefix, self.name))
            if DONE in names:
                self._load_done(prefix)
            values = sorted(int(name) for name in names if VALUE.fullmatch(name))
            for value in values:
                found, where = self._load_value(self.key(value, prefix))
                numbers.append(found)
                places.append(np.hstack([np.full((len(found), 2), (at, value), NUMBER), where]))
            if prefix == self.own and values:
                self.value_count = values[-1]
        # Of a unit that was made twice, both results are the same.
        self.numbers, chosen = np.unique(np.concatenate(numbers), return_index=True)
        self.places = np.concatenate(places)[chosen]

    def _load_done(self, prefix: str) -> None:
        unpacker = zlib.decompressobj()
        with suppress(zlib.error):
            done = unpacker.decompress(self.store.get(self.key(DONE, prefix)) or b"", DONE_SIZE)
            if unpacker.eof:
                self.done += bytes(max(0, len(done) - len(self.done)))
                known = np.frombuffer(self.done, np.uint8)[: len(done)]
                known |= np.frombuffer(done, np.uint8)

    def _load_value(self, key: str) -> tuple[Numbers, Numbers]:
        """(numbers of the units whose results are in a value; first byte, size, checksum of each result)."""
        size = NUMBER.itemsize
        total = self.store.size(key) or 0
        count = int.from_bytes(self.store.get(key, ByteRange(0, size)) or b"", "little")
        begin, head = size * (1 + 3 * count), b""
        if begin <= total:
            head = bytes(self.store.get(key, ByteRange(size, begin - size)) or b"")
        if head and len(head) == begin - size:
            numbers, sizes, checksums = np.frombuffer(head, NUMBER).reshape(3, count)
            if begin + sum(sizes.tolist()) == total:
                places = [begin + np.cumsum(sizes) - sizes, sizes, checksums]
                return numbers, np.stack(places, 1).astype(NUMBER)
        return np.empty(0, NUMBER), np.empty((0, 3), NUMBER)
