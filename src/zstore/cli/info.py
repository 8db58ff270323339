"""`zstore info`: describe the node at a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from zstore import describe
from zstore.base.sizes import format_lengths, format_size
from zstore.cli.options import above_option, json_option, say, show_table, show_unfinished, storage_options
from zstore.engine.intents import find_unfinished
from zstore.errors import NotFoundError, StoreError, ZstoreError, clean, printable
from zstore.nodes.open import open_ahead, open_array
from zstore.nodes.zarr_names import list_codecs
from zstore.storage.url import open_store


@click.command()
@click.argument("path")
@storage_options
@click.option("--sizes/--no-sizes", default=None, help="Add up what is stored; by default for local files.")
@click.option("--explain", metavar="SELECTION", help="Only what reading it takes; 0:10,:,5 of an array.")
@above_option
@json_option
def info(path: str, sizes: bool | None, explain: str | None, above: bool, as_json: bool) -> None:
    """Describe PATH: shape, type, codecs, sizes, CRS, extent, levels, time, bands, and who can read it.

    With --explain, it says what reading a selection of an array would fetch and decode, and reads nothing.
    Where work there is unfinished, this says how to go on with it; then, and where a member cannot be read,
    it fails.
    """
    if explain is not None:
        explanation = open_array(path, mode="r").explain(_selection_of(explain))
        say(as_json, asdict(explanation), str(explanation))
        return
    try:
        with open_ahead(path, above=above) as node:
            report = describe(node)
            readers = report.readers  # while the store is a snapshot
    except NotFoundError as error:
        try:
            unfinished = find_unfinished(open_store(path, read_only=True), "")
        except StoreError:
            raise error from None
        show_unfinished(unfinished)
        if unfinished:
            raise SystemExit(1) from None
        raise
    with_sizes = node.store.local_path() is not None if sizes is None else sizes
    sizes_of, unreachable = report.stored_sizes if with_sizes else ({}, {})
    is_broken = bool(report.unfinished or report.unreadable or unreachable)
    if as_json:
        say(True, report.as_json(with_sizes=with_sizes), "")
        if is_broken:
            raise SystemExit(1)
        return
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in report.facts():
        facts.add_row(name, printable(value))
    show_table(facts)
    if report.levels:
        levels = Table(
            "level", "rows", "columns", "cell size", "factors", title="levels", title_justify="left"
        )
        for level in report.levels:
            factors = " × ".join(f"{factor:g}" for factor in level.factors)
            levels.add_row(printable(level.path), *map(str, level.shape), level.cell_text, factors)
        show_table(levels)
    show_table(_array_table(report, sizes_of if with_sizes else None))
    if readers:
        shown = Table("reader", "opens it", title="readers, by what is written", title_justify="left")
        for reader in readers:
            verdict = f"no: {reader.obstacle}" if reader.obstacle else "yes"
            is_mistaken = reader.mistake and not reader.obstacle
            verdict = f"{verdict}, but {reader.mistake}" if is_mistaken else verdict
            shown.add_row(reader.name, printable(verdict))
        show_table(shown)
    for finding in report.findings:
        if finding.severity != "note":
            where = printable(finding.path or "/")
            click.echo(f"{finding.severity}: {finding.rule}: {printable(finding.message)} ({where})")
    for path, reason in unreachable.items():
        click.echo(f"error: {printable(path)}: {printable(reason.message)}")
    show_unfinished(report.unfinished)
    if is_broken:
        raise SystemExit(1)


def _selection_of(text: str) -> tuple[Any, ...]:
    """A selection as numpy's, of integers, slices and "..."."""
    parts: list[Any] = []
    for part in map(str.strip, text.split(",")):
        ends = part.split(":")
        if part != "..." and (len(ends) > 3 or not part or not all(map(_is_position, ends))):
            wrong = f"{part!r} is no part of a selection, like 0:10, 5, : or ..."
            raise click.BadParameter(wrong, param_hint="--explain")
        numbers = [int(end) if end.strip() else None for end in ends] if part != "..." else []
        parts.append(... if part == "..." else numbers[0] if len(ends) == 1 else slice(*numbers))
    return tuple(parts)


def _is_position(text: str) -> bool:
    return not text.strip() or text.strip().lstrip("-").isdecimal()


def _array_table(report: Any, sizes_of: Mapping[str, int | None] | None) -> Table:
    table = Table(
        "array", "shape", "type", "chunks", "shards", "codecs", "nodata", title="arrays", title_justify="left"
    )
    if sizes_of is not None:
        table.add_column("stored", justify="right")
        table.add_column("of", justify="right")
    for path, array in report.arrays.items():
        nodata = "" if (value := report.nodata(array)) is None else f"{value:.12g}"
        shape, chunks, shards = map(format_lengths, (array.shape, array.chunks, array.shards or ()))
        size = None if sizes_of is None else sizes_of[path]
        stored = "out of reach" if size is None else format_size(size)
        sizes = [] if sizes_of is None else [stored, format_size(array.nbytes)]
        error = report.unreadable.get(path)
        codecs = _reason(error) if error else ", ".join(list_codecs(array.model.codecs))
        table.add_row(
            printable(path),
            shape,
            str(array.dtype),
            chunks,
            shards,
            codecs,
            nodata,
            *sizes,
        )
    for path, error in report.unreadable.items():
        if path not in report.arrays:
            table.add_row(clean(path), "", "", "", "", _reason(error))
    return table


def _reason(error: ZstoreError) -> str:
    """The reason why an array cannot be read, without a list of alternatives."""
    return clean(f"cannot be read: {error.message.partition('; ')[0]}")
