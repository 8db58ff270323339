"""Values and pictures of scenes: read, unpacked by scale and offset, and drawn."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from zstore.plugin.pictures import Look, categories_of, ground_cell, hillshade, look_of
from zstore_serve import drawing
from zstore_serve.areas import Area
from zstore_serve.frames import Frame, FramePlan, Items, Pixels, await_all, plan_frame, read_band
from zstore_serve.problems import Problem
from zstore_serve.queries import Selection, Style
from zstore_serve.scenes import Dimension, PictureBand, Scene
from zstore_serve.tilings import whole_frame

__all__ = [
    "COARSE_SIZE",
    "STATISTICS_SIZE",
    "PictureMaker",
    "Settings",
    "ValidValues",
    "percentiles",
    "run_coroutine",
    "unpack",
]

# The longest side, in pixels, of what statistics of a window are made from at most, and of what those of a
# whole scene and its percentiles are.
STATISTICS_SIZE, COARSE_SIZE = 1024, 512
LONGEST_SERIES = 100_000

# Three bands, and results of expressions.
PLAIN = Look("grey")

T = TypeVar("T")
ValidValues = tuple[Items, np.ndarray[Any, np.dtype[np.bool_]]]


@dataclass(frozen=True)
class Settings:
    """The most that one request may take, and how long browsers keep its answer.

    cell_count  cells that are read
    time        seconds
    size        pixels along each side of a picture
    max_age     seconds until a browser asks whether the answer has changed; as long, chunks of stores with
                latency are kept in memory
    """

    cell_count: int = 1 << 24
    time: float = 30.0
    size: int = 2048
    max_age: int = 60


@dataclass
class _Shared:
    """Work that several wait for, and how many."""

    task: asyncio.Task[Any]
    count: int = 0


def _items(selection: Selection) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(selection.indices.items()))


class PictureMaker:
    """Makes values and pictures of scenes, within the limits of the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._shared: dict[Hashable, _Shared] = {}

    async def make(
        self, scene: Scene, selection: Selection, style: Style, frame: Frame, format: str
    ) -> tuple[bytes, int | None]:
        """(the picture as a file, the level it is made of); no level where no cell lies in the frame."""
        categories = self.find_categories(scene, selection, style)
        style = style if categories else self.choose_style(scene, selection, style)
        rim = 1 if style.algorithm in ("hillshade", "relief") else 0
        plan = plan_frame(scene, frame.padded(rim) if rim else frame, selection.sampling)
        if not plan.parts:
            return _transparent_picture(frame.shape, format), None
        limits: Sequence[tuple[float, float]] = style.limits or ()
        if style.algorithm in (None, "relief") and not categories and style.limits is None:
            both: list[Coroutine[Any, Any, Any]] = [
                self.read_values(scene, selection, plan),
                self.find_limits(scene, selection, style),
            ]
            values, limits = await await_all(both)
        else:
            values = await self.read_values(scene, selection, plan)

        def make() -> bytes:
            return drawing.encode(_draw([*values.values()], style, frame, categories, limits), format)

        return await asyncio.to_thread(make), plan.level

    def find_categories(self, scene: Scene, selection: Selection, style: Style) -> Mapping[int, Any]:
        """The (colour, name) of each category; {} where values are drawn as numbers."""
        if style.limits is not None or style.colour_map is not None or style.algorithm is not None:
            return {}
        if selection.expression is not None or len(selection.bands) != 1 or style.mix:
            return {}
        (band,) = selection.bands.values()
        is_whole = scene.finest.arrays[band.array].dtype.kind in "iu"
        return categories_of(scene.variable(band)) if is_whole else {}

    def choose_style(self, scene: Scene, selection: Selection, style: Style) -> Style:
        """The style with the colour map that suits the values, and the relief of heights, without its own."""
        look = self.look(scene, selection)
        style = replace(style, scale=style.scale or ("log" if look.is_log else "linear"))
        if style.algorithm not in (None, "relief") or (style.colour_map is not None or look == PLAIN):
            return style
        is_relief = look.is_lit and scene.crs is not None
        return replace(style, colour_map=look.colours, algorithm="relief" if is_relief else style.algorithm)

    def look(self, scene: Scene, selection: Selection) -> Look:
        """How the values are drawn where the style does not say: by the meaning of one band."""
        if selection.expression is not None or len(selection.bands) != 1:
            return PLAIN
        ((name, band),) = selection.bands.items()
        return look_of(scene.variable(band), name)

    async def find_limits(
        self, scene: Scene, selection: Selection, style: Style
    ) -> list[tuple[float, float]]:
        """The limits of each band's stretch: percentiles of the whole scene, as its look has them.

        Those of bands are kept.
        """
        if selection.expression is not None:
            return await self._measure_limits(scene, selection, style)
        look = self.look(scene, selection)
        keys = [(name, _items(selection), style.percentiles, look) for name in selection.bands]
        if not all(key in scene.limits for key in keys):
            make = partial(self._measure_limits, scene, selection, style)
            limits = await self._share((id(scene), *keys), make)
            if len(scene.limits) > 4096:
                scene.limits.clear()
            scene.limits.update(zip(keys, limits, strict=True))
        return [scene.limits[key] for key in keys]

    async def _measure_limits(
        self, scene: Scene, selection: Selection, style: Style
    ) -> list[tuple[float, float]]:
        pairs = (await self.read_coarse(scene, replace(selection, sampling="nearest"))).values()
        look = self.look(scene, selection)
        return await asyncio.to_thread(
            lambda: [look.limits(*percentiles(*pair, style.percentiles)) for pair in pairs]
        )

    async def read_coarse(self, scene: Scene, selection: Selection) -> dict[str, ValidValues]:
        """`read_values` by `plan_coarse`; who asks for the same meanwhile shares it."""
        plan = self.plan_coarse(scene, selection)
        read = partial(self.read_values, scene, selection, plan)
        if selection.expression is not None:
            return await read()
        return await self._share((id(scene), *selection.bands, _items(selection), selection.sampling), read)

    def plan_coarse(self, scene: Scene, selection: Selection) -> FramePlan:
        """The plan of a whole scene, of a coarse level; of its middle where no level has few enough cells."""
        frame = whole_frame(scene, COARSE_SIZE)
        plan = plan_frame(scene, frame, selection.sampling)
        share = self.settings.cell_count / max(1, plan.cell_count * len(selection.bands))
        if share >= 1:
            return plan
        return plan_frame(scene, frame.middle(0.9 * math.sqrt(share)), selection.sampling)

    async def _share(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `make` gives, once for all who ask for it meanwhile; given up when the last is gone."""
        own = asyncio.get_running_loop(), key
        shared = self._shared.get(own)
        if shared is None:
            shared = self._shared[own] = _Shared(asyncio.ensure_future(make()))
        shared.count += 1
        try:
            made: T = await asyncio.shield(shared.task)
            return made
        finally:
            shared.count -= 1
            if not shared.count:
                shared.task.cancel()
                del self._shared[own]

    async def read_values(
        self, scene: Scene, selection: Selection, plan: FramePlan
    ) -> dict[str, ValidValues]:
        """By band its unpacked values, and which are valid; of an expression, its result as "expression"."""
        cells = plan.cell_count * len(selection.bands)
        if cells > self.settings.cell_count:
            raise Problem(
                422,
                f"{cells} cells would be read; expected {self.settings.cell_count} at most. No level "
                "is coarse enough for this window; `zstore pyramid` makes levels",
            )
        read = [
            read_band(scene, band, selection.indices, plan, selection.sampling)
            for band in selection.bands.values()
        ]
        pixels = await await_all(read)
        found = {
            name: unpack(scene, band, one)
            for (name, band), one in zip(selection.bands.items(), pixels, strict=True)
        }
        if selection.expression is None:
            return found
        # In 64 bits: products of half floats overflow.
        floats = {
            name: np.where(valid, values.astype(np.float64), np.nan)
            for name, (values, valid) in found.items()
        }
        made = await asyncio.to_thread(selection.expression, floats)
        return {"expression": (made, np.isfinite(made))}

    def _is_series(self, along: Dimension, touched: int) -> bool:
        """Whether a series along a dimension, for which so many cells are decoded, is not too long."""
        return along.size <= LONGEST_SERIES and touched <= 8 * self.settings.cell_count

    def series_of(self, scene: Scene, band: PictureBand) -> list[str]:
        """The dimensions along which a cell of a band has a series that may be read."""
        array, names = scene.finest.arrays[band.array], scene.dimension_names(band.array)
        found = []
        for along in scene.dimensions_of(band):
            chunks = -(-along.size // array.chunks[names.index(along.name)])
            if self._is_series(along, math.prod(array.chunks) * chunks):
                found.append(along.name)
        return found

    async def read_series(
        self, scene: Scene, band: PictureBand, indices: Mapping[str, int], along: Dimension, area: Area
    ) -> ValidValues:
        """The unpacked values of an area's window along a dimension, and which are valid.

        Shapes
            both (items of the dimension, rows, columns).
        """
        dataset, names = scene.levels[area.level], scene.dimension_names(band.array)
        array, axes = dataset.arrays[band.array], (names.index(along.name), *dataset.axes(band.array))
        sides = (slice(0, along.size), *area.window)
        items = {**indices, **band.fixed}
        region: list[Any] = [items.get(name, 0) for name in names]
        for axis, side in zip(axes, sides, strict=True):
            region[axis] = side
        touched = math.prod(array.chunks) * math.prod(
            -(-side.stop // array.chunks[axis]) - side.start // array.chunks[axis]
            for axis, side in zip(axes, sides, strict=True)
        )
        if not self._is_series(along, touched):
            detail = f"a series would decode {touched} cells: the chunks are short along {along.name}"
            raise Problem(422, detail)
        variable = scene.variable(band)
        held = np.transpose(
            await array.read_async(tuple(region)), [sorted(axes).index(axis) for axis in axes]
        )
        stored, nodata = variable.with_one_nodata(held), variable.nodata
        valid = np.isfinite(stored) if nodata is None else np.isfinite(stored) & (stored != nodata)
        if scene.mask is not None and scene.mask != band.array:
            valid &= np.asarray(await dataset.arrays[scene.mask].read_async(area.window)) != 0
        return unpack(scene, band, Pixels(stored, valid))


def _draw(
    bands: Sequence[ValidValues], style: Style, frame: Frame, categories: Mapping[int, Any],
    limits: Sequence[tuple[float, float]],
) -> drawing.Picture:  # fmt: skip
    if style.mix:
        return drawing.mix(bands, limits, style.mix)
    if categories:
        return drawing.draw_categories(*bands[0], categories)
    if style.algorithm == "terrainrgb":
        return drawing.terrain_rgb(*bands[0])
    cell = ground_cell(frame.affine, frame.shape, frame.crs)
    if style.algorithm == "hillshade":
        shade = hillshade(*bands[0], cell, style.azimuth, style.altitude)
        return drawing.draw([(shade, np.isfinite(shade))], [(0.0, 255.0)])
    colours = drawing.stepped(drawing.colour_map(style.colour_map or "grey"), style.steps)
    if style.algorithm == "relief":
        return drawing.draw_relief(*bands[0], limits, colours, cell, style.steps)
    return drawing.draw(bands, limits, colours, style.scale == "log", style.steps)


def unpack(scene: Scene, band: PictureBand, pixels: Pixels) -> ValidValues:
    """Stored values with scale and offset applied, and which of them are valid."""
    variable = scene.variable(band)
    if variable.scale_factor is None and variable.add_offset is None:
        return pixels.values, pixels.valid
    scale = 1.0 if variable.scale_factor is None else variable.scale_factor
    return pixels.values * np.float64(scale) + (variable.add_offset or 0.0), pixels.valid


def percentiles(values: Items, valid: Any, wanted: tuple[float, float]) -> tuple[float, float]:
    """Two percentiles of the valid values; least and greatest where both are the same."""
    seen = values[valid].astype(np.float64)
    if not seen.size:
        return 0.0, 1.0
    low, high = np.percentile(seen, wanted).tolist()
    return (low, high) if low < high else (float(seen.min()), float(seen.max()))


@lru_cache(32)
def _transparent_picture(shape: tuple[int, int], format: str) -> bytes:
    clear = drawing.Picture(np.zeros(shape, np.uint8), np.zeros((1, 4), np.uint8))
    return drawing.encode(clear, format)


def run_coroutine(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, also on a thread whose event loop is running, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
