"""Sources that are written to while pyramids are built or updated: ChangedError, never a mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError, NotFoundError, StoreError
from zstore.geo.pyramid import build as pyramids
from zstore.jobs import runner
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

SHAPE = (512, 512)
GEO = {"spatial:dimensions": ["y", "x"], "spatial:transform": [10.0, 0.0, 0.0, 0.0, -10.0, 0.0]}


def cells(value: int) -> np.ndarray:
    return np.full(SHAPE, value, "u2")


def build(source: zstore.Group, target: Store, **options: Any) -> None:
    zstore.build_pyramid(source, target, levels=2, memory=400_000, **options)


def build_beside(source: zstore.Group, target: Store, **options: Any) -> None:
    root = zstore.open_group(source.store, mode="r+")
    zstore.build_pyramid(root["s"], root, levels=2, memory=400_000, **options)


def build_tiles(source: zstore.Group, target: Store, **options: Any) -> None:
    zstore.build_tile_pyramid(source, target, min_zoom=13, max_zoom=15, nodata=0, memory=4_600_000, **options)


def update(source: zstore.Group, target: Store, **options: Any) -> None:
    region = {"y": slice(0, 512), "x": slice(0, 512)}
    zstore.update_pyramid(target, region, source=source, memory=400_000, **options)


def make_source(store: Any) -> zstore.Group:
    group = zstore.create_group(store).create_group("s", attributes={**GEO, "proj:code": "EPSG:3857"})
    group.create_array("v", data=cells(1), chunks=(64, 64), dimension_names=["y", "x"])
    return group


JOBS: dict[str, Callable[..., None]] = {
    "pyramid": build, "levels beside": build_beside, "tiles": build_tiles, "update": update,
}  # fmt: skip
FINISHED = {"levels beside": "1/v", "tiles": "15/v"}


@pytest.fixture(params=["directory", "memory"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    if request.param == "memory":
        yield MemoryStore(), MemoryStore()
    else:
        yield str(tmp_path / "s"), str(tmp_path / "t")


@pytest.mark.parametrize("moment", [0, 3, "end", "resume"])
@pytest.mark.parametrize("kind", JOBS)
def test_a_source_that_changes_meanwhile_is_an_error(kind, moment, stores, monkeypatch):
    source, target = make_source(stores[0]), open_store(stores[1])
    if kind == "update":
        build(source, target)
        source["v"][...] = cells(2)
    carry_out, done, job = runner._make, [], JOBS[kind]
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)

    def make_one(sent: object, unit: object) -> object:
        if len(done) == moment:
            source["v"][256:] = cells(9)[256:]
        if moment == "resume" and len(done) == 2:
            raise StoreError("the network is down")
        done.append(unit)
        return carry_out(sent, unit)

    def run_step(*args: Any, **options: Any) -> None:
        finish(*args, **options)
        if moment == "end":
            source["v"][256:] = cells(9)[256:]

    finish = pyramids.run_step
    monkeypatch.setattr(runner, "_make", make_one)
    monkeypatch.setattr(pyramids, "run_step", run_step)
    if moment == "resume":
        with pytest.raises(StoreError, match="the network is down"):
            job(source, target)
        source["v"][256:] = cells(9)[256:]
        moment = None
        with pytest.raises(ChangedError, match=r"written since the job began.*s/v"):
            job(source, target, resume=True)
    else:
        with pytest.raises(ChangedError, match=r"the source changed while it was read.*s/v"):
            job(source, target)
    assert len(done) > 1
    moment = None
    if kind != "update":
        root = source.store if kind == "levels beside" else target
        with pytest.raises(NotFoundError):
            zstore.open_array(root, path=FINISHED.get(kind, "1/v"))
    job(source, target, **({} if kind == "update" else {"overwrite": True}))
    root = source.store if kind == "levels beside" else target
    anew, level = MemoryStore(), f"{FINISHED.get(kind, '1/v')}/c"
    (build_tiles if kind == "tiles" else build)(source, anew)
    made = {key: bytes(root.get(key) or b"") for key in root.list(level)}
    assert made == {key: bytes(anew.get(key) or b"") for key in anew.list(level)} != {}
    assert not zstore.verify(root).unfinished


@pytest.mark.parametrize(
    ("kind", "name"),
    [("pyramid", "band"), ("pyramid", "x"), ("levels beside", "band"), ("tiles", "band"), ("tiles", "x")],
)
def test_arrays_beside_the_data_are_watched_too(kind, name, monkeypatch):
    """Those that are copied to the levels, and the coordinates that say where these lie."""
    source, target, made = make_source(MemoryStore()), MemoryStore(), pyramids.run_step
    del source.attrs["spatial:transform"]
    for dimension in ("x", "y"):
        data = (np.arange(512) + 0.5) * (10.0 if dimension == "x" else -10.0)
        source.create_array(dimension, data=data, dimension_names=[dimension])
    source.create_array("band", data=np.arange(3), dimension_names=["band"])

    def run_step(*args: Any, **options: Any) -> None:
        made(*args, **options)
        source[name][...] = source[name][...] + 10

    monkeypatch.setattr(pyramids, "run_step", run_step)
    with pytest.raises(ChangedError, match=rf"the source changed while it was read.*s/{name}"):
        JOBS[kind](source, target)
    monkeypatch.undo()
    JOBS[kind](source, target, overwrite=True)
