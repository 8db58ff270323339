"""Parts of chunks in a store that notices other writers instead of waiting for them."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError, CodecError
from zstore.storage import base
from zstore.storage.base import Changes
from zstore.storage.memory import MemoryStore


class _Noticing(MemoryStore):
    """Refuses the next `left` writes of chunks, each of which somebody else was faster with."""

    in_memory = False
    left = 0
    refused = 0

    def swap(self, changes: Changes) -> None:
        return None

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self._notice(key)
        super().put(key, value)

    def delete(self, key: str) -> None:
        self._notice(key)
        super().delete(key)

    def _notice(self, key: str) -> None:
        if self.left and "c/" in key:
            self.left -= 1
            self.refused += 1
            raise ChangedError("value was written by somebody else", path=self.url, key=key)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "FIRST_PAUSE", 0.0)


CUTS = {
    "chunks": {"chunks": 4, "dtype": "i4"},
    "shards": {"chunks": 2, "shards": 4, "dtype": "i4"},
    "uneven": {"chunks": [[4, 4, 2]], "dtype": "i4"},
    "python": {"chunks": 4, "dtype": "i4", "compressors": [{"id": "bz2", "level": 1}], "zarr_format": 2},
    "strings": {"chunks": 4, "dtype": "str"},
    "fields": {"chunks": 4, "dtype": [("a", "i4"), ("b", "i4")]},
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_part_is_read_and_changed_again(cut):
    store = _Noticing()
    array = zstore.create_array(store, "c", shape=(10,), **CUTS[cut])
    value = np.arange(10).astype(array.dtype)
    array[...] = value
    store.left = 5
    if cut == "fields":
        array["b", 1:6] = 7
        value["b"][1:6] = 7
    else:
        array[1:6] = value[[0] * 5]
        value[1:6] = value[0]
    assert store.refused == 5
    assert np.array_equal(array[...], value)


def test_it_ends_where_others_are_always_faster():
    store = _Noticing()
    array = zstore.create_array(store, "a", data=np.arange(8), chunks=4)
    store.left = 10_000
    with pytest.raises(ChangedError, match="a/c/0"):
        array[1] = 9
    assert store.refused == base.ATTEMPTS
    assert array[...].tolist() == [*range(8)]


def test_other_failures_are_raised_at_once():
    store = _Noticing()
    array = zstore.create_array(store, "a", data=np.arange(8), chunks=4, compressors="zstd")
    store.put("a/c/0", b"damaged")
    store.left = 3
    with pytest.raises(CodecError, match="a/c/0"):
        array[1] = 9
    assert store.refused == 0
