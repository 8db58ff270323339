"""The hook by which zstore finds the store for "icechunk://" URLs, and for icechunk's own store objects."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zstore.plugin import Offer, hookimpl

if TYPE_CHECKING:
    from zstore_icechunk.store import IcechunkStore, open_session

__all__ = ["IcechunkStore", "open_session", "register_stores"]


def __getattr__(name: str) -> Any:
    # All plugins are imported as soon as one is asked for.
    if name not in ("IcechunkStore", "open_session"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("zstore_icechunk.store"), name)


@hookimpl
def register_stores() -> list[Offer]:
    """The scheme "icechunk", with "+" and the scheme of a bucket or web server, and icechunk's own store."""
    target = "zstore_icechunk.store:IcechunkStore"
    return [
        Offer("icechunk", target),
        Offer("icechunk+s3", target),
        Offer("icechunk+gs", target, ("icechunk+gcs",)),
        Offer("icechunk+az", target, ("icechunk+abfs",)),
        Offer("icechunk+http", target),
        Offer("icechunk+https", target),
        Offer("icechunk.store.IcechunkStore", target),
    ]
