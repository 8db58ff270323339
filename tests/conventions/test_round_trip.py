"""What is rendered is parsed back, whatever the grid, the CRS and the values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zstore.errors import MetadataError
from zstore.extensions.builtin import CONVENTIONS
from zstore.extensions.registry import conventions as registry
from zstore.geo.conventions.base import RESAMPLING_METHODS, Affine, Band, GeoModel, Stac, Variable
from zstore.geo.conventions.cf import Cf, Gdal
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.geozarr import Geozarr, ZarrConventions
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.timeaxis import TimeAxis
from zstore.geo.conventions.write import PROFILES, render_geo
from zstore.testing.conventions import ConventionContract, build_tree

pytest.importorskip("pyproj", reason="CRSs are parsed and rendered with pyproj (extra 'geo')")

# Those that say the levels of a pyramid.
LISTING = {"geozarr", "zarr_conventions", "multiscales", "ome"}
CUSTOM = "+proj=laea +lat_0=-31.5 +lon_0=10.25 +x_0=4321001 +y_0=3210000 +ellps=GRS80 +units=m"
CRSS = ["EPSG:4326", "EPSG:3857", "EPSG:32632", "EPSG:2193", "EPSG:27700", "EPSG:3031", "EPSG:2263", CUSTOM]


STACS = [
    Stac("item", {"type": "Feature", "id": "a", "links": []}),
    Stac("collection", {"type": "Collection", "id": "b"}),
    Stac("link", {"href": "https://example.org/c", "rel": "self"}),
    Stac("key", "item.json"),
]


@st.composite
def affines(draw) -> Affine:
    cell = draw(st.floats(1e-3, 1e5))
    origin = st.floats(-1e6, 1e6).map(lambda cells: cells * cell)
    is_square = draw(st.booleans())
    height = cell if is_square else draw(st.floats(0.1, 10.0)) * cell
    return Affine(cell, 0.0, draw(origin), 0.0, draw(st.sampled_from((-1.0, 1.0))) * height, draw(origin))


@st.composite
def bands(draw) -> Band:
    text = st.none() | st.text(min_size=1, max_size=4)
    number = st.none() | st.floats(0, 1e3)
    others = st.dictionaries(st.sampled_from(["gsd", "unit"]), st.integers() | st.text(max_size=3))
    return Band(draw(text), draw(text), draw(text), draw(number), draw(number), draw(others))


@st.composite
def times(draw) -> TimeAxis:
    dtype = draw(st.sampled_from(["i4", "i8", "<f8", "<u2"]))
    values = draw(st.lists(st.integers(0, 60_000), min_size=1, max_size=4))
    units = draw(st.sampled_from(["days since 1970-01-01", "hours since 2000-02-29T12:00:00Z"]))
    calendar = draw(st.sampled_from(["standard", "noleap", "proleptic_gregorian"]))
    attributes = draw(st.sampled_from([{}, {"long_name": "when", "bounds": "time_bnds"}]))
    return TimeAxis("time", np.array(values, dtype), units, calendar, attributes)


@st.composite
def variables(draw) -> Variable:
    dtype = np.dtype(draw(st.sampled_from(["u1", "i2", "u2", "i4", "u8", "f4", "f8"])))
    if dtype.kind == "f":
        nodata = st.floats(width=dtype.itemsize * 8)
    else:
        limits = np.iinfo(dtype)
        nodata = st.integers(int(limits.min), int(limits.max))
    numbers = st.floats(1e-6, 1e6)
    words = st.sampled_from(["surface_altitude", "B02 band", "m s-1"])
    return Variable(
        dtype,
        draw(st.sampled_from([("y", "x"), ("time", "y", "x"), ("x", "band", "y")])),
        nodata=draw(st.none() | nodata),
        scale_factor=draw(st.none() | numbers),
        add_offset=draw(st.none() | numbers),
        units=draw(st.none() | words),
        standard_name=draw(st.none() | words),
        long_name=draw(st.none() | words),
        area_or_point=draw(st.sampled_from([None, "Area"])),
        bands=tuple(draw(st.lists(bands(), max_size=1))),
        attributes=draw(st.sampled_from([{}, {"comment": "é", "n": [1, 2.5]}])),
    )


@st.composite
def models(draw) -> GeoModel:
    crs = Crs.from_user(draw(st.sampled_from(CRSS)))
    shape = (draw(st.integers(1, 3000)), draw(st.integers(1, 3000)))
    found = draw(st.dictionaries(st.sampled_from(["b02", "scl", "t"]), variables(), min_size=1))
    flat = GeoModel(crs, draw(affines()), shape, variables=found)
    count = draw(st.integers(0, 4))
    tile = (draw(st.integers(1, 600)), draw(st.integers(1, 600)))
    factors, levels = (1, 1), []
    for place in range(count):
        levels.append(flat.plan_level(draw(st.sampled_from([f"{place}", f"r{99 - place}"])), factors, tile))
        factors = (factors[0] * draw(st.integers(2, 4)), factors[1] * draw(st.integers(2, 4)))
    method = draw(st.sampled_from(RESAMPLING_METHODS)) if levels else None
    has_time = any("time" in variable.dimensions for variable in found.values())
    return GeoModel(
        crs,
        flat.affine,
        shape,
        ("y", "x"),
        tuple(levels),
        method,
        found,
        draw(st.none() | times()) if has_time else None,
        draw(st.sampled_from([None, *STACS])),
    )


def without_tiles(geo: GeoModel) -> GeoModel:
    return replace(geo, levels=tuple(replace(level, tile_shape=None) for level in geo.levels))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.sampled_from([2, 3]))
def test_parsing_what_was_rendered_gives_the_model_back(geo, zarr_format) -> None:
    documents, notices = render_geo(geo, zarr_format)
    found, findings = read_geo(build_tree(documents, geo, zarr_format))
    if any(finding.rule == "GZ-37" for finding in notices):
        geo = without_tiles(geo)
    assert findings == []
    assert found == geo


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.sampled_from([2, 3]), st.sampled_from([name for name in PROFILES if name != "default"]))
def test_every_profile_gives_the_model_back(geo, zarr_format, profile) -> None:
    try:
        documents, _ = render_geo(geo, zarr_format, profile=profile)
    except MetadataError as error:
        assert profile in ("ome", "ome-0.6") and geo.levels and "OME-Zarr" in error.message
        return
    found, findings = read_geo(build_tree(documents, geo, zarr_format))
    if profile == "gdal" and zarr_format == 3:
        # GDAL's own arrays have no other word for nodata than the fill value, which Zarr v3 demands.
        known = {name for name, variable in geo.variables.items() if variable.nodata is not None}
        geo, found = (
            replace(g, variables={n: v for n, v in g.variables.items() if n in known}) for g in (geo, found)
        )
    assert [finding for finding in findings if finding.severity != "note"] == []
    assert without_tiles(found) == without_tiles(geo)


# What each convention says of a model by itself, as far as it says anything.
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.sampled_from([2, 3]), st.sampled_from([offer.name for offer in CONVENTIONS]))
def test_every_convention_gives_its_share_of_the_model_back(geo, zarr_format, name) -> None:
    convention = registry.resolve(name)()
    try:
        documents, _ = render_geo(geo, zarr_format, [name])
    except MetadataError as error:
        assert name == "ome" and "OME-Zarr" in error.message
        return
    # Arrays of data are there in any case; without this convention's attributes where it has none for them.
    for path, document in render_geo(geo, zarr_format)[0].items():
        if path.rpartition("/")[2] in geo.variables:
            documents.setdefault(path, {**document, "attributes": {}})
            documents[path] = {**document, **documents[path]}
    tree = build_tree(documents, geo, zarr_format)
    root = convention.parse(tree)
    assert root.stac in ((geo.stac,) if name == "stac" else (None,))
    stated = {entry.path: entry for entry in root.levels or ()}
    assert set(stated) in ({level.path for level in geo.levels}, set())
    assert (root.levels is None) is not (bool(geo.levels) and name in LISTING)
    # What GeoZarr's documents have of zarr-conventions is theirs to read.
    layout = (registry.resolve("zarr_conventions")().parse(tree).levels or ()) if geo.levels else ()
    for entry, level in zip(
        layout, geo.levels if name in ("geozarr", "zarr_conventions") else (), strict=True
    ):
        assert (entry.path, entry.affine, entry.shape) == (level.path, level.affine, level.shape)
    for level in geo.levels if name == "geozarr" and stated else ():
        assert stated[level.path].fallback_affine == level.affine
    for level in geo.levels if name == "ome" else ():
        found = stated[level.path].fallback_affine
        assert found.cell == level.affine.cell and (found.c, found.f) == (0.0, 0.0)
    for grid in geo.grids:
        parent = tree[grid.path] if grid.path else tree
        for variable_name, variable in geo.variables.items():
            facts = convention.parse(parent[variable_name], parent)
            crss = {crs for _, crs in (*facts.crs, *convention.parse(parent).crs)}
            assert crss == ({geo.crs} if name in ("cf", "gdal", "zarr_conventions") else set())
            is_timed = name == "time" and geo.time is not None and "time" in variable.dimensions
            assert facts.time == (geo.time if is_timed else None)
            if name == "bands":
                assert (facts.variable.bands if facts.variable else ()) == variable.bands
            if name == "cf":
                expected = replace(variable, area_or_point=None, bands=())
                assert replace(facts.variable, attributes=expected.attributes) == expected


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.sampled_from([2, 3]))
def test_every_convention_finds_its_own_documents_right(geo, zarr_format) -> None:
    tree = build_tree(render_geo(geo, zarr_format)[0], geo, zarr_format)
    for convention in (Cf(), Gdal(), ZarrConventions(), Geozarr()):
        assert convention.check(tree, geo) == []
        for grid in geo.grids:
            parent = tree[grid.path] if grid.path else tree
            for name in geo.variables:
                assert convention.check(parent[name], geo, parent) == []


@pytest.mark.parametrize("name", [offer.name for offer in CONVENTIONS])
class TestBuiltIn(ConventionContract):
    @pytest.fixture(autouse=True)
    def named(self, name: str) -> None:
        self.name = name

    def make(self):
        return registry.resolve(self.name)()


def contract_of(kind: type) -> ConventionContract:
    contract = ConventionContract()
    contract.make = kind
    return contract


def test_the_contract_notices_a_convention_that_misplaces_the_origin() -> None:
    class Shifted(Gdal):
        name = "shifted"

        def parse(self, node, parent=None):
            facts = super().parse(node, parent)
            wrong = tuple((source, affine._replace(c=affine.c + 5)) for source, affine in facts.affines)
            return type(facts)(crs=facts.crs, affines=wrong)

    with pytest.raises(AssertionError, match="no affine of the model"):
        contract_of(Shifted).test_what_it_writes_it_reads_and_finds_no_fault_with()


def test_the_contract_notices_a_convention_that_nonsense_stops() -> None:
    class Careless(Gdal):
        name = "careless"

        def parse(self, node, parent=None):
            for word in node.attrs.get("GeoTransform", "").split():
                float(word)
            return super().parse(node, parent)

    with pytest.raises(AttributeError, match="has no attribute 'split'"):
        contract_of(Careless).test_nonsense_is_a_finding_and_never_an_error()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_rotated_raster_without_a_crs_comes_back(zarr_format) -> None:
    affine = Affine(
        17.320508075688775, 4.999999999999999, 100.0, 9.999999999999998, -8.660254037844387, 200.0
    )
    geo = GeoModel(None, affine, (15, 10), variables={"b": Variable(np.dtype("u1"), ("y", "x"))})
    documents, notices = render_geo(geo, zarr_format)
    assert set(documents) == {"", "b"}
    assert {finding.rule for finding in notices} == {"MS-04", "MS-11"}
    found, findings = read_geo(build_tree(documents, geo, zarr_format))
    assert (found, findings) == (geo, [])
    np.testing.assert_allclose(found.bounds, (100.0, 70.0961894323342, 348.20508075688775, 300.0))
