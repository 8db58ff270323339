"""The cost of a read, told from its plan: chunks to fetch and to decode; nothing is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

from zstore.base.sizes import format_size
from zstore.engine.chunks import Chunks, RegularChunks
from zstore.indexing.select import Runs, SelectionPlan

# Stored values that are named.
NAMED_COUNT = 8


@dataclass(frozen=True)
class Explanation:
    """The cost of a read: stored values to fetch, chunks to decode.

    selected_size  bytes of the selected items
    decoded_size   bytes of the chunks that are decoded for them; of inner chunks, where there are shards
    chunk_count    these chunks
    value_count    stored values (chunks or shards) that are fetched, whole or in part
    keys           the first of their keys
    way            how: by the kernels from files, or fetched and decoded by the kernels or in Python
    """

    selected_size: int
    decoded_size: int
    chunk_count: int
    value_count: int
    keys: tuple[str, ...]
    way: str

    def __str__(self) -> str:
        """One fact a line."""
        share = (
            f" ({self.selected_size / self.decoded_size:.1%} of what is decoded)" if self.decoded_size else ""
        )
        more = ", …" if self.value_count > len(self.keys) else ""
        return "\n".join(
            [
                f"selected  {format_size(self.selected_size)}{share}",
                f"decoded   {format_size(self.decoded_size)} in {self.chunk_count} chunks",
                f"fetched   from {self.value_count} stored values: {', '.join(self.keys)}{more}",
                f"way       {self.way}",
            ]
        )


def explain(chunks: Chunks, plan: SelectionPlan) -> Explanation:
    """The cost of reading a plan that was made against the layout of the chunks."""
    selected = prod(plan.shape) * chunks.dtype.itemsize
    if isinstance(chunks, RegularChunks):
        inner, cells = _visited(chunks, plan)
        size = inner * prod(chunks.bound.inner.spec.shape) * chunks.dtype.itemsize
        return _explanation(chunks, selected, size, inner, cells)
    parts: Any = plan.by_items() if isinstance(plan, Runs) else plan
    shapes = {part.cell: part.shape for part in parts.parts()}
    size = sum(map(prod, shapes.values())) * chunks.dtype.itemsize
    return _explanation(chunks, selected, size, len(shapes), shapes)


def _visited(chunks: RegularChunks, plan: SelectionPlan) -> tuple[int, Iterable[tuple[int, ...]]]:
    """The number of inner chunks that a plan visits, and the cells of outer ones."""
    shares: Iterable[Any] = [plan]
    if isinstance(plan, Runs):
        found = plan.shares(chunks.bound.inner.spec.shape, chunks.dtype.itemsize)
        shares = (share.plan for share in found)
    visits = 0
    cells = dict[tuple[int, ...], None]()
    for share in shares:
        visits += share.task_count
        cells.update(dict.fromkeys(share.outer_cells()))
    return visits, cells


def _explanation(
    chunks: Chunks, selected: int, decoded: int, count: int, cells: Iterable[tuple[int, ...]]
) -> Explanation:
    values = list(cells)
    keys = tuple(chunks.key(cell) for cell in islice(values, NAMED_COUNT))
    return Explanation(selected, decoded, count, len(values), keys, _way(chunks))


def _way(chunks: Chunks) -> str:
    is_native = isinstance(chunks, RegularChunks) and chunks.bound.is_native
    if isinstance(chunks, RegularChunks) and chunks.folder is not None:
        return "the kernels read files and decode, on the engine's threads"
    decoder = "the kernels decode" if is_native else "codecs in Python decode"
    if chunks.store.in_memory:
        return f"from memory; {decoder}"
    at_once = chunks.store.request_count
    return f"fetched {f'up to {at_once} at once' if at_once > 1 else 'one by one'}; {decoder}"
