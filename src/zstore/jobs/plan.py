"""Plans of long jobs: their units, how results are joined, the cost, and room for it on the target's disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Protocol, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np

from zstore.errors import StoreError
from zstore.storage.memory import MemoryStore

# Identifies a unit within its plan.
Unit: TypeAlias = tuple[int, ...]
# Called with (how much is done, how much there is to do).
Progress: TypeAlias = Callable[[int, int], None]
R = TypeVar("R")
T = TypeVar("T", contravariant=True)

# So many units are made to learn what all will store. They are taken for what they say less three times its
# standard error: where units differ much, they refuse nothing. Where they are alike, others may store
# nothing, but hardly more than a fifth of all: then 24 would be alike once in 200 times.
SAMPLE_COUNT = 24
CERTAIN_SHARE = 0.8
FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The expected cost of a job; None: unknown before it runs.

    unit_count     number of units
    read_size      decoded bytes read from the source; what is read twice counts twice
    write_size     decoded bytes written to the target
    request_count  requests to stores
    memory_size    bytes in memory at once, on each machine
    scratch_size   bytes stored beside the target until the job ends
    parts          the estimate of each array of a hierarchy, by its path
    about          the sources and the result, by names, for JSON
    """

    unit_count: int
    read_size: int | None = None
    write_size: int | None = None
    request_count: int | None = None
    memory_size: int | None = None
    scratch_size: int = 0
    parts: Mapping[str, Estimate] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The estimate as a dictionary for JSON."""
        shown = {name: value for name, value in vars(self).items() if name not in ("parts", "about")}
        parts = {"arrays": {name: one.as_json() for name, one in self.parts.items()}} if self.parts else {}
        return {**self.about, **shown, **parts}

    @classmethod
    def of(cls, parts: Mapping[str, Estimate]) -> Estimate:
        """The estimate of a job of several arrays, one after the other."""

        def total(name: str) -> int | None:
            sizes = [getattr(one, name) for one in parts.values()]
            return None if None in sizes else sum(sizes)

        held = [one.memory_size for one in parts.values() if one.memory_size is not None]
        return cls(
            unit_count=sum(one.unit_count for one in parts.values()),
            read_size=total("read_size"),
            write_size=total("write_size"),
            request_count=total("request_count"),
            memory_size=max(held, default=None),
            scratch_size=sum(one.scratch_size for one in parts.values()),
            parts=parts,
        )


class Plan(Protocol[R]):
    """The work of a job, in units. It is sent to workers with every unit, so it is small and can be pickled.

    A unit writes only what no other unit writes, and returns everything else. It does not depend on other
    units: it can be made in any process, in any order and twice, with the same result.
    """

    def units(self) -> Iterable[Unit]:
        """All units, always in the same order: journals identify them by their number."""
        raise NotImplementedError

    def make(self, unit: Unit) -> R:
        """Make a unit; returns the result, apart from the items that it writes to the target."""
        raise NotImplementedError

    def holds(self, unit: Unit, result: R) -> bool:
        """Whether the unit's output is still stored; asked if a journal has its result.

        It may have been lost in a power cut, or the journal may be wrong.
        """
        return True

    def pack(self, result: R) -> bytes:
        """The result of a unit as bytes, for a journal; none for units without results."""
        return b""

    def unpack(self, unit: Unit, data: bytes) -> R:
        """The result from the bytes of `pack`.

        Raises
            ValueError: the data cannot be that of the unit, which is then made again.
        """
        if data:
            raise ValueError(f"unit {unit} gives back nothing; got {len(data)} bytes")
        return None  # type: ignore[return-value]


class Fold(Protocol[T]):
    """Joins the results of a plan's units, taking them one by one in the order of the units."""

    def take(self, unit: Unit, result: T) -> None:
        """Take the result of the next unit."""

    def holds(self, unit: Unit) -> bool:
        """Whether the outcome of a unit still exists; asked if a journal records that it was taken."""

    def group(self, unit: Unit) -> tuple[int, bool]:
        """(number of the group of units whose results are joined, whether the unit is the last of it)."""

    def pack(self) -> bytes:
        """The state after all results so far as bytes, for a journal."""

    def unpack(self, data: bytes) -> None:
        """Restore the state from the bytes of `pack`.

        Raises
            ValueError: the data cannot be such a state.
        """


def without_defaults(arguments: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for a record, which leaves out later additions that have their default.

    added  by name of those: the default, which a record without it means
    """
    return {name: value for name, value in arguments.items() if name not in added or value != added[name]}


def name_job(plan: Any) -> str:
    """A name for a job, 16 hexadecimal digits: the same for the same plan."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def take_nothing(unit: Unit, result: Any) -> None:
    """Ignore the result of a unit, for plans without results."""


# The most parts of a job.
MOST_PARTS = 1_000_000


class UnitsLeft(Exception):
    """Raised at the end of a call for one part of a job, if other parts are still to be made.

    numbers  of the units that are left, one array for each plan so far
    """

    def __init__(self, numbers: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]] = ()) -> None:
        super().__init__("units are left to others")
        self.numbers = [some for some in numbers if len(some)]

    @property
    def count(self) -> int:
        """The number of units left."""
        return sum(map(len, self.numbers))

    def parts(self, count: int) -> list[int]:
        """The numbers, from 1, of the parts with units left, of a job in `count` parts."""
        lacking = (np.unique(numbers % count) + 1 for numbers in self.numbers)
        return sorted({part for parts in lacking for part in parts.tolist()})


@dataclass
class JobPart:
    """The units that a call makes: every `count`-th of a plan, from the `number`-th on; none if that is 0.

    is_begun  whether the job must be under way already; if it is not, making the part is an error
    first     the name of the job's first plan and its number of units, as they were when the job began
    versions  of what the job reads, by its name, as far as they are known
    """

    number: int = 0
    count: int = 1
    is_begun: bool = True
    first: tuple[str, int] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    journal: str = field(default_factory=lambda: uuid4().hex[:8])
    _is_checked: bool = False

    def has(self, number: int) -> bool:
        """Whether the part has the unit of that number."""
        return self.number > 0 and number % self.count == self.number - 1

    def check(self, name: str, unit_count: int) -> None:
        """Check that the first plan is the one that the job began with.

        Raises
            StoreError: it has other units.
        """
        if self._is_checked:
            return
        if self.first is not None and self.first != (name, unit_count):
            raise StoreError(
                f"the job comes to {unit_count} units of {name!r} here, expected {self.first[1]} of "
                f"{self.first[0]!r} as where it was begun: the source has changed, or memory or "
                "the number of threads (ZSTORE_THREADS) are others"
            )
        self.first, self._is_checked = (name, unit_count), True


_part: ContextVar[JobPart | None] = ContextVar("part", default=None)


def current_part() -> JobPart | None:
    """The part that is being made; None for whole jobs."""
    return _part.get()


@contextmanager
def as_part(part: JobPart | None) -> Iterator[None]:
    """A context in which jobs make only that part of their units; None: all of them."""
    token = _part.set(part)
    try:
        yield
    finally:
        _part.reset(token)


# Room for what a plan makes


def free_size(directory: Path | None) -> float:
    """The free bytes on the disk of a directory, existing or not; of None, infinitely many.

    Some mounts of what lies elsewhere say of all their numbers that they are 0, as they do not know.
    """
    if directory is None:
        return inf
    above = next(above for above in (directory, *directory.absolute().parents) if above.exists())
    usage = shutil.disk_usage(above)
    return usage.free if usage.total else inf


def check_free(directory: Path | None, size: float, what: str, path: str) -> None:
    """Refuse a directory whose disk has fewer free bytes than something takes.

    Raises
        StoreError: there is no room.
    """
    free = free_size(directory)
    if size > free:
        raise StoreError(f"no room for {what}: {size} bytes at least, {free} are free", path=path)


def expect_size(
    plan: Plan[Any],
    store: MemoryStore,
    is_blank: Callable[[Any], bool] | None = None,
    take: Callable[[Any, Any], None] = take_nothing,
) -> float:
    """The bytes that a plan's units will store at least, estimated from some of them.

    store     where this plan stores what it makes
    is_blank  whether a unit is not made, as it would store nothing
    take      stores what units give back, where all of them are made
    """
    count, sizes = sum(1 for _ in plan.units()), list[int]()
    most, chance = min(count, SAMPLE_COUNT), random.Random(0)
    ends = [count * number // most for number in range(most + 1)] if most else [0]
    chosen = {chance.randrange(*span) for span in pairwise(ends)}
    for number, unit in enumerate(plan.units()):
        if number in chosen:
            if is_blank is None or not is_blank(unit):
                result = plan.make(unit)
                if most == count:
                    take(unit, result)
            sizes.append(sum(entry.size for entry in store.entries()))
            store.delete_prefix("")
    if most == count:
        return sum(sizes)
    return count * max(0, min(CERTAIN_SHARE * mean(sizes), mean(sizes) - 3 * stdev(sizes) / sqrt(most)))


@contextmanager
def naming_full_disks(*, goes_on: bool) -> Iterator[None]:
    """A context for a long job, whose errors of a full disk name the remedy.

    goes_on  whether it takes `resume`
    """
    again = "make room there, then resume=True goes on" if goes_on else "make room there, then do it again"
    try:
        yield
    except StoreError as error:
        # Errors of other processes have lost their number.
        if any(reason in error.message for reason in FULL) and again not in error.message:
            error.message = f"{error.message}; {again}"
        raise
