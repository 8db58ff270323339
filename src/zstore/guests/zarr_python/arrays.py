"""zarr-python's arrays for the engine: their models, and their chunks in a store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from zarr.abc import store as abc

from zstore.base.once import once
from zstore.codecs.base import make_codec
from zstore.engine.chunks import RegularChunks
from zstore.engine.layout import bind_layout
from zstore.errors import ExtensionError, MetadataError, UnsupportedError
from zstore.guests.zarr_python.selection import Batch, Recovered, recover
from zstore.guests.zarr_python.stores import ZarrStore, adopt
from zstore.model import v2, v3
from zstore.model.array import ArrayModel, CodecModel
from zstore.model.dtype import is_same_type
from zstore.storage.base import Store

PRESENT = {"status": "present"}
MISSING = {"status": "missing"}

# Modules of codecs whose format is known; others may have the same names and other formats.
KNOWN = ("zarr.codecs.", "numcodecs.")
# For how many shapes of an array `RegularChunks` are kept.
KEPT = 8
# How many models are cached; arrays that differ only in attributes share one.
KEPT_MODELS = 128
# Keys up to this count are parsed one by one, which is faster than all at once.
FEW = 16
# The most missing keys that are remembered.
NOTED = 100_000


class Fit(NamedTuple):
    """The model by which memory of a data type is read and written.

    is_swapped      memory is seen in this machine's byte order, and the model is changed accordingly
    is_converted    memory is converted from and to the model's data type
    """

    model: ArrayModel
    is_swapped: bool = False
    is_converted: bool = False

    def view(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The memory as an array of the model's data type."""
        # A view by another dtype, even an equal one, would lose strings of variable length.
        return memory.view(self.model.dtype) if self.is_swapped else memory


class ArrayPlace:
    """One array in a store: the store for the engine, and the array's chunks there."""

    def __init__(self, source: abc.Store, prefix: str, loop: asyncio.AbstractEventLoop) -> None:
        self.source = source
        self.prefix = prefix
        self.loop = loop
        self.store: Store = adopt(source, loop=loop)
        self._chunks: dict[tuple[Any, ...], RegularChunks] = {}

    def chunks(self, fit: Fit, shape: tuple[int, ...], *, skip_empty: bool = True) -> RegularChunks:
        """The chunks of the array with this shape; two threads may make them at once."""
        name = (shape, fit.is_swapped, skip_empty)
        found = self._chunks.get(name)
        if found is None:
            if len(self._chunks) >= KEPT:
                self._chunks = {}
            model = fit.model.with_shape(shape)
            found = RegularChunks(self.store, self.prefix.rstrip("/"), model, skip_empty=skip_empty)
            self._chunks[name] = found
        return found

    def statuses(self, batch: Batch) -> Sequence[dict[str, str]]:
        """The status of each chunk of the last batch that was read: whether it is stored."""
        if not isinstance(self.store, ZarrStore):
            return ChunkStatuses(self.store, batch)
        absent = self.store.absent
        if not absent:
            return (PRESENT,) * len(batch)
        found = tuple(MISSING if item[0].path in absent else PRESENT for item in batch)
        if len(absent) > NOTED:
            absent.clear()
        return found


class ChunkStatuses(Sequence[dict[str, str]]):
    """The status of each chunk of a batch: whether it is stored, which is looked up on access."""

    def __init__(self, store: Store, batch: Batch) -> None:
        self._store = store
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[k] for k in range(len(self))[index])
        return MISSING if self._store.size(self._batch[index][0].path) is None else PRESENT


class ArrayBinding:
    """An array by its metadata in zarr-python: its model, and the selections of its batches."""

    def __init__(self, metadata: Any) -> None:
        self._metadata = metadata

    @once
    def model(self) -> ArrayModel | None:
        """The array's model; None if zstore lacks a part of it, or a codec is a third party's."""
        metadata = self._metadata
        if metadata.zarr_format == 2:
            codecs = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else [])]
        else:
            codecs = [*metadata.codecs]
        # `to_dict` fails for other grids, unless they are enabled in zarr-python.
        is_regular = metadata.zarr_format == 2 or "Regular" in type(metadata.chunk_grid).__name__
        if not is_regular or not _are_known(codecs):
            return None
        document = metadata.to_dict()
        document.pop("attributes", None)
        return _parse(metadata.zarr_format, json.dumps(document))

    @once
    def has_own_order(self) -> bool:
        """Whether shards have an order of inner chunks that only zarr-python can write."""
        return any(map(_has_own_order, getattr(self._metadata, "codecs", ())))

    @once
    def swapped_model(self) -> ArrayModel | None:
        """The model for items in the other byte order; None if codecs depend on the values."""
        model = self.model
        if model is None or not all(map(_ignores_values, model.codecs)):
            return None
        fill = model.fill_value
        if fill is not None:
            fill = np.asarray(fill, model.dtype).byteswap()[()]
        return replace(model, codecs=tuple(map(_swapped, model.codecs)), fill_value=fill)

    def prefix(self, key: str) -> str:
        """The array's path, with the "/" at its end, from the key of one of its chunks."""
        assert self.model is not None
        keys = self.model.keys
        count = max(1, self.model.ndim + bool(keys.prefix)) if keys.separator == "/" else 1
        parts = key.rsplit("/", count)
        return "" if len(parts) == count else parts[0] + "/"

    def _cells(self, prefix: str, paths: Sequence[str]) -> list[tuple[int, ...]] | None:
        """The grid coordinates of each chunk; None if a key is not one below `prefix`."""
        assert self.model is not None
        keys, ndim = self.model.keys, self.model.ndim
        if len(paths) > FEW and (found := keys.cells(paths, ndim, prefix.rstrip("/"))) is not None:
            return [*map(tuple, found.tolist())]
        skip, cells = len(prefix), []
        for path in paths:
            cell = keys.cell(path[skip:], ndim) if path.startswith(prefix) else None
            if cell is None:
                return None
            cells.append(cell)
        return cells

    def recover(self, batch: Batch, prefix: str, drop_axes: tuple[int, ...]) -> Recovered | None:
        """The selection of a batch; None if it cannot be recovered."""
        assert self.model is not None
        chunk_shape = self.model.grid.chunk_shape
        source, spec = batch[0][0].store, batch[0][1]
        if spec.shape != chunk_shape:
            return None
        for getter, other, *_ in batch:
            if getter.store is not source or (other is not spec and other.shape != chunk_shape):
                return None
        cells = self._cells(prefix, [item[0].path for item in batch])
        return None if cells is None else recover(batch, cells, chunk_shape, drop_axes)

    def fit(self, dtype: np.dtype[Any]) -> Fit | None:
        """The fit for memory of a data type; None if only zarr-python can convert it."""
        model = self.model
        if model is None:
            return None
        if dtype == model.dtype:
            return Fit(model)
        if not is_same_type(dtype, model.dtype):
            return None
        if model.zarr_format == 3 and dtype.fields is None and self.swapped_model is not None:
            return Fit(self.swapped_model, is_swapped=True)
        return Fit(model, is_converted=True)


@lru_cache(KEPT_MODELS)
def _parse(zarr_format: int, text: str) -> ArrayModel | None:
    """The model of a document; None if zstore lacks a part of it."""
    document = json.loads(text)
    try:
        if zarr_format == 2:
            model = v2.parse_array({".zarray": document}, path="")
        else:
            model = v3.parse_array({"zarr.json": document}, path="")
        bind_layout(model)
    except (MetadataError, UnsupportedError, ExtensionError):
        return None
    return model


def _ignores_values(codec: CodecModel) -> bool:
    """Whether a codec moves or compresses bytes, whatever values they represent."""
    if codec.name == "sharding_indexed":
        shard: Any = make_codec(codec)
        return all(map(_ignores_values, shard.codecs))
    names = ("blosc", "crc32c", "gzip", "lz4", "zlib", "zstd")
    return codec.name in ("bytes", "transpose") or codec.name.removeprefix("numcodecs.") in names


def _swapped(codec: CodecModel) -> CodecModel:
    """The codec for items in the other byte order."""
    options = dict(codec.configuration)
    if codec.name == "bytes" and options.get("endian") is not None:
        options["endian"] = "little" if options["endian"] == "big" else "big"
    elif codec.name == "sharding_indexed":
        shard: Any = make_codec(codec)
        options = replace(shard, codecs=tuple(map(_swapped, shard.codecs))).to_configuration()
    return replace(codec, configuration=options)


def _has_own_order(codec: Any) -> bool:
    # "morton" is the default.
    order = getattr(codec, "subchunk_write_order", "morton")
    is_own = order not in ("morton", "lexicographic", "unordered")
    return is_own or any(map(_has_own_order, getattr(codec, "codecs", ())))


def _are_known(codecs: Sequence[Any]) -> bool:
    for codec in codecs:
        if not type(codec).__module__.startswith(KNOWN) or getattr(codec, "codec_id", None) == "pickle":
            return False
        inner = [*getattr(codec, "codecs", ()), *getattr(codec, "index_codecs", ())]
        if inner and not _are_known(inner):
            return False
    return True
