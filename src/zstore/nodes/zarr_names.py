"""Methods and properties of arrays and groups under the names of zarr-python's.

`docs/from-zarr-python.md` has the table of all names; a test compares it with the installed zarr-python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from operator import lt
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from zstore.base.once import look_up
from zstore.codecs.base import ArrayCodec, make_codec
from zstore.engine.walk import listed_cell, stored_cells
from zstore.errors import MetadataError, ZstoreError, missing_name, without_secrets
from zstore.model.array import ArrayModel, CodecModel
from zstore.model.grid import RegularGrid
from zstore.model.group import GroupModel
from zstore.nodes.advice import ARRAY_ADVICE, GROUP_ADVICE
from zstore.nodes.node import Model, StoredNode

Items = npt.NDArray[Any]
Shape = tuple[int, ...]
Codecs = tuple[CodecModel, ...]
A = TypeVar("A")

# The attribute of an array by which each kind of selection is read and written.
INDEXERS = {"orthogonal": "oindex", "coordinate": "vindex", "block": "blocks"}


def inner_codecs(codecs: Codecs) -> Codecs:
    """The codecs of the inner chunks, if one of these codecs makes shards; else none."""
    for codec in codecs:
        if codec.name == "sharding_indexed":
            shards: Any = make_codec(codec)
            return shards.codecs  # type: ignore[no-any-return]
    return ()


def innermost_codecs(model: ArrayModel) -> Codecs:
    """The codecs that encode one chunk; in shards, those of the innermost inner chunks."""
    codecs = model.codecs
    while inner := inner_codecs(codecs):
        codecs = inner
    return codecs


def list_codecs(codecs: Codecs) -> list[str]:
    """The names of codecs in the order of encoding, those in shards after "sharding_indexed"."""
    names = list[str]()
    for codec in codecs:
        names += [codec.name.removeprefix("numcodecs."), *list_codecs(inner_codecs((codec,)))]
    return names


def split_codecs(codecs: Codecs) -> tuple[Codecs, CodecModel | None, Codecs]:
    """(filters, serializer, compressors) of a chain; in Zarr v2, the filters of bytes are filters, too."""
    place = next((n for n, codec in enumerate(codecs) if not (codec.role or _is_filter(codec))), len(codecs))
    roles = [codec.role or ("filter" if n < place else "compressor") for n, codec in enumerate(codecs)]
    filters, compressors = (
        tuple(codec for n, codec in enumerate(codecs) if roles[n] == role and n != place)
        for role in ("filter", "compressor")
    )
    return filters, codecs[place] if place < len(codecs) else None, compressors


def _is_filter(codec: CodecModel) -> bool:
    if codec.name == "bytes":  # of most arrays
        return False
    try:
        return isinstance(make_codec(codec), ArrayCodec)
    except ZstoreError:
        return False


def _wanted(selection: Any, fields: Any, prototype: object) -> Any:
    """The selection with the names of fields in it; a `prototype`, for memory of other kinds, is refused."""
    if prototype is not None:
        raise TypeError(f"prototype is {prototype!r}; expected None: items come in numpy's arrays")
    if fields is None:
        return selection
    names = [fields] if isinstance(fields, str) else [list(fields)]
    return (*(selection if isinstance(selection, tuple) else (selection,)), *names)


class NodeNames(StoredNode[Model]):
    """The part of arrays and groups that has zarr-python's names."""

    __slots__ = ()

    @property
    def metadata(self) -> Model:
        """The parsed metadata: another name of `model`."""
        return self._model

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """Set several attributes with one write; returns the node."""
        self.attrs.update(attributes)
        return self


class SelectionNames:
    """The part of arrays that has zarr-python's names of selections; `_get` and `_set` carry them out."""

    _get: Any
    _set: Any

    def get_basic_selection(
        self, selection: Any = ..., *, out: Items | None = None, fields: Any = None, prototype: Any = None
    ) -> Any:
        """Read `array[selection]`, into `out` if it is not None."""
        return self._get("basic", selection, out, fields, prototype)

    def get_orthogonal_selection(
        self, selection: Any, *, out: Items | None = None, fields: Any = None, prototype: Any = None
    ) -> Any:
        """Read `array.oindex[selection]`, into `out` if it is not None."""
        return self._get("orthogonal", selection, out, fields, prototype)

    def get_coordinate_selection(
        self, selection: Any, *, out: Items | None = None, fields: Any = None, prototype: Any = None
    ) -> Any:
        """Read `array.vindex[selection]`, into `out` if it is not None."""
        return self._get("coordinate", selection, out, fields, prototype)

    def get_mask_selection(
        self, mask: Any, *, out: Items | None = None, fields: Any = None, prototype: Any = None
    ) -> Any:
        """Read where a mask is true, into `out` if it is not None."""
        return self._get("mask", mask, out, fields, prototype)

    def get_block_selection(
        self, selection: Any, *, out: Items | None = None, fields: Any = None, prototype: Any = None
    ) -> Any:
        """Read `array.blocks[selection]`, into `out` if it is not None."""
        return self._get("block", selection, out, fields, prototype)

    def set_basic_selection(
        self, selection: Any, value: Any, *, fields: Any = None, prototype: Any = None
    ) -> None:
        """Write `array[selection] = value`."""
        self._set("basic", selection, value, fields, prototype)

    def set_orthogonal_selection(
        self, selection: Any, value: Any, *, fields: Any = None, prototype: Any = None
    ) -> None:
        """Write `array.oindex[selection] = value`."""
        self._set("orthogonal", selection, value, fields, prototype)

    def set_coordinate_selection(
        self, selection: Any, value: Any, *, fields: Any = None, prototype: Any = None
    ) -> None:
        """Write `array.vindex[selection] = value`."""
        self._set("coordinate", selection, value, fields, prototype)

    def set_mask_selection(self, mask: Any, value: Any, *, fields: Any = None, prototype: Any = None) -> None:
        """Write where a mask is true."""
        self._set("mask", mask, value, fields, prototype)

    def set_block_selection(
        self, selection: Any, value: Any, *, fields: Any = None, prototype: Any = None
    ) -> None:
        """Write `array.blocks[selection] = value`."""
        self._set("block", selection, value, fields, prototype)


class ArrayNames(NodeNames[ArrayModel], SelectionNames):
    """The part of `Array` that has zarr-python's names."""

    if not TYPE_CHECKING:  # type checkers are to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise missing_name("Array", name, look_up(ARRAY_ADVICE, name))

    @property
    def filters(self) -> Codecs:
        """The array-to-array codecs of a chunk (in shards, of an inner chunk), in encoding order."""
        return split_codecs(innermost_codecs(self._model))[0]

    @property
    def serializer(self) -> CodecModel | None:
        """The array-to-bytes codec of a chunk; None in Zarr v1 and v2, which have no name for it."""
        return split_codecs(innermost_codecs(self._model))[1] if self.zarr_format == 3 else None

    @property
    def compressors(self) -> Codecs:
        """The bytes-to-bytes codecs of a chunk (in shards, of an inner chunk), in encoding order."""
        return split_codecs(innermost_codecs(self._model))[2]

    @property
    def order(self) -> Literal["C", "F"]:
        """The order of items in a chunk: "C" if the last dimension varies fastest, "F" if the first does."""
        first = next(iter(innermost_codecs(self._model)), None)
        return "F" if first is not None and first.is_reversal(self._model.ndim) else "C"

    @property
    def cdata_shape(self: Any) -> Shape:
        """The number of chunks (in shards, inner chunks) along each dimension."""
        grid = self._model.grid if self.shards is None else RegularGrid(self.chunks)
        counts: Shape = grid.count(self.shape)
        return counts

    @property
    def nchunks(self: Any) -> int:
        """The number of chunks (in shards, inner chunks)."""
        return prod(self.cdata_shape)

    @property
    def nchunks_initialized(self: Any) -> int:
        """The number of stored chunks, counted by listing; every inner chunk of a stored shard counts."""
        counts = self._model.grid.count(self.shape)
        cells = (cell for _, cell in stored_cells(self._store, self._path, self._model))
        inside = sum(all(map(lt, cell, counts)) for cell in cells)
        inner: int = prod(s // c for s, c in zip(self.shards or self.chunks, self.chunks, strict=True))
        return inside * inner

    def nbytes_stored(self) -> int:
        """The bytes that the array takes in its store, its metadata included; lists its keys."""
        size = 0
        for entry in self._store.entries(self._path):
            listed_cell(self._store, self._path, self._model, entry.key)  # raises where it hides chunks
            # A link that is not followed has a size of 0 in a list, and to ask for it is an error.
            size += entry.size or self._store.size(entry.key) or 0
        return size

    def info_complete(self: Any) -> str:
        """A summary like `info`, with the stored bytes and chunks; lists the array's keys."""
        stored = self.nbytes_stored()
        ratio = f"{self.nbytes / stored:.1f}" if stored else "none"
        more = {
            "Bytes stored": f"{stored:,}",
            "Storage ratio": ratio,
            "Chunks stored": f"{self.nchunks_initialized} of {self.nchunks}",
        }
        return "\n".join([self.info, *(f"{label:<13}: {value}" for label, value in more.items())])

    def _get(self: Any, kind: str, selection: Any, out: Any, fields: Any, prototype: Any) -> Any:
        wanted = _wanted(selection, fields, prototype)
        if kind == "basic":
            return self[wanted] if out is None else self.read(wanted, out=out)
        return getattr(self, INDEXERS[kind]).read(wanted, out=out)

    def _set(self: Any, kind: str, selection: Any, value: Any, fields: Any, prototype: Any) -> None:
        owner = self if kind == "basic" else getattr(self, INDEXERS[kind])
        owner[_wanted(selection, fields, prototype)] = value

    # A mask is a selection of points.
    get_mask_selection = SelectionNames.get_coordinate_selection  # type: ignore[assignment]
    set_mask_selection = SelectionNames.set_coordinate_selection  # type: ignore[assignment]


class MemberNames(Generic[A]):
    """The part of groups that has zarr-python's names and is made of their other methods; `A` is an array."""

    __slots__ = ()

    def _like(self, data: Any) -> dict[str, Any]:
        return like(data)

    def _make(self: Any, name: str, **options: Any) -> A:
        return self.create_array(name, **options)  # type: ignore[no-any-return]

    def nmembers(self: Any, max_depth: int | None = 0) -> int:
        """The number of members, down to `max_depth` levels below the direct ones (None: all)."""
        return len(self.members(max_depth))

    def array_values(self: Any) -> Iterator[A]:
        """The arrays among the direct members."""
        return (array for _, array in self.arrays())

    def group_values(self: Any) -> Iterator[Any]:
        """The groups among the direct members."""
        return (group for _, group in self.groups())

    def require_groups(self: Any, *names: str) -> tuple[Any, ...]:
        """The groups of these names; those that do not exist are created."""
        return tuple(self.require_group(name) for name in names)

    def empty(self, *, name: str, shape: Any, **options: Any) -> A:
        """Create an array without writing any items; of float64 without a dtype."""
        return self._make(name, shape=shape, **{"dtype": "f8", **options})

    zeros = empty

    def ones(self, *, name: str, shape: Any, **options: Any) -> A:
        """Create an array whose items are 1 until they are written; of float64 without a dtype."""
        return self.full(name=name, shape=shape, fill_value=1, **options)

    def full(self, *, name: str, shape: Any, fill_value: Any, **options: Any) -> A:
        """Create an array whose items are `fill_value` until they are written; of float64 without a dtype."""
        return self._make(name, shape=shape, fill_value=fill_value, **{"dtype": "f8", **options})

    def empty_like(self, *, name: str, data: Any, **options: Any) -> A:
        """Create an array of the shape, dtype, chunks and codecs of `data`, without writing any items."""
        return self._make(name, **{**self._like(data), **options})

    zeros_like = empty_like

    def ones_like(self, *, name: str, data: Any, **options: Any) -> A:
        """Create an array like `data`, whose items are 1 until they are written."""
        return self._make(name, **{**self._like(data), **options, "fill_value": 1})

    def full_like(self, *, name: str, data: Any, fill_value: Any, **options: Any) -> A:
        """Create an array like `data`, whose items are `fill_value` until they are written."""
        return self._make(name, **{**self._like(data), **options, "fill_value": fill_value})


class GroupNames(NodeNames[GroupModel], MemberNames[Any]):
    """The part of `Group` that has zarr-python's names."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers are to find names that are not there

        def __getattr__(self, name: str) -> Any:
            advice = look_up(GROUP_ADVICE, name)
            # Of a store that is far, a name is not worth a request.
            if advice is None and name[:1] != "_" and self.store.request_count == 1 and name in self:
                advice = f"group[{name!r}]"
            raise missing_name("Group", name, advice)

    def _ipython_key_completions_(self: Any) -> list[str]:
        return list(self.keys())

    def __setitem__(self: Any, name: str, value: Any) -> None:
        """Create an array with these items; it replaces an array of that name.

        Raises
            MetadataError: there is a group of that name.
        """
        # A group may hold a great deal, so it takes an explicit `del group[name]` to remove one.
        if isinstance(self.get(name), GroupNames):
            message = f"{name!r} is a group; expected an array, or no node (`del group[{name!r}]` first)"
            raise MetadataError(message, path=self._where())
        self.create_array(name, data=value, overwrite=True)

    @property
    def info(self) -> str:
        """A summary of the group, one property per line."""
        lines = {
            "Name": self.name,
            "Zarr format": self.zarr_format,
            "Store": without_secrets(self._store.url),
            "Read-only": self.read_only,
        }
        return "\n".join(f"{label:<11} : {value}" for label, value in lines.items())

    def info_complete(self: Any) -> str:
        """A summary like `info`, with the numbers of arrays and groups below."""
        members = [member for _, member in self.members(None)]
        count = sum(hasattr(member, "shape") for member in members)
        return f"{self.info}\nArrays      : {count}\nGroups      : {len(members) - count}"


def like(data: Any) -> dict[str, Any]:
    """The options of `create_array` that make an array like `data`, without its items."""
    if not isinstance(data, ArrayNames):
        data = np.asarray(data)
        return {"shape": data.shape, "dtype": data.dtype}
    array: Any = data
    model = array.model
    options = {
        "shape": model.shape,
        "dtype": model.data_type,
        "chunks": array.chunks,
        "shards": array.shards,
        "order": array.order,
        "compressors": array.compressors,
        "dimension_names": model.dimension_names,
    }
    filters: Iterable[CodecModel] = array.filters
    if array.order == "F":
        filters = [codec for codec in filters if codec.name != "transpose"]
    return {
        **options,
        "filters": tuple(filters),
        **({"serializer": array.serializer} if array.serializer else {}),
    }
