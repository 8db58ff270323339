"""Repositories in a bucket, as moto's server has it, and on a web server."""

from __future__ import annotations

import asyncio
import functools
import http.server
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zstore_icechunk import open_session
from zstore_icechunk.places import find_place, library, message_of, split_url
from zstore_icechunk.store import IcechunkStore

import zstore
from zstore.errors import ChangedError, NotFoundError, StoreError, UnsupportedError
from zstore.storage.url import open_store

moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
icechunk = library()
IS_TOLD = hasattr(icechunk.IcechunkStore, "array_chunk_iterator")
SECRET = "a-secret-that-nobody-sees"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def options(server: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    options = {"key": "somebody", "secret": SECRET, "endpoint_url": server, "region": "us-east-1"}
    import urllib.request

    asked = urllib.request.Request(f"{server}/bucket", method="PUT")
    with urllib.request.urlopen(asked) as answer:
        answer.read()
    return options


def test_a_repository_in_a_bucket(options: dict[str, Any], tmp_path: Path) -> None:
    items = np.random.default_rng(0).integers(0, 1 << 20, (8, 1000))
    url = "icechunk+s3://bucket/in/a/bucket"
    with pytest.raises(NotFoundError, match="no icechunk repository there"):
        zstore.open(url, storage_options=options)
    with open_session(url, create=True, storage_options=options) as session:
        zstore.create_array(session, "a", data=items, chunks=(1, 1000))
        first = session.commit("one")
        zstore.open_array(session, "a", mode="r+")[0] = 0
        session.commit("two")
    for where in (url, "s3://bucket/in/a/bucket|icechunk:"):
        root = zstore.open(where, storage_options=options)
        assert np.array_equal(root["a"][1:], items[1:])
        assert not root["a"][0].any()
        assert root.store.request_count > 1
        again = pickle.loads(pickle.dumps(root.store))
        assert np.array_equal(zstore.open(again)["a"][3], items[3])
    old = zstore.open(f"s3://bucket/in/a/bucket|icechunk:@{first}/a", storage_options=options)
    assert np.array_equal(old[...], items)
    one, two = (open_session(url, storage_options=options) for _ in range(2))
    zstore.open_array(one, "a", mode="r+")[1] = 1
    zstore.open_array(two, "a", mode="r+")[1] = 2
    one.commit("one")
    with pytest.raises(ChangedError):
        two.commit("two")
    with pytest.raises(ChangedError, match=r"/a \(Chunk"):
        two.commit("two", rebase=True)


@pytest.mark.parametrize("damage", ["gone", "shorter"])
def test_chunks_in_a_bucket_are_read_from_its_objects(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Many, that is: for single ones icechunk is asked, which knows where they are without asking for all."""
    items = np.random.default_rng(0).integers(0, 1 << 20, (40, 1000))
    items[5] = 7  # is not stored
    url = f"icechunk+s3://bucket/{damage}"
    with open_session(url, create=True, storage_options=options) as session:
        zstore.create_array(session, "a", data=items, chunks=(1, 1000), fill_value=7)
        zstore.create_array(session, "few", data=np.arange(30), chunks=1)  # in the manifest itself
        zstore.create_array(session, "none", shape=(30,), chunks=1, dtype="i4")
        zstore.create_array(session, "sharded", data=items, chunks=(1, 100), shards=(4, 1000))
        session.commit("one")
    root = zstore.open(url, storage_options=options)
    asked: list[str] = []
    get = IcechunkStore._get

    def count(store: IcechunkStore, key: str, *more: Any) -> Any:
        asked.extend([] if key.endswith("zarr.json") else [key])
        return get(store, key, *more)

    monkeypatch.setattr(IcechunkStore, "_get", count)
    assert np.array_equal(root["a"][3], items[3]) and asked == ["a/c/3/0"]
    assert np.array_equal(root["a"][...], items)
    assert np.array_equal(root["a"][7], items[7])
    assert np.array_equal(root["few"][...], np.arange(30)) and not root["none"][...].any()
    assert np.array_equal(root["sharded"][...], items)
    assert np.array_equal(asyncio.run(root["a"].read_async()), items)
    if not IS_TOLD:
        return
    assert asked == ["a/c/3/0"]
    # One of the many is gone, or shorter.
    bucket = open_store(f"s3://bucket/{damage}/chunks", storage_options=options)
    name = root.store._objects.tables["a"].names[2]
    value = bucket.get(name)
    bucket.delete(name)
    if damage == "shorter":
        bucket.put(name, bytes(value)[:10])
    with pytest.raises(StoreError, match=f"chunks/{name}.*(not there|gave|10 bytes)") as caught:
        root["a"][...]
    assert SECRET not in str(caught.value)
    root.store.close()
    assert np.array_equal(root["a"][30:], items[30:])


def test_storage_options_of_the_command_reach_the_repository(options: dict[str, Any]) -> None:
    testing = pytest.importorskip("click.testing", reason="the command line needs click")
    from zstore.cli.root import zstore as command

    with open_session("icechunk+s3://bucket/told", create=True, storage_options=options) as session:
        zstore.create_array(session, "a", data=np.arange(3))
        session.commit("one")
    words = [f"--storage-option={name}={value}" for name, value in options.items()]
    for url in ("icechunk+s3://bucket/told", "s3://bucket/told|icechunk:"):
        result = testing.CliRunner().invoke(command, ["info", "--json", *words, url])
        assert result.exit_code == 0, result.output
        assert SECRET not in result.output


def test_nobody_is_shown_a_secret(server: str, options: dict[str, Any]) -> None:
    for url, given in [
        ("icechunk+s3://bucket/nothing", options),
        (f"icechunk+s3://somebody:{SECRET}@bucket/x", options),
        (f"s3://somebody:{SECRET}@bucket/x|icechunk:", options),
        ("icechunk+s3://bucket/x", {**options, "token": SECRET, "nothing": 1}),
        ("icechunk+s3://bucket/x", {**options, "proxy_url": "http://127.0.0.1"}),
        ("icechunk+s3://no-such-bucket/x", {**options, "session_token": SECRET}),
    ]:
        with pytest.raises((StoreError, NotFoundError)) as caught:
            zstore.open(url, storage_options=given)
        shown: Any = caught.value
        while shown is not None:
            assert SECRET not in f"{shown} {shown!r}", url
            shown = shown.__cause__
    with open_session("icechunk+s3://bucket/b", create=True, storage_options=options) as session:
        assert SECRET not in f"{session} {session!r} {session.url}"


def test_a_short_secret_is_hidden_where_values_stand() -> None:
    text = 'a bucket\'s data: key="a", https://me:a@host/a?password=a&x=1'
    assert (
        message_of(ValueError(text), ["a"])
        == 'a bucket\'s data: key="...", https://...@host/a?password=...&x=1'
    )
    assert message_of(ValueError(f"in{SECRET}side"), [SECRET]) == "in...side"


def test_options_that_icechunk_does_not_take_are_refused() -> None:
    for url, options, words in [
        ("icechunk+s3://bucket/x", {"proxy": "http://p"}, "takes no storage option proxy_url"),
        ("icechunk+s3://bucket/x", {"sse_kms_key_id": "k"}, "takes no storage option sse_kms_key_id"),
        ("icechunk+az://container/x", {}, "no account is named"),
    ]:
        with pytest.raises(StoreError, match=words):
            open_store(url, storage_options=options)


@pytest.mark.parametrize(
    ("url", "options", "maker", "expected"),
    [
        (
            "icechunk+gs://bucket/a/b",
            {"anon": True},
            "gcs_storage",
            {"bucket": "bucket", "prefix": "a/b", "config": None, "anonymous": True},
        ),
        (
            "icechunk+gcs://bucket/x",
            {"bearer_token": "t", "endpoint_url": "http://emulator"},
            "gcs_storage",
            {
                "bucket": "bucket",
                "prefix": "x",
                "config": {"google_base_url": "http://emulator", "allow_http": "true"},
                "bearer_token": "t",
            },
        ),
        (
            "icechunk+az://container/x",
            {"account_name": "me", "account_key": "a2V5"},
            "azure_storage",
            {"container": "container", "prefix": "x", "config": None, "account": "me", "access_key": "a2V5"},
        ),
        (
            "icechunk+az://container/x",
            {"account_name": "me", "anon": True},
            "azure_storage",
            {
                "container": "container",
                "prefix": "x",
                "config": {"azure_skip_signature": "true"},
                "account": "me",
                "from_env": True,
            },
        ),
        (
            "icechunk+s3://bucket/x",
            {"anon": "true", "region": "eu-west-1"},
            "s3_storage",
            {
                "bucket": "bucket",
                "prefix": "x",
                "allow_http": False,
                "force_path_style": False,
                "region": "eu-west-1",
                "anonymous": True,
            },
        ),
    ],
)
def test_options_of_every_bucket_are_translated_for_icechunk(
    url: str, options: dict[str, Any], maker: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    real = getattr(icechunk, maker)
    monkeypatch.setattr(icechunk, maker, lambda **words: (said.append(words), real(**words))[1])
    find_place(url, split_url(url)).storage(options)
    assert said == [expected]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            file = Path(self.translate_path(self.path))
            if "Range" not in self.headers or not file.is_file():
                super().do_GET()
                return
            content = file.read_bytes()
            begin, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
            part = content[int(begin) : int(end) + 1 if end else None]
            self.send_response(206)
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Content-Range", f"bytes {begin}-{int(begin) + len(part) - 1}/{len(content)}")
            self.end_headers()
            self.wfile.write(part)

    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_repository_on_a_web_server(web: str, tmp_path: Path) -> None:
    items = np.arange(4000).reshape(4, 1000)
    with open_session(tmp_path / "repository", create=True) as session:
        zstore.create_array(session, "a", data=items, chunks=(1, 1000))
        session.commit("one")
    url = f"icechunk+{web}/repository"
    if not hasattr(icechunk, "http_storage"):
        with pytest.raises(
            UnsupportedError, match="cannot read from web servers; expected icechunk 2 or newer"
        ):
            zstore.open(url)
        return
    for where in (url, f"{web}/repository|icechunk:@branch.main/"):
        assert np.array_equal(zstore.open(where)["a"][...], items)
    with pytest.raises(NotFoundError, match="no icechunk repository there"):
        zstore.open(f"icechunk+{web}/nothing")
