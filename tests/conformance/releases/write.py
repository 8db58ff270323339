"""One set of tricky stores as the installed release of a writer writes them, with the values that it reads.

    PYTHON write.py zarr|zarrs|n5|xarray|tensorstore|gdal|... TARGET     in an environment that has the writer
    PYTHON write.py pack releases.json.xz TARGET...  every different node of all targets, and who wrote it

Nodes are TARGET/FORMAT/NAME. TARGET/expected.json has the writer's version and, of each node, the kind of its
dtype, its shape and the text of its values. `make` does all of it.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np

NUMBERS = np.arange(30, dtype="f8").reshape(5, 6)
ATTRIBUTES = {
    "nan": float("nan"), "infinite": float("-inf"), "none": None, "nested": {"a": [1, {"b": None}], "": 0},
    "large": 2**70, "text": "ß日\0", "list": [], "float": 1e300, "true": True,
}  # fmt: skip
POINT = [("x", "<i2"), ("y", "<i2")]


def plain_cases():
    """(name, items or None where none are written, options) of both formats."""
    for dtype in ("<i2", ">i2", "<u8", ">u4", "<f4", ">f8", "<f2", "|b1", "|i1", "<c8", ">c16"):
        items = (NUMBERS % 2 if dtype == "|b1" else NUMBERS).astype(dtype)
        yield "number-" + dtype.strip("<|").replace(">", "big-"), items, {"chunks": (2, 4)}
    for name, dtype, fill in [
        ("nan", "f4", np.nan), ("-infinity", "f8", -np.inf), ("0.1", "f4", 0.1), ("-9999", ">i2", -9999),
        ("true", "bool", True), ("complex", "c16", 1 + 2j), ("complex-nan", "c8", complex(np.nan, 1)),
        ("least", "i8", -(2**63)), ("most", "u8", 2**64 - 1), ("text", "U4", "üb"), ("bytes", "S4", b"ab"),
        ("nat", "M8[s]", np.datetime64("NaT", "s")), ("date", "M8[s]", np.datetime64(951782400, "s")),
    ]:  # fmt: skip
        yield f"fill-{name}", None, {"shape": (3,), "chunks": (2,), "dtype": dtype, "fill_value": fill}
    yield "fill-none", NUMBERS.astype("i4"), {"chunks": (2, 4), "fill_value": None}
    yield "scalar", np.array(7.5), {"chunks": ()}
    yield "scalar-big", np.array(7, ">i4"), {"chunks": ()}
    empty = np.zeros((0, 4), "i4")
    yield "empty", empty, {"chunks": (1, 2)}
    yield "empty-auto", empty, {}
    yield "empty-chunk-0", empty, {"chunks": (0, 2)}
    yield "empty-true", empty, {"chunks": True}
    yield "empty-false", empty, {"chunks": False}
    yield "one-large-chunk", NUMBERS, {"chunks": (100, 100)}
    yield "order-f", NUMBERS, {"chunks": (2, 4), "order": "F"}
    yield "order-f-big", NUMBERS.astype(">i4"), {"chunks": (2, 4), "order": "F"}
    for dtype in ("M8[ns]", "M8[D]", "m8[s]", "M8[10us]", ">M8[s]"):
        items = np.arange(6).astype("i8").view(dtype.strip(">")).astype(dtype)
        yield "time-" + dtype.replace(">", "big-"), items, {"chunks": (4,)}
    yield "time-nat", np.array(["2020-01-01", "NaT"], "M8[s]"), {"chunks": (1,)}
    yield "text", np.array(["a", "ßü", "", "日本語"]), {"chunks": (3,)}
    yield "text-big", np.array(["a", "ßü", ""]).astype(">U4"), {"chunks": (2,)}
    yield "bytes", np.array([b"a", b"bcd", b""]), {"chunks": (2,)}
    yield "void", np.array([b"abc", b"\0\1\2"]).astype("V3"), {"chunks": (2,)}
    fields = [("a", "<i4"), ("b", ">f8"), ("c", "S3")]
    yield "fields", np.array([(1, 2.5, b"xy"), (3, -1, b"")], fields), {"chunks": (1,)}
    yield "fields-little", np.array([(1, 2.5), (3, -1)], [("a", "<i4"), ("b", "<f8")]), {"chunks": (1,)}
    yield "fields-nested", np.array([((1, 2), 3.5)], [("p", POINT), ("v", "<f4")]), {"chunks": (1,)}
    yield "fields-fill", None, {
        "shape": (3,), "chunks": (2,), "dtype": POINT, "fill_value": np.array((5, 1), POINT)[()],
    }  # fmt: skip
    yield "fields-no-fill", None, {"shape": (3,), "chunks": (2,), "dtype": POINT}


def zarr_cases(zarr, zarr_format):
    """As `plain_cases`, with those of a format and of this version of zarr-python."""
    import numcodecs

    chunks = {"chunks": (2, 4)}
    is_3 = zarr.__version__[0] != "2"
    yield from plain_cases()
    if is_3:
        words = np.array(["a", "ßü", ""], object)
        yield "strings", words, {"dtype": str, "chunks": (2,)}
    if zarr_format == 2:
        for name, items, codec in [
            ("delta", NUMBERS.astype("i4"), numcodecs.Delta("<i4")),
            ("delta-big", NUMBERS.astype(">i4"), numcodecs.Delta(">i4", "<i2")),
            ("quantize", NUMBERS, numcodecs.Quantize(2, "<f8")),
            ("fixedscaleoffset", NUMBERS, numcodecs.FixedScaleOffset(0, 10, "<f8", "<i4")),
            ("shuffle", NUMBERS.astype("i4"), numcodecs.Shuffle(4)),
            ("packbits", NUMBERS > 4, numcodecs.PackBits()),
            ("astype", NUMBERS, numcodecs.AsType("<f4", "<f8")),
        ]:
            yield f"filter-{name}", items, {**chunks, "filters": [codec]}
        for name, codec in [
            ("none", None), ("zlib", numcodecs.Zlib(1)), ("gzip", numcodecs.GZip(1)),
            ("bz2", numcodecs.BZ2(1)), ("lzma", numcodecs.LZMA()), ("lz4", numcodecs.LZ4()),
            ("zstd", numcodecs.Zstd(1)),
            ("blosc", numcodecs.Blosc("zlib", 3, 2)), ("blosclz", numcodecs.Blosc("blosclz", 3, -1, 64)),
        ]:  # fmt: skip
            yield f"compressor-{name}", NUMBERS, {**chunks, "compressor": codec}
        yield "separator", NUMBERS, {**chunks, "dimension_separator": "/"}
    if zarr_format == 2 and not is_3:
        words = np.array(["a", "ßü", ""], object)
        ragged = np.empty(2, object)
        ragged[0], ragged[1] = np.array([1, 2], "i4"), np.array([], "i4")
        mixed = np.array(["a", {"b": 1}, None, [1]], object)
        utf8 = {"chunks": (2,), "dtype": object, "object_codec": numcodecs.VLenUTF8()}
        yield "strings", words, {"chunks": (2,), "dtype": str}
        yield "strings-fill", None, {**utf8, "shape": (3,), "fill_value": "zz"}
        yield "bytestrings", np.array([b"a", b"", b"bc"], object), {"chunks": (2,), "dtype": bytes}
        yield "json", mixed, {**utf8, "object_codec": numcodecs.JSON()}
        yield "ragged", ragged, {"chunks": (2,), "dtype": "array:i4"}
        yield "categories", np.array(["a", "b", "a"], object), {
            **utf8, "object_codec": numcodecs.Categorize(["a", "b"], dtype=object),
        }  # fmt: skip
        yield (
            "fields-subarray",
            np.array([([1, 2], 3.5)], [("p", "<i2", (2,)), ("v", "<f4")]),
            {"chunks": (1,)},
        )
    if zarr_format == 3:
        codecs = zarr.codecs
        shards = {"chunks": (2, 3), "shards": (4, 6)}
        yield "shards", NUMBERS, shards
        yield "shards-big", NUMBERS.astype(">i4"), shards
        yield "shards-sparse", np.where(NUMBERS == 7, NUMBERS, 0), shards
        yield "shards-text", np.array(["a", "ßü", "", "x"], object), {
            "dtype": str, "chunks": (2,), "shards": (4,),
        }  # fmt: skip
        yield "shards-empty", np.zeros((0, 4), "i4"), {"chunks": (1, 2), "shards": (1, 4)}
        yield "uneven", NUMBERS, {"chunks": [[2, 3], [1, 5]]}
        yield "uneven-one-way", NUMBERS, {"chunks": [2, [1, 5]]}
        for name in ("v2", "default"):
            yield f"keys-{name}", NUMBERS, {**chunks, "chunk_key_encoding": {"name": name, "separator": "."}}
        yield "names", NUMBERS, {**chunks, "dimension_names": ("y", None)}
        for name, made in [
            ("none", None), ("gzip", codecs.GzipCodec()), ("blosc", codecs.BloscCodec()),
            ("checked", [codecs.ZstdCodec(), codecs.Crc32cCodec()]),
        ]:  # fmt: skip
            yield f"compressor-{name}", NUMBERS, {**chunks, "compressors": made}
        yield "transpose", NUMBERS, {**chunks, "filters": [codecs.TransposeCodec(order=(1, 0))]}
        yield "big", NUMBERS, {**chunks, "serializer": codecs.BytesCodec(endian="big")}
        try:
            from zarr.codecs import numcodecs as wrapped
        except ImportError:
            return
        for name, items, options in [
            ("delta", NUMBERS.astype("i4"), lambda: {"filters": [wrapped.Delta(dtype="<i4")]}),
            ("zlib", NUMBERS, lambda: {"compressors": [wrapped.Zlib(level=1)]}),
            ("bitround", NUMBERS.astype("f4"), lambda: {"filters": [wrapped.BitRound(keepbits=10)]}),
            ("fixedscaleoffset", NUMBERS, lambda: {
                "filters": [wrapped.FixedScaleOffset(offset=0, scale=10, dtype="<f8", astype="<i4")]
            }),
            ("shuffle", NUMBERS, lambda: {"compressors": [wrapped.Shuffle(elementsize=8), wrapped.LZ4()]}),
            ("adler32", NUMBERS, lambda: {"compressors": [wrapped.Adler32()]}),
            ("packbits", NUMBERS > 4, lambda: {"filters": [wrapped.PackBits()]}),
        ]:  # fmt: skip
            yield f"numcodecs-{name}", items, {**chunks, **options()}


def write_zarr(target):
    """The stores of zarr-python."""
    import zarr

    is_3 = zarr.__version__[0] != "2"
    if is_3:
        try:
            zarr.config.set({"array.rectilinear_chunks": True})
        except Exception as error:
            print("no uneven chunks:", error)
    for zarr_format in (2, 3) if is_3 else (2,):
        options = {"mode": "w", **({"zarr_format": zarr_format} if is_3 else {})}
        top = zarr.open_group(f"{target}/v{zarr_format}", **options)
        for name, items, chosen in zarr_cases(zarr, zarr_format):
            yield (
                f"v{zarr_format}/{name}",
                lambda n=name, i=items, o=chosen, f=zarr_format, g=top: one_zarr(g, n, i, dict(o), f, is_3),
            )
        yield (
            f"v{zarr_format}/tree",
            lambda f=zarr_format, o=options: tree(zarr, f"{target}/v{f}/tree", o, is_3),
        )


def write_zarrs(target):
    """The stores of zarr-python whose chunks zarrs encodes."""
    import zarr
    import zarrs  # noqa: F401 - for its codec pipeline

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    yield from write_zarr(target)


def write_n5(target):
    """The stores of zarr-python's N5Store."""
    import numcodecs
    import zarr

    top = zarr.open_group(zarr.N5Store(f"{target}/n5"), mode="w")
    cases = {
        f"number-{dtype.replace('>', 'big-')}": (NUMBERS.astype(dtype), {"chunks": (2, 4)})
        for dtype in ("u1", "u2", "u4", "u8", "i1", ">i2", "i4", ">i8", ">f4", "f8")
    }
    for name, codec in [
        ("none", None), ("gzip", numcodecs.GZip(1)), ("zlib", numcodecs.Zlib(1)), ("bz2", numcodecs.BZ2(1)),
        ("lzma", numcodecs.LZMA()), ("lz4", numcodecs.LZ4()), ("zstd", numcodecs.Zstd(1)),
        ("blosc", numcodecs.Blosc("zlib", 3, 2)),
    ]:  # fmt: skip
        cases[f"compressor-{name}"] = NUMBERS, {"chunks": (2, 4), "compressor": codec}
    cases["one-large-chunk"] = NUMBERS, {"chunks": (100, 100)}
    cases["cube"] = np.arange(24, dtype="i4").reshape(2, 3, 4), {"chunks": (1, 2, 3)}
    cases["line"] = np.arange(7), {"chunks": (3,)}
    cases["nothing-stored"] = None, {"shape": (3,), "chunks": (2,), "dtype": "i4"}
    for name, (items, chosen) in cases.items():
        yield f"n5/{name}", lambda n=name, i=items, o=chosen: one_zarr(top, n, i, dict(o), 2, False)


def one_zarr(group, name, items, options, zarr_format, is_3):
    """Write one array, and read it."""
    if items is not None:
        options = {"shape": items.shape, "dtype": items.dtype, **options}
    names = [f"{name}-{axis}" for axis in range(len(options["shape"]))]
    if is_3:
        if options.pop("dimension_separator", None):
            options["chunk_key_encoding"] = {"name": "v2", "separator": "/"}
        if "compressor" in options:
            options["compressors"] = options.pop("compressor")
        if options.get("chunks") is True or options.get("chunks") is False:
            raise TypeError("no chunks of bool")
        if zarr_format == 3:
            options.setdefault("dimension_names", names)
        array = group.create_array(name, **options)
    else:
        array = group.create_dataset(name, **options)
    if zarr_format == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = names
    if items is not None:
        array[...] = items
    return group[name][...]


def tree(zarr, path, options, is_3):
    """Groups in groups with odd attributes and an array, consolidated."""
    top = zarr.open_group(path, **options)
    top.attrs.update(ATTRIBUTES)
    inner = top.create_group("deep/er")
    inner.attrs["x"] = 1
    make = inner.create_array if is_3 else inner.create_dataset
    array = make("numbers", shape=(3,), chunks=(2,), dtype="i4")
    array[...] = [1, 2, 3]
    zarr.consolidate_metadata(path)
    top = zarr.open_group(path, mode="r")
    return np.array([repr((name, top.attrs[name])) for name in sorted(top.attrs)], object)


def write_xarray(target):
    """A dataset of xarray's with what its encoding of CF has, by way of zarr-python."""
    import xarray
    import zarr

    is_3 = zarr.__version__[0] != "2"
    made = xarray.Dataset(coords={
        "time": np.arange(6).astype("M8[D]").astype("M8[ns]"), "x": np.arange(4) * 0.5,
        "name": ("x", np.array(["a", "ß", "", "日本"], object)), "fixed": ("x", ["aa", "b", "", "c"]),
        "scalar": 3,
    })  # fmt: skip
    items = (NUMBERS.ravel()[:24].reshape(6, 4) + 280).astype("f4")
    items[1, 1] = np.nan
    unsigned = {"dtype": "i1", "_Unsigned": "true", "_FillValue": -1}
    fill = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768}
    for name, dims, values, encoding in [
        ("packed", "time x", items, fill), ("plain", "time x", items, {}),
        ("flag", "time x", items > 290, {}),
        ("unsigned", "time", [0.0, 1, 127, 200, 254, 3], unsigned),
        ("when", "x", np.array(["2000-01-01", "NaT", "1950-02-03", "2020-01-01T00:00:01"], "M8[ns]"), {}),
        ("span", "x", np.array([1, 2, 3, 10**9], "m8[s]").astype("m8[ns]"), {}),
        ("bytes", "x", np.array([b"a", b"bc", b"", b"d"]), {}),
        ("complex", "x", [1 + 2j, 0, 3, 4], {}), ("half", "x", np.array([1, 2, np.nan, 4], "f2"), {}),
        ("nothing", "none", np.zeros(0), {}),
    ]:  # fmt: skip
        made[name] = (tuple(dims.split()), values)
        made[name].encoding = encoding
    made.attrs.update(title="ß", number=3, list=[1, 2.5], nan=float("nan"), array=np.arange(3))
    for zarr_format in (2, 3) if is_3 else (2,):
        options = {"zarr_format": zarr_format} if is_3 else {}
        yield (
            f"xarray/v{zarr_format}",
            lambda f=zarr_format, o=options: one_xarray(made, f"{target}/xarray/v{f}", o),
        )


def one_xarray(made, path, options):
    """Write the dataset, and read it."""
    import xarray

    made.to_zarr(path, **options)
    return tell(xarray.open_zarr(path))


def tell(opened):
    """The variables of a dataset in words, with few digits: releases decode to other dtypes."""
    told = []
    for name in sorted(opened.variables):
        variable = opened.variables[name]
        items = variable.values
        if items.dtype.kind in "mM":
            items = items.astype(f"{items.dtype.kind}8[ns]").astype("i8")
        items = items.astype(object).ravel().tolist()
        values = [f"{item:.5g}" if isinstance(item, float) else repr(item) for item in items]
        told.append(" ".join([name, *variable.dims, "=", *values]))
    return np.array(told, object)


def write_tensorstore(target):
    """The stores of tensorstore."""
    import tensorstore

    def one(path, driver, metadata, dtype):
        store = {"driver": "file", "path": str(path)}
        spec = {"driver": driver, "kvstore": store, "metadata": metadata}
        array = tensorstore.open(spec, create=True, delete_existing=True).result()
        array[...] = (NUMBERS % 2 if "b" in dtype[:2] else NUMBERS).astype(dtype)
        return array[...].read().result()

    for dtype in ("|b1", "<i2", ">i2", "<u8", ">f4", "<f8", "<f2", "<c8", ">c16", "|i1"):
        name = "number-" + dtype.strip("<|").replace(">", "big-")
        metadata = {
            "shape": [5, 6], "chunks": [2, 4], "dtype": dtype, "order": "F", "fill_value": None,
            "compressor": {"id": "zlib", "level": 1}, "dimension_separator": "/",
        }  # fmt: skip
        yield f"v2/{name}", lambda n=name, m=metadata, d=dtype: one(f"{target}/v2/{n}", "zarr", m, d)
    little, big = ({"name": "bytes", "configuration": {"endian": order}} for order in ("little", "big"))
    transposed = {"name": "transpose", "configuration": {"order": [1, 0]}}
    sharded = {"chunk_shape": [2, 3], "index_location": "start", "codecs": [little, {"name": "crc32c"}]}
    blosc = {"cname": "lz4", "clevel": 1, "shuffle": "shuffle"}
    chains = {
        "big": [big],
        "transpose": [transposed, little, {"name": "gzip", "configuration": {"level": 1}}],
        "zstd": [little, {"name": "zstd", "configuration": {"level": 1}}],
        "blosc": [little, {"name": "blosc", "configuration": blosc}],
        "shards": [{"name": "sharding_indexed", "configuration": sharded}],
    }
    types = ("bool", "int16", "uint64", "float32", "complex64", "int8", "float16", "bfloat16", "int4")
    for dtype in types:
        for name, codecs in chains.items():
            metadata = {
                "shape": [5, 6], "data_type": dtype, "codecs": codecs, "dimension_names": ["y", "x"],
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}},
            }  # fmt: skip
            kind = dtype if dtype not in ("bfloat16", "int4") else tensorstore.dtype(dtype).numpy_dtype.name
            yield (
                f"v3/{dtype}-{name}",
                lambda n=f"{dtype}-{name}", m=metadata, d=kind: one(f"{target}/v3/{n}", "zarr3", m, d),
            )


def by_rasterio(path, dtype, options):
    """Write a raster of GDAL's, and read it."""
    import rasterio

    profile = {
        "driver": "Zarr", "width": 6, "height": 5, "count": 1, "dtype": dtype, "crs": "EPSG:32632",
        "transform": rasterio.transform.from_origin(5e5, 5e6, 10, 10),
        "nodata": None if "complex" in dtype else 7, **options,
    }  # fmt: skip
    with rasterio.open(path, "w", **profile) as file:
        file.write(NUMBERS.astype(dtype), 1)
    with rasterio.open(path) as file:
        return file.read(1)


def by_library(path, dtype, options):
    """As `by_rasterio`, by the library that is inside pyogrio's wheel: releases that no rasterio brings."""
    import ctypes as c

    import pyogrio

    [library] = (Path(pyogrio.__file__).parents[1] / "pyogrio.libs").glob("libgdal*")
    gdal, items = c.CDLL(str(library)), np.ascontiguousarray(NUMBERS.astype(dtype))
    names = ["uint8", "uint16", "int16", "uint32", "int32", "float32", "float64", "", "", "complex64"]
    number, flags = names.index(dtype) + 1, [f"{name}={value}".encode() for name, value in options.items()]

    def call(name, *arguments):
        function = getattr(gdal, name)
        function.restype = c.c_void_p
        answer = function(*arguments)
        if gdal.CPLGetLastErrorType() > 2:
            gdal.CPLGetLastErrorMsg.restype = c.c_char_p
            raise OSError(gdal.CPLGetLastErrorMsg())
        return c.c_void_p(answer)

    def move(raster, is_writing):
        band, at = call("GDALGetRasterBand", raster, 1), items.ctypes.data_as(c.c_void_p)
        call("GDALRasterIO", band, is_writing, 0, 0, 6, 5, at, 6, 5, number, 0, 0)

    gdal.CPLErrorReset()
    call("GDALAllRegister")
    options = (c.c_char_p * (len(flags) + 1))(*flags)
    driver = call("GDALGetDriverByName", b"Zarr")
    made = call("GDALCreate", driver, str(path).encode(), 6, 5, 1, number, options)
    call("GDALSetGeoTransform", made, (c.c_double * 6)(5e5, 10, 0, 5e6, 0, -10))
    call("GDALSetProjection", made, b"EPSG:32632")
    if "complex" not in dtype:
        call("GDALSetRasterNoDataValue", call("GDALGetRasterBand", made, 1), c.c_double(7))
    move(made, 1)
    call("GDALClose", made)
    items[...] = 0
    made = call("GDALOpen", str(path).encode(), 0)
    move(made, 0)
    call("GDALClose", made)
    return items


def write_gdal(target):
    """The stores of GDAL, by rasterio, or by pyogrio's library."""
    try:
        import rasterio  # noqa: F401 - which library there is

        write = by_rasterio
    except ImportError:
        write = by_library

    def one(path, dtype, options):
        path.parent.mkdir(parents=True, exist_ok=True)
        return write(path, dtype, {"BLOCKSIZE": "2,4", **options})

    for zarr_format in (2, 3):
        for dtype in ("uint8", "int16", "uint32", "float32", "float64", "complex64"):
            for word in ("NONE", "ZLIB", "GZIP", "ZSTD", "BLOSC", "LZ4"):
                if dtype in ("int16", "float64") or word == "NONE":
                    options = {"FORMAT": f"ZARR_V{zarr_format}", "COMPRESS": word}
                    yield (
                        f"v{zarr_format}/{dtype}-{word}",
                        lambda f=zarr_format, d=dtype, w=word, o=options: one(
                            Path(target) / f"v{f}/{d}-{w}", d, o
                        ),
                    )
        options = {"FORMAT": f"ZARR_V{zarr_format}", "CHUNK_MEMORY_LAYOUT": "F"}
        yield (
            f"v{zarr_format}/order-f",
            lambda f=zarr_format, o=options: one(Path(target) / f"v{f}/order-f", "int16", o),
        )


def tell_store(path, crs=None, affine=None, levels=()):
    """The items of each array of a store as zarr-python reads them, and what its writer meant by them."""
    import zarr

    told = tell_arrays(zarr.open_group(str(path), mode="r"))
    return np.array([*told, *tell_place(crs, affine, levels)], object)


def tell_arrays(group, at=""):
    """The path, the shape and the items of each array of a group of zarr-python's, as texts."""
    told = []
    for name in sorted({*group.group_keys(), *group.array_keys()}):
        node = group[name]
        if hasattr(node, "array_keys"):
            told += tell_arrays(node, f"{at}{name}/")
        else:
            told.append(f"{at}{name} {node.shape} {np.asarray(node[...]).tolist()}")
    return told


def tell_place(crs, affine, levels):
    """The code of the CRS, the affine of the finest level, and the path and shape of each level, as texts."""
    said = None if affine is None else [round(float(number), 6) for number in affine]
    return [f"CRS {crs}", f"affine {said}", *(f"level {path} {tuple(shape)}" for path, shape in levels)]


SHAPE = (32, 24)
UTM = (10.0, 0.0, 300000.0, 0.0, -10.0, 5000040.0)


def raster(affine=UTM, shape=SHAPE, names=("y", "x")):
    """A dataset of xarray's with the array `dn` on the centres of cells."""
    import xarray

    (rows, columns), (a, _, c, _, e, f) = (np.arange(length) + 0.5 for length in shape), affine
    items = (np.arange(shape[0] * shape[1]) % 251).reshape(shape).astype("f4")
    return xarray.Dataset({"dn": (names, items)}, {names[0]: f + e * rows, names[1]: c + a * columns})


def options_of(function, **options):
    """Those of the options that a function of this release has."""
    import inspect

    known = inspect.signature(function).parameters
    is_any = any(one.kind == one.VAR_KEYWORD for one in known.values())
    return {name: value for name, value in options.items() if is_any or name in known}


def write_ome(target):
    """The images of ome-zarr-py, in each version of OME-Zarr that the release writes."""
    import zarr
    from ome_zarr import format, io, writer

    def image(path, fmt, axes):
        sides = [(8, 12), (4, 6)]
        shapes = [(2,) * (len(axes) - 2) + side for side in sides]
        if fmt.version in ("0.1", "0.2"):
            shapes = [(1, 2, 1, *side) for side in sides]
        levels = [np.arange(np.prod(shape), dtype="u2").reshape(shape) for shape in shapes]
        is_placed = fmt.version not in ("0.1", "0.2", "0.3")
        others = len(axes) - 2
        steps = [
            [
                {"type": "scale", "scale": [1.0] * others + [0.5 * 2**k, 0.25 * 2**k]},
                {
                    "type": "translation",
                    "translation": [0.0] * others + [10 + 0.25 * 2**k, 20 + 0.125 * 2**k],
                },
            ]
            for k in range(2)
        ]  # fmt: skip
        more = {"coordinate_transformations": steps} if is_placed else {}
        if fmt.version not in ("0.1", "0.2"):
            more["axes"] = list(axes)
        store = io.parse_url(str(path), mode="w", fmt=fmt).store
        group = zarr.group(store=store, **options_of(zarr.group, **getattr_format(fmt)))
        writer.write_multiscale(levels, group, fmt=fmt, **more)
        affine = (0.25, 0, 20, 0, 0.5, 10) if is_placed else None
        names = ("0", "1") if "0" in group else ("s0", "s1")
        return tell_store(path, None, affine, [(names[k], sides[k]) for k in range(2)])

    for name in sorted(name for name in dir(format) if name.startswith("FormatV")):
        fmt = getattr(format, name)()
        for axes in ("yx", "zyx", "tcyx") if fmt.version not in ("0.1", "0.2") else ("tczyx",):
            path = f"levels/ome-{fmt.version}-{axes}"
            yield path, lambda p=path, f=fmt, a=axes: image(Path(target) / p, f, a)


def getattr_format(fmt):
    """The format of Zarr that a version of OME-Zarr is written in, as an option of zarr-python 3."""
    import zarr

    return {} if zarr.__version__[0] == "2" else {"zarr_format": 3 if fmt.version >= "0.5" else 2}


def write_ndpyramid(target):
    """The pyramids of ndpyramid."""
    import ndpyramid
    import rioxarray  # noqa: F401 - for its accessor
    import zarr

    def save(tree, path, zarr_format):
        is_2 = zarr.__version__[0] == "2"
        tree.to_zarr(
            str(path), consolidated=zarr_format == 2, **({} if is_2 else {"zarr_format": zarr_format})
        )

    def coarsened(path, zarr_format):
        opened = raster().rio.write_crs(32632).rio.write_transform()
        tree = ndpyramid.pyramid_coarsen(opened, factors=[4, 2, 1], dims=["y", "x"], boundary="trim")
        save(tree, path, zarr_format)
        levels = [(str(2 - k), (SHAPE[0] >> k, SHAPE[1] >> k)) for k in range(3)]
        return tell_store(path, "EPSG:32632", UTM, levels)

    def reprojected(path, zarr_format):
        globe = raster((20.0, 0.0, -180.0, 0.0, -20.0, 90.0), (9, 18)).rio.write_crs(4326)
        save(ndpyramid.pyramid_reproject(globe, levels=2, pixels_per_tile=8), path, zarr_format)
        cell = 20037508.342789244 / 8
        affine = (cell, 0, -8 * cell, 0, -cell, 8 * cell)
        return tell_store(path, "EPSG:3857", affine, [("1", (16, 16)), ("0", (8, 8))])

    for zarr_format in (2,) if zarr.__version__[0] == "2" else (2, 3):
        for make in (coarsened, reprojected):
            path = f"levels/ndpyramid-{make.__name__}-v{zarr_format}"
            yield path, lambda m=make, p=path, f=zarr_format: m(Path(target) / p, f)


def write_topozarr(target):
    """The pyramids of topozarr."""
    import topozarr
    import xproj  # noqa: F401 - for its accessor

    def pyramid(path, crs, affine, names):
        opened = raster(affine, SHAPE, names).proj.assign_crs(spatial_ref=crs)
        make = topozarr.create_pyramid
        chosen = options_of(make, chunks_per_shard=None)
        made = make(opened, levels=3, x_dim=names[1], y_dim=names[0], **chosen)
        if hasattr(made, "write"):
            made.write(str(path))
        else:
            made.datatree.to_zarr(str(path), mode="w", encoding=made.encoding, zarr_format=3)
        levels = [(str(k), (SHAPE[0] >> k, SHAPE[1] >> k)) for k in range(3)]
        return tell_store(path, crs, affine, levels)

    for name, crs, affine, names in [
        ("projected", "EPSG:32632", UTM, ("y", "x")),
        ("geographic", "EPSG:4326", (0.1, 0.0, 10.0, 0.0, -0.1, 50.0), ("lat", "lon")),
    ]:
        path = f"levels/topozarr-{name}"
        yield path, lambda p=path, c=crs, a=affine, n=names: pyramid(Path(target) / p, c, a, n)


def write_eopf(target):
    """The pyramid of eopf-geozarr."""
    import xarray
    from eopf_geozarr.conversion import geozarr

    def pyramid(path):
        bands, group = raster().rename({"dn": "b02"}), "measurements/r10m"
        bands["b02"].attrs |= {"proj:epsg": 32632}
        tree = xarray.DataTree.from_dict({f"/{group}": bands})
        tree.attrs = {"other_metadata": {"horizontal_CRS_code": "EPSG:32632"}}
        whole = path.with_name("whole")
        geozarr.create_geozarr_dataset(tree, [f"/{group}"], str(whole), spatial_chunk=16, min_dimension=8)
        (whole / group).rename(path)
        shutil.rmtree(whole)
        names = ("0", "1", "2") if (path / "0").is_dir() else ("", "r2", "r4")
        sides = [(name, (SHAPE[0] >> k, SHAPE[1] >> k)) for k, name in enumerate(names)]
        return tell_store(path, "EPSG:32632", UTM, [one for one in sides if (path / one[0]).is_dir()])

    yield "levels/eopf-geozarr", lambda: pyramid(Path(target) / "levels/eopf-geozarr")


def write_icechunk(target):
    """Repositories of icechunk: what a tag, a branch and the main branch hold of one with four commits."""
    import icechunk
    import zarr

    def repository(path):
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
        session = repo.writable_session("main")
        group = zarr.create_group(session.store, attributes={"title": "trial"})
        group.create_array("deep/small", data=np.arange(6, dtype="i2"), chunks=(4,))
        group.create_array("large", data=NUMBERS.repeat(40, 0), chunks=(100, 6), dimension_names="yx")
        group.create_array("empty", shape=(3,), chunks=(2,), dtype="f4", fill_value=np.nan)
        group.create_array("words", shape=(2,), dtype=str, chunks=(1,))[...] = np.array(["a", "ß"], object)
        first = session.commit("first")
        repo.create_tag("v1", snapshot_id=first)
        repo.create_branch("trial", first)
        told = {}
        for name in ("main", "trial"):
            session = repo.writable_session(name)
            group = zarr.open_group(session.store)
            group["large"][:100] = len(name)
            session.commit(f"one of {name}")
            session = repo.writable_session(name)
            del zarr.open_group(session.store)["deep/small"]
            session.commit(f"two of {name}")
        for name, where in (
            ("v1", {"tag": "v1"}),
            ("trial", {"branch": "trial"}),
            ("main", {"branch": "main"}),
        ):
            told[name] = tell_arrays(zarr.open_group(repo.readonly_session(**where).store, mode="r"))
        return np.array([f"{name}: {line}" for name in told for line in told[name]], object)

    yield "icechunk/repository", lambda: repository(Path(target) / "icechunk/repository")


def write_kerchunk(target):
    """References of kerchunk's to HDF5 files: of one, of two that are joined, and these in Parquet."""
    import os

    import h5py
    from kerchunk import combine, hdf

    def files(path):
        path.mkdir(parents=True)
        os.chdir(path)
        whole = np.arange(4 * 6 * 5, dtype="f4").reshape(4, 6, 5)
        for number in range(2):
            with h5py.File(f"{number}.h5", "w") as file:
                part = whole[2 * number : 2 * number + 2]
                file["time"], file["x"] = np.arange(2 * number, 2 * number + 2), np.arange(5.0)
                file["time"].attrs["units"] = "days since 2000-01-01"
                options = {"chunks": (1, 4, 5), "compression": "gzip", "shuffle": True}
                for name, items in (("a", part), ("b", (part * 10).astype(">i2"))):
                    file.create_dataset(name, data=items, fillvalue=-1, **options)
                file["y"] = np.arange(6)
                for name, axis in (("time", 0), ("y", 1), ("x", 2)):
                    file[name].make_scale(name)
                    for one in "ab":
                        file[one].dims[axis].attach_scale(file[name])
        return whole

    def single(path):
        whole = files(path)[:2]
        refs = hdf.SingleHdf5ToZarr("0.h5", inline_threshold=20).translate()
        Path("refs.json").write_text(json.dumps(refs))
        return told(whole)

    def joined(path, is_parquet):
        whole = files(path)
        every = [hdf.SingleHdf5ToZarr(f"{n}.h5", inline_threshold=20).translate() for n in range(2)]
        made = combine.MultiZarrToZarr(every, concat_dims=["time"], identical_dims=["x", "y"]).translate()
        if is_parquet:
            from kerchunk import df

            # A whole number of records, 0.1.2 does not write.
            df.refs_to_dataframe(made, "refs.parq", record_size=10)
        else:
            Path("refs.json").write_text(json.dumps(made))
        return told(whole)

    def told(whole):
        every = {"a": whole, "b": (whole * 10).astype("i2"), "time": np.arange(len(whole))}
        every |= {"x": np.arange(5.0), "y": np.arange(6)}
        return np.array([f"{n} {i.shape} {i.tolist()}" for n, i in sorted(every.items())], object)

    target = Path(target)
    yield "kerchunk/single", lambda: single(target / "kerchunk/single")
    yield "kerchunk/joined", lambda: joined(target / "kerchunk/joined", False)
    yield "kerchunk/parquet", lambda: joined(target / "kerchunk/parquet", True)


def describe(values):
    """The kind of the dtype, the shape, and the text of the items as Python's own; "O" for all strings."""
    if values.dtype.kind in "OT":
        items = [item.item() if isinstance(item, np.generic) else item for item in values.ravel().tolist()]
        return ["O", list(values.shape), repr(items)]
    if values.dtype.name in ("bfloat16", "int4"):
        values = values.astype("f4")
    return [values.dtype.kind, list(values.shape), repr(values.tolist())]


def version_of(writer):
    """The name and version of the writer."""
    from importlib.metadata import version

    if writer == "gdal":
        try:
            from rasterio import __gdal_version__ as number
        except ImportError:
            from pyogrio import __gdal_version_string__ as number

        return f"GDAL {number}"
    if writer == "zarrs":
        return f"zarrs {version('zarrs')} by zarr-python {version('zarr')}"
    if writer == "xarray":
        return f"xarray {version('xarray')}, zarr-python {version('zarr')}"
    if writer == "n5":
        return f"N5 by zarr-python {version('zarr')}"
    names = {
        "zarr": ("zarr-python", "zarr"),
        "ome": ("ome-zarr-py", "ome-zarr"),
        "eopf": ("eopf-geozarr",) * 2,
    }
    name, package = names.get(writer, (writer, writer))
    return f"{name} {version(package)}"


def pack(archive, *targets):
    """Every different node of all targets, with the releases that wrote it, as one compressed file."""
    nodes = {}
    for target in sorted(targets):
        document = json.loads(Path(target, "expected.json").read_text())
        for name, expected in document["expected"].items():
            top = Path(target, name)
            files = sorted((str(path.relative_to(top)), path) for path in top.rglob("*") if path.is_file())
            stored = {key: path.read_bytes().hex() for key, path in files}
            node = {"name": name, "expected": expected, "files": stored}
            nodes.setdefault(json.dumps(node), []).append(document["writer"])
    everything = [{**json.loads(node), "writers": writers} for node, writers in nodes.items()]
    Path(archive).write_bytes(lzma.compress(json.dumps(everything).encode(), preset=9))
    print(len(everything), "nodes,", Path(archive).stat().st_size, "bytes")


def main(writer, target):
    """Write all, and `expected.json`."""
    warnings.simplefilter("ignore")
    expected, refused, target = {}, {}, str(Path(target).absolute())
    cases = {
        "zarr": write_zarr,
        "zarrs": write_zarrs,
        "n5": write_n5,
        "xarray": write_xarray,
        "tensorstore": write_tensorstore,
        "gdal": write_gdal,
        "ome": write_ome,
        "ndpyramid": write_ndpyramid,
        "topozarr": write_topozarr,
        "eopf": write_eopf,
        "icechunk": write_icechunk,
        "kerchunk": write_kerchunk,
    }[writer](target)
    for name, write in cases:
        try:
            values = np.asarray(write())
            expected[name] = describe(values)
        except BaseException as error:
            refused[name] = repr(error)[:100]
            shutil.rmtree(f"{target}/{name}", ignore_errors=True)
    Path(target).mkdir(parents=True, exist_ok=True)
    document = {"writer": version_of(writer), "expected": expected, "refused": refused}
    Path(target, "expected.json").write_text(json.dumps(document, indent=1))
    print(document["writer"], len(expected), "written,", len(refused), "refused")


if __name__ == "__main__":
    pack(*sys.argv[2:]) if sys.argv[1] == "pack" else main(*sys.argv[1:])
