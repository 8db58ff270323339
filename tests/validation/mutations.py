"""Good stores of every dialect, and every change of one statement about the ground in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.cf import coordinate_attributes
from zstore.geo.conventions.crs import Crs
from zstore.geo.validation.run import check_hierarchy, open_hierarchy
from zstore.geo.validation.view import Hierarchy
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore

from .cases import array, candidate, flat, listed, ome, ome_06
from .stores import DEGREES, SHAPE, UTM, Documents, model, right, values_of

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
OTHER = Crs.from_user("EPSG:32633")
CF_WORDS = frozenset(("axis", "standard_name", "units", "grid_mapping", "coordinates", "bounds"))
PLACED = (
    "multiscales", "ome", "_CRS", "GeoTransform", "crs_wkt", "spatial_ref", "_ARRAY_DIMENSIONS",
    "AREA_OR_POINT", "Conventions", "zarr_conventions",
)  # fmt: skip
PREFIXES = ("proj:", "spatial:")
# What a value of this kind stands for is one statement, however many members it has.
WHOLE = ("projjson", "proj:projjson")
SWAPPED = {"X": "Y", "latitude": "longitude", "x": "y", "lon": "lat", "degrees_east": "degrees_north"} | {
    "projection_x_coordinate": "projection_y_coordinate", "row": "column", "E": "N", "topLeft": "bottomLeft",
}  # fmt: skip
SWAPPED |= {other: one for one, other in SWAPPED.items()}


def cf_only(zarr_format: int, geo: Any, with_wkt: bool) -> MemoryStore:
    """A raster in CF's words alone: coordinates, and a grid mapping variable."""
    store, crs = MemoryStore(), geo.crs
    zstore.create_group(store, zarr_format=zarr_format, attributes={"Conventions": "CF-1.11"})
    names = ("lat", "lon") if crs.is_geographic else ("y", "x")
    for name, axis, values in zip(names, "YX", geo.affine.coordinates(SHAPE), strict=True):
        said = coordinate_attributes(crs, axis)
        array(store, name, values, (name,), zarr_format=zarr_format, attributes=said)
    mapping = {**crs.cf, "long_name": "CRS"} | ({"crs_wkt": crs.wkt} if with_wkt else {})
    array(store, "crs", np.int32(0), (), zarr_format=zarr_format, attributes=mapping)
    data, said = values_of("f4", SHAPE), {"grid_mapping": "crs", "coordinates": "crs", "units": "K"}
    said |= {"standard_name": "air_temperature", "long_name": "t", "_FillValue": "AAAAAAAA+H8="}
    fill = np.float32(np.nan)
    said = said if zarr_format == 3 else {n: v for n, v in said.items() if n != "_FillValue"}
    array(store, "t2m", data, names, zarr_format=zarr_format, attributes=said, fill_value=fill)
    return store


def eopf() -> MemoryStore:
    """A product as EOPF's writers have it: resolutions as levels, STAC's words on the arrays."""
    store = cf_only(3, model(), True)
    made = MemoryStore()
    claims = {"Conventions": "CF-1.11"}
    zstore.create_group(made, zarr_format=3, attributes=claims)
    affines = {name: UTM.scaled((n, n)) for name, n in (("r10m", 1), ("r20m", 2))}
    layout = [
        {"asset": "r10m", "spatial:shape": list(SHAPE), "spatial:transform": list(affines["r10m"])},
        {
            "asset": "r20m", "derived_from": "r10m",
            "transform": {"scale": [2.0, 2.0], "translation": [0.0, 0.0]},
            "spatial:shape": [n // 2 for n in SHAPE], "spatial:transform": list(affines["r20m"]),
        },
    ]  # fmt: skip
    root = {"multiscales": {"layout": layout, "resampling_method": "average"}, "proj:code": "EPSG:32632"}
    root |= {"spatial:dimensions": ["y", "x"], "spatial:bbox": list(UTM.bounds(SHAPE))}
    root |= {"zarr_conventions": dict(zstore.open_group(right(), mode="r").attrs)["zarr_conventions"]}
    Documents(made).attributes("", lambda a: a.update(root))
    base = values_of("u2", SHAPE)
    for name, affine in affines.items():
        zstore.create_group(made, name, zarr_format=3, attributes=claims)
        shape = SHAPE if name == "r10m" else (SHAPE[0] // 2, SHAPE[1] // 2)
        for n, axis, values in zip("yx", "YX", affine.coordinates(shape), strict=True):
            said = {"standard_name": f"projection_{n}_coordinate", "units": "m", "axis": axis}
            array(made, f"{name}/{n}", values, (n,), attributes=said)
        mapping = dict(zstore.open_array(store, "crs", mode="r").attrs)
        array(made, f"{name}/spatial_ref", np.int32(0), (), attributes=mapping)
        said = {"proj:epsg": 32632, "proj:bbox": list(affine.bounds(shape)), "proj:shape": list(shape)}
        said |= {"proj:transform": list(affine), "grid_mapping": "spatial_ref", "coordinates": "spatial_ref"}
        said |= {"units": "1", "standard_name": "surface_bidirectional_reflectance", "long_name": "b02"}
        data = base if name == "r10m" else zstore.downsample(base, (2, 2), "average")
        array(made, f"{name}/b02", data, ("y", "x"), chunks=(32, 32), attributes=said)
    return made


STORES: dict[str, Callable[[], MemoryStore]] = {
    "draft v3": right,
    "draft v2": lambda: right(2),
    "raster v3": flat,
    "degrees v2": lambda: right(2, model("EPSG:4326", DEGREES)),
    "mini": lambda: right(3, profile="geozarr-mini"),
    "1.0": candidate,
    "GDAL v2": lambda: right(2, model(levels=0), profile="gdal"),
    "GDAL v3": lambda: right(3, model(levels=0), profile="gdal"),
    "lists": listed,
    "OME 0.5": ome,
    "OME 0.6": ome_06,
    "CF v2": lambda: cf_only(2, model(), True),
    "CF v3": lambda: cf_only(3, model("EPSG:4326", DEGREES), False),
    "EOPF": eopf,
}


@cache
def stored(name: str) -> Mapping[str, bytes]:
    """The keys and values of a good store."""
    store = STORES[name]()
    return {key: bytes(store.get(key) or b"") for key in store.list()}


def held(values: Mapping[str, bytes]) -> MemoryStore:
    """A store of its own with these values."""
    store = MemoryStore()
    for key, value in values.items():
        store.put(key, value)
    return store


@dataclass(frozen=True)
class Mutation:
    """One change of one statement.

    key    of the document
    place  the members that lead to the statement
    how    what is done to it
    """

    key: str
    place: tuple[Any, ...]
    how: str
    value: Any = None

    def apply(self, values: Mapping[str, bytes]) -> MemoryStore:
        """A store with the changed document."""
        document = json.loads(values[self.key])
        above = document
        for member in self.place[:-1]:
            above = above[member]
        if self.how == "removed":
            del above[self.place[-1]]
        else:
            above[self.place[-1]] = self.value
        return held({**values, self.key: json.dumps(document).encode()})


def is_geo(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether an attribute is a statement about the ground; all but one of a grid mapping variable are."""
    is_parameter = "grid_mapping_name" in attributes and name != "long_name"
    return name in PLACED or name.startswith(PREFIXES) or name in CF_WORDS or is_parameter


def attributes_of(key: str, values: Mapping[str, bytes]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(the members that lead to the attributes in a document, the attributes)."""
    document = json.loads(values.get(key, b"{}"))
    return ((), document) if key.endswith(".zattrs") else (("attributes",), document.get("attributes", {}))


def mutations(name: str) -> Iterator[Mutation]:
    """Every change of one statement about the ground in a good store."""
    values = stored(name)
    for key in sorted(key for key in values if key.endswith(("zarr.json", ".zattrs"))):
        above, attributes = attributes_of(key, values)
        level = {"0/": "1/", "1/": "0/"}.get(key[:2])
        _, others = attributes_of(f"{level}{key[2:]}", values)
        for attribute in [attribute for attribute in attributes if is_geo(attribute, attributes)]:
            yield from _of(key, (*above, attribute), attributes[attribute])
            if level is not None and others.get(attribute) not in (None, attributes[attribute]):
                yield Mutation(key, (*above, attribute), "the other level's", others[attribute])
        names = json.loads(values[key]).get("dimension_names")
        if names:
            yield from _of(key, ("dimension_names",), names)


def _of(key: str, place: tuple[Any, ...], value: Any) -> Iterator[Mutation]:
    yield Mutation(key, place, "removed")
    for how, other in _others(place[-1], value):
        if other != value:
            yield Mutation(key, place, how, other)
    if place[-1] in WHOLE:
        return
    if isinstance(value, Mapping):
        for member in value:
            yield from _of(key, (*place, member), value[member])
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, Mapping):
                yield from _of(key, (*place, number), item)
            else:
                for how, other in _others(place[-1], item):
                    if other != item:
                        yield Mutation(key, (*place, number), how, other)


def _others(name: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """(how, another value) in the place of a value."""
    if name in WHOLE:
        yield "another zone", dict(OTHER.projjson)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, (int, float)):
        yield "more", value + 10
        yield "negated", -value
        if value == 32632:
            yield "another zone", 32633
    elif isinstance(value, list):
        yield "reversed", value[::-1]
    elif isinstance(value, str) and "32632" in value and len(value) < 80:
        yield "another zone", value.replace("32632", "32633")
    elif isinstance(value, str) and value.startswith(("PROJCRS", "GEOGCRS", "PROJCS", "GEOGCS")):
        yield "another zone", OTHER.wkt
    elif isinstance(value, str) and name == "GeoTransform":
        words = value.split()
        yield "reversed", " ".join(words[::-1])
        for number in (0, 1, 3, 5):
            other = repr(float(words[number]) + 10)
            yield f"more at {number}", " ".join([*words[:number], other, *words[number + 1 :]])
    elif isinstance(value, str):
        yield "swapped", SWAPPED.get(value, value)
        yield "unknown", "unknown"


_known: list[Crs] = []


def name_of(crs: Crs) -> str:
    """One name for all CRSs that mean the same coordinates."""
    same = next((known for known in _known if known.is_same(crs)), None)
    _known.extend([] if same else [crs])
    return (same or crs).wkt


def shown(value: Any) -> str:
    """A statement as text, without the digits that rounding changes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, Crs):
        return name_of(value)
    return f"{value:.9g}" if isinstance(value, float) else repr(value)


def statements(hierarchy: Hierarchy) -> dict[tuple[str, str, str], str]:
    """By node, convention and source, what is said of a place or of levels."""
    said: dict[tuple[str, str, str], str] = {}
    for node in (*hierarchy.groups, *hierarchy.arrays):
        for convention, facts in zip(
            hierarchy.meaning.conventions, hierarchy.meaning.facts(node), strict=True
        ):
            found = dict((*facts.crs, *facts.affines))
            found |= {name: getattr(facts, name) for name in ONES}
            for level in facts.levels or ():
                found |= {f"{name} of {level.path}": getattr(level, name) for name in OF_LEVELS}
            order = tuple(level.path for level in facts.levels or ())
            # Tile matrices may come in any order.
            found["levels"] = (tuple(sorted(order)) if convention.name == "geozarr" else order) or None
            for source, value in found.items():
                if value is not None:
                    said[node.path, convention.name, source] = shown(value)
    return said


ONES = ("dimensions", "coordinate_affine", "coordinate_dimensions", "shape", "bbox")
OF_LEVELS = ("affine", "fallback_affine", "cell", "scale", "shape")


def places(hierarchy: Hierarchy) -> dict[str, Any]:
    """By path of every group and grid, what all conventions together come to."""
    come_to: dict[str, Any] = {}
    for node in (*hierarchy.groups, *(grid.node for grid in hierarchy.grids.values())):
        geo = hierarchy.meaning.read(node).geo
        if geo is not None:
            levels = tuple((level.path, shown(tuple(level.affine or ()))) for level in geo.levels)
            crs = None if geo.crs is None else name_of(geo.crs)
            come_to[node.path] = (crs, shown(tuple(geo.affine or ())), geo.shape, geo.dimensions, levels)
    return come_to


@dataclass(frozen=True)
class Seen:
    """What is said in a store, what it comes to, and the findings of validation.

    findings    the warnings and errors
    notes       the others
    """

    said: Mapping[tuple[str, str, str], str]
    places: Mapping[str, Any]
    findings: frozenset[tuple[str, str, str]]
    notes: frozenset[tuple[str, str, str]]
    has_error: bool


def see(store: Store) -> Seen:
    hierarchy = open_hierarchy(store)
    verdict = check_hierarchy(hierarchy)
    told = {(f.rule, f.path, f.message): f.severity for f in verdict.findings}
    notes = frozenset(found for found, severity in told.items() if severity == "note")
    has_error = verdict.count("error") > 0
    return Seen(statements(hierarchy), places(hierarchy), frozenset(told) - notes, notes, has_error)


@cache
def before(name: str) -> Seen:
    return see(held(stored(name)))


# Where one attribute alone says a thing, no other contradicts it.
SOLE = {("CF v3", "horizontal_datum_name")}
