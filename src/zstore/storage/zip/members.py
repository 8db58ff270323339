"""The members of a zip file: its directory, and reading and checking what they hold.

Python's `zipfile` writes headers and directories. It does not read them: that takes twice as long and twice
the memory, goes through one position that all threads share, and believes what is written there.

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

from zstore.base.byterange import AtMost
from zstore.base.limits import current_limits
from zstore.errors import StoreError
from zstore.storage.base import ByteRange, check_key
from zstore.storage.zip.sources import Bytes, Source, StoreSource

ENCRYPTED, IS_UTF8 = 0x0001, 0x0800
ZIP64 = 0x0001
MAX16, MAX32 = 0xFFFF, 0xFFFFFFFF
PLAIN_FILE = 0o100644 << 16
# The first day that the format knows: the same values then make the same file.
DATE = (1980, 1, 1, 0, 0, 0)

# signature, lengths of name and extra field
LOCAL = struct.Struct("<4s22x2H")
# signature, flags, method, crc, packed size, size, lengths of name, extra field and comment, offset
CENTRAL = struct.Struct("<4s4x2H4x3L3H8xL")
# signature, disk, disk of the directory, entries here, entries, size, offset, length of the comment
END = struct.Struct("<4s4H2LH")
# What stands before the end where numbers do not fit into it: a record (signature, disk, disk of the
# directory, entries here, entries, size, offset), and where that is (signature, disk, place, disks).
END64 = struct.Struct("<4s12x2L4Q")
LOCATOR = struct.Struct("<4sLQL")
LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
LOCATOR_MARK, END64_MARK = b"PK\6\7", b"PK\6\6"
# All of these, with the longest comment.
TAIL_SIZE = END.size + MAX16 + LOCATOR.size + END64.size

# How much longer a member's extra field is taken to be at most, when its header is asked for along with its
# bytes: that of a Zip64 entry, and those by which archivers keep times and owners.
SLACK_SIZE = 64
# Bytes that are inflated at a time, of them and to them.
PIECE_SIZE = 1 << 20
# No byte of deflated data gives more than this many.
MOST_INFLATED = 1032


class Member(NamedTuple):
    """One value: how it is packed, and where its header is."""

    source: Source
    name: str
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int
    flags: int = 0
    name_size: int = -1
    """Bytes of the name as it is written in the file."""

    @property
    def version(self) -> str:
        """Changes whenever the member is written anew."""
        return f"{self.offset:x}-{self.crc:08x}-{id(self.source):x}"

    def render(self) -> ZipInfo:
        """What its header and the directory say of it."""
        info = ZipInfo(self.name, DATE)
        info.compress_type, info.CRC = self.method, self.crc
        info.compress_size, info.file_size = self.packed_size, self.size
        info.header_offset, info.flag_bits = self.offset, self.flags & ENCRYPTED
        info.external_attr = PLAIN_FILE
        return info

    def damage(self, reason: str) -> StoreError:
        """The error that says what is wrong with it."""
        message = f"a member of the zip file is damaged: {reason}"
        return StoreError(message, path=self.source.url, key=self.name)


class Directory:
    """Which members there are, by key. Of several with one name, the last counts."""

    def __init__(self, source: Source | None = None) -> None:
        self.members: dict[str, Member] = {}
        self.comment = b""
        self._guard = threading.RLock()
        self._names: list[str] | None = None
        if source is not None:
            self.parse(source)

    def parse(self, source: Source) -> None:
        """Take the members that a zip file has.

        Raises
            StoreError: not a zip file, damaged, split, or with a member whose name is no key of a store.
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
            # A second member of one name takes the first one's place in the order, too.
            members.pop(member.name, None)
            members[member.name] = member
        # Some archivers write the lowest 16 bits only.
        if count & MAX16 != end.member_count & MAX16 or (
            end.member_count > MAX16 and count != end.member_count
        ):
            raise _damaged(source, f"its directory promises {end.member_count} members and holds {count}")
        self.members, self.comment, self._names = members, end.comment, None

    def names(self) -> list[str]:
        """Every key, sorted; not to be changed."""
        with self._guard:
            if self._names is None:
                self._names = sorted(self.members)
            return self._names

    def names_below(self, prefix: str) -> list[str]:
        """The keys below `prefix`, sorted."""
        names = self.names()
        if not prefix:
            return names[:]
        # "0" is the character after "/".
        return names[bisect_left(names, f"{prefix}/") : bisect_left(names, f"{prefix}0")]

    def children(self, prefix: str) -> list[str]:
        """The names right below `prefix`, found without looking at what lies below them."""
        names = self.names()
        skip = len(prefix) + 1 if prefix else 0
        end = bisect_left(names, f"{prefix}0") if prefix else len(names)
        place = bisect_left(names, f"{prefix}/") if prefix else 0
        found = set()
        while place < end:
            name, slash, _ = names[place][skip:].partition("/")
            found.add(name)
            place = bisect_left(names, f"{names[place][:skip]}{name}0", place) if slash else place + 1
        return sorted(found)


class _End(NamedTuple):
    """What the end of a zip file says."""

    member_count: int
    begin: int
    """Where the directory begins."""
    shift: int
    """What was put before the zip file, by which every place is shifted."""
    comment: bytes


def _read_end(source: Source) -> tuple[_End, Bytes]:
    """The end and the directory before it."""
    tail = bytes(source.read_tail(TAIL_SIZE))
    start, at = source.size - len(tail), len(tail)
    while (at := tail.rfind(END_MARK, 0, at)) >= 0:
        # Not where a comment looks like one, nor where something else follows.
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
            # A longer record than anybody is known to write.
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


def _parse_central(source: Source, table: Bytes, end: _End) -> Iterator[Member]:
    position = 0
    while position < len(table):
        first = position + CENTRAL.size
        if first > len(table):
            raise _damaged(source, f"its directory ends within an entry, at byte {position} of {len(table)}")
        fields = CENTRAL.unpack_from(table, position)
        mark, flags, method, crc, packed_size, size, name_size, extra_size, comment_size, offset = fields
        if mark != CENTRAL_MARK or first + name_size + extra_size + comment_size > len(table):
            raise _damaged(source, f"no entry of its directory at byte {position} of {len(table)}")
        position = first + name_size + extra_size + comment_size
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
        yield Member(source, name, method, crc, packed_size, size, offset, flags, name_size)


def _parse_zip64(extra: bytes, *narrow: int) -> list[int]:
    """Size, packed size and offset, those that did not fit into 32 bits taken from the extra field.

    -1 for what is not there.
    """
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
    """What `ZipFile` writes behind the members, where the first byte is at `place` of the file."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self._first = place

    def tell(self) -> int:
        return self._first + super().tell()

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


def render_directory(members: Iterable[Member], offset: int, comment: bytes) -> bytes:
    """The directory of such members and its end, for a file in which it begins at `offset`."""
    tail = _Tail(offset)
    with ZipFile(tail, "w") as file:
        file.filelist = [member.render() for member in members]
        file.comment = comment
    return tail.getvalue()


def _damaged(source: Source, reason: str, key: str | None = None) -> StoreError:
    return StoreError(f"the zip file is damaged: {reason}", path=source.url, key=key)


def locate(member: Member, header: Bytes | None = None) -> int:
    """Where the member's bytes begin, as its header says, which is read where it was not."""
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


def read_members(wishes: Sequence[tuple[Member, ByteRange | None]]) -> list[Bytes]:
    """Those bytes of those members, in the order asked; a whole member's checksum is compared.

    Of a member that is stored as it is, a range reads that range, which no checksum covers. One that is
    deflated is inflated whole, piece by piece, of which no more is kept than was asked for; `AtMost` so many
    bytes of a longer one are inflated and no more.

    Raises
        StoreError: damaged, encrypted, larger than `value_size` of the limits, or packed by a method that is
            not read here; names the member.
    """
    source = wishes[0][0].source if wishes else None
    if not isinstance(source, StoreSource) or source.request_count == 1:
        return [read_member(*wish) for wish in wishes]
    packed = _read_at_once(source, [(member, *_span(member, wish)) for member, wish in wishes])
    return [_unpacked(*wish, data) for wish, data in zip(wishes, packed, strict=True)]


def read_member(member: Member, wish: ByteRange | None) -> Bytes:
    """Those bytes of one member, see `read_members`."""
    first, last = _span(member, wish)
    return _unpacked(member, wish, member.source.read(locate(member) + first, last - first))


def _span(member: Member, wish: ByteRange | None) -> tuple[int, int]:
    """(first, last) of the member's bytes in the file that are needed."""
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
    if wish is None or member.method == ZIP_DEFLATED:
        return 0, member.packed_size
    return wish.resolve(member.size)


def _read_at_once(source: StoreSource, spans: Sequence[tuple[Member, int, int]]) -> list[Bytes]:
    """One round of requests: of members not read before, the header and the place where the bytes must be."""
    unknown = {member.offset: member for member, _, _ in spans if member.offset not in source.begins}
    requests = [(offset, LOCAL.size) for offset in unknown]
    for member, first, last in spans:
        begin, slack = source.begins.get(member.offset), 0
        if begin is None:
            begin, slack = member.offset + LOCAL.size + member.name_size, SLACK_SIZE
        requests.append((begin + first, last - first + slack))
    answers = source.read_many(requests)
    for member, header in zip(unknown.values(), answers, strict=False):
        locate(member, header)
    found: list[Bytes] = []
    for (member, first, last), (guess, _), data in zip(
        spans, requests[len(unknown) :], answers[len(unknown) :], strict=True
    ):
        begin, size = locate(member) + first, last - first
        skip = begin - guess
        if skip + size > len(data):
            found.append(source.read(begin, size))
        else:
            found.append(memoryview(data)[skip : skip + size] if len(data) > size else data)
    return found


def _unpacked(member: Member, wish: ByteRange | None, data: Bytes) -> Bytes:
    if member.method == ZIP_DEFLATED:
        first, last = (0, member.size) if wish is None else wish.resolve(member.size)
        stops = isinstance(wish, AtMost) and last < member.size
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
    """Bytes `first` to `last` of what is inflated; the rest is checked, unless it `stops` there."""
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
