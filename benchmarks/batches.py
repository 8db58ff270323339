"""Batches for training against the least that they can cost; `python benchmarks/batches.py [FOLDER]`.

The floor of a case is to decode each chunk once, into memory for 32 chunks that is used again, and to copy
as many items as the samples have, from places by chance in chunks by chance, to batches that are used again.
Times are of all processors of the process, for one epoch, the least of several rounds in turns; batches run
for several epochs at a time, with memory for 32 chunks. `read` is the share of the items that were decoded in
an epoch, and `size` the most memory that was held at once, in chunks, beyond the batches that were ready or
under way.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

import zstore
from zstore.training.batches import Batches

ROUNDS = 3
EPOCHS = 4
# Chunks of all sources that fit into memory; the floor copies samples from as many.
WINDOW = 32
BATCH = 32


def weather(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Smooth items with noise in their last digits, which compress by half."""
    random = np.random.default_rng(seed)
    return np.round(random.normal(280, 10, shape), 1).astype("f4")


def made(folder: Path, name: str, data: Any, chunks: Any, dims: Any, **options: Any) -> zstore.Array:
    path = folder / name
    if not path.exists():
        zstore.create_array(path, data=data, chunks=chunks, dimension_names=dims, **options)
    return zstore.open_array(path)


def cases(folder: Path) -> dict[str, tuple[Any, dict[str, Any], int]]:
    """By name: sources, how they are sampled, and the bytes of a chunk of all sources."""
    dims = ("time", "y", "x")
    steps = made(folder, "steps", weather((192, 260, 1000)), (8, 260, 1000), dims)
    raster = weather((4096, 4096), 1)
    finest = made(folder, "finest", raster, (512, 512), ("y", "x"))
    shards = made(
        folder,
        "shards",
        weather((512, 128, 256), 2),
        (4, 128, 256),
        dims,
        shards=(32, 128, 256),
        compressors=["zstd"],
    )
    blosc = made(folder, "blosc", weather((512, 128, 256), 3), (8, 128, 256), dims, compressors=["blosc"])
    three = [
        made(folder, f"three{n}", weather((512, 64, 128), n), (chunk, 64, 128), dims)
        for n, chunk in enumerate((8, 16, 8))
    ]
    days = [made(folder, f"day{n}", weather((8, 128, 256), n), (8, 128, 256), dims) for n in range(60)]
    return {
        "2 of 192 steps": (steps, {"sample": {"time": 2}}, 8 * 260_000 * 4),
        "crops of 256 x 256": (finest, {"crop": {"y": 256, "x": 256}}, 512 * 512 * 4),
        "shards, zstd": (shards, {"sample": {"time": 1}}, 4 * 32_768 * 4),
        "blosc": (blosc, {"sample": {"time": 1}}, 8 * 32_768 * 4),
        "three aligned arrays": (three, {"sample": {"time": 2}}, (8 + 16 + 8) * 8_192 * 4),
        "a view of 60 stores": (zstore.concat(days), {"sample": {0: 2}}, 8 * 32_768 * 4),
    }


def floor(batches: Batches) -> float:
    """The processor's time of decoding each chunk once, and copying each sample once."""
    making = batches._making
    blocks = making.plan.blocks(0)
    members = making.samples.members
    memory = [[np.zeros(_largest(m, blocks), m.dtype) for _ in range(WINDOW)] for m in members]
    outs = [
        np.zeros((BATCH, *part.shape), kind)
        for part, kind in zip(making.samples.parts, making.dtypes, strict=True)
    ]
    order = np.fromiter(batches.order(), np.int64)
    chances = np.random.default_rng(0).random((len(order), max(m.ndim for kept in memory for m in kept)))
    begun = time.process_time()
    for n, member in enumerate(members):
        grid = [range(len(blocks.borders[d]) - 1) if d >= 0 else range(1) for d in member.axes]
        for number, cells in enumerate(np.ndindex(*map(len, grid))):
            box = member.box(blocks, {d: c for d, c in zip(member.axes, cells, strict=True) if d >= 0})
            out = memory[n][number % WINDOW][tuple(slice(0, s.stop - s.start) for s in box)]
            member.source.read(box, out=out)
    for number in range(len(order)):
        for out, part in zip(outs, making.samples.parts, strict=True):
            items = memory[part.source][order[number] % WINDOW]
            box = []
            for length, room, chance in zip(part.shape, items.shape, chances[number].tolist(), strict=False):
                begin = int(chance * max(0, room - length + 1))
                box.append(slice(begin, begin + length))
            taken = items[tuple(box)]
            out[number % BATCH][tuple(slice(0, length) for length in taken.shape)] = taken
    return time.process_time() - begun


def _largest(member: Any, blocks: Any) -> tuple[int, ...]:
    return tuple(
        length if d < 0 else int(np.diff(blocks.borders[d]).max())
        for length, d in zip(member.shape, member.axes, strict=True)
    )


def _size(batch: Any) -> int:
    return sum(array.nbytes for array in (batch if isinstance(batch, tuple) else (batch,)))


def run(batches: Batches) -> float:
    begun = time.process_time()
    for _ in batches:
        pass
    return (time.process_time() - begun) / EPOCHS


def held(batches: Batches) -> int:
    """The most bytes beyond the batches themselves."""
    tracemalloc.start()
    size = max(
        sum(part.nbytes for part in (batch if isinstance(batch, tuple) else (batch,))) for batch in batches
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - (batches._making.ahead + 1) * size


def main(folder: Path) -> None:
    print(
        f"{'case':<24}{'samples':>8}{'floor':>8}{'batches':>9}{'ratio':>7}{'read':>6}{'mixing':>8}{'size':>6}"
    )
    for name, (source, options, chunk) in cases(folder).items():
        memory = WINDOW * chunk

        def make(source: Any = source, options: Any = options, memory: int = memory) -> Batches:
            return zstore.batches(source, **options, batch_size=BATCH, memory=memory, epochs=EPOCHS)

        least, most = [], []
        for _ in range(ROUNDS):
            least.append(floor(make()))
            most.append(run(make()))
        batches = make()
        size = held(batches)
        members = batches._making.samples.members
        whole = sum(int(np.prod(m.shape)) * m.item_size for m in members)
        ratio, read = min(most) / min(least), batches.counts.read_size / whole / EPOCHS
        print(
            f"{name:<24}{batches.sample_count:>8,}{min(least):>8.3f}{min(most):>9.3f}{ratio:>7.2f}{read:>6.2f}"
            f"{batches.report.mixing:>8.2f}{size / chunk:>6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
