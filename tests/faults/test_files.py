"""What is found where a chunk's file should be: other kinds of file, links, places that cannot be used."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import NotFoundError, ReadOnlyError, StoreError
from zstore.storage.local import LocalStore


@pytest.fixture(params=["chunks", "shards"])
def array(request, tmp_path) -> zstore.Array:
    shards = (4,) if request.param == "shards" else None
    chunks = (2,) if request.param == "shards" else (4,)
    array = zstore.create_array(
        tmp_path / "store", "a", shape=(12,), chunks=chunks, shards=shards, dtype="u2"
    )
    array[...] = np.arange(12) + 1
    return array


@pytest.fixture
def chunk(array, tmp_path):
    path = tmp_path / "store/a/c/0"
    assert path.is_file()
    path.unlink()
    return path


def assert_store_error(array: zstore.Array) -> None:
    for handle in (array, zstore.open_array(array.store, "a", "r")):
        for selection in (..., 0, slice(1, 3), [0, 1]):
            with pytest.raises(StoreError) as caught:
                handle[selection]
            assert caught.value.key == "a/c/0"
            assert caught.value.path == array.store.url
        np.testing.assert_array_equal(handle[4:], np.arange(4, 12) + 1)
    with pytest.raises(StoreError):
        array[0] = 5


def test_a_pipe(array, chunk):
    os.mkfifo(chunk)
    assert_store_error(array)


def test_a_socket(array, chunk, monkeypatch):
    monkeypatch.chdir(chunk.parent)  # a socket's name has a hundred bytes at most
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("0")
        assert_store_error(array)


def test_a_link_to_a_device(array, chunk):
    chunk.symlink_to("/dev/zero")
    assert_store_error(array)


def test_a_link_out_of_the_store(array, chunk, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret!!")
    chunk.symlink_to(outside)
    assert_store_error(array)
    chunk.unlink()
    chunk.symlink_to("../../../outside")
    assert_store_error(array)
    assert outside.read_bytes() == b"secret!!"


def test_a_link_in_a_circle(array, chunk):
    chunk.symlink_to("0")
    assert_store_error(array)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_link_within_the_store_is_followed(array, chunk, absolute):
    chunk.symlink_to(chunk.with_name("1") if absolute else "1")
    np.testing.assert_array_equal(array[:4], np.arange(4, 8) + 1)
    assert array[1] == 6


def test_a_link_to_another_array_of_the_store_is_followed(array, chunk):
    other = zstore.create_array(
        array.store, "b", shape=(4,), chunks=array.chunks, shards=array.shards, dtype="u2"
    )
    other[...] = 1
    chunk.symlink_to("../../b/c/0")
    assert array.store.get("a/c/0") is not None
    assert (array[:4] == 1).all()


def test_a_broken_link_is_no_missing_chunk(array, chunk):
    chunk.symlink_to("nothing")
    for missing in ("fill", "error"):
        with pytest.raises(StoreError, match="leads to nothing"):
            array.read(missing=missing)
    array[:4] = 9
    np.testing.assert_array_equal(array[:4], np.full(4, 9))


def test_a_directory_is_no_value(array, chunk):
    # As in every store: a directory is a prefix of keys, so there is nothing under the key itself.
    chunk.mkdir()
    (chunk / "file").write_bytes(b"x")
    np.testing.assert_array_equal(array[:4], np.zeros(4))
    with pytest.raises(StoreError):
        array[:4] = 9
    assert (chunk / "file").read_bytes() == b"x"


def test_the_whole_array_is_gone(array, tmp_path):
    array[...]
    array.store.delete_prefix("a")
    with pytest.raises((StoreError, NotFoundError)):
        array[...]
    with pytest.raises((StoreError, NotFoundError)):
        array[0] = 1


def test_an_array_made_anew_is_seen_by_old_handles(array):
    array[...]
    again = zstore.create_array(
        array.store, "a", shape=(12,), chunks=array.chunks, shards=array.shards, dtype="u2", overwrite=True
    )
    again[...] = 7
    np.testing.assert_array_equal(array[...], np.full(12, 7))
    array[3] = 8
    assert again[3] == 8


def test_read_only_stores_refuse_and_change_nothing(array, tmp_path):
    def everything() -> dict[str, bytes]:
        return {key: bytes(array.store.get(key)) for key in array.store.list()}

    before = everything()
    for handle in (
        zstore.open_array(array.store, "a", "r"),
        zstore.open_array(LocalStore(tmp_path / "store", read_only=True), "a"),
    ):
        with pytest.raises(ReadOnlyError):
            handle[0] = 1
        with pytest.raises(ReadOnlyError):
            handle[0:0] = 1
        with pytest.raises(ReadOnlyError):
            handle.resize(3)
        with pytest.raises(ReadOnlyError):
            handle.append(np.zeros(3))
        with pytest.raises(ReadOnlyError):
            handle.attrs["a"] = 1
    assert everything() == before


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_many_open_arrays_need_few_descriptors(tmp_path):
    store = LocalStore(tmp_path / "many")
    group = zstore.create_group(store)
    before = descriptors()
    arrays = [group.create_array(f"a{i}", shape=(3,), dtype="u1") for i in range(100)]
    for i, array in enumerate(arrays):
        array[...] = i
        assert array[0] == i
    assert descriptors() - before <= 110
    del arrays, array
    assert descriptors() - before <= 2
