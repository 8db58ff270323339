"""Tables in the width of a terminal, and bars that leave nothing behind."""

from __future__ import annotations

import io
import sys

import pytest

click = pytest.importorskip("click", reason="the command line is made with click")
from zstore.cli import tables  # noqa: E402
from zstore.cli.options import show_progress  # noqa: E402
from zstore.cli.tables import TextTable, width_of, wrap  # noqa: E402


def plain(table: TextTable, width: int) -> list[str]:
    return [click.unstyle(line) for line in table.lines(width)]


def test_numbers_stand_right_of_their_names_and_rows_may_be_short() -> None:
    table = TextTable("name", "size", title="arrays", numbers=["size"])
    table.add_row("t2m", "1.5 MiB")
    table.add_row("longer name")
    assert plain(table, 80) == [
        "arrays",
        "name            size",
        "───────────  ───────",
        "t2m          1.5 MiB",
        "longer name",
    ]
    with pytest.raises(ValueError, match="a row of 3 cells, expected at most 2"):
        table.add_row("a", "b", "c")


def test_without_a_header_the_first_column_names_things() -> None:
    table = TextTable("fact", "value", header=False)
    table.add_row("path", "a\nb")
    assert plain(table, 80) == ["path  a", "      b"]
    assert next(table.lines(80)).startswith(click.style("path", bold=True))


@pytest.mark.parametrize("width", [29, 40, 60])
def test_what_has_no_room_is_broken_and_nothing_of_it_is_lost(width: int) -> None:
    table = TextTable("path", "what there is", "of", numbers=["of"])
    path, words = (
        "a/path/without/a/space/あい",
        "cannot be read: unknown codec of a package that is not here",
    )
    table.add_row(path, words, "12345 KiB")
    lines = plain(table, width)
    assert max(map(width_of, lines)) <= width
    [rule] = [number for number, line in enumerate(lines) if set(line) == {"─", " "}]
    ends = [len(part) for part in lines[rule].split("  ")]
    assert ends[-1] == len("12345 KiB") and lines[rule + 1].endswith("12345 KiB")
    found = "".join("".join(lines[rule + 1 :]).split())
    rest = [letter for letter in found if letter not in "12345KiB"]
    assert sorted(rest) == sorted(letter for letter in path + words if letter not in " 12345KiB")


def test_lines_are_as_wide_as_terminals_draw_them() -> None:
    assert [width_of(text) for text in ("abc", "é", "e\N{COMBINING ACUTE ACCENT}", "気", "🌍")] == [
        3,
        1,
        1,
        2,
        2,
    ]
    assert wrap("気温と湿度", 4) == ["気温", "と湿", "度"]
    assert wrap("one two  three", 7) == ["one two", "three"]
    assert wrap("", 5) == [""]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_says_how_far_something_is_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(tables.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_progress("reading", "bytes") as update:
        for done in (1_000_000, 2_000_000, 3_000_000, 5_000_000):
            update(done, 9_000_000)
            now[0] += 0.06
    first, *states, last = sys.stderr.getvalue().removeprefix("\r\x1b[K").split("\r\x1b[K")
    assert (first, last) == ("reading", "")
    # What goes on from before counts for no rate, and no more than ten states a second are shown.
    assert [state.split()[0] for state in states] == ["reading", "reading"]
    assert states[0].split()[-1] == "11%"
    assert states[1].split()[-4:] == ["33%", "16.7", "MB/s", "0:00:00"]


def test_who_sees_no_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with show_progress("reading") as update:
        update(1, 2)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_progress("reading", quiet=True) as update:
        update(1, 2)
    assert sys.stderr.getvalue() == ""
