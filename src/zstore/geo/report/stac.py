"""The STAC item of a store: its outline, its projection, its dimensions and variables, and what to open."""

from __future__ import annotations

import datetime as dt
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.engine.documents import place
from zstore.errors import MetadataError, UnsupportedError, without_secrets
from zstore.geo.conventions.base import Band, GeoModel, Variable
from zstore.geo.conventions.crs import GAP, Crs
from zstore.geo.conventions.timeaxis import TimeAxis, is_of_time
from zstore.geo.pyramid.dataset import PlaceLike, node_of
from zstore.geo.report.summary import Report, describe
from zstore.jobs.chunks import SourceStore
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.storage.base import join_key
from zstore.storage.url import with_storage_options

# By the prefix of its members.
EXTENSIONS = {
    "proj": "projection/v2.0.0", "cube": "datacube/v2.3.0", "zarr": "zarr/v1.1.0", "raster": "raster/v2.0.0",
    "eo": "eo/v2.0.0",
}  # fmt: skip
LON_LAT = "OGC:CRS84"
# Up to so many values of a dimension are listed; of more, the first and the last are said.
MOST_VALUES = 1000
# Points on each side of an outline.
SIDE = 8
COMPLEX = {"complex64": "cfloat32", "complex128": "cfloat64"}
NUMBERS = frozenset(f"{kind}{8 << n}" for n in range(4) for kind in ("int", "uint")) | {
    "float16", "float32", "float64",
}  # fmt: skip


@with_storage_options
def stac_item(
    node: Array | Group | PlaceLike,
    *,
    href: str | None = None,
    id: str | None = None,
    datetime: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A STAC item (1.1.0) for a raster or a pyramid, with the projection, datacube and zarr extensions.

    The outline and the box are those of the cells, in longitude and latitude; an item that the store has
    itself (`stac:item`) is kept, and what is said here takes the place of its members. Assets are the store
    and each variable, of a pyramid at its finest level.

    href      the address of `node` that assets begin with; without it, the one that it was opened by
    id        without it, that of the store's own item, or the last name in `href`
    datetime  when data without time are of: a date, or a text (ISO 8601; UTC if it says no zone)
    storage_options   how to reach a bucket or web server that `node` names by URL

    Raises
        NotFoundError: there is nothing.
        MetadataError: the node is no raster; nothing says its time.
        UnsupportedError: its calendar has dates that STAC has not; it is what a file of another format holds.
    """
    node = node_of(node)
    if isinstance(node.store, SourceStore):
        raise UnsupportedError(
            "assets are Zarr arrays, and this is read from a file of another format; expected a Zarr store",
            path=place(node.store, node.path),
        )
    report = describe(node)
    if report.geo is None:
        raise MetadataError("no raster: there is no item for it; expected an array or a group with a grid")
    address = href or without_secrets(place(node.store, node.path))
    return _Item(report, report.geo, address.rstrip("/")).render(id, datetime)


@dataclass(frozen=True)
class _Item:
    """An item of a raster whose assets begin with an address."""

    report: Report
    geo: GeoModel
    href: str

    def render(self, id: str | None, moment: Any) -> dict[str, Any]:
        own = self._own()
        bbox, geometry = outline(self.geo)
        said = {**_mapping(own.get("properties")), **self._moments(own, moment), **_projection(self.geo)}
        said |= {"cube:dimensions": self._dimensions(), "cube:variables": dict(self._variables())}
        name = posixpath.basename(self.href).partition(".")[0]
        assets = {**_moved(own.get("assets"), self.href), **dict(self._assets())}
        return {
            **own,
            "type": "Feature",
            "stac_version": "1.1.0",
            "stac_extensions": _extensions(own, {"properties": said, "assets": assets}),
            "id": id or own.get("id") or name or "item",
            "geometry": geometry,
            **({} if bbox is None else {"bbox": bbox}),
            "properties": said,
            "links": own.get("links", []),
            "assets": assets,
        }

    @property
    def _grids(self) -> tuple[GeoModel, ...]:
        """The largest grid, and others beside it."""
        others = (one for one in self.report.grids if not {*one.variables} <= {*self.geo.variables})
        return (self.geo, *others)

    def _own(self) -> dict[str, Any]:
        stac = self.geo.stac
        if stac is None or stac.kind != "item" or not isinstance(stac.content, Mapping):
            return {}
        return dict(stac.content)

    @property
    def _finest(self) -> str:
        """The path of the finest level below the node."""
        return self.geo.grids[0].path

    def _array(self, name: str) -> Array | None:
        """An array of the finest level."""
        return self.report.arrays.get(join_key(self._finest, name)) or self.report.arrays.get(name)

    def _moments(self, own: Mapping[str, Any], moment: Any) -> dict[str, Any]:
        if moment is not None:
            return {"datetime": _rfc3339(moment)}
        extent = None if self.geo.time is None else self.geo.time.extent()
        if extent is None:
            properties = _mapping(own.get("properties"))
            if not {"datetime", "start_datetime"} & set(properties):
                raise MetadataError("nothing says when the data are of; expected datetime=DATE (ISO 8601)")
            return {}
        first, last = map(_rfc3339, extent)
        if first == last:
            return {"datetime": first}
        return {"datetime": None, "start_datetime": first, "end_datetime": last}

    def _dimensions(self) -> dict[str, dict[str, Any]]:
        """The dimensions of all grids; of one name for two sizes of cells, none is said."""
        made: dict[str, dict[str, Any]] = {}
        for geo in self._grids:
            for name, said in self._dimensions_of(geo):
                first = made.setdefault(name, said)
                if first.get("step") != said.get("step"):
                    first.pop("step", None)
        return made

    def _dimensions_of(self, geo: GeoModel) -> Iterator[tuple[str, dict[str, Any]]]:
        lengths: dict[str, int] = {}
        bands: dict[str, Sequence[Band]] = {}
        for name, variable in geo.variables.items():
            array = self._array(name)
            names = variable.dimensions or geo.dimensions
            if array is not None:
                lengths |= dict(zip(names, array.shape, strict=False))
            for each in names:
                if len(variable.bands) > 1 and lengths.get(each) == len(variable.bands):
                    bands.setdefault(each, variable.bands)
        for name, length in lengths.items():
            if name in geo.dimensions:
                yield name, _horizontal(geo, geo.dimensions.index(name))
            else:
                yield name, self._dimension(name, length, bands.get(name, ()))

    def _dimension(self, name: str, length: int, bands: Sequence[Band]) -> dict[str, Any]:
        if self.geo.time is not None and self.geo.time.name == name:
            return _temporal(self.geo.time)
        coordinate = self._array(name)
        if coordinate is None or coordinate.shape != (length,):
            names = [band.name for band in bands if band.name is not None]
            listed = names if len(names) == length else [*range(length)]
            return _listed("bands" if bands else "index", listed)
        attributes, values = coordinate.attrs, np.asarray(coordinate[...])
        if is_of_time(attributes.get("units")) or values.dtype.kind == "M":
            return _temporal(TimeAxis.stored(name, values, dict(attributes)))
        made = _listed("bands" if bands else name, values.tolist())
        if attributes.get("axis") == "Z" or "positive" in attributes:
            made |= {"type": "spatial", "axis": "z"}
        return made | _unit(attributes.get("units"))

    def _variables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for geo in self._grids:
            for name, variable in geo.variables.items():
                dimensions = list(variable.dimensions or geo.dimensions)
                made: dict[str, Any] = {"dimensions": dimensions, "type": "data"}
                if variable.long_name is not None:
                    made["description"] = variable.long_name
                yield name, made | _values(variable) | _unit(variable.units)

    def _assets(self) -> Iterator[tuple[str, dict[str, Any]]]:
        node = self.report.node
        form = node.zarr_format
        kind = f"application/vnd.zarr; version={form}"
        if isinstance(node, Array):
            yield node.basename or "data", {"href": self.href, "type": kind, "roles": ["data"], **_zarr(node)}
            return
        yield "store", {"href": self.href, "type": kind, "roles": ["data"], **_zarr(node)}
        for geo in self._grids:
            for name, variable in geo.variables.items():
                array, at = self._array(name), join_key(self._finest, name)
                if array is not None:
                    made = {"href": f"{self.href}/{at}", "type": kind, "roles": ["data"], **_zarr(array)}
                    yield name, made | _projection(geo) | _values(variable) | _packing(variable)


def _packing(variable: Variable) -> dict[str, Any]:
    """Unit, scale, offset and bands of an asset."""
    said = {"raster:scale": variable.scale_factor, "raster:offset": variable.add_offset}
    made = _unit(variable.units) | {name: value for name, value in said.items() if value is not None}
    return made | ({"bands": [*map(_band, variable.bands)]} if variable.bands else {})


def _projection(geo: GeoModel) -> dict[str, Any]:
    """CRS, shape, affine and box of a grid, as the projection extension names them."""
    if geo.crs is None or geo.affine is None:
        return {}
    code: dict[str, Any] = {"proj:code": geo.crs.code}
    if geo.crs.code is None:
        code["proj:projjson"] = dict(geo.crs.projjson)
    return {
        **code,
        "proj:shape": list(geo.shape),
        "proj:transform": list(geo.affine),
        "proj:bbox": list(geo.affine.bounds(geo.shape)),
    }


def _horizontal(geo: GeoModel, number: int) -> dict[str, Any]:
    """The y or the x dimension of a grid."""
    made: dict[str, Any] = {"type": "spatial", "axis": "yx"[number]}
    if geo.affine is None or geo.cell_size is None:
        return {**made, "extent": [0, geo.shape[number]]}
    bounds = geo.affine.bounds(geo.shape)
    made["extent"] = [bounds[1 - number], bounds[3 - number]]
    if not geo.affine.is_rotated:
        made["step"] = geo.cell_size[number]
    if geo.crs is None or geo.crs.code in (LON_LAT, "EPSG:4326"):
        # Without a reference system they are longitudes and latitudes.
        return made
    authority, _, digits = (geo.crs.code or "").partition(":")
    is_epsg = authority == "EPSG" and digits.isdigit()
    return {**made, "reference_system": int(digits) if is_epsg else dict(geo.crs.projjson)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _extensions(own: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    """The schemas of extensions: those in the store's own item, and those whose members the new one has."""
    text = json.dumps(made)
    used = [name for prefix, name in EXTENSIONS.items() if f'"{prefix}:' in text]
    named = [f"https://stac-extensions.github.io/{name}/schema.json" for name in used]
    return list(dict.fromkeys([*own.get("stac_extensions", ()), *named]))


def _moved(assets: Any, href: str) -> dict[str, Any]:
    """The assets of a store's own item, with addresses that lead there from outside."""
    made = {}
    for name, asset in _mapping(assets).items():
        own = _mapping(asset).get("href")
        made[name] = asset
        if isinstance(own, str) and "://" not in own and not own.startswith("/"):
            made[name] = {**_mapping(asset), "href": f"{href}/{own.removeprefix('./')}"}
    return made


def _zarr(node: Array | Group) -> dict[str, Any]:
    kind = "array" if isinstance(node, Array) else "group"
    return {"zarr:node_type": kind, "zarr:zarr_format": node.zarr_format}


def _band(band: Band) -> dict[str, Any]:
    said = {
        "name": band.name, "description": band.description, "eo:common_name": band.common_name,
        "eo:center_wavelength": band.wavelength, "eo:full_width_half_max": band.width,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value is not None}


def _values(variable: Variable) -> dict[str, Any]:
    """The data type and the nodata value, as STAC names them."""
    name = "" if variable.dtype is None else variable.dtype.name
    made: dict[str, Any] = {"data_type": name if name in NUMBERS else COMPLEX.get(name, "other")}
    if variable.nodata is not None:
        made["nodata"] = _number(variable.nodata)
    return made


def _number(value: float) -> float | str:
    """A number, or the text that STAC has for it."""
    if np.isfinite(value):
        return value
    return "nan" if np.isnan(value) else "inf" if value > 0 else "-inf"


def _unit(units: Any) -> dict[str, str]:
    return {"unit": units} if isinstance(units, str) and units else {}


def _listed(kind: str, values: Sequence[Any]) -> dict[str, Any]:
    """A dimension with its values, or their ends where there are many."""
    is_plain = all(isinstance(value, int | float | str) for value in values)
    shown = [*values] if is_plain else [str(value) for value in values]
    if shown and len(shown) <= MOST_VALUES and all(isinstance(v, str) or np.isfinite(v) for v in shown):
        return {"type": kind, "values": shown}
    numbers = [value for value in shown if not isinstance(value, str) and np.isfinite(value)]
    return {"type": kind, "extent": [min(numbers), max(numbers)] if numbers else [None, None]}


def _temporal(axis: TimeAxis) -> dict[str, Any]:
    extent = axis.extent()
    made = {"type": "temporal", "extent": [None, None] if extent is None else [*map(_rfc3339, extent)]}
    dates = np.atleast_1d(axis.dates())
    if dates.dtype.kind == "M" and 0 < dates.size <= MOST_VALUES and not np.isnat(dates).any():
        made["values"] = [_rfc3339(str(date)) for date in dates.ravel()]
    return made


def _rfc3339(moment: Any) -> str:
    """A date as STAC writes it, in UTC.

    Raises
        MetadataError: it is no date.
        UnsupportedError: it is one of another calendar alone.
    """
    text = str(moment.isoformat() if isinstance(moment, dt.date) else moment)
    head, dot, digits = text.partition(".")
    try:
        # Nanoseconds are more than datetime has.
        parsed = dt.datetime.fromisoformat(f"{head}.{digits[:6]}{digits[9:]}" if dot else text)
    except ValueError:
        numbers = head.partition("T")[0].lstrip("-").split("-")
        if len(numbers) == 3 and all(number.isdigit() for number in numbers):
            raise UnsupportedError(f"{text} is no date of STAC's calendar; expected datetime=") from None
        raise MetadataError(f"datetime is {moment!r}; expected a date (ISO 8601)") from None
    utc = parsed if parsed.tzinfo is None else parsed.astimezone(dt.UTC).replace(tzinfo=None)
    return f"{utc.isoformat()}Z"


def outline(geo: GeoModel) -> tuple[list[float] | None, dict[str, Any] | None]:
    """(the box, the GeoJSON geometry) of a grid in longitude and latitude; None without a place on the Earth.

    Across the antimeridian the box's west is above its east, and the geometry is two polygons (RFC 7946,
    3.1.9 and 5.2). A grid around a pole has all longitudes, up to the pole.
    """
    if geo.crs is None or geo.affine is None:
        return None, None
    rows, columns = (np.linspace(0, length, 4 * SIDE + 1) for length in geo.shape)
    x, y = geo.affine.at(*np.meshgrid(columns, rows))
    found = geo.crs.degrees_around(x, y)
    if found is None:
        return None, None
    west, south, east, north = found
    if geo.is_geographic:
        turns = 360 * np.floor((west + 180) / 360)
        is_whole = east - west >= 360 - 1e-9
        west, east = (-180.0, 180.0) if is_whole else (float(west - turns), float(east - turns))
    box = (west, -90.0 if _holds(geo, -90.0) else south, east, 90.0 if _holds(geo, 90.0) else north)
    edge = [
        np.concatenate([each[0], each[1:, -1], each[-1, -2::-1], each[-2:0:-1, 0]])[::4] for each in (x, y)
    ]
    lon, lat = geo.crs.transform(Crs.from_user(LON_LAT), *edge)
    is_known = bool(np.isfinite([lon, lat]).all())
    if is_known and east <= 180 and east - west < 360 - GAP and not geo.is_geographic:
        return _box(box), _polygon([_ring(lon, lat)])
    return _box(box), _boxes(box)


def _holds(geo: GeoModel, latitude: float) -> bool:
    """Whether a pole lies in a projected grid."""
    assert geo.crs is not None and geo.affine is not None
    if geo.is_geographic:
        return False
    x, y = Crs.from_user(LON_LAT).transform(geo.crs, np.zeros(1), np.full(1, latitude))
    if not np.isfinite([*x, *y]).all():
        return False
    column, row = (float(each[0]) for each in geo.affine.cell_at(x, y))
    return 0 <= column <= geo.shape[1] and 0 <= row <= geo.shape[0]


def _box(box: tuple[float, float, float, float]) -> list[float]:
    west, south, east, north = box
    return [round(each, 7) for each in (west, south, east if east <= 180 else east - 360, north)]


def _boxes(box: tuple[float, float, float, float]) -> dict[str, Any]:
    west, south, east, north = box
    sides = [(west, east)] if east <= 180 else [(west, 180.0), (-180.0, east - 360)]
    return _polygon([
        [[left, south], [right, south], [right, north], [left, north], [left, south]] for left, right in sides
    ])  # fmt: skip


def _polygon(rings: list[list[list[float]]]) -> dict[str, Any]:
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings}
    return {"type": "MultiPolygon", "coordinates": [[ring] for ring in rings]}


def _ring(lon: np.ndarray[Any, Any], lat: np.ndarray[Any, Any]) -> list[list[float]]:
    """A closed ring, counterclockwise."""
    area = float(np.sum(lon * np.roll(lat, -1) - np.roll(lon, -1) * lat))
    points = [[round(float(x), 7), round(float(y), 7)] for x, y in zip(lon, lat, strict=True)]
    points = points if area > 0 else points[::-1]
    return [*points, points[0]]
