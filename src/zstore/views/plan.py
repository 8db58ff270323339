"""Plans of views: a selection of a step becomes selections of its sources, and computations on their items.

Slices, transposes, index arrays, `concat` and `stack` only say where items lie: those of each source are read
straight to their place in the result, those of all sources in one batch. Computations are divided into blocks
along the borders of chunks. The sources of a block are read in batches, in the order in which its steps need
them, so that memory is bounded by the block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise, product
from math import inf
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from zstore.base import tracing
from zstore.base.once import once
from zstore.engine.chunks import Join, lies_between
from zstore.engine.schedulers import SHORT_SIZE, Scheduler, thread_count
from zstore.errors import UnsupportedError
from zstore.indexing.select import select_transform
from zstore.indexing.transform import IndexTransform, Points, spread
from zstore.nodes.array import Array, join_array
from zstore.nodes.node import Missing
from zstore.views.steps import (
    BoxedItems,
    Computation,
    Concatenation,
    Edges,
    Items,
    MemoryItems,
    Overlay,
    Selection,
    StoredItems,
    ViewStep,
    Wanted,
    edges,
    postorder,
    selected_edges,
)

# A block has about this many bytes of the result, or one chunk where that has more.
BLOCK_SIZE = 1 << 20
# Of a block's sources, about this many bytes are read together: so few stay in the processor's cache. Of
# those that are far away more, so that they are asked for at the same time.
BATCH_SIZE = 8 << 20
FAR_BATCH_SIZE = 16 << 20
# The most bytes of results that are read or computed at the same time where sources are far away, and the
# steps of a tree among which such a source is looked for.
FAR_SIZE = 256 << 20
LOOKED_COUNT = 256
# The inputs of an overlay that are asked for at once at first where sources are far away.
FIRST_COUNT = 4

EVERYTHING = IndexTransform.identity(())

Act = Callable[[], object]


class Read(NamedTuple):
    """Items to read from a source into memory."""

    source: ViewStep
    transform: IndexTransform
    out: Items


class Memory:
    """Memory for items that are only needed on the way to a result, which is taken when it is first used."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self.is_planned = self.is_shared = False

    @once
    def items(self) -> Items:
        """The items, which nobody has set yet when they are first asked for."""
        return np.empty(self.shape, self.dtype)


class MadeInput(NamedTuple):
    """An input of a computation: a step, its items and their memory, and the axes along which they repeat."""

    step: ViewStep
    transform: IndexTransform
    memory: Memory
    unused: tuple[int, ...]


@dataclass
class Layers:
    """An overlay's inputs that are not merged yet, of which the last one is next: it lies above all others.

    numbers  of the inputs
    lacks    whether each item of the result has no valid one yet
    planned, most  inputs that are planned and not merged, and how many may be
    """

    step: Overlay
    transform: IndexTransform
    out: Items
    numbers: list[int]
    planned: int = 0
    most: int = 1

    @once
    def lacks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.ones(self.out.shape, bool)

    def waits(self, *, looks_ahead: bool) -> bool:
        """Whether to merge inputs before the next is planned; ahead, after twice as many each time."""
        if looks_ahead and self.most == 1:
            self.most = FIRST_COUNT
        if self.planned < self.most:
            return False
        self.planned = 0
        self.most *= 2 if looks_ahead else 1
        return True

    def next(self) -> list[Any]:
        """The next input that may be seen, behind its merging and these layers again."""
        self.planned += 1
        while self.numbers:
            number = self.numbers.pop()
            for inner, where in _inside(self.step, number, self.transform):
                if isinstance(where, tuple) and not _part(self.lacks, where).any():
                    continue
                memory = Memory(inner.shape, self.out.dtype)
                act = partial(self.merge, number, memory, where)
                return [self, act, (self.step.inputs[number], inner, memory)]
        return []

    def merge(self, number: int, memory: Memory, where: tuple[slice, ...] | IndexTransform) -> None:
        """Put the valid items of an input where the result lacks them."""
        items = memory.items
        if isinstance(where, tuple):
            lacks = _part(self.lacks, where)
            seen = lacks & self.step.valid(number, items)
            np.copyto(_part(self.out, where), items, where=seen)
            lacks ^= seen
            return
        every = range(items.ndim)
        places = tuple(
            np.broadcast_to(spread(where, axis, every), items.shape) for axis in range(self.out.ndim)
        )
        seen = self.lacks[places] & self.step.valid(number, items)
        index = tuple(place[seen] for place in places)
        self.out[index] = items[seen]
        self.lacks[index] = False


class ViewPlan:
    """The reads of selections, the acts that follow them, in order, and the blocks to compute between both.

    computes  whether computations are planned with all that they need, as for one block; else they are blocks
    looks_ahead  whether several inputs of an overlay are read before it is known what they leave to others
    """

    def __init__(self, wanted: Iterable[Wanted], *, computes: bool, looks_ahead: bool = False) -> None:
        self.blocks: list[Wanted] = []
        self._computes, self._looks_ahead = computes, looks_ahead
        self._reads: list[Read] = []
        # Two transforms, and what they compose to.
        self._composed = (EVERYTHING, EVERYTHING, EVERYTHING)
        # The inputs that computations may share, and those that several do.
        self._inputs: WeakValueDictionary[Any, Memory] = WeakValueDictionary()
        self._shared: list[Memory] = []
        # A stack rather than recursion: trees may be deep.
        self._left: list[tuple[ViewStep, IndexTransform, Items | Memory] | Layers | Act] = [
            *reversed([*wanted])
        ]

    def batches(self, size: float = inf) -> Iterator[tuple[list[Read], deque[Act]]]:
        """Reads of about `size` bytes together, and the acts to do after them and before the next ones."""
        while self._left:
            acts: deque[Act] = deque()
            self._reads, read_size, count = [], 0, 0
            while self._left and read_size < size:
                item = self._left.pop()
                if isinstance(item, Layers):
                    if acts and item.waits(looks_ahead=self._looks_ahead):
                        self._left.append(item)
                        break
                    self._left += item.next()
                elif isinstance(item, tuple):
                    self._expand(*item)
                else:
                    acts.append(item)
                for one in self._reads[count:]:
                    read_size += one.out.nbytes
                count = len(self._reads)
            yield self._reads, acts

    def _expand(self, step: ViewStep, transform: IndexTransform, out: Items | Memory) -> None:
        if isinstance(out, Memory):
            if out.is_planned:
                return
            out.is_planned = True
        step, transform = self._source(step, transform)
        if 0 in transform.shape:
            return
        if self._computes and isinstance(step, Computation) and not transform.unused:
            inputs = [self._input(one, transform) for one in step.inputs]
            self._left.append(partial(_compute_items, step, transform, inputs, out))
            self._left += [one[:3] for one in reversed(inputs)]
            return
        items = out.items if isinstance(out, Memory) else out
        if isinstance(step, StoredItems) and not transform.repeats:
            self._reads.append(Read(step, transform, items))
        elif transform.unused:
            self._repeat(step, transform, items)
        elif isinstance(step, Concatenation):
            self._place(step, transform, items)
        elif isinstance(step, Overlay):
            self._lay(step, transform, items)
        elif isinstance(step, Computation):
            self.blocks.append((step, transform, items))
        else:
            self._reads.append(Read(step, transform, items))

    def _repeat(self, step: ViewStep, transform: IndexTransform, out: Items) -> None:
        """Plan items that repeat along some axes: they are made once, and copied."""
        used = transform.used
        kept = [axis for axis in range(out.ndim) if axis in used]
        first = _part(out, [slice(None) if axis in used else slice(1) for axis in range(out.ndim)])
        if first.size < out.size:
            self._left.append(partial(np.copyto, out, first))
        self._left.append((step, transform.permuted(kept), first.squeeze(transform.unused)))

    def _place(self, step: Concatenation, transform: IndexTransform, out: Items) -> None:
        """Plan pieces of a result, straight to their place in it or by way of memory to scatter from."""
        planned: list[Any] = []
        for number, piece, where in transform.divided(step.axis, step.starts):
            if isinstance(where, Points):
                items = np.empty(piece.shape, out.dtype)
                planned += [(step.inputs[number], piece, items), partial(_scatter, where, out, items)]
                continue
            items = out[where] if where else out
            source, selected = self._source(step.inputs[number], piece)
            if type(source) is StoredItems and not selected.repeats:
                self._reads.append(Read(source, selected, items))
            else:
                planned.append((source, selected, items))
        self._left.extend(reversed(planned))

    def _source(self, step: ViewStep, transform: IndexTransform) -> tuple[ViewStep, IndexTransform]:
        """The step that a selection is made of, and the items that it has of that; else the same."""
        while type(step) is Selection:
            # Of the pieces of a join, one like the other has the same transforms.
            outer, inner, made = self._composed
            if outer is not step.transform or inner is not transform:
                made = step.transform.of(transform)
                self._composed = step.transform, transform, made
            step, transform = step.inputs[0], made
        return step, transform

    def _lay(self, step: Overlay, transform: IndexTransform, out: Items) -> None:
        """Plan an overlay: inputs that overlap no other one lie in the result at once, others are merged."""
        numbers = step.touched(transform)
        if step.is_apart(numbers):
            pieces = [(step.inputs[n], *piece) for n in numbers for piece in _inside(step, n, transform)]
            if all(isinstance(where, tuple) for _, _, where in pieces):
                if sum(inner.size for _, inner, _ in pieces) < out.size:
                    out[...] = step.fill_value
                self._left += [(one, inner, _part(out, where)) for one, inner, where in reversed(pieces)]
                return
        if not self._computes:
            self.blocks.append((step, transform, out))
            return
        out[...] = step.fill_value
        self._left.append(Layers(step, transform, out, numbers))

    def _input(self, step: ViewStep, transform: IndexTransform) -> MadeInput:
        """A computation's input, with the items that vary, and the memory for them."""
        step, transform = self._source(step, transform)
        varying = transform.permuted([axis for axis in range(len(transform.shape)) if axis in transform.used])
        name = (source_name(step), varying.key)
        memory = self._inputs.get(name)
        if memory is None:
            memory = self._inputs[name] = Memory(varying.shape, step.dtype)
        elif not memory.is_shared:
            # Whoever is planned later may need it, too.
            memory.is_shared = True
            self._shared.append(memory)
        return MadeInput(step, varying, memory, transform.unused)


def source_name(step: ViewStep) -> Any:
    """A value that is equal for sources with the same items."""
    if isinstance(step, StoredItems) and isinstance(step.array, Array):
        array = step.array
        return id(array.store), array.path, id(array.model), array.access
    return id(step)


def _by_source(reads: Sequence[Read]) -> tuple[Sequence[Read], list[list[Read]]]:
    """The reads that are the only ones of their source, and the others, source by source."""
    # Equal sources have one model, which is asked for in less time than their names.
    ids = [
        id(source.array.model if type(source) is StoredItems and type(source.array) is Array else source)
        for source, _, _ in reads
    ]
    if len({*ids}) == len(ids):
        return reads, []
    groups: dict[Any, list[Read]] = {}
    for item in reads:
        groups.setdefault(source_name(item.source), []).append(item)
    return [group[0] for group in groups.values() if len(group) == 1], [
        group for group in groups.values() if len(group) > 1
    ]


def _inside(
    step: Overlay, number: int, transform: IndexTransform
) -> Iterator[tuple[IndexTransform, tuple[slice, ...] | IndexTransform]]:
    """The items of a selection in an input, and their place in the result: slices, or a transform."""
    slices = [slice(None)] * len(transform.shape)
    where = IndexTransform.identity(transform.shape)
    has_points = False
    for axis, (start, stop) in enumerate(zip(step.starts[number], step.stops[number], strict=True)):
        piece = next(transform.within(axis, int(start), int(stop)), None)
        if piece is None:
            return
        shape = transform.shape
        transform, part = piece
        if isinstance(part, Points):
            has_points = True
            where = where.of(part.transform(shape))
        elif part:
            where = where.cut(len(part) - 1, part[-1].start, part[-1].stop)
            if not has_points:
                before = slices[len(part) - 1].start or 0
                slices[len(part) - 1] = slice(before + part[-1].start, before + part[-1].stop)
    yield transform, where if has_points else tuple(slices)


def _part(items: Items, slices: Sequence[slice]) -> Items:
    """A part of some items, as a view of them even where they are a single one."""
    index: Any = (*slices, ...)
    part: Items = items[index]
    return part


def _compute_items(
    step: Computation, transform: IndexTransform, inputs: list[MadeInput], out: Items | Memory
) -> None:
    """Compute a step's items from those of its inputs."""
    given = [np.broadcast_to(np.expand_dims(one.memory.items, one.unused), transform.shape) for one in inputs]
    step.function(given, out.items if isinstance(out, Memory) else out)


def _scatter(where: Points, out: Items, items: Items) -> None:
    where.view(out)[where.positions] = items


# Carried out


async def read(scheduler: Scheduler, wanted: Iterable[Wanted], missing: Missing | None) -> None:
    """Fill the memory of selections with their items."""
    plan = ViewPlan(wanted, computes=False)
    [(reads, acts)] = await scheduler.run(lambda: [*plan.batches()]) or [([], deque())]
    await _fetch(scheduler, reads, missing)
    if plan.blocks:
        # Threads do not have the caller's.
        far = any(is_far(step) for step, _, _ in plan.blocks)
        compute = partial(_compute, scheduler, missing, np.geterr(), far)
        at_once = min(scheduler.read_count, FAR_SIZE // FAR_BATCH_SIZE) if far else thread_count()
        blocks = (block for wanted in plan.blocks for block in _divided(*wanted))
        await scheduler.each(compute, blocks, at_once, waits=far)
    if acts:
        await scheduler.run(partial(_run, acts, np.geterr()))


async def _compute(
    scheduler: Scheduler, missing: Missing | None, errors: Any, far: bool, block: Wanted
) -> None:
    """Compute a block."""
    plan = ViewPlan([block], computes=True, looks_ahead=far)
    batches = plan.batches(FAR_BATCH_SIZE if far else BATCH_SIZE)
    while (batch := await scheduler.run(partial(next, batches, None))) is not None:
        reads, acts = batch
        await _fetch(scheduler, reads, missing)
        await scheduler.run(partial(_run, acts, errors))
        reads.clear()
        del batch


def _run(acts: deque[Act], errors: Any) -> None:
    with np.errstate(**errors):
        while acts:  # what an act alone has needed is free after it
            acts.popleft()()


async def _fetch(scheduler: Scheduler, reads: Sequence[Read], missing: Missing | None) -> None:
    """Read the items of every source, each chunk once, of several sources at the same time."""
    single, groups = _by_source(reads)
    join = Join()
    # A trace has a span for each array.
    if len(single) > 1 and not tracing.is_on:
        single = await scheduler.run(lambda: [*_apart(single, join, missing)])
    groups += [[item] for item in single]

    async def fetch(group: list[Read]) -> None:
        source = group[0].source
        if isinstance(source, StoredItems):
            array = source.array
            if not isinstance(array, Array):
                array = await scheduler.run(lambda: source.opened)
            await array.read_many_with(
                scheduler,
                [transform for _, transform, _ in group],
                out=[out for _, _, out in group],
                missing=missing,
                selector=select_transform,
            )
            return
        for _, transform, out in group:
            await scheduler.run(partial(_take, source, transform, out))

    largest = max((item.out.nbytes for group in groups for item in group), default=0)
    if any(_waits(group[0].source) for group in groups):
        acts = [partial(join.read, scheduler), *(partial(fetch, group) for group in groups)]
        at_once = min(scheduler.read_count, FAR_SIZE // largest + 1)
        await scheduler.each(lambda act: act(), acts, at_once)
    else:
        await join.read(scheduler)
        # What is read sooner than a thread takes its turn is read by this one.
        is_long = largest > SHORT_SIZE and len(groups) >= thread_count()
        is_long = is_long and not any(lies_between(item.out) for group in groups for item in group)
        at_once = thread_count() if is_long else 1
        await scheduler.each(fetch, groups, at_once, waits=False)


def _apart(reads: Iterable[Read], join: Join, missing: Missing | None) -> Iterator[Read]:
    """The reads of sources that cannot be read together with others; all else joins."""
    for item in reads:
        source, transform, out = item
        array = source.array if isinstance(source, StoredItems) else None
        if (
            isinstance(array, Array)
            and array.store.request_count <= 1
            and join_array(join, array, transform, out, missing)
        ):
            continue
        yield item


def _take(source: ViewStep, transform: IndexTransform, out: Items) -> None:
    """Copy items from memory, or from the smallest box of a source that has them."""
    assert isinstance(source, MemoryItems | BoxedItems)
    if isinstance(source, BoxedItems):
        bounds = [transform.bounds(axis) for axis in range(len(source.shape))]
        items = source.read(tuple(slice(*pair) for pair in bounds))
        for axis, (start, _) in enumerate(bounds):
            transform = transform.moved(axis, start)
    else:
        items = source.items
    view = _view(items, transform)
    out[...] = items[_index(transform)] if view is None else view


def _view(items: Items, transform: IndexTransform) -> Items | None:
    """The selected items as a view of others; None where that is none of numpy's."""
    axes = [own[0] for own in transform.axes if own]
    if any(isinstance(place, np.ndarray) for place in transform.positions) or len({*axes}) != len(axes):
        return None
    slices = tuple(_as_slice(place) if isinstance(place, range) else place for place in transform.positions)
    view: Items = items[(*slices, ...)]
    return view.transpose(np.argsort(axes))


def _index(transform: IndexTransform) -> tuple[Any, ...]:
    """The numpy selection of a transform by an index array for each dimension."""
    every = range(len(transform.shape))
    return tuple(spread(transform, axis, every) for axis in range(len(transform.axes)))


def _as_slice(items: range) -> slice:
    # There is no index before the first item: a slice that runs down to it has no stop.
    stop = items[-1] + (1 if items.step > 0 else -1)
    return slice(items[0], None if stop < 0 else stop, items.step)


def is_far(root: ViewStep) -> bool:
    """Whether one of a tree's first sources waits for a server."""
    return any(map(_waits, islice(postorder(root), LOOKED_COUNT)))


def _waits(step: ViewStep) -> bool:
    """Whether a step is a source that waits for a server."""
    if isinstance(step, BoxedItems):
        return getattr(step.source, "request_count", 1) > 1
    if not isinstance(step, StoredItems):
        return False
    array = step.array
    return array.store.request_count > 1 if isinstance(array, Array) else "://" in array.url


def _divided(step: ViewStep, transform: IndexTransform, out: Items) -> Iterator[Wanted]:
    """The blocks of a selection, along the borders of chunks."""
    cuts = _cuts(selected_edges(transform, edges(step)), out.dtype.itemsize)
    for box in product(*map(pairwise, cuts)):
        block = transform
        for axis, (start, stop) in enumerate(box):
            block = block.cut(axis, start, stop)
        yield step, block, _part(out, [slice(start, stop) for start, stop in box])


def _cuts(borders: Edges, item_size: int) -> list[list[int]]:
    """The borders of blocks along each axis: of whole chunks, several of them up to BLOCK_SIZE together."""
    cuts = [[int(at) for at in along] for along in borders]
    lengths = [max((b - a for a, b in pairwise(along)), default=1) for along in cuts]
    size = max(1, item_size)
    for length in lengths:
        size *= max(length, 1)
    for axis in reversed(range(len(cuts))):
        along = cuts[axis]
        count = max(1, BLOCK_SIZE // size)
        if len(along) > 2:
            cuts[axis] = [*along[:-1:count], along[-1]]
            longest = max(b - a for a, b in pairwise(cuts[axis]))
            size = size // lengths[axis] * longest
    return cuts


# Writing


async def write(scheduler: Scheduler, step: ViewStep, transform: IndexTransform, value: Items) -> None:
    """Store items through steps that only say where items lie; `value` has the shape of the selection.

    Raises
        UnsupportedError: a step on the way computes, or has an item more than once.
    """
    stores: list[tuple[Array | Items, IndexTransform, Items]] = []
    left: list[Wanted] = [(step, transform, value)]
    while left:
        step, transform, value = left.pop()
        if not value.size:
            continue
        if transform.unused:
            if transform.repeats:
                raise UnsupportedError(
                    "a view that repeats items cannot be written through; select some of them"
                )
            kept = [axis for axis in range(value.ndim) if axis in transform.used]
            left.append((step, transform.permuted(kept), value.squeeze(transform.unused)))
        elif isinstance(step, Selection):
            left.append((step.inputs[0], step.transform.of(transform), value))
        elif isinstance(step, Concatenation):
            for number, inner, where in transform.divided(step.axis, step.starts):
                if isinstance(where, Points):
                    items = where.view(value)[where.positions]
                else:
                    items = _part(value, where)
                left.append((step.inputs[number], inner, items))
        elif isinstance(step, StoredItems):
            stores.append((step.opened, transform, value))
        elif isinstance(step, MemoryItems):
            stores.append((step.items, transform, value))
        else:
            raise UnsupportedError(
                f"a view cannot be written through {in_words(step)}; expected selections, concat and stack"
            )
    for target, inner, items in stores:
        if isinstance(target, Array):
            await target.write_with(scheduler, inner, items, select_transform)
        else:
            view = _view(target, inner)
            if view is None:
                target[_index(inner)] = items
            else:
                view[...] = items


def in_words(step: ViewStep) -> str:
    """A step, as messages name it."""
    if isinstance(step, Computation):
        return str(step.function)
    return {Overlay: "overlay", BoxedItems: "a source that is only read"}.get(type(step), type(step).__name__)
