"""Intents: a value at the path of work that has begun, which names the work and keeps others out.

Makers and removers of nodes, changes of shape and jobs leave it there until they end, and ask for it before
they begin. What an interrupted one leaves is named by it (`find_unfinished`).
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import ENOTSUP
from functools import cache
from typing import Any, NamedTuple
from uuid import uuid4

from zstore.base.byterange import ByteRange
from zstore.base.system import machine_id, start_of
from zstore.base.waits import in_haste
from zstore.engine.documents import (
    ancestors,
    find_documents,
    list_nodes,
    node_kind,
    parse_node,
    place,
    read_node,
)
from zstore.errors import ChangedError, StoreError
from zstore.extensions.registry import jobs
from zstore.model.array import ArrayModel
from zstore.model.document import render_json
from zstore.model.group import GroupModel
from zstore.storage.base import SHAPE_LOCK, Store, hold_name, join_key

# The prefix of an intent and of the journals that belong to it: a directory loses them in one step.
JOB = ".zstore-job"
INTENT = f"{JOB}/record"
# Where earlier versions kept the intents of single calls, and those of changes of shape.
FORMER = ".zstore-unfinished"
FORMER_SHAPE = SHAPE_LOCK
INTENT_SIZE = 16 << 20
REPLACE = "expected nothing; pass overwrite=True to replace it"
NAME = re.compile(r"[0-9a-f]{16}")
SHOWN_LENGTH = 2000
# Below prefixes without nodes, intents are looked for down to this depth, in prefixes with at most so many
# names.
OTHERS_DEPTH = 3
OTHERS_COUNT = 20
# How long to wait for another change of an array's shape, whose writer may be dead, and the pauses between
# two looks at it (seconds).
PATIENCE = 600.0
FIRST_PAUSE = 0.02
LAST_PAUSE = 2.0


class Work(NamedTuple):
    """A kind of work: its name in messages, the function that does it, and the argument that resumes it.

    method  of the function's result, which does the work
    """

    words: str
    function: str
    again: str | None = None
    method: str = ""


RASTERS = "zstore.geo.rasters"
WORKS = {
    "create": Work("the creation of an array or group", "zstore.create_array", "overwrite"),
    "delete": Work("the deletion of a node", "zstore.create_group", "overwrite"),
    "resize": Work("the change of an array's shape", "zstore.open_array", None, ".resize(...)"),
    "build_pyramid": Work("the building of a pyramid", "zstore.build_pyramid", "resume"),
    "build_tile_pyramid": Work("the building of a tile pyramid", "zstore.build_tile_pyramid", "resume"),
    "update_pyramid": Work("the update of a pyramid", "zstore.update_pyramid", "resume"),
    "copy": Work("a copy", "zstore.copy", "resume"),
    "convert": Work("a conversion", "zstore.convert", "resume"),
    "convert_metadata": Work("a conversion of metadata", "zstore.jobs.upkeep.convert.convert_metadata"),
    "raster_to_zarr": Work("the conversion of a raster", f"{RASTERS}.raster_to_zarr", "resume"),
    "rasters_to_zarr": Work("the conversion of rasters", f"{RASTERS}.rasters_to_zarr", "resume"),
    "netcdf_to_zarr": Work("the conversion of a NetCDF or HDF5 file", f"{RASTERS}.netcdf_to_zarr", "resume"),
    "reduce": Work("a reduction", "zstore.reduce", "resume"),
    "verify": Work("a verification", "zstore.verify"),
    "virtualize": Work("the scanning of files for a manifest", "zstore_virtual.virtualize"),
    "fix": Work("the fixing of documents", "zstore.geo.validation.fixing.fix.fix"),
}
UNKNOWN = Work("work of a kind that this zstore does not know", "what began it")


def work_of(name: str) -> Work:
    """The kind of work of a name: built in, or a job that a plugin offers; `UNKNOWN` for any other."""
    work = WORKS.get(name)
    if work is None and (target := jobs.target(name)) is not None:
        work = Work(f"the job {name!r}", target.replace(":", "."), "resume")
    return work or UNKNOWN


# The kinds of work of one call, which the same call begins anew: nobody resumes it.
OF_ONE_CALL = ("create", "delete")
RESIZE = "resize"
OF_NODES = (*OF_ONE_CALL, RESIZE)


@dataclass(frozen=True)
class Intent:
    """The content of an intent, as far as it is valid.

    work      a name of `WORKS`; "" for any other
    plan      what is made of what, in JSON
    name      of the job, for its journal
    asked     the command or call that began the work
    is_ready  whether nodes that the work replaces have been removed
    made      of the creation of an array: how its chunks are named
    writer    who began it, as of `writing`
    makes     of a job in a group that is there: where it makes new nodes; each of them has an intent, too
    is_part   whether it is one of those
    """

    work: str
    plan: Any = None
    name: str = ""
    asked: Any = None
    is_ready: bool = True
    made: Any = None
    writer: Any = None
    makes: tuple[str, ...] = ()
    is_part: bool = False

    @property
    def is_job(self) -> bool:
        """Whether the work is more than one call, so that only whoever resumes or replaces it may go on."""
        return self.work not in OF_ONE_CALL

    def words(self) -> str:
        """The kind of work, for messages."""
        return work_of(self.work).words


@dataclass(frozen=True)
class Unfinished:
    """Work that is under way or was interrupted.

    path   of the node in the store
    place  URL of the store and the path
    work   name in `WORKS`; "" for a kind that this version does not know
    what   the kind of work in words
    again  the command or call that resumes it
    undo   the command that puts back what was there before; "" where there is none
    """

    path: str
    place: str
    work: str
    what: str
    again: str
    undo: str = ""

    def __str__(self) -> str:
        undone = f"; or put back what was there with: {self.undo}" if self.undo else ""
        return f"{self.what} is unfinished; go on with: {self.again}{undone}"


def parse_intent(data: bytes | memoryview) -> Intent:
    """The intent in a value; of unknown kind if the value cannot be read."""
    content: Any = None
    if len(data) <= INTENT_SIZE:
        with suppress(ValueError, RecursionError):
            content = json.loads(bytes(data))
    if not isinstance(content, dict):
        return Intent("")
    work, made, writer = content.get("work"), content.get("made"), content.get("writer")
    if work is None and ("made" in content or "writer" in content):
        # Earlier versions did not tell deletions from creations of groups.
        work = "delete" if made is None else "create"
    if not isinstance(work, str) or work_of(work) is UNKNOWN:
        return Intent("")
    name = content.get("name")
    name = name if isinstance(name, str) and NAME.fullmatch(name) else ""
    is_ready, is_part = content.get("is_ready") is True, content.get("is_part") is True
    names = content.get("makes")
    makes = tuple(made for made in names if made and isinstance(made, str)) if isinstance(names, list) else ()
    return Intent(
        work, content.get("plan"), name, content.get("asked"), is_ready, made, writer, makes, is_part
    )


def read_intent(store: Store, path: str, keys: Sequence[str] = (INTENT,)) -> Intent | None:
    """The intent at `path`; None without one, or if its creation has finished making the node.

    keys  where it may be: those of earlier versions are asked for where a list shows something

    Raises
        StoreError: the store failed.
    """
    size = ByteRange(0, INTENT_SIZE + 1)
    for data in store.get_many([(join_key(path, key), size) for key in keys]):
        if data is not None:
            intent = parse_intent(data)
            return None if _is_over(store, path, intent) else intent
    return None


def _is_over(store: Store, path: str, intent: Intent) -> bool:
    """Whether an intent to create outlives its end: the documents come last, so that the node is whole."""
    return intent.work == "create" and node_kind(find_documents(store, [path])[0]) is not None


# The writer: a machine, a process and an id of the work.

_under_way: set[str] = set()


@contextmanager
def writing() -> Iterator[dict[str, Any]]:
    """A context that yields a JSON description of its writer: machine, process and an id of the work."""
    work = uuid4().hex
    _under_way.add(work)
    try:
        process = os.getpid()
        machine, begun = _own(process)
        yield {"machine": machine, "process": process, "begun": begun, "work": work}
    finally:
        _under_way.discard(work)


def has_ended(writer: Any) -> bool:
    """Whether the work that a description of `writing` identifies has certainly ended, finished or not.

    False for other machines and containers, of which nothing is known, and for malformed descriptions.
    """
    return _is_alive(writer) is False


def is_under_way(writer: Any) -> bool:
    """Whether a process of this machine is, as far as can be seen, still doing that work."""
    return _is_alive(writer) is True


def _is_alive(writer: Any) -> bool | None:
    """Whether the work goes on; None if unknown."""
    if not isinstance(writer, Mapping) or type(writer.get("process")) is not int:
        return None
    if writer.get("has_ended") is True:
        return False
    if not writer.get("machine") or writer["machine"] != _own(os.getpid())[0]:
        return None
    begun = start_of(writer["process"])
    if begun is None and _is_hidden(writer["process"]):
        return None
    if begun is None or begun != writer.get("begun"):
        return False
    return writer["process"] != os.getpid() or str(writer.get("work")) in _under_way


@cache
def _own(process: int) -> tuple[str | None, str | None]:
    """The machine of this process, and when it began: what stays the same until it forks."""
    return machine_id(), start_of(process)


os.register_at_fork(after_in_child=_own.cache_clear)


def _is_hidden(process: int) -> bool:
    """Whether a process exists but belongs to another user, whose processes the system hides (`hidepid`)."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


# The intents of one call, which keep others out.


class Mark:
    """An intent of one call that this process has put."""

    def __init__(self, store: Store, path: str, data: bytes) -> None:
        self.key = join_key(path, INTENT)
        self.data = data
        self._store = store

    def is_held(self) -> bool:
        """Whether the intent is still there: nobody has removed it, or put another one in its place."""
        found = self._store.get(self.key)
        return found is not None and bytes(found) == self.data

    def remove(self, *, waits: bool = True) -> None:
        """Remove the intent, and so leave its path to everybody; if it may take its time, soon."""
        (self._store.delete if waits else self._store.delete_soon)(self.key)


def in_the_way(
    store: Store, path: str, data: bytes | memoryview, expected: str, act: str = "create"
) -> StoreError:
    """The error for whoever meets the intent of another writer, at his path or above it."""
    intent = parse_intent(data)
    words = "a node is being made or removed, or that was interrupted; "
    if intent.is_job:
        words = f"{describe(store, path, intent)}; or "
    return StoreError(f"cannot {act}: {words}{expected}", path=place(store, path), key=INTENT)


def is_claimed(data: bytes | memoryview) -> bool:
    """Whether an intent keeps out makers that do not replace: the rest of a call that has ended does not."""
    intent = parse_intent(data)
    return intent.is_job or not has_ended(intent.writer)


def is_same_work(first: bytes | memoryview, second: bytes | memoryview | None) -> bool:
    """Whether an intent that was seen is still there, though its writer may have noted something in it."""
    writers = [parse_intent(data).writer for data in (first, second or b"")]
    work, other = (writer.get("work") if isinstance(writer, Mapping) else writer for writer in writers)
    return first == second or (work is not None and work == other)


@contextmanager
def marked(
    store: Store,
    path: str,
    work: str,
    made: Mapping[str, Any] | None = None,
    *,
    is_new: bool = False,
    seen: bytes | memoryview | None = None,
) -> Iterator[Mark]:
    """Put the intent to create or delete the node at `path`; whoever leaves the block removes it.

    An intent that is there is an error where the node `is_new`; else it is replaced, unless its writer is
    known to be at work. Of `seen`, the intent as it was read, no other one is replaced.

    Raises
        StoreError: somebody else holds the place, as far as the store can tell.
    """
    with writing() as writer:
        mark = Mark(store, path, render_json({"work": work, "writer": writer, "made": made}))
        try:
            if seen is not None:
                take_over(store, path, mark.data, parse_intent(seen))
            else:
                store.put_new(mark.key, mark.data)
        except ChangedError as error:
            if is_new or seen is not None:
                found = store.get(mark.key)
                if found is None:
                    message = "cannot create: somebody else has just made or removed a node there"
                    raise StoreError(f"{message}; {REPLACE}", path=place(store, path)) from error
                raise in_the_way(store, path, found, REPLACE) from error
            take_over(store, path, mark.data)
        yield mark


def check_ended(store: Store, path: str, intent: Intent) -> None:
    """Refuse to replace an intent whose writer is seen to be at work.

    Raises
        StoreError: it is.
    """
    if is_under_way(intent.writer):
        words = "somebody else is just making or removing a node there"
        if intent.is_job:
            words = f"somebody else is at work there, in process {intent.writer['process']}: {intent.words()}"
        raise StoreError(f"{words}; expected that to end first", path=place(store, path), key=INTENT)


def take_over(store: Store, path: str, data: bytes, seen: Intent | None = None) -> None:
    """Put an intent in the place of another one, unless that is not the one `seen`, or its writer is at work.

    Raises
        StoreError: its writer is at work.
        ChangedError: it is another one.
    """

    def check(found: bytes | memoryview | None) -> bytes:
        if found is not None:
            check_ended(store, path, parse_intent(found))
            if store.get(join_key(path, INTENT)) != found:
                # Who removes an intent at the end of work asks for no lock: it ended between the two looks.
                message = "somebody else has just ended the work there"
                raise ChangedError(message, path=place(store, path), key=INTENT)
        if seen is not None and (found is None or parse_intent(found) != seen):
            message = "somebody else has just replaced the mark"
            raise ChangedError(message, path=place(store, path), key=INTENT)
        return data

    change_intent(store, path, check)


def change_intent(store: Store, path: str, change: Callable[[bytes | memoryview | None], bytes]) -> bytes:
    """Put what `change` makes of the intent at `path`, while nobody else changes it; returns that.

    Raises
        ChangedError: somebody else has changed it meanwhile.
        What `change` raises.
    """
    key = join_key(path, INTENT)
    try:
        with store.lock(key):
            found = store.get(key)
            data = change(found)
            if found is not None:
                store.put(key, data)
        if found is None:
            # Makers ask for no lock to put the first one.
            store.put_new(key, data)
    except ChangedError as error:
        message = "somebody else has just put or changed the mark"
        raise ChangedError(message, path=place(store, path), key=INTENT) from error
    except StoreError as error:
        # A server that keeps no conditions lets the later one win.
        if error.errno != ENOTSUP:
            raise
        data = change(store.get(key))
        store.put(key, data)
    return data


@contextmanager
def shape_held(store: Store, path: str) -> Iterator[None]:
    """Exclude all others who change the shape of the array at `path`, as far as the store can.

    Locks end with their process. Where a store has none, an intent keeps others out; they wait for it, and
    replace it when its writer is known to have ended.

    Raises
        StoreError: other work is unfinished there; or another change of the shape stays, and it is not known
            whether its writer is alive.
    """
    key = join_key(path, INTENT)
    if not store.notices_changes:
        with store.lock(join_key(path, SHAPE_LOCK)):
            data = store.get(key)
            if data is not None:
                _may_replace(store, path, data)
            yield
            if data is not None:
                # Of whoever has replaced it meanwhile, nothing is removed.
                with store.lock(key):
                    if store.get(key) == data:
                        store.delete(key)
        return
    with hold_name((store.url, path, SHAPE_LOCK)), writing() as writer:
        mark = Mark(store, path, render_json({"work": RESIZE, "writer": writer}))
        _wait_for_shape(store, path, mark)
        try:
            yield
        except BaseException as error:
            with in_haste(error):
                _leave_shape(mark)
            raise
        _leave_shape(mark)


def _leave_shape(mark: Mark) -> None:
    # The shape is what it is: where this fails, the intent is one whose writer has ended.
    with suppress(StoreError):
        if mark.is_held():
            mark.remove()


def _wait_for_shape(store: Store, path: str, mark: Mark) -> None:
    """Put the intent of a change of shape as soon as no other one is there."""
    pause, seen, since = FIRST_PAUSE, b"", time.monotonic()
    with suppress(ChangedError):
        store.put_over(mark.key, mark.data, None)
        return
    while True:
        found: bytes | memoryview | None = None
        with suppress(ChangedError), store.lock(mark.key):
            found = store.get(mark.key)
            if found == mark.data:
                return
            if found is None or _may_replace(store, path, found):
                store.put(mark.key, mark.data)
                return
        now, data = time.monotonic(), bytes(found or b"")
        if data != seen:
            seen, since = data, now
        elif now - since > PATIENCE:
            raise StoreError(
                f"somebody else's change of the shape has been under way for {PATIENCE:.0f} s; expected it "
                "to end, or this key to be deleted if its writer is dead",
                path=place(store, path),
                key=INTENT,
            )
        time.sleep(random.uniform(0, pause))
        pause = min(2 * pause, LAST_PAUSE)


def _may_replace(store: Store, path: str, data: bytes | memoryview) -> bool:
    """Whether the intent at an array whose shape is to change was left behind; False for one to wait for.

    Raises
        StoreError: it is of work that others may go on with.
    """
    intent = parse_intent(data)
    if intent.work == RESIZE:
        return has_ended(intent.writer)
    if is_claimed(data) and not _is_over(store, path, intent):
        raise in_the_way(store, path, data, "expected it to end", "change the shape")
    return True


# What was interrupted, and how to go on.


def describe(store: Store, path: str, intent: Intent) -> Unfinished:
    """The work that an intent stands for, and how to go on with it."""
    work = work_of(intent.work)
    asked = intent.asked if isinstance(intent.asked, dict) else {}
    words = [f"{work.again}=True"] if work.again else []
    where = ["..."]
    if intent.work in OF_NODES:
        where = [*map(repr, filter(None, (store.url, path)))]
        words += ["mode='r+'"] if work.method else []
        if intent.work == "create" and intent.made is None:
            work = work._replace(function="zstore.create_group")
    call = f"{work.function}({', '.join([*where, *words])}){work.method}"
    again = _command(asked.get("command"), work) or _call(asked) or call
    return Unfinished(path, place(store, path), intent.work, work.words, again, _undo(store, intent))


def _undo(store: Store, intent: Intent) -> str:
    """The command line that puts back the documents which a fix has replaced; "" for other work."""
    backup = intent.plan.get("backup") if intent.work == "fix" and isinstance(intent.plan, dict) else None
    if not isinstance(backup, str) or not backup.isprintable():
        return ""
    return shlex.join(["zstore", "fix", store.url, "--restore", backup])


def _command(words: Any, work: Work) -> str | None:
    """A shell's command line that resumes the work; None for commands of others, or unprintable ones."""
    if not isinstance(words, list) or not all(isinstance(word, str) and word.isprintable() for word in words):
        return None
    is_whole = words[1:2] != ["run-units"]
    more = [f"--{work.again}"] if is_whole and work.again and f"--{work.again}" not in words else []
    text = shlex.join([*words, *more])
    return text if words[:1] == ["zstore"] and len(text) <= SHOWN_LENGTH else None


def _call(asked: Mapping[str, Any]) -> str | None:
    """A call in Python that resumes the work, with "..." for arguments that JSON could not represent."""
    work, arguments = work_of(str(asked.get("call"))), asked.get("arguments")
    if (
        work is UNKNOWN
        or not isinstance(arguments, dict)
        or not all(name.isidentifier() for name in arguments)
    ):
        return None
    if work.again is not None:
        arguments = {**arguments, work.again: True}
    shown = (f"{name}={'...' if value == {} else repr(value)}" for name, value in arguments.items())
    text = f"{work.function}({', '.join(shown)})"
    return text if len(text) <= SHOWN_LENGTH else None


def find_unfinished(store: Store, path: str) -> list[Unfinished]:
    """The unfinished work at or below a node, or at a path where there is no node yet.

    Raises
        StoreError: the store failed.
    """
    try:
        model = read_node(store, path)
    except Exception:
        # Other functions report what is wrong with the documents.
        model = None
    if isinstance(model, ArrayModel):
        return _describe_all(store, _with_intent(store, [path]))
    found, waiting = list[str](), [path]
    while waiting:
        at = waiting.pop()
        try:
            members = [(join_key(at, name), documents) for name, documents in list_nodes(store, at)]
        except StoreError:
            # Where lists are not possible, consolidated metadata names the nodes.
            below = [join_key(path, name) for name in getattr(model, "consolidated", None) or ()]
            return _describe_all(store, _with_intent(store, [path, *below]))
        others = [member for member, documents in members if node_kind(documents) is None]
        waiting += [member for member, documents in members if node_kind(documents) and _is_group(documents)]
        # Arrays may have an intent of their own.
        arrays = [member for member, documents in members if node_kind(documents)]
        found += _with_intent(store, [member for member in arrays if member not in waiting])
        if {join_key(at, FORMER), join_key(at, JOB)} & {*others}:
            # What is no node there belongs to the work.
            found.append(at)
        else:
            found += _below(store, others, OTHERS_DEPTH)
    return _describe_all(store, found)


def _below(store: Store, paths: Sequence[str], depth: int) -> list[str]:
    """Paths with intents at or below paths that are no nodes, down to `depth`."""
    found = _with_intent(store, paths, (INTENT, FORMER))
    for at in [at for at in paths if depth and at not in found]:
        names = store.list_children(at)
        if len(names) <= OTHERS_COUNT:
            found += _below(store, [join_key(at, name) for name in names], depth - 1)
    return found


def _with_intent(store: Store, paths: Sequence[str], keys: Sequence[str] = (INTENT,)) -> list[str]:
    """Those of the paths that have an intent."""
    values = store.get_many([(join_key(at, key), ByteRange(0, 1)) for at in paths for key in keys])
    found = zip([at for at in paths for _ in keys], values, strict=True)
    return [*dict.fromkeys(at for at, value in found if value is not None)]


def _is_group(documents: Any) -> bool:
    try:
        return isinstance(parse_node(documents, ""), GroupModel)
    except Exception:
        # Other functions report what is wrong with the documents.
        return False


def _describe_all(store: Store, paths: Sequence[str]) -> list[Unfinished]:
    """The unfinished work at these paths; work that a job does below its own path is a part of it."""
    read = {at: read_intent(store, at, (INTENT, FORMER)) for at in sorted(set(paths))}
    intents = {at: intent for at, intent in read.items() if intent is not None}
    jobs = {at for at, intent in intents.items() if intent.is_job and not intent.is_part}
    return [
        describe(store, at, intent)
        for at, intent in intents.items()
        if at in jobs or jobs.isdisjoint(ancestors(at))
    ]
