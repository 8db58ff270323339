"""Masks: cells that they leave out are hidden from resampling, as nodata, and shown again afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.geo.conventions.model import Variable
from zstore.geo.pyramid.dataset import Dataset
from zstore.nodes.array import Array

# The flags of the array that a raster's mask becomes.
MASK_VALUES = (0, 255)
MASK_MEANINGS = ("invalid", "valid")
Items = np.ndarray[Any, np.dtype[Any]]

# Types with integers of twice the size, which hold all their values and one more, and round alike.
WIDENED = frozenset(("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32"))


@dataclass(frozen=True)
class Mask:
    """The mask of an array of data, which is valid where the mask is not 0.

    axes  the dimensions of the data that are the mask's
    """

    array: Array
    axes: tuple[int, ...]

    def read(self, box: tuple[slice, ...]) -> Items:
        """Whether the cells of a box of the data are valid; to be broadcast over its other dimensions."""
        valid: Items = self.array[tuple(box[axis] for axis in self.axes)] != 0
        missing = tuple(axis for axis in range(len(box)) if axis not in self.axes)
        return np.expand_dims(valid, missing)


class Masking:
    """Hides cells as nodata; where there is none, as a value that the data cannot have.

    nodata  what resampling is to leave out
    """

    def __init__(self, dtype: np.dtype[Any], nodata: Any, *, is_needed: bool) -> None:
        self._dtype = self._wide = dtype
        self.nodata = nodata
        if is_needed and nodata is None:
            if dtype.kind == "f":
                self.nodata = np.nan
            else:
                self._wide = np.dtype(f"i{2 * dtype.itemsize}")
                self.nodata = int(np.iinfo(self._wide).min)

    def hide(self, cells: Items, valid: Items) -> Items:
        """The cells, those that are not valid as nodata."""
        hidden = cells.astype(self._wide)
        np.copyto(hidden, self.nodata, where=~valid)
        return hidden

    def bound(self, cells: Items) -> Items:
        """Cells that were made of hidden ones, clipped to the data's type; hidden ones stay hidden."""
        if self._wide == self._dtype or self._dtype.kind == "b":
            return cells
        limits = np.iinfo(self._dtype)
        bounded = np.clip(cells, limits.min, limits.max)
        np.copyto(bounded, self.nodata, where=cells == self.nodata)
        return bounded

    def reveal(self, cells: Items) -> Items:
        """Cells that were made of hidden ones, in the data's type; hidden ones are nodata, or 0 without."""
        if self._wide == self._dtype:
            return cells
        if self._dtype.kind == "b":
            return cells > 0
        shown = self.bound(cells)
        shown[cells == self.nodata] = 0
        return shown.astype(self._dtype)


def find_mask(dataset: Dataset) -> str | None:
    """The name of the array that is the mask of all others, a raster's mask or its alpha; None without."""
    for name, variable in dataset.geo.variables.items():
        is_mask = (variable.flag_values, variable.flag_meanings) == (MASK_VALUES, MASK_MEANINGS)
        if dataset.arrays[name].ndim == 2 and (is_mask or is_alpha(variable)):
            return name
    return None


def is_alpha(variable: Variable) -> bool:
    """Whether a variable is an alpha band: how opaque each cell is."""
    return variable.attributes.get("color_interpretation") == "alpha"


def make_mask(array: Array, data: Array, axes: tuple[int, int], nodata: Any, where: str) -> Mask:
    """The mask `array` of `data`, whose (y, x) are `axes`: on those two, or on all its dimensions.

    Raises
        MetadataError: the mask is on another grid.
        UnsupportedError: nothing is left to hide cells as.
    """
    if array.shape == data.shape:
        axes = tuple(range(data.ndim))  # type: ignore[assignment]
    elif array.shape != tuple(data.shape[axis] for axis in axes):
        expected = f"expected {data.shape}, or (y, x) of it"
        raise MetadataError(f"mask of {data.basename!r} has the shape {array.shape}; {expected}", path=where)
    if array.dtype.kind not in "biu":
        raise MetadataError(f"mask is of data type {array.dtype}; expected bool or integers", path=where)
    if nodata is None and data.dtype.kind != "f" and data.dtype.name not in WIDENED:
        raise UnsupportedError(
            f"{data.basename!r} of data type {data.dtype} has no nodata to hide masked cells as",
            path=where,
        )
    return Mask(array, axes)
