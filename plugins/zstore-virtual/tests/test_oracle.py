"""Archives of every kind that GDAL, HDF5 and NetCDF write, read by zstore as these libraries read them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import Resampling

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.scan.files import scan_file
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import UnsupportedError, ZstoreError
from zstore.geo.rasters.netcdf import netcdf_to_zarr
from zstore.geo.rasters.raster import raster_to_zarr

# One file of so many is made in ordinary runs.
STEP = 53
# Other numbers make other values and other mutations of the same files.
SEED = int(os.environ.get("ZSTORE_SEED", "0"))
PLACE = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500000, 0, -10, 3000000)}
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
TILES, STRIPS = {"tiled": True, "blockxsize": 32, "blockysize": 48}, {"tiled": False, "blockysize": 17}
BANDS = ((1, "band"), (3, "pixel"), (2, "band"))
LOSSLESS = ("none", "deflate", "lzw", "zstd", "packbits", "lzma")
LERC = {"lerc": "uint8 int8 uint16 int16 uint32 int32 float32 float64", "lerc_deflate": "int16 float32"}

ROWS = {"tiled": False, "blockysize": 16}
JPEG_BANDS = (
    (1, "band", "minisblack"),
    (2, "pixel", "minisblack"),
    (3, "pixel", "rgb"),
    (3, "pixel", "ycbcr"),
    (3, "band", "rgb"),
    (4, "pixel", "rgb"),
    (4, "pixel", "cmyk"),
)

Case = dict[str, Any]
Refused = Counter[str]


def asked(refused: Refused, reader: str, read: Callable[[], Any]) -> Any:
    """The items as a reader gives them, or None, noted with the reason, where it refuses them by name."""
    try:
        return read()
    except UnsupportedError as error:
        refused[f"{reader}: {re.sub(r'[0-9]+', 'N', error.message)[:90]}"] += 1
        return None


def read_in_place(path: Path) -> VirtualStore:
    return VirtualStore(scan_file(path), allow=[path.parent])


def tiffs() -> Iterator[Case]:
    """Options of GDAL's driver, with a data type, a number of bands, and what is to be masked."""
    for compress, dtype in product(LOSSLESS, INTEGERS + FLOATS + COMPLEX):
        predictors = [1]
        if compress in ("deflate", "lzw", "zstd"):
            predictors += [2] if dtype in INTEGERS else [3] if dtype in FLOATS else []
        for predictor, layout, (count, interleave), endianness, bigtiff in product(
            predictors,
            (TILES, STRIPS),
            ((1, "band"), (3, "pixel"), (2, "band")),
            ("LITTLE", "BIG"),
            ("NO", "YES"),
        ):
            options = {"compress": compress, "interleave": interleave, **layout}
            options |= {"endianness": endianness, "bigtiff": bigtiff}
            yield {
                "dtype": dtype,
                "count": count,
                **options,
                **({"predictor": predictor} if predictor > 1 else {}),
            }
    for compress, dtypes in {**LERC, "lerc_zstd": "int16 float32"}.items():
        for dtype, layout, (count, interleave) in product(dtypes.split(), (TILES, STRIPS), BANDS):
            yield {"dtype": dtype, "count": count, "compress": compress, "interleave": interleave, **layout}
    for compress, dtype, layout, masked in product(
        ("deflate", "lerc", "none"), ("uint8", "float32"), (TILES, STRIPS), ("alpha", "mask", "nodata")
    ):
        count = 4 if masked == "alpha" else 1
        coding = {"compress": compress, "interleave": "pixel", **layout}
        yield {"dtype": dtype, "count": count, **coding, "masked": masked}
    for bits, layout, compress in product((1, 2, 4), (TILES, STRIPS), ("none", "deflate", "lzw", "packbits")):
        yield {"dtype": "uint8", "count": 1, "nbits": bits, "compress": compress, **layout}
    yield from images()
    yield from rarities()


def images() -> Iterator[Case]:
    """Tiles and strips that are JPEG or WebP."""
    for (count, interleave, photometric), quality, tables, layout, order in product(
        JPEG_BANDS, (10, 75, 100), (0, 1, 2, 3), (TILES, ROWS), ("LITTLE", "BIG")
    ):
        coding = {"compress": "jpeg", "photometric": photometric, "jpeg_quality": quality}
        coding |= {"interleave": interleave, "jpegtablesmode": tables, "endianness": order, **layout}
        yield {"dtype": "uint8", "count": count, **coding}
    for count, is_lossless, layout, order in product(
        (3, 4), (True, False), (TILES, STRIPS), ("LITTLE", "BIG")
    ):
        coding = {"compress": "webp", "webp_lossless": is_lossless, "interleave": "pixel"}
        yield {"dtype": "uint8", "count": count, **coding, "endianness": order, **layout}


def rarities() -> Iterator[Case]:
    """Fax, few and odd bits, half floats, other colours, tiles that are not there, inexact LERC, levels."""
    for compress, layout, photometric, (count, interleave) in product(
        ("ccittrle", "ccittfax3", "ccittfax4"),
        (TILES, STRIPS),
        ("minisblack", "miniswhite"),
        ((1, "band"), (2, "band")),
    ):
        coding = {"compress": compress, "nbits": 1, "photometric": photometric, "interleave": interleave}
        yield {"dtype": "uint8", "count": count, **coding, **layout}
    odd = {"uint8": (3, 5, 6, 7), "uint16": (9, 12, 15), "uint32": (17, 20, 24, 31), "float32": (16, 24)}
    for (dtype, bits), compress in product(odd.items(), ("none", "deflate", "lzw")):
        yield from ({"dtype": dtype, "count": 1, "compress": compress, "nbits": one, **TILES} for one in bits)
    for bits, (count, interleave) in product((1, 2, 4), ((3, "pixel"), (3, "band"))):
        coding = {"compress": "deflate", "nbits": bits, "interleave": interleave}
        yield {"dtype": "uint8", "count": count, **coding, **TILES}
    for photometric, count in {"miniswhite": 1, "cielab": 3, "cmyk": 4}.items():
        # GDAL cannot read CIELAB that is not compressed.
        for dtype, compress in product(("uint8", "uint16"), ("lzw", "deflate")):
            coding = {"compress": compress, "photometric": photometric, "interleave": "pixel"}
            yield {"dtype": dtype, "count": count, **coding, **TILES}
    for compress, layout in product(("none", "deflate", "jpeg", "lerc", "zstd"), (TILES, ROWS)):
        coding = {"compress": compress, "interleave": "band", "sparse_ok": True, **layout}
        yield {"dtype": "uint8", "count": 1, **coding, "written": (20, 30)}
    for dtype, error in product(("float32", "float64", "int16"), (0.01, 1)):
        yield {"dtype": dtype, "count": 1, "compress": "lerc", "max_z_error": error, **TILES}
    for dtype, compress, masked in product(("uint8", "int16", "float32"), LOSSLESS, ("", "mask")):
        coding = {"compress": compress, "interleave": "band", "masked": masked, "levels": 2}
        yield {"dtype": dtype, "count": 1, **coding, **TILES}


def picture(dtype: str, count: int, most: int = 200) -> np.ndarray[Any, Any]:
    slopes = np.add.outer(np.arange(53) * (1 + SEED % 3), np.arange(70) * (3 + SEED % 5)) + SEED % 97
    sums = slopes[None] * np.arange(1, count + 1)[:, None, None] % most
    items = sums.astype(dtype) if np.dtype(dtype).kind in "iu" else (sums / 7).astype(dtype)
    if np.dtype(dtype).kind in "fc" and count < 4:
        items[..., 20:30, 10:40] = np.nan
    return items


def write_tiff(path: Path, case: Case) -> None:
    case = dict(case)
    masked, dtype, count = case.pop("masked", ""), case.pop("dtype"), case.pop("count")
    rows, columns = case.pop("written", (53, 70))
    levels = case.pop("levels", 1)
    items = picture(dtype, count, min(100, 1 << case.get("nbits", 8)))
    if case.get("photometric") == "ycbcr":
        items += 60  # so that no colour is cut off at 0 or 255, which would hide how far it lies from another
    told = {"driver": "GTiff", "count": count, "height": 53, "width": 70, "dtype": dtype, **PLACE, **case}
    if masked == "alpha":
        told |= {"photometric": "RGB", "alpha": "YES"}
    elif masked == "nodata":
        told["nodata"] = 7
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **told) as raster:
        raster.write(items[:, :rows, :columns], window=((0, rows), (0, columns)))
        if masked == "mask":
            raster.write_mask(np.indices((53, 70)).sum(0) % 5 > 0)
        if levels > 1:
            raster.build_overviews([1 << level for level in range(1, levels)], Resampling.average)


def read_scanned(group: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The bands of one level, which come first; half floats as GDAL has them."""
    if "image" in group:
        got = np.moveaxis(np.asarray(group["image"][...]), -1, 0)
    else:
        names = sorted(name for name in group if name.startswith("band_"))
        got = np.stack([np.asarray(group[name][...]) for name in names])
    return got.astype(dtype) if got.dtype == np.float16 else got


def colours_apart(expected: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How far red, green and blue may lie from GDAL's where colours are stored at half the resolution.

    Between colours, libjpeg takes up to 7/16 of those next to them, GDAL none; rounding comes to 2.
    """
    red, green, blue = np.pad(expected.astype(float), ((0, 0), (3, 3), (3, 3)), mode="edge")
    to_blue = 0.5 * blue - 0.168736 * red - 0.331264 * green
    to_red = 0.5 * red - 0.418688 * green - 0.081312 * blue
    around = [np.lib.stride_tricks.sliding_window_view(plane, (7, 7)) for plane in (to_blue, to_red)]
    b, r = (7 / 16 * (plane.max((-2, -1)) - plane.min((-2, -1))) + 1 for plane in around)
    return np.stack([1.402 * r, 0.344 * b + 0.714 * r, 1.772 * b]) + 2


def check_tiff(path: Path, case: Case, refused: Refused) -> None:
    with rasterio.open(path) as raster:
        expected, mask = raster.read(), raster.dataset_mask()
    levels = {0: (expected, mask)}
    for level in range(1, case.get("levels", 1)):
        with rasterio.open(path, overview_level=level - 1) as raster:
            levels[level] = raster.read(), raster.dataset_mask()
    got = None
    group = asked(refused, "scanned", lambda: zstore.open_group(read_in_place(path), ""))
    for level, (values, valid) in levels.items() if group is not None else ():
        below = group[str(level)] if len(levels) > 1 else group
        found = read_scanned(below, values.dtype)
        got = found if level == 0 else got
        assert found.dtype == values.dtype
        if case.get("photometric") == "ycbcr":
            apart = found.astype(int) - values
            assert np.all(np.abs(apart) <= colours_apart(values))
            brightness = np.tensordot([0.299, 0.587, 0.114], apart, 1)
            assert np.abs(brightness).max() < 2
        else:
            np.testing.assert_array_equal(found, values)
        if case.get("masked") == "mask":
            np.testing.assert_array_equal(below["mask"][...], valid)
    theirs = asked(refused, "tifffile", partial(read_tifffile, path, case))
    if theirs is not None:
        theirs = theirs.reshape(expected.shape)
        if case["compress"].startswith("lerc") and theirs.dtype.kind == "f":
            theirs = np.where(np.isnan(expected), expected, theirs)  # it does not ask for LERC's masks
        np.testing.assert_array_equal(expected if got is None else got, theirs)
    made = raster_to_zarr(path, path.parent / "converted.zarr", overwrite=True)
    bands = sorted(name for name in made if name.startswith("band_"))
    converted = np.stack([made[name][...] for name in bands])[: len(expected)]
    assert converted.dtype == expected.dtype
    np.testing.assert_array_equal(converted, expected)


def read_tifffile(path: Path, case: Case) -> np.ndarray[Any, Any]:
    """The first image as tifffile has it, bands first.

    Raises
        UnsupportedError: it has no such bits or JPEG, or makes no colours of others.
    """
    tifffile = pytest.importorskip("tifffile", reason="tifffile is not installed")
    colours = case.get("photometric")
    if colours in ("cmyk", "cielab"):
        raise UnsupportedError(f"makes no others of {colours}")
    if case.get("nbits") == 24 and case["dtype"] == "float32":
        raise UnsupportedError("floats of 24 bits")
    if case["compress"] == "jpeg" and case["interleave"] == "band" and colours == "rgb":
        raise UnsupportedError("colours that are stored apart as JPEG")
    items = np.asarray(tifffile.imread(path, key=0))
    return items if case.get("interleave") == "band" or items.ndim == 2 else np.moveaxis(items, -1, 0)


HDF5_FILTERS: dict[str, Case] = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "lzf, shuffle": {"compression": "lzf", "shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
}
HDF5_PACKERS: dict[str, Case] = {
    "szip of neighbours": {"compression": "szip", "compression_opts": ("nn", 8)},
    "szip of entropy": {"compression": "szip", "compression_opts": ("ec", 8)},
    "szip, all": {"compression": "szip", "shuffle": True, "fletcher32": True},
    "scaleoffset": {"scaleoffset": 2},
    "nbit": {},
    "zstd": {"plugin": ("Zstd", {"clevel": 3})},
    "lz4": {"plugin": ("LZ4", {})},
    "lz4, shuffle": {"plugin": ("LZ4", {}), "shuffle": True},
    "bz2": {"plugin": ("BZip2", {})},
    "bitshuffle": {"plugin": ("Bitshuffle", {})},
    "blosc2": {"plugin": ("Blosc2", {})},
    "zfp": {"plugin": ("Zfp", {"reversible": True})},
    **{
        f"blosc {cname} {shuffle}": {"plugin": ("Blosc", {"cname": cname, "shuffle": shuffle})}
        for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
        for shuffle in (0, 1, 2)
    },
}
HDF5_TYPES = (
    *(f"{order}{kind}" for order in "<>" for kind in ("i2", "i4", "u8", "f4", "f8")),
    "i1",
    "f2",
    "?",
    "S5",
    "c8",
)
HDF5_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((0,), (4,)),
    ((37,), (8,)),
    ((21, 34), (8, 10)),
    ((5, 6, 7), (2, 6, 3)),
)
HDF5_LAYOUTS = ("compact", "external", "virtual", "early")
# What numpy's types do not say: text, names for numbers, fields, lists.
HDF5_KINDS: dict[str, Any] = {
    "text": (["a", "", "日本"] * 4, lambda h5py: h5py.string_dtype()),
    "text of bytes": ([b"a", b"", b"abc"] * 4, lambda h5py: h5py.string_dtype("ascii")),
    "text of a length": (["ab", "", "日本"] * 4, lambda h5py: h5py.string_dtype("utf-8", 8)),
    "enumeration": ([0, 1, 2] * 4, lambda h5py: h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, "i2")),
    "fields": ([(1, 2.5), (3, 4.5)] * 6, lambda h5py: np.dtype([("a", "<i2"), ("b", "<f4")])),
    "big-endian fields": ([(1, 2.5)] * 12, lambda h5py: np.dtype([("a", ">i2"), ("b", ">f4")])),
    "fields with gaps": ([(1, 2.5)] * 12, lambda h5py: np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "fields in fields": ([(1, (2, 3))] * 12, lambda h5py: np.dtype([("a", "i2"), ("b", "i2,i2")])),
    "opaque": ([b"ab", b"cd", b"ef"] * 4, lambda h5py: np.dtype("V2")),
    "lists": ([[1], [2, 3], []] * 4, lambda h5py: h5py.vlen_dtype("i4")),
}


def hdf5_files() -> Iterator[Case]:
    for dtype, (shape, chunks), libver in product(HDF5_TYPES, HDF5_SHAPES, ("earliest", "latest")):
        whole = {"dtype": dtype, "shape": shape, "libver": libver}
        yield whole
        yield from ({**whole, "layout": layout} for layout in (HDF5_LAYOUTS if 0 not in shape else ()))
        for name, rest in product(HDF5_FILTERS if chunks else (), ("full", "partial", "growing")):
            yield {**whole, "chunks": chunks, "filter": name, "rest": rest}
    numbers = [dtype for dtype in HDF5_TYPES if np.dtype(dtype).kind in "iuf" and dtype != "f2"]
    for dtype, (shape, chunks), name, rest in product(
        numbers, HDF5_SHAPES[2:], HDF5_PACKERS, ("full", "partial")
    ):
        if name in ("scaleoffset", "nbit") and np.dtype(dtype).kind == "f":
            continue  # inexact; not written by h5py
        if name == "zfp" and dtype not in ("<i4", "<f4", "<f8"):
            continue
        whole = {"dtype": dtype, "shape": shape, "libver": "earliest", "chunks": chunks}
        yield {**whole, "filter": name, "rest": rest}
    for kind, libver, chunks in product(HDF5_KINDS, ("earliest", "latest"), (None, (5,))):
        yield {"kind": kind, "libver": libver, "chunks": chunks}


def write_hdf5(path: Path, case: Case) -> None:
    import h5py

    with h5py.File(path, "w", libver=case["libver"]) as file:
        if "kind" in case:
            items, make = HDF5_KINDS[case["kind"]]
            made = file.create_dataset("x", (12,), make(h5py), chunks=case["chunks"])
            for number, item in enumerate(items):
                made[number] = np.void(item) if case["kind"] == "opaque" else item
            return
        shape, dtype = case["shape"], np.dtype(case["dtype"])
        items = np.asarray(
            np.arange(np.prod(shape, dtype=int)).reshape(shape) * (1 + SEED % 13) % 101
        ).astype(dtype)
        if "layout" in case:
            write_layout(file, path, items, case["layout"])
            return
        options: Case = {}
        if "chunks" in case:
            options = {"chunks": case["chunks"], **{**HDF5_FILTERS, **HDF5_PACKERS}[case["filter"]]}
            if case["rest"] == "growing" or not all(shape):
                options["maxshape"] = (None, *shape[1:])
            if dtype.kind in "iuf":
                options["fillvalue"] = 3
        if "plugin" in options:
            hdf5plugin = pytest.importorskip("hdf5plugin", reason="hdf5plugin is not installed")
            name, words = options.pop("plugin")
            options |= getattr(hdf5plugin, name)(**words)
        if case.get("filter") == "nbit":
            made = make_packed(file, items, case["chunks"])
        else:
            made = file.create_dataset("x", shape=shape, dtype=dtype, **options)
        if case.get("rest") == "partial":
            made[: shape[0] // 2] = items[: shape[0] // 2]
        else:
            made[...] = items


def make_packed(file: Any, items: np.ndarray[Any, Any], chunks: tuple[int, ...]) -> Any:
    """A dataset of which HDF5 stores all bits but the highest of each item."""
    import h5py

    kind = h5py.h5t.py_create(items.dtype).copy()
    kind.set_precision(8 * items.itemsize - 1)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(chunks)
    properties.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple(items.shape)
    return h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space, properties))


def write_layout(file: Any, path: Path, items: np.ndarray[Any, Any], layout: str) -> None:
    """A dataset without chunks: in its own header, in another file, of another dataset, room made at once."""
    import h5py

    if layout == "external":
        raw = path.with_suffix(".raw")
        raw.write_bytes(items.tobytes())
        file.create_dataset("x", items.shape, items.dtype, external=[(str(raw), 0, items.nbytes)])
    elif layout == "virtual":
        file.create_dataset("other", data=items)
        whole = h5py.VirtualLayout(items.shape, items.dtype)
        whole[...] = h5py.VirtualSource(".", "other", items.shape)
        file.create_virtual_dataset("x", whole)
    else:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if layout == "compact":
            properties.set_layout(h5py.h5d.COMPACT)
        else:
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple(items.shape) if items.shape else h5py.h5s.create(h5py.h5s.SCALAR)
        kind = h5py.h5t.py_create(items.dtype, logical=True)
        h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space, properties))[...] = items


def check_hdf5(path: Path, case: Case, refused: Refused) -> None:
    import h5py

    with h5py.File(path) as file:
        dataset = file["x"]
        text = h5py.check_string_dtype(dataset.dtype)
        expected = dataset.asstr()[()] if text and text.length is None else dataset[()]
    check_readers(path, "x", expected, refused)
    if len(case.get("shape", ())) == 2 and expected.dtype.kind in "iuf" and is_for_gdal(case):
        theirs = asked(refused, "GDAL", partial(read_by_gdal, f'HDF5:"{path}"://x'))
        if theirs is not None:
            np.testing.assert_array_equal(theirs, expected)


def is_for_gdal(case: Case) -> bool:
    """Whether GDAL's HDF5, which is of 1.14 and has no plugins, has the filter and the version."""
    return case["libver"] == "earliest" and not (
        "lzf" in case.get("filter", "") or "plugin" in HDF5_PACKERS.get(case.get("filter", ""), {})
    )


def check_readers(path: Path, name: str, expected: Any, refused: Refused) -> None:
    """Both of zstore's readers give the items that the file's own library gives, or refuse them by name."""
    for reader, read in {
        "scanned": lambda: zstore.open_array(read_in_place(path), name)[...],
        "converted": lambda: netcdf_to_zarr(path, path.with_suffix(".zarr"), overwrite=True)[name][...],
    }.items():
        got = asked(refused, reader, read)
        if got is not None:
            np.testing.assert_array_equal(got, expected, err_msg=reader)


def read_by_gdal(address: str) -> np.ndarray[Any, Any]:
    """The items as GDAL has them.

    Raises
        UnsupportedError: GDAL cannot open or read the file.
    """
    try:
        with rasterio.open(address) as raster:
            return np.asarray(raster.read(1))
    except rasterio.errors.RasterioError as error:
        raise UnsupportedError(f"{type(error).__name__}: {re.sub('HDF5:.*//x', '', str(error))}") from error


def netcdf_files() -> Iterator[Case]:
    wide = ("u1", "u2", "u4", "i8", "u8")
    for kind in ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"):
        for dtype in ("i1", "S1", "i2", "i4", "f4", "f8", *(wide if kind.endswith("DATA") else ())):
            for records, others in product((False, True), (0, 1, 2)):
                yield {"kind": kind, "dtype": dtype, "records": records, "others": others}


def write_netcdf(path: Path, case: Case) -> None:
    import netCDF4

    items = ((np.arange(35).reshape(7, 5) + SEED) % 90 + 1).astype(
        np.uint8 if case["dtype"] == "S1" else case["dtype"]
    )
    items = items.view("S1") if case["dtype"] == "S1" else items
    with netCDF4.Dataset(path, "w", format=case["kind"]) as file:
        file.createDimension("t", None if case["records"] else 7)
        file.createDimension("x", 5)
        for other in range(case["others"]):
            file.createVariable(f"other{other}", "i2", ("t",))[:] = np.arange(7)
        variable = file.createVariable("x", case["dtype"], ("t", "x"))
        variable.set_auto_maskandscale(False)
        variable[:] = items


def check_netcdf(path: Path, case: Case, refused: Refused) -> None:
    import netCDF4

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        expected = file["x"][...]
    check_readers(path, "x", expected, refused)


KINDS = {
    "tif": (tiffs, write_tiff, check_tiff),
    "h5": (hdf5_files, write_hdf5, check_hdf5),
    "nc": (netcdf_files, write_netcdf, check_netcdf),
}
steps = partial(pytest.mark.parametrize, "step")


@pytest.mark.filterwarnings("ignore::zstore.errors.RasterWarning")
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@steps([STEP, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", KINDS)
def test_archives_are_read_as_their_libraries_read_them(tmp_path: Path, suffix: str, step: int) -> None:
    cases, write, check = KINDS[suffix]
    if suffix == "tif":
        pytest.importorskip("tifffile", reason="tifffile is not installed")
    count, refused, different = 0, Refused(), []
    for number, case in enumerate(cases()):
        if number % step:
            continue
        path = tmp_path / f"a.{suffix}"
        path.unlink(missing_ok=True)
        write(path, case)
        count += 1
        try:
            check(path, case, refused)
        except Exception as error:
            different.append((case, f"{type(error).__name__}: {str(error)[:300]}"))
    print(f"{suffix}: {count} files, {len(different)} different; refused by name:")
    print(*(f"  {times} {reason}" for reason, times in sorted(refused.items())), sep="\n")
    assert not different, (len(different), different[:5])
    assert sum(times for reason, times in refused.items() if reason.startswith("scanned")) < count / 4


def mutations(whole: bytes, chance: np.random.Generator) -> bytes:
    """Bytes changed, cut out, put in or cut off, a few at a time; half of them near the beginning."""
    data = bytearray(whole)
    for _ in range(int(chance.integers(1, 6))):
        most = min(len(data), 600) if chance.random() < 0.5 else len(data)
        at = int(chance.integers(max(1, most)))
        what = chance.integers(8)
        if what == 0:
            del data[at : at + int(chance.integers(1, 9))]
        elif what == 1:
            data[at:at] = chance.bytes(int(chance.integers(1, 9)))
        elif what == 2:
            del data[max(1, at) :]
        else:
            data[at : at + 1] = bytes([int(chance.choice([0, 1, 127, 128, 255, int(chance.integers(256))]))])
    return bytes(data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [5, pytest.param(2400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", KINDS)
def test_changed_archives_are_read_or_refused(tmp_path: Path, suffix: str, count: int) -> None:
    """No crash, and no error but those of zstore, whatever bytes an archive has."""
    cases, write, _ = KINDS[suffix]
    if suffix == "tif":
        pytest.importorskip("tifffile", reason="tifffile is not installed")
    path, total, alarms, read = tmp_path / f"a.{suffix}", 0, list[str](), 0
    every = [*cases()]
    for number, case in enumerate(every[:: max(1, len(every) // 14)]):
        path.unlink(missing_ok=True)
        write(path, case)
        whole, chance = path.read_bytes(), np.random.default_rng((SEED, number))
        for _ in range(count):
            path.write_bytes(mutations(whole, chance))
            total += 1
            try:
                group = zstore.open_group(read_in_place(path), "")
                for _, array in group.arrays():
                    if array.nbytes < 1 << 24:
                        array[...]
                read += 1
            except (ZstoreError, MemoryError):
                pass
            except Exception as error:
                alarms.append(f"{case}: {type(error).__name__}: {error}")
    print(f"{suffix}: {total} changed files, {read} read, {total - read - len(alarms)} refused")
    assert not alarms, (
        len(alarms),
        sorted({alarm.rpartition("}: ")[2][:150] for alarm in alarms})[:10],
        alarms[:3],
    )
