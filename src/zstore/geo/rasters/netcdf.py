"""Conversion of NetCDF and HDF5 files into Zarr: every variable as stored, window by window.

Values stay packed, times stay numbers, attributes stay as they are; groups become groups, dimensions names.
What xarray then decodes of the Zarr is what it decodes of the file.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np

from zstore.base.locks import Lock
from zstore.errors import NotFoundError, StoreError, UnsupportedError, ZstoreError, located
from zstore.extensions.extras import optional
from zstore.geo.pyramid.boxes import Box, lengths, volume
from zstore.geo.rasters.netcdf_classic import SIGNATURES, ClassicFile, ClassicVariable
from zstore.geo.rasters.targets import (
    FileJob,
    FileWindows,
    Version,
    Written,
    check_version,
    find_version,
)
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.json_attributes import render_attributes, render_fill
from zstore.nodes.group import Group
from zstore.nodes.open import open_group
from zstore.plugin.jobs import (
    NOT_BY_KEYS,
    BegunJob,
    Estimate,
    How,
    HowWords,
    StoredArray,
    Unit,
    counter,
    long_call,
)
from zstore.storage.base import Store
from zstore.storage.url import with_storage_options

Lengths: TypeAlias = "str | int | tuple[int, ...] | Mapping[str, int] | None"

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUFFIXES = (".nc", ".nc3", ".nc4", ".cdf", ".h5", ".hdf5", ".he5")
WINDOW_SIZE = 64 << 20
UNITS_AT_ONCE = 2
READING = Lock()
# What h5py and h5netcdf raise of files that say what they did not think of.
DAMAGES = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError)
# A file's own chunks are kept where they are of a size that Zarr stores well.
KEPT_SIZES = range(128 << 10, (64 << 20) + 1)
# What the NetCDF library keeps for itself.
INTERNAL = frozenset(
    ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_NCProperties", "_nc3_strict")
)


def is_netcdf(path: str | os.PathLike[str]) -> bool:
    """Whether a file is named and begins as NetCDF (of any version) or HDF5."""
    place = Path(path)
    if place.suffix.lower() not in SUFFIXES or not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(SIGNATURE)).startswith((SIGNATURE, *SIGNATURES))


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

    chunks    "auto": the file's own where they are 128 KiB to 64 MiB, else to 1 MiB; lengths by dimension
              (whole ones where it names none); or one length for the last two dimensions of every variable,
              or several for the last ones (1 along those before them)
    shards    likewise, multiples of the chunks; along dimensions that it does not name, one chunk

    Raises
        ChangedError: the file was written meanwhile, or since what is to be gone on with.
        NotFoundError, StoreError: the file is not there or cannot be read; the target is there already.
        UnsupportedError: h5netcdf is missing (NetCDF classic needs none), or a type that Zarr has not:
            references, lists of numbers.
        MetadataError: chunks and shards that do not fit each other; `resume`, and what was interrupted there
            is something else.
    Warns
        AttributeWarning: an attribute is NaN or infinite, and written as a string; a text of NetCDF classic
            is no UTF-8.
    """
    how = How(**words)
    return NetcdfJob(source, target, zarr_format, chunks, shards, compressors, how).carry_out()


class NetcdfJob(FileJob):
    """A file whose variables and groups become those of a group; nothing is written before `carry_out`.

    Raises
        as `netcdf_to_zarr`, of what does not depend on what the target holds.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str] | Store | Group,
        zarr_format: ZarrFormat,
        chunks: Lengths,
        shards: Lengths,
        compressors: Any,
        how: How,
    ) -> None:
        where = os.fspath(source)
        version = find_version([where])
        super().__init__(target, zarr_format, {where: version}, how)
        with open_netcdf(source) as file:
            groups = dict(walk_groups(file, ""))
            variables = {
                f"{path}/{name}".lstrip("/"): variable
                for path, group in groups.items()
                for name, variable in group.variables.items()
            }
            pieces = []
            for path, variable in variables.items():
                plan = plan_variable(variable, f"/{path}", zarr_format, chunks, shards, compressors)
                with located(where, path):
                    pieces.append(_VariableGrid.of(path, variable, self.add_array(path, path, plan)))
            self.attributes = {
                path: stored_attributes(group.attrs, path or "/") for path, group in groups.items()
            }
        self.copying = VariableWindows(where, version, tuple(pieces), self.arrays)

    def estimate(self) -> Estimate:
        """The estimate of the conversion."""
        return replace(self.copying.estimate(), about={"sources": self.versions})

    def carry_out(self) -> Group:
        """Copy the items and write the documents; returns the resulting group."""
        held, nodes, copying = self.held, self.nodes, self.copying
        self.how.stop_if_dry(self.estimate)
        call = {"source": copying.source}
        if self.is_made(call):
            return open_group(self.store, self.base, mode="r+")
        self.check_fits(copying)
        most = UNITS_AT_ONCE if self.how.executor is None else None
        if self.how.memory is not None:
            most = self.how.at_once((copying.estimate().memory_size or 0) // UNITS_AT_ONCE, most)
        job = self._begin(overwrite=self.how.overwrite, resume=self.how.resume)
        tick = counter(sum(prod(array.model.shape) for array in self.arrays.values()), self.how.progress)
        with job.runner(self.how.executor, most) as runner:
            runner.run(copying, "windows", lambda unit, _: tick(copying.count(unit)))
        for path, stated in self.attributes.items():
            if held is None or (path and path not in held):
                nodes.add_group(path, stated)
        job.check()
        nodes.publish()
        root = open_group(self.store, self.base, mode="r+")
        for path, stated in self.attributes.items() if held is not None else ():
            member = root[path] if path else root
            member.attrs.update(stated)
        root = root.consolidate()
        self.end(job, call)
        return root

    def _begin(self, *, overwrite: bool, resume: bool) -> BegunJob:
        """Record at the target that the job begins or goes on, and remove nodes in its way."""
        taken = self.taken(self.arrays, resume=resume)
        if taken and not overwrite:
            message = f"array {taken[0]!r} is there already; expected overwrite"
            raise StoreError(message, path=self.where)
        for path in filter(None, self.attributes):
            if self.held is not None and path in self.held:
                self.held.require_group(path)
        said = {"source": self.copying.source, "arrays": self.name_arrays()}
        paths = list(self.arrays)
        return self.begin("netcdf_to_zarr", said, overwrite=overwrite, resume=resume, paths=paths)


@contextmanager
def open_netcdf(source: str | os.PathLike[str], *, file: Any = None) -> Iterator[Any]:
    """The file: h5netcdf's, or a `ClassicFile`, with `groups`, `variables` and `attrs`.

    file  an open HDF5 file to read instead, `source` being what it is called in errors

    Raises
        as `netcdf_to_zarr`.
    """
    path = os.fspath(source)
    is_classic = False
    if file is None:
        if not Path(path).is_file():
            raise NotFoundError("no file there", path=path)
        with Path(path).open("rb") as raw:
            is_classic = raw.read(3) == SIGNATURES[0][:3]
    with ClassicFile(path) if is_classic else _open_hdf5(path, file) as opened:
        try:
            yield opened
        except ZstoreError:
            raise
        except DAMAGES as error:
            raise StoreError(f"file cannot be read: {error}", path=path) from error


def _open_hdf5(path: str, file: Any) -> Any:
    with optional("NetCDF-4 and HDF5 files can be read only with h5netcdf", "netcdf"):
        import h5netcdf
    try:
        return h5netcdf.File(
            path if file is None else file, "r", decode_vlen_strings=False, phony_dims="sort"
        )
    except OSError as error:
        raise StoreError(f"not an HDF5 file: {error}", path=path) from error
    except Exception as error:
        # Whatever a file says that h5netcdf did not think of: a variable with a scale for some of its
        # dimensions only, for one.
        reason = str(error)
        if isinstance(error, KeyError | RecursionError):
            reason = f"a link leads to nothing, or to a group above it: {error}"
        elif isinstance(error, AttributeError):
            reason = f"it keeps a type by a name, which NetCDF has for few types only: {error}"
        raise UnsupportedError(f"HDF5 file is none that h5netcdf can read: {reason}", path=path) from error


def walk_groups(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The group and all below it, by their paths.

    Raises
        UnsupportedError: a link leads to a group of another file; its variables would be those of this one.
    """
    yield path, group
    for name, child in group.groups.items():
        below = f"{path}/{name}".lstrip("/")
        if file_number(child._h5group) != file_number(group._h5group):
            other = child._h5group.file.filename
            raise UnsupportedError(
                f"group {below!r} is one of {other!r}, to which a link leads; expected those of the file",
                path=group._h5group.file.filename,
                key=below,
            )
        yield from walk_groups(child, below)


def file_number(node: Any) -> int:
    """HDF5's number of the file that contains a group or a dataset."""
    import h5py

    number: int = h5py.h5o.get_info(node.id).fileno
    return number


def stored_attributes(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Attributes as JSON, without the NetCDF library's internal ones."""
    kept = {}
    for name in found:
        if name in INTERNAL or name.startswith("_Netcdf4"):
            continue
        value = _attribute(found, name, where)
        if type(value).__name__ == "Empty":
            value = ""
        if isinstance(value, np.ndarray) and value.shape == (1,):
            value = value[0]
        kept[name] = value
    return render_attributes(kept, where)


def _attribute(found: Mapping[str, Any], name: str, where: str) -> Any:
    try:
        return found[name]
    except (KeyError, TypeError, ValueError) as error:
        message = f"attribute {name!r} of {where!r} is none that h5netcdf can read: {error}"
        raise UnsupportedError(message) from error


def plan_variable(
    variable: Any, where: str, zarr_format: ZarrFormat, chunks: Lengths, shards: Lengths, compressors: Any
) -> dict[str, Any]:
    """The arguments of `create_array` for a variable.

    Raises
        UnsupportedError: a type that Zarr has not.
    """
    dtype, stated = _type(variable, where)
    raw = {name: _attribute(variable.attrs, name, where) for name in variable.attrs}
    fill = raw.pop("_FillValue", None)
    attributes = {**stored_attributes(raw, where), **stated}
    shape, names = tuple(variable.shape), tuple(name.rpartition("/")[2] for name in variable.dimensions)
    if isinstance(fill, np.ndarray) and fill.size == 1:
        fill = fill.reshape(())[()]
    stored: Any = None if zarr_format == 2 else "auto"
    if fill is not None and dtype is not str:
        stored = fill
        # xarray's engine "zarr" opens nothing of a v3 group where bytes have the attribute, or fields.
        if zarr_format == 3 and np.dtype(dtype).kind not in "SV":
            attributes["_FillValue"] = render_fill(fill, np.dtype(dtype), where)
    elif fill is not None:
        attributes["_FillValue"] = fill.decode() if isinstance(fill, bytes) else str(fill)
    is_named = isinstance(chunks, Mapping)
    cut = _lengths(chunks, names, shape, [max(n, 1) if is_named else 1 for n in shape])
    if cut is None:
        cut = _own_chunks(variable, dtype)
    options: dict[str, Any] = {"chunks": cut}
    if shards is not None and shape:
        basis = list(cut) if isinstance(cut, tuple) else [1] * len(shape)
        options["shards"] = _lengths(shards, names, shape, basis)
    return {
        "shape": shape,
        "dtype": dtype,
        "fill_value": stored,
        "compressors": compressors,
        "attributes": attributes,
        "dimension_names": names,
        **(options if shape else {}),
    }


def _type(variable: Any, where: str) -> tuple[Any, dict[str, Any]]:
    """(dtype of a variable's items, attributes that go with it: the flags of an enumeration)."""
    if isinstance(variable, ClassicVariable):
        return variable.dtype, {}
    import h5py

    if variable._h5ds.shape is None:
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
        raise UnsupportedError(f"variable {where!r} has the type {dtype}, which Zarr does not have")
    return dtype.newbyteorder("="), {}


def _own_chunks(variable: Any, dtype: Any) -> Any:
    """The file's own chunks, if Zarr stores chunks of that size well; else "auto"."""
    own = variable.chunks
    if own is None:
        return "auto"
    size = prod(own) * (8 if dtype is str else np.dtype(dtype).itemsize)
    is_larger = any(chunk > max(length, 1) for chunk, length in zip(own, variable.shape, strict=True))
    return tuple(int(n) for n in own) if size in KEPT_SIZES and not is_larger else "auto"


def _lengths(
    asked: Lengths, names: tuple[str, ...], shape: tuple[int, ...], others: list[int]
) -> tuple[int, ...] | None:
    """One length per dimension, `others` along those that are not named; None without a request."""
    if asked is None or isinstance(asked, str):
        return None
    if isinstance(asked, Mapping):
        lengths = [asked.get(name, other) for name, other in zip(names, others, strict=True)]
        return tuple(lengths) if set(asked) & set(names) else None
    # One length is for both dimensions of a grid; a coordinate has one dimension only.
    wanted = (asked,) * min(2, len(shape)) if isinstance(asked, int) else tuple(asked)[-len(shape) :]
    count = len(shape) - len(wanted) if shape else 0
    return (*others[:count], *(wanted if shape else ()))


class _VariableGrid(NamedTuple):
    """The windows by which a variable is read: items along each axis, and their number."""

    path: str
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, path: str, variable: Any, model: ArrayModel) -> _VariableGrid:
        """Windows of whole stored objects and, as far as memory allows, of whole chunks of the file."""
        unit, shape, item = model.grid.chunk_shape, model.shape, model.dtype.itemsize
        lengths = [
            min(-(-source // step) * step, -(-length // step) * step)
            for step, source, length in zip(unit, variable.chunks or unit, shape, strict=True)
        ]
        if prod(lengths) * item > WINDOW_SIZE:
            lengths = list(unit)
        for axis in reversed(range(len(shape))):
            room = WINDOW_SIZE // max(prod(lengths) * item, 1)
            lengths[axis] = min(lengths[axis] * max(room, 1), max(shape[axis], 1))
            lengths[axis] = -(-lengths[axis] // unit[axis]) * unit[axis]
        counts = (-(-length // max(1, step)) for length, step in zip(shape, lengths, strict=True))
        return cls(path, tuple(lengths), tuple(counts), shape)

    def window(self, number: int) -> tuple[slice, ...]:
        """The items of a window."""
        places = np.unravel_index(number, self.counts) if self.counts else ()
        sides = zip(places, self.lengths, self.shape, strict=True)
        return tuple(slice(int(p) * n, min(int(p) * n + n, length)) for p, n, length in sides)


@dataclass(frozen=True)
class VariableWindows(FileWindows):
    """The variables of a file into arrays; units are (first window, last + 1), all of them counted.

    version  of the file, as it was when the windows were planned
    """

    source: str
    version: Version
    pieces: tuple[_VariableGrid, ...]
    arrays: dict[str, StoredArray]

    def units(self) -> Iterator[Unit]:
        """Windows of small variables go together, because the file is opened for each unit."""
        first = number = size = 0
        for piece in self.pieces:
            window = prod(piece.lengths) * self.arrays[piece.path].item_size
            for _ in range(prod(piece.counts)):
                if size and size + window > WINDOW_SIZE:
                    yield first, number
                    first, size = number, 0
                number, size = number + 1, size + window
        if number > first:
            yield first, number

    def estimate(self) -> Estimate:
        """The estimate of the conversion, with as many units at a time as there are threads."""
        sizes = [
            sum(self.arrays[path].item_size * volume(window) for path, window in self.boxes(unit))
            for unit in self.units()
        ]
        return Estimate(
            unit_count=len(sizes),
            read_size=sum(sizes),
            write_size=sum(sizes),
            request_count=sum(prod(array.counts) for array in self.arrays.values()),
            memory_size=UNITS_AT_ONCE * max(sizes, default=0),
        )

    def boxes(self, unit: Unit) -> Iterator[tuple[str, Box]]:
        """The paths of the arrays that a unit writes to, and the window of each."""
        ends = [*accumulate(prod(piece.counts) for piece in self.pieces)]
        for number in range(*unit):
            at = bisect_right(ends, number)
            piece = self.pieces[at]
            yield piece.path, piece.window(number - ends[at] + prod(piece.counts))

    def count(self, unit: Unit) -> int:
        """The number of items that a unit copies."""
        return sum(volume(window) for _, window in self.boxes(unit))

    def make(self, unit: Unit) -> Written:
        """Copy the windows of a unit."""
        # One thread reads, as the libraries below want it, while others encode.
        with READING, open_netcdf(self.source) as file:
            blocks = []
            for path, window in self.boxes(unit):
                group, name = file, path
                while "/" in name:
                    above, _, name = name.partition("/")
                    group = group.groups[above]
                blocks.append(_items(_read(group.variables[name], window), self.arrays[path]))
        check_version(self.version, self.source)
        return self.store(unit, blocks)


def _read(variable: Any, window: tuple[slice, ...]) -> Any:
    """The items of a window, in the file's own form."""
    if not isinstance(variable.dtype, np.dtype) or variable.dtype.names is None:
        return variable[window or ...]
    # Of fields, h5netcdf makes text of those that are characters, and fails at fields within fields.
    dataset = variable._h5ds
    items = np.full(lengths(window), dataset.fillvalue, dataset.dtype)
    # Along an unlimited dimension, others may have more items than this.
    stored = dataset[window]
    items[tuple(map(slice, stored.shape))] = stored
    return items


def _items(found: Any, array: StoredArray) -> np.ndarray[Any, Any]:
    """Items of the file, converted to the array's type."""
    items, dtype = np.asarray(found), array.model.dtype
    if dtype.kind == "T" or (dtype.kind == "O" and array.model.data_type.name == "string"):
        decoded = [item.decode() if isinstance(item, bytes) else str(item) for item in items.ravel().tolist()]
        return np.array(decoded, object).reshape(items.shape).astype(dtype)
    return items.astype(dtype, copy=False)
