"""Stores with one statement changed, as other programs read them: who is misled is told by `validate`.

rioxarray, GDAL, rio-tiler and OpenLayers say where a good store lies, and where each changed one does.
Another answer than before has to be a warning or an error of validation; none at all, at least a note.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from zstore.geo.conventions.crs import Crs

from ..validation.mutations import SOLE, STORES, Mutation, before, mutations, name_of, see, shown, stored
from .written import in_openlayers, serving

pytestmark = pytest.mark.filterwarnings("ignore")
# By path of a grid, or "" for the whole store, and by fact.
Answers = dict[tuple[str, str], str]
# Two names of the meridian at 0 degrees: nothing lies elsewhere.
HARMLESS = {("CF v3", "prime_meridian_name")}


def grids(values: Mapping[str, bytes]) -> list[str]:
    """The paths of the arrays of two dimensions."""
    documents = [key for key in sorted(values) if key.endswith(("zarr.json", ".zarray"))]
    return [key.rpartition("/")[0] for key in documents if len(json.loads(values[key]).get("shape", ())) == 2]


def lay(values: Mapping[str, bytes], folder: Path) -> Path:
    """A folder with a file for each key."""
    for key, value in values.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(value)
    return folder


def crs_of(theirs: Any) -> str:
    return name_of(Crs.from_user(theirs.to_wkt())) if theirs else ""


def by_rioxarray(store: Path, path: str) -> dict[str, str]:
    import rioxarray  # noqa: F401
    import xarray

    group, _, name = path.rpartition("/")
    with xarray.open_zarr(store, group=group or None, consolidated=False, decode_coords="all") as opened:
        data = opened[name].rio
        affine, lines = (shown(tuple(data.transform(recalc=recalc))[:6]) for recalc in (False, True))
        said = {"CRS": crs_of(data.crs), "affine": affine, "coordinates": lines}
        return said | {"axes": f"{data.y_dim}, {data.x_dim}"}


def by_gdal(store: Path, path: str) -> dict[str, str]:
    import rasterio

    with rasterio.open(f'ZARR:"{store}":/{path}') as raster:
        affine = "" if raster.transform.is_identity else shown(tuple(raster.transform)[:6])
        return {"CRS": crs_of(raster.crs), "affine": affine}


def by_rio_tiler(store: Path, _: str) -> dict[str, str]:
    import zarr
    from rio_tiler.experimental.zarr import GroupReader

    opened = GroupReader(input=zarr.open_group(store, mode="r", use_consolidated=False))
    group = opened.get_group_metadata()
    bounds = tuple(map(float, opened.bounds))
    # Of a store without a place it says the whole world.
    is_placed = group["bbox"] is not None or bounds != (-180.0, -90.0, 180.0, 90.0)
    said = {"CRS": crs_of(group["crs"]), "bounds": shown(bounds) if is_placed else ""}
    for arrays in group["arrays"].values():
        for array in arrays:
            name = array["array"].path
            said[f"CRS of {name}"] = crs_of(array["crs"])
            said[f"affine of {name}"] = shown(tuple(array["transform"])[:6])
    return said


def each(read: Callable[[Path, str], dict[str, str]], store: Path, paths: list[str]) -> Answers:
    """What a reader says of each path; nothing of those where it gives up."""
    said: Answers = {}
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                said |= {(path, fact): answer for fact, answer in read(store, path).items() if answer}
            except Exception:
                # Each reader gives up in its own way.
                continue
    return said


def ask(reader: str, stores: list[Path], values: Mapping[str, bytes]) -> list[Answers]:
    """What a reader says of each store, all of which have the same arrays."""
    paths = grids(values)
    if reader == "OpenLayers":
        band = paths[0].rpartition("/")[2]
        with serving(stores[0].parent) as url:
            found = in_openlayers([f"{url}/{store.name}#{band}" for store in stores])
        facts = ("crs", "extent", "resolutions", "matrices")
        return [{("", fact): repr(one[fact]) for fact in facts if one.get(fact)} for one in found]
    read = {"rioxarray": by_rioxarray, "GDAL": by_gdal, "rio-tiler": by_rio_tiler}[reader]
    return [each(read, store, [""] if reader == "rio-tiler" else paths) for store in stores]


NEEDS = {"rioxarray": "rioxarray", "GDAL": "rasterio", "rio-tiler": "rio_tiler.experimental.zarr"}
READERS = [*NEEDS, "OpenLayers"]


def misses(reader: str, name: str, some: list[Mutation], folder: Path) -> list[tuple[Mutation, list[str]]]:
    """The changes that mislead a reader and that validation does not report, with the facts in question."""
    checked = [one for one in some if (name, one.place[-1]) not in SOLE | HARMLESS]
    values, good = stored(name), before(name)
    changed = [one.apply(values) for one in checked]
    stores = [lay(values, folder / "good")] + [
        lay({key: bytes(store.get(key) or b"") for key in store.list()}, folder / str(number))
        for number, store in enumerate(changed)
    ]
    first, *others = ask(reader, stores, values)
    if not first:
        pytest.skip(f"{reader} says nothing of the good store")
    found = []
    for mutation, store, answers in zip(checked, changed, others, strict=True):
        lost = [" ".join(fact) for fact in first if fact not in answers]
        wrong = [" ".join(fact) for fact in first if answers.get(fact, first[fact]) != first[fact]]
        if lost or wrong:
            seen = see(store)
            warned = seen.findings - good.findings
            if not (warned if wrong else warned | (seen.notes - good.notes)):
                found.append((mutation, wrong + lost))
    return found


@pytest.fixture
def reader(request: pytest.FixtureRequest) -> str:
    if request.param in NEEDS:
        pytest.importorskip(NEEDS[request.param], reason=f"{request.param} is the reader")
    return str(request.param)


@pytest.mark.parametrize("reader", READERS, indirect=True)
@pytest.mark.parametrize("name", STORES)
def test_who_is_misled_is_told(name: str, reader: str, tmp_path: Path) -> None:
    some = random.Random(f"{name}, {reader}").sample(list(mutations(name)), 12)
    assert misses(reader, name, some, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, indirect=True)
@pytest.mark.parametrize("name", STORES)
def test_whoever_is_misled_is_told(name: str, reader: str, tmp_path: Path) -> None:
    assert misses(reader, name, list(mutations(name)), tmp_path) == []
