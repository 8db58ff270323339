"""A resize that is interrupted, at every point where it can be."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.storage.memory import MemoryStore


class FailingStore(MemoryStore):
    """Fails at the n-th change, and at every one after it."""

    left = 1 << 30

    def _count(self, key: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("the store is gone", path=self.url, key=key)

    def put(self, key, value):
        self._count(key)
        super().put(key, value)

    def delete(self, key):
        self._count(key)
        super().delete(key)


@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (8, 8))])
def test_shrinking_never_leaves_values_to_come_back(zarr_format: int, shards: tuple[int, int] | None) -> None:
    for changes in range(100):
        store = FailingStore()
        options = {"chunks": (4, 4), "shards": shards, "zarr_format": zarr_format, "fill_value": 0}
        array = zstore.create_array(store, "a", shape=(13, 14), dtype="i2", **options)
        array[...] = 1
        store.left = changes
        try:
            array.resize((5, 7))
        except StoreError:
            store.left = 1 << 30
            array = zstore.open_array(store, "a", "r+")
            assert array.shape == (13, 14), "the shape changes last"
            assert (array[:5, :7] == 1).all(), "what stays inside is never touched"
            continue
        store.left = 1 << 30
        array.resize((13, 14))
        expected = np.zeros((13, 14), "i2")
        expected[:5, :7] = 1
        np.testing.assert_array_equal(array[...], expected)
        assert changes > 3
        return
    pytest.fail("shrinking never came to an end")
