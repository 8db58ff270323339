"""Trees of views as flat lists, in which each step names its inputs by their numbers."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import numpy as np

from zstore.indexing.transform import IndexTransform
from zstore.jobs.source import Source
from zstore.nodes.array import Array
from zstore.views.functions import Call
from zstore.views.steps import Items, LaterSteps, ViewStep, made_inputs, postorder

# (the class of a step, the numbers of its inputs, or what makes them later, its fields)
Flat = list[tuple[type[ViewStep], tuple[int, ...] | LaterSteps, tuple[Any, ...]]]


def flatten(root: ViewStep) -> Flat:
    """A tree as a list of its steps, each after its inputs; the last one is the root."""
    numbers: dict[int, int] = {}
    made: Flat = []
    for step in postorder(root, made_inputs):
        numbers[id(step)] = len(made)
        own = tuple(getattr(step, one.name) for one in fields(step) if one.name != "inputs")  # type: ignore[arg-type]
        later = isinstance(step.inputs, LaterSteps)
        inputs: Any = step.inputs if later else tuple(numbers[id(one)] for one in step.inputs)
        made.append((type(step), inputs, own))
    return made


def unflatten(flat: Flat) -> ViewStep:
    """The inverse of `flatten`."""
    steps: list[ViewStep] = []
    for kind, inputs, own in flat:
        names = [one.name for one in fields(kind) if one.name != "inputs"]  # type: ignore[arg-type]
        make: Any = kind
        values = dict(zip(names, own, strict=True))
        given = inputs if isinstance(inputs, LaterSteps) else tuple(steps[number] for number in inputs)
        steps.append(make(inputs=given, **values))
    return steps[-1]


def describe(root: ViewStep) -> list[Any]:
    """A tree in JSON, from which nobody can make it again: equal for equal steps of equal sources."""
    return [[kind.__name__, _described(inputs), *map(_described, own)] for kind, inputs, own in flatten(root)]


def _described(value: Any) -> Any:
    if isinstance(value, LaterSteps):
        return value.describe()
    if isinstance(value, Array):
        return repr(value.__dask_tokenize__())
    if isinstance(value, np.ndarray):
        return hash_items(value)
    if isinstance(value, IndexTransform):
        return [value.shape, value.axes, list(map(_described, value.positions))]
    if isinstance(value, tuple):
        return list(map(_described, value))
    if isinstance(value, Source):
        return [value.url, value.describe()]
    if isinstance(value, Call):
        return [
            f"{getattr(value.function, '__module__', '')}.{value}",
            *map(_described, value.arguments),
            repr(value.options),
            value.output,
        ]
    return repr(value)


def hash_items(items: Items) -> str:
    """A hash of items in memory."""
    data = repr(items.tolist()).encode() if items.dtype.hasobject else np.ascontiguousarray(items).tobytes()
    return hashlib.sha256(repr((items.dtype.str, items.shape)).encode() + data).hexdigest()
