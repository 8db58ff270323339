"""`ChunkKeys`: the place that a key stands for, one by one and all at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.model.grid import ChunkKeys

ODD = ["", "0", "01", "-1", "+1", "1\n2", "\u00b2", " 1", "1_0", "c", "zarr.json", "1" * 18, "1" * 19, "."]


@pytest.mark.parametrize("path", ["", "a", "c"])
@pytest.mark.parametrize("separator", "./")
@pytest.mark.parametrize("name", ["default", "v2"])
@given(data=st.data())
def test_all_at_once_is_as_one_by_one(name, separator, path, data):
    keys, ndim = ChunkKeys(name, separator), data.draw(st.integers(0, 3))
    numbers = st.one_of(st.integers(0, 10**18 - 1), st.integers(0, 12))
    places = data.draw(st.lists(st.lists(numbers, min_size=ndim, max_size=ndim), min_size=1, max_size=5))
    made = [keys.key(place) for place in places]
    for _ in range(data.draw(st.integers(0, 2))):
        at, odd = data.draw(st.integers(0, len(made) - 1)), data.draw(st.sampled_from(ODD))
        parts = made[at].split(separator)
        parts[data.draw(st.integers(0, len(parts) - 1))] = odd
        made[at] = separator.join(parts)
    expected = [keys.cell(key, ndim) for key in made]
    found = keys.cells([f"{path}/{key}" if path else key for key in made], ndim, path)
    if found is not None:
        assert list(map(tuple, found.tolist())) == expected
    else:
        large = any(number >= 10**18 for cell in expected if cell is not None for number in cell)
        assert not ndim or large or None in expected
