"""The hook by which zstore finds the store for "virtual://" URLs, and for VirtualiZarr's own."""

from __future__ import annotations

from zstore.extensions.hookspecs import hookimpl
from zstore.extensions.offers import Offer

__all__ = ["register_stores"]


@hookimpl
def register_stores() -> list[Offer]:
    """The scheme "virtual", and VirtualiZarr's `ManifestStore` by the name of its class."""
    target = "zstore_virtual.store:VirtualStore"
    return [Offer("virtual", target), Offer("virtualizarr.manifests.store.ManifestStore", target)]
