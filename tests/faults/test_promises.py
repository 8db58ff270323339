"""What the README promises, on every store that it names."""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

import zstore
from zstore.errors import CodecError, ExtensionError, NotFoundError, StoreError
from zstore.storage.base import PrefixStore, Store
from zstore.storage.url import open_store

from ..storage.bucket_server import BucketServer
from .drills import FailingStore, start, wait_together
from .writers import change, rows

ITEMS = (np.arange(40 * 50) % 251).astype("u2").reshape(40, 50)
LAYOUTS = {
    "chunks": {"chunks": (7, 16), "compressors": ["zstd", "crc32c"]},
    "shards": {"chunks": (5, 5), "shards": (20, 25), "compressors": "zstd"},
    "v2": {"chunks": (7, 16), "compressors": "blosc", "zarr_format": 2},
}
# Where several processes write at once, and where one has the store to itself.
SHARED = ("directory", "sqlite", "lmdb", "redis", "s3")
ALONE = ("memory", "zip", "dbm")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not installed (.ci/servers installs it)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen([*words, "--dir", str(tmp_path_factory.mktemp("redis"))], stdout=-3)
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.02)
    yield f"redis://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    # Not moto, which compares a condition and puts in two steps, between which another writer may come.
    with BucketServer() as server, pytest.MonkeyPatch.context() as patch:
        settings = {
            "AWS_ENDPOINT": server.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        for name, value in settings.items():
            patch.setenv(name, value)
        yield "obstore+s3://promises"


@pytest.fixture
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The URL of a new, empty store of a kind."""

    def url(kind: str) -> str:
        if kind in ("redis", "s3"):
            server = request.getfixturevalue({"s3": "bucket"}.get(kind, kind))
            found = f"{server}/{'0/' if kind == 'redis' else ''}{uuid4().hex}"
        elif kind in ("directory", "zip"):
            return str(tmp_path / {"directory": "store", "zip": "store.zip"}[kind])
        elif kind == "memory":
            return f"memory://{uuid4().hex}"
        else:
            found = f"{kind}://{'/' if kind == 'sqlite' else ''}{tmp_path / 'store'}"
        try:
            open_store(found).close()
        except ExtensionError as error:
            pytest.skip(f"zstore-{'obstore' if kind == 's3' else kind} is not installed, so {error}")
        return found

    return url


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [*SHARED, *ALONE])
def test_results_equal_numpys_and_damage_is_an_error(url_of, kind, layout):
    with open_store(url_of(kind)) as store:
        array = zstore.create_array(store, "a", data=ITEMS, **LAYOUTS[layout])
        expected = ITEMS.copy()
        rng = np.random.default_rng(5)
        for selection in (
            np.s_[3:29:4, ::-3],
            np.s_[-1],
            np.s_[..., 49],
            ([3, 3, -1], slice(9, 30)),
            expected % 3 == 0,
        ):
            np.testing.assert_array_equal(array[selection], expected[selection])
            values = rng.integers(0, 9, expected[selection].shape, "u2")
            array[selection] = values
            if not isinstance(selection, tuple) or not isinstance(selection[0], list):
                expected[selection] = values
            else:  # one place, written twice, holds one of both
                expected[selection] = array[selection]
        np.testing.assert_array_equal(zstore.open_array(store, "a", "r")[...], expected)
        chunks = sorted(
            key for key in store.list("a") if not key.endswith(("zarr.json", ".zarray", ".zattrs"))
        )
        key = chunks[-1]
        sound = bytes(store.get(key))
        flipped = sound[:-3] + bytes([sound[-3] ^ 16]) + sound[-2:]
        for damaged in (
            sound[: len(sound) // 2],
            b"",
            b"\xff" * len(sound),
            *([flipped] if layout != "v2" else []),
        ):
            store.put(key, damaged)
            with pytest.raises(CodecError, match="a"):
                zstore.open_array(store, "a", "r")[...]
            np.testing.assert_array_equal(zstore.open_array(store, "a", "r")[:5, :5], expected[:5, :5])
        store.put(key, sound)
        np.testing.assert_array_equal(zstore.open_array(store, "a", "r")[...], expected)


class Meeting(PrefixStore):
    """Both of two threads have looked for what is in the way when they begin to put what is new.

    `is_late`: the second begins when the first is done.
    """

    def __init__(self, store: Store, is_late: bool) -> None:
        super().__init__(store, "")
        self.both, self.is_late = threading.Barrier(2), is_late
        self.met, self.is_done = threading.local(), threading.Event()

    def put_new(self, key: str, value: bytes | bytearray | memoryview) -> str | None:
        if not getattr(self.met, "is_met", False):
            self.met.is_met = True
            if self.both.wait(60) and self.is_late:
                assert self.is_done.wait(60)
        return super().put_new(key, value)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("kind", [*SHARED, *ALONE])
def test_of_two_who_make_the_same_node_one_is_refused(url_of, kind, filled, is_late):
    with open_store(url_of(kind)) as store:
        zstore.create_group(store)
        meeting = Meeting(store, is_late)

        def make(number: int) -> str:
            made = {"data": np.full(40, number)} if filled else {"shape": 40, "dtype": "i8"}
            try:
                zstore.create_array(meeting, "a", chunks=(4 * number,), attributes={"who": number}, **made)
            except StoreError as error:
                return str(error)
            finally:
                meeting.is_done.set()
            return ""

        with ThreadPoolExecutor(2) as pool:
            said = dict(zip((1, 2), pool.map(make, (1, 2)), strict=True))
        [first] = [number for number in said if not said[number]]
        assert "cannot create" in "".join(said.values())
        found = zstore.open_array(store, "a")
        assert (found.attrs["who"], found.chunks) == (first, (4 * first,))
        assert (found[...] == (first if filled else 0)).all()
        assert not [key for key in store.list("a") if "unfinished" in key]


# A lock of Redis is free again so many seconds after the death of who held it.
OPTIONS = {"redis": {"lock_timeout": 1.0}}


def kill_writers(url: str, times: int) -> None:
    rng = random.Random(11)
    options = OPTIONS.get(url.partition(":")[0])
    array = zstore.create_array(
        url, "a", shape=1000, dtype="i8", chunks=(16,), shards=(128,), storage_options=options
    )
    array[...] = -1
    for _ in range(times):
        process = start("rewrite", url, json.dumps(options))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        time.sleep(rng.uniform(0.002, 0.08))
        process.kill()
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
        items = zstore.open_array(url, "a", "r")[...]
        for at in range(0, 1000, 128):
            # All but three items at either end of the array are written once more.
            shard = items[max(at, 3) : min(at + 128, 997)]
            assert (shard == shard[0]).all(), f"half a write at {at}: {shard}"
            assert shard[0] == -1 or shard[0] > 0
        again = zstore.open_array(url, "a", "r+", storage_options=options)
        again[...] = -1
        assert (again[...] == -1).all()


@pytest.mark.parametrize("kind", SHARED)
def test_a_chunk_is_old_or_new_whatever_kills_the_writer(url_of, kind):
    kill_writers(url_of(kind), 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARED)
def test_chunks_are_old_or_new_however_often_writers_are_killed(url_of, kind):
    kill_writers(url_of(kind), 200)


def kill_changes(url: str, what: str, times: int) -> None:
    rng = random.Random(13)
    options = OPTIONS.get(url.partition(":")[0])
    zstore.create_group(url, storage_options=options)
    whole = {"shape": (20, 6), "dtype": "i4", "chunks": (4, 3), "overwrite": True, "storage_options": options}
    zstore.create_array(url, "a", **whole)[...] = rows(0, 20)
    for turn in range(times):
        process = start("changes", url, what, json.dumps(options))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        time.sleep(rng.uniform(0.002, 0.12))
        process.kill()
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
        found = zstore.open_group(url, mode="r").get("a")
        if found is None:
            assert what in ("overwrite", "delete")
        else:
            items = found[...]
            if what == "resize" and len(items) == 20:
                # Rows that a larger shape added, over those that the smaller one had cut.
                assert (items[14:] == 0).all() or turn == 0, items
                items = items[:14]
            np.testing.assert_array_equal(items, rows(0, len(items)))
            assert len(items) in {"append": (20, 27), "resize": (7, 14, 20)}.get(what, (9, 10, 20))
        change(url, what, 0, options)
        if what == "append":
            zstore.open_array(url, "a", "r+", storage_options=options).resize((20, 6))
        elif what != "resize":
            assert (zstore.open_array(url, "a", "r")[...] == rows(0, 9)).all()


@pytest.mark.parametrize("kind", [*SHARED, *ALONE])
def test_what_a_store_refused_can_be_done_again(url_of, kind):
    url = url_of(kind)
    with open_store(url) as inner:
        store = FailingStore(inner, "")
        new = {"data": rows(0, 9), "chunks": (4, 6), "overwrite": True}
        for call in ("overwrite", "delete", "append", "shrink", "group"):
            for number in (1, 4) if kind == "s3" else (*range(6), 1 << 30):
                store.left = 1 << 30
                group = zstore.create_group(store, overwrite=True)
                old = group.create_array("g/a", **{**new, "data": rows(0, 20)})
                act = {
                    "overwrite": lambda group=group: group.create_array("g/a", **new),
                    "delete": lambda group=group: group.__delitem__("g"),
                    "append": lambda old=old: len(old) == 20 and old.append(rows(20, 29)),
                    "shrink": lambda old=old: old.resize((9, 6)),
                    "group": lambda group=group: group.create_group("g", overwrite=True),
                }[call]
                store.left, store.times = number, 1 << 29
                try:
                    act()
                except StoreError:
                    assert number < (1 << 29)
                    store.left = 1 << 30
                    found = group.get("g/a")
                    lengths = (20, 29) if call == "append" else (9, 20)
                    assert found is None or len(found) in lengths
                    assert found is None or (found[...] == rows(0, len(found))).all()
                    old.refresh() if call in ("append", "shrink") else None
                    with suppress(NotFoundError):
                        act()
                found = group.get("g/a")
                if call in ("delete", "group"):
                    assert found is None
                    assert ("g" in group) == (call == "group")
                else:
                    assert (found[...] == rows(0, 29 if call == "append" else 9)).all()
                    assert len(found) == (29 if call == "append" else 9)
                assert not [key for key in store.list("g") if key.startswith("g/a/") and found is None]


CHANGES = ("append", "resize", "overwrite", "delete")
CHANGED = [("directory", what) for what in CHANGES] + [
    (kind, what) for kind in SHARED[1:] for what in ("append", "overwrite")
]


@pytest.mark.parametrize(("kind", "what"), CHANGED)
def test_an_array_is_old_or_new_whatever_kills_who_changes_it(url_of, kind, what):
    kill_changes(url_of(kind), what, 2)


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("kind", SHARED)
def test_arrays_are_old_or_new_however_often_changes_are_killed(url_of, kind, what):
    kill_changes(url_of(kind), what, 200)


def test_what_was_flushed_into_a_zip_survives_a_killed_writer(url_of):
    url = url_of("zip")
    with open_store(url) as store:
        zstore.create_array(store, "a", shape=1000, dtype="i8", chunks=(16,))[...] = -1
    for pause in (0.0, 0.02, 0.1):
        process = start("rewrite", url)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        time.sleep(pause)
        process.kill()
        process.communicate(timeout=30)
        assert (zstore.open_array(url, "a", "r")[...] == -1).all()


@pytest.mark.parametrize("kind", SHARED)
def test_concurrent_processes_lose_nothing(url_of, kind, tmp_path):
    url, count = url_of(kind), 36
    zstore.create_array(url, "a", shape=64, dtype="i4", chunks=(8,), shards=(64,))
    go = tmp_path / "go"
    wait_together(go, [start("shared_cells", url, go, first, 3, count) for first in range(3)])
    items = zstore.open_array(url, "a", "r")[...]
    np.testing.assert_array_equal(items[:count], np.arange(count) + 1)
    assert not items[count:].any()
    go.unlink()
    wait_together(go, [start("shared_replacements", url, go, number, 5) for number in (1, 2, 3)])
    array = zstore.open_array(url, "b", "r")
    assert (array[...] == array.attrs["who"]).all()
    assert len([*array.store.list("b")]) == 1 + -(-60 // array.chunks[0])


@pytest.mark.parametrize("kind", SHARED)
def test_concurrent_appenders_never_meet(url_of, kind, tmp_path):
    url, times = url_of(kind), 8
    zstore.create_array(url, "a", shape=0, dtype="i4", chunks=(4,), shards=(16,))
    go = tmp_path / "go"
    appenders = [start("shared_appends", url, go, number, times) for number in (1, 2, 3)]
    wait_together(go, [*appenders, start("shared_reads", url, go, 3 * times)])
    blocks = zstore.open_array(url, "a", "r")[...].reshape(-1, 3)
    assert (blocks == blocks[:, :1]).all()
    assert sorted(blocks[:, 0]) == [1000 * number + turn for number in (1, 2, 3) for turn in range(times)]


@pytest.mark.parametrize("kind", ALONE)
def test_concurrent_threads_lose_nothing(url_of, kind):
    with open_store(url_of(kind)) as store:
        array = zstore.create_array(store, "a", shape=64, dtype="i4", chunks=(8,), shards=(64,))
        barrier = threading.Barrier(4)

        def write(first: int) -> None:
            barrier.wait()
            for cell in range(first, 64, 4):
                array[cell] = cell + 1

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(write, first) for first in range(4)]:
                done.result()
        np.testing.assert_array_equal(zstore.open_array(store, "a", "r")[...], np.arange(64) + 1)
