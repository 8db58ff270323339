"""Means of months, and a climatology of them, of 10,000 daily maps, beside one pass that decodes every chunk.

`python -m benchmarks.periods [FOLDER]` makes arrays of the same float32 maps (181 x 180) in chunks of 1, 31
and 100 days, and prints a table in Markdown: seconds of processor (the least of three processes) and the peak
of memory. `zstore verify` is the pass that decodes. With FOLDER, what is there is kept for the next time.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

COUNT, ROUNDS = 10_000, 3
CHUNKS = {"1 day": (1, 181, 180), "31 days": (31, 181, 180), "100 days, in quarters": (100, 91, 90)}
WORK: dict[str, dict[str, Any]] = {"verify": {}, "months": {"every": "month"}, "climatology": {"by": "month"}}


def make(place: Path, chunks: tuple[int, ...] | None, count: int = COUNT) -> None:
    """A group of maps that change from day to day, with their coordinates."""
    import zstore

    group = zstore.create_group(place)
    sides: dict[str, tuple[Any, str]] = {
        "time": (np.arange(count), "days since 1990-01-01"),
        "lat": (np.linspace(90, -90, 181), "degrees_north"),
        "lon": (np.arange(0, 360, 2.0), "degrees_east"),
    }
    for name, (values, units) in sides.items():
        group.create_array(name, data=values, dimension_names=[name], attributes={"units": units})
    options: dict[str, Any] = {"chunks": chunks or "auto", "dtype": "f4", "compressors": "zstd"}
    array = group.create_array("t2m", shape=(count, 181, 180), dimension_names=[*sides], **options)
    rng = np.random.default_rng(0)
    base = rng.normal(280, 10, (181, 180))
    for first in range(0, count, 100):
        days = np.arange(first, min(first + 100, count))
        season = 10 * np.sin(days / 58)[:, None, None]
        array[first : first + 100] = np.round(base + season + rng.normal(0, 2, (len(days), 181, 180)), 1)


def work(name: str, source: Path, target: Path) -> None:
    """Do the work, as if it were not the first of the process, and print (seconds, MiB)."""
    import zstore

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "s", None, 40)
        for small, out, ways in ((True, Path(folder) / "o", WORK[name]), (False, target, WORK[name])):
            begin = os.times()
            at = Path(folder) / "s" if small else source
            if ways:
                zstore.reduce(at, "mean", out=out, overwrite=True, **ways)
            else:
                zstore.verify(at)
            end = os.times()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([end.user + end.system - begin.user - begin.system, peak]))


def main(folder: Path) -> None:
    print("| chunks | " + " | ".join(f"{name}, s | MiB" for name in WORK) + " |")
    print("|---|" + "--:|" * 2 * len(WORK))
    for number, (words, chunks) in enumerate(CHUNKS.items()):
        source, target = folder / f"{number}.zarr", folder / "out.zarr"
        if not source.exists():
            make(source, chunks)
        cells = []
        for name in WORK:
            line = [sys.executable, "-m", "benchmarks.periods", name, os.fspath(source), os.fspath(target)]
            runs = [json.loads(subprocess.check_output(line)) for _ in range(ROUNDS)]
            cells += [f"{min(run[0] for run in runs):.2f}", f"{max(run[1] for run in runs):.0f}"]
        print(f"| {words} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in WORK:
        work(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1:]:
        Path(sys.argv[1]).mkdir(exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
