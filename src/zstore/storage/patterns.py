"""Patterns of paths and URLs, as shells have them: what "data/*.nc" and "s3://bucket/day-*/a.zarr" match."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from glob import glob

from zstore.errors import NotFoundError, StoreError, UnsupportedError
from zstore.storage.url import FAR_MAGIC, MAGIC, SCHEME, open_store

# How many names beside those that do not match an error shows.
SHOWN_COUNT = 3


def matches(pattern: str) -> list[str]:
    """The paths or URLs that a pattern matches, sorted; "**" is any number of directories on this machine.

    Raises
        NotFoundError: none do.
        UnsupportedError: "**" in a URL.
        StoreError: a server that does not list what it has.
    """
    is_far = SCHEME.match(pattern) is not None
    magic = FAR_MAGIC if is_far else MAGIC
    if not magic.search(pattern):
        return [pattern]
    found = _listed(pattern) if is_far else sorted(glob(pattern, recursive=True))  # noqa: PTH207
    if found:
        return found
    parts = pattern.split("/")
    fixed = next(at for at, part in enumerate(parts) if magic.search(part))
    above = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else os.curdir)
    try:
        names = open_store(above, read_only=True).list_children("")[: SHOWN_COUNT + 1]
    except (NotFoundError, StoreError):
        names = []
    more = ", ..." if len(names) > SHOWN_COUNT else ""
    there = (
        f"there are {', '.join(map(repr, names[:SHOWN_COUNT]))}{more}" if names else "it is empty or missing"
    )
    raise NotFoundError(f"no name matches {parts[fixed]!r} in {above!r}; {there}", path=pattern)


def _listed(pattern: str) -> list[str]:
    """The URLs that a pattern matches, by lists of what servers have, level by level."""
    if "**" in pattern:
        raise UnsupportedError("'**' lists a whole bucket; expected a '*' for each level", path=pattern)
    scheme, _, rest = pattern.partition("://")
    host, *parts = rest.rstrip("/").split("/")
    found = [f"{scheme}://{host}"]
    for part in parts:
        if FAR_MAGIC.search(part):
            found = [
                f"{above}/{name}"
                for above in found
                for name in open_store(above, read_only=True).list_children("")
                if fnmatchcase(name, part)
            ]
        else:
            found = [f"{above}/{part}" for above in found]
    return sorted(found)
