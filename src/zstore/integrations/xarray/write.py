"""Datasets into Zarr: encoded by xarray as for its engine "zarr", cut, checked and written by zstore.

Everything is planned and tried out before the store is touched (`prepare`); then metadata is written,
then what is in memory, then what dask computes, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import xarray as xr

from zstore.errors import MetadataError
from zstore.integrations.xarray.plan import Plan
from zstore.integrations.xarray.prepare import Prepared, choose_mode, open_place, prepare
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import create_group, open_group
from zstore.storage.base import Store, join_key

__all__ = ["delay", "write_dataset", "write_prepared", "write_tree"]


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
    place = open_place(store, group, zarr_format, storage_options)
    try:
        prepared = prepare(
            dataset,
            place,
            mode=mode,
            encoding=encoding,
            append_dim=append_dim,
            region=region,
            safe_chunks=safe_chunks,
            align_chunks=align_chunks,
        )
        made, stored = write_prepared(prepared, consolidated=consolidated, compute=compute)
    except BaseException:
        place.close()
        raise
    return made if stored is None else delay(stored, place.store)


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
    `write_inherited_coords`. The other arguments, and what comes back, are those of `write_dataset`; all
    nodes are checked before the first is written.
    """
    unknown = set(encoding or ()) - set(tree.groups)
    if unknown:
        raise MetadataError(
            f"encoding names {sorted(unknown)}; expected nodes of the tree: {list(tree.groups)}"
        )
    mode = choose_mode(mode, None, None)
    place = open_place(store, group, zarr_format, storage_options)
    try:
        prepared = []
        for node in tree.subtree:
            below = "" if node is tree else node.path.removeprefix(tree.path).strip("/")
            prepared.append(
                prepare(
                    node.to_dataset(inherit=write_inherited_coords or node is tree),
                    place._replace(path=join_key(place.path, below)),
                    mode=mode,
                    encoding=(encoding or {}).get(node.path),
                    safe_chunks=safe_chunks,
                    align_chunks=align_chunks,
                )
            )
        written = [write_prepared(node, consolidated=False, compute=compute) for node in prepared]
        if consolidated or (consolidated is None and mode != "r+"):
            open_group(place.store, "", "r+").consolidate()
        place.store.flush()
    except BaseException:
        place.close()
        raise
    if compute:
        return open_group(place.store, place.path, "r+")
    return delay([stored for _, stored in written], place.store)


class _Made(NamedTuple):
    group: Group
    arrays: dict[str, Array]


def write_prepared(prepared: Prepared, *, consolidated: bool | None, compute: bool) -> tuple[Group, Any]:
    """Write what was prepared: the group, and with compute=False what dask has still to compute."""
    made = _make(prepared, consolidated)
    stored = _write(prepared.plans, made, compute=compute)
    if stored is None:
        prepared.target.store.flush()
    return made.group, stored


def _make(prepared: Prepared, consolidated: bool | None) -> _Made:
    """All metadata: the group, new arrays, new shapes."""
    target, plans, attributes = prepared
    group = target.group
    had_summary = group is not None and open_group(target.store, "", "r+").model.consolidated is not None
    changes = group is None
    if group is None:
        group = create_group(
            target.store,
            target.path,
            zarr_format=target.zarr_format,
            attributes=attributes,
            overwrite=target.mode == "w",
        )
    elif target.mode != "r+" and any(group.attrs.get(name) != value for name, value in attributes.items()):
        group.attrs.update(attributes)
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


def delay(stored: Any, store: Store) -> Any:
    """What dask will compute: the values, and then what the store keeps back."""
    import dask

    return dask.delayed(_finish)(stored, store)  # type: ignore[attr-defined, no-untyped-call, unused-ignore]


def _finish(stored: Any, store: Store) -> None:
    """The last task: what a store keeps back becomes visible."""
    store.flush()
