"""Codecs, chunks and shards, measured on a sample of your own data: `zstore tune`, and `tune` in Python.

This module is imported whenever plugins are loaded, so it imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zstore.plugin import Offer, hookimpl

if TYPE_CHECKING:
    from zstore_tune.measure import Choice, Tuning, tune

__all__ = ["Choice", "Tuning", "register_commands", "tune"]


@hookimpl
def register_commands() -> list[Offer]:
    """The command that this package adds to `zstore`."""
    summary = "Measure codecs, chunks and shards on a sample of an array."
    return [Offer("tune", "zstore_tune.command:tune", summary=summary)]


if not TYPE_CHECKING:  # so that type checkers still report unknown names

    def __getattr__(name: str) -> Any:
        if name in ("Choice", "Tuning", "tune"):
            from zstore_tune import measure

            return getattr(measure, name)
        raise AttributeError(f"module 'zstore_tune' has no attribute {name!r}")
