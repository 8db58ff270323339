"""Items with parts of either byte order, turned round by a native codec."""

from typing import Any

__test__: dict[str, Any]

PART_LIMIT: int

def turn(item_size: int, parts: tuple[tuple[int, int, int], ...]) -> Any: ...
