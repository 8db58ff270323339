"""What is fuzzed: every parser and every decoder, each with valid bytes to start from.

A target takes bytes and may raise ZstoreError; anything else that it raises is a fault of zstore.
"""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import zstore
from zstore.codecs.base import Chain, ChunkSpec
from zstore.errors import ZstoreError
from zstore.geo.conventions.read import read_geo
from zstore.model.array import CodecModel
from zstore.storage.memory import MemoryStore
from zstore.storage.objects.listings import read_page

__all__ = ["TARGETS", "Target", "mutate", "try_one"]


class Target(NamedTuple):
    """One thing to feed: the first of `seeds` is taken, others may be; `is_text` where they are documents."""

    seeds: list[bytes]
    feed: Callable[[bytes], Any]
    is_text: bool


# Items that a reader may be asked for without more than this being decoded.
MOST_ITEMS = 1 << 16
ITEMS = (np.arange(48).reshape(6, 8) % 7).astype("<i4")


def try_one(target: Target, data: bytes) -> bool:
    """Whether the bytes were taken; False where they were refused as they should be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            target.feed(data)
        except ZstoreError as error:
            assert str(error)
            return False
    return True


# Documents


def _use(store: MemoryStore) -> None:
    """Open what is there and look at all of it."""
    node = zstore.open(store, mode="r")
    assert repr(node)
    if isinstance(node, zstore.Group):
        for _, member in node.members(None):
            assert repr(member)
        read_geo(node)
        return
    assert node.info
    if node.dtype.itemsize * math.prod(node.model.grid.chunk_shape) > 1 << 22:
        return  # a document may ask for more memory than there is
    if node.size <= MOST_ITEMS and node.dtype.itemsize * node.size <= 1 << 22:
        node[...]
    elif node.ndim and node.size:
        node[(0,) * node.ndim]


def _document(key: str, others: dict[str, bytes]) -> Callable[[bytes], None]:
    def feed(data: bytes) -> None:
        store = MemoryStore()
        for name, value in others.items():
            store.put(name, value)
        store.put(key, data)
        _use(store)

    return feed


def _documents(key: str, **options: Any) -> dict[str, Target]:
    """Targets for the documents of arrays, with the chunks of the first beside them."""
    seeds, others = [], {}
    for choice in options.pop("choices"):
        store = MemoryStore()
        array = zstore.create_array(store, **{"shape": (6, 8), "chunks": (3, 4), **options, **choice})
        array[...] = "1" if array.dtype.kind in "TS" else np.ones((), "u1").astype(array.dtype)
        seeds.append(bytes(store.get(key)))
        others = others or {name: bytes(store.get(name)) for name in store.list("") if name != key}
    return {f"{key} array": Target(seeds, _document(key, others), True)}


def _hierarchy(zarr_format: int) -> MemoryStore:
    store = MemoryStore()
    group = zstore.create_group(store, zarr_format=zarr_format, attributes=GEO)
    for name in ("band", "y", "x", "spatial_ref"):
        shape = {"band": (4, 4), "spatial_ref": ()}.get(name, (4,))
        names = {"band": ("y", "x"), "spatial_ref": ()}.get(name, (name,))
        group.create_array(
            name,
            data=np.arange(int(np.prod(shape)), dtype="f8").reshape(shape),
            dimension_names=names,
            attributes=GEO_OF.get(name, {}),
        )
    group.create_group("deep/er")
    group.consolidate()
    return store


GEO: dict[str, Any] = {
    "Conventions": "CF-1.11",
    "proj:code": "EPSG:32632",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [10.0, 0.0, 0.0, 0.0, -10.0, 0.0],
    "spatial:shape": [4, 4],
    "zarr_conventions": [{"name": "proj:", "uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f"}],
    "multiscales": {"layout": [{"asset": "band", "transform": {"scale": [1.0, 1.0]}}]},
}
GEO_OF: dict[str, dict[str, Any]] = {
    "band": {
        "grid_mapping": "spatial_ref",
        "_FillValue": 0.0,
        "scale_factor": 0.5,
        "_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32632"},
    },
    "x": {"standard_name": "projection_x_coordinate", "units": "m"},
    "y": {"standard_name": "projection_y_coordinate", "units": "m"},
    "spatial_ref": {"grid_mapping_name": "latitude_longitude", "GeoTransform": "0 10 0 0 0 -10"},
}


def _group_target(zarr_format: int, key: str) -> Target:
    store = _hierarchy(zarr_format)
    others = {name: bytes(store.get(name)) for name in store.list("") if name != key}
    return Target([bytes(store.get(key))], _document(key, others), True)


# Chunks

SPECS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "bytes": (ITEMS, []),
    "zstd": (ITEMS, [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]),
    "gzip": (ITEMS, [{"name": "gzip", "configuration": {"level": 1}}]),
    "crc32c": (ITEMS, [{"name": "crc32c"}]),
    **{
        f"blosc {cname} {shuffle}": (
            ITEMS,
            [
                {
                    "name": "blosc",
                    "configuration": {
                        "cname": cname,
                        "clevel": 5,
                        "shuffle": shuffle,
                        "typesize": 4,
                        "blocksize": 0,
                    },
                }
            ],
        )
        for cname, shuffle in (
            ("lz4", "shuffle"),
            ("zstd", "bitshuffle"),
            ("zlib", "noshuffle"),
            ("blosclz", "shuffle"),
        )
    },
    **{
        f"numcodecs.{name}": (ITEMS, [{"name": f"numcodecs.{name}", "configuration": options}])
        for name, options in {
            "zlib": {"level": 1},
            "lz4": {"acceleration": 1},
            "bz2": {"level": 1},
            "lzma": {"format": 1, "check": -1, "preset": None, "filters": None},
            "shuffle": {"elementsize": 4},
            "fletcher32": {},
            "crc32": {},
            "adler32": {},
            "jenkins_lookup3": {},
            "base64": {},
        }.items()
    },
}
LEADING: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "packbits": (
        (ITEMS % 2).astype(bool),
        [{"name": "packbits", "configuration": {"padding_encoding": "first_byte"}}],
    ),
    "n5_default": (
        ITEMS,
        [
            {
                "name": "n5_default",
                "configuration": {
                    "codecs": [
                        {"name": "transpose", "configuration": {"order": [1, 0]}},
                        {"name": "bytes", "configuration": {"endian": "big"}},
                        {"name": "gzip", "configuration": {"level": 1}},
                    ]
                },
            }
        ],
    ),
    "vlen-utf8": (ITEMS.astype(str).astype(np.dtypes.StringDType()), [{"name": "vlen-utf8"}]),
    "vlen-bytes": (ITEMS.astype("S2").astype(object), [{"name": "vlen-bytes"}]),
    "numcodecs.json2": (ITEMS.astype(object), [{"name": "numcodecs.json2", "configuration": {}}]),
    "numcodecs.msgpack2": (ITEMS.astype(object), [{"name": "numcodecs.msgpack2", "configuration": {}}]),
    "numcodecs.vlen-array": (
        np.array([np.arange(n) for n in range(48)], object).reshape(6, 8),
        [{"name": "numcodecs.vlen-array", "configuration": {"dtype": "<i8"}}],
    ),
    "numcodecs.categorize": (
        ITEMS.astype(str).astype(object),
        [
            {
                "name": "numcodecs.categorize",
                "configuration": {"labels": list("0123456"), "dtype": "|O", "astype": "|u1"},
            }
        ],
    ),
}
LITTLE: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}


def _chunk_target(items: np.ndarray[Any, Any], codecs: list[dict[str, Any]]) -> Target:
    models = [CodecModel(codec["name"], codec.get("configuration", {})) for codec in codecs]
    fill: Any = None if items.dtype.kind == "O" else np.zeros((), items.dtype)[()]
    if codecs[0]["name"] == "vlen-bytes":
        fill = b""
    chain = Chain.bind(models, ChunkSpec(items.shape, items.dtype, fill))

    def feed(data: bytes) -> None:
        decoded = chain.decode(data)
        assert (decoded.shape, decoded.dtype) == (items.shape, items.dtype)

    return Target([bytes(chain.encode(items))], feed, False)


def _shard_target(location: str, *, checksum: bool, is_nested: bool) -> Target:
    def sharding(chunk_shape: list[int], codecs: list[Any]) -> dict[str, Any]:
        return {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": chunk_shape,
                "codecs": codecs,
                "index_codecs": [LITTLE, {"name": "crc32c"}] if checksum else [LITTLE],
                "index_location": location,
            },
        }

    serializer = sharding([2, 2], [LITTLE])
    if is_nested:
        serializer = sharding([4, 4], [serializer])
    store = MemoryStore()
    options = {"shape": (8, 8), "dtype": "i4", "chunks": (8, 8), "compressors": None}
    array = zstore.create_array(store, serializer=serializer, **options)
    array[...] = 1 + np.arange(64).reshape(8, 8)

    def feed(data: bytes) -> None:
        store.put("c/0/0", data)
        read = zstore.open_array(store, mode="r")
        outcomes = set()
        for selection in ((0, 0), (slice(0, 3), slice(5, 8)), ([7, 1], [0, 2])):
            try:
                read[selection]
                outcomes.add(True)
            except ZstoreError:
                outcomes.add(False)
        read[...]
        assert outcomes == {True}, "what is read whole is read in parts"

    return Target([bytes(store.get("c/0/0"))], feed, False)


# Mutations

HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, 2**70, 1e400, float("nan"), 0.5),
    *("", "x", "NaN", "../../etc", "/", ".", "é", "\ud800", "0x7fc00000", "|O", "<f8", "V0", "<U999999999"),
    *([], {}, [[]], [0], [-1], [2**62, 2**62], [1] * 33, {"name": "zstd"}, {"id": "zlib"}, {"name": 1}),
    *("blosc", "pickle", "sharding_indexed", "transpose", "r7", "r8", "string", "numcodecs.pickle", "int2"),
]


def mutate(target: Target, rng: random.Random) -> bytes:
    """One of the target's seeds, changed in some places."""
    data = bytearray(rng.choice(target.seeds))
    if target.is_text and rng.random() < 0.8:
        document = json.loads(data)
        for _ in range(rng.randint(1, 3)):
            document = _change(document, rng)
        return json.dumps(document).encode("utf-8", "surrogatepass")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            del data[at : at + rng.choice((1, 4, 1 << 20))]
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
        elif kind == 2:
            data[at : at + 8] = rng.choice(
                (b"\xff" * 8, bytes(8), b"\0\0\0\x80" * 2, b"\xff\xff\xff\x7f" * 2)
            )
        elif at < len(data):
            data[at] = rng.randrange(256) if kind == 3 else data[at] ^ (1 << rng.randrange(8))
    return bytes(data)


def _change(value: Any, rng: random.Random) -> Any:
    """The value, with one part of it replaced, removed or doubled."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(HOSTILE)
    if isinstance(value, dict):
        name = rng.choice(list(value))
        kind = rng.randrange(8)
        if kind == 0:
            return {key: item for key, item in value.items() if key != name}
        if kind == 1:
            return {**value, str(rng.choice(HOSTILE)): value[name]}
        return {**value, name: _change(value[name], rng)}
    place = rng.randrange(len(value))
    if rng.randrange(8) == 0:
        return value[:place] + value[place + 1 :]
    if rng.randrange(8) == 0:
        return [*value, value[place]]
    return [*value[:place], _change(value[place], rng), *value[place + 1 :]]


_SHARDED = {"chunks": (3, 4), "shards": (6, 8)}
PAGE = (
    b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<IsTruncated>true</IsTruncated><NextContinuationToken>1</NextContinuationToken><Contents><Key>a/b</Key>"
    b"<ETag>&quot;1&quot;</ETag><Size>12</Size></Contents><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>"
    b"</ListBucketResult>"
)
TARGETS: dict[str, Target] = {
    **_documents("meta", zarr_format=1, dtype="f4", choices=[{}, {"compressors": "zlib"}, {"dtype": "S3"}]),
    **_documents(
        ".zarray",
        zarr_format=2,
        dtype="f4",
        choices=[
            {},
            {"dtype": [("r", "u1"), ("g", ">f4")]},
            {"dtype": str},
            {"dtype": "M8[s]", "order": "F"},
        ],
    ),
    **_documents(
        "zarr.json",
        dtype="f4",
        choices=[{}, _SHARDED, {"dtype": str}, {"dtype": [("r", "u1"), ("g", "f4")]}, {"dtype": "bfloat16"}],
    ),
    "zarr.json group": _group_target(3, "zarr.json"),
    ".zmetadata": _group_target(2, ".zmetadata"),
    ".zattrs": _group_target(2, ".zattrs"),
    "geo attributes": _group_target(3, "band/zarr.json"),
    "geo variable": _group_target(2, "spatial_ref/.zattrs"),
    "page of a list": Target([PAGE], read_page, False),
    **{name: _chunk_target(items, [LITTLE, *codecs]) for name, (items, codecs) in SPECS.items()},
    **{name: _chunk_target(items, codecs) for name, (items, codecs) in LEADING.items()},
    **{
        f"shard {location} {'crc' if checksum else 'bare'}{' nested' if is_nested else ''}": _shard_target(
            location, checksum=checksum, is_nested=is_nested
        )
        for location in ("start", "end")
        for checksum in (True, False)
        for is_nested in (True, False)
    },
}
