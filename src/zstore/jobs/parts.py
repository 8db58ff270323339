"""Jobs made in parts: independent calls, on any machine, that make some of the units each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np

from zstore.errors import StoreError
from zstore.jobs.plan import Progress

# The most parts of a job.
MOST_PARTS = 1_000_000


class UnitsLeft(Exception):
    """Raised when a call has made its part of a job, and other parts are still to be made.

    numbers  of the units that are left, one array for each plan so far
    """

    def __init__(self, numbers: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]] = ()) -> None:
        super().__init__("units are left to others")
        self.numbers = [found for found in numbers if len(found)]

    @property
    def count(self) -> int:
        """How many units are left."""
        return sum(map(len, self.numbers))

    def parts(self, count: int) -> list[int]:
        """The numbers, from 1, of the parts that they belong to, where there are `count` parts."""
        found = (np.unique(numbers % count) + 1 for numbers in self.numbers)
        return sorted({part for parts in found for part in parts.tolist()})


@dataclass
class Part:
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


_part: ContextVar[Part | None] = ContextVar("part", default=None)


def current_part() -> Part | None:
    """The part that is being made; None where whole jobs are made."""
    return _part.get()


@contextmanager
def as_part(part: Part | None) -> Iterator[None]:
    """A context in which jobs make only that part of their units; None: all of them."""
    token = _part.set(part)
    try:
        yield
    finally:
        _part.reset(token)
