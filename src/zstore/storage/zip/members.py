"""Reading members: where their bytes are, whether they are whole, and what they unpack to."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

from zstore.base.byterange import ByteRange
from zstore.errors import StoreError
from zstore.storage.zip.directory import DEFLATED, LOCAL_SIZE, STORED, Member, parse_local
from zstore.storage.zip.sources import Bytes, Source

__all__ = ["Entry", "locate", "read_members"]

# How much longer a member's extra field is taken to be at most, when its header is asked for along with its
# bytes: that of a Zip64 entry, and those by which archivers keep times and owners.
SLACK_SIZE = 64
# No byte of deflated data gives more than this many.
MOST_INFLATED = 1032


class Entry:
    """A member in the file where it lies; `begin` is where its bytes do, once its header was read."""

    __slots__ = ("begin", "member", "source")

    def __init__(self, source: Source, member: Member, begin: int | None = None) -> None:
        self.source = source
        self.member = member
        self.begin = begin

    @property
    def version(self) -> str:
        """Changes whenever the member is written anew."""
        return f"{self.member.offset:x}-{self.member.crc:08x}-{id(self.source):x}"


Wish = tuple[Entry, ByteRange | None]


def locate(entry: Entry) -> int:
    """Where the member's bytes begin."""
    if entry.begin is None:
        header = entry.source.read(entry.member.offset, LOCAL_SIZE)
        entry.begin = parse_local(entry.source, entry.member, header)
    return entry.begin


def read_members(wishes: Sequence[Wish]) -> list[Bytes]:
    """Those bytes of those members, in the order asked; a whole member's checksum is compared.

    Of a member that is stored as it is, a range reads that range, which no checksum covers. One that is
    deflated is always read whole.

    Raises
        StoreError: damaged, encrypted, or packed by a method that is not read here; names the member.
    """
    spans = [_span(entry, wish) for entry, wish in wishes]
    near = [index for index, (entry, _) in enumerate(wishes) if entry.source.request_count == 1]
    found: dict[int, Bytes] = {}
    for index in near:
        entry, (first, last) = wishes[index][0], spans[index]
        found[index] = entry.source.read(locate(entry) + first, last - first)
    far: dict[int, list[int]] = {}
    for index, (entry, _) in enumerate(wishes):
        if entry.source.request_count > 1:
            far.setdefault(id(entry.source), []).append(index)
    for indexes in far.values():
        data = _read_far([wishes[index][0] for index in indexes], [spans[index] for index in indexes])
        found.update(zip(indexes, data, strict=True))
    return [_unpacked(*wishes[index], found[index]) for index in range(len(wishes))]


def _read_far(entries: Sequence[Entry], spans: Sequence[tuple[int, int]]) -> Iterable[Bytes]:
    """One round of requests: of members not read before, the header and the place where the bytes must be."""
    if not entries:
        return []
    source = entries[0].source
    unknown = [entry for entry in dict.fromkeys(entries) if entry.begin is None]
    headers = [(entry.member.offset, LOCAL_SIZE) for entry in unknown]
    guesses = []
    for entry, (first, last) in zip(entries, spans, strict=True):
        if entry.begin is None:
            begin = entry.member.offset + LOCAL_SIZE + entry.member.name_size
            guesses.append((begin + first, last - first + SLACK_SIZE))
        else:
            guesses.append((entry.begin + first, last - first))
    answers = source.read_many(headers + guesses)
    for entry, header in zip(unknown, answers[: len(unknown)], strict=True):
        entry.begin = parse_local(source, entry.member, header)
    found: list[Bytes] = []
    for entry, (first, last), (guess, _), data in zip(
        entries, spans, guesses, answers[len(headers) :], strict=True
    ):
        assert entry.begin is not None
        skip = entry.begin + first - guess
        if skip + last - first > len(data):
            data, skip = source.read(entry.begin + first, last - first), 0
        found.append(
            memoryview(data)[skip : skip + last - first] if skip or len(data) > last - first else data
        )
    return found


def _span(entry: Entry, wish: ByteRange | None) -> tuple[int, int]:
    """(first, last) of the member's bytes in the file that are needed."""
    member = entry.member
    reason = None
    if member.is_encrypted:
        reason = "it is encrypted"
    elif member.method not in (STORED, DEFLATED):
        reason = f"it is packed by method {member.method}; expected 0 (stored) or 8 (deflated)"
    elif member.method == STORED and member.size != member.packed_size:
        reason = f"it is stored as it is, yet {member.packed_size} bytes shall be {member.size}"
    elif member.size > member.packed_size * MOST_INFLATED:
        reason = f"{member.packed_size} deflated bytes cannot give the {member.size} that are promised"
    if reason:
        raise StoreError(
            f"cannot read a member of the zip file: {reason}", path=entry.source.url, key=member.name
        )
    if member.method == DEFLATED:
        return 0, member.packed_size
    return wish.resolve(member.size) if wish else (0, member.size)


def _unpacked(entry: Entry, wish: ByteRange | None, data: Bytes) -> Bytes:
    member = entry.member
    if member.method == DEFLATED:
        data = _inflated(entry, data)
    if len(data) == member.size and zlib.crc32(data) != member.crc:
        raise _damaged(entry, f"its checksum is {zlib.crc32(data):08x}, expected {member.crc:08x}")
    if member.method == DEFLATED and wish is not None:
        first, last = wish.resolve(member.size)
        return memoryview(data)[first:last]
    return data


def _inflated(entry: Entry, data: Bytes) -> bytes:
    member = entry.member
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = inflate.decompress(data, member.size + 1)
    except zlib.error as error:
        raise _damaged(entry, str(error)) from error
    if len(found) != member.size or not inflate.eof or inflate.unused_data:
        raise _damaged(entry, f"it does not inflate to exactly {member.size} bytes")
    return found


def _damaged(entry: Entry, reason: str) -> StoreError:
    return StoreError(
        f"a member of the zip file is damaged: {reason}", path=entry.source.url, key=entry.member.name
    )
