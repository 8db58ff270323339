"""Views as JSON documents: the steps of a tree, each after its inputs; no code, and no items but small ones.

Stored arrays are in a document by their addresses; those below the document's directory are relative to it.
It leads to no others but those below the places that the storage option `allow` names, as for references.

Example: {"zstore_view": 1, "transforms": [], "steps": [
    {"step": "array", "url": "a.zarr", "path": "", "shape": [4], "dtype": "<i2", "chunks": [2]},
    {"step": "call", "of": [0], "function": "add", "arguments": [{"input": 0}, 1]}]}
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError, ZstoreError
from zstore.extensions.registry import makers
from zstore.indexing.transform import IndexTransform
from zstore.nodes.array import Array
from zstore.storage.base import Store, join_url
from zstore.storage.references import absolute_address, is_below
from zstore.storage.url import open_store
from zstore.views.functions import ACROSS, BY_PLACE, Across, Call, Cast, Input, Unpack
from zstore.views.made import MadeBy, MadeSource, Remade, origin_of
from zstore.views.steps import (
    ArrayAddress,
    BoxedItems,
    Computation,
    Concatenation,
    Items,
    MemoryItems,
    Overlay,
    Selection,
    StoredItems,
    ViewStep,
    postorder,
    step_of,
)

VERSION = 1
# Items in memory of more bytes are to be stored as an array, and not in a document.
ITEMS_SIZE = 64 << 10

Json = dict[str, Any]


# Files


def write(root: ViewStep, target: str | os.PathLike[str], options: Mapping[str, Any] | None) -> None:
    """Store the document of a tree at a path or URL."""
    store, name = _beside(target, options, read_only=False)
    data = json.dumps(render(root, _folder(store)), separators=(",", ":"), allow_nan=False)
    store.put(name, data.encode())


def read(target: str | os.PathLike[str], options: Mapping[str, Any] | None) -> ViewStep:
    """The tree of the document at a path or URL.

    Raises
        NotFoundError: there is none.
        MetadataError: it is damaged, or of a later version.
        StoreError: it leads to a place that is not allowed.
    """
    given = dict(options or {})
    allowed = given.pop("allow", ())
    places = [allowed] if isinstance(allowed, str | os.PathLike) else [*allowed]
    store, name = _beside(target, given or None, read_only=True)
    where = join_url(store.url, name)
    data = store.get(name)
    if data is None:
        raise NotFoundError("no view there; expected a JSON document", path=where)
    try:
        document = json.loads(bytes(data))
        return parse(document, Addresses(_folder(store), [os.fspath(place) for place in places], given))
    except ZstoreError as error:
        raise error.locate(path=where) from None
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the view is damaged: {error}", path=where) from error


def _beside(
    target: str | os.PathLike[str], options: Mapping[str, Any] | None, *, read_only: bool
) -> tuple[Store, str]:
    """The store of the directory that a document is in, and the document's name."""
    folder, _, name = os.fspath(target).rpartition("/")
    if isinstance(target, str) and "://" in target:
        return open_store(folder, read_only=read_only, storage_options=options), name
    return open_store(Path(folder or os.curdir), read_only=read_only, storage_options=options), name


def _folder(store: Store) -> str:
    return absolute_address(store.url).rstrip("/")


class Addresses:
    """The arrays that a document may lead to: those below its folder, and below places that are allowed."""

    def __init__(self, folder: str, allowed: Sequence[str], options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._allowed = allowed
        self._places = {folder, *(absolute_address(place).rstrip("/") for place in allowed)}
        self._options = options

    def settle(self, url: str) -> str:
        """The address for opening an array, which may be relative to the document.

        Raises
            StoreError: it is not allowed.
        """
        is_whole = "://" in url or url.startswith("/")
        full = absolute_address(url if is_whole else f"{self._folder}/{url}")
        # A URL in a URL, or an adapter, would lead to another place than it begins with.
        is_plain = full.count("://") == 1 and "::" not in full and "|" not in full and unquote(full) == full
        if not is_plain or not is_below(full, self._places):
            raise StoreError(
                f"it leads to {url!r}, out of the place of its document; expected the storage option 'allow' "
                "to name a place above it"
            )
        return full.removeprefix("file://")

    def options(self, url: str) -> Mapping[str, Any] | None:
        """The storage options for an address."""
        if "://" not in url:
            return {"allow": self._allowed} if self._allowed else None
        is_web = url.startswith(("http://", "https://"))
        return {**self._options, **({"allow_redirects": False} if is_web else {})} or None


# Written


def render(root: ViewStep, folder: str = "") -> Json:
    """The document of a tree; addresses below `folder` are relative to it.

    Raises
        UnsupportedError: a function of a user's, too many items in memory, or a source without address.
    """
    numbers: dict[int, int] = {}
    transforms: dict[Any, int] = {}
    rendered: list[Json] = []
    steps: list[Json] = []
    for step, inputs in _with_inputs(root, {}):
        if (shown := _shown(step)) is not None:
            numbers[id(step)] = numbers[id(shown)]
            continue
        made = _render_step(step) if step.inputs else _render_source(step, folder)
        if inputs:
            made["of"] = [numbers[id(one)] for one in inputs]
        if isinstance(step, Selection):
            number = transforms.setdefault(step.transform.key, len(rendered))
            if number == len(rendered):
                rendered.append(_render_transform(step.transform))
            made["transform"] = number
        numbers[id(step)] = len(steps)
        steps.append(made)
    return {"zstore_view": VERSION, "transforms": rendered, "steps": steps}


def _with_inputs(
    root: ViewStep, seen: dict[int, ViewStep]
) -> Iterator[tuple[ViewStep, tuple[ViewStep, ...]]]:
    """Each step of a tree once with its inputs, after them; those of a made source are its origins.

    seen  by their ids the steps that were, which live as long
    """
    for step in postorder(root):
        if id(step) in seen:
            continue
        seen[id(step)] = step
        inputs = step.inputs
        if (shown := _shown(step)) is not None:
            yield from _with_inputs(shown, seen)
        if isinstance(step, BoxedItems) and isinstance(step.source, MadeSource):
            inputs = tuple(map(step_of, step.source.making().of))
            for one in inputs:
                yield from _with_inputs(one, seen)
        yield step, inputs


def _shown(step: ViewStep) -> ViewStep | None:
    """The step of the view that a stored array shows which has no address, as of a group's part."""
    array = step.array if isinstance(step, StoredItems) else None
    is_shown = isinstance(array, Array) and not _has_address(array)
    return getattr(origin_of(array), "step", None) if is_shown else None


def _has_address(array: Array) -> bool:
    """Whether the store's URL opens it again, which that of a group's part does not."""
    return getattr(array.store.holder("")[0], "has_address", True)


def _render_source(step: ViewStep, folder: str) -> Json:
    if isinstance(step, MemoryItems):
        return {"step": "items", **_render_items(step.items)}
    if isinstance(step, BoxedItems) and isinstance(step.source, MadeSource):
        making = step.source.making()
        return {
            "step": "made",
            "by": making.by,
            "shape": list(step.shape),
            "dtype": _render_dtype(step.dtype),
            "chunks": list(step.source.grid.chunk_shape),
            "with": {name: _render_value(value) for name, value in making.options.items()},
            **({} if making.url is None else {"url": _relative(making.url, folder)}),
        }
    if not isinstance(step, StoredItems):
        raise UnsupportedError(
            f"a view of {_name(step)} has no document; expected stored arrays, which have addresses"
        )
    array = step.array
    url, path = (array.store.url, array.path) if isinstance(array, Array) else (array.url, array.path)
    if isinstance(array, Array) and (array.store.in_memory or not _has_address(array)):
        raise UnsupportedError(
            "a view of an array in memory has no document; expected arrays with addresses", path=url
        )
    return {
        "step": "array",
        "url": _relative(url, folder),
        "path": path,
        "shape": list(step.shape),
        "dtype": _render_dtype(step.dtype),
        "chunks": list(array.chunks),
    }


def _relative(url: str, folder: str) -> str:
    """An address as a document in a folder has it."""
    full = absolute_address(url)
    is_below = folder and full.startswith(f"{folder}/")
    return full[len(folder) + 1 :] if is_below else full.removeprefix("file://")


def _name(step: ViewStep) -> str:
    return f"a {type(step.source).__name__}" if isinstance(step, BoxedItems) else type(step).__name__


def _render_step(step: ViewStep) -> Json:
    if isinstance(step, Selection):
        return {"step": "select"}
    if isinstance(step, Concatenation):
        return {"step": "concat", "axis": step.axis}
    if isinstance(step, Overlay):
        return {
            "step": "overlay",
            "starts": step.starts.tolist(),
            "shape": list(step.shape),
            "nodata": [None if one is None else _render_items(np.asarray(one)) for one in step.nodata],
            "fill_value": _render_items(np.asarray(step.fill_value)),
        }
    assert isinstance(step, Computation)
    function = step.function
    if isinstance(function, Across):
        return {"step": "across", "function": function.name}
    if isinstance(function, Cast):
        return {"step": "astype", "dtype": _render_dtype(step.dtype)}
    if isinstance(function, Unpack):
        return {
            "step": "unpack",
            "scale": function.scale,
            "offset": function.offset,
            "nodata": [_render_constant(one) for one in function.nodata],
            "meant": None if function.meant is None else _render_dtype(function.meant),
            "dtype": _render_dtype(step.dtype),
        }
    assert isinstance(function, Call)
    if _numpy_function(str(function)) is not function.function:
        raise UnsupportedError(
            f"a view by the function {function} has no document; expected functions of numpy's"
        )
    return {
        "step": "call",
        "function": str(function),
        "arguments": [
            {"input": one.number} if isinstance(one, Input) else _render_constant(one)
            for one in function.arguments
        ],
        "options": {name: _render_option(value) for name, value in function.options},
        "output": function.output,
    }


def _numpy_function(name: str) -> Any:
    """numpy's function of a name that a document may have; None for any other."""
    function = getattr(np, name, None) if name.isidentifier() else None
    is_ufunc = isinstance(function, np.ufunc) and function.signature is None
    return function if is_ufunc or name in BY_PLACE else None


def _render_dtype(dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject or dtype.kind not in "biufcmMSUV" or dtype.names or dtype.subdtype:
        raise UnsupportedError(
            f"a view of {dtype} has no document; expected numbers, times, or strings of one length"
        )
    return dtype.str


def _render_items(items: Items) -> Json:
    dtype = _render_dtype(items.dtype)
    if items.nbytes > ITEMS_SIZE:
        raise UnsupportedError(
            f"a view of {items.nbytes:,} bytes in memory has no document; expected {ITEMS_SIZE:,} at most, "
            "or a stored array"
        )
    text = base64.standard_b64encode(np.ascontiguousarray(items).tobytes()).decode()
    return {"dtype": dtype, "shape": list(items.shape), "base64": text}


def _render_constant(value: Any) -> Any:
    """A constant of a function: numbers of Python's as JSON has them, all others as items."""
    if value is None or type(value) in (bool, str, int):
        return value
    if type(value) is float:
        return value if np.isfinite(value) else {"float": repr(value)}
    if type(value) is complex:
        return {"complex": [repr(value.real), repr(value.imag)]}
    return _render_items(np.asarray(value))


def _render_value(value: Any) -> Any:
    """The options of a made source: lists and objects of constants."""
    if isinstance(value, Mapping):
        return {"object": {str(name): _render_value(one) for name, one in value.items()}}
    return (
        [_render_value(one) for one in value] if isinstance(value, list | tuple) else _render_constant(value)
    )


def _render_option(value: Any) -> Any:
    if isinstance(value, np.dtype) or (
        isinstance(value, type) and issubclass(value, np.generic | int | float)
    ):
        return {"dtype": _render_dtype(np.dtype(value))}
    return _render_constant(value)


def _render_transform(transform: IndexTransform) -> Json:
    places: list[Any] = []
    for place in transform.positions:
        if isinstance(place, range):
            places.append([place.start, len(place), place.step])
        else:
            places.append(place if isinstance(place, int) else _render_items(place))
    return {
        "shape": list(transform.shape),
        "axes": [list(axes) for axes in transform.axes],
        "positions": places,
    }


# Read


def parse(document: Any, addresses: Addresses) -> ViewStep:
    """The tree of a document.

    Raises
        MetadataError: it is no document of a view, or its steps do not fit together.
        StoreError: it leads to a place that is not allowed.
    """
    if not isinstance(document, dict) or "zstore_view" not in document:
        raise MetadataError("no view; expected an object with 'zstore_view'")
    if document["zstore_view"] != VERSION:
        raise MetadataError(f"zstore_view is {document['zstore_view']!r}; expected {VERSION}")
    members, rendered = document.get("steps"), document.get("transforms", [])
    if not isinstance(members, list) or not members or not isinstance(rendered, list):
        raise MetadataError("steps are no list of one or more, or transforms are no list")
    steps: list[ViewStep] = []
    transforms: list[IndexTransform] = []
    shared: dict[Any, Any] = {}
    try:
        transforms += map(_parse_transform, rendered)
        for member in members:
            if member["step"] == "array":
                steps.append(_parse_array(member, addresses, shared))
            elif member["step"] == "items":
                steps.append(MemoryItems(_parse_items(member)))
            elif member["step"] == "made":
                inputs = [steps[_number(at, len(steps))] for at in member.get("of", ())]
                steps.append(_parse_made(member, inputs, addresses))
            else:
                steps.append(
                    _parse_step(member, [steps[_number(at, len(steps))] for at in member["of"]], transforms)
                )
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ZstoreError):
            raise
        raise MetadataError(
            f"step {len(steps)} of the view is damaged: {type(error).__name__}: {error}"
        ) from error
    return steps[-1]


def _number(value: Any, count: int) -> int:
    """A number from 0 to before `count`."""
    if type(value) is not int or not 0 <= value < count:
        raise MetadataError(f"{value!r} is no number from 0 to before {count}")
    return value


def _lengths(value: Any) -> tuple[int, ...]:
    return tuple(_number(length, 1 << 63) for length in value)


def _parse_array(member: Json, addresses: Addresses, shared: dict[Any, Any]) -> StoredItems:
    """A stored array; equal shapes and dtypes are one object, for documents of many arrays."""
    name = (member["dtype"], *member["shape"], *member["chunks"])
    if name not in shared:
        shape, chunks = _lengths(member["shape"]), _lengths(member["chunks"])
        if len(shape) != len(chunks) or 0 in chunks:
            raise MetadataError(f"chunks are {chunks}; expected positive lengths as in shape {shape}")
        shared[name] = shape, _parse_dtype(member["dtype"]), chunks
    url, path = member["url"], member["path"]
    if not isinstance(url, str) or not isinstance(path, str):
        raise MetadataError(f"url {url!r} or path {path!r} is no string")
    full = addresses.settle(url)
    shape, dtype, chunks = shared[name]
    return StoredItems(ArrayAddress(full, path, shape, dtype, chunks, addresses.options(full)))


def _parse_made(member: Json, inputs: list[ViewStep], addresses: Addresses) -> BoxedItems:
    """A source that is made when it is read: of inputs, or of an address."""
    by, url, shape, chunks = (
        member["by"],
        member.get("url"),
        _lengths(member["shape"]),
        _lengths(member["chunks"]),
    )
    if by not in makers.names() or not isinstance(url, str | None):
        known = ", ".join(makers.names())
        raise MetadataError(f"made by {by!r} of {url!r}; expected one of {known}")
    if len(shape) != len(chunks) or 0 in chunks:
        raise MetadataError(f"chunks are {chunks}; expected positive lengths as in shape {shape}")
    options = {str(name): _parse_value(value) for name, value in member["with"].items()}
    full = None if url is None else addresses.settle(url)
    making = MadeBy(by, options, tuple(inputs), full, None if full is None else addresses.options(full))
    return BoxedItems(Remade(making, shape, _parse_dtype(member["dtype"]), chunks))


def _parse_step(member: Json, inputs: list[ViewStep], transforms: list[IndexTransform]) -> ViewStep:
    kind = member["step"]
    if kind == "call":
        return _parse_call(member, inputs)
    if kind == "across":
        return _parse_across(member, inputs)
    if kind in ("concat", "overlay"):
        if not inputs or any(step.dtype != inputs[0].dtype for step in inputs):
            # Of one type, in whatever order of bytes.
            kinds = {step.dtype.newbyteorder("=") for step in inputs}
            if len(kinds) != 1:
                raise MetadataError(f"inputs have {len(kinds)} dtypes; expected one")
        return _parse_concat(member, inputs) if kind == "concat" else _parse_overlay(member, inputs)
    [step] = inputs
    if kind == "select":
        transform = transforms[_number(member["transform"], len(transforms))]
        for dimension, length in enumerate(step.shape):
            low, high = transform.bounds(dimension)
            if not 0 <= low <= high <= length:
                raise MetadataError(f"positions from {low} to {high} are out of the length {length}")
        if len(transform.axes) != len(step.shape):
            raise MetadataError(
                f"a transform of {len(transform.axes)} dimensions; expected {len(step.shape)}"
            )
        return Selection((step,), transform)
    dtype = _parse_dtype(member["dtype"])
    if kind == "astype":
        np.empty(0, step.dtype).astype(dtype)
        return Computation((step,), Cast(), dtype)
    if kind != "unpack":
        raise MetadataError(f"step {kind!r} is unknown")
    if dtype.kind not in "fc" or step.dtype.kind not in "iufb":
        raise MetadataError(
            f"{step.dtype} is not unpacked to {dtype}; expected numbers, and a dtype with NaN"
        )
    meant = None if member["meant"] is None else _parse_dtype(member["meant"])
    if meant is not None and (meant.itemsize != step.dtype.itemsize or meant.kind not in "iu"):
        raise MetadataError(f"{step.dtype} is not read as {meant}")
    scale, offset = (None if member[name] is None else float(member[name]) for name in ("scale", "offset"))
    return Computation(
        (step,), Unpack(scale, offset, tuple(map(_parse_constant, member["nodata"])), meant), dtype
    )


def _parse_concat(member: Json, inputs: list[ViewStep]) -> Concatenation:
    first = inputs[0].shape
    axis = _number(member["axis"], len(first))
    frame = (first[:axis], first[axis + 1 :])
    if any(
        (step.shape[:axis], step.shape[axis + 1 :]) != frame or len(step.shape) != len(first)
        for step in inputs
    ):
        raise MetadataError(f"inputs differ in shape along another axis than {axis}")
    return Concatenation(tuple(inputs), axis)


def _parse_overlay(member: Json, inputs: list[ViewStep]) -> Overlay:
    shape = _lengths(member["shape"])
    starts = np.array([_lengths(row) for row in member["starts"]], np.int64).reshape(len(inputs), len(shape))
    if any(len(step.shape) != len(shape) for step in inputs):
        raise MetadataError(f"inputs have not the {len(shape)} axes of the overlay")
    stops = starts + np.array([step.shape for step in inputs], np.int64).reshape(starts.shape)
    if (stops > np.array(shape, np.int64)).any() or len(member["nodata"]) != len(inputs):
        raise MetadataError(f"inputs reach out of the shape {shape}, or nodata is not for each")
    nodata = tuple(None if one is None else _parse_items(one)[()] for one in member["nodata"])
    fill = np.zeros((), inputs[0].dtype)
    fill[...] = _parse_items(member["fill_value"])
    return Overlay(tuple(inputs), starts, shape, nodata, fill[()])


def _parse_call(member: Json, inputs: list[ViewStep]) -> Computation:
    name, output = member["function"], member.get("output")
    function = _numpy_function(name) if isinstance(name, str) else None
    if function is None:
        raise MetadataError(f"function {name!r} is none of numpy's that go place by place")
    arguments = tuple(_parse_argument(one, len(inputs)) for one in member["arguments"])
    options = tuple((key, _parse_option(value)) for key, value in sorted(member.get("options", {}).items()))
    if any(key in ("out", "where", "copy") for key, _ in options) or not inputs:
        raise MetadataError(f"{name} has an option that views do not have, or no input")
    if any(step.shape != inputs[0].shape for step in inputs):
        raise MetadataError(f"inputs of {name} differ in shape")
    if output is not None:
        _number(output, function.nout if isinstance(function, np.ufunc) else 0)
    elif isinstance(function, np.ufunc) and function.nout > 1:
        raise MetadataError(f"{name} has several results; expected 'output'")
    call = Call(function, arguments, options, output)
    return Computation(tuple(inputs), call, call.dtype([step.dtype for step in inputs]))


def _parse_across(member: Json, inputs: list[ViewStep]) -> Computation:
    if member["function"] not in ACROSS or not inputs:
        raise MetadataError(f"function {member['function']!r} is none of {', '.join(ACROSS)}, of inputs")
    if any((step.shape, step.dtype) != (inputs[0].shape, inputs[0].dtype) for step in inputs):
        raise MetadataError(f"inputs of {member['function']} differ in shape or dtype")
    across = Across(member["function"])
    return Computation(tuple(inputs), across, across.dtype(inputs[0].dtype))


def _parse_argument(value: Any, count: int) -> Any:
    if isinstance(value, dict) and "input" in value:
        return Input(_number(value["input"], count))
    return _parse_constant(value)


def _parse_option(value: Any) -> Any:
    is_dtype = isinstance(value, dict) and set(value) == {"dtype"}
    return _parse_dtype(value["dtype"]) if is_dtype else _parse_constant(value)


def _parse_constant(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if "float" in value:
        return float(value["float"])
    if "complex" in value:
        real, imaginary = map(float, value["complex"])
        return complex(real, imaginary)
    items = _parse_items(value)
    return items if items.ndim else items[()]


def _parse_value(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"object"}:
        return {name: _parse_value(one) for name, one in value["object"].items()}
    return [*map(_parse_value, value)] if isinstance(value, list) else _parse_constant(value)


def _parse_dtype(value: Any) -> np.dtype[Any]:
    if not isinstance(value, str):
        raise MetadataError(f"dtype is {value!r}; expected a string, as '<f4'")
    dtype = np.dtype(value)
    if dtype.str != value:
        raise MetadataError(f"dtype is {value!r}; expected {dtype.str!r}")
    _render_dtype(dtype)
    return dtype


def _parse_items(member: Json) -> Items:
    data = base64.b64decode(member["base64"], validate=True)
    return np.frombuffer(data, _parse_dtype(member["dtype"])).reshape(_lengths(member["shape"])).copy()


def _parse_transform(member: Json) -> IndexTransform:
    shape = _lengths(member["shape"])
    axes = tuple(tuple(_number(axis, len(shape)) for axis in own) for own in member["axes"])
    places: list[int | range | Any] = []
    for own, value in zip(axes, member["positions"], strict=True):
        if isinstance(value, int):
            place: Any = _number(value, 1 << 63)
            lengths: tuple[int, ...] = ()
        elif isinstance(value, list):
            start, count, step = value
            if not all(type(one) is int for one in value) or not step:
                raise MetadataError(f"positions are {value!r}; expected a start, a count and a step")
            place = range(start, start + step * _number(count, 1 << 63), step)
            lengths = (count,)
        else:
            place = _parse_items(value).astype(np.int64)
            lengths = place.shape
        if tuple(shape[axis] for axis in own) != lengths or len({*own}) != len(own):
            raise MetadataError(f"positions of lengths {lengths} along axes {list(own)} of {shape}")
        places.append(place)
    return IndexTransform(shape, axes, tuple(places))
