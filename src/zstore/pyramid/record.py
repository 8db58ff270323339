"""What a pyramid says of its own making: how it was built, whether that has ended, what is done so far."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from time import monotonic
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.nodes.group import Group
from zstore.pyramid.dataset import place_of
from zstore.storage.base import Store, join_key

__all__ = [
    "MEMBER",
    "Journal",
    "Record",
    "join_member",
    "mark_levels",
    "name_build",
    "number_from",
    "number_of",
    "read_record",
    "write_record",
]

# The attribute of a pyramid's group, and of its levels' groups, that is zstore's own.
MEMBER = "zstore"
JOURNAL = ".zstore-build"
# What a journal holds back before it is written.
WAITING_SECONDS = 0.5
WAITING_SIZE = 16 << 20
# Members of a record that may be None.
OPTIONAL = ("finest", "profile", "resampling", "affine")

Items = np.ndarray[Any, np.dtype[Any]]
Record = dict[str, Any]


def read_record(group: Group) -> Record | None:
    """How the pyramid was built, as `write_record` wrote it; None where nothing says so.

    Raises
        MetadataError: there is something else in its place.
    """
    held = group.attrs.get(MEMBER)
    record = held.get("pyramid") if isinstance(held, Mapping) else None
    if record is None:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("variables"), dict):
        raise MetadataError(
            f"attribute {MEMBER!r} holds {record!r}; expected a pyramid's record", path=place_of(group)
        )
    variables = {name: {"nodata": None, **entry} for name, entry in record["variables"].items()}
    return {**dict.fromkeys(OPTIONAL), **record, "variables": variables}


def write_record(group: Group, record: Record) -> None:
    """Keep the record in the group's attributes, beside what else is there."""
    group.attrs.update({MEMBER: join_member(group.attrs.get(MEMBER), {"pyramid": record})})


def _without_nulls(record: Mapping[str, Any]) -> Record:
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in record.items()
        if value is not None
    }


def join_member(held: Any, added: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute's value with `added` in it; what is None is left out."""
    return {**(held if isinstance(held, Mapping) else {}), **_without_nulls(added)}


def mark_levels(group: Group, levels: Sequence[str], build: str, state: str | None) -> None:
    """Say in every level which build its cells are of; `state` while they are not all of that build yet."""
    marker = {"build": build} if state is None else {"build": build, "state": state}
    for level in levels:
        attributes = group[level].attrs
        held = attributes.get(MEMBER)
        kept = (
            {k: v for k, v in held.items() if k not in ("build", "state")}
            if isinstance(held, Mapping)
            else {}
        )
        attributes.update({MEMBER: {**kept, **marker}})


def name_build(plan: Any, former: str) -> str:
    """A name for what a build makes: another one for another plan, or after another build."""
    text = json.dumps([plan, former], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def number_of(value: Any) -> Any:
    """A number as JSON can hold it."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return str(plain) if isinstance(plain, float) and not isfinite(plain) else plain


def number_from(value: Any) -> Any:
    """What `number_of` was given."""
    return float(value) if isinstance(value, str) else value


class Journal:
    """The units of a build that are done, with what they gave to be put together; kept in the store.

    They are written now and then: a build that takes no longer than to make a few of them again has none.
    """

    def __init__(self, store: Store, path: str, build: str) -> None:
        self._store = store
        self._all = join_key(path, JOURNAL)
        self._prefix = join_key(self._all, build)
        self._is_new = not any(True for _ in store.list(self._prefix))
        self._waiting: dict[str, Sequence[Items]] = {}
        self._waiting_size = 0
        self._written = monotonic()

    def put(self, name: str, pieces: Sequence[Items]) -> None:
        """Keep a unit's pieces, before long."""
        self._waiting[name] = pieces
        self._waiting_size += sum(piece.nbytes for piece in pieces)
        if self._waiting_size > WAITING_SIZE or monotonic() - self._written > WAITING_SECONDS:
            self.write()

    def write(self) -> None:
        """Keep what waits now."""
        while self._waiting:
            name = next(iter(self._waiting))
            pieces = self._waiting[name]
            value = b"".join([b"\n", *(np.ascontiguousarray(piece).tobytes() for piece in pieces)])
            self._store.put(join_key(self._prefix, name), value)
            del self._waiting[name]
        self._waiting_size, self._written = 0, monotonic()

    def get(self, name: str, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any]) -> list[Items] | None:
        """A unit's pieces; None where it is not known to be done."""
        value = None if self._is_new else self._store.get(join_key(self._prefix, name))
        counts = [prod(shape) for shape in shapes]
        if value is None or len(value) != 1 + sum(counts) * dtype.itemsize:
            return None
        cells = np.frombuffer(bytes(value), dtype, offset=1)
        parts = np.split(cells, np.cumsum(counts)[:-1]) if counts else []
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def drop(self) -> None:
        """Forget this build, and every other one's that was given up."""
        self._waiting.clear()
        self._store.delete_prefix(self._all)
