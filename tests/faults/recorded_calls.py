"""What is done to make changes durable, as JSON; by `run_counted`, with PLACE."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from calls import Calls

import zstore
from zstore.storage.local import LocalStore
from zstore.storage.zip.store import ZipStore

ITEMS = np.arange(16, dtype="i2") + 1


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
        zstore.set_durable(durable)
        where = str(place / kind / "set")
        record(f"{kind}: convert", lambda where=where, place=place: zstore.convert(place / "source", where))
        record(
            f"{kind}: pyramid",
            lambda where=where, place=place: zstore.build_pyramid(
                zstore.open_array(place / "source", mode="r"), f"{where}-pyramid", levels=1, method="average"
            ),
        )
        zstore.set_durable(None)
        archive = ZipStore(place / f"{kind}.zip", durable=durable)
        zstore.create_group(archive)
        record(f"{kind}: zip", archive.close)
    print(json.dumps(logs))


if __name__ == "__main__":
    main(*sys.argv[1:])
