"""Bytes by key: what a store is, and the stores that come with zstore."""

from typing import TYPE_CHECKING, Any

from zstore.base.misses import missing_name

HINT = "a path or a URL, such as 'memory://name', 'a.zip' or 's3://bucket/key'"

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        raise missing_name(f"module {__name__!r}", name, HINT)
