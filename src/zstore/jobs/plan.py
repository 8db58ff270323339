"""Plans of long jobs: their units of work, how results are joined, and estimates of the cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

# Identifies a unit within its plan.
Unit: TypeAlias = tuple[int, ...]
# Called with (how much is done, how much there is to do).
Progress: TypeAlias = Callable[[int, int], None]
R = TypeVar("R")
T = TypeVar("T", contravariant=True)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a job will take; None: not known before it runs.

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
        """Make a unit; the result is what it does not write to the target."""
        raise NotImplementedError

    def holds(self, unit: Unit, result: R) -> bool:
        """Whether the unit's output is still stored; asked where a journal has its result.

        It may have been lost in a power cut, or the journal may be wrong.
        """
        return True

    def pack(self, result: R) -> bytes:
        """The result of a unit as bytes, for a journal; none for units without results."""
        return b""

    def unpack(self, unit: Unit, data: bytes) -> R:
        """The result that `pack` was given.

        Raises
            ValueError: the data cannot be that of the unit, which is then made again.
        """
        if data:
            raise ValueError(f"unit {unit} gives back nothing; found {len(data)} bytes")
        return None  # type: ignore[return-value]


class Fold(Protocol[T]):
    """Joins the results of a plan's units, taking them one by one in the order of the units."""

    def take(self, unit: Unit, result: T) -> None:
        """Take the next result."""

    def holds(self, unit: Unit) -> bool:
        """Whether the outcome of a unit is still there; asked where a journal says that it was taken."""

    def group(self, unit: Unit) -> tuple[int, bool]:
        """(number of the group of units whose results are joined, whether the unit is the last of it)."""

    def pack(self) -> bytes:
        """The state after all results so far as bytes, for a journal."""

    def unpack(self, data: bytes) -> None:
        """Restore the state from the bytes that `pack` gave.

        Raises
            ValueError: the data cannot be such a state.
        """


def take_nothing(unit: Unit, result: Any) -> None:
    """Ignore the result of a unit, for plans without results."""
