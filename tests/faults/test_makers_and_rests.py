"""Every way to begin against every way to go on: no finished values are lost, and no rest goes unnamed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command_line
from zstore.engine.documents import METADATA_NAMES
from zstore.engine.making import INTENT
from zstore.errors import StoreError, ZstoreError
from zstore.jobs.record import find_unfinished
from zstore.storage.base import PrefixStore, Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

from ..storage.bucket_server import BucketServer
from .drills import FailingStore

Interrupted = KeyboardInterrupt


def put_raster(store: Store, path: str) -> None:
    """Twice 64 x 64 cells with coordinates and a CRS."""
    group = zstore.create_group(store, path, attributes={"Conventions": "CF-1.8"})
    options: dict[str, Any] = {"attributes": {"grid_mapping": "spatial_ref"}, "chunks": 16}
    cells = np.arange(1, 64 * 64 + 1, dtype="u2").reshape(64, 64)
    group.create_array("a", data=cells, dimension_names=("y", "x"), **options)
    group.create_array("y", data=7e6 - 30.0 * np.arange(64), dimension_names=("y",))
    group.create_array("x", data=5e5 + 30.0 * np.arange(64), dimension_names=("x",))
    crs = {"grid_mapping_name": "transverse_mercator", "spatial_ref": "EPSG:32622"}
    group.create_array("spatial_ref", data=np.int32(0), attributes=crs)


def interrupt(*_: Any) -> None:
    raise Interrupted


def test_no_group_takes_the_place_of_an_interrupted_pyramid(tmp_path: Any) -> None:
    """What is created there by other means stays, and the pyramid is refused."""
    source, store = LocalStore(tmp_path / "s"), LocalStore(tmp_path / "t")
    mine = np.arange(6, dtype="f4")
    put_raster(source, "")
    build = {"levels": 2, "chunks": 16}
    with pytest.raises(Interrupted):
        zstore.build_pyramid(source, store, progress=interrupt, **build)
    with pytest.raises(StoreError, match=r"the building of a pyramid is unfinished; go on with: zstore\.bu"):
        zstore.create_group(store)
    with pytest.raises(StoreError, match="the building of a pyramid is unfinished"):
        zstore.create_array(store, "0", data=mine)
    # Another writer knows nothing of intents.
    other = MemoryStore()
    zstore.create_array(other, "0", data=mine)
    for key in other.list():
        store.put(key, bytes(other.get(key) or b""))
    with pytest.raises(StoreError, match="somebody else has made a node"):
        zstore.build_pyramid(source, store, resume=True, **build)
    assert zstore.open_array(store, "0", mode="r")[...].tolist() == mine.tolist()
    # With overwrite, the group has the place whole, and nothing is left to resume.
    zstore.create_group(store, overwrite=True)
    assert [*store.list()] == ["zarr.json"] and not find_unfinished(store, "")
    zstore.create_array(store, "0", data=mine)
    with pytest.raises(StoreError, match="levels 0 are there already"):
        zstore.build_pyramid(source, store, resume=True, **build)
    assert zstore.open_array(store, "0", mode="r")[...].tolist() == mine.tolist()


@pytest.mark.parametrize("path", ["", "a", "g/a"])
def test_the_rest_of_a_killed_creation_is_named_by_all_that_tell(path: str, tmp_path: Any) -> None:
    place = tmp_path / "s.zarr"
    if path:
        zstore.create_group(place)
    data = np.arange(12, dtype="i4")
    rest = FailingStore(LocalStore(place), "")
    rest.left, rest.times = 4 if "/" in path else 3, 1 << 30
    with pytest.raises(StoreError, match="the store is gone"):
        zstore.create_array(rest, path, data=data, chunks=(2,))
    assert (place / path / INTENT).exists() and (place / path / "c").exists()
    [found] = find_unfinished(LocalStore(place), "")
    assert found.path == path and found.work == "create" and "overwrite=True" in found.again
    for command in ("info", "verify", "validate"):
        result = CliRunner().invoke(command_line, [command, str(place)])
        assert result.exit_code != 0 and "the creation of an array" in result.output, command
    with pytest.raises(StoreError, match="expected it to be ended or deleted, or left out by exc") as caught:
        zstore.copy(place, tmp_path / "copy.zarr")
    if path:
        left_out = str(caught.value).partition("exclude='")[2].partition("'")[0]
        zstore.copy(place, tmp_path / "copy.zarr", exclude=left_out)
        assert not find_unfinished(LocalStore(tmp_path / "copy.zarr"), "")
    zstore.create_array(place, path, data=data, chunks=(2,), overwrite=True)
    assert not find_unfinished(LocalStore(place), "")
    zstore.copy(place, tmp_path / "whole.zarr")
    assert zstore.open_array(tmp_path / "whole.zarr", path, mode="r")[...].tolist() == data.tolist()


def test_an_intent_that_outlives_its_creation_means_nothing(tmp_path: Any) -> None:
    store = LocalStore(tmp_path / "s.zarr")
    zstore.create_array(store, "a", data=np.arange(3))
    store.put(f"a/{INTENT}", b'{"work": "create", "made": {"keys": ["default", "/", 1]}}')
    assert not find_unfinished(store, "") and not find_unfinished(store, "a")
    assert zstore.copy(store, MemoryStore()).key_count == len([*store.list()]) - 1
    zstore.create_array(store, "a", data=np.arange(4), overwrite=True)
    assert not [key for key in store.list() if INTENT in key]


# The drill: what is begun dies at its n-th change of the store, and somebody goes on.

MINE = np.arange(100, 106, dtype="f4")
PYRAMID: dict[str, Any] = {"levels": 2, "chunks": 16}
TILES: dict[str, Any] = {"min_zoom": 12, "max_zoom": 13, "nodata": 0}


class DyingStore(FailingStore):
    """A store whose process dies at the n-th change: all later ones fail, too."""

    times = 1 << 30

    def put_file(self, key: str, file: int, size: int) -> None:
        self._count(key)
        super().put_file(key, file, size)

    def delete_many(self, keys: Any) -> bool:
        if keys:
            self._count(keys[0])
        return super().delete_many(keys)

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        return False


class Ground:
    """Where a round takes place: a fresh store, filled as `values` say; and the sources beside it."""

    def __init__(self, kind: str, place: Path, server: Any) -> None:
        self.kind, self.place, self.server = kind, place, server
        self.numbers = count()
        for name, act in {"raster": put_raster, "other": lambda s, p: put_array(s, p, 50)}.items():
            act(LocalStore(place / name), "")

    def source(self, name: str = "raster") -> Store:
        return LocalStore(self.place / name)

    def make(self, values: Mapping[str, bytes]) -> Store:
        name = f"r{next(self.numbers)}"
        store: Store
        if self.kind == "bucket":
            store = open_store(f"s3://b/{name}", storage_options=self.server.options())
        elif self.kind == "sqlite":
            store = open_store(f"sqlite://{self.place / name}.sqlite")
        else:
            store = LocalStore(self.place / name)
        for key, value in values.items():
            store.put(key, value)
        return store


def put_array(store: Store, path: str, first: int) -> None:
    zstore.create_array(store, path, data=np.arange(first, first + 40, dtype="i4"), chunks=(8,))


def below(store: Store) -> Store:
    return PrefixStore(store, "t")


def put_group(store: Store, ground: Ground) -> None:
    zstore.create_group(store, "t", attributes={"was": 1})
    put_array(store, "t/a", 1)
    put_array(store, "t/b", 7)


def put_pyramid(store: Store, ground: Ground) -> None:
    zstore.create_group(store, "t")
    put_raster(store, "t/0")
    zstore.build_pyramid(PrefixStore(store, "t/0"), below(store), **PYRAMID)


class Begin(NamedTuple):
    """What is begun, with the options of going on; and what is there before."""

    act: Callable[..., Any]
    prepare: Callable[[Store, Ground], None] = lambda store, ground: None
    resumes: bool = False
    overwrites: bool = True


BEGIN: dict[str, Begin] = {
    "create_array": Begin(lambda s, g, **o: zstore.create_array(s, "t", shape=6, dtype="i2", **o)),
    "create_array(data=)": Begin(lambda s, g, **o: zstore.create_array(s, "t", data=MINE, chunks=(2,), **o)),
    "create_group": Begin(lambda s, g, **o: zstore.create_group(s, "t", attributes={"a": 1}, **o)),
    "create_hierarchy": Begin(
        lambda s, g, **o: zstore.create_hierarchy(
            s, {"t": {}, "t/a": {"shape": 4, "dtype": "i2"}, "t/b/c": {"shape": 4, "dtype": "i2"}}, **o
        )
    ),
    "delete": Begin(
        lambda s, g: zstore.open_group(s, mode="r+").__delitem__("t"), put_group, overwrites=False
    ),
    "append": Begin(
        lambda s, g: zstore.open_array(s, "t", mode="r+").append(np.arange(20, dtype="i4")),
        lambda s, g: put_array(s, "t", 1),
        overwrites=False,
    ),
    "overwrite": Begin(
        lambda s, g, **o: zstore.create_array(s, "t", data=MINE, **{"overwrite": True, **o}), put_group
    ),
    "copy": Begin(
        lambda s, g, overwrite=False, **o: zstore.copy(
            g.source(), s, target_path="t", if_exists="overwrite" if overwrite else "error", **o
        ),
        resumes=True,
    ),
    "convert": Begin(lambda s, g, **o: zstore.convert(g.source(), s, target_path="t", **o), resumes=True),
    "convert, over a group": Begin(
        lambda s, g, **o: zstore.convert(
            g.source(), s, target_path="t", **({"overwrite": True} if not o.get("resume") else {}), **o
        ),
        put_group,
        resumes=True,
        overwrites=False,
    ),
    "rechunk": Begin(
        lambda s, g, **o: zstore.convert(g.source("other"), s, target_path="t", chunks=(12,), **o),
        resumes=True,
    ),
    "build_pyramid": Begin(
        lambda s, g, **o: zstore.build_pyramid(g.source(), below(s), **PYRAMID, **o), resumes=True
    ),
    "build_tile_pyramid": Begin(
        lambda s, g, **o: zstore.build_tile_pyramid(g.source(), below(s), **TILES, **o), resumes=True
    ),
    "update_pyramid": Begin(
        lambda s, g, **o: zstore.update_pyramid(below(s), **o), put_pyramid, resumes=True, overwrites=False
    ),
    "reduce": Begin(
        lambda s, g, **o: zstore.reduce(
            zstore.open_array(g.source(), "a"), out=below(s), method="max", axis=0, **o
        ),
        resumes=True,
    ),
}

GO_ON: dict[str, Callable[[Store, Ground, Begin], Any]] = {
    "same call": lambda s, g, b: b.act(s, g),
    "resume": lambda s, g, b: b.act(s, g, resume=True) if b.resumes else None,
    "overwrite": lambda s, g, b: b.act(s, g, overwrite=True) if b.overwrites else None,
    "an array there": lambda s, g, b: zstore.create_array(s, "t", data=MINE, chunks=(3,)),
    "an array there, overwriting": lambda s, g, b: zstore.create_array(s, "t", data=MINE, overwrite=True),
    "a group there": lambda s, g, b: zstore.create_group(s, "t"),
    "an array below": lambda s, g, b: zstore.create_array(s, "t/0", data=MINE, chunks=(3,)),
    "an array deep below": lambda s, g, b: zstore.create_array(s, "t/1/a", data=MINE, chunks=(3,)),
    "an array above": lambda s, g, b: zstore.create_array(s, "", data=MINE),
    "delete": lambda s, g, b: zstore.open_group(s, mode="r+").__delitem__("t"),
    "another job": lambda s, g, b: zstore.convert(g.source("other"), s, target_path="t"),
    "another job, overwriting": lambda s, g, b: zstore.convert(
        g.source("other"), s, target_path="t", overwrite=True
    ),
    "copy from it": lambda s, g, b: zstore.copy(s, MemoryStore()),
}


def arrays_in(store: Store) -> dict[str, list[Any]]:
    """By path, the items of all arrays that can be seen from the root."""
    found, waiting = dict[str, list[Any]](), [("", zstore.open(store, mode="r"))]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, zstore.Array):
            # Of tile matrices, what is stored counts.
            found[path] = node[...].tolist() if node.size < 1 << 16 else sorted(store.list(path))
        else:
            waiting += [(f"{path}/{name}".strip("/"), member) for name, member in node.items()]
    return found


def unnamed(store: Store) -> list[str]:
    """The keys that are of no node that can be seen, and that nothing names."""
    named = [work.path for work in find_unfinished(store, "")]
    arrays, left = arrays_in(store), list[str]()
    for key in store.list():
        name = key.rpartition("/")[2]
        is_document = name in (*METADATA_NAMES, ".zattrs")
        is_of_array = any(key.startswith(f"{path}/c/") for path in arrays)
        is_named = any(not path or key.startswith(f"{path}/") for path in named)
        if not (is_document or is_of_array or is_named) and INTENT not in key:
            left.append(key)
    return left


def run_round(ground: Ground, begin: Begin, values: Mapping[str, bytes], number: int, way: str) -> bool:
    """Die at a change, go on in one way, and resume; whether it died."""
    store = ground.make(values)
    dying = DyingStore(store, "")
    dying.left = number
    try:
        begin.act(dying, ground)
        return False
    except StoreError:
        pass
    before, problems = arrays_in(store), list[str]()
    if left := unnamed(store):
        problems.append(f"nobody names {left[:4]}")
    try:
        GO_ON[way](store, ground, begin)
        has_gone_on = True
    except (ZstoreError, KeyError):
        has_gone_on = False
    after = arrays_in(store)
    is_maker = way.startswith("an array") and has_gone_on
    if is_maker:
        assert MINE.tolist() in after.values()
    # Those that replace what is there are asked to.
    if not has_gone_on and (lost := [p for p in before if after.get(p) != before[p] and p[:1] != "t"]):
        problems.append(f"{lost} changed though it was refused")
    if begin.resumes and not way.startswith("delete"):
        with suppress(ZstoreError):
            begin.act(store, ground, resume=True)
        last = arrays_in(store)
        made = {path: items for path, items in after.items() if items == MINE.tolist()}
        if lost := [path for path, items in made.items() if last.get(path) != items]:
            problems.append(f"{lost} lost by resuming")
    if left := unnamed(store):
        problems.append(f"nobody names {left[:4]} after all")
    if arrays_in(store).get("kept") != before["kept"]:
        problems.append("a bystander is lost")
    assert not problems, (way, number, problems)
    return True


def run_drill(ground: Ground, name: str, steps: int, ways: Sequence[str]) -> tuple[int, int]:
    """(rounds, of them died) of one way to begin, at so many of its steps."""
    begin, template = BEGIN[name], MemoryStore()
    zstore.create_group(template)
    put_array(template, "kept", 3)
    begin.prepare(template, ground)
    values = {key: bytes(template.get(key) or b"") for key in template.list()}
    counting = DyingStore(ground.make(values), "")
    counting.left = 1 << 30
    begin.act(counting, ground)
    total = (1 << 30) - counting.left
    numbers = (
        range(total) if steps >= total else sorted({i * (total - 1) // (steps - 1) for i in range(steps)})
    )
    died = [run_round(ground, begin, values, number, way) for number in numbers for way in ways]
    return len(died), sum(died)


@pytest.fixture
def ground(request: Any, tmp_path: Path) -> Iterator[Ground]:
    with warnings.catch_warnings(), BucketServer() as server:
        warnings.simplefilter("ignore")
        yield Ground(request.param, tmp_path, server)


@pytest.mark.parametrize("ground", ["directory"], indirect=True)
@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for number, name in enumerate(BEGIN) for way in [*GO_ON][number % 4 :: 4]],
)
def test_whoever_goes_on_loses_nothing(ground: Ground, name: str, way: str) -> None:
    _, died = run_drill(ground, name, 2, [way])
    assert died


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["directory", "sqlite", "bucket"], indirect=True)
@pytest.mark.parametrize("name", BEGIN)
def test_every_way_to_go_on_at_every_step(ground: Ground, name: str) -> None:
    rounds, died = run_drill(ground, name, 1000, [*GO_ON])
    print(f"{name}: {died} of {rounds} died")
    assert died
