"""Long work killed at any moment: what it leaves is right or not to be seen, is named, and goes on."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

import zstore
from zstore._ext.engine.files import SCRATCH
from zstore.engine.intents import JOB, find_unfinished
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.geo.validation.fixing.fix import fix
from zstore.jobs.source import MADE
from zstore.jobs.upkeep.convert import convert_metadata
from zstore.storage.local import LocalStore

pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
zarr = pytest.importorskip("zarr", reason="zarr-python is asked what it sees")

UTM = Affine(30.0, 0.0, 612840.0, 0.0, -30.0, 6852690.0)
# Cells of a stored chunk of tiles: of two by two.
TILES_SIZE = 512 * 512
REGION = {"y": slice(10, 200), "x": slice(20, 90)}
DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")


def cells(shape: tuple[int, ...] = (256, 192), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 5000, shape).astype("u2")


def put_raster(place: Path, zarr_format: int = 3, **cut: Any) -> zstore.Group:
    variables = {"a": Variable(np.dtype("u2"), nodata=0)}
    geo = GeoModel(Crs.from_user("EPSG:32622"), UTM, (256, 192), variables=variables)
    group = zstore.create_group(place, zarr_format=zarr_format)
    for path, document in render_geo(geo, zarr_format)[0].items():
        if path == "":
            group.attrs.update(document["attributes"])
            continue
        options = {name: document[name] for name in ("attributes", "dimension_names", "fill_value")}
        if path == "a":
            options |= {"data": cells(), "chunks": 32, **cut}
        else:
            options["data"] = document["data"]
        group.create_array(path, **options)
    return group


class Work(NamedTuple):
    """What is there before; what is done; what is done to go on; the hierarchy it is about."""

    prepare: Callable[[Path], None]
    run: Callable[..., None]
    again: dict[str, Any]
    target: str = "t"
    changes_in_place: bool = False


def beside(place: Path) -> None:
    """A raster as the finest level of a group."""
    zstore.create_group(place / "t")
    put_raster(place / "t" / "0")


def built(place: Path, **options: Any) -> None:
    put_raster(place / "s")
    zstore.build_pyramid(place / "s", place / "t", levels=3, chunks=32, **options)


def changed(place: Path) -> None:
    """A pyramid whose finest level has changed, without the others."""
    beside(place)
    zstore.build_pyramid(place / "t" / "0", place / "t", levels=3, chunks=32)
    zstore.open_array(place / "t" / "0" / "a", mode="r+")[10:200, 20:90] = cells((190, 70), seed=1)


def grown(place: Path) -> None:
    beside(place)
    zstore.build_pyramid(place / "t" / "0", place / "t", levels=3, chunks=32)
    level = zstore.open_group(place / "t" / "0", mode="r+")
    level["a"].append(cells((70, 192), seed=2))
    level["y"].append(level["y"][-1] - 30.0 * np.arange(1, 71))


def changed_below_tiles(place: Path) -> None:
    """Tiles of a raster that has changed since, and so has its mask."""
    group = put_raster(place / "s")
    options = {"chunks": 32, "dimension_names": ("y", "x"), "attributes": {"grid_mapping": "spatial_ref"}}
    mask = group.create_array("m", data=(cells(seed=4) > 500).astype("u1"), **options)
    tiles(place, mask={"a": "m"})
    group["a"][10:200, 20:90], mask[10:200, 20:90] = cells((190, 70), seed=1), 1


def to_fix(place: Path) -> None:
    """A pyramid whose levels say their CRS no more."""
    built(place)
    group = zstore.open_group(place / "t", mode="r+")
    for level in "123":
        del group[level]["a"].attrs["_CRS"]
        del group[level]["a"].attrs["grid_mapping"]


def hierarchy(place: Path) -> None:
    root = put_raster(place / "s", 2)
    root.create_array("deep/b", data=cells(seed=3), chunks=48)
    root.consolidate()


def here(place: Path) -> None:
    hierarchy(place)
    (place / "s").rename(place / "t")


def pyramid(place: Path, **options: Any) -> None:
    zstore.build_pyramid(
        place / "s", place / "t", **{"levels": 3, "chunks": 32, "memory": 500_000, **options}
    )


def tiles(place: Path, **options: Any) -> None:
    zstore.build_tile_pyramid(place / "s", place / "t", min_zoom=8, tiles_per_shard=2, **options)


def converted(place: Path, **options: Any) -> None:
    zstore.convert(place / "s", place / "t", **options)


def copied(place: Path, **options: Any) -> None:
    """In units of a few keys."""
    with mock.patch("zstore.jobs.upkeep.copy.UNIT_COUNT", 4):
        zstore.copy(place / "s", place / "t", **options)


def reduced(place: Path, **options: Any) -> None:
    """In units of a few chunks, some of them joined before a part of the result is whole."""
    with mock.patch.multiple(
        "zstore.jobs.reduction.plan", UNIT_SIZE=1 << 12, BOX_SIZE=1 << 10, PATCH_SIZE=1 << 8
    ):
        zstore.reduce(place / "s" / "a", out=place / "t", **{"method": "std", "axis": 0, **options})


def maps(place: Path) -> None:
    zstore.create_array(place / "s", data=cells((48, 32, 40)), chunks=(1, 32, 40), compressors="gzip")


WORKS = {
    "pyramid": Work(lambda p: put_raster(p / "s") and None, pyramid, {"resume": True}),
    "pyramid, shards": Work(
        lambda p: put_raster(p / "s", shards=64) and None, pyramid, {"resume": True, "shards": 64}
    ),
    "pyramid, v2": Work(lambda p: put_raster(p / "s", 2) and None, pyramid, {"resume": True}),
    "pyramid beside": Work(
        beside,
        lambda p, **o: zstore.build_pyramid(p / "t" / "0", p / "t", levels=3, chunks=32, **o) and None,
        {"resume": True},
    ),
    "pyramid anew": Work(
        built, lambda p, **o: pyramid(p, **{"method": "max", "overwrite": True, **o}), {"resume": True}
    ),
    "tiles": Work(lambda p: put_raster(p / "s") and None, tiles, {"resume": True}),
    "update": Work(
        changed,
        lambda p, **o: zstore.update_pyramid(p / "t", REGION, memory=300_000, **o) and None,
        {"resume": True},
        changes_in_place=True,
    ),
    "update, grown": Work(
        grown,
        lambda p, **o: zstore.update_pyramid(p / "t", **o) and None,
        {"resume": True},
        changes_in_place=True,
    ),
    "update, tiles behind a mask": Work(
        changed_below_tiles,
        lambda p, **o: zstore.update_pyramid(p / "t", REGION, source=p / "s", **o) and None,
        {"resume": True},
        changes_in_place=True,
    ),
    "copy": Work(hierarchy, copied, {"resume": True}),
    "copy, over another": Work(
        lambda p: (hierarchy(p), put_raster(p / "t"), None)[-1],
        lambda p, **o: copied(p, if_exists="changed", delete=True, **o),
        {"resume": True},
    ),
    "convert": Work(
        hierarchy, lambda p, **o: zstore.convert(p / "s", p / "t", **o) and None, {"resume": True}
    ),
    "convert, recoded": Work(
        hierarchy, lambda p, **o: converted(p, chunks=(24, 24), shards=(96, 96), **o), {"resume": True}
    ),
    "convert, by way of scratch": Work(
        maps, lambda p, **o: converted(p, chunks=(48, 4, 5), memory=40_000, **o), {"resume": True}
    ),
    "convert, over another": Work(
        lambda p: (hierarchy(p), put_raster(p / "t"), None)[-1],
        lambda p, **o: converted(p, overwrite=True, **o),
        {"resume": True},
    ),
    "convert in place": Work(here, lambda p: convert_metadata(p / "t", remove_old=True) and None, {}),
    "convert in place, back": Work(
        lambda p: (here(p), convert_metadata(p / "t", remove_old=True), None)[-1],
        lambda p: convert_metadata(p / "t", zarr_format=2, remove_old=True) and None,
        {},
    ),
    "reduce": Work(lambda p: put_raster(p / "s") and None, reduced, {"resume": True}),
    "reduce, everything": Work(
        lambda p: put_raster(p / "s") and None, lambda p, **o: reduced(p, axis=None, **o), {"resume": True}
    ),
    "reduce, over another": Work(
        lambda p: (put_raster(p / "s"), put_raster(p / "t"), None)[-1],
        lambda p, **o: reduced(p, method="max", overwrite=True, **o),
        {"resume": True},
    ),
    "consolidate": Work(
        lambda p: put_raster(p / "t") and None, lambda p: zstore.consolidate(p / "t") and None, {}
    ),
    "fix": Work(to_fix, lambda p: fix(p / "t", backup=p / f"b{time.time_ns()}") and None, {}),
}


def files_of(place: Path) -> dict[str, bytes]:
    files = (f for f in sorted(place.rglob("*")) if f.is_file() and MADE not in f.parts)
    return {str(f.relative_to(place)): f.read_bytes() for f in files}


def without_scratch(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if SCRATCH not in name}


def arrays_of(place: Path) -> dict[str, np.ndarray]:
    """By path, every array that can be opened, as zarr-python reads it and as zstore does."""
    found: dict[str, np.ndarray] = {}
    for document in sorted({file.parent for name in DOCUMENTS for file in place.rglob(name)}):
        with warnings.catch_warnings():
            # Documents of two formats lie beside each other while one takes the other's place.
            warnings.filterwarnings("ignore", "Both zarr.json")
            node = zarr.open(str(document), mode="r")
        if isinstance(node, zarr.Array):
            items = items_of(node, document)
            np.testing.assert_array_equal(items, items_of(zstore.open_array(document, mode="r"), document))
            found[str(document.relative_to(place))] = items
    return found


def items_of(array: Any, place: Path) -> np.ndarray:
    """All items; of a tile matrix, where and what its stored chunks are."""
    if array.size < 1 << 22:
        return np.asarray(array[...])
    length = (array.shards or array.chunks)[0]
    spots = [(int(chunk.parent.name), int(chunk.name)) for chunk in (place / "c").glob("*/*")]
    parts = [array[y * length : (y + 1) * length, x * length : (x + 1) * length] for y, x in sorted(spots)]
    return np.concatenate([np.ravel(sorted(spots)), *map(np.ravel, parts)])


def is_either(items: np.ndarray, old: np.ndarray | None, new: np.ndarray | None, length: int) -> bool:
    """Whether every chunk of that length, or stored chunk of a tile matrix, is the old one or the new one."""
    windows: list[Any] = [...]
    if length and items.ndim == 2:
        windows = [
            (slice(y, min(y + length, items.shape[0])), slice(x, min(x + length, items.shape[1])))
            for y in range(0, items.shape[0], length)
            for x in range(0, items.shape[1], length)
        ]
    elif length and items.size > TILES_SIZE:
        # Where they are comes first.
        first = items.size % TILES_SIZE
        begins = range(first, items.size, TILES_SIZE)
        windows = [slice(first), *(slice(begin, begin + TILES_SIZE) for begin in begins)]
    return all(
        any(np.array_equal(items[window], one[window]) for one in (old, new) if one is not None)
        for window in windows
    )


def watch(tick: Callable[[], None], patch: Callable[..., None] = setattr) -> None:
    """Have it called before every change of a store in a directory, but for chunks that the kernels write."""

    def watched(real: Callable[..., None]) -> Callable[..., None]:
        def call(self: LocalStore, key: str, *value: Any) -> None:
            tick()
            real(self, key, *value)

        return call

    for name in ("put", "put_file", "delete", "delete_prefix"):
        patch(LocalStore, name, watched(getattr(LocalStore, name)))


def kill(act: Callable[[], None], *, seconds: float | None, calls: int | None) -> bool:
    """Do it in a process that is killed after some time, or at a change of a store; whether it was."""
    child = os.fork()
    if child == 0:
        left = itertools.count(0 if calls is None else calls, -1)

        def tick() -> None:
            if calls is not None and next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        watch(tick)
        try:
            warnings.simplefilter("ignore")
            act()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(3)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status != 0


def drill(
    place: Path, name: str, changes: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int, int]:
    """Kill the work, check what is left each time, and go on; (rounds, kills, of them named).

    changes  at how many changes of the store, each another one
    times    at how many moments by chance
    """
    # Small work keeps a journal, too.
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)
    # And goes by way of what lies in between, where that can be.
    for cost in ("FILE", "STRETCH", "UNIT"):
        monkeypatch.setattr(f"zstore.jobs.upkeep.rechunk.{cost}", 10.0)
    work, rng = WORKS[name], random.Random(name)
    before, now = place / "before", place / "now"
    now.mkdir(parents=True)
    work.prepare(now)
    target = now / work.target
    shutil.copytree(now, before)
    old = arrays_of(target) if target.exists() else {}
    options = {key: value for key, value in work.again.items() if key != "resume"}
    counted = list[None]()
    with monkeypatch.context() as patched:
        watch(lambda: counted.append(None), patched.setattr)
        begun = time.monotonic()
        work.run(now, **options)
        duration = time.monotonic() - begun
    new, whole = arrays_of(target), files_of(target)
    at_changes = rng.sample(range(len(counted)), min(changes, len(counted)))
    moments = [
        *((calls, None) for calls in at_changes),
        *((None, rng.uniform(0, duration)) for _ in range(times)),
    ]
    kills = named = 0
    for number, (calls, seconds) in enumerate(moments):
        shutil.rmtree(now)
        shutil.copytree(before, now)
        was_killed = kill(lambda: work.run(now, **options), seconds=seconds, calls=calls)
        kills += was_killed
        store = LocalStore(target)
        unfinished = find_unfinished(store, "")
        left = without_scratch(files_of(target)) if target.exists() else {}
        found = arrays_of(target) if target.exists() else {}
        for path, items in found.items():
            assert is_either(items, old.get(path), new.get(path), 32 if work.changes_in_place else 0), path
        if left not in ({}, whole, files_of(before / work.target)):
            assert unfinished or name == "consolidate", sorted(left)
        if unfinished:
            named += 1
            if len(moments) < 10 or number % 5 == 0:
                check_named(target, store)
        # Without a fingerprint, which is kept where `resume` is asked for, what has ended is not told from
        # other work, and its result is never taken for this one's.
        has_none = name.startswith(("reduce", "pyramid", "tiles", "copy", "convert"))
        is_over = has_none and left == whole and not unfinished
        if number % 3 == 0 and not is_over:
            # An interruption of what goes on is no other matter.
            kill(lambda: work.run(now, **work.again), seconds=rng.uniform(0, duration), calls=None)
        after = files_of(target) if target.exists() else {}
        if not find_unfinished(store, "") and without_scratch(after) == whole:
            # Work ends by removing what it has renamed; killed there, the next to open the store does it.
            after = without_scratch(after)
        else:
            work.run(now, **work.again)
            after = files_of(target)
        after, about = without_build(after, work), (number, was_killed, seconds, sorted(left)[:9])
        assert after == without_build(whole, work), about
        assert not [key for key in store.list("") if JOB in key]
    return len(moments), kills, named


def without_build(files: dict[str, bytes], work: Work) -> dict[str, bytes]:
    """Updates differ from one another in name, also where they do the same."""
    if not work.changes_in_place:
        return files
    return {name: re.sub(rb'"build": "\w+"', b"", data) for name, data in files.items()}


def check_named(target: Path, store: LocalStore) -> None:
    """The three that tell of a store name what is unfinished, and how to go on."""
    [(said, undo)] = {(work.again, work.undo) for work in find_unfinished(store, "")}
    assert said.startswith("zstore.") and "(" in said
    verified = zstore.verify(target)
    assert not verified.is_sound and verified.damages == [] and verified.unfinished[0].again == said
    [finding] = [finding for finding in zstore.validate(target).findings if finding.rule == "ZS-09"]
    assert (finding.severity, finding.expected) == ("error", f"{said}, or {undo}" if undo else said)


@pytest.mark.parametrize("name", WORKS)
def test_killed_work_is_not_seen_is_named_and_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, kills, _ = drill(tmp_path, name, 1, 1, monkeypatch)
    assert kills


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_work_killed_at_every_change(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, kills, named = drill(tmp_path, name, 1000, 40, monkeypatch)
    print(f"{name}: {kills} of {rounds} killed, {named} named")
    assert kills > rounds // 4
