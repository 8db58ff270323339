"""Updates of pyramids: what depends on changed cells is made again, at every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from zstore.errors import MetadataError, SelectionError, StoreError
from zstore.geo.conventions.model import Affine
from zstore.geo.pyramid.boxes import Box, Shape, volume, whole
from zstore.geo.pyramid.builder import RunOptions, update
from zstore.geo.pyramid.dataset import Dataset, PlaceLike, free_extras, node_within, open_dataset, place_of
from zstore.geo.pyramid.grids import FactorGrid
from zstore.geo.pyramid.layers import Layer, recorded_layer
from zstore.geo.pyramid.levels import Encoding, PyramidPlan
from zstore.geo.pyramid.record import Record, read_record
from zstore.geo.pyramid.tile_grid import TileGrid
from zstore.jobs.plan import Progress
from zstore.jobs.record import find_unfinished, resumable
from zstore.jobs.record import read_record as read_job
from zstore.jobs.runner import Executor
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.storage.base import Store
from zstore.storage.url import with_storage_options

Region: TypeAlias = Mapping[str, Any] | Sequence[Any] | None


@resumable
@with_storage_options
def update_pyramid(
    pyramid: Group | PlaceLike,
    region: Region = None,
    *,
    arrays: Sequence[str] | None = None,
    source: Array | Group | PlaceLike | None = None,
    mask: Array | str | None = None,
    resume: bool = False,
    durable: bool = False,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """The pyramid that `build_pyramid` or `build_tile_pyramid` made, after its data have changed or grown.

    Only the chunks that depend on the region are made again, at every level, and come out as if all had been
    built anew. Levels grow and shrink with the finest, coordinates and all. Levels on a tile matrix set are
    made of its source, in whose cells the region is; where that has another extent now, all tiles are made
    again, on the same tile matrices.

    region   what has changed, by dimension: {"time": 7, "y": slice(0, 512)}, whole where nothing is said; or
             a slice per dimension. None: what the arrays have grown by; all, where they have not
    arrays   the names of those that have changed; None: all
    source   what the pyramid was built of, if that is not in its store; a copy of the finest level in the
             pyramid is brought up to date too
    mask     the array, or its address, that was the mask, if that is neither in the pyramid's store nor in
             the source's
    resume   go on with an update of the same arguments that was interrupted, or begin it: what the arrays
             hold is as it was then. With no region, go on with whatever was interrupted
    durable, memory, executor, progress, storage_options   as for `build_pyramid`

    Levels stay readable meanwhile: each chunk is the old one or the new one, and levels grow when their new
    cells are there. Until it ends, the levels' attribute `zstore` has a `state`, and `zstore info`,
    `validate` and `verify` name it. An update that was interrupted is made up for by the next one, whatever
    its region: it makes again all that the two were to make, or with `resume` only what was not made yet.

    Raises
        ChangedError: `resume`, and an array that the levels are made of is not described as it was.
        MetadataError: nothing says how the pyramid was built, or an array is missing; or it was built of what
            lies outside its store, and `source` or `mask` does not name that.
        SelectionError: the region does not fit the arrays.
        StoreError: other work is unfinished there, such as the building of the pyramid.
    """
    group = pyramid if isinstance(pyramid, Group) else open_group(pyramid, mode="r+")
    record, left = _checked(group)
    dataset = _find_source(group, record, source, arrays)
    variables = _with_masks(group, record, dataset, mask)
    plan = _plan_on_tiles if "tile_matrix_set" in record else _plan_on_factors
    planned, boxes = plan(group, {**record, "variables": variables}, dataset, left.grids), {}
    has_new_shapes = any(_former_shape(record, a.name) != a.recipe.source.shape for a in planned.layers)
    is_all = not (has_new_shapes or (resume and any(left.boxes.values())))
    for layer in planned.layers:
        is_asked = arrays is None or layer.name in arrays
        asked = _asked_boxes(region, layer, dataset.place, is_all=is_all) if is_asked else []
        boxes[layer.name] = _changed_boxes(layer, record, left, asked, is_all=planned.grid.has_moved)
    known = {name for layer in planned.layers for name in layer.variable.dimensions}
    if isinstance(region, Mapping) and not set(region) <= known:
        found, expected = (", ".join(sorted(map(str, names))) for names in (set(region) - known, known))
        raise SelectionError(f"region names {found}; the dimensions are {expected}", path=dataset.place)
    options = RunOptions(memory, executor, progress, durable)
    is_left_reshaped = any(
        shape != layer.recipe.source.shape for layer in planned.layers for shape in left.former_shapes(layer)
    )
    is_reshaped = has_new_shapes or is_left_reshaped or planned.grid.has_moved
    return update(planned, group, record, boxes, options, is_reshaped=is_reshaped, resume=resume)


class _Left(NamedTuple):
    """The work that an interrupted update has left.

    boxes   that were to be made, by the arrays' names
    grids   of the source
    shapes  of the arrays then, by their names; None where no update was interrupted
    """

    boxes: Mapping[str, Sequence[Any]]
    grids: Sequence[Sequence[float]]
    shapes: Mapping[str, Sequence[int]] | None = None

    def former_shapes(self, layer: Layer) -> list[Shape]:
        """The shape that a layer's source had in the interrupted update, if there is one.

        It is empty where that is not known: then all has grown.
        """
        shape = layer.recipe.source.shape
        found = () if self.shapes is None else tuple(self.shapes.get(layer.name, ()))
        return [] if self.shapes is None else [found if len(found) == len(shape) else (0,) * len(shape)]


def _checked(group: Group) -> tuple[Record, _Left]:
    record, job = read_record(group), read_job(group.store, group.path)
    if job is not None and job.work != "update_pyramid":
        [found, *_] = find_unfinished(group.store, group.path)
        raise StoreError(f"the pyramid cannot be updated: {found}", path=place_of(group))
    if record is None:
        raise MetadataError(
            "nothing says how this pyramid was built; expected one that build_pyramid made",
            path=place_of(group),
        )
    if job is None:
        return record, _Left({}, ())
    plan = job.plan if isinstance(job.plan, dict) else {}
    left = _Left(plan.get("pending", {}), plan.get("grids", ()), plan.get("shapes", {}))
    if _is_sound(left):
        return record, left
    raise MetadataError(
        f"an update was interrupted here, and what it was to make cannot be read: {job.plan!r}; "
        "expected a new build, with overwrite",
        path=place_of(group),
    )


def _is_sound(left: _Left) -> bool:
    """Whether the left work consists of lists of numbers, as an update writes it."""
    boxes, grids, shapes = left
    if not isinstance(boxes, dict) or not isinstance(grids, list | tuple) or not isinstance(shapes, dict):
        return False
    sides = [side for found in boxes.values() for box in (found if isinstance(found, list) else [None])
             for side in (box if isinstance(box, list) else [None])]  # fmt: skip
    is_grids = all(
        isinstance(grid, list) and len(grid) == 8 and all(type(n) in (int, float) for n in grid)
        for grid in grids
    )
    lists = [*sides, *shapes.values()]
    is_counts = all(isinstance(n, list) and all(type(i) is int and i >= 0 for i in n) for n in lists)
    return is_grids and is_counts and all(isinstance(side, list) and len(side) == 2 for side in sides)


def _find_source(
    group: Group, record: Record, source: Array | Group | PlaceLike | None, arrays: Sequence[str] | None
) -> Dataset:
    """The dataset that the levels are made of now.

    Raises
        MetadataError: an array that is named, or that the pyramid was built of, is not there, or is another.
    """
    finest, said = record["finest"], record["variables"]
    if source is None and finest is not None and "tile_matrix_set" not in record:
        # Coordinates that have not grown with their arrays are made again.
        found = open_dataset(group[finest], expected=("MS-11",))
        dataset = replace(found, root=group, level=finest)
    else:
        found = open_dataset(_recorded_node(group, record["source"], "source") if source is None else source)
        dataset = replace(found, root=None, level="")
    missing = [name for name in {*said, *(arrays or ())} if name not in dataset.arrays or name not in said]
    if missing:
        raise MetadataError(
            f"arrays {', '.join(sorted(missing))} are not both in the finest level and in the pyramid; "
            f"it was built of {', '.join(said)}",
            path=dataset.place,
        )
    for level, name in product([*record["levels"], finest][:1], said):
        array, held = dataset.arrays[name], None if level is None else group.get(f"{level}/{name}")
        kinds = [(one.ndim, one.dtype.newbyteorder("=")) for one in (array, held) if isinstance(one, Array)]
        if kinds[0] != kinds[-1]:
            raise MetadataError(
                f"array {name!r} has {kinds[0][0]} dimensions and the data type {kinds[0][1]}; expected "
                f"{kinds[1][0]} and {kinds[1][1]}, as the levels have, or a new build",
                path=dataset.place,
            )
    variables = {name: dataset.geo.variables[name] for name in said}
    return replace(dataset, geo=replace(dataset.geo, variables=variables))


def _recorded_node(group: Group, address: Any, argument: str, *others: Store) -> Array | Group:
    """The node at an address that the record names, where that lies in the pyramid's store or in another.

    Raises
        MetadataError: it lies elsewhere, and nobody but the record says that it is to be read.
    """
    for store in (group.store, *others):
        node = node_within(store, str(address))
        if node is not None:
            return node
    raise MetadataError(
        f"the pyramid was built of {address!r}, which is not in its store; expected {argument}= to name it",
        path=place_of(group),
    )


def _with_masks(
    group: Group, record: Record, dataset: Dataset, mask: Array | str | None
) -> dict[str, dict[str, Any]]:
    """The record's entries of the arrays, with the masks that lie outside of the dataset opened."""
    found = {}
    for name, entry in record["variables"].items():
        said = entry.get("mask")
        if isinstance(said, str) and "://" in said:
            own = dataset.arrays[name].store
            node = _recorded_node(group, said, "mask", own) if mask is None else mask
            entry = {**entry, "mask": node}
        found[name] = entry
    return found


def _plan_on_factors(group: Group, record: Record, dataset: Dataset, _: Any) -> PyramidPlan:
    dataset, (y, x), said = _placed(dataset, record), record["factors"], record["variables"].items()
    layers = [recorded_layer(dataset, name, entry, (y, x), record["grid"]) for name, entry in said]
    tile, own, first = (1, 1), None, layers[0]
    if record["levels"]:
        level = group[f"{record['levels'][0]}/{first.name}"]
        assert isinstance(level, Array)
        tile = first.tile_of(level)
    if dataset.level:
        own = first.tile_of(first.recipe.source)
    grid = FactorGrid(
        names=[record["finest"] or "0", *record["levels"]],
        factors=(y, x),
        tile=tile,
        kind=record["grid"],
        is_copied=record["copied"] and not dataset.level,
        is_absent=record["finest"] is None,
        own_tile=own,
    )
    encoding = Encoding("auto", "auto", group.zarr_format)
    return PyramidPlan.make(dataset, grid, layers, encoding, record["profile"], record["resampling"])


def _placed(dataset: Dataset, record: Record) -> Dataset:
    """The dataset, with the affine of the record if its coordinates have not grown with it."""
    geo, extras = dataset.geo, dict(dataset.extras)
    if geo.affine is None and record["affine"] is not None:
        geo = replace(geo, affine=Affine(*record["affine"]))
        for name in geo.dimensions:
            extras.pop(name, None)
    for name, size in zip(geo.dimensions, geo.shape, strict=True):
        if name in extras and extras[name].shape != (size,):
            raise MetadataError(
                f"coordinate {name!r} has the shape {extras[name].shape}; expected {(size,)}, as the arrays",
                path=dataset.place,
            )
    return replace(dataset, geo=geo, extras=extras)


def _plan_on_tiles(
    group: Group, record: Record, dataset: Dataset, left: Sequence[Sequence[float]]
) -> PyramidPlan:
    dataset, said = replace(dataset, extras=free_extras(dataset)), record["variables"]
    levels, length = [record["finest"], *record["levels"]], record["tile"][0]
    grid = TileGrid.choose(
        dataset, record["tile_matrix_set"], length, record["tolerance"], levels[-1], levels[0]
    )
    # Where else the source lay, at the last build or in an update that was interrupted.
    name = next(iter(said))
    former = [_former_shape(record, name)[axis] for axis in dataset.axes(name)]
    places = [[*record["affine"], *former]] if record["affine"] is not None else []
    grid = grid.after([*places, *left])
    layers = [recorded_layer(dataset, name, entry, grid.factors) for name, entry in said.items()]
    encoding = Encoding(None, "auto", group.zarr_format)
    return PyramidPlan.make(dataset, grid, layers, encoding, record["profile"], record["resampling"])


# What has changed


def _former_shape(record: Record, name: str) -> Shape:
    """The shape of an array when the pyramid was built."""
    return tuple(record["variables"][name]["shape"])


def _changed_boxes(
    layer: Layer, record: Record, left: _Left, asked: Sequence[Box], *, is_all: bool
) -> list[Box]:
    """The boxes of a layer's source that have changed: as asked for, by its growth, and as left undone.

    What an interrupted update made was of the shape then, which may be another than before and than now.
    """
    recipe, shape = layer.recipe, layer.recipe.source.shape
    grown = [
        (axis, slice(min(old, max(new - 1, 0)), new))
        for former in (_former_shape(record, layer.name), *left.former_shapes(layer))
        for axis, (old, new) in enumerate(zip(former, shape, strict=True))
        if old != new
    ]
    # A grid that is not aligned is stretched anew where it grows.
    is_stretched = recipe.grid != "aligned" and any(recipe.factors[axis] > 1 for axis, _ in grown)
    if is_all or is_stretched:
        return [whole(shape)]
    pending = [box for box in left.boxes.get(layer.name, ()) if len(box) == len(shape)]
    found = [
        *(tuple(side if i == axis else s for i, s in enumerate(whole(shape))) for axis, side in grown),
        *(tuple(slice(min(a, n), min(b, n)) for (a, b), n in zip(p, shape, strict=True)) for p in pending),
        *asked,
    ]
    return [box for number, box in enumerate(found) if volume(box) and box not in found[:number]]


def _asked_boxes(region: Region, layer: Layer, place: str, *, is_all: bool) -> list[Box]:
    """The boxes of one array that a region asks for; [] where it names none of the array's dimensions.

    is_all  whether no region means everything; else nothing
    """
    shape, names = layer.recipe.source.shape, layer.variable.dimensions
    if region is None:
        return [whole(shape)] if is_all else []
    if isinstance(region, Mapping):
        if not set(region) & set(names):
            return []
        given = [region.get(name, slice(None)) for name in names]
    else:
        given = list(region)
    if len(given) != len(shape):
        raise SelectionError(
            f"region has {len(given)} slices; expected {len(shape)}, for {names}", path=place
        )
    return [tuple(_side(side, size, name) for side, size, name in zip(given, shape, names, strict=True))]


def _side(side: Any, size: int, name: str) -> slice:
    if isinstance(side, int) and not isinstance(side, bool):
        index = side + size if side < 0 else side
        if 0 <= index < size:
            return slice(index, index + 1)
    elif isinstance(side, slice) and side.step in (None, 1):
        begin, end, _ = side.indices(size)
        return slice(begin, max(begin, end))
    raise SelectionError(f"region has {side!r} for {name!r}; expected an index or a slice in {size} cells")
