"""Cubes of STAC items: scenes of any zone and resolution on one grid, sorted into time, as one view.

Items that state their grid and data type (`proj:`, `raster:`) are opened when they are read; others at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from zstore.base.boxes import Box, Items, Shape, lengths, whole
from zstore.base.once import ByContent, once
from zstore.errors import ChangedError, MetadataError, NotFoundError, UnsupportedError
from zstore.geo.conventions.base import Affine, Band, Variable
from zstore.geo.conventions.content import parse_bands
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.timeaxis import TimeAxis
from zstore.geo.pyramid.carried import Coordinate, Ground, Meant, check_alike
from zstore.geo.pyramid.dataset import Mask, open_dataset, open_only_array, read_window
from zstore.geo.pyramid.warp import (
    GeoGrid,
    Placed,
    Warped,
    as_grid,
    grid_around,
    grid_of,
    overlay_warped,
    place_warped,
    starts_of,
    warp_array,
)
from zstore.jobs.chunks import source_of
from zstore.jobs.source import Source
from zstore.model.grid import RegularGrid
from zstore.model.packing import fit_nodata
from zstore.nodes.array import Array
from zstore.nodes.open import open as open_node
from zstore.storage.base import Store
from zstore.storage.references import absolute_address
from zstore.storage.url import current_storage_options, is_remote, open_store, with_storage_options
from zstore.views.document import Addresses
from zstore.views.made import MadeBy, MadeSource
from zstore.views.view import View, concat, overlay, stack, view

# What is made of several valid cells of one moment.
MERGES: dict[str, Any] = {"mean": np.nanmean, "median": np.nanmedian, "min": np.nanmin, "max": np.nanmax}
TIMES = ("day", "item", "orbit")
# Media types of assets that are rasters.
RASTERS = ("image/tiff", "image/jp2", "application/vnd+zarr", "application/vnd.zarr", "application/x-netcdf")
# Rows and columns of an asset that are read at a time, as long as nobody has opened it.
BLOCK_LENGTH = 512
# What an asset, or its band, states of its values.
VALUES = (
    "data_type",
    *(f"{prefix}{name}" for name in ("nodata", "scale", "offset", "unit") for prefix in ("", "raster:")),
)
CRS_MEMBERS = ("proj:code", "proj:epsg", "proj:wkt2", "proj:projjson")


@with_storage_options
def cube(
    items: Any,
    grid: GeoGrid | Placed | None = None,
    bands: str | Sequence[str] | None = None,
    *,
    time: Literal["day", "item", "orbit"] = "day",
    crs: Any = None,
    resolution: float | tuple[float, float] | None = None,
    resampling: str = "nearest",
    nodata: Any = None,
    first: bool = False,
    merge: Literal["mean", "median", "min", "max"] | None = None,
    unpack: bool = False,
    mask: str | None = None,
    mask_values: Sequence[int] = (),
    mask_bits: Sequence[int] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> View:
    """A view of the assets of STAC items along time, on one grid of the Earth; no item of an array is read.

    Reading a box of it reads the scenes that it lies in, and no others.

    items       an item, several, or a collection of items: a path or URL of its JSON (as GDAL's STACIT takes
                it), mappings, or objects of pystac's
    grid        a `GeoGrid`, or something that has one; None: the smallest one around all scenes
    bands       keys of assets, or names of bands (`eo:common_name` too); a text makes no dimension of bands.
                None: the only raster that the items have
    time        "day" (of UTC): the scenes of a day are laid over each other; "item": each scene for itself;
                "orbit": those of one orbit of a platform together
    crs, resolution   of a `grid` that is None, as for `GeoGrid.around`
    resampling  "nearest", "bilinear", "cubic", "average" or "mode"
    nodata      of scenes without it; None: the scenes' own, which has to be the same
    first       whether of valid cells the first scene's count, and not the last's
    merge       what is made of several valid cells of one moment, of physical numbers alone; None: one counts
    unpack      whether cells are physical numbers, float32, with NaN for nodata: scenes may then differ in
                nodata, scale and offset, which are applied scene by scene
    mask        an asset or band of classes or flags, as `bands` names them, on any grid: cells are left out
                where it has one of `mask_values`, or a bit of `mask_bits`, 0 the lowest. Where it has nodata
                itself, they stay
    storage_options   how to reach what items lead to; `allow` for places that are not below their document

    Shapes
        (time, band, y, x), or (time, y, x) of one band.
    Raises
        NotFoundError: an item has no such asset.
        MetadataError: no items; JSON that is no STAC; items without a date, a CRS or an affine; scenes that
            differ in units, or, without `unpack`, in nodata, scale or offset.
        UnsupportedError: several pages of items, of which this is one; an asset of several bands; `merge`
            without `unpack`, `mask` without values or bits, or these without it.
        StoreError: a document leads to a place that is not allowed.
    """
    if time not in TIMES:
        raise UnsupportedError(f"time is {time!r}; expected one of {', '.join(TIMES)}")
    hidden = _Hidden(mask, tuple(mask_values), tuple(mask_bits))
    if merge is not None and (merge not in MERGES or not unpack):
        known = ", ".join(MERGES)
        raise UnsupportedError(
            f"merge is {merge!r}, unpack {unpack}; expected one of {known}, of unpacked cells"
        )
    scenes = sorted(read_items(items, current_storage_options()), key=lambda scene: scene.moment)
    if not scenes:
        raise MetadataError("there are no items; expected one or more")
    wanted = [bands] if isinstance(bands, str) else [*(bands or (_only_raster(scenes, mask),))]
    has_bands = not isinstance(bands, str | None)
    grouped = dict[Any, list[_Scene]]()
    for number, scene in enumerate(scenes):
        grouped.setdefault(number if time == "item" else scene.group(time), []).append(scene)
    together = list[list[list[_Asset]]]()
    for group in grouped.values():
        moment = group[0].moment.astype("datetime64[D]") if time == "day" else group[0].moment
        together.append([[hidden.of(scene, band, moment, has_bands) for scene in group] for band in wanted])
    own = dict.fromkeys(asset.placed for several in together for each in several for asset in each)
    target = grid_around([*own], crs, resolution) if grid is None else as_grid(grid)
    boxes, earliest = dict[Any, Box](), dict[str, Variable]()

    def layer(assets: Sequence[_Asset]) -> View:
        warps = [hidden.warped(asset, target, resampling, nodata) for asset in assets]
        for warped in warps:
            variable = _physical(warped) if unpack else warped.variable
            check_alike(earliest.setdefault(assets[0].key, variable), variable, warped.place)
        if unpack:
            return _merged(warps, merge, boxes, first)
        return overlay_warped(warps, first=first, boxes=boxes)

    layers = [[layer(assets) for assets in several] for several in together]
    return concat([concat(several, axis=1) if len(several) > 1 else several[0] for several in layers], axis=0)


def _merged(warps: Sequence[Warped], merge: str | None, boxes: dict[Any, Box], first: bool) -> View:
    """The physical numbers of arrays on one grid, laid over each other or merged."""
    places, shape = place_warped(warps, boxes), warps[0].shape
    parts = [_unpacked(warped)[box] for warped, box in zip(warps, places, strict=True)]
    if merge is None or len(parts) == 1:
        return overlay(parts, starts_of(places), shape=shape, first=first)
    whole = [overlay([part], starts_of([box]), shape=shape) for part, box in zip(parts, places, strict=True)]
    made: View = MERGES[merge](stack(whole), axis=0)
    return made


def _physical(warped: Warped) -> Variable:
    """The meaning of an array's unpacked cells."""
    return replace(warped.variable, nodata=None, other_nodata=(), scale_factor=None, add_offset=None)


def _unpacked(warped: Warped) -> View:
    """The physical numbers of an array on another grid."""
    said = warped.variable
    scale, offset = 1.0 if said.scale_factor is None else said.scale_factor, said.add_offset or 0.0
    return view(warped).scale(scale, offset, nodata=warped.warp.nodata, dtype="f4")


@dataclass(frozen=True)
class _Hidden:
    """The cells that a quality band hides: those of some classes, and those with flags.

    values  the classes
    bits    the numbers of the flags, 0 the lowest
    """

    band: str | None
    values: tuple[int, ...]
    bits: tuple[int, ...]

    def __post_init__(self) -> None:
        if (self.band is None) == bool(self.values or self.bits):
            said = f"mask is {self.band!r}, mask_values {self.values}, mask_bits {self.bits}"
            raise UnsupportedError(f"{said}; expected a band, and values or bits of it")
        if any(not 0 <= bit < 64 for bit in self.bits):
            raise UnsupportedError(f"mask_bits are {self.bits}; expected numbers from 0 to 63")

    def of(self, scene: _Scene, band: str, moment: Any, has_bands: bool) -> _Asset:
        """The asset of a band, with that of the quality band beside it."""
        asset = scene.asset(band, moment, has_bands)
        if self.band is None:
            return asset
        return replace(asset, quality=scene.asset(self.band, moment, has_bands))

    def warped(self, asset: _Asset, grid: GeoGrid, resampling: str, nodata: Any) -> Warped:
        """An asset on another grid, without the cells that are hidden."""
        made, quality = asset.warped(grid, resampling, nodata), asset.quality
        if quality is None:
            return made
        own, hole = asset.placed, quality.variable.nodata
        if quality.placed == own:
            cells = view(quality)
        else:
            cells = view(quality.warped(own, "nearest", 0 if hole is None else None))
        is_kept = ~self._hides(cells)
        if hole is not None:
            is_kept = is_kept | (cells == hole)
        return made.masked(Mask.of(is_kept, tuple(range(len(made.shape)))))

    def _hides(self, cells: View) -> Any:
        """Whether each cell has a class or a flag that hides."""
        dtype = cells.dtype
        if dtype.kind not in "iu" or any(bit >= 8 * dtype.itemsize for bit in self.bits):
            raise MetadataError(
                f"mask {self.band!r} is of data type {dtype}; expected integers with the bits {self.bits}"
            )
        flags = np.array(sum(1 << bit for bit in {*self.bits}), f"u{dtype.itemsize}").astype(dtype)[()]
        if not self.values:
            return (cells & flags) != 0
        is_class = np.isin(cells, self.values)
        return is_class | ((cells & flags) != 0) if self.bits else is_class


@dataclass(frozen=True)
class _Scene:
    """An item of STAC.

    folder  the address that relative ones are below; "" for those of the working directory
    """

    item: Mapping[str, Any]
    folder: str
    addresses: Addresses | None
    options: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        return str(self.item.get("id", "?"))

    @once
    def moment(self) -> np.datetime64:
        """The date and time, of a range its beginning."""
        text = self.properties.get("datetime") or self.properties.get("start_datetime")
        try:
            moment = datetime.fromisoformat(str(text))
        except ValueError:
            said = f"item {self.name!r} has the datetime {text!r}; expected a date"
            raise MetadataError(said) from None
        utc = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
        return np.datetime64(utc, "us")

    def group(self, time: str) -> Any:
        """A key that all items of one day or orbit share."""
        if time == "day":
            return self.moment.astype("datetime64[D]")
        number, platform = self.properties.get("sat:absolute_orbit"), self.properties.get("platform")
        if not isinstance(number, int | str) or not isinstance(platform, str | None):
            said = f"has no sat:absolute_orbit, but {number!r}, of the platform {platform!r}"
            raise MetadataError(f"item {self.name!r} {said}; expected a number and a name, or time by day")
        return platform, number

    @once
    def properties(self) -> Mapping[str, Any]:
        made = self.item.get("properties") or {}
        if not isinstance(made, Mapping):
            raise MetadataError(f"item {self.name!r} has the properties {made!r}; expected an object")
        return made

    @once
    def assets(self) -> Mapping[str, Any]:
        made = self.item.get("assets")
        if not isinstance(made, Mapping) or not all(isinstance(one, Mapping) for one in made.values()):
            raise MetadataError(f"item {self.name!r} has no assets; expected an item of STAC")
        return made

    def asset(self, band: str, moment: Any, has_bands: bool) -> _Asset:
        """The asset of a band, by its key or by the names of its band."""
        key = band if band in self.assets else None
        for name, asset in self.assets.items():
            own = _bands(asset)
            if key is None and len(own) == 1 and band in (own[0].name, own[0].common_name):
                key = name
        if key is None:
            there = ", ".join(self.assets)
            raise NotFoundError(f"item {self.name!r} has no asset or band {band!r}; there are {there}")
        asset = self.assets[key]
        own = _bands(asset)
        if len(own) > 1:
            raise UnsupportedError(f"asset {key!r} of {self.name!r} has {len(own)} bands; expected one")
        href = asset.get("href")
        if not isinstance(href, str):
            raise MetadataError(f"asset {key!r} of {self.name!r} has the href {href!r}; expected an address")
        address, options = href, self.options
        if self.addresses is not None:
            address = self.addresses.settle(href)
            options = self.addresses.options(address)
        elif self.folder and "://" not in href and not href.startswith("/"):
            address = f"{self.folder}/{href.removeprefix('./')}"
        said = {**self.properties, **asset}
        rasters = [*_objects(asset, "raster:bands"), *_objects(asset, "bands")]
        values = {**asset, **(rasters[0] if rasters else {})}
        return _Asset(address, band, said, values, own[:1] or (Band(band),), moment, has_bands, options)


# Of a hundred thousand scenes, most state a grid and a meaning that others have, too.
_GRIDS = ByContent[tuple[GeoGrid, np.dtype[Any]]]()
_VARIABLES = ByContent[Variable]()


def _parse_stated(said: Sequence[Any]) -> tuple[GeoGrid, np.dtype[Any]]:
    code, (rows, columns), numbers, dtype = said
    return GeoGrid(Crs.from_user(code), Affine.from_user(numbers), (int(rows), int(columns))), np.dtype(dtype)


def make_scene(
    url: str, storage_options: Any, key: str, said: Any, values: Any, bands: Any, moment: str, has_bands: bool
) -> _Asset:
    """The source of views that a document describes."""
    named = tuple(Band(**one) for one in bands)
    return _Asset(url, key, said, values, named, np.datetime64(moment), bool(has_bands), storage_options)


def _plain(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that say something."""
    return {name: value for name, value in members.items() if value is not None and value != {}}


def _objects(owner: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects that a member lists.

    Raises
        MetadataError: it is no list of objects.
    """
    listed = owner.get(name) or []
    if not isinstance(listed, list | tuple) or not all(isinstance(one, Mapping) for one in listed):
        raise MetadataError(f"{name} are {listed!r}; expected a list of objects, as STAC has it")
    return [*listed]


def _bands(asset: Mapping[str, Any]) -> tuple[Band, ...]:
    return parse_bands(asset.get("eo:bands")) or parse_bands(asset.get("bands")) or ()


def _only_raster(scenes: Sequence[_Scene], mask: str | None) -> str:
    """The key of the only asset of all items that is a raster of data, beside that of the mask."""
    there = dict.fromkeys(
        key
        for scene in scenes
        for key, asset in scene.assets.items()
        if key != mask
        and str(asset.get("type", "")).startswith(RASTERS)
        and not any(
            role in (asset.get("roles") or ()) for role in ("thumbnail", "overview", "visual", "metadata")
        )
    )
    if len(there) != 1:
        raise MetadataError(
            f"the items have the rasters {', '.join(there) or 'none'}; expected bands=NAME of one"
        )
    return next(iter(there))


@dataclass(frozen=True, repr=False)
class _Asset(MadeSource):
    """A raster that an item leads to, as one moment of a cube; it is opened when something is read of it.

    said    what the item and the asset state of the grid
    values  what the asset states of its values
    """

    address: str
    key: str
    said: Mapping[str, Any] = field(repr=False, compare=False)
    values: Mapping[str, Any] = field(repr=False, compare=False)
    bands: tuple[Band, ...] = field(repr=False, compare=False)
    moment: np.datetime64
    has_bands: bool
    options: Mapping[str, Any] | None = field(repr=False, compare=False)
    quality: _Asset | None = field(default=None, repr=False)

    def making(self) -> MadeBy:
        said = {
            name: self.said.get(name) for name in ("proj:shape", "proj:transform", "data_type", *CRS_MEMBERS)
        }
        options = {
            "key": self.key,
            "said": _plain(said),
            "values": _plain({name: self.values.get(name) for name in VALUES}),
            "bands": [_plain(vars(band)) for band in self.bands],
            "moment": str(self.moment),
            "has_bands": self.has_bands,
        }
        return MadeBy("scene", options, url=self.address, storage_options=self.options)

    @once
    def opened(self) -> Array:
        """The array at the address.

        Raises
            ChangedError: it has not the shape or the data type that the item states.
        """
        node = open_node(self.address, mode="r", storage_options=self.options)
        array = open_only_array(node, "cube")
        stated = self._stated
        if stated is not None:
            shape, dtype = stated[0].shape, stated[1]
            if array.shape[-2:] != shape or array.size != shape[0] * shape[1] or array.dtype != dtype:
                raise ChangedError(
                    f"{array.shape} {array.dtype} is there; expected {shape} {dtype}, as the item says",
                    path=self.address,
                )
        return array

    @once
    def source(self) -> Source:
        """The array at the address as a source."""
        return source_of(self.opened)

    @once
    def _stated(self) -> tuple[GeoGrid, np.dtype[Any]] | None:
        """(the grid, the data type) as the item states them; None where it does not."""
        said = self.said
        code = next((said[name] for name in CRS_MEMBERS if said.get(name) is not None), None)
        shape, numbers, dtype = (said.get(n) for n in ("proj:shape", "proj:transform", "data_type"))
        dtype = self.values.get("data_type", dtype)
        if code is None or not shape or not numbers or dtype is None:
            return None
        try:
            return _GRIDS.get([code, shape, numbers, dtype], _parse_stated)
        except (TypeError, ValueError, OverflowError) as error:
            raise MetadataError(f"the item states a grid that is none: {error}", path=self.address) from error

    @once
    def placed(self) -> GeoGrid:
        """The grid."""
        return self._stated[0] if self._stated is not None else grid_of(self._dataset)

    @once
    def _dataset(self) -> Any:
        return open_dataset(open_node(self.address, mode="r", storage_options=self.options))

    @once
    def variable(self) -> Variable:
        """The meaning of the cells: as the item states it, else as the raster does."""
        values = [self._value(name) for name in ("nodata", "scale", "offset", "unit")]
        if self._stated is not None:
            key = [self.dtype.str, self._names, values, [[*vars(band).values()] for band in self.bands]]
            return _VARIABLES.get(key, lambda _: self._variable(values))
        own = self._dataset.geo.variables[self._dataset.only_name]
        others = own.nodata, own.scale_factor, own.add_offset, own.units
        pairs = zip(values, others, strict=True)
        return self._variable([other if value is None else value for value, other in pairs])

    def _variable(self, values: Sequence[Any]) -> Variable:
        nodata, scale, offset, units = values
        return Variable(
            dtype=self.dtype,
            dimensions=self._names,
            nodata=None if nodata is None else fit_nodata(nodata, self.dtype),
            scale_factor=scale,
            add_offset=offset,
            units=units,
            bands=self.bands,
        )

    def _value(self, name: str) -> Any:
        """A member of the item about its values; None where it has none.

        Raises
            MetadataError: it is no number, or the unit no text.
        """
        value = self.values.get(name, self.values.get(f"raster:{name}"))
        if value is None or (name == "unit" and isinstance(value, str)):
            return value
        if name != "unit" and not isinstance(value, bool):
            with suppress(TypeError, ValueError, OverflowError):
                # STAC has texts for NaN and infinities; nodata stays the integer that it is.
                return value if name == "nodata" and not isinstance(value, str) else float(value)
        kind = "a text" if name == "unit" else "a number"
        raise MetadataError(f"the item states the {name} {value!r}; expected {kind}", path=self.address)

    @property
    def _names(self) -> tuple[str, ...]:
        return ("time", "band", "y", "x") if self.has_bands else ("time", "y", "x")

    @property
    def shape(self) -> Shape:
        return (*(1,) * (len(self._names) - 2), *self.placed.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._stated[1] if self._stated is not None else self.opened.dtype

    @property
    def grid(self) -> RegularGrid:
        return RegularGrid((*(1,) * (len(self._names) - 2), BLOCK_LENGTH, BLOCK_LENGTH))

    @property
    def url(self) -> str:
        return self.address

    def check_apart(self, target: Store, base: str, work: str) -> None:
        Source.check_apart(self, target, base, work)

    @property
    def request_count(self) -> int:
        return 32 if is_remote(self.address) else 1

    def close(self) -> None:
        if "source" in self.__dict__:
            super().close()

    @once
    def meant(self) -> Meant:
        """The meaning of the items, with their time."""
        time = TimeAxis.from_dates(np.array([self.moment]))
        said = {"standard_name": "time", "axis": "T", "units": time.units, "calendar": time.calendar}
        ground = Ground(self.placed.crs, self.placed.affine, (len(self.shape) - 2, len(self.shape) - 1))
        coordinates = {"time": Coordinate(view(time.values), (0,), said)}
        name = self.key if not self.has_bands else "data"
        return Meant(name, self.shape, self._names, self.variable, ground, coordinates)

    def read(self, box: Box, out: Items | None = None) -> Items:
        made = read_window(self.source, (*whole(self.source.shape[:-2]), *box[-2:]))
        shaped: Items = made.reshape(lengths(box))
        if out is None:
            return shaped
        out[...] = shaped
        return out

    def warped(self, grid: GeoGrid, resampling: str, nodata: Any) -> Warped:
        """The raster on another grid."""
        axes = len(self.shape) - 2, len(self.shape) - 1
        return warp_array(
            self, self, self.placed, axes, self.variable, grid, resampling, nodata, self.address
        )


def read_items(
    items: Any, options: Mapping[str, Any] | None, folder: str = "", addresses: Addresses | None = None
) -> Iterator[_Scene]:
    """The items of a document, a mapping, an object of pystac's, or several of these.

    folder, addresses  of the document that led to them

    Raises
        MetadataError: they are none.
        UnsupportedError: other pages of items follow.
    """
    if isinstance(items, str | os.PathLike) and addresses is None:
        yield from _read_document(os.fspath(items), options)
        return
    if not isinstance(items, Mapping) and hasattr(items, "to_dict"):
        items = items.to_dict()
    if not isinstance(items, Mapping):
        if not isinstance(items, Iterable) or isinstance(items, str | bytes):
            raise MetadataError(f"items are {items!r}; expected items of STAC, or an address of them")
        for one in items:
            yield from read_items(one, options, folder, addresses)
        return
    kind = items.get("type")
    links = _objects(items, "links")
    if any(link.get("rel") == "next" for link in links):
        raise UnsupportedError(
            'the items are one page of several, as a link "next" says; expected all of them'
        )
    if kind == "FeatureCollection":
        yield from read_items(_objects(items, "features"), options, folder, addresses)
    elif kind in ("Collection", "Catalog"):
        for link in links:
            if link.get("rel") == "item":
                href = str(link.get("href"))
                full = addresses.settle(href) if addresses is not None else href
                yield from _read_document(full, options, is_linked=True)
    elif kind == "Feature":
        own = next((link.get("href") for link in links if link.get("rel") == "self"), "")
        yield _Scene(items, folder or str(own).rpartition("/")[0], addresses, options)
    else:
        raise MetadataError(
            f"type is {kind!r}; expected an item, a collection of items or a catalogue of STAC"
        )


def _read_document(
    address: str, options: Mapping[str, Any] | None, *, is_linked: bool = False
) -> Iterator[_Scene]:
    """The items of the JSON document at an address; where a collection leads to it, it is an item."""
    above, _, name = address.rpartition("/")
    given = dict(options or {})
    allowed = given.pop("allow", ())
    store = open_store(above or ".", read_only=True, storage_options=given or None)
    data = store.get(name)
    if data is None:
        raise NotFoundError("no items there; expected a JSON document of STAC", path=address)
    try:
        document = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the items are no JSON: {error}", path=address) from error
    kind = document.get("type") if isinstance(document, Mapping) else None
    if is_linked and kind != "Feature":
        raise MetadataError(f"type is {kind!r}; expected an item, as the collection says", path=address)
    places = [allowed] if isinstance(allowed, str | os.PathLike) else [*allowed]
    folder = absolute_address(above or ".").rstrip("/")
    addresses = Addresses(folder, [os.fspath(one) for one in places], given)
    yield from read_items(document, options, folder, addresses)
