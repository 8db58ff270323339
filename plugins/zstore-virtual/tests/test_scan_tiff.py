"""GeoTIFFs and COGs of GDAL and tifffile, read in place: pixels, levels, masks and places are theirs."""

from __future__ import annotations

import re
import struct
import warnings
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.manifest import Manifest
from zstore_virtual.scan.files import scan_file
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import RasterWarning, StoreError, UnsupportedError
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.read import read_geo

tifffile = pytest.importorskip("tifffile", reason="tifffile is not installed")

PLACE = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500000, 0, -10, 3000000)}
TILES = {"tiled": True, "blockxsize": 64, "blockysize": 48}
STRIPS = {"tiled": False, "blockysize": 17}
ONE_STRIP = {"tiled": False, "blockysize": 150}


def picture(dtype: str, count: int = 1) -> np.ndarray[Any, Any]:
    sums = np.add.outer(np.arange(150), np.arange(230))[None] * np.arange(1, count + 1)[:, None, None]
    return (sums % 200).astype(dtype) if np.dtype(dtype).kind != "f" else (sums / 7).astype(dtype)


def write(path: Path, data: np.ndarray[Any, Any], driver: str = "GTiff", **options: Any) -> None:
    count, height, width = data.shape
    told = {"driver": driver, "count": count, "height": height, "width": width, "dtype": data.dtype.name}
    with rasterio.open(path, "w", **told, **PLACE, **options) as raster:
        raster.write(data)


def bands(manifest: Manifest, place: Path, below: str = "") -> np.ndarray[Any, Any]:
    """(band, y, x), as rasterio gives them."""
    group = zstore.open_group(VirtualStore(manifest, allow=[place]), below)
    if "image" in group:
        return np.moveaxis(np.asarray(group["image"][...]), -1, 0)
    names = sorted(name for name in group if name.startswith("band_"))
    return np.stack([np.asarray(group[name][...]) for name in names])


CODINGS = [
    ("none", 1, "uint8 int16 uint32 float32 float64 int8 complex64"),
    ("deflate", 1, "uint8 float32"),
    ("deflate", 2, "uint8 int16 uint32 uint64"),
    ("deflate", 3, "float32 float64"),
    ("zstd", 2, "uint16"),
    ("zstd", 3, "float32"),
    ("lzw", 1, "uint8"),
    ("lzw", 2, "int32"),
    ("lzw", 3, "float32"),
    ("packbits", 1, "uint8"),
    ("lzma", 1, "int16"),
]


@pytest.mark.parametrize(
    ("compress", "predictor", "dtype"),
    [(coding, predictor, dtype) for coding, predictor, dtypes in CODINGS for dtype in dtypes.split()],
)
def test_pixels_of_gdal(tmp_path: Path, compress: str, predictor: int, dtype: str) -> None:
    """Tiles and strips, bands together and apart, in both byte orders."""
    path = tmp_path / "a.tif"
    for count, interleave in ((1, "band"), (3, "pixel"), (2, "band")):
        data = picture(dtype, count)
        for layout in (TILES, STRIPS):
            for order in ("LITTLE", "BIG"):
                coding = {"compress": compress, **({"predictor": predictor} if predictor > 1 else {})}
                write(path, data, interleave=interleave, endianness=order, **coding, **layout)
                got = bands(scan_file(path), tmp_path)
                assert got.dtype == data.dtype
                np.testing.assert_array_equal(got, data)


@pytest.mark.parametrize("layout", [TILES, STRIPS], ids=["tiles", "strips"])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_samples_of_few_bits(tmp_path: Path, bits: int, layout: dict[str, Any]) -> None:
    path = tmp_path / "a.tif"
    data = picture("uint8") % (1 << bits)
    write(path, data, nbits=bits, compress="deflate", **layout)
    np.testing.assert_array_equal(bands(scan_file(path), tmp_path), data)


@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_jpeg(tmp_path: Path, count: int, interleave: str) -> None:
    path = tmp_path / "a.tif"
    for layout in (TILES, {"tiled": False, "blockysize": 32}):
        coding = {"photometric": "rgb" if count > 2 else "minisblack", "compress": "jpeg"}
        write(path, picture("uint8", count), interleave=interleave, **coding, **layout)
        with rasterio.open(path) as raster:
            np.testing.assert_array_equal(bands(scan_file(path), tmp_path), raster.read())


def test_jpeg_with_colours_at_half_the_resolution_is_as_libjpeg_has_it(tmp_path: Path) -> None:
    """GDAL tells libjpeg not to interpolate colours; imagecodecs does not."""
    path = tmp_path / "a.tif"
    y, x = np.mgrid[:150, :230]
    data = np.stack([128 + 100 * np.sin(x / 20), 128 + 100 * np.cos(y / 15), 128 + 90 * np.sin((x + y) / 25)])
    write(path, data.astype("u1"), compress="jpeg", photometric="ycbcr", interleave="pixel", **TILES)
    with pytest.warns(RasterWarning, match="colours at half"):
        manifest = scan_file(path)
    got = bands(manifest, tmp_path)
    np.testing.assert_array_equal(np.moveaxis(got, 0, -1), tifffile.imread(path))
    with rasterio.open(path) as raster:
        apart = np.abs(got.astype(int) - raster.read())
    assert apart.mean() < 1 and apart.max() < 12


def test_lerc_and_webp(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write(path, picture("float32"), compress="lerc", **TILES)
    np.testing.assert_array_equal(bands(scan_file(path), tmp_path), picture("float32"))
    data = picture("uint8", 3)
    write(path, data, compress="webp", webp_lossless=True, interleave="pixel", **TILES)
    np.testing.assert_array_equal(bands(scan_file(path), tmp_path), data)


def with_holes(dtype: str, holes: str) -> np.ndarray[Any, Any]:
    """A picture with NaN in all bands alike, in each elsewhere or everywhere, or with an alpha last."""
    data = picture(dtype, int(holes[0]))
    kind = holes[2:]
    for number, band in enumerate(data):
        if kind in ("alike", "apart"):
            at = 10 + (number * 20 if kind == "apart" else 0)
            band[at : at + 25, 30:120] = np.nan
        elif kind == "everywhere":
            band[...] = np.nan
    if kind == "alpha":
        data[-1, :, :] = 255
        data[:, 20:90, 50:200] = 0
    elif kind == "soft alpha":
        data[-1, :, :] = 128
    return data


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]
LERC_CASES = [
    *((dtype, "1 none") for dtype in [*INTEGERS, "float32", "float64"]),
    *((dtype, holes) for dtype in ("float32", "float64") for holes in ("1 alike", "3 alike", "3 apart")),
    *(("float32", holes) for holes in ("3 none", "1 everywhere", "2 everywhere", "2 apart")),
    *(("uint8", holes) for holes in ("3 none", "2 alpha", "4 alpha", "4 soft alpha")),
    ("uint16", "4 alpha"),
]


@pytest.mark.parametrize("compress", ["lerc", "lerc_deflate", "lerc_zstd"])
@pytest.mark.parametrize(("dtype", "holes"), LERC_CASES)
def test_lerc_with_its_masks(tmp_path: Path, dtype: str, holes: str, compress: str) -> None:
    """NaN and an alpha, which libtiff stores as masks; tiles, strips and COGs, bands together and apart."""
    path = tmp_path / "a.tif"
    data = with_holes(dtype, holes)
    colours = {4: "rgb"}.get(len(data), "minisblack")
    alpha = {"photometric": colours, "alpha": "yes"} if "alpha" in holes else {}
    layouts: list[dict[str, Any]] = [TILES, STRIPS, {"tiled": False, "blockysize": 1}]
    for options in [one | {"interleave": way} for one in layouts for way in ("pixel", "band")]:
        write(path, data, compress=compress, max_z_error=0, **options, **alpha)
        with rasterio.open(path) as raster:
            expected = raster.read()
        np.testing.assert_array_equal(bands(scan_file(path), tmp_path), expected, strict=True)
        np.testing.assert_array_equal(expected, data)
    write(path, data, "COG", blocksize=64, compress=compress, max_z_error=0)
    manifest = scan_file(path, drop=["mask"])
    for number in range(3):
        with rasterio.open(path, **({} if not number else {"overview_level": number - 1})) as level:
            np.testing.assert_array_equal(bands(manifest, tmp_path, str(number)), level.read())


def set_tag(path: Path, code: int, values: list[int]) -> None:
    """Overwrite the values of a tag of a file's first image, in place."""
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags[code]
        at, form = tag.valueoffset, file.byteorder + {3: "H", 4: "I", 16: "Q"}[int(tag.dtype)] * len(values)
    raw = bytearray(path.read_bytes())
    struct.pack_into(form, raw, at, *values)
    path.write_bytes(raw)


@pytest.mark.parametrize("layout", [TILES, STRIPS, ONE_STRIP], ids=["tiles", "strips", "one strip"])
@pytest.mark.parametrize(("code", "what"), [("offsets", "bytes at 0"), ("sizes", "has 0 bytes at")])
def test_an_offset_or_a_size_of_0_alone_is_damage(
    tmp_path: Path, layout: dict[str, Any], code: str, what: str
) -> None:
    """Only both together say that a chunk was never written: else values would be lost without a word."""
    path = tmp_path / "a.tif"
    data = picture("int16")
    write(path, data, compress="deflate", **layout)
    tags = {"offsets": (324, 273), "sizes": (325, 279)}[code]
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        values = [*(page.dataoffsets if code == "offsets" else page.databytecounts)]
    number = 0 if layout is ONE_STRIP else 2
    values[number] = 0
    set_tag(path, tags[0 if layout is TILES else 1], values)
    with pytest.raises(StoreError, match=rf"chunk {number} of 'band_1' .*{what}"):
        scan_file(path)
    # What a size of 0 means to GDAL depends on the layout: an only strip is read all the same.
    with rasterio.open(path) as raster:
        if code == "offsets":
            with pytest.raises(rasterio.errors.RasterioIOError):
                raster.read()
        else:
            assert np.array_equal(raster.read(), data) == (layout is ONE_STRIP)


@pytest.mark.parametrize("layout", [TILES, STRIPS], ids=["tiles", "strips"])
@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "uint32", "int64", "uint64", "float32", "complex64", "complex128"]
)
def test_chunks_that_were_never_written_have_the_values_that_gdal_reads(
    tmp_path: Path, dtype: str, layout: dict[str, Any]
) -> None:
    """Nodata; rounded, or the nearest value of the data type, where nodata is none of its values; else 0."""
    path = tmp_path / "a.tif"
    told = {"driver": "GTiff", "count": 2, "height": 150, "width": 230, "dtype": dtype, "nodata": 7}
    for nodata in ("7", "-5", "300", "1.5", "-2.5", "-1e300", "1e300", "nan", "-inf", ""):
        path.unlink(missing_ok=True)
        with rasterio.open(path, "w", **told, **PLACE, **layout, sparse_ok=True) as raster:
            raster.write(np.ones((2, 17, 64), dtype), window=((0, 17), (0, 64)))
        with tifffile.TiffFile(path, mode="r+b") as file:
            file.pages[0].tags[42113].overwrite(nodata)
            assert 0 in file.pages[0].dataoffsets
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RasterWarning)
            # rasterio's, of 1e300 in complex64.
            warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)
            manifest = scan_file(path)
            with rasterio.open(path) as raster:
                expected = raster.read()
        np.testing.assert_array_equal(bands(manifest, tmp_path), expected, f"nodata {nodata!r}")


def test_chunks_that_were_never_written_are_no_references(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    told = {"driver": "GTiff", "count": 1, "height": 150, "width": 230, "dtype": "int16", "nodata": -5}
    with rasterio.open(path, "w", **told, **PLACE, **TILES, sparse_ok=True) as raster:
        raster.write(picture("int16")[:, :48, :64], window=((0, 48), (0, 64)))
    manifest = scan_file(path)
    assert manifest.count - sum(len(c.inline) > 0 for c in manifest.chunks.values()) == 1
    # A file beside the raster has another nodata: GDAL prefers it.
    beside = "<PAMRasterBand band='1'><NoDataValue>-7</NoDataValue></PAMRasterBand>"
    path.with_name("a.tif.aux.xml").write_text(f"<PAMDataset>{beside}</PAMDataset>")
    with rasterio.open(path) as raster:
        np.testing.assert_array_equal(bands(scan_file(path), tmp_path), raster.read())


@pytest.mark.parametrize("shape", [(150, 230), (512, 256), (301, 77)])
@pytest.mark.parametrize("compress", ["deflate", "zstd", "lzw"])
def test_a_cog_is_a_pyramid(tmp_path: Path, shape: tuple[int, int], compress: str) -> None:
    path = tmp_path / "a.tif"
    data = np.add.outer(np.arange(shape[0]), np.arange(shape[1])).astype("i2")[None]
    write(path, data, "COG", blocksize=64, compress=compress, predictor=2, nodata=-1)
    store = VirtualStore(scan_file(path), allow=[tmp_path])
    with rasterio.open(path) as raster:
        steps = raster.overviews(1)
        geo = read_geo(zstore.open_group(store))[0]
        assert [level.path for level in geo.levels] == [str(number) for number in range(len(steps) + 1)]
        assert geo.crs == Crs.from_user(raster.crs) and geo.affine == tuple(raster.transform)[:6]
        for number, _ in enumerate([1, *steps]):
            told = {} if not number else {"overview_level": number - 1}
            with rasterio.open(path, **told) as level:
                got = zstore.open_array(store, f"{number}/band_1")
                np.testing.assert_array_equal(got[...], level.read(1))
    assert [finding for finding in zstore.validate(store).findings if finding.severity != "note"] == []


def test_masks_and_overviews(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    data = picture("uint8", 3)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        told = {"driver": "GTiff", "count": 3, "height": 150, "width": 230, "dtype": "uint8"}
        with rasterio.open(path, "w", **told, **PLACE, **TILES, compress="deflate") as raster:
            raster.write(data)
            raster.write_mask(data[0] > 50)
        with rasterio.open(path, "r+") as raster:
            raster.build_overviews([2, 4])
    manifest = scan_file(path)
    group = zstore.open_group(VirtualStore(manifest, allow=[tmp_path]))
    for number in range(3):
        with rasterio.open(path, **({} if not number else {"overview_level": number - 1})) as level:
            np.testing.assert_array_equal(bands(manifest, tmp_path, str(number)), level.read())
            np.testing.assert_array_equal(group[f"{number}/mask"][...], level.dataset_mask())
    assert "mask" not in scan_file(path, drop=["mask"]).documents


def test_files_of_tifffile(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    warnings.simplefilter("ignore", RasterWarning)
    for dtype in ("u1", "u2", "f4", "f2", "i4"):
        data = picture(dtype)[0]
        for options in (
            {},
            {"tile": (64, 48)},
            {"rowsperstrip": 10, "compression": "zlib", "predictor": dtype[0] != "f"},
            {"tile": (64, 48), "compression": "zstd"},
            {"byteorder": ">", "compression": "lzw", "rowsperstrip": 64},
        ):
            order = {"byteorder": options.pop("byteorder")} if "byteorder" in options else {}
            tifffile.imwrite(path, data, metadata=None, **order, **options)
            np.testing.assert_array_equal(bands(scan_file(path), tmp_path)[0], data)


def _two_images(path: Path) -> None:
    tifffile.imwrite(path, np.zeros((2, 32, 32), "u1"), metadata=None, photometric="minisblack")


def _twelve_bits(path: Path) -> None:
    write(path, picture("uint16"), nbits=12)


# As the table of docs/virtual.md has them, which names what is refused.
REFUSED = {
    "holds 2 images": _two_images,
    "has 12 bits per sample": _twelve_bits,
    "has the compression 3 (CCITTFAX3)": lambda path: write(
        path, picture("uint8") % 2, compress="ccittfax3", nbits=1
    ),
    "of which GDAL makes others": lambda path: write(
        path, picture("uint8", 4), photometric="cmyk", interleave="pixel"
    ),
    "interleaved bands have": lambda path: _scaled_apart(path),
}


def _scaled_apart(path: Path) -> None:
    write(path, picture("uint8", 2), interleave="pixel")
    with rasterio.open(path, "r+") as raster:
        raster.scales = (1.0, 2.0)


def test_what_is_refused_is_what_the_docs_name() -> None:
    page = Path(__file__).parents[3] / "docs" / "virtual.md"
    said = re.findall(r"^\| TIFF \| .* \| `(.*)` \|$", page.read_text(), re.MULTILINE)
    assert {*said} == {*REFUSED}


@pytest.mark.filterwarnings("ignore::zstore.errors.RasterWarning")
@pytest.mark.parametrize("said", REFUSED)
def test_what_references_cannot_express_is_refused_by_name(tmp_path: Path, said: str) -> None:
    path = tmp_path / "a.tif"
    REFUSED[said](path)
    with pytest.raises(UnsupportedError, match=re.escape(said)) as caught:
        scan_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.filterwarnings("ignore::zstore.errors.RasterWarning")
def test_texts_that_are_not_utf8(tmp_path: Path) -> None:
    data = picture("uint8")[0]
    tifffile.imwrite(tmp_path / "a.tif", data, metadata=None, software="Météo".encode("latin-1"))
    np.testing.assert_array_equal(bands(scan_file(tmp_path / "a.tif"), tmp_path)[0], data)


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write(path, picture("uint8"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError):
        scan_file(path)
