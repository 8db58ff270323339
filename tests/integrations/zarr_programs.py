"""Programs as users of zarr-python write them; what is in a name without an underscore is compared."""

from __future__ import annotations

import asyncio
import json
import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PROGRAMS"]


def of(zarr: Any, name: str) -> Any:
    """A module of the library."""
    return import_module(f"{zarr.__name__}.{name}")


def write_read(zarr: Any) -> dict[str, Any]:
    z = zarr.open("a.zarr", mode="w", shape=(7, 9), chunks=(3, 4), dtype="i4")
    z[...] = np.arange(63).reshape(7, 9)
    r = zarr.open("a.zarr", mode="r")
    a = r[1:5, ::2]
    b = r[-1]
    c = r[2, 3]
    d = (r.shape, r.chunks, r.nchunks, r.nbytes)
    return locals()


def append_resize(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array({}, shape=(0, 3), chunks=(4, 3), dtype="f4")
    n = [z.append(np.full((k, 3), k)) for k in (1, 5, 2)]
    z.resize((4, 3))
    z.resize((9, 3))
    a = z[:]
    return locals()


def fill_values(zarr: Any) -> dict[str, Any]:
    z = zarr.full((5,), 7, dtype="i2")
    z[1:3] = 1
    a = z[:]
    b = zarr.ones((2, 2))[:]
    c = zarr.zeros(3, dtype="i1")[:]
    d = zarr.empty((2,), fill_value=4.5)[:]
    return locals()


def attributes(zarr: Any) -> dict[str, Any]:
    g = zarr.group("a.zarr")
    g.attrs["x"] = [1, {"y": None}]
    g.attrs.update(a=1)
    del g.attrs["a"]
    a = dict(zarr.open_group("a.zarr").attrs)
    b = ("x" in g.attrs, len(g.attrs), sorted(g.attrs))
    g.attrs.put({"z": 2})
    c = g.attrs.asdict()
    d = g.update_attributes({"w": 3}).attrs.asdict()
    return locals()


def dimensions_of_format_2(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array("a.zarr", shape=(2, 3), dtype="i4", zarr_format=2)
    z.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    z.attrs["units"] = "K"
    a = dict(zarr.open_array("a.zarr").attrs)
    b = (z.attrs["_ARRAY_DIMENSIONS"], sorted(z.attrs), len(z.attrs), "_ARRAY_DIMENSIONS" in z.attrs)
    z.attrs["_ARRAY_DIMENSIONS"] = ["lat", "lon"]
    c = zarr.open_array("a.zarr").attrs.asdict()
    return locals()


def orders(zarr: Any) -> dict[str, Any]:
    a = []
    for zarr_format in (2, 3):
        for order in ("C", "F", None):
            for config in ({"order": "C"}, {"order": "F"}, {}):
                z = zarr.create_array(
                    {}, shape=(2, 3), dtype="i4", order=order, config=config, zarr_format=zarr_format
                )
                a.append((z.order, z[:].flags.f_contiguous, np.asarray(z).flags.f_contiguous))
    b = [zarr.ones((2, 2), config={"order": "F"}, zarr_format=n)[:].flags.f_contiguous for n in (2, 3)]
    return locals()


def groups(zarr: Any) -> dict[str, Any]:
    g = zarr.create_group("a.zarr")
    h = g.create_group("b/c")
    h.create_array("x", shape=(3,), dtype="u1")
    a = (
        sorted(g.keys()),
        sorted((n for n, _ in g.members(max_depth=None))),
        "b/c/x" in g,
        g["b"]["c/x"].name,
    )
    b = (
        sorted(g["b/c"].array_keys()),
        sorted(g["b"].group_keys()),
        g.nmembers(None),
        g["b/c/x"].basename,
        g["b"].path,
    )
    del g["b/c/x"]
    c = list(h.arrays())
    return locals()


def require(zarr: Any) -> dict[str, Any]:
    g = zarr.group()
    x = g.require_array("x", shape=(3,), dtype="f4")
    x[:] = 2
    a = g.require_array("x", shape=(3,), dtype="f4")[:]
    g.require_group("h")
    b = sorted(g)
    e = g.require_array("x", shape=(3,), dtype="f8").dtype
    for _shape, _dtype in (((4,), "f4"), ((3,), "i2")):
        try:
            g.require_array("x", shape=_shape, dtype=_dtype)
        except TypeError as _e:
            c = f"TypeError of {_dtype}"
    try:
        g.require_group("x")
    except TypeError as _e:
        d = "TypeError"
    return locals()


def no_node(zarr: Any) -> dict[str, Any]:
    a = []
    for _f in (zarr.open_array, zarr.open_group, zarr.open):
        try:
            _f("nothing.zarr", mode="r")
        except FileNotFoundError:
            a.append(1)
    try:
        zarr.group()["x"]
    except KeyError:
        b = 2
    c = zarr.group().get("x", 5)
    return locals()


def twice(zarr: Any) -> dict[str, Any]:
    zarr.create_array("a.zarr", name="x", shape=(2,), dtype="i4")
    a = []
    for _f in (
        lambda: zarr.create_array("a.zarr", name="x", shape=(2,), dtype="i4"),
        lambda: zarr.open_array("a.zarr/x", mode="w-", shape=(2,), dtype="i4"),
    ):
        try:
            _f()
        except (ValueError, FileExistsError):
            a.append(1)
    zarr.create_array("a.zarr", name="x", shape=(3,), dtype="i4", overwrite=True)
    b = zarr.open("a.zarr/x").shape
    return locals()


def read_only(zarr: Any) -> dict[str, Any]:
    zarr.create_array("a.zarr", shape=(2,), dtype="i4")
    z = zarr.open_array("a.zarr", mode="r")
    a = z.read_only
    try:
        z[0] = 1
    except ValueError:
        b = 1
    try:
        z.attrs["a"] = 1
    except ValueError:
        c = 1
    d = zarr.open_array(zarr.storage.LocalStore("a.zarr", read_only=True)).read_only
    return locals()


def orthogonal(zarr: Any) -> dict[str, Any]:
    z = zarr.array(np.arange(60).reshape(3, 4, 5), chunks=(2, 2, 2))
    a = z.oindex[[0, 2], :, [1, 3]]
    b = z.get_orthogonal_selection(([2, 0], slice(1, 3), 4))
    z.oindex[[1], [0, 3]] = 9
    c = z[:]
    d = z[0, :, [1, 2]]
    e = z[[True, False, True], 1]
    return locals()


def points(zarr: Any) -> dict[str, Any]:
    z = zarr.array(np.arange(20).reshape(4, 5), chunks=(3, 3))
    a = z.vindex[[0, 3], [4, 1]]
    b = z.get_coordinate_selection(([1, 2], [0, 0]))
    z.vindex[[0, 1], [1, 2]] = [-1, -2]
    m = z[:] < 0
    c = z.vindex[m]
    d = z.get_mask_selection(m)
    z.set_mask_selection(m, 5)
    e = z[[0, 1], [1, 2]]
    return locals()


def blocks(zarr: Any) -> dict[str, Any]:
    z = zarr.array(np.arange(30).reshape(6, 5), chunks=(2, 3))
    a = z.blocks[1, 0]
    z.blocks[2] = 0
    b = z.get_block_selection((slice(0, 2), 1))
    c = z[:]
    d = z.cdata_shape
    return locals()


def scalars(zarr: Any) -> dict[str, Any]:
    z = zarr.array([1.5, 2.5])
    a = (float(z[0]), z[0].shape, type(z[0]).__name__)
    y = zarr.create_array({}, shape=(), dtype="i4")
    y[()] = 3
    b = (int(y[()]), int(y[...]), y.shape)
    c = [float(v) for v in z]
    d = np.asarray(z).sum()
    e = [type(z[n]).__name__ for n in (1, np.int64(1), (np.uint8(1),), slice(1))]
    return locals()


def structured(zarr: Any) -> dict[str, Any]:
    t = np.dtype([("a", "i4"), ("b", "f8")])
    z = zarr.create_array({}, shape=(4,), dtype=t, chunks=(2,), zarr_format=2, fill_value=None)
    z[:] = np.array([(k, k / 2) for k in range(4)], t)
    a = z[1:3].tolist()
    c = z.dtype.names
    return locals()


def times(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array({}, shape=(3,), dtype="M8[s]")
    z[:2] = np.array(["2020-01-01", "2021-06-05"], "M8[s]")
    a = z[:].astype("i8")
    b = str(z.fill_value)
    return locals()


def strings(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array({}, shape=(3,), dtype=str)
    z[:2] = np.array(["a", "long text é"])
    a = list(z[:])
    b = z.dtype.kind
    y = zarr.array(np.array(["ab", "c"], "U3"))
    c = (y[:], y.dtype)
    return locals()


def bytes(zarr: Any) -> dict[str, Any]:
    z = zarr.array(np.array([b"ab", b"c"], "S3"), chunks=1)
    a = z[:]
    b = z.dtype
    y = zarr.array(np.array([b"12", b"34"], "V2"))
    c = y[:].tolist()
    zarr.create_array("v.zarr", shape=(2,), dtype="V3", fill_value=b"abc")
    d = json.loads(Path("v.zarr/zarr.json").read_text())["data_type"]
    e = zarr.open_array("v.zarr")[:].tolist()
    return locals()


def big_endian(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array("a.zarr", shape=(4,), dtype=">f4", zarr_format=2)
    z[:] = [1, 2, 3, 4]
    a = z[:]
    b = zarr.open("a.zarr").dtype.str
    c = z.metadata.dtype.to_native_dtype().str
    return locals()


def compressors(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array(
        "a.zarr",
        data=np.arange(1000),
        chunks=(100,),
        compressors=zarr.codecs.BloscCodec(cname="lz4", clevel=3, shuffle="shuffle"),
    )
    a = z[::97]
    b = (
        [type(c).__name__ for c in z.compressors],
        z.compressors[0].clevel,
        z.filters,
        type(z.serializer).__name__,
    )
    y = zarr.create_array({}, data=np.arange(9.0), compressors=None)
    c = (y.compressors, y[:])
    return locals()


def shards(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array("a.zarr", shape=(16, 16), chunks=(4, 4), shards=(8, 8), dtype="u2")
    z[3:11, 2:] = 7
    a = (z[:], z.shards, z.chunks, z.nchunks)
    b = zarr.open_array("a.zarr")[5]
    c = z.compressors[0].to_dict()
    return locals()


def format_2(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array(
        "a.zarr",
        shape=(5, 5),
        chunks=(2, 2),
        dtype="f8",
        zarr_format=2,
        order="F",
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    z[:] = np.arange(25).reshape(5, 5)
    a = json.loads(Path("a.zarr/.zarray").read_text())
    b = (z[:], z.order)
    c = (z.metadata.dimension_separator, z.metadata.chunks, str(z.compressor))
    return locals()


def documents(zarr: Any) -> dict[str, Any]:
    zarr.create_array(
        "a.zarr",
        shape=(5,),
        chunks=(2,),
        dtype="i8",
        attributes={"u": "K"},
        dimension_names=["x"],
        fill_value=-1,
    )
    a = json.loads(Path("a.zarr/zarr.json").read_text())
    a.pop("storage_transformers", None)
    b = zarr.open("a.zarr").metadata.dimension_names
    return locals()


def metadata(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array(
        {}, shape=(5, 6), chunks=(2, 3), dtype="f4", filters=[zarr.codecs.TransposeCodec(order=(1, 0))]
    )
    m = z.metadata
    a = (
        m.shape,
        m.chunk_grid.chunk_shape,
        m.zarr_format,
        m.node_type,
        str(m.fill_value),
        len(m.codecs),
        m.codecs[0].order,
    )
    b = (m.to_dict()["chunk_grid"], m.to_dict()["data_type"])
    return locals()


def save_load(zarr: Any) -> dict[str, Any]:
    zarr.save("a.zarr", np.arange(5))
    a = zarr.load("a.zarr")
    zarr.save("b.zarr", np.arange(2), x=np.ones(3))
    b = (sorted(zarr.open_group("b.zarr")), zarr.open_group("b.zarr")["x"][:])
    zarr.save_array("c.zarr", np.arange(3))
    c = zarr.open("c.zarr").chunks
    zarr.save_group("d.zarr", y=np.zeros(1))
    d = list(zarr.open("d.zarr"))
    return locals()


def likeness(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array(
        {}, shape=(4, 4), chunks=(2, 2), dtype="i2", fill_value=3, compressors=zarr.codecs.GzipCodec(level=2)
    )
    a = [
        (y.shape, y.chunks, str(y.dtype), y.compressors[0].level)
        for y in (zarr.zeros_like(z), zarr.full_like(z, fill_value=9), zarr.empty_like(z))
    ]
    b = (zarr.ones_like(z)[:], zarr.full_like(z, fill_value=9)[0])
    c = zarr.zeros_like(np.ones((2, 3), "f4")).dtype
    d = []
    for _zarr_format in (2, 3):
        g = zarr.group({}, zarr_format=_zarr_format)
        d += [getattr(g, f"{_name}_like")(name=_name, data=z)[:] for _name in ("zeros", "ones", "empty")][:2]
    return locals()


def from_array(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(2, 2))
    y = zarr.from_array("a.zarr", data=z, chunks=(3, 2))
    a = (y[:], y.chunks)
    b = zarr.from_array({}, data=z, write_data=False)[:]
    c = zarr.from_array({}, data=np.arange(3))[:]
    return locals()


def consolidated(zarr: Any) -> dict[str, Any]:
    g = zarr.group("a.zarr")
    g.create_group("b").create_array("x", shape=(2,), dtype="i1")
    zarr.consolidate_metadata("a.zarr")
    c = zarr.open_consolidated("a.zarr")
    a = sorted(c.metadata.consolidated_metadata.flattened_metadata)
    b = c["b/x"].shape
    d = zarr.open_group("a.zarr", use_consolidated=False).metadata.consolidated_metadata
    try:
        zarr.open_consolidated(zarr.group().store)
    except ValueError:
        e = 1
    return locals()


def memory(zarr: Any) -> dict[str, Any]:
    _values = {}
    z = zarr.create_array(store=_values, name="x", shape=(4,), chunks=(2,), dtype="i4")
    z[0] = 1
    a = sorted(_values)
    s = zarr.storage.MemoryStore(_values)
    b = zarr.open_array(s, path="x")[:]
    c = (s == zarr.storage.MemoryStore(_values), z.store.read_only)
    return locals()


def store_methods(zarr: Any) -> dict[str, Any]:
    _p = of(zarr, "core.buffer").default_buffer_prototype
    z = zarr.create_array("a.zarr", shape=(4,), chunks=(2,), dtype="i4", compressors=None)
    z[:] = 1

    async def _m(s):
        return (
            sorted([k async for k in s.list()]),
            await s.exists("zarr.json"),
            await s.get("nothing", _p()),
            (await s.get("c/0", _p())).to_bytes(),
            sorted([k async for k in s.list_dir("")]),
            await s.getsize("c/1"),
        )

    a = asyncio.run(_m(z.store))
    return locals()


def zip(zarr: Any) -> dict[str, Any]:
    with zarr.storage.ZipStore("a.zip", mode="w") as _s:
        zarr.create_array(_s, shape=(4,), chunks=(2,), dtype="i4")[:] = [1, 2, 3, 4]
    _r = zarr.storage.ZipStore("a.zip", mode="r")
    a = zarr.open_array(_r, mode="r")[:]
    b = _r.read_only
    _r.close()
    return locals()


def store_path(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array("a.zarr", name="g/x", shape=(2,), dtype="i4")
    a = (z.path, z.name, str(z.store_path), repr(z), str(z.store))
    p = zarr.storage.StorePath(z.store, "g")
    b = (zarr.open_group(p)["x"].shape, str(p / "x"))
    c = repr(zarr.open("a.zarr"))
    return locals()


def config(zarr: Any) -> dict[str, Any]:
    with zarr.config.set({"array.order": "F", "default_zarr_format": 2}):
        z = zarr.zeros((3, 4))
        a = (zarr.config.get("array.order"), z.metadata.zarr_format)
    b = (zarr.config.get("default_zarr_format"), zarr.config.get("no.such", 5))
    y = zarr.create_array({}, shape=(3, 4), dtype="i4", config={"order": "F"})
    c = (y[:].flags.f_contiguous, y.order, y.config.write_empty_chunks)
    return locals()


def empty_chunks(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array("a.zarr", shape=(4,), chunks=(2,), dtype="i4", config={"write_empty_chunks": True})
    z[:] = 0
    a = z.nchunks_initialized
    y = zarr.create_array("b.zarr", shape=(4,), chunks=(2,), dtype="i4")
    y[:] = 0
    b = y.nchunks_initialized
    y[0] = 1
    c = y.nchunks_initialized
    return locals()


def asynchronous(zarr: Any) -> dict[str, Any]:
    _z = of(zarr, "api.asynchronous")

    async def _m():
        g = await _z.create_group(store={})
        x = await g.create_array("x", shape=(4,), dtype="i4")
        await x.setitem(slice(2), 5)
        y = await g.getitem("x")
        return (
            (await y.getitem(slice(None))).tolist(),
            y.shape,
            [n async for n, _ in g.members()],
            await g.contains("x"),
            type(y).__name__,
            y.with_config({"order": "F"}).config.order,
        )

    a = asyncio.run(_m())
    return locals()


def hierarchy(zarr: Any) -> dict[str, Any]:
    _G = of(zarr, "core.group").GroupMetadata
    z = zarr.create_array({}, shape=(3,), dtype="i4")
    _made = dict(
        zarr.create_hierarchy(
            store=zarr.storage.MemoryStore(), nodes={"a/b": _G(attributes={"k": 1}), "a/x": z.metadata}
        )
    )
    a = (sorted(_made), _made["a/x"].shape, dict(_made["a/b"].attrs))
    return locals()


def pickled(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array("a.zarr", data=np.arange(4))
    y = pickle.loads(pickle.dumps(z))
    a = (y[:], y == z)
    g = pickle.loads(pickle.dumps(zarr.group("b.zarr")))
    b = g.create_array("x", shape=(1,), dtype="i1").shape
    return locals()


def legacy(zarr: Any) -> dict[str, Any]:
    z = zarr.create(
        (4, 4),
        chunks=(2, 2),
        dtype="i4",
        zarr_format=2,
        compressor=None,
        dimension_separator="/",
        fill_value=1,
    )
    a = (z[:], z.chunks, z.metadata.dimension_separator, z.compressors)
    y = zarr.zeros((4,), chunks=False)
    b = (y.chunks, str(y.dtype))
    x = zarr.open_array("a.zarr", mode="a", shape=(2,), dtype="u1")
    c = x.shape
    return locals()


def dtypes(zarr: Any) -> dict[str, Any]:
    _p = of(zarr, "dtype").parse_dtype
    a = [repr(_p(np.dtype(t), zarr_format=3)) for t in ("i1", "<i4", ">f8", "U5", "S3", "M8[10s]", "?", "c8")]
    b = (
        _p(np.dtype("i4"), zarr_format=3).to_json(zarr_format=3),
        _p(">i2", zarr_format=2).to_json(zarr_format=2),
    )
    c = str(_p(np.dtype("f4"), zarr_format=3).default_scalar())
    return locals()


def codec_objects(zarr: Any) -> dict[str, Any]:
    c = zarr.codecs
    a = [
        repr(v)
        for v in (
            c.ZstdCodec(),
            c.GzipCodec(level=3),
            c.Crc32cCodec(),
            c.TransposeCodec(order=(1, 0)),
            c.VLenUTF8Codec(),
        )
    ]
    b = (
        c.ZstdCodec(level=2) == c.ZstdCodec(level=2),
        c.ZstdCodec.from_dict({"name": "zstd", "configuration": {"level": 1, "checksum": False}}).level,
    )
    d = c.BloscCodec(clevel=1).to_dict()["configuration"]["clevel"]
    return locals()


def info(zarr: Any) -> dict[str, Any]:
    z = zarr.create_array("a.zarr", shape=(40, 60), chunks=(20, 30), dtype="f4")
    a = [_l for _l in str(z.info).splitlines() if "Serializer" not in _l]
    g = zarr.group("b.zarr")
    g.create_array("x", shape=(2,), dtype="i1")
    b = (str(g.info), str(g.info_complete()), str(g.tree()))
    g.create_array("y/z/t", shape=(2, 3), dtype="i1")
    c = [repr(g.tree(level=level, plain=True)) for level in (0, 1, 2, None)]
    d = [repr(g.tree(max_nodes=count)).count("──") for count in (1, 3, 9)], repr(g.tree(max_nodes=4))
    return locals()


PROGRAMS = [
    write_read,
    append_resize,
    fill_values,
    attributes,
    dimensions_of_format_2,
    orders,
    groups,
    require,
    no_node,
    twice,
    read_only,
    orthogonal,
    points,
    blocks,
    scalars,
    structured,
    times,
    strings,
    bytes,
    big_endian,
    compressors,
    shards,
    format_2,
    documents,
    metadata,
    save_load,
    likeness,
    from_array,
    consolidated,
    memory,
    store_methods,
    zip,
    store_path,
    config,
    empty_chunks,
    asynchronous,
    hierarchy,
    pickled,
    legacy,
    dtypes,
    codec_objects,
    info,
]
