"""Archives of every kind that GDAL, HDF5 and NetCDF write, read by zstore as these libraries read them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.scan.files import scan_file
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import UnsupportedError, ZstoreError
from zstore.geo.rasters.raster import raster_to_zarr

# One file of so many is made in ordinary runs.
STEP = 53
PLACE = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 500000, 0, -10, 3000000)}
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
TILES, STRIPS = {"tiled": True, "blockxsize": 32, "blockysize": 48}, {"tiled": False, "blockysize": 17}
BANDS = ((1, "band"), (3, "pixel"), (2, "band"))
LOSSLESS = ("none", "deflate", "lzw", "zstd", "packbits", "lzma")
LERC = {"lerc": "uint8 int8 uint16 int16 uint32 int32 float32 float64", "lerc_deflate": "int16 float32"}

Case = dict[str, Any]


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
        yield {
            "dtype": dtype,
            "count": count,
            "compress": compress,
            "interleave": "pixel",
            **layout,
            "masked": masked,
        }
    for bits, layout, compress in product((1, 2, 4), (TILES, STRIPS), ("none", "deflate", "lzw", "packbits")):
        yield {"dtype": "uint8", "count": 1, "nbits": bits, "compress": compress, **layout}


def picture(dtype: str, count: int, most: int = 200) -> np.ndarray[Any, Any]:
    sums = (
        np.add.outer(np.arange(53), np.arange(70) * 3)[None] * np.arange(1, count + 1)[:, None, None] % most
    )
    items = sums.astype(dtype) if np.dtype(dtype).kind in "iu" else (sums / 7).astype(dtype)
    if np.dtype(dtype).kind in "fc" and count < 4:
        items[..., 20:30, 10:40] = np.nan
    return items


def write_tiff(path: Path, case: Case) -> None:
    case = dict(case)
    masked, dtype, count = case.pop("masked", ""), case.pop("dtype"), case.pop("count")
    items = picture(dtype, count, 1 << case.get("nbits", 8) if "nbits" in case else 100)
    told = {"driver": "GTiff", "count": count, "height": 53, "width": 70, "dtype": dtype, **PLACE, **case}
    if masked == "alpha":
        told |= {"photometric": "RGB", "alpha": "YES"}
    elif masked == "nodata":
        told["nodata"] = 7
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **told) as raster:
        raster.write(items)
        if masked == "mask":
            raster.write_mask(np.indices((53, 70)).sum(0) % 5 > 0)


def check_tiff(path: Path, case: Case) -> None:
    with rasterio.open(path) as raster:
        expected, mask = raster.read(), raster.dataset_mask()
    group = zstore.open_group(VirtualStore(scan_file(path), allow=[path.parent]), "")
    if "image" in group:
        got = np.moveaxis(np.asarray(group["image"][...]), -1, 0)
    else:
        names = sorted(name for name in group if name.startswith("band_"))
        got = np.stack([np.asarray(group[name][...]) for name in names])
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    if case.get("masked") == "mask":
        np.testing.assert_array_equal(group["mask"][...], mask)
    tifffile = pytest.importorskip("tifffile", reason="tifffile is not installed")
    theirs = tifffile.imread(path, key=0)
    if "nbits" not in case and not case["compress"].startswith("lerc"):
        apart = case["interleave"] == "band" or theirs.ndim == 2
        theirs = theirs.reshape(expected.shape) if apart else np.moveaxis(theirs, -1, 0)
        np.testing.assert_array_equal(got, theirs)
    target = path.parent / "converted.zarr"
    made = raster_to_zarr(path, target, overwrite=True)
    bands = sorted(name for name in made if name.startswith("band_"))
    np.testing.assert_array_equal(np.stack([made[name][...] for name in bands])[: len(expected)], expected)


HDF5_FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "lzf, shuffle": {"compression": "lzf", "shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
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


def hdf5_files() -> Iterator[Case]:
    for dtype, (shape, chunks), libver in product(HDF5_TYPES, HDF5_SHAPES, ("earliest", "latest")):
        yield {"dtype": dtype, "shape": shape, "libver": libver}
        for name in HDF5_FILTERS if chunks else ():
            for rest in ("full", "partial", "growing"):
                yield {
                    "dtype": dtype,
                    "shape": shape,
                    "chunks": chunks,
                    "libver": libver,
                    "filter": name,
                    "rest": rest,
                }


def write_hdf5(path: Path, case: Case) -> None:
    import h5py

    shape, dtype = case["shape"], np.dtype(case["dtype"])
    items = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 101).astype(dtype)
    options: Case = {}
    if "chunks" in case:
        options = {"chunks": case["chunks"], **HDF5_FILTERS[case["filter"]]}
        if case["rest"] == "growing" or not all(shape):
            options["maxshape"] = (None, *shape[1:])
        if dtype.kind in "iuf":
            options["fillvalue"] = 3
    with h5py.File(path, "w", libver=case["libver"]) as file:
        made = file.create_dataset("x", shape=shape, dtype=dtype, **options)
        if case.get("rest") == "partial":
            made[: shape[0] // 2] = items[: shape[0] // 2]
        else:
            made[...] = items


def check_hdf5(path: Path, case: Case) -> None:
    import h5py

    with h5py.File(path) as file:
        expected = file["x"][()]
    got = zstore.open_array(VirtualStore(scan_file(path), allow=[path.parent]), "x")[...]
    np.testing.assert_array_equal(got, expected)


def netcdf_files() -> Iterator[Case]:
    wide = ("u1", "u2", "u4", "i8", "u8")
    for kind in ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"):
        for dtype in ("i1", "S1", "i2", "i4", "f4", "f8", *(wide if kind.endswith("DATA") else ())):
            for records, others in product((False, True), (0, 1, 2)):
                yield {"kind": kind, "dtype": dtype, "records": records, "others": others}


def write_netcdf(path: Path, case: Case) -> None:
    import netCDF4

    items = (np.arange(35).reshape(7, 5) % 90 + 1).astype(
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


def check_netcdf(path: Path, case: Case) -> None:
    import netCDF4

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        expected = file["x"][...]
    got = zstore.open_array(VirtualStore(scan_file(path), allow=[path.parent]), "x")[...]
    np.testing.assert_array_equal(got, expected)


KINDS = {
    "tif": (tiffs, write_tiff, check_tiff),
    "h5": (hdf5_files, write_hdf5, check_hdf5),
    "nc": (netcdf_files, write_netcdf, check_netcdf),
}
steps = partial(pytest.mark.parametrize, "step")


@pytest.mark.filterwarnings("ignore::zstore.geo.rasters.writing.RasterWarning")
@steps([STEP, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", KINDS)
def test_archives_are_read_as_their_libraries_read_them(tmp_path: Path, suffix: str, step: int) -> None:
    cases, write, check = KINDS[suffix]
    if suffix == "tif":
        pytest.importorskip("tifffile", reason="tifffile is not installed")
    same, refused = 0, dict[str, int]()
    different = []
    for number, case in enumerate(cases()):
        if number % step:
            continue
        path = tmp_path / f"a.{suffix}"
        path.unlink(missing_ok=True)
        write(path, case)
        try:
            check(path, case)
            same += 1
        except UnsupportedError as error:
            refused[error.message.split("; ")[0][-60:]] = (
                refused.get(error.message.split("; ")[0][-60:], 0) + 1
            )
        except Exception as error:
            different.append((case, f"{type(error).__name__}: {str(error)[:300]}"))
    print(f"{suffix}: {same} files the same, refused {refused}")
    assert not different, (len(different), different[:5])
    assert same > sum(refused.values())


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
        whole, chance = path.read_bytes(), np.random.default_rng(number)
        for _ in range(count):
            path.write_bytes(mutations(whole, chance))
            total += 1
            try:
                group = zstore.open_group(VirtualStore(scan_file(path), allow=[tmp_path]), "")
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
