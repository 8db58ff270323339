"""Values and pictures of scenes: what is asked for is planned, read, made to mean something, and drawn."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from zstore.pyramid.boxes import Items
from zstore_serve import drawing
from zstore_serve.frames import Frame, Pixels, Plan, plan_frame, read_band, together
from zstore_serve.problems import Problem
from zstore_serve.queries import Layer, Style
from zstore_serve.scenes import Band, Scene
from zstore_serve.tilings import whole_frame

__all__ = ["STATISTICS_SIZE", "Maker", "Measured", "Settings", "meant", "settle"]

# How finely what a window's statistics are of, and the percentiles of a whole scene, are looked at.
STATISTICS_SIZE = 1024

Measured = tuple[Items, np.ndarray[Any, np.dtype[np.bool_]]]


@dataclass(frozen=True)
class Settings:
    """What one request may take, and how long its answer may be kept.

    cell_count  cells that are read for it
    time        seconds
    size        pixels a side of a picture
    max_age     seconds for which a browser asks for nothing again; then it asks whether it has changed
    """

    cell_count: int = 1 << 24
    time: float = 30.0
    size: int = 2048
    max_age: int = 60


class Maker:
    """Makes values and pictures, each within what the settings allow."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._limits: dict[Any, tuple[float, float]] = {}

    async def picture(
        self, scene: Scene, layer: Layer, style: Style, frame: Frame, format: str
    ) -> tuple[bytes, int | None]:
        """A file of the picture, and the level it is made of; None where nothing of the scene lies there."""
        rim = 1 if style.algorithm == "hillshade" else 0
        plan = plan_frame(scene, frame.padded(rim) if rim else frame, layer.sampling)
        if not plan.parts:
            return _nothing(frame.shape, format), None
        categories = self.categories_of(scene, layer, style)
        limits: Sequence[tuple[float, float]] = style.limits or ()
        if style.algorithm is None and not categories and style.limits is None:
            asked: list[Coroutine[Any, Any, Any]] = [
                self.measure(scene, layer, plan),
                self.limits_of(scene, layer, style),
            ]
            measured, limits = await together(asked)
        else:
            measured = await self.measure(scene, layer, plan)

        def make() -> bytes:
            pairs = [*measured.values()]
            if categories:
                return drawing.encode(drawing.draw_categories(*pairs[0], categories), format)
            if style.algorithm == "terrainrgb":
                return drawing.encode(drawing.terrain_rgb(*pairs[0]), format)
            if style.algorithm == "hillshade":
                shade = drawing.hillshade(*pairs[0], _metres(frame, scene), style.azimuth, style.altitude)
                return drawing.encode(drawing.draw([(shade, np.isfinite(shade))], [(0.0, 255.0)]), format)
            colours = None if style.colour_map is None else drawing.colour_map(style.colour_map)
            return drawing.encode(drawing.draw(pairs, limits, colours), format)

        return await asyncio.to_thread(make), plan.level

    def categories_of(self, scene: Scene, layer: Layer, style: Style) -> Mapping[int, Any]:
        """The colours of values that are categories; {} where they are drawn as numbers."""
        if style.limits is not None or style.colour_map is not None or style.algorithm is not None:
            return {}
        if layer.expression is not None or len(layer.bands) != 1:
            return {}
        (band,) = layer.bands.values()
        is_whole = scene.finest.arrays[band.array].dtype.kind in "iu"
        return drawing.category_colours(scene.variable(band)) if is_whole else {}

    async def limits_of(self, scene: Scene, layer: Layer, style: Style) -> list[tuple[float, float]]:
        """The percentiles of all of a scene, looked at once."""
        said = tuple(layer.bands) if layer.expression is None else (id(scene),)
        text = None if layer.expression is None else repr(layer.expression.bands)
        keys = [
            (scene.id, name, text, tuple(sorted(layer.chosen.items())), style.percentiles) for name in said
        ]
        is_kept = layer.expression is None
        if is_kept and all(key in self._limits for key in keys):
            return [self._limits[key] for key in keys]
        frame = whole_frame(scene, STATISTICS_SIZE)
        plan = plan_frame(scene, frame, "nearest")
        pairs = await self.measure(scene, layer, plan)
        limits = [_percentiles(*pair, style.percentiles) for pair in pairs.values()]
        if is_kept:
            if len(self._limits) > 4096:
                self._limits.clear()
            self._limits.update(zip(keys, limits, strict=True))
        return limits

    async def measure(self, scene: Scene, layer: Layer, plan: Plan) -> dict[str, Measured]:
        """The values that are meant, and which of them there are, by band; one of them of an expression."""
        cells = plan.cell_count * len(layer.bands)
        if cells > self.settings.cell_count:
            raise Problem(
                422,
                f"{cells} cells would be read, more than {self.settings.cell_count}: too much is shown of "
                "what has no coarser levels; `zstore pyramid` makes them",
            )
        read = [read_band(scene, band, layer.chosen, plan, layer.sampling) for band in layer.bands.values()]
        pixels = await together(read)
        found = {
            name: meant(scene, band, one)
            for (name, band), one in zip(layer.bands.items(), pixels, strict=True)
        }
        if layer.expression is None:
            return found
        # Of 64 bits whatever is stored: half floats overflow where their product is an ordinary number.
        floats = {
            name: np.where(valid, values.astype(np.float64), np.nan)
            for name, (values, valid) in found.items()
        }
        made = await asyncio.to_thread(layer.expression, floats)
        return {"expression": (made, np.isfinite(made))}


def meant(scene: Scene, band: Band, pixels: Pixels) -> Measured:
    """The values that stored ones stand for, and which of them there are."""
    variable = scene.variable(band)
    if variable.scale_factor is None and variable.add_offset is None:
        return pixels.values, pixels.valid
    scale = 1.0 if variable.scale_factor is None else variable.scale_factor
    return pixels.values * np.float64(scale) + (variable.add_offset or 0.0), pixels.valid


def _percentiles(values: Items, valid: Any, wanted: tuple[float, float]) -> tuple[float, float]:
    seen = values[valid].astype(np.float64)
    if not seen.size:
        return 0.0, 1.0
    low, high = np.percentile(seen, wanted).tolist()
    return (low, high) if low < high else (float(seen.min()), float(seen.max()))


def _metres(frame: Frame, scene: Scene) -> tuple[float, float]:
    """Height and width of a frame's pixel on the ground, for slopes."""
    y, x = frame.affine.cell
    if frame.crs is None:
        return y, x
    unit = frame.crs.metres_per_unit
    _, middle = frame.affine.at(frame.shape[1] / 2, frame.shape[0] / 2)
    if frame.crs.is_geographic:
        return y * unit, x * unit * max(0.01, math.cos(middle * frame.crs.radians_per_unit))
    if frame.crs.code == "EPSG:3857":
        shrunk = 1 / math.cosh(middle / 6378137.0)
        return y * unit * shrunk, x * unit * shrunk
    return y * unit, x * unit


@lru_cache(32)
def _nothing(shape: tuple[int, int], format: str) -> bytes:
    clear = drawing.Picture(np.zeros(shape, np.uint8), np.zeros((1, 4), np.uint8))
    return drawing.encode(clear, format)


def settle(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine comes to, also where a loop runs already (in notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
