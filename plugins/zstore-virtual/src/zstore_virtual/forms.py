"""Opens and writes manifests at paths and URLs, in the form that the address names: JSON or Parquet."""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from zstore.errors import MetadataError, NotFoundError, StoreError, without_secrets
from zstore.plugin.stores import AtMost, LocalStore, PrefixStore, Store, current_limits, open_store
from zstore_virtual.kerchunk import read_json, write_json
from zstore_virtual.manifest import Manifest
from zstore_virtual.parquet import DOCUMENT, read_parquet, write_parquet
from zstore_virtual.places import folder_of

__all__ = [
    "FOLDERS",
    "check_replaceable",
    "has_manifest",
    "open_beside",
    "open_manifest",
    "plain_address",
    "write_manifest",
]

FOLDERS = (".parq", ".parquet")


def open_manifest(
    address: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> Manifest:
    """The manifest at a path or URL: kerchunk's JSON, or a directory of its Parquet files.

    Raises
        NotFoundError: there is nothing.
        MetadataError, UnsupportedError: there is no manifest, or one that cannot be read.
    """
    address = plain_address(address)
    manifest = _read_at(address, storage_options)
    manifest.address = address
    return manifest


def plain_address(address: str | os.PathLike[str]) -> str:
    """The absolute path for a path or a file URL; other URLs as they are."""
    text = os.fspath(address)
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    return text if "://" in text else os.path.abspath(text)  # noqa: PTH100


def open_beside(
    address: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
) -> tuple[Store, str]:
    """The store that what is at an address is a value of, and its name there.

    Raises
        StoreError: the address is that of a whole bucket or store.
    """
    top, _, name = address.rstrip("/").rpartition("/")
    if "://" in address and "://" not in top:
        raise StoreError("expected the name of something in a bucket or on a server", path=address)
    options = storage_options if "://" in top else None
    return open_store(top or "/", read_only=read_only, storage_options=options), name


def check_replaceable(store: Store, name: str, address: str) -> None:
    """Raise StoreError where the value `name` is not JSON, such as a file that the manifest is made of."""
    begin = store.get(name, AtMost(64))
    if begin is not None and bytes(begin).lstrip()[:1] not in (b"", b"{"):
        raise StoreError(
            "what is there is not a manifest and is not replaced; expected another name", path=address
        )


def has_manifest(address: str | os.PathLike[str]) -> bool:
    """Whether anything is at the address of a manifest."""
    address = plain_address(address)
    if "://" not in address:
        return Path(address).exists()
    is_folder = address.rstrip("/").endswith(FOLDERS)
    beside, name = open_beside(address, read_only=True)
    with beside as store:
        return store.size(f"{name}/{DOCUMENT}" if is_folder else name) is not None


def _read_at(address: str, storage_options: Mapping[str, Any] | None) -> Manifest:
    if "://" not in address:
        if Path(address).is_dir():
            return read_parquet(LocalStore(address, read_only=True), path=address)
        return _read_file(address)
    # The query of a web address is part of every request.
    is_web = address.lower().startswith(("http://", "https://"))
    plain, mark, query = address.partition("?") if is_web else (address, "", "")
    top, _, name = plain.rstrip("/").rpartition("/")
    top += mark + query
    if name.endswith(FOLDERS):
        # From its parent directory: by its own name it opens as what the references lead to.
        store = open_store(top, read_only=True, storage_options=storage_options)
        return read_parquet(PrefixStore(store, name), path=address)
    with open_store(top, read_only=True, storage_options=storage_options) as store:
        data = store.get(name, AtMost(current_limits().value_size + 1))
    if data is None:
        raise NotFoundError("there are no references", path=address)
    return _read(data, address)


def _read_file(path: str) -> Manifest:
    if Path(path).name == "zarr.json":
        expected = f"expected the directory that it is in, {os.path.dirname(path)!r}"  # noqa: PTH120
        raise MetadataError(f"a document of a Zarr is no file of references; {expected}", path=path)
    try:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return _read(b"", path)
            return _read(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), path)
    except FileNotFoundError:
        raise NotFoundError("there are no references", path=path) from None
    except OSError as error:
        if isinstance(error, StoreError) or error.errno is None:
            raise
        raise StoreError(f"cannot read: {error.strerror}", path=path) from error


def _read(data: Any, path: str) -> Manifest:
    limit = current_limits().value_size
    if len(data) > limit:
        raise MetadataError(
            f"the references have more than {limit} bytes, the limit value_size (zstore.set_limits)",
            path=path,
        )
    return read_json(data, path=path)


def write_manifest(
    manifest: Manifest,
    address: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    durable: bool = False,
) -> None:
    """Write a manifest as kerchunk's JSON, or as kerchunk's Parquet files where the address says so.

    address  a path or URL; one that ends in ".parq" or ".parquet" is a directory of Parquet files
    durable  whether it survives a power cut from the moment that this returns

    Relative addresses of sources are written in full, unless they mean the same in the new place.

    Raises
        StoreError: there is something else than a manifest, or it cannot be written.
    Warns
        UserWarning: addresses of sources have keys or signatures in them, which are written too.
    """
    address = plain_address(address)
    manifest = _relocate(manifest, address)
    shown = ((source.address, without_secrets(source.address)) for source in manifest.sources)
    secret = next((safe for plain, safe in shown if safe != plain), None)
    if secret is not None:
        warnings.warn(
            f"{secret!r} is written in full: whoever reads the manifest sees what '...' hides", stacklevel=2
        )
    is_folder, is_local = address.rstrip("/").endswith(FOLDERS), "://" not in address
    if is_folder and is_local:
        write_parquet(manifest, LocalStore(address, durable=durable))
        return
    store, name = open_beside(address, storage_options=storage_options)
    if is_folder:
        write_parquet(manifest, PrefixStore(store.as_durable() if durable else store, name))
        return
    with store:
        check_replaceable(store, name, address)
        (store.as_durable() if durable else store).put(name, write_json(manifest))


def _relocate(manifest: Manifest, address: str) -> Manifest:
    """The manifest for writing to `address`: in another directory, relative addresses become full ones."""
    base = None if manifest.address is None else folder_of(manifest.address)
    if base is None or base == folder_of(address):
        return manifest
    manifest.load()
    top = base.rstrip("/")
    sources = [
        source
        if "://" in source.address or source.address.startswith("/")
        else source._replace(address=f"{top}/{source.address}")
        for source in manifest.sources
    ]
    return replace(manifest, sources=sources)
