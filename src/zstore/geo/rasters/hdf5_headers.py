"""The headers of NetCDF-4 files, parsed from their bytes: what h5py says of them, in a tenth of the time.

Files are taken as the NetCDF libraries write them: in the newer of HDF5's formats, where metadata have
checksums and things have the order in which they were made. All else is `UnusualError`, and left to h5py;
so is damage, which h5py names.

Spec
    "HDF5 File Format Specification Version 3.0".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import product
from math import prod
from struct import Struct, unpack_from
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from zstore._ext.codecs.native import checksum_lookup3
from zstore.base.once import once

SIGNATURE = b"\x89HDF\r\n\x1a\n"
NOWHERE = (1 << 64) - 1
# Most headers are no longer.
USUAL_SIZE = 512
# Kinds of messages in an object's header: those that are read, and those that say nothing of values.
SPACE, LINKS, TYPE, LINK, LAYOUT, FILTERS, ATTRIBUTE, CONTINUATION, ATTRIBUTES = 1, 2, 3, 6, 8, 11, 12, 16, 21
LEFT_OUT = frozenset((0, 4, 5, 10, 13, 18, 22))
# Of floats, by their size: where sign, exponent and mantissa lie.
FLOATS = {
    4: (b"\x1f\x00", bytes((0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0))),
    8: (b"\x3f\x00", bytes((0, 0, 64, 0, 52, 11, 0, 52, 255, 3, 0, 0))),
}
# Attributes that are HDF5's or the NetCDF library's own.
INTERNAL = frozenset(
    [
        *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
        *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties", "_nc3_strict"),
    ]
)
Shape: TypeAlias = tuple[int, ...]
T = TypeVar("T")
# Whose bytes may be others in another file of a series: the address of the object, the name of the attribute,
# and which of its texts; without a name, the object's items.
Owner: TypeAlias = tuple[int, str, int]
Changes: TypeAlias = dict[int, dict[tuple[str, int], bytes]]

# Forms of files, those first that were met last; a larger one (bytes) is not kept.
MOST_FORMS, FORM_SIZE = 16, 1 << 17
_forms: list[FileForm[Any]] = []

# The most parts of a header, and blocks of a heap.
MOST_PARTS = 4096
# The most bytes of a dataset that are read whole, and the most chunks.
ROW_SIZE, MOST_CHUNKS = 1 << 16, 64
# The most bytes of items that are read with the header, as files of a series have many of them alike, and of
# those that stay in memory where they have not.
SHARED_SIZE, OWN_SIZE = 1 << 14, 1 << 10


class UnusualError(Exception):
    """A header that is left to h5py."""


class ItemType(NamedTuple):
    """The type of items.

    dtype  of numbers, and of texts of fixed length
    holds  what items of another type are: "texts", "references", or "axes": references with a number each
    """

    dtype: np.dtype[Any] | None
    holds: str = ""
    is_unicode: bool = False


class Attribute(NamedTuple):
    """An attribute: its items as they are stored; without a shape, it has none.

    items      of those that lie elsewhere: the texts; for each item the addresses that it leads to; of axes,
               (address, axis)
    is_finite  whether there is no NaN and no infinity among them
    """

    name: str
    type: ItemType
    shape: Shape | None
    data: bytes
    items: tuple[Any, ...] | None = None
    is_finite: bool = True

    def value(self) -> Any:
        """Its numbers or texts of fixed length, as h5py gives them."""
        dtype = self.type.dtype
        if dtype is None or self.shape is None:
            raise UnusualError(f"attribute {self.name!r} has no plain items")
        items = np.frombuffer(self.data, dtype, prod(self.shape)).reshape(self.shape)
        return items[()] if self.shape == () else items.copy()

    def changed(self, stored: Mapping[int, bytes]) -> Attribute:
        """The attribute with other texts, by their numbers, or with other data."""
        if self.items is None:
            return _valued(self._replace(data=stored[0]))
        return self._replace(
            items=tuple(_text(stored[n]) if n in stored else one for n, one in enumerate(self.items))
        )


class Row(NamedTuple):
    """Items of a small dataset, stored as they are.

    places  the address of each box of items, and the indices at which it begins
    box     the lengths of a box
    shape   the lengths of all boxes together
    items   the first ones, as they were when the header was read, if it has a single box, and they are few
    """

    places: tuple[tuple[int, Shape], ...]
    box: Shape
    shape: Shape
    dtype: np.dtype[Any]
    items: bytes | None = None

    def kept(self, shape: Shape) -> np.ndarray[Any, Any] | None:
        """The items of an array of this shape, if they were read with the header."""
        if self.items is None:
            return None
        return np.frombuffer(self.items, self.dtype).reshape((*shape[:1], *self.box[1:]))

    def read(self, path: str) -> np.ndarray[Any, Any]:
        """The items.

        Raises
            OSError, ValueError: there is no such file, or not as many.
        """
        file, count = os.open(path, os.O_RDONLY | os.O_CLOEXEC), prod(self.box)
        size = count * self.dtype.itemsize
        try:
            first, end = self.places[0][0], self.places[-1][0] + size
            # Mostly they lie side by side, in this order.
            stretch = os.pread(file, end - first, first) if end - first <= ROW_SIZE else b""
            if len(self.places) == 1:
                return np.frombuffer(stretch, self.dtype, count).reshape(self.box)
            items = np.empty(self.shape, self.dtype)
            for address, begin in self.places:
                at = address - first
                is_here = 0 <= at <= len(stretch) - size
                part = stretch[at : at + size] if is_here else os.pread(file, size, address)
                sides = tuple(slice(one, one + n) for one, n in zip(begin, self.box, strict=True))
                items[sides] = np.frombuffer(part, self.dtype, count).reshape(self.box)
            return items
        finally:
            os.close(file)


class Hdf5Object:
    """A group or a dataset.

    place       the address of its header
    links       the addresses of what a group has, by name; None: it is no group
    attributes  by name
    shape, largest, type, chunks
                of a dataset: its lengths, those that it can grow to (None: without end), its items' type, its
                chunks' lengths; without a shape, it is none
    address     of its items, or of its chunks' index
    """

    def __init__(
        self,
        place: int,
        messages: dict[int, bytes],
        attributes: list[Attribute],
        links: dict[str, int] | None,
    ) -> None:
        self.place, self.links = place, links
        self.attributes = {one.name: one for one in attributes}
        self.shape: Shape | None = None
        if links is None and LAYOUT in messages:
            self.shape, self.largest = _space(messages[SPACE])
            self.type_content = messages[TYPE]
            self.type = _type(messages[TYPE])[0]
            self.chunks, self.address = _layout(messages[LAYOUT])
            self.has_filters = FILTERS in messages
            if self.shape is None or (self.chunks is not None and len(self.chunks) != len(self.shape)):
                raise UnusualError("a dataset without a shape")

    def changed(self, stored: Mapping[tuple[str, int], bytes]) -> Hdf5Object:
        """The object with other items of some attributes, by their names and numbers."""
        by_name: dict[str, dict[int, bytes]] = {}
        for (name, number), data in stored.items():
            by_name.setdefault(name, {})[number] = data
        made = copy(self)
        told = {name: self.attributes[name].changed(items) for name, items in by_name.items() if name}
        made.attributes = {**self.attributes, **told}
        return made


class HeaderBlock:
    """A stretch of a file that was read for its headers, with the parts that are the file's own.

    spots  stretches of it, by begin, that other files of the series may have otherwise: (end, whose they
           are); addresses are nobody's, and what nobody reads is None's
    used   the stretches that were read, if these are not all of it
    sum    the place of its checksum; -1: it has none
    """

    __slots__ = ("address", "data", "spots", "sum", "used")

    def __init__(self, address: int, data: bytes) -> None:
        self.address, self.data, self.sum = address, data, -1
        self.spots: dict[int, tuple[int, Owner | tuple[()] | None]] = {}
        self.used: list[tuple[int, int]] | None = None

    def own(self, begin: int, end: int, owner: Owner | None = None) -> None:
        """Say whose bytes of the block may be others in other files."""
        if begin < end and self.spots.setdefault(begin, (end, owner)) != (end, owner):
            raise UnusualError("bytes that are several objects'")

    def use(self, begin: int, end: int) -> None:
        """Say that a stretch of the block is read, of which not all is."""
        if self.used is not None:
            self.used.append((begin, end))

    def lead(self, at: int) -> int:
        """The address at a place of the block."""
        address: int
        (address,) = unpack_from("<Q", self.data, at)
        if address != NOWHERE:
            self.spots[at] = at + 8, ()
        return address

    def checked(self, mark: bytes, size: int | None = None) -> bytes:
        """The block's data, or its first `size` bytes, checked by mark and by the checksum at the end."""
        self.data = self.data[:size]
        self.sum = len(self.data) - 4
        if not self.data.startswith(mark) or not _is_sound(self.data, self.sum):
            raise UnusualError(f"no {mark!r}, or a damaged one")
        self.own(self.sum, self.sum + 4)
        return self.data


class _Cast(NamedTuple):
    """A block, as it is compared with those of other files.

    number       of its address, among those of the form
    solid        takes the bytes apart that are the same in all files; with `parts`, what it gives
    leads        takes addresses; `numbers` are theirs, `values` those in the form
    loose        takes what may differ; with its `owners`, and the form's `items`
    """

    number: int
    data: bytes
    sum: int
    solid: Struct
    parts: tuple[bytes, ...]
    leads: Struct
    numbers: tuple[int, ...]
    values: tuple[int, ...]
    loose: Struct
    owners: tuple[Owner, ...]
    items: tuple[bytes, ...]


class FileForm(Generic[T]):
    """The headers of a file as a form for others of its series, which differ in addresses and some items.

    made  of the file that the form was taken from
    rows  of the file's small variables, by their paths
    """

    def __init__(
        self, made: T, rows: Mapping[str, tuple[int, Row]], blocks: Sequence[HeaderBlock], root: int
    ) -> None:
        self.made, self._rows, self._blocks, self._root = made, rows, blocks, root

    @once
    def _casts(self) -> tuple[Sequence[_Cast], Mapping[int, int]] | None:
        """(layouts of the blocks, their numbers by address); None where links between blocks are unknown."""
        numbers, casts = {self._root: 0}, []
        for block in self._blocks:
            if block.address not in numbers:
                return None
            spots, at = [(begin, *spot) for begin, spot in sorted(block.spots.items())], 0
            if block.used is not None:
                for begin, end in sorted({*block.used}):
                    spots += [(at, begin, None)] if at < begin else []
                    at = max(at, end)
                spots += [(at, len(block.data), None)] if at < len(block.data) else []
                spots.sort()
            at, solid, leads, loose = 0, [], [], []
            owners, held = list[Owner](), list[int]()
            for begin, end, owner in spots:
                if begin < at:
                    return None
                gap, size, at = begin - at, end - begin, end
                solid.append(f"{gap}s{size}x")
                leads.append(f"{gap}xQ" if owner == () else f"{gap + size}x")
                loose.append(f"{gap}x{size}s" if owner else f"{gap + size}x")
                if owner:
                    owners.append(owner)
                elif owner == ():
                    held += unpack_from("<Q", block.data, begin)
            rest = len(block.data) - at
            shapes = [
                Struct("<" + "".join(one))
                for one in ([*solid, f"{rest}s"], [*leads, f"{rest}x"], [*loose, f"{rest}x"])
            ]
            parts, _, items = (one.unpack(block.data) for one in shapes)
            told = tuple(numbers.setdefault(value, len(numbers)) for value in held)
            casts.append(
                _Cast(
                    numbers[block.address], block.data, block.sum, shapes[0], parts, shapes[1], told,
                    tuple(held), shapes[2], tuple(owners), items,
                )
            )  # fmt: skip
        return casts, numbers

    def cast(self, headers: Hdf5Headers, root: int) -> tuple[Changes, dict[str, Row]] | None:
        """(changes, rows) of another file, whose root is at an address; None if it is not of this form."""
        if self._casts is None:
            return None
        casts, numbers = self._casts
        known: list[int] = [NOWHERE] * len(numbers)
        known[0] = root
        changes: Changes = {}
        for number, data, sum, solid, parts, leads, told, values, loose, owners, items in casts:
            there = headers.pread(known[number], len(data))
            if there != data:
                if len(there) != len(data) or solid.unpack(there) != parts:
                    return None
                if sum >= 0 and not _is_sound(there, sum):
                    return None
                values = leads.unpack(there)
                if NOWHERE in values:
                    return None
                if owners:
                    for owner, item, before in zip(owners, loose.unpack(there), items, strict=True):
                        if item != before:
                            changes.setdefault(owner[0], {})[owner[1:]] = item
            for at, value in zip(told, values, strict=True):
                if known[at] == NOWHERE:
                    known[at] = value
                elif known[at] != value:
                    return None
        if len({*known}) < len(known):
            return None
        rows = {}
        for path, (place, row) in self._rows.items():
            kept = row.items
            if kept is not None and place in changes:
                kept = changes[place].pop(("", 0), kept)
                if not changes[place]:
                    del changes[place]
                if kept is not row.items and len(kept) > OWN_SIZE:
                    kept = None
            places = tuple((known[numbers[address]], begin) for address, begin in row.places)
            is_same = places == row.places and kept is row.items
            rows[path] = row if is_same else row._replace(places=places, items=kept)
        return changes, rows


class Hdf5Headers:
    """The headers of an open file, each read once.

    names  of what was walked through, by addresses
    rows   of small variables, by paths: the addresses of their objects, and the rows
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        self._objects: dict[int, Hdf5Object] = {}
        self._heaps: dict[int, tuple[HeaderBlock, dict[int, tuple[int, int]]]] = {}
        self._blocks: list[HeaderBlock] = []
        self.names: dict[int, str] = {}
        self.rows: dict[str, tuple[int, Row]] = {}

    def __enter__(self) -> Hdf5Headers:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def root(self) -> int:
        """The address of the root group.

        Raises
            UnusualError: as all methods, of what is left to h5py.
        """
        head = os.pread(self._file, 96, 0)
        if head[:8] != SIGNATURE or len(head) < 96:
            raise UnusualError("the file begins otherwise")
        if head[8] == 0 and head[13:15] == b"\x08\x08":
            base, _, end, extension, _, address = unpack_from("<6Q", head, 24)
        elif head[8] in (2, 3) and head[9:12] == b"\x08\x08\0" and _is_sound(head[:48], 44):
            base, extension, end, address = unpack_from("<4Q", head, 12)
        else:
            raise UnusualError("the superblock is another one")
        if base or extension != NOWHERE or end > self._size:
            raise UnusualError("the file has more than its objects, or less")
        self.names[address] = ""
        return int(address)

    def known(self, root: int) -> tuple[Any, Changes, dict[str, Row]] | None:
        """(object made of a file of the same form, changes, rows); None if none was met."""
        for form in [*_forms]:
            found = form.cast(self, root)
            if found is not None:
                if form is not _forms[0]:
                    _forms[:] = [form, *(one for one in _forms if one is not form)]
                return form.made, *found
        return None

    def keep(self, made: Any, root: int) -> dict[str, Row]:
        """Keep the object made of the file for others of its form; returns the rows of this one."""
        if sum(len(block.data) for block in self._blocks) <= FORM_SIZE:
            _forms[:] = [FileForm(made, self.rows, self._blocks, root), *_forms[: MOST_FORMS - 1]]
        return {path: row for path, (_, row) in self.rows.items()}

    def object(self, address: int) -> Hdf5Object:
        """The group or dataset at an address."""
        if address not in self._objects:
            self._objects[address] = self._object(address)
        return self._objects[address]

    def add_row(self, path: str, node: Hdf5Object) -> None:
        """Add the row of a small dataset, if its items are stored as they are."""
        shape, dtype = node.shape, node.type.dtype
        if shape is None or dtype is None or node.has_filters or node.address is None:
            return
        box = node.chunks or shape
        if node.chunks is None:
            places = [(node.address, (0,) * len(box))]
            whole = box
        else:
            whole = tuple(-(-length // side) * side for length, side in zip(shape, box, strict=True))
        if prod(whole) * dtype.itemsize > ROW_SIZE:
            return
        if node.chunks is not None:
            places = self._chunks(node.address, len(box))
            steps = (range(0, length, side) for length, side in zip(whole, box, strict=True))
            if not places or {begin for _, begin in places} != {*product(*steps)}:
                return
        row = Row(tuple(places), box, whole, dtype)
        # Where it can grow, a chunk may be made for hundreds, and have one.
        size = prod((*shape[:1], *box[1:])) * dtype.itemsize
        if len(places) == 1 and 0 < size <= SHARED_SIZE:
            block = self._read(places[0][0], size, 0)
            if len(block.data) == size:
                block.own(0, size, (node.place, "", 0))
                row = row._replace(items=block.data)
            else:
                self._blocks.remove(block)
        self.rows[path] = node.place, row

    def _chunks(self, index: int, count: int) -> list[tuple[int, Shape]]:
        """(address, first indices) of the few chunks that an index has; none, if it has many."""
        size = 8 * (count + 3)  # of a key and the address behind it
        block = self._read(index, 24 + size * MOST_CHUNKS, 24)
        head = block.data
        level, used = unpack_from("<BH", head, 5)
        if head[:5] != b"TREE\1" or level or used > MOST_CHUNKS or len(head) < 24 + size * used:
            block.data = head[:8]
            return []
        block.data = head[: 24 + size * used]
        block.own(8, 24)
        found = [unpack_from(f"<II{count + 1}Q", head, 24 + size * at) for at in range(used)]
        if any(skipped or end for _, skipped, *_, end in found):
            return []
        places = [block.lead(16 + size * (at + 1)) for at in range(used)]
        return [(address, begin[2:-1]) for address, begin in zip(places, found, strict=True)]

    def pread(self, address: int, size: int) -> bytes:
        """The bytes at an address, fewer where the file ends."""
        return os.pread(self._file, size, address) if address + size <= self._size else b""

    def _read(self, address: int, size: int, least: int | None = None) -> HeaderBlock:
        """The bytes at an address; of fewer than `size` there, no fewer than `least`."""
        least = size if least is None else least
        if address + least > self._size:
            raise UnusualError(f"the file ends before {address + least}")
        self._blocks.append(HeaderBlock(address, os.pread(self._file, size, address)))
        return self._blocks[-1]

    def _list(self, block: HeaderBlock, at: int, item_size: int) -> tuple[HeaderBlock, int, int]:
        """(block, begin, end) of the list of items that an entry in a block leads to, in the global heap."""
        count, address, number = unpack_from("<IQI", block.data, at)
        if not count or not address:
            return block, at, at
        block.lead(at + 4)
        if address not in self._heaps:
            self._heaps[address] = self._heap(address)
        heap, objects = self._heaps[address]
        begin, end = objects.get(number, (0, 0))
        if end - begin < count * item_size:
            raise UnusualError(f"the heap at {address} has no item {number} of that size")
        return heap, begin, begin + count * item_size

    def _heap(self, address: int) -> tuple[HeaderBlock, dict[int, tuple[int, int]]]:
        """A collection of the global heap, and the stretches of its objects, by number."""
        heap = self._read(address, 4096, 16)
        if heap.data[:5] != b"GCOL\1":
            raise UnusualError(f"no heap at {address}")
        (size,) = unpack_from("<Q", heap.data, 8)
        if size > len(heap.data):
            self._blocks.pop()
            heap = self._read(address, size)
        heap.data = block = heap.data[:size]
        objects, at = dict[int, tuple[int, int]](), 16
        heap.used = [(0, 16)]
        while at + 16 <= size:
            number, length = unpack_from("<H6xQ", block, at)
            heap.used += [(at, at + 2), (at + 8, at + 16)]
            if not number:
                break
            objects[number] = at + 16, min(at + 16 + length, size)
            at += 16 + -(-length // 8) * 8
        return heap, objects

    def _object(self, address: int) -> Hdf5Object:
        first, flags = self._first_part(address)
        parts, messages = [first], dict[int, bytes]()
        attributes, links = list[tuple[int, Attribute]](), dict[str, tuple[int, int]]()
        beside: list[tuple[int, int]] = []
        heaps = {ATTRIBUTES: beside, LINKS: list[tuple[int, int]]()}
        by_order = False
        for kind, order, block, at, body in self._messages(parts, flags):
            if kind == ATTRIBUTE:
                attributes.append((order, self._attribute(address, block, at, body)))
            elif kind == LINK:
                _add_link(links, block, at, body)
            elif kind in LEFT_OUT:
                block.own(at, at + len(body))
            elif kind in messages:
                raise UnusualError(f"two messages of kind {kind}")
            elif kind != CONTINUATION:
                messages[kind] = body
                if kind in heaps:
                    begin = at + 2 + (8 * (kind == LINKS) or 2) * (body[1] & 1)
                    heap, index = block.lead(begin), block.lead(begin + 8)
                    heaps[kind] += [(heap, index)] if heap != NOWHERE else []
                    block.own(begin + 16, at + len(body))
                    by_order |= kind == LINKS and bool(body[1] & 1)
                elif kind == LAYOUT:
                    _own_layout(block, at, body)
        if not messages.keys() <= {SPACE, LINKS, TYPE, LAYOUT, FILTERS, ATTRIBUTES}:
            raise UnusualError(f"messages of the kinds {sorted(messages)}")
        for heap, index in beside:
            attributes += self._stored_attributes(address, heap, index)
        attributes.sort(key=(lambda one: one[0]) if flags & 4 else (lambda one: one[1].name))
        named = [one for _, one in attributes]
        if LINKS not in messages:
            return Hdf5Object(address, messages, named, None)
        for heap, index in heaps[LINKS]:
            objects = _FractalHeap(self, heap)
            for record in self._records(index, 5, 11):
                _add_link(links, *objects.get(record[4:]))
        names = sorted(links, key=(lambda name: links[name][0]) if by_order else None)
        return Hdf5Object(address, messages, named, {name: links[name][1] for name in names})

    def _first_part(self, address: int) -> tuple[tuple[HeaderBlock, int, int], int]:
        """(the messages of a header as far as they lie at its begin, its flags)."""
        block = self._read(address, USUAL_SIZE, 16)
        head = block.data
        flags = head[5]
        times = 16 if flags & 32 else 0
        at = 6 + times + (4 if flags & 16 else 0)
        begin = at + (1 << (flags & 3))
        end = begin + int.from_bytes(head[at:begin], "little")
        if end + 4 > len(head):
            self._blocks.pop()
            block = self._read(address, end + 4)
        block.checked(b"OHDR\2", end + 4)
        block.own(6, 6 + times)
        return (block, begin, end), flags

    def _messages(
        self, parts: list[tuple[HeaderBlock, int, int]], flags: int
    ) -> Iterator[tuple[int, int, HeaderBlock, int, bytes]]:
        """(kind, order, block, place in it, body) of each message of a header; further parts are added."""
        step = 6 if flags & 4 else 4
        for block, at, end in parts:
            while at + step <= end:
                kind, size, told = unpack_from("<BHB", block.data, at)
                order = int.from_bytes(block.data[at + 4 : at + step], "little")
                at += step
                body = block.data[at : min(at + size, end)]
                if told & 2 or len(body) < size:
                    raise UnusualError(f"a message of kind {kind} that is shared or cut short")
                if kind == CONTINUATION:
                    if len(parts) == MOST_PARTS:
                        raise UnusualError("a header of very many parts")
                    further = self._read(block.lead(at), unpack_from("<Q", body, 8)[0])
                    further.checked(b"OCHK")
                    parts.append((further, 4, further.sum))
                yield kind, order, block, at, body
                at += size

    def _attribute(self, place: int, block: HeaderBlock, at: int, body: bytes) -> Attribute:
        """The attribute of an object, of a message at a place of a block."""
        one, begin = _attribute(body)
        begin += at
        if one.type.dtype is not None:
            if one.name not in INTERNAL:
                block.own(begin, begin + len(one.data), (place, one.name, 0))
            return one
        entries = range(begin, begin + len(one.data), 16)
        if one.type.holds == "texts":
            if one.shape is None or len(one.shape) > 1:
                raise UnusualError(f"attribute {one.name!r} has no list of texts")
            texts = []
            for number, entry in enumerate(entries):
                heap, first, end = self._list(block, entry, 1)
                texts.append(_text(heap.data[first:end]))
                if heap is not block:
                    heap.use(first, end)
                    heap.own(first, end, (place, one.name, number))
            return one._replace(items=tuple(texts))
        if one.name not in INTERNAL:
            return one
        if one.type.holds == "axes":
            for entry in entries:
                block.own(entry + 12, entry + 16)
            return one._replace(
                items=tuple((block.lead(at), *unpack_from("<i", block.data, at + 8)) for at in entries)
            )
        lists = []
        for entry in entries:
            heap, first, end = self._list(block, entry, 8)
            lists.append([heap.lead(there) for there in range(first, end, 8)])
            if heap is not block:
                heap.use(first, end)
        return one._replace(items=tuple(lists))

    def _stored_attributes(self, place: int, heap: int, index: int) -> list[tuple[int, Attribute]]:
        """(order, attribute) of those that are kept beside the header."""
        objects, found = _FractalHeap(self, heap), []
        for record in self._records(index, 8, 17):
            if record[8] & 2:
                raise UnusualError("an attribute that is shared")
            found.append((unpack_from("<I", record, 9)[0], self._attribute(place, *objects.get(record[:8]))))
        return found

    def _records(self, address: int, kind: int, size: int) -> Iterator[bytes]:
        """The records of a B-tree of no more than two levels."""
        block = self._read(address, 38)
        head = block.checked(b"BTHD\0")
        told, node_size, record_size, depth = unpack_from("<BIHH", head, 5)
        count, total = unpack_from("<HQ", head, 24)
        if told != kind or record_size != size or depth > 1:
            raise UnusualError("a B-tree of another kind, or a high one")
        if not count:
            return
        leaves = [(block.lead(16), count)]
        if depth:
            width = 1 if (node_size - 10) // size < 256 else 2
            begin = 6 + count * size
            end = begin + (count + 1) * (8 + width)
            upper = self._read(leaves[0][0], end + 4)
            data = upper.checked(b"BTIN\0")
            yield from (data[at : at + size] for at in range(6, begin, size))
            leaves = [
                (upper.lead(at), int.from_bytes(data[at + 8 : at + 8 + width], "little"))
                for at in range(begin, end, 8 + width)
            ]
        if count * depth + sum(held for _, held in leaves) != total:
            raise UnusualError("a B-tree with fewer records than it says, or more")
        for there, held in leaves:
            data = self._read(there, 6 + held * size + 4).checked(b"BTLF\0")
            yield from (data[at : at + size] for at in range(6, 6 + held * size, size))

    def block_of_heap(self, address: int, size: int, checksum: int) -> HeaderBlock:
        """A block of a heap of links or attributes; `checksum`: its place, -1 if it has none."""
        block = self._read(address, size)
        if block.data[:5] != b"FHDB\0":
            raise UnusualError("no block of a heap")
        if checksum >= 0 and not _is_sound(block.data, checksum):
            raise UnusualError("a damaged block of a heap")
        block.sum, block.used = checksum, [(0, 5)]
        return block

    def heap(self, address: int, size: int, mark: bytes) -> HeaderBlock:
        """The header of a heap of links or attributes, or the list of its blocks."""
        block = self._read(address, size)
        block.checked(mark)
        return block


class _FractalHeap:
    """A heap of links or attributes, which lie in blocks of growing sizes."""

    def __init__(self, headers: Hdf5Headers, address: int) -> None:
        self._headers = headers
        block = headers.heap(address, 146, b"FRHP\0")
        head = block.data
        block.own(14, 110)  # how much room it has, and where
        _, filters, told = unpack_from("<HHB", head, 5)
        width, first_size, largest, bits, _, root, rows = unpack_from("<HQQHHQH", head, 110)
        if filters or bits > 64 or rows * width > MOST_PARTS:
            raise UnusualError("a heap with filters, or a large one")
        block.lead(132)
        self._width = -(-bits // 8)
        self._checksum = 13 + self._width if told & 2 else -1
        (largest_object,) = unpack_from("<I", head, 10)
        # As the library counts them: an offset in the largest block, or the largest length.
        self._length_width = min((largest.bit_length() + 6) // 8, (largest_object.bit_length() + 7) // 8)
        sizes = [first_size << max(row - 1, 0) for row in range(rows) for _ in range(width)]
        places = [root]
        if rows:
            begin = 13 + self._width
            end = begin + 8 * len(sizes)
            above = headers.heap(root, end + 4, b"FHIB\0")
            above.own(5, 13)  # the address of the header
            places = [above.lead(at) for at in range(begin, end, 8)]
        if max(sizes, default=0) > largest:
            raise UnusualError("a heap of more than two levels")
        self._spans = [*zip(places, sizes or [first_size], strict=True)]
        self._blocks: dict[int, HeaderBlock] = {}

    def get(self, name: bytes) -> tuple[HeaderBlock, int, bytes]:
        """The object that the heap has by a name: (block, place in it, bytes)."""
        if name[0] & 0xF0:
            raise UnusualError("an object beside the heap")
        at = int.from_bytes(name[1 : 1 + self._width], "little")
        begin = 1 + self._width
        length = int.from_bytes(name[begin : begin + self._length_width], "little")
        for address, size in self._spans:
            if at < size:
                if address not in self._blocks:
                    self._blocks[address] = self._headers.block_of_heap(address, size, self._checksum)
                block = self._blocks[address]
                data = block.data[at : at + length]
                if len(data) < length:
                    break
                block.use(at, at + length)
                return block, at, data
            at -= size
        raise UnusualError("an object beyond its block")


def _is_sound(block: bytes, at: int) -> bool:
    """Whether a block of metadata has the checksum that stands in it at a place."""
    told: int
    (told,) = unpack_from("<I", block, at)
    if at == len(block) - 4:
        return checksum_lookup3(block[:at]) == told
    # The checksum is made as if it were 0 itself.
    return checksum_lookup3(block[:at] + bytes(4) + block[at + 4 :]) == told


def _own_layout(block: HeaderBlock, at: int, body: bytes) -> None:
    """Say which bytes of a layout's message, at a place of a block, are addresses, or what nobody reads."""
    version, kind = body[:2]
    if kind == 1:
        block.lead(at + 2)
    elif kind == 2 and version == 3:
        block.lead(at + 3)
    elif kind == 2:
        block.own(at + len(body) - 8, at + len(body))
    elif kind == 0:  # the items themselves
        block.own(at + 4, at + len(body))


@lru_cache(4096)
def _attribute(body: bytes) -> tuple[Attribute, int]:
    """(the attribute of a message, where its items begin); files of one series have most of them alike."""
    version, told, *sizes = unpack_from("<BBHHH", body)
    if version not in (1, 2, 3) or (version > 1 and told & 3):
        raise UnusualError("an attribute of a newer version, or with a shared type")
    parts, at = [], 9 if version == 3 else 8
    for size in sizes:
        parts.append(body[at : at + size])
        at += -(-size // 8) * 8 if version == 1 else size
    name = _name(parts[0])
    kind, item_size = _type(parts[1])
    shape, _ = _space(parts[2])
    size = 0 if shape is None else prod(shape) * item_size
    data = body[at:]
    if len(data) < size:
        raise UnusualError(f"attribute {name!r} is cut short")
    return _valued(Attribute(name, kind, shape, data[:size])), at


def _valued(one: Attribute) -> Attribute:
    """The attribute, whose items were looked at."""
    dtype = one.type.dtype
    if one.shape is None or dtype is None:
        return one
    if dtype.kind == "S":
        texts = (one.data[at : at + dtype.itemsize] for at in range(0, len(one.data), dtype.itemsize))
        if any(b"\0" in text.rstrip(b"\0") for text in texts):
            raise UnusualError(f"attribute {one.name!r} has a text that goes on after its end")
    is_finite = dtype.kind != "f" or bool(np.isfinite(one.value()).all())
    return one if is_finite == one.is_finite else one._replace(is_finite=is_finite)


def _text(stored: bytes) -> str:
    """A text of any length, which a 0 ends."""
    return stored.partition(b"\0")[0].decode("utf-8", "surrogateescape")


@lru_cache(1024)
def _type(body: bytes) -> tuple[ItemType, int]:
    """(the type of items, their bytes)."""
    kind, first, second, third, size = unpack_from("<BBBBI", body)
    order = "><"[not first & 1]
    if kind & 15 == 0 and size in (1, 2, 4, 8) and not (first & ~9 or second or third):
        if unpack_from("<HH", body, 8) == (0, 8 * size):
            return ItemType(np.dtype(f"{order}{'i' if first & 8 else 'u'}{size}")), size
    elif kind & 15 == 1 and size in FLOATS and first & ~1 == 32:
        if (bytes((second, third)), body[8:20]) == FLOATS[size]:
            return ItemType(np.dtype(f"{order}f{size}")), size
    elif kind & 15 == 3 and size and first & 15 < 2:  # spaces at the end are left to h5py
        return ItemType(np.dtype(f"S{size}"), is_unicode=bool(first >> 4)), size
    elif kind & 15 == 9 and size != 16:
        raise UnusualError("lists of another form")
    elif kind & 15 == 9 and first & 15 == 1:
        return ItemType(None, "texts", bool(second & 15)), size
    elif kind & 15 == 9 and first & 15 == 0 and body[8] & 15 == 7 and not body[9] & 15:
        return ItemType(None, "references"), size
    elif kind & 15 == 6 and size == 16 and b"dataset\0" in body and b"dimension\0" in body:
        return ItemType(None, "axes"), size
    raise UnusualError("a type that is left to h5py")


@lru_cache(1024)
def _space(body: bytes) -> tuple[Shape | None, tuple[int | None, ...]]:
    """(the lengths of dimensions, those that they can grow to): no lengths where there are no items."""
    version, count, told = body[:3]
    if version not in (1, 2) or (version == 1 and told & 2):
        raise UnusualError("a dataspace of another version")
    if version == 2 and body[3] == 2:
        return None, ()
    begin = 4 if version == 2 else 8
    shape = unpack_from(f"<{count}Q", body, begin)
    largest = unpack_from(f"<{count}Q", body, begin + 8 * count) if told & 1 else shape
    return shape, tuple(None if length == NOWHERE else length for length in largest)


def _layout(body: bytes) -> tuple[Shape | None, int | None]:
    """(lengths of chunks or None, address of items in one row or of the chunks' index or None)."""
    version, kind = body[:2]
    if version not in (3, 4) or kind > 2:
        raise UnusualError("a layout of another version, or of other files")
    if kind != 2:
        (address,) = unpack_from("<Q", body, 2) if kind == 1 else (NOWHERE,)
        return None, None if address == NOWHERE else address
    if version == 3:
        (address,) = unpack_from("<Q", body, 3)
        return unpack_from(f"<{body[2] - 1}I", body, 11), None if address == NOWHERE else address
    width = body[4]
    sides = (body[at : at + width] for at in range(5, 5 + width * (body[3] - 1), width))
    return tuple(int.from_bytes(side, "little") for side in sides), None


def _add_link(links: dict[str, tuple[int, int]], block: HeaderBlock, place: int, body: bytes) -> None:
    """Add the (order, address) of a link by its name, of a message at a place of a block."""
    version, told = body[:2]
    if version != 1 or told & 8:
        raise UnusualError("a link to another place")
    at = 2
    order = int.from_bytes(body[at : at + 8], "little", signed=True) if told & 4 else 0
    at += (8 if told & 4 else 0) + (1 if told & 16 else 0)
    begin = at + (1 << (told & 3))
    end = begin + int.from_bytes(body[at:begin], "little")
    name = _name(body[begin:end] + b"\0")
    unpack_from("<Q", body, end)  # is in the message
    links[name] = order, block.lead(place + end)


def _name(ended: bytes) -> str:
    """The name of an attribute or a link, which a 0 ends."""
    name, end, rest = ended.partition(b"\0")
    if rest or not end:
        raise UnusualError(f"a name that ends otherwise: {ended!r}")
    return name.decode()
