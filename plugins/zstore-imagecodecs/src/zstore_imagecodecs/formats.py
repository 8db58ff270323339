"""The image formats: which chunks each of them takes, and which faults are found before decoding.

Spec     imagecodecs.numcodecs, whose ids and options these are
v3 name  numcodecs.imagecodecs_png and so on
v2 id    imagecodecs_png and so on
Example  {"name": "numcodecs.imagecodecs_png", "configuration": {"level": 6}}
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from zstore_imagecodecs.image import ImageCodec

__all__ = ["Avif", "Jpeg", "Jpeg2k", "Jpegls", "Jpegxl", "Lerc", "Png", "Webp"]

# Libraries decode what a truncated JPEG lacks as gray, without an error.
END_OF_IMAGE = b"\xff\xd9"
# JPEG 2000: the start of a codestream, and of the marker segment after it, which has the size.
START_AND_SIZE = b"\xff\x4f\xff\x51"

# The first and the last version of LERC 2 whose blobs have their size at a known offset.
LERC_VERSIONS = (2, 6)


class Jpeg2k(ImageCodec):
    """JPEG 2000, of at most 16 bits: items with more would come back changed."""

    name: ClassVar[str] = "numcodecs.imagecodecs_jpeg2k"
    peer = "Jpeg2k"
    items = ("int8", "uint8", "int16", "uint16")
    samples = (2, 3, 4)

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A missing end, or a wrong size: the library would allocate that before it compares it."""
        at = data.find(START_AND_SIZE)
        if at < 0 or len(data) < at + 42:
            return f"{len(data)} bytes without the size of an image"
        numbers = [int.from_bytes(data[at + first : at + first + 4]) for first in (8, 12, 16, 20)]
        columns, rows = numbers[0] - numbers[2], numbers[1] - numbers[3]
        count = int.from_bytes(data[at + 40 : at + 42])
        expected = (*shape, 1)[:3]
        if (rows, columns, count) != expected:
            return f"holds {rows} rows, {columns} columns, {count} samples, expected {expected}"
        return "" if END_OF_IMAGE in data[-2:] else "the image ends too early"


class Jpegxl(ImageCodec):
    """JPEG XL, lossless unless `lossless` is false."""

    name: ClassVar[str] = "numcodecs.imagecodecs_jpegxl"
    peer = "Jpegxl"
    items = ("uint8", "uint16", "float16", "float32")
    samples = (2, 3, 4)


class Jpegls(ImageCodec):
    """JPEG-LS."""

    name: ClassVar[str] = "numcodecs.imagecodecs_jpegls"
    peer = "Jpegls"
    items = ("uint8", "uint16")
    samples = (3, 4)

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A missing end."""
        return "" if data.endswith(END_OF_IMAGE) else "the image ends too early"


class Lerc(ImageCodec):
    """LERC, with an error of at most `level` in every item."""

    name: ClassVar[str] = "numcodecs.imagecodecs_lerc"
    peer = "Lerc"
    items = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64")

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A length that is not the sum of the blobs' lengths, where these are known."""
        at = 0
        while self._configuration.get("compression") is None and data.startswith(b"Lerc2 ", at):
            version = int.from_bytes(data[at + 6 : at + 10], "little")
            if not LERC_VERSIONS[0] <= version <= LERC_VERSIONS[1]:
                return ""
            place = at + (34 if version > 3 else 30 if version == 3 else 26)
            size = int.from_bytes(data[place : place + 4], "little")
            if size < place - at:
                return f"a blob of {size} bytes"
            at += size
        return "" if at in (0, len(data)) else f"{len(data)} bytes, the blobs have {at}"

    def find_loss(self, image: np.ndarray[Any, Any]) -> str:
        """NaN, which needs LERC's masks: imagecodecs does not write them."""
        return (
            "NaN cannot be kept, expected numbers"
            if image.dtype.kind == "f" and np.isnan(image).any()
            else ""
        )


class Png(ImageCodec):
    """PNG."""

    name: ClassVar[str] = "numcodecs.imagecodecs_png"
    peer = "Png"
    items = ("uint8", "uint16")
    samples = (2, 3, 4)

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A missing end."""
        return "" if data[-8:-4] == b"IEND" else "the image ends too early"


class Webp(ImageCodec):
    """WebP: colours, with an alpha channel or without."""

    name: ClassVar[str] = "numcodecs.imagecodecs_webp"
    peer = "Webp"
    items = ("uint8",)
    samples = (3, 4)
    has_gray = False

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A length that is not the one in the header."""
        size = 8 + int.from_bytes(data[4:8], "little")
        # A file of odd length has one byte of padding.
        return "" if size in (len(data), len(data) + 1) else f"{len(data)} bytes, the file says {size}"


class Jpeg(ImageCodec):
    """JPEG, of 8 bits, or 16 where it is lossless."""

    name: ClassVar[str] = "numcodecs.imagecodecs_jpeg"
    peer = "Jpeg"
    items = ("uint8",)
    samples = (3, 4)

    def item_names(self) -> tuple[str, ...]:
        """The data types that the format holds: 16 bits only where it is lossless."""
        return ("uint8", "uint16") if self._configuration.get("lossless") else self.items

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A missing end, unless the options hold the header apart from the image."""
        whole = self._configuration.get("header") is not None or data.endswith(END_OF_IMAGE)
        return "" if whole else "the image ends too early"


class Avif(ImageCodec):
    """AVIF."""

    name: ClassVar[str] = "numcodecs.imagecodecs_avif"
    peer = "Avif"
    items = ("uint8",)
    samples = (3, 4)
