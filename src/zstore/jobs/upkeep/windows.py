"""Checks of many small pieces, a window at a time, by threads or an executor; a journal keeps results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from zstore.engine.schedulers import map_threads
from zstore.jobs.chunks import MEMORY_SIZE, thread_count_for
from zstore.jobs.how import How
from zstore.jobs.plan import Estimate, Plan
from zstore.jobs.record import BegunJob
from zstore.jobs.runner import Runner
from zstore.storage.base import Store

# The pieces and the bytes of a window, and how many windows are checked at a time.
WINDOW_COUNT = 256
WINDOW_SIZE = 32 << 20
AT_ONCE = 3

# Plain data that names what is to be checked.
Piece: TypeAlias = tuple[Any, ...]
# A fault in words; and of each piece a number, which is summed, with its faults.
Fault: TypeAlias = tuple[str | None, ...]
Outcome: TypeAlias = tuple[int, list[Fault]]
# A fingerprint of the pieces of a window, and the outcome for each of them.
Outcomes: TypeAlias = tuple[str, list[Outcome]]


class Check(Protocol):
    """A check of single pieces; it is sent to the workers of an executor."""

    @property
    def store(self) -> Store:
        """The store of the pieces."""

    def check(self, piece: Piece) -> Outcome:
        """The number and the faults of a piece."""

    def size(self, piece: Piece) -> int:
        """The bytes in memory for the check of a piece."""

    @property
    def most_size(self) -> int:
        """The most bytes in memory for the check of any piece."""


class Windows(Plan[Outcomes]):
    """The plan of a check: units are windows of pieces, which hold the pieces themselves.

    unit_size  the bytes that the checks of a unit hold at once
    """

    def __init__(self, check: Check, unit_size: int, pieces: Iterable[Piece] = ()) -> None:
        self._check = check
        self._unit_size = unit_size
        self._pieces = pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return Windows, (self._check, self._unit_size)

    def units(self) -> Iterator[Piece]:
        window, held = list[Piece](), 0
        for piece in self._pieces:
            window.append(piece)
            held += self._check.size(piece)
            if len(window) == WINDOW_COUNT or held >= WINDOW_SIZE:
                yield tuple(window)
                window, held = [], 0
        if window:
            yield tuple(window)

    def make(self, unit: Piece) -> Outcomes:
        check = self._check
        most = thread_count_for(max(map(check.size, unit)), 1, check.store, memory=self._unit_size)
        return _fingerprint(unit), map_threads(check.check, unit, waiting_count=most)

    def pack(self, result: Outcomes) -> bytes:
        return json.dumps(result).encode()

    def unpack(self, unit: Piece, data: bytes) -> Outcomes:
        try:
            fingerprint, each = json.loads(data)
            outcomes = [(int(number), [tuple(words) for words in faults]) for number, faults in each]
        except (TypeError, RecursionError) as error:
            raise ValueError(f"no outcomes of a check: {error}") from error
        if fingerprint != _fingerprint(unit) or len(outcomes) != len(unit):
            raise ValueError("the outcomes are of other pieces")
        return fingerprint, outcomes


def _fingerprint(unit: Piece) -> str:
    return hashlib.sha256(repr(unit).encode()).hexdigest()[:16]


def check_all(
    check: Check,
    pieces: Iterable[Piece],
    take: Callable[[int, int, list[tuple[Piece, Fault]]], None],
    how: How,
    start: Callable[[], BegunJob | None] = lambda: None,
    read_size: int | None = None,
) -> tuple[int, BegunJob | None]:
    """Check all pieces; returns their number, and the job.

    `take` gets, window by window, how many pieces there are, the sum of their numbers, and faults with their
    pieces. With a job, pieces that its journal has are not checked again, as long as they come in the same
    order.

    start      begins the job, if there is one
    read_size  the bytes of all pieces, for an estimate
    """
    memory, total = how.memory or MEMORY_SIZE, 0
    most = how.at_once(check.most_size, AT_ONCE if how.executor is None else None)
    windows = Windows(check, memory // (most or (AT_ONCE if how.memory is None else 1)), pieces)

    def estimate() -> Estimate:
        counts = [len(window) for window in windows.units()]
        size, count = memory, sum(counts)
        return Estimate(
            unit_count=len(counts), read_size=read_size, write_size=0, request_count=count, memory_size=size
        )

    how.stop_if_dry(estimate)
    job = start()

    def took(unit: Piece, result: Outcomes) -> None:
        nonlocal total
        total += len(unit)
        faults = [(p, fault) for p, (_, own) in zip(unit, result[1], strict=True) for fault in own]
        take(len(unit), sum(number for number, _ in result[1]), faults)

    with Runner(how.executor, most=most) if job is None else job.runner(how.executor, most) as runner:
        runner.run(windows, "windows", took)
    return total, job
