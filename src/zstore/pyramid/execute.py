"""Passes carried out: units on threads or the caller's executor, what they share put together here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import product
from queue import SimpleQueue
from typing import Any, Protocol
from uuid import uuid4

import numpy as np

from zstore.pyramid.cascade import Box, Pass, Piece, Shape, make_unit, outer_chunks, volume
from zstore.pyramid.record import Journal
from zstore.pyramid.sizes import units_at_once

__all__ = ["Executor", "counter", "run_passes"]

# So many units wait in somebody else's executor: enough for some hundred workers.
UNITS_AHEAD = 512

Tick = Callable[[int], None]
# What makes one unit of a pass, here or in another process, and gives back what it does not own whole.
Make = Callable[[Any, Shape], list[Piece]]
# Whether a unit of a pass would read nothing but nodata, where the levels hold nothing yet.
Blank = Callable[[Any, Shape], bool]


class Executor(Protocol):
    """What runs units: `concurrent.futures` executors, a `dask.distributed.Client`, and the like.

    Its futures have `result`, `cancel` and `add_done_callback`.
    """

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """A future of `function(*args)`."""


def counter(total: int, progress: Callable[[int, int], None] | None) -> Callable[[int], None]:
    """What takes the number of cells just made, and calls `progress` with (all made so far, total)."""
    done = 0

    def tick(cells: int) -> None:
        nonlocal done
        done += cells
        if progress is not None:
            progress(done, total)

    return tick


def run_passes(
    passes: Sequence[Any],
    *,
    make: Make = make_unit,
    is_blank: Blank | None = None,
    executor: Executor | None = None,
    journal: Journal | None = None,
    label: str = "",
    tick: Tick = lambda cells: None,
) -> None:
    """Make what the passes say, one pass after the other, each unit of them by `make`.

    Units run on `executor`, or on threads of this process. Each writes the chunks that it owns whole; chunks
    that units share parts of are put together and written here. So every chunk is written once, and no two
    workers touch one. A unit that runs twice writes the same twice.

    `journal` keeps what has been made, and says what need not be made again; `label` sets these passes apart
    from others there. Units that `is_blank` knows to be empty are not made. `tick` hears how many cells of
    the first pass's source have been dealt with.

    Raises
        Whatever a unit raises, after those that run have ended; StoreError where the store fails.
    """
    own = ThreadPoolExecutor(units_at_once()) if executor is None else None
    pool: Executor = executor or own  # type: ignore[assignment]
    try:
        for number, work in enumerate(passes):
            name = f"{label}-{number}-{'x'.join(map(str, work.unit))}"
            ahead = units_at_once() if own is not None else UNITS_AHEAD
            listen = tick if number == 0 else lambda cells: None
            _Run(replace(work, run=uuid4().hex), make, is_blank, pool, ahead, journal, name, listen).run()
    finally:
        if own is not None:
            own.shutdown()


class _Run:
    def __init__(
        self,
        work: Pass,
        make: Make,
        is_blank: Blank | None,
        pool: Executor,
        ahead: int,
        journal: Journal | None,
        name: str,
        tick: Tick,
    ) -> None:
        self._work = work
        self._make = make
        self._is_blank = is_blank
        self._pool = pool
        self._ahead = ahead
        self._journal = journal
        self._name = name
        self._tick = tick
        self._shared = _Shared(work)
        self._waiting: dict[Shape, Any] = {}
        self._done: SimpleQueue[Shape] = SimpleQueue()

    def run(self) -> None:
        try:
            for origin in self._work.origins():
                known = self._known(origin)
                if known is not None:
                    self._take(origin, known)
                    continue
                if len(self._waiting) >= self._ahead:
                    self._finish()
                self._start(origin)
            while self._waiting:
                self._finish()
        except BaseException:
            self._stop()
            if self._journal is not None:
                # What does not reach it is made again; the first error is what the caller is to hear.
                with suppress(OSError):
                    self._journal.write()
            raise

    def _start(self, origin: Shape) -> None:
        future = self._pool.submit(self._make, self._work, origin)
        self._waiting[origin] = future
        future.add_done_callback(lambda _: self._done.put(origin))

    def _finish(self) -> None:
        origin = self._done.get()
        pieces = self._waiting.pop(origin).result()
        if self._journal is not None:
            self._journal.put(f"{self._name}/{_dotted(origin)}", [piece.cells for piece in pieces])
        self._take(origin, pieces)

    def _take(self, origin: Shape, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._shared.add(piece)
        sides = zip(origin, self._work.unit, self._work.source.shape, strict=True)
        self._tick(volume(tuple(slice(o, min(o + u, n)) for o, u, n in sides)))

    def _known(self, origin: Shape) -> list[Piece] | None:
        """What a unit gives back that need not be made."""
        if self._is_blank is not None and self._is_blank(self._work, origin):
            levels = self._work.levels
            return [
                Piece(
                    level, box, np.full(_lengths(box), levels[level - 1].fill_value, levels[level - 1].dtype)
                )
                for level, box in self._shared_boxes(origin)
            ]
        return None if self._journal is None else self._recall(self._journal, origin)

    def _recall(self, journal: Journal, origin: Shape) -> list[Piece] | None:
        """What the journal holds of a unit; None where it has not been made."""
        boxes = self._shared_boxes(origin)
        shapes = [_lengths(box) for _, box in boxes]
        found = journal.get(f"{self._name}/{_dotted(origin)}", shapes, self._work.source.dtype)
        if found is None:
            return None
        return [Piece(level, box, cells) for (level, box), cells in zip(boxes, found, strict=True)]

    def _shared_boxes(self, origin: Shape) -> list[tuple[int, Box]]:
        """What a unit gives back: its parts of the levels whose chunks are put together."""
        work = self._work
        owned = [(n, work.own(origin, n)) for n in range(work.whole_count + 1, len(work.levels) + 1)]
        return [(level, box) for level, box in owned if volume(box)]

    def _stop(self) -> None:
        """End what waits and wait for what runs, so that nothing is written behind the caller's back."""
        for future in self._waiting.values():
            future.cancel()
        for future in self._waiting.values():
            # The first error is on its way already.
            with suppress(CancelledError):
                future.exception()


class _Shared:
    """Chunks that several units own parts of, each kept until it is whole."""

    def __init__(self, work: Pass) -> None:
        self._work = work
        self._chunks: dict[tuple[int, Shape], tuple[np.ndarray[Any, Any], list[int]]] = {}

    def add(self, piece: Piece) -> None:
        """Put a piece into the chunks it belongs to, and write those that are whole with it."""
        array, limits = self._work.levels[piece.level - 1], self._work.boxes[piece.level]
        steps = outer_chunks(array)
        sides = zip(piece.box, steps, strict=True)
        for place in product(*(range(s.start // n, -(-s.stop // n)) for s, n in sides)):
            chunk = _meet(tuple(slice(p * n, (p + 1) * n) for p, n in zip(place, steps, strict=True)), limits)
            part = _meet(chunk, piece.box)
            key = (piece.level, place)
            if key not in self._chunks:
                shape = [side.stop - side.start for side in chunk]
                self._chunks[key] = (np.empty(shape, piece.cells.dtype), [volume(chunk)])
            cells, missing = self._chunks[key]
            cells[_shift(part, chunk)] = piece.cells[_shift(part, piece.box)]
            missing[0] -= volume(part)
            if missing[0] == 0:
                del self._chunks[key]
                array[chunk] = cells


def _meet(one: Box, other: Box) -> Box:
    return tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True))


def _shift(box: Box, outer: Box) -> Box:
    return tuple(slice(b.start - o.start, b.stop - o.start) for b, o in zip(box, outer, strict=True))


def _lengths(box: Box) -> Shape:
    return tuple(side.stop - side.start for side in box)


def _dotted(origin: Shape) -> str:
    return ".".join(map(str, origin)) or "0"
