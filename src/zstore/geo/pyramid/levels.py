"""The groups and arrays of a pyramid's levels: how they are created, described and encoded, without data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from zstore.engine.documents import ARRAY_KEYS, read_node, write_node
from zstore.errors import MetadataError, NotFoundError
from zstore.geo.conventions.base import Document, Documents, warn_of
from zstore.geo.conventions.model import GeoModel, Level
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.boxes import Box, with_sides
from zstore.geo.pyramid.budget import Budget, plan_passes
from zstore.geo.pyramid.dataset import Dataset, free_extras, join_attributes, place_of
from zstore.geo.pyramid.grids import LevelGrid, Wanted
from zstore.geo.pyramid.layers import Layer
from zstore.geo.pyramid.passes import Recipe, Step, run_step
from zstore.geo.pyramid.record import MEMBER
from zstore.geo.resampling.methods import downsample
from zstore.jobs.runner import Runner
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.packing import PACKING, decode
from zstore.nodes.array import Array
from zstore.nodes.create import NewNodes
from zstore.nodes.group import Group
from zstore.nodes.open import create_array
from zstore.storage.base import join_key
from zstore.storage.memory import MemoryStore


@dataclass(frozen=True)
class Encoding:
    """How arrays of levels are stored; `shards`, (y, x), and `compressors` may be "auto"."""

    shards: tuple[int, int] | str | None
    compressors: Any
    zarr_format: ZarrFormat


@dataclass(frozen=True)
class PyramidPlan:
    """A pyramid to be built or updated: everything that is decided before anything is written.

    geo, documents  the model and the documents of all levels
    """

    dataset: Dataset
    grid: LevelGrid
    layers: Sequence[Layer]
    encoding: Encoding
    profile: str | None
    geo: GeoModel
    documents: Documents

    @classmethod
    def make(
        cls,
        dataset: Dataset,
        grid: LevelGrid,
        layers: Sequence[Layer],
        encoding: Encoding,
        profile: str | None,
        resampling: str | None,
    ) -> PyramidPlan:
        """The plan of a pyramid, with the documents of all its levels rendered.

        Raises
            MetadataError: what is to be said contradicts itself, or no such profile.
        """
        variables = {layer.name: layer.variable for layer in layers}
        geo = grid.place(replace(dataset.geo, levels=(), resampling=resampling, variables=variables))
        documents, findings = render_geo(geo, encoding.zarr_format, profile=profile)
        warn_of(findings, stacklevel=4)
        grid.describe(geo, documents, profile)
        return cls(dataset, grid, layers, encoding, profile, geo, documents)

    @property
    def made(self) -> Sequence[str]:
        """The names of the levels to write."""
        return self.grid.names[0 if self.grid.is_copied else 1 :]

    def rehearse(self, budget: Budget, group: Group | None = None) -> None:
        """Create all arrays in memory and plan all units, so that what can fail fails before work begins.

        Arrays that `group` holds keep their chunks and shards.

        Raises
            As `rehearse`; MetadataError: the caller's memory does not hold one unit.
        """
        planned: dict[str, list[Array]] = {}
        for layer in self.layers:
            arrays = planned[layer.name] = []
            for level in (level for level in self.geo.levels if level.path in self.made):
                options = self._array_options(level, layer)
                held = None if group is None else group.get(f"{level.path}/{layer.name}")
                if isinstance(held, Array):
                    kept = {name: options[name] for name in ("shape", "dtype")}
                    options = {**kept, "chunks": held.chunks, "shards": held.shards}
                arrays.append(rehearse(self.encoding.zarr_format, options))
        for layer in self.layers:
            self.steps(layer, planned, budget, None)

    @property
    def size(self) -> int:
        """Bytes of the cells of all levels that are made."""
        levels = [level for level in self.geo.levels if level.path in self.made]
        pairs = ((level, layer) for level in levels for layer in self.layers)
        return sum(prod(self._shape(level, one)) * one.recipe.source.dtype.itemsize for level, one in pairs)

    def steps(
        self, layer: Layer, arrays: Mapping[str, Sequence[Array]], budget: Budget, box: Box | None
    ) -> list[Step]:
        """The steps that make a layer's cells, as far as they depend on `box` of its source; None: all.

        Masks are made before what they mask: coarser levels are made of what the finer ones' masks leave.
        """
        masks = arrays.get(layer.mask_name or "", ())
        return self.grid.steps(Wanted(layer, arrays[layer.name], masks, budget, box))

    def draft(self, group: Group, nodes: NewNodes, build: str) -> dict[str, list[Array]]:
        """The arrays of every layer that are to be written, the finest first, with all that lies beside them.

        They become `nodes` below `group`, like the levels' groups, which say what build their cells are of.
        """
        arrays: dict[str, list[Array]] = {layer.name: [] for layer in self.layers}
        for level in self.geo.levels:
            if level.path in self.made:
                attributes = join_attributes(
                    self.dataset.attributes, self.documents[level.path]["attributes"]
                )
                nodes.add_group(level.path, {**attributes, MEMBER: {"build": build}})
                for layer in self.layers:
                    path = f"{level.path}/{layer.name}"
                    arrays[layer.name].append(nodes.add_array(path, **self._array_options(level, layer)))
            self._draft_beside(group, nodes, level)
        return arrays

    def held(self, group: Group) -> dict[str, list[Array]]:
        """The stored arrays of every layer, the finest first, with the shapes that the source has now."""
        arrays: dict[str, list[Array]] = {}
        levels = [level for level in self.geo.levels if level.path in self.made]
        for layer in self.layers:
            arrays[layer.name] = [
                _reshaped(group[f"{level.path}/{layer.name}"], self._shape(level, layer)) for level in levels
            ]
        return arrays

    def shrink(self, group: Group) -> None:
        """Cut what the source no longer has from the levels; they grow when their new cells are there."""
        for arrays in self.held(group).values():
            for array in arrays:
                stored = group[array.path[len(group.path) :].lstrip("/")]
                assert isinstance(stored, Array)
                cut(stored, array.shape)

    def settle(self, group: Group, nodes: NewNodes) -> None:
        """Describe anew what was there before: the finest level beside others, or all in an update."""
        for level in self.geo.levels:
            if level.path in nodes:
                continue
            held = group[level.path]
            assert isinstance(held, Group)
            rendered = self.documents[level.path]["attributes"]
            held.attrs.put(join_attributes(held.attrs, rendered))
            for layer in self.layers:
                array = held[layer.name]
                assert isinstance(array, Array)
                if level.path in self.made:
                    grow(array, self._shape(level, layer))
                array.attrs.update(self.documents[f"{level.path}/{layer.name}"]["attributes"])
            for name, document in _auxiliaries(self.documents, level.path):
                found = held.get(name)
                if isinstance(found, Array) and found.shape == document["data"].shape:
                    found.attrs.update(document["attributes"])

    def replace_beside(self, group: Group) -> None:
        """Write the coordinates of the levels anew, where the data have other lengths or places now."""
        nodes = NewNodes(group.store, group.path, group.zarr_format)
        for level in self.geo.levels:
            held = group[level.path]
            assert isinstance(held, Group)
            for name, document in _auxiliaries(self.documents, level.path):
                found = held.get(name)
                if not isinstance(found, Array) or tuple(document["dimension_names"] or ()) != (name,):
                    continue
                if not np.array_equal(found[...], document["data"]):
                    del held[name]
            self._draft_beside(group, nodes, level)
        nodes.publish()

    def _draft_beside(self, group: Group, nodes: NewNodes, level: Level) -> None:
        """Draft what lies beside the data of a level, as far as it is not there yet.

        The finest level has all extras, others those that do not lie on the grid. Coordinates that no affine
        gives are averaged over the windows.
        """
        draft_auxiliaries(None if level.path in nodes else group, nodes, self.documents, level.path)
        if level.path == self.dataset.level:
            return
        spatial, free = self.dataset.geo.dimensions, free_extras(self.dataset)
        for name, array in self.dataset.extras.items():
            path = f"{level.path}/{name}"
            if path in self.documents:
                continue
            found = None if level.path in nodes else group.get(path)
            if level.path == "0" or name in free:
                _copy_array(array, found, nodes, path, group.zarr_format)
            elif name in spatial and array.ndim == 1 and array.dtype.kind in "iuf":
                factor = self.grid.factors[spatial.index(name)] ** int(level.path)
                stored = decode(array[...], array.attrs).astype(np.float64)
                centres = downsample(stored, (factor,), grid=self.grid.kind)
                if found is not None and found.shape != centres.shape:
                    del group[path]
                nodes.add_array(
                    path,
                    data=centres,
                    fill_value=float("nan"),
                    attributes={k: v for k, v in array.attrs.items() if k not in (*PACKING, "bounds")},
                    dimension_names=(name,),
                )

    def _shape(self, level: Level, layer: Layer) -> tuple[int, ...]:
        return with_sides(layer.recipe.source.shape, layer.axes, level.shape)

    def _array_options(self, level: Level, layer: Layer) -> dict[str, Any]:
        """The arguments of `create_array` for one array of a level."""
        document, source = self.documents[f"{level.path}/{layer.name}"], layer.recipe.source
        # In Zarr v2 a fill value means nodata to most readers: without nodata there is none.
        is_bare = layer.variable.nodata is None and self.encoding.zarr_format == 3
        fill_value = source.fill_value if is_bare else document["fill_value"]
        if layer.sampling is not None and layer.variable.nodata is None and (is_bare or layer.is_mask):
            # What lies outside the data, where most tiles are not stored.
            fill_value = source.dtype.type(0)
        return {
            "shape": self._shape(level, layer),
            "dtype": source.dtype if self.encoding.zarr_format == 2 else source.model.data_type,
            "fill_value": fill_value,
            "attributes": document["attributes"],
            "dimension_names": document["dimension_names"],
            **self._storage_options(layer),
        }

    def _storage_options(self, layer: Layer) -> dict[str, Any]:
        """Chunks, shards and codecs of the levels of one array."""
        source, axes, encoding = layer.recipe.source, layer.axes, self.encoding
        chunks, shards = with_sides(source.chunks, axes, self.grid.tile), None
        if isinstance(encoding.shards, tuple):
            shards = with_sides(chunks, axes, encoding.shards)
        elif encoding.shards == "auto" and encoding.zarr_format == 3 and chunks == source.chunks:
            shards = source.shards
        codecs = _describe_codecs(source.model, encoding.zarr_format)
        if encoding.compressors != "auto":
            codecs = {"compressors": encoding.compressors}
        return {**codecs, "chunks": chunks, "shards": shards}


def rehearse(zarr_format: ZarrFormat, options: Mapping[str, Any]) -> Array:
    """An array of those options in memory, to find out what is wrong with them before work begins.

    Raises
        MetadataError, UnsupportedError: they make no array.
        UnknownExtensionError: nobody offers one of its codecs.
    """
    array = create_array(MemoryStore(), zarr_format=zarr_format, **options)
    # The codecs are looked for when the first item is.
    array[(slice(0, 0),) * array.ndim]
    return array


def _auxiliaries(documents: Documents, level: str) -> Iterator[tuple[str, Document]]:
    """(name, document) of the coordinates and the CRS variable that the documents hold for a level."""
    for path, document in documents.items():
        above, _, name = path.rpartition("/")
        if above == level and "data" in document:
            yield name, document


def draft_auxiliaries(
    group: Group | None, nodes: NewNodes, documents: Documents, level: str, below: str | None = None
) -> None:
    """Add a level's coordinates and CRS variable to the new nodes, unless the group has them.

    below  the path to add them at, if not the level's own

    Raises
        MetadataError: something else has one of their names.
    """
    for name, document in _auxiliaries(documents, level):
        path = join_key(level if below is None else below, name)
        if group is None or _auxiliary(group, path, document) is None:
            nodes.add_array(path, **_auxiliary_options(document))


def create_auxiliaries(group: Group, documents: Documents, level: str) -> None:
    """Create the coordinates and the CRS variable that the documents hold for a level; update those there.

    Raises
        MetadataError: something else has one of their names.
    """
    for name, document in _auxiliaries(documents, level):
        found = _auxiliary(group, name, document)
        if found is None:
            group.create_array(name, **_auxiliary_options(document))
        else:
            found.attrs.update(document["attributes"])


def _auxiliary(group: Group, path: str, document: Document) -> Array | None:
    """The array at `path`, if it is what the document describes; None where there is nothing.

    Raises
        MetadataError: there is something else.
    """
    found = group.get(path)
    if found is None or (isinstance(found, Array) and found.shape == document["data"].shape):
        return found
    expected = f"expected an array of shape {document['data'].shape}"
    where, _, name = place_of(found).rpartition("/")
    raise MetadataError(f"{name!r} is {found!r}; {expected}", path=where)


def _auxiliary_options(document: Document) -> dict[str, Any]:
    """The arguments of `create_array` for a coordinate or the CRS variable."""
    data = document["data"]
    return {
        "data": data,
        "chunks": data.shape or "auto",
        "fill_value": document["fill_value"],
        "attributes": document["attributes"],
        "dimension_names": document["dimension_names"],
    }


def _reshaped(array: Any, shape: tuple[int, ...]) -> Array:
    """The array with the shape that it will have: what is written beyond the stored one is not seen yet."""
    assert isinstance(array, Array)
    return array if array.shape == shape else Array(array.store, array.path, array.model.with_shape(shape))


def cut(array: Array, shape: tuple[int, ...]) -> None:
    """Shrink the array where it is longer than `shape`."""
    least = tuple(map(min, array.shape, shape))
    if least != array.shape:
        array.resize(least)


def grow(array: Array, shape: tuple[int, ...]) -> None:
    """Give the array that shape, whose cells are stored already."""
    if array.shape == shape:
        return
    key = join_key(array.path, ARRAY_KEYS[array.zarr_format])

    def say() -> None:
        stored = read_node(array.store, array.path, array.zarr_format)
        if not isinstance(stored, ArrayModel):
            raise NotFoundError("array is gone", path=place_of(array))
        write_node(array.store, array.path, stored.with_shape(shape), previous=stored)

    array.store.update(key, say)


def _describe_codecs(model: ArrayModel, zarr_format: ZarrFormat) -> dict[str, Any]:
    """The arguments of `create_array` to encode as `model` does; {} where the formats differ."""
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


def _copy_array(array: Array, found: Any, nodes: NewNodes, path: str, zarr_format: ZarrFormat) -> None:
    """A copy of an array; one that was found is brought up to date, unless it is of another kind."""
    if isinstance(found, Array) and found.ndim == array.ndim and found.dtype == array.dtype:
        cut(found, array.shape)
        made = _reshaped(found, array.shape)
    else:
        found = None
        made = nodes.add_array(
            path,
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
        return
    recipe = Recipe(array, (1,) * array.ndim, "nearest")
    with Runner() as runner:
        for work in plan_passes(recipe, made, [], Budget.of(None)):
            run_step(runner, Step(work), path)
    if found is not None:
        grow(found, array.shape)
