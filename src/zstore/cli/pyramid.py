"""`zstore pyramid`: coarser levels."""

from __future__ import annotations

from typing import Any

import click

import zstore as library
from zstore.cli.options import LENGTHS, codec_of, cutting_options, show_progress

__all__ = ["pyramid"]


@click.command()
@click.argument("source")
@click.argument("target", required=False)
@cutting_options
@click.option(
    "--method", "methods", multiple=True, help="average, nearest, mode, ... for all, or NAME=METHOD."
)
@click.option("--nodata", type=float, help="The value that means nothing is there.")
@click.option(
    "--factors", **LENGTHS, default="2", show_default=True, help="Cells of a level to one of the next."
)
@click.option("--derive", type=click.Choice(["cascade", "base"]), default="cascade", show_default=True)
@click.option("--grid", type=click.Choice(["aligned", "gdal"]), default="aligned", show_default=True)
def pyramid(source: str, target: str | None, **options: Any) -> None:
    """Make coarser levels of SOURCE: beside its finest level, or with it in TARGET."""
    chosen = {name: method for name, _, method in (m.rpartition("=") for m in options["methods"])}
    with show_progress("making levels") as progress:
        group = library.build_pyramid(
            source,
            target,
            levels=options["levels"],
            method=chosen or "average",
            nodata="auto" if options["nodata"] is None else options["nodata"],
            factors=options["factors"],
            chunks=options["chunks"],
            shards=options["shards"] or "auto",
            compressors=codec_of(options["codec"]),
            zarr_format=None if options["zarr_format"] is None else int(options["zarr_format"]),
            derive=options["derive"],
            grid=options["grid"],
            copy_base=None if target is None else True,
            overwrite=options["overwrite"],
            progress=progress,
        )
    click.echo(str(group.tree()))
