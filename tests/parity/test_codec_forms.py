"""However a codec is said, what is stored is what zarr-python would store, member by member, no larger."""

from __future__ import annotations

import json
import warnings

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs
import zarr.codecs.numcodecs
from numcodecs.registry import codec_registry
from zarr.storage import MemoryStore as PeerStore

import zstore
import zstore.guests.xarray
from zstore.errors import MetadataError, UnsupportedError
from zstore.extensions import builtin
from zstore.extensions.registry import codecs
from zstore.storage.memory import MemoryStore

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # zarr-python warns of every codec that has no specification

DTYPES = ("int8", "uint16", "int64", "float32", "bool", "complex128", "S5")
SHAPE, CHUNKS = (60, 40), (30, 40)

# Each codec of Zarr v3 with the options to try.
COMPRESSORS = {
    "zstd": [{}, {"level": 9}, {"level": -5, "checksum": True}, {"checksum": False}],
    "gzip": [{}, {"level": 1}, {"level": 9}],
    "blosc": [
        {},
        {"cname": "lz4"},
        {"cname": "zlib", "clevel": 9, "shuffle": "bitshuffle"},
        {"typesize": 2},
        {"typesize": 8, "shuffle": "shuffle"},
        {"shuffle": "noshuffle", "blocksize": 4096},
    ],
    "crc32c": [{}],
}
CLASSES = {
    "zstd": zarr.codecs.ZstdCodec,
    "gzip": zarr.codecs.GzipCodec,
    "blosc": zarr.codecs.BloscCodec,
    "crc32c": zarr.codecs.Crc32cCodec,
}
# numcodecs' bytes codecs, by class in zarr-python.
NUMCODECS = {
    "Adler32": [{}, {"location": "end"}],
    "BZ2": [{}, {"level": 9}],
    "Blosc": [{}, {"cname": "zstd", "shuffle": 2}],
    "CRC32": [{}],
    "CRC32C": [{}, {"location": "start"}],
    "Fletcher32": [{}],
    "GZip": [{}, {"level": 9}],
    "JenkinsLookup3": [{}],
    "LZ4": [{}, {"acceleration": 4}],
    "LZMA": [{}, {"preset": 1}],
    "Shuffle": [{}, {"elementsize": 2}],
    "Zlib": [{}, {"level": 9}],
    "Zstd": [{}, {"level": 9}, {"level": 1, "checksum": True}],
}
DEFLATE = ("gzip", "zlib", "GZip", "Zlib")


def ramp(dtype):
    items = np.arange(2400).reshape(SHAPE)
    return items.astype(dtype) if np.dtype(dtype).kind != "b" else items % 3 == 0


def chosen(options, codec):
    return {**options, "compressors": [codec]}


def by_peer(dtype, zarr_format=3, **options):
    """(what zarr-python's document says of codecs, the bytes it stores)."""
    store = PeerStore()
    array = zarr.create_array(
        store, shape=SHAPE, chunks=CHUNKS, dtype=dtype, zarr_format=zarr_format, **options
    )
    array[...] = ramp(dtype)
    values = {key: value.to_bytes() for key, value in store._store_dict.items()}
    return stated(values)


def by_zstore(dtype, zarr_format=3, **options):
    store = MemoryStore()
    array = zstore.create_array(
        store, shape=SHAPE, chunks=CHUNKS, dtype=dtype, zarr_format=zarr_format, **options
    )
    array[...] = ramp(dtype)
    assert np.array_equal(array[...], ramp(dtype)) or "filters" in options
    return stated({key: bytes(store.get(key)) for key in store.list()})


def stated(values):
    document = json.loads(values["zarr.json"] if "zarr.json" in values else values[".zarray"])
    names = ("codecs",) if "zarr.json" in values else ("filters", "compressor")
    size = sum(len(value) for key, value in values.items() if not key.endswith(("zarr.json", ".zarray")))
    return without_empty({name: document[name] for name in names}), size


def without_empty(value):
    """Documents may leave out a configuration that says nothing."""
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_empty(item) for key, item in value.items() if (key, item) != ("configuration", {})}


def check(expected, found, *, is_deflate):
    assert found[0] == expected[0]
    assert found[1] <= expected[1] * (1.1 if is_deflate else 1.01)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*COMPRESSORS, *NUMCODECS])
def test_a_compressor_of_v3_in_every_form(name, dtype):
    kind = CLASSES.get(name) or getattr(zarr.codecs.numcodecs, name)
    for configuration in COMPRESSORS.get(name) or NUMCODECS[name]:
        expected = by_peer(dtype, compressors=[kind(**configuration)])
        stated_name = kind(**configuration).to_dict()["name"]
        forms = [
            kind(**configuration),
            [kind(**configuration)],
            {"name": stated_name, "configuration": configuration},
        ]
        if name in NUMCODECS:
            forms.append({"id": stated_name.removeprefix("numcodecs."), **configuration})
        is_deflate = name in DEFLATE or configuration.get("cname") == "zlib"
        for form in forms:
            check(expected, by_zstore(dtype, compressors=form), is_deflate=is_deflate)


# Filters and serializers, with a type that they take.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    CHAINS = [
        ("int32", {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]}),
        ("int32", {"filters": [zarr.codecs.numcodecs.Delta(dtype="int32")]}),
        ("float64", {"filters": [zarr.codecs.numcodecs.FixedScaleOffset(offset=0, scale=10, astype="i4")]}),
        ("float32", {"filters": [zarr.codecs.numcodecs.Quantize(digits=2)]}),
        ("float32", {"filters": [zarr.codecs.numcodecs.BitRound(keepbits=5)]}),
        ("float64", {"filters": [zarr.codecs.numcodecs.AsType(encode_dtype="float32")]}),
        ("int32", {"serializer": zarr.codecs.BytesCodec()}),
        ("int32", {"serializer": zarr.codecs.BytesCodec(endian="big")}),
        ("int8", {"serializer": zarr.codecs.BytesCodec(endian="little")}),
        ("float64", {"serializer": zarr.codecs.numcodecs.PCodec(level=3)}),
        ("float64", {"serializer": zarr.codecs.numcodecs.ZFPY(mode=4, tolerance=0.01)}),
        ("int64", {"serializer": zarr.codecs.ShardingCodec(chunk_shape=(10, 20))}),
        (
            "int64",
            {
                "serializer": zarr.codecs.ShardingCodec(
                    chunk_shape=(30, 20),
                    codecs=[
                        zarr.codecs.TransposeCodec(order=(1, 0)),
                        zarr.codecs.BytesCodec(),
                        zarr.codecs.BloscCodec(),
                    ],
                    index_location="start",
                ),
                "compressors": None,
            },
        ),
    ]


# Bytes of the items that these filters make of longer ones.
NARROWED = {"fixedscaleoffset": 4, "astype": 4}


@pytest.mark.parametrize(("dtype", "options"), CHAINS)
def test_filters_and_serializers_of_v3_in_every_form(dtype, options):
    blosc = {"name": "blosc", "configuration": {"clevel": 3}}
    options = {"compressors": [blosc], **options}
    expected = by_peer(dtype, **options)
    narrowed = next((n for name, n in NARROWED.items() if name in str(options.get("filters"))), None)
    if narrowed is not None:
        # Before 3.4, zarr-python takes the size of the array's items for that of the filtered ones.
        expected[0]["codecs"][-1]["configuration"]["typesize"] = narrowed
    check(expected, by_zstore(dtype, **options), is_deflate=False)
    if "serializer" in options and "compressors" in options and options["compressors"]:
        # By what their documents say.
        options["serializer"] = options["serializer"].to_dict()
    if "filters" in options:
        options["filters"] = [codec.to_dict() for codec in options["filters"]]
    check(expected, by_zstore(dtype, **options), is_deflate=False)


# numcodecs' codecs in Zarr v2, with a type that they take.
V2 = [
    ("compressors", dtype, name, configuration)
    for dtype in ("int8", "int64", ">f4", "S5")
    for name, configurations in {
        "blosc": [{}, {"cname": "zstd", "shuffle": -1}, {"clevel": 9, "shuffle": 2}, {"blocksize": 1024}],
        "bz2": [{}, {"level": 9}],
        "gzip": [{}, {"level": 9}],
        "lz4": [{}, {"acceleration": 3}],
        "lzma": [{}, {"preset": 1}],
        "zlib": [{}, {"level": 9}],
        "zstd": [{}, {"level": 9}, {"level": 2, "checksum": True}, {"checksum": False}],
    }.items()
    for configuration in configurations
    # Numbers that count up, as text, are an eighth larger than zlib makes them at level 1, the default.
    if not (dtype == "S5" and name in DEFLATE and not configuration)
] + [
    ("filters", dtype, name, configuration)
    for dtype, name, configuration in [
        ("int32", "delta", {"dtype": "<i4"}),
        ("int32", "delta", {"dtype": "int32", "astype": "int16"}),
        ("float64", "fixedscaleoffset", {"offset": 0, "scale": 10, "dtype": "<f8", "astype": "i4"}),
        ("float32", "quantize", {"digits": 2, "dtype": "float32"}),
        ("float32", "bitround", {"keepbits": 5}),
        ("float64", "astype", {"encode_dtype": "float32", "decode_dtype": "float64"}),
        ("int32", "shuffle", {}),
        ("int32", "crc32", {}),
        ("int32", "crc32c", {"location": "start"}),
        ("int32", "adler32", {}),
        ("int32", "fletcher32", {}),
        ("int32", "jenkins_lookup3", {"initval": 5}),
        ("bool", "packbits", {}),
    ]
]


@pytest.mark.parametrize(("role", "dtype", "name", "configuration"), V2)
def test_a_codec_of_v2_in_every_form(role, dtype, name, configuration):
    made = codec_registry.get(name, numcodecs.get_codec({"id": name, **configuration}).__class__)
    forms = [made(**configuration), {"id": name, **configuration}]
    given = forms[0] if role == "compressors" else [forms[0]]
    expected = by_peer(dtype, 2, **{"compressors": None, role: given})
    for form in [*forms, [forms[0]], {"name": f"numcodecs.{name}", "configuration": configuration}]:
        found = by_zstore(dtype, 2, **{"compressors": None, role: form})
        check(expected, found, is_deflate=name in DEFLATE)


V3_IN_V2 = [
    (zarr.codecs.ZstdCodec(level=9), numcodecs.Zstd(level=9)),
    (zarr.codecs.GzipCodec(level=2), numcodecs.GZip(level=2)),
    (zarr.codecs.BloscCodec(), numcodecs.Blosc("zstd", shuffle=-1)),
    (zarr.codecs.BloscCodec(shuffle="bitshuffle", typesize=8), numcodecs.Blosc("zstd", shuffle=2)),
]


@pytest.mark.parametrize(("codec", "same"), V3_IN_V2)
def test_codecs_of_v3_are_said_in_the_words_of_v2(codec, same):
    check(by_peer("int64", 2, compressors=same), by_zstore("int64", 2, compressors=codec), is_deflate=True)


@pytest.mark.parametrize(
    ("name", "zarr_format", "expected"),
    [
        ("zstd:9", 3, {"name": "zstd", "configuration": {"level": 9, "checksum": True}}),
        ("zstd:-3", 3, {"name": "zstd", "configuration": {"level": -3, "checksum": True}}),
        ("gzip:9", 3, {"name": "gzip", "configuration": {"level": 9}}),
        ("numcodecs.bz2:4", 3, {"name": "numcodecs.bz2", "configuration": {"level": 4}}),
        ("zstd:9", 2, {"id": "zstd", "level": 9}),
        ("lz4:2", 2, {"id": "lz4", "acceleration": 2}),
        ("bz2:4", 2, {"id": "bz2", "level": 4}),
        (
            "blosc:9",
            2,
            {"id": "blosc", "cname": "zstd", "clevel": 9, "shuffle": 1, "blocksize": 0},
        ),
        (
            "blosc:9",
            3,
            {
                "name": "blosc",
                "configuration": {
                    "cname": "zstd",
                    "clevel": 9,
                    "shuffle": "shuffle",
                    "typesize": 8,
                    "blocksize": 0,
                },
            },
        ),
    ],
)
def test_a_name_with_a_level(name, zarr_format, expected):
    documents, _ = by_zstore("int64", zarr_format, compressors=name)
    assert (documents["codecs"][-1] if zarr_format == 3 else documents["compressor"]) == expected


def test_a_dataset_stores_what_its_encoding_asks_for():
    dataset = xr.Dataset({"v": (("y", "x"), ramp("int64"))})
    for codec in (zarr.codecs.BloscCodec(cname="lz4"), zarr.codecs.ZstdCodec(level=9)):
        store = MemoryStore()
        dataset.zstore.to_zarr(store, encoding={"v": {"compressors": [codec], "chunks": CHUNKS}})
        expected, size = by_peer("int64", compressors=[codec])
        document = json.loads(bytes(store.get("v/zarr.json")))
        assert document["codecs"] == expected["codecs"]
        assert sum(len(store.get(key)) for key in store.list("v/c")) <= 1.01 * size


# Every codec of zstore's and of numcodecs', and a configuration that it takes.
KNOWN = {
    "zstd": {},
    "gzip": {"level": 5},
    "blosc": {"cname": "lz4", "clevel": 5},
    "crc32c": {},
    "bytes": {"endian": "little"},
    "transpose": {"order": [1, 0]},
    "sharding_indexed": {"chunk_shape": [10, 10], "codecs": ["bytes"], "index_codecs": ["bytes"]},
    "bitround": {"keepbits": 3},
    "cast_value": {"data_type": "float32"},
    "conditional": {"codecs": ["zstd"]},
    "n5_default": {"codecs": ["bytes"]},
    "packbits": {},
    "reshape": {"shape": [-1]},
    "scale_offset": {},
    "vlen-utf8": {},
    "vlen-bytes": {},
    **{f"numcodecs.{name}": {} for name in sorted(codec_registry)},
    "numcodecs.astype": {"encode_dtype": "f4", "decode_dtype": "f8"},
    "numcodecs.bitround": {"keepbits": 3},
    "numcodecs.blosc2": {},
    "numcodecs.categorize": {"labels": ["a"], "dtype": "U1"},
    "numcodecs.delta": {"dtype": "f8"},
    "numcodecs.fixedscaleoffset": {"offset": 0, "scale": 1},
    "numcodecs.quantize": {"digits": 2},
    "numcodecs.vlen-array": {"dtype": "f8"},
}


def test_every_codec_refuses_what_it_does_not_know():
    own = {offer.name for offer in builtin.CODECS}
    assert own - set(KNOWN) == {"zstore.bytes_by_field"}
    for name, configuration in KNOWN.items():
        kind = codecs.resolve(name)
        kind.from_configuration(configuration)
        with pytest.raises(MetadataError, match="nobody_has_this"):
            kind.from_configuration({**configuration, "nobody_has_this": 1})


@pytest.mark.parametrize(
    ("given", "zarr_format", "reason"),
    [
        (
            {"name": "zstd", "level": 19},
            3,
            r"'level'; did you mean \{'name': 'zstd', 'configuration': \{'level'",
        ),
        ({"name": "zstd", "levl": 19}, 3, r"'levl'; did you mean .*'level'"),
        ({"name": "zstd", "config": {}}, 3, "did you mean 'configuration'"),
        ({"name": "zstd", "configuration": {"levle": 3}}, 3, "'levle'.*did you mean 'level'"),
        ({"name": "zstd", "configuration": {"level": 3}, "checksum": True}, 3, "'checksum'; did you mean"),
        ({"name": "blosc", "configuration": {"level": 3}}, 3, "did you mean 'clevel'"),
        ({"name": "blosc", "configuration": {"typsize": 3}}, 3, "did you mean 'typesize'"),
        ({"name": "gzip", "configuration": {"check": 3}}, 3, "'check'; its options are 'level'"),
        ({"name": "crc32c", "configuration": {"check": 3}}, 3, "'check'; it has none"),
        ({"name": "numcodecs.bz2", "configuration": {"lvl": 3}}, 3, "did you mean 'level'"),
        ({"name": "numcodecs.delta", "configuration": {"dtyp": "i8"}}, 3, "did you mean 'dtype'"),
        ({"id": "zstd", "levels": 3}, 2, "did you mean 'level'"),
        ({"id": "zstd", "configuration": {"level": 3}}, 2, "unknown options: 'configuration'"),
        ({"id": "bz2", "lvl": 3}, 2, "did you mean 'level'"),
        ({"id": "lzma", "present": 3}, 2, "did you mean 'preset'"),
        ({"id": "shuffle", "element_size": 3}, 2, "did you mean 'elementsize'"),
        ({"name": "zstd", "level": 19}, 2, "'level'; did you mean"),
        ({"name": "zstd", "configuration": None}, 3, "configuration None"),
        ({"name": "zstd", "must_understand": "no"}, 3, "must_understand 'no'"),
        ("blosc:x", 3, "codec 'blosc:x' has the level 'x'; expected an integer"),
        ("zstd:99", 3, "level 99"),
        ("crc32c:9", 3, "unknown options: 'level'"),
    ],
)
def test_what_is_unknown_or_misplaced_is_refused_by_name(given, zarr_format, reason):
    store = MemoryStore()
    for options in ({}, {"shards": SHAPE}) if zarr_format == 3 else ({},):
        with pytest.raises((MetadataError, zstore.errors.UnknownExtensionError), match=reason):
            zstore.create_array(
                store,
                shape=SHAPE,
                chunks=CHUNKS,
                dtype="i8",
                compressors=given,
                zarr_format=zarr_format,
                **options,
            )
    assert [*store.list()] == []


def test_a_codec_of_v3_alone_is_refused_in_v2():
    with pytest.raises(UnsupportedError, match="'bitround' cannot be said"):
        by_zstore("float32", 2, filters={"name": "bitround", "configuration": {"keepbits": 3}})


@pytest.mark.parametrize("name", ["zlib", "lz4", "lzma", "bz2", "zlib:9"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_codecs_of_numcodecs_go_by_their_names_there(name, zarr_format):
    items = np.arange(99, dtype="i4")
    array = zstore.create_array(
        MemoryStore(), data=items, compressors=name, filters=None, zarr_format=zarr_format
    )
    assert [codec.name for codec in array.compressors] == [f"numcodecs.{name.partition(':')[0]}"]
    np.testing.assert_array_equal(array[...], items)
