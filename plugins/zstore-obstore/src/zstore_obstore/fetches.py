"""What comes in answer to one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Found", "Version", "version_of"]

# What tells one version of a value from another, in obstore's words.
Version = dict[str, str]


class Found(NamedTuple):
    """What came: the bytes from `begin` on, the value's size and its version."""

    data: memoryview
    begin: int
    total_size: int
    version: Version


def version_of(meta: Mapping[str, Any]) -> Version:
    """What tells this version of a value from others; nothing, where the server does not say."""
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None}
