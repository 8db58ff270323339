"""Reprojected views and mosaics: cells against rasterio's, sources that are read, what is stored of them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError, MetadataError, StoreError, UnsupportedError
from zstore.geo.pyramid.warp import Warped, grid_around
from zstore.geo.resampling.sample import SAMPLINGS

rasterio = pytest.importorskip("rasterio")
pytest.importorskip("rasterio.vrt")

HOLE = -1


def _raster(
    path: Path, crs: str, affine: tuple[float, ...], shape: tuple[int, ...] = (300, 400), dtype: str = "i2"
) -> Any:
    """A smooth raster with holes, whose values differ everywhere nearby."""
    y, x = np.mgrid[: shape[-2], : shape[-1]]
    cells = (1000 + 300 * np.sin(y / 9) + 400 * np.cos(x / 13)).astype(dtype)
    cells[50:70, 60:90] = HOLE
    data = np.broadcast_to(cells, shape)
    attributes = {"proj:code": crs, "spatial:transform": list(affine), "units": "m", "_FillValue": HOLE}
    attributes["spatial:dimensions"] = ["y", "x"]
    names = ("time", "y", "x")[-len(shape) :]
    return zstore.create_array(
        path,
        data=data,
        chunks=(1,) * (len(shape) - 2) + (64, 64),
        attributes=attributes,
        dimension_names=names,
    )


@pytest.mark.parametrize(
    ("crs", "affine", "shape", "wanted"),
    [
        ("EPSG:32632", (10, 0, 600000, 0, -10, 5300000), (300, 400), "EPSG:3857"),
        ("EPSG:3857", (100, 0, 1e6, 0, -100, 6e6), (3000, 4000), "EPSG:32632"),
    ],
)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_cells_in_another_crs_are_about_as_large(crs: str, affine: Any, shape: Any, wanted: str) -> None:
    from rasterio.warp import calculate_default_transform

    made = grid_around([zstore.GeoGrid(crs, affine, shape)], wanted, None)
    (rows, columns), (a, _, west, _, e, north) = shape, affine
    box = (west, north + e * rows, west + a * columns, north)
    gdal, width, height = calculate_default_transform(crs, wanted, columns, rows, *box)
    assert made.affine.a == -made.affine.e == pytest.approx(gdal.a, rel=0.01)
    assert made.shape == pytest.approx((height, width), rel=0.01)
    long = zstore.GeoGrid("EPSG:32632", (10, 0, 600000, 0, -20, 5300000), (300, 400))
    assert grid_around([long], "EPSG:25832", None).affine.a == pytest.approx(200**0.5)
    world = zstore.GeoGrid("EPSG:4326", (1, 0, -180, 0, -1, 85), (170, 360))
    globe = grid_around([world], 3857, None)
    assert 111e3 < globe.affine.a < 200e3 and 200 < globe.shape[1] < 361


def _gdal(
    array: Any, crs: str, affine: tuple[float, ...], made: Any, resampling: str
) -> np.ndarray[Any, Any]:
    """What gdalwarp makes of the array, with kernels that are stretched as the view's are."""
    grid, sampling = made.step.source.target, made.step.source.warp
    stretch = {} if resampling in ("nearest", "mode") else {
        "XSCALE": repr(sampling.scale[1]), "YSCALE": repr(sampling.scale[0])
    }  # fmt: skip
    profile = {"driver": "GTiff", "count": 1, "dtype": array.dtype.name, "nodata": HOLE, "crs": crs}
    with rasterio.io.MemoryFile() as file:
        height, width = array.shape
        with file.open(**profile, width=width, height=height, transform=rasterio.Affine(*affine)) as raster:
            raster.write(array[...], 1)
        with (
            file.open() as raster,
            rasterio.vrt.WarpedVRT(
                raster, crs=grid.crs.code, transform=rasterio.Affine(*grid.affine), width=grid.shape[1],
                height=grid.shape[0], resampling=getattr(rasterio.enums.Resampling, resampling), nodata=HOLE,
                tolerance=1e-9, **stretch,
            ) as warped,
        ):  # fmt: skip
            cells: np.ndarray[Any, Any] = warped.read(1)
            return cells


def _is_inside(array: Any, grid: zstore.GeoGrid) -> np.ndarray[Any, Any]:
    """Whether each cell of a grid lies in the array with its first corner and the one across."""
    own, (height, width) = zstore.GeoGrid.of(array), array.shape
    corners = np.meshgrid(np.arange(grid.shape[1] + 1.0), np.arange(grid.shape[0] + 1.0))
    columns, rows = own.affine.cell_at(*grid.crs.transform(own.crs, *grid.affine.at(*corners)))
    inside = (columns >= 0) & (columns <= width) & (rows >= 0) & (rows <= height)
    return inside[:-1, :-1] & inside[1:, 1:]  # type: ignore[no-any-return]


UTM_32 = (10.0, 0.0, 600000.0, 0.0, -10.0, 5300000.0)
TURNED = (9.0, 2.0, 600000.0, 2.0, -9.0, 5300000.0)
DEGREES = (0.01, 0.0, 10.0, 0.0, -0.01, 48.0)


PLACES = [
    ("EPSG:32632", UTM_32, "EPSG:32633", 10.0),
    ("EPSG:32632", UTM_32, "EPSG:3857", 40.0),
    ("EPSG:32632", TURNED, "EPSG:4326", (0.0001, 0.00015)),
    ("EPSG:4326", DEGREES, "EPSG:3035", 900.0),
]


@pytest.mark.parametrize(
    ("crs", "affine", "target", "resolution", "resampling"),
    [(*place, resampling) for place in PLACES for resampling in SAMPLINGS],
)
def test_cells_are_gdalwarps(
    tmp_path: Path, crs: str, affine: Any, target: str, resolution: Any, resampling: str
) -> None:
    array = _raster(tmp_path / "a.zarr", crs, affine)
    grid = zstore.GeoGrid.around([array], crs=target, resolution=resolution)
    made = zstore.reproject(array, grid, resampling=resampling)
    assert made.shape == grid.shape
    cells = made.read()
    np.testing.assert_array_equal(zstore.mosaic([array], grid, resampling=resampling).read(), cells)
    if resampling == "mode" and tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) < (3, 12):
        pytest.skip("GDAL before 3.12 counts cells whole that lie in an area in part")
    expected = _gdal(array, crs, affine, made, resampling)
    differ = cells != expected
    if resampling == "mode":  # as for "average"
        differ = differ[_is_inside(array, grid)]
    if resampling in ("nearest", "mode"):
        assert np.count_nonzero(differ) <= 0.001 * cells.size
    elif resampling == "average":
        assert ((cells != HOLE) == (expected != HOLE)).all()
        # At the edge of the source, GDAL weighs its last cells by what lies beyond them, too.
        inside = _is_inside(array, grid) & (cells != HOLE)
        assert np.count_nonzero(inside) > cells.size // 3
        assert np.abs(cells[inside].astype(int) - expected[inside]).max() <= 1
    else:
        both = (cells != HOLE) & (expected != HOLE)
        assert np.count_nonzero((cells != HOLE) != (expected != HOLE)) <= 0.002 * cells.size
        off = np.abs(cells[both].astype(int) - expected[both])
        assert np.count_nonzero(off > 1) <= 0.001 * cells.size
    assert np.count_nonzero(cells != HOLE) > cells.size // 3


def test_boxes_equal_the_whole_and_read_little(tmp_path: Path) -> None:
    array = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32, (2, 300, 400))
    made = zstore.reproject(array, zstore.GeoGrid.around([array], crs="EPSG:32633", resolution=10.0))
    cells = made.read()
    assert made[1, 17:201:3, 255:258].read().tolist() == cells[1, 17:201:3, 255:258].tolist()
    assert (
        pickle.loads(pickle.dumps(made)).read((0, slice(3), slice(3))).tolist() == cells[0, :3, :3].tolist()
    )
    assert made[:0].read().shape == (0, *made.shape[1:])
    # A chunk that no cell of the box lies in may be damaged.
    row, column = np.argwhere(cells[0] == array[0, 20, 20])[0].tolist()
    (tmp_path / "a.zarr/c/1/4/6").write_bytes(b"damaged")
    assert made[0, row, column].read() == array[0, 20, 20]
    with pytest.raises(zstore.errors.CodecError):
        made.read()


def test_a_view_is_stored_with_its_place(tmp_path: Path) -> None:
    array = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    grid = zstore.GeoGrid.around([array], crs="EPSG:32633", resolution=20.0)
    made = zstore.reproject(array, grid, resampling="bilinear")
    group: Any = zstore.convert(made, tmp_path / "b.zarr")
    stored = group["a"]
    assert sorted(group) == ["a", "spatial_ref", "x", "y"]
    assert stored[...].tolist() == made.read().tolist()
    assert zstore.GeoGrid.of(tmp_path / "b.zarr") == zstore.GeoGrid.of(stored) == grid
    assert stored.attrs["units"] == "m"
    assert stored.dims == ("y", "x")
    assert stored.fill_value == HOLE
    again = zstore.reproject(made, grid)
    assert again.read().tolist() == made.read().tolist()


def test_floats_without_nodata_are_stored_with_nan(tmp_path: Path) -> None:
    attributes = {"proj:code": "EPSG:32632", "spatial:transform": list(UTM_32)}
    names = attributes["spatial:dimensions"] = ["y", "x"]
    data = np.arange(12, dtype=">f4").reshape(3, 4)
    array = zstore.create_array(tmp_path / "a", data=data, attributes=attributes, dimension_names=names)
    grid = zstore.GeoGrid(zstore.GeoGrid.of(array).crs, zstore.GeoGrid.of(array).affine, (4, 4))
    stored: Any = zstore.convert(zstore.mosaic([array], grid), tmp_path / "b")["a"]
    assert np.isnan(stored.fill_value)
    np.testing.assert_array_equal(stored[...], np.pad(data, [(0, 1), (0, 0)], constant_values=np.nan))


def test_mosaic_of_two_zones(tmp_path: Path) -> None:
    west = _raster(tmp_path / "w.zarr", "EPSG:32632", (10.0, 0.0, 700000.0, 0.0, -10.0, 5300000.0))
    east = _raster(tmp_path / "e.zarr", "EPSG:32633", (20.0, 0.0, 255000.0, 0.0, -20.0, 5300000.0))
    made = zstore.mosaic([west, east])
    grid = zstore.GeoGrid.of(made)
    assert grid.crs.code == "EPSG:32632"
    parts = [zstore.reproject(one, grid).read() for one in (west, east)]
    assert all((part != HOLE).any() for part in parts)
    assert made.read().tolist() == np.where(parts[1] != HOLE, parts[1], parts[0]).tolist()
    first = zstore.mosaic([west, east], first=True)
    assert first.read().tolist() == np.where(parts[0] != HOLE, parts[0], parts[1]).tolist()
    stored: Any = zstore.convert(made, tmp_path / "m.zarr")["data"]
    assert stored[...].tolist() == made.read().tolist()
    assert zstore.GeoGrid.of(tmp_path / "m.zarr") == grid


def _type(*words: object, code: int = 0) -> str:
    pytest.importorskip("click", reason="the command line needs click (extra 'cli')")
    from click.testing import CliRunner

    from zstore.cli.root import zstore as command

    result = CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


ZONE_33 = (10.0, 0.0, 150000.0, 0.0, -10.0, 5302000.0)
COARSE = (20.0, 0.0, 600000.0, 0.0, -20.0, 5300000.0)
SHIFTED = (10.0, 0.0, 601005.0, 0.0, -10.0, 5296995.0)


@pytest.mark.parametrize(
    ("crs", "affine", "words", "arguments"),
    [
        ("EPSG:32633", ZONE_33, ["--first"], {"first": True}),
        ("EPSG:32632", COARSE, ["--like", "a.zarr", "--resampling", "bilinear"], {"resampling": "bilinear"}),
        ("EPSG:32632", SHIFTED, [], {}),
    ],
)
def test_one_command_joins_zones_resolutions_and_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crs: str, affine: Any, words: list[str], arguments: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    one = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    other = _raster(tmp_path / "b.zarr", crs, affine)
    grid = zstore.GeoGrid.of(one) if "--like" in words else None
    expected = zstore.mosaic([one, other], grid, **arguments)
    _type("mosaic", "a.zarr", "b.zarr", "c.zarr", *words, "--chunks", 128, "--codec", "zstd:1", "-q")
    made: Any = zstore.open_group("c.zarr")["data"]
    np.testing.assert_array_equal(made[...], expected.read())
    assert zstore.GeoGrid.of(made) == zstore.GeoGrid.of(expected)
    assert (made.chunks, made.attrs["units"], made.fill_value) == ((128, 128), "m", HOLE)


def test_one_command_reprojects_and_says_what_does_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    array = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    grid = zstore.GeoGrid.around([array], crs="EPSG:3035", resolution=(30.0, 40.0))
    asked = ["mosaic", "a.zarr", "b.zarr", "--crs", "EPSG:3035", "--resolution", "30,40"]
    assert "units" in _type(*asked, "--dry-run")
    assert not Path("b.zarr").exists()
    assert "b.zarr" in _type(*asked, "-q")
    np.testing.assert_array_equal(zstore.open_array("b.zarr/a")[...], zstore.reproject(array, grid).read())
    assert "is there already; pass --overwrite" in _type(*asked, "-q", code=1)
    for words, what in (
        (["--like", "a.zarr", "--crs", "EPSG:3035"], "--like is a whole grid"),
        (["--resolution", "0"], "is no length of cells"),
        (["--resolution", "10,10,10"], "is no length of cells"),
        (["--nodata", "much"], "is no number"),
        (["--levels", "2"], "--levels does not go with a mosaic"),
    ):
        assert what in _type("mosaic", "a.zarr", "d.zarr", *words, code=2)
    assert "nodata is" in _type("mosaic", "a.zarr", "d.zarr", "--nodata", "7", code=1)
    assert "mosaic SOURCE TARGET" in _type("warp", "a.zarr", "d.zarr", code=2)
    assert not Path("d.zarr").exists()


def test_mosaic_with_half_a_cell_of_shift_keeps_cells_of_the_shared_grid(tmp_path: Path) -> None:
    one = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    other = _raster(tmp_path / "b.zarr", "EPSG:32632", (10.0, 0.0, 603000.0, 0.0, -10.0, 5300000.0))
    shifted = _raster(tmp_path / "c.zarr", "EPSG:32632", (10.0, 0.0, 601005.0, 0.0, -10.0, 5296995.0))
    made = zstore.mosaic([one, other, shifted])
    grid = zstore.GeoGrid.of(made)
    assert (grid.affine.c, grid.affine.f) == (600000.0, 5300000.0)
    assert grid.shape == (601, 700)
    cells = made.read()
    assert cells[:300, :300].tolist() == one[:, :300].tolist()
    assert cells[0:300, 300:].tolist()[:49] == other[:49].tolist()


def test_sources_beside_a_box_are_not_read(tmp_path: Path) -> None:
    one = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    far = _raster(tmp_path / "b.zarr", "EPSG:32632", (10.0, 0.0, 640000.0, 0.0, -10.0, 5300000.0))
    made = zstore.mosaic([one, far])
    for chunk in (tmp_path / "b.zarr/c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"damaged")
    assert made[:300, :400].read().tolist() == one[...].tolist()
    with pytest.raises(zstore.errors.CodecError):
        made.read()


def test_across_the_antimeridian_and_at_a_pole(tmp_path: Path) -> None:
    affine = (60.0, 0.0, 262000.0, 0.0, -60.0, 5300000.0)
    fiji = _raster(tmp_path / "a.zarr", "EPSG:32601", affine)
    grid = zstore.GeoGrid("EPSG:4326", (0.001, 0, 179.5, 0, -0.001, 48), (500, 2000))
    made = zstore.mosaic([fiji], grid).read()
    assert (made != HOLE).sum() > 1000
    assert made.tolist() == zstore.reproject(fiji, grid).read().tolist()
    pole = _raster(tmp_path / "p.zarr", "EPSG:3413", (1000.0, 0.0, -200000.0, 0.0, -1000.0, 150000.0))
    world = zstore.GeoGrid(grid.crs, _affine(0.05, -180, 90), (60, 7200))
    cells = zstore.mosaic([pole], world).read()
    assert cells.tolist() == zstore.reproject(pole, world).read().tolist()
    assert (cells[0] != HOLE).all()


def _affine(size: float, left: float, top: float) -> Any:
    from zstore.geo.conventions.base import Affine

    return Affine(size, 0.0, float(left), 0.0, -size, float(top))


def _views(array: Any, other: Any) -> dict[str, Any]:
    mosaic = zstore.mosaic([array, other])
    zone = {"type": "Polygon", "coordinates": [[(600500, 5299500), (602e3, 5299400), (6018e2, 5298e3)]]}
    clipped = zstore.clip(mosaic, zone, crs="EPSG:32632")
    return {
        "warped": zstore.reproject(array, other, resampling="bilinear"),
        "mosaic": mosaic,
        "coarse": zstore.coarsen(array, 3, "max"),
        "clipped": clipped,
        "nested": zstore.coarsen(clipped[3:], 2) * 2,
    }


def test_documents_of_warped_coarser_and_clipped_views(tmp_path: Path) -> None:
    array = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    other = _raster(tmp_path / "b.zarr", "EPSG:32633", ZONE_33)
    for name, made in _views(array, other).items():
        made.save(tmp_path / f"{name}.view.json")
        text = (tmp_path / f"{name}.view.json").read_text()
        assert str(tmp_path) not in text and len(text) < 5000
        again: Any = zstore.open(tmp_path / f"{name}.view.json")
        assert (again.shape, again.dtype) == (made.shape, made.dtype)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(again))[5:9, 7:].read(), made[5:9, 7:].read())
        np.testing.assert_array_equal(again.read(), made.read())
        assert again.attributes == made.attributes
        again.save(tmp_path / "again.view.json")
        assert (tmp_path / "again.view.json").read_text() == text
    assert "EPSG:32632" in _type("info", tmp_path / "nested.view.json")
    array.resize((301, 400))
    with pytest.raises(ChangedError, match="expected"):
        zstore.open(tmp_path / "warped.view.json").read()


def test_a_raster_with_a_mask_has_a_document(tmp_path: Path) -> None:
    array = _raster(tmp_path / "g.zarr/a", "EPSG:32632", UTM_32)
    group: Any = zstore.create_group(tmp_path / "h.zarr", attributes=dict(array.attrs))
    names = ("y", "x")
    group.create_array("a", data=array[...], dimension_names=names, attributes={"_FillValue": HOLE})
    alpha = {"color_interpretation": "alpha"}
    cells = (np.indices((300, 400)).sum(0) % 3 > 0).astype("u1")
    group.create_array("alpha", data=cells, dimension_names=names, attributes=alpha)
    made = zstore.reproject(group, zstore.GeoGrid.of(array))
    made.save(tmp_path / "m.view.json")
    cells = zstore.open(tmp_path / "m.view.json").read()
    np.testing.assert_array_equal(cells, made.read())
    assert (cells[0, ::3] == HOLE).all() and (cells[0, 1::3] != HOLE).all()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"by": "os.system"}, MetadataError, "made by 'os.system' of None; expected one of clip, coarsen"),
        ({"with": {}}, MetadataError, "'reproject' of a view is damaged: TypeError"),
        ({"with": {"more": 1}}, MetadataError, "'reproject' of a view is damaged: TypeError"),
        ({"url": "../elsewhere"}, StoreError, "out of the place of its document"),
        ({"of": []}, MetadataError, "'reproject' of a view is damaged"),
        ({"of": [7]}, MetadataError, "7 is no number from 0"),
        ({"shape": [3, 4]}, ChangedError, r"'reproject' made shape \(300, 400\)"),
        ({"chunks": [0, 4]}, MetadataError, "expected positive lengths"),
    ],
)
def test_damaged_documents_of_warped_views(tmp_path: Path, change: Any, error: Any, match: str) -> None:
    array = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    zstore.reproject(array, array).save(tmp_path / "a.view.json")
    document = json.loads((tmp_path / "a.view.json").read_text())
    document["steps"][1] |= change
    (tmp_path / "a.view.json").write_text(json.dumps(document))
    with pytest.raises(error, match=match):
        zstore.open(tmp_path / "a.view.json").read()


def test_what_is_refused(tmp_path: Path) -> None:
    array = _raster(tmp_path / "a.zarr", "EPSG:32632", UTM_32)
    with pytest.raises(UnsupportedError, match="resampling is 'sum'; expected one of nearest"):
        zstore.reproject(array, array, resampling="sum")
    with pytest.raises(MetadataError, match="nodata is 7; expected -1"):
        zstore.reproject(array, array, nodata=7)
    bare = zstore.create_array(tmp_path / "bare.zarr", data=np.zeros((4, 4)), dimension_names=("y", "x"))
    with pytest.raises(MetadataError, match="no CRS; expected one"):
        zstore.reproject(bare, array)
    with pytest.raises(ValueError, match="no sources"):
        zstore.mosaic([])
    other = _raster(tmp_path / "b.zarr", "EPSG:32632", UTM_32)
    other.attrs["units"] = "km"
    with pytest.raises(MetadataError, match="units is 'km'; expected 'm'"):
        zstore.mosaic([array, other])
    del array.attrs["_FillValue"]
    with pytest.raises(MetadataError, match="has no nodata for cells beside it"):
        zstore.reproject(array, array)
    for resolution in (-1, 0, "fine", (1, 2, 3), float("nan")):
        with pytest.raises(MetadataError, match=r"resolution is .*; expected a positive number, or two"):
            zstore.GeoGrid.around([other], crs="EPSG:3857", resolution=resolution)
    for grid in (4326, "EPSG:4326"):
        with pytest.raises(MetadataError, match=r"a CRS; expected a grid in it"):
            zstore.reproject(other, grid)
    with pytest.raises(MetadataError, match=r"affine is .*; expected six numbers"):
        zstore.GeoGrid("EPSG:4326", (1, 2), (3, 4))


def test_a_stored_mosaic_that_was_interrupted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    west = _raster(tmp_path / "west", "EPSG:32632", (10, 0, 700000, 0, -10, 5300000))
    east = _raster(tmp_path / "east", "EPSG:32633", (20, 0, 254000, 0, -20, 5300000))
    expected: Any = zstore.convert(zstore.mosaic([west, east]), tmp_path / "whole")
    read, calls = Warped.read, []

    def stopping(self: Warped, *rest: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return read(self, *rest)

    monkeypatch.setattr(Warped, "read", stopping)
    with pytest.raises(KeyboardInterrupt):
        zstore.convert(zstore.mosaic([west, east]), tmp_path / "made", memory=2 << 20)
    mosaic = zstore.mosaic([west, east])
    made: Any = zstore.convert(mosaic, tmp_path / "made", memory=2 << 20, resume=True)
    np.testing.assert_array_equal(made["data"][...], expected["data"][...])
    assert made.attrs == expected.attrs and made["data"].attrs == expected["data"].attrs
    west[0, 0] = 7
    with pytest.raises(ChangedError, match="source was written to since"):
        zstore.convert(zstore.mosaic([west, east]), tmp_path / "made", memory=2 << 20, resume=True)
