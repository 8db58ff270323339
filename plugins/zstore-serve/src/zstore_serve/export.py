"""Tiles as files, made by the job runner: a folder, a PMTiles archive, an MBTiles database, or a web site.

Tiles are made in a folder beside the target, which takes the target's place when all of them are there.

Spec: PMTiles 3 (written by the package pmtiles); MBTiles 1.3; TileJSON 3.0.0.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

from zstore.errors import MetadataError, StoreError, UnsupportedError, ZstoreError, is_loss, leave_out
from zstore.plugin.jobs import (
    NOT_BY_KEYS,
    BegunJob,
    How,
    HowWords,
    Location,
    StoredArray,
    Task,
    Unit,
    Versions,
    all_but_lost,
    long_call,
    name_job,
    source_of,
)
from zstore.plugin.jobs import Sources as SourceVersions
from zstore.plugin.stores import TILES as ARCHIVES
from zstore.plugin.stores import LocalStore, check_target, confirm_directory, confirm_files, local_path
from zstore_serve.pictures import PictureMaker, Settings, run_coroutine
from zstore_serve.problems import Problem
from zstore_serve.queries import (
    SELECTION_PARAMETERS,
    STYLE_PARAMETERS,
    Parameters,
    Selection,
    Style,
    parse_selection,
    parse_style,
)
from zstore_serve.scenes import SITE_FILES, Scene, open_scenes
from zstore_serve.tilings import (
    WEB,
    default_set,
    render_tilejson,
    tile_frame,
    tile_matrices,
    tile_ranges,
    zoom_range,
)
from zstore_serve.vendored import read_vendored

__all__ = ["export", "export_site"]

TILES = "tiles"
# The key of the number of tiles of a finished export.
COUNT = "count"
# What the journal has of a tile that could not be made.
LOST = b"lost"
MEMORY = "a tile holds the cells that it shows, and each thread makes one tile at a time"
FORMATS = ("png", "jpg", "webp")
# The first file tells that an export made a folder; the others are the page of a site.
SIGN, INDEX, *VENDOR = SITE_FILES
PAGE = "static.html"


@dataclass(frozen=True)
class Sources:
    """The stores that one call exports; each process opens them once for each call."""

    places: tuple[Any, ...] = field(compare=False)
    options: Mapping[str, Any] | None = field(compare=False)
    call: str = field(default_factory=lambda: uuid4().hex)

    @property
    def scenes(self) -> Mapping[str, Scene]:
        """The scenes of the stores, by id."""
        return _opened(self)


@dataclass(frozen=True)
class SceneTiles:
    """Which tiles of one scene are made.

    prefix  what stands before z/x/y in the target
    least, most  the first and the last zoom
    query   what tiles show, as in a tile's address; the limits of values are always in it
    """

    scene: str
    prefix: str
    tms: str
    least: int
    most: int
    query: str


@dataclass(frozen=True)
class TilePlan:
    """The plan of an export, with a unit (part, z, x, y) for each tile.

    Results are sizes in bytes, or the error of a tile that shows what is damaged or out of reach.
    """

    sources: Sources
    work: str
    parts: tuple[SceneTiles, ...]
    format: str

    def units(self) -> Iterator[Unit]:
        """All tiles that their scene may touch, the coarsest first."""
        for number, part in enumerate(self.parts):
            scene = self._scene(part)
            for z in range(part.least, part.most + 1):
                rows, columns = tile_ranges(scene, part.tms, tile_matrices(scene, part.tms)[str(z)])
                yield from ((number, z, x, y) for x in columns for y in rows)

    def make(self, unit: Unit) -> int | ZstoreError:
        """Make and store a tile, unless no cell of the scene lies in it; gives its size in bytes, or 0."""
        part, (_, z, x, y) = self.parts[unit[0]], unit
        scene = self._scene(part)
        selection, style = _parse_query(scene, part.query)
        matrix = tile_matrices(scene, part.tms)[str(z)]
        frame = tile_frame(scene, part.tms, matrix, y, x, matrix.tile_shape[1])
        maker = PictureMaker(Settings(cell_count=1 << 28))
        try:
            content, level = run_coroutine(maker.make(scene, selection, style, frame, self.format))
        except Problem as problem:
            raise UnsupportedError(f"tile {z}/{x}/{y} of {part.scene!r}: {problem.detail}") from problem
        except ZstoreError as error:
            if is_loss(error):
                return error
            raise
        if level is None:
            return 0
        LocalStore(self.work).put(self.key(unit), content)
        return len(content)

    def key(self, unit: Unit) -> str:
        """The key of a tile in the folder `work`."""
        number, z, x, y = unit
        return f"{TILES}/{self.parts[number].prefix}{z}/{x}/{y}.{self.format}"

    def holds(self, unit: Unit, result: int | ZstoreError) -> bool:
        """Whether a tile is still there, with the size that it had."""
        return not result or LocalStore(self.work).size(self.key(unit)) == result

    def pack(self, result: int | ZstoreError) -> bytes:
        """The size of a tile as bytes; none for a tile that is not there."""
        if isinstance(result, ZstoreError):
            return LOST
        return result.to_bytes(8, "little") if result else b""

    def unpack(self, unit: Unit, data: bytes) -> int:
        """The size of a tile; 0 for a tile that is not there.

        Raises
            ValueError: the tile could not be made.
        """
        if data == LOST:
            raise ValueError("it shows what could not be read")
        return int.from_bytes(data, "little")

    def _scene(self, part: SceneTiles) -> Scene:
        return self.sources.scenes[part.scene]


@lru_cache(8)
def _opened(sources: Sources) -> Mapping[str, Scene]:
    return open_scenes(sources.places, sources.options)


def _parse_query(scene: Scene, query: str) -> tuple[Selection, Style]:
    parameters = Parameters(parse_qsl(query, keep_blank_values=True))
    parameters.check(SELECTION_PARAMETERS, STYLE_PARAMETERS, scene.dimensions)
    selection = parse_selection(scene, parameters)
    return selection, parse_style(parameters, selection)


@long_call(memory=MEMORY, if_exists=NOT_BY_KEYS)
def export(
    source: Any,
    target: str | os.PathLike[str],
    *,
    collection: str | None = None,
    tiles: str | None = None,
    zooms: tuple[int, int] | None = None,
    format: str = "png",
    query: str = "",
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> int:
    """Write tiles of a store to `map.pmtiles`, `map.mbtiles`, or a folder z/x/y; gives the number of tiles.

    collection  which grid of the store, where it has several
    tiles       the tile matrix set; None: WebMercatorQuad, or "pixels" for a grid without a CRS
    zooms       the first and the last; None: from one tile that shows all to pixels of the finest level
    query       what tiles show, as in a tile's address: "bands=3,2,1&rescale=0,3000"

    Tiles that show a chunk that is damaged or out of reach are left out; its error is raised at the end.

    Raises
        StoreError: the target exists already, or an interrupted export is there and is not resumed; the
            target is named as something else is, or a URL.
        ChangedError: the store was written to while tiles were made, or since the target was.
        MetadataError: an argument is wrong, or no tile would show anything.
        UnsupportedError: a tile would read too many cells, for want of coarser levels.
    """
    how = How(**words)
    place, sources = local_path(target), Sources((source,), storage_options)
    scenes = sources.scenes
    if collection is None and len(scenes) > 1:
        raise MetadataError(f"collection is missing; expected one of {', '.join(scenes)}")
    name = next(iter(scenes)) if collection is None else collection
    if name not in scenes:
        raise MetadataError(f"collection is {name!r}; expected one of {', '.join(scenes)}")
    is_archive = place.suffix in (".pmtiles", ".mbtiles")
    if not place.exists():
        check_target(place.name, ARCHIVES)
    part = _plan_scene(scenes[name], "", tiles, zooms, query)
    if is_archive and part.tms != WEB:
        raise MetadataError(f"tiles are {part.tms!r}; a file {place.suffix} holds those of {WEB}")
    publish = {".pmtiles": _write_pmtiles, ".mbtiles": _write_mbtiles}.get(place.suffix, _write_folder)
    return TileExport(sources, place, (part,), format, publish, how).carry_out()


@long_call(memory=MEMORY, if_exists=NOT_BY_KEYS)
def export_site(
    sources: Iterable[Any],
    target: str | os.PathLike[str],
    *,
    format: str = "png",
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> int:
    """Write a web site to a folder: a page, and tiles of all grids of the stores; gives the number of tiles.

    Raises
        As `export`.
    """
    how = How(**words)
    kept = Sources(tuple(sources), storage_options)
    parts = tuple(_plan_scene(scene, f"{name}/", None, None, "") for name, scene in kept.scenes.items())
    return TileExport(kept, local_path(target), parts, format, _write_site, how).carry_out()


def _plan_scene(
    scene: Scene, prefix: str, tms: str | None, span: tuple[int, int] | None, query: str
) -> SceneTiles:
    """Which tiles of a scene are made, with limits of values that hold for all of them.

    Where no bands are asked for, those are shown whose limits can be read.
    """
    asked = parse_qsl(query, keep_blank_values=True)
    if {"bands", "expression"}.intersection(dict(asked)):
        return _plan_bands(scene, prefix, tms, span, query)

    def plan(arrays: Sequence[str]) -> SceneTiles:
        names = [name for name, band in scene.bands.items() if band.array in arrays]
        shown = scene.rgb_bands if {*names}.issuperset(scene.rgb_bands) else ()
        bands = [("bands", ",".join(shown or names[:1]))] if len(names) < len(scene.bands) else []
        return _plan_bands(scene, prefix, tms, span, urlencode([*bands, *asked]))

    every = {
        name: [source_of(level.arrays[name]) for level in scene.levels if name in level.arrays]
        for name in scene.finest.arrays
    }
    return all_but_lost(every, plan)


def _plan_bands(
    scene: Scene, prefix: str, tms: str | None, span: tuple[int, int] | None, query: str
) -> SceneTiles:
    """As `_plan_scene`, of the bands that a query names, or of those that are shown where it names none."""
    name = tms or default_set(scene)
    try:
        known = [int(z) for z in tile_matrices(scene, name)]
        least, most = zoom_range(scene, name) if span is None else span
        if not known[0] <= least <= most <= known[-1]:
            raise Problem(400, f"zooms are {least} to {most}; expected two from {known[0]} to {known[-1]}")
        selection, style = _parse_query(scene, query)
        if style.limits is None and style.algorithm in (None, "relief"):
            maker = PictureMaker(Settings(cell_count=1 << 28))
            if not maker.find_categories(scene, selection, style):
                found = run_coroutine(maker.find_limits(scene, selection, style))
                numbers = ",".join(repr(float(number)) for pair in found for number in pair)
                query = urlencode([*parse_qsl(query, keep_blank_values=True), ("rescale", numbers)])
    except Problem as problem:
        raise MetadataError(f"{scene.id}: {problem.detail}") from problem
    return SceneTiles(scene.id, prefix, name, least, most, query)


class TileExport(Task[int]):
    """All tiles of some scenes, made in a folder beside the target, which then takes the target's place.

    write  makes of the tiles in the folder the file or folder that becomes the target
    """

    work = "export"
    plan: TilePlan

    def __init__(
        self,
        sources: Sources,
        target: Path,
        parts: tuple[SceneTiles, ...],
        format: str,
        write: Callable[[TilePlan, Path, list[Unit]], Path],
        how: How,
    ) -> None:
        if format not in FORMATS:
            raise MetadataError(f"format is {format!r}; expected one of {', '.join(FORMATS)}")
        self.target, self.write = target.absolute(), write
        # Beside the target, so that it takes the target's place in one step.
        self.folder = self.target.with_name(f".{target.name}.zstore-export")
        super().__init__(Location(LocalStore(self.folder), ""), how)
        self.plan = TilePlan(sources, str(self.folder), parts, format)
        scenes = [sources.scenes[part.scene] for part in parts]
        arrays = [array for scene in scenes for level in scene.levels for array in level.arrays.values()]
        self.arrays = {f"{array.store.url} {array.path}": StoredArray.of(array) for array in arrays}
        self.units: list[Unit] = []
        self.is_whole = True

    def describe(self) -> Any:
        scenes = [self.plan.sources.scenes[part.scene] for part in self.plan.parts]
        shown = [scene.finest.arrays[band.array] for scene in scenes for band in scene.bands.values()]
        return {
            "parts": [vars(part) for part in self.plan.parts],
            "format": self.plan.format,
            "sources": [StoredArray.of(array).describe() for array in shown],
        }

    def call(self) -> Any:
        parts = name_job([vars(part) for part in self.plan.parts])
        return {"format": self.plan.format, "sources": [*self.arrays], "parts": parts}

    def sources(self) -> SourceVersions:
        return SourceVersions(
            lambda: {name: array.version() or "?" for name, array in self.arrays.items()},
            lambda name: self.arrays[name].url,
        )

    def versions(self) -> Versions | None:
        if not self.is_whole:
            return None
        try:
            status = (self.target / SIGN if self.target.is_dir() else self.target).stat()
        except OSError:
            return {}
        return {"": f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"}

    def begin(self, sources: SourceVersions) -> BegunJob:
        _check_free(self.target, self.how.overwrite, self.write in (_write_pmtiles, _write_mbtiles))
        self.target.parent.mkdir(parents=True, exist_ok=True)
        job = super().begin(sources)
        if not job.is_resumed:
            self.there.store.delete_prefix(TILES)
        return job

    def take(self, unit: Unit, result: int | ZstoreError) -> None:
        if isinstance(result, ZstoreError):
            number, z, x, y = unit
            self.is_whole = False
            leave_out(f"{self.plan.parts[number].scene}/{z}/{x}/{y}", result)
        elif result:
            self.units.append(unit)

    def make(self, job: BegunJob) -> None:
        super().make(job)
        if not self.units:
            job.end()
            shutil.rmtree(self.folder)
            raise MetadataError("no tile shows anything of what is asked for", path=str(self.target))

    def publish(self) -> None:
        made = self.write(self.plan, self.folder, self.units)
        if self.how.durable:
            confirm_files(str(made))
        _put_in_place(made, self.target, self.folder)
        if self.how.durable:
            confirm_directory(str(self.target.parent))
        for rest in self.folder.iterdir():
            if rest.name in (TILES, "former"):
                shutil.rmtree(rest)
        self.there.store.put(COUNT, str(len(self.units)).encode())

    def result(self) -> int:
        return int(self.there.store.get(COUNT) or b"0")

    def carry_out(self) -> int:
        count = super().carry_out()
        if not self.keeps:
            shutil.rmtree(self.folder, ignore_errors=True)
        return count


def _check_free(target: Path, overwrite: bool, is_archive: bool) -> None:
    if not target.exists():
        return
    if not overwrite:
        raise StoreError("there is something already; pass overwrite=True to replace it", path=str(target))
    if not target.is_dir() and not is_archive:
        raise StoreError("there is a file; expected a folder of tiles, or nothing", path=str(target))
    if target.is_dir() and any(target.iterdir()) and not (target / SIGN).is_file():
        raise StoreError(
            f"cannot replace a folder that no export made; expected {SIGN} in it", path=str(target)
        )


def _put_in_place(made: Path, target: Path, work: Path) -> None:
    if target.is_dir():
        former = work / "former"
        shutil.rmtree(former, ignore_errors=True)
        target.rename(former)
    made.replace(target)


def _tilejson(plan: TilePlan, part: SceneTiles, url: str) -> dict[str, Any]:
    scene = plan.sources.scenes[part.scene]
    document = render_tilejson(scene, part.tms, url)
    document.update(minzoom=part.least, maxzoom=part.most)
    if "center" in document:
        document["center"] = [*document["center"][:2], part.least]
    return document


def _write_folder(plan: TilePlan, work: Path, units: list[Unit]) -> Path:
    (part,) = plan.parts
    document = _tilejson(plan, part, f"{{z}}/{{x}}/{{y}}.{plan.format}")
    (work / TILES / SIGN).write_text(json.dumps(document, indent=1), "utf-8")
    return work / TILES


def _write_site(plan: TilePlan, work: Path, units: list[Unit]) -> Path:
    folder = work / TILES
    listed = []
    for part in plan.parts:
        scene = plan.sources.scenes[part.scene]
        document = _tilejson(plan, part, f"{part.scene}/{{z}}/{{x}}/{{y}}.{plan.format}")
        (folder / part.scene).mkdir(exist_ok=True)
        (folder / part.scene / SIGN).write_text(json.dumps(document, indent=1), "utf-8")
        listed.append({**document, "id": part.scene, "set": part.tms, "size": scene.shape})
    (folder / SIGN).write_text(json.dumps(listed, indent=1), "utf-8")
    held = files("zstore_serve")
    (folder / INDEX).write_bytes((held / PAGE).read_bytes())
    for name in VENDOR:
        content = read_vendored(name)
        if content is not None:
            (folder / name).write_bytes(content)
    return folder


def _write_pmtiles(plan: TilePlan, work: Path, units: list[Unit]) -> Path:
    try:
        from pmtiles.tile import Compression, TileType, zxy_to_tileid
        from pmtiles.writer import Writer
    except ImportError as error:
        raise UnsupportedError("PMTiles are written by the package pmtiles; install it") from error
    kinds = {"png": TileType.PNG, "jpg": TileType.JPEG, "webp": TileType.WEBP}
    document = _tilejson(plan, plan.parts[0], "")
    west, south, east, north = (round(degrees * 1e7) for degrees in document["bounds"])
    header = {
        "tile_type": kinds[plan.format], "tile_compression": Compression.NONE,
        "min_lon_e7": west, "min_lat_e7": south, "max_lon_e7": east, "max_lat_e7": north,
        "center_zoom": document["minzoom"], "center_lon_e7": round(document["center"][0] * 1e7),
        "center_lat_e7": round(document["center"][1] * 1e7),
    }  # fmt: skip
    store, made = LocalStore(work), work / "archive"
    with made.open("wb") as file:
        writer = Writer(file)
        for number, unit in sorted((zxy_to_tileid(*unit[1:]), unit) for unit in units):
            writer.write_tile(number, bytes(store.get(plan.key(unit)) or b""))
        writer.finalize(header, {"name": document["name"], "type": "overlay"})
        file.flush()
        os.fsync(file.fileno())
    return made


def _write_mbtiles(plan: TilePlan, work: Path, units: list[Unit]) -> Path:
    document = _tilejson(plan, plan.parts[0], "")
    facts = {
        "name": document["name"], "format": plan.format, "type": "overlay", "version": "1",
        "description": document["name"], "minzoom": document["minzoom"], "maxzoom": document["maxzoom"],
        "bounds": ",".join(map(str, document["bounds"])), "center": ",".join(map(str, document["center"])),
    }  # fmt: skip
    store, made = LocalStore(work), work / "archive"
    made.unlink(missing_ok=True)
    with closing(sqlite3.connect(made)) as base, base:
        base.execute("create table metadata (name text, value text)")
        base.execute(
            "create table tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob)"
        )
        base.execute("create unique index tile_index on tiles (zoom_level, tile_column, tile_row)")
        base.executemany("insert into metadata values (?, ?)", [(k, str(v)) for k, v in facts.items()])
        # MBTiles count rows from the south.
        rows = (
            (z, x, (1 << z) - 1 - y, bytes(store.get(plan.key((n, z, x, y))) or b"")) for n, z, x, y in units
        )
        base.executemany("insert into tiles values (?, ?, ?, ?)", rows)
    return made
