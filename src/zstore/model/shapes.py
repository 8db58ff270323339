"""Shapes in metadata documents: lists of whole numbers, checked once so that nothing above has to."""

from __future__ import annotations

from typing import Any

from zstore.errors import MetadataError

__all__ = ["LIMIT", "check_chunk_size", "parse_chunk_shape", "parse_shape"]

LIMIT = 2**63 - 1


def parse_shape(value: Any, name: str = "shape") -> tuple[int, ...]:
    """The lengths that a list of JSON integers gives, 0 allowed.

    Raises
        MetadataError: no list, or an item that is no integer from 0 to 2^63-1.
    """
    if not isinstance(value, list):
        raise MetadataError(f"{name} is {value!r}; expected a list of integers")
    for length in value:
        if type(length) is not int or not 0 <= length <= LIMIT:
            raise MetadataError(f"{name} is {value!r}; expected integers from 0 to 2^63-1, got {length!r}")
    return tuple(value)


def parse_chunk_shape(value: Any, shape: tuple[int, ...], name: str = "chunk_shape") -> tuple[int, ...]:
    """The lengths of a chunk of an array of `shape`, none of them 0.

    Raises
        MetadataError: as `parse_shape`, or a length of 0, or another number of dimensions than the array's.
    """
    chunk_shape = parse_shape(value, name)
    if 0 in chunk_shape:
        raise MetadataError(f"{name} is {value!r}; expected integers of at least 1")
    if len(chunk_shape) != len(shape):
        raise MetadataError(
            f"{name} is {value!r}, with {len(chunk_shape)} dimensions; "
            f"expected {len(shape)} as in shape {list(shape)}"
        )
    return chunk_shape


def check_chunk_size(chunk_shape: tuple[int, ...], item_size: int) -> None:
    """Refuse chunks whose size in bytes does not fit 63 bits.

    Raises
        MetadataError: the chunk has more than 2^63-1 bytes.
    """
    size = item_size
    for length in chunk_shape:
        size *= length
    if size > LIMIT:
        raise MetadataError(
            f"chunks of shape {list(chunk_shape)} and {item_size} bytes an item have {size} bytes; "
            f"expected at most 2^63-1"
        )
