"""The groups and arrays of a pyramid's levels: made, described, cut and encoded, still without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore.conventions.base import Document, Documents
from zstore.conventions.model import Level
from zstore.errors import MetadataError, StoreError
from zstore.model.array import ArrayModel
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import create_array, open_group
from zstore.pyramid.dataset import Dataset, PlaceLike, join_attributes, place_of
from zstore.pyramid.execute import run_passes
from zstore.pyramid.jobs import Cut, Job
from zstore.pyramid.record import Record, name_build, read_record, write_record
from zstore.pyramid.sizes import Budget, plan_passes
from zstore.resampling.methods import downsample
from zstore.storage.memory import MemoryStore

__all__ = [
    "Start",
    "copy_extras",
    "create_auxiliaries",
    "create_level",
    "plan_array",
    "prepare_root",
    "rehearse",
]


@dataclass(frozen=True)
class Start:
    """Where a build begins: the target, the build's name, and whether all is done already."""

    group: Group
    build: str
    is_done: bool = False


def prepare_root(
    root: Group | PlaceLike, plan: Record, base: str, zarr_format: int, *, overwrite: bool, resume: bool
) -> Start:
    """The target group, without the plan's levels and without a word of a pyramid, but of one being built.

    With `overwrite`, levels of the pyramid that was there go too, but for the finest at `base`. With
    `resume`, what a build of the same plan has left stays.

    Raises
        StoreError: a level is there (unless `overwrite`).
        MetadataError: `resume`, where another plan's build was interrupted.
    """
    group = root if isinstance(root, Group) else open_group(root, mode="a", zarr_format=zarr_format)
    names = [*([plan["finest"]] if plan["copied"] else []), *plan["levels"]]
    taken = [name for name in names if name in group]
    former = read_record(group)
    if resume and former is not None:
        same = {name: value for name, value in former.items() if name not in ("build", "state")} == plan
        state = former.get("state")
        if same and (state == "building" or (state is None and len(taken) == len(names))):
            return Start(group, former["build"], is_done=state is None)
        if state is not None:
            raise MetadataError(
                f"a build with other arguments was interrupted here, {former}; expected {plan}, or overwrite",
                path=place_of(group),
            )
    if taken and not overwrite:
        is_left = former is not None and former.get("state") == "building"
        what = "left of a build that was interrupted" if is_left else "there already"
        expected = "resume or overwrite" if is_left else "none, or overwrite"
        raise StoreError(f"levels {', '.join(taken)} are {what}; expected {expected}", path=place_of(group))
    _remove_levels(group, taken, base)
    build = name_build(plan, "" if former is None else str(former.get("build")))
    write_record(group, {**plan, "build": build, "state": "building"})
    return Start(group, build)


def _remove_levels(group: Group, taken: Sequence[str], base: str) -> None:
    """Remove those levels, and all others that the group lists but for `base`."""
    gone = list(taken)
    layout = group.attrs.get("multiscales")
    if layout is not None:
        listed = layout.get("layout", ()) if isinstance(layout, dict) else ()
        former = {str(item["asset"]) for item in listed if isinstance(item, dict) and item.get("asset")}
        gone += [name for name in former - {*gone, base} if name in group]
        del group.attrs["multiscales"]
    for name in gone:
        del group[name]


def create_level(
    root: Group,
    dataset: Dataset,
    level: Level,
    documents: Documents,
    jobs: Sequence[Job],
    cut: Cut,
    marker: Mapping[str, Any],
) -> None:
    """The level's group with its coordinates, and its arrays, which hold nothing yet.

    Of what is there (the finest level, where others are made beside it; what an interrupted build has left),
    only attributes are written anew. `marker` is the attributes' own word on who makes the level.
    """
    rendered = documents[level.path]["attributes"]
    found = root.get(level.path)
    if isinstance(found, Group):
        group = found
        group.attrs.put({**join_attributes(group.attrs, rendered), **marker})
    else:
        attributes = {**join_attributes(dataset.attributes, rendered), **marker}
        group = root.create_group(level.path, attributes=attributes)
    create_auxiliaries(group, documents, level.path)
    for job in jobs:
        if job.name in group:
            group[job.name].attrs.update(documents[f"{level.path}/{job.name}"]["attributes"])
        else:
            group.create_array(job.name, **plan_array(dataset, level, documents, job, cut))
    if level.path != dataset.level:
        copy_extras(group, dataset, level, documents, cut)


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


def rehearse(zarr_format: int, plan: Mapping[str, Any]) -> Array:
    """An array of that plan that nobody keeps, so that what is wrong with it shows before work begins.

    Raises
        MetadataError, UnsupportedError: it makes no array.
        UnknownExtensionError: nobody offers one of its codecs.
    """
    array = create_array(MemoryStore(), zarr_format=zarr_format, **plan)
    # The codecs are looked for when the first item is.
    array[(slice(0, 0),) * array.ndim]
    return array


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


def copy_extras(group: Group, dataset: Dataset, level: Level, documents: Documents, cut: Cut) -> None:
    """What lies beside the data: all of it at the finest level, what does not depend on the grid at others.

    Coordinates that no affine can say are the means of the windows' own. What is there is brought up to date.
    """
    spatial = dataset.geo.dimensions
    for name, array in dataset.extras.items():
        if f"{level.path}/{name}" in documents:
            continue
        is_free = array.ndim == 0 or (array.dims is not None and not set(spatial) & set(array.dims))
        if level.path == "0" or is_free:
            _copy_array(array, group, name, cut.zarr_format)
        elif name in spatial and array.ndim == 1 and array.dtype.kind in "iuf":
            factor = cut.factors[spatial.index(name)] ** int(level.path)
            centres = downsample(array[...].astype(np.float64), (factor,), grid=cut.grid)
            made = group.require_array(
                name,
                shape=centres.shape,
                dtype=centres.dtype,
                fill_value=float("nan"),
                attributes=array.attrs.asdict(),
                dimension_names=(name,),
            )
            made[...] = centres


def _copy_array(array: Array, group: Group, name: str, zarr_format: int) -> None:
    made = group.get(name)
    if made is None:
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
    elif made.shape != array.shape:
        made.resize(array.shape)
    if array.ndim == 0:
        made[...] = array[...]
    else:
        steps = (1,) * array.ndim
        run_passes(plan_passes(array, made, [], steps, "nearest", budget=Budget.of(None)))
