"""Making plans against a layout: by the kernels if all chunks have one shape, else in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, overload

from zstore._ext.engine import select as kernels
from zstore._ext.engine.select import Layout
from zstore.indexing import rectilinear
from zstore.indexing.rectilinear import Index, RectilinearLayout

AnyLayout = Layout | RectilinearLayout


class Plan(Protocol):
    """Which part of each chunk a selection takes; made against a layout, and carried out by its engine."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the memory that is read into or written from."""


@overload
def plan_basic(layout: AnyLayout, selection: tuple[slice, ...]) -> Plan: ...
@overload
def plan_basic(layout: AnyLayout, selection: Any) -> Plan | None: ...
def plan_basic(layout: AnyLayout, selection: Any) -> Plan | None:
    """Plan a selection of integers, slices, ellipsis and new axes; None for any other.

    Raises
        IndexError: an index is out of range, or there are too many.
    """
    if isinstance(layout, Layout):
        plan: Plan | None = kernels.plan_basic(layout, selection)
        return plan
    return rectilinear.plan_basic(layout, selection)


def plan_orthogonal(
    layout: AnyLayout,
    axes: list[tuple[int, int, int] | Index],
    result_dims: list[int],
    shape: tuple[int, ...],
) -> Plan:
    """Plan a selection of independent dimensions.

    axes         for each dimension of the array, (start, count, step) or an array of positions
    result_dims  for each of them the dimension of the result that it becomes, -1 for none
    shape        the shape of the result
    """
    if isinstance(layout, Layout):
        return kernels.plan_orthogonal(layout, axes, result_dims, shape)
    return rectilinear.plan_orthogonal(layout, axes, result_dims, shape)


def plan_points(layout: AnyLayout, indices: Sequence[Index], shape: tuple[int, ...]) -> Plan:
    """Plan a selection of points: `indices` has the coordinates of all points for each dimension.

    Raises
        IndexError: an index is out of range.
    """
    if isinstance(layout, Layout):
        return kernels.plan_points(layout, list(indices), shape)
    return rectilinear.plan_points(layout, indices, shape)
