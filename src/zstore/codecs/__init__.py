"""One chunk to bytes and back: what a codec is, chains of them, and one file per codec."""

from typing import TYPE_CHECKING, Any

from zstore.base.misses import missing_name

HINT = "a codec by name: 'zstd', 'zstd:9', {'name': 'blosc', 'configuration': {...}}"

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        raise missing_name(f"module {__name__!r}", name, HINT)
