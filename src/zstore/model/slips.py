"""Slips: what released writers wrote into documents of arrays against the specification, and its corrections.

The parsers of v2 and v3 get documents that `correct` has been through, and know the specification alone.
`docs/formats.md` has the table with a test for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import ZstoreError
from zstore.model.typestr import parse_typestr


class Slip(NamedTuple):
    """One kind of slip.

    says     what is wrong, and as what it is read
    writers  those that are known to have written it, with their versions
    correct  gives the members to replace (None for one to remove), none where the document has no such slip
    """

    says: str
    writers: str
    correct: Callable[[Mapping[str, Any]], dict[str, Any]]


def correct(document: Mapping[str, Any], zarr_format: int) -> Mapping[str, Any]:
    """The document of an array as the specification has it; the document itself where it has no slips."""
    for _, members in find_slips(document, zarr_format):
        document = _with(document, members)
    return document


def _with(document: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    gone = {name for name, value in members.items() if value is None}
    return {name: value for name, value in {**document, **members}.items() if name not in gone}


def find_slips(document: Mapping[str, Any], zarr_format: int) -> Iterator[tuple[Slip, dict[str, Any]]]:
    """(slip, the members that correct it) of a document of an array."""
    for slip in SLIPS.get(zarr_format, ()):
        members = slip.correct(document)
        if members:
            document = _with(document, members)
            yield slip, members


def _get(document: Any, *names: str) -> Any:
    """The value at a path of members; None where one is missing."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _grid(chunk_shape: list[Any]) -> dict[str, Any]:
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}}}


def _positive_chunks(chunks: Any, shape: Any) -> list[Any] | None:
    """The chunk shape with 1 for 0 and false along dimensions of length 0; None where there are none such."""
    if not isinstance(chunks, list) or not isinstance(shape, list) or len(chunks) != len(shape):
        return None
    right = [
        1 if type(length) is int and length == 0 and type(chunk) in (int, bool) and not chunk else chunk
        for chunk, length in zip(chunks, shape, strict=True)
    ]
    return None if right == chunks else right


def _chunks_v2(document: Mapping[str, Any]) -> dict[str, Any]:
    right = _positive_chunks(document.get("chunks"), document.get("shape"))
    return {} if right is None else {"chunks": right}


def _chunks_v3(document: Mapping[str, Any]) -> dict[str, Any]:
    grid = document.get("chunk_grid")
    right = _positive_chunks(_get(grid, "configuration", "chunk_shape"), document.get("shape"))
    return {} if right is None or _get(grid, "name") != "regular" else _grid(right)


def _uneven_chunks(document: Mapping[str, Any]) -> dict[str, Any]:
    grid = document.get("chunk_grid")
    lengths = _get(grid, "configuration", "chunk_shape")
    if not isinstance(lengths, list) or not any(isinstance(entry, list) for entry in lengths):
        return {}
    if _get(grid, "name") != "regular" or _get(grid, "configuration") != {"chunk_shape": lengths}:
        return {}
    return {
        "chunk_grid": {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": lengths},
        }
    }


def _transposes(document: Mapping[str, Any]) -> dict[str, Any]:
    shape = document.get("shape")

    def change(item: Any) -> Any:
        order = _get(item, "configuration", "order")
        if _get(item, "name") != "transpose" or order not in ("C", "F") or not isinstance(shape, list):
            return item
        axes = list(range(len(shape)))
        return {
            **item,
            "configuration": {**item["configuration"], "order": axes[:: 1 if order == "C" else -1]},
        }

    return _codecs(document, change)


def _endian(document: Mapping[str, Any]) -> dict[str, Any]:
    def change(item: Any) -> Any:
        return {**item, "name": "bytes"} if _get(item, "name") == "endian" else item

    return _codecs(document, change)


def _codecs(document: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The codecs, those in shards too, each as `change` gives it; nothing where all stay as they are."""

    def walk(items: list[Any]) -> list[Any]:
        made = []
        for item in items:
            inner = _get(item, "configuration", "codecs")
            if isinstance(inner, list):
                item = {**item, "configuration": {**item["configuration"], "codecs": walk(inner)}}
            made.append(change(item))
        return made

    codecs = document.get("codecs")
    right = walk(codecs) if isinstance(codecs, list) else codecs
    return {} if right == codecs else {"codecs": right}


# The codecs that GDAL 3.8 to 3.10 wrote without one that turns items into bytes.
LONELY = frozenset(("transpose", "gzip", "blosc"))


def _no_bytes(document: Mapping[str, Any]) -> dict[str, Any]:
    codecs = document.get("codecs", [])
    if not isinstance(codecs, list) or ("codecs" in document and not codecs):
        return {}
    names = [_get(item, "name") for item in codecs]
    if not all(isinstance(name, str) and name in LONELY for name in names):
        return {}
    first = names.count("transpose")
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    return {"codecs": [*codecs[:first], little, *codecs[first:]]}


# The kinds of typestrs of fixed length that zarr-python 3.0 wrote beside a filter for items of any length.
FIXED_KINDS = {"vlen-utf8": "U", "vlen-bytes": "S"}


def _fixed_length(document: Mapping[str, Any]) -> dict[str, Any]:
    dtype, filters = document.get("dtype"), document.get("filters")
    ids = [_get(item, "id") for item in filters] if isinstance(filters, list) else []
    kinds = [FIXED_KINDS[name] for name in ids if isinstance(name, str) and name in FIXED_KINDS]
    if not isinstance(dtype, str) or dtype[1:2] not in kinds[:1] or _dtype(dtype) is None:
        return {}
    return {"dtype": "|O"}


def _dtype(typestr: Any) -> np.dtype[Any] | None:
    """The dtype in the machine's byte order; None if it is malformed."""
    try:
        return parse_typestr(typestr).newbyteorder("=")
    except ZstoreError:
        return None


DATE = re.compile(r"-?[0-9]{3,}(-[0-9]{2}(-[0-9]{2}(T[0-9]{2}(:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?)?)?)?)?")


def _date(document: Mapping[str, Any]) -> dict[str, Any]:
    date, typestr = document.get("fill_value"), document.get("dtype")
    if not isinstance(date, str) or not isinstance(typestr, str) or typestr[1:2] != "M":
        return {}
    dtype = _dtype(typestr)
    if dtype is None or np.datetime_data(dtype)[0] == "generic" or not DATE.fullmatch(date):
        return {}
    try:
        time = np.array([date]).astype(dtype)
    except ValueError:
        return {}
    # A date beyond the unit's range, or finer than the unit, comes back as another one.
    is_same = np.datetime_as_string(time)[0] == date
    return {"fill_value": int(time.view("i8")[0])} if is_same else {}


def _checksum(document: Mapping[str, Any]) -> dict[str, Any]:
    compressor = document.get("compressor")
    word = _get(compressor, "checksum")
    if _get(compressor, "id") != "zstd" or word not in ("YES", "NO"):
        return {}
    return {"compressor": {**document["compressor"], "checksum": word == "YES"}}


def _attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"attributes": None} if document.get("attributes") == {} else {}


ZARR_2_18 = "zarr-python 2.18.7 to 3.3"
ZARR_3_0 = "zarr-python 3.0"
EMPTY = "chunks of length 0 or false along a dimension of length 0, read as 1"
SLIPS: dict[int, tuple[Slip, ...]] = {
    2: (
        Slip(EMPTY, ZARR_2_18, _chunks_v2),
        Slip("a dtype of fixed length beside vlen-utf8 or vlen-bytes, read as |O", ZARR_3_0, _fixed_length),
        Slip("a date as the fill value, read as the count of its unit", ZARR_3_0, _date),
        Slip("empty attributes in .zarray, read as none", "VirtualiZarr 2.8", _attributes),
        Slip('the checksum of zstd is "YES" or "NO", read as true or false', "GDAL 3.12", _checksum),
    ),
    3: (
        Slip(EMPTY, ZARR_2_18, _chunks_v3),
        Slip(
            "lists of lengths in the chunk_shape of a regular grid, read as a rectilinear one",
            "zarr-python 3.2.0 and 3.2.1",
            _uneven_chunks,
        ),
        Slip(
            'transpose to order "C" or "F", read as a permutation',
            "GDAL until 3.10, before the specification asked for permutations",
            _transposes,
        ),
        Slip("the codec endian, read as bytes", "writers of drafts of Zarr v3, GDAL until 3.10", _endian),
        Slip("no codec turns items into bytes, read as little-endian bytes", "GDAL 3.8 to 3.10", _no_bytes),
    ),
}
