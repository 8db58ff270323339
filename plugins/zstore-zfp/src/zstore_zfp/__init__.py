"""The hook by which zstore finds the codec "zfp"."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_codecs"]


@hookimpl
def register_codecs() -> list[Offer]:
    """The name "zfp"."""
    return [Offer("zfp", "zstore_zfp.codec:Zfp")]
