"""What is done to make changes durable, as JSON; by `run_counted`, with PLACE."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from calls import Calls

import zstore
from zstore.storage.local import LocalStore
from zstore.storage.zip.store import ZipStore

ITEMS = np.arange(16, dtype="i2") + 1


def changes(place: Path, durable: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every way to change a store, in order: each is made when the ones before it are done."""
    store = LocalStore(place / "below" / "store", durable=durable)
    yield "group", lambda: zstore.create_group(store)
    yield "array", lambda: zstore.create_array(store, "g/a", data=ITEMS, chunks=(8,))
    array = zstore.open_array(store, "g/a", "r+")
    yield "write", lambda: array.__setitem__(..., ITEMS + 1)
    yield "write a part", lambda: array.__setitem__(slice(3, 11), 7)
    yield "fill value", lambda: array.__setitem__(slice(0, 8), 0)
    yield "append", lambda: array.append(ITEMS)
    yield "attributes", lambda: array.attrs.update(b=2)
    group = zstore.open_group(store, mode="r+")
    yield "consolidate", group.consolidate
    yield "delete", lambda: group.__delitem__("g")
    archive = ZipStore(f"{place}.zip", durable=durable)
    zstore.create_group(archive)
    yield "zip", archive.close


def main(base: str, changes: Callable[[Path, bool], Iterator[tuple[str, Callable[[], Any]]]]) -> None:
    """Print the calls of every change, made durable and plain."""
    zstore.set_threads(1)
    place = Path(base)
    calls, logs = Calls(place), {}
    for kind, durable in (("durable", True), ("plain", False)):
        for name, act in changes(place / kind, durable):
            with calls.recorded():
                act()
            logs[f"{kind}: {name}"] = calls.log
    print(json.dumps(logs))


if __name__ == "__main__":
    main(sys.argv[1], changes)
