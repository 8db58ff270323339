"""The targets of conversions from files: a new group, or one that is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from zstore.engine.making import delete_node
from zstore.errors import MetadataError
from zstore.jobs.record import Job, begin, begin_new, name_job
from zstore.jobs.target import check_outside
from zstore.model.array import ZarrFormat
from zstore.nodes.group import Group
from zstore.pyramid.dataset import PlaceLike, place_of
from zstore.storage.base import Store, join_key
from zstore.storage.url import open_store


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
    versions: Mapping[str, str],
    overwrite: bool,
    resume: bool,
    paths: Iterable[str] = (),
) -> Job:
    """Record that a job begins, in the given group, or in place of what is there (with `overwrite`).

    versions  of the files that are read, as `version_of` says them, by their paths
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
    job.check_versions(versions, str)
    return job


def _delete_all(store: Store, base: str, paths: Iterable[str]) -> None:
    for path in paths:
        delete_node(store, join_key(base, path))


def version_of(files: Iterable[str]) -> str:
    """What tells files of this machine from what is written to them later; "" of others."""
    found = []
    for file in files:
        with suppress(OSError, ValueError):
            status = os.stat(file)  # noqa: PTH116 - what GDAL opens may be no path at all
            found.append([file, status.st_size, status.st_mtime_ns])
    return name_job(found) if found else ""
