"""Conversions over what is stored, while the store fails: old, new, or the same call again makes it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.intents import INTENT
from zstore.errors import StoreError
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore

from ..engine.replacing import STORES, check_again, make_store


def source() -> Store:
    store = MemoryStore()
    zstore.create_array(store, data=np.arange(6, dtype="i2") + 1, chunks=(3,))
    return store


CALLS: dict[str, Callable[[Store, int], Any]] = {
    "convert": lambda store, f: zstore.convert(
        source(), store, target_path="a", zarr_format=f, chunks=(4,), overwrite=True
    ),
    "convert a group": lambda store, f: zstore.convert(
        source(), store, target_path="g", zarr_format=f, overwrite=True
    ),
}


@pytest.fixture(params=STORES)
def make(request, tmp_path) -> Callable[[int], Store]:
    return lambda number: make_store(request.param, tmp_path / str(number))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("call", CALLS)
def test_what_fails_can_be_done_again(make, call: str, zarr_format: int) -> None:
    check_again(make, CALLS[call], zarr_format)


def test_what_was_left_unfinished_can_be_converted_over(make) -> None:
    store = make(0)
    zstore.create_group(store)
    store.put(f"a/{INTENT}", b'{"writer": null, "made": null}')
    store.put("a/c/0", b"left over")
    with pytest.raises(StoreError, match="overwrite=True"):
        zstore.convert(source(), store, target_path="a")
    zstore.convert(source(), store, target_path="a", overwrite=True)
    assert zstore.open_array(store, "a", "r")[...].tolist() == [1, 2, 3, 4, 5, 6]
    assert sorted(store.list("a")) == ["a/c/0", "a/c/1", "a/zarr.json"]
