"""JSON and MessagePack: a chunk of Python objects as one document, of the items, "|O" and the chunk's shape.

Spec     numcodecs' documentation, "JSON" and "MsgPack"
v3 name  numcodecs.json2, numcodecs.msgpack2
v2 id    json2, msgpack2 (filters of "|O" arrays)
Example  {"name": "numcodecs.json2", "configuration": {"encoding": "utf-8"}}

Values that the format does not have are read back as the nearest ones that it has: tuples as lists, the keys
of JSON objects as strings.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import (
    UNBOUND,
    ChunkSpec,
    ConfiguredCodec,
    Option,
    Serializer,
    anything,
    flag,
    parse_options,
)
from zstore.errors import MetadataError
from zstore.extensions.extras import optional


def check_objects(name: str, spec: ChunkSpec) -> None:
    """Check that the array's items are Python objects.

    Raises
        MetadataError: they are not.
    """
    if spec.dtype.kind != "O":
        raise MetadataError(
            f"codec {name!r} is for items that are objects, the array's are {spec.dtype}", codec=name
        )


class _Document(ConfiguredCodec, Serializer):
    """The serializer of chunks as documents, in either format; the defaults of options are numcodecs'."""

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec = UNBOUND) -> None:
        super().__init__(parse_options(self.name, self.options, configuration), spec)

    def bind(self, spec: ChunkSpec) -> Self:
        check_objects(self.name, spec)
        return super().bind(spec)

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        items = np.atleast_1d(chunk).tolist()
        try:
            return self._dump([*items, "|O", list(chunk.shape)])
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self.fail(f"{self._culprit(chunk)} cannot be said: {error}") from error

    def _culprit(self, chunk: np.ndarray[Any, Any]) -> str:
        for place in np.ndindex(chunk.shape):
            try:
                self._dump([chunk[place]])
            except (TypeError, ValueError, OverflowError, RecursionError):
                return f"item {place}"
        return "the chunk"

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        try:
            document = self._load(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.fail(error) from error
        if not isinstance(document, list) or len(document) < 2:
            raise self.fail("expected a list that ends with a dtype and a shape")
        *items, _, shape = document
        if shape != list(self._spec.shape):
            raise self.fail(f"chunk has the shape {shape!r}, expected {list(self._spec.shape)}")
        chunk = np.empty(self._spec.shape, object)
        self._place(items, self._spec.shape or (1,), chunk.reshape(self._spec.shape or (1,)))
        return chunk

    def _place(self, items: Any, shape: tuple[int, ...], into: np.ndarray[Any, Any]) -> None:
        # Item by item, because numpy's assignment takes lists among the items for dimensions.
        if not isinstance(items, list) or len(items) != shape[0]:
            count = len(items) if isinstance(items, list) else repr(items)
            raise self.fail(f"{count} items along one dimension, expected {shape[0]}")
        for i, item in enumerate(items):
            if len(shape) == 1:
                into[i] = item
            else:
                self._place(item, shape[1:], into[i])

    @abstractmethod
    def _dump(self, document: list[Any]) -> bytes: ...

    @abstractmethod
    def _load(self, data: memoryview) -> Any: ...


class Json(_Document):
    """The JSON serializer, with the options of Python's `json`."""

    name: ClassVar[str] = "numcodecs.json2"
    options: ClassVar[tuple[Option, ...]] = (
        anything("encoding", "utf-8"),
        anything("skipkeys", False),
        anything("ensure_ascii", True),
        anything("check_circular", True),
        anything("allow_nan", True),
        anything("indent", None),
        anything("separators", None),
        anything("sort_keys", True),
        anything("strict", True),
    )

    def __init__(self, configuration: Mapping[str, Any], spec: ChunkSpec = UNBOUND) -> None:
        super().__init__(configuration, spec)
        if self._configuration["separators"] is None:
            compact = self._configuration["indent"] is None
            self._configuration["separators"] = [",", ":"] if compact else [", ", ": "]
        try:
            self._configuration["separators"] = list(self._configuration["separators"])
            self._load(memoryview(self._dump([])))
        except (TypeError, ValueError, LookupError) as error:
            raise self.refuse(f"does not take configuration {self._configuration!r}: {error}") from error

    def _dump(self, document: list[Any]) -> bytes:
        options = {
            name: value for name, value in self._configuration.items() if name not in ("encoding", "strict")
        }
        return json.dumps(document, **options).encode(self._configuration["encoding"])

    def _load(self, data: memoryview) -> Any:
        text = bytes(data).decode(self._configuration["encoding"])
        return json.loads(text, strict=self._configuration["strict"])


class Msgpack(_Document):
    """The MessagePack serializer, with the options of the package `msgpack`, which must be installed."""

    name: ClassVar[str] = "numcodecs.msgpack2"
    options: ClassVar[tuple[Option, ...]] = (
        flag("use_single_float", False),
        flag("use_bin_type", True),
        flag("raw", False),
    )

    def _package(self) -> Any:
        with optional(f"codec {self.name!r} needs the package msgpack", "msgpack", self.name):
            import msgpack
        return msgpack

    def _dump(self, document: list[Any]) -> bytes:
        options = {name: self._configuration[name] for name in ("use_bin_type", "use_single_float")}
        packed: bytes = self._package().packb(document, **options)
        return packed

    def _load(self, data: memoryview) -> Any:
        # Maps may have keys of any type, as Python's dictionaries do.
        return self._package().unpackb(data, raw=self._configuration["raw"], strict_map_key=False)
