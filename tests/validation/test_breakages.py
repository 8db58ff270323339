"""Breakages: mended so that every pixel is where it was, or left and named."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.read import read_geo
from zstore.geo.validation.fixing.fix import FixPlan, plan_fix
from zstore.geo.validation.run import all_rules, validate
from zstore.geo.validation.view import ArrayView, GroupView, load_hierarchy
from zstore.storage.memory import MemoryStore

from .breakages import BREAKAGES, Breakage, pyramid, reverse, rioxarray_v2, rioxarray_v3, shift
from .cases import attribute, flat
from .stores import Documents, check_meaning

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
LEVELS = ("0", "1", "2")


def place_of(node: Any) -> Any:
    """What a node's cells are on the ground, and worth: CRS, affine, shape and values."""
    try:
        geo = read_geo(node)[0]
    except MetadataError:
        return (None,) * 4
    values = {name: (v.nodata, v.scale_factor, v.add_offset) for name, v in geo.variables.items()}
    code = None if geo.crs is None else geo.crs.code
    return tuple(repr(part) for part in (code, geo.affine, geo.shape, values))


def ground(store: Any) -> dict[str, Any]:
    """Where all cells are, by group, and the order and places of the levels."""
    root = zstore.open_group(store, mode="r")
    try:
        found = {name: place_of(node) for name, node in root.members() if name in LEVELS}
    except (MetadataError, UnsupportedError):
        # A document that cannot be read.
        return {}
    found[""] = place_of(root)
    try:
        levels = read_geo(root)[0].levels
        held = {level.path: (level.affine, level.factors) for level in levels}
        found["levels"] = (tuple(held), *(held.get(path) for path in LEVELS))
    except MetadataError:
        found["levels"] = (None,) * (1 + len(LEVELS))
    return found


def coordinates(store: Any) -> dict[str, np.ndarray]:
    paths = [f"{level}/{name}" for level in LEVELS for name in "yx"] + ["y", "x"]
    keys = {key.rpartition("/")[0] for key in store.list() if key.endswith((".zarray", "zarr.json"))}
    return {path: zstore.open_array(store, path, mode="r")[...] for path in paths if path in keys}


@cache
def right_one(make: Callable[[], MemoryStore]) -> tuple[dict[str, bytes], dict[str, Any], dict[str, Any]]:
    """What such a store holds before it is broken: values by key, where its cells are, its coordinates."""
    store = make()
    return {key: bytes(store.get(key)) for key in store.list()}, ground(store), coordinates(store)


def copy_of(stored: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, value in stored.items():
        store.put(key, value)
    return store


def is_of_data(key: str) -> bool:
    """Whether a key is of a chunk of data."""
    return "b02/c/" in key or "b02/0." in key or "b02/1." in key


def errors(plan: FixPlan, when: str) -> set[tuple[str, str]]:
    verdict = plan.before if when == "before" else plan.after
    return {(found.rule, found.path) for found in verdict.findings if found.severity == "error"}


def check_left(plan: FixPlan, broken: dict[str, Any], truth: dict[str, Any]) -> None:
    """Whatever is left is named, nothing is worse, and nothing that was right is moved."""
    assert errors(plan, "after") <= {(done.rule, done.path) for done in plan.refused}
    nodes = load_hierarchy(getattr(plan.store, "base", plan.store)).nodes
    read = {node.path for node in nodes if isinstance(node, ArrayView | GroupView)}
    # What could not be read before may show what is wrong in it.
    assert {found for found in errors(plan, "after") - errors(plan, "before") if found[1] in read} == set()
    assert not [key for key in plan.changes if is_of_data(key)]
    found = ground(plan.store)
    for path in set(broken) & set(found) & set(truth):
        for is_now, was_right, was_broken in zip(found[path], truth[path], broken[path], strict=True):
            # What is right stays, and what is wrong becomes right or stays, each by itself.
            assert is_now in (was_right, was_broken), path
            assert was_broken != was_right or is_now == was_right, path


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda b: b.name)
def test_a_breakage_is_mended_or_named(breakage: Breakage) -> None:
    stored, truth, where = right_one(breakage.make)
    store = copy_of(stored)
    breakage.spoil(Documents(store))
    broken, options = ground(store), dict(breakage.options)
    plan = plan_fix(store, **options)
    check_left(plan, broken, truth)
    check_meaning(plan, options.get("crs"))
    # What is mended has a finding, and its rule says that it is mended.
    mended = {id for id, rule in all_rules().items() if rule.is_mended}
    assert {done.rule for done in plan.fixed} <= mended and (options or plan.before.by_rule())
    again = plan_fix(plan.store, **options)
    assert again.changes == {}
    if breakage.rule is not None:
        assert (breakage.rule, breakage.path) in {(done.rule, done.path) for done in plan.refused}
        return
    verdict = validate(plan.store, deep=True)
    assert [found for found in verdict.findings if found.severity != "note"] == [], plan.refused
    assert ground(plan.store) == truth
    for path, values in coordinates(plan.store).items():
        np.testing.assert_allclose(values, where[path], rtol=1e-6)


@pytest.mark.parametrize("attributes", [{"units": "km"}, {"scale_factor": 0.5, "add_offset": 7.0}], ids=str)
def test_new_coordinates_are_not_meant_as_the_old_ones_were(attributes: dict[str, Any]) -> None:
    by_name = {breakage.name: breakage for breakage in BREAKAGES}
    one = by_name["a coordinate that is too long"]
    stored, truth, where = right_one(one.make)
    store = copy_of(stored)
    for breakage in (one, by_name["multiscales that is gone"]):
        breakage.spoil(Documents(store))
    zstore.open_array(store, "1/x", mode="r+").attrs.update(attributes)
    plan = plan_fix(store)
    assert ground(plan.store)["1"][:3] == truth["1"][:3]
    np.testing.assert_array_equal(coordinates(plan.store)["1/x"], where["1/x"])


def test_most_breakages_are_mended() -> None:
    mended = [breakage for breakage in BREAKAGES if breakage.rule is None]
    assert len(BREAKAGES) >= 35 and len(mended) >= 30


# Where one transform and two coordinates are all that says the place, three mistakes may leave nothing right.
BARE = (rioxarray_v2, rioxarray_v3, flat)
MAKERS = sorted({b.make for b in BREAKAGES}, key=lambda make: make.__name__)
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def check_several(data: st.DataObject) -> None:
    make = data.draw(st.sampled_from(MAKERS))
    chosen = [breakage for breakage in BREAKAGES if breakage.make is make]
    stored, truth, _ = right_one(make)
    store, most = copy_of(stored), 2 if make in BARE else 3
    for breakage in data.draw(st.lists(st.sampled_from(chosen), min_size=1, max_size=most, unique=True)):
        try:
            breakage.spoil(Documents(store))
        except (AttributeError, KeyError, TypeError, IndexError, ValueError, LookupError):
            # What it is to break is broken already.
            continue
    broken = ground(store)
    plan = plan_fix(store)
    check_left(plan, broken, truth)
    if not plan.after.count("error") and not plan.refused and ground(plan.store) != truth:
        # What two mistakes have left agrees with itself: it stays, for nobody can tell that it is wrong.
        assert make in BARE and ground(plan.store) == broken
        assert not {"GZ-29", "MS-28", "OC-08"} & {finding.rule for finding in plan.before.findings}
    assert plan_fix(plan.store).changes == {}


@settings(max_examples=20, suppress_health_check=QUIET)
@given(st.data())
def test_fixing_several_breakages_moves_no_pixel(data: st.DataObject) -> None:
    check_several(data)


@pytest.mark.parametrize(
    ("transform", "spoil"),
    [
        # In the other order of the six numbers, it is the witness that rows are turned.
        ("10 0 300000 0 -10 5000040", reverse("y")),
        # Left behind by another grid, as its rows show, it says alone where the columns are.
        ("400000.0 10.0 0.0 6000040.0 0.0 -10.0", lambda documents: documents.remove("x")),
    ],
)
def test_a_witness_that_is_wrong_elsewhere_settles_nothing(transform: str, spoil: Any) -> None:
    store = rioxarray_v2()
    attribute("spatial_ref", GeoTransform=transform)(Documents(store))
    spoil(Documents(store))
    broken = ground(store)
    plan = plan_fix(store)
    assert "MS-28" in {done.rule for done in plan.refused if done.path == "b02"}
    assert ground(plan.store)[""] == broken[""]


def test_transforms_stay_where_it_cannot_be_told_whether_they_are_right() -> None:
    store = pyramid()
    documents = Documents(store)
    for path in ("0/y", "1/y", "2/y"):
        reverse(path)(documents)
    shift("1/x", -0.5)(documents)
    plan = plan_fix(store)
    assert "MS-28" in {done.rule for done in plan.refused if done.path == "1/b02"}
    assert plan.changes == {}, "the transforms of level 1 are half of what is left of the truth"


def test_no_array_is_written_over_chunks_that_no_node_describes() -> None:
    store = pyramid()
    store.delete("0/x/zarr.json")
    plan = plan_fix(store)
    assert ("MS-11", "0/x") in {(done.rule, done.path) for done in plan.refused}
    assert not [key for key in plan.changes if key.startswith("0/x/")]


@pytest.mark.slow
@settings(max_examples=2000, suppress_health_check=QUIET)
@given(st.data())
def test_fixing_several_breakages_moves_no_pixel_however_long_one_looks(data: st.DataObject) -> None:
    check_several(data)
