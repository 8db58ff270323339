"""Arguments of zarr-python's makers of arrays, turned into those of `zstore.create_array`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from math import ceil, log10, prod
from typing import Any

import numpy as np

from zstore.codecs.forms import read_codecs
from zstore.nodes.zarr_names import split_codecs
from zstore.zarr.codecs import ZstdCodec, as_codec
from zstore.zarr.config import ArrayConfig, config
from zstore.zarr.dtype import as_request, parse_dtype
from zstore.zarr.errors import ZarrRuntimeWarning, ZarrUserWarning
from zstore.zarr.metadata import GroupMetadata

AUTO: Any = "auto"
# Arguments of zarr-python 2, which zarr-python 3 takes and warns of.
IGNORED = (
    "synchronizer",
    "chunk_store",
    "cache_metadata",
    "cache_attrs",
    "object_codec",
    "read_only",
    "meta_array",
)
USUAL_V2 = {"id": "zstd", "level": 0}


def array_options(
    *,
    shape: Any = None,
    dtype: Any = None,
    data: Any = None,
    chunks: Any = AUTO,
    shards: Any = None,
    filters: Any = AUTO,
    compressors: Any = AUTO,
    compressor: Any = AUTO,
    serializer: Any = AUTO,
    fill_value: Any = AUTO,
    order: Any = None,
    zarr_format: Any = None,
    config: Any = None,
    write_data: bool = True,
    **others: Any,
) -> tuple[ArrayConfig, dict[str, Any]]:
    """The array's settings, and the options of `zstore.create_array`.

    Raises
        ValueError: options that contradict each other, or neither data nor a shape and a dtype.
    """
    zarr_format = zarr_format or default_format()
    if data is not None:
        if shape is not None or dtype is not None:
            given = "shape" if shape is not None else "dtype"
            raise ValueError(f"both data and {given} are given; expected one of them")
        items = data if hasattr(data, "shape") else np.asarray(data)
        shape, dtype = items.shape, items.dtype
        data = np.asarray(items) if write_data else None
    if shape is None or dtype is None:
        raise ValueError(f"shape is {shape!r} and dtype is {dtype!r}; expected both, or data")
    if compressor is not AUTO:
        if zarr_format == 3:
            raise ValueError("compressor is for zarr_format=2; expected compressors")
        compressors = compressor
    shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
    if order is not None and zarr_format == 3:
        said = "order has no effect in Zarr v3; expected config={'order': ...}, or a filter that transposes"
        warnings.warn(said, ZarrRuntimeWarning, stacklevel=5)
    # In Zarr v2 one order is that of chunks and of results, and `config` has no say.
    settings = ArrayConfig.of(config, order=(order or ArrayConfig.of().order) if zarr_format == 2 else None)
    chunks, shards = _lengths(shape, dtype, chunks, shards)
    wanted = {
        "shape": shape,
        "dtype": as_request(dtype, zarr_format),
        "data": _plain_strings(data),
        "chunks": chunks,
        "shards": shards,
        "filters": AUTO if filters is AUTO else _listed(filters),
        "compressors": _usual(zarr_format) if _is_auto(compressors) else _listed(compressors),
        "serializer": serializer,
        "fill_value": fill_value,
        "order": settings.order if zarr_format == 2 else "C",
        "zarr_format": zarr_format,
        **others,
    }
    if wanted["data"] is not None:
        wanted["data"] = np.asarray(wanted["data"])
    return settings, wanted


def without_ignored(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that have no effect.

    Warns
        ZarrRuntimeWarning: there are some.
    """
    for name in IGNORED:
        if options.get(name) is not None:
            warnings.warn(f"{name} has no effect", ZarrRuntimeWarning, stacklevel=5)
    return {name: value for name, value in options.items() if name not in IGNORED}


def legacy_options(
    shape: Any,
    *,
    chunks: Any = None,
    chunk_shape: Any = None,
    dtype: Any = None,
    codecs: Any = None,
    filters: Any = None,
    dimension_separator: str | None = None,
    write_empty_chunks: bool | None = None,
    config: Any = None,
    zarr_format: Any = None,
    **others: Any,
) -> dict[str, Any]:
    """The options of `create_array` for those of zarr-python's `create`, which has names of version 2, too.

    Warns
        ZarrRuntimeWarning: of options that have no effect.

    Raises
        ValueError: an option of the other format.
    """
    zarr_format = zarr_format or default_format()
    others = without_ignored(others)
    if write_empty_chunks is not None:
        said = "write_empty_chunks is an old name; expected config={'write_empty_chunks': ...}"
        warnings.warn(said, ZarrRuntimeWarning, stacklevel=4)
    if chunks is not None and chunk_shape is not None:
        raise ValueError("both chunks and chunk_shape are given; expected one of them")
    if dimension_separator is not None:
        if zarr_format == 3:
            raise ValueError("dimension_separator is for zarr_format=2; expected chunk_key_encoding")
        others["chunk_key_encoding"] = ("v2", dimension_separator)
    if codecs is not None:
        if zarr_format == 2:
            raise ValueError("codecs are for zarr_format=3; expected filters and compressor")
        filters, others["serializer"], others["compressors"] = _split(codecs)
    chunks = chunks if chunk_shape is None else chunk_shape
    settings = ArrayConfig.of(config, write_empty_chunks=write_empty_chunks)
    if zarr_format == 2:
        others["order"] = others.get("order") or settings.order
    return {
        "shape": shape,
        "dtype": "f8" if dtype is None else dtype,
        "chunks": AUTO if chunks is None or chunks is True else -1 if chunks is False else chunks,
        "filters": filters or AUTO,
        "config": settings,
        "zarr_format": zarr_format,
        **others,
    }


def like(data: Any, zarr_format: Any = None) -> dict[str, Any]:
    """The options of `create_array` that make an array like `data`, without its items."""
    found: dict[str, Any] = {"shape": data.shape, "dtype": data.dtype} if hasattr(data, "shape") else {}
    if not found:
        array = np.asarray(data)
        return {"shape": array.shape, "dtype": array.dtype}
    if isinstance(getattr(data, "chunks", None), tuple) and len(data.chunks) == len(data.shape):
        found["chunks"] = data.chunks
    model = getattr(getattr(data, "node", None), "model", None)
    if model is None:
        return found
    found |= {"dtype": data.metadata.dtype, "fill_value": model.fill_value}
    if zarr_format in (None, model.zarr_format):
        found |= {"zarr_format": model.zarr_format, "filters": data.filters, "compressors": data.compressors}
        found |= {"shards": data.shards}
        if model.zarr_format == 3:
            found["serializer"] = data.serializer
    return found


def with_groups(nodes: Mapping[str, Any], *, has_root: bool = False) -> dict[str, Any]:
    """The nodes, and the groups on the way to them (the root only if asked), in the order of their paths."""
    paths = {path.strip("/") for path in nodes}
    zarr_format = next((node.zarr_format for node in nodes.values()), 3)
    above = {p[:n] for p in paths for n in range(len(p)) if p[n] == "/"} | (
        {""} if has_root and paths else set()
    )
    made = {path: GroupMetadata(zarr_format=zarr_format) for path in above - paths}
    return dict(sorted({**made, **{path.strip("/"): node for path, node in nodes.items()}}.items()))


def default_format() -> int:
    """The Zarr format of new nodes, by the settings."""
    return config.get("default_zarr_format")  # type: ignore[no-any-return]


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _usual(zarr_format: int) -> Any:
    """zarr-python's usual compressors."""
    return ZstdCodec() if zarr_format == 3 else USUAL_V2


def _listed(value: Any) -> Any:
    return [*value] if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else value


def _split(codecs: Iterable[Any]) -> tuple[Any, Any, Any]:
    """Filters, serializer and compressors of a chain."""
    filters, serializer, compressors = split_codecs(read_codecs([as_codec(one) for one in codecs], 3))
    return list(filters), serializer if serializer is not None else AUTO, list(compressors)


def _plain_strings(data: Any) -> Any:
    is_strings = getattr(getattr(data, "dtype", None), "kind", "") == "T"
    return np.asarray(data).astype(object) if is_strings else data


def _lengths(shape: tuple[int, ...], dtype: Any, chunks: Any, shards: Any) -> tuple[Any, Any]:
    """Chunks and shards, where zarr-python chooses them."""
    if isinstance(shards, Mapping):  # with `index_location`
        shards = shards["shape"]
    if _is_auto(chunks):
        size = parse_dtype(dtype).item_size
        chunks = guess_chunks(shape, size, **({} if shards is None else {"most": 1 << 20}))
    chunks = _spanning(shape, chunks, (1,) * len(shape))
    if shards is not None and not _is_auto(shards):
        shards = _spanning(shape, shards, (chunks,) * len(shape) if isinstance(chunks, int) else chunks)
    if _is_auto(shards):
        said = "shapes of shards that are chosen may differ in the next version"
        warnings.warn(said, ZarrUserWarning, stacklevel=5)
        shards = _guess_shards(shape, parse_dtype(dtype).item_size, chunks)
    return chunks, shards


def _spanning(shape: tuple[int, ...], lengths: Any, units: Any) -> Any:
    """Lengths, with the fewest whole units for a -1, which spans its dimension; False is -1 for all."""
    each = [-1 if lengths is False else lengths] * len(shape) if isinstance(lengths, int) else lengths
    if (
        not isinstance(each, list | tuple)
        or len(each) != len(shape)
        or (lengths is not False and -1 not in each)
    ):
        return lengths
    spans = [-(-max(1, n) // unit) * unit for n, unit in zip(shape, units, strict=True)]
    return tuple(span if length == -1 else length for length, span in zip(each, spans, strict=True))


def guess_chunks(shape: tuple[int, ...], item_size: int, *, most: int = 64 << 20) -> tuple[int, ...]:
    """The chunks that zarr-python chooses: dimensions halved in turn, down to about a target.

    Spec
        h5py's `guess_chunk`, with zarr-python's targets: 256 KiB doubled for every tenfold above 1 MiB,
        within 128 KiB and `most`.
    """
    lengths = [float(max(1, length)) for length in shape]
    if not item_size or not shape:
        return tuple(map(int, lengths))
    target = min(max((256 << 10) * 2 ** log10(prod(lengths) * item_size / (1 << 20)), 128 << 10), most)
    axis = 0
    while prod(lengths) > 1:
        size = prod(lengths) * item_size
        if size < most and (size < target or abs(size - target) / target < 0.5):
            break
        lengths[axis % len(lengths)] = ceil(lengths[axis % len(lengths)] / 2)
        axis += 1
    return tuple(map(int, lengths))


def _guess_shards(shape: tuple[int, ...], item_size: int, chunks: Any) -> tuple[int, ...]:
    """The shards that zarr-python chooses: as many chunks along a dimension as the setting allows, or 2."""
    inner = (chunks,) * len(shape) if isinstance(chunks, int) else tuple(chunks)
    most = config.get("array.target_shard_size_bytes")
    if most is None:
        return tuple(c * 2 if n // c > 8 else c for n, c in zip(shape, inner, strict=True))
    count, size = 1, prod(inner) * item_size
    while (
        size
        and inner
        and size * (count + 1) ** len(inner) <= most
        and all(c * (count + 1) <= n for c, n in zip(inner, shape, strict=True))
    ):
        count += 1
    return tuple(c * count for c in inner)
