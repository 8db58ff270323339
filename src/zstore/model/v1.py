"""Zarr v1: `meta` and `attrs` documents to models and back.

v1 has arrays only, without groups to find them by. It is v2 without filters and without '/' in chunk keys,
but with other names of documents and another form of the compressor; so documents are converted to v2's and
back. Fill values of text are plain strings, as v1's only writer has them.

Spec
    Zarr v1.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from zstore.errors import MetadataError, UnsupportedError, ZstoreError, located
from zstore.model import v2
from zstore.model.array import ArrayModel
from zstore.model.document import check_format, refuse_format, require

ARRAY_KEY = "meta"
ATTRIBUTES_KEY = "attrs"
MEMBERS = (
    "zarr_format", "shape", "chunks", "dtype", "compression", "compression_opts", "fill_value", "order",
)  # fmt: skip
# compressor -> the option that `compression_opts` is, a number; None if it is an object of options.
COMPRESSORS: dict[str, str | None] = {"blosc": None, "bz2": "level", "lzma": None, "zlib": "level"}
# The level that v1's writer used by default, if the document has none; readers do not need it.
LEVEL = 1
V2_KEYS = {v2.ARRAY_KEY: ARRAY_KEY, v2.ATTRIBUTES_KEY: ATTRIBUTES_KEY}


@contextmanager
def as_v1() -> Iterator[None]:
    """A context in which v2's code handles v1, and errors name v1."""
    try:
        yield
    except ZstoreError as error:
        error.message = error.message.replace("Zarr v2", "Zarr v1")
        error.key = V2_KEYS.get(error.key or "", error.key)
        raise


def parse_array(documents: Mapping[str, Any], *, path: str) -> ArrayModel:
    """Parse the documents of an array, {"meta": …, "attrs": …}; "attrs" may be missing.

    Raises
        MetadataError: a member is missing, malformed or contradicts another.
        UnsupportedError: a dtype or compression that zstore does not have, or no dimensions.
    """
    with located(path, ARRAY_KEY), as_v1():
        document = documents[ARRAY_KEY]
        same = {v2.ARRAY_KEY: _to_v2(document)}
        if ATTRIBUTES_KEY in documents:
            same[v2.ATTRIBUTES_KEY] = documents[ATTRIBUTES_KEY]
        model = v2.parse_array(same, path=path)
        if not model.shape:
            raise UnsupportedError("shape is []; Zarr v1 has no key for the chunk of such an array")
    extra = {name: value for name, value in document.items() if name not in MEMBERS}
    return replace(model, zarr_format=1, extra=extra)


def _to_v2(document: Any) -> dict[str, Any]:
    check_format(document, 1)
    for name in MEMBERS:
        require(document, name)
    fill_value = document["fill_value"]
    dtype = document["dtype"]
    if _has_bytes(dtype) and isinstance(fill_value, str):
        if not fill_value.isascii() or len(fill_value) > int(dtype[2:] if dtype[2:].isdecimal() else 0):
            raise MetadataError(f"fill_value is {fill_value!r}; expected ASCII, as long as {dtype!r} at most")
        fill_value = base64.b64encode(fill_value.encode()).decode()
    return {
        "zarr_format": 2,
        **{name: document[name] for name in ("shape", "chunks", "dtype", "order")},
        "compressor": _parse_compression(document["compression"], document["compression_opts"]),
        "filters": None,
        "fill_value": fill_value,
    }


def _has_bytes(dtype: Any) -> bool:
    return isinstance(dtype, str) and dtype[1:2] == "S"


def _parse_compression(name: Any, options: Any) -> dict[str, Any] | None:
    """Parse the members for compression to v2's form of the compressor."""
    if name is None or name == "none":
        return None
    if not isinstance(name, str):
        raise MetadataError(f"compression is {name!r}; expected a name or null")
    if name not in COMPRESSORS:
        raise UnsupportedError(f"compression {name!r} is not supported; Zarr v1 has {', '.join(COMPRESSORS)}")
    option = COMPRESSORS[name]
    if option is not None:
        level = LEVEL if options is None else options
        if type(level) is not int:
            raise MetadataError(f"compression_opts of {name!r} is {options!r}; expected a level or null")
        return {"id": name, option: level}
    if options is not None and not isinstance(options, dict):
        raise MetadataError(f"compression_opts of {name!r} is {options!r}; expected an object or null")
    return {**(options or {}), "id": name}


def render_array(model: ArrayModel) -> dict[str, dict[str, Any]]:
    """Render the documents of an array, {"meta": …, "attrs": …}: the inverse of `parse_array`.

    Raises
        UnsupportedError: Zarr v1 cannot represent the array.
    """
    if model.keys.separator != ".":
        raise refuse_format(f"separator {model.keys.separator!r} of chunk keys", 1, "'.' only")
    if not model.shape:
        raise UnsupportedError("an array without dimensions cannot be said in Zarr v1")
    if model.data_type.is_object:
        raise UnsupportedError(f"data type {model.data_type.name!r} cannot be said in Zarr v1")
    with as_v1():
        same = v2.render_array(replace(model, zarr_format=2, extra={}))
    document = same[v2.ARRAY_KEY]
    if document["filters"]:
        names = ", ".join(repr(codec["id"]) for codec in document["filters"])
        raise refuse_format(f"codec {names}", 1, "no filters")
    compression, options = _render_compression(document["compressor"])
    fill_value = document["fill_value"]
    if _has_bytes(document["dtype"]) and fill_value is not None:
        fill_value = _render_text(base64.b64decode(fill_value))
    elif isinstance(document["dtype"], list) and fill_value is not None:
        if any(base64.b64decode(fill_value)):
            raise UnsupportedError("fill_value of a structured array cannot be said in Zarr v1, but zero")
        fill_value = 0
    document = {
        "chunks": document["chunks"],
        "compression": compression,
        "compression_opts": options,
        "dtype": document["dtype"],
        "fill_value": fill_value,
        "order": document["order"],
        "shape": document["shape"],
        "zarr_format": 1,
        **model.extra,
    }
    return {ARRAY_KEY: document, ATTRIBUTES_KEY: same.get(v2.ATTRIBUTES_KEY, {})}


def _render_compression(compressor: dict[str, Any] | None) -> tuple[str, Any]:
    if compressor is None:
        return "none", None
    options = dict(compressor)
    name = options.pop("id")
    if name not in COMPRESSORS:
        raise refuse_format(f"codec 'numcodecs.{name}'", 1, ", ".join(COMPRESSORS))
    option = COMPRESSORS[name]
    if option is not None:
        return name, options.get(option, LEVEL)
    # v1's own writer does not have this option, and behaves as with 0.
    if options.get("blocksize") == 0:
        del options["blocksize"]
    return name, options


def _render_text(data: bytes) -> str:
    if not data.isascii():
        raise refuse_format(f"fill_value {data!r}", 1, "characters of ASCII")
    return data.decode("ascii")
