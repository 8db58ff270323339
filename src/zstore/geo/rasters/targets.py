"""Conversions from files: the group that they write to, new or existing, and the files' versions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zstore.engine.documents import ancestors, place, render_node
from zstore.engine.intents import read_intent
from zstore.engine.making import delete_node
from zstore.engine.schedulers import map_threads
from zstore.engine.walk import walk_nodes
from zstore.errors import ChangedError, MetadataError, NotFoundError, StoreError, UnsupportedError
from zstore.geo.pyramid.boxes import Box, Items, lengths
from zstore.geo.pyramid.dataset import PlaceLike
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.open import rehearse
from zstore.plugin.jobs import (
    BegunJob,
    How,
    Location,
    Made,
    Plan,
    Sources,
    StoredArray,
    Unit,
    Versions,
    begin,
    begin_new,
    check_outside,
    check_room,
    current_part,
    expect_size,
    is_made,
    name_job,
    node_versions,
)
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

# The files of a source: path, bytes, and when it was written last, in nanoseconds.
Version: TypeAlias = tuple[tuple[str, int, int], ...]


class FileJob:
    """A conversion of files into arrays of a group: of a new one, or of an existing one (`held`).

    Nothing is written before `begin`.

    versions  of the files that are read, by what each source is called
    arrays    by name, once they are added

    Raises
        MetadataError: the group that is there has another format.
    """

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
        self.arrays: dict[str, StoredArray] = {}
        self._paths = list[str]()

    def add_array(self, name: str, path: str, plan: Mapping[str, Any]) -> ArrayModel:
        """Add an array at a path, by the arguments of `create_array`; returns its model."""
        rehearse(self.zarr_format, plan)
        model = self.nodes.add_array(path, **plan).model
        self._paths.append(path)
        self.arrays[name] = StoredArray(self.store, join_key(self.base, path), model)
        return model

    def name_arrays(self) -> str:
        """A name for the arrays, which is the same for the same documents."""
        return name_job([[name, render_node(array.model)] for name, array in self.arrays.items()])

    def taken(self, names: Iterable[str], *, resume: bool) -> list[str]:
        """The names that the existing group has already, unless the job that made them is resumed."""
        found = [name for name in names if self.held is not None and name in self.held]
        return [] if found and resume and read_intent(self.store, self.base) is not None else found

    def begin(
        self, work: str, said: Any, *, overwrite: bool, resume: bool, paths: Sequence[str] = ()
    ) -> BegunJob:
        """Record that the job begins, in the existing group or a new one; `overwrite` replaces nodes there.

        paths  of the nodes in the given group that are made anew, with `overwrite`

        Raises
            StoreError: something is there already, or unfinished work (unless `overwrite`); or what would be
                replaced holds one of the files that are read.
            MetadataError, ChangedError: `resume`, and what was interrupted there is something else, or a file
                was written since.
        """
        store, base = self.store, self.base
        if self.held is not None:
            job = begin(
                store,
                base,
                work,
                said,
                name=name_job(said),
                resume=resume,
                replace=overwrite and not resume,
                is_ready=not (overwrite and paths),
            )
            if not job.is_ready:
                if not overwrite and (taken := [path for path in paths if path in self.held]):
                    expected = "expected overwrite, as nobody can tell whether they are those to be replaced"
                    raise StoreError(f"{', '.join(taken)} are there already; {expected}", path=self.where)
                gone = [join_key(base, path) for path in paths]
                job.clear(lambda: map_threads(partial(delete_node, store), gone))
            job.hold({self._top(path) for path in self._paths})
        else:
            if overwrite:
                check_outside(self.versions, store, base, work)
            job = begin_new(
                store,
                base,
                self.zarr_format,
                work,
                said,
                overwrite=overwrite,
                resume=resume,
                may_hold_others=True,
            )
        if job.is_resumed:
            self.nodes.check_own()
        job.watch(self._sources)
        return job

    @property
    def _sources(self) -> Sources:
        return Sources(self._find_versions, str, _as_texts(self.versions))

    def is_made(self, call: Any) -> bool:
        """Whether the same call with `resume` has made all of it, of the files as they are.

        Raises
            ChangedError: a file, or what was made, was written to since.
        """
        if not self._keeps or read_intent(self.store, self.base) is not None:
            return False
        frames = {"": self.name_arrays()}
        return is_made(self.store, self.base, call, self._sources, self._find_target, frames)

    def end(self, job: BegunJob, call: Any) -> None:
        """End the job; with `resume`, a fingerprint of files and arrays is kept for the next such call."""
        if self._keeps:
            versions = self._find_target()
            frames = {"": self.name_arrays()}
            job.keep(Made.of(call, self._sources, versions, frames))
        job.end()

    @property
    def _keeps(self) -> bool:
        return self.how.resume and current_part() is None

    def _find_target(self) -> Versions:
        """The versions of the arrays; of a new group, of all that it holds."""
        at = Location(self.store, self.base)
        paths = [at.below(array.path) for array in self.arrays.values()]
        if self.held is None:
            with suppress(NotFoundError):
                paths = [at.below(path) for path, model in walk_nodes(*at) if isinstance(model, ArrayModel)]
        return node_versions(at, paths)

    def _find_versions(self) -> Mapping[str, str]:
        return _as_texts(
            {path: find_version(file for file, *_ in version) for path, version in self.versions.items()}
        )

    def _top(self, path: str) -> str:
        """The topmost node on the way to a path that the given group does not have."""
        held = self.held
        return next((at for at in [*ancestors(path)][1:] if held is not None and at not in held), path)

    def check_fits(self, plan: Any) -> None:
        """Refuse a disk that is too full for the arrays, which `plan` writes uncompressed.

        Raises
            StoreError: it is.
        """

        def expect() -> float:
            held = MemoryStore()
            arrays = {name: array.elsewhere(held) for name, array in self.arrays.items()}
            return expect_size(replace(plan, arrays=arrays), held)

        size = sum(prod(array.model.shape) * array.item_size for array in self.arrays.values())
        check_room(self.store, self.base, size, expect, "chunks")


def _as_texts(versions: Mapping[str, Version]) -> Mapping[str, str]:
    return {path: str(version) if version else "?" for path, version in versions.items()}


def find_version(files: Iterable[str]) -> Version:
    """The version of files on this machine, which changes when they are written; others have none."""
    found = []
    for file in files:
        with suppress(OSError, ValueError):
            status = os.stat(file)  # noqa: PTH116 - what GDAL opens may be no path at all
            found.append((file, status.st_size, status.st_mtime_ns))
    return tuple(found)


def check_version(version: Version, path: str) -> None:
    """Check that no file was written or removed since this version.

    Raises
        ChangedError: they were, or are gone.
    """
    if find_version(file for file, _, _ in version) != version:
        raise ChangedError("a file was written while it was read; expected it as it was", path=path)


class Written(NamedTuple):
    """The result of a unit.

    empty   for each chunk of the unit, whether it was left out, as it holds the fill value only
    filled  the arrays without a nodata that have cells of their fill value there
    """

    empty: list[bool]
    filled: list[str]


class FileWindows(Plan[Written]):
    """The plan of a conversion from files: a unit writes boxes of whole chunks into arrays.

    arrays  by name
    bare    the arrays without a nodata
    """

    arrays: dict[str, StoredArray]
    bare: frozenset[str] = frozenset()

    def boxes(self, unit: Unit) -> Iterator[tuple[str, Box]]:
        """The arrays that a unit writes to, by name, and the box in each."""
        raise NotImplementedError

    def store(self, unit: Unit, items: Iterable[Items], filled: Iterable[str] = ()) -> Written:
        """Write the items of a unit's boxes, in their order."""
        empty = list[bool]()
        for (name, box), block in zip(self.boxes(unit), items, strict=True):
            empty += self.arrays[name].write_filled(box, block.reshape(lengths(box)))
        return Written(empty, sorted(filled))

    def holds(self, unit: Unit, result: Written) -> bool:
        """Whether all chunks of a unit are stored, but for empty ones."""
        empty = iter(result.empty)
        boxes = [(self.arrays[name], box) for name, box in self.boxes(unit)]
        return all(array.is_written(box, [*islice(empty, array.count(box))]) for array, box in boxes)

    def pack(self, result: Written) -> bytes:
        names = json.dumps(result.filled).encode() if result.filled else b""
        return np.packbits(result.empty).tobytes() + names if names or any(result.empty) else b""

    def unpack(self, unit: Unit, data: bytes) -> Written:
        count = sum(self.arrays[name].count(box) for name, box in self.boxes(unit))
        size = -(-count // 8)
        if not data:
            return Written([False] * count, [])
        if len(data) < size:
            raise ValueError(f"{count} flags take {size} bytes; expected no fewer than them, got {len(data)}")
        flags = np.unpackbits(np.frombuffer(data, np.uint8, size), count=count)
        names = json.loads(data[size:] or "[]")
        if not isinstance(names, list) or not self.bare.issuperset(map(str, names)):
            raise ValueError(f"no names of arrays: {names!r:.100}")
        return Written(flags.astype(bool).tolist(), names)
