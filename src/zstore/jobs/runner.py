"""Units of work, made on threads here or by the caller's executor, in any order, and again if need be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, Self, TypeAlias, TypeVar
from uuid import uuid4

from zstore.engine.pool import thread_count
from zstore.jobs.journal import Journal

# So many units wait in somebody else's executor: enough for some hundred workers.
UNITS_AHEAD = 512

Unit: TypeAlias = tuple[int, ...]
Progress: TypeAlias = Callable[[int, int], None]
R = TypeVar("R")


class Executor(Protocol):
    """What runs units: `concurrent.futures` executors, a `dask.distributed.Client`, and the like.

    Its futures have `result`, `cancel` and `add_done_callback`.
    """

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """A future of `function(*args)`."""


class Plan(Protocol[R]):
    """What is to be done, in units. It travels to the workers with each of them, so it is small.

    A unit writes what it alone owns, and gives back all else. It can be made without any other, in any
    process, and twice: it comes out the same.
    """

    def make(self, unit: Unit) -> R:
        """Make a unit, and give back what it comes to beside what it has written."""

    def pack(self, result: R) -> bytes:
        """What a unit gave back, for a journal."""

    def unpack(self, unit: Unit, data: bytes) -> R | None:
        """What `pack` was given; None where the data cannot be that unit's, which is made again then."""


def units_at_once() -> int:
    """How many units are made at a time: while some wait for the store, the others keep the threads busy."""
    return max(3, thread_count() + 1)


def counter(total: int, progress: Progress | None) -> Callable[[int], None]:
    """What takes how much has just been done, and calls `progress` with (all done so far, total)."""
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    return tick


class Runner:
    """Makes the units of plans on threads of its own, or on the caller's executor.

    A journal keeps which units are done: those that it knows are not made again.
    """

    def __init__(self, executor: Executor | None = None, journal: Journal | None = None) -> None:
        self._own = ThreadPoolExecutor(units_at_once()) if executor is None else None
        self._pool: Executor = executor or self._own  # type: ignore[assignment]
        self._ahead = units_at_once() if executor is None else UNITS_AHEAD
        self._journal = journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._own is not None:
            self._own.shutdown()

    def run(
        self,
        plan: Plan[R],
        name: str,
        units: Iterable[Unit],
        take: Callable[[Unit, R], None],
        known: Callable[[Unit], R | None] = lambda unit: None,
        most: int | None = None,
    ) -> None:
        """Make all units; `take` is called here with each and with what it gave back.

        name   of the plan in the journal, where no other plan of the job has it
        known  what a unit gives back, where that is known without making it
        most   how many are made at a time; None: as many as keep the threads busy

        Raises
            Whatever a unit raises, after those that run have ended; StoreError where the store fails.
        """
        # A name that no other run has, so that no executor takes one for the other.
        run, waiting, done = uuid4().hex, dict[Unit, Any](), SimpleQueue[Unit]()
        ahead = self._ahead if most is None else min(most, self._ahead)

        def finish() -> None:
            unit = done.get()
            result = waiting.pop(unit).result()
            if self._journal is not None:
                self._journal.put(_key(name, unit), plan.pack(result))
            take(unit, result)

        try:
            for unit in units:
                result = known(unit)
                if result is None and self._journal is not None:
                    data = self._journal.get(_key(name, unit))
                    result = None if data is None else plan.unpack(unit, data)
                if result is not None:
                    take(unit, result)
                    continue
                if len(waiting) >= ahead:
                    finish()
                waiting[unit] = self._pool.submit(_make, plan, unit, run)
                waiting[unit].add_done_callback(lambda _, unit=unit: done.put(unit))
            while waiting:
                finish()
        except BaseException:
            self._stop(waiting)
            raise

    def _stop(self, waiting: dict[Unit, Any]) -> None:
        """End what waits and wait for what runs, so that nothing is written behind the caller's back."""
        for future in waiting.values():
            future.cancel()
        # The first error is on its way already; what does not reach the journal is made again.
        for future in waiting.values():
            with suppress(CancelledError):
                future.exception()
        if self._journal is not None:
            with suppress(OSError):
                self._journal.write()


def _make(plan: Plan[R], unit: Unit, run: str) -> R:
    return plan.make(unit)


def _key(name: str, unit: Unit) -> str:
    return f"{name}/{'.'.join(map(str, unit)) or '0'}"
