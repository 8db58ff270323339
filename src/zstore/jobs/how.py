"""The words of long calls for how they work, with one meaning and default each.

`How` is the table of the words. A long call takes them as `**words: Unpack[HowWords]`; `long_call` shows in
its signature and documentation those that it takes, and refuses the others with the reason that it has.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypedDict, TypeVar, get_type_hints

from zstore.errors import MetadataError, going_on, say_no_memory
from zstore.jobs.plan import Estimate, Progress
from zstore.jobs.record import resumable
from zstore.jobs.runner import Executor, units_at_once
from zstore.storage.base import Store

P = ParamSpec("P")
R = TypeVar("R")


class HowWords(TypedDict, total=False):
    """The words of `How` as arguments of a long call."""

    memory: int | None
    executor: Executor | None
    durable: bool
    progress: Progress | None
    resume: bool
    overwrite: bool
    dry_run: bool
    if_exists: str


@dataclass(frozen=True, kw_only=True)
class How:
    """The way in which a long call works; each word has the same meaning and default in every call.

    memory      the most bytes to hold at once, about; with an executor, in each of its workers
    executor    makes the units elsewhere: a process pool, a `dask.distributed.Client`; None: threads here
    durable     the target survives a power cut as soon as the call returns; refused where it cannot
    progress    called with (how much is done, how much there is to do)
    resume      go on with the same call that was interrupted at the target, or begin it; where it has ended,
                make again what has changed in the source since, and nothing else, or refuse with ChangedError
    overwrite   replace what is at the target, or what an interrupted call left there
    dry_run     return an `Estimate` of the call, and write nothing
    if_exists   keys that the target has: "error" refuses to begin, "skip" keeps them, "overwrite" replaces
                them, "changed" replaces those that differ
    """

    memory: int | None = None
    executor: Executor | None = None
    durable: bool = False
    progress: Progress | None = None
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False
    if_exists: str = "error"

    def __post_init__(self) -> None:
        if self.memory is not None and (type(self.memory) is not int or self.memory < 1):
            raise MetadataError(f"memory is {self.memory!r}; expected a number of bytes")

    def opened(self, store: Store) -> Store:
        """The store, durable if requested."""
        return store.as_durable() if self.durable else store

    def at_once(self, unit_size: int, most: int | None = None) -> int | None:
        """The number of units of `unit_size` bytes that run at a time: as many as fit into `memory`.

        most  the most of them; None: as many as the runner takes

        Raises
            MetadataError: memory holds no unit.
        """
        if self.memory is None:
            return most
        if unit_size > self.memory:
            raise MetadataError(f"memory is {self.memory} bytes; expected {unit_size} at least, for one unit")
        # Each worker of an executor makes one unit at a time.
        if self.executor is not None:
            return most
        return min(self.memory // max(1, unit_size), units_at_once() if most is None else most)

    def stop_if_dry(self, estimate: Callable[[], Estimate]) -> None:
        """End a call with `dry_run` before it writes: it returns the estimate."""
        if self.dry_run:
            _tell(estimate())


class _DryEnd(Exception):
    """Raised at the point where a call with `dry_run` would begin to write."""

    def __init__(self, estimate: Estimate) -> None:
        super().__init__("nothing is done")
        self.estimate = estimate


def _tell(estimate: Estimate) -> NoReturn:
    raise _DryEnd(estimate)


# The words with their defaults, and with their meanings, lines of How's docstring.
WORDS: dict[str, Any] = {one.name: one.default for one in fields(How)}
MEANINGS = dict(re.findall(r"^(\w+) {2,}(\S.*(?:\n {12}.*)*)", inspect.getdoc(How) or "", re.MULTILINE))
# Reasons for which words have no meaning.
NOT_BY_KEYS = "it makes whole nodes, not keys: overwrite replaces what is there"
READS_ONLY = {
    "durable": "it stores nothing that could be lost",
    "overwrite": "it stores nothing in place of anything",
    "if_exists": "it stores nothing in place of anything",
}


def long_call(**refused: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for functions with `**words: Unpack[HowWords]`; with `dry_run` they return an Estimate.

    The records of work that the function begins name it and its arguments. It may take no words at all.
    A function that leaves out what it cannot read goes on, and raises the first of these errors at its end.

    refused  words that have no meaning for the function, with the reason

    Raises, when the function is called
        TypeError: a refused word has another value than its default; the error says the reason.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        hints = get_type_hints(HowWords)
        shown = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        own = {p.name for p in shown}
        takes_words = len(shown) < len(signature.parameters)
        taken = [name for name in WORDS if takes_words and name not in refused and name not in own]
        shown += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=WORDS[name], annotation=hints[name]
            )
            for name in taken
        ]
        function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        inner = resumable(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, reason in refused.items():
                if kwargs.get(name, WORDS[name]) != WORDS[name]:
                    raise TypeError(refusal(function.__name__, name, reason))
            try:
                with going_on():
                    return inner(*args, **kwargs)
            except _DryEnd as told:
                return told.estimate  # type: ignore[return-value]
            except (SystemError, RuntimeError, ValueError) as error:
                say_no_memory(error)
                raise

        if not takes_words:
            return call
        call.__refused__ = refused  # type: ignore[attr-defined]
        if function.__doc__:  # none where Python runs without docstrings
            call.__doc__ = _document(function.__doc__, taken, refused)
        return call

    return decorate


def refusal(call: str, word: str, reason: str) -> str:
    """The sentence of an error for a word that has no meaning for a call."""
    return f"{word} does not go with {call}: {reason}"


def refused(function: Callable[..., Any]) -> Mapping[str, str]:
    """The words that have no meaning for a long call, with the reason."""
    words: Mapping[str, str] = getattr(function, "__refused__", {})
    return words


def _document(text: str, taken: list[str], refused: Mapping[str, str]) -> str:
    """The docstring, with the words that a call takes, and the reasons for those that it refuses."""
    # As newer Pythons keep docstrings: without the indentation of the source.
    meanings = [f"    {name:<11} {MEANINGS[name]}".replace("\n", "\n    ") for name in taken]
    reasons = [f"    {name:<11} not taken: {reason}" for name, reason in refused.items()]
    heading = "How, in the same words as every long call"
    return "\n".join((inspect.cleandoc(text), "", heading, *meanings, *reasons))
