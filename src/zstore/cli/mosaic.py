"""`zstore mosaic`: rasters of any CRS, resolution and offset on one grid of the Earth."""

from __future__ import annotations

from typing import Any

import click

from zstore import GeoGrid
from zstore import mosaic as mosaic_rasters
from zstore.cli.options import above_option, grid_options, opened, view_command


@view_command("a mosaic", "sampling")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@grid_options("source")
@above_option
def mosaic(
    sources: tuple[str, ...], like: str | None, crs: Any, resolution: Any, above: bool, **options: Any
) -> Any:
    """Bring rasters of any CRS, resolution and offset to one grid, and store them as the group TARGET.

    One SOURCE is reprojected. Sources are rasters, arrays, or groups of one array.

    \b
    zstore mosaic zone32.zarr zone33.zarr both.zarr
    zstore mosaic zone32.zarr/b04 zone33.zarr/b04 both.zarr --above
    zstore mosaic b05_20m.tif b05_10m.zarr --like b04_10m.tif --resampling bilinear
    zstore mosaic scene.tif europe.zarr --crs EPSG:3035 --resolution 30
    """
    if like is not None and (crs, resolution) != (None, None):
        raise click.UsageError("--like is a whole grid; expected it without --crs and --resolution")
    rasters = [opened(source, above=above) for source in sources]
    grid = GeoGrid.around(rasters, crs=crs, resolution=resolution) if like is None else GeoGrid.of(like)
    return mosaic_rasters(rasters, grid, **options)
