"""The plan of a pyramid: its layers, the grids of its levels, and their groups and arrays, without data."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from zstore.base.boxes import Box, with_sides
from zstore.engine.documents import ARRAY_KEYS, change_node
from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.geo.conventions.base import (
    RESAMPLING_METHODS,
    Document,
    Documents,
    GeoModel,
    ImageAxis,
    Level,
    Variable,
    warn_of,
)
from zstore.geo.conventions.cf import unwrap, unwrap_bounds
from zstore.geo.conventions.content import circle_of, is_direction, render_variable
from zstore.geo.conventions.levels import LENGTHS, axis_type
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.dataset import (
    MEMBER,
    Dataset,
    Mask,
    bounds_of,
    find_mask,
    free_extras,
    is_alpha,
    join_attributes,
    make_mask,
    number_from,
    number_of,
    place_of,
)
from zstore.geo.pyramid.passes import Budget, Recipe, Resample, Step, direct_depth, plan_passes, run_step
from zstore.geo.resampling.methods import Resampler, downsample, plan_part
from zstore.jobs.chunks import is_shown, source_of
from zstore.jobs.runner import Runner
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.packing import PACKING, decode, fit_nodata
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.open import open_array
from zstore.storage.base import join_key

# Layers: arrays of data, and how their levels are made

# The method that averages directions and phases by their unit vectors.
CIRCULAR = "circular"

DERIVATIONS = ("auto", "base", "cascade")
# Methods whose levels differ when made from a level instead of the finest: rounded or chosen twice.
DIRECT = frozenset(("average", "rms", "sum", "mode", "med", "q1", "q3", "nearest"))
# Methods that give the same either way, as long as windows are whole.
COMPOSING = frozenset(("max", "min", "nearest"))
# Methods that give the same of stored as of decoded values only without an offset, or with a positive scale.
SENSITIVE_TO_OFFSET = frozenset(("rms", "sum"))
SENSITIVE_TO_SIGN = frozenset(("rms", "max", "min", "med", "q1", "q3"))


# Attributes that name classes: ours for GDAL's categories, GDAL's own in Zarr, STAC's.
CLASS_HINTS = ("categories", "category_names", "classification:classes", "raster_attribute_table")


@dataclass(frozen=True)
class CellOptions:
    """The caller's options for the cells of levels; each is for all arrays, or by the arrays' names."""

    method: str | Mapping[str, str] = "average"
    nodata: Any = "auto"
    derive: str = "auto"
    mask: Any = "auto"

    def __post_init__(self) -> None:
        if self.derive not in DERIVATIONS:
            raise MetadataError(f"derive is {self.derive!r}; expected {', '.join(map(repr, DERIVATIONS))}")


@dataclass(frozen=True)
class Layer:
    """One array of data, and the recipe for its levels.

    axes       which of its dimensions are y and x
    variable   what the levels' arrays are to say
    recipe     how they are made; its nodata is what resampling leaves out, the variable's may say more
    mask_name  the mask's name in the record
    is_mask    whether it is the mask of the others: they are valid where it is not 0
    sampling   how the finest level of a tile pyramid is made of the array
    """

    name: str
    array: Array
    axes: tuple[int, int]
    variable: Variable
    recipe: Recipe
    mask_name: str | None = None
    is_mask: bool = False
    sampling: str | None = None

    def tile_of(self, array: Array) -> tuple[int, int]:
        """The (y, x) chunk lengths of an array that is the layer's source or a level of it."""
        y, x = self.axes
        return array.chunks[y], array.chunks[x]

    def describe(self) -> dict[str, Any]:
        """The entry of the array in the pyramid's record."""
        recipe = self.recipe
        entry = {
            "method": recipe.method if recipe.circle is None else CIRCULAR,
            "nodata": None if recipe.nodata is None else number_of(recipe.nodata),
            "derive": "cascade" if recipe.is_chained else "base",
            "depth": recipe.depth,
            "shape": list(recipe.source.shape),
        }
        others = [number_of(one) for one in recipe.others] or None
        optional = {"mask": self.mask_name, "sampling": self.sampling, "other_nodata": others}
        return entry | {name: value for name, value in optional.items() if value is not None}


def make_layer(
    dataset: Dataset,
    name: str,
    options: CellOptions,
    factors: tuple[int, int],
    grid: str = "aligned",
    other_factors: Mapping[str, int] | None = None,
) -> Layer:
    """The layer of one array; its method is tried on one cell, so that nothing fails half-way.

    other_factors  of dimensions beside y and x, by name

    Raises
        MetadataError: nodata that the type cannot hold, a mask on another grid.
        UnsupportedError: the method does not take the type, or does not mean what it says for packed values.
        UnknownExtensionError: nobody offers the method.
    """
    array, variable = dataset.arrays[name], dataset.geo.variables[name]
    masks = options.mask.values() if isinstance(options.mask, Mapping) else [options.mask]
    # A cell is valid where anything in it is: then it has a value.
    is_mask = any(isinstance(mask, str) and mask == name for mask in masks) or (
        not is_alpha(variable) and find_mask(dataset) == name
    )
    chosen = _method(name, variable, options.method, "max" if is_mask else "mode")
    circle = None
    if chosen == CIRCULAR:
        circle, chosen = circle_of(variable), "average"
        if circle is None:
            expected = (
                "expected angles along a whole circle, by standard_name or valid_range, that its type holds"
            )
            raise UnsupportedError(f"method of {name!r} is {CIRCULAR!r}; {expected}", path=dataset.place)
    axes = dataset.axes(name)
    deep = [(other_factors or {}).get(dimension, 1) for dimension in dataset.dimensions(name)]
    steps = with_sides(deep, axes, factors)
    choice = options.nodata.get(name, "auto") if isinstance(options.nodata, Mapping) else options.nodata
    is_auto = isinstance(choice, str) and choice == "auto"
    hole, others = (variable.nodata, variable.other_nodata) if is_auto else _holes(choice, variable.dtype)
    stated = variable.nodata if hole is None else hole
    resample: Resample = resamplers.resolve(chosen)()
    try:
        resample(np.zeros(steps, array.dtype), steps, nodata=hole)
        if grid != "aligned":
            plan_part(array.shape, steps, chosen, [slice(0, 0)] * array.ndim, grid=grid)
    except (TypeError, ValueError) as error:
        raise UnsupportedError(f"cannot make levels of {name!r}: {error}", path=dataset.place) from error
    # GDAL's spellings are aliases; what is written is GeoZarr's.
    chosen = resample.method if isinstance(resample, Resampler) else chosen
    _check_packing(name, variable, chosen, dataset.place)
    source = source_of(array)
    is_chained, depth = _is_chained(chosen, options.derive, grid), 64
    if not is_chained and options.derive == "auto":
        depth = direct_depth(source, steps)
    mask, mask_name = _mask(dataset, name, options.mask, hole)
    written = replace(variable, nodata=stated, other_nodata=others, dimensions=dataset.dimensions(name))
    recipe = Recipe(source, steps, chosen, hole, others, grid, is_chained, depth, mask, circle)
    return Layer(name, array, axes, written, recipe, mask_name, is_mask or is_alpha(variable))


def _holes(choice: Any, dtype: np.dtype[Any] | None) -> tuple[int | float | None, tuple[int | float, ...]]:
    """(nodata, further values of it) of a caller's number, or of several."""
    numbers = [] if choice is None else [*choice] if isinstance(choice, list | tuple) else [choice]
    fitted = list(dict.fromkeys(fit_nodata(number, dtype) for number in numbers))
    # NaN means nothing in any case.
    finite = [number for number in fitted if number == number] or fitted
    return next(iter(finite), None), tuple(finite[1:])


def recorded_layer(
    dataset: Dataset,
    name: str,
    entry: Mapping[str, Any],
    factors: tuple[int, int],
    grid: str = "aligned",
    other_factors: Mapping[str, int] | None = None,
) -> Layer:
    """The layer in a pyramid's record, with the present array.

    Raises
        As `make_layer`.
    """
    holes = [entry["nodata"], *entry.get("other_nodata", ())]
    nodata = {name: None if holes == [None] else [number_from(one) for one in holes]}
    mask = {name: entry.get("mask")}
    options = CellOptions({name: entry["method"]}, nodata, "base", mask)
    layer = make_layer(dataset, name, options, factors, grid, other_factors)
    recipe = replace(layer.recipe, is_chained=entry["derive"] == "cascade", depth=entry["depth"])
    return replace(layer, recipe=recipe, sampling=entry.get("sampling"))


def name_resampling(layers: Sequence[Layer], method: str | Mapping[str, str]) -> str | None:
    """The resampling method for the pyramid's documents; None if GeoZarr has no name for it."""
    used = {layer.recipe.method for layer in layers}
    general = method.get("", "average") if isinstance(method, Mapping) else method
    named = used.pop() if len(used) == 1 else general
    return named if named in RESAMPLING_METHODS else None


def _method(name: str, variable: Variable, method: Any, of_classes: str) -> str:
    """The method for one array; in place of an average, what suits values that have none.

    `of_classes` for classes, and "circular" for directions: that of 350 and 10 degrees is not 180.
    """
    if isinstance(method, Mapping):
        if name in method:
            return str(method[name])
        method = method.get("", "average")
    if method == "average" and (_is_class(variable) or of_classes == "max"):
        return of_classes
    if method == "average" and is_direction(variable):
        return "nearest" if circle_of(variable) is None else CIRCULAR
    return str(method)


def _is_class(variable: Variable) -> bool:
    """Whether values are classes: flags, booleans, indices of a colour table, or values with categories."""
    flags = (variable.flag_values, variable.flag_masks, variable.flag_meanings)
    if any(flags) or (variable.dtype is not None and variable.dtype.kind == "b"):
        return True
    attrs = variable.attributes
    is_painted = attrs.get("color_interpretation") == "palette" or isinstance(
        attrs.get("color_table"), Mapping
    )
    is_whole = variable.dtype is not None and variable.dtype.kind in "iu"
    return is_whole and (is_painted or any(attrs.get(hint) for hint in CLASS_HINTS))


def _is_chained(method: str, derive: str, grid: str) -> bool:
    """Whether each level is made from the one before, and not from the finest."""
    if derive == "cascade":
        return True
    if grid == "aligned" and method in COMPOSING:
        return True
    # The other grid is there for the numbers of gdaladdo, which goes from level to level.
    return derive == "auto" and (grid != "aligned" or method not in DIRECT)


def _check_packing(name: str, variable: Variable, method: str, where: str) -> None:
    """Refuse a method whose result for packed values differs from that for the physical ones."""
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


def _own_mask(dataset: Dataset, name: str, nodata: Any) -> tuple[Mask | None, str | None]:
    """(the mask of the dataset, its name), if there is one and this array can be masked."""
    mask_name, array = find_mask(dataset), dataset.arrays[name]
    if mask_name in (None, name) or is_alpha(dataset.geo.variables[name]):
        return None, None
    try:
        return make_mask(
            dataset.arrays[str(mask_name)], array, dataset.axes(name), nodata, dataset.place
        ), mask_name
    except UnsupportedError:
        # Nothing is left to hide cells as.
        return None, None


def _mask(dataset: Dataset, name: str, asked: Any, hole: Any) -> tuple[Mask | None, str | None]:
    """(the mask of an array, its name in the record)."""
    if isinstance(asked, Mapping):
        asked = asked.get(name)
    if isinstance(asked, str) and asked == "auto":
        return _own_mask(dataset, name, hole)
    if asked is None or asked == name:
        return None, None
    beside, address = {**dataset.extras, **dataset.arrays}, str(asked)
    if isinstance(asked, Array):
        mask, address = asked, place_of(asked)
    elif address in beside:
        mask = beside[address]
    elif "://" in address:
        mask = open_array(address, mode="r")
    else:
        names = ", ".join(sorted(beside))
        raise NotFoundError(f"no array {asked!r} to be the mask; there are {names}", path=dataset.place)
    return make_mask(mask, dataset.arrays[name], dataset.axes(name), hole, dataset.place), address


# Grids of levels

# The source's chunks are kept as tiles where they have such lengths; others are cut anew.
TILE_LENGTHS = range(64, 2049)
TILE_LENGTH = 512


@dataclass(frozen=True)
class Wanted:
    """A request for cells of a layer's levels, to be made within a budget.

    arrays  the arrays of the levels, the finest first
    masks   those of the layer's mask, where it is in the pyramid
    box     the box of the layer's source on which the cells depend; None: all
    """

    layer: Layer
    arrays: Sequence[Array]
    masks: Sequence[Array]
    budget: Budget
    box: Box | None


@dataclass(frozen=True, kw_only=True)
class LevelGrid:
    """The interface of the grids of a pyramid's levels; building is the same for all kinds.

    names      of the levels, the finest first
    factors    (y, x) cells of a level that make one of the next
    tile       (y, x) cells of a tile
    kind       how the levels' windows lie: "aligned" or "gdal"
    others     factors of dimensions beside y and x, by name, where they are more than 1
    is_copied  whether the finest level is made too; else it is there already, or not wanted
    is_absent  whether there is no finest level in the pyramid
    has_moved  whether the source lies elsewhere than it did, so that all cells are to be made
    """

    names: Sequence[str]
    factors: tuple[int, int]
    tile: tuple[int, int]
    kind: str = "aligned"
    others: Mapping[str, int] = field(default_factory=dict)
    is_copied: bool = True
    is_absent: bool = False
    has_moved: bool = False

    def place(self, geo: GeoModel) -> GeoModel:
        """The model of a source with its future levels."""
        raise NotImplementedError

    def steps(self, wanted: Wanted) -> list[Step]:
        """The steps that make the wanted cells, in order; progress counts the cells of the first step.

        Raises
            MetadataError: the budget does not hold one unit.
        """
        raise NotImplementedError

    def describe(self, geo: GeoModel, documents: Documents, profile: str | None) -> None:
        """Complete the rendered documents with members that only this kind of grid has."""

    def record(self) -> dict[str, Any]:
        """The members of the pyramid's record that only this kind of grid has."""
        return {}

    def pending(self) -> dict[str, Any]:
        """The members of an update's job record, beside its boxes."""
        return {}


@dataclass(frozen=True, kw_only=True)
class FactorGrid(LevelGrid):
    """The grid of a pyramid whose levels have cells larger by whole factors.

    own_tile  of the finest level, where it is in the pyramid already
    """

    own_tile: tuple[int, int] | None = None

    @classmethod
    def choose(
        cls,
        shape: tuple[int, int],
        own_tile: tuple[int, int],
        *,
        factors: tuple[int, int],
        others: Mapping[str, int],
        kind: str,
        chunks: Any,
        count: Any,
        finest: str,
        is_copied: bool,
    ) -> FactorGrid:
        """The grid of the levels of a source of that shape, whose own tiles are `own_tile`.

        chunks     the tiles; None: the source's own, where they suit
        count      how many coarser levels; None: until one tile holds the coarsest
        finest     the source's name in the pyramid; "" where it is elsewhere
        is_copied  whether it is to be copied, then

        Raises
            MetadataError: what is asked for makes no levels.
        """
        tile = own_tile if all(length in TILE_LENGTHS for length in own_tile) else (TILE_LENGTH, TILE_LENGTH)
        tile = tile if chunks is None else pair_of(chunks, "chunks")
        count = _count_levels(shape, factors, tile) if count is None else count
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise MetadataError(f"levels is {count!r}; expected a whole number, or None")
        coarser = list(map(str, range(1, count + 1)))
        if finest in coarser:
            raise MetadataError(
                f"the finest level is named {finest!r}, as one of {count} coarser ones would be"
            )
        if not (count or finest or is_copied):
            raise MetadataError("there is no level to make: the array fits a tile, and is not to be copied")
        return cls(
            names=[finest or "0", *coarser],
            factors=factors,
            others=others,
            tile=tile,
            kind=kind,
            is_copied=is_copied and not finest,
            is_absent=not (is_copied or finest),
            own_tile=own_tile if finest else None,
        )

    def place(self, geo: GeoModel) -> GeoModel:
        names = self.names
        if self.is_absent:
            # The first level that is made stands for the finest, and cells are counted in its cells.
            first = self._level(geo, names[1], 1)
            axes = {name: axis.coarser(first.others.get(name, 1)) for name, axis in geo.axes.items()}
            geo, names = replace(geo, shape=first.shape, affine=first.affine, axes=axes), names[1:]
        levels = [self._level(geo, name, step) for step, name in enumerate(names)]
        if self.own_tile is not None:
            levels[0] = replace(levels[0], tile_shape=self.own_tile)
        return replace(geo, levels=tuple(levels))

    def _level(self, geo: GeoModel, name: str, step: int) -> Level:
        y, x = self.factors
        others = {dimension: factor**step for dimension, factor in self.others.items() if step}
        level = replace(geo.plan_level(name, (y**step, x**step), self.tile), others=others)
        if self.kind == "aligned":
            return level
        ratios = (geo.shape[0] / level.shape[0], geo.shape[1] / level.shape[1])
        affine = None if geo.affine is None else geo.affine.scaled(ratios)
        return replace(level, factors=ratios, affine=affine)

    def steps(self, wanted: Wanted) -> list[Step]:
        """The passes that make a copy of the source, if wanted, and the levels."""
        arrays = wanted.arrays
        copy, levels = (arrays[0], arrays[1:]) if self.is_copied else (None, arrays)
        masks = wanted.masks[len(arrays) - len(levels) :]
        passes = plan_passes(wanted.layer.recipe, copy, levels, wanted.budget, wanted.box, masks)
        return [Step(work) for work in passes]


def pair_of(value: Any, name: str) -> tuple[int, int]:
    """(y, x) of a caller's number for both, or of a pair.

    Raises
        MetadataError: it is no such number, or pair.
    """
    numbers = (value, value) if isinstance(value, int) else value
    if isinstance(numbers, Sequence) and len(numbers) == 2:
        y, x = numbers
        if all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (y, x)):
            return y, x
    raise MetadataError(f"{name} is {value!r}; expected a whole number of at least 1, or two (y, x)")


def factors_of(dataset: Dataset, factors: Any) -> tuple[tuple[int, int], dict[str, int]]:
    """((y, x), those of other dimensions by name that are more than 1) of a caller's factors.

    Raises
        MetadataError: they are no such numbers, or of dimensions that no array has.
        UnsupportedError: they would make one of several times or bands.
    """
    deepest = max((dataset.dimensions(name) for name in dataset.arrays), key=len)
    if isinstance(factors, Mapping):
        by_name = dict(factors)
    elif isinstance(factors, Sequence) and len(factors) > 2:
        axes = dataset.axes(next(name for name in dataset.arrays if dataset.dimensions(name) == deepest))
        if len(factors) > len(deepest) or axes != (len(deepest) - 2, len(deepest) - 1):
            said = f"{len(deepest)} numbers at most, for {deepest}, or numbers by name"
            raise MetadataError(f"factors is {factors!r}; expected {said}", path=dataset.place)
        by_name = dict(zip(deepest[-len(factors) :], factors, strict=True))
    else:
        return pair_of(factors, "factors"), {}
    known = {dimension for name in dataset.arrays for dimension in dataset.dimensions(name)}
    for name, factor in by_name.items():
        if name not in known:
            said = f"factors name {name!r}; the dimensions are {', '.join(sorted(known))}"
            raise MetadataError(said, path=dataset.place)
        pair_of((1, factor), f"the factor of {name!r}")
    y, x = (by_name.pop(name, 1) for name in dataset.geo.dimensions)
    others = {name: factor for name, factor in by_name.items() if factor > 1}
    for name in others:
        kind = axis_type(name, dataset.geo)
        if kind in ("time", "channel"):
            said = f"factors is {factors!r}; expected 1 of {name!r}: levels have every {kind}"
            raise UnsupportedError(said, path=dataset.place)
    return (y, x), others


def _count_levels(shape: tuple[int, int], factors: tuple[int, int], tile: tuple[int, int]) -> int:
    """The number of levels until the coarsest fits into a tile."""
    (rows, columns), (y, x), count = shape, factors, 0
    while (rows > tile[0] and y > 1) or (columns > tile[1] and x > 1):
        rows, columns, count = -(-rows // y), -(-columns // x), count + 1
    return count


# Groups and arrays of levels


@dataclass(frozen=True)
class Encoding:
    """The storage of levels' arrays; `shards`, (y, x), and `compressors` may be "auto"."""

    shards: tuple[int, int] | str | None
    compressors: Any
    zarr_format: ZarrFormat


@dataclass(frozen=True)
class PyramidPlan:
    """A pyramid to be built or updated: all decisions before anything is written.

    geo, documents  the model and the documents of all levels
    """

    dataset: Dataset
    grid: LevelGrid
    layers: Sequence[Layer]
    encoding: Encoding
    profile: str | None
    geo: GeoModel
    documents: Documents

    @classmethod
    def make(
        cls,
        dataset: Dataset,
        grid: LevelGrid,
        layers: Sequence[Layer],
        encoding: Encoding,
        profile: str | None,
        resampling: str | None,
    ) -> PyramidPlan:
        """The plan of a pyramid, with the documents of all its levels rendered.

        Raises
            MetadataError: what is to be said contradicts itself, or no such profile.
        """
        variables = {layer.name: layer.variable for layer in layers}
        axes = {**_axes_of(dataset, grid.others), **dataset.geo.axes}
        geo = replace(dataset.geo, levels=(), resampling=resampling, variables=variables, axes=axes)
        geo = grid.place(geo)
        documents, findings = render_geo(geo, encoding.zarr_format, profile=profile)
        warn_of(findings, stacklevel=4)
        grid.describe(geo, documents, profile)
        describe_bounds(dataset, geo, documents)
        plan = cls(dataset, grid, layers, encoding, profile, geo, documents)
        plan._say_one_nodata()
        return plan

    def _say_one_nodata(self) -> None:
        """Write the one nodata of computed cells into the documents of their levels."""
        is_kept = self.grid.is_copied and all(layer.sampling is None for layer in self.layers)
        for level, layer in product(self.made_levels[is_kept:], self.layers):
            variable, attributes = layer.variable, self.documents[f"{level.path}/{layer.name}"]["attributes"]
            if variable.other_nodata:
                attributes.pop("missing_value", None)
                attributes.update(
                    render_variable(replace(variable, other_nodata=()), self.encoding.zarr_format)
                )

    def without(self, names: Container[str]) -> PyramidPlan:
        """The plan without some layers."""
        documents = {
            path: one for path, one in self.documents.items() if path.rpartition("/")[2] not in names
        }
        layers = [layer for layer in self.layers if layer.name not in names]
        return replace(self, layers=layers, documents=documents)

    @property
    def made(self) -> Sequence[str]:
        """The names of the levels to write."""
        return self.grid.names[0 if self.grid.is_copied else 1 :]

    @property
    def made_levels(self) -> list[Level]:
        """The levels to write."""
        return [level for level in self.geo.levels if level.path in self.made]

    @property
    def size(self) -> int:
        """The bytes of the cells of all levels to make."""
        pairs = product(self.made_levels, self.layers)
        return sum(prod(self._shape(level, one)) * one.recipe.source.dtype.itemsize for level, one in pairs)

    def steps(
        self, layer: Layer, arrays: Mapping[str, Sequence[Array]], budget: Budget, box: Box | None
    ) -> list[Step]:
        """The steps that make a layer's cells, as far as they depend on `box` of its source; None: all.

        Masks are made before what they mask: coarser levels are made of what the finer ones' masks leave.
        """
        masks = arrays.get(layer.mask_name or "", ())
        return self.grid.steps(Wanted(layer, arrays[layer.name], masks, budget, box))

    def draft(self, nodes: NewNodes) -> dict[str, list[Array]]:
        """New arrays for every layer, the finest first, of which nothing is stored yet.

        Raises
            As `NewNodes.add_array`: errors that come before work begins.
        """
        return {
            layer.name: [
                nodes.add_array(f"{level.path}/{layer.name}", **self._array_options(level, layer))
                for level in self.made_levels
            ]
            for layer in self.layers
        }

    def draft_groups(self, group: Group, nodes: NewNodes, build: str) -> None:
        """Add the levels' groups, with the name of the build, and all arrays beside the data."""
        for level in self.geo.levels:
            if level.path in self.made:
                attributes = join_attributes(
                    self.dataset.attributes, self.documents[level.path]["attributes"]
                )
                nodes.add_group(level.path, {**attributes, MEMBER: {"build": build}})
            self._draft_beside(group, nodes, level)

    def held(self, group: Group) -> dict[str, list[Array]]:
        """The stored arrays of every layer, the finest first, with the present shapes of the source."""
        return {
            layer.name: [
                _reshaped(group[f"{level.path}/{layer.name}"], self._shape(level, layer))
                for level in self.made_levels
            ]
            for layer in self.layers
        }

    def shrink(self, group: Group) -> None:
        """Cut the levels to the source's shape; they grow when their new cells are stored."""
        for arrays in self.held(group).values():
            for array in arrays:
                stored = group[array.path[len(group.path) :].lstrip("/")]
                assert isinstance(stored, Array)
                cut(stored, array.shape)

    def settle(self, group: Group, nodes: NewNodes) -> None:
        """Rewrite the documents of existing nodes: the finest level beside others, or all in an update."""
        for level in self.geo.levels:
            if level.path in nodes:
                continue
            held = group[level.path]
            assert isinstance(held, Group)
            rendered = self.documents[level.path]["attributes"]
            held.attrs.put(join_attributes(held.attrs, rendered))
            for layer in self.layers:
                array = held[layer.name]
                assert isinstance(array, Array)
                if level.path in self.made:
                    grow(array, self._shape(level, layer))
                array.attrs.update(self.documents[f"{level.path}/{layer.name}"]["attributes"])
            for name, document in _auxiliaries(self.documents, level.path):
                beside = held.get(name)
                if isinstance(beside, Array) and beside.shape == document["data"].shape:
                    beside.attrs.update(document["attributes"])

    def replace_beside(self, group: Group) -> None:
        """Rewrite the coordinates of the levels, if the data have other lengths or positions now."""
        nodes = NewNodes(group.store, group.path, group.zarr_format)
        for level in self.geo.levels:
            held = group[level.path]
            assert isinstance(held, Group)
            for name, document in _auxiliaries(self.documents, level.path):
                former = held.get(name)
                if former is None:
                    with suppress(KeyError):  # what an interrupted removal has left of it
                        del held[name]
                elif not isinstance(former, Array) or not document["dimension_names"]:
                    continue
                elif not np.array_equal(former[...], document["data"]):
                    del held[name]
            self._draft_beside(group, nodes, level)
        nodes.publish()

    def _draft_beside(self, group: Group, nodes: NewNodes, level: Level) -> None:
        """Draft the arrays beside the data of a level that do not exist yet.

        The finest level has all extras, others those that do not lie on the grid. Coordinates that no affine
        gives are averaged over the windows.
        """
        held = None if level.path in nodes else group
        add_auxiliaries(nodes, self.documents, level.path, group=held)
        if level.path == self.dataset.level:
            return
        y, x = self.dataset.geo.dimensions
        steps = {y: self.grid.factors[0], x: self.grid.factors[1], **self.grid.others}
        free = free_extras(self.dataset, steps)
        for name, array in self.dataset.extras.items():
            path = f"{level.path}/{name}"
            if path in self.documents:
                continue
            former = None if level.path in nodes else group.get(path)
            if level.path == "0" or name in free:
                _copy_array(array, former, nodes, path, group.zarr_format)
            elif name in steps and array.ndim == 1 and array.dtype.kind in "iuf":
                factor = steps[name] ** int(level.path)
                stored = unwrap(array, decode(array[...], array.attrs).astype(np.float64))
                gaps = np.diff(stored)
                if (gaps > 0).any() and (gaps < 0).any():
                    message = f"coordinate {name!r} is not in order; levels would lie between its places"
                    raise MetadataError(message, path=array.path)
                centres = downsample(stored, (factor,), grid=self.grid.kind)
                made = {name: (centres, array)}
                bounds = bounds_of(array, self.dataset.extras)
                if bounds is not None:
                    edges = decode(bounds[...], bounds.attrs).astype(np.float64)
                    edges = unwrap_bounds(array, stored, edges)
                    low, high = (
                        downsample(ends, (factor,), method, grid=self.grid.kind)
                        for ends, method in ((edges.min(1), "min"), (edges.max(1), "max"))
                    )
                    is_rising = edges[0, 0] < edges[0, 1]
                    ends = np.stack([low, high] if is_rising else [high, low], axis=1)
                    made[array.attrs["bounds"]] = (ends, bounds)
                lost = PACKING if bounds is not None else (*PACKING, "bounds")
                for called, (data, source) in made.items():
                    before = None if former is None else group.get(f"{level.path}/{called}")
                    if isinstance(before, Array) and before.shape != data.shape:
                        del group[f"{level.path}/{called}"]
                    nodes.add_array(
                        f"{level.path}/{called}",
                        data=data,
                        fill_value=float("nan"),
                        attributes={k: v for k, v in source.attrs.items() if k not in lost},
                        dimension_names=(name, "bnds")[: data.ndim] if source.dims is None else source.dims,
                    )

    def _shape(self, level: Level, layer: Layer) -> tuple[int, ...]:
        recipe, step = layer.recipe, self.grid.names.index(level.path)
        sizes = zip(recipe.source.shape, recipe.factors, strict=True)
        return with_sides([-(-size // factor**step) for size, factor in sizes], layer.axes, level.shape)

    def _array_options(self, level: Level, layer: Layer) -> dict[str, Any]:
        """The arguments of `create_array` for one array of a level."""
        document, source = self.documents[f"{level.path}/{layer.name}"], layer.array
        # In Zarr v2 a fill value means nodata to most readers: without nodata there is none.
        is_bare = layer.variable.nodata is None and self.encoding.zarr_format == 3
        fill_value = source.fill_value if is_bare else document["fill_value"]
        if layer.sampling is not None and layer.variable.nodata is None and (is_bare or layer.is_mask):
            # What lies outside the data, where most tiles are not stored.
            fill_value = source.dtype.type(0)
        return {
            "shape": self._shape(level, layer),
            "dtype": source.dtype if self.encoding.zarr_format == 2 else source.model.data_type,
            "fill_value": fill_value,
            "attributes": document["attributes"],
            "dimension_names": document["dimension_names"],
            **self._storage_options(layer),
        }

    def _storage_options(self, layer: Layer) -> dict[str, Any]:
        """Chunks, shards and codecs of the levels of one array."""
        source, axes, encoding = layer.array, layer.axes, self.encoding
        chunks, shards = with_sides(source.chunks, axes, self.grid.tile), None
        if isinstance(encoding.shards, tuple):
            shards = with_sides(chunks, axes, encoding.shards)
        elif encoding.shards == "auto" and encoding.zarr_format == 3 and chunks == source.chunks:
            shards = source.shards
        codecs = _describe_codecs(source, encoding.zarr_format)
        if encoding.compressors != "auto":
            codecs = {"compressors": encoding.compressors}
        return {**codecs, "chunks": chunks, "shards": shards}


def _axes_of(dataset: Dataset, names: Iterable[str]) -> dict[str, ImageAxis]:
    """The axes of dimensions that have coordinates in regular, rising steps, by name."""
    found = dict[str, ImageAxis]()
    for name in names:
        array = dataset.extras.get(name)
        if array is None or array.ndim != 1 or array.dtype.kind not in "iuf" or array.size < 2:
            continue
        centres = decode(array[...], array.attrs).astype(np.float64)
        step = (centres[-1] - centres[0]) / (len(centres) - 1)
        if step > 0 and np.allclose(np.diff(centres), step, rtol=1e-6, atol=0):
            unit = LENGTHS.get(str(array.attrs.get("units")))
            found[name] = ImageAxis("space", unit, float(step), float(centres[0]))
    return found


def describe_bounds(dataset: Dataset, geo: GeoModel, documents: Documents) -> None:
    """Add bounds to the coordinates of all levels, where those of the source have them.

    They end where the source's end, but for cells whose middle lies beyond; on another grid, a tile matrix,
    they are the edges of its cells.
    """
    own, corner = dataset.geo.affine, geo.affine
    is_own = own is not None and corner is not None and (own.c, own.f) == (corner.c, corner.f)
    for axis, dimension in enumerate(geo.dimensions):
        coordinate = dataset.places.get(dimension)
        bounds = bounds_of(coordinate, dataset.places)
        if coordinate is None or bounds is None:
            continue
        name, edges = str(coordinate.attrs["bounds"]), decode(bounds[...], bounds.attrs).astype(np.float64)
        finest = documents.get(join_key(geo.levels[0].path, dimension))
        if finest is not None and finest["data"].shape == edges.shape[:1]:
            edges = unwrap_bounds(coordinate, finest["data"], edges)
        cell = 0.0 if geo.affine is None else geo.affine.cell[axis]
        # Longitudes that jump by a circle, and those of other grids, end nowhere.
        is_running = is_own and abs(np.ptp(edges) - cell * len(edges)) <= cell
        first, last = (edges.min(), edges.max()) if is_running else (-np.inf, np.inf)
        for level in geo.levels:
            document = documents.get(join_key(level.path, dimension))
            if document is None or level.affine is None:
                continue
            centres, half = document["data"], (level.affine.e, level.affine.a)[axis] / 2
            made = edges
            if not is_own or level.shape[axis] != len(edges):
                made = np.stack([centres - half, centres + half], axis=1)
                made = made if (half > 0) == (edges[0, 0] < edges[0, 1]) else made[:, ::-1]
                is_inside = (centres >= first) & (centres <= last)
                made[is_inside] = np.clip(made[is_inside], first, last)
            document["attributes"]["bounds"] = name
            documents[join_key(level.path, name)] = Document(
                kind="array",
                attributes={k: v for k, v in bounds.attrs.items() if is_own and k not in PACKING},
                dimension_names=(dimension, str((bounds.dims or ("", "bnds"))[1] or "bnds")),
                data=made,
                fill_value=float("nan"),
            )


def _auxiliaries(documents: Documents, level: str) -> Iterator[tuple[str, Document]]:
    """(name, document) of the coordinates and the CRS variable for a level, from the documents."""
    for path, document in documents.items():
        above, _, name = path.rpartition("/")
        if above == level and "data" in document:
            yield name, document


def add_auxiliaries(
    nodes: NewNodes | Group,
    documents: Documents,
    level: str,
    *,
    group: Group | None = None,
    below: str | None = None,
) -> None:
    """Add a level's coordinates and CRS variable to new nodes, or to a group; those of a group are updated.

    group  the group that may have them already, of new nodes
    below  the path to add them at, if not the level's own

    Raises
        MetadataError: something else has one of their names.
    """
    where = nodes if isinstance(nodes, Group) else group
    for name, document in _auxiliaries(documents, level):
        path = join_key(level if below is None else below, name)
        found = None if where is None else _auxiliary(where, path, document)
        if found is None:
            add = nodes.create_array if isinstance(nodes, Group) else nodes.add_array
            add(path, **_auxiliary_options(document))
        elif isinstance(nodes, Group):
            found.attrs.update(document["attributes"])


def _auxiliary(group: Group, path: str, document: Document) -> Array | None:
    """The array at `path`, if it matches the document; None if there is nothing.

    Raises
        MetadataError: there is something else.
    """
    former = group.get(path)
    if former is None or (isinstance(former, Array) and former.shape == document["data"].shape):
        return former
    expected = f"expected an array of shape {document['data'].shape}"
    where, _, name = place_of(former).rpartition("/")
    raise MetadataError(f"{name!r} is {former!r}; {expected}", path=where)


def _auxiliary_options(document: Document) -> dict[str, Any]:
    """The arguments of `create_array` for a coordinate or the CRS variable."""
    data = document["data"]
    return {
        "data": data,
        "chunks": data.shape if data.size else "auto",
        "fill_value": document["fill_value"],
        "attributes": document["attributes"],
        "dimension_names": document["dimension_names"],
    }


def _reshaped(array: Any, shape: tuple[int, ...]) -> Array:
    """The array with its future shape: cells beyond the stored one are not visible yet."""
    assert isinstance(array, Array)
    return array if array.shape == shape else Array(array.store, array.path, array.model.with_shape(shape))


def cut(array: Array, shape: tuple[int, ...]) -> None:
    """Shrink the array if it is longer than `shape`."""
    least = tuple(map(min, array.shape, shape))
    if least != array.shape:
        array.resize(least)


def grow(array: Array, shape: tuple[int, ...]) -> None:
    """Set the array's shape, whose cells are stored already."""
    if array.shape == shape:
        return
    key = join_key(array.path, ARRAY_KEYS[array.zarr_format])

    def grown(stored: object) -> ArrayModel:
        if not isinstance(stored, ArrayModel):
            raise NotFoundError("array is gone", path=place_of(array))
        return stored.with_shape(shape)

    array.store.update(key, partial(change_node, array.store, array.path, array.zarr_format, grown))


def _describe_codecs(array: Array, zarr_format: ZarrFormat) -> dict[str, Any]:
    """The arguments of `create_array` to encode as an array does; {} in another format, or for a source."""
    model = array.model
    if model.zarr_format != zarr_format or model.is_of_n5 or is_shown(array):
        return {}
    chain: list[Any] = list(model.codecs)
    if zarr_format == 2:
        return {
            "order": "F" if any(codec.name == "transpose" for codec in chain) else "C",
            "filters": [codec for codec in chain if codec.role == "filter"],
            "compressors": [codec for codec in chain if codec.role == "compressor"],
        }
    for codec in chain:
        if codec.name == "sharding_indexed":
            chain = list(codec.configuration["codecs"])
    # One list in the order of encoding; where it is divided makes no difference to what is written.
    return {"filters": None, "serializer": chain, "compressors": None}


def _copy_array(array: Array, former: Any, nodes: NewNodes, path: str, zarr_format: ZarrFormat) -> None:
    """A copy of an array; an existing one is brought up to date, unless it is of another kind."""
    if isinstance(former, Array) and former.ndim == array.ndim and former.dtype == array.dtype:
        cut(former, array.shape)
        made = _reshaped(former, array.shape)
    else:
        former = None
        made = nodes.add_array(
            path,
            shape=array.shape,
            dtype=array.model.data_type,
            chunks=array.chunks,
            shards=array.shards if zarr_format == 3 else None,
            fill_value=array.fill_value,
            attributes=array.attrs.asdict(),
            dimension_names=array.dims,
            **_describe_codecs(array, zarr_format),
        )
    if array.ndim == 0:
        made[...] = array[...]
        return
    recipe = Recipe(source_of(array), (1,) * array.ndim, "nearest")
    with Runner() as runner:
        for work in plan_passes(recipe, made, [], Budget.of(None)):
            run_step(runner, Step(work), path)
    if former is not None:
        grow(former, array.shape)
