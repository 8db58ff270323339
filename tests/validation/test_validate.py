"""The verdict, its doors and its forms; hostile stores; the documents' own examples."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, clean
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.write import RULED
from zstore.geo.validation.fixing.fix import plan_fix
from zstore.geo.validation.run import all_rules, validate
from zstore.geo.validation.standard_names import load_standard_names
from zstore.geo.validation.units import dimension_of
from zstore.geo.validation.view import CLASSES
from zstore.storage.memory import MemoryStore

from . import cases
from .stores import DEGREES, UTM, Documents, model, right

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT.parent / "shared" / "fixtures"
STORES = FIXTURES / "stores"
needs_fixtures = pytest.mark.skipif(not STORES.exists(), reason=f"no fixtures at {FIXTURES}")


def spoilt() -> MemoryStore:
    store = right(3)
    Documents(store).matrix("0", scaleDenominator=35.28)
    Documents(store).set("0/b02", Standard_Name="x")
    return store


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("profile", [None, "geozarr-draft", "geozarr-mini", "gdal"])
@pytest.mark.parametrize(
    "geo",
    [
        model(),
        model("EPSG:4326", DEGREES),
        model(levels=0),
        model(levels=3, dtype="float32"),
        model(affine=UTM._replace(e=10.0)),
    ],
    ids=["utm", "degrees", "plain", "floats", "south-up"],
)
def test_what_zstore_writes_is_right_by_every_profile(zarr_format, profile, geo) -> None:
    verdict = validate(right(zarr_format, geo), profile, deep=True)
    assert verdict.count("error") == 0
    assert {finding.rule for finding in verdict.findings} <= {"GZ-35"}
    states = {found.name: found.state for found in verdict.classes}
    assert states["core"] == states["crs"] == states["geotransform"] == "pass"
    assert states["overviews"] == ("pass" if geo.levels else "not applicable")
    assert states["projected"] == ("not applicable" if geo.is_geographic else "pass")


@pytest.mark.parametrize("profile", ["multiscale-arrays", "ome"])
def test_other_profiles_have_their_own_stores(profile) -> None:
    assert validate(right(3, profile=profile), profile).count("error") == 0


def test_the_door_takes_paths_stores_nodes_and_parts(tmp_path) -> None:
    array = zstore.create_array(tmp_path / "a", "x/y", data=np.zeros((2, 2)))
    assert zstore.validate(tmp_path / "a").is_valid()
    assert zstore.validate(array).is_valid()
    assert zstore.validate(str(tmp_path / "a"), path="x").place.endswith("/a/x")
    group = zstore.open_group(tmp_path / "a", mode="r")
    assert zstore.validate(group, classes=["core"]).classes[1].state == "not checked"


def test_wrong_words_are_refused(tmp_path) -> None:
    with pytest.raises(MetadataError, match="profile is 'geozarr'"):
        validate(right(3), "geozarr")
    with pytest.raises(MetadataError, match="class is 'cores'"):
        validate(right(3), classes=["cores"])
    with pytest.raises(NotFoundError):
        validate(tmp_path / "nothing")


def test_classes_choose_rules_and_fail_alone() -> None:
    verdict = validate(spoilt(), classes=["overviews"])
    assert {found.rule for found in verdict.findings} == {"GZ-35", "GZ-45"}
    assert {all_rules()[id].requirements_class for id in verdict.rules} == {"overviews"}
    states = {found.name: found.state for found in validate(spoilt()).classes}
    assert states["overviews"] == "fail" and states["core"] == states["crs"] == "pass"
    assert len(states) == len(CLASSES) == 8


def test_a_class_needs_core() -> None:
    store = spoilt()
    Documents(store).set("0/b02", valid_min=float("nan"))
    assert {found.state for found in validate(store).classes} == {"fail", "not applicable"}


def test_text_says_what_where_and_how_to_fix() -> None:
    text = validate(spoilt()).as_text()
    assert "error GZ-45  scaleDenominator is cellSize times" in text
    assert "    /: scaleDenominator of tile matrix '0' is 35.28; its cellSize says 35714.28571428572" in text
    assert "fix: correct scaleDenominator" in text
    assert "warning GZ-23" in text and "/0/b02: attribute 'Standard_Name' is spelt unlike" in text
    assert ": 1 error, 1 warning, 2 notes (" in text.splitlines()[-1]


def test_text_is_cut_and_harmless() -> None:
    store = MemoryStore()
    for number in range(12):
        array = zstore.create_array(store, f"a{number}", data=np.zeros(2), dimension_names=["x"])
        array.attrs["Units"] = "m"
    assert "... and 2 more" in validate(store).as_text()
    assert "... and" not in validate(store).as_text(most=None)
    assert clean("a\x1b[31m\nb") == "a\\x1b[31m\\nb"


def test_json_is_json_whatever_is_in_the_store() -> None:
    store = spoilt()
    documents = Documents(store)
    documents.set("0/b02", valid_min=float("inf"), note="\ud800", scale_factor=[float("nan")])
    found = json.loads(validate(store).as_json(), parse_constant=pytest.fail)
    assert found["valid"] is False and found["counts"]["error"] >= 3
    first = next(item for item in found["findings"] if item["rule"] == "GZ-45")
    assert first["path"] == "" and first["found"] == 35.28 and first["class"] == "overviews" and first["fix"]
    assert [item["name"] for item in found["classes"]] == list(CLASSES)


def test_findings_name_their_witnesses_and_what_mends_them() -> None:
    store = right(3, model(levels=0))
    Documents(store).set(
        "b02", scale_factor="0.5", add_offset="none", GeoTransform="300000 10 0 5000000 0 -10"
    )
    found = json.loads(validate(store).as_json())["findings"]
    mends = {item["mend"] for item in found if item["rule"] == "GZ-16"}
    assert mends == {"scale_factor written as a number", "add_offset is 'none'; expected a number"}
    (moved,) = [item for item in found if item["rule"] == "MS-28"]
    assert [said["source"] for said in moved["witnesses"]] == ["spatial:transform", "GeoTransform"]
    assert [said["value"][5] for said in moved["witnesses"]] == [5000040.0, 5000000.0]
    assert moved["mend"] is None


def test_junit_has_a_case_for_every_rule_and_fails_those_with_errors() -> None:
    store = spoilt()
    Documents(store).set("0/b02", history='{"a": "\x00"}')
    verdict = validate(store)
    root = ElementTree.fromstring(verdict.as_junit())
    cases = list(root.iter("testcase"))
    assert len(cases) == len(verdict.rules)
    failed = [case.attrib["name"].split()[0] for case in cases if case.find("failure") is not None]
    assert failed == ["GZ-45"]
    strict = ElementTree.fromstring(verdict.as_junit(strict=True))
    assert sum(int(suite.attrib["failures"]) for suite in strict) == 2


HOSTILE = {
    "no object": {"zarr.json": b"[]"},
    "nothing": {"zarr.json": b""},
    "deep": {"zarr.json": b'{"a":' * 100_000},
    "not text": {"zarr.json": b"\xff\xfe"},
    "huge number": {"zarr.json": b'{"zarr_format": 1' + b"0" * 5000 + b"}"},
    "attributes alone": {".zattrs": b"{}"},
    "bad multiscales": {
        "zarr.json": b'{"zarr_format":3,"node_type":"group","attributes":{"multiscales":{'
        b'"layout":[1,null,{"asset":[]}],'
        b'"tile_matrix_set":{"tileMatrices":[3,{"id":{}},{"id":"0","cellSize":"x","pointOfOrigin":[1e999]}]},'
        b'"tile_matrix_set_limits":[1],"tile_matrix_limits":{"0":7},"resampling_method":["a"]},'
        b'"zarr_conventions":[1,{}],"spatial:shape":["a"],"spatial:dimensions":[1,2],"proj:code":[],'
        b'"ome":{"multiscales":7},'
        b'"Conventions":[],"stac:item":3,"conformsTo":[4]}}'
    },
    "array at the root": {
        "zarr.json": b'{"zarr_format":3,"node_type":"array","shape":[4,4],"data_type":"uint8","fill_value":0,'
        b'"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,2]}},'
        b'"chunk_key_encoding":{"name":"default"},"codecs":[{"name":"bytes"}],"dimension_names":["y","x"],'
        b'"attributes":{"grid_mapping":3,"coordinates":[1],"_CRS":7,"GeoTransform":{},"units":[],"standard_name":1,'
        b'"flag_meanings":{},"_FillValue":[[]],"AREA_OR_POINT":[]}}'
    },
    "huge coordinate": {
        "zarr.json": b'{"zarr_format":3,"node_type":"group"}',
        **{
            f"{name}/zarr.json": b'{"zarr_format":3,"node_type":"array","shape":%s,"data_type":"float64",'
            b'"fill_value":0,"chunk_grid":{"name":"regular","configuration":{"chunk_shape":%s}},'
            b'"chunk_key_encoding":{"name":"default"},"codecs":[{"name":"bytes","configuration":{"endian":"little"}}],'
            b'"dimension_names":%s}' % (shape, chunks, names)
            for name, shape, chunks, names in (
                ("a", b"[1000000000000,1000000000000]", b"[256,256]", b'["y","x"]'),
                ("x", b"[1000000000000]", b"[256]", b'["x"]'),
                ("y", b"[1000000000000]", b"[256]", b'["y"]'),
            )
        },
    },
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("profile", [None, *RULED])
def test_hostile_stores_give_findings(name, profile) -> None:
    store = MemoryStore()
    for key, value in HOSTILE[name].items():
        store.put(key, value)
    verdict = validate(store, profile, deep=True)
    assert name == "huge coordinate" or verdict.findings
    assert verdict.as_text() and verdict.as_json() and verdict.as_junit()
    from zstore.geo.validation.fixing.fix import plan_fix

    list(plan_fix(store, profile).diff())


def _damaged(documents: Documents) -> None:
    documents.store.put("0/b02/c/0/0", b"damaged")


def _of_flags(documents: Documents) -> None:
    for path in ("0/b02", "1/b02"):
        cases.attribute(path, _FillValue=None, scale_factor=None, add_offset=None)(documents)
        cases.rewrite(path, lambda old: old > 900, fill_value=False)(documents)


def _of_whole_cells(documents: Documents) -> None:
    cases.rewrite("0/b02", lambda old: old[:127, :95])(documents)
    finer = zstore.open_array(documents.store, "0/b02", mode="r")[:126, :94]
    cases.rewrite("1/b02", zstore.downsample(finer, (2, 2), "average", nodata=0))(documents)


@pytest.mark.parametrize(
    ("spoils", "severity", "message"),
    [
        ([cases.rewrite("1/b02", lambda old: old[:60, :41])], "note", "no whole factor leads here: values"),
        ([_of_flags], "note", "resampling method 'average' does not take data type bool: values were not"),
        ([_damaged], "error", "values cannot be compared: codec 'zstd' failed"),
        ([_of_whole_cells], None, None),
        (
            [_of_whole_cells, cases.rewrite("1/b02", np.flipud)],
            "error",
            "% of the sampled cells are not what",
        ),
    ],
    ids=["no factor", "flags", "damage", "whole cells", "other cells"],
)
def test_levels_are_compared_with_what_their_method_makes(spoils, severity, message) -> None:
    store = right(3)
    for spoil in spoils:
        spoil(Documents(store))
    found = [one for one in validate(store, deep=True).findings if one.rule == "GZ-49"]
    assert [(one.path, one.severity) for one in found] == ([("1/b02", severity)] if message else [])
    assert all(message in one.message for one in found)


def test_an_array_of_zarr_v1_is_looked_at() -> None:
    store = MemoryStore()
    meta = {
        "zarr_format": 1, "shape": [4], "chunks": [2], "dtype": "<i2", "compression": None,
        "compression_opts": None, "fill_value": 0, "order": "C",
    }  # fmt: skip
    store.put("meta", json.dumps(meta).encode())
    store.put("attrs", b'{"Units": "m", "valid_min": NaN}')
    assert {"GZ-23", "GZ-21"} <= set(validate(store).by_rule())


@needs_fixtures
@pytest.mark.parametrize("path", sorted(path for path in (FIXTURES / "hostile").glob("*") if path.is_dir()))
def test_hostile_fixtures_give_findings_or_are_right(path) -> None:
    try:
        verdict = validate(path)
    except NotFoundError:
        assert not any(path.rglob("zarr.json")) and not any(path.rglob(".z*"))
        return
    assert verdict.as_text()


def test_the_table_of_names_is_whole() -> None:
    table = load_standard_names()
    assert "version 93" in table.version
    assert table.units["air_temperature"] == "K" and len(table.units) > 5000 and len(table.aliases) > 500
    assert table.aliases["x_sea_water_velocity"] == ("sea_water_x_velocity",)
    assert all(dimension_of(units) is not None for units in table.units.values())


@pytest.mark.parametrize(
    "one, other",
    [
        ("m s-1", "km/h"),
        ("kg m**-2 s**-1", "kg m-2 s-1"),
        ("W m-2", "J s-1 m^-2"),
        ("degC", "K"),
        ("hPa", "N m-2"),
        ("1", "percent"),
        ("degrees_east", "rad"),
        ("days since 2000-01-01", "s"),
        ("mm/day", "m s-1"),
        ("ft", "yards"),
        ("ms", "seconds"),
        ("fT", "tesla"),
        ("grad", "microradian"),
    ],
)
def test_units_of_one_kind(one, other) -> None:
    assert dimension_of(one) == dimension_of(other) is not None


def test_units_of_other_kinds_and_none() -> None:
    assert dimension_of("m") != dimension_of("s")
    assert dimension_of("parsnip") is None


def test_all_transforms_of_a_grid_are_compared() -> None:
    """Not only the one that counts with the coordinates: GDAL and rioxarray read others."""
    store = right(3)
    Documents(store).set("0/spatial_ref", GeoTransform="310000 10 0 5000040 0 -10")
    found = [f for f in validate(store).findings if f.severity == "error"]
    assert [(f.rule, f.path) for f in found] == [("MS-28", "0/b02")]
    assert "1000 cells off spatial:transform" in found[0].message


def test_a_group_may_say_what_it_covers_and_no_more() -> None:
    store = right(3, model(levels=0))
    zstore.create_group(store, "more", attributes={"spatial:bbox": [0.0, 0.0, 1.0, 1.0]})
    assert "ZC-05" not in validate(store).by_rule()
    zstore.create_group(store, "more/less", attributes={"spatial:shape": [2, 2]})
    assert [f.path for f in validate(store).by_rule()["ZC-05"]] == ["more/less"]


def test_a_level_that_is_there_twice() -> None:
    store = right(3)
    Documents(store).multiscales(lambda m: m["layout"].append(m["layout"][1]))
    assert [f.message for f in validate(store).by_rule()["ZC-02"]] == ["level '1' is there more than once"]


def test_a_crs_whose_conversion_lacks_a_parameter() -> None:
    """PROJ has a default for it, CF has no word: it is another CRS than the others state."""
    store = right(3)
    group = zstore.open_group(store, mode="r+")
    stated = group["0/b02"].attrs["_CRS"]
    stated["projjson"]["conversion"]["parameters"].pop(3)
    group["0/b02"].attrs["_CRS"] = stated
    found = {(f.rule, f.path) for f in validate(store).findings if f.severity == "error"}
    assert found == {("OC-08", "0/b02")}


def test_a_crs_that_proj_reads_and_cannot_write() -> None:
    store = right(3, model("EPSG:4326", DEGREES))
    group = zstore.open_group(store, mode="r+")
    stated = group["0/b02"].attrs["_CRS"]
    stated["projjson"]["coordinate_system"]["axis"][0].pop("unit")
    group["0/b02"].attrs["_CRS"] = stated
    assert [(f.severity, f.path) for f in validate(store).by_rule()["OC-07"]] == [("error", "0/b02")]
    assert plan_fix(store).after.by_rule().get("OC-07") is None


def test_coordinates_whose_codecs_cannot_be_used_are_passed_over() -> None:
    store = right(3)
    Documents(store).edit("0/x", lambda d: d["codecs"][0].pop("configuration"))
    geo, findings = read_geo(zstore.open_group(store, mode="r"))
    assert geo.affine == UTM
    assert ("GZ-29", "0/x") in {(finding.rule, finding.path) for finding in findings}


def test_a_level_that_holds_no_grid_is_named(tmp_path: Path) -> None:
    heights = zstore.create_array(
        tmp_path / "a", "v", data=np.ones((64, 64)), chunks=(32, 32), dimension_names=["y", "x"]
    )
    group = zstore.build_pyramid(heights, tmp_path / "p", levels=2)
    group.create_group("2", overwrite=True)
    group.consolidate()
    [finding] = [f for f in zstore.validate(tmp_path / "p").findings if f.rule == "MS-19"]
    assert finding.message.startswith("level '2': group holds no grid")
