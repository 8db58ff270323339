"""Stores: the class to inherit from, its types, the checks of keys, locks, and properties computed once."""

from __future__ import annotations

from zstore.base.byterange import AtMost, ByteRange
from zstore.base.limits import current_limits, is_durable
from zstore.base.once import once
from zstore.storage.base import (
    BatchStore,
    Changes,
    Entry,
    Names,
    Part,
    Parts,
    PrefixStore,
    Request,
    Store,
    Stretches,
    check_key,
    check_prefix,
    failing,
    hold_key,
    hold_name,
    join_key,
)
from zstore.storage.kinds import REFERENCES, TILES, check_target, local_path
from zstore.storage.local import LocalStore, confirm_directory, confirm_files, make_directory
from zstore.storage.memory import MemoryStore
from zstore.storage.url import STAGE, current_storage_options, file_of, open_store, without_password

__all__ = [
    "REFERENCES",
    "STAGE",
    "TILES",
    "AtMost",
    "BatchStore",
    "ByteRange",
    "Changes",
    "Entry",
    "LocalStore",
    "MemoryStore",
    "Names",
    "Part",
    "Parts",
    "PrefixStore",
    "Request",
    "Store",
    "Stretches",
    "check_key",
    "check_prefix",
    "check_target",
    "confirm_directory",
    "confirm_files",
    "current_limits",
    "current_storage_options",
    "failing",
    "file_of",
    "hold_key",
    "hold_name",
    "is_durable",
    "join_key",
    "local_path",
    "make_directory",
    "once",
    "open_store",
    "without_password",
]
