"""Stores that other tools write, and what each tool itself knows of what it wrote.

Every writer is a function of a folder and a Zarr format; it gives the stores it wrote with their `Truth`,
which comes from the tool's own words (rioxarray's transform, odc-geo's GeoBox, pyresample's area, the arrays
that it was handed).
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Six = tuple[float, ...]
UTM: Six = (10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)
SHAPE = (128, 96)
DATES = np.array(["2024-02-28", "2024-02-29", "2024-03-01"], "M8[ns]")
OPEN_MULTIDIMENSIONAL = 0x10
UNSAID = "unsaid"


@dataclass(frozen=True)
class Truth:
    """What a tool meant by a store that it wrote.

    crs     what pyproj takes; None where the tool says nothing
    affine  (a, b, c, d, e, f) from the outer corner, in units of `crs`; None where there is no such grid
    nodata  the stored value; None where there is none, UNSAID where the tool has no notion of it
    times   ISO dates; None where there is no time
    levels  path, shape and affine of each, the finest first
    node    where in the store to look
    """

    path: Path
    crs: Any = None
    affine: Six | None = None
    shape: tuple[int, int] = SHAPE
    variable: str = "dn"
    nodata: float | str | None = None
    times: tuple[str, ...] | None = None
    levels: tuple[tuple[str, tuple[int, int], Six], ...] = ()
    node: str = ""


def scaled(affine: Six, factor: float) -> Six:
    a, b, c, d, e, f = affine
    return (a * factor, b * factor, c, d * factor, e * factor, f)


def values(shape: tuple[int, ...] = SHAPE, dtype: str = "u2") -> np.ndarray:
    return np.random.default_rng(3).integers(1, 200, shape).astype(dtype)


def centres(affine: Six, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The y and the x of the cells of a grid that is not rotated."""
    rows, columns = (np.arange(length) + 0.5 for length in shape)
    return affine[5] + affine[4] * rows, affine[2] + affine[0] * columns


def dataset(affine: Six = UTM, shape: tuple[int, ...] = SHAPE, **others: Any) -> Any:
    """A plain dataset of xarray's, with `dn` on y and x, or on time, y and x."""
    xarray = pytest.importorskip("xarray", reason="xarray is the writer")
    y, x = centres(affine, shape[-2:])
    coordinates: dict[str, Any] = {"y": y, "x": x}
    if len(shape) == 3:
        coordinates["time"] = DATES
    return xarray.Dataset({"dn": (("time", "y", "x")[-len(shape) :], values(shape), others)}, coordinates)


def days(dates: Any) -> tuple[str, ...]:
    """ISO days of numpy's dates, or of cftime's."""
    return tuple(str(date)[:10] for date in np.atleast_1d(dates))


def rioxarray_transform(opened: Any) -> Six:
    return tuple(opened.rio.transform(recalc=True))[:6]


def by_rioxarray(place: Path, zarr_format: int) -> Iterator[Truth]:
    pytest.importorskip("rioxarray", reason="rioxarray is the writer")
    rows = {
        "projected": (dataset(), "EPSG:32632"),
        "time": (dataset(shape=(3, *SHAPE)), "EPSG:32632"),
        "southern": (dataset((30.0, 0.0, 250000.0, 0.0, -30.0, 9100000.0)), "EPSG:32733"),
        "geographic": (
            dataset((0.01, 0.0, 10.0, 0.0, -0.01, 50.0)).rename({"y": "latitude", "x": "longitude"}),
            "EPSG:4326",
        ),
        "northing first": (dataset((10.0, 0.0, 1500000.0, 0.0, -10.0, 5000040.0)), "EPSG:2193"),
        "feet": (dataset((100.0, 0.0, 900000.0, 0.0, -100.0, 200000.0)), "EPSG:2263"),
    }  # fmt: skip
    for name, (opened, crs) in rows.items():
        opened["dn"] = opened["dn"].rio.write_nodata(0)
        opened = opened.rio.write_crs(crs).rio.write_transform().rio.write_coordinate_system()
        path = place / f"{name}.zarr"
        opened.to_zarr(path, zarr_format=zarr_format, consolidated=zarr_format == 2)
        times = days(opened["time"].values) if "time" in opened.dims else None
        yield Truth(path, opened.rio.crs.to_wkt(), rioxarray_transform(opened), nodata=0, times=times)


def by_odc_geo(place: Path, zarr_format: int) -> Iterator[Truth]:
    geobox = pytest.importorskip("odc.geo.geobox", reason="odc-geo is the writer")
    odc = pytest.importorskip("odc.geo.xr", reason="odc-geo is the writer")
    affine = pytest.importorskip("affine", reason="odc-geo's affines")
    boxes = {
        "projected": geobox.GeoBox(SHAPE, affine.Affine(*UTM), "EPSG:32632"),
        "geographic": geobox.GeoBox(SHAPE, affine.Affine(0.01, 0, 10, 0, -0.01, 50), "EPSG:4326"),
        "rotated": geobox.GeoBox(
            SHAPE, affine.Affine(8.0, 3.0, 300000.0, 3.0, -8.0, 5000040.0), "EPSG:32632"
        ),
        "from bounds": geobox.GeoBox.from_bbox((25e5, 15e5, 27e5, 165e4), "EPSG:3035", resolution=1000),
    }
    for name, box in boxes.items():
        for time in (None, DATES):
            shape = tuple(box.shape) if time is None else (3, *box.shape)
            array = odc.wrap_xr(values(shape), box, nodata=0, time=time)
            path = place / f"{name}-{'still' if time is None else 'time'}.zarr"
            array.to_dataset(name="dn").to_zarr(path, zarr_format=zarr_format, consolidated=zarr_format == 2)
            times = None if time is None else days(time)
            found = tuple(box.affine)[:6]
            yield Truth(path, box.crs.to_wkt(), found, tuple(box.shape), nodata=0, times=times)


def by_cf_xarray(place: Path, zarr_format: int) -> Iterator[Truth]:
    """Axes that it guesses and bounds that it makes, on a sphere."""
    pyproj = pytest.importorskip("pyproj", reason="pyproj gives the CRS")
    pytest.importorskip("cf_xarray", reason="cf-xarray is the writer")
    affine = (0.5, 0.0, 5.0, 0.0, 0.5, 40.0)
    opened = dataset(affine, (3, *SHAPE)).rename({"y": "lat", "x": "lon"})
    opened = opened.cf.guess_coord_axis().cf.add_bounds(["lat", "lon"])
    opened["dn"].attrs["standard_name"] = "air_temperature"
    mapping = {"grid_mapping_name": "latitude_longitude", "earth_radius": 6371229.0}
    opened["crs"] = ((), 0, mapping)
    opened["dn"].attrs["grid_mapping"] = "crs"
    path = place / "bounds.zarr"
    opened.to_zarr(path, zarr_format=zarr_format, consolidated=zarr_format == 2)
    steps = [
        float(opened[f"{name}_bounds"][0, 1] - opened[f"{name}_bounds"][0, 0]) for name in ("lon", "lat")
    ]
    corner = [float(opened[f"{name}_bounds"][0, 0]) for name in ("lon", "lat")]
    found = (steps[0], 0.0, corner[0], 0.0, steps[1], corner[1])
    assert opened.cf.grid_mapping_names == {"latitude_longitude": ["crs"]}
    yield Truth(path, pyproj.CRS.from_cf(mapping).to_wkt(), found, times=days(opened["time"].values))


def by_ndpyramid(place: Path, zarr_format: int) -> Iterator[Truth]:
    ndpyramid = pytest.importorskip("ndpyramid", reason="ndpyramid is the writer")
    pytest.importorskip("rioxarray", reason="rioxarray writes the CRS for ndpyramid")
    shape = (128, 128)
    raster = dataset(shape=shape).rio.write_crs(32632).rio.write_transform()
    tree = ndpyramid.pyramid_coarsen(raster, factors=[4, 2, 1], dims=["y", "x"], boundary="trim")
    path = place / "coarsened.zarr"
    tree.to_zarr(path, zarr_format=zarr_format, consolidated=zarr_format == 2)
    levels = tuple((str(2 - k), (128 >> k, 128 >> k), scaled(UTM, 2**k)) for k in range(3))
    yield Truth(path, "EPSG:32632", UTM, shape, nodata=np.nan, levels=levels)

    globe = dataset((2.0, 0.0, -180.0, 0.0, -2.0, 90.0), (90, 180)).astype("f4").rio.write_crs(4326)
    tree = ndpyramid.pyramid_reproject(globe, levels=3, pixels_per_tile=64)
    path = place / "reprojected.zarr"
    tree.to_zarr(path, zarr_format=zarr_format, consolidated=zarr_format == 2)
    square = ndpyramid.common.Projection(name="web-mercator")
    found = tuple((str(k), (64 << k, 64 << k), tuple(square.transform(dim=64 << k))[:6]) for k in (2, 1, 0))
    nodata = float(tree["2"]["dn"].encoding["_FillValue"])
    yield Truth(path, "EPSG:3857", found[0][2], found[0][1], nodata=nodata, levels=found)


def by_topozarr(place: Path, _: int) -> Iterator[Truth]:
    topozarr = pytest.importorskip("topozarr", reason="topozarr is the writer")
    pytest.importorskip("xproj", reason="xproj gives the CRS for topozarr")
    shape = (256, 192)
    for name, affine, crs, dimensions in (
        ("projected", UTM, "EPSG:32632", ("y", "x")),
        ("geographic", (0.1, 0.0, 10.0, 0.0, -0.1, 50.0), "EPSG:4326", ("lat", "lon")),
    ):
        opened = dataset(affine, shape).rename(dict(zip(("y", "x"), dimensions, strict=True)))
        opened = opened.astype("f4").proj.assign_crs(spatial_ref=crs)
        y, x = dimensions
        pyramid = topozarr.create_pyramid(opened, levels=3, x_dim=x, y_dim=y, chunks_per_shard=None)
        path = place / f"{name}.zarr"
        pyramid.write(str(path))
        levels = tuple(
            (str(k), tuple(length >> k for length in shape), scaled(affine, 2**k)) for k in range(3)
        )
        yield Truth(path, crs, affine, shape, nodata=np.nan, levels=levels)


def by_eopf_geozarr(place: Path, _: int) -> Iterator[Truth]:
    converter = pytest.importorskip("eopf_geozarr.conversion.geozarr", reason="eopf-geozarr is the writer")
    xarray = pytest.importorskip("xarray", reason="eopf-geozarr takes xarray's trees")
    shape = (256, 192)
    bands = dataset(shape=shape).rename({"dn": "b02"})
    bands["b02"].attrs |= {"proj:epsg": 32632}
    tree = xarray.DataTree.from_dict({"/measurements/r10m": bands})
    tree.attrs = {"other_metadata": {"horizontal_CRS_code": "EPSG:32632"}}
    group, path = "measurements/r10m", place / "eopf.zarr"
    made = converter.create_geozarr_dataset(
        tree, [f"/{group}"], str(path), spatial_chunk=64, min_dimension=64
    )
    names = [name for name in ("0", "1") if name in made[group].children]
    names = names or ["", "r2"]
    levels = tuple(
        (name, tuple(length >> k for length in shape), scaled(UTM, 2**k)) for k, name in enumerate(names)
    )
    yield Truth(path, "EPSG:32632", UTM, shape, "b02", levels=levels, node=group)


def refuse_a_draft(zarr_format: int) -> None:
    rasterio = pytest.importorskip("rasterio", reason="GDAL is the writer")
    if zarr_format == 3 and tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) < (3, 11):
        pytest.skip(f"GDAL {rasterio.__gdal_version__} writes an early draft of Zarr v3")


def by_gdal(place: Path, zarr_format: int) -> Iterator[Truth]:
    rasterio = pytest.importorskip("rasterio", reason="GDAL is the writer")
    refuse_a_draft(zarr_format)
    rows = {
        "projected": (UTM, "EPSG:32632", 0),
        "south-up": ((10.0, 0.0, 300000.0, 0.0, 10.0, 4990000.0), "EPSG:32632", 0),
        "geographic": ((0.01, 0.0, 10.0, 0.0, -0.01, 50.0), "EPSG:4326", 0),
        "northing first": ((10.0, 0.0, 1500000.0, 0.0, -10.0, 5000040.0), "EPSG:2193", 0),
        "own CRS": (UTM, "+proj=laea +lat_0=30 +lon_0=-10 +ellps=GRS80 +units=m", 0),
    }
    for name, (affine, crs, nodata) in rows.items():
        path = place / f"{name}.zarr"
        options = {"FORMAT": f"ZARR_V{zarr_format}", "BLOCKSIZE": "64,64", "ARRAY_NAME": "dn"}
        with rasterio.open(
            path, "w", "Zarr", SHAPE[1], SHAPE[0], 1, dtype="uint16", nodata=nodata, crs=crs,
            transform=rasterio.Affine(*affine), **options,
        ) as raster:  # fmt: skip
            raster.write(values(), 1)
        yield Truth(path, rasterio.crs.CRS.from_user_input(crs).to_wkt(), affine, nodata=nodata)


def netcdf(path: Path, target: str | None = None) -> Path:
    """A file at `path` with a time axis, packed values and a grid mapping; or the same elsewhere."""
    netcdf4 = pytest.importorskip("netCDF4", reason="netCDF4 writes the source")
    pyproj = pytest.importorskip("pyproj", reason="pyproj gives the grid mapping")
    y, x = centres(UTM, SHAPE)
    with netcdf4.Dataset(target or path, "w") as file:
        file.Conventions = "CF-1.10"
        for dimension, length in (("time", 3), ("y", SHAPE[0]), ("x", SHAPE[1])):
            file.createDimension(dimension, length)
        for dimension, found in (("y", y), ("x", x)):
            variable = file.createVariable(dimension, "f8", (dimension,))
            variable.standard_name, variable.units = f"projection_{dimension}_coordinate", "m"
            variable[:] = found
        time = file.createVariable("time", "i4", ("time",))
        time.units, time.calendar, time.standard_name = "days since 2024-02-27", "standard", "time"
        time[:] = [1, 2, 3]
        crs = file.createVariable("crs", "i4", ())
        # Debian's nccopy cannot write what is not ASCII, such as the ° of WKT2.
        for key, value in pyproj.CRS(32632).to_cf("WKT1_GDAL").items():
            crs.setncattr(key, value)
        band = file.createVariable("dn", "i2", ("time", "y", "x"), fill_value=-32768)
        band.set_auto_maskandscale(False)
        band.scale_factor, band.add_offset, band.grid_mapping = 0.01, 273.15, "crs"
        band.units, band.long_name = "K", "temperature"
        band[:] = values((3, *SHAPE), "i2")
    return path


OF_NETCDF: dict[str, Any] = {
    "crs": "EPSG:32632", "affine": UTM, "nodata": -32768, "times": ("2024-02-28", "2024-02-29", "2024-03-01"),
}  # fmt: skip


def gdal_library() -> ctypes.CDLL:
    """The GDAL that rasterio's wheel has inside: it has no command, but all of the C interface."""
    rasterio = pytest.importorskip("rasterio", reason="GDAL is the writer")
    found = sorted((Path(rasterio.__file__).parents[1] / "rasterio.libs").glob("libgdal*"))
    if not found:
        pytest.skip("GDAL of rasterio is not inside its wheel")
    library = ctypes.CDLL(str(found[0]))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    library.GDALOpenEx.argtypes = [text, ctypes.c_uint, pointer, pointer, pointer]
    library.GDALOpenEx.restype = pointer
    library.GDALMultiDimTranslateOptionsNew.argtypes = [pointer, pointer]
    library.GDALMultiDimTranslateOptionsNew.restype = pointer
    library.GDALMultiDimTranslate.argtypes = [text, pointer, ctypes.c_int, pointer, pointer, pointer]
    library.GDALMultiDimTranslate.restype = pointer
    library.GDALClose.argtypes = [pointer]
    library.CPLGetLastErrorMsg.restype = text
    library.GDALAllRegister()
    return library


def by_gdals_multidimensional_api(place: Path, zarr_format: int) -> Iterator[Truth]:
    refuse_a_draft(zarr_format)
    library, source, path = gdal_library(), netcdf(place / "source.nc"), place / "multidimensional.zarr"
    words = ["-of", "Zarr", "-co", f"FORMAT=ZARR_V{zarr_format}"]
    arguments = (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)
    opened = library.GDALOpenEx(str(source).encode(), OPEN_MULTIDIMENSIONAL, None, None, None)
    assert opened, library.CPLGetLastErrorMsg()
    sources = (ctypes.c_void_p * 1)(opened)
    options = library.GDALMultiDimTranslateOptionsNew(arguments, None)
    made = library.GDALMultiDimTranslate(str(path).encode(), None, 1, sources, options, None)
    assert made, library.CPLGetLastErrorMsg()
    library.GDALClose(made)
    library.GDALClose(opened)
    yield Truth(path, **OF_NETCDF)


def by_gdalmdimtranslate(place: Path, _: int) -> Iterator[Truth]:
    """The command, of whichever GDAL is on PATH; older ones write a draft of v3 that nothing reads."""
    source, path = netcdf(place / "source.nc"), place / "command.zarr"
    run("gdalmdimtranslate", "gdal-bin", "-of", "Zarr", str(source), str(path))
    yield Truth(path, **OF_NETCDF)


def run(command: str, package: str, *words: str) -> None:
    try:
        subprocess.run([command, *words], capture_output=True, text=True, check=True, timeout=120)
    except FileNotFoundError:
        pytest.skip(f"{command} is not on PATH (Debian's package {package} has it)")


def by_nccopy(place: Path, _: int) -> Iterator[Truth]:
    """netCDF-C's own Zarr, with its attributes and without ("zarr", for which it keeps xarray's)."""
    source = netcdf(place / "source.nc")
    for mode in ("nczarr", "xarray", "zarr"):
        path = place / f"{mode}.zarr"
        run("nccopy", "netcdf-bin", str(source), f"file://{path}#mode={mode},file")
        yield Truth(path, **OF_NETCDF)


def by_netcdf4(place: Path, _: int) -> Iterator[Truth]:
    """NCZarr of the netCDF-C that netCDF4's wheel has inside."""
    path = place / "own.zarr"
    yield Truth(netcdf(path, f"file://{path}#mode=nczarr,file"), **OF_NETCDF)


def by_ome_zarr(place: Path, zarr_format: int) -> Iterator[Truth]:
    writer = pytest.importorskip("ome_zarr.writer", reason="ome-zarr is the writer")
    formats = pytest.importorskip("ome_zarr.format", reason="ome-zarr is the writer")
    zarr = pytest.importorskip("zarr", reason="zarr-python opens the store for ome-zarr")
    path, versions = place / "ome.zarr", {2: formats.FormatV04(), 3: formats.FormatV05()}
    levels = [values((128 >> k, 96 >> k)) for k in range(3)]
    steps = [
        [
            {"type": "scale", "scale": [0.5 * 2**k, 0.25 * 2**k]},
            {"type": "translation", "translation": [10 + 0.25 * 2**k, 20 + 0.125 * 2**k]},
        ]
        for k in range(3)
    ]
    group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    writer.write_multiscale(
        levels, group, fmt=versions[zarr_format], axes=axes, coordinate_transformations=steps
    )
    name = "ome" if zarr_format == 3 else None
    attributes = dict(group.attrs)[name] if name else dict(group.attrs)
    found = []
    for listed, level in zip(attributes["multiscales"][0]["datasets"], levels, strict=True):
        (y, x), (row, column) = (
            listed["coordinateTransformations"][0]["scale"],
            listed["coordinateTransformations"][1]["translation"],
        )
        found.append((listed["path"], level.shape, (x, 0.0, column - x / 2, 0.0, y, row - y / 2)))
    yield Truth(path, None, found[0][2], (128, 96), nodata=UNSAID, levels=tuple(found), variable=found[0][0])


def by_satpy(place: Path, zarr_format: int) -> Iterator[Truth]:
    satpy = pytest.importorskip("satpy", reason="satpy is the writer")
    geometry = pytest.importorskip("pyresample.geometry", reason="pyresample gives satpy its areas")
    coordinates = pytest.importorskip("satpy.coords", reason="satpy is the writer")
    xarray = pytest.importorskip("xarray", reason="satpy is made of xarray")
    rows = {
        "projected": ("EPSG:32632", (300000.0, 4998760.0, 300960.0, 5000040.0)),
        "geostationary": (
            "+proj=geos +h=35785831 +lon_0=0 +sweep=y +a=6378169 +b=6356583.8 +units=m",
            (-2000000.0, 1000000.0, 1000000.0, 5000000.0),
        ),
        "polar": ("EPSG:3413", (-1000000.0, -2000000.0, 500000.0, 1000000.0)),
    }
    for name, (crs, extent) in rows.items():
        area = geometry.AreaDefinition(name, name, name, crs, SHAPE[1], SHAPE[0], extent)
        scene = satpy.Scene()
        array = xarray.DataArray(
            values().astype("f4"), dims=("y", "x"),
            attrs={"area": area, "start_time": DATES[0].astype("M8[us]").item(),
                   "end_time": DATES[0].astype("M8[us]").item(), "name": "dn", "units": "K",
                   "standard_name": "toa_brightness_temperature"},
        )  # fmt: skip
        # As its own readers hand them over.
        array = coordinates.add_crs_xy_coords(array, area)
        scene["dn"] = array.assign_coords(time=DATES[0])
        opened = scene.to_xarray()
        path = place / f"{name}.zarr"
        opened.to_zarr(path, zarr_format=zarr_format, consolidated=zarr_format == 2)
        step_x, step_y = area.pixel_size_x, area.pixel_size_y
        left, _, _, top = area.area_extent
        yield Truth(
            path,
            area.crs.to_wkt(),
            (step_x, 0.0, left, 0.0, -step_y, top),
            nodata=np.nan,
            times=days(DATES[:1]),
        )


# Which formats each writes.
WRITERS: Mapping[str, tuple[Callable[[Path, int], Iterator[Truth]], tuple[int, ...]]] = {
    "rioxarray": (by_rioxarray, (2, 3)),
    "odc-geo": (by_odc_geo, (2, 3)),
    "cf-xarray": (by_cf_xarray, (2, 3)),
    "ndpyramid": (by_ndpyramid, (2, 3)),
    "topozarr": (by_topozarr, (3,)),
    "eopf-geozarr": (by_eopf_geozarr, (3,)),
    "GDAL": (by_gdal, (2, 3)),
    "GDAL, multidimensional": (by_gdals_multidimensional_api, (2, 3)),
    "gdalmdimtranslate": (by_gdalmdimtranslate, (2,)),
    "ome-zarr-py": (by_ome_zarr, (2, 3)),
    "nccopy": (by_nccopy, (2,)),
    "netCDF4": (by_netcdf4, (2,)),
    "satpy": (by_satpy, (2, 3)),
}
