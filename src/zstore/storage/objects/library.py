"""obstore in this process, also after a fork, and the event loop for blocking calls.

obstore starts its threads once, and threads do not survive a fork: any request in the child would wait for
ever. So a child loads the compiled module again, from a copy, as the loader does not load one file twice, and
starts an event loop of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import Context
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary, WeakSet

from zstore.base.locks import Lock
from zstore.base.system import copy_to_load
from zstore.base.waits import HasteError, check_waiting, current_waits, wait_for_result
from zstore.errors import StoreError
from zstore.storage.base import drive

COMPILED = "obstore._obstore"

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Seconds between looks at the changes of an interrupted call.
LOOK_TIME = 0.01
# Seconds in which the event loop hears of a cancellation, on a machine that has much other work, too.
HEARING_TIME = 10.0
# Seconds that the end of the process waits for obstore's threads, at most and at least.
LAST_TIME = 1.0
LEAST_TIME = 0.01

_lock = Lock()
_current: ModuleType | None = None
_loaded_at = 0
_forks = 0
_loop: _Loop | None = None
# Loops of the process that this one was forked from. Closing one would take its descriptors out of the epoll
# descriptor that both processes share.
_parents: list[object] = []
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] = WeakKeyDictionary()
_direct = threading.local()
# What is awaited of obstore, until one of its threads has the answer; and what nobody awaits any more.
_awaited: set[Any] = set()
_left: WeakSet[Any] = WeakSet()
# Changes that a thread of their own brings to their end.
_alone: set[object] = set()
# Changes that are under way though nobody waits for them, and where: the bucket, or the key in it.
_changing: dict[object, object] = {}


def _note_fork() -> None:
    global _forks, _loop, _turns, _awaited, _left, _alone, _changing
    _forks += 1
    _parents.append((_loop, _turns))
    _loop, _turns, _awaited, _left = None, WeakKeyDictionary(), set(), WeakSet()
    _alone, _changing = set(), {}


os.register_at_fork(after_in_child=_note_fork)


async def awaited(answer: Awaitable[T]) -> T:
    """The result of an awaitable of obstore; keeps the process from ending before it has arrived."""
    asked = _awaited
    asked.add(answer)
    try:
        return await answer
    except BaseException:
        _left.add(answer)
        raise
    finally:
        asked.discard(answer)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that knows which threads are scheduling callbacks on it."""

    def __init__(self) -> None:
        super().__init__()
        self.telling: set[int] = set()

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        thread = threading.get_ident()
        self.telling.add(thread)
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        finally:
            self.telling.discard(thread)


def _let_threads_end() -> None:
    """Wait until obstore's threads have delivered results: one that calls Python later aborts the process.

    So changes that are under way come to their end, if that does not take long, by libcurl as well.
    Of loops other than the process's own it is not known when a thread is done with them.
    """
    if _current is None:
        return
    last = time.monotonic() + LAST_TIME
    while time.monotonic() < last and (
        _awaited or len(_left) or _alone or (_loop is not None and _loop.telling)
    ):
        time.sleep(0.001)
    time.sleep(LEAST_TIME)


atexit.register(_let_threads_end)


def forks() -> int:
    """The number of forks between the process that imported this module and the calling one."""
    return _forks


def is_installed() -> bool:
    """Whether the package obstore is installed."""
    return _current is not None or importlib.util.find_spec("obstore") is not None


def library() -> ModuleType:
    """The package `obstore`, whose threads run in this process.

    Raises
        StoreError: it is not installed.
    """
    global _current, _loaded_at
    with _lock:
        if _current is None:
            try:
                _current = importlib.import_module("obstore")
            except ModuleNotFoundError as error:
                raise StoreError(
                    "obstore is not installed; expected the extra 'cloud': pip install 'zstore[cloud]'"
                ) from error
            _loaded_at = _forks
        if _loaded_at != _forks:
            _current = _load_again()
            _loaded_at = _forks
        return _current


def _load_again() -> ModuleType:
    source = sys.modules[COMPILED].__spec__
    assert source is not None
    assert source.origin is not None
    path = copy_to_load(source.origin)
    spec = importlib.util.spec_from_file_location(COMPILED, path, loader=ExtensionFileLoader(COMPILED, path))
    assert spec is not None
    assert spec.loader is not None
    for name in [name for name in sys.modules if name == "obstore" or name.startswith("obstore.")]:
        del sys.modules[name]
    compiled = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiled)
    sys.modules[COMPILED] = compiled
    return importlib.import_module("obstore")


def wait_for(coroutine: Coroutine[Any, Any, T], *, is_single: bool = False) -> T:
    """The result of a coroutine, run on the process's own event loop while the calling thread waits.

    A single request of a thread that hears no Ctrl-C is made by that thread, without any loop: then all
    that the coroutine awaits asks obstore directly (`is_direct`), so that nobody is woken in between. The
    main thread hears it, and so do threads whose answers an interrupted caller cancels.
    """
    waits = current_waits()
    may_block = (
        threading.current_thread() is not threading.main_thread() if waits is None else waits.may_block
    )
    if is_single and may_block:
        return _run_directly(coroutine)
    loop = _own_loop()
    with late():
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return wait_for_result(future)
        except BaseException:
            if future.cancelled():
                _let_it_hear(loop)
            raise


def _let_it_hear(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the cancelled coroutine has heard of it, and has noted the changes that it leaves behind."""
    has_heard = threading.Event()
    loop.call_soon_threadsafe(loop.call_soon, has_heard.set)
    has_heard.wait(HEARING_TIME)


@contextmanager
def late() -> Iterator[None]:
    """A context in which an interrupted call that has no time left for an answer gets StoreError."""
    try:
        yield
    except HasteError:
        raise StoreError("no answer came in the time that an interrupted call has to clean up") from None


def _run_directly(coroutine: Coroutine[Any, Any, T]) -> T:
    _direct.count = getattr(_direct, "count", 0) + 1
    try:
        return drive(coroutine)
    finally:
        _direct.count -= 1


def is_direct() -> bool:
    """Whether this thread runs a coroutine without a loop."""
    return getattr(_direct, "count", 0) > 0


async def changed_in_turn(
    change: Callable[[], Coroutine[Any, Any, T]], bucket: object, keys: Iterable[object] = ()
) -> T:
    """The result of a change in a bucket, made after those have come to their end that nobody waits for.

    keys  that are changed: what is under way there, too, comes before

    If nobody awaits it any more it goes on: what has been sent may be kept, and must not come after what is
    written next.
    """
    places = {bucket, *keys}
    while not places.isdisjoint(_changing.values()):
        await pause(LOOK_TIME)
    if is_direct():
        return await change()
    task = asyncio.ensure_future(change())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            _changing[task] = bucket
            task.add_done_callback(_note_change)
        raise


def take_turn(bucket: object, keys: Iterable[object] = ()) -> None:
    """Wait, on the calling thread, as `changed_in_turn` does before a change."""
    places = {bucket, *keys}
    with late():
        while not places.isdisjoint(_changing.values()):
            check_waiting()
            time.sleep(LOOK_TIME)


def end_alone(end: Callable[[], None], bucket: object) -> None:
    """Bring a change in a bucket to its end that nobody waits for any more, before others are made there."""
    token = object()
    _changing[token] = bucket
    _alone.add(token)

    def forget() -> None:
        _changing.pop(token, None)
        _alone.discard(token)

    def run() -> None:
        try:
            end()
        finally:
            forget()

    try:
        threading.Thread(target=run, name="zstore-objects", daemon=True).start()
    except RuntimeError:  # the process ends: what has not been sent yet is not
        forget()


def change_soon(change: Callable[[], Coroutine[Any, Any, object]], key: object) -> None:
    """Begin a change that nobody waits for, but those who change the same key."""
    token = object()
    _changing[token] = key

    async def changed() -> None:
        try:
            await change()
        except StoreError:
            pass  # there is nobody to tell
        finally:
            _changing.pop(token, None)

    asyncio.run_coroutine_threadsafe(changed(), _own_loop())


def _note_change(task: asyncio.Task[Any]) -> None:
    _changing.pop(task, None)
    if not task.cancelled():
        task.exception()  # there is nobody to tell


async def pause(seconds: float) -> None:
    """Wait for some seconds, with or without an event loop."""
    if is_direct():
        time.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


def _own_loop() -> asyncio.AbstractEventLoop:
    global _loop
    if _loop is None:
        with _lock:
            if _loop is None:
                loop = _Loop()
                threading.Thread(target=loop.run_forever, name="zstore-objects", daemon=True).start()
                _loop = loop
    return _loop


def turn(most: int) -> AbstractAsyncContextManager[None]:
    """A context for one request: on each event loop, at most `most` requests run at once."""
    if is_direct():
        return nullcontext()
    turns = _turns.setdefault(asyncio.get_running_loop(), {})
    found = turns.get(most)
    if found is None:
        found = turns[most] = asyncio.Semaphore(most)
    return found


async def ask_all(ask: Callable[[Any], Coroutine[Any, Any, T]], items: Sequence[Any]) -> list[T]:
    """The results of `ask` for all items, run concurrently; if one fails, the others are cancelled.

    Where there is no loop, they are asked one after the other.
    """
    if len(items) == 1 or is_direct():
        return [await ask(item) for item in items]
    tasks = [asyncio.ensure_future(ask(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
