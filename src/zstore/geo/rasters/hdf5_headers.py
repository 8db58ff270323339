"""The headers of NetCDF-4 files, parsed from their bytes: what h5py says of them, in a tenth of the time.

Files are taken as the NetCDF libraries write them: in the newer of HDF5's formats, where metadata have
checksums and things have the order in which they were made. All else is `UnusualError`, and left to h5py;
so is damage, which h5py names.

Spec
    "HDF5 File Format Specification Version 3.0".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from math import prod
from struct import iter_unpack, unpack_from
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from zstore._ext.codecs.native import checksum_lookup3

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
Shape: TypeAlias = tuple[int, ...]
T = TypeVar("T")
# What was read from a file last: addresses, and the bytes there.
Stretches: TypeAlias = list[tuple[int, bytes]]

# What was made of stretches of a file, by what it was asked for with: another file of the series has most of
# them alike, and nothing is made of these anew.
KEPT_COUNT, KEPT_SIZE = 1024, 1 << 16
_made: dict[tuple[Any, ...], tuple[Stretches, Any]] = {}
# Forms of headers, by flags and bytes; of some for each, those that were met last.
MOST_MOULDS = 8
_moulds: dict[tuple[int, int], list[Mould]] = {}


# The most parts of a header, and blocks of a heap.
MOST_PARTS = 4096
# The most bytes of a dataset that are read whole, and the most chunks.
ROW_SIZE, MOST_CHUNKS = 1 << 16, 64


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

    is_finite  whether there is no NaN and no infinity among them
    """

    name: str
    type: ItemType
    shape: Shape | None
    data: bytes
    is_finite: bool = True

    def value(self) -> Any:
        """Its numbers or texts of fixed length, as h5py gives them."""
        dtype = self.type.dtype
        if dtype is None or self.shape is None:
            raise UnusualError(f"attribute {self.name!r} has no plain items")
        items = np.frombuffer(self.data, dtype, prod(self.shape)).reshape(self.shape)
        return items[()] if self.shape == () else items.copy()


class Row(NamedTuple):
    """Items of a small dataset, stored as they are.

    places  the address of each box of items, and the indices at which it begins
    box     the lengths of a box
    shape   the lengths of all boxes together
    """

    places: tuple[tuple[int, Shape], ...]
    box: Shape
    shape: Shape
    dtype: np.dtype[Any]

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

    links       the addresses of what a group has, by name; None: it is no group
    attributes  by name
    shape, largest, type, chunks
                of a dataset: its lengths, those that it can grow to (None: without end), its items' type, its
                chunks' lengths; without a shape, it is none
    address     of its items, or of its chunks' index
    facts       what others have made of its header, as far as that holds for all objects that differ from it
                in addresses only
    """

    def __init__(
        self, messages: dict[int, bytes], attributes: list[Attribute], links: dict[str, int] | None
    ) -> None:
        self.links, self.attributes = links, {one.name: one for one in attributes}
        self.facts: dict[str, Any] = {}
        self.shape: Shape | None = None
        if links is None and LAYOUT in messages:
            self.shape, self.largest = _space(messages[SPACE])
            self.type_content = messages[TYPE]
            self.type = _type(messages[TYPE])[0]
            self.chunks, self.address = _layout(messages[LAYOUT])
            self.has_filters = FILTERS in messages
            if self.shape is None or (self.chunks is not None and len(self.chunks) != len(self.shape)):
                raise UnusualError("a dataset without a shape")


class Mould(NamedTuple):
    """The form of an object's header, whose addresses are other ones in each file of a series.

    made    the object that the form was taken from
    solid   the bytes around addresses
    sides   where these bytes lie: part of the header, begin, end
    parts   of each part behind the first: the part, and the place in it, that tell its address, and its bytes
    holes   where what is not solid lies: what it is, the attribute or link that has it, part, begin, end
    """

    made: Hdf5Object
    solid: bytes
    sides: tuple[tuple[int, int, int], ...]
    parts: tuple[tuple[int, int, int], ...]
    holes: tuple[tuple[int, str, int, int, int], ...]

    @classmethod
    def of(cls, made: Hdf5Object, parts: list[bytes], holes: list[tuple[int, str, int, int, int]]) -> Mould:
        """The form of the object that was made of a header's parts."""
        sides, ends = list[tuple[int, int, int]](), [0] * len(parts)
        for _, _, part, begin, end in sorted(holes, key=lambda hole: hole[2:]):
            sides.append((part, ends[part], begin))
            ends[part] = end
        sides = sorted([*sides, *((part, end, len(parts[part])) for part, end in enumerate(ends))])
        solid = b"".join([parts[part][begin:end] for part, begin, end in sides])
        further = [(part, begin, end - begin) for kind, _, part, begin, end in holes if kind == CONTINUATION]
        sizes = map(len, parts[1:])
        told = tuple((part, begin, size) for (part, begin, _), size in zip(further, sizes, strict=True))
        return cls(made, solid, tuple(sides), told, tuple(hole for hole in holes if hole[0] != CONTINUATION))

    def cast(self, first: bytes, read: Callable[[int, int], bytes]) -> Hdf5Object | None:
        """The object with the header that begins so, if it is of this form; `read` gives its other parts."""
        end = self.sides[0][2]
        if first[:end] != self.solid[:end]:
            return None
        parts = [first]
        for part, begin, size in self.parts:
            there, length = unpack_from("<QQ", parts[part], begin)
            if length != size + 8:
                return None
            parts.append(read(there, length))
        if b"".join([parts[part][begin:end] for part, begin, end in self.sides]) != self.solid:
            return None
        made = object.__new__(Hdf5Object)
        made.__dict__.update(self.made.__dict__)
        made.attributes = dict(made.attributes)
        made.links = None if made.links is None else dict(made.links)
        for kind, name, part, begin, end in self.holes:
            data = parts[part][begin:end]
            if kind == ATTRIBUTE:
                made.attributes[name] = made.attributes[name]._replace(data=data)
            elif kind == LINK and made.links is not None:
                (made.links[name],) = unpack_from("<Q", data)
            else:
                (address,) = unpack_from("<Q", data)
                made.address = None if address == NOWHERE else address
        return made


class Hdf5Headers:
    """The headers of an open file, each read once.

    names  of what was walked through, by addresses
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        self._objects: dict[int, Hdf5Object] = {}
        self._heaps: dict[int, dict[int, bytes]] = {}
        self._stretches: Stretches = []
        self._depth = 0
        self.names: dict[int, str] = {}

    def __enter__(self) -> Hdf5Headers:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def root(self) -> Hdf5Object:
        """The root group.

        Raises
            UnusualError: as all methods, of what is left to h5py.
        """
        head = self.read(0, 96)
        if head[:8] != SIGNATURE:
            raise UnusualError("the file begins otherwise")
        if head[8] == 0 and head[13:15] == b"\x08\x08":
            base, _, end, extension, _, address = unpack_from("<6Q", head, 24)
        elif head[8] in (2, 3) and head[9:12] == b"\x08\x08\0":
            base, extension, end, address = unpack_from("<4Q", _checked(head[:48], SIGNATURE), 12)
        else:
            raise UnusualError("the superblock is another one")
        if base or extension != NOWHERE or end > self._size:
            raise UnusualError("the file has more than its objects, or less")
        self.names[address] = ""
        return self.object(address)

    def object(self, address: int) -> Hdf5Object:
        """The group or dataset at an address."""
        if address not in self._objects:
            self._objects[address] = self._once(self._object, address)
        return self._objects[address]

    def texts(self, attribute: Attribute) -> list[str]:
        """The texts of an attribute that has texts of any length."""
        if attribute.type.holds != "texts" or attribute.shape is None or len(attribute.shape) > 1:
            raise UnusualError(f"attribute {attribute.name!r} has no list of texts")
        parts = [self._list(entry, 1) for entry in iter_unpack("<IQI", attribute.data)]
        return [part.partition(b"\0")[0].decode("utf-8", "surrogateescape") for part in parts]

    def references(self, attribute: Attribute) -> list[Any]:
        """The addresses that each item of a list of references has; of axes, (address, axis)."""
        if attribute.type.holds == "axes":
            return [*iter_unpack("<Qi4x", attribute.data)]
        if attribute.type.holds != "references":
            raise UnusualError(f"attribute {attribute.name!r} has no references")
        lists = (self._list(entry, 8) for entry in iter_unpack("<IQI", attribute.data))
        return [[address for (address,) in iter_unpack("<Q", one)] for one in lists]

    def row(self, node: Hdf5Object) -> Row | None:
        """The row of a small dataset, whose items are stored as they are; else None."""
        shape, dtype = node.shape, node.type.dtype
        if shape is None or dtype is None or node.has_filters or node.address is None:
            return None
        box = node.chunks or shape
        if node.chunks is None:
            places = [(node.address, (0,) * len(box))]
            whole = box
        else:
            whole = tuple(-(-length // side) * side for length, side in zip(shape, box, strict=True))
        if prod(whole) * dtype.itemsize > ROW_SIZE:
            return None
        if node.chunks is not None:
            places = self._chunks(node.address, len(box))
            steps = (range(0, length, side) for length, side in zip(whole, box, strict=True))
            if not places or {begin for _, begin in places} != {*product(*steps)}:
                return None
        return Row(tuple(places), box, whole, dtype)

    def _chunks(self, index: int, count: int) -> list[tuple[int, Shape]]:
        """(address, first indices) of the few chunks that an index has; none, if it has many."""
        size = 8 * (count + 3)  # of a key and the address behind it
        head = self.read(index, 24 + size * MOST_CHUNKS, 24)
        level, used = unpack_from("<BH", head, 5)
        if head[:5] != b"TREE\1" or level or used > MOST_CHUNKS or len(head) < 24 + size * used:
            return []
        found = [unpack_from(f"<II{count + 2}Q", head, 24 + size * at) for at in range(used)]
        if any(skipped or end for _, skipped, *_, end, _ in found):
            return []
        return [(address, tuple(begin)) for _, _, *begin, _, address in found]

    def read(self, address: int, size: int, least: int | None = None) -> bytes:
        """The bytes at an address; of fewer than `size` there, no fewer than `least`."""
        least = size if least is None else least
        if address + least > self._size:
            raise UnusualError(f"the file ends before {address + least}")
        data = os.pread(self._file, size, address)
        if self._depth:
            self._stretches.append((address, data))
        return data

    def _once(self, make: Callable[..., T], *where: int) -> T:
        """The result of `make`, which reads from these addresses on; of the same bytes it is made once."""
        key = (make.__name__, *where)
        begin = len(self._stretches)
        kept: tuple[Stretches, T] | None = _made.get(key)
        if kept is not None and all(os.pread(self._file, len(b), at) == b for at, b in kept[0]):
            self._stretches += kept[0] if self._depth else []
            return kept[1]
        self._depth += 1
        made = make(*where)
        self._depth -= 1
        stretches = self._stretches[begin:]
        if not self._depth:
            self._stretches.clear()
        if sum(len(data) for _, data in stretches) <= KEPT_SIZE:
            if len(_made) >= KEPT_COUNT:
                _made.clear()
            _made[key] = stretches, made
        return made

    def _list(self, entry: tuple[int, int, int], item_size: int) -> bytes:
        """The bytes of a list of items, which the global heap holds."""
        count, address, number = entry
        if not count or not address:
            return b""
        if address not in self._heaps:
            self._heaps[address] = self._heap(address)
        data = self._heaps[address].get(number, b"")
        if len(data) < count * item_size:
            raise UnusualError(f"the heap at {address} has no item {number} of that size")
        return data[: count * item_size]

    def _heap(self, address: int) -> dict[int, bytes]:
        """The objects of a collection of the global heap, by number."""
        head = self.read(address, 4096, 16)
        if head[:5] != b"GCOL\1":
            raise UnusualError(f"no heap at {address}")
        (size,) = unpack_from("<Q", head, 8)
        block = head[:size] if size <= len(head) else self.read(address, size)
        objects, at = {}, 16
        while at + 16 <= size:
            number, length = unpack_from("<H6xQ", block, at)
            if not number:
                break
            objects[number] = block[at + 16 : at + 16 + length]
            at += 16 + -(-length // 8) * 8
        return objects

    def _object(self, address: int) -> Hdf5Object:
        first, flags = self._first_part(address)
        form = flags, len(first)
        for mould in _moulds.get(form, ()):
            made = mould.cast(first, self._further_part)
            if made is not None:
                return made
        messages = dict[int, bytes]()
        attributes, links = list[tuple[int, Attribute]](), dict[str, tuple[int, int]]()
        parts, holes = [first], list[tuple[int, str, int, int, int]]()
        for kind, order, body, part, at in self._messages(parts, flags):
            if kind == ATTRIBUTE:
                one = _attribute(body)
                attributes.append((order, one))
                if one.type.holds:
                    begin = at + _data_place(body)
                    holes.append((kind, one.name, part, begin, begin + len(one.data)))
            elif kind == LINK:
                name, begin = _add_link(links, body)
                holes.append((kind, name, part, at + begin, at + begin + 8))
            elif kind == CONTINUATION:
                holes.append((kind, "", part, at, at + 8))
            elif kind in messages:
                raise UnusualError(f"two messages of kind {kind}")
            elif kind not in LEFT_OUT:
                messages[kind] = body
                if kind == LAYOUT and body[:2] in (b"\3\1", b"\3\2"):
                    begin = at + body[1] + 1
                    holes.append((kind, "", part, begin, begin + 8))
        if not messages.keys() <= {SPACE, LINKS, TYPE, LAYOUT, FILTERS, ATTRIBUTES}:
            raise UnusualError(f"messages of the kinds {sorted(messages)}")
        is_beside = False
        if ATTRIBUTES in messages:
            body = messages[ATTRIBUTES]
            heap, index = unpack_from("<QQ", body, 4 if body[1] & 1 else 2)
            if heap != NOWHERE:
                attributes += self._once(self._stored_attributes, heap, index)
                is_beside = True
        attributes.sort(key=(lambda one: one[0]) if flags & 4 else (lambda one: one[1].name))
        named = [one for _, one in attributes]
        if LINKS not in messages:
            made = Hdf5Object(messages, named, None)
        else:
            body = messages[LINKS]
            heap, _ = unpack_from("<QQ", body, 10 if body[1] & 1 else 2)
            is_beside |= heap != NOWHERE
            made = Hdf5Object(messages, named, self._links(body, links))
        if not is_beside:
            if len(_moulds) >= KEPT_COUNT:
                _moulds.clear()
            known = _moulds.setdefault(form, [])
            known.insert(0, Mould.of(made, parts, holes))
            del known[MOST_MOULDS:]
        return made

    def _first_part(self, address: int) -> tuple[bytes, int]:
        """(the messages of a header as far as they lie at its begin, its flags)."""
        first = len(self._stretches)
        head = self.read(address, USUAL_SIZE, 16)
        flags = head[5]
        at = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        begin = at + (1 << (flags & 3))
        end = begin + int.from_bytes(head[at:begin], "little")
        block = head[: end + 4] if end + 4 <= len(head) else self.read(address, end + 4)
        if self._depth:  # what follows the header is none of it
            self._stretches[first:] = [(address, block)]
        return _checked(block, b"OHDR\2")[begin:end], flags

    def _further_part(self, address: int, size: int) -> bytes:
        return _checked(self.read(address, size), b"OCHK")[4:-4]

    def _messages(self, parts: list[bytes], flags: int) -> Iterator[tuple[int, int, bytes, int, int]]:
        """(kind, order, body, part, place in it) of each message of a header; further parts are added."""
        step = 6 if flags & 4 else 4
        for number, part in enumerate(parts):
            at = 0
            while at + step <= len(part):
                kind, size, told = unpack_from("<BHB", part, at)
                body = part[at + step : at + step + size]
                if told & 2 or len(body) < size:
                    raise UnusualError(f"a message of kind {kind} that is shared or cut short")
                if kind == CONTINUATION:
                    if len(parts) == MOST_PARTS:
                        raise UnusualError("a header of very many parts")
                    parts.append(self._further_part(*unpack_from("<QQ", body)))
                yield kind, int.from_bytes(part[at + 4 : at + step], "little"), body, number, at + step
                at += step + size

    def _stored_attributes(self, heap: int, index: int) -> list[tuple[int, Attribute]]:
        """(order, attribute) of those that are kept beside the header."""
        objects, found = _FractalHeap(self, heap), []
        for record in self._records(index, 8, 17):
            if record[8] & 2:
                raise UnusualError("an attribute that is shared")
            found.append((unpack_from("<I", record, 9)[0], _attribute(objects.get(record[:8]))))
        return found

    def _links(self, body: bytes, links: dict[str, tuple[int, int]]) -> dict[str, int]:
        """The addresses of a group's links by name, in their order."""
        heap, index = unpack_from("<QQ", body, 10 if body[1] & 1 else 2)
        if heap != NOWHERE:
            objects = _FractalHeap(self, heap)
            for record in self._records(index, 5, 11):
                _add_link(links, objects.get(record[4:]))
        names = sorted(links, key=(lambda name: links[name][0]) if body[1] & 1 else None)
        return {name: links[name][1] for name in names}

    def _records(self, address: int, kind: int, size: int) -> Iterator[bytes]:
        """The records of a B-tree of no more than two levels."""
        head = _checked(self.read(address, 38), b"BTHD\0")
        told, node_size, record_size, depth = unpack_from("<BIHH", head, 5)
        root, count, total = unpack_from("<QHQ", head, 16)
        if told != kind or record_size != size or depth > 1:
            raise UnusualError("a B-tree of another kind, or a high one")
        if not count:
            return
        leaves = [(root, count)]
        if depth:
            width = 1 if (node_size - 10) // size < 256 else 2
            begin = 6 + count * size
            end = begin + (count + 1) * (8 + width)
            block = _checked(self.read(root, end + 4), b"BTIN\0")
            yield from (block[at : at + size] for at in range(6, begin, size))
            pointers = (block[at : at + 8 + width] for at in range(begin, end, 8 + width))
            leaves = [(unpack_from("<Q", one)[0], int.from_bytes(one[8:], "little")) for one in pointers]
        if count * depth + sum(held for _, held in leaves) != total:
            raise UnusualError("a B-tree with fewer records than it says, or more")
        for there, held in leaves:
            block = _checked(self.read(there, 6 + held * size + 4), b"BTLF\0")
            yield from (block[at : at + size] for at in range(6, 6 + held * size, size))


class _FractalHeap:
    """A heap of links or attributes, which lie in blocks of growing sizes."""

    def __init__(self, headers: Hdf5Headers, address: int) -> None:
        self._headers = headers
        head = _checked(headers.read(address, 146), b"FRHP\0")
        _, filters, told = unpack_from("<HHB", head, 5)
        width, first_size, largest, bits, _, root, rows = unpack_from("<HQQHHQH", head, 110)
        if filters or bits > 64 or rows * width > MOST_PARTS:
            raise UnusualError("a heap with filters, or a large one")
        self._is_checked = bool(told & 2)
        self._width = -(-bits // 8)
        (largest_object,) = unpack_from("<I", head, 10)
        # As the library counts them: an offset in the largest block, or the largest length.
        self._length_width = min((largest.bit_length() + 6) // 8, (largest_object.bit_length() + 7) // 8)
        sizes = [first_size << max(row - 1, 0) for row in range(rows) for _ in range(width)]
        places = [root]
        if rows:
            begin = 13 + self._width
            end = begin + 8 * len(sizes)
            block = _checked(headers.read(root, end + 4), b"FHIB\0")
            places = [address for (address,) in iter_unpack("<Q", block[begin:end])]
        if max(sizes, default=0) > largest:
            raise UnusualError("a heap of more than two levels")
        self._spans = [*zip(places, sizes or [first_size], strict=True)]
        self._blocks: dict[int, bytes] = {}

    def get(self, name: bytes) -> bytes:
        """The object that the heap has by a name."""
        if name[0] & 0xF0:
            raise UnusualError("an object beside the heap")
        at = int.from_bytes(name[1 : 1 + self._width], "little")
        begin = 1 + self._width
        length = int.from_bytes(name[begin : begin + self._length_width], "little")
        for span in self._spans:
            if at < span[1]:
                data = self._block(*span)[at : at + length]
                if len(data) < length:
                    break
                return data
            at -= span[1]
        raise UnusualError("an object beyond its block")

    def _block(self, address: int, size: int) -> bytes:
        if address not in self._blocks:
            self._blocks[address] = self._read_block(address, size)
        return self._blocks[address]

    def _read_block(self, address: int, size: int) -> bytes:
        block = self._headers.read(address, size)
        if block[:5] != b"FHDB\0":
            raise UnusualError("no block of a heap")
        if self._is_checked:
            at = 13 + self._width
            # The checksum is made as if it were 0 itself.
            if checksum_lookup3(block[:at] + bytes(4) + block[at + 4 :]) != unpack_from("<I", block, at)[0]:
                raise UnusualError("a damaged block of a heap")
        return block


def _checked(block: bytes, mark: bytes) -> bytes:
    """A block of metadata that begins with a mark, and ends with its checksum."""
    if not block.startswith(mark) or checksum_lookup3(block[:-4]) != int.from_bytes(block[-4:], "little"):
        raise UnusualError(f"no {mark!r}, or a damaged one")
    return block


def _data_place(body: bytes) -> int:
    """The first byte of the items in an attribute's message."""
    version, _, *sizes = unpack_from("<BBHHH", body)
    sizes = [-(-size // 8) * 8 for size in sizes] if version == 1 else sizes
    return (9 if version == 3 else 8) + sum(map(int, sizes))


@lru_cache(4096)
def _attribute(body: bytes) -> Attribute:
    """The attribute of a message; files of one series have most of theirs alike."""
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
    if kind.dtype is not None and kind.dtype.kind == "S":
        texts = (data[at : at + item_size] for at in range(0, size, item_size))
        if any(b"\0" in text.rstrip(b"\0") for text in texts):
            raise UnusualError(f"attribute {name!r} has a text that goes on after its end")
    made = Attribute(name, kind, shape, data[:size])
    if shape is None or kind.dtype is None or kind.dtype.kind != "f":
        return made
    return made._replace(is_finite=bool(np.isfinite(made.value()).all()))


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


def _add_link(links: dict[str, tuple[int, int]], body: bytes) -> tuple[str, int]:
    """Add the (order, address) of a link by its name; returns this, and where the address lies."""
    version, told = body[:2]
    if version != 1 or told & 8:
        raise UnusualError("a link to another place")
    at = 2
    order = int.from_bytes(body[at : at + 8], "little", signed=True) if told & 4 else 0
    at += (8 if told & 4 else 0) + (1 if told & 16 else 0)
    begin = at + (1 << (told & 3))
    end = begin + int.from_bytes(body[at:begin], "little")
    name = _name(body[begin:end] + b"\0")
    links[name] = (order, unpack_from("<Q", body, end)[0])
    return name, end


def _name(ended: bytes) -> str:
    """The name of an attribute or a link, which a 0 ends."""
    name, end, rest = ended.partition(b"\0")
    if rest or not end:
        raise UnusualError(f"a name that ends otherwise: {ended!r}")
    return name.decode()
