"""The command `zstore tune`, which prints the best choices for some data with the line of code for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from zstore.plugin.commands import WORDS, how_options, run_job, say, show_table, storage_options
from zstore_tune.measure import tune as measure

__all__ = ["tune"]


def _lengths_of(value: str) -> dict[str | int, int]:
    """Lengths by the names or numbers of dimensions, as "time=2,y=256"."""
    pairs = [word.partition("=") for word in value.split(",")]
    if not all(name.strip() and length.strip().isdecimal() for name, _, length in pairs):
        raise click.BadParameter(f"{value!r} is no length by dimension, like time=2 or y=256,x=256")
    names = [name.strip() for name, _, _ in pairs]
    lengths = [int(length) for _, _, length in pairs]
    return {
        int(name) if name.isdecimal() else name: length for name, length in zip(names, lengths, strict=True)
    }


LENGTHS: dict[str, Any] = {"type": _lengths_of, "metavar": "NAME=N,..."}


@click.command()
@click.argument("data")
@storage_options
@click.option(
    "--array", metavar="PATH", help="Which array of a group.  [default: the one with the most data]"
)
@click.option(
    "--access",
    "--for",
    "access",
    **WORDS,
    help="How it will be read: whole, windows, series, tiles, training.",
)
@click.option("--sample", **LENGTHS, help="For training: the items of a sample along dimensions.")
@click.option("--crop", **LENGTHS, help="The same, at random positions.")
@click.option("--lossy", is_flag=True, help="Also measure rounding, and the error that it makes.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time after which nothing more is tried.",
)
@click.option(
    "--format",
    "zarr_format",
    type=click.Choice(["2", "3"]),
    default="3",
    show_default=True,
    help="Zarr format to store in.",
)
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="A directory on the disk to measure with.",
)
@click.option("--all", "is_all", is_flag=True, help="Show all choices that were measured, not only the best.")
@how_options(measure)
def tune(data: str, access: Any, zarr_format: str, is_all: bool, **options: Any) -> None:
    """Measure how the array DATA is stored best: size, writing and reading, with the line of code.

    \b
    zstore tune era5.zarr --access series,windows
    zstore tune heights.npy --lossy --seconds 20
    zstore tune era5.zarr --for training --sample time=2
    """
    from zstore.plugin.commands import format_size

    number = int(zarr_format)
    found = run_job(
        options,
        measure,
        data,
        access=access,
        zarr_format=number,
        label="measuring",
        unit="choices",
        target=data,
    )
    if options["as_json"]:
        say(True, found.to_dict(), "")
        return
    click.echo(f"{found.where}: {found.dtype}")
    for note in found.notes:
        click.echo(f"note: {note}")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    has_errors = any(choice.error is not None for choice in found.choices)
    for name in ("size", "ratio", "objects", "write MB/s", *(f"{name} MB/s" for name in found.accesses)):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("largest error", "RMS") if has_errors else ():
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("chunks")
    table.add_column("shards")
    shown = [choice for choice in found.choices if is_all or choice.is_best or choice.label]
    for number, choice in enumerate(shown, 1):
        speeds = [_number(speed) for speed in found.speeds(choice).values()]
        errors = ["0", "0"] if choice.error is None else [f"{error:.3g}" for error in choice.error]
        table.add_row(
            str(number),
            format_size(choice.size),
            f"{found.sample_size / max(1, choice.size):.2f}",
            str(choice.object_count),
            *speeds,
            *(errors if has_errors else ()),
            *("×".join(map(str, choice.options.get(name) or ())) for name in ("chunks", "shards")),
        )
    show_table(table)
    for number, choice in enumerate(shown, 1):
        words = (choice.label, choice.rounding, *(() if choice.is_best else ("beaten",)))
        words += () if choice.has_checksum else ("no checksum",)
        said = ", ".join(filter(None, words))
        click.echo(f"{number}{f' ({said})' if said else ''}: {choice.code}")
    if found.untried:
        click.echo(f"{found.untried} choices were not tried for want of time (--seconds)")


def _number(speed: float) -> str:
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.2g}"
