"""Numbers written in decimal digits, many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

# Numbers of so many digits fit into 64 bits, whatever they are.
MOST_DIGITS = 18


def parse_digits(data: Any, begins: Any, ends: Any) -> Any:
    """The numbers (int64) whose ASCII digits stand between positions of a uint8 array.

    Nothing is checked: each is of 1 to `MOST_DIGITS` bytes, all of them digits.
    """
    lengths = ends - begins
    numbers = np.zeros(len(ends), np.int64)
    for place in range(int(lengths.max(initial=0))):
        # Of a shorter number, what stands before its first digit is none of it.
        digits = data[np.maximum(ends - 1 - place, begins)] - np.int64(ord("0"))
        numbers += np.where(place < lengths, digits, 0) * 10**place
    return numbers
