"""What the drills run in processes of their own (`drills.start`)."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import zstore
from zstore.errors import StoreError, ZstoreError
from zstore.storage.local import LocalStore
from zstore.storage.url import open_store


def cells(path: str, first: str, step: str, count: str) -> None:
    """Write cell after cell, each on its own, twice."""
    array = zstore.open_array(path, "a", "r+")
    wait_for(path)
    for last in (False, True):
        for cell in range(int(first), int(count), int(step)):
            array[cell] = cell + 1 if last else -1


def shared_appends(url: str, go: str, number: str, times: str) -> None:
    """Append blocks of three items, in a store of any kind."""
    array = zstore.open_array(url, "a", "r+")
    begin_at(go)
    for turn in range(int(times)):
        array.append(np.full(3, 1000 * int(number) + turn, "i4"))


def shared_cells(url: str, go: str, first: str, step: str, count: str) -> None:
    """As `cells`, in a store of any kind."""
    array = zstore.open_array(url, "a", "r+")
    begin_at(go)
    for cell in range(int(first), int(count), int(step)):
        array[cell] = cell + 1


def shared_replacements(url: str, go: str, number: str, times: str) -> None:
    """Replace the array "b" so often, trying again where somebody else is at it."""
    begin_at(go)
    left = int(times)
    while left:
        with suppress(StoreError):
            data = np.full(60, int(number))
            made = {"chunks": (3 * int(number),), "attributes": {"who": int(number)}}
            zstore.create_array(url, "b", data=data, overwrite=True, **made)
            left -= 1


def appends(path: str, number: str, times: str) -> None:
    """Append blocks of three items that carry this writer's number."""
    array = zstore.open_array(path, "a", "r+")
    wait_for(path)
    for turn in range(int(times)):
        array.append(np.full(3, 1000 * int(number) + turn + 1))


def shared_reads(url: str, go: str, times: str) -> None:
    """Open the array anew and read all of it, again and again: every item that it has was written."""
    begin_at(go)
    for _ in range(int(times)):
        items = zstore.open_array(url, "a", "r")[...]
        assert items.all(), items


def attributes(path: str, number: str, times: str) -> None:
    """Set attributes, each of which replaces the document that writers lock on."""
    array = zstore.open_array(path, "a", "r+")
    wait_for(path)
    for turn in range(int(times)):
        array.attrs[f"{number}-{turn}"] = turn


def rewrite(path: str, options: str = "null") -> None:
    """Fill the whole array with 1, 2, 3, … until killed; say when it begins."""
    array = zstore.open_array(path, "a", "r+", storage_options=json.loads(options))
    print("ready", flush=True)
    value = 1
    while True:
        array[...] = value
        array[3:-3] = value
        value += 1


def rows(begin: int, end: int) -> np.ndarray[Any, Any]:
    """What `changes` stores in these rows."""
    return (100 * np.arange(begin, end)[:, None] + np.arange(6) + 1).astype("i4")


def change(url: str, what: str, turn: int, options: Any = None) -> None:
    """One of two changes of an array, which undo each other more or less."""
    if what in ("append", "resize"):
        array = zstore.open_array(url, "a", "r+", storage_options=options)
        if what == "append":
            if turn % 2:
                array.resize((20, 6))
            else:
                array.append(rows(array.shape[0], array.shape[0] + 7))
        else:
            array.resize((7, 6))
            array.append(rows(7, 14))
            array.resize((20, 6))
        return
    if what == "delete" and "a" in (group := zstore.open_group(url, mode="r+", storage_options=options)):
        del group["a"]
    kind = {"chunks": (4, 3)} if turn % 2 else {"chunks": (2, 3), "shards": (4, 6)}
    zstore.create_array(url, "a", data=rows(0, 9 + turn % 2), overwrite=True, storage_options=options, **kind)


def changes(url: str, what: str, options: str = "null") -> None:
    """Change an array's shape, or all of it, until killed."""
    print("ready", flush=True)
    turn = 0
    while True:
        change(url, what, turn, json.loads(options))
        turn += 1


def fill(path: str) -> None:
    """Write the whole array once, counting from 1; say when it begins."""
    array = zstore.open_array(path, mode="r+")
    print("ready", flush=True)
    array[...] = np.arange(1, array.size + 1, dtype="i4").reshape(array.shape)


def puts(path: str) -> None:
    """Put three values of 3 MB under one key in turn until killed; say when it begins."""
    store = LocalStore(path)
    values = [bytes([number]) * 3_000_000 for number in range(1, 4)]
    print("ready", flush=True)
    while True:
        for value in values:
            store.put("a/b", value)


def race(source: str, options: str, call: str) -> None:
    """Carry out a call for one target after the other, each when a line says so; say how it ended.

    The journal is written after each unit, as if each took long.
    """
    from zstore.jobs import journal

    journal.WAITING_SECONDS = journal.PAUSE = -1
    print("ready", flush=True)
    for url in map(str.strip, sys.stdin):
        stores = (open_store(each, storage_options=json.loads(options)) for each in (source, url))
        try:
            eval(call, {"zstore": zstore, **dict(zip(("source", "target"), stores, strict=True))})
            print("made", flush=True)
        except ZstoreError as error:
            print("refused:", type(error).__name__, error, flush=True)


def fail_to_build(source: str, target: str) -> None:
    """Fail to build a pyramid, say so, and live on until a line comes."""
    from zstore.geo.pyramid import build

    def fail(*args: Any, **options: Any) -> None:
        raise StoreError("the network is down")

    build.run_step = fail
    try:
        zstore.build_pyramid(source, target)
    except StoreError as error:
        print(error, flush=True)
    sys.stdin.readline()


def interrupted(path: str) -> None:
    """Read for a long time; when interrupted, say how the read ended."""
    array = zstore.open_array(path, "a", "r")
    selection = np.zeros(2_000_000, np.int64)
    print("ready", flush=True)
    try:
        while True:
            array[...]
            array[selection]
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def kept_waiting(path: str, threads: str) -> None:
    """Write to chunks that somebody else holds; when interrupted, say so, and write once more."""
    zstore.set_threads(int(threads))
    array = zstore.open_array(path, "a", "r+")
    print("ready", flush=True)
    try:
        array[1:-1] = 2
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.stdin.readline()
    array[1:-1] = 3
    print("ok", flush=True)


def forks(path: str) -> None:
    """Read and write on many threads, fork while they are at it, and read and write in the children."""
    array = zstore.open_array(path, "a", "r+")
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            array[...]
            array[::7] = 1

    array[...] = 1
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                ok = bool((array[...] == 1).all())
                array[5:9] = 1
                os._exit(0 if ok else 3)
            _, status = os.waitpid(child, 0)
            if status:
                print("child ended with", status, flush=True)
                os._exit(1)
            time.sleep(0.005)
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    print("ok", flush=True)


def fork_once(path: str) -> None:
    """Read on several threads, then fork, then read in both."""
    zstore.set_threads(4)
    array = zstore.open_array(path, "a", "r")
    assert (array[...] == 3).all()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if (array[...] == 3).all() else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert (array[...] == 3).all()
    print("ok", flush=True)


def wait_for(path: str) -> None:
    """Begin together: when the starting file is there."""
    begin_at(str(Path(path).with_suffix(".go")))


def begin_at(go: str) -> None:
    """Say "ready", and go on as soon as that file is there."""
    print("ready", flush=True)
    while not Path(go).exists():
        time.sleep(0.001)


def carry_out(name: str, arguments: Sequence[str], environment: Mapping[str, str], *ends: Connection) -> None:
    """Call a function of these, with pipes for the three standard streams."""
    os.environ.update(environment)
    for number, end in enumerate(ends):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdin = os.fdopen(0)
    # Whoever starts the tests in the background may have had this signal ignored, which is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    globals()[name](*arguments)
