"""Refreshes that die at each change of the target: one state of the source, nothing lost."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import numpy as np
import pytest

import zstore
from zstore.engine.intents import find_unfinished
from zstore.errors import StoreError, ZstoreError
from zstore.storage.base import Store
from zstore.storage.local import LocalStore

from ..storage.bucket_server import BucketServer
from .test_makers_and_rests import (
    PYRAMID,
    SQUARE,
    DyingStore,
    Ground,
    MeetingStore,
    arrays_in,
    below,
    changed,
    put_array,
    silent,
    unnamed,
)


def rewrite(source: Store) -> None:
    """Other values in two chunks, one chunk that goes away, other attributes."""
    array = zstore.open_array(source, "a", mode="r+")
    array[3, 3] = 9
    array[40:42, 20] = 7
    array.attrs["title"] = "rewritten"
    source.delete("a/c/1/1")


def grow(source: Store) -> None:
    """16 rows more, and a value among the old ones."""
    rewrite(source)
    zstore.open_array(source, "a", mode="r+").append(np.full((16, 64), 5, "u2"))
    zstore.open_array(source, "y", mode="r+").append(7e6 - 30.0 * np.arange(64, 80))


def shrink(source: Store) -> None:
    rewrite(source)
    zstore.open_array(source, "a", mode="r+").resize((40, 64))
    zstore.open_array(source, "y", mode="r+").resize((40,))


def add(source: Store) -> None:
    """An array that the source did not have, with the keys of `SQUARE`."""
    rewrite(source)
    zstore.create_array(source, "late", data=np.arange(1, 7, dtype="u2").reshape(2, 3), chunks=(1, 2))


class Refresh(NamedTuple):
    """A job whose target is refreshed by the same call; how its source changes; how it is begun anew."""

    act: Callable[..., Any]
    change: Callable[[Store], None]
    anew: Mapping[str, Any] = {"overwrite": True}


def copy(source: Store, target: Store, **how: Any) -> Any:
    return zstore.copy(source, target, target_path="t", **how)


def convert(source: Store, target: Store, **how: Any) -> Any:
    return zstore.convert(source, target, target_path="t", **how)


def recode(source: Store, target: Store, **how: Any) -> Any:
    return zstore.convert(source, target, target_path="t", chunks=8, compressors="zstd", **how)


def build(source: Store, target: Store, **how: Any) -> Any:
    return zstore.build_pyramid(source, below(target), **PYRAMID, **how)


COPIED = {"if_exists": "overwrite", "delete": True}
REFRESHES = {
    "copy, rewritten": Refresh(copy, rewrite, COPIED),
    "copy, grown": Refresh(copy, grow, COPIED),
    "copy, cut": Refresh(copy, shrink, COPIED),
    "copy, with a new array": Refresh(copy, add, COPIED),
    "convert, rewritten": Refresh(convert, rewrite),
    "convert, grown": Refresh(convert, grow),
    "convert, cut": Refresh(convert, shrink),
    "convert, with a new array": Refresh(convert, add),
    "other chunks, rewritten": Refresh(recode, rewrite),
    "other chunks, grown": Refresh(recode, grow),
    "other chunks, cut": Refresh(recode, shrink),
    "other chunks, with a new array": Refresh(recode, add),
    "build_pyramid, rewritten": Refresh(build, rewrite),
    "build_pyramid, grown": Refresh(build, grow),
}


def write_again(source: Store) -> None:
    """What somebody does to the source while the target waits to be gone on with."""
    array = zstore.open_array(source, "a", mode="r+")
    array[3, 3] = 11
    array[30, 60] = 12


def write_same(source: Store) -> None:
    """Other values in the very chunks that were written before."""
    array = zstore.open_array(source, "a", mode="r+")
    array[3, 3] = 13
    array[40:42, 20] = 14


def attributes_in(store: Store) -> dict[str, str]:
    """The attributes of the target and its members, without the names of the source and of the build."""
    node = zstore.open_group(store, "t", mode="r")
    found = {"": dict(node.attrs), **{name: dict(member.attrs) for name, member in node.items()}}
    return {
        name: re.sub(r"/source\d+|[0-9a-f]{16}", "", json.dumps(attributes, sort_keys=True))
        for name, attributes in found.items()
    }


class Night:
    """A finished target in a fresh store, whose source has changed since."""

    def __init__(self, ground: Ground, refresh: Refresh, changes: bool = True) -> None:
        self.ground, self.refresh = ground, refresh
        place = ground.place / f"source{next(ground.numbers)}"
        copytree(ground.place / "raster", place)
        self.source = LocalStore(place)
        self.store = ground.make({})
        zstore.create_group(self.store)
        put_array(self.store, "kept", 3)
        self.run()
        self.first = self.look()
        if changes:
            refresh.change(self.source)

    def run(self, store: Store | None = None, **how: Any) -> Any:
        return self.refresh.act(self.source, store or self.store, **({"resume": True} | how))

    def look(self) -> tuple[dict[str, Any], dict[str, Any]]:
        seen = self.ground.look(self.store)
        return arrays_in(seen), attributes_in(seen)

    def die(self, number: int) -> bool:
        """Let the refresh die at that change; whether it came to it."""
        dying = DyingStore(self.store, "")
        dying.left = number
        with suppress(StoreError):
            self.run(dying)
        return dying.left < 0

    def check_ended(self, expected: tuple[dict[str, Any], dict[str, Any]], what: str) -> list[str]:
        problems, seen = [], self.ground.look(self.store)
        now = self.look()
        if now != expected:
            differing = changed(expected[0], now[0]) or "attributes or more arrays"
            problems.append(f"{what}: another result than of an undisturbed refresh: {differing}")
        if left := [str(work) for work in find_unfinished(seen, "")]:
            problems.append(f"{what}: still unfinished {left}")
        if left := unnamed(seen):
            problems.append(f"{what}: nobody names {left[:4]}")
        return problems


def result_of(ground: Ground, refresh: Refresh, *changes: Callable[[Store], None]) -> Any:
    """What an undisturbed refresh makes, which is what the call makes at an empty place, too."""
    night = Night(ground, refresh, changes=False)
    for change in changes:
        change(night.source)
    night.run()
    found = night.look()
    night.store = ground.make({})
    zstore.create_group(night.store)
    put_array(night.store, "kept", 3)
    night.run(resume=False)
    assert night.look()[0] == found[0]
    return found


class Drill:
    """One refresh, which dies; and all ways to go on."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.ground, self.refresh = ground, REFRESHES[name]
        self.change = self.refresh.change
        self.expected = result_of(ground, self.refresh, self.change)
        self.later = result_of(ground, self.refresh, self.change, write_again)
        self.same = result_of(ground, self.refresh, self.change, write_same)
        self.makes = "t/late" if self.change is add else ""
        night = Night(ground, self.refresh)
        counting = DyingStore(night.store, "")
        counting.left = 1 << 30
        night.run(counting)
        self.change_count = (1 << 30) - counting.left

    def ways(self) -> dict[str, Callable[[Night, int], list[str]]]:
        return {
            "resume": self.resume,
            "die twice": self.die_twice,
            "written meanwhile": lambda night, number: self.write(night, write_again, self.later),
            "the same chunks again": lambda night, number: self.write(night, write_same, self.same),
            "begun anew": self.begin_anew,
            **({"a maker": self.meet_maker} if self.makes else {}),
        }

    def round(self, number: int, way: str) -> list[str] | None:
        """The faults where the refresh dies at that change and somebody goes on; None if it did not die."""
        night, problems = Night(self.ground, self.refresh), list[str]()
        if not night.die(number):
            return None
        seen = self.ground.look(night.store)
        now = night.look()
        if changed({"kept": self.expected[0]["kept"]}, now[0]):
            problems.append("kept changed")
        if now not in (night.first, self.expected) and not find_unfinished(seen, ""):
            problems.append("neither old nor new, and nothing is said to be unfinished")
        if left := unnamed(seen):
            problems.append(f"nobody names {left[:4]}")
        if way == "resume" and (left := silent(night.store)):
            problems.append(f"{left} do not tell of unfinished work")
        return problems + self.ways()[way](night, number)

    def resume(self, night: Night, number: int) -> list[str]:
        night.run()
        problems = night.check_ended(self.expected, "resumed")
        counting = DyingStore(night.store, "")
        counting.left = 1 << 30
        night.run(counting)
        return problems + (["the next night writes"] if counting.left < 1 << 30 else [])

    def die_twice(self, night: Night, number: int) -> list[str]:
        night.die(number // 2 + 1)
        night.run()
        return night.check_ended(self.expected, "resumed after two deaths")

    def write(self, night: Night, act: Callable[[Store], None], expected: Any) -> list[str]:
        """Write to the source between the death and the next night."""
        act(night.source)
        night.run()
        problems = night.check_ended(expected, "resumed after the source was written to")
        night.run()
        return problems + night.check_ended(expected, "and the next night")

    def begin_anew(self, night: Night, number: int) -> list[str]:
        night.run(resume=False, **self.refresh.anew)
        problems = night.check_ended(self.expected, "begun anew")
        # What a fingerprint says is of the target that was replaced.
        with suppress(StoreError):
            night.run()
            problems += night.check_ended(self.expected, "refreshed after it was begun anew")
        return problems

    def meet_maker(self, night: Night, number: int) -> list[str]:
        """Somebody makes an array where the refresh is to make one."""
        return self.check_maker(night, make(night.store, self.makes))

    def check_maker(self, night: Night, is_made: bool) -> list[str]:
        with suppress(ZstoreError):
            night.run()
        after = night.look()[0].get(self.makes)
        return ["a maker's array is lost"] if is_made and after != SQUARE.tolist() else []

    def meet(self, number: int) -> tuple[bool, list[str]]:
        """Let a maker come at that change of a refresh at work; whether he made an array, and the faults."""
        night, made = Night(self.ground, self.refresh), list[bool]()
        with suppress(ZstoreError):
            night.run(MeetingStore(night.store, number, lambda: made.append(make(night.store, self.makes))))
        return any(made), self.check_maker(night, any(made))


def make(store: Store, path: str) -> bool:
    with suppress(ZstoreError):
        zstore.create_array(store, path, data=SQUARE, chunks=(1, 2))
        return True
    return False


def run_drill(ground: Ground, name: str, steps: int) -> int:
    """How many rounds have died, at so many changes of a refresh."""
    drill, problems, rounds = Drill(ground, name), list[Any](), 0
    total = drill.change_count
    numbers = range(total) if steps >= total else [total * i // (steps + 1) for i in range(1, steps + 1)]
    for number in numbers:
        for way in drill.ways():
            found = drill.round(number, way)
            rounds += found is not None
            problems += [(number, way, found)] if found else []
    assert not problems, (total, len(problems), problems[:12])
    return rounds


@pytest.fixture
def ground(request: Any, tmp_path: Path) -> Iterator[Ground]:
    with warnings.catch_warnings(), BucketServer() as server:
        warnings.simplefilter("ignore")
        yield Ground(request.param, tmp_path, server)


@pytest.mark.parametrize("ground", ["directory"], indirect=True)
@pytest.mark.parametrize(
    "name", [name for name, one in REFRESHES.items() if one.change is add or "build" in name]
)
def test_a_refresh_that_dies_is_gone_on_with(ground: Ground, name: str) -> None:
    assert run_drill(ground, name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["directory", "bucket"], indirect=True)
@pytest.mark.parametrize("name", REFRESHES)
def test_a_refresh_that_dies_at_every_step(ground: Ground, name: str) -> None:
    print(f"{name}: {run_drill(ground, name, 1000)} rounds")


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["directory", "bucket"], indirect=True)
@pytest.mark.parametrize("name", [name for name, one in REFRESHES.items() if one.change is add])
def test_makers_who_come_to_a_refresh_at_every_step(ground: Ground, name: str) -> None:
    drill, problems, made = Drill(ground, name), list[Any](), 0
    for number in range(drill.change_count):
        is_made, found = drill.meet(number)
        made += is_made
        problems += [(number, found)] if found else []
    print(f"{name}: {made} of {drill.change_count} makers were let in")
    assert not problems, problems
