"""The names, attributes and coordinates that a view carries of its sources, step by step.

This room knows the steps; the meaning of attributes is for whoever describes the sources, a higher wing
(`zstore.nodes.above`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zstore.indexing.transform import IndexTransform
from zstore.model.array import ZarrFormat
from zstore.nodes import above
from zstore.storage.memory import MemoryStore
from zstore.views.functions import Call, Input
from zstore.views.steps import (
    BoxedItems,
    Computation,
    Concatenation,
    MemoryItems,
    Overlay,
    Selection,
    Shape,
    StoredItems,
    ViewStep,
    postorder,
)


class Carried(ABC):
    """The description of a view's items, apart from their shape and dtype: names, attributes, coordinates.

    name  of an array of them
    """

    name: str

    @property
    @abstractmethod
    def dimension_names(self) -> Sequence[str | None] | None:
        """The name of each dimension."""

    @property
    @abstractmethod
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of an array alone, by any convention."""

    @property
    @abstractmethod
    def fill_value(self) -> Any:
        """Nodata; None where there is none."""

    @abstractmethod
    def documents(self, view: Any, zarr_format: ZarrFormat) -> tuple[MemoryStore, str] | None:
        """A group of the view as an array, without its chunks, and of its coordinates; the array's path.

        None where an array alone says as much.
        """

    @abstractmethod
    def selected(self, transform: IndexTransform) -> Carried:
        """The description of a selection."""

    @abstractmethod
    def concatenated(self, inputs: Sequence[Any], axis: int) -> Carried:
        """The description of inputs, of which this is the first, one behind the other."""

    @abstractmethod
    def overlaid(self, inputs: Sequence[Any], starts: Any, shape: Shape, nodata: Any) -> Carried:
        """The description of inputs laid over each other from the positions `starts`.

        nodata  the value of items at which no input is valid; None: all inputs are valid everywhere
        """

    @abstractmethod
    def computed(
        self, inputs: Sequence[Any], values: Sequence[Any], function: str, dtype: np.dtype[Any]
    ) -> Carried:
        """The description of a function's results, item by item.

        values  the inputs whose items become items of the result, as far as the function only chooses
        """

    @abstractmethod
    def reduced(
        self,
        axes: Sequence[int],
        left: Sequence[int],
        method: str,
        dtype: np.dtype[Any],
        *,
        nodata: Any,
        is_unpacked: bool,
        windows: Any = None,
    ) -> Mapping[str, Any]:
        """The attributes of a reduction along `axes`, as of an array alone.

        left         the axes that the result has, some of which may be reduced
        nodata       the value that was left out; None: none was
        is_unpacked  whether scale and offset were applied
        windows      of which each item is made, along an axis that is not reduced (`zstore.jobs.reduction`)
        """


def carry(root: ViewStep) -> Carried:
    """The description of a view's items, derived from the descriptions of its sources."""
    made: dict[int, Carried] = {}
    for step in postorder(root):
        made[id(step)] = _carry(step, [made[id(one)] for one in step.inputs])
    return made[id(root)]


def _carry(step: ViewStep, inputs: list[Carried]) -> Carried:
    if isinstance(step, Selection):
        return inputs[0].selected(step.transform)
    if isinstance(step, Concatenation):
        return inputs[0].concatenated(inputs, step.axis)
    if isinstance(step, Overlay):
        has_holes = any(one is not None for one in step.nodata)
        return inputs[0].overlaid(inputs, step.starts, step.shape, step.fill_value if has_holes else None)
    if isinstance(step, Computation):
        function, values = step.function, inputs
        if isinstance(function, Call) and function.function is np.where:
            values = [inputs[one.number] for one in function.arguments[1:] if isinstance(one, Input)]
        return inputs[0].computed(inputs, values, str(function), step.dtype)
    source: Any = None
    if isinstance(step, StoredItems):
        source = step.opened
    elif isinstance(step, BoxedItems):
        source = step.source
    elif isinstance(step, MemoryItems):
        source = step.items
    made: Carried = above.carried_of(source)
    return made
