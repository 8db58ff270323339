"""What the bytes codecs that run native code share: a capsule, and typed errors around calling it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from zstore._ext.codecs import native
from zstore.codecs.base import BytesCodec
from zstore.errors import ChecksumError, CodecError, MetadataError

__all__ = ["NativeCodec", "Options"]


class NativeCodec(BytesCodec):
    """A bytes codec whose encoding and decoding is done by the native codec in its capsule."""

    def __init__(self) -> None:
        self._capsule = self._make_capsule()

    @abstractmethod
    def _make_capsule(self) -> object:
        """The capsule for this codec's options."""

    def __zstore_codec__(self) -> object:
        """The capsule named "zstore.codec.v1" that the engine calls without the GIL."""
        return self._capsule

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_capsule"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._capsule = self._make_capsule()

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.to_configuration().items())
        return f"{type(self).__name__}({options})"

    def encode(self, data: memoryview) -> bytes | memoryview:
        """The encoded bytes."""
        try:
            return native.encode(self._capsule, data)
        except (BufferError, RuntimeError) as error:
            raise CodecError(
                f"codec {self.name!r} failed to encode {memoryview(data).nbytes} bytes: {error}",
                codec=self.name,
            ) from error

    def decode(self, data: memoryview, size_limit: int) -> bytes | memoryview:
        """The bytes as they were before `encode`, never more than `size_limit` of them."""
        try:
            return native.decode(self._capsule, data, size_limit)
        except ArithmeticError as error:
            raise ChecksumError(f"codec {self.name!r} failed: {error}", codec=self.name) from error
        except (ValueError, BufferError, RuntimeError) as error:
            raise CodecError(
                f"codec {self.name!r} failed to decode {memoryview(data).nbytes} bytes: {error}",
                codec=self.name,
            ) from error

    def encoded_bound(self, size: int) -> int | None:
        """The most bytes that `size` bytes become; None where the codec can't encode so many."""
        return native.encoded_bound(self._capsule, size)


class Options:
    """A codec's configuration, read option by option; what is left over at `end` is an error."""

    def __init__(self, codec: str, configuration: Mapping[str, Any]) -> None:
        if not isinstance(configuration, Mapping):
            raise MetadataError(
                f"codec {codec!r} has configuration {configuration!r}, expected an object", codec=codec
            )
        self._codec = codec
        self._left = dict(configuration)

    def _refuse(self, option: str, value: object, expected: str) -> MetadataError:
        return MetadataError(
            f"codec {self._codec!r} has {option} {value!r}, expected {expected}", codec=self._codec
        )

    def take(self, option: str, default: Any = ...) -> Any:
        """The option as it stands there; without a default it must be there."""
        if option not in self._left and default is ...:
            raise MetadataError(f"codec {self._codec!r} lacks the option {option!r}", codec=self._codec)
        return self._left.pop(option, default)

    def integer(self, option: str, low: int, high: int, default: Any = ...) -> int:
        """The option, an integer from `low` to `high`."""
        value = self.take(option, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._refuse(option, value, f"an integer from {low} to {high}")
        return value

    def flag(self, option: str, default: Any = ...) -> bool:
        """The option, true or false."""
        value = self.take(option, default)
        if not isinstance(value, bool):
            raise self._refuse(option, value, "true or false")
        return value

    def choice(self, option: str, choices: tuple[str, ...], default: Any = ...) -> str:
        """The option, one of `choices`."""
        value = self.take(option, default)
        if not isinstance(value, str) or value not in choices:
            raise self._refuse(option, value, "one of " + ", ".join(map(repr, choices)))
        return value

    def end(self) -> None:
        """Refuse the options that nobody took."""
        if self._left:
            names = ", ".join(map(repr, sorted(map(str, self._left))))
            raise MetadataError(f"codec {self._codec!r} has unknown options: {names}", codec=self._codec)
