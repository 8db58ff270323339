"""The hook by which zstore finds the store for "mongodb://" URLs."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_stores"]


@hookimpl
def register_stores() -> list[Offer]:
    """The scheme "mongodb"."""
    return [Offer("mongodb", "zstore_mongodb.store:MongodbStore", ("mongodb+srv",))]
