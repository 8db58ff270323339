"""PNG files of pictures in memory."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Image = np.ndarray[Any, np.dtype[np.uint8]]

# PNG's colour types, by how many samples a pixel has.
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def encode_png(
    image: Image,
    *,
    palette: Image | None = None,
    compress: Callable[[bytes], Any] = partial(zlib.compress, level=6),  # noqa: B008
) -> bytes:
    """The bytes of a PNG file of `image`.

    palette   colours that the samples of `image` are numbers of
    compress  what makes a zlib stream; other libraries have faster ones than Python's

    Shapes
        image (rows, columns, samples), samples 1 to 4: grey, with or without alpha; RGB, with or without.
        palette (colours, 4), at most 256: red, green, blue, alpha; `image` has one sample then.
    Spec
        ISO/IEC 15948 (PNG), 8 bits per sample, every row filtered by "Up".
    """
    rows, columns, samples = image.shape
    flat = np.ascontiguousarray(image).reshape(rows, columns * samples)
    filtered = np.full((rows, columns * samples + 1), 2, np.uint8)
    filtered[:, 1:] = flat
    filtered[1:, 1:] -= flat[:-1]
    header = struct.pack(
        ">IIBBBBB", columns, rows, 8, 3 if palette is not None else COLOUR_TYPES[samples], 0, 0, 0
    )
    parts = [(b"IHDR", header)]
    if palette is not None:
        parts += [(b"PLTE", palette[:, :3].tobytes()), (b"tRNS", palette[:, 3].tobytes())]
    parts += [(b"IDAT", compress(filtered.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
