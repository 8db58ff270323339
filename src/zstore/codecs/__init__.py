"""One chunk to bytes and back: what a codec is, chains of them, and one file per codec."""

from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        hint = (
            ""
            if name.startswith("_")
            else ("; use a codec by name: 'zstd', 'zstd:9', {'name': 'blosc', 'configuration': {...}}")
        )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
