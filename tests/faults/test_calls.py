"""System calls: each of them fails once, and they come in an order that a power cut does no harm to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

from .calls import build, check_durability, run_counted

LAYOUTS = ("chunks", "plain", "shards", "v2", "python")
OPERATIONS = (
    "write",
    "write a part",
    "write points",
    "write the fill value",
    "append",
    "append at the side",
    "grow",
    "shrink",
    "change the shape",
    "create",
    "create with data",
    "overwrite",
    "overwrite with data",
    "overwrite the root",
    "mode w",
    "delete",
    "create a group",
    "overwrite a group",
    "attributes",
    "attributes of a group",
    "consolidate",
)
# Of each kind of change one, in a layout of its own; and every how manyeth call fails.
SOME = (
    "write a part/shards",
    "append/chunks",
    "shrink/python",
    "create with data/shards",
    "overwrite with data/v2",
    "overwrite the root/plain",
    "delete/chunks",
    "attributes/v2",
)
STEP = 31


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("calls"))


@pytest.mark.parametrize(("durable", "some"), [("plain", SOME[::2]), ("durable", SOME[1::2])])
def test_what_a_failed_call_leaves(library, tmp_path, durable, some):
    counts = json.loads(run_counted(library, "failing_calls.py", tmp_path, STEP, durable, *some))
    assert all(count for found in counts.values() for name, count in found.items() if "short" not in name)


@pytest.mark.slow
@pytest.mark.parametrize("durable", ["plain", "durable"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_every_failed_call_leaves(library, tmp_path, operation, durable):
    names = [f"{operation}/{layout}" for layout in LAYOUTS]
    print(run_counted(library, "failing_calls.py", tmp_path, 1, durable, *names))


def test_what_is_durable_is_confirmed_in_order(library, tmp_path):
    logs = json.loads(run_counted(library, "recorded_calls.py", tmp_path))
    check_durability(logs)
    kept = [line for line in logs["durable: write"] if not line.startswith("fsync")]
    assert len(kept) == len(logs["plain: write"]), "what is not durable makes no call more"


def test_who_cannot_be_durable_says_so(tmp_path, monkeypatch):
    array = zstore.create_array(tmp_path / "a", shape=3, dtype="u1", durable=True)
    assert array.store.durable
    assert zstore.open(tmp_path / "a", mode="r+", durable=True).store.durable
    assert not zstore.open(tmp_path / "a", mode="r+").store.durable
    zipped = zstore.create_group(str(tmp_path / "b.zip"), durable=True).store
    assert zipped.durable
    zipped.close()
    for store in (MemoryStore(), "memory://somewhere"):
        with pytest.raises(StoreError, match="MemoryStore cannot be durable"):
            zstore.create_group(store, durable=True)
    assert open_store(LocalStore(tmp_path), durable=True).as_read_only().durable
    zstore.set_durable(True)
    try:
        assert zstore.open(tmp_path / "a", mode="r+").store.durable
        assert not LocalStore(tmp_path, durable=False).durable
        assert not MemoryStore().durable
    finally:
        zstore.set_durable(None)
    monkeypatch.setenv("ZSTORE_DURABLE", "yes")
    assert LocalStore(tmp_path).durable
    monkeypatch.setenv("ZSTORE_DURABLE", "perhaps")
    with pytest.raises(ValueError, match="ZSTORE_DURABLE is 'perhaps'; expected one of 1, true"):
        LocalStore(tmp_path)


@pytest.mark.parametrize("value", ["banana", "-1", "1.5", "²"])
def test_settings_name_themselves(monkeypatch, value):
    monkeypatch.setenv("ZSTORE_THREADS", value)
    monkeypatch.setenv("ZSTORE_CACHE_SIZE", value)
    try:
        zstore.set_threads(None)
        with pytest.raises(ValueError, match=f"ZSTORE_THREADS is '{value}'; expected a whole number of 1 or"):
            zstore.create_array(MemoryStore(), data=np.ones(3))
        with pytest.raises(
            ValueError, match=f"ZSTORE_CACHE_SIZE is '{value}'; expected a whole number of 0 or"
        ):
            zstore.set_cache_size(None)
    finally:
        monkeypatch.undo()
        zstore.set_threads(None)
        zstore.set_cache_size(None)


def test_a_directory_that_cannot_be_cleaned_up_is_deleted_all_the_same(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    store.put("a/b/c", b"1")

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "the disk is tired")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        patch.setattr(os, "rmdir", fail)
        store.delete_prefix("a")
    assert list(store.list()) == []
    LocalStore(tmp_path)
    assert list(tmp_path.iterdir()) == []
