"""Hierarchies as they are out there: broken pieces give a finding, and the next piece is taken."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from zstore.errors import MetadataError
from zstore.geo.conventions import cf, geozarr
from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo

from .nodes import FakeArray, FakeGroup

pytest.importorskip("pyproj", reason="CRSs are parsed with pyproj (extra 'geo')")

UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
UTM_TEXT = "300000.0 10.0 0.0 5000040.0 0.0 -10.0"


def dataset(affine=UTM, shape=(8, 6), attrs=None, mapping=None, shift=0.0, zarr_format=3, path="", **array):
    """A group with one array `v`, its coordinates moved by `shift` cells, and a CRS variable if asked for."""
    y, x = affine._replace(c=affine.c + shift * affine.a, f=affine.f + shift * affine.e).coordinates(shape)
    prefix = f"{path}/" if path else ""
    values = np.zeros(shape, array.pop("dtype", "u1"))
    children = {
        "v": FakeArray(f"{prefix}v", values, ("y", "x"), attrs, zarr_format=zarr_format, **array),
        "x": FakeArray(f"{prefix}x", x, ("x",)),
        "y": FakeArray(f"{prefix}y", y, ("y",)),
    }
    if mapping is not None:
        children["crs"] = FakeArray(f"{prefix}crs", np.int32(0), (), mapping)
        children["v"].attrs = {"grid_mapping": "crs", **children["v"].attrs}
    return FakeGroup(path, children=children, zarr_format=zarr_format)


def rules(findings) -> set:
    return {(finding.rule, finding.severity) for finding in findings}


class TestAffine:
    def test_coordinates_alone(self) -> None:
        geo, findings = read_geo(dataset())
        assert (geo.affine, geo.shape, geo.dimensions, findings) == (UTM, (8, 6), ("y", "x"), [])

    def test_edges_taken_for_centres_are_told_and_the_transform_counts(self) -> None:
        geo, findings = read_geo(dataset(mapping={"GeoTransform": UTM_TEXT}, shift=-0.5))
        assert geo.affine == UTM
        assert ("GZ-29", "error") in rules(findings)

    def test_area_or_point_allows_a_transform_of_the_first_point(self) -> None:
        attrs = {"AREA_OR_POINT": "Point"}
        geo, findings = read_geo(dataset(attrs=attrs, mapping={"GeoTransform": UTM_TEXT}, shift=-0.5))
        assert geo.affine == UTM._replace(c=299995.0, f=5000045.0)
        assert ("GZ-29", "note") in rules(findings)

    @pytest.mark.parametrize(
        "stale",
        ["300000.0 20.0 0.0 5000040.0 0.0 -20.0", "299000.0 10.0 0.0 5000040.0 0.0 -10.0"],
        ids=["coarsened", "cut"],
    )
    def test_a_transform_that_was_left_behind_is_passed_over(self, stale) -> None:
        geo, findings = read_geo(dataset(mapping={"GeoTransform": stale}))
        assert geo.affine == UTM
        assert ("MS-28", "error") in rules(findings)

    def test_float32_coordinates_do_not_blur_the_transform(self) -> None:
        group = dataset(mapping={"GeoTransform": UTM_TEXT})
        for name in "xy":
            group.children[name] = FakeArray(name, group.children[name].values.astype("f4"), (name,))
        geo, findings = read_geo(group)
        assert (geo.affine, findings) == (UTM, [])

    @pytest.mark.parametrize(
        "text", ["300000 10 0 5000040 0", "a b c d e f", 7, "0 0 0 0 0 0", [1, 2, 3, 4, 5, "6"]]
    )
    def test_a_broken_transform_falls_through(self, text) -> None:
        geo, findings = read_geo(dataset(mapping={"GeoTransform": text}))
        assert geo.affine == UTM
        assert ("GZ-28", "error") in rules(findings)

    def test_node_registration_is_of_centres(self) -> None:
        attrs = {"spatial:transform": [10, 0, 300005, 0, -10, 5000035], "spatial:registration": "node"}
        geo, findings = read_geo(dataset(attrs=attrs))
        assert (geo.affine, findings) == (UTM, [])

    def test_coordinates_in_kilometres(self) -> None:
        group = dataset(Affine(0.01, 0.0, 300.0, 0.0, -0.01, 5000.04), mapping={"crs_wkt": "EPSG:32632"})
        for name in "xy":
            group.children[name].attrs = {"units": "km"}
        geo, findings = read_geo(group)
        np.testing.assert_allclose(geo.affine, UTM)
        assert rules(findings) == {("MS-08", "warning")}

    @pytest.mark.parametrize("values", [[1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [np.nan] * 6, [0.0] * 6])
    def test_coordinates_that_no_affine_can_say(self, values) -> None:
        group = dataset()
        group.children["x"] = FakeArray("x", np.array(values), ("x",))
        geo, findings = read_geo(group)
        assert geo.affine is None
        assert "GZ-29" in {finding.rule for finding in findings}

    def test_a_coordinate_of_another_length(self) -> None:
        group = dataset()
        group.children["x"] = FakeArray("x", np.arange(5.0), ("x",))
        assert ("MS-11", "error") in rules(read_geo(group)[1])

    def test_the_parents_transform_is_another_grids_where_the_shapes_differ(self) -> None:
        parent = FakeGroup(attrs={"spatial:transform": list(UTM), "spatial:shape": [8, 6]})
        same, other = (FakeArray("v", np.zeros(shape), ("y", "x")) for shape in ((8, 6), (4, 3)))
        assert read_geo(same, parent)[0].affine == UTM
        assert read_geo(other, parent)[0].affine is None

    def test_dimensions_in_any_order_and_named_by_their_coordinates(self) -> None:
        group = dataset()
        group.children["v"] = FakeArray("v", np.zeros((6, 3, 8)), ("x", "band", "y"))
        assert read_geo(group)[0].shape == (8, 6)
        for old, new, axis in (("x", "u", "X"), ("y", "w", "Y")):
            moved = group.children.pop(old)
            group.children[new] = FakeArray(new, moved.values, (new,), {"axis": axis})
        group.children["v"] = FakeArray("v", np.zeros((6, 8)), ("u", "w"))
        geo, findings = read_geo(group)
        assert (geo.dimensions, geo.shape, geo.affine, findings) == (("w", "u"), (8, 6), UTM, [])


class TestCrs:
    @pytest.mark.parametrize(
        ("crs", "expected"),
        [
            ({"url": "http://bad", "wkt": Crs.from_user(32632).wkt}, "OC-07"),
            (
                {"url": "http://bad", "wkt": "PROJCRS[", "projjson": dict(Crs.from_user(32632).projjson)},
                "OC-07",
            ),
            (
                {"url": "http://www.opengis.net/def/crs/EPSG/0/32632", "wkt": Crs.from_user(32633).wkt},
                "OC-08",
            ),
            ({"url": "http://www.opengis.net/def/crs/EPSG/0/32632"}, None),
        ],
    )
    def test_gdals_object_is_read_url_then_wkt_then_projjson(self, crs, expected) -> None:
        geo, findings = read_geo(dataset(attrs={"_CRS": crs}))
        assert geo.crs == Crs.from_user(32632)
        assert {finding.rule for finding in findings} == ({expected} if expected else set())

    @pytest.mark.parametrize("crs", ["EPSG:32632", {"code": 32632}])
    def test_what_gdal_does_not_read_is_not_a_crs(self, crs) -> None:
        geo, findings = read_geo(dataset(attrs={"_CRS": crs}))
        assert geo.crs is None
        assert ("OC-06", "error") in rules(findings)

    def test_the_grid_mapping_counts_before_the_rest_and_both_are_told(self) -> None:
        group = dataset(attrs={"proj:code": "EPSG:3857"}, mapping={"crs_wkt": Crs.from_user(32632).wkt})
        geo, findings = read_geo(group)
        assert geo.crs.code == "EPSG:32632"
        assert ("OC-08", "error") in rules(findings)

    def test_a_broken_crs_wkt_falls_through_to_the_parameters(self) -> None:
        parameters = dict(Crs.from_user(32632).cf)
        geo, findings = read_geo(dataset(mapping={"crs_wkt": "GARBAGE", **parameters}))
        assert geo.crs.is_same(Crs.from_user(32632))
        assert rules(findings) == {("OC-05", "error")}

    def test_parameters_that_contradict_the_wkt(self) -> None:
        mapping = {"crs_wkt": Crs.from_user(32632).wkt, "longitude_of_central_meridian": 15.0}
        geo, findings = read_geo(dataset(mapping=mapping))
        assert geo.crs.code == "EPSG:32632"
        assert ("OC-05", "error") in rules(findings)

    @pytest.mark.parametrize("name", ["nowhere", 7])
    def test_a_grid_mapping_that_is_not_there(self, name) -> None:
        geo, findings = read_geo(dataset(attrs={"grid_mapping": name, "proj:code": "EPSG:32632"}))
        assert geo.crs.code == "EPSG:32632"
        assert ("GZ-15", "error") in rules(findings)

    @pytest.mark.parametrize(
        "attrs", [{"proj:code": "EPSG:0"}, {"proj:wkt2": 3}, {"proj:projjson": "{}"}, {"proj:projjson": {}}]
    )
    def test_broken_proj_members(self, attrs) -> None:
        geo, findings = read_geo(dataset(attrs=attrs))
        assert geo.crs is None
        assert ("ZC-07", "error") in rules(findings)


def base64_of(value: float) -> str:
    return base64.b64encode(struct.pack("<d", value)).decode()


class TestValues:
    @pytest.mark.parametrize(
        ("dtype", "zarr_format", "fill_value", "attrs", "nodata"),
        [
            ("f4", 3, 0.0, {"_FillValue": base64_of(-9999.0)}, -9999.0),
            ("f4", 3, 0.0, {"_FillValue": -9999.0}, -9999.0),
            ("f4", 3, 0.0, {"_FillValue": "NaN"}, float("nan")),
            ("f4", 3, 0.0, {"missing_value": -9999.0}, -9999.0),
            ("f4", 3, np.float32("nan"), {}, float("nan")),
            ("f4", 3, 0.0, {}, None),
            ("u1", 3, 0, {}, None),
            ("u1", 3, 7, {"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/4326"}}, 7),
            ("u1", 2, 7, {}, 7),
            ("u1", 2, None, {}, None),
            ("u1", 2, 7, {"_FillValue": 255}, 255),
            ("i2", 3, 0, {"_FillValue": [-1]}, -1),
            ("u2", 3, 0, {"_FillValue": 3.0}, 3),
        ],
    )
    def test_nodata_from_the_first_that_says_it(self, dtype, zarr_format, fill_value, attrs, nodata) -> None:
        group = dataset(attrs=attrs, dtype=dtype, zarr_format=zarr_format, fill_value=fill_value)
        geo, findings = read_geo(group)
        assert repr(geo.variables["v"].nodata) == repr(nodata)
        assert findings == []

    @pytest.mark.parametrize(
        "attrs",
        [
            {"_FillValue": -9999},
            {"_FillValue": "not base64"},
            {"_FillValue": base64_of(0.5)},
            {"_FillValue": {}},
            {"scale_factor": "0.0001"},
            {"scale_factor": 0},
            {"add_offset": None},
            {"flag_meanings": "one two", "flag_values": [1]},
            {"units": 5},
            {"valid_range": [1]},
        ],
    )
    def test_broken_attributes_are_told_and_not_used(self, attrs) -> None:
        geo, findings = read_geo(dataset(attrs=attrs))
        variable = geo.variables["v"]
        assert {finding.rule for finding in findings} == {"GZ-16"}
        assert variable.nodata is None and variable.scale_factor is None and variable.units is None

    def test_packing_flags_and_what_is_not_modelled(self) -> None:
        attrs = {
            "scale_factor": 0.0001,
            "add_offset": -0.1,
            "flag_values": [0, 1],
            "flag_meanings": "no yes",
            "comment": {"deep": [1]},
            "coordinates": "crs lat2d",
        }
        variable = read_geo(dataset(attrs=attrs, mapping={}))[0].variables["v"]
        assert (variable.scale_factor, variable.add_offset) == (0.0001, -0.1)
        assert (variable.flag_values, variable.flag_meanings) == ((0, 1), ("no", "yes"))
        assert variable.attributes == {"comment": {"deep": [1]}, "coordinates": "lat2d"}

    def test_two_missing_values_keep_the_second(self) -> None:
        geo, findings = read_geo(dataset(attrs={"_FillValue": 1, "missing_value": 2}))
        assert (geo.variables["v"].nodata, geo.variables["v"].other_nodata) == (1, (2,))
        assert geo.variables["v"].attributes == {}
        assert rules(findings) == {("GZ-16", "warning")}


def pyramid(names=("0", "1", "2"), **attrs) -> FakeGroup:
    levels = {
        name: dataset(UTM.scaled((2**place,) * 2), (8 >> place, 8 >> place), path=name)
        for place, name in enumerate(names)
    }
    return FakeGroup(attrs=attrs, children=levels)


class TestLevels:
    def test_ordered_by_their_cells_never_by_their_names(self) -> None:
        layout = {"layout": [{"asset": "b"}, {"asset": "a"}, {"asset": "c"}]}
        geo, _ = read_geo(pyramid(("c", "b", "a"), multiscales=layout))
        assert [(level.path, level.factors) for level in geo.levels] == [
            ("c", (1, 1)),
            ("b", (2, 2)),
            ("a", (4, 4)),
        ]
        assert (geo.affine, geo.shape) == (UTM, (8, 8))

    @pytest.mark.parametrize(
        "attrs",
        [
            {"multiscales": {"tile_matrix_set": {"tileMatrices": [{"id": "2"}, {"id": "1"}, {"id": "0"}]}}},
            {"multiscales": {"tile_matrix_set": "SomebodysQuad"}},
            {
                "multiscales": {
                    "tile_matrix_set": "WebMercatorQuad",
                    "tile_matrix_set_limits": {"0": {}, "1": {}, "2": {}},
                }
            },
            {"multiscales": [{"datasets": [{"path": "2"}, {"path": "1"}, {"path": "0"}]}]},
            {"ome": {"version": "0.5", "multiscales": [{"datasets": [{"path": str(n)} for n in range(3)]}]}},
            {
                "multiscales": {
                    "layout": [{"id": "0", "path": "0"}, {"id": "1", "path": "1"}, {"id": "2", "path": "2"}]
                }
            },
        ],
    )
    def test_every_dialect_finds_the_same_levels(self, attrs) -> None:
        geo, _ = read_geo(pyramid(**attrs))
        assert [(level.path, level.shape) for level in geo.levels] == [
            ("0", (8, 8)),
            ("1", (4, 4)),
            ("2", (2, 2)),
        ]
        assert [level.affine for level in geo.levels] == [UTM.scaled((f, f)) for f in (1, 2, 4)]

    def test_ome_counts_from_the_centre_of_the_first_cell(self) -> None:
        def transformations(place: int) -> list:
            scale = 10.0 * 2**place
            translation = [0.0, 100 + scale / 2, 50 + scale / 2]
            return [
                {"type": "scale", "scale": [1.0, scale, scale]},
                {"type": "translation", "translation": translation},
            ]

        axes = [{"name": name} for name in "cyx"]
        datasets = [{"path": str(n), "coordinateTransformations": transformations(n)} for n in range(2)]
        children = {str(n): FakeArray(str(n), np.zeros((3, 8 >> n, 6 >> n)), tuple("cyx")) for n in range(2)}
        geo, _ = read_geo(
            FakeGroup(
                attrs={"ome": {"multiscales": [{"axes": axes, "datasets": datasets}]}}, children=children
            )
        )
        assert [level.affine for level in geo.levels] == [
            Affine(10.0, 0.0, 50.0, 0.0, 10.0, 100.0),
            Affine(20.0, 0.0, 50.0, 0.0, 20.0, 100.0),
        ]

    @pytest.mark.parametrize("corner", ["topLeft", "bottomLeft"])
    @pytest.mark.parametrize("axes", [["N", "E"], ["E", "N"]])
    def test_a_tile_matrix_places_a_level_that_has_nothing_else(self, axes, corner) -> None:
        origin = [50.0, 100.0] if axes == ["E", "N"] else [100.0, 50.0]
        matrix = {"id": "0", "cellSize": 10.0, "pointOfOrigin": origin, "cornerOfOrigin": corner}
        tiles = {"tileWidth": 4, "tileHeight": 4, "matrixWidth": 2, "matrixHeight": 2}
        tms = {"crs": "EPSG:32632", "orderedAxes": axes, "tileMatrices": [matrix | tiles]}
        array = FakeArray("0/v", np.zeros((8, 7)), ("y", "x"))
        children = {"0": FakeGroup("0", children={"v": array})}
        geo, findings = read_geo(
            FakeGroup(attrs={"multiscales": {"tile_matrix_set": tms}}, children=children)
        )
        assert geo.affine == Affine(10.0, 0.0, 50.0, 0.0, -10.0 if corner == "topLeft" else 10.0, 100.0)
        assert (geo.crs.code, geo.levels[0].tile_shape) == ("EPSG:32632", (4, 4))
        assert rules(findings) == {("MS-28", "note")}

    def test_a_tile_matrix_larger_than_the_array_does_not_say_where_the_array_begins(self) -> None:
        children = {"3": FakeGroup("3", children={"v": FakeArray("3/v", np.zeros((256, 256)), ("y", "x"))})}
        geo, findings = read_geo(
            FakeGroup(attrs={"multiscales": {"tile_matrix_set": "WebMercatorQuad"}}, children=children)
        )
        assert geo.affine is None
        assert ("GZ-44", "warning") in rules(findings)

    def test_a_whole_web_mercator_level(self) -> None:
        children = {"1": FakeGroup("1", children={"v": FakeArray("1/v", np.zeros((512, 512)), ("y", "x"))})}
        geo, _ = read_geo(
            FakeGroup(attrs={"multiscales": {"tile_matrix_set": "WebMercatorQuad"}}, children=children)
        )
        assert geo.crs.code == "EPSG:3857"
        np.testing.assert_allclose(
            geo.bounds, (-20037508.342789244, -20037508.342789244, *(20037508.342789244,) * 2)
        )

    def test_the_multiscale_groups_crs_reaches_its_levels(self) -> None:
        layout = {"layout": [{"asset": "0"}, {"asset": "1"}]}
        geo, findings = read_geo(pyramid(multiscales=layout, **{"proj:code": "EPSG:32632"}))
        assert (geo.crs.code, findings) == ("EPSG:32632", [])

    @pytest.mark.parametrize(
        ("multiscales", "rule"),
        [
            ({}, "GZ-37"),
            (7, "GZ-37"),
            ({"layout": []}, "ZC-02"),
            ({"layout": [{"asset": "/0"}]}, "ZC-02"),
            ({"layout": [{"asset": "../0"}]}, "ZC-02"),
            ({"layout": [{"asset": "nowhere"}]}, "ZC-03"),
            ({"tile_matrix_set": 5}, "GZ-38"),
            ({"tile_matrix_set": {"tile_matrix": []}}, "GZ-38"),
            ([{"name": "x"}], "OC-10"),
            ([], "OC-10"),
        ],
    )
    def test_broken_multiscales_are_told(self, multiscales, rule) -> None:
        group = dataset(mapping={"crs_wkt": "EPSG:32632"})
        group.attrs = {"multiscales": multiscales, "spatial:shape": [8, 6]}
        _, findings = read_geo(group)
        assert rule in {finding.rule for finding in findings}

    @pytest.mark.parametrize("code", ["EPSG:32632", "EPSG:32633"])
    def test_arrays_of_one_grid_in_two_crss(self, code) -> None:
        group = dataset(mapping={"crs_wkt": "EPSG:32632"})
        group.children["other"] = FakeArray("other", np.int32(0), (), {"crs_wkt": code})
        group.children["w"] = FakeArray("w", np.zeros((8, 6), "u1"), ("y", "x"), {"grid_mapping": "other"})
        geo, findings = read_geo(group)
        assert geo.crs.code == "EPSG:32632" and [*geo.variables] == ["v", "w"]
        assert (("GZ-22", "error") in rules(findings)) == (code != "EPSG:32632")

    def test_levels_that_lose_what_the_values_mean(self) -> None:
        group = pyramid(multiscales={"layout": [{"asset": "0"}, {"asset": "1"}]})
        group.children["0"].children["v"].attrs = {"scale_factor": 0.1}
        coarse = group.children["1"].children
        coarse["v"] = FakeArray("1/v", np.zeros((4, 4), "f8"), ("y", "x"))
        coarse["other"] = FakeArray("1/other", np.zeros((4, 4), "f8"), ("y", "x"))
        _, findings = read_geo(group)
        assert {("GZ-22", "error"), ("GZ-33", "error"), ("GZ-32", "error")} <= rules(findings)

    def test_the_mini_specs_example_with_its_six_mistakes(self) -> None:
        def level(place: int, size: int) -> FakeGroup:
            mapping = {"crs_wkt": Crs.from_user(32632).wkt, "GeoTransform": UTM_TEXT}
            return dataset(UTM.scaled((2**place,) * 2), (size, size), mapping=mapping, path=str(place))

        matrices = [
            {
                "id": str(place),
                "scaleDenominator": 35.28 * 2**place,
                "cellSize": 10.0 * 2**place,
                "pointOfOrigin": [299960.0, 9000000.0],
                "tileWidth": 1024 >> place,
                "tileHeight": 1024 >> place,
                "matrixWidth": 1094 >> place,
                "matrixHeight": 1094 >> place,
            }
            for place in range(2)
        ]
        tms = {"id": "UTM", "crs": "EPSG:32633", "orderedAxes": ["E", "N"], "tileMatrices": matrices}
        attrs = {"multiscales": {"tile_matrix_set": tms, "resampling_method": "Mean"}}
        geo, findings = read_geo(FakeGroup(attrs=attrs, children={"0": level(0, 1094), "1": level(1, 547)}))
        assert (geo.crs.code, geo.affine, geo.resampling) == ("EPSG:32632", UTM, "average")
        assert [(level.factors, level.affine) for level in geo.levels] == [
            ((1, 1), UTM),
            ((2, 2), UTM.scaled((2, 2))),
        ]
        wrong = ("GZ-40", "GZ-45", "MS-28", "GZ-47")
        assert {(rule, "error") for rule in wrong} <= rules(findings)


class TestGroups:
    def test_a_group_without_a_grid_is_an_error(self) -> None:
        with pytest.raises(MetadataError, match="group holds no grid"):
            read_geo(FakeGroup(children={"t": FakeArray("t", np.arange(3), ("t",))}))
        with pytest.raises(MetadataError, match="array has 1 dimensions"):
            read_geo(FakeArray("t", np.arange(3), ("t",)))

    def test_an_array_without_a_cell_is_no_grid(self) -> None:
        empty = FakeArray("e", np.zeros((0, 6)), ("y", "x"), {"spatial:bbox": [0, 0, 1, 1]})
        with pytest.raises(MetadataError, match="expected one cell at least"):
            read_geo(empty)
        group = dataset()
        group.children["e"] = empty
        assert list(read_geo(group)[0].variables) == ["v"]
        waiting = FakeArray("w", np.zeros((0, 2, 6)), ("time", "y", "x"))
        assert read_geo(waiting)[0].shape == (2, 6)

    def test_arrays_on_another_grid_and_helpers_are_left_out(self) -> None:
        group = dataset(attrs={"coordinates": "lat2d"})
        group.children["coarse"] = FakeArray("coarse", np.zeros((4, 3)), ("y2", "x2"))
        group.children["lat2d"] = FakeArray("lat2d", np.zeros((8, 6)), ("y", "x"))
        group.children["x_bnds"] = FakeArray("x_bnds", np.zeros((6, 2)), ("x", "bnds"))
        geo, findings = read_geo(group)
        assert list(geo.variables) == ["v"]
        assert ("GZ-11", "note") in rules(findings)

    def test_a_dimension_that_nothing_names(self) -> None:
        geo, findings = read_geo(FakeArray("v", np.zeros((2, 3)), ("dim_0", "dim_1")))
        assert (geo.dimensions, geo.shape) == (("dim_0", "dim_1"), (2, 3))
        assert ("GZ-43", "warning") in rules(findings)


def test_the_finest_level_may_lie_in_the_multiscale_group_itself() -> None:
    root = dataset()
    root.attrs = {"multiscales": {"layout": [{"asset": "."}, {"asset": "r2"}]}}
    root.children["r2"] = dataset(UTM.scaled((2, 2)), (4, 3), path="r2")
    geo, findings = read_geo(root)
    assert [(level.path, level.shape, level.factors) for level in geo.levels] == [
        ("", (8, 6), (1, 1)),
        ("r2", (4, 3), (2, 2)),
    ]
    assert findings == []


def test_the_levels_of_a_well_known_set_are_the_groups_that_a_zoom_can_be() -> None:
    children = {name: dataset(path=name) for name in ("0", "99999999999", "²", "other")}
    group = FakeGroup(attrs={"multiscales": {"tile_matrix_set": "WebMercatorQuad"}}, children=children)
    assert [level.path for level in read_geo(group)[0].levels] == ["0"]


def examples(module) -> Iterator[tuple[str, dict]]:
    """The examples of a module's docstring, which is one JSON object after the other."""
    text = module.__doc__.partition("Example: ")[2].strip()
    while text:
        example, end = json.JSONDecoder().raw_decode(text)
        text = text[end:].strip()
        yield f"{module.__name__}: {', '.join(example)}", example


EXAMPLES = dict(pair for module in (cf, geozarr) for pair in examples(module))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_documentation(name) -> None:
    example = EXAMPLES[name]
    if "multiscales" in example:
        node = pyramid(**example)
    else:
        node = dataset(attrs=example)
        node.children["spatial_ref"] = FakeArray("spatial_ref", np.int32(0), (), {"crs_wkt": "EPSG:32632"})
    geo, findings = read_geo(node)
    assert geo.affine == UTM
    assert [finding for finding in findings if finding.severity == "error"] == []


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ({"epsg_code": "EPSG:32632"}, "EPSG:32632"),
        ({"epsg_code": "32632"}, "EPSG:32632"),
        ({"epsg_code": "nonsense", "proj4": "+proj=utm +zone=32 +datum=WGS84"}, "EPSG:32632"),
        ({"epsg_code": 4326, "crs_wkt": "EPSG:32632"}, "EPSG:32632"),
        ({"epsg_code": True}, None),
        ({"proj4text": ["+proj=utm"]}, None),
    ],
)
def test_a_crs_by_attributes_that_are_not_cfs_counts_where_there_is_no_other(stated, code) -> None:
    node = dataset(attrs={"grid_mapping": "spatial_ref"})
    node.children["spatial_ref"] = FakeArray("spatial_ref", np.int32(0), (), stated)
    geo, findings = read_geo(node)
    assert (geo.crs is None) == (code is None)
    assert geo.crs is None or geo.crs.is_same(Crs.from_user(code))
    expected = (
        {"error"} if code is None else {"error", "warning"} if "nonsense" in stated.values() else {"warning"}
    )
    assert {f.severity for f in findings if f.rule == "OC-05"} == (set() if "crs_wkt" in stated else expected)
