"""Values of buckets and web servers by libcurl: many requests at once, by the thread that waits for them.

It makes the first attempt only, at public values and at those of S3 whose keys are known; these it also puts
and lists. Whatever else there is to a server, and whatever fails, is obstore's.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import islice, repeat
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from zstore._ext.requests import curl
from zstore._ext.requests.curl import BROKEN, REFUSED, SLOW, STALLED, UNRANGED, UNSIZED, Answer
from zstore.base.locks import Lock
from zstore.base.waits import check_waiting
from zstore.storage.base import Fetch
from zstore.storage.objects.library import late
from zstore.storage.objects.options import Settings, as_flag, s3_endpoint

# The URLs, and the paths below them, that are the same to every library.
URL = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?(?:/[A-Za-z0-9._-]+)*")
PATH = re.compile(r"[A-Za-z0-9._ =-]+(?:/[A-Za-z0-9._ =-]+)*")
# Options of S3, variables of the environment, and options of connections whose meaning is known here.
CONFIG = {
    *("access_key_id", "secret_access_key", "session_token", "skip_signature", "endpoint", "region"),
    *("virtual_hosted_style_request", "conditional_put", "copy_if_not_exists"),
}
VARIABLES = {
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_CONFIG_FILE"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED", "AWS_ALLOW_HTTP"),
}
TIMES = ("connect_timeout", "read_timeout", "timeout")
CLIENT = {*TIMES, "allow_http", "root_certificate", "default_headers"}
PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
EMPTY_HASH = sha256().hexdigest()
# Refusals of a signature, after which obstore signs the request: it may have waited too long for its turn.
SIGNED_ANEW = (
    *("RequestTimeTooSkewed", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidAccessKeyId"),
)
# The versions on which a put depends, as a line can have them.
TAG = re.compile(r'"[!#-~]*"')
# What a put goes without: libcurl's own idea of a content, and waiting until the server says to go on.
PUT_LINES = [b"Content-Type:", b"Expect:"]
# Bytes of what a server says to puts that are kept until it is looked at.
SAID_SIZE = 1 << 20
# Bytes of a page of a list, at most: a thousand keys of a KiB take half of it.
LISTED_SIZE = 4 << 20
# Bytes of values that are wanted all at once.
ANY_SIZE = 1 << 62
# Requests that are sent before more of them are signed.
SENT_COUNT = 16
# Connections that are kept without use, in the whole process, and for how many seconds.
IDLE_COUNT = 256
IDLE_TIME = 90.0
# Credentials are asked for again so long before they end.
MARGIN = timedelta(minutes=1)
# libcurl's codes for a server whose certificate it does not trust; obstore has authorities of its own.
UNTRUSTED = {60, 77, 82, 83, 90, 91}


# A request as the kernel takes it: URL, range, headers, most bytes of a whole value.
Asked = tuple[bytes, bytes | None, curl.Headers, int]


class HttpError(Exception):
    """Raised for an attempt that has failed; its text has the words that obstore's errors are known by.

    client   the store that it was made in place of
    seconds  that it took
    is_sent  whether a value to put was sent, and may be there
    """

    client: Any = None
    seconds = 0.0
    is_sent = False


class PreconditionError(HttpError):
    """Raised for a put whose condition does not hold."""


class Untried(HttpError):
    """Stands for an attempt that obstore is to make in its own way."""


def error_of(answer: Answer) -> Exception:
    """The error of an attempt whose outcome is not DONE; FileNotFoundError where there is no such value."""
    said = bytes(answer.body).decode("utf-8", "replace")
    if answer.outcome == REFUSED and answer.status == 404:
        return FileNotFoundError(said)
    if answer.outcome == REFUSED and answer.status in (409, 412):
        return PreconditionError(f"the server answers with status code: {answer.status}: {said}")
    if answer.outcome == REFUSED and answer.status >= 400 and not any(word in said for word in SIGNED_ANEW):
        return HttpError(f"the server answers with status code: {answer.status}: {said}")
    reasons = {
        UNSIZED: "Content-Length Header missing",
        UNRANGED: "the server sent a non-partial response",
        BROKEN: f"connection closed: {curl.reason_of(answer.code)}",
        STALLED: "timed out: no bytes have come",
        SLOW: "timed out: the body comes too slowly",
    }
    return HttpError(reasons[answer.outcome]) if answer.outcome in reasons else Untried()


class Keys(NamedTuple):
    """Credentials of S3, and when they end; None: never."""

    access_key: str
    secret: str
    token: str | None
    expires_at: datetime | None


class Form(NamedTuple):
    """The header lines of all requests of one second, and the text and the key to sign them with."""

    second: datetime
    keys: Keys
    common: list[bytes]
    said: str
    begin: str
    authorization: str
    key: bytes


class Signer:
    """Signs requests for a bucket's values by AWS' version 4; `provider` gives keys in obstore's form."""

    def __init__(self, region: str, provider: Callable[[], Mapping[str, Any]]) -> None:
        self._region = region
        self._provider = provider
        self._keys: Keys | None = None
        self._form: Form | None = None

    def lines(
        self, method: str, host: str, places: Sequence[str], hashes: Sequence[str], more: Sequence[bytes]
    ) -> list[list[bytes]]:
        """The header lines of a request for each place, which are valid for some minutes.

        places  path and query, on a line each
        hashes  of what each of them sends; none: they send nothing
        more    lines that go with each, and are not signed
        """
        now = datetime.now(UTC)
        keys = self._valid_keys(now)
        form = self._form
        if form is None or form.keys is not keys or form.second != now.replace(microsecond=0):
            form = self._form = self._make_form(now, keys)
        common, found = [f"host: {host}".encode(), *form.common, *more], []
        for place, content in zip(places, hashes or repeat(EMPTY_HASH), strict=False):
            head = f"host:{host}\nx-amz-content-sha256:{content}\n{form.said}"
            request = sha256(f"{method}\n{place}\n{head}\n{content}".encode()).hexdigest()
            signature = hmac.digest(form.key, f"{form.begin}{request}".encode(), "sha256").hex()
            signed = f"{form.authorization}{signature}".encode()
            found.append([*common, f"x-amz-content-sha256: {content}".encode(), signed])
        return found

    def _make_form(self, now: datetime, keys: Keys) -> Form:
        at = now.strftime("%Y%m%dT%H%M%SZ")
        scope = f"{at[:8]}/{self._region}/s3/aws4_request"
        fixed = {"x-amz-date": at} | ({"x-amz-security-token": keys.token} if keys.token else {})
        names = ";".join(("host", "x-amz-content-sha256", *fixed))
        key = f"AWS4{keys.secret}".encode()
        for text in scope.split("/"):
            key = hmac.digest(key, text.encode(), "sha256")
        return Form(
            now.replace(microsecond=0),
            keys,
            [f"{name}: {text}".encode() for name, text in fixed.items()],
            "".join(f"{name}:{text}\n" for name, text in fixed.items()) + f"\n{names}",
            f"AWS4-HMAC-SHA256\n{at}\n{scope}\n",
            f"Authorization: AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={names}, "
            "Signature=",
            key,
        )

    def _valid_keys(self, now: datetime) -> Keys:
        keys = self._keys
        if keys is None or (keys.expires_at is not None and keys.expires_at - MARGIN <= now):
            said = self._provider()
            keys = Keys(
                said["access_key_id"], said["secret_access_key"], said.get("token"), said.get("expires_at")
            )
            self._keys = keys
        return keys


class CurlClient:
    """Requests for the values below a URL, by connections that stay open; of all threads.

    headers  lines that go with each request
    signer   of a bucket of S3 that not everybody reads
    puts_if  whether it puts on conditions
    """

    def __init__(
        self,
        url: str,
        client: Mapping[str, Any],
        headers: Sequence[str] = (),
        signer: Signer | None = None,
        *,
        puts_if: bool = False,
    ) -> None:
        self._url = url.rstrip("/")
        self._host, _, path = self._url.partition("://")[2].partition("/")
        self._path = f"/{path}" if path else ""
        self._headers = [line.encode() for line in headers]
        self._signer = signer
        self._puts_if = puts_if
        self._times = [client[name].total_seconds() for name in TIMES]
        file = os.environ.get("SSL_CERT_FILE")
        self._authorities = os.fsencode(file) if file else None
        self._is_trusted = True

    def get(
        self, paths: Sequence[str], fetches: Sequence[Fetch], most: int, progress_size: int, share: int
    ) -> list[Answer] | None:
        """The answers to a first attempt at each request, in order; None where libcurl cannot make them.

        paths          of the values, below the URL
        most           requests at once, those of other threads included
        progress_size  as the limit of that name; 0: a body may take any time
        share          of how many threads that do the same this is one

        Raises
            LeftError: the caller that this thread works for was interrupted.
            StoreError: there is no time left for them.
        """
        requests = self._requests(paths, fetches)
        if requests is None:
            return None
        asked = [(request, None) for request in requests]
        terms = (most, *self._times, progress_size)
        return self._all(asked, terms, max(1, most // share), ANY_SIZE, curl.Stream.leave)

    def get_each(
        self, items: Iterable[tuple[str, Fetch]], most: int, progress_size: int, count: int, most_size: int
    ) -> Iterator[Sequence[tuple[Fetch, Answer | None]]]:
        """Requests with the answers to a first attempt at each, some at a time; None: not by libcurl.

        items      the path of each, and what of it is wanted
        count      requests at once at the beginning; soon more, up to `most`, where that is of use
        most_size  bytes of values that have begun to come and were not taken yet

        Raises
            as `get`.
        """
        left = iter(items)
        connections = _take(self, count) or curl.Connections(self._authorities)
        terms = (most, *self._times, progress_size)
        stream = curl.Stream(connections, terms, count, most_size)
        try:
            while True:
                some = [*islice(left, min(stream.room, SENT_COUNT))]
                requests = self._requests([path for path, _ in some], [fetch for _, fetch in some])
                if requests is None:
                    yield [(fetch, None) for _, fetch in some]
                    continue
                for (_, fetch), request in zip(some, requests, strict=True):
                    stream.ask(fetch, request)
                if len(some) == SENT_COUNT:
                    stream.send()
                    continue
                with late():
                    found = stream.take(check_waiting)
                if not found:
                    break
                self._note_trust([answer for _, answer in found])
                yield found
                del found  # so that no bodies are held while others are waited for
        finally:
            stream.leave()
        _give(self, connections)

    def _requests(self, paths: Sequence[str], fetches: Sequence[Fetch]) -> list[Asked] | None:
        """The GETs as the kernel takes them; None where libcurl cannot make them."""
        # A range is not signed, so that all that is asked of one value has the same headers.
        distinct = [*dict.fromkeys(paths)]
        asked = self._asked("GET", distinct)
        if asked is None:
            return None
        said = {path: (url, curl.Headers(lines)) for path, (url, lines) in zip(distinct, asked, strict=True)}
        requests = []
        for path, fetch in zip(paths, fetches, strict=True):
            url, headers = said[path]
            span = None if fetch.span is None else fetch.span.encode()
            requests.append((url, span, headers, -1 if fetch.limit is None else fetch.limit))
        return requests

    def _asked(
        self, method: str, paths: Sequence[str], contents: Sequence[bytes] = ()
    ) -> list[tuple[bytes, list[bytes]]] | None:
        """The URLs and header lines of requests; None where libcurl cannot make them."""
        if not all(map(PATH.fullmatch, paths)):
            return None
        # Of what PATH lets through, these two alone are written otherwise in a URL.
        paths = [path.replace(" ", "%20").replace("=", "%3D") for path in paths]
        all_lines = self._lines(method, [f"{self._path}/{path}\n" for path in paths], contents)
        if all_lines is None:
            return None
        return [(f"{self._url}/{path}".encode(), lines) for path, lines in zip(paths, all_lines, strict=True)]

    def _lines(
        self, method: str, places: Sequence[str], contents: Sequence[bytes] = ()
    ) -> Sequence[list[bytes]] | None:
        """The header lines of requests for places, as a signer takes them; None where it cannot sign."""
        if not self._is_trusted:
            return None
        if self._signer is None:
            return [self._headers] * len(places)
        try:
            host = self._host.removesuffix(":443" if self._url.startswith("https:") else ":80")
            hashes = [sha256(content).hexdigest() for content in contents]
            return self._signer.lines(method, host, places, hashes, self._headers)
        except Exception:  # a provider's own: obstore asks it again, and says what is wrong
            return None

    def page(self, query: Mapping[str, str], most: int) -> Answer | None:
        """The answer to a first attempt at a page of the bucket's list; None where libcurl cannot make it.

        query  what is asked for, as S3 names it
        most   as of `get`

        Raises
            as `get`.
        """
        text = urlencode(sorted(query.items()), quote_via=quote, safe="")
        all_lines = self._lines("GET", [f"{self._path}\n{text}"])
        if all_lines is None:
            return None
        request = f"{self._url}?{text}".encode(), None, curl.Headers(all_lines[0]), LISTED_SIZE
        [answer] = self._all([(request, None, True)], (most, *self._times, 0), 1, ANY_SIZE, curl.Stream.leave)
        return answer

    def put(
        self,
        items: Sequence[tuple[str, bytes, Any]],
        most: int,
        leave: Callable[[Callable[[], None]], None],
    ) -> list[Answer] | None:
        """The answers to a first attempt at putting each value, in order; None where libcurl cannot do it.

        items  path, value, and the condition: "overwrite", "create", or the version that is there
        most   as of `get`
        leave  is given what goes on with those that are under way, if the caller waits for them no longer

        Raises
            as `get`.
        """
        paths, values, modes = zip(*items, strict=True)
        conditions = [*map(self._condition, modes)]
        asked = self._asked("PUT", paths, values) if curl.puts() and None not in conditions else None
        if asked is None:
            return None
        requests = [
            ((url, None, curl.Headers([*lines, *PUT_LINES, *(more or ())]), -1), value)
            for (url, lines), more, value in zip(asked, conditions, values, strict=True)
        ]

        def left(stream: curl.Stream) -> None:
            leave(partial(_end, stream))

        return self._all(requests, (most, *self._times, 0), most, SAID_SIZE, left)

    def _all(
        self,
        asked: Sequence[tuple[Asked, bytes | None] | tuple[Asked, bytes | None, bool]],
        terms: tuple[int, float, float, float, int],
        allowed: int,
        most_size: int,
        leave: Callable[[curl.Stream], object],
    ) -> list[Answer]:
        """The answers to requests, in order.

        asked  each with what it puts, None: it gets; and whether its answer need not say how long it is
        leave  what becomes of the stream, if the caller waits for it no longer

        All else is the stream's.
        """
        connections = _take(self, len(asked)) or curl.Connections(self._authorities)
        stream = curl.Stream(connections, terms, allowed, most_size, min(len(asked), terms[0]))
        left = enumerate(asked)
        found: dict[int, Answer] = {}
        try:
            with late():
                while len(found) < len(asked):
                    for number, said in islice(left, stream.room):
                        stream.ask(number, *said)
                    found.update(stream.take(check_waiting))
        except BaseException:
            leave(stream)
            raise
        stream.leave()
        _give(self, connections)
        answers = [found[number] for number in range(len(asked))]
        self._note_trust(answers)
        return answers

    def _condition(self, mode: Any) -> list[bytes] | None:
        """The header lines of a condition; None for one that obstore is to put."""
        if mode == "overwrite":
            return []
        if not self._puts_if:
            return None
        if mode == "create":
            return [b"If-None-Match: *"]
        tag = mode.get("e_tag") or ""
        return [f"If-Match: {tag}".encode()] if TAG.fullmatch(tag) else None

    def _note_trust(self, answers: Sequence[Answer]) -> None:
        self._is_trusted = self._is_trusted and UNTRUSTED.isdisjoint(answer.code for answer in answers)


def _end(stream: curl.Stream) -> None:
    """Wait until all requests of a stream have ended."""
    while stream.take(int):
        pass
    stream.leave()


# Connections that nobody uses, the last ones at the end: of which client, and since when.
_idle: list[tuple[CurlClient, curl.Connections, float]] = []
_guard = Lock()


def _take(client: CurlClient, count: int) -> curl.Connections | None:
    """The kept set of idle connections that is nearest in number to `count`; None if there is none."""
    best: tuple[int, int, int] | None = None
    with _guard:
        for at in reversed(range(len(_idle))):
            owner, one, _ = _idle[at]
            if owner is client:
                best = max(best or (0, 0, at), (min(one.count, count), -one.count, at))
                if one.count == count:
                    break
        return None if best is None else _idle.pop(best[2])[1]


def _give(client: CurlClient, connections: curl.Connections) -> None:
    """Keep connections for the next batch, and close those that are too many or too old."""
    closed, now = [], monotonic()
    with _guard:
        _idle.append((client, connections, now))
        count = sum(one.count for _, one, _ in _idle)
        while count > IDLE_COUNT or _idle[0][2] < now - IDLE_TIME:
            closed.append(_idle.pop(0)[1])
            count -= closed[-1].count


def trouble() -> str:
    """Why requests are all made by obstore; "" if libcurl makes some."""
    text = os.environ.get("ZSTORE_LIBCURL", "")
    return "switched off by ZSTORE_LIBCURL" if text and not as_flag(text) else curl.trouble()


def make_curl_client(kind: str, bucket: str, settings: Settings, region: str | None) -> CurlClient | None:
    """The client for a bucket or server; None where that is not for libcurl, or there is no libcurl."""
    client = settings.client
    names = {name for name, text in os.environ.items() if text}
    has_proxy = not PROXIES.isdisjoint(map(str.lower, names))
    is_plain = CLIENT.issuperset(client) and all(isinstance(client.get(name), timedelta) for name in TIMES)
    lines = _header_lines(client.get("default_headers", {}))
    if has_proxy or not is_plain or settings.retry or lines is None or trouble():
        return None
    found = (bucket, None) if kind == "http" else _bucket(bucket, settings, region) if kind == "s3" else None
    if found is None:
        return None
    url, signer = found
    is_open = url.startswith("http://")
    may = client.get("allow_http") is True if is_open else "root_certificate" not in client
    if not may or not URL.fullmatch(url):
        return None
    puts_if = settings.config.get("conditional_put", "etag") == "etag"
    return CurlClient(url, client, lines, signer, puts_if=puts_if)


def _bucket(bucket: str, settings: Settings, region: str | None) -> tuple[str, Signer | None] | None:
    """The URL of a bucket of S3, and who signs requests to it; None where obstore alone knows."""
    config, provider = settings.config, _provider(settings)
    names = {name for name, text in os.environ.items() if text and name.startswith("AWS_")}
    endpoints = {os.environ[name] for name in names if name.startswith("AWS_ENDPOINT")}
    is_clear = "endpoint" in config or len(endpoints) <= 1
    is_hosted = as_flag(config.get("virtual_hosted_style_request", False))
    # A provider with settings of its own, as boto3's has them, says them to obstore only.
    has_more = bool(getattr(provider, "config", None))
    is_known = VARIABLES.issuperset(names) and CONFIG.issuperset(config)
    if (
        not is_known
        or not is_clear
        or is_hosted
        or has_more
        or (provider is None and not settings.is_anonymous)
    ):
        return None
    region = region or config.get("region") or os.environ.get("AWS_REGION")
    region = region or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = s3_endpoint(config, bucket) or f"https://s3.{region}.amazonaws.com"
    signer = None if settings.is_anonymous or provider is None else Signer(region, provider)
    return f"{endpoint.rstrip('/')}/{bucket.partition('://')[2]}", signer


def _provider(settings: Settings) -> Callable[[], Mapping[str, Any]] | None:
    """The provider of the credentials; None for those that obstore alone knows to ask for."""
    if settings.provider is not None:
        return settings.provider  # type: ignore[no-any-return]
    names = ("access_key_id", "secret_access_key", "session_token")
    said = {name: settings.config.get(name) for name in names}
    if not any(said.values()):
        said = {name: os.environ.get(f"AWS_{name.upper()}") for name in names}
    if not said["access_key_id"] or not said["secret_access_key"]:
        return None
    return lambda: {**said, "token": said["session_token"]}


def _header_lines(headers: Mapping[Any, Any]) -> list[str] | None:
    """The lines of these headers; None for one that a line cannot have."""
    lines = [f"{name}: {text}" for name, text in {"User-Agent": "zstore", **headers}.items()]
    is_plain = all(isinstance(text, str) and text for text in headers.values())
    return lines if is_plain and all(line.isascii() and line.isprintable() for line in lines) else None
