"""Views as JSON documents: the steps of a tree, each after its inputs; no code, and no items but small ones.

Stored arrays are in a document by their addresses; those below the document's directory are relative to it.
It leads to no others but those below the places that the storage option `allow` names, as for references.

Example: {"zstore_view": 1, "transforms": [], "steps": [
    {"step": "array", "url": "a.zarr", "path": "", "shape": [4], "dtype": "<i2", "chunks": [2]},
    {"step": "call", "of": [0], "function": "add", "arguments": [{"input": 0}, 1]}]}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import numpy as np

from zstore.base.once import once
from zstore.errors import MetadataError, NotFoundError, StoreError, UnsupportedError, ZstoreError
from zstore.extensions.registry import makers
from zstore.indexing.transform import IndexTransform
from zstore.jobs.chunks import SourceStore, source_of
from zstore.jobs.source import Source
from zstore.nodes.array import Array
from zstore.nodes.open import open_array
from zstore.storage.base import Store, join_key, join_url
from zstore.storage.kinds import REFERENCES, VIEW, kind_by_name
from zstore.storage.references import absolute_address, is_below
from zstore.storage.url import file_address, open_store
from zstore.views.flat import hash_items
from zstore.views.functions import ACROSS, BY_PLACE, Across, Call, Cast, Input, Unpack
from zstore.views.items import (
    Json,
    parse_dtype,
    parse_items,
    parse_lengths,
    parse_number,
    render_dtype,
    render_items,
)
from zstore.views.made import MadeBy, MadeSource, Remade, origin_of
from zstore.views.steps import (
    ArrayAddress,
    BoxedItems,
    Computation,
    Concatenation,
    LaterSteps,
    MemoryItems,
    Overlay,
    Selection,
    StoredItems,
    ViewStep,
    postorder,
    shapes_of,
    step_of,
)
from zstore.views.tables import Numbers, Tables, render_tables

VERSION = 1
# Documents of more steps have them as tables, and each step is made, and looked at, when it is first needed.
TABLE_COUNT = 1000
# The steps whose inputs are made later, of which there may be many.
JOINS = ("concat", "overlay")


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
    places = [os.fspath(one) for one in ([allowed] if isinstance(allowed, str | os.PathLike) else allowed)]
    # Of a document in a directory, options are those of the arrays elsewhere that it may lead to.
    is_near = absolute_address(os.fspath(target)).startswith("file://")
    are_of_others = is_near and any("://" in absolute_address(one).removeprefix("file://") for one in places)
    store, name = _beside(target, None if are_of_others else given or None, read_only=True)
    where = join_url(store.url, name)
    data = store.get(name)
    if data is None:
        raise NotFoundError("no view there; expected a JSON document", path=where)
    try:
        addresses = Addresses(_folder(store), places, given)
        return parse(json.loads(bytes(data)), addresses, f"{where}#{hashlib.sha256(data).hexdigest()}")
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
    return _full(store.url).rstrip("/")


def _full(address: str) -> str:
    """An address with its protocol; a path on this machine is absolute, and no character of it is escaped."""
    if address.startswith("file://"):
        address = os.fsdecode(unquote_to_bytes(address.removeprefix("file://")))
    return absolute_address(address)


class Addresses:
    """The arrays that a document may lead to: those below its folder, and below places that are allowed."""

    def __init__(self, folder: str, allowed: Sequence[str], options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._allowed = allowed
        self._places = {folder, *(_full(place).rstrip("/") for place in allowed)}
        self._options = options

    def settle(self, url: str) -> str:
        """The address for opening an array, which may be relative to the document.

        Raises
            StoreError: it is not allowed.
        """
        is_whole = "://" in url or url.startswith("/")
        full = _full(url) if is_whole else absolute_address(f"{self._folder}/{url}")
        # A URL in a URL, or an adapter, would lead to another place than it begins with.
        is_plain = full.count("://") == 1 and "::" not in full and "|" not in full
        if full.startswith("file://"):
            is_plain &= ".." not in unquote(full).split("/")
        else:
            is_plain &= unquote(full) == full
        if not is_plain or not is_below(full, self._places):
            raise StoreError(
                f"it leads to {url!r}, out of the place of its document; expected the storage option 'allow' "
                "to name a place above it"
            )
        return full.removeprefix("file://")

    def options(self, url: str) -> Mapping[str, Any] | None:
        """The storage options for an address."""
        if "://" not in url:
            # Of files, those that lead on to others.
            is_linking = self._allowed and (kind_by_name(url) in (REFERENCES, VIEW) or Path(url).is_dir())
            return {"allow": self._allowed} if is_linking else None
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
    said = {"steps": steps} if len(steps) <= TABLE_COUNT else render_tables(steps)
    return {"zstore_view": VERSION, "transforms": rendered, **said}


def _with_inputs(root: ViewStep, seen: dict[int, ViewStep]) -> Iterator[tuple[ViewStep, Sequence[ViewStep]]]:
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
    holder, _ = array.store.holder(join_key(array.path, "zarr.json"))
    return not isinstance(holder, SourceStore) or holder.has_address


def _find_address(source: Any) -> tuple[str, str] | None:
    """The URL and the path by which a source opens as an array; None where they open nothing like it."""
    if not isinstance(source, Source):
        return None
    for path in dict.fromkeys((source.name, "")):
        with suppress(ZstoreError, OSError, ValueError):  # a URL may mean nothing to anybody
            found = source_of(open_array(source.url, path or None, "r"))
            marks = ((type(one), one.shape, one.dtype, _full(one.url)) for one in (found, source))
            if next(marks) == next(marks):
                return source.url, path
    return None


def _render_source(step: ViewStep, folder: str) -> Json:
    if isinstance(step, MemoryItems):
        return {"step": "items", **render_items(step.items)}
    if isinstance(step, BoxedItems) and isinstance(step.source, MadeSource):
        making = step.source.making()
        return {
            "step": "made",
            "by": making.by,
            "shape": list(step.shape),
            "dtype": render_dtype(step.dtype),
            "chunks": list(step.source.grid.chunk_shape),
            "with": {name: _render_value(value) for name, value in making.options.items()},
            **({} if making.url is None else {"url": _relative(making.url, folder)}),
        }
    array: Any = step.array if isinstance(step, StoredItems) else None
    if isinstance(array, Array) and (array.store.in_memory or not _has_address(array)):
        address = None if array.store.in_memory else _find_address(source_of(array))
        if address is None:
            raise UnsupportedError(
                "a view of an array in memory has no document; expected arrays with addresses",
                path=array.store.url,
            )
    elif array is not None:
        address = array.store.url if isinstance(array, Array) else array.url, array.path
    else:
        address = _find_address(getattr(step, "source", None))
        if address is None:
            raise UnsupportedError(
                f"a view of {_name(step)} has no document; expected stored arrays, which have addresses, or "
                "a source whose URL opens it"
            )
    url, path = address
    grid = step.source.grid if isinstance(step, BoxedItems) else None
    return {
        "step": "array",
        "url": _relative(url, folder),
        "path": path,
        "shape": list(step.shape),
        "dtype": render_dtype(step.dtype),
        "chunks": list(array.chunks if grid is None else grid.chunk_shape),
    }


def _relative(url: str, folder: str) -> str:
    """An address as a document in a folder has it."""
    full = _full(file_address(url) or url)
    if "::" in full or "|" in full:
        raise UnsupportedError("no document leads to an address with '::' or '|'", path=url)
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
            "nodata": [None if one is None else render_items(np.asarray(one)) for one in step.nodata],
            "fill_value": render_items(np.asarray(step.fill_value)),
        }
    assert isinstance(step, Computation)
    function = step.function
    if isinstance(function, Across):
        return {"step": "across", "function": function.name}
    if isinstance(function, Cast):
        return {"step": "astype", "dtype": render_dtype(step.dtype)}
    if isinstance(function, Unpack):
        return {
            "step": "unpack",
            "scale": function.scale,
            "offset": function.offset,
            "nodata": [_render_constant(one) for one in function.nodata],
            "meant": None if function.meant is None else render_dtype(function.meant),
            "dtype": render_dtype(step.dtype),
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


def _render_constant(value: Any) -> Any:
    """A constant of a function: numbers of Python's as JSON has them, all others as items."""
    if value is None or type(value) in (bool, str, int):
        return value
    if type(value) is float:
        return value if np.isfinite(value) else {"float": repr(value)}
    if type(value) is complex:
        return {"complex": [repr(value.real), repr(value.imag)]}
    return render_items(np.asarray(value))


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
        return {"dtype": render_dtype(np.dtype(value))}
    return _render_constant(value)


def _render_transform(transform: IndexTransform) -> Json:
    places: list[Any] = []
    for place in transform.positions:
        if isinstance(place, range):
            places.append([place.start, len(place), place.step])
        else:
            places.append(place if isinstance(place, int) else render_items(place))
    return {
        "shape": list(transform.shape),
        "axes": [list(axes) for axes in transform.axes],
        "positions": places,
    }


# Read


def parse(document: Any, addresses: Addresses, name: str) -> ViewStep:
    """The tree of a document.

    name  equal for equal documents of one place

    Raises
        MetadataError: it is no document of a view, or its steps do not fit together.
        StoreError: it leads to a place that is not allowed.
    """
    if not isinstance(document, dict) or "zstore_view" not in document:
        raise MetadataError("no view; expected an object with 'zstore_view'")
    if document["zstore_view"] != VERSION:
        raise MetadataError(f"zstore_view is {document['zstore_view']!r}; expected {VERSION}")
    members, rendered = document.get("steps"), document.get("transforms", [])
    try:
        if "tables" in document:
            members = Tables(document)
        if not isinstance(members, list | Tables) or not len(members) or not isinstance(rendered, list):
            raise MetadataError("steps are no list of one or more, or transforms are no list")
        steps = Steps(members, [*map(_parse_transform, rendered)], addresses, name)
    except DAMAGE as error:
        if isinstance(error, ZstoreError):
            raise
        raise MetadataError(f"the view is damaged: {type(error).__name__}: {error}") from error
    if not steps.are_later:
        for number in range(len(members)):
            steps.make(number)
    return steps.make(len(members) - 1)


class Steps:
    """The steps of a document, each made when it is first asked for.

    members  their objects in JSON
    name     equal for the steps of equal documents of one place
    """

    def __init__(
        self, members: list[Any] | Tables, transforms: list[IndexTransform], addresses: Addresses, name: str
    ) -> None:
        self._members, self._transforms, self._addresses = members, transforms, addresses
        self.name = name
        self._made, self._shared = dict[int, ViewStep](), dict[Any, Any]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}

    @property
    def are_later(self) -> bool:
        """Whether inputs of joins are made when they are first needed, as in documents of very many steps."""
        return len(self._members) > TABLE_COUNT

    def make(self, number: int) -> ViewStep:
        """The step of a number, after those that it cannot be made without: no recursion.

        Raises
            MetadataError: it is damaged.
            StoreError: it leads to a place that is not allowed.
        """
        wanted, left = dict[int, tuple[Any, list[int]]](), [number]
        while left:
            one = left.pop()
            if one in self._made or one in wanted:
                continue
            try:
                member = self._members[one]
                inputs = [parse_number(at, one) for at in member.get("of", ())]
                wanted[one] = member, inputs
                left += inputs[:1] if self._joins(member) else inputs
            except DAMAGE as error:
                raise self._damage(error, one) from error
        for one, (member, inputs) in sorted(wanted.items(), key=itemgetter(0)):
            try:
                made = self._parse(member, inputs)
            except DAMAGE as error:
                raise self._damage(error, one) from error
            self._made.setdefault(one, made)
        return self._made[number]

    def _damage(self, error: Exception, number: int) -> ZstoreError:
        """The error of a step that is damaged."""
        if not isinstance(error, ZstoreError):
            said = f"step {number} of the view is damaged: {type(error).__name__}: {error}"
            error = MetadataError(said)
        return error.locate(path=self.name.rpartition("#")[0])

    def _joins(self, member: Any) -> bool:
        """Whether the inputs of a step are made later, but for the first."""
        return self.are_later and member["step"] in JOINS

    def _parse(self, member: Any, numbers: list[int]) -> ViewStep:
        if member["step"] == "array":
            return _parse_array(member, self._addresses, self._shared)
        if member["step"] == "items":
            return MemoryItems(parse_items(member))
        if self._joins(member) and numbers:
            return _parse_join(member, _Inputs(self, np.array(numbers)))
        inputs = [self._made[number] for number in numbers]
        if member["step"] == "made":
            return _parse_made(member, inputs, self._addresses)
        return _parse_step(member, inputs, self._transforms)

    def shapes(self, numbers: Numbers) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The shapes of steps of equally many axes; only steps whose members lack one are made for it."""
        kinds, shapes = self._many(numbers, "step"), self._many(numbers, "shape")
        for at, transform in enumerate(self._many(numbers, "transform")):
            if kinds[at] == "select":
                shapes[at] = self._transforms[parse_number(transform, len(self._transforms))].shape
            elif shapes[at] is None:
                shapes[at] = self.make(int(numbers[at])).shape
        return np.array(shapes, np.int64)

    def _many(self, numbers: Numbers, name: str) -> list[Any]:
        members = self._members
        if isinstance(members, Tables):
            return members.many(numbers, name)
        return [members[number].get(name) for number in numbers.tolist()]


class _Inputs(LaterSteps):
    """Inputs of one data type that a document has, made when they are asked for."""

    def __init__(self, steps: Steps, numbers: Numbers) -> None:
        self._steps, self._numbers = steps, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        step, first = (self._steps.make(int(self._numbers[number])) for number in (at, 0))
        _check_types([first, step])
        return step

    @once
    def shapes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return self._steps.shapes(self._numbers)

    def describe(self) -> list[Any]:
        return [self._steps.name, hash_items(self._numbers)]


# What parsing raises where members are missing, or not of the kind that they should be.
DAMAGE = (AttributeError, LookupError, TypeError, ValueError, OverflowError)


def _check_types(inputs: Sequence[ViewStep]) -> None:
    """Refuse inputs of several data types, in whatever order of bytes.

    Raises
        MetadataError: they have several.
    """
    kinds = {step.dtype.newbyteorder("=") for step in inputs}
    if len(kinds) != 1:
        raise MetadataError(f"inputs have {len(kinds)} dtypes; expected one")


def _parse_array(member: Json, addresses: Addresses, shared: dict[Any, Any]) -> StoredItems:
    """A stored array; equal shapes and dtypes are one object, for documents of many arrays."""
    name = (member["dtype"], *member["shape"], *member["chunks"])
    if name not in shared:
        shape, chunks = parse_lengths(member["shape"]), parse_lengths(member["chunks"])
        if len(shape) != len(chunks) or 0 in chunks:
            raise MetadataError(f"chunks are {chunks}; expected positive lengths as in shape {shape}")
        shared[name] = shape, parse_dtype(member["dtype"]), chunks
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
        parse_lengths(member["shape"]),
        parse_lengths(member["chunks"]),
    )
    if by not in makers.names() or not isinstance(url, str | None):
        known = ", ".join(makers.names())
        raise MetadataError(f"made by {by!r} of {url!r}; expected one of {known}")
    if len(shape) != len(chunks) or 0 in chunks:
        raise MetadataError(f"chunks are {chunks}; expected positive lengths as in shape {shape}")
    options = {str(name): _parse_value(value) for name, value in member["with"].items()}
    full = None if url is None else addresses.settle(url)
    making = MadeBy(by, options, tuple(inputs), full, None if full is None else addresses.options(full))
    return BoxedItems(Remade(making, shape, parse_dtype(member["dtype"]), chunks))


def _parse_step(member: Json, inputs: list[ViewStep], transforms: list[IndexTransform]) -> ViewStep:
    kind = member["step"]
    if kind == "call":
        return _parse_call(member, inputs)
    if kind == "across":
        return _parse_across(member, inputs)
    if kind in JOINS:
        _check_types(inputs)
        return _parse_join(member, tuple(inputs))
    [step] = inputs
    if kind == "select":
        transform = transforms[parse_number(member["transform"], len(transforms))]
        for dimension, length in enumerate(step.shape):
            low, high = transform.bounds(dimension)
            if not 0 <= low <= high <= length:
                raise MetadataError(f"positions from {low} to {high} are out of the length {length}")
        if len(transform.axes) != len(step.shape):
            raise MetadataError(
                f"a transform of {len(transform.axes)} dimensions; expected {len(step.shape)}"
            )
        return Selection((step,), transform)
    dtype = parse_dtype(member["dtype"])
    if kind == "astype":
        np.empty(0, step.dtype).astype(dtype)
        return Computation((step,), Cast(), dtype)
    if kind != "unpack":
        raise MetadataError(f"step {kind!r} is unknown")
    if dtype.kind not in "fc" or step.dtype.kind not in "iufb":
        raise MetadataError(
            f"{step.dtype} is not unpacked to {dtype}; expected numbers, and a dtype with NaN"
        )
    meant = None if member["meant"] is None else parse_dtype(member["meant"])
    if meant is not None and (meant.itemsize != step.dtype.itemsize or meant.kind not in "iu"):
        raise MetadataError(f"{step.dtype} is not read as {meant}")
    scale, offset = (None if member[name] is None else float(member[name]) for name in ("scale", "offset"))
    return Computation(
        (step,), Unpack(scale, offset, tuple(map(_parse_constant, member["nodata"])), meant), dtype
    )


def _parse_join(member: Json, inputs: Sequence[ViewStep]) -> ViewStep:
    return _parse_concat(member, inputs) if member["step"] == "concat" else _parse_overlay(member, inputs)


def _parse_concat(member: Json, inputs: Sequence[ViewStep]) -> Concatenation:
    shapes = shapes_of(inputs)
    axis = parse_number(member["axis"], shapes.shape[1])
    frames = np.delete(shapes, axis, 1)
    if (frames != frames[0]).any():
        raise MetadataError(f"inputs differ in shape along another axis than {axis}")
    return Concatenation(inputs, axis)


def _parse_overlay(member: Json, inputs: Sequence[ViewStep]) -> Overlay:
    shape, shapes = parse_lengths(member["shape"]), shapes_of(inputs)
    if shapes.shape[1:] != (len(shape),):
        raise MetadataError(f"inputs have not the {len(shape)} axes of the overlay")
    starts = np.array([parse_lengths(row) for row in member["starts"]], np.int64).reshape(shapes.shape)
    if (starts + shapes > np.array(shape, np.int64)).any() or len(member["nodata"]) != len(inputs):
        raise MetadataError(f"inputs reach out of the shape {shape}, or nodata is not for each")
    nodata = tuple(None if one is None else parse_items(one)[()] for one in member["nodata"])
    fill = np.zeros((), inputs[0].dtype)
    fill[...] = parse_items(member["fill_value"])
    return Overlay(inputs, starts, shape, nodata, fill[()])


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
        parse_number(output, function.nout if isinstance(function, np.ufunc) else 0)
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
        return Input(parse_number(value["input"], count))
    return _parse_constant(value)


def _parse_option(value: Any) -> Any:
    is_dtype = isinstance(value, dict) and set(value) == {"dtype"}
    return parse_dtype(value["dtype"]) if is_dtype else _parse_constant(value)


def _parse_constant(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if "float" in value:
        return float(value["float"])
    if "complex" in value:
        real, imaginary = map(float, value["complex"])
        return complex(real, imaginary)
    items = parse_items(value)
    return items if items.ndim else items[()]


def _parse_value(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"object"}:
        return {name: _parse_value(one) for name, one in value["object"].items()}
    return [*map(_parse_value, value)] if isinstance(value, list) else _parse_constant(value)


def _parse_transform(member: Json) -> IndexTransform:
    shape = parse_lengths(member["shape"])
    axes = tuple(tuple(parse_number(axis, len(shape)) for axis in own) for own in member["axes"])
    places: list[int | range | Any] = []
    for own, value in zip(axes, member["positions"], strict=True):
        if isinstance(value, int):
            place: Any = parse_number(value, 1 << 63)
            lengths: tuple[int, ...] = ()
        elif isinstance(value, list):
            start, count, step = value
            if not all(type(one) is int for one in value) or not step:
                raise MetadataError(f"positions are {value!r}; expected a start, a count and a step")
            place = range(start, start + step * parse_number(count, 1 << 63), step)
            lengths = (count,)
        else:
            place = parse_items(value).astype(np.int64)
            lengths = place.shape
        if tuple(shape[axis] for axis in own) != lengths or len({*own}) != len(own):
            raise MetadataError(f"positions of lengths {lengths} along axes {list(own)} of {shape}")
        places.append(place)
    return IndexTransform(shape, axes, tuple(places))
