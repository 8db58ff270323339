"""The contract of resampling methods, as a test class to inherit from.

    from zstore.testing.resamplers import ResamplerContract

    class TestMyMethod(ResamplerContract):
        method = "acme.middle"

The package must be installed, for zstore to find the method by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from zstore.extensions.registry import resamplers
from zstore.nodes.open import create_group, open_array
from zstore.plugin.pyramids import build_pyramid
from zstore.plugin.resamplers import downsample
from zstore.storage.memory import MemoryStore
from zstore.testing.contract import Contract, needs

__all__ = ["ResamplerContract"]

Cells = np.ndarray[Any, Any]

SHAPES = (((7,), (2,)), ((8, 6), (2, 3)), ((9, 5), (4, 4)), ((1, 1), (3, 2)), ((3, 8, 9), (1, 2, 2)))
"""Shapes and factors to test; some windows are cut at the edges."""


class ResamplerContract(Contract):
    """The tests of a resampling method: inherit and define `method`."""

    # The name that the method is offered under.
    method: str
    # The dtypes to test.
    dtypes: ClassVar[tuple[str, ...]] = ("uint8", "int16", "float32", "float64")
    # Whether each cell depends only on its own window of `factors` cells, as it must for plugins: pyramids
    # are made piece by piece.
    has_own_windows: ClassVar[bool] = True

    def samples(self) -> Iterator[tuple[Cells, tuple[int, ...]]]:
        """Arrays to resample, with factors."""
        draw = np.random.default_rng(5)
        for dtype in self.dtypes:
            for shape, factors in SHAPES:
                yield draw.integers(1, 100, shape).astype(dtype), factors

    def make(self) -> Any:
        """An instance of the offered class."""
        return resamplers.resolve(self.method)()

    def test_the_result_has_a_cell_for_each_window(self) -> None:
        for cells, factors in self.samples():
            made = self.make()(cells, factors)
            assert made.dtype == cells.dtype
            assert made.shape == tuple(-(-n // f) for n, f in zip(cells.shape, factors, strict=True))
            assert np.array_equal(downsample(cells, factors, self.method), made)

    def test_out_takes_the_result(self) -> None:
        for cells, factors in self.samples():
            expected = self.make()(cells, factors)
            out = np.zeros(expected.shape, expected.dtype)
            assert self.make()(cells, factors, out=out) is out
            assert np.array_equal(out, expected)

    def test_how_cells_lie_in_memory_does_not_matter(self) -> None:
        for cells, factors in self.samples():
            expected = self.make()(cells, factors)
            fixed = cells.copy()
            fixed.flags.writeable = False
            swapped = cells.astype(cells.dtype.newbyteorder(">"))
            spread = np.repeat(cells, 2, axis=-1)[..., ::2]
            for other in (fixed, np.asfortranarray(cells), swapped, spread):
                assert np.array_equal(self.make()(other, factors), expected)
            assert np.array_equal(fixed, cells)

    def test_a_window_of_nothing_but_nodata_gives_nodata(self) -> None:
        for cells, factors in self.samples():
            window = tuple(slice(0, factor) for factor in factors)
            for nodata in (7, np.nan) if cells.dtype.kind == "f" else (7,):
                for place in (window, ...) if self.has_own_windows else (...,):
                    holed = cells.copy()
                    holed[place] = nodata
                    made = self.make()(holed, factors, nodata=nodata)
                    expected = np.asarray(nodata, cells.dtype)
                    assert np.array_equal(made[(0,) * made.ndim], expected, equal_nan=nodata != 7)

    @needs("has_own_windows")
    def test_windows_lie_side_by_side(self) -> None:
        for cells, factors in self.samples():
            made = self.make()(cells, factors)
            for place in np.ndindex(made.shape):
                window = cells[tuple(slice(i * f, (i + 1) * f) for i, f in zip(place, factors, strict=True))]
                alone = self.make()(window, factors)
                assert alone.shape == (1,) * cells.ndim
                assert alone.item() == made[place], place

    def test_threads_share_an_instance(self) -> None:
        method, samples = self.make(), [*self.samples()]
        expected = [method(cells, factors) for cells, factors in samples]

        def work(_: int) -> bool:
            made = [method(cells, factors) for cells, factors in samples]
            return all(map(np.array_equal, made, expected))

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(16)))

    def test_a_pyramid_is_made_by_it(self) -> None:
        cells = np.random.default_rng(5).integers(1, 100, (70, 50)).astype(self.dtypes[-1])
        source = create_group(MemoryStore())
        source.create_array("v", data=cells, chunks=(16, 16), dimension_names=("y", "x"))
        made = build_pyramid(source, MemoryStore(), levels=2, method=self.method).store
        once = open_array(made, "1/v", mode="r")[...]
        assert np.array_equal(once, downsample(cells, (2, 2), self.method))
        assert open_array(made, "2/v", mode="r").shape == (18, 13)
