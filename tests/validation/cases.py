"""For every rule, a way to break it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import zstore
from zstore.geo.conventions.geozarr import UUIDS
from zstore.storage.memory import MemoryStore

from .stores import DEGREES, SHAPE, Documents, model, right, values_of

D = Callable[[Documents], Any]


@dataclass(frozen=True)
class Case:
    """A store that breaks one rule.

    spoil     what is done to a right store
    path      where the finding is
    also      other rules that the same mistake breaks, and cannot but break
    is_wrong_before  the store that is made breaks the rule by itself: another test has one that keeps it
    is_mechanical    what is right can be worked out, so that fixing works it out
    """

    rule: str
    spoil: D
    path: str = ""
    profile: str | None = None
    severity: str | None = None
    make: Callable[[], MemoryStore] = right
    also: frozenset[str] = frozenset()
    deep: bool = False
    is_wrong_before: bool = False
    is_mechanical: bool = True


def case(rule: str, spoil: D, path: str = "", *also: str, **options: Any) -> Case:
    return Case(rule, spoil, path, also=frozenset(also), **options)


def v2() -> MemoryStore:
    return right(2)


def flat() -> MemoryStore:
    return right(3, model(levels=0))


def geographic() -> MemoryStore:
    return right(3, model("EPSG:4326", DEGREES, levels=0))


def bare() -> MemoryStore:
    """A raster without a CRS."""
    return right(3, model(None, DEGREES, levels=0))


def three() -> MemoryStore:
    return right(3, model(levels=3))


def floats() -> MemoryStore:
    return right(3, model(dtype="float32"))


def listed() -> MemoryStore:
    return right(3, profile="multiscale-arrays")


def ome() -> MemoryStore:
    return right(3, profile="ome")


def ome_06() -> MemoryStore:
    return right(3, profile="ome-0.6")


def candidate() -> MemoryStore:
    return right(3, profile="geozarr-1.0")


def image(spoil: Callable[[dict[str, Any]], Any]) -> D:
    """Change the first image of `ome`."""
    return lambda d: d.attributes("", lambda a: spoil(a["ome"]["multiscales"][0]))


def entries(spoil: Callable[[dict[str, Any]], Any]) -> D:
    """Change each entry of the root's `zarr_conventions`."""
    return lambda d: d.attributes("", lambda a: [spoil(each) for each in a["zarr_conventions"]])


def undeclared(path: str, uuid: str) -> D:
    """Take a convention out of `zarr_conventions`."""

    def spoil(attributes: dict[str, Any]) -> None:
        kept = [entry for entry in attributes["zarr_conventions"] if not entry["uuid"].startswith(uuid)]
        attributes["zarr_conventions"] = kept

    return lambda d: d.attributes(path, spoil)


def consolidated() -> MemoryStore:
    store = right(3)
    zstore.consolidate(store)
    return store


def without_transforms() -> MemoryStore:
    """Levels that their coordinates alone place."""
    store = right(3)
    documents = Documents(store)
    for path in ("", "0", "1"):
        documents.attributes(path, lambda a: [a.pop(n) for n in list(a) if n.startswith("spatial:")])
    documents.multiscales(lambda m: [item.pop("spatial:transform") for item in m["layout"]])
    for level in ("0", "1"):
        documents.set(f"{level}/spatial_ref", GeoTransform=None)
    return store


def by_tiles() -> MemoryStore:
    """Levels that the tile matrix set alone names."""
    store = right(3)
    documents = Documents(store)
    documents.multiscales(lambda m: m.pop("layout"))
    documents.set("", zarr_conventions=None, **dict.fromkeys(PLACE))
    return store


PLACE = (
    "proj__code",
    "spatial__dimensions",
    "spatial__shape",
    "spatial__transform",
    "spatial__bbox",
    "spatial__transform_type",
)


def array(store: Any, path: str, data: Any, dims: tuple[str, ...], **options: Any) -> None:
    made = {"zarr_format": 3, "dimension_names": dims, "chunks": -1, "attributes": {}} | options
    zstore.create_array(store, path, data=np.asarray(data), **made)


def time_axis(attributes: dict[str, Any]) -> D:
    def spoil(d: Documents) -> None:
        array(d.store, "time", np.arange(3.0), ("time",), attributes=attributes)

    return spoil


def move(source: str, target: str) -> D:
    def spoil(d: Documents) -> None:
        for key in list(d.store.list(source)):
            d.store.put(target + key[len(source) :], d.store.get(key))
        d.remove(source)

    return spoil


def dims(path: str, names: Any) -> D:
    return lambda d: d.edit(path, lambda n: n.update(dimension_names=names))


def rewrite(path: str, data: Any, **options: Any) -> D:
    """Another array of the same metadata."""

    def spoil(d: Documents) -> None:
        old = zstore.open_array(d.store, path, mode="r")
        made = {"attributes": dict(old.attrs), "dimension_names": old.dims, "chunks": old.chunks} | options
        values = data(old[...]) if callable(data) else data
        fill = made.pop("fill_value", old.fill_value)
        zstore.create_array(
            d.store, path, data=values, zarr_format=old.zarr_format, overwrite=True, fill_value=fill, **made
        )

    return spoil


def both(*steps: D) -> D:
    return lambda d: [step(d) for step in steps]


def layout(number: int, **members: Any) -> D:
    named = {name.replace("__", ":"): value for name, value in members.items()}
    return lambda d: d.multiscales(lambda m: m["layout"][number].update(named))


def limits(name: str, level: str, **members: Any) -> D:
    return lambda d: d.multiscales(lambda m: m[name][level].update(members))


def top(**members: Any) -> D:
    return lambda d: d.multiscales(lambda m: m.update(members))


def without(path: str, *names: str) -> D:
    return lambda d: d.attributes(path, lambda a: [a.pop(name) for name in names])


def crs_of(code: str) -> dict[str, Any]:
    from zstore.geo.conventions.crs import Crs

    crs = Crs.from_user(code)
    return {**crs.cf, "crs_wkt": crs.wkt, "spatial_ref": crs.wkt}


def attribute(path: str, **values: Any) -> D:
    return lambda d: d.set(path, **values)


def shift(path: str, cells: float) -> D:
    return rewrite(path, lambda old: old + cells * (old[1] - old[0]))


def member(path: str, **values: Any) -> D:
    return lambda d: d.edit(path, lambda n: n.update(values))


DOCUMENTS = [
    case("GZ-01", attribute("", conformsTo=["http://www.opengis.net/spec/geozarr/1.0/conf/time"])),
    case("GZ-02", attribute("", stac={"href": "http://x.org/my file.json"})),
    case(
        "GZ-03", lambda d: d.multiscales(lambda m: m["tile_matrix_set"].update(uri="file:///home/tms.json"))
    ),
    case(
        "GZ-04",
        both(lambda d: array(d.store, "a/b", np.zeros(3), ("b",)), lambda d: d.store.delete("a/zarr.json")),
        severity="warning",
    ),
    case("GZ-05", lambda d: d.raw("0", b"[1]"), "0", "GZ-30", "GZ-39", make=v2),
    case("GZ-06", member("0/b02", node_type="dataset"), "0/b02"),
    case("GZ-06", lambda d: d.edit("0/b02", lambda n: n.pop("node_type")), "0/b02"),
    case("GZ-07", member("0", resizeable=True), "0", "GZ-30", "GZ-39"),
    case("GZ-07", lambda d: d.edit("0/b02", lambda n: n.update(multiscales={})), "0/b02"),
    case(
        "GZ-20",
        lambda d: d.raw("0/b02", b'{"zarr_format":3,"node_type":"array","attributes":{"Temp\xe9":1}}'),
        "0/b02",
    ),
    case("GZ-20", attribute("0/b02", note="\ud800"), "0/b02"),
    case("GZ-21", attribute("0/b02", valid_min=float("nan")), "0/b02"),
    case("GZ-21", attribute("0/b02", note={"a": None}), "0/b02", severity="warning"),
    case("GZ-23", attribute("0/b02", Standard_Name="x"), "0/b02", is_mechanical=False),
    case("GZ-24", attribute("", history='{"type":"Feature"}'), is_mechanical=False),
    case(
        "GZ-25",
        attribute("", metadata="QmFzZTY0IG9mIGJ5dGVzIHRoYXQgbm9ib2R5IGNhbiByZWFkIGhlcmUx"),
        severity="warning",
    ),
    case("GZ-27", attribute("0/b02", resizeable=True), "0/b02"),
    case("OC-02", member("0/b02", resizeable=True), "0/b02", make=v2),
    case(
        "OC-03",
        lambda d: array(d.store, "pairs", np.zeros(3, [("a", "i2"), ("b", "f4")]), ("n",), zarr_format=2),
        "pairs",
        make=lambda: right(2, model(levels=0)),
    ),
    case("OC-04", lambda d: d.store.put("0/b02/.nczarray", b"{}"), "0/b02", make=v2, profile="gdal"),
    case("OC-04", attribute("0/b02", _nczarr_attrs={}), "0/b02", make=v2, severity="note"),
    case(
        "ZS-11",
        attribute("0/b02", cell_methods="time: mean time: anomaly_wrt norm"),
        "0/b02",
        severity="note",
        is_mechanical=False,
    ),
    case("ZS-01", lambda d: d.raw("0/b02", b'{"zarr_format":3,'), "0/b02"),
    case("ZS-01", lambda d: d.raw("0/b02", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "0/b02"),
    case("ZS-01", member("0/b02", shape=[-1, 3]), "0/b02"),
    case(
        "ZS-02", lambda d: d.edit("0/b02", lambda n: n["attributes"].update(long_name="x")), make=consolidated
    ),
    case("ZS-02", lambda d: d.remove("0/x"), "", "ZC-07", make=consolidated, is_mechanical=False),
    case(
        "ZS-03",
        lambda d: [d.store.put(k, b"damaged") for k in list(d.store.list("0/x")) if not k.endswith("json")],
        "0/x",
    ),
    case(
        "ZS-04",
        member(
            "0/b02",
            codecs=[{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "nobody.knows"}],
        ),
        "0/b02",
        severity="warning",
    ),
    case("ZS-04", member("0/b02", codecs=[{"name": "crc32c"}]), "0/b02"),
]

VARIABLES = [
    case("GZ-10", both(dims("b02", None), attribute("b02", _ARRAY_DIMENSIONS=["y", "x"])), "b02", make=flat),
    case("GZ-10", attribute("0/b02", _ARRAY_DIMENSIONS=["y"]), "0/b02", "GZ-43", make=v2),
    case("GZ-10", dims("b02", ["y", None]), "b02", make=flat),
    case("GZ-10", without("0/spatial_ref", "_ARRAY_DIMENSIONS"), "0/spatial_ref", make=v2),
    case(
        "MS-01",
        attribute("0/b02", _ARRAY_DIMENSIONS=["y"]),
        "0/b02",
        "GZ-43",
        make=v2,
        profile="geozarr-mini",
    ),
    case(
        "MS-12",
        attribute("b02", _ARRAY_DIMENSIONS=None),
        "b02",
        "MS-01",
        make=lambda: right(2, model(levels=0)),
        profile="geozarr-mini",
    ),
    case("MS-12", attribute("b02", _ARRAY_DIMENSIONS=["a", "b"]), "b02", make=flat, profile="geozarr-mini"),
    case("MS-03", dims("b02", None), "b02", make=flat, profile="geozarr-mini"),
    case("MS-03", dims("b02", [None, "x"]), "b02", make=flat, profile="geozarr-mini"),
    case(
        "OC-01",
        attribute("b02", _ARRAY_DIMENSIONS="y x"),
        "b02",
        make=lambda: right(2, model(levels=0)),
        profile="gdal",
    ),
    case(
        "GZ-11", lambda d: array(d.store, "other", np.zeros((5, 96)), ("y", "x")), "other", "MS-11", make=flat
    ),
    case("GZ-11", lambda d: array(d.store, "square", np.zeros((5, 5)), ("n", "n")), "square", make=flat),
    case("GZ-12", lambda d: array(d.store, "a/cube", np.zeros((3, 4)), ("/time", "n")), "a/cube", make=flat),
    case("GZ-13", lambda d: array(d.store, "y", np.zeros(SHAPE), ("y", "x"), overwrite=True), "y", make=bare),
    case("GZ-14", attribute("x", axis=None, units=None), "x", make=flat),
    case("GZ-15", attribute("b02", grid_mapping="crs"), "b02", make=flat),
    case("GZ-16", attribute("b02", scale_factor="0.0001"), "b02", make=flat),
    case("GZ-16", attribute("b02", _FillValue=-9999), "b02", make=flat, is_mechanical=False),
    case("GZ-16", attribute("0/b02", _FillValue=-9999.0), "0/b02", "GZ-22", make=floats, severity="warning"),
    case("GZ-17", attribute("", Conventions=1.10), make=flat),
    case("GZ-17", attribute("", Conventions=None), make=flat, severity="warning"),
    case(
        "MS-02",
        lambda d: array(d.store, "temperature", 3.0, ()),
        "temperature",
        "MS-06",
        make=flat,
        profile="geozarr-mini",
    ),
    case(
        "MS-06", attribute("b02", standard_name="reflectance_b02"), "b02", make=flat, profile="geozarr-mini"
    ),
    case("MS-06", attribute("b02", standard_name=None), "b02", make=flat, profile="geozarr-mini"),
    case(
        "MS-06",
        attribute("b02", standard_name="air_temperature nonsense"),
        "b02",
        make=flat,
        severity="warning",
    ),
    case(
        "MS-06", attribute("b02", standard_name="x_sea_water_velocity"), "b02", make=flat, severity="warning"
    ),
    case("MS-07", attribute("x", standard_name="longitude"), "x", make=flat),
    case("MS-07", attribute("y", standard_name="projection_y_coordinate"), "y", make=geographic),
    case("MS-08", attribute("x", units="degrees"), "x", make=flat),
    case(
        "MS-09",
        time_axis({"standard_name": "time", "units": "days", "calendar": "standard", "axis": "T"}),
        "time",
        make=flat,
        is_mechanical=False,
    ),
    case(
        "MS-09",
        time_axis({"standard_name": "time", "units": "days since 2000-01-01", "axis": "T"}),
        "time",
        make=flat,
        severity="warning",
    ),
    case(
        "MS-09",
        time_axis(
            {
                "standard_name": "time",
                "units": "fathoms since 2000-01-01",
                "calendar": "standard",
                "axis": "T",
            }
        ),
        "time",
        make=flat,
        is_mechanical=False,
    ),
    case(
        "MS-09",
        time_axis(
            {"standard_name": "time", "units": "days since 2000-01-01", "calendar": "mayan", "axis": "T"}
        ),
        "time",
        make=flat,
        is_mechanical=False,
    ),
    case(
        "MS-11",
        lambda d: array(d.store, "x", np.zeros(95), ("x",), overwrite=True),
        "x",
        make=bare,
    ),
    case("MS-11", lambda d: d.remove("x"), "b02", make=flat, profile="geozarr-mini"),
    case(
        "MS-11",
        lambda d: array(
            d.store,
            "cube",
            np.zeros((2, *SHAPE)),
            ("band", "y", "x"),
            attributes={"grid_mapping": "spatial_ref", "standard_name": "air_temperature"},
        ),
        "cube",
        make=flat,
        profile="geozarr-mini",
        is_mechanical=False,
    ),
    case(
        "GZ-26",
        both(
            lambda d: array(d.store, "y2", np.arange(128.0), ("y",), attributes={"axis": "Y"}),
            attribute("b02", coordinates="spatial_ref y2"),
        ),
        "b02",
        make=flat,
        profile="geozarr-draft",
    ),
]

GEOREFERENCE = [
    case("GZ-28", attribute("spatial_ref", GeoTransform="300000 10 0 5000040 0"), "spatial_ref", make=flat),
    case(
        "GZ-28",
        attribute("spatial_ref", GeoTransform="10 0 300000 0 -10 5000040"),
        "spatial_ref",
        "MS-28",
        make=flat,
    ),
    case("GZ-28", attribute("b02", AREA_OR_POINT="area"), "b02", make=flat),
    case("GZ-29", shift("1/x", -0.5), "1/b02"),
    case(
        "MS-28",
        attribute("1/spatial_ref", GeoTransform="300000.0 10.0 0.0 5000040.0 0.0 -10.0"),
        "1/b02",
        make=lambda: _only_mapping(right(3)),
    ),
    case("OC-05", attribute("spatial_ref", longitude_of_central_meridian=15.0), "spatial_ref", make=flat),
    case("OC-05", attribute("spatial_ref", crs_wkt="PROJCRS["), "spatial_ref", make=flat),
    case(
        "OC-05",
        both(
            without("spatial_ref", "crs_wkt", "spatial_ref"),
            attribute("spatial_ref", semi_major_axis=6378147.0),
        ),
        "spatial_ref",
        make=flat,
        severity="warning",
    ),
    case("OC-06", attribute("b02", _CRS="EPSG:32632"), "b02", make=flat),
    case("OC-06", attribute("", _CRS={"url": "x"}), make=flat, severity="warning", is_mechanical=False),
    case(
        "OC-07",
        lambda d: d.attributes("b02", lambda a: a["_CRS"].update(url="http://bad.example/crs")),
        "b02",
        make=flat,
        profile="gdal",
    ),
    case("OC-08", lambda d: d.set("b02", _CRS={"wkt": crs_of("EPSG:32633")["crs_wkt"]}), "b02", make=flat),
    case("OC-08", attribute("", proj__code="EPSG:32633"), "1/b02"),
    case(
        "OC-09",
        lambda d: [d.set(n, standard_name=s) for n, s in (("y", "latitude"), ("x", "longitude"))],
        make=bare,
    ),
    case(
        "MS-04",
        both(
            without("b02", "grid_mapping", "coordinates", "_CRS"),
            lambda d: d.remove("spatial_ref"),
            attribute("", proj__code=None),
        ),
        "",
        "ZC-07",
        make=flat,
        profile="geozarr-mini",
        is_mechanical=False,
    ),
    case("MS-05", attribute("b02", grid_mapping=None), "b02", "MS-04", make=flat, profile="geozarr-mini"),
    case("MS-05", attribute("b02", grid_mapping="x"), "b02", "MS-04", make=flat, profile="geozarr-mini"),
    case(
        "ZC-05",
        attribute("", spatial__transform=[300000.0, 10.0, 0.0, 5000040.0, 0.0, -10.0]),
        "",
        "MS-28",
        make=flat,
    ),
    case("ZC-05", attribute("", spatial__registration="centre"), make=flat, is_mechanical=False),
    case("ZC-05", attribute("", spatial__shape=[0, 3]), "", "ZC-06", make=flat),
    case("ZC-07", attribute("", proj__code="EPSG:0"), make=flat),
    case("ZC-07", lambda d: [_no_crs(d, level) for level in ("0", "1")], "0"),
]


def _only_mapping(store: MemoryStore) -> MemoryStore:
    documents = Documents(store)
    for path in ("", "0", "1"):
        documents.attributes(path, lambda a: [a.pop(n) for n in list(a) if n.startswith("spatial:")])
    documents.multiscales(lambda m: [item.pop("spatial:transform") for item in m["layout"]])
    return store


def _no_crs(documents: Documents, level: str) -> None:
    documents.remove(f"{level}/spatial_ref")
    documents.set(f"{level}/b02", grid_mapping=None, coordinates=None, _CRS=None)
    documents.set(level, proj__code=None, zarr_conventions=None)


LEVELS = [
    case("GZ-22", attribute("1/b02", scale_factor=None, add_offset=None), "1/b02"),
    case("GZ-30", both(move("0", "L0"), move("1", "L1")), make=by_tiles),
    case(
        "GZ-31",
        both(
            move("0", "overviews/0"),
            move("1", "overviews/1"),
            lambda d: zstore.create_group(d.store, "overviews"),
        ),
        make=by_tiles,
        profile="geozarr-draft",
    ),
    case(
        "GZ-32",
        lambda d: [
            array(d.store, "0/nir", np.zeros(SHAPE, "u2"), ("y", "x"), chunks=32, attributes=_described(d))
        ],
        "1",
        profile="geozarr-draft",
    ),
    case("GZ-33", rewrite("1/b02", lambda old: old.astype("f8")), "1/b02"),
    case("GZ-33", rewrite("1/b02", lambda old: old.T, dimension_names=("x", "y")), "1/b02"),
    case("GZ-34", rewrite("0/b02", lambda old: old, chunks=SHAPE), "0/b02", "GZ-42", profile="geozarr-draft"),
    case("GZ-35", lambda d: None, "0/b02", profile="geozarr-draft", is_wrong_before=True),
    case("GZ-36", lambda d: [d.set("0", multiscales=_take(d))], "0", make=by_tiles),
    case("GZ-36", attribute("0/b02", multiscales={"layout": []}), "0/b02"),
    case("GZ-37", attribute("", multiscales="levels"), is_mechanical=False),
    case("GZ-37", lambda d: d.multiscales(lambda m: m.pop("resampling_method")), profile="geozarr-draft"),
    case("GZ-37", lambda d: None, make=listed, profile="geozarr-draft", is_wrong_before=True),
    case("MS-15", attribute("", multiscales=None, zarr_conventions=None), profile="geozarr-mini"),
    case(
        "GZ-38",
        lambda d: d.multiscales(lambda m: m.update(tile_matrix_set="webmercatorquad")),
        "",
        "GZ-40",
        make=by_tiles,
    ),
    case(
        "GZ-38",
        lambda d: d.multiscales(
            lambda m: m["tile_matrix_set"].update(tile_matrices=m["tile_matrix_set"].pop("tileMatrices"))
        ),
    ),
    case("GZ-38", top(tile_matrix_set="http://x.org/tms.json"), severity="warning"),
    case("MS-17", top(tile_matrix_set="http://x.org/tms.json"), profile="geozarr-mini"),
    case("GZ-39", move("0", "00"), "", "MS-11", make=by_tiles),
    case("MS-20", move("0", "00"), "", make=by_tiles, profile="geozarr-mini"),
    case("GZ-47", top(resampling_method="mean")),
    case("MS-16", top(resampling_method="Average"), "", "GZ-48", profile="geozarr-mini"),
    case("GZ-48", layout(1, resampling_method="mode"), profile="geozarr-draft"),
    case("MS-13", both(rewrite("1/b02", lambda old: old[:61])), "1/b02", "MS-11", "ZC-06", "GZ-44"),
    case("MS-14", rewrite("1/x", np.arange(48) * 20.0 + 300005.0), "1/x", "GZ-41", make=without_transforms),
    case(
        "MS-14",
        rewrite("1/x", lambda old: np.where(np.arange(48) == 7, old[9], old)),
        "1/x",
        make=without_transforms,
    ),
    case(
        "MS-19",
        lambda d: array(d.store, "0/time", np.arange(2.0), ("time",), attributes=_time()),
        "1",
        profile="geozarr-mini",
    ),
    case("MS-22", rewrite("0/b02", lambda old: old, chunks=(48, 48)), "1/b02", profile="geozarr-mini"),
    case("MS-23", lambda d: zstore.create_group(d.store, "quicklook"), profile="geozarr-mini"),
]


def _described(documents: Documents) -> dict[str, Any]:
    return dict(zstore.open_array(documents.store, "0/b02", mode="r").attrs)


def _take(documents: Documents) -> Any:
    found = dict(zstore.open_group(documents.store, mode="r").attrs)["multiscales"]
    documents.set("", multiscales=None)
    return found


def _time() -> dict[str, Any]:
    return {"standard_name": "time", "units": "days since 2000-01-01", "calendar": "standard", "axis": "T"}


TILES = [
    case("GZ-40", lambda d: d.multiscales(lambda m: m["tile_matrix_set"].update(crs="EPSG:32633"))),
    case(
        "MS-24",
        lambda d: d.multiscales(lambda m: m["tile_matrix_set"].update(crs="EPSG:32633")),
        profile="geozarr-mini",
    ),
    case("GZ-41", lambda d: d.matrix("0", pointOfOrigin=[300000.0 - 160.0, 5000040.0])),
    case("GZ-41", lambda d: d.matrix("0", cellSize=10.5), "", "GZ-45"),
    case("GZ-42", rewrite("0/b02", lambda old: old, chunks=(48, 32)), "0/b02", profile="geozarr-draft"),
    case("MS-21", rewrite("0/b02", lambda old: old, chunks=(48, 32)), "0/b02", profile="geozarr-mini"),
    case(
        "GZ-43",
        both(
            dims("0/b02", ["dim_0", "dim_1"]),
            attribute("0", spatial__dimensions=None),
            attribute("", spatial__dimensions=None),
        ),
        "0/b02",
        "ZC-05",
    ),
    case("GZ-44", lambda d: d.matrix("0", matrixWidth=96)),
    case("GZ-45", lambda d: d.matrix("0", scaleDenominator=35.28)),
    case("GZ-46", limits("tile_matrix_set_limits", "0", max_tile_col=3), "", "MS-18"),
    case("GZ-46", top(tile_matrix_set_limits={"0": {"minTileCol": 0}})),
    case(
        "GZ-46",
        lambda d: d.multiscales(
            lambda m: m["tile_matrix_set_limits"].update({"7": m["tile_matrix_set_limits"]["0"]})
        ),
    ),
    case("MS-18", lambda d: d.multiscales(lambda m: m["tile_matrix_limits"]["0"].pop("tileMatrix"))),
    case("MS-18", limits("tile_matrix_limits", "0", maxTileCol=1)),
    case("MS-18", lambda d: d.multiscales(lambda m: m["tile_matrix_limits"].pop("1"))),
    case(
        "MS-18",
        lambda d: d.multiscales(lambda m: m.pop("tile_matrix_limits")),
        severity="note",
        is_mechanical=False,
    ),
    case(
        "MS-25", lambda d: d.multiscales(lambda m: m["tile_matrix_set"]["tileMatrices"][0].pop("matrixWidth"))
    ),
    case("MS-26", lambda d: d.multiscales(lambda m: m["tile_matrix_set"].pop("id"))),
    case("MS-26", lambda d: d.multiscales(lambda m: m["tile_matrix_set"].pop("crs"))),
    case(
        "MS-26",
        lambda d: d.multiscales(lambda m: m["tile_matrix_set"].update(orderedAxes=["E", "E"])),
        severity="warning",
    ),
    case(
        "MS-26",
        lambda d: d.multiscales(
            lambda m: (
                m["tile_matrix_set"].update(tileMatrices=[]),
                m.pop("tile_matrix_set_limits"),
                m.pop("tile_matrix_limits"),
            )
        ),
    ),
    case("MS-27", lambda d: d.matrix("1", cellSize=25.0), "", "GZ-41", "GZ-45"),
]

DECLARED = [
    case(
        "ZC-01",
        lambda d: d.attributes("", lambda a: a["zarr_conventions"].append({"name": "mine"})),
        is_mechanical=False,
    ),
    case("ZC-01", attribute("", zarr_conventions="proj"), is_mechanical=False),
    case("ZC-01", entries(lambda each: each.pop("uuid")), severity="warning"),
    case("ZC-01", entries(lambda each: each.update(uuid="none")), severity="warning", is_mechanical=False),
    case("ZC-01", undeclared("", UUIDS["proj"]), severity="warning"),
    case("ZC-02", layout(0, asset="/0")),
    case("ZC-02", lambda d: d.multiscales(lambda m: m["layout"][1].pop("transform"))),
    case("ZC-02", top(layout=[])),
    case("ZC-03", layout(1, asset="7")),
    case("ZC-03", layout(1, derived_from="7")),
    case(
        "ZC-04",
        both(attribute("", spatial__registration="pixel"), layout(0, transform={"scale": [1.0, 1.0, 1.0]})),
    ),
    case("ZC-04", layout(1, transform={"scale": [2.0, 2.0], "translation": [0.5, 0.5]})),
    case("ZC-04", lambda d: d.multiscales(lambda m: m["layout"][1].pop("spatial:transform"))),
    case("ZC-05", without("", "spatial:bbox"), make=flat, severity="note", is_mechanical=False),
    case("ZC-06", layout(1, spatial__shape=[48, 64]), "1/b02"),
    case("ZC-06", attribute("1", spatial__shape=[48, 64]), "1"),
    case("ZC-06", layout(1, spatial__transform=[20.0, 0.0, 300100.0, 0.0, -20.0, 5000040.0])),
    case(
        "ZC-08",
        attribute(
            "",
            stac__encoding="attribute",
            stac__item={"type": "Feature"},
            stac__collection={"type": "Collection"},
        ),
    ),
    case("ZC-08", attribute("", stac__item={"type": "Feature", "assets": {"a": {"href": "/b02"}}})),
    case(
        "ZC-08",
        lambda d: d.attributes(
            "", lambda a: a["zarr_conventions"].append({"uuid": "b3703368-7e7e-4e8e-9e0e-6d0f0d5e8e8e"})
        ),
    ),
    case("ZC-09", attribute("0/b02", cf__units="1"), "0/b02"),
    case(
        "OC-10",
        lambda d: d.attributes("", lambda a: a["multiscales"][0]["datasets"].reverse()),
        make=listed,
        profile="multiscale-arrays",
    ),
    case(
        "ZC-03",
        lambda d: d.attributes("", lambda a: a["multiscales"][0]["datasets"][1].update(path="7/b02")),
        make=listed,
        profile="multiscale-arrays",
    ),
    case(
        "OC-10",
        lambda d: d.attributes("", lambda a: a["multiscales"][0].update(version="0.4")),
        make=listed,
        severity="warning",
    ),
    case(
        "OME",
        lambda d: d.attributes(
            "",
            lambda a: a["ome"]["multiscales"][0]["datasets"][1]["coordinateTransformations"][0].update(
                scale=[-50.0, 50.0]
            ),
        ),
        make=ome,
        profile="ome",
    ),
    case("OME", image(lambda i: i.pop("coordinateSystems")), make=ome_06, profile="ome-0.6"),
    case(
        "OME",
        image(lambda i: i["datasets"][1]["coordinateTransformations"][0]["input"].update(path="7/b02")),
        make=ome_06,
        profile="ome-0.6",
        severity="warning",
    ),
    case(
        "OME",
        image(lambda i: i["datasets"][1]["coordinateTransformations"][0]["output"].update(name="other")),
        make=ome_06,
        profile="ome-0.6",
    ),
    case(
        "OME",
        image(lambda i: i["datasets"][1]["coordinateTransformations"][0].update(type="affine")),
        make=ome_06,
        profile="ome-0.6",
    ),
    case(
        "OME",
        image(lambda i: i["coordinateSystems"].append(i["coordinateSystems"][0])),
        make=ome_06,
        profile="ome-0.6",
    ),
    case(
        "OME",
        image(lambda i: [axis.update(name="x") for axis in i["coordinateSystems"][0]["axes"]]),
        make=ome_06,
        profile="ome-0.6",
    ),
    case(
        "GC-01",
        attribute("", zarr_conventions=None),
        "",
        "GC-02",
        "GC-03",
        "GC-04",
        make=candidate,
        profile="geozarr-1.0",
    ),
    case("GC-02", undeclared("1", "f17cb550"), "1", make=candidate, profile="geozarr-1.0"),
    case("GC-02", attribute("1", proj__code="32632"), "1", make=candidate, profile="geozarr-1.0"),
    case("GC-03", undeclared("1", "689b58e2"), "1", make=candidate, profile="geozarr-1.0"),
    case(
        "GC-03",
        attribute("1", spatial__transform=[1.0, 2.0]),
        "1",
        "ZC-05",
        make=candidate,
        profile="geozarr-1.0",
    ),
    case("GC-04", undeclared("", "d35379db"), "", make=candidate, profile="geozarr-1.0"),
    case(
        "GC-04",
        lambda d: d.multiscales(lambda m: m["layout"].pop()),
        "",
        make=candidate,
        profile="geozarr-1.0",
        is_mechanical=False,
    ),
    case("BANDS", attribute("0/b02", bands="B02"), "0/b02"),
]

VALUES = [
    case("GZ-49", rewrite("1/b02", lambda old: np.roll(old, 1, 0)), "1/b02", deep=True),
    case(
        "ZS-05",
        both(
            limits("tile_matrix_set_limits", "0", max_tile_col=1),
            limits("tile_matrix_limits", "0", maxTileCol=1),
        ),
        "0/b02",
        deep=True,
    ),
    case("ZS-09", lambda d: d.store.put("0/.zstore-job/record", b'{"work": "convert"}'), "0"),
    case("ZS-08", member("0/b02", fill_value=None), "0/b02", severity="warning"),
    case(
        "ZS-10",
        lambda d: d.edit(
            "0/b02",
            lambda n: n["codecs"].insert(0, {"name": "transpose", "configuration": {"order": "C"}}),
        ),
        "0/b02",
        severity="note",
    ),
    case("ZS-06", lambda d: d.store.put("0/b02/c/9/9", b"x"), "0/b02", deep=True, severity="warning"),
    case(
        "ZS-07",
        attribute("b02", standard_name="air_temperature", units="m"),
        "b02",
        make=flat,
        deep=True,
        profile="gdal",
    ),
]

CASES = [*DOCUMENTS, *VARIABLES, *GEOREFERENCE, *LEVELS, *TILES, *DECLARED, *VALUES]

__all__ = ["CASES", "Case", "json", "replace", "three", "values_of"]
