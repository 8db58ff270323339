"""Fixes of the names of dimensions, which other levels, neighbours or lengths tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from zstore.geo.conventions.cf import axis_of
from zstore.geo.validation.fixing.plan import Draft
from zstore.geo.validation.rules.documents import DIMENSIONS, dimension_trouble
from zstore.geo.validation.view import ArrayView, GroupView

# What xarray and netCDF call dimensions that have no names.
MADE_UP = re.compile(r"(dim|phony_dim)_\d+")


def fix_dimensions(draft: Draft) -> None:
    """Name dimensions whose names are missing or made up, and put `spatial:dimensions` in order."""
    for array in draft.hierarchy.arrays:
        known = tuple(array.dims or ()) or (None,) * len(array.shape)
        made_up = [name is not None and bool(MADE_UP.fullmatch(name)) for name in known]
        if not array.shape or not (dimension_trouble(array) or any(made_up)):
            continue
        kept = [None if is_made_up else name for name, is_made_up in zip(known, made_up, strict=True)]
        names = next((found for found in _candidates(draft, array) if _fits(array, found, kept)), None)
        if names is None or names == array.dims:
            continue
        if array.zarr_format == 3:
            draft.edit(array, {"dimension_names": list(names)})
            draft.note("GZ-10", array, f"dimensions are named {', '.join(names)}")
        else:
            message = f"dimensions are named {', '.join(names)}"
            draft.update("GZ-10", array, message, {DIMENSIONS: list(names)})
    for group in draft.hierarchy.groups:
        _fix_order(draft, group)


def _candidates(draft: Draft, array: ArrayView) -> Iterator[tuple[str, ...]]:
    """The names that the dimensions of an array may have, the likeliest first."""
    group = array.parent
    written = array.stored.get(DIMENSIONS)
    if isinstance(written, list) and all(isinstance(name, str) for name in written):
        yield tuple(written)
    if not isinstance(group, GroupView):
        return
    if len(array.shape) == 1:
        # The arrays whose coordinate this one would be.
        relatives = (*group.arrays.values(), *_twins(draft, array, group))
        if any(array.name in (other.dims or ()) for other in relatives):
            yield (array.name,)
        return
    for twin in _twins(draft, array, group):
        yield from _whole(twin)
    for other in group.arrays.values():
        if other.shape == array.shape:
            yield from _whole(other)
    stated = next((s for g in (group, *group.ancestors()) if (s := g.attrs.get("spatial:dimensions"))), None)
    lengths: dict[int, list[str]] = {}
    for name, other in group.arrays.items():
        if len(other.shape) == 1 and other.dims in (None, (None,), (name,)):
            lengths.setdefault(other.shape[0], []).append(name)
    by_length = [lengths.get(length, []) for length in array.shape]
    if isinstance(stated, list) and len(stated) == 2 and all(isinstance(name, str) for name in stated):
        others = [names[0] if len(names) == 1 else "" for names in by_length[:-2]]
        yield (*others, *stated)
    if all(len(names) == 1 for names in by_length):
        yield tuple(names[0] for names in by_length)


def _twins(draft: Draft, array: ArrayView, group: GroupView) -> Iterator[ArrayView]:
    """The arrays of the same name at the other levels of a pyramid."""
    for pyramid in draft.hierarchy.pyramids:
        nodes = [level.node for level in pyramid.levels]
        if not any(node is group for node in nodes):
            continue
        for node in nodes:
            twin = node.arrays.get(array.name) if isinstance(node, GroupView) else None
            if twin is not None and twin is not array:
                yield twin


def _whole(array: ArrayView) -> Iterator[tuple[str, ...]]:
    """The names of an array's dimensions, if all of them have one that was not made up."""
    names = array.dims
    if names is not None and all(name and not MADE_UP.fullmatch(name) for name in names):
        yield tuple(str(name) for name in names)


def _fits(array: ArrayView, names: tuple[str, ...], kept: Sequence[str | None]) -> bool:
    """Whether these may be an array's dimensions: by the names it has, and their lengths in other arrays."""
    if len(names) != len(array.shape) or len(set(names)) != len(names) or not all(names):
        return False
    if any(known is not None and known != name for known, name in zip(kept, names, strict=False)):
        return False
    arrays = array.parent.arrays if isinstance(array.parent, GroupView) else {}
    for name, length in zip(names, array.shape, strict=True):
        lengths = {
            size
            for other in arrays.values()
            if other is not array
            for dimension, size in zip(other.dims or (), other.shape, strict=False)
            if dimension == name
        }
        coordinate = arrays.get(name)
        if coordinate is not None and coordinate is not array and len(coordinate.shape) == 1:
            lengths.add(coordinate.shape[0])
        if lengths and length not in lengths:
            return False
    return True


def _fix_order(draft: Draft, group: GroupView) -> None:
    """Put y before x in `spatial:dimensions`, where the arrays and their coordinates have them so."""
    stated = group.attrs.get("spatial:dimensions")
    if not isinstance(stated, list) or len(stated) != 2 or not all(isinstance(n, str) for n in stated):
        return
    kinds = [axis_of(name, group.arrays.get(name)) for name in stated]
    if kinds == ["X", "Y"]:
        turned = stated[::-1]
        draft.update("ZC-05", group, f"spatial:dimensions are {turned}", {"spatial:dimensions": turned})
