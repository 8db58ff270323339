"""What only a directory can do wrong: crashes, links, other file systems, locks between processes."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import zstore
from zstore._ext.engine import files
from zstore._ext.engine.files import SCRATCH, file_mode
from zstore.base.byterange import ByteRange
from zstore.engine.making import delete_node
from zstore.errors import ChangedError, NotFoundError, StoreError
from zstore.storage import base as locking
from zstore.storage import local
from zstore.storage.base import SHAPE_LOCK, PrefixStore
from zstore.storage.local import LocalStore, make_directory
from zstore.storage.memory import MemoryStore
from zstore.testing.sharing import run_forked

from ..faults.drills import start
from ..faults.syscalls import while_failing


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_killed_writer_leaves_the_old_value_or_the_new(tmp_path: Path) -> None:
    draw, left_over = random.Random(3), 0
    for _ in range(8):
        with start("puts", tmp_path) as writer:
            assert writer.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0.0, 0.05))
            writer.kill()
        assert writer.returncode == -signal.SIGKILL
        left_over += SCRATCH in names(tmp_path)
        store = LocalStore(tmp_path)
        assert SCRATCH not in names(tmp_path)
        value = store.get("a/b")
        assert value is None or (len(value) == 3_000_000 and len(set(value)) == 1)
        assert [*store.list()] in ([], ["a/b"])
    assert left_over, "no kill came while a value was being written, so nothing was tested"


def test_the_files_of_a_living_writer_survive_an_opening(tmp_path: Path) -> None:
    scratch = tmp_path / SCRATCH
    (scratch / "tree/below").mkdir(parents=True)
    (scratch / "tree/below/x").write_bytes(b"half deleted")
    (scratch / "dead").write_bytes(b"half")
    with (scratch / "alive").open("wb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        LocalStore(tmp_path, read_only=True)
        assert names(scratch) == ["alive", "dead", "tree"]
        store = LocalStore(tmp_path)
        assert names(scratch) == ["alive"]
        assert [*store.list()] == store.list_children() == []
    LocalStore(tmp_path)
    assert names(tmp_path) == []


def test_temporaries_are_gone_after_a_put(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    store.put("a", b"1")
    store.put("b/c", b"2")
    assert names(store.root) == ["a", "b"]


def test_whoever_opens_an_array_looks_once_for_temporaries_of_the_dead(tmp_path, monkeypatch) -> None:
    zstore.create_array(tmp_path, shape=4, dtype="u1")
    asked, ask = list[str](), local.file_mode
    monkeypatch.setattr(local, "file_mode", lambda path: asked.append(path) or ask(path))
    array = zstore.open_array(tmp_path, mode="r+")
    assert sum(path.endswith(SCRATCH) for path in asked) == 1
    scratch = tmp_path / SCRATCH
    scratch.mkdir()
    zstore.open_array(array.store, mode="r+")  # the store may have been open for long
    assert not scratch.exists()


@pytest.mark.parametrize("key", [SCRATCH, f"{SCRATCH}/x", f"a/{SCRATCH}.x"])
def test_the_names_of_temporaries_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(StoreError, match="the store's own"):
        LocalStore(tmp_path).put(key, b"")


@pytest.fixture(params=["openat2", "realpath"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStore:
    files.use_openat2(request.param == "openat2")
    request.addfinalizer(lambda: files.use_openat2(True))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"secret")
    store = LocalStore(tmp_path / "store")
    store.put("in/x", b"inside")
    return store


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_that_leads_out_is_refused(store: LocalStore, absolute: bool) -> None:
    outside = store.root.parent / "outside"
    (store.root / "file").symlink_to(outside / "secret" if absolute else "../outside/secret")
    (store.root / "directory").symlink_to(outside if absolute else "../outside")
    (store.root / "broken").symlink_to(outside / "nothing" if absolute else "../outside/nothing")
    for key in ("file", "directory/secret", "directory/nothing", "broken"):
        with pytest.raises(StoreError) as caught:
            store.get(key)
        assert caught.value.key == key
        # Where realpath tells nothing of what does not exist, this is one to nothing.
        is_to_nothing = key == "broken" and "leads to nothing" in str(caught.value)
        assert is_to_nothing or "leads out of the store" in str(caught.value)
        with pytest.raises(StoreError):
            store.size(key)
        assert store.entry(key) == (key, 0, None)
    for act in (
        lambda: store.put("directory/new", b""),
        lambda: store.delete("directory/secret"),
        lambda: store.delete_prefix("directory"),
        lambda: [*store.list("directory")],
        lambda: store.list_children("directory"),
        lambda: store.local_path("directory"),
    ):
        with pytest.raises(StoreError, match="leads out of the store"):
            act()
    assert sorted(store.list()) == ["broken", "directory", "file", "in/x"]
    store.put("file", b"mine")  # replaces the link, not what it leads to
    store.put("broken", b"mine")
    assert store.get("broken") == b"mine"
    store.delete("directory")
    store.delete_prefix("")
    assert names(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert names(store.root) == []


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_that_stays_inside_is_followed(store: LocalStore, absolute: bool) -> None:
    (store.root / "link").symlink_to(store.root / "in" if absolute else "in")
    assert store.get("link/x") == b"inside"
    assert sorted(store.list()) == ["in/x", "link/x"]
    store.put("link/y", b"through")
    assert store.get("in/y") == b"through"
    store.delete_prefix("link")
    assert sorted(store.list()) == ["in/x", "in/y"]


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_to_nothing_is_no_missing_value(store: LocalStore, absolute: bool) -> None:
    """As git-annex leaves those whose content was not fetched: a chunk that is there, and cannot be read."""
    array = zstore.create_array(store, "a", data=np.arange(4), chunks=2)
    (store.root / "a/c/1").unlink()
    (store.root / "a/c/1").symlink_to(store.root / "gone/x" if absolute else "../../gone/x")
    (store.root / "directory").symlink_to(store.root / "nothing" if absolute else "nothing")
    acts = [partial(act, key) for act in (store.get, store.size) for key in ("a/c/1", "directory/x/y")]
    for act in (*acts, lambda: array[...]):
        with pytest.raises(StoreError, match="leads to nothing"):
            act()
    assert array[:2].tolist() == [0, 1]
    assert store.get("elsewhere/x") is None
    assert "a/c/1" in store.list("a")
    array[2:] = 5
    assert array[...].tolist() == [0, 1, 5, 5]


def test_a_link_in_a_circle_is_an_error(store: LocalStore) -> None:
    (store.root / "in/again").symlink_to("..")
    with pytest.raises(StoreError, match="leads back"):
        [*store.list()]


def test_a_directory_and_a_value_cannot_have_one_name(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a/b", b"1")
    with pytest.raises(StoreError, match="found a directory") as caught:
        store.put("a", b"2")
    assert caught.value.key == "a"
    with pytest.raises(StoreError, match="is a file") as caught:
        store.put("a/b/c", b"2")
    assert caught.value.key == "a/b/c"
    assert [*store.list()] == ["a/b"]
    assert names(tmp_path) == ["a"]


def test_keys_as_long_as_paths_can_be(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    deep = "/".join(["directory"] * 400)
    store.put(deep, b"1")
    assert store.get_many([(deep, None), (f"{deep}/x", None)]) == [b"1", None]
    assert [*store.list("directory")] == [deep]
    store.delete(deep)
    assert store.list_children() == []
    for key in ("d" * 300, "/".join(["d" * 200] * 30)):
        with pytest.raises(StoreError, match=r"(File name|Filename) too long") as caught:
            store.put(key, b"1")
        assert caught.value.key == key
        with pytest.raises(StoreError, match=r"(File name|Filename) too long"):
            store.get(key)


def test_a_special_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    store = LocalStore(tmp_path)
    with pytest.raises(StoreError, match="special"):
        store.get("pipe")
    assert [*store.list()] == ["pipe"]


def test_a_root_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK")
    with pytest.raises(StoreError, match=r"x\.zip"):
        LocalStore(tmp_path / "x.zip", read_only=True)


def test_a_directory_that_cannot_be_made_is_an_error() -> None:
    with pytest.raises(StoreError, match="cannot write"):
        LocalStore("/proc/none/below").put("a", b"")


def test_a_directory_that_another_makes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above, mkdir = tmp_path / "above", os.mkdir

    def late(path: str) -> None:
        try:
            mkdir(path)
        except FileNotFoundError:
            mkdir(above)
            raise

    monkeypatch.setattr(os, "mkdir", late)
    make_directory(str(above / "below"), durable=True)
    assert (above / "below").is_dir()


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ENAMETOOLONG])
def test_other_errors_are_not_missing_values(tmp_path: Path, code: int) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"1")

    def try_all() -> None:
        for act in (
            lambda: store.get("a"),
            lambda: store.get_many([("b", None), ("a", None)]),
            lambda: store.get_first(["b"], [["a"]]),
            lambda: store.size("a"),
            lambda: [*store.list()],
        ):
            with pytest.raises(StoreError, match=os.strerror(code)) as caught:
                act()
            assert caught.value.errno == code

    while_failing("openat2", code, try_all)
    assert store.get("a") == b"1"


@pytest.mark.parametrize(
    ("call", "key"),
    [
        ("renameat", "a/b"),
        *((call, key) for call in ("writev", "fsync") for key in ("a/b", "a/new", "new/c")),
    ],
)
def test_a_failed_put_leaves_what_was_there(tmp_path: Path, call: str, key: str) -> None:
    store = LocalStore(tmp_path, durable=True)
    store.put("a/b", b"old")

    def put() -> None:
        with pytest.raises(StoreError, match="No space left") as caught:
            store.put(key, b"new")
        assert caught.value.key == key

    while_failing(call, errno.ENOSPC, put)
    assert store.get("a/b") == b"old"
    assert [*store.list()] == ["a/b"]
    assert SCRATCH not in names(tmp_path)
    assert names(tmp_path / "a") == ["b"]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("O_TMPFILE", errno.EOPNOTSUPP),
        ("AT_EMPTY_PATH", errno.ENOENT),
        ("linkat", errno.EPERM),
        ("flock", errno.ENOLCK),
        ("openat2", errno.ENOSYS),
        ("openat2", errno.EPERM),
    ],
)
def test_what_a_file_system_or_an_old_kernel_lacks_is_done_without(
    tmp_path: Path, call: str, code: int
) -> None:
    store = LocalStore(tmp_path)

    def use() -> None:
        for value in (b"new", b"newer"):
            store.put("a/b", value)
            assert store.get("a/b") == value
        store.put("x/y", b"1")
        store.delete("x/y")
        assert store.get("x/y") is None
        assert [*store.list()] == ["a/b"]
        assert names(tmp_path) == ["a"]

    while_failing(call, code, use)
    assert store.get("a/b") == b"newer"


def test_a_directory_on_another_file_system_gets_its_values_whole(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("mounted/x", b"old")

    def use() -> None:
        here, mounted = (os.open(path, os.O_RDONLY) for path in (tmp_path, tmp_path / "mounted"))
        with pytest.raises(OSError, match="cross-device"):
            os.rename("x", "x", src_dir_fd=mounted, dst_dir_fd=here)
        store.put("mounted/x", b"new")
        store.put("mounted/y", b"new")
        store.put("mounted/y", b"newer")
        assert names(tmp_path / "mounted") == ["x", "y"]
        assert store.get("mounted/x") == b"new"
        (tmp_path / "mounted" / f"{SCRATCH}.left").write_bytes(b"half")
        assert sorted(store.list()) == ["mounted/x", "mounted/y"]
        store.delete_prefix("mounted")
        assert names(tmp_path) == []

    while_failing("renameat elsewhere", errno.EXDEV, use)


def test_puts_and_deletes_race_for_a_directory(tmp_path: Path) -> None:
    stores = [LocalStore(tmp_path) for _ in range(4)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(60):
                stores[number].put(f"a/b/{number}", bytes([i]))
                assert stores[number].get(f"a/b/{number}") == bytes([i])
                stores[number].delete(f"a/b/{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert names(tmp_path) == []


def _count_up(root: str, key: str, times: int) -> None:
    store = LocalStore(root)
    for i in range(times):
        with store.lock(key):
            store.put(key, str(int(store.get(key) or b"0") + 1).encode())
        if i % 10 == 0:
            # Replacing the document that the locks are taken on must not let anybody slip in.
            with store.lock("zarr.json"):
                store.put("zarr.json", f"{i}".encode())


def test_where_there_are_no_locks_of_bytes_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put("zarr.json", b"{}")
    monkeypatch.setattr(locking, "WAIT_FOR_LOCK", -1)
    with pytest.raises(StoreError, match="no locks that belong to an open file"), store.lock("c/0"):
        pass


@pytest.mark.parametrize("below", ["", "array"])
def test_locks_exclude_processes(tmp_path: Path, below: str) -> None:
    # The second store of each pair sees the same key from another root.
    LocalStore(tmp_path / below).put("zarr.json", b"{}")
    forked = multiprocessing.get_context("forkserver")
    others = [forked.Process(target=_count_up, args=(str(tmp_path / below), "c/0/1", 150)) for _ in range(3)]
    for other in others:
        other.start()
    if below:
        top = LocalStore(tmp_path)
        for _ in range(150):
            with top.lock(f"{below}/c/0/1"):
                value = int(top.get(f"{below}/c/0/1") or b"0")
                top.put(f"{below}/c/0/1", str(value + 1).encode())
    for other in others:
        other.join()
        assert other.exitcode == 0
    assert LocalStore(tmp_path / below).get("c/0/1") == (b"600" if below else b"450")


def test_a_lock_on_a_document_waits_for_its_chunks(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a/zarr.json", b"{}")
    taken = threading.Event()

    def take() -> None:
        with store.lock("a/zarr.json"):
            taken.set()

    waiting = threading.Thread(target=take)
    with store.lock("a/c/0"):
        waiting.start()
        assert not taken.wait(0.1)
    waiting.join()
    assert taken.is_set()


@pytest.mark.parametrize("opened", ["", "g", "g/a"])
def test_a_locked_document_is_not_put_where_its_directory_was_removed(tmp_path, opened):
    LocalStore(tmp_path).put("g/a/zarr.json", b"old")
    store, key = LocalStore(tmp_path / opened), "g/a/zarr.json".removeprefix(opened).lstrip("/")
    with pytest.raises(ChangedError, match="somebody else has just removed the value"), store.lock(key):
        store.put(key, b"newer")
        LocalStore(tmp_path).delete_prefix("g")
        store.put(key, b"newest")
    assert [*tmp_path.iterdir()] == []
    store.put(key, b"made again")
    assert store.get(key) == b"made again"


@pytest.mark.parametrize("second", ["a/zarr.json", "a/c/0"])
def test_a_thread_that_would_wait_for_itself_is_told(tmp_path: Path, second: str) -> None:
    store = LocalStore(tmp_path)
    store.put("a/zarr.json", b"{}")
    with store.lock("a/c/0"):
        with pytest.raises(StoreError, match="this thread holds a lock already"), store.lock(second):
            pass
        with store.lock("a/c/1"):
            pass
    with store.lock(second):
        pass


def test_a_range_of_a_file_reads_only_that(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"here")
    assert LocalStore(tmp_path).get("sparse", ByteRange(1 << 39, 4)) == b"here"


@pytest.mark.parametrize("is_native", [True, False])
def test_nothing_is_written_into_a_directory_that_was_moved_away(tmp_path: Path, is_native: bool) -> None:
    """As by who removes a group and is killed before all of it is gone."""
    made: dict[str, Any] = {"zarr_format": 2, "compressors": "auto" if is_native else numcodecs.BZ2()}
    made |= {"shape": 8, "chunks": 4, "dtype": "i4"}
    array = zstore.create_array(tmp_path, "g/a", **made)
    array[:] = 1
    (tmp_path / "g").rename(tmp_path / "moved")
    with pytest.raises(NotFoundError, match="gone"):
        array[:2] = 2
    zstore.create_array(tmp_path, "g/a", **made)
    array[:2] = 3
    assert zstore.open_array(tmp_path, "g/a")[...].tolist() == [3] * 2 + [0] * 6
    assert zstore.open_array(tmp_path / "moved" / "a")[...].tolist() == [1] * 8


def test_the_first_choice_that_is_there(tmp_path: Path) -> None:
    store, memory = LocalStore(tmp_path), MemoryStore()
    for each in (store, memory):
        for key in ("a/x", "a/y", "b/y", "b/z", "c/d/z", "x", "e/z/1"):
            each.put(key, key.encode())
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "b" / "x").symlink_to("../a/x")
    memory.put("link/x", b"a/x")
    memory.put("link/y", b"a/y")
    memory.put("b/x", b"a/x")
    prefixes = ["a", "b", "c", "c/d", "", "e", "nothing", "a/x", "link"]
    for choices in ([("x", "y"), ("y", "z"), ("z",)], [("z", "x")], [("x",)], [("y", "x"), ("d",)]):
        found = store.get_first(prefixes, choices)
        assert found == memory.get_first(prefixes, choices)
        assert found == [store.get_first([prefix], choices)[0] for prefix in prefixes]
    assert store.get_first(["b"], [("x", "y", "z")]) == [{"x": b"a/x", "y": b"b/y", "z": b"b/z"}]
    assert LocalStore(tmp_path / "not there").get_first(["a", ""], [("x",)]) == [{}, {}]
    assert store.get_first([], [("x",)]) == []
    for prefix in ("../a", "/a", "a//b", ".zstore-tmp"):
        with pytest.raises(StoreError):
            store.get_first([prefix], [("x",)])
    (tmp_path / "out").symlink_to("/tmp")
    with pytest.raises(StoreError):
        store.get_first(["out"], [("x",)])


def test_an_unreadable_directory_is_an_error() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        store = LocalStore(place)
        store.put("a/b", b"1")
        Path(place, "a").chmod(0)

        def read() -> None:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may read everything
            with pytest.raises(StoreError, match="Permission denied"):
                store.get("a/b")

        assert run_forked([read]) == [0]
        Path(place, "a").chmod(0o700)


def test_a_part_of_a_store_is_tidied_up_and_as_durable_as_the_store(tmp_path):
    part = PrefixStore(LocalStore(tmp_path, durable=True), "group")
    zstore.create_array(part, "a", shape=3, dtype="u1")
    left = tmp_path / "group/a" / SCRATCH / "dead"
    left.parent.mkdir()
    left.write_bytes(b"half a chunk")
    zstore.open_array(part, "a", "r+")
    assert not left.parent.exists()
    assert part.durable
    assert part.as_read_only().durable
    assert PrefixStore(LocalStore(tmp_path), "group").as_durable().durable


def test_what_is_removed_while_others_remove_the_empty_directory_for_it_is_removed(tmp_path, monkeypatch):
    store, opened, times = LocalStore(tmp_path), local._open_scratch, []
    store.put("a/b", b"x")

    def open_and_lose(root: int) -> int:
        descriptor = opened(root)
        times.append(descriptor)
        if len(times) < 3:
            os.rmdir(SCRATCH, dir_fd=root)
        return descriptor

    monkeypatch.setattr(local, "_open_scratch", open_and_lose)
    store.delete_prefix("a")
    assert (len(times), [*tmp_path.iterdir()]) == (3, [])
    store.delete_prefix("a")  # that nothing is there is no error


def test_a_directory_that_is_held_open_is_opened_once(tmp_path: Path) -> None:
    store, path = LocalStore(tmp_path / "a"), tmp_path / "a"
    open_files = len([*Path("/proc/self/fd").iterdir()])
    with store.held_open():
        assert store.get("x") is None and store.list_children() == []  # there is none to open yet
        store.put("x", b"1")
        path.rename(tmp_path / "b")
        with PrefixStore(store, "c").held_open():
            store.put_new("c/y", b"2")
        assert store.get("x") == b"1"
        with ThreadPoolExecutor(1) as pool:  # another thread does not hold it
            assert pool.submit(store.get, "x").result() is None
    assert store.get("x") is None and names(tmp_path) == ["b"]
    assert names(tmp_path / "b") == ["c", "x"] and names(tmp_path / "b/c") == ["y"]
    assert len([*Path("/proc/self/fd").iterdir()]) <= open_files


@pytest.mark.parametrize(
    "documents", [["zarr.json"], [".zarray"], ["zarr.json", ".zarray"], ["meta"]], ids=str
)
def test_who_changes_a_shape_or_a_chunk_is_waited_for_by_who_deletes(
    tmp_path: Path, documents: list[str]
) -> None:
    store = LocalStore(tmp_path)
    for name in documents:
        store.put(f"a/{name}", b'{"zarr_format": 0}')
    assert store.locks_below
    for key in (f"a/{SHAPE_LOCK}", "a/c/0"):
        with ThreadPoolExecutor(1) as pool:
            with store.lock(key):
                deleting = pool.submit(delete_node, store, "a")
                with pytest.raises(TimeoutError):
                    deleting.result(0.1)
                assert store.get(f"a/{documents[0]}") is not None
            assert deleting.result(10)
        assert [*store.list()] == []
        for name in documents:
            store.put(f"a/{name}", b'{"zarr_format": 0}')


def test_the_mode_of_a_file_is_asked_for_without_an_error_for_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    assert file_mode(str(tmp_path)) == tmp_path.stat().st_mode
    assert file_mode(str(tmp_path / "f")) == (tmp_path / "f").stat().st_mode
    assert file_mode(str(tmp_path / "x/y")) == 0
    with pytest.raises(NotADirectoryError):
        file_mode(str(tmp_path / "f/x"))
    with pytest.raises(ValueError, match="NUL"):
        file_mode("a\0b")
