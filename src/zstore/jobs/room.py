"""Room on the disk of a job's target: a job that will not fit is refused before the first byte."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from math import inf, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ParamSpec, TypeVar

from zstore.base.sizes import format_size
from zstore.engine.documents import place
from zstore.errors import StoreError
from zstore.jobs.plan import Plan, current_part, take_nothing
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore

P = ParamSpec("P")
R = TypeVar("R")

# So many units are made to learn what all will store. They are taken for what they say less three times its
# standard error: where units differ much, they refuse nothing. Where they are alike, others may store
# nothing, but hardly more than a fifth of all: then 24 would be alike once in 200 times.
SAMPLE_COUNT = 24
CERTAIN_SHARE = 0.8
FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))


def free_size(directory: Path | None) -> float:
    """The free bytes on the disk of a directory, existing or not; of None, infinitely many.

    Some mounts of what lies elsewhere say of all their numbers that they are 0, as they do not know.
    """
    if directory is None:
        return inf
    above = next(above for above in (directory, *directory.absolute().parents) if above.exists())
    usage = shutil.disk_usage(above)
    return usage.free if usage.total else inf


def check_room(store: Store, base: str, size: float, expect: Callable[[], float], what: str) -> None:
    """Refuse a directory whose disk has too little room for the bytes that a job will store there.

    size    decoded bytes; where so many are free, nothing is measured
    expect  gives bytes that will be stored at least
    what    is stored, in words

    Raises
        StoreError: there is no room.
    """
    directory, part = store.local_path(base), current_part()
    if directory is None or (part is not None and part.is_begun) or size <= free_size(directory):
        return
    # What an interrupted job has stored is not made again, and what is replaced goes first.
    room = free_size(directory) + sum(entry.size for entry in store.entries(base))
    if size <= room:
        return
    expected = expect()
    if expected > room:
        free, least = format_size(room), format_size(expected)
        if free == least:
            free, least = f"{room:.0f} bytes", f"{expected:.0f} bytes"
        raise StoreError(
            f"the disk of {os.fspath(directory)!r} has {free} free; expected {least} at least for {what}",
            path=place(store, base),
        )


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


def naming_full_disks(function: Callable[P, R], *, goes_on: bool) -> Callable[P, R]:
    """The function of a long job, whose errors of a full disk name the remedy.

    goes_on  whether it takes `resume`
    """
    again = "make room there, then resume=True goes on" if goes_on else "make room there, then do it again"

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except StoreError as error:
            # Errors of other processes have lost their number.
            if any(reason in error.message for reason in FULL) and again not in error.message:
                error.message = f"{error.message}; {again}"
            raise

    return call
