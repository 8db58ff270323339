"""Files converted to Zarr: their arrays as sources, read by boxes, and the job that stores them."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, islice
from math import prod
from typing import Any, NamedTuple, Self, TypeAlias
from weakref import finalize

import numpy as np

from zstore.base.boxes import Box, Items, Shape, inside, volume
from zstore.base.locks import Lock
from zstore.base.once import once
from zstore.engine.documents import Model, ancestors, publish_nodes, render_node
from zstore.engine.making import delete_node
from zstore.engine.schedulers import map_threads
from zstore.engine.walk import walk_nodes
from zstore.errors import (
    ChangedError,
    MetadataError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    UnsupportedError,
    ZstoreError,
)
from zstore.geo.pyramid.dataset import PlaceLike
from zstore.jobs.chunks import Location, SourceStore, StoredArray
from zstore.jobs.how import How
from zstore.jobs.plan import Estimate, Plan, Unit, current_part, expect_size, name_job
from zstore.jobs.record import BegunJob, begin
from zstore.jobs.runner import counter, units_at_once
from zstore.jobs.source import Made, Marks, ModelSource, Sources, Versions
from zstore.jobs.task import Task
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.grid import Grid, RegularGrid
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore

# Bytes of the windows by which files are read: enough for every thread, and little beside a machine's memory.
WINDOW_SIZE = 16 << 20
# Open files that wait for the next box: of a mosaic, those of some places and dates; of a series of more
# files, which is gone through, those that threads have. One of HDF5 takes 0.6 MiB, whatever is read of it.
IDLE_COUNT, SERIES_COUNT = 32, 8

# The files of a source: path, bytes, and when it was written last, in nanoseconds.
Version: TypeAlias = tuple[tuple[str, int, int], ...]


def find_version(files: Iterable[str]) -> Version:
    """The version of files on this machine, which changes when they are written; others have none."""
    versions = []
    for file in files:
        with suppress(OSError, ValueError):
            status = os.stat(file)  # noqa: PTH116 - what GDAL opens may be no path at all
            versions.append((file, status.st_size, status.st_mtime_ns))
    return tuple(versions)


def is_current(version: Version) -> bool:
    """Whether no file was written or removed since this version."""
    return find_version(file for file, _, _ in version) == version


def check_version(version: Version, path: str) -> None:
    """Check that no file was written or removed since this version.

    Raises
        ChangedError: they were, or are gone.
    """
    if not is_current(version):
        raise ChangedError("a file was written while it was read; expected it as it was", path=path)


class OpenFiles:
    """Files that stay open from one box to the next, each for one thread at a time.

    They are not sent to other processes, and a process that was forked opens its own: it would share their
    offsets. They close with `close`, or when nobody has this object any more, or when too many others have
    been used since, of whatever object.

    file_count  of the files that there are
    """

    _key: object | None = None

    def __init__(self, file_count: int = 1) -> None:
        self._count = file_count

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFiles, (self._count,)

    def _own_key(self) -> object:
        """The key of its idle files, of which there are none before it is asked for."""
        with _guard:
            if self._key is None:
                self._key = object()
                finalize(self, _forget, self._key)
            return self._key

    @contextmanager
    def open(self, opener: Callable[[str], AbstractContextManager[Any]], path: str) -> Iterator[Any]:
        """A context with the open file at a path; `opener` opens it, and converts errors of reading it."""
        own = (self._own_key(), path, os.getpid())
        most = IDLE_COUNT if self._count <= IDLE_COUNT else SERIES_COUNT
        with _guard:
            at = next((at for at, idle in enumerate(_idle) if idle[:3] == own), None)
            *_, stack, file = (ExitStack(), None) if at is None else _idle.pop(at)
        if at is None:
            file = stack.enter_context(opener(path))
        with stack:
            yield file
            kept = stack.pop_all()
        with _guard:
            _idle.append((*own, kept, file))
            surplus = _idle[:-most]
            del _idle[:-most]
        _close_all(surplus)
        while _forgotten:
            _close(_forgotten.pop())

    def close(self) -> None:
        """Close the files that nobody uses at the moment."""
        _close(self._key)


_guard = Lock()
# Files that nobody uses at the moment: whose they are, the path, the process, what closes it, and the file.
_idle = list[tuple[object, str, int, ExitStack, Any]]()
# Objects that nobody has any more, whose files the next use closes.
_forgotten = list[object]()


def _forget(key: object) -> None:
    """Close the idle files of an object that nobody has any more: at any moment, as garbage is collected."""
    if _guard.is_mine:
        _forgotten.append(key)
    else:
        _close(key)


def _close(key: object) -> None:
    """Close the idle files of one object."""
    with _guard:
        own = [idle for idle in _idle if idle[0] is key]
        _idle[:] = [idle for idle in _idle if idle[0] is not key]
    _close_all(own)


def _close_all(files: Iterable[tuple[object, str, int, ExitStack, Any]]) -> None:
    for *_, stack, _ in files:
        stack.close()


class FileArray(ModelSource):
    """An array that files hold, as a source.

    name      the path of the array
    path      of the file that messages name
    versions  of all files, by what each is called
    model     of the array of Zarr that it becomes, whose items it gives
    chunks    the chunk shape of the files
    span      the shape of the boxes that one file holds alone
    files     the files that are open
    """

    def __init__(
        self,
        name: str,
        path: str,
        versions: Mapping[str, Version],
        model: ArrayModel,
        chunks: Shape,
        span: Shape,
        files: OpenFiles,
    ) -> None:
        self.path, self.versions, self.span, self.files = path, versions, span, files
        self._name, self.model = name, model
        own = model.grid
        # Files of a series have their arrays' grids in common.
        self._grid = (
            own if isinstance(own, RegularGrid) and own.chunk_shape == chunks else RegularGrid(chunks)
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def grid(self) -> Grid:
        return self._grid

    @property
    def url(self) -> str:
        return self.path

    def close(self) -> None:
        self.files.close()

    def version(self) -> str:
        now = find_versions(self.versions)
        return name_job(sorted(now.items())) if all(now.values()) else ""

    def marks(self) -> Marks:
        """A number for each chunk that changes with the versions of the files that hold it; never 0."""
        return np.full(self.counts, mark_of(self.version()), np.uint64)

    def covered(self, box: Box) -> Iterator[Box]:
        """The boxes within a box that files hold; all else has the fill value."""
        yield box


def find_versions(versions: Mapping[str, Version]) -> dict[str, Version]:
    """The versions of the same files as they are now."""
    return {path: find_version(file for file, *_ in version) for path, version in versions.items()}


def mark_of(content: Any) -> np.uint64:
    """A number that changes with some content of JSON; never 0."""
    return np.uint64(int(name_job(content), 16) | 1)


class Written(NamedTuple):
    """The result of a unit.

    empty   for each chunk of the unit, whether it was left out, as it holds the fill value only
    filled  for each array of the unit, whether it has no nodata, and cells of its fill value there
    """

    empty: list[bool]
    filled: list[bool]


class WindowGrid(NamedTuple):
    """Arrays that are written window by window together, as the same files hold them.

    lengths, counts  the items of a window along each axis, and the number of windows
    """

    names: tuple[str, ...]
    lengths: Shape
    counts: Shape
    shape: Shape

    @classmethod
    def of(cls, names: tuple[str, ...], sources: Sequence[FileArray], target: StoredArray) -> WindowGrid:
        """Windows of whole stored objects and, as far as memory allows, of whole chunks of the files."""
        source, item = sources[0], max(array.item_size for array in sources)
        own = source.grid.chunk_shape
        return cls.cut(names, target.shape, target.grid.chunk_shape, own, source.span, item)

    @classmethod
    def cut(
        cls, names: tuple[str, ...], shape: Shape, unit: Shape, own: Shape, span: Shape, item: int
    ) -> WindowGrid:
        """Windows of whole units of the target and, as far as memory allows, of whole chunks of the source.

        own   the chunk shape of the source
        span  the shape of the boxes of the source that are best read one by one
        item  bytes of an item
        """
        steps = zip(unit, own, shape, strict=True)
        sides = [min(-(-chunk // step) * step, -(-length // step) * step) for step, chunk, length in steps]
        if prod(sides) * item > WINDOW_SIZE:
            sides = list(unit)
        for axis in reversed(range(len(shape))):
            room = WINDOW_SIZE // max(prod(sides) * item, 1)
            longest = max(min(shape[axis], span[axis]), 1)
            sides[axis] = min(sides[axis] * max(room, 1), longest)
            sides[axis] = -(-sides[axis] // unit[axis]) * unit[axis]
        counts = (-(-length // max(1, side)) for length, side in zip(shape, sides, strict=True))
        return cls(names, tuple(sides), tuple(counts), shape)

    def window(self, number: int) -> Box:
        """The items of a window."""
        places = np.unravel_index(number, self.counts) if self.counts else ()
        sides = zip(places, self.lengths, self.shape, strict=True)
        return tuple(slice(int(p) * n, min(int(p) * n + n, length)) for p, n, length in sides)


@dataclass(frozen=True)
class FileWindows(Plan[Written]):
    """The plan of a conversion from files; units are (number of a group of arrays, number of a window).

    bare  the arrays without a nodata
    only  the units that are made again, of a target that has all; None: all are made
    """

    groups: tuple[WindowGrid, ...]
    sources: Mapping[str, FileArray]
    arrays: Mapping[str, StoredArray]
    bare: frozenset[str] = frozenset()
    only: frozenset[Unit] | None = None

    @classmethod
    def of(
        cls,
        groups: Iterable[tuple[str, ...]],
        sources: Mapping[str, FileArray],
        arrays: Mapping[str, StoredArray],
        bare: Iterable[str] = (),
    ) -> FileWindows:
        """The plan for arrays in groups, each of which the same files hold, in chunks of one shape."""
        windows = [WindowGrid.of(names, [sources[n] for n in names], arrays[names[0]]) for names in groups]
        return cls(tuple(windows), sources, arrays, frozenset(bare))

    def of_changed(self, changed: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]]) -> FileWindows:
        """The plan of the windows in which chunks of the files have changed."""
        only = set[Unit]()
        for unit in self._all_units():
            names, window = self.boxes(unit)
            for name in names:
                steps = zip(window, self.sources[name].grid.chunk_shape, strict=True)
                sides = tuple(slice(side.start // n, -(-side.stop // n)) for side, n in steps)
                if changed[name][sides].any():
                    only.add(unit)
        return replace(self, only=frozenset(only))

    def _all_units(self) -> Iterator[Unit]:
        for at, group in enumerate(self.groups):
            for number in range(prod(group.counts)):
                yield at, number

    def units(self) -> Iterator[Unit]:
        for unit in self._all_units():
            if self.only is not None:
                if unit in self.only:
                    yield unit
                continue
            (name, *_), window = self.boxes(unit)
            if next(self.sources[name].covered(window), None) is not None:
                yield unit

    def boxes(self, unit: Unit) -> tuple[tuple[str, ...], Box]:
        """(the names of the arrays of a unit, the window in each of them)."""
        at, number = unit
        return self.groups[at].names, self.groups[at].window(number)

    def make(self, unit: Unit) -> Written:
        """Write a window."""
        names, window = self.boxes(unit)
        empty, filled = list[bool](), list[bool]()
        for name in names:
            source, array = self.sources[name], self.arrays[name]
            items = source.read(window)
            is_bare = name in self.bare
            filled.append(is_bare and self._has_fill(source, window, items, array.fill_value))
            flags = array.write_filled(window, items)
            if self.only is not None:
                for cell in compress(array.cells(window), flags):
                    array.store.delete(array.key(cell))
            empty += flags
        return Written(empty, filled)

    def _has_fill(self, source: FileArray, window: Box, items: Items, fill: Any) -> bool:
        """Whether files hold the fill value in a window."""
        return any((items[inside(box, window)] == fill).any() for box in source.covered(window))

    def count(self, unit: Unit) -> int:
        """The number of items of files that a unit reads."""
        return sum(count for _, count in self._counts(unit))

    def _read_size(self, unit: Unit) -> int:
        return sum(count * self.arrays[name].item_size for name, count in self._counts(unit))

    def _counts(self, unit: Unit) -> Iterator[tuple[str, int]]:
        names, window = self.boxes(unit)
        for name in names:
            yield name, sum(volume(box) for box in self.sources[name].covered(window))

    def holds(self, unit: Unit, result: Written) -> bool:
        """Whether all chunks of a unit are stored, but for empty ones."""
        names, window = self.boxes(unit)
        empty = iter(result.empty)
        arrays = [self.arrays[name] for name in names]
        return all(array.is_written(window, [*islice(empty, array.count(window))]) for array in arrays)

    def pack(self, result: Written) -> bytes:
        flags = [*result.empty, *result.filled]
        return np.packbits(flags).tobytes() if any(flags) else b""

    def unpack(self, unit: Unit, data: bytes) -> Written:
        names, window = self.boxes(unit)
        count = sum(self.arrays[name].count(window) for name in names)
        size = -(-(count + len(names)) // 8)
        if len(data) not in (0, size):
            raise ValueError(f"{count + len(names)} flags take {size} bytes; got {len(data)}")
        bits = np.unpackbits(np.frombuffer(data or bytes(size), np.uint8), count=count + len(names))
        flags = bits.astype(bool).tolist()
        return Written(flags[:count], flags[count:])

    def unit_size(self) -> int:
        """The most bytes of memory for a unit: items as files have them, and as the array does."""
        return 2 * max(
            (
                prod(group.lengths) * self.arrays[name].item_size
                for group in self.groups
                for name in group.names
            ),
            default=0,
        )

    def estimate(self, at_once: int) -> Estimate:
        """The estimate of the conversion, with this number of units at a time."""
        arrays = self.arrays
        count = sum(1 for _ in self.units())
        return Estimate(
            unit_count=count,
            read_size=sum(map(self._read_size, self.units())),
            write_size=sum(prod(array.shape) * array.item_size for array in arrays.values()),
            request_count=sum(prod(array.counts) for array in arrays.values()),
            memory_size=min(at_once, count) * self.unit_size(),
        )


def held_at_once(how: How, unit_size: int) -> int:
    """The number of units of `unit_size` bytes that one machine holds at a time.

    Raises
        MetadataError: memory holds no unit.
    """
    most = how.at_once(unit_size)
    return 1 if how.executor is not None else most or units_at_once()


class Renewed(NamedTuple):
    """The part of a finished target that is made again.

    made     the fingerprint of the target
    changed  whether each chunk of the files of an array is to be read again, by its name
    """

    made: Made
    changed: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]]

    def boxes(self, name: str, array: FileArray) -> list[Box]:
        """The boxes of an array that have changed, and are read again."""
        return [array.box(tuple(cell)) for cell in np.argwhere(self.changed[name]).tolist()]


class FileJob(Task[Group]):
    """A conversion of files into the arrays of a new group, or of an existing one (`held`).

    A kind of files says which arrays it makes (`add_array`) and which other nodes (`draft`, `complete`).

    shares    how often the items are counted as progress: once more for the levels of a pyramid
    replaces  whether `overwrite` replaces arrays of an existing group

    Raises
        MetadataError: the group that is there has another format.
    """

    shares = 1
    replaces = False
    may_hold_others = True

    def __init__(
        self, target: Group | PlaceLike, zarr_format: ZarrFormat, versions: Mapping[str, Version], how: How
    ) -> None:
        self.held = target if isinstance(target, Group) else None
        if self.held is not None and current_part() is not None:
            raise UnsupportedError(
                "files cannot be put into a group in parts; expected the place of a new one"
            )
        super().__init__(Location.open(target, None, None, read_only=False), how)
        if self.held is not None and self.held.zarr_format != zarr_format:
            message = f"zarr_format is {zarr_format}; expected the target group's {self.held.zarr_format}"
            raise MetadataError(message, path=self.there.url())
        self.zarr_format: ZarrFormat = zarr_format
        self.file_versions = self.source_files = versions
        self.nodes = NewNodes(*self.there, zarr_format)
        self.files = OpenFiles()
        self.array_models: dict[str, tuple[str, ArrayModel]] = {}
        self.file_arrays: dict[str, FileArray] = {}
        self.filled = set[str]()
        # What is shown in place of arrays that no array of Zarr can be, where a file is opened.
        self.unreadable: dict[str, ZstoreError] = {}
        self.renewed: Renewed | None = None

    @property
    def existing(self) -> Group | None:
        """The group that the nodes are put into; None for a new one."""
        return self.held if self.renewed is None else self.result()

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The paths that are to be free in an existing group."""

    @abstractmethod
    def windows(self) -> FileWindows:
        """The plan for the arrays that were added."""

    @abstractmethod
    def draft(self) -> None:
        """Add the other nodes to the new ones."""

    @abstractmethod
    def complete(self, root: Group) -> None:
        """Bring the rest of the group in line with its new nodes."""

    def make_model(self, path: str, plan: Mapping[str, Any]) -> ArrayModel:
        """The model of an array at a path, by the arguments of `create_array`."""
        model = self.nodes.add_array(path, **plan).model
        render_node(model)  # refuses what its document cannot say, before anything is read
        return model

    def add_model(self, name: str, path: str, model: ArrayModel) -> None:
        """Add an array at a path by its model; units are numbered in the order of the arrays."""
        self.nodes.models[path] = model
        self.array_models[name] = path, model

    @once
    def arrays(self) -> dict[str, StoredArray]:
        """The arrays that were added, to be written."""
        store, key = self.there.store, self.there.key
        return {
            name: StoredArray(store, key(path), model) for name, (path, model) in self.array_models.items()
        }

    def describe(self) -> dict[str, Any]:
        documents = [[name, render_node(array.model)] for name, array in self.arrays.items()]
        return {**self.call(), "arrays": None if self.renewed else name_job(documents)}

    def sources(self) -> Sources:
        return Sources(
            lambda: _as_texts(find_versions(self.file_versions)), str, _as_texts(self.file_versions)
        )

    @once
    def plan_of_windows(self) -> FileWindows:
        """The plan of all windows, or of those with items that have changed."""
        plan = self.windows()
        return plan if self.renewed is None else plan.of_changed(self.renewed.changed)

    def estimate(self) -> Estimate:
        plan = self.plan_of_windows
        about = {"sources": self.file_versions, "levels_counted": self.shares == 1}
        return replace(plan.estimate(held_at_once(self.how, plan.unit_size())), about=about)

    def check_room(self) -> None:
        plan = self.plan_of_windows
        self.how.at_once(plan.unit_size())
        if self.renewed is not None:
            return  # what is replaced has had room

        def expect() -> float:
            held = MemoryStore()
            arrays = {name: array.elsewhere(held) for name, array in self.arrays.items()}
            return expect_size(replace(plan, arrays=arrays), held)

        size = sum(prod(array.shape) * array.item_size for array in self.arrays.values())
        self.there.check_room(size, expect, "chunks")

    def begin(self, sources: Sources) -> BegunJob:
        if self.renewed is not None:
            there = self.there
            made, changed = self.renewed
            replaces = self.former is not None
            job = begin(*there, self.work, self.describe(), resume=True, replace=replaces, sources=sources)
            # What is being made again is not known: 0 is the mark of no file.
            marks = {name: np.where(changed[name], 0, now) for name, now in self._marks().items()}
            made.meanwhile(marks).put(*there)
            return job
        if self.held is not None:
            return self._begin_in(self.held, sources)
        return super().begin(sources)

    def _begin_in(self, held: Group, sources: Sources) -> BegunJob:
        """As `begin`, in an existing group; of its nodes, only those that are replaced are removed."""
        store, base, how = *self.there, self.how
        taken = [name for name in self.names if name in held]
        if taken and how.resume and self.former is not None:
            taken = []
        if taken and not (how.overwrite and self.replaces):
            expected = "expected overwrite" if self.replaces else "expected a group without them"
            raise StoreError(f"{', '.join(taken)} are there already; {expected}", path=held.name)
        gone = self.names if self.replaces else []
        job = begin(
            store,
            base,
            self.work,
            self.describe(),
            resume=how.resume,
            replace=how.overwrite and not how.resume,
            is_ready=not (how.overwrite and gone),
            sources=sources,
        )
        if not job.is_ready:
            if not how.overwrite and (taken := [path for path in gone if path in held]):
                expected = "expected overwrite, as nobody can tell whether they are those to be replaced"
                raise StoreError(f"{', '.join(taken)} are there already; {expected}", path=held.name)
            paths = [join_key(base, path) for path in gone]
            job.clear(lambda: map_threads(partial(delete_node, store), paths))
        # The topmost nodes that the group does not have.
        tops = [[*ancestors(path), path][1:] for path in self.nodes.models]
        job.hold({next((at for at in above if at not in held), above[-1]) for above in tops})
        return job

    def make(self, job: BegunJob) -> None:
        plan, how = self.plan_of_windows, self.how
        tick = counter(self.shares * self.item_count, how.progress)

        def take(unit: Unit, written: Written) -> None:
            self.filled.update(compress(plan.boxes(unit)[0], written.filled))
            tick(plan.count(unit))

        with closing(self.files), job.runner(how.executor, how.at_once(plan.unit_size())) as runner:
            runner.run(plan, "windows", take)

    @once
    def item_count(self) -> int:
        """The number of items that are read."""
        plan = self.plan_of_windows
        return sum(map(plan.count, plan.units()))

    def models(self) -> dict[str, Model]:
        return self.nodes.models

    def publish(self) -> None:
        self.draft()
        publish_nodes(*self.there, self.models(), replaces=self.renewed is not None)
        for array in self.arrays.values() if self.renewed is not None else ():
            array.remove_outside()
        self.complete(self.result())

    def result(self) -> Group:
        return open_group(*self.there, mode="r+")

    def versions(self) -> Versions:
        """The versions of the arrays; of a new group, of all that it holds."""
        at = self.there
        paths = [at.below(array.path) for array in self.arrays.values()]
        if self.held is None:
            with suppress(NotFoundError):
                paths = [at.below(path) for path, model in walk_nodes(*at) if isinstance(model, ArrayModel)]
        return at.versions(paths)

    def fingerprint(self, sources: Sources, versions: Versions) -> Made:
        return Made.of(self.call(), sources, versions, self._frames(), self._marks())

    def _frames(self) -> dict[str, str]:
        """Each array's documents without shape and attributes; if they change, all of it is made again."""
        return {name: array.frame() for name, array in self.arrays.items()}

    def _marks(self) -> dict[str, Marks]:
        """A number for each chunk of the files of each array, which changes with their versions."""
        return {name: array.marks() for name, array in self.file_arrays.items()}

    @once
    def left(self) -> Made | None:
        made = Made.read(*self.there, self.call()) if self.keeps else None
        if made is None or made.frames != self._frames():
            return None
        if self.former is not None:
            # Of unfinished work, only such a renewal leaves a fingerprint that tells of chunks.
            return made if self.former.plan == {**self.call(), "arrays": None} else None
        # Files that have none in common with those of before are another source.
        is_known = not made.sources or any(name_job(name) in made.sources for name in self.file_versions)
        return made if is_known else None

    def refreshed(self, made: Made, sources: Sources) -> FileJob:
        changed = {name: made.changed(name, marks) for name, marks in self._marks().items()}
        known = {name: mask for name, mask in changed.items() if mask is not None}
        # Other arrays of an existing group would not be brought up to date.
        if self.held is not None or len(known) < len(changed):
            made.check_current(sources)
        self.renewed = Renewed(made, known)
        return self


class FileStore(SourceStore):
    """A file as the hierarchy that its conversion makes; nothing is converted before it is read."""

    @classmethod
    def of_job(cls, job: FileJob, url: str) -> Self:
        """The store of the nodes that a conversion into memory would make."""
        job.draft()
        sources: Mapping[str, FileArray] = job.file_arrays
        if any(name != path for name, (path, _) in job.array_models.items()):
            sources = {job.array_models[name][0]: one for name, one in sources.items()}
        stored = job.there.store
        assert isinstance(stored, MemoryStore)
        # Of thousands of files, most have nothing but models.
        documents = None if next(stored.list(), None) is None else stored
        return cls(url, documents, sources, {**job.models(), **job.unreadable})

    def check_writable(self, key: str) -> None:
        path = self.url.partition("://")[2]
        said = f"a file is there, which is read only; `zstore convert {path} NAME.zarr` makes a Zarr of it"
        raise ReadOnlyError(said, path=self.url)


def file_in(url: str, storage_options: Mapping[str, Any] | None) -> str:
    """The path in the URL of a file that opens as a store.

    Raises
        StoreError: storage options, of which such a store has none; no path.
    """
    scheme, _, path = url.partition("://")
    if storage_options:
        raise StoreError(f"{scheme} takes no storage options, got {sorted(storage_options)}", path=url)
    if not path:
        raise StoreError(f"expected {scheme}://PATH", path=url)
    return path


def _as_texts(versions: Mapping[str, Version]) -> Mapping[str, str]:
    return {path: str(version) if version else "?" for path, version in versions.items()}
