"""`zarr.api.asynchronous`: the functions of `zarr.api.synchronous`, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from zstore.errors import missing_name
from zstore.zarr.api import synchronous
from zstore.zarr.awaited import as_awaited, awaited

__all__ = synchronous.__all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise missing_name("module 'zarr.api.asynchronous'", name, None)
    # Each is made once, so that it is itself.
    return globals().setdefault(name, awaited(getattr(synchronous, name)))


async def create_hierarchy(**options: Any) -> AsyncIterator[tuple[str, Any]]:
    """Make many arrays and groups by their metadata; (path, node) of each."""
    for pair in [*await awaited(synchronous.create_hierarchy)(**options)]:
        yield as_awaited(pair)
