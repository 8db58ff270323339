"""Functions of higher wings that methods of arrays and groups call; set once by `zstore/__init__.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `import zstore` reads this file, and loads nothing heavy
    import numpy.typing as npt

read_tile: Callable[..., npt.NDArray[Any]]
"""`zstore.read_tile`: reads a tile of the pyramid that a node is, or is a part of."""

reduce: Callable[..., Any]
"""`zstore.reduce`: the sum, mean, minimum, ... of an array's items along some of its dimensions."""

render_html: Callable[[Any], str]
"""Renders the HTML of a node for notebooks."""

batches: Callable[..., Any]
"""`zstore.batches`: batches of samples of arrays, for loops that train on them."""

group_batches: Callable[..., Any]
"""Batches of the arrays of a group."""

view: Callable[[Any], Any]
"""`zstore.view`: the view of an array, of which selections are views."""

open_view: Callable[..., Any]
"""Opens the view in a file, whose name ends in ".view.json"."""

circle_of_array: Callable[[Any], Any]
"""The circle of an array of directions, in stored numbers; None for other values."""

carried_of: Callable[[Any], Any]
"""The description of a view's source, which views of it carry on: georeference, nodata, coordinates."""

outline: Callable[..., Any]
"""The outline of the reduction of a group, or of an array with its coordinates."""
