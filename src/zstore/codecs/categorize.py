"""Categories: stores strings as their positions in a list of labels, from 1 on; 0 is the empty string.

Spec     numcodecs' documentation, "Categorize"
v3 name  numcodecs.categorize
v2 id    categorize (a filter)
Example  {"name": "numcodecs.categorize",
          "configuration": {"labels": ["land", "sea"], "dtype": "|O", "astype": "|u1"}}

For objects ("|O") it is a serializer; for fixed-length strings a filter like any other of numcodecs'.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import UNBOUND, ChunkSpec, Option, Serializer, item_type, refuse_option
from zstore.codecs.numcodecs import NumcodecsFilter
from zstore.codecs.objects import check_objects


class Categorize(NumcodecsFilter):
    """The codec for fixed-length strings."""

    name: ClassVar[str] = "numcodecs.categorize"
    codec_id: ClassVar[str] = "categorize"

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, Any]) -> Any:
        """The codec of a metadata document's entry; for objects, a `CategorizeObjects`."""
        if configuration.get("dtype") in ("|O", "O", "object"):
            return CategorizeObjects.from_configuration(configuration)
        return super().from_configuration(configuration)


def _parse_labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(label, str) for label in value):
        raise ValueError(value)
    return tuple(value)


def _parse_object_type(value: Any) -> str:
    if value not in ("|O", "O", "object"):
        raise ValueError(value)
    return "|O"


class CategorizeObjects(Serializer):
    """The serializer of strings that are labels or empty, held as objects."""

    name: ClassVar[str] = "numcodecs.categorize"

    options: ClassVar[tuple[Option, ...]] = (
        Option("labels", "a list of strings", _parse_labels, render=list),
        Option("dtype", "'|O', 'O' or 'object'", _parse_object_type, "|O"),
        item_type("astype", np.dtype("u1")),
    )
    dtype: ClassVar[str] = "|O"

    def __init__(
        self, labels: tuple[str, ...], dtype: str, astype: np.dtype[Any], spec: ChunkSpec = UNBOUND
    ) -> None:
        if astype.kind not in "iu" or np.iinfo(astype).max < len(labels):
            raise refuse_option(self.name, "astype", astype.str, f"integers that count to {len(labels)}")
        self.labels = labels
        self.astype = astype
        self.spec = spec
        # The last position of a repeated label counts, as in numcodecs.
        self.codes = {"": 0, **{label: code for code, label in enumerate(labels, 1)}}

    def bind(self, spec: ChunkSpec) -> Self:
        check_objects(self.name, spec)
        return type(self)(self.labels, self.dtype, self.astype, spec)

    def encoded_size(self, spec: ChunkSpec) -> int:
        return prod(spec.shape) * self.astype.itemsize

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        codes = np.empty(chunk.shape, self.astype)
        for place in np.ndindex(chunk.shape):
            item: Any = chunk[place]
            if self.spec is not None and item is self.spec.fill_value:
                # An item that was never written: other writers' fill values are 0 or null here.
                item = ""
            if not isinstance(item, str) or item not in self.codes:
                raise self.fail(
                    f"item {place} is {item!r}, expected one of the labels"
                    f" {', '.join(map(repr, self.labels))} or ''"
                )
            codes[place] = self.codes[item]
        return codes.tobytes()

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        expected = self.encoded_size(self.spec)
        if len(data) != expected:
            raise self.fail(f"chunk has {len(data)} bytes, expected {expected}")
        codes = np.frombuffer(data, self.astype)
        low, high = (int(codes.min()), int(codes.max())) if codes.size else (0, 0)
        if low < 0 or high > len(self.labels):
            raise self.fail(
                f"chunk has the code {low if low < 0 else high}, expected 0 to {len(self.labels)}"
            )
        labels = np.array(["", *self.labels], object)
        return labels.take(codes.astype(np.intp)).reshape(self.spec.shape)
