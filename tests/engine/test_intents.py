"""Intents of changes of shape, which keep others out in stores without locks; and what tells of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest

import zstore
from zstore.engine import intents
from zstore.engine.intents import INTENT, has_ended, is_under_way, shape_held, writing
from zstore.errors import ChangedError, NotFoundError, StoreError
from zstore.storage.memory import MemoryStore

CLAIM = f"a/{INTENT}"


class Conditional(MemoryStore):
    """A store whose locks keep nobody of another process out."""

    notices_changes = True


def test_one_at_a_time(monkeypatch) -> None:
    """As processes do, which have no lock in common."""
    monkeypatch.setattr(intents, "hold_name", lambda name: nullcontext())
    store, inside, most = Conditional(), [], []

    def work() -> None:
        for _ in range(5):
            with shape_held(store, "a"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 15
    assert list(store.list()) == []


def written_by_a_child() -> bytes:
    """What a process says of itself that is dead by then."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        with writing() as writer:
            os.write(into, json.dumps({"work": "resize", "writer": writer}).encode())
            os._exit(0)
    os.waitpid(child, 0)
    try:
        return os.read(out, 4096)
    finally:
        os.close(out)
        os.close(into)


@pytest.mark.parametrize("kind", [Conditional, MemoryStore])
def test_the_intent_of_a_dead_process_is_taken_over(kind) -> None:
    """In a store with locks, too, where it can only be a copy of one."""
    store = kind()
    store.put(CLAIM, written_by_a_child())
    with shape_held(store, "a"):
        pass
    assert list(store.list()) == []


def test_an_intent_that_was_taken_over_is_its_new_owners() -> None:
    store = Conditional()
    new = json.dumps({"work": "resize", "writer": {"machine": "another", "process": 1}}).encode()
    with shape_held(store, "a"):
        store.put(CLAIM, new)
    assert store.get(CLAIM) == new


def test_whoever_may_be_alive_is_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(intents, "PATIENCE", 0.05)
    store, writer = Conditional(), {"machine": "another", "process": 1, "begun": "5"}
    store.put(CLAIM, claim := json.dumps({"work": "resize", "writer": writer}).encode())
    with pytest.raises(StoreError, match="writer is dead") as caught, shape_held(store, "a"):
        pass
    assert caught.value.key == INTENT and str(caught.value.path).endswith("a")
    assert store.get(CLAIM) == claim


@pytest.mark.parametrize("content", [b"", b"[]", b'{"work": "tomorrow"}'])
def test_the_shape_stays_beside_an_intent_that_cannot_be_read(content) -> None:
    store = Conditional()
    zstore.create_array(store, "a", data=np.arange(4))
    store.put(CLAIM, content)
    with pytest.raises(StoreError, match="of a kind that this zstore does not know"):
        zstore.open_array(store, "a").resize(2)
    assert store.get(CLAIM) == content


def test_no_array_is_made_over_the_chunks_of_one_whose_shape_was_changing() -> None:
    """Whoever has removed the document by other means may want the chunks."""
    store = Conditional()
    zstore.create_array(store, "a", data=np.arange(8), chunks=(2,))
    store.put(CLAIM, written_by_a_child())
    store.delete("a/zarr.json")
    with pytest.raises(NotFoundError):
        zstore.open_array(store, "a", mode="r")
    with pytest.raises(StoreError, match="the change of an array's shape is unfinished"):
        zstore.create_array(store, "a", data=np.arange(3))
    assert store.get("a/c/3") is not None
    zstore.create_array(store, "a", data=np.arange(3), overwrite=True)
    assert sorted(store.list()) == ["a/c/0", "a/zarr.json", "zarr.json"]


def test_a_work_has_ended_with_its_block() -> None:
    with writing() as writer:
        told = json.loads(json.dumps(writer))
        assert is_under_way(told)
        assert not has_ended(told)
        assert has_ended({**told, "work": [1]})
    assert has_ended(writer)
    assert not is_under_way(writer)
    for unknown in (None, {**writer, "machine": "another"}):
        assert not has_ended(unknown)
        assert not is_under_way(unknown)


def test_of_a_process_that_the_system_hides_nothing_is_known(monkeypatch) -> None:
    """Another user's, where /proc is mounted with hidepid=2."""
    with writing() as writer:
        hidden = {**writer, "process": 2**30}
        assert has_ended(hidden)
        monkeypatch.setattr(os, "kill", mock.Mock(side_effect=PermissionError))
        assert not has_ended(hidden)
        assert not is_under_way(hidden)


def test_the_work_of_a_killed_process_has_ended_before_its_parent_asks() -> None:
    work = "with writing() as me:\n print(json.dumps(me), flush=True)\n time.sleep(60)"
    words = [sys.executable, "-c", f"import json, time\nfrom zstore.engine.intents import writing\n{work}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        writer = json.loads(process.stdout.readline())
        assert is_under_way(writer)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(writer)


class Refusing(MemoryStore):
    """A bucket that says of one new value that it is there: of another maker, who makes way just then."""

    request_count = 8
    refused = ""

    def put_new(self, key, value):
        if key == self.refused:
            self.refused = ""
            raise ChangedError("it is there", path=self.url, key=key)
        super().put_new(key, value)


@pytest.mark.parametrize("document", ["n/zarr.json", "n/a/zarr.json"])
def test_who_is_refused_by_nobody_leaves_nothing_and_is_not_refused_again(document) -> None:
    store = Refusing()
    zstore.create_group(store)
    if document != "n/zarr.json":
        zstore.create_array(store, "n/a", data=np.arange(9))
    store.refused = document
    with pytest.raises(StoreError, match="cannot create: somebody else has just"):
        zstore.create_array(store, "n/a", data=np.arange(4), chunks=2, overwrite=True)
    assert not [*store.list("n/a")]
    zstore.create_array(store, "n/a", data=np.arange(4), chunks=2, overwrite=True)
    assert zstore.open_group(store)["n/a"][...].tolist() == [0, 1, 2, 3]
