"""Kerchunk's references as JSON: read without making an object of each, and written.

Spec
    kerchunk "References specification", versions 0 and 1. The member "zstore" is ours: what the sources were.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import mmap
import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from zstore._ext.engine.references import References
from zstore.base.limits import current_limits
from zstore.errors import MetadataError, UnsupportedError
from zstore_virtual.collect import Collector, Form, grid_of
from zstore_virtual.manifest import ABSENT, INLINE, WHOLE, Chunks, Manifest, Reference, Source
from zstore_virtual.templates import Template, Value

__all__ = ["read_json", "sources_of", "tell_sources", "write_json"]

STRING = rb'"(?:[^"\\\x00-\x1f]|\\.)*+"'
NUMBER = rb"-?\d{1,19}(?![\d.eE])"
KEY = re.compile(rb"\s*(%s)\s*:\s*" % STRING)
TEXT = re.compile(STRING)
LIST = re.compile(rb"\[\s*(%s|null)\s*(?:,\s*(%s)\s*,\s*(%s)\s*)?\]" % (STRING, NUMBER, NUMBER))
TOKEN = re.compile(rb'%s|[\[{]|[\]}]|,|[^\s\[\]{},"]+' % STRING)
NEXT = re.compile(rb"\s*([,}])")
ENDS = (b'.zarray"', b'zarr.json"')
MOST_KEY, MOST_END = 4096, 16
# Of a document that is looked at beforehand.
MOST_DOCUMENT = 1 << 20
# Of the text, so much is kept in memory behind what is being read.
BLOCK = 1 << 20
MOST_GENERATED = 1_000_000
MOST_MEMBERS = 1_000_000
MOST_SOURCES = 4_000_000


def read_json(data: bytes | memoryview | mmap.mmap, *, path: str) -> Manifest:
    """The manifest that references of version 0 or 1 are.

    Raises
        MetadataError: it is none, or lies outside of what can be.
        UnsupportedError: another version, or templates that are more than the grammar has.
    """
    try:
        return _Reader(bytes(data) if isinstance(data, memoryview) else data).read()
    except (MetadataError, UnsupportedError) as error:
        raise error.locate(path=path) from None
    except (UnicodeError, json.JSONDecodeError, binascii.Error, RecursionError, OverflowError) as error:
        raise MetadataError(f"the references are not valid: {error}", path=path) from error


class _Reader:
    """Goes through the text once; what is not a plain reference is decoded one by one."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self._data = data
        self._numbers: dict[str, int] = {}
        self._dropped = 0
        # Documents lie beside each other; those that seem to lie in each other are not read again and again.
        self._room = len(data) + MOST_DOCUMENT
        self._collector = Collector(self._forms())
        self._dropped = 0

    def _forms(self) -> dict[str, Form | None]:
        """The grids of arrays, by what seem to be their documents, anywhere in the text."""
        found: dict[str, Form | None] = {}
        for begin in range(0, len(self._data), BLOCK):
            block = bytes(self._data[begin : begin + BLOCK + MOST_END])
            for end in ENDS:
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
        """The document of the key that ends there, and that key; empty ones where it is none."""
        first = self._data.rfind(b'"', max(0, at - MOST_KEY), at)
        found = KEY.match(self._data, max(first, 0))
        if first < 0 or found is None or found.end(1) != end or self._room <= 0:
            return "", b""
        begin = found.end()
        try:
            key, text = json.loads(found[1]), TEXT.match(self._data, begin)
            value, then = (
                self._value(begin, self._room) if text is None else (json.loads(text[0]), text.end())
            )
            self._room -= then - begin
            return key, _inline(value) if isinstance(value, str) else json.dumps(value).encode()
        except (MetadataError, ValueError, RecursionError):
            self._room -= min(self._room, MOST_DOCUMENT)
            return "", b""  # if it is one, reading it will say what is wrong

    def _drop(self, at: int) -> None:
        """Let go of the memory of the text that is long before `at`: it is in its file."""
        end = (at - BLOCK) // BLOCK * BLOCK
        if end > self._dropped and isinstance(self._data, mmap.mmap):
            self._data.madvise(mmap.MADV_DONTNEED, self._dropped, end - self._dropped)
            self._dropped = end

    def read(self) -> Manifest:
        kept: dict[str, Any] = {}
        at = self._open(0)
        is_first = True
        while True:
            if self._ends(at) and is_first:
                break
            # Of version 0 all members are references; of version 1 those of its member "refs".
            key, value_at = self._key(at)
            if (
                is_first
                and key not in ("version", "templates", "gen", "refs", "zstore")
                and "version" not in kept
            ):
                self._references(at)
                return self._collector.finish(self._settle({}, {}))
            is_first = False
            if key == "refs":
                at = self._references(self._open(value_at))
            else:
                value, at = self._value(value_at)
                kept[key] = value
            is_last, at = self._next(at)
            if is_last:
                break
        if kept.get("version") != 1:
            raise UnsupportedError(
                f"references of version {kept.get('version')!r}; expected 1, or none for 0"
            )
        templates = _templates(kept.get("templates") or {})
        self._generate(kept.get("gen") or [], templates)
        return self._collector.finish(self._settle(templates, kept.get("zstore") or {}))

    def _settle(self, templates: Mapping[str, Value | Template], said: Any) -> Any:
        """The sources into the manifest, by their addresses as they are meant."""
        known = sources_of(said)
        manifest, numbers = self._collector.manifest, []
        for address in self._numbers:
            if templates and "{{" in address:
                address = Template(address).fill(templates)
            facts = known.get(address, Source(address))
            numbers.append(
                manifest.add_source(address, size=facts.size, modified=facts.modified, tag=facts.tag)
            )
        return np.array(numbers, np.int64)

    def _references(self, at: int) -> int:
        """All members of the object that is open at `at`; where it ends."""
        if self._ends(at):
            end = NEXT.match(self._data, at)
            assert end is not None
            return end.end()
        members = References(self._data, lambda said: self._number(json.loads(b'"%s"' % said)))
        while True:
            key, value_at = self._key(at)
            end = self._run(members, key, at, value_at)
            if end > at:
                at = end
                self._drop(at)
                if not self._ends(at):
                    continue
                raise self._broken(at)
            is_last, at = self._next(self._reference(key, value_at))
            if is_last:
                return at

    def _run(self, members: References, key: str, at: int, value_at: int) -> int:
        """Take the members from `at` on that are plain references to chunks of one array; where they end."""
        rows, name = self._collector.rows(key)
        if rows is None or not rows.is_alone or rows.number(name) is None:
            return at
        grid, keys = rows.form
        found = KEY.match(self._data, at)
        assert found is not None
        written = found[1][1:-1]
        # Some writers escape every "/".
        slash = b"/" if written.endswith(name.encode()) else b"\\/"
        ending = name.encode().replace(b"/", slash)
        if written.endswith(ending):
            separator = slash if keys.separator == "/" else b"."
            start = written[: -len(ending)] + (b"c" + separator if keys.prefix else b"")
            columns, row = rows.room()
            row, at = members.take(at, start, separator, grid, columns, row)
            rows.fill(row)
        return at

    def _number(self, address: str) -> int:
        number = self._numbers.setdefault(address, len(self._numbers))
        if number >= MOST_SOURCES:
            raise MetadataError(f"the references lead to more than {MOST_SOURCES} files")
        return number

    def _reference(self, key: str, at: int) -> int:
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
            self._collector.put(key, _inline(json.loads(text[0])))
            return text.end()
        value, end = self._value(at)
        if not isinstance(value, dict):
            raise MetadataError(
                f"the reference is {type(value).__name__}; expected a text or a list", key=key
            )
        self._collector.put(key, json.dumps(value).encode())
        return end

    def _generate(self, rules: Any, templates: Mapping[str, Value | Template]) -> None:
        if not isinstance(rules, list):
            raise MetadataError(f"'gen' is {type(rules).__name__}; expected a list")
        total = 0
        for rule in rules:
            if not isinstance(rule, dict) or not isinstance(rule.get("dimensions"), dict):
                raise MetadataError("a rule of 'gen' has no 'dimensions'")
            axes = [_axis(name, said) for name, said in rule["dimensions"].items()]
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
                offset, size = (_integer(made[n]) if n in made else None for n in ("offset", "length"))
                number = self._number(made["url"])
                self._collector.refer(made["key"], number, offset or 0, WHOLE if size is None else size)

    def _open(self, at: int) -> int:
        found = re.compile(rb"\s*\{").match(self._data, at)
        if found is None:
            raise self._broken(at)
        return found.end()

    def _ends(self, at: int) -> bool:
        found = NEXT.match(self._data, at)
        return found is not None and found[1] == b"}"

    def _next(self, at: int) -> tuple[bool, int]:
        found = NEXT.match(self._data, at)
        if found is None:
            raise self._broken(at)
        return found[1] == b"}", found.end()

    def _key(self, at: int) -> tuple[str, int]:
        found = KEY.match(self._data, at)
        if found is None:
            raise self._broken(at)
        return json.loads(found[1]), found.end()

    def _value(self, at: int, most: int | None = None) -> tuple[Any, int]:
        """Any value, of the size that documents may have, and where it ends."""
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
    """Where the JSON value at `at` ends, below `limit`."""
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


def _inline(text: str) -> bytes:
    if text.startswith("base64:"):
        return base64.b64decode(text[7:], validate=True)
    return text.encode()


def _templates(said: Any) -> dict[str, Value | Template]:
    if not isinstance(said, dict) or not all(isinstance(text, str) for text in said.values()):
        raise MetadataError("'templates' is not an object of texts")
    return {name: Template(text) if "{{" in text else text for name, text in said.items()}


def _axis(name: str, said: Any) -> Any:
    if isinstance(said, list) and all(type(value) in (int, str) for value in said):
        return said
    names = {"start", "stop", "step"}
    if isinstance(said, dict) and "stop" in said and said.keys() <= names and said.get("step", 1):
        numbers = [said.get("start", 0), said["stop"], said.get("step", 1)]
        if all(type(number) is int and abs(number) < 1 << 60 for number in numbers):
            return range(*numbers)
    raise MetadataError(
        f"dimension {name!r} of 'gen' is {said!r:.80}; expected a list, or start, stop and step"
    )


def _integer(text: str) -> int:
    if not re.fullmatch(r"\s*\d{1,18}\s*", text, re.ASCII):
        raise MetadataError(f"'gen' makes the number {text!r:.40}; expected one of 0 or more")
    return int(text)


def sources_of(said: Any) -> dict[str, Source]:
    """What our own member says of the sources, by address."""
    if not isinstance(said, dict) or not isinstance(said.get("sources", {}), dict):
        raise MetadataError("the member 'zstore' is not an object with 'sources'")
    found = {}
    for address, facts in said.get("sources", {}).items():
        if not isinstance(facts, dict):
            raise MetadataError(f"what is said of the source {address!r} is no object")
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


def tell_sources(manifest: Manifest) -> dict[str, Any]:
    """Our own member: what the sources were."""
    said = {}
    for source in manifest.sources:
        facts = source._asdict()
        del facts["address"]
        said[source.address] = {name: value for name, value in facts.items() if value is not None}
    return {"sources": {address: facts for address, facts in said.items() if facts}}


def write_json(manifest: Manifest) -> bytes:
    """The manifest as references of version 1; fsspec and kerchunk read them, but for our own member."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(_said(manifest, value))}"
        for key, value in manifest.documents.items()
    ]
    for path, chunks in manifest.chunks.items():
        lines += _lines(manifest, path and f"{path}/", chunks)
    own = json.dumps(tell_sources(manifest))
    body = ",\n".join(lines)
    return f'{{"version": 1,\n"zstore": {own},\n"refs": {{\n{body}\n}}}}\n'.encode()


def _said(manifest: Manifest, value: bytes | memoryview | Reference) -> Any:
    if not isinstance(value, Reference):
        data = bytes(value)
        try:
            text = data.decode("ascii")
        except UnicodeDecodeError:
            text = "base64:"
        # A text that others would take for a template, or for base64, is written so that they do not.
        if text.startswith("base64:") or "{{" in text:
            return "base64:" + base64.b64encode(data).decode()
        return text
    address = manifest.sources[value.source].address
    return [address] if value.size == WHOLE and not value.offset else [address, value.offset, value.size]


def _lines(manifest: Manifest, start: str, chunks: Chunks) -> Iterator[str]:
    addresses = [json.dumps(source.address) for source in manifest.sources]
    for row in np.flatnonzero(chunks.source != ABSENT).tolist():
        key = json.dumps(start + chunks.name(row))
        source, offset, size = int(chunks.source[row]), int(chunks.offset[row]), int(chunks.size[row])
        if source == INLINE:
            yield f"{key}: {json.dumps(_said(manifest, chunks.inline[offset : offset + size]))}"
        elif size == WHOLE:
            yield f"{key}: [{addresses[source]}]"
        else:
            yield f"{key}: [{addresses[source]}, {offset}, {size}]"
