"""`zstore reduce`: sums, means, extremes and the like of an array, along some of its dimensions."""

from __future__ import annotations

from typing import Any

import click

from zstore.cli.options import WORDS, show_progress
from zstore.reduction.methods import METHODS
from zstore.report.summary import format_size


def _nodata_of(value: Any) -> Any:
    """A number, or the word "none"."""
    if not isinstance(value, str) or value == "none":
        return value
    try:
        return int(value) if value.lstrip("+-").isdecimal() else float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor none") from None


@click.command()
@click.argument("source")
@click.argument("target", required=False)
@click.option("--method", type=click.Choice(METHODS), default="mean", show_default=True, help="What is made.")
@click.option("--axis", **WORDS, help="Dimensions by number or name; all, where nothing is said.")
@click.option(
    "--groups",
    metavar="PATH",
    help="An array of labels along these dimensions, such as the months of times or the zones of a raster.",
)
@click.option("--nodata", type=_nodata_of, metavar="N", help="The value that is left out; none: NaN counts.")
@click.option("--unpack", is_flag=True, help="Undo scale, offset and nodata as the attributes say.")
@click.option("--keepdims", is_flag=True, help="Keep the dimensions that are reduced, of length 1.")
@click.option("--dtype", help="Data type of the result.")
@click.option("--ddof", type=int, default=0, show_default=True, help="Taken from the count, for var and std.")
@click.option("--overwrite", is_flag=True, help="Replace what is at TARGET.")
@click.option("--resume", is_flag=True, help="Go on with what was interrupted at TARGET.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def reduce(
    source: str,
    target: str | None,
    axis: Any,
    groups: str | None,
    dry_run: bool,
    overwrite: bool,
    resume: bool,
    **options: Any,
) -> None:
    """Reduce the array SOURCE along dimensions into a new array TARGET; without TARGET, print the result.

    \b
    zstore reduce era5.zarr/t2m mean.zarr --axis time
    zstore reduce scene.zarr/red --method max --nodata 0
    """
    import numpy as np

    from zstore.nodes.open import open_array
    from zstore.reduction.reduce import Request, plan_reduction
    from zstore.reduction.reduce import reduce as reduce_array

    method = options.pop("method")
    if axis is not None:
        options["axis"] = [int(one) if one.lstrip("-").isdecimal() else one for one in axis]
    if groups is not None:
        options["groups"] = open_array(groups, mode="r")[...]
    try:
        if dry_run:
            _show(plan_reduction(open_array(source, mode="r"), Request(method, **options)))
            return
        with show_progress("reducing") as progress:
            options |= {"overwrite": overwrite, "resume": resume}
            made = reduce_array(source, method, out=target, progress=progress, **options)
    except (ValueError, OverflowError, TypeError) as error:
        raise click.ClickException(str(error)) from error
    if target is None:
        click.echo(np.array2string(np.asarray(made), threshold=1000))
    else:
        click.echo(f"{target} {made.shape} {made.dtype}")


def _show(planned: Any) -> None:
    found = planned.estimate()
    click.echo(f"result  {planned.shape} {planned.dtype}")
    click.echo(f"reads   {format_size(found.read_size)} decoded, in {found.unit_count} units")
    click.echo(f"writes  {format_size(found.write_size)}")
    click.echo(f"holds   {format_size(found.memory_size)} beside the result")
    click.echo(f"keeps   {format_size(found.scratch_size)} at the target, until it ends")
