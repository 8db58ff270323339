"""Ctrl-C while a bucket takes long to answer: each call is left at once, and the same call then does all."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.storage.base import Store
from zstore.storage.objects import library
from zstore.storage.url import open_store

from ..storage.bucket_server import BucketServer

CELLS = np.arange(1, 65 * 64 + 1, dtype="i4").reshape(65, 64)
LARGE = np.arange(6, dtype="u1").repeat(1 << 19).reshape(6, -1)


@pytest.fixture
def hears_interrupts():
    # Whoever is started in the background may ignore them.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Places:
    """A bucket with a group "s", its array "a" and a large one, all opened before the bucket is slow."""

    def __init__(self, server: BucketServer) -> None:
        self.server = server
        zstore.create_group(self("s"))
        zstore.create_array(self("s"), "a", data=CELLS, chunks=(8, 8), dimension_names=("y", "x"))
        self.array = self.opened()
        self.large = zstore.create_array(self("large"), data=LARGE, chunks=(1, 1 << 19), compressors=None)
        self.time = 0

    def __call__(self, place: str) -> Store:
        return open_store(f"s3://b/{place}", storage_options=self.server.options())

    def opened(self) -> zstore.Array:
        return zstore.open_array(self("s"), "a", mode="r+")

    def write(self) -> None:
        """Write other values each time."""
        self.time += 1
        self.array[...] = self.time

    def is_written(self) -> bool:
        """Whether the last values stay, when the bucket has come to the end of all requests."""
        while self.server.hanging:
            time.sleep(0.01)
        return bool((self.opened()[...] == self.time).all())


Act = Callable[[Places], Any]
# The requests that take long: all of them, or those of chunks.
ALL, CHUNKS = "", "/c/"


def job(run: Callable[..., Any], **how: Any) -> Act:
    """A job, which goes on where it was interrupted."""
    return lambda at: run(at("s"), at("t"), resume=True, **how)


def new(at: Places) -> Any:
    return zstore.create_array(at("s"), "new", data=CELLS, chunks=8, overwrite=True)


# What is done in a bucket, which requests take long, and what is there afterwards.
REMOTE: dict[str, tuple[Act, str, Act]] = {
    "open": (lambda at: at.opened(), ALL, lambda at: at.opened().shape == (65, 64)),
    "read": (lambda at: at.array[...], ALL, lambda at: (at.opened()[...] == CELLS).all()),
    "read a part": (lambda at: at.array[3, 5:60], ALL, lambda at: at.opened()[3, 5] == CELLS[3, 5]),
    "read large chunks": (lambda at: at.large[...], ALL, lambda at: (at.large[...] == LARGE).all()),
    "write": (Places.write, ALL, Places.is_written),
    "write a part": (lambda at: at.array.__setitem__((3, 5), 7), ALL, lambda at: at.opened()[3, 5] == 7),
    "append": (lambda at: at.array.append(CELLS[:8]), CHUNKS, lambda at: at.opened()[72, 63] == CELLS[7, 63]),
    "resize": (lambda at: at.array.resize((20, 64)), ALL, lambda at: at.opened().shape == (20, 64)),
    "create": (new, CHUNKS, lambda at: (zstore.open_array(at("s"), "new")[...] == CELLS).all()),
    "look, and create": (new, ALL, lambda at: (zstore.open_array(at("s"), "new")[...] == CELLS).all()),
    "delete": (
        lambda at: zstore.open_group(at("s"), mode="r+").__delitem__("a"),
        ALL,
        lambda at: "a" not in zstore.open_group(at("s")),
    ),
    "attributes": (lambda at: at.array.attrs.update(x=1), ALL, lambda at: at.opened().attrs["x"] == 1),
    "copy": (job(zstore.copy), CHUNKS, lambda at: (zstore.open_array(at("t"), "a")[...] == CELLS).all()),
    "convert": (
        job(zstore.convert, chunks=16),
        CHUNKS,
        lambda at: (zstore.open_array(at("t"), "a")[...] == CELLS).all(),
    ),
    "pyramid": (
        job(zstore.build_pyramid, chunks=16),
        CHUNKS,
        lambda at: (zstore.open_array(at("t"), "0/a")[...] == CELLS).all(),
    ),
    "reduce": (
        lambda at: zstore.reduce(at.array, "max"),
        ALL,
        lambda at: zstore.reduce(at.opened(), "max") == 4160,
    ),
    "verify": (lambda at: zstore.verify(at("s")), CHUNKS, lambda at: zstore.verify(at("s")).is_sound),
}
# Seconds until an interrupt is heard on a machine that has other work; a request takes twice as long.
LONGEST, HANG = 15.0, 30.0
USUAL = ("read", "write", "create", "convert")


def is_slow(server: BucketServer) -> None:
    """Wait until the bucket is at a request that takes long, for a moment already."""
    while not server.faulty["hang"] and not server.faulty["slow"]:
        time.sleep(0.01)
    time.sleep(0.3)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(name, fault, marks=() if name in USUAL else pytest.mark.slow)
        for name, fault in product(REMOTE, ("hang", "slow"))
        if (name, fault) != ("create", "slow")  # chunks are put only, and no answer to that has a body
    ],
)
@pytest.mark.usefixtures("hears_interrupts")
def test_an_interrupt_is_heard_while_a_bucket_is_waited_for(name, fault):
    """Each request takes long, or each body comes byte by byte; the same call then does all of it."""
    pytest.importorskip("obstore", reason="the package behind the store")
    act, slow_ones, is_done = REMOTE[name]
    with BucketServer() as server:
        at = Places(server)
        before = {*threading.enumerate()}
        server.hang_time, server.faulty_path, server.faults = HANG, slow_ones, {fault: 1.0}
        sent: list[float] = []

        def interrupt() -> None:
            is_slow(server)
            # Nor is the call to wait for what it asks to clean up behind itself.
            server.faulty_path = ALL
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            act(at)
        assert time.monotonic() - sent[0] < LONGEST
        asked = len(server.requests)
        server.faults = {}
        server.may_go_on.set()
        for thread in threading.enumerate():
            if thread not in before and thread.name == "zstore-working":
                thread.join(20)
                assert not thread.is_alive()
        assert len(server.requests) == asked
        act(at)
        assert is_done(at)


@pytest.mark.parametrize("libcurl", ["on", "off"])
@pytest.mark.usefixtures("hears_interrupts")
def test_what_is_being_put_comes_to_its_end_before_anything_else(libcurl, monkeypatch):
    """Nobody knows whether the bucket keeps it: it must not come after what is put next."""
    pytest.importorskip("obstore", reason="the package behind the store")
    monkeypatch.setenv("ZSTORE_LIBCURL", libcurl)
    came, hold = threading.Event(), threading.Event()
    with BucketServer() as server:
        serve = server.serve

        def held(request: Any) -> None:
            if request.command == "PUT" and request.path.endswith("/first"):
                came.set()
                assert hold.wait(20)
            serve(request)

        monkeypatch.setattr(server, "serve", held)
        store = open_store("s3://b/s", storage_options=server.options())

        def interrupt() -> None:
            assert came.wait(20)
            # The event loop is late to hear of it, as where a machine has other work.
            library._own_loop().call_soon_threadsafe(time.sleep, 0.6)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            store.put("first", b"1")
        other = threading.Thread(target=store.put, args=("other", b"2"))
        other.start()
        time.sleep(0.3)
        assert server.requests == []
        hold.set()
        other.join(20)
        assert server.requests == [("PUT", "/b/s/first"), ("PUT", "/b/s/other")]
        assert server.values == {"/b/s/first": b"1", "/b/s/other": b"2"}


@pytest.mark.parametrize("libcurl", ["on", "off"])
def test_an_awaited_write_that_is_cancelled_does_not_wait_for_the_bucket(libcurl, monkeypatch):
    pytest.importorskip("obstore", reason="the package behind the store")
    monkeypatch.setenv("ZSTORE_LIBCURL", libcurl)
    came, hold = threading.Event(), threading.Event()
    with BucketServer() as server:
        serve = server.serve
        array = zstore.create_array("s3://b/a", data=CELLS, chunks=8, storage_options=server.options())

        def held(request: Any) -> None:
            if request.command == "PUT":
                came.set()
                assert hold.wait(60)
            serve(request)

        monkeypatch.setattr(server, "serve", held)

        async def cancel() -> None:
            task = asyncio.ensure_future(array.write_async(np.s_[...], CELLS + 1))
            assert await asyncio.to_thread(came.wait, 20)
            begin = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - begin < 10  # of the 60 that the bucket takes

        asyncio.run(cancel())
        threading.Timer(0.3, hold.set).start()  # it has ended, and nobody has been answered yet
        array[...] = CELLS + 2
        assert (array[...] == CELLS + 2).all()


CONVERT = ["s3://b/s", "s3://b/t", "--chunks", "16,16"]
COMMANDS = {
    "copy": ["s3://b/s", "s3://b/t"],
    "verify": ["s3://b/s"],
    "validate": ["s3://b/s"],
    "pyramid": ["s3://b/s", "s3://b/t"],
    "reduce": ["s3://b/s", "s3://b/t", "--method", "max"],
    "info": ["s3://b/s"],
    "tree": ["s3://b/s"],
    "consolidate": ["s3://b/s"],
}


@pytest.mark.parametrize(
    "command",
    ["convert", *(pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS)],
)
def test_an_interrupt_ends_a_command(command):
    pytest.importorskip("obstore", reason="the package behind the store")
    pytest.importorskip("click", reason="what commands are made with")
    with BucketServer() as server:
        Places(server)
        server.hang_time, server.faults = HANG, {"hang": 1.0}
        words = {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
        }
        # Whoever is started in the background may ignore the signal; Python hears it only where it does not.
        hears = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
        run = f"{hears}; from zstore.cli.main import main; sys.argv[0] = 'zstore'; main()"
        line = [sys.executable, "-c", run, command, *COMMANDS.get(command, CONVERT)]
        process = subprocess.Popen(line, env={**os.environ, **words}, stderr=subprocess.PIPE)
        is_slow(server)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert time.monotonic() - sent < LONGEST
    assert told == b"\nAborted!\n"
    assert process.returncode == -signal.SIGINT
