"""Chunk grids, regular (of one shape) or rectilinear (of several shapes), and the store keys of chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zstore.base.once import once
from zstore.errors import MetadataError, UnsupportedError

MOST_DIMENSIONS = 32  # as in the kernels
LIMIT = 2**63 - 1
# Numbers of so many digits fit into 64 bits, whatever they are.
MOST_DIGITS = 18


def parse_shape(value: Any, name: str = "shape") -> tuple[int, ...]:
    """Parse a shape from a list of JSON integers; lengths may be 0.

    Raises
        MetadataError: no list, or an item that is no integer from 0 to 2^63-1.
        UnsupportedError: more than 32 dimensions.
    """
    if not isinstance(value, list):
        raise MetadataError(f"{name} is {value!r}; expected a list of integers")
    if len(value) > MOST_DIMENSIONS:
        raise UnsupportedError(f"{name} has {len(value)} dimensions; expected at most {MOST_DIMENSIONS}")
    for length in value:
        if type(length) is not int or not 0 <= length <= LIMIT:
            raise MetadataError(f"{name} is {value!r}; expected integers from 0 to 2^63-1, got {length!r}")
    return tuple(value)


def parse_chunk_shape(value: Any, shape: tuple[int, ...], name: str = "chunk_shape") -> tuple[int, ...]:
    """Parse the chunk shape of an array of `shape`; lengths must be at least 1.

    Raises
        MetadataError: as `parse_shape`, or a length of 0, or another number of dimensions than the array's.
    """
    chunk_shape = parse_shape(value, name)
    if 0 in chunk_shape:
        raise MetadataError(f"{name} is {value!r}; expected integers of at least 1")
    if len(chunk_shape) != len(shape):
        raise MetadataError(
            f"{name} is {value!r}, with {len(chunk_shape)} dimensions; "
            f"expected {len(shape)} as in shape {list(shape)}"
        )
    return chunk_shape


def check_chunk_size(chunk_shape: tuple[int, ...], item_size: int) -> None:
    """Check that the bytes of a chunk fit 63 bits.

    Raises
        MetadataError: the chunk has more than 2^63-1 bytes.
    """
    size = item_size
    for length in chunk_shape:
        size *= length
    if size > LIMIT:
        raise MetadataError(
            f"chunks of shape {list(chunk_shape)} and {item_size} bytes an item have {size} bytes; "
            f"expected at most 2^63-1"
        )


Index = np.ndarray[Any, np.dtype[np.int64]]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegularGrid:
    """A grid of chunks of one shape; chunks at the far edges may extend beyond the array.

    Spec
        Zarr v3 core, "Regular grids"; Zarr v2 `chunks`.
    """

    chunk_shape: tuple[int, ...]

    def shapes(self) -> Iterator[tuple[int, ...]]:
        """The shapes of chunks that codecs must be able to handle: just one."""
        yield self.chunk_shape

    def count(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The number of chunks along each dimension of an array of `shape`."""
        return tuple(-(-length // chunk) for length, chunk in zip(shape, self.chunk_shape, strict=True))

    def start(self, axis: int, place: int) -> int:
        """The first position, along `axis`, of the chunks with this index."""
        return place * self.chunk_shape[axis]

    def borders(self, axis: int, length: int) -> Index:
        """The positions at which chunks begin along a dimension of `length`, and its end."""
        return np.append(np.arange(0, length, self.chunk_shape[axis], dtype=np.int64), length)

    def lengths(self, axis: int, length: int) -> tuple[int, ...]:
        """The lengths of the chunks along a dimension of `length`, the last one cut at its end."""
        return tuple(np.diff(self.borders(axis, length)).tolist())

    def grown(self, shape: tuple[int, ...]) -> RegularGrid:
        """The grid of the array after resizing it to `shape`."""
        return self

    def agrees(self, other: Grid) -> bool:
        """Whether chunks of an array of this grid are those of one of the other, as far as both reach."""
        return self == other

    def beyond(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A larger shape, in which more chunks follow the last ones of an array of `shape`, if any can."""
        return tuple(min(n + c, LIMIT) for n, c in zip(shape, self.chunk_shape, strict=True))


class Edges:
    """The lengths of the chunks along one dimension, as runs (length, count) of equal ones.

    With `is_step`, all chunks have one length, and there are as many as the dimension needs.
    """

    def __init__(self, runs: Sequence[tuple[int, int]], *, is_step: bool = False) -> None:
        merged: list[tuple[int, int]] = []
        for length, count in runs:
            if merged and merged[-1][0] == length:
                count += merged.pop()[1]
            merged.append((length, count))
        self.runs = tuple(merged)
        self.is_step = is_step

    @classmethod
    def step(cls, length: int) -> Edges:
        """Chunks that all have `length`, as many as the dimension needs."""
        return cls([(length, LIMIT // length + 1)], is_step=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edges) and (self.runs, self.is_step) == (other.runs, other.is_step)

    def __hash__(self) -> int:
        return hash((self.runs, self.is_step))

    def __repr__(self) -> str:
        return f"Edges({self.render()!r})"

    @property
    def total(self) -> int:
        """The total length of all chunks."""
        return sum(length * count for length, count in self.runs)

    @property
    def longest(self) -> int:
        """The length of the longest chunk."""
        return max(length for length, _ in self.runs)

    def distinct(self) -> set[int]:
        """The different lengths of chunks."""
        return {length for length, _ in self.runs}

    @once
    def _tables(self) -> tuple[Index, Index, Index]:
        """For each run of equal lengths: the length, its first position, and the index of its first chunk."""
        lengths, begins, places = [], [], []
        begin = place = 0
        for length, count in self.runs:
            if begin > LIMIT or place > LIMIT:
                break
            lengths.append(length)
            begins.append(begin)
            places.append(place)
            begin, place = begin + length * count, place + count
        return np.array(lengths, np.int64), np.array(begins, np.int64), np.array(places, np.int64)

    def locate(self, positions: Index) -> tuple[Index, Index]:
        """The indices of the chunks that contain these positions, and the positions within the chunks."""
        lengths, begins, places = self._tables
        run = np.searchsorted(begins, positions, side="right") - 1
        inside = positions - begins[run]
        return places[run] + inside // lengths[run], inside % lengths[run]

    def start(self, place: int) -> int:
        """The first position of the chunk with this index; for the index after the last, its end."""
        run, before = self._run(place)
        return int(self._tables[1][run]) + before * self.runs[run][0]

    def length(self, place: int) -> int:
        """The length of the chunk with this index."""
        return self.runs[self._run(place)[0]][0]

    def _run(self, place: int) -> tuple[int, int]:
        """The run that contains the chunk with this index, and the number of chunks before it in the run."""
        places = self._tables[2]
        run = int(np.searchsorted(places, place, side="right")) - 1
        return run, place - int(places[run])

    def count(self, length: int) -> int:
        """The number of chunks along a dimension of `length`."""
        if not length:
            return 0
        return int(self.locate(np.array([length - 1], np.int64))[0][0]) + 1

    def borders(self, length: int) -> Index:
        """The positions at which chunks begin along a dimension of `length`, and its end."""
        count = self.count(length)
        runs = [(chunk, min(number, count)) for chunk, number in self.runs]
        lengths = np.repeat(*np.array(runs, np.int64).T)[:count]
        return np.append(np.cumsum(lengths) - lengths, length)

    def agrees(self, other: Edges) -> bool:
        """Whether the chunks of one begin as those of the other, as far as both reach."""
        places = {*self._tables[2].tolist(), *other._tables[2].tolist()}
        last = min(sum(count for _, count in one.runs) for one in (self, other))
        return all(self.start(place) == other.start(place) for place in {*places, last} if place <= last)

    def grown(self, length: int) -> Edges:
        """These lengths, with one more chunk if they do not reach `length`."""
        missing = length - self.total
        return self if missing <= 0 else Edges([*self.runs, (missing, 1)])

    def render(self) -> Any:
        """The entry in a document: a single length, or a list of lengths and runs [length, count]."""
        if self.is_step:
            return self.runs[0][0]
        return [length if count == 1 else [length, count] for length, count in self.runs]


@dataclass(frozen=True)
class RectilinearGrid:
    """A grid with a list of chunk lengths for each dimension; the last chunks may extend beyond the array.

    Spec
        zarr-extensions chunk grid "rectilinear".
    """

    edges: tuple[Edges, ...]

    @classmethod
    def parse(cls, value: Any, shape: Shape, name: str = "chunk_shapes") -> RectilinearGrid:
        """Parse the member of a document that describes the grid of an array of `shape`.

        Raises
            MetadataError: no list with a length or a list of lengths and runs for each dimension, a length
                that is no positive integer, or lengths that do not reach the end of the array.
        """
        if not isinstance(value, list | tuple) or len(value) != len(shape):
            raise MetadataError(
                f"{name} is {value!r}; expected a list of {len(shape)} entries as in shape {list(shape)}"
            )
        edges = tuple(_parse_edges(entry, f"{name}[{d}]") for d, entry in enumerate(value))
        for d, (edge, length) in enumerate(zip(edges, shape, strict=True)):
            if edge.total < length:
                raise MetadataError(
                    f"{name}[{d}] is {value[d]!r}, together {edge.total}; expected at least {length} as in "
                    f"shape {list(shape)}"
                )
        return cls(edges)

    def render(self) -> list[Any]:
        """The inverse of `parse`."""
        return [edge.render() for edge in self.edges]

    @property
    def chunk_shape(self) -> Shape:
        """The shape of the largest chunk."""
        return tuple(edge.longest for edge in self.edges)

    @property
    def is_even(self) -> bool:
        """Whether all chunks have one shape."""
        return all(len(edge.runs) == 1 for edge in self.edges)

    def shapes(self) -> Iterator[Shape]:
        """Shapes of chunks that cover every length along every dimension, to check codecs with."""
        largest = self.chunk_shape
        yield largest
        for d, edge in enumerate(self.edges):
            for length in sorted(edge.distinct() - {largest[d]}):
                yield (*largest[:d], length, *largest[d + 1 :])

    def count(self, shape: Shape) -> Shape:
        """The number of chunks along each dimension of an array of `shape`."""
        return tuple(edge.count(length) for edge, length in zip(self.edges, shape, strict=True))

    def start(self, axis: int, place: int) -> int:
        """The first position, along `axis`, of the chunks with this index."""
        return self.edges[axis].start(place)

    def borders(self, axis: int, length: int) -> Index:
        """The positions at which chunks begin along a dimension of `length`, and its end."""
        return self.edges[axis].borders(length)

    def lengths(self, axis: int, length: int) -> tuple[int, ...]:
        """The lengths of the chunks along a dimension of `length`, the last one cut at its end."""
        return tuple(np.diff(self.borders(axis, length)).tolist())

    def grown(self, shape: Shape) -> RectilinearGrid:
        """The grid of the array after resizing it to `shape`, with one more chunk if it needs one."""
        return RectilinearGrid(
            tuple(edge.grown(length) for edge, length in zip(self.edges, shape, strict=True))
        )

    def agrees(self, other: Grid) -> bool:
        """As `RegularGrid.agrees`: a grid that was grown begins as it was."""
        if not isinstance(other, RectilinearGrid) or len(self.edges) != len(other.edges):
            return False
        return all(map(Edges.agrees, self.edges, other.edges))

    def beyond(self, shape: Shape) -> Shape:
        """A larger shape, in which more chunks follow the last ones; `shape` itself if chunks differ.

        It is for writing edge chunks without losing what they hold beyond the array. Chunks that differ in
        shape are replaced only if all of their items are written, so they do not need it.
        """
        return RegularGrid(self.chunk_shape).beyond(shape) if self.is_even else shape


Grid = RegularGrid | RectilinearGrid


def _parse_edges(value: Any, name: str) -> Edges:
    if _is_length(value):
        return Edges.step(value)
    if not isinstance(value, list | tuple) or not value:
        raise MetadataError(f"{name} is {value!r}; expected a length or a list of lengths")
    runs = []
    for item in value:
        run = tuple(item) if isinstance(item, list | tuple) else (item, 1)
        if len(run) != 2 or not all(map(_is_length, run)):
            raise MetadataError(
                f"{name} holds {item!r}; expected an integer from 1 to 2^63-1 or [length, count] of two"
            )
        runs.append(run)
    return Edges(runs)


def _is_length(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LIMIT


TARGET_SIZE = 1 << 20
# Most shapes are tuples of plain integers, and need no further checks.
PLAIN = {int}


def choose_grid(
    chunks: Any, shards: Any, shape: tuple[int, ...], item_size: int, zarr_format: int
) -> tuple[Grid, tuple[int, ...] | None]:
    """The grid of a new array, and the shape of inner chunks (None without shards).

    Raises
        MetadataError: arguments that are malformed or contradict each other or the shape.
        UnsupportedError: a grid that the format does not have.
    """
    is_uneven = _is_nested(chunks) or _is_nested(shards)
    if zarr_format != 3 and shards is not None:
        raise UnsupportedError(
            f"shards {shards!r} cannot be had in Zarr v{zarr_format}; only v3 has sharding"
        )
    if zarr_format != 3 and is_uneven:
        raise UnsupportedError(
            f"chunks {chunks!r} cannot be had in Zarr v{zarr_format}; only v3 has chunks of several shapes"
        )
    if shards is None:
        if is_uneven:
            return _rectilinear(chunks, shape, "chunks"), None
        return RegularGrid(_chunk_shape(chunks, shape, item_size)), None
    if not is_uneven:
        shard_shape, chunk_shape = _shard_shapes(shards, chunks, shape, item_size)
        return RegularGrid(shard_shape), chunk_shape
    if _is_nested(chunks):
        raise MetadataError(f"chunks is {chunks!r}; expected one shape for all chunks within shards")
    grid = _rectilinear(shards, shape, "shards")
    if isinstance(chunks, str) and chunks == "auto":
        raise MetadataError(
            f"chunks is 'auto' and shards is {shards!r}; expected a shape that divides each shard"
        )
    chunk_shape = _chunk_shape(chunks, shape, item_size)
    for edge, chunk in zip(grid.edges, chunk_shape, strict=True):
        if any(length % chunk for length in edge.distinct()):
            raise MetadataError(f"shards {shards!r} are not all multiples of chunks {chunk_shape}")
    return grid, chunk_shape


def lengths_by_name(
    wanted: Any, names: Iterable[str | None] | None, shape: Shape, others: Sequence[int], item_size: int
) -> Any:
    """Lengths along all dimensions, where some are wanted by name; other forms stay as they are.

    wanted  by name a length, -1 for the whole dimension, or "auto": as long as chunks of a MiB allow
    others  the lengths along dimensions that are not named

    Raises
        MetadataError: as `check_names`.
    """
    if not isinstance(wanted, Mapping):
        return wanted
    known = [*(names or ())]
    check_names(wanted, known)
    made = [wanted.get(str(name), other) for name, other in zip(known, others, strict=True)]
    free = [axis for axis, length in enumerate(made) if length == "auto"]
    made = [max(1, n) if length in ("auto", -1) else length for length, n in zip(made, shape, strict=True)]
    while prod(made) * item_size > TARGET_SIZE and any(made[axis] > 1 for axis in free):
        longest = max(free, key=made.__getitem__)
        made[longest] = (made[longest] + 1) // 2
    return tuple(made)


def own_lengths(wanted: Mapping[str, Any], names: Iterable[str | None], most: int) -> dict[str, Any]:
    """The lengths by name that one of several arrays takes, the longest of which has `most` dimensions.

    A shorter array, as of coordinates or bounds, takes none unless two are along its dimensions.
    """
    along = [*names]
    own = {name: length for name, length in wanted.items() if name in along}
    return own if len(along) == most or len(own) > 1 else {}


def check_names(wanted: Any, names: Iterable[str | None]) -> None:
    """Check lengths by name; other forms pass.

    Raises
        MetadataError: a name of no dimension, or no length.
    """
    known = [*names]
    for name, length in wanted.items() if isinstance(wanted, Mapping) else ():
        if name not in known:
            there = ", ".join(name for name in known if name) or "none"
            raise MetadataError(f"there is no dimension {name!r} to cut; expected one of {there}")
        if length != "auto" and (type(length) is not int or (length < 1 and length != -1)):
            raise MetadataError(f"length along {name!r} is {length!r}; expected a number, -1 or 'auto'")


def _is_nested(value: Any) -> bool:
    if value is None or isinstance(value, str | int):
        return False
    if isinstance(value, np.ndarray):
        return value.ndim > 1
    nested = (list, tuple, np.ndarray)
    return isinstance(value, list | tuple) and any(isinstance(item, nested) for item in value)


def _rectilinear(value: Any, shape: tuple[int, ...], name: str) -> RectilinearGrid:
    entries = _plain(value)
    if len(entries) == len(shape):
        entries = [
            max(1, n) if item is None or item == -1 else item for item, n in zip(entries, shape, strict=True)
        ]
    return RectilinearGrid.parse(entries, shape, name)


def _plain(value: Any) -> Any:
    """A value with numpy's arrays and integers converted to lists and Python's integers."""
    if isinstance(value, np.ndarray | np.integer):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def parse_integers(value: Any, name: str) -> tuple[Any, ...]:
    """A value as a tuple of integers and None; a single integer becomes a tuple of one.

    Raises
        MetadataError: it is something else.
    """
    if type(value) is tuple and set(map(type, value)) <= PLAIN:
        return value
    items = (value,) if isinstance(value, int | np.integer) else value
    if isinstance(items, Iterable) and not isinstance(items, str | bytes):
        items = tuple(items)
        whole = (int, np.integer)
        if all(item is None or (isinstance(item, whole) and not isinstance(item, bool)) for item in items):
            return items
    raise MetadataError(f"{name} is {value!r}; expected an integer or a sequence of integers")


def _chunk_shape(chunks: Any, shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    if isinstance(chunks, str) and chunks == "auto":
        return _guess_chunk_shape(shape, item_size)
    lengths = parse_integers(chunks, "chunks")
    if isinstance(chunks, int | np.integer):
        lengths *= len(shape)
    if len(lengths) != len(shape):
        raise MetadataError(f"chunks is {chunks!r}; expected {len(shape)} lengths as in shape {shape}")
    whole = [max(1, n) if c is None or c == -1 else int(c) for c, n in zip(lengths, shape, strict=True)]
    if min(whole, default=1) < 1:
        raise MetadataError(
            f"chunks is {chunks!r}; expected lengths of at least 1 (or -1 for the whole dimension)"
        )
    return tuple(whole)


def _guess_chunk_shape(shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Guess a chunk shape of half to one MiB, as close to a cube as the array's shape allows."""
    lengths = [max(1, n) for n in shape]
    while prod(lengths) * item_size > TARGET_SIZE:
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        if lengths[longest] == 1:
            break
        lengths[longest] = (lengths[longest] + 1) // 2
    return tuple(lengths)


def _shard_shapes(
    shards: Any, chunks: Any, shape: tuple[int, ...], item_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shard shape, inner chunk shape) of a new array with shards."""
    if isinstance(chunks, str) and chunks == "auto":
        shard_shape = _chunk_shape(shards, shape, item_size)
        return shard_shape, _guess_inner_shape(shard_shape, item_size)
    chunk_shape = _chunk_shape(chunks, shape, item_size)
    if isinstance(shards, str) and shards == "auto":
        # A number of whole chunks.
        counts = tuple(-(-n // chunk) for n, chunk in zip(shape, chunk_shape, strict=True))
        guessed = _guess_chunk_shape(counts, item_size * prod(chunk_shape))
        return tuple(n * chunk for n, chunk in zip(guessed, chunk_shape, strict=True)), chunk_shape
    shard_shape = _chunk_shape(shards, shape, item_size)
    if any(shard % chunk for shard, chunk in zip(shard_shape, chunk_shape, strict=True)):
        whole = tuple(-(-n // chunk) * chunk for n, chunk in zip(shard_shape, chunk_shape, strict=True))
        raise MetadataError(
            f"shards {shard_shape} are not a multiple of chunks {chunk_shape} in every dimension; "
            f"expected ones such as {whole}, or other chunks"
        )
    return shard_shape, chunk_shape


def _guess_inner_shape(shard_shape: tuple[int, ...], item_size: int) -> tuple[int, ...]:
    """Guess a shape of inner chunks of at most one MiB, by halving even lengths of the shard."""
    lengths = list(shard_shape)
    while prod(lengths) * item_size > TARGET_SIZE:
        even = [index for index, length in enumerate(lengths) if length % 2 == 0]
        if not even:
            break
        lengths[max(even, key=lengths.__getitem__)] //= 2
    return tuple(lengths)


# Keys


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """A chunk-key encoding: `default` has keys like "c/1/2" ("c" for 0-d), `v2` like "1.2" ("0" for 0-d).

    Spec
        Zarr v3 core, "Chunk key encoding"; Zarr v2, "Arrays" and `dimension_separator`.
    """

    name: str = "default"
    separator: str = "/"

    @property
    def prefix(self) -> str:
        """The first part of every key: "c", or "" for the encoding `v2`."""
        return "c" if self.name == "default" else ""

    def key(self, coordinates: Iterable[int]) -> str:
        """The key of the chunk at `coordinates`, relative to the array."""
        parts = [str(coordinate) for coordinate in coordinates]
        if self.name == "default":
            return self.separator.join(["c", *parts])
        return self.separator.join(parts) or "0"

    def cell(self, key: str, ndim: int) -> tuple[int, ...] | None:
        """The coordinates of the chunk under a key in a grid of `ndim` dimensions; None for other keys."""
        parts = key.split(self.separator)
        if self.name == "default" and parts.pop(0) != "c":
            return None
        if ndim == 0:
            return () if key == self.key(()) else None
        try:
            cell = tuple(map(int, parts))
        except ValueError:
            return None
        # Keys that `key` would not make ("01", "+1", "²") are not chunks.
        return cell if len(cell) == ndim and [*map(str, cell)] == parts and min(cell) >= 0 else None

    def leading(self, key: str, ndim: int) -> tuple[int, ...] | None:
        """The first coordinates of chunks whose keys begin with this one and "/"; None: there are none."""
        if self.separator != "/":
            return None
        numbers = key.split("/")
        if self.name == "default" and numbers.pop(0) != "c":
            return None
        is_above = len(numbers) < ndim and all(number.isdecimal() for number in numbers)
        return tuple(map(int, numbers)) if is_above else None

    def number(self, key: str, grid: Sequence[int]) -> int | None:
        """The number of the chunk under a key, counted in C order; None if the key is no chunk's.

        grid  how many chunks there are along each dimension
        """
        cell, number = self.cell(key, len(grid)), 0
        if cell is None:
            return None
        for at, count in zip(cell, grid, strict=True):
            if at >= count:
                return None
            number = number * count + at
        return number

    def cells(self, keys: Sequence[str], ndim: int, path: str = "") -> Any:
        """The coordinates (int64, one row for each) of the chunks under many keys of the array at `path`.

        None where one of them is no chunk, or its numbers are larger than 10^18: `cell` says which.
        """
        head = "\n" + (f"{path}/" if path else "") + (f"c{self.separator}" if self.name == "default" else "")
        text = "\n" + "\n".join(keys)
        plain = text.replace(head, "\n")
        if not ndim or not plain.isascii() or len(text) - len(plain) != len(keys) * (len(head) - 1):
            return None
        data = np.frombuffer(f"{plain[1:]}\n".encode(), np.uint8)
        ends = np.flatnonzero((data < ord("0")) | (data > ord("9")))
        marks = np.frombuffer((self.separator * (ndim - 1) + "\n").encode(), np.uint8)
        if len(ends) != len(keys) * ndim or (data[ends].reshape(-1, ndim) != marks).any():
            return None
        begins = np.append(0, ends[:-1] + 1)
        lengths = ends - begins
        if lengths.min(initial=1) < 1 or lengths.max(initial=1) > MOST_DIGITS:
            return None
        if ((data[begins] == ord("0")) & (lengths > 1)).any():
            return None
        return parse_digits(data, begins, ends).reshape(-1, ndim)


def parse_digits(data: Any, begins: Any, ends: Any) -> Any:
    """The numbers (int64) whose ASCII digits stand between positions of a uint8 array.

    Nothing is checked: each is of 1 to `MOST_DIGITS` bytes, all of them digits.
    """
    lengths = ends - begins
    numbers = np.zeros(len(ends), np.int64)
    for place in range(int(lengths.max(initial=0))):
        # Of a shorter number, what stands before its first digit is none of it.
        digits = data[np.maximum(ends - 1 - place, begins)] - np.int64(ord("0"))
        numbers += np.where(place < lengths, digits, 0) * 10**place
    return numbers
