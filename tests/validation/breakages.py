"""What goes wrong with stores in use: how to break a right one, and what fixing is to make of it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.storage.memory import MemoryStore

from .cases import array, attribute, both, crs_of, dims, flat, layout, limits, member, rewrite, shift, top
from .stores import DEGREES, SHAPE, UTM, Documents, model, right, values_of

Spoil = Callable[[Documents], Any]


@dataclass(frozen=True)
class Breakage:
    """One mistake, in a store that is right but for it.

    rule, path  of what is left where fixing must leave it; None where all is mended
    options     what the user says
    """

    name: str
    spoil: Spoil
    make: Callable[[], MemoryStore]
    rule: str | None = None
    path: str | None = None
    options: tuple[tuple[str, Any], ...] = ()


def pyramid() -> MemoryStore:
    return right(3, model(levels=3))


def pyramid_v2() -> MemoryStore:
    return right(2, model(levels=3))


def degrees() -> MemoryStore:
    return right(3, model("EPSG:4326", DEGREES, levels=2))


def floats() -> MemoryStore:
    return right(3, model(levels=2, dtype="float32"))


def timed() -> MemoryStore:
    store = flat()
    described = {
        "standard_name": "time",
        "units": "days since 2000-01-01",
        "calendar": "standard",
        "axis": "T",
    }
    array(store, "time", np.arange(3.0), ("time",), attributes=described)
    said = {"grid_mapping": "spatial_ref", "coordinates": "spatial_ref", "units": "1"}
    array(store, "cube", np.zeros((3, *SHAPE), "u1"), ("time", "y", "x"), attributes=said)
    return store


def consolidated() -> MemoryStore:
    store = pyramid()
    zstore.consolidate(store)
    return store


def held(place: str) -> MemoryStore:
    """A store on disk, in memory."""
    store = MemoryStore()
    for path in Path(place).rglob("*"):
        if path.is_file():
            store.put(path.relative_to(place).as_posix(), path.read_bytes())
    return store


def by_rioxarray(zarr_format: Any) -> MemoryStore:
    """As xarray writes what rioxarray has placed: coordinates, and a GeoTransform beside the CRS."""
    xarray = pytest.importorskip("xarray", reason="xarray is the writer")
    pytest.importorskip("rioxarray", reason="rioxarray is the writer")
    y, x = UTM.coordinates(SHAPE) or ((), ())
    data = xarray.Dataset({"b02": (("y", "x"), values_of("u2", SHAPE))}, coords={"y": y, "x": x})
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # What these libraries say of each other.
        warnings.simplefilter("ignore")
        placed = data.rio.write_crs(32632).rio.write_transform().rio.write_coordinate_system()
        placed.to_zarr(f"{folder}/a.zarr", zarr_format=zarr_format, consolidated=False)
        return held(f"{folder}/a.zarr")


def rioxarray_v2() -> MemoryStore:
    return by_rioxarray(2)


def rioxarray_v3() -> MemoryStore:
    return by_rioxarray(3)


def gdal_v2() -> MemoryStore:
    """As GDAL writes: `_CRS`, and coordinates."""
    rasterio = pytest.importorskip("rasterio", reason="GDAL is the writer")
    options: dict[str, Any] = {"FORMAT": "ZARR_V2", "BLOCKSIZE": "32,32", "ARRAY_NAME": "b02"}
    options |= {"crs": "EPSG:32632", "transform": rasterio.Affine(*UTM)}
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/a.zarr"
        with rasterio.open(place, "w", "Zarr", SHAPE[1], SHAPE[0], 1, dtype="uint16", **options) as raster:
            raster.write(values_of("u2", SHAPE), 1)
        return held(place)


def reverse(path: str) -> Spoil:
    return rewrite(path, lambda old: old[::-1])


def drop(path: str, *names: str) -> Spoil:
    return attribute(path, **dict.fromkeys(names))


def every(*paths: str, do: Callable[[str], Spoil]) -> Spoil:
    return both(*(do(path) for path in paths))


def finest_everywhere(d: Documents) -> None:
    for level in ("1", "2"):
        d.set(f"{level}/spatial_ref", GeoTransform="300000.0 10.0 0.0 5000040.0 0.0 -10.0")


def no_crs(d: Documents) -> None:
    d.remove("1/spatial_ref")
    d.set("1/b02", grid_mapping=None, coordinates=None, _CRS=None)


def chunks_gone(path: str) -> Spoil:
    def spoil(d: Documents) -> None:
        for key in [key for key in d.store.list(path) if not key.endswith((".json", ".zarray", ".zattrs"))]:
            d.store.delete(key)

    return spoil


def as_text(d: Documents) -> None:
    import json

    d.attributes("", lambda a: a.update(multiscales=json.dumps(a["multiscales"])))


def renamed_set(d: Documents) -> None:
    d.multiscales(
        lambda m: m["tile_matrix_set"].update(tile_matrices=m["tile_matrix_set"].pop("tileMatrices"))
    )


def _b(name: str, spoil: Spoil, make: Any = pyramid, rule: str | None = None, path: str = "", **options: Any):
    return Breakage(name, spoil, make, rule, None if rule is None else path, tuple(options.items()))


GDAL_ORDER = [300000.0, 20.0, 0.0, 5000040.0, 0.0, -20.0]
BREAKAGES = [
    # The CRS.
    _b("a grid mapping that is dropped", drop("1/b02", "grid_mapping")),
    _b("a grid mapping that is dropped, v2", drop("0/b02", "grid_mapping"), pyramid_v2),
    _b(
        "grid mappings that are all dropped",
        every("0/b02", "1/b02", "2/b02", do=lambda p: drop(p, "grid_mapping")),
    ),
    _b("a grid mapping of another name", attribute("1/b02", grid_mapping="crs")),
    _b("a grid mapping that is a coordinate", attribute("1/b02", grid_mapping="x")),
    _b("a grid mapping variable that is deleted", lambda d: d.remove("1/spatial_ref")),
    _b("a level without any CRS", no_crs),
    _b("coordinates that do not list the CRS", drop("0/b02", "coordinates")),
    _b("a WKT that is cut", attribute("1/spatial_ref", crs_wkt='PROJCRS["WGS 84')),
    _b("a parameter of another zone", attribute("1/spatial_ref", longitude_of_central_meridian=15.0)),
    _b("a level in the next zone", attribute("1/spatial_ref", **crs_of("EPSG:32633"))),
    _b(
        "_CRS of the next zone at one level",
        attribute("1/b02", _CRS={"wkt": crs_of("EPSG:32633")["crs_wkt"]}),
    ),
    _b("_CRS as text", attribute("0/b02", _CRS="EPSG:32632")),
    _b("proj:code of the next zone", attribute("1", proj__code="EPSG:32633")),
    _b("proj:code without an authority", attribute("1", proj__code="32632")),
    _b("proj:code gone from a level", drop("1", "proj__code")),
    _b(
        "a tile matrix set of another CRS",
        lambda d: d.multiscales(lambda m: m["tile_matrix_set"].update(crs="EPSG:32633")),
    ),
    _b("two CRSs", attribute("b02", _CRS={"wkt": crs_of("EPSG:32633")["crs_wkt"]}), flat, "OC-08", "b02"),
    _b(
        "two CRSs, and the user's word",
        attribute("b02", _CRS={"wkt": crs_of("EPSG:32633")["crs_wkt"]}),
        flat,
        crs="EPSG:32632",
    ),
    # Coordinates.
    _b("y reversed at one level", reverse("1/y")),
    _b("y reversed at the finest level", reverse("0/y")),
    _b("y reversed at one level, v2", reverse("1/y"), pyramid_v2),
    _b("x reversed at one level", reverse("1/x")),
    _b("latitudes reversed at one level", reverse("1/y"), degrees),
    _b(
        "y reversed, and its level's transforms",
        both(
            reverse("1/y"),
            attribute("1", spatial__transform=[20.0, 0.0, 300000.0, 0.0, 20.0, 4998760.0]),
            attribute("1/spatial_ref", GeoTransform="300000.0 20.0 0.0 4998760.0 0.0 20.0"),
        ),
    ),
    _b("y reversed at every level", every("0/y", "1/y", "2/y", do=reverse), pyramid, "MS-28", "0/b02"),
    _b("y reversed in a raster", reverse("y"), flat, "MS-28", "b02"),
    _b("coordinates that are edges", shift("1/x", -0.5)),
    _b("coordinates that are edges, both", both(shift("1/x", -0.5), shift("1/y", -0.5)), degrees),
    _b("coordinates a cell off", shift("1/x", 1.0)),
    _b("coordinates of another place", shift("2/y", 300.0)),
    _b("indices for coordinates", rewrite("1/x", lambda old: np.arange(len(old), dtype="f8"))),
    _b(
        "one coordinate that is wrong",
        rewrite("1/x", lambda old: np.where(np.arange(len(old)) == 7, old[9], old)),
    ),
    _b(
        "NaN among the coordinates",
        rewrite("1/x", lambda old: np.where(np.arange(len(old)) == 7, np.nan, old)),
    ),
    _b("a coordinate that is deleted", lambda d: d.remove("1/x")),
    _b(
        "coordinates that are all deleted",
        every("1/x", "1/y", "0/x", "0/y", do=lambda p: lambda d: d.remove(p)),
    ),
    _b("a coordinate without chunks", chunks_gone("1/x")),
    _b(
        "a coordinate that is too long", rewrite("1/x", lambda old: np.append(old, old[-1] + 20.0), chunks=-1)
    ),
    _b("a coordinate of float32", rewrite("1/y", lambda old: (old - 1000.0).astype("f4"), fill_value=0)),
    _b("units of degrees under UTM", attribute("1/x", units="degrees")),
    _b("units of km over metres", attribute("1/x", units="km")),
    _b("units that are misspelt", attribute("1/x", units="meterz")),
    _b("units that are gone", drop("1/x", "units")),
    _b("the standard name of longitude under UTM", attribute("1/x", standard_name="longitude")),
    _b(
        "standard names that are swapped",
        both(
            attribute("1/x", standard_name="projection_y_coordinate"),
            attribute("1/y", standard_name="projection_x_coordinate"),
        ),
    ),
    _b(
        "the standard name of UTM under degrees",
        attribute("0/y", standard_name="projection_y_coordinate"),
        degrees,
    ),
    _b("an axis that is the other", attribute("1/x", axis="Y")),
    _b("attributes of a coordinate gone", drop("1/x", "standard_name", "units", "axis")),
    # Dimensions.
    _b("dimension names that are missing", dims("1/b02", None)),
    _b("dimension names that are missing, flat", dims("b02", None), flat),
    _b("dimension names that are missing, v2", drop("1/b02", "_ARRAY_DIMENSIONS"), pyramid_v2),
    _b("a dimension name that is null", dims("1/b02", ["y", None])),
    _b("a coordinate's dimension name that is missing", dims("1/x", None)),
    _b("dimension names of xarray's making", dims("1/b02", ["dim_0", "dim_1"])),
    _b("spatial:dimensions turned round", attribute("1", spatial__dimensions=["x", "y"])),
    # Transforms.
    _b("the finest's GeoTransform everywhere", finest_everywhere),
    _b(
        "a GeoTransform in rasterio's order",
        attribute("1/spatial_ref", GeoTransform="20 0 300000 0 -20 5000040"),
    ),
    _b("a GeoTransform of five numbers", attribute("1/spatial_ref", GeoTransform="300000 20 0 5000040 0")),
    _b(
        "a GeoTransform of another place",
        attribute("0/spatial_ref", GeoTransform="400000 10 0 5000040 0 -10"),
    ),
    _b("spatial:transform in GDAL's order", attribute("1", spatial__transform=GDAL_ORDER)),
    _b("spatial:transform of the finest level", attribute("1", spatial__transform=list(UTM))),
    _b(
        "spatial:transform as of centres",
        attribute("1", spatial__transform=[20.0, 0.0, 300010.0, 0.0, -20.0, 5000030.0]),
    ),
    _b("spatial:shape turned round", attribute("1", spatial__shape=[48, 64])),
    _b("spatial:bbox of centres", attribute("1", spatial__bbox=[300005.0, 4998765.0, 300955.0, 5000035.0])),
    _b(
        "spatial:bbox in another order",
        attribute("1", spatial__bbox=[300000.0, 5000040.0, 300960.0, 4998760.0]),
    ),
    _b("AREA_OR_POINT in lower case", attribute("1/b02", AREA_OR_POINT="area")),
    # multiscales.
    _b("a scale denominator of the mini spec's example", lambda d: d.matrix("0", scaleDenominator=35.28)),
    _b("an origin of another place", lambda d: d.matrix("1", pointOfOrigin=[299960.0, 9000000.0])),
    _b("an origin with its axes turned round", lambda d: d.matrix("0", pointOfOrigin=[5000040.0, 300000.0])),
    _b("cells of another size", lambda d: d.matrix("1", cellSize=25.0)),
    _b("a matrix that counts cells", lambda d: d.matrix("0", matrixWidth=96, matrixHeight=128)),
    _b(
        "a matrix without tiles",
        lambda d: d.multiscales(lambda m: m["tile_matrix_set"]["tileMatrices"][0].pop("tileWidth")),
    ),
    _b(
        "a matrix that is left out",
        lambda d: d.multiscales(lambda m: m["tile_matrix_set"]["tileMatrices"].pop(0)),
    ),
    _b(
        "limits beyond the matrix",
        both(
            limits("tile_matrix_set_limits", "0", max_tile_col=30),
            limits("tile_matrix_limits", "0", maxTileCol=30),
        ),
    ),
    _b("tileMatrices in snake case", renamed_set),
    _b("resampling_method mean", top(resampling_method="mean")),
    _b("no resampling_method", lambda d: d.multiscales(lambda m: m.pop("resampling_method")), pyramid),
    _b("an asset with a slash", layout(1, asset="/1")),
    _b(
        "a derived level without transform",
        lambda d: d.multiscales(lambda m: m["layout"][1].pop("transform")),
    ),
    _b("a level left out of the layout", lambda d: d.multiscales(lambda m: m["layout"].pop(1))),
    _b("a layout in the other order", lambda d: d.multiscales(lambda m: m["layout"].reverse())),
    _b("a layout without levels", top(layout=[])),
    _b("derived from what is not there", layout(2, derived_from="7")),
    _b("an asset that is not there", layout(1, asset="7")),
    _b("a scale of three", layout(1, transform={"scale": [3.0, 3.0], "translation": [0.0, 0.0]})),
    _b("a translation of half a cell", layout(1, transform={"scale": [2.0, 2.0], "translation": [0.5, 0.5]})),
    _b(
        "a layout's transform of another place",
        layout(1, spatial__transform=[20.0, 0.0, 300100.0, 0.0, -20.0, 5000040.0]),
    ),
    _b("a layout's shape turned round", layout(1, spatial__shape=[48, 64])),
    _b("multiscales as text", as_text),
    _b("multiscales that is gone", drop("", "multiscales"), pyramid, "MS-15"),
    _b("conventions that are not declared", drop("", "zarr_conventions")),
    _b("conventions that are text", attribute("", zarr_conventions="proj"), pyramid, "ZC-01"),
    _b(
        "a declaration without an identifier",
        lambda d: d.attributes("", lambda a: a["zarr_conventions"].append({"name": "mine"})),
        pyramid,
        "ZC-01",
    ),
    # Variables.
    _b("packing that is lost at a level", drop("1/b02", "scale_factor", "add_offset")),
    _b("nodata that is lost at a level", drop("1/b02", "_FillValue", "missing_value"), floats),
    _b("other nodata at a level", attribute("1/b02", _FillValue=65535)),
    _b("units that differ at a level", attribute("1/b02", units="K")),
    _b("a standard name that differs at a level", attribute("1/b02", standard_name="air_temperature")),
    _b("a scale factor that is text", attribute("1/b02", scale_factor="0.0001")),
    _b("a fill value that is text", attribute("1/b02", _FillValue="0")),
    _b("a fill value of another type", attribute("b02", _FillValue=-9999), flat, "GZ-16", "b02"),
    _b("a number for the fill value of floats", attribute("0/b02", _FillValue=-9999.0), floats),
    _b("flags as a list", both(attribute("b02", flag_values=[1, 2], flag_meanings=["land", "sea"])), flat),
    _b(
        "attributes in capitals",
        both(
            drop("0/b02", "standard_name"),
            attribute("0/b02", Standard_Name="surface_bidirectional_reflectance"),
        ),
    ),
    _b("NaN among the attributes", attribute("0/b02", valid_min=float("nan")), pyramid, "GZ-21", "0/b02"),
    _b("a level of another type", rewrite("1/b02", lambda old: old.astype("f8")), pyramid, "GZ-33", "1/b02"),
    _b("a level that lacks a variable", lambda d: d.remove("1/b02"), pyramid, "GZ-32", "1"),
    _b(
        "a level that is turned",
        rewrite("1/b02", lambda old: old.T, dimension_names=("x", "y")),
        pyramid,
        "GZ-33",
        "1/b02",
    ),
    # Documents.
    _b("consolidated metadata left behind", attribute("0/b02", long_name="new"), consolidated),
    _b("a group without a document", lambda d: d.store.delete("1/zarr.json"), pyramid),
    _b("attributes beside attributes", member("1", title="north"), pyramid),
    _b("Conventions that are gone", drop("0", "Conventions")),
    _b("Conventions that are a number", attribute("", Conventions=1.11)),
    _b(
        "multiscales on the finest level",
        lambda d: d.set("0", multiscales={"layout": []}),
        pyramid,
        "GZ-36",
        "0",
    ),
    # Time.
    _b("time without a calendar", drop("time", "calendar"), timed),
    _b("time without a standard name", drop("time", "standard_name", "axis"), timed),
    _b("time in days since nothing", attribute("time", units="days"), timed, "MS-09", "time"),
    _b("a calendar that nobody knows", attribute("time", calendar="mayan"), timed, "MS-09", "time"),
]
SHIFTED = "400000.0 10.0 0.0 5000040.0 0.0 -10.0"
BREAKAGES += [
    breakage
    for make in (rioxarray_v2, rioxarray_v3)
    for breakage in (
        _b("rioxarray's grid mapping dropped", drop("b02", "grid_mapping"), make),
        _b("rioxarray's WKT cut", attribute("spatial_ref", crs_wkt='PROJCRS["WGS'), make),
        _b(
            "rioxarray's transform in another order",
            attribute("spatial_ref", GeoTransform="10 0 300000 0 -10 5000040"),
            make,
        ),
        _b("rioxarray's transform left behind", attribute("spatial_ref", GeoTransform=SHIFTED), make),
        _b("rioxarray's x deleted", lambda d: d.remove("x"), make),
        _b("rioxarray's units of degrees", attribute("x", units="degrees_east"), make),
        _b("rioxarray's standard name of longitude", attribute("x", standard_name="longitude"), make),
        _b("rioxarray's rows turned", reverse("y"), make, "MS-28", "b02"),
    )
] + [
    _b("rioxarray's dimensions unnamed, v2", drop("b02", "_ARRAY_DIMENSIONS"), rioxarray_v2),
    _b("rioxarray's dimensions unnamed, v3", dims("b02", None), rioxarray_v3),
    _b("GDAL's CRS as text", attribute("b02", _CRS="EPSG:32632"), gdal_v2),
    _b("GDAL's dimensions unnamed", drop("b02", "_ARRAY_DIMENSIONS"), gdal_v2),
    _b(
        "GDAL's URL of nowhere",
        lambda d: d.attributes("b02", lambda a: a["_CRS"].update(url="http://x.org/crs")),
        gdal_v2,
    ),
    _b("GDAL's units gone", drop("X", "units"), gdal_v2),
]
