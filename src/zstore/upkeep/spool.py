"""Many lines in the order of their bytes, in memory that does not grow with them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile, gettempdir
from typing import IO

from zstore.base.locks import Lock
from zstore.errors import StoreError

# So many bytes of lines are sorted in memory; beyond, they go to temporary files.
RUN_SIZE = 8 << 20
BLOCK_SIZE = 64 << 10


class Spool:
    """Lines that are added in any order, and read in the order of their bytes, each once.

    No line has a line end in it. Nothing is added after the first reading.

    Raises
        StoreError: there is no room for the temporary files.
    """

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._runs: list[IO[bytes]] = []
        self._sorted: IO[bytes] | None = None
        self._guard = Lock()
        self._count = 0
        for line in lines:
            self.add(line)

    def add(self, line: bytes) -> None:
        """Keep one more line."""
        self._waiting.append(line)
        self._waiting_size += len(line) + 1
        if self._waiting_size > RUN_SIZE:
            self._runs.append(_write(sorted(self._waiting))[0])
            self._waiting, self._waiting_size = [], 0

    def __len__(self) -> int:
        """How many different lines there are."""
        self._file()
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return self.lines()

    def lines(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The lines between two offsets, each the sum of `len(line) + 1` of lines from the first on."""
        file, rest = self._file(), b""
        while end is None or start < end:
            with self._guard:
                file.seek(start)
                block = file.read(BLOCK_SIZE if end is None else min(BLOCK_SIZE, end - start))
            if not block:
                return
            start += len(block)
            *whole, rest = (rest + block).split(b"\n")
            yield from whole

    def _file(self) -> IO[bytes]:
        with self._guard:
            if self._sorted is None:
                runs = [_read(run) for run in self._runs]
                self._sorted, self._count = _write(heapq.merge(*runs, iter(sorted(self._waiting))))
                self._close_runs()
            return self._sorted

    def _close_runs(self) -> None:
        for run in self._runs:
            run.close()
        self._runs, self._waiting = [], []

    def __del__(self) -> None:
        self._close_runs()
        if self._sorted is not None:
            self._sorted.close()


def match(ours: Iterable[bytes], theirs: Iterable[bytes]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Lines of two spools side by side where they are the same up to the first NUL, else beside None."""
    some, others = iter(ours), iter(theirs)
    one, other = next(some, None), next(others, None)
    while one is not None or other is not None:
        name, its = (None if line is None else line.partition(b"\0")[0] for line in (one, other))
        if its is None or (name is not None and name < its):
            yield one, None
            one = next(some, None)
        elif name is None or its < name:
            yield None, other
            other = next(others, None)
        else:
            yield one, other
            one, other = next(some, None), next(others, None)


def _write(lines: Iterable[bytes]) -> tuple[IO[bytes], int]:
    """A file of the lines, those that stand twice once, and how many they are."""
    count, last = 0, None
    file: IO[bytes] = SpooledTemporaryFile(max_size=RUN_SIZE)  # noqa: SIM115 - closed with the spool
    try:
        for line in lines:
            if line != last:
                file.write(line + b"\n")
                count, last = count + 1, line
        file.flush()
    except OSError as error:
        file.close()
        raise StoreError(f"cannot sort what there is: {error.strerror}", path=gettempdir()) from error
    return file, count


def _read(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    return (line[:-1] for line in file)
