"""How chunks get into their files: new ones, ones that replace others, and those of the fill value alone."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.engine.chunks import open_chunks
from zstore.errors import StoreError
from zstore.storage.local import LocalStore

from ..faults.drills import start

EDGE = 64
ITEMS = np.arange(EDGE * EDGE, dtype="i4").reshape(EDGE, EDGE) + 1


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "array"


def make(path: Path, **options) -> zstore.Array:
    options = {"chunks": (8, 8), "compressors": None, **options}
    return zstore.create_array(path, shape=(EDGE, EDGE), dtype="i4", fill_value=0, **options)


def links_unnamed(path: Path) -> bool:
    """Whether a file without a name can be made in that directory and linked by whoever made it."""
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if sys.platform != "linux" or release < (6, 10):
        return False
    try:
        os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("options", [{}, {"chunks": (4, 4), "shards": (8, 8)}, {"zarr_format": 2}])
def test_new_chunks_need_no_temporaries(path, options):
    array = make(path, **options)
    if not links_unnamed(path):
        pytest.skip("needs a file system with O_TMPFILE, and Linux 6.10")
    array[...] = ITEMS
    assert not (path / ".zstore-tmp").exists()
    np.testing.assert_array_equal(zstore.open_array(path)[...], ITEMS)
    mode = (path / ("0.0" if array.zarr_format == 2 else "c/0/0")).stat().st_mode & 0o777
    (path / "touched").touch(0o666)
    assert mode == (path / "touched").stat().st_mode & 0o777


def test_new_chunks_among_old_ones(path):
    array = make(path)
    array[:, ::16] = ITEMS[:, ::16]
    for _ in range(2):
        array[...] = ITEMS
        np.testing.assert_array_equal(array[...], ITEMS)
        for cell in ("1/1", "5/4", "0/7"):
            (path / "c" / cell).unlink()
    array[...] = -ITEMS
    np.testing.assert_array_equal(array[...], -ITEMS)
    del array
    assert sorted(entry.name for entry in path.iterdir()) == ["c", "zarr.json"]


def test_directories_that_others_remove(path):
    array = make(path)
    for value in (1, 2, 3):
        array[...] = value
        shutil.rmtree(path / "c/3")
        array[:16] = 0
        assert not any((path / "c/0").iterdir())
        array[24:32] = value + 1
        assert (array[24:32] == value + 1).all()
        shutil.rmtree(path / "c")
    array[...] = 0
    assert not (path / "c").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the links of /proc to open directories")
def test_the_descriptor_of_a_removed_directory_never_becomes_that_of_another(path):
    """Other threads may be writing by it: their chunks would go into the other directory."""
    spare = os.open(path.parent, os.O_RDONLY)
    array = make(path)
    array[...] = ITEMS
    opened = Path("/proc/self/fd")
    [number] = [link.name for link in opened.iterdir() if os.path.realpath(link) == str(path.resolve())]
    os.close(spare)  # a lower number, which the next directory to be opened gets
    shutil.rmtree(path)
    make(path)
    array[...] = -ITEMS
    assert (opened / number).samefile(path)
    assert [link.name for link in opened.iterdir() if os.path.realpath(link) == str(path)] == [number]


@pytest.mark.parametrize("durable", [False, True])
def test_chunks_of_the_fill_value_are_removed(path, durable):
    make(path)
    array = zstore.open_array(LocalStore(path, durable=durable), mode="r+")
    array[:32] = ITEMS[:32]
    array[...] = 0
    assert [file for file in (path / "c").rglob("*") if file.is_file()] == []
    array[8:16, 8:16] = 7
    array[8:16] = 0
    assert (array[...] == 0).all()


def test_a_missing_chunk_made_the_fill_value_waits_for_nobody(path):
    array = make(path)
    array[:8] = 1
    store = LocalStore(path)
    done = {name: threading.Event() for name in ("missing", "there")}

    def write(name: str, first: int) -> None:
        zstore.open_array(path, mode="r+")[first : first + 8, :8] = 0
        done[name].set()

    with store.lock("c/0/0"), store.lock("c/4/0"):
        threads = [threading.Thread(target=write, args=at) for at in (("missing", 32), ("there", 0))]
        for thread in threads:
            thread.start()
        assert done["missing"].wait(10)
        assert not done["there"].wait(0.2)
        assert (path / "c/0/0").exists()
    for thread in threads:
        thread.join(10)
    assert done["there"].is_set()
    assert not (path / "c/0/0").exists()


@pytest.mark.parametrize("compressors", [None, "zstd"])
def test_a_killed_writer_of_new_chunks_leaves_whole_ones(path, compressors):
    shape = (1024, 1024)
    whole = np.arange(1 << 20, dtype="i4").reshape(shape) + 1
    for begun in ("zarr.json", "c/0/0", "c/32"):
        shutil.rmtree(path, ignore_errors=True)
        zstore.create_array(
            path, shape=shape, dtype="i4", fill_value=0, chunks=(16, 16), compressors=compressors
        )
        unnamed = links_unnamed(path)
        with start("fill", path) as writer:
            assert writer.stdout.readline() == "ready\n"
            end = time.monotonic() + 30
            while not (path / begun).exists() and time.monotonic() < end:
                pass
            writer.kill()
        if unnamed:
            assert not (path / ".zstore-tmp").exists()
        items = zstore.open_array(path, mode="r+")[...]
        assert not (path / ".zstore-tmp").exists()
        blocks = (items == whole).reshape(64, 16, 64, 16)
        is_new = blocks.all((1, 3))
        assert (items.reshape(64, 16, 64, 16).swapaxes(1, 2)[~is_new] == 0).all()


@pytest.mark.parametrize("options", [{}, {"order": "F"}, {"shards": (900, 700)}])
@pytest.mark.parametrize("dtype", ["<i2", ">i2", ">f4", ">f8", ">c16", "<f8"])
def test_windows_of_large_uncompressed_chunks(path, options, dtype):
    rng = np.random.default_rng(3)
    items = rng.integers(0, 30000, (900, 700)).astype(dtype[1:])
    format_options = {"zarr_format": 2} if "order" in options else {}
    endian = {"<": "little", ">": "big"}[dtype[0]]
    serializer = (
        {} if format_options else {"serializer": {"name": "bytes", "configuration": {"endian": endian}}}
    )
    array = zstore.create_array(
        path,
        shape=items.shape,
        dtype=dtype if format_options else dtype[1:],
        chunks=(900, 350) if "shards" in options else items.shape,
        compressors=None,
        **options,
        **format_options,
        **serializer,
    )
    array[...] = items
    windows = [
        np.s_[...],
        np.s_[:, 5],
        np.s_[17],
        np.s_[3:900:7, 1:699],
        np.s_[::-1, 690:2:-3],
        np.s_[100:101, 10:20],
        np.s_[899, 699],
    ]
    for window in windows:
        np.testing.assert_array_equal(array[window], items[window])
        out = np.zeros((*items[window].shape, 2), array.dtype)[..., 0]
        array.read(window, out=out)
        np.testing.assert_array_equal(out, items[window])
    for got, window in zip(array.read_many(windows), windows, strict=True):
        np.testing.assert_array_equal(got, items[window])
    array[5:800, 3:9] = items[5:800, 13:19]
    items[5:800, 3:9] = items[5:800, 13:19]
    np.testing.assert_array_equal(array[...], items)


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs /proc, in which nobody can make directories"
)
def test_a_directory_that_cannot_be_made_is_an_error_of_the_store(path):
    chunks = open_chunks(LocalStore("/proc/zstore"), "a", make(path).model)
    chunks.is_published = False
    with pytest.raises(StoreError, match=r"No such file or directory .*'a' of 'file:///proc/zstore'"):
        chunks.write(chunks.plan(...), ITEMS)
