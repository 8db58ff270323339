"""Plans, by whoever makes them for a layout: the kernels where chunks are equal, else Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from zstore._ext.engine import select as kernels
from zstore._ext.engine.select import Layout, Plan
from zstore.indexing import rectilinear
from zstore.indexing.rectilinear import RectilinearLayout, RectilinearPlan

__all__ = ["AnyLayout", "AnyPlan", "plan_basic", "plan_orthogonal", "plan_points", "planner"]

AnyLayout = Layout | RectilinearLayout
AnyPlan = Plan | RectilinearPlan


def plan_basic(layout: AnyLayout, selection: Any) -> Any:
    """A plan for integers, slices, ellipsis and new axes; None where there is something else.

    Raises
        IndexError: out of range, or too many of them.
    """
    if isinstance(layout, Layout):
        return kernels.plan_basic(layout, selection)
    return rectilinear.plan_basic(layout, selection)


def planner(layout: AnyLayout) -> Callable[[Any], Any]:
    """`plan_basic` for selections of this layout."""
    if isinstance(layout, Layout):
        return partial(kernels.plan_basic, layout)
    return partial(rectilinear.plan_basic, layout)


def plan_orthogonal(
    layout: AnyLayout,
    axes: list[tuple[int, int, int] | np.ndarray[Any, np.dtype[np.int64]]],
    result_dims: list[int],
    shape: tuple[int, ...],
) -> AnyPlan:
    """A plan that takes every dimension by itself: (start, count, step) or an array of positions."""
    if isinstance(layout, Layout):
        return kernels.plan_orthogonal(layout, axes, result_dims, shape)
    return rectilinear.plan_orthogonal(layout, axes, result_dims, shape)


def plan_points(
    layout: AnyLayout, indices: Sequence[np.ndarray[Any, np.dtype[np.int64]]], shape: tuple[int, ...]
) -> AnyPlan:
    """A plan that goes point by point.

    Raises
        IndexError: an index is out of range.
    """
    if isinstance(layout, Layout):
        return kernels.plan_points(layout, list(indices), shape)
    return rectilinear.plan_points(layout, indices, shape)
