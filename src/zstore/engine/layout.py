"""Binding an array's model and codecs to the layout by which the kernels read and write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zstore._ext.engine.select import Layout
from zstore.base.once import ByContent
from zstore.codecs.base import Chain, ChunkSpec, make_codec
from zstore.codecs.bytes import Bytes
from zstore.codecs.crc32c import Crc32c
from zstore.codecs.sharding import ShardingIndexed
from zstore.codecs.transpose import Transpose
from zstore.engine.objects import HANDLE
from zstore.errors import ZstoreError
from zstore.model.array import ArrayModel, CodecModel

# Codecs whose encoded bytes say how they are decoded, whatever they were encoded with.
TELLING = frozenset(("blosc", "bz2", "gzip", "lz4", "zlib", "zstd"))


@dataclass(frozen=True)
class BoundLayout:
    """The layout of one array for the kernels, and its bound codecs.

    layout        the layout that plans are made against: inner chunks, with the native codecs as its steps;
                  without steps if the chain is not native (the engine then decodes in Python and gives the
                  kernels plain items)
    chain         the codecs of an outer chunk
    shards        the sharding codecs that the kernels resolve by themselves, outermost first
    inner         the codecs of an inner chunk of the innermost of these shards
    step_names    the names of the native codecs that `layout` runs
    is_native     whether `layout` decodes and encodes by itself
    outer         the layout of outer chunks of plain items, for writing chains that are not native
    """

    layout: Layout
    chain: Chain
    shards: tuple[ShardingIndexed, ...]
    inner: Chain
    step_names: tuple[str, ...]
    is_native: bool
    outer: Layout


# Those of arrays whose items are stored as they are, by all that they depend on.
_plain: ByContent[BoundLayout] = ByContent()


def bind_layout(model: ArrayModel, *, allow_pickle: bool = False) -> BoundLayout:
    """Bind an array's codecs to its layout; for items that are Python objects, to a layout of handles.

    Arrays of one form whose items are stored as they are, such as those of a series of files, share theirs.

    Raises
        UnknownExtensionError: a codec that nobody offers.
        MetadataError: codecs that do not fit together or the chunks.
        UnsupportedError: chunks are pickled, and the caller does not allow that.
    """
    names = [codec.name for codec in model.codecs]
    if names != ["bytes"] or model.dtype.kind not in "biufc" or model.fill_value is None:
        return _bind_layout(model, allow_pickle=allow_pickle)
    fill = np.asarray(model.fill_value, model.dtype).tobytes()
    form = [model.shape, model.grid.chunk_shape, model.dtype.str, fill, model.codecs[0].configuration]
    return _plain.get([*form, model.keys.name, model.keys.separator], lambda _: _bind_layout(model))


def _bind_layout(model: ArrayModel, *, allow_pickle: bool = False) -> BoundLayout:
    spec = ChunkSpec(model.grid.chunk_shape, model.dtype, model.effective_fill_value, allow_pickle)
    chain = Chain.bind(model.codecs, spec)
    shards: list[ShardingIndexed] = []
    inner = chain
    while isinstance(inner.serializer, ShardingIndexed) and not inner.array_codecs and not inner.bytes_codecs:
        if len(shards) == 4 or _index_options(inner.serializer) is None:
            break
        shards.append(inner.serializer)
        inner = inner.serializer.inner
    native = _native_steps(inner)
    steps, names = native or ([], ())
    is_object = model.data_type.is_object
    layout = _make_layout(model, inner, shards, steps, is_plain=native is None, has_handles=is_object)
    outer = _make_layout(model, chain, [], [], is_plain=True, has_handles=is_object)
    return BoundLayout(layout, chain, tuple(shards), inner, names, native is not None, outer)


def bind_handles(model: ArrayModel, chain: Chain) -> Layout:
    """The layout of an array's outer chunks, with handles in place of its items."""
    return _make_layout(model, chain, [], [], is_plain=True, has_handles=True)


def _index_options(shard: ShardingIndexed) -> tuple[bool, bool] | None:
    """(has a checksum, is big-endian) of a shard index that the kernels can read; None for any other."""
    serializer, codecs = shard.index.serializer, shard.index.bytes_codecs
    if not isinstance(serializer, Bytes) or shard.index.array_codecs or len(codecs) > 1:
        return None
    if codecs and type(codecs[0]) is not Crc32c:
        return None
    return bool(codecs), serializer.endian == "big"


def _native_steps(chain: Chain) -> tuple[list[Any], tuple[str, ...]] | None:
    """(capsules, names) of a chain that the kernels run by themselves; None if some codec is not native."""
    serializer = chain.serializer
    if not isinstance(serializer, Bytes) or len(chain.bytes_codecs) > 15:
        return None
    if not all(isinstance(codec, Transpose) for codec in chain.array_codecs):
        return None
    swap = serializer.swap_capsule() if serializer.swap_unit is None else None
    offers = [getattr(codec, "__zstore_codec__", None) for codec in chain.bytes_codecs]
    if any(offer is None for offer in offers) or (serializer.swap_unit is None and swap is None):
        return None
    steps = [offer() for offer in offers if offer]
    if any(step is None for step in steps):
        return None
    names = tuple(codec.name for codec in chain.bytes_codecs)
    return (steps, names) if swap is None else ([swap, *steps], (serializer.name, *names))


def _strides(chain: Chain) -> tuple[int, ...]:
    """Byte strides that view a decoded chunk, stored in C order, with its transposes undone."""
    shape, axes = chain.spec.shape, list(range(len(chain.spec.shape)))
    for codec in chain.array_codecs:
        assert isinstance(codec, Transpose)
        axes = [axes[i] for i in codec.order]
    strides = [0] * len(axes)
    stride = chain.spec.dtype.itemsize
    for axis in reversed(axes):
        strides[axis] = stride
        stride *= shape[axis]
    return tuple(strides)


def _make_layout(
    model: ArrayModel,
    chain: Chain,
    shards: list[ShardingIndexed],
    steps: list[Any],
    *,
    is_plain: bool,
    has_handles: bool,
) -> Layout:
    dtype, shape = chain.spec.dtype, chain.spec.shape
    fill_value = chain.spec.fill_value
    if has_handles:
        dtype, fill_value = HANDLE, 0
    unit = 0
    if not is_plain and isinstance(chain.serializer, Bytes):
        unit = chain.serializer.swap_unit or 0
    fill = np.asarray(fill_value, dtype).reshape(1)
    stored = bytes(chain.serializer.encode(fill)) if unit else fill.tobytes()
    plain = tuple(prod(shape[d + 1 :]) * dtype.itemsize for d in range(len(shape)))
    levels = []
    for shard in shards:
        options = _index_options(shard)
        assert options is not None
        levels.append((shard.counts, shard.index_location == "start", *options))
    return Layout(
        shape=model.shape,
        chunk_shape=shape,
        strides=plain if is_plain else _strides(chain),
        item_size=dtype.itemsize,
        swap_unit=unit,
        fill_native=fill.tobytes(),
        fill=stored,
        levels=levels,
        steps=steps,
        key_has_c=model.keys.name == "default",
        separator=model.keys.separator,
    )


def other_chunks(model: ArrayModel, other: ArrayModel) -> str:
    """Say how the chunks of another array differ in form from those of `model`; "" where they do not."""
    said = model.other_chunks(other)
    if said or model.codecs == other.codecs or _decoding(model.codecs) == _decoding(other.codecs):
        return said
    told, expected = ([codec.describe() for codec in one.codecs] for one in (other, model))
    return f"one with the codecs {told}, expected {expected}"


def _decoding(codecs: Iterable[CodecModel]) -> list[Any]:
    """The options of codecs that decoding depends on, in JSON."""
    told = list[Any]()
    for codec in codecs:
        name = codec.name.removeprefix("numcodecs.")
        if name in TELLING:
            told.append(name)
            continue
        try:
            made: Any = make_codec(codec)
        except ZstoreError:
            made = None
        if isinstance(made, ShardingIndexed):
            parts = _decoding(made.codecs), _decoding(made.index_codecs)
            told.append([name, made.chunk_shape, made.index_location, *parts])
        else:
            told.append([name, codec.configuration if made is None else made.to_configuration()])
    found: list[Any] = json.loads(json.dumps(told, default=repr, sort_keys=True))
    return found
