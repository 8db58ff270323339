"""Levels that are coarser along a third axis, too: values, places, and what is made of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command
from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.levels import factors_along
from zstore.geo.pyramid.dataset import open_levels
from zstore.storage.memory import MemoryStore

PLACE = {
    "proj:code": "EPSG:32633",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 500000, 0, -30, 5000000],
}
SHAPE = (23, 70, 66)
HOLE = -9


@pytest.fixture
def volume():
    group = zstore.create_group(MemoryStore(), attributes=PLACE)
    random = np.random.default_rng(4)
    floats = random.normal(size=SHAPE).astype("f4")
    floats[random.random(SHAPE) < 0.3] = np.nan
    classes = random.integers(0, 4, SHAPE).astype("i2")
    said = {"_FillValue": HOLE}
    classes[random.random(SHAPE) < 0.3] = HOLE
    for name, data, attributes in (("floats", floats, {}), ("classes", classes, said)):
        options = {"chunks": (8, 32, 32), "dimension_names": ("z", "y", "x"), "attributes": attributes}
        group.create_array(name, data=data, **options)
    group.create_array("flat", data=floats[0], chunks=32, dimension_names=("y", "x"))
    group.create_array("z", data=100.0 - 5 * np.arange(SHAPE[0]), dimension_names=("z",))
    group.create_array("words", data=np.arange(SHAPE[0]).astype("U2"), dimension_names=("z",))
    return group


def blocks(array, factors, reduced):
    """numpy's reduction of blocks of valid items; the last ones hold those that are left."""
    data = np.where(array == HOLE, np.nan, array) if array.dtype.kind == "i" else array
    padded = np.pad(
        data.astype("f8"),
        [(0, -n % f) for n, f in zip(data.shape, factors, strict=True)],
        constant_values=np.nan,
    )
    cut = [length for n, f in zip(padded.shape, factors, strict=True) for length in (n // f, f)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return reduced(padded.reshape(cut), axis=tuple(range(1, 2 * data.ndim, 2)))


REDUCED = {
    "average": np.nanmean,
    "max": np.nanmax,
    "min": np.nanmin,
    "rms": lambda cells, axis: np.sqrt(np.nanmean(cells**2, axis=axis)),
    "sum": lambda cells, axis: np.where(np.isnan(cells).all(axis=axis), np.nan, np.nansum(cells, axis=axis)),
}


@pytest.mark.parametrize("derive", ["auto", "cascade"])
@pytest.mark.parametrize("method", REDUCED)
def test_levels_are_the_reductions_of_blocks(volume, method, derive):
    """Those of the finest level's cells; or ("cascade") of the level before, whose cells count once each."""
    factors = (3, 2, 2)
    way = {"method": {"": method, "classes": "max"}, "derive": derive}
    made = zstore.build_pyramid(volume, MemoryStore(), factors=factors, levels=2, **way)
    before = volume["floats"][...]
    for level in (1, 2):
        if derive == "auto" or level == 1:
            expected = blocks(volume["floats"][...], [f**level for f in factors], REDUCED[method])
        else:
            expected = blocks(before, factors, REDUCED[method])
        found = made[f"{level}/floats"][...]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
        before = found
        most = blocks(volume["classes"][...], [f**level for f in factors], np.nanmax)
        np.testing.assert_array_equal(
            made[f"{level}/classes"][...], np.where(np.isnan(most), HOLE, most).astype("i2")
        )
        flat = blocks(volume["flat"][...], [2**level] * 2, REDUCED[method])
        if derive == "auto":
            np.testing.assert_allclose(made[f"{level}/flat"][...], flat, rtol=2e-5, atol=1e-6)


def test_nearest_and_mode_pick_cells(volume):
    factors, methods = {"z": 2, "y": 3, "x": 3}, {"": "nearest", "classes": "mode"}
    made = zstore.build_pyramid(volume, MemoryStore(), factors=factors, levels=1, method=methods)
    floats, classes = volume["floats"][...], volume["classes"][...]
    assert made["1/floats"].shape == (12, 24, 22)
    assert made["1/flat"].shape == (24, 22)
    np.testing.assert_array_equal(made["1/floats"][...], floats[::2, ::3, ::3])
    for z, y, x in ((0, 0, 0), (5, 13, 21), (11, 23, 7)):
        window = classes[2 * z : 2 * z + 2, 3 * y : 3 * y + 3, 3 * x : 3 * x + 3]
        values, counts = np.unique(window[window != HOLE], return_counts=True)
        assert counts[values == made["1/classes"][z, y, x]] == counts.max()


@pytest.mark.parametrize("profile", [None, "ome", "ome-0.6", "geozarr-draft"])
def test_places_are_said_and_validated(volume, profile):
    made = zstore.build_pyramid(volume, MemoryStore(), factors=(3, 2, 2), levels=2, profile=profile)
    np.testing.assert_allclose(made["1/z"][...], [*(95.0 - 15 * np.arange(7)), -7.5])
    np.testing.assert_allclose(made["2/z"][...], [80, 35, 0])
    assert "words" in made["0"] and "words" not in made["1"]
    assert made["2/floats"].dims == ("z", "y", "x") and made["2/floats"].shape == (3, 18, 17)
    verdict = zstore.validate(made.store, profile="auto", deep=True)
    assert not [one for one in verdict.findings if one.severity != "note"]
    levels = open_levels(made)
    assert [level.others for level in levels] == [{}, {"z": 3}, {"z": 9}]
    # An item of the finest level lies in one of each other.
    np.testing.assert_array_equal(
        levels[1].read("floats", (slice(0, 5), slice(0, 5)), items={"z": 22}), made["1/floats"][7, :5, :5]
    )
    if profile in ("ome", "ome-0.6"):
        images = {one["name"]: one for one in made.attrs["ome"]["multiscales"]}
        axes = images["floats"].get("axes") or images["floats"]["coordinateSystems"][0]["axes"]
        assert [(axis["name"], axis["type"]) for axis in axes] == [(name, "space") for name in "zyx"]
        told = images["floats"]["datasets"][2]["coordinateTransformations"]
        scale, translation = told if profile == "ome" else told[0]["transformations"]
        assert scale["scale"] == [9.0, 120.0, 120.0]
        assert translation["translation"] == [4.0, 60.0, 60.0]


def test_steps_and_units_of_axes_are_kept(volume):
    """Those of an image of OME-Zarr, as it states them, and those of a coordinate in rising steps."""
    source = zstore.create_group(MemoryStore())
    axes = [
        {"name": "c", "type": "channel"},
        {"name": "z", "type": "space", "unit": "micrometer"},
        {"name": "y", "type": "space", "unit": "micrometer"},
        {"name": "x", "type": "space", "unit": "micrometer"},
    ]
    steps = (
        {"type": "scale", "scale": [1.0, 0.5, 0.2, 0.2]},
        {"type": "translation", "translation": [0, 3.0, 0.1, 0.1]},
    )
    datasets = [{"path": "0/a", "coordinateTransformations": list(steps)}]
    outer = [{"type": "scale", "scale": [1.0, 2.0, 1.0, 1.0]}]
    image = {"axes": axes, "datasets": datasets, "coordinateTransformations": outer}
    source.attrs["ome"] = {"version": "0.5", "multiscales": [image]}
    data = np.ones((2, 8, 64, 64), "u2")
    source.create_array("0/a", data=data, dimension_names=("c", "z", "y", "x"))
    for zarr_source, factors in ((source, (2, 2, 2)), (source["0/a"], (1, 2, 2, 2))):
        for copies in (True, False):
            way = {"factors": factors, "levels": 2, "profile": "ome", "copy_base": copies}
            pyramid = zstore.build_pyramid(zarr_source, MemoryStore(), **way)
            # No CRS is wanted of what no place on Earth is.
            assert zstore.validate(pyramid, "ome").count("error") == 0
            (made,) = pyramid.attrs["ome"]["multiscales"]
            if zarr_source is source:
                assert made["axes"] == axes
                told = made["datasets"][-1]["coordinateTransformations"]
                assert told[0]["scale"] == [1.0, 4.0, 0.8, 0.8]
                assert told[1]["translation"] == [0.0, 6.0 + 1.5, 0.4, 0.4]
    volume["z"][...] = 2.0 + 0.25 * np.arange(SHAPE[0])
    volume["z"].attrs["units"] = "m"
    made = zstore.build_pyramid(volume, MemoryStore(), factors=(2, 2, 2), levels=1, profile="ome")
    image = next(one for one in made.attrs["ome"]["multiscales"] if one["name"] == "floats")
    assert image["axes"][0] == {"name": "z", "type": "space", "unit": "meter"}
    scale, translation = image["datasets"][1]["coordinateTransformations"]
    assert (scale["scale"][0], translation["translation"][0]) == (0.5, 2.125)


def test_an_update_makes_what_depends_on_a_region_and_what_has_grown(volume):
    made = zstore.build_pyramid(volume, MemoryStore(), factors=(2, 2, 2), levels=2)
    floats = made["0/floats"]
    floats[5:7, 20:30, 8:9] = 7.0
    zstore.update_pyramid(made, {"z": slice(5, 7), "y": slice(20, 30), "x": 8}, arrays=["floats"])
    for name in ("floats", "classes"):
        array = made[f"0/{name}"]
        array.resize((30, *SHAPE[1:]))
        array[23:] = 3
    made["0/z"].resize((30,))
    made["0/z"][...] = 100.0 - 5 * np.arange(30)
    del made["0/words"]
    zstore.update_pyramid(made)
    for level in (1, 2):
        expected = blocks(made["0/floats"][...], [2**level] * 3, np.nanmean)
        np.testing.assert_allclose(made[f"{level}/floats"][...], expected, rtol=2e-5, atol=1e-6)
        assert made[f"{level}/z"].shape == expected.shape[:1]
    again = zstore.build_pyramid(made["0"], MemoryStore(), factors=(2, 2, 2), levels=2)
    np.testing.assert_array_equal(again["2/classes"][...], made["2/classes"][...])


def test_pictures_and_geotiffs_of_such_levels(volume, tmp_path):
    made = zstore.build_pyramid(volume, tmp_path / "p", factors=(2, 2, 2), levels=2)
    assert zstore.quicklook(made, bands=["floats"], level=2).shape[:2] == (18, 17)
    rasterio = pytest.importorskip("rasterio", reason="GeoTIFFs are written with rasterio")
    # A COG's overviews have all bands, which such levels have not.
    path = zstore.zarr_to_raster(made, tmp_path / "a.tif", arrays=["floats"], driver="COG")
    with rasterio.open(path) as raster:
        assert raster.count == SHAPE[0]
        np.testing.assert_array_equal(raster.read(3), volume["floats"][2])


def test_the_command_takes_factors_of_axes(volume, tmp_path):
    zstore.convert(volume, tmp_path / "s")
    for factors in ("3,2,2", "z=3,y=2,x=2"):
        words = ["pyramid", tmp_path / "s", tmp_path / "t", "--factors", factors, "--levels", "1"]
        result = CliRunner().invoke(command, [*map(str, words), "--overwrite", "-q"])
        assert result.exit_code == 0, result.output
        assert zstore.open(tmp_path / "t/1/floats").shape == (8, 35, 33)


def test_factors_that_no_levels_have(volume):
    for factors in ((2, 2, 2, 2), {"w": 2}, {"z": 0}, (2, "2", 2), {"z": "auto"}, {"z": (2, 3)}, {"z": True}):
        with pytest.raises(MetadataError, match="factor"):
            zstore.build_pyramid(volume, MemoryStore(), factors=factors)
    for dimension in ("time", "band"):
        group = zstore.create_group(MemoryStore(), attributes=PLACE)
        names = (dimension, "y", "x")
        group.create_array("a", data=np.zeros((4, 64, 64), "f4"), dimension_names=names)
        with pytest.raises(UnsupportedError, match=f"of '{dimension}'"):
            zstore.build_pyramid(group, MemoryStore(), factors=(2, 2, 2))


def test_a_level_that_lacks_items_is_an_error(volume):
    made = zstore.build_pyramid(volume, MemoryStore(), factors=2, levels=1)
    for length, count in ((SHAPE[0] - 1, 1), (12, 0)):
        for name in ("floats", "classes"):
            made[f"1/{name}"].resize((length, 35, 33))
        found = [one for one in zstore.validate(made.store).findings if one.rule == "GZ-33"]
        assert (len(found) > 0) == bool(count)


@pytest.mark.parametrize(
    ("length", "coarser", "likely", "expected"),
    [
        (16, 8, [], [2]),
        (37, 5, [], [8, 9, 7]),
        (37, 5, [9], [9]),
        (10, 3, [], [4, 3]),
        (5, 2, [2], [2]),
        (9, 1, [], [9]),
        (7, 7, [], [1]),
        (7, 6, [], []),
        (7, 0, [], []),
        (6, 7, [], []),
    ],
)
def test_whole_factors_along_an_axis(length, coarser, likely, expected):
    assert factors_along(length, coarser, likely) == expected
