"""Joins the manifests of many files into one, in which arrays follow each other along a dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.plugin.conventions import TimeAxis
from zstore.plugin.nodes import render_json
from zstore.plugin.stores import join_key
from zstore_virtual.manifest import Manifest
from zstore_virtual.scan.concatenation import concatenate
from zstore_virtual.scan.draft import DOCUMENT, Draft
from zstore_virtual.scan.parts import (
    COMPARED_SIZE,
    Document,
    ScannedFile,
    ScannedNode,
    common_attributes,
    digest_of,
    documents_of,
    names_of_coordinates,
    renumber,
)

__all__ = ["join", "stack"]

# Attributes that say what numbers mean.
MEANING = frozenset(
    ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar",
     "flag_values", "flag_masks")
)  # fmt: skip
# Arrays whose references cannot be joined are copied up to this size.
COPIED_SIZE = 16 << 20


def join(parts: Sequence[ScannedFile], dimension: str) -> Manifest:
    """One manifest, in which arrays that have the dimension are joined along it; others must be equal.

    The values of arrays that have no other dimension (the coordinate), and of small arrays that no chunk grid
    can join, are copied into the manifest; times are converted to the units of the first part.

    Raises
        MetadataError: parts hold different arrays, or arrays that differ in type, shape, codecs, chunks,
            meaning or values; no array has the dimension; or its coordinate does not go on in the next part.
        UnsupportedError: chunks of a part reach past its end, so that the next cannot follow.
    """
    documents = [documents_of(part) for part in parts]
    _check_same_nodes(parts, documents)
    if not any(dimension in (document.get("dimension_names") or ()) for document in documents[0].values()):
        raise MetadataError(
            f"no array has the dimension {dimension!r}; expected one at least", path=parts[0].name
        )
    draft = Draft()
    joined: dict[str, Document] = {}
    for path, first in documents[0].items():
        nodes = _nodes(path, parts, documents)
        if first["node_type"] == "array" and dimension in nodes[0].dimensions:
            document = _join_array(nodes, nodes[0].dimensions.index(dimension), draft)
            if document is not None:
                joined[path] = document
            continue
        joined[path] = {**first, "attributes": common_attributes(nodes)}
        joined[path].pop("consolidated_metadata", None)
        if first["node_type"] == "array":
            _check_equal(nodes)
            if path in parts[0].manifest.chunks:
                draft.manifest.chunks[path] = renumber(parts[0].manifest, path, draft.manifest)
    manifest = draft.finish()
    for path, document in joined.items():
        manifest.documents[join_key(path, DOCUMENT)] = render_json(document)
    return manifest


def stack(
    parts: Sequence[ScannedFile],
    dimension: str,
    values: Iterable[Any] | None = None,
    like: Manifest | None = None,
) -> list[ScannedFile]:
    """The parts with a new first dimension of length 1, for `join`.

    Coordinates that are equal in all parts do not get the dimension: arrays that are named like their only
    dimension, that attributes of others name, or that have no dimension.

    values  the new dimension's coordinate: a date or a number for each part
    like    a manifest that was stacked before: the same arrays get the dimension

    Raises
        MetadataError: a dimension's coordinate differs, there is the dimension already, or the values are not
            one for each part.
    """
    documents = [documents_of(part) for part in parts]
    _check_same_nodes(parts, documents)
    arrays = [path for path, found in documents[0].items() if found["node_type"] == "array"]
    labels = None if values is None else list(values)
    if labels is not None and len(labels) != len(parts):
        raise MetadataError(
            f"{len(labels)} values of {dimension!r} given; expected one for each of {len(parts)} files"
        )
    for path in arrays:
        if dimension in ScannedNode(parts[0], path, documents[0][path]).dimensions:
            raise MetadataError(
                f"{path!r} has the dimension {dimension!r} already; expected a new one, or to join (concat)",
                path=parts[0].name,
            )
    if like is not None:
        before = documents_of(ScannedFile("", like))
        chosen = {
            path for path in arrays if path in before and dimension in (before[path]["dimension_names"] or ())
        }
    else:
        chosen = {path for path in arrays if not _is_shared_coordinate(path, parts, documents)}
    coordinates = [None] * len(parts) if labels is None else _coordinates(labels, dimension)
    return [
        part._replace(
            manifest=_stack_manifest(part.manifest, found, chosen, dimension, coordinate),
            values={path: kept[None] if path in chosen else kept for path, kept in part.values.items()},
            digests={path: digest for path, digest in part.digests.items() if path not in chosen},
        )
        for part, found, coordinate in zip(parts, documents, coordinates, strict=True)
    ]


def _nodes(
    path: str, parts: Sequence[ScannedFile], documents: Sequence[Mapping[str, Document]]
) -> list[ScannedNode]:
    """The node at `path` of every part."""
    return [ScannedNode(part, path, found[path]) for part, found in zip(parts, documents, strict=True)]


def _is_shared_coordinate(
    path: str, parts: Sequence[ScannedFile], documents: Sequence[Mapping[str, Document]]
) -> bool:
    """Whether an array is a coordinate, equal in all parts."""
    above, _, name = path.rpartition("/")
    is_own = documents[0][path]["dimension_names"] == [name]
    beside = (document for other, document in documents[0].items() if other.rpartition("/")[0] == above)
    if not is_own and documents[0][path]["shape"] and name not in names_of_coordinates(beside):
        return False
    try:
        _check_equal(_nodes(path, parts, documents))
    except MetadataError:
        if is_own:
            raise
        return False
    return True


def _coordinates(labels: Sequence[Any], dimension: str) -> list[dict[str, Any]]:
    """The items of a new dimension's coordinate, one for each part, as options of `create_array`."""
    if isinstance(labels[0], int | float):
        data, attributes = np.array(labels), {}
    else:
        axis = TimeAxis.from_dates(labels, dimension)
        data = axis.values
        attributes = {"units": axis.units, "calendar": axis.calendar, "standard_name": "time"}
    return [{"data": item, "attributes": attributes} for item in data[:, None]]


def _stack_manifest(
    manifest: Manifest,
    documents: Mapping[str, Document],
    chosen: set[str],
    dimension: str,
    coordinate: Mapping[str, Any] | None,
) -> Manifest:
    """The manifest with a new first dimension before those of the chosen arrays, and with its coordinate."""
    draft = Draft()
    if coordinate is not None:
        draft.add_array(dimension, dimension_names=[dimension], compressors=None, **coordinate)
    stacked = draft.finish()
    for path, document in documents.items():
        if path in chosen:
            grid = document["chunk_grid"]
            key = "chunk_shape" if grid["name"] == "regular" else "chunk_shapes"
            configuration = {**grid["configuration"], key: [1, *grid["configuration"][key]]}
            names = document.get("dimension_names") or [None] * len(document["shape"])
            document = {
                **document,
                "shape": [1, *document["shape"]],
                "chunk_grid": {**grid, "configuration": configuration},
                "dimension_names": [dimension, *names],
                "codecs": [_stack_codec(codec) for codec in document["codecs"]],
            }
        stacked.documents[join_key(path, DOCUMENT)] = render_json(document)
        if path in manifest.chunks:
            chunks = renumber(manifest, path, stacked)
            if path in chosen:
                chunks.grid = (1, *chunks.grid)
            stacked.chunks[path] = chunks
    return stacked


def _stack_codec(codec: Document) -> Document:
    """A codec for chunks that have a new first dimension."""
    configuration = dict(codec.get("configuration", {}))
    if codec["name"] == "transpose":
        configuration["order"] = [0, *(axis + 1 for axis in configuration["order"])]
    elif codec["name"] == "sharding_indexed":
        configuration["chunk_shape"] = [1, *configuration["chunk_shape"]]
        configuration["codecs"] = [_stack_codec(inner) for inner in configuration["codecs"]]
    elif configuration.get("axis", -1) >= 0:
        configuration["axis"] += 1
    return {**codec, "configuration": configuration} if configuration else codec


def _check_same_nodes(parts: Sequence[ScannedFile], documents: Sequence[Mapping[str, Document]]) -> None:
    """Raise MetadataError where a part has a node that the first one lacks, or lacks one that that has."""
    for part, found in zip(parts[1:], documents[1:], strict=True):
        odd = sorted(found.keys() ^ documents[0].keys())
        if odd:
            here, there = (part.name, parts[0].name) if odd[0] in found else (parts[0].name, part.name)
            raise MetadataError(
                f"{odd[0]!r} is in {here!r} and not in {there!r}; expected the same in all, or to have it "
                "left out (drop)",
                path=there,
            )


def _check_alike(
    nodes: Sequence[ScannedNode], members: Iterable[str], attributes: Iterable[str] = MEANING
) -> None:
    """Raise MetadataError where these members of the documents, or these attributes, differ."""
    first = nodes[0]
    for node in nodes[1:]:
        for name in members:
            mine, others = node.document.get(name), first.document.get(name)
            if mine != others:
                raise node.differs(first, name.replace("_", " "), mine, others)
        for name in sorted(attributes):
            if node.attributes.get(name) != first.attributes.get(name):
                raise node.differs_in_attribute(first, name)


def _check_equal(nodes: Sequence[ScannedNode]) -> None:
    """Raise MetadataError where arrays differ in type, shape, meaning or values."""
    _check_alike(nodes, ("data_type", "shape", "dimension_names"))
    first = nodes[0]
    if len(nodes) < 2:
        return
    array = first.load()
    if array.size * array.dtype.itemsize > COMPARED_SIZE:
        raise UnsupportedError(
            f"{first.path!r} lacks the dimension and is too large to compare: {array.size} items; expected "
            f"at most {COMPARED_SIZE} bytes, or to have it left out (drop)",
            path=first.part.name,
        )
    values = first.read()
    digest = digest_of(values)
    for node in nodes[1:]:
        if digest is not None and node.part.digests.get(node.path) == digest:
            continue
        if not np.array_equal(values, node.read(), equal_nan=values.dtype.kind in "fc"):
            raise MetadataError(
                f"values of {node.path!r} in {node.part.name!r} are not those in {first.part.name!r}; "
                "expected the same in all, or a dimension along which they are joined",
                path=node.part.name,
            )


def _join_array(nodes: Sequence[ScannedNode], axis: int, draft: Draft) -> Document | None:
    """The document of an array that is joined along an axis; None where it is copied into the draft."""
    first = nodes[0]
    for node in nodes[1:]:
        mine, others = list(node.shape), list(first.shape)
        mine[axis : axis + 1] = others[axis : axis + 1] = []
        if len(node.shape) != len(first.shape) or mine != others:
            raise node.differs(first, "shape", node.shape, first.shape)
    if len(first.shape) == 1:
        _check_alike(nodes, ("data_type", "dimension_names"), MEANING - {"units", "calendar"})
    else:
        _check_alike(nodes, ("data_type", "dimension_names", "fill_value"))
        try:
            return concatenate(nodes, axis, draft.manifest)
        except (MetadataError, UnsupportedError):
            if 8 * sum(prod(node.shape) for node in nodes) > COPIED_SIZE:
                raise
    _copy(nodes, axis, draft)
    return None


def _copy(nodes: Sequence[ScannedNode], axis: int, draft: Draft) -> None:
    """Add an array with the values of all parts, times in the units of the first."""
    first = nodes[0]
    array = first.load()
    values = [_convert_times(node, first, node.read()) for node in nodes]
    data = np.concatenate(values, axis)
    if first.dimensions == [first.path.rpartition("/")[2]]:
        _check_order(nodes, [len(found) for found in values], data)
    kept = {name: first.attributes[name] for name in ("units", "calendar") if name in first.attributes}
    draft.add_array(
        first.path,
        data=data,
        dtype=array.dtype if array.dtype.kind not in "OT" else str,
        chunks=tuple(max(length, 1) for length in data.shape),
        compressors=None,
        fill_value=array.fill_value,
        attributes={**common_attributes(nodes), **kept},
        dimension_names=first.dimensions,
    )


def _check_order(nodes: Sequence[ScannedNode], lengths: Sequence[int], data: np.ndarray[Any, Any]) -> None:
    """Raise MetadataError where a coordinate turns round, or stands still, from one part to the next."""
    if data.dtype.kind not in "iufM" or len(data) < 2:
        return
    at, is_up = 0, data[1 if lengths[0] > 1 else -1] > data[0]
    for node, following, length in zip(nodes, nodes[1:], lengths, strict=False):
        at += length
        if 0 < at < len(data) and (data[at] <= data[at - 1] if is_up else data[at] >= data[at - 1]):
            raise MetadataError(
                f"{node.path!r} ends at {data[at - 1]} in {node.part.name!r} and begins at {data[at]} in "
                f"{following.part.name!r}; expected files in order, each once",
                path=following.part.name,
            )


def _convert_times(
    node: ScannedNode, first: ScannedNode, values: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """The values of a part in the units of the first; those of other arrays than times as they are.

    Raises
        MetadataError: units or calendars differ, and times cannot be converted without loss.
    """
    units, wanted = (one.attributes.get("units") for one in (node, first))
    calendar, first_calendar = (one.attributes.get("calendar") or "standard" for one in (node, first))
    if calendar != first_calendar:
        raise node.differs_in_attribute(first, "calendar")
    if units == wanted:
        return values
    different = node.differs_in_attribute(first, "units")
    if not all(isinstance(unit, str) and " since " in unit for unit in (units, wanted)):
        raise different
    try:
        return TimeAxis("time", values.ravel(), units, calendar).recount(wanted).reshape(values.shape)
    except MetadataError:
        raise different from None
