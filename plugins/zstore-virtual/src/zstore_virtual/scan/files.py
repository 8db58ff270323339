"""Scans one file of any known format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from zstore.errors import NotFoundError, UnsupportedError, ZstoreError
from zstore.plugin.rasters import open_netcdf
from zstore_virtual.manifest import Manifest
from zstore_virtual.scan.draft import Draft
from zstore_virtual.scan.hdf5 import scan_hdf5
from zstore_virtual.scan.netcdf3 import open_classic, scan_classic
from zstore_virtual.scan.origin import Origin, is_remote, open_origin

__all__ = ["scan_file"]

HDF5 = b"\x89HDF\r\n\x1a\n"
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
TIFF = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def scan_file(
    path: str | os.PathLike[str],
    *,
    drop: Iterable[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    unreadable: MutableMapping[str, ZstoreError] | None = None,
) -> Manifest:
    """The manifest of one NetCDF, HDF5 or GeoTIFF file, or of a Zarr hierarchy, at a path or URL.

    drop             variables to leave out, by name or path
    storage_options  for a URL
    unreadable       takes, by path, the errors of members of a Zarr hierarchy, which else are raised

    Raises
        NotFoundError, StoreError: it is not there, or damaged.
        UnsupportedError: another format, or something that references cannot express, which is named.
    """
    address = os.fspath(path)
    dropped = frozenset(drop)
    is_folder = address.endswith("/") if is_remote(address) else os.path.isdir(address)  # noqa: PTH112 - False for a NUL
    try:
        if not is_folder:
            return _scan_file(address, dropped, storage_options)
    except NotFoundError:
        # In a bucket, a hierarchy is not one value but many below a prefix.
        if not is_remote(address):
            raise
    from zstore_virtual.scan.zarr import scan_zarr

    return scan_zarr(address, dropped, storage_options, unreadable)


def _scan_file(address: str, drop: frozenset[str], options: Mapping[str, Any] | None) -> Manifest:
    draft = Draft()
    with open_origin(address, options) as origin:
        begin = origin.read(0, 4)
        if begin in TIFF:
            from zstore_virtual.scan.tiff import scan_tiff

            scan_tiff(origin, draft, drop)
        elif begin in CLASSIC:
            with open_classic(origin) as classic:
                scan_classic(classic, origin, draft, drop)
        elif _is_hdf5(origin):
            with open_netcdf(origin.address, file=origin.open()) as file:
                scan_hdf5(file, origin, draft, drop)
        else:
            expected = "expected NetCDF, HDF5, GeoTIFF or a Zarr hierarchy"
            raise UnsupportedError(f"file begins with {begin!r}; {expected}", path=address)
    return draft.finish()


def _is_hdf5(origin: Origin) -> bool:
    """Whether HDF5's signature is at the beginning, or at 512, 1024, 2048, … bytes, behind a user block."""
    at = 0
    while at + len(HDF5) <= origin.size:
        if origin.read(at, len(HDF5)) == HDF5:
            return True
        at = max(512, 2 * at)
    return False
