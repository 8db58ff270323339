"""The engine's threads."""

from __future__ import annotations

import os
import threading

import pytest

import zstore
from zstore.engine.schedulers import BLOCKING, beside, map_threads, thread_count
from zstore.storage.base import drive


@pytest.fixture(autouse=True)
def four_threads():
    zstore.set_threads(4)
    yield
    zstore.set_threads(None)


def test_results_come_in_order():
    assert map_threads(lambda x: x * x, range(100)) == [x * x for x in range(100)]
    assert map_threads(lambda x: x, []) == []


def test_where_no_system_tells_which_processors_all_of_them_count(monkeypatch):
    zstore.set_threads(None)
    monkeypatch.delenv("ZSTORE_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert thread_count() == 7


def test_an_error_stops_the_rest():
    done = []

    def work(number: int) -> None:
        if number == 3:
            raise KeyError(number)
        done.append(number)

    with pytest.raises(KeyError):
        map_threads(work, range(5_000))
    assert len(done) < 5_000


def test_an_answer_that_is_asked_for_beside_something_else():
    both, ends = threading.Barrier(2), threading.Event()

    def meet(found: str) -> str:
        both.wait(20)
        return found

    assert beside(lambda: meet("answer"), lambda: meet("done")) == ("answer", "done")
    with pytest.raises(KeyError, match="asked"):
        beside(lambda: {}["asked"], lambda: None)
    # Who fails does not wait for the answer.
    with pytest.raises(KeyError, match="done"):
        beside(lambda: ends.wait(20), lambda: {}["done"])
    assert not ends.is_set()
    ends.set()


def test_threads_never_multiply():
    most = set()

    def inner(_: int) -> None:
        most.add(threading.get_ident())

    map_threads(lambda _: map_threads(inner, range(20)), range(20))
    assert len(most) <= 4


def test_what_comes_is_worked_on_by_another_thread_while_more_is_waited_for():
    received, here = threading.Event(), threading.get_ident()
    found = []

    def items():
        yield 1
        assert received.wait(10)  # nobody waits for the second before the first is worked on
        yield 2

    async def act(item):
        received.set()
        found.append((item, threading.get_ident() != here))

    drive(BLOCKING.each_coming(act, items()))
    assert found == [(1, True), (2, True)]


@pytest.mark.parametrize("fails", ["act", "items"])
def test_what_comes_ends_with_the_first_error(fails):
    worked, given = [], []

    def items():
        for item in range(1000):
            given.append(item)
            yield item
            if fails == "items" and item == 2:
                raise KeyError(item)
            if fails == "act" and item == 2:
                assert failed.wait(10)

    failed = threading.Event()

    async def act(item):
        worked.append(item)
        if fails == "act" and item == 1:
            failed.set()
            raise KeyError(item)

    before = {*threading.enumerate()}
    with pytest.raises(KeyError):
        drive(BLOCKING.each_coming(act, items()))
    assert worked == [0, 1, 2][: len(worked)]
    assert fails == "items" or worked == [0, 1]
    assert len(given) < 1000
    for thread in {*threading.enumerate()} - before:
        thread.join(10)
        assert not thread.is_alive()
