"""Pickled chunks of Python objects: reading one runs code that it contains, so its source must be trusted.

Spec     numcodecs' documentation, "Pickle"
v3 name  numcodecs.pickle
v2 id    pickle (a filter of "|O" arrays)
Example  {"name": "numcodecs.pickle", "configuration": {"protocol": 5}}

Refused unless the array is opened or created with `allow_pickle=True`; nothing in a store or in the
environment can allow it.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from zstore.codecs.base import ChunkSpec, Option, Serializer, integer
from zstore.codecs.objects import check_objects
from zstore.errors import UnsupportedError


@dataclass(frozen=True)
class Pickle(Serializer):
    """The serializer of pickled chunks; `protocol` is pickle's."""

    name: ClassVar[str] = "numcodecs.pickle"
    options: ClassVar[tuple[Option, ...]] = (integer("protocol", -1, 5, 5),)

    protocol: int = 5
    spec: ChunkSpec | None = None

    def bind(self, spec: ChunkSpec) -> Self:
        check_objects(self.name, spec)
        if not spec.allow_pickle:
            raise UnsupportedError(
                f"codec {self.name!r} runs code that the chunks hold; where they can be trusted, open the"
                " array with allow_pickle=True",
                codec=self.name,
            )
        return type(self)(self.protocol, spec)

    def encode(self, chunk: np.ndarray[Any, Any]) -> bytes:
        try:
            return pickle.dumps(np.asarray(chunk, order="C"), self.protocol)
        except Exception as error:  # methods of the objects can raise anything
            raise self.fail(f"{type(error).__name__}: {error}") from error

    def decode(self, data: memoryview) -> np.ndarray[Any, Any]:
        assert self.spec is not None and self.spec.allow_pickle, "bound before use"
        stream = io.BytesIO(data)
        try:
            chunk = pickle.load(stream)
        except Exception as error:  # code in a damaged pickle can raise anything
            raise self.fail(f"{type(error).__name__}: {error}") from error
        if stream.tell() != len(data):
            raise self.fail(f"the pickle ends after {stream.tell()} of {len(data)} bytes")
        shapes = (self.spec.shape, self.spec.shape[::-1])
        if not isinstance(chunk, np.ndarray) or chunk.shape not in shapes or chunk.dtype.kind != "O":
            what = (
                f"{chunk.dtype} of shape {chunk.shape}"
                if isinstance(chunk, np.ndarray)
                else type(chunk).__name__
            )
            raise self.fail(f"chunk is {what}, expected objects of shape {self.spec.shape}")
        # zarr-python 2 pickles a chunk of order F as an F-ordered array, of the reverse of this shape.
        return chunk.reshape(-1, order="A").reshape(self.spec.shape)
