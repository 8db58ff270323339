"""Counts of what this process has done, for monitoring."""

from __future__ import annotations

from dataclasses import asdict

from zstore.engine.schedulers import thread_count
from zstore.storage.cached import cache_info
from zstore.storage.remote import request_counts


def stats() -> dict[str, int]:
    """Counts of this process since it began: requests to servers, the caches in memory, and threads.

    requests, retries, failed_requests, bytes_sent, bytes_received   of obstore, aiohttp and s3fs
    decoded_size, stored_size, hit_count, miss_count, …              as of `zstore.cache_info()`
    threads                                                          for each read or write, at most

    >>> stats()["threads"] >= 1
    True
    """
    return {**asdict(request_counts()), **cache_info()._asdict(), "threads": thread_count()}
