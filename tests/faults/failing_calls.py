"""Every system call of every writing operation fails; by `run_counted`, with PLACE STEP durable|plain NAME…

After each failure the store holds what it held before or what it was to hold, and the same operation, called
again, succeeds. STEP is how many calls lie between two that are tried. An operation that makes the very calls
in one layout that it has made in another is not tried again.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from calls import ALL, LOCK, MAKE, MKDIR, NAME, NEVER, OPEN, SHORT, SYNC, WRITE, Calls

import zstore
from zstore.engine.intents import INTENT
from zstore.errors import NotFoundError, ZstoreError
from zstore.storage.local import LocalStore

Items = np.ndarray[Any, Any]
LAYOUTS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (4, 8)},
    "plain": {"chunks": (4, 8), "compressors": None},
    "shards": {"chunks": (2, 4), "shards": (4, 8)},
    "v2": {"chunks": (4, 8), "zarr_format": 2},
    "python": {"chunks": (4, 8), "compressors": [{"name": "numcodecs.bz2", "configuration": {"level": 1}}]},
}
SHAPE = (10, 12)


def items(shape: tuple[int, ...], first: int) -> Items:
    return (np.arange(np.prod(shape)).reshape(shape) % 97 + first).astype("i2")


def fill(place: Path, layout: str) -> None:
    root = zstore.create_group(place, zarr_format=LAYOUTS[layout].get("zarr_format", 3))
    for path in ("a", "g/b"):
        root.create_array(path, shape=SHAPE, dtype="i2", attributes={"was": 1}, **options(layout))
        root[path][...] = items(SHAPE, 1)
    root["a"][4:8, 8:] = 0  # a chunk that is not stored


def options(layout: str) -> dict[str, Any]:
    return {name: value for name, value in LAYOUTS[layout].items() if name != "zarr_format"}


def opened(place: Path, path: str = "") -> Any:
    return zstore.open(LocalStore(place, durable=DURABLE), path, "r+")


DURABLE = False
OPERATIONS: dict[str, Callable[[Path, str], Any]] = {
    "write": lambda p, k: opened(p, "a").__setitem__(..., items(SHAPE, 100)),
    "write a part": lambda p, k: opened(p, "a").__setitem__(np.s_[3:5, 5:], 7),
    "write points": lambda p, k: opened(p, "a").vindex.__setitem__(([1, 5, 9], [2, 9, 11]), 7),
    "write the fill value": lambda p, k: opened(p, "a").__setitem__(np.s_[:4], 0),
    "append": lambda p, k: append(p),
    "append at the side": lambda p, k: append(p, 1),
    "grow": lambda p, k: opened(p, "a").resize((13, 20)),
    "shrink": lambda p, k: opened(p, "a").resize((5, 9)),
    "change the shape": lambda p, k: opened(p, "a").resize((5, 20)),
    "create": lambda p, k: opened(p).create_array("n/c", shape=SHAPE, dtype="i2", **options(k)),
    "create with data": lambda p, k: opened(p).create_array("n/c", data=items(SHAPE, 9), **options(k)),
    "overwrite": lambda p, k: opened(p).create_array(
        "a", shape=(3, 3), dtype="i2", overwrite=True, **options(k)
    ),
    "overwrite with data": lambda p, k: opened(p).create_array(
        "a", data=items((6, 9), 5), overwrite=True, **options(k)
    ),
    "overwrite the root": lambda p, k: zstore.create_group(
        LocalStore(p, durable=DURABLE), zarr_format=LAYOUTS[k].get("zarr_format", 3), overwrite=True
    ),
    "mode w": lambda p, k: zstore.open_group(p, "g", "w", LAYOUTS[k].get("zarr_format", 3)),
    "delete": lambda p, k: opened(p).__delitem__("g"),
    "create a group": lambda p, k: opened(p).create_group("g/h/i", attributes={"new": 1}),
    "overwrite a group": lambda p, k: opened(p).create_group("g", overwrite=True),
    "attributes": lambda p, k: opened(p, "a").attrs.update({"new": 1}),
    "attributes of a group": lambda p, k: opened(p, "g").attrs.put({"new": 1}),
    "consolidate": lambda p, k: opened(p).consolidate(),
}
# Every chunk is old or new by itself; of what is replaced, parts may be missing until it is done again.
BY_CHUNK = ("write", "write a part", "write points", "write the fill value")
IN_PARTS = ("overwrite", "overwrite with data", "overwrite the root", "mode w", "delete", "overwrite a group")
NEW = ("create", "create with data", "create a group")

# What a call may say, of which kinds of calls, and how often in a row.
ERRORS = {
    "ENOSPC": (errno.ENOSPC, MAKE | WRITE | NAME | MKDIR | SYNC, 1),
    "ENOSPC from then on": (errno.ENOSPC, MAKE | WRITE | NAME | MKDIR | SYNC, NEVER),
    "EIO": (errno.EIO, ALL & ~LOCK, 1),
    "EIO from then on": (errno.EIO, ALL & ~LOCK, NEVER),
    "EMFILE": (errno.EMFILE, OPEN | MAKE, 1),
    "EMFILE from then on": (errno.EMFILE, OPEN | MAKE, NEVER),
    "EINTR": (errno.EINTR, ALL, 1),
    "EINTR thrice": (errno.EINTR, ALL, 3),
    "short writes": (SHORT, WRITE, 1),
    "short writes, five": (SHORT, WRITE, 5),
}
HARMLESS = ("EINTR", "EINTR thrice", "short writes", "short writes, five")


def append(place: Path, axis: int = 0) -> None:
    array = opened(place, "a")
    if array.shape == SHAPE:
        array.append(items((3, 12) if axis == 0 else (10, 6), 50), axis=axis)


def seen(place: Path) -> dict[str, Any]:
    """What a reader finds, by path: a group's attributes, an array's attributes and items."""
    found: dict[str, Any] = {}
    pending = [""]
    while pending:
        path = pending.pop()
        try:
            node = zstore.open(LocalStore(place, read_only=True), path, "r")
        except NotFoundError:
            continue
        if isinstance(node, zstore.Array):
            found[path] = (node.attrs.asdict(), node[...])
        else:
            found[path] = node.attrs.asdict()
            pending += [f"{path}/{name}".lstrip("/") for name in node]
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return one[0] == other[0] and one[1].shape == other[1].shape and bool((one[1] == other[1]).all())
    return type(one) is type(other) and one == other


def all_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(same(one[path], other[path]) for path in one)


def is_fine(
    operation: str, now: dict[str, Any], old: dict[str, Any], new: dict[str, Any], layout: str
) -> bool:
    """Whether what a reader finds after a failure may be there."""
    if all_same(now, old) or all_same(now, new):
        return True
    if operation in BY_CHUNK:
        if now.keys() != old.keys() or not same(now["g/b"], old["g/b"]):
            return False
        outer = LAYOUTS[layout].get("shards") or LAYOUTS[layout]["chunks"]
        box = [slice(at, at + outer[0]) for at in range(0, SHAPE[0], outer[0])]
        side = [slice(at, at + outer[1]) for at in range(0, SHAPE[1], outer[1])]
        parts = [(rows, columns) for rows in box for columns in side]
        return all(
            any((now["a"][1][part] == state["a"][1][part]).all() for state in (old, new)) for part in parts
        )
    if operation in IN_PARTS:
        return all(any(same(found, state.get(path)) for state in (old, new)) for path, found in now.items())
    if operation in NEW:  # groups on the way to what is new
        return all(same(found, new.get(path)) for path, found in now.items()) and old.keys() <= now.keys()
    return False


def files(place: Path) -> list[str]:
    LocalStore(place)  # removes what the dead left
    found = (str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.endswith(INTENT))


# The names of temporary files.
CHANCE = re.compile(r"[0-9]+-[0-9a-f-]+|[0-9a-f]{8,}")


def calls_of(calls: Calls, place: Path, operation: str, layout: str) -> str:
    """How many calls of each kind an operation makes, and those that change something, in order."""

    def prepare() -> None:
        shutil.rmtree(place, ignore_errors=True)
        fill(place, layout)

    counts = []
    for kind in (1 << bit for bit in range(ALL.bit_length())):
        prepare()
        with calls.failing(kind, NEVER, errno.EIO):
            OPERATIONS[operation](place, layout)
        counts.append(calls.count)
    prepare()
    with calls.recorded():
        OPERATIONS[operation](place, layout)
    return json.dumps([counts, [CHANCE.sub("", line) for line in calls.log]])


def drill(calls: Calls, place: Path, operation: str, layout: str, step: int) -> dict[str, int]:
    act, template, whole = OPERATIONS[operation], place.parent / "old", place.parent / "new"
    for directory in (template, whole):
        shutil.rmtree(directory, ignore_errors=True)
        fill(directory, layout)
    act(whole, layout)
    old, new, expected = seen(template), seen(whole), files(whole)
    counts = {}
    for name, (error, kinds, times) in ERRORS.items():
        number = counts[name] = 0
        while True:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(template, place)
            where = f"{operation} ({layout}, durable={DURABLE}): {name} at call {number}"
            failure = None
            with calls.failing(kinds, number, error, times):
                try:
                    act(place, layout)
                except (ZstoreError, OSError) as raised:
                    failure = raised
            if calls.count <= number:
                break
            counts[name] += 1
            assert failure is None or name not in HARMLESS, f"{where}: {failure!r}"
            now = seen(place)
            if failure is None:
                assert all_same(now, new), f"{where}: nothing was said, and it was not done"
            else:
                assert is_fine(operation, now, old, new, layout), f"{where}: {failure}\n{now}"
                try:
                    act(place, layout)
                except ZstoreError as raised:
                    # What is done already may say so.
                    is_done = isinstance(raised, NotFoundError) or "there already" in str(raised)
                    if not is_done or not all_same(now, new):
                        raise AssertionError(f"{where}: {failure}; again: {raised}") from raised
                assert all_same(seen(place), new), f"{where}: not done by the second call"
            left = files(place)
            assert left == expected, f"{where}: {set(left) ^ set(expected)}"
            number += step
    return counts


def main(base: str, step: str, durable: str, *names: str) -> None:
    global DURABLE
    DURABLE = durable == "durable"
    zstore.set_threads(1)
    place = Path(base) / "store"
    calls, counts, tried = Calls(place), dict[str, Any](), dict[tuple[str, str], str]()
    for name in names:
        operation, _, layout = name.partition("/")
        other = tried.setdefault((operation, calls_of(calls, place, operation, layout)), layout)
        is_new = other == layout
        counts[name] = drill(calls, place, operation, layout, int(step)) if is_new else f"as {other}"
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
