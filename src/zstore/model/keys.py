"""Chunk-key encodings: the store keys of chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.base.digits import MOST_DIGITS, parse_digits


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """A chunk-key encoding: `default` has keys like "c/1/2" ("c" for 0-d), `v2` like "1.2" ("0" for 0-d).

    Spec
        Zarr v3 core, "Chunk key encoding"; Zarr v2, "Arrays" and `dimension_separator`.
    """

    name: str = "default"
    separator: str = "/"

    @property
    def prefix(self) -> str:
        """The first part of every key: "c", or "" for the encoding `v2`."""
        return "c" if self.name == "default" else ""

    def key(self, coordinates: Iterable[int]) -> str:
        """The key of the chunk at `coordinates`, relative to the array."""
        parts = [str(coordinate) for coordinate in coordinates]
        if self.name == "default":
            return self.separator.join(["c", *parts])
        return self.separator.join(parts) or "0"

    def cell(self, key: str, ndim: int) -> tuple[int, ...] | None:
        """The coordinates of the chunk under a key in a grid of `ndim` dimensions; None for other keys."""
        parts = key.split(self.separator)
        if self.name == "default" and parts.pop(0) != "c":
            return None
        if ndim == 0:
            return () if key == self.key(()) else None
        try:
            cell = tuple(map(int, parts))
        except ValueError:
            return None
        # Keys that `key` would not make ("01", "+1", "²") are not chunks.
        return cell if len(cell) == ndim and [*map(str, cell)] == parts and min(cell) >= 0 else None

    def leading(self, key: str, ndim: int) -> tuple[int, ...] | None:
        """The first coordinates of chunks whose keys begin with this one and "/"; None: there are none."""
        if self.separator != "/":
            return None
        numbers = key.split("/")
        if self.name == "default" and numbers.pop(0) != "c":
            return None
        is_above = len(numbers) < ndim and all(number.isdecimal() for number in numbers)
        return tuple(map(int, numbers)) if is_above else None

    def number(self, key: str, grid: Sequence[int]) -> int | None:
        """The number of the chunk under a key, counted in C order; None if the key is no chunk's.

        grid  how many chunks there are along each dimension
        """
        cell, number = self.cell(key, len(grid)), 0
        if cell is None:
            return None
        for at, count in zip(cell, grid, strict=True):
            if at >= count:
                return None
            number = number * count + at
        return number

    def cells(self, keys: Sequence[str], ndim: int, path: str = "") -> Any:
        """The coordinates (int64, one row for each) of the chunks under many keys of the array at `path`.

        None where one of them is no chunk, or its numbers are larger than 10^18: `cell` says which.
        """
        head = "\n" + (f"{path}/" if path else "") + (f"c{self.separator}" if self.name == "default" else "")
        text = "\n" + "\n".join(keys)
        plain = text.replace(head, "\n")
        if not ndim or not plain.isascii() or len(text) - len(plain) != len(keys) * (len(head) - 1):
            return None
        data = np.frombuffer(f"{plain[1:]}\n".encode(), np.uint8)
        ends = np.flatnonzero((data < ord("0")) | (data > ord("9")))
        marks = np.frombuffer((self.separator * (ndim - 1) + "\n").encode(), np.uint8)
        if len(ends) != len(keys) * ndim or (data[ends].reshape(-1, ndim) != marks).any():
            return None
        begins = np.append(0, ends[:-1] + 1)
        lengths = ends - begins
        if lengths.min(initial=1) < 1 or lengths.max(initial=1) > MOST_DIGITS:
            return None
        if ((data[begins] == ord("0")) & (lengths > 1)).any():
            return None
        return parse_digits(data, begins, ends).reshape(-1, ndim)
