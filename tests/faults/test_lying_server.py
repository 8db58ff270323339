"""A bucket that answers or lists wrongly in 31 ways, or takes values wrongly in 24: right, or an error soon.

It is asked by libcurl and by obstore. What became of each is in tables of docs/reliability.md, which these
tests keep true.
"""

from __future__ import annotations

import gc
import itertools
import math
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest

import zstore
from zstore.errors import ZstoreError
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

pytest.importorskip("obstore", reason="obstore is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ITEMS = np.arange(1, 4097, dtype="<u2").reshape(64, 64)
SHARDS = {"chunks": (8, 8), "shards": (32, 32), "compressors": None}
CHUNKS = {"chunks": (32, 32), "compressors": None}
SMALL = {"chunks": (8, 8), "compressors": None}
OPTIONS: dict[str, Any] = {
    "access_key_id": "k",
    "secret_access_key": "s",
    "region": "us-east-1",
    "client_options": {"allow_http": True},
}
# Seconds that an answer may take: short where none comes, else so long that a busy machine's is not late.
READ_TIME = {True: 0.4, False: 5.0}
# Seconds in which a read must have come to its end.
LONGEST = 12.0
# One of its own for each read.
BUCKETS = itertools.count()

Head = dict[str, str]


class Answer:
    """What an honest server says: a status, the lines of a head, and a body."""

    def __init__(
        self, server: LyingServer, path: str, wanted: str | None, value: bytes | None = None
    ) -> None:
        value = server.values[path] if value is None else value
        self.path, self.value, self.has_range = path, value, wanted is not None
        self.status, self.begin, self.end = "200 OK", 0, len(value)
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            self.begin = int(first) if first else max(0, len(value) - int(last))
            self.end = min(len(value), int(last) + 1) if first and last else len(value)
            self.status = "206 Partial Content"
        self.body = value[self.begin : self.end]
        self.head: Head = {"Content-Length": str(len(self.body)), "ETag": server.tags.get(path, '"one"')}
        if wanted is not None:
            self.head["Content-Range"] = f"bytes {self.begin}-{self.end - 1}/{len(value)}"

    def text(self) -> bytes:
        """The answer as it is sent."""
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {text}" for name, text in self.head.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body

    def refused(self, status: str, code: str = "") -> bytes:
        """A refusal with a code of S3's."""
        self.status, self.body = status, f"<Error><Code>{code}</Code></Error>".encode() if code else b""
        self.head = {"Content-Length": str(len(self.body))}
        return self.text()

    def said(self, **head: str | None) -> bytes:
        """The answer with other lines in its head; None: without one."""
        for name, text in head.items():
            self.head.pop(name.replace("_", "-"), None)
            if text is not None:
                self.head[name.replace("_", "-")] = text
        return self.text()

    def ranged(self, begin: int, end: int, total: int) -> bytes:
        """The answer of a range that it says to be this one."""
        if not self.has_range:
            return self.text()
        self.body = self.value[begin:end]
        return self.said(Content_Length=f"{end - begin}", Content_Range=f"bytes {begin}-{end - 1}/{total}")

    def whole(self) -> bytes:
        """All of the value, whatever was asked for."""
        self.status, self.body = "200 OK", self.value
        return self.said(Content_Length=str(len(self.value)), Content_Range=None)

    def replaced(self, body: bytes, **head: str) -> bytes:
        """The answer with another body, of the length that it says."""
        self.body = body
        return self.said(Content_Length=str(len(body)), **head)


def chunked(answer: Answer) -> bytes:
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(answer.body), answer.body)
    answer.body = body
    return answer.said(Content_Length=None, Transfer_Encoding="chunked")


# What is sent in place of an answer, and what becomes of the connection then.
CLOSE, KEEP, RESET, STALL = "close", "keep", "reset", "stall"
Mode = Callable[[Answer, "LyingServer"], tuple[bytes, str]]
MODES: dict[str, Mode] = {
    "500": lambda a, s: (a.refused("500 Internal Server Error", "InternalError"), KEEP),
    "503 SlowDown": lambda a, s: (a.refused("503 Slow Down", "SlowDown"), KEEP),
    "429": lambda a, s: (a.refused("429 Too Many Requests"), KEEP),
    "403 of a value that its list shows": lambda a, s: (a.refused("403 Forbidden", "AccessDenied"), KEEP),
    "400 ExpiredToken": lambda a, s: (a.refused("400 Bad Request", "ExpiredToken"), KEEP),
    "404 of a value that is there": lambda a, s: (a.refused("404 Not Found", "NoSuchKey"), KEEP),
    "416 of a range that is there": lambda a, s: (
        a.refused("416 Range Not Satisfiable", "InvalidRange"),
        KEEP,
    ),
    "204": lambda a, s: (b"HTTP/1.1 204 No Content\r\n\r\n", KEEP),
    "reset": lambda a, s: (b"", RESET),
    "closed without an answer": lambda a, s: (b"", CLOSE),
    "no answer": lambda a, s: (b"", STALL),
    "body cut off": lambda a, s: (a.text()[:-5], CLOSE),
    "body stops": lambda a, s: (a.text()[:-5], STALL),
    "more bytes than the length": lambda a, s: (a.text() + b"more", CLOSE),
    "length in chunks": lambda a, s: (chunked(a), KEEP),
    "no length": lambda a, s: (a.said(Content_Length=None, Connection="close"), CLOSE),
    "two lengths": lambda a, s: (a.said(Content_Length=f"{len(a.body)}\r\nContent-Length: 7"), KEEP),
    "the whole for a range": lambda a, s: (a.whole(), KEEP),
    "another range": lambda a, s: (a.ranged(a.begin - 1, a.end - 1, len(a.value)), KEEP),
    "a shorter range": lambda a, s: (a.ranged(a.begin, a.end - 1, len(a.value)), KEEP),
    "a range of another size": lambda a, s: (a.ranged(a.begin, a.end, len(a.value) + 9), KEEP),
    "an empty body": lambda a, s: (a.replaced(b""), KEEP),
    "a page in place of a value": lambda a, s: (
        a.replaced(b"<html>sign in</html>", Content_Type="text/html"),
        KEEP,
    ),
    "gzip, as it says": lambda a, s: (a.said(Content_Encoding="gzip"), KEEP),
    "another entity tag each time": lambda a, s: (a.said(ETag=f'"{s.count}"'), KEEP),
    "no entity tag": lambda a, s: (a.said(ETag=None), KEEP),
    "a weak entity tag": lambda a, s: (a.said(ETag='W/"one"'), KEEP),
    "307 to the value": lambda a, s: (
        a.text()
        if "?" in a.path
        else f"HTTP/1.1 307 T\r\nLocation: {s.url}{a.path}?\r\nContent-Length: 0\r\n\r\n".encode(),
        KEEP,
    ),
    "307 to itself": lambda a, s: (
        f"HTTP/1.1 307 T\r\nLocation: {s.url}{a.path}\r\nContent-Length: 0\r\n\r\n".encode(),
        KEEP,
    ),
    "no HTTP": lambda a, s: (b"\x16\x03\x01 what is this?\r\n\r\n", CLOSE),
    "a head that does not end": lambda a, s: (b"HTTP/1.1 200 OK\r\n" + 40_000 * b"X-More: more\r\n", CLOSE),
}


class Put:
    """A value that is to be put; `store` keeps it, on its condition, and gives the honest answer."""

    def __init__(self, server: LyingServer, path: str, head: Head, body: bytes) -> None:
        self.server, self.path, self.head, self.body = server, path, head, body

    def store(self, status: str = "200 OK", *lines: str, tag: str | None = None) -> bytes:
        values, there = self.server.values, self.server.tags.get(self.path)
        if self.head.get("if-none-match") == "*" and self.path in values:
            return self.refused("412 Precondition Failed", "PreconditionFailed")
        if self.head.get("if-match", there) != there:
            return self.refused("412 Precondition Failed", "PreconditionFailed")
        values[self.path] = self.body
        self.server.tags[self.path] = f'"{next(BUCKETS)}"'
        lines = (f"ETag: {tag or self.server.tags[self.path]}",) * (tag != "") + (
            lines or ("Content-Length: 0",)
        )
        return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()

    def refused(self, status: str, code: str = "", *, stores: bool = False) -> bytes:
        if stores:
            self.store()
        body = f"<Error><Code>{code}</Code></Error>" if code else ""
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


PutMode = Callable[[Put], tuple[bytes, str]]
LATER = "503 Slow Down", "SlowDown"
PUT_MODES: dict[str, PutMode] = {
    "500": lambda p: (p.refused("500 Internal Server Error", "InternalError"), KEEP),
    "503 SlowDown": lambda p: (p.refused(*LATER), KEEP),
    "503 of what it has stored": lambda p: (p.refused(*LATER, stores=True), KEEP),
    "400 RequestTimeout": lambda p: (p.refused("400 Bad Request", "RequestTimeout"), KEEP),
    "400 ExpiredToken": lambda p: (p.refused("400 Bad Request", "ExpiredToken"), KEEP),
    "403": lambda p: (p.refused("403 Forbidden", "AccessDenied"), KEEP),
    "404 NoSuchBucket": lambda p: (p.refused("404 Not Found", "NoSuchBucket"), KEEP),
    "409": lambda p: (p.refused("409 Conflict", "ConditionalRequestConflict"), KEEP),
    "412": lambda p: (p.refused("412 Precondition Failed", "PreconditionFailed"), KEEP),
    "501": lambda p: (p.refused("501 Not Implemented", "NotImplemented"), KEEP),
    "reset": lambda p: (b"", RESET),
    "reset when it has stored it": lambda p: (p.store()[:0], RESET),
    "closed without an answer": lambda p: (b"", CLOSE),
    "closed when it has stored it": lambda p: (p.store()[:0], CLOSE),
    "no answer": lambda p: (b"", STALL),
    "no answer when it has stored it": lambda p: (p.store()[:0], STALL),
    "head cut off": lambda p: (p.store()[:20], CLOSE),
    "no entity tag": lambda p: (p.store(tag=""), KEEP),
    "204": lambda p: (p.store("204 No Content"), KEEP),
    "body of its own cut off": lambda p: (p.store("200 OK", "Content-Length: 9") + b"x", CLOSE),
    "307 to itself": lambda p: (
        f"HTTP/1.1 307 T\r\nLocation: {p.server.url}{p.path}\r\nContent-Length: 0\r\n\r\n".encode(),
        KEEP,
    ),
    "no HTTP when it has stored it": lambda p: (p.store()[:0] + b"\x16\x03\x01 what?\r\n\r\n", CLOSE),
    "two entity tags": lambda p: (p.store("200 OK", 'ETag: "2"', "Content-Length: 0"), KEEP),
    "a weak entity tag": lambda p: (p.store(tag='W/"1"'), KEEP),
}

# After these, time passes until nothing more is waited for.
WAITING = ("no answer", "body stops", "no answer when it has stored it")


class LyingServer:
    """The values of a bucket; `mode` answers for chunks of one array: for all, or for the first alone.

    put_mode  answers for what is put into "put", likewise
    list_mode  answers for lists, likewise

    place   that array's: requests for another one may still come that nobody waits for
    expiry  when access keys expire, by `time.monotonic`; others are good
    delay   seconds before each answer
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.mode: Mode | None = None
        self.put_mode: PutMode | None = None
        self.list_mode: Mode | None = None
        self.place, self.lies_once = "", False
        self.expiry: dict[str, float] = {}
        self.delay = 0.0
        self.keys: set[str] = set()
        self.count = self.lies = 0
        self.lock, self.is_closing = threading.Lock(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while not self.is_closing.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            try:
                while line := file.readline():
                    _, target, _ = line.decode().split(" ", 2)
                    lines = iter(file.readline, b"\r\n")
                    head = {
                        k.lower(): v.strip() for k, _, v in (one.decode().partition(":") for one in lines)
                    }
                    body = file.read(int(head.get("content-length", 0)))
                    if line.startswith(b"PUT "):
                        text, then = self.take(target, head, body)
                    else:
                        text, then = self.answer(line.split()[0], target, head)
                    if then == RESET:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        file.close()
                        return
                    connection.sendall(text)
                    if then == STALL:
                        self.is_closing.wait(30)
                    if then != KEEP:
                        return
            except (OSError, ValueError):
                return

    def take(self, target: str, head: Head, body: bytes) -> tuple[bytes, str]:
        with self.lock:
            put = Put(self, target, head, body)
            self.count += 1
            lies = self.put_mode is not None and not (self.lies_once and self.lies)
            self.lies += lies
            return self.put_mode(put) if lies and self.put_mode is not None else (put.store(), KEEP)

    def answer(self, verb: bytes, target: str, head: Head) -> tuple[bytes, str]:
        # Who asks a proxy names the server, too.
        asked, _, query = re.sub("^http://[^/]*", "", target).partition("?")
        # All buckets hold the same, beside what was put into each.
        path = asked if asked in self.values else re.sub("^/bucket[0-9]*/", "/bucket/", asked)
        time.sleep(self.delay)
        key = head.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        self.keys.add(key)
        if self.expiry.get(key, math.inf) < time.monotonic():
            return Answer(self, path, None).refused("403 Forbidden", "ExpiredToken"), KEEP
        if "list-type=2" in query:
            wanted = dict(parse_qsl(query))
            keys = [path.removeprefix("/bucket/") for path in sorted(self.values)]
            keys = [key for key in keys if key.startswith(wanted.get("prefix", ""))]
            keys = [key for key in keys if key > wanted.get("start-after", "")]
            above = sorted({key.split("/")[0] for key in keys}) if "delimiter" in wanted else []
            found = "".join(f"<CommonPrefixes><Prefix>{name}/</Prefix></CommonPrefixes>" for name in above)
            found += "".join(
                f"<Contents><Key>{key}</Key><Size>9</Size><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>one</ETag></Contents>"
                for key in keys * (not above)
            )
            body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()
            listed = Answer(self, f"{asked}?{query}", None, body)
            with self.lock:
                lies = self.list_mode is not None and not (self.lies_once and self.lies)
                self.lies += lies
            return self.list_mode(listed, self) if lies and self.list_mode else (listed.text(), KEEP)
        if path not in self.values:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", KEEP
        honest = Answer(self, path, head.get("range"))
        with self.lock:
            self.count += 1
            is_meant = self.mode is not None and asked.startswith(f"/{self.place}/c/")
            lies = is_meant and not (self.lies_once and self.lies)
            self.lies += lies
        if verb == b"HEAD":
            honest.body = b""
            return honest.text(), KEEP
        if not lies or self.mode is None:
            return honest.text(), KEEP
        honest.path = target
        return self.mode(honest, self)


@pytest.fixture(scope="module")
def server() -> Iterator[LyingServer]:
    server, store = LyingServer(), MemoryStore()
    for name, options in (("chunks", CHUNKS), ("shards", SHARDS), ("small", SMALL)):
        zstore.create_array(store, name, data=ITEMS, **options)
    server.values = {f"/bucket/{key}": bytes(value) for key, value in store._values.items()}
    yield server
    server.is_closing.set()
    server.listener.close()


def outcome(server: LyingServer, mode: str, *, once: bool) -> str:
    """What reading whole chunks, and inner chunks of shards, comes to: "right", or the errors."""
    options = {**OPTIONS, "endpoint": server.url}
    found = []
    for name, window in (("chunks", np.s_[5:59, 5:59]), ("shards", np.s_[5:12, 5:12])):
        server.mode, server.place = None, f"bucket{next(BUCKETS)}/{name}"
        array = zstore.open_array(f"s3://{server.place}", mode="r", storage_options=options)
        server.mode, server.lies_once, server.lies = MODES[mode], once, 0
        begun = time.monotonic()
        try:
            items = array[window]
        except ZstoreError as error:
            found.append(type(error).__name__)
        else:
            is_right = items == ITEMS[window]
            assert not items[~is_right].any(), (mode, name)
            found.append("right" if is_right.all() else "fill values")
        assert time.monotonic() - begun < LONGEST, (mode, name)
        assert server.lies, (mode, name)
    return found[0] if found[0] == found[1] else " / ".join(found)


def put_outcome(server: LyingServer, mode: str, *, once: bool) -> str:
    """What putting a value, a new one, and one over its version comes to: "stored", or the errors."""
    found = []
    for verb in ("put", "put_new", "put_over"):
        path = f"bucket{next(BUCKETS)}/put"
        server.put_mode = None
        store = open_store(f"s3://{path}", storage_options={**OPTIONS, "endpoint": server.url})
        version = store.put_over("a", b"old", None) if verb == "put_over" else None
        server.put_mode, server.lies_once, server.lies = PUT_MODES[mode], once, 0
        begun, count = time.monotonic(), server.count
        try:
            made = (
                store.put_over("a", b"new", version)
                if verb == "put_over"
                else getattr(store, verb)("a", b"new")
            )
        except ZstoreError as error:
            found.append(type(error).__name__)
        else:
            found.append("stored")
            assert server.values[f"/{path}/a"] == b"new", (mode, verb)
            if verb == "put_over" and made is not None and mode != "two entity tags":
                assert made.partition("\n")[0] == server.tags[f"/{path}/a"]
        assert server.count - count <= 4, (mode, verb)  # two attempts, and a look at what is there
        assert time.monotonic() - begun < LONGEST, (mode, verb)
        assert server.lies, (mode, verb)
        server.put_mode = None
    return found[0] if len({*found}) == 1 else " / ".join(found)


def list_outcome(server: LyingServer, mode: str, *, once: bool) -> str:
    """What a list of all keys, of a few, and of names comes to: "right", or the errors."""
    found = []
    store = open_store(f"s3://bucket{next(BUCKETS)}", storage_options={**OPTIONS, "endpoint": server.url})
    keys = sorted(path.removeprefix("/bucket/") for path in server.values)
    names = sorted({key.partition("/")[0] for key in keys})
    for verb, expected in (("list", keys), ("few_entries", keys), ("list_children", names)):
        server.list_mode, server.lies_once, server.lies = MODES[mode], once, 0
        begun = time.monotonic()
        try:
            came = store.few_entries("", 999) if verb == "few_entries" else [*getattr(store, verb)("")]
            assert came is not None
            is_right = [one if isinstance(one, str) else one.key for one in came] == expected
            found.append("right" if is_right else "other names")
        except ZstoreError as error:
            found.append(type(error).__name__)
        finally:
            server.list_mode = None
        assert time.monotonic() - begun < LONGEST, (mode, verb)
        assert server.lies, (mode, verb)
    return found[0] if len({*found}) == 1 else " / ".join(found)


def table(text: str, title: str = "A lying bucket") -> dict[str, tuple[str, ...]]:
    """The rows of the page's table, by mode."""
    part = text.partition(f"### {title}\n")[2].partition("|---|---|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines()]
    return {mode: tuple(cells) for mode, *cells in rows}


def found_by(
    server: LyingServer, mode: str, monkeypatch: pytest.MonkeyPatch, act: Callable[..., str] = outcome
) -> tuple[str, ...]:
    """(by libcurl, once; always; by obstore, once; always)."""
    monkeypatch.setattr("zstore.storage.remote.FIRST_PAUSE", 0.01)
    found = []
    for way in ("on", "off"):
        monkeypatch.setenv("ZSTORE_LIBCURL", way)
        zstore.set_limits(bucket_attempt_count=2, read_time=READ_TIME[mode in WAITING])
        try:
            found += [act(server, mode, once=once) for once in (True, False)]
        finally:
            zstore.set_limits(bucket_attempt_count=None, read_time=None)
    return tuple(found)


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow) if mode in WAITING else mode for mode in MODES]
)
def test_what_a_lying_bucket_comes_to(
    server: LyingServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_by(server, mode, monkeypatch) == table(PAGE.read_text("utf-8"))[mode]


def test_listings_that_are_given_up_say_nothing(server: LyingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    server.lies_once = False
    for _ in range(16):
        # A list each tells whether a chunk that is refused is there; the first answer ends the others.
        server.mode, server.place = None, f"bucket{next(BUCKETS)}/small"
        options = {**OPTIONS, "endpoint": server.url}
        array = zstore.open_array(f"s3://{server.place}", mode="r", storage_options=options)
        server.mode = MODES["403 of a value that its list shows"]
        with pytest.raises(ZstoreError):
            array[:]
        del array
    gc.collect()
    assert not said


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow) if mode in WAITING else mode for mode in MODES]
)
def test_what_a_list_that_lies_comes_to(
    server: LyingServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, firsts, once, always = found_by(server, mode, monkeypatch, list_outcome)
    if mode == "a page in place of a value":  # an empty list to obstore
        assert (first, firsts, once, always) == ("StoreError", "StoreError", "other names", "other names")
        return
    assert {first, firsts, once, always} <= {"right", "StoreError"}
    assert firsts == always
    assert first in ("right", once)


PUTS = "A bucket that takes values wrongly"


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow) if mode in WAITING else mode for mode in PUT_MODES]
)
def test_what_becomes_of_values_that_are_taken_wrongly(
    server: LyingServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_by(server, mode, monkeypatch, put_outcome) == table(PAGE.read_text("utf-8"), PUTS)[mode]


def test_the_page_has_all_ways_to_lie() -> None:
    assert table(PAGE.read_text("utf-8")).keys() == MODES.keys()
    assert table(PAGE.read_text("utf-8"), PUTS).keys() == PUT_MODES.keys()


@pytest.mark.parametrize("libcurl", ["on", "off"])
def test_credentials_that_expire_in_the_midst_are_asked_for_anew(
    server: LyingServer, libcurl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZSTORE_LIBCURL", libcurl)

    def provide() -> dict[str, Any]:
        key = f"k{len(server.expiry)}"
        server.expiry[key] = time.monotonic() + 1.0
        # Whoever knows this asks a minute before the end.
        expires_at = datetime.now(UTC) + timedelta(seconds=60.3)
        return {"access_key_id": key, "secret_access_key": "s", "token": None, "expires_at": expires_at}

    options = {**OPTIONS, "endpoint": server.url, "credential_provider": provide}
    del options["access_key_id"], options["secret_access_key"]
    monkeypatch.setattr(server, "mode", None)
    monkeypatch.setattr(server, "expiry", {})
    monkeypatch.setattr(server, "keys", set())
    monkeypatch.setattr(server, "delay", 0.09)
    zstore.set_limits(bucket_request_count=4)
    try:
        array = zstore.open_array("s3://bucket/small", mode="r", storage_options=options)
        np.testing.assert_array_equal(array[...], ITEMS)
    finally:
        zstore.set_limits(bucket_request_count=None)
    assert len(server.keys & server.expiry.keys()) > 1


@pytest.mark.parametrize("libcurl", ["on", "off"])
@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_proxy_is_asked(
    server: LyingServer, libcurl: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZSTORE_LIBCURL", libcurl)
    monkeypatch.setattr(server, "mode", None)
    options = {**OPTIONS, "endpoint": "http://nowhere.invalid"}
    if by == "option":
        options["client_options"] = {"allow_http": True, "proxy_url": server.url}
    else:
        monkeypatch.setenv("http_proxy", server.url)
    array = zstore.open_array("s3://bucket/chunks", mode="r", storage_options=options)
    np.testing.assert_array_equal(array[...], ITEMS)
