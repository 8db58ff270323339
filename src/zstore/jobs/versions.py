"""Versions of what jobs read and make: one contract for sources that change, now or after the job has ended.

What a job reads has the versions at its end that it had at its beginning, or no document is written. A call
with `resume` keeps the versions of sources and target beside the target, so that the same call tells later
whether anything has changed, and what.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from zstore.engine.documents import place
from zstore.errors import ChangedError
from zstore.jobs.plan import name_job
from zstore.storage.base import Store, join_key

# Below this prefix at the path of a target, fingerprints of finished jobs are kept by name.
MADE = ".zstore-made"
LITTLE = np.dtype("<u8")

# By name, a text that changes whenever the source or target does. One that ends in "?" may stay.
Versions = Mapping[str, str]
# A number for each chunk of a grid, or for each key, that changes with it; 0 where no chunk is stored.
Marks = np.ndarray[Any, np.dtype[np.uint64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
# More marks than these are neither kept nor read: 1 GiB.
MARK_COUNT = 1 << 27
# The mark of a chunk that is being made again.
UNKNOWN = np.uint64(2**64 - 1)


class Sources:
    """The sources of a job by name, with their versions at its start.

    find   gives the versions as they are now
    place  gives the address of a source, by its name, for errors
    """

    def __init__(
        self, find: Callable[[], Versions], place: Callable[[str], str], versions: Versions | None = None
    ) -> None:
        self._find = find
        self.place = place
        self.versions = find() if versions is None else versions

    def check_unchanged(self) -> None:
        """Compare with the present versions.

        Raises
            ChangedError: a source was written, is new or is gone.
        """
        changed = differing(self.versions, self._find())
        if changed is not None:
            raise ChangedError(
                "the source changed while it was read; expected nobody to write to it",
                path=self.place(changed),
            )


def differing(one: Versions, other: Versions) -> str | None:
    """The first name that has not the same version in both; None where all have."""
    return next((name for name in {**one, **other} if one.get(name) != other.get(name)), None)


@dataclass(frozen=True)
class Made:
    """The fingerprint of a finished job: the versions of its sources and of its target.

    call     what identifies the call: the same sources and arguments; of it, only a hash is kept
    sources  the versions of what it was made of, by hashes of their names; none while what has changed is
             made again
    target   the versions of what was made
    frames   by name of a source: what must stay for its changed chunks to be made again alone
    marks    by name of a source: a number for each of its chunks or keys
    """

    call: Any
    sources: Versions = field(default_factory=dict)
    target: Versions = field(default_factory=dict)
    frames: Versions = field(default_factory=dict)
    marks: Mapping[str, Marks] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store, base: str, call: Any) -> Made | None:
        """The fingerprint that a job of this call has left at a path; None where there is none."""
        data = bytes(store.get(join_key(base, MADE, name_job(call))) or b"")
        checksum, data = data[:4], data[4:]
        if len(checksum) < 4 or zlib.crc32(data) != int.from_bytes(checksum, "little"):
            return None
        head, _, rest = data.partition(b"\n")
        with suppress(ValueError, KeyError, TypeError, zlib.error):
            said, marks = json.loads(head), dict[str, Marks]()
            for name, shape, size in said.pop("marks"):
                if not 0 <= prod(shape) <= MARK_COUNT:
                    return None
                # What the file says it holds, and no more, however far it could be expanded.
                expanded = zlib.decompressobj().decompress(rest[:size], prod(shape) * LITTLE.itemsize or 1)
                numbers = np.frombuffer(expanded, LITTLE)
                marks[name], rest = numbers.astype(np.uint64).reshape(shape), rest[size:]
            return cls(call, **said, marks=marks)
        return None

    def put(self, store: Store, base: str) -> None:
        """Keep the fingerprint at a path."""
        blobs = [zlib.compress(marks.astype(LITTLE).tobytes(), 1) for marks in self.marks.values()]
        said = [
            [name, marks.shape, len(blob)]
            for (name, marks), blob in zip(self.marks.items(), blobs, strict=True)
        ]
        kept = {"sources": self.sources, "target": self.target, "frames": self.frames, "marks": said}
        data = json.dumps(kept).encode() + b"\n" + b"".join(blobs)
        key = join_key(base, MADE, name_job(self.call))
        store.put(key, zlib.crc32(data).to_bytes(4, "little") + data)
        store.flush()

    @classmethod
    def of(
        cls,
        call: Any,
        sources: Sources,
        target: Versions,
        frames: Versions | None = None,
        marks: Mapping[str, Marks] | None = None,
    ) -> Made:
        """The fingerprint of a job that ends."""
        return cls(call, _hashed(sources.versions), target, frames or {}, marks or {})

    def changed(self, name: str, now: Marks | None) -> Mask | None:
        """Whether each chunk of a source is new, gone or written since; None where that is not known."""
        before = self.marks.get(name)
        if now is None or before is None or before.ndim != now.ndim:
            return None
        changed: Mask = held_marks(before, now) != now
        return changed

    def check_target(self, target: Versions, store: Store, base: str) -> None:
        """Check that nobody has written to the target since.

        Raises
            ChangedError: somebody has written to it.
        """
        changed = differing(self.target, target)
        if changed is not None:
            raise ChangedError(
                "what was made was written to since; expected it as it was left, or overwrite=True, which "
                "makes it anew",
                path=place(store, join_key(base, changed)),
            )

    def changed_sources(self, sources: Sources) -> list[str]:
        """The names of the sources that are new, gone or written since; of those that are gone, a hash."""
        names = {name_job(name): name for name in sources.versions}
        now = _hashed(sources.versions)
        differ = [name for name in {**self.sources, **now} if self.sources.get(name) != now.get(name)]
        return [names.get(name, name) for name in differ]

    def is_current(self, sources: Sources) -> bool:
        """Whether all of the target is made of the sources as they are now."""
        return not self.changed_sources(sources)

    def check_current(self, sources: Sources) -> None:
        """Check the sources, for jobs that cannot make again what has changed alone.

        Raises
            ChangedError: a source was written to since the target was made of it.
        """
        if changed := self.changed_sources(sources):
            raise ChangedError(
                "the source was written to since the target was made of it; expected overwrite=True, which "
                "makes the target anew",
                path=sources.place(changed[0]) if changed[0] in sources.versions else None,
            )


def _hashed(versions: Versions) -> Versions:
    """The versions by hashes of their names: addresses may have signatures, which nobody else is to read."""
    return {name_job(name): version for name, version in versions.items()}


def is_made(
    store: Store,
    base: str,
    call: Any,
    sources: Sources,
    target: Callable[[], Versions],
    frames: Versions | None = None,
) -> bool:
    """Whether a job of this call has left its fingerprint at a path, and nothing has changed since.

    frames  what else must be the same, where the call is

    Raises
        ChangedError: a source or the target was written to since.
    """
    made = Made.read(store, base, call)
    if made is None:
        return False
    made.check_target(target(), store, base)
    made.check_current(sources)
    return made.frames == (frames or {})


def is_certain(versions: Versions) -> bool:
    """Whether every change shows in the versions."""
    return not any(version.endswith("?") for version in versions.values())


def held_marks(before: Marks, after: Marks) -> Marks:
    """The marks of before on the grid of `after`, which may have grown or shrunk."""
    held = np.zeros(after.shape, np.uint64)
    common = tuple(slice(0, min(sides)) for sides in zip(before.shape, after.shape, strict=True))
    held[common] = before[common]
    return held
