"""`zstore fix`: fixing what is mechanical."""

from __future__ import annotations

from pathlib import Path

import click

from zstore.cli.options import PLACE, storage_options
from zstore.conventions.profiles import RULED


def _number_of(value: str) -> int | float:
    """An integer as it is, however large; else a float, NaN among them."""
    try:
        return int(value)
    except ValueError:
        return float(value)


@click.command()
@click.argument("path")
@storage_options
@click.option("--write", is_flag=True, help="Write the changes; without it they are only shown.")
@click.option(
    "--profile", type=click.Choice(RULED), help="Convert `multiscales` to what this document wants."
)
@click.option("--crs", help="The CRS to write everywhere, where several are stated: EPSG:32632, WKT, ...")
@click.option("--method", help="How the levels were made, where nothing says it: average, nearest, ...")
@click.option(
    "--fill-value",
    type=_number_of,
    metavar="NUMBER",
    help="What Zarr v3 arrays hold where no chunk is, where they do not say it; GDAL takes it for nodata.",
)
@click.option("--backup", **PLACE, help="New directory for copies of what is replaced.")
@click.option("--restore", **PLACE, help="Put back what a backup holds; nothing else.")
@click.option("--quiet", is_flag=True, help="Do not show the differences.")
def fix(
    path: str,
    write: bool,
    profile: str | None,
    crs: str | None,
    method: str | None,
    fill_value: int | float | None,
    backup: Path | None,
    restore: Path | None,
    quiet: bool,
) -> None:
    """Fix documents and coordinates of PATH, never data: CRS, transforms, tile matrices, fill values.

    Fails while PATH has errors: those that are left, or, where nothing is written, those that are there.
    """
    from zstore.storage.url import open_store
    from zstore.validation.fixing.fix import plan_fix
    from zstore.validation.fixing.write import backup_place, restore_backup, write_plan
    from zstore.validation.verdict import clean

    if restore is not None:
        if write or profile or crs or method or backup or fill_value is not None:
            raise click.UsageError("--restore goes with no other option")
        count = restore_backup(open_store(path), restore)
        click.echo(f"{path}: {count} keys as they were")
        return
    plan = plan_fix(path, profile, crs=crs, method=method, fill_value=fill_value)
    for line in () if quiet else plan.diff():
        click.echo(clean(line))
    for done in plan.fixed:
        click.echo(f"fixed {done.rule} /{clean(done.path)}: {clean(done.message)}")
    for done in plan.refused:
        click.echo(f"left {done.rule} /{clean(done.path)}: {clean(done.message)}")
    counts = [
        f"{v.count('error')} errors and {v.count('warning')} warnings" for v in (plan.before, plan.after)
    ]
    click.echo(f"{path}: {counts[0]} before, {counts[1]} after; {len(plan.changes)} keys change")
    has_work = bool(plan.changes) or plan.is_left
    if has_work and not write:
        click.echo("nothing is written: pass --write to do it")
    if not has_work or not write:
        raise SystemExit(1 if plan.before.count("error") else 0)
    store = open_store(path)
    place = backup_place(store) if backup is None else backup
    write_plan(plan, store, place)
    click.echo(f"written; what was replaced is in {place}, and comes back with --restore")
    if plan.after.count("error"):
        raise SystemExit(1)
