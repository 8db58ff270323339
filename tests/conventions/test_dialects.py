"""Pyramids in every dialect in use, as the programs that write them do it, with their known faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zstore.errors import MetadataError
from zstore.extensions.builtin import CONVENTIONS
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.levels import Ome
from zstore.geo.conventions.meaning import Meaning
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.write import PROFILES, load_profile, render_geo
from zstore.testing.conventions import build_tree, sample_models

from .nodes import FakeArray, FakeGroup

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
UTM = Affine(10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)


def rules(findings, severity="error") -> set[str]:
    return {finding.rule for finding in findings if finding.severity == severity}


def image(name="data", shape=(8, 6), dims=("y", "x"), **attributes) -> FakeArray:
    return FakeArray(name, np.broadcast_to(np.uint16(0), shape), dims, attributes)


def scale(*numbers, translation=None) -> list[dict]:
    found = [{"type": "scale", "scale": list(numbers)}]
    return found if translation is None else [*found, {"type": "translation", "translation": translation}]


def ome_tree(datasets, version="0.4", names=("y", "x"), shapes=((8, 6), (4, 3)), **item) -> FakeGroup:
    axes = [{"name": name, "type": "space"} for name in names]
    stated = [{"version": version, "axes": axes, "datasets": datasets, **item}]
    children = {d["path"]: image(d["path"], shape, names) for d, shape in zip(datasets, shapes, strict=True)}
    attrs = (
        {"multiscales": stated} if version < "0.5" else {"ome": {"version": version, "multiscales": stated}}
    )
    return FakeGroup(attrs=attrs, children=children)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_ome_counts_from_the_centre_of_the_first_cell(version) -> None:
    datasets = [
        {"path": "0", "coordinateTransformations": scale(-10.0, 10.0, translation=[5000035.0, 300005.0])},
        {"path": "1", "coordinateTransformations": scale(-20.0, 20.0, translation=[5000030.0, 300010.0])},
    ]
    geo, findings = read_geo(ome_tree(datasets, version))
    assert geo.affine == UTM and rules(findings) == set()
    assert [(level.path, level.factors) for level in geo.levels] == [("0", (1, 1)), ("1", (2, 2))]


def test_ome_that_puts_every_levels_centre_at_the_corner_is_read_as_it_says() -> None:
    # Many writers leave `translation` out: their coarser levels are half a cell off.
    datasets = [
        {"path": "0", "coordinateTransformations": scale(1.0, 1.0)},
        {"path": "1", "coordinateTransformations": scale(2.0, 2.0)},
    ]
    geo, _ = read_geo(ome_tree(datasets))
    assert [tuple(level.affine) for level in geo.levels] == [(1, 0, -0.5, 0, 1, -0.5), (2, 0, -1, 0, 2, -1)]


@pytest.mark.parametrize(
    ("axes", "is_told"),
    [
        (["c", "y", "x"], True),
        ([{"name": name} for name in "cyx"], True),
        (["c", "x", "y"], False),
        (None, False),
    ],
)
def test_axes_of_ome_name_the_dimensions_of_arrays_without_names(axes, is_told) -> None:
    """Of OME-Zarr 0.3 and 0.4, in Zarr v2, where ome-zarr-py names the axes of arrays nowhere else."""
    datasets = [
        {"path": path, "coordinateTransformations": scale(1.0, n, n)} for path, n in (("0", 1), ("1", 2))
    ]
    group = ome_tree(datasets, "0.4", ("c", "y", "x"), ((2, 8, 6), (2, 4, 3)), axes=axes)
    for array in group.children.values():
        array.dims = None
    geo, findings = read_geo(group)
    assert (geo.shape, len(geo.levels)) == ((8, 6), 2)
    assert ("GZ-43" not in {finding.rule for finding in findings}) is is_told


def test_an_images_own_transformation_comes_after_its_datasets() -> None:
    datasets = [{"path": "s0", "coordinateTransformations": scale(1.0, 1.0, 1.0)}]
    outer = scale(1.0, -10.0, 10.0, translation=[0.0, 5000035.0, 300005.0])
    group = ome_tree(datasets, "0.5", ("c", "y", "x"), ((2, 8, 6),), coordinateTransformations=outer)
    assert read_geo(group)[0].affine == UTM


def test_several_images_in_the_same_groups_are_one_pyramid() -> None:
    items = [{"version": "0.1", "name": n, "datasets": [{"path": f"{p}/{n}"} for p in "01"]} for n in "ab"]
    children = {
        path: FakeGroup(path, children={n: image(f"{path}/{n}", shape) for n in "ab"})
        for path, shape in (("0", (8, 6)), ("1", (4, 3)))
    }
    geo, findings = read_geo(FakeGroup(attrs={"multiscales": items}, children=children))
    assert [level.path for level in geo.levels] == ["0", "1"] and set(geo.variables) == {"a", "b"}
    items[1]["datasets"] = [{"path": "0/b"}]
    geo, findings = read_geo(FakeGroup(attrs={"multiscales": items}, children=children))
    assert [level.path for level in geo.levels] == ["0/a", "1/a"] and "OC-10" in rules(findings, "note")


def test_ndpyramids_list_runs_from_the_coarsest_and_names_its_crs() -> None:
    datasets = [{"path": str(zoom), "pixels_per_tile": 128, "crs": "EPSG:3857"} for zoom in range(3)]
    children = {
        str(zoom): FakeGroup(str(zoom), children={"t": image(f"{zoom}/t", (128 << zoom, 128 << zoom))})
        for zoom in range(3)
    }
    stated = [{"datasets": datasets, "type": "reduce", "metadata": {"method": "pyramid_reproject"}}]
    geo, _ = read_geo(FakeGroup(attrs={"multiscales": stated}, children=children))
    assert [level.path for level in geo.levels] == ["2", "1", "0"]
    assert (geo.crs.code, geo.resampling) == ("EPSG:3857", None)
    assert {level.tile_shape for level in geo.levels} == {(128, 128)}


def test_a_well_known_set_places_levels_that_say_nothing_else() -> None:
    children = {str(z): FakeGroup(str(z), children={"t": image("t", (256 << z, 512 << z))}) for z in range(2)}
    stated = {"tile_matrix_set": "WorldCRS84Quad", "resampling_method": "average"}
    geo, findings = read_geo(FakeGroup(attrs={"multiscales": stated}, children=children))
    assert geo.crs == Crs.from_user("OGC:CRS84") and geo.bounds == (-180.0, -90.0, 180.0, 90.0)
    assert [level.path for level in geo.levels] == ["1", "0"] and rules(findings) == set()
    stated["tile_matrix_set"] = "worldcrs84quad"
    geo, findings = read_geo(FakeGroup(attrs={"multiscales": stated}, children=children))
    assert geo.bounds == (-180.0, -90.0, 180.0, 90.0) and rules(findings) == {"GZ-38"}


def coordinates(affine: Affine, shape, shift: float) -> dict[str, FakeArray]:
    centres = affine.coordinates(shape)
    steps = (affine.e, affine.a)
    return {
        name: FakeArray(name, values + shift * step, (name,), {"axis": name.upper(), "units": "m"})
        for name, values, step in zip("yx", centres, steps, strict=True)
    }


def test_the_half_pixel_and_the_rest_of_eopf_geozarrs_converter() -> None:
    # Coarser levels have the edges of cells for coordinates, a stale dtype and scale, and wrong denominators.
    coarse = UTM.scaled((2, 2))
    mapping = FakeArray("spatial_ref", np.int32(0), (), {"crs_wkt": "EPSG:32632"})

    def level(path, affine, shape, shift, dtype, **attributes) -> FakeGroup:
        data = FakeArray(f"{path}/b02", np.zeros(shape, dtype), ("y", "x"), {"grid_mapping": "spatial_ref"})
        data.attrs |= attributes
        place = FakeArray("spatial_ref", mapping.values, (), {**mapping.attrs})
        place.attrs["GeoTransform"] = " ".join(map(str, affine.geotransform))
        children = {"b02": data, "spatial_ref": place, **coordinates(affine, shape, shift)}
        return FakeGroup(path, children=children)

    matrices = [
        {"id": path, "scaleDenominator": 37795.275 * cell / 10, "cellSize": cell,
         "pointOfOrigin": [300000, 5000040], "tileWidth": 8, "tileHeight": 8, "matrixWidth": 1,
         "matrixHeight": 1}
        for path, cell in (("0", 10.0), ("1", 20.0))
    ]  # fmt: skip
    stated = {
        "tile_matrix_set": {"id": "native", "crs": "EPSG:32632", "supportedCRS": "EPSG:32632",
                            "tileMatrices": matrices},
        "resampling_method": "average",
        "tile_matrix_limits": {},
    }  # fmt: skip
    group = FakeGroup(
        attrs={"multiscales": stated},
        children={
            "0": level("0", UTM, (8, 6), 0.0, "u2", scale_factor=0.0001),
            "1": level("1", coarse, (4, 3), -0.5, "f8"),
        },
    )
    geo, findings = read_geo(group)
    assert geo.affine == UTM and geo.levels[1].affine == coarse
    assert rules(findings) == {"GZ-29", "GZ-45", "GZ-33", "GZ-22"}
    (half,) = [finding for finding in findings if finding.rule == "GZ-29"]
    assert half.path == "1/b02" and "half a cell" in half.message


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_the_dialects_of_a_profile(name) -> None:
    geo = sample_models()[1]
    tree = build_tree(render_geo(geo, 3, profile=name)[0], geo, 3)
    found = set(Meaning().dialects(tree, "0"))
    assert {"CF", "GDAL _CRS", "zarr-conventions proj", "zarr-conventions spatial"} <= found
    assert ("OME-Zarr 0.5" in found) is (name == "ome")
    assert ("OME-Zarr 0.6" in found) is (name == "ome-0.6")
    assert ("Multiscale Arrays" in found) is (name == "multiscale-arrays")
    assert ("GeoZarr tile matrix set" in found) is (name not in ("geozarr-1.0", "multiscale-arrays", "gdal"))
    assert ("CF grid mapping" in found) is (name != "gdal")


def test_the_documentation_names_every_convention_and_profile() -> None:
    text = (Path(__file__).parents[2] / "docs" / "conventions.md").read_text()
    names = [offer.name for offer in CONVENTIONS] + [name for name in PROFILES if name != "default"]
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_dialects_of_others() -> None:
    attrs = {
        "multiscales": [{"version": "0.4", "axes": [], "datasets": []}],
        "stac:item": {},
        "_nczarr_group": {},
        "zarr_conventions": [{"name": "proj:"}, 7],
        "proj:code": "EPSG:4326",
    }
    group = FakeGroup(attrs=attrs, children={"a": image("a", **{"eo:bands": [], "GeoTransform": ""})})
    assert Meaning().dialects(group) == [
        "NCZarr",
        "proj:",
        "OME-Zarr 0.4",
        "STAC",
        "GDAL GeoTransform",
        "STAC bands",
    ]


def test_what_only_one_profile_says() -> None:
    geo = sample_models()[1]
    draft = render_geo(geo, 3, profile="geozarr-draft")[0][""]["attributes"]["multiscales"]["tile_matrix_set"]
    assert draft["supportedCRS"] == draft["crs"]
    mini = render_geo(geo, 3, profile="geozarr-mini")[0]
    assert mini["0/b02"]["attributes"]["_ARRAY_DIMENSIONS"] == ["y", "x"]
    assert mini["1"]["attributes"]["grid_mapping"] == "spatial_ref"
    listed = render_geo(geo, 2, profile="multiscale-arrays")[0][""]["attributes"]
    assert [d["path"] for d in listed["multiscales"][0]["datasets"]] == ["0/b02", "1/b02", "2/b02"]
    assert [entry["name"] for entry in listed["zarr_conventions"]] == ["proj", "spatial"]
    gdal = render_geo(geo, 3, profile="gdal")[0]
    assert "0/spatial_ref" not in gdal and "coordinates" not in gdal["0/b02"]["attributes"]
    with pytest.raises(MetadataError, match="expected one of default, geozarr-draft"):
        load_profile("geozarr")


def test_a_plain_raster_has_nothing_to_list_and_that_is_told() -> None:
    for name in ("ome", "multiscale-arrays"):
        documents, notices = render_geo(sample_models()[0], 3, profile=name)
        assert "multiscales" not in documents[""]["attributes"] and "ome" not in documents[""]["attributes"]
        assert [(notice.rule, notice.severity) for notice in notices] == [("GZ-37", "note")]


def test_ome_refuses_what_it_cannot_say() -> None:
    pyramid = sample_models()[1]
    with pytest.raises(MetadataError, match="Zarr v3"):
        Ome().render(pyramid, 2)
    swapped = Variable(np.dtype("u1"), ("x", "y"))
    with pytest.raises(MetadataError, match="axes"):
        Ome().render(
            GeoModel(pyramid.crs, UTM, pyramid.shape, levels=pyramid.levels, variables={"b": swapped}), 3
        )


def test_ome_counts_from_the_rasters_own_corner() -> None:
    pyramid = sample_models()[1]
    tree = build_tree(render_geo(pyramid, 3, profile="ome")[0], pyramid, 3)
    (listed,) = tree.attrs["ome"]["multiscales"]
    assert listed["axes"] == [{"name": name, "type": "space", "unit": "meter"} for name in "yx"]
    assert [d["coordinateTransformations"] for d in listed["datasets"][:2]] == [
        [{"type": "scale", "scale": [n, n]}, {"type": "translation", "translation": [n / 2, n / 2]}]
        for n in (10.0, 20.0)
    ]
    assert Ome().check(tree, pyramid) == []
    for path, numbers, severity in ((0, [11.0, 10.0], "error"), (1, [0.0, 0.0], "warning")):
        listed["datasets"][1]["coordinateTransformations"][path] |= {("scale", "translation")[path]: numbers}
        found = {finding.severity for finding in Ome().check(tree, pyramid)}
        assert severity in found
    bare = GeoModel(None, None, pyramid.shape, levels=pyramid.levels, variables=pyramid.variables)
    bare = replace(bare, levels=tuple(replace(level, affine=None) for level in bare.levels))
    (listed,) = Ome().render(bare, 3)[""]["attributes"]["ome"]["multiscales"]
    assert listed["datasets"][1]["coordinateTransformations"][0]["scale"] == [2.0, 2.0]
    assert "unit" not in listed["axes"][0]
