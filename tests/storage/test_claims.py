"""Claims: values that keep others out of what takes long, in stores without locks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from unittest import mock

import pytest

from zstore.base.writer import has_ended, is_under_way, writing
from zstore.errors import StoreError
from zstore.storage import claims
from zstore.storage.memory import MemoryStore


def test_one_at_a_time() -> None:
    store, inside, most = MemoryStore(), [], []

    def work() -> None:
        for _ in range(5):
            with claims.hold_claim(store, "a/claim"):
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
            os.write(into, json.dumps({"writer": writer}).encode())
            os._exit(0)
    os.waitpid(child, 0)
    try:
        return os.read(out, 4096)
    finally:
        os.close(out)
        os.close(into)


def test_the_claim_of_a_dead_process_is_taken_over() -> None:
    store = MemoryStore()
    store.put("a/claim", written_by_a_child())
    with claims.hold_claim(store, "a/claim"):
        pass
    assert list(store.list()) == []


def test_a_claim_that_was_taken_over_is_its_new_owners() -> None:
    store, new = MemoryStore(), json.dumps({"writer": {"machine": "another", "process": 1}}).encode()
    with claims.hold_claim(store, "a/claim"):
        store.put("a/claim", new)
    assert store.get("a/claim") == new


@pytest.mark.parametrize(
    "claim", [b"", b"[]", b'{"writer": {"machine": "another", "process": 1, "begun": "5"}}']
)
def test_whoever_may_be_alive_is_waited_for(monkeypatch, claim) -> None:
    monkeypatch.setattr(claims, "PATIENCE", 0.05)
    store = MemoryStore()
    store.put("a/claim", claim)
    with pytest.raises(StoreError, match="writer is dead") as caught, claims.hold_claim(store, "a/claim"):
        pass
    assert caught.value.key == "a/claim"
    assert store.get("a/claim") == claim


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
    words = [sys.executable, "-c", f"import json, time\nfrom zstore.base.writer import writing\n{work}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        writer = json.loads(process.stdout.readline())
        assert is_under_way(writer)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(writer)
