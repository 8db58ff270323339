"""Stored arrays as dask arrays, and writing dask arrays to a store, in chunks along the stored objects.

Every task reads or writes whole stored objects (shards, where there are), so that none is fetched twice or
written by two tasks. There are no dask locks: the engine makes writes to one object wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from zstore.errors import MetadataError, SelectionError, UnsupportedError
from zstore.extensions.extras import optional
from zstore.jobs.chunks import Location, source_of
from zstore.jobs.source import Source
from zstore.nodes.array import Array
from zstore.nodes.open import create_array, open_array
from zstore.storage.base import Store, join_url

TARGET_SIZE = 128 << 20  # dask's own default for the size of a chunk
Lengths = tuple[int, ...]


def to_dask(
    source: Array | Source | str | os.PathLike[str] | Store,
    path: str | None = None,
    *,
    chunks: Any = "auto",
    target_size: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """The array, or a view, as a dask array, which is read when it is computed.

    chunks       "auto": whole stored objects, several of them up to `target_size` bytes; None: one
                 stored object per chunk; or chunks in any form that dask takes
    target_size  None: dask's "array.chunk-size"

    Raises
        NotFoundError: there is no array.
        MetadataError: a path below an array.
        UnsupportedError: dask is missing, or it is a source of jobs without items by slices.
    """
    dask = _import_dask()
    if isinstance(source, Source) and not hasattr(source, "__getitem__"):
        raise UnsupportedError(
            f"{source!r} has no items by slices; expected a view of it: zstore.view(source)"
        )
    if isinstance(source, Array | Source):
        if path is not None:
            raise MetadataError(f"the source is an array; expected no path, got {path!r}")
        array: Any = source
    else:
        array = open_array(source, path, "r", storage_options=storage_options)
    if chunks is None or (isinstance(chunks, str) and chunks == "auto"):
        size = 0 if chunks is None else target_size or _default_size()
        chunks = plan_chunks(array, size)
    name = f"zstore-{dask.base.tokenize(array, chunks)}"
    return dask.array.from_array(array, chunks, name=name, asarray=True, fancy=True)


def from_dask(
    data: Any,
    target: Array | str | os.PathLike[str] | Store,
    path: str | None = None,
    *,
    region: Any = None,
    chunks: Any = None,
    shards: Any = None,
    align: bool = True,
    compute: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Write a dask array; returns the `Array`, or with compute=False a dask object that writes when computed.

    An existing array is written at `region` (slices of step 1; by default all of it). A new one is made at
    `path` of a store, with `options` of `create_array` and by default with dask's chunks.

    align    rechunk data that is not aligned with the stored objects; False raises an error instead

    Raises
        SelectionError: the data does not fit the region.
        MetadataError: dask's chunks have different lengths, and `chunks` is None; unaligned data,
            align=False.
        StoreError: there is an array already, or the data is read from what would be overwritten.
        UnsupportedError: dask is missing, or the shape of the data is not known.
        TypeError: `data` is no dask array.
    """
    dask = _import_dask()
    if not isinstance(data, dask.array.Array):
        raise TypeError(f"data is {data!r}; expected a dask array, as dask.array.from_array makes")
    if any(np.isnan(length) for length in data.shape):
        raise UnsupportedError(
            f"data has the shape {data.shape}; expected known lengths: compute_chunk_sizes()"
        )
    if isinstance(target, Array):
        if path is not None or chunks is not None or shards is not None or options:
            raise MetadataError("the target is an array; path, chunks, shards and options are for a new one")
        array = target
    else:
        if region is not None:
            raise MetadataError("region is for an array that there is; expected an Array as the target")
        if options.get("overwrite"):
            there = Location.open(target, path, storage_options, read_only=False)
            for task in dict(data.__dask_graph__()).values():
                if isinstance(task, Array):
                    source_of(task).check_apart(*there, "create")
        array = create_array(
            target,
            path,
            shape=data.shape,
            dtype=options.pop("dtype", data.dtype),
            chunks=even_chunks(data.chunks, "data")
            if chunks is None and shards is None
            else chunks or "auto",
            shards=shards,
            storage_options=storage_options,
            **options,
        )
    places = _places(region, array)
    if tuple(part.stop - part.start for part in places) != data.shape:
        raise SelectionError(
            f"data has the shape {data.shape}; expected that of the region {region!r} of {array.shape}",
            path=join_url(array.store.url, array.path),
        )
    data = data.rechunk(fit_chunks(data.chunks, array, places, "data", cuts=align, remedy="align=True"))
    stored = dask.array.store(data, array, lock=False, regions=places, compute=compute, return_stored=False)
    return array if compute else stored


def _import_dask() -> Any:
    with optional("dask arrays are read and written only with dask", "dask"):
        import dask.array
        import dask.base
    return dask


def _default_size() -> int:
    import dask.config
    import dask.utils

    return int(dask.utils.parse_bytes(dask.config.get("array.chunk-size", TARGET_SIZE)))


def even_chunks(lengths: Sequence[Lengths], name: str) -> Lengths:
    """dask's chunks as a chunk shape: one length per dimension but for a shorter last one.

    Raises
        MetadataError: they have different lengths.
    """
    for axis, parts in enumerate(lengths):
        if any(part != parts[0] for part in parts[:-1]) or (parts and parts[-1] > parts[0]):
            raise MetadataError(
                f"dask's chunks of {name} along axis {axis} are {parts}; Zarr's are of one length: rechunk, "
                "or give chunks"
            )
    return tuple(max(parts[0], 1) if parts else 1 for parts in lengths)


def plan_chunks(array: Array, target_size: int) -> tuple[Lengths, ...]:
    """The chunk lengths per dimension: whole stored objects, several together up to `target_size` bytes."""
    sizes = list(array.write_chunk_sizes)
    held = array.dtype.itemsize
    for parts in sizes:
        held *= max(parts, default=0)
    # The last dimension first, as neighbours along it are stored next to each other.
    for axis in reversed(range(array.ndim)):
        count = max(1, target_size // held) if held else 1
        merged = [sum(sizes[axis][begin : begin + count]) for begin in range(0, len(sizes[axis]), count)]
        held = held // max(max(sizes[axis], default=1), 1) * max(merged, default=0)
        sizes[axis] = tuple(merged) or (0,)
        if len(merged) > 1:
            break
    return tuple(parts or (0,) for parts in sizes)


def is_aligned(lengths: Lengths, edges: np.ndarray[Any, Any], begin: int) -> bool:
    """Whether parts of these lengths, from `begin` on, have only borders that are in `edges`."""
    meeting = begin + np.cumsum(lengths[:-1], dtype=np.int64)
    return bool(np.isin(meeting, edges).all())


def align_chunks(lengths: Lengths, edges: np.ndarray[Any, Any], begin: int) -> Lengths:
    """Parts of about these lengths, from `begin` on, with borders in `edges`."""
    end = begin + sum(lengths)
    meeting = begin + np.cumsum(lengths[:-1], dtype=np.int64)
    meeting = edges[np.searchsorted(edges, meeting)]
    cuts = [begin, *np.unique(meeting[(meeting > begin) & (meeting < end)]).tolist(), end]
    return tuple(b - a for a, b in pairwise(cuts))


def fit_chunks(
    chunks: Sequence[Lengths],
    array: Array,
    places: Sequence[slice],
    name: str,
    *,
    cuts: bool,
    remedy: str,
    is_shared: bool = False,
) -> tuple[Lengths, ...]:
    """dask's chunks for data written at `places`, aligned with the stored objects of the array.

    cuts       whether to align chunks that are not aligned; else they are an error
    remedy     what the error suggests
    is_shared  whether others write at the same time, so that the ends of the region must be aligned, too

    Raises
        MetadataError: chunks are not aligned, and `cuts` is False.
    """
    fitting = []
    for axis, (lengths, place) in enumerate(zip(chunks, places, strict=True)):
        # Where stored objects begin and end.
        edges = np.array([0, *accumulate(array.write_chunk_sizes[axis])], np.int64)
        ends = {place.start, place.stop} if is_shared and place.start < place.stop else set()
        if cuts:
            lengths = align_chunks(lengths, edges, place.start)
        elif not is_aligned(lengths, edges, place.start) or not ends <= set(edges.tolist()):
            unit = (array.shards or array.chunks)[axis]
            few = ", ".join(map(str, lengths[:3])) + (", ..." if len(lengths) > 3 else "")
            raise MetadataError(
                f"expected {remedy}: dask's chunks ({few}) of {name} along axis {axis}, from {place.start} "
                f"on, do not meet where stored objects of {unit} items do, so that writers would wait for "
                f"each other or, on some stores, undo each other's work",
                path=join_url(array.store.url, array.path),
            )
        fitting.append(lengths)
    return tuple(fitting)


def _places(region: Any, array: Array) -> tuple[slice, ...]:
    """The region as a slice with both ends for each dimension."""
    given = () if region is None else region if isinstance(region, tuple) else (region,)
    if len(given) > array.ndim or any(
        not isinstance(part, slice) or part.step not in (None, 1) for part in given
    ):
        raise SelectionError(
            f"region is {region!r}; expected at most {array.ndim} slices of step 1",
            path=join_url(array.store.url, array.path),
        )
    found = []
    for axis, length in enumerate(array.shape):
        start, stop, _ = (given[axis] if axis < len(given) else slice(None)).indices(length)
        found.append(slice(start, max(start, stop)))
    return tuple(found)
