"""Two who make the same at once: both leave equal values and documents, or a sentence refuses one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import combinations_with_replacement, compress, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.documents import ancestors
from zstore.engine.intents import find_unfinished
from zstore.engine.making import makes_node
from zstore.errors import ChangedError, StoreError, ZstoreError
from zstore.geo.pyramid import build
from zstore.jobs.record import BegunJob
from zstore.jobs.source import MADE
from zstore.storage.base import PrefixStore, Store
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

from ..storage.bucket_server import BucketServer
from .drills import start
from .turns import (
    TurnBucket,
    Turns,
    all_orders,
    in_bucket,
    in_directory,
    in_memory,
    in_zip,
    request_counts,
    some_orders,
)

CALLS = {
    "copy": "zstore.copy(source, target, resume=True)",
    "convert": "zstore.convert(source, target, chunks=(32, 128), resume=True)",
    "reduce": "zstore.reduce(zstore.open_array(source, 'v'), 'sum', 0, out=target, resume=True)",
    "pyramid": "zstore.build_pyramid(source, target)",
    "pyramid, resume": "zstore.build_pyramid(source, target, resume=True)",
    "pyramid, overwrite": "zstore.build_pyramid(source, target, overwrite=True)",
}
# Of two processes, who opens what it has made may find that the other has just removed it.
REPLACING_CALLS = {
    "convert, overwrite": "zstore.convert(source, target, chunks=(32, 128), overwrite=True)",
    "reduce, overwrite": (
        "zstore.reduce(zstore.open_array(source, 'v'), 'sum', 0, out=target, overwrite=True)"
    ),
}
REFUSED = re.compile(
    "refused: (ChangedError"
    "|StoreError (a copy|a conversion|a reduction|the building of a pyramid) is unfinished"
    "|ExistsError a (conversion|reduction) cannot begin: an array or group is there already"
    "|(StoreError|ExistsError) (levels [012](, [012])* are there already|the key is there already"
    "|somebody else))"
)


def make_source(place: Path | Store) -> Any:
    data = np.arange(1, 256 * 256 + 1, dtype="u4").reshape(256, 256)
    root = zstore.create_group(place)
    root.create_array("v", data=data, chunks=(64, 64), dimension_names=["y", "x"])
    root.create_array("other", data=np.arange(12.0), chunks=4)
    return place


def files(place: Path | Store) -> dict[str, bytes]:
    """All values by their keys, temporary files too, but for fingerprints."""
    root = place if isinstance(place, Path) else place.local_path()
    if root is None:
        found = {key: bytes(place.get(key) or b"") for key in place.list()}
    else:
        found = {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}
    return {key: value for key, value in found.items() if MADE not in key.split("/")}


def check_whole(made: Path | Store, expected: dict[str, bytes]) -> None:
    """The same chunks and documents are there, those of a pyramid consolidated, and nothing beside them."""
    found = files(made)
    assert found == expected
    told = json.loads(found["zarr.json"]).get("consolidated_metadata", {}).get("metadata")
    if told is not None:
        assert {f"{path}/zarr.json" for path in told} == {k for k in found if k.endswith("/zarr.json")}


class Races:
    """Where two processes make the same: addresses, and the options to open them with."""

    def __init__(self, base: str, options: dict[str, Any]) -> None:
        self.base, self.options = base, options

    def store(self, name: str) -> Store:
        return open_store(f"{self.base}/{name}", storage_options=self.options)

    def run(self, call: str, count: int) -> None:
        source, whole = make_source(self.store("s")), self.store("whole")
        eval(call, {"zstore": zstore, "source": source, "target": whole})
        expected = files(whole)
        words = (source.url, json.dumps(self.options), call)
        with ExitStack() as stack:
            racers = [stack.enter_context(start("race", *words)) for _ in range(2)]
            for racer in racers:
                stack.callback(racer.kill)
            assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 2
            for number in range(count):
                target = self.store(f"t{number}")
                for racer in racers:
                    racer.stdin.write(f"{target.url}\n")
                    racer.stdin.flush()
                ends = sorted(racer.stdout.readline().strip() for racer in racers)
                assert ends[0] == "made" and (ends[1] == "made" or REFUSED.match(ends[1])), ends
                check_whole(target, expected)
                assert not find_unfinished(target, "")


@pytest.fixture(params=["directory", pytest.param("bucket", marks=pytest.mark.slow)])
def races(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Races]:
    if request.param == "directory":
        yield Races(f"file://{tmp_path}", {})
        return
    pytest.importorskip("obstore", reason="obstore is not installed")
    with BucketServer() as server:
        yield Races("s3://b", server.options())


@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CALLS)
def test_two_processes_at_once_leave_one_whole_result(races: Races, name: str, count: int) -> None:
    races.run(CALLS[name], count)


def test_a_build_at_work_is_not_overwritten(tmp_path, monkeypatch):
    source, target, make = make_source(tmp_path / "s"), tmp_path / "t", build.run_step
    zstore.build_pyramid(source, tmp_path / "whole")
    begun, may_go_on = threading.Event(), threading.Event()

    def wait(*args, **options):
        begun.set()
        assert may_go_on.wait(60)
        return make(*args, **options)

    monkeypatch.setattr(build, "run_step", wait)
    thread = threading.Thread(target=zstore.build_pyramid, args=(source, target))
    thread.start()
    try:
        assert begun.wait(60)
        with pytest.raises(StoreError, match=r"somebody else is at work there, in process \d+: .*a pyramid"):
            zstore.build_pyramid(source, target, overwrite=True)
    finally:
        may_go_on.set()
        thread.join(60)
    check_whole(target, files(tmp_path / "whole"))
    zstore.build_pyramid(source, target, overwrite=True)
    check_whole(target, files(tmp_path / "whole"))


def test_a_build_that_failed_in_a_living_process_is_overwritten(tmp_path):
    source, target = make_source(tmp_path / "s"), tmp_path / "t"
    zstore.build_pyramid(source, tmp_path / "whole")
    with start("fail_to_build", source, target) as failed:
        assert failed.stdout.readline().startswith("the network is down")
        assert failed.poll() is None
        zstore.build_pyramid(source, target, overwrite=True)
        failed.stdin.write("\n")
        failed.stdin.flush()
    check_whole(target, files(tmp_path / "whole"))


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("moment", ["check_begun", "check_room", "begin", "_clear"])
def test_a_pyramid_that_another_call_has_just_built_stays(tmp_path, monkeypatch, moment, resume):
    source, target = make_source(tmp_path / "s"), tmp_path / "t"
    zstore.build_pyramid(source, tmp_path / "whole")
    owner: Any = build if hasattr(build, moment) else build._Build
    expected, original, times = files(tmp_path / "whole"), getattr(owner, moment), []

    def other_first(*args, **options):
        monkeypatch.setattr(owner, moment, original)
        if moment == "_clear":
            expectation = (
                "somebody else is at work there" if resume else "the building of a pyramid is unfinished"
            )
            with pytest.raises(StoreError, match=expectation):
                zstore.build_pyramid(source, target, resume=resume)
            return original(*args, **options)
        zstore.build_pyramid(source, target, resume=resume)
        times.extend(file.stat().st_mtime_ns for file in sorted(target.rglob("zarr.json")))
        return original(*args, **options)

    monkeypatch.setattr(owner, moment, other_first)
    if moment == "_clear":
        zstore.build_pyramid(source, target, resume=resume)
    else:
        with pytest.raises(StoreError, match="levels 0, 1, 2 are there already"):
            zstore.build_pyramid(source, target, resume=resume)
        assert times == [file.stat().st_mtime_ns for file in sorted(target.rglob("zarr.json"))]
    check_whole(target, expected)


def test_a_result_that_another_call_removes_at_once_is_named(monkeypatch):
    source, target, end = make_source(MemoryStore()), MemoryStore(), BegunJob.end

    def end_and_lose(job):
        end(job)
        target.delete_prefix("")

    monkeypatch.setattr(BegunJob, "end", end_and_lose)
    with pytest.raises(ChangedError, match="another call has replaced or removed it since"):
        zstore.convert(source, target, chunks=(32, 128))


VALUES = np.arange(1, 5, dtype="i4")
GRID: dict[str, Any] = {"shape": (4,), "dtype": "i4", "chunks": 4}
MAKERS: dict[str, Any] = {
    "empty": lambda store: zstore.create_array(store, "a", **GRID),
    "empty, overwrite": lambda store: zstore.create_array(store, "a", overwrite=True, **GRID),
    "many": lambda store: dict(zstore.create_hierarchy(store, {"a": GRID})),
    "full": lambda store: zstore.create_array(store, "a", data=VALUES, chunks=4),
    "full, overwrite": lambda store: zstore.create_array(store, "a", data=VALUES, chunks=4, overwrite=True),
    "copy": lambda store: zstore.copy(make_values(), PrefixStore(store, "a")),
    "empty, write": lambda store: zstore.create_array(store, "a", **GRID).__setitem__(..., 9),
    "empty v2": lambda store: zstore.create_array(store, "a", zarr_format=2, attributes={"n": 1}, **GRID),
    "full v2": lambda store: zstore.create_array(
        store, "a", data=VALUES, chunks=4, zarr_format=2, attributes={"n": 2}
    ),
}


def make_values() -> Store:
    return zstore.create_array(MemoryStore(), data=VALUES, chunks=4).store


# For every so-manieth order of the requests, and with all of them, where those are not thousands.
@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("names", "each"),
    [
        *((["empty", "full"], 9), (["empty, overwrite", "full"], 15), (["empty", "full, overwrite"], 15)),
        *((["many", "full"], 15), (["full", "full"], 300), (["empty", "empty"], 1), (["empty", "copy"], 20)),
        (["empty v2", "full v2"], 400),
    ],
    ids=str,
)
def test_makers_never_show_the_values_of_one_as_those_of_the_other(
    names: list[str], each: int, is_long: bool
) -> None:
    def make() -> Turns:
        turns = in_memory()
        zstore.create_group(turns.store, zarr_format=2 if "v2" in names[0] else 3)
        return turns

    makers = [MAKERS[name] for name in names]
    expected = [0 * VALUES if "full" not in name and name != "copy" else VALUES for name in names]
    for order in all_orders(request_counts(make, makers), (each + 19) // 20 if is_long else each):
        turns = make()
        ends, store = turns.run(order, *makers), turns.store
        made = [number for number, end in enumerate(ends) if not isinstance(end, StoreError)]
        keys = [key for key in store.list() if key.startswith("a")]
        if not {"a/zarr.json", "a/.zarray"}.isdisjoint(keys):
            found = zstore.open_array(store, "a")[...]
            assert any(np.array_equal(found, expected[number]) for number in made), (order, ends)
        else:
            assert not made and (not keys or find_unfinished(store, "a")), (order, keys)


@pytest.mark.parametrize(
    "names",
    [
        *(("empty", "full"), ("empty, overwrite", "full"), ("empty", "full, overwrite"), ("many", "full")),
        *(("empty v2", "full v2"), ("empty, write", "full")),
    ],
    ids=", ".join,
)
def test_in_a_bucket_chunks_of_a_refused_maker_are_not_the_others(names: tuple[str, str]) -> None:
    """Who makes an array without data does not see the mark of one who stores chunks, and is first."""
    pytest.importorskip("obstore", reason="obstore is not installed")

    def make() -> Turns:
        turns = in_bucket()
        zstore.create_group(turns.store, zarr_format=2 if "v2" in names[0] else 3)
        return turns

    makers = [MAKERS[name] for name in names]
    is_written = names[0] == "empty, write"
    expected = [0 * VALUES + 9 * is_written, VALUES]
    counts = request_counts(make, makers)
    for order in all_orders(counts, 40 if "v2" in names[0] else 1):
        turns = make()
        ends, store = turns.run(order, *makers), turns.store
        made = [number for number, end in enumerate(ends) if not isinstance(end, StoreError)]
        found = zstore.open_array(store, "a")[...]
        is_whole = any(np.array_equal(found, expected[number]) for number in made)
        # Whoever writes in the very moment in which a chunk is deleted is not noticed (`Store.delete_over`).
        is_known = is_written and not found.any() and made == [0]
        assert is_whole or is_known, (order, ends, found)


def test_in_a_bucket_a_maker_that_fails_leaves_the_array_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")

    def make() -> Turns:
        turns = in_bucket()
        zstore.create_group(turns.store)
        return turns

    def fail(array: zstore.Array, selection: Any, value: Any) -> None:
        raise StoreError("what the data come from is gone")

    monkeypatch.setattr(zstore.Array, "__setitem__", fail)
    for order in all_orders([1, 7], 1):
        turns = make()
        ends = turns.run(order, MAKERS["empty"], MAKERS["full"])
        assert isinstance(ends[1], StoreError)
        is_there = not isinstance(ends[0], StoreError)
        assert (zstore.open_group(turns.store).get("a") is not None) == is_there, (order, ends)


KINDS = [in_memory, in_directory, in_zip, in_bucket]


@pytest.fixture(params=KINDS)
def make_turns(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Turns]:
    if request.param is in_bucket:
        pytest.importorskip("obstore", reason="obstore is not installed")
    return partial(request.param, tmp_path) if request.param in (in_directory, in_zip) else request.param


@pytest.mark.parametrize("count", [5, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "names",
    [
        ("copy",),
        ("convert",),
        ("reduce",),
        ("pyramid",),
        ("pyramid, resume",),
        ("pyramid", "pyramid, resume"),
        ("pyramid, overwrite",),
        ("convert, overwrite",),
        ("reduce, overwrite",),
    ],
    ids=", ".join,
)
def test_jobs_whose_requests_take_turns_leave_one_whole_result(
    make_turns: Callable[[], Turns], names: tuple[str, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if each job took long: the journal is written after each unit.
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)

    def make() -> Turns:
        turns = make_turns()
        zstore.create_group(turns.store)
        return turns

    def ask(name: str) -> Any:
        call = compile({**CALLS, **REPLACING_CALLS}[name], name, "eval")
        return lambda store: eval(call, {**known, "target": PrefixStore(store, "t")})

    source = MemoryStore(f"races of {names}")  # a name is the same source for all
    known = {"zstore": zstore, "source": source if [*source.list()] else make_source(source)}
    calls = [ask(name) for name in (names * 2)[:2]]
    whole = make().store
    calls[0](whole)
    for order in some_orders(request_counts(make, calls), count):
        turns = make()
        ends, store = turns.run(order, *calls), turns.store
        refused = [end for end in ends if isinstance(end, ZstoreError)]
        assert len(refused) < 2, (order, ends)
        check_whole(store, files(whole))
        assert not find_unfinished(store, "")


def _change(change: Callable[[zstore.Array], Any]) -> Callable[[Store], None]:
    def call(store: Store) -> None:
        change(zstore.open_array(store, "a", mode="r+"))

    return call


def _delete(store: Store) -> None:
    del zstore.open_group(store, mode="r+")["a"]


CHANGES: dict[str, Any] = {
    "write": _change(lambda array: array.set_basic_selection(0, 50)),
    "append": _change(lambda array: array.append(np.full(2, 7, "i4"))),
    "cut": _change(lambda array: array.resize((2,))),
    "grow": _change(lambda array: array.resize((9,))),
    "say": _change(lambda array: array.attrs.update(n=1)),
    "say more": _change(lambda array: array.attrs.update(m=2)),
    "delete": _delete,
    "replace": MAKERS["full, overwrite"],
    "empty": lambda store: zstore.create_array(store, "a", overwrite=True, **GRID | {"chunks": 2}),
}
PAIRS = [*combinations_with_replacement(CHANGES, 2)]


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("names", PAIRS, ids=", ".join)
@pytest.mark.parametrize("make_turns", [kind for kind in KINDS if kind is not in_zip], indirect=True)
def test_two_changes_of_an_array_come_one_after_the_other(
    make_turns: Callable[[], Turns], names: tuple[str, str], count: int
) -> None:
    """Nothing that was deleted comes back, and nothing that was acknowledged is lost."""

    def make() -> Turns:
        turns = make_turns()
        group = zstore.create_group(turns.store)
        group.create_array("a", data=VALUES, chunks=2, attributes={"k": 0})
        return turns

    def state(store: Store) -> Any:
        # Chunks of a writer who came too late may be there; nobody can make an array of them unawares.
        if "a" not in zstore.open_group(store, mode="r"):
            return None
        array = zstore.open_array(store, "a", mode="r")
        return array[...].tolist(), dict(array.attrs)

    def after(*changes: Any) -> Any:
        store = make().store
        for change in changes:
            with suppress(ZstoreError):
                change(store)
        return state(store)

    first, second = changes = [CHANGES[name] for name in names]
    both = [after(first, second), after(second, first)]
    alone = [after(first), after(second)]
    for order in some_orders(request_counts(make, changes), count):
        turns = make()
        ends, store = turns.run(order, *changes), turns.store
        made = [not isinstance(end, ZstoreError) for end in ends]
        expected = both if all(made) else [*both, *compress(alone, made)]
        if not any(made):  # in a bucket, whoever replaces the array may meet a change that meets no array
            expected = [None] if {"replace", "empty"} & {*names} else []
        assert state(store) in expected, (order, ends)
        assert not any(".zstore" in key for key in store.list()), (order, ends)


@pytest.mark.parametrize("count", [20, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_of_two_who_replace_one_array_the_chunks_never_mix(
    make_turns: Callable[[], Turns], zarr_format: int, count: int
) -> None:
    """The array is that of one who was not refused, with all of its chunks and no others."""

    def make() -> Turns:
        turns = make_turns()
        group = zstore.create_group(turns.store, zarr_format=zarr_format)
        group.create_array("a", data=np.full(40, 9), chunks=9, attributes={"who": 9})
        return turns

    def replace(who: int) -> Callable[[Store], Any]:
        new = {"data": np.full(40, who + 1), "chunks": 8 * (who + 1), "attributes": {"who": who}}
        return lambda store: zstore.create_array(store, "a", overwrite=True, zarr_format=zarr_format, **new)

    calls = [replace(0), replace(1)]
    for order in some_orders(request_counts(make, calls), count):
        turns = make()
        ends, store = turns.run(order, *calls), turns.store
        array = zstore.open_array(store, "a", mode="r")
        who = array.attrs["who"]
        assert not isinstance(ends[who], ZstoreError), (order, ends)
        assert (array[...] == who + 1).all(), (order, ends, array[...])
        documents = 1 if zarr_format == 3 else 2
        assert len([*store.list("a")]) == documents + (5, 3)[who], (order, ends, [*store.list("a")])
        assert not any(".zstore" in key for key in store.list()), (order, ends)


def test_in_a_bucket_who_replaces_by_an_empty_array_makes_way_for_one_who_stores_chunks(monkeypatch):
    """He comes between the other's removal of the old array and his mark, and after his look behind it."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    turns, begun = in_bucket(), list[threading.Thread]()
    empty, full = turns.stores
    zstore.create_group(empty).create_array("a", data=VALUES, chunks=2)
    is_removed, may_mark, is_at_chunks, may_go_on = (threading.Event() for _ in range(4))
    get_many, put_new, put = TurnBucket.get_many, TurnBucket.put_new, TurnBucket.put

    def hooked_get_many(store, requests):
        [*requests] = requests
        if store is empty and not begun and any(key == "a/zarr.json" for key, _ in requests):
            begun.append(threading.Thread(target=MAKERS["full, overwrite"], args=(full,)))
            begun[0].start()
            assert is_removed.wait(60)
        return get_many(store, requests)

    def hooked_put_new(store, key, value):
        if store is full and b'"create"' in bytes(value):
            is_removed.set()
            assert may_mark.wait(60)
        if store is empty and key == "a/zarr.json":
            may_mark.set()
            assert is_at_chunks.wait(60)
        return put_new(store, key, value)

    def hooked_put(store, key, value):
        if store is full and key == "a/c/0":
            is_at_chunks.set()
            assert may_go_on.wait(60)
        return put(store, key, value)

    monkeypatch.setattr(TurnBucket, "get_many", hooked_get_many)
    monkeypatch.setattr(TurnBucket, "put_new", hooked_put_new)
    monkeypatch.setattr(TurnBucket, "put", hooked_put)
    try:
        with pytest.raises(StoreError, match="a node is being made or removed"):
            CHANGES["empty"](empty)
    finally:
        may_go_on.set()
        begun[0].join(60)
    assert zstore.open_array(full, "a", mode="r")[...].tolist() == VALUES.tolist()
    assert not any(".zstore" in key for key in full.list())


BELOW: dict[str, Any] = {
    "full": lambda root: root.create_array("g/new", data=VALUES, chunks=2),
    "empty": lambda root: root.create_array("g/new", **GRID),
    "require": lambda root: root.require_group("g/new/below"),
    # In a group that is new, too: what it stores looks like chunks of the array that another makes there.
    "in new": lambda root: root.create_array("h/7", data=VALUES, chunks=2, chunk_key_encoding=LIKE_V2),
}
ABOVE: dict[str, Any] = {
    "group": lambda root: root.create_group("g", attributes={"n": 1}, overwrite=True),
    "array": lambda root: root.create_array("g", data=VALUES, chunks=2, overwrite=True),
    "delete": lambda root: root.__delitem__("g"),
    "consolidate": lambda root: root.consolidate(),
    "new": lambda root: root.create_array(
        "h", data=VALUES.reshape(2, 2), chunks=1, chunk_key_encoding=LIKE_V2
    ),
}
LIKE_V2 = {"name": "v2", "separator": "/"}
MADE_BELOW = {"full": "g/new", "empty": "g/new", "require": "g/new/below", "in new": "h/7"}


def _seen(store: Store, mode: Any) -> dict[str, Any]:
    """Attributes of groups and items of arrays below the root, by their paths."""
    nodes = zstore.open_group(store, mode=mode).members(max_depth=None)
    return {
        path: node[...].tolist() if isinstance(node, zstore.Array) else dict(node.attrs)
        for path, node in nodes
    }


@pytest.mark.parametrize("count", [5, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "names",
    [names for names in product(BELOW, ABOVE) if (names[0] == "in new") == (names[1] == "new")],
    ids=", ".join,
)
@pytest.mark.parametrize("make_turns", [kind for kind in KINDS if kind is not in_bucket], indirect=True)
def test_what_is_made_below_a_group_that_another_changes_is_whole_or_gone_with_it(
    make_turns: Callable[[], Turns], names: tuple[str, str], zarr_format: int, count: int
) -> None:
    """Of a group that is replaced, what was there may be gone while one is refused; nothing is hidden."""

    def make() -> Turns:
        turns = make_turns()
        root = zstore.create_group(turns.store, zarr_format=zarr_format)
        root.create_array("g/old", data=VALUES[::-1], chunks=4)
        return turns

    def ask(act: Callable[[zstore.Group], Any]) -> Callable[[Store], Any]:
        return lambda store: act(zstore.open_group(store, mode="r+"))

    def after(*calls: Any) -> dict[str, Any]:
        store = make().store
        for call in calls:
            with suppress(ZstoreError):
                call(store)
        return _seen(store, "r+")

    below, above = calls = [ask(BELOW[names[0]]), ask(ABOVE[names[1]])]
    both = [after(below, above), after(above, below)]
    known = [*both, after(below), after(above), {"g": {}}]
    counts = request_counts(make, calls)
    orders = [*some_orders(counts, count)]
    if names[1] == "new":  # each has looked around before the other begins, and ends when the other has
        first, second = counts
        cuts = product(range(2, 9), range(max(1, second - 8), second + 1))
        orders += [[0] * a + [1] * b + [0] * (first - a) + [1] * (second - b) for a, b in cuts]
    for order in orders:
        turns = make()
        ends, store = turns.run(order, *calls), turns.store
        found = _seen(store, "r+")
        if not any(isinstance(end, ZstoreError) for end in ends):
            assert found in both and names[1] != "new", (order, ends)
        for path, value in found.items():
            assert any(value == one.get(path) for one in known), (order, ends, path, value)
        assert _seen(store, "r") == found, (order, ends)
        path = MADE_BELOW[names[0]]
        assert not isinstance(ends[0], ZstoreError) or path not in found, (order, ends)
        left = [] if path in found else [*store.list(path)]
        # Beside an array that has come above, chunks may stay: they cannot be told from its own.
        is_below = any(isinstance(found.get(above), list) for above in ancestors(path))
        assert not (any(map(makes_node, left)) if is_below else left), (order, ends, left)
        assert not any(".zstore" in key for key in store.list()), (order, ends)
