"""What nodes show of what is built on them, handed in once by the package (`zstore/__init__.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `import zstore` reads this file, and loads nothing heavy
    import numpy.typing as npt

read_tile: Callable[..., npt.NDArray[Any]]
"""A tile of the pyramid that a node is, or is a part of."""

reduce: Callable[..., Any]
"""The sum, mean, least, ... of an array's items along some of its dimensions."""

render_html: Callable[[Any], str]
"""A node as notebooks show it."""
