from collections.abc import Sequence
from typing import Any, final

METHODS: dict[str, int]
PURPOSES: dict[str, int]

@final
class Sides:
    def __new__(cls, source: Any, out: Any) -> Sides: ...

def downsample(
    source: Any,
    out: Any,
    factors: tuple[int, ...],
    *,
    method: int,
    cell_type: int,
    is_half: bool = False,
    source_swapped: bool = False,
    out_swapped: bool = False,
    skip: int = 0,
    quarters: int = 0,
    nodata: bytes = b"",
    substitute: bytes = b"",
    any_order: bool = False,
    windows: Sequence[tuple[Any, Any] | None] | None = None,
    threads: int = 1,
) -> None: ...
def weigh(
    source: Any,
    out: Any,
    tables: Sequence[tuple[Any, ...] | None],
    *,
    purpose: int,
    cell_type: int,
    through_float: bool = False,
    nearest_square: bool = False,
    needs_runs: bool = False,
    is_half: bool = False,
    source_swapped: bool = False,
    out_swapped: bool = False,
    skip: int = 0,
    nodata: bytes = b"",
    substitute: bytes = b"",
    threads: int = 1,
) -> None: ...
