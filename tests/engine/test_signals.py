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
from zstore.engine import chunks, schedulers
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


HANG = 60.0  # after so many seconds, a test fails


class SlowStore(MemoryStore):
    """A store that answers no request of chunks until it may; `came` is set by the first."""

    in_memory = False
    request_count = 8

    def __init__(self) -> None:
        super().__init__()
        self.came, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()
        self.asked: list[str] = []

    def get_many(self, requests: Any) -> Any:
        keys = [key for key, _ in requests]
        if any(not key.endswith("json") for key in keys):
            self.asked += keys
            self.wait()
        return super().get_many(requests)

    def few_entries(self, prefix: str, most: int) -> None:
        if not self.may_answer.is_set():
            self.asked.append(prefix)
            self.wait()

    def wait(self) -> None:
        self.came.set()
        self.may_answer.wait(HANG)


def interrupt_after(came: threading.Event) -> None:
    """Interrupt this process when `came` is set, and it is likely to wait already."""

    def interrupt() -> None:
        if came.wait(HANG):
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()


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
    store.asked = []
    store.came.clear()
    store.may_answer.clear()
    out = np.zeros(array.shape, array.dtype)
    before = {*threading.enumerate()}
    interrupt_after(store.came)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read(array, out)
    assert time.monotonic() - begin < HANG / 2  # nobody has been answered
    asked = len(store.asked)
    assert asked > 0
    store.may_answer.set()
    for thread in {*threading.enumerate()} - before:
        thread.join()  # the answers come, and nothing is done with them
    assert len(store.asked) == asked
    assert not out.any()
    assert (array[...] == 7).all()


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.usefixtures("hears_interrupts")
def test_an_interrupt_is_heard_while_codecs_in_python_decode(monkeypatch, count):
    """Two chunks in one window, and chunks in windows on threads."""
    monkeypatch.setattr(schedulers, "thread_count", lambda: 2)
    monkeypatch.setattr(chunks, "windows", lambda *_: (40 // count, 4))
    store = SlowStore()
    bz2 = {"name": "numcodecs.bz2", "configuration": {"level": 1}}
    array = zstore.create_array(store, shape=(40,), dtype="u4", chunks=(40 // count,), compressors=[bz2])
    array[...] = 7
    decode, came, may_decode = chunks.RegularChunks._plain, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        came.set()
        may_decode.wait(HANG)
        return decode(*arguments)

    monkeypatch.setattr(chunks.RegularChunks, "_plain", slowly)
    out = np.zeros(array.shape, array.dtype)
    before = {*threading.enumerate()}
    interrupt_after(came)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        array.read(out=out)
    assert time.monotonic() - begin < HANG / 2  # nothing has been decoded
    may_decode.set()
    for thread in {*threading.enumerate()} - before:
        thread.join()  # what they decode is for nobody
    assert not out.any()
    monkeypatch.undo()
    assert (array[...] == 7).all()


# What is encoded or decoded as one chunk: long enough to be interrupted in the midst.
LONG = {
    "zstd": {"name": "zstd", "configuration": {"level": 19, "checksum": False}},
    "gzip": {"name": "gzip", "configuration": {"level": 9}},
    "blosc": {
        "name": "blosc",
        "configuration": {
            "cname": "zlib",
            "clevel": 9,
            "shuffle": "noshuffle",
            "typesize": 1,
            "blocksize": 0,
        },
    },
}


def noise(size: int) -> np.ndarray[Any, Any]:
    """Bytes of 1 to 16, which no codec is done with soon."""
    return np.random.default_rng(0).integers(1, 17, size, "u1")


@pytest.fixture
def after_work():
    """A function that has this process interrupted when it has worked for so many seconds."""
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("codec", LONG)
def test_an_interrupt_is_heard_while_one_large_chunk_is_encoded(tmp_path, after_work, codec):
    size = 32 << 20
    array = zstore.create_array(tmp_path, shape=size, dtype="u1", chunks=size, compressors=[LONG[codec]])
    data, begin = noise(size), time.process_time()
    after_work(0.02)
    with pytest.raises(KeyboardInterrupt):
        array[...] = data
    assert time.process_time() - begin < 0.4
    assert [path.name for path in tmp_path.rglob("*")] == ["zarr.json"]
    array[:3] = 0
    assert array[0] == 0 and array.nchunks_initialized == 0


@pytest.mark.parametrize(
    ("codec", "size"), [("gzip", 56 << 20), pytest.param("zstd", 1 << 29, marks=pytest.mark.slow)]
)
def test_an_interrupt_is_heard_while_one_large_chunk_is_decoded(tmp_path, after_work, codec, size):
    quick = {"name": codec, "configuration": LONG[codec]["configuration"] | {"level": 1}}
    array = zstore.create_array(tmp_path, shape=size, dtype="u1", chunks=size, compressors=[quick])
    array[...] = noise(size)
    out, took = np.ones(size, "u1"), []
    for _ in range(3):  # the first time, the file and the memory are new
        begin = time.process_time()
        array.read(out=out)
        took.append(time.process_time() - begin)
    out[...] = 0
    after_work(min(took) / 4)  # beside other processes the same read has taken twice as long
    with pytest.raises(KeyboardInterrupt):
        array.read(out=out)
    assert out[0] and not out[-1]
    assert array.read(out=out)[-1]
