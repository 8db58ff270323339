from typing import Any

FOLDS: dict[str, int]
SKIPS: dict[str, int]

def fold(
    items: Any,
    shape: tuple[int, ...],
    a: Any,
    b: Any,
    count: Any,
    labels: Any,
    *,
    method: int,
    item_type: int,
    skip: int,
    nodata: bytes,
    cell_steps: tuple[int, ...],
    label_steps: tuple[int, ...],
    number_steps: tuple[int, ...],
    groups: int = 1,
    group_step: int = 0,
    first_number: int = 0,
) -> None: ...
