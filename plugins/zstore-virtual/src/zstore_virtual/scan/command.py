"""The command `zstore virtualize`: makes a manifest of files of other formats."""

from __future__ import annotations

from typing import Any

import click

from zstore.plugin.commands import how_options, run_job, say, storage_options
from zstore_virtual.scan.virtualize import virtualize as make

__all__ = ["virtualize"]


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.argument("target")
@click.option("--concat", metavar="DIMENSION", help="Join the files along this dimension, which they have.")
@click.option("--stack", metavar="DIMENSION", help="Make each file one item of this new dimension.")
@click.option(
    "--values", metavar="LIST", help="With --stack: a date or a number for each file, separated by commas."
)
@click.option("--drop", multiple=True, metavar="NAME", help="Leave this variable out; may be repeated.")
@click.option("--append", is_flag=True, help="Add the files that TARGET lacks behind those that it has.")
@click.option(
    "--allow",
    multiple=True,
    metavar="PLACE",
    help="With --append: where else TARGET may lead to than SOURCES and its own directory; may be repeated.",
)
@storage_options
@how_options(make)
@click.option("--overwrite", is_flag=True, help="Replace the manifest at TARGET.")
def virtualize(
    sources: tuple[str, ...],
    target: str,
    stack: str | None,
    values: str | None,
    append: bool,
    overwrite: bool,
    **options: Any,
) -> None:
    """Write references to the NetCDF, HDF5, GeoTIFF or Zarr files SOURCES to TARGET (.json, .parquet).

    SOURCES are paths, URLs and patterns of them; of remote files, only headers are fetched. An interrupted
    command goes on where it was when it is given again.

    \b
    zstore virtualize scene.tif scene.json
    zstore virtualize 2024-*.nc all.json --concat time
    zstore virtualize 2024-*.nc all.json --concat time --append
    zstore virtualize 's3://bucket/2024-*.nc' all.json --concat time
    """
    from zstore.errors import StoreError
    from zstore_virtual.forms import has_manifest, open_manifest

    is_there = has_manifest(target)
    if is_there and not (append or overwrite):
        raise StoreError("something is there already; expected append or overwrite", path=target)
    labels = None if values is None else [_parse_label(word.strip()) for word in values.split(",")]
    old = open_manifest(target) if append and is_there else None
    before = 0
    if old is not None:
        old.load()
        before = len(old.sources)
    manifest = run_job(
        options,
        make,
        sources,
        target,
        stack_along=stack,
        values=labels,
        append_to=old,
        label="scanning",
        unit="files",
        target=target,
    )
    added = f", {len(manifest.sources) - before} new" if old is not None else ""
    counts = {"reference_count": manifest.count, "file_count": len(manifest.sources)}
    text = f"{target}: {manifest.count} references to {len(manifest.sources)} files{added}"
    say(options["as_json"], {"path": target, **counts}, text)


def _parse_label(word: str) -> str | float:
    try:
        return float(word)
    except ValueError:
        return word
