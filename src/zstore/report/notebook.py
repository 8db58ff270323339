"""Arrays and groups as notebooks show them: what they are, and a small picture."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from math import prod

from zstore.conventions.model import GeoModel
from zstore.conventions.order import ReadingWarning
from zstore.errors import ZstoreError
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.pyramid.quicklook import encode_png, quicklook
from zstore.report.summary import (
    Report,
    describe_codecs,
    format_cell,
    format_lengths,
    format_size,
    list_facts,
    make_report,
)
from zstore.storage.memory import MemoryStore

PICTURE_SIZE = 160
# A level of more cells is not decoded for the sake of a picture.
MOST_CELLS = 2**24
MOST_ROWS = 20
STYLE = "text-align:left;padding:0 1em 0 0;vertical-align:top"


def render_html(node: Array | Group) -> str:
    """A fragment of HTML. Of nodes far away it says what is known already, and fetches nothing."""
    is_near = node.store.local_path() is not None or isinstance(node.store, MemoryStore)
    report = make_report(node, depth=1) if is_near else Report({}, None, ())
    rows = [*list_facts(node, report), *_shape(node)]
    rows[:0] = [("unfinished", f"/{work.path}: {work}") for work in report.unfinished]
    parts = [_table(rows)]
    if report.geo is not None and report.geo.levels:
        parts.append(_table(_levels(report.geo), ("level", "rows × columns", "cell size")))
    if isinstance(node, Group) and report.arrays:
        parts.append(_table(_arrays(report), ("array", "shape", "type")))
    errors = sum(finding.severity == "error" for finding in report.findings)
    if errors:
        parts.append(
            f"<p>{errors} error{'s' if errors > 1 else ''} found; <code>zstore info</code> tells them</p>"
        )
    picture = _picture(node, report.geo) if is_near else ""
    return f'<div style="display:flex;gap:1em"><div>{"".join(parts)}</div>{picture}</div>'


def _shape(node: Array | Group) -> list[tuple[str, str]]:
    if isinstance(node, Group):
        return []
    shapes = {"shape": node.shape, "chunks": node.chunks, "shards": node.shards}
    rows = [(name, format_lengths(shape) or "()") for name, shape in shapes.items() if shape is not None]
    rows.insert(1, ("type", str(node.dtype)))
    return [*rows, ("codecs", describe_codecs(node)), ("decoded", format_size(node.nbytes))]


def _levels(geo: GeoModel) -> list[tuple[str, str, str]]:
    return [(level.path, format_lengths(level.shape), format_cell(level)) for level in geo.levels]


def _arrays(report: Report) -> list[tuple[str, str, str]]:
    shown = list(report.arrays.items())[:MOST_ROWS]
    rows = [(path, format_lengths(a.shape) or "()", str(a.dtype)) for path, a in shown]
    more = len(report.arrays) - len(rows)
    return [*rows, (f"and {more} more", "", "")] if more else rows


def _table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    head = "".join(f'<th style="{STYLE}">{escape(word)}</th>' for word in header)
    body = []
    for first, *others in rows:
        cells = "".join(f'<td style="{STYLE}">{escape(cell)}</td>' for cell in others)
        body.append(f'<tr><th style="{STYLE}">{escape(first)}</th>{cells}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _picture(node: Array | Group, geo: GeoModel | None) -> str:
    if geo is None or not geo.variables:
        return ""
    grids = geo.grids
    level = next((grid for grid in grids if max(grid.shape) <= PICTURE_SIZE), grids[-1])
    if prod(level.shape) > MOST_CELLS:
        return ""
    try:
        # What reading finds is counted beside the picture.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadingWarning)
            image = quicklook(node, size=PICTURE_SIZE)
    except ZstoreError:
        # A damaged chunk, or values that make no picture: the words say what there is.
        return ""
    data = base64.standard_b64encode(encode_png(image)).decode("ascii")
    return f'<div><img alt="a picture of the data" src="data:image/png;base64,{data}"></div>'
