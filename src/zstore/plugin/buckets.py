"""Buckets and servers: the kind that a URL names, and the storage options that apply to it."""

from __future__ import annotations

from zstore.storage.objects.options import Settings, kind_of, read_options

__all__ = [
    "Settings",
    "kind_of",
    "read_options",
]
