from typing import Any

METHODS: dict[str, int]

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
    threads: int = 1,
) -> None: ...
