"""Buckets as users meet them: options, errors of the first minute, permissions, faults, writers that meet."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

import zstore
from zstore._ext.requests.curl import puts
from zstore.base.byterange import ByteRange
from zstore.errors import ExistsError, NotFoundError, StoreError, ZstoreError
from zstore.storage.base import Store
from zstore.storage.objects.backend import Backend
from zstore.storage.objects.curl import make_curl_client, trouble
from zstore.storage.objects.options import fsspec_options, read_options
from zstore.storage.objects.store import ObjectStore
from zstore.storage.url import REMOTE, open_store, use_storage_options

from .bucket_server import BucketServer, forget_settings

pytest.importorskip("obstore", reason="the package behind the store")

ITEMS = np.arange(64 * 64, dtype="i4").reshape(64, 64)


@pytest.fixture(autouse=True)
def nothing_else_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_settings(monkeypatch, tmp_path)


@pytest.fixture
def server() -> Iterator[BucketServer]:
    with BucketServer() as server:
        yield server


# Options

SPELLINGS = [
    {"endpoint_url": "{}", "key": "k", "secret": "s", "client_kwargs": {"region_name": "us-east-1"}},
    {"client_kwargs": {"endpoint_url": "{}", "region_name": "us-east-1"}, "key": "k", "secret": "s"},
    {"endpoint": "{}", "access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"},
    {"AWS_ENDPOINT": "{}", "aws_access_key_id": "k", "aws_secret_access_key": "s"},
    {
        "endpoint": "{}",
        "access_key_id": "k",
        "secret_access_key": "s",
        "client_options": {"allow_http": True},
    },
    {"endpoint_url": "{}", "anon": True},
    {"endpoint": "{}", "skip_signature": "true", "default_block_size": 5},
]


def filled(options: Any, url: str) -> Any:
    if isinstance(options, dict):
        return {name: filled(value, url) for name, value in options.items()}
    return url if options == "{}" else options


@pytest.mark.parametrize("options", SPELLINGS)
def test_either_librarys_words_reach_a_bucket(server: BucketServer, options: dict[str, Any]) -> None:
    store = open_store("s3://b/x", storage_options=filled(options, server.url))
    assert isinstance(store, ObjectStore)
    store.put("a", b"1")
    assert bytes(pickle.loads(pickle.dumps(store)).get("a")) == b"1"
    assert {*server.anonymous} == {"anon" in options or "skip_signature" in options}


@pytest.mark.parametrize("options", SPELLINGS)
def test_either_librarys_words_reach_a_bucket_through_s3fs(
    server: BucketServer, options: dict[str, Any]
) -> None:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    found = fsspec_options("s3", filled(options, server.url), "s3://b")
    assert found.get("endpoint_url", found.get("client_kwargs", {}).get("endpoint_url")) == server.url
    assert ("anon" in found) == ("anon" in options or "skip_signature" in options)
    assert "anon" in found or (found["key"], found["secret"]) == ("k", "s")
    store = open_store("fsspec+s3://b/x", storage_options=filled(options, server.url))
    store.put("a", b"1")
    assert bytes(store.get("a") or b"") == b"1"


@pytest.mark.parametrize(
    ("kind", "given", "config"),
    [
        ("gs", {"token": "anon"}, {"skip_signature": True}),
        ("gs", {"token": {"a": 1}}, {"service_account_key": '{"a": 1}'}),
        ("gs", {"token": "/key.json", "project": "p"}, {"application_credentials": "/key.json"}),
        (
            "gs",
            {"google_bearer_token": "t", "endpoint_url": "http://h"},
            {"bearer_token": "t", "base_url": "http://h"},
        ),
        ("az", {"account_name": "n", "sas_token": "?a=b"}, {"account_name": "n", "sas_key": "a=b"}),
        (
            "az",
            {"connection_string": "AccountName=n;AccountKey=k==;BlobEndpoint=http://h/n"},
            {"account_name": "n", "account_key": "k==", "endpoint": "http://h/n"},
        ),
        ("az", {"anon": True, "account_host": "n.h"}, {"skip_signature": True, "endpoint": "https://n.h"}),
    ],
)
def test_words_of_google_and_azure(kind: str, given: dict[str, Any], config: dict[str, Any]) -> None:
    found = read_options(kind, given, f"{kind}://b")
    assert found.config == config
    assert found.client["allow_http"] == any(str(v).startswith("http://") for v in config.values())


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("s3://b", {"endpont_url": "x"}, "no storage option 'endpont_url'; expected 'endpoint_url'"),
        ("fsspec+s3://b", {"endpont_url": "x"}, "no storage option 'endpont_url'; expected 'endpoint_url'"),
        ("gs://b", {"tokne": "x"}, "expected 'token'"),
        ("az://b", {"account": "a", "account_nam": "x"}, "expected 'account_name'"),
        ("https://h", {"header": {}}, "expected 'headers'"),
        (
            "s3://b",
            {"version_aware": True},
            "'version_aware' is fsspec's own; expected a URL that begins",
        ),
        ("s3://b", {"key": "a", "access_key_id": "b"}, "contradicts another name of 'access_key_id'"),
        ("s3://b", {"root_certificate": "/nothing.pem"}, "cannot read the certificates '/nothing.pem'"),
    ],
)
def test_what_is_misspelt_is_named(url: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(StoreError, match=expected.replace("+", r"\+")) as caught:
        open_store(url, storage_options=options)
    assert "x" not in str(caught.value).replace("expected", "").replace("fsspec", "").split()


def test_a_profile_is_read_from_home(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id=k\naws_secret_access_key=s\n[other]\naws_access_key_id=o\n"
        "aws_secret_access_key=s\n"
    )
    (tmp_path / "config").write_text(
        f"[default]\nregion = eu-west-3\nendpoint_url = {server.url}\n[profile other]\nregion = eu-west-1\n"
        f"endpoint_url = {server.url}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for options, region in (({}, "eu-west-3"), ({"profile": "other"}, "eu-west-1")):
        server.region = region
        store = open_store("s3://b/x", storage_options=options)
        store.put("a", b"1")
    monkeypatch.setenv("AWS_PROFILE", "other")
    open_store("s3://b/x").put("a", b"1")
    with pytest.raises(StoreError, match=r"no AWS profile 'othr'.* expected one of default, other"):
        open_store("s3://b/x", storage_options={"profile": "othr"})


class Provider:
    config: ClassVar[dict[str, str]] = {}

    def __call__(self) -> dict[str, Any]:
        return {"access_key_id": "k", "secret_access_key": "s", "token": None, "expires_at": None}


class ProviderOfMore(Provider):
    config: ClassVar[dict[str, str]] = {"endpoint": "elsewhere"}


@pytest.mark.skipif(bool(trouble()), reason="libcurl is not installed")
@pytest.mark.parametrize(
    ("is_used", "options", "variables"),
    [
        (True, {}, {}),
        (True, {"key": None, "secret": None, "credential_provider": Provider()}, {}),
        (True, {"key": None, "secret": None, "anon": True}, {}),
        (False, {"key": None, "secret": None, "credential_provider": ProviderOfMore()}, {}),
        (
            False,
            {"key": None, "secret": None, "token": "t"},
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
        ),
        (False, {"requester_pays": True}, {}),
        (False, {"virtual_hosted_style": True}, {}),
        (False, {"proxy": "http://127.0.0.1:9"}, {}),
        (False, {"retry_config": {"max_retries": 1}}, {}),
        (False, {"headers": {"a": "b\nc"}}, {}),
        (False, {}, {"HTTPS_PROXY": "http://127.0.0.1:9"}),
        (False, {}, {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms"}),
        (False, {"endpoint_url": None}, {"AWS_ENDPOINT": "http://a", "AWS_ENDPOINT_URL": "http://b"}),
        (False, {}, {"ZSTORE_LIBCURL": "off"}),
    ],
)
def test_what_libcurl_may_do_otherwise_is_left_to_obstore(
    is_used: bool,
    options: dict[str, Any],
    variables: dict[str, str],
    server: BucketServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    forget_settings(monkeypatch, tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = read_options("s3", server.options(**options), "s3://b")
    client = make_curl_client("s3", "s3://b", settings, None)
    assert (client is not None) == is_used


def test_a_file_of_certificates_is_read_when_it_has_changed(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forget_settings(monkeypatch, tmp_path)
    file = tmp_path / "ca.pem"
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))

    def read() -> Any:
        return read_options("s3", server.options(), "s3://b").client["root_certificate"]

    file.write_bytes(b"one")
    assert read() == b"one"
    assert read() is read()
    file.write_bytes(b"other")
    assert read() == b"other"
    file.unlink()
    with pytest.raises(StoreError, match="cannot read the certificates"):
        read()


@pytest.mark.skipif(not puts(), reason="libcurl is not installed, or does not say when it sends")
@pytest.mark.parametrize("token", [None, "t/o=k+en"])
def test_libcurl_puts_lists_and_signs_as_amazons_own_library_does(
    server: BucketServer, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = pytest.importorskip("botocore.auth", reason="Amazon's own library")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    heads: list[dict[str, str]] = []
    answer = server.answer

    def note(request: Any, path: str, *others: Any) -> Any:
        heads.append(dict(request.headers))
        asked.append(request.path)
        return answer(request, path, *others)

    asked: list[str] = []
    monkeypatch.setattr(server, "answer", note)
    monkeypatch.setattr(Backend, "_do", lambda *arguments, **options: pytest.fail("obstore is asked"))
    store = open_store("s3://b/x y", storage_options=server.options(token=token))
    assert isinstance(store, ObjectStore)
    values = {"a=b/c.d_e-f": b"1", "long": bytes(100_000)}
    for key, value in values.items():
        store.put(key, value)
        assert store.get(key) == value
    assert store.put_new_many(["n/0", "long", "n/1"], [b"0", b"2", b"3"]) is not None
    assert (store.get("n/1"), store.get("long")) == (b"3", values["long"])
    assert [*store.list("n")] == ["n/0", "n/1"]
    monkeypatch.setattr("zstore.storage.objects.store.PAGE", 2)
    server.page_size = 1
    assert store.list_children() == ["a=b", "long", "n"]
    assert len(asked) == 9 + 4 - 1
    signer = auth.S3SigV4Auth(Credentials("k", "s", token), "s3", "us-east-1")
    for (method, _), path, head in zip(server.requests, asked, heads, strict=True):
        names = re.search("SignedHeaders=([^,]+)", head["Authorization"])
        assert names is not None
        lines = {name: text for name, text in head.items() if name.lower() in names[1].split(";")}
        assert ("x-amz-security-token" in lines) == bool(token)
        request = AWSRequest(method, server.url + path, headers=lines)
        request.context["timestamp"] = head["x-amz-date"]
        said = signer.string_to_sign(request, signer.canonical_request(request))
        assert head["Authorization"].endswith(f"Signature={signer.signature(said, request)}")
    assert {*server.values} == {f"/b/x y/{key}" for key in (*values, "n/0", "n/1")}


@pytest.mark.skipif(not puts(), reason="libcurl is not installed, or does not say when it sends")
def test_connections_of_many_requests_are_kept_for_many(server: BucketServer) -> None:
    ports: set[int] = set()
    serve = server.serve

    def note(request: Any) -> None:
        ports.add(request.client_address[1])
        serve(request)

    server.serve = note  # type: ignore[method-assign]
    store = open_store("s3://b/x", storage_options=server.options(region="eu-west-9"))
    for turn in range(3):
        with ThreadPoolExecutor(4) as pool:
            [*pool.map(lambda key: store.put(key, b"1"), "abcdefgh")]
        store.put_new_many([f"{turn}/{i}" for i in range(20)], [b"2"] * 20)
        assert store.get_many([(f"{turn}/{i}", None) for i in range(20)]) == [b"2"] * 20
    assert len(ports) <= 24


def test_one_client_for_all_who_say_the_same(server: BucketServer) -> None:
    options = server.options()
    first = open_store("s3://b/x", storage_options=options)
    second = open_store("s3://b/y/z", storage_options=dict(reversed(options.items())))
    other = open_store("s3://b/x", storage_options=server.options(region="eu-west-1"))
    clients = [store._backend.client for store in (first, pickle.loads(pickle.dumps(first)), second, other)]
    assert clients[0] is clients[1] is clients[2] is not clients[3]


def test_another_region_is_found_out(server: BucketServer) -> None:
    server.region = "eu-north-1"
    options = {name: value for name, value in server.options().items() if name != "region"}
    store = open_store("s3://moved/x", storage_options=options)
    store.put("a", b"1")
    assert bytes(open_store("s3://moved/x", storage_options=options).get("a") or b"") == b"1"
    assert len(server.requests) == 3
    # Many requests under way when it is found out.
    values = open_store("s3://moved-too/x", storage_options=options).get_many(
        [(f"{i}", None) for i in range(40)]
    )
    assert values == [None] * 40
    # A server that names it only to who asks about the bucket is asked itself, not Amazon.
    server.names_region = False
    store = open_store("s3://moved-far/x", storage_options=options)
    store.put("a", b"1")
    assert store.get("a") == b"1"
    assert server.requests.count(("HEAD", "/moved-far")) == 1


# What the caller says, and what the environment says


def test_the_caller_goes_before_the_environment(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.values["/b/a"] = b"1"
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    for word in ("endpoint", "endpoint_url", "endpoint_url_s3"):
        given = {**server.options(endpoint_url=None), word: server.url}
        assert bytes(open_store("s3://b", storage_options=given).get("a") or b"") == b"1"
    assert not any(server.anonymous)
    # object_store has this one go before all else.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="environment's AWS_ENDPOINT_URL_S3 is"):
        open_store("s3://b", storage_options=server.options())
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    assert open_store("s3://b", storage_options=server.options()).get("a") is not None


def test_an_accounts_string_in_the_environment_is_about_that_account(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "AccountName=mine;AccountKey=a2V5;BlobEndpoint=https://mine.example"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    mine = {"account_name": "mine", "endpoint": "https://mine.example"}
    for given, config in (
        ({}, {**mine, "account_key": "a2V5"}),
        ({"sas_token": "a=b"}, {**mine, "sas_key": "a=b"}),
        ({"account_name": "other", "anon": True}, {"account_name": "other", "skip_signature": True}),
        ({"account_name": "other", "key": "b3Ro"}, {"account_name": "other", "account_key": "b3Ro"}),
    ):
        assert read_options("az", given, "az://c").config == config


def test_a_token_goes_before_a_key_of_the_environment(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    given = {"account_name": "n", "sas_token": "sv=1&sig=x", "endpoint_url": server.url}
    assert open_store("az://c", storage_options=given).get("a") is None
    assert server.anonymous == [True]  # the signature is in the query


def test_credentials_may_be_awaited_from_any_thread(server: BucketServer) -> None:
    async def ask() -> dict[str, Any]:
        return {"access_key_id": "k", "secret_access_key": "s", "token": None, "expires_at": None}

    server.values["/b/a"] = b"1"
    given = {"endpoint_url": server.url, "region": "us-east-1", "credential_provider": ask}
    with ThreadPoolExecutor(1) as pool:
        value = pool.submit(open_store("s3://b", storage_options=given).get, "a").result()
    assert bytes(value or b"") == b"1"


def test_lists_are_asked_for_page_by_page(server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a/{number:04}" for number in range(2500)]
    server.values.update({f"/bucket/top/{name}": b"1" for name in names})
    # An empty object that marks a directory, a page before what lies in it; and an empty value.
    server.values |= {"/bucket/top/a/": b"", "/bucket/top/b": b"", "/bucket/top/": b""}
    store = open_store("s3://bucket/top", storage_options=server.options())
    server.requests.clear()
    entries = store.entries()
    assert len(server.requests) == 1
    found = [next(entries) for _ in range(990)]
    assert len(server.requests) == 1
    server.faults = {"503": 1.0}
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        server.faults = {}

    monkeypatch.setattr("zstore.storage.objects.backend.pause", pause)
    found += entries
    assert sorted(entry.key for entry in found) == [*names, "b"]
    # The first page, the second one in vain, then the rest of them behind the first.
    assert len(waits) == 1
    assert len(server.requests) == 4
    server.requests.clear()
    store.delete_prefix("a")
    assert not [path for path in server.values if path.startswith("/bucket/top/a/0")]
    assert len(server.requests) == 6


@pytest.mark.parametrize("starts", [True, False])
def test_long_lists_go_on_behind_the_first_page(
    server: BucketServer, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"a/{number:04}" for number in range(998)] + ["b-", "b-a", *(f"c/{k}" for k in range(3000))]
    server.values.update({f"/bucket/top/{name}": b"1" for name in names})
    # The first page ends with "b-"; behind it come an empty value, and the mark of an empty directory.
    server.values |= {"/bucket/top/a/": b"", "/bucket/top/b-b": b"", "/bucket/top/b/": b""}
    listing, asked = server.listing, list[set[str]]()

    def listed(bucket: str, query: dict[str, str]) -> bytes:
        asked.append({*query})
        return listing(
            bucket, {name: text for name, text in query.items() if starts or name != "start-after"}
        )

    monkeypatch.setattr(server, "listing", listed)
    found = [*open_store("s3://bucket/top", storage_options=server.options()).list()]
    assert sorted(found) == sorted([*names, "b-b", "b"])
    assert "start-after" in asked[1] or trouble()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_is_deleted_is_whole_or_marked_at_any_time(server: BucketServer, zarr_format: Any) -> None:
    group = zstore.create_group("s3://bucket", storage_options=server.options(), zarr_format=zarr_format)
    group.create_group("g")
    arrays = ["g/a", "g/b"]
    for name in arrays:
        group.create_array(name, data=np.arange(1, 9), chunks=(2,))
    before = {path for path in server.values if path.startswith("/bucket/g/")}
    answer = server.answer
    seen: list[tuple[int, bool]] = []

    def check(*request: Any) -> Any:
        found = answer(*request)
        left = {path for path in before if path in server.values}
        is_right = "/bucket/g/.zstore-job/record" in server.values or left in (set(), before)
        for name in arrays:
            here = {path for path in before if path.startswith(f"/bucket/{name}/")}
            documents = {path for path in here if path.rpartition("/")[2][0] in ".z"}
            is_right = is_right and (here - documents <= left or not documents & left)
        seen.append((len(left), is_right))
        return found

    server.answer = check  # type: ignore[method-assign]
    server.requests.clear()
    del group["g"]
    assert len(set(seen)) == 3  # everything, no documents, nothing
    assert all(is_right for _, is_right in seen)
    assert not any("/g/" in path for path in server.values)
    assert [method for method, _ in server.requests].count("POST") == 3


def test_what_is_gone_already_keeps_nothing_else(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = server.answer

    def as_google(request: Any, path: str, *others: Any) -> Any:
        if request.command == "DELETE" and path not in server.values:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        found = answer(request, path, *others)
        server.values.pop("/b/x/1", None)  # somebody else removes that one
        return found

    monkeypatch.setattr(server, "answer", as_google)
    server.values.update({f"/b/x/{i}": b"1" for i in range(60)})
    given = {"base_url": server.url, "credential_provider": lambda: {"token": "t", "expires_at": None}}
    open_store("gs://b", storage_options=given).delete_prefix("x")
    assert server.values == {}


# The first minute


@pytest.mark.parametrize(
    ("place", "options", "state", "expected"),
    [
        ("s3://nobody/x", {}, {"buckets": {"b"}}, "there is no such bucket; expected the right name"),
        ("s3://b/x", {"region": "eu-west-1"}, {"region": "us-east-1"}, "storage option region='us-east-1'"),
        (
            "s3://b/x",
            {},
            {"denied": ("InvalidAccessKeyId",)},
            "does not know this access key; expected the storage",
        ),
        (
            "s3://b/x",
            {},
            {"denied": ("SignatureDoesNotMatch",)},
            "the secret does not belong to the access key",
        ),
        ("s3://b/x", {}, {"denied": ("ExpiredToken",)}, "the credentials have expired"),
        ("s3://b/x", {}, {"denied": ("AccessDenied",)}, "refuses this to these credentials; .*anon=True"),
        (
            "s3://b/x",
            {"anon": True, "key": None},
            {"denied": ("AccessDenied",)},
            "refuses this to everybody; expected",
        ),
        ("s3://b/x", {"endpoint_url": "http://127.0.0.1:9"}, {}, "no server answers there; .* endpoint_url"),
        ("s3://b/x", {"endpoint_url": "http://nowhere.invalid"}, {}, "there is no server of that name"),
    ],
)
def test_errors_say_what_to_do(
    server: BucketServer, place: str, options: dict[str, Any], state: dict[str, Any], expected: str
) -> None:
    for name, value in state.items():
        setattr(server, name, value)
    if "denied" in state:
        server.allowed = "/nowhere"
    given = {name: value for name, value in server.options(**options).items() if value is not None}
    with pytest.raises(ZstoreError, match=expected) as caught:
        zstore.open(place, storage_options=given)
    assert "NotFound" not in str(caught.value) or isinstance(caught.value, NotFoundError)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from zstore.storage.objects import library, store

    monkeypatch.setattr(library, "_current", None)
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StoreError, match=r"pip install 'zstore\[cloud\]'"):
        open_store("obstore+s3://b/x")
    with pytest.raises(StoreError, match=r"pip install 'zstore\[cloud\]'"):
        open_store("gs://b/x")
    assert store.is_installed() is False


def test_no_error_and_no_name_holds_a_secret(server: BucketServer) -> None:
    server.allowed = "/nowhere"
    store = open_store("s3://b/x", storage_options=server.options(secret="hush-hush", token="hush-token"))
    with pytest.raises(StoreError) as caught:
        store.get("a")
    said = f"{caught.value!r} {caught.value} {store!r} {store.url} {caught.value.__cause__}"
    assert "hush" not in said


# Permissions


def test_options_that_are_used_meanwhile_reach_urls_only(server: BucketServer, tmp_path: Path) -> None:
    with use_storage_options(server.options()):
        open_store("s3://b/x").put("a", b"1")
        open_store(str(tmp_path)).put("a", b"1")
        open_store("memory://x").put("a", b"1")
        # A zip file in a bucket is reached as the bucket is.
        with open_store(tmp_path / "x.zip") as store:
            store.put("a", b"2")
        server.values["/b/x.zip"] = (tmp_path / "x.zip").read_bytes()
        for url in ("s3://b/x.zip|zip:", "zip::s3://b/x.zip"):
            assert bytes(open_store(url).get("a") or b"") == b"2"
    with pytest.raises(StoreError):
        open_store("s3://b/x", storage_options={"endpoint_url": "http://127.0.0.1:9", "anon": True}).get("a")


@pytest.mark.parametrize(
    ("scheme", "is_remote"),
    [
        *((scheme, True) for scheme in ("s3", "obstore+gs", "anybody+abfss", "any.body+http+https")),
        *((scheme, False) for scheme in ("memory", "file", "+s3", "zs3", "s3+zip", "redis")),
    ],
)
def test_whose_schemes_are_of_buckets_and_web_servers(scheme: str, is_remote: bool) -> None:
    assert bool(REMOTE.fullmatch(scheme)) == is_remote


# Faults


@pytest.mark.parametrize("libcurl", ["on", "off"])
@pytest.mark.parametrize("fault", ["503", "timeout", "reset", "cut", "hang"])
def test_reads_are_right_and_writes_whole_in_spite_of_faults(
    server: BucketServer, fault: str, libcurl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZSTORE_LIBCURL", libcurl)
    zstore.set_limits(read_time=0.5)
    try:
        server.faults = {fault: 0.2 if fault != "hang" else 0.04}
        options = server.options()
        array = zstore.create_array(
            "s3://b/x",
            "a",
            shape=(64, 64),
            dtype="i4",
            chunks=(8, 8),
            shards=(32, 32),
            storage_options=options,
        )
        array[...] = ITEMS
        array[3:40, 5:50] = -ITEMS[3:40, 5:50]
        array.attrs["n"] = 1
        expected = ITEMS.copy()
        expected[3:40, 5:50] *= -1
        array = zstore.open_array("s3://b/x", "a", storage_options=options)
        assert np.array_equal(array[...], expected)
        assert np.array_equal(array[1:60:7, ::3], expected[1:60:7, ::3])
        assert dict(array.attrs) == {"n": 1}
        large = np.arange(12, dtype="u1").repeat(1 << 19).reshape(12, -1)
        stored = {"data": large, "chunks": (1, 1 << 19), "compressors": None}
        array = zstore.create_array("s3://b/x", "large", storage_options=options, **stored)
        assert np.array_equal(array[...], large)
    finally:
        zstore.set_limits(read_time=None)
    assert server.faulty[fault] > 0


def test_a_new_group_is_three_rounds_and_its_mark_goes_before_another_comes(server: BucketServer) -> None:
    mark = "/b/x/.zstore-job/record"
    nodes = {"": {}, **{f"a{i}": {"shape": 4, "dtype": "u1"} for i in range(5)}}
    server.expect([mark, "/b/x/"], [f"/b/x/a{i}/zarr.json" for i in range(5)])
    hold, answer = threading.Event(), server.answer

    def held(request: Any, *rest: Any) -> Any:
        if request.command in ("DELETE", "POST"):
            assert hold.wait(20)
        return answer(request, *rest)

    with patch.object(server, "answer", held):
        dict(zstore.create_hierarchy("s3://b/x", nodes, storage_options=server.options()))
        server.expect()
        assert mark in server.values  # nobody waits for its removal, but who puts another one there
        store = open_store("s3://b/x", storage_options=server.options())
        threading.Timer(0.1, hold.set).start()
        store.put_new(mark.removeprefix("/b/x/"), b"{}")
    assert server.values[mark] == b"{}"
    assert not server.late
    with pytest.raises(ExistsError):
        zstore.create_hierarchy("s3://b/x", nodes, storage_options=server.options())
    store.delete(mark.removeprefix("/b/x/"))
    with pytest.raises(ExistsError):
        zstore.create_hierarchy("s3://b/x", nodes, storage_options=server.options())
    assert mark not in server.values


def test_what_does_not_pass_ends(server: BucketServer) -> None:
    zstore.set_limits(bucket_attempt_count=4)
    try:
        server.faults = {"503": 1.0}
        with pytest.raises(StoreError, match="503"):
            open_store("s3://b/x", storage_options=server.options()).get("a")
        assert len(server.requests) == 4
    finally:
        zstore.set_limits(bucket_attempt_count=None)


def test_times_may_be_texts_with_units(server: BucketServer) -> None:
    """As obstore takes them."""
    for text, seconds in {"20s": 20, "500ms": 0.5, "2 min": 120, "1.5": 1.5, 3: 3, "1h": 3600}.items():
        options = {**server.options(), "client_options": {"allow_http": True, "timeout": text}}
        assert read_options("s3", options, "s3://b").total_time == seconds
    for wrong in ("soon", "-1", "5 s 3", True):
        with pytest.raises(StoreError, match=r"option 'timeout' is .*; expected seconds, such as 20"):
            read_options("s3", {**server.options(), "timeout": wrong}, "s3://b")


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_a_timeout_is_that_of_the_request_with_all_its_attempts(server: BucketServer, scheme: str) -> None:
    server.values["/b/a"] = bytes(100)
    url = "s3://b" if scheme == "s3" else f"{server.url}/b"
    store = open_store(
        url,
        read_only=True,
        storage_options={**server.options(), "timeout": 0.7} if scheme == "s3" else {"timeout": 0.7},
    )
    assert isinstance(store, ObjectStore)
    server.faults = {"slow": 1.0}
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"no whole answer came in 0.7 s, the storage option timeout"):
        store.get("a")
    assert time.monotonic() - began < 10  # of the 20 that the body takes
    server.faults = {}
    assert store.get("a") == bytes(100)


@pytest.mark.parametrize(("url", "option"), [("s3://b/x", "endpoint_url"), ("gs://b/x", "base_url")])
def test_an_empty_address_is_no_address(url: str, option: str) -> None:
    with pytest.raises(StoreError, match="expected a URL, or no such option"):
        open_store(url, storage_options={option: ""})


def test_no_more_requests_at_once_than_the_limit(server: BucketServer) -> None:
    under_way, most, guard, answer = 0, 0, threading.Lock(), server.serve

    def serve(request: Any) -> None:
        nonlocal under_way, most
        with guard:
            under_way += 1
            most = max(most, under_way)
        threading.Event().wait(0.01)
        answer(request)
        with guard:
            under_way -= 1

    server.serve = serve  # type: ignore[method-assign]
    zstore.set_limits(bucket_request_count=5)
    try:
        store = open_store("s3://b/x", storage_options=server.options())
        assert store.get_many([(f"k{i}", None) for i in range(40)]) == [None] * 40
    finally:
        zstore.set_limits(bucket_request_count=None)
    assert 1 < most <= 5


@pytest.mark.parametrize("kind", ["shards", "chunks"])
def test_large_chunks_are_all_under_way_that_have_32_mib_together(server: BucketServer, kind: str) -> None:
    grid = {"chunks": (1, 2 << 20)} if kind == "chunks" else {"chunks": (1, 1 << 20), "shards": (1, 2 << 20)}
    data = np.full((16, 2 << 20), 7, "u1")
    array = zstore.create_array("s3://b/x", data=data, storage_options=server.options(), **grid)
    server.expect([f"/b/x/c/{n}/0" for n in range(16)])
    assert (array[...] == 7).all()
    assert not server.late


def test_a_put_whose_answer_is_lost_is_no_conflict(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("s3://b/x", storage_options=server.options())
    store.put("a", b"old")
    answer, lost = server.answer, iter([True])

    def lose(request: Any, path: str, *others: Any) -> Any:
        found = answer(request, path, *others)
        is_lost = request.command == "PUT" and path == "/b/x/a" and next(lost, False)
        return (503, {}, b"") if is_lost else found

    with store.lock("a"):
        store.get("a")
        store.put("other", b"")
        monkeypatch.setattr(server, "answer", lose)
        store.put("a", b"new")
    assert bytes(store.get("a") or b"") == b"new"
    assert next(lost, None) is None


@pytest.mark.parametrize("libcurl", ["on", "off"])
def test_many_small_chunks_are_put_and_removed_at_once(
    server: BucketServer, libcurl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZSTORE_LIBCURL", libcurl)
    grid = {"shape": (100, 8), "chunks": (1, 2), "dtype": "i4"}
    options = server.options()
    array = zstore.create_array("s3://b/x", compressors=None, storage_options=options, **grid)
    expected = np.arange(1, 801, dtype="i4").reshape(100, 8)
    server.requests.clear()
    array[...] = expected
    assert sorted(server.requests) == sorted(("PUT", f"/b/x/c/{y}/{x}") for y in range(100) for x in range(4))
    # Of parts, each is put on the condition that it is as it was: one is another writer's meanwhile.
    answer, taken = server.answer, iter([True])

    def change(request: Any, path: str, *others: Any) -> Any:
        if request.command == "PUT" and path == "/b/x/c/50/0" and next(taken, False):
            server.values[path] = np.array([-50, 402], "i4").tobytes()
            server.tags[path] = '"another"'
        return answer(request, path, *others)

    with monkeypatch.context() as patch:
        patch.setattr(server, "answer", change)
        array[40:60, 1:8] = -1
    expected[40:60, 1:8] = -1
    expected[50, 0] = -50
    assert next(taken, None) is None
    assert np.array_equal(array[...], expected)
    server.requests.clear()
    server.deleted.clear()
    array[:90] = 0
    expected[:90] = 0
    assert len(server.requests) == len(server.deleted) == 3
    assert len([path for path in server.values if "/c/" in path]) == 40
    assert np.array_equal(array[...], expected)


def test_of_many_chunks_the_one_that_cannot_be_put_is_named(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = zstore.create_array(
        "s3://b/x", data=np.ones((60, 4), "i4"), chunks=(1, 2), storage_options=server.options()
    )
    answer = server.answer

    def refuse(request: Any, path: str, *others: Any) -> Any:
        is_refused = request.command == "PUT" and path == "/b/x/c/7/1"
        return (403, {}, b"<Code>AccessDenied</Code>") if is_refused else answer(request, path, *others)

    with monkeypatch.context() as patch:
        patch.setattr(server, "answer", refuse)
        with pytest.raises(StoreError, match=r"cannot write: .*refuses.* \(at 'c/7/1' of 's3://b/x'\)"):
            array[...] = 2
    assert (array[7, 2:] == 1).all()
    assert {*array[...].ravel()} == {1, 2}
    array[...] = 2
    assert (array[...] == 2).all()


# Conditions


def test_a_server_without_conditions_is_found_out_before_anything_is_lost(server: BucketServer) -> None:
    server.keeps = False
    options = server.options()
    array = zstore.create_array("s3://b/x", data=ITEMS, chunks=(64, 64), storage_options=options)
    before = dict(server.values)
    with pytest.raises(StoreError, match=r"does not keep such conditions.*check_versions=False"):
        array[0, 0] = 1
    assert server.values == before
    count = len(server.requests)
    with pytest.raises(StoreError, match="does not keep such conditions"):
        array.attrs["a"] = 1
    # The second time it is known.
    assert not any("conditions" in path for _, path in server.requests[count:])
    array = zstore.open_array("s3://b/x", mode="r+", storage_options={**options, "check_versions": False})
    array[0, 0] = 1
    assert array[0, 0] == 1


def test_a_trial_of_conditions_clears_away_what_a_killed_one_left(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may do so, too, in the midst of a trial, which then has a name of its own."""
    answer, first = server.answer, iter([True])
    server.values["/b/x/.zstore-conditions"] = b""

    def without(request: Any, path: str, *others: Any) -> Any:
        is_trial = path.endswith(".zstore-conditions") and "If-None-Match" in request.headers
        if is_trial and next(first, False):
            server.values.pop(path)
        return answer(request, path, *others)

    monkeypatch.setattr(server, "answer", without)
    store = open_store("s3://b/x", storage_options=server.options())
    store.update("n", lambda: store.put("n", bytes(store.get("n") or b"") + b"1"))
    assert server.values == {"/b/x/n": b"1"}
    trials = {path for method, path in server.requests if method == "PUT" and "conditions" in path}
    assert len(trials) == 2
    assert next(first, None) is None


def test_weak_tags_are_no_conflict(server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = server.answer

    def weakly(*request: Any) -> Any:
        status, headers, data = answer(*request)
        return status, {name: f"W/{v}" if name == "ETag" else v for name, v in headers.items()}, data

    monkeypatch.setattr(server, "answer", weakly)
    store = open_store("s3://b", storage_options=server.options())
    store.put("a", b"1")
    with pytest.raises(StoreError, match="its tags are weak"):
        store.update("a", lambda: store.put("a", bytes(store.get("a") or b"") + b"2"))
    assert server.values["/b/a"] == b"1"


def meeting(first: Store, second: Store, change: Callable[[Store], None], name: str) -> None:
    """Let `second` change something right after `first` has read what it is about to change, once."""
    turns, read = iter([1]), getattr(type(first), name)

    def meanwhile(self: Any, *args: Any) -> Any:
        found = read(self, *args)
        if self is first and first._locks and next(turns, None):
            change(second)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(first), name, meanwhile)
        change(first)
    assert next(turns, None) is None


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["array", "group"])
def test_attributes_of_two_writers_are_both_kept(server: BucketServer, zarr_format: Any, kind: str) -> None:
    options = server.options()
    first, second = (open_store(url, storage_options=options) for url in ("s3://b/x", "s3://b/x/"))
    if kind == "array":
        zstore.create_array(first, "a", data=ITEMS, zarr_format=zarr_format)
    else:
        zstore.create_group(first, "a", zarr_format=zarr_format)

    def change(store: Store) -> None:
        zstore.open(store, "a", mode="r+").attrs["first" if store is first else "second"] = 1

    meeting(first, second, change, "get_first")
    assert dict(zstore.open(first, "a").attrs) == {"first": 1, "second": 1}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_meets_a_consolidation_is_done_again(server: BucketServer, zarr_format: Any) -> None:
    options = server.options()
    first, second = (open_store(url, storage_options=options) for url in ("s3://b/x", "s3://b/x/"))
    group = zstore.create_group(first, zarr_format=zarr_format)
    group.create_array("a", data=ITEMS)

    def change(store: Store) -> None:
        if store is first:
            zstore.consolidate(store)
        else:
            zstore.open_group(store, mode="r+").attrs["n"] = 1

    meeting(first, second, change, "get_first")
    assert dict(zstore.open_group(first).attrs) == {"n": 1}


NEW: dict[str, Any] = {"shape": (4,), "dtype": "i4", "chunks": (2,), "compressors": None}


def consolidate(place: Any, server: BucketServer) -> None:
    zstore.consolidate(place, storage_options=server.options())


def take_away(place: Any, server: BucketServer) -> None:
    del server.values["/b/x/zarr.json"]


@pytest.mark.parametrize("act", [None, consolidate, take_away])
def test_what_is_made_one_by_one_asks_twice_each_and_notices_what_others_did(
    server: BucketServer, act: Callable[[Any, BucketServer], None] | None
) -> None:
    group = zstore.create_group("s3://b/x", attributes={"a": 1}, storage_options=server.options())
    count = len(server.requests)
    for i in range(5):
        group.create_array(f"a{i}", **NEW)
    assert len(server.requests) - count == 10
    if act is not None:
        act("s3://b/x", server)
    server.values["/b/x/taken/zarr.json"] = server.values["/b/x/a0/zarr.json"]
    server.values["/b/x/old/.zarray"] = b"{}"
    server.values["/b/x/left/c/0"] = b"12345678"
    group.create_array("a5", **NEW)
    again = zstore.open_group("s3://b/x", storage_options=server.options())
    assert "a5" in again
    assert again.attrs == ({} if act is take_away else {"a": 1})
    before = dict(server.values)
    for name in ("taken", "old", "left"):
        with pytest.raises(StoreError, match=r"cannot create"):
            group.create_array(name, **NEW)
    assert server.values == before
    with pytest.raises(zstore.errors.MetadataError, match="no group"):
        group.create_array("a0/below", **NEW)


@pytest.mark.parametrize("count", [2, 100])
def test_what_is_added_to_a_consolidated_group_asks_for_nothing_else_there(
    server: BucketServer, count: int
) -> None:
    options = server.options()
    zstore.create_group("s3://b/x", storage_options=options)
    zstore.create_array("s3://b/x", "a0", **NEW, storage_options=options)
    server.fill("/b/x/a", {f"{i}/zarr.json": server.values["/b/x/a0/zarr.json"] for i in range(count)})
    zstore.consolidate("s3://b/x", storage_options=options)
    group = zstore.open_group("s3://b/x", mode="r+", storage_options=options)
    server.requests.clear()
    group.create_hierarchy({f"new{i}": NEW for i in range(10)})
    assert Counter(method for method, _ in server.requests) == {"GET": 3, "PUT": 11}
    server.requests.clear()
    group.create_array("last", **NEW)
    assert len(server.requests) <= 4
    zstore.consolidate("s3://b/x", storage_options=options)
    server.requests.clear()
    assert len(zstore.open_group("s3://b/x", mode="r", storage_options=options)) == count + 11
    assert len(server.requests) == 1


def test_a_group_that_others_change_all_the_time_is_read_each_time(server: BucketServer) -> None:
    group = zstore.create_group("s3://b/x", storage_options=server.options())
    for i in range(6):
        zstore.open_group("s3://b/x", mode="r+", storage_options=server.options()).attrs["i"] = i
        count = len(server.requests)
        group.create_array(f"a{i}", **NEW)
    assert len(server.requests) - count == 3
    assert zstore.open_group("s3://b/x", storage_options=server.options()).attrs == {"i": 5}


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_of_two_who_make_the_same_node_one_is_refused(
    server: BucketServer, filled: bool, zarr_format: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, put_new = threading.Barrier(2), ObjectStore.put_new
    group = zstore.create_group("s3://b/x", zarr_format=zarr_format, storage_options=server.options())

    def together(self: ObjectStore, key: str, value: Any) -> str | None:
        # What is in the way was looked for by both.
        if "a/" in key and key not in server.values:
            with suppress(threading.BrokenBarrierError):
                both.wait(timeout=20 if not both.broken else 0)
            both.abort()
        return put_new(self, key, value)

    def make(number: int) -> str:
        options = {"data": np.full(4, number, "i4"), "chunks": (2,)} if filled else {**NEW}
        try:
            group.create_array("a", attributes={"who": number}, **options)
        except StoreError as error:
            return str(error)
        return ""

    monkeypatch.setattr(ObjectStore, "put_new", together)
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(make, range(2)))
    assert sorted(map(bool, said)) == [False, True]
    assert "cannot create" in "".join(said)
    made = zstore.open_array("s3://b/x/a", storage_options=server.options())
    assert made.attrs == {"who": said.index("")}
    assert np.array_equal(made[...], np.full(4, said.index("") if filled else 0))


def test_a_server_that_refuses_conditions_makes_nodes_all_the_same(server: BucketServer) -> None:
    server.keeps = None
    group = zstore.create_group("s3://b/x", storage_options=server.options())
    group.create_array("a", data=ITEMS)
    assert np.array_equal(group["a"][...], ITEMS)


def test_a_shrink_deletes_a_thousand_by_one_request_beside_readers_and_writers(server: BucketServer) -> None:
    options = server.options()
    array = zstore.create_array(
        "s3://b/a", shape=(3000, 4), chunks=(1, 2), dtype="i4", compressors=None, storage_options=options
    )
    chunk = np.full(2, 7, "i4").tobytes()
    values = {f"c/{y}/{x}": chunk for y in range(3000) for x in range(2)}
    server.fill("/b/a/", {"zarr.json": server.values["/b/a/zarr.json"], **values})
    ends = threading.Event()

    def write(number: int) -> int:
        mine, count = zstore.open_array("s3://b/a", mode="r+", storage_options=options), 0
        while not ends.is_set():
            mine[number, 0] = count = count + 1
        return count

    def read() -> None:
        mine = zstore.open_array("s3://b/a", mode="r", storage_options=options)
        while not ends.is_set():
            assert (mine[4:10, :3] == 7).all()

    with ThreadPoolExecutor(4) as pool:
        writers, readers = [pool.submit(write, number) for number in (0, 1)], pool.submit(read)
        try:
            server.requests.clear()
            array.resize((10, 3))
        finally:
            ends.set()
        # The others are the trial of conditions and the intent of the change.
        counts = sorted(len(keys) for keys in server.deleted)
        assert [count for count in counts if count > 1] == [980, 1000, 1000, 1000, 1000, 1000]
        assert len(counts) <= 8
        readers.result()
        array.resize((3000, 4))
        expected = np.zeros((3000, 4), "i4")
        expected[:10, :3] = 7
        expected[:2, 0] = [writer.result() for writer in writers]
    assert (array[...] == expected).all()


def test_writers_and_appenders_lose_nothing_at_google(server: BucketServer) -> None:
    given = {"base_url": server.url, "credential_provider": lambda: {"token": "t", "expires_at": None}}
    stores = [open_store(f"gs://b/x{'/' * k}", storage_options=given) for k in range(3)]
    zstore.create_array(stores[0], "a", shape=(4, 8), dtype="i4", chunks=(2, 4), shards=(4, 8))
    zstore.create_array(stores[0], "t", shape=(0,), dtype="i4", chunks=(5,))
    together = threading.Barrier(3)

    def work(k: int) -> None:
        array, times = (zstore.open_array(stores[k], name, mode="r+") for name in ("a", "t"))
        for row in range(4):
            together.wait(60)
            array[row, k * 2 : k * 2 + 2] = row + 1
        for step in range(4):
            times.append(np.full(1, 10 * k + step, "i4"))

    with ThreadPoolExecutor(3) as pool:
        [*pool.map(work, range(3))]
    rows = np.repeat(np.arange(1, 5), 8).reshape(4, 8)
    assert np.array_equal(zstore.open_array(stores[0], "a")[:, :6], rows[:, :6])
    appended = zstore.open_array(stores[0], "t")[...]
    assert sorted(appended.tolist()) == [10 * k + step for k in range(3) for step in range(4)]


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    place = tmp_path_factory.mktemp("tls")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    own = [
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]
    for words in (
        ["-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"],
        [
            "-subj",
            "/CN=me",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            *own,
        ],
    ):
        subprocess.run([*made, *words], cwd=place, check=True, capture_output=True)
    return place


def test_an_authority_of_ones_own(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BucketServer(certificate=(authority / "cert.pem", authority / "key.pem")) as server:
        server.values["/b/x/a"] = b"12345"
        with pytest.raises(StoreError, match="is not trusted; expected the storage option root_certificate"):
            open_store("s3://b/x", storage_options=server.options()).get("a")
        for name, value in (
            ("root_certificate", str(authority / "ca.pem")),
            ("verify", (authority / "ca.pem").read_text()),
        ):
            for url in ("s3://b/x", f"{server.url}/b/x"):
                options = server.options() if url.startswith("s3") else {}
                store = open_store(url, storage_options={**options, name: value})
                assert bytes(store.get("a", ByteRange(1, 2)) or b"") == b"23"
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority / "ca.pem"))
        assert open_store("s3://b/x", storage_options=server.options()).size("a") == 5
