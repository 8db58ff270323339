"""Manifests: the SHA-256 of the value of each key of a store, and one root hash for all.

A manifest is a text that `sha256sum -c` reads in the store's directory: a line for each key, sorted by the
keys' bytes. The root hash is the SHA-256 of these lines. Lines that begin with "#" are comments:

    # root HASH          the root hash
    #: SIZE VERSION      size and version, in the source of a copy, of the key in the next line
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple, Unpack

import numpy as np

from zstore._ext.engine.files import entry_lines
from zstore.base.byterange import ByteRange
from zstore.base.once import once
from zstore.errors import (
    ChangedError,
    MetadataError,
    NotFoundError,
    StoreError,
    ZstoreError,
    is_loss,
    leave_out,
)
from zstore.jobs.chunks import Location, of_files_by_content
from zstore.jobs.how import How, HowWords, long_call
from zstore.jobs.plan import check_free
from zstore.jobs.source import LITTLE, MADE, Marks, Sources, Versions
from zstore.jobs.upkeep.spool import Spool, align, match
from zstore.jobs.upkeep.windows import Fault, Outcome, Piece, check_all
from zstore.nodes.nearby import say_near
from zstore.nodes.node import StoredNode
from zstore.nodes.open import StoreLike
from zstore.storage.base import Entry, Store, check_key
from zstore.storage.kinds import local_path
from zstore.storage.local import LocalStore

# How many bytes of a value are read at once.
PART_SIZE = 16 << 20
# A key of a zip file has 64 KiB at most, and twice that where all of it is escaped.
LINE_SIZE = 1 << 18
# Entries that are dealt with at a time: fewer than Python looks through for garbage again and again.
PAGE_COUNT = 512
# A hash, two spaces, a key of one letter, and the end.
SHORTEST_LINE = 64 + 2 + 1 + 1

LINE = re.compile(rb"(\\?)([0-9a-f]{64}) [ *](.+)")
ROOT = re.compile(rb"# root ([0-9a-f]{64})")
STAMP = re.compile(rb"#: (\d{1,19}) ([\x21-\x7e]{1,1024})")
# No file's name has a NUL, which divides the parts of a line here.
ESCAPES = {b"\\": rb"\\", b"\n": rb"\n", b"\r": rb"\r", b"\0": rb"\0"}
ESCAPED = re.compile(rb"[\\\n\r\0]")
MEANT = {escape: byte for byte, escape in ESCAPES.items()}


class Sum(NamedTuple):
    """A key: its written name, its SHA-256, and its size and version in the source of a copy."""

    name: bytes
    digest: bytes
    size: bytes = b""
    version: bytes = b""


class Manifest:
    """A manifest; iterating gives (key, hash), sorted by key. It is not held in memory."""

    def __init__(self, sums: Spool) -> None:
        self._sums = sums

    def __len__(self) -> int:
        return len(self._sums)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((parse_name(each.name), each.digest.decode()) for each in self.sums())

    def blocks(self) -> Iterator[list[bytes]]:
        """Blocks of lines, each the fields of a `Sum` separated by NUL."""
        return self._sums.blocks()

    def sums(self) -> Iterator[Sum]:
        """The `Sum` of each key."""
        return (Sum(*line.split(b"\0")) for line in self._sums)

    @once
    def root(self) -> str:
        """The root hash: the SHA-256 of all lines that are no comments."""
        whole = hashlib.sha256()
        for each in self.sums():
            whole.update(_render(each))
        return whole.hexdigest()

    def lines(self) -> Iterator[bytes]:
        """The lines of the manifest as a file."""
        yield b"# SHA-256 by key, by zstore; `sha256sum -c` reads it in the store's directory\n"
        yield b"# root %s\n" % self.root.encode()
        for each in self.sums():
            if each.version:
                yield b"#: %s %s\n" % (each.size, each.version)
            yield _render(each)

    def write(self, file: str | os.PathLike[str], *, durable: bool = False) -> None:
        """Write the manifest to a file, whole or not at all, or to a device or a pipe.

        durable  whether the file survives a power cut from the moment that this returns

        Raises
            StoreError: the file cannot be written.
        """
        path = local_path(file)
        if path.exists() and not path.is_file() and not path.is_dir():
            try:
                with path.open("wb") as device:
                    device.writelines(self.lines())
            except OSError as error:
                raise StoreError(
                    f"cannot write the manifest: {error.strerror}", path=os.fspath(file)
                ) from error
            return
        where = path.resolve()
        with TemporaryFile() as made:
            made.writelines(self.lines())
            made.flush()
            LocalStore(where.parent, durable=durable or None).put_file(where.name, made.fileno(), made.tell())

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Manifest:
        """The manifest in a file that zstore or `sha256sum` wrote.

        Raises
            NotFoundError: there is no such file.
            MetadataError: it is no manifest, a name is no key or occurs twice, or the root hash is wrong.
            StoreError: the file cannot be read.
        """
        where = os.fspath(file)
        try:
            with Path(where).open("rb") as lines:
                return cls._parse(lines, where)
        except FileNotFoundError as error:
            raise NotFoundError("there is no manifest", path=where) from error
        except OSError as error:
            if isinstance(error, ZstoreError):
                raise
            raise StoreError(f"cannot read the manifest: {error.strerror}", path=where) from error

    @classmethod
    def _parse(cls, file: BinaryIO, where: str) -> Manifest:
        sums, root, stamp, number, end = Spool(), None, (b"", b""), 0, b"\n"
        while line := file.readline(LINE_SIZE + 1):
            number += 1
            if number == 1 and line.endswith(b"\r\n"):
                # All lines end as on Windows; if the first does not, "\r" is a part of a name.
                end = b"\r\n"
            line = line.removesuffix(end)
            if line.startswith(b"#"):
                if of_root := ROOT.fullmatch(line):
                    root = of_root[1].decode()
                if of_key := STAMP.fullmatch(line):
                    stamp = of_key[1], of_key[2]
            else:
                try:
                    sums.add(b"\0".join((*_parse_line(line), *stamp)))
                except ZstoreError as error:
                    raise MetadataError(
                        f"line {number} of the manifest: {error.message}", path=where
                    ) from error
                stamp = b"", b""
        made, last = cls(sums), b""
        for each in made.sums():
            if each.name == last:
                raise MetadataError("the manifest has the key twice", path=where, key=parse_name(last))
            last = each.name
        if root is not None and root != made.root:
            raise MetadataError(
                f"the manifest was changed or cut off: its lines have root hash {made.root}, expected {root}",
                path=where,
            )
        return made


def _render(each: Sum) -> bytes:
    return b"%s%s  %s\n" % (b"\\" if b"\\" in each.name else b"", each.digest, each.name)


def _parse_line(line: bytes) -> tuple[bytes, bytes]:
    """(name, SHA-256) of a line."""
    if len(line) > LINE_SIZE:
        raise MetadataError(f"more than {LINE_SIZE} bytes")
    match = LINE.fullmatch(line)
    if match is None:
        raise MetadataError(f"{line[:100]!r}; expected a SHA-256 in hexadecimal digits, two spaces, a key")
    is_escaped, digest, name = match.groups()
    # `sha256sum` may have got the names that `find` prints.
    name = name.removeprefix(b"./")
    return render_name(check_key(parse_name(name) if is_escaped else _decode(name))), digest


def render_name(key: str) -> bytes:
    """The name of a key as `sha256sum` writes it: on one line, with backslashes as escapes.

    Raises
        StoreError: the key has half of a surrogate pair, which no file's name can have.
    """
    try:
        data = key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise StoreError(f"key or version cannot be written down: {error}", key=key) from error
    if not ESCAPED.search(data):
        return data
    return ESCAPED.sub(lambda match: ESCAPES[match[0]], data)


def parse_name(name: bytes) -> str:
    """The key that has a name.

    Raises
        MetadataError: the name has an unknown escape.
    """

    if b"\\" not in name:
        return _decode(name)

    def unescape(match: re.Match[bytes]) -> bytes:
        if match[0] not in MEANT:
            raise MetadataError(rf"{match[0]!r} in a name; expected \\, \n or \r")
        return MEANT[match[0]]

    return _decode(re.sub(rb"\\.?", unescape, name, flags=re.DOTALL))


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


# Keys and values of stores


def list_keys(
    at: Location, accept: Callable[[str], bool] = lambda key: True, doubtful: Sequence[str] | None = ()
) -> tuple[Spool, int]:
    """(a line "name NUL size NUL version" for each accepted key below a path, the bytes of all values).

    Fingerprints of finished jobs are left out: they are of this store alone.

    doubtful  only keys that may hold one of these texts are passed to `accept`; None: all keys are
    """
    made, size, entries = Spool(), 0, at.store.entries(at.path)
    if doubtful is not None:
        # A text that holds another one occurs nowhere else.
        doubtful = [word for word in doubtful if sum(other in word for other in {*doubtful}) == 1]
    while page := [*islice(entries, PAGE_COUNT)]:
        text = "\n".join([entry.key for entry in page])
        if MADE in text:
            page = [entry for entry in page if MADE not in entry.key.split("/")]
        if doubtful is None or any(word in text for word in doubtful):
            page = [entry for entry in page if accept(at.below(entry.key))]
        lines, bytes_of_page = _render_page(page, at)
        made.extend(lines)
        size += bytes_of_page
    return made, size


def _render_page(page: list[Entry], at: Location) -> tuple[list[bytes], int]:
    """A line for each entry below a path, and the bytes of all."""
    rendered = entry_lines(page, len(at.path.encode("utf-8", "surrogatepass")) + bool(at.path))
    if rendered is not None:
        return rendered
    lines = [
        b"%s\0%d\0%s" % (render_name(at.below(key)), size, render_name(version or ""))
        for key, size, version in page
    ]
    return lines, sum(entry.size for entry in page)


def parse_entry(line: bytes) -> Entry:
    """The entry of a line of `list_keys`."""
    name, size, version, *_ = line.split(b"\0")
    return Entry(parse_name(name), int(size), parse_name(version) or None)


def mark_lines(lines: Sequence[bytes]) -> Marks:
    """A number for each line, which changes with its key, size or version."""
    return np.frombuffer(b"".join([hashlib.blake2b(line, digest_size=8).digest() for line in lines]), LITTLE)


def marks_of(listed: Spool) -> Marks:
    """The marks of all listed keys, in order."""
    return np.concatenate([np.empty(0, np.uint64), *map(mark_lines, listed.blocks())])


def version_of(listed: Spool) -> str:
    """The version of all listed keys."""
    is_certain = not any(line.endswith(b"\0") for line in listed)
    return f"{int(marks_of(listed).sum(dtype=np.uint64)):016x}{'' if is_certain else '?'}"


class ListedKeys(Sources):
    """All keys below a path as one source of a job, from one listing; a change is told by its key.

    lines  of `list_keys`
    size   the bytes of all values
    """

    def __init__(
        self,
        at: Location,
        accept: Callable[[str], bool] = lambda key: True,
        doubtful: Sequence[str] | None = (),
    ) -> None:
        self.place = at.url
        self._at, self._which = at, (accept, doubtful)
        self.lines, self.size = list_keys(at, accept, doubtful)

    @once
    def versions(self) -> Versions:
        return {"": version_of(self.lines)}

    def check_unchanged(self) -> None:
        at, (present, _) = self._at, list_keys(self._at, *self._which)
        for pair in align(self.lines.blocks(), present.blocks()):
            for before, now in match(*([lines] for lines in pair)) if pair[0] != pair[1] else ():
                if before != now:
                    entry = parse_entry(before or now or b"")
                    what = "is new" if before is None else "is gone" if now is None else "was written"
                    raise ChangedError(
                        f"the source changed while it was read: a key {what}; expected nobody to write to it",
                        path=at.store.url,
                        key=at.key(entry.key),
                    )


def read_parts(
    at: Location, entry: Entry, part_size: int = PART_SIZE, pace: Callable[[int], None] | None = None
) -> Iterator[bytes | memoryview]:
    """The bytes of one version of a value, in parts; `pace` is called with a part's size before it is read.

    Raises
        ChangedError: the value was removed or replaced.
    """
    store, key, done, version = at.store, at.key(entry.key), 0, None
    is_whole = entry.size <= part_size
    while done < entry.size or not done:
        if pace is not None:
            pace(min(part_size, entry.size - done))
        [part] = store.get_parts([(key, None if is_whole else ByteRange(done, part_size))])
        is_same = part is not None and part.total_size == entry.size and (not done or part.version == version)
        if part is None or not is_same or (entry.size and not len(part.data)):
            raise ChangedError("the value changed while it was read", path=store.url, key=key)
        yield part.data
        done, version = done + len(part.data), part.version
        if not entry.size:
            return


def digest_of(at: Location, entry: Entry, part_size: int = PART_SIZE) -> bytes:
    """The SHA-256 of a value, which is read in parts."""
    whole = hashlib.sha256()
    for part in read_parts(at, entry, part_size):
        whole.update(part)
    return whole.digest()


def key_within(at: Location, file: str | os.PathLike[str] | None) -> str | None:
    """The key of a file below a path, if it lies in the path's directory; else None."""
    local = at.store.local_path(at.path)
    if file is None or local is None:
        return None
    where, top = Path(file).resolve(), local.resolve()
    return where.relative_to(top).as_posix() if where.is_relative_to(top) else None


@long_call(
    overwrite="a manifest in the file is always replaced",
    resume="nothing is kept of a manifest that was interrupted",
    if_exists="it writes one file",
)
@of_files_by_content
def manifest(
    target: StoredNode[Any] | StoreLike,
    path: str | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Manifest:
    """The manifest of all keys at and below `path`: the SHA-256 of each value, and a root hash for all.

    Nothing is decoded, and values are read in parts. With `file` the manifest is written there; a file in the
    store itself is not listed. Keys out of reach are left out, and one's error is raised at the end.
    `progress` is called with the bytes that are done, and of all.

    Raises
        NotFoundError: there is no such directory.
        ChangedError: somebody wrote there meanwhile.
        StoreError: a value cannot be read, or the store cannot list what it holds; or (before anything is
            read) the file cannot be written, or its disk has too little room.
    """
    how = How(**words)
    at = Location.open(target, path, storage_options, read_only=True)
    local = at.store.local_path(at.path)
    if local is not None and not local.is_dir():
        raise NotFoundError("there is nothing", path=at.url(), hint=partial(say_near, *at))
    own = key_within(at, file)
    left_out = (lambda key: key != own, [own] if own is not None else [])
    listed = ListedKeys(at, *left_out)
    if file is not None:
        _check_room(local_path(file).resolve(), len(listed.lines))
    sums, done = Spool(), 0

    def take(_: int, size: int, hashed: list[tuple[Piece, Fault]]) -> None:
        nonlocal done
        done += size
        for (line,), (digest, *reason) in hashed:
            name = line.partition(b"\0")[0]
            if digest is not None:
                sums.add(b"%s\0%s\0\0" % (name, digest.encode()))
                continue
            key = parse_name(name)
            leave_out(key, StoreError(str(*reason), path=at.store.url, key=at.key(key)))
        if how.progress is not None:
            how.progress(done, listed.size)

    check_all(Hashing(at), ((line,) for line in listed.lines), take, how, read_size=listed.size)
    listed.check_unchanged()
    made = Manifest(sums)
    if file is not None:
        made.write(file, durable=how.durable)
    return made


def _check_room(file: Path, count: int) -> None:
    """Raise StoreError if a file cannot be written, or its disk has no room for `count` lines."""
    if file.exists() and not file.is_file():
        return
    LocalStore(file.parent).check_writable(file.name)
    check_free(file.parent, count * SHORTEST_LINE, "the manifest", os.fspath(file))


@dataclass(frozen=True)
class Hashing:
    """Reads values; pieces begin with the line of a key in `list_keys`."""

    at: Location

    @property
    def store(self) -> Store:
        """The store of the values."""
        return self.at.store

    def size(self, piece: Piece) -> int:
        """The number of bytes of a value in memory at once."""
        return 0 if piece[0] is None else min(PART_SIZE, parse_entry(piece[0]).size)

    @property
    def most_size(self) -> int:
        """The most bytes of any value in memory at once."""
        return PART_SIZE

    def check(self, piece: Piece) -> Outcome:
        """(size of the value, [(its SHA-256,)]), or [(None, why it is out of reach)]."""
        entry = parse_entry(piece[0])
        try:
            return entry.size, [(digest_of(self.at, entry).hex(),)]
        except StoreError as error:
            if not is_loss(error):
                raise
            return entry.size, [(None, error.message)]


class Comparing(Hashing):
    """Compares values with a manifest; pieces are the lines of a key in `list_keys` and in the manifest."""

    def check(self, piece: Piece) -> Outcome:
        """(size of the value, [(key, cause, kind)] if it is not as the manifest says)."""
        line, known = piece
        if line is None:
            return 0, [(parse_name(Sum(*known.split(b"\0")).name), "there is no such key", "missing")]
        entry = parse_entry(line)
        if known is None:
            new = f"a key of {entry.size} bytes, which the manifest does not name"
            return entry.size, [(entry.key, new, "new")]
        expected = Sum(*known.split(b"\0")).digest.decode()
        try:
            digest = digest_of(self.at, entry).hex()
        except ZstoreError as error:
            return entry.size, [(entry.key, error.message, "unreadable")]
        fault = (entry.key, f"SHA-256 is {digest}, expected {expected}", "changed")
        return entry.size, [] if digest == expected else [fault]


def pair_keys(
    at: Location, known: Manifest, own: str | None
) -> tuple[int, Iterator[tuple[bytes | None, bytes | None]]]:
    """(bytes of all values, pieces for `Comparing`), without the key of the manifest's own file."""
    listed, total = list_keys(at, lambda key: key != own, [own] if own is not None else [])
    name = None if own is None else render_name(own)
    pairs = match(listed.blocks(), known.blocks())
    return total, (pair for pair in pairs if pair[1] is None or pair[1].partition(b"\0")[0] != name)
