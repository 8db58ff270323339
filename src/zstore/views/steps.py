"""The steps of a view: a tree of small frozen values, from its sources to its result.

A step has a shape, a dtype and `inputs`, the steps that it is made of. Sources have no inputs: a stored
array, items in memory, or anything that is read by boxes. `zstore.views.plan` turns a selection of a step
into selections of sources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from zstore.base.once import look_up, once
from zstore.errors import ChangedError
from zstore.indexing.transform import IndexTransform
from zstore.jobs.source import Source
from zstore.model.grid import Grid, RegularGrid
from zstore.nodes.array import Array
from zstore.nodes.open import open_array

Shape = tuple[int, ...]
Items = np.ndarray[Any, Any]
# Along each axis the borders of chunks, from 0 to the length.
Edges = tuple[np.ndarray[Any, np.dtype[np.int64]], ...]
# A step, the items of it that are wanted, and the memory for them.
Wanted = tuple["ViewStep", IndexTransform, Items]

# Along axes whose items lie in no order of chunks, blocks end at multiples of this.
LOOSE_COUNT = 1024


class ViewStep(ABC):
    """A source of a view, or a step from other ones to a result.

    inputs  the steps that it is made of
    shape   the length of each axis
    dtype   the dtype of the items in memory
    """

    inputs: Sequence[ViewStep]

    if TYPE_CHECKING:  # a property here would be the default of a field of the same name

        @property
        def shape(self) -> Shape: ...
        @property
        def dtype(self) -> np.dtype[Any]: ...

    @property
    def edge_inputs(self) -> Sequence[ViewStep]:
        """The inputs that decide where chunks have their borders."""
        return self.inputs

    @abstractmethod
    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        """The borders of chunks along each axis, from those of each of `edge_inputs`."""

    def __post_init__(self) -> None:
        # Made while the inputs have theirs, so that no depth of a tree is too deep.
        _ = self.shape, self.dtype


class LaterSteps(ABC, Sequence[ViewStep]):
    """The inputs of a step, each of which is made when it is first asked for."""

    @property
    @abstractmethod
    def shapes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The shape of each input, one per row; no input is made for it."""

    @abstractmethod
    def describe(self) -> list[Any]:
        """The inputs in JSON, equal for equal steps of equal sources."""


def made_inputs(step: ViewStep) -> Sequence[ViewStep]:
    """The inputs of a step; none where they are made later."""
    return () if isinstance(step.inputs, LaterSteps) else step.inputs


def shapes_of(steps: Sequence[ViewStep]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The shapes of steps of equally many axes, a row for each."""
    return steps.shapes if isinstance(steps, LaterSteps) else np.array([one.shape for one in steps], np.int64)


def postorder(
    root: ViewStep, inputs_of: Callable[[ViewStep], Sequence[ViewStep]] = attrgetter("inputs")
) -> Iterator[ViewStep]:
    """Every step of a tree once, after its inputs, as far as `inputs_of` leads to them."""
    seen = {id(root)}
    stack = [(root, iter(inputs_of(root)))]
    while stack:
        step, left = stack[-1]
        for one in left:
            if id(one) not in seen:
                seen.add(id(one))
                stack.append((one, iter(inputs_of(one))))
                break
        else:
            stack.pop()
            yield step


def edges(root: ViewStep) -> Edges:
    """The borders of chunks along each axis of a step; boxes of whole chunks cost least to read."""
    made: dict[int, Edges] = {}
    for step in postorder(root, attrgetter("edge_inputs")):
        kept = look_up(step.__dict__, "_edges")
        if kept is None:
            kept = step.__dict__["_edges"] = step.edges_of([made[id(one)] for one in step.edge_inputs])
        made[id(step)] = kept
    return made[id(root)]


# Sources


@dataclass(frozen=True)
class ArrayAddress:
    """A stored array that is opened when its first item is read.

    shape, dtype, chunks  as they were when the view was made; an array that has become another is an error
    """

    url: str
    path: str
    shape: Shape
    dtype: np.dtype[Any]
    chunks: Shape
    storage_options: Mapping[str, Any] | None = None

    def open(self) -> Array:
        """The array.

        Raises
            NotFoundError: it is gone.
            ChangedError: it has another shape or dtype.
        """
        array = open_array(self.url, self.path or None, "r", storage_options=self.storage_options)
        if (array.shape, array.dtype) != (self.shape, self.dtype):
            raise ChangedError(
                f"the array has shape {array.shape} and dtype {array.dtype}; expected {self.shape} and "
                f"{self.dtype}, as when the view of it was made",
                path=f"{self.url}/{self.path}".rstrip("/"),
            )
        return array


@dataclass(frozen=True, eq=False)
class StoredItems(ViewStep):
    """The items of a stored array, open or by its address."""

    array: Array | ArrayAddress
    inputs: tuple[ViewStep, ...] = ()

    @once
    def shape(self) -> Shape:
        # As it was when the view was made: the array may be resized.
        shape: Shape = self.array.shape
        return shape

    @once
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.array.dtype
        return dtype

    @once
    def opened(self) -> Array:
        """The array, opened now if it was not."""
        return self.array.open() if isinstance(self.array, ArrayAddress) else self.array

    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        array = self.array
        if isinstance(array, ArrayAddress) or array.shards is not None:
            return _borders(RegularGrid(array.chunks), array.shape)
        return _borders(array.model.grid, array.shape)


@dataclass(frozen=True, eq=False)
class MemoryItems(ViewStep):
    """Items in memory, which the view does not copy."""

    items: Items
    inputs: tuple[ViewStep, ...] = ()

    @property
    def shape(self) -> Shape:
        shape: Shape = self.items.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.items.dtype
        return dtype

    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        return _loose_borders(self.shape)


@dataclass(frozen=True, eq=False)
class BoxedItems(ViewStep):
    """The items of a source of jobs, or of another library's array, which are read by boxes."""

    source: Any
    inputs: tuple[ViewStep, ...] = ()

    @once
    def shape(self) -> Shape:
        return tuple(map(int, self.source.shape))

    @once
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.source.dtype)
        return dtype

    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        if isinstance(self.source, Source):
            return _borders(self.source.grid, self.shape)
        chunks = getattr(self.source, "chunks", None)
        if chunks and all(isinstance(lengths, tuple) for lengths in chunks):  # dask's form
            return tuple(np.append(0, np.cumsum(lengths, dtype=np.int64)) for lengths in chunks)
        return _loose_borders(self.shape)

    def read(self, box: tuple[slice, ...]) -> Items:
        """The items of a box."""
        if isinstance(self.source, Source):
            return self.source.read(box)
        return np.asarray(self.source[box])


def step_of(source: Any) -> ViewStep:
    """The last step of a view; a stored array, items in memory or anything read by boxes as a source of one.

    Raises
        TypeError: it is nothing of the kind.
    """
    step = source if isinstance(source, ViewStep) else getattr(source, "step", None)
    if isinstance(step, ViewStep):
        return step
    if isinstance(source, Array):
        return StoredItems(source)
    if isinstance(source, Source):
        return BoxedItems(source)
    if isinstance(source, np.ndarray):
        return MemoryItems(source)
    if hasattr(source, "shape") and hasattr(source, "dtype") and hasattr(source, "__getitem__"):
        return BoxedItems(source)
    if isinstance(source, list | tuple | int | float | complex | bool | np.generic):
        return MemoryItems(np.asarray(source))
    meant = f", such as zstore.open({source!r})" if isinstance(source, str) else ""
    raise TypeError(f"{source!r} is nothing to view; expected an array{meant}, a view, or numbers")


def _borders(grid: Grid, shape: Shape) -> Edges:
    return tuple(grid.borders(axis, length) for axis, length in enumerate(shape))


def _loose_borders(shape: Shape) -> Edges:
    return _borders(RegularGrid((LOOSE_COUNT,) * len(shape)), shape)


# Steps that move no item before it is read


@dataclass(frozen=True, eq=False)
class Selection(ViewStep):
    """A selection of the input's items: slices, transposes, new axes, index arrays and points."""

    inputs: tuple[ViewStep, ...]
    transform: IndexTransform

    @property
    def shape(self) -> Shape:
        return self.transform.shape

    @once
    def dtype(self) -> np.dtype[Any]:
        return self.inputs[0].dtype

    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        return selected_edges(self.transform, inner[0])


def select(step: ViewStep, transform: IndexTransform) -> ViewStep:
    """A selection of a step; two in a row are one."""
    if isinstance(step, Selection):
        return Selection(step.inputs, step.transform.of(transform))
    return Selection((step,), transform)


def selected_edges(transform: IndexTransform, inner: Edges) -> Edges:
    """The borders of chunks along each axis of a selection, as far as its axes follow those of the input."""
    made = [*_loose_borders(transform.shape)]
    for axes, place, borders in zip(transform.axes, transform.positions, inner, strict=True):
        if isinstance(place, range) and place:
            # The first item at or behind a border; where positions run down, the first one before it.
            if place.step > 0:
                cuts = -((place.start - borders) // place.step)
            else:
                cuts = -((borders - 1 - place.start) // -place.step)
            made[axes[0]] = np.unique(np.clip(np.append(cuts, [0, len(place)]), 0, len(place)))
    return tuple(made)


@dataclass(frozen=True, eq=False)
class Concatenation(ViewStep):
    """The inputs one behind the other along an axis."""

    inputs: Sequence[ViewStep]
    axis: int

    @once
    def starts(self) -> list[int]:
        """The position along the axis at which each input begins, and the end of the last one."""
        return [0, *accumulate(shapes_of(self.inputs)[:, self.axis].tolist())]

    @once
    def shape(self) -> Shape:
        first, axis = self.inputs[0].shape, self.axis
        return (*first[:axis], self.starts[-1], *first[axis + 1 :])

    @once
    def dtype(self) -> np.dtype[Any]:
        return self.inputs[0].dtype

    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        made = [*inner[0]]
        borders = [own[self.axis] + start for own, start in zip(inner, self.starts, strict=False)]
        made[self.axis] = np.unique(np.concatenate(borders))
        return tuple(made)


# Steps that compute


class Function(ABC):
    """A function of items that makes each item of the result from the items at the same place."""

    @abstractmethod
    def __call__(self, inputs: Sequence[Items], out: Items) -> None:
        """Fill `out` with the result for inputs of its shape."""


@dataclass(frozen=True, eq=False)
class Computation(ViewStep):
    """A function of the inputs' items, place by place; the inputs have the shape of the result."""

    inputs: tuple[ViewStep, ...]
    function: Function
    dtype: np.dtype[Any]

    @once
    def shape(self) -> Shape:
        return self.inputs[0].shape

    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        # Along each axis those of the largest chunks, of which none is to be read twice.
        return tuple(min(borders, key=len) for borders in zip(*inner, strict=True))


@dataclass(frozen=True, eq=False)
class Overlay(ViewStep):
    """The inputs laid over each other, each at its place; of valid items, the last input's count.

    starts      the position in the result at which each input begins, a row for each
    shape       of the result
    nodata      for each input the value of items that are not valid; None: all are. NaN means all of NaN
    fill_value  of items at which no input is valid
    """

    inputs: Sequence[ViewStep]
    starts: np.ndarray[Any, np.dtype[np.int64]] = field(repr=False)
    shape: Shape
    nodata: tuple[Any, ...]
    fill_value: Any

    @once
    def dtype(self) -> np.dtype[Any]:
        return self.inputs[0].dtype

    @once
    def stops(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The position in the result at which each input ends."""
        return self.starts + shapes_of(self.inputs).reshape(self.starts.shape)

    @property
    def edge_inputs(self) -> Sequence[ViewStep]:
        return (self.inputs[0],)

    def edges_of(self, inner: Sequence[Edges]) -> Edges:
        made = []
        for axis, length in enumerate(self.shape):
            borders = np.unique(inner[0][axis] + self.starts[0, axis])
            lengths = np.diff(borders)
            step, offset = LOOSE_COUNT, 0
            if len(lengths):
                # The first chunk may be cut: where the longest one begins is a border of its grid.
                step, offset = int(lengths.max()), int(borders[lengths.argmax()] % lengths.max())
            made.append(np.unique(np.clip(np.arange(offset - step, length + step, step), 0, length)))
        return tuple(made)

    def touched(self, transform: IndexTransform) -> list[int]:
        """The inputs that may have items of a selection, by number."""
        bounds = np.array([transform.bounds(axis) for axis in range(len(self.shape))], np.int64)
        bounds = bounds.reshape(len(self.shape), 2)
        touches = (self.starts < bounds[:, 1]) & (self.stops > bounds[:, 0])
        return np.flatnonzero(touches.all(1)).tolist()

    def is_apart(self, numbers: Sequence[int]) -> bool:
        """Whether these inputs do not overlap, and their invalid items have the fill value."""
        if len(numbers) > LOOSE_COUNT or not all(self._keeps(number) for number in numbers):
            return False
        starts, stops = self.starts[numbers], self.stops[numbers]
        overlaps = ((starts[:, None] < stops) & (starts < stops[:, None])).all(2)
        return int(overlaps.sum()) == len(numbers)

    def _keeps(self, number: int) -> bool:
        """Whether invalid items of an input have the fill value."""
        nodata, fill = self.nodata[number], self.fill_value
        return bool(nodata is None or nodata == fill or (nodata != nodata and fill != fill))

    def valid(self, number: int, items: Items) -> Any:
        """Whether each item of an input is valid; True: all are."""
        nodata = self.nodata[number]
        if nodata is None:
            return True
        if nodata != nodata:
            return items == items
        return items != np.asarray(nodata).astype(items.dtype)
