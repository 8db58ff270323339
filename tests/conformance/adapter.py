"""zstore as the implementation under test, for the fixtures' runner, whose docstring has the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

import zstore
from zstore.codecs.base import BytesCodec, ChunkSpec
from zstore.extensions.registry import codecs
from zstore.geo.conventions.read import read_geo
from zstore.geo.rasters import raster_to_zarr as to_zarr
from zstore.model import v2, v3

FORMATS = {1, 2, 3}


def _store(store: str) -> Any:
    return f"zip://::file://{Path(store).absolute()}" if Path(store).is_file() else store


def open_array(store: str, path: str = "") -> Any:
    """The array at `path`; where it ends in "*", all arrays there, one behind the other."""
    if not path.endswith("*"):
        return zstore.open_array(_store(store), path, "r")
    group = zstore.open_group(_store(store), path[:-2], "r")
    return np.stack([group[name][...] for name in read_geo(group)[0].variables])


class Group:
    """A group as the runner wants it."""

    def __init__(self, group: zstore.Group) -> None:
        self._group = group
        self.attrs = group.attrs.asdict()

    def members(self) -> dict[str, str]:
        """Name to kind."""
        return {
            name: "array" if isinstance(node, zstore.Array) else "group"
            for name, node in self._group.members()
        }


def open_group(store: str, path: str = "") -> Group:
    """The group at `path`."""
    return Group(zstore.open_group(_store(store), path, "r"))


def decode(config: dict[str, Any], data: bytes) -> Any:
    """Bytes or objects by the numcodecs codec that `config` describes."""
    configuration = {name: value for name, value in config.items() if name != "id"}
    codec = codecs.resolve(f"numcodecs.{config['id']}").from_configuration(configuration)
    if isinstance(codec, BytesCodec):
        return codec.decode(memoryview(data), 1 << 30)
    fill_value = {"vlen-utf8": "", "vlen-bytes": b""}.get(config["id"])
    dtype = np.dtypes.StringDType() if fill_value == "" else np.dtype(object)
    shape, written = _written(config, data)
    spec = ChunkSpec(shape, dtype, fill_value)
    return codec.bind(spec).decode(memoryview(data)).astype(written)


def _written(config: dict[str, Any], data: bytes) -> tuple[tuple[int, ...], str]:
    """The shape and dtype that the data says, which an array's metadata would say otherwise."""
    if config["id"] in ("json2", "msgpack2"):
        *_, dtype, shape = json.loads(data) if config["id"] == "json2" else msgpack.unpackb(data)
        return tuple(shape), dtype
    if config["id"] == "categorize":
        return (len(data) // np.dtype(config["astype"]).itemsize,), "O"
    return (int.from_bytes(data[:4], "little"),), "O"


def parse_metadata(document: dict[str, Any], zarr_format: int, node: str) -> None:
    """Raises where the document is not valid."""
    if node == "consolidated":
        v2.parse_group({v2.GROUP_KEY: {"zarr_format": 2}, v2.CONSOLIDATED_KEY: document}, path="fixture")
    elif zarr_format == 3:
        v3.parse_node({v3.KEY: document}, "fixture")
    elif node == "array":
        v2.parse_array({v2.ARRAY_KEY: document}, path="fixture")
    else:
        v2.parse_group({v2.GROUP_KEY: document}, path="fixture")


def _read_geo(store: str, path: str) -> Any:
    above, _, name = path.rpartition("/")
    parent = zstore.open_group(_store(store), above, "r")
    return read_geo(parent[name] if name else parent, parent)[0]


def geo(store: str, path: str) -> dict[str, Any]:
    """The EPSG code, and the affine's six numbers."""
    model = _read_geo(store, path.removesuffix("/*"))
    found: dict[str, Any] = {}
    if model.crs is not None and model.crs.code is not None:
        found["epsg"] = int(model.crs.code.rpartition(":")[2])
    if model.affine is not None:
        found["transform"] = list(model.affine)
    return found


def multiscale(store: str, path: str = "") -> list[str]:
    """The paths of the levels' arrays, finest first."""
    model = _read_geo(store, path)
    group = zstore.open_group(_store(store), path, "r")
    if all(isinstance(group[level.path], zstore.Array) for level in model.levels):
        return [level.path for level in model.levels]
    return [f"{level.path}/{next(iter(model.variables))}" for level in model.levels]


def raster_to_zarr(tif: str, store: str) -> list[str]:
    """A Zarr with its pyramid, and the paths of the levels of all bands."""
    return [f"{level.path}/*" for level in read_geo(to_zarr(tif, store, levels=None))[0].levels]
