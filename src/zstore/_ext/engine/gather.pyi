"""The kernel of samples: windows of an array, copied out of blocks of it in memory, without the GIL."""

from typing import Any

def gather(blocks: list[Any], numbers: Any, borders: tuple[Any, ...], starts: Any, out: Any) -> None: ...
