"""Files made Zarr: their arrays as sources, read by boxes, and the job that stores them in a group."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zstore.base.locks import Lock
from zstore.engine.documents import ancestors, place, render_node
from zstore.engine.intents import read_intent
from zstore.engine.making import delete_node
from zstore.engine.schedulers import map_threads
from zstore.engine.walk import walk_nodes
from zstore.errors import ChangedError, MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.geo.pyramid.boxes import Box, Items, Shape, inside, volume, whole
from zstore.geo.pyramid.dataset import PlaceLike
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.grid import Grid, RegularGrid
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.open import open_group, rehearse
from zstore.plugin.jobs import (
    BegunJob,
    Estimate,
    How,
    Location,
    Made,
    Plan,
    Source,
    Sources,
    StoredArray,
    Unit,
    Versions,
    begin,
    begin_new,
    check_outside,
    check_room,
    counter,
    current_part,
    expect_size,
    is_made,
    name_job,
    node_versions,
    units_at_once,
)
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

# Bytes of the windows by which files are read: enough for every thread, and little beside a machine's memory.
WINDOW_SIZE = 16 << 20
# Open files that wait for the next box.
IDLE_COUNT = 8

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


def check_version(version: Version, path: str) -> None:
    """Check that no file was written or removed since this version.

    Raises
        ChangedError: they were, or are gone.
    """
    if find_version(file for file, _, _ in version) != version:
        raise ChangedError("a file was written while it was read; expected it as it was", path=path)


class OpenFiles:
    """Files that stay open from one box to the next, each for one thread at a time.

    They are not sent to other processes, and close with whoever reads them.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._idle = list[tuple[str, ExitStack, Any]]()

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFiles, ()

    @contextmanager
    def open(self, opener: Callable[[str], AbstractContextManager[Any]], path: str) -> Iterator[Any]:
        """The file at a path, opened before or by `opener`, which also converts errors of reading it."""
        with self._guard:
            at = next((at for at, (name, *_) in enumerate(self._idle) if name == path), None)
            _, stack, file = (path, ExitStack(), None) if at is None else self._idle.pop(at)
        if at is None:
            file = stack.enter_context(opener(path))
        with stack:
            yield file
            kept = stack.pop_all()
        with self._guard:
            self._idle.append((path, kept, file))
            surplus = self._idle[:-IDLE_COUNT]
            del self._idle[:-IDLE_COUNT]
        for _, other, _ in surplus:
            other.close()

    def close(self) -> None:
        """Close the files that wait."""
        with self._guard:
            idle, self._idle = self._idle, []
        for _, stack, _ in idle:
            stack.close()


class FileArray(Source):
    """An array that files hold, as a source.

    path        of the file that messages name
    versions    of all files, by what each is called
    chunks      the chunk shape of the files
    span        the shape of the boxes that one file holds alone
    files       the files that are open
    """

    def __init__(
        self,
        path: str,
        versions: Mapping[str, Version],
        shape: Shape,
        chunks: Shape,
        span: Shape,
        files: OpenFiles,
    ) -> None:
        self.path, self.versions, self.span, self.files = path, versions, span, files
        self._shape, self._grid = shape, RegularGrid(chunks)

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def grid(self) -> Grid:
        return self._grid

    @property
    def url(self) -> str:
        return self.path

    def version(self) -> str:
        now = find_versions(self.versions)
        return name_job(sorted(now.items())) if all(now.values()) else ""

    def covered(self, box: Box) -> Iterator[Box]:
        """The boxes within a box that files hold; all else has the fill value."""
        yield box


def find_versions(versions: Mapping[str, Version]) -> dict[str, Version]:
    """The versions of the same files as they are now."""
    return {path: find_version(file for file, *_ in version) for path, version in versions.items()}


class Written(NamedTuple):
    """The result of a unit.

    empty   for each chunk of the unit, whether it was left out, as it holds the fill value only
    filled  the arrays without a nodata that have cells of their fill value there
    """

    empty: list[bool]
    filled: list[str]


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
        source, unit, shape = sources[0], target.grid.chunk_shape, target.shape
        item = max(array.item_size for array in sources)
        steps = zip(unit, source.grid.chunk_shape, shape, strict=True)
        sides = [min(-(-own // step) * step, -(-length // step) * step) for step, own, length in steps]
        if prod(sides) * item > WINDOW_SIZE:
            sides = list(unit)
        for axis in reversed(range(len(shape))):
            room = WINDOW_SIZE // max(prod(sides) * item, 1)
            longest = max(min(shape[axis], source.span[axis]), 1)
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
    """

    groups: tuple[WindowGrid, ...]
    sources: Mapping[str, FileArray]
    arrays: Mapping[str, StoredArray]
    bare: frozenset[str] = frozenset()

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

    def units(self) -> Iterator[Unit]:
        for at, group in enumerate(self.groups):
            for number in range(prod(group.counts)):
                if next(self.sources[group.names[0]].covered(group.window(number)), None) is not None:
                    yield at, number

    def _boxes(self, unit: Unit) -> tuple[tuple[str, ...], Box]:
        """(the names of the arrays of a unit, the window in each of them)."""
        at, number = unit
        return self.groups[at].names, self.groups[at].window(number)

    def make(self, unit: Unit) -> Written:
        """Write a window."""
        names, window = self._boxes(unit)
        empty, filled = list[bool](), list[str]()
        for name in names:
            source, array = self.sources[name], self.arrays[name]
            items = source.read(window)
            if name in self.bare and self._has_fill(source, window, items, array.fill_value):
                filled.append(name)
            empty += array.write_filled(window, items)
        return Written(empty, sorted(filled))

    def _has_fill(self, source: FileArray, window: Box, items: Items, fill: Any) -> bool:
        """Whether files hold the fill value in a window."""
        return any((items[inside(box, window)] == fill).any() for box in source.covered(window))

    def count(self, unit: Unit) -> int:
        """The number of items of files that a unit reads."""
        names, window = self._boxes(unit)
        return sum(volume(box) for name in names for box in self.sources[name].covered(window))

    def holds(self, unit: Unit, result: Written) -> bool:
        """Whether all chunks of a unit are stored, but for empty ones."""
        names, window = self._boxes(unit)
        empty = iter(result.empty)
        arrays = [self.arrays[name] for name in names]
        return all(array.is_written(window, [*islice(empty, array.count(window))]) for array in arrays)

    def pack(self, result: Written) -> bytes:
        names = json.dumps(result.filled).encode() if result.filled else b""
        return np.packbits(result.empty).tobytes() + names if names or any(result.empty) else b""

    def unpack(self, unit: Unit, data: bytes) -> Written:
        names, window = self._boxes(unit)
        count = sum(self.arrays[name].count(window) for name in names)
        size = -(-count // 8)
        if not data:
            return Written([False] * count, [])
        if len(data) < size:
            raise ValueError(f"{count} flags take {size} bytes; expected no fewer than them, got {len(data)}")
        flags = np.unpackbits(np.frombuffer(data, np.uint8, size), count=count)
        filled = json.loads(data[size:] or "[]")
        if not isinstance(filled, list) or not self.bare.issuperset(map(str, filled)):
            raise ValueError(f"no names of arrays: {filled!r:.100}")
        return Written(flags.astype(bool).tolist(), filled)

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

    def item_counts(self) -> Mapping[str, int]:
        """The number of items that files hold of each array."""
        return {
            name: sum(volume(box) for box in source.covered(whole(source.shape)))
            for name, source in self.sources.items()
        }

    def estimate(self, at_once: int) -> Estimate:
        """The estimate of the conversion, with this number of units at a time."""
        arrays = self.arrays
        return Estimate(
            unit_count=sum(1 for _ in self.units()),
            read_size=sum(count * arrays[name].item_size for name, count in self.item_counts().items()),
            write_size=sum(prod(array.shape) * array.item_size for array in arrays.values()),
            request_count=sum(prod(array.counts) for array in arrays.values()),
            memory_size=at_once * self.unit_size(),
        )


class FileJob:
    """A conversion of files into the arrays of a new group, or of an existing one (`held`).

    Nothing is written before `carry_out`. A kind of files says which arrays and groups it makes (`add_array`,
    `draft`), and what is left to do when they are stored (`complete`).

    Raises
        MetadataError: the group that is there has another format.
    """

    # The name among jobs; how often the items are counted as progress; whether `overwrite` replaces arrays of
    # an existing group.
    work: str
    shares = 1
    replaces = False

    def __init__(
        self, target: Group | PlaceLike, zarr_format: ZarrFormat, versions: Mapping[str, Version], how: How
    ) -> None:
        self.how = how
        self.held = target if isinstance(target, Group) else None
        if self.held is not None and current_part() is not None:
            raise UnsupportedError(
                "files cannot be put into a group in parts; expected the place of a new one"
            )
        if isinstance(target, Group):
            self.store, self.base, known = target.store, target.path, target.zarr_format
        else:
            self.store, self.base, known = open_store(target), "", zarr_format
        self.store = how.opened(self.store)
        self.where, self.zarr_format = place(self.store, self.base), zarr_format
        if known != zarr_format:
            message = f"zarr_format is {zarr_format}; expected the target group's {known}"
            raise MetadataError(message, path=self.where)
        self.versions = versions
        self.nodes = NewNodes(self.store, self.base, zarr_format)
        self.files = OpenFiles()
        self.arrays: dict[str, StoredArray] = {}
        self.sources: dict[str, FileArray] = {}
        self._paths = list[str]()

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The paths that are to be free in an existing group."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The files and arguments that tell the conversion from others."""

    @abstractmethod
    def plan(self) -> FileWindows:
        """The plan for the arrays that were added."""

    @abstractmethod
    def draft(self) -> None:
        """Add the other nodes to the new ones."""

    @abstractmethod
    def complete(self, root: Group, filled: Iterable[str]) -> Group:
        """The group, with all that is made of the new nodes; `filled` are arrays as `Written` names them."""

    def add_array(self, name: str, path: str, plan: Mapping[str, Any]) -> ArrayModel:
        """Add an array at a path, by the arguments of `create_array`; returns its model."""
        rehearse(self.zarr_format, plan)
        model = self.nodes.add_array(path, **plan).model
        self._paths.append(path)
        self.arrays[name] = StoredArray(self.store, join_key(self.base, path), model)
        return model

    def carry_out(self) -> Group:
        """Write the items, then the documents; returns the resulting group."""
        plan, how, said = self.plan(), self.how, self.describe()
        about = {"sources": self.versions, "levels_counted": self.shares == 1}
        how.stop_if_dry(lambda: replace(plan.estimate(1 if how.executor else units_at_once()), about=about))
        if self._is_made(said):
            return open_group(self.store, self.base, mode="r+")
        self._check_fits(plan)
        most = how.at_once(plan.unit_size())
        job = self._begin({**said, "arrays": self._name_arrays()})
        tick, filled = counter(self.shares * sum(plan.item_counts().values()), how.progress), set[str]()

        def take(unit: Unit, written: Written) -> None:
            filled.update(written.filled)
            tick(plan.count(unit))

        self.draft()
        with closing(self.files), job.runner(how.executor, most) as runner:
            runner.run(plan, "windows", take)
        job.check()
        self.nodes.publish()
        root = self.complete(open_group(self.store, self.base, mode="r+"), sorted(filled))
        if self._keeps:
            job.keep(Made.of(said, self._sources, self._find_target(), {"": self._name_arrays()}))
        job.end()
        return root

    def _begin(self, said: Mapping[str, Any]) -> BegunJob:
        """Record that the job begins or goes on, and remove nodes that are replaced.

        Raises
            StoreError: something is there already, or unfinished work (unless `overwrite`); or what would be
                replaced holds one of the files that are read.
            MetadataError, ChangedError: `resume`, and what was interrupted there is something else, or a file
                was written since.
        """
        store, base, held, how = self.store, self.base, self.held, self.how
        if held is None:
            if how.overwrite:
                check_outside(self.versions, store, base, self.work)
            job = begin_new(
                store,
                base,
                self.zarr_format,
                self.work,
                said,
                overwrite=how.overwrite,
                resume=how.resume,
                may_hold_others=True,
            )
        else:
            job = self._begin_in(held, said)
            job.hold({self._top(held, path) for path in self._paths})
        if job.is_resumed:
            self.nodes.check_own()
        job.watch(self._sources)
        return job

    def _begin_in(self, held: Group, said: Mapping[str, Any]) -> BegunJob:
        """As `_begin`, in an existing group; of its nodes, only those that are replaced are removed."""
        store, base, how = self.store, self.base, self.how
        taken = [name for name in self.names if name in held]
        if taken and how.resume and read_intent(store, base) is not None:
            taken = []
        if taken and not (how.overwrite and self.replaces):
            expected = "expected overwrite" if self.replaces else "expected a group without them"
            raise StoreError(f"{', '.join(taken)} are there already; {expected}", path=self.where)
        gone = self.names if self.replaces else []
        job = begin(
            store,
            base,
            self.work,
            said,
            name=name_job(said),
            resume=how.resume,
            replace=how.overwrite and not how.resume,
            is_ready=not (how.overwrite and gone),
        )
        if not job.is_ready:
            if not how.overwrite and (taken := [path for path in gone if path in held]):
                expected = "expected overwrite, as nobody can tell whether they are those to be replaced"
                raise StoreError(f"{', '.join(taken)} are there already; {expected}", path=self.where)
            paths = [join_key(base, path) for path in gone]
            job.clear(lambda: map_threads(partial(delete_node, store), paths))
        return job

    def _top(self, held: Group, path: str) -> str:
        """The topmost node on the way to a path that the existing group does not have."""
        return next((at for at in [*ancestors(path)][1:] if at not in held), path)

    def _name_arrays(self) -> str:
        """A name for the arrays, which is the same for the same documents."""
        return name_job([[name, render_node(array.model)] for name, array in self.arrays.items()])

    @property
    def _sources(self) -> Sources:
        return Sources(lambda: _as_texts(find_versions(self.versions)), str, _as_texts(self.versions))

    @property
    def _keeps(self) -> bool:
        return self.how.resume and current_part() is None

    def _is_made(self, said: Any) -> bool:
        """Whether the same call with `resume` has made all of it, of the files as they are.

        Raises
            ChangedError: a file, or what was made, was written to since.
        """
        if not self._keeps or read_intent(self.store, self.base) is not None:
            return False
        frames = {"": self._name_arrays()}
        return is_made(self.store, self.base, said, self._sources, self._find_target, frames)

    def _find_target(self) -> Versions:
        """The versions of the arrays; of a new group, of all that it holds."""
        at = Location(self.store, self.base)
        paths = [at.below(array.path) for array in self.arrays.values()]
        if self.held is None:
            with suppress(NotFoundError):
                paths = [at.below(path) for path, model in walk_nodes(*at) if isinstance(model, ArrayModel)]
        return node_versions(at, paths)

    def _check_fits(self, plan: FileWindows) -> None:
        """Refuse a disk that is too full for the arrays.

        Raises
            StoreError: it is.
        """

        def expect() -> float:
            held = MemoryStore()
            arrays = {name: array.elsewhere(held) for name, array in self.arrays.items()}
            return expect_size(replace(plan, arrays=arrays), held)

        size = sum(prod(array.shape) * array.item_size for array in self.arrays.values())
        check_room(self.store, self.base, size, expect, "chunks")


def _as_texts(versions: Mapping[str, Version]) -> Mapping[str, str]:
    return {path: str(version) if version else "?" for path, version in versions.items()}
