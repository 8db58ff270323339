"""The hook by which zstore finds the codecs "numcodecs.imagecodecs_png" and so on."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_codecs"]

FORMATS = ("Jpeg2k", "Jpegxl", "Jpegls", "Lerc", "Png", "Webp", "Jpeg", "Avif")


@hookimpl
def register_codecs() -> list[Offer]:
    """One codec for each format, under the name that numcodecs' users gave it."""
    return [
        Offer(f"numcodecs.imagecodecs_{name.lower()}", f"zstore_imagecodecs.formats:{name}")
        for name in FORMATS
    ]
