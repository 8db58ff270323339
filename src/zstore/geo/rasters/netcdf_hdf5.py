"""NetCDF-4 and HDF5 files, with the dimensions that the NetCDF library gives them.

Headers are parsed from the file's bytes where these are of the usual form (`HeaderGroup`), else read by h5py.

Spec
    NetCDF User's Guide, "Interoperability with HDF5"; "HDF5 Dimension Scale Specification".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from struct import error as StructError
from typing import Any

import numpy as np

from zstore.base.boxes import Box, Items, lengths, whole
from zstore.base.once import once
from zstore.errors import StoreError, UnsupportedError
from zstore.extensions.extras import optional
from zstore.geo.rasters.hdf5_headers import (
    INTERNAL,
    Attribute,
    Changes,
    Hdf5Headers,
    Hdf5Object,
    Row,
    UnusualError,
)

# What h5py raises of files that say what it did not think of.
DAMAGES = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError)
# Of a dataset that is the scale of a dimension; and of one that is nothing else.
SCALE = b"DIMENSION_SCALE"
NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable."
# What the NetCDF library puts before the name of a variable that a dimension has, too.
HIDDEN = "_nc4_non_coord_"


@dataclass(frozen=True)
class NetcdfDimension:
    """A dimension: its length, whether it can grow, and the NetCDF library's number of it."""

    name: str
    length: int
    is_unlimited: bool = False
    number: int | None = None


class Hdf5Variable:
    """A dataset as a variable of NetCDF, whose items are read by windows.

    shape    the lengths of its dimensions; along one that can grow the dataset may have fewer items
    content  of its header but for names: variables with equal ones are alike; None: it is not known
    """

    def __init__(self, dataset: Any, path: str, along: list[NetcdfDimension]) -> None:
        self.dataset, self._path = dataset, path
        self.dimensions = tuple(dimension.name for dimension in along)
        self.shape = tuple(dimension.length for dimension in along)

    @property
    def content(self) -> tuple[Any, ...] | None:
        return None

    @once
    def attrs(self) -> dict[str, Any]:
        """Those that are not HDF5's own."""
        return _attributes(self.dataset, f"/{self._path}")

    @once
    def dtype(self) -> Any:
        return self.dataset.dtype

    @property
    def has_items(self) -> bool:
        """Whether it has a dataspace."""
        return self.dataset.shape is not None

    @property
    def chunks(self) -> tuple[int, ...] | None:
        chunks: tuple[int, ...] | None = self.dataset.chunks if self.shape else None
        return chunks

    def __getitem__(self, window: Any) -> Any:
        return read_box(self.dataset, whole(self.shape) if window is ... else window)


class Hdf5Group:
    """A group; its `groups`, `variables`, `attrs` and `dimensions` by name.

    node     h5py's group
    numbers  how many dimensions of the file have a scale, and how many were named for want of one

    Raises
        UnsupportedError: a link leads to nothing or to a group above it, a variable has scales for some of
            its dimensions only, or an attribute is a reference.
    """

    def __init__(
        self, node: Any, path: str, above: tuple[Hdf5Group, ...] = (), numbers: Counter[str] | None = None
    ) -> None:
        self.node, self.path, self.above = node, path, above
        self._numbers = Counter[str]() if numbers is None else numbers
        self.attrs = self._own_attributes()
        datasets, groups = self._members()
        self.dimensions = {name: one.dimension(name) for name, one in datasets.items() if one.is_scale}
        self._numbers["scales"] += len(self.dimensions)
        self._name_others([one for one in datasets.values() if one.is_without_scales])
        self.variables: Mapping[str, Hdf5Variable] = {
            name.replace(HIDDEN, ""): self._variable(name, one)
            for name, one in datasets.items()
            if one.is_variable
        }
        self.groups: Mapping[str, Hdf5Group] = {
            name: self._below(group, _join(path, name)) for name, group in groups.items()
        }

    @property
    def growing(self) -> list[str]:
        """The names of its dimensions that can grow."""
        return [name for name, one in self.dimensions.items() if one.is_unlimited]

    def is_elsewhere(self, below: Hdf5Group) -> bool:
        """Whether a group below it is one of another file."""
        return file_number(below.node) != file_number(self.node)

    def _own_attributes(self) -> dict[str, Any]:
        return _attributes(self.node, self.path or "/")

    def _below(self, node: Any, path: str) -> Hdf5Group:
        return Hdf5Group(node, path, (*self.above, self), self._numbers)

    def _members(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(datasets, groups) by name; data types that have names are no members of NetCDF's groups."""
        import h5py

        datasets, groups = {}, {}
        upper = [_address(group.node) for group in (*self.above, self)]
        for name in self.node:
            try:
                child = self.node[name]
            except (KeyError, OSError) as error:
                raise self._fail(name, f"is a link that leads to nothing: {error}") from error
            if isinstance(child, h5py.Group):
                if _address(child) in upper:
                    raise self._fail(name, "is a link that leads to a group above it; expected one below")
                groups[name] = child
            elif isinstance(child, h5py.Dataset):
                datasets[name] = _Dataset(child)
        return datasets, groups

    def _fail(self, name: str, what: str) -> UnsupportedError:
        path = _join(self.path, name)
        return UnsupportedError(f"{path!r} {what}", path=self.node.file.filename, key=path)

    def _name_others(self, datasets: list[Any]) -> None:
        """Name the lengths of datasets without scales: as many dimensions of one as a dataset has of it."""
        lengths = Counter[int]()
        for one in datasets:
            lengths |= Counter(one.shape)
        fixed = Counter(one.length for one in self.dimensions.values() if not one.is_unlimited)
        for length, count in lengths.items():
            for _ in range(fixed[length], count):
                name = f"phony_dim_{self._numbers.total()}"
                self._numbers["named"] += 1
                self.dimensions[name] = NetcdfDimension(name, length)

    def _variable(self, name: str, one: Any) -> Hdf5Variable:
        along = self._along(name, one)
        if len(along) != len(one.shape):
            expected = f"expected {len(one.shape)}, for its shape {one.shape}"
            raise self._fail(name, f"has {len(along)} dimensions; {expected}")
        variable: Hdf5Variable = one.variable(_join(self.path, name), along)
        return variable

    def _along(self, name: str, one: Any) -> list[NetcdfDimension]:
        """The dimensions of a dataset: by number, by scales, as the scale that it is, or by length."""
        if one.is_scale and "_Netcdf4Coordinates" in one.names:
            by_number = {each.number: each for each in reversed([*self._all_dimensions()])}
            return [by_number[number] for number in np.ravel(one.get("_Netcdf4Coordinates")).tolist()]
        if one.scales:
            if not all(map(len, one.scales)):
                raise self._fail(name, "has a scale for some of its dimensions only; expected all or none")
            return [self._dimension_at(name, scales[-1]) for scales in one.scales]
        own = next((each for each in self._all_dimensions() if each.name == name), None)
        if own is not None and len(one.shape) == 1:
            return [own]
        unused, along = [*self.dimensions.values()], []
        for length in one.shape:
            fitting = [each for each in unused if each.length == length]
            if not fitting:
                raise self._fail(
                    name, f"has no dimension of length {length} in its group; expected one, or a scale"
                )
            along.append(fitting[0])
            unused.remove(fitting[0])
        return along

    def _dimension_at(self, name: str, scale: Any) -> NetcdfDimension:
        """The dimension whose scale a reference leads to."""
        target = self._name_of(scale)
        called = target.rpartition("/")[2]
        for dimension in self._all_dimensions():
            if dimension.name == called:
                return dimension
        raise self._fail(name, f"has a scale that is no dimension of its group or those above: {target!r}")

    def _name_of(self, reference: Any) -> str:
        """The path that a reference leads to; "" where it leads to nothing."""
        import h5py

        target = h5py.h5r.get_name(reference, self.node.id) if reference else None
        return (target or b"").decode(errors="surrogateescape")

    def _all_dimensions(self) -> Iterator[NetcdfDimension]:
        """Those of the group, then those of the groups above it."""
        for group in (self, *reversed(self.above)):
            yield from group.dimensions.values()


class Hdf5File(Hdf5Group):
    """A file, opened; what its root group has.

    Raises
        StoreError, UnsupportedError: it is no HDF5 file; as `Hdf5Group`.
    """

    def __init__(self, path: str, file: Any = None) -> None:
        opened = open_hdf5(path, file)
        try:
            super().__init__(opened, "")
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Hdf5File:
        return self

    def __exit__(self, *_: object) -> None:
        self.node.close()


class HeaderGroup(Hdf5Group):
    """A group whose facts are parsed from the file's bytes; variables have no items to read.

    rows   of the root: where items of small variables lie, by their paths
    facts  of the root: what others have made of the file, as far as that holds for all files that have the
           same variables; None where these may be others

    Raises
        UnusualError: only h5py can say what it is.
    """

    rows: Mapping[str, Row]
    facts: dict[Any, Any] | None
    variables: Mapping[str, _HeaderVariable]
    groups: Mapping[str, HeaderGroup]

    def __init__(
        self,
        headers: Hdf5Headers,
        node: Hdf5Object,
        path: str,
        above: tuple[Hdf5Group, ...] = (),
        numbers: Counter[str] | None = None,
    ) -> None:
        self._headers = headers
        super().__init__(node, path, above, numbers)
        del self._headers

    @classmethod
    def of_file(cls, path: str) -> HeaderGroup:
        """The root group of a file."""
        try:
            with Hdf5Headers(path) as headers:
                root = headers.root()
                known = headers.known(root)
                if known is None:
                    made = cls(headers, headers.object(root), "")
                    made.facts = {}
                    made.rows = headers.keep(made, root)
                    return made
                alike: HeaderGroup = known[0]
                made = alike.changed(known[1])
                made.rows = known[2]
                return made
        except (LookupError, ValueError, TypeError, ArithmeticError, StructError) as error:
            raise UnusualError(f"what makes no header: {error}") from error

    def changed(self, changes: Changes) -> HeaderGroup:
        """The group, with attributes in it and below as another file of the series has them."""
        made = copy(self)
        if not changes:
            return made
        if self.node.place in changes:
            made.node = self.node.changed(changes[self.node.place])
            made.attrs = made._own_attributes()
        if changes.keys() != {self.node.place}:
            made.facts = None
            made.variables = {name: one.changed(changes) for name, one in self.variables.items()}
            made.groups = {name: one.changed(changes) for name, one in self.groups.items()}
        return made

    def is_elsewhere(self, below: Hdf5Group) -> bool:
        return False

    def _own_attributes(self) -> dict[str, Any]:
        return _header_attributes(self.node)

    def _below(self, node: Any, path: str) -> Hdf5Group:
        return HeaderGroup(self._headers, node, path, (*self.above, self), self._numbers)

    def _members(self) -> tuple[dict[str, Any], dict[str, Any]]:
        datasets, groups, names = {}, {}, self._headers.names
        for name, address in self.node.links.items():
            node = self._headers.object(address)
            if names.setdefault(address, name) is not name:
                raise UnusualError(f"{name!r} has two names")
            if node.links is not None:
                groups[name] = node
            elif node.shape is not None:
                datasets[name] = _HeaderDataset(self._headers, node)
        return datasets, groups

    def _fail(self, name: str, what: str) -> Any:
        return UnusualError(f"{_join(self.path, name)!r} {what}")

    def _name_of(self, reference: Any) -> str:
        return self._headers.names.get(reference, "")


class _HeaderVariable(Hdf5Variable):
    """A variable of a `HeaderGroup`.

    content  of its header but for names: variables with equal ones are alike; None where an attribute has no
             form in JSON, and is warned of
    """

    has_items = True
    dataset: Hdf5Object

    @once
    def attrs(self) -> dict[str, Any]:
        return _header_attributes(self.dataset)

    @once
    def content(self) -> tuple[Any, ...] | None:
        node = self.dataset
        own = [one for one in node.attributes.values() if one.name not in INTERNAL]
        if not all(one.is_finite or one.name == "_FillValue" for one in own):
            return None
        facts = [
            (one.name, one.items if one.type.dtype is None else (one.type.dtype.str, one.shape, one.data))
            for one in own
        ]
        return (self.dimensions, self.shape, node.chunks, node.type_content, *facts)

    def changed(self, changes: Changes) -> _HeaderVariable:
        """The variable, with attributes as another file of the series has them."""
        if self.dataset.place not in changes:
            return self
        made = copy(self)
        made.dataset = self.dataset.changed(changes[self.dataset.place])
        for name in ("attrs", "content"):
            made.__dict__.pop(name, None)
        return made

    @once
    def dtype(self) -> Any:
        import h5py

        kind = self.dataset.type
        if kind.dtype is not None and kind.dtype.kind != "S":
            return kind.dtype
        if kind.dtype is None and kind.holds != "texts":
            raise UnusualError("items that are references")
        return h5py.string_dtype("utf-8" if kind.is_unicode else "ascii", kind.dtype and kind.dtype.itemsize)


def open_hdf5(path: str, file: Any = None) -> Any:
    """h5py's file, of a path or of an open file.

    Raises
        StoreError: it is no HDF5 file.
    """
    with optional("NetCDF-4 and HDF5 files can be read only with h5py", "netcdf"):
        import h5py
    try:
        return h5py.File(path if file is None else file, "r")
    except OSError as error:
        raise StoreError(f"not an HDF5 file: {error}", path=path) from error


def read_box(dataset: Any, box: Box) -> Items:
    """The items of a box of h5py's dataset, with fill values where it ends before others do."""
    stored: Items = dataset[box or ...]
    if stored.shape == lengths(box):
        return stored
    items = np.full(lengths(box), dataset.fillvalue, dataset.dtype)
    items[tuple(map(slice, stored.shape))] = stored
    return items


class _Dataset:
    """A dataset of h5py, and what its attributes say of dimensions.

    names   of its attributes
    scales  for each dimension, the references to its scales
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.names = self._names()
        self.shape: tuple[int, ...] = dataset.shape or ()
        self.is_scale = self.get("CLASS") == SCALE
        self.is_variable = NO_VARIABLE not in _bytes(self.get("NAME"))
        self.scales = [*self.get("DIMENSION_LIST", ())]
        if self.scales and not any(map(len, self.scales)):
            self.scales = []
        self.is_without_scales = not self.is_scale and not self.scales

    def _names(self) -> Collection[str]:
        return frozenset(self.dataset.attrs)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of one of HDF5's own attributes."""
        return self.dataset.attrs[name] if name in self.names else default

    def variable(self, path: str, along: list[NetcdfDimension]) -> Hdf5Variable:
        """It as a variable along dimensions."""
        return Hdf5Variable(self.dataset, path, along)

    def dimension(self, name: str) -> NetcdfDimension:
        """The dimension whose scale it is; one that can grow is as long as the longest of what has it."""
        length, is_unlimited = self.shape[0], self._largest() == (None,)
        if is_unlimited:
            others = (self._shape_of(one)[axis] for one, axis in self.get("REFERENCE_LIST", ()))
            length = max([length, *others])
        number = self.get("_Netcdf4Dimid")
        return NetcdfDimension(name, int(length), is_unlimited, None if number is None else int(number))

    def _largest(self) -> Any:
        return self.dataset.maxshape

    def _shape_of(self, reference: Any) -> Any:
        """The shape of the dataset that a reference leads to."""
        import h5py

        return h5py.h5r.dereference(reference, self.dataset.id).shape


class _HeaderDataset(_Dataset):
    """A dataset of a `HeaderGroup`."""

    def __init__(self, headers: Hdf5Headers, node: Hdf5Object) -> None:
        self._headers, self.attributes = headers, node.attributes
        super().__init__(node)

    def _names(self) -> Collection[str]:
        return self.attributes

    def get(self, name: str, default: Any = None) -> Any:
        one = self.attributes.get(name)
        return default if one is None else _header_value(one)

    def variable(self, path: str, along: list[NetcdfDimension]) -> Hdf5Variable:
        made = _HeaderVariable(self.dataset, path, along)
        _ = made.attrs  # says what is left to h5py
        if self.dataset.shape == made.shape:
            self._headers.add_row(path, self.dataset)
        return made

    def _largest(self) -> Any:
        return self.dataset.largest

    def _shape_of(self, reference: Any) -> Any:
        return self._headers.object(reference).shape


def _attributes(node: Any, where: str) -> dict[str, Any]:
    return {name: _attribute(node.attrs, name, where) for name in node.attrs if name not in INTERNAL}


def _attribute(attrs: Any, name: str, where: str) -> Any:
    """An attribute as NetCDF has it: texts decoded, several in a list, one value for an array of one.

    Raises
        UnsupportedError: it is a reference, or of a type that h5py does not read.
    """
    import h5py

    try:
        value = attrs[name]
    except DAMAGES as error:
        message = f"attribute {name!r} of {where!r} is none that h5py can read: {error}"
        raise UnsupportedError(message) from error
    if isinstance(value, h5py.Empty):
        text = h5py.check_string_dtype(value.dtype)
        return b"" if text is not None and text.length == 1 else np.array([], value.dtype)
    is_array = isinstance(value, np.ndarray)
    if isinstance(value, h5py.h5r.Reference) or (is_array and h5py.check_ref_dtype(value.dtype)):
        raise UnsupportedError(f"attribute {name!r} of {where!r} is a reference; expected numbers or text")
    if is_array and value.dtype.kind != "S" and h5py.check_string_dtype(value.dtype) is not None:
        value = value.tolist()
    return _plain_value(value, lambda: attrs.get_id(name).dtype.itemsize)


def _plain_value(value: Any, item_size: Callable[[], int]) -> Any:
    """Numbers and texts as NetCDF has them; `item_size` says how many bytes a text may have."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        value = [_text(one) for one in value.flat] if value.dtype.itemsize > 1 else value.tolist()
    if isinstance(value, np.ndarray | list):
        return value[0] if len(value) == 1 else value
    # One character is an item of type "char", a longer text is text, however many of its bytes are NUL.
    if isinstance(value, bytes) and (len(value) > 1 or item_size() > 1):
        return _text(value)
    return value


def _header_attributes(node: Hdf5Object) -> dict[str, Any]:
    return {name: _header_value(one) for name, one in node.attributes.items() if name not in INTERNAL}


def _header_value(one: Attribute) -> Any:
    """An attribute as NetCDF has it; of HDF5's own, references as addresses."""
    if one.type.holds == "texts":
        texts = [*(one.items or ())]
        return texts[0] if len(texts) == 1 else texts
    if one.name in INTERNAL:
        return one.items if one.type.dtype is None else one.value()
    if one.shape is None and one.type.dtype is not None:
        return b"" if one.type.dtype == "S1" else np.array([], one.type.dtype)
    return _plain_value(one.value(), lambda: len(one.data))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _bytes(value: Any) -> bytes:
    """A text that may be kept as bytes or as a string of variable length."""
    return value if isinstance(value, bytes) else str(value or "").encode()


def file_number(node: Any) -> int:
    """HDF5's number of the file that contains a group or a dataset."""
    import h5py

    number: int = h5py.h5o.get_info(node.id).fileno
    return number


def _address(node: Any) -> tuple[int, int]:
    """The number of the file that contains a group, and its address there."""
    import h5py

    found = h5py.h5o.get_info(node.id)
    return found.fileno, found.addr


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
