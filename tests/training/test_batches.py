"""Batches: every sample once, equal to numpy's, in an order that depends on the seed alone."""

from __future__ import annotations

import itertools
import json
import pickle
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import CodecError, UnsupportedError
from zstore.storage.memory import MemoryStore
from zstore.training.batches import Batches
from zstore.training.order import measure_mixing

DATA = np.arange(50 * 6 * 7, dtype="i4").reshape(50, 6, 7)
NAMES = ("time", "y", "x")


@pytest.fixture
def array(tmp_path: Path) -> zstore.Array:
    return zstore.create_array(tmp_path / "a.zarr", data=DATA, chunks=(4, 6, 4), dimension_names=NAMES)


def samples_of(batches: Any) -> list[Any]:
    return [sample for batch in batches for sample in batch]


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """A shape, chunks, and what is sampled of them."""
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 30)) for _ in range(ndim))
    chunks = tuple(draw(st.integers(1, length)) for length in shape)
    axes = draw(st.lists(st.sampled_from(range(ndim)), min_size=1, unique=True))
    sample = {axis: draw(st.integers(1, min(6, shape[axis]))) for axis in axes}
    stride = {axis: draw(st.integers(1, 7)) for axis in axes if draw(st.booleans())}
    leads = []
    if draw(st.booleans()) and sample[axes[0]] < shape[axes[0]]:
        leads = draw(
            st.lists(st.integers(1, shape[axes[0]] - sample[axes[0]]), min_size=1, max_size=3, unique=True)
        )
    return {
        "shape": shape,
        "chunks": chunks,
        "sample": sample,
        "stride": stride,
        "lead": {axes[0]: sorted(leads)} if leads else None,
        "memory": draw(st.sampled_from([1, 500, 3000, 1 << 20])),
        "shuffle": draw(st.sampled_from(["blocks", "full", False])),
        "batch_size": draw(st.integers(1, 9)),
        "world": draw(st.integers(1, 3)),
        "seed": draw(st.integers(0, 5)),
        "dtype": draw(st.sampled_from(["i8", "string"])),
    }


@settings(max_examples=25)
@given(asked())
def test_every_sample_comes_once_with_numpys_items(one: dict[str, Any]) -> None:
    shape, sample, leads = one.pop("shape"), one["sample"], one["lead"]
    data, dtype = np.arange(np.prod(shape), dtype="i8").reshape(shape), one.pop("dtype")
    data = data.astype("T") if dtype == "string" else data
    array = zstore.create_array(MemoryStore(), data=data, chunks=one.pop("chunks"), dtype=dtype)
    extents = {axis: n + max((leads or {}).get(axis, [0])) for axis, n in sample.items()}
    begins = [range(0, shape[axis] - n + 1, one["stride"].get(axis, 1)) for axis, n in extents.items()]
    windows = [*itertools.product(*begins)]
    seen: list[int] = []
    for rank in range(one["world"]):
        batches = array.batches(**one, rank=rank)
        order = [*batches.order()]
        made = iter(order)
        for batch in batches:
            for value in zip(*batch, strict=True) if leads else batch:
                window = windows[next(made)]
                index: list[Any] = [slice(None)] * len(shape)
                for (axis, n), begin in zip(sample.items(), window, strict=True):
                    index[axis] = slice(begin, begin + n)
                np.testing.assert_array_equal(value[0] if leads else value, data[tuple(index)])
                if leads:
                    [(axis, steps)] = leads.items()
                    index[axis] = [index[axis].stop - 1 + step for step in steps]
                    np.testing.assert_array_equal(value[1], data[tuple(index)])
        assert next(made, None) is None
        assert len(order) in (len(windows) // one["world"], len(windows) // one["world"] + 1)
        assert len(batches) == -(-len(order) // one["batch_size"])
        seen += order
    assert sorted(seen) == [*range(len(windows))]
    if one["shuffle"] is False:
        assert seen == sorted(seen)


@pytest.mark.parametrize("memory", [4 * 4 * 6 * 7 * 4, 1 << 20])
def test_a_state_goes_on_with_the_same_samples(array: zstore.Array, memory: int) -> None:
    def make(**options: Any) -> Batches:
        return array.batches(
            sample={"time": 2}, batch_size=3, epochs=3, seed=4, memory=memory, shuffle="blocks", **options
        )

    whole = [batch.copy() for batch in make()]
    assert len(whole) == len(make()) == 3 * 17 and not np.array_equal(whole[0], whole[17])
    assert make().report.batch_count == 17
    with pytest.raises(TypeError, match="without end"):
        len(array.batches(sample={"time": 2}, epochs=None))
    states = []
    with make() as batches:
        for taken, _ in enumerate(batches, 1):
            states.append(json.loads(json.dumps(batches.state())))
            if taken == 20:  # others begin where these are
                for copy in (pickle.loads(pickle.dumps(batches)), make()):
                    if copy.state() != states[-1]:
                        copy.restore(states[-1])
                    for one, other in zip(copy, whole[20:], strict=True):
                        np.testing.assert_array_equal(one, other)
    for at in (0, 1, 15, 16, 17, 33, 49, 50):
        batches = make()
        batches.restore(states[at])
        rest = [batch.copy() for batch in batches] if at < 50 else []
        assert len(rest) == 51 - at - 1
        for one, other in zip(rest, whole[at + 1 :], strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="another order"):
        array.batches(sample={"time": 3}).restore(states[0])
    with pytest.raises(ValueError, match="no state"):
        make().restore({"epoch": 1})
    for wrong in ({"offset": -1}, {"done": 10**9}, {"epoch": -1}):
        with pytest.raises(ValueError, match="is no state of these batches"):
            make().restore({**states[0], **wrong})


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"sample": {"time": 2}, "memory": 3000},
        {"sample": {"time": 1}, "crop": {"y": 2, "x": 3}, "memory": 2000},
        {"sample": {"time": 2}, "lead": {"time": [1, 4]}, "shuffle": "full", "memory": 1},
        {"sample": {"time": 3}, "at": [n * 7 % 47 for n in range(300)], "rank": 1, "world": 2},
    ],
)
def test_any_state_goes_on_with_the_same_samples(array: zstore.Array, options: Any) -> None:
    def make() -> Batches:
        return array.batches(batch_size=3, epochs=4, seed=2, **options)

    def digest(batch: Any) -> bytes:
        return b"".join(np.ascontiguousarray(one).tobytes() for one in batch)

    whole, states = [], []
    with make() as batches:
        for batch in batches:
            whole.append(digest(batch))
            states.append(batches.state())
    assert len(whole) >= 60
    for at in np.random.default_rng(0).integers(0, len(states) - 1, 50).tolist():
        batches = make()
        batches.restore(json.loads(json.dumps(states[at])))
        assert [*map(digest, batches)] == whole[at + 1 :]


def slow(sample: Any) -> bool:
    time.sleep(0.0005 * (int(sample.flat[0]) % 4))
    return True


@pytest.mark.parametrize(
    "options",
    [
        {"sample": {"time": 1}, "crop": {"y": 2, "x": 3}, "memory": 2000},
        # Some samples take long, and so long their blocks cannot make room for others.
        {"sample": {"time": 2}, "memory": 4000, "batch_size": 8, "ahead": 8, "accept": slow},
    ],
)
def test_the_order_is_the_same_for_any_number_of_threads(array: zstore.Array, options: Any) -> None:
    made, read = [], []
    try:
        for threads in (1, 2, 8):
            zstore.set_threads(threads)
            batches = array.batches(seed=9, epochs=2, **options)
            made.append([batch.copy() for batch in batches])
            read.append(batches.counts.read_size)
    finally:
        zstore.set_threads(None)
    for one, other in itertools.pairwise(made):
        assert len(one) == len(other) > 10
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert len({*read}) == 1  # which chunks are read again is a matter of the order, too


def test_crops_lie_anywhere_and_read_each_chunk_once(tmp_path: Path) -> None:
    data = np.arange(64 * 96).reshape(64, 96)
    array = zstore.create_array(tmp_path / "r", data=data, chunks=(8, 8), dimension_names=("y", "x"))
    batches = array.batches(crop={"y": 5, "x": 6}, epochs=20, memory=20_000, batch_size=50)
    begins = [divmod(int(sample[0, 0]), 96) for sample in samples_of(batches)]
    assert len(begins) == 20 * batches.sample_count == 20 * -(-64 * 96 // 30)
    assert batches.counts.read_size == 20 * data.nbytes  # each chunk once in an epoch
    rows, columns = zip(*begins, strict=True)
    assert min(rows) == 0 and max(rows) == 59 and {*rows} == {*range(60)}
    assert {*columns} == {*range(91)}
    # Neither borders of chunks nor those of blocks keep crops away.
    assert sum(row % 8 > 3 for row in rows) > len(rows) / 4


def test_a_crop_is_tried_again_until_it_is_accepted(tmp_path: Path) -> None:
    data = np.zeros((60, 60), "f4")
    data[:, ::2] = np.nan
    data[:30] = np.nan
    array = zstore.create_array(tmp_path / "r", data=data, chunks=(60, 60), dimension_names=("y", "x"))
    batches = array.batches(crop={"y": 4, "x": 4}, accept=lambda crop: np.isfinite(crop).mean() >= 0.5)
    samples = samples_of(batches)
    assert len(samples) + batches.counts.refused_count == batches.sample_count == 225
    assert len(samples) > 200 and all(np.isfinite(one).mean() >= 0.5 for one in samples)


def test_sources_are_aligned_by_the_names_of_dimensions(tmp_path: Path, array: zstore.Array) -> None:
    group = zstore.create_group(tmp_path / "g.zarr")
    moved = DATA.transpose(2, 0, 1)
    group.create_array("moved", data=moved, chunks=(7, 6, 2), dimension_names=("x", "time", "y"))
    group.create_array("land", data=DATA[0], chunks=(2, 2), dimension_names=("y", "x"))
    group.create_array("time", data=np.arange(50), chunks=(50,), dimension_names=("time",))
    days = zstore.stack([array[at] for at in range(50)])
    whole = zstore.view(array)
    sources = {**dict(group.arrays()), "array": array}
    for values in zstore.batches(sources, sample={"time": 2}, crop={"x": 3}, memory=4000, batch_size=5):
        assert [*values] == ["land", "moved", "time", "array"] or sorted(values) == sorted(sources)
        for land, one, times, other in zip(
            values["land"], values["moved"], values["time"], values["array"], strict=True
        ):
            np.testing.assert_array_equal(one.transpose(1, 2, 0), other)
            np.testing.assert_array_equal(other[0] - 42 * times[0], land)
            assert times.tolist() == [times[0], times[0] + 1]
    for batch in group.batches(sample={"time": 1}, batch_size=9):
        assert [*batch] == ["moved"]
    for one, other in zstore.batches([days, whole], sample={0: 3}, dims=NAMES, dtype="f8", memory=6000):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, other)


def test_batches_are_made_as_they_are_asked_for(array: zstore.Array) -> None:
    scaled = array.batches(
        sample={"time": 1},
        shuffle=False,
        dtype="f4",
        normalize=(DATA.mean(), DATA.std()),
        transform=lambda batch: batch.sum(axis=(1, 2)),
        batch_size=8,
        drop_last=True,
    )
    made = [*scaled]
    assert [len(one) for one in made] == [8] * 6 == [8] * len(scaled)
    expected = ((DATA - DATA.mean()) / DATA.std()).sum(axis=1)[:48]
    np.testing.assert_allclose(np.concatenate(made), expected, rtol=1e-4)
    at = np.array([40, 3, 3, 17])
    chosen = array.batches(sample={"time": 3}, at=at, shuffle=False)
    np.testing.assert_array_equal(next(iter(chosen)), [DATA[n : n + 3] for n in at])
    memory: list[tuple[int, ...]] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> Any:
        memory.append(shape)
        return np.empty(shape, dtype)

    kept = None
    for batch in array.batches(sample={"time": 1}, batch_size=1, allocate=allocate, shuffle=False):
        if kept is None:
            kept = batch[0, 0]  # its memory is not used again, as long as this is there
    assert kept is not None and len(memory) < 12
    np.testing.assert_array_equal(kept, DATA[0])


def test_targets_and_scales_go_by_the_names_of_sources(
    array: zstore.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = zstore.create_group(MemoryStore())
    land = group.create_array("land", data=DATA[0], chunks=(2, 2), dimension_names=("y", "x"))
    mean, deviation = np.full((6, 1), 3.0), np.arange(1, 8)
    words: dict[str, Any] = {
        "sample": {"time": 2},
        "lead": {"time": [1, 3]},
        "shuffle": False,
        "batch_size": 4,
    }
    scales = {"a": (mean, deviation), "land": None}
    [(inputs, targets), *_] = zstore.batches(
        {"a": array, "land": land}, dtype="f4", normalize=scales, **words
    )
    assert [*inputs] == ["a", "land"] and [*targets] == ["a"]
    np.testing.assert_allclose(inputs["a"][1], (DATA[1:3] - mean) / deviation, rtol=1e-6)
    np.testing.assert_allclose(targets["a"][1], (DATA[[3, 5]] - mean) / deviation, rtol=1e-6)
    np.testing.assert_array_equal(inputs["land"], [DATA[0]] * 4)
    [(inputs, targets), *_] = zstore.batches([land, array], **words)
    assert (type(inputs), len(inputs), type(targets), len(targets)) == (tuple, 2, tuple, 1)
    np.testing.assert_array_equal(targets[0][2], DATA[[4, 6]])
    for named, wrong, message in [
        ({"a": array}, {"b": (0, 1)}, r"normalize is for \['b'\]; expected names of the sources: \['a'\]"),
        ({"a": array}, {"a": (0, 0)}, "a standard deviation is 0"),
        (array, {"a": (0, 1)}, r"normalize is for \['a'\], and sources have no names; expected a mean and"),
    ]:
        with pytest.raises(ValueError, match=message):
            zstore.batches(named, dtype="f4", normalize=wrong, sample={"time": 2})
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_dlpack=lambda items: [items.shape]))
    [(inputs, targets), *_] = array.batches(to="torch", **words)
    assert (inputs, targets) == ([(4, 2, 6, 7)], [(4, 2, 6, 7)])
    monkeypatch.setitem(sys.modules, "jax.numpy", None)
    with pytest.raises(UnsupportedError, match="batches of jax need jax, which is not installed"):
        next(iter(array.batches(to="jax", sample={"time": 2})))


def test_no_samples_make_no_batches(tmp_path: Path, array: zstore.Array) -> None:
    empty = zstore.create_array(tmp_path / "e", shape=(0, 4), dtype="i4", chunks=(2, 2))
    for batches in (empty.batches(sample={0: 2}), array.batches(sample={0: 2}, at=[])):
        assert (len(batches), [*batches], batches.report.mixing) == (0, [], 1.0)
    assert [*array.batches(sample={0: 50}, rank=0, world=2)] == []
    # Chunks that were never written are the fill value.
    bare = zstore.create_array(tmp_path / "f", shape=(9, 4), dtype="i4", chunks=(2, 2), fill_value=7)
    assert all((batch == 7).all() for batch in bare.batches(sample={0: 2}, batch_size=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no sample and no crop"),
        ({"sample": {"tim": 2}}, r"no source has a dimension 'tim'; expected one of \['time', 'y', 'x'\]"),
        ({"sample": {"time": 51}}, "51 items along 'time'"),
        ({"sample": {"time": 2}, "lead": {"time": 49}}, "51 items along 'time', leads included"),
        ({"crop": {"y": 7}}, "7 items along 'y'"),
        ({"sample": {"time": 2}, "crop": {"time": 2}}, "in sample and in crop"),
        ({"sample": {"time": 0}}, "sample is 0"),
        ({"sample": {"time": 2}, "stride": {"y": 2}}, "stride or lead along 'y'"),
        ({"sample": {"time": 2}, "lead": {"time": 0}}, "1 or more items after"),
        ({"sample": {"time": 2}, "at": [49]}, "sample 0 begins at 49"),
        ({"sample": {"time": 2}, "at": [1.5]}, "expected whole numbers"),
        ({"sample": {"time": 2}, "rank": 2, "world": 2}, "rank 2 of 2"),
        ({"sample": {"time": 2}, "shuffle": "all"}, "shuffle is 'all'"),
        ({"sample": {"time": 2}, "batch_size": 0}, "batch_size is 0"),
        ({"sample": {"time": 2}, "epochs": 0}, "epochs is 0; expected 1 or more, or None"),
        ({"sample": {"time": 2}, "memory": 1e9}, "memory is 1000000000.0; expected a whole number"),
        ({"sample": {"time": 2}, "batch_size": "8"}, "batch_size is '8'; expected a whole number"),
        ({"sample": {"time": 2}, "normalize": (0, 1)}, "dtype='f4'"),
        ({"sample": {"time": 2}, "dtype": "f4", "normalize": (0,)}, "expected a mean and a standard dev"),
        (
            {"sample": {"time": 2}, "dtype": "f4", "normalize": (np.zeros(5), 1)},
            r"mean of normalize has shape \(5,\); expected one that broadcasts to a sample, \(2, 6, 7\)",
        ),
        (  # a deviation for each sample of a batch
            {"sample": {"time": 2}, "dtype": "f4", "normalize": (0, np.ones((32, 1, 1, 1)))},
            r"deviation of normalize has shape \(32, 1, 1, 1\)",
        ),
        ({"sample": {"time": 2}, "mixing": 0.99, "memory": 2000}, "which takes more"),
    ],
)
def test_what_makes_no_sense_is_an_error(array: zstore.Array, options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        array.batches(**options)


def test_sources_of_different_lengths_are_an_error(array: zstore.Array) -> None:
    other = zstore.create_array(MemoryStore(), data=DATA[:40], chunks=(4, 6, 4), dimension_names=NAMES)
    with pytest.raises(ValueError, match=r"dimension 'time' has 50 items in .* and 40 in"):
        zstore.batches([array, other], sample={"time": 2})


def damage(array: zstore.Array, at: int) -> None:
    key = f"c/{at}/0/0"
    path = Path(str(array.store.url).removeprefix("file://")) / key
    path.write_bytes(b"nothing of the kind")


@pytest.mark.parametrize("memory", [1, 4 * 4 * 6 * 7 * 4, 1 << 20])
def test_samples_that_cannot_be_read(
    array: zstore.Array, memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    damage(array, 3)
    begins = []
    with pytest.raises(CodecError, match="c/3/0/0"):
        for batch in array.batches(sample={"time": 2}, memory=memory, shuffle=False, batch_size=2):
            begins += [int(sample[0, 0, 0]) // 42 for sample in batch]
    assert begins == [*range(10)]  # the error comes in the place of its batch, with samples 10 and 11
    batches = array.batches(sample={"time": 2}, memory=memory, on_error="skip", batch_size=5)
    begins = sorted(int(sample[0, 0, 0]) // 42 for sample in samples_of(batches))
    assert begins == [n for n in range(49) if not 11 <= n < 16]
    assert batches.counts.skipped_count == 5 == len([r for r in caplog.records if "is skipped" in r.message])


def test_errors_of_transforms_come_in_the_place_of_their_batch(array: zstore.Array) -> None:
    def fail(batch: Any) -> Any:
        if batch[0, 0, 0, 0] == DATA[12, 0, 0]:
            raise RuntimeError("no such luck")
        return batch

    taken = []
    batches = array.batches(sample={"time": 2}, transform=fail, shuffle=False, batch_size=4)
    with pytest.raises(RuntimeError, match="no such luck"):
        for batch in batches:
            taken.append(batch[:, 0, 0, 0].tolist())
    assert taken == DATA[:12, 0, 0].reshape(3, 4).tolist()
    batches._making = replace(batches._making, arrange=lambda arrays: arrays[0])
    assert next(iter(batches))[0, 0, 0, 0] == DATA[12, 0, 0]  # and the next iteration begins there
    batches.close()


def threads_of_batches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zstore-batches"]


def test_threads_end_with_the_loop(array: zstore.Array) -> None:
    batches = array.batches(sample={"time": 1}, batch_size=1, epochs=None)
    for _ in batches:
        assert threads_of_batches()
        break
    assert not threads_of_batches()  # the loop's iterator is gone
    iterator = iter(batches)
    next(iterator)
    batches.close()
    assert not threads_of_batches() and next(iterator, None) is None
    with pytest.raises(KeyboardInterrupt):
        for _ in batches:
            raise KeyboardInterrupt
    first, second = iter(batches), iter(batches)
    next(first), next(second)
    assert next(first, None) is None  # one iteration at a time
    batches.close()
    assert not threads_of_batches()


def test_a_slow_loop_holds_up_reading(tmp_path: Path) -> None:
    data = np.zeros((400, 128, 128), "f4")
    array = zstore.create_array(tmp_path / "l", data=data, chunks=(4, 128, 128), dimension_names=NAMES)
    chunk = 4 * 128 * 128 * 4
    batches = array.batches(sample={"time": 2}, memory=8 * chunk, batch_size=4)
    for taken, _ in enumerate(batches):
        if taken == 5:
            time.sleep(0.2)
            assert batches.counts.read_size < 40 * chunk
            break


def test_memory_does_not_grow(tmp_path: Path) -> None:
    data = np.zeros((30_000, 8), "f4")
    array = zstore.create_array(tmp_path / "l", data=data, chunks=(500, 8), dimension_names=("time", "x"))
    batches = array.batches(sample={"time": 3}, memory=400_000, batch_size=500, epochs=2)
    peaks = []
    tracemalloc.start()
    try:
        for taken, _ in enumerate(batches):
            if taken % 30 == 29:
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.reset_peak()
    finally:
        tracemalloc.stop()
    assert len(peaks) == 4 and max(peaks) < 16 << 20
    assert peaks[3] < 1.2 * peaks[1] + (1 << 20)


def test_mixing_is_told_and_asked_for(tmp_path: Path) -> None:
    array = zstore.create_array(
        tmp_path / "m", shape=(10_000, 4), dtype="i4", chunks=(20, 4), dimension_names=("time", "x")
    )
    chunk = 20 * 4 * 4 + 16 * 20
    told = [array.batches(sample={"time": 2}, memory=n * chunk).report for n in (4, 8, 16, 32)]
    assert all(a.mixing < b.mixing for a, b in itertools.pairwise(told))
    assert told[0].mixing < 0.1 and told[1].mixing > 0.8 and 0.98 < told[-1].mixing < 1.02
    plain = array.batches(sample={"time": 2}, shuffle=False).report.mixing
    assert plain == pytest.approx(3 / 10_000, rel=0.01)
    assert array.batches(sample={"time": 2}, shuffle="full").report.mixing == pytest.approx(1, abs=0.03)
    least = array.batches(sample={"time": 2}, mixing=0.9)
    assert least.report.mixing >= 0.9 and least.report.block_size * least.report.window < 400 * chunk
    # Of a window's samples, neighbours come from many blocks.
    order = np.array([*array.batches(sample={"time": 2}, memory=32 * chunk).order()])
    assert measure_mixing(order, 9_999) == pytest.approx(told[-1].mixing)
    assert np.mean(np.diff(order // 20) == 0) < 0.15


def test_chunks_are_read_once_in_an_epoch(tmp_path: Path) -> None:
    data = np.arange(4_000 * 4, dtype="i4").reshape(4_000, 4)
    array = zstore.create_array(tmp_path / "o", data=data, chunks=(20, 4), dimension_names=("time", "x"))
    for epochs in (1, 2):
        batches = array.batches(sample={"time": 3}, memory=40 * (320 + 320), epochs=epochs, batch_size=16)
        assert sum(map(len, batches)) == epochs * 3_998
        # Blocks that are in memory at the end of an epoch serve the next one.
        assert 0.9 * data.nbytes <= batches.counts.read_size / epochs <= 1.05 * data.nbytes
    # What fits into memory is read once in all epochs.
    batches = array.batches(sample={"time": 3}, epochs=5)
    assert sum(map(len, batches)) == 5 * 3_998 and batches.counts.read_size == data.nbytes
