"""Answers that the threads of a call wait for, all of which are cancelled when the caller is interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import TypeVar

from zstore.base.locks import Lock

T = TypeVar("T")

# Seconds that an interrupted call takes to clean up behind itself in a store with latency.
GRACE = 0.2
# A signal that comes in the moment before a thread waits does not wake it. So many seconds later it is heard.
HEARING = 0.1


class LeftError(BaseException):
    """Raised on a thread in place of the answer that it waits for, as its caller was interrupted."""


class HasteError(Exception):
    """Raised in place of an answer that did not come in the seconds that `in_haste` grants."""


class Waits:
    """The answers that the threads of one call wait for, until `end` cancels all of them.

    may_block  whether the threads may also wait for what nobody can cancel, and are left behind with that
    """

    thread_count = 1
    """How many threads of the call wait at the same time, at most."""

    def __init__(self, *, may_block: bool = False) -> None:
        self.may_block = may_block
        self._lock = Lock()
        self._futures: set[Future[object]] | None = set()

    def enter(self) -> None:
        """Make the calling thread one of the call's threads, until it ends."""
        _here.waits = self

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the calling thread one of the call's threads, until the context ends."""
        before = current_waits()
        self.enter()
        try:
            yield
        finally:
            _here.waits = before

    def end(self) -> None:
        """Cancel the answers that the threads wait for; asking for another raises LeftError."""
        with self._lock:
            futures, self._futures = self._futures, None
        for future in futures or ():
            future.cancel()

    def __enter__(self) -> None:
        """Enter a context that ends the waits if an interrupt leaves it; errors do not end them."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and not isinstance(error, Exception):
            self.end()

    def check(self) -> None:
        """Raise LeftError if the caller has been interrupted."""
        if self._futures is None:
            raise LeftError

    def _result(self, future: Future[T]) -> T:
        with self._lock:
            if self._futures is not None:
                self._futures.add(future)  # type: ignore[arg-type]
        self.check()
        try:
            return _heard_result(future, None)
        except CancelledError:
            self.check()
            raise
        finally:
            with self._lock:
                if self._futures is not None:
                    self._futures.discard(future)


_here = threading.local()


def current_waits() -> Waits | None:
    """The waits of the call that the calling thread works for; None on a thread of the user's own."""
    return getattr(_here, "waits", None)


def check_waits() -> None:
    """Raise LeftError if the caller that this thread works for has been interrupted."""
    if (waits := current_waits()) is not None:
        waits.check()


def check_waiting() -> None:
    """Raise LeftError or HasteError, as `wait_for_result` does, if this thread is to wait no longer."""
    check_waits()
    until = getattr(_here, "until", None)
    if until is not None and time.monotonic() >= until and current_waits() is None:
        raise HasteError


def wait_for_result(future: Future[T]) -> T:
    """The result of a future, which is cancelled if this thread is to wait no longer.

    Raises
        LeftError: the caller that this thread works for was interrupted.
        HasteError: there was no answer `in_haste`.
    """
    waits, until = current_waits(), getattr(_here, "until", None)
    try:
        if waits is not None:
            return waits._result(future)
        return _heard_result(future, until)
    except BaseException:
        future.cancel()
        raise


def _heard_result(future: Future[T], until: float | None) -> T:
    while not future.done():
        left = HEARING if until is None else min(HEARING, until - time.monotonic())
        if left <= 0:
            raise HasteError
        with suppress(TimeoutError):
            return future.result(left)
    return future.result()


@contextmanager
def in_haste(error: BaseException) -> Iterator[None]:
    """A context to clean up in after `error`: if that is an interrupt, this thread waits GRACE seconds in it.

    What it waits for later raises HasteError; of a bucket, StoreError.
    """
    before = getattr(_here, "until", None)
    if not isinstance(error, Exception) and before is None:
        _here.until = time.monotonic() + GRACE
    try:
        yield
    finally:
        _here.until = before
