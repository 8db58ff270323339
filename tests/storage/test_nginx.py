"""HTTP as a real server speaks it: nginx, on a loopback port, and what it does when things go wrong."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.errors import NotFoundError, StoreError
from zstore.storage.fsspec import FsspecStore
from zstore.storage.local import LocalStore
from zstore.storage.objects.store import ObjectStore
from zstore.storage.url import open_store
from zstore.storage.zip.store import ZipStore
from zstore.testing.stores import StoreContract

aiohttp = pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
if NGINX is None:
    pytest.skip("nginx is not installed (.ci/servers installs it)", allow_module_level=True)

CONFIGURATION = """
daemon off;
master_process off;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {place}/t1;
    proxy_temp_path {place}/t2;
    fastcgi_temp_path {place}/t3;
    uwsgi_temp_path {place}/t4;
    scgi_temp_path {place}/t5;
    server {{
        listen 127.0.0.1:{port};
        root {place}/files;
        location /listed/ {{ autoindex on; }}
        location /noranges/ {{ alias {place}/files/; max_ranges 0; }}
        location /packed/ {{ alias {place}/files/; gzip on; gzip_min_length 1; gzip_types *; }}
        location /slow/ {{ alias {place}/files/; limit_rate 1000; }}
        location /moved/ {{ if ($request_uri ~ ^/moved/(.*)$) {{ return 302 /$1; }} }}
        location /locked/ {{ auth_basic "x"; auth_basic_user_file /dev/null; alias {place}/files/; }}
        {statuses}
    }}
}}
"""
STATUSES = (403, 429, 500, 502, 503)


class Nginx(NamedTuple):
    url: str
    files: Path
    process: subprocess.Popen[bytes]


def start(place: Path) -> Nginx:
    (place / "files").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    statuses = "\n".join(f"location ^~ /status{status}/ {{ return {status}; }}" for status in STATUSES)
    (place / "nginx.conf").write_text(CONFIGURATION.format(place=place, port=port, statuses=statuses))
    process = subprocess.Popen(
        [str(NGINX), "-p", str(place), "-c", str(place / "nginx.conf"), "-e", str(place / "error.log")],
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return Nginx(f"http://127.0.0.1:{port}", place / "files", process)
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((place / "error.log").read_text()) from None
            time.sleep(0.02)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    server = start(tmp_path_factory.mktemp("nginx"))
    yield server
    server.process.terminate()
    server.process.wait()


class TestNginx(StoreContract):
    can_write = False
    can_list = False
    below = ""

    @pytest.fixture(autouse=True)
    def serving(self, nginx: Nginx) -> None:
        self.nginx = nginx

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> FsspecStore:
        name = f"{place.parent.name}-{place.name}"
        files = LocalStore(self.nginx.files / name)
        for key, value in values.items():
            files.put(key, value)
        return FsspecStore(f"{self.nginx.url}/{self.below}{name}")


class TestNginxWithoutRanges(TestNginx):
    below = "noranges/"


class TestNginxThatCompresses(TestNginx):
    below = "packed/"


class TestNginxThatRedirects(TestNginx):
    below = "moved/"


@pytest.mark.skipif(find_spec("obstore") is None, reason="the package behind the store")
class TestNginxThroughObstore(TestNginx):
    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Any:
        store = open_store(super().make_store_with(place, values).url)
        assert isinstance(store, ObjectStore)
        return store


class TestNginxWithoutRangesThroughObstore(TestNginxThroughObstore):
    below = "noranges/"


class TestNginxThatRedirectsThroughObstore(TestNginxThroughObstore):
    below = "moved/"


class TestZipBehindNginx(TestNginx):
    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Any:
        name = f"{place.parent.name} {place.name}.zip"
        with ZipStore(self.nginx.files / name) as store:
            for key, value in values.items():
                store.put(key, value)
            if not values:
                store.put("a", b"")
                store.delete("a")
        return open_store(f"zip::{self.nginx.url}/{name.replace(' ', '%20')}")


def array_at(nginx: Nginx, name: str) -> np.ndarray[Any, Any]:
    values = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    zstore.create_array(nginx.files / name, data=values, chunks=(10, 10), shards=(30, 40), fill_value=-1)
    return values


def test_an_array(nginx: Nginx) -> None:
    values = array_at(nginx, "array.zarr")
    array = zstore.open_array(f"{nginx.url}/array.zarr", mode="r")
    assert np.array_equal(array[:], values)
    assert np.array_equal(array[5:35, 33::3], values[5:35, 33::3])
    with pytest.raises(NotFoundError):
        zstore.open(f"{nginx.url}/nothing.zarr", mode="r")


@pytest.fixture
def asking_once() -> Iterator[None]:
    zstore.set_limits(attempt_count=1)
    yield
    zstore.set_limits(attempt_count=None)


@pytest.mark.usefixtures("asking_once")
@pytest.mark.parametrize("status", STATUSES)
def test_a_refusal_is_no_missing_value(nginx: Nginx, status: int) -> None:
    store = FsspecStore(f"{nginx.url}/status{status}/x")
    for wanted in (None, ByteRange(-4), ByteRange(0, 4)):
        with pytest.raises(StoreError, match=str(status)):
            store.get("c/0/0", wanted)
    with pytest.raises(StoreError, match=str(status)):
        store.size("c/0/0")
    with pytest.raises(StoreError):
        zstore.open(store, mode="r")


def test_a_password_that_is_missing(nginx: Nginx) -> None:
    with pytest.raises(StoreError, match="401"):
        FsspecStore(f"{nginx.url}/locked").get("a")


@pytest.mark.usefixtures("asking_once")
def test_an_answer_that_takes_too_long(nginx: Nginx) -> None:
    (nginx.files / "long").write_bytes(bytes(200_000))
    options = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=0.3)}}
    store = FsspecStore(f"{nginx.url}/slow", options)
    with pytest.raises(StoreError, match="Timeout") as caught:
        store.get("long")
    assert caught.value.key == "long"


def test_a_chunk_that_may_not_be_read(nginx: Nginx) -> None:
    array_at(nginx, "unreadable.zarr")
    # As nothing below it may be looked at, nginx cannot tell whether there is such a file.
    shard = nginx.files / "unreadable.zarr/c/0/0"
    shard.unlink()
    shard.symlink_to(shard.name)
    array = zstore.open_array(f"{nginx.url}/unreadable.zarr", mode="r")
    with pytest.raises(StoreError, match=r"500|403"):
        array[0, 0]


def test_a_server_that_goes_away(tmp_path: Path) -> None:
    server = start(tmp_path)
    values = array_at(server, "a.zarr")
    array = zstore.open_array(f"{server.url}/a.zarr", mode="r")
    assert array[0, 0] == values[0, 0]
    server.process.terminate()
    server.process.wait()
    with pytest.raises(StoreError):
        array[59, 69]


def test_its_index_pages_are_no_listing(nginx: Nginx) -> None:
    (nginx.files / "listed").mkdir()
    (nginx.files / "listed/a").write_bytes(b"1")
    store = FsspecStore(f"{nginx.url}/listed")
    assert store.get("a") == b"1"
    with pytest.raises(StoreError, match="HTTP has no listing"):
        store.list()
