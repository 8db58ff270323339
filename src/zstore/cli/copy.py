"""`zstore copy`: what a store holds, in another store."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import click

from zstore.base.sizes import format_size
from zstore.cli.options import (
    FILE,
    check_plan,
    json_option,
    one_of,
    plan_option,
    run_job,
    say,
    show_progress,
    storage_options,
)

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def _bandwidth_of(value: str) -> float:
    """Bytes a second, as 500K, 20M or 1.5G."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", value.upper().removesuffix("B"))
    if found is None or not float(found[1]):
        raise click.BadParameter(f"{value!r} is not so many bytes a second, like 500K, 20M or 1.5G")
    return float(found[1]) * UNITS[found[2]]


@click.command()
@click.argument("source")
@click.argument("target")
@storage_options
@click.option(
    "--if-exists",
    **one_of("error", "skip", "overwrite", "changed"),
    help="What becomes of keys that TARGET has; changed: overwrite those that differ.",
)
@click.option("--include", multiple=True, metavar="PATTERN", help="Copy keys that match, like 'red/*'.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out keys that match.")
@click.option("--delete", is_flag=True, help="Remove what TARGET has and SOURCE has not.")
@click.option("--resume", is_flag=True, help="Go on with a copy that was interrupted.")
@click.option("--check", is_flag=True, help="Read everything again from TARGET and compare hashes.")
@click.option("--manifest", **FILE, help="Write the hashes of all keys to this file.")
@click.option("--bandwidth", type=_bandwidth_of, metavar="N", help="Bytes a second at most: 500K, 20M, 1.5G.")
@click.option("--requests", "request_count", type=click.IntRange(min=1), help="Keys at a time at most.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@plan_option
@json_option
def copy(source: str, target: str, as_json: bool, **options: Any) -> None:
    """Copy all that SOURCE holds to TARGET, byte for byte: directories, zip files, buckets.

    Readers see the copy when it is whole. Patterns are of keys below SOURCE; * stands for anything.

    \b
    zstore copy scene.zarr s3://bucket/scene.zarr
    zstore copy scene.zarr scene.zip --check --manifest scene.sha256
    zstore copy scene.zarr mirror.zarr --if-exists changed --delete --dry-run
    """
    from zstore.jobs.upkeep.copy import copy as copy_store

    check_plan(options)
    with show_progress("copying", unit="bytes") as progress:
        done = run_job(copy_store, source, target, progress=progress, as_json=as_json, **options)
    words = [f"{done.key_count} keys ({format_size(done.size)}) {_verb(options, 'to copy', 'copied')}"]
    if done.compared_count:
        words.append(f"{done.compared_count} to compare")
    if done.kept_count:
        words.append(f"{done.kept_count} kept")
    if done.deleted_count:
        words.append(f"{done.deleted_count} {_verb(options, 'to remove', 'removed')}")
    text = f"{target}: {', '.join(words)}"
    if done.root is not None:
        text += f"\n{options['manifest']}: root {done.root}"
    said = {"source": source, "target": target, "is_dry_run": options["dry_run"], **asdict(done)}
    say(as_json, said, text)


def _verb(options: dict[str, Any], planned: str, done: str) -> str:
    return planned if options["dry_run"] else done
