"""Units of every kind of job: in other processes, in parts, in any order, twice, by any executor: alike."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import zstore
from zstore.engine.intents import JOB, find_unfinished
from zstore.errors import MetadataError, StoreError, UnsupportedError
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.jobs import runner
from zstore.jobs.source import MADE
from zstore.jobs.upkeep.rechunk import Transfer
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

from ..storage.bucket_server import BucketServer

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
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
        yield pool


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as made, distributed.Client(made) as client:
        yield client


@pytest.fixture
def cheap_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if files cost next to nothing, so that small arrays go by way of scratch arrays, too."""
    for cost in ("FILE", "STRETCH", "UNIT", "REQUEST"):
        monkeypatch.setattr(f"zstore.jobs.upkeep.rechunk.{cost}", 10.0)
    monkeypatch.setattr("zstore.jobs.upkeep.rechunk.WINDOWS_SIZE", 0)


def files_of(path: Path) -> dict[str, bytes]:
    files = (f for f in sorted(path.rglob("*")) if f.is_file() and MADE not in f.parts)
    return {str(f.relative_to(path)): f.read_bytes() for f in files}


@pytest.mark.parametrize("name", JOBS)
def test_units_come_out_the_same_wherever_whenever_and_however_often(
    name: str, tmp_path: Path, processes: ProcessPoolExecutor, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("UNIT_SIZE", "BOX_SIZE", "PATCH_SIZE"):
        monkeypatch.setattr(f"zstore.jobs.reduction.plan.{limit}", 1 << 11)
    monkeypatch.setattr("zstore.jobs.upkeep.rechunk.COPY_COUNT", 5)
    for cost in ("FILE", "STRETCH", "UNIT"):
        monkeypatch.setattr(f"zstore.jobs.upkeep.rechunk.{cost}", 10.0)
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


# What can be divided: the function, what it is asked beside a source and a target, and its passes.
PLANNED: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
    "pyramid": (zstore.build_pyramid, {"levels": 4, "chunks": 32, "memory": 600_000}, 1),
    "shards": (
        zstore.build_pyramid,
        {"levels": 3, "chunks": (32, 32), "shards": (96, 96), "memory": 900_000},
        1,
    ),
    "cascade": (
        zstore.build_pyramid,
        {"levels": 5, "chunks": 32, "memory": 120_000, "derive": "cascade", "method": "gauss"},
        2,
    ),
    "tiles": (zstore.build_tile_pyramid, {"min_zoom": 6, "tile_length": 256}, 2),
    "copy": (zstore.copy, {"exclude": ["nothing"]}, 1),
    "rechunk": (zstore.convert, {"chunks": (300, 20), "memory": 100_000}, 1),
    "scratch": (zstore.convert, {"chunks": (48, 4, 5), "memory": 40_000}, 2),
    "deviation": (zstore.reduce, {"method": "std", "axis": 0}, 1),
}


def call(name: str, source: Path, target: Path) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    function, options, _ = PLANNED[name]
    if name == "scratch":
        maps = np.random.default_rng(0).integers(1, 5000, (48, 32, 40)).astype("u2")
        zstore.create_array(source, data=maps, chunks=(1, 32, 40), overwrite=True)
    if function is zstore.reduce:
        return function, [source / "a"], {**options, "out": target}
    return function, [source, target], options


def in_small_units(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """What a function gives, where a unit is a few chunks."""
    sizes = dict.fromkeys(("UNIT_SIZE", "BOX_SIZE", "PATCH_SIZE"), 2048)
    with (
        mock.patch.multiple("zstore.jobs.reduction.plan", **sizes),
        mock.patch("zstore.jobs.upkeep.copy.UNIT_COUNT", 7),
    ):
        return function(*given, **options)


def die(plan: Path, part: int, part_count: int) -> None:
    """Make two units of a part, and end at once in the third."""
    made, make = iter(range(2)), runner._make

    def count(*given: Any) -> Any:
        return make(*given) if next(made, None) is not None else os._exit(9)

    with mock.patch.object(runner, "_make", count):
        in_small_units(zstore.run_units, plan, part, part_count)


@pytest.mark.parametrize("name", PLANNED)
def test_parts_in_other_processes_come_to_the_same(
    name: str, tmp_path: Path, processes: ProcessPoolExecutor
) -> None:
    put_raster(tmp_path / "s")
    target, plan, chance = tmp_path / "t", tmp_path / "plan.json", random.Random(name)
    function, given, options = call(name, tmp_path / "s", target)
    in_small_units(function, *given, **options)
    expected = files_of(target)
    target.rename(tmp_path / "before")
    assert in_small_units(zstore.plan_units, plan, function, *given, **options) > 3
    [found] = find_unfinished(LocalStore(target), "")
    assert found.again == f"zstore run-units {plan} --finish"
    with pytest.raises(
        StoreError, match=r"of 3 parts, 1, 2, 3 are not whole.*`zstore run-units .* --part 1/3` for each"
    ):
        in_small_units(zstore.finish_units, plan, part_count=3)
    if name in ("pyramid", "copy"):
        dying = get_context("forkserver").Process(target=die, args=(plan, 2, 3))
        dying.start()
        dying.join()
        assert dying.exitcode == 9
    for _ in range(PLANNED[name][2]):
        # Each of them twice; what is left over from the first time is seen by whoever comes last.
        parts = chance.sample([1, 2, 3] * 2, 6)
        waiting = [processes.submit(in_small_units, zstore.run_units, plan, part, 3) for part in parts]
        assert all(future.result() >= 0 for future in waiting)
    assert in_small_units(zstore.run_units, plan, 2, 3) == 0 and not (target / "zarr.json").exists()
    assert len({path.name for path in target.glob(f"{JOB}/*/.parts/*/*")}) >= PLANNED[name][2]
    in_small_units(zstore.finish_units, plan)
    assert files_of(target) == expected
    with pytest.raises(StoreError, match=r"not under way|there already|has ended"):
        in_small_units(zstore.run_units, plan, 1, 3)
    assert files_of(target) == expected


def test_a_plan_is_not_believed(tmp_path: Path) -> None:
    put_raster(tmp_path / "s")
    plan, target = tmp_path / "plan.json", tmp_path / "t"
    with mock.patch("zstore.jobs.upkeep.copy.UNIT_COUNT", 7):
        assert zstore.plan_units(plan, zstore.copy, tmp_path / "s", target)
        with pytest.raises(StoreError, match="such a file already"):
            zstore.plan_units(plan, zstore.copy, tmp_path / "s", target)
    with pytest.raises(
        StoreError, match=r"units of 'keys' here, expected \d+ of 'keys' as where it was begun"
    ):
        zstore.run_units(plan, 1, 2)
    said = json.loads(plan.read_bytes())
    for change, words in (
        ({"function": "eval"}, "no plan of a job"),
        ({"function": ["copy"]}, "no plan of a job"),
        ({"zstore_plan": 2}, "no plan of a job"),
        ({"arguments": []}, "no plan of a job"),
        ({"arguments": {}}, "no argument 'source'"),
        ({"arguments": {**said["arguments"], "executor": 1}}, "has the argument 'executor'"),
        ({"arguments": {**said["arguments"], "storage_options": {}}}, "has the argument 'storage_options'"),
        ({"arguments": {**said["arguments"], "if_exists": "skip"}}, "if_exists 'error', now 'skip'"),
        ({"first": {"name": 1}}, "first units are"),
        ({"options": ["storage_options"]}, "begun with storage_options"),
        ({"options": [{}]}, "options are"),
    ):
        plan.write_text(json.dumps({**said, **change}))
        with pytest.raises((MetadataError, StoreError), match=words):
            zstore.run_units(plan, 1, 2)
    for data in (b"[" * 100_000, b"\xff", b"[]", b"{}"):
        plan.write_bytes(data)
        with pytest.raises(MetadataError):
            zstore.finish_units(plan)
    # No plan leads to where no such job was begun.
    elsewhere = {**said["arguments"], "target": str(tmp_path / "other")}
    plan.write_text(json.dumps({**said, "arguments": elsewhere}))
    with pytest.raises(StoreError, match="a copy is not under way"):
        zstore.run_units(plan, 1, 2)
    assert not (tmp_path / "other").exists()
    for part in ((0, 3), (4, 3), (1, 10**9)):
        with pytest.raises(ValueError, match="expected a number from 1"):
            zstore.run_units(plan, *part)


def test_a_plan_is_what_the_job_is_begun_with(tmp_path: Path) -> None:
    """Numbers of numpy and places that are objects are other words than those of JSON."""
    maps = zstore.create_array(tmp_path / "s", data=np.arange(480).reshape(12, 40), chunks=(1, 40))
    plan, chunks = tmp_path / "plan.json", (np.int64(12), np.int32(4))
    assert zstore.plan_units(plan, zstore.convert, maps, LocalStore(tmp_path / "t"), chunks=chunks)
    assert zstore.run_units(plan, 1, 1) == 0
    np.testing.assert_array_equal(zstore.finish_units(plan)[...], maps[...])


@pytest.mark.parametrize("name", ["pyramid", "copy", "rechunk", "deviation"])
def test_nothing_is_made_of_a_job_that_has_ended(name: str, tmp_path: Path) -> None:
    put_raster(tmp_path / "s")
    plan, (function, given, options) = tmp_path / "plan.json", call(name, tmp_path / "s", tmp_path / "t")
    zstore.plan_units(plan, function, *given, **options)
    while zstore.run_units(plan, 1, 1):
        pass
    zstore.finish_units(plan)
    zstore.open(tmp_path / "t").attrs["since"] = 1
    expected = files_of(tmp_path / "t")
    with pytest.raises(StoreError, match=r"not under way: it has ended|has ended already"):
        zstore.run_units(plan, 1, 1)
    with pytest.raises(StoreError, match="not under way: it has ended"):
        zstore.finish_units(plan)
    assert files_of(tmp_path / "t") == expected


def test_a_part_that_outlives_its_job_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that begins a part again does not always end the first."""
    zstore.create_array(tmp_path / "s", data=np.arange(480).reshape(12, 40), chunks=(1, 40))
    plan, make = tmp_path / "plan.json", runner._make
    zstore.plan_units(plan, zstore.convert, tmp_path / "s", tmp_path / "t", chunks=(12, 4))
    ended = list[Any]()

    def late(*given: Any) -> Any:
        if not ended:
            ended.append(None)
            zstore.run_units(plan, 1, 1)
            zstore.finish_units(plan)
        return make(*given)

    monkeypatch.setattr(runner, "_make", late)
    with pytest.raises(StoreError, match="was ended while a part of it was made"):
        zstore.run_units(plan, 1, 1)
    assert not [name for name in files_of(tmp_path / "t") if JOB in name]
    assert zstore.copy(tmp_path / "t", tmp_path / "u").key_count


def test_parts_of_a_conversion_into_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cheap_files: None
) -> None:
    """Machines that share nothing else, with executors and without; who ends the job compares, once."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    maps = np.random.default_rng(0).integers(1, 5000, (48, 32, 40)).astype("u2")
    zstore.create_array(tmp_path / "s", data=maps, chunks=(1, 32, 40))
    plan, target, compared = tmp_path / "plan.json", "s3://b/t", list[Any]()
    options = {"chunks": (48, 4, 5), "memory": 80_000, "check": True}
    monkeypatch.setattr(Transfer, "compare", lambda *given: compared.append(given))
    with BucketServer() as server, ThreadPoolExecutor(2) as pool:
        reach = {"target_options": server.options()}
        zstore.plan_units(plan, zstore.convert, tmp_path / "s", target, **options, **reach)
        left = {}
        for number, part in enumerate((1, 2, 1, 2)):
            machine = tmp_path / f"machine {number}"
            machine.mkdir()
            monkeypatch.setattr("tempfile.tempdir", str(machine))
            executor = pool if number == 1 else None
            left[number] = zstore.run_units(plan, part, 2, executor=executor, **reach)
            assert not [*machine.iterdir()]
        assert left[0] and left[1] and left[2] == left[3] == 0 and not compared
        made = zstore.finish_units(plan, **reach)
        np.testing.assert_array_equal(made[...], maps)
        assert len(compared) == 1 and not [key for key in server.values if JOB in key]


def test_what_a_part_takes_of_a_disk_leaves_the_plan_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cheap_files: None
) -> None:
    maps = np.random.default_rng(0).integers(1, 5000, (48, 32, 40)).astype("u2")
    zstore.create_array(tmp_path / "s", data=maps, chunks=(1, 32, 40))
    plan, scratch, total = tmp_path / "plan.json", tmp_path / "w", round(2.2 * maps.nbytes)

    def usage(path: Path) -> SimpleNamespace:
        taken = sum(map(len, (files_of(tmp_path / "t") | files_of(scratch)).values()))
        return SimpleNamespace(total=total, free=total - taken)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    options = {"chunks": (48, 4, 5), "memory": 40_000, "compressors": None}
    for more in ({}, {"scratch": scratch}):
        zstore.plan_units(plan, zstore.convert, tmp_path / "s", tmp_path / "t", **options, **more)
        assert [zstore.run_units(plan, part, 2) > 0 for part in (1, 2, 1)] == [True, True, False]
        np.testing.assert_array_equal(zstore.finish_units(plan)[...], maps)
        (tmp_path / "t").rename(tmp_path / f"t {len(more)}")
        plan.unlink()


def test_what_cannot_be_written_down_is_no_plan(tmp_path: Path) -> None:
    put_raster(tmp_path / "s")
    plan = tmp_path / "plan.json"
    for function, given, words in (
        (zstore.open, [tmp_path / "s"], "cannot be made in parts"),
        (zstore.copy, [tmp_path / "s", MemoryStore()], "memory of this process"),
        (zstore.reduce, [tmp_path / "s/a", "mean", 0], "would store nothing"),
        (zstore.copy, [tmp_path / "s", tmp_path / "t", object()], "path cannot be written down"),
        (zstore.convert, [zstore.open_array(tmp_path / "s/a").lazy, tmp_path / "t"], "save the view"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            zstore.plan_units(plan, function, *given)
    labels = np.arange(300) % 3
    with pytest.raises(UnsupportedError, match="would store nothing"):
        zstore.plan_units(plan, zstore.copy, tmp_path / "s", tmp_path / "t", dry_run=True)
    with pytest.raises(UnsupportedError, match="groups cannot be written down"):
        zstore.plan_units(plan, zstore.reduce, tmp_path / "s/a", "mean", 0, groups=labels, out=tmp_path / "m")
    assert not plan.exists() and not (tmp_path / "t").exists() and not (tmp_path / "m").exists()
    group = zstore.open_group(tmp_path / "s")
    zstore.plan_units(plan, zstore.copy, group, tmp_path / "t")
    assert json.loads(plan.read_bytes())["arguments"]["source"] == f"file://{tmp_path / 's'}"
    assert (tmp_path / "t" / JOB).exists()
    with ThreadPoolExecutor(1) as pool:
        assert zstore.run_units(plan, 1, 1, executor=pool) == 0
