"""Grids: where chunks begin and end."""

from __future__ import annotations

import json

import numpy as np
import pytest

from zstore.errors import MetadataError, UnsupportedError
from zstore.model import v2, v3
from zstore.model.grid import Edges, RectilinearGrid, RegularGrid
from zstore.nodes.create import ArrayRequest

SHAPE = (6, 6, 6, 6, 6)
EXAMPLE = [4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [4, 4, 4]]


def test_the_example_of_the_specification():
    grid = RectilinearGrid.parse(EXAMPLE, SHAPE)
    assert [grid.lengths(d, 100 if d == 9 else 6) for d in range(5)] == [
        (4, 2),
        (1, 2, 3),
        (4, 2),
        (1, 1, 1, 3),
        (4, 2),
    ]
    assert grid.count(SHAPE) == (2, 3, 2, 4, 2)
    assert grid.chunk_shape == (4, 3, 4, 3, 4)
    assert grid.render() == [4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [[4, 3]]]
    assert RectilinearGrid.parse(grid.render(), SHAPE) == grid


@pytest.mark.parametrize(
    "value", [5, [1, 2, 3, 4], [[3, 2], 4, [1, 5]], [10], [[1, 10]], [2, 2, 2, 2, 2, 99]]
)
def test_places_of_positions(value):
    (edge,) = RectilinearGrid.parse([value], (10,)).edges
    lengths = [value] * 2 if isinstance(value, int) else []
    for item in value if isinstance(value, list) else []:
        lengths += [item[0]] * item[1] if isinstance(item, list) else [item]
    expected = [(place, k) for place, length in enumerate(lengths) for k in range(length)]
    places, inside = edge.locate(np.arange(10))
    assert list(zip(places.tolist(), inside.tolist(), strict=True)) == expected[:10]
    starts = [0, *np.cumsum(lengths).tolist()]
    assert [edge.start(place) for place in range(len(starts))] == starts
    assert [edge.length(place) for place in range(len(lengths))] == lengths
    assert [edge.count(n) for n in range(11)] == [0, *(expected[n][0] + 1 for n in range(10))]


def test_runs_of_any_length_cost_nothing():
    (edge,) = RectilinearGrid.parse([[[1, 2**62], [2**40, 2**62]]], (2**63 - 1,)).edges
    places, inside = edge.locate(np.array([0, 2**62 - 1, 2**62 + 2**41 + 5]))
    assert places.tolist() == [0, 2**62 - 1, 2**62 + 2]
    assert inside.tolist() == [0, 0, 5]
    step = Edges.step(3)
    assert step.count(2**63 - 1) == (2**63 - 1 + 2) // 3
    assert step.start(2**60) == 3 * 2**60


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [[1, 2]],
        [6, 6, 6],
        [0, 6],
        [-1, 6],
        [[], 6],
        [[0, 6], 6],
        [[[3, 0], 6], 6],
        [[[3, 2, 1]], 6],
        [[[[3, 2]]], 6],
        [[2, 3], 6],
        [True, 6],
        [2.0, 6],
        ["4", 6],
        [[[4, True]], 6],
        [2**63, 6],
    ],
)
def test_values_that_are_no_grid(value):
    with pytest.raises(MetadataError, match="chunk_shapes"):
        RectilinearGrid.parse(value, (6, 6))


def test_growing_adds_a_chunk_and_shrinking_keeps_them():
    grid = RectilinearGrid.parse([[2, 4], [[3, 2]], 4], (6, 6, 6))
    assert grid.grown((5, 1, 1)) == grid
    assert grid.grown((7, 9, 99)).render() == [[2, 4, 1], [[3, 3]], 4]
    assert RegularGrid((2, 3)).grown((9, 9)) == RegularGrid((2, 3))


def document(**changes):
    model = ArrayRequest(shape=(6, 6), dtype="i4", chunks=[[1, 2, 3], 4]).model()
    return {**v3.render_array(model)["zarr.json"], **changes}


def test_documents():
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[1, 2, 3], 4]}}
    assert document()["chunk_grid"] == grid
    model = v3.parse_array({"zarr.json": json.loads(json.dumps(document()))}, path="a")
    assert model.grid.render() == [[1, 2, 3], 4]
    assert v3.render_array(model)["zarr.json"] == document()


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"kind": "inline"},
        {"kind": "reference", "chunk_shapes": [6, 6]},
        {"kind": "inline", "chunk_shapes": [6, 6], "x": 1},
        {"kind": "inline", "chunk_shapes": [6, [2, 2]]},
        {"kind": "inline", "chunk_shapes": [2**62, 2**62]},
    ],
)
def test_documents_that_mean_nothing(configuration):
    grid = {"name": "rectilinear", "configuration": configuration}
    with pytest.raises(MetadataError, match=r"chunk_grid|chunk_shapes|bytes"):
        v3.parse_array({"zarr.json": document(chunk_grid=grid)}, path="a")


@pytest.mark.parametrize(
    ("chunks", "rendered"),
    [
        ([[1, 2, 3], [4, 2]], [[1, 2, 3], [4, 2]]),
        ([[1, 2, 3], 4], [[1, 2, 3], 4]),
        (((1, 2, 3), -1), [[1, 2, 3], 6]),
        ([[[2, 3]], None], [[[2, 3]], 6]),
        ([np.array([1, 5]), np.int64(2)], [[1, 5], 2]),
        (np.array([[4, 2], [3, 3]]), [[4, 2], [[3, 2]]]),
        ([[6], [6]], [[6], [6]]),
        ([[4, 4], 3], [[[4, 2]], 3]),
    ],
)
def test_chunks_as_arguments(chunks, rendered):
    assert ArrayRequest(shape=(6, 6), dtype="i4", chunks=chunks).model().grid.render() == rendered


@pytest.mark.parametrize(
    ("shape", "chunks", "shards"),
    [
        ((10000, 10000), (100, 100), (700, 700)),
        ((6, 6), (4, 5), (8, 10)),
        ((6, 6), -1, (6, 6)),
        ((6, 0), (4, 5), (8, 5)),
        ((9, 9000), (2000, 1000), (2000, 1000)),
        ((), (), ()),
    ],
)
def test_shards_are_guessed_in_whole_chunks(shape, chunks, shards):
    model = ArrayRequest(shape=shape, dtype="i2", chunks=chunks, shards="auto").model()
    assert model.grid.chunk_shape == shards


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": [[1, 2], [6]]},
        {"chunks": [[1, 5]]},
        {"chunks": [[6], [6], [6]]},
        {"chunks": [[6], "auto"]},
        {"chunks": [[6], []]},
        {"chunks": [[1, 5], 6], "shards": (6, 6)},
        {"chunks": "auto", "shards": [[2, 4], 6]},
        {"chunks": (2, 2), "shards": [[3, 3], 6]},
    ],
)
def test_arguments_that_make_no_grid(options):
    with pytest.raises(MetadataError, match=r"chunks|shards"):
        ArrayRequest(shape=(6, 6), dtype="i4", **options).model()


def test_zarr_v2_has_chunks_of_one_shape():
    with pytest.raises(UnsupportedError, match="only v3 has chunks of several shapes"):
        ArrayRequest(shape=(6,), dtype="i4", chunks=[[1, 5]], zarr_format=2).model()
    uneven = ArrayRequest(shape=(6,), dtype="i4", chunks=[[1, 5]], chunk_key_encoding=("v2", ".")).model()
    with pytest.raises(UnsupportedError, match="cannot be said in Zarr v2"):
        v2.render_array(uneven)
