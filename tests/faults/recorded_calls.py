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
from zstore.geo.validation.fixing.fix import fix
from zstore.storage.local import LocalStore
from zstore.storage.zip.store import ZipStore

ITEMS = np.arange(16, dtype="i2") + 1


def long_work(place: Path, kind: str, durable: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is told by an argument whether it is to be durable; then an array in v3 without a fill value."""
    source, where = place / "source", str(place / kind / "set")
    pyramid = f"{where}-pyramid"
    yield "convert", lambda: zstore.convert(source, where, durable=durable)
    array = zstore.open_array(source, mode="r")
    yield "pyramid", lambda: zstore.build_pyramid(array, pyramid, levels=1, durable=durable)
    yield "update", lambda: zstore.update_pyramid(pyramid, source=array, durable=durable)
    yield "gather", lambda: zstore.consolidate(pyramid, durable=durable)
    document = json.loads(Path(where, "zarr.json").read_text())
    document["fill_value"] = None
    Path(where, "zarr.json").write_text(json.dumps(document))


def main(base: str) -> None:
    zstore.set_threads(1)
    place = Path(base)
    calls, logs = Calls(place), {}

    def record(name: str, act: Callable[[], Any]) -> None:
        with calls.recorded():
            act()
        logs[name] = calls.log

    for kind, durable in (("durable", True), ("plain", False)):
        store = LocalStore(place / kind / "below" / "store", durable=durable)
        record(f"{kind}: group", lambda store=store: zstore.create_group(store))
        options = {"chunks": (8,), "shards": (8,) if kind == "shards" else None}
        record(
            f"{kind}: array",
            lambda store=store, options=options: zstore.create_array(store, "g/a", data=ITEMS, **options),
        )
        array = zstore.open_array(store, "g/a", "r+")
        record(f"{kind}: write", lambda array=array: array.__setitem__(..., ITEMS + 1))
        record(f"{kind}: write a part", lambda array=array: array.__setitem__(slice(3, 11), 7))
        record(f"{kind}: fill value", lambda array=array: array.__setitem__(slice(0, 8), 0))
        record(f"{kind}: append", lambda array=array: array.append(ITEMS))
        record(f"{kind}: attributes", lambda array=array: array.attrs.update(b=2))
        group = zstore.open_group(store, mode="r+")
        record(f"{kind}: consolidate", group.consolidate)
        record(f"{kind}: delete", lambda group=group: group.__delitem__("g"))
        for name, act in long_work(place, kind, durable):
            record(f"{kind}: {name}", act)
        zstore.set_durable(durable)
        record(
            f"{kind}: fix",
            lambda where=place / kind / "set": fix(where, fill_value=0, backup=f"{where}-backup"),
        )
        zstore.set_durable(None)
        archive = ZipStore(place / f"{kind}.zip", durable=durable)
        zstore.create_group(archive)
        record(f"{kind}: zip", archive.close)
    print(json.dumps(logs))


if __name__ == "__main__":
    main(*sys.argv[1:])
