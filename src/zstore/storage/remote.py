"""Rules for requests to servers, by any library: after which failures they are repeated, and how often."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from time import monotonic
from typing import NamedTuple, TypeVar

from zstore.base import tracing
from zstore.base.limits import Limits
from zstore.base.locks import Lock
from zstore.base.tracing import note_span, span

T = TypeVar("T")

# HTTP statuses after which a request is repeated, and the pauses before (seconds), which double each time.
PASSING = {408, 425, 429, 500, 502, 503, 504}
FIRST_PAUSE = 0.25
LAST_PAUSE = 5.0


@dataclass(slots=True)
class RequestCounts:
    """The numbers of requests to servers, and of bytes sent and received, of this process.

    requests         all of them, retries included; those of libcurl, obstore, aiohttp and s3fs
    failed_requests  those that no retry has mended; that something is missing is no failure
    """

    requests: int = 0
    retries: int = 0
    failed_requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


_counts = RequestCounts()
_lock = Lock()


class RequestLine(NamedTuple):
    """A request's method (HTTP's, or LIST), its key, and the bytes that it sends."""

    method: str
    key: str
    sent_size: int = 0


def request_counts() -> RequestCounts:
    """The counts of this process so far."""
    with _lock:
        return replace(_counts)


def note_answers(method: str, answers: Iterable[tuple[str, int, int, float]]) -> None:
    """Count requests that had their answer at once: (key, bytes sent, bytes that it brought, its seconds)."""
    count = sent = received = 0
    for key, sent_size, size, seconds in answers:
        count += 1
        sent += sent_size
        received += size
        if tracing.is_on:
            note_span("request", seconds, method=method, key=key, bytes=size + sent_size, retries=0)
    with _lock:
        _counts.requests += count
        _counts.bytes_sent += sent
        _counts.bytes_received += received


def pause_before(attempt: int) -> float:
    """Seconds to wait after that many attempts."""
    longest: float = min(FIRST_PAUSE * 2**attempt, LAST_PAUSE)
    return random.uniform(0.5, 1) * longest


async def repeated(
    ask: Callable[[], Awaitable[T]],
    pause_after: Callable[[Exception, int], float | None],
    sleep: Callable[[float], Awaitable[None]],
    limits: Limits,
    *,
    is_bucket: bool,
    line: RequestLine,
) -> T:
    """The result of `ask`, repeated as often and as long as the limits allow.

    pause_after  seconds to wait after an error and so many attempts; None: repeating is of no use
    """
    begin, most = monotonic(), limits.bucket_attempt_count if is_bucket else limits.attempt_count
    attempt, received, failed = 0, 0, False
    with span("request", method=line.method, key=line.key) as here:
        try:
            for attempt in count(1):
                try:
                    answer = await ask()
                except Exception as error:
                    wait = pause_after(error, attempt)
                    if wait is None or attempt >= most or monotonic() - begin + wait > limits.total_time:
                        failed = not isinstance(error, FileNotFoundError)
                        raise
                else:
                    received = len(getattr(answer, "data", b""))
                    return answer
                await sleep(wait)
        finally:
            here.note(bytes=received + line.sent_size, retries=attempt - 1)
            with _lock:
                _counts.requests += attempt
                _counts.retries += attempt - 1
                _counts.failed_requests += failed
                _counts.bytes_sent += line.sent_size
                _counts.bytes_received += received
    raise AssertionError


def too_slow(limits: Limits) -> TimeoutError:
    """The error for a body that arrives slower than the limits allow."""
    return TimeoutError(
        f"less than {limits.progress_size} bytes came in {limits.read_time:g} s, the limit read_time "
        "(zstore.set_limits)"
    )


def is_directory(url: object) -> bool:
    """Whether a response is about a directory: a server redirects "a/b" to "a/b/" then.

    Such a response (a page for people, or a refusal) is no value; no key ends in "/".
    """
    return str(url).partition("?")[0].endswith("/")


def strong_tag(tag: str | None) -> str | None:
    """The entity tag, unless it is a weak one, which two values may share."""
    return None if tag is None or tag.startswith("W/") else tag
