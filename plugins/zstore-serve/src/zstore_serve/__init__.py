"""Stores on a map: the commands `zstore view`, `serve` and `export`, and `router` for other applications.

This module is imported whenever plugins are loaded, so it imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zstore.plugin import Offer, hookimpl

if TYPE_CHECKING:
    from zstore_serve.service import Settings, router
    from zstore_serve.zarr import zarr_router

__all__ = ["Settings", "register_commands", "register_jobs", "router", "zarr_router"]


@hookimpl
def register_commands() -> list[Offer]:
    """The commands that this package adds to `zstore`."""
    summaries = {
        "export": "Write tiles of a store: PMTiles, MBTiles or a directory.",
        "serve": "Serve stores over HTTP as map tiles.",
        "view": "Show stores on a map in the browser.",
    }
    return [Offer(word, f"zstore_serve.commands:{word}", summary=line) for word, line in summaries.items()]


@hookimpl
def register_jobs() -> list[Offer]:
    """The job that this package can resume."""
    return [Offer("export", "zstore_serve.export:export")]


if not TYPE_CHECKING:  # so that type checkers still report unknown names

    def __getattr__(name: str) -> Any:
        if name in ("Settings", "router"):
            from zstore_serve import service

            return getattr(service, name)
        if name == "zarr_router":
            from zstore_serve.zarr import zarr_router

            return zarr_router
        raise AttributeError(f"module 'zstore_serve' has no attribute {name!r}")
