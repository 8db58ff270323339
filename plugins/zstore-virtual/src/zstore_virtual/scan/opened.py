"""Files of other formats opened as stores, by references that are made when a file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zstore.errors import StoreError
from zstore_virtual.places import folder_of
from zstore_virtual.scan.files import scan_file
from zstore_virtual.store import VirtualStore

__all__ = ["ScannedStore"]


class ScannedStore(VirtualStore):
    """One NetCDF, HDF5 or GeoTIFF file, in a bucket, on a server or on this machine, read in place."""

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> ScannedStore:
        """The store of the file at "scan::URL" or "scan://PATH"; storage options are those of the URL."""
        mark = "::" if url.startswith("scan::") else "://"
        address = url.partition(mark)[2]
        if not address:
            raise StoreError("expected scan::URL or scan://PATH", path=url)
        manifest = scan_file(address, storage_options=storage_options, keeps_small=True)
        allowed = [folder_of(address.partition("?")[0])]
        return cls(manifest, url=address, allow=allowed, remote_options=storage_options)

    @property
    def url(self) -> str:
        """ "scan::" and the file's URL, or "scan://" and its path."""
        address = self._address or ""
        return f"scan::{address}" if "://" in address else f"scan://{address}"
