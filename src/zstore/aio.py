"""Opening and creating nodes without blocking the event loop.

    array = await zstore.aio.open_array("s3://bucket/era5/t2m", mode="r")
    window = await array.read_async(np.s_[0, 100:200, 100:200])

The functions take the arguments of `zstore.open_array` and its like, give the same arrays and groups, and
raise the same errors. They run on the threads that wait for stores, 32 in the whole process. When the task is
cancelled, a call that opens a node is abandoned, and one that creates a node is finished first.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from zstore.engine.awaiting import ASYNC
from zstore.nodes import open as nodes

__all__ = ["create_array", "create_group", "open", "open_array", "open_group"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(function: Callable[P, T], *, finishes: bool = False) -> Callable[P, Coroutine[Any, Any, T]]:
    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        mode = kwargs.get("mode", args[2] if len(args) > 2 else None)
        makes = finishes or mode in ("a", "w", "w-")
        return await ASYNC.wait(partial(function, *args, **kwargs), finishes=makes)

    return call


open = _awaited(nodes.open)
open_array = _awaited(nodes.open_array)
open_group = _awaited(nodes.open_group)
create_array = _awaited(nodes.create_array, finishes=True)
create_group = _awaited(nodes.create_group, finishes=True)
