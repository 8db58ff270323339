"""`zstore cube`: scenes that STAC items list, sorted into time on one grid of the Earth."""

from __future__ import annotations

from typing import Any

import click

from zstore import cube as cube_of_items
from zstore.cli.options import NUMBERS, WORDS, grid_options, one_of, view_command


@view_command("a cube", "sampling")
@click.argument("items", nargs=-1, required=True)
@click.option("--bands", **WORDS, help="Keys of assets or names of bands; without it, the only raster.")
@click.option("--time", **one_of("day", "item", "orbit"), help="What is one moment: a day's scenes together.")
@grid_options("scene")
@click.option(
    "--merge",
    type=click.Choice(["mean", "median", "min", "max"]),
    help="What is made of valid cells of one moment.",
)
@click.option("--unpack", is_flag=True, help="Store physical numbers: scale and offset are applied.")
@click.option("--mask", metavar="BAND", help="A band of classes or flags, by which cells are left out.")
@click.option("--mask-values", **NUMBERS, help="Classes of --mask that are left out, like 3,8,9.")
@click.option("--mask-bits", **NUMBERS, help="Bits of --mask that are left out, 0 the lowest.")
def cube(
    items: tuple[str, ...], like: str | None, bands: Any, mask_values: Any, mask_bits: Any, **options: Any
) -> Any:
    """Store the scenes of ITEMS, JSON files of STAC items, along time on one grid, as the group TARGET.

    \b
    zstore cube items.json cube.zarr --bands B04 --crs EPSG:3035 --resolution 30
    zstore cube items.json clear.zarr --bands B04,B08 --mask SCL --mask-values 3,8,9 --unpack --merge median
    zstore cube items.json cube.zarr --bands red,nir --storage-option allow=https://example.com/scenes
    """
    if like is not None and (options["crs"], options["resolution"]) != (None, None):
        raise click.UsageError("--like is a whole grid; expected it without --crs and --resolution")
    if bands is not None and len(bands) == 1:
        bands = bands[0]
    options |= {"mask_values": mask_values or (), "mask_bits": mask_bits or ()}
    return cube_of_items(items[0] if len(items) == 1 else items, like, bands, **options)
