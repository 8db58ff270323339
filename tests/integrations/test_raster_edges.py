"""Odd rasters to Zarr, then to GeoTIFF and COG: what they say comes back, is refused or left out by name."""

from __future__ import annotations

import re
import struct
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, RasterWarning, StoreError, UnsupportedError
from zstore.geo.rasters import raster as raster_module
from zstore.geo.rasters import raster_to_zarr, zarr_to_raster

rasterio = pytest.importorskip("rasterio", reason="rasters are read and written with rasterio")
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

# Most rasters here have no nodata, and zeros.
pytestmark = pytest.mark.filterwarnings("ignore:.*(GDAL takes the fill value|GDAL finds no place)")
from rasterio.enums import ColorInterp, Resampling  # noqa: E402
from rasterio.shutil import copy  # noqa: E402

Affine = rasterio.Affine
NORTH_UP = Affine(30, 0, 612825, 0, -30, 6852675)
PALETTE = {value: (value, 255 - value, value * 7 % 256, 0 if value == 3 else 255) for value in range(256)}


def cells(bands: int, rows: int, columns: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 100, (bands, rows, columns)).astype(dtype)


def write_mask(raster: Any) -> None:
    mask = np.zeros(raster.shape, np.uint8)
    mask[:3] = 255
    raster.write_mask(mask)


def tag(raster: Any) -> None:
    raster.update_tags(title="ä = b", TIFFTAG_DATETIME="2020:01:01 00:00:00", AREA_OR_POINT="Point")
    raster.update_tags(1, **{"two words": "v=w"})
    raster.descriptions, raster.units = ("x", "spatial_ref"), ("m", "°C")


def pack(raster: Any) -> None:
    raster.scales, raster.offsets = (-0.5, 1.0), (1e-300, 3.0)


def describe_alike(raster: Any) -> None:
    raster.descriptions = ("a", "a_3", "a", "zarr.json", "a/b", "ж" * 300)


def say_colours(*names: str) -> Callable[[Any], None]:
    def say(raster: Any) -> None:
        raster.colorinterp = [ColorInterp[name] for name in names]

    return say


# What is written: cells, what else is said of them, and options of the file.
CASES: dict[str, tuple[np.ndarray, Callable[[Any], None] | None, dict[str, Any]]] = {
    "rotated": (cells(1, 30, 20, "u1"), None, {"transform": Affine(20, 5, 100, 10, -8, 200)}),
    "sheared": (cells(1, 30, 20, "u1"), None, {"transform": Affine(20, 5, 100, 0, -8, 200)}),
    "south-up": (cells(1, 30, 20, "u1"), None, {"transform": Affine(20, 0, 100, 0, 8, 200)}),
    "columns to the west": (cells(1, 30, 20, "u1"), None, {"transform": Affine(-20, 0, 100, 0, -8, 200)}),
    "one cell": (cells(1, 1, 1, "u1"), None, {}),
    "one row": (cells(2, 1, 5, "f4"), None, {}),
    "one column": (cells(2, 5, 1, "f4"), None, {}),
    "degrees": (
        cells(1, 9, 9, "u1"),
        None,
        {"crs": "EPSG:4326", "transform": Affine(0.1, 0, 10, 0, -0.1, 50)},
    ),
    "a height as well": (cells(1, 9, 9, "f4"), None, {"crs": "EPSG:32622+5773"}),
    "a CRS without a code": (
        cells(1, 9, 9, "f4"),
        None,
        {"crs": "+proj=laea +lat_0=45 +lon_0=-100 +R=6370997"},
    ),
    "a mask": (cells(3, 30, 20, "u1"), write_mask, {}),
    "alpha": (cells(4, 30, 20, "u1"), None, {"photometric": "RGB", "alpha": "YES"}),
    "alpha of grey": (cells(2, 30, 20, "u2"), None, {"alpha": "YES"}),
    "four bands of bytes": (cells(4, 30, 20, "u1"), None, {"photometric": "MINISBLACK"}),
    "blue first": (cells(4, 30, 20, "u1"), say_colours("blue", "green", "red", "undefined"), {}),
    "nodata NaN": (cells(1, 30, 20, "f4"), None, {"nodata": np.nan}),
    "nodata infinite": (cells(1, 30, 20, "f8"), None, {"nodata": -np.inf}),
    "int8": (cells(1, 30, 20, "i1"), None, {"nodata": -128}),
    "int64": (cells(1, 30, 20, "i8"), None, {"nodata": -9999}),
    "uint64": (cells(1, 30, 20, "u8"), None, {"nodata": 2**53}),
    "float16": (cells(1, 30, 20, "f2"), None, {"nodata": -999}),
    "complex": (cells(2, 30, 20, "c16"), None, {}),
    "a palette": (cells(1, 30, 20, "u1"), lambda raster: raster.write_colormap(1, PALETTE), {}),
    "packed": (cells(2, 30, 20, "i2"), pack, {"nodata": 0}),
    "tags": (cells(2, 30, 20, "i2"), tag, {}),
    "descriptions alike": (cells(6, 5, 4, "u1"), describe_alike, {"photometric": "MINISBLACK"}),
    "many bands": (cells(60, 5, 4, "u1"), None, {}),
    "huge blocks": (cells(1, 700, 300, "u2"), None, {"tiled": True, "blockxsize": 2048, "blockysize": 4096}),
    "one strip": (cells(1, 700, 300, "u1"), None, {"blockysize": 700}),
}


def make(path: Path, data: np.ndarray, describe: Callable[[Any], None] | None = None, **options: Any) -> Path:
    profile = {"driver": "GTiff", "crs": "EPSG:32622", "transform": NORTH_UP, "dtype": data.dtype}
    profile |= {"count": data.shape[0], "height": data.shape[1], "width": data.shape[2]}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(path, "w", **profile | options) as raster,
    ):
        if describe is not None:
            describe(raster)
        raster.write(data)
    return path


def facts(path: Path) -> dict[str, Any]:
    """All that a raster says."""
    with rasterio.open(path) as raster:
        named = "dtypes shape crs transform colorinterp descriptions units scales offsets mask_flag_enums"
        said = {name: getattr(raster, name) for name in named.split()}
        said["nodata"] = [repr(value) for value in raster.nodatavals]
        said["tags"] = {name: v for name, v in raster.tags().items() if name != "OVR_RESAMPLING_ALG"}
        said["band tags"] = [raster.tags(band) for band in raster.indexes]
        said["cells"], said["masks"] = raster.read().tobytes(), raster.read_masks().tobytes()
        is_palette = raster.colorinterp[0].name == "palette"
        return {**said, "palette": raster.colormap(1) if is_palette else None}


@pytest.mark.parametrize(("zarr_format", "levels", "driver"), [(2, 0, "GTiff"), (3, 1, "COG")])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:warning GZ-37 at /. no tile_matrix_set")
def test_all_that_it_says_comes_back(
    tmp_path: Path, case: str, zarr_format: int, levels: int, driver: str
) -> None:
    data, describe, options = CASES[case]
    if not rasterio.dtypes.check_dtype(data.dtype.name):
        pytest.skip(f"GDAL {rasterio.__gdal_version__} has no {data.dtype.name}")
    path = make(tmp_path / "a.tif", data, describe, **options)
    raster_to_zarr(path, tmp_path / "z", zarr_format=zarr_format, levels=levels)
    back = zarr_to_raster(tmp_path / "z", tmp_path / "b.tif", driver=driver)
    assert facts(back) == facts(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tif", "b.tif", "z"]


def test_a_raster_without_a_crs(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tif", cells(1, 30, 20, "u1"), crs=None)
    with pytest.warns(RasterWarning, match="has no CRS"):
        raster_to_zarr(path, tmp_path / "z")
    assert facts(zarr_to_raster(tmp_path / "z", tmp_path / "b.tif", driver="COG")) == facts(path)


def test_names_are_different_and_fit_a_directory(tmp_path: Path) -> None:
    data, describe, options = CASES["descriptions alike"]
    made = raster_to_zarr(make(tmp_path / "a.tif", data, describe, **options), tmp_path / "z")
    names = made.attrs["bands"]
    assert names[:5] == ["a", "a_3", "a_3_3", "zarr.json_4", "a_b"] and names[5] == "ж" * 100
    for band, name in enumerate(names):
        np.testing.assert_array_equal(made[name][...], data[band])


def write_vrt(path: Path, dtype: str, inside: str) -> Path:
    """One band of `a.tif` beside it, with more in its description."""
    source = '<SimpleSource><SourceFilename relativeToVRT="1">a.tif</SourceFilename></SimpleSource>'
    path.write_text(
        f'<VRTDataset rasterXSize="20" rasterYSize="30"><GeoTransform>0,1,0,50,0,-1</GeoTransform>'
        f'<SRS>EPSG:4326</SRS><VRTRasterBand dataType="{dtype}" band="1">'
        f"{inside.format(source=source)}{source}</VRTRasterBand></VRTDataset>"
    )
    return path


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [("int64", -(2**63)), ("int64", 2**63 - 1), ("int64", 2**53 + 1), ("uint64", 2**64 - 1), ("uint64", 7)],
)
def test_nodata_of_64_bits_is_exact_or_refused(tmp_path: Path, dtype: str, nodata: int) -> None:
    make(tmp_path / "a.tif", cells(1, 30, 20, dtype))
    path = write_vrt(
        tmp_path / "a.vrt", dtype.replace("i", "I").replace("u", "U"), f"<NoDataValue>{nodata}</NoDataValue>"
    )
    copy(path, tmp_path / "b.tif", driver="GTiff")
    for source in (path, tmp_path / "b.tif"):
        made = raster_to_zarr(source, tmp_path / "z", overwrite=True)
        assert made["band_1"].attrs["_FillValue"] == nodata and made["band_1"].fill_value == nodata
    if nodata > 2**53 or nodata < -(2**53):
        with pytest.raises(UnsupportedError, match=f"nodata is {nodata}; expected at most"):
            zarr_to_raster(tmp_path / "z", tmp_path / "c.tif")
        assert not (tmp_path / "c.tif").exists()
    else:
        with rasterio.open(zarr_to_raster(tmp_path / "z", tmp_path / "c.tif")) as raster:
            assert raster.nodata == nodata


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    make(tmp_path / "a.tif", cells(1, 30, 20, "u1"))
    mask = '<MaskBand><VRTRasterBand dataType="Byte">{source}</VRTRasterBand></MaskBand>'
    with pytest.warns(RasterWarning, match="a mask of its own for each band, which is left out"):
        raster_to_zarr(write_vrt(tmp_path / "a.vrt", "Byte", mask), tmp_path / "z")
    path = make(tmp_path / "b.tif", cells(1, 30, 20, "c8"), nodata=5)
    with pytest.warns(RasterWarning, match=r"nodata is 5\.0; complex64 arrays have none.*left out"):
        made = raster_to_zarr(path, tmp_path / "y")
    assert "_FillValue" not in made["band_1"].attrs


def scale_by_nothing(raster: Any) -> None:
    raster.scales, raster.offsets = (0.0,), (2.0,)


def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tif", cells(1, 30, 20, "i2"), scale_by_nothing)
    with pytest.raises(MetadataError, match=r"scale_factor is 0\.0"):
        raster_to_zarr(path, tmp_path / "z")
    path = make(tmp_path / "b.tif", cells(1, 30, 20, "i2").astype("c8"), dtype="complex_int16")
    with pytest.raises(UnsupportedError, match="'complex_int16', which Zarr does not have"):
        raster_to_zarr(path, tmp_path / "z")
    assert not (tmp_path / "z").exists()
    group = zstore.create_group(tmp_path / "z")
    group.create_array("a", data=cells(1, 30, 20, "u1")[0], dimension_names=("y", "x"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with pytest.raises(UnsupportedError, match="compress is 'nope'"):
            zarr_to_raster(group, tmp_path / "c.tif", compress="nope")
        with pytest.raises(UnsupportedError, match="compress is 'webp'"):
            zarr_to_raster(group, tmp_path / "c.tif", compress="webp")
    group.create_array("b", data=np.zeros((30, 20), "?"), dimension_names=("y", "x"))
    with pytest.raises(UnsupportedError, match="cannot hold the data type bool"):
        zarr_to_raster(group, tmp_path / "c.tif", arrays=["b"])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tif", "b.tif", "z"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nan_for_nodata_is_one_to_xarray_and_rioxarray(tmp_path: Path, zarr_format: int) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is the reader")
    pytest.importorskip("rioxarray", reason="rioxarray is the reader")
    data = np.where(np.eye(20, 30) > 0, np.nan, 1).astype("f4")
    make(tmp_path / "a.tif", data[None], nodata=np.nan)
    raster_to_zarr(tmp_path / "a.tif", tmp_path / "z", zarr_format=zarr_format)
    with xr.open_zarr(tmp_path / "z", decode_coords="all") as opened:
        assert np.isnan(opened["band_1"].rio.encoded_nodata)
        assert np.isnan(opened["band_1"].encoding["_FillValue"])
    with xr.open_zarr(tmp_path / "z", decode_coords="all", mask_and_scale=False) as opened:
        assert np.isnan(opened["band_1"].rio.nodata)


@pytest.mark.filterwarnings("ignore:warning GZ-16", "ignore:variable .v. has multiple fill values")
@pytest.mark.parametrize(
    ("dtype", "attributes", "holes"),
    [
        ("f8", {"_FillValue": "NaN", "missing_value": 1e20}, [np.nan, 1e20]),
        ("i2", {"_FillValue": -32768, "missing_value": [-999, -998]}, [-32768, -999, -998]),
    ],
)
def test_every_value_of_nodata_is_the_one_of_the_geotiff(tmp_path: Path, dtype, attributes, holes) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is the reader")
    data = np.arange(600, dtype=dtype).reshape(20, 30)
    data.flat[7 : 7 + len(holes)] = holes
    place = {"proj:code": "EPSG:32633", "spatial:transform": [30, 0, 500000, 0, -30, 5000000]}
    group = zstore.create_group(tmp_path / "z", attributes={**place, "spatial:dimensions": ["y", "x"]})
    group.create_array("v", data=data, dimension_names=("y", "x"), attributes=attributes)
    zarr_to_raster(group, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as raster:
        found = raster.read(1, masked=True)
    expected = xr.open_dataset(tmp_path / "z", engine="zstore")["v"].values
    np.testing.assert_array_equal(found.filled(0), np.nan_to_num(expected))
    np.testing.assert_array_equal(np.ma.getmaskarray(found), np.isnan(expected))


@pytest.mark.filterwarnings("error")
def test_what_gdal_will_not_find_in_zarr_is_told(tmp_path: Path) -> None:
    from zstore.geo.report.summary import describe

    data = np.arange(600, dtype="u1").reshape(20, 30)
    make(tmp_path / "a.tif", data[None])
    with pytest.warns(RasterWarning, match=r"GDAL takes the fill value for it \(0 of 'band_1'\)"):
        group = raster_to_zarr(tmp_path / "a.tif", tmp_path / "z")
    said = {reader.name: reader.mistake for reader in describe(group).readers}
    assert said["GDAL 3.12"] == "takes the fill value of band_1 for nodata" and said["xarray"] == ""
    # Nobody is told of what no cell has, nor where null stands for "there is none".
    make(tmp_path / "b.tif", np.maximum(data, 1)[None])
    raster_to_zarr(tmp_path / "b.tif", tmp_path / "y")
    group = raster_to_zarr(tmp_path / "a.tif", tmp_path / "x", zarr_format=2)
    assert not any(reader.mistake for reader in describe(group).readers)
    make(tmp_path / "c.tif", np.maximum(data, 1)[None], transform=Affine(30, 5, 0, 5, -30, 0))
    with pytest.warns(RasterWarning, match=r"before 3\.13, GDAL finds no place"):
        raster_to_zarr(tmp_path / "c.tif", tmp_path / "w")


# Against gdaladdo: classes stay classes, and masked cells are in no level


def overviews(path: Path, method: Resampling) -> list[tuple[np.ndarray, np.ndarray]]:
    """(bands, validity) of the two overviews that GDAL makes of a file."""
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as raster:
        raster.build_overviews([2, 4], method)
    found = []
    for level in (0, 1):
        with rasterio.open(path, overview_level=level) as raster:
            found.append((raster.read(), raster.dataset_mask()))
    return found


@pytest.mark.parametrize("method", ["average", "bilinear", "cubic"])
@pytest.mark.parametrize("kind", ["mask", "alpha"])
def test_masked_cells_are_in_no_overview(tmp_path: Path, kind: str, method: str) -> None:
    rows, columns = np.indices((96, 128))
    valid = np.where((rows - 40) ** 2 + (columns - 60) ** 2 < 1500, 255, 0).astype("u1")
    data = cells(3, 96, 128, "u1")

    def write_it(raster: Any) -> None:
        raster.write_mask(valid)

    if kind == "mask":
        path = make(tmp_path / "a.tif", data, write_it, photometric="RGB")
    else:
        path = make(tmp_path / "a.tif", np.concatenate([data, valid[None]]), photometric="RGB", alpha="YES")
    group = raster_to_zarr(path, tmp_path / "z")
    made = zstore.build_pyramid(group, tmp_path / "p", levels=2, method=method, derive="cascade")
    mask = "mask" if kind == "mask" else "band_4"
    for level, (bands, shown) in enumerate(overviews(path, Resampling[method]), 1):
        for band in range(3):
            found = made[f"{level}/band_{band + 1}"][...].astype(int)
            both = (shown > 0) & (made[f"{level}/{mask}"][...] > 0)
            off = np.abs(found - bands[band])[both]
            assert both.sum() > 300 and (off.max() <= 1) and np.count_nonzero(off) <= 0.01 * off.size
        if method == "average":
            np.testing.assert_array_equal(made[f"{level}/{mask}"][...] > 0, shown > 0)


def with_categories(path: Path) -> Path:
    names = "".join(f"<Category>{name}</Category>" for name in ("water", "dry land", "ice"))
    inside = f"<CategoryNames>{names}</CategoryNames>"
    Path(f"{path}.aux.xml").write_text(
        f'<PAMDataset><PAMRasterBand band="1">{inside}</PAMRasterBand></PAMDataset>'
    )
    return path


def with_table(path: Path) -> Path:
    rows = "".join(f'<Row index="{n}"><F>{n}</F><F>{name}</F></Row>' for n, name in enumerate("abc"))
    fields = "".join(
        f'<FieldDefn index="{n}"><Name>{name}</Name><Type>{kind}</Type><Usage>{usage}</Usage></FieldDefn>'
        for n, (name, kind, usage) in enumerate((("Value", 0, 5), ("Class", 2, 2)))
    )
    table = f'<GDALRasterAttributeTable tableType="thematic">{fields}{rows}</GDALRasterAttributeTable>'
    Path(f"{path}.aux.xml").write_text(
        f'<PAMDataset><PAMRasterBand band="1">{table}</PAMRasterBand></PAMDataset>'
    )
    return path


def classes_of(path: Path) -> list[list[str]]:
    """What GDAL knows of the classes of each band, as it says it."""
    with rasterio.open(path) as raster, rasterio.MemoryFile(ext=".vrt") as memory:
        rasterio.shutil.copy(raster, memory.name, driver="VRT")
        bands = ElementTree.fromstring(memory.read()).findall("VRTRasterBand")
    tags = ("CategoryNames", "GDALRasterAttributeTable", "ColorTable")
    return [
        [re.sub(r">\s+<", "><", ElementTree.tostring(found, "unicode").strip())
         for tag in tags for found in band.findall(tag)]
        for band in bands
    ]  # fmt: skip


@pytest.mark.parametrize("driver", ["GTiff", "COG"])
@pytest.mark.parametrize("hint", ["palette", "categories", "table"])
def test_classes_become_a_geotiffs_again(tmp_path: Path, hint: str, driver: str) -> None:
    data = np.random.default_rng(0).integers(0, 3, (1, 96, 128)).astype("u1")
    write = {"palette": make, "categories": with_categories, "table": with_table}[hint]
    path = make(tmp_path / "a.tif", data, lambda raster: raster.write_colormap(1, PALETTE))
    path = path if hint == "palette" else write(path)
    raster_to_zarr(path, tmp_path / "z")
    zarr_to_raster(tmp_path / "z", tmp_path / "b.tif", driver=driver)
    assert classes_of(tmp_path / "b.tif") == classes_of(path) != [[]]
    with rasterio.open(tmp_path / "b.tif") as raster, rasterio.open(path) as source:
        assert raster.colormap(1) == source.colormap(1)


@pytest.mark.filterwarnings("ignore:.*no CRS and no affine")
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_flags_and_a_second_bands_colours_are_classes_to_gdal(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "z", attributes={"bands": ["a", "b"]})
    for name, attributes in {
        "a": {"flag_values": [0, 2], "flag_meanings": "sea land"},
        "b": {"categories": {"-1": "none", "7": "d & e"}, "color_table": {"7": [1, 2, 3, 4]}},
    }.items():
        data = np.zeros((9, 9), "i2")
        group.create_array(name, data=data, dimension_names=("y", "x"), attributes=attributes)
    zarr_to_raster(group, tmp_path / "a.tif")
    (names,), (table,) = classes_of(tmp_path / "a.tif")
    assert re.findall(r"<Category(?: />|>(.*?)</)", names) == ["sea", "", "land"]
    cells = re.findall(r"<F>(.*?)</F>", table)
    assert cells == ["-1", "none", "0", "0", "0", "0", "7", "d &amp; e", "1", "2", "3", "4"]
    raster_to_zarr(tmp_path / "a.tif", tmp_path / "again")
    zarr_to_raster(tmp_path / "again", tmp_path / "b.tif")
    assert classes_of(tmp_path / "b.tif") == [[names], [table]]


@pytest.mark.filterwarnings("ignore:.*no CRS and no affine")
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(
    "colours", [{"a": [1, 2, 3]}, {"1": "red"}, {"1": None}, {"1": [1, 2]}, {"1": [300, 0, 0]}, ["red"]]
)
def test_classes_that_gdal_has_no_words_for_are_left_out(tmp_path: Path, colours: Any) -> None:
    group = zstore.create_group(tmp_path / "z", attributes={"bands": ["a", "b"]})
    for name in "ab":
        attributes = {"categories": {"0": "wa\x00ter", "1": "\x1bice"}, "color_table": colours}
        group.create_array(
            name, data=np.zeros((9, 9), "u1"), dimension_names=("y", "x"), attributes=attributes
        )
    zarr_to_raster(group, tmp_path / "a.tif")
    for (names,) in classes_of(tmp_path / "a.tif"):
        assert re.findall(r"<Category(?: />|>(.*?)</)", names) == ["water", "ice"]


@pytest.mark.parametrize(
    ("hint", "names"),
    [("palette", None), ("categories", ("water", "dry_land", "ice")), ("table", ("a", "b", "c"))],
)
def test_classes_make_levels_of_classes(tmp_path: Path, hint: str, names: tuple[str, ...] | None) -> None:
    data = np.random.default_rng(0).integers(0, 3, (1, 96, 128)).astype("u1") * 100
    data = data if hint == "palette" else data // 100
    if hint == "palette":
        path = make(tmp_path / "a.tif", data, lambda raster: raster.write_colormap(1, PALETTE))
    else:
        path = (with_categories if hint == "categories" else with_table)(make(tmp_path / "a.tif", data))
    group = raster_to_zarr(path, tmp_path / "z", levels=1)
    assert group["0/band_1"].attrs.get("flag_meanings") == (None if names is None else " ".join(names))
    with rasterio.Env(), rasterio.open(path, "r+") as raster:
        raster.build_overviews([2], Resampling.mode)
    with rasterio.open(path, overview_level=0) as raster:
        np.testing.assert_array_equal(group["1/band_1"][...], raster.read(1))
    assert group.attrs["multiscales"]["layout"][1].get("resampling_method", "mode") == "mode"


def test_what_is_told_of_all_bands_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each band: a small file may claim 65,535 of them."""
    told = {"driver": "GTiff", "height": 1, "width": 1, "dtype": "uint8", "transform": NORTH_UP}
    with rasterio.open(tmp_path / "a.tif", "w", count=60, crs="EPSG:32621", **told) as raster:
        raster.write(np.arange(60, dtype="u1").reshape(60, 1, 1))
    asked: Counter[str] = Counter()

    class Counted:
        def __getattr__(self, name: str) -> Any:
            asked[name] += 1
            return getattr(raster, name)

    with rasterio.open(tmp_path / "a.tif") as raster:
        vrt = raster_module._vrt_bands(raster)
        monkeypatch.setattr(raster_module, "_vrt_bands", lambda _: vrt)
        found = raster_module.describe_raster(Counted(), str(tmp_path / "a.tif"))
    assert len(found.geo.variables) == 60
    each = ("dtypes", "nodatavals", "scales", "offsets", "units", "descriptions", "colorinterp")
    assert {name: asked[name] for name in each} == dict.fromkeys(each, 1)


@pytest.mark.parametrize("layout", [{"tiled": True, "blockxsize": 16}, {}], ids=["tiles", "strips"])
@pytest.mark.parametrize("compress", ["none", "deflate"])
def test_blocks_whose_place_was_lost_are_damage(
    tmp_path: Path, layout: dict[str, Any], compress: str
) -> None:
    """GDAL reads the header of an uncompressed TIFF as cells, where a block is said to lie there."""
    path, cells = tmp_path / "a.tif", np.arange(1, 64 * 64 + 1, dtype="u2").reshape(1, 64, 64)
    words = {"driver": "GTiff", "width": 64, "height": 64, "count": 1, "dtype": "uint16", "blockysize": 16}
    words |= {"crs": "EPSG:32632", "transform": Affine(10, 0, 0, 0, -10, 0), **layout}
    with rasterio.open(path, "w", **words, compress=compress) as raster:
        raster.write(cells)
    with rasterio.open(path) as raster:
        blocks = [index for index, _ in raster.block_windows(1)]
        tags = [raster.get_tag_item(f"BLOCK_OFFSET_{x}_{y}", "TIFF", bidx=1) for y, x in blocks]
    offsets, form = [*map(int, tags)], f"<{len(blocks)}I"
    lost = struct.pack(form, *offsets[:2], 0, *offsets[3:])
    assert path.read_bytes().count(struct.pack(form, *offsets)) == 1
    raster_to_zarr(path, tmp_path / "sound.zarr")
    path.write_bytes(path.read_bytes().replace(struct.pack(form, *offsets), lost))
    with pytest.raises(StoreError, match=r"block .* of band 1 lies at byte 0, in the file's header"):
        raster_to_zarr(path, tmp_path / "damaged.zarr")
    assert not (tmp_path / "damaged.zarr" / "zarr.json").exists()
