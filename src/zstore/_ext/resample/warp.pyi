"""The sampling kernel: contiguous buffers in and out, on the threads of the pool without the GIL."""

from typing import Any

__test__: dict[str, Any]

METHODS: dict[str, int]

def sample(
    source: Any,
    valid: Any,
    columns: Any,
    rows: Any,
    out: Any,
    found: Any,
    *,
    method: int,
    left: float = 0.0,
    top: float = 0.0,
    x_scale: float = 1.0,
    y_scale: float = 1.0,
    limits: tuple[float, float] | None = None,
    threads: int = 1,
) -> None: ...
