"""The hook by which zstore finds the store for "virtual://" URLs, and for VirtualiZarr's own."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_stores"]


@hookimpl
def register_stores() -> list[Offer]:
    """The schemes "virtual" and "scan", and VirtualiZarr's `ManifestStore` by the name of its class."""
    target = "zstore_virtual.store:VirtualStore"
    return [
        Offer("virtual", target),
        Offer("scan", "zstore_virtual.scan.opened:ScannedStore"),
        Offer("virtualizarr.manifests.store.ManifestStore", target),
    ]
