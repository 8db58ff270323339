"""`zstore calc`: bands computed by an expression, and stored."""

from __future__ import annotations

from typing import Any

import click

from zstore import calculate
from zstore.cli.options import DTYPE, above_option, view_command


@view_command("a computation", "computing")
@click.argument("expression")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--dtype", **DTYPE, default="float64", help="Data type of physical numbers: float32, ...")
@above_option
def calc(expression: str, sources: tuple[str, ...], dtype: str, above: bool) -> Any:
    """Compute EXPRESSION of arrays on one grid, and store the numbers as the group TARGET.

    A SOURCE is NAME=PATH, for a name in the expression, or one group that has arrays of these names. Their
    numbers are physical: unpacked, and NaN for nodata; stored(NAME) has them as they are.

    \b
    zstore calc "(b5 - b4) / (b5 + b4)" scene.zarr ndvi.zarr --dtype float32
    zstore calc "where((stored(qa) & 3) == 0, t, nan)" t=a.zarr/t qa=b.zarr/qa clear.zarr
    """
    named = dict(source.split("=", 1) for source in sources if "=" in source)
    if len(named) < len(sources) and len(sources) > 1:
        raise click.UsageError("sources are NAME=PATH with different names, or one group; expected either")
    return calculate(expression, named or sources[0], dtype=dtype, above=above)
