"""`zstore mosaic`: rasters of any CRS, resolution and offset on one grid of the Earth."""

from __future__ import annotations

from typing import Any

import click

from zstore import GeoGrid
from zstore import convert as convert_zarr
from zstore import mosaic as mosaic_rasters
from zstore.cli.options import (
    asked,
    check_options,
    cutting_options,
    grid_options,
    how_options,
    storage_options,
    store_view,
)

# The options that say what is shown; the others say how it is stored, and are arguments of `convert`.
ARGUMENTS = {
    **dict.fromkeys(("crs", "resolution", "like", "resampling", "nodata", "first"), ()),
    "codec": ("compressors",),
}


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target")
@storage_options
@cutting_options
@grid_options("source")
@how_options(convert_zarr)
@click.pass_context
def mosaic(ctx: click.Context, /, sources: tuple[str, ...], target: str, **options: Any) -> None:
    """Bring rasters of any CRS, resolution and offset to one grid, and store them as the group TARGET.

    One SOURCE is reprojected. Sources are rasters, arrays, or groups of one array.

    \b
    zstore mosaic zone32.zarr/b04 zone33.zarr/b04 both.zarr
    zstore mosaic b05_20m.tif b05_10m.zarr --like b04_10m.tif --resampling bilinear
    zstore mosaic scene.tif europe.zarr --crs EPSG:3035 --resolution 30
    """
    check_options(ctx, convert_zarr, "a mosaic", ARGUMENTS)
    if options["like"] is not None and (options["crs"], options["resolution"]) != (None, None):
        raise click.UsageError("--like is a whole grid; expected it without --crs and --resolution")
    with asked():
        if options["like"] is not None:
            grid = GeoGrid.of(options["like"])
        else:
            grid = GeoGrid.around(sources, crs=options["crs"], resolution=options["resolution"])
        how = {name: options[name] for name in ("resampling", "nodata", "first")}
        shown = mosaic_rasters(sources, grid, **how)
    store_view(options, shown, target, label="sampling")
