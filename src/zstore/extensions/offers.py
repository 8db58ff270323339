"""Offers: the name of a codec, a store, ..., with the import path of its class, imported at first use."""

from __future__ import annotations

from typing import NamedTuple


class Offer(NamedTuple):
    """A name and its class, e.g. `Offer("zstd", "zstore.codecs.zstd:Zstd")`.

    `target` is "package.module:Class", imported when the name (or one of the `aliases`) is first used.
    `summary` is the line about a command in `zstore --help`; without one the command is imported for its own.
    """

    name: str
    target: str
    aliases: tuple[str, ...] = ()
    summary: str = ""
