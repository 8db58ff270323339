"""Bytes by key: what a store is, and the stores that come with zstore."""

from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        hint = (
            ""
            if name.startswith("_")
            else ("; use a path or a URL, such as 'memory://name', 'a.zip' or 's3://bucket/key'")
        )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
