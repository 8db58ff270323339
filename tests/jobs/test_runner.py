"""Units of long jobs: made anywhere, known from a journal, ended where one fails."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from zstore.errors import StoreError, UnsupportedError
from zstore.jobs.journal import Journal
from zstore.jobs.plan import Plan
from zstore.jobs.runner import Runner, Sent, counter, units_at_once
from zstore.storage.memory import MemoryStore

UNITS = [(n, n % 3) for n in range(40)]


@dataclass(frozen=True)
class Squares(Plan[list[np.ndarray]]):
    """Gives back the squares of a unit's numbers, twice; fails at one that it is told of."""

    bad: int = -1
    count: int = len(UNITS)

    def units(self) -> list[tuple[int, ...]]:
        return UNITS[: self.count]

    def pack(self, result: list[np.ndarray]) -> bytes:
        return result[0].tobytes()

    def unpack(self, unit: tuple[int, ...], data: bytes) -> list[np.ndarray]:
        squares = np.frombuffer(data, "i8")
        if len(squares) != 2:
            raise ValueError(f"{len(squares)} squares")
        return [squares, squares[None]]

    def make(self, unit: tuple[int, ...]) -> list[np.ndarray]:
        if unit[0] == self.bad:
            raise ValueError(f"unit {unit}")
        squares = np.array(unit) ** 2
        return [squares, squares[None]]


def take_into(found: dict[tuple[int, ...], list[np.ndarray]]) -> Any:
    def take(unit: tuple[int, ...], parts: list[np.ndarray]) -> None:
        assert unit not in found
        found[unit] = list(parts)

    return take


def check(found: dict[tuple[int, ...], list[np.ndarray]]) -> None:
    assert sorted(found) == sorted(UNITS)
    for unit, (one, other) in found.items():
        np.testing.assert_array_equal(one, np.array(unit) ** 2)
        np.testing.assert_array_equal(other[0], one)


@pytest.mark.parametrize("has_own", [True, False])
def test_every_unit_is_made_and_taken_once(has_own: bool) -> None:
    found: dict[tuple[int, ...], list[np.ndarray]] = {}
    with ThreadPoolExecutor(2) as pool:
        with Runner(None if has_own else pool) as runner:
            runner.run(Squares(), "a", take_into(found))
        # Somebody else's executor is left as it is.
        assert pool.submit(abs, -1).result() == 1
    check(found)


@pytest.mark.parametrize("bad", [0, 17, 39])
def test_what_is_done_is_not_made_again(bad: int) -> None:
    store, found = MemoryStore(), dict[tuple[int, ...], list[np.ndarray]]()
    with pytest.raises(ValueError, match=f"unit .{bad}"), Runner(journal=Journal(store, "k/j")) as runner:
        runner.run(Squares(bad), "a", take_into(found))
    done, again = set(found), list[tuple[int, ...]]()

    class Watched(Squares):
        def make(self, unit: tuple[int, ...]) -> list[np.ndarray]:
            again.append(unit)
            return super().make(unit)

    found.clear()
    journal = Journal(store, "k/j")
    with Runner(journal=journal) as runner:
        runner.run(Watched(), "a", take_into(found))
        check(found)
        assert not done & set(again) and done | set(again) == set(UNITS)
        # Another plan of the same job knows nothing of it.
        found.clear()
        again.clear()
        runner.run(Watched(), "b", take_into(found))
        assert sorted(again) == sorted(UNITS)
    assert all(key.startswith("k/j/") for key in store.list(""))


@dataclass
class Total:
    """The sum of all squares, as long as units come in their order; interrupted at one that it is told of."""

    bad: int = -1
    numbers: list[int] = field(default_factory=list)

    def take(self, unit: tuple[int, ...], parts: list[np.ndarray]) -> None:
        assert UNITS.index(unit) == len(self.numbers)
        self.numbers.append(int(parts[0].sum()))
        if unit[0] == self.bad:
            raise KeyboardInterrupt

    def holds(self, unit: tuple[int, ...]) -> bool:
        return True

    def pack(self) -> bytes:
        return np.array(self.numbers, "i8").tobytes()

    def unpack(self, data: bytes) -> None:
        self.numbers = np.frombuffer(data, "i8").tolist()


@pytest.mark.parametrize("bad", [0, 17, 39])
def test_a_fold_takes_in_order_and_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, bad: int) -> None:
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)
    expected = [n * n + (n % 3) ** 2 for n in range(40)]
    store, made = MemoryStore(), list[int]()

    @dataclass(frozen=True)
    class Uneven(Squares):
        def make(self, unit: tuple[int, ...]) -> list[np.ndarray]:
            made.append(unit[0])
            time.sleep(0.003 * (unit[0] % 4 == 0))
            return super().make(unit)

    with pytest.raises(KeyboardInterrupt), Runner(journal=Journal(store, "j")) as runner:
        runner.fold(Uneven(), "a", Total(bad))
    made.clear()
    total = Total()
    with Runner(journal=Journal(store, "j")) as runner:
        runner.fold(Uneven(), "a", total)
    # What was being taken when it was interrupted is made again, and nothing before it.
    assert total.numbers == expected and sorted(made) == [*range(bad, 40)]


class NeverCancelling(ThreadPoolExecutor):
    """An executor like that of Parsl."""

    def submit(self, *args: Any) -> Any:
        future = super().submit(*args)
        future.cancel = mock.Mock(side_effect=NotImplementedError)  # type: ignore[method-assign]
        return future


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, NeverCancelling])
@pytest.mark.parametrize("is_fold", [False, True])
def test_no_unit_runs_behind_an_error(is_fold: bool, kind: type[ThreadPoolExecutor]) -> None:
    running, lock = 0, threading.Lock()

    @dataclass(frozen=True)
    class Slow(Squares):
        def make(self, unit: tuple[int, ...]) -> list[np.ndarray]:
            nonlocal running
            with lock:
                running += 1
            try:
                if unit[0] != self.bad:
                    time.sleep(0.02)
                return super().make(unit)
            finally:
                with lock:
                    running -= 1

    with kind(4) as pool, pytest.raises(ValueError, match="unit"):
        try:
            Runner(pool).fold(Slow(5), "a", Total()) if is_fold else Runner(pool).run(Slow(5), "a")
        finally:
            assert running == 0


def test_what_is_no_future_is_refused() -> None:
    executor = SimpleNamespace(submit=lambda function, *args: function(*args))
    with pytest.raises(TypeError, match=r"without result, exception, cancel, .*; expected a future"):
        Runner(executor).run(Squares(), "a")


def test_known_units_are_not_made_and_few_wait_at_a_time() -> None:
    found: dict[tuple[int, ...], list[np.ndarray]] = {}
    most, waiting = 0, set[tuple[int, ...]]()

    class Counting(ThreadPoolExecutor):
        def submit(self, function: Any, plan: Any, unit: Any) -> Any:
            waiting.add(unit)
            return super().submit(function, plan, unit)

    def take(unit: tuple[int, ...], parts: list[np.ndarray]) -> None:
        nonlocal most
        most = max(most, len(waiting))
        waiting.discard(unit)
        found[unit] = parts

    with Counting(2) as pool:
        runner = Runner(pool)
        runner._ahead = units_at_once()
        known = {unit: Squares().make(unit) for unit in UNITS[::2]}
        runner.run(Squares(bad=4), "a", take, known.get)
    check(found)
    assert most <= units_at_once()
    heard: list[tuple[int, int]] = []
    tick = counter(7, lambda *counts: heard.append(counts))
    tick(3), tick(4)
    assert heard == [(3, 7), (7, 7)]


def test_a_plan_is_opened_once_in_a_process_and_shows_nothing() -> None:
    opened = list[Any]()

    @dataclass(frozen=True)
    class Keyed(Squares):
        word: str = "k3epTh1sQuiet"

        def __reduce__(self) -> Any:
            return opened_as, ("run", self.count)

    sent = Sent("opened once", Keyed())
    OPENED.clear()
    for unit in UNITS:
        other = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(sent))))
        opened.append(other.make(unit)[0].tolist())
        assert "k3ep" not in repr(other)
    assert opened == [[a * a, b * b] for a, b in UNITS] and len(OPENED) == 1


OPENED = list[str]()


def opened_as(name: str, count: int) -> Squares:
    OPENED.append(name)
    return Squares(count=count)


def test_functions_without_a_name_are_sent_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Mapped(Squares):
        function: Any = None

        def make(self, unit: Any) -> Any:
            return self.function(unit)

    sent = Sent("mapped", Mapped(function=lambda unit: unit[0] + 7))
    monkeypatch.delitem(sys.modules, "cloudpickle", raising=False)
    with pytest.raises(UnsupportedError, match=r"units cannot be sent to other processes: .*cloudpickle"):
        pickle.dumps(sent)
    pytest.importorskip("cloudpickle", reason="dask brings cloudpickle")
    assert pickle.loads(pickle.dumps(sent)).make((3, 1)) == 10


def test_a_pool_that_breaks_is_told_in_a_sentence_and_kept() -> None:
    class Broken(ThreadPoolExecutor):
        left = 5

        def submit(self, function: Any, *args: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise BrokenProcessPool("a process was terminated abruptly")
            return super().submit(function, *args)

    found, store = dict[tuple[int, ...], list[np.ndarray]](), MemoryStore()
    with (
        Broken(2) as pool,
        pytest.raises(StoreError, match=r"lost units .*; what was made is kept .*abruptly"),
    ):
        Runner(pool, Journal(store, "j"), most=1).run(Squares(), "a", take_into(found))
    again, made = dict[tuple[int, ...], list[np.ndarray]](), list[tuple[int, ...]]()

    class Watched(Squares):
        def make(self, unit: tuple[int, ...]) -> list[np.ndarray]:
            made.append(unit)
            return super().make(unit)

    with Runner(journal=Journal(store, "j")) as runner:
        runner.run(Watched(), "a", take_into(again))
    check(again)
    assert len(found) == 5 and not {*found} & {*made}
