"""Batches as a dataset of torch: its workers divide the samples, and go on where they were.

Where torch is not installed, a module with the two names that are used of it stands in for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import zstore
from zstore.errors import UnsupportedError
from zstore.guests import torch

T = TypeVar("T")


class StandIn(Generic[T]):
    pass


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The worker that torch says this process is."""
    if importlib.util.find_spec("torch") is None:
        for name in ("torch", "torch.utils", "torch.utils.data"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setattr(sys.modules["torch.utils.data"], "IterableDataset", StandIn, raising=False)
    data = importlib.import_module("torch.utils.data")
    info = SimpleNamespace(id=0, num_workers=0)
    monkeypatch.setattr(data, "get_worker_info", lambda: info if info.num_workers else None, raising=False)
    torch._dataset_class.cache_clear()
    yield info
    torch._dataset_class.cache_clear()


@pytest.fixture
def array(tmp_path: Path) -> zstore.Array:
    return zstore.create_array(tmp_path / "a", data=np.arange(100), chunks=(7,), dimension_names=("time",))


def begins(batches: Any) -> list[int]:
    return [int(sample[0]) for batch in batches for sample in batch]


def test_ranks_and_their_workers_have_each_sample_once(worker: Any, array: zstore.Array) -> None:
    seen = []
    for rank, number in itertools.product(range(3), range(2)):
        dataset = zstore.to_torch(array.batches(sample={"time": 2}, memory=500, rank=rank, world=3))
        worker.id, worker.num_workers = number, 2
        seen.append(begins(pickle.loads(pickle.dumps(dataset))))
    assert sorted(itertools.chain(*seen)) == [*range(99)]
    assert {*map(len, seen)} == {16, 17}


def test_epochs_follow_each_other_and_are_chosen(worker: Any, array: zstore.Array) -> None:
    dataset = zstore.to_torch(array.batches(sample={"time": 2}, memory=500))
    first, second = begins(dataset), begins(dataset)
    assert first != second and sorted(first) == sorted(second) == [*range(99)]
    dataset.set_epoch(0)
    assert begins(dataset) == first
    worker.num_workers = 2  # that are started anew
    shares = []
    for epoch in (0, 0, 1):
        dataset.set_epoch(epoch)
        shares.append(begins(pickle.loads(pickle.dumps(dataset))))
    assert shares[0] == shares[1] != shares[2]


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_torch_is_named_where_it_is_missing(array: zstore.Array) -> None:
    with pytest.raises(UnsupportedError, match="package torch, which is not installed"):
        zstore.to_torch(array.batches(sample={"time": 2}))


def test_a_worker_goes_on_where_it_was(worker: Any, array: zstore.Array) -> None:
    batches = array.batches(sample={"time": 2}, batch_size=5)
    worker.id, worker.num_workers = 1, 2
    dataset = zstore.to_torch(batches)
    iterator = iter(dataset)
    next(iterator)
    state = dataset.state_dict()
    rest = begins(iterator)
    other = zstore.to_torch(batches)
    other.load_state_dict(state)
    assert begins(other) == rest and len(rest) == 45
