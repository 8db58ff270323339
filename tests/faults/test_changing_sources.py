"""Sources that are written to while they are read, or later: ChangedError, or a result of one state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.intents import find_unfinished
from zstore.errors import ChangedError, NotFoundError
from zstore.jobs import runner
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

from ..storage.bucket_server import BucketServer

SHAPE, CHUNK = (256, 256), 64
GEO = {
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [10.0, 0.0, 500_000.0, 0.0, -10.0, 5_000_000.0],
    "proj:code": "EPSG:32632",
}


def cells(state: int) -> np.ndarray[Any, Any]:
    """All cells of the source in one of its states."""
    return np.arange(SHAPE[0] * SHAPE[1], dtype="u4").reshape(SHAPE) % 1000 + 1 + 10_000 * state


@dataclass
class Site:
    """Where a job reads and writes."""

    folder: Path
    source: Store
    target: Store
    files: dict[str, Path] = field(default_factory=dict)

    def put(self, state: int) -> None:
        """Bring the source into a state."""
        try:
            zstore.open_array(self.source, "v")[...] = cells(state)
        except NotFoundError:
            group = zstore.create_group(self.source, attributes=GEO)
            group.create_array("v", data=cells(state), chunks=CHUNK, dimension_names=["y", "x"])

    def put_raster(self, state: int) -> None:
        rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed (extra 'raster')")
        place = {"crs": "EPSG:32632", "transform": rasterio.Affine(*GEO["spatial:transform"])}
        options = {"driver": "GTiff", "dtype": "uint32", "nodata": 0, "tiled": True, **place}
        size = {"height": SHAPE[0], "width": SHAPE[1], "blockxsize": 64, "blockysize": 64, "count": 1}
        with rasterio.open(self.folder / "new.tif", "w", **options, **size) as made:
            made.write(cells(state), 1)
        (self.folder / "new.tif").replace(self.folder / "s.tif")

    def put_netcdf(self, state: int) -> None:
        library = pytest.importorskip("h5netcdf.legacyapi", reason="h5netcdf is not installed")
        with library.Dataset(self.folder / "new.nc", "w") as made:
            for name, length in zip("yx", SHAPE, strict=True):
                made.createDimension(name, length)
            made.createVariable("v", "i4", ("y", "x"), chunksizes=(64, 64))[:] = cells(state).astype("i4")
        (self.folder / "new.nc").replace(self.folder / "s.nc")


def rasters(site: Site, **how: Any) -> None:
    from zstore.geo.rasters import raster_to_zarr

    raster_to_zarr(site.folder / "s.tif", site.target, levels=0, chunks=64, **how)


def netcdf(site: Site, **how: Any) -> None:
    from zstore.geo.rasters import netcdf_to_zarr

    netcdf_to_zarr(site.folder / "s.nc", site.target, chunks=64, **how)


def exports(site: Site, **how: Any) -> None:
    export = pytest.importorskip("zstore_serve.export", reason="zstore-serve is not installed").export
    words = {name: word for name, word in how.items() if name != "memory"}
    export(site.source, site.folder / "tiles", query="rescale=0,30000", zooms=(12, 14), **words)


def updates(site: Site, **how: Any) -> None:
    group = zstore.open_group(site.source)
    try:
        zstore.open_group(site.target)
    except NotFoundError:
        zstore.build_pyramid(group, site.target, levels=2, memory=400_000)
    region = {"y": slice(0, 256), "x": slice(0, 256)}
    words = {name: word for name, word in how.items() if name != "overwrite"}
    zstore.update_pyramid(site.target, region, source=group, **words)


def values(site: Site) -> dict[str, Any]:
    """All chunks of the target, by their keys."""
    zstore.open(site.target, mode="r")
    keys = (key for key in site.target.list("") if "c" in key.split("/"))
    return {key: bytes(site.target.get(key) or b"") for key in keys}


def tiles(site: Site) -> dict[str, Any]:
    folder = site.folder / "tiles"
    if not folder.is_dir():
        raise NotFoundError("no tiles")
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*.png")}


@dataclass
class Kind:
    """A job: how it is carried out, how its source is put into a state, and what there is in the end."""

    run: Callable[..., Any]
    put: Callable[[Site, int], None] = Site.put
    read: Callable[[Site], dict[str, Any]] = values
    again: dict[str, Any] = field(default_factory=lambda: {"overwrite": True})
    hides: bool = True


RECHUNKED: dict[str, Any] = {"chunks": (256, 8), "memory": 230_000}
KINDS = {
    "copy": Kind(lambda s, **how: zstore.copy(s.source, s.target, **how), again={"resume": True}),
    "convert": Kind(lambda s, **how: zstore.convert(s.source, s.target, **how)),
    "recode": Kind(
        lambda s, **how: zstore.convert(s.source, s.target, compressors=None, memory=310_000, **how)
    ),
    "rechunk": Kind(lambda s, **how: zstore.convert(s.source, s.target, **RECHUNKED, **how)),
    "reduce": Kind(
        lambda s, **how: zstore.reduce(zstore.open_array(s.source, "v"), "sum", 0, out=s.target, **how)
    ),
    "pyramid": Kind(
        lambda s, **how: zstore.build_pyramid(
            zstore.open_group(s.source), s.target, levels=2, memory=400_000, **how
        )
    ),
    "tile pyramid": Kind(
        lambda s, **how: zstore.build_tile_pyramid(
            zstore.open_group(s.source), s.target, min_zoom=12, max_zoom=14, nodata=0, **how
        )
    ),
    "update": Kind(updates, again={}, hides=False),
    "raster": Kind(rasters, Site.put_raster),
    "netcdf": Kind(netcdf, Site.put_netcdf),
    "export": Kind(exports, read=tiles),
}
# So that small sources have many units.
SMALL = {
    "zstore.jobs.upkeep.rechunk.WINDOWS_SIZE": 0,
    "zstore.base.boxes.BLOCK_SIZE": 16_000,
    "zstore.geo.rasters.files.WINDOW_SIZE": 64 << 8,
    "zstore.jobs.upkeep.copy.UNIT_COUNT": 3,
    "zstore.jobs.upkeep.rechunk.COPY_COUNT": 3,
    "zstore.jobs.reduction.plan.UNIT_SIZE": 1 << 14,
    "zstore.jobs.reduction.plan.BOX_SIZE": 1 << 13,
    "zstore.jobs.reduction.plan.PATCH_SIZE": 1 << 13,
    "zstore.jobs.reduction.plan.PATCH_LIMIT": 1 << 14,
}
MOMENTS = ("before", "midway", "after", "finished")


@pytest.fixture(params=["directory", pytest.param("bucket", marks=pytest.mark.slow)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        if request.param == "bucket":
            pytest.importorskip("obstore", reason="obstore is not installed")
            known = stack.enter_context(BucketServer()).options()
            source, target = (open_store(f"s3://b/{n}", storage_options=known) for n in ("s", "t"))
        else:
            source, target = open_store(tmp_path / "s"), open_store(tmp_path / "t")
        (tmp_path / "files").mkdir()
        yield Site(tmp_path / "files", source, target)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], tuple[dict[str, Any], int]]:
    """Gives what a job makes of a source in one state, and of how many units: the same at every moment."""

    @cache
    def carried_out(name: str, state: int) -> tuple[dict[str, Any], int]:
        kind, count, make = KINDS[name], Counter[str](), runner._make
        one = Site(tmp_path_factory.mktemp("expected"), MemoryStore(), MemoryStore())

        def counted(sent: Any, unit: Any) -> Any:
            count["units"] += 1
            return make(sent, unit)

        kind.put(one, state)
        if name == "update":
            kind.run(one)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runner, "_make", counted)
            kind.run(one)
        return kind.read(one), count["units"]

    return carried_out


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", KINDS)
def test_what_is_made_is_of_one_state(name, moment, site, expected, monkeypatch):
    kind = KINDS[name]
    for place, size in SMALL.items():
        monkeypatch.setattr(place, size)
    old, count = expected(name, 1)
    new, _ = expected(name, 2)
    assert count > 1 and old != new
    kind.put(site, 1)
    if name == "update":
        # Its levels are of an older state; what is updated is all of it.
        kind.run(site)
    if moment == "finished":
        kind.run(site, resume=True)
        assert kind.read(site) == old
        kind.put(site, 2)
        try:
            kind.run(site, resume=True)
        except ChangedError:
            assert kind.read(site) == old
            kind.run(site, **kind.again)
        assert kind.read(site) == new
        return
    make, done = runner._make, Counter[str]()

    def changing(sent: Any, unit: Any) -> Any:
        number = done["units"]
        done["units"] += 1
        if number == {"before": 0, "midway": count // 2}.get(moment):
            kind.put(site, 2)
        made = make(sent, unit)
        if moment == "after" and number == count - 1:
            kind.put(site, 2)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_make", changing)
        with pytest.raises(ChangedError):
            kind.run(site)
        assert done["units"] > 0
    if kind.hides:
        with pytest.raises(NotFoundError):
            kind.read(site)
    elif name == "update":
        assert find_unfinished(site.target, "")
    kind.run(site, **kind.again)
    assert kind.read(site) == new
