"""The targets of conversions from files: a new group, or one that is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from zstore.engine.making import delete_node
from zstore.errors import ChangedError, MetadataError
from zstore.jobs.record import Job, begin, begin_new, name_job
from zstore.jobs.target import check_outside
from zstore.model.array import ZarrFormat
from zstore.nodes.group import Group
from zstore.pyramid.dataset import PlaceLike, place_of
from zstore.storage.base import Store, join_key
from zstore.storage.url import open_store

# The files of a source: path, bytes, and when it was written last, in nanoseconds.
Version: TypeAlias = tuple[tuple[str, int, int], ...]


def open_place(target: Group | PlaceLike, zarr_format: ZarrFormat) -> tuple[Store, str, Group | None]:
    """(store, path in it, the group if one was given).

    Raises
        MetadataError: that group has another format.
    """
    if not isinstance(target, Group):
        return open_store(target), "", None
    if target.zarr_format != zarr_format:
        raise MetadataError(
            f"zarr_format is {zarr_format}; expected the target group's {target.zarr_format}",
            path=place_of(target),
        )
    return target.store, target.path, target


def begin_in(
    store: Store,
    base: str,
    held: Group | None,
    zarr_format: ZarrFormat,
    work: str,
    said: Any,
    *,
    versions: Mapping[str, Version],
    overwrite: bool,
    resume: bool,
    paths: Iterable[str] = (),
) -> Job:
    """Record that a job begins, in the given group, or in place of what is there (with `overwrite`).

    versions  of the files that are read, by what each source is called
    paths     of the nodes in the given group that are made anew, with `overwrite`

    Raises
        StoreError: something is there already, or unfinished work (unless `overwrite`); or what would be
            replaced holds one of the files that are read.
        MetadataError, ChangedError: `resume`, and what was interrupted there is something else, or a file was
            written since.
    """
    if held is not None:
        replace = overwrite and not resume
        is_ready = not (overwrite and paths)
        job = begin(
            store, base, work, said, name=name_job(said), resume=resume, replace=replace, is_ready=is_ready
        )
        if not job.is_ready:
            job.clear(lambda: _delete_all(store, base, paths))
    else:
        if overwrite:
            check_outside(versions, store, base, work)
        job = begin_new(
            store, base, zarr_format, work, said, overwrite=overwrite, resume=resume, may_hold_others=True
        )
    job.check_versions({path: str(version) for path, version in versions.items()}, str)
    return job


def _delete_all(store: Store, base: str, paths: Iterable[str]) -> None:
    for path in paths:
        delete_node(store, join_key(base, path))


def find_version(files: Iterable[str]) -> Version:
    """What tells files of this machine from what is written to them later; those of others are left out."""
    found = []
    for file in files:
        with suppress(OSError, ValueError):
            status = os.stat(file)  # noqa: PTH116 - what GDAL opens may be no path at all
            found.append((file, status.st_size, status.st_mtime_ns))
    return tuple(found)


def check_version(version: Version, path: str) -> None:
    """Raise where files were written since.

    Raises
        ChangedError: they were, or are gone.
    """
    if find_version(file for file, _, _ in version) != version:
        raise ChangedError("a file was written while it was read; expected it as it was", path=path)


def pack_flags(flags: Sequence[bool]) -> bytes:
    """Flags as bits."""
    return np.packbits(flags).tobytes()


def unpack_flags(data: bytes, count: int) -> tuple[list[bool], bytes]:
    """(so many flags, the bytes behind them); of no bytes, none of them is set.

    Raises
        ValueError: the bytes are too few for them.
    """
    size = -(-count // 8)
    if not data:
        return [False] * count, b""
    if len(data) < size:
        raise ValueError(f"{count} flags take {size} bytes; found {len(data)}")
    flags = np.unpackbits(np.frombuffer(data, np.uint8, size), count=count)
    return flags.astype(bool).tolist(), data[size:]
