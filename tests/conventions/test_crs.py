"""CRSs: one value out of every notation, and nothing without pyproj."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from zstore.errors import MetadataError
from zstore.geo.conventions.crs import Crs

pyproj = pytest.importorskip("pyproj", reason="CRSs are made with pyproj (extra 'geo')")

CODES = [
    "EPSG:4326",
    "EPSG:3857",
    "EPSG:32632",
    "EPSG:2193",
    "EPSG:27700",
    "EPSG:3031",
    "EPSG:31467",
    "OGC:CRS84",
]


@pytest.mark.parametrize("code", CODES)
def test_every_notation_comes_to_the_same_value(code) -> None:
    crs = Crs.from_user(code)
    source = pyproj.CRS(code)
    notations = [crs, source, crs.wkt, crs.url, dict(crs.projjson), {"crs_wkt": source.to_wkt()}]
    if code != "OGC:CRS84":
        notations += [int(code.partition(":")[2]), source.to_wkt("WKT1_GDAL")]
    for notation in notations:
        assert Crs.from_user(notation) == crs
    assert crs.code == code


@pytest.mark.parametrize("code", ["EPSG:2193", "EPSG:32632", "EPSG:4326", "EPSG:3031"])
def test_cf_parameters_mean_the_same_crs(code) -> None:
    crs = Crs.from_user(code)
    assert Crs.from_cf(crs.cf).is_same(crs)


def test_an_id_that_the_parameters_contradict_is_no_code() -> None:
    document = dict(Crs.from_user("EPSG:32632").projjson) | {"id": {"authority": "EPSG", "code": 32633}}
    crs = Crs.from_user(document)
    assert crs.code is None
    assert crs.is_same(Crs.from_user("EPSG:32632"))


@pytest.mark.parametrize(
    ("text", "is_geographic", "units", "metres", "is_y_first"),
    [
        ("EPSG:4326", True, "degrees", 111319.49079327358, True),
        ("OGC:CRS84", True, "degrees", 111319.49079327358, False),
        ("EPSG:32632", False, "m", 1.0, False),
        ("EPSG:2193", False, "m", 1.0, True),
        ("EPSG:3031", False, "m", 1.0, False),
        ("EPSG:32661", False, "m", 1.0, True),
        ("EPSG:2263", False, "US_survey_foot", 1200 / 3937, False),
        ("EPSG:2222", False, "international_foot", 0.3048, False),
        ("+proj=utm +zone=32 +units=km", False, "km", 1000.0, False),
    ],
)
def test_units_and_axes(text, is_geographic, units, metres, is_y_first) -> None:
    crs = Crs.from_user(text)
    assert (crs.is_geographic, crs.units, crs.is_y_first) == (is_geographic, units, is_y_first)
    assert crs.metres_per_unit == pytest.approx(metres, rel=1e-12)


@pytest.mark.parametrize("value", ["EPSG:0", "", True, 3.5, {}, {"grid_mapping_name": "no such thing"}, -1])
def test_what_is_no_crs_is_refused(value) -> None:
    with pytest.raises(MetadataError, match="CRS"):
        Crs.from_user(value)


def test_without_pyproj_the_error_names_the_extra_and_nothing_else_needs_it() -> None:
    program = """
import sys
from typing import Any
sys.modules["pyproj"] = None
import numpy as np
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.write import render_geo
from zstore.errors import UnsupportedError
from zstore.testing.conventions import build_tree
geo = GeoModel(None, Affine(1, 0, 0, 0, -1, 0), (4, 5), variables={"v": Variable(np.dtype("u1"), ("y", "x"))})
assert read_geo(build_tree(render_geo(geo, 3)[0], geo, 3)) == (geo, [])
try:
    Crs.from_user("EPSG:4326")
except UnsupportedError as error:
    assert "zstore[geo]" in str(error)
else:
    raise AssertionError("no error")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_crs_without_a_name_is_called_by_its_method() -> None:
    parameters = {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [25.0, 25.0]}
    crs = Crs.from_cf({**parameters, "longitude_of_central_meridian": 265.0, "earth_radius": 6371229.0})
    assert crs.code is None
    assert crs.label == "unnamed lambert_conformal_conic, ellipsoid of 6371229 m"


@pytest.mark.parametrize(
    ("shape", "is_searched"),
    [
        ({"earth_radius": 6371001.0}, False),
        ({"semi_major_axis": 6378001.0, "semi_minor_axis": 6356001.0}, False),
        ({"semi_major_axis": 6378001.0, "inverse_flattening": 298.0, "horizontal_datum_name": "mine"}, False),
        ({"semi_major_axis": True, "inverse_flattening": 298.0}, True),
        ({"semi_major_axis": 6378002.0}, True),
        ({"earth_radius": 6371002.0, "longitude_of_prime_meridian": 2.3}, True),
    ],
    ids=str,
)
def test_a_meridian_that_nobody_states_is_no_search(monkeypatch, shape, is_searched) -> None:
    """The CRS is pyproj's own; only where it is certain that pyproj would take Greenwich is it told."""
    parameters = {"grid_mapping_name": "latitude_longitude", **shape}
    expected = pyproj.CRS.from_cf(parameters).to_wkt()
    asked: list[dict[str, Any]] = []
    from_cf = pyproj.CRS.from_cf
    monkeypatch.setattr(pyproj.CRS, "from_cf", lambda told: asked.append(told) or from_cf(told))
    assert Crs.from_cf(parameters).wkt == expected
    assert ["Greenwich" in told.values() for told in asked] == [not is_searched]
