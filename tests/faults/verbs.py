"""Every verb where memory is scarce: a program, PLACE NAME|… stack SIZE, limited, or refused KINDS STEP.

`stack` does the operation in a thread with a stack of SIZE bytes. `limited` does it again and again, with
more memory left each time, from none to 128 MiB. `refused` does it again and again, by `run_counted`: each
time another call of the KINDS of `calls.py` is refused, every STEPth that it makes.
"""

from __future__ import annotations

import asyncio
import errno
import faulthandler
import json
import resource
import shutil
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from calls import KERNELS, MEMORY, Calls

import zstore
import zstore._ext.reduce.fold
import zstore._ext.resample.blocks
import zstore.guests.numcodecs
from zstore.errors import ZstoreError

ITEMS = np.arange(64 * 64, dtype="i4").reshape(64, 64)
TEXT = np.array(["a", "b" * 1000, ""] * 5, dtype=np.dtypes.StringDType())
SHARDED: dict[str, Any] = {"chunks": (16, 16), "shards": (32, 32)}
CODECS = ("zstd:9", "gzip:9", "numcodecs.lz4", "numcodecs.zlib", "blosc", "crc32c")


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)


class Verb:
    """One operation: what is there before, what is done, and a check of what is there afterwards.

    `act` can be called again after it has failed, and is done whole then.
    """

    def __init__(
        self,
        act: Callable[[Path], Any],
        check: Callable[[Path, Any], None],
        prepare: Callable[[Path], Any] = lambda place: make(place),
    ) -> None:
        self.act = act
        self.check = check
        self.prepare = prepare


def make(place: Path, **options: Any) -> zstore.Array:
    return zstore.create_array(place, "a", **{"data": ITEMS, **SHARDED, "overwrite": True, **options})


def opened(place: Path, mode: Any = "r") -> zstore.Array:
    return zstore.open_array(place, "a", mode=mode)


def reading(read: Callable[[zstore.Array], Any], expected: Any, **options: Any) -> Verb:
    return Verb(
        lambda place: read(opened(place)),
        lambda place, result: same(result, expected),
        lambda place: make(place, **options),
    )


def writing(selection: Any, value: Any, **options: Any) -> Verb:
    expected = ITEMS.copy()
    expected[selection] = value

    def act(place: Path) -> None:
        opened(place, "r+")[selection] = value

    return Verb(
        act,
        lambda place, _: same(opened(place)[...], expected),
        lambda place: make(place, **options),
    )


def making(act: Callable[[Path], Any], expected: Any, path: str = "", target: str = "new") -> Verb:
    """An operation that makes a new node beside the array."""
    return Verb(
        lambda place: act(place),
        lambda place, _: same(zstore.open_array(str(place.parent / target), path, mode="r")[...], expected),
    )


def is_scarcity(damage: Any) -> bool:
    """Whether a chunk could not be read for want of memory or files, and is not said to be damaged."""
    return damage.kind == "unreachable" or "emory" in damage.cause


def beside(place: Path) -> Path:
    return place.parent / "new"


def resize(place: Path) -> None:
    array = opened(place, "r+")
    array.resize((80, 64))
    array.resize((50, 64))


def append(place: Path) -> None:
    array = opened(place, "r+")
    if array.shape == ITEMS.shape:
        array.append(ITEMS[:10])


def delete(place: Path) -> None:
    group = zstore.open_group(place, mode="r+")
    if "a" in group:
        del group["a"]


def link(place: Path) -> None:
    make(place, shards=None)
    chunk = place / "a/c/0/0"
    chunk.rename(chunk.with_name("moved"))
    chunk.symlink_to(chunk.with_name("moved").absolute())


def zip_file(place: Path) -> None:
    target = place.parent / "new.zip"
    zstore.copy(place, str(target), if_exists="overwrite", resume=target.exists())


def refer(place: Path) -> None:
    opened(place)
    references = {"a/zarr.json": (place / "a/zarr.json").read_text()}
    for chunk in (place / "a/c").rglob("*"):
        if chunk.is_file():
            references[str(chunk.relative_to(place))] = [str(chunk), 0, chunk.stat().st_size]
    (place.parent / "refs.json").write_text(json.dumps({"version": 1, "refs": references}))


AGAIN: dict[str, Any] = {"overwrite": True}
VERBS: dict[str, Verb] = {
    "open": reading(lambda a: np.array(a.shape), [64, 64]),
    "read": reading(lambda a: a[...], ITEMS),
    "read a part": reading(lambda a: a[3:40, 5:60], ITEMS[3:40, 5:60]),
    "read steps": reading(lambda a: a[::-3, 5::7], ITEMS[::-3, 5::7]),
    "read points": reading(lambda a: a.vindex[[3, 4, 50], [1, 2, 3]], ITEMS[[3, 4, 50], [1, 2, 3]]),
    "read a mask": reading(lambda a: a[ITEMS > 5], ITEMS[ITEMS > 5]),
    "read many": reading(
        lambda a: np.concatenate([part.ravel() for part in a.read_many([np.s_[0:9, 0:9], np.s_[5:50, 3]])]),
        np.concatenate([ITEMS[0:9, 0:9].ravel(), ITEMS[5:50, 3]]),
    ),
    "read awaited": reading(lambda a: asyncio.run(a.read_async(np.s_[1:60])), ITEMS[1:60]),
    "read text": reading(lambda a: a[...], TEXT, data=TEXT, dtype="string", chunks=4, shards=None),
    "read by a codec in Python": reading(
        lambda a: a[...], ITEMS, compressors=[{"name": "numcodecs.bz2", "configuration": {"level": 1}}]
    ),
    "read through a link": Verb(
        lambda place: opened(place)[...],
        lambda place, result: same(result, ITEMS),
        link,
    ),
    "read references": Verb(
        lambda place: zstore.open(
            f"virtual://{place.parent}/refs.json", "a", storage_options={"allow": [str(place)]}, mode="r"
        )[...],
        lambda place, result: same(result, ITEMS),
        lambda place: (make(place, shards=None, chunks=(32, 32)), refer(place)),
    ),
    "write": writing(..., ITEMS + 1),
    "write a part": writing(np.s_[3:40, 3:40], 7),
    "write points": writing(([1, 5, 60], [2, 9, 11]), 7, shards=None),
    **{f"write a part, {codec}": writing(np.s_[3:40, 3:40], 7, compressors=codec) for codec in CODECS},
    "create": making(lambda place: make(beside(place)), ITEMS, "a"),
    "append": Verb(
        append,
        lambda place, _: same(opened(place)[...], np.concatenate([ITEMS, ITEMS[:10]])),
    ),
    "resize": Verb(resize, lambda place, _: same(opened(place)[...], ITEMS[:50])),
    "delete": Verb(delete, lambda place, _: same(list(zstore.open_group(place, mode="r")), [])),
    "attributes": Verb(
        lambda place: opened(place, "r+").attrs.update({"b": [1]}),
        lambda place, _: same(opened(place).attrs["b"], [1]),
    ),
    "consolidate": Verb(
        lambda place: zstore.consolidate(place),
        lambda place, _: same(zstore.open_consolidated(place)["a"][...], ITEMS),
    ),
    "copy": making(lambda place: zstore.copy(place, beside(place), if_exists="overwrite"), ITEMS, "a"),
    "convert": making(
        lambda place: zstore.convert(place, beside(place), chunks=(20, 30), shards=None, **AGAIN), ITEMS, "a"
    ),
    "rechunk": making(
        lambda place: zstore.convert(
            place, beside(place), chunks=(64, 2), shards=None, memory=1 << 16, **AGAIN
        ),
        ITEMS,
        "a",
    ),
    "reduce": reading(lambda a: a.reduce("sum", axis=0), ITEMS.sum(0)),
    "pyramid": making(
        lambda place: zstore.build_pyramid(str(place / "a"), beside(place), levels=2, **AGAIN),
        ITEMS[::2, ::2] + 33,
        "1/a",
    ),
    "average": Verb(
        lambda place: zstore.downsample(ITEMS.astype("f8"), (2, 2), method="average"),
        lambda place, result: same(result, ITEMS[::2, ::2] + 32.5),
    ),
    "mode": Verb(
        lambda place: zstore.downsample(ITEMS // 2, (1, 2), method="mode"),
        lambda place, result: same(result, ITEMS[:, ::2] // 2),
    ),
    "cubic": Verb(
        lambda place: zstore.downsample(np.ones((64, 64), "f4"), (2, 2), method="cubic"),
        lambda place, result: same(result, np.ones((32, 32))),
    ),
    "verify": Verb(
        # A chunk for which there is no memory cannot be vouched for, and it says why.
        lambda place: zstore.verify(place),
        lambda place, result: same([d for d in result.damages if not is_scarcity(d)], []),
    ),
    "zip": Verb(
        zip_file,
        lambda place, _: same(zstore.open_array(str(place.parent / "new.zip"), "a", mode="r")[...], ITEMS),
    ),
}


def small_stack(verb: Verb, place: Path, size: int) -> None:
    """Do it on the main thread, which imports what is imported late, then on one with a small stack."""
    failed = []

    def run() -> None:
        try:
            verb.check(place, verb.act(place))
        except BaseException:
            failed.append(traceback.format_exc())

    verb.prepare(place)
    run()
    verb.prepare(place)
    # Every thread that Python starts from now on has this stack.
    usual = threading.stack_size(size)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(usual)
    assert not failed, "".join(failed)


def is_said(failure: BaseException) -> bool:
    """Whether an error says in the right words that memory, or another thing, was refused."""
    if isinstance(failure, MemoryError):
        return True
    # CPython's own locks and threads say so.
    if isinstance(failure, RuntimeError):
        return str(failure) in ("can't allocate lock", "can't allocate read lock", "can't start new thread")
    return isinstance(failure, OSError | ZstoreError) and bool(str(failure))


class Trial:
    """An operation that is done where something is refused, and again where nothing is."""

    def __init__(self, verb: Verb, place: Path) -> None:
        self.verb, self.place = verb, place
        self.found = Counter[str]()
        for _ in range(2):  # what is imported late, and what is kept
            verb.prepare(place)
            verb.check(place, verb.act(place))

    def run(self, what: object, refusing: Callable[[], AbstractContextManager[Any]]) -> None:
        """Count the kind of error that comes of it, or "none"."""
        verb, place = self.verb, self.place
        shutil.rmtree(beside(place), ignore_errors=True)
        verb.prepare(place)
        failure = result = None
        faulthandler.dump_traceback_later(60, exit=True)
        with refusing():
            try:
                result = verb.act(place)
            except BaseException as raised:
                failure = raised
        faulthandler.cancel_dump_traceback_later()
        self.found["none" if failure is None else type(failure).__name__] += 1
        if failure is None:
            verb.check(place, result)
        elif not is_said(failure):
            raise AssertionError(f"{what}: {failure!r}") from failure
        del failure
        verb.check(place, verb.act(place))


def refused(verb: Verb, place: Path, kinds: int, step: int) -> dict[str, int]:
    """Do it with each call refused; how often each kind of error came of it, or "none"."""
    calls, trial = Calls(place.parent), Trial(verb, place)
    error = errno.ENOMEM if kinds & (MEMORY | KERNELS) else errno.EMFILE
    for number in count(0, step):
        trial.run(f"call {number}", lambda number=number: calls.failing(kinds, number, error))
        if calls.count <= number:
            break
    return trial.found


@contextmanager
def limit(size: int) -> Iterator[None]:
    """Context in which the process may have so many bytes of addresses more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def limited(verb: Verb, place: Path) -> dict[str, int]:
    """Do it with nothing to 128 MiB left; how often each kind of error came of it, or "none"."""
    trial = Trial(verb, place)
    for size in (0, *(4096 << power for power in range(16))):
        trial.run(f"{size} bytes", lambda size=size: limit(size))
    return trial.found


def main(base: str, names: str, how: str, *numbers: str) -> None:
    place, found = Path(base) / "store", {}
    for name in names.split("|"):
        print(name, file=sys.stderr, flush=True)
        shutil.rmtree(base)
        zstore.create_group(place)
        if how == "stack":
            small_stack(VERBS[name], place, int(numbers[0]))
        elif how == "limited":
            found[name] = limited(VERBS[name], place)
        else:
            found[name] = refused(VERBS[name], place, int(numbers[0]), int(numbers[1]))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
