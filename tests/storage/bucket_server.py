"""A small server that speaks S3, Google's XML and plain HTTP: it counts, forbids and fails as a test asks."""

from __future__ import annotations

import hashlib
import os
import random
import re
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest


def forget_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing but what a test says is a setting: no variables, no credentials, no configuration."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "no credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "no config"))


class _Server(ThreadingHTTPServer):
    request_queue_size = 256


class BucketServer:
    """Values by path ("/bucket/key"), for as long as the `with` block lasts.

    `allowed` is the prefix of paths beyond which everything is 403, `hidden` has single paths that are, and
    without `tells_missing` all are that are not there; `lists` whether it lists; `region` the only one that
    is right, and `names_region` whether who asks in another one is told it, or only who asks of the bucket;
    `keeps` whether conditions are kept, and None that they are refused; `faults` maps "503", "reset", "cut",
    "slow" or "hang" to how probable they are, for paths with `faulty_path` in them; `buckets`, where there
    are any, the only ones; `page_size` how many keys one answer lists. `requests` has method
    and path of each request; those of a round (`expect`) are answered when all of it have come, and `late`
    has those that waited in vain; `hanging` is how many of "hang" are not answered yet, each for
    `hang_time` seconds or until `may_go_on` is set; `deleted` the keys of each request that deletes many.
    """

    def __init__(self, *, certificate: tuple[Path, Path] | None = None) -> None:
        self.values: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.anonymous: list[bool] = []
        self.allowed = ""
        self.denied = ("AccessDenied", "no")
        self.hidden: set[str] = set()
        self.tells_missing = self.lists = True
        self.region = ""
        self.names_region = True
        self.buckets: set[str] = set()
        self.page_size = 1000
        self.keeps: bool | None = True
        self.faults: dict[str, float] = {}
        self.faulty_path = ""
        self.hanging = 0
        self.hang_time, self.may_go_on = 3.0, threading.Event()
        self.faulty: Counter[str] = Counter()
        self.random = random.Random(7)
        self.lock = threading.Lock()
        self.tags: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.late: list[str] = []
        self.deleted: list[list[str]] = []
        self.filled = 0
        self._rounds: list[tuple[frozenset[str], threading.Barrier]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30
            # Head and body are two writes: the second would wait 40 ms for the first to be acknowledged.
            disable_nagle_algorithm = True

            def serve(self) -> None:
                try:
                    server.serve(self)
                except OSError:
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

            def log_message(self, *_: Any) -> None:
                pass

        self.httpd = _Server(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True)
            self.scheme = "https"
        self.url = f"{self.scheme}://127.0.0.1:{self.httpd.server_port}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> BucketServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.httpd.shutdown()
        self.thread.join()
        self.httpd.server_close()

    def fill(self, prefix: str, values: Mapping[str, bytes]) -> None:
        """Let these be the values below a path, as if they had been put one by one."""
        with self.lock:
            for known in (self.values, self.tags, self.generations):
                for path in [path for path in known if path.startswith(prefix)]:
                    del known[path]
            self.values.update({prefix + key: value for key, value in values.items()})
            self.filled += 1
            for key, value in values.items():
                text = value + f"{self.filled}".encode()
                self.tags[prefix + key] = f'"{hashlib.md5(text).hexdigest()}"'

    def values_below(self, prefix: str) -> dict[str, bytes]:
        with self.lock:
            found = {path: value for path, value in self.values.items() if path.startswith(prefix)}
        return {path.removeprefix(prefix): found[path] for path in sorted(found)}

    def options(self, **others: Any) -> dict[str, Any]:
        return {"endpoint_url": self.url, "key": "k", "secret": "s", "region": "us-east-1", **others}

    def expect(self, *rounds: Iterable[str]) -> None:
        """Answer the requests of each of these sets of paths together: who asks one by one waits in vain."""
        sets = [frozenset(paths) for paths in rounds]
        self._rounds = [(paths, threading.Barrier(len(paths))) for paths in sets]

    def wait_for_others(self, path: str) -> None:
        for barrier in (barrier for paths, barrier in self._rounds if path in paths):
            try:
                barrier.wait(20)
            except threading.BrokenBarrierError:
                self.late.append(path)

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        size = int(request.headers.get("Content-Length", 0))
        body = request.rfile.read(size)
        address = urlsplit(request.path)
        path, query = unquote(address.path), dict(parse_qsl(address.query, keep_blank_values=True))
        listed = f"{path}/{query.get('prefix', '')}" if "list-type" in query else path
        with self.lock:
            self.requests.append((request.command, listed))
            self.anonymous.append("Authorization" not in request.headers)
            faults = self.faults.items() if self.faulty_path in path else ()
            fault = next((name for name, p in faults if self.random.random() < p), "")
            self.faulty[fault] += 1
            self.hanging += fault == "hang"
        self.wait_for_others(listed)
        if fault == "reset":
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request.connection.close()
            request.close_connection = True
            return
        if fault == "hang":
            self.may_go_on.wait(self.hang_time)
        if fault == "503":
            status, headers, data = 503, {}, _error("SlowDown")
        elif fault == "timeout":
            status, headers, data = 400, {}, _error("RequestTimeout")
        else:
            with self.lock:
                status, headers, data = self.answer(request, path, listed, query, body)
                self.hanging -= fault == "hang"
        request.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        if fault == "cut" and status < 300:
            data = data[: len(data) // 2]
            request.close_connection = True
        if fault == "slow":
            for at in range(len(data)):
                request.wfile.write(data[at : at + 1])
                self.may_go_on.wait(0.2)
            return
        request.wfile.write(data)

    def answer(
        self, request: Any, path: str, listed: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        bucket = path.split("/")[1]
        signed = re.search(r"/\d+/([a-z0-9-]+)/s3/", request.headers.get("Authorization", ""))
        if path.strip("/") == bucket and request.command == "HEAD":
            return 403, {"x-amz-bucket-region": self.region}, b""
        if self.region and signed and signed[1] != self.region and not self.names_region:
            return 301, {}, _error("PermanentRedirect")
        if self.region and signed and signed[1] != self.region:
            return 400, {}, _error("AuthorizationHeaderMalformed", f"<Region>{self.region}</Region>")
        if self.buckets and bucket not in self.buckets:
            return 404, {}, _error("NoSuchBucket")
        if request.command == "POST" and "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            self.deleted.append(keys)
            for key in keys:
                self.values.pop(f"/{bucket}/{key}", None)
            done = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            return 200, {}, f"<DeleteResult>{done}</DeleteResult>".encode()
        is_listing = "list-type" in query
        is_hidden = path in self.hidden or (not self.tells_missing and path not in self.values)
        is_hidden = is_hidden and request.command in ("GET", "HEAD")
        if not listed.startswith(self.allowed) or (not self.lists if is_listing else is_hidden):
            return 403, {}, _error(*self.denied)
        if "list-type" in query:
            return 200, {}, self.listing(bucket, query)
        found = self.values.get(path)
        origin = request.headers.get("x-amz-copy-source")
        if origin:
            body = self.values["/" + unquote(origin).strip("/")]
        if request.command == "PUT":
            wanted, others = request.headers.get("If-Match"), request.headers.get("If-None-Match")
            if self.keeps is None and (wanted or others):
                return 501, {}, _error("NotImplemented")
            if self.keeps and wanted and (found is None or wanted != self.tags[path]):
                return 412, {}, _error("PreconditionFailed")
            if self.keeps and others and found is not None:
                return 412, {}, _error("PreconditionFailed")
            generation = request.headers.get("x-goog-if-generation-match")
            if generation not in (None, "0" if found is None else self.generation(path)["x-goog-generation"]):
                return 412, {}, _error("PreconditionFailed")
            self.values[path] = body
            self.generations[path] = len(self.requests)
            self.tags[path] = f'"{hashlib.md5(body + str(len(self.requests)).encode()).hexdigest()}"'
            said = (
                f"<CopyObjectResult><ETag>{escape(self.tags[path])}</ETag></CopyObjectResult>"
                if origin
                else ""
            )
            return 200, {"ETag": self.tags[path], **self.generation(path)}, said.encode()
        if request.command == "DELETE":
            self.values.pop(path, None)
            self.generations.pop(path, None)
            return 204, {}, b""
        if found is None:
            return 404, {}, _error("NoSuchKey")
        headers = {"ETag": self.tag(path), **self.generation(path)}
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        if span is None:
            return 200, {**headers, "Content-Length": str(len(found))}, found
        begin = int(span[1]) if span[1] else max(0, len(found) - int(span[2]))
        end = min(len(found), int(span[2]) + 1) if span[1] and span[2] else len(found)
        if begin >= end:
            return 416, {"Content-Range": f"bytes */{len(found)}"}, _error("InvalidRange")
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(found)}"
        return 206, headers, found[begin:end]

    def tag(self, path: str) -> str:
        """What tells this version of a value from others."""
        return self.tags.setdefault(path, f'"{hashlib.md5(self.values[path]).hexdigest()}"')

    def generation(self, path: str) -> dict[str, str]:
        """What Google says of the version of a value."""
        number = str(self.generations.get(path, 1))
        return {"x-goog-generation": number, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}

    def listing(self, bucket: str, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after, last = query.get("continuation-token") or query.get("start-after", ""), ""
        keys, above = [], set()
        for path in sorted(self.values):
            key = path.removeprefix(f"/{bucket}/")
            if path.startswith(f"/{bucket}/") and key.startswith(prefix) and key > after:
                if len(keys) == self.page_size:
                    last = keys[-1]
                    break
                rest = key[len(prefix) :]
                if delimiter and delimiter in rest:
                    above.add(prefix + rest.partition(delimiter)[0] + delimiter)
                else:
                    keys.append(key)
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(self.values[f'/{bucket}/{key}'])}</Size><ETag>{escape(self.tag(f'/{bucket}/{key}'))}</ETag>"
            "</Contents>"
            for key in keys
        )
        names = "".join(
            f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in sorted(above)
        )
        more = f"<IsTruncated>{str(bool(last)).lower()}</IsTruncated>"
        more += f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if last else ""
        return f"<ListBucketResult>{more}{items}{names}</ListBucketResult>".encode()


def _error(code: str, more: str = "") -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message>{more}</Error>".encode()
