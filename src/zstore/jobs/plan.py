"""What a long job is to do, as data: units that know what they own, and what all of them take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

# What tells a unit of a plan from the others.
Unit: TypeAlias = tuple[int, ...]
# Called with how much is done, of how much.
Progress: TypeAlias = Callable[[int, int], None]
R = TypeVar("R")
T = TypeVar("T", contravariant=True)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a job takes, before it begins; None for what nobody knows then.

    unit_count     how many units
    read_size      decoded bytes that are read of the source; what is read twice counts twice
    write_size     decoded bytes that are written to the target
    request_count  what stores are asked for
    memory_size    bytes held at once, on each machine
    scratch_size   bytes that are kept beside the target until the job ends
    """

    unit_count: int
    read_size: int | None = None
    write_size: int | None = None
    request_count: int | None = None
    memory_size: int | None = None
    scratch_size: int = 0

    def __add__(self, other: Estimate) -> Estimate:
        """Of two plans that are carried out one after the other."""
        mine, its = asdict(self), asdict(other)
        both: dict[str, Any] = {name: _both(mine[name], its[name]) for name in mine}
        if self.memory_size is not None and other.memory_size is not None:
            both["memory_size"] = max(self.memory_size, other.memory_size)
        return Estimate(**both)

    def as_json(self) -> dict[str, int | None]:
        """The same in JSON."""
        return asdict(self)


def _both(mine: int | None, its: int | None) -> int | None:
    return None if mine is None or its is None else mine + its


class Plan(Protocol[R]):
    """What is to be done, in units. It travels to the workers with each of them: it is small and picklable.

    A unit writes what it alone owns, and gives back all else. It can be made without any other, in any
    process, in any order, and twice: it comes out the same.
    """

    def units(self) -> Iterable[Unit]:
        """All units, in the same order whenever they are asked for: a journal knows them by their number."""
        raise NotImplementedError

    def make(self, unit: Unit) -> R:
        """Make a unit, and give back what it comes to beside what it has written."""
        raise NotImplementedError

    def holds(self, unit: Unit) -> bool:
        """Whether what the unit wrote is still there, where a journal says that it is done.

        It may have been lost in a power cut, or the journal be nobody's word.
        """
        return True

    def pack(self, result: R) -> bytes:
        """What a unit gave back, for a journal: nothing, where units give nothing back."""
        return b""

    def unpack(self, unit: Unit, data: bytes) -> R:
        """What `pack` was given.

        Raises
            ValueError: the data cannot be that unit's, which is made again then.
        """
        if data:
            raise ValueError(f"unit {unit} gives back nothing; found {len(data)} bytes")
        return None  # type: ignore[return-value]


class Fold(Protocol[T]):
    """What the results of a plan's units come to, taken one by one in the order of the units."""

    def take(self, unit: Unit, result: T) -> None:
        """Take the next result."""

    def holds(self, unit: Unit) -> bool:
        """Whether what came of a unit, which a journal says was taken, is still there."""

    def group(self, unit: Unit) -> tuple[int, bool]:
        """The number of what a unit's result is joined in with others, and whether it is the last."""

    def pack(self) -> bytes:
        """What is held of all that was taken, for a journal."""

    def unpack(self, data: bytes) -> None:
        """Hold what `pack` gave.

        Raises
            ValueError: the data cannot be that.
        """


def take_nothing(unit: Unit, result: Any) -> None:
    """What takes the results of units that give nothing back."""
