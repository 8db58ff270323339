"""Reading points with slices: box by box, as many together as memory and the engine allow."""

from __future__ import annotations

from typing import Any

import numpy as np

from zstore.engine.chunks import Chunks
from zstore.engine.rectilinear import RectilinearChunks
from zstore.indexing.runs import Runs, Share

__all__ = ["read_runs"]

# So many boxes are read together at most, and so many bytes: more are slower, for memory is then always new.
BOX_COUNT = 1 << 13
BOX_SIZE = 16 << 20


def read_runs(
    chunks: Chunks | RectilinearChunks,
    runs: Runs,
    out: np.ndarray[Any, Any],
    *,
    missing_is_fault: bool = False,
) -> None:
    """Fill `out` with what the runs select.

    Raises what `Chunks.read` raises.
    """
    if not out.size:
        return
    if isinstance(chunks, RectilinearChunks) or not chunks.reads_together:
        # There, every box would have its chunks fetched and decoded for itself.
        memory = out.reshape(-1)
        chunks.read(runs.by_items(), memory, missing_is_fault=missing_is_fault)  # type: ignore[arg-type]
        if not np.may_share_memory(memory, out):
            out[...] = memory.reshape(out.shape)
        return
    pending: list[tuple[Share, np.ndarray[Any, Any]]] = []
    size = 0
    for share in runs.shares(chunks.bound.inner.spec.shape, out.dtype.itemsize):
        if share.places is None:
            memory = out[share.rows]
        else:
            memory = np.empty(share.plan.shape, out.dtype)
            size += memory.nbytes
        pending.append((share, memory))
        if size > BOX_SIZE or len(pending) == BOX_COUNT:
            _read(chunks, pending, out, missing_is_fault)
            pending, size = [], 0
    if pending:
        _read(chunks, pending, out, missing_is_fault)


def _read(
    chunks: Chunks,
    pending: list[tuple[Share, np.ndarray[Any, Any]]],
    out: np.ndarray[Any, Any],
    missing_is_fault: bool,
) -> None:
    plans: list[Any] = [share.plan for share, _ in pending]
    chunks.read_many(plans, [memory for _, memory in pending], missing_is_fault=missing_is_fault)
    for share, memory in pending:
        if share.places is not None:
            out[share.rows] = memory.reshape(-1, *out.shape[1:])[share.places]
