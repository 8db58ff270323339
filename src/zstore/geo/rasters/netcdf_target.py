"""NetCDF-4 files written from groups: dimensions, variables and attributes, and the data window by window.

Values stay packed and times stay numbers, as `netcdf_to_zarr` reads them. Of what NetCDF has no form for, the
attribute `_zarr` says in JSON how the array has it, so that the way back makes the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm, prod
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Unpack

import numpy as np

from zstore.base.boxes import Box, Items, Shape, volume
from zstore.base.once import once
from zstore.errors import StoreError, UnsupportedError, located
from zstore.extensions.extras import optional
from zstore.geo.pyramid.dataset import PlaceLike
from zstore.geo.rasters.files import WindowGrid
from zstore.geo.rasters.hdf5_headers import INTERNAL
from zstore.geo.rasters.netcdf import KEPT, UNLIMITED, default_fill
from zstore.geo.rasters.new_file import check_new_file, make_file
from zstore.jobs.chunks import source_of
from zstore.jobs.how import How, HowWords, long_call
from zstore.jobs.plan import Estimate, Plan, Unit
from zstore.jobs.runner import Runner
from zstore.jobs.source import Source, all_but_lost
from zstore.model import v2
from zstore.model.document import plain
from zstore.model.grid import RegularGrid
from zstore.model.json_attributes import parse_fill
from zstore.nodes.array import Array
from zstore.nodes.group import Group, readable_members
from zstore.nodes.open import open as open_node
from zstore.nodes.zarr_names import inner_codecs, split_codecs
from zstore.storage.kinds import NETCDF
from zstore.storage.url import with_storage_options

# The level of deflate where the array's codecs say none.
DEFLATE_LEVEL = 4
CLASSIC_ENDING = ".nc3"
# HDF5 takes no chunk of 4 GiB.
CHUNK_SIZE = 1 << 31
CHECKSUMS = frozenset(("crc32c", "crc32", "adler32", "fletcher32"))
# Attributes whose values are items of the variable.
OF_ITEMS = frozenset(("flag_values", "flag_masks", "valid_min", "valid_max", "valid_range", "missing_value"))
WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
NUMBERS = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))
# numpy's units of time, in CF's words.
TIME_UNITS = {
    "ns": "nanoseconds",
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "D": "days",
}


@long_call(
    resume="a file appears whole or not at all, and nothing of it is kept",
    if_exists="it writes one file",
)
@with_storage_options
def zarr_to_netcdf(
    source: Array | Group | PlaceLike,
    target: str | os.PathLike[str],
    *,
    compress: str | None = "auto",
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Path:
    """The path of a NetCDF-4 file made from a group and all groups below it, or from an array.

    Packing, times, grid mappings, chunks, checksums and unlimited dimensions stay as they are; a dimension is
    one of the nearest group above with as many items of that name. The file appears once whole.
    `netcdf_to_zarr` makes of it what was there, but for codecs, shards and byte orders: types and attributes
    that NetCDF has no form for are in the attributes `_zarr`.

    compress  "auto": deflate where the array is compressed, by its level if that is deflate's; "deflate" or
              "deflate:9": all arrays; None: no array

    Raises
        NotFoundError: there is no such source.
        ChangedError: an array was written to meanwhile; no file appears.
        StoreError: the target is there already (unless `overwrite`), cannot be written, or has another ending
            than a NetCDF file's.
        UnsupportedError: h5netcdf is missing, a data type that NetCDF has nothing for, two lengths of one
            dimension in a group, or another compression than deflate, which not all readers have.
        MetadataError: `_FillValue` is no value of an array's data type.
    """
    how = How(**words)
    with optional("NetCDF-4 files can be written only with h5netcdf", "netcdf"):
        import h5netcdf
    path = check_new_file(target, NETCDF, how)
    if path.suffix.lower() == CLASSIC_ENDING:
        said = f"{path.suffix!r} is the ending of classic NetCDF"
        raise StoreError(f"{said}; expected .nc, as in `zstore convert SOURCE NAME.nc`", path=str(path))
    level = _level_of(compress)
    node = source if isinstance(source, Array | Group) else open_node(source, mode="r")
    members = _members(node)

    def write(names: Sequence[str]) -> Path:
        kept = {name: one for name, one in members.items() if isinstance(one, Group) or name in names}
        return _write(h5netcdf, _NetcdfFile.plan(kept, level), path, how)

    read = {name: [source_of(one)] for name, one in members.items() if isinstance(one, Array)}
    return all_but_lost(read, write)


def _members(node: Array | Group) -> dict[str, Array | Group]:
    """The nodes of a file by their paths; those that cannot be read are left out."""
    if isinstance(node, Array):
        return {node.basename or "data": node}
    return {"": node, **dict(readable_members(node, None, is_decoded=True))}


def _write(h5netcdf: ModuleType, file: _NetcdfFile, path: Path, how: How) -> Path:
    """The path of a file, which appears once whole."""
    plan = file.plan_of_windows

    def make(scratch: Path, runner: Runner, tell: Callable[[int], None]) -> Path:
        made = scratch / "made.nc"
        try:
            with h5netcdf.File(made, "w") as opened:
                file.define(opened)

                def take(unit: Unit, items: Items) -> None:
                    name, window = plan.box(unit)
                    file.variables[name].put(opened, window, items)
                    tell(volume(window))

                # In order, so that equal arrays make equal files.
                runner.run(plan, path.stem, take, is_in_order=True)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"file cannot be written: {error}", path=str(path)) from error
        return made

    sources = plan.sources.values()
    cell_count = sum(prod(one.shape) for one in sources)
    return make_file(
        path,
        how,
        make,
        sources,
        unit_size=plan.unit_size(),
        cell_count=cell_count,
        estimate=plan.estimate,
    )


def _level_of(compress: str | None) -> int | str | None:
    """The level of deflate for all arrays; "auto": each array's own; None: no compression."""
    if compress is None or compress == "auto":
        return compress
    name, _, level = compress.partition(":")
    if name in ("deflate", "zlib", "gzip") and (not level or (level.isdecimal() and int(level) <= 9)):
        return int(level or DEFLATE_LEVEL)
    expected = "expected deflate or deflate:0 to deflate:9, which all readers of NetCDF-4 have"
    raise UnsupportedError(f"compress is {compress!r}; {expected}")


@dataclass(frozen=True)
class _NetcdfWindows(Plan[Items]):
    """The reading of arrays, window by window: (number of an array, number of a window)."""

    grids: tuple[WindowGrid, ...]
    sources: Mapping[str, Source]

    def units(self) -> Iterator[Unit]:
        for at, grid in enumerate(self.grids):
            for number in range(prod(grid.counts)):
                yield at, number

    def box(self, unit: Unit) -> tuple[str, Box]:
        """(the name of an array, a window in it)."""
        at, number = unit
        return self.grids[at].names[0], self.grids[at].window(number)

    def make(self, unit: Unit) -> Items:
        """Read a window."""
        name, window = self.box(unit)
        return self.sources[name].read(window)

    def unit_size(self) -> int:
        """The most bytes of memory for a window: as the array has it, and as the file does."""
        sizes = (2 * prod(grid.lengths) * self.sources[grid.names[0]].item_size for grid in self.grids)
        return max(sizes, default=0)

    def estimate(self, at_once: int) -> Estimate:
        """The estimate of writing the file, with this number of windows at a time."""
        size = sum(prod(one.shape) * one.item_size for one in self.sources.values())
        count = sum(1 for _ in self.units())
        return Estimate(
            unit_count=count,
            read_size=size,
            write_size=size,
            request_count=sum(prod(one.counts) for one in self.sources.values()),
            memory_size=min(at_once, count) * self.unit_size(),
        )


class _NetcdfAttributes(NamedTuple):
    """The attributes of a node: those of a file, and those whose JSON is kept beside them."""

    written: dict[str, Any]
    kept: dict[str, Any]

    def put(self, node: Any, kept: Mapping[str, Any]) -> None:
        """Set the attributes of an open group or variable, with those that are kept as JSON."""
        for name, value in self.written.items():
            node.attrs[name] = value
        if self.kept or kept:
            document = {**kept, **({"attributes": self.kept} if self.kept else {})}
            node.attrs[KEPT] = _text(json.dumps(document))


@dataclass(frozen=True)
class _NetcdfFile:
    """One file to write: its groups' attributes and dimensions, and its variables by their paths."""

    groups: Mapping[str, _NetcdfAttributes]
    dimensions: Mapping[str, Mapping[str, int | None]]
    lengths: Mapping[str, Mapping[str, int]]
    variables: Mapping[str, _NetcdfVariable]

    @classmethod
    def plan(cls, members: Mapping[str, Array | Group], level: int | str | None) -> _NetcdfFile:
        own = {path: one.attrs.asdict() for path, one in members.items() if isinstance(one, Group)}
        attributes = own or {"": dict[str, Any]()}
        arrays = {path: one for path, one in members.items() if isinstance(one, Array)}
        unlimited = {path: set(said.pop(UNLIMITED, ())) for path, said in attributes.items()}
        lengths: dict[str, dict[str, int]] = {path: {} for path in attributes}
        variables = dict[str, _NetcdfVariable]()
        # Groups before what is in them.
        for path, array in sorted(arrays.items(), key=lambda item: item[0].count("/")):
            with located(array.store.url, array.path):
                variables[path] = _NetcdfVariable.of(path, array, level)
                _find_dimensions(variables[path], arrays, lengths)
        dimensions = {
            path: {name: None if name in unlimited[path] else length for name, length in own.items()}
            for path, own in lengths.items()
        }
        groups = {path: _split(said, None) for path, said in attributes.items()}
        return cls(groups, dimensions, lengths, variables)

    @once
    def plan_of_windows(self) -> _NetcdfWindows:
        """The plan of all windows: whole stored objects, which are whole chunks of the file."""
        sources = {path: source_of(one.array) for path, one in self.variables.items()}
        grids = []
        for path, source in sources.items():
            own = source.grid.chunk_shape
            chunks = self.chunks(path) or own
            unit = tuple(lcm(a, b) for a, b in zip(own, chunks, strict=True))
            grids.append(WindowGrid.cut((path,), source.shape, unit, own, source.shape, source.item_size))
        return _NetcdfWindows(tuple(grids), sources)

    def chunks(self, path: str) -> Shape | None:
        """The lengths of a variable's chunks in the file; None: its items lie in one row."""
        one = self.variables[path]
        shape = one.array.shape
        is_unlimited = any(self._holder(path, name)[1] is None for name in one.dimensions)
        if not shape or (one.is_whole and not is_unlimited):
            return None
        cut = [
            max(1, chunk if is_unlimited else min(chunk, n))
            for chunk, n in zip(one.chunks, shape, strict=True)
        ]
        for axis in range(len(cut)):
            while cut[axis] > 1 and prod(cut) * one.form.dtype.itemsize > CHUNK_SIZE:
                cut[axis] = -(-cut[axis] // 2)
        return tuple(cut)

    def _holder(self, path: str, dimension: str) -> tuple[str, int | None]:
        """(the group that has the dimension of a variable, its length there, None if it is unlimited)."""
        group = path.rpartition("/")[0]
        while dimension not in self.dimensions[group]:
            group = group.rpartition("/")[0]
        return group, self.dimensions[group][dimension]

    def define(self, file: Any) -> None:
        """Make the groups, dimensions and variables of an open file, without items."""
        for path, attributes in self.groups.items():
            group = file.create_group(path) if path else file
            attributes.put(group, {})
            for name, length in self.dimensions[path].items():
                group.dimensions[name] = length
                if length is None:
                    group.resize_dimension(name, self.lengths[path][name])
        for path, one in self.variables.items():
            above, _, name = path.rpartition("/")
            with located(one.array.store.url, one.array.path):
                one.define(file[above] if above else file, name, self.chunks(path))


def _find_dimensions(
    variable: _NetcdfVariable, arrays: Mapping[str, Array], lengths: dict[str, dict[str, int]]
) -> None:
    """Add the dimensions of a variable that no group above has to its own group.

    Raises
        UnsupportedError: the group has one of another length.
    """
    own = variable.path.rpartition("/")[0]
    for name, length in zip(variable.dimensions, variable.shape, strict=True):
        coordinate = arrays.get(f"{own}/{name}".lstrip("/"))
        is_own = coordinate is not None and coordinate.ndim == 1
        group, is_above = own, False
        while group and not is_above and not is_own and name not in lengths[own]:
            group = group.rpartition("/")[0]
            is_above = lengths[group].get(name) == length
        there = length if is_above else lengths[own].setdefault(name, length)
        if there != length:
            raise UnsupportedError(
                f"dimension {name!r} has {length} items, and {there} of another array in the group; "
                "NetCDF has one length for a dimension of a group"
            )


class _NetcdfForm(NamedTuple):
    """The form of an array's items in a file.

    dtype       of the items
    attributes  that go with it
    characters  the number of characters of texts of fixed length, which have a dimension of their own
    is_same     whether `netcdf_to_zarr` makes the array's data type of it
    """

    dtype: np.dtype[Any]
    attributes: Mapping[str, Any] = {}
    characters: int | None = None
    is_same: bool = True

    @classmethod
    def of(cls, array: Array) -> _NetcdfForm:
        """The form of an array.

        Raises
            UnsupportedError: NetCDF has none.
        """
        import h5py

        dtype = array.dtype
        name = array.model.data_type.name
        if dtype.kind == "b":
            return cls(np.dtype("i1"), {"dtype": "bool"}, is_same=False)
        if dtype == np.float16:
            return cls(np.dtype("f4"), is_same=False)
        if dtype.str[1:] in NUMBERS or dtype.str[1:] in ("c8", "c16"):
            return cls(dtype)
        if dtype.kind in "mM" and (count := np.datetime_data(dtype))[0] in TIME_UNITS and count[1] == 1:
            units = TIME_UNITS[count[0]]
            if dtype.kind == "m":
                return cls(np.dtype("i8"), {"units": units}, is_same=False)
            calendar = {"units": f"{units} since 1970-01-01", "calendar": "proleptic_gregorian"}
            return cls(np.dtype("i8"), calendar, is_same=False)
        if dtype.kind == "S" and dtype.itemsize == 1:
            return cls(dtype)
        if dtype.kind == "S" and dtype.itemsize:
            return cls(np.dtype("S1"), characters=dtype.itemsize, is_same=False)
        if dtype.kind in "UT" or name == "string":
            return cls(h5py.string_dtype(), is_same=name == "string")
        if dtype.names and {dtype[field].str[1:] for field in dtype.names} <= NUMBERS:
            return cls(dtype)
        raise UnsupportedError(f"data type is {name!r}, {dtype}, for which NetCDF has none")


@dataclass(frozen=True)
class _NetcdfVariable:
    """One variable to write.

    dimensions  the names of the dimensions, without that of characters
    fill        the value of `_FillValue`; None: it has none
    kept        the facts of the array that a variable cannot say, as in a document of Zarr v3
    """

    path: str
    array: Array
    form: _NetcdfForm
    dimensions: tuple[str, ...]
    attributes: _NetcdfAttributes
    fill: Any
    kept: Mapping[str, Any]
    filters: Mapping[str, Any]

    @classmethod
    def of(cls, path: str, array: Array, level: int | str | None) -> _NetcdfVariable:
        form, attributes = _NetcdfForm.of(array), array.attrs.asdict()
        attributes.pop(v2.DIMENSIONS, None)
        data_type, kept = array.model.data_type, dict[str, Any]()
        if array.dims is None or None in array.dims:
            kept["dimension_names"] = array.dims
        if not form.is_same:
            kept["data_type"] = data_type.describe()
        stated = fill = attributes.pop("_FillValue", None)
        if array.zarr_format == 2 and array.dtype.kind in "iufmM":
            fill = array.fill_value  # which xarray takes for `_FillValue`
        elif fill is not None:
            fill = parse_fill(fill, array.dtype, path)
        usual, own = default_fill(fill, data_type, array.zarr_format), array.fill_value
        if data_type.fill_bits(own) != data_type.fill_bits(usual):
            kept["fill_value"] = data_type.render_fill(own, 3)
        made, added = _split(attributes, array.dtype), list(form.attributes)
        for name, value in form.attributes.items():
            if name in attributes:
                made.kept[name] = attributes[name]
            made.written[name] = _text(value)
        if array.zarr_format == 2 and stated is not None:
            made.kept["_FillValue"] = stated
        if array.dtype.kind in "mM" and fill is None:
            fill = np.array("NaT", array.dtype)[()]
            added.append("_FillValue")
        if added:
            kept["added"] = added
        dimensions = list[str]()
        for axis, length in enumerate(array.shape):
            dimension = None if array.dims is None else array.dims[axis]
            if dimension is None:
                dimension = f"dim_{length}"
                while dimension in dimensions:
                    dimension += "_"
            dimensions.append(dimension)
        return cls(path, array, form, tuple(dimensions), made, fill, kept, _filters(array, form, level))

    @property
    def shape(self) -> Shape:
        """The lengths of the dimensions."""
        return self.array.shape

    @property
    def chunks(self) -> Shape:
        """The lengths of the array's inner chunks."""
        array = self.array
        return array.chunks if isinstance(array.model.grid, RegularGrid) else array.model.grid.chunk_shape

    @property
    def is_whole(self) -> bool:
        """Whether the items are one chunk that is stored as it is, or texts of any length."""
        is_one = all(chunk >= length for chunk, length in zip(self.chunks, self.array.shape, strict=True))
        return is_one and not self.filters

    def define(self, group: Any, name: str, chunks: Shape | None) -> None:
        """Make the variable in an open group."""
        form, dimensions, fill = self.form, self.dimensions, self.fill
        if form.characters is not None:
            dimensions = (*dimensions, f"string{form.characters}")
            if dimensions[-1] not in group.dims:
                group.dimensions[dimensions[-1]] = form.characters
            chunks, fill = None if chunks is None else (*chunks, form.characters), None
        elif fill is not None and self.array.dtype.kind in "mM":
            fill = np.asarray(fill).astype(self.array.dtype).view("i8")[()]
        dtype: Any = form.dtype
        if dtype.names is not None:
            dtype = group.create_cmptype(dtype, f"{name}_t")
        made = group.create_variable(
            name, dimensions, dtype, chunks=chunks, fillvalue=fill, **(self.filters if self.shape else {})
        )
        self.attributes.put(made, self.kept)

    def put(self, file: Any, window: Box, items: Items) -> None:
        """Write a window of items to the open file."""
        form = self.form
        if self.array.dtype.kind in "mM":
            items = items.view("i8")
        elif form.characters is not None:
            items = np.ascontiguousarray(items).view("S1").reshape(*items.shape, form.characters)
            window = (*window, slice(0, form.characters))
        elif form.dtype.kind == "O":
            items = np.array([str(item) for item in items.ravel().tolist()], object).reshape(items.shape)
        file[self.path]._h5ds[window] = items.astype(form.dtype, copy=False)


def _filters(array: Array, form: _NetcdfForm, level: int | str | None) -> dict[str, Any]:
    """The filters of a variable in h5netcdf's words: deflate and checksums, as the array has them."""
    if form.dtype.kind == "O":
        return {}
    codecs = array.model.codecs
    compressors = split_codecs(inner_codecs(codecs) or codecs)[2]
    names = {codec.name.removeprefix("numcodecs.") for codec in compressors}
    made: dict[str, Any] = {"fletcher32": True} if names & CHECKSUMS else {}
    if level is None or (level == "auto" and not names - CHECKSUMS):
        return made
    if level == "auto":
        own = [one.configuration.get("level") for one in compressors if one.name.endswith(("zlib", "gzip"))]
        level = own[0] if own and own[0] in range(10) else DEFLATE_LEVEL
    return {**made, "compression": "gzip", "compression_opts": level, "shuffle": form.dtype.itemsize > 1}


def _split(attributes: Mapping[str, Any], dtype: np.dtype[Any] | None) -> _NetcdfAttributes:
    """The attributes that NetCDF can hold as they are, and those that it would change."""
    written, kept = dict[str, Any](), dict[str, Any]()
    for name, value in attributes.items():
        is_free = name not in INTERNAL and "/" not in name
        form = _value(value, dtype if name in OF_ITEMS else None) if is_free and name != KEPT else None
        if form is not None:
            written[name] = form
        if form is None or (isinstance(value, list) and len(value) == 1):
            kept[name] = plain(value)
    return _NetcdfAttributes(written, kept)


def _value(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """An attribute's value as NetCDF has it; None if it has nothing for it.

    dtype  of the variable's items, for values that are such items
    """
    if isinstance(value, str):
        if dtype is not None and dtype.kind == "f" and value in WORDS:
            return dtype.type(WORDS[value])
        return None if "\0" in value else _text(value)
    many = value if isinstance(value, list) else [value]
    if many and all(isinstance(one, str) for one in many):
        return None if any("\0" in one for one in many) else many
    if not many or not all(type(one) in (int, float) for one in many):
        return None
    if dtype is not None and dtype.kind in "iuf":
        try:
            typed = np.array(many).astype(dtype)
            if typed.tolist() == many:
                return typed if isinstance(value, list) else typed[0]
        except (OverflowError, ValueError):
            pass
    if all(type(one) is int for one in many):
        kinds = [kind for kind in ("i4", "i8", "u8") if all(_fits(one, kind) for one in many)]
        if not kinds:
            return None
        return np.array(many, kinds[0]) if isinstance(value, list) else np.dtype(kinds[0]).type(value)
    return np.array(many, "f8") if isinstance(value, list) else np.float64(value)


def _fits(number: int, kind: str) -> bool:
    limits = np.iinfo(kind)
    return bool(limits.min <= number <= limits.max)


def _text(value: str) -> Any:
    """A text as characters, as older readers want it, if it is ASCII; else as a string."""
    import h5py

    if not value:
        return h5py.Empty("S1")
    return np.bytes_(value) if value.isascii() else value
