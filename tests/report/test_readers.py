"""What is said of who will open a store."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.geo.report.summary import describe
from zstore.storage.memory import MemoryStore

pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
PLACE = {"proj:code": "EPSG:32632", "spatial:transform": [10, 0, 3e5, 0, -10, 5e6]}


def pyramid(zarr_format=3, profile=None, **options) -> zstore.Group:
    store = MemoryStore()
    root = zstore.create_group(store, zarr_format=zarr_format)
    base = root.create_group("0", attributes=PLACE)
    base.create_array("b", data=np.ones((64, 48), "u2"), chunks=16, dimension_names=("y", "x"), **options)
    zstore.build_pyramid(base, root, levels=1, profile=profile)
    return zstore.open_group(store, mode="r")


def obstacles(node) -> dict[str, str]:
    return {reader.name: reader.obstacle for reader in describe(node).readers}


def test_everybody_opens_what_is_written_by_default() -> None:
    found = obstacles(pyramid())
    assert {name for name, obstacle in found.items() if obstacle} == {"ome-zarr"}
    assert obstacles(pyramid(profile="ome"))["ome-zarr"] == ""
    assert {n for n, o in obstacles(pyramid(2, compressors="zlib")).items() if o} == {
        "ome-zarr",
        "GDAL 3.13, levels",
    }


@pytest.mark.parametrize(
    ("options", "reader", "word"),
    [
        ({"profile": "gdal"}, "rioxarray", "grid mapping"),
        ({"profile": "multiscale-arrays"}, "rio-tiler 9", "multiscales"),
        ({"profile": "multiscale-arrays"}, "GDAL 3.13, levels", "layout"),
        ({"shards": 32}, "GDAL 3.12", "3.13"),
        ({"compressors": "bz2", "zarr_format": 2}, "OpenLayers 10.11", "bz2"),
    ],
)
def test_what_keeps_a_reader_away(options, reader, word) -> None:
    assert word in obstacles(pyramid(**options))[reader]


def test_a_store_that_is_no_raster_is_not_judged() -> None:
    group = zstore.create_group(MemoryStore())
    assert describe(group).readers == []


def test_an_array_alone_has_no_name_to_tell() -> None:
    array = zstore.create_array(MemoryStore(), shape=(4, 4), dtype="u2", chunks=4)
    said = {reader.name: reader.mistake for reader in describe(array).readers}
    assert said["GDAL 3.12"] == "takes the fill value for nodata"


def test_numbers_for_fill_values_keep_xarray_away() -> None:
    array = zstore.create_array(
        MemoryStore(),
        data=np.ones((4, 4), "f4"),
        dimension_names=("y", "x"),
        attributes={"_FillValue": -9999.0},
    )
    found = obstacles(array)
    assert (
        "base64" in found["xarray"]
        and "no CRS" in found["rioxarray"]
        and "no levels" in found["OpenLayers 10.11"]
    )
    nameless = zstore.create_array(MemoryStore(), data=np.ones((4, 4), "f4"))
    assert "names" in obstacles(nameless)["xarray"]


def test_time_bands_and_a_catalogues_word_are_facts() -> None:
    group = zstore.create_group(MemoryStore(), attributes={"stac:link": {"href": "https://example.org/i"}})
    bands = [{"name": "B04", "eo:common_name": "red", "eo:center_wavelength": 0.665}]
    group.create_array(
        "b", data=np.ones((2, 4, 4), "u1"), dimension_names=("time", "y", "x"), attributes={"bands": bands}
    )
    units = {"units": "days since 2024-02-28", "standard_name": "time"}
    group.create_array("time", data=np.array([0, 2]), dimension_names=("time",), attributes=units)
    facts = dict(describe(group).facts())
    assert facts["time"] == "2024-02-28 to 2024-03-01 (2 moments, standard)"
    assert facts["bands of b"] == "B04 (red, 0.665 µm)"
    assert facts["STAC"] == "link https://example.org/i"
    assert facts["dialects"] == "STAC, STAC bands"


def test_dates_that_cannot_be_read_are_a_finding() -> None:
    group = zstore.create_group(MemoryStore())
    group.create_array("b", data=np.ones((1, 4, 4), "u1"), dimension_names=("time", "y", "x"))
    units = {"units": "days since 2024-02-28", "standard_name": "time"}
    group.create_array("time", data=np.array([2**60]), dimension_names=("time",), attributes=units)
    report = describe(group)
    assert report.time is None and "MS-09" in {finding.rule for finding in report.findings}
