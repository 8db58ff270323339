"""The forms in which users give codecs, turned into complete models for the document of a new array.

A codec may be a name ("zstd"), a name with a level ("zstd:9"), an object from a v3 document ({"name": …,
"configuration": …}) or a v2 document ({"id": …}), or a codec object of zstore, numcodecs or zarr-python.
Options that are left out get zarr-python's defaults; for a bare name, those of `MEANT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np

from zstore.base.once import ByContent
from zstore.codecs.base import (
    ArrayCodec,
    Chain,
    ChunkSpec,
    Codec,
    make_codec,
    name_nearest,
    refuse_option,
    usual_options,
)
from zstore.codecs.sharding import ShardingIndexed
from zstore.errors import MetadataError, UnknownExtensionError
from zstore.extensions.registry import codecs as registry
from zstore.model.array import CodecModel
from zstore.model.translate import PREFIX, TYPED_FILTERS, to_v2

# The options that a bare name means, where they differ from the defaults. zarr-python's default is zstd's own
# default level, which is 3. The checksum costs a few per cent; without it a chunk with flipped bits can
# decode to wrong values. v2's zstd has none because its older readers do not know the option.
MEANT: dict[str, dict[str, Any]] = {
    "zstd": {"level": 3, "checksum": True},
    "blosc": {"shuffle": "shuffle"},
    "numcodecs.zstd": {"level": 3},
    "numcodecs.gzip": {"level": 5},
    "numcodecs.blosc": {"cname": "zstd"},
}
LEVELS = ("level", "clevel", "acceleration")
MEMBERS = frozenset(("name", "configuration", "must_understand"))
# Options of numcodecs' that follow from the chunk, which zarr-python writes into v3 documents.
FOLLOWING = ("dtype", "decode_dtype", "elementsize")
# Codecs that declare their options as numcodecs does; the options of others come from numcodecs itself.
AS_NUMCODECS = frozenset(
    PREFIX + name for name in ("blosc", "crc32c", "gzip", "lz4", "vlen-bytes", "vlen-utf8", "zlib", "zstd")
)
_completed: ByContent[tuple[CodecModel, ...]] = ByContent()


def read_codecs(value: Any, zarr_format: int) -> tuple[CodecModel, ...]:
    """The models of one codec or a list of codecs, with their configurations as the caller wrote them.

    A CodecModel, which comes from a document, is left unchanged.

    Raises
        MetadataError: it is no codec, or has a member that is unknown or in the wrong place.
        UnknownExtensionError: there is no codec of that name.
        UnsupportedError: a codec that the format does not have.
    """
    if value is None:
        return ()
    return tuple(_read(item, zarr_format) for item in (value if isinstance(value, list | tuple) else [value]))


def _read(value: Any, zarr_format: int) -> CodecModel:
    if not isinstance(value, CodecModel):
        value = _read_name(value, zarr_format) if isinstance(value, str) else _describe(value, zarr_format)
    return to_v2(value) if zarr_format == 2 else value


def _read_name(value: str, zarr_format: int) -> CodecModel:
    name, _, level = value.rpartition(":")
    if not name or not level.removeprefix("-").isdecimal():
        if not {name, PREFIX + name}.isdisjoint(registry.names()):
            expected = f"expected an integer, as in '{name}:5'"
            raise MetadataError(f"codec {value!r} has the level {level!r}; {expected}")
        return _meant(value, zarr_format)
    codec = _meant(name, zarr_format)
    options = [option.name for option in registry.resolve(codec.name).options]
    level_option = next((option for option in LEVELS if option in options), LEVELS[0])
    return replace(codec, configuration={**codec.configuration, level_option: int(level)})


def _meant(name: str, zarr_format: int) -> CodecModel:
    """The model of a codec of which only the name was written."""
    if not name.startswith(PREFIX) and (zarr_format == 2 or _is_of_numcodecs(name)):
        name = PREFIX + name
    return CodecModel(name, MEANT.get(name, {}))


def _is_of_numcodecs(name: str) -> bool:
    """Whether a name without "numcodecs." is that of a codec which is offered only with it."""
    try:
        registry.resolve(name)
    except UnknownExtensionError:
        try:
            registry.resolve(PREFIX + name)
        except UnknownExtensionError:
            return False
        return True
    return False


def _describe(value: Any, zarr_format: int) -> CodecModel:
    """The model of a codec object, or of a codec's entry in a document."""
    if hasattr(value, "to_configuration"):
        return CodecModel(value.name, value.to_configuration())
    if hasattr(value, "to_dict"):
        return _describe_zarr(value)
    if hasattr(value, "get_config"):
        value = value.get_config()
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str):
            return _describe_named(value, zarr_format)
        if isinstance(value.get("id"), str):
            configuration = {name: _plain(item) for name, item in value.items() if name != "id"}
            return CodecModel(PREFIX + value["id"], configuration)
    raise MetadataError(
        f"codec is {value!r}; expected a name, an object with a name or an id, "
        f"or a codec of zstore, numcodecs or zarr"
    )


def _describe_zarr(value: Any) -> CodecModel:
    """The model of a codec object of zarr-python, without the options that it filled in by itself."""
    document = value.to_dict()
    configuration = dict(document.get("configuration", {}))
    for name in getattr(value, "_tunable_attrs", ()):
        configuration.pop(name, None)
    for name in configuration:
        held = getattr(value, name, None)
        if isinstance(held, tuple) and held and all(hasattr(codec, "to_dict") for codec in held):
            configuration[name] = held
    return CodecModel(document["name"], configuration)


def _describe_named(value: Mapping[str, Any], zarr_format: int) -> CodecModel:
    name, must_understand = value["name"], value.get("must_understand", True)
    if not value.keys() <= MEMBERS:
        raise _refuse_members(name, [member for member in value if member not in MEMBERS])
    if not isinstance(must_understand, bool):
        raise refuse_option(name, "must_understand", must_understand, "true or false")
    configuration = value.get("configuration", MEANT.get(name, {}))
    if zarr_format == 2 and "configuration" not in value and PREFIX + name in MEANT:
        return _meant(name, 2)
    if not isinstance(configuration, Mapping):
        raise refuse_option(name, "configuration", configuration, "an object")
    return CodecModel(name, {key: _plain(item) for key, item in configuration.items()}, must_understand)


def _refuse_members(name: str, unknown: list[str]) -> MetadataError:
    """The error for unknown members of a codec's entry, which may be misplaced options or misspelt."""
    options = [option.name for option in registry.resolve(name).options]
    near, option = name_nearest(unknown[0], MEMBERS), name_nearest(unknown[0], options)
    hint = f"; did you mean {near!r}?" if near else ""
    if option:
        hint = f"; did you mean {{'name': {name!r}, 'configuration': {{{option!r}: …}}}}?"
    listed = ", ".join(map(repr, unknown))
    return MetadataError(f"codec {name!r} has unknown members beside its name: {listed}{hint}", codec=name)


def _plain(value: Any) -> Any:
    """An option's value for JSON: enumerations, as zarr-python takes them, become their values."""
    return value.value if isinstance(value, Enum) else value


def complete_chain(models: tuple[CodecModel, ...], spec: ChunkSpec) -> tuple[CodecModel, ...]:
    """A v3 chain with all the options that a new array's document must have.

    Raises
        MetadataError, UnknownExtensionError, UnsupportedError: as for binding the codecs.
    """
    content = [(codec.name, codec.configuration, codec.must_understand) for codec in models]

    def make(_: Any) -> tuple[CodecModel, ...]:
        return _complete_chain(models, spec)

    fill = spec.fill_value.tobytes() if isinstance(spec.fill_value, np.generic) else repr(spec.fill_value)
    key = (content, spec.shape, repr(spec.dtype), fill)
    return make(None) if spec.dtype.hasobject else _completed.get(key, make)


def _complete_chain(models: tuple[CodecModel, ...], spec: ChunkSpec) -> tuple[CodecModel, ...]:
    try:
        spec = spec._replace(allow_pickle=True)
        asked = _prepared_chain(models, spec)
        chain = Chain.bind(asked, spec)
    except UnknownExtensionError:
        return models  # creating the array will raise the error, with the array's path
    return _stated(asked, chain)


def _prepared_chain(models: Iterable[CodecModel], spec: ChunkSpec) -> list[CodecModel]:
    """The codecs with all required options; those that users may leave out follow from the chunk."""
    prepared = []
    for model in models:
        made = _prepared(model, spec)
        prepared.append(made)
        codec = make_codec(made)
        if isinstance(codec, ArrayCodec):
            spec = codec.bind(spec).encoded_spec(spec)
    return prepared


def _prepared(codec: CodecModel, spec: ChunkSpec) -> CodecModel:
    configuration = {**usual_options(registry.resolve(codec.name).options), **codec.configuration}
    if codec.name == "blosc":
        # Both follow from the items' size, as in zarr-python.
        item_size = 1 if spec.dtype.kind in "OT" else max(1, spec.dtype.itemsize)
        chosen = {"typesize": item_size, "shuffle": "bitshuffle" if item_size == 1 else "shuffle"}
        configuration |= {name: value for name, value in chosen.items() if configuration.get(name) is None}
    if codec.name == "sharding_indexed":
        shape = configuration.get("chunk_shape")
        is_shape = isinstance(shape, list | tuple) and all(isinstance(length, int) for length in shape)
        within = spec._replace(shape=tuple(shape)) if is_shape and shape else spec
        inner = _prepared_chain(read_codecs(configuration["codecs"], 3), within)
        index = [_prepared(one, spec) for one in read_codecs(configuration["index_codecs"], 3)]
        configuration["codecs"] = [one.describe() for one in inner]
        configuration["index_codecs"] = [one.describe() for one in index]
    return replace(codec, configuration=configuration)


def _stated(models: Iterable[CodecModel], chain: Chain) -> tuple[CodecModel, ...]:
    """The models with the configurations of their bound codecs."""
    bound: tuple[Codec, ...] = (*chain.array_codecs, chain.serializer, *chain.bytes_codecs)
    made = []
    for model, codec in zip(models, bound, strict=True):
        configuration = codec.to_configuration()
        if isinstance(codec, ShardingIndexed):
            configuration["codecs"] = [one.describe() for one in _stated(codec.codecs, codec.inner)]
            configuration["index_codecs"] = [
                one.describe() for one in _stated(codec.index_codecs, codec.index)
            ]
        if model.name.startswith(PREFIX):
            following = {name: configuration[name] for name in FOLLOWING if name in configuration}
            configuration = {**model.configuration, **following}
        made.append(replace(model, configuration=configuration))
    return tuple(made)


def complete_v2(models: Iterable[CodecModel], dtype: np.dtype[Any]) -> tuple[CodecModel, ...]:
    """v2's filters or compressor with all the options that numcodecs writes into a document.

    dtype  the dtype of the items before the first codec, in the stored byte order

    Raises
        MetadataError, UnknownExtensionError, UnsupportedError: as for making the codecs.
    """
    completed = []
    for codec in models:
        try:
            made = make_codec(codec)
        except UnknownExtensionError:
            completed.append(codec)  # creating the array will raise the error, with the array's path
            continue
        if codec.name in TYPED_FILTERS and isinstance(made, ArrayCodec):
            made = made.bind(ChunkSpec((1,), dtype, None))
            dtype = made.encoded_spec(ChunkSpec((1,), dtype, None)).dtype
        configuration = made.to_configuration()
        # numcodecs never writes blosc's typesize; older readers do not know zstd's checksum.
        unsaid = {"numcodecs.blosc": "typesize", "numcodecs.zstd": "checksum"}.get(codec.name)
        if unsaid and configuration.get(unsaid) is not True:
            configuration.pop(unsaid, None)
        if codec.name not in AS_NUMCODECS:
            from zstore.codecs.numcodecs import stated_by_numcodecs

            configuration = stated_by_numcodecs(codec.name.removeprefix(PREFIX), configuration)
        completed.append(replace(codec, configuration=configuration))
    return tuple(completed)
