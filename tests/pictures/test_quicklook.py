"""Pictures: which level, which bands, which way up, and whether the PNG is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, UnsupportedError, ZstoreError
from zstore.geo.pictures.colours import colour_map
from zstore.geo.pictures.png import encode_png
from zstore.geo.pictures.quicklook import draw_picture, preview, quicklook
from zstore.storage.memory import MemoryStore


@pytest.mark.parametrize("samples", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (300, 200)])
def test_png_holds_the_image(tmp_path: Path, shape: tuple[int, int], samples: int) -> None:
    rasterio = pytest.importorskip("rasterio", reason="GDAL reads the PNG")
    image = np.random.default_rng(samples).integers(0, 256, (*shape, samples)).astype(np.uint8)
    (tmp_path / "a.png").write_bytes(encode_png(image))
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning), rasterio.open(tmp_path / "a.png") as picture:
        assert picture.driver == "PNG"
        np.testing.assert_array_equal(picture.read().transpose(1, 2, 0), image)


def make(path: Path, data: np.ndarray, **attributes: object) -> zstore.Array:
    return zstore.create_array(path, data=data, dimension_names=("y", "x"), attributes=attributes)


def test_stretched_without_the_extremes_and_nodata(tmp_path: Path) -> None:
    data = np.linspace(1000, 2000, 10000).reshape(100, 100)
    data[0, :5], data[99, :5], data[50, :5], data[51, :5] = -1e30, 1e30, -9999.0, np.nan
    image = quicklook(make(tmp_path / "a", data, missing_value=-9999.0))
    assert image.shape == (100, 100, 2)
    transparent = np.zeros((100, 100), bool)
    transparent[50:52, :5] = True
    np.testing.assert_array_equal(image[..., 1] == 0, transparent)
    shown = image[..., 0][~transparent]
    assert (shown == 0).mean() < 0.03 and (shown == 255).mean() < 0.03
    assert abs(int(image[40, 50, 0]) - 0.405 * 255) < 6


@pytest.mark.parametrize("scale", [np.finfo("f8").max, 1.0, 2.0**-1060])
def test_stretched_at_the_ends_of_the_type(tmp_path: Path, scale: float) -> None:
    data = np.linspace(-1, 1, 256).reshape(16, 16) * scale
    data[data == 0] = scale / 4
    image = quicklook(make(tmp_path / "a", data))[..., 0].ravel().astype(int)
    assert abs(image - np.clip((np.arange(256) - 5.1) / 244.8 * 255, 0, 255)).max() < 2
    # One bright cell, which the stretch leaves out.
    data = np.ones((16, 16)) * scale / 2**10
    data[:8], data[0, 0] = 0, scale
    image = quicklook(make(tmp_path / "b", data))[..., 0]
    assert image[0, 0] == 255 and (image[8:] == 255).all() and (image[0, 1:] == 0).all()


def test_north_is_up_and_east_is_right(tmp_path: Path) -> None:
    data = np.arange(12, dtype="u1").reshape(3, 4)
    down = quicklook(make(tmp_path / "down", data, **{"spatial:transform": [1, 0, 0, 0, -1, 0]}))
    up = quicklook(make(tmp_path / "up", data, **{"spatial:transform": [1, 0, 0, 0, 1, 0]}))
    west = quicklook(make(tmp_path / "west", data, **{"spatial:transform": [-1, 0, 0, 0, -1, 0]}))
    assert (np.diff(down[:, 0, 0].astype(int)) > 0).all()
    np.testing.assert_array_equal(up, down[::-1])
    np.testing.assert_array_equal(west, down[:, ::-1])


def test_a_rotated_raster_is_turned(tmp_path: Path) -> None:
    data = np.arange(1, 13, dtype="u1").reshape(3, 4)
    # East with the rows, north with the columns: a quarter turn.
    quarter = quicklook(make(tmp_path / "quarter", data, **{"spatial:transform": [0, 2, 5, 2, 0, 9]}))
    np.testing.assert_array_equal(quarter, quicklook(make(tmp_path / "plain", data.T[::-1].copy())))
    # By 30 degrees: the middle stays, the corners of the picture hold nothing, and sizes are kept.
    cos, sin = np.cos(np.pi / 6), np.sin(np.pi / 6)
    ramp = np.tile(np.arange(200.0), (200, 1))
    turn = {"spatial:transform": [cos, sin, 0, sin, -cos, 0]}
    image = quicklook(make(tmp_path / "turned", ramp, **turn))
    assert image.shape == (273, 273, 2)
    assert (image[[0, 0, -1, -1], [0, -1, 0, -1], 1] == 0).all() and image[136, 136, 1] == 255
    # Brighter along the rows' direction, which is east by north.
    assert image[136, 180, 0] > image[136, 90, 0] and image[100, 136, 0] > image[170, 136, 0]
    assert quicklook(zstore.open_array(tmp_path / "turned"), size=64).shape[:2] == (64, 64)


def test_the_level_that_fits(tmp_path: Path) -> None:
    source = make(tmp_path / "a", np.arange(300 * 200, dtype="f4").reshape(300, 200))
    pyramid = zstore.build_pyramid(source, tmp_path / "p", levels=2, copy_base=True)
    shapes = {size: quicklook(pyramid, size=size).shape[:2] for size in (1000, 300, 299, 75, 40)}
    assert shapes == {1000: (300, 200), 300: (300, 200), 299: (150, 100), 75: (75, 50), 40: (38, 25)}
    assert quicklook(pyramid, level=1).shape[:2] == (150, 100)
    assert quicklook(source, size=100).shape[:2] == (100, 67)


def test_bands(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "g", attributes={"bands": ["z", "a", "m"]})
    ramp = np.tile(np.arange(100, dtype="u1"), (10, 1))
    for name, data in (("z", ramp), ("a", ramp[:, ::-1]), ("m", np.full_like(ramp, 7))):
        group.create_array(name, data=data, dimension_names=("y", "x"))
    by_name, by_number = quicklook(group, bands=["a", "z", "m"]), quicklook(group, bands=["2", "1", "3"])
    np.testing.assert_array_equal(by_name, by_number)
    np.testing.assert_array_equal(quicklook(group, bands=[2, 1, 3]), by_number)
    np.testing.assert_array_equal(by_name[..., 0], quicklook(group, bands=["a"])[..., 0])
    np.testing.assert_array_equal(quicklook(group), quicklook(group, bands=["z"]))
    assert (by_name[..., 2] == 128).all()
    for name, colour in (("a", "red"), ("m", "green"), ("z", "blue")):
        group[name].attrs["color_interpretation"] = colour
    np.testing.assert_array_equal(quicklook(group), quicklook(group, bands=["a", "m", "z"]))


def test_a_colour_table(tmp_path: Path) -> None:
    table = {"0": [0, 0, 0, 0], "1": [200, 100, 50, 255], "2": [1, 2, 3, 1]}
    data = np.array([[1, 2, 9], [0, 1, 2]], "u1")
    image = quicklook(make(tmp_path / "a", data, color_table=table))
    # What can be seen at all is shown whole.
    assert image[0].tolist() == [[200, 100, 50, 255], [1, 2, 3, 255], [0, 0, 0, 0]]
    assert image[1, 0, 3] == 0


def test_colours_by_meaning(tmp_path: Path) -> None:
    data = np.linspace(-20, 30, 100, dtype="f4").reshape(10, 10)
    kelvins = make(tmp_path / "a", data, units="K")
    picture = draw_picture(kelvins)
    assert (picture.colours, picture.units, picture.bands) == ("thermal", "K", ("a",))
    low, high = np.percentile(data, (2, 98))
    assert picture.limits == (pytest.approx((low, high)),)
    grey = quicklook(kelvins, colours="grey")
    np.testing.assert_array_equal(picture.image, colour_map("thermal")[grey[..., 0]])
    np.testing.assert_array_equal(
        quicklook(kelvins, colours="deep_r"), colour_map("deep")[255 - grey[..., 0]]
    )
    # Values as they are meant, by scale and offset; 0 in the middle of an anomaly's map.
    packed = make(
        tmp_path / "b", (data * 10).astype("i2"), scale_factor=-0.1, long_name="anomaly of something"
    )
    picture = draw_picture(packed)
    ((low, high),) = picture.limits
    assert (picture.colours, low) == ("vik", -high) and high == pytest.approx(29, abs=0.5)
    assert (
        picture.image[0, 0].tolist() == colour_map("vik")[int((20 + high) / (2 * high) * 255 + 0.5)].tolist()
    )
    image = quicklook(packed, colours="grey", limits=(-30, 20))
    assert image[0, 0, 0] == 255 and image[9, 9, 0] == 0
    # Equal factors in equal steps; what is not above 0 has the lowest colour.
    factors = make(tmp_path / "f", 10.0 ** np.array([[-2, -1, 0, 1, -9]]), long_name="chlorophyll")
    grey = quicklook(factors, limits=(0.01, 10), colours="grey")[0, :, 0].tolist()
    assert grey == [0, 85, 170, 255, 0]
    low, high = draw_picture(make(tmp_path / "g", np.linspace(-1, 9, 50)[None], long_name="chlor_a")).limits[
        0
    ]
    assert low == high / 1000
    # Directions have their whole circle, a single value the middle of its map.
    turned = draw_picture(make(tmp_path / "c", np.full((2, 2), 90.0), standard_name="wind_from_direction"))
    assert (turned.limits, turned.colours) == (((0.0, 360.0),), "phase")
    assert turned.image[0, 0].tolist() == colour_map("phase")[64].tolist()
    with pytest.raises(NotFoundError, match="no colour map 'blue'; there are Blues, YlGn"):
        quicklook(packed, colours="blue")
    for limits in ((1, 1), (2, 1), (0, np.nan), (1,)):
        with pytest.raises(MetadataError, match=r"limits are .*; expected two numbers, the lower one first"):
            quicklook(packed, limits=limits)


@pytest.mark.parametrize(("north", "east"), [(-10, 10), (10, 10), (-10, -10)])
def test_elevations_are_lit_from_the_upper_left(tmp_path: Path, north: int, east: int) -> None:
    """Whatever the order of rows and columns is; without a place on the ground nothing is known of slopes."""
    south, right = np.indices((40, 50))
    said = {"standard_name": "surface_altitude", "units": "m"}
    place = {"spatial:transform": [east, 0, 5e5, 0, north, 5e6], "proj:code": "EPSG:32632", **said}
    for number, (rise, is_bright) in enumerate(((south, 1), (-south, 0), (right, 1), (-right, 0))):
        heights = rise * 3.0 + 1000
        stored = heights[:: -1 if north > 0 else 1, :: -1 if east < 0 else 1]
        lit = quicklook(make(tmp_path / f"{number}", stored, **place), limits=(0, 2000)).astype(int)
        flat = quicklook(make(tmp_path / f"flat{number}", heights, **said), limits=(0, 2000))
        brighter = (lit - flat).sum(axis=-1)[1:-1, 1:-1]
        assert (brighter > 0).all() if is_bright else (brighter < 0).all()


def test_classes_without_colours_are_told_apart(tmp_path: Path) -> None:
    flags = {"flag_values": [1, 2, 3], "flag_meanings": "water land ice", "flag_colors": "#0000ff #00ff00"}
    image = quicklook(make(tmp_path / "a", np.array([[1, 2, 3, 4]], "u1"), **flags))
    assert image[0, :2].tolist() == [[0, 0, 255, 255], [0, 255, 0, 255]]
    assert image[0, 2].tolist() == [*bytes.fromhex("ff7f0e"), 255] and image[0, 3, 3] == 0


def test_items_along_a_dimension_of_bands_and_the_latest_time(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "g", zarr_format=3)
    hours = {"units": "hours since 2020-01-01", "standard_name": "time"}
    group.create_array("time", data=np.arange(20) * 24, dimension_names=("time",), attributes=hours)
    names = ("time", "band", "y", "x")
    data = np.random.default_rng(1).integers(1, 200, (20, 3, 8, 9)).astype("u1")
    data[8:] = 0
    group.create_array(
        "rgb", data=data, dimension_names=names, attributes={"_FillValue": 0}, chunks=(1, 3, 8, 9)
    )
    picture = draw_picture(group)
    assert picture.bands == ("rgb:1", "rgb:2", "rgb:3") and picture.colours is None
    # The latest with a value is found by steps that grow: the ones between are not looked at.
    assert picture.items == {"time": "2020-01-04", "band": 0} and picture.image.shape == (8, 9, 3)
    assert picture.caption == "rgb:1, rgb:2, rgb:3, time 2020-01-04, band 0"
    one = quicklook(group, bands=["rgb:2"], limits=(0, 255))
    np.testing.assert_array_equal(one[..., 0], data[3, 1])
    # With little to decode, the last is shown though it has none; a later one is found one step on.
    assert not quicklook(group, most_bytes=3 * 216)[..., 3].any()
    group["rgb"][17] = 7
    assert draw_picture(group).items["time"] == "2020-01-18"


@pytest.mark.parametrize(
    ("data", "said", "names"),
    [
        (np.array([b"nir", b"red", "grün".encode()]), {}, ["nir", "red", "grün"]),
        (np.array([5, 7, 8], "i2"), {"scale_factor": 10.0}, ["50.0", "70.0", "80.0"]),
        (np.array([0, 1, 2]), {"units": "days since 2020-02-28"}, ["2020-02-28", "2020-02-29", "2020-03-01"]),
        # Neither says what three bands are.
        (np.array([1, 2]), {}, ["1", "2", "3"]),
        (np.array([1, 2, 3]), {"scale_factor": "x"}, ["1", "2", "3"]),
        (None, {}, ["1", "2", "3"]),
    ],
)
def test_bands_are_named_by_the_values_of_their_coordinate(data: Any, said: Any, names: list[str]) -> None:
    group = zstore.create_group(MemoryStore())
    cells = np.random.default_rng(0).integers(1, 200, (3, 8, 9)).astype("u1")
    group.create_array("a", data=cells, chunks=(1, 8, 9), dimension_names=("band", "y", "x"))
    values = np.arange(3) if data is None else data
    own = ("band",) if len(values) == 3 else ("other",)
    group.create_array("band", data=values, dimension_names=own, attributes=said, compressors=None)
    if data is None:
        group.store.put("band/c/0", b"damaged")
    for number, name in enumerate(names):
        picture = draw_picture(group, bands=[f"a:{name}"], limits=(0, 255))
        np.testing.assert_array_equal(picture.image[..., 0], cells[number])


def test_all_nodata_and_what_makes_no_picture(tmp_path: Path) -> None:
    empty = quicklook(make(tmp_path / "a", np.full((3, 3), np.nan)))
    assert empty.shape == (3, 3, 2) and not empty.any()
    with pytest.raises(UnsupportedError, match="complex64 makes no picture"):
        quicklook(make(tmp_path / "b", np.zeros((3, 3), "c8")))
    for shape, said in (((3, 0), "expected one cell at least"), ((0, 3, 3), "makes no picture")):
        names = ("t", "y", "x")[-len(shape) :]
        nothing = zstore.create_array(tmp_path / f"{shape}", shape=shape, dtype="f4", dimension_names=names)
        for show in (quicklook, preview):
            with pytest.raises(ZstoreError, match=said):
                show(nothing)
        assert "<img" not in nothing._repr_html_()
    source = make(tmp_path / "c", np.zeros((3, 3), "u1"))
    for size in (0, "5", 2.5):
        with pytest.raises(MetadataError, match=f"size is {size!r}; expected a whole number"):
            quicklook(source, size=size)
    with pytest.raises(MetadataError, match="expected one, or three"):
        quicklook(source, bands=["c", "c"])
    with pytest.raises(NotFoundError, match="no band '2'; there are c"):
        quicklook(source, bands=["2"])


def test_a_preview_shows_the_levels_side_by_side(tmp_path: Path) -> None:
    data = np.linspace(1, 4000, 120 * 90).reshape(120, 90).astype("u2")
    data[:30] = 0
    group = zstore.create_group(tmp_path / "s")
    group.create_array("a", data=data, dimension_names=("y", "x"), attributes={"_FillValue": 0})
    made = zstore.build_pyramid(group, tmp_path / "p", levels=2, chunks=64)
    image = preview(made, size=60)
    # The finest is thinned out by 2; of the others, 60 and 30 rows, the last is shown twice as large.
    assert image.shape == (60, 45 + 4 + 45 + 4 + 46, 4)
    assert not image[:14, :, 3].any() and not image[:, 45:49, 3].any()
    assert (image[20:, :45, 3] == 255).all() and (image[20:, 98:, 3] == 255).all()
    assert (image[59, 0, :3] > image[20, 0, :3]).all()


@pytest.mark.parametrize(
    "said",
    [
        {"color_interpretation": "alpha"},
        {"flag_values": [0, 255], "flag_meanings": "invalid valid"},
    ],
)
def test_what_a_mask_leaves_out_is_transparent(tmp_path: Path, said: dict[str, object]) -> None:
    group = zstore.create_group(tmp_path / "g")
    valid = np.where(np.eye(30), 0, 255).astype("u1")
    group.create_array("m", data=valid, dimension_names=("y", "x"), attributes=said)
    for place, colour in enumerate(("blue", "green", "red")):
        data = np.full((30, 30), place, "u1")
        data[0] = 10 * (place + 1)
        group.create_array(colour, data=data, dimension_names=("y", "x"))
    image = quicklook(group)
    # By their names, the bands are red, green and blue.
    assert image.shape == (30, 30, 4)
    np.testing.assert_array_equal(image[..., 3], valid)
    for sample, colour in enumerate(("red", "green", "blue")):
        np.testing.assert_array_equal(image[..., sample], quicklook(group, bands=[colour])[..., 0])


def test_the_first_row_of_an_image_is_its_upper_edge(tmp_path: Path) -> None:
    data = np.arange(64, dtype="u1").reshape(8, 8)
    step = {"type": "scale", "scale": [0.5, 0.5]}
    image = {
        "axes": [{"name": name, "type": "space"} for name in "yx"],
        "datasets": [{"path": "0", "coordinateTransformations": [step]}],
    }
    for stated in ({"ome": {"version": "0.5", "multiscales": [image]}}, {"multiscales": [image]}):
        group = zstore.create_group(tmp_path / "image", attributes=stated, overwrite=True)
        group.create_array("0", data=data, dimension_names=("y", "x"))
        shown = quicklook(group)
        np.testing.assert_array_equal(shown, quicklook(group["0"]))
        assert (np.diff(shown[:, 0, 0].astype(int)) > 0).all()
        np.testing.assert_array_equal(preview(group, size=8)[..., :1], shown)


@pytest.mark.parametrize("colour", ["red", [1, 2, 3, 4, 5], [300, 1, 1], [-1, 0, 0], None, [[1], [2]], 5])
def test_a_colour_table_that_is_none_colours_nothing(tmp_path: Path, colour: object) -> None:
    data = np.arange(9, dtype="u1").reshape(3, 3)
    plain = quicklook(make(tmp_path / "plain", data))
    np.testing.assert_array_equal(quicklook(make(tmp_path / "a", data, color_table={"0": colour})), plain)
