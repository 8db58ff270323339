"""The parts of a zip file: its directory at the end, and the header before each member.

Spec
    PKWARE APPNOTE 6.3.10: 4.3.7 local file header, 4.3.12 central directory, 4.3.14 to 4.3.16 its end,
    4.5.3 the Zip64 extra field. Encrypted and split archives are not read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from zstore.errors import StoreError
from zstore.storage.base import check_key
from zstore.storage.zip.sources import Bytes, Source

__all__ = [
    "DEFLATED",
    "LOCAL_SIZE",
    "STORED",
    "Member",
    "parse_directory",
    "parse_local",
    "render_directory",
    "render_local",
]

STORED, DEFLATED = 0, 8
ENCRYPTED, IS_UTF8 = 0x0001, 0x0800
ZIP64 = 0x0001
MAX16, MAX32 = 0xFFFF, 0xFFFFFFFF

# signature, version, flags, method, time, date, crc, packed size, size, lengths of name and extra field
LOCAL = struct.Struct("<4s5H3L2H")
# signature, made by, version, flags, method, time, date, crc, packed size, size, lengths of name, extra field
# and comment, disk, internal attributes, external attributes, offset
CENTRAL = struct.Struct("<4s6H3L5H2L")
# signature, disk, disk of the directory, entries here, entries, size, offset, length of the comment
END = struct.Struct("<4s4H2LH")
# signature, disk of the record, its offset, disks
LOCATOR = struct.Struct("<4sLQL")
# signature, size of the rest, made by, version, disk, disk of the directory, entries here, entries,
# size, offset
END64 = struct.Struct("<4sQ2H2L4Q")

LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
LOCATOR_MARK, END64_MARK = b"PK\6\7", b"PK\6\6"
LOCAL_SIZE = LOCAL.size
TAIL_SIZE = END.size + MAX16 + LOCATOR.size + END64.size

MADE_BY_UNIX, VERSION, VERSION64 = 3 << 8, 20, 45
PLAIN_FILE = 0o100644 << 16
# The first day that the format knows: the same values then make the same file.
DATE = 1 << 5 | 1


class Member(NamedTuple):
    """One member: its key, how it is packed, and where its local header begins."""

    name: str
    method: int
    crc: int
    packed_size: int
    size: int
    offset: int
    name_size: int
    """Bytes of the name as it is written in the file."""
    is_encrypted: bool = False


class _End(NamedTuple):
    member_count: int
    size: int
    offset: int
    place: int
    """Where the directory must end."""
    comment: bytes


def parse_directory(source: Source) -> tuple[dict[str, Member], bytes]:
    """The members by key, and the file's comment. Of several with one name, the last counts.

    Raises
        StoreError: not a zip file, damaged, split, or with a member whose name is no key of a store.
    """
    tail = bytes(source.read_tail(TAIL_SIZE))
    start = source.size - len(tail)
    end = _find_end(source, tail, start)
    begin = end.place - end.size
    # What somebody put before the first member shifts every offset.
    shift = begin - end.offset
    if begin < 0 or shift < 0:
        raise _damaged(source, f"its directory of {end.size} bytes would begin before the file")
    table = tail[begin - start : end.place - start] if begin >= start else source.read(begin, end.size)
    members: dict[str, Member] = {}
    position = count = 0
    while position < len(table):
        member, position = _parse_central(source, table, position, shift, begin)
        count += 1
        if member is not None:
            # A second member of one name takes the first one's place in the order, too.
            members.pop(member.name, None)
            members[member.name] = member
    if count & MAX16 != end.member_count & MAX16 or (end.member_count > MAX16 and count != end.member_count):
        raise _damaged(source, f"its directory promises {end.member_count} members and holds {count}")
    return members, end.comment


def _damaged(source: Source, reason: str, key: str | None = None) -> StoreError:
    return StoreError(f"the zip file is damaged: {reason}", path=source.url, key=key)


def _find_end(source: Source, tail: bytes, start: int) -> _End:
    place = len(tail)
    while (place := tail.rfind(END_MARK, 0, place)) >= 0:
        if place + END.size <= len(tail):
            _, disk, first, here, count, size, offset, comment_size = END.unpack_from(tail, place)
            if place + END.size + comment_size == len(tail):
                break
    else:
        raise StoreError(
            f"not a zip file, or one that is cut off: no end of a directory in its last {len(tail)} bytes",
            path=source.url,
        )
    comment = tail[place + END.size :]
    if disk not in (0, MAX16) or first not in (0, MAX16) or here != count:
        raise StoreError("cannot read one part of a zip file that is split into several", path=source.url)
    end = _End(count, size, offset, start + place, comment)
    if MAX16 in (count, disk) or MAX32 in (size, offset):
        return _find_end64(source, tail, start, end)
    return end


def _find_end64(source: Source, tail: bytes, start: int, end: _End) -> _End:
    locator = end.place - start - LOCATOR.size
    if locator < 0 or not tail.startswith(LOCATOR_MARK, locator):
        return end  # exactly 65535 members
    _, _, offset, _ = LOCATOR.unpack_from(tail, locator)
    place = start + locator - END64.size
    record = tail[place - start : place - start + END64.size] if place >= start else b""
    if not record.startswith(END64_MARK):
        # A longer record than anybody is known to write.
        place = offset
        if not 0 <= place <= source.size - END64.size:
            raise _damaged(source, f"the end of its directory is said to be at {place}")
        record = bytes(source.read(place, END64.size))
    mark, _, _, _, disk, first, here, count, size, offset = END64.unpack(record)
    if mark != END64_MARK or disk or first or here != count:
        raise _damaged(source, f"there is no end of a directory at {place}, or it is split into several")
    return _End(count, size, offset, place, end.comment)


def _parse_central(
    source: Source, table: Bytes, position: int, shift: int, limit: int
) -> tuple[Member | None, int]:
    if position + CENTRAL.size > len(table):
        raise _damaged(source, f"its directory ends within an entry, at byte {position} of {len(table)}")
    fields = CENTRAL.unpack_from(table, position)
    mark, _, _, flags, method, _, _, crc, packed_size, size, name_size, extra_size, comment_size = fields[:13]
    offset = fields[16]
    if mark != CENTRAL_MARK:
        raise _damaged(source, f"no entry of its directory at byte {position}")
    first = position + CENTRAL.size
    after = first + name_size + extra_size + comment_size
    if after > len(table):
        raise _damaged(source, f"its directory ends within an entry, at byte {position} of {len(table)}")
    raw = bytes(table[first : first + name_size])
    try:
        name = raw.decode("utf-8" if flags & IS_UTF8 else "cp437")
    except UnicodeDecodeError as error:
        raise _damaged(source, f"the name {raw!r} is not UTF-8: {error}") from error
    if MAX32 in (packed_size, size, offset):
        extra = bytes(table[first + name_size : first + name_size + extra_size])
        try:
            size, packed_size, offset = _parse_zip64(extra, size, packed_size, offset)
        except struct.error as error:
            raise _damaged(source, f"its 64-bit sizes are cut off: {error}", name) from error
    offset += shift
    if offset + LOCAL.size + name_size + packed_size > limit:
        raise _damaged(source, f"{packed_size} bytes at {offset} reach into the directory at {limit}", name)
    if name.endswith("/") and not size:
        return None, after
    try:
        check_key(name)
    except StoreError as error:
        raise StoreError(
            f"the zip file has a member {name!r}, which no store may hold; expected names joined by '/'",
            path=source.url,
        ) from error
    is_encrypted = bool(flags & ENCRYPTED)
    return Member(name, method, crc, packed_size, size, offset, name_size, is_encrypted), after


def _parse_zip64(extra: bytes, size: int, packed_size: int, offset: int) -> tuple[int, int, int]:
    """(size, packed size, offset), those that did not fit into 32 bits taken from the extra field."""
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        if kind == ZIP64:
            wide = extra[place + 4 : place + 4 + length]
            found = []
            for value in (size, packed_size, offset):
                if value == MAX32:
                    (value,) = struct.unpack_from("<Q", wide)
                    wide = wide[8:]
                found.append(value)
            return found[0], found[1], found[2]
        place += 4 + length
    return size, packed_size, offset


def parse_local(source: Source, member: Member, header: Bytes) -> int:
    """Where the member's bytes begin, from its local header.

    Raises
        StoreError: there is another header, or none.
    """
    if len(header) < LOCAL.size:
        raise _damaged(source, "its header is cut off", member.name)
    fields = LOCAL.unpack_from(header)
    if fields[0] != LOCAL_MARK or fields[9] != member.name_size:
        raise _damaged(source, f"the member's header is not at {member.offset}", member.name)
    begin: int = member.offset + LOCAL.size + fields[9] + fields[10]
    if begin + member.packed_size > source.size:
        raise _damaged(source, f"the member's {member.packed_size} bytes at {begin} are cut off", member.name)
    return begin


def _named(member: Member) -> tuple[bytes, int]:
    name = member.name.encode()
    return name, 0 if name.isascii() else IS_UTF8


def render_local(member: Member) -> bytes:
    """The header that goes before the member's bytes; its length follows from the name and the sizes."""
    name, flags = _named(member)
    sizes, extra, version = (member.packed_size, member.size), b"", VERSION
    if max(sizes) >= MAX32:
        extra = struct.pack("<2H2Q", ZIP64, 16, member.size, member.packed_size)
        sizes, version = (MAX32, MAX32), VERSION64
    fields = (version, flags, member.method, 0, DATE, member.crc, *sizes, len(name), len(extra))
    return LOCAL.pack(LOCAL_MARK, *fields) + name + extra


def _render_central(member: Member) -> bytes:
    name, flags = _named(member)
    narrow = [member.size, member.packed_size, member.offset]
    wide = [value for value in narrow if value >= MAX32]
    size, packed_size, offset = (min(value, MAX32) for value in narrow)
    extra = struct.pack(f"<2H{len(wide)}Q", ZIP64, 8 * len(wide), *wide) if wide else b""
    version = VERSION64 if wide else VERSION
    fields = (version | MADE_BY_UNIX, version, flags, member.method, 0, DATE, member.crc, packed_size, size)
    lengths = (len(name), len(extra), 0)
    return CENTRAL.pack(CENTRAL_MARK, *fields, *lengths, 0, 0, PLAIN_FILE, offset) + name + extra


def render_directory(members: list[Member], offset: int, comment: bytes) -> bytes:
    """The directory of `members` and its end, for a file in which it begins at `offset`."""
    table = b"".join(map(_render_central, members))
    count, size = len(members), len(table)
    ends = b""
    if count >= MAX16 or size >= MAX32 or offset >= MAX32:
        record = END64.pack(
            END64_MARK, END64.size - 12, VERSION64, VERSION64, 0, 0, count, count, size, offset
        )
        ends = record + LOCATOR.pack(LOCATOR_MARK, 0, offset + size, 1)
    count, size, offset = min(count, MAX16), min(size, MAX32), min(offset, MAX32)
    return table + ends + END.pack(END_MARK, 0, 0, count, count, size, offset, len(comment)) + comment
