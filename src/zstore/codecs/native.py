"""The base of bytes codecs that run native code: it keeps their capsule and converts their errors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from zstore._ext.codecs import native
from zstore.codecs.base import BytesCodec, failure
from zstore.errors import ChecksumError


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
