"""`zstore virtualize`: files of other formats as one Zarr hierarchy of references."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from zstore.cli.options import show_progress, storage_options

__all__ = ["virtualize"]


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.argument("target")
@click.option("--concat", metavar="DIMENSION", help="Have files follow each other along this dimension.")
@click.option("--stack", metavar="DIMENSION", help="Make each file one item of this new dimension.")
@click.option("--values", metavar="LIST", help="With --stack: a date or a number for each file, by commas.")
@click.option("--drop", multiple=True, metavar="NAME", help="Leave this variable out; may be given often.")
@click.option("--append", is_flag=True, help="Have the files that TARGET lacks follow those that it has.")
@click.option(
    "--allow",
    multiple=True,
    metavar="PLACE",
    help="With --append: where TARGET may lead to, beside SOURCES and its own directory; may be given often.",
)
@click.option(
    "--processes", type=click.IntRange(min=1), metavar="N", help="Scan in so many processes, not in this one."
)
@click.option("--overwrite", is_flag=True, help="Replace what is at TARGET.")
@storage_options
def virtualize(
    sources: tuple[str, ...],
    target: str,
    concat: str | None,
    stack: str | None,
    values: str | None,
    drop: tuple[str, ...],
    append: bool,
    allow: tuple[str, ...],
    processes: int | None,
    overwrite: bool,
) -> None:
    """Write references to the NetCDF, HDF5, GeoTIFF or Zarr files SOURCES to TARGET (.json, .parquet).

    SOURCES are paths and URLs; of URLs, only headers are fetched. What was interrupted goes on where it was
    when the same command is given again.

    \b
    zstore virtualize scene.tif scene.json
    zstore virtualize 2024-*.nc all.json --concat time
    zstore virtualize 2024-*.nc all.json --concat time --append
    zstore virtualize 's3://bucket/2024-*.nc' all.json --concat time
    """
    from zstore.errors import StoreError
    from zstore_virtual.forms import has_manifest, open_manifest
    from zstore_virtual.scan.virtualize import virtualize as make

    is_there = has_manifest(target)
    if is_there and not (append or overwrite):
        raise StoreError("something is there already; expected append or overwrite", path=target)
    told = None
    if values is not None:
        told = [_value_of(word.strip()) for word in values.split(",")]
    held = open_manifest(target) if append and is_there else None
    before = 0
    if held is not None:
        held.chunks.items()  # the sources of all arrays are known then
        before = len(held.sources)
    with show_progress("scanning") as progress, _pool(processes) as executor:
        manifest = make(
            sources,
            target,
            concat=concat,
            stack_along=stack,
            values=told,
            drop=drop,
            append_to=held,
            allow=allow,
            executor=executor,
            progress=progress,
        )
    added = f", {len(manifest.sources) - before} new" if held is not None else ""
    click.echo(f"{target}: {manifest.count} references to {len(manifest.sources)} files{added}")


def _value_of(word: str) -> str | float:
    try:
        return float(word)
    except ValueError:
        return word


def _pool(processes: int | None) -> AbstractContextManager[Any]:
    """Processes that begin anew: those that are copies of this one would share its threads' locks."""
    if processes is None:
        return nullcontext()
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(processes, get_context("spawn"))
