"""Carrying a plan out, with a copy of what it replaces, and taking it back.

A backup is a directory: `manifest.json` lists the keys that were written or deleted, and `before/` holds what
was stored under them, each as a file of its key's name.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zstore.engine.documents import METADATA_NAMES
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.jobs.record import begin, name_job
from zstore.storage.base import Store, check_key
from zstore.validation.fixing.plan import Plan

MANIFEST = "manifest.json"
VERSION = 1


def backup_place(store: Store) -> Path:
    """Where the next backup of a store goes: beside a directory, named by the time.

    Raises
        StoreError: the store is no directory: expected a place for the backup.
    """
    root = store.local_path()
    if root is None:
        raise StoreError("the store is no directory; expected --backup with a directory", path=store.url)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    above = root.resolve().parent
    name = f"{root.resolve().name}.backup-{stamp}"
    free = (name if number == 0 else f"{name}-{number}" for number in range(1000))
    return next(above / candidate for candidate in free if not (above / candidate).exists())


def write_plan(plan: Plan, store: Store, backup: Path) -> None:
    """Copy what the plan replaces to the new directory `backup`, then write the changes.

    Values of coordinates are written before documents, inner documents before outer ones: an interruption
    leaves nothing that a second run does not fix, and is named until then. Each document is replaced whole.

    Raises
        StoreError: the backup cannot be made, something changed since the plan was made, or the store failed.
    """
    keys = sorted(plan.changes, key=_order)
    for key in keys:
        store.check_writable(key)
    before = {key: store.get(key) for key in keys}
    for key, value in before.items():
        planned = plan.store.base.get(key)
        if (None if value is None else bytes(value)) != (None if planned is None else bytes(planned)):
            raise StoreError("changed since the plan was made; expected nobody else to write", key=key)
    _make_backup(backup, store.url, before)
    job = begin(store, plan.path, "fix", {}, name=name_job({}), replace=plan.is_left)
    for key in keys:
        value = plan.changes[key]
        with store.lock(key):
            if value is None:
                store.delete(key)
            else:
                store.put(key, value)
    job.end()


def _order(key: str) -> tuple[bool, int, str]:
    return key.rpartition("/")[2] in METADATA_NAMES, -key.count("/"), key


def _make_backup(backup: Path, url: str, before: dict[str, Any]) -> None:
    try:
        backup.mkdir(parents=True)
        for key, value in before.items():
            if value is not None:
                path = backup / "before" / check_key(key)
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, bytes(value))
        kept = [key for key, value in before.items() if value is not None]
        made = [key for key, value in before.items() if value is None]
        manifest = {"version": VERSION, "store": url, "before": kept, "absent": made}
        # The manifest comes last: a backup that has one is whole.
        _write(backup / MANIFEST, json.dumps(manifest, indent=2).encode())
    except OSError as error:
        raise StoreError(f"backup cannot be made: {error.strerror}", path=str(backup)) from error


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def restore_backup(store: Store, backup: Path) -> int:
    """Put back what a backup holds and delete what was added; how many keys that were.

    Raises
        NotFoundError: there is no backup.
        MetadataError: its manifest is none.
    """
    path = backup / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no {MANIFEST} there: no backup, or one that was interrupted", path=str(backup)
        ) from error
    except (OSError, ValueError) as error:
        raise MetadataError(f"manifest cannot be read: {error}", path=str(path)) from error
    kept, made = (manifest.get(name) if isinstance(manifest, dict) else None for name in ("before", "absent"))
    if not isinstance(kept, list) or not isinstance(made, list) or manifest.get("version") != VERSION:
        raise MetadataError(f"manifest is none of version {VERSION}", path=str(path))
    keys = [check_key(str(key)) for key in [*kept, *made]]
    values = {key: (backup / "before" / key).read_bytes() for key in keys[: len(kept)]}
    for key in sorted(keys, key=_order):
        if key in values:
            store.put(key, values[key])
        else:
            store.delete(key)
    return len(keys)
