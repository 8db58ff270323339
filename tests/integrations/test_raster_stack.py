"""Many rasters as one group, held to what rasterio makes of the same files."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError
from zstore.geo.conventions.read import read_geo
from zstore.geo.rasters import raster_to_zarr, rasters_to_zarr, stack_sources, zarr_to_raster
from zstore.geo.rasters.files import IDLE_COUNT, SERIES_COUNT, OpenFiles
from zstore.geo.rasters.geotiff import CACHE_SIZE
from zstore.geo.rasters.stack import read_moments
from zstore.testing.sharing import run_forked

rasterio = pytest.importorskip("rasterio", reason="rasters are read with rasterio")
from rasterio.merge import merge  # noqa: E402
from rasterio.windows import Window  # noqa: E402

# rasterio's merge and windows multiply its affines as the newest affine would not.
pytestmark = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")

SCENE = Path(__file__).parents[2] / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"
RNG = np.random.default_rng(3)


def write(path: Path, data: np.ndarray[Any, Any], corner: tuple[int, int] = (0, 0), **options: Any) -> Path:
    """A GeoTIFF of (bands, y, x) whose first cell is that one of a grid of 10 m."""
    names, tags = options.pop("names", None), options.pop("tags", {})
    mask = options.pop("mask", None)
    profile = {
        "driver": "GTiff",
        "count": data.shape[0],
        "height": data.shape[1],
        "width": data.shape[2],
        "dtype": data.dtype.name,
        "crs": "EPSG:32633",
        "transform": rasterio.Affine(10, 0, 500_000 + 10 * corner[1], 0, -10, 4_000_000 - 10 * corner[0]),
        **options,
    }
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **profile) as made:
        made.write(data)
        made.update_tags(**tags)
        if mask is not None:
            made.write_mask(mask)
        for band, name in enumerate(names or (), 1):
            made.set_band_description(band, name)
    return path


def noise(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(1, 200, shape, "uint8")


def test_along_time(tmp_path, monkeypatch):
    """In order of time whatever the order of files; the coordinate is one that xarray reads.

    Each file is opened twice: for what it says, and for what it holds.
    """
    xr = pytest.importorskip("xarray", reason="xarray is the reader")
    days = {"20200301": noise(2, 70, 90), "20200101": noise(2, 70, 90), "20200201": noise(2, 70, 90)}
    paths = [
        write(tmp_path / f"S_{day}.tif", data, names=["red", "nir"], nodata=0, tags={"by": "S", "day": day})
        for day, data in days.items()
    ]
    opened, real = list[str](), rasterio.open
    monkeypatch.setattr(rasterio, "open", lambda path, *given: opened.append(path) or real(path, *given))
    made = rasters_to_zarr(paths, tmp_path / "t.zarr", stack="time", chunks=32, levels=1)
    assert sorted(opened) == sorted(map(str, [*paths, *paths]))
    with xr.open_dataset(tmp_path / "t.zarr", group="0", engine="zarr", consolidated=False) as found:
        assert [str(t)[:10] for t in found.time.values] == ["2020-01-01", "2020-02-01", "2020-03-01"]
        assert found.red.dims == ("time", "y", "x")
        for day in sorted(days):
            moment = np.datetime64(f"{day[:4]}-{day[4:6]}-{day[6:]}")
            for band, name in enumerate(("red", "nir")):
                np.testing.assert_array_equal(found[name].sel(time=moment), days[day][band])
    assert made["0/red"].chunks == (1, 32, 32) and made["1/red"].shape == (3, 35, 45)
    geo, findings = read_geo(made)
    assert geo.crs.code == "EPSG:32633" and tuple(geo.affine) == (10, 0, 500_000, 0, -10, 4_000_000)
    assert [finding for finding in findings if finding.severity == "error"] == []
    assert made["0"].attrs["tags"] == {"by": "S"}
    assert zstore.validate(made).count("error") == 0


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("LC80030172015001LGN00_B5.tiff", "2015-01-01"),
        ("MOD13Q1.A2015017.h18v04.tif", "2015-01-17"),
        ("tile_2015-01-17.tif", "2015-01-17"),
        ("S1A_20150117T134420.tif", "2015-01-17T13:44:20"),
        ("mosaic-20240229.tif", "2024-02-29"),
        ("era5_2015.01.17_v2.tif", "2015-01-17"),
    ],
)
def test_dates_in_names(name, moment):
    assert read_moments([name], [{}], None)[0] == np.datetime64(moment)


def test_other_ways_to_say_when():
    sentinel = ["S2A_L1C_20170105T013442_N0204_20170106T013443", "S2A_L1C_20170115T013442_N0204_20170116T0"]
    found = read_moments(sentinel, [{}, {}], "S2A_*_%Y%m%dT%H%M%S_N*")
    assert [str(moment) for moment in found] == ["2017-01-05T01:34:42.000000", "2017-01-15T01:34:42.000000"]
    tags = {"TIFFTAG_DATETIME": "2015:01:17 10:20:30"}
    assert read_moments(["a"], [tags], "TIFFTAG_DATETIME")[0] == np.datetime64("2015-01-17T10:20:30")
    assert read_moments(["a", "b"], [{}, {}], ["2015-01-17", datetime(2016, 1, 1)]).tolist() == [
        datetime(2015, 1, 17),
        datetime(2016, 1, 1),
    ]
    for names, times, reason in (
        (["a.tif"], None, "has no date"),
        (["LC08_003017_20150101_20170415.tif"], None, "has several dates"),
        (["a_20151301.tif"], None, "has no date"),
        (["a_2015366.tif"], None, "has no date"),
        (["a"], "acquired", "has no tag 'acquired'; it has none"),
        (["a"], ["yesterday"], "'yesterday' is no date"),
        (["a"], ["NaT"], "is no date"),
        (["a"], [], "0 times are given; expected 1"),
        (["a20150101", "b20150101"], None, "are of one time"),
        (["a2015"], "%m", "expected %Y"),
        (["a2015"], "%Y%q", "expected each of"),
        (["a_2015"], "b_%Y", "has no date by the pattern 'b_%Y'"),
    ):
        with pytest.raises(MetadataError, match=reason):
            read_moments(names, [{} for _ in names], times)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_bands_beside_each_other(tmp_path, zarr_format):
    red, stack = noise(1, 40, 50), RNG.random((2, 40, 50), "f4")
    paths = [
        write(tmp_path / "scene_B4.tif", red, nodata=0),
        write(tmp_path / "indices.tif", stack, names=["ndvi", "evi"]),
        write(tmp_path / "more.tif", noise(2, 40, 50)),
    ]
    made = rasters_to_zarr(paths, tmp_path / "b.zarr", stack="bands", zarr_format=zarr_format)
    assert made.attrs["bands"] == ["scene_B4", "ndvi", "evi", "more_band_1", "more_band_2"]
    np.testing.assert_array_equal(made["scene_B4"][...], red[0])
    np.testing.assert_array_equal(made["evi"][...], stack[1])
    variables = read_geo(made)[0].variables
    assert (variables["scene_B4"].nodata, variables["ndvi"].nodata) == (0, None)


CORNERS = [(0, 0), (0, 60), (45, -7), (50, 55)]


@pytest.mark.filterwarnings("ignore:.*GDAL takes the fill value")
@pytest.mark.parametrize("nodata", [0, None])
def test_a_mosaic_is_rasterios(tmp_path, nodata):
    """Later rasters on top where they are valid; what none covers is nodata, or masked."""
    paths = []
    for number, corner in enumerate(CORNERS):
        data = noise(2, 60, 70)
        data[:, 5:30, 5:50] = 0
        paths.append(write(tmp_path / f"{number}.tif", data, corner, nodata=nodata, names=["a", "b"]))
    expected, transform = merge([str(path) for path in paths], method="last", nodata=0)
    made = rasters_to_zarr(paths, tmp_path / "m.zarr", stack="mosaic", chunks=16, shards=32)
    geo = read_geo(made)[0]
    assert geo.shape == expected.shape[1:] and tuple(geo.affine) == tuple(transform)[:6]
    for band, name in enumerate("ab"):
        np.testing.assert_array_equal(made[name][...], expected[band])
    assert ("mask" in made) == (nodata is None)
    if nodata is None:
        covered = np.zeros(geo.shape, bool)
        for row, column in CORNERS:
            covered[row : row + 60, column + 7 : column + 77] = True
        np.testing.assert_array_equal(made["mask"][...] == 255, covered)


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted by /proc")
def test_of_many_rasters_few_are_open(tmp_path):
    def count() -> int:
        links = [*Path("/proc/self/fd").iterdir()]
        return sum(link.exists() and str(link.readlink()).startswith(f"{tmp_path}/") for link in links)

    data = noise(40, 1, 8, 8)
    paths = [write(tmp_path / f"{n}.tif", one, (0, 8 * n), nodata=0) for n, one in enumerate(data)]
    made = zstore.mosaic(paths)
    for _ in range(2):
        np.testing.assert_array_equal(made.read(), np.concatenate([one[0] for one in data], axis=1))
        assert 0 < count() <= IDLE_COUNT
    assert rasterio.env.get_gdal_config("GDAL_CACHEMAX") == CACHE_SIZE
    del made
    gc.collect()
    assert count() == 0


@pytest.mark.parametrize(("count", "waiting"), [(20, 20), (40, IDLE_COUNT), (400, SERIES_COUNT)])
def test_of_a_long_series_fewer_files_wait(count, waiting):
    files, opened = OpenFiles(count if count > 40 else 1), list[str]()

    @contextmanager
    def opener(path: str) -> Iterator[None]:
        opened.append(path)
        yield
        opened.remove(path)

    for _ in range(2):
        for number in range(min(count, 40)):
            with files.open(opener, str(number)):
                pass
        assert len(opened) == waiting and opened[-1] == str(number)
    files.close()
    assert not opened


def test_a_forked_process_opens_files_of_its_own():
    """With those of its parent, it would share their offsets."""
    files, opened = OpenFiles(), list[str]()

    def opener(path: str) -> Any:
        opened.append(path)
        return nullcontext()

    def use(count: int) -> None:
        with files.open(opener, "a.tif"):
            assert len(opened) == count

    use(1)
    use(1)
    assert run_forked([partial(use, 2)]) == [0]
    use(1)


def test_a_mosaic_of_masked_rasters(tmp_path):
    """A mask keeps what lies below, and is a mask of the whole."""
    below, above = noise(1, 40, 40), noise(1, 40, 40)
    mask = np.zeros((40, 40), "uint8")
    mask[:, 20:] = 255
    paths = [
        write(tmp_path / "0.tif", below, mask=np.full((40, 40), 255, "uint8")),
        write(tmp_path / "1.tif", above, (0, 10), mask=mask),
    ]
    made = rasters_to_zarr(paths, tmp_path / "m.zarr", stack="mosaic")
    found, valid = made["band_1"][...], made["mask"][...]
    np.testing.assert_array_equal(found[:, :30], below[0][:, :30])
    np.testing.assert_array_equal(found[:, 30:], above[0][:, 20:])
    assert (valid == 255).all()


def test_a_scene_cut_in_pieces_is_whole_again(tmp_path):
    with rasterio.open(SCENE) as scene:
        whole, profile = scene.read(1), scene.profile
        for number, (row, column) in enumerate([(0, 0), (0, 500), (400, 0), (400, 500)]):
            window = Window(column, row, min(640, scene.width - column), min(560, scene.height - row))
            piece = {
                "height": window.height,
                "width": window.width,
                "transform": scene.window_transform(window),
            }
            with rasterio.open(tmp_path / f"{number}.tif", "w", **{**profile, **piece}) as made:
                made.write(scene.read(window=window))
    made = rasters_to_zarr(sorted(tmp_path.glob("*.tif")), tmp_path / "m.zarr", stack="mosaic")
    found = made["band_1"]
    covered = (min(960, whole.shape[0]), min(1140, whole.shape[1]))
    np.testing.assert_array_equal(found[...], whole[: covered[0], : covered[1]])


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    first = write(tmp_path / "a_20200101.tif", noise(1, 20, 20), nodata=0)

    def other(**options: Any) -> Path:
        shape = options.pop("shape", (1, 20, 20))
        data = options.pop("data", noise(*shape))
        return write(tmp_path / "b_20200102.tif", data, **{"nodata": 0, **options})

    shifted = rasterio.Affine(10, 0, 500_004, 0, -10, 4_000_000)
    finer = rasterio.Affine(9.9, 0, 500_000, 0, -10, 4_000_000)
    for stack, options, reason in (
        ("time", {"shape": (1, 20, 21)}, "different shapes"),
        ("time", {"crs": "EPSG:32634"}, "different CRSs"),
        ("bands", {"transform": shifted}, "0.4 of a cell away"),
        ("time", {"corner": (1, 0)}, "different affines"),
        ("time", {"nodata": 1}, "different nodatas of 'band_1'"),
        ("mosaic", {"data": noise(1, 20, 20).astype("int16")}, "different dtypes of 'band_1'"),
        ("mosaic", {"transform": finer}, "of a cell away"),
        ("mosaic", {"crs": "EPSG:32634"}, "different CRSs"),
        ("time", {"shape": (2, 20, 20)}, "different bands"),
    ):
        with pytest.raises(MetadataError, match=reason):
            rasters_to_zarr([first, other(**options)], tmp_path / "x.zarr", stack=stack)
        assert not (tmp_path / "x.zarr").exists()
    with pytest.raises(NotFoundError):
        rasters_to_zarr([first, tmp_path / "none.tif"], tmp_path / "x.zarr", stack="time")
    with pytest.raises(MetadataError, match="expected one of time, bands, mosaic"):
        rasters_to_zarr([first], tmp_path / "x.zarr", stack="space")
    with pytest.raises(MetadataError, match="no rasters"):
        rasters_to_zarr([], tmp_path / "x.zarr", stack="time")
    with pytest.raises(MetadataError, match="times are for"):
        rasters_to_zarr([first], tmp_path / "x.zarr", stack="bands", times="%Y")
    assert not (tmp_path / "x.zarr").exists()


def test_by_the_command_line(tmp_path):
    testing = pytest.importorskip("click.testing", reason="the command line is made with click")
    from zstore.cli.root import zstore as command

    paths = [write(tmp_path / f"a_2020{month:02}01.tif", noise(1, 20, 20)) for month in (2, 1)]

    def run(*words: object) -> Any:
        return testing.CliRunner().invoke(command, ["convert", *map(str, words)])

    assert run(*paths, tmp_path / "t.zarr", "--stack", "time", "--pyramid").exit_code == 0
    assert zstore.open(tmp_path / "t.zarr", mode="r")["0/time"][...].tolist() == [18262, 18293]
    given = run(*paths, tmp_path / "g.zarr", "--stack", "time", "--times", "2001-01-01,2000-01-01")
    assert given.exit_code == 0, given.output
    assert zstore.open(tmp_path / "g.zarr", mode="r")["time"][...].tolist() == [10957, 11323]
    for words, reason in (
        ([*paths, tmp_path / "x.zarr"], "--stack time, bands or mosaic"),
        ([*paths, tmp_path / "x.tif", "--stack", "time"], "would be a GeoTIFF"),
        ([paths[0], tmp_path / "x.zarr", "--times", "%Y"], "--times goes with --stack time"),
        ([*paths, tmp_path / "x.zarr", "--stack", "time", "--cog"], "--cog does not go with several rasters"),
        ([tmp_path / "t.zarr", tmp_path / "x.zarr", "--stack", "time"], "is none"),
    ):
        result = run(*words)
        assert result.exit_code == 2 and reason in result.output, result.output
    assert not (tmp_path / "x.zarr").exists()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("method", ["max", "mode"])
def test_overviews_of_a_cog_are_the_levels(tmp_path, masked, method):
    """Whatever made the levels; odd lengths, two bands, a mask at every level."""
    mask = np.where(RNG.random((615, 533)) < 0.3, 0, 255).astype("uint8")
    raster = write(tmp_path / "a.tif", noise(2, 615, 533), mask=mask if masked else None)
    made = raster_to_zarr(raster, tmp_path / "p.zarr", levels=3, method=method)
    path = zarr_to_raster(made, tmp_path / "cog.tif", driver="COG")
    for level in range(4):
        with rasterio.open(path, **({"OVERVIEW_LEVEL": level - 1} if level else {})) as cog:
            for band in (1, 2):
                np.testing.assert_array_equal(cog.read(band), made[f"{level}/band_{band}"][...])
            if masked:
                np.testing.assert_array_equal(cog.dataset_mask(), made[f"{level}/mask"][...])
    with rasterio.open(zarr_to_raster(made, tmp_path / "one.tif", driver="COG", level=2)) as cog:
        assert cog.overviews(1) == [2]
        np.testing.assert_array_equal(cog.read(1), made["2/band_1"][...])
    flat = raster_to_zarr(raster, tmp_path / "flat.zarr")
    with rasterio.open(zarr_to_raster(flat, tmp_path / "flat.tif", driver="COG")) as cog:
        assert cog.overviews(1) == [2]  # GDAL's own, to 512 cells


def test_stacks_are_sources_of_jobs(tmp_path):
    """A reduction along time reads each raster, and no Zarr is between."""
    cells = {f"2020010{day}": noise(1, 20, 30) for day in (3, 1, 2)}
    paths = [write(tmp_path / f"S_{day}.tif", data, nodata=0) for day, data in cells.items()]
    source = stack_sources(paths, "time")["band_1"]
    whole = np.stack([cells[day][0] for day in sorted(cells)])
    assert source.shape == whole.shape and source.grid.chunk_shape[0] == 1
    np.testing.assert_array_equal(source.read((slice(1, 3), slice(5, 9), slice(2, 30))), whole[1:, 5:9, 2:])
    np.testing.assert_array_equal(zstore.reduce(source, "max", axis=0), whole.max(0))
    np.testing.assert_array_equal(zstore.convert(source, tmp_path / "t.zarr", chunks=(3, 8, 8))[...], whole)
