"""Parsing and rendering metadata documents: JSON bytes to dicts and back.

Parsing accepts what other libraries write: strict JSON, and the bare tokens NaN, Infinity and -Infinity that
Python's writers leave in attributes. Rendering always gives the same bytes for a document. New attributes
with a NaN or an infinity are refused (`check_attributes`), because strict readers could not open the node at
all; those that a document already has are written back unchanged, and copied to new nodes of jobs as strings
(`spelled`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from zstore.base.limits import current_limits
from zstore.base.once import ByContent
from zstore.errors import MetadataError, UnsupportedError

# The deepest nesting of lists and objects: Python's recursion limit allows some hundreds of levels.
# Attributes leave room for the documents that contain them.
MOST_NESTED = 256
MOST_NESTED_ATTRIBUTES = 240
# In what is only shown; more than numpy has dimensions.
MOST_SHOWN = 100

# Bytes that a list or object, and an item of one, take in memory. Parsed documents may take up to
# MEMORY_FACTOR times the limit `document_size`.
NESTED_SIZE, ITEM_SIZE, MEMORY_FACTOR = 64, 40, 8

_SCALAR = (str, int, float, type(None))
_PLAIN = {bool, *_SCALAR}
_NESTED = (dict, list, tuple, Mapping)  # an abstract class takes longest to ask
# Rendered members of documents by their exact content: new arrays of a group share most of it.
_texts: ByContent[str] = ByContent()
_decode = json.JSONDecoder().raw_decode
_compact = json.JSONEncoder(ensure_ascii=False).encode


def parse_json(data: bytes | memoryview, *, path: str, key: str | None = None) -> dict[str, Any]:
    """Parse a metadata document, which must be a JSON object.

    Raises
        MetadataError: not UTF-8, not JSON, not an object, nested deeper than 256 levels, or larger than the
            limit `document_size` allows.
    """
    size, limit = len(data), current_limits().document_size
    if size > limit:
        reason = f"it has more than {limit} bytes, the limit document_size (zstore.set_limits)"
        raise MetadataError(f"metadata document is too large: {reason}", path=path, key=key)
    # Two bytes may become a list, so the memory for a large document is estimated before it is parsed.
    most = MEMORY_FACTOR * limit
    if NESTED_SIZE * size > most and (memory_size := _memory_size(bytes(data))) > most:
        reason = (
            f"its items would take {memory_size} bytes, over {MEMORY_FACTOR} times {limit}, "
            "the limit document_size"
        )
        raise MetadataError(
            f"metadata document is too large: {reason} (zstore.set_limits)", path=path, key=key
        )
    try:
        text = str(data, "utf-8")
        document = _parse_text(text)
        if text.count("[") + text.count("{") > MOST_NESTED and _is_deeper(document, MOST_NESTED):
            raise RecursionError
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = f"nested deeper than {MOST_NESTED} levels"
    except ValueError as error:
        reason = str(error)
    else:
        if isinstance(document, dict):
            return document
        reason = f"expected an object, got {type(document).__name__}"
    raise MetadataError(f"metadata document is not valid: {reason}", path=path, key=key)


def require(document: Mapping[str, Any], name: str) -> Any:
    """The value of a member that every such document has."""
    if name in document:
        return document[name]
    raise MetadataError(f"member {name!r} is missing")


def check_format(document: Any, zarr_format: int) -> None:
    """Check that a document is an object, and of this Zarr format."""
    if not isinstance(document, dict):
        raise MetadataError(f"document is {document!r}; expected an object")
    stored = require(document, "zarr_format")
    if type(stored) is not int or stored != zarr_format:
        raise MetadataError(f"zarr_format is {stored!r}; expected {zarr_format}")


def refuse_format(what: str, zarr_format: int, expected: str) -> UnsupportedError:
    """The error for a property that documents of a Zarr format cannot express; they have `expected`."""
    return UnsupportedError(f"{what} cannot be said in Zarr v{zarr_format}; it has {expected}")


def _memory_size(data: bytes) -> int:
    """Estimate the memory of a parsed document; commas and brackets in strings count too."""
    return NESTED_SIZE * (data.count(b"[") + data.count(b"{")) + ITEM_SIZE * data.count(b",")


def _parse_text(text: str) -> Any:
    try:
        document, end = _decode(text)
    except json.JSONDecodeError:
        end = -1
    if end < 0 or (end < len(text) and text[end:].strip(" \t\n\r")):
        # It begins with a space, or is malformed.
        return json.loads(text)
    return document


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects are nested deeper than `depth` levels; works without recursion."""
    level = [value] if isinstance(value, _NESTED) else []
    for _ in range(depth + 1):
        level = [
            item
            for held in level
            for item in (held if isinstance(held, list | tuple) else held.values())
            if type(item) not in _PLAIN and isinstance(item, _NESTED)
        ]
        if not level:
            return False
    return True


def render_json(document: Mapping[str, Any]) -> bytes:
    """Render a document as UTF-8 JSON: indented by 2 spaces, members in order, plain lists on one line.

    Raises
        MetadataError: nested deeper than 256 levels, or a value that JSON cannot represent.
    """
    try:
        text = _render_members(document)
        if text.count("[") + text.count("{") > MOST_NESTED and _is_deeper(document, MOST_NESTED):
            raise RecursionError
    except RecursionError:
        raise MetadataError(f"metadata document is nested deeper than {MOST_NESTED} levels") from None
    except TypeError as error:
        raise MetadataError(f"metadata document cannot be written: {error}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate was read from an escape, and can only be written as one.
        return json.dumps(document, indent=2).encode()


def _render_members(document: Mapping[str, Any]) -> str:
    members = [encode_basestring(name) + ": " + _render_known(item) for name, item in document.items()]
    return "{\n  " + ",\n  ".join(members) + "\n}" if members else "{}"


def _render_known(item: Any) -> str:
    """Render a member of a document, or take it from the members rendered before."""
    kind = type(item)
    if kind is str:
        return encode_basestring(item)
    if kind is int:
        return repr(item)
    if item is None:
        return "null"
    return _texts.get(item, _render_member) if item and kind in (dict, list) else _render_member(item)


def _render_member(item: Any) -> str:
    pieces: list[str] = []
    _render(item, "\n  ", pieces.append)
    return "".join(pieces)


def _render(value: Any, newline: str, put: Any) -> None:
    inner = newline + "  "
    # The first test usually decides, and costs a tenth of the second.
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101
        if not value:
            put("{}")
            return
        lead = "{" + inner
        for name, item in value.items():
            put(lead + encode_basestring(name) + ": ")
            lead = "," + inner
            kind = type(item)
            if kind is str:
                put(encode_basestring(item))
            elif kind is int:
                put(int.__repr__(item))
            else:
                _render(item, inner, put)
        put(newline + "}")
    elif isinstance(value, list | tuple):
        for item in value:
            if not isinstance(item, _SCALAR):
                break
        else:
            put(_compact(value))
            return
        lead = "[" + inner
        for item in value:
            put(lead)
            lead = "," + inner
            _render(item, inner, put)
        put(newline + "]")
    else:
        put(_compact(value))


def check_attributes(attributes: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    """Check attributes, and copy them as plain JSON values.

    Tuples become lists; numpy scalars and arrays become numbers and lists.

    Raises
        MetadataError: a name that is no string, NaN or an infinity, or another value that JSON cannot
            represent; the message names the attribute.
    """
    if not isinstance(attributes, Mapping):
        raise MetadataError(f"attributes are {attributes!r}; expected a mapping", path=path)
    for name, value in attributes.items():
        if isinstance(value, _NESTED) and _is_deeper(value, MOST_NESTED_ATTRIBUTES):
            reason = f"attribute {name!r} is nested deeper than {MOST_NESTED_ATTRIBUTES} levels"
            raise MetadataError(reason, path=path)
    return {_check_name(name, "", path): _plain(value, name, path) for name, value in attributes.items()}


def _check_name(name: Any, where: str, path: str) -> str:
    if isinstance(name, str):
        return name
    inside = f" in attribute {where!r}" if where else ""
    raise MetadataError(f"attribute name {name!r}{inside} is no string", path=path)


def _plain(value: Any, where: str, path: str) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return value
    # Subclasses (str and int enums, np.float64) are written as their base type.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise MetadataError(
            f"attribute {where!r} is {value!r}, which JSON has no number for; "
            f"expected a finite number or a string such as 'NaN'",
            path=path,
        )
    if isinstance(value, Mapping):
        return {
            _check_name(name, where, path): _plain(item, f"{where}.{name}", path)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]", path) for index, item in enumerate(value)]
    raise MetadataError(
        f"attribute {where!r} is a {type(value).__name__}; expected null, booleans, numbers, strings, "
        f"lists and mappings",
        path=path,
    )


def spelled(value: Any) -> Any:
    """Attributes, or a value in them, with the strings of Zarr's fill values for numbers that JSON lacks.

    Many a file and Zarr v2 has a NaN among its attributes; what is made of it has none.
    """
    if isinstance(value, Mapping):
        return {name: spelled(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(item) for item in value]
    return plain(value) if isinstance(value, float) else value


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON can represent it; NaN and infinities become the strings of Zarr's fill values."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if depth > MOST_SHOWN:
        return "..."
    if isinstance(value, Mapping):
        return {str(name): plain(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items: Iterable[Any] = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [plain(item, depth + 1) for item in items]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, str | int | float | bool | None) else str(value)
