"""The runner of plans: makes units on threads or the caller's executor, and resumes from a journal."""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar
from uuid import uuid4

import numpy as np

from zstore.base import tracing
from zstore.base.locks import Lock
from zstore.base.tracing import NOTHING, span
from zstore.base.waits import Waits, in_haste
from zstore.engine.schedulers import thread_count
from zstore.errors import StoreError, UnsupportedError, ZstoreError
from zstore.jobs.journal import Journal
from zstore.jobs.plan import Fold, JobPart, Plan, Progress, Unit, UnitsLeft, take_nothing

# Plans that a process keeps open for further units.
OPEN_COUNT = 4
PAUSE = 0.05
# What is asked of the futures of executors.
FUTURE_NAMES = ("result", "exception", "cancel", "add_done_callback")

R = TypeVar("R")

_guard = Lock()
_open: dict[str, Plan[Any]] = {}
_under_way: Counter[str] = Counter()
_stopped: set[str] = set()


class Sent(Generic[R]):
    """A plan for workers: pickled once, opened once in each process; in the caller's, the plan itself.

    A dask scheduler passes it on unopened. Logs show nothing of what the plan holds: credentials, too.

    run  a name that no other plan has, nor this one when it is run again
    """

    def __init__(self, run: str, plan: Plan[R] | None, data: bytes = b"") -> None:
        self.run = run
        self._plan = plan
        self._data = data

    def __repr__(self) -> str:
        return f"<plan {self.run}>"

    def __dask_tokenize__(self) -> str:
        return self.run

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._data:
            self._data = _pickle(self._plan)
        return Sent, (self.run, None, self._data)

    def make(self, unit: Unit) -> R:
        """Make a unit of the plan.

        Raises
            StoreError: the caller has gone on without it.
        """
        with _guard:
            if self.run in _stopped:
                raise StoreError("the caller has stopped the job; no unit of it is made any more")
            _under_way[self.run] += 1
        try:
            with span("unit") if tracing.is_on else NOTHING:
                return self._opened().make(unit)
        finally:
            with _guard:
                _under_way[self.run] -= 1
                if not _under_way[self.run]:
                    del _under_way[self.run]

    def _opened(self) -> Plan[R]:
        if self._plan is not None:
            return self._plan
        with _guard:
            if self.run not in _open:
                while len(_open) >= OPEN_COUNT:
                    del _open[next(iter(_open))]
                _open[self.run] = pickle.loads(self._data)
            return _open[self.run]


def _own_version() -> str:
    # A room never imports the whole house.
    return str(sys.modules["zstore"].__version__)


def _pickle(plan: Any) -> bytes:
    # What a script defines is sent with it, as dask does where it sees it; so is a function without a name.
    library = sys.modules.get("cloudpickle")
    try:
        data = pickle.dumps(plan)
    except ZstoreError:
        raise
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        if library is not None:
            return bytes(library.dumps(plan))
        raise UnsupportedError(
            f"units cannot be sent to other processes: {error}; expected functions that a module defines, or "
            "the package cloudpickle, imported"
        ) from error
    return bytes(library.dumps(plan)) if library is not None and b"__main__" in data else data


def check_executor(executor: Any) -> None:
    """Check that an object can run units.

    Raises
        TypeError: it has no `submit`.
        UnsupportedError: its results are to be awaited, or workers of dask have not this zstore.
    """
    if executor is None:
        return
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(f"executor is {executor!r}; expected one of concurrent.futures, or a dask Client")
    if getattr(executor, "asynchronous", False) is True:
        raise UnsupportedError(
            "the dask Client is asynchronous; expected one made with asynchronous=False, as jobs wait for it"
        )
    distributed = sys.modules.get("distributed")
    if distributed is not None and isinstance(executor, distributed.Client):
        # A worker that cannot open what it is sent logs it and goes, and dask waits for another one.
        for worker, version in executor.run(_own_version, on_error="return").items():
            # Another error is that of a worker on its way out.
            if version != _own_version() and (isinstance(version, str) or "zstore" in str(version)):
                raise UnsupportedError(
                    f"the dask worker {worker} has zstore {version}; expected {_own_version()}, as here"
                    if isinstance(version, str)
                    else f"the dask worker {worker} cannot import zstore {_own_version()}: {version}"
                )


def check_future(future: Any, executor: Any) -> Any:
    """The future, after a check that units can be waited for and cancelled by it.

    Raises
        TypeError: it lacks what that takes.
    """
    missing = [name for name in FUTURE_NAMES if not hasattr(future, name)]
    if missing:
        raise TypeError(
            f"the executor {executor!r} gives {future!r} for a unit, without {', '.join(missing)}; expected "
            "a future as those of concurrent.futures"
        )
    return future


def explain(error: BaseException, *, is_kept: bool) -> ZstoreError | None:
    """The error of an executor in the words of a job; None for the error of a unit.

    is_kept  whether what was made is known when the job is resumed
    """
    is_lost = isinstance(error, BrokenExecutor | CancelledError)
    # Of the classes for lost workers, schedulers and connections, not all have a public name.
    if is_lost or type(error).__module__.partition(".")[0] == "distributed":
        kept = "; what was made is kept for when the job is resumed" if is_kept else ""
        return StoreError(f"the executor lost units or the workers that made them{kept}: {error}")
    if isinstance(error, TypeError) and isinstance(error.__cause__, ZstoreError):
        return error.__cause__  # of dask, where a plan cannot be sent
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").startswith("zstore"):
            return UnsupportedError(
                f"workers cannot import {cause.name}; expected zstore {_own_version()} where they and the "
                "scheduler run"
            )
        cause = cause.__cause__
    return None


def stop(futures: Sequence[Any], run: str) -> None:
    """Cancel waiting units, and return when none runs, so that none writes after an error is raised."""
    for future in futures:
        # Parsl cannot cancel: its units come to their end.
        with suppress(NotImplementedError):
            future.cancel()
    # The first error is being raised already; units that do not reach the journal are made again.
    for future in futures:
        with suppress(CancelledError):
            future.exception()
    # Of dask, a future that is cancelled says nothing of the worker that is at it.
    clients = [future.client for future in futures[:1] if hasattr(future, "client")]
    for client in clients:
        while client.status == "running":
            if True not in client.run(_end, run, on_error="return").values():
                break
            time.sleep(PAUSE)


def _end(run: str) -> bool:
    """Begin no more units of a run in this process; returns whether one is under way."""
    with _guard:
        _stopped.add(run)
        return _under_way[run] > 0


# Units submitted ahead to the caller's executor: enough for some hundred workers.
UNITS_AHEAD = 512


class Executor(Protocol):
    """The interface of `concurrent.futures` executors, `dask.distributed.Client` and the like.

    Its futures have `result`, `exception`, `cancel` and `add_done_callback`.
    """

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """A future of `function(*args)`."""


def units_at_once() -> int:
    """The number of units that run at a time: some more than threads, as units also wait for the store."""
    return max(3, thread_count() + 1)


def counter(total: int, progress: Progress | None) -> Callable[[int], None]:
    """A function that adds up the work done, and calls `progress` with (done so far, total)."""
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    return tick


class Runner:
    """Makes the units of plans on threads of its own, or on the caller's executor.

    journal  which units are done, and are not made again
    most     how many units run at a time; None: as many as keep the threads busy
    """

    def __init__(
        self, executor: Executor | None = None, journal: Journal | None = None, most: int | None = None
    ) -> None:
        # What units of its own threads wait for.
        self._waits = Waits()
        make = partial(ThreadPoolExecutor, most or units_at_once(), initializer=self._waits.enter)
        self._own = make() if executor is None else None
        self._pool: Executor = executor or self._own  # type: ignore[assignment]
        self._ahead = most or (units_at_once() if executor is None else UNITS_AHEAD)
        self._journal = journal
        self._part = None if journal is None else journal.part
        self._left: list[UnitsLeft] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *others: object) -> None:
        if self._own is not None:
            self._own.shutdown()
        # A part ends with its units; the job goes no further while units of others are left.
        if error is None and (self._left or self.is_part):
            raise UnitsLeft([numbers for left in self._left for numbers in left.numbers])

    @property
    def is_part(self) -> bool:
        """Whether this call makes only a part of the job, and other calls the others."""
        return self._part is not None and self._part.number > 0

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Context for plans that later ones do not depend on: those run even if units are left to others."""
        try:
            yield
        except UnitsLeft as left:
            self._left.append(left)

    def run(
        self,
        plan: Plan[R],
        name: str,
        take: Callable[[Unit, R], None] = take_nothing,
        known: Callable[[Unit], R | None] = lambda unit: None,
        most: int | None = None,
        *,
        is_in_order: bool = False,
    ) -> None:
        """Make all units; `take` is called in this thread with each unit and its result, when it is done.

        name         of the plan in the journal, unique within the job
        known        the result of a unit, where it is known without making it, else None
        most         as for the runner, for this plan
        is_in_order  whether results that are made are taken in the order of the units, as by `fold`

        Raises
            Whatever a unit raises, after those that run have ended; StoreError where the store fails.
            UnitsLeft: the job is made in parts, and units are left to others.
        """

        def settle(number: int, unit: Unit, result: R) -> None:
            if self._journal is not None:
                self._journal.put(name, number, plan.pack(result))
            take(unit, result)

        def left() -> Iterator[tuple[int, Unit]]:
            for number, unit in enumerate(plan.units()):
                result = known(unit)
                if result is not None:
                    take(unit, result)
                elif done := self._find_done(plan, name, number, unit, is_believed=self.is_part):
                    take(unit, done[0])
                else:
                    yield number, unit

        self._make_part(plan, name, known, most)
        with span("job", plan=name) if tracing.is_on else NOTHING:
            self._make_all(plan, left(), settle, most, is_in_order=is_in_order)

    def fold(self, plan: Plan[R], name: str, fold: Fold[R], most: int | None = None) -> None:
        """As `run`, but `fold` takes the results in the order of the units, and the journal keeps its state.

        No more results wait for their turn than units run at a time.
        """
        if self._part is not None:
            self._fold_part(plan, name, fold, self._part, most)
            return
        count = 0
        if self._journal is not None:
            count, data = self._journal.get_state(name)
            try:
                if count:
                    fold.unpack(data)
            except ValueError:
                count = 0

        def settle(number: int, unit: Unit, result: R) -> None:
            keeps = self._journal is not None and number >= count
            if self._journal is not None and keeps:
                # If taking is interrupted, the state is not complete.
                self._journal.forget_state(name)
            fold.take(unit, result)
            if self._journal is not None and keeps:
                self._journal.put_state(name, number + 1, fold.pack)

        units = ((n, unit) for n, unit in enumerate(plan.units()) if n >= count or not fold.holds(unit))
        with span("job", plan=name) if tracing.is_on else NOTHING:
            self._make_all(plan, units, settle, most, is_in_order=True)

    def _make_part(
        self, plan: Plan[R], name: str, known: Callable[[Unit], R | None], most: int | None
    ) -> None:
        """Make the units of one part of a job; raises UnitsLeft unless all units are done then."""
        part, journal = self._part, self._journal
        if part is None or journal is None:
            return
        count = sum(1 for _ in plan.units())
        part.check(name, count)
        tick = counter(len(range(part.number - 1, count, part.count)) if part.number else 0, part.progress)

        def own() -> Iterator[tuple[int, Unit]]:
            for number, unit in enumerate(plan.units()):
                if part.has(number) and known(unit) is None:
                    if self._find_done(plan, name, number, unit):
                        tick(1)
                    else:
                        yield number, unit

        def settle(number: int, unit: Unit, result: R) -> None:
            journal.put(name, number, plan.pack(result))
            tick(1)

        self._make_all(plan, own(), settle, most)
        journal.write()
        journal.reload()
        units = enumerate(plan.units())
        _raise_left(n for n, unit in units if not journal.has(name, n) and known(unit) is None)

    def _fold_part(self, plan: Plan[R], name: str, fold: Fold[R], part: JobPart, most: int | None) -> None:
        """As `_make_part`, but units whose results are joined are in one part; the journal numbers groups."""
        journal: Journal = self._journal  # type: ignore[assignment]
        counts = Counter(part.has(fold.group(unit)[0]) for unit in plan.units())
        part.check(name, counts.total())
        tick = counter(counts[True], part.progress)

        def settle(number: int, unit: Unit, result: R) -> None:
            fold.take(unit, result)
            group, is_whole = fold.group(unit)
            if is_whole:
                journal.put(name, group, b"")
            tick(1)

        def own() -> Iterator[tuple[int, Unit]]:
            for number, unit in enumerate(plan.units()):
                group, _ = fold.group(unit)
                if part.has(group) and not (journal.has(name, group) and fold.holds(unit)):
                    yield number, unit

        self._make_all(plan, own(), settle, most, is_in_order=True)
        journal.write()
        journal.reload()
        ends = (group for group, is_whole in map(fold.group, plan.units()) if is_whole)
        _raise_left(group for group in ends if not journal.has(name, group))
        if not part.number:
            lost = ((n, unit) for n, unit in enumerate(plan.units()) if not fold.holds(unit))
            self._make_all(plan, lost, settle, most, is_in_order=True)

    def _find_done(
        self, plan: Plan[R], name: str, number: int, unit: Unit, *, is_believed: bool = False
    ) -> list[R]:
        """The one result of a unit that is in the journal, if its output is still stored; else none.

        is_believed  whether the output is not looked at: the call that ends a job does it for its parts
        """
        data = None if self._journal is None else self._journal.get(name, number)
        if data is None:
            return []
        try:
            result = plan.unpack(unit, data)
        except ValueError:
            return []
        return [result] if is_believed or plan.holds(unit, result) else []

    def _make_all(
        self,
        plan: Plan[R],
        units: Iterable[tuple[int, Unit]],
        settle: Callable[[int, Unit, R], None],
        most: int | None,
        *,
        is_in_order: bool = False,
    ) -> None:
        """Make numbered units, some at a time; this thread calls `settle`, as they end or in order."""
        # A unique name, as some executors take calls with equal arguments for the same call.
        run, waiting, done = uuid4().hex, dict[int, tuple[Unit, Any]](), SimpleQueue[int]()
        sent = Sent(run, plan)
        ahead = self._ahead if most is None else min(most, self._ahead)

        def finish() -> None:
            number = next(iter(waiting)) if is_in_order else done.get()
            unit, future = waiting[number]
            result = future.result()
            del waiting[number]
            settle(number, unit, result)

        try:
            for number, unit in units:
                if len(waiting) >= ahead:
                    finish()
                # Own threads note their spans below the caller's.
                make = _make if self._own is None else partial(_make_within, copy_context())
                future = check_future(self._pool.submit(make, sent, unit), self._pool)
                waiting[number] = unit, future
                if not is_in_order:
                    future.add_done_callback(lambda _, number=number: done.put(number))
            while waiting:
                finish()
        except BaseException as error:
            if not isinstance(error, Exception):
                self._waits.end()
            if self._journal is not None:
                with suppress(OSError), in_haste(error):
                    self._journal.write()
            stop([future for _, future in waiting.values()], run)
            reason = explain(error, is_kept=self._journal is not None)
            if reason is None:
                raise
            raise reason from error


def _raise_left(numbers: Iterable[int]) -> None:
    left = np.fromiter(numbers, np.int64)
    if len(left):
        raise UnitsLeft([left])


def _make(sent: Sent[R], unit: Unit) -> R:
    return sent.make(unit)


def _make_within(context: Context, sent: Sent[R], unit: Unit) -> R:
    return context.run(lambda: _make(sent, unit))
