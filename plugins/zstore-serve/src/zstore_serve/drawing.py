"""Values as pictures: stretched, coloured, shaded, and encoded."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from isal import isal_zlib
from PIL import Image

from zstore.errors import NotFoundError
from zstore.plugin.conventions import Variable
from zstore.plugin.pictures import categories_of, encode_png, light
from zstore.plugin.pictures import colour_map as own_map
from zstore_serve.frames import Frame, Items, Mask
from zstore_serve.problems import Problem

__all__ = [
    "FORMATS",
    "Picture",
    "colour_map",
    "defined_colours",
    "draw",
    "draw_relief",
    "encode",
    "encode_npy",
    "encode_tiff",
    "mix",
    "stepped",
    "terrain_rgb",
]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

FORMATS = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "npy": "application/x-npy",
    "tif": "image/tiff",
}
# A tile takes a quarter of a millisecond; with Pillow three and more, for a few per cent fewer bytes.
COMPRESS = partial(isal_zlib.compress, level=1)
# Colour maps to choose among, by how they order values; all others go by their names, too.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "sequential": (
        *("grey", "gamma", "viridis", "cividis", "magma", "inferno", "batlow", "hawaii", "thermal", "rain"),
        *("speed", "haline", "ice", "deep", "dense", "tempo", "algae", "turbid", "matter", "amp", "solar"),
        *("YlGn", "Blues"),
    ),
    "diverging": ("vik", "balance", "delta", "curl", "roma", "broc", "cork", "bam", "RdBu", "PuOr"),
    "cyclic": ("phase", "romaO", "twilight"),
    "classes": ("tab10", "tab20", "Set1", "Set2", "Paired", "Dark2"),
}  # fmt: skip
JPEG_QUALITY = WEBP_QUALITY = 80


@dataclass(frozen=True)
class Picture:
    """A picture: numbers of a palette's colours (rows, columns), or samples (rows, columns, 3 or 4)."""

    samples: Bytes
    palette: Bytes | None = None

    def rgba(self) -> Bytes:
        """The samples (rows, columns, 3 or 4), of a palette's colours too."""
        if self.palette is None:
            return self.samples
        shown: Bytes = self.palette[self.samples]
        return shown


@lru_cache(256)
def colour_map(name: str) -> Bytes:
    """The 256 colours of the colour map that matplotlib and others call `name`; "_r" at its end reverses it.

    Shapes
        result (256, 4).
    Raises
        Problem: there is no colour map of that name.
    """
    with suppress(NotFoundError):
        return np.concatenate([own_map(name), np.full((256, 1), 255, np.uint8)], axis=-1)
    # Imported here, for only some pictures need it and it is slow to import.
    import cmap

    try:
        is_name = len(name) <= 64 and name.replace("_", "").replace(":", "", 1).isalnum()
        found = cmap.Colormap(name) if is_name else None
    except (ValueError, TypeError, KeyError):
        found = None
    if found is None:
        raise Problem(400, f"no colour map {name[:64]!r}; see /colormaps")
    colours: Bytes = np.rint(found.lut(256) * 255).astype(np.uint8)
    # A map of a few separate colours has no more than these.
    return colours[np.arange(256) * len(colours) // 256]


def stepped(colours: Bytes, steps: int) -> Bytes:
    """A colour map in so many steps of one colour each, from its first to its last; as it is for 0.

    Shapes
        both (256, 4).
    """
    if not steps:
        return colours
    return colours[np.arange(256) * steps // 256 * 255 // (steps - 1)]


def swatch(name: str) -> list[str]:
    """Nine colours of a colour map from end to end, of a map of separate colours all, as #rrggbb."""
    separate = np.unique(colour_map(name), axis=0, return_index=True)[1]
    places = sorted(separate) if len(separate) < 64 else np.linspace(0, 255, 9).round().astype(int)
    return ["#" + bytes(colour[:3]).hex() for colour in colour_map(name)[places]]


def colour_map_names() -> list[str]:
    """The names of the colour maps, as far as they are one word."""
    import cmap

    return sorted(
        {"grey", "gamma", *(name for name in cmap.Catalog().short_keys() if name.replace("_", "").isalnum())}
    )


def defined_colours(variable: Variable) -> dict[int, tuple[tuple[int, int, int, int], str]]:
    """The categories that a legend lists: `categories_of` up to the last that is named or not black.

    Tables of bytes have 256 entries, of which files define the first few.
    """
    found = categories_of(variable)
    defined = [value for value, (colour, name) in found.items() if name or any(colour[:3])]
    return {value: pair for value, pair in found.items() if value <= max(defined, default=value)}


def draw_categories(values: Items, valid: Mask, colours: Mapping[int, tuple[Any, str]]) -> Picture:
    """A picture with every value in its category's colour; values of no category are transparent."""
    keys = np.array(sorted(colours), np.int64)
    places = np.clip(np.searchsorted(keys, values.astype(np.int64)), 0, len(keys) - 1)
    known = valid & (keys[places] == values)
    palette = np.array([colours[key][0] for key in keys.tolist()] + [(0, 0, 0, 0)], np.uint8)
    numbers = np.where(known, places, len(keys))
    if len(palette) > 256:
        return Picture(palette[numbers])
    return Picture(numbers.astype(np.uint8), palette)


def draw(
    bands: Sequence[tuple[Items, Mask]],
    limits: Sequence[tuple[float, float]],
    colours: Bytes | None = None,
    is_log: bool = False,
    steps: int = 0,
) -> Picture:
    """A picture of one band in a map's colours, or of three as red, green and blue, stretched between limits.

    Pixels that are not valid in all bands are transparent. In a picture of one band they take the palette's
    first place, so that the least of the 256 steps is drawn as the next one.
    """
    valid = bands[0][1] if len(bands) == 1 else np.logical_and.reduce([mask for _, mask in bands])
    pairs = zip(bands, limits, strict=True)
    stretched = [stretch(values, *pair, is_log, steps) for (values, _), pair in pairs]
    is_whole = bool(valid.all())
    if len(bands) == 1:
        palette = colour_map("grey") if colours is None else colours
        if is_whole:
            return Picture(stretched[0], palette)
        holed = palette.copy()
        holed[0] = 0
        return Picture(np.where(valid, np.maximum(stretched[0], 1), np.uint8(0)), holed)
    samples = np.stack(stretched, axis=-1)
    if is_whole:
        return Picture(samples)
    samples[~valid] = 0
    return Picture(np.concatenate([samples, np.where(valid, 255, 0).astype(np.uint8)[..., None]], axis=-1))


def mix(
    bands: Sequence[tuple[Items, Mask]],
    limits: Sequence[tuple[float, float]],
    colours: Sequence[tuple[int, int, int]],
) -> Picture:
    """A picture of bands that each shine in a colour of its own, between limits; they add up."""
    shine = np.zeros((*bands[0][0].shape, 3), np.uint32)
    for (values, _), pair, colour in zip(bands, limits, colours, strict=True):
        shine += stretch(values, *pair)[..., None] * np.array(colour, np.uint32)
    samples = np.minimum(shine // 255, 255).astype(np.uint8)
    valid = np.logical_and.reduce([mask for _, mask in bands])
    if valid.all():
        return Picture(samples)
    samples[~valid] = 0
    return Picture(np.concatenate([samples, np.where(valid, 255, 0).astype(np.uint8)[..., None]], axis=-1))


def stretch(values: Items, low: float, high: float, is_log: bool = False, steps: int = 0) -> Bytes:
    """Values stretched so that two limits become 0 and 255, as `quicklook` has it; 128 for equal limits.

    is_log  equal steps are equal factors, where both limits are above 0
    steps   so many intervals of values become one number each, the middle of a step of `stepped`; 0: all
    """
    if low == high:
        return np.full(values.shape, 128, np.uint8)
    if values.dtype.kind in "iu" and values.dtype.itemsize <= 2:
        table = _table(values.dtype.str, low, high, is_log, steps)
        return table[values.view(f"u{values.itemsize}")]
    if is_log and 0 < low < high:
        with np.errstate(invalid="ignore"):
            logs = np.log(np.maximum(values.astype(np.float64), low))
            return stretch(logs, math.log(low), math.log(high), steps=steps)
    with np.errstate(invalid="ignore", over="ignore"):
        if steps:
            step = np.clip((values.astype(np.float64) - low) * (steps / (high - low)), 0, steps - 1)
            return ((np.nan_to_num(step).astype(np.uint16) * 256 + 128) // steps).astype(np.uint8)
        scaled = (values.astype(np.float64) - low) * (255.0 / (high - low)) + 0.5
        return np.nan_to_num(np.clip(scaled, 0, 255)).astype(np.uint8)


@lru_cache(64)
def _table(dtype: str, low: float, high: float, is_log: bool, steps: int) -> Bytes:
    """What `stretch` makes of every value of an integer type of one or two bytes."""
    kind = np.dtype(dtype).newbyteorder("=")
    every = np.arange(1 << (8 * kind.itemsize)).astype(f"u{kind.itemsize}").view(kind)
    return stretch(every.astype(np.float64), low, high, is_log, steps)


def draw_relief(
    values: Items,
    valid: Mask,
    limits: Sequence[tuple[float, float]],
    colours: Bytes,
    cell: tuple[float, float],
    steps: int = 0,
) -> Picture:
    """A picture of heights in a map's colours, lit as their relief is.

    Shapes
        values and valid (rows + 2, columns + 2).
    """
    inner = slice(1, -1), slice(1, -1)
    flat = draw([(values[inner], valid[inner])], limits, colours, steps=steps).rgba()
    lit = light(flat[..., :3], values, valid, cell)
    return Picture(lit if valid[inner].all() else np.concatenate([lit, flat[..., 3:]], axis=-1))


def terrain_rgb(values: Items, valid: Mask) -> Picture:
    """A picture of heights in metres as Mapbox's terrain-RGB: -10000 + (r·65536 + g·256 + b) · 0.1."""
    with np.errstate(invalid="ignore"):
        steps = np.rint((np.where(valid, values, 0).astype(np.float64) + 10000) * 10)
    numbers = np.clip(np.nan_to_num(steps), 0, (1 << 24) - 1).astype(np.uint32)
    parts = [numbers >> 16, numbers >> 8 & 255, numbers & 255, np.where(valid, 255, 0)]
    return Picture(np.stack(parts, axis=-1).astype(np.uint8))


def encode(picture: Picture, format: str) -> bytes:
    """A picture as the bytes of a file; JPEG has no transparency and shows white there."""
    if format == "png":
        if picture.palette is not None:
            return encode_png(picture.samples[..., None], palette=picture.palette, compress=COMPRESS)
        return encode_png(picture.samples, compress=COMPRESS)
    samples, out = np.ascontiguousarray(picture.rgba()), io.BytesIO()
    if format == "jpg":
        if samples.shape[-1] == 4:
            alpha = samples[..., 3:].astype(np.uint16)
            samples = ((samples[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
        Image.fromarray(samples).save(out, "JPEG", quality=JPEG_QUALITY)
    else:
        Image.fromarray(samples).save(out, "WEBP", quality=WEBP_QUALITY, method=0)
    return out.getvalue()


def encode_npy(bands: Sequence[tuple[Items, Mask]]) -> bytes:
    """The bytes of a .npy file: the bands, and last a band that is 255 where all are valid, 0 elsewhere.

    Shapes
        the array in it (bands + 1, rows, columns), of the bands' common type.
    """
    valid = np.logical_and.reduce([mask for _, mask in bands])
    kind = np.result_type(*(values.dtype for values, _ in bands), np.uint8)
    out = io.BytesIO()
    np.save(
        out, np.stack([*(values.astype(kind) for values, _ in bands), np.where(valid, 255, 0).astype(kind)])
    )
    return out.getvalue()


def encode_tiff(bands: Mapping[str, tuple[Items, Mask]], frame: Frame) -> bytes:
    """The bytes of a GeoTIFF: the bands with their names, and a mask of the pixels that are valid in all.

    Raises
        Problem: rasterio, which writes it, is not installed.
    """
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning
    except ImportError:
        raise Problem(501, "GeoTIFF is written by rasterio, which is not installed on the server") from None
    values = [pair[0] for pair in bands.values()]
    kind = np.result_type(*(array.dtype for array in values))
    if kind.kind == "b":
        kind = np.dtype(np.uint8)
    elif kind == np.float16:
        kind = np.dtype(np.float32)
    height, width = frame.shape
    profile = {
        "driver": "GTiff", "height": height, "width": width, "count": len(values), "dtype": kind.name,
        "compress": "deflate", "transform": rasterio.Affine(*frame.affine),
    }  # fmt: skip
    if frame.crs is not None:
        profile["crs"] = rasterio.CRS.from_wkt(frame.crs.wkt)
    valid = np.logical_and.reduce([mask for _, mask in bands.values()])
    with warnings.catch_warnings(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.MemoryFile() as file:
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with file.open(**profile) as raster:
            for number, (name, array) in enumerate(zip(bands, values, strict=True), start=1):
                raster.write(array.astype(kind), number)
                raster.set_band_description(number, name)
            raster.write_mask(valid)
        return bytes(file.getbuffer())
