"""Selections in every form that numpy has, as hypothesis strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st


def slices(length: int) -> st.SearchStrategy[slice]:
    """Slices of any step, within and beyond the ends."""
    end = st.one_of(st.none(), st.integers(-length - 2, length + 2))
    step = st.one_of(
        st.none(), st.just(1), st.just(-1), st.integers(1, length + 2), st.integers(-length - 2, -1)
    )
    return st.builds(slice, end, end, step)


def positions(
    length: int, shape: tuple[int, ...], unique: bool = False
) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Integer arrays of that shape; none where the dimension has no length."""
    count = int(np.prod(shape))
    if length == 0:
        return st.just(np.zeros((0,) if shape else (), np.int64))
    kind = st.sampled_from([np.int64, np.int32, np.int8, np.intp])
    items = st.lists(st.integers(-length, length - 1), min_size=count, max_size=count)
    if unique:
        items = st.permutations(range(length)).map(
            lambda order: order[:count] if count <= length else [0] * count
        )
    return st.builds(lambda values, dtype: np.array(values, dtype).reshape(shape), items, kind)


def masks(shape: tuple[int, ...], count: int) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Masks of that shape with `count` items true, or as many as there are."""
    size = int(np.prod(shape))

    def build(order: list[int]) -> np.ndarray[Any, Any]:
        mask = np.zeros(size, bool)
        mask[order[: min(count, size)]] = True
        return mask.reshape(shape)

    return st.permutations(range(size)).map(build)


@st.composite
def numpy_selections(
    draw: st.DrawFn, shape: tuple[int, ...], *, basic: bool = False, unique: bool = False
) -> Any:
    """What may stand in the brackets of a numpy array of `shape`; nearly always one that numpy takes."""
    count = draw(st.integers(0, 5))
    wide = (count,) if draw(st.integers(0, 3)) else (draw(st.integers(1, 3)), count)
    entries: list[Any] = []
    d = 0
    has_ellipsis = False
    while d < len(shape):
        choice = draw(
            st.sampled_from(
                ["slice", "slice", "int", "new", "ellipsis"]
                + ([] if basic else ["array", "array", "list", "mask", "zero"])
            )
        )
        if choice == "new":
            if sum(entry is None for entry in entries) < 2:
                entries.append(None)
        elif choice == "ellipsis":
            if not has_ellipsis:
                has_ellipsis = True
                entries.append(Ellipsis)
                d += draw(st.integers(0, len(shape) - d))
        elif choice == "slice" or (choice == "int" and shape[d] == 0):
            entries.append(draw(slices(shape[d])))
            d += 1
        elif choice == "int":
            value = draw(st.integers(-shape[d], shape[d] - 1))
            entries.append(draw(st.sampled_from([int, np.int64, np.uint8 if value >= 0 else np.int8]))(value))
            d += 1
        elif choice == "mask":
            k = draw(st.integers(1, min(2, len(shape) - d)))
            entries.append(draw(masks(shape[d : d + k], wide[-1])))
            d += k
        else:
            kind = {"array": [wide, (wide[-1],), (1,), (*wide[:-1], 1)], "list": [(wide[-1],)], "zero": [()]}[
                choice
            ]
            array = draw(positions(shape[d], draw(st.sampled_from(kind)), unique))
            entries.append(array.tolist() if choice == "list" else array)
            d += 1
        if not has_ellipsis and draw(st.integers(0, 9)) == 0:
            break
    if not basic and draw(st.integers(0, 19)) == 0:
        entries.insert(draw(st.integers(0, len(entries))), draw(st.booleans()))
    if len(entries) == 1 and draw(st.booleans()):
        return entries[0]
    return tuple(entries)


@st.composite
def orthogonal(draw: st.DrawFn, shape: tuple[int, ...], unique: bool = False) -> tuple[Any, ...]:
    """One choice per dimension."""
    entries: list[Any] = []
    for length in shape:
        choice = draw(st.sampled_from(["slice", "int", "array", "list", "mask"]))
        if choice == "slice" or length == 0:
            entries.append(draw(slices(length)))
        elif choice == "int":
            entries.append(draw(st.integers(-length, length - 1)))
        elif choice == "mask":
            entries.append(draw(masks((length,), draw(st.integers(0, length)))))
        else:
            array = draw(positions(length, (draw(st.integers(0, 6)),), unique))
            entries.append(array.tolist() if choice == "list" else array)
    return tuple(entries)


def orthogonal_to_numpy(selection: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """The same items by numpy's own indexing, and the shape that the result is to have."""
    axes, result = [], []
    for entry, length in zip(selection, shape, strict=True):
        positions = np.arange(length)[entry if not isinstance(entry, list) else np.array(entry, np.int64)]
        axes.append(np.atleast_1d(positions))
        if positions.ndim:
            result.append(positions.size)
    return np.ix_(*axes), tuple(result)


@st.composite
def points(draw: st.DrawFn, shape: tuple[int, ...], unique: bool = False) -> tuple[Any, ...]:
    """Index arrays for every dimension that broadcast together."""
    wide = tuple(draw(st.lists(st.integers(0 if 0 in shape else 1, 4), max_size=3)))
    if 0 in shape:
        wide = (0,)
    entries = []
    for length in shape:
        narrow = tuple(n if draw(st.integers(0, 3)) else 1 for n in wide)
        entries.append(draw(positions(length, wide if 0 in wide else narrow, unique)))
    return tuple(entries)
