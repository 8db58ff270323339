"""Writing of a plan with a backup of what it replaces, and restoring of that backup.

A backup is a directory: `manifest.json` lists the keys that were written or deleted, and `before/` holds what
was stored under them, each as a file of its key's name. It is whole before anything is changed, and
durable if the store is.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zstore.engine.documents import METADATA_NAMES
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.geo.validation.fixing.plan import Plan
from zstore.jobs.record import begin, forget, name_job
from zstore.storage.base import Store, check_key
from zstore.storage.local import LocalStore

MANIFEST = "manifest.json"
VERSION = 1


def backup_place(store: Store) -> Path:
    """The directory for the next backup of a store: beside it, named by the time.

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
    """Copy the documents that the plan replaces to the directory `backup`, then write the changes.

    Values of coordinates are written before documents, inner documents before outer ones: an interruption
    leaves nothing that a second run does not fix, and is named until then. Each document is replaced whole.
    The directory is new, or what an interrupted run left: what that had copied stays as it is.

    Raises
        StoreError: the backup cannot be made, something changed since the plan was made, or the store failed.
    """
    keys = sorted(plan.changes, key=_order)
    for key in keys:
        store.check_writable(key)
    before = {key: store.get(key) for key in keys}
    for key, value in before.items():
        planned = plan.store.base.get(key)
        _check_same(key, value, planned)
    _make_backup(backup, plan, store, before)
    job = begin(store, plan.path, "fix", {}, name=name_job({}), replace=plan.is_left)
    for key in keys:
        value, planned = plan.changes[key], before[key]
        with store.lock(key):
            _check_same(key, store.get(key), planned)
            _put(store, key, value)
    job.end()


def _check_same(key: str, found: Any, planned: Any) -> None:
    if (None if found is None else bytes(found)) != (None if planned is None else bytes(planned)):
        raise StoreError("changed since the plan was made; expected nobody else to write", key=key)


def _put(store: Store, key: str, value: Any) -> None:
    if value is None:
        store.delete(key)
    else:
        store.put(key, value)


def _order(key: str) -> tuple[bool, int, str]:
    return key.rpartition("/")[2] in METADATA_NAMES, -key.count("/"), key


def _make_backup(backup: Path, plan: Plan, store: Store, before: dict[str, Any]) -> None:
    url = store.url
    try:
        place = LocalStore(backup, durable=store.durable)
        kept: dict[str, Any] = {"before": [], "absent": []}
        if backup.exists():
            kept = _left_by_another_run(place, plan, url, before)
            before = {
                key: value for key, value in before.items() if key not in kept["before"] + kept["absent"]
            }
        for key, value in before.items():
            if value is not None:
                place.put(f"before/{check_key(key)}", bytes(value))
        kept["before"] += [key for key, value in before.items() if value is not None]
        kept["absent"] += [key for key, value in before.items() if value is None]
        manifest = {"version": VERSION, "store": url, "path": plan.path, **kept}
        # The manifest comes last: a backup that has one is whole.
        place.put(MANIFEST, json.dumps(manifest, indent=2).encode())
    except OSError as error:
        reason = error.message if isinstance(error, StoreError) else error.strerror
        raise StoreError(f"backup cannot be made: {reason}", path=str(backup)) from error


def _left_by_another_run(place: LocalStore, plan: Plan, url: str, before: dict[str, Any]) -> dict[str, Any]:
    """The keys that an interrupted run has copied to a directory that is there already.

    Without a manifest, nothing had been changed. With one, the store may be changed in part, and the copies
    are what was there before.

    Raises
        StoreError: anything else is there.
    """
    manifest, kept = place.get(MANIFEST), dict[str, Any](before=[], absent=[])
    copies = {key: place.get(key) for key in place.list()}
    if manifest is None:
        expected = {f"before/{key}": bytes(value) for key, value in before.items() if value is not None}
        if all(expected.get(key) == value for key, value in copies.items()):
            return kept
    else:
        said = _parse_manifest(manifest, place.root)
        kept = {name: said[name] for name in kept}
        then = {
            **{key: copies.get(f"before/{key}") for key in kept["before"]},
            **dict.fromkeys(kept["absent"]),
        }
        now = {key: plan.store.base.get(key) for key in then}
        is_as_it_was = {key: value and bytes(value) for key, value in now.items()} == then
        if said.get("store") == url and (plan.is_left or is_as_it_was):
            return kept
    raise StoreError("something else is there; expected no directory", path=place.url)


def _parse_manifest(data: bytes, where: Path) -> dict[str, Any]:
    """A backup's manifest.

    Raises
        MetadataError: it is none.
    """
    try:
        said = json.loads(data)
    except ValueError as error:
        raise MetadataError(f"manifest cannot be read: {error}", path=str(where / MANIFEST)) from error
    is_whole = isinstance(said, dict) and said.get("version") == VERSION
    if not is_whole or not all(isinstance(said.get(name), list) for name in ("before", "absent")):
        raise MetadataError(f"manifest is none of version {VERSION}", path=str(where / MANIFEST))
    return {**said, **{name: [check_key(str(key)) for key in said[name]] for name in ("before", "absent")}}


def restore_backup(store: Store, backup: Path) -> int:
    """Restore the values of a backup and delete added keys; gives the number of keys.

    Raises
        NotFoundError: there is no backup.
        MetadataError: its manifest is none.
    """
    place = LocalStore(backup, read_only=True)
    manifest = place.get(MANIFEST)
    if manifest is None:
        raise NotFoundError(f"no {MANIFEST} there: no backup, or one that was interrupted", path=str(backup))
    said = _parse_manifest(manifest, backup)
    values = {key: place.get(f"before/{key}") for key in said["before"]}
    missing = [key for key, value in values.items() if value is None]
    if missing:
        raise NotFoundError("backup lacks what was stored", path=str(backup), key=missing[0])
    values |= dict.fromkeys(said["absent"])
    for key in sorted(values, key=_order):
        _put(store, key, values[key])
    forget(store, str(said.get("path", "")), "fix")
    return len(values)
