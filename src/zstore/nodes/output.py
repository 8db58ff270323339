"""Where what a plan reads lands: memory of the plan's shape, and the result made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zstore.indexing.fields import Fields, take_fields
from zstore.indexing.plans import AnyPlan
from zstore.indexing.runs import Runs
from zstore.indexing.select import Selected

__all__ = ["Output", "land"]


class Output(NamedTuple):
    """A plan and the memory to read it into; once that is done, `result` gives what the caller gets."""

    plan: AnyPlan | Runs
    memory: np.ndarray[Any, Any]
    result: Callable[[], Any]


def land(
    selected: Selected,
    dtype: np.dtype[Any],
    out: np.ndarray[Any, Any] | None = None,
    fields: Fields = None,
) -> Output:
    """Where items of `dtype` land: in `out` as far as strides allow, else in memory of their own.

    Raises
        ValueError: `out` has another shape or dtype than the result.
    """
    plan, from_plan = selected.plan, selected.from_plan
    if out is not None and fields is None:
        _check_out(out, selected.shape, dtype)
        view = out if selected.to_plan is None else selected.to_plan(out)
        if from_plan is None or np.may_share_memory(view, out):
            return Output(plan, view, lambda: out)
    memory: np.ndarray[Any, Any] = np.empty(plan.shape, dtype)

    def result() -> Any:
        items = take_fields(memory if from_plan is None else from_plan(memory), fields)
        if out is None:
            return items
        _check_out(out, items.shape, items.dtype)
        out[...] = items
        return out

    return Output(plan, memory, result)


def _check_out(out: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, expected {shape} and {dtype}")
