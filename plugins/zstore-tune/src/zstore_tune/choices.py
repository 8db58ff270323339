"""The codecs, chunks and shards that are tried, as arguments of `zstore.create_array`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from math import isqrt, prod
from typing import Any

from zstore_tune.sample import TEXT_SIZE, Sample

Options = dict[str, Any]

LARGEST_CHUNK, LEAST_CHUNK = 16 << 20, 4 << 10
SHARD_SIZE = 16 << 20
# Of training: the samples of a chunk along a dimension, and the size from which on it is cut along others.
SAMPLES_OF_CHUNK, TRAINING_SIZE = (1, 2, 4, 16), 4 << 20
SIDES = (128, 256, 512, 1024)
# Sizes in bytes: of chunks that are long in the dimension that series run along, and of 1-D chunks.
SERIES_SIZES = (1 << 18, 1 << 20)
ROW_SIZES = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)


def list_codecs(sample: Sample, zarr_format: int) -> Iterator[Options]:
    """Lossless codecs for a sample's items; those that are best most often come first."""
    yield {"compressors": "zstd"}
    item_size, kind = sample.values.dtype.itemsize, sample.values.dtype.kind
    is_plain = kind not in "OT"
    shuffles = ["bitshuffle", "noshuffle"] if item_size == 1 or not is_plain else ["shuffle", "bitshuffle"]
    if not is_plain:
        shuffles = ["noshuffle"]
    for cname, level in (("lz4", 5), ("zstd", 1), ("zstd", 5)):
        for shuffle in shuffles:
            yield {"compressors": _blosc(cname, level, shuffle)}
    yield {"compressors": "zstd:1"}
    yield {"compressors": None}
    if kind in "iu" and item_size > 1:
        filters = [{"id": "delta", "dtype": sample.values.dtype.newbyteorder("<").str}]
        if zarr_format == 3:
            filters = [{"name": "numcodecs.delta", "configuration": {"dtype": filters[0]["dtype"]}}]
        yield {"filters": filters, "compressors": _blosc("zstd", 5, shuffles[0])}
    if kind in "iuf" and item_size > 1 and zarr_format == 3 and find_spec("pcodec") is not None:
        yield {"serializer": "numcodecs.pcodec", "compressors": None}
    yield {"compressors": "zstd:9"}
    yield {"compressors": _blosc("zstd", 9, shuffles[-1])}
    yield {"compressors": _blosc("lz4", 1, "noshuffle")}
    yield {"compressors": "gzip"}
    yield {"compressors": "zstd:19"}


def _blosc(cname: str, level: int, shuffle: str) -> Options:
    return {"name": "blosc", "configuration": {"cname": cname, "clevel": level, "shuffle": shuffle}}


def list_chunks(sample: Sample, item_size: int) -> list[tuple[int, ...]]:
    """The shapes of chunks to try, none larger than the sample."""
    box = sample.values.shape
    ndim, found = len(box), [*_list_for_training(sample, item_size)]
    if ndim == 1:
        found += [(max(1, size // item_size),) for size in ROW_SIZES]
    else:
        for side in SIDES:
            found.append((*(1,) * (ndim - 2), side, side))
        if ndim > 2:
            for size in SERIES_SIZES:
                for length in (box[sample.time], max(1, box[sample.time] // 8)):
                    side = max(1, isqrt(size // (item_size * length)))
                    side = 1 << (side.bit_length() - 1)
                    shape = [1] * (ndim - 2) + [side, side]
                    shape[sample.time] = length
                    found.append(tuple(shape))
    cut = [tuple(min(n, length) for n, length in zip(shape, box, strict=True)) for shape in found]
    sizes = {shape: prod(shape) * item_size for shape in dict.fromkeys(cut)}
    least = min(LEAST_CHUNK, prod(box) * item_size)
    return [shape for shape, size in sizes.items() if least <= size <= LARGEST_CHUNK]


def _list_for_training(sample: Sample, item_size: int) -> Iterator[tuple[int, ...]]:
    """Chunks of one sample of a training run and of several, along the dimensions that it is cut from."""
    windows = {**sample.windows, **sample.crops}
    for count in SAMPLES_OF_CHUNK if windows else ():
        shape = [
            count * windows[axis] if axis in windows else length
            for axis, length in enumerate(sample.values.shape)
        ]
        others = [axis for axis in range(len(shape)) if axis not in windows]
        while prod(shape) * item_size > TRAINING_SIZE and any(shape[axis] > 1 for axis in others):
            axis = max(others, key=shape.__getitem__)
            shape[axis] = -(-shape[axis] // 2)
        yield tuple(shape)


def choose_shards(chunks: Sequence[int], box: Sequence[int], item_size: int) -> tuple[int, ...] | None:
    """The shape of shards of up to 16 MiB within the sample; None where a shard would hold one chunk only."""
    counts = [1] * len(box)
    most = [-(-n // chunk) for n, chunk in zip(box, chunks, strict=True)]
    size = prod(chunks) * item_size
    while size * 2 <= SHARD_SIZE:
        axis = max(
            (n for n in range(len(box)) if counts[n] * 2 <= most[n]),
            key=lambda n: most[n] / counts[n],
            default=None,
        )
        if axis is None:
            break
        counts[axis] *= 2
        size *= 2
    if prod(counts) == 1:
        return None
    return tuple(chunk * count for chunk, count in zip(chunks, counts, strict=True))


def item_size_of(sample: Sample) -> int:
    """The size of an item in bytes; of items of any length, an estimate."""
    if sample.values.dtype.kind in "OT":
        return max(1, -(-sample.size // sample.values.size), TEXT_SIZE // 4)
    return max(1, sample.values.dtype.itemsize)
