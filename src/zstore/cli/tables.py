"""Tables as a terminal shows them, and a bar for what takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from shutil import get_terminal_size
from typing import Self
from unicodedata import category, east_asian_width

import click

# Between two columns.
GAP = "  "
# What a column is not made narrower than, if it wants more.
LEAST = 8
# The seconds between two states of a bar, and its length.
PERIOD = 0.1
BAR = 40


class TextTable:
    """Rows of texts below the names of their columns, for `show_table`.

    Columns in `numbers` stand to the right and are not broken into lines. A table without a `header` names
    the things in its first column, not its columns.
    """

    def __init__(
        self, *columns: str, title: str = "", numbers: Sequence[str] = (), header: bool = True
    ) -> None:
        self.columns = [*columns]
        self.title = title
        self.numbers = {*numbers}
        self.header = header
        self.rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row; columns that it has no cell for are empty."""
        if len(cells) > len(self.columns):
            raise ValueError(f"a row of {len(cells)} cells, expected at most {len(self.columns)}: {cells}")
        self.rows.append((*cells, *("" for _ in self.columns[len(cells) :])))

    def lines(self, width: int) -> Iterator[str]:
        """The table in lines of at most `width` columns of a terminal, as far as words can be broken."""
        rows = [tuple(self.columns), *self.rows] if self.header else self.rows
        widths = self._widths(rows, width)
        if self.title:
            yield click.style(self.title, italic=True)
        for number, row in enumerate(rows):
            is_header = self.header and not number
            cells = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
            for parts in zip_longest(*cells, fillvalue=""):
                yield self._line(parts, widths, is_header=is_header).rstrip()
            if is_header:
                yield GAP.join("─" * width for width in widths)

    def _line(self, parts: Sequence[str], widths: Sequence[int], *, is_header: bool) -> str:
        line = []
        for number, (part, name, width) in enumerate(zip(parts, self.columns, widths, strict=True)):
            space = " " * (width - width_of(part))
            is_bold = part and (is_header if self.header else not number)
            shown = click.style(part, bold=True) if is_bold else part
            line.append(space + shown if name in self.numbers else shown + space)
        return GAP.join(line)

    def _widths(self, rows: Sequence[Sequence[str]], width: int) -> list[int]:
        """The width of each column: its longest line where all have room; else the widest give way."""
        wanted = [
            max((width_of(line) for row in rows for line in row[number].splitlines()), default=0)
            for number in range(len(self.columns))
        ]
        broken = [number for number, name in enumerate(self.columns) if name not in self.numbers]
        left = width - len(GAP) * (len(self.columns) - 1) - sum(wanted)
        while left < 0 and broken:
            widest = max(broken, key=wanted.__getitem__)
            if wanted[widest] <= LEAST:
                break
            others = [wanted[number] for number in broken if wanted[number] < wanted[widest]]
            to = max(LEAST, wanted[widest] + left, *others)
            to = min(to, wanted[widest] - 1)
            left += wanted[widest] - to
            wanted[widest] = to
        return wanted


def width_of(text: str) -> int:
    """The number of columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if category(letter) in ("Mn", "Me", "Cf") else 2 if east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def wrap(text: str, width: int) -> list[str]:
    """The lines of a text, broken between words, and within those that are longer than a line."""
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        if width_of(line) <= width:
            lines.append(line)
            continue
        here = ""
        for word in line.split(" "):
            longer = f"{here} {word}" if here else word
            if width_of(longer) <= width:
                here = longer
                continue
            if here:
                lines.append(here)
            here = ""
            for letter in word:
                if width_of(here + letter) > width:
                    lines.append(here)
                    here = ""
                here += letter
        lines.append(here)
    return lines


class Bar:
    """A line on stderr that says how far something is; as a context, it is gone at its end."""

    def __init__(self, label: str, unit: str) -> None:
        self._label, self._unit = label, unit
        self._began = self._shown = time.monotonic()
        self._first: int | None = None

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        now = time.monotonic()
        if self._first is None:
            self._first = done  # of work that goes on; no rate counts it
        elif now - self._shown < PERIOD:
            return
        self._shown = now
        share = min(1.0, done / total) if total else 1.0
        rate = (done - self._first) / max(now - self._began, 1e-9)
        full = round(BAR * share)
        parts = [self._label, "━" * full + " " * (BAR - full), f"{100 * share:3.0f}%"]
        if rate > 0:
            left = round((total - done) / rate)
            parts += [self._rate(rate), f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"]
        self._write(" ".join(parts))

    def _rate(self, rate: float) -> str:
        units = {"cells": f"{rate / 1e6:.1f} Mcells/s", "bytes": f"{rate / 1e6:.1f} MB/s"}
        return units.get(self._unit) or f"{rate:.0f} {self._unit}/s"

    def _write(self, text: str) -> None:
        # Back to the beginning of the line, whose rest is erased.
        width = get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        self._write(self._label)
        return self

    def __exit__(self, *error: object) -> None:
        self._write("")
