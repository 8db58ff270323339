"""Numbers of bytes and shapes, as people read them."""

from __future__ import annotations

from collections.abc import Iterable

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_size(size: float) -> str:
    """A number of bytes as text: "1.5 MiB"."""
    number, unit = float(size), 0
    while number >= 1024 and unit < len(UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} {UNITS[unit]}" if unit == 0 else f"{number:.1f} {UNITS[unit]}"


def format_lengths(shape: Iterable[int]) -> str:
    """A shape as text: "512 × 1024"."""
    return " × ".join(map(str, shape))
