"""The engine's threads."""

from __future__ import annotations

import os
import threading

import pytest

import zstore
from zstore.engine.schedulers import beside, map_threads, thread_count


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
