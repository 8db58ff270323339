"""What other tools write is read as they mean it: CRS, affine, nodata, time and levels, by their own words.

`make writers` installs the tools, runs these tests, and writes the tables of docs/conventions.md from what
they found.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import GeoModel
from zstore.geo.conventions.read import read_geo
from zstore.geo.rasters.geotiff import zarr_to_raster

pyproj = pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")

from . import hard  # noqa: E402
from .written import UNSAID, WRITERS, Truth, days  # noqa: E402

# What these tools and their dependencies say of each other.
pytestmark = pytest.mark.filterwarnings("ignore")

FACTS = ("CRS", "affine", "nodata", "time", "levels")
# What is wrong: (writer or case, fact or "raster" or "tiles") and why. A test that passes all the same fails,
# so that the list stays true.
FAULTS: dict[tuple[str, str], str] = {}
# The rules that writers break, so that readers go wrong: ndpyramid leaves the finest level's GeoTransform on
# all levels, eopf-geozarr makes coarser levels of another type and nodata, whose coordinates are half a cell
# off, and GDAL writes fill values that zarr-python refuses.
ERRORS = {
    "ndpyramid": {"MS-28"}, "eopf-geozarr": {"GZ-22", "GZ-29", "GZ-33"}, "GDAL, multidimensional": {"ZS-08"},
}  # fmt: skip
# The profile that is found for what each writes; None: several texts' or none's.
FITTING = {
    "topozarr": "geozarr-1.0", "eopf-geozarr": "geozarr-1.0", "ome-zarr-py": "ome", "GDAL": "gdal",
    "GDAL, multidimensional": "gdal", "gdalmdimtranslate": "gdal",
}  # fmt: skip
# What each row of the tables is made with.
PACKAGES = {
    "rioxarray": "rioxarray", "odc-geo": "odc-geo", "cf-xarray": "cf-xarray", "ndpyramid": "ndpyramid",
    "topozarr": "topozarr", "eopf-geozarr": "eopf-geozarr", "ome-zarr-py": "ome-zarr", "satpy": "satpy",
    "netCDF4": "netCDF4",
}  # fmt: skip


def is_same_crs(found: Any, truth: Any) -> bool:
    """Whether PROJ finds the same places; a CRS without a name of its own is no other CRS."""
    if found is None or truth is None:
        return found is truth
    one, other = pyproj.CRS.from_wkt(found.wkt), pyproj.CRS.from_user_input(truth)
    if one.equals(other, ignore_axis_order=True):
        return True
    if one.ellipsoid.semi_major_metre != other.ellipsoid.semi_major_metre:
        return False
    places = pyproj.Transformer.from_crs(one.geodetic_crs, one, always_xy=True)
    others = pyproj.Transformer.from_crs(other.geodetic_crs, other, always_xy=True)
    area = one.area_of_use or other.area_of_use
    west, south, east, north = area.bounds if area else (-80.0, -30.0, 60.0, 60.0)
    grid = np.meshgrid(np.linspace(west, east, 7), np.linspace(south, north, 7))
    return np.allclose(
        places.transform(*grid), others.transform(*grid), rtol=1e-12, atol=1e-6, equal_nan=True
    )


def is_same_affine(found: Any, truth: Any) -> bool:
    if found is None or truth is None:
        return found is None and truth is None
    # To a thousandth of a cell, over the whole grid.
    return np.allclose(found, truth, rtol=1e-9, atol=1e-3 * abs(truth[0]))


def difference(fact: str, truth: Truth, geo: GeoModel) -> str | None:
    """What is read otherwise than it was meant; None where it is right."""
    variable = geo.variables.get(truth.variable)
    if fact == "CRS":
        return None if is_same_crs(geo.crs, truth.crs) else f"{geo.crs} for {truth.crs}"
    if fact == "affine":
        same = is_same_affine(geo.affine, truth.affine) and geo.shape == truth.shape
        return None if same else f"{geo.affine}, {geo.shape} for {truth.affine}, {truth.shape}"
    if fact == "nodata":
        if variable is None:
            return f"no {truth.variable!r} among {sorted(geo.variables)}"
        same = repr(float_of(variable.nodata)) == repr(float_of(truth.nodata))
        return None if same else f"{variable.nodata} for {truth.nodata}"
    if fact == "time":
        found = None if geo.time is None else days(geo.time.dates())
        return None if found == truth.times else f"{found} for {truth.times}"
    levels = [(level.path, level.shape) for level in geo.levels]
    same = levels == [row[:2] for row in truth.levels] and all(
        is_same_affine(level.affine, row[2]) for level, row in zip(geo.levels, truth.levels, strict=True)
    )
    return None if same else f"{geo.levels} for {truth.levels}"


def float_of(value: Any) -> float | None:
    return None if value is None else float(value)


def is_said(fact: str, truth: Truth) -> bool:
    said = (truth.crs, truth.affine, truth.nodata, truth.times, truth.levels)[FACTS.index(fact)]
    return said is not None and said != () and said != UNSAID


def is_left_open(fact: str, truth: Truth) -> bool:
    return (fact == "nodata" and truth.nodata == UNSAID) or (fact == "CRS" and truth.crs == UNSAID)


def read(truth: Truth) -> GeoModel:
    return read_geo(zstore.open_group(truth.path, truth.node, mode="r"))[0]


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[tuple[Truth, GeoModel]]]:
    """The stores of a writer or of a hard case, written once, and what is read in each."""

    @functools.cache
    def made(name: str, zarr_format: int) -> list[tuple[Truth, GeoModel]]:
        place = tmp_path_factory.mktemp("foreign")
        if name in WRITERS:
            rows = list(WRITERS[name][0](place, zarr_format))
        else:
            rows = list(hard.write(name, place, zarr_format))
        return [(truth, read(truth)) for truth in rows]

    return made


Outcome = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="session")
def outcome() -> Iterator[Outcome]:
    """What every test found, by row and fact; the documents' tables are made of it."""
    found: Outcome = {}
    yield found
    document = os.environ.get("ZSTORE_TABLES")
    if document:
        write_tables(Path(document), found)


def judge(name: str, rows: list[tuple[Truth, GeoModel]], cells: dict[str, set[str]]) -> None:
    """What is wrong is what FAULTS tells, no more and no less."""
    wrong: dict[str, list[str]] = {}
    for fact in FACTS:
        for truth, geo in rows:
            found = None if is_left_open(fact, truth) else difference(fact, truth, geo)
            if found is not None:
                wrong.setdefault(fact, []).append(f"{truth.path.name}: {found}")
        said = any(is_said(fact, truth) for truth, _ in rows)
        cells.setdefault(fact, set()).add("wrong" if fact in wrong else "right" if said else "–")
    known = {fact: reason for (row, fact), reason in FAULTS.items() if row == name and fact in FACTS}
    assert wrong.keys() == known.keys(), wrong
    if known:
        pytest.xfail("; ".join(f"{fact}: {reason}" for fact, reason in known.items()))


@pytest.mark.parametrize(
    ("name", "zarr_format"),
    [
        pytest.param(name, version, id=f"{name}, v{version}")
        for name, row in WRITERS.items()
        for version in row[1]
    ],
)
def test_a_writers_stores(foreign, outcome, name, zarr_format) -> None:
    rows = foreign(name, zarr_format)
    cells = outcome.setdefault(name, {})
    cells.setdefault("formats", set()).add(f"v{zarr_format}")
    judge(name, rows, cells)


@pytest.mark.parametrize(
    ("name", "zarr_format"),
    [
        *(pytest.param(name, v, id=f"{name}, v{v}") for name, row in WRITERS.items() for v in row[1]),
        *(pytest.param(name, 3, id=name) for name in hard.CASES),
    ],
)
def test_only_what_misleads_readers_is_an_error(foreign, name, zarr_format) -> None:
    """By the rules of all texts, and by those of the one text that the writer follows, where there is one."""
    for truth, _ in foreign(name, zarr_format):
        group = zstore.open_group(truth.path, truth.node, mode="r")
        for profile in (None, "auto"):
            verdict = zstore.validate(group, profile)
            found = {(f.rule, f.path, f.message) for f in verdict.findings if f.severity == "error"}
            assert {rule for rule, *_ in found} <= ERRORS.get(name, set()), found
        if name in WRITERS:
            assert verdict.profile == FITTING.get(name)


EVERY_CASE = [
    pytest.param(name, version, id=f"{name}, v{version}") for name in hard.CASES for version in (2, 3)
]


@pytest.mark.parametrize(("name", "zarr_format"), EVERY_CASE)
def test_a_hard_case(foreign, outcome, name, zarr_format) -> None:
    judge(name, foreign(name, zarr_format), outcome.setdefault(name, {}))


def some_cells(truth: Truth) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and columns of cells, and the longitude and latitude of their centres by PROJ, off the poles."""
    rows, columns = (found.ravel() for found in np.mgrid[1 : truth.shape[0] : 9, 2 : truth.shape[1] : 7])
    a, b, c, d, e, f = truth.affine
    x, y = a * (columns + 0.5) + b * (rows + 0.5) + c, d * (columns + 0.5) + e * (rows + 0.5) + f
    to_degrees = pyproj.Transformer.from_crs(truth.crs, "OGC:CRS84", always_xy=True)
    lon, lat = to_degrees.transform(x, y)
    there = np.isfinite(lon) & np.isfinite(lat) & (np.abs(lat) < 84)
    assert there.sum() > 20
    return rows[there], columns[there], lon[there], lat[there]


def placed(what: str) -> list[Any]:
    """The cases that have an affine."""
    return [
        pytest.param(name, marks=[pytest.mark.xfail(reason=reason, strict=True)] if reason else [])
        for name in hard.CASES if name not in ("Gaussian", "swath")
        for reason in [FAULTS.get((name, what))]
    ]  # fmt: skip


@pytest.mark.parametrize("name", placed("raster"))
def test_a_hard_case_becomes_a_raster(foreign, outcome, name, tmp_path) -> None:
    """The value at a place on Earth is that of the cell which lies there."""
    rasterio = pytest.importorskip("rasterio", reason="rasterio is the reader")
    cells = outcome.setdefault(name, {})
    cells["raster"] = {"wrong"}
    truth, _ = foreign(name, 3)[0]
    zarr_to_raster(truth.path, tmp_path / "a.tif", arrays=[truth.variable])
    rows, columns, lon, lat = some_cells(truth)
    with rasterio.open(tmp_path / "a.tif") as raster:
        to_raster = pyproj.Transformer.from_crs("OGC:CRS84", raster.crs.to_wkt(), always_xy=True)
        places = np.column_stack(to_raster.transform(lon, lat))
        found = [int(value[0]) for value in raster.sample(places.tolist())]
    np.testing.assert_array_equal(found, hard.values()[rows, columns])
    cells["raster"] = {"right"}


@pytest.mark.parametrize("name", placed("tiles"))
def test_a_hard_case_becomes_tiles(foreign, outcome, name, tmp_path) -> None:
    """As the raster does, on cells of Web Mercator smaller than its own."""
    cells = outcome.setdefault(name, {})
    cells["tiles"] = {"wrong"}
    truth, _ = foreign(name, 3)[0]
    rows, columns, lon, lat = some_cells(truth)
    cell = abs(truth.affine[0]) * (
        111320.0 if pyproj.CRS(truth.crs).axis_info[0].unit_name == "degree" else 1.0
    )
    zoom = int(np.ceil(np.log2(2 * 156543.0 / cell)))
    root = zstore.build_tile_pyramid(
        truth.path,
        tmp_path / "tiles.zarr",
        max_zoom=zoom,
        min_zoom=zoom,
        sampling="nearest",
        tolerance=0,
        nodata=0,
    )
    (level,) = read_geo(root)[0].levels
    to_tiles = pyproj.Transformer.from_crs("OGC:CRS84", "EPSG:3857", always_xy=True)
    easting, northing = to_tiles.transform((lon + 180) % 360 - 180, lat)
    a, _, c, _, e, f = level.affine
    array = root[f"{level.path}/{truth.variable}"]
    lines, samples = np.floor((northing - f) / e).astype(int), np.floor((easting - c) / a).astype(int)
    names = array.model.dimension_names
    y, x = (names.index(name) for name in read_geo(root)[0].dimensions)
    # A case may have its dimensions in another order, and a dimension of time before them.
    places = [np.zeros_like(lines)] * array.ndim
    places[y], places[x] = lines, samples
    found = [int(array[tuple(int(n) for n in place)]) for place in zip(*places, strict=True)]
    np.testing.assert_array_equal(found, hard.values()[rows, columns])
    cells["tiles"] = {"right"}


def version_of(name: str) -> str:
    if name in PACKAGES:
        return importlib.metadata.version(PACKAGES[name])
    if name.startswith("GDAL"):
        import rasterio

        return str(rasterio.__gdal_version__)
    words = [shutil.which(name) or name, *(["--version"] if name.startswith("gdal") else [])]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", said.stdout + said.stderr)
    return found.group() if found else ""


def write_tables(document: Path, found: Outcome) -> None:
    """The rows between the marks of `document`, anew; a writer that was not there keeps no row."""
    text = document.read_text()
    heads = {
        "writers": (["writer", "version", "formats", *FACTS], WRITERS),
        "hard cases": (["case", *FACTS, "raster", "tiles"], hard.CASES),
    }
    for mark, (head, names) in heads.items():
        lines = [head]
        for name in names:
            if name in found:
                cells = {**found[name], "version": {version_of(name) if name in WRITERS else ""}}
                lines.append([name, *(", ".join(sorted(cells.get(word, {"–"}))) for word in head[1:])])
        rows = ["| " + " | ".join(line) + " |" for line in lines]
        rows.insert(1, "|" + "---|" * len(lines[0]))
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(begin)
        assert rest, f"{document} has no {begin!r}"
        text = before + begin + "\n".join(rows) + "\n" + end + rest.partition(end)[2]
    document.write_text(text)
