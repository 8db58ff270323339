"""The codec "transpose"."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from zstore.codecs.base import ChunkSpec
from zstore.codecs.transpose import Transpose
from zstore.errors import MetadataError
from zstore.testing.chunk_codecs import ArrayCodecContract


class TestTranspose(ArrayCodecContract):
    specs = tuple(
        ChunkSpec(shape, np.dtype(name), np.dtype(name).type(0))
        for name in ("u1", "i4", "c16")
        for shape in ((2, 3, 4), (0, 1, 2), (1, 1, 5))
    )

    def make(self):
        return Transpose((2, 0, 1))


@pytest.mark.parametrize("order", [*permutations(range(3)), (0,), (), (1, 0), (3, 1, 0, 2)])
def test_dimension_i_of_the_encoded_is_dimension_order_i(order):
    shape = tuple(range(2, 2 + len(order)))
    chunk = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    spec = ChunkSpec(shape, chunk.dtype, chunk.dtype.type(0))
    codec = Transpose.from_configuration({"order": list(order)}).bind(spec)
    encoded = codec.encode(chunk)
    assert encoded.shape == codec.encoded_spec(spec).shape == tuple(shape[i] for i in order)
    np.testing.assert_array_equal(encoded, np.transpose(chunk, order))
    np.testing.assert_array_equal(codec.decode(encoded), chunk, strict=True)
    assert codec.to_configuration() == {"order": list(order)}


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"order": "C"},
        {"order": "F"},
        {"order": [0, 0]},
        {"order": [1, 2]},
        {"order": [-1, 0]},
        {"order": 1},
        {"order": [True, False]},
        {"order": [0.0, 1.0]},
        {"order": [1, 0], "x": 1},
        {"order": None},
        {"order": ["0"]},
    ],
)
def test_configurations_that_mean_nothing(configuration):
    with pytest.raises(MetadataError, match="transpose"):
        Transpose.from_configuration(configuration)


def test_another_number_of_dimensions_is_refused():
    with pytest.raises(MetadataError, match="orders 2 dimensions, the chunk has 3"):
        Transpose((1, 0)).bind(ChunkSpec((1, 2, 3), np.dtype("i4"), np.int32(0)))
