"""Every codec, one at a time: what zstore writes with it is read equal by zarr-python, and the reverse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zstore

zarr = pytest.importorskip("zarr", reason="the peer of these tests")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
    pytest.mark.filterwarnings("ignore:.*disables partial reads"),
]

SHAPE, CHUNKS = (13, 17), (4, 6)
VALUES = np.cumsum(np.random.default_rng(0).integers(-3, 5, SHAPE), axis=1)

# By the place that zarr-python gives it in v3: id, configuration, dtype.
FILTERS = [
    ("delta", {"dtype": "<i4"}, "i4"),
    ("delta", {"dtype": "<i8"}, "i8"),
    ("bitround", {"keepbits": 6}, "f4"),
    ("fixedscaleoffset", {"offset": 3, "scale": 10, "dtype": "<f8", "astype": "<i4"}, "f8"),
    ("quantize", {"digits": 2, "dtype": "<f8"}, "f8"),
    ("astype", {"encode_dtype": "<f4", "decode_dtype": "<f8"}, "f8"),
    ("packbits", {}, "?"),
]
SERIALIZERS = [
    ("zfpy", {"mode": 4, "tolerance": 0.01}, "f4"),
    ("zfpy", {"mode": 2, "rate": 20}, "f8"),
    ("pcodec", {"level": 4}, "i4"),
    ("pcodec", {"level": 8, "mode_spec": "classic"}, "f8"),
]
COMPRESSORS = [
    ("blosc", {"cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}, "i4"),
    ("bz2", {"level": 2}, "i4"),
    ("gzip", {"level": 2}, "i4"),
    ("lz4", {"acceleration": 2}, "i4"),
    ("lzma", {"preset": 1}, "i4"),
    ("zlib", {"level": 2}, "i4"),
    ("zstd", {"level": 2}, "i4"),
    ("shuffle", {"elementsize": 4}, "i4"),
    ("adler32", {}, "i4"),
    ("crc32", {}, "i4"),
    ("crc32c", {}, "i4"),
    ("fletcher32", {}, "i4"),
    ("jenkins_lookup3", {}, "i4"),
]
PLACES = {"filters": FILTERS, "serializer": SERIALIZERS, "compressors": COMPRESSORS}
CASES = [(place, *case) for place, cases in PLACES.items() for case in cases]
NAMES = [f"{place}-{codec_id}-{dtype}-{k}" for k, (place, codec_id, _, dtype) in enumerate(CASES)]

# What zarr-python 3.1 does not do, and why.
ZARR_V3_LACKS = {
    "packbits": "its array codec cannot be created for bool",
    "base64": "no v3 name",
}
ZARR = tuple(map(int, zarr.__version__.split(".")[:2]))
ZARR_3_2_HAS = ("cast_value", "scale_offset")
ZARR_V3_CODECS_LACKING = {
    "bitround": {"name": "bitround", "configuration": {"keepbits": 5}},
    "cast_value": {"name": "cast_value", "configuration": {"data_type": "int64"}},
    "conditional": {"name": "conditional", "configuration": {"codecs": [{"name": "crc32c"}]}},
    "packbits": {"name": "packbits"},
    "reshape": {"name": "reshape", "configuration": {"shape": [-1]}},
    "scale_offset": {"name": "scale_offset", "configuration": {"offset": 1}},
}


def items_of(dtype: str) -> np.ndarray[Any, Any]:
    return VALUES % 3 == 0 if dtype == "?" else (VALUES / 4 if dtype[0] == "f" else VALUES).astype(dtype)


def skip_what_is_not_here(codec_id: str) -> None:
    if codec_id in ("zfpy", "pcodec"):
        pytest.importorskip(codec_id, reason="the package behind the codec")


def options_of(place: str, codec_id: str, configuration: dict[str, Any], shards: Any) -> dict[str, Any]:
    codec = {"name": f"numcodecs.{codec_id}", "configuration": configuration}
    options: dict[str, Any] = {"compressors": None, "shards": shards, "fill_value": 0}
    options[place] = codec if place == "serializer" else [codec]
    return options


@pytest.mark.parametrize("shards", [None, (8, 12)])
@pytest.mark.parametrize(("place", "codec_id", "configuration", "dtype"), CASES, ids=NAMES)
def test_numcodecs_in_v3(tmp_path, place, codec_id, configuration, dtype, shards):
    skip_what_is_not_here(codec_id)
    items = items_of(dtype)
    ours = zstore.create_array(
        tmp_path / "ours",
        shape=SHAPE,
        chunks=CHUNKS,
        dtype=dtype,
        **options_of(place, codec_id, configuration, shards),
    )
    ours[...] = items
    read = ours[...]
    np.testing.assert_allclose(read.astype("f8"), items.astype("f8"), atol=0.3)
    if codec_id in ZARR_V3_LACKS:
        return
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "ours", mode="r")[...], read)
    theirs = zarr.create_array(
        tmp_path / "theirs",
        shape=SHAPE,
        chunks=CHUNKS,
        dtype=dtype,
        **options_of(place, codec_id, configuration, shards),
    )
    theirs[...] = items
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "theirs")[...], theirs[...])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("place", "codec_id", "configuration", "dtype"),
    [*CASES, ("filters", "base64", {}, "i4"), ("compressors", "base64", {}, "i4")],
    ids=[*NAMES, "filters-base64", "compressors-base64"],
)
def test_numcodecs_in_v2(tmp_path, place, codec_id, configuration, dtype, order):
    skip_what_is_not_here(codec_id)
    items = items_of(dtype)
    codec = {"id": codec_id, **configuration}
    options: dict[str, Any] = {"compressors": None, "zarr_format": 2, "fill_value": 0, "order": order}
    options["filters" if place == "filters" else "compressors"] = [codec] if place == "filters" else codec
    ours = zstore.create_array(tmp_path / "ours", shape=SHAPE, chunks=CHUNKS, dtype=dtype, **options)
    ours[...] = items
    read = ours[...]
    np.testing.assert_allclose(read.astype("f8"), items.astype("f8"), atol=0.3)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "ours", mode="r")[...], read)
    if codec_id == "zfpy" and order == "F":
        return  # numcodecs compresses by zfp in C order only
    import numcodecs

    made = numcodecs.get_codec(codec)
    options["filters" if place == "filters" else "compressors"] = [made] if place == "filters" else made
    theirs = zarr.create_array(tmp_path / "theirs", shape=SHAPE, chunks=CHUNKS, dtype=dtype, **options)
    theirs[...] = items
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "theirs")[...], theirs[...])


def test_filters_and_a_compressor_in_their_order(tmp_path):
    filters = [
        {"id": "fixedscaleoffset", "offset": 0, "scale": 4, "dtype": "<f8", "astype": "<i4"},
        {"id": "delta", "dtype": "<i4"},
        {"id": "shuffle", "elementsize": 4},
        {"id": "crc32"},
    ]
    items = items_of("f8")
    array = zstore.create_array(
        tmp_path, data=items, chunks=CHUNKS, zarr_format=2, filters=filters, compressors={"id": "lzma"}
    )
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], items)
    np.testing.assert_array_equal(array[...], items)


@pytest.mark.parametrize("name", ZARR_V3_CODECS_LACKING)
def test_what_zarr_python_lacks_is_still_lacking(tmp_path, name):
    """And what newer versions of it have, they read and write as zstore does."""
    codec = ZARR_V3_CODECS_LACKING[name]
    place = {"packbits": "serializer", "conditional": "compressors"}.get(name, "filters")
    options = {"compressors": None, place: codec if place == "serializer" else [codec]}
    array = zstore.create_array(tmp_path, data=items_of("i4"), chunks=CHUNKS, **options)
    assert (array[...] != items_of("i4")).sum() == 0 or name == "bitround"
    if ZARR < (3, 2) or name not in ZARR_3_2_HAS:
        with pytest.raises(Exception, match=name):
            zarr.open_array(tmp_path, mode="r")
        return
    if name == "cast_value":
        pytest.importorskip("cast_value_rs", reason="the package behind the codec")
    theirs = zarr.open_array(tmp_path, mode="r+")
    np.testing.assert_array_equal(theirs[...], array[...])
    theirs[3:9, 5:] = 7
    np.testing.assert_array_equal(array[...], theirs[...])
