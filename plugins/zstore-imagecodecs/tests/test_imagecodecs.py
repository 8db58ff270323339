"""The plugin as a third party's: the contracts, every format, and imagecodecs' own codecs as the peer."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.codecs.base import ChunkSpec
from zstore.errors import CodecError, MetadataError, UnsupportedError
from zstore.extensions.registry import codecs
from zstore.storage.memory import MemoryStore
from zstore.testing.chunk_codecs import SerializerContract

peers: Any = pytest.importorskip("imagecodecs.numcodecs", reason="the package behind the codecs")
if not entry_points(group="zstore", name="imagecodecs"):
    pytest.skip("zstore-imagecodecs is not installed, so it has no entry point", allow_module_level=True)

LOSSLESS: dict[str, dict[str, Any]] = {
    "jpeg2k": {},
    "jpegxl": {},
    "jpegls": {},
    "lerc": {},
    "png": {},
    "webp": {"lossless": True},
    "jpeg": {"lossless": True},
}
SHAPES = ((20, 30), (20, 30, 3), (3, 5, 3), (1, 1, 7), (1, 20, 30, 1), (20, 30, 4))


def kind_of(name: str) -> Any:
    return codecs.resolve(f"numcodecs.imagecodecs_{name}")


def bound(name: str, dtype: str, shape: tuple[int, ...], **options: Any) -> Any:
    return kind_of(name).from_configuration(options).bind(ChunkSpec(shape, np.dtype(dtype), None))


def noise(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The whole range of the type."""
    dtype, draw = np.dtype(dtype), np.random.default_rng(3)
    if dtype.kind == "f":
        return (draw.normal(size=shape) * 100).astype(dtype)
    limits = np.iinfo(dtype)
    return draw.integers(limits.min, limits.max, shape, dtype, endpoint=True)


IMAGES = tuple(ChunkSpec(shape, np.dtype("u1"), None) for shape in ((16, 17, 3), (5, 9, 4)))


class TestPng(SerializerContract):
    specs = tuple(
        ChunkSpec(shape, np.dtype(name), None)
        for name in ("u1", "u2")
        for shape in ((5, 6), (4, 5, 3), (1, 9))
    )
    damage_count = 30

    def make(self) -> Any:
        return kind_of("png").from_configuration({"level": 6})


class TestJpeg2k(SerializerContract):
    specs = tuple(ChunkSpec(shape, np.dtype("i2"), None) for shape in ((16, 17), (9, 8, 3)))
    damage_count = 30

    def make(self) -> Any:
        return kind_of("jpeg2k").from_configuration({})


class TestLerc(SerializerContract):
    specs = tuple(ChunkSpec((7, 8), np.dtype(name), None) for name in ("u1", "i4", "f4", "f8"))
    damage_count = 30

    def make(self) -> Any:
        return kind_of("lerc").from_configuration({})


class TestJpegxl(SerializerContract):
    knows_its_end = False  # a codestream says no length, and imagecodecs not how much of it was read
    specs = IMAGES
    damage_count = 30

    def make(self) -> Any:
        return kind_of("jpegxl").from_configuration(LOSSLESS["jpegxl"])


@pytest.mark.parametrize("name", ["jpegls", "webp", "jpeg"])
class TestTheOthers(SerializerContract):
    specs = IMAGES
    damage_count = 30

    @pytest.fixture(autouse=True)
    def named(self, name: str) -> None:
        self.name = name

    def make(self) -> Any:
        return kind_of(self.name).from_configuration(LOSSLESS[self.name])


@pytest.mark.parametrize("name", LOSSLESS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_is_lost_in_any_type(name: str, shape: tuple[int, ...]) -> None:
    kind, tried = kind_of(name), 0
    for dtype in kind.from_configuration(LOSSLESS[name]).item_names():
        try:
            codec = bound(name, dtype, shape, **LOSSLESS[name])
        except MetadataError:
            continue
        chunk = noise(dtype, shape)
        if name == "webp" and shape[-1] == 4:
            chunk[..., 3] |= 1
        try:
            encoded = codec.encode(chunk)
        except CodecError as error:
            # Said before anything is written.
            assert "failed" in str(error)
            continue
        np.testing.assert_array_equal(codec.decode(memoryview(encoded)), chunk, strict=True)
        tried += 1
    assert tried or name == "webp"


@pytest.mark.parametrize(
    ("name", "options"), [("jpeg", {"level": 95}), ("webp", {"level": 95}), ("avif", {"level": 90})]
)
def test_loss_is_small(name: str, options: dict[str, Any]) -> None:
    rows = np.linspace(0, 200, 64)
    chunk = np.stack([np.add.outer(rows, rows) / 2] * 3, axis=-1).astype("u1")
    codec = bound(name, "u1", chunk.shape, **options)
    decoded = codec.decode(memoryview(codec.encode(chunk)))
    assert (decoded.shape, decoded.dtype) == (chunk.shape, chunk.dtype)
    assert abs(decoded.astype(int) - chunk).max() < 12


def test_what_is_no_number_stays_so_or_is_refused() -> None:
    chunk = noise("f4", (20, 30))
    chunk[0, :3] = np.inf, -np.inf, -0.0
    codec = bound("lerc", "f4", chunk.shape)
    np.testing.assert_array_equal(codec.decode(memoryview(codec.encode(chunk))), chunk)
    chunk[3:7] = np.nan
    with pytest.raises(CodecError, match="NaN cannot be kept"):
        codec.encode(chunk)
    codec = bound("jpegxl", "f4", chunk.shape)
    np.testing.assert_array_equal(codec.decode(memoryview(codec.encode(chunk))), chunk)


@pytest.mark.parametrize("options", [{}, {"version": 2}, {"version": 3}, {"compression": "zstd"}], ids=str)
def test_what_masks_of_lerc_leave_out(options: dict[str, Any]) -> None:
    """NaN in floats; of integers an error, for no value of theirs would stand for it."""
    imagecodecs = pytest.importorskip("imagecodecs")
    valid = np.ones((20, 30), bool)
    valid[3:9, 4:20] = False
    for dtype in ("f4", "f8", "i2"):
        chunk = noise(dtype, (20, 30))
        encoded = imagecodecs.lerc_encode(chunk, masks=valid, **options)
        codec = bound("lerc", dtype, chunk.shape, **options)
        if dtype == "i2":
            with pytest.raises(CodecError, match="masks leave out 96 integers"):
                codec.decode(memoryview(encoded))
        else:
            expected = np.where(valid, chunk, np.nan)
            np.testing.assert_array_equal(codec.decode(memoryview(encoded)), expected, strict=True)


def test_the_largest_error_of_lerc_is_kept() -> None:
    chunk = noise("f4", (50, 60))
    codec = bound("lerc", "f4", chunk.shape, level=0.5)
    assert abs(codec.decode(memoryview(codec.encode(chunk))) - chunk).max() <= 0.5


@pytest.mark.parametrize("name", [*LOSSLESS, "avif"])
def test_imagecodecs_reads_and_writes_the_same(name: str) -> None:
    chunk, options = noise("u1", (16, 18, 3)), LOSSLESS.get(name, {})
    peer = getattr(peers, kind_of(name).peer)(**options)
    codec = bound(name, "u1", chunk.shape, **options)
    theirs, ours = peer.encode(chunk), codec.encode(chunk)
    np.testing.assert_array_equal(codec.decode(memoryview(theirs)), peer.decode(theirs))
    np.testing.assert_array_equal(peer.decode(ours), codec.decode(memoryview(ours)))
    # What numcodecs writes into .zarray: every option, the most of them null.
    written = peer.get_config()
    assert written.pop("id") == f"imagecodecs_{name}"
    assert kind_of(name).from_configuration(written).to_configuration() == written


@pytest.mark.parametrize("name", [*LOSSLESS, "avif"])
def test_a_file_of_another_size_or_cut_short_is_an_error(name: str) -> None:
    options = LOSSLESS.get(name, {})
    small, large = bound(name, "u1", (16, 18, 3), **options), bound(name, "u1", (64, 64, 3), **options)
    encoded = small.encode(noise("u1", (16, 18, 3)))
    with pytest.raises(CodecError, match=name):
        large.decode(memoryview(encoded))
    with pytest.raises(CodecError, match=name):
        small.decode(memoryview(large.encode(noise("u1", (64, 64, 3)))))
    for size in (0, 1, 10, len(encoded) // 2, len(encoded) - 3):
        with pytest.raises(CodecError, match=name):
            small.decode(memoryview(encoded[:size]))


def test_a_size_that_lies_is_no_allocation() -> None:
    codec = bound("jpeg2k", "u1", (16, 18))
    encoded = bytearray(codec.encode(noise("u1", (16, 18))))
    at = encoded.find(b"\xff\x4f\xff\x51")
    encoded[at + 8 : at + 16] = b"\x7f\xff\xff\xff" * 2
    with pytest.raises(CodecError, match="expected \\(16, 18, 1\\)"):
        codec.decode(memoryview(bytes(encoded)))


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("png", "i2", (4, 5)),
        ("png", "f4", (4, 5)),
        ("png", "u1", (4, 5, 5)),
        ("png", "u1", (2, 3, 4, 5)),
        ("jpeg2k", "u4", (4, 5)),
        ("jpeg", "u2", (4, 5)),
        ("webp", "u1", (4, 5)),
        ("lerc", "i8", (4, 5)),
        ("png", ">u2", (4, 5)),
        ("png", "u1", (0, 5)),
    ],
)
def test_what_a_format_cannot_hold_is_refused(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(MetadataError, match=f"imagecodecs_{name}' takes"):
        bound(name, dtype, shape)


def test_options_that_mean_nothing_here() -> None:
    with pytest.raises(MetadataError, match="nonsense"):
        kind_of("png").from_configuration({"nonsense": 1})
    with pytest.raises(UnsupportedError, match="squeeze"):
        kind_of("png").from_configuration({"squeeze": [True, False]})


@pytest.mark.parametrize("shards", [None, (40, 60, 3)])
def test_an_array_of_version_3(shards: Any) -> None:
    store, items = MemoryStore(), noise("u1", (70, 90, 3))
    serializer = {"name": "numcodecs.imagecodecs_jpegxl", "configuration": {}}
    zstore.create_array(
        store, data=items, chunks=(20, 30, 3), shards=shards, serializer=serializer, compressors=None
    )
    np.testing.assert_array_equal(zstore.open_array(store)[...], items)


def test_an_array_of_version_2() -> None:
    store, items = MemoryStore(), noise("u2", (70, 90))
    zstore.create_array(
        store, data=items, chunks=(20, 30), zarr_format=2, compressors={"id": "imagecodecs_png", "level": 1}
    )
    np.testing.assert_array_equal(zstore.open_array(store)[...], items)
    whole = peers.Png().decode(bytes(store.get("0.0") or b""))
    np.testing.assert_array_equal(whole, items[:20, :30])
