"""Names that users of zarr-python type on arrays and groups: each a thin door to what these have.

`docs/from-zarr-python.md` has the table of all names, held against the installed zarr-python by a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from zstore.base.misses import missing_name
from zstore.codecs.base import ArrayCodec, BytesCodec
from zstore.errors import MetadataError, UnknownExtensionError, without_secrets
from zstore.extensions.registry import codecs as registry
from zstore.model.array import ArrayModel, CodecModel
from zstore.model.group import GroupModel
from zstore.nodes.advice import ARRAY_ADVICE, GROUP_ADVICE
from zstore.nodes.node import Node

Items = npt.NDArray[Any]
Shape = tuple[int, ...]


def innermost_codecs(model: ArrayModel) -> tuple[CodecModel, ...]:
    """The codecs that encode one chunk: of shards, those of their inner chunks."""
    codecs = model.codecs
    while shards := [codec for codec in codecs if codec.name == "sharding_indexed"]:
        inner = shards[0].configuration.get("codecs", ())
        codecs = tuple(CodecModel(codec["name"], codec.get("configuration") or {}) for codec in inner)
    return codecs


def _is_kind(codec: CodecModel, kind: type, role: str) -> bool:
    if codec.role:
        return codec.role == role
    try:
        return issubclass(registry.resolve(codec.name), kind)
    except UnknownExtensionError:
        return False


def _with_fields(selection: Any, fields: Any) -> Any:
    if fields is None:
        return selection
    names = [fields] if isinstance(fields, str) else [list(fields)]
    return (*(selection if isinstance(selection, tuple) else (selection,)), *names)


class ArrayNames(Node[ArrayModel]):
    """Names of zarr-python's arrays; `self` is an `Array`."""

    if not TYPE_CHECKING:  # type checkers are to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise missing_name("Array", name, ARRAY_ADVICE.get(name))

    @property
    def metadata(self) -> ArrayModel:
        """What its metadata says: `model`."""
        return self._model

    @property
    def filters(self) -> tuple[CodecModel, ...]:
        """The codecs that change items before they become bytes, in their order; those of inner chunks."""
        return tuple(c for c in innermost_codecs(self._model) if _is_kind(c, ArrayCodec, "filter"))

    @property
    def serializer(self) -> CodecModel | None:
        """The codec that makes bytes of items; None in Zarr v1 and v2, which have no name for it."""
        if self.zarr_format != 3:
            return None
        others = (*self.filters, *self.compressors)
        return next((codec for codec in innermost_codecs(self._model) if codec not in others), None)

    @property
    def compressors(self) -> tuple[CodecModel, ...]:
        """The codecs that make fewer bytes of bytes, in their order; those of inner chunks."""
        return tuple(c for c in innermost_codecs(self._model) if _is_kind(c, BytesCodec, "compressor"))

    @property
    def order(self) -> Literal["C", "F"]:
        """Whether each chunk's last dimension is stored fastest ("C") or its first ("F")."""
        first = next(iter(innermost_codecs(self._model)), None)
        is_turned = first is not None and first.name == "transpose"
        turned = list(range(len(self._model.shape) - 1, -1, -1))
        return "F" if is_turned and first and list(first.configuration.get("order", ())) == turned else "C"

    @property
    def cdata_shape(self: Any) -> Shape:
        """How many chunks there are along each dimension (inner chunks, where there are shards)."""
        return tuple(map(len, self.read_chunk_sizes))

    @property
    def nchunks(self: Any) -> int:
        """How many chunks there are (inner chunks, where there are shards)."""
        return prod(self.cdata_shape)

    @property
    def nchunks_initialized(self: Any) -> int:
        """How many chunks are stored; of a stored shard, all of its inner chunks count.

        Lists what is stored.
        """
        counts = self._model.grid.count(self.shape)
        cells = set(map(self._cell, self._store.list(self._path))) - {None}
        inside = sum(all(place < count for place, count in zip(cell, counts, strict=True)) for cell in cells)
        inner: int = prod(s // c for s, c in zip(self.shards or self.chunks, self.chunks, strict=True))
        return inside * inner

    def _cell(self, key: str) -> Shape | None:
        below = key[len(self._path) + 1 :] if self._path else key
        return self._model.keys.cell(below, len(self._model.shape))

    def nbytes_stored(self) -> int:
        """The bytes that it takes in its store, its metadata included. Lists what is stored."""
        return sum(self._store.size(key) or 0 for key in self._store.list(self._path))

    def info_complete(self: Any) -> str:
        """What `info` says, and what is stored. Lists what is stored."""
        stored = self.nbytes_stored()
        ratio = f"{self.nbytes / stored:.1f}" if stored else "none"
        more = {
            "Bytes stored": f"{stored:,}",
            "Storage ratio": ratio,
            "Chunks stored": f"{self.nchunks_initialized} of {self.nchunks}",
        }
        return "\n".join([self.info, *(f"{label:<13}: {value}" for label, value in more.items())])

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """Set several attributes with one write; gives the array."""
        self.attrs.update(attributes)
        return self

    # Selections by name. By `prototype` zarr-python takes other memory than numpy's, which is refused.

    def get_basic_selection(
        self: Any,
        selection: Any = ...,
        *,
        out: Items | None = None,
        fields: Any = None,
        prototype: None = None,
    ) -> Any:
        """What `array[selection]` gives, into `out` where that is given."""
        _check_prototype(prototype)
        wanted = _with_fields(selection, fields)
        return self[wanted] if out is None else self.read(wanted, out=out)

    def get_orthogonal_selection(
        self: Any, selection: Any, *, out: Items | None = None, fields: Any = None, prototype: None = None
    ) -> Any:
        """What `array.oindex[selection]` gives, into `out` where that is given."""
        _check_prototype(prototype)
        return self.oindex.read(_with_fields(selection, fields), out=out)

    def get_coordinate_selection(
        self: Any, selection: Any, *, out: Items | None = None, fields: Any = None, prototype: None = None
    ) -> Any:
        """What `array.vindex[selection]` gives, into `out` where that is given."""
        _check_prototype(prototype)
        return self.vindex.read(_with_fields(selection, fields), out=out)

    # A mask is a selection of points.
    get_mask_selection = get_coordinate_selection

    def get_block_selection(
        self: Any, selection: Any, *, out: Items | None = None, fields: Any = None, prototype: None = None
    ) -> Any:
        """What `array.blocks[selection]` gives, into `out` where that is given."""
        _check_prototype(prototype)
        return self.blocks.read(_with_fields(selection, fields), out=out)

    def set_basic_selection(
        self: Any, selection: Any, value: Any, *, fields: Any = None, prototype: None = None
    ) -> None:
        """Do what `array[selection] = value` does."""
        _check_prototype(prototype)
        self[_with_fields(selection, fields)] = value

    def set_orthogonal_selection(
        self: Any, selection: Any, value: Any, *, fields: Any = None, prototype: None = None
    ) -> None:
        """Do what `array.oindex[selection] = value` does."""
        _check_prototype(prototype)
        self.oindex[_with_fields(selection, fields)] = value

    def set_coordinate_selection(
        self: Any, selection: Any, value: Any, *, fields: Any = None, prototype: None = None
    ) -> None:
        """Do what `array.vindex[selection] = value` does."""
        _check_prototype(prototype)
        self.vindex[_with_fields(selection, fields)] = value

    set_mask_selection = set_coordinate_selection

    def set_block_selection(
        self: Any, selection: Any, value: Any, *, fields: Any = None, prototype: None = None
    ) -> None:
        """Do what `array.blocks[selection] = value` does."""
        _check_prototype(prototype)
        self.blocks[_with_fields(selection, fields)] = value


class GroupNames(Node[GroupModel]):
    """Names of zarr-python's groups; `self` is a `Group`."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers are to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise missing_name("Group", name, GROUP_ADVICE.get(name))

    def _ipython_key_completions_(self: Any) -> list[str]:
        return list(self.keys())

    def __setitem__(self: Any, name: str, value: Any) -> None:
        """Make an array of these items, in place of an array of that name.

        Raises
            MetadataError: there is a group of that name.
        """
        # Of a group, which may hold a great deal, `del group[name]` says that it may go.
        if isinstance(self.get(name), GroupNames):
            message = f"{name!r} is a group; expected an array, or no node (`del group[{name!r}]` first)"
            raise MetadataError(message, path=self._where())
        self.create_array(name, data=value, overwrite=True)

    @property
    def metadata(self) -> GroupModel:
        """What its metadata says: `model`."""
        return self._model

    @property
    def info(self) -> str:
        """What it is, line by line."""
        lines = {
            "Name": self.name,
            "Zarr format": self.zarr_format,
            "Store": without_secrets(self._store.url),
            "Read-only": self.read_only,
        }
        return "\n".join(f"{label:<11} : {value}" for label, value in lines.items())

    def info_complete(self: Any) -> str:
        """What `info` says, and how many nodes are below."""
        members = [member for _, member in self.members(None)]
        count = sum(hasattr(member, "shape") for member in members)
        return f"{self.info}\nArrays      : {count}\nGroups      : {len(members) - count}"

    def nmembers(self: Any, max_depth: int | None = 0) -> int:
        """How many members there are, down to `max_depth` levels further; None for all."""
        return len(self.members(max_depth))

    def array_values(self: Any) -> Iterator[Any]:
        """The group's own arrays."""
        return (array for _, array in self.arrays())

    def group_values(self: Any) -> Iterator[Any]:
        """The group's own groups."""
        return (group for _, group in self.groups())

    def require_groups(self: Any, *names: str) -> tuple[Any, ...]:
        """The groups of these names, made where there are none."""
        return tuple(self.require_group(name) for name in names)

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """Set several attributes with one write; gives the group."""
        self.attrs.update(attributes)
        return self

    def empty(self: Any, *, name: str, shape: Any, **options: Any) -> Any:
        """A new array that nothing was written to, of float64 where no dtype is said."""
        return self.create_array(name, shape=shape, **{"dtype": "f8", **options})

    zeros = empty

    def ones(self: Any, *, name: str, shape: Any, **options: Any) -> Any:
        """A new array whose items are 1 until they are written."""
        return self.full(name=name, shape=shape, fill_value=1, **options)

    def full(self: Any, *, name: str, shape: Any, fill_value: Any, **options: Any) -> Any:
        """A new array whose items are `fill_value` until they are written; float64 where no dtype is said."""
        return self.create_array(name, shape=shape, fill_value=fill_value, **{"dtype": "f8", **options})

    def empty_like(self: Any, *, name: str, data: Any, **options: Any) -> Any:
        """A new array of the shape, dtype, chunks and codecs of `data`, that nothing was written to."""
        return self.create_array(name, **{**like(data), **options})

    zeros_like = empty_like

    def ones_like(self: Any, *, name: str, data: Any, **options: Any) -> Any:
        """As `empty_like`; items are 1 until they are written."""
        return self.create_array(name, **{**like(data), **options, "fill_value": 1})

    def full_like(self: Any, *, name: str, data: Any, fill_value: Any, **options: Any) -> Any:
        """As `empty_like`; items are `fill_value` until they are written."""
        return self.create_array(name, **{**like(data), **options, "fill_value": fill_value})


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


def _check_prototype(prototype: object) -> None:
    if prototype is not None:
        raise TypeError(f"prototype is {prototype!r}; expected None: items come in numpy's arrays")
