"""Buckets, web servers, directories and memory through obstore; S3 is as moto's server has it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError, NotFoundError, ReadOnlyError, StoreError
from zstore.extensions.registry import stores
from zstore.storage import base
from zstore.storage.base import ByteRange, Store
from zstore.storage.local import LocalStore
from zstore.storage.objects.store import ObjectStore
from zstore.storage.url import open_store
from zstore.testing.sharing import run_forked
from zstore.testing.stores import StoreContract

from .bucket_server import BucketServer

obstore: Any = pytest.importorskip("obstore.store", reason="the package behind the store")

numbers = count()
ITEMS = np.arange(60 * 70, dtype="i4").reshape(60, 70)


class TestMemory(StoreContract):
    shares_processes = False  # what a child puts into its copy of the memory stays there
    excludes_processes = False

    def make_store(self, place: Path) -> Store:
        store = open_store(f"obstore+memory://{place}")
        assert isinstance(store, ObjectStore)
        return store


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def options(endpoint: str) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": "test",
        "client_options": {"allow_http": True},
    }


@pytest.fixture
def bucket(endpoint: str) -> str:
    from urllib.request import Request, urlopen

    name = f"obstore-{next(numbers)}"
    with urlopen(Request(f"{endpoint}/{name}", method="PUT")):
        return name


class TestS3(StoreContract):
    excludes_processes = False  # they notice each other instead: see test_writers_notice_each_other
    many = 30  # a put takes this server long

    @pytest.fixture(autouse=True)
    def serving(self, endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bucket = bucket
        for name, value in (
            ("AWS_ENDPOINT", endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ):
            monkeypatch.setenv(name, value)

    def make_store(self, place: Path) -> Store:
        return open_store(f"obstore+s3://{self.bucket}/{place.name}/a b.zarr")


class TestS3WithoutLibcurl(TestS3):
    @pytest.fixture(autouse=True)
    def without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZSTORE_LIBCURL", "off")


def test_the_registry_finds_it() -> None:
    for name in ("obstore+s3", "obstore+abfss", "obstore+https", "obstore.store.GCSStore", "s3", "https"):
        assert stores.resolve(name).__name__ == "ObjectStore"
    for name in ("fsspec+s3", "fsspec+abfss", "fsspec+https", "simplecache"):
        assert stores.resolve(name).__name__ == "FsspecStore"


def test_an_array_in_a_bucket(endpoint: str, bucket: str) -> None:
    settings = options(endpoint)
    store = open_store(f"obstore+s3://{bucket}/deep/x.zarr", storage_options=settings)
    zstore.create_array(store, "a", data=ITEMS, chunks=(10, 10), shards=(30, 40))
    again = obstore.S3Store(bucket, prefix="deep/x.zarr", **settings)
    array = zstore.open_array(again, "a", mode="r+")
    assert np.array_equal(array[5:35, 33::3], ITEMS[5:35, 33::3])
    array[0:3] = 7
    assert (zstore.open_array(store, "a", mode="r")[0:3] == 7).all()
    assert [*zstore.open_group(again, mode="r")] == ["a"]
    assert bytes(pickle.loads(pickle.dumps(open_store(again))).get("a/zarr.json")) == store.get("a/zarr.json")


@pytest.fixture(params=["memory", "s3"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Store, Store]]:
    """The same store, opened by two that know nothing of each other."""
    url, settings = f"obstore+memory://pair-{next(numbers)}", {}
    with ExitStack() as stack:
        if request.param == "s3":
            # moto compares a condition and puts in two steps, between which another writer may come.
            url, settings = "obstore+s3://b/x", stack.enter_context(BucketServer()).options()
        # Another spelling is another lock within this process, as another process would have.
        yield open_store(url, storage_options=settings), open_store(f"{url}/", storage_options=settings)


def test_threads_delete_as_the_main_thread_does(pair: tuple[Store, Store]) -> None:
    """Which hears Ctrl-C, and so makes its requests elsewhere: one by one, a page, and more than one page."""
    store, _ = pair
    keys = [f"a/c/{number}" for number in range(1001)]
    with ThreadPoolExecutor(1) as pool:
        for length in (1, 3, 1001):
            store.put(keys[0], b"1")
            store.put(keys[length - 1], b"1")
            if not pool.submit(store.delete_many, keys[:length]).result():
                pool.submit(store.delete_prefix, "a").result()
            assert [*store.list("a")] == []


def test_writers_notice_each_other(pair: tuple[Store, Store]) -> None:
    first, second = pair
    first.put("a", b"old")
    for theirs, change in ((b"1", partial(first.put, "a", b"mine")), (b"2", partial(first.delete, "a"))):
        with pytest.raises(ChangedError, match="written by somebody else") as caught, first.lock("a"):
            first.get("a")
            second.put("a", theirs)
            change()
        assert caught.value.key == "a"
        assert bytes(second.get("a") or b"") == theirs
    with pytest.raises(ChangedError), first.lock("new"):
        assert first.get("new") is None
        second.put("new", b"theirs")
        first.put("new", b"mine")
    with pytest.raises(ChangedError), first.lock("gone"):
        assert first.get("gone") is None
        second.put("gone", b"theirs")
        first.delete("gone")
    with first.lock("a"):
        first.get("a")
        for value in (b"1", b"2"):
            first.put("a", value)
        first.delete("a")
        first.put("a", b"3")
    # What was not read first depends on nothing, and neither does anything once the lock is let go of.
    with first.lock("a"):
        second.put("a", b"theirs")
        first.put("a", b"mine")
    second.put("a", b"theirs")
    first.put("a", b"mine")
    assert bytes(second.get("a") or b"") == b"mine"


def test_part_of_a_chunk_is_not_lost(pair: tuple[Store, Store]) -> None:
    first, second = pair
    zstore.create_array(first, "a", data=ITEMS, chunks=(60, 70))
    array, other = zstore.open_array(first, "a", mode="r+"), zstore.open_array(second, "a", mode="r+")
    get_parts, columns = type(first).get_parts, iter([1])

    def meanwhile(self: Store, requests: Any) -> Any:
        found = get_parts(self, requests)
        if self is first and "a/c/0/0" in dict(requests):
            for column in columns:
                other[0, column] = -1
                break
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(first), "get_parts", meanwhile)
        array[5, 5] = -5
        patch.setattr(base, "LAST_PAUSE", 0.001)
        patch.setattr(base, "FIRST_PAUSE", 0.001)
        patch.setattr(base, "ATTEMPTS", 4)
        columns = iter(range(2, 9))
        with pytest.raises(ChangedError, match="a/c/0/0"):
            array[5, 6] = -6
        assert [*columns] == [6, 7, 8]
    expected = ITEMS.copy()
    expected[0, 1:6] = -1
    expected[5, 5] = -5
    assert np.array_equal(other[...], expected)


@pytest.mark.parametrize(
    "cut",
    [{"chunks": (8, 8)}, {"chunks": (2, 4), "shards": (8, 8)}, {"chunks": [[8], [3, 5]]}, {"dtype": str}],
    ids=["chunk", "shard", "uneven", "strings"],
)
def test_writers_of_one_chunk_lose_nothing(pair: tuple[Store, Store], cut: dict[str, Any]) -> None:
    options = {"chunks": (8, 8), "dtype": "i4", **cut}
    zstore.create_array(pair[0], "a", shape=(8, 8), **options)
    failures: list[BaseException] = []
    together = threading.Barrier(2)

    def fill(store: Store, start: int) -> None:
        try:
            array = zstore.open_array(store, "a", mode="r+")
            for row in range(8):
                together.wait(60)
                array[row, start::2] = row + 1 if array.dtype.kind == "i" else str(row + 1)
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=fill, args=(store, k)) for k, store in enumerate(pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = zstore.open_array(pair[0], "a", mode="r")[...]
    assert np.array_equal(found.astype("i4"), np.repeat(np.arange(1, 9), 8).reshape(8, 8))


def test_versions_may_be_left_unchecked() -> None:
    url = f"obstore+memory://x-{next(numbers)}"
    store, other = open_store(url, storage_options={"check_versions": False}), open_store(url)
    with store.lock("a"):
        store.get("a")
        other.put("a", b"theirs")
        store.put("a", b"mine")
    assert bytes(other.get("a") or b"") == b"mine"


def test_a_directory_is_zstores_own(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    for target in (f"obstore+file://{tmp_path}/a%20b", obstore.LocalStore(tmp_path / "a b")):
        store = open_store(target)
        assert isinstance(store, LocalStore) and store.root == tmp_path / "a b"
        assert open_store(store.url).root == store.root
    with pytest.raises(StoreError, match="unknown storage options"):
        open_store(f"obstore+file://{tmp_path}", storage_options={"region": "x"})


def test_parts_say_which_version_they_are_from(pair: tuple[Store, Store]) -> None:
    store, _ = pair
    store.put("a", b"0123456789")
    parts = store.get_parts([("a", ByteRange(-4)), ("a", ByteRange(0, 2)), ("a", None)])
    versions = {part and part.version for part in parts}
    assert len(versions) == 1
    assert None not in versions
    store.put("a", b"9876543210")
    [changed] = store.get_parts([("a", ByteRange(-4))])
    assert changed is not None
    assert changed.version not in versions


def test_http_is_for_reading(tmp_path: Path) -> None:
    zstore.create_array(tmp_path, "a b", data=ITEMS, chunks=(10, 10), shards=(30, 40))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            store = open_store(f"obstore+http://127.0.0.1:{server.server_port}/a b")
            assert store.read_only
            assert bytes(store.get("zarr.json") or b"") == (tmp_path / "a b/zarr.json").read_bytes()
            assert store.get("nothing") is None
            assert store.get("nothing", ByteRange(1, 2)) is None
            # This server has no ranges.
            whole = (tmp_path / "a b/zarr.json").read_bytes()
            wanted = [
                ("zarr.json", ByteRange(2, 5)),
                ("zarr.json", ByteRange(-4)),
                ("nothing", ByteRange(-4)),
            ]
            for _ in range(2):
                found = [None if part is None else bytes(part) for part in store.get_many(wanted)]
                assert found == [whole[2:7], whole[-4:], None]
            assert np.array_equal(zstore.open_array(store, mode="r")[5:35, 33::3], ITEMS[5:35, 33::3])
            with pytest.raises(StoreError, match="no listing"):
                store.list()
            with pytest.raises(ReadOnlyError):
                store.put("a", b"")
        finally:
            server.shutdown()
            thread.join()


def test_documents_that_may_not_be_read_hide_no_others(tmp_path: Path) -> None:
    """As servers answer of what is not there to those who may not list."""
    zstore.create_array(tmp_path, "a", data=ITEMS, chunks=(10, 10))

    class Forbidding(SimpleHTTPRequestHandler):
        def send_error(self, code: int, *_: object) -> None:
            super().send_error(403 if code == 404 else code)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Forbidding, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            store = open_store(f"obstore+http://127.0.0.1:{server.server_port}")
            assert np.array_equal(zstore.open(store, "a")[...], ITEMS)
            with pytest.raises(StoreError, match="status code: 403"):
                zstore.open(store, "b")
        finally:
            server.shutdown()
            thread.join()


def test_what_fails_is_no_missing_value(tmp_path: Path) -> None:
    settings = {**options("http://127.0.0.1:9"), "retry_config": {"max_retries": 0}}
    store = open_store("obstore+s3://bucket/x", storage_options=settings)
    for act in (store.get, store.size, store.list, store.delete, lambda key: store.get(key, ByteRange(-4))):
        with pytest.raises(StoreError):
            act("a")
    with pytest.raises(StoreError):
        store.put("a", b"1")
    with pytest.raises(StoreError, match="no such directory"):
        open_store(f"obstore+file://{tmp_path}/nothing", read_only=True)


def test_a_bucket_that_is_not_there(endpoint: str) -> None:
    store = open_store("obstore+s3://no-such-bucket/x", storage_options=options(endpoint))
    with pytest.raises(StoreError):
        store.put("a", b"1")
    with pytest.raises(NotFoundError):
        zstore.open(store, mode="r")


def test_an_object_given_survives_a_fork(endpoint: str, bucket: str) -> None:
    store = open_store(obstore.S3Store(bucket, **options(endpoint)))
    store.put("a", b"1")

    def child() -> None:
        assert bytes(store.get("a") or b"") == b"1"
        again = pickle.loads(pickle.dumps(store))
        again.put("b", b"2")

    assert run_forked([child], 20) == [0]
    assert bytes(store.get("b") or b"") == b"2"


ENDING = """
import sys
from zstore.storage.url import open_store
sys.setswitchinterval(100)  # obstore's threads come last
open_store(sys.argv[1], read_only=True).get_many([("a", None), ("b", None)])
"""


def test_a_process_that_ends_with_its_last_answer_ends_well() -> None:
    with BucketServer() as server:
        said = {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        command = [sys.executable, "-c", ENDING, "obstore+s3://b/x"]
        ends = [subprocess.Popen(command, env={**os.environ, **said}) for _ in range(16)]
        assert [end.wait(timeout=120) for end in ends] == [0] * len(ends)
        assert len(server.requests) == 32


def test_memory_is_not_made_up_in_another_process() -> None:
    import subprocess

    store = open_store(obstore.MemoryStore())
    store.put("a", b"1")
    assert bytes(pickle.loads(pickle.dumps(store)).get("a")) == b"1"
    code = f"import pickle; pickle.loads({pickle.dumps(store)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert "memory of another process" in done.stderr


@pytest.mark.parametrize(
    "url", ["obstore+s3://", "obstore+s3:///x", "obstore+file://x", "obstore+http://h/a?b=1", "obstore+s3::x"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match=r"expected|query"):
        open_store(url)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(StoreError, match="nonsense"):
        open_store("obstore+s3://bucket", storage_options={"nonsense": 1})
    with pytest.raises(StoreError, match="nonsense"):
        open_store("obstore+memory://x", storage_options={"nonsense": 1})
    with pytest.raises(StoreError, match="expected a store of obstore's"):
        stores.resolve("obstore+s3").from_object(object())
