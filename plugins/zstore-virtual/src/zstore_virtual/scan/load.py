"""Arrays of manifests that are being made: coordinates, to be compared and joined."""

from __future__ import annotations

from collections.abc import Sequence

from zstore.nodes.array import Array
from zstore.nodes.open import open_array
from zstore_virtual.manifest import Manifest
from zstore_virtual.store import VirtualStore

__all__ = ["load_array"]


def load_array(manifest: Manifest, path: str, allow: Sequence[str]) -> Array:
    """The array at `path`, whose chunks lie in the places that are allowed.

    Raises
        NotFoundError, StoreError: a source is not there, not what it was, or out of the places.
    """
    return open_array(VirtualStore(manifest, url=manifest.address, allow=allow), path)
