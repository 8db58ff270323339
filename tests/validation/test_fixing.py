"""Fixing: what it says it fixes it fixes, and nothing else changes."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command_line
from zstore.engine.intents import find_unfinished
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo
from zstore.geo.validation.fixing.fix import backup_place, fix, plan_fix, restore_backup, write_plan
from zstore.geo.validation.run import all_rules, validate
from zstore.geo.validation.view import load_hierarchy
from zstore.jobs.record import begin
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

from ..faults.drills import FailingStore
from . import cases
from .cases import CASES, Case
from .stores import DEGREES, SHAPE, UTM, Documents, check_meaning, model, right

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")

# Cases of rules that fixing is named for, but of which each needs a word of the user, or has no one answer.
NEEDS_A_WORD = {"OC-08": {"crs": "EPSG:32632"}, "GZ-37": {"method": "average"}}


def contents(store) -> dict[str, bytes]:
    return {key: bytes(store.get(key)) for key in store.list()}


def is_fixed(case: Case) -> bool:
    return "zstore fix" in all_rules()[case.rule].fix and not case.deep and case.is_mechanical


FIXED = [pytest.param(case, id=f"{case.rule}-{CASES.index(case)}") for case in CASES if is_fixed(case)]


@pytest.mark.parametrize("case", FIXED)
def test_a_rule_that_names_fix_is_fixed_by_it(case, tmp_path) -> None:
    store = case.make()
    case.spoil(Documents(store))
    before = contents(store)
    options = NEEDS_A_WORD.get(case.rule, {})
    plan = plan_fix(store, case.profile, **options)
    assert contents(store) == before
    check_meaning(plan, options.get("crs"))
    plan, place = fix(store, case.profile, backup=tmp_path / "backup", **options)
    found = [f for f in validate(store, case.profile).findings if f.rule == case.rule and f.path == case.path]
    assert found == [], (plan.fixed, plan.refused)
    assert plan.after.count("error") <= plan.before.count("error")
    for key, value in contents(store).items():
        is_data = "/b02/c/" in key or "/b02/0." in key
        assert not is_data or value == before[key]
    again = plan_fix(store, case.profile, **options)
    assert again.changes == {} and list(again.diff()) == []
    assert restore_backup(store, place) == len(plan.changes)
    assert contents(store) == before


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_mechanical], ids=lambda c: c.rule)
def test_what_has_no_one_answer_is_left(case) -> None:
    store = case.make()
    case.spoil(Documents(store))
    plan = plan_fix(store, case.profile)
    check_meaning(plan)
    left = {(finding.rule, finding.path) for finding in plan.after.findings}
    assert (case.rule, case.path) in left


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("crs, affine", [("EPSG:32632", UTM), ("EPSG:4326", DEGREES), (None, UTM)])
def test_a_right_store_is_left_as_it_is(zarr_format, crs, affine) -> None:
    store = right(zarr_format, model(crs, affine))
    plan = plan_fix(store)
    assert (dict(plan.changes), plan.fixed) == ({}, ())


def edges(zarr_format: int, dropped: bool) -> MemoryStore:
    """Levels of a converter that takes edges for centres, and drops odd cells but keeps the extent."""
    store = cases.without_transforms() if zarr_format == 3 else _v2_without_transforms()
    stretch = 1 + 1 / 1000 if dropped else 1.0
    for name, start, step in (("x", UTM.c, 20.0 * stretch), ("y", UTM.f, -20.0 * stretch)):
        array = zstore.open_array(store, f"1/{name}", mode="r+")
        array[...] = start + step * np.arange(array.shape[0])
    return store


def _v2_without_transforms() -> MemoryStore:
    store = right(2)
    documents = Documents(store)
    for path in ("", "0", "1"):
        documents.attributes(path, lambda a: [a.pop(n) for n in list(a) if n.startswith("spatial:")])
    documents.multiscales(lambda m: [item.pop("spatial:transform") for item in m["layout"]])
    for level in ("0", "1"):
        documents.set(f"{level}/spatial_ref", GeoTransform=None)
    return store


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dropped", [False, True])
def test_levels_whose_coordinates_are_edges_are_moved_by_half_a_cell(zarr_format, dropped) -> None:
    store = edges(zarr_format, dropped)
    assert "MS-14" in {finding.rule for finding in validate(store).findings}
    plan = plan_fix(store)
    geo, _ = read_geo(zstore.open_group(plan.store, mode="r"))
    assert [tuple(level.affine) for level in geo.levels] == [tuple(UTM), tuple(UTM.scaled((2, 2)))]
    assert zstore.open_array(plan.store, "1/x", mode="r")[0] == 300010.0
    assert plan.after.count("error") == 0


def test_every_second_cell_is_left_where_that_may_be_meant() -> None:
    store = cases.without_transforms()
    zstore.open_array(store, "1/x", mode="r+")[...] = 300005.0 + 20.0 * np.arange(48)
    Documents(store).multiscales(lambda m: m.update(resampling_method="nearest"))
    plan = plan_fix(store)
    assert "MS-14" in {done.rule for done in plan.refused}
    assert not [key for key in plan.changes if key.startswith("1/x/c")]


def test_two_crss_are_left_until_the_user_says_which() -> None:
    store = right(3, model(levels=0))
    Documents(store).set("b02", _CRS={"wkt": Crs.from_user("EPSG:32633").wkt})
    plan = plan_fix(store)
    assert [done.rule for done in plan.refused] == ["OC-08"]
    assert dict(plan.changes) == {}
    plan = plan_fix(store, crs="EPSG:32633")
    array = zstore.open_group(plan.store, mode="r")["b02"]
    parent = zstore.open_group(plan.store, mode="r")
    assert read_geo(array, parent)[0].crs.code == "EPSG:32633"
    assert parent.attrs["proj:code"] == "EPSG:32633"


@pytest.mark.parametrize(
    ("trust", "code"),
    [("_CRS", "EPSG:32633"), ("gdal", "EPSG:32633"), ("proj:code", "EPSG:32632"), ("cf", "EPSG:32632"),
     (("crs_wkt", "_CRS"), "EPSG:32632")],
)  # fmt: skip
def test_the_crs_of_a_trusted_attribute_or_convention_is_written_everywhere(trust, code) -> None:
    store = right(3, model(levels=0))
    Documents(store).set("b02", _CRS={"wkt": Crs.from_user("EPSG:32633").wkt})
    (found,) = [found for found in validate(store).findings if found.rule == "OC-08"]
    assert found.witnesses == (("spatial_ref.crs_wkt", "EPSG:32632"), ("_CRS.wkt", "EPSG:32633"))
    plan = plan_fix(store, trust=trust)
    assert plan.refused == () and plan.after.count("error") == 0
    group = zstore.open_group(plan.store, mode="r")
    stated = [
        group["b02"].attrs["_CRS"]["wkt"],
        group["spatial_ref"].attrs["crs_wkt"],
        group.attrs["proj:code"],
    ]
    assert {Crs.from_user(value).code for value in stated} == {code}
    assert plan_fix(plan.store, trust=trust).changes == {}


@pytest.mark.parametrize("levels", [0, 3])
@pytest.mark.parametrize("trust", ["coordinates", "GeoTransform", "spatial_ref", "zarr_conventions"])
def test_a_trusted_attribute_says_which_way_the_rows_run(trust, levels) -> None:
    """Of all coordinates against all transforms, which no majority settles."""
    store = right(3, model(levels=levels))
    paths = [f"{level}/y" for level in range(levels)] or ["y"]
    for path in paths:
        array = zstore.open_array(store, path, mode="r+")
        array[...] = array[...][::-1]
    assert {done.rule for done in plan_fix(store).refused} == {"MS-28"}
    plan = plan_fix(store, trust=trust)
    assert plan.refused == () and plan.after.count("error") == 0
    south = UTM.f + UTM.e * SHAPE[0]
    turned = UTM._replace(e=-UTM.e, f=south) if trust == "coordinates" else UTM
    assert read_geo(zstore.open_group(plan.store, mode="r"))[0].affine == turned
    is_written = any("/c/" in f"/{key}" for key in plan.changes)
    assert is_written is (trust != "coordinates")


def test_units_of_another_crs_are_written_where_its_attribute_is_trusted() -> None:
    store = right(3, model("EPSG:4326", DEGREES, levels=0))
    Documents(store).set("x", standard_name="projection_x_coordinate", units="m")
    assert ("MS-08", "x") in {(done.rule, done.path) for done in plan_fix(store).refused}
    attributes = zstore.open_array(plan_fix(store, trust="crs_wkt").store, "x", mode="r").attrs
    assert (attributes["standard_name"], attributes["units"]) == ("longitude", "degrees_east")


def test_a_name_that_states_nothing_cannot_be_trusted() -> None:
    with pytest.raises(MetadataError, match=r"trust is 'proj:transform'.* expected of _CRS\.projjson, .*cf"):
        plan_fix(right(3), trust="proj:transform")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_another_crs_leaves_no_parameters_of_the_former_one(zarr_format) -> None:
    store = right(zarr_format, model(levels=0))
    assert zstore.open_array(store, "spatial_ref", mode="r").attrs["false_easting"] == 500000.0
    crs = Crs.from_user("EPSG:3035")
    attributes = zstore.open_array(plan_fix(store, crs=crs).store, "spatial_ref", mode="r").attrs
    for name in ("grid_mapping_name", "false_easting", "longitude_of_projection_origin"):
        assert attributes[name] == crs.cf[name]
    assert not {"scale_factor_at_central_meridian", "longitude_of_central_meridian"} & set(attributes)


@pytest.mark.parametrize(
    ("scale", "fixed"), [([1.0, 3.0, 3.0], [1.0, 2.0, 2.0]), ([3.0, 3.0], [2.0, 2.0]), ("x", [2.0, 2.0])]
)
def test_the_scale_of_a_level_is_worked_out_and_that_of_other_dimensions_stays(scale, fixed) -> None:
    store = right(3)
    Documents(store).multiscales(lambda m: m["layout"][1]["transform"].update(scale=scale, more="kept"))
    stated = zstore.open_group(plan_fix(store).store, mode="r").attrs["multiscales"]
    transform = stated["layout"][1]["transform"]
    assert (transform["scale"], transform["more"]) == (fixed, "kept")


def test_the_longer_form_of_grid_mapping_stays() -> None:
    store = right(3, model(levels=0))
    Documents(store).set("b02", grid_mapping="spatial_ref: x y", _CRS=None)
    attributes = zstore.open_array(plan_fix(store).store, "b02", mode="r").attrs
    assert attributes["grid_mapping"] == "spatial_ref: x y" and "wkt" in attributes["_CRS"]


def test_a_raster_with_gdals_crs_only_gets_a_grid_mapping() -> None:
    store = right(3, model(levels=0), profile="gdal")
    assert "spatial_ref" not in zstore.open_group(store, mode="r")
    group = zstore.open_group(plan_fix(store).store, mode="r")
    assert group["b02"].attrs["grid_mapping"] == "spatial_ref"
    assert Crs.from_user(group["spatial_ref"].attrs["crs_wkt"]).code == "EPSG:32632"
    assert group["spatial_ref"][()] == 0


@pytest.mark.parametrize("dtype, nodata", [("uint16", 0), ("float32", -9999.0)])
def test_the_nodata_of_a_raster_of_gdals_stays(dtype, nodata) -> None:
    """GDAL alone takes the fill value for nodata; with a grid mapping, the raster is no longer its alone."""
    store = right(3, model(levels=0, dtype=dtype), profile="gdal")
    Documents(store).set("b02", _FillValue=None, missing_value=None)
    before = read_geo(zstore.open_group(store, mode="r"))[0].variables["b02"]
    assert before.nodata == nodata
    after = read_geo(zstore.open_group(plan_fix(store).store, mode="r"))[0].variables["b02"]
    assert after == before


def test_a_fill_value_that_is_missing_is_asked_for() -> None:
    """GDAL writes null for "no nodata", for which zarr-python refuses to open the array."""
    store = right(3, model(levels=0), profile="gdal")
    Documents(store).edit("b02", lambda d: d.update(fill_value=None))
    Documents(store).set("b02", _FillValue=None)
    plan = plan_fix(store)
    assert ("ZS-08", "b02") in {(done.rule, done.path) for done in plan.refused}
    assert zstore.open_array(plan.store, "b02", mode="r").fill_value is None
    plan = plan_fix(store, fill_value=65535)
    assert zstore.open_array(plan.store, "b02", mode="r").fill_value == 65535
    plan = plan_fix(store, fill_value=-1)
    assert "ZS-08" in {done.rule for done in plan.refused}


@pytest.mark.parametrize("value, written", [(float("nan"), "NaN"), (float("-inf"), "-Infinity"), (0, 0.0)])
def test_fill_values_that_json_has_no_numbers_for(value, written) -> None:
    store = right(3, model(levels=0, dtype="float32"), profile="gdal")
    Documents(store).edit("b02", lambda d: d.update(fill_value=None))
    Documents(store).set("b02", _FillValue=None, missing_value=None)
    plan = plan_fix(store, fill_value=value)
    assert json.loads(bytes(plan.store.get("b02/zarr.json")))["fill_value"] == written
    np.testing.assert_equal(zstore.open_array(plan.store, "b02", mode="r").fill_value, np.float32(value))


@pytest.mark.parametrize("stated", [["NaN"], "GDAL"])
def test_a_nodata_of_nan_is_written_as_json_has_it(stated) -> None:
    """In another form that is corrected, and as the fill value of a raster that GDAL alone described."""
    store = right(3, model(levels=0, dtype="float32"), profile="gdal" if stated == "GDAL" else None)
    Documents(store).edit("b02", lambda d: d.update(fill_value="NaN"))
    Documents(store).set("b02", _FillValue=None if stated == "GDAL" else stated, missing_value=None)
    changed = plan_fix(store).changes["b02/zarr.json"]
    attributes = json.loads(changed, parse_constant=pytest.fail)["attributes"]
    assert (attributes["_FillValue"], attributes.get("missing_value")) == ("AAAAAAAA+H8=", None)


def test_the_crs_is_made_a_coordinate_which_rioxarray_reads_by_default() -> None:
    store = right(3)
    Documents(store).set("0/b02", coordinates=None)
    group = zstore.open_group(plan_fix(store).store, mode="r")
    assert group["0/b02"].attrs["coordinates"] == "spatial_ref"


def test_zarr_v1_is_left_as_it_is(tmp_path) -> None:
    zstore.create_array(tmp_path / "a", "one", data=np.zeros((3, 4)), zarr_format=1)
    zstore.create_array(tmp_path / "a", "sub/two", data=np.zeros((3, 4)), zarr_format=1)
    verdict = validate(tmp_path / "a")
    assert [(f.severity, f.rule) for f in verdict.findings if not f.path] == [("note", "GZ-04")]
    assert {f.path for f in verdict.findings} == {"", "one"}
    plan = plan_fix(tmp_path / "a")
    assert plan.changes == {} and [done.rule for done in plan.refused] == ["GZ-04"]
    zstore.create_array(tmp_path / "a", "newer", data=np.zeros((3, 4)), zarr_format=2)
    assert load_hierarchy(LocalStore.from_path(str(tmp_path / "a"))).root.zarr_format == 2


def test_coordinates_are_written_where_only_a_transform_says_them() -> None:
    """And as they are where zstore writes the raster."""
    store = right(3, model(levels=0))
    for name in ("x", "y"):
        Documents(store).remove(name)
    group = zstore.open_group(plan_fix(store).store, mode="r")
    np.testing.assert_array_equal(group["x"][:3], [300005.0, 300015.0, 300025.0])
    for name in ("x", "y"):
        assert dict(group[name].attrs) == dict(
            zstore.open_array(right(3, model(levels=0)), name, mode="r").attrs
        )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_is_kept_up(zarr_format) -> None:
    store = right(zarr_format, model(levels=0))
    zstore.consolidate(store)
    documents = Documents(store)
    documents.set("b02", grid_mapping=None, long_name="changed behind the group's back")
    plan = plan_fix(store)
    assert "ZS-02" in {done.rule for done in plan.fixed}
    group = zstore.open_group(plan.store, mode="r")
    assert group.model.consolidated is not None
    assert group["b02"].attrs["grid_mapping"] == "spatial_ref"
    assert plan.after.by_rule().keys() <= {"GZ-35"}


def test_nodes_that_only_consolidated_metadata_has_are_not_forgotten() -> None:
    store = cases.consolidated()
    Documents(store).remove("1/b02")
    plan = plan_fix(store)
    assert dict(plan.changes) == {}
    assert [(done.rule, done.path) for done in plan.refused] == [("ZS-02", "")]


def test_a_list_becomes_an_object_where_the_draft_is_asked_for() -> None:
    store = cases.listed()
    assert plan_fix(store).changes == {}
    plan = plan_fix(store, "geozarr-draft")
    stated = zstore.open_group(plan.store, mode="r").attrs["multiscales"]
    assert [item["asset"] for item in stated["layout"]] == ["0", "1"]
    assert {finding.rule for finding in plan.after.findings} == {"GZ-35"}
    candidate = plan_fix(store, "geozarr-1.0")
    stated = zstore.open_group(candidate.store, mode="r").attrs["multiscales"]
    assert [item["asset"] for item in stated["layout"]] == ["0", "1"]
    assert candidate.after.count("error") == 0
    back = plan_fix(plan.store, "multiscale-arrays")
    stated = zstore.open_group(back.store, mode="r").attrs["multiscales"]
    assert [item["path"] for item in stated[0]["datasets"]] == ["0/b02", "1/b02"]
    assert "ome" in zstore.open_group(plan_fix(right(3), "ome").store, mode="r").attrs


def test_a_list_becomes_a_layout_for_the_release_candidate() -> None:
    plan = plan_fix(cases.listed(), "geozarr-1.0")
    stated = zstore.open_group(plan.store, mode="r").attrs["multiscales"]
    assert [item["asset"] for item in stated["layout"]] == ["0", "1"]
    assert plan.after.count("error") == 0 and not plan.refused
    assert plan_fix(plan.store, "geozarr-1.0").changes == {}


def test_a_list_without_a_method_is_left() -> None:
    store = cases.listed()
    Documents(store).attributes("", lambda a: a["multiscales"][0].pop("type"))
    plan = plan_fix(store, "geozarr-draft")
    assert ("GZ-37", "") in {(done.rule, done.path) for done in plan.refused}
    plan = plan_fix(store, "geozarr-draft", method="average")
    assert plan.after.count("error") == 0


def test_a_backup_lies_beside_the_store_and_comes_back(tmp_path) -> None:
    place = tmp_path / "a.zarr"
    for key, value in contents(right(3)).items():
        path = place / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    Documents(LocalStore.from_path(str(place))).matrix("0", scaleDenominator=35.28)
    before = contents(LocalStore.from_path(str(place)))
    _, backup = fix(str(place))
    assert backup is not None and backup.parent == tmp_path and backup.name.startswith("a.zarr.backup-")
    assert json.loads((backup / "manifest.json").read_text())["before"] == ["zarr.json"]
    assert validate(str(place)).count("error") == 0
    assert fix(str(place))[1] is None
    restore_backup(LocalStore.from_path(str(place)), backup)
    assert contents(LocalStore.from_path(str(place))) == before


def test_an_interrupted_fix_goes_on_with_its_backup_and_says_how_to_undo_it(tmp_path) -> None:
    place = tmp_path / "a.zarr"
    store = LocalStore(place)
    for key, value in contents(right(3)).items():
        store.put(key, value)
    for level in ("0", "1"):
        Documents(store).matrix(level, scaleDenominator=35.28)
        Documents(store).set(level, spatial__shape=[1, 1])
    before = contents(store)
    plan = plan_fix(store)
    assert len(plan.changes) > 1
    failing = FailingStore(store, "")
    failing.left, failing.times = 2, 1 << 30
    with pytest.raises(StoreError, match="the store is gone"):
        write_plan(plan, failing, backup_place(store))
    [backup] = tmp_path.glob("a.zarr.backup-*")
    [work] = find_unfinished(store, "")
    assert work.undo == shlex.join(["zstore", "fix", store.url, "--restore", str(backup)])
    assert work.undo in str(work) and contents(store) != before
    [found] = [found for found in validate(store).findings if found.rule == "ZS-09"]
    assert work.undo in str(found.expected)
    said = CliRunner().invoke(command_line, ["info", str(place)]).output
    assert f"put back what was there with: {work.undo}" in said
    again = fix(str(place))[1]
    assert again == backup and not find_unfinished(store, "")
    restore_backup(store, backup)
    assert contents(store) == before
    # A record names a backup; only one that such a fix would have made is written to.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "manifest.json").write_text("{}")
    begin(store, "", "fix", {"backup": str(elsewhere)}, name="0" * 16)
    assert backup_place(store).parent == tmp_path and backup_place(store) != elsewhere


def test_without_a_place_for_the_backup_nothing_is_written(tmp_path) -> None:
    store = right(3)
    Documents(store).matrix("0", scaleDenominator=35.28)
    before = contents(store)
    with pytest.raises(StoreError, match="backup"):
        fix(store)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("somebody's")
    with pytest.raises(StoreError, match="backup cannot be made: something else is there"):
        fix(store, backup=tmp_path / "there")
    assert contents(store) == before
    with pytest.raises(NotFoundError, match="manifest"):
        restore_backup(store, tmp_path / "there")


# Of each kind one: documents of several levels, values of a coordinate, both; a consolidated hierarchy of v2.
# The number is the case's among those of its rule.
FAILING = {"ZC-07": 1, "GZ-29": 0, "MS-11": 0, "GZ-10": 1}


@pytest.mark.parametrize("rule", FAILING)
@pytest.mark.parametrize("times", [1, 1 << 30], ids=["once", "from then on"])
def test_fixing_that_fails_is_old_or_new_and_done_by_the_same_call(
    rule, times, tmp_path, monkeypatch
) -> None:
    case = [case for case in CASES if case.rule == rule][FAILING[rule]]
    spoilt = case.make()
    case.spoil(Documents(spoilt))
    if rule == "GZ-10":
        zstore.consolidate(spoilt)
    before = contents(spoilt)
    plan = plan_fix(spoilt, case.profile)
    after = {**before, **plan.changes}
    for number in range(100):
        # Changes of the store and of the backup, in the order in which they come.
        store, backup = copy_of(before), tmp_path / str(number)
        failing = FailingStore(store, "")
        failing.left, failing.times = number, times
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "put", counted(failing, LocalStore.put))
            try:
                fix(failing, case.profile, backup=backup)
            except StoreError:
                now = contents(store)
                assert all(now.get(key) in (before.get(key), after[key]) for key in after)
                failing.left = 1 << 30
                works = find_unfinished(store, "")
                undo = shlex.join(["zstore", "fix", store.url, "--restore", str(backup)])
                assert [work.undo for work in works] == ([] if now in (before, after) else [undo])
                if (backup / "manifest.json").exists():
                    # Half fixed, and taken back.
                    taken = copy_of(now)
                    restore_backup(taken, backup)
                    assert contents(taken) == before
                else:
                    assert now == before
                fix(failing, case.profile, backup=backup)
        assert contents(store) == after
        if 0 < failing.left < (1 << 29):
            break
        failing.left = number % 3
        with suppress(StoreError):
            restore_backup(failing, backup)
        failing.left = 1 << 30
        restore_backup(failing, backup)
        assert contents(store) == before
    else:
        pytest.fail("the call never came to an end")


def _second_grid(documents: Documents) -> None:
    attributes = {"grid_mapping": "spatial_ref"}
    for name, length in {"lat": 64, "lon": 48}.items():
        full = zstore.open_array(documents.store, "y" if name == "lat" else "x", mode="r")
        cases.array(documents.store, name, full[:length], (name,), attributes=dict(full.attrs))
    cases.array(documents.store, "small", np.ones((64, 48), "u2"), ("lat", "lon"), attributes=attributes)


def _without_methods(documents: Documents) -> None:
    documents.multiscales(
        lambda m: [one.pop("resampling_method", None) for one in (m, *m.get("layout", ()))],
    )


SCALED = cases.attribute("2/b02", scale_factor=0.5)
REFUSED = {
    "coordinates of another length": (
        cases.flat,
        [cases.rewrite("x", lambda old: old[:95]), cases.attribute("", spatial__shape=None)],
        ("MS-11", "x", "coordinates are 95 long, the dimension 96; expected spatial:shape to say which is"),
    ),
    "uneven steps": (
        cases.flat,
        [cases.rewrite("x", lambda old: old + np.linspace(0, 5, len(old)) ** 2)],
        ("GZ-29", "x", "coordinates are in order, and not regularly spaced"),
    ),
    "centres of half degrees, in integers": (
        cases.geographic,
        [cases.rewrite("x", lambda old: np.arange(len(old), dtype="i2"), fill_value=0)],
        ("GZ-29", "x", "centres are no numbers that int16 holds"),
    ),
    "one transform of two grids": (
        cases.flat,
        [_second_grid, cases.attribute("", spatial__transform=[1, 0, 0, 0, -1, 0])],
        ("MS-28", "", "its grids have several shapes: one transform cannot be all theirs"),
    ),
    "no method": (
        lambda: right(3), [_without_methods],
        ("GZ-37", "", "nothing says how the levels were made; expected --method"),
    ),
    "scales of one level against another": (
        cases.three,
        [cases.attribute("1/b02", scale_factor=0.25), SCALED],
        ("GZ-22", "2/b02", "scale_factor is 0.0001, 0.25, 0.5 at different levels"),
    ),
    "cells of another level": (
        cases.three,
        [SCALED, cases.rewrite("2/b02", lambda old: np.roll(old, 1, 0))],
        ("GZ-22", "2/b02", "scale_factor differs, and the cells are not those that the finer level comes to"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_nothing_confirms_is_left_and_says_why(name) -> None:
    make, spoils, (rule, path, message) = REFUSED[name]
    store = make()
    for spoil in spoils:
        spoil(Documents(store))
    before = contents(store)
    plan = plan_fix(store)
    said = [done.message for done in plan.refused if (done.rule, done.path) == (rule, path)]
    assert said and said[0].startswith(message)
    assert {key for key in plan.changes if key == f"{path}/zarr.json" or "/c/" in key} == set()
    assert contents(store) == before


@pytest.mark.parametrize("shape", [True, 7, "128", [[1]], {"a": 1}])
def test_a_shape_that_is_none_is_no_witness(shape) -> None:
    store = right(3)
    Documents(store).set("", spatial__shape=shape)
    plan = plan_fix(store)
    assert plan.after.count("error") <= plan.before.count("error")


def counted(store, put):
    """What puts into another store, as a change of `store` that may fail."""

    def call(self, key, value):
        store._count(key)
        put(self, key, value)

    return call


def copy_of(stored: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, value in stored.items():
        store.put(key, value)
    return store


def test_a_backup_of_something_else_is_left_alone(tmp_path) -> None:
    store = right(3)
    Documents(store).matrix("0", scaleDenominator=35.28)
    _, backup = fix(store, backup=tmp_path / "backup")
    Documents(store).set("1", title="changed since")
    Documents(store).matrix("0", scaleDenominator=1.0)
    kept = {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="something else is there"):
        fix(store, backup=backup)
    assert {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()} == kept


@pytest.mark.parametrize("is_removed", [False, True])
def test_what_changed_meanwhile_is_not_overwritten(tmp_path, is_removed) -> None:
    store = right(3)
    Documents(store).matrix("0", scaleDenominator=35.28)
    plan = plan_fix(store)
    [key] = plan.changes
    Documents(store).set("", title="somebody else's")
    if is_removed:
        store.delete(key)
    before = contents(store)
    with pytest.raises(StoreError, match="changed since"):
        write_plan(plan, store, tmp_path / "backup")
    assert contents(store) == before
    assert "somebody else" not in "\n".join(plan.diff())
    assert not (tmp_path / "backup").exists()


def test_wrong_words_are_refused() -> None:
    with pytest.raises(MetadataError, match="method"):
        plan_fix(right(3), method="mean")
    with pytest.raises(MetadataError, match="profile"):
        plan_fix(right(3), "geozarr")
