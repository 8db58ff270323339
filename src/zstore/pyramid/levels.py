"""The groups and arrays of a pyramid's levels: made, described, cut and encoded, still without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zstore.conventions.base import Document, Documents
from zstore.conventions.decoding import PACKING, decode
from zstore.conventions.model import GeoModel, Level
from zstore.conventions.write import render_geo
from zstore.errors import MetadataError
from zstore.jobs.runner import Runner
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import create_array
from zstore.pyramid.budget import Budget, plan_passes
from zstore.pyramid.dataset import Dataset, free_extras, join_attributes, place_of
from zstore.pyramid.grids import LevelGrid
from zstore.pyramid.layers import Layer
from zstore.pyramid.passes import Recipe, Step, run_step
from zstore.resampling.methods import downsample
from zstore.storage.memory import MemoryStore

__all__ = ["Encoding", "Pyramid", "create_auxiliaries", "rehearse"]


@dataclass(frozen=True)
class Encoding:
    """How levels' arrays are stored; `shards`, (y, x), and `compressors` may be "auto"."""

    shards: tuple[int, int] | str | None
    compressors: Any
    zarr_format: ZarrFormat


@dataclass(frozen=True)
class Pyramid:
    """A pyramid to be made or brought up to date: all that is settled before anything is written."""

    dataset: Dataset
    grid: LevelGrid
    layers: Sequence[Layer]
    encoding: Encoding
    profile: str | None
    geo: GeoModel
    documents: Documents

    @classmethod
    def plan(
        cls,
        dataset: Dataset,
        grid: LevelGrid,
        layers: Sequence[Layer],
        encoding: Encoding,
        profile: str | None,
        resampling: str | None,
    ) -> Pyramid:
        """The pyramid with the documents of all its levels.

        Raises
            MetadataError: what is to be said contradicts itself, or no such profile.
        """
        variables = {layer.name: layer.variable for layer in layers}
        geo = grid.place(replace(dataset.geo, levels=(), resampling=resampling, variables=variables))
        documents, _ = render_geo(geo, encoding.zarr_format, profile=profile)
        grid.describe(geo, documents, profile)
        return cls(dataset, grid, layers, encoding, profile, geo, documents)

    @property
    def made(self) -> Sequence[str]:
        """The names of the levels to write."""
        return self.grid.names[0 if self.grid.is_copied else 1 :]

    def arrays(self, group: Group, layer: Layer) -> list[Array]:
        """The arrays of a layer that are to be written, the finest first."""
        found = []
        for name in self.made:
            array = group[f"{name}/{layer.name}"]
            assert isinstance(array, Array)
            found.append(array)
        return found

    def rehearse(self, budget: Budget, group: Group | None = None) -> None:
        """Make what nobody keeps, so that nothing fails half-way that could have failed before.

        Arrays that `group` holds keep how they are cut.

        Raises
            As `rehearse`; MetadataError: the caller's memory does not hold one unit.
        """
        for layer in self.layers:
            arrays = []
            for level in (level for level in self.geo.levels if level.path in self.made):
                options = self._array_options(level, layer)
                held = None if group is None else group.get(f"{level.path}/{layer.name}")
                if isinstance(held, Array):
                    kept = {name: options[name] for name in ("shape", "dtype")}
                    options = {**kept, "chunks": held.chunks, "shards": held.shards}
                arrays.append(rehearse(self.encoding.zarr_format, options))
            self.grid.steps(layer, arrays, budget, None)

    def create(self, group: Group, marker: Mapping[str, Any]) -> None:
        """The levels' groups with their coordinates, and their arrays, which hold nothing yet.

        Of what is there (the finest level, where others are made beside it; what an interrupted build has
        left), only attributes are written anew. `marker` is the attributes' own word on who makes a level.
        """
        for level in self.geo.levels:
            self._create_level(group, level, marker if level.path in self.made else {})

    def _create_level(self, group: Group, level: Level, marker: Mapping[str, Any]) -> None:
        rendered, found = self.documents[level.path]["attributes"], group.get(level.path)
        if isinstance(found, Group):
            found.attrs.put({**join_attributes(found.attrs, rendered), **marker})
        else:
            attributes = {**join_attributes(self.dataset.attributes, rendered), **marker}
            found = group.create_group(level.path, attributes=attributes)
        create_auxiliaries(found, self.documents, level.path)
        for layer in self.layers:
            if layer.name in found:
                found[layer.name].attrs.update(self.documents[f"{level.path}/{layer.name}"]["attributes"])
            else:
                found.create_array(layer.name, **self._array_options(level, layer))
        if level.path != self.dataset.level:
            self._copy_extras(found, level)

    def resize(self, group: Group) -> None:
        """Arrays of the levels as long as the source is now, without coordinates of another length."""
        for level in self.geo.levels:
            held = group[level.path]
            assert isinstance(held, Group)
            for layer in self.layers if level.path != self.dataset.level else ():
                array, shape = held[layer.name], self._shape(level, layer)
                assert isinstance(array, Array)
                if array.shape != shape:
                    array.resize(shape)
            for name in self.geo.dimensions:
                along, document = held.get(name), self.documents.get(f"{level.path}/{name}", {})
                if isinstance(along, Array) and "data" in document and along.shape != document["data"].shape:
                    del held[name]

    def _shape(self, level: Level, layer: Layer) -> tuple[int, ...]:
        shape = list(layer.recipe.source.shape)
        for axis, length in zip(layer.axes, level.shape, strict=True):
            shape[axis] = length
        return tuple(shape)

    def _array_options(self, level: Level, layer: Layer) -> dict[str, Any]:
        """What `create_array` takes for one array of a level."""
        document, source = self.documents[f"{level.path}/{layer.name}"], layer.recipe.source
        # In Zarr v2 a fill value means nodata to most readers: without nodata there is none.
        is_bare = layer.variable.nodata is None and self.encoding.zarr_format == 3
        return {
            "shape": self._shape(level, layer),
            "dtype": source.dtype,
            "fill_value": source.fill_value if is_bare else document["fill_value"],
            "attributes": document["attributes"],
            "dimension_names": document["dimension_names"],
            **self._storage_options(layer),
        }

    def _storage_options(self, layer: Layer) -> dict[str, Any]:
        """Chunks, shards and codecs of the levels of one array."""
        source, axes, encoding = layer.recipe.source, layer.axes, self.encoding
        chunks = list(source.chunks)
        for axis, length in zip(axes, self.grid.tile, strict=True):
            chunks[axis] = length
        shards: list[int] | None = None
        if isinstance(encoding.shards, tuple):
            shards = list(chunks)
            for axis, length in zip(axes, encoding.shards, strict=True):
                shards[axis] = length
        elif encoding.shards == "auto" and encoding.zarr_format == 3 and tuple(chunks) == source.chunks:
            shards = None if source.shards is None else list(source.shards)
        codecs = _describe_codecs(source.model, encoding.zarr_format)
        if encoding.compressors != "auto":
            codecs = {"compressors": encoding.compressors}
        return {**codecs, "chunks": chunks, "shards": shards}

    def _copy_extras(self, group: Group, level: Level) -> None:
        """What lies beside the data: all at the finest level, what does not depend on the grid at others.

        Coordinates that no affine can say are the means of the windows' own. What is there is brought up to
        date.
        """
        spatial, free = self.dataset.geo.dimensions, free_extras(self.dataset)
        for name, array in self.dataset.extras.items():
            if f"{level.path}/{name}" in self.documents:
                continue
            if level.path == "0" or name in free:
                _copy_array(array, group, name, self.encoding.zarr_format)
            elif name in spatial and array.ndim == 1 and array.dtype.kind in "iuf":
                factor = self.grid.factors[spatial.index(name)] ** int(level.path)
                stored = decode(array[...], array.attrs).astype(np.float64)
                centres = downsample(stored, (factor,), grid=self.grid.kind)
                made = group.require_array(
                    name,
                    shape=centres.shape,
                    dtype=centres.dtype,
                    fill_value=float("nan"),
                    attributes={k: v for k, v in array.attrs.items() if k not in PACKING},
                    dimension_names=(name,),
                )
                made[...] = centres


def rehearse(zarr_format: ZarrFormat, options: Mapping[str, Any]) -> Array:
    """An array of those options that nobody keeps, so that what is wrong with it shows before work begins.

    Raises
        MetadataError, UnsupportedError: they make no array.
        UnknownExtensionError: nobody offers one of its codecs.
    """
    array = create_array(MemoryStore(), zarr_format=zarr_format, **options)
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


def _describe_codecs(model: ArrayModel, zarr_format: ZarrFormat) -> dict[str, Any]:
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


def _copy_array(array: Array, group: Group, name: str, zarr_format: ZarrFormat) -> None:
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
        return
    recipe = Recipe(array, (1,) * array.ndim, "nearest")
    with Runner() as runner:
        for work in plan_passes(recipe, made, [], Budget.of(None)):
            run_step(runner, Step(work), name)
