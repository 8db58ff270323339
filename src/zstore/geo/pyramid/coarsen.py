"""Views of arrays at a whole fraction of their resolution, by the methods of pyramids' levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zstore.base.boxes import Box, Items, Shape, lengths
from zstore.base.once import once
from zstore.geo.pyramid.carried import Meant, carried_of
from zstore.geo.pyramid.dataset import PlaceLike, open_only_array
from zstore.geo.resampling.methods import downsample, plan_part
from zstore.jobs.chunks import source_of
from zstore.jobs.plan import name_job
from zstore.jobs.source import Source
from zstore.model.grid import RegularGrid
from zstore.model.packing import fit_nodata, with_one_nodata
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.views.made import MadeBy, MadeSource, origin_of
from zstore.views.view import View, view


def coarsen(
    source: Array | Group | Source | PlaceLike,
    factors: int | Sequence[int] | Mapping[str, int],
    resampling: str = "average",
    *,
    nodata: Any = None,
) -> View:
    """A view of an array with cells that are whole multiples of its own, as levels of a pyramid are.

    Reading a box of it reads the items under the box, and those around it that the method weighs.

    source      an array, a group of one array, a view, or an address of one
    factors     of rows and columns, one or (y, x); or one for each dimension, or by their names
    resampling  a method of `zstore.downsample`
    nodata      of a source without it: the value that is left out

    The grid and the nodata are carried. Coordinates along other dimensions are where their factor is 1.

    Shapes
        ceil(n / factor) along each dimension.
    Raises
        TypeError: the method does not take the data type.
        ValueError: no such factors, or nodata that the type cannot hold.
        UnsupportedError: a method of a plugin's, or a group with a mask.
        UnknownExtensionError: nobody offers the method.
    """
    array = open_only_array(source, "coarsen")
    meant = carried_of(array)
    y, x = (array.ndim - 2, array.ndim - 1) if meant.ground is None else meant.ground.axes
    hole, others = meant.variable.nodata, meant.variable.other_nodata
    if nodata is not None:
        hole, others = fit_nodata(nodata, array.dtype), ()
    whole = _whole_factors(factors, meant.dimensions, (y, x))
    made = Coarse(source_of(array), whole, resampling, hole, others, array, meant)
    # What does not go together is refused here, by one cell.
    if 0 not in made.shape:
        made.read(tuple(slice(0, 1) for _ in made.shape), of=np.zeros)
    return view(made)


def _whole_factors(factors: Any, names: Sequence[str], axes: tuple[int, int]) -> tuple[int, ...]:
    """One factor for each dimension, of those that a caller says for some.

    Raises
        ValueError: there is no dimension of a name, or the number of factors is another.
    """
    if isinstance(factors, Mapping):
        if unknown := [name for name in factors if name not in names]:
            raise ValueError(f"factors name {unknown[0]!r}; the dimensions are {', '.join(names)}")
        return tuple(factors.get(name, 1) for name in names)
    pair = (factors, factors) if isinstance(factors, int) else tuple(factors)
    if len(pair) == len(names) and not isinstance(factors, int):
        return pair
    if len(pair) != 2:
        expected = f"expected one, two of rows and columns, or {len(names)}, for {tuple(names)}"
        raise ValueError(f"factors is {factors!r}; {expected}")
    return tuple(pair[axes.index(axis)] if axis in axes else 1 for axis in range(len(names)))


def make_coarse(source: Any, factors: Any, resampling: str, nodata: Any) -> Source:
    """The source of views that a document describes."""
    return coarsen(view(source), [*map(int, factors)], resampling, nodata=nodata)


@dataclass(frozen=True, repr=False)
class Coarse(MadeSource):
    """An array at a whole fraction of its resolution, made when a box is read.

    nodata  the value that is left out
    others  further ones, which coarser cells have `nodata` for
    array   the source, as `carried_of` describes it; `origin` is its meaning
    """

    source: Source
    factors: tuple[int, ...]
    method: str
    nodata: Any
    others: tuple[int | float, ...]
    array: Any = field(compare=False, repr=False)
    origin: Meant = field(compare=False, repr=False)

    def making(self) -> MadeBy:
        options = {"factors": self.factors, "resampling": self.method, "nodata": self.nodata}
        return MadeBy("coarsen", options, (origin_of(self.array),))

    @property
    def shape(self) -> Shape:
        return tuple(
            -(-n // max(1, factor)) for n, factor in zip(self.source.shape, self.factors, strict=True)
        )

    @property
    def grid(self) -> RegularGrid:
        chunks = zip(self.source.grid.chunk_shape, self.factors, strict=True)
        return RegularGrid(tuple(max(1, -(-length // max(1, factor))) for length, factor in chunks))

    @property
    def url(self) -> str:
        return f"coarse:{self.source.url}#{name_job(self.describe())}"

    def describe(self) -> dict[str, str]:
        said = [*self.factors, self.method, repr(self.nodata), *self.others]
        return {**self.source.describe(), "coarsen": repr(said)}

    @once
    def meant(self) -> Meant:
        """The meaning of the coarser cells."""
        origin, ground = self.origin, self.origin.ground
        if ground is not None and ground.affine is not None:
            y, x = (self.factors[axis] for axis in ground.axes)
            ground = replace(ground, affine=ground.affine.scaled((y, x)))
        coordinates = {
            name: one
            for name, one in origin.coordinates.items()
            if all(self.factors[axis] == 1 for axis in one.axes)
        }
        bands = origin.variable.bands
        if origin.band_axis is not None and self.factors[origin.band_axis] > 1:
            bands = ()
        variable = replace(
            origin.variable, bands=bands, nodata=self.nodata, other_nodata=(), dtype=self.dtype
        )
        return replace(
            origin, shape=self.shape, variable=variable, ground=ground, coordinates=coordinates
        )  # fmt: skip

    def read(self, box: Box, out: Items | None = None, of: Any = None) -> Items:
        """The items of a box; `of(shape, dtype)` makes the source's items if given, else they are read."""
        made = np.empty(lengths(box), self.dtype) if out is None else out
        if made.size:
            part = plan_part(self.source.shape, self.factors, self.method, box)
            shape, dtype = lengths(part.source), self.source.dtype
            items = self.source.read(part.source) if of is None else of(shape, dtype)
            items = with_one_nodata(items, self.nodata, self.others)
            made[...] = downsample(items, self.factors, self.method, nodata=self.nodata, part=part)
        return made
