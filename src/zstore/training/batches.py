"""Batches: samples of arrays, in shuffled order, for loops that train on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from math import prod
from operator import index
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from zstore.base.once import once
from zstore.errors import UnsupportedError
from zstore.jobs.chunks import source_of
from zstore.jobs.plan import name_job
from zstore.jobs.source import Source
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.training.feed import Counts, Feed, Making, OnError, Place
from zstore.training.order import BlockOrder, Order, PlainOrder, Shuffle, measure_mixing, share
from zstore.training.samples import (
    BlockPlan,
    Blocks,
    Dimension,
    Index,
    Items,
    Lengths,
    Name,
    SampleArray,
    SampledSource,
    SampleRun,
    Samples,
    name_dimensions,
)
from zstore.views.view import view

MEMORY = 1 << 30
# Samples whose order is looked at to tell how well it mixes.
MIXED_COUNT = 1 << 20
LIBRARIES = ("torch", "jax")

Leads = Mapping[Name, int | Sequence[int]]
Scale = tuple[npt.ArrayLike, npt.ArrayLike]


class BatchReport(NamedTuple):
    """The plan by which batches are read.

    sample_count  samples of an epoch, of all ranks
    batch_count   batches of an epoch, of this rank
    block         length of a block along each sampled dimension; a block is read and decoded at once
    block_size    bytes of a block, of all sources
    window        number of blocks that samples are drawn from; 0 where the order does not go by blocks
    mixing        mean distance of neighbours' places in the arrays, divided by that of a full shuffle
    is_direct     whether each sample is read by itself, because no blocks fit into the memory
    """

    sample_count: int
    batch_count: int
    block: dict[Name, int]
    block_size: int
    window: int
    mixing: float
    is_direct: bool


class Batches:
    """Batches of samples, made by threads ahead of the loop that takes them.

    Each iteration goes through `epochs` epochs, and the next one through those after them, in another order.
    One iteration is under way at a time. Batches can be pickled; those of another process begin where these
    are.
    """

    def __init__(self, making: Making, shuffle: Shuffle, rank: int, world: int, epochs: int | None) -> None:
        self._shuffle, self._rank, self._world, self._epochs = shuffle, rank, world, epochs
        first, end = share(making.samples.count, rank, world)
        self._making = replace(making, count=end - first)
        self._place = Place()
        self._counts = Counts()
        self._feed: Feed | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self._making, self._shuffle, self._rank, self._world, self._epochs)
        return _unpickled, (given, self._place)

    def __repr__(self) -> str:
        return f"<Batches of {self._making.samples.count:,} samples in batches of {self._making.batch_size}>"

    def __len__(self) -> int:
        """The number of batches of an iteration, of all its epochs.

        Raises
            TypeError: it has no end.
        """
        if self._epochs is None:
            raise TypeError("batches without end have no length; expected `epochs`")
        return self._epochs * self._batch_count

    @property
    def _batch_count(self) -> int:
        making = self._making
        whole, rest = divmod(making.count, making.batch_size)
        return whole + (rest > 0 and not making.drop_last)

    @property
    def sample_count(self) -> int:
        """The number of samples of an epoch, of all ranks together."""
        return self._making.samples.count

    @property
    def counts(self) -> Counts:
        """The numbers of blocks, bytes and samples so far, and of samples that were left out."""
        return self._counts

    def shard(self, rank: int, world: int) -> Batches:
        """The batches of one of `world` workers that divide these, from the beginning of the epoch on.

        Each sample goes to one of the workers.
        """
        _check_rank(rank, world)
        rank, world = self._rank * world + rank, self._world * world
        given = (self._making, self._shuffle, rank, world, self._epochs)
        return _unpickled(given, Place(self._place.epoch))

    # Iterating

    def __iter__(self) -> Iterator[Any]:
        self.close()
        place = self._place
        last = None if self._epochs is None else (place.epoch // self._epochs + 1) * self._epochs
        making = replace(self._making, order=self._order)
        feed = self._feed = Feed(making, place, last, self._counts)
        try:
            while (taken := feed.take()) is not None:
                self._place = taken[1]
                yield taken[0]
                if self._feed is not feed:  # closed, or iterated anew, meanwhile
                    return
        except KeyboardInterrupt:
            feed.close(wait=False)
            raise
        finally:
            feed.close()
            if self._feed is feed:
                self._feed = None

    def close(self) -> None:
        """End the iteration that is under way, and its threads."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Order and state

    def _order(self, epoch: int, blocks: Blocks) -> Order:
        making = self._making
        if self._shuffle != "blocks":
            return PlainOrder(making.samples, self._shuffle == "full", epoch, self._rank, self._world)
        return BlockOrder(making.samples, blocks, making.plan, epoch, self._rank, self._world)

    def order(self, epoch: int = 0) -> Iterator[int]:
        """The numbers of an epoch's samples in order, of this rank."""
        for _, samples in self._order(epoch, self._making.plan.blocks(epoch)).rounds():
            yield from samples.tolist()

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration at the beginning of an epoch."""
        if epoch < 0:
            raise ValueError(f"epoch {epoch}; expected 0 or more")
        self.close()
        self._place = Place(epoch)

    def state(self) -> dict[str, Any]:
        """The state after the last batch that was taken, in JSON, for `restore`."""
        return {"order": self._order_name, **self._place._asdict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after the batch at which `state` was taken, with the same samples in the same order.

        Raises
            ValueError: these batches have another order: other sources, samples, seed, memory or ranks.
        """
        try:
            name, place = state["order"], Place(*(index(state[word]) for word in Place._fields))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{state!r} is no state of batches") from error
        if min(place) < 0 or not place.offset <= place.done <= self._making.count:
            raise ValueError(f"{state!r} is no state of these batches of {self._making.count} samples")
        if name != self._order_name:
            raise ValueError(
                "the state is of batches in another order; expected the same sources, samples, batch_size, "
                "shuffle, seed, memory, rank and world"
            )
        self.close()
        self._place = place

    @once
    def _order_name(self) -> str:
        making, samples = self._making, self._making.samples
        at = None if samples.at is None else name_job(samples.at.tolist())
        shapes = [member.shape for member in samples.members]
        plan = making.plan
        given = (shapes, [*map(tuple, map(_fields, samples.dimensions))], at, samples.seed, self._shuffle)
        return name_job(
            [
                given,
                making.batch_size,
                making.drop_last,
                self._rank,
                self._world,
                plan.capacity,
                plan.ahead,
                plan.shape,
            ]
        )

    @once
    def report(self) -> BatchReport:
        """The plan by which the batches are read: blocks, their window, and the mixing of the order."""
        making, plan = self._making, self._making.plan
        order = self._order(0, plan.blocks(0))
        return BatchReport(
            sample_count=making.samples.count,
            batch_count=self._batch_count,
            block=plan.shape,
            block_size=plan.size,
            window=order.window if isinstance(order, BlockOrder) else 0,
            mixing=_mixing(order, making.samples.count),
            is_direct=plan.is_direct,
        )


def _unpickled(given: Any, place: Place) -> Batches:
    made = Batches(*given)
    made._place = place
    return made


def _fields(one: Dimension) -> Iterator[Any]:
    return iter((one.name, one.length, one.window, one.extent, one.stride, one.is_random))


def _mixing(order: Order, count: int) -> float:
    seen: list[Index] = []
    for _, samples in order.rounds():
        seen.append(samples)
        if sum(map(len, seen)) > MIXED_COUNT:
            break
    return measure_mixing(np.concatenate(seen) if seen else np.zeros(0, np.int64), count)


def batches(
    sources: Any,
    *,
    sample: Lengths | None = None,
    crop: Lengths | None = None,
    at: npt.ArrayLike | None = None,
    stride: Lengths | None = None,
    lead: Leads | None = None,
    dims: Sequence[str] | None = None,
    batch_size: int = 32,
    shuffle: Shuffle = "blocks",
    seed: int = 0,
    epochs: int | None = 1,
    drop_last: bool = False,
    memory: int = MEMORY,
    mixing: float | None = None,
    transform: Callable[[Any], Any] | None = None,
    dtype: npt.DTypeLike | None = None,
    normalize: Scale | Mapping[str, Scale] | None = None,
    accept: Callable[[Any], bool] | None = None,
    to: str | None = None,
    on_error: OnError = "raise",
    rank: int = 0,
    world: int = 1,
    ahead: int = 2,
    allocate: Callable[[tuple[int, ...], np.dtype[Any]], Items] = np.empty,
) -> Batches:
    """Batches of samples of an array, a view, or several of them, for a loop that trains on them.

    Each chunk is read and decoded once in an epoch, as far as `memory` allows, and samples are drawn from
    many chunks at once. The order depends on the arguments alone, and on no number of threads.

    sources     an array, a view, or anything else that `zstore.view` takes; a list of them, of which a batch
                is a tuple; or a mapping by name, of which it is a dict. Dimensions with the same name are
                aligned; a source without a sampled dimension is in each sample whole, as a mask of land would
                be
    sample      the number of items of a sample along dimensions; along all others it has all items
    crop        the same, at random positions; an epoch has as many crops as cover the array once
    at          the positions at which samples begin, (n, dimensions of `sample`); None: everywhere, by
                `stride`
    stride      the distance between the beginnings of two samples, along dimensions of `sample`; 1 where it
                is not said
    lead        along one dimension of `sample`, how many items after the last one of the sample the targets
                are: a number or several. A batch is then a pair of inputs and targets
    dims        the names of the dimensions of a source that has none; dimensions without a name have their
                numbers
    shuffle     "blocks": samples are drawn from a window of chunks in memory, which moves over the array;
                "full": any sample may come after any other, and chunks are read again where memory does not
                hold the array; False: by position
    epochs      of one iteration; None: without end
    drop_last   whether a last batch of fewer samples is left out
    memory      bytes for chunks; batches come on top of it
    mixing      how well samples are to be mixed, up to 1 (`BatchReport.mixing`); it chooses the least memory,
                up to `memory`
    transform   called with each batch, on several threads; batches are what it returns
    dtype       of the arrays in batches; None: of the sources
    normalize   (mean, standard deviation), numbers or arrays that broadcast to a sample, or such pairs by
                name of the source; items become (item - mean) / deviation
    accept      called with each sample; where it refuses a crop, others of the same chunks are tried, up to
                16
    to          "torch" or "jax": batches are arrays of that library, in the same memory
    on_error    "skip": samples that cannot be read are left out of their batch, counted (`Batches.counts`)
                and logged
    rank        of this process among `world` that divide the samples; each sample goes to one of them, and
                their numbers of samples differ by one at most
    ahead       batches that are made ahead of the loop; small ones are made together, up to 2 MiB of them
    allocate    gives memory for an array of a batch, or of some small ones, from a shape and a dtype: pinned
                memory, for example. The memory of batches that nobody has any more is used again

    Raises
        ValueError: a dimension that no source has, one of different lengths, a sample longer than its
            dimension, or a value that makes no sense.
    """
    names, given = _named(sources)
    members = [SampledSource(source, name_dimensions(source, dims)) for source in given]
    windows = _along(members, sample, "sample")
    crops = _along(members, crop, "crop")
    strides = _along(members, stride, "stride")
    leads = {
        name: sorted({*map(index, steps if isinstance(steps, Iterable) else [steps])})
        for name, steps in _renamed(members, lead or {}).items()
    }
    if both := {*windows} & {*crops}:
        raise ValueError(f"dimension {both.pop()!r} is in sample and in crop; expected it in one of them")
    if not (windows or crops):
        raise ValueError(f"no sample and no crop; expected lengths along some of {_all_names(members)}")
    if outside := {*strides, *leads} - {*windows}:
        raise ValueError(
            f"stride or lead along {outside.pop()!r}; expected dimensions of sample: {[*windows]}"
        )
    if len(leads) > 1 or any(step < 1 for steps in leads.values() for step in steps):
        raise ValueError(f"lead {lead!r}; expected one dimension, and 1 or more items after the sample")
    if at is not None and (crops or strides):
        raise ValueError("at with a crop or a stride; expected the one or the other")
    _check_rank(rank, world)
    words = {"batch_size": batch_size, "memory": memory, "ahead": ahead, "epochs": epochs}
    for word, number in words.items():
        if word == "epochs" and number is None:
            continue
        if not isinstance(number, int | np.integer):
            raise TypeError(f"{word} is {number!r}; expected a whole number")
        if number < 1:
            raise ValueError(f"{word} is {number}; expected 1 or more{', or None' * (word == 'epochs')}")
    if shuffle not in ("blocks", "full", False):
        raise ValueError(f"shuffle is {shuffle!r}; expected 'blocks', 'full' or False")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}; expected 'raise' or 'skip'")
    if to is not None and to not in LIBRARIES:
        raise ValueError(f"to is {to!r}; expected one of {LIBRARIES}, or None")
    dimensions = [
        Dimension(
            name,
            _length(members, name),
            length,
            length + max(leads.get(name, [0])),
            strides.get(name, 1),
            name in crops,
        )
        for name, length in {**windows, **crops}.items()
    ]
    _check_fit(dimensions)
    numbers = {one.name: d for d, one in enumerate(dimensions)}
    for member in members:
        member.axes = tuple(numbers.get(name, -1) for name in member.names)
    inputs, targets = _parts(members, dimensions, leads)
    samples = Samples(members, dimensions, inputs + targets, _positions(at, dimensions), seed)
    dtypes = [members[p.source].dtype if dtype is None else np.dtype(dtype) for p in samples.parts]
    scales = [_scale(normalize, names, p, kind) for p, kind in zip(samples.parts, dtypes, strict=True)]
    arrange = partial(_arrange, names, tuple(p.source for p in inputs), tuple(p.source for p in targets))
    making = Making(
        samples=samples,
        plan=BlockPlan(samples, memory),
        count=samples.count,
        order=_no_order,
        batch_size=batch_size,
        drop_last=drop_last,
        memory=memory,
        # A window of blocks is in memory whole; samples from anywhere are to leave room for the next.
        portion_memory=memory if shuffle == "blocks" else memory // 4,
        dtypes=dtypes,
        scales=scales,
        arrange=partial(_finish, arrange, to, transform),
        accept=None if accept is None else partial(_ask, accept, arrange),
        on_error=on_error,
        ahead=ahead,
        allocate=allocate,
    )
    made = partial(Batches, shuffle=shuffle, rank=rank, world=world, epochs=epochs)
    return made(making) if mixing is None else _mixed(made, making, mixing)


def _mixed(made: Callable[[Making], Batches], making: Making, wanted: float) -> Batches:
    """Batches that mix the items as well as wanted, in the least memory that allows it."""
    best = made(making)
    if best._shuffle != "blocks" or making.plan.is_direct:
        return best
    if best.report.mixing < wanted:
        raise ValueError(
            f"mixing is {best.report.mixing:.3f} with {making.memory:,} bytes of memory; expected {wanted}, "
            "which takes more"
        )
    whole = sum(prod(member.shape) * member.item_size for member in making.samples.members)
    memory = min(making.memory // 2, 2 * whole)
    while memory:
        plan = BlockPlan(making.samples, memory)
        if plan.is_direct:
            break
        less = made(replace(making, plan=plan, memory=memory, portion_memory=memory))
        if less.report.mixing < wanted:
            break
        best, memory = less, memory // 2
    return best


def _no_order(epoch: int, blocks: Blocks) -> Order:
    raise AssertionError("batches have an order of their own")


def _named(sources: Any) -> tuple[list[str] | int | None, list[Source]]:
    """(the names of several sources, or their number, or None for a single one; the sources)."""
    if isinstance(sources, Mapping) and not isinstance(sources, Group):
        return [*sources], [*map(_source, sources.values())]
    if isinstance(sources, Group):
        raise ValueError(f"{sources!r} is a group; expected arrays, or group.batches(...)")
    if isinstance(sources, list | tuple):
        if not sources:
            raise ValueError("no sources; expected one or more")
        return len(sources), [*map(_source, sources)]
    return None, [_source(sources)]


def _source(source: Any) -> Source:
    if isinstance(source, Array):
        return source_of(source)
    return source if isinstance(source, Source) else view(source)


def _all_names(members: Sequence[SampledSource]) -> list[Name]:
    return [*dict.fromkeys(name for member in members for name in member.names)]


def _renamed(members: Sequence[SampledSource], given: Mapping[Name, Any]) -> dict[Name, Any]:
    """The values by names of dimensions; a number means that dimension of the first source.

    Raises
        ValueError: no source has a dimension of that name.
    """
    names, made = _all_names(members), dict[Name, Any]()
    if not isinstance(given, Mapping):
        raise TypeError(f"{given!r} names no dimensions; expected a mapping, such as {{{names[0]!r}: 2}}")
    for name, value in given.items():
        if name not in names and isinstance(name, int) and 0 <= name < len(members[0].names):
            name = members[0].names[name]
        if name not in names:
            raise ValueError(f"no source has a dimension {name!r}; expected one of {names}")
        made[name] = value
    return made


def _along(members: Sequence[SampledSource], given: Lengths | None, word: str) -> dict[Name, int]:
    made = {name: index(length) for name, length in _renamed(members, given or {}).items()}
    for name, length in made.items():
        if length < 1:
            raise ValueError(f"{word} is {length} along {name!r}; expected 1 or more")
    return made


def _length(members: Sequence[SampledSource], name: Name) -> int:
    """The length of a dimension, of all sources that have it."""
    found = {
        member.shape[axis]: member.source
        for member in members
        for axis, one in enumerate(member.names)
        if one == name
    }
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise ValueError(
            f"dimension {name!r} has {one} items in {first!r} and {other} in {second!r}; expected as many in "
            "all sources: select those that belong together"
        )
    return next(iter(found))


def _check_fit(dimensions: Sequence[Dimension]) -> None:
    for one in dimensions:
        if 0 < one.length < one.extent:
            raise ValueError(
                f"a sample has {one.extent} items along {one.name!r}, leads included; expected {one.length} "
                "or less, the length of the dimension"
            )


def _check_rank(rank: int, world: int) -> None:
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}; expected one from 0 to {world - 1}")


def _positions(at: npt.ArrayLike | None, dimensions: Sequence[Dimension]) -> Index | None:
    if at is None:
        return None
    made = np.asarray(at)
    if made.ndim == 1 and len(dimensions) == 1:
        made = made[:, None]
    if made.size == 0:
        made = made.reshape(0, len(dimensions)).astype(np.int64)
    if made.ndim != 2 or made.shape[1] != len(dimensions) or made.dtype.kind not in "iu":
        raise ValueError(
            f"at has shape {made.shape} and dtype {made.dtype}; expected whole numbers, one for each of "
            f"{[one.name for one in dimensions]} in each row"
        )
    made = made.astype(np.int64)
    for d, one in enumerate(dimensions):
        wrong = np.flatnonzero((made[:, d] < 0) | (made[:, d] + one.extent > one.length))
        if len(wrong):
            raise ValueError(
                f"sample {wrong[0]} begins at {made[wrong[0], d]} along {one.name!r}, and has {one.extent} "
                f"items; expected it within {one.length}"
            )
    return made


def _parts(
    members: Sequence[SampledSource], dimensions: Sequence[Dimension], leads: Mapping[Name, Sequence[int]]
) -> tuple[list[SampleArray], list[SampleArray]]:
    """The inputs of a sample, and its targets."""
    inputs, targets = [], []
    for number, member in enumerate(members):
        shape = tuple(
            length if d < 0 else dimensions[d].window
            for length, d in zip(member.shape, member.axes, strict=True)
        )
        axis = next((axis for axis, name in enumerate(member.names) if name in leads), None)
        inputs.append(SampleArray(number, shape, None, (SampleRun(0, 0, 0),)))
        if axis is not None:
            steps = leads[member.names[axis]]
            window = dimensions[member.axes[axis]].window
            begins = [0, *(n for n, (a, b) in enumerate(pairwise(steps), 1) if b != a + 1), len(steps)]
            runs = tuple(SampleRun(window - 1 + steps[a], b - a, a) for a, b in pairwise(begins))
            targets.append(SampleArray(number, (*shape[:axis], len(steps), *shape[axis + 1 :]), axis, runs))
    return inputs, targets


def _scale(normalize: Any, names: Any, part: SampleArray, dtype: np.dtype[Any]) -> tuple[Items, Items] | None:
    """The mean and deviation by which an array of samples is normalized."""
    if isinstance(normalize, Mapping):
        if not isinstance(names, list):
            said = f"normalize is for {[*normalize]}, and sources have no names"
            raise ValueError(f"{said}; expected a mean and a standard deviation, or a mapping of sources")
        if not {*normalize} <= {*names}:
            raise ValueError(f"normalize is for {[*normalize]}; expected names of the sources: {names}")
        normalize = normalize.get(names[part.source])
    if normalize is None:
        return None
    if dtype.kind not in "fc":
        raise ValueError(
            f"items of {dtype} are normalized to no whole numbers; expected dtype='f4', for example"
        )
    if not isinstance(normalize, Sequence | np.ndarray) or len(normalize) != 2:
        raise ValueError(f"normalize is {normalize!r}; expected a mean and a standard deviation")
    mean, deviation = (np.asarray(one, dtype) for one in normalize)
    for word, one in (("mean", mean), ("standard deviation", deviation)):
        # One that has more dimensions than a sample would differ from sample to sample of a batch.
        lengths = zip(reversed(one.shape), reversed(part.shape), strict=False)
        if one.ndim > len(part.shape) or any(length not in (1, whole) for length, whole in lengths):
            raise ValueError(
                f"the {word} of normalize has shape {one.shape}; expected one that broadcasts to a sample, "
                f"{part.shape}"
            )
    if not deviation.all():
        raise ValueError("a standard deviation is 0; expected another number")
    return mean, deviation


def _arrange(names: Any, inputs: Sequence[int], targets: Sequence[int], arrays: Sequence[Any]) -> Any:
    """The arrays as users get them: alone, in a tuple or by name; and with targets, a pair."""

    def one(sources: Sequence[int], some: Sequence[Any]) -> Any:
        if names is None:
            return some[0]
        if isinstance(names, int):
            return tuple(some)
        return {names[source]: array for source, array in zip(sources, some, strict=True)}

    made = one(inputs, arrays[: len(inputs)])
    return (made, one(targets, arrays[len(inputs) :])) if targets else made


def _finish(
    arrange: Callable[[Sequence[Any]], Any],
    to: str | None,
    transform: Callable[[Any], Any] | None,
    arrays: Sequence[Items],
) -> Any:
    made = arrange(arrays if to is None else [*map(_library(to), arrays)])
    return made if transform is None else transform(made)


def _library(name: str) -> Callable[[Items], Any]:
    try:
        library: Any = import_module("torch") if name == "torch" else import_module("jax.numpy")
    except ImportError as error:
        raise UnsupportedError(f"batches of {name} need {name}, which is not installed") from error
    made: Callable[[Items], Any] = library.from_dlpack
    return made


def _ask(
    accept: Callable[[Any], bool], arrange: Callable[[Sequence[Any]], Any], arrays: Sequence[Items]
) -> bool:
    return bool(accept(arrange(arrays)))


def group_batches(group: Group, names: Iterable[str] | None = None, **options: Any) -> Batches:
    """Batches of arrays of a group: of those with these names, or of all that have a sampled dimension.

    Coordinates are left out unless they are named.
    """
    if names is None:
        wanted = {*(options.get("sample") or {}), *(options.get("crop") or {})}
        chosen = {
            name: array
            for name, array in group.arrays()
            if wanted & {*(array.dims or ())} and array.dims != (name,)
        }
        if not chosen:
            raise ValueError(f"no array of {group!r} has a dimension of {sorted(map(str, wanted))}")
    else:
        found = {name: group[name] for name in names}
        chosen = {name: node for name, node in found.items() if isinstance(node, Array)}
        if wrong := [name for name in found if name not in chosen]:
            raise ValueError(f"{wrong[0]!r} is a group; expected names of arrays")
    return batches(chosen, **options)
