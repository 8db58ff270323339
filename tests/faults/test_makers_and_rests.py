"""Every way to begin against every way to go on: no finished values are lost, and no rest goes unnamed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command_line
from zstore.engine.documents import METADATA_NAMES
from zstore.engine.intents import INTENT, JOB, OF_ONE_CALL, find_unfinished
from zstore.errors import StoreError, ZstoreError
from zstore.geo.rasters.geotiff import zarr_to_raster
from zstore.geo.rasters.raster import raster_to_zarr
from zstore.geo.report.summary import describe
from zstore.jobs.source import MADE
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
# Its chunks have the keys of a raster's.
SQUARE = MINE.reshape(2, 3)
PYRAMID: dict[str, Any] = {"levels": 2, "chunks": 16}
TILES: dict[str, Any] = {"min_zoom": 12, "max_zoom": 13, "nodata": 0}


class DyingStore(FailingStore):
    """A store whose process dies at the n-th change: all later ones fail, too."""

    times = 1 << 30

    def put_file(self, key: str, file: int, size: int) -> None:
        self._count(key)
        super().put_file(key, file, size)

    def delete_many(self, keys: Any) -> bool:
        if keys and super().delete_many([]):
            self._count(keys[0])
        return super().delete_many(keys)

    def copy_from(self, key: str, source: Store, source_key: str) -> bool:
        return False


class MeetingStore(DyingStore):
    """A store to which somebody else comes at the n-th change."""

    def __init__(self, store: Store, number: int, act: Callable[[], Any]) -> None:
        super().__init__(store, "")
        self.left, self.act = number, act

    def _count(self, key: str) -> None:
        self.left -= 1
        if self.left == -1:
            self.act()


class Ground:
    """Where rounds take place: stores of one kind, and the sources beside them."""

    def __init__(self, kind: str, place: Path, server: Any) -> None:
        self.kind, self.place, self.server = kind, place, server
        self.numbers = count()
        for name, act in {"raster": put_raster, "other": lambda s, p: put_array(s, p, 50)}.items():
            act(LocalStore(place / name), "")
        zarr_to_raster(self.source(), place / "raster.tif", arrays=["a"])

    def source(self, name: str = "raster") -> Store:
        return LocalStore(self.place / name)

    def make(self, values: Mapping[str, bytes]) -> Store:
        """A fresh store with these values."""
        name = f"r{next(self.numbers)}"
        store: Store
        if self.kind == "bucket":
            store = open_store(f"s3://b/{name}", storage_options=self.options())
            self.server.fill(f"/b/{name}/", values)
            return store
        if self.kind == "sqlite":
            store = open_store(f"sqlite://{self.place / name}.sqlite")
        else:
            store = LocalStore(self.place / name)
        for key, value in values.items():
            store.put(key, value)
        return store

    def look(self, store: Store) -> Store:
        """A store with the same values, which takes no requests."""
        if self.kind != "bucket":
            return store
        copied = MemoryStore()
        for key, value in self.server.values_below(f"/{store.url.removeprefix('s3://')}/").items():
            copied.put(key, value)
        return copied

    def save(self, store: Store) -> Callable[[], Store]:
        """A function that gives the store as it is now, opened anew; jobs know stores by their addresses."""
        if self.kind == "directory":
            place, saved = store.local_path() or "", self.place / f"r{next(self.numbers)}"
            copytree(place, saved)

            def restore() -> Store:
                rmtree(place)
                copytree(saved, place)
                return LocalStore(place)
        elif self.kind == "bucket":
            values = values_in(self.look(store))

            def restore() -> Store:
                self.server.fill(f"/{store.url.removeprefix('s3://')}/", values)
                return open_store(store.url, storage_options=self.options())
        else:
            values = values_in(store)

            def restore() -> Store:
                store.delete_prefix("")
                for key, value in values.items():
                    store.put(key, value)
                return open_store(store.url)

        return restore

    def options(self) -> dict[str, Any] | None:
        return self.server.options() if self.kind == "bucket" else None


def values_in(store: Store) -> dict[str, bytes]:
    return {key: bytes(store.get(key) or b"") for key in store.list()}


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


def put_other_group(store: Store, ground: Ground) -> None:
    zstore.create_group(store, "t", attributes={"was": 1})
    put_array(store, "t/mine", 1)


class Begin(NamedTuple):
    """What is begun, with the options of going on; and what is there before.

    replaces     whether the same call may change arrays that are there
    is_in_place  whether resuming may
    makes        the path of an array that the work makes
    """

    act: Callable[..., Any]
    prepare: Callable[[Store, Ground], None] = lambda store, ground: None
    resumes: bool = False
    overwrites: bool = True
    replaces: bool = False
    is_in_place: bool = False
    makes: str = "t/0"


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
        lambda s, g: zstore.open_group(s, mode="r+").__delitem__("t"),
        put_group,
        overwrites=False,
        replaces=True,
    ),
    "append": Begin(
        lambda s, g: zstore.open_array(s, "t", mode="r+").append(np.arange(20, dtype="i4")),
        lambda s, g: put_array(s, "t", 1),
        overwrites=False,
        replaces=True,
    ),
    "overwrite": Begin(
        lambda s, g, **o: zstore.create_array(s, "t", data=MINE, **{"overwrite": True, **o}),
        put_group,
        replaces=True,
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
        replaces=True,
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
        lambda s, g, **o: zstore.update_pyramid(below(s), **o),
        put_pyramid,
        resumes=True,
        overwrites=False,
        replaces=True,
        is_in_place=True,
    ),
    "copy, into a group": Begin(
        lambda s, g, overwrite=False, **o: zstore.copy(
            g.source(), s, target_path="t", if_exists="overwrite" if overwrite else "skip", **o
        ),
        put_other_group,
        resumes=True,
        makes="t/a",
    ),
    "build_pyramid, in a group": Begin(
        lambda s, g, **o: zstore.build_pyramid(g.source(), below(s), **PYRAMID, **o),
        put_other_group,
        resumes=True,
        makes="t/1/a",
    ),
    "raster_to_zarr, in a group": Begin(
        lambda s, g, **o: raster_to_zarr(
            g.place / "raster.tif", zstore.open_group(s, "t", mode="r+"), chunks=16, **o
        ),
        put_other_group,
        resumes=True,
        makes="t/a",
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
    "an array of the work's": lambda s, g, b: zstore.create_array(s, b.makes, data=SQUARE, chunks=(1, 2)),
    "an array of the work's, overwriting": lambda s, g, b: zstore.create_array(
        s, b.makes, data=SQUARE, chunks=(1, 2), overwrite=True
    ),
    "an array above": lambda s, g, b: zstore.create_array(s, "", data=MINE),
    "delete": lambda s, g, b: zstore.open_group(s, mode="r+").__delitem__("t"),
    "another job": lambda s, g, b: zstore.convert(g.source("other"), s, target_path="t"),
    "another job, overwriting": lambda s, g, b: zstore.convert(
        g.source("other"), s, target_path="t", overwrite=True
    ),
    "copy from it": lambda s, g, b: zstore.copy(s, MemoryStore()),
}


# The ways that are asked to replace what is at the place of the work, beside those that overwrite.
REPLACING = ("overwrite", "delete")


def arrays_in(store: Store, mode: str = "r") -> dict[str, Any]:
    """By path, the items of all arrays that can be seen from the root; of huge ones, what is stored."""
    found, waiting = dict[str, Any](), [("", zstore.open(store, mode=mode))]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, zstore.Array):
            waiting += [(f"{path}/{name}".strip("/"), member) for name, member in node.items()]
        elif node.size < 1 << 16:
            found[path] = node[...].tolist()
        else:
            found[path] = {key: bytes(store.get(key) or b"") for key in store.list(path) if JOB not in key}
    return found


def mine_in(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arrays that the maker who came has made."""
    return {path: items for path, items in arrays.items() if items in (MINE.tolist(), SQUARE.tolist())}


def unnamed(store: Store) -> list[str]:
    """The keys that are of no node that can be seen, and that nothing names."""
    named = [work.path for work in find_unfinished(store, "")]
    arrays, left = arrays_in(store), list[str]()
    for key in store.list():
        name = key.rpartition("/")[2]
        is_document = name in (*METADATA_NAMES, ".zattrs")
        is_of_array = any(key.startswith(f"{path}/c/") for path in arrays)
        # What a finished job keeps beside its target is of that.
        is_named = any(not path or key.startswith(f"{path}/") for path in named) or MADE in key
        if not (is_document or is_of_array or is_named) and INTENT not in key:
            left.append(key)
    return left


def silent(store: Store) -> list[str]:
    """Who does not tell of work that is unfinished in the store."""
    works = [str(work) for work in find_unfinished(store, "")]
    if not works:
        return []
    told = {
        "info": [str(work) for work in describe(zstore.open(store, mode="r")).unfinished],
        "verify": [str(work) for work in zstore.verify(store).unfinished],
        "validate": [found.message for found in zstore.validate(store).findings if found.rule == "ZS-09"],
    }
    left = [name for name, words in told.items() if len(words) != len(works)]
    with suppress(StoreError):
        zstore.copy(store, MemoryStore())
        left.append("copy")
    return left


def jobs_in(store: Store) -> list[str]:
    """The paths of unfinished jobs."""
    return [work.path for work in find_unfinished(store, "") if work.work not in OF_ONE_CALL]


def changed(before: Mapping[str, Any], after: Mapping[str, Any], below: str | None = None) -> list[str]:
    """The arrays that are no more, or other ones; those at and below a path left out."""
    return [
        path
        for path, items in before.items()
        if (below is None or f"{path}/"[: len(below) + 1] != f"{below}/") and after.get(path) != items
    ]


class Drill:
    """One way to begin, in fresh stores of a ground."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.ground, self.begin = ground, BEGIN[name]
        template = MemoryStore()
        zstore.create_group(template)
        put_array(template, "kept", 3)
        self.begin.prepare(template, ground)
        self.values = values_in(template)
        # What the call makes when nothing comes between, and what it makes when called again after that.
        store = ground.make(self.values)
        counting = DyingStore(store, "")
        counting.left = 1 << 30
        self.begin.act(counting, ground)
        self.change_count = (1 << 30) - counting.left
        self.expected = [arrays_in(ground.look(store))]
        with suppress(ZstoreError, KeyError):
            self.begin.act(store, ground)
            self.expected.append(arrays_in(ground.look(store)))

    def die(self, number: int, ways: Sequence[str]) -> int:
        """Die at that change, and go on in each of the ways; how many rounds have died."""
        store = self.ground.make(self.values)
        dying = DyingStore(store, "")
        dying.left = number
        with suppress(StoreError):
            self.begin.act(dying, self.ground)
        if dying.left >= 0:
            return 0
        seen = self.ground.look(store)
        before, problems = arrays_in(seen), list[Any]()
        if left := unnamed(seen):
            problems.append(f"nobody names {left[:4]}")
        if left := silent(store):
            problems.append(f"{left} do not tell of unfinished work")
        group = zstore.open_group(seen, mode="r")
        new = [path for path in jobs_in(seen) if path not in group]
        restore = self.ground.save(store)
        for way in ways:
            if found := self.go_on(restore(), before, new, way):
                problems.append((way, found))
        assert not problems, (number, problems)
        return len(ways)

    def go_on(self, store: Store, before: Mapping[str, Any], new: Sequence[str], way: str) -> list[str]:
        """Go on in one way, and resume after that; what is lost, mixed or named by nobody.

        new  the paths of unfinished jobs whose nodes are not there yet
        """
        begin, problems = self.begin, list[str]()
        try:
            GO_ON[way](store, self.ground, begin)
            has_gone_on = True
        except (ZstoreError, KeyError):
            has_gone_on = False
        seen = self.ground.look(store)
        after = arrays_in(seen)
        may_replace = (
            way in REPLACING or way.endswith("overwriting") or (way == "same call" and begin.replaces)
        )
        may_replace |= way == "resume" and begin.is_in_place
        if lost := changed(before, after, "t" if may_replace and has_gone_on else None):
            problems.append(f"{lost} changed" + ("" if has_gone_on else " though it was refused"))
        is_resumed = way == "resume" and begin.resumes
        if has_gone_on and (is_resumed or way == "same call" or (way == "overwrite" and begin.overwrites)):
            if after not in self.expected:
                problems.append("another result than of an undisturbed call")
        elif way.startswith("an array") and has_gone_on and not mine_in(after):
            problems.append("the new array is not there")
        mine, left_over = mine_in(after), {*new} & {*jobs_in(seen)}
        if both := [path for at in left_over for path in mine if f"{path}/".startswith(at)]:
            problems.append(f"{both} made in the midst of unfinished work")
        if begin.resumes and not way.startswith("delete"):
            with suppress(ZstoreError):
                begin.act(store, self.ground, resume=True)
            seen = self.ground.look(store)
            last = arrays_in(seen)
            own = self.expected[0] if begin.is_in_place else {}
            if lost := [path for path in changed(after, last) if last.get(path) != own.get(path, [])]:
                problems.append(f"{lost} lost by resuming")
        if left := unnamed(seen):
            problems.append(f"nobody names {left[:4]} after all")
        return problems

    def meet(self, number: int, way: str) -> tuple[dict[str, Any], Store]:
        """Let a maker come at that change; what he has made, and the store at the end."""
        store, theirs = self.ground.make(self.values), dict[str, Any]()

        def come() -> None:
            with suppress(ZstoreError, KeyError):
                GO_ON[way](store, self.ground, self.begin)
                theirs.update(mine_in(arrays_in(self.ground.look(store))))

        with suppress(ZstoreError):
            self.begin.act(MeetingStore(store, number, come), self.ground)
        return theirs, store

    def numbers(self, steps: int) -> Sequence[int]:
        """So many of the changes, the first and the last among them."""
        total = self.change_count
        return (
            range(total) if steps >= total else sorted({i * (total - 1) // (steps - 1) for i in range(steps)})
        )


def run_drill(ground: Ground, name: str, steps: int, ways: Sequence[str]) -> int:
    """How many rounds of one way to begin have died, at so many of its changes."""
    drill = Drill(ground, name)
    return sum(drill.die(number, ways) for number in drill.numbers(steps))


def meet(ground: Ground, name: str, ways: Sequence[str], steps: int = 1 << 30) -> int:
    """Let a maker come at changes of a call, and check that what he made stays; how many times he made it."""
    drill, problems, made = Drill(ground, name), list[Any](), 0
    for number in drill.numbers(steps):
        for way in ways:
            theirs, store = drill.meet(number, way)
            # Of what is asked to replace all, the maker may have come first.
            is_before = drill.begin.replaces and number < 2
            if not is_before and (lost := changed(theirs, arrays_in(ground.look(store), "r+"))):
                problems.append((number, way, lost))
            made += len(theirs)
    assert not problems, problems
    return made


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
    assert run_drill(ground, name, 2, [way])


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["directory", "sqlite", "bucket"], indirect=True)
@pytest.mark.parametrize("name", BEGIN)
def test_every_way_to_go_on_at_every_step(ground: Ground, name: str) -> None:
    died = run_drill(ground, name, 1000, [*GO_ON])
    print(f"{name}: {died} rounds of {died // len(GO_ON)} deaths")
    assert died


# Makers who come while a job is at work, not after it.
MAKERS = ["an array below", "an array of the work's", "an array deep below"]


@pytest.mark.parametrize("ground", ["directory"], indirect=True)
@pytest.mark.parametrize(
    "name", [name for name in BEGIN if name.endswith("in a group")] + ["copy, into a group"]
)
def test_a_maker_who_comes_to_a_job_keeps_what_he_makes(ground: Ground, name: str) -> None:
    """In a group that is there already, the job's record keeps nobody out: intents where its nodes go do."""
    assert meet(ground, name, ["an array of the work's"], 9)


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["directory", "sqlite", "bucket"], indirect=True)
@pytest.mark.parametrize("name", [name for name, begin in BEGIN.items() if begin.resumes])
def test_makers_who_come_to_a_job_at_every_step(ground: Ground, name: str) -> None:
    print(f"{name}: {meet(ground, name, MAKERS)} arrays made meanwhile are there")
