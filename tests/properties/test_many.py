"""Many selections read together are the same selections read one by one."""

from __future__ import annotations

from math import inf
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import SelectionError

from .recipes import assert_same, random_items, recipes
from .selections import numpy_selections
from .test_arrays import QUICK, SEEDS, filled


@QUICK
@given(st.data(), SEEDS)
def test_many_reads_equal_numpy(data: st.DataObject, seed: int) -> None:
    recipe = data.draw(recipes())
    with TemporaryDirectory() as directory:
        array, items = filled(recipe, directory, seed)
        if data.draw(st.booleans()):
            # fsspec's memory does not tell whether values have changed.
            array = array.cached(1 << 16, fresh_for=inf if recipe.stored == "fsspec" else 0)
        selections, expected = [], []
        for _ in range(data.draw(st.integers(0, 8))):
            selection = data.draw(numpy_selections(recipe.shape))
            try:
                expected.append(items[selection])
            except IndexError:
                with pytest.raises(SelectionError):
                    array.read_many([..., selection])
                continue
            selections.append(selection)
        got = array.read_many(iter(selections))
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
            assert isinstance(one, np.generic) == isinstance(other, np.generic)
        out = [
            random_items(np.random.default_rng(seed), np.shape(one)[::-1], recipe.numpy).T for one in expected
        ]
        given_back = array.read_many(selections, out=out)
        for one, memory, other in zip(given_back, out, expected, strict=True):
            assert one is memory
            # A single item of numpy's has the machine's byte order, whatever the array's is.
            assert_same(one, np.asarray(other, recipe.numpy))
