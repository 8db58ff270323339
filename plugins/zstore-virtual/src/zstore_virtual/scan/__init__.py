"""Scans files of other formats: reads the index of their chunks and makes a manifest of it."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_codecs", "register_commands"]

CODECS = ("Delta", "Floatpred", "Lz4h5", "Lzf", "Lzw", "Packbits", "Packints", "Szip")


@hookimpl
def register_codecs() -> list[Offer]:
    """Codecs of HDF5 and TIFF; most have the names under which imagecodecs registers them with numcodecs."""
    return [
        Offer("zstore.hdf5_shuffle", "zstore_virtual.scan.codecs:Hdf5Shuffle"),
        Offer("zstore.tiff_predictor", "zstore_virtual.scan.codecs:TiffPredictor"),
        *(
            Offer(f"numcodecs.imagecodecs_{name.lower()}", f"zstore_virtual.scan.codecs:{name}")
            for name in CODECS
        ),
    ]


@hookimpl
def register_commands() -> list[Offer]:
    """The command `zstore virtualize`."""
    summary = "Write references to the chunks of NetCDF, HDF5, GeoTIFF and Zarr files."
    return [Offer("virtualize", "zstore_virtual.scan.command:virtualize", summary=summary)]
