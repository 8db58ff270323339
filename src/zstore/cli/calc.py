"""`zstore calc`: bands computed by an expression, and stored."""

from __future__ import annotations

from typing import Any

import click

from zstore import calculate
from zstore import convert as convert_zarr
from zstore.cli.options import (
    above_option,
    asked,
    check_options,
    cutting_options,
    how_options,
    storage_options,
    store_view,
)

# The options that say what is computed; the others say how it is stored, and are arguments of `convert`.
ARGUMENTS = {**dict.fromkeys(("dtype", "above"), ()), "codec": ("compressors",)}


@click.command()
@click.argument("expression")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target")
@storage_options
@cutting_options
@click.option(
    "--dtype", metavar="NAME", default="float64", help="Data type of physical numbers: float32, ..."
)
@above_option
@how_options(convert_zarr)
@click.pass_context
def calc(
    ctx: click.Context, /, expression: str, sources: tuple[str, ...], target: str, **options: Any
) -> None:
    """Compute EXPRESSION of arrays on one grid, and store the numbers as the group TARGET.

    A SOURCE is NAME=PATH, for a name in the expression, or one group that has arrays of these names. Their
    numbers are physical: unpacked, and NaN for nodata; stored(NAME) has them as they are.

    \b
    zstore calc "(b5 - b4) / (b5 + b4)" scene.zarr ndvi.zarr --dtype float32
    zstore calc "where((stored(qa) & 3) == 0, t, nan)" t=a.zarr/t qa=b.zarr/qa clear.zarr
    """
    check_options(ctx, convert_zarr, "a computation", ARGUMENTS)
    named = dict(source.split("=", 1) for source in sources if "=" in source)
    if len(named) < len(sources) and len(sources) > 1:
        raise click.UsageError("sources are NAME=PATH with different names, or one group; expected either")
    with asked():
        shown = calculate(expression, named or sources[0], dtype=options["dtype"], above=options["above"])
    store_view(options, shown, target, label="computing")
