"""A summary of an array or a group: its URL, its grid and levels, time, bands, dialects, codecs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zstore.base.once import once
from zstore.engine.documents import place
from zstore.engine.intents import Unfinished, find_unfinished
from zstore.errors import MetadataError, StoreError, UnsupportedError, ZstoreError, clean, without_secrets
from zstore.geo.conventions.base import Band, Finding, GeoModel, Level, ReadableGroup
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.meaning import Meaning
from zstore.geo.pyramid.dataset import PlaceLike, grids_of, node_of
from zstore.geo.report.readers import Reader, judge_readers
from zstore.jobs.source import Source
from zstore.model.packing import parse_fills
from zstore.nodes.array import Array
from zstore.nodes.create import check_codecs
from zstore.nodes.group import Group
from zstore.nodes.zarr_names import list_codecs
from zstore.storage.url import with_storage_options

MOST_BANDS = 12
MOST_PYRAMIDS = 12


@dataclass(frozen=True)
class Report:
    """A summary of an array or a group: the arrays at and below it, its grid, and the findings about it.

    node        the array or the group
    arrays      by path
    geo         None where the node is no grid
    time        the earliest and the latest date
    dialects    the names of those that the node, its finest level and their arrays are written in
    grids       of a group, the grids of its arrays, the largest first
    below       where the node is no grid, the first pyramids below it, by path
    unfinished  jobs that are under way at or below the node, or were interrupted
    unreadable  by path, the reason why a member cannot be read; one that lacks a codec is in `arrays`, too
    """

    node: Array | Group
    arrays: Mapping[str, Array] = field(default_factory=dict)
    geo: GeoModel | None = None
    findings: tuple[Finding, ...] = ()
    time: tuple[str, str] | None = None
    dialects: tuple[str, ...] = ()
    grids: tuple[GeoModel, ...] = ()
    below: Mapping[str, GeoModel] = field(default_factory=dict)
    unfinished: tuple[Unfinished, ...] = ()
    unreadable: Mapping[str, ZstoreError] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = {name: clean(value) for name, value in self.facts()}
        width = max(map(len, facts))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in facts.items())

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of a pyramid, the finest first; none of other nodes."""
        return () if self.geo is None else self.geo.levels

    @once
    def readers(self) -> Sequence[Reader]:
        """The programs in zstore's table and the obstacle for each; none where there is no raster."""
        return judge_readers(self.node, self.geo)

    def nodata(self, array: Array) -> Any:
        """The nodata value of one of the arrays; None where it has none."""
        variable = None if self.geo is None else self.geo.variables.get(array.basename)
        return None if variable is None else variable.nodata

    def facts(self) -> Iterator[tuple[str, str]]:
        """(name, value) of each fact about the node, as text, the most important first."""
        kind = "array" if isinstance(self.node, Array) else "group"
        yield "what", f"{kind}, Zarr v{self.node.zarr_format}"
        yield "where", without_secrets(place(self.node.store, self.node.path))
        geo = self.geo
        for path, pyramid in self.below.items():
            yield f"pyramid {path}", f"{_crs(pyramid)}, {_grid(pyramid)}, {len(pyramid.levels)} levels"
        if geo is None:
            yield from self._unread()
            return
        yield "CRS", _crs(geo)
        if geo.bounds is not None and geo.cell_size is not None:
            yield "extent", " ".join(f"{number:.12g}" for number in geo.bounds) + "  (xmin ymin xmax ymax)"
            height, width = geo.cell_size
            rotated = " (rotated)" if geo.affine is not None and geo.affine.is_rotated else ""
            unit = "" if geo.crs is None else f" {geo.crs.units}"
            yield "cell size", f"{width:.12g} × {height:.12g}{unit}{rotated}"
        yield "grid", f"{_grid(geo)} ({', '.join(geo.dimensions)})"
        for other in self.grids[1:]:
            yield (
                f"grid of {', '.join(other.variables)}",
                f"{_grid(other)} ({', '.join(other.dimensions)}), {_crs(other)}",
            )
        if geo.levels:
            yield "levels", f"{len(geo.levels)}: {', '.join(level.path for level in geo.levels)}"
        if geo.resampling is not None:
            yield "resampling", geo.resampling
        yield from self._contents(geo)

    def _unread(self) -> Iterator[tuple[str, str]]:
        for finding in self.findings:
            if finding.rule == "ZS-11":
                where = f" ({finding.path})" if finding.path else ""
                yield "not read", f"{finding.message.removeprefix('not looked at: ')}{where}"

    def _contents(self, geo: GeoModel) -> Iterator[tuple[str, str]]:
        if self.time is not None and geo.time is not None:
            first, last = self.time
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
        yield from self._unread()
        if self.dialects:
            yield "dialects", ", ".join(self.dialects)
        if geo.sources:
            yield "said by", ", ".join(f"{fact}: {source}" for fact, source in geo.sources.items())

    @once
    def stored_sizes(self) -> tuple[dict[str, int | None], dict[str, StoreError]]:
        """(the stored bytes of each array, the errors of those with keys out of reach), by path."""
        sizes, errors = dict[str, int | None](), dict[str, StoreError]()
        for path, array in self.arrays.items():
            try:
                sizes[path] = array.nbytes_stored()
            except StoreError as error:
                sizes[path], errors[path] = None, error
        return sizes, errors

    def as_json(self, *, with_sizes: bool = False) -> dict[str, Any]:
        """The report for JSON, as `zstore info --json` prints it; `with_sizes` adds up stored bytes.

        `docs/info.schema.json` describes it.
        """
        sizes, errors = self.stored_sizes if with_sizes else ({}, {})
        arrays = {}
        for path, array in self.arrays.items():
            arrays[path] = {
                "shape": array.shape,
                "dtype": str(array.dtype),
                "chunks": array.chunks,
                "shards": array.shards,
                "codecs": list_codecs(array.model.codecs),
                "nodata": self.nodata(array),
                "nodata_values": _nodata_values(array, self.nodata(array)),
                "bytes": array.nbytes,
                **({"bytes_stored": sizes[path]} if with_sizes else {}),
            }
        findings = [
            {"rule": f.rule, "severity": f.severity, "path": f.path, "message": f.message}
            for f in self.findings
        ]
        geo = self.geo
        levels = [
            {
                "path": one.path,
                "shape": one.shape,
                "factors": one.factors,
                "affine": one.affine,
                "bbox": None if one.affine is None else one.affine.bounds(one.shape),
                "tile_shape": one.tile_shape,
            }
            for one in self.levels
        ]
        return {
            "kind": "array" if isinstance(self.node, Array) else "group",
            "zarr_format": self.node.zarr_format,
            "place": without_secrets(place(self.node.store, self.node.path)),
            "crs": None if geo is None else _crs_json(geo.crs),
            "grid": None if geo is None else _grid_json(geo),
            "sources": {} if geo is None else dict(geo.sources),
            "time": None if self.time is None else dict(zip(("first", "last"), self.time, strict=True)),
            "grids": [{"crs": _crs_json(one.crs), **_grid_json(one)} for one in self.grids],
            "facts": dict(self.facts()),
            "levels": levels,
            "arrays": arrays,
            "readers": [asdict(reader) for reader in self.readers],
            "findings": findings,
            "unfinished": [{"path": w.path, "what": w.what, "again": w.again} for w in self.unfinished],
            "unreadable": {path: error.message for path, error in {**self.unreadable, **errors}.items()},
        }


def _crs_json(crs: Crs | None) -> dict[str, Any] | None:
    if crs is None:
        return None
    return {"code": crs.code, "label": crs.label, "wkt2": crs.wkt, "projjson": dict(crs.projjson)}


def _grid_json(geo: GeoModel) -> dict[str, Any]:
    return {
        "arrays": sorted(geo.variables),
        "shape": geo.shape,
        "dimensions": geo.dimensions,
        "affine": geo.affine,
        "bbox": geo.bounds,
        "cell_size": geo.cell_size,
    }


def _nodata_values(array: Array, chosen: Any) -> list[Any]:
    """Every value of an array that means nodata, the one that is written first."""
    stated = parse_fills(array.attrs, array.dtype).values()
    found = [chosen, *(fill for fill in stated if not isinstance(fill, MetadataError))]
    return list({repr(fill): fill for fill in found if fill is not None}.values())


@with_storage_options
def describe(
    node: Array | Group | Source | PlaceLike,
    depth: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """A summary of an array or a group, and of the arrays down to `depth` levels below; None: all of them.

    storage_options   how to reach a bucket or web server that `node` names by URL

    Raises
        NotFoundError: there is nothing.
    """
    node, unreadable = node_of(node), dict[str, ZstoreError]()
    if isinstance(node, Array):
        arrays, groups = {node.basename: node}, {}
        is_grid = node.ndim > 1
    else:
        members = dict(node.members(depth, unreadable=unreadable))
        arrays = {path: member for path, member in members.items() if isinstance(member, Array)}
        groups = {path: member for path, member in members.items() if isinstance(member, Group)}
        is_grid = True
    for path, array in arrays.items():
        try:
            check_codecs(array.model, allow_pickle=array.access.allow_pickle)
        except ZstoreError as error:
            unreadable[path] = error
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
    grids = tuple(grids_of(meaning, held)) if is_grid else ()
    return Report(node, arrays, geo, tuple(findings), time, dialects, grids, below, unfinished, unreadable)


def _pyramids(groups: Mapping[str, Group]) -> dict[str, GeoModel]:
    found: dict[str, GeoModel] = {}
    for path, group in groups.items():
        meaning, held = Meaning(), ReadableGroup(group)
        if len(found) < MOST_PYRAMIDS and meaning.is_pyramid(held):
            geo = meaning.read(held).geo
            # Where there is none, `zstore info` of the group itself says why.
            found |= {} if geo is None else {path: geo}
    return found


def _crs(geo: GeoModel) -> str:
    return "none" if geo.crs is None else geo.crs.label


def _grid(geo: GeoModel) -> str:
    return f"{geo.shape[0]} rows × {geo.shape[1]} columns"


def _band(band: Band) -> str:
    said = [band.common_name] if band.common_name not in (None, band.name) else []
    said += [] if band.wavelength is None else [f"{band.wavelength:g} µm"]
    name = band.name or band.description or "unnamed"
    return f"{name} ({', '.join(map(str, said))})" if said else name
