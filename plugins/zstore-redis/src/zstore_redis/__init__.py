"""The hook by which zstore finds the store for "redis://" URLs."""

from __future__ import annotations

from zstore.plugin import Offer, hookimpl

__all__ = ["register_stores"]


@hookimpl
def register_stores() -> list[Offer]:
    """The scheme "redis"."""
    return [Offer("redis", "zstore_redis.store:RedisStore", ("rediss",))]
