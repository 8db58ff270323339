"""A rio-tiler reader for titiler and others, over zstore's engine.

    from zstore_serve.rio import Reader

    with Reader("scene.zarr") as scene:
        image = scene.tile(x, y, z, indexes=(1, 2, 3))
    TilerFactory(reader=Reader)  # titiler

Scale and offset are always applied, so `unscale` changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attr
import numpy as np
from morecantile import Tile, TileMatrixSet
from rasterio import Affine as Transform
from rasterio.crs import CRS
from rasterio.features import bounds as bounds_of
from rasterio.features import rasterize
from rasterio.transform import from_bounds
from rasterio.warp import transform as transform_places
from rasterio.warp import transform_bounds, transform_geom
from rio_tiler.constants import WEB_MERCATOR_TMS, WGS84_CRS
from rio_tiler.errors import PointOutsideBounds, RioTilerError, TileOutsideBounds
from rio_tiler.io.base import BaseReader
from rio_tiler.models import BandStatistics, ImageData, Info, PointData

from zstore.plugin.conventions import Affine, Crs
from zstore_serve.areas import Area
from zstore_serve.frames import SAMPLINGS, Frame, FramePlan, plan_frame
from zstore_serve.pictures import PictureMaker, Settings, run_coroutine
from zstore_serve.problems import Problem
from zstore_serve.queries import Parameters, Selection, choose_items
from zstore_serve.scenes import Scene, open_scenes

__all__ = ["Reader"]

PART_SIZE = 1024


@attr.s
class Reader(BaseReader):
    """A reader of one grid of a store, with all its levels.

    collection       which grid, where the store has several
    chosen           the item of each dimension beside y and x: {"time": "2020-06-01", "depth": "@3"}
    storage_options  how to reach a bucket or web server

    Raises
        NotFoundError: the store does not exist.
        MetadataError: the store holds no grid of two dimensions.
        RioTilerError: there is no such collection, or its grid has no CRS.
    """

    input: Any = attr.ib()
    tms: TileMatrixSet = attr.ib(default=WEB_MERCATOR_TMS)
    collection: str | None = attr.ib(default=None)
    chosen: Mapping[str, str] = attr.ib(factory=dict)
    storage_options: Mapping[str, Any] | None = attr.ib(default=None)
    settings: Settings = attr.ib(factory=Settings)

    scene: Scene = attr.ib(init=False)

    def __attrs_post_init__(self) -> None:
        scenes = open_scenes([self.input], self.storage_options)
        name = next(iter(scenes)) if self.collection is None else self.collection
        if name not in scenes:
            raise RioTilerError(f"no collection {name!r}; there are {', '.join(scenes)}")
        self.scene, self._maker = scenes[name], PictureMaker(self.settings)
        if self.scene.crs is None:
            raise RioTilerError(f"{name!r} has no place on the ground; expected a grid with a CRS")
        self.crs = CRS.from_wkt(self.scene.crs.wkt)
        self.bounds = self.scene.bounds()
        rows, columns = self.scene.window
        self.height, self.width = rows.stop - rows.start, columns.stop - columns.start
        self.transform = Transform(*self.scene.affine(0).moved(columns.start, rows.start))

    @property
    def minzoom(self) -> int:
        """The zoom at which the whole grid is about one tile."""
        return self._minzoom

    @property
    def maxzoom(self) -> int:
        """The zoom at which cells of the finest level are pixels."""
        return self._maxzoom

    def info(self) -> Info:
        """The bounds, the size and the bands."""
        bands = [(f"b{n}", name) for n, name in enumerate(self.scene.bands, start=1)]
        variables = [self.scene.variable(band) for band in self.scene.bands.values()]
        kinds = [self.scene.finest.arrays[band.array].dtype for band in self.scene.bands.values()]
        return Info(
            bounds=self.bounds, crs=self.crs.to_wkt() if self.crs.to_epsg() is None else _uri(self.crs),
            band_metadata=[
                (b, {"units": v.units} if v.units else {}) for (b, _), v in zip(bands, variables, strict=True)
            ],
            band_descriptions=bands, dtype=str(np.result_type(*kinds)),
            nodata_type="Nodata" if any(v.nodata is not None for v in variables) else "None",
            width=self.width, height=self.height, count=len(bands),
        )  # fmt: skip

    def tile(
        self,
        tile_x: int,
        tile_y: int,
        tile_z: int,
        tilesize: int | None = None,
        indexes: Any = None,
        expression: str | None = None,
        resampling_method: str = "nearest",
        reproject_method: str | None = None,
        buffer: float | None = None,
        **others: Any,
    ) -> ImageData:
        """A tile of the reader's tile matrix set.

        Raises
            TileOutsideBounds: nothing of the scene lies there.
        """
        if not self.tile_exists(tile_x, tile_y, tile_z):
            raise TileOutsideBounds(f"Tile(x={tile_x}, y={tile_y}, z={tile_z}) is outside bounds")
        size = tilesize or self.tms.matrix(tile_z).tileWidth
        left, bottom, right, top = self.tms.xy_bounds(Tile(tile_x, tile_y, tile_z))
        if buffer:
            wide, high = (right - left) / size * buffer, (top - bottom) / size * buffer
            left, bottom, right, top = left - wide, bottom - high, right + wide, top + high
            size += round(2 * buffer)
        box = (left, bottom, right, top)
        return self._image(
            box, self.tms.rasterio_crs, size, size, indexes, expression, reproject_method or resampling_method
        )

    def part(
        self,
        bbox: Sequence[float],
        dst_crs: CRS | None = None,
        bounds_crs: CRS = WGS84_CRS,
        indexes: Any = None,
        expression: str | None = None,
        max_size: int | None = None,
        height: int | None = None,
        width: int | None = None,
        resampling_method: str = "nearest",
        reproject_method: str | None = None,
        **others: Any,
    ) -> ImageData:
        """The window within `bbox`; in cells of the finest level, unless a size is given."""
        if not (bbox[0] < bbox[2] and bbox[1] < bbox[3]):
            raise RioTilerError(f"bbox is {tuple(bbox)}; expected west, south, east, north")
        crs = dst_crs or bounds_crs
        box = tuple(bbox) if crs == bounds_crs else transform_bounds(bounds_crs, crs, *bbox, densify_pts=21)
        if height is None and width is None:
            height, width = self._natural_size(box, crs)
            longest = max(height, width)
            if longest > (max_size or longest):
                height, width = (max(1, round(n * (max_size or 1) / longest)) for n in (height, width))
        ratio = (box[3] - box[1]) / (box[2] - box[0])
        height = max(1, round((width or 1) * ratio)) if height is None else height
        width = max(1, round(height / ratio)) if width is None else width
        return self._image(
            box, crs, height, width, indexes, expression, reproject_method or resampling_method
        )

    def preview(
        self,
        indexes: Any = None,
        expression: str | None = None,
        max_size: int | None = PART_SIZE,
        height: int | None = None,
        width: int | None = None,
        dst_crs: CRS | None = None,
        resampling_method: str = "nearest",
        reproject_method: str | None = None,
        **others: Any,
    ) -> ImageData:
        """The whole grid, at most `max_size` pixels a side."""
        return self.part(
            self.bounds, dst_crs or self.crs, self.crs, indexes, expression, max_size, height, width,
            reproject_method or resampling_method,
        )  # fmt: skip

    def point(
        self,
        lon: float,
        lat: float,
        coord_crs: CRS = WGS84_CRS,
        indexes: Any = None,
        expression: str | None = None,
        **others: Any,
    ) -> PointData:
        """The values of the cell at a place.

        Raises
            PointOutsideBounds: the place lies outside of the grid.
        """
        (x,), (y,) = transform_places(coord_crs, self.crs, [lon], [lat])
        back = ~self.transform
        column, row = back.a * x + back.b * y + back.c, back.d * x + back.e * y + back.f
        rows, columns = self.scene.window
        if not (0 <= column < (self.width or 0) and 0 <= row < (self.height or 0)):
            raise PointOutsideBounds("Point is outside dataset bounds")
        at = (rows.start + int(row), columns.start + int(column))
        values, names = self._read(Area.of_cell(*at).plan, indexes, "nearest")
        found = PointData(
            values[:, 0, 0], band_names=[f"b{n + 1}" for n in range(len(names))], band_descriptions=names,
            coordinates=(lon, lat), crs=coord_crs, pixel_location=(column, row),
        )  # fmt: skip
        return found.apply_expression(expression) if expression else found

    def feature(
        self,
        shape: dict[str, Any],
        dst_crs: CRS | None = None,
        shape_crs: CRS = WGS84_CRS,
        **others: Any,
    ) -> ImageData:
        """The window around a GeoJSON feature, with the pixels outside of the feature masked."""
        crs = dst_crs or shape_crs
        shape = shape.get("geometry") or shape
        placed = shape if crs == shape_crs else transform_geom(shape_crs, crs, shape)
        image = self.part(bounds_of(placed), crs, crs, **others)
        cutline = rasterize(
            [placed], out_shape=(image.height, image.width), transform=image.transform,
            all_touched=True, default_value=0, fill=1, dtype="uint8",
        ).astype(bool)  # fmt: skip
        image.cutline_mask = cutline
        image.array.mask = image.array.mask | cutline
        return image

    def statistics(
        self,
        categorical: bool = False,
        categories: list[float] | None = None,
        percentiles: list[int] | None = None,
        hist_options: dict[str, Any] | None = None,
        max_size: int = PART_SIZE,
        **others: Any,
    ) -> dict[str, BandStatistics]:
        """Statistics of the whole grid, of the level that fits `max_size` pixels."""
        image = self.preview(max_size=max_size, **others)
        found: dict[str, BandStatistics] = image.statistics(
            categorical=categorical, categories=categories, percentiles=percentiles, hist_options=hist_options
        )
        return found

    def _natural_size(self, box: Sequence[float], crs: CRS) -> tuple[int, int]:
        """(rows, columns) of a window in cells of the finest level."""
        left, bottom, right, top = box if crs == self.crs else transform_bounds(crs, self.crs, *box)
        own = self.scene.affine(0).cell
        return max(1, round((top - bottom) / own[0])), max(1, round((right - left) / own[1]))

    def _image(
        self, box: Sequence[float], crs: CRS, height: int, width: int, indexes: Any, expression: str | None,
        method: str,
    ) -> ImageData:  # fmt: skip
        if method not in SAMPLINGS:
            raise RioTilerError(f"resampling is {method!r}; expected one of {', '.join(SAMPLINGS)}")
        if height * width > self.settings.cell_count:
            raise RioTilerError(
                f"image has {height} × {width} pixels; expected at most {self.settings.cell_count}"
            )
        transform = from_bounds(*box, width, height)
        own = self.scene.crs if crs == self.crs else Crs.from_user(crs.to_wkt())
        frame = Frame(own, Affine(*tuple(transform)[:6]), (height, width))
        values, names = self._read(plan_frame(self.scene, frame, method), indexes, method)
        image = ImageData(
            values, bounds=tuple(box), crs=crs, band_descriptions=names,
            band_names=[f"b{n + 1}" for n in range(len(names))],
        )  # fmt: skip
        return image.apply_expression(expression) if expression else image

    def _read(
        self, plan: FramePlan, indexes: Any, method: str
    ) -> tuple[np.ma.MaskedArray[Any, Any], list[str]]:
        """(values (bands, rows, columns), masked where they are not valid; names of the bands)."""
        every = list(self.scene.bands.items())
        numbers = [indexes] if isinstance(indexes, int) else list(indexes or range(1, len(every) + 1))
        if not all(1 <= number <= len(every) for number in numbers):
            raise RioTilerError(f"indexes are {numbers}; expected numbers from 1 to {len(every)}")
        bands = [every[number - 1] for number in numbers]
        try:
            items = choose_items(self.scene, [band for _, band in bands], Parameters(self.chosen.items()))
            selection = Selection(dict(bands), items, method)
            found = run_coroutine(self._maker.read_values(self.scene, selection, plan))
        except Problem as problem:
            raise RioTilerError(problem.detail) from problem
        names = [name for name, _ in bands]
        values = np.stack([found[name][0] for name in names])
        hidden = np.stack([~found[name][1] for name in names])
        return np.ma.MaskedArray(values, hidden), names


def _uri(crs: CRS) -> str:
    return f"http://www.opengis.net/def/crs/EPSG/0/{crs.to_epsg()}"
