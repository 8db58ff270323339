"""The layout of an array, and plans: selections divided along its chunk grid."""

from collections.abc import Sequence
from typing import Any, final, overload

import numpy as np

__test__: dict[str, Any]

@final
class Layout:
    def __new__(
        cls,
        *,
        shape: tuple[int, ...],
        chunk_shape: tuple[int, ...],
        strides: tuple[int, ...],
        item_size: int,
        swap_unit: int,
        fill_native: bytes,
        fill: bytes,
        levels: Sequence[tuple[tuple[int, ...], bool, bool, bool]],
        steps: Sequence[object],
        key_has_c: bool,
        separator: str,
    ) -> Layout: ...
    @property
    def form(self) -> tuple[Any, ...]: ...

@final
class Plan:
    def __new__(cls, layout: Layout) -> Plan: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def task_count(self) -> int: ...
    @property
    def decoded_size(self) -> int: ...
    @property
    def outer_count(self) -> int: ...
    def inner_cell(self, task: int) -> tuple[int, ...]: ...
    def outer_cells(self) -> list[tuple[int, ...]]: ...
    def outer_tasks(self) -> list[int]: ...

@overload
def plan_basic(layout: Layout, selection: tuple[slice, ...]) -> Plan: ...
@overload
def plan_basic(layout: Layout, selection: Any) -> Plan | None: ...
def plan_orthogonal(
    layout: Layout,
    axes: list[tuple[int, int, int] | np.ndarray[Any, np.dtype[np.int64]]],
    result_dims: list[int],
    shape: tuple[int, ...],
) -> Plan: ...
def plan_points(
    layout: Layout, indices: list[np.ndarray[Any, np.dtype[np.int64]]], shape: tuple[int, ...]
) -> Plan: ...
