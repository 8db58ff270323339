"""One file of any format that can be scanned, as a manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from zstore.errors import NotFoundError, UnsupportedError
from zstore.integrations.rasters.netcdf import open_netcdf
from zstore.integrations.rasters.netcdf_classic import ClassicFile
from zstore_virtual.manifest import Manifest
from zstore_virtual.scan.draft import Draft
from zstore_virtual.scan.hdf5 import scan_hdf5
from zstore_virtual.scan.netcdf3 import scan_classic

__all__ = ["scan_file"]

HDF5 = b"\x89HDF\r\n\x1a\n"
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
TIFF = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def scan_file(path: str | os.PathLike[str], *, drop: Iterable[str] = ()) -> Manifest:
    """The manifest of one NetCDF, HDF5 or GeoTIFF file, or of a Zarr hierarchy.

    drop  variables to leave out, by name or path

    Raises
        NotFoundError, StoreError: it is not there, or damaged.
        UnsupportedError: another format, or something that references cannot say, which is named.
    """
    place = os.fspath(path)
    left_out = frozenset(drop)
    if "://" not in place and not Path(place).exists():
        raise NotFoundError("nothing there to scan", path=place)
    if "://" in place or Path(place).is_dir():
        from zstore_virtual.scan.zarr import scan_zarr

        return scan_zarr(place, left_out)
    draft = Draft()
    with Path(place).open("rb") as file:
        begin = file.read(4)
    if begin in TIFF:
        from zstore_virtual.scan.tiff import scan_tiff

        scan_tiff(place, draft, left_out)
    elif begin in CLASSIC or _is_hdf5(place):
        with open_netcdf(place) as found:
            if isinstance(found, ClassicFile):
                scan_classic(found, place, draft, left_out)
            else:
                scan_hdf5(found, place, draft, left_out)
    else:
        expected = "expected NetCDF, HDF5, GeoTIFF or a Zarr hierarchy"
        raise UnsupportedError(f"file begins with {begin!r}; {expected}", path=place)
    return draft.finish()


def _is_hdf5(path: str) -> bool:
    """Whether HDF5's signature stands at the beginning, or behind a block of the user's."""
    size, at = Path(path).stat().st_size, 0
    with Path(path).open("rb") as file:
        while at + len(HDF5) <= size:
            file.seek(at)
            if file.read(len(HDF5)) == HDF5:
                return True
            at = max(512, 2 * at)
    return False
