"""The members of a zip file: the directory that lists them, and reading and verifying their data.

Headers and directories are written by Python's `zipfile`, but not read by it: it takes twice as long and
twice the memory, moves one position that all threads share, and does not verify what the directory says.

Spec
    PKWARE APPNOTE 6.3.10: 4.3.7 local file header, 4.3.12 central directory, 4.3.14 to 4.3.16 its end,
    4.5.3 the Zip64 extra field. Encrypted and split archives are not read.
"""

from __future__ import annotations

import io
import struct
import threading
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from zstore.base.byterange import AtMost, ByteRange
from zstore.base.limits import current_limits
from zstore.errors import StoreError
from zstore.storage.base import check_key
from zstore.storage.zip.sources import Bytes, StoreSource, ZipSource

ENCRYPTED, IS_UTF8 = 0x0001, 0x0800
ZIP64 = 0x0001
MAX16, MAX32 = 0xFFFF, 0xFFFFFFFF
PLAIN_FILE, LINK = 0o100644 << 16, 0o120777 << 16
FILE_TYPE, LINK_TYPE = 0o170000, 0o120000
# The earliest date of the format, so that the same values make the same file.
DATE = (1980, 1, 1, 0, 0, 0)

# signature, lengths of name and extra field
LOCAL = struct.Struct("<4s22x2H")
# signature, flags, method, crc, packed size, size, lengths of name, extra field and comment, mode, offset
CENTRAL = struct.Struct("<4s4x2H4x3L3H4xLL")
# signature, disk, disk of the directory, entries here, entries, size, offset, length of the comment
END = struct.Struct("<4s4H2LH")
# Before the end, where its fields are too small: a record (signature, disk, disk of the directory, entries
# here, entries, size, offset), and a locator of that record (signature, disk, offset, disks).
END64 = struct.Struct("<4s12x2L4Q")
LOCATOR = struct.Struct("<4sLQL")
LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
LOCATOR_MARK, END64_MARK = b"PK\6\7", b"PK\6\6"
# The most that all of these take, with the longest comment.
TAIL_SIZE = END.size + MAX16 + LOCATOR.size + END64.size

# The length of extra field that is allowed for when a member's header and data are requested together: that
# of a Zip64 entry, or of those with times and owners.
SLACK_SIZE = 64
# Bytes that are decompressed at a time: the most of input and of output.
PIECE_SIZE = 1 << 20
# The most bytes that one byte of deflated data can give.
MOST_INFLATED = 1032


class Member(NamedTuple):
    """One value: its compression, and the offset of its header."""

    source: ZipSource
    name: str
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int
    flags: int = 0
    name_size: int = -1
    """Bytes of the encoded name."""
    is_link: bool = False
    """Whether the archiver found a symbolic link there; the value is where it leads."""

    @property
    def version(self) -> str:
        """The version of the value: its checksum and sizes, which stay when the zip file is written anew."""
        return f"{self.crc:08x}-{self.size:x}-{self.packed_size:x}"

    def render(self) -> ZipInfo:
        """The member's entry in headers and the directory, in the form of `zipfile`."""
        info = ZipInfo(self.name, DATE)
        info.compress_type, info.CRC = self.method, self.crc
        info.compress_size, info.file_size = self.packed_size, self.size
        info.header_offset, info.flag_bits = self.offset, self.flags & ENCRYPTED
        info.external_attr = LINK if self.is_link else PLAIN_FILE
        return info

    def damage(self, reason: str) -> StoreError:
        """The error for a member that is damaged."""
        message = f"a member of the zip file is damaged: {reason}"
        return StoreError(message, path=self.source.url, key=self.name)


class Directory:
    """The members of a zip file by key; of several with one name, the last counts."""

    def __init__(self, source: ZipSource | None = None) -> None:
        self.members: dict[str, Member] = {}
        self.comment = b""
        self._guard = threading.RLock()
        self._names: list[str] | None = None
        if source is not None:
            self.parse(source)

    def parse(self, source: ZipSource) -> None:
        """Read the directory of a zip file.

        Raises
            StoreError: not a zip file, damaged, split, or with a member whose name cannot be a key.
        """
        end, table = _read_end(source)
        members: dict[str, Member] = {}
        count = 0
        for member in _parse_central(source, table, end):
            count += 1
            if member.name.endswith("/") and not member.size:
                continue
            try:
                check_key(member.name)
            except StoreError as error:
                reason = f"a member {member.name!r}, which no store may hold; expected names joined by '/'"
                raise StoreError(f"the zip file has {reason}", path=source.url) from error
            # Removed first, so that the order is that of the last member of each name.
            members.pop(member.name, None)
            members[member.name] = member
        # Some archivers write only the lowest 16 bits of the count.
        if count & MAX16 != end.member_count & MAX16 or (
            end.member_count > MAX16 and count != end.member_count
        ):
            raise _damaged(source, f"its directory promises {end.member_count} members and holds {count}")
        self.members, self.comment, self._names = members, end.comment, None

    def names(self) -> list[str]:
        """Every key, sorted; callers must not change the list."""
        with self._guard:
            if self._names is None:
                self._names = sorted(self.members)
            return self._names

    def names_below(self, prefix: str) -> list[str]:
        """The keys below `prefix`, sorted."""
        names, begin, end = self._span(prefix)
        return names[begin:end]

    def _span(self, prefix: str) -> tuple[list[str], int, int]:
        """(all keys, index of the first one below the prefix, index after the last)."""
        names = self.names()
        if not prefix:
            return names, 0, len(names)
        # "0" is the character after "/".
        return names, bisect_left(names, f"{prefix}/"), bisect_left(names, f"{prefix}0")

    def children(self, prefix: str) -> list[str]:
        """The names directly below a prefix; keys below them are not read."""
        names, place, end = self._span(prefix)
        skip = len(prefix) + 1 if prefix else 0
        found = set()
        while place < end:
            name, slash, _ = names[place][skip:].partition("/")
            found.add(name)
            place = bisect_left(names, f"{names[place][:skip]}{name}0", place) if slash else place + 1
        return sorted(found)


class _End(NamedTuple):
    """The end record of a zip file."""

    member_count: int
    begin: int
    """Where the directory begins."""
    shift: int
    """Bytes before the zip file, such as a program that unpacks it; offsets do not count them."""
    comment: bytes


def _read_end(source: ZipSource) -> tuple[_End, Bytes]:
    """The end record, and the bytes of the directory before it."""
    tail = bytes(source.read_tail(TAIL_SIZE))
    start, at = source.size - len(tail), len(tail)
    while (at := tail.rfind(END_MARK, 0, at)) >= 0:
        # The signature may also occur in the comment, or be followed by other data.
        if at + END.size <= len(tail):
            _, disk, first, here, count, size, offset, comment_size = END.unpack_from(tail, at)
            if at + END.size + comment_size == len(tail):
                break
    else:
        raise StoreError(
            f"not a zip file, or one that is cut off: no end of a directory in its last {len(tail)} bytes",
            path=source.url,
        )
    place, comment = start + at, tail[at + END.size :]
    at -= LOCATOR.size
    is_wide = MAX16 in (count, disk) or MAX32 in (size, offset)
    if is_wide and at >= 0 and tail.startswith(LOCATOR_MARK, at):
        _, _, place, _ = LOCATOR.unpack_from(tail, at)
        record = tail[max(0, at - END64.size) : at]
        if record.startswith(END64_MARK):
            place = start + at - END64.size
        elif place <= source.size - END64.size:
            # The record is longer than those of known archivers.
            record = bytes(source.read(place, END64.size))
        if not record.startswith(END64_MARK):
            raise _damaged(source, f"there is no end of its directory at {place}")
        _, disk, first, here, count, size, offset = END64.unpack(record)
    if disk not in (0, MAX16) or first not in (0, MAX16) or here != count:
        raise StoreError("cannot read one part of a zip file that is split into several", path=source.url)
    begin = place - size
    if begin < offset:
        raise _damaged(source, f"its directory of {size} bytes would begin before the file")
    table = tail[begin - start : place - start] if begin >= start else source.read(begin, size)
    return _End(count, begin, begin - offset, comment), table


def _parse_central(source: ZipSource, table: Bytes, end: _End) -> Iterator[Member]:
    position = 0
    while position < len(table):
        first = position + CENTRAL.size
        if first > len(table):
            raise _damaged(source, f"its directory ends within an entry, at byte {position} of {len(table)}")
        fields = CENTRAL.unpack_from(table, position)
        mark, flags, method, crc, packed_size, size, name_size, extra_size, rest_size, mode, offset = fields
        is_link = mode >> 16 & FILE_TYPE == LINK_TYPE
        if mark != CENTRAL_MARK or first + name_size + extra_size + rest_size > len(table):
            raise _damaged(source, f"no entry of its directory at byte {position} of {len(table)}")
        position = first + name_size + extra_size + rest_size
        raw = bytes(table[first : first + name_size])
        try:
            name = raw.decode("utf-8" if flags & IS_UTF8 else "cp437")
        except UnicodeDecodeError as error:
            raise _damaged(source, f"the name {raw!r} is not UTF-8: {error}") from error
        if MAX32 in (packed_size, size, offset):
            extra = bytes(table[first + name_size : first + name_size + extra_size])
            size, packed_size, offset = _parse_zip64(extra, size, packed_size, offset)
            if -1 in (size, packed_size, offset):
                raise _damaged(source, "its 64-bit sizes are cut off", name)
        offset += end.shift
        if offset + LOCAL.size + name_size + packed_size > end.begin:
            reason = f"{packed_size} bytes at {offset} reach into the directory at {end.begin}"
            raise _damaged(source, reason, name)
        yield Member(source, name, method, crc, packed_size, size, offset, flags, name_size, is_link)


def _parse_zip64(extra: bytes, *narrow: int) -> list[int]:
    """Size, packed size and offset; those beyond 32 bits come from the extra field, -1 if it lacks them."""
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        place += 4
        if kind == ZIP64:
            wide = struct.iter_unpack("<Q", extra[place : place + length // 8 * 8])
            return [next(wide, (-1,))[0] if value == MAX32 else value for value in narrow]
        place += length
    return [*narrow]


class _Tail(io.BytesIO):
    """The file to which `ZipFile` writes a directory, which will begin at `place` of the zip file."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self._first = place

    def tell(self) -> int:
        return self._first + super().tell()

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


def render_directory(members: Iterable[Member], offset: int, comment: bytes) -> bytes:
    """The directory of these members and the end record, for a file in which it begins at `offset`."""
    tail = _Tail(offset)
    with ZipFile(tail, "w") as file:
        file.filelist = [member.render() for member in members]
        file.comment = comment
    return tail.getvalue()


def _damaged(source: ZipSource, reason: str, key: str | None = None) -> StoreError:
    return StoreError(f"the zip file is damaged: {reason}", path=source.url, key=key)


def locate(member: Member, header: Bytes | None = None) -> int:
    """The offset of the member's data; its header is read unless it is passed."""
    begin = member.source.begins.get(member.offset)
    if begin is None:
        header = member.source.read(member.offset, LOCAL.size) if header is None else header
        mark, name_size, extra_size = LOCAL.unpack_from(header)
        if mark != LOCAL_MARK or name_size != member.name_size:
            raise member.damage(f"its header is not at {member.offset}")
        begin = member.offset + LOCAL.size + name_size + extra_size
        if begin + member.packed_size > member.source.size:
            raise member.damage(f"its {member.packed_size} bytes at {begin} are cut off")
        member.source.begins[member.offset] = begin
    return begin


def read_members(requests: Sequence[tuple[Member, ByteRange | None]]) -> list[Bytes]:
    """The requested bytes of members, in order; the checksum of members that are read whole is verified.

    Of an uncompressed member, only the range is read, which no checksum covers. A compressed one is
    decompressed whole, in pieces, and only the requested bytes are kept; with `AtMost`, decompression stops
    after them.

    Raises
        StoreError: a member is damaged, encrypted, larger than `value_size` of the limits, or compressed by
            an unknown method.
    """
    source = requests[0][0].source if requests else None
    if not isinstance(source, StoreSource) or source.request_count == 1:
        return [_read_member(*request) for request in requests]
    packed = _read_at_once(source, [(member, *_span(member, byte_range)) for member, byte_range in requests])
    return [_unpacked(*request, data) for request, data in zip(requests, packed, strict=True)]


def is_value(member: Member | None, value: bytes | memoryview | None) -> bool:
    """Whether a member's value is that one; None: there is none."""
    if member is None or value is None:
        return member is None and value is None
    if member.size != len(value):
        return False
    if member.method == ZIP_STORED and member.size == member.packed_size:
        return member.source.read(locate(member), member.size) == value
    return read_members([(member, None)])[0] == value


def _read_member(member: Member, byte_range: ByteRange | None) -> Bytes:
    first, last = _span(member, byte_range)
    return _unpacked(member, byte_range, member.source.read(locate(member) + first, last - first))


def _span(member: Member, byte_range: ByteRange | None) -> tuple[int, int]:
    """(first, last) of the bytes that are needed of the member's data in the file."""
    reason = None
    if member.flags & ENCRYPTED:
        reason = "it is encrypted"
    elif member.method not in (ZIP_STORED, ZIP_DEFLATED):
        reason = f"it is packed by method {member.method}; expected 0 (stored) or 8 (deflated)"
    elif member.method == ZIP_STORED and member.size != member.packed_size:
        reason = f"it is stored as it is, yet {member.packed_size} bytes shall be {member.size}"
    elif member.size > member.packed_size * MOST_INFLATED:
        reason = f"{member.packed_size} deflated bytes cannot give the {member.size} that are promised"
    if reason:
        message = f"cannot read a member of the zip file: {reason}"
        raise StoreError(message, path=member.source.url, key=member.name)
    if byte_range is None or member.method == ZIP_DEFLATED:
        return 0, member.packed_size
    return byte_range.resolve(member.size)


def _read_at_once(source: StoreSource, spans: Sequence[tuple[Member, int, int]]) -> list[Bytes]:
    """The bytes of several members by one round of requests, with the headers that were not read before."""
    unknown = {member.offset: member for member, _, _ in spans if member.offset not in source.begins}
    requests = [(offset, LOCAL.size) for offset in unknown]
    for member, first, last in spans:
        begin, slack = source.begins.get(member.offset), 0
        if begin is None:
            begin, slack = member.offset + LOCAL.size + member.name_size, SLACK_SIZE
        requests.append((begin + first, last - first + slack))
    responses = source.read_many(requests)
    for member, header in zip(unknown.values(), responses, strict=False):
        locate(member, header)
    found: list[Bytes] = []
    for (member, first, last), (guess, _), data in zip(
        spans, requests[len(unknown) :], responses[len(unknown) :], strict=True
    ):
        begin, size = locate(member) + first, last - first
        skip = begin - guess
        if skip + size > len(data):
            found.append(source.read(begin, size))
        else:
            found.append(memoryview(data)[skip : skip + size] if len(data) > size else data)
    return found


def _unpacked(member: Member, byte_range: ByteRange | None, data: Bytes) -> Bytes:
    if member.method == ZIP_DEFLATED:
        first, last = (0, member.size) if byte_range is None else byte_range.resolve(member.size)
        stops = isinstance(byte_range, AtMost) and last < member.size
        if last - first > current_limits().value_size:
            reason = f"it inflates to {last - first} bytes, beyond the limit value_size (zstore.set_limits)"
            message = f"cannot read a member of the zip file: {reason}"
            raise StoreError(message, path=member.source.url, key=member.name)
        try:
            return _inflated(member, memoryview(data), first, last, stops=stops)
        except zlib.error as error:
            raise member.damage(str(error)) from error
    if len(data) == member.size:
        _check(member, zlib.crc32(data))
    return data


def _inflated(member: Member, packed: memoryview, first: int, last: int, *, stops: bool) -> Bytes:
    """Bytes `first` to `last` of the decompressed data; the rest is verified, unless it `stops` there."""
    inflate, kept, place, crc = zlib.decompressobj(-zlib.MAX_WBITS), bytearray(), 0, 0
    for piece in _pieces(inflate, packed):
        begin, place = place, place + len(piece)
        if begin < last and place > first:
            kept += piece[max(0, first - begin) : last - begin]
        if stops and place >= last:
            return memoryview(kept).toreadonly()
        if place > member.size:
            break
        crc = zlib.crc32(piece, crc)
    if place != member.size or not inflate.eof or inflate.unused_data:
        raise member.damage(f"it does not inflate to exactly {member.size} bytes")
    _check(member, crc)
    return memoryview(kept).toreadonly()


def _pieces(inflate: Any, packed: memoryview) -> Iterator[bytes]:
    for begin in range(0, len(packed), PIECE_SIZE):
        left: Bytes = packed[begin : begin + PIECE_SIZE]
        while piece := inflate.decompress(left, PIECE_SIZE):
            yield piece
            left = inflate.unconsumed_tail


def _check(member: Member, crc: int) -> None:
    if crc != member.crc:
        raise member.damage(f"its checksum is {crc:08x}, expected {member.crc:08x}")
