"""The groups and arrays of a pyramid's levels: made, described, cut and encoded, still without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.array import Array
from zstore.conventions.base import Document, Documents
from zstore.conventions.model import Level, Variable
from zstore.errors import MetadataError, StoreError
from zstore.group import Group
from zstore.model.array import ArrayModel
from zstore.opening import create_array, open_group
from zstore.pyramid.cascade import Resample, stream
from zstore.pyramid.dataset import Dataset, PlaceLike, join_attributes, place_of
from zstore.resampling.methods import downsample
from zstore.storage.memory import MemoryStore

__all__ = ["Cut", "Job", "create_auxiliaries", "create_level", "plan_array", "prepare_root", "rehearse"]


@dataclass(frozen=True)
class Cut:
    """How levels are laid, cut and encoded; (y, x) each. `shards` and `compressors` may be "auto"."""

    factors: tuple[int, int]
    grid: str
    tile: tuple[int, int]
    shards: tuple[int, int] | str | None
    compressors: Any
    zarr_format: int


@dataclass(frozen=True)
class Job:
    """One array of data, and how a level of it is made from a finer one.

    factors   per dimension
    nodata    what resampling leaves out; the variable's may say more
    variable  what the levels' arrays are to say
    """

    name: str
    source: Array
    method: str
    resample: Resample
    factors: tuple[int, ...]
    nodata: Any
    variable: Variable


def prepare_root(
    root: Group | PlaceLike, names: Sequence[str], base: str, zarr_format: int, *, overwrite: bool
) -> Group:
    """The target group, without levels of those names and without a word of a pyramid.

    With `overwrite`, levels of the pyramid that was there go too, but for the finest at `base`.

    Raises
        StoreError: a level is there (unless `overwrite`).
    """
    group = root if isinstance(root, Group) else open_group(root, mode="a", zarr_format=zarr_format)
    taken = [name for name in names if name in group]
    if taken and not overwrite:
        raise StoreError(
            f"levels {', '.join(taken)} are there already; expected none, or overwrite", path=place_of(group)
        )
    layout = group.attrs.get("multiscales")
    if layout is not None:
        listed = layout.get("layout", ()) if isinstance(layout, dict) else ()
        former = {str(item["asset"]) for item in listed if isinstance(item, dict) and item.get("asset")}
        taken += [name for name in former - {*taken, base} if name in group]
        del group.attrs["multiscales"]
    for name in taken:
        del group[name]
    return group


def create_level(
    root: Group, dataset: Dataset, level: Level, documents: Documents, jobs: Sequence[Job], cut: Cut
) -> None:
    """The level's group with its coordinates, and its arrays, which hold nothing yet.

    Of a level that is there (the finest, where levels are made beside it), only attributes are written anew.
    """
    rendered = documents[level.path]["attributes"]
    group = root.get(level.path)
    if isinstance(group, Group):
        group.attrs.put(join_attributes(group.attrs, rendered))
        create_auxiliaries(group, documents, level.path)
        for job in jobs:
            array = group[job.name]
            array.attrs.update(documents[f"{level.path}/{job.name}"]["attributes"])
        return
    group = root.create_group(level.path, attributes=join_attributes(dataset.attributes, rendered))
    create_auxiliaries(group, documents, level.path)
    for job in jobs:
        group.create_array(job.name, **plan_array(dataset, level, documents, job, cut))
    _copy_extras(group, dataset, level, cut)


def plan_array(dataset: Dataset, level: Level, documents: Documents, job: Job, cut: Cut) -> dict[str, Any]:
    """What `create_array` takes for one array of a level."""
    document = documents[f"{level.path}/{job.name}"]
    shape = list(job.source.shape)
    for axis, length in zip(dataset.axes(job.name), level.shape, strict=True):
        shape[axis] = length
    # In Zarr v2 a fill value means nodata to most readers: without nodata there is none.
    is_bare = job.variable.nodata is None and cut.zarr_format == 3
    return {
        "shape": shape,
        "dtype": job.source.dtype,
        "fill_value": job.source.fill_value if is_bare else document["fill_value"],
        "attributes": document["attributes"],
        "dimension_names": document["dimension_names"],
        **_layout(dataset, job, cut),
    }


def rehearse(zarr_format: int, plan: Mapping[str, Any]) -> None:
    """Make an array of that plan that nobody keeps, so that what is wrong with it shows before work begins.

    Raises
        MetadataError, UnsupportedError: it makes no array.
        UnknownExtensionError: nobody offers one of its codecs.
    """
    array = create_array(MemoryStore(), zarr_format=zarr_format, **plan)
    # The codecs are looked for when the first item is.
    array[(slice(0, 0),) * array.ndim]


def create_auxiliaries(group: Group, documents: Documents, level: str) -> None:
    """The coordinates and the CRS's variable that the documents hold for a level; those there are kept.

    Raises
        MetadataError: something else has one of their names.
    """
    prefix = f"{level}/" if level else ""
    for path, document in documents.items():
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or "/" in name or "data" not in document:
            continue
        existing = group.get(name)
        if existing is None:
            _create_auxiliary(group, name, document)
        elif isinstance(existing, Array) and existing.shape == document["data"].shape:
            existing.attrs.update(document["attributes"])
        else:
            expected = f"expected an array of shape {document['data'].shape}"
            raise MetadataError(f"{name!r} is {existing!r}; {expected}", path=place_of(group))


def _create_auxiliary(group: Group, name: str, document: Document) -> None:
    data = document["data"]
    group.create_array(
        name,
        data=data,
        chunks=data.shape or "auto",
        fill_value=document["fill_value"],
        attributes=document["attributes"],
        dimension_names=document["dimension_names"],
    )


def _layout(dataset: Dataset, job: Job, cut: Cut) -> dict[str, Any]:
    """Chunks, shards and codecs of the levels of one array."""
    source, axes = job.source, dataset.axes(job.name)
    chunks = list(source.chunks)
    for axis, length in zip(axes, cut.tile, strict=True):
        chunks[axis] = length
    shards: list[int] | None = None
    if cut.shards == "auto" and source.shards is not None and tuple(chunks) == source.chunks:
        shards = list(source.shards)
    elif isinstance(cut.shards, tuple):
        shards = list(chunks)
        for axis, length in zip(axes, cut.shards, strict=True):
            shards[axis] = length
    shards = shards if cut.zarr_format == 3 or cut.shards != "auto" else None
    codecs = _describe_codecs(source.model, cut.zarr_format)
    if cut.compressors != "auto":
        codecs = {"compressors": cut.compressors}
    return {**codecs, "chunks": chunks, "shards": shards}


def _describe_codecs(model: ArrayModel, zarr_format: int) -> dict[str, Any]:
    """What `create_array` takes to encode as `model` does; {} where the formats differ."""
    if model.zarr_format != zarr_format:
        return {}
    chain: list[Any] = list(model.codecs)
    if zarr_format == 2:
        return {
            "order": "F" if any(codec.name == "transpose" for codec in chain) else "C",
            "filters": [codec for codec in chain if codec.role == "filter"],
            "compressors": [codec for codec in chain if codec.role == "compressor"],
        }
    for codec in chain:
        if codec.name == "sharding_indexed":
            chain = list(codec.configuration["codecs"])
    # One list in the order of encoding; where it is divided makes no difference to what is written.
    return {"filters": None, "serializer": chain, "compressors": None}


def _copy_extras(group: Group, dataset: Dataset, level: Level, cut: Cut) -> None:
    """What lies beside the data: all of it at the finest level, what does not depend on the grid at others.

    Coordinates that no affine can say are the means of the windows' own.
    """
    spatial = dataset.geo.dimensions
    for name, array in dataset.extras.items():
        if name in group:
            continue
        is_free = array.ndim == 0 or (array.dims is not None and not set(spatial) & set(array.dims))
        if level.path == "0" or is_free:
            _copy_array(array, group, name, cut.zarr_format)
        elif name in spatial and array.ndim == 1 and array.dtype.kind in "iuf":
            factor = cut.factors[spatial.index(name)] ** int(level.path)
            group.create_array(
                name,
                data=downsample(array[...].astype(np.float64), (factor,), grid=cut.grid),
                fill_value=float("nan"),
                attributes=array.attrs.asdict(),
                dimension_names=(name,),
            )


def _copy_array(array: Array, group: Group, name: str, zarr_format: int) -> None:
    made = group.create_array(
        name,
        shape=array.shape,
        dtype=array.model.data_type,
        chunks=array.chunks,
        shards=array.shards if zarr_format == 3 else None,
        fill_value=array.fill_value,
        attributes=array.attrs.asdict(),
        dimension_names=array.dims,
        **_describe_codecs(array.model, zarr_format),
    )
    if array.ndim == 0:
        made[...] = array[...]
    else:
        stream(array, made, [], (1,) * array.ndim, downsample)
