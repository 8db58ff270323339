"""What long work does to make its changes durable, as JSON; by `run_counted`, with PLACE."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recorded_calls import main

import zstore
from zstore.geo.validation.fixing.fix import fix


def long_work(place: Path, durable: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is told by an argument whether it is to be durable; then an array in v3 without a fill value."""
    source, where = place.parent / "source", str(place / "set")
    pyramid = f"{where}-pyramid"
    yield "convert", lambda: zstore.convert(source, where, durable=durable)
    array = zstore.open_array(source, mode="r")
    yield "pyramid", lambda: zstore.build_pyramid(array, pyramid, levels=1, durable=durable)
    yield "update", lambda: zstore.update_pyramid(pyramid, source=array, durable=durable)
    yield "gather", lambda: zstore.consolidate(pyramid, durable=durable)
    document = json.loads(Path(where, "zarr.json").read_text())
    document["fill_value"] = None
    Path(where, "zarr.json").write_text(json.dumps(document))
    zstore.set_durable(durable)
    yield "fix", lambda: fix(where, fill_value=0, backup=f"{where}-backup")
    zstore.set_durable(None)


if __name__ == "__main__":
    main(sys.argv[1], long_work)
