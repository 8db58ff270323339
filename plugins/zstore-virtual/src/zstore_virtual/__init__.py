"""The hook by which zstore finds the store for "virtual://" URLs."""

from __future__ import annotations

from zstore.extensions.hookspecs import hookimpl
from zstore.extensions.offers import Offer

__all__ = ["register_stores"]


@hookimpl
def register_stores() -> list[Offer]:
    """The scheme "virtual"."""
    return [Offer("virtual", "zstore_virtual.store:VirtualStore")]
