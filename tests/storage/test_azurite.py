"""Azure's storage as Azurite has it, where that is installed (`make clouds` does so)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.storage.base import Store
from zstore.storage.url import open_store
from zstore.testing.stores import StoreContract

AZURITE = os.environ.get("ZSTORE_AZURITE") or shutil.which("azurite-blob")
if AZURITE is None:
    pytest.skip("azurite is not installed (`make clouds` installs it)", allow_module_level=True)
pytest.importorskip("obstore", reason="obstore is not installed")

numbers = count()
# Everybody's: it is part of Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture(scope="module")
def connection() -> Iterator[str]:
    """The connection string of a server with the container "box"."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--blobPort", str(port), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
    process = subprocess.Popen([str(AZURITE), *words, "--disableTelemetry"], stdout=-3, stderr=-3)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    said = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n/{ACCOUNT}/{ACCOUNT}/box\nrestype:container"
    signature = hmac.new(base64.b64decode(KEY), f"PUT{12 * chr(10)}{said}".encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature.digest()).decode()}",
        "Content-Length": "0",
    }
    with urlopen(Request(f"{url}/box?restype=container", method="PUT", headers=headers)):
        yield f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url}"
    process.terminate()
    process.wait()


class TestAzure(StoreContract):
    excludes_processes = False  # they notice each other instead
    many = 30

    @pytest.fixture(autouse=True)
    def serving(self, connection: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
        self.number = next(numbers)

    def make_store(self, place: Path) -> Store:
        return open_store(f"az://box/{self.number}/{place.name}/a b.zarr")


def test_writers_of_one_chunk_lose_nothing(connection: str) -> None:
    options = {"connection_string": connection}
    stores = [open_store(f"az://box/w.zarr{'/' * k}", storage_options=options) for k in (0, 1)]
    items = np.zeros((8, 8), "i4")
    zstore.create_array(stores[0], "a", data=items, chunks=(2, 4), shards=(8, 8))
    failures: list[BaseException] = []

    def fill(store: Store, start: int) -> None:
        try:
            array = zstore.open_array(store, "a", mode="r+")
            for row in range(8):
                array[row, start::2] = row + 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=fill, args=(store, k)) for k, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = zstore.open_array("abfs://box/w.zarr", "a", storage_options=options)[...]
    assert np.array_equal(found, np.repeat(np.arange(1, 9), 8).reshape(8, 8))


def test_a_container_that_is_not_there_is_named(connection: str) -> None:
    store = open_store("az://nobody/x", storage_options={"connection_string": connection})
    with pytest.raises(StoreError, match="there is no such bucket"):
        store.put("a", b"1")
