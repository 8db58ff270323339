"""Stores that others wrote, read as the tools that wrote them mean them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from zstore.geo.conventions.base import Affine
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo

from .nodes import FakeArray, FakeGroup, wrap

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
MANIFEST = FIXTURES / "manifest.json"
pytestmark = pytest.mark.skipif(not MANIFEST.exists(), reason=f"no fixtures at {FIXTURES}")


def entries(*kinds: str) -> list:
    if not MANIFEST.exists():
        return []
    found = json.loads(MANIFEST.read_text())
    found = found if isinstance(found, list) else found["entries"]
    return [pytest.param(entry, id=entry["name"]) for entry in found if entry["kind"] in kinds]


def opened(entry: dict):
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the fixtures for this test")
    return wrap(zarr.open_group(str(FIXTURES / entry["path"]), mode="r"))


@pytest.mark.parametrize("entry", entries("geo"))
def test_a_raster_lies_where_its_writer_put_it(entry) -> None:
    expected = entry["expected"]["geo"]
    above, _, name = entry["array_path"].rpartition("/")
    try:
        group = opened(entry)
        parent = group[above] if above else group
        node = parent[name]
    except TypeError as error:
        if entry["expect"] != "error_or_ok":
            raise
        pytest.skip(f"zarr-python refuses the store: {error}")
    geo, findings = read_geo(node, parent)
    wanted = expected["epsg"] or expected["crs"]
    if wanted == "IGNF:ETRS89LAEA":
        # The source has no code; its datum is only "unknown, based on GRS 80".
        assert geo.crs.cf["grid_mapping_name"] == "lambert_azimuthal_equal_area"
        assert (geo.crs.cf["false_easting"], geo.crs.cf["false_northing"]) == (4321000.0, 3210000.0)
    else:
        assert geo.crs == (None if wanted is None else Crs.from_user(wanted))
    # To a millionth of a cell, over the whole extent: coordinates are rounded to float64.
    affine = Affine.from_user(expected["transform"])
    np.testing.assert_allclose(geo.affine.bounds(geo.shape), affine.bounds(geo.shape), atol=1e-6 * affine.a)
    if "nodata" in expected:
        assert geo.variables[name].nodata == expected["nodata"]
    # The STAC attributes of this store are off by their own raster's height.
    is_contradictory = "stac_proj_epsg" in entry["name"]
    assert ("MS-28" in {finding.rule for finding in findings}) is is_contradictory


@pytest.mark.parametrize("entry", entries("multiscale"))
def test_a_pyramids_levels(entry) -> None:
    """In GeoZarr's words (convention "geozarr"), as several writers have them."""
    geo, findings = read_geo(opened(entry))
    expected = entry["expected"]
    if "levels" in expected:
        wanted = {path: level["shape"][-2:] for path, level in expected["levels"].items()}
        factors = {path: (level["factor"],) * 2 for path, level in expected["levels"].items()}
        assert {level.path: level.factors for level in geo.levels} == factors
    else:
        stated = expected["multiscale"]
        wanted = dict(zip(stated["levels"], stated["shapes"], strict=True))
    found = {level.path: list(level.shape) for level in geo.levels}
    name = next(iter(wanted)).rpartition("/")[2]
    if name not in {path.rpartition("/")[2] for path in found}:
        found = {f"{path}/{name}": shape for path, shape in found.items()}
    assert list(found.items()) == list(wanted.items())
    if geo.affine is not None:
        for level in geo.levels:
            np.testing.assert_allclose(level.affine, geo.affine.scaled(level.factors), rtol=1e-9)
    if "ndpyramid" in entry["name"]:
        # Every level of it has the finest's GeoTransform, beside coordinates that are right.
        stale = [finding for finding in findings if finding.rule == "MS-28"]
        assert len(stale) == len(geo.levels) - 1


@pytest.mark.parametrize("entry", entries("eopf"))
def test_sentinel_products_whose_coordinates_have_no_chunks(entry) -> None:
    product = opened(entry)
    geo, _ = read_geo(product["measurements/reflectance/r10m"])
    assert (geo.crs.code, geo.shape) == ("EPSG:32632", (10980, 10980))
    assert geo.affine == Affine(10.0, 0.0, 699960.0, 0.0, -10.0, 4700040.0)
    reflectance = product["measurements/reflectance"]
    if "multiscales" in reflectance.attrs:
        geo, findings = read_geo(reflectance)
        assert [level.path for level in geo.levels] == ["r10m", "r20m", "r60m", "r120m", "r360m", "r720m"]
        assert [level.factors for level in geo.levels[:5]] == [(1, 1), (2, 2), (6, 6), (12, 12), (36, 36)]
        assert {level.affine.c for level in geo.levels} == {699960.0}
        assert any("proj:shape" in finding.message for finding in findings)


def layout_tree(attributes: dict) -> FakeGroup:
    """The group of a convention's example, with the arrays that its layout names."""
    root = FakeGroup(attrs=attributes)
    names = tuple(attributes.get("spatial:dimensions", "YX"))
    for place, item in enumerate(attributes["multiscales"]["layout"]):
        shape = item.get("spatial:shape", [64 >> place, 32 >> place])
        array = FakeArray("data", np.broadcast_to(np.uint8(0), shape), names)
        group, _, name = item["asset"].rpartition("/")
        if group:
            root.children[group] = FakeGroup(group, children={name: array})
        else:
            root.children[name] = FakeGroup(name, children={"data": array})
    return root


@pytest.mark.parametrize("entry", entries("convention"))
def test_the_conventions_own_examples(entry) -> None:
    """The documents that come with their texts (convention "zarr_conventions")."""
    document = json.loads((FIXTURES / entry["path"]).read_text())
    attributes = document["attributes"]
    if document["node_type"] == "array":
        box, affine = attributes.get("spatial:bbox"), attributes["spatial:transform"]
        extent = None if box is None else Affine(*affine).cell_at(box[2], box[1])
        shape = (4, 4) if extent is None else (round(extent[1]), round(extent[0]))
        data = np.broadcast_to(np.uint8(0), shape)
        geo, findings = read_geo(FakeArray("a", data, ("Y", "X"), attributes))
        assert list(geo.affine) == attributes["spatial:transform"]
        assert findings == []
    else:
        geo, _ = read_geo(layout_tree(attributes))
        layout = attributes["multiscales"]["layout"]
        if "spatial:transform" in layout[0]:
            layout = sorted(layout, key=lambda item: item["spatial:transform"][0])
        assert [level.path for level in geo.levels] == [item["asset"] for item in layout]
        for level, item in zip(geo.levels, layout, strict=True):
            if "spatial:transform" in item:
                assert list(level.affine) == item["spatial:transform"]
    if any(key in attributes for key in ("proj:code", "proj:wkt2", "proj:projjson")):
        stated = next(
            attributes[key] for key in ("proj:code", "proj:wkt2", "proj:projjson") if key in attributes
        )
        assert geo.crs == Crs.from_user(stated)
    else:
        assert geo.crs is None
