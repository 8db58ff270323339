"""What HDF5 and TIFF do before they compress, by the kernels: as numpy and numcodecs do it."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from zstore._ext.codecs import native

rng = np.random.default_rng(3)


@pytest.mark.parametrize("item", [1, 2, 3, 4, 8, 16, 255, 256, 300])
@pytest.mark.parametrize("count", [0, 1, 7, 16, 1003])
def test_shuffle(item, count):
    data = rng.bytes(item * count)
    capsule = native.shuffle(item)
    turned = np.frombuffer(data, "u1").reshape(-1, item).T.tobytes()
    assert native.encode(capsule, data) == turned
    assert native.decode(capsule, turned, len(data)) == data
    if count and item > 1:
        assert bytes(numcodecs.Shuffle(item).encode(data)) == turned


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", "<i4", ">i4", "<u8", ">u8"])
@pytest.mark.parametrize(("row", "distance"), [(1, 1), (11, 1), (33, 3), (64, 64), (2, 5)])
def test_delta(dtype, row, distance):
    items = rng.integers(0, 127, (7, row)).astype(dtype)
    before = np.zeros_like(items)
    before[:, distance:] = items[:, :-distance]
    capsule = native.delta(items.itemsize, row, distance, is_big=dtype[0] == ">")
    encoded = native.encode(capsule, items.tobytes())
    assert encoded == (items - before).astype(dtype).tobytes()
    assert native.decode(capsule, encoded, len(encoded)) == items.tobytes()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
@pytest.mark.parametrize(("row", "distance"), [(1, 1), (11, 1), (33, 3), (64, 64), (2, 40)])
def test_planes(dtype, row, distance):
    items = rng.random((7, row)).astype(dtype)
    planes = items.view("u1").reshape(7, row, -1)[:, :, ::-1].transpose(0, 2, 1).reshape(7, -1)
    before = np.zeros_like(planes)
    before[:, distance:] = planes[:, :-distance]
    capsule = native.planes(items.itemsize, row, distance)
    encoded = native.encode(capsule, items.tobytes())
    assert encoded == (planes - before).tobytes()
    assert native.decode(capsule, encoded, len(encoded)) == items.tobytes()


@pytest.mark.parametrize("capsule", [native.shuffle(4), native.delta(2, 6), native.planes(4, 3)])
def test_what_makes_no_whole_item_or_row_is_damage(capsule):
    for size in (1, 13, 23):
        with pytest.raises(ValueError, match="damaged"):
            native.decode(capsule, bytes(size), 100)
    with pytest.raises(BufferError):
        native.decode(capsule, bytes(24), 23)


def test_options_that_make_no_codec():
    for make in (
        lambda: native.shuffle(0),
        lambda: native.delta(3, 4),
        lambda: native.delta(4, 0),
        lambda: native.delta(4, 4, native.DISTANCE_LIMIT + 1),
        lambda: native.planes(4, 4, 0),
        lambda: native.planes(17, 4),
    ):
        with pytest.raises(ValueError, match="expected"):
            make()
