"""OME-Zarr's objects: what its specification has for valid and invalid, in each version."""

from __future__ import annotations

import copy
import json
import os
import subprocess

import pytest

import zstore
from zstore.geo.validation.rules.ome import check_ome
from zstore.geo.validation.run import validate
from zstore.geo.validation.view import GroupView, Hierarchy
from zstore.storage.memory import MemoryStore

AXES = [{"name": "c", "type": "channel"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
STEPS = [{"type": "scale", "scale": [1, 2, 2]}, {"type": "translation", "translation": [0, 1, 1]}]
OLD_IMAGE = {
    "name": "cells",
    "type": "gaussian",
    "metadata": {},
    "axes": AXES,
    "datasets": [{"path": "0", "coordinateTransformations": STEPS}],
}
WAY = {"type": "sequence", "input": {"path": "0"}, "output": {"name": "own"}, "transformations": STEPS}
ONTO = {"type": "identity", "input": {"name": "own"}, "output": {"name": "other"}}


def scaled(by, inner, outer):
    """An item of `byDimension`: some axes by these numbers."""
    return {"transformation": {"type": "scale", "scale": by}, "inputAxes": inner, "outputAxes": outer}


FIRST = scaled([3], [0], [0])
IMAGE = {
    "name": "cells",
    "type": "gaussian",
    "metadata": {},
    "coordinateSystems": [{"name": "own", "axes": AXES}, {"name": "other", "axes": AXES}],
    "datasets": [{"path": "0", "coordinateTransformations": [WAY]}],
    "coordinateTransformations": [ONTO],
}
INDEXED = IMAGE | {
    "coordinateSystems": [
        {"name": "own", "axes": [{"name": name, "type": "array"} for name in "kji"]},
        {"name": "other", "axes": AXES},
    ],
    "coordinateTransformations": [
        {**ONTO, "type": "byDimension", "transformations": [scaled([1, 2], [2, 1], [1, 2]), FIRST]}
    ],
}
LABEL = {
    "colors": [{"label-value": 1, "rgba": [0, 1, 2, 255]}, {"label-value": 2}],
    "properties": [{"label-value": 1, "class": "nucleus"}],
    "source": {"image": "../.."},
}
PLATE = {
    "name": "plate",
    "rows": [{"name": "A"}, {"name": "B"}],
    "columns": [{"name": "1"}],
    "wells": [{"path": "B/1", "rowIndex": 1, "columnIndex": 0}],
    "acquisitions": [{"id": 0, "name": "one", "maximumfieldcount": 4, "starttime": 1}],
    "field_count": 4,
}
WELL = {"images": [{"path": "0", "acquisition": 0}, {"path": "1"}]}
LINK = {
    "type": "affine",
    "affine": [[1, 0, 3], [0, 1, 4]],
    "input": {"name": "a", "path": "0"},
    "output": {"name": "b"},
}
SCENE = {"coordinateSystems": [{"name": "b", "axes": AXES}], "coordinateTransformations": [LINK]}
OBJECTS = {
    "multiscales": ([OLD_IMAGE], [IMAGE]),
    "image-label": (LABEL, LABEL),
    "plate": (PLATE, PLATE),
    "well": (WELL, WELL),
    "series": (["0", "1"], ["0", "1"]),
    "scene": (None, SCENE),
    "bioformats2raw.layout": (3, 3),
}
VERSIONS = ("0.4", "0.5", "0.6rc0")


def findings(attributes, version="0.6rc0"):
    store = MemoryStore()
    zstore.create_group(store, zarr_format=2 if version == "0.4" else 3, attributes=attributes)
    verdict = validate(store, "ome-0.6" if version.startswith("0.6") else "ome")
    return [finding for finding in verdict.findings if finding.rule == "OME"]


def attributes_of(name, value, version):
    return {name: value} if version == "0.4" else {"ome": {"version": version, name: value}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OBJECTS)
def test_valid_objects_are_accepted_and_each_is_told_without_its_parts(name, version):
    value = OBJECTS[name][version.startswith("0.6")]
    if value is None or (name == "series" and version == "0.4"):
        return
    found = findings(attributes_of(name, value, version), version)
    assert [f.message for f in found if f.severity != "note"] == []
    wrong = findings(attributes_of(name, {"of": "another kind"}, version), version)
    assert "error" in [finding.severity for finding in wrong] or name == "image-label"


def test_datasets_may_lead_to_indices_and_these_to_places_axis_by_axis():
    found = findings({"ome": {"version": "0.6rc0", "multiscales": [INDEXED]}})
    assert [f.message for f in found if f.severity != "note"] == []


# By the path of a value in an object, values in its place that are wrong. None: it is missing.
WRONG = {
    ("multiscales", 0, "coordinateSystems"): [
        None, [], [{"name": "own"}], [{"name": "own", "axes": AXES}] * 2,
    ],
    ("multiscales", 0, "coordinateSystems", 0, "name"): [None, "", "other", {}],
    ("multiscales", 0, "coordinateSystems", 0, "axes"): [
        [], AXES[:1], [*AXES, *AXES], [AXES[0], {"name": "y"}, {"name": "x"}], [{"type": "space"}] * 2,
    ],
    ("multiscales", 0, "datasets"): [None, [], "0", 5],
    ("multiscales", 0, "datasets", 0, "path"): [None, 7],
    ("multiscales", 0, "datasets", 0, "coordinateTransformations"): [
        None, [], [WAY, WAY], [STEPS[0]], [{**WAY, "output": {"name": "nobody"}}], [{**WAY, "input": "0"}],
        [{**WAY, "transformations": STEPS[:1] * 2}],
        [{**ONTO, "type": "affine", "affine": [[1, 0, 0], [0, 1]]}],
        [{"type": "scale", "scale": [0, 1, 1], "input": {"path": "0"}, "output": {"name": "own"}}],
    ],
    ("multiscales", 0, "coordinateTransformations"): [
        [], [{**ONTO, "type": "warp"}], [{"type": "identity"}], [{**ONTO, "type": "scale", "path": "scales"}],
        [{**ONTO, "type": "rotation", "rotation": [[1, 0], [0]]}],
        [{**ONTO, "type": "mapAxis", "mapAxis": [0, 0]}],
        [{**ONTO, "type": "projectAxis"}], [{**ONTO, "type": "projectAxis", "droppedInputs": [5]}],
        [{**ONTO, "type": "bijection", "forward": {"type": "identity"}}],
        [{**ONTO, "type": "byDimension", "transformations": [{"transformation": {"type": "identity"}}]}],
        *[
            [{**ONTO, "type": "byDimension", "transformations": [scaled([1, 2], inner, outer), FIRST]}]
            for inner, outer in [([1, 2], [1, 3]), ([1, 2], [0, 1]), ([1], [1, 2]), ([1, 2], ["y", "x"])]
        ],
        [{**ONTO, "type": "displacements", "path": "field", "interpolation": "quintic"}],
    ],
    ("image-label", "colors"): [[], [{"rgba": [0, 0, 0, 0]}], [{"label-value": 1}] * 2],
    ("image-label", "colors", 0, "rgba"): [[0, 0, 0], [0, 0, 0, 256], [0, 0, 0, 0.5], "red"],
    ("image-label", "properties"): [[], [{"class": "nucleus"}]],
    ("plate", "rows"): [None, [], [{"name": "A"}] * 2, [{"name": "A-1"}], [{}]],
    ("plate", "wells"): [
        None, [], [{"path": "B/1", "rowIndex": 1}], [{"path": "B", "rowIndex": 1, "columnIndex": 0}],
    ],
    ("plate", "wells", 0, "rowIndex"): [-1, 0.5, "1"],
    ("plate", "acquisitions", 0): [
        {"name": "one"}, {"id": -1}, {"id": 0, "maximumfieldcount": 0}, {"id": 0, "endtime": 0.5},
    ],
    ("plate", "field_count"): [0, "four"],
    ("well", "images"): [None, [], [{"path": "0"}] * 2, [{"acquisition": 0}]],
    ("well", "images", 0, "path"): ["", "..", "__0", "a/b"],
    ("well", "images", 0, "acquisition"): ["0"],
    ("scene", "coordinateTransformations"): [
        None, [], [{**LINK, "input": "a"}], [{**LINK, "affine": 1}], [{**LINK, "type": "nobodys"}],
    ],
    ("series",): ["0"],
    ("bioformats2raw.layout",): [2],
}  # fmt: skip


@pytest.mark.parametrize("path", WRONG, ids=lambda path: ".".join(map(str, path)))
def test_what_is_wrong_in_an_object_is_an_error(path):
    for value in WRONG[path]:
        changed = copy.deepcopy({name: pair[1] for name, pair in OBJECTS.items()})
        *above, last = path
        place = changed
        for step in above:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
        name = path[0]
        found = findings({"ome": {"version": "0.6rc0", name: changed[name]}})
        assert "error" in [finding.severity for finding in found], value


def parts(value, path=()):
    """The paths of all values in a document."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in steps:
        yield (*path, step)
        yield from parts(part, (*path, step))


@pytest.mark.parametrize("hostile", [5, "x", [], {}, [None], [[]], {"type": []}, 1e400], ids=repr)
def test_no_value_keeps_the_rule_from_its_end(hostile):
    whole = {name: pair[1] for name, pair in OBJECTS.items()}
    places = [*parts(whole)]
    assert len(places) > 90
    for *above, last in places:
        changed = copy.deepcopy(whole)
        place = changed
        for step in above:
            place = place[step]
        place[last] = hostile
        group = GroupView(MemoryStore(), "", "", 3, {}, {"ome": {"version": "0.6rc0", **changed}}, [])
        list(check_ome(Hierarchy(group.store, group, [group])))


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_images_of_former_versions_are_judged_by_their_own(version):
    """Up to 0.2 the axes are t, c, z, y, x, and are not listed; until 0.4 there are no transformations."""
    image = {"version": version, "name": "cells", "datasets": [{"path": "0"}, {"path": "1"}]}
    image |= {"axes": ["c", "y", "x"]} if version == "0.3" else {}
    assert findings({"multiscales": [image]}, "0.4") == []
    wrong = {"datasets": [{}]}, *({"axes": axes} for axes in (None, [], ["y", "c"], AXES) if "axes" in image)
    for change in wrong:
        assert "error" in {one.severity for one in findings({"multiscales": [image | change]}, "0.4")}
    group = zstore.create_group(MemoryStore(), zarr_format=2, attributes={"multiscales": [image]})
    for path, side in (("0", 8), ("1", 4)):
        shape = (1,) * (1 if "axes" in image else 3) + (side, side)
        group.create_array(path, shape=shape, dtype="u2", chunks=shape)
    verdict = validate(group, "ome")
    assert verdict.count("error") == 0, verdict.as_text()
    assert version == "0.1" or validate(group, "auto").profile == "ome"


def test_a_profile_says_that_there_is_nothing_to_look_at():
    for attributes in ({}, {"ome": {"version": "0.6rc0"}}, {"ome": 6}, {"ome": {"series": ["0"]}}):
        assert "error" in [finding.severity for finding in findings(attributes)]
    with_wells = {**PLATE, "wells": [{"path": "1/B", "rowIndex": 1, "columnIndex": 0}]}
    assert [f.severity for f in findings(attributes_of("plate", with_wells, "0.5"), "0.5")] == ["warning"]


# Of the suites: two numbers for three axes, which JSON schemas take, and the text does not; a store of 0.3,
# which is read as one; and what is a warning, as the suites of 0.4 and 0.6 have it in valid plates.
EXEMPT = {"mismatch_axes_units", "invalid_version", "well_path_has_column_before_row"}


def suites(place):
    """(version, kind, name, attributes, whether they are valid) of the tests in a clone of ome/ngff-spec."""

    def git(*words):
        return subprocess.run(["git", "-C", place, *words], capture_output=True, text=True, check=True).stdout

    for version in ("0.4", "0.5"):
        for path in git("ls-tree", "-r", "--name-only", version, "tests").split():
            if path.endswith("_suite.json"):
                for one in json.loads(git("show", f"{version}:{path}"))["tests"]:
                    yield version, path, one.get("formerly") or one["description"], one["data"], one["valid"]
    for version in ("0.1", "0.3"):
        for path in git("ls-tree", "-r", "--name-only", version, "examples").split():
            folder, _, name = path.rpartition("/")
            if folder.endswith("valid") and name.endswith(".json"):
                said = json.loads(git("show", f"{version}:{path}"))
                yield version, path, name, said, folder.endswith("/valid")
    for path in git("ls-tree", "-r", "--name-only", "HEAD", "tests/attributes").splitlines():
        said = json.loads(git("show", f"HEAD:{path}"))
        is_valid = said.pop("_conformance", {}).get("valid", True)
        yield "0.6rc0", path, path.rpartition("/")[2], said, is_valid


def test_the_specifications_own_suites():
    place = os.environ.get("ZSTORE_NGFF_SPEC")
    if place is None:
        pytest.skip("ZSTORE_NGFF_SPEC names no clone of ome/ngff-spec")
    wrong, count = [], 0
    for version, path, name, attributes, is_valid in suites(place):
        found = findings(attributes, version if version > "0.4" else "0.4")
        # What is strict is advised: any finding tells it.
        least = ("error", "warning", "note") if "strict" in path and not is_valid else ("error",)
        is_found = any(finding.severity in least for finding in found)
        if is_found == is_valid and not any(exempt in name for exempt in EXEMPT):
            wrong.append((version, path, name, [finding.message for finding in found]))
        count += 1
    assert wrong == []
    assert count > 300
