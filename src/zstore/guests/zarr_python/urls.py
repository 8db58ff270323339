"""URLs of zarr-python that name any store of zstore's: `zarr.open("zstore:sqlite:///a.db")`.

Released versions of zarr-python have no such URLs; its pull request 4192 has, and finds the adapter by the
entry point `zarr.url_adapters`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from zstore.guests.zarr_python.stores import ZstoreStore
from zstore.storage.url import open_store

__all__ = ["ZstoreURLAdapter"]


class ZstoreURLAdapter:
    """The store at what stands behind "zstore:", which `zstore.open` would take too."""

    @classmethod
    async def open_pipeline_segment(cls, segment: Any, context: Any) -> Any:
        """The opened store, at its root.

        Raises
            URLPipelineError: something stands before "zstore:".
            StoreError: the store cannot be opened.
        """
        from zarr.abc import url_pipeline  # type: ignore[attr-defined,unused-ignore]

        if context.preceding:
            raise url_pipeline.URLPipelineError(
                f"{segment.raw!r} stands behind {context.preceding_url!r}; expected it at the beginning, "
                "as in 'zstore:sqlite:///a.db'"
            )
        opened = await asyncio.to_thread(
            partial(
                open_store,
                segment.raw.partition(":")[2],
                read_only=context.read_only,
                storage_options=context.storage_options,
            )
        )
        return url_pipeline.AdapterResolution(await ZstoreStore.open(opened, read_only=context.read_only))
