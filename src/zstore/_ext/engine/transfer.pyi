"""Batches of reads and writes: from file ranges or buffers to decoded items and back, without the GIL."""

from collections.abc import Callable
from typing import Any, final

from zstore._ext.engine.select import Layout, Plan

__test__: dict[str, Any]

# (kind, errno, step, got, expected, outer cell, inner cell or None)
_Fault = tuple[str, int, int, int, int, tuple[int, ...], tuple[int, ...] | None]
# (plan, layout, folder, memory, whether missing chunks are faults, anything)
_Part = tuple[Plan, Layout, Folder, Any, bool, Any]

def limit_chunks(size: int) -> None: ...
def kept_size() -> int: ...
def kept_counts() -> tuple[int, int, int, int]: ...
def brief_counts() -> tuple[tuple[int, int, int, int], ...]: ...

OPEN: int
WRITE: int

@final
class NearSpan:
    def __init__(
        self,
        kind: int,
        brief: int,
        note: Callable[[int, int, str | None, Any, tuple[Any, ...]], None],
        chunks: int = 0,
        size: int = 0,
    ) -> None: ...
    def __enter__(self) -> NearSpan: ...
    def __exit__(self, kind: type[BaseException] | None, error: Any, traceback: Any) -> None: ...
    def note_later(self, make: Callable[..., dict[str, Any]], *words: Any) -> None: ...

def hint_at_thrash(count: int, act: Callable[[], None]) -> None: ...
@final
class Stretches:
    def __new__(
        cls,
        grid: tuple[int, ...],
        number: Any | None,
        file: Any,
        offset: Any,
        size: Any,
        data: Any,
        places: list[str],
        origins: list[tuple[int, str, int, int]],
    ) -> Stretches: ...

@final
class Folder:
    def __new__(
        cls,
        path: str,
        key: str = "",
        *,
        cache_size: int = ...,
        keeps_chunks: bool = False,
        stretches: Stretches | None = None,
        allowed: bytes | None = None,
    ) -> Folder: ...
    @property
    def path(self) -> str: ...
    @property
    def knows_document(self) -> bool: ...
    def look(self, document: str) -> bytes | None: ...
    def know(self, document: bytes) -> None: ...

@final
class Buffers:
    def __new__(cls, values: list[Any], n: int) -> Buffers: ...

def covers_outer(plan: Plan, cell: tuple[int, ...]) -> int: ...
def read(
    plan: Plan,
    out: Any,
    *,
    folder: Folder | None = None,
    outer: list[Any] | None = None,
    inner: list[Any] | None = None,
    window: tuple[int, int] | None = None,
    threads: int = 1,
    missing_is_fault: bool = False,
    brief: int = 0,
) -> Any: ...

@final
class Bundle:
    def __new__(cls, plans: list[Plan]) -> Bundle: ...
    @property
    def outer_count(self) -> int: ...
    def outer_cells(self) -> list[tuple[int, ...]]: ...
    def outer_tasks(self) -> list[int]: ...
    def inner_cell(self, task: int) -> tuple[int, ...]: ...

def read_many(
    bundle: Bundle,
    outs: list[Any],
    *,
    folder: Folder | None = None,
    outer: list[Any] | None = None,
    inner: list[Any] | None = None,
    window: tuple[int, int] | None = None,
    threads: int = 1,
    missing_is_fault: bool = False,
) -> _Fault | None: ...
def read_joined(parts: list[_Part], *, threads: int = 1) -> tuple[_Part, _Fault | OSError] | None: ...
def write(
    plan: Plan,
    value: Any,
    *,
    folder: Folder | None = None,
    outer: list[Any] | None = None,
    document: str = "",
    durable: bool = False,
    skip_empty: bool = True,
    window: tuple[int, int] | None = None,
    threads: int = 1,
    is_known: bool = False,
) -> tuple[_Fault | None, list[Any]]: ...
