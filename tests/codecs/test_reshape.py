"""The codec "reshape"."""

from __future__ import annotations

import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.reshape import Reshape
from zstore.errors import MetadataError
from zstore.testing.chunk_codecs import ArrayCodecContract


def bound(shape, chunk_shape) -> Reshape:
    spec = ChunkSpec(chunk_shape, np.dtype("i4"), np.int32(0))
    return Reshape.from_configuration({"shape": shape}).bind(spec)


class TestReshape(ArrayCodecContract):
    specs = (ChunkSpec((2, 3, 4, 3), np.dtype("i4"), np.int32(5)),)

    def make(self):
        return Reshape.from_configuration({"shape": [[0, 1], [2], 3]})


@pytest.mark.parametrize(
    ("shape", "chunk_shape", "expected"),
    [
        ([[0, 1], [2], 3], (100, 50, 64, 3), (5000, 64, 3)),
        ([-1], (2, 3), (6,)),
        ([[0, 1], 10, [3, 4]], (2, 3, 10, 4, 5), (6, 10, 20)),
        ([-1, [1]], (2, 3), (2, 3)),
        ([2, -1, 2], (8, 3), (2, 6, 2)),
        ([], (1, 1), ()),
        ([1, 1], (), (1, 1)),
        ([[], [0]], (4,), (1, 4)),
        ([[0, 2]], (4, 1, 5), (20,)),
    ],
)
def test_shapes(shape, chunk_shape, expected):
    codec = bound(shape, chunk_shape)
    chunk = np.arange(np.prod(chunk_shape, dtype=int), dtype="i4").reshape(chunk_shape)
    encoded = codec.encode(chunk)
    assert encoded.shape == expected
    assert encoded.ravel().tolist() == chunk.ravel().tolist()
    np.testing.assert_array_equal(codec.decode(encoded), chunk, strict=True)


@pytest.mark.parametrize(
    "shape",
    [[[1], [0]], [[1, 0], 10, [3, 4]], [[3, 4], 10, [0, 1]], [-1, -1], [0], [-2], ["a"], [[-1]], 5, [True]],
)
def test_configurations_that_mean_nothing(shape):
    with pytest.raises(MetadataError, match="codec 'reshape'"):
        Reshape.from_configuration({"shape": shape})


@pytest.mark.parametrize(
    ("shape", "chunk_shape"),
    [([7], (2, 3)), ([[0, 1]], (2,)), ([3, [0]], (2, 3)), ([4, -1], (2, 3)), ([[0], 6], (2, 3))],
)
def test_chunks_that_do_not_fit(shape, chunk_shape):
    with pytest.raises(MetadataError, match="codec 'reshape'"):
        bound(shape, chunk_shape)
