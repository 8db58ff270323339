"""Sorting of many lines in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import eq
from tempfile import SpooledTemporaryFile, gettempdir
from typing import IO

from zstore.base.locks import Lock
from zstore.errors import StoreError

# How many bytes of lines are sorted in memory; more of them go to a temporary file.
RUN_SIZE = 8 << 20
BLOCK_SIZE = 256 << 10

Lines = list[bytes]


class Spool:
    """Lines added in any order, and read in the order of their bytes, each once.

    Lines hold no line ends. None may be added after the first reading.

    Raises
        StoreError: there is no room for the temporary file.
    """

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        self._waiting: Lines = []
        self._waiting_size = 0
        self._file = _Sorted()
        self._guard = Lock()
        for line in lines:
            self.add(line)

    def add(self, line: bytes) -> None:
        """Add a line."""
        self._waiting.append(line)
        self._waiting_size += len(line) + 1
        if self._waiting_size > RUN_SIZE:
            self._keep()

    def extend(self, lines: Sequence[bytes]) -> None:
        """Add lines, which fit into memory."""
        self._waiting += lines
        self._waiting_size += sum(map(len, lines)) + len(lines)
        if self._waiting_size > RUN_SIZE:
            self._keep()

    def add_text(self, text: bytes) -> None:
        """Add sorted, different lines as one text, in which each ends in a line end."""
        if self._waiting:
            self._keep()
        if text:
            self._file.add(text, text.count(b"\n"))

    def _keep(self) -> None:
        self._file.add(*_as_text(sorted(self._waiting)))
        self._waiting, self._waiting_size = [], 0

    def __len__(self) -> int:
        """The number of different lines."""
        return self._whole().count

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self.blocks())

    def blocks(self) -> Iterator[Lines]:
        """All lines, in blocks."""
        return map(split_lines, self.texts())

    def texts(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The lines between two offsets in their text, in blocks of one text each, in which all have ends."""
        file = self._whole()
        end = file.size if end is None else end
        while start < end:
            with self._guard:
                text = file.read(start, min(BLOCK_SIZE, end - start))
            yield text
            start += len(text)

    def _whole(self) -> _Sorted:
        """The file with all lines, sorted."""
        with self._guard:
            if self._waiting:
                self._keep()
            if len(self._file.runs) > 1:
                self._file, runs = _Sorted(), self._file
                for text, count in _merge([*runs.blocks()]):
                    self._file.add(text, count)
            return self._file


class _Sorted:
    """A file of runs, which are stretches of sorted lines; lines added in order continue a run.

    runs   (begin, end) of each run
    count  how many lines there are
    """

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []
        self.size = self.count = 0
        self._last = b""
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=RUN_SIZE)  # noqa: SIM115 - closed with this

    def add(self, text: bytes, count: int) -> None:
        """Add sorted, different lines, each with its line end."""
        first = text[: text.index(b"\n")]
        begin = self.runs.pop()[0] if self.runs and self._last < first else self.size
        try:
            self._file.seek(self.size)
            self.size += self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise StoreError(f"cannot sort keys: {error.strerror}", path=gettempdir()) from error
        self.runs.append((begin, self.size))
        self.count += count
        self._last = text[text.rfind(b"\n", 0, -1) + 1 : -1]

    def read(self, start: int, size: int) -> bytes:
        """Whole lines from an offset on, about `size` bytes, but at least one line."""
        self._file.seek(start)
        text = self._file.read(size)
        if not text.endswith(b"\n"):
            text += self._file.readline()
        return text

    def blocks(self) -> Iterator[Iterator[Lines]]:
        """The lines of each run, in blocks, which are smaller where there are more runs."""
        size = min(BLOCK_SIZE, RUN_SIZE // len(self.runs))
        return (self._run(begin, end, size) for begin, end in self.runs)

    def _run(self, begin: int, end: int, size: int) -> Iterator[Lines]:
        while begin < end:
            text = self.read(begin, max(1, min(size, end - begin)))
            begin += len(text)
            yield split_lines(text)

    def __del__(self) -> None:
        self._file.close()


def split_lines(text: bytes) -> Lines:
    """The lines of a text in which every line ends in a line end."""
    return text[:-1].split(b"\n")


def _as_text(lines: Lines) -> tuple[bytes, int]:
    """(a text of the sorted lines, each once; their number)."""
    is_unique = not any(map(eq, lines, islice(lines, 1, None)))
    kept = lines if is_unique else dict.fromkeys(lines)
    return b"\n".join([*kept, b""]), len(kept)


def _merge(runs: Sequence[Iterator[Lines]]) -> Iterator[tuple[bytes, int]]:
    """The lines of sorted runs in one order, many at a time."""
    heads = [next(run) for run in runs]
    while any(heads):
        end, lines = min(head[-1] for head in heads if head), Lines()
        for at, head in enumerate(heads):
            count = bisect_right(head, end)
            if count:
                lines += head[:count]
                heads[at] = head[count:] or next(runs[at], [])
        yield _as_text(sorted(lines))


def align(ours: Iterable[Lines], theirs: Iterable[Lines]) -> Iterator[tuple[Lines, Lines]]:
    """Blocks of lines of two spools side by side, each pair of blocks with the same stretch of names.

    The name of a line is what stands before its first NUL.
    """
    some, others = iter(ours), iter(theirs)
    mine, its = next(some, []), next(others, [])
    while mine or its:
        count, other = len(mine), len(its)
        if mine and its:
            end = min(name_of(mine[-1]), name_of(its[-1]))
            count, other = (bisect_right(lines, end, key=name_of) for lines in (mine, its))
        yield mine[:count], its[:other]
        mine, its = mine[count:] or next(some, []), its[other:] or next(others, [])


def match(ours: Iterable[Lines], theirs: Iterable[Lines]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Pairs of lines of two spools with the same name; None for a line that one of them lacks."""
    for pair in align(ours, theirs):
        mine, its = ({name_of(line): line for line in lines} for lines in pair)
        for name in sorted({**mine, **its}):
            yield mine.get(name), its.get(name)


def name_of(line: bytes) -> bytes:
    """The part of a line before its first NUL."""
    return line.partition(b"\0")[0]
