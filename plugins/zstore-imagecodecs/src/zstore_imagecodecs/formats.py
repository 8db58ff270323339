"""The image formats: which chunks each of them takes, and which faults are found before decoding.

Spec     imagecodecs.numcodecs, whose ids and options these are
v3 name  numcodecs.imagecodecs_png and so on
v2 id    imagecodecs_png and so on
Example  {"name": "numcodecs.imagecodecs_png", "configuration": {"level": 6}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import imagecodecs
import numpy as np

from zstore.errors import MetadataError
from zstore.plugin.codecs import ChunkSpec
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


class _LercBlob(NamedTuple):
    """What the header of a blob of LERC 2 says: rows, columns, samples, and the byte that it ends before."""

    rows: int
    columns: int
    samples: int
    end: int


def _list_blobs(data: bytes) -> Iterator[_LercBlob]:
    """The blobs of LERC 2, which follow each other, up to one whose version is not known.

    Raises
        ValueError: a blob that ends before its header does.
    """
    at = 0
    while data.startswith(b"Lerc2 ", at):
        version = int.from_bytes(data[at + 6 : at + 10], "little")
        if not LERC_VERSIONS[0] <= version <= LERC_VERSIONS[1]:
            return
        # A checksum came with version 3, the number of samples with version 4.
        first = at + (14 if version > 2 else 10)
        names = 6 if version > 3 else 5
        numbers = [int.from_bytes(data[n : n + 4], "little") for n in range(first, first + 4 * names, 4)]
        size = numbers[-1]
        if size < first + 4 * names - at:
            raise ValueError(f"a blob of {size} bytes")
        at += size
        yield _LercBlob(numbers[0], numbers[1], numbers[2] if version > 3 else 1, at)


class Lerc(ImageCodec):
    """LERC, with an error of at most `level` in every item; floats that its masks leave out are NaN.

    tiff  (an option that imagecodecs lacks) samples of chunks of rows, columns and samples are stored as
          libtiff does it: "bands" together, or in a blob each; "alpha" likewise, or the last of bytes as a
          mask
    """

    name: ClassVar[str] = "numcodecs.imagecodecs_lerc"
    peer = "Lerc"
    items = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64")
    own_options = ("tiff",)

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec | None = None) -> None:
        super().__init__(configuration, spec)
        self._tiff = configuration.get("tiff")
        if self._tiff not in (None, "bands", "alpha"):
            raise MetadataError(
                f"codec {self.name!r} has tiff {self._tiff!r}; expected 'bands' or 'alpha'", codec=self.name
            )

    def image_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the image: that of the chunk itself in a TIFF."""
        return super().image_shape(shape) if self._tiff is None else shape

    def find_fault(self, data: bytes, shape: tuple[int, ...]) -> str:
        """A length that is not the sum of the blobs' lengths, where these are known."""
        if self._configuration.get("compression") is not None:
            return ""
        at = 0
        try:
            for blob in _list_blobs(data):
                at = blob.end
        except ValueError as error:
            return str(error)
        is_known = at and not data.startswith(b"Lerc2 ", at)
        return f"{len(data)} bytes, the blobs have {at}" if is_known and at != len(data) else ""

    def find_loss(self, image: np.ndarray[Any, Any]) -> str:
        """NaN, which needs LERC's masks: imagecodecs does not write them."""
        return (
            "NaN cannot be kept, expected numbers"
            if image.dtype.kind == "f" and np.isnan(image).any()
            else ""
        )

    def read_image(self, data: bytes, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The image, with NaN or an alpha for its masks.

        Raises
            ValueError: masked integers, for which no value stands.
        """
        blobs = [*_list_blobs(data)]
        if self._tiff is not None and not blobs:
            raise ValueError("expected LERC 2")
        is_apart, has_alpha, out = len(blobs) > 1, False, image
        if self._tiff is not None and image.ndim == 3:
            (rows, columns, samples), stored = image.shape, len(blobs) * blobs[0].samples
            has_alpha = self._tiff == "alpha" and image.dtype == np.uint8 and stored == samples - 1
            if is_apart:
                out = np.zeros((stored, rows, columns), image.dtype)
            elif has_alpha:
                out = np.zeros((rows, columns, stored)[: 2 + (stored > 1)], image.dtype)
            elif samples == 1:
                out = image[..., 0]
        elif not blobs:
            is_apart = bool(self._configuration.get("planar"))
        found, valid = imagecodecs.lerc_decode(data, masks=True, out=out)
        if valid is not None and valid.ndim < found.ndim and not is_apart:
            valid = valid[..., np.newaxis]
        if valid is not None and found.dtype.kind == "f":
            np.copyto(found, np.nan, where=~valid)
        elif valid is not None and not has_alpha and not valid.all():
            raise ValueError(f"masks leave out {np.sum(~valid)} integers; expected none, or floats")
        if self._tiff is None or image.ndim == 2:
            return found
        if is_apart:
            found = np.moveaxis(found, 0, -1)
        if has_alpha:
            alpha = np.full((*image.shape[:2], 1), 255, np.uint8)
            if valid is not None:
                alpha[~valid.reshape(image.shape[:2])] = 0
            found = np.concatenate((found.reshape(*image.shape[:2], -1), alpha), axis=-1)
        return found.reshape(image.shape)


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
    samples = (2, 3, 4)

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
