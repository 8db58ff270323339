"""The HTML by which notebooks show arrays and groups: facts, folded tables, and a small picture."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from math import prod
from typing import Any

from zstore.base.sizes import format_lengths, format_size
from zstore.errors import ReadingWarning, ZstoreError
from zstore.geo.conventions.base import GeoModel
from zstore.geo.pictures.colours import colour_map
from zstore.geo.pictures.png import encode_png
from zstore.geo.pictures.quicklook import Picture, draw_times
from zstore.geo.report.summary import Report, describe
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.zarr_names import innermost_codecs
from zstore.storage.memory import MemoryStore

PICTURE_SIZE = 160
# Of times, evenly apart, so that a notebook stays small.
MOST_PICTURES = 8
# More is not decoded for the sake of a picture, nor of a coordinate's ends.
PICTURE_BYTES = 32 << 20
ENDS_BYTES = 1 << 20
# Documents of more nodes, here and a level below, are not read either.
MOST_NODES = 1000
MOST_ROWS = 20
MOST_ATTRIBUTES = 100
MOST_TEXT = 240
MOST_CELL = 2000
LEGEND_STEPS = 15
# Colours are the notebook's own, light or dark.
STYLE = """<style>
.zstore-view{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start;line-height:1.4}
.zstore-view table{border-collapse:collapse;margin:0 0 .3em;background:none;font-size:inherit}
.zstore-view tr{background:none!important}
.zstore-view th,.zstore-view td{text-align:left;vertical-align:top;color:inherit}
.zstore-view th,.zstore-view td{padding:.05em 1em .05em 0;border:0}
.zstore-view th{font-weight:600;white-space:nowrap;opacity:.75}
.zstore-view td{overflow-wrap:anywhere;max-width:40em}
.zstore-view summary{cursor:pointer;opacity:.75}
.zstore-view details>table{margin-left:1em}
.zstore-view img{border:1px solid rgba(128,128,128,.45);image-rendering:pixelated}
.zstore-view figure{margin:0}
.zstore-view section[hidden]{display:none}
.zstore-view input[type=range]{width:100%;margin:.3em 0 0}
.zstore-view figure div{height:.7em;margin-top:.3em}
.zstore-view figure p{display:flex;justify-content:space-between;margin:0;font-size:85%}
.zstore-view figcaption{font-size:85%;opacity:.75}
</style>"""


def render_html(node: Array | Group, *, picture: bool | None = None) -> str:
    """A fragment of HTML that shows an array or a group, with a picture if few bytes make one.

    picture   None: a picture of what is on this machine; of a node elsewhere, only what is known already is
              shown, and nothing is fetched. True: of that too. False: no picture. In no case one that takes
              more than 32 MiB to decode
    """
    is_near = node.store.local_path() is not None or isinstance(node.store, MemoryStore)
    is_large = is_near and picture is not True and _is_large(node)
    is_read = (is_near and not is_large) or picture is True
    report = describe(node, depth=1) if is_read else Report(node)
    rows = [*report.facts(), *_shape(node)]
    rows[:0] = [("unfinished", f"/{work.path}: {work}") for work in report.unfinished]
    if is_large:
        rows.append(("nodes", f"more than {MOST_NODES}, which are not looked at"))
    parts = [_table(rows)]
    levels = [(level.path, format_lengths(level.shape), level.cell_text) for level in report.levels]
    parts.append(_folded("levels", levels, ("level", "rows × columns", "cell size"), is_open=True))
    if isinstance(node, Group):
        dims = {name for array in report.arrays.values() for name in array.dims or ()}
        coordinates = {
            path: array for path, array in report.arrays.items() if array.ndim == 1 and array.basename in dims
        }
        data = {path: array for path, array in report.arrays.items() if path not in coordinates}
        shown, header = _first_rows(data, MOST_ROWS, _array), ("array", "shape", "type", "chunks", "shards")
        parts.append(_folded("arrays", shown, header, is_open=True))
        shown = _first_rows(coordinates, MOST_ROWS, _coordinate)
        parts.append(_folded("coordinates", shown, ("name", "length", "type", "first … last")))
    attributes = _first_rows(node.attrs, MOST_ATTRIBUTES, lambda value: (_short(value),))
    parts.append(_folded("attributes", attributes))
    errors = sum(finding.severity == "error" for finding in report.findings)
    if errors:
        parts.append(
            f"<p>{errors} error{'s' if errors > 1 else ''} found; <code>zstore info</code> tells them</p>"
        )
    image = _picture(node, report.geo) if is_read and picture is not False else ""
    return f'{STYLE}<div class="zstore-view"><div>{"".join(parts)}</div>{image}</div>'


def _is_large(node: Array | Group) -> bool:
    """Whether a group and the groups in it contain too many nodes to read all of their documents."""
    if isinstance(node, Array):
        return False
    count = len(list(node.store.list_children(node.path)))
    if count <= MOST_NODES:
        groups = (member for _, member in node.members(unreadable={}) if isinstance(member, Group))
        count += sum(len(list(group.store.list_children(group.path))) for group in groups)
    return count > MOST_NODES


def _shape(node: Array | Group) -> list[tuple[str, str]]:
    if isinstance(node, Group):
        return []
    size = f"{format_lengths(node.shape) or '()'}, {format_size(node.nbytes)} decoded"
    rows = [("shape", size), ("type", str(node.dtype))]
    if node.dims and any(node.dims):
        rows.append(("dimensions", ", ".join(name or "–" for name in node.dims)))
    for name, lengths in (("chunks", node.chunks), ("shards", node.shards)):
        if lengths is not None:
            decoded = format_size(prod(lengths) * node.dtype.itemsize)
            rows.append((name, f"{format_lengths(lengths) or '()'}, {decoded} each"))
    rows.append(
        (
            "codecs",
            " → ".join(_codec(codec.name, codec.configuration) for codec in innermost_codecs(node.model)),
        )
    )
    return [*rows, ("fill value", _short(node.fill_value))]


def _codec(name: str, configuration: Mapping[str, Any]) -> str:
    said = ", ".join(f"{key}={_short(value)}" for key, value in configuration.items())
    return f"{name}({said})" if said else name


def _short(value: Any) -> str:
    """A value as text of limited length, as JSON where JSON can hold it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text)} characters)"


def _first_rows(
    items: Mapping[str, Any], most: int, row: Callable[[Any], tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """The rows of the first items behind their names, and the number of the others."""
    rows = [(name, *row(item)) for name, item in islice(items.items(), most)]
    more = len(items) - len(rows)
    return [*rows, (f"and {more} more", *[""] * (len(rows[0]) - 1))] if more else rows


def _array(array: Array) -> tuple[str, ...]:
    lengths = map(format_lengths, (array.chunks, array.shards or ()))
    return format_lengths(array.shape) or "()", str(array.dtype), *lengths


def _coordinate(array: Array) -> tuple[str, ...]:
    return str(array.size), str(array.dtype), _ends(array)


def _ends(array: Array) -> str:
    if not array.size or prod(array.chunks) * array.dtype.itemsize > ENDS_BYTES:
        return ""
    try:
        return " … ".join(dict.fromkeys(str(array[n]) for n in (0, -1)))
    except ZstoreError:
        return "cannot be read"


def _folded(
    name: str, rows: Sequence[Sequence[str]], header: Sequence[str] = (), *, is_open: bool = False
) -> str:
    """A table that opens under its name; "" if it has no rows."""
    if not rows:
        return ""
    state = " open" if is_open else ""
    return f"<details{state}><summary>{name} ({len(rows)})</summary>{_table(rows, header)}</details>"


def _table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    head = "".join(f"<th>{escape(word)}</th>" for word in header)
    body = []
    for first, *others in rows:
        cells = "".join(f"<td>{_said(cell)}</td>" for cell in others)
        body.append(f"<tr><th>{_said(first)}</th>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _said(text: str) -> str:
    """The HTML of a text: shortened, and without surrogates, which JSON allows and HTML does not."""
    cut = text if len(text) <= MOST_CELL else f"{text[:MOST_CELL]}… ({len(text)} characters)"
    return escape(cut.encode("utf-8", "replace").decode("utf-8"))


def _picture(node: Array | Group, geo: GeoModel | None) -> str:
    if geo is None or not geo.variables:
        return ""
    try:
        # What reading finds is counted beside the picture.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadingWarning)
            pictures = draw_times(node, size=PICTURE_SIZE, count=MOST_PICTURES, most_bytes=PICTURE_BYTES)
    except ZstoreError:
        # Too much to read, a damaged chunk, or values that make no picture: the words say what there is.
        return ""
    last = len(pictures) - 1
    frames = "".join(_frame(picture, is_shown=n == last) for n, picture in enumerate(pictures))
    return f"<figure>{frames}{_slider(last) if last else ''}{_legend(pictures[-1])}</figure>"


def _frame(picture: Picture, *, is_shown: bool) -> str:
    data = base64.standard_b64encode(encode_png(picture.image)).decode("ascii")
    image = f'<img alt="a picture of the data" src="data:image/png;base64,{data}">'
    hidden = "" if is_shown else " hidden"
    return f"<section{hidden}>{image}<figcaption>{_said(picture.caption)}</figcaption></section>"


def _slider(last: int) -> str:
    """A slider through the pictures; in a notebook that runs nothing, the last one stays."""
    turn = "this.parentNode.querySelectorAll('section').forEach((each,n)=>each.hidden=n!=this.value)"
    return f'<input type="range" aria-label="time" max="{last}" value="{last}" oninput="{turn}">'


def _legend(picture: Picture) -> str:
    """The colour map with the values at its two ends; "" for a picture of three bands or of categories."""
    if picture.colours is None:
        return ""
    steps = colour_map(picture.colours)[:: 255 // LEGEND_STEPS].tolist()
    colours = ",".join(f"rgb({red},{green},{blue})" for red, green, blue in steps)
    ((low, high),) = picture.limits
    ends = f"<span>{low:.4g}</span><span>{high:.4g} {_said(picture.units or '')}</span>"
    return f'<div style="background:linear-gradient(to right,{colours})"></div><p>{ends}</p>'
