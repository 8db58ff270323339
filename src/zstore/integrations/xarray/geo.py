"""Datasets into GeoZarr: written as Zarr, then given the words of every dialect, or a pyramid.

All of it is done in memory first, without the values of the data: a dataset that is no grid, a name that is
taken, a method that nobody offers show before the store is touched.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import xarray as xr

from zstore.conventions.base import Documents
from zstore.conventions.write import render_geo
from zstore.engine.documents import create_node
from zstore.errors import MetadataError, ReadOnlyError
from zstore.integrations.xarray.prepare import Place, Prepared, located, open_place, prepare
from zstore.integrations.xarray.write import delay, write_prepared
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import create_group, open_group
from zstore.pyramid.build import build_pyramid
from zstore.pyramid.dataset import join_attributes, open_dataset
from zstore.pyramid.levels import create_auxiliaries
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore

__all__ = ["GeoWarning", "write_geo"]


class GeoWarning(UserWarning):
    """Something that a dataset does not say of its place on the ground."""


def write_geo(
    dataset: xr.Dataset,
    store: Any,
    *,
    levels: int | None,
    method: str,
    profile: str | None,
    group: str | None = None,
    zarr_format: int | None = None,
    storage_options: Any = None,
    **options: Any,
) -> Any:
    """See `zstore.integrations.xarray.to_geozarr`."""
    compute, consolidated = options.pop("compute", True), options.pop("consolidated", None)
    if levels != 0 and (
        not compute
        or options.get("mode") not in (None, "w", "w-")
        or any(options.get(name) is not None for name in ("append_dim", "region"))
    ):
        raise MetadataError("a pyramid is written whole and at once: modes 'w' and 'w-', compute=True")
    place = open_place(store, group, zarr_format, storage_options)
    try:
        if levels == 0:
            return _write_flat(dataset, place, profile, options, consolidated=consolidated, compute=compute)
        return _write_pyramid(dataset, place, levels, method, profile, options)
    except BaseException:
        place.close()
        raise


def _write_flat(
    dataset: xr.Dataset,
    place: Place,
    profile: str | None,
    options: dict[str, Any],
    *,
    consolidated: bool | None,
    compute: bool,
) -> Any:
    prepared = prepare(dataset, place, **options)
    there = prepared.target.group
    if there is not None and "multiscales" in there.attrs:
        raise MetadataError(
            "the group is a pyramid; expected one of its levels, or a group without levels",
            path=join_key(place.store.url, place.path),
        )
    with located(join_key(place.store.url, place.path)):
        rehearsed = _rehearse(prepared, MemoryStore())
        documents = _describe(rehearsed, profile)
        _state(rehearsed, documents)
    group, stored = write_prepared(prepared, consolidated=False, compute=compute)
    _state(group, documents)
    if consolidated is not False:
        open_group(place.store, "", "r+").consolidate()
    place.store.flush()
    return open_group(place.store, place.path, "r+") if stored is None else delay(stored, place.store)


def _write_pyramid(
    dataset: xr.Dataset,
    place: Place,
    levels: int | None,
    method: str,
    profile: str | None,
    options: dict[str, Any],
) -> Group:
    # The root first, so that mode "w" empties it; the levels go below.
    above = prepare(xr.Dataset(), place, mode=options.get("mode"))
    finest = prepare(dataset, place._replace(path=join_key(place.path, "0")), **options)
    with located(join_key(place.store.url, place.path)):
        memory = MemoryStore()
        _rehearse(above, memory)
        _describe(_rehearse(finest, memory, "0"), profile=None)
        root = open_group(memory, mode="r")
        # All is planned and tried before the first write, which is refused here.
        with suppress(ReadOnlyError):
            build_pyramid(root["0"], root, levels=levels, method=method, profile=profile)
    root, _ = write_prepared(above, consolidated=False, compute=True)
    base, _ = write_prepared(finest, consolidated=False, compute=True)
    return build_pyramid(base, root, levels=levels, method=method, profile=profile)


def _rehearse(prepared: Prepared, memory: MemoryStore, path: str = "") -> Group:
    """The group as it will be, in memory: all metadata, and the values of what has one dimension at most."""
    target, plans, attributes = prepared
    there = target.group
    stated = attributes if there is None else {**there.attrs.asdict(), **attributes}
    group = create_group(memory, path, zarr_format=target.zarr_format, attributes=stated)
    for name, array in () if there is None else there.arrays():
        create_node(memory, join_key(path, name), array.model)
        if array.ndim < 2 and array.size:
            Array(memory, join_key(path, name), array.model)[...] = array[...]
    for plan in plans:
        if plan.array is None:
            made = group.create_array(plan.name, **plan.options)
        else:
            found = group[plan.name]
            assert isinstance(found, Array)
            made = found
            made.resize(plan.shape or made.shape)
        if made.ndim < 2 and plan.variable.size:
            made[plan.places] = plan.variable.values
    return group


def _describe(group: Group, profile: str | None) -> Documents:
    """What the group is to say of its place.

    Warns
        GeoWarning: the dataset says nothing of a CRS, or of a grid.
    """
    geo = open_dataset(group).geo
    missing = [name for name, value in (("CRS", geo.crs), ("affine", geo.affine)) if value is None]
    if missing:
        text = f"the dataset states no {' and no '.join(missing)}: none is written, nothing is made up"
        warnings.warn(GeoWarning(text), stacklevel=6)
    return render_geo(geo, group.zarr_format, profile=profile)[0]


def _state(group: Group, documents: Documents) -> None:
    """Say of the group, and of its arrays on the grid, where they lie."""
    create_auxiliaries(group, documents, "")
    for name, array in group.arrays():
        stated = {} if "data" in documents.get(name, {}) else documents.get(name, {}).get("attributes", {})
        array.attrs.update({key: value for key, value in stated.items() if array.attrs.get(key) != value})
    group.attrs.put(join_attributes(group.attrs.asdict(), documents[""]["attributes"]))
