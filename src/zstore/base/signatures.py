"""Files told by their names and first bytes."""

from __future__ import annotations

import os
from pathlib import Path

# Of classic NetCDF: CDF-1, CDF-2 and CDF-5.
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
HDF5 = b"\x89HDF\r\n\x1a\n"
SUFFIXES = (".nc", ".nc3", ".nc4", ".cdf", ".h5", ".hdf5", ".he5")


def is_netcdf(path: str | os.PathLike[str]) -> bool:
    """Whether a file is named and begins as NetCDF (of any version) or HDF5."""
    place = Path(path)
    if place.suffix.lower() not in SUFFIXES or not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(HDF5)).startswith((HDF5, *CLASSIC))
