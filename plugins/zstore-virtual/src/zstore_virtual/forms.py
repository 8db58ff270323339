"""Manifests on disk and elsewhere: which form an address holds, and how it is read and written."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zstore.base.limits import current_limits
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.storage.base import AtMost
from zstore.storage.local import LocalStore
from zstore.storage.url import open_store
from zstore_virtual.kerchunk import read_json, write_json
from zstore_virtual.manifest import Manifest
from zstore_virtual.parquet import read_parquet, write_parquet

__all__ = ["open_manifest", "write_manifest"]

FOLDERS = (".parq", ".parquet")


def open_manifest(
    address: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> Manifest:
    """The manifest at a path or URL: kerchunk's JSON, or a directory of its Parquet files.

    Raises
        NotFoundError: there is nothing.
        MetadataError, UnsupportedError: it is no manifest, or one that cannot be read.
    """
    address = os.fspath(address)
    path = address.removeprefix("file://") if address.startswith("file://") else address
    if "://" not in path and Path(path).is_dir():
        return read_parquet(LocalStore(path, read_only=True), path=path)
    if "://" not in path:
        return _read_file(path)
    if address.rstrip("/").endswith(FOLDERS):
        return read_parquet(
            open_store(address, read_only=True, storage_options=storage_options), path=address
        )
    top, _, name = address.rpartition("/")
    with open_store(top, read_only=True, storage_options=storage_options) as store:
        data = store.get(name, AtMost(current_limits().value_size + 1))
    if data is None:
        raise NotFoundError("there are no references", path=address)
    return _read(data, address)


def _read_file(path: str) -> Manifest:
    try:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return _read(b"", path)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                # What is being read may be changed by others: a copy would double what it takes.
                return _read(data, path)
    except FileNotFoundError:
        raise NotFoundError("there are no references", path=path) from None
    except OSError as error:
        if isinstance(error, StoreError):
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
    manifest: Manifest, address: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Write a manifest as kerchunk's JSON, or as its Parquet files: to ".parq" or ".parquet"."""
    address = os.fspath(address)
    if address.rstrip("/").endswith(FOLDERS):
        near = "://" not in address
        store = LocalStore(address) if near else open_store(address, storage_options=storage_options)
        write_parquet(manifest, store)
        return
    top, _, name = (address if "://" in address else str(Path(address).absolute())).rpartition("/")
    with open_store(top, storage_options=storage_options) as store:
        store.put(name, write_json(manifest))
