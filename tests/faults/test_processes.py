"""Processes that are killed, interrupted or forked while they read and write."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import zstore
from zstore.storage.local import LocalStore

from .drills import start

KINDS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (64,)},
    "shards": {"chunks": (16,), "shards": (128,)},
    "v2": {"chunks": (64,), "zarr_format": 2},
    "python": {"chunks": (64,), "compressors": [{"name": "numcodecs.bz2", "configuration": {"level": 1}}]},
}
SHAPE = 1000


def kill_writers(path: Path, kind: str, times: int) -> None:
    rng = random.Random(7)
    array = zstore.create_array(LocalStore(path), "a", shape=SHAPE, dtype="i8", **KINDS[kind])
    array[...] = -1
    outer = (array.shards or array.chunks)[0]
    for _ in range(times):
        process = start("rewrite", path)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.002, 0.05))
        process.kill()
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
        again = zstore.open_array(path, "a", "r+")
        listed = list(again.store.list())
        assert not [key for key in listed if ".zstore-tmp" in key]
        items = again[...]
        for at in range(0, SHAPE, outer):
            chunk = items[at : at + outer]
            # The write of all but three items at either end is a write of its own.
            inside = chunk[3 if at == 0 else 0 : len(chunk) - (3 if at + outer >= SHAPE else 0)]
            assert (inside == inside[0]).all(), f"half a write at {at}: {chunk}"
            assert inside[0] == -1 or inside[0] > 0
        assert [file for file in path.rglob("*") if ".zstore-tmp" in str(file)] == []
        again[5] = 5
        assert again[5] == 5
        again[...] = -1


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_writer_leaves_chunks_old_or_new(tmp_path, kind):
    kill_writers(tmp_path / "store", kind, 5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_killed_writers(tmp_path, kind):
    kill_writers(tmp_path / "store", kind, 200)


def test_temporaries_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    path = tmp_path / "store"
    zstore.create_array(LocalStore(path), "a", shape=SHAPE, dtype="i8", chunks=(64,))[...] = 1
    living = start("rewrite", path)
    try:
        assert living.stdout is not None
        assert living.stdout.readline() == "ready\n"
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            assert zstore.open_array(path, "a", "r+").shape == (SHAPE,)
        assert living.poll() is None, living.communicate()
    finally:
        living.kill()
        living.communicate(timeout=30)
    zstore.open_array(path, "a", "r+")
    assert [file for file in path.rglob("*") if ".zstore-tmp" in str(file)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_read_can_be_interrupted(tmp_path, kind):
    path = tmp_path / "store"
    array = zstore.create_array(LocalStore(path), "a", shape=300_000, dtype="i8", **KINDS[kind])
    array[...] = 1
    process = start("interrupted", path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    try:
        out, errors = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        # An interrupt that comes while Python runs a finalizer is printed there, and goes no further.
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
        assert "Exception ignored" in errors, errors
    assert out == "interrupted\n", errors
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("kind", "held", "threads"),
    [
        ("chunks", "first", 1),
        ("chunks", "last", 2),
        ("chunks", "all", 4),
        ("shards", "last", 2),
        ("shards", "all", 4),
    ],
)
def test_a_write_that_waits_for_a_chunk_can_be_interrupted(tmp_path, kind, held, threads):
    path = tmp_path / "store"
    store = LocalStore(path)
    array = zstore.create_array(store, "a", shape=SHAPE, dtype="i8", **KINDS[kind])
    array[...] = 1
    outer = (array.shards or array.chunks)[0]
    keys = [f"a/c/{number}" for number in range(-(-SHAPE // outer))]
    with ExitStack() as ending, ExitStack() as locks:
        for key in {"first": keys[:1], "last": keys[-1:], "all": keys}[held]:
            locks.enter_context(store.lock(key))
        process = ending.enter_context(start("kept_waiting", path, threads))
        ending.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        # While the locks are held: a process that goes on waiting for them is killed, and says nothing.
        killer = threading.Timer(30, process.kill)
        killer.start()
        assert process.stdout.readline() == "interrupted\n"
        killer.cancel()
        locks.close()
        for key in keys:  # nothing of the interrupted write stays locked
            with store.lock(key):
                pass
        out, errors = process.communicate("\n", timeout=30)
        assert (process.returncode, out) == (0, "ok\n"), errors
    assert array[:].tolist() == [1] + [3] * (SHAPE - 2) + [1]


@pytest.mark.parametrize("kind", KINDS)
def test_forks_in_the_midst_of_reads_and_writes(tmp_path, kind):
    path = tmp_path / "store"
    zstore.create_array(LocalStore(path), "a", shape=SHAPE, dtype="i8", **KINDS[kind])
    process = start("forks", path)
    out, errors = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, "ok\n"), errors


def test_reads_after_a_fork_use_threads_of_their_own(tmp_path):
    path = tmp_path / "store"
    zstore.create_array(LocalStore(path), "a", shape=300_000, dtype="i8", chunks=(20_000,))[...] = 3
    process = start("fork_once", path)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "ok\n"), errors
