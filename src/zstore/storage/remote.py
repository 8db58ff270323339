"""Rules for requests to servers, by any library: after which failures they are repeated, and how often."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import count
from time import monotonic
from typing import TypeVar

from zstore.base.limits import Limits

T = TypeVar("T")

# HTTP statuses after which a request is repeated, and the pauses before (seconds), which double each time.
PASSING = {408, 425, 429, 500, 502, 503, 504}
FIRST_PAUSE = 0.25
LAST_PAUSE = 5.0


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
) -> T:
    """The result of `ask`, repeated as often and as long as the limits allow.

    pause_after  seconds to wait after an error and so many attempts; None: repeating is of no use
    """
    begin, most = monotonic(), limits.bucket_attempt_count if is_bucket else limits.attempt_count
    for attempt in count(1):
        try:
            return await ask()
        except Exception as error:
            wait = pause_after(error, attempt)
            if wait is None or attempt >= most or monotonic() - begin + wait > limits.total_time:
                raise
        await sleep(wait)
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
