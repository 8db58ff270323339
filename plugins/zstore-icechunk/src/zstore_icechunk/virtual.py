"""Finds which virtual chunks of a repository may be read: those in places that the caller allows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from zstore.errors import StoreError
from zstore.plugin.buckets import kind_of, read_options
from zstore_icechunk.places import CREDENTIALS, SCHEME, TAKES, library

__all__ = ["authorized"]


def authorized(
    config: Any,
    allow: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
    remote_options: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Credentials for the virtual chunk containers of a repository at or below allowed places, by prefix.

    Raises
        StoreError: an allowed place is relative or leaves itself by "..".
    """
    if not allow:
        return {}
    places = [allow] if isinstance(allow, str | os.PathLike) else [*allow]
    allowed = [_parts(os.fspath(place)) for place in places]
    found = {}
    for prefix in getattr(config, "virtual_chunk_containers", None) or {}:
        try:
            kind, path = _parts(prefix)
        except StoreError:
            continue
        if any(kind == other and f"{path}/".startswith(f"{top}/") for other, top in allowed):
            found[prefix] = _credentials(kind, prefix, remote_options)
    return found


def _parts(place: str) -> tuple[str, str]:
    """The kind of a place, and its path or bucket and prefix, without a "/" at its end."""
    scheme = SCHEME.match(place)
    if scheme is None or scheme[1].lower() == "file":
        path = place if scheme is None else unquote(urlsplit(place).path)
        if ".." in path.split("/"):
            raise StoreError(f"the place {place!r} has a '..'; expected the path that it stands for")
        return "file", os.path.abspath(path).rstrip("/")  # noqa: PTH100
    kind, rest = kind_of(scheme[1].lower()), place[scheme.end() :]
    if ".." in unquote(rest).split("/"):
        raise StoreError(f"the place {place!r} has a '..'; expected the path that it stands for")
    # A server is another place by http than by https.
    return scheme[1].lower() if kind == "http" else kind, rest.rstrip("/")


def _credentials(kind: str, prefix: str, options: Mapping[str, Any] | None) -> Any:
    """icechunk's credentials for a place, made of storage options."""
    icechunk = library()
    if kind in ("file", "http", "https"):
        # In icechunk 1 this is None.
        name = "LocalFileSystemAccess" if kind == "file" else "HttpAccess"
        return getattr(icechunk.credentials, name, None)
    makers = {"s3": icechunk.s3_credentials, "gs": icechunk.gcs_credentials, "az": icechunk.azure_credentials}
    if kind not in makers:
        return None
    settings = read_options(kind, options or {}, prefix)
    words = CREDENTIALS[kind] | {"secret_access_key", "session_token"}
    given = {
        TAKES[kind][name]: value
        for name, value in settings.config.items()
        if TAKES[kind].get(name) in words and value
    }
    if not given:
        given["anonymous" if settings.is_anonymous else "from_env"] = True
    return makers[kind](**given)
