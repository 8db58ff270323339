"""`zstore info`: describe the node at a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from zstore.base.sizes import format_size
from zstore.cli.options import json_option, say, show_table, show_unfinished, storage_options
from zstore.engine.intents import find_unfinished
from zstore.errors import NotFoundError, StoreError, clean
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open_ahead
from zstore.report.readers import Reader, judge_readers
from zstore.report.summary import (
    Report,
    describe_codecs,
    format_cell,
    format_lengths,
    list_codecs,
    list_facts,
    make_report,
)
from zstore.storage.url import open_store


@click.command()
@click.argument("path")
@storage_options
@click.option("--sizes/--no-sizes", default=None, help="Add up what is stored; by default for local files.")
@json_option
def info(path: str, sizes: bool | None, as_json: bool) -> None:
    """Describe PATH: shape, type, codecs, sizes, CRS, extent, levels, time, bands, and who can read it.

    Where work there is unfinished, this says how to go on with it; then, and where a member cannot be read,
    it fails.
    """
    try:
        with open_ahead(path) as node:
            report = make_report(node)
            readers = judge_readers(node, report)
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
    if as_json:
        say(True, _document(node, report, readers, with_sizes), "")
        if report.unfinished or report.unreadable:
            raise SystemExit(1)
        return
    place = Table(show_header=False, box=None, pad_edge=False)
    place.add_column(style="bold")
    place.add_column(overflow="fold")
    for name, value in list_facts(node, report):
        place.add_row(name, value)
    show_table(place)
    if report.geo is not None and report.geo.levels:
        show_table(_level_table(report))
    show_table(_array_table(report, with_sizes))
    if readers:
        show_table(_reader_table(readers))
    for finding in report.findings:
        if finding.severity != "note":
            click.echo(f"{finding.severity}: {finding.rule}: {finding.message} ({finding.path or '/'})")
    show_unfinished(report.unfinished)
    if report.unfinished or report.unreadable:
        raise SystemExit(1)


def _document(
    node: Array | Group, report: Report, readers: Sequence[Reader], with_sizes: bool
) -> dict[str, Any]:
    """The content of all tables, for JSON."""
    variables = report.geo.variables if report.geo is not None else {}
    arrays = {}
    for path, array in report.arrays.items():
        variable = variables.get(array.basename)
        arrays[path] = {
            "shape": array.shape,
            "dtype": str(array.dtype),
            "chunks": array.chunks,
            "shards": array.shards,
            "codecs": list_codecs(array),
            "nodata": None if variable is None else variable.nodata,
            "bytes": array.nbytes,
            **({"bytes_stored": array.nbytes_stored()} if with_sizes else {}),
        }
    levels = report.geo.levels if report.geo is not None else ()
    return {
        "facts": dict(list_facts(node, report)),
        "levels": [{"path": level.path, "shape": level.shape, "factors": level.factors} for level in levels],
        "arrays": arrays,
        "readers": [asdict(reader) for reader in readers],
        "findings": [
            {"rule": f.rule, "severity": f.severity, "path": f.path, "message": f.message}
            for f in report.findings
        ],
        "unfinished": [{"path": w.path, "what": w.what, "again": w.again} for w in report.unfinished],
        "unreadable": {path: error.message for path, error in report.unreadable.items()},
    }


def _reader_table(readers: Sequence[Reader]) -> Table:
    table = Table("reader", "opens it", title="readers, by what is written", title_justify="left")
    for reader in readers:
        verdict = f"no: {reader.obstacle}" if reader.obstacle else "yes"
        is_mistaken = reader.mistake and not reader.obstacle
        table.add_row(reader.name, f"{verdict}, but {reader.mistake}" if is_mistaken else verdict)
    return table


def _level_table(report: Report) -> Table:
    table = Table("level", "rows", "columns", "cell size", "factors", title="levels", title_justify="left")
    for level in report.geo.levels if report.geo is not None else ():
        factors = " × ".join(f"{factor:g}" for factor in level.factors)
        table.add_row(level.path, *map(str, level.shape), format_cell(level), factors)
    return table


def _array_table(report: Report, with_sizes: bool) -> Table:
    table = Table(
        "array", "shape", "type", "chunks", "shards", "codecs", "nodata", title="arrays", title_justify="left"
    )
    if with_sizes:
        table.add_column("stored", justify="right")
        table.add_column("of", justify="right")
    variables = report.geo.variables if report.geo is not None else {}
    for path, array in report.arrays.items():
        variable = variables.get(array.basename)
        nodata = "" if variable is None or variable.nodata is None else f"{variable.nodata:.12g}"
        shape, chunks, shards = map(format_lengths, (array.shape, array.chunks, array.shards or ()))
        sizes = [format_size(array.nbytes_stored()), format_size(array.nbytes)] if with_sizes else []
        table.add_row(path, shape, str(array.dtype), chunks, shards, describe_codecs(array), nodata, *sizes)
    for path, error in report.unreadable.items():
        table.add_row(clean(path), "", "", "", "", clean(f"cannot be read: {error.message}"))
    return table
