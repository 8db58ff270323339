"""The base classes of codecs, array codecs, serializers and bytes codecs, and chains of them in this order.

A chain has any number of array codecs, one serializer, then any number of bytes codecs. A codec is made from
its configuration (`from_configuration`), bound once to the kind of chunks it will get (`bind`), and then
called for each chunk, by many threads at once: a bound codec never changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from zstore._ext.codecs import native
from zstore.base.limits import current_limits
from zstore.base.once import look_up
from zstore.errors import ChecksumError, CodecError, MetadataError, ZstoreError
from zstore.extensions.registry import codecs as registry
from zstore.model.array import CodecModel
from zstore.model.dtype import stored_dtype

# What stands in a codec that is not bound for all that `bind` fills in, and only bound codecs use.
UNBOUND: Any = None


class ChunkSpec(NamedTuple):
    """The chunks that a codec is bound to: arrays in C order (in Zarr v1 and v2, in the stored byte order).

    `allow_pickle` says that the caller trusts the store enough to run code that its chunks contain.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any
    allow_pickle: bool = False


def failure(codec: str, what: object, to: str = "", kind: type[CodecError] = CodecError) -> CodecError:
    """The error of a codec that could not do `to` ("decode 12 bytes") with a chunk."""
    return kind(f"codec {codec!r} failed{to and f' to {to}'}: {what}", codec=codec)


class Codec(ABC):
    """The base class of the three kinds of codecs below."""

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """Make the codec of a metadata document's entry, with its `options` as keyword arguments.

        Raises
            MetadataError: an option is unknown, missing, of the wrong type or out of range.
        """
        return cls(**parse_options(cls.name, cls.options, configuration))

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document, from the attributes that `options` name."""
        return render_options(self, self.options)

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`, with options that follow from the chunk filled in."""
        return self

    @classmethod
    def refuse(cls, what: str) -> MetadataError:
        """The error to raise for a configuration or a kind of chunk that the codec does not support."""
        return MetadataError(f"codec {cls.name!r} {what}", codec=cls.name)

    @classmethod
    def fail(cls, what: object, to: str = "") -> CodecError:
        """The error to raise for a chunk that cannot be encoded or decoded; `to` names the operation."""
        return failure(cls.name, what, to)


class ArrayCodec(Codec):
    """A codec from arrays to arrays, e.g. transpose."""

    @abstractmethod
    def encoded_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """The kind of chunks that the next codec gets for chunks like `spec`."""

    @abstractmethod
    def encode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The encoded chunk, for the next codec."""

    @abstractmethod
    def decode(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The chunk as it was before `encode`."""


class Serializer(Codec):
    """A codec from arrays to bytes, e.g. bytes, sharding_indexed, vlen-utf8; it is bound before use."""

    @abstractmethod
    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes | memoryview:
        """The bytes of the chunk."""

    @abstractmethod
    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        """The chunk, of the shape and dtype that the codec was bound to.

        Raises
            CodecError: the bytes are not those of one such chunk.
        """

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """The number of bytes of every encoded chunk like `spec`; None if it depends on the values."""
        return None


class BytesCodec(Codec):
    """A codec from bytes to bytes, e.g. zstd, crc32c; native ones offer a capsule (`zstore_codec.h`)."""

    @abstractmethod
    def encode(self, data: memoryview) -> bytes | memoryview:
        """The encoded bytes."""

    @abstractmethod
    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        """The bytes as they were before `encode`, never more than `size_limit` of them.

        Raises
            CodecError: damaged, or more than `size_limit` bytes when decoded (nothing larger is allocated).
        """

    def encoded_bound(self, size: int) -> int | None:
        """The most bytes that `size` bytes can become when encoded; None if unknown."""
        return None


class ConfiguredCodec(Codec):
    """A codec that keeps its configuration as in documents, and is made anew from it when it is bound."""

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec = UNBOUND) -> None:
        self._configuration = dict(configuration)
        self._spec = spec

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Self:
        """The codec of a metadata document's entry; it keeps the configuration as it is written there."""
        parse_options(cls.name, cls.options, configuration)
        return cls(configuration)

    def to_configuration(self) -> dict[str, Any]:
        """The configuration to write into a metadata document."""
        return dict(self._configuration)

    def bind(self, spec: ChunkSpec) -> Self:
        """This codec for chunks like `spec`."""
        return type(self)(self._configuration, spec)


class SerializerOrBytesCodec(ConfiguredCodec, Serializer, BytesCodec):
    """A serializer that may also be (as in Zarr v2) a bytes codec after another serializer."""

    def encode(self, data: Any) -> bytes:
        """The encoded bytes of a chunk, given as an array or as its bytes."""
        if self._spec is None:
            raise self.fail("it was not bound to a chunk's shape and dtype")
        items = data if isinstance(data, np.ndarray) else np.frombuffer(data, self._spec.dtype)
        return self._encode_items(np.ascontiguousarray(items))

    @abstractmethod
    def _encode_items(self, items: np.ndarray[Any, Any]) -> bytes:
        """The encoded bytes of contiguous items of the chunk's dtype."""

    @abstractmethod
    def decode(self, data: Any, size_limit: int | None = None) -> Any:
        """The decoded chunk; with `size_limit`, its bytes, never more than that many.

        Raises
            CodecError: damaged, cut short, or not of the chunk's type and number of items.
        """


REQUIRED: Any = object()


class Option(NamedTuple):
    """One member of a configuration, and the codec's attribute of the same name.

    expected     the allowed values, in words, for messages
    parse        from the member to the attribute; raises ValueError or TypeError for a value not allowed
    default      the attribute if the member is left out: REQUIRED if it must not be; with None, the member
                 is left out again when the configuration is written
    render       the inverse of `parse`
    may_be_null  whether null means the same as leaving it out
    usual        the value of a REQUIRED option in a new array where the user leaves it out: zarr-python's
    """

    name: str
    expected: str
    parse: Callable[[Any], Any]
    default: Any = REQUIRED
    render: Callable[[Any], Any] = lambda value: value
    may_be_null: bool = False
    usual: Any = None


def refuse_option(codec: str, option: str, value: object, expected: str) -> MetadataError:
    """The error for an option of `codec` that has a value other than `expected`."""
    return MetadataError(f"codec {codec!r} has {option} {value!r}, expected {expected}", codec=codec)


def parse_options(codec: str, options: Iterable[Option], configuration: Any) -> dict[str, Any]:
    """The values of all `options` of `codec`, by their names.

    Raises
        MetadataError: an option is unknown, missing or not what is expected.
    """
    if not isinstance(configuration, Mapping):
        raise refuse_option(codec, "configuration", configuration, "an object")
    values = {}
    for option in options:
        try:
            value = configuration[option.name]
        except KeyError:
            value = REQUIRED
        if value is REQUIRED or (value is None and option.may_be_null):
            value = option.default
            if value is REQUIRED:
                raise MetadataError(f"codec {codec!r} lacks the option {option.name!r}", codec=codec)
        else:
            try:
                value = option.parse(value)
            except ZstoreError:
                raise
            except (TypeError, ValueError) as error:
                raise refuse_option(codec, option.name, value, option.expected) from error
        values[option.name] = value
    refuse_unknown(codec, configuration, values)
    return values


def refuse_unknown(codec: str, configuration: Iterable[str], options: Collection[str]) -> None:
    """Check that all members of a configuration are options of the codec.

    Raises
        MetadataError: some are not; the message has the option that may have been meant.
    """
    unknown = sorted(map(str, set(configuration) - set(options)))
    if unknown:
        near = name_nearest(unknown[0], options)
        has = f"its options are {_quoted(options)}" if options else "it has none"
        meant = f"; did you mean {near!r}?" if near else ""
        raise MetadataError(
            f"codec {codec!r} has unknown options: {_quoted(unknown)}; {has}{meant}", codec=codec
        )


def name_nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, which may have been meant by `name`; None if none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, [*names], 1, 0.5)), None)


def usual_options(options: Iterable[Option]) -> dict[str, Any]:
    """The values that required options have in a new array if the user leaves them out."""
    return {option.name: option.usual for option in options if option.usual is not None}


def render_options(codec: object, options: Iterable[Option]) -> dict[str, Any]:
    """The configuration of a codec, from the attributes that its options name; `parse_options` reads it."""
    values = ((option, getattr(codec, option.name)) for option in options)
    return {
        option.name: option.render(value)
        for option, value in values
        if value is not None or option.default is not None
    }


def integer(
    name: str, low: int, high: int, default: Any = REQUIRED, *, may_be_null: bool = False, usual: Any = None
) -> Option:
    """An option that is an integer from `low` to `high`; 5.0 is read as 5: JSON does not distinguish them."""

    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError(value)
        return number

    return Option(
        name, f"an integer from {low} to {high}", parse, default, may_be_null=may_be_null, usual=usual
    )


def flag(name: str, default: Any = REQUIRED) -> Option:
    """An option that is true or false."""

    def parse(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    return Option(name, "true or false", parse, default)


def choice(
    name: str,
    choices: tuple[str, ...],
    default: Any = REQUIRED,
    *,
    may_be_null: bool = False,
    usual: Any = None,
) -> Option:
    """An option that is one of the words in `choices`."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(value)
        return value

    return Option(name, f"one of {_quoted(choices)}", parse, default, may_be_null=may_be_null, usual=usual)


def anything(name: str, default: Any = REQUIRED) -> Option:
    """An option with any value, for `bind` to check: the allowed ones depend on the chunk."""
    return Option(name, "a value", lambda value: value, default)


def item_type(name: str, default: Any = REQUIRED) -> Option:
    """An option that is a dtype, by numpy's name for it."""
    return Option(name, "the name of a dtype", np.dtype, default, lambda dtype: dtype.str)


def codec_list(name: str, usual: Any = None) -> Option:
    """An option that is a list of other codecs, at least one, each a name or an object with a name."""

    def parse(value: Any) -> tuple[CodecModel, ...]:
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(value)
        models = []
        for entry in value:
            named: Any = {"name": entry} if isinstance(entry, str) else entry
            called = look_up(named, "name") if isinstance(named, Mapping) else None
            if not isinstance(called, str):
                raise ValueError(value)
            models.append(CodecModel(called, look_up(named, "configuration") or {}))
        return tuple(models)

    def render(models: tuple[CodecModel, ...]) -> list[dict[str, Any]]:
        return [model.describe() for model in models]

    return Option(name, "a list of codecs, each with a name", parse, render=render, usual=usual)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


class NativeCodec(BytesCodec):
    """A bytes codec that encodes and decodes by the native codec in its capsule."""

    _capsule: object

    def __init__(self) -> None:
        self.__post_init__()

    def __post_init__(self) -> None:
        """Make the capsule; dataclasses call this once their options are set."""
        object.__setattr__(self, "_capsule", self._make_capsule())

    @abstractmethod
    def _make_capsule(self) -> object:
        """The capsule for this codec's options."""

    def __zstore_codec__(self) -> object:
        """The capsule named "zstore.codec.v1" that the engine calls without the GIL, or None."""
        return self._capsule

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_capsule"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.to_configuration().items())
        return f"{type(self).__name__}({options})"

    def encode(self, data: memoryview) -> bytes | memoryview:
        try:
            return native.encode(self._capsule, data)
        except (BufferError, RuntimeError) as error:
            raise self.fail(error, f"encode {memoryview(data).nbytes} bytes") from error

    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        try:
            return native.decode(self._capsule, data, size_limit)
        except ArithmeticError as error:
            raise failure(self.name, error, kind=ChecksumError) from error
        except (ValueError, BufferError, RuntimeError) as error:
            raise self.fail(error, f"decode {memoryview(data).nbytes} bytes") from error

    def encoded_bound(self, size: int) -> int | None:
        """The most bytes that `size` bytes can become when encoded; None if it cannot encode so many."""
        return native.encoded_bound(self._capsule, size)


# Chains

# Codecs that store a checksum, of what they decode to or of their own bytes; zstd does where it is told to.
CHECKED = frozenset(
    ("adler32", "bz2", "crc32", "crc32c", "fletcher32", "gzip", "jenkins_lookup3", "lzma", "zlib")
)


def has_checksum(codecs: Iterable[CodecModel]) -> bool:
    """Whether one of these codecs stores a checksum, so that a changed byte is an error and never an item."""
    named = ((codec.name.removeprefix("numcodecs."), codec.configuration) for codec in codecs)
    return any(name in CHECKED or (name == "zstd" and options.get("checksum")) for name, options in named)


def make_codec(model: CodecModel) -> Codec:
    """Make the codec that a model names, not bound yet.

    Raises
        UnknownExtensionError: there is no codec of that name.
        MetadataError: the codec does not take that configuration.
    """
    codec: Codec = registry.resolve(model.name).from_configuration(model.configuration)
    return codec


def _serializers(codecs: list[Codec]) -> list[int]:
    """The positions of the serializers in a chain.

    Some codecs of numcodecs' are both serializers and bytes codecs: after a serializer (as in Zarr v2) they
    work on its bytes.
    """
    places: list[int] = []
    for place, codec in enumerate(codecs):
        if isinstance(codec, Serializer) and not (places and isinstance(codec, BytesCodec)):
            places.append(place)
    return places


def _plain_size(spec: ChunkSpec) -> int:
    """A generous estimate of the decoded bytes of a chunk whose items have variable length."""
    return 4 * prod(spec.shape) * max(16, spec.dtype.itemsize)


def _most_stored(spec: ChunkSpec, size: int | None, *, may_have_holes: bool) -> int | None:
    """A limit on the bytes of a stored chunk, from `size`, the most that our encoder makes (None: unknown).

    It is generous because other writers' frames may be longer. There is none (None) for shards of unknown
    size, which may have unused bytes between their inner chunks.
    """
    if size is not None:
        return 4 * (size + (1 << 18))
    return None if may_have_holes else 4 * (_plain_size(spec) + (1 << 28))


@contextmanager
def _naming_the_limit(limit: int) -> Iterator[None]:
    try:
        yield
    except CodecError as error:
        if isinstance(error.__cause__, BufferError) or f"{limit} bytes" in error.message:
            error.message += "; zstore.set_limits(chunk_size=...) allows more"
        raise


@dataclass(frozen=True)
class Chain:
    """The codecs of an array, bound to one chunk shape, dtype and fill value."""

    spec: ChunkSpec
    array_codecs: tuple[ArrayCodec, ...]
    serializer: Serializer
    bytes_codecs: tuple[BytesCodec, ...]
    # The most bytes that each bytes codec gets to encode; None if it depends on the values.
    size_limits: tuple[int | None, ...]

    # A stored chunk with more bytes than this is refused; None for no limit.
    stored_limit: int | None = None

    @classmethod
    def bind(cls, models: Iterable[CodecModel], spec: ChunkSpec) -> Chain:
        """Make the codecs that the models name, and bind them to chunks like `spec`.

        Raises
            UnknownExtensionError: there is no codec of that name.
            MetadataError: codecs in an impossible order, or a configuration that does not fit.
        """
        codecs = [make_codec(model) for model in models]
        serializers = _serializers(codecs)
        names = [codec.name for codec in codecs]
        if len(serializers) != 1:
            raise MetadataError(
                f"codecs {names} hold {len(serializers)} that turn arrays into bytes, expected 1"
            )
        middle = serializers[0]
        array_codecs: list[ArrayCodec] = []
        encoded = spec
        for codec in codecs[:middle]:
            if not isinstance(codec, ArrayCodec):
                raise MetadataError(f"codec {codec.name!r} stands before the serializer in {names}")
            codec = codec.bind(encoded)
            array_codecs.append(codec)
            encoded = codec.encoded_spec(encoded)
        serializer = codecs[middle].bind(encoded)
        assert isinstance(serializer, Serializer)
        size = serializer.encoded_size(encoded)
        # The codecs that follow get the items in the stored byte order.
        order = getattr(serializer, "endian", None)
        is_object = encoded.dtype.kind in "OT"
        encoded = encoded._replace(dtype=np.dtype("u1") if is_object else stored_dtype(encoded.dtype, order))
        bytes_codecs: list[BytesCodec] = []
        limits: list[int | None] = []
        for codec in codecs[middle + 1 :]:
            if not isinstance(codec, BytesCodec):
                raise MetadataError(f"codec {codec.name!r} stands after the serializer in {names}")
            codec = codec.bind(encoded)
            bytes_codecs.append(codec)
            if isinstance(codec, ArrayCodec):  # a filter of v2's, which works on typed items
                encoded = codec.encoded_spec(encoded)
            limits.append(size)
            size = None if size is None else codec.encoded_bound(size)
        most = _most_stored(spec, size, may_have_holes=serializer.name == "sharding_indexed")
        return cls(spec, tuple(array_codecs), serializer, tuple(bytes_codecs), tuple(limits), most)

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes | memoryview:
        """The bytes of one chunk of the bound shape and dtype."""
        for array_codec in self.array_codecs:
            chunk = array_codec.encode(chunk)
        data = self.serializer.encode(chunk)
        for codec in self.bytes_codecs:
            data = codec.encode(memoryview(data))
        return data

    def decode(self, data: bytes | memoryview) -> np.ndarray[Any, Any]:
        """One chunk from its bytes; the array may be read-only.

        Raises
            CodecError: the bytes are not those of one such chunk.
        """
        chunk = self.serializer.decode(memoryview(self.decode_bytes(data)))
        for array_codec in reversed(self.array_codecs):
            chunk = array_codec.decode(chunk)
        if chunk.shape != self.spec.shape or chunk.dtype != self.spec.dtype:
            raise CodecError(
                f"chunk decodes to {chunk.dtype} of shape {chunk.shape}, "
                f"expected {self.spec.dtype} of shape {self.spec.shape}"
            )
        return chunk

    def check_stored_size(self, data: bytes | memoryview) -> None:
        """Check that a stored chunk is not unreasonably large, before it is decoded.

        Raises
            CodecError: it has more than `stored_limit` bytes.
        """
        size = memoryview(data).nbytes
        if self.stored_limit is not None and size > self.stored_limit:
            raise CodecError(
                f"stored chunk has {size} bytes or more; none that decodes to this array's has more than "
                f"{self.stored_limit}"
            )

    def decode_bytes(self, data: bytes | memoryview) -> bytes | memoryview:
        """Undo the bytes codecs: the bytes that the serializer made of a chunk.

        Raises
            CodecError: damaged, or more bytes than such a chunk can have (if that is not known, than the
                limit `chunk_size` allows).
        """
        for codec, limit in zip(reversed(self.bytes_codecs), reversed(self.size_limits), strict=True):
            view = memoryview(data)
            if limit is not None:
                data = codec.decode(view, limit)
                continue
            limit = current_limits().decoded_size(view.nbytes, _plain_size(self.spec))
            with _naming_the_limit(limit):
                data = codec.decode(view, limit)
        return data

    def encoded_size(self) -> int | None:
        """The number of bytes of every encoded chunk; None if it depends on the values."""
        if any(codec.name != "crc32c" for codec in self.bytes_codecs):
            return None
        encoded = self.spec
        for codec in self.array_codecs:
            encoded = codec.encoded_spec(encoded)
        size = self.serializer.encoded_size(encoded)
        return None if size is None else size + 4 * len(self.bytes_codecs)
