"""`zstore reduce`: sums, means, extremes and the like of arrays along dimensions or by periods of time."""

from __future__ import annotations

import re
from typing import Any

import click

from zstore import reduce as reduce_array
from zstore.cli.options import (
    DTYPE,
    WORDS,
    above_option,
    how_options,
    number_of,
    plan_option,
    run_job,
    say,
    selected,
    selection_options,
    storage_options,
)
from zstore.errors import ZstoreError
from zstore.extensions.builtin import REDUCTIONS


def _nodata_of(value: str) -> int | float | str:
    """A number or "none"."""
    try:
        return value if value == "none" else number_of(value)
    except click.BadParameter:
        raise click.BadParameter(f"{value!r} is neither a number nor none") from None


def _rolling_of(value: str) -> dict[str | int, int]:
    """A dimension by its name or number, and the length of a window."""
    dim, _, length = value.rpartition("=")
    if not dim or not length.isdecimal():
        raise click.BadParameter(f"{value!r}; expected a dimension and a number of items, as time=30")
    return {int(dim) if re.fullmatch(r"-?\d+", dim) else dim: int(length)}


@click.command()
@click.argument("source")
@click.argument("target", required=False)
@storage_options
@click.option("--method", type=click.Choice(REDUCTIONS), default="mean", help="What is made.")
@click.option("--axis", **WORDS, help="Dimensions by number or name; all, where nothing is said.")
@click.option("--every", metavar="PERIOD", help="A result for each month, season, year, day, 10D, 6h, ...")
@click.option(
    "--by",
    type=click.Choice(["month", "season", "dayofyear", "hour"]),
    help="A result for each of these of all years.",
)
@click.option(
    "--rolling", type=_rolling_of, metavar="DIM=N", help="A result for each item, of a window of N items."
)
@click.option("--min-periods", type=int, metavar="N", help="So many valid items of a window suffice.")
@click.option("--center", is_flag=True, help="Windows lie around their items, and do not end there.")
@click.option(
    "--weights", metavar="NAME", help="Weights of means and sums: latitude, area, or an array of the group."
)
@click.option("--arrays", **WORDS, help="Arrays of a group by name; all, where nothing is said.")
@click.option(
    "--groups",
    metavar="PATH",
    help="An array of labels along these dimensions, such as the months of times or the zones of a raster.",
)
@click.option("--nodata", type=_nodata_of, metavar="N", help="The value that is left out; none: NaN counts.")
@click.option(
    "--unpack/--no-unpack",
    default=None,
    help="Undo scale, offset and nodata as the attributes say; of groups and periods, that is the default.",
)
@click.option("--keepdims", is_flag=True, help="Keep the dimensions that are reduced, of length 1.")
@click.option("--dtype", **DTYPE, help="Data type of the result: float32, ...")
@click.option("--ddof", type=int, default=0, help="Taken from the count, for var and std.")
@selection_options
@above_option
@plan_option
@how_options(reduce_array)
def reduce(
    source: str, target: str | None, method: str, axis: Any, groups: str | None, arrays: Any, **options: Any
) -> None:
    """Reduce SOURCE, an array or a group, along dimensions into TARGET; without TARGET, print the result.

    Of a group, all arrays of data are reduced, and TARGET is a group with their coordinates; so it is with
    --every and --by.

    \b
    zstore reduce era5.zarr/t2m mean.zarr --axis time
    zstore reduce era5.zarr/t2m june.zarr --axis time --select time=2020-06
    zstore reduce scene.zarr/red --method max --nodata 0
    zstore reduce era5.zarr months.zarr --every month
    zstore reduce era5.zarr climatology.zarr --by month --arrays t2m,tp
    zstore reduce era5.zarr smooth.zarr --rolling time=30 --min-periods 1
    zstore reduce era5.zarr/t2m series.zarr --every year --axis time,lat,lon --weights latitude
    """
    import numpy as np

    from zstore.nodes.group import Group
    from zstore.nodes.open import open_array

    as_json = options["as_json"]
    for word in ("plan", "overwrite", "resume", "durable"):
        if target is None and options[word]:
            raise click.UsageError(f"--{word} takes a TARGET")
    part = selected(source, options, arrays)
    arguments: dict[str, Any] = {}
    if axis is not None:
        arguments["axis"] = [int(one) if re.fullmatch(r"-?\d+", one) else one for one in axis]
    if groups is not None:
        arguments["groups"] = open_array(groups, mode="r")[...]
    try:
        path = source if target is None else target
        made = run_job(
            options, reduce_array, part, method, out=target, label="reducing", target=path, **arguments
        )
    except ZstoreError:
        raise
    except (ValueError, OverflowError, TypeError) as error:
        raise click.ClickException(str(error)) from error
    if target is None:
        items = np.asarray(made)
        said = items.astype(str if items.dtype.kind == "M" else object).tolist()
        document = {"shape": items.shape, "dtype": str(items.dtype), "items": said}
        say(as_json, document, np.array2string(items, threshold=1000))
    else:
        several = isinstance(made, Group)
        new = {f"{target}/{name}": one for name, one in made.arrays()} if several else {target: made}
        listed = [{"path": path, "shape": one.shape, "dtype": str(one.dtype)} for path, one in new.items()]
        lines = [f"{path} {one.shape} {one.dtype}" for path, one in new.items()]
        say(as_json, {"path": target, "arrays": listed} if several else listed[0], "\n".join(lines))
