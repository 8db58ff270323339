"""Datasets into Zarr: encoded by xarray as for its engine "zarr", cut, checked and written by zstore.

Everything is planned and tried out before the store is touched; then metadata is written, then what is in
memory, then what dask computes, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import xarray as xr

from zstore.array import Array
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.group import Group
from zstore.integrations.dask import align_chunks as align
from zstore.integrations.dask import is_aligned, write_edges
from zstore.integrations.spelling import spell_attributes
from zstore.integrations.xarray_plan import Plan, encode_new, encode_onto, resolve_region
from zstore.opening import create_group, open_group
from zstore.pyramid.levels import rehearse
from zstore.storage.base import Store, join_key
from zstore.storage.url import open_store

__all__ = ["MODES", "write_dataset", "write_tree"]

MODES = ("w", "w-", "a", "a-", "r+")


class _Target(NamedTuple):
    """Where to write: a store, a path, and the group that is there to be written into."""

    store: Store
    path: str
    group: Group | None
    zarr_format: int
    mode: str
    is_owned: bool


def write_dataset(
    dataset: xr.Dataset,
    store: Any,
    *,
    mode: str | None = None,
    group: str | None = None,
    encoding: Mapping[Any, Mapping[str, Any]] | None = None,
    zarr_format: int | None = None,
    consolidated: bool | None = None,
    append_dim: Any = None,
    region: Any = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    compute: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Write the dataset to a group of a store; gives the `Group`, or with compute=False what dask computes.

    mode          "w-" makes the group (the default), "w" replaces it, "a" adds variables and replaces those
                  there are, "a-" leaves those without `append_dim` alone, "r+" writes values only
    encoding      per variable: `chunks`, `shards`, `compressors`, `filters`, `serializer`, `fill_value`,
                  `chunk_key_encoding`, and what CF has: `dtype`, `scale_factor`, `_FillValue`, `units`, ...
    consolidated  whether the root's metadata is consolidated at the end; None: where metadata was written
    append_dim    the dimension along which the dataset goes behind what there is
    region        slices by dimension, or "auto" for those that the coordinates tell: "auto" alone for all
    safe_chunks   refuse dask chunks that meet within a stored object (a shard, where there are)
    align_chunks  cut dask's chunks along the stored objects instead

    Raises
        StoreError: the group is there already (mode "w-").
        NotFoundError: it is not (mode "r+").
        MetadataError: what is given contradicts itself or what is there; nothing was written then.
    """
    mode = _choose_mode(mode, append_dim, region)
    _check_names(dataset, encoding)
    target = _open_target(store, mode, group, zarr_format, storage_options)
    try:
        if target.group is not None and region is not None:
            dataset, places = resolve_region(dataset, target.group, region)
        elif region is not None:
            raise MetadataError(f"region is {region!r}, and there is nothing to write it into")
        else:
            places = {}
        _check_source(dataset, target)
        plans, attributes = _plan(dataset, target, encoding or {}, append_dim, places)
        plans = [_cut(plan, mode, safe=safe_chunks, aligns=align_chunks) for plan in plans]
        made = _make(target, plans, attributes, consolidated)
        stored = _write(plans, made, compute=compute)
    except BaseException:
        if target.is_owned:
            target.store.close()
        raise
    if stored is None:
        target.store.flush()
        return made.group
    import dask

    return dask.delayed(_finish)(stored, target.store)  # type: ignore[attr-defined, no-untyped-call, unused-ignore]


def write_tree(
    tree: xr.DataTree,
    store: Any,
    *,
    mode: str | None = None,
    group: str | None = None,
    encoding: Mapping[str, Mapping[Any, Mapping[str, Any]]] | None = None,
    zarr_format: int | None = None,
    consolidated: bool | None = None,
    write_inherited_coords: bool = False,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    compute: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Write every node of a tree to the group of its name; `encoding` is by path of the node ("/a/b").

    Coordinates that nodes inherit are written once, at the node that has them, unless
    `write_inherited_coords`. The other arguments, and what comes back, are those of `write_dataset`.
    """
    unknown = set(encoding or ()) - set(tree.groups)
    if unknown:
        raise MetadataError(
            f"encoding names {sorted(unknown)}; expected nodes of the tree: {list(tree.groups)}"
        )
    mode = _choose_mode(mode, None, None)
    opened = open_store(store.store if isinstance(store, Group) else store, storage_options=storage_options)
    base = join_key(store.path if isinstance(store, Group) else "", (group or "").strip("/"))
    results = []
    for node in tree.subtree:
        is_root = node is tree
        results.append(
            write_dataset(
                node.to_dataset(inherit=write_inherited_coords or is_root),
                opened,
                # The root's mode has dealt with what is below it.
                mode=mode if is_root or mode != "w" else "w-",
                group=join_key(base, "" if is_root else node.path.removeprefix(tree.path).strip("/")),
                encoding=(encoding or {}).get(node.path),
                zarr_format=zarr_format,
                consolidated=False,
                safe_chunks=safe_chunks,
                align_chunks=align_chunks,
                compute=compute,
            )
        )
    if consolidated or (consolidated is None and mode != "r+"):
        open_group(opened, "", "r+").consolidate()
    opened.flush()
    if compute:
        return open_group(opened, base, "r+")
    import dask

    return dask.delayed(_finish)(results, opened)  # type: ignore[attr-defined, no-untyped-call, unused-ignore]


def _choose_mode(mode: str | None, append_dim: Any, region: Any) -> str:
    chosen = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
    if chosen not in MODES:
        raise MetadataError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")
    if append_dim is not None and chosen not in ("a", "a-"):
        raise MetadataError(f"append_dim is {append_dim!r} with mode {chosen!r}; expected mode 'a' or 'a-'")
    if region is not None and chosen not in ("a", "a-", "r+"):
        raise MetadataError(f"region is {region!r} with mode {chosen!r}; expected mode 'r+' or 'a'")
    return chosen


def _check_names(dataset: xr.Dataset, encoding: Mapping[Any, Any] | None) -> None:
    for name in [*dataset.variables, *dataset.dims]:
        if not isinstance(name, str) or not name or "/" in name:
            raise MetadataError(f"variable or dimension is named {name!r}; expected a string without '/'")
    unknown = set(encoding or ()) - set(dataset.variables)
    if unknown:
        raise MetadataError(f"encoding names {sorted(map(str, unknown))}; expected variables of the dataset")


def _open_target(
    store: Any, mode: str, group: str | None, zarr_format: int | None, storage_options: Any
) -> _Target:
    path = (group or "").strip("/")
    if isinstance(store, Group):
        zarr_format, path = zarr_format or store.zarr_format, join_key(store.path, path)
    opened = open_store(store.store if isinstance(store, Group) else store, storage_options=storage_options)
    is_owned = opened is not store and not isinstance(store, Group)
    found: Group | None = None
    try:
        found = open_group(opened, path, "r+")
    except NotFoundError:
        if mode == "r+":
            raise
    is_empty = found is not None and not path and not found.attrs and not [*found.keys()]
    if found is not None and mode == "w-" and not is_empty:
        raise StoreError(
            "a group is there already; expected none, or mode='w' to replace it, 'a' to add to it",
            path=join_key(opened.url, path),
        )
    if mode == "w":
        return _Target(opened, path, None, zarr_format or 3, mode, is_owned)
    if found is not None and zarr_format not in (None, found.zarr_format):
        raise MetadataError(
            f"zarr_format is {zarr_format}; expected the group's {found.zarr_format}",
            path=join_key(opened.url, path),
        )
    return _Target(
        opened, path, found, found.zarr_format if found is not None else zarr_format or 3, mode, is_owned
    )


def _check_source(dataset: xr.Dataset, target: _Target) -> None:
    """A dataset that still has to be read is never written over itself."""
    source = dataset.encoding.get("source")
    if (
        target.mode != "w"
        or not isinstance(source, str)
        or all(variable._in_memory for variable in dataset.variables.values())
    ):
        return
    try:
        same = open_store(source, read_only=True).url.rstrip("/") == target.store.url.rstrip("/")
    except StoreError:
        same = False
    if same:
        raise MetadataError(
            "the dataset is read from the store that mode='w' empties first; load() it, or write elsewhere",
            path=target.store.url,
        )


def _plan(
    dataset: xr.Dataset,
    target: _Target,
    encoding: Mapping[Any, Mapping[str, Any]],
    append_dim: Any,
    places: Mapping[str, slice],
) -> tuple[list[Plan], dict[str, Any]]:
    """What becomes of each variable, and the attributes of the group."""
    variables, attributes = xr.conventions.encode_dataset_coordinates(dataset)
    there = {} if target.group is None else dict(target.group.arrays())
    if append_dim is not None and target.group is not None and there:
        known = {name for array in there.values() for name in array.dims or ()}
        if append_dim not in known:
            raise MetadataError(f"append_dim is {append_dim!r}; expected one of {sorted(map(str, known))}")
    plans = []
    for name, variable in variables.items():
        array = there.get(str(name))
        if array is None:
            if target.mode == "r+":
                raise MetadataError(f"variable {name!r} is not in the store; expected mode 'a' to add it")
            plan = encode_new(str(name), variable, encoding.get(name), target.zarr_format)
            rehearse(target.zarr_format, plan.options)
        elif target.mode == "a-" and append_dim is not None and append_dim not in variable.dims:
            continue
        else:
            if name in encoding:
                raise MetadataError(f"encoding is given for {name!r}, which the store has; expected none")
            plan = encode_onto(str(name), variable, array, append_dim, places)
        plans.append(plan)
    return plans, attributes


def _cut(plan: Plan, mode: str, *, safe: bool, aligns: bool) -> Plan:
    """The plan with its dask chunks along the stored objects, or known to be.

    Mode "r+" is for several writers at once: there both ends must not lie within a stored object either.
    """
    chunks = plan.variable.chunks
    if chunks is None or not (safe or aligns):
        return plan
    model = plan.array if plan.array is not None else rehearse(3 if plan.is_v3 else 2, plan.options)
    if plan.shape is not None and plan.array is not None:
        model = Array(
            plan.array.store, plan.array.path, plan.array.model.with_shape(plan.shape), read_only=True
        )
    cuts = []
    for axis, (lengths, place) in enumerate(zip(chunks, plan.places, strict=True)):
        edges = write_edges(model, axis)
        if not lengths or sum(lengths) == 0:
            cuts.append(lengths)
        elif aligns:
            cuts.append(align(lengths, edges, place.start))
        elif is_aligned(lengths, edges, place.start) and (
            mode != "r+" or {place.start, place.stop} <= set(edges.tolist())
        ):
            cuts.append(lengths)
        else:
            unit = model.shards or model.chunks
            raise MetadataError(
                f"dask's chunks {lengths} of {plan.name!r} along {plan.variable.dims[axis]!r}, from "
                f"{place.start} on, meet within stored objects of {unit[axis]} items, where writers would "
                "wait for each other or, on some stores, undo each other's work; rechunk, or "
                "align_chunks=True, or safe_chunks=False"
            )
    return plan._replace(variable=plan.variable.chunk(dict(zip(plan.variable.dims, cuts, strict=True))))


class _Made(NamedTuple):
    group: Group
    arrays: dict[str, Array]


def _make(
    target: _Target, plans: list[Plan], attributes: Mapping[str, Any], consolidated: bool | None
) -> _Made:
    """All metadata: the group, new arrays, new shapes."""
    where = join_key(target.store.url, target.path)
    spelled = spell_attributes(attributes, where)
    group = target.group
    had_summary = group is not None and open_group(target.store, "", "r+").model.consolidated is not None
    changes = group is None
    if group is None:
        group = create_group(
            target.store,
            target.path,
            zarr_format=target.zarr_format,
            attributes=spelled,
            overwrite=target.mode == "w",
        )
    elif target.mode != "r+" and any(group.attrs.get(name) != value for name, value in spelled.items()):
        group.attrs.update(spelled)
        changes = True
    arrays = {}
    for plan in plans:
        if plan.array is None:
            arrays[plan.name] = group.create_array(plan.name, **plan.options)
            changes = True
            continue
        arrays[plan.name] = plan.array
        if plan.shape is not None and plan.shape != plan.array.shape:
            plan.array.resize(plan.shape)
            changes = True
    if consolidated or (consolidated is None and changes and (target.group is None or had_summary)):
        open_group(target.store, "", "r+").consolidate()
        group = open_group(target.store, target.path, "r+")
    return _Made(group, arrays)


def _write(plans: list[Plan], made: _Made, *, compute: bool) -> Any:
    """Write the values; with compute=False, those that dask has are left to what is returned."""
    sources, targets, regions = [], [], []
    for plan in plans:
        array = made.arrays[plan.name]
        if plan.variable.chunks is not None:
            sources.append(plan.variable.data)
            targets.append(array)
            regions.append(plan.places)
        elif plan.variable.size:
            array[plan.places] = plan.variable.values
    if not sources:
        return None if compute else _nothing()
    import dask.array

    return dask.array.store(  # type: ignore[no-untyped-call, unused-ignore]
        sources, targets, lock=False, regions=regions, compute=compute, return_stored=False
    )


def _nothing() -> list[Any]:
    return []


def _finish(stored: Any, store: Store) -> None:
    """The last task: what a store keeps back becomes visible."""
    store.flush()
