"""What a plugin offers: a name, and where the class behind it is. Strings, so nothing named is imported."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Offer"]


class Offer(NamedTuple):
    """One name that can be asked for, e.g. `Offer("zstd", "zstore.codecs.zstd:Zstd")`.

    `target` is "package.module:Class", imported when the name (or one of the `aliases`) is first used.
    """

    name: str
    target: str
    aliases: tuple[str, ...] = ()
