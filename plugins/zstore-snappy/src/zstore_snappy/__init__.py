"""The hook by which zstore finds the codec "numcodecs.imagecodecs_snappy", "imagecodecs_snappy" in v2."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_codecs"]


@hookimpl
def register_codecs() -> list[Offer]:
    """Snappy, under the name that numcodecs' users gave it."""
    return [Offer("numcodecs.imagecodecs_snappy", "zstore_snappy.codec:Snappy")]
