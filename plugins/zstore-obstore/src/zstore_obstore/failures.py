"""obstore's exceptions as zstore's."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from zstore.errors import ChangedError, StoreError, ZstoreError

__all__ = ["changed", "failed", "first_line", "is_unsupported", "telling"]


def changed(url: str, key: str) -> ChangedError:
    return ChangedError(
        "value was written by somebody else since it was read; nothing was overwritten, do it again",
        path=url,
        key=key,
    )


@contextmanager
def telling(action: str, url: str, key: str | None) -> Iterator[None]:
    try:
        yield
    except ZstoreError:
        raise
    except Exception as error:  # obstore's have no base but this; every one goes on as the cause
        raise failed(action, url, key, error) from error


def is_unsupported(error: BaseException) -> bool:
    """Whether it says that a store cannot do such a thing at all."""
    # By name: a forked process has classes of its own.
    return isinstance(error, NotImplementedError) or type(error).__name__ == "NotSupportedError"


def first_line(error: BaseException) -> str:
    # obstore shows its own source's structures behind an empty line.
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def failed(action: str, url: str, key: str | None, error: BaseException) -> StoreError:
    failure = StoreError(f"cannot {action}: {first_line(error)}", path=url, key=key)
    if type(error).__name__ == "PermissionDeniedError":
        failure.errno = (
            errno.EACCES
        )  # whoever looks for several documents goes on with those that may be read
    return failure
