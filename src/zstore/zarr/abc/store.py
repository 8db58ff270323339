"""`zarr.abc.store`: the interface of stores, and the ranges that are asked of them."""

from __future__ import annotations

from dataclasses import dataclass

from zstore.zarr.storage import Store

__all__ = ["OffsetByteRequest", "RangeByteRequest", "Store", "SuffixByteRequest"]


@dataclass(frozen=True, slots=True)
class RangeByteRequest:
    """The bytes from `start` to `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetByteRequest:
    """The bytes from an offset on."""

    offset: int


@dataclass(frozen=True, slots=True)
class SuffixByteRequest:
    """The last bytes, at most `suffix` of them."""

    suffix: int
