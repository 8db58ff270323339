"""Whatever can be read by boxes is converted, rechunked and reduced as stored arrays are."""

from __future__ import annotations

import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import zstore
from zstore.base.boxes import places
from zstore.base.byterange import ByteRange
from zstore.errors import ChangedError, NotFoundError, ReadOnlyError
from zstore.jobs.chunks import as_array, source_of
from zstore.jobs.source import Box, ChunkSet, Shape, Source
from zstore.model.grid import Edges, Grid, RectilinearGrid, RegularGrid


class Indices(Source):
    """A function of indices, which no store holds: 1000 times the row, and the column."""

    def __init__(self, shape: Shape, grid: Grid, dtype: Any = "f8", version: str = "1") -> None:
        self._shape, self._grid, self._dtype = shape, grid, np.dtype(dtype)
        self.text = version
        self.boxes: list[Box] = []

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def grid(self) -> Grid:
        return self._grid

    @property
    def url(self) -> str:
        return "function://indices"

    def version(self) -> str:
        return self.text

    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        self.boxes.append(box)
        items = sum(
            np.arange(side.start, side.stop).reshape([-1 if d == axis else 1 for d in range(len(box))])
            * 1000 ** (len(box) - 1 - axis)
            for axis, side in enumerate(box)
        )
        made = np.empty([side.stop - side.start for side in box], self._dtype) if out is None else out
        made[...] = items
        return made

    def whole(self) -> np.ndarray[Any, Any]:
        """All items."""
        return Indices(self._shape, self._grid, self._dtype).read(tuple(slice(0, n) for n in self._shape))


GRIDS = [
    ((30, 41), RegularGrid((7, 10))),
    ((30, 41), RectilinearGrid((Edges([(4, 5), (10, 1)]), Edges([(41, 1)])))),
    ((0, 5), RegularGrid((3, 5))),
    ((), RegularGrid(())),
]


@pytest.mark.parametrize("dtype", ["f8", ">i2", "M8[s]"])
@pytest.mark.parametrize(("shape", "grid"), GRIDS)
def test_a_source_is_written_elsewhere(shape: Shape, grid: Grid, dtype: str, tmp_path: Path) -> None:
    source = Indices(shape, grid, dtype)
    for number, options in enumerate([{}, {"chunks": (5,) * len(shape)}, {"chunks": (41,), "shards": None}]):
        if len(options.get("chunks", ())) <= len(shape):
            made = zstore.convert(source, tmp_path / str(number), memory=1 << 20, check=True, **options)
            assert isinstance(made, zstore.Array) and made.dtype == source.dtype.newbyteorder("=")
            np.testing.assert_array_equal(made[...], source.whole())
    if isinstance(grid, RegularGrid) and shape:
        assert zstore.open_array(tmp_path / "0").chunks == grid.chunk_shape


def test_a_source_goes_by_way_of_scratch(tmp_path: Path) -> None:
    source = Indices((256, 256), RegularGrid((256, 1)))
    estimate: Any = zstore.convert(source, tmp_path / "t", chunks=(1, 256), memory=200_000, dry_run=True)
    made = zstore.convert(source, tmp_path / "t", chunks=(1, 256), memory=200_000)
    assert isinstance(made, zstore.Array) and estimate.scratch_size == source.whole().nbytes
    np.testing.assert_array_equal(made[...], source.whole())
    # Of each chunk of the source, nothing is read twice.
    assert (
        sum(len(range(*b[0].indices(256))) * len(range(*b[1].indices(256))) for b in source.boxes) == 256**2
    )


@pytest.mark.parametrize(("shape", "grid"), GRIDS[:2])
def test_a_source_is_reduced(shape: Shape, grid: Grid, tmp_path: Path) -> None:
    source = Indices(shape, grid, ">i4")
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(zstore.reduce(source, "sum", axis), source.whole().sum(axis))
    made = zstore.reduce(source, "max", 1, out=tmp_path / "max")
    np.testing.assert_array_equal(made[...], source.whole().max(1))


class Described(Indices):
    """Indices with a name, names of dimensions and attributes."""

    name = "group/index"
    dimension_names = ("y", "x")
    attributes: ClassVar[dict[str, Any]] = {"scale_factor": 0.5, "_FillValue": 2}


def test_places_of_a_grid_are_gone_along_without_a_list_of_them() -> None:
    for counts in ((), (4,), (2, 3, 4), (3, 0), (1 << 17,), (2, (1 << 16) + 1)):
        assert [*places(counts)] == [*product(*map(range, counts))]
    whole = ChunkSet((3, 1 << 62, 2), None)
    assert [*islice(whole, 3)] == [*islice(places(whole.counts), 3)] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]
    assert [*islice(whole.units((1, 2, 2), whole), 2)] == [(0, 0, 0, -1), (0, 1, 0, -1)]


def test_names_and_attributes_of_a_source_go_along(tmp_path: Path) -> None:
    source = Described((3, 4), RegularGrid((2, 2)), ">i2")
    made = zstore.convert(source, tmp_path / "t", zarr_format=2)
    assert isinstance(made, zstore.Array) and made.dims == ("y", "x") and made.compressors
    assert made.attrs.asdict() == source.attributes
    means = [zstore.reduce(one, "mean", "x", unpack=True) for one in (source, made)]
    np.testing.assert_array_equal(*means)
    assert means[0][0] == (0 + 1 + 3) * 0.5 / 3
    reduced = zstore.reduce(source, "max", "y", out=tmp_path / "max")
    assert isinstance(reduced, zstore.Array) and reduced.dims == ("x",)


@pytest.mark.parametrize(("shape", "grid"), GRIDS)
def test_a_source_is_read_as_an_array(shape: Shape, grid: Grid) -> None:
    source = Indices(shape, grid, ">i4")
    array = as_array(source)
    np.testing.assert_array_equal(array[...], source.whole())
    again = pickle.loads(pickle.dumps(array.store))
    assert sorted(again.list()) == sorted(array.store.list())
    np.testing.assert_array_equal(zstore.open_array(again, "data")[...], source.whole())
    assert source_of(array) is source
    [chunk, *_] = [*[key for key in again.list() if "/c" in key], None]
    if chunk is not None:
        value = bytes(again.get(chunk) or b"")
        assert again.get(chunk, ByteRange(0, 2)) == value[:2] and again.size(chunk) == len(value)
        assert chunk in again.list(chunk.rpartition("/")[0]) and chunk not in again.list("data/c/1")
    for change in (again.delete, lambda key: again.put(key, b"")):
        with pytest.raises(ReadOnlyError):
            change("data/zarr.json")
    assert again.get("data/c/99/99") is again.get("nothing/c/0") is again.get("data/c/x") is None


def test_a_source_goes_to_other_processes(tmp_path: Path) -> None:
    source = Indices((30, 41), RegularGrid((7, 10)))
    assert pickle.loads(pickle.dumps(source)).whole().tolist() == source.whole().tolist()
    with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        made = zstore.convert(source, tmp_path / "t", chunks=(10, 7), executor=pool)
        assert isinstance(made, zstore.Array)
        total = zstore.reduce(source, "sum", executor=pool)
    assert total == made[...].sum() == source.whole().sum()


def test_a_source_that_changes_makes_no_target(tmp_path: Path) -> None:
    class Changing(Indices):
        def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
            self.text = "2"
            return super().read(box, out)

    for make in (zstore.convert, lambda s, t: zstore.reduce(s, "sum", 0, out=t)):
        source = Changing((30, 41), RegularGrid((7, 10)))
        with pytest.raises(ChangedError, match="changed while it was read") as raised:
            make(source, tmp_path / "t")
        assert "function://indices" in str(raised.value)
        with pytest.raises(NotFoundError):
            zstore.open(tmp_path / "t")
        shutil.rmtree(tmp_path / "t")
