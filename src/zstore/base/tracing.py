"""Spans: the things that zstore does, with their seconds, recorded while a trace is open."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from zstore.base.locks import Lock

# Spans that a trace keeps; of more, it has the totals.
MOST_SPANS = 100_000
# Nanoseconds; making a span takes 2500.
BRIEF = 100_000

is_on = False
"""Whether any trace is running: whatever is called often asks this before it opens a span."""

brief = 0
"""Opens, reads and writes of fewer nanoseconds are counted by the kernels, and have no span."""

COUNTED = ("open", "read", "write")
"""These kinds, in the order of the kernels' counts."""

Counts: TypeAlias = tuple[int, int, int, int]


def _none() -> tuple[Counts, ...]:
    return ((0, 0, 0, 0),) * len(COUNTED)


brief_counts: Callable[[], tuple[Counts, ...]] = _none
"""Of each kind their number, nanoseconds, chunks and bytes: the kernels' own, once they are loaded."""

_traces: tuple[Trace, ...] = ()
_lock = Lock()
_current: ContextVar[TraceSpan | None] = ContextVar("zstore_span", default=None)


@dataclass(slots=True)
class TraceSpan:
    """Something that zstore has done: its name, when it began (seconds, Unix time), and how long it took.

    name        "open", "read", "write", "fetch", "request", "decode", "job" or "unit"
    attributes  the array or key, numbers of chunks, bytes, retries; never credentials
    parent      the span within which it was done, on whichever thread; None: nobody's
    error       the name of the error that ended it
    """

    name: str
    attributes: dict[str, Any]
    begin: float
    parent: TraceSpan | None = None
    seconds: float = 0.0
    error: str | None = None
    thread: int = field(default_factory=threading.get_ident)
    exported: dict[int, Any] | None = field(default=None, repr=False)
    _token: Token[TraceSpan | None] = field(init=False, repr=False, compare=False)
    _traces: tuple[Trace, ...] = field(default=(), init=False, repr=False, compare=False)

    def __enter__(self) -> Self:
        self._traces = _traces
        for one in self._traces:
            one.begun(self)
        self._token = _current.set(self)
        self.seconds = -time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.seconds += time.perf_counter()
        try:  # noqa: SIM105 (`suppress` takes 0.4 µs)
            _current.reset(self._token)
        except ValueError:  # a task that was given up is closed outside of its context
            pass
        if kind is not None:
            self.error = kind.__name__
        for one in self._traces:
            one.ended(self)

    def note(self, **attributes: Any) -> None:
        """Add attributes to the span."""
        self.attributes.update(attributes)

    def note_later(self, make: Callable[..., dict[str, Any]], *words: Any) -> None:
        """Add the attributes that `make` gives; a span that may be brief calls it when it is kept."""
        self.attributes.update(make(*words))


@dataclass(slots=True)
class Total:
    """The sum of all spans of one name; seconds on several threads at once all count."""

    count: int = 0
    seconds: float = 0.0
    chunks: int = 0
    bytes: int = 0
    retries: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, span: TraceSpan) -> None:
        """Add a span that has ended."""
        attributes = span.attributes
        self.count += 1
        self.seconds += span.seconds
        self.chunks += attributes.get("chunks", 0)
        self.bytes += attributes.get("bytes", 0)
        self.retries += attributes.get("retries", 0)
        if span.error is not None:
            self.errors[span.error] += 1


class Trace(AbstractContextManager["Trace"]):
    """The spans of all that zstore does in this process while the context is open.

    `print(trace)` shows a table with one line for each name of spans. `spans` are the first ones that ended,
    `totals` the sums of all of them, and of opens, reads and writes on this machine that take less than
    0.1 ms, which have no span.
    """

    def __init__(self, *, tracer: Any = None, most: int = MOST_SPANS) -> None:
        self.spans: list[TraceSpan] = []
        self._beyond: dict[str, Total] = defaultdict(Total)
        self._brief = [[0] * 4 for _ in COUNTED]
        self.tracer = tracer
        self._most = most
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._add_brief(-1)
        _set((*_traces, self))
        return self

    def __exit__(self, *error: object) -> None:
        _set(tuple(trace for trace in _traces if trace is not self))
        self._add_brief(1)

    def _add_brief(self, sign: int) -> None:
        self._brief = self._with_brief(sign)

    def _with_brief(self, sign: int) -> list[list[int]]:
        pairs = zip(self._brief, brief_counts(), strict=True)
        return [[n + sign * more for n, more in zip(*pair, strict=True)] for pair in pairs]

    @property
    def totals(self) -> dict[str, Total]:
        """The sums by the names of spans."""
        with self._lock:
            found = defaultdict(Total, deepcopy(self._beyond))
        for span in [*self.spans]:
            found[span.name].add(span)
        counts = self._with_brief(1) if self in _traces else self._brief
        for name, (count, nanoseconds, chunks, size) in zip(COUNTED, counts, strict=True):
            if count:
                total = found[name]
                total.count, total.seconds = total.count + count, total.seconds + nanoseconds / 1e9
                total.chunks, total.bytes = total.chunks + chunks, total.bytes + size
        return found

    def __str__(self) -> str:
        """A table: name, count, seconds, chunks, MB, retries and errors."""
        head = ("span", "count", "seconds", "chunks", "MB", "retries", "errors")
        rows = [head, *(self._row(name, total) for name, total in sorted(self.totals.items()))]
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        return "\n".join(_line(row, widths) for row in rows)

    def _row(self, name: str, total: Total) -> tuple[str, ...]:
        errors = ", ".join(f"{count} {error}" for error, count in total.errors.items())
        numbers = (str(total.chunks or ""), f"{total.bytes / 1e6:.3f}" if total.bytes else "")
        return (
            name,
            str(total.count),
            f"{total.seconds:.4f}",
            *numbers,
            str(total.retries or ""),
            errors,
        )

    def begun(self, span: TraceSpan) -> None:
        """Tell OpenTelemetry of a span that begins."""
        if self.tracer is not None:
            above = None if span.parent is None else (span.parent.exported or {}).get(id(self))
            span.exported = {**(span.exported or {}), id(self): _exported(self.tracer, span, above)}

    def ended(self, span: TraceSpan) -> None:
        """Keep a span, or of more than are kept their sums."""
        exported = None if span.exported is None else span.exported.pop(id(self), None)
        if exported is not None:
            for name, value in span.attributes.items():
                exported.set_attribute(f"zstore.{name}", value)
            if span.error is not None:
                exported.set_attribute("error.type", span.error)
            exported.end(int((span.begin + span.seconds) * 1e9))
        if len(self.spans) < self._most:
            self.spans.append(span)
        else:
            with self._lock:
                self._beyond[span.name].add(span)


def trace(*, tracer: Any = None, most: int = MOST_SPANS) -> Trace:
    """A context that notes the opens, reads, writes, requests and units of jobs of this process.

    tracer  of OpenTelemetry, which is told of every span too, below the caller's own
    most    the spans that are kept; totals count all

    Without a tracer, reads of files by `array[...]`, writes to files and memory and opens of paths that
    take less than 0.1 ms are counted, and have no span. Work in other processes is not seen. Attributes
    have paths and keys, never credentials.

    >>> import numpy as np, zstore
    >>> array = zstore.create_array("memory://", data=np.arange(6), chunks=2)
    >>> with zstore.trace() as trace:
    ...     total = array[:4].sum()
    >>> trace.totals["read"].chunks, trace.totals["read"].bytes
    (2, 32)
    """
    return Trace(tracer=tracer, most=most)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.ljust(width) if k in (0, len(row) - 1) else cell.rjust(width)
        for k, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _exported(tracer: Any, span: TraceSpan, above: Any) -> Any:
    from opentelemetry.trace import set_span_in_context

    context = None if above is None else set_span_in_context(above)
    return tracer.start_span(f"zstore.{span.name}", context, start_time=int(span.begin * 1e9))


def _set(traces: tuple[Trace, ...]) -> None:
    global _traces, is_on, brief
    with _lock:
        _traces, is_on = traces, bool(traces)
        brief = 0 if any(one.tracer is not None for one in traces) else BRIEF


class _Nothing:
    """A span that nobody records."""

    def note(self, **attributes: Any) -> None:
        """Ignore the attributes."""

    def note_later(self, make: Callable[..., dict[str, Any]], *words: Any) -> None:
        """Ignore them, and do not make them."""


AnySpan: TypeAlias = AbstractContextManager[TraceSpan | _Nothing]

NOTHING: AnySpan = nullcontext(_Nothing())


def span(name: str, **attributes: Any) -> AnySpan:
    """A context whose body is recorded as a span, with the attributes known when it begins."""
    return TraceSpan(name, attributes, time.time(), _current.get()) if is_on else NOTHING


def note_span(name: str, seconds: float, error: str | None = None, **attributes: Any) -> None:
    """Record something that has just ended, after so many seconds, or failed with an error of that name."""
    here = TraceSpan(name, attributes, time.time() - seconds, _current.get(), seconds, error)
    for one in _traces:
        one.begun(here)
        one.ended(here)


def note_near(kind: int, nanoseconds: int, error: str | None, make: Any, words: tuple[Any, ...]) -> None:
    """Record a call that was not brief, or failed, of a kind by its place in COUNTED."""
    note_span(COUNTED[kind], nanoseconds / 1e9, error, **({} if make is None else make(*words)))
