"""Chunks kept decoded: which ones, for how long, and never one that was changed since."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore._ext.engine.transfer import kept_size
from zstore.engine import schedulers
from zstore.errors import CodecError

CHUNK = 64 * 64 * 4
FORMATS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (64, 64)},
    "shards": {"chunks": (64, 64), "shards": (128, 128)},
    "v2": {"chunks": (64, 64), "zarr_format": 2},
}


def settle() -> None:
    """Until a file written before is old enough for a later change to show in its times."""
    time.sleep(0.15)


@pytest.fixture(autouse=True)
def _as_ever() -> Iterator[None]:
    zstore.set_cache_size(None)
    yield
    zstore.set_cache_size(None)


@pytest.fixture(params=FORMATS)
def array(request: pytest.FixtureRequest, tmp_path: Path) -> zstore.Array:
    array = zstore.create_array(tmp_path / "a", shape=(256, 256), dtype="i4", **FORMATS[request.param])
    array[...] = np.arange(256 * 256).reshape(256, 256)
    settle()
    return array


def test_a_chunk_is_kept_at_its_second_use_in_part(array: zstore.Array) -> None:
    before = kept_size()
    assert array[3:60:50, 4:60:50].tolist() == [[row * 256 + 4, row * 256 + 54] for row in (3, 53)]
    assert kept_size() == before
    assert array[5, 6] == 5 * 256 + 6
    assert before + CHUNK <= kept_size() < before + CHUNK + 1024
    assert array[7, 8] == 7 * 256 + 8
    assert kept_size() < before + CHUNK + 1024


def test_a_chunk_that_is_decoded_for_little_of_it_is_kept_at_once(
    tmp_path: Path, array: zstore.Array
) -> None:
    values = np.arange(256 * 256).reshape(256, 256)
    before = kept_size()
    assert (array[:, 5] == values[:, 5]).all()
    assert before + 4 * CHUNK <= kept_size() < before + 4 * CHUNK + 4096
    hits = zstore.cache_info().decoded_hit_count
    assert (array[:, 6] == values[:, 6]).all()
    assert zstore.cache_info().decoded_hit_count - hits == 4
    # Not where the codec decodes just what is asked for, nor of a chunk of which the array has no more, ...
    blocks = zstore.create_array(
        tmp_path / "b", data=values.astype("i8"), chunks=(256, 256), compressors="blosc"
    )
    small = zstore.create_array(tmp_path / "s", data=values[:9, :9], chunks=(64, 64))
    settle()
    before = kept_size()
    assert (blocks[3] == values[3]).all()
    assert (small[...] == values[:9, :9]).all()
    assert kept_size() == before
    assert (blocks[:, 3] == values[:, 3]).all()
    assert kept_size() >= before + 256 * 256 * 8
    # ... nor instead of others that are kept.
    zstore.set_cache_size(17 * CHUNK)
    array[:, 70], array[:, 140], array[:, 200], array[:, 5]
    other = zstore.open_array(tmp_path / "a")
    info = zstore.cache_info()
    assert (other[:, 7] == values[:, 7]).all()
    assert zstore.cache_info().evicted_count == info.evicted_count
    assert zstore.cache_info().thrash_count == info.thrash_count


def test_points_and_rows_keep_chunks_too(array: zstore.Array) -> None:
    before = kept_size()
    assert list(array.vindex[[1, 2], [3, 200]]) == [259, 712]
    assert kept_size() == before
    for _ in range(2):
        assert list(array.vindex[[1, 2], [3, 200]]) == [259, 712]
    assert before + 2 * CHUNK <= kept_size() < before + 2 * CHUNK + 2048
    for row in range(128, 131):
        assert (array[row] == row * 256 + np.arange(256)).all()
    assert before + 6 * CHUNK <= kept_size() < before + 6 * CHUNK + 8192


def test_whole_chunks_are_not_kept(array: zstore.Array) -> None:
    before = kept_size()
    for _ in range(3):
        array[...]
        array[64:128, 0:64]
    assert kept_size() == before


def read_size() -> int:
    """Bytes that this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="counts what is read by /proc")
@pytest.mark.parametrize("options", FORMATS.values(), ids=FORMATS)
def test_a_cache_of_its_own_keeps_what_is_stored_as_it_is(tmp_path: Path, options: dict[str, Any]) -> None:
    values = np.arange(256 * 256).reshape(256, 256)
    array = zstore.create_array(tmp_path / "a", data=values, compressors=None, **options)
    settle()
    for limit, is_kept in ((1 << 20, True), (CHUNK, False)):
        cached = array.cached(limit)
        assert (cached[:64, 3] == values[:64, 3]).all()
        before = read_size()
        for column in range(4, 14):
            assert (cached[:64, column] == values[:64, column]).all()
        assert cached.vindex[[1], [2]] == values[1, 2]
        assert (read_size() - before < CHUNK) == is_kept
    array[0, 5] = -1
    assert cached[0, 5] == array.cached(1 << 20)[0, 5] == -1


def test_what_an_array_kept_goes_with_it(tmp_path: Path, array: zstore.Array) -> None:
    before = kept_size()
    other = zstore.open_array(tmp_path / "a")
    for _ in range(3):
        other[0]
    assert kept_size() > before
    del other
    assert kept_size() == before


def test_nothing_is_kept_of_a_file_just_written(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path / "a", shape=(64, 64), dtype="i4", chunks=(64, 64))
    before, later = kept_size(), time.time() + 3600  # however slow this is, the file is new
    for value in range(1, 40):
        array[...] = value
        os.utime(tmp_path / "a" / "c" / "0" / "0", (later, later))
        assert array[0, 0] == array[1, 1] == array[2, 2] == value
    assert kept_size() == before


def test_replaced_chunks_are_read_anew(array: zstore.Array) -> None:
    for _ in range(3):
        array[0:2, 0:2]
    array[0, 0] = -1
    assert array[0, 0] == -1
    assert array[0, 1] == 1
    settle()
    for _ in range(3):
        assert list(array[0, 0:3]) == [-1, 1, 2]


def test_a_file_changed_in_place_is_read_anew(tmp_path: Path) -> None:
    array = zstore.create_array(
        tmp_path / "a", shape=(64,), dtype="u1", chunks=(64,), compressors=[{"name": "crc32c"}]
    )
    array[...] = 1
    settle()
    assert [int(array[0]) for _ in range(3)] == [1, 1, 1]
    path = tmp_path / "a" / "c" / "0"
    status = path.stat()
    damaged = bytearray(path.read_bytes())
    damaged[5] ^= 1
    with path.open("r+b") as file:
        file.write(damaged)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CodecError, match="checksum"):
        array[0]


def test_a_damaged_chunk_is_never_kept(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path / "a", shape=(64, 64), dtype="i4", chunks=(64, 64))
    array[...] = np.arange(4096).reshape(64, 64)
    path = next((tmp_path / "a" / "c").rglob("0/0"))
    path.write_bytes(path.read_bytes()[:-9])
    settle()
    before = kept_size()
    for _ in range(4):
        with pytest.raises(CodecError):
            array[0, 0]
    assert kept_size() == before


def test_the_limit_holds_for_all_arrays_together(tmp_path: Path) -> None:
    arrays = []
    for name in "abc":
        array = zstore.create_array(tmp_path / name, shape=(64, 640), dtype="i4", chunks=(64, 64))
        array[...] = np.arange(64 * 640).reshape(64, 640)
        arrays.append(array)
    settle()
    size = 12 * CHUNK
    zstore.set_cache_size(size)
    for _ in range(3):
        for array in arrays:
            assert (array[5] == 5 * 640 + np.arange(640)).all()
    assert 10 * CHUNK < kept_size() <= size
    arrays[-1][5]
    before = zstore.cache_info()
    arrays[-1][5]
    after = zstore.cache_info()
    assert after.decoded_hit_count - before.decoded_hit_count == 10
    assert after[5:] == before[5:]  # no miss, nothing evicted
    zstore.set_cache_size(3 * CHUNK)
    assert kept_size() <= 3 * CHUNK
    zstore.set_cache_size(0)
    assert kept_size() == 0
    assert all((array[5] == 5 * 640 + np.arange(640)).all() for array in arrays)
    assert kept_size() == 0


def test_a_loop_over_more_than_there_is_room_for_hits_what_is_kept(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path / "a", shape=(64, 64 * 60), dtype="i4", chunks=(64, 64))
    array[...] = np.arange(64 * 64 * 60).reshape(64, -1)
    settle()
    zstore.set_cache_size(40 * (CHUNK + 256))  # a loop over 1.5 times as much
    for _ in range(3):
        array[5]
    before = zstore.cache_info()
    for row in range(10):
        array[row]
    after = zstore.cache_info()
    assert after.decoded_hit_count - before.decoded_hit_count >= 10 * 36
    assert 10 * 15 <= after.thrash_count - before.thrash_count <= 10 * 24
    for _ in range(3):  # chunks that nobody reads any more leave soon
        array[7, : 64 * 30]
    again = zstore.cache_info()
    array[8, : 64 * 30]
    assert zstore.cache_info().decoded_hit_count - again.decoded_hit_count >= 24
    # The log has one hint, of a process whose chunks are decoded again more often than taken from memory.
    code = f"""if True:
        import zstore
        from zstore._ext.engine import transfer
        from zstore.engine import schedulers
        transfer.hint_at_thrash(100, schedulers._say_thrash)
        array = zstore.open({str(tmp_path / "a")!r})
        zstore.set_cache_size({9 * CHUNK})
        for row in range(60):
            array[row, : 64 * 30], array[row, 64 * 30 :]
        """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("again and again") == done.stderr.count("zstore.set_cache_size") == 1


def test_several_windows_read_together_cost_no_more_than_one_by_one(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path / "a", shape=(24 * 8, 64), dtype="i4", chunks=(8, 64))
    array[...] = np.arange(24 * 8 * 64).reshape(-1, 64)
    settle()
    zstore.set_cache_size(15 * (8 * 64 * 4 + 256))
    windows = [slice(n, n + 2) for n in np.random.default_rng(1).permutation(191).tolist()]
    counts = []
    for together in (1, 32):
        for _ in range(2):
            before = zstore.cache_info()
            for first in range(0, 191, together):
                array.read_many(windows[first : first + together])
            after = zstore.cache_info()
        counts.append(after.decoded_miss_count - before.decoded_miss_count)
    assert counts[1] <= min(counts[0], 6 * 12)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
def test_chunks_that_come_and_go_take_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    values = np.arange(1024 * 2560, dtype="i4").reshape(1024, 2560)
    zstore.create_array(tmp_path / "a", data=values, chunks=(256, 128))  # 80 chunks of 128 KiB
    zstore.create_array(tmp_path / "b", data=values, chunks=(512, 640))  # 8 of 1.25 MiB
    settle()
    code = f"""if True:
        import os, random
        import numpy as np, zstore
        from zstore._ext.engine.transfer import kept_size
        def used(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        values = np.arange(1024 * 2560, dtype="i4").reshape(1024, 2560)
        arrays = [zstore.open({str(tmp_path)!r} + "/" + name) for name in "ab"]
        zstore.set_threads(1)
        zstore.set_cache_size(0)
        for array in arrays: array[5:7, 5:7]
        before, chance, most = used(), random.Random(1), 0
        zstore.set_cache_size(6 << 20)
        for turn in range(3000):
            row, column = chance.randrange(1000), chance.randrange(2500)
            array = arrays[turn // 100 % 2]
            assert (array[row : row + 9, column] == values[row : row + 9, column]).all()
            most = max(most, used() - before)
        assert 4 << 20 < kept_size() <= 6 << 20
        assert most < 12 << 20, most
        del array, arrays
        assert kept_size() == 0 and used() - before < 4 << 20, used() - before
        """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_cache_has_a_share_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, size in ((1 << 30, 128 << 20), (8 << 30, 256 << 20), (1 << 40, 512 << 20)):
        monkeypatch.setattr(schedulers, "memory_size", lambda memory=memory: memory)
        assert schedulers.default_cache_size() == size


def test_a_chunk_too_large_for_the_limit_is_not_kept(array: zstore.Array) -> None:
    zstore.set_cache_size(7 * CHUNK)
    for _ in range(4):
        assert array[0, 5] == 5
    assert kept_size() == 0


def test_the_size_is_checked() -> None:
    with pytest.raises(ValueError, match="cache size -1, expected 0 or more bytes"):
        zstore.set_cache_size(-1)


def test_the_environment_sets_the_size(tmp_path: Path) -> None:
    for name, options in FORMATS.items():
        zstore.create_array(tmp_path / name, data=np.arange(65536).reshape(256, 256), **options)
    settle()
    script = (
        "import sys, zstore\n"
        "from zstore._ext.engine.transfer import kept_size\n"
        "arrays = [zstore.open_array(path) for path in sys.argv[1:]]\n"
        "for array in arrays:\n"
        "    before = kept_size()\n"
        "    for _ in range(3): array[0, 0]\n"
        "    print(kept_size() > before)\n"
    )
    paths = [str(tmp_path / name) for name in FORMATS]
    for size, is_kept in (("0", False), ("1000000", True), ("", True)):
        done = subprocess.run(
            [sys.executable, "-c", script, *paths],
            env=os.environ | {"ZSTORE_CACHE_SIZE": size},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [str(is_kept)] * len(FORMATS), size


def test_threads_share_what_is_kept_while_others_replace_it(array: zstore.Array) -> None:
    zstore.set_cache_size(20 * CHUNK)
    stop = threading.Event()
    wrong: list[Any] = []

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        while not stop.is_set():
            row, column = random.integers(0, 240, 2)
            got = array[row : row + 9, column : column + 9]
            want = np.arange(row, row + 9)[:, None] * 256 + np.arange(column, column + 9)
            if not ((got == want) | (got == -want)).all():
                wrong.append((row, column))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    values = np.arange(256 * 256).reshape(256, 256)
    for turn in range(12):
        array[64:192, 64:192] = (-values if turn % 2 else values)[64:192, 64:192]
        time.sleep(0.12 if turn % 4 == 0 else 0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_goes_on_with_what_is_kept(array: zstore.Array) -> None:
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            array[::7, ::7]

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0 if array[200, 3] == 200 * 256 + 3 and array[200, 4] == 200 * 256 + 4 else 3)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@settings(max_examples=12)
@given(data=st.data(), kind=st.sampled_from(sorted(FORMATS)))
def test_kept_chunks_read_like_numpy(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str
) -> None:
    path = tmp_path_factory.mktemp("kept") / "a"
    array = zstore.create_array(path, shape=(200, 150), dtype=">i4", **FORMATS[kind])
    values = np.arange(200 * 150, dtype="i4").reshape(200, 150)
    array[...] = values
    settle()
    for _ in range(data.draw(st.integers(5, 25))):
        top, bottom = sorted(data.draw(st.tuples(st.integers(0, 200), st.integers(0, 200))))
        left, right = sorted(data.draw(st.tuples(st.integers(0, 150), st.integers(0, 150))))
        step = data.draw(st.sampled_from([1, 2, 9, -1, -3]))
        rows = slice(top, bottom) if step > 0 else slice(bottom - 200, top - 201)
        match data.draw(st.sampled_from(["read", "read", "read", "orthogonal", "points", "write"])):
            case "read":
                assert np.array_equal(array[rows, left:right:3], values[rows, left:right:3])
            case "orthogonal":
                chosen = np.arange(top, bottom)[::step]
                assert np.array_equal(array.oindex[chosen, left:right], values[chosen, left:right])
            case "points":
                chosen = np.arange(min(top, left), min(bottom, right, 150))
                assert np.array_equal(array.vindex[chosen, chosen], values[chosen, chosen])
            case "write":
                values[top:bottom, left:right] = top - left
                array[top:bottom, left:right] = top - left
