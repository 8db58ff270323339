"""Bands in STAC's words or by their wavelengths, and STAC objects in a group's attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zstore.geo.conventions.base import Affine, Band, GeoModel, Stac, Variable
from zstore.geo.conventions.content import Bands, StacConvention
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.write import render_geo

from .nodes import FakeArray, FakeGroup


def dataset(shape=(4, 5), dims=("y", "x"), attrs=None, group=None, **others) -> FakeGroup:
    return FakeGroup(attrs=group, children={"B04": FakeArray("B04", np.zeros(shape), dims, attrs), **others})


def bands_of(group: FakeGroup) -> tuple[tuple[Band, ...], list]:
    geo, findings = read_geo(group)
    return geo.variables["B04"].bands, [finding for finding in findings if finding.rule == "BANDS"]


RED = Band("B04", common_name="red", wavelength=0.665, width=0.038)


@pytest.mark.parametrize(
    "group",
    [
        dataset(attrs={"bands": [
            {"name": "B04", "eo:common_name": "red", "eo:center_wavelength": 0.665,
             "eo:full_width_half_max": 0.038},
        ]}),
        dataset(attrs={"eo:bands": [
            {"name": "B04", "common_name": "red", "center_wavelength": 0.665, "full_width_half_max": 0.038}
        ]}),
        dataset(group={"eo:bands": [
            {"name": "B03", "common_name": "green"},
            {"name": "B04", "common_name": "red", "center_wavelength": 0.665, "full_width_half_max": 0.038},
        ]}),
    ],
    ids=["bands", "eo:bands", "the group's"],
)  # fmt: skip
def test_a_band_in_stacs_words(group) -> None:
    assert bands_of(group) == ((RED,), [])


def test_bands_along_a_dimension() -> None:
    listed = [{"name": "red"}, {"name": "nir", "gsd": 10}]
    found, findings = bands_of(dataset((2, 4, 5), ("band", "y", "x"), {"bands": listed}))
    assert found == (Band("red"), Band("nir", others={"gsd": 10})) and findings == []
    wavelength = FakeArray("wavelength", [665.0, 842.0], ("band",), {"units": "nm"})
    found, _ = bands_of(dataset((2, 4, 5), ("band", "y", "x"), wavelength=wavelength))
    assert [band.wavelength for band in found] == pytest.approx([0.665, 0.842])
    named = FakeArray(
        "centre", [0.4], ("b",), {"standard_name": "sensor_band_central_radiation_wavelength", "units": "um"}
    )
    assert bands_of(dataset((1, 4, 5), ("b", "y", "x"), centre=named))[0] == (Band(wavelength=0.4),)
    unknown = FakeArray("wavelength", [1.0], ("band",), {"units": "furlong"})
    found, findings = bands_of(dataset((1, 4, 5), ("band", "y", "x"), wavelength=unknown))
    assert found == () and len(findings) == 1


@pytest.mark.parametrize("stated", ["B04", [1, 2], [], {"name": "B04"}, [{"name": "a"}, {"name": "b"}]])
def test_what_is_no_list_of_this_arrays_bands_is_told_and_kept(stated) -> None:
    group = dataset(attrs={"bands": stated})
    geo, findings = read_geo(group)
    assert geo.variables["B04"].bands == ()
    assert geo.variables["B04"].attributes == {"bands": stated}
    assert [finding.rule for finding in findings if finding.rule == "BANDS"] == ["BANDS"]


def test_words_that_are_of_another_type_stay() -> None:
    item = {"name": 4, "eo:center_wavelength": "red", "eo:common_name": "red"}
    (band,) = bands_of(dataset(attrs={"bands": [item]}))[0]
    assert band == Band(common_name="red", others={"name": 4, "eo:center_wavelength": "red"})
    geo = GeoModel(None, None, (4, 5), variables={"B04": Variable(np.dtype("u1"), bands=(band,))})
    assert Bands().render(geo, 3)["B04"]["attributes"] == {"bands": [item]}


ITEM = {"type": "Feature", "id": "scene", "assets": {"data": {"href": "0/b02"}}, "links": []}
COLLECTION = {"type": "Collection", "id": "all"}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"stac:item": ITEM}, Stac("item", ITEM)),
        ({"stac:encoding": "attribute", "stac:collection": COLLECTION}, Stac("collection", COLLECTION)),
        ({"stac:link": {"href": "https://x.org/i"}}, Stac("link", {"href": "https://x.org/i"})),
        (
            {"stac:encoding": "link", "stac:item": "https://x.org/i"},
            Stac("link", {"href": "https://x.org/i"}),
        ),
        ({"stac:encoding": "link", "stac:item": {"href": "i.json"}}, Stac("link", {"href": "i.json"})),
        ({"stac:key": "item.json"}, Stac("key", "item.json")),
        ({"stac:encoding": "key", "stac:item": "item.json"}, Stac("key", "item.json")),
    ],
)
def test_a_catalogues_word(attributes, expected) -> None:
    group = dataset(group=attributes)
    geo, findings = read_geo(group)
    assert geo.stac == expected
    assert [finding for finding in findings if finding.rule == "ZC-08"] == []
    documents, _ = render_geo(geo, 3)
    written = FakeGroup(attrs=documents[""]["attributes"])
    assert StacConvention().parse(written).stac == expected


@pytest.mark.parametrize(
    "attributes",
    [
        {"stac:item": "{}"},
        {"stac:item": {"type": "Collection"}},
        {"stac:collection": [COLLECTION]},
        {"stac:link": {"rel": "self"}},
        {"stac:key": 7},
        {"stac:item": ITEM, "stac:collection": COLLECTION},
        {"stac:item": ITEM, "stac:encoding": "zip"},
    ],
)
def test_what_is_no_word_of_a_catalogue_is_told(attributes) -> None:
    facts = StacConvention().parse(FakeGroup(attrs=attributes))
    assert [finding.rule for finding in facts.findings] == ["ZC-08"]


def test_a_datacube_that_lies_elsewhere_is_told() -> None:
    """By STAC's extension an item restates the axes: their CRS, and where they begin and end."""
    pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
    geo = GeoModel(Crs.from_user(32632), Affine(10.0, 0, 300000.0, 0, -10.0, 5000040.0), (100, 200))
    right = {"x": [300000, 302000], "y": [4999040, 5000040]}
    cases: list[tuple[Any, str]] = [({}, ""), ({"x": {"extent": [300005, 301995]}}, "")]
    cases += [({"x": {"extent": [300000, 303000]}}, "x.extent"), ({"y": {"extent": [0, 1]}}, "y.extent")]
    cases += [
        ({"y": {"reference_system": 32633}}, "y.reference_system"),
        ({"y": {"reference_system": "?"}}, "y.ref"),
    ]
    for changes, where in cases:
        said = {"type": "spatial", "reference_system": 32632}
        axes = {
            axis: {**said, "axis": axis, "extent": extent, **changes.get(axis, {})}
            for axis, extent in right.items()
        }
        for item in ({"properties": {"cube:dimensions": axes}}, {"cube:dimensions": axes}):
            found = StacConvention().check(FakeGroup(attrs={"stac:item": ITEM | item}), geo)
            assert [f"cube:dimensions.{where}" in one.message for one in found] == [True] * bool(where)


@pytest.mark.parametrize(
    "fault",
    [
        {"assets": {"a": {"href": "/0/b"}}},
        {"assets": {"a": {"href": "../b"}}},
        {"assets": {"a": {"href": "s3://bucket/b"}}},
        {"assets": {"a": {}}},
        {"links": [{"rel": "store", "href": "."}]},
    ],
)
def test_check_wants_references_within_the_group(fault) -> None:
    convention = StacConvention()
    geo = GeoModel(None, None, (1, 1))
    assert convention.check(FakeGroup(attrs={"stac:item": ITEM}), geo) == []
    found = convention.check(FakeGroup(attrs={"stac:item": {**ITEM, **fault}}), geo)
    assert [finding.rule for finding in found] == ["ZC-08"]
