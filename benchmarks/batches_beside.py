"""Shuffled batches beside other loaders: insitubatch, annbatch and torch's DataLoader over zarr-python.

`pip install torch zarr insitubatch 'annbatch[zarrs]'` (Python 3.12 or later), then
`python benchmarks/batches_beside.py [FOLDER]`. Each loader goes through one epoch, or its first 4,096
samples where it reads them one by one, in a process of its own, in turns; the least time of several rounds
counts. Samples a second are by the clock, without imports and opening; the processor's time is for 1,000
samples, of the process and its workers. Each loader draws from as many chunks at once; torch's DataLoader,
which knows no chunks, draws from all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 3
BATCH = 32
# Chunks that samples are drawn from.
WINDOW = 32
# Samples of a loader that reads them one by one.
MOST = 4096
# By name: the shape and the chunks, compressed by zstd. A sample is one place along the first dimension.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "steps of 128 KiB, 8 a chunk": ((1024, 128, 256), (8, 128, 256)),
    "rows of 2 KiB, 256 a chunk": ((100_000, 512), (256, 512)),
}


def zstore_batches(path: Path, chunk: int) -> Iterator[Any]:
    import zstore

    array = zstore.open_array(path)
    return iter(array.batches(sample={0: 1}, batch_size=BATCH, memory=WINDOW * chunk, seed=1))


def insitubatch_batches(path: Path, chunk: int) -> Iterator[Any]:
    from insitubatch import InSituDataset, obstore_store, open_geometries, split_by_chunk

    store = obstore_store(f"file://{path.parent.resolve()}")
    geometries = open_geometries(store, variables=[path.name])
    manifest = split_by_chunk(geometries[path.name], fractions=(1.0, 0.0, 0.0))
    made = InSituDataset(
        store, manifest, geometries=geometries, batch_size=BATCH, block_chunks=WINDOW, shuffle=True
    )
    return iter(made.train)


def annbatch_batches(path: Path, chunk: int) -> Iterator[Any]:
    import zarr
    from annbatch import Loader

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    array = zarr.open_array(path, mode="r")
    loader = Loader(
        batch_size=BATCH,
        chunk_size=array.chunks[0],
        preload_nchunks=WINDOW,
        shuffle=True,
        preload_to_gpu=False,
    )
    return iter(loader.add_dataset(array))


class Items:
    """A dataset of torch's, as its tutorials write it."""

    def __init__(self, path: Path) -> None:
        import zarr

        self.array = zarr.open_array(path, mode="r")

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def __getitem__(self, number: int) -> Any:
        return self.array[number]


def torch_batches(path: Path, chunk: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(Items(path), BATCH, shuffle=True, num_workers=2, multiprocessing_context="spawn")
    return iter(loader)


LOADERS: dict[str, Callable[[Path, int], Iterator[Any]]] = {
    "zstore": zstore_batches,
    "insitubatch": insitubatch_batches,
    "annbatch": annbatch_batches,
    "torch, zarr-python": torch_batches,
}


def count(batch: Any) -> int:
    """The number of samples of a batch, whoever made it."""
    if hasattr(batch, "arrays"):
        batch = next(iter(batch.arrays.values()))
    if isinstance(batch, dict):
        batch = next(one for one in batch.values() if one is not None)
    return len(batch)


def run(loader: str, path: Path, chunk: int) -> None:
    """One epoch, in this process."""
    begun = time.perf_counter()
    iterator = LOADERS[loader](path, chunk)
    opened, before = time.perf_counter(), os.times()
    batches = islice(iterator, MOST // BATCH) if loader.startswith("torch") else iterator
    samples = sum(map(count, batches))
    taken, after = time.perf_counter() - opened, os.times()
    del iterator
    ended = os.times()
    children = ended.children_user + ended.children_system
    processor = after.user + after.system - before.user - before.system + children
    print(json.dumps([samples, taken, processor, opened - begun]))


def main(folder: Path) -> None:
    import zarr

    zarr.open_group(folder, mode="a")
    print(f"{'case':<30}{'loader':<22}{'samples':>8}{'a second':>10}{'processor':>11}")
    for number, (case, (shape, chunks)) in enumerate(CASES.items()):
        path = folder / f"case{number}"
        if not path.exists():
            data = np.round(np.random.default_rng(0).normal(280, 10, shape), 1).astype("f4")
            zarr.create_array(
                path, data=data, chunks=chunks, compressors=zarr.codecs.ZstdCodec(level=3), zarr_format=3
            )
        chunk = int(np.prod(chunks)) * 4
        results: dict[str, list[Any]] = {name: [] for name in LOADERS}
        for _ in range(ROUNDS):
            for loader, seen in results.items():
                if loader == "annbatch" and len(shape) != 2:
                    continue  # it reads tables
                command = [sys.executable, __file__, "--run", loader, str(path), str(chunk)]
                told = subprocess.run(command, capture_output=True, text=True)
                if told.returncode:
                    print(f"{case:<30}{loader:<22}{told.stderr.strip().splitlines()[-1][:100]}")
                    continue
                seen.append(json.loads(told.stdout.splitlines()[-1]))
        for loader, seen in results.items():
            if seen:
                samples, taken, processor = seen[0][0], min(s[1] for s in seen), min(s[2] for s in seen)
                speeds = f"{samples:>8,}{samples / taken:>10,.0f}{processor / samples * 1000:>10.3f}s"
                print(f"{case:<30}{loader:<22}{speeds}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
