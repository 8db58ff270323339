"""Models of arrays and groups in another Zarr format, and the check whether chunks keep their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zstore.codecs.base import make_codec
from zstore.engine.documents import GROUP_KEYS, RENDER_ARRAY
from zstore.errors import CodecError, MetadataError, UnsupportedError
from zstore.jobs.chunks import StoredArray, same_items
from zstore.model.array import ORDER_NAMES, ArrayModel, CodecModel, ZarrFormat, byte_order
from zstore.model.dtype import stored_dtype
from zstore.model.grid import ChunkKeys, RectilinearGrid, check_names, lengths_by_name, own_lengths
from zstore.model.group import GroupModel
from zstore.model.json_attributes import render_fill
from zstore.model.packing import decode_fill
from zstore.model.translate import TYPED_FILTERS, codecs_to_v2, codecs_to_v3
from zstore.model.typestr import OBJECT_CODECS
from zstore.nodes.create import ArrayRequest
from zstore.nodes.zarr_names import innermost_codecs, split_codecs

SAME = "same"
ARRAY_FIRST = TYPED_FILTERS | {"transpose", "bitround", "cast_value", "reshape", "scale_offset"}
V2_OBJECTS = frozenset(f"numcodecs.{name}" for name in OBJECT_CODECS)


@dataclass(frozen=True)
class ConvertOptions:
    """The format, grid and codecs of converted arrays; "same" keeps those of the source."""

    zarr_format: ZarrFormat
    chunks: Any = SAME
    shards: Any = SAME
    filters: Any = SAME
    serializer: Any = SAME
    compressors: Any = SAME
    chunk_key_encoding: Any = None
    allow_pickle: bool = False
    checksum: bool = False

    def __post_init__(self) -> None:
        if self.zarr_format not in RENDER_ARRAY:
            raise UnsupportedError(f"zarr_format is {self.zarr_format!r}; zstore writes 1, 2 and 3")

    @property
    def recodes(self) -> bool:
        """Whether the chunks have to be encoded anew."""
        wanted = (self.chunks, self.shards, self.filters, self.serializer, self.compressors)
        return self.checksum or not all(map(_is_same, wanted))

    def for_array(self, model: ArrayModel, most: int) -> ConvertOptions:
        """The options for one of several arrays, the longest of which has `most` dimensions.

        Lengths along more dimensions than an array has are for others, where there are such; so are lengths
        by the names of dimensions of which a shorter array, as of coordinates or bounds, has one at most.
        """
        kept, count = dict[str, Any](), len(model.shape)
        for option, lengths in (("chunks", self.chunks), ("shards", self.shards)):
            if isinstance(lengths, tuple) and count < len(lengths) <= most:
                kept[option] = SAME
            elif isinstance(lengths, Mapping):
                kept[option] = own_lengths(lengths, model.dimension_names or (), most) or SAME
        return replace(self, **kept)

    def check_names(self, models: Iterable[ArrayModel]) -> None:
        """Check that lengths by name are along dimensions of some arrays.

        Raises
            MetadataError: no array has such a dimension.
        """
        there = dict.fromkeys(name for model in models for name in model.dimension_names or ())
        for lengths in (self.chunks, self.shards):
            check_names(lengths, there)

    def for_source(self, model: ArrayModel) -> ConvertOptions:
        """The options for items that no codec of Zarr's has encoded: "same" means as in a new array.

        A part of what is stored names the codecs of the whole.
        """
        if split_codecs(innermost_codecs(model))[2]:
            return self
        codecs = (self.filters, self.serializer, self.compressors)
        filters, serializer, compressors = ("auto" if _is_same(value) else value for value in codecs)
        return replace(self, filters=filters, serializer=serializer, compressors=compressors)


def plan_array(
    model: ArrayModel, options: ConvertOptions, *, may_copy: bool = True
) -> tuple[ArrayModel, bool]:
    """(the model of the converted array, whether chunks keep their bytes).

    Raises
        UnsupportedError: the format cannot express the array; the message names what it cannot.
    """
    _check_extra(model, options.zarr_format)
    if may_copy and not options.recodes:
        try:
            return _same_bytes(model, options), True
        except _RecodeError:
            pass
    return _recoded(model, options), False


def plan_group(model: GroupModel, zarr_format: ZarrFormat) -> GroupModel:
    """The model of the converted group, without consolidated metadata.

    Raises
        UnsupportedError: the format has no groups, or cannot express a member of the document.
    """
    if zarr_format not in GROUP_KEYS:
        raise UnsupportedError(f"a group cannot be expressed in Zarr v{zarr_format}; it has arrays only")
    _check_extra(model, zarr_format)
    return replace(model, zarr_format=zarr_format, consolidated=None)


def describe_in_place(model: ArrayModel, zarr_format: ZarrFormat) -> ArrayModel:
    """The model of an array in another format, whose chunks keep their bytes and keys.

    Raises
        UnsupportedError: the chunks would need other bytes or other keys.
    """
    _check_extra(model, zarr_format)
    if zarr_format != 3 and model.keys.name != "v2":
        raise UnsupportedError(
            f"chunk keys {model.keys.name!r} cannot be expressed in Zarr v{zarr_format}; "
            "the chunks must be copied"
        )
    try:
        made = _same_bytes(model, ConvertOptions(zarr_format))
    except _RecodeError as error:
        raise UnsupportedError(f"{error.message}; the chunks must be encoded anew") from error
    return replace(made, keys=model.keys)


def keeps_bytes(source: StoredArray, target: StoredArray) -> bool:
    """Whether the first stored chunk decodes to the same items with the codecs of both arrays.

    That checks a plan to keep the bytes of chunks. True where no chunk is stored, or that chunk is damaged.
    """
    stored = source.stored()
    cell = next(source.all_cells() if stored is None else filter(source.holds, stored), None)
    data = None if cell is None else source.store.get(source.key(cell))
    if cell is None or data is None:
        return True
    try:
        old = source.chain(cell).decode(data)
    except CodecError:
        return True
    try:
        return same_items(old, target.chain(cell).decode(data))
    except CodecError:
        return False


class _RecodeError(UnsupportedError):
    """The format cannot express chunks with these bytes; encoded anew, it may be able to."""


def _check_extra(model: ArrayModel | GroupModel, zarr_format: ZarrFormat) -> None:
    """Refuse unknown members, whose meaning belongs to their own format."""
    if model.extra and zarr_format != model.zarr_format:
        names = ", ".join(repr(name) for name in model.extra)
        raise UnsupportedError(f"member {names} cannot be expressed in Zarr v{zarr_format}")


def _same_bytes(model: ArrayModel, options: ConvertOptions) -> ArrayModel:
    new, old = options.zarr_format, model.zarr_format
    codecs = model.codecs
    try:
        if new == 3 != old:
            codecs = codecs_to_v3(codecs, model.data_type)
        elif new != 3 == old:
            if any(codec.name == "sharding_indexed" for codec in codecs):
                raise UnsupportedError("codec 'sharding_indexed' cannot be expressed before Zarr v3")
            codecs = codecs_to_v2(codecs, model.data_type)
    except UnsupportedError as error:
        raise _RecodeError(error.message) from error
    return replace(_refilled(model, new), codecs=codecs, keys=_keys(model, options))


def _refilled(model: ArrayModel, zarr_format: ZarrFormat) -> ArrayModel:
    """The model in a format, with the fill value and the nodata that it has there.

    Null becomes the value that it reads as in v3, which has no null. Of arrays with dimension names xarray,
    and all who read alike, take v2's fill value for nodata, and v3's attribute `_FillValue`: one becomes
    the other, and zeros (of texts, none) that are a fill value but no nodata become null in v2.
    """
    fill = model.effective_fill_value if zarr_format == 3 else model.fill_value
    made = replace(model, zarr_format=zarr_format, fill_value=fill)
    dtype, attributes = model.data_type.numpy, dict(model.attributes)
    is_other = (zarr_format == 3) != (model.zarr_format == 3)
    if not is_other or model.dimension_names is None or dtype.kind == "V":
        return made
    if dtype.kind not in "iuf":
        is_null = model.effective_fill_value == replace(model, fill_value=None).effective_fill_value
        is_bare = zarr_format != 3 and is_null and "_FillValue" not in attributes
        return replace(made, fill_value=None) if is_bare else made
    stated = attributes.pop("_FillValue", None)
    try:
        nodata = model.fill_value if stated is None else decode_fill(stated, dtype)
    except MetadataError:
        return made  # validation says what is wrong with it
    if zarr_format == 3:
        # Coordinates have zeros that are no gaps, whatever v2's default fill value is.
        if nodata is None or nodata != nodata or (stated is None and not nodata and model.ndim < 2):
            return made
        return replace(made, attributes={**attributes, "_FillValue": render_fill(nodata, dtype, "nodata")})
    if stated is not None and nodata != fill and nodata == nodata:
        attributes["_FillValue"] = nodata
    is_zero = not model.effective_fill_value and (stated is None or nodata != 0)
    return replace(made, attributes=attributes, fill_value=None if is_zero else fill)


def _keys(model: ArrayModel, options: ConvertOptions) -> ChunkKeys:
    new, old = options.zarr_format, model.zarr_format
    if options.chunk_key_encoding is not None:
        asked = ArrayRequest(
            shape=(1,), dtype="u1", zarr_format=new, chunk_key_encoding=options.chunk_key_encoding
        )
        return asked.model().keys
    if new == 3:
        return model.keys if old == 3 else ChunkKeys()
    separator = model.keys.separator if new == 2 and old == 2 else "."
    return ChunkKeys("v2", separator)


def _recoded(model: ArrayModel, options: ConvertOptions) -> ArrayModel:
    new = options.zarr_format
    inner_shape, chain = _innermost(model)
    wanted = (options.filters, "auto" if new != 3 else options.serializer, options.compressors)
    if any(_is_same(value) for value in wanted):
        order, filters, serializer, tail = _parts(model, chain, new)
    else:
        order, filters, serializer, tail = "C", [], "auto", []
    if new != 3 and _is_same(options.compressors):
        # v2 has one compressor; codecs before it are filters.
        filters, tail = filters + tail[:-1], tail[-1:]
    is_sharded = inner_shape is not None
    chunks, shards, own = options.chunks, options.shards, inner_shape or model.grid.chunk_shape
    about = (model.dimension_names, model.shape)
    if _is_same(chunks):
        chunks = inner_shape if is_sharded else _grid(model)
    else:
        chunks = _trailing(lengths_by_name(chunks, *about, own, model.dtype.itemsize), own)
    if _is_same(shards):
        # Shards are kept only where the new inner chunks fit into them.
        keeps = is_sharded and new == 3 and (_is_same(options.chunks) or _fits(model, chunks))
        shards = _grid(model) if keeps else None
    elif shards is not None:
        others = chunks if isinstance(chunks, tuple) else own
        shards = _trailing(
            lengths_by_name(shards, *about, others, model.dtype.itemsize), model.grid.chunk_shape
        )
    made = ArrayRequest(
        shape=model.shape,
        dtype=model.data_type if new == 3 else _stored(model, chain),
        chunks=chunks,
        shards=shards,
        filters=filters if _is_same(options.filters) else options.filters,
        serializer=serializer if _is_same(options.serializer) else options.serializer,
        compressors=tail if _is_same(options.compressors) else options.compressors,
        checksum=options.checksum,
        fill_value="auto",
        order=order,
        zarr_format=new,
        attributes=model.attributes,
        dimension_names=model.dimension_names,
    ).model()
    filled = _refilled(model, new)
    return replace(
        made,
        keys=_keys(model, options),
        fill_value=filled.fill_value,
        attributes=filled.attributes,
        extra=model.extra,
    )


def _is_same(value: Any) -> bool:
    return isinstance(value, str) and value == SAME


def _grid(model: ArrayModel) -> Any:
    grid = model.grid
    return grid.render() if isinstance(grid, RectilinearGrid) and not grid.is_even else grid.chunk_shape


def _fits(model: ArrayModel, chunks: Any) -> bool:
    outer = model.grid.chunk_shape
    if not isinstance(chunks, tuple) or len(chunks) != len(outer):
        return False
    return all(type(n) is int and n > 0 and length % n == 0 for length, n in zip(outer, chunks, strict=True))


def _trailing(wanted: Any, actual: tuple[int, ...]) -> Any:
    """The actual lengths with the `wanted` ones at the end; of more than there are dimensions, the last."""
    if not isinstance(wanted, tuple) or not all(isinstance(n, int) for n in wanted):
        return wanted
    if len(wanted) > len(actual):
        return wanted[len(wanted) - len(actual) :]
    return actual[: len(actual) - len(wanted)] + wanted


def _innermost(model: ArrayModel) -> tuple[tuple[int, ...] | None, tuple[CodecModel, ...]]:
    """(shape of the inner chunks, their chain); without shards (None, the chain of the chunks)."""
    codecs, inner_shape = model.codecs, None
    while any(codec.name == "sharding_indexed" for codec in codecs):
        if len(codecs) > 1:
            names = [codec.name for codec in codecs]
            raise UnsupportedError(
                f"codecs {names} around shards cannot be kept; expected codecs to be named"
            )
        shard: Any = make_codec(codecs[0])
        inner_shape, codecs = shard.chunk_shape, shard.codecs
    return inner_shape, codecs


def _parts(
    model: ArrayModel, chain: Sequence[CodecModel], zarr_format: ZarrFormat
) -> tuple[str, list[CodecModel], Any, list[CodecModel]]:
    """(order, filters, serializer, following codecs) with which a format encodes an array anew."""
    codecs = list(chain)
    if zarr_format == 3 != model.zarr_format:
        try:
            codecs = list(codecs_to_v3(codecs, model.data_type))
        except UnsupportedError:
            # Filters that v3 cannot express only saved space: the values stay without them.
            codecs = [codec for codec in codecs if codec.name not in TYPED_FILTERS]
            little = CodecModel("bytes", {"endian": "little"})
            codecs = [little if codec.name == "zstore.bytes_by_field" else codec for codec in codecs]
            codecs = list(codecs_to_v3(codecs, model.data_type))
    elif zarr_format != 3 == model.zarr_format:
        codecs = list(codecs_to_v2(codecs, model.data_type))
    order = "F" if codecs and codecs[0].is_reversal(model.ndim) else "C"
    if order == "F":
        codecs.pop(0)
    if zarr_format == 3:
        count = _leading(codecs, ARRAY_FIRST)
        return order, codecs[:count], codecs[count], codecs[count + 1 :]
    rest = [codec for codec in codecs if codec.name not in ORDER_NAMES]
    count = _leading(rest, TYPED_FILTERS | V2_OBJECTS)
    return order, rest[:count], "auto", rest[count:]


def _leading(codecs: Sequence[CodecModel], names: frozenset[str]) -> int:
    """The number of codecs at the beginning of a chain that have one of the names."""
    return next((number for number, codec in enumerate(codecs) if codec.name not in names), len(codecs))


def _stored(model: ArrayModel, chain: Sequence[CodecModel]) -> Any:
    """The data type with its stored byte order, which filters of v2 name too."""
    if model.data_type.is_object or not any(codec.name in ORDER_NAMES for codec in chain):
        return model.data_type
    return stored_dtype(model.dtype, byte_order(chain))
