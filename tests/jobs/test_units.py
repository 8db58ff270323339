"""Units of every kind of job: in other processes, in any order, twice, by any executor, the same bytes."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.conventions.crs import Crs
from zstore.conventions.model import Affine, GeoModel, Variable
from zstore.conventions.write import render_geo

pytest.importorskip("pyproj")


def put_raster(path: Path) -> None:
    cells = np.random.default_rng(0).integers(1, 5000, (300, 260)).astype("u2")
    affine = Affine(30.0, 0.0, 612840.0, 0.0, -30.0, 6852690.0)
    geo = GeoModel(
        Crs.from_user("EPSG:32622"), affine, cells.shape, variables={"a": Variable(cells.dtype, nodata=0)}
    )
    group = zstore.create_group(path)
    for name, document in render_geo(geo, 3)[0].items():
        if name == "":
            group.attrs.update(document["attributes"])
            continue
        options = {key: document[key] for key in ("attributes", "dimension_names", "fill_value")}
        options |= {"data": cells, "chunks": 32} if name == "a" else {"data": document["data"]}
        group.create_array(name, **options)


def pyramid(source: Path, target: Path, **options: Any) -> None:
    zstore.build_pyramid(source, target, levels=4, chunks=32, memory=600_000, **options)


def shards(source: Path, target: Path, **options: Any) -> None:
    zstore.build_pyramid(
        source, target, levels=3, chunks=32, shards=96, memory=900_000, method="mode", **options
    )


def tiles(source: Path, target: Path, **options: Any) -> None:
    zstore.build_tile_pyramid(source, target, min_zoom=8, tile_length=256, **options)


def update(source: Path, target: Path, **options: Any) -> None:
    zstore.build_pyramid(source, target, levels=3, chunks=32)
    zstore.update_pyramid(target, {"y": slice(10, 200)}, memory=600_000, **options)


def deviation(source: Path, target: Path, **options: Any) -> None:
    zstore.reduce(source / "a", "std", 0, out=target, **options)


def zones(source: Path, target: Path, **options: Any) -> None:
    labels = np.arange(300 * 260).reshape(300, 260) % 7
    zstore.reduce(source / "a", "mean", groups=labels, out=target, **options)


def recoded(source: Path, target: Path, **options: Any) -> None:
    zstore.convert(source / "a", target, chunks=(300, 20), memory=200_000, check=True, **options)


def moved(source: Path, target: Path, **options: Any) -> None:
    zstore.convert(source, target, chunk_key_encoding="v2", **options)


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job for job in (pyramid, shards, tiles, update, deviation, zones, recoded, moved)
}


def twice(packed: bytes) -> Any:
    """What a function and its arguments come to, the second time."""
    function, *arguments = pickle.loads(packed)
    function(*arguments)
    return function(*arguments)


class Disordered(Executor):
    """Makes each unit twice, in another process, whichever of those that wait comes to hand."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._threads = ThreadPoolExecutor(2)
        self._waiting: list[tuple[Future[Any], bytes]] = []
        self._lock, self._chance = threading.Lock(), random.Random(3)
        self.sizes: list[int] = []

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future, packed = Future[Any](), pickle.dumps((function, *arguments))
        self.sizes.append(len(packed))
        with self._lock:
            self._waiting.append((future, packed))
        self._threads.submit(self._make_one)
        return future

    def _make_one(self) -> None:
        with self._lock:
            future, packed = self._waiting.pop(self._chance.randrange(len(self._waiting)))
        try:
            future.set_result(self._pool.submit(twice, packed).result())
        except BaseException as error:
            future.set_exception(error)

    def shutdown(self, *given: Any, **named: Any) -> None:
        self._threads.shutdown()


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as made, distributed.Client(made) as client:
        yield client


def files_of(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


@pytest.mark.parametrize("name", JOBS)
def test_units_come_out_the_same_wherever_whenever_and_however_often(
    name: str, tmp_path: Path, processes: ProcessPoolExecutor, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("UNIT_SIZE", "BOX_SIZE", "PATCH_SIZE"):
        monkeypatch.setattr(f"zstore.reduction.plan.{limit}", 1 << 11)
    monkeypatch.setattr("zstore.upkeep.rechunk.COPY_COUNT", 5)
    for cost in ("FILE", "STRETCH", "UNIT"):
        monkeypatch.setattr(f"zstore.upkeep.rechunk_plan.{cost}", 10.0)
    put_raster(tmp_path / "s")
    target = tmp_path / "t"
    JOBS[name](tmp_path / "s", target)
    expected = files_of(target)
    with Disordered(processes) as disordered, ThreadPoolExecutor(2) as threads:
        for executor in (disordered, threads, cluster):
            target.rename(tmp_path / f"before {executor!r:.9}".replace("<", ""))
            JOBS[name](tmp_path / "s", target, executor=executor)
            assert files_of(target) == expected
        assert len(disordered.sizes) > 3, "there are several units"
        if name != "zones":
            assert max(disordered.sizes) < 20_000, "what travels is small"
