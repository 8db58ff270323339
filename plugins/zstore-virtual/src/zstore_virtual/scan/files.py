"""Scans one file of any known format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import numpy as np

from zstore.errors import NotFoundError, UnsupportedError, ZstoreError
from zstore.plugin.rasters import open_netcdf
from zstore_virtual.manifest import INLINE, Chunks, Manifest
from zstore_virtual.scan.draft import Draft
from zstore_virtual.scan.hdf5 import scan_hdf5
from zstore_virtual.scan.netcdf3 import open_classic, scan_classic
from zstore_virtual.scan.origin import Origin, Ranges, is_remote, open_origin

__all__ = ["scan_file"]

# The most bytes of an array's chunks that a manifest has itself, once they are fetched.
SMALL_SIZE = 1 << 14
HDF5 = b"\x89HDF\r\n\x1a\n"
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
TIFF = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def scan_file(
    path: str | os.PathLike[str],
    *,
    drop: Iterable[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    unreadable: MutableMapping[str, ZstoreError] | None = None,
    keeps_small: bool = False,
) -> Manifest:
    """The manifest of one NetCDF, HDF5 or GeoTIFF file, or of a Zarr hierarchy, at a path or URL.

    drop             variables to leave out, by name or path
    storage_options  for a URL
    unreadable       takes, by path, the errors of members of a Zarr hierarchy, which else are raised
    keeps_small      whether the manifest has the chunks of small arrays themselves where they came along with
                     the headers of a remote file, as those of coordinates mostly do

    Raises
        NotFoundError, StoreError: it is not there, or damaged.
        UnsupportedError: another format, or something that references cannot express, which is named.
    """
    address = os.fspath(path)
    dropped = frozenset(drop)
    is_folder = address.endswith("/") if is_remote(address) else os.path.isdir(address)  # noqa: PTH112 - False for a NUL
    try:
        if not is_folder:
            return _scan_file(address, dropped, storage_options, keeps_small=keeps_small)
    except NotFoundError:
        # In a bucket, a hierarchy is not one value but many below a prefix.
        if not is_remote(address):
            raise
    from zstore_virtual.scan.zarr import scan_zarr

    return scan_zarr(address, dropped, storage_options, unreadable)


def _scan_file(
    address: str, drop: frozenset[str], options: Mapping[str, Any] | None, *, keeps_small: bool
) -> Manifest:
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
        manifest = draft.finish()
        if keeps_small and origin.ranges is not None:
            for path, chunks in manifest.chunks.items():
                manifest.chunks[path] = _with_held(chunks, origin.ranges)
        return manifest


def _with_held(chunks: Chunks, ranges: Ranges) -> Chunks:
    """The references of an array, or its chunks themselves where they are small and held."""
    rows = np.flatnonzero(chunks.source >= 0)
    if not len(rows) or (chunks.size[rows] < 0).any() or chunks.size[rows].sum() > SMALL_SIZE:
        return chunks
    spans = zip(chunks.offset[rows].tolist(), chunks.size[rows].tolist(), strict=True)
    held = [ranges.held(*span) for span in spans]
    values = [value for value in held if value is not None]
    if len(values) < len(held):
        return chunks
    source, offset = chunks.source.copy(), chunks.offset.copy()
    ends = len(chunks.inline) + np.cumsum(chunks.size[rows])
    source[rows], offset[rows] = INLINE, ends - chunks.size[rows]
    return replace(chunks, source=source, offset=offset, inline=chunks.inline + b"".join(values))


def _is_hdf5(origin: Origin) -> bool:
    """Whether HDF5's signature is at the beginning, or at 512, 1024, 2048, … bytes, behind a user block."""
    at = 0
    while at + len(HDF5) <= origin.size:
        if origin.read(at, len(HDF5)) == HDF5:
            return True
        at = max(512, 2 * at)
    return False
