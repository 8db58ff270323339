"""The built-in codecs, data types, stores and the like, as strings: each is imported at its first use."""

from __future__ import annotations

from typing import NamedTuple

from zstore.extensions.offers import Offer


class PrefixOffer(NamedTuple):
    """An offer of all names that start with `prefix`.

    `target` is a function from the rest of the name to the class. It raises UnknownExtensionError for one
    that it does not know; then plugins are looked through.
    """

    prefix: str
    target: str


CODECS = (
    Offer("bytes", "zstore.codecs.bytes:Bytes"),
    Offer("zstore.bytes_by_field", "zstore.codecs.bytes:BytesByField"),
    Offer("transpose", "zstore.codecs.transpose:Transpose"),
    Offer("sharding_indexed", "zstore.codecs.sharding:ShardingIndexed"),
    Offer("crc32c", "zstore.codecs.crc32c:Crc32c"),
    Offer("gzip", "zstore.codecs.gzip:Gzip"),
    Offer("zstd", "zstore.codecs.zstd:Zstd"),
    Offer("blosc", "zstore.codecs.blosc:Blosc"),
    Offer("bitround", "zstore.codecs.bitround:Bitround"),
    Offer("cast_value", "zstore.codecs.cast_value:CastValue"),
    Offer("conditional", "zstore.codecs.conditional:Conditional"),
    Offer("n5_default", "zstore.codecs.n5_default:N5Default"),
    Offer("packbits", "zstore.codecs.packbits:Packbits"),
    Offer("reshape", "zstore.codecs.reshape:Reshape"),
    Offer("scale_offset", "zstore.codecs.scale_offset:ScaleOffset"),
    Offer("numcodecs.gzip", "zstore.codecs.gzip:NumcodecsGzip"),
    Offer("numcodecs.zlib", "zstore.codecs.gzip:NumcodecsZlib"),
    Offer("numcodecs.zstd", "zstore.codecs.zstd:NumcodecsZstd"),
    Offer("numcodecs.blosc", "zstore.codecs.blosc:NumcodecsBlosc"),
    Offer("numcodecs.blosc2", "zstore.codecs.blosc2:NumcodecsBlosc2"),
    Offer("numcodecs.lz4", "zstore.codecs.lz4:NumcodecsLz4"),
    Offer("numcodecs.pcodec", "zstore.codecs.pcodec:NumcodecsPcodec"),
    Offer("numcodecs.zfpy", "zstore.codecs.zfpy:NumcodecsZfpy"),
    Offer("vlen-utf8", "zstore.codecs.vlen:VlenUtf8"),
    Offer("vlen-bytes", "zstore.codecs.vlen:VlenBytes"),
    Offer("numcodecs.vlen-utf8", "zstore.codecs.vlen:NumcodecsVlenUtf8"),
    Offer("numcodecs.vlen-bytes", "zstore.codecs.vlen:NumcodecsVlenBytes"),
    Offer("numcodecs.vlen-array", "zstore.codecs.vlen_array:VlenArray"),
    Offer("numcodecs.json2", "zstore.codecs.objects:Json"),
    Offer("numcodecs.msgpack2", "zstore.codecs.objects:Msgpack"),
    Offer("numcodecs.pickle", "zstore.codecs.pickled:Pickle"),
    Offer("numcodecs.categorize", "zstore.codecs.categorize:Categorize"),
)

CODEC_PREFIXES = (PrefixOffer("numcodecs.", "zstore.codecs.numcodecs:adapter"),)

# The names of zarr-extensions; float8_e4m3fn is tensorstore's.
SMALL_FLOATS = (
    "bfloat16",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
SMALL_NUMBERS = (
    *SMALL_FLOATS,
    *("int2", "int4", "uint2", "uint4"),
    *(f"complex_{name}" for name in (*SMALL_FLOATS, "float16", "float32", "float64")),
)

# Types beyond the core ones, which `zstore.model.dtype` has itself.
DATA_TYPES = (
    Offer("string", "zstore.model.types.text:String"),
    Offer("bytes", "zstore.model.types.text:VariableBytes", ("variable_length_bytes",)),
    Offer("object", "zstore.model.types.text:Object"),
    Offer("null_terminated_bytes", "zstore.model.types.fixed:NullTerminatedBytes"),
    Offer("fixed_length_utf32", "zstore.model.types.fixed:FixedLengthUtf32"),
    Offer("raw_bytes", "zstore.model.types.fixed:RawBytes"),
    Offer("numpy.longdouble", "zstore.model.types.fixed:LongDouble", ("numpy.clongdouble",)),
    Offer("numpy.datetime64", "zstore.model.types.time:DateTime64"),
    Offer("numpy.timedelta64", "zstore.model.types.time:TimeDelta64"),
    Offer("struct", "zstore.model.types.struct:Struct", ("structured",)),
    *(Offer(name, "zstore.model.types.small:SmallNumber") for name in SMALL_NUMBERS),
)

# In the order in which they read a hierarchy.
CONVENTIONS = (
    Offer("cf", "zstore.geo.conventions.cf:Cf"),
    Offer("gdal", "zstore.geo.conventions.cf:Gdal"),
    Offer("zarr_conventions", "zstore.geo.conventions.geozarr:ZarrConventions"),
    Offer("geozarr", "zstore.geo.conventions.geozarr:Geozarr"),
    Offer("multiscales", "zstore.geo.conventions.levels:Multiscales"),
    Offer("ome", "zstore.geo.conventions.levels:Ome"),
    Offer("time", "zstore.geo.conventions.content:Time"),
    Offer("bands", "zstore.geo.conventions.content:Bands"),
    Offer("stac", "zstore.geo.conventions.content:StacConvention"),
)

# By GeoZarr's names; the aliases are GDAL's names, and "median".
RESAMPLERS = (
    Offer("nearest", "zstore.geo.resampling.methods:Nearest", ("near",)),
    Offer("average", "zstore.geo.resampling.methods:Average"),
    Offer("bilinear", "zstore.geo.resampling.methods:Bilinear"),
    Offer("cubic", "zstore.geo.resampling.methods:Cubic"),
    Offer("cubic_spline", "zstore.geo.resampling.methods:CubicSpline", ("cubicspline",)),
    Offer("lanczos", "zstore.geo.resampling.methods:Lanczos"),
    Offer("mode", "zstore.geo.resampling.methods:Mode"),
    Offer("max", "zstore.geo.resampling.methods:Max"),
    Offer("min", "zstore.geo.resampling.methods:Min"),
    Offer("med", "zstore.geo.resampling.methods:Med", ("median",)),
    Offer("sum", "zstore.geo.resampling.methods:Sum"),
    Offer("q1", "zstore.geo.resampling.methods:Q1"),
    Offer("q3", "zstore.geo.resampling.methods:Q3"),
    Offer("rms", "zstore.geo.resampling.methods:Rms"),
    Offer("gauss", "zstore.geo.resampling.methods:Gauss"),
)

# Methods of reductions.
REDUCTIONS = ("sum", "mean", "min", "max", "count", "std", "var", "any", "all", "argmin", "argmax")

# Profiles beside "default": those that hierarchies can be validated against, too.
PROFILES = ("geozarr-draft", "geozarr-mini", "geozarr-1.0", "multiscale-arrays", "ome", "ome-0.6", "gdal")

# Requirements classes of GeoZarr's draft, and those that its release candidate adds, one for each convention.
CLASSES = (
    *("core", "time", "crs", "geotransform", "overviews", "stac", "projected", "bands"),
    *("proj", "spatial", "multiscales"),
)

# Long calls that can be made in parts, by the name of the function.
JOBS = (
    Offer("copy", "zstore.jobs.upkeep.copy:copy"),
    Offer("convert", "zstore.jobs.upkeep.convert:convert"),
    Offer("reduce", "zstore.jobs.reduction.reduce:reduce"),
    Offer("build_pyramid", "zstore.geo.pyramid.build:build_pyramid"),
    Offer("build_tile_pyramid", "zstore.geo.pyramid.build:build_tile_pyramid"),
    Offer("raster_to_zarr", "zstore.geo.rasters.raster:raster_to_zarr"),
    Offer("rasters_to_zarr", "zstore.geo.rasters.stack:rasters_to_zarr"),
    Offer("netcdf_to_zarr", "zstore.geo.rasters.netcdf:netcdf_to_zarr"),
)

# What makes the sources of views that their documents name.
MAKERS = (
    Offer("reproject", "zstore.geo.pyramid.warp:make_warped"),
    Offer("coarsen", "zstore.geo.pyramid.coarsen:make_coarse"),
    Offer("clip", "zstore.geo.pyramid.zonal:make_clipped"),
    Offer("scene", "zstore.geo.pyramid.cube:make_scene"),
)

# `zstore info` is the function `info` of the module `zstore.cli.info`, with underscores for hyphens.
COMMANDS = tuple(
    Offer(word, "zstore.cli.{0}:{0}".format(word.replace("-", "_")), summary=summary)
    for word, summary in {
        "cache": "Show a cache of remote values on the local disk, or clear it.",
        "calc": "Compute bands by an expression, and store the result.",
        "consolidate": "Gather the metadata of all nodes below a group in one document.",
        "convert": "Make a Zarr of rasters, NetCDF, HDF5 or another Zarr, or a GeoTIFF or NetCDF of a Zarr.",
        "copy": "Copy a store byte for byte: directories, zip files, buckets.",
        "cube": "Sort scenes that STAC items list into time, on one grid, and store them.",
        "doctor": "Describe the installation: versions, kernels, plugins, credentials.",
        "fix": "Correct documents and coordinates, never data.",
        "info": "Describe an array or a group: shape, codecs, sizes, CRS, levels, readers.",
        "manifest": "Hash every value of a store with SHA-256.",
        "mosaic": "Bring rasters of any CRS, resolution and offset to one grid; reproject one.",
        "plugins": "List the offers of zstore and its plugins, or write a new plugin.",
        "pyramid": "Make the coarser levels of a raster, or bring them up to date.",
        "quicklook": "Make a picture of a raster.",
        "reduce": "Make sums, means, extremes and the like along dimensions of an array.",
        "run-units": "Make a part of a planned job, or end the job.",
        "stac": "Write the STAC item of a raster or a pyramid.",
        "tree": "Draw the nodes of a hierarchy.",
        "validate": "Report errors of metadata: the node, the expected value, and the fix.",
        "verify": "Read every chunk, and report damaged, unreachable and unfinished ones.",
        "zonal": "Make statistics of a raster's cells in polygons.",
    }.items()
)

# Read through obstore if it is installed, else through fsspec; the prefixes "obstore+" and "fsspec+" choose.
OBJECT_SCHEMES = (
    ("http", ("https",)),
    ("s3", ("s3a",)),
    ("gs", ("gcs",)),
    ("az", ("abfs", "abfss", "adl")),
)
OBJECT_STORES = ("S3Store", "GCSStore", "AzureStore", "HTTPStore", "LocalStore", "MemoryStore")

FSSPEC_SCHEMES = (
    ("ftp", ()),
    ("sftp", ("ssh",)),
    ("smb", ()),
    ("hdfs", ()),
    ("webhdfs", ("webHDFS",)),
    ("oss", ()),
    ("oci", ()),
    ("hf", ()),
    ("github", ()),
    ("tar", ()),
    ("reference", ()),
    ("simplecache", ()),
    ("filecache", ()),
    ("blockcache", ()),
)

STORES = (
    Offer("memory", "zstore.storage.memory:MemoryStore"),
    Offer("file", "zstore.storage.local:LocalStore", ("local",)),
    Offer("zip", "zstore.storage.zip.store:ZipStore"),
    Offer("n5", "zstore.engine.n5:N5Store"),
    Offer("raster", "zstore.geo.rasters.raster:RasterStore"),
    Offer("netcdf", "zstore.geo.rasters.netcdf:NetcdfStore"),
    Offer("view", "zstore.views.view:ViewStore"),
    Offer("joined", "zstore.geo.rasters.joined:JoinedStore"),
    *(
        Offer(f"{way}{scheme}", target, tuple(f"{way}{alias}" for alias in aliases))
        for way, target in (
            ("", "zstore.storage.objects.store:ObjectStore"),
            ("obstore+", "zstore.storage.objects.store:ObjectStore"),
            ("fsspec+", "zstore.storage.fsspec:FsspecStore"),
        )
        for scheme, aliases in OBJECT_SCHEMES
    ),
    Offer("obstore+file", "zstore.storage.objects.store:ObjectStore"),
    Offer("obstore+memory", "zstore.storage.objects.store:ObjectStore"),
    *(Offer(f"obstore.store.{name}", "zstore.storage.objects.store:ObjectStore") for name in OBJECT_STORES),
    *(Offer(scheme, "zstore.storage.fsspec:FsspecStore", aliases) for scheme, aliases in FSSPEC_SCHEMES),
    Offer("fsspec.mapping.FSMap", "zstore.storage.fsspec:FsspecStore"),
    Offer("zarr.abc.store.Store", "zstore.guests.zarr_python.stores:ZarrStore"),
)
