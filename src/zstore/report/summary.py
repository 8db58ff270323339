"""A summary of an array or a group: its URL, its grid and levels, time, bands, dialects, codecs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from zstore.engine.documents import place
from zstore.engine.intents import Unfinished, find_unfinished
from zstore.errors import MetadataError, UnsupportedError, ZstoreError, without_secrets
from zstore.model.array import CodecModel
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.zarr_names import inner_codecs
from zstore.plugin.conventions import Band, Finding, GeoModel, Level, Meaning, ReadableGroup

MOST_BANDS = 12
MOST_PYRAMIDS = 12


@dataclass(frozen=True)
class Report:
    """The arrays at and below a node by path, the model of the node, and the findings about it.

    geo         None where the node is no grid
    time        the earliest and the latest date
    dialects    the names of those that the node, its finest level and their arrays are written in
    below       where the node is no grid, the first pyramids below it, by path
    unfinished  jobs that are under way at or below the node, or were interrupted
    unreadable  by path, why a member cannot be read
    """

    arrays: Mapping[str, Array]
    geo: GeoModel | None
    findings: tuple[Finding, ...]
    time: tuple[str, str] | None = None
    dialects: tuple[str, ...] = ()
    below: Mapping[str, GeoModel] = field(default_factory=dict)
    unfinished: tuple[Unfinished, ...] = ()
    unreadable: Mapping[str, ZstoreError] = field(default_factory=dict)


def make_report(node: Array | Group, depth: int | None = None) -> Report:
    """The report on `node`, with the arrays down to `depth` levels below it; None: all of them."""
    unreadable: dict[str, ZstoreError] = {}
    if isinstance(node, Array):
        arrays, groups = {node.basename: node}, {}
        is_grid = node.ndim > 1
    else:
        members = dict(node.members(depth, unreadable=unreadable))
        arrays = {path: member for path, member in members.items() if isinstance(member, Array)}
        groups = {path: member for path, member in members.items() if isinstance(member, Group)}
        is_grid = True
    meaning = Meaning()
    held = meaning.hold(ReadableGroup(node) if isinstance(node, Group) else node)
    # Where there is no grid of two dimensions, it is an ordinary group of arrays.
    reading = meaning.read(held) if is_grid else None
    geo = None if reading is None else reading.geo
    findings, time = list(() if reading is None else reading.findings), None
    if geo is not None and geo.time is not None:
        try:
            time = geo.time.extent()
        except (MetadataError, UnsupportedError) as error:
            findings.append(Finding("MS-09", "warning", node.path, f"time cannot be read: {error}"))
    level = geo.levels[0].path if geo is not None and geo.levels else None
    dialects = tuple(meaning.dialects(held, level))
    below, unfinished = {} if geo else _pyramids(groups), tuple(find_unfinished(node.store, node.path))
    return Report(arrays, geo, tuple(findings), time, dialects, below, unfinished, unreadable)


def _pyramids(groups: Mapping[str, Group]) -> dict[str, GeoModel]:
    found: dict[str, GeoModel] = {}
    for path, group in groups.items():
        meaning, held = Meaning(), ReadableGroup(group)
        if len(found) < MOST_PYRAMIDS and meaning.is_pyramid(held):
            geo = meaning.read(held).geo
            # Where there is none, `zstore info` of the group itself says why.
            found |= {} if geo is None else {path: geo}
    return found


def list_facts(node: Array | Group, report: Report) -> Iterator[tuple[str, str]]:
    """(name, value) of each fact about the node, as text, the most important first."""
    kind = "array" if isinstance(node, Array) else "group"
    yield "what", f"{kind}, Zarr v{node.zarr_format}"
    yield "where", without_secrets(place(node.store, node.path))
    geo = report.geo
    for path, pyramid in report.below.items():
        yield f"pyramid {path}", f"{_crs(pyramid)}, {_grid(pyramid)}, {len(pyramid.levels)} levels"
    if geo is None:
        return
    yield "CRS", _crs(geo)
    if geo.bounds is not None and geo.cell_size is not None:
        yield "extent", " ".join(f"{number:.12g}" for number in geo.bounds) + "  (xmin ymin xmax ymax)"
        height, width = geo.cell_size
        rotated = " (rotated)" if geo.affine is not None and geo.affine.is_rotated else ""
        unit = "" if geo.crs is None else f" {geo.crs.units}"
        yield "cell size", f"{width:.12g} × {height:.12g}{unit}{rotated}"
    yield "grid", f"{_grid(geo)} ({', '.join(geo.dimensions)})"
    if geo.levels:
        yield "levels", f"{len(geo.levels)}: {', '.join(level.path for level in geo.levels)}"
    if geo.resampling is not None:
        yield "resampling", geo.resampling
    yield from _contents(geo, report)


def _crs(geo: GeoModel) -> str:
    return "none" if geo.crs is None else geo.crs.label


def _grid(geo: GeoModel) -> str:
    return f"{geo.shape[0]} rows × {geo.shape[1]} columns"


def _contents(geo: GeoModel, report: Report) -> Iterator[tuple[str, str]]:
    if report.time is not None and geo.time is not None:
        first, last = report.time
        count = geo.time.values.size
        yield "time", first if count == 1 else f"{first} to {last} ({count} moments, {geo.time.calendar})"
    for name, variable in geo.variables.items():
        if variable.bands:
            shown = [_band(band) for band in variable.bands[:MOST_BANDS]]
            more = len(variable.bands) - len(shown)
            yield f"bands of {name}", ", ".join(shown) + (f", and {more} more" if more else "")
    if geo.stac is not None:
        content = geo.stac.content
        name = content.get("id", content.get("href", "")) if isinstance(content, Mapping) else content
        yield "STAC", f"{geo.stac.kind} {name}"
    if report.dialects:
        yield "dialects", ", ".join(report.dialects)


def _band(band: Band) -> str:
    said = [band.common_name] if band.common_name not in (None, band.name) else []
    said += [] if band.wavelength is None else [f"{band.wavelength:g} µm"]
    name = band.name or band.description or "unnamed"
    return f"{name} ({', '.join(map(str, said))})" if said else name


def list_codecs(array: Array) -> list[str]:
    """The names of an array's codecs in the order of encoding, those in shards after "sharding_indexed"."""
    return list(_names(array.model.codecs))


def _names(codecs: tuple[CodecModel, ...]) -> Iterator[str]:
    for codec in codecs:
        yield codec.name.removeprefix("numcodecs.")
        yield from _names(inner_codecs((codec,)))


def describe_codecs(array: Array) -> str:
    """The names of an array's codecs in one line."""
    return ", ".join(list_codecs(array))


def format_lengths(shape: Iterable[int]) -> str:
    """A shape as text: "512 × 1024"."""
    return " × ".join(map(str, shape))


def format_cell(level: Level) -> str:
    """The width and height of a level's cells as text: "10 × 10"; "" if unknown."""
    return "" if level.affine is None else " × ".join(f"{n:.12g}" for n in reversed(level.affine.cell))
