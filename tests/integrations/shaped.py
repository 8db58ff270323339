"""Files shaped like those of models, reanalyses, satellites, sea ice, swaths and radars, at random.

xarray writes them, through netCDF-C, h5netcdf or zarr-python; satpy's its own CF writer. Everything that the
shape leaves open is drawn: sizes, types, packing, missing values, calendars, directions of axes, chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

xr = pytest.importorskip("xarray", reason="xarray is the writer")

Draw = np.random.Generator
ENGINES = ("netcdf4", "h5netcdf", "zarr")
# Of the variable to be looked at: its name, those of its dimensions y and x, and of time where it has one.
Shape = tuple[Any, str, tuple[str, str], str | None]


def field(draw: Draw, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Smooth numbers with some noise, and holes."""
    values = np.linspace(low, high, int(np.prod(shape))).reshape(shape)
    values += draw.normal(0, (high - low) / 50, shape)
    values = np.clip(values, low, high)
    values[draw.random(shape) < draw.choice([0.0, 0.1, 0.5])] = np.nan
    return values


def packing(draw: Draw, low: float, high: float) -> dict[str, Any]:
    """An encoding: floats with a number for missing ones, or integers that are packed."""
    kind = draw.choice(["f4", "f8", "i2", "u1", "i4"])
    if kind[0] == "f":
        fill = draw.choice([1e20, -9999.0, np.nan])
        return {"dtype": kind, "_FillValue": np.dtype(kind).type(fill)}
    info = np.iinfo(kind)
    fill = int(draw.choice([info.min, info.max]))
    span = min(info.max - info.min - 2, 60000)
    scale = (high - low) / span
    first = info.min + 1
    return {"dtype": kind, "_FillValue": np.dtype(kind).type(fill), "scale_factor": scale,
            "add_offset": low - first * scale}  # fmt: skip


def times(draw: Draw, count: int, name: str = "time") -> dict[str, Any]:
    """A time coordinate of numbers with units, in any calendar."""
    unit = str(draw.choice(["days", "hours", "seconds", "minutes"]))
    calendar = str(draw.choice(["standard", "noleap", "360_day", "proleptic_gregorian"]))
    attributes = {
        "units": f"{unit} since 1850-01-01", "calendar": calendar, "standard_name": "time", "axis": "T",
        "bounds": f"{name}_bnds",
    }  # fmt: skip
    return {name: (name, np.arange(count, dtype="f8") * 30 + 15, attributes)}


def bounds(centres: np.ndarray) -> np.ndarray:
    half = (centres[1] - centres[0]) / 2
    return np.stack([centres - half, centres + half], 1)


def cmip6(draw: Draw) -> Shape:
    """tas(time, lat, lon) with bounds of all, and 2 m as a scalar coordinate."""
    count, rows, columns = int(draw.integers(1, 5)), int(draw.integers(5, 40)), int(draw.integers(6, 50))
    lat = -90 + 180 / rows * (np.arange(rows) + 0.5)
    lon = 360 / columns * (np.arange(columns) + 0.5 * draw.integers(0, 2))
    time = times(draw, count)
    data = xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), field(draw, (count, rows, columns), 220, 310), {
                "standard_name": "air_temperature", "units": "K", "cell_methods": "area: time: mean",
                "cell_measures": "area: areacella", "coordinates": "height",
            }),
            "time_bnds": (("time", "bnds"), bounds(np.arange(count + 1.0) * 30 + 15)[:count]),
            "lat_bnds": (("lat", "bnds"), bounds(lat)),
            "lon_bnds": (("lon", "bnds"), bounds(lon)),
        },
        {
            **time,
            "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude", "axis": "Y",
                                 "bounds": "lat_bnds"}),
            "lon": ("lon", lon, {"units": "degrees_east", "standard_name": "longitude", "axis": "X",
                                 "bounds": "lon_bnds"}),
            "height": ((), 2.0, {"units": "m", "standard_name": "height", "positive": "up", "axis": "Z"}),
        },
        {"Conventions": "CF-1.7 CMIP-6.2", "external_variables": "areacella", "mip_era": "CMIP6"},
    )  # fmt: skip
    data.tas.encoding = {"dtype": "f4", "_FillValue": np.float32(1e20), "missing_value": np.float32(1e20)}
    for name in ("time_bnds", "lat_bnds", "lon_bnds", "height"):
        data[name].encoding["_FillValue"] = None
    return data, "tas", ("lat", "lon"), "time"


def era5(draw: Draw) -> Shape:
    """t2m(valid_time, latitude, longitude), north first, from 0 or -180 on, packed or not."""
    count, rows, columns = int(draw.integers(1, 5)), int(draw.integers(5, 60)), int(draw.integers(6, 60))
    step = 0.25
    first = draw.choice([0.0, -180.0, 5.0])
    time = times(draw, count, "valid_time")
    time["valid_time"][2].pop("bounds")
    data = xr.Dataset(
        {"t2m": (("valid_time", "latitude", "longitude"), field(draw, (count, rows, columns), 220, 310), {
            "units": "K", "long_name": "2 metre temperature", "standard_name": "unknown",
            "GRIB_paramId": 167, "GRIB_missingValue": 3.4028234663852886e38,
        })},
        {
            **time,
            "latitude": ("latitude", 60 - step * np.arange(rows), {
                "units": "degrees_north", "standard_name": "latitude", "stored_direction": "decreasing"}),
            "longitude": ("longitude", first + step * np.arange(columns), {
                "units": "degrees_east", "standard_name": "longitude"}),
            "number": ((), 0, {"units": "1", "standard_name": "realization"}),
            "expver": ("valid_time", np.array(["0001"] * count, object)),
        },
        {"Conventions": "CF-1.7", "institution": "European Centre for Medium-Range Weather Forecasts"},
    )  # fmt: skip
    data.t2m.encoding = packing(draw, 220, 310)
    return data, "t2m", ("latitude", "longitude"), "valid_time"


def goes(draw: Draw) -> Shape:
    """CMI(y, x) on ABI's fixed grid: packed scan angles, a quality flag beside it."""
    rows, columns = int(draw.integers(6, 60)), int(draw.integers(6, 60))
    step = 56e-6
    y, x = 0.1 - step * np.arange(rows), -0.04 + step * np.arange(columns)
    data = xr.Dataset(
        {
            "CMI": (("y", "x"), field(draw, (rows, columns), 180, 330), {
                "long_name": "ABI L2+ Cloud and Moisture Imagery brightness temperature", "units": "K",
                "standard_name": "toa_brightness_temperature",
                "grid_mapping": "goes_imager_projection", "ancillary_variables": "DQF",
                "cell_methods": "t: point area: point",
            }),
            "DQF": (("y", "x"), draw.integers(0, 4, (rows, columns)).astype("i1"), {
                "flag_values": np.array([0, 1, 2, 3], "i1"), "flag_meanings": "good usable bad missing",
                "grid_mapping": "goes_imager_projection", "units": "1", "standard_name": "status_flag",
                "valid_range": np.array([0, 3], "i1"),
            }),
            "goes_imager_projection": ((), np.int32(0), {
                "grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0,
                "semi_major_axis": 6378137.0, "semi_minor_axis": 6356752.31414,
                "inverse_flattening": 298.2572221, "latitude_of_projection_origin": 0.0,
                "longitude_of_projection_origin": -75.0, "sweep_angle_axis": "x",
            }),
        },
        {
            "y": ("y", y, {"units": "rad", "axis": "Y", "standard_name": "projection_y_coordinate"}),
            "x": ("x", x, {"units": "rad", "axis": "X", "standard_name": "projection_x_coordinate"}),
            "t": ((), 637_000_000.0, {"units": "seconds since 2000-01-01 12:00:00", "standard_name": "time",
                                      "axis": "T"}),
        },
        {"Conventions": "CF-1.7"},
    )  # fmt: skip
    data.CMI.encoding = packing(draw, 180, 330)
    data.DQF.encoding = {"_FillValue": np.int8(-1)}
    for name, values in (("y", y), ("x", x)):
        signed = step if name == "x" else -step
        data[name].encoding = {
            "dtype": "i2", "scale_factor": signed, "add_offset": float(values[0]), "_FillValue": None,
        }  # fmt: skip
    return data, "CMI", ("y", "x"), None


def osisaf(draw: Draw) -> Shape:
    """ice_conc(time, yc, xc) in kilometres around a pole, with places as auxiliary coordinates."""
    rows, columns = int(draw.integers(6, 50)), int(draw.integers(6, 50))
    step = float(draw.choice([10.0, 25.0]))
    yc, xc = 500 - step * np.arange(rows), -600 + step * np.arange(columns)
    mapping = {
        "grid_mapping_name": "lambert_azimuthal_equal_area", "longitude_of_projection_origin": 0.0,
        "latitude_of_projection_origin": float(draw.choice([90.0, -90.0])), "false_easting": 0.0,
        "false_northing": 0.0, "semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563,
    }  # fmt: skip
    pyproj = pytest.importorskip("pyproj", reason="pyproj gives places")
    back = pyproj.Transformer.from_crs(pyproj.CRS.from_cf(mapping), "EPSG:4326", always_xy=True)
    lon, lat = back.transform(*np.meshgrid(xc * 1000, yc * 1000))
    time = times(draw, 1)
    time["time"][2].pop("bounds")
    data = xr.Dataset(
        {
            "ice_conc": (("time", "yc", "xc"), field(draw, (1, rows, columns), 0, 100), {
                "standard_name": "sea_ice_area_fraction", "units": "%", "coordinates": "time lat lon",
                "grid_mapping": "Lambert_Azimuthal_Grid", "ancillary_variables": "status_flag",
            }),
            "status_flag": (("time", "yc", "xc"), draw.integers(0, 3, (1, rows, columns)).astype("i1"), {
                "standard_name": "sea_ice_area_fraction status_flag", "coordinates": "time lat lon",
                "flag_masks": np.array([1, 2], "i1"), "flag_meanings": "land lake",
                "grid_mapping": "Lambert_Azimuthal_Grid",
            }),
            "Lambert_Azimuthal_Grid": ((), np.int32(0), mapping),
        },
        {
            **time,
            "yc": ("yc", yc, {"units": "km", "standard_name": "projection_y_coordinate", "axis": "Y"}),
            "xc": ("xc", xc, {"units": "km", "standard_name": "projection_x_coordinate", "axis": "X"}),
            "lat": (("yc", "xc"), lat.astype("f4"), {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": (("yc", "xc"), lon.astype("f4"), {"units": "degrees_east", "standard_name": "longitude"}),
        },
        {"Conventions": "CF-1.7 ACDD-1.3"},
    )  # fmt: skip
    for name in ("ice_conc", "status_flag"):
        data[name].attrs.pop("coordinates")
    data.ice_conc.encoding = packing(draw, 0, 100)
    data.status_flag.encoding = {"_FillValue": np.int8(-1)}
    return data, "ice_conc", ("yc", "xc"), "time"


def swath(draw: Draw) -> Shape:
    """sst(nj, ni) whose places are two arrays: on no grid."""
    rows, columns = int(draw.integers(6, 60)), int(draw.integers(6, 60))
    along, across = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    data = xr.Dataset(
        {"sea_surface_temperature": (("nj", "ni"), field(draw, (rows, columns), 270, 305), {
            "units": "kelvin", "standard_name": "sea_surface_skin_temperature",
            "long_name": "sea surface temperature",
        })},
        {
            "lat": (("nj", "ni"), (50 - 0.01 * along + 0.002 * across).astype("f4"),
                    {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": (("nj", "ni"), (5 + 0.01 * across + 0.003 * along).astype("f4"),
                    {"units": "degrees_east", "standard_name": "longitude"}),
        },
        {"Conventions": "CF-1.7"},
    )  # fmt: skip
    data.sea_surface_temperature.encoding = packing(draw, 270, 305)
    return data, "sea_surface_temperature", ("nj", "ni"), None


def radar(draw: Draw) -> Shape:
    """DBZH(time, azimuth, range) of one sweep, as CfRadial has it: polar, so on no grid either."""
    rays, gates = int(draw.integers(6, 60)), int(draw.integers(6, 60))
    data = xr.Dataset(
        {"DBZH": (("azimuth", "range"), field(draw, (rays, gates), -30, 70), {
            "units": "dBZ", "standard_name": "equivalent_reflectivity_factor",
            "long_name": "reflectivity", "coordinates": "elevation azimuth range",
        })},
        {
            "azimuth": ("azimuth", 360 / rays * (np.arange(rays) + 0.5),
                        {"units": "degrees", "standard_name": "ray_azimuth_angle",
                         "axis": "radial_azimuth_coordinate"}),
            "range": ("range", 250.0 * (np.arange(gates) + 0.5),
                      {"units": "meters", "standard_name": "projection_range_coordinate",
                       "axis": "radial_range_coordinate"}),
            "elevation": ("azimuth", np.full(rays, 0.5),
                          {"units": "degrees", "standard_name": "ray_elevation_angle"}),
        },
        {"Conventions": "CF-1.7 CfRadial", "instrument_name": "radar"},
    )  # fmt: skip
    data.DBZH.attrs.pop("coordinates")
    data.DBZH.encoding = packing(draw, -30, 70)
    return data, "DBZH", ("azimuth", "range"), None


SHAPES: dict[str, Callable[[Draw], Shape]] = {
    "CMIP6": cmip6, "ERA5": era5, "GOES": goes, "OSI SAF": osisaf, "swath": swath, "radar": radar,
}  # fmt: skip


def scene(draw: Draw, path: Path) -> tuple[Path, str, tuple[str, str], str | None]:
    """A channel of an imager on an area of the Earth, in the file of satpy's CF writer."""
    satpy = pytest.importorskip("satpy", reason="satpy is the writer")
    coordinates = pytest.importorskip("satpy.coords", reason="satpy is the writer")
    geometry = pytest.importorskip("pyresample.geometry", reason="pyresample is the writer of satpy's areas")
    rows, columns = int(draw.integers(6, 60)), int(draw.integers(6, 60))
    crs, left, top, step = [
        ("+proj=geos +h=35785831 +lon_0=0 +sweep=y +a=6378169 +b=6356583.8 +units=m", -2e6, 5e6, 3000.4),
        ("EPSG:3413", -1e6, 1e6, 1000.0), ("EPSG:32632", 3e5, 5000040.0, 10.0),
        ("EPSG:4326", 5.0, 50.0, 0.25),
    ][draw.integers(0, 4)]  # fmt: skip
    extent = left, top - rows * step, left + columns * step, top
    area = geometry.AreaDefinition("area", "an area", "area", crs, columns, rows, extent)
    values = field(draw, (rows, columns), 180, 330).astype(draw.choice(["f4", "f8"]))
    start, made = datetime(2024, 2, 28, 12), satpy.Scene()
    said = {
        "area": area, "name": "IR_108", "units": "K", "standard_name": "toa_brightness_temperature",
        "platform_name": "Meteosat-11", "sensor": {"seviri"}, "start_time": start,
        "end_time": start + timedelta(minutes=12),
        "orbital_parameters": {"satellite_nominal_altitude": 35785863.0},
    }  # fmt: skip
    # As its own readers hand them over.
    made["IR_108"] = coordinates.add_crs_xy_coords(xr.DataArray(values, dims=("y", "x"), attrs=said), area)
    made.save_datasets(
        writer="cf", filename=str(path), engine=str(draw.choice(ENGINES[:2])),
        include_lonlats=bool(draw.integers(0, 2)), encoding={"IR_108": packing(draw, 180, 330)},
    )  # fmt: skip
    return path, "IR_108", ("y", "x"), None


def write(name: str, seed: int, folder: Path) -> tuple[Path, str, tuple[str, str], str | None]:
    """A file of that shape; (its path, the variable, its dimensions y and x, its time)."""
    draw = np.random.default_rng([seed, [*SHAPES, "satpy"].index(name)])
    if name == "satpy":
        return scene(draw, folder / f"satpy-{seed}.nc")
    data, variable, cells, time = SHAPES[name](draw)
    engine = str(draw.choice(ENGINES))
    if engine != "zarr" and draw.random() < 0.5:
        sizes = data[variable].shape
        data[variable].encoding["chunksizes"] = tuple(max(1, int(n * draw.choice([0.3, 1]))) for n in sizes)
        data[variable].encoding["zlib"] = True
    path = folder / f"{name.replace(' ', '')}-{seed}.{'zarr' if engine == 'zarr' else 'nc'}"
    if engine == "zarr":
        data.to_zarr(path, zarr_format=int(draw.choice([2, 3])), consolidated=False)
    else:
        data.to_netcdf(path, engine=engine)
    return path, variable, cells, time
