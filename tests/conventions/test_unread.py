"""Parts of standards that zstore does not read: each is named by a note, and takes no array for a raster."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command
from zstore.errors import MetadataError, ReadingWarning
from zstore.geo.conventions.read import read_geo, read_roles
from zstore.storage.memory import MemoryStore

pytest.importorskip("pyproj", reason="CRSs are parsed with pyproj (extra 'geo')")

TIME = {"standard_name": "time", "units": "days since 2000-01-01", "calendar": "standard", "axis": "T"}
DGGS = {
    "zarr_conventions": [{"uuid": "7b255807-140c-42ca-97f6-7a1cfecdbc38", "name": "dggs"}],
    "dggs": {
        "name": "healpix", "refinement_level": 1, "indexing_scheme": "nested", "spatial_dimension": "cell",
    },
}  # fmt: skip
NZUG = {
    "conventions": "NZUG-1.0 CF-1.12",
    "zarr_conventions": [{"uuid": "d0a980b5-c644-4dcc-85a1-283799a58f40", "name": "NZUG-1.0"}],
}
HEALPIX = {
    "grid_mapping_name": "healpix",
    "refinement_level": 1,
    "indexing_scheme": "nested",
    "earth_radius": 6.371e6,
}
INDEX = {"standard_name": "healpix_index"}


def cube(target, attributes, **data):
    """A group with cells along "cell"; `data` are the attributes of the array t2m."""
    group = zstore.create_group(target, attributes=attributes)
    group.create_array("cell", data=np.arange(48), dimension_names=("cell",), attributes=INDEX)
    group.create_array("time", data=np.arange(3), dimension_names=("time",), attributes=TIME)
    said = {"units": "K", **data}
    group.create_array("t2m", data=np.ones((3, 48)), dimension_names=("time", "cell"), attributes=said)
    return group


@pytest.mark.parametrize("said", ["cf", "dggs"])
def test_cells_of_a_discrete_global_grid_are_no_raster(tmp_path, said):
    if said == "cf":
        group = cube(tmp_path / "a.zarr", {"Conventions": "CF-1.13"}, grid_mapping="crs")
        group.create_array("crs", data=np.int32(0), dimension_names=(), attributes=HEALPIX)
    else:
        group = cube(tmp_path / "a.zarr", DGGS)
    for node in (group, group["t2m"]):
        with pytest.raises(MetadataError, match="cells of the discrete global grid 'healpix' of level 1"):
            read_geo(node)
    with pytest.raises(MetadataError, match="discrete global grid"):
        zstore.build_pyramid(group, tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()
    verdict = zstore.validate(group)
    assert verdict.count("error") == 0
    assert [f.severity for f in verdict.findings if f.rule == "ZS-11"] == ["note"]
    shown = CliRunner().invoke(command, ["info", str(tmp_path / "a.zarr")])
    assert shown.exit_code == 0
    assert "discrete global grid" in shown.output


def grid(**attributes):
    group = zstore.create_group(MemoryStore(), attributes=attributes.pop("group", {}))
    for name in ("y", "x"):
        said = {"standard_name": f"projection_{name}_coordinate", "units": "m", "axis": name.upper()}
        group.create_array(name, data=np.arange(4.0), dimension_names=(name,), attributes=said)
    group.create_array("v", data=np.ones((4, 4)), dimension_names=("y", "x"), attributes=attributes)
    return group


@pytest.mark.parametrize(
    ("group", "attributes", "part"),
    [
        ({}, {"cell_methods": "time: mean time: anomaly_wrt norm"}, "anomalies of CF 1.13"),
        (NZUG, {}, "NZUG"),
        ({"zarr_conventions": [{"uuid": "7", "name": "acme"}]}, {}, "the convention 'acme'"),
        ({"zarr_conventions": [{"uuid": "7"}, 8, {}]}, {}, "the convention '7'"),
        ({"dggs": 5}, {}, "dggs"),
    ],
)
def test_what_is_not_read_is_named_and_the_rest_is_read(group, attributes, part):
    root = grid(group=group, **attributes)
    geo, findings = read_geo(root)
    assert geo.shape == (4, 4)
    told = [finding.message for finding in findings if finding.rule == "ZS-11"]
    assert told[0].startswith("not looked at: ")
    assert part in told[0]
    verdict = zstore.validate(root)
    assert [finding.message for finding in verdict.findings if finding.rule == "ZS-11"] == told
    assert not any(finding.rule == "GZ-23" for finding in verdict.findings)


def test_an_aggregation_variable_is_named_and_is_no_time():
    group = grid()
    said = {"aggregated_dimensions": "time y x", "aggregated_data": "location: l address: a shape: s"}
    group.create_array("t", data=np.float32(0), dimension_names=(), attributes=said)
    geo, findings = read_geo(group)
    assert geo.time is None
    [told] = [finding for finding in findings if finding.rule == "ZS-11"]
    assert (told.path, told.severity) == ("t", "note")
    assert zstore.validate(group).count("error") == 0


def test_stores_without_such_parts_have_no_note():
    verdict = zstore.validate(grid(group={"Conventions": "CF-1.10"}))
    assert not any(finding.rule == "ZS-11" for finding in verdict.findings)


def test_arrays_have_roles_and_what_cannot_be_read_has_none() -> None:
    group = zstore.create_group(MemoryStore())
    for name, data, dims, said in [
        ("t", np.zeros((3, 4)), ("y", "x"), {"grid_mapping": "crs", "coordinates": "lat station"}),
        ("x", np.arange(4), ("x",), {}),
        ("lat", np.zeros((3, 4)), ("y", "x"), {"units": "degrees_north"}),
        ("crs", np.array(0), (), {"grid_mapping_name": "latitude_longitude"}),
        ("station", np.array(["a", "b", "c"]), ("y",), {}),
        ("bad", np.zeros(3), ("y",), {}),
    ]:
        group.create_array(name, data=data, dimension_names=dims, attributes=said)
    group.create_group("below").create_array("other", data=np.zeros(3))
    group.store.put("bad/zarr.json", b'{"zarr_format": 3, "node_type": "array"}')
    with pytest.warns(ReadingWarning, match="'bad' is left out: member 'shape' is missing"):
        roles = read_roles(group)
    assert ([*roles.coordinates], [*roles.mappings], [*roles.data]) == (["x"], ["crs"], ["t"])
    assert [*roles.auxiliary] == ["lat", "station"] and roles.dims == {"y", "x"}
    assert roles.data["t"].shape == (3, 4)
