"""The documents that were found to open in every reader, number by number."""

from __future__ import annotations

import json

import numpy as np
import pytest

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Affine, GeoModel, Level, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo

pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

AFFINE = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
BAND = Variable(
    np.dtype("uint16"),
    nodata=0,
    scale_factor=0.0001,
    add_offset=0.0,
    units="1",
    standard_name="surface_bidirectional_reflectance",
    long_name="B02",
    area_or_point="Area",
)


def pyramid(crs="EPSG:32632", affine=AFFINE, variables=None, shape=(1095, 1093), tile=(256, 256)) -> GeoModel:
    flat = GeoModel(None if crs is None else Crs.from_user(crs), affine, shape)
    levels = tuple(flat.plan_level(str(place), (2**place,) * 2, tile) for place in range(2))
    return GeoModel(
        flat.crs,
        affine,
        shape,
        levels=levels,
        resampling="average",
        variables={"b02": BAND} if variables is None else variables,
    )


@pytest.fixture(scope="module", params=[2, 3])
def rendered(request):
    documents, findings = render_geo(pyramid(), request.param)
    assert findings == []
    return request.param, documents


def test_the_nodes_of_a_pyramid(rendered) -> None:
    _, documents = rendered
    names = ["b02", "spatial_ref", "x", "y"]
    assert sorted(documents) == sorted(
        ["", *(f"{level}{name}" for level in "01" for name in ("", *(f"/{n}" for n in names)))]
    )
    assert [path for path in documents if documents[path]["kind"] == "group"] == ["", "0", "1"]


def test_the_multiscale_group(rendered) -> None:
    attributes = dict(rendered[1][""]["attributes"])
    entries = attributes.pop("zarr_conventions")
    assert [(entry["name"], entry["uuid"]) for entry in entries] == [
        ("multiscales", "d35379db-88df-4056-af3a-620245f8e347"),
        ("proj", "f17cb550-5864-4468-aeb7-f3180cfb622f"),
        ("spatial", "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4"),
    ]
    assert entries[1] == {
        "schema_url": "https://raw.githubusercontent.com/zarr-conventions/proj/refs/tags/v0.1/schema.json",
        "spec_url": "https://github.com/zarr-conventions/proj/blob/v0.1/README.md",
        "uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "name": "proj",
        "description": "Coordinate reference system information for geospatial data",
    }
    assert attributes.pop("multiscales") == {
        "resampling_method": "average",
        "layout": [
            {
                "asset": "0",
                "transform": {"scale": [1.0, 1.0], "translation": [0.0, 0.0]},
                "spatial:shape": [1095, 1093],
                "spatial:transform": [10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0],
            },
            {
                "asset": "1",
                "derived_from": "0",
                "resampling_method": "average",
                "transform": {"scale": [2.0, 2.0], "translation": [0.0, 0.0]},
                "spatial:shape": [548, 547],
                "spatial:transform": [20.0, 0.0, 300000.0, 0.0, -20.0, 5000040.0],
            },
        ],
        "tile_matrix_set": {
            "id": "EPSG32632_10m",
            "title": "native grid",
            "crs": "http://www.opengis.net/def/crs/EPSG/0/32632",
            "orderedAxes": ["E", "N"],
            "tileMatrices": [
                {
                    "id": "1",
                    "scaleDenominator": 71428.57142857143,
                    "cellSize": 20.0,
                    "cornerOfOrigin": "topLeft",
                    "pointOfOrigin": [300000.0, 5000040.0],
                    "tileWidth": 256,
                    "tileHeight": 256,
                    "matrixWidth": 3,
                    "matrixHeight": 3,
                },
                {
                    "id": "0",
                    "scaleDenominator": 35714.28571428572,
                    "cellSize": 10.0,
                    "cornerOfOrigin": "topLeft",
                    "pointOfOrigin": [300000.0, 5000040.0],
                    "tileWidth": 256,
                    "tileHeight": 256,
                    "matrixWidth": 5,
                    "matrixHeight": 5,
                },
            ],
        },
        "tile_matrix_set_limits": {
            "0": {"min_tile_col": 0, "max_tile_col": 4, "min_tile_row": 0, "max_tile_row": 4},
            "1": {"min_tile_col": 0, "max_tile_col": 2, "min_tile_row": 0, "max_tile_row": 2},
        },
        "tile_matrix_limits": {
            "0": {"tileMatrix": "0", "minTileCol": 0, "maxTileCol": 4, "minTileRow": 0, "maxTileRow": 4},
            "1": {"tileMatrix": "1", "minTileCol": 0, "maxTileCol": 2, "minTileRow": 0, "maxTileRow": 2},
        },
    }
    assert attributes == {
        "Conventions": "CF-1.11",
        "proj:code": "EPSG:32632",
        "spatial:dimensions": ["y", "x"],
        "spatial:transform_type": "affine",
        "spatial:transform": [10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0],
        "spatial:shape": [1095, 1093],
        "spatial:bbox": [300000.0, 4989090.0, 310930.0, 5000040.0],
    }


def test_a_level_group_says_its_own_place_again(rendered) -> None:
    attributes = dict(rendered[1]["1"]["attributes"])
    assert [entry["name"] for entry in attributes.pop("zarr_conventions")] == ["proj", "spatial"]
    assert attributes == {
        "Conventions": "CF-1.11",
        "proj:code": "EPSG:32632",
        "spatial:dimensions": ["y", "x"],
        "spatial:transform_type": "affine",
        "spatial:transform": [20.0, 0.0, 300000.0, 0.0, -20.0, 5000040.0],
        "spatial:shape": [548, 547],
        "spatial:bbox": [300000.0, 4989080.0, 310940.0, 5000040.0],
    }


def test_an_array_of_data(rendered) -> None:
    zarr_format, documents = rendered
    document = documents["0/b02"]
    attributes = dict(document["attributes"])
    crs = attributes.pop("_CRS")
    assert list(crs) == ["url", "wkt", "projjson"]
    assert crs["url"] == "http://www.opengis.net/def/crs/EPSG/0/32632"
    assert crs["wkt"].startswith('PROJCRS["WGS 84 / UTM zone 32N"')
    assert crs["projjson"]["id"] == {"authority": "EPSG", "code": 32632}
    assert attributes == {
        "standard_name": "surface_bidirectional_reflectance",
        "long_name": "B02",
        "units": "1",
        "_FillValue": 0,
        "scale_factor": 0.0001,
        "add_offset": 0.0,
        "grid_mapping": "spatial_ref",
        "coordinates": "spatial_ref",
        "AREA_OR_POINT": "Area",
    }
    assert (document["dimension_names"], document["fill_value"]) == (("y", "x"), 0)
    assert "data" not in document
    assert zarr_format in (2, 3)


def test_coordinates_are_cell_centres(rendered) -> None:
    documents = rendered[1]
    x, y = documents["0/x"], documents["1/y"]
    assert x["attributes"] == {
        "standard_name": "projection_x_coordinate",
        "long_name": "x coordinate of projection",
        "units": "m",
        "axis": "X",
    }
    assert (x["dimension_names"], x["data"].dtype, len(x["data"])) == (("x",), np.float64, 1093)
    np.testing.assert_array_equal(x["data"][[0, 1, -1]], [300005.0, 300015.0, 310925.0])
    np.testing.assert_array_equal(y["data"][[0, -1]], [5000030.0, 5000030.0 - 547 * 20])


def test_the_crs_variable_has_its_levels_geotransform(rendered) -> None:
    zarr_format, documents = rendered
    document = documents["1/spatial_ref"]
    attributes = document["attributes"]
    assert attributes["GeoTransform"] == "300000.0 20.0 0.0 5000040.0 0.0 -20.0"
    assert attributes["spatial_ref"] == attributes["crs_wkt"]
    assert attributes["long_name"] == "coordinate reference system"
    assert attributes["grid_mapping_name"] == "transverse_mercator"
    assert attributes["longitude_of_central_meridian"] == 9.0
    assert (document["dimension_names"], document["data"].shape, document["data"].dtype) == ((), (), np.int32)
    # In v2 a fill value is nodata to xarray, which would turn the variable into a missing float.
    assert document["fill_value"] is (None if zarr_format == 2 else 0) or document["fill_value"] == 0


@pytest.mark.parametrize(
    ("dtype", "nodata", "zarr_format", "fill", "attributes"),
    [
        ("float32", -9999.0, 3, -9999.0, {"_FillValue": "AAAAAICHw8A=", "missing_value": -9999.0}),
        ("float32", -9999.0, 2, -9999.0, {"_FillValue": -9999.0}),
        ("float32", float("nan"), 3, float("nan"), {"_FillValue": "AAAAAAAA+H8="}),
        ("float64", float("nan"), 2, float("nan"), {}),
        ("float64", float("inf"), 2, float("inf"), {}),
        ("int16", -32768, 3, -32768, {"_FillValue": -32768}),
        ("uint64", 2**64 - 1, 3, 2**64 - 1, {"_FillValue": 2**64 - 1}),
        ("uint8", None, 3, 0, {}),
        ("uint8", None, 2, None, {}),
    ],
)
def test_nodata_is_written_as_its_readers_want_it(dtype, nodata, zarr_format, fill, attributes) -> None:
    geo = GeoModel(None, AFFINE, (4, 4), variables={"v": Variable(np.dtype(dtype), nodata=nodata)})
    document = render_geo(geo, zarr_format)[0]["v"]
    assert document["attributes"] == attributes
    assert repr(document["fill_value"]) == repr(fill)


@pytest.mark.parametrize(
    ("dtype", "nodata"), [("uint8", -1), ("uint8", 0.5), ("float32", 1e300), ("bool", 0)]
)
def test_nodata_that_the_type_cannot_hold_is_refused(dtype, nodata) -> None:
    geo = GeoModel(None, AFFINE, (4, 4), variables={"v": Variable(np.dtype(dtype), nodata=nodata)})
    with pytest.raises(MetadataError, match="nodata is"):
        render_geo(geo, 3)


@pytest.mark.parametrize(
    ("crs", "cell", "denominator", "units", "axes", "origin"),
    [
        ("EPSG:4326", 0.703125, 279541132.0143589, "degrees_east", ["Lat", "Lon"], [90.0, -180.0]),
        ("OGC:CRS84", 0.703125, 279541132.0143589, "degrees_east", ["Lon", "Lat"], [-180.0, 90.0]),
        ("EPSG:3857", 156543.03392804097, 559082264.0287178, "m", ["E", "N"], [-180.0, 90.0]),
        ("EPSG:2193", 10.0, 35714.28571428572, "m", ["N", "E"], [90.0, -180.0]),
        ("EPSG:3031", 10.0, 35714.28571428572, "m", ["E", "N"], [-180.0, 90.0]),
        ("EPSG:32661", 10.0, 35714.28571428572, "m", ["N", "E"], [90.0, -180.0]),
        ("EPSG:2263", 100.0, 100 * (1200 / 3937) / 0.00028, "US_survey_foot", ["E", "N"], [-180.0, 90.0]),
    ],
)
def test_tile_matrices_in_the_units_and_axis_order_of_the_crs(
    crs, cell, denominator, units, axes, origin
) -> None:
    documents, findings = render_geo(pyramid(crs, Affine(cell, 0.0, -180.0, 0.0, -cell, 90.0)), 3)
    assert findings == []
    tiles = documents[""]["attributes"]["multiscales"]["tile_matrix_set"]
    finest = tiles["tileMatrices"][-1]
    assert finest["scaleDenominator"] == pytest.approx(denominator, rel=1e-12)
    assert (tiles["orderedAxes"], finest["pointOfOrigin"]) == (axes, origin)
    assert documents["0/x"]["attributes"]["units"] == units


def test_a_south_up_raster_counts_its_tiles_from_the_bottom() -> None:
    geo = pyramid(affine=Affine(10.0, 0.0, 300000.0, 0.0, 10.0, 4000000.0))
    documents, findings = render_geo(geo, 3)
    matrix = documents[""]["attributes"]["multiscales"]["tile_matrix_set"]["tileMatrices"][0]
    assert findings == []
    assert (matrix["cornerOfOrigin"], matrix["pointOfOrigin"]) == ("bottomLeft", [300000.0, 4000000.0])
    np.testing.assert_array_equal(documents["0/y"]["data"][:2], [4000005.0, 4000015.0])


@pytest.mark.parametrize(
    ("geo", "reason"),
    [
        (pyramid(affine=Affine(10.0, 0.0, 0.0, 0.0, -20.0, 0.0)), "not square"),
        (pyramid(affine=Affine(10.0, 1.0, 0.0, 1.0, -10.0, 0.0)), "rotated"),
        (pyramid(affine=Affine(-10.0, 0.0, 0.0, 0.0, -10.0, 0.0)), "smaller x"),
        (pyramid(crs=None), "no CRS"),
        (pyramid(tile=None), "no tile shape"),
    ],
)
def test_what_no_tile_matrix_set_can_say_is_left_out_and_told(geo, reason) -> None:
    documents, findings = render_geo(geo, 3)
    multiscales = documents[""]["attributes"]["multiscales"]
    assert set(multiscales) == {"resampling_method", "layout"}
    assert [finding.message for finding in findings if reason in finding.message and finding.rule == "GZ-37"]


def test_a_raster_without_a_crs_has_none_of_its_members() -> None:
    documents, findings = render_geo(pyramid(crs=None), 3)
    text = json.dumps([document["attributes"] for document in documents.values()])
    for member in ("proj", "_CRS", "grid_mapping", "spatial_ref", "crs"):
        assert f'"{member}' not in text
    assert ("MS-04", "note") in [(finding.rule, finding.severity) for finding in findings]
    assert documents["0/x"]["attributes"] == {"long_name": "x coordinate", "axis": "X"}


def test_a_crs_without_a_code_is_written_whole() -> None:
    custom = "+proj=laea +lat_0=52 +lon_0=10 +x_0=4321001 +y_0=3210000 +ellps=GRS80 +units=m"
    documents, _ = render_geo(pyramid(custom), 3)
    attributes = documents[""]["attributes"]
    assert "proj:code" not in attributes
    assert attributes["proj:wkt2"].startswith("PROJCRS[")
    assert attributes["multiscales"]["tile_matrix_set"]["crs"]["wkt"]["type"] == "ProjectedCRS"
    assert set(documents["0/b02"]["attributes"]["_CRS"]) == {"wkt", "projjson"}


def test_documents_are_strict_json(rendered) -> None:
    for document in rendered[1].values():
        assert json.loads(json.dumps(document["attributes"], allow_nan=False)) == document["attributes"]


def test_flags_and_other_attributes_are_kept() -> None:
    classes = Variable(
        np.dtype("uint8"),
        flag_values=(0, 4),
        flag_meanings=("no_data", "vegetation"),
        valid_range=(0, 11),
        attributes={"coordinates": "lat2d lon2d", "source": {"a": [1]}},
    )
    attributes = render_geo(pyramid(variables={"scl": classes}), 3)[0]["1/scl"]["attributes"]
    assert attributes["flag_meanings"] == "no_data vegetation"
    assert (attributes["flag_values"], attributes["valid_range"]) == ([0, 4], [0, 11])
    assert attributes["coordinates"] == "spatial_ref lat2d lon2d"
    assert attributes["source"] == {"a": [1]}


@pytest.mark.parametrize(
    "variable",
    [
        Variable(np.dtype("u1"), scale_factor=0.0),
        Variable(np.dtype("u1"), add_offset=float("nan")),
        Variable(np.dtype("u1"), flag_values=(1, 2), flag_meanings=("one",)),
        Variable(np.dtype("u1"), flag_values=(1,), flag_meanings=("two words",)),
        Variable(np.dtype("u1"), dimensions=("time", "lat")),
        Variable(nodata=0),
    ],
)
def test_a_variable_that_contradicts_itself_is_refused(variable) -> None:
    with pytest.raises(MetadataError):
        render_geo(pyramid(variables={"v": variable}), 3)


def test_levels_that_contradict_the_affine_are_refused() -> None:
    geo = pyramid()
    shifted = Level("1", (548, 547), AFFINE.scaled((2, 2))._replace(c=1.0), (2, 2), (256, 256))
    with pytest.raises(MetadataError, match="affine of level '1'"):
        render_geo(GeoModel(geo.crs, AFFINE, geo.shape, levels=(geo.levels[0], shifted)), 3)
    with pytest.raises(MetadataError, match="paths of the levels"):
        render_geo(GeoModel(geo.crs, AFFINE, geo.shape, levels=(geo.levels[0], geo.levels[0])), 3)
    with pytest.raises(MetadataError, match="resampling method is 'mean'"):
        render_geo(GeoModel(geo.crs, AFFINE, geo.shape, levels=geo.levels, resampling="mean"), 3)
