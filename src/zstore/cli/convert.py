"""`zstore convert`: rasters to Zarr and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zstore.cli.options import WORDS, codec_of, cutting_options, show_progress
from zstore.report.summary import format_size

__all__ = ["convert"]

RASTER_SUFFIXES = (".tif", ".tiff")
ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")


@click.command()
@click.argument("source")
@click.argument("target")
@cutting_options
@click.option("--pyramid", is_flag=True, help="Make levels until the coarsest fits one chunk.")
@click.option("--method", default="average", show_default=True, help="How coarser levels are made.")
@click.option("--bands", **WORDS, help="Bands of the raster by number, or arrays of the Zarr by name.")
@click.option("--level", type=click.IntRange(min=0), default=0, help="Level to write as a raster.")
@click.option("--cog", is_flag=True, help="Write the raster as a cloud-optimised GeoTIFF.")
def convert(source: str, target: str, **options: Any) -> None:
    """Make a Zarr of a raster, or a GeoTIFF of a Zarr where TARGET ends in .tif."""
    if target.lower().endswith(RASTER_SUFFIXES):
        _to_raster(source, target, **options)
    elif any((Path(source) / mark).exists() for mark in ZARR_MARKS):
        raise click.UsageError(
            "SOURCE is a Zarr: TARGET must end in .tif (`zstore pyramid` makes a Zarr of it)"
        )
    else:
        _to_zarr(source, target, **options)


def _to_raster(source: str, target: str, **options: Any) -> None:
    from zstore.integrations.raster import zarr_to_raster

    with show_progress("writing") as progress:
        path = zarr_to_raster(
            source,
            target,
            level=options["level"],
            driver="COG" if options["cog"] else "GTiff",
            arrays=options["bands"],
            compress={None: "deflate", "none": None}.get(options["codec"], options["codec"]),
            overwrite=options["overwrite"],
            progress=progress,
        )
    click.echo(f"{path}: {format_size(path.stat().st_size)}")


def _to_zarr(source: str, target: str, **options: Any) -> None:
    from zstore.integrations.raster import raster_to_zarr

    bands = options["bands"]
    if bands is not None and not all(band.isdecimal() for band in bands):
        raise click.BadParameter(
            f"{','.join(bands)!r}; expected numbers of bands, like 3,2,1", param_hint="--bands"
        )
    levels = options["levels"]
    with show_progress("converting") as progress:
        group = raster_to_zarr(
            source,
            target,
            zarr_format=int(options["zarr_format"] or 3),
            chunks=options["chunks"] or 256,
            shards=options["shards"],
            compressors=codec_of(options["codec"]),
            bands=None if bands is None else [int(band) for band in bands],
            levels=levels if levels is not None else None if options["pyramid"] else 0,
            method=options["method"],
            overwrite=options["overwrite"],
            profile=options["profile"],
            progress=progress,
        )
    click.echo(str(group.tree()))
