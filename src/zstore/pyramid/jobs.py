"""What is to be made of each array of a pyramid, and how, settled before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zstore.conventions.model import RESAMPLING_METHODS, GeoModel, Level, Variable
from zstore.conventions.variables import fit_nodata
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.nodes.array import Array
from zstore.nodes.open import open as open_node
from zstore.pyramid.cascade import Pass, Resample
from zstore.pyramid.dataset import Dataset, place_of
from zstore.pyramid.masks import Mask, make_mask
from zstore.pyramid.record import number_of
from zstore.pyramid.sizes import Budget, direct_depth, plan_passes
from zstore.resampling.methods import Resampler, plan_part

__all__ = ["DERIVATIONS", "Cut", "Job", "Wishes", "make_job", "own_tile", "plan_geo"]

DERIVATIONS = ("auto", "base", "cascade")
# Those whose levels differ when made from a level instead of the finest: rounded or chosen twice.
DIRECT = frozenset(("average", "rms", "sum", "mode", "med", "q1", "q3", "nearest"))
# Those of the rest, and of these, that give the same either way where windows are whole.
COMPOSING = frozenset(("max", "min", "nearest"))
# What only means the same for stored values as for those meant where there is no offset, or a positive scale.
SENSITIVE_TO_OFFSET = frozenset(("rms", "sum"))
SENSITIVE_TO_SIGN = frozenset(("rms", "max", "min", "med", "q1", "q3"))


@dataclass(frozen=True)
class Cut:
    """How levels are laid, cut and encoded; (y, x) each. `shards` and `compressors` may be "auto"."""

    factors: tuple[int, int]
    grid: str
    tile: tuple[int, int]
    shards: tuple[int, int] | str | None
    compressors: Any
    zarr_format: int


@dataclass(frozen=True)
class Wishes:
    """What the caller wants of the cells; each for all arrays, or by their names."""

    method: str | Mapping[str, str] = "average"
    nodata: Any = "auto"
    derive: str = "auto"
    mask: Any = None


@dataclass(frozen=True)
class Job:
    """One array of data, and how levels of it are made from a finer one.

    factors     per dimension
    nodata      what resampling leaves out; the variable's may say more
    variable    what the levels' arrays are to say
    is_chained  whether a level is made from the one before; else `depth` levels at a time are from one source
    """

    name: str
    source: Array
    method: str
    factors: tuple[int, ...]
    nodata: Any
    variable: Variable
    grid: str
    is_chained: bool
    depth: int
    mask: Mask | None
    mask_name: str | None

    def passes(
        self,
        copy: Array | None,
        levels: Sequence[Array],
        budget: Budget,
        boxes: tuple[tuple[slice, ...], ...] | None = None,
    ) -> list[Pass]:
        """The passes that make `levels`, and a copy of the source."""
        return plan_passes(
            self.source,
            copy,
            levels,
            self.factors,
            self.method,
            nodata=self.nodata,
            grid=self.grid,
            is_chained=self.is_chained,
            depth=self.depth,
            mask=self.mask,
            boxes=boxes,
            budget=budget,
        )

    def describe(self) -> dict[str, Any]:
        """What the pyramid's record says of the array."""
        said = {
            "method": self.method,
            "nodata": None if self.nodata is None else number_of(self.nodata),
            "derive": "cascade" if self.is_chained else "base",
            "depth": self.depth,
            "shape": list(self.source.shape),
        }
        return said if self.mask_name is None else {**said, "mask": self.mask_name}


def make_job(dataset: Dataset, name: str, wishes: Wishes, cut: Cut) -> Job:
    """How the levels of one array are made, tried on one cell so that nothing fails half-way.

    Raises
        MetadataError: nodata that the type cannot hold, a mask on another grid.
        UnsupportedError: the method does not take the type, or does not mean what it says for packed values.
        UnknownExtensionError: nobody offers the method.
    """
    array, variable = dataset.arrays[name], dataset.geo.variables[name]
    masks = wishes.mask.values() if isinstance(wishes.mask, Mapping) else [wishes.mask]
    # A cell is valid where anything in it is: then it has a value.
    is_mask = any(isinstance(mask, str) and mask == name for mask in masks)
    chosen = _method(name, variable, wishes.method, "max" if is_mask else "mode")
    factors = [1] * array.ndim
    for axis, factor in zip(dataset.axes(name), cut.factors, strict=True):
        factors[axis] = factor
    given = wishes.nodata.get(name, "auto") if isinstance(wishes.nodata, Mapping) else wishes.nodata
    is_auto = isinstance(given, str) and given == "auto"
    hole = variable.nodata if is_auto else None if given is None else fit_nodata(given, variable.dtype)
    stated = variable.nodata if hole is None else hole
    resample: Resample = resamplers.resolve(chosen)()
    try:
        resample(np.zeros(factors, array.dtype), factors, nodata=hole)
        if cut.grid != "aligned":
            plan_part(array.shape, factors, chosen, [slice(0, 0)] * array.ndim, grid=cut.grid)
    except (TypeError, ValueError) as error:
        raise UnsupportedError(f"cannot make levels of {name!r}: {error}", path=dataset.place) from error
    # GDAL's spellings are aliases; what is written is GeoZarr's.
    chosen = resample.method if isinstance(resample, Resampler) else chosen
    _check_packing(name, variable, chosen, dataset.place)
    is_chained = _is_chained(chosen, wishes.derive, cut.grid)
    depth = 64
    if not is_chained and wishes.derive == "auto":
        depth = direct_depth(array, tuple(factors))
    mask, mask_name = _mask(dataset, name, wishes.mask, hole)
    return Job(
        name,
        array,
        chosen,
        tuple(factors),
        hole,
        replace(variable, nodata=stated, dimensions=dataset.dimensions(name)),
        cut.grid,
        is_chained,
        depth,
        mask,
        mask_name,
    )


def _method(name: str, variable: Variable, method: Any, of_classes: str) -> str:
    if isinstance(method, Mapping):
        if name in method:
            return str(method[name])
        method = method.get("", "average")
    flags = (variable.flag_values, variable.flag_masks, variable.flag_meanings)
    is_class = any(flags) or (variable.dtype is not None and variable.dtype.kind == "b")
    if method == "average" and (is_class or of_classes == "max"):
        return of_classes
    return str(method)


def _is_chained(method: str, derive: str, grid: str) -> bool:
    if derive == "cascade":
        return True
    if grid == "aligned" and method in COMPOSING:
        return True
    # The other grid is there for the numbers of gdaladdo, which goes from level to level.
    return derive == "auto" and (grid != "aligned" or method not in DIRECT)


def _check_packing(name: str, variable: Variable, method: str, where: str) -> None:
    if variable.add_offset and method in SENSITIVE_TO_OFFSET:
        fact, expected = f"add_offset {variable.add_offset}", "expected none"
    elif (variable.scale_factor or 1) < 0 and method in SENSITIVE_TO_SIGN:
        fact, expected = f"scale_factor {variable.scale_factor}", "expected a positive one"
    else:
        return
    raise UnsupportedError(
        f"{name!r} is packed with {fact}; {expected} for method {method!r}, which is not the same for "
        "stored values and for those they mean",
        path=where,
    )


def _mask(dataset: Dataset, name: str, given: Any, nodata: Any) -> tuple[Mask | None, str | None]:
    """The mask of an array, and how the record names it."""
    if isinstance(given, Mapping):
        given = given.get(name)
    if given is None or given == name:
        return None, None
    if isinstance(given, Array):
        found, said = given, place_of(given)
    elif given in dataset.arrays or given in dataset.extras:
        found, said = {**dataset.extras, **dataset.arrays}[given], str(given)
    elif "://" in str(given):
        opened = open_node(given, mode="r")
        if not isinstance(opened, Array):
            raise MetadataError(f"mask is {opened!r}; expected an array", path=dataset.place)
        found, said = opened, str(given)
    else:
        names = ", ".join(sorted({*dataset.arrays, *dataset.extras}))
        raise NotFoundError(f"no array {given!r} to be the mask; there are {names}", path=dataset.place)
    array = dataset.arrays[name]
    return make_mask(found, array, dataset.axes(name), nodata, dataset.place), said


def own_tile(dataset: Dataset) -> tuple[int, int]:
    """The (y, x) chunk lengths of the first array."""
    name, array = next(iter(dataset.arrays.items()))
    y, x = dataset.axes(name)
    return array.chunks[y], array.chunks[x]


def plan_geo(
    dataset: Dataset, jobs: Sequence[Job], method: Any, cut: Cut, names: Sequence[str], *, has_base: bool
) -> GeoModel:
    """What will be there, level by level."""
    used = {job.method for job in jobs}
    general = method.get("", "average") if isinstance(method, Mapping) else method
    named = used.pop() if len(used) == 1 else general
    geo = replace(
        dataset.geo,
        levels=(),
        resampling=named if named in RESAMPLING_METHODS else None,
        variables={job.name: job.variable for job in jobs},
    )
    if not has_base:
        # The first level that is made stands for the finest, and cells are counted in its cells.
        first = _plan_level(geo, names[1], cut, 1)
        geo, names = replace(geo, shape=first.shape, affine=first.affine), names[1:]
    levels = [_plan_level(geo, name, cut, step) for step, name in enumerate(names)]
    if names[0] == dataset.level:
        # That level is there already, cut as it is.
        levels[0] = replace(levels[0], tile_shape=own_tile(dataset))
    return replace(geo, levels=tuple(levels))


def _plan_level(geo: GeoModel, name: str, cut: Cut, step: int) -> Level:
    y, x = cut.factors
    level = geo.plan_level(name, (y**step, x**step), cut.tile)
    if cut.grid == "aligned":
        return level
    ratios = (geo.shape[0] / level.shape[0], geo.shape[1] / level.shape[1])
    return replace(level, factors=ratios, affine=None if geo.affine is None else geo.affine.scaled(ratios))
