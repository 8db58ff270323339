"""Reading of a pyramid's tiles by tile matrix, column and row, each from one chunk."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.errors import MetadataError, NotFoundError, SelectionError
from zstore.geo.conventions.base import Affine, Finding, HeldGroup, group_above
from zstore.geo.conventions.geozarr import (
    Limits,
    parse_layout,
    parse_limits,
    parse_numbers,
    parse_tile_matrix_set,
)
from zstore.geo.conventions.meaning import Meaning
from zstore.geo.pyramid.dataset import PlaceLike, place_of
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open as open_node
from zstore.storage.url import with_storage_options

Items = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class _Grid:
    """One level: its group or array, its tile matrix, and the cell of the matrix at which it begins."""

    node: Group | Array
    tile_shape: tuple[int, int]
    matrix_shape: tuple[int, int] | None
    begin: tuple[int, int]
    dimensions: tuple[str, str] | None
    limits: Limits | None


class TileReader:
    """Reads tiles of one pyramid; its metadata are read once. Safe to use from many threads at once."""

    def __init__(self, group: Group) -> None:
        self._place = place_of(group)
        self._grids = _grids(group, self._place)
        self._arrays: dict[tuple[str, str | None], Array] = {}

    @property
    def levels(self) -> list[str]:
        """The tile matrices that the pyramid lists and has."""
        return list(self._grids)

    def window(self, z: int | str, shape: tuple[int, int]) -> tuple[slice, slice]:
        """The (y, x) window of a level of that shape within its limits; all of it, if it has none."""
        grid = self._grids.get(str(z))
        if grid is None or grid.limits is None:
            return slice(0, shape[0]), slice(0, shape[1])
        sides = []
        for axis, size in enumerate(shape):
            first, last = grid.limits[2 * axis : 2 * axis + 2]
            length, begin = grid.tile_shape[axis], grid.begin[axis]
            low = min(max(0, first * length - begin), size)
            sides.append(slice(low, max(low, min((last + 1) * length - begin, size))))
        return sides[0], sides[1]

    def read(self, z: int | str, x: int, y: int, array: str | None = None, **indexers: Any) -> Items:
        """The tile in column `x` and row `y` of tile matrix `z`; see `read_tile`."""
        name = str(z)
        grid = self._grids.get(name)
        if grid is None:
            raise NotFoundError(
                f"no level for tile matrix {name!r}; there are {', '.join(self._grids)}", path=self._place
            )
        found = self._array(name, grid, array)
        axes = _axes(found, grid)
        column, row = _index(x, "x", grid.matrix_shape, 1, name), _index(y, "y", grid.matrix_shape, 0, name)
        region, kept = _region(found, axes, indexers, self._place)
        shape = [len(range(*side.indices(n))) for side, n in zip(region, found.shape, strict=True)]
        inner: list[slice] = [slice(0, length) for length in shape]
        for axis, index, length, begin in zip(axes, (row, column), grid.tile_shape, grid.begin, strict=True):
            first = index * length - begin
            low, high = max(0, first), min(found.shape[axis], first + length)
            region[axis], inner[axis] = slice(low, max(low, high)), slice(low - first, max(low, high) - first)
            shape[axis] = length
        is_whole = all(s.stop - s.start == n for s, n in zip(inner, shape, strict=True))
        if is_whole:
            tile: Items = found[tuple(region)]
        else:
            fill = found.fill_value
            tile = np.full(shape, 0 if fill is None else fill, found.dtype)
            if all(side.stop > side.start for side in inner):
                tile[tuple(inner)] = found[tuple(region)]
        squeezed = tuple(axis for axis in range(found.ndim) if axis not in kept)
        return tile.squeeze(squeezed) if squeezed else tile

    def _array(self, level: str, grid: _Grid, name: str | None) -> Array:
        known = self._arrays.get((level, name))
        if known is not None:
            return known
        if isinstance(grid.node, Array):
            found = grid.node
        else:
            names = [n for n, a in grid.node.arrays() if a.ndim > 1] if name is None else [name]
            if len(names) != 1:
                raise MetadataError(
                    f"level {level!r} holds {', '.join(sorted(names)) or 'no arrays'}; expected a name",
                    path=self._place,
                )
            member = grid.node.get(names[0])
            if not isinstance(member, Array) or member.ndim < 2:
                raise NotFoundError(f"level {level!r} has no array {names[0]!r} of tiles", path=self._place)
            found = member
        self._arrays[level, name] = found
        return found


@with_storage_options
def open_tiles(pyramid: Group | PlaceLike, *, storage_options: Mapping[str, Any] | None = None) -> TileReader:
    """A reader of the pyramid's tiles, quicker than `read_tile` for more than one.

    Raises
        NotFoundError: there is nothing.
        MetadataError: it is no pyramid on a tile matrix set.
    """
    node = pyramid if isinstance(pyramid, Group) else open_node(pyramid, mode="r")
    if not isinstance(node, Group):
        raise MetadataError(f"{node!r} is no pyramid; expected a group", path=place_of(node))
    if not node.read_only:
        # Whoever only reads may take consolidated metadata, and so need fewer requests.
        node = open_node(node.store, node.path, mode="r")
    assert isinstance(node, Group)
    return TileReader(node)


@with_storage_options
def read_tile(
    pyramid: Array | Group | PlaceLike,
    z: int | str,
    x: int,
    y: int,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **indexers: Any,
) -> Items:
    """One tile of a pyramid on a tile matrix set: that in column `x` and row `y` of tile matrix `z`.

    Where the level's chunks (inner chunks, if sharded) are the set's tiles, that fetches one chunk.

    pyramid   the multiscale group, or an array or a level of it
    array     the name of the array; None: that of `pyramid` if it is one, else the only one there is
    storage_options  how to reach a bucket or web server that `pyramid` names by URL
    indexers  by dimension, an integer or a slice: what to read of dimensions other than y and x

    Shapes
        result: the array's dimensions in their order, y and x as long as a tile, those with an integer left
        out. What lies beyond the array, or was never written, is the fill value.
    Raises
        NotFoundError: no such level or array.
        SelectionError: the tile lies outside its tile matrix, or an indexer fits no dimension.
        MetadataError: it is no pyramid on a tile matrix set, or it has several arrays and none is named.
    """
    node: Array | Group
    node = pyramid if isinstance(pyramid, Array | Group) else open_node(pyramid, mode="r", above=True)
    if isinstance(node, Array):
        array = node.basename if array is None else array
    held: Array | Group | None = node
    for _ in range(3):
        if held is None or (isinstance(held, Group) and "multiscales" in held.attrs):
            break
        held = group_above(held)
    if not isinstance(held, Group) or "multiscales" not in held.attrs:
        raise MetadataError(
            "there is no pyramid here; expected a group with multiscales, or a level or an array of one",
            path=place_of(node),
        )
    return open_tiles(held).read(z, x, y, array, **indexers)


def _grids(group: Group, place: str) -> dict[str, _Grid]:
    stated, findings = group.attrs.get("multiscales"), list[Finding]()
    if not isinstance(stated, Mapping) or "tile_matrix_set" not in stated:
        raise MetadataError("multiscales has no tile_matrix_set; expected one, to know tiles by", path=place)
    held = HeldGroup(group)
    entries, _ = parse_tile_matrix_set(stated, held, findings)
    layout = parse_layout(stated["layout"], group.path, findings) if "layout" in stated else []
    affines, read = {entry.path: entry.affine for entry in layout}, dict[str, Affine | None]()
    grids = {}
    for entry in entries:
        found = held.below(entry.path)
        if found is None or entry.tile_shape is None:
            continue
        node = found.node
        own = _stated_affine(node) or affines.get(entry.path)
        is_exact = own is not None
        if own is None and entry.fallback_affine is not None:
            # What coordinates and grid mappings say takes more requests, and is not as exact.
            read = read or _read_affines(held)
            own = read.get(entry.path)
        matrix_shape = None
        if entry.extent is not None:
            matrix_shape = (entry.extent[0] // entry.tile_shape[0], entry.extent[1] // entry.tile_shape[1])
        names = node.attrs.get("spatial:dimensions", group.attrs.get("spatial:dimensions"))
        pair = (str(names[0]), str(names[1])) if isinstance(names, list) and len(names) == 2 else None
        begin = _begin(entry.path, entry.fallback_affine, own, is_exact, place)
        within = parse_limits(stated, "tile_matrix_limits", entry.path)
        grids[entry.path] = _Grid(node, entry.tile_shape, matrix_shape, begin, pair, within)
    if not grids:
        raise MetadataError(f"tile_matrix_set says nothing of tiles: {findings}", path=place)
    return grids


def _stated_affine(node: Group | Array) -> Affine | None:
    numbers = parse_numbers(node.attrs.get("spatial:transform"), 6)
    return None if numbers is None else Affine.from_user(numbers)


def _read_affines(group: HeldGroup) -> dict[str, Affine | None]:
    """The affine of each level of a pyramid, by the level's path."""
    pyramid = Meaning().pyramid(group)
    return {} if pyramid is None else {level.path: level.affine for level in pyramid.levels}


def _begin(
    level: str, matrix: Affine | None, own: Affine | None, is_exact: bool, place: str
) -> tuple[int, int]:
    """(row, column) of a level's first cell in its matrix; parts of cells count in exact affines only."""
    if matrix is None or own is None:
        return 0, 0
    shift = ((own.f - matrix.f) / matrix.e, (own.c - matrix.c) / matrix.a)
    if not is_exact and all(abs(cells) < 1 for cells in shift):
        return 0, 0
    whole = (round(shift[0]), round(shift[1]))
    cells = zip((own.a, own.e), (matrix.a, matrix.e), strict=True)
    is_alike = not own.is_rotated and all(abs(one - other) <= 1e-6 * abs(other) for one, other in cells)
    if not is_alike or any(abs(s - w) > 1e-3 for s, w in zip(shift, whole, strict=True)):
        raise MetadataError(
            f"level {level!r} at {list(own)} does not lie on the cells of its tile matrix, {list(matrix)}",
            path=place,
        )
    return whole


def _axes(array: Array, grid: _Grid) -> tuple[int, int]:
    dims = array.dims or ()
    if grid.dimensions is not None and set(grid.dimensions) <= set(dims):
        return dims.index(grid.dimensions[0]), dims.index(grid.dimensions[1])
    return array.ndim - 2, array.ndim - 1


def _index(value: Any, name: str, shape: tuple[int, int] | None, axis: int, level: str) -> int:
    try:
        index = operator.index(value)
    except TypeError as error:
        raise SelectionError(f"{name} is {value!r}; expected a whole number") from error
    if index < 0 or (shape is not None and index >= shape[axis]):
        most = "" if shape is None else f" to {shape[axis] - 1}"
        raise SelectionError(f"{name} is {index}; tile matrix {level!r} has 0{most}")
    return index


def _region(
    array: Array, axes: tuple[int, int], indexers: Mapping[str, Any], place: str
) -> tuple[list[slice], list[int]]:
    """(slices to read along the dimensions beside y and x, dimensions of the result)."""
    dims = array.dims or (None,) * array.ndim
    free = {name: axis for axis, name in enumerate(dims) if name is not None and axis not in axes}
    unknown = set(indexers) - set(free)
    if unknown:
        raise SelectionError(
            f"no dimensions {sorted(unknown)} to choose from; there are {sorted(free)}", path=place
        )
    region, kept = [slice(0, size) for size in array.shape], list(range(array.ndim))
    for name, chosen in indexers.items():
        axis = free[name]
        if isinstance(chosen, slice):
            begin, end, step = chosen.indices(array.shape[axis])
            if step < 1:
                raise SelectionError(f"{name} is {chosen!r}; expected a step of at least 1", path=place)
            region[axis] = slice(begin, max(begin, end), step)
            continue
        index = operator.index(chosen)
        if not -array.shape[axis] <= index < array.shape[axis]:
            raise SelectionError(f"{name} is {index}; expected one of {array.shape[axis]}", path=place)
        region[axis] = slice(index % array.shape[axis], index % array.shape[axis] + 1)
        kept.remove(axis)
    return region, kept
