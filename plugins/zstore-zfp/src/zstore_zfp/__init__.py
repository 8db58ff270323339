"""The hook by which zstore finds the codec "zfp"."""

from __future__ import annotations

from zstore.extensions.hookspecs import hookimpl
from zstore.extensions.offers import Offer

__all__ = ["register_codecs"]


@hookimpl
def register_codecs() -> list[Offer]:
    """The name "zfp"."""
    return [Offer("zfp", "zstore_zfp.codec:Zfp")]
