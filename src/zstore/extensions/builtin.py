"""What zstore itself offers. Strings only: nothing named here is imported until it is asked for."""

from __future__ import annotations

from typing import NamedTuple

from zstore.extensions.offers import Offer

__all__ = ["CODECS", "CODEC_PREFIXES", "CONVENTIONS", "DATA_TYPES", "RESAMPLERS", "STORES", "PrefixOffer"]


class PrefixOffer(NamedTuple):
    """Every name that starts with `prefix`: `target` is a callable that takes the rest and gives the class.

    It raises UnknownExtensionError for a rest that it does not know; plugins are asked then.
    """

    prefix: str
    target: str


CODECS = (
    Offer("bytes", "zstore.codecs.bytes:Bytes"),
    Offer("transpose", "zstore.codecs.transpose:Transpose"),
    Offer("sharding_indexed", "zstore.codecs.sharding:ShardingIndexed"),
    Offer("crc32c", "zstore.codecs.crc32c:Crc32c"),
    Offer("gzip", "zstore.codecs.gzip:Gzip"),
    Offer("zstd", "zstore.codecs.zstd:Zstd"),
    Offer("blosc", "zstore.codecs.blosc:Blosc"),
    Offer("numcodecs.gzip", "zstore.codecs.gzip:NumcodecsGzip"),
    Offer("numcodecs.zlib", "zstore.codecs.gzip:NumcodecsZlib"),
    Offer("numcodecs.zstd", "zstore.codecs.zstd:NumcodecsZstd"),
    Offer("numcodecs.blosc", "zstore.codecs.blosc:NumcodecsBlosc"),
    Offer("numcodecs.lz4", "zstore.codecs.lz4:NumcodecsLz4"),
)

CODEC_PREFIXES = (PrefixOffer("numcodecs.", "zstore.codecs.numcodecs:adapter"),)

# The built-in data types are the model's own and need no look-up; the registry holds what plugins add.
DATA_TYPES: tuple[Offer, ...] = ()

CONVENTIONS = (
    Offer("cf", "zstore.conventions.cf:Cf"),
    Offer("gdal", "zstore.conventions.gdal:Gdal"),
    Offer("geozarr", "zstore.conventions.geozarr:Geozarr"),
)

# GeoZarr's names; the aliases are GDAL's spellings, and "median".
RESAMPLERS = (
    Offer("nearest", "zstore.resampling.methods:Nearest", ("near",)),
    Offer("average", "zstore.resampling.methods:Average"),
    Offer("bilinear", "zstore.resampling.methods:Bilinear"),
    Offer("cubic", "zstore.resampling.methods:Cubic"),
    Offer("cubic_spline", "zstore.resampling.methods:CubicSpline", ("cubicspline",)),
    Offer("lanczos", "zstore.resampling.methods:Lanczos"),
    Offer("mode", "zstore.resampling.methods:Mode"),
    Offer("max", "zstore.resampling.methods:Max"),
    Offer("min", "zstore.resampling.methods:Min"),
    Offer("med", "zstore.resampling.methods:Med", ("median",)),
    Offer("sum", "zstore.resampling.methods:Sum"),
    Offer("q1", "zstore.resampling.methods:Q1"),
    Offer("q3", "zstore.resampling.methods:Q3"),
    Offer("rms", "zstore.resampling.methods:Rms"),
    Offer("gauss", "zstore.resampling.methods:Gauss"),
)

FSSPEC_SCHEMES = (
    ("http", ()),
    ("https", ()),
    ("s3", ("s3a",)),
    ("gs", ("gcs",)),
    ("az", ("abfs", "abfss", "adl")),
    ("ftp", ()),
    ("sftp", ("ssh",)),
    ("smb", ()),
    ("hdfs", ()),
    ("webhdfs", ("webHDFS",)),
    ("oss", ()),
    ("oci", ()),
    ("hf", ()),
    ("github", ()),
    ("zip", ()),
    ("tar", ()),
    ("reference", ()),
    ("simplecache", ()),
    ("filecache", ()),
    ("blockcache", ()),
)

STORES = (
    Offer("memory", "zstore.storage.memory:MemoryStore"),
    Offer("file", "zstore.storage.local:LocalStore", ("local",)),
    *(Offer(scheme, "zstore.storage.fsspec:FsspecStore", aliases) for scheme, aliases in FSSPEC_SCHEMES),
)
