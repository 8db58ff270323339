"""Repositories of icechunk: its own library reads what is written here, and the other way round."""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zstore_icechunk import IcechunkStore, open_session
from zstore_icechunk.places import library, read_version

import zstore
from zstore.base.byterange import ByteRange
from zstore.errors import ChangedError, CodecError, NotFoundError, ReadOnlyError, StoreError, UnsupportedError
from zstore.extensions.registry import list_offers, stores
from zstore.storage.base import Store, check_key, check_prefix
from zstore.storage.url import open_store
from zstore.testing.sharing import run_forked
from zstore.testing.stores import StoreContract

icechunk = library()
zarr = pytest.importorskip("zarr")
# Before version 2 icechunk does not say where chunks lie.
IS_TOLD = int(icechunk.__version__.split(".")[0]) >= 2
RELEASES = json.loads(lzma.decompress(Path(__file__).with_name("releases.json.xz").read_bytes()))


class Kept(Store):
    """Any keys and values: each is the one chunk of an array named by its key, behind one byte more."""

    def __init__(self, inner: Store) -> None:
        self.inner, self.read_only = inner, inner.read_only

    @property
    def url(self) -> str:
        return self.inner.url

    def get(self, key: str, byte_range: ByteRange | None = None) -> Any:
        if byte_range is not None:
            return self.get_many([(key, byte_range)])[0]
        value = self.inner.get(_name(key))
        return None if value is None else memoryview(value)[1:]

    def get_many(self, requests: Any) -> Any:
        return self.inner.get_many([*map(self._request, requests)])

    async def get_many_async(self, requests: Any) -> Any:
        return await self.inner.get_many_async([*map(self._request, requests)])

    def _request(self, request: Any) -> Any:
        key, byte_range = _name(request[0]), request[1] or ByteRange(0)
        size = max(1, self.inner.size(key) or 0) - 1
        begin, end = byte_range.resolve(size)
        return key, ByteRange(1 + begin, end - begin)

    def get_parts(self, requests: Any) -> Any:
        found = self.inner.get_parts([*map(self._request, requests)])
        return [part and part._replace(total_size=part.total_size - 1) for part in found]

    def size(self, key: str) -> int | None:
        size = self.inner.size(_name(key))
        return None if size is None else size - 1

    def put(self, key: str, value: Any) -> None:
        self.inner.put(_name(key), b"\0" + bytes(value))

    def delete(self, key: str) -> None:
        self.inner.delete(_name(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        start = f"{prefix}/" if check_prefix(prefix) else ""
        names = (name for name in self.inner.list() if name.endswith("/c"))
        keys = (bytes.fromhex(name[1:-2]).decode() for name in names)
        return iter([key for key in keys if key.startswith(start)])

    def delete_prefix(self, prefix: str) -> None:
        self.check_writable(check_prefix(prefix))
        super().delete_prefix(prefix)

    def lock(self, key: str) -> AbstractContextManager[None]:
        return self.inner.lock(_name(key))

    def close(self) -> None:
        self.inner.close()


def _name(key: str) -> str:
    return f"k{check_key(key).encode().hex()}/c"


class TestSession(StoreContract):
    """A session, whose changes stay in one process until they are committed."""

    can_reopen = can_pickle = shares_processes = excludes_processes = False
    many = 300
    # icechunk's threads stay in the parent: see test_a_forked_process_gets_an_error.
    test_a_forked_child_reads = None

    def make_store(self, place: Path) -> Store:
        return Kept(open_session(place / "repository", create=True))


class TestSnapshot(StoreContract):
    """What was committed, for reading."""

    can_write = can_reopen = False
    many = 300
    test_a_forked_child_reads = None

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        with open_session(place / "repository", create=True) as session:
            kept = Kept(session)
            for key, value in values.items():
                zstore.create_array(session, _name(key)[:-2], shape=(), dtype="u1", compressors=None)
                kept.put(key, value)
            if values:
                session.commit("values")
        return Kept(open_store(f"icechunk://{place}/repository"))


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "repository")


def repository(place: str) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(place))


def fill(place: str, *versions: Any, branch: str | None = None) -> list[str]:
    """Commit these values of the array "a" one after the other, in chunks of 4; gives the snapshots."""
    found = []
    with open_session(place, create=True, branch=branch) as session:
        for items in versions:
            zstore.create_array(session, "a", data=np.asarray(items), chunks=4, overwrite=True)
            found.append(session.commit(f"version {len(found)}"))
    return found


HIERARCHY: dict[str, dict[str, Any]] = {
    "g/zstd": {"data": np.arange(6000.0).reshape(60, 100), "chunks": (7, 30)},
    "g/plain": {"data": np.arange(3000, dtype=">i2").reshape(3, 1000), "chunks": (1, 1000)},
    "sharded": {"data": np.arange(4096, dtype="u4").reshape(64, 64), "chunks": (8, 8), "shards": (32, 32)},
    "small": {"data": np.arange(10, dtype="i1"), "chunks": (3,)},
    "scalar": {"data": np.array(7.5)},
    "text": {"data": np.array(["a", "bcd", "", "é"]), "chunks": (2,)},
}


def test_zarr_python_reads_what_is_written(place: str) -> None:
    with open_session(place, create=True) as session:
        for name, options in HIERARCHY.items():
            zstore.create_array(session, name, attributes={"name": name}, **options)
        sparse = zstore.create_array(
            session, "sparse", shape=(40, 40), chunks=(10, 10), dtype="i4", fill_value=9
        )
        sparse[10:20, 30:] = np.arange(100).reshape(10, 10)
        session.commit("all")
    group = zarr.open_group(repository(place).readonly_session("main").store, mode="r")
    for name, options in HIERARCHY.items():
        assert np.array_equal(np.asarray(group[name][...]), options["data"]), name
        assert dict(group[name].attrs) == {"name": name}
    assert group["sparse"][10:20, 30:].ravel().tolist() == [*range(100)]
    assert (group["sparse"][:10] == 9).all()


def test_what_zarr_python_writes_is_read(place: str) -> None:
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(place))
    session = made.writable_session("main")
    for name, options in HIERARCHY.items():
        data = options["data"]
        if data.dtype.kind == "U":
            continue
        given = {key: value for key, value in options.items() if key != "data"}
        given.setdefault("chunks", data.shape)
        array = zarr.create_array(session.store, name=name, shape=data.shape, dtype=data.dtype, **given)
        array[...] = data
    holes = zarr.create_array(session.store, name="holes", shape=(9,), chunks=(3,), dtype="i4", fill_value=5)
    holes[3:6] = 1
    session.commit("all")
    root = zstore.open(f"icechunk://{place}")
    for name, options in HIERARCHY.items():
        if name == "text":
            continue
        assert np.array_equal(root[name][...], options["data"]), name
        if options["data"].ndim:
            cut = np.s_[1:-1:2]
            assert np.array_equal(root[name][cut], options["data"][cut]), name
    assert root["holes"][...].tolist() == [5] * 3 + [1] * 3 + [5] * 3
    # Their store object is taken as it is, for reading and for writing.
    again = repository(place).writable_session("main")
    array = zstore.open_array(again.store, "holes", mode="r+")
    assert isinstance(array.store, IcechunkStore)
    array[:3] = 2
    array.store.commit("two")
    assert zarr.open_array(repository(place).readonly_session("main").store, path="holes")[0] == 2
    with pytest.raises(ReadOnlyError):
        array[:3] = 3


def test_chunks_in_local_files_are_read_by_the_engine(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_session(place, create=True) as session:
        for name, options in HIERARCHY.items():
            zstore.create_array(session, name, **options)
        assert session.stretches("g/zstd") is None  # it changes
        session.commit("all")
    root = zstore.open(f"icechunk://{place}")
    arrays = {name: root[name] for name in HIERARCHY if name != "text"}
    if not IS_TOLD:
        assert root.store.stretches("g/zstd") is None
        return
    assert root.store.stretches("nothing") is None
    assert root.store.stretches("g/plain").grid == (3, 1)
    assert root.store.stretches("small").files == []  # its chunks are in the manifest itself

    def refuse(*_: Any) -> Any:
        raise AssertionError("asked of icechunk")

    for name in ("get", "get_many", "get_parts", "get_many_async", "get_parts_async"):
        monkeypatch.setattr(IcechunkStore, name, refuse)
    for name, array in arrays.items():
        assert np.array_equal(array[...], HIERARCHY[name]["data"]), name


def test_no_thread_makes_an_array_while_its_chunk_is_deleted(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where chunks of fill values are left out: icechunk's words for it would be a failure then."""
    with open_session(place, create=True) as session:
        held: list[bool] = []
        size = IcechunkStore._size

        def look(store: IcechunkStore, key: str) -> Any:
            held.append(store._lock.locked())
            return size(store, key)

        monkeypatch.setattr(IcechunkStore, "_size", look)
        session.delete("a/c/0")
        zstore.create_array(session, "a", data=[0, 1, 0], chunks=1)
        assert held[0]
        session.delete("a/c/1")
        assert not held[-1]
        session.commit("without it")
    assert not zstore.open(f"icechunk://{place}")["a"][...].any()


def test_a_grid_of_more_chunks_than_64_bits_can_count(place: str) -> None:
    with open_session(place, create=True) as session:
        array = zstore.create_array(session, "a", shape=(10**6,) * 4, chunks=(1,) * 4, dtype="u1")
        array[-1, -1, -1, -1] = 7
        session.commit("the last one")
    assert zstore.open(f"icechunk://{place}")["a"][-1, -1, -1, -3:].tolist() == [0, 0, 7]


@pytest.mark.parametrize("damage", ["gone", "shorter", "changed"])
def test_a_damaged_chunk_is_an_error(place: str, damage: str) -> None:
    items = np.random.default_rng(1).integers(0, 256, (4, 5000), dtype="u1")
    with open_session(place, create=True) as session:
        zstore.create_array(session, "a", data=items, chunks=(1, 5000))
        session.commit("one")
    [file, *_] = sorted(Path(place, "chunks").iterdir())
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:100] if damage == "shorter" else bytes(len(content)))
    with pytest.raises((StoreError, CodecError)):
        zstore.open(f"icechunk://{place}")["a"][...]
    with pytest.raises((StoreError, CodecError)):
        zstore.open(repository(place).readonly_session("main").store)["a"][...]


@pytest.mark.parametrize("made", RELEASES, ids=lambda made: made["writers"][0])
def test_repositories_of_releases_are_read_as_they_read_them(made: Any, tmp_path: Path) -> None:
    """Main, a branch and a tag; `tests/conformance/releases/make` of zstore made them."""
    for key, data in made["files"].items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(bytes.fromhex(data))
    places = {
        "v1": f"{tmp_path}|icechunk:@tag.v1/", "trial": f"{tmp_path}|icechunk:@branch.trial/",
        "main": f"icechunk://{tmp_path}",
    }  # fmt: skip
    if not IS_TOLD and made["writers"][0].startswith("icechunk 2"):
        with pytest.raises(UnsupportedError, match="icechunk>=2"):
            zstore.open(places["main"])
        return
    told = []
    for name, address in places.items():
        arrays = [*zstore.open_group(address, mode="r").members(None)]
        for path, array in sorted(one for one in arrays if isinstance(one[1], zstore.Array)):
            told.append(f"{name}: {path} {array.shape} {array[...].tolist()}")
    assert repr(told) == made["expected"][2]


def test_versions(place: str) -> None:
    old, new = fill(place, [1] * 8, [2] * 8)
    made = repository(place)
    made.create_tag("v1", old)
    made.create_branch("dev", old)
    [third] = fill(place, [3] * 8, branch="dev")
    between = made.lookup_snapshot(old).written_at + timedelta(microseconds=1)
    ways: list[tuple[str, dict[str, Any], int]] = [
        (f"icechunk://{place}", {}, 2),
        (f"{place}|icechunk:", {}, 2),
        (f"file://{place}|icechunk:@branch.main/", {}, 2),
        (f"{place}|icechunk:@tag.v1", {}, 1),
        (f"{place}|icechunk://branch.dev/", {}, 3),
        (f"{place}|icechunk://tag.v1/", {}, 1),
        (f"{place}|icechunk:@{old}/", {}, 1),
        (f"{place}|icechunk://{new}/", {}, 2),
        (f"{place}|icechunk:@branch.dev/|zarr3:", {}, 3),
        (f"icechunk://{place}", {"branch": "dev"}, 3),
        (f"icechunk://{place}", {"tag": "v1"}, 1),
        (f"icechunk://{place}", {"snapshot": third}, 3),
        (f"icechunk://{place}", {"as_of": between}, 1),
        (f"icechunk://{place}", {"as_of": between.isoformat()}, 1),
        (f"{place}|icechunk:@branch.dev", {"as_of": datetime.now(UTC) + timedelta(days=1)}, 3),
    ]
    for url, options, expected in ways:
        root = zstore.open(url, storage_options=options or None)
        assert root["a"][...].tolist() == [expected] * 8, (url, options)
        # A store says how to come to the same again.
        assert zstore.open(root.store.url)["a"][0] == expected
        again = pickle.loads(pickle.dumps(root.store))
        assert zstore.open(again)["a"][0] == expected
        assert again.url == root.store.url
    assert zstore.open(f"{place}|icechunk:@tag.v1/a")[0] == 1
    assert zstore.open(f"{place}|icechunk:a|zarr3:")[0] == 2
    assert zstore.open_array(f"icechunk://{place}", "a")[0] == 2


def test_what_is_opened_stays_as_it_was(place: str) -> None:
    fill(place, [1] * 8)
    store = open_store(f"icechunk://{place}")
    kept = pickle.dumps(store)
    fill(place, [2] * 8)
    assert zstore.open(store)["a"][0] == 1
    assert zstore.open(pickle.loads(kept))["a"][0] == 1
    assert zstore.open(store.url)["a"][0] == 2


def test_errors_for_what_is_missing_name_what_is_there(place: str, tmp_path: Path) -> None:
    [old] = fill(place, [1] * 8)
    repository(place).create_tag("v1.0", old)
    zstore.create_group(tmp_path / "plain.zarr")
    for url, words in [
        (f"icechunk://{tmp_path}/repo", "no icechunk repository there; beside it: 'repository'"),
        (f"icechunk://{tmp_path}", "below it: 'repository'"),
        (f"icechunk://{place}/chunks", "repository' is one"),
        (f"icechunk://{place}/a", "a node in it is PATH.icechunk:NODE"),
        (f"icechunk://{tmp_path}/plain.zarr", "a Zarr hierarchy in a directory"),
        (f"{place}|icechunk:@branch.mian", "no branch 'mian'; there is 'main'"),
        (f"{place}|icechunk:@tag.v1", "no tag 'v1'; there is 'v1.0'"),
        (f"{place}|icechunk:@{'Z' * 20}", "no snapshot"),
        (f"{place}|icechunk:@branch.a%2Fb", "no branch 'a/b'"),
        (f"{place}|icechunk:b", "no array or group there"),
    ]:
        with pytest.raises(NotFoundError, match=words):
            zstore.open(url)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.zarr", "repository"]
    with pytest.raises(NotFoundError, match="'main' is younger than 2000-01-01"):
        zstore.open(f"icechunk://{place}", storage_options={"as_of": "2000-01-01T00:00:00Z"})
    with pytest.raises(NotFoundError, match="no branch 'new'; there is 'main'"):
        open_session(place, branch="new")
    with pytest.raises(NotFoundError, match="no icechunk repository there"):
        open_session(tmp_path / "other")
    with pytest.raises(StoreError, match="holds something else; expected a new or an empty one"):
        open_session(tmp_path / "plain.zarr", create=True)


@pytest.mark.skipif(not icechunk.__version__.startswith("1."), reason="icechunk 2 reads its format")
@pytest.mark.parametrize("create", [False, True])
def test_a_repository_of_a_later_icechunk_is_named(tmp_path, create):
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "repo").write_bytes(b"ICE")
    with pytest.raises(UnsupportedError, match=r"format of icechunk 2, and icechunk 1[.\d]+ is installed"):
        open_session(tmp_path, create=create)


@pytest.mark.parametrize(
    "url",
    [
        "icechunk://",
        "icechunk:///",
        "icechunk::/a",
        "icechunk:///a?branch=dev",
        "icechunk:///a#b",
        "icechunk+s3://",
        "icechunk+s3://bucket/../other",
        "icechunk+s3://bucket/%2e%2e/other",
        "icechunk+gs:///prefix",
        "memory://a|icechunk:",
        "sqlite:///a.db|icechunk:",
        "/a.zip|zip:b|icechunk:",
        "file://host/a|icechunk:",
        "/a|icechunk:@nothing/b",
        "/a|icechunk:@branch.",
        "/a|icechunk:@tag./b",
        "/a|icechunk://branch/b",
        f"/a|icechunk:@{'U' * 20}",
        "/a%00b|icechunk:",
        "/a|icechunk:|zip:b",
        "/a|icechunk:|icechunk:",
    ],
)
def test_hostile_urls_are_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill("a", [1] * 4)
    with pytest.raises((StoreError, NotFoundError)):
        zstore.open(url.replace("/a|", f"{tmp_path}/a|"))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        {"branch": "a", "tag": "b"},
        {"tag": "b", "as_of": "2024-01-01T00:00:00Z"},
        {"as_of": "2024-01-01"},
        {"as_of": "yesterday"},
        {"snapshot": "nothing"},
        {"branch": ""},
        {"branch": 5},
        {"region": "eu"},
        {"brunch": "main"},
    ],
)
def test_wrong_storage_options_are_refused(place: str, options: dict[str, Any]) -> None:
    fill(place, [1] * 4)
    with pytest.raises(StoreError, match=r"expected|unknown"):
        zstore.open(f"icechunk://{place}", storage_options=options)


def test_a_url_and_options_must_agree() -> None:
    with pytest.raises(StoreError, match="tag is 'v1' in the URL and 'v2' among the storage options"):
        read_version("u", "@tag.v1/a", {"tag": "v2"})
    version, path = read_version("u", "@tag.v%201/a/b%20c/", {"tag": "v 1"})
    assert (version.tag, version.branch, path, version.text) == ("v 1", None, "a/b c", "@tag.v%201")


def test_opened_for_reading_nothing_is_written(place: str) -> None:
    fill(place, [1] * 8)
    store = open_store(f"icechunk://{place}")
    with pytest.raises(ReadOnlyError, match=r"expected zstore_icechunk.open_session"):
        store.put("zarr.json", b"{}")
    with pytest.raises(ReadOnlyError):
        open_store(f"{place}|icechunk:a").put("zarr.json", b"{}")
    with pytest.raises(ReadOnlyError):
        zstore.create_array(f"icechunk://{place}", "b", data=np.arange(3))


def test_a_commit_is_seen_at_once_and_not_before(place: str) -> None:
    first, *_ = fill(place, [1] * 8)
    with open_session(place) as session:
        array = zstore.open_array(session, "a", mode="r+")
        array[...] = 2
        assert session.has_changes
        assert array[...].tolist() == [2] * 8
        assert zstore.open(f"icechunk://{place}")["a"][0] == 1
        found = session.commit("two", metadata={"who": "me"})
        assert zstore.open(f"icechunk://{place}")["a"][0] == 2
        # The session goes on.
        assert (session.has_changes, session.snapshot) == (False, found)
        array[...] = 3
        assert session.commit("three") != found
        array[...] = 4
        session.discard()
        assert array[0] == 3
        with pytest.raises(StoreError, match="nothing to commit"):
            session.commit("none")
        array[...] = 5
    assert zstore.open(f"icechunk://{place}")["a"][0] == 3
    history = [*repository(place).ancestry(branch="main")]
    assert [info.message for info in history[:3]] == ["three", "two", "version 0"]
    assert history[1].metadata == {"who": "me"}
    assert history[2].id == first


def test_changes_of_different_chunks_are_rebased(place: str) -> None:
    fill(place, [0] * 8)
    one, two, three = (open_session(place) for _ in range(3))
    for number, session in enumerate((one, two, three)):
        zstore.open_array(session, "a", mode="r+")[4 * (number % 2) : 4 * (number % 2) + 4] = number + 1
    one.commit("one")
    with pytest.raises(ChangedError, match=r"others committed to the branch meanwhile; expected rebase"):
        two.commit("two")
    two.rebase()
    assert zstore.open_array(two, "a")[...].tolist() == [1] * 4 + [2] * 4
    two.commit("two")
    assert zstore.open(f"icechunk://{place}")["a"][...].tolist() == [1] * 4 + [2] * 4
    # The same chunk as the first: nothing of either is overwritten.
    for _ in range(2):
        with pytest.raises(ChangedError, match=r"changes of the same meanwhile: /a \(Chunk"):
            three.commit("three", rebase=True)
    with pytest.raises(ChangedError):
        three.rebase()
    assert zstore.open(f"icechunk://{place}")["a"][...].tolist() == [1] * 4 + [2] * 4
    assert zstore.open_array(three, "a")[0] == 3
    with open_session(place) as four, open_session(place) as five:
        zstore.open_array(four, "a", mode="r+")[:4] = 4
        zstore.create_array(five, "b", data=np.arange(3))
        four.commit("four")
        five.commit("five", rebase=True)
    root = zstore.open(f"icechunk://{place}")
    assert (root["a"][0], root["b"][2]) == (4, 2)


def test_documents_of_two_writers_conflict(place: str) -> None:
    fill(place, [0] * 8)
    one, two = open_session(place), open_session(place)
    zstore.open_array(one, "a", mode="r+").attrs["x"] = 1
    zstore.open_array(two, "a", mode="r+").attrs["x"] = 2
    one.commit("one")
    with pytest.raises(ChangedError, match=r"/a \("):
        two.commit("two", rebase=True)
    assert dict(zstore.open(f"icechunk://{place}")["a"].attrs) == {"x": 1}


ADD = """
import sys
from zstore_icechunk import open_session
import zstore
for n in range(int(sys.argv[3])):
    with open_session(sys.argv[1]) as session:
        zstore.open_array(session, "a", mode="r+")[int(sys.argv[2]) + n] = 1
        session.commit("one", rebase=True)
"""


def test_processes_commit_side_by_side(place: str) -> None:
    with open_session(place, create=True) as session:
        zstore.create_array(session, "a", shape=(12,), chunks=(1,), dtype="i1")
        session.commit("empty")
    others = [subprocess.Popen([sys.executable, "-c", ADD, place, str(first), "4"]) for first in (0, 4, 8)]
    assert [other.wait() for other in others] == [0, 0, 0]
    assert zstore.open(f"icechunk://{place}")["a"][...].tolist() == [1] * 12
    assert len([*repository(place).ancestry(branch="main")]) == 14


ENDLESS = """
import sys
from zstore_icechunk import open_session
import zstore
with open_session(sys.argv[1]) as session:
    array = zstore.open_array(session, "a", mode="r+")
    array[...] = 1
    print("written", flush=True)
    sys.stdin.readline()
    for n in range(2, 10_000):
        session.commit("next")
        array[...] = n
"""


def test_a_killed_writer_leaves_a_whole_version(place: str) -> None:
    with open_session(place, create=True) as session:
        zstore.create_array(session, "a", data=np.zeros(6000, "i4"), chunks=(1000,), compressors=None)
        session.commit("nothing")
    for pause in (None, 0.0, 0.01, 0.05):
        before = zstore.open(f"icechunk://{place}")["a"][0]
        other = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"written\n"
        if pause is not None:
            other.stdin.write(b"\n")
            other.stdin.flush()
            time.sleep(pause)
        other.kill()
        other.wait()
        other.stdin.close()
        other.stdout.close()
        items = zstore.open(f"icechunk://{place}")["a"][...]
        assert (items == items[0]).all()
        if pause is None:
            assert items[0] == before
    with open_session(place) as session:
        zstore.open_array(session, "a", mode="r+")[...] = -1
        session.commit("it goes on", rebase=True)


def test_what_is_unfinished_is_not_committed(place: str) -> None:
    with open_session(place, create=True) as session:
        session.put("a/c/0", b"ahead of its array")
        assert (session.list_children("a"), [*session.list()]) == (["c"], ["a/c/0"])
        assert session.get("a/zarr.json") is None
        with pytest.raises(StoreError, match="chunks without their array"):
            session.commit("half")
        session.delete("a/c/0")
        session.put("b/.zstore-unfinished", b"{}")
        assert [*session.list("b")] == ["b/.zstore-unfinished"]
        with pytest.raises(StoreError, match="work is under way, or was interrupted"):
            session.commit("half")
        session.delete("b/.zstore-unfinished")
        zstore.create_group(session, "g")
        # Where a group comes, nothing stands in for an array any more.
        session.put("h/c/0", b"x")
        zstore.create_group(session, "h", overwrite=True)
        session.commit("whole")
    root = zstore.open(f"icechunk://{place}")
    assert sorted(root) == ["g", "h"]
    with (
        open_session(place) as session,
        pytest.raises(StoreError, match=r"icechunk keeps zarr\.json"),
    ):
        session.put("other/file", b"")


def test_hierarchies_are_copied_in_and_out(place: str, tmp_path: Path) -> None:
    for name, options in HIERARCHY.items():
        zstore.create_array(tmp_path / "in.zarr", name, **options)
    with open_session(place, create=True) as session:
        zstore.copy(tmp_path / "in.zarr", session)
        session.commit("copied")
    zstore.copy(f"icechunk://{place}", tmp_path / "out.zarr")
    assert zstore.manifest(tmp_path / "out.zarr").root == zstore.manifest(tmp_path / "in.zarr").root
    with open_session(place) as session:
        array = zstore.open_array(session, "g/plain", mode="r+")
        array.resize((2, 500))
        del zstore.open_group(session, mode="r+")["small"]
        session.commit("less")
    root = zstore.open(f"icechunk://{place}")
    assert np.array_equal(root["g/plain"][...], HIERARCHY["g/plain"]["data"][:2, :500])
    assert "small" not in root


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, str]:
    """A file that virtual chunks lie in, below a place that the repository names, and the repository."""
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "file").write_bytes(b"head" + np.arange(8, dtype="<i4").tobytes())
    (tmp_path / "secret").write_bytes(bytes(100))
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{folder}/"
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(folder)))
    )
    place = str(tmp_path / "repository")
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(place), config=config)
    made.save_config()
    session = made.writable_session("main")
    zarr.create_array(
        session.store, name="v", shape=(12,), chunks=(4,), dtype="<i4", compressors=None, fill_value=-1
    )
    for number in (0, 1):
        session.store.set_virtual_ref(
            f"v/c/{number}",
            f"{prefix}file",
            offset=4 + 16 * number,
            length=16,
            checksum=datetime.now(UTC) + timedelta(seconds=1),
        )
    session.store.set_virtual_ref(
        "v/c/2", f"{prefix}../secret", offset=0, length=16, validate_container=False
    )
    session.commit("virtual")
    return folder, place


def test_virtual_chunks_are_read_from_allowed_places(archive: tuple[Path, str], tmp_path: Path) -> None:
    folder, place = archive
    for allow in (folder, str(folder), [tmp_path / "x", tmp_path], f"file://{folder}/"):
        array = zstore.open(f"icechunk://{place}", storage_options={"allow": allow})["v"]
        assert array[:8].tolist() == [*range(8)]
        with pytest.raises(StoreError, match="secret"):  # out of every place that the repository names
            array[8:]
        assert pickle.loads(pickle.dumps(array.store)).get("v/c/1") == array.store.get("v/c/1")
    for none in (None, [], tmp_path / "archive2", folder / "below", str(folder)[:-1]):
        array = zstore.open(f"icechunk://{place}", storage_options={"allow": none})["v"]
        with pytest.raises(StoreError, match="expected the storage option 'allow' to name that place"):
            array[:8]
    with pytest.raises(StoreError, match=r"has a '\.\.'"):
        zstore.open(f"icechunk://{place}", storage_options={"allow": f"{folder}/../archive"})


def test_a_changed_source_of_virtual_chunks_is_an_error(archive: tuple[Path, str]) -> None:
    folder, place = archive
    array = zstore.open(f"icechunk://{place}", storage_options={"allow": folder})["v"]
    assert array[0] == 0
    later = time.time() + 1000
    os.utime(folder / "file", (later, later))
    with pytest.raises(StoreError, match=r"modified|changed|updated"):
        array[:4]
    (folder / "file").unlink()
    with pytest.raises(StoreError):
        array[:4]


def test_a_forked_process_gets_an_error(place: str) -> None:
    fill(place, [1] * 8)
    store = open_store(f"icechunk://{place}")

    def read() -> None:
        for ask in (lambda: store.get("a/c/0"), lambda: open_store(f"icechunk://{place}")):
            with pytest.raises(StoreError, match="expected a spawned process"):
                ask()

    assert run_forked([read]) == [0]
    assert store.get("a/c/0") is not None


def test_reads_are_awaited(place: str) -> None:
    fill(place, np.arange(800))
    array = zstore.open(repository(place).readonly_session("main").store)["a"]

    async def ask() -> list[Any]:
        return await asyncio.gather(*(array.read_async(np.s_[n : n + 30]) for n in range(0, 700, 20)))

    for n, found in enumerate(asyncio.run(ask())):
        assert found.tolist() == [*range(20 * n, 20 * n + 30)]


def test_the_store_is_registered() -> None:
    assert stores.resolve("icechunk").__name__ == "IcechunkStore"
    lines = [line for line in list_offers() if line.package == "zstore-icechunk"]
    assert {line.name for line in lines} == {
        *("icechunk", "icechunk+s3", "icechunk+gs", "icechunk+az", "icechunk+http", "icechunk+https"),
        "icechunk.store.IcechunkStore",
    }
    assert {(line.kind, line.state) for line in lines} == {("store", "ok")}
    with pytest.raises(UnsupportedError, match="no adapter 'acme' for URL pipelines; expected zip:"):
        open_store("/a|acme:b")
    with pytest.raises(UnsupportedError, match="is no adapter of URL pipelines"):
        open_store("/a|sqlite:b" if "sqlite" in stores.names() else "/a|file:b")


def test_zstore_info_of_a_version(place: str) -> None:
    testing = pytest.importorskip("click.testing", reason="the command line needs click")
    pytest.importorskip("rich", reason="the command line needs rich")
    from zstore.cli.root import zstore as command

    [first] = fill(place, np.arange(8))
    repository(place).create_tag("v1", first)
    for url in (f"icechunk://{place}", f"{place}|icechunk:@tag.v1/"):
        result = testing.CliRunner().invoke(command, ["info", "--json", url])
        assert result.exit_code == 0, result.output
        assert '"shape"' in result.output
    result = testing.CliRunner().invoke(command, ["info", f"{place}|icechunk:@tag.v2/"])
    assert result.exit_code != 0
    assert "no tag 'v2'" in result.output


def test_the_page_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "icechunk.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
