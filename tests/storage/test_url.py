"""From a path or a URL to a store."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import zstore
from zstore.errors import ReadOnlyError, StoreError, UnknownExtensionError, without_secrets
from zstore.storage import url
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import find_file, open_store
from zstore.testing.sharing import run_forked


@pytest.mark.parametrize("kind", ["path", "text", "url", "local", "relative"])
def test_a_path_opens_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "a b%41#é.zarr"
    LocalStore(place).put("x", b"1")
    targets: dict[str, str | Path] = {
        "path": place,
        "text": str(place),
        "url": place.as_uri(),
        "local": place.as_uri().replace("file://", "local://"),
        "relative": place.name,
    }
    store = open_store(targets[kind])
    assert isinstance(store, LocalStore)
    assert store.get("x") == b"1"
    assert store.url == place.as_uri()


@pytest.mark.parametrize("name", ["here", "new", "new/and/deep", "file/inside", "file#/inside", "loop"])
def test_the_file_system_is_asked_once_whether_a_path_is_a_file(name, tmp_path, monkeypatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with zipfile.ZipFile(tmp_path / "file", "w") as file:
        file.writestr("inside/zarr.json", b"")
    asked, ask = list[str](), os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: asked.append(path) or ask(path, **options))
    mode = url.file_mode
    monkeypatch.setattr(url, "file_mode", lambda path: asked.append(path) or mode(path))
    monkeypatch.setattr(os, "lstat", lambda path, **options: asked.append(path) or ask(path, **options))
    found = find_file(f"{tmp_path}/{name}")
    if name.startswith("file"):
        assert found == ("zip", f"zip::{tmp_path}/file", "inside")
    else:
        assert found is None
        assert name == "loop" or asked == [f"{tmp_path}/{name}"]
    asked.clear()
    if name == "loop":
        with pytest.raises(StoreError, match="symbolic link"):
            open_store(f"{tmp_path}/{name}")
        return
    # The store of a directory asks by itself, with its look for what dead writers left.
    store = open_store(f"{tmp_path}/{name}")
    assert store.url.startswith("zip:" if name.startswith("file") else "file:")
    assert name.startswith("file") or not asked


def test_a_name_that_is_not_utf8_survives_its_url(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"\xff.zarr")
    store = open_store(place)
    store.put("x", b"1")
    assert open_store(store.url).get("x") == b"1"


def test_named_memory_is_shared(tmp_path: Path) -> None:
    open_store(f"memory://{tmp_path.name}").put("a/b", b"1")
    assert open_store(f"memory://{tmp_path.name}").get("a/b") == b"1"
    below = open_store(f"memory://{tmp_path.name}/a")
    assert below.get("b") == b"1"
    assert below.url == f"memory://{tmp_path.name}/a"
    assert MemoryStore().get("a/b") is None


def test_a_file_that_cannot_be_opened_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK")

    def use() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        with pytest.raises(StoreError, match="cannot open: Too many open files"):
            open_store(tmp_path / "x.zip")

    assert run_forked([use]) == [0]


def test_a_store_is_given_back() -> None:
    store = MemoryStore()
    assert open_store(store) is store
    view = open_store(store, read_only=True)
    store.put("a", b"1")
    assert view.get("a") == b"1"
    with pytest.raises(ReadOnlyError):
        view.put("a", b"2")
    with pytest.raises(StoreError, match="this one is open"):
        open_store(store, storage_options={"a": 1})


def test_an_unknown_scheme_is_named_with_what_is_offered() -> None:
    with pytest.raises(UnknownExtensionError, match=r"'s4'; did you mean 's3' or 'gs'\?$"):
        open_store("s4://bucket/x")
    with pytest.raises(UnknownExtensionError, match=r"'quux'.*offered: .*memory"):
        open_store("quux://bucket/x")


@pytest.mark.parametrize("url", ["file://host/x", "file:///x?a=1", "file://", ""])
def test_other_file_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="expected"):
        open_store(url)


@pytest.mark.parametrize("target", ["memory://x", "file:///x", "x"])
def test_unknown_options_are_refused(target: str) -> None:
    with pytest.raises(StoreError, match="nonsense"):
        open_store(target, storage_options={"nonsense": 1})


def test_options_reach_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path, storage_options={"durable": True})
    assert isinstance(store, LocalStore)
    assert store.durable


def test_local_stores_need_no_fsspec(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom zstore.storage.url import find_file, open_store\n"
        f"open_store({str(tmp_path)!r}).put('a', b'1')\nopen_store('memory://x').put('a', b'1')\n"
        "assert not {'fsspec', 'pluggy', 'pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "url, shown",
    [
        ("http://ann:pass@127.0.0.1:9/a.zarr", "http://...@127.0.0.1:9/a.zarr"),
        ("https://127.0.0.1:9/a.zarr?X-Amz-Date=1&X-Amz-Signature=ab12", "Date=1&X-Amz-Signature=..."),
        ("https://127.0.0.1:9/a.zarr?v=3&SIG=a%2Bb", "?v=3&SIG=..."),
    ],
)
def test_passwords_and_signatures_are_not_shown(url: str, shown: str) -> None:
    store = open_store(url, read_only=True, storage_options={"retries": 0})
    array = zstore.create_array(MemoryStore(), shape=2, dtype="u1")
    array._store = store
    texts = [repr(store), repr(array), str(array.info), str(StoreError(f"no {url}", path=url))]
    for text in texts:
        assert shown in text and not {"pass", "ab12", "a%2Bb"} & set(re.split(r"[:@=&'/?]", text))


def test_nothing_else_of_an_address_is_hidden() -> None:
    for text in (
        "abfs://box@account.dfs.core.windows.net/a",
        "s3://a/b@2/c",
        "https://a/b@2/x?v=1&k=2",
        "at x@y",
    ):
        assert without_secrets(text) == text
