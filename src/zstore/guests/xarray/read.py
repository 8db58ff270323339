"""Reading for xarray: arrays as lazy variables with their encodings, groups as data stores.

Spec
    xarray, "Zarr Encoding Specification": dimension names, `_ARRAY_DIMENSIONS`, NCZarr's `dimrefs`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from xarray.backends import AbstractDataStore, BackendArray
from xarray.core import indexing

from zstore.base.boxes import whole
from zstore.base.once import ByIdentity, once
from zstore.errors import MetadataError, NotFoundError, ZstoreError, leave_out
from zstore.jobs.chunks import as_array, is_shown, source_of
from zstore.jobs.source import Source
from zstore.model import v2
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.grid import RegularGrid
from zstore.model.group import Consolidated, GroupModel
from zstore.model.json_attributes import parse_fill
from zstore.nodes.array import Array
from zstore.nodes.group import Group, is_decodable, readable_members
from zstore.nodes.node import Access
from zstore.nodes.open import open_group
from zstore.nodes.zarr_names import inner_codecs, split_codecs
from zstore.storage.base import Store, join_key, join_url
from zstore.storage.url import open_by_content, open_store
from zstore.views.view import View, view

# Bytes of arrays of files that are read whole, as their items are asked for one by one.
SMALL_SIZE = 1 << 16
# Bytes of those that stay in memory once they are read.
KEPT_SIZE = 1 << 10
NCZARR_ARRAY = ("_nczarr_array", "_NCZARR_ARRAY")


class DatasetNotFoundError(NotFoundError, FileNotFoundError):
    """The error that there is no group; also a FileNotFoundError, as raised by xarray's own engines."""


class ZstoreBackendArray(BackendArray):
    """An array that xarray reads when values are needed; only the chunks of a selection are read."""

    def __init__(self, array: Array) -> None:
        # What shows as an array is read by boxes that suit it, and not chunk by chunk; a small one whole.
        self._given = array
        self._small = source_of(array) if array.nbytes <= SMALL_SIZE and is_shown(array) else None
        self._kept: Any = None
        self.shape = array.shape
        # Of structured items xarray takes the machine's byte order only.
        self.dtype = array.dtype.newbyteorder("=") if array.dtype.names else array.dtype

    def _copy_small(self, parts: Any) -> Any:
        """A copy of items of a small array; the fewest stay, as xarray asks for those of times thrice."""
        items = self._kept
        if items is None and self._small is not None:
            items = self._small.read(whole(self.shape))
            self._kept = items if items.nbytes <= KEPT_SIZE else None
        return np.array(items[parts])

    @once
    def _array(self) -> Any:
        return view(source_of(self._given)) if is_shown(self._given) else self._given

    def __getitem__(self, key: Any) -> Any:
        read: Callable[[Any], Any]
        if isinstance(key, indexing.OuterIndexer):
            read = self._array.oindex.__getitem__
        elif isinstance(key, indexing.VectorizedIndexer):
            read = self._array.vindex.__getitem__
        elif self._small is not None:
            read = self._copy_small
        else:
            read = self._array.read
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.VECTORIZED, lambda parts: self._values(read(parts))
        )

    async def async_getitem(self, key: Any) -> Any:
        """The same as `__getitem__`, without blocking the event loop."""
        if isinstance(self._array, View):
            return self[key]
        read: Callable[[Any], Awaitable[Any]] = self._array.read_async
        if isinstance(key, indexing.OuterIndexer):
            read = self._array.oindex.read_async
        elif isinstance(key, indexing.VectorizedIndexer):
            read = self._array.vindex.read_async

        async def values(parts: Any) -> np.ndarray[Any, Any]:
            return self._values(await read(parts))

        # Older versions of xarray without this function do not call the method.
        return await indexing.async_explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.VECTORIZED, values
        )

    def _values(self, found: Any) -> np.ndarray[Any, Any]:
        return np.asarray(found, self.dtype)


def open_variable(array: Array, *, masks_fill: bool) -> xr.Variable:
    """The array as a variable that is not decoded.

    With `masks_fill`, the array's fill value becomes CF's `_FillValue`, as is usual for Zarr v2.

    Raises
        MetadataError: a dimension has no name, or `_FillValue` is no value of the dtype.
    """
    known = _described[bool(masks_fill)]
    told = known.get(array.model, lambda _: _describe(array, masks_fill=masks_fill))
    dimensions, attributes, encoding = told[0], _copied(told[1]), _copied(told[2])
    data = indexing.LazilyIndexedArray(ZstoreBackendArray(array))
    return xr.Variable(dimensions, data, attributes, encoding)


def _copied(value: Any) -> Any:
    """A copy that its owner may change."""
    kind = type(value)
    if kind is dict or kind is StatedCodec:
        return kind({name: _copied(one) if type(one) in CONTAINERS else one for name, one in value.items()})
    return kind(map(_copied, value)) if kind is list or kind is tuple else value


def _describe(array: Array, *, masks_fill: bool) -> tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]:
    """(names of dimensions, attributes, encoding) of the array's variable."""
    dimensions, attributes = _split_attributes(array)
    # The stored objects, so that each is fetched and written once.
    grid = array.model.grid
    is_even = isinstance(grid, RegularGrid)
    preferred = grid.chunk_shape if is_even else _compact(array.write_chunk_sizes, grid.chunk_shape)
    encoding = _describe_encoding(array)
    encoding["preferred_chunks"] = dict(zip(dimensions, preferred, strict=True))
    if masks_fill:
        if array.fill_value is not None:
            # xarray masks numbers and text; structured items it cannot even compare.
            (encoding if array.dtype.names else attributes)["_FillValue"] = array.fill_value
    elif array.zarr_format == 3:
        encoding["fill_value"] = array.fill_value
        if "_FillValue" in attributes:
            where = join_url(array.store.url, array.path)
            attributes["_FillValue"] = parse_fill(attributes["_FillValue"], array.dtype, where)
    return dimensions, attributes, encoding


class StatedCodec(dict[str, Any]):
    """A codec in the form of metadata: {"name": …, "configuration": …}, in Zarr v2 {"id": …}.

    It equals codec objects of zarr-python and numcodecs with the same configuration, and both libraries take
    it.
    """

    def get_config(self) -> dict[str, Any]:
        """The configuration as a plain dictionary, which numcodecs' codecs compare."""
        return dict(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return dict.__eq__(self, dict(other))
        # Converted by the other's class first, which adds the defaults of keys that the document lacks.
        kind: Any = type(other)
        if hasattr(other, "to_dict") and "name" in self:
            return other.to_dict() in (dict(self), kind.from_dict(dict(self)).to_dict())
        if hasattr(other, "get_config") and self.get("id") == other.get_config().get("id"):
            options = {name: value for name, value in self.items() if name != "id"}
            return bool(kind.from_config(options).get_config() == other.get_config())
        return False

    __hash__ = None


CONTAINERS = frozenset((dict, list, tuple, StatedCodec))
# What is said of variables, by whether their fill value is missing values: files of a series have most alike.
_Described: TypeAlias = ByIdentity[ArrayModel, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]]
_described: dict[bool, _Described] = {False: ByIdentity(), True: ByIdentity()}


def _split_attributes(array: Array) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(names of the array's dimensions, its attributes without those that only have these names).

    Raises
        MetadataError: a dimension has no name.
    """
    attributes = array.attrs.asdict()
    names = array.dims
    if names is None and array.zarr_format == 2:
        names = _nczarr_dimensions(array, attributes)
    if names is None and not array.shape:
        names = ()
    if names is None or any(name is None for name in names):
        stated = "no dimension names" if names is None else f"the dimension names {names!r}"
        raise MetadataError(
            f"array has {stated}; xarray needs a name for each of {array.ndim} (leave it out with "
            f"drop_variables={array.basename!r}, or open it with zstore.open)",
            path=join_url(array.store.url, array.path),
        )
    if array.zarr_format == 2:
        attributes = {
            name: value
            for name, value in attributes.items()
            if not name.lower().startswith("_nc") and name != v2.DIMENSIONS
        }
    return tuple(str(name) for name in names), attributes


def _nczarr_dimensions(array: Array, attributes: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The dimension names of NCZarr, which are paths in `.zarray` or, in newer files, in the attributes."""
    for name in NCZARR_ARRAY:
        stated = attributes.get(name, array.model.extra.get(name))
        if isinstance(stated, Mapping):
            found = stated.get("dimrefs", stated.get("dimension_references"))
            if isinstance(found, list) and len(found) == array.ndim:
                return tuple(str(path).rpartition("/")[2] for path in found)
    return None


def _describe_encoding(array: Array) -> dict[str, Any]:
    """The encoding of an array: how it is stored, under the names that xarray's Zarr backend uses."""
    chunks, shards = array.chunks, array.shards
    if not isinstance(array.model.grid, RegularGrid):
        chunks = _compact(array.read_chunk_sizes, chunks)
        shards = None if shards is None else _compact(array.write_chunk_sizes, shards)
    encoding: dict[str, Any] = {"chunks": chunks, "shards": shards}
    if array.dtype.kind == "T":
        encoding["dtype"] = array.dtype
    if array.zarr_format == 2:
        document = v2.render_array(array.model)[v2.ARRAY_KEY]
        stored = document["compressor"]
        encoding["compressors"] = () if stored is None else (StatedCodec(stored),)
        encoding["filters"] = tuple(StatedCodec(item) for item in document["filters"] or ())
        if isinstance(document["dtype"], str) and document["dtype"].startswith(">"):
            encoding["dtype"] = np.dtype(document["dtype"])
        return encoding
    return encoding if array.model.is_of_n5 else {**encoding, **_describe_chain(array)}


def _describe_chain(array: Array) -> dict[str, Any]:
    """The filters, serializer and compressors of an array, or of its inner chunks if it has shards."""
    codecs = array.model.codecs
    filters, serializer, compressors = split_codecs(inner_codecs(codecs) or codecs)
    return {
        "filters": tuple(StatedCodec(codec.describe()) for codec in filters),
        "serializer": None if serializer is None else StatedCodec(serializer.describe()),
        "compressors": tuple(StatedCodec(codec.describe()) for codec in compressors),
    }


def _compact(sizes: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Per dimension, the length of its chunks, or all lengths if they differ."""
    return tuple(
        length if all(part == length for part in parts[:-1]) and (not parts or parts[-1] <= length) else parts
        for parts, length in zip(sizes, shape, strict=True)
    )


class GroupDataStore(AbstractDataStore):
    """The arrays of one group as variables for xarray to decode."""

    def __init__(
        self,
        group: Group,
        *,
        dropped: Iterable[str] = (),
        masks_fill: bool | None = None,
        owned: Store | None = None,
    ) -> None:
        self.group = group
        self.dropped = {*dropped}
        self.masks_fill = group.zarr_format == 2 if masks_fill is None else masks_fill
        self.owned = owned

    def get_variables(self) -> dict[str, xr.Variable]:
        """The group's arrays as variables; dropped ones are not opened.

        Warns
            ReadingWarning: a member cannot be read, or has a dimension without a name; it is left out.
        """
        found = dict[str, xr.Variable]()
        for name, member in readable_members(self.group, dropped=self.dropped):
            if isinstance(member, Array) and is_decodable(member):
                try:
                    found[name] = open_variable(member, masks_fill=self.masks_fill)
                except MetadataError as error:
                    leave_out(member.path, error)
        return found

    def leave_out_coordinates(self) -> bool:
        """Drop the coordinates and times whose values cannot be read; returns whether there are any."""
        found = False
        for name, array in readable_members(self.group, dropped=self.dropped):
            is_time = " since " in str(array.attrs.get("units"))
            if isinstance(array, Array) and (is_time or array.dims == (name,)):
                try:
                    array[...]
                except ZstoreError as error:
                    leave_out(array.path, error)
                    self.dropped.add(name)
                    found = True
        return found

    def get_attrs(self) -> dict[str, Any]:
        """The group's attributes, without NCZarr's own."""
        found = self.group.attrs.asdict()
        return {name: value for name, value in found.items() if not name.lower().startswith("_nc")}

    def close(self) -> None:
        """Close the store if it was opened for this dataset."""
        if self.owned is not None:
            self.owned.close()


def find_group(
    target: Any,
    group: str | None,
    consolidated: bool | None,
    storage_options: Mapping[str, Any] | None,
    zarr_format: ZarrFormat | None,
) -> tuple[Group, Store | None]:
    """The group to read, and the store if it was opened here."""
    path = (group or "").strip("/")
    owned: Store | None = None
    if isinstance(target, Source):
        array = as_array(target)
        store, base = array.store, ""
    elif isinstance(target, Group):
        store, base = target.store, target.path
    else:
        store, base = open_store(target, read_only=True, storage_options=storage_options), ""
        owned = store if isinstance(target, str | os.PathLike) else None
    with ExitStack() as undo:
        if owned is not None:
            undo.callback(owned.close)
        try:
            found = _find_group(store, base, path, consolidated, zarr_format)
        except NotFoundError as error:
            file = None if owned is None else open_by_content(target, storage_options)
            if file is None:
                raise DatasetNotFoundError(error.message, path=error.path) from error
            return _find_group(file[0], file[1], path, consolidated, zarr_format), file[0]
        undo.pop_all()
    return found, owned


def _find_group(
    store: Store, base: str, path: str, consolidated: bool | None, zarr_format: ZarrFormat | None
) -> Group:
    """The group at `path` below `base`, by the consolidated metadata of either, if they may be used."""
    if consolidated is False:
        found = open_group(store, join_key(base, path), "r", zarr_format)
        plain = GroupModel(found.zarr_format, found.model.attributes, None, found.model.extra)
        return Group(store, found.path, plain, Access(read_only=True))
    try:
        root = open_group(store, base, "r", zarr_format)
    except NotFoundError:
        # A group may be in a directory that is no group.
        if not path:
            raise
        root = open_group(store, join_key(base, path), "r", zarr_format)
        path = ""
    if path and isinstance(root.model.consolidated, Consolidated):
        member = root[path]
        if not isinstance(member, Group):
            raise MetadataError(
                "an array is there, expected a group", path=join_url(store.url, join_key(base, path))
            )
    else:
        member = open_group(store, join_key(base, path), "r", zarr_format) if path else root
    if consolidated and not isinstance(member.model.consolidated, Consolidated):
        raise MetadataError(
            "there is no consolidated metadata", path=join_url(store.url, join_key(base, path))
        )
    return member
