"""Bytes and items as zarr-python passes them: `bytes` and numpy arrays, with its methods."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

__all__ = [
    *("ArrayLike", "Buffer", "BufferPrototype", "NDArrayLike", "NDBuffer", "cpu"),
    "default_buffer_prototype",
]

# What reads give.
ArrayLike = NDArrayLike = np.ndarray


class Buffer(bytes):
    """A stored value."""

    @classmethod
    def from_bytes(cls, value: Any) -> Self:
        """The buffer of bytes."""
        return cls(value)

    from_buffer = from_bytes

    @classmethod
    def from_array_like(cls, array: npt.NDArray[Any]) -> Self:
        """The buffer of an array's bytes."""
        return cls(np.ascontiguousarray(array).tobytes())

    def to_bytes(self) -> bytes:
        """The value itself."""
        return bytes(self)

    def as_numpy_array(self) -> npt.NDArray[np.uint8]:
        """The bytes as an array."""
        return np.frombuffer(self, np.uint8)

    as_array_like = as_buffer_like = as_numpy_array


class NDBuffer:
    """Items in memory: a numpy array."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    @classmethod
    def create(
        cls, *, shape: tuple[int, ...], dtype: Any, order: Any = "C", fill_value: Any = None
    ) -> NDBuffer:
        """A new array of zeros, or of a fill value."""
        return cls(np.full(shape, 0 if fill_value is None else fill_value, dtype, order))

    @classmethod
    def from_numpy_array(cls, array: Any) -> NDBuffer:
        """The buffer around an array."""
        return cls(np.asarray(array))

    from_ndarray_like = from_numpy_array

    def as_numpy_array(self) -> npt.NDArray[Any]:
        """The array itself."""
        return self._array

    as_ndarray_like = as_numpy_array


class BufferPrototype(NamedTuple):
    """The classes of the buffers that are wanted, which zstore has one of each of."""

    buffer: type[Buffer] = Buffer
    nd_buffer: type[NDBuffer] = NDBuffer


cpu = BufferPrototype()


def default_buffer_prototype() -> BufferPrototype:
    """The buffers that there are."""
    return cpu
