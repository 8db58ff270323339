"""The one machine for jobs: what a task that says only what is its own gets from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.intents import find_unfinished
from zstore.errors import ChangedError, MetadataError, StoreError
from zstore.jobs.chunks import Location, StoredArray
from zstore.jobs.how import How, long_call
from zstore.jobs.plan import Plan, Unit
from zstore.jobs.source import Source, Sources, Versions
from zstore.jobs.task import Task
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

KEY = "sums"


@dataclass(frozen=True)
class Rows(Plan[int]):
    """The sum of each row of chunks."""

    source: Source
    disturb: Callable[[int], None]

    def units(self) -> Iterator[Unit]:
        return ((row,) for row in range(self.source.counts[0]))

    def make(self, unit: Unit) -> int:
        self.disturb(unit[0])
        rows, _ = self.source.box((*unit, 0))
        return int(self.source.read((rows, slice(0, self.source.shape[1]))).sum())

    def pack(self, result: int) -> bytes:
        return str(result).encode()

    def unpack(self, unit: Unit, data: bytes) -> int:
        return int(data)


class Sums(Task[bytes]):
    """All sums of a source's rows, in one value."""

    work = "reduce"

    def __init__(self, source: Source, store: Any, how: How, disturb: Callable[[int], None]) -> None:
        super().__init__(Location(store, ""), how)
        self.source, self.plan, self.sums = source, Rows(source, disturb), dict[int, int]()

    def describe(self) -> Any:
        return self.source.describe()

    def sources(self) -> Sources:
        return self.source.watched()

    def take(self, unit: Unit, result: int) -> None:
        self.sums[unit[0]] = result

    def publish(self) -> None:
        self.there.store.put(KEY, repr([self.sums[row] for row in sorted(self.sums)]).encode())

    def versions(self) -> Versions:
        entry = self.there.store.entry(KEY)
        return {} if entry is None else {"": str(entry.version)}

    def result(self) -> bytes:
        return bytes(self.there.store.get(KEY) or b"")


@long_call()
def sum_rows(source: zstore.Array, store: Any, disturb: Any = lambda row: None, **words: Any) -> bytes:
    """The sums of an array's rows of chunks."""
    return Sums(StoredArray.of(source), store, How(**words), disturb).carry_out()


@pytest.fixture
def source() -> zstore.Array:
    return zstore.create_array(MemoryStore(), data=np.arange(24).reshape(6, 4), chunks=(2, 2))


def expected(source: zstore.Array) -> bytes:
    return repr([int(source[row : row + 2].sum()) for row in (0, 2, 4)]).encode()


def test_the_words_of_a_call_are_kept(source: zstore.Array) -> None:
    store, seen = MemoryStore(), list[tuple[int, int]]()
    assert sum_rows(source, store, dry_run=True).unit_count == 3  # type: ignore[attr-defined]
    assert not [*store.list()]
    made = sum_rows(source, store, progress=lambda *done: seen.append(done))
    assert made == expected(source) and seen == [(1, 3), (2, 3), (3, 3)]
    assert [*store.list()] == [KEY], "neither a record nor a fingerprint that nobody asked for"
    with pytest.raises(MetadataError, match="memory"):
        sum_rows(source, store, memory=0)


def test_an_interrupted_job_is_resumed_for_the_same_source_and_told_until_then(source: zstore.Array) -> None:
    store = MemoryStore()

    def stop(row: int) -> None:
        if row == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sum_rows(source, store, stop)
    assert [each.work for each in find_unfinished(store, "")] == ["reduce"] and store.get(KEY) is None
    with pytest.raises(StoreError, match="unfinished"):
        sum_rows(source, store)
    other = zstore.create_array(MemoryStore(), data=np.zeros((6, 4)), chunks=(2, 2))
    with pytest.raises(MetadataError, match="with other arguments was interrupted"):
        sum_rows(other, store, resume=True)
    assert sum_rows(source, store, resume=True) == expected(source)
    assert not find_unfinished(store, "")


@pytest.mark.parametrize("when", ["while it is read", "while it is interrupted"])
def test_sources_that_change_make_no_document(source: zstore.Array, when: str) -> None:
    store = MemoryStore()

    def disturb(row: int) -> None:
        if row == 2 and when == "while it is read":
            source[0, 0] = 99
        elif row == 2:
            raise KeyboardInterrupt

    with pytest.raises((ChangedError, KeyboardInterrupt)):
        sum_rows(source, store, disturb)
    source[0, 0] = 99
    with pytest.raises(ChangedError, match="was written since the job began"):
        sum_rows(source, store, resume=True)
    assert store.get(KEY) is None
    assert sum_rows(source, store, overwrite=True) == expected(source)


def test_a_finished_target_is_left_as_it_is_until_something_changes(source: zstore.Array) -> None:
    store, made = MemoryStore(), list[int]()
    for _ in range(2):
        assert sum_rows(source, store, made.append, resume=True) == expected(source)
    assert sorted(made) == [0, 1, 2]
    assert sum_rows(source, store, resume=True, dry_run=True).unit_count == 0  # type: ignore[attr-defined]
    former = bytes(store.get(KEY) or b"")
    store.put(KEY, b"mine")
    with pytest.raises(ChangedError, match="what was made was written to since"):
        sum_rows(source, store, resume=True)
    store.delete(KEY)
    assert sum_rows(source, store, made.append, resume=True) == former and len(made) == 6
    source[0, 0] = 99
    with pytest.raises(ChangedError, match="source was written to since the target was made"):
        sum_rows(source, store, resume=True)


def test_a_new_node_does_not_replace_the_files_that_are_read(source: zstore.Array, tmp_path: Path) -> None:
    file = tmp_path / "target" / "rows.txt"
    file.parent.mkdir()
    file.write_text("rows")

    def task(**words: Any) -> Sums:
        made = Sums(StoredArray.of(source), LocalStore(file.parent), How(**words), lambda row: None)
        made.zarr_format, made.may_hold_others, made.source_files = 3, True, [str(file)]
        return made

    with pytest.raises(StoreError, match="cannot replace what holds"):
        task(overwrite=True).carry_out()
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert task().carry_out() == expected(source) and file.read_text() == "rows"
