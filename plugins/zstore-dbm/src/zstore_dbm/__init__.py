"""The hook by which zstore finds the store for "dbm://" URLs."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_stores"]


@hookimpl
def register_stores() -> list[Offer]:
    """The scheme "dbm"."""
    return [Offer("dbm", "zstore_dbm.store:DbmStore")]
