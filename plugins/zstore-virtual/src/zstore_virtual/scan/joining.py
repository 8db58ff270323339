"""Many manifests as one: arrays one behind the other along a dimension, without a byte of them copied.

Spec     zarr-extensions chunk grid "rectilinear", where files are of different lengths; else plain Zarr v3
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from zstore.conventions.content.timeaxis import GREGORIAN, TimeAxis, parse_units
from zstore.errors import MetadataError, UnsupportedError
from zstore.model.document import render_json
from zstore.storage.base import join_key
from zstore_virtual.manifest import ABSENT, INLINE, Chunks, Manifest
from zstore_virtual.scan.draft import DOCUMENT, Draft
from zstore_virtual.scan.parts import (
    COMPARED_SIZE,
    NAMING,
    Document,
    Part,
    digest_of,
    documents_of,
    load_array,
)

__all__ = ["join", "stack"]

# Attributes without which numbers mean something else.
MEANING = frozenset(
    ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar",
     "flag_values", "flag_masks")
)  # fmt: skip
# Up to that, arrays are copied that cannot be referred to.
COPIED_SIZE = 16 << 20
# Stored values are not cut into stretches shorter than that where there is another way.
LEAST_SIZE = 4 << 10


class _Node(NamedTuple):
    """An array of a part."""

    part: Part
    path: str
    document: Document

    @property
    def dimensions(self) -> list[str | None]:
        return self.document.get("dimension_names") or [None] * len(self.document["shape"])

    @property
    def attributes(self) -> Document:
        found: Document = self.document.get("attributes", {})
        return found


def join(parts: Sequence[Part], dimension: str) -> Manifest:
    """One manifest: arrays with the dimension joined along it, all others the same in all parts.

    Arrays of that dimension alone (its coordinate), and small ones that no grid of chunks can hold together,
    are copied into the manifest; times in other units than the first part's are said in those.

    Raises
        MetadataError: parts hold different arrays, or arrays that differ in type, shape, codecs, chunks,
            meaning or values; no array has the dimension; its coordinate does not go on in the next part.
        UnsupportedError: chunks of a part reach past its end, so that the next cannot follow.
    """
    documents = [documents_of(part) for part in parts]
    _check_same_nodes(parts, documents)
    has_it = [dimension in (document.get("dimension_names") or ()) for document in documents[0].values()]
    if not any(has_it):
        raise MetadataError(
            f"no array has the dimension {dimension!r}; expected one at least", path=parts[0].name
        )
    draft = Draft()
    manifest = draft.manifest
    ready: dict[str, Document] = {}
    for path, first in documents[0].items():
        of_parts = [found[path] for found in documents]
        if first["node_type"] == "group":
            kept = {key: value for key, value in first.items() if key != "consolidated_metadata"}
            ready[path] = {**kept, "attributes": _common([one.get("attributes", {}) for one in of_parts])}
            continue
        nodes = [_Node(part, path, document) for part, document in zip(parts, of_parts, strict=True)]
        if dimension in nodes[0].dimensions:
            made = _join_array(nodes, nodes[0].dimensions.index(dimension), draft)
            if made is not None:
                ready[path] = made
        else:
            _check_same(nodes)
            ready[path] = {**first, "attributes": _common([node.attributes for node in nodes])}
            if path in parts[0].manifest.chunks:
                manifest.chunks[path] = _renumbered(parts[0].manifest, path, manifest)
    made_here = draft.finish()
    for path, document in ready.items():
        made_here.documents[join_key(path, DOCUMENT)] = render_json(document)
    return made_here


def stack(
    parts: Sequence[Part], dimension: str, values: Iterable[Any] | None = None, like: Manifest | None = None
) -> list[Part]:
    """The parts with a new first dimension of length 1, for `join`.

    Coordinates (of dimensions, named as such by attributes, or of no dimension) that are the same in all
    parts stay as they are.

    values  what the new dimension's coordinate says of each part: dates or numbers
    like    a manifest of parts that were joined before, whose arrays say what is to be stacked

    Raises
        MetadataError: a dimension's coordinate differs, there is the dimension already, or the values are not
            one for each part.
    """
    documents = [documents_of(part) for part in parts]
    _check_same_nodes(parts, documents)
    arrays = [path for path, found in documents[0].items() if found["node_type"] == "array"]
    told = None if values is None else list(values)
    if told is not None and len(told) != len(parts):
        raise MetadataError(
            f"{len(told)} values of {dimension!r} given; expected one for each of {len(parts)} files"
        )
    for path in arrays:
        if dimension in _Node(parts[0], path, documents[0][path]).dimensions:
            raise MetadataError(
                f"{path!r} has the dimension {dimension!r} already; expected a new one, or to join (concat)",
                path=parts[0].name,
            )
    if like is not None:
        before = documents_of(Part("", like))
        chosen = {
            path for path in arrays if path in before and dimension in (before[path]["dimension_names"] or ())
        }
    else:
        chosen = {path for path in arrays if not _stays(path, parts, documents)}
    return [
        part._replace(
            manifest=_deepen(
                part.manifest, found, chosen, dimension, None if told is None else (told, number)
            ),
            values={path: kept[None] if path in chosen else kept for path, kept in part.values.items()},
            digests={path: digest for path, digest in part.digests.items() if path not in chosen},
        )
        for number, (part, found) in enumerate(zip(parts, documents, strict=True))
    ]


def _stays(path: str, parts: Sequence[Part], documents: Sequence[Mapping[str, Document]]) -> bool:
    """Whether an array is a coordinate that all parts share."""
    first = documents[0][path]
    above, _, name = path.rpartition("/")
    own = first["dimension_names"] == [name]
    named = {
        word
        for other, document in documents[0].items()
        if other.rpartition("/")[0] == above
        for key in NAMING
        for word in str(document.get("attributes", {}).get(key, "")).split()
    }
    if not own and name not in named and first["shape"]:
        return False
    nodes = [_Node(part, path, found[path]) for part, found in zip(parts, documents, strict=True)]
    try:
        _check_same(nodes)
    except MetadataError:
        if own:
            raise
        return False
    return True


def _deepen(
    manifest: Manifest, documents: Mapping[str, Document], chosen: set[str], dimension: str, told: Any
) -> Manifest:
    """The manifest with a new first dimension before those of the chosen arrays."""
    draft = Draft()
    if told is not None:
        values, number = told
        if isinstance(values[0], int | float):
            data, attributes = np.array(values)[number : number + 1], {}
        else:
            axis = TimeAxis.from_dates(values, dimension)
            data = axis.values[number : number + 1]
            attributes = {"units": axis.units, "calendar": axis.calendar, "standard_name": "time"}
        draft.add_array(
            dimension, data=data, attributes=attributes, dimension_names=[dimension], compressors=None
        )
    made = draft.finish()
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
                "codecs": [_deeper(codec) for codec in document["codecs"]],
            }
        made.documents[join_key(path, DOCUMENT)] = render_json(document)
        if path in manifest.chunks:
            chunks = _renumbered(manifest, path, made)
            if path in chosen:
                chunks.grid = (1, *chunks.grid)
            made.chunks[path] = chunks
    return made


def _deeper(codec: Document) -> Document:
    """A codec for chunks with one dimension more before the others."""
    configuration = dict(codec.get("configuration", {}))
    if codec["name"] == "transpose":
        configuration["order"] = [0, *(axis + 1 for axis in configuration["order"])]
    elif codec["name"] == "sharding_indexed":
        configuration["chunk_shape"] = [1, *configuration["chunk_shape"]]
        configuration["codecs"] = [_deeper(inner) for inner in configuration["codecs"]]
    elif configuration.get("axis", -1) >= 0:
        configuration["axis"] += 1
    return {**codec, "configuration": configuration} if configuration else codec


def _check_same_nodes(parts: Sequence[Part], documents: Sequence[Mapping[str, Document]]) -> None:
    for part, found in zip(parts[1:], documents[1:], strict=True):
        odd = sorted(found.keys() ^ documents[0].keys())
        if odd:
            here, there = (part.name, parts[0].name) if odd[0] in found else (parts[0].name, part.name)
            raise MetadataError(
                f"{odd[0]!r} is in {here!r} and not in {there!r}; expected the same in all, or to have it "
                "left out "
                "(drop)",
                path=there,
            )


def _common(attributes: Sequence[Mapping[str, Any]]) -> Document:
    """What all say alike."""
    return {
        key: value for key, value in attributes[0].items() if all(one.get(key) == value for one in attributes)
    }


def _differ(node: _Node, first: _Node, what: str, mine: Any, theirs: Any) -> MetadataError:
    return MetadataError(
        f"{what} of {node.path!r} is {mine!r} in {node.part.name!r}; "
        f"expected {theirs!r} as in {first.part.name!r}",
        path=node.part.name,
    )


def _check_alike(nodes: Sequence[_Node], members: Iterable[str], meaning: Iterable[str] = MEANING) -> None:
    """Refuse parts whose documents, or attributes that give values their meaning, differ."""
    first = nodes[0]
    for node in nodes[1:]:
        for name in members:
            mine, theirs = node.document.get(name), first.document.get(name)
            if mine != theirs:
                raise _differ(node, first, name.replace("_", " "), mine, theirs)
        for name in sorted(meaning):
            mine, theirs = node.attributes.get(name), first.attributes.get(name)
            if mine != theirs:
                raise _differ(node, first, f"attribute {name!r}", mine, theirs)


def _check_same(nodes: Sequence[_Node]) -> None:
    """Refuse parts whose arrays differ in type, shape, meaning or values."""
    _check_alike(nodes, ("data_type", "shape", "dimension_names"))
    if len(nodes) < 2:
        return
    array = nodes[0].part.load(nodes[0].path)
    if array.size * array.dtype.itemsize > COMPARED_SIZE:
        raise UnsupportedError(
            f"{nodes[0].path!r} lacks the dimension and is too large to compare: {array.size} items; "
            "expected at most "
            f"{COMPARED_SIZE} bytes, or to have it left out (drop)",
            path=nodes[0].part.name,
        )
    values = nodes[0].part.read(nodes[0].path)
    digest = digest_of(values)
    for node in nodes[1:]:
        if digest is not None and node.part.digests.get(node.path) == digest:
            continue
        others = node.part.read(node.path)
        if not _is_equal(values, others):
            raise MetadataError(
                f"values of {node.path!r} in {node.part.name!r} are not those in {nodes[0].part.name!r}; "
                "expected the "
                "same in all, or a dimension along which they are joined",
                path=node.part.name,
            )


def _is_equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype.kind in "fc":
        return np.array_equal(one, other, equal_nan=True)
    return np.array_equal(one, other)


def _renumbered(manifest: Manifest, path: str, into: Manifest) -> Chunks:
    """The chunks of an array, their sources numbered as in another manifest."""
    chunks = manifest.chunks[path]
    used = np.unique(chunks.source[chunks.source >= 0])
    numbers = np.zeros(len(manifest.sources), np.int32)
    for number in used.tolist():
        source = manifest.sources[number]
        numbers[number] = into.add_source(**source._asdict())
    taken = numbers[np.maximum(chunks.source, 0)] if len(numbers) else chunks.source
    source = np.where(chunks.source >= 0, taken, chunks.source)
    return Chunks(
        chunks.grid,
        source,
        chunks.offset,
        chunks.size,
        chunks.numbers,
        chunks.inline,
        chunks.has_c,
        chunks.separator,
    )


def _join_array(nodes: Sequence[_Node], axis: int, draft: Draft) -> Document | None:
    """The document of a joined array, whose chunks go to the draft's manifest; None: the draft has it all."""
    first = nodes[0]
    for node in nodes[1:]:
        mine, theirs = list(node.document["shape"]), list(first.document["shape"])
        mine[axis : axis + 1] = theirs[axis : axis + 1] = []
        if len(node.document["shape"]) != len(first.document["shape"]) or mine != theirs:
            raise _differ(node, first, "shape", node.document["shape"], first.document["shape"])
    if len(first.document["shape"]) == 1:
        _check_alike(nodes, ("data_type", "dimension_names"), MEANING - {"units", "calendar"})
        _copy(nodes, axis, draft)
        return None
    _check_alike(nodes, ("data_type", "dimension_names", "fill_value"))
    try:
        return _join_chunks(nodes, axis, draft.manifest)
    except (MetadataError, UnsupportedError):
        size = sum(_item_count(node) for node in nodes) * 8
        if size > COPIED_SIZE:
            raise
    _copy(nodes, axis, draft)
    return None


def _item_count(node: _Node) -> int:
    return prod(node.document["shape"])


def _copy(nodes: Sequence[_Node], axis: int, draft: Draft) -> None:
    """Have the manifest hold the values of an array, times in the units of the first part."""
    first = nodes[0]
    array = first.part.load(first.path)
    values = [node.part.read(node.path) for node in nodes]
    values = [_in_units(node, first, found) for node, found in zip(nodes, values, strict=True)]
    data = np.concatenate(values, axis)
    name = first.path.rpartition("/")[2]
    if first.dimensions == [name]:
        _check_order(nodes, [len(found) for found in values], data)
    attributes = _common([node.attributes for node in nodes])
    kept = {name: first.attributes[name] for name in ("units", "calendar") if name in first.attributes}
    draft.add_array(
        first.path,
        data=data,
        dtype=array.dtype if array.dtype.kind not in "OT" else str,
        chunks=tuple(max(length, 1) for length in data.shape),
        compressors=None,
        fill_value=array.fill_value,
        attributes={**attributes, **kept},
        dimension_names=first.dimensions,
    )


def _check_order(nodes: Sequence[_Node], lengths: Sequence[int], data: np.ndarray[Any, Any]) -> None:
    """Refuse a dimension's coordinate that turns round, or stands still, where one part follows another."""
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


def _in_units(node: _Node, first: _Node, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers in the units of the first part."""
    units, calendar = (node.attributes.get(name) for name in ("units", "calendar"))
    wanted, of_first = (first.attributes.get(name) for name in ("units", "calendar"))
    if units == wanted and (calendar or "standard") == (of_first or "standard"):
        return values
    if (calendar or "standard") != (of_first or "standard"):
        raise _differ(node, first, "attribute 'calendar'", calendar, of_first)
    if not all(isinstance(unit, str) and " since " in unit for unit in (units, wanted)):
        raise _differ(node, first, "attribute 'units'", units, wanted)
    size, moment = parse_units(wanted, calendar or "standard")
    own_size, own_moment = parse_units(units, calendar or "standard")
    is_known = isinstance(moment, np.datetime64) and isinstance(own_moment, np.datetime64)
    if (calendar or "standard") not in GREGORIAN or not is_known:
        raise _differ(node, first, "attribute 'units'", units, wanted)
    begins, own_begins = (np.datetime64(one, "us").astype(np.int64) for one in (moment, own_moment))
    apart = int(own_begins) - int(begins)
    if values.dtype.kind == "f":
        return ((values.astype(np.float64) * own_size + apart) / size).astype(values.dtype)
    counts = [int(value) * own_size + apart for value in values.ravel().tolist()]
    if any(count % size for count in counts):
        raise _differ(node, first, "attribute 'units'", units, wanted)
    return np.array([int(count // size) for count in counts], values.dtype).reshape(values.shape)


def _edges(node: _Node, axis: int) -> list[int]:
    """The lengths of the chunks along an axis, as they are stored."""
    grid, length = node.document["chunk_grid"], node.document["shape"][axis]
    if grid["name"] == "regular":
        step = grid["configuration"]["chunk_shape"][axis]
        return [step] * -(-length // step)
    stated = grid["configuration"]["chunk_shapes"][axis]
    if isinstance(stated, int):
        return [stated] * -(-length // stated)
    edges: list[int] = []
    for item in stated:
        edges += [item] if isinstance(item, int) else [item[0]] * item[1]
    return edges


def _join_chunks(nodes: Sequence[_Node], axis: int, manifest: Manifest) -> Document:
    """References of all parts, one behind the other along the axis."""
    first = nodes[0]
    others = [d for d in range(len(first.document["shape"])) if d != axis]
    lists = [_edges(node, axis) for node in nodes]
    lengths = [node.document["shape"][axis] for node in nodes]
    steps = {d: _edges(first, d) for d in others}
    # Documents that differ only in how hard a writer tried to compress decode alike.
    codecs = [[_plain(codec) for codec in node.document["codecs"]] for node in nodes]
    for node, stated in zip(nodes[1:], codecs[1:], strict=True):
        if stated != codecs[0]:
            raise _differ(node, first, "codecs", node.document["codecs"], first.document["codecs"])
        for d in others:
            if _edges(node, d) != steps[d]:
                raise _differ(node, first, f"chunks along dimension {d}", _edges(node, d)[:1], steps[d][:1])
    is_even = len({length for edges in lists for length in edges}) <= 1
    whole = [sum(edges) == length for edges, length in zip(lists, lengths, strict=True)]
    tables = [_dense(node, manifest) for node in nodes]
    if not is_even or not all(whole[:-1]):
        cut = _cut(nodes, axis, lists, lengths, steps, all(whole))
        if cut is not None:
            tables = [
                _cut_table(table, axis, edges, length, cut)
                for table, edges, length in zip(tables, lists, lengths, strict=True)
            ]
            lists = [[cut] * (length // cut) for length in lengths]
        elif not all(whole[:-1]):
            at = whole.index(False)
            raise UnsupportedError(
                f"chunks of {first.path!r} are {lists[at][0]} long along dimension {axis} and reach past "
                "the end of "
                f"{nodes[at].part.name!r}, which has {lengths[at]}; expected whole chunks wherever "
                "another file "
                "follows",
                path=nodes[at].part.name,
            )
    inline = b""
    for table in tables:
        table.offset[table.source == INLINE] += len(inline)
        inline += table.inline
    source, offset, size = (
        np.concatenate([getattr(table, name) for table in tables], axis)
        for name in ("source", "offset", "size")
    )
    manifest.chunks[first.path] = Chunks(
        source.shape, source, offset, size, inline=inline, has_c=True, separator="/"
    )
    shape = list(first.document["shape"])
    shape[axis] = sum(lengths)
    document = {**first.document, "shape": shape, "attributes": _common([node.attributes for node in nodes])}
    edges = [length for one in lists for length in one]
    if len(set(edges)) > 1:
        document["chunk_grid"] = _uneven(first, axis, edges)
    elif edges:
        document["chunk_grid"] = _even(first, axis, edges[0])
    return document


def _plain(codec: Document) -> Document:
    """A codec without what says how it was encoded and changes nothing of how it is decoded."""
    configuration = {k: v for k, v in codec.get("configuration", {}).items() if k not in ("level", "clevel")}
    return {"name": codec["name"], "configuration": configuration}


def _even(node: _Node, axis: int, step: int) -> Document:
    grid = node.document["chunk_grid"]
    key = "chunk_shape" if grid["name"] == "regular" else "chunk_shapes"
    lengths = list(grid["configuration"][key])
    lengths[axis] = step
    if all(isinstance(length, int) for length in lengths):
        return {"name": "regular", "configuration": {"chunk_shape": lengths}}
    return {**grid, "configuration": {**grid["configuration"], key: lengths}}


def _uneven(node: _Node, axis: int, edges: Sequence[int]) -> Document:
    grid = node.document["chunk_grid"]
    key = "chunk_shape" if grid["name"] == "regular" else "chunk_shapes"
    shapes: list[Any] = list(grid["configuration"][key])
    runs: list[list[int]] = []
    for length in edges:
        if runs and runs[-1][0] == length:
            runs[-1][1] += 1
        else:
            runs.append([length, 1])
    shapes[axis] = [length if count == 1 else [length, count] for length, count in runs]
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}


@dataclass
class _Table:
    """References of a part in the shape of its grid."""

    source: np.ndarray[Any, Any]
    offset: np.ndarray[Any, Any]
    size: np.ndarray[Any, Any]
    inline: bytes


def _dense(node: _Node, manifest: Manifest) -> _Table:
    """All cells of a part's grid, sources numbered as in the manifest that is made."""
    if node.path not in node.part.manifest.chunks:
        grid = tuple(len(_edges(node, d)) for d in range(len(node.document["shape"])))
        return _Table(
            np.full(grid, ABSENT, np.int32), np.zeros(grid, np.int64), np.zeros(grid, np.int64), b""
        )
    chunks = _renumbered(node.part.manifest, node.path, manifest)
    count = prod(chunks.grid)
    source = np.full(count, ABSENT, np.int32)
    offset, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rows = slice(None) if chunks.numbers is None else chunks.numbers
    source[rows], offset[rows], size[rows] = chunks.source, chunks.offset, chunks.size
    source, offset, size = (found.reshape(chunks.grid) for found in (source, offset, size))
    return _Table(source, offset, size, chunks.inline)


def _cut(
    nodes: Sequence[_Node],
    axis: int,
    lists: Sequence[Sequence[int]],
    lengths: Sequence[int],
    steps: Mapping[int, Sequence[int]],
    is_whole: bool,
) -> int | None:
    """The length into which chunks that are stored as they are can all be cut; None: they cannot be."""
    first = nodes[0]
    stored = [codec["name"] for codec in first.document["codecs"]] == ["bytes"]
    item_size = load_array(Manifest(first.part.manifest.documents), first.path, ()).dtype.itemsize
    if not stored or any(set(steps[d]) != {1} for d in range(axis)):
        return None
    step = gcd(*(length for edges in lists for length in edges), *lengths)
    size = step * item_size * math.prod(max(steps[d], default=1) for d in steps)
    return step if step and (size >= LEAST_SIZE or not is_whole) else None


def _cut_table(table: _Table, axis: int, edges: Sequence[int], length: int, step: int) -> _Table:
    """The references of chunks cut into shorter ones; what lies past the end is left out."""
    counts = np.array([edge // step for edge in edges], np.int64)
    parts = np.concatenate([np.arange(count) for count in counts]) if len(counts) else counts
    shape = [1] * table.source.ndim
    shape[axis] = len(parts)
    source, offset, size = (
        np.repeat(found, counts, axis) for found in (table.source, table.offset, table.size)
    )
    size //= np.repeat(counts, counts).reshape(shape)
    offset = offset + parts.reshape(shape) * size
    kept = [slice(None)] * source.ndim
    kept[axis] = slice(0, length // step)
    return _Table(source[tuple(kept)], offset[tuple(kept)], size[tuple(kept)], table.inline)
