"""Writing datasets as GeoZarr: plain groups with the attributes of every convention, and pyramids.

Everything is written to memory first, without the values of the data, so that errors (a dataset without a
grid, a name that is taken, an unknown method) are raised before the store is changed.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from zstore.engine.documents import ancestors
from zstore.engine.making import create_node
from zstore.errors import MetadataError, NotFoundError, ReadingWarning, ReadOnlyError
from zstore.geo.conventions.base import Documents, Variable
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.build import build_pyramid
from zstore.geo.pyramid.dataset import join_attributes, open_levels
from zstore.geo.pyramid.levels import add_auxiliaries
from zstore.guests.xarray.write import (
    Destination,
    Options,
    Prepared,
    delay,
    located,
    prepare,
    write_prepared,
)
from zstore.model.codec_packing import check_packing_kind, pack_by_codecs
from zstore.model.packing import SCALING
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import create_group, open_group
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore


class GeoWarning(UserWarning):
    """The warning that a dataset has no CRS or no affine."""


def pack_dataset(
    dataset: xr.Dataset, options: Options, packing: str, zarr_format: int
) -> tuple[xr.Dataset, Options]:
    """The dataset and its options, with the packing of variables done by codecs.

    Raises
        MetadataError: an unknown packing, or one that the Zarr format or no float type can represent.
    """
    check_packing_kind(packing, zarr_format)
    packed, encodings = dataset.copy(), dict(options.encoding or {})
    for name, variable in dataset.data_vars.items():
        stated = {**encodings[name]} if name in encodings else {**variable.encoding}
        if set(SCALING) & set(variable.attrs):
            # The variable was opened without decoding: its attributes say how it is packed.
            one = dataset[[name]]
            variable = xr.decode_cf(one, decode_times=False, decode_coords=False, decode_timedelta=False)[
                name
            ]
            stated = {**variable.encoding, **stated}
        if not set(SCALING) & set(stated):
            continue
        nodata = next(iter(np.ravel(stated.get("_FillValue", stated.get("missing_value", [])))), None)
        dtype = np.dtype(stated.get("dtype", variable.dtype))
        described = Variable(
            dtype,
            nodata=None if nodata is None or dtype.kind == "f" else int(nodata),
            scale_factor=stated.get("scale_factor"),
            add_offset=stated.get("add_offset"),
        )
        made = pack_by_codecs(described)
        if made is None:
            continue
        packed[name] = variable.astype(made.variable.dtype)
        packed[name].encoding = {}
        encodings[name] = {
            **{word: stated[word] for word in ("chunks", "shards", "compressors") if word in stated},
            "filters": made.filters,
            "fill_value": made.fill_value,
        }
    return packed, replace(options, encoding=encodings or None)


def write_flat(dataset: xr.Dataset, place: Destination, options: Options, profile: str | None) -> Any:
    """Write a plain group; returns the `Group`, or with compute=False a dask object that writes values."""
    prepared = prepare(dataset, place, options)
    if prepared.group is not None and _lists_levels(prepared.group):
        raise MetadataError(
            "the group is a pyramid; expected one of its levels, or a group without levels", path=place.url
        )
    with located(place.url):
        rehearsed = rehearse_dataset(prepared, _copy_above(place), place.path)
        documents = _describe(rehearsed, profile)
        _state(rehearsed, documents)
    group, stored = write_prepared(prepared, replace(options, consolidated=False))
    _state(group, documents)
    if options.consolidated is not False:
        open_group(place.store, "", "r+").consolidate()
    place.store.flush()
    return open_group(place.store, place.path, "r+") if stored is None else delay(stored, place.store)


def _lists_levels(group: Group) -> bool:
    """Whether a group is a pyramid: it lists levels, which may be unreadable."""
    if "multiscales" in group.attrs or "ome" in group.attrs:
        return True
    try:
        return bool(read_geo(group)[0].levels)
    except MetadataError:
        return False


def write_pyramid(dataset: xr.Dataset, place: Destination, options: Options, **making: Any) -> Group:
    """Write a pyramid, with the dataset as level "0"; `making` has the arguments of `build_pyramid`."""
    if not (options.compute and options.mode in (None, "w", "w-")) or not (
        options.append_dim is options.region is None
    ):
        raise MetadataError("a pyramid is written whole and at once: modes 'w' and 'w-', compute=True")
    # The root first, so that mode "w" empties it; the levels go below.
    plain = Options(options.mode, consolidated=False)
    above = prepare(xr.Dataset(), place, plain)
    finest = prepare(dataset, place.below("0"), options)
    with located(place.url), warnings.catch_warnings():
        # The real build gives these warnings.
        warnings.simplefilter("ignore", ReadingWarning)
        memory = _copy_above(place)
        rehearse_dataset(above, memory, place.path)
        _describe(rehearse_dataset(finest, memory, join_key(place.path, "0")), profile=None)
        root = open_group(memory, place.path, mode="r")
        # `build_pyramid` plans and tries everything before its first write, which is refused here.
        with suppress(ReadOnlyError):
            build_pyramid(root["0"], root, **making)
    root, _ = write_prepared(above, plain)
    base, _ = write_prepared(finest, plain)
    return build_pyramid(base, root, **making)


def _copy_above(place: Destination) -> MemoryStore:
    """A copy in memory of the groups above, with their scalar variables, such as grid mappings."""
    memory = MemoryStore()
    for path in ancestors(place.path):
        try:
            group = open_group(place.store, path, "r")
        except NotFoundError:
            continue
        made = create_group(memory, path, zarr_format=group.zarr_format, attributes=group.attrs.asdict())
        for name, array in group.arrays():
            if array.ndim == 0:
                made.create_array(name, data=array[...], attributes=array.attrs.asdict(), dimension_names=())
    return memory


def rehearse_dataset(prepared: Prepared, memory: MemoryStore, path: str) -> Group:
    """The future group in memory: all metadata, and the values of arrays with up to one dimension."""
    there = prepared.group
    stated = {**({} if there is None else there.attrs.asdict()), **prepared.attributes}
    group = create_group(memory, path, zarr_format=prepared.zarr_format, attributes=stated)
    for name, array in () if there is None else there.arrays():
        create_node(memory, join_key(path, name), array.model)
        if array.ndim < 2 and array.size:
            Array(memory, join_key(path, name), array.model)[...] = array[...]
    for plan in prepared.plans:
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
    """The documents of a group that express its CRS, affine and variables in every convention.

    Warns
        GeoWarning: the dataset does not state a CRS or an affine.
    """
    geo = open_levels(group)[0].geo
    missing = [name for name, value in (("CRS", geo.crs), ("affine", geo.affine)) if value is None]
    if missing:
        text = f"the dataset states no {' and no '.join(missing)}: none is written, nothing is made up"
        warnings.warn(GeoWarning(text), stacklevel=6)
    return render_geo(geo, group.zarr_format, profile=profile)[0]


def _state(group: Group, documents: Documents) -> None:
    """Write the documents into the attributes of the group and of its arrays."""
    add_auxiliaries(group, documents, "")
    for name, array in group.arrays():
        stated = {} if "data" in documents.get(name, {}) else documents.get(name, {}).get("attributes", {})
        array.attrs.update({key: value for key, value in stated.items() if array.attrs.get(key) != value})
    group.attrs.put(join_attributes(group.attrs.asdict(), documents[""]["attributes"]))
