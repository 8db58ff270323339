"""`zarr.api.asynchronous`: the functions of `zarr.api.synchronous`, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from zstore.zarr.api import synchronous
from zstore.zarr.awaited import as_awaited, awaited

__all__ = synchronous.__all__

array = awaited(synchronous.array)
consolidate_metadata = awaited(synchronous.consolidate_metadata)
copy = awaited(synchronous.copy)
copy_all = awaited(synchronous.copy_all)
copy_store = awaited(synchronous.copy_store)
create = awaited(synchronous.create)
create_array = awaited(synchronous.create_array)
create_group = awaited(synchronous.create_group)
empty = awaited(synchronous.empty)
empty_like = awaited(synchronous.empty_like)
from_array = awaited(synchronous.from_array)
full = awaited(synchronous.full)
full_like = awaited(synchronous.full_like)
group = awaited(synchronous.group)
load = awaited(synchronous.load)
ones = awaited(synchronous.ones)
ones_like = awaited(synchronous.ones_like)
open = awaited(synchronous.open)
open_array = awaited(synchronous.open_array)
open_consolidated = awaited(synchronous.open_consolidated)
open_group = awaited(synchronous.open_group)
open_like = awaited(synchronous.open_like)
save = awaited(synchronous.save)
save_array = awaited(synchronous.save_array)
save_group = awaited(synchronous.save_group)
tree = awaited(synchronous.tree)
zeros = awaited(synchronous.zeros)
zeros_like = awaited(synchronous.zeros_like)


async def create_hierarchy(**options: Any) -> AsyncIterator[tuple[str, Any]]:
    """Make many arrays and groups by their metadata; (path, node) of each."""
    for pair in [*await awaited(synchronous.create_hierarchy)(**options)]:
        yield as_awaited(pair)
