"""`zstore reduce`: sums, means, extremes and the like of an array along dimensions."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from zstore.base.sizes import format_size
from zstore.cli.options import (
    WORDS,
    check_plan,
    json_option,
    plan_option,
    run_job,
    say,
    show_progress,
    storage_options,
)
from zstore.jobs.reduction.methods import METHODS


def _nodata_of(value: str) -> int | float | str:
    """A number or "none"."""
    if value == "none":
        return value
    try:
        return int(value) if value.lstrip("+-").isdecimal() else float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor none") from None


def _dtype_of(value: str) -> str:
    """The name of a data type of numpy."""
    import numpy as np

    try:
        np.dtype(value)
    except TypeError:
        names = [np.dtype(code).name for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"]]
        near = get_close_matches(value, names, 1)
        meant = f"did you mean {near[0]!r}?" if near else "expected one like float32"
        raise click.BadParameter(f"{value!r} is no data type; {meant}") from None
    return value


@click.command()
@click.argument("source")
@click.argument("target", required=False)
@storage_options
@click.option("--method", type=click.Choice(METHODS), default="mean", help="What is made.")
@click.option("--axis", **WORDS, help="Dimensions by number or name; all, where nothing is said.")
@click.option(
    "--groups",
    metavar="PATH",
    help="An array of labels along these dimensions, such as the months of times or the zones of a raster.",
)
@click.option("--nodata", type=_nodata_of, metavar="N", help="The value that is left out; none: NaN counts.")
@click.option("--unpack", is_flag=True, help="Undo scale, offset and nodata as the attributes say.")
@click.option("--keepdims", is_flag=True, help="Keep the dimensions that are reduced, of length 1.")
@click.option("--dtype", type=_dtype_of, metavar="NAME", help="Data type of the result: float32, ...")
@click.option("--ddof", type=int, default=0, help="Taken from the count, for var and std.")
@click.option("--overwrite", is_flag=True, help="Replace what is at TARGET.")
@click.option("--resume", is_flag=True, help="Go on with what was interrupted at TARGET.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@plan_option
@json_option
def reduce(
    source: str,
    target: str | None,
    axis: Any,
    groups: str | None,
    dry_run: bool,
    overwrite: bool,
    resume: bool,
    plan: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Reduce the array SOURCE along dimensions into a new array TARGET; without TARGET, print the result.

    \b
    zstore reduce era5.zarr/t2m mean.zarr --axis time
    zstore reduce scene.zarr/red --method max --nodata 0
    """
    import numpy as np

    from zstore.jobs.reduction.reduce import plan_reduction
    from zstore.jobs.reduction.reduce import reduce as reduce_array
    from zstore.nodes.open import open_array

    check_plan({"plan": plan, "dry_run": dry_run})
    if plan is not None and target is None:
        raise click.UsageError("--plan takes a TARGET")
    method = options.pop("method")
    if axis is not None:
        options["axis"] = [int(one) if re.fullmatch(r"-?\d+", one) else one for one in axis]
    if groups is not None:
        options["groups"] = open_array(groups, mode="r")[...]
    try:
        if dry_run:
            _show(plan_reduction(open_array(source, mode="r"), method, **options), as_json)
            return
        with show_progress("reducing") as progress:
            options |= {"overwrite": overwrite, "resume": resume, "plan": plan, "as_json": as_json}
            made = run_job(reduce_array, source, method, out=target, progress=progress, **options)
    except (ValueError, OverflowError, TypeError) as error:
        raise click.ClickException(str(error)) from error
    if target is None:
        items = np.asarray(made)
        document = {"shape": items.shape, "dtype": str(items.dtype), "items": items.astype(object).tolist()}
        say(as_json, document, np.array2string(items, threshold=1000))
    else:
        document = {"path": target, "shape": made.shape, "dtype": str(made.dtype)}
        say(as_json, document, f"{target} {made.shape} {made.dtype}")


def _show(planned: Any, as_json: bool) -> None:
    found = planned.estimate()
    document = {"shape": planned.shape, "dtype": str(planned.dtype), **found.as_json()}
    lines = (
        f"result  {planned.shape} {planned.dtype}",
        f"reads   {format_size(found.read_size)} decoded, in {found.unit_count} units",
        f"writes  {format_size(found.write_size)}",
        f"holds   {format_size(found.memory_size)} beside the result",
        f"keeps   {format_size(found.scratch_size)} at the target, until it ends",
    )
    say(as_json, document, "\n".join(lines))
