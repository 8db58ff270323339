"""The places that references may lead to: an address lies in one of them, or is refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from zstore.errors import StoreError
from zstore.plugin.stores import Store, check_key, open_store

__all__ = ["Place", "Places", "folder_of", "local_path", "open_place", "settle_address"]

LOCAL = ("", "file", "local")
WEB = ("http", "https")
# Other names of a scheme.
SYNONYMS = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}


class Place(NamedTuple):
    """A directory (`is_local`) or a URL, with everything below; `query` is appended to each address there."""

    address: str
    is_local: bool
    query: str = ""


class Places:
    """The places that the caller allows: addresses with everything below them, and single local files.

    base  the directory or URL where relative addresses begin, None where there is none
    """

    def __init__(self, allowed: Iterable[str], base: str | None) -> None:
        self._base = base
        self._allowed = [_split(place, base) for place in allowed]

    @property
    def are_local(self) -> bool:
        """Whether all places are local directories and files."""
        return all(scheme in LOCAL for scheme, _, _ in self._allowed)

    def is_local(self, address: str) -> bool:
        """Whether an address is that of a local file."""
        if "://" not in address and not address.startswith("/") and self._base is not None:
            address = self._base
        scheme, mark, _ = address.partition("://")
        return not mark or scheme.lower() in LOCAL

    def find(self, address: str) -> tuple[Place, str]:
        """The allowed place that an address is in, and its name below that.

        Raises
            StoreError: it lies in no place that is allowed.
        """
        scheme, path, query = _split(address, self._base)
        for kind, place, _ in self._allowed:
            if kind != scheme:
                continue
            if scheme in LOCAL and path == place and not os.path.isdir(path):  # noqa: PTH112 - a file by itself
                folder, _, name = path.rpartition("/")
                return Place(folder or "/", is_local=True), name
            is_local = scheme in LOCAL
            top = place.rstrip("/") + "/"
            if not path.startswith(top) or len(path) == len(top):
                continue
            name = path[len(top) :]
            if scheme in WEB:
                name = unquote(name)
            try:
                check_key(name)
            except StoreError:
                break
            return Place(place if is_local else f"{scheme}://{place}", is_local, query), name
        allowed = ", ".join(repr(_join(scheme, place)) for scheme, place, _ in self._allowed) or "none"
        raise StoreError(
            f"a reference leads to {address!r}, outside the allowed places ({allowed}); expected the storage "
            "option 'allow' to name a place above it"
        )


def open_place(place: Place, options: Mapping[str, Any] | None) -> Store:
    """The store of a place that is a URL; redirects of web servers are not followed."""
    given = dict(options or {})
    if place.address.startswith(("http://", "https://")):
        given["allow_redirects"] = False
    url = place.address + (f"?{place.query}" if place.query else "")
    return open_store(url, read_only=True, storage_options=given or None)


def folder_of(address: str) -> str:
    """The directory or prefix that holds what is at an address."""
    scheme, path, _ = _split(address, None)
    top = path.rstrip("/").rpartition("/")[0]
    return _join(scheme, top or ("/" if scheme in LOCAL else ""))


def local_path(address: str, base: str | None) -> str | None:
    """The absolute path of a source that is a local file; None for any other."""
    try:
        scheme, path, _ = _split(address, base)
    except StoreError:
        return None
    return path if scheme in LOCAL else None


def settle_address(address: str) -> str:
    """An address in the form in which addresses are compared: one name per scheme, absolute paths."""
    scheme, path, query = _split(address, None)
    return _join(scheme, path) + (f"?{query}" if query else "")


def _join(scheme: str, path: str) -> str:
    return path if scheme in LOCAL else f"{scheme}://{path}"


def _split(address: str, base: str | None) -> tuple[str, str, str]:
    """The scheme ("" for files), the path (absolute, or from the bucket or server on), and the query."""
    address = os.fspath(address)
    scheme, mark, path = address.partition("://")
    query = ""
    if not mark:
        if base is not None and not address.startswith("/"):
            return _split(f"{base.rstrip('/')}/{address}", None)
        scheme, path = "", address
    scheme = scheme.lower()
    if scheme in LOCAL:
        # `abspath` would keep two slashes at the beginning. Links are checked when the file is opened.
        return "", os.path.abspath("/" + path.lstrip("/") if path.startswith("/") else path), ""  # noqa: PTH100
    scheme = SYNONYMS.get(scheme, scheme)
    if scheme in WEB:
        parts = urlsplit(f"{scheme}://{path}")
        if "@" in parts.netloc or parts.fragment:
            raise StoreError(f"the address {address!r} has a user or a fragment; expected neither")
        path, query = parts.netloc.lower() + parts.path, parts.query
    if ".." in path.split("/"):
        raise StoreError(f"the address {address!r} has a '..'; expected the path that it stands for")
    return scheme, path, query
