"""Index transforms: selections of selections, composed into one, select what numpy's do in turn."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from zstore.indexing.transform import IndexTransform, Points, parse, spread

Items = np.ndarray[Any, Any]


def selected(transform: IndexTransform, items: Items) -> Items:
    """The items of a transform, by numpy alone."""
    every = range(len(transform.shape))
    index = tuple(spread(transform, dimension, every) for dimension in range(items.ndim))
    return np.broadcast_to(items[index], transform.shape)


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """A selection in any of numpy's forms but masks, which are index arrays."""
    if 0 in shape or draw(st.booleans()):
        return draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))
    together = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
    entries: list[Any] = []
    for length in shape:
        number = st.integers(-length, length - 1)
        kind = draw(st.sampled_from(["slice", "integer", "new", "array"]))
        if kind == "slice":
            entries.append(draw(st.slices(length)))
        elif kind == "integer":
            entries.append(draw(number))
        elif kind == "new":
            entries += [None, slice(None)]
        else:
            lengths = tuple(draw(st.sampled_from([side, 1])) for side in together)
            entries.append(draw(hnp.arrays(np.int64, lengths, elements=number)))
    return tuple(draw(st.sampled_from([entries, [*entries, ...], [..., *entries]])))


@settings(max_examples=150)
@given(st.data())
def test_transforms_compose_and_divide_as_selections_of_numpy(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    items = np.arange(prod(shape)).reshape(shape)
    expected: Items = items
    transform = IndexTransform.identity(shape)
    for _ in range(data.draw(st.integers(1, 3))):
        selection = data.draw(selections(expected.shape))
        expected = np.asarray(expected[selection])
        transform = transform.of(parse(transform.shape, selection))
        assert transform.shape == expected.shape
    np.testing.assert_array_equal(selected(transform, items), expected)

    for dimension, length in enumerate(shape):
        start = data.draw(st.integers(0, length))
        stop = data.draw(st.integers(start, length))
        within = np.full(expected.shape, -1)
        for inner, where in transform.within(dimension, start, stop):
            part = selected(inner, items[(slice(None),) * dimension + (slice(start, stop),)])
            if isinstance(where, Points):
                where.view(within)[where.positions] = part
            else:
                within[where] = part
        places = np.broadcast_to(spread(transform, dimension, range(expected.ndim)), expected.shape)
        np.testing.assert_array_equal(within, np.where((places >= start) & (places < stop), expected, -1))
