"""Decoded chunks in memory on three traces: beside tensorstore's cache pool and zarr-python's CacheStore.

`pip install zarr tensorstore`, then `python benchmarks/cache_traces.py [FOLDER]`. A trace reads one of 8
steps of one of 128 chunks of 1 MiB at a time, with 32 MiB for the cache, in a process of its own. Hits are
those that the engines count themselves; CacheStore keeps compressed values, and counts none.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CACHE_SIZE = 32 << 20
CHUNK_COUNT, STEPS = 128, 8


def traces() -> dict[str, Any]:
    """The chunks that are read, one after the other, by the name of the trace."""
    random = np.random.default_rng(0)
    shares = 1 / np.arange(1, CHUNK_COUNT + 1) ** 1.1
    often = random.choice(CHUNK_COUNT, 4000, p=shares / shares.sum())
    hot, scan = [*range(20)] * 30, [*range(20, CHUNK_COUNT)]
    return {
        "Zipf": random.permutation(CHUNK_COUNT)[often],
        "hot, scan, hot, scan, hot": np.array(hot + scan + hot + scan + hot),
        "a loop over 1.5 x the cache": np.array([*range(48)] * 30),
    }


def open_zstore(path: str) -> tuple[Callable[[int], Any], Callable[[], int | None]]:
    import zstore

    zstore.set_cache_size(CACHE_SIZE)
    array = zstore.open_array(path)
    return array.__getitem__, lambda: zstore.cache_info().decoded_hit_count


def open_tensorstore(path: str) -> tuple[Callable[[int], Any], Callable[[], int | None]]:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}, "recheck_cached_data": "open"}
    context = {"cache_pool": {"total_bytes_limit": CACHE_SIZE}}
    array = tensorstore.open({**spec, "context": context}, read=True).result()

    def hits() -> int:
        metrics = tensorstore.experimental_collect_matching_metrics("/tensorstore/cache/hit_count")
        return sum(int(value["value"]) for metric in metrics for value in metric["values"])

    return lambda step: array[step].read().result(), hits


def open_zarr(path: str) -> tuple[Callable[[int], Any], Callable[[], int | None]]:
    import zarr
    from zarr.experimental.cache_store import CacheStore

    source = zarr.storage.LocalStore(path, read_only=True)
    store = CacheStore(source, cache_store=zarr.storage.MemoryStore(), max_size=CACHE_SIZE)
    array = zarr.open_array(store, mode="r")
    return array.__getitem__, lambda: None


ENGINES = {"zstore": open_zstore, "tensorstore": open_tensorstore, "zarr-python": open_zarr}


def run(engine: str, trace: str, path: str) -> None:
    """One trace, in this process."""
    chunks = traces()[trace]
    steps = chunks * STEPS + np.random.default_rng(1).integers(0, STEPS, len(chunks))
    read, hits = ENGINES[engine](path)
    begun = time.process_time()
    for step in steps.tolist():
        read(step)
    taken, count = time.process_time() - begun, hits()
    print(json.dumps([len(steps), None if count is None else count / len(steps), taken]))


def main(folder: Path) -> None:
    import zarr

    path = folder / "traces"
    if not path.exists():
        shape = (CHUNK_COUNT * STEPS, 128, 256)
        data = np.round(np.random.default_rng(0).normal(280, 10, shape), 1).astype("f4")
        chunks = (STEPS, 128, 256)
        zarr.create_array(path, data=data, chunks=chunks, compressors=zarr.codecs.ZstdCodec(level=3))
    print(f"{'trace':<30}{'engine':<14}{'reads':>8}{'hits':>8}{'processor':>11}")
    for trace in traces():
        for engine in ENGINES:
            command = [sys.executable, __file__, "--run", engine, trace, str(path)]
            told = subprocess.run(command, capture_output=True, text=True, check=True)
            count, hits, taken = json.loads(told.stdout.splitlines()[-1])
            share = "" if hits is None else f"{hits:.2f}"
            print(f"{trace:<30}{engine:<14}{count:>8,}{share:>8}{taken:>10.2f}s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(*sys.argv[2:])
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
