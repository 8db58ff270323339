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
from zstore.conventions.model import GeoModel
from zstore.conventions.read import read_geo

pyproj = pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")

from . import hard  # noqa: E402
from .written import UNSAID, WRITERS, Truth, days  # noqa: E402

# What these tools and their dependencies say of each other.
pytestmark = pytest.mark.filterwarnings("ignore")

FACTS = ("CRS", "affine", "nodata", "time", "levels")
# What is read wrong: (writer, fact) and why. A test that passes all the same fails, so the list stays true.
FAULTS: dict[tuple[str, str], str] = {
    ("odc-geo", "nodata"): "an attribute `nodata` is not read",
    ("0–360", "CRS"): "latitudes and longitudes alone are no CRS84",
    ("Gaussian", "CRS"): "latitudes and longitudes alone are no CRS84",
}
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


def parameters(names: dict[str, tuple[int, ...]]) -> list[Any]:
    return [
        pytest.param(
            name, version, fact, id=f"{name}, v{version}, {fact}",
            marks=[
                pytest.mark.xfail(reason=reason, strict=True)
                for reason in [FAULTS.get((name, fact))] if reason
            ],
        )
        for name, versions in names.items() for version in versions for fact in FACTS
    ]  # fmt: skip


def judge(rows: list[tuple[Truth, GeoModel]], fact: str, cells: dict[str, set[str]]) -> None:
    wrong = [
        f"{truth.path.name}: {found}"
        for truth, geo in rows
        if not is_left_open(fact, truth) and (found := difference(fact, truth, geo)) is not None
    ]
    said = any(is_said(fact, truth) for truth, _ in rows)
    cells.setdefault(fact, set()).add("wrong" if wrong else "right" if said else "–")
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "zarr_format", "fact"), parameters({name: row[1] for name, row in WRITERS.items()})
)
def test_a_writers_stores(foreign, outcome, name, zarr_format, fact) -> None:
    rows = foreign(name, zarr_format)
    cells = outcome.setdefault(name, {})
    cells.setdefault("formats", set()).add(f"v{zarr_format}")
    judge(rows, fact, cells)


@pytest.mark.parametrize(("name", "zarr_format", "fact"), parameters(dict.fromkeys(hard.CASES, (2, 3))))
def test_a_hard_case(foreign, outcome, name, zarr_format, fact) -> None:
    judge(foreign(name, zarr_format), fact, outcome.setdefault(name, {}))


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
        "writers": ("writer", "version", "formats", [name for name in WRITERS if name in found]),
        "hard cases": ("case", None, None, [name for name in hard.CASES if name in found]),
    }
    for mark, (head, version, formats, names) in heads.items():
        extra = [word for word in (version, formats) if word]
        lines = [[head, *extra, *FACTS]]
        for name in names:
            cells = ["/".join(sorted(found[name].get(fact, {"not run"}))) for fact in FACTS]
            told = [version_of(name), ", ".join(sorted(found[name].get("formats", set())))] if extra else []
            lines.append([name, *told, *cells])
        rows = ["| " + " | ".join(line) + " |" for line in lines]
        rows.insert(1, "|" + "---|" * len(lines[0]))
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(begin)
        assert rest, f"{document} has no {begin!r}"
        text = before + begin + "\n".join(rows) + "\n" + end + rest.partition(end)[2]
    document.write_text(text)
