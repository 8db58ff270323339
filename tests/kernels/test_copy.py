"""Moving items between chunks and memory, against numpy: shapes, strides, item sizes and byte orders."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from zstore._ext.engine.select import plan_basic, plan_orthogonal, plan_points
from zstore._ext.engine.transfer import read, write

from .test_select import layout

# Name, item size, unit to swap.
ITEMS = [
    ("u1", 1, 0),
    ("u2", 2, 2),
    ("i4", 4, 4),
    ("f8", 8, 8),
    ("c8", 8, 4),
    ("c16", 16, 8),
    ("V3", 3, 0),
    ("S5", 5, 0),
    ("V12", 12, 0),
]


def chunk_layout(rng: np.random.Generator, dtype: np.dtype[Any], unit: int):
    """A random chunk shape, stored with its dimensions in random order: the layout, and the order."""
    ndim = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, [40, 40, 14, 8][ndim - 1] + 1, ndim))
    order = rng.permutation(ndim)
    strides = [0] * ndim
    stride = dtype.itemsize
    for axis in reversed(order):
        strides[axis] = stride
        stride *= shape[axis]
    return layout(shape, shape, item=dtype.itemsize, strides=tuple(strides), swap_unit=unit), shape, order


def stored(items: np.ndarray[Any, Any], order, swapped: bool, offset: int) -> memoryview:
    """The bytes of a chunk, at an odd address where `offset` is odd."""
    turned = items.transpose(order)
    data = (turned.astype(turned.dtype.newbyteorder()) if swapped else turned).tobytes()
    buffer = bytearray(offset) + data
    return memoryview(buffer)[offset:]


def strided(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Memory of that shape with odd strides, in any order of dimensions and direction."""
    order = rng.permutation(len(shape)).astype(int)
    steps = rng.choice([1, 1, 2, 3], len(shape))
    base = np.zeros([shape[d] * steps[d] for d in order], dtype).transpose(np.argsort(order))
    across = (..., *(slice(None, None, int(s) * (1 if rng.random() < 0.6 else -1)) for s in steps))
    return base[across][(..., *(slice(0, n) for n in shape))]


def random_selection(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    selection = []
    for n in shape:
        a, b = sorted(rng.integers(0, n + 1, 2).tolist())
        selection.append(
            [
                slice(None),
                slice(a, b),
                slice(None, None, int(rng.integers(1, 4))),
                slice(None, None, -1),
                int(rng.integers(0, n)),
            ][rng.integers(0, 5)]
        )
    return tuple(selection)


@pytest.mark.parametrize(
    ("name", "size", "unit", "swapped"),
    [(*item, swapped) for item in ITEMS for swapped in (False, True) if item[2] or not swapped],
)
def test_boxes_tables_and_points(name, size, unit, swapped):
    dtype = np.dtype(name)
    rng = np.random.default_rng(size * 2 + swapped)
    for _ in range(60):
        made, shape, order = chunk_layout(rng, dtype, unit if swapped else 0)
        raw = rng.integers(1, 256, prod(shape) * size, np.uint8)
        items = np.frombuffer(raw.tobytes(), dtype).reshape(shape)
        data = stored(items, order, swapped, int(rng.integers(0, 2)))
        selection = random_selection(rng, shape)
        tables = [rng.integers(0, n, rng.integers(1, 6)) for n in shape]
        points = [rng.integers(-n, n, 20) for n in shape]
        sizes = tuple(len(table) for table in tables)
        plans: list[tuple[Any, Any]] = [
            (plan_basic(made, selection), selection),
            (plan_orthogonal(made, list(tables), list(range(len(shape))), sizes), np.ix_(*tables)),
            (plan_points(made, list(points), (20,)), tuple(points)),
        ]
        for plan, where in plans:
            expected = items[where]
            out = strided(rng, plan.shape, dtype)
            if out.size:
                assert read(plan, out, inner=[data]) is None
                assert out.tobytes() == np.asarray(expected).tobytes()
            if where is not selection:
                continue
            value = strided(rng, plan.shape, dtype)
            value[...] = np.frombuffer(
                rng.integers(1, 256, prod(plan.shape) * size, np.uint8).tobytes(), dtype
            ).reshape(plan.shape)
            fault, results = write(plan, value, outer=[data])
            assert fault is None
            changed = items.copy()
            changed[where] = value[()]
            if value.size:
                assert bytes(results[0]) == bytes(stored(changed, order, swapped, 0))


def test_an_absent_chunk_reads_as_the_fill_value():
    for size in (1, 2, 3, 4, 8, 16, 40):
        fill = bytes(range(1, size + 1))
        made = layout((6, 7), (4, 7), item=size, fill=fill, fill_native=fill)
        for selection in ((...), (slice(1, 5), slice(None, None, 2)), (slice(None, None, -1), 3)):
            plan = plan_basic(made, selection)
            out = np.zeros(plan.shape, f"V{size}")
            assert read(plan, out, inner=[None] * plan.task_count) is None
            assert out.tobytes() == fill * out.size


def test_memory_that_does_not_fit_is_refused():
    made = layout((4, 4), (4, 4))
    plan = plan_basic(made, (slice(0, 2), slice(None)))
    data = [bytes(64)]
    for wrong in (np.zeros((4, 4), "i4"), np.zeros((2, 4), "i8"), np.zeros(8, "i4")):
        with pytest.raises(ValueError, match="expected"):
            read(plan, wrong, inner=data)
    with pytest.raises(ValueError, match="2 chunks given, expected 1"):
        read(plan, np.zeros((2, 4), "i4"), inner=data * 2)
    fault = read(plan, np.zeros((2, 4), "i4"), inner=[bytes(63)])
    assert fault is not None
    assert fault[0] == "size"
    assert fault[3:5] == (63, 64)
