"""Datasets into GeoZarr: written as Zarr first, then given the words of every dialect, or a pyramid."""

from __future__ import annotations

from typing import Any

import xarray as xr

from zstore.conventions.write import render_geo
from zstore.errors import MetadataError
from zstore.group import Group
from zstore.integrations.xarray_write import write_dataset
from zstore.opening import open_group
from zstore.pyramid.build import build_pyramid
from zstore.pyramid.dataset import join_attributes, open_dataset
from zstore.pyramid.levels import create_auxiliaries

__all__ = ["write_geo"]


def write_geo(
    dataset: xr.Dataset, store: Any, *, levels: int | None, method: str, profile: str | None, **options: Any
) -> Any:
    """See `zstore.integrations.xarray.to_geozarr`."""
    compute = options.pop("compute", True)
    if levels == 0:
        written = write_dataset(dataset, store, compute=compute, **{**options, "consolidated": False})
        base = _group(store, options)
        _state(base, profile)
        if options.get("consolidated") is not False:
            open_group(base.store, "", "r+").consolidate()
        return open_group(base.store, base.path, "r+") if compute else written
    if not compute or options.get("mode") not in (None, "w", "w-") or options.get("append_dim"):
        raise MetadataError("a pyramid is written whole and at once: modes 'w' and 'w-', compute=True")
    # The root first, so that mode "w" empties it; the levels go below.
    write_dataset(xr.Dataset(), store, **{**options, "encoding": None, "consolidated": False})
    root = _group(store, options)
    base = write_dataset(
        dataset, root, mode="w-", group="0", encoding=options.get("encoding"), consolidated=False
    )
    return build_pyramid(base, root, levels=levels, method=method, profile=profile)


def _group(store: Any, options: dict[str, Any]) -> Group:
    path = (options.get("group") or "").strip("/")
    if isinstance(store, Group):
        found = store[path] if path else open_group(store.store, store.path, "r+")
        assert isinstance(found, Group)
        return found
    return open_group(store, path, "r+", storage_options=options.get("storage_options"))


def _state(group: Group, profile: str | None) -> None:
    """Say of the group, and of its arrays on the grid, where they lie."""
    dataset = open_dataset(group)
    documents, _ = render_geo(dataset.geo, group.zarr_format, profile=profile)
    create_auxiliaries(group, documents, "")
    for name, array in dataset.arrays.items():
        stated = documents.get(name, {}).get("attributes", {})
        array.attrs.update({key: value for key, value in stated.items() if array.attrs.get(key) != value})
    rendered = documents[""]["attributes"]
    group.attrs.put(join_attributes({**group.attrs.asdict()}, rendered))
