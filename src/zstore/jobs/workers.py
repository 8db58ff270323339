"""The caller's executors: what they may be, how plans reach workers, what it means when those are gone."""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import suppress
from typing import Any, Generic, TypeVar

from zstore.base.locks import Lock
from zstore.errors import StoreError, UnsupportedError, ZstoreError
from zstore.jobs.plan import Plan, Unit

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
    """A plan as it goes to workers: pickled once, opened once in each process; in the caller's, it itself.

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
    data = pickle.dumps(plan)
    # What a script defines is sent with it, as dask does where it sees it.
    library = sys.modules.get("cloudpickle") if b"__main__" in data else None
    return data if library is None else bytes(library.dumps(plan))


def check_executor(executor: Any) -> None:
    """Raise where units cannot be handed to this.

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
        for place, found in executor.run(_own_version, on_error="return").items():
            # Another error is that of a worker on its way out.
            if found != _own_version() and (isinstance(found, str) or "zstore" in str(found)):
                raise UnsupportedError(
                    f"the dask worker {place} has zstore {found}; expected {_own_version()}, as here"
                    if isinstance(found, str)
                    else f"the dask worker {place} cannot import zstore {_own_version()}: {found}"
                )


def check_future(future: Any, executor: Any) -> Any:
    """The future, which units can be waited for and be stopped by.

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
    """The error of an executor in the words of a job; None where it is the error of a unit.

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
    """Cancel units that wait, and return when none runs, so that none writes after an error is raised."""
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
    """Begin no unit of a run any more in this process; whether one is under way."""
    with _guard:
        _stopped.add(run)
        return _under_way[run] > 0
