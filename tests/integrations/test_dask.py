"""Arrays as dask arrays and back: whole stored objects per task, and nothing lost where they are shared."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, SelectionError, StoreError, UnsupportedError
from zstore.storage.memory import MemoryStore

dask = pytest.importorskip("dask", reason="dask arrays need dask (extra 'dask')")
da = pytest.importorskip("dask.array", reason="dask arrays need dask (extra 'dask')")

from zstore.guests.dask import align_chunks, is_aligned, plan_chunks  # noqa: E402

DATA = np.arange(40 * 50, dtype="i4").reshape(40, 50)


@pytest.fixture
def array(tmp_path):
    return zstore.create_array(tmp_path / "a.zarr", data=DATA, chunks=(4, 5), shards=(8, 10))


def test_chunks_are_stored_objects(array):
    assert zstore.to_dask(array, chunks=None).chunks == ((8,) * 5, (10,) * 5)
    assert zstore.to_dask(array).chunks == ((40,), (50,))
    assert zstore.to_dask(array, target_size=8 * 20 * 4).chunks == ((8,) * 5, (20, 20, 10))
    assert zstore.to_dask(array, chunks=(16, 25)).chunks == ((16, 16, 8), (25, 25))
    np.testing.assert_array_equal(zstore.to_dask(array, chunks=None).compute(), DATA)
    np.testing.assert_array_equal(
        zstore.to_dask(array, chunks=None)[3::7, [4, 1]].compute(), DATA[3::7, [4, 1]]
    )


def test_dask_s_own_from_array_cuts_by_shards(array):
    assert da.from_array(array, chunks=array.shards).chunks == ((8,) * 5, (10,) * 5)
    np.testing.assert_array_equal(da.from_array(array).sum().compute(), DATA.sum())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_odd_shapes_go_both_ways(tmp_path, shape):
    data = np.zeros(shape, "f4")
    made = zstore.from_dask(da.from_array(data), tmp_path / "a.zarr")
    assert made.shape == shape
    np.testing.assert_array_equal(zstore.to_dask(made).compute(), data)


def test_uneven_chunks_are_dask_s_chunks(tmp_path):
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[3, 7], [5]]}}
    try:
        array = zstore.create_array(tmp_path / "a.zarr", shape=(10, 5), dtype="i4", chunks=grid)
    except MetadataError:
        array = zstore.create_array(tmp_path / "a.zarr", shape=(10, 5), dtype="i4", chunks=[[3, 7], [5]])
    array[...] = DATA[:10, :5]
    found = zstore.to_dask(array, chunks=None)
    assert found.chunks == ((3, 7), (5,))
    np.testing.assert_array_equal(found.compute(), DATA[:10, :5])


def test_tokens_tell_arrays_apart(array, tmp_path):
    token = dask.base.tokenize
    again = zstore.open(tmp_path / "a.zarr", mode="r+")
    assert token(array) == token(again) == token(pickle.loads(pickle.dumps(array)))
    other = zstore.create_array(tmp_path / "b.zarr", data=DATA, chunks=(4, 5), shards=(8, 10))
    assert token(array) != token(other)
    again.attrs["a"] = 1
    assert token(array) != token(again)
    one, two = (zstore.create_array(MemoryStore(), data=DATA) for _ in range(2))
    assert token(one) != token(two)
    assert token(array.lazy[2:]) == token(array.lazy[1:][1:])
    assert token(array.lazy[2:]) != token(array.lazy[3:])


def test_from_dask_makes_an_array_of_its_chunks(tmp_path):
    lazy = da.from_array(DATA, chunks=(16, 25))
    made = zstore.from_dask(lazy, tmp_path / "a.zarr", "group/x", attributes={"a": 1}, fill_value=7)
    assert (made.chunks, made.fill_value, made.attrs["a"]) == ((16, 25), 7, 1)
    np.testing.assert_array_equal(made[...], DATA)
    sharded = zstore.from_dask(lazy, tmp_path / "b.zarr", chunks=(4, 5), shards=(8, 10))
    assert sharded.shards == (8, 10)
    np.testing.assert_array_equal(sharded[...], DATA)
    with pytest.raises(StoreError, match="already"):
        zstore.from_dask(lazy, tmp_path / "a.zarr", "group/x")
    with pytest.raises(StoreError, match=r"cannot put .* into itself; expected a target elsewhere"):
        zstore.from_dask(zstore.to_dask(made) * 2, tmp_path / "a.zarr", "group/x", overwrite=True)
    np.testing.assert_array_equal(made[...], DATA)


def test_regions_are_cut_along_stored_objects(array):
    lazy = da.from_array(-DATA[:21, :33], chunks=(5, 7))
    zstore.from_dask(lazy, array, region=(slice(3, 24), slice(9, 42)))
    expected = DATA.copy()
    expected[3:24, 9:42] = -DATA[:21, :33]
    np.testing.assert_array_equal(array[...], expected)
    with pytest.raises(MetadataError, match="do not meet"):
        zstore.from_dask(lazy, array, region=(slice(3, 24), slice(9, 42)), align=False)
    whole = da.from_array(DATA[:16, :20], chunks=(8, 10))
    zstore.from_dask(whole, array, region=(slice(8, 24), slice(0, 20)), align=False)


def test_nothing_is_written_before_it_is_computed(array):
    stored = zstore.from_dask(da.zeros((40, 50), dtype="i4"), array, compute=False)
    np.testing.assert_array_equal(array[...], DATA)
    stored.compute()
    assert not array[...].any()


def test_tasks_that_share_objects_lose_nothing(array):
    lazy = da.from_array(DATA * 3, chunks=(3, 7))
    da.store(lazy, array, lock=False, scheduler="threads", num_workers=8)
    np.testing.assert_array_equal(array[...], DATA * 3)


@pytest.mark.slow
def test_processes_read_and_write_by_path(array, tmp_path):
    distributed = pytest.importorskip("distributed", reason="workers in processes need distributed")
    target = zstore.create_array(
        tmp_path / "b.zarr", shape=DATA.shape, dtype="i4", chunks=(4, 5), shards=(8, 10)
    )
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as _:
        zstore.from_dask(zstore.to_dask(array, chunks=None) + 1, target)
    np.testing.assert_array_equal(target[...], DATA + 1)


def test_processes_by_the_multiprocessing_scheduler(array, tmp_path):
    target = zstore.create_array(
        tmp_path / "b.zarr", shape=DATA.shape, dtype="i4", chunks=(4, 5), shards=(8, 10)
    )
    with dask.config.set(scheduler="processes", num_workers=2):
        zstore.from_dask(zstore.to_dask(array, chunks=(20, 25)) + 1, target)
    np.testing.assert_array_equal(target[...], DATA + 1)


def test_refusals(array, tmp_path):
    lazy = da.from_array(DATA)
    with pytest.raises(NotFoundError):
        zstore.to_dask(tmp_path / "none.zarr")
    with pytest.raises(MetadataError, match="the source is an array"):
        zstore.to_dask(array, "a")
    with pytest.raises(SelectionError, match="expected that of the region"):
        zstore.from_dask(lazy, array, region=slice(0, 5))
    with pytest.raises(SelectionError, match="slices of step 1"):
        zstore.from_dask(lazy, array, region=slice(0, 40, 2))
    with pytest.raises(MetadataError, match="for a new one"):
        zstore.from_dask(lazy, array, chunks=(1, 1))
    with pytest.raises(MetadataError, match="an Array as the target"):
        zstore.from_dask(lazy, tmp_path / "b.zarr", region=slice(0, 4))
    with pytest.raises(MetadataError, match="of one length"):
        zstore.from_dask(da.from_array(DATA, chunks=((10, 30), (50,))), tmp_path / "b.zarr")
    with pytest.raises(UnsupportedError, match="compute_chunk_sizes"):
        zstore.from_dask(lazy[lazy[:, 0] > 3], tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize("seed", range(20))
def test_aligned_parts_are_aligned_and_cover_the_same(seed):
    rng = np.random.default_rng(seed)
    edges = np.array([0, *np.cumsum(rng.integers(1, 9, 12))])
    begin = int(rng.integers(0, edges[-1]))
    cuts = np.unique(rng.integers(begin, edges[-1] + 1, 5))
    lengths = tuple(int(n) for n in np.diff([begin, *cuts]) if n) or (0,)
    made = align_chunks(lengths, edges, begin)
    assert sum(made) == sum(lengths) and is_aligned(made, edges, begin)
    if is_aligned(lengths, edges, begin):
        assert made == lengths


@pytest.mark.parametrize("target_size", [0, 1, 500, 4000, 10**6])
def test_planned_chunks_are_unions_of_stored_objects(array, target_size):
    for axis, lengths in enumerate(plan_chunks(array, target_size)):
        assert sum(lengths) == array.shape[axis]
        assert set(np.cumsum(lengths)) <= {0, *np.cumsum(array.write_chunk_sizes[axis])}
    largest = np.prod([max(lengths) for lengths in plan_chunks(array, target_size)]) * 4
    assert largest <= max(target_size, 8 * 10 * 4)


def test_a_view_is_a_dask_array_along_its_chunks(array, tmp_path):
    view = zstore.stack([array, array.lazy[::-1]]) * 2
    expected = np.stack([DATA, DATA[::-1]]) * 2
    lazy = zstore.to_dask(view, chunks=None)
    assert lazy.chunks == tuple(view.write_chunk_sizes) and lazy.dtype == view.dtype
    np.testing.assert_array_equal(lazy.compute(), expected)
    np.testing.assert_array_equal(lazy[1, 3:7, ::-2].sum(0).compute(), expected[1, 3:7, ::-2].sum(0))
    assert zstore.to_dask(view).name == zstore.to_dask(pickle.loads(pickle.dumps(view))).name
    # A dask array is a source of views, too.
    both = zstore.concat([da.from_array(DATA, chunks=(16, 25)), array])
    np.testing.assert_array_equal(
        both[DATA.shape[0] - 2 :, ::3].read(), np.concatenate([DATA, DATA])[DATA.shape[0] - 2 :, ::3]
    )
