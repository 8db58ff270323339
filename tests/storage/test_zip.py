"""Zip files: what they hold after rewriting, what a killed writer leaves, damage, other people's files."""

from __future__ import annotations

import gc
import io
import pickle
import signal
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.errors import NotFoundError, ReadOnlyError, StoreError
from zstore.storage.base import Part, Parts, PrefixStore, Request, Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store
from zstore.storage.zip.members import Directory, Member, render_directory
from zstore.storage.zip.sources import ZipSource
from zstore.storage.zip.store import ZipStore
from zstore.testing.sharing import run_forked
from zstore.testing.stores import StoreContract


class TestZip(StoreContract):
    shares_processes = False  # one process writes at a time
    excludes_processes = False

    def make_store(self, place: Path) -> Store:
        return ZipStore(place / "a é % #.zip")


class TestFlushedZip(TestZip):
    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        store = super().make_store_with(place, values)
        store.flush()
        return store


class TestDeflatedZip(TestZip):
    def make_store(self, place: Path) -> Store:
        return ZipStore(place / "a.zip", deflate=True)


class FarStore(MemoryStore):
    """A store that is worth many requests at once, counts their rounds and knows versions."""

    in_memory = False
    request_count = 8

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.rounds: list[int] = []
        self.version = "1"

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        self.rounds.append(len(requests))
        return [
            part and Part(part.data, part.total_size, self.version) for part in super().get_parts(requests)
        ]


def packed(values: dict[str, bytes], method: int = zipfile.ZIP_STORED, **options: Any) -> bytes:
    """A zip file as Python's own library makes it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method, **options) as file:
        for name, value in values.items():
            file.writestr(name, value)
    return target.getvalue()


class TestZipWithinAStore(StoreContract):
    can_write = False

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        LocalStore(place).put("some/x.zip", packed(values))
        return ZipStore.within(LocalStore(place), "some/x.zip")

    can_reopen = False  # of a directory in a store, its path is the URL


class TestZipFarAway(TestZipWithinAStore):
    can_pickle = False  # memory cannot be

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        far = FarStore()
        far.put("some/x.zip", packed(values, zipfile.ZIP_DEFLATED))
        return ZipStore.within(far, "some/x.zip")


class TestZipOfAnObject(TestZipWithinAStore):
    can_pickle = False

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        return ZipStore(io.BytesIO(packed(values)))


class TestZipOfAFile(TestZipWithinAStore):
    can_pickle = False

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        (place / "x.zip").write_bytes(packed(values))
        with open(place / "x.zip", "rb") as file:
            return ZipStore(file)


def names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        return file.namelist()


def test_a_member_is_in_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with ZipStore(path) as store:
        for i in range(5):
            store.put("a", bytes([i]) * 1000)
            store.put("b/c", b"1")
        store.delete("b/c")
    assert names(path) == ["a"]
    assert path.stat().st_size < 1200, "what was replaced is gone from the file, too"
    with ZipStore(path) as store:
        store.put("a", b"again")
        store.put("d", b"new")
        assert names(path) == ["a"]
    assert sorted(names(path)) == ["a", "d"]
    with ZipStore(path) as store:
        store.delete_prefix("")
    assert names(path) == []
    assert [*tmp_path.iterdir()] == [path]


def test_a_version_is_that_of_the_value(tmp_path: Path) -> None:
    """Whoever opens the file, and wherever the member lies in it."""
    store = ZipStore(tmp_path / "s.zip")
    for key, value in ("a", b"1"), ("b", b"2"), ("c", b"3"):
        store.put(key, value)
    store.flush()
    before = {key: version for key, _, version in store.entries()}
    store.put("a", b"4")
    store.delete("b")
    store.flush()
    again = {key: version for key, _, version in ZipStore(tmp_path / "s.zip").entries()}
    assert again["c"] == before["c"] and again["a"] != before["a"]


def test_an_array_resized_in_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    array = zstore.create_array(path, "a", shape=(10,), chunks=(4,), dtype="i4", attributes={"n": 1})
    array[:] = np.arange(10)
    array.resize((6,))
    array.resize((12,))
    assert array[:].tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0]
    array[7] = 7
    open_store(path).flush()
    found = names(path)
    assert len(found) == len(set(found))
    again = zstore.open_array(path, "a", mode="r")
    assert again[:].tolist() == [0, 1, 2, 3, 4, 5, 0, 7, 0, 0, 0, 0]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_python_reads_and_writes_the_same_files(tmp_path: Path, zarr_format: Any) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    from zarr.storage import ZipStore as PeerStore

    values = np.arange(60).reshape(6, 10)
    with open_store(tmp_path / "ours.zip") as ours:
        zstore.create_array(ours, "a", data=values, chunks=(4, 4), zarr_format=zarr_format)
    with PeerStore(tmp_path / "ours.zip", mode="r") as peer:
        assert np.array_equal(zarr.open_array(peer, path="a", mode="r")[:], values)
    with PeerStore(tmp_path / "theirs.zip", mode="w") as peer:
        zarr.create_array(peer, name="a", data=values, chunks=(4, 4), zarr_format=zarr_format)
    assert np.array_equal(zstore.open_array(tmp_path / "theirs.zip", "a", mode="r")[:], values)


def run(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    header = "import os, signal, sys, zstore\nfrom zstore.storage.url import open_store\npath = sys.argv[1]\n"
    return subprocess.run(
        [sys.executable, "-c", header + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=check,
    )


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise ValueError('something else')"])
def test_nobody_closed_it(tmp_path: Path, end: str) -> None:
    path = tmp_path / "x.zip"
    code = "a = zstore.create_array(path, 'a', shape=(4,), dtype='i2', chunks=(2,))\na[:] = [1, 2, 3, 4]\n"
    run(code + end, path, check=not end)
    assert zstore.open_array(path, "a", mode="r")[:].tolist() == [1, 2, 3, 4]


def test_the_last_store_that_is_gone_flushes(tmp_path: Path) -> None:
    store: ZipStore | None = ZipStore(tmp_path / "x.zip")
    assert store is not None
    store.put("a", b"1")
    other: ZipStore | None = ZipStore(tmp_path / "x.zip")
    del store
    assert not (tmp_path / "x.zip").exists()
    assert other is not None
    assert other.get("a") == b"1"
    del other
    assert names(tmp_path / "x.zip") == ["a"]


@pytest.mark.parametrize("when", ["before flushing", "while the file is written anew"])
def test_a_killed_writer_leaves_the_old_file(when: str, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with ZipStore(path) as store:
        store.put("a", b"old")
    code = "s = open_store(path)\ns.put('a', b'new')\ns.put('b', b'1' * 100000)\n"
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    if when != "before flushing":
        code += f"os.fsync = lambda file: {kill}\ns.put('b', b'2')\ns.flush()\n"
    assert run(code + kill, path, check=False).returncode == -signal.SIGKILL
    assert names(path) == ["a"]
    assert len([*tmp_path.iterdir()]) == 2 + (when != "before flushing")
    with ZipStore(path) as store:
        assert store.get("a") == b"old"
        store.put("c", b"2")
    assert sorted(names(path)) == ["a", "c"]
    assert [*tmp_path.iterdir()] == [path]


def test_a_second_writing_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    store = ZipStore(path)
    store.put("a", b"1")
    code = "s = open_store(path)\nassert s.get('a') is None\ns.put('b', b'1')"
    found = run(code, path, check=False)
    assert "another process is writing the zip file" in found.stderr
    store.flush()
    run("s = open_store(path)\nassert s.get('a') == b'1'\ns.put('b', b'2')\ns.close()", path)
    # What the other has written is taken up before this one writes.
    store.put("c", b"3")
    assert store.get("b") == b"2"
    store.close()
    assert sorted(names(path)) == ["a", "b", "c"]


def test_a_file_that_others_replaced_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    store = ZipStore(path)
    store.put("a", b"1")
    path.write_bytes(packed({"theirs": b"2"}))
    with pytest.raises(StoreError, match="others changed the zip file"):
        store.flush()
    assert names(path) == ["theirs"]
    assert store.get("a") == b"1"
    path.unlink()
    store.close()
    assert names(path) == ["a"]


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.zip"
    with ZipStore(path) as store:
        store.put("a", b"old")
    store.put("b", b"new")
    import os

    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda *arguments: 0)
    with pytest.raises(StoreError, match="No space left"):
        store.put("c", b"more")
    with pytest.raises(StoreError, match="No space left"):
        store.flush()
    assert names(path) == ["a"]
    monkeypatch.setattr(os, "pwritev", real)
    assert store.get("c") is None
    store.close()
    assert sorted(names(path)) == ["a", "b"]
    assert [*tmp_path.iterdir()] == [path]


def test_a_forked_child_reads_what_waits_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    store = ZipStore(path)
    store.put("a", b"1")

    def child() -> None:
        assert store.get("a") == b"1"
        with pytest.raises(StoreError, match="another process is writing"):
            store.put("b", b"2")
        store.close()
        assert not path.exists()

    assert run_forked([child]) == [0]
    store.put("c", b"3")
    store.close()
    assert sorted(names(path)) == ["a", "c"]


def test_a_forked_child_outlives_a_parent_that_did_not_flush(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    code = (
        "import time\ns = open_store(path)\ns.put('old', b'0')\ns.flush()\ns.put('a', b'1')\n"
        "parent = os.getpid()\n"
        "if os.fork():\n    os._exit(0)\n"
        "while os.getppid() == parent:\n    time.sleep(0.01)\n"
        "assert s.get('a') == b'1'\ns.put('b', b'2')\nassert s.get('a') is None\ns.close()"
    )
    assert run(code, path).stderr == ""
    assert sorted(names(path)) == ["b", "old"]


def test_threads_read_while_others_write_and_flush(tmp_path: Path) -> None:
    store = ZipStore(tmp_path / "x.zip")
    values = {f"a/{i}": bytes([i]) * (1000 + i) for i in range(50)}
    for key, value in values.items():
        store.put(key, value)

    def read(seed: int) -> bool:
        return all(
            bytes(store.get(key, ByteRange(-seed)) or b"") == value[-seed:] for key, value in values.items()
        )

    def write(i: int) -> bool:
        store.put(f"b/{i}", b"x")
        store.flush()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all([*pool.map(read, range(1, 20)), *pool.map(write, range(10))])
        reads = [pool.submit(read, seed) for seed in range(1, 20)]
        writes = [pool.submit(write, i) for i in range(10)]
        assert all(task.result() for task in reads + writes)
    assert len(names(tmp_path / "x.zip")) == 60


def test_a_pickled_store_has_what_was_put(tmp_path: Path) -> None:
    store = ZipStore(tmp_path / "x.zip")
    store.put("a", b"1")
    data = pickle.dumps(store)
    assert names(tmp_path / "x.zip") == ["a"]
    assert pickle.loads(data).get("a") == b"1"


# Zip files of others


def test_what_archivers_write_besides(tmp_path: Path) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        file.comment = b"about it"
        file.mkdir("dir")
        file.mkdir("../outside")
        file.writestr("dir/a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("dir/a", b"22")
        info = zipfile.ZipInfo("é")
        info.extra = struct.pack("<2H8s", 0x5455, 8, b"12345678")
        file.writestr(info, b"333")
        with file.open("streamed", "w", force_zip64=True) as stream:
            stream.write(b"4444")
    path = tmp_path / "x.zip"
    path.write_bytes(b"#!/bin/sh\n" + target.getvalue())
    with ZipStore(path) as store:
        assert sorted(store.list()) == ["dir/a", "streamed", "é"]
        assert [bytes(store.get(key) or b"") for key in ("dir/a", "é", "streamed")] == [
            b"22",
            b"333",
            b"4444",
        ]
        store.put("new", b"")
    with zipfile.ZipFile(path) as file:
        assert file.comment == b"about it"
        assert sorted(file.namelist()) == ["dir/a", "new", "streamed", "é"]
        assert file.testzip() is None


def test_a_stream_without_sizes_in_its_headers() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += data
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as file:  # type: ignore[arg-type]
        file.writestr("a", b"1" * 1000)
        file.writestr("b", b"2")
    store = ZipStore(io.BytesIO(bytes(pipe.data)))
    assert store.get("a") == b"1" * 1000
    assert store.get("b") == b"2"


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a//b", "./a", "a/."])
def test_names_that_climb_out_are_refused(name: str) -> None:
    with pytest.raises(StoreError, match="which no store may hold") as caught:
        ZipStore(io.BytesIO(packed({"good": b"1", name: b"2"})))
    assert repr(name) in str(caught.value)


def test_methods_that_are_not_read_are_named() -> None:
    store = ZipStore(io.BytesIO(packed({"a": b"1" * 1000}, zipfile.ZIP_BZIP2)))
    assert [*store.list()] == ["a"]
    with pytest.raises(StoreError, match="method 12; expected 0") as caught:
        store.get("a")
    assert caught.value.key == "a"


def test_encrypted_members_are_named() -> None:
    data = bytearray(packed({"a": b"1"}))
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(StoreError, match="encrypted"):
        ZipStore(io.BytesIO(bytes(data))).get("a")


# Damage


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_byte_gives_no_wrong_value(method: int) -> None:
    values = {"zarr.json": b'{"zarr_format": 3}' * 3, "c/0/0": bytes(range(60))}
    whole = packed(values, method)
    directory = whole.index(b"PK\1\2")
    errors = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        try:
            store = ZipStore(io.BytesIO(bytes(damaged)))
            found = {key: store.get(key) for key in values}
        except StoreError:
            errors += 1
            continue
        for key, value in values.items():
            at = whole.index(key.encode(), directory)
            if at <= place < at + len(key):
                continue  # no checksum covers names
            assert found[key] is not None, (place, key)
            assert bytes(found[key] or b"") == value, (place, key)
    assert errors > len(whole) // 2


def test_a_file_that_is_cut_off_is_an_error() -> None:
    whole = packed({"a": b"1" * 50, "b/c": b"2" * 50})
    for size in range(len(whole)):
        with pytest.raises(StoreError):
            ZipStore(io.BytesIO(whole[:size]))
    for junk in (b"\0", b"junk" * 100):
        with pytest.raises(StoreError, match="not a zip file, or one that is cut off"):
            ZipStore(io.BytesIO(whole + junk))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (20, 2**31, "reach into the directory"),
        (24, 2**32 - 2, "cannot give|shall be"),
        (42, 2**31, "reach into"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_lying_directory(method: int, field: int, value: int, reason: str) -> None:
    data = bytearray(packed({"a": b"1" * 100}, method))
    struct.pack_into("<L", data, data.index(b"PK\1\2") + field, value)
    with pytest.raises(StoreError, match=reason):
        ZipStore(io.BytesIO(bytes(data))).get("a")


def test_a_checksum_that_differs_names_the_member(tmp_path: Path) -> None:
    data = bytearray(packed({"a/b": b"0123456789"}))
    data[data.index(b"0123456789")] ^= 1
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(StoreError, match=r"checksum is .* expected") as caught:
        ZipStore(tmp_path / "x.zip").get("a/b")
    assert caught.value.key == "a/b"
    assert str(tmp_path) in str(caught.value)


# More than 32 bits


class Sparse(ZipSource):
    """Zeros, and some bytes at the end."""

    def __init__(self, start: int, data: bytes) -> None:
        super().__init__("sparse", start + len(data))
        self.start, self.data = start, data

    def _read(self, begin: int, size: int) -> bytes:
        skip = begin - self.start
        return self.data[skip : skip + size] if skip >= 0 else bytes(-skip) + self.data[: size + skip]


def member(name: str, method: int, crc: int, packed_size: int, size: int, offset: int) -> Member:
    return Member(Sparse(0, b""), name, method, crc, packed_size, size, offset)


def facts(member: Member) -> tuple[Any, ...]:
    return member.name, member.method, member.crc, member.packed_size, member.size, member.offset


@pytest.mark.parametrize("before", [0, 77])
@pytest.mark.parametrize("start", [1000, 5 << 30])
def test_directories_beyond_4_gib(start: int, before: int) -> None:
    numbers = [
        ("a", 0, 1, 10, 10, 0),
        ("b" * 100, 8, 2, start // 2, start * 3, 200),
        ("c", 0, 3, 7, 7, start - 40),
    ]
    data = render_directory([member(*each) for each in numbers], start, b"comment")
    found = Directory(Sparse(start + before, data))
    assert [facts(member) for member in found.members.values()] == [
        (*each[:-1], each[-1] + before) for each in numbers
    ]
    assert found.comment == b"comment"


def test_more_members_than_16_bits_count(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    count = 65_600
    with ZipStore(path) as store:
        for i in range(count):
            store.put(f"c/{i}", b"")
    with zipfile.ZipFile(path) as file:
        assert len(file.namelist()) == count
    fresh = ZipStore.within(LocalStore(tmp_path), "x.zip")
    assert len([*fresh.list("c")]) == count
    assert fresh.list_children() == ["c"]


@pytest.mark.parametrize("count", [0xFFFF, 0x10000])
def test_as_many_members_as_16_bits_count(count: int) -> None:
    data = render_directory([member(f"{i:05}", 0, 0, 0, 0, 35 * i) for i in range(count)], 35 * count, b"")
    # Of exactly 65535, some archivers write that count without saying more anywhere, others say it twice.
    assert (b"PK\6\7" in data) == (count > 0xFFFF)
    assert len(Directory(Sparse(35 * count, data)).members) == count
    if count == 0xFFFF:
        size, place = len(data) - 22, 35 * count
        wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, place)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, place + size, 1)
        for more in (b"", b"a longer record"):
            whole = data[:size] + wide + more + locator + data[size:]
            assert len(Directory(Sparse(place, whole)).members) == count


def test_a_comment_that_looks_like_an_end() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        file.comment = b"PK\5\6" + bytes(30)
        file.writestr("a", b"1")
    assert ZipStore(io.BytesIO(target.getvalue())).get("a") == b"1"


# Within other stores


def test_parts_of_a_far_zip_come_in_one_round() -> None:
    far = FarStore()
    values = {f"c/{i}": bytes([i]) * (1000 + i) for i in range(30)}
    far.put("x.zip", packed(values))
    store = ZipStore.within(far, "x.zip")
    assert far.rounds == [1]
    wanted: list[tuple[str, ByteRange | None]] = [(f"c/{i}", ByteRange(-10)) for i in range(30)]
    for rounds in ([60], [30]):
        far.rounds.clear()
        found = store.get_many(wanted)
        assert [bytes(value or b"") for value in found] == [bytes([i]) * 10 for i in range(30)]
        assert far.rounds == rounds
    assert store.read_only
    assert store.request_count == far.request_count
    far.version = "2"
    with pytest.raises(StoreError, match="replaced or removed since it was opened"):
        store.get("c/1")


def test_an_extra_field_longer_than_was_guessed() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        info = zipfile.ZipInfo("a")
        info.extra = struct.pack("<2H200s", 0x9999, 200, b"x" * 200)
        file.writestr(info, b"0123456789")
    far = FarStore()
    far.put("x.zip", target.getvalue())
    assert bytes(ZipStore.within(far, "x.zip").get("a") or b"") == b"0123456789"


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a %41.zip"
    targets = [
        path,
        str(path),
        path.name,
        path.as_uri(),
        f"zip::{path}",
        f"zip::{path.as_uri()}",
        f"zip://{path.as_uri()[7:]}",
        f"zip://::{path.name}",
    ]
    with open_store(targets[0]) as store:
        store.put("in/a", b"1")
    for target in targets:
        store = open_store(target, read_only=True)
        assert isinstance(store, ZipStore)
        assert store.get("in/a") == b"1"
        assert open_store(store.url).get("in/a") == b"1"
        with pytest.raises(ReadOnlyError):
            store.put("b", b"")
    below = open_store(f"zip://in::{path}")
    assert isinstance(below, PrefixStore)
    assert below.get("a") == b"1"
    memory = open_store(f"memory://{tmp_path.name}")
    memory.put("deep/x.zip", path.read_bytes())
    far = open_store(f"zip::memory://{tmp_path.name}/deep/x.zip")
    assert far.read_only
    assert far.get("in/a") == b"1"
    assert open_store(far.url).get("in/a") == b"1"
    with pytest.raises(NotFoundError):
        open_store(f"zip::memory://{tmp_path.name}/deep/y.zip")
    (tmp_path / "dir.zip").mkdir()
    assert isinstance(open_store(tmp_path / "dir.zip"), LocalStore)


def test_options(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.zip", storage_options={"deflate": True}) as store:
        store.put("a", b"1" * 10_000)
    assert (tmp_path / "x.zip").stat().st_size < 1000
    with pytest.raises(StoreError, match="nonsense"):
        open_store(tmp_path / "x.zip", storage_options={"nonsense": 1})
    for url in ("zip://", "zip://host/x.zip", "zip:///x.zip?a=1", "zip::"):
        with pytest.raises(StoreError, match="expected"):
            open_store(url)
    with pytest.raises(StoreError, match="Is a directory"):
        open_store("zip::" + str(tmp_path))


def test_opening_makes_no_file(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.zip") as store:
        assert store.get("a") is None
        store.delete("a")
        store.delete_prefix("")
        with store.lock("a"):
            pass
    assert [*tmp_path.iterdir()] == []


def test_a_zip_file_that_is_open_when_the_interpreter_ends(tmp_path: Path) -> None:
    script = """
import sys, threading, zstore
from zstore.storage.zip.store import ZipStore
threading.kept = zstore.create_array(ZipStore(sys.argv[1]), data=[1, 2, 3])
threading.kept.store.flush()
threading.opened = ZipStore(open(sys.argv[1], "rb"))
"""
    call = [sys.executable, "-c", script, str(tmp_path / "x.zip")]
    made = subprocess.run(call, capture_output=True, text=True, check=True)
    assert made.stderr == ""


def test_values_are_written_though_all_is_freed_together(tmp_path):
    """The collector asks what it frees in an order of its own: here, the files before who is to read them."""
    files = list[Any]()
    store = ZipStore(tmp_path / "a.zip")
    for value in (b"old", b"new"):  # so that members are copied
        store.put("a", value)
        store.put("c/0", value)
    files += [member.source for member in store._directory.members.values()]
    users: list[Any] = [store]
    del store
    gc.collect()
    users.append(files)
    files.append(users)
    del users, files
    gc.collect()
    assert bytes(ZipStore(tmp_path / "a.zip").get("c/0") or b"") == b"new"
