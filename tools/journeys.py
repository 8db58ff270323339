"""Through how many rooms and files six everyday calls go; `python tools/journeys.py` prints them.

Each call is made twice, and the second one is watched: every file of the package in which a function runs
counts, and the rooms they are in; and how often a function of `engine/making` is called from another file.
What the kernels do is one step, however much that is.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import zstore

__all__ = ["journeys", "walk"]

PACKAGE = Path(zstore.__file__).parent
MAKING = "engine/making.py"
OPTIONS: dict[str, Any] = {"chunks": (64, 64), "shards": (256, 256), "dimension_names": ["y", "x"]}


def walk(call: Callable[[], Any]) -> dict[str, int]:
    """By the files of the package that `call` goes through, how often it enters each from another file."""
    files: dict[str, int] = {}

    def enter(frame: Any, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{PACKAGE}/"):
            is_within = frame.f_back is not None and frame.f_back.f_code.co_filename == file
            files[file] = files.get(file, 0) + (not is_within)

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return {str(Path(file).relative_to(PACKAGE)): count for file, count in files.items()}


def journeys(place: Path) -> dict[str, Callable[[int], Any]]:
    """What is watched, by name; the number is that of the call, for those that make something."""
    import rasterio
    from affine import Affine

    from zstore.geo.validation.fixing.fix import plan_fix

    items = np.arange(512 * 512, dtype="u2").reshape(512, 512)
    array = zstore.create_array(place / "array.zarr", "a", data=items, **OPTIONS)
    raster = {
        "driver": "GTiff",
        "width": 512,
        "height": 512,
        "count": 1,
        "dtype": "uint16",
        "crs": "EPSG:32622",
    }
    with rasterio.open(
        place / "raster.tif", "w", transform=Affine(30, 0, 5e5, 0, -30, 7e6), **raster
    ) as file:
        file.write(items, 1)
    zstore_convert(place / "raster.tif", place / "scene.zarr")
    return {
        "read": lambda _: array[100:300, 7],
        "write": lambda _: array.__setitem__((slice(0, 10), slice(0, 10)), 7),
        "open": lambda _: zstore.open_array(place / "array.zarr", "a", mode="r"),
        "create": lambda n: zstore.create_array(
            place / "made.zarr", f"a{n}", shape=(512, 512), dtype="u2", **OPTIONS
        ),
        "pyramid": lambda n: zstore.build_pyramid(place / "scene.zarr", place / f"pyramid{n}.zarr", levels=2),
        "validate and fix": lambda _: (zstore.validate(place / "scene.zarr"), plan_fix(place / "scene.zarr")),
    }


def zstore_convert(raster: Path, target: Path) -> None:
    """The raster as a store, by the command."""
    from zstore.cli.main import main

    given, sys.argv = sys.argv, ["zstore", "convert", str(raster), str(target)]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = given


def main() -> None:
    """Print rooms and files of every journey, or with --json how often each enters which files."""
    walked = {}
    with tempfile.TemporaryDirectory() as name:
        for journey, call in journeys(Path(name)).items():
            call(0)
            walked[journey] = walk(lambda call=call: call(1))  # type: ignore[misc]
    if sys.argv[1:] == ["--json"]:
        print(json.dumps(walked))
        return
    print("journey           rooms  files  entries into engine/making")
    for journey, files in walked.items():
        rooms = {file.split("/")[0].removesuffix(".py") for file in files}
        counts = f"{len(rooms):5} {len(files):6} {files.get(MAKING, 0):7}"
        print(f"{journey:<16} {counts}  {' '.join(sorted(rooms))}")


if __name__ == "__main__":
    main()
