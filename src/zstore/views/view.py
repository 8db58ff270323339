"""Views: values that are read, written and computed with as arrays are, and hold no items of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from zstore.base.boxes import axes_of
from zstore.base.once import look_up, once
from zstore.engine.schedulers import BLOCKING, Scheduler
from zstore.errors import SelectionError, UnsupportedError, missing_name
from zstore.indexing.transform import IndexTransform, parse, parse_orthogonal, parse_points
from zstore.jobs.chunks import SourceStore, StoredArray, source_of
from zstore.jobs.plan import name_job
from zstore.jobs.source import Source
from zstore.model.array import ZarrFormat
from zstore.model.dtype import is_same_type
from zstore.model.grid import Edges, Grid, RectilinearGrid, RegularGrid
from zstore.model.packing import meant_fills, meant_type, parse_packing
from zstore.nodes import above
from zstore.nodes.advice import VIEW_ADVICE
from zstore.nodes.array import Array
from zstore.nodes.indexers import async_scheduler
from zstore.nodes.node import Missing
from zstore.storage.base import Store, drive
from zstore.storage.kinds import VIEW, kind_by_name
from zstore.storage.memory import MemoryStore
from zstore.views import document, flat, plan
from zstore.views.carried import Carried, carry
from zstore.views.functions import BY_PLACE, Across, Call, Cast, Input, Unpack, check_by_place
from zstore.views.steps import (
    BoxedItems,
    Computation,
    Concatenation,
    LaterSteps,
    MemoryItems,
    Overlay,
    StoredItems,
    ViewStep,
    edges,
    made_inputs,
    postorder,
    select,
    step_of,
)

Items: TypeAlias = npt.NDArray[Any]
Parse = Callable[[tuple[int, ...], Any], IndexTransform]


class View(Source, np.lib.mixins.NDArrayOperatorsMixin):
    """Items of other arrays, selected, joined or computed when they are read: nothing is copied before.

    Selecting from a view (`view[10:20, ::-1]`, `view.oindex`, `view.vindex`), transposing it, and numpy's
    operators and functions of it give views. `view.read()` or `numpy.asarray(view)` reads the items;
    `view[...] = value` writes through selections, `concat` and `stack` to the arrays behind. Views can be
    pickled, without the items that a store has, and are sources of jobs.
    """

    def __init__(self, step: ViewStep) -> None:
        self._step = step

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (flat.flatten(self._step),)

    def __repr__(self) -> str:
        steps = [*postorder(self._step, made_inputs)]
        later = sum(len(step.inputs) for step in steps if isinstance(step.inputs, LaterSteps))
        sources = [] if later else self.sources
        count = f"{later:,} inputs" if later else f"{len(sources):,} sources"
        if len(sources) == 1:
            count = repr(sources[0])
        return f"<View shape={self.shape} dtype={self.dtype} of {count}>"

    if not TYPE_CHECKING:  # type checkers are to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise missing_name("View", name, look_up(VIEW_ADVICE, name))

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._step.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the items in memory."""
        return self._step.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that all items take in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d view")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d view")
        return map(self.__getitem__, range(self.shape[0]))

    # As numpy's arrays have them; items are read.

    def __contains__(self, value: object) -> bool:
        return bool(np.any(self == value))

    def __bool__(self) -> bool:
        return bool(self._only("the truth value"))

    def __int__(self) -> int:
        return int(self._only("an integer"))

    def __float__(self) -> float:
        return float(self._only("a float"))

    def __complex__(self) -> complex:
        return complex(self._only("a complex number"))

    def _only(self, what: str) -> Any:
        if self.size != 1:
            raise ValueError(f"{what} of a view of shape {self.shape} is ambiguous; expected one item")
        return self.read().reshape(-1)[0]

    @property
    def step(self) -> ViewStep:
        """The last step of the tree of sources and steps that the view is."""
        return self._step

    @property
    def sources(self) -> list[Any]:
        """The arrays that the view is made of: stored ones, those in memory, and sources of jobs."""
        return [
            getattr(step, "array", getattr(step, "items", getattr(step, "source", None)))
            for step in postorder(self._step)
            if not step.inputs
        ]

    def has_lost(self, error: Exception) -> bool:
        arrays = (source_of(one) if isinstance(one, Array) else one for one in self.sources)
        return any(isinstance(one, Source) and one.has_lost(error) for one in arrays)

    # Selections

    def __getitem__(self, selection: Any) -> View:
        return self.selected(parse(self.shape, selection))

    @property
    def oindex(self) -> ViewIndexer:
        """Orthogonal indexing, each axis independently: `view.oindex[[0, 5], :, mask]`."""
        return ViewIndexer(self, parse_orthogonal)

    @property
    def vindex(self) -> ViewIndexer:
        """Selection of points by their coordinates: `view.vindex[[0, 5], [7, 9]]` has 2 items."""
        return ViewIndexer(self, parse_points)

    def selected(self, transform: IndexTransform) -> View:
        """The items at the positions of a transform."""
        return View(select(self._step, transform))

    def transpose(self, *axes: Any) -> View:
        """The view with its axes in another order, by default the reverse one, as numpy's `transpose`."""
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], Iterable)):
            axes = () if axes[0] is None else tuple(axes[0])
        order = axes_of(axes or range(self.ndim)[::-1], self.ndim)
        if len(order) != self.ndim:
            raise ValueError(f"axes {axes} do not match a view of {self.ndim} axes")
        return self.selected(IndexTransform.identity(self.shape).permuted(order))

    @property
    def T(self) -> View:
        """The view with its axes in reverse order."""
        return self.transpose()

    # Computations

    def astype(self, dtype: npt.DTypeLike) -> View:
        """The view with items converted to a dtype, as numpy's `astype`."""
        wanted = np.dtype(dtype)
        return self if wanted == self.dtype else View(Computation((self._step,), Cast(), wanted))

    def where(self, condition: Any, other: Any) -> View:
        """The view with `other` in the place of items for which a condition is false."""
        made: View = _call(np.where, (condition, self, other), {})
        return made

    def scale(
        self, factor: float, offset: float = 0.0, *, nodata: Any = (), dtype: npt.DTypeLike = "f8"
    ) -> View:
        """Physical numbers from stored ones: stored · factor + offset, and NaN for those of `nodata`.

        nodata  a number, or several
        """
        wanted = np.dtype(dtype)
        if wanted.kind not in "fc" or self.dtype.kind not in "iufb":
            raise UnsupportedError(
                f"{self.dtype} is not scaled to {wanted}; expected numbers, and a dtype with NaN"
            )
        missing = tuple(np.atleast_1d(nodata).tolist())
        return View(Computation((self._step,), Unpack(float(factor), float(offset), missing), wanted))

    def map(self, function: Callable[..., Any], *others: Any, dtype: npt.DTypeLike, **options: Any) -> View:
        """The results of a function of blocks: `function(block, *blocks of others, **options)`.

        It is called with blocks of any shape, on several threads, and must make each item from the items at
        the same place: where blocks end is the plan's choice.
        """
        steps = [step_of(one) for one in (self, *others)]
        call = Call(function, tuple(map(Input, range(len(steps)))), tuple(options.items()))
        return _computed(call, steps, np.dtype(dtype))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__":
            return _by_items(getattr(ufunc, method), inputs, options)
        if options.get("out") is not None or options.get("where", True) is not True:
            raise UnsupportedError(
                f"numpy.{ufunc.__name__} of views takes no out and no where; items are written by view[...] ="
            )
        check_by_place(ufunc)
        options = {name: value for name, value in options.items() if name not in ("out", "where")}
        if ufunc.nout == 1:
            return _call(ufunc, inputs, options)
        return tuple(_call(ufunc, inputs, options, output) for output in range(ufunc.nout))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, given: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        own = _FUNCTIONS.get(function)
        if own is not None:
            return own(*given, **options)
        is_by_place = getattr(np, getattr(function, "__name__", ""), None) is function
        is_by_place = is_by_place and function.__name__ in BY_PLACE and not options.keys() & {"out", "copy"}
        # Of a condition alone, `where` gives the places at which it holds.
        if is_by_place and (function is not np.where or len(given) > 1):
            return _call(function, given, options)
        return _by_items(function, given, options)

    def reduce(self, method: str, axis: Any = None, **options: Any) -> Any:
        """Reduce the view, or some of its axes, as `zstore.reduce` does: `view.reduce("mean", axis=0)`."""
        return above.reduce(self, method, axis, **options)

    def batches(self, **options: Any) -> Any:
        """Batches of samples of the view, as `zstore.batches` makes them: `view.batches(sample={0: 2})`."""
        return above.batches(self, **options)

    # Reading

    def read(
        self, selection: Any = Ellipsis, out: Items | None = None, *, missing: Missing | None = None
    ) -> Items:
        """Read the items of `view[selection]`, into `out` if it is not None.

        Each chunk of each array behind is fetched and decoded once (for a computation, once for each block
        that it lies in); arrays without items in the selection are not opened.

        out      an array of the result's shape and dtype, with any strides and either byte order
        missing  as for `Array.read`; None: as each array was opened

        Raises
            SelectionError: the selection does not fit the view.
            NotFoundError, ChangedError: an array is gone, or another one is at its address.
            ValueError: `out` has another shape or dtype.
        """
        return drive(self._read_many(BLOCKING, [selection], None if out is None else [out], missing))[0]

    async def read_async(
        self, selection: Any = Ellipsis, out: Items | None = None, *, missing: Missing | None = None
    ) -> Items:
        """Do what `read` does without blocking the event loop."""
        outs = None if out is None else [out]
        return (await self._read_many(async_scheduler(), [selection], outs, missing))[0]

    def read_many(
        self,
        selections: Iterable[Any],
        *,
        out: Sequence[Items] | None = None,
        missing: Missing | None = None,
    ) -> list[Items]:
        """Read several selections together, each chunk that several of them touch once."""
        return drive(self._read_many(BLOCKING, selections, out, missing))

    async def _read_many(
        self,
        scheduler: Scheduler,
        selections: Iterable[Any],
        out: Sequence[Items] | None,
        missing: Missing | None,
    ) -> list[Items]:
        transforms = [parse(self.shape, selection) for selection in selections]
        if out is not None and len(out) != len(transforms):
            raise ValueError(f"out has {len(out)} arrays, expected {len(transforms)}, one for each selection")
        outs = [np.empty(one.shape, self.dtype) for one in transforms] if out is None else [*out]
        for transform, items in zip(transforms, outs, strict=True):
            if items.shape != transform.shape or not is_same_type(items.dtype, self.dtype):
                raise ValueError(
                    f"out has shape {items.shape} and dtype {items.dtype}, expected {transform.shape} and "
                    f"{self.dtype}"
                )
        wanted = [(self._step, one, items) for one, items in zip(transforms, outs, strict=True)]
        await plan.read(scheduler, wanted, missing)
        return outs

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Items:
        if copy is False:
            raise ValueError("a view cannot be had as items without a copy")
        items = self.read()
        return items if dtype is None else items.astype(dtype, copy=False)

    # Writing

    def __setitem__(self, selection: Any, value: Any) -> None:
        drive(self._write(BLOCKING, parse(self.shape, selection), value))

    async def write_async(self, selection: Any, value: Any) -> None:
        """Do what `view[selection] = value` does without blocking the event loop."""
        await self._write(async_scheduler(), parse(self.shape, selection), value)

    async def _write(self, scheduler: Scheduler, transform: IndexTransform, value: Any) -> None:
        items = np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic | View | Array):
            items = np.asarray(value, self.dtype)
        try:
            while items.ndim > len(transform.shape) and items.shape[0] == 1:
                items = items[0]
            items = np.broadcast_to(items, transform.shape)
        except ValueError as error:
            raise SelectionError(
                f"could not broadcast input array from shape {items.shape} into shape {transform.shape}"
            ) from error
        await plan.write(scheduler, self._step, transform, items)

    # As a source of jobs

    @once
    def grid(self) -> Grid:
        """The grid of chunks; boxes of whole chunks cost least to read."""
        runs = [_runs(borders) for borders in edges(self._step)]
        if all(
            len(own) == 1 or (len(own) == 2 and own[1][1] == 1 and own[1][0] <= own[0][0]) for own in runs
        ):
            return RegularGrid(tuple(own[0][0] for own in runs))
        return RectilinearGrid(tuple(map(Edges, runs)))

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of the largest chunks that reading costs least by."""
        return self.grid.chunk_shape

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The lengths of the chunks along each axis."""
        return tuple(self.grid.lengths(axis, length) for axis, length in enumerate(self.shape))

    @property
    def url(self) -> str:
        """A name for messages, the same for the same view of the same sources."""
        return f"view:{name_job(flat.describe(self._step))}"

    def version(self) -> str:
        """A text that changes whenever an item of a source is written; "" if that is unknown."""
        versions: dict[str, str] = {}
        for number, step in enumerate(postorder(self._step)):
            if isinstance(step, StoredItems):
                source: Source = StoredArray.of(step.opened)
                versions[source.url] = source.version()
            elif isinstance(step, BoxedItems):
                is_source = isinstance(step.source, Source)
                versions[f"{number}"] = step.source.version() if is_source else ""
            elif isinstance(step, MemoryItems):
                versions[f"{number}"] = flat.hash_items(step.items)
        if not all(versions.values()):
            return ""
        may_stay = any(version.endswith("?") for version in versions.values())
        return name_job(sorted(versions.items())) + ("?" if may_stay else "")

    def close(self) -> None:
        for one in self.sources:
            if isinstance(one, Source):
                one.close()

    def check_apart(self, target: Store, base: str, work: str) -> None:
        for step in postorder(self._step):
            if isinstance(step, StoredItems):
                source_of(step.opened).check_apart(target, base, work)
            elif isinstance(step, BoxedItems) and isinstance(step.source, Source):
                step.source.check_apart(target, base, work)

    @once
    def carried(self) -> Carried:
        """The names, attributes and coordinates of its sources that hold for its items; opens all sources."""
        return carry(self._step)

    @property
    def name(self) -> str:
        return self.carried.name

    @property
    def dimension_names(self) -> Sequence[str | None] | None:
        return self.carried.dimension_names

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self.carried.attributes

    @property
    def fill_value(self) -> Any:
        return self.carried.fill_value

    def documents(self, zarr_format: ZarrFormat) -> tuple[MemoryStore, str] | None:
        return self.carried.documents(self, zarr_format)

    @property
    def request_count(self) -> int:
        """The number of boxes worth reading at once."""
        return 32 if plan.is_far(self._step) else 1

    # As a file

    def save(
        self, target: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """Store the view as a JSON document, at a path or URL that ends in ".view.json", for `zstore.open`.

        It has the addresses of arrays, which are relative to the document where they lie below its directory,
        and none of their items.

        Raises
            UnsupportedError: it has sources without address, more than a few items in memory, or `map`.
        """
        if kind_by_name(os.fspath(target)) is not VIEW:
            raise UnsupportedError(
                f"{os.fspath(target)!r} is no name of a view; expected one that ends in {VIEW.endings[0]!r}"
            )
        document.write(self._step, target, storage_options)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("zstore.View", flat.describe(self._step))


class ViewIndexer:
    """Selects from a view by another kind of selection than numpy's own."""

    __slots__ = ("_parse", "_view")

    def __init__(self, view: View, parse: Parse) -> None:
        self._view, self._parse = view, parse

    def __getitem__(self, selection: Any) -> View:
        view = self._view
        return view.selected(self._parse(view.shape, selection))

    def __setitem__(self, selection: Any, value: Any) -> None:
        self[selection][...] = value


def open_view(target: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> View:
    """The view at a path or URL, as `View.save` has stored it; its arrays are opened when they are read.

    Raises
        NotFoundError: there is none.
        MetadataError: its document is damaged.
        StoreError: it leads to a place that is not allowed.
    """
    return View(document.read(target, storage_options))


class ViewStore(SourceStore):
    """A view in a file as a hierarchy: an array, in a group with its coordinates where it has some."""

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> SourceStore:
        """The view at "view://PATH", or at the URL behind "view::".

        Raises
            as `open_view`.
        """
        address = url.partition("view://" if url.startswith("view://") else "view::")[2]
        made = cls.of(open_view(address, storage_options))
        # Named by its file, as other files are.
        return cls(url, made.documents, made.sources)


def _unpickled(steps: Any) -> View:
    return View(flat.unflatten(steps))


def _runs(borders: Any) -> list[tuple[int, int]]:
    """The lengths of chunks between borders, as runs of equal ones; one chunk of 1 where there are none."""
    lengths = np.diff(borders)
    lengths = lengths[lengths > 0]
    if not len(lengths):
        return [(1, 1)]
    first = np.flatnonzero(np.append(True, np.diff(lengths) != 0))
    counts = np.diff(np.append(first, len(lengths)))
    return [(int(lengths[at]), int(count)) for at, count in zip(first, counts, strict=True)]


# Made of sources


def view(source: Any) -> View:
    """A view of a stored array, of items in memory, or of anything that is read by boxes; nothing is read.

    Of other libraries' arrays it needs `shape`, `dtype` and items by slices, as dask's have.

    Raises
        TypeError: it is nothing of the kind.
    """
    return View(step_of(source))


def _common(sources: Iterable[Any]) -> list[ViewStep]:
    """The sources as steps of one dtype, numpy's for all of them together."""
    steps = [step_of(source) for source in ([sources] if isinstance(sources, str) else sources)]
    if not steps:
        raise ValueError("no sources; expected one or more")
    first = steps[0].dtype
    if all(is_same_type(step.dtype, first) for step in steps):
        return steps
    wanted = np.result_type(*{step.dtype for step in steps})
    return [
        step if is_same_type(step.dtype, wanted) else Computation((step,), Cast(), wanted) for step in steps
    ]


def concat(sources: Iterable[Any], axis: int | str = 0) -> View:
    """The sources one behind the other along an axis, as numpy's `concatenate`; nothing is read.

    axis  a number, or a name of the first source's dimension

    >>> concat([np.arange(3), np.arange(2)]).read().tolist()
    [0, 1, 2, 0, 1]

    Raises
        ValueError: no sources, of no dimension, or of shapes that differ along another axis; or no
            dimension has the name.
    """
    steps = _common(sources)
    first = steps[0].shape
    names = View(steps[0]).dimension_names if isinstance(axis, str) else None
    [axis] = axes_of(axis, len(first), names)
    for number, step in enumerate(steps):
        if len(step.shape) != len(first) or any(
            a != b for d, (a, b) in enumerate(zip(step.shape, first, strict=True)) if d != axis
        ):
            raise ValueError(
                f"source {number} has shape {step.shape}; expected {first} of the first, but for axis {axis}"
            )
    return View(steps[0] if len(steps) == 1 else Concatenation(tuple(steps), axis))


def stack(sources: Iterable[Any], axis: int = 0) -> View:
    """The sources along a new axis, as numpy's `stack`; nothing is read.

    >>> stack([np.arange(3), np.arange(3)], axis=1).shape
    (3, 2)

    Raises
        ValueError: no sources, or of different shapes.
    """
    steps = _common(sources)
    first = steps[0].shape
    [axis] = axes_of(axis, len(first) + 1)
    for number, step in enumerate(steps):
        if step.shape != first:
            raise ValueError(f"source {number} has shape {step.shape}; expected that of the first, {first}")
    added = parse(first, (slice(None),) * axis + (None,))
    return View(Concatenation(tuple(select(step, added) for step in steps), axis))


def overlay(
    sources: Iterable[Any],
    at: Sequence[Sequence[int]] | None = None,
    *,
    shape: Sequence[int] | None = None,
    nodata: Any = None,
    fill_value: Any = None,
    first: bool = False,
) -> View:
    """The sources laid over each other, each at its place: a mosaic; of valid items, the last source's count.

    at          for each source the position in the result at which it begins; None: all begin at its origin
    shape       of the result; None: as far as the sources reach
    nodata      the value of items that are not valid, or a list with one for each source; None: of floats and
                times NaN, of others none, so that all are valid
    fill_value  of items at which no source is valid; None: the first source's nodata
    first       whether of valid items the first source's count

    >>> overlay([np.array([1, 2, 0]), np.array([7, 0])], at=[[0], [2]], nodata=0).read().tolist()
    [1, 2, 7, 0]

    Raises
        ValueError: no sources, sources that reach out of `shape`, or no value for items without a source.
    """
    steps = _common(sources)
    ndim = len(steps[0].shape)
    for number, step in enumerate(steps):
        if len(step.shape) != ndim:
            raise ValueError(
                f"source {number} has shape {step.shape}; expected {ndim} axes, as the first has"
            )
    count = len(steps)
    starts = (
        np.zeros((count, ndim), np.int64) if at is None else np.array(at, np.int64).reshape(len(at), ndim)
    )
    if len(starts) != count:
        raise ValueError(f"at has {len(starts)} positions; expected {count}, one for each source")
    stops = starts + np.array([step.shape for step in steps], np.int64).reshape(count, ndim)
    lengths = tuple(map(int, stops.max(0) if shape is None else shape))
    if len(lengths) != ndim or (starts < 0).any() or (stops > np.array(lengths, np.int64)).any():
        raise ValueError(
            f"the sources reach from {starts.min(0)} to {stops.max(0)}, out of the shape {lengths}"
        )
    dtype = steps[0].dtype
    if not isinstance(nodata, list | tuple):
        nan: Any = np.array("nat", dtype) if dtype.kind in "mM" else np.nan if dtype.kind in "fc" else None
        nodata = [nan if nodata is None else nodata] * count
    if len(nodata) != count:
        raise ValueError(f"nodata has {len(nodata)} values; expected {count}, one for each source")
    if fill_value is None:
        fill_value = nodata[0]
    covers = any((starts[k] == 0).all() and steps[k].shape == lengths for k in range(count))
    if fill_value is None and not covers:
        raise ValueError("the sources may leave items out, and there is no nodata; expected a fill_value")
    fill = np.zeros((), dtype)
    if fill_value is not None:
        fill[...] = fill_value
    if first:
        steps, starts, nodata = steps[::-1], starts[::-1], nodata[::-1]
    valid = tuple(None if one is None else np.asarray(one).astype(dtype)[()] for one in nodata)
    return View(Overlay(tuple(steps), np.ascontiguousarray(starts), lengths, valid, fill[()]))


def unpack(source: Any, *, dtype: npt.DTypeLike = "f8") -> View:
    """A view of the physical numbers of a stored array, by the CF attributes that say how they are packed.

    Numbers of `_FillValue` and `missing_value` are NaN. An array without such attributes stays as it is.

    Raises
        MetadataError: the attributes are none to unpack by.
        UnsupportedError: it is no stored array, which alone has attributes, or `dtype` has no NaN.
    """
    if not isinstance(source, Array):
        raise UnsupportedError(
            f"{source!r} has no attributes to unpack by; expected a stored array, or view.scale"
        )
    wanted = np.dtype(dtype)
    if wanted.kind != "f":
        raise UnsupportedError(f"numbers are not unpacked to {wanted}; expected a dtype with NaN")
    attributes, stored = dict(source.attrs), source.dtype
    scale, offset = parse_packing(attributes)
    fills = tuple(meant_fills(stored, attributes)) if stored.kind in "iuf" else ()
    meant = meant_type(stored, attributes)
    if scale is None and offset is None and not fills and meant == stored:
        return view(source)
    function = Unpack(scale, offset, fills, None if meant == stored else meant)
    return View(Computation((StoredItems(source),), function, wanted))


# numpy's functions


def _call(
    function: Callable[..., Any], given: Sequence[Any], options: dict[str, Any], output: int | None = None
) -> Any:
    """The view of a numpy function of views, of sources of views and of constants."""
    arguments: list[Any] = []
    steps: list[ViewStep] = []
    for one in given:
        if _is_constant(one) or (function is np.isin and arguments):
            arguments.append(one)
        else:
            arguments.append(Input(len(steps)))
            steps.append(step_of(one))
    if any(isinstance(value, View) for value in [*arguments, *options.values()]):
        return _by_items(function, given, options)
    call = Call(function, tuple(arguments), tuple(sorted(options.items())), output)
    return _computed(call, steps, call.dtype([step.dtype for step in steps]))


def _is_constant(value: Any) -> bool:
    """Whether an argument of a function is a single item, as which numpy gives it a dtype."""
    return value is None or isinstance(value, int | float | complex | str | bytes | np.generic)


def _computed(call: Call, steps: Sequence[ViewStep], dtype: np.dtype[Any]) -> View:
    shape = np.broadcast_shapes(*(step.shape for step in steps))
    return View(Computation(tuple(_broadcast(step, shape) for step in steps), call, dtype))


def _broadcast(step: ViewStep, shape: tuple[int, ...]) -> ViewStep:
    if step.shape == shape:
        return step
    pairs: list[tuple[tuple[int, ...], int | range]] = []
    for axis, length in enumerate(step.shape, len(shape) - len(step.shape)):
        pairs.append(((axis,), range(length)) if length == shape[axis] else ((), 0))
    return select(step, IndexTransform(shape, tuple(a for a, _ in pairs), tuple(p for _, p in pairs)))


def _by_items(function: Callable[..., Any], given: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result of a function that is called with the items of views, which are read for it."""

    def items(value: Any) -> Any:
        if isinstance(value, View):
            return value.read()
        return type(value)(map(items, value)) if type(value) in (list, tuple) else value

    return function(*map(items, given), **{name: items(value) for name, value in options.items()})


def _across(function: Callable[..., Any]) -> Callable[..., Any]:
    """One of numpy's reductions as a view, of one axis; anything else is made of the items."""
    across = Across(function.__name__)

    def reduced(a: Any, axis: Any = None, **options: Any) -> Any:
        if not isinstance(a, View) or not isinstance(axis, int | np.integer) or options or not a.size:
            return _by_items(function, (a, axis), options)
        [axis] = axes_of(axis, a.ndim)
        slices = [a[(slice(None),) * axis + (at,)].step for at in range(a.shape[axis])]
        return View(Computation(tuple(slices), across, across.dtype(a.dtype)))

    return reduced


def _expand_dims(a: View, axis: Any) -> View:
    axes = axes_of(axis, a.ndim + np.size(axis))
    ndim = a.ndim + len(axes)
    return a[tuple(None if at in axes else slice(None) for at in range(ndim))]


def _squeeze(a: View, axis: Any = None) -> View:
    every = range(a.ndim)
    axes = [at for at in every if a.shape[at] == 1] if axis is None else axes_of(axis, a.ndim)
    if any(a.shape[at] != 1 for at in axes):
        raise ValueError(f"cannot squeeze axes {tuple(axes)} of shape {a.shape}; expected lengths of 1")
    return a[tuple(0 if at in axes else slice(None) for at in every)]


def _moveaxis(a: View, source: Any, destination: Any) -> View:
    sources = axes_of(source, a.ndim)
    destinations = axes_of(destination, a.ndim)
    order = [axis for axis in range(a.ndim) if axis not in sources]
    for place, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(place, axis)
    return a.transpose(order)


def _swapaxes(a: View, axis1: int, axis2: int) -> View:
    one, other = (axes_of(axis, a.ndim)[0] for axis in (axis1, axis2))
    order = [*range(a.ndim)]
    order[one], order[other] = other, one
    return a.transpose(order)


def _flip(m: View, axis: Any = None) -> View:
    axes = range(m.ndim) if axis is None else axes_of(axis, m.ndim)
    return m[tuple(slice(None, None, -1) if at in axes else slice(None) for at in range(m.ndim))]


def _broadcast_to(array: View, shape: Any, subok: bool = False) -> View:
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    if np.broadcast_shapes(array.shape, lengths) != lengths:
        raise ValueError(f"shape {array.shape} cannot be broadcast to {lengths}")
    return View(_broadcast(array.step, lengths))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.concatenate: concat,
    np.stack: stack,
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.moveaxis: _moveaxis,
    np.swapaxes: _swapaxes,
    np.expand_dims: _expand_dims,
    np.squeeze: _squeeze,
    np.flip: _flip,
    np.broadcast_to: _broadcast_to,
    **{function: _across(function) for function in (np.nanmax, np.nanmean, np.nanmedian, np.nanmin)},
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
}
