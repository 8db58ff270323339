"""Plans, by whoever makes them for a layout: the kernels where chunks are equal, else Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, overload

from zstore._ext.engine import select as kernels
from zstore._ext.engine.select import Layout
from zstore.indexing import rectilinear
from zstore.indexing.rectilinear import Index, RectilinearLayout

AnyLayout = Layout | RectilinearLayout


class Plan(Protocol):
    """What a selection takes of each chunk, made against a layout and carried out by whoever made that."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the memory that is read into or written from."""


@overload
def plan_basic(layout: AnyLayout, selection: tuple[slice, ...]) -> Plan: ...
@overload
def plan_basic(layout: AnyLayout, selection: Any) -> Plan | None: ...
def plan_basic(layout: AnyLayout, selection: Any) -> Plan | None:
    """A plan for integers, slices, ellipsis and new axes; None where there is something else.

    Raises
        IndexError: out of range, or too many of them.
    """
    plan: Plan | None
    if isinstance(layout, Layout):
        plan = kernels.plan_basic(layout, selection)
    else:
        plan = rectilinear.plan_basic(layout, selection)
    return plan


def plan_orthogonal(
    layout: AnyLayout,
    axes: list[tuple[int, int, int] | Index],
    result_dims: list[int],
    shape: tuple[int, ...],
) -> Plan:
    """A plan that takes every dimension by itself: (start, count, step) or an array of positions."""
    if isinstance(layout, Layout):
        return kernels.plan_orthogonal(layout, axes, result_dims, shape)
    return rectilinear.plan_orthogonal(layout, axes, result_dims, shape)


def plan_points(layout: AnyLayout, indices: Sequence[Index], shape: tuple[int, ...]) -> Plan:
    """A plan that goes point by point.

    Raises
        IndexError: an index is out of range.
    """
    if isinstance(layout, Layout):
        return kernels.plan_points(layout, list(indices), shape)
    return rectilinear.plan_points(layout, indices, shape)
