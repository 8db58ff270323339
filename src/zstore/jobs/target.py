"""Checks of a job's target: separate from the source, and free of other nodes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

from zstore.engine.documents import place
from zstore.engine.intents import JOB, work_of
from zstore.errors import StoreError
from zstore.storage.base import Store, join_key
from zstore.storage.url import file_of


def check_apart(store: Store, base: str, target: Store, target_base: str, work: str) -> None:
    """Refuse a target that is the source, lies inside it, or contains it; `work` is a name of `WORKS`.

    Raises
        StoreError: they are not apart, or the target cannot be written to.
    """
    here, there = _lies(store, base), _lies(target, target_base)
    if here and there:
        parts, others = here, there
    elif store is target or (store.url == target.url and _is_one(store, target, target_base)):
        parts, others = _parts(base), _parts(target_base)
    elif store.url == target.url or store.in_memory or target.in_memory:
        return
    else:
        parts, others = _parts(place(store, base)), _parts(place(target, target_base))
    shorter = min(len(parts), len(others))
    if parts[:shorter] == others[:shorter]:
        raise StoreError(
            f"{work_of(work).words} cannot put {place(store, base)!r} into itself; "
            "expected a target elsewhere",
            path=place(target, target_base),
        )


def check_outside(files: Iterable[str], target: Store, target_base: str, work: str) -> None:
    """Refuse a target that is one of the source files or contains one; other names than files pass.

    Raises
        StoreError: the target is or contains a source file.
    """
    where = _lies(target, target_base)
    for file in files:
        is_file = os.path.exists(file)  # noqa: PTH110 - what GDAL opens may be no path at all
        if where and is_file and Path(file).resolve().parts[: len(where)] == where:
            raise StoreError(
                f"{work_of(work).words} cannot replace what holds {file!r}; expected a target elsewhere",
                path=place(target, target_base),
            )


def _lies(store: Store, base: str) -> tuple[str, ...]:
    """The parts of a path on this machine, links resolved; () for paths elsewhere.

    The path of whatever it contains begins with the same parts.
    """
    local, file = store.local_path(base), file_of(store)
    if local is not None:
        return local.resolve().parts
    return () if file is None else (*file.resolve().parts, "::", *_parts(base))


def _parts(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _is_one(store: Store, target: Store, target_base: str) -> bool:
    """Whether two stores with one URL are the same: a value put into one appears in the other."""
    key = join_key(target_base, JOB, "sign")
    target.check_writable(key)
    sign = uuid4().bytes
    target.put(key, sign)
    try:
        value = store.get(key)
        return value is not None and bytes(value) == sign
    finally:
        target.delete(key)
