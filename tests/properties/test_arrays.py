"""Any array, any selection: what zstore reads and writes is what numpy does with the same items in memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import SelectionError

from .recipes import Recipe, assert_same, random_items, recipes
from .selections import numpy_selections, orthogonal, orthogonal_to_numpy, points

QUICK = settings(
    deadline=None,
    max_examples=120,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def filled(recipe: Recipe, directory: str, rng: np.random.Generator) -> tuple[zstore.Array, np.ndarray[Any, Any]]:
    """A new array with items in it, and the same items in memory."""
    array = recipe.make(Path(directory))
    items = random_items(rng, recipe.shape, recipe.numpy)
    items.flat[:: 3] = recipe.fill
    array[...] = items
    return array, items


def shown(expected: Any) -> bool:
    return isinstance(expected, np.generic)


@QUICK
@given(st.data())
def test_reads_equal_numpy(data: st.DataObject) -> None:
    recipe = data.draw(recipes())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    with TemporaryDirectory() as directory:
        array, items = filled(recipe, directory, rng)
        assert_same(array[...], items)
        again = zstore.open_array(array.store, "a", "r")
        assert_same(again[...], items)
        for _ in range(6):
            selection = data.draw(numpy_selections(recipe.shape))
            try:
                expected = items[selection]
            except IndexError:
                with pytest.raises(SelectionError):
                    array[selection]
                continue
            got = array[selection]
            assert_same(got, expected)
            assert isinstance(got, np.generic) == isinstance(expected, np.generic)
