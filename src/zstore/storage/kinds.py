"""Kinds of files: their endings and first bytes, and the commands that read and write them.

A Zarr in a directory may have any other name; what an ending promises is kept, or refused before anything is
made (`check_target`).
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from errno import ENOENT
from pathlib import Path
from typing import NamedTuple

from zstore.base.once import look_up
from zstore.errors import StoreError

# Of classic NetCDF: CDF-1, CDF-2 and CDF-5.
CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
HDF5 = b"\x89HDF\r\n\x1a\n"
# Of a file, as many first bytes as any mark has.
MARK_SIZE = 16
NO_STORE = "it is no store; a Zarr is a directory, a .zip file or a URL"
# How like another an unknown ending is that is taken for a slip.
LIKENESS = 0.85


class FileKind(NamedTuple):
    """A kind of files: how one is recognized, and the store that opens it.

    noun     in messages
    endings  of names, in small letters
    marks    the first bytes, any of these
    reading  advice for whoever has one at `path`
    writing  advice for whoever wants one of a `name`
    scheme   of the store that opens one
    """

    noun: str
    endings: tuple[str, ...] = ()
    marks: tuple[bytes, ...] = ()
    reading: str = NO_STORE
    writing: str = ""
    scheme: str | None = None

    @property
    def named(self) -> str:
        """The noun, with the endings that its name may have."""
        return f"{self.noun}, named {' or '.join(f'*{ending}' for ending in self.endings[:2])}"


ZSTORE = FileKind("a Zarr", (".zarr",), writing="`zstore convert SOURCE {name}` makes one")
ZIP = FileKind(
    "a zip file",
    (".zip",),
    (b"PK\3\4",),
    "open it as 'zip::{path}'",
    "`zstore copy SOURCE {name}` makes one of a Zarr",
    "zip",
)
REFERENCES = FileKind(
    "a file of references",
    (".json", ".vzarr", ".parq", ".parquet"),
    writing="`zstore virtualize SOURCE {name}` writes one for files",
    scheme="virtual",
)
N5 = FileKind(
    "an N5 hierarchy",
    (".n5",),
    writing="nothing here writes N5; `zstore convert SOURCE NAME.zarr` makes a Zarr",
    scheme="n5",
)
VIEW = FileKind("a view", (".view.json",), writing="`View.save` of a zstore view stores one", scheme="view")
NETCDF = FileKind(
    "a NetCDF file",
    (".nc", ".nc4", ".nc3", ".cdf", ".netcdf"),
    CLASSIC,
    writing="`zstore convert SOURCE {name}`, or zstore.zarr_to_netcdf, makes one",
    scheme="netcdf",
)
HDF = FileKind(
    "an HDF5 file",
    (".h5", ".hdf5", ".he5", ".hdf"),
    (HDF5,),
    writing="HDF5 is written as NetCDF-4: `zstore convert SOURCE NAME.nc`",
    scheme="netcdf",
)
GEOTIFF = FileKind(
    "a GeoTIFF",
    (".tif", ".tiff", ".gtiff", ".geotiff"),
    (b"II*\0", b"II+\0", b"MM\0*", b"MM\0+"),
    writing="`zstore convert SOURCE {name}`, or zstore.zarr_to_raster, makes one of a raster",
    scheme="raster",
)
PICTURE = FileKind(
    "a PNG file",
    (".png",),
    (b"\x89PNG",),
    writing="`zstore quicklook SOURCE -o {name}` makes one of a raster",
    scheme="raster",
)
TILES = FileKind(
    "an archive of tiles", (".pmtiles", ".mbtiles"), writing="`zstore export SOURCE {name}` makes one"
)
KINDS = (
    ZSTORE,
    ZIP,
    FileKind("an empty zip file", (), (b"PK\5\6",), "open it as 'zip::{path}'"),
    TILES,
    FileKind(
        "an SQLite file",
        (),
        (b"SQLite format 3\0",),
        "open it as 'sqlite://{path}' (plugin zstore-sqlite)",
    ),
    GEOTIFF,
    PICTURE,
    FileKind(
        "a JPEG file",
        (".jpg", ".jpeg", ".webp", ".gif"),
        (b"\xff\xd8\xff",),
        writing="pictures are PNG: `zstore quicklook SOURCE -o NAME.png`",
        scheme="raster",
    ),
    FileKind(
        "a raster",
        (".vrt", ".jp2", ".img", ".ecw", ".bil"),
        writing="rasters are GeoTIFFs: `zstore convert SOURCE NAME.tif`",
        scheme="raster",
    ),
    FileKind(
        "a GRIB file",
        (".grib", ".grb", ".grib2", ".grb2"),
        (b"GRIB",),
        "`zstore convert {path} NAME.zarr` makes a Zarr of it",
        writing="nothing here writes GRIB; `zstore convert SOURCE NAME.zarr` makes a Zarr",
    ),
    HDF,
    NETCDF,
    REFERENCES,
    N5,
    VIEW,
    FileKind(
        "a table or text",
        (".csv", ".tsv", ".txt", ".xlsx", ".md", ".xml", ".yaml", ".yml"),
        reading="pandas reads a table: pandas.read_csv('{path}').to_xarray().zstore.to_zarr('NAME.zarr')",
        writing="nothing here writes one; `zstore convert SOURCE NAME.zarr` makes a Zarr",
    ),
    FileKind(
        "a file of arrays of another library",
        (".npy", ".npz", ".mat", ".pkl", ".pt"),
        reading="numpy reads an array: zstore.create_array('NAME.zarr', data=numpy.load('{path}'))",
        writing="nothing here writes one; numpy does: numpy.save('NAME.npy', zstore.open(SOURCE)[...])",
    ),
    FileKind(
        "an archive",
        (".tar", ".gz", ".tgz", ".7z", ".bz2", ".xz", ".zst", ".rar"),
        reading="unpack it first, as `gunzip -k '{path}'` does with .gz",
        writing="archives are zip files: `zstore copy SOURCE NAME.zip`",
    ),
)
# Of files without any sign.
OTHER = FileKind("a file")
_BY_ENDING = {ending: kind for kind in KINDS for ending in kind.endings}


def kind_by_name(name: str) -> FileKind | None:
    """The kind of files whose ending a path or URL has; None for a Zarr store and for unknown endings."""
    return look_up(_BY_ENDING, ending_of(name))


def kind_of_file(path: str | os.PathLike[str]) -> FileKind:
    """The kind of the file at a path, by its first bytes, else by its ending."""
    with Path(path).open("rb") as file:
        begin = file.read(MARK_SIZE)
    return kind_by_mark(begin) or kind_by_name(os.fspath(path)) or OTHER


def say_file(place: Path) -> str:
    """The end of an error message: the file at or above a path where a directory was expected."""
    obstacle = next((path for path in (place, *place.parents) if path.is_file()), None)
    if obstacle is None:
        return ""
    kind = kind_of_file(obstacle)
    return f", found {kind.noun} at {str(obstacle)!r}: {kind.reading.format(path=obstacle)}"


def kind_by_mark(begin: bytes) -> FileKind | None:
    """The kind of the files that begin so; None for others."""
    return next((kind for kind in KINDS if any(begin.startswith(mark) for mark in kind.marks)), None)


def ending_of(name: str) -> str:
    """The ending of a path or URL, in small letters, with its point; "" if there is none."""
    last = name.rstrip("/").rpartition("/")[2]
    if last.lower().endswith(VIEW.endings[0]):
        return VIEW.endings[0]
    stem, point, ending = last.rpartition(".")
    return f".{ending.lower()}" if point and stem else ""


def check_target(name: str, kind: FileKind = ZSTORE) -> None:
    """Refuse a name for a new file or directory that promises one of another kind, or misspells a promise.

    Raises
        StoreError: the name's ending is another kind's; says what makes such a file.
    """
    name = name.rstrip("/")
    ending = ending_of(name)
    promised = _BY_ENDING.get(ending)
    if promised is kind or (promised is ZIP and kind is ZSTORE):
        return
    said = f"{ending!r} is the ending of"
    if promised is None:
        near = get_close_matches(ending, _BY_ENDING, 1, LIKENESS) if ending else []
        if not near or near[0] in ZSTORE.endings:
            return
        promised, said = _BY_ENDING[near[0]], f"{ending!r} is nearly {near[0]!r}, the ending of"
        name = f"{name[: -len(ending)]}{near[0]}"
    advice = promised.writing.format(name=name)
    error = StoreError(f"{said} {promised.noun}: {advice}; expected {kind.named}", path=name)
    error.errno = ENOENT
    raise error


def local_path(target: str | os.PathLike[str]) -> Path:
    """The path of a file or folder that is made on a disk of this machine.

    Raises
        StoreError: it is a URL, of which a path would be a folder that is named like the scheme.
    """
    if "://" in os.fspath(target):
        raise StoreError("expected a path on a disk, not a URL", path=os.fspath(target))
    return Path(target)


def is_netcdf(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as NetCDF (of any version) or HDF5."""
    place = Path(path)
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(HDF5)).startswith((HDF5, *CLASSIC))
