"""GETs and PUTs by libcurl: what becomes of each answer a server may give, and that nothing is made up."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import pytest

from zstore._ext.requests import curl
from zstore._ext.requests.curl import BROKEN, DONE, REFUSED, SLOW, STALLED, UNASKED, UNRANGED, UNSIZED

pytestmark = pytest.mark.skipif(bool(curl.trouble()), reason="libcurl is not installed")

# Requests at once; seconds to connect, until something comes, and in all; bytes of a body for as many more.
TERMS = (8, 5.0, 5.0, 60.0, 0)
BODY = bytes(range(256)) * 4
NONE = curl.Headers([])


class Server:
    """Gives each request the next of `answers`, byte by byte as it is; a number in it waits so many seconds.

    keeps  how many requests a connection is there for
    pause  seconds before each piece of what is put is read
    """

    def __init__(self) -> None:
        self.answers: list[list[bytes | float]] = []
        self.asked: list[bytes] = []
        self.put: list[bytes] = []
        self.keeps, self.pause = 1, 0.0
        self.ends = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}".encode()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while not self.ends.is_set():
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        """Answer requests, and close."""
        with connection, suppress(OSError):
            for _ in range(self.keeps):
                self.asked.append(connection.recv(1 << 16))
                head, _, content = self.asked[-1].partition(b"\r\n\r\n")
                size = re.search(rb"Content-Length: (\d+)", head)
                if size is not None:
                    self.put.append(self.received(connection, content, int(size[1])))
                for piece in self.answers.pop(0) if self.answers else []:
                    if isinstance(piece, bytes):
                        connection.sendall(piece)
                    elif self.ends.wait(piece):
                        return

    def received(self, connection: socket.socket, content: bytes, size: int) -> bytes:
        pieces = [content]
        while (left := size - sum(map(len, pieces))) > 0 and not self.ends.wait(self.pause):
            pieces.append(connection.recv(min(left, 1 << 20)))
        return b"".join(pieces)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.ends.set()
    server.socket.close()


def answer(status: str, *lines: str, body: bytes = b"") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *lines, "")).encode() + body


def whole(body: bytes) -> bytes:
    """The answer of a server that closes then, and says so: else the next request may be sent to nobody."""
    return answer("200 OK", f"Content-Length: {len(body)}", "Connection: close", body=body)


def get(
    server: Server,
    span: bytes | None = None,
    limit: int = -1,
    terms: Any = TERMS,
    check: Callable[[], Any] = int,
    *,
    is_open: bool = False,
) -> Any:
    one = curl.Stream(curl.Connections(), terms, 1, 1 << 20, 1)
    one.ask(None, (server.url + b"/a", span, curl.Headers([b"X: y"]), limit), None, is_open)
    [(_, found)] = one.take(check)
    return found


def put(
    server: Server,
    contents: list[bytes],
    connections: Any = None,
    terms: Any = TERMS,
    check: Callable[[], Any] = int,
) -> list[Any]:
    """What becomes of each put, one after another."""
    one = curl.Stream(connections or curl.Connections(), terms, 1, 1 << 20, 1)
    lines = curl.Headers([b"X: y", b"Expect:", b"Content-Type:"])
    found = []
    for content in contents:
        one.ask(None, (server.url + b"/a", None, lines, -1), content)
        [(_, answer)] = one.take(check)
        found.append(answer)
    one.leave()
    return found


LENGTH = "Content-Length: 1024"
RANGED = ("Content-Range: bytes 10-19/1024", "Content-Length: 10")
# A range that is asked for, the server's answer, and what becomes of it.
ANSWERS = {
    "whole": (None, answer("200 OK", LENGTH, body=BODY), DONE),
    "in small letters": (None, answer("200", "content-length:1024 ", body=BODY), DONE),
    "after a notice": (None, answer("103 Early", LENGTH) + answer("200 OK", LENGTH, body=BODY), DONE),
    "empty": (None, answer("200 OK", "Content-Length: 0"), DONE),
    "a range": (b"10-19", answer("206 Partial", *RANGED, body=BODY[10:20]), DONE),
    "all for a range": (b"10-19", answer("200 OK", LENGTH, body=BODY), UNRANGED),
    "a range for all": (None, answer("206 Partial", *RANGED, body=BODY[10:20]), UNASKED),
    "no bounds": (b"10-19", answer("206 Partial", "Content-Length: 10", body=BODY[10:20]), UNASKED),
    "bounds that differ": (
        b"10-19",
        answer("206 P", RANGED[0], "Content-Length: 9", body=BODY[10:19]),
        UNASKED,
    ),
    "bounds beyond": (
        b"10-19",
        answer("206 P", "Content-Range: bytes 10-19/15", RANGED[1], body=BODY[:10]),
        UNASKED,
    ),
    "bounds twice": (b"10-19", answer("206 Partial", *RANGED, RANGED[0], body=BODY[10:20]), UNASKED),
    "no size": (
        b"10-19",
        answer("206 P", "Content-Range: bytes 10-19/*", RANGED[1], body=BODY[:10]),
        UNASKED,
    ),
    "no length": (None, answer("200 OK", body=BODY), UNSIZED),
    "in chunks": (None, answer("200 OK", "Transfer-Encoding: chunked", body=b"1\r\na\r\n0\r\n\r\n"), UNSIZED),
    "cut": (None, answer("200 OK", LENGTH, body=BODY[:100]), BROKEN),
    "cut in the head": (None, b"HTTP/1.1 200 OK\r\nContent-Le", BROKEN),
    "nothing": (None, b"", BROKEN),
    "no HTTP": (None, b"220 mail\r\n", UNASKED),
    "too long to believe": (None, answer("200 OK", "Content-Length: 99999999999", body=BODY), UNASKED),
    "no number": (None, answer("200 OK", "Content-Length: -5", body=BODY), UNASKED),
    "two tags": (None, answer("200 OK", LENGTH, 'ETag: "a"', 'ETag: "b"', body=BODY), UNASKED),
    "a long tag": (None, answer("200 OK", LENGTH, "ETag: " + 300 * "a", body=BODY), UNASKED),
    "no content": (None, answer("204 No Content"), UNASKED),
    "missing": (None, answer("404 Not Found", "Content-Length: 4", body=b"none"), REFUSED),
    "moved": (None, answer("301 Moved", "Location: /b", "Content-Length: 0"), REFUSED),
    "busy": (b"10-19", answer("503 Slow Down"), REFUSED),
    "a long refusal": (None, answer("500 Error", "Content-Length: 9000", body=bytes(9000)), REFUSED),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_becomes_of_an_answer(server: Server, name: str) -> None:
    span, text, expected = ANSWERS[name]
    server.answers = [[text], [text]]  # libcurl asks once more where a connection that was kept is closed
    found = get(server, span)
    assert found.outcome == expected
    assert b"X: y\r\n" in server.asked[0]
    assert len(server.asked) == 1
    assert found.size == len(bytes(found))
    if found.outcome == DONE:
        first = 10 if span else 0
        assert bytes(found) == (BODY[first:20] if span else BODY[: found.total_size])
        assert (found.begin, found.total_size) == (first, 0 if name == "empty" else 1024)
    if found.outcome == REFUSED:
        assert found.status == int(text[9:12])
        assert found.size <= 4096


CHUNKS = b"3e8\r\n%b\r\n" % BODY[:1000], b"17\r\n%b\r\n0\r\n\r\n" % BODY[1000:-1]
# What a server says where it need not say how long that is, of less than 1024 bytes then.
OPEN = {
    "whole": (answer("200 OK", LENGTH, body=BODY), DONE),
    "until it closes": (answer("200 OK", body=BODY[:-1]), DONE),
    "in chunks": (answer("200 OK", "Transfer-Encoding: chunked", body=b"".join(CHUNKS)), DONE),
    "nothing": (answer("200 OK", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), DONE),
    "chunks cut": (answer("200 OK", "Transfer-Encoding: chunked", body=CHUNKS[0]), BROKEN),
    "too much": (answer("200 OK", body=2 * BODY), UNASKED),
    "too many chunks": (answer("200 OK", "Transfer-Encoding: chunked", body=CHUNKS[0] * 3), UNASKED),
    "more than it says": (answer("200 OK", "Content-Length: 2048", body=2 * BODY), DONE),
    "cut": (answer("200 OK", LENGTH, body=BODY[:100]), BROKEN),
    "missing": (answer("404 Not Found", body=b"none"), REFUSED),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_becomes_of_an_answer_of_any_length(server: Server, name: str) -> None:
    text, expected = OPEN[name]
    server.answers = [[text], [text]]
    found = get(server, limit=1024, is_open=True)
    assert found.outcome == expected
    if found.outcome == DONE:
        whole = {"until it closes": BODY[:-1], "in chunks": BODY[:-1], "nothing": b""}
        assert bytes(found) == whole.get(name, BODY)


# What a server says to a put, and what becomes of it.
TAGGED = ("200 OK", 'ETag: "a"')
PUT = {
    "done": (answer(*TAGGED, "Content-Length: 0"), DONE),
    "made": (answer("201 Created", 'ETag: "a"', "Content-Length: 4", body=b"made"), DONE),
    "no content": (answer("204 No Content", 'ETag: "a"'), DONE),
    "no length": (answer(*TAGGED, body=b"more"), DONE),
    "in chunks": (answer(*TAGGED, "Transfer-Encoding: chunked", body=b"1\r\na\r\n0\r\n\r\n"), DONE),
    "a long story": (answer(*TAGGED, "Content-Length: 9000", body=bytes(9000)), DONE),
    "cut behind the head": (answer(*TAGGED, "Content-Length: 9000", body=b"x"), DONE),
    "after a notice": (answer("100 Continue") + answer(*TAGGED, "Content-Length: 0"), DONE),
    "cut in the head": (b"HTTP/1.1 200 OK\r\nETag", BROKEN),
    "nothing": (b"", BROKEN),
    "no HTTP": (b"220 mail\r\n", UNASKED),
    "two tags": (answer(*TAGGED, 'ETag: "b"', "Content-Length: 0"), UNASKED),
    "conflict": (answer("412 Precondition Failed", "Content-Length: 4", body=b"then"), REFUSED),
    "busy": (answer("503 Slow Down"), REFUSED),
    "moved": (answer("307 Moved", "Location: /b", "Content-Length: 0"), REFUSED),
}


@pytest.mark.parametrize("name", PUT)
def test_what_becomes_of_a_put(server: Server, name: str) -> None:
    text, expected = PUT[name]
    server.answers = [[text], [text]]
    [found] = put(server, [BODY])
    assert (found.outcome, found.is_sent, len(server.asked)) == (expected, True, 1)
    assert server.asked[0].startswith(b"PUT /a HTTP/1.1\r\n")
    assert b"X: y\r\n" in server.asked[0]
    assert not re.search(rb"(?i)expect|content-type", server.asked[0])
    assert server.put == [BODY]
    if found.outcome in (DONE, REFUSED):
        assert found.status == int(text.rpartition(b"HTTP/1.1 ")[2][:3])
        assert found.size <= 4096


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_001])
def test_all_bytes_are_put_and_connections_kept(server: Server, size: int) -> None:
    server.keeps = 2
    server.answers = [[answer(*TAGGED, "Content-Length: 0")] for _ in range(2)]
    contents = [random.Random(k).randbytes(size) for k in range(2)]
    connections = curl.Connections()
    assert [(one.outcome, one.tag) for one in put(server, contents, connections)] == 2 * [(DONE, b'"a"')]
    assert (server.put, connections.count) == (contents, 1)


def test_nothing_is_put_twice_where_a_kept_connection_breaks(server: Server) -> None:
    # A GET is sent once more by libcurl itself, as nobody knows whether the server was still there.
    server.keeps, server.answers = 2, [[answer(*TAGGED, "Content-Length: 0")]]
    found = put(server, [b"one", b"two"])
    assert [(one.outcome, one.is_sent) for one in found] == [(DONE, True), (BROKEN, True)]
    assert server.put == [b"one", b"two"]


def test_a_put_that_nobody_receives_was_not_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        one = curl.Stream(curl.Connections(), TERMS, 1, 1, 1)
        one.ask("a", (f"http://127.0.0.1:{free.getsockname()[1]}/a".encode(), None, NONE, -1), b"x")
        [(name, found)] = one.take(int)
    assert (name, found.outcome, found.is_sent) == ("a", UNASKED, False)


@pytest.mark.parametrize(("pause", "expected"), [(0.05, DONE), (20.0, STALLED)])
def test_a_put_is_not_late_while_bytes_go_out(server: Server, pause: float, expected: int) -> None:
    server.pause, server.answers = pause, [[answer(*TAGGED, "Content-Length: 0")]]
    [found] = put(server, [bytes(32 << 20)], terms=(8, 5.0, 1.2, 60.0, 0))
    assert found.outcome == expected


def test_a_put_comes_to_its_end_though_who_waited_has_left(server: Server) -> None:
    server.answers = [[0.3, answer(*TAGGED, "Content-Length: 0")]]

    def leave() -> None:
        raise KeyboardInterrupt

    one = curl.Stream(curl.Connections(), TERMS, 1, 1 << 20, 1)
    one.ask("a", (server.url + b"/a", None, NONE, -1), BODY)
    with pytest.raises(KeyboardInterrupt):
        one.take(leave)
    [(name, found)] = one.take(int)
    assert (name, found.outcome, server.put) == ("a", DONE, [BODY])


def test_headers_that_are_kept(server: Server) -> None:
    lines = ('ETag:  "a" ', "x-amz-version-id: v", "Content-Type: text/html", "Content-Encoding: gzip")
    server.answers = [[answer("200 OK", "Content-Length: 1", *lines, body=b"x")]]
    found = get(server)
    assert (found.tag, found.version) == (b'"a"', b"v")
    assert (found.content_type, found.content_encoding) == (b"text/html", b"gzip")


def test_no_more_of_a_value_than_is_wanted(server: Server) -> None:
    for limit, body in ((100, BODY[:100]), (1024, BODY), (5000, BODY)):
        # What comes after that is not waited for.
        server.answers = [[answer("200 OK", LENGTH, body=BODY[: max(limit, 101)]), 20.0]]
        found = get(server, None, limit)
        assert (found.outcome, bytes(found), found.total_size) == (DONE, body, 1024)


@pytest.mark.parametrize(
    ("pieces", "terms", "expected"),
    [
        ([20.0], (8, 5.0, 0.1, 60.0, 0), STALLED),
        ([answer("200 OK", LENGTH, body=b"x"), 20.0], (8, 5.0, 0.1, 60.0, 0), STALLED),
        (
            [answer("200 OK", LENGTH), *(piece for _ in range(99) for piece in (b"x", 0.02))],
            (8, 5.0, 0.1, 0.3, 0),
            STALLED,
        ),
        (
            [answer("200 OK", LENGTH), *(piece for _ in range(99) for piece in (b"x", 0.02))],
            (8, 5.0, 0.5, 60.0, 1024),
            SLOW,
        ),
    ],
)
def test_what_takes_too_long_ends(server: Server, pieces: list[Any], terms: Any, expected: int) -> None:
    server.answers = [pieces]
    assert get(server, terms=terms).outcome == expected


def test_nobody_is_reached() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/a".encode()
        assert stream([(url, None, NONE, -1)])[0].outcome == UNASKED


def test_whoever_is_to_wait_no_longer_leaves_at_once(server: Server) -> None:
    server.answers = [[20.0] for _ in range(8)]
    connections = curl.Connections()
    one = curl.Stream(connections, TERMS, 8, 1 << 20)
    for name in range(8):
        one.ask(name, (server.url + b"/a", None, NONE, -1))

    def leave() -> None:
        if not server.answers:  # all have been asked for
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.take(leave)
    one.leave()
    server.answers = [[answer("200 OK", LENGTH, body=BODY)]]
    [found] = stream([(server.url + b"/a", None, NONE, -1)], connections=connections)
    assert (found.outcome, bytes(found)) == (DONE, BODY)


def stream(
    requests: list[Any], most_size: int = 100, allowed: int = 2, connections: curl.Connections | None = None
) -> list[curl.Answer]:
    """The answers to requests, in order."""
    found: dict[int, curl.Answer] = {}
    left = list(enumerate(requests))
    one = curl.Stream(connections or curl.Connections(), TERMS, allowed, most_size)
    while len(found) < len(requests):
        for _ in range(one.room):
            if left:
                one.ask(*left.pop(0))
                one.send()
        ended = one.take(int)
        assert ended
        found.update(ended)
    assert one.take(int) == []
    one.leave()
    return [found[k] for k in range(len(requests))]


@pytest.mark.parametrize("most_size", [1, 1500, 1 << 20])
def test_bodies_of_a_stream_wait_for_room(server: Server, most_size: int) -> None:
    bodies = [bytes([k]) * size for k, size in enumerate((1000, 0, 300_000, 1400, 5, 9000) * 5)]
    # Each is for a connection of its own, in whatever order they are made: the body says which it was.
    server.answers = [[whole(body)] for body in bodies]
    found = stream([(server.url + b"/a", None, NONE, -1)] * len(bodies), most_size)
    assert {one.outcome for one in found} == {DONE}
    assert sorted(map(bytes, found)) == sorted(bodies)


@pytest.mark.parametrize("way", [partial(stream, most_size=1 << 30, allowed=8), stream])
def test_bodies_stay_as_they_are_while_memory_is_used_again(server: Server, way: Any) -> None:
    held: list[tuple[bytes, Any]] = []
    for turn in range(6):
        bodies = [bytes([turn, k]) * (9000 + 1000 * k) for k in range(20)]
        server.answers = [[whole(body)] for body in bodies]
        found = way([(server.url + b"/a", None, NONE, -1)] * len(bodies))
        assert sorted(map(bytes, found)) == sorted(bodies)
        held += [(bytes(one), one) for one in found[turn % 2 :: 3]]
        del found  # two of three are let go of
        assert all(bytes(body) == text for text, body in held)


def test_requests_are_sent_while_nobody_takes_answers(server: Server) -> None:
    server.answers = [[whole(BODY)] for _ in range(3)]
    one = curl.Stream(curl.Connections(), TERMS, 3, 1 << 20)
    for name in range(3):
        one.ask(name, (server.url + b"/a", None, NONE, -1))
    until = monotonic() + 10
    while len(server.asked) < 3 and monotonic() < until:
        one.send()
    assert len(server.asked) == 3
    found = {}
    while len(found) < 3:
        found |= dict(one.take(int))
    assert {(found[name].outcome, bytes(found[name])) for name in range(3)} == {(DONE, BODY)}
    one.send()  # nothing is left
    assert one.take(int) == []
    one.leave()


def test_a_body_that_waits_does_not_count_as_late_and_what_is_left_ends(server: Server) -> None:
    server.answers = [[whole(BODY)] for _ in range(4)]
    one = curl.Stream(curl.Connections(), (8, 5.0, 1.0, 60.0, 0), 8, 1)
    for name in range(4):
        one.ask(name, (server.url + b"/a", None, NONE, -1))
    names = set()
    while len(names) < 4:
        threading.Event().wait(0.4)  # in which nobody receives
        ended = one.take(int)
        assert [answer.outcome for _, answer in ended] == [DONE] * len(ended) != []
        names |= {name for name, _ in ended}
    assert not one.leave()
    assert not one.leave()

    def leave() -> None:
        raise KeyboardInterrupt

    server.answers = [[20.0]]
    one = curl.Stream(curl.Connections(), TERMS, 8, 1)
    one.ask("a", (server.url + b"/a", None, NONE, -1))
    with pytest.raises(KeyboardInterrupt):
        one.take(leave)


def test_few_connections_are_opened_unless_there_is_much_to_do(server: Server) -> None:
    # With each answer one more request may be under way, as long as the bodies have room.
    for count, allowed, most in ((12, 8, 8), (4, 4, 4), (24, 4, 8)):
        server.answers = [[0.1, whole(BODY)] for _ in range(count)]
        connections = curl.Connections()
        found = stream([(server.url + b"/a", None, NONE, -1)] * count, 1 << 20, allowed, connections)
        assert {one.outcome for one in found} == {DONE}
        assert connections.count == most


def puts(requests: list[Any]) -> list[Any]:
    """The answers to puts of as many values."""
    one = curl.Stream(curl.Connections(), TERMS, len(requests), 1 << 20, len(requests))
    for number, (url, *_) in enumerate(requests):
        one.ask(number, (url, None, curl.Headers([b"Expect:"]), -1), BODY)
    found: dict[int, Any] = {}
    while some := one.take(int):
        found.update(some)
    return [found[number] for number in range(len(requests))]


def opens(requests: list[Any]) -> list[Any]:
    """The answers to requests for as many whole values, of any length below 4096 bytes."""
    one = curl.Stream(curl.Connections(), TERMS, len(requests), 1 << 20, len(requests))
    for number, (url, *_) in enumerate(requests):
        one.ask(number, (url, None, NONE, 4096), None, True)
    found: dict[int, Any] = {}
    while some := one.take(int):
        found.update(some)
    return [found[number] for number in range(len(requests))]


@pytest.mark.parametrize("rounds", [30, pytest.param(1300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", [partial(stream, most_size=1 << 30, allowed=8), stream, puts, opens])
def test_answers_that_are_damaged_anyhow_make_nothing_up(server: Server, way: Any, rounds: int) -> None:
    chance = random.Random(3)
    for _ in range(rounds):
        texts: list[list[bytes | float]] = []
        count = 40
        for _ in range(count):
            size = chance.choice([0, 1, 100, 5000])
            text = bytearray(
                answer("206 Partial", f"Content-Range: bytes 0-{size - 1}/9000", f"Content-Length: {size}")
                if way is not opens
                else answer("200 OK", "Transfer-Encoding: chunked", body=b"%x\r\n" % size)
            )
            for _ in range(chance.choice([0, 1, 3])):
                at = chance.randrange(len(text))
                text[at : at + chance.choice([0, 1])] = bytes(
                    [chance.choice([0, 10, 13, 32, 45, 48, 57, 58, 255])]
                )
            whole = bytes(text) + size * b"x" + b"\r\n0\r\n\r\n" * (way is opens)
            texts.append([whole[: chance.choice([len(whole), chance.randrange(len(whole) + 1)])]])
        server.answers = texts
        found = way([(server.url + b"/a", b"0-4999", NONE, -1)] * count)
        assert len(found) == count
        for one in found:
            assert DONE <= one.outcome <= UNASKED
            if one.outcome == DONE and way is puts:
                assert one.status // 100 == 2
            elif one.outcome == DONE and way is opens:
                assert one.status == 200
                assert len(bytes(one)) <= 4096
            elif one.outcome == DONE:
                assert one.status == 206
                assert one.begin + len(bytes(one)) <= one.total_size
