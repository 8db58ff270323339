"""Directions and phases, made smaller by the unit vectors that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zstore.geo.resampling.methods import Array, downsample
from zstore.model.packing import Circle


def on_circle(
    resample: Callable[..., Array],
    circle: Circle,
    array: Array,
    factors: Sequence[int],
    *,
    nodata: Any = None,
    **options: Any,
) -> Array:
    """Directions or phases made smaller by the resampling of their unit vectors; the same type.

    Where vectors cancel each other out there is nodata; integers without it have the first direction then.
    """
    vectors = circle.vectors(array)
    if nodata is not None:
        vectors[array == nodata] = np.nan
    x, y = (
        resample(np.ascontiguousarray(side), factors, nodata=np.nan, **options)
        for side in (vectors.real, vectors.imag)
    )
    numbers, dtype = circle.numbers(x + 1j * y), array.dtype.newbyteorder("=")
    lost, end = np.isnan(numbers), circle.first + circle.turn
    if dtype.kind == "f":
        made = numbers.astype(dtype)
        made[made >= end] = circle.first
        hole, beside = (np.nan, 0) if nodata is None else (nodata, np.nextafter(dtype.type(nodata), np.inf))
    else:
        numbers = np.floor(np.where(lost, circle.first, numbers) + 0.5)
        made = np.where(numbers >= end, numbers - circle.turn, numbers).astype(dtype)
        hole, beside = nodata, 0 if nodata is None else nodata + (1 if nodata + 1 < end else -1)
    if nodata is not None:
        made[made == nodata] = beside
    if hole is None:
        options = {name: value for name, value in options.items() if name != "threads"}
        hole = downsample(array, factors, "nearest", **options)[lost] if lost.any() else 0
    made[lost] = hole
    return made
