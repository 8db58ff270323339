"""Conversion of NetCDF and HDF5 files into Zarr: every variable as stored, window by window.

Values stay packed, times stay numbers, attributes stay as they are; groups become groups, dimensions names.
What xarray then decodes of the Zarr is what it decodes of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np

from zstore.base.boxes import Box, Items, Shape, lengths
from zstore.base.locks import Lock
from zstore.base.once import ByContent
from zstore.errors import NotFoundError, StoreError, UnsupportedError, ZstoreError, located
from zstore.geo.rasters.files import (
    FileArray,
    FileJob,
    FileStore,
    FileWindows,
    OpenFiles,
    Version,
    check_version,
    file_in,
    find_version,
    is_current,
)
from zstore.geo.rasters.hdf5_headers import Row, UnusualError
from zstore.geo.rasters.netcdf_classic import ClassicFile, ClassicVariable
from zstore.geo.rasters.netcdf_hdf5 import (
    DAMAGES,
    HIDDEN,
    Hdf5File,
    HeaderGroup,
    open_hdf5,
    read_box,
)
from zstore.jobs.how import NOT_BY_KEYS, How, HowWords, long_call
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.dtype import DataType
from zstore.model.grid import check_names, lengths_by_name, own_lengths
from zstore.model.json_attributes import render_attributes, render_fill
from zstore.nodes.group import Group
from zstore.storage.base import Store
from zstore.storage.kinds import CLASSIC
from zstore.storage.memory import MemoryStore
from zstore.storage.url import with_storage_options

Lengths: TypeAlias = "str | int | tuple[int, ...] | Mapping[str, Any] | None"

READING = Lock()
# Models of variables, by what their headers say.
_models: ByContent[ArrayModel] = ByContent()
# A file's own chunks are kept where they are of a size that Zarr stores well.
KEPT_SIZES = range(128 << 10, (64 << 20) + 1)
# The attribute of a group that names its dimensions that can grow. xarray shows none that begins so.
UNLIMITED = "_nc_unlimited_dimensions"
# The attribute of a file's node with the facts of the node of Zarr that NetCDF has no form for, in JSON.
KEPT = "_zarr"
KEPT_FACTS = frozenset(("attributes", "added", "data_type", "dimension_names", "fill_value"))


@long_call(if_exists=NOT_BY_KEYS)
@with_storage_options
def netcdf_to_zarr(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | Store | Group,
    *,
    zarr_format: ZarrFormat = 3,
    chunks: Lengths = "auto",
    shards: Lengths = None,
    compressors: Any = "auto",
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Group:
    """The group at `target`, with the variables and groups of a NetCDF or HDF5 file.

    chunks    "auto": the file's own where they are 128 KiB to 64 MiB, else to 1 MiB; lengths by dimension,
              -1 or "auto" (whole ones along others), for variables with the most dimensions or two of these;
              or one length for the last two dimensions of every variable, or several for the last ones
              (1 along those before them)
    shards    likewise, multiples of the chunks; along dimensions that it does not name, one chunk

    Raises
        ChangedError: the file was written meanwhile, or since what is to be gone on with.
        NotFoundError, StoreError: the file is not there or cannot be read; the target is there already.
        UnsupportedError: h5py is missing (NetCDF classic needs none), or a type that Zarr has not:
            references, lists of numbers.
        MetadataError: chunks and shards that do not fit each other; `resume`, and what was interrupted there
            is something else.
    Warns
        AttributeWarning: an attribute is NaN or infinite, and written as a string; a text of NetCDF classic
            is no UTF-8.
    """
    how = How(**words)
    return NetcdfJob(source, target, zarr_format, chunks, shards, compressors, how).carry_out()


class NetcdfStore(FileStore):
    """A NetCDF or HDF5 file as the group that `netcdf_to_zarr` makes of it.

    Of a variable that Zarr has no array for, the error comes when it is opened; lists have its name.
    """

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> NetcdfStore:
        """The file at "netcdf://PATH".

        Raises, warns
            as `netcdf_to_zarr`.
        """
        return cls.of_job(_plan_netcdf(file_in(url, storage_options), leaves_out=True), url)


def netcdf_sources(source: str | os.PathLike[str]) -> Mapping[str, FileArray]:
    """The variables of a NetCDF or HDF5 file as sources of jobs, by their paths in it.

    Raises, warns
        as `netcdf_to_zarr`.
    """
    return _plan_netcdf(source).file_arrays


def _plan_netcdf(source: str | os.PathLike[str], *, leaves_out: bool = False) -> NetcdfJob:
    """The conversion of a file into memory."""
    return NetcdfJob(source, MemoryStore(), 3, "auto", None, None, How(), leaves_out=leaves_out)


class NetcdfJob(FileJob):
    """The conversion of a file's variables and groups into a group; `carry_out` writes them.

    Raises
        as `netcdf_to_zarr`, of what does not depend on what the target holds.
    """

    work = "netcdf_to_zarr"
    replaces = True

    def __init__(
        self,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str] | Store | Group,
        zarr_format: ZarrFormat,
        chunks: Lengths,
        shards: Lengths,
        compressors: Any,
        how: How,
        *,
        leaves_out: bool = False,
    ) -> None:
        self.source = os.fspath(source)
        self._leaves_out = leaves_out
        versions = {self.source: find_version([self.source])}
        super().__init__(target, zarr_format, versions, how)
        with _open_headers(self.source) as file:
            groups = dict(walk_groups(file, ""))
            rows = getattr(file, "rows", {})
            for path, (model, own) in self._planned(file, groups, chunks, shards, compressors).items():
                self.add_model(path, path, model)
                one = NetcdfVariable(self.source, versions, path, own, model, self.files)
                one.row = rows.get(path)
                self.file_arrays[path] = one
            self.attributes = {path: group_attributes(group, path or "/") for path, group in groups.items()}
        for path in filter(None, groups):
            if self.held is not None and path in self.held:
                self.held.require_group(path)

    def _planned(
        self, file: Any, groups: Mapping[str, Any], chunks: Lengths, shards: Lengths, compressors: Any
    ) -> Mapping[str, tuple[ArrayModel, Shape | None]]:
        """The model of each variable's array, and the file's own chunks; of a series they are made once."""
        key = (self.zarr_format, chunks, shards, compressors)
        is_plain = all(one is None or isinstance(one, str) for one in key[1:])
        facts: dict[Any, Any] | None = getattr(file, "facts", None) if is_plain else None
        if facts is not None and key in facts:
            known: Mapping[str, tuple[ArrayModel, Shape | None]] = facts[key]
            return known
        variables = {
            f"{path}/{name}".lstrip("/"): variable
            for path, group in groups.items()
            for name, variable in group.variables.items()
        }
        dimensions = {path: [*map(plain_dimension, v.dimensions)] for path, v in variables.items()}
        most = max(map(len, dimensions.values()), default=0)
        for asked in (chunks, shards):
            check_names(asked, {*chain.from_iterable(dimensions.values())})
        planned = {}
        for path, variable in variables.items():
            names = dimensions[path]
            cut, shard = (
                own_lengths(one, names, most) or None if isinstance(one, Mapping) else one
                for one in (chunks, shards)
            )
            try:
                planned[path] = self._model(variable, path, cut, shard, compressors), variable.chunks
            except UnsupportedError as error:
                if not self._leaves_out:
                    raise
                self.unreadable[path] = error.locate(path=self.source, key=path)
        # One of which a warning is given is made anew, and warned of again.
        if (
            facts is not None
            and not self.unreadable
            and all(variable.content is not None for variable in variables.values())
        ):
            facts[key] = planned
        return planned

    def _model(
        self, variable: Any, path: str, chunks: Lengths, shards: Lengths, compressors: Any
    ) -> ArrayModel:
        """The model of a variable's array; files of one series have many of them alike."""

        def make(_: Any = None) -> ArrayModel:
            plan = plan_variable(variable, f"/{path}", self.zarr_format, chunks, shards, compressors)
            with located(self.source, path):
                return self.make_model(path, plan)

        content = getattr(variable, "content", None)
        key = (content, self.zarr_format, chunks, shards, compressors)
        return make() if content is None else _models.get(key, make)

    @property
    def names(self) -> list[str]:
        return list(self.array_models)

    def call(self) -> dict[str, Any]:
        return {"source": self.source}

    def windows(self) -> FileWindows:
        return FileWindows.of([(name,) for name in self.arrays], self.file_arrays, self.arrays)

    def draft(self) -> None:
        group = self.existing
        for path, attributes in self.attributes.items():
            if group is None or (path and path not in group):
                self.nodes.add_group(path, attributes)

    def complete(self, root: Group) -> None:
        for path, attributes in self.attributes.items() if self.existing is not None else ():
            member = root[path] if path else root
            member.attrs.update(attributes)
        root.consolidate()


@contextmanager
def open_netcdf(source: str | os.PathLike[str], *, file: Any = None, is_plain: bool = False) -> Iterator[Any]:
    """The file: `Hdf5File` or `ClassicFile`, with `groups`, `variables`, `attrs` and `growing` dimensions.

    file      an open HDF5 file to read instead, `source` being what it is called in errors
    is_plain  whether an HDF5 file is h5py's, of which no headers are read

    Raises
        as `netcdf_to_zarr`.
    """
    path = os.fspath(source)
    try:
        with _opened(path, file, is_plain) as opened:
            yield opened
    except ZstoreError:
        raise
    except DAMAGES as error:
        raise StoreError(f"file cannot be read: {error}", path=path) from error


def _open_headers(path: str) -> AbstractContextManager[Any]:
    """The file, of whose variables no items are read: parsed from its bytes where that is enough."""
    with suppress(UnusualError, OSError):
        return nullcontext(HeaderGroup.of_file(path))
    return open_netcdf(path)


def _opened(path: str, file: Any, is_plain: bool) -> Any:
    if file is None:
        if not Path(path).is_file():
            raise NotFoundError("no file there", path=path)
        with Path(path).open("rb") as raw:
            if raw.read(3) == CLASSIC[0][:3]:
                return ClassicFile(path)
    return open_hdf5(path, file) if is_plain else Hdf5File(path, file)


def walk_groups(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The group and all below it, by their paths.

    Raises
        UnsupportedError: a link leads to a group of another file; its variables would be those of this one.
    """
    yield path, group
    for name, child in group.groups.items():
        below = f"{path}/{name}".lstrip("/")
        if group.is_elsewhere(child):
            other = child.node.file.filename
            raise UnsupportedError(
                f"group {below!r} is one of {other!r}, to which a link leads; expected those of the file",
                path=group.node.file.filename,
                key=below,
            )
        yield from walk_groups(child, below)


def group_attributes(group: Any, where: str) -> dict[str, Any]:
    """The attributes of a group, with the names of its dimensions that can grow."""
    raw = dict(group.attrs)
    kept = _kept(raw)
    growing = {UNLIMITED: sorted(set(group.growing))} if group.growing else {}
    return {**render_attributes(raw, where), **growing, **kept.get("attributes", {})}


def _kept(raw: dict[str, Any], *, as_stored: bool = False) -> Mapping[str, Any]:
    """The facts in the attribute `_zarr`, which is taken out of the others if it is ours.

    as_stored  it stays, and there are none, where it says that the items are of another type
    """
    try:
        kept = json.loads(raw.get(KEPT, "{}"))
    except (TypeError, ValueError):
        return {}
    if not isinstance(kept, dict) or not kept.keys() <= KEPT_FACTS or (as_stored and "data_type" in kept):
        return {}
    raw.pop(KEPT, None)
    return kept


def default_fill(fill: Any, data_type: DataType, zarr_format: ZarrFormat) -> Any:
    """The fill value of the array that is made of a variable with this `_FillValue`, None if it has none."""
    if fill is not None and not data_type.is_object and data_type.numpy.kind != "U":
        return fill
    return None if zarr_format == 2 else data_type.default_fill()


def plan_variable(
    variable: Any,
    where: str,
    zarr_format: ZarrFormat,
    chunks: Lengths,
    shards: Lengths,
    compressors: Any,
    *,
    as_stored: bool = False,
) -> dict[str, Any]:
    """The arguments of `create_array` for a variable.

    as_stored  the array has the items of the file; else those of the array that the file was made of

    Raises
        UnsupportedError: a type that Zarr has not.
    """
    raw = dict(variable.attrs)
    dtype, stated = _type(variable, where)
    fill, kept = raw.pop("_FillValue", None), _kept(raw, as_stored=as_stored)
    shape, names = tuple(variable.shape), tuple(map(plain_dimension, variable.dimensions))
    own = variable.chunks
    if "data_type" in kept:
        dtype = DataType.restore(kept["data_type"])
        if dtype.numpy.kind == "S":  # the last dimension is that of its characters
            shape, names, own = shape[:-1], names[:-1], own and own[:-1]
        for name in kept.get("added", ()):
            raw.pop(name, None)
            fill = None if name == "_FillValue" else fill
    attributes = {**render_attributes(raw, where), **stated, **kept.get("attributes", {})}
    if isinstance(fill, np.ndarray) and fill.size == 1:
        fill = fill.reshape(())[()]
    numpy = dtype.numpy if isinstance(dtype, DataType) else np.dtype(dtype)
    is_text = dtype is str or numpy.kind in "OTU"
    stored: Any = None if zarr_format == 2 else "auto"
    if fill is not None and not is_text:
        stored = fill = np.asarray(fill).astype(numpy)[()]
        # xarray's engine "zarr" opens nothing of a v3 group where bytes have the attribute, or fields.
        if zarr_format == 3 and numpy.kind not in "SV":
            attributes["_FillValue"] = render_fill(fill, numpy, where)
    elif fill is not None:
        attributes["_FillValue"] = fill.decode() if isinstance(fill, bytes) else str(fill)
    if "fill_value" in kept:
        typed = dtype
        if not isinstance(typed, DataType):
            typed = DataType.from_name("string") if dtype is str else DataType.from_numpy(numpy)
        stored = typed.parse_fill(kept["fill_value"], 3)
    is_named = isinstance(chunks, Mapping)
    item_size = 8 if is_text else numpy.itemsize
    cut = _lengths(chunks, names, shape, [max(n, 1) if is_named else 1 for n in shape], item_size)
    if cut is None:
        cut = _own_chunks(own, shape, item_size)
    options: dict[str, Any] = {"chunks": cut}
    if shards is not None and shape:
        basis = list(cut) if isinstance(cut, tuple) else [1] * len(shape)
        options["shards"] = _lengths(shards, names, shape, basis, item_size)
    return {
        "shape": shape,
        "dtype": dtype,
        "fill_value": stored,
        "compressors": compressors,
        "attributes": attributes,
        "dimension_names": kept.get("dimension_names", names),
        **(options if shape else {}),
    }


def plain_dimension(name: str) -> str:
    """The name of a dimension, without the path of its group."""
    return name.rpartition("/")[2]


def _type(variable: Any, where: str) -> tuple[Any, dict[str, Any]]:
    """(dtype of a variable's items, attributes that go with it: the flags of an enumeration)."""
    if isinstance(variable, ClassicVariable):
        return variable.dtype, {}
    import h5py

    if not variable.has_items:
        raise UnsupportedError(f"variable {where!r} has no dataspace, so no items; expected a shape")
    try:
        dtype = variable.dtype
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedError(f"variable {where!r} has a type that h5py cannot say: {error}") from error
    if dtype is str or (isinstance(dtype, np.dtype) and h5py.check_string_dtype(dtype) is not None):
        known = None if dtype is str else h5py.check_string_dtype(dtype)
        # Of fixed length: bytes, which is what they are in the file too.
        return (str if known is None or known.length is None else np.dtype(f"S{known.length}")), {}
    dtype = np.dtype(dtype)
    words = h5py.check_enum_dtype(dtype)
    if words is not None:
        plain = np.dtype(dtype.str)
        if {name.upper() for name in words} == {"FALSE", "TRUE"}:
            return np.dtype(bool), {}
        stated = (
            {}
            if "flag_values" in variable.attrs
            else {
                "flag_values": [int(value) for value in words.values()],
                "flag_meanings": " ".join("_".join(name.split()) for name in words),
            }
        )
        return plain, stated
    if dtype.hasobject or (dtype.kind == "V" and dtype.names is None):
        listed = h5py.check_vlen_dtype(dtype)
        kind = f"lists of {listed} of any length" if listed is not None else f"the type {dtype}"
        raise UnsupportedError(f"variable {where!r} has {kind}, which Zarr does not have")
    return dtype.newbyteorder("="), {}


def _own_chunks(own: Shape | None, shape: Shape, item_size: int) -> Any:
    """The file's own chunks, if Zarr stores chunks of that size well; else "auto"."""
    if own is None:
        return "auto"
    size = prod(own) * item_size
    is_larger = any(chunk > max(length, 1) for chunk, length in zip(own, shape, strict=True))
    return tuple(int(n) for n in own) if size in KEPT_SIZES and not is_larger else "auto"


def _lengths(
    asked: Lengths, names: tuple[str, ...], shape: tuple[int, ...], others: list[int], item_size: int
) -> tuple[int, ...] | None:
    """One length per dimension, `others` along those that are not named; None without a request."""
    if asked is None or isinstance(asked, str):
        return None
    if isinstance(asked, Mapping):
        made: tuple[int, ...] = lengths_by_name(asked, names, shape, others, item_size)
        return made
    # One length is for both dimensions of a grid; a coordinate has one dimension only.
    wanted = (asked,) * min(2, len(shape)) if isinstance(asked, int) else tuple(asked)[-len(shape) :]
    count = len(shape) - len(wanted) if shape else 0
    return (*others[:count], *(wanted if shape else ()))


class NetcdfVariable(FileArray):
    """The items of a variable, as an array of Zarr holds them.

    name   its path in the file
    model  of the array
    row    where its items lie, if they are few and stored as they are
    """

    row: Row | None = None

    def __init__(
        self,
        source: str,
        versions: Mapping[str, Version],
        name: str,
        chunks: Shape | None,
        model: ArrayModel,
        files: OpenFiles,
    ) -> None:
        own = chunks[: len(model.shape)] if chunks else model.grid.chunk_shape
        super().__init__(name, source, versions, model, own, model.shape, files)

    def read(self, box: Box, out: Items | None = None) -> Items:
        kept = None if self.row is None else self.row.kept(self.shape)
        is_kept = kept is not None and all(is_current(one) for one in self.versions.values())
        if is_kept:
            items = self._converted(kept, box)
        elif self.row is not None:
            items = self._converted(self._row(self.row), box)
        else:
            # One thread reads, as the libraries below want it, while others encode.
            with READING, self.files.open(partial(open_netcdf, is_plain=True), self.path) as file:
                items = self._converted(_variable(file, self.name), box)
        for path, version in self.versions.items() if not is_kept else ():
            check_version(version, path)
        if out is None:
            return items
        out[...] = items
        return out

    def _row(self, row: Row) -> Items:
        """The items of a small variable, in the file's own form."""
        try:
            items = row.read(self.path)
        except FileNotFoundError as error:
            raise NotFoundError("no file there", path=self.path) from error
        except (OSError, ValueError) as error:
            raise StoreError(f"file cannot be read: {error}", path=self.path) from error
        sides: tuple[Any, ...] = tuple(map(slice, (*self.shape, *row.shape[len(self.shape) :])))
        part: Items = items[(*sides, ...)]
        # A value of a dimension that can grow does not keep the chunk that was made for hundreds.
        return part if part.size == items.size else part.copy()

    def _converted(self, variable: Any, box: Box) -> Items:
        """The items of a box of the file, as the array's type."""
        dtype = self.dtype
        if len(variable.shape) > len(box):  # texts of fixed length, whose characters have a dimension
            characters = _items(variable, (*box, slice(0, variable.shape[-1])))
            return np.ascontiguousarray(characters).view(dtype).reshape(lengths(box))
        items = np.asarray(_items(variable, box)).reshape(lengths(box))
        if dtype.kind in "UT" or (dtype.kind == "O" and self.data_type.name == "string"):
            decoded = [one.decode() if isinstance(one, bytes) else str(one) for one in items.ravel().tolist()]
            return np.array(decoded, object).reshape(items.shape).astype(dtype)
        converted: Items = items.astype(dtype, copy=False)
        is_narrower = dtype.kind == "b" or (dtype.kind == "f" and dtype.itemsize < items.dtype.itemsize)
        if is_narrower and not np.array_equal(
            converted.astype(items.dtype), items, equal_nan=dtype.kind == "f"
        ):
            raise StoreError(f"items of {self.name!r} are no {dtype}, as `_zarr` says", path=self.path)
        return converted


def _variable(file: Any, path: str) -> Any:
    """The variable at a path in a file that is open: h5py's dataset, or that of a `ClassicFile`."""
    if isinstance(file, ClassicFile):
        return file.variables[path]
    above, _, name = path.rpartition("/")
    group = file[above] if above else file
    # One that is called as a dimension, and is not its coordinate, has another name in HDF5.
    return group[HIDDEN + name if HIDDEN + name in group else name]


def _items(variable: Any, box: Box) -> Any:
    """The items of a box, in the file's own form."""
    return variable[box or ...] if isinstance(variable, ClassicVariable) else read_box(variable, box)
