"""Reads and writes kerchunk's references in JSON; reading makes no object of each reference.

Spec
    kerchunk "References specification", versions 0 and 1. The member "zstore" is zstore's own: size, time and
    entity tag of the sources.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import mmap
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from zstore.errors import MetadataError, UnsupportedError
from zstore.plugin.kernels import References
from zstore.plugin.stores import current_limits
from zstore_virtual.collect import Collector, Grid, grid_of
from zstore_virtual.manifest import ABSENT, INLINE, WHOLE, Chunks, Manifest, Reference, Source
from zstore_virtual.templates import Template, Value

__all__ = ["parse_sources", "read_json", "render_sources", "write_json"]

STRING = rb'"(?:[^"\\\x00-\x1f]|\\.)*+"'
NUMBER = rb"-?\d{1,19}(?![\d.eE])"
KEY = re.compile(rb"\s*(%s)\s*:\s*" % STRING)
TEXT = re.compile(STRING)
LIST = re.compile(rb"\[\s*(%s|null)\s*(?:,\s*(%s)\s*,\s*(%s)\s*)?\]" % (STRING, NUMBER, NUMBER))
TOKEN = re.compile(rb'%s|[\[{]|[\]}]|,|[^\s\[\]{},"]+' % STRING)
OPEN = re.compile(rb"\s*\{")
NEXT = re.compile(rb"\s*([,}])")
# How the keys of array documents end, and the longest that such a key and such an end may be.
DOCUMENT_ENDS = (b'.zarray"', b'zarr.json"')
MOST_KEY, MOST_END = 4096, 16
# The largest document that is parsed ahead of reading, to learn the grids of arrays.
MOST_DOCUMENT = 1 << 20
# The text is searched by blocks of this size, and two of them stay in memory behind what is being read.
BLOCK = 1 << 20
# The members of references of version 1; any other first member means version 0.
MEMBERS = frozenset(("version", "templates", "gen", "refs", "zstore"))
MOST_GENERATED = 1_000_000
MOST_MEMBERS = 1_000_000
MOST_SOURCES = 4_000_000


def read_json(data: bytes | memoryview | mmap.mmap, *, path: str) -> Manifest:
    """The manifest in references of version 0 or 1.

    path  of the references, for messages

    Raises
        MetadataError: these are no references, or they have numbers or addresses that cannot be.
        UnsupportedError: they are of another version, or have templates outside the grammar.
    """
    try:
        return _Reader(bytes(data) if isinstance(data, memoryview) else data).read()
    except (MetadataError, UnsupportedError) as error:
        raise error.locate(path=path) from None
    except (UnicodeError, json.JSONDecodeError, binascii.Error, RecursionError, OverflowError) as error:
        raise MetadataError(f"the references are not valid: {error}", path=path) from error


class _Reader:
    """Parses the text from beginning to end; all but plain references are decoded one by one.

    Methods take and give positions in the text, in bytes.
    """

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self._data = data
        self._numbers: dict[str, int] = {}
        self._dropped = 0
        # How many bytes of documents may still be parsed ahead: a text made so that documents seem to lie
        # within each other must not be parsed again and again.
        self._ahead = len(data) + MOST_DOCUMENT
        self._collector = Collector(self._grids())
        self._dropped = 0  # the text is gone through once more

    def _grids(self) -> dict[str, Grid | None]:
        """The presumed grids of arrays, by path, from whatever looks like an array's document in the text."""
        found: dict[str, Grid | None] = {}
        for begin in range(0, len(self._data), BLOCK):
            block = bytes(self._data[begin : begin + BLOCK + MOST_END])
            for end in DOCUMENT_ENDS:
                at = block.find(end)
                while 0 <= at < BLOCK:
                    key, document = self._document(begin + at, begin + at + len(end))
                    path = key.rpartition("/")[0]
                    if key and (document or path not in found):
                        found[path] = grid_of({key: document}, path)
                    at = block.find(end, at + len(end))
            self._drop(begin)
        return found

    def _document(self, at: int, end: int) -> tuple[str, bytes]:
        """The key whose last name begins at `at` and ends at `end`, and its document; both empty if none."""
        first = self._data.rfind(b'"', max(0, at - MOST_KEY), at)
        found = KEY.match(self._data, max(first, 0))
        if first < 0 or found is None or found.end(1) != end or self._ahead <= 0:
            return "", b""
        begin = found.end()
        try:
            key, text = json.loads(found[1]), TEXT.match(self._data, begin)
            value, value_end = (
                self._value(begin, self._ahead) if text is None else (json.loads(text[0]), text.end())
            )
            self._ahead -= value_end - begin
            return key, _decode_inline(value) if isinstance(value, str) else json.dumps(value).encode()
        except (MetadataError, ValueError, RecursionError):
            self._ahead -= min(self._ahead, MOST_DOCUMENT)
            return "", b""  # if it is a document, `read` reports what is wrong with it

    def _drop(self, at: int) -> None:
        """Release the memory of a mapped file's pages that lie well before `at`."""
        end = (at - BLOCK) // BLOCK * BLOCK
        if end > self._dropped and isinstance(self._data, mmap.mmap):
            self._data.madvise(mmap.MADV_DONTNEED, self._dropped, end - self._dropped)
            self._dropped = end

    def read(self) -> Manifest:
        """The manifest. In version 0 all members are references, in version 1 those of the member "refs"."""
        members: dict[str, Any] = {}
        at = self._open(len(BOM_UTF8) if self._data[: len(BOM_UTF8)] == BOM_UTF8 else 0)
        is_last = self._ends(at)
        if not is_last and self._key(at)[0] not in MEMBERS:
            self._references(at)
            return self._collector.finish(self._add_sources({}, {}))
        while not is_last:
            key, value_at = self._key(at)
            if key == "refs":
                at = self._references(self._open(value_at))
            else:
                members[key], at = self._value(value_at)
            is_last, at = self._next(at)
        if members.get("version") != 1:
            raise UnsupportedError(
                f"references of version {members.get('version')!r}; expected 1, or none for 0"
            )
        templates = _parse_templates(members.get("templates") or {})
        self._generate(members.get("gen") or [], templates)
        return self._collector.finish(self._add_sources(templates, members.get("zstore") or {}))

    def _add_sources(self, templates: Mapping[str, Value | Template], own: Any) -> Any:
        """Add the sources to the manifest, templates filled in; gives the manifest's number of each.

        own  the member "zstore"
        """
        known = parse_sources(own)
        manifest, numbers = self._collector.manifest, []
        for address in self._numbers:
            if templates and "{{" in address:
                address = Template(address).fill(templates)
            source = known.get(address, Source(address))
            numbers.append(manifest.add_source(**source._asdict()))
        return np.array(numbers, np.int64)

    def _references(self, at: int) -> int:
        """Collect the references of an object whose first member is at `at`; gives where the object ends."""
        if self._ends(at):
            return self._next(at)[1]
        members = References(self._data, lambda address: self._number(json.loads(b'"%s"' % address)))
        while True:
            key, value_at = self._key(at)
            end = self._run(members, key, at)
            if end > at:
                at = end
                self._drop(at)
                if not self._ends(at):
                    continue
                raise self._broken(at)
            is_last, at = self._next(self._reference(key, value_at))
            if is_last:
                return at

    def _run(self, members: References, key: str, at: int) -> int:
        """Collect members from `at` on while they are plain references of one array; gives where they end."""
        rows, name = self._collector.rows(key)
        if rows is None or not rows.is_alone or rows.number(name) is None:
            return at
        found = KEY.match(self._data, at)
        assert found is not None
        written = found[1][1:-1]
        # Some writers escape every "/".
        slash = b"/" if written.endswith(name.encode()) else b"\\/"
        ending = name.encode().replace(b"/", slash)
        if written.endswith(ending):
            separator = slash if rows.keys.separator == "/" else b"."
            start = written[: -len(ending)] + (b"c" + separator if rows.keys.prefix else b"")
            columns, row = rows.room()
            row, at = members.take(at, start, separator, rows.grid, columns, row)
            rows.fill(row)
        return at

    def _number(self, address: str) -> int:
        """The number that an address has while the text is read: templates in it are filled in later."""
        number = self._numbers.setdefault(address, len(self._numbers))
        if number >= MOST_SOURCES:
            raise MetadataError(f"the references lead to more than {MOST_SOURCES} files")
        return number

    def _reference(self, key: str, at: int) -> int:
        """Collect the value at `at`, whatever its form; gives where it ends."""
        data = self._data
        found = LIST.match(data, at)
        if found is not None:
            address = json.loads(found[1])
            if address is None:
                raise MetadataError("a reference has no address; expected [address, offset, size]", key=key)
            offset, size = (0, WHOLE) if found[2] is None else (int(found[2]), int(found[3]))
            if offset < 0 or (found[2] is not None and size < 0) or max(offset, size) >= 1 << 62:
                raise MetadataError(
                    f"a reference has offset {offset} and size {size}; expected none below 0", key=key
                )
            number = self._number(address)
            self._collector.refer(key, number, offset, size)
            return found.end()
        text = TEXT.match(data, at)
        if text is not None:
            self._collector.put(key, _decode_inline(json.loads(text[0])))
            return text.end()
        value, end = self._value(at)
        if not isinstance(value, dict):
            raise MetadataError(
                f"the value is {type(value).__name__}; expected the text or list of a reference",
                key=key,
            )
        self._collector.put(key, json.dumps(value).encode())
        return end

    def _generate(self, rules: Any, templates: Mapping[str, Value | Template]) -> None:
        """Collect the references that the rules of "gen" make."""
        if not isinstance(rules, list):
            raise MetadataError(f"'gen' is {type(rules).__name__}; expected a list")
        total = 0
        for rule in rules:
            if not isinstance(rule, dict) or not isinstance(rule.get("dimensions"), dict):
                raise MetadataError("a rule of 'gen' has no 'dimensions'")
            axes = [_parse_axis(name, values) for name, values in rule["dimensions"].items()]
            total += prod(map(len, axes))
            if max([total, *map(len, axes)]) > MOST_GENERATED:
                raise MetadataError(
                    f"'gen' makes {total} references of up to {max(map(len, axes))} values; expected "
                    f"{MOST_GENERATED} at most"
                )
            if ("offset" in rule) != ("length" in rule):
                raise MetadataError("a rule of 'gen' has one of 'offset' and 'length'; expected both or none")
            parts = {
                name: Template(str(rule[name])) for name in ("key", "url", "offset", "length") if name in rule
            }
            if not {"key", "url"} <= parts.keys():
                raise MetadataError("a rule of 'gen' has no 'key' or no 'url'")
            for values in itertools.product(*axes):
                given = {**templates, **dict(zip(rule["dimensions"], values, strict=True))}
                made = {name: template.fill(given) for name, template in parts.items()}
                byte_range = (0, WHOLE)
                if "offset" in made:
                    byte_range = _parse_integer(made["offset"]), _parse_integer(made["length"])
                self._collector.refer(made["key"], self._number(made["url"]), *byte_range)

    def _open(self, at: int) -> int:
        """Where the first member of the object at `at` begins."""
        found = OPEN.match(self._data, at)
        if found is None:
            raise self._broken(at)
        return found.end()

    def _ends(self, at: int) -> bool:
        """Whether an object ends at `at`."""
        found = NEXT.match(self._data, at)
        return found is not None and found[1] == b"}"

    def _next(self, at: int) -> tuple[bool, int]:
        """Whether the member that ends at `at` is the object's last, and the position behind "}" or ","."""
        found = NEXT.match(self._data, at)
        if found is None:
            raise self._broken(at)
        return found[1] == b"}", found.end()

    def _key(self, at: int) -> tuple[str, int]:
        """The key of the member at `at`, and where its value begins."""
        found = KEY.match(self._data, at)
        if found is None:
            raise self._broken(at)
        return json.loads(found[1]), found.end()

    def _value(self, at: int, most: int | None = None) -> tuple[Any, int]:
        """The JSON value at `at`, if it is no larger than a document may be, and where it ends."""
        limit = current_limits().document_size if most is None else min(most, MOST_DOCUMENT)
        end = _end_of(self._data, at, at + limit)
        text = bytes(self._data[at:end])
        if text.count(b"[") + text.count(b"{") + text.count(b",") > MOST_MEMBERS:
            raise MetadataError(f"the references have an object of more than {MOST_MEMBERS} members")
        return json.loads(text), end

    def _broken(self, at: int) -> MetadataError:
        found = bytes(self._data[at : at + 40])
        return MetadataError(f"the references are not valid at byte {at}: found {found!r}")


def _end_of(data: bytes | mmap.mmap, at: int, limit: int) -> int:
    """Where the JSON value at `at` ends.

    Raises
        MetadataError: it does not end before `limit`.
    """
    depth = 0
    for mark in TOKEN.finditer(data, at, limit):
        token = mark[0]
        if depth == 0 and token == b",":
            break
        if token in (b"[", b"{"):
            depth += 1
        elif token in (b"]", b"}"):
            if depth == 0:
                break
            depth -= 1
        at = mark.end()
        if depth == 0:
            break
    if depth:
        raise MetadataError("the references end within a value, or it is larger than the limit document_size")
    return at


def _decode_inline(text: str) -> bytes:
    if text.startswith("base64:"):
        return base64.b64decode(text[7:], validate=True)
    return text.encode()


def _parse_templates(member: Any) -> dict[str, Value | Template]:
    if not isinstance(member, dict) or not all(isinstance(text, str) for text in member.values()):
        raise MetadataError("'templates' is not an object of texts")
    return {name: Template(text) if "{{" in text else text for name, text in member.items()}


def _parse_axis(name: str, values: Any) -> Any:
    """The values of one dimension of a rule of "gen": a list, or a range."""
    if isinstance(values, list) and all(type(value) in (int, str) for value in values):
        return values
    names = {"start", "stop", "step"}
    if isinstance(values, dict) and "stop" in values and values.keys() <= names and values.get("step", 1):
        numbers = [values.get("start", 0), values["stop"], values.get("step", 1)]
        if all(type(number) is int and abs(number) < 1 << 60 for number in numbers):
            return range(*numbers)
    raise MetadataError(
        f"dimension {name!r} of 'gen' is {values!r:.80}; expected a list, or start, stop and step"
    )


def _parse_integer(text: str) -> int:
    if not re.fullmatch(r"\s*\d{1,18}\s*", text, re.ASCII):
        raise MetadataError(f"'gen' makes the number {text!r:.40}; expected one of 0 or more")
    return int(text)


def parse_sources(member: Any) -> dict[str, Source]:
    """The sources that the member "zstore" describes, by address."""
    if not isinstance(member, dict) or not isinstance(member.get("sources", {}), dict):
        raise MetadataError("the member 'zstore' is not an object with 'sources'")
    found = {}
    for address, facts in member.get("sources", {}).items():
        if not isinstance(facts, dict):
            raise MetadataError(f"the source {address!r} is described by {facts!r:.80}; expected an object")
        numbers = [facts.get(name) for name in ("size", "modified")]
        tag = facts.get("tag")
        if not all(n is None or (type(n) is int and 0 <= n < 1 << 62) for n in numbers):
            raise MetadataError(
                f"the source {address!r} has a size or time of {numbers}; expected whole numbers"
            )
        if tag is not None and not isinstance(tag, str):
            raise MetadataError(f"the source {address!r} has a tag of {tag!r:.80}; expected a text")
        found[address] = Source(address, numbers[0], numbers[1], tag)
    return found


def render_sources(manifest: Manifest) -> dict[str, Any]:
    """The member "zstore": what is known of each source."""
    described = {}
    for source in manifest.sources:
        facts = {name: value for name, value in source._asdict().items() if value is not None}
        del facts["address"]
        if facts:
            described[source.address] = facts
    return {"sources": described}


def write_json(manifest: Manifest) -> bytes:
    """The manifest as references of version 1; fsspec and kerchunk read them but for the member "zstore".

    Raises
        UnsupportedError: a reference from within a file to its end has no size.
    """
    manifest.load()
    addresses = [json.dumps(source.address) for source in manifest.sources]
    lines = [f"{json.dumps(key)}: {_render(value, addresses)}" for key, value in manifest.documents.items()]
    for path, chunks in manifest.chunks.items():
        lines += _lines(path and f"{path}/", chunks, addresses)
    own = json.dumps(render_sources(manifest))
    body = ",\n".join(lines)
    return f'{{"version": 1,\n"zstore": {own},\n"refs": {{\n{body}\n}}}}\n'.encode()


def _render(value: bytes | Reference, addresses: Sequence[str]) -> str:
    """The JSON of a value: a text, or a list of address, offset and size; `addresses` are in JSON, too."""
    if isinstance(value, Reference):
        address = addresses[value.source]
        if value.size == WHOLE:
            if value.offset:
                raise UnsupportedError("a reference from within a file to its end has no size; expected one")
            return f"[{address}]"
        return f"[{address}, {value.offset}, {value.size}]"
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        text = "base64:"
    # Readers would take such a text for base64 or for a template.
    if text.startswith("base64:") or "{{" in text:
        text = "base64:" + base64.b64encode(value).decode()
    return json.dumps(text)


def _lines(start: str, chunks: Chunks, addresses: Sequence[str]) -> Iterator[str]:
    """The members of "refs" for the chunks of an array, whose keys begin with `start`."""
    for row in np.flatnonzero(chunks.source != ABSENT).tolist():
        key = json.dumps(start + chunks.name(row))
        source, offset, size = int(chunks.source[row]), int(chunks.offset[row]), int(chunks.size[row])
        value = chunks.inline[offset : offset + size] if source == INLINE else Reference(source, offset, size)
        yield f"{key}: {_render(value, addresses)}"
