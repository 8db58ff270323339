"""Stores that the documents show and other tools wrote: what is wrong with them, and GDAL after fixing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.crs import Crs
from zstore.geo.validation.fixing.fix import fix, plan_fix
from zstore.geo.validation.run import validate
from zstore.storage.memory import MemoryStore

from .stores import UTM, model, right

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
STORES = FIXTURES / "stores"
needs_fixtures = pytest.mark.skipif(not STORES.exists(), reason=f"no fixtures at {FIXTURES}")


def mini_example() -> MemoryStore:
    """The mini spec's "Custom CRS" layout, with the coordinates that its GeoTransform means."""
    store = MemoryStore()
    matrices = [
        {
            "id": name,
            "scaleDenominator": denominator,
            "cellSize": cell,
            "pointOfOrigin": [299960.0, 9000000.0],
            "tileWidth": tile,
            "tileHeight": tile,
            "matrixWidth": size,
            "matrixHeight": size,
        }
        for name, denominator, cell, tile, size in (
            ("0", 35.28, 10.0, 1024, 1094),
            ("1", 70.56, 20.0, 512, 547),
        )
    ]
    tile_matrix_set = {
        "id": "UTM_Zone_33N_Sentinel2",
        "crs": "EPSG:32633",
        "orderedAxes": ["E", "N"],
        "tileMatrices": matrices,
    }
    multiscales = {"tile_matrix_set": tile_matrix_set, "resampling_method": "average"}
    zstore.create_group(store, attributes={"multiscales": multiscales})
    crs = Crs.from_user("EPSG:32632")
    mapping = {
        **crs.cf,
        "crs_wkt": crs.wkt,
        "spatial_ref": crs.wkt,
        "GeoTransform": "300000.0 10.0 0.0 5000040.0 0.0 -10.0",
    }
    for level, size, chunk, cell in (("0", 1094, 1024, 10.0), ("1", 547, 512, 20.0)):
        zstore.create_group(store, level)
        for name in ("red", "nir"):
            zstore.create_array(
                store, f"{level}/{name}", shape=(size, size), dtype="uint16", chunks=(chunk, chunk),
                dimension_names=("y", "x"), attributes={"grid_mapping": "spatial_ref"},
            )  # fmt: skip
        zstore.create_array(
            store,
            f"{level}/spatial_ref",
            shape=(),
            dtype="int32",
            chunks=(),
            dimension_names=(),
            attributes=mapping,
        )
        for name, start, step in (("x", 300000.0, cell), ("y", 5000040.0, -cell)):
            centres = start + step * (np.arange(size) + 0.5)
            zstore.create_array(store, f"{level}/{name}", data=centres, chunks=-1, dimension_names=(name,))
    return store


def found(verdict: Any) -> set[tuple[str, str]]:
    return {(finding.rule, finding.path) for finding in verdict.findings if finding.severity == "error"}


def test_the_mini_specs_own_example_is_wrong_in_six_places() -> None:
    verdict = validate(mini_example(), "geozarr-mini")
    errors = found(verdict)
    # CRS of the set; where the matrices begin; cells for tiles; the scale; level 1's transform; no names.
    assert errors >= {("MS-24", ""), ("GZ-41", ""), ("GZ-44", ""), ("GZ-45", ""), ("MS-28", "1/red")}
    assert {rule for rule, _ in errors} == {
        "MS-24",
        "GZ-41",
        "GZ-44",
        "GZ-45",
        "MS-28",
        "MS-06",
        "MS-07",
        "MS-08",
    }
    widths = [f.message for f in verdict.findings if f.rule == "GZ-44" and "matrixWidth" in f.message]
    assert widths == [
        "matrixWidth of tile matrix '0' is 1094; the level has 2 tiles",
        "matrixWidth of tile matrix '1' is 547; the level has 2 tiles",
    ]


def test_the_mini_specs_own_example_is_fixed() -> None:
    plan = plan_fix(mini_example(), "geozarr-mini")
    assert {rule for rule, _ in found(plan.after)} == {"MS-06"}
    stated = zstore.open_group(plan.store, mode="r").attrs["multiscales"]["tile_matrix_set"]
    assert [m["matrixWidth"] for m in stated["tileMatrices"]] == [2, 2]
    assert stated["tileMatrices"][0]["scaleDenominator"] == pytest.approx(35714.285714285714)
    assert stated["tileMatrices"][0]["pointOfOrigin"] == [300000.0, 5000040.0]
    assert stated["id"] == "UTM_Zone_33N_Sentinel2" and Crs.from_user(stated["crs"]).code == "EPSG:32632"


def test_the_mini_specs_nonary_grid_lacks_members() -> None:
    store = mini_example()
    group = zstore.open_group(store, mode="r+")
    stated = group.attrs["multiscales"]
    stated["tile_matrix_set"] = {
        "id": "Custom_Nonary_Grid",
        "crs": "EPSG:4326",
        "tileMatrices": [
            {"id": str(n), "matrixWidth": 3**n, "matrixHeight": 3**n, "tileWidth": 256, "tileHeight": 256}
            for n in range(3)
        ],
    }
    group.attrs["multiscales"] = stated
    verdict = validate(store, "geozarr-mini")
    lacking = [f.message for f in verdict.findings if f.rule == "MS-25"]
    assert any("scaleDenominator, cellSize, pointOfOrigin" in message for message in lacking)


def test_the_drafts_own_examples() -> None:
    store = MemoryStore()
    multiscales = {"tile_matrix_set": "WebMercatorQuad", "resampling_method": "nearest"}
    zstore.create_group(store, attributes={"multiscales": multiscales, "Conventions": "CF-1.10"})
    side = 20037508.342789244
    crs = Crs.from_user("EPSG:3857")
    for zoom in (0, 1):
        size, cell = 256 * 2**zoom, 2 * side / (256 * 2**zoom)
        zstore.create_group(store, str(zoom))
        attributes = {
            "standard_name": "air_temperature",
            "units": "K",
            "long_name": "Surface air temperature",
            "_FillValue": -9999.0,
            "grid_mapping": "spatial_ref",
        }
        zstore.create_array(
            store, f"{zoom}/t", shape=(size, size), dtype="float32", chunks=(256, 256), attributes=attributes,
            dimension_names=("y", "x"),
        )  # fmt: skip
        zstore.create_array(
            store, f"{zoom}/spatial_ref", shape=(), dtype="int32", chunks=(), dimension_names=(),
            attributes={**crs.cf, "crs_wkt": crs.wkt},
        )  # fmt: skip
        for name, start, step in (("x", -side, cell), ("y", side, -cell)):
            kind = {"standard_name": f"projection_{name}_coordinate", "units": "m", "axis": name.upper()}
            zstore.create_array(
                store, f"{zoom}/{name}", data=start + step * (np.arange(size) + 0.5), chunks=-1,
                dimension_names=(name,), attributes=kind,
            )  # fmt: skip
    verdict = validate(store, "geozarr-draft")
    assert found(verdict) == set()
    # Listing 5's plain -9999.0 is what xarray refuses to open.
    listing = [finding for finding in verdict.findings if finding.rule == "GZ-16"]
    assert [finding.path for finding in listing] == ["0/t", "1/t"] and "xarray" in listing[0].message
    after = plan_fix(store).after
    assert "GZ-16" not in after.by_rule()


@needs_fixtures
@pytest.mark.parametrize(
    "name, errors, more",
    [
        # GDAL and rioxarray write what is right, in their own dialects only.
        ("geo/gdal362_v2_rgb_zstd.zarr", set(), {"MS-05", "GZ-14"}),
        ("geo/gdal3122_v3_rgb_zstd.zarr", set(), {"MS-05", "GZ-14"}),
        ("geo/rioxarray_v3_shade.zarr", set(), {"MS-05", "GZ-14"}),
        # Every level has the finest's GeoTransform; the list has no version, and groups for arrays.
        ("geo/ndpyramid_shade.zarr", {"MS-28"}, {"OC-10", "GZ-14", "MS-05"}),
        # GDAL's own test of STAC's attributes, off by the raster's height.
        ("gdal/zarr_with_stac_proj_epsg.zarr", {"MS-28"}, {"MS-05"}),
    ],
)
def test_what_other_tools_write(name, errors, more) -> None:
    verdict = validate(STORES / name)
    assert {rule for rule, _ in found(verdict)} == errors
    assert more <= set(verdict.by_rule())


@needs_fixtures
def test_sentinel_products_of_eopf() -> None:
    product = next((STORES / "eopf/optimized_geozarr_examples").iterdir(), None)
    if product is None:
        pytest.skip("the product is not among the fixtures")
    verdict = validate(product, path="measurements/reflectance")
    rules = {rule for rule, _ in found(verdict)}
    # Levels hold other bands, carry the finest's proj:shape, and a bounding box of nothing.
    assert {"GZ-32", "ZC-06", "ZC-05"} <= rules


@needs_fixtures
@pytest.mark.parametrize(
    "name", ["ndpyramid_shade.zarr", "geozarr_control_shade.zarr", "gdal362_v2_rgb_zstd.zarr"]
)
def test_after_fixing_nothing_is_wrong_and_gdal_opens_it_right(name, tmp_path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="GDAL opens the store through rasterio")
    version = tuple(map(int, rasterio.__gdal_version__.split(".")[:2]))
    place = tmp_path / "a.zarr"
    shutil.copytree(STORES / "geo" / name, place)
    fix(place)
    assert validate(place).count("error") == 0
    assert plan_fix(place).changes == {}
    group = zstore.open_group(place, mode="r")
    levels = [path for path in ("0", "1") if path in group] or [""]
    for level in levels:
        data = next(n for n, a in (group[level] if level else group).arrays() if a.ndim >= 2)
        array = group[f"{level}/{data}".strip("/")]
        if array.zarr_format == 3 and version < (3, 11):
            pytest.skip(f"GDAL {rasterio.__gdal_version__} does not read Zarr v3")
        if array.shards is not None and version < (3, 13):
            pytest.skip(f"GDAL {rasterio.__gdal_version__} has no codec for shards")
        with rasterio.open(f'ZARR:"{place}":/{array.path}') as source:
            from zstore.geo.conventions.read import read_geo

            geo, _ = read_geo(array, group[level] if level else group)
            assert Crs.from_user(source.crs.to_wkt()).is_same(geo.crs)
            np.testing.assert_allclose(source.transform[:6], geo.affine, rtol=1e-9)


def test_gdal_places_a_fixed_level_where_it_is(tmp_path) -> None:
    """A level with edges for centres: half a cell off in GDAL before, right after."""
    rasterio = pytest.importorskip("rasterio", reason="GDAL opens the store through rasterio")
    place = tmp_path / "a.zarr"
    store = right(2, model())
    for key in store.list():
        path = place / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(store.get(key)))
    for name, start, step in (("x", UTM.c, 20.0), ("y", UTM.f, -20.0)):
        array = zstore.open_array(place, f"1/{name}", mode="r+")
        array[...] = start + step * np.arange(array.shape[0])

    def corner() -> tuple[float, float]:
        with rasterio.open(f'ZARR:"{place}":/1/b02') as source:
            return source.transform.c, source.transform.f

    assert corner() == (299990.0, 5000050.0)
    plan, _ = fix(place)
    assert {"GZ-29"} <= {done.rule for done in plan.fixed}
    assert corner() == (300000.0, 5000040.0)
