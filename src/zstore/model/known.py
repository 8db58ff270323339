"""What parts of documents say, kept by their exact content, of which the arrays of a hierarchy share most."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from zstore.model.array import CodecModel
from zstore.model.dtype import DataType
from zstore.model.grid import Grid
from zstore.model.keys import ChunkKeys

__all__ = ["Parts", "remember"]

# Larger ones are rare, and not to be kept.
SIZE_LIMIT = 4096
COUNT_LIMIT = 1024


class Parts(NamedTuple):
    """What a document says of an array, but for its attributes and what zstore does not know."""

    shape: tuple[int, ...]
    data_type: DataType
    grid: Grid
    keys: ChunkKeys
    codecs: tuple[CodecModel, ...]
    fill_value: Any
    dimension_names: tuple[str | None, ...] | None = None


_known: dict[tuple[object, bytes], Parts] = {}


def remember(parse: Callable[[Mapping[str, Any]], Parts], members: Mapping[str, Any]) -> Parts:
    """`parse(members)`, from memory where the same members were parsed before. What raises is not kept.

    `parse` must go by the members alone. They are compared by their bytes: true is not 1, nor 1.0, nor is
    -0.0 the same as 0.0.
    """
    try:
        # Version 2 has no references, so that equal values have equal bytes.
        content = marshal.dumps(members, 2)  # type: ignore[arg-type]
    except ValueError:  # made in Python, of something that JSON does not have
        return parse(members)
    if len(content) > SIZE_LIMIT:
        return parse(members)
    found = _known.get((parse, content))
    if found is None:
        copy = marshal.loads(content)
        if copy != members:  # NaN, or numpy's scalars, which come back as bytes
            return parse(members)
        # Of the copy, which nobody else can change.
        found = parse(copy)
        if _is_constant(found.fill_value):
            if len(_known) >= COUNT_LIMIT:
                _known.clear()
            _known[parse, content] = found
    return found


def _is_constant(fill_value: Any) -> bool:
    """Whether a fill value may belong to several arrays: objects and structured items can be changed."""
    if isinstance(fill_value, np.generic):
        return not isinstance(fill_value, np.void)
    return fill_value is None or isinstance(fill_value, str | bytes)
