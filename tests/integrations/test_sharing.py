"""Views, xarray's arrays and dask's arrays in forked and spawned processes, and in many threads at once."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore

dask = pytest.importorskip("dask", reason="dask arrays need dask (extra 'dask')")
pytest.importorskip("dask.array", reason="dask arrays need dask (extra 'dask')")
xr = pytest.importorskip("xarray", reason="xarray's engine needs xarray (extra 'xarray')")

from zstore.guests.xarray import ZstoreBackendEntrypoint  # noqa: E402

DATA = np.arange(40 * 50, dtype="i4").reshape(40, 50)
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
STORES = ("a.zarr", "a.zarr.zip")


def make(path: Path) -> Path:
    """A sharded array of one dataset."""
    data = xr.Dataset({"t": (("y", "x"), DATA)}, {"x": np.arange(50.0)})
    group = data.zstore.to_zarr(path, encoding={"t": {"chunks": (4, 5), "shards": (8, 10)}})
    group.store.close()
    return path


def open_all(path: Path) -> dict[str, Any]:
    """The same values behind every door, none of them read yet."""
    array = zstore.open_array(path, "t", mode="r")
    opened = xr.open_dataset(path, engine=ZstoreBackendEntrypoint)
    return {
        "view": array.lazy[1:][:, ::-1],
        "variable": opened.t[1:, ::-1].variable._data,
        "dataset": opened.isel(y=slice(1, None), x=slice(None, None, -1)),
        "chunked": opened.chunk(y=8, x=10).isel(y=slice(1, None), x=slice(None, None, -1)),
        "dask": zstore.to_dask(array, chunks=None)[1:, ::-1],
    }


def values(data: Any) -> np.ndarray:
    """What is behind a door; by this thread, for the threads of dask's pool do not survive a fork."""
    found = data.t.variable._data if isinstance(data, xr.Dataset) else data
    if isinstance(found, dask.array.Array):
        found = found.compute(scheduler="synchronous")
    return np.asarray(found)


def are_right(doors: dict[str, Any]) -> bool:
    return all(np.array_equal(values(data), DATA[1:, ::-1]) for data in doors.values())


def run_in_fork(work: Callable[[], bool]) -> int:
    """The exit code of a forked child: 0 where `work` is true, negative where it never ended."""
    with warnings.catch_warnings():
        # From Python 3.12 on, a fork beside other threads is warned of; that it works is what is shown.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        code = 0 if work() else 2
    finally:
        os._exit(code)


@FORKS
@pytest.mark.parametrize("name", STORES)
def test_a_child_reads_what_its_parent_has_read(tmp_path: Path, name: str) -> None:
    doors = open_all(make(tmp_path / name))
    fresh = open_all(tmp_path / name)
    assert are_right(doors)
    assert run_in_fork(lambda: are_right(doors) and are_right(fresh)) == 0
    assert are_right(doors) and are_right(fresh)


@FORKS
def test_a_fork_while_threads_read(tmp_path: Path) -> None:
    doors = open_all(make(tmp_path / "a.zarr"))
    # dask has locks of its own, and imports while it works: a fork may find such a lock held.
    doors = {name: doors[name] for name in ("view", "variable", "dataset")}
    assert are_right(doors)
    done = threading.Event()

    def read() -> int:
        count = 0
        while not done.is_set() or not count:
            assert are_right(doors)
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        try:
            assert [run_in_fork(lambda: are_right(doors)) for _ in range(5)] == [0] * 5
        finally:
            done.set()
        assert all(reader.result() for reader in readers)


@FORKS
def test_a_child_writes_through_a_view_beside_its_parent(tmp_path: Path) -> None:
    array = zstore.create_array(tmp_path / "a.zarr", data=DATA, chunks=(4, 5), shards=(40, 50))
    upper, lower = array.lazy[:20], array.lazy[20:]

    def add(view: Any) -> bool:
        for row in range(20):
            view[row] = values(view[row]) + 1
        return True

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(add, upper)
        assert run_in_fork(lambda: add(lower)) == 0
        assert writer.result()
    np.testing.assert_array_equal(array[...], DATA + 1)


def read_elsewhere(pickled: bytes) -> bool:
    """In a new process."""
    return are_right(pickle.loads(pickled))


def test_pickled_by_url_into_a_spawned_process(tmp_path: Path) -> None:
    pickled = [pickle.dumps(open_all(make(tmp_path / name))) for name in STORES]
    # The values are not in it: only where they are.
    assert all(len(text) < DATA.nbytes * 3 for text in pickled)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map_async(read_elsewhere, pickled).get(timeout=120) == [True, True]


def test_threads_share_views_and_variables(tmp_path: Path) -> None:
    doors = open_all(make(tmp_path / "a.zarr"))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: are_right(doors), range(40)))


def test_threads_write_through_views_of_one_shard(tmp_path: Path) -> None:
    array = zstore.create_array(
        tmp_path / "a.zarr", shape=DATA.shape, dtype="i4", chunks=(4, 5), shards=(40, 50)
    )

    def write(row: int) -> None:
        array.lazy[row][:] = DATA[row]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(len(DATA))))
    np.testing.assert_array_equal(array[...], DATA)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_s_schedulers_read_and_write_by_datasets(tmp_path: Path, scheduler: str) -> None:
    source = xr.open_dataset(make(tmp_path / "a.zarr"), engine=ZstoreBackendEntrypoint, chunks={})
    with dask.config.set(scheduler=scheduler, num_workers=2):
        # Without locks, by tasks that meet in every stored object.
        small = source.chunk(y=12, x=15) + 1
        encoding = {"t": {"chunks": (4, 5), "shards": (20, 25)}}
        group = small.zstore.to_zarr(tmp_path / "b.zarr", encoding=encoding, safe_chunks=False)
    np.testing.assert_array_equal(group["t"][...], DATA + 1)
