"""Checks of many small pieces, a window at a time, by threads or an executor; a journal keeps results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from zstore.engine.pool import map_threads, thread_count
from zstore.jobs.chunks import MEMORY_SIZE, REQUEST_COUNT
from zstore.jobs.plan import Plan
from zstore.jobs.record import Job
from zstore.jobs.runner import Executor, Runner
from zstore.storage.base import Store

# The pieces and the bytes of a window, and how many windows are looked at, at a time.
WINDOW_COUNT = 256
WINDOW_SIZE = 32 << 20
AT_ONCE = 3

# Plain data that says what is to be checked.
Piece: TypeAlias = tuple[Any, ...]
Unit: TypeAlias = tuple[Any, ...]
# A fault in words; and of each piece a number, which is summed, with its faults.
Fault: TypeAlias = tuple[str | None, ...]
Seen: TypeAlias = tuple[int, list[Fault]]
# A fingerprint of the pieces of a window, and the result for each of them.
Looked: TypeAlias = tuple[str, list[Seen]]


class Looker(Protocol):
    """What checks pieces; it is sent to the workers of an executor."""

    @property
    def store(self) -> Store:
        """The store that pieces are in."""

    def look(self, piece: Piece) -> Seen:
        """The number and the faults of a piece."""

    def size(self, piece: Piece) -> int:
        """How many bytes the check of a piece holds."""


class Windows(Plan[Looked]):
    """The plan of a check: units are windows of pieces, which hold the pieces themselves."""

    def __init__(self, looker: Looker, pieces: Iterable[Piece] = ()) -> None:
        self._looker = looker
        self._pieces = pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return Windows, (self._looker,)

    def units(self) -> Iterator[Unit]:
        window, held = list[Piece](), 0
        for piece in self._pieces:
            window.append(piece)
            held += self._looker.size(piece)
            if len(window) == WINDOW_COUNT or held >= WINDOW_SIZE:
                yield tuple(window)
                window, held = [], 0
        if window:
            yield tuple(window)

    def make(self, unit: Unit) -> Looked:
        looker = self._looker
        wanted = max(thread_count(), min(REQUEST_COUNT, looker.store.request_count))
        most = max(1, min(wanted, MEMORY_SIZE // AT_ONCE // max(1, *map(looker.size, unit))))
        return _fingerprint(unit), map_threads(looker.look, unit, waiting_count=most)

    def pack(self, result: Looked) -> bytes:
        return json.dumps(result).encode()

    def unpack(self, unit: Unit, data: bytes) -> Looked:
        try:
            fingerprint, seen = json.loads(data)
            found = [(int(number), [tuple(words) for words in faults]) for number, faults in seen]
        except (TypeError, RecursionError) as error:
            raise ValueError(f"nothing that was seen: {error}") from error
        if fingerprint != _fingerprint(unit) or len(found) != len(unit):
            raise ValueError("other pieces were looked at")
        return fingerprint, found


def _fingerprint(unit: Unit) -> str:
    return hashlib.sha256(repr(unit).encode()).hexdigest()[:16]


def look_at(
    looker: Looker,
    pieces: Iterable[Piece],
    take: Callable[[int, int, list[tuple[Piece, Fault]]], None],
    executor: Executor | None,
    job: Job | None,
) -> None:
    """Check all pieces; `take` gets (how many, the sum of their numbers, faults with their pieces) by window.

    With a job, pieces that its journal has are not checked again, as long as they come in the same order.
    """
    most = AT_ONCE if executor is None else None

    def took(unit: Unit, result: Looked) -> None:
        seen = result[1]
        faults = [(piece, fault) for piece, (_, found) in zip(unit, seen, strict=True) for fault in found]
        take(len(seen), sum(number for number, _ in seen), faults)

    with Runner(executor, most=most) if job is None else job.runner(executor, most) as runner:
        runner.run(Windows(looker, pieces), "windows", took)
