"""Kerchunk's references as they stand in JSON: chunk numbers, offsets and sizes, without an object for each."""

from collections.abc import Callable, Sequence
from typing import Any, final

__test__: dict[str, Any]

@final
class References:
    def __new__(cls, text: Any, number_of: Callable[[bytes], int]) -> References: ...
    def take(
        self, at: int, start: bytes, separator: bytes, grid: tuple[int, ...], columns: Sequence[Any], row: int
    ) -> tuple[int, int]: ...
