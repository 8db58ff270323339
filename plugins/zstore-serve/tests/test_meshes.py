"""Grids whose cells lie on the ground one by one, beside the nearest cells that are looked for one by one."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

if not entry_points(group="zstore", name="serve"):
    pytest.skip("zstore-serve is not installed, so it has no entry point", allow_module_level=True)
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
pytest.importorskip("scipy", reason="curvilinear grids are drawn by scipy (extra 'meshes')")
healpix = pytest.importorskip("healpix", reason="HEALPix is drawn by healpix (extra 'meshes')")

from zstore_serve import meshes, router  # noqa: E402

import zstore  # noqa: E402
from zstore.errors import UnsupportedError  # noqa: E402
from zstore.geo.conventions.crs import Crs  # noqa: E402
from zstore.storage.memory import MemoryStore  # noqa: E402

from .applications import ask, get  # noqa: E402

DEGREES = Crs.from_user("OGC:CRS84")


def value_at(application: Any, lon: float, lat: float, more: str = "") -> float | None:
    (about,) = get(application, "/collections").document["collections"]
    answer = get(application, f"/collections/{about['id']}/point?lon={lon % 360 - 180}&lat={lat}{more}")
    return answer.document["values"]["v"]


def mesh(lon: np.ndarray, lat: np.ndarray, values: np.ndarray, **attributes: Any) -> MemoryStore:
    store, names = MemoryStore(), ("time", "j", "i")[-values.ndim :]
    group = zstore.create_group(store)
    group.create_array("v", data=values, chunks=16, dimension_names=names, attributes=attributes)
    for name, places, stated in (("x", lon, "longitude"), ("y", lat, "latitude")):
        said = {"standard_name": stated, "bounds": f"bounds_of_{name}"}
        group.create_array(name, data=places, dimension_names=("j", "i"), attributes=said)
        # No band, though the first by the alphabet and a number for each cell.
        edges = np.repeat(places[..., None], 4, axis=-1)
        group.create_array(said["bounds"], data=edges, dimension_names=("j", "i", "corner"))
    if values.ndim == 3:
        days = {"units": "days since 2020-01-01", "standard_name": "time"}
        group.create_array("time", data=np.arange(len(values)), dimension_names=("time",), attributes=days)
    return store


def skew() -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns that lie askew across the antimeridian."""
    j, i = np.mgrid[0:40, 0:50]
    return (170 + 0.5 * i + 0.15 * j + 180) % 360 - 180, -10 + 0.4 * j - 0.1 * i


def cap() -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns around the north pole, which is no cell's centre."""
    y, x = np.mgrid[-19.5:20, -19.5:20] * 1e5
    return Crs.from_user("EPSG:3413").transform(DEGREES, x, y)


@pytest.mark.parametrize("place", [skew, cap])
def test_a_curvilinear_grid_shows_the_cell_that_is_nearest(place: Any) -> None:
    lon, lat = place()
    values = np.arange(3 * lon.size, dtype="f4").reshape(3, *lon.shape)
    application = router(mesh(lon, lat, values))
    chance = np.random.default_rng(8)
    row, column = (chance.integers(2, size - 2, 20) for size in lon.shape)
    for j, i in zip(row.tolist(), column.tolist(), strict=True):
        found = value_at(application, lon[j, i] + 180, lat[j, i], "&time=2020-01-03")
        assert found == values[2, j, i], (j, i)
    (about,) = get(application, "/collections").document["collections"]
    series = get(
        application, f"/collections/{about['id']}/timeseries?lon={lon[9, 7]}&lat={lat[9, 7]}"
    ).document
    assert series["values"] == values[:, 9, 7].tolist() and series["labels"][0] == "2020-01-01"
    # Anywhere between, no cell is drawn that is farther off than another by more than half a drawn cell.
    x, y = np.radians(lon), np.radians(lat)
    vectors = np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], -1)
    for _ in range(20):
        j, i = (chance.uniform(2, size - 3) for size in lon.shape)
        corner = vectors[int(j) : int(j) + 2, int(i) : int(i) + 2].mean(axis=(0, 1))
        here = corner / np.linalg.norm(corner)
        x, y = np.degrees(np.arctan2(here[1], here[0])), np.degrees(np.arcsin(here[2]))
        found = value_at(application, x + 180, y)
        far = np.degrees(np.linalg.norm(vectors - here, axis=-1))
        assert far.ravel()[int(found)] < far.min() + 0.3
    assert value_at(application, lon[0, 0] + 180, -60) is None


def test_cells_without_a_place_or_a_value_are_nothing() -> None:
    lon, lat = skew()
    values = np.arange(lon.size).reshape(lon.shape).astype("i2")
    values[20, 20] = -1
    hidden = lon.copy()
    hidden[5:15, 5:15] = np.nan
    application = router(mesh(hidden, lat, values, _FillValue=-1))
    assert value_at(application, lon[20, 20] + 180, lat[20, 20]) is None
    assert value_at(application, lon[10, 10] + 180, lat[10, 10]) is None
    assert value_at(application, lon[20, 21] + 180, lat[20, 21]) == values[20, 21]
    # A little beyond the outer edge there is nothing either.
    assert value_at(application, lon[30, 0] + 180 - 0.5, lat[30, 0]) is None


def test_rows_at_the_poles_are_drawn_up_to_half_way_to_the_next() -> None:
    lon, lat = np.meshgrid(np.arange(-180.0, 180, 10), np.arange(-90.0, 91, 10))
    rows = np.arange(19, dtype="f4")[:, None].repeat(36, axis=1)
    application = router(mesh(lon, lat, rows))
    for at, row in ((-90, 0), (-86, 0), (-84, 1), (84, 17), (86, 18), (90, 18)):
        assert value_at(application, 123, at) == row, at


@pytest.mark.parametrize("scheme", ["nested", "ring"])
@pytest.mark.parametrize("is_part", [False, True])
def test_healpix_shows_its_cells(scheme: str, is_part: bool) -> None:
    sides, count = 8, 12 * 64
    store = MemoryStore()
    group = zstore.create_group(store)
    stated = {"grid_mapping_name": "healpix", "refinement_level": 3, "indexing_scheme": scheme}
    group.create_array("crs", data=np.array(0), dimension_names=(), attributes=stated)
    numbers = np.random.default_rng(3).permutation(count)[:300] if is_part else np.arange(count)
    group.create_array(
        "v",
        data=numbers.astype("f4") * 2,
        chunks=100,
        dimension_names=("cell",),
        attributes={"grid_mapping": "crs"},
    )
    if is_part:
        index = {"standard_name": "healpix_index"}
        group.create_array("cell", data=numbers, dimension_names=("cell",), attributes=index)
    application = router(store)
    lon, lat = healpix.pix2ang(sides, np.arange(count), nest=scheme == "nested", lonlat=True)
    for number in range(0, count, 37):
        expected = 2.0 * number if number in numbers else None
        assert value_at(application, lon[number] + 180, lat[number]) == expected, number
    (about,) = get(application, "/collections").document["collections"]
    assert ask(application, f"/collections/{about['id']}/tiles/WebMercatorQuad/0/0/0.png").status == 200


def test_what_healpix_states_has_to_fit() -> None:
    store = MemoryStore()
    group = zstore.create_group(store)
    stated = {"grid_mapping_name": "healpix", "refinement_level": 3, "indexing_scheme": "nested"}
    group.create_array("crs", data=np.array(0), dimension_names=(), attributes=stated)
    group.create_array(
        "v", data=np.zeros(700, "f4"), dimension_names=("cell",), attributes={"grid_mapping": "crs"}
    )
    with pytest.raises(UnsupportedError, match="700 cells of HEALPix along 'cell'; expected 768"):
        router(store)
    group["crs"].attrs["indexing_scheme"] = "zuniq"
    with pytest.raises(
        UnsupportedError, match="indexing_scheme 'zuniq'; expected 0 to 29, and nested or ring"
    ):
        router(store)
    group["crs"].attrs.put({"grid_mapping_name": "healpix", "healpix_nside": 3})
    with pytest.raises(UnsupportedError, match="nested HEALPix of healpix_nside 3; expected a power of two"):
        router(store)
    group["v"].resize(0)
    group["crs"].attrs["healpix_nside"] = 4
    with pytest.raises(UnsupportedError, match="HEALPix without cells"):
        router(store)


def test_without_their_packages_rows_and_columns_are_shown_and_healpix_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(meshes, "find_spec", lambda name: None)
    (about,) = get(router(mesh(*skew(), skew()[0])), "/collections").document["collections"]
    assert about["tiles"] == "pixels" and "scipy, which is not installed" in caplog.text
    group = zstore.create_group(store := MemoryStore())
    stated = {
        "name": "healpix",
        "refinement_level": 0,
        "indexing_scheme": "ring",
        "spatial_dimension": "cell",
    }
    group.create_array("v", data=np.arange(12.0), dimension_names=("cell",), attributes={"dggs": stated})
    with pytest.raises(UnsupportedError, match="found by healpix, which is not installed"):
        router(store)
    monkeypatch.undo()
    assert value_at(router(store), 180 + 45, 80) == 0


def test_an_unstructured_grid_is_refused_by_name() -> None:
    store = MemoryStore()
    group = zstore.create_group(store)
    group.create_array("v", data=np.zeros(50, "f4"), dimension_names=("ncells",))
    for name in ("clon", "clat"):
        group.create_array(name, data=np.zeros(50), dimension_names=("ncells",))
    with pytest.raises(
        UnsupportedError, match="50 cells along 'ncells' have longitudes and latitudes of their own"
    ):
        router(store)


def test_a_rotated_grid_lies_where_its_pole_puts_it() -> None:
    store = MemoryStore()
    group = zstore.create_group(store)
    pole = {
        "grid_mapping_name": "rotated_latitude_longitude",
        "grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0,
    }  # fmt: skip
    group.create_array("pole", data=np.array(0), dimension_names=(), attributes=pole)
    places = {"rlat": np.linspace(-20, 20, 41), "rlon": np.linspace(-25, 25, 51)}
    for name, centres in places.items():
        kind = {"rlat": "grid_latitude", "rlon": "grid_longitude"}[name]
        group.create_array(
            name,
            data=centres,
            dimension_names=(name,),
            attributes={"standard_name": kind, "units": "degrees"},
        )
    values = np.arange(41 * 51, dtype="f4").reshape(41, 51)
    group.create_array(
        "v", data=values, dimension_names=("rlat", "rlon"), attributes={"grid_mapping": "pole"}
    )
    application = router(store)
    # By the rotation of the sphere: around y by the pole's latitude, then around the axis to its longitude.
    y, x = (np.radians(axis) for axis in np.meshgrid(places["rlat"], places["rlon"], indexing="ij"))
    tilt = np.radians(39.25)
    a, b, c = np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)
    east, north = a * np.sin(tilt) - c * np.cos(tilt), a * np.cos(tilt) + c * np.sin(tilt)
    lon, lat = np.degrees(np.arctan2(b, east)) + 18, np.degrees(np.arcsin(north))
    for j, i in ((0, 0), (20, 25), (40, 50), (7, 33), (35, 4)):
        assert value_at(application, lon[j, i] + 180, lat[j, i]) == values[j, i], (j, i)
