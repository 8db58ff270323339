"""Whatever JSON the attributes hold, reading gives a model and findings, or a MetadataError."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zstore.errors import MetadataError, UnsupportedError
from zstore.extensions.builtin import CONVENTIONS
from zstore.extensions.registry import conventions as registry
from zstore.geo.conventions.content import Time
from zstore.geo.conventions.meaning import Meaning
from zstore.geo.conventions.read import read_geo

from .nodes import FakeArray, FakeGroup
from .test_reading import dataset

pytest.importorskip("pyproj", reason="CRSs are parsed with pyproj (extra 'geo')")


def words(text: str) -> list[str]:
    return text.split()


# Sizes and zoom levels among them that a reader must not take at their word.
COUNTS = ["days since 2000-01-01", "days since 0-0-0", "hours since 99999-01-01", "um", "nm"]
WORDS = COUNTS + words(
    """0 1 x y v crs EPSG:4326 EPSG:32632 . .. /0 NaN AAAAAICHw8A= ² 99999999999 WebMercatorQuad affine rpc
    node pixel average scale translation E N topLeft bottomLeft Area Point km crs_wkt time noleap lunar link
    key Feature Collection bands"""
)
NUMBERS = st.sampled_from([0, 1, -1, 2, 8, 0.5, 10**400, 2**70, 1e308, float("nan"), float("inf"), -0.0])
LEAVES = st.none() | st.booleans() | NUMBERS | st.sampled_from(WORDS) | st.text(max_size=3)
# Names of members two levels deep, so that the inner parsers are reached.
MEMBERS = words(
    """layout tile_matrix_set datasets tileMatrices tile_matrix_set_limits resampling_method asset path id
    derived_from transform scale translation factors cell_size spatial:shape spatial:transform crs
    supportedCRS orderedAxes cellSize pointOfOrigin tileWidth tileHeight matrixWidth matrixHeight
    scaleDenominator axes name coordinateTransformations type multiscales url wkt projjson uri
    pixels_per_tile cornerOfOrigin 0 1 version href assets links rel eo:center_wavelength common_name
    coordinateSystems input output sequence transformations"""
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=6),
    max_leaves=12,
)
KEYS = words(
    """multiscales ome proj:code proj:wkt2 proj:projjson proj:epsg proj:transform proj:shape proj:bbox
    spatial:dimensions spatial:shape spatial:transform spatial:transform_type spatial:registration
    spatial:bbox grid_mapping coordinates bounds _CRS GeoTransform spatial_ref AREA_OR_POINT _FillValue
    missing_value scale_factor add_offset valid_range flag_values flag_masks flag_meanings units
    bands eo:bands calendar zarr_conventions stac:item stac:collection stac:link stac:key stac:encoding
    standard_name long_name axis crs_wkt grid_mapping_name semi_major_axis longitude_of_central_meridian"""
)
ATTRIBUTES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(
    ATTRIBUTES, ATTRIBUTES, ATTRIBUTES, ATTRIBUTES, st.sampled_from(["u1", "i8", "f4", "?", "S3", "M8[s]"])
)
def test_any_attributes(root, level, array, other, dtype) -> None:
    inner = dataset(attrs=array, mapping=other, path="0", dtype=dtype, fill_value=None)
    inner.attrs = level
    inner.children["x"].attrs = other
    inner.children["time"] = FakeArray("0/time", 7, (), other)
    inner.children["band"] = FakeArray("0/band", range(8), ("y",), array)
    group = FakeGroup(attrs=root, children={"0": inner, "1": dataset(attrs=array, path="1")})
    for node, parent in ((group, None), (inner, group), (inner.children["v"], inner)):
        try:
            geo, _ = read_geo(node, parent)
        except MetadataError:
            continue
        Meaning().dialects(node, "0")
        for offer in CONVENTIONS:
            registry.resolve(offer.name)().check(node, geo, parent)
        try:
            if geo.time is not None:
                geo.time.extent()
                Time().render(geo, 3)
        except (MetadataError, UnsupportedError):
            pass


def read_and_check(group: FakeGroup) -> None:
    try:
        geo, _ = read_geo(group)
    except MetadataError:
        return
    for offer in CONVENTIONS:
        registry.resolve(offer.name)().check(group, geo)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, st.sampled_from(["layout", "tile_matrix_set", "datasets", "tileMatrices", "transform"]))
def test_any_multiscales(value, member) -> None:
    entry = {
        "asset": "0",
        "path": "0",
        "id": "0",
        member: value,
        "transform": value,
        "coordinateTransformations": value,
    }
    for multiscales in (
        {member: value},
        {"layout": [entry, value]},
        {
            "tile_matrix_set": {
                "crs": value,
                "tileMatrices": [entry | {"cellSize": value, "pointOfOrigin": value}],
            }
        },
        [{"axes": value, "datasets": [entry]}],
        [{"coordinateSystems": value, "datasets": [entry | {"name": value}]}],
        {"tile_matrix_set": "WebMercatorQuad", "tile_matrix_set_limits": value},
    ):
        children = {"0": dataset(path="0"), "²": dataset(path="²"), "99999999999": dataset(path="9")}
        ome = {"version": "0.6", "multiscales": multiscales}
        group = FakeGroup(attrs={"multiscales": multiscales, "ome": ome}, children=children)
        read_and_check(group)


SCALE = {"type": "scale", "scale": [1, 1]}
NAMED = [{"path": "0", "coordinateTransformations": [SCALE | {"output": {"name": "a"}}]}]


@pytest.mark.parametrize(
    "item",
    [
        {"datasets": 5},
        {"coordinateSystems": [{"name": {}}], "datasets": NAMED},
        {"coordinateSystems": [{"name": "a", "axes": [{"name": []}, {"name": []}]}], "datasets": []},
        {"datasets": [{"path": "0", "coordinateTransformations": [SCALE | {"output": {"name": []}}]}]},
    ],
)
def test_names_that_are_no_names_in_coordinate_systems(item) -> None:
    ome = {"version": "0.6", "multiscales": [item]}
    group = FakeGroup(attrs={"ome": ome}, children={"0": dataset(path="0")})
    read_and_check(group)


def test_a_long_chain_of_derived_levels() -> None:
    """Each level of a layout derived from the one before it, more of them than Python calls nest."""
    layout = [{"asset": "0", "transform": {"scale": [1.0, 1.0], "translation": [0.0, 0.0]}}]
    layout += [layout[0] | {"asset": str(n), "derived_from": str(n - 1)} for n in range(1, 3000)]
    group = FakeGroup(attrs={"multiscales": {"layout": layout}}, children={"0": dataset(path="0")})
    geo, _ = read_geo(group)
    assert geo.levels is not None
