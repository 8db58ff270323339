"""The layers of a pyramid: its arrays of data and how their levels are made, decided before any writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zstore.errors import MetadataError, NotFoundError, UnsupportedError
from zstore.extensions.registry import resamplers
from zstore.geo.conventions.model import RESAMPLING_METHODS, Variable
from zstore.geo.pyramid.boxes import with_sides
from zstore.geo.pyramid.budget import direct_depth
from zstore.geo.pyramid.dataset import Dataset, place_of
from zstore.geo.pyramid.masks import Mask, find_mask, is_alpha, make_mask
from zstore.geo.pyramid.passes import Recipe, Resample
from zstore.geo.pyramid.record import number_from, number_of
from zstore.geo.resampling.methods import Resampler, plan_part
from zstore.model.packing import fit_nodata
from zstore.nodes.array import Array
from zstore.nodes.open import open_array

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
    """One array of data, and how levels of it are made.

    axes       which of its dimensions are y and x
    variable   what the levels' arrays are to say
    recipe     how they are made; its nodata is what resampling leaves out, the variable's may say more
    mask_name  the mask's name in the record
    is_mask    whether it is the mask of the others: they are valid where it is not 0
    sampling   how the finest level of a tile pyramid is made of the array
    """

    name: str
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
        said = {
            "method": recipe.method,
            "nodata": None if recipe.nodata is None else number_of(recipe.nodata),
            "derive": "cascade" if recipe.is_chained else "base",
            "depth": recipe.depth,
            "shape": list(recipe.source.shape),
        }
        optional = {"mask": self.mask_name, "sampling": self.sampling}
        return said | {name: value for name, value in optional.items() if value is not None}


def make_layer(
    dataset: Dataset, name: str, options: CellOptions, factors: tuple[int, int], grid: str = "aligned"
) -> Layer:
    """The layer of one array; its method is tried on one cell, so that nothing fails half-way.

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
    axes = dataset.axes(name)
    steps = with_sides([1] * array.ndim, axes, factors)
    given = options.nodata.get(name, "auto") if isinstance(options.nodata, Mapping) else options.nodata
    is_auto = isinstance(given, str) and given == "auto"
    hole = variable.nodata if is_auto else None if given is None else fit_nodata(given, variable.dtype)
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
    is_chained, depth = _is_chained(chosen, options.derive, grid), 64
    if not is_chained and options.derive == "auto":
        depth = direct_depth(array, steps)
    mask, mask_name = _mask(dataset, name, options.mask, hole)
    said = replace(variable, nodata=stated, dimensions=dataset.dimensions(name))
    recipe = Recipe(array, steps, chosen, hole, grid, is_chained, depth, mask)
    return Layer(name, axes, said, recipe, mask_name, is_mask or is_alpha(variable))


def recorded_layer(
    dataset: Dataset, name: str, said: Mapping[str, Any], factors: tuple[int, int], grid: str = "aligned"
) -> Layer:
    """The layer that a pyramid's record describes, of the array as it is now.

    Raises
        As `make_layer`.
    """
    nodata, mask = {name: number_from(said["nodata"])}, {name: said.get("mask")}
    options = CellOptions({name: said["method"]}, nodata, "base", mask)
    layer = make_layer(dataset, name, options, factors, grid)
    recipe = replace(layer.recipe, is_chained=said["derive"] == "cascade", depth=said["depth"])
    return replace(layer, recipe=recipe, sampling=said.get("sampling"))


def name_resampling(layers: Sequence[Layer], method: str | Mapping[str, str]) -> str | None:
    """The resampling method that the pyramid states; None where GeoZarr has no name for it."""
    used = {layer.recipe.method for layer in layers}
    general = method.get("", "average") if isinstance(method, Mapping) else method
    named = used.pop() if len(used) == 1 else general
    return named if named in RESAMPLING_METHODS else None


def _method(name: str, variable: Variable, method: Any, of_classes: str) -> str:
    """The method for one array; in place of an average, `of_classes` for values that have none."""
    if isinstance(method, Mapping):
        if name in method:
            return str(method[name])
        method = method.get("", "average")
    if method == "average" and (_is_class(variable) or of_classes == "max"):
        return of_classes
    return str(method)


def _is_class(variable: Variable) -> bool:
    """Whether values are classes: flags, booleans, indices of a colour table, or values with categories."""
    flags = (variable.flag_values, variable.flag_masks, variable.flag_meanings)
    if any(flags) or (variable.dtype is not None and variable.dtype.kind == "b"):
        return True
    said = variable.attributes
    is_painted = said.get("color_interpretation") == "palette" or isinstance(said.get("color_table"), Mapping)
    is_whole = variable.dtype is not None and variable.dtype.kind in "iu"
    return is_whole and (is_painted or any(said.get(hint) for hint in CLASS_HINTS))


def _is_chained(method: str, derive: str, grid: str) -> bool:
    """Whether each level is made from the one before, and not from the finest."""
    if derive == "cascade":
        return True
    if grid == "aligned" and method in COMPOSING:
        return True
    # The other grid is there for the numbers of gdaladdo, which goes from level to level.
    return derive == "auto" and (grid != "aligned" or method not in DIRECT)


def _check_packing(name: str, variable: Variable, method: str, where: str) -> None:
    """Refuse a method that gives something else of packed values than of those they stand for."""
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
    """(the mask that the data came with, its name), where there is one and this array can be masked."""
    found, array = find_mask(dataset), dataset.arrays[name]
    if found in (None, name) or is_alpha(dataset.geo.variables[name]):
        return None, None
    try:
        return make_mask(dataset.arrays[str(found)], array, dataset.axes(name), nodata, dataset.place), found
    except UnsupportedError:
        # Nothing is left to hide cells as.
        return None, None


def _mask(dataset: Dataset, name: str, given: Any, hole: Any) -> tuple[Mask | None, str | None]:
    """(the mask of an array, its name in the record)."""
    if isinstance(given, Mapping):
        given = given.get(name)
    if isinstance(given, str) and given == "auto":
        return _own_mask(dataset, name, hole)
    if given is None or given == name:
        return None, None
    beside, said = {**dataset.extras, **dataset.arrays}, str(given)
    if isinstance(given, Array):
        found, said = given, place_of(given)
    elif said in beside:
        found = beside[said]
    elif "://" in said:
        found = open_array(said, mode="r")
    else:
        names = ", ".join(sorted(beside))
        raise NotFoundError(f"no array {given!r} to be the mask; there are {names}", path=dataset.place)
    return make_mask(found, dataset.arrays[name], dataset.axes(name), hole, dataset.place), said
