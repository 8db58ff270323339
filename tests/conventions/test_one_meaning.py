"""Whoever asks what a store means gets one answer: readers, reports, rules, pyramids, xarray and rasters."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import ReadingWarning, UnknownExtensionError
from zstore.extensions.offers import Offer
from zstore.extensions.plugins import Plugin
from zstore.extensions.registry import conventions as registry
from zstore.geo.conventions.base import (
    Affine,
    Document,
    Facts,
    Finding,
    Mend,
    is_group,
    load_conventions,
    order_conventions,
    use_conventions,
)
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo
from zstore.geo.pictures.quicklook import quicklook
from zstore.geo.report.summary import describe
from zstore.geo.validation.fixing.fix import plan_fix
from zstore.geo.validation.run import validate
from zstore.storage.memory import MemoryStore

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")

UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
CODE = "EPSG:32632"


def put_grid(group: zstore.Group, **attributes: Any) -> None:
    """An array on a grid, and its coordinates."""
    y, x = UTM.coordinates((32, 24))
    group.create_array("y", data=y, dimension_names=("y",), attributes={"axis": "Y"})
    group.create_array("x", data=x, dimension_names=("x",), attributes={"axis": "X"})
    data = np.arange(32 * 24, dtype="u2").reshape(32, 24)
    group.create_array("b", data=data, chunks=16, dimension_names=("y", "x"), attributes=attributes)


@pytest.fixture
def nested(tmp_path: Path) -> str:
    """A grid whose grid mapping variable lies in the group above."""
    root = zstore.create_group(tmp_path / "s.zarr", attributes={"Conventions": "CF-1.11"})
    crs = Crs.from_user(CODE)
    mapping = {**crs.cf, "crs_wkt": crs.wkt}
    root.create_array("utm", data=np.int32(0), dimension_names=(), attributes=mapping)
    put_grid(root.create_group("data", attributes={"Conventions": "CF-1.11"}), grid_mapping="utm: y x")
    return str(tmp_path / "s.zarr" / "data")


def test_a_dimension_may_be_one_of_a_group_above(tmp_path: Path) -> None:
    """Draft 8.1.2: "/time" is the array `time` above; read so, and never written."""
    root = zstore.create_group(tmp_path / "s")
    said = {"standard_name": "time", "units": "days since 2000-01-01", "calendar": "standard"}
    root.create_array("time", data=np.arange(3) * 10, dimension_names=("time",), attributes=said)
    group = root.create_group("data")
    put_grid(group)
    stack = np.arange(3 * 32 * 24, dtype="u2").reshape(3, 32, 24)
    group.create_array("s", data=stack, chunks=(1, 16, 16), dimension_names=("/time", "y", "x"))
    for geo in (read_geo(zstore.open_group(tmp_path / "s", "data"))[0], read_geo(group["s"])[0]):
        assert geo.time is not None and geo.time.extent() == ("2000-01-01", "2000-01-21")
        assert geo.affine == UTM and geo.variables["s"].dimensions == ("time", "y", "x")
    made = zstore.build_pyramid(zstore.open(tmp_path / "s/data", above=True), tmp_path / "made", levels=1)
    assert made["1/s"].dims == ("time", "y", "x")
    np.testing.assert_array_equal(made["1/time"][...], [0, 10, 20])


def longitudes(
    place: Path, attributes: tuple[dict[str, str], dict[str, str]] | None, zarr_format: int
) -> str:
    """Data of the globe, 5 degrees a cell, that says nothing of a CRS."""
    group = zstore.create_group(place, zarr_format=zarr_format)
    y, x = attributes or ({"standard_name": "latitude"}, {"standard_name": "longitude"})
    group.create_array("lat", data=87.5 - 5.0 * np.arange(36), dimension_names=("lat",), attributes=y)
    group.create_array("lon", data=2.5 + 5.0 * np.arange(72), dimension_names=("lon",), attributes=x)
    data = np.arange(36 * 72, dtype="f4").reshape(36, 72)
    for name in ("a", "b"):
        group.create_array(name, data=data, dimension_names=("lat", "lon"), fill_value=np.nan)
    return str(place)


@pytest.mark.parametrize(
    "attributes",
    [
        ({"units": "degrees_north"}, {"units": "degrees_east"}),
        ({"units": "degree_N"}, {"units": "degree_E"}),
        ({"units": "degrees"}, {}),
    ],
)
def test_longitudes_are_told_by_their_units_and_names(tmp_path: Path, attributes: Any) -> None:
    geo, findings = read_geo(zstore.open_group(longitudes(tmp_path / "s", attributes, 3)))
    assert geo.crs is not None and geo.crs.code == "OGC:CRS84"
    assert [f.severity for f in findings if f.rule == "OC-09"] == ["warning"]


@pytest.mark.parametrize(("top", "is_known"), [(90.0, True), (92.0, False)])
def test_rows_more_than_their_height_beyond_a_pole_are_no_latitudes(top: float, is_known: bool) -> None:
    group = zstore.create_group(MemoryStore())
    for name, of, values in (
        ("lat", "latitude", top - np.arange(20.0)),
        ("lon", "longitude", 5.0 * np.arange(72)),
    ):
        group.create_array(name, data=values, dimension_names=(name,), attributes={"standard_name": of})
    group.create_array("a", data=np.zeros((20, 72)), dimension_names=("lat", "lon"))
    assert (read_geo(group)[0].crs is not None) == is_known


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_longitudes_without_a_crs_are_crs84_to_everybody(tmp_path: Path, zarr_format: int) -> None:
    rasterio = pytest.importorskip("rasterio", reason="GeoTIFFs are read with rasterio (extra 'raster')")
    xr = pytest.importorskip("xarray", reason="the door from xarray needs xarray (extra 'xarray')")
    from zstore.geo.rasters import zarr_to_raster
    from zstore.guests.xarray import ZstoreBackendEntrypoint

    place = longitudes(tmp_path / "s", None, zarr_format)
    assert (of_info(place) or "").startswith("OGC:CRS84")
    assert [f.severity for f in validate(place).findings if f.rule == "OC-09"] == ["note"]
    opened = xr.open_dataset(place, engine=ZstoreBackendEntrypoint)
    doors: dict[str, Callable[[], Any]] = {
        "pyramid": lambda: zstore.build_pyramid(place, tmp_path / "p", levels=1),
        "tiles": lambda: zstore.build_tile_pyramid(place, tmp_path / "t", "WorldCRS84Quad"),
        "raster": lambda: zarr_to_raster(place, tmp_path / "r.tif"),
        "xarray": lambda: opened.zstore.to_geozarr(tmp_path / "x"),
        "xarray pyramid": lambda: opened.zstore.to_geozarr(tmp_path / "y", levels=1),
    }
    for door, opens in doors.items():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            opens()
        assert [str(w.message).partition(": ")[2] for w in told if "CRS" in str(w.message)] == [
            "longitudes and latitudes without a CRS; OGC:CRS84 is assumed"
        ], door
    with rasterio.open(tmp_path / "r.tif") as raster:
        # A GeoTIFF knows the same places as EPSG:4326, whose order of axes it leaves out.
        assert raster.crs.to_epsg() == 4326 and raster.bounds == (0, -90, 360, 90)
    for made in ("p", "t", "x", "y"):
        geo, findings = read_geo(zstore.open_group(tmp_path / made))
        assert geo.crs is not None and geo.crs.code == "OGC:CRS84", made
        assert not [f for f in findings if f.rule == "OC-09"]


@pytest.mark.parametrize(
    ("y", "x"),
    [
        ({"standard_name": "grid_latitude"}, {"standard_name": "grid_longitude"}),
        ({"units": "m"}, {"units": "m"}),
        ({"units": "degrees", "standard_name": "projection_y_coordinate"}, {"units": "degrees"}),
    ],
)
def test_other_coordinates_are_no_longitudes(tmp_path: Path, y: dict[str, str], x: dict[str, str]) -> None:
    geo, findings = read_geo(zstore.open_group(longitudes(tmp_path / "s", (y, x), 3)))
    assert geo.crs is None and not [f for f in findings if f.rule == "OC-09"]


@pytest.fixture
def plugged() -> Iterator[str]:
    """A store whose CRS a plugin's convention alone says, and the plugin, as if it were installed."""
    module = ModuleType("acme_zstore")
    module.Acme = Acme  # type: ignore[attr-defined]
    sys.modules["acme_zstore"] = module
    offer = Offer("acme", "acme_zstore:Acme")
    loaded = [Plugin("acme", "acme_zstore", "acme", "1", "ok", (("convention", offer),))]
    former = registry._load, registry._plugin_names
    registry._load, registry._plugin_names = lambda: loaded, None
    yield "acme"
    registry._load, registry._plugin_names = former
    registry._classes.pop("acme", None)
    del sys.modules["acme_zstore"]


class Acme:
    """The CRS as a bare number in a group's attributes."""

    name = "acme"

    def parse(self, node: Any, parent: Any = None) -> Facts:
        number = node.attrs.get("acme:epsg") if is_group(node) else None
        if number == "fail":
            raise KeyError(number)
        if isinstance(number, str):
            mend = Mend("acme:epsg is a number", {"acme:epsg": int(number)})
            finding = Finding("ACME-1", "error", node.path, "acme:epsg is text", mend=mend)
            return Facts(findings=(finding,))
        return Facts() if number is None else Facts(crs=(("acme:epsg", Crs.from_user(f"EPSG:{number}")),))

    def render(self, geo: Any, zarr_format: int) -> dict[str, Document]:
        code = "" if geo.crs is None else geo.crs.code or ""
        if not code.startswith("EPSG:"):
            return {}
        number = int(code.removeprefix("EPSG:"))
        return {grid.path: Document(kind="group", attributes={"acme:epsg": number}) for grid in geo.grids}

    def check(self, node: Any, geo: Any, parent: Any = None) -> list[Any]:
        return list(self.parse(node, parent).findings)


def node_at(place: str) -> Any:
    """The node of that address, which inherits of the groups above it."""
    return zstore.open(place, mode="r", above=True)


def of_reading(place: str) -> str | None:
    geo, findings = read_geo(zstore.open(place, mode="r"), above=True)
    assert [finding for finding in findings if finding.severity != "note"] == []
    return geo.crs.code if geo.crs else None


def of_an_array(place: str) -> str | None:
    crs = read_geo(node_at(f"{place}/b"))[0].crs
    return crs.code if crs else None


def of_info(place: str) -> str | None:
    return dict(describe(node_at(place)).facts())["CRS"]


def of_validation(place: str) -> str | None:
    verdict = validate(node_at(place))
    assert [finding for finding in verdict.findings if finding.severity == "error"] == []
    state = next(found.state for found in verdict.classes if found.name == "crs")
    return CODE if state == "pass" else None


def of_fixing(place: str) -> str | None:
    node = node_at(place)
    plan = plan_fix(node)
    assert plan.after.count("error") == 0
    crs = read_geo(zstore.open_group(plan.store, node.path, mode="r"))[0].crs
    return crs.code if crs else None


def of_a_pyramid(place: str) -> str | None:
    made = zstore.build_pyramid(node_at(place), MemoryStore(), levels=1)
    assert read_geo(made)[0].crs == Crs.from_user(CODE)
    (code,) = {Crs.from_user(dict(made[f"{n}/spatial_ref"].attrs)).code for n in (0, 1)}
    return code


def of_xarray(place: str) -> str | None:
    xr = pytest.importorskip("xarray", reason="to_geozarr is xarray's (extra 'xarray')")
    import zstore.guests.xarray

    source = zstore.open_group(place, mode="r")
    target = MemoryStore()
    dataset = xr.open_dataset(place, engine="zstore", decode_coords=False)
    above = zstore.create_group(target, attributes=dict(source.attrs))
    if "utm" in zstore.open_group(str(Path(place).parent), mode="a"):
        parent = zstore.open_group(str(Path(place).parent), mode="r")
        above.create_array("utm", data=np.int32(0), dimension_names=(), attributes=dict(parent["utm"].attrs))
        group = dataset.zstore.to_geozarr(target, group="data")
    else:
        group = dataset.zstore.to_geozarr(MemoryStore())
    return group.attrs.get("proj:code")


def of_a_raster(place: str) -> str | None:
    rasterio = pytest.importorskip("rasterio", reason="rasters are written with rasterio (extra 'raster')")
    from zstore.geo.rasters.geotiff import zarr_to_raster

    path = zarr_to_raster(node_at(place), Path(place).parent.with_suffix(".tif"))
    with rasterio.open(path) as raster:
        return raster.crs.to_string() if raster.crs else None


def of_a_picture(place: str) -> str | None:
    assert quicklook(node_at(place)).shape == (32, 24, 1)
    return CODE


EVERYBODY = [
    of_reading, of_an_array, of_info, of_validation, of_fixing, of_a_pyramid, of_xarray, of_a_raster,
    of_a_picture,
]  # fmt: skip


@pytest.mark.parametrize("ask", EVERYBODY, ids=lambda ask: ask.__name__)
def test_a_grid_mapping_in_a_group_above_is_found(ask: Callable[[str], str | None], nested: str) -> None:
    assert ask(nested) == CODE


def test_nothing_above_the_opened_store_is_read(nested: str, tmp_path: Path) -> None:
    """A store below a group means what its copy elsewhere, or in a zip file, means."""
    shutil.copytree(nested, tmp_path / "elsewhere")
    copied = zstore.copy(nested, tmp_path / "data.zip")
    assert copied is not None
    read = [
        read_geo(zstore.open(place, mode="r"))
        for place in (nested, tmp_path / "elsewhere", tmp_path / "data.zip")
    ]
    assert [geo.crs for geo, _ in read] == [None] * 3 and read[0][0] == read[1][0] == read[2][0]
    assert [[(f.rule, f.message) for f in findings] for _, findings in read] == [
        [("GZ-15", f.message) for f in read[0][1]]
    ] * 3
    assert read_geo(zstore.open(nested, "b", mode="r"))[0].crs is None
    assert dict(describe(zstore.open(nested, mode="r")).facts())["CRS"] == "none"
    assert validate(nested).by_rule()["GZ-15"]
    # An array of a group of the store has what lies beside it, however it is opened.
    root = zstore.open(Path(nested).parent, "data/b", mode="r")
    assert read_geo(root)[0].crs == read_geo(node_at(nested))[0].crs == Crs.from_user(CODE)
    assert (node_at(nested).path, node_at(f"{nested}/b").path) == ("data", "data/b")
    assert zstore.open(Path(nested).parent, mode="r", above=True).path == ""


def test_the_prompt_reads_above_where_it_is_asked(nested: str, tmp_path: Path) -> None:
    testing = pytest.importorskip("click.testing", reason="the command line is made with click")
    pytest.importorskip("rich", reason="the command line draws with rich")
    from zstore.cli.root import zstore as command

    def run(*words: str) -> str:
        return str(testing.CliRunner().invoke(command, list(words)).output)

    assert CODE in run("info", "--above", nested) and CODE not in run("info", nested)
    assert "GZ-15" in run("validate", nested) and "GZ-15" not in run("validate", "--above", nested)
    stored, notice = ["--nodata", "0"], "groups that say where its cells are"
    for number, (command_name, name, *words) in enumerate((
        ("quicklook", "q.png"), ("pyramid", "p.zarr"), ("convert", "c.tif"), ("mosaic", "m.zarr", *stored),
    )):  # fmt: skip
        if name == "c.tif":
            pytest.importorskip("rasterio", reason="GeoTIFFs are written with rasterio (extra 'raster')")
        source, target = f"{nested}/b", tmp_path / f"{number}-{name}"
        assert notice in run(command_name, source, str(target), *words), command_name
        target.unlink() if target.is_file() else shutil.rmtree(target, ignore_errors=True)
        said = run(command_name, source, str(target), *words, "--above")
        assert notice not in said and target.exists(), said
        if name != "q.png":
            crs = read_geo(zstore.open_group(target, mode="r"))[0].crs
            assert crs == Crs.from_user(CODE), command_name
    assert "proj:code" in run("stac", f"{nested}/b", "--above", "--datetime", "2020-01-01")
    # Several readings of one source are one notice.
    box = ["--bbox", "-20,-20,20,20"]
    said = run("quicklook", longitudes(tmp_path / "lonlat", None, 3), str(tmp_path / "lonlat.png"), *box)
    assert said.count("OC-09") == 1, said


@pytest.mark.parametrize("ask", EVERYBODY, ids=lambda ask: ask.__name__)
def test_a_plugins_convention_is_asked(
    ask: Callable[[str], str | None], plugged: str, tmp_path: Path
) -> None:
    place = tmp_path / "s.zarr" / "data"
    attributes = {"acme:epsg": 32632, "Conventions": "CF-1.11"}
    zstore.create_group(tmp_path / "s.zarr")
    put_grid(zstore.create_group(place, attributes=attributes))
    assert ask(str(place)) == CODE


def test_what_a_plugins_convention_said_it_says_again(plugged: str, tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "s", attributes={"acme:epsg": 32632})
    put_grid(group)
    node = zstore.open_group(tmp_path / "s", mode="r")
    assert dict(describe(node).facts())["dialects"] == "acme"
    made = zstore.build_pyramid(group, MemoryStore(), levels=1)
    assert [made[level].attrs["acme:epsg"] for level in ("0", "1")] == [32632, 32632]
    other = zstore.create_group(MemoryStore(), attributes={"proj:code": CODE})
    put_grid(other)
    assert "acme:epsg" not in zstore.build_pyramid(other, MemoryStore(), levels=1)["1"].attrs


def test_levels_do_not_take_over_what_a_plugins_convention_says_of_the_source(
    plugged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = Acme.render

    def render(self: Acme, geo: Any, zarr_format: int) -> dict[str, Document]:
        return {path: said for path, said in rendered(self, geo, zarr_format).items() if path in ("", "0")}

    monkeypatch.setattr(Acme, "render", render)
    group = zstore.create_group(MemoryStore(), attributes={"acme:epsg": 32632, "title": "a scene"})
    put_grid(group)
    made = zstore.build_pyramid(group, MemoryStore(), levels=1)
    assert made["0"].attrs["acme:epsg"] == 32632
    assert made["1"].attrs["title"] == "a scene" and "acme:epsg" not in made["1"].attrs


def test_a_plugins_convention_that_fails_stops_nothing(plugged: str) -> None:
    group = zstore.create_group(MemoryStore(), attributes={"acme:epsg": "fail", "proj:code": CODE})
    put_grid(group)
    geo, findings = read_geo(group)
    assert geo.crs is not None and geo.crs.code == CODE
    assert {(f.rule, f.severity) for f in findings} == {("ACME", "error")}
    assert "convention 'acme' cannot read it: KeyError" in findings[0].message


def test_a_plugins_convention_mends_its_own(plugged: str, tmp_path: Path) -> None:
    place = str(tmp_path / "s")
    put_grid(zstore.create_group(place, attributes={"acme:epsg": "32632"}))
    assert of_info(place) == "none"
    plan = plan_fix(place)
    assert ("ACME-1", "acme:epsg is a number") in [(fix.rule, fix.message) for fix in plan.fixed]
    zstore.fix(place)
    assert of_info(place) == CODE and validate(place).count("error") == 0


def test_the_order_can_be_chosen(plugged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = [convention.name for convention in load_conventions()][:-1]
    assert order_conventions() == [*own, "acme"] and own[:2] == ["cf", "gdal"]
    group = zstore.create_group(MemoryStore(), attributes={"acme:epsg": 32633, "proj:code": CODE})
    put_grid(group)

    def code(**options: Any) -> str | None:
        crs = read_geo(group, **options)[0].crs
        return None if crs is None else crs.code

    assert code() == CODE and code(conventions=["acme", "..."]) == "EPSG:32633"
    assert code(conventions=["cf"]) is None
    with use_conventions("acme", "..."):
        assert code() == "EPSG:32633" and validate(group).count("error") == 1
        with pytest.warns(ReadingWarning, match="OC-08 at b: proj:code is EPSG:32632, acme:epsg is"):
            made = zstore.build_pyramid(group, MemoryStore(), levels=1)
        assert made.attrs["proj:code"] == "EPSG:32633"
    monkeypatch.setenv("ZSTORE_CONVENTIONS", "acme, cf")
    assert order_conventions() == ["acme", "cf"] and code() == "EPSG:32633"
    with pytest.raises(UnknownExtensionError, match="unknown convention 'acne'"), use_conventions("acne"):
        pass


def test_one_that_cannot_be_imported_is_left_out_and_named(plugged: str) -> None:
    del sys.modules["acme_zstore"].Acme  # type: ignore[attr-defined]
    group = zstore.create_group(MemoryStore(), attributes={"proj:code": CODE})
    put_grid(group)
    with pytest.warns(ReadingWarning, match="convention 'acme' is not asked"):
        assert read_geo(group)[0].crs == Crs.from_user(CODE)
    sys.modules["acme_zstore"].Acme = Acme  # type: ignore[attr-defined]


def test_findings_of_reading_are_told_where_a_pyramid_is_made() -> None:
    group = zstore.create_group(MemoryStore())
    put_grid(group, grid_mapping="nowhere")
    with pytest.warns(ReadingWarning, match="GZ-15 at b: grid_mapping is 'nowhere'"):
        zstore.build_pyramid(group, MemoryStore(), levels=1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        quicklook(group)
    assert [str(warning.message).split(":")[0] for warning in told] == ["error GZ-15 at b"]
