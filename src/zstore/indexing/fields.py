"""Selections of fields of structured arrays: `array["r"]`, `array[["r", "g"], 0:3]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from zstore.errors import SelectionError

# One name selects the field itself, several select items of these fields, and None whole items.
Fields = str | tuple[str, ...] | None


def split_fields(selection: Any, dtype: np.dtype[Any]) -> tuple[Fields, Any]:
    """Split a selection into the fields that it names and the rest.

    Names can stand alone or among the other entries, singly or in a list.

    Raises
        SelectionError: items have no such field, or it is named twice.
    """
    entries = selection if isinstance(selection, tuple) else (selection,)
    found = [entry for entry in entries if _is_named(entry)]
    if not found:
        return None, selection
    names = [name for entry in found for name in ([entry] if isinstance(entry, str) else entry)]
    known = dtype.names or ()
    for name in names:
        if name not in known:
            has = f"the fields {', '.join(map(repr, known))}" if known else "no fields"
            raise SelectionError(f"field {name!r} is not there; items of {dtype} have {has}")
    if len(set(names)) < len(names):
        raise SelectionError(f"fields {names} name one twice")
    rest = tuple(entry for entry in entries if not _is_named(entry))
    return (names[0] if found == [names[0]] else tuple(names)), (rest if rest else Ellipsis)


def _is_named(entry: Any) -> bool:
    if isinstance(entry, list):
        return bool(entry) and all(isinstance(name, str) for name in entry)
    return isinstance(entry, str)


def _packed(dtype: np.dtype[Any], fields: Fields) -> np.dtype[Any]:
    assert fields is not None and dtype.fields is not None
    names = (fields,) if isinstance(fields, str) else fields
    return np.dtype([(name, dtype.fields[name][0]) for name in names])


def take_fields(items: np.ndarray[Any, Any], fields: Fields) -> np.ndarray[Any, Any]:
    """Copy the fields out of structured items."""
    if fields is None:
        return items
    if isinstance(fields, str):
        return items[fields].copy()
    taken: np.ndarray[Any, Any] = np.empty(items.shape, _packed(items.dtype, fields))
    for name in fields:
        taken[name] = items[name]
    return taken


def pack_fields(
    value: Any, dtype: np.dtype[Any], fields: Fields, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """A value to assign to some fields, as structured items that have only these, of shape `shape`.

    Raises
        ValueError: it cannot be broadcast to `shape`, or converted to such items.
    """
    packed: np.ndarray[Any, Any] = np.empty(shape, _packed(dtype, fields))
    if isinstance(fields, str):
        packed[fields] = value
    else:
        is_array = isinstance(value, np.ndarray | np.generic)
        packed[...] = value if is_array else np.asarray(value, packed.dtype)
    return packed
