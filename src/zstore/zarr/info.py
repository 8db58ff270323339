"""Summaries of arrays and groups, as zarr-python prints them."""

from __future__ import annotations

import re
import sys
from html import escape
from typing import Any

__all__ = ["Info", "NodeTree", "array_info", "group_info"]


class Info:
    """A summary with one property per line (`str`, `repr`)."""

    def __init__(self, **lines: Any) -> None:
        self.lines = lines

    def __repr__(self) -> str:
        width = max(map(len, self.lines))
        return "\n".join(f"{label:<{width}} : {value}" for label, value in self.lines.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Info) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]


# A line of a drawing: its branches, the name of a node, and what is said of it.
BRANCH = re.compile(r"((?:│   |    )*(?:[├└]── )?)(.*?)( \(.*)?", re.DOTALL)


class NodeTree:
    """A drawing of a group and the nodes below it: text (`str`, `repr`), or HTML in a notebook.

    Names are bold on a terminal, unless the drawing is `plain`. After `max_nodes` nodes it ends, and says so.
    """

    def __init__(self, drawing: str, max_nodes: int, *, plain: bool) -> None:
        root, *nodes = drawing.split("\n")
        self._lines = [BRANCH.fullmatch(line).groups("") for line in (root, *nodes[:max_nodes])]  # type: ignore[union-attr]
        self._is_plain = plain
        self._end = (
            f"Truncated at max_nodes={max_nodes} of {len(nodes)} nodes\n" if len(nodes) > max_nodes else ""
        )

    def _drawn(self, begin: str, end: str) -> str:
        lines = (f"{branch}{begin}{name}{end}{rest}\n" for branch, name, rest in self._lines)
        return "".join((*lines, self._end))

    def __repr__(self) -> str:
        is_bold = not self._is_plain and sys.stdout.isatty()
        return self._drawn("\x1b[1m", "\x1b[0m") if is_bold else self._drawn("", "")

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        lines = (f"{branch}<b>{escape(name)}</b>{escape(rest)}" for branch, name, rest in self._lines)
        drawn = "\n".join((*lines, self._end))
        return {"text/plain": self._drawn("", ""), "text/html": f"<pre>{drawn}</pre>"}


# By 1,024 more each.
UNITS = "KMGTPEZYRQ"


def sized(count: int) -> str:
    """A number of bytes, from 1,024 on with its unit, too."""
    if count < 1024:
        return str(count)
    power = min((count.bit_length() - 1) // 10, len(UNITS))
    return f"{count} ({count / 1024**power:.1f}{UNITS[power - 1]})"


def array_info(array: Any, *, is_complete: bool = False) -> Info:
    """The summary of an array; `is_complete` with what its keys, which are listed, take."""
    metadata = array.metadata
    is_even = not hasattr(getattr(metadata, "chunk_grid", None), "chunk_shapes")
    lines = {
        "Type": "Array",
        "Zarr format": metadata.zarr_format,
        "Data type": metadata.dtype,
        "Fill value": metadata.fill_value,
        "Shape": array.shape,
        **({"Shard shape": array.shards if is_even else "<variable>"} if array.shards else {}),
        "Chunk shape": array.chunks if is_even or array.shards else "<variable>",
        "Order": array.order,
        "Read-only": array.read_only,
        "Store type": type(array.store).__name__,
        "Filters": array.filters,
        **({"Serializer": array.serializer} if array.serializer else {}),
        "Compressors": array.compressors,
        "No. bytes": sized(array.nbytes),
    }
    if is_complete:
        stored = array.nbytes_stored()
        lines["No. bytes stored"] = sized(stored)
        if stored:
            lines["Storage ratio"] = f"{array.nbytes / stored:.1f}"
        lines["Shards Initialized" if array.shards else "Chunks Initialized"] = array.nshards_initialized
    made = Info(**lines)
    # zarr-python's column is as wide as that of its longest label, whether it is there or not.
    made.lines = {label.ljust(18): value for label, value in lines.items()}
    return made


def group_info(group: Any, *, is_complete: bool = False) -> Info:
    """The summary of a group; `is_complete` with the numbers of nodes below it."""
    lines: dict[str, Any] = {
        "Name": group.name.strip("/"),
        "Type": "Group",
        "Zarr format": group.zarr_format,
        "Read-only": group.read_only,
        "Store type": type(group.store).__name__,
    }
    if is_complete or group.metadata.consolidated_metadata is not None:
        members = [member for _, member in group.members(max_depth=None)]
        count = sum(hasattr(member, "shape") for member in members)
        lines |= {"No. members": len(members), "No. arrays": count, "No. groups": len(members) - count}
    return Info(**{label.ljust(11): value for label, value in lines.items()})
