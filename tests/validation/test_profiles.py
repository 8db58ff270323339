"""Profiles: found in what others wrote by them, with classes of their own, and no false errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError
from zstore.geo.conventions.read import read_geo
from zstore.geo.validation.run import validate
from zstore.storage.memory import MemoryStore

from .stores import UTM, Documents, model, right

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
IDENTITY = [{"type": "identity", "input": {"path": "s0"}, "output": {"name": "physical"}}]


def arrays(store: MemoryStore, paths: dict[str, tuple[int, ...]], zarr_format: int, **options: Any) -> None:
    for path, shape in paths.items():
        zstore.create_array(
            store,
            path,
            shape=shape,
            dtype="u1",
            chunks=shape,
            zarr_format=zarr_format,
            fill_value=0,
            **options,
        )


def axes() -> list[dict[str, str]]:
    return [{"name": "z", "type": "space"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]


def scaled(path: str, factor: float) -> dict[str, Any]:
    steps = [{"type": "scale", "scale": [1.0, factor, factor]}]
    return {"path": path, "coordinateTransformations": steps}


def ome_04() -> MemoryStore:
    """As ome-zarr-py writes version 0.4: Zarr v2, whose arrays have no names for their dimensions."""
    store = MemoryStore()
    stated = [
        {"version": "0.4", "name": "/", "axes": axes(), "datasets": [scaled("s0", 1.0), scaled("s1", 2.0)]}
    ]
    zstore.create_group(store, zarr_format=2, attributes={"multiscales": stated})
    arrays(store, {"s0": (4, 64, 64), "s1": (4, 32, 32)}, 2)
    return store


def ome_05() -> MemoryStore:
    """As ome-zarr-py writes version 0.5: levels are arrays of one group, with the same dimensions."""
    store = MemoryStore()
    image = {"name": "/", "axes": axes(), "datasets": [scaled("s0", 1.0), scaled("s1", 2.0)]}
    zstore.create_group(store, attributes={"ome": {"version": "0.5", "multiscales": [image]}})
    arrays(store, {"s0": (4, 64, 64), "s1": (4, 32, 32)}, 3, dimension_names=("z", "y", "x"))
    return store


def ome_06() -> MemoryStore:
    store = MemoryStore()
    sequence = {
        "type": "sequence",
        "input": {"path": "s1"},
        "output": {"name": "physical"},
        "transformations": [
            {"type": "scale", "scale": [1.0, 2.0, 2.0]},
            {"type": "translation", "translation": [0.0, 0.5, 0.5]},
        ],
    }
    datasets = [
        {"path": "s0", "coordinateTransformations": IDENTITY},
        {"path": "s1", "coordinateTransformations": [sequence]},
    ]
    systems = [{"name": "other", "axes": axes()[::-1]}, {"name": "physical", "axes": axes()}]
    outer = {"type": "scale", "scale": [9.0] * 3, "input": {"name": "physical"}, "output": {"name": "other"}}
    image = {"coordinateSystems": systems, "datasets": datasets, "coordinateTransformations": [outer]}
    zstore.create_group(store, attributes={"ome": {"version": "0.6", "multiscales": [image]}})
    arrays(store, {"s0": (4, 64, 64), "s1": (4, 32, 32)}, 3, dimension_names=("z", "y", "x"))
    return store


def ndpyramid() -> MemoryStore:
    """As ndpyramid writes: a list of groups, each of which has a list of itself, without a version."""
    store = MemoryStore()
    stated = [{"datasets": [{"path": "0", "level": 0, "crs": "EPSG:3857"}, {"path": "1", "level": 1}]}]
    zstore.create_group(store, attributes={"multiscales": stated})
    for level, length in (("0", 128), ("1", 256)):
        own = {"multiscales": [{"datasets": [{"path": ".", "level": 0}]}]}
        zstore.create_group(store, level, attributes=own)
        options = {"zarr_format": 3, "chunks": -1}
        affine = UTM.scaled((256 // length, 256 // length))
        for name, values in zip("yx", affine.coordinates((length, length)), strict=True):
            zstore.create_array(store, f"{level}/{name}", data=values, dimension_names=(name,), **options)
        zstore.create_array(
            store,
            f"{level}/b02",
            data=np.zeros((length, length), "f4"),
            dimension_names=("y", "x"),
            **options,
        )
    return store


def topozarr() -> MemoryStore:
    """As topozarr writes: the three conventions, a method of its own name, no CF beside the coordinates."""
    store = right(3, profile="geozarr-1.0")
    documents = Documents(store)
    documents.multiscales(lambda m: m.update(resampling_method="mean"))
    for level in ("0", "1"):
        documents.set(f"{level}/b02", grid_mapping=None, coordinates=None, _CRS=None)
        documents.remove(f"{level}/spatial_ref")
        for name in "yx":
            documents.set(f"{level}/{name}", standard_name=None, units=None, axis=None, long_name=None)
    return store


def osi_saf() -> MemoryStore:
    """As OSI SAF writes sea ice: coordinates of a polar projection in km, and longitudes beside them."""
    store = MemoryStore()
    zstore.create_group(store, zarr_format=2, attributes={"Conventions": "CF-1.4"})
    stated = {"grid_mapping": "stere", "standard_name": "sea_ice_area_fraction", "units": "%"}
    options: dict[str, Any] = {"zarr_format": 2, "chunks": -1}
    data = np.zeros((112, 76), "i2")
    zstore.create_array(store, "ice", data=data, dimension_names=("yc", "xc"), attributes=stated, **options)
    for name, axis, first, count, step in (("xc", "X", -3850.0, 76, 100.0), ("yc", "Y", 5850.0, 112, -100.0)):
        described = {"axis": axis, "units": "km", "standard_name": f"projection_{axis.lower()}_coordinate"}
        values = first + step * np.arange(count)
        zstore.create_array(
            store, name, data=values, dimension_names=(name,), attributes=described, **options
        )
    crs = {
        "grid_mapping_name": "polar_stereographic", "straight_vertical_longitude_from_pole": -45.0,
        "latitude_of_projection_origin": 90.0, "standard_parallel": 70.0, "semi_major_axis": 6378273.0,
        "semi_minor_axis": 6356889.44891,
    }  # fmt: skip
    zstore.create_array(
        store, "stere", data=np.int32(0), dimension_names=(), attributes=crs, zarr_format=2, chunks=()
    )
    return store


def nczarr() -> MemoryStore:
    """As netCDF-C writes: scalars of one cell without dimensions, and NaN as Python spells it."""
    store = osi_saf()
    documents = Documents(store)
    documents.remove("stere")
    zstore.create_array(store, "stere", data=np.zeros(1, "i4"), zarr_format=2, chunks=-1)
    documents.set("stere", _ARRAY_DIMENSIONS=[], grid_mapping_name="latitude_longitude")
    documents.set("xc", _FillValue=float("nan"), units="degrees_east", standard_name="longitude")
    documents.set("yc", units="degrees_north", standard_name="latitude")
    return store


FOREIGN: dict[str, tuple[Callable[[], MemoryStore], str | None]] = {
    "ome-zarr-py, 0.4": (ome_04, "ome"),
    "ome-zarr-py, 0.5": (ome_05, "ome"),
    "OME-Zarr 0.6": (ome_06, "ome-0.6"),
    "ndpyramid": (ndpyramid, None),
    "topozarr": (topozarr, "geozarr-1.0"),
    "OSI SAF": (osi_saf, None),
    "NCZarr": (nczarr, None),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_others_write_raises_no_false_error(name: str) -> None:
    make, profile = FOREIGN[name]
    for asked in (None, "auto"):
        verdict = validate(make(), asked)
        assert [found for found in verdict.findings if found.severity == "error"] == []
        assert verdict.profile == (profile if asked else None)


@pytest.mark.parametrize(
    "profile, found",
    [
        (None, None),
        ("geozarr-draft", None),
        ("geozarr-mini", None),
        ("geozarr-1.0", None),
        ("multiscale-arrays", "multiscale-arrays"),
        ("gdal", "gdal"),
    ],
)
def test_the_profile_is_found_where_it_is_one(profile: str | None, found: str | None) -> None:
    # What zstore writes has the dialects of several, but for these two.
    levels = 0 if profile == "gdal" else 2
    store = right(3, model(levels=levels), profile=profile)
    if profile == "gdal":
        Documents(store).set("", zarr_conventions=None, **dict.fromkeys(("proj__code", "spatial__transform")))
    assert validate(store, "auto").profile == found


def test_the_classes_of_the_release_candidate() -> None:
    store = right(3, profile="geozarr-1.0")
    verdict = validate(store, "geozarr-1.0")
    assert verdict.findings == ()
    states = {found.uri.rpartition("/")[2]: found.state for found in verdict.classes}
    assert states == dict.fromkeys(("core", "proj", "spatial", "multiscales"), "pass")
    flat = validate(right(3, model(None, levels=0), profile="geozarr-1.0"), "geozarr-1.0")
    states = {found.name: found.state for found in flat.classes}
    assert states == {
        "core": "pass", "proj": "not applicable", "spatial": "pass", "multiscales": "not applicable",
    }  # fmt: skip
    Documents(store).set("1", proj__code="nobody's")
    broken = validate(store, "geozarr-1.0", ["proj"])
    states = {found.name: found.state for found in broken.classes}
    assert states["proj"] == "fail" and states["spatial"] == "not checked"
    with pytest.raises(MetadataError, match="multiscales"):
        validate(store, classes=["layouts"])


def test_what_the_release_candidate_has_no_word_for_is_not_written() -> None:
    attributes = zstore.open_group(right(3, profile="geozarr-1.0"), mode="r").attrs
    assert "tile_matrix_set" not in attributes["multiscales"]
    assert [entry["name"] for entry in attributes["zarr_conventions"]] == ["multiscales", "proj", "spatial"]


def test_a_code_is_written_as_every_version_of_the_convention_takes_it() -> None:
    degrees = UTM._replace(a=0.5, c=-20.0, e=-0.5, f=64.0)
    attributes = zstore.open_group(right(3, model("OGC:CRS84", degrees)), mode="r").attrs
    assert "proj:code" not in attributes and attributes["proj:wkt2"].startswith("GEOGCRS")
    geo, findings = read_geo(zstore.open_group(right(3, model("OGC:CRS84", degrees)), mode="r"))
    assert geo.crs is not None and geo.crs.code == "OGC:CRS84" and findings == []


def test_coordinate_systems_are_written_and_read() -> None:
    group = zstore.open_group(right(3, profile="ome-0.6"), mode="r")
    ome = group.attrs["ome"]
    image = ome["multiscales"][0]
    assert ome["version"] == "0.6" and "axes" not in image
    (system,) = image["coordinateSystems"]
    assert [axis["name"] for axis in system["axes"]] == ["y", "x"]
    for dataset, level in zip(image["datasets"], ("0/b02", "1/b02"), strict=True):
        (step,) = dataset["coordinateTransformations"]
        assert step["input"] == {"path": level} and step["output"] == {"name": system["name"]}
        assert [inner["type"] for inner in step["transformations"]] == ["scale", "translation"]
    assert [
        f for f in validate(right(3, profile="ome-0.6"), "ome-0.6").findings if f.severity != "note"
    ] == []


def test_a_scale_of_a_coordinate_system_places_the_levels() -> None:
    """The image's own system counts, whatever it is mapped to afterwards."""
    geo, findings = read_geo(zstore.open_group(ome_06(), mode="r"))
    assert [level.affine.cell for level in geo.levels] == [(1.0, 1.0), (2.0, 2.0)]
    assert [(level.affine.c, level.affine.f) for level in geo.levels] == [(-0.5, -0.5), (-0.5, -0.5)]
    assert not [found for found in findings if found.severity == "error"]
