"""Stores, which keep bytes by key: their interface, and those that come with zstore."""

from typing import TYPE_CHECKING, Any

from zstore.errors import missing_name

HINT = "a path or a URL, such as 'memory://name', 'a.zip' or 's3://bucket/key'"

if not TYPE_CHECKING:  # type checkers report names that do not exist

    def __getattr__(name: str) -> Any:
        raise missing_name(f"module {__name__!r}", name, HINT)
