"""Rules about work that has not ended: what it makes is not seen yet, or is changing."""

from __future__ import annotations

from collections.abc import Iterator

from zstore.validation.rule import Found, Rule
from zstore.validation.view import Hierarchy


@Rule("ZS-09", "error", "core", "zstore, interrupted work", "No work is unfinished.",
      "go on with it as the finding says, or wait where it is under way")  # fmt: skip
def check_unfinished(hierarchy: Hierarchy) -> Iterator[Found]:
    """What is unfinished at or below the root, and as what is expected, how it goes on."""
    by_path = {node.path: node for node in hierarchy.nodes}
    for work in hierarchy.unfinished:
        node = by_path.get(work.path, hierarchy.root)
        message = f"{work.what} is unfinished" + ("" if node.path == work.path else f" at {work.path!r}")
        yield Found(node, message, work.again, "unfinished")
