"""Arrays of manifests that are being made: coordinates, to be compared and joined."""

from __future__ import annotations

from zstore.nodes.array import Array
from zstore.nodes.open import open_array
from zstore_virtual.manifest import Manifest
from zstore_virtual.store import VirtualStore

__all__ = ["load_array"]


def load_array(manifest: Manifest, path: str) -> Array:
    """The array at `path`, wherever on this machine its chunks lie.

    Raises
        NotFoundError, StoreError: a source is not there, or not what it was.
    """
    return open_array(VirtualStore(manifest, allow=["/"]), path)
