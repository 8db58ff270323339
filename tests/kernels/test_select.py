"""Plans: which chunks a selection touches, against counting item by item."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest

from zstore._ext.engine.select import Layout, Plan, plan_basic, plan_orthogonal, plan_points
from zstore._ext.engine.transfer import covers_outer


def layout(shape, chunk, counts=None, item=4, **options: Any) -> Layout:
    """Items of `item` bytes, C order; `counts` are inner chunks per shard."""
    strides = tuple(prod(chunk[d + 1 :]) * item for d in range(len(chunk)))
    given = {
        "shape": shape,
        "chunk_shape": chunk,
        "strides": strides,
        "item_size": item,
        "swap_unit": 0,
        "fill_native": bytes(item),
        "fill": bytes(item),
        "steps": [],
        "key_has_c": True,
        "separator": "/",
        "levels": [] if counts is None else [(counts, False, False, False)],
    }
    return Layout(**{**given, **options})


def touched(shape, chunk, selection) -> set[tuple[int, ...]]:
    """The chunks of the selected items, one by one."""
    places = np.arange(prod(shape)).reshape(shape)[selection]
    cells = np.stack(np.unravel_index(np.ravel(places), shape), -1) // np.array(chunk)
    return {tuple(map(int, cell)) for cell in cells}


def assert_plan(plan: Plan, shape, chunk, counts, selection) -> None:
    inner = [plan.inner_cell(task) for task in range(plan.task_count)]
    assert len(set(inner)) == len(inner)
    assert set(inner) == touched(shape, chunk, selection)
    per_outer = counts or (1,) * len(shape)
    outer = plan.outer_cells()
    # Row by row: what locks several chunks does so in one order.
    assert outer == sorted({tuple(i // n for i, n in zip(cell, per_outer, strict=True)) for cell in inner})
    starts = plan.outer_tasks()
    assert len(starts) == plan.outer_count + 1
    assert (starts[0], starts[-1]) == (0, plan.task_count)
    for cell, (first, last) in zip(outer, pairwise(starts), strict=True):
        assert first < last
        for task in range(first, last):
            assert tuple(i // n for i, n in zip(inner[task], per_outer, strict=True)) == cell
    with pytest.raises(IndexError):
        plan.inner_cell(plan.task_count)


CASES = [
    ((20,), (3,), None),
    ((20,), (3,), (2,)),
    ((7, 9), (2, 4), None),
    ((7, 9), (2, 4), (3, 2)),
    ((4, 5, 6), (2, 2, 2), (1, 2, 2)),
]


@pytest.mark.parametrize(("shape", "chunk", "counts"), CASES)
def test_slices_and_integers(shape, chunk, counts):
    rng = np.random.default_rng(1)
    made = layout(shape, chunk, counts)
    for _ in range(150):
        selection: list[Any] = []
        for n in shape:
            start, stop = sorted(rng.integers(0, n + 1, 2).tolist())
            step = int(rng.choice([1, 1, 2, 3, 7, -1, -2, -5]))
            piece = (
                slice(start, stop, step)
                if step > 0
                else slice(stop - 1 if stop else None, start - 1 if start else None, step)
            )
            selection.append(piece if rng.random() < 0.7 else int(rng.integers(-n, n)))
        selected = np.empty(shape)[tuple(selection)]
        plan = plan_basic(made, tuple(selection))
        assert plan is not None
        assert plan.shape == selected.shape
        if selected.size:
            assert_plan(plan, shape, chunk, counts, tuple(selection))
        else:
            assert plan.task_count == 0
            assert plan.outer_cells() == []


@pytest.mark.parametrize(("shape", "chunk", "counts"), CASES)
def test_tables_and_points(shape, chunk, counts):
    rng = np.random.default_rng(2)
    made = layout(shape, chunk, counts)
    for _ in range(60):
        tables = [rng.integers(0, n, rng.integers(1, 9)) for n in shape]
        sizes = tuple(len(table) for table in tables)
        plan = plan_orthogonal(made, list(tables), list(range(len(shape))), sizes)
        assert_plan(plan, shape, chunk, counts, np.ix_(*tables))
        count = int(rng.integers(1, 30))
        points = [rng.integers(-n, n, count) for n in shape]
        assert_plan(plan_points(made, list(points), (count,)), shape, chunk, counts, tuple(points))


@pytest.mark.parametrize(("shape", "chunk", "counts"), CASES)
def test_which_outer_chunks_are_covered(shape, chunk, counts):
    made = layout(shape, chunk, counts)
    outer = tuple(c * n for c, n in zip(chunk, counts or (1,) * len(shape), strict=True))
    rng = np.random.default_rng(3)
    for _ in range(60):
        ends = [sorted(rng.integers(0, n + 1, 2).tolist()) for n in shape]
        ends = [[0, n] if rng.random() < 0.5 else pair for pair, n in zip(ends, shape, strict=True)]
        selection = tuple(slice(a, b) for a, b in ends)
        if not np.empty(shape)[selection].size:
            continue
        plan = plan_basic(made, selection)
        for cell in plan.outer_cells():
            whole = [(i * n, (i + 1) * n) for i, n in zip(cell, outer, strict=True)]
            known = [(low, min(high, length)) for (low, high), length in zip(whole, shape, strict=True)]
            takes = all(a <= low and high <= b for (a, b), (low, high) in zip(ends, known, strict=True))
            assert covers_outer(plan, cell) == (0 if not takes else 2 if whole == known else 1)


def test_what_is_not_basic_is_left_to_others():
    made = layout((5, 5), (2, 2))
    for selection in (
        [0],
        np.array(1),
        True,
        np.bool_(True),
        (0, [1]),
        "x",
        1.0,
        (slice(None), np.array([1])),
    ):
        assert plan_basic(made, selection) is None
    for wrong in (5, -6, (0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            plan_basic(made, wrong)
    with pytest.raises(ValueError, match="zero"):
        plan_basic(made, slice(None, None, 0))


def test_positions_outside_are_found():
    made = layout((5, 4), (2, 2))
    with pytest.raises(IndexError, match="axis 1 with size 4"):
        plan_orthogonal(made, [(0, 5, 1), np.array([0, 4])], [0, 1], (5, 2))
    with pytest.raises(IndexError, match="index -6 is out of bounds for axis 0"):
        plan_points(made, [np.array([0, -6]), np.array([0, 0])], (2,))


def test_layouts_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="32 dimensions"):
        layout((1,) * 33, (1,) * 33)
    with pytest.raises(ValueError, match="fill value has 3 bytes, expected 4"):
        layout((1,), (1,), fill=bytes(3))
    with pytest.raises((ValueError, TypeError)):
        layout((1,), (1,), steps=[object()])


def test_every_chunk_of_a_large_selection_once():
    shape, chunk = (101, 97), (7, 5)
    plan = plan_basic(layout(shape, chunk), ...)
    assert [plan.inner_cell(task) for task in range(plan.task_count)] == [*product(range(15), range(20))]
