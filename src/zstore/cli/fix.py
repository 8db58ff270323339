"""`zstore fix`: correct documents where that needs no judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zstore.cli.options import PLACE, WORDS, asked, json_option, number_of, say, storage_options
from zstore.extensions.builtin import PROFILES


@click.command()
@click.argument("path")
@storage_options
@click.option("--write", is_flag=True, help="Write the changes; without it they are only shown.")
@click.option("--dry-run", is_flag=True, help="Write nothing, as without --write.")
@click.option(
    "--profile", type=click.Choice(PROFILES), help="Convert `multiscales` to what this document wants."
)
@click.option("--crs", help="The CRS to write everywhere, where several are stated: EPSG:32632, WKT, ...")
@click.option(
    "--trust",
    **WORDS,
    help="What to believe where CRSs or positions contradict: GeoTransform, proj:code, coordinates, cf, ...",
)
@click.option("--method", help="How the levels were made, where nothing says it: average, nearest, ...")
@click.option(
    "--fill-value",
    type=number_of,
    metavar="NUMBER",
    help="What Zarr v3 arrays hold where no chunk is, where they do not say it; GDAL takes it for nodata.",
)
@click.option("--backup", **PLACE, help="New directory for copies of what is replaced.")
@click.option("--restore", **PLACE, help="Put back what a backup holds; nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show the differences.")
@json_option
def fix(
    path: str,
    write: bool,
    dry_run: bool,
    profile: str | None,
    crs: str | None,
    trust: list[str] | None,
    method: str | None,
    fill_value: int | float | None,
    backup: Path | None,
    restore: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fix documents and coordinates of PATH, never data: CRS, transforms, tile matrices, fill values.

    Fails while PATH has errors: those that are left, or, where nothing is written, those that are there.
    """
    from zstore import plan_fix, restore_backup
    from zstore.errors import clean
    from zstore.storage.url import open_store

    if write and dry_run:
        raise click.UsageError("--write and --dry-run say the opposite; expected one of them")
    if restore is not None:
        if write or dry_run or profile or crs or trust or method or backup or fill_value is not None:
            raise click.UsageError("--restore goes with no other option")
        count = restore_backup(path, restore)
        say(as_json, {"path": path, "keys_restored": count}, f"{path}: {count} keys as they were")
        return
    plan = plan_fix(path, profile, crs=crs, method=method, fill_value=fill_value, trust=trust or ())
    lines = [] if quiet else [clean(line) for line in plan.diff()]
    lines.append(str(plan))
    counts = [{kind: v.count(kind) for kind in ("error", "warning")} for v in (plan.before, plan.after)]
    has_work = bool(plan.changes) or plan.is_left
    place = None
    if has_work and write:
        with asked():
            place = plan.write(open_store(path), backup)
        lines.append(f"written; what was replaced is in {place}, and comes back with --restore")
    elif has_work:
        lines.append("nothing is written: pass --write to do it")
    document = {
        "path": path,
        "before": counts[0],
        "after": counts[1],
        "fixed": [_said(done) for done in plan.fixed],
        "left": [_said(done) for done in plan.refused],
        "keys_changed": len(plan.changes),
        "backup": place,
    }
    say(as_json, document, "\n".join(lines))
    if (plan.before if place is None else plan.after).count("error"):
        raise SystemExit(1)


def _said(done: Any) -> dict[str, str]:
    return {"rule": done.rule, "path": done.path, "message": done.message}
