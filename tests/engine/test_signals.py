"""What a signal's handler raises while the kernels work reaches the caller as it was raised."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine import chunks
from zstore.nodes.open import open_ahead
from zstore.storage import local
from zstore.storage.memory import MemoryStore


def test_an_alarm_is_no_failure_of_the_store(tmp_path, monkeypatch):
    array = zstore.create_array(tmp_path / "a", shape=(8,), chunks=(2,), dtype="i4")
    array[...] = 1

    def alarm(*_: Any, **__: Any) -> None:
        raise TimeoutError("too long")

    monkeypatch.setattr(chunks, "read", alarm)
    with pytest.raises(TimeoutError, match="too long"):
        array[...]
    monkeypatch.setattr(local, "Tree", lambda *_, **__: SimpleNamespace(get=alarm))
    with pytest.raises(TimeoutError, match="too long"):
        local.LocalStore(tmp_path / "a").get("zarr.json")


class SlowStore(MemoryStore):
    """A store with latency: of chunks, each request takes `seconds`."""

    in_memory = False
    request_count = 8

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.asked: list[str] = []

    def get_many(self, requests: Any) -> Any:
        keys = [key for key, _ in requests]
        if any(not key.endswith("json") for key in keys):
            self.asked += keys
            time.sleep(self.seconds)
        return super().get_many(requests)

    def few_entries(self, prefix: str, most: int) -> None:
        if self.seconds:
            self.asked.append(prefix)
            time.sleep(self.seconds)


READS = {
    "chunks": ({"chunks": (1 << 18,)}, lambda array, out: array.read(out=out)),
    "shards": ({"chunks": (1 << 16,), "shards": (1 << 18,)}, lambda array, out: array.read(out=out)),
    "rectilinear": (
        {"chunks": [[1 << 18] * 15 + [9, (1 << 18) - 9]]},
        lambda array, out: array.read(out=out),
    ),
    "all documents": ({"chunks": (1 << 18,)}, lambda array, out: open_ahead(array.store).__enter__()),
    "several selections": (
        {"chunks": (1 << 18,)},
        lambda array, out: array.read_many([slice(k << 20, (k + 1) << 20) for k in range(4)]),
    ),
}


@pytest.fixture
def hears_interrupts():
    # Whoever is started in the background may ignore them.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("way", READS)
@pytest.mark.usefixtures("hears_interrupts")
def test_an_interrupt_is_heard_while_a_read_waits_for_its_store(way):
    kinds, read = READS[way]
    store = SlowStore()
    array = zstore.create_array(store, shape=(1 << 22,), dtype="u4", compressors=None, **kinds)
    array[...] = 7
    store.seconds, store.asked = 1.2, []
    out = np.zeros(array.shape, array.dtype)
    before = {*threading.enumerate()}
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read(array, out)
    assert time.monotonic() - begin < 0.7
    asked = len(store.asked)
    assert asked > 0
    for thread in {*threading.enumerate()} - before:
        thread.join()  # the answers come, and nothing is done with them
    assert len(store.asked) == asked
    assert not out.any()
    store.seconds = 0.0
    assert (array[...] == 7).all()
