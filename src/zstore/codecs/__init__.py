"""Codecs turn chunks into bytes and back: the base classes, chains, and one file for each codec."""

from typing import TYPE_CHECKING, Any

from zstore.errors import missing_name

HINT = "a codec by name: 'zstd', 'zstd:9', {'name': 'blosc', 'configuration': {...}}"

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        raise missing_name(f"module {__name__!r}", name, HINT)
