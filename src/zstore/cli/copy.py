"""`zstore copy`: the content of one store in another."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import click

from zstore import copy as copy_store
from zstore.base.sizes import format_size
from zstore.cli.options import (
    FILE,
    how_options,
    plan_option,
    run_job,
    say,
    storage_options,
)

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def _bandwidth_of(value: str) -> float:
    """Bytes a second, as 500K, 20M or 1.5G."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", value.upper().removesuffix("B"))
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not so many bytes a second, like 500K, 20M or 1.5G")
    return float(match[1]) * UNITS[match[2]]


@click.command()
@click.argument("source")
@click.argument("target")
@storage_options
@click.option("--include", multiple=True, metavar="PATTERN", help="Copy keys that match, like 'red/*'.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out keys that match.")
@click.option("--delete", is_flag=True, help="Remove what TARGET has and SOURCE has not.")
@click.option("--check", is_flag=True, help="Read everything again from TARGET and compare hashes.")
@click.option("--manifest", **FILE, help="Write the hashes of all keys to this file.")
@click.option("--bandwidth", type=_bandwidth_of, metavar="N", help="Bytes a second at most: 500K, 20M, 1.5G.")
@click.option("--requests", "request_count", type=click.IntRange(min=1), help="Keys at a time at most.")
@plan_option
@how_options(copy_store)
def copy(source: str, target: str, **options: Any) -> None:
    """Copy everything in SOURCE to TARGET, byte for byte: directories, zip files, buckets.

    Readers see the copy when it is whole. Patterns are of keys below SOURCE; * stands for anything.

    \b
    zstore copy scene.zarr s3://bucket/scene.zarr
    zstore copy scene.zarr scene.zip --check --manifest scene.sha256
    zstore copy scene.zarr mirror.zarr --if-exists changed --delete --dry-run
    """
    done = run_job(options, copy_store, source, target, label="copying", unit="bytes")
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
    say(options["as_json"], said, text)


def _verb(options: dict[str, Any], planned: str, done: str) -> str:
    return planned if options["dry_run"] else done
