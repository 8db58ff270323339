"""Windows copied out of blocks, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zstore._ext.engine.gather import gather


def cut(array: np.ndarray[Any, Any], borders: tuple[np.ndarray[Any, Any], ...]) -> list[np.ndarray[Any, Any]]:
    """The blocks of an array, in the order of their numbers."""
    cells = np.ndindex(*(len(along) - 1 for along in borders))
    boxes = [
        tuple(slice(along[n], along[n + 1]) for along, n in zip(borders, cell, strict=True)) for cell in cells
    ]
    return [np.ascontiguousarray(array[(*box, ...)]) for box in boxes]


@pytest.mark.parametrize("dtype", ["u1", ">i4", "f8", "V3", "S12", "c16"])
def test_windows_are_numpys(dtype: str) -> None:
    rng = np.random.default_rng(len(dtype))
    for _ in range(25):
        ndim = int(rng.integers(0, 4))
        shape = tuple(int(n) for n in rng.integers(1, 12, ndim))
        items = int(np.prod(shape)) * np.dtype(dtype).itemsize
        array = np.frombuffer(rng.bytes(items), dtype).reshape(shape)
        borders = tuple(
            np.unique([0, n, *rng.integers(0, n + 1, rng.integers(0, 4))]).astype(np.int64) for n in shape
        )
        window = tuple(int(rng.integers(1, n + 1)) for n in shape)
        count = int(rng.integers(0, 9))
        starts = np.array(
            [[rng.integers(0, n - m + 1) for n, m in zip(shape, window, strict=True)] for _ in range(count)],
            np.int64,
        ).reshape(count, ndim)
        blocks = cut(array, borders)
        if ndim:  # with strides
            out = np.zeros((count, *window[:-1], window[-1] * 2), dtype)[..., ::2]
        else:
            out = np.zeros(count, dtype)
        raw = [block.reshape(-1).view("u1") for block in blocks]
        gather(raw, np.arange(len(blocks)), borders, starts, out.view(f"V{out.itemsize}"))
        for n, start in enumerate(starts):
            box = tuple(slice(a, a + length) for a, length in zip(start, window, strict=True))
            assert out[n, ...].tobytes() == array[(*box, ...)].tobytes()


def test_windows_without_items_are_copied_from_nowhere() -> None:
    borders = (np.array([0, 2, 5]), np.array([0, 0]))
    gather([], np.zeros(0, np.int64), borders, np.array([[1, 0]]), np.zeros((1, 3, 0), "V4"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": [[3, 0]]}, "window 0 lies outside the grid"),
        ({"starts": [[0, 0], [-1, 0]]}, "window 1 lies outside the grid"),
        ({"starts": [[2**63 - 1, 0]]}, "outside the grid"),
        ({"numbers": [0, 2]}, "block 2 has 24 bytes"),
        ({"numbers": [-1, 1]}, "block -1 has 24 bytes"),
        ({"numbers": [0], "blocks": 1, "starts": [[1, 0]]}, "window 0 lies in block 1, which is not there"),
        ({"numbers": [0]}, "2 blocks have 1 numbers"),
        ({"borders": ([0, 5, 4], [0, 3])}, "do not ascend"),
        ({"borders": ([], [0, 3])}, "no borders"),
        ({"borders": ([0, 2, 4],)}, "expected those of 1 borders"),
        ({"out": (2, 2, 3)}, "1 starts"),
    ],
)
def test_what_does_not_fit_is_an_error(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"borders": ([0, 2, 4], [0, 3]), "numbers": [0, 1], "starts": [[0, 0]], **change}
    starts = np.array(given["starts"], np.int64)
    blocks = [np.zeros(24, "u1")] * given.get("blocks", 2)
    out = np.zeros(given.get("out", (len(starts), 2, 3)), "i4")
    borders = tuple(np.array(one, np.int64) for one in given["borders"])
    with pytest.raises(ValueError, match=message):
        gather(blocks, np.array(given["numbers"], np.int64), borders, starts, out)
    with pytest.raises(TypeError, match="int64 in 2 dimensions"):
        gather(blocks, np.array([0, 1]), borders, starts.astype("i4"), out)
