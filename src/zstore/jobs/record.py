"""Records of unfinished work: a value at the place of the work says what it is, until it ends.

Long work writes chunks first and documents last, so that readers see no unfinished nodes. Work that changes
nodes in place (an update) can be seen unfinished; the record tells. `find_unfinished` looks for records.

A record is data from a store: it is shown, and compared with what a caller requests. It is never opened as an
address, run as code, or taken as proof that anything is done.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from zstore.base.byterange import ByteRange
from zstore.engine.documents import (
    KEYS,
    METADATA_NAMES,
    check_above,
    forget_consolidated,
    list_nodes,
    node_kind,
    parse_node,
    place,
    read_node,
)
from zstore.engine.marks import is_unfinished
from zstore.errors import ChangedError, MetadataError, StoreError
from zstore.jobs.journal import Journal
from zstore.jobs.parts import current_part
from zstore.jobs.room import naming_full_disks
from zstore.jobs.runner import Executor, Runner
from zstore.jobs.workers import check_executor
from zstore.model.array import ArrayModel
from zstore.model.group import GroupModel
from zstore.storage.base import Store, join_key

# Keys below the place of the work: the record, and journals by the names of jobs.
JOB = ".zstore-job"
RECORD = f"{JOB}/record"
RECORD_SIZE = 16 << 20
# So many values of a journal are removed by one request with the record, the others before.
LAST_COUNT = 999
# The key below a job's name with the versions of the sources that it reads.
VERSIONS = "source"
NAME = re.compile(r"[0-9a-f]{16}")
SHOWN_LENGTH = 2000
PASSWORD = re.compile(r'(https?://)[^/\s"\\@]+@')
QUERY = re.compile(r'(https?://[^\s?"|\\]+\?)([^\s"|\\]+)')
# Below places without nodes, records are looked for down to this depth, in prefixes with at most so many
# names.
OTHERS_DEPTH = 3
OTHERS_COUNT = 20

P = ParamSpec("P")
R = TypeVar("R")


class Work(NamedTuple):
    """A kind of work: its name in messages, the function that does it, and the argument that resumes it."""

    words: str
    function: str
    again: str | None = None


RASTERS = "zstore.geo.rasters"
WORKS = {
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
    "export": Work("an export of tiles", "zstore_serve.export.export", "resume"),
    "verify": Work("a verification", "zstore.verify"),
    "fix": Work("the fixing of documents", "zstore.geo.validation.fixing.fix.fix"),
}
UNKNOWN = Work("work of a kind that this zstore does not know", "what began it")


@dataclass(frozen=True)
class Record:
    """The content of a record, as far as it is valid.

    work      a name of `WORKS`; "" for any other
    plan      what is made of what, in JSON
    name      of the job, for its journal
    asked     the command or call that began the work
    is_ready  whether nodes that the work replaces have been removed
    """

    work: str
    plan: Any
    name: str
    asked: Any = None
    is_ready: bool = True


@dataclass(frozen=True)
class Unfinished:
    """Work that is under way or was interrupted.

    path   of the node in the store
    place  URL of the store and the path
    work   name in `WORKS`; "" for a kind that this version does not know
    what   the kind of work in words
    again  the command or call that resumes it
    """

    path: str
    place: str
    work: str
    what: str
    again: str

    def __str__(self) -> str:
        return f"{self.what} is unfinished; go on with: {self.again}"


@dataclass
class _Asked:
    """How work was requested, noted by the outermost call; within that, jobs at one place are one job."""

    words: dict[str, Any]
    jobs: dict[tuple[int, str], Job] = field(default_factory=dict)


_asked: ContextVar[_Asked | None] = ContextVar("asked", default=None)


@contextmanager
def _asked_as(words: dict[str, Any]) -> Iterator[None]:
    token = _asked.set(_Asked(words))
    try:
        yield
    finally:
        _asked.reset(token)


def asked_as(command: Sequence[str]) -> AbstractContextManager[None]:
    """A context in which records name this command line as what began the work."""
    return _asked_as({"command": list(command)})


def resumable(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with its name and arguments noted in the records of the work that it begins."""
    signature = inspect.signature(function)
    function = naming_full_disks(function, goes_on="resume" in signature.parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _asked.get() is not None:
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs).arguments
        check_executor(bound.get("executor"))
        # Storage options without their values: whoever may read the store can read a record.
        given = {
            name: _plain(dict.fromkeys(value, "...") if name.endswith("_options") and value else value)
            for name, value in bound.items()
        }
        with _asked_as({"call": function.__name__, "arguments": given}):
            return function(*args, **kwargs)

    return call


def _plain(value: Any) -> Any:
    """An argument in JSON; {} for objects that JSON cannot represent."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Store):
        return value.url
    if isinstance(getattr(value, "store", None), Store):
        return place(value.store, value.path)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()} or {"": None}
    return {}


class Job:
    """Work under way at a place of a store, where its record stays until `end`.

    is_ready  whether there are no nodes that `clear` has to remove
    """

    is_ready = True

    def __init__(
        self, store: Store, base: str, name: str, *, is_resumed: bool, is_within: bool = False
    ) -> None:
        self.store = store
        self.base = base
        self.name = name
        self.is_resumed = is_resumed
        self._is_within = is_within

    @property
    def _units(self) -> str:
        return join_key(self.base, JOB, self.name)

    def journal(self) -> Journal:
        """The journal of the job."""
        is_new = not (self.is_resumed or self._is_within)
        record = join_key(self.base, RECORD)
        return Journal(self.store, self._units, is_new=is_new, part=current_part(), record=record)

    def runner(self, executor: Executor | None = None, most: int | None = None) -> Runner:
        """A runner for the units of the job that are not done yet; `most` of them run at a time."""
        return Runner(executor, self.journal(), most)

    def check_versions(self, versions: Mapping[str, str], where: Callable[[str], str]) -> None:
        """Store the versions of the sources when the job begins; compare them when it is resumed.

        where  gives the place of a source for an error, from its name in `versions`

        Raises
            ChangedError: a source has another version.
        """
        key, part = join_key(self._units, VERSIONS), current_part()
        if part is not None:
            part.versions = versions
        former = self.store.get(key) if self.is_resumed else None
        if former is None:
            self.store.put(key, json.dumps(versions).encode())
            return
        known: Any = {}
        with suppress(ValueError):
            known = json.loads(bytes(former))
        changed = next((name for name in versions if known.get(name) != versions[name]), None)
        if changed is not None:
            raise ChangedError(
                "what is read was written since the job began; expected it as it was, or a job begun anew",
                path=where(changed),
            )

    def clear(self, act: Callable[[], None]) -> None:
        """Call `act` to remove the nodes to be replaced, and note in the record that they are gone."""
        act()
        key = join_key(self.base, RECORD)
        content = json.loads(bytes(self.store.get(key) or b"{}"))
        self.store.put(key, _render({**content, "is_ready": True}))
        self.is_ready = True

    def end(self) -> None:
        """Remove the journal and the record, or only the journal of a job that is a part of another."""
        if self._is_within:
            self.store.delete_prefix(self._units)
            return
        asked = _asked.get()
        if asked is not None:
            asked.jobs.pop((id(self.store), self.base), None)
        # In one step or request where the store can: a record without its journal has everything made again.
        if self.store.removes_whole:
            self.store.delete_prefix(join_key(self.base, JOB))
        else:
            *journal, record = *self.store.list(self._units), join_key(self.base, RECORD)
            self.store.delete_many(journal[LAST_COUNT:])
            if not self.store.delete_many([*journal[:LAST_COUNT], record]):
                self.store.delete_prefix(self._units)
                self.store.delete(record)
        self.store.flush()


def forget(store: Store, base: str, work: str) -> None:
    """Remove the record of such work at a place, after the work was undone.

    Raises
        StoreError: the store refused.
    """
    former = read_record(store, base)
    if former is not None and former.work == work:
        store.delete(join_key(base, RECORD))
        store.flush()


def begin(
    store: Store,
    base: str,
    work: str,
    plan: Any,
    *,
    name: str,
    resume: bool = False,
    replace: bool = False,
    is_ready: bool = True,
    is_empty: bool = False,
) -> Job:
    """Record in the store that work begins, or with `resume`, resume the work that is recorded there.

    plan      identifies the work among all of its kind, in JSON
    name      16 hexadecimal digits, the same for the same plan
    replace   replace a record that is there
    is_ready  whether there are no nodes that `Job.clear` has to remove
    is_empty  whether the place was just seen to be empty, so that no record need be looked for

    Raises
        StoreError: other work is unfinished there, or this work, and `resume` is False.
        MetadataError: `resume`, and other work is recorded there.
    """
    asked = _asked.get()
    known = None if asked is None else asked.jobs.get((id(store), base))
    if known is not None:
        return Job(store, base, name, is_resumed=False, is_within=True)
    plan = _disclosed(plan, lambda query: hashlib.sha256(query.encode()).hexdigest()[:16])
    if check_begun(store, base, work):
        resume, replace = True, False
    former = None if replace or is_empty else read_record(store, base)
    if former is not None:
        if not resume:
            raise _in_the_way(store, base, former)
        _check_same(store, base, former, work, plan)
        name = former.name or name
    else:
        store.check_writable(join_key(base, RECORD))
        names = [] if is_empty else store.list_children(join_key(base, JOB))
        # A journal may outlive its record, where a store removes them one by one: it is of another job.
        if replace or "record" not in names:
            for child in set(names) - {"record"}:
                store.delete_prefix(join_key(base, JOB, child))
        content = {
            "work": work,
            "name": name,
            "plan": plan,
            "asked": None if asked is None else _disclosed(asked.words, lambda _: "..."),
        }
        put = store.put if replace else store.put_new
        try:
            put(join_key(base, RECORD), _render({**content, "is_ready": is_ready}))
        except ChangedError as error:
            raise _in_the_way(store, base, read_record(store, base) or Record("", None, "")) from error
        store.flush()
    is_ready = is_ready if former is None else former.is_ready
    job = Job(store, base, name, is_resumed=former is not None and is_ready)
    job.is_ready = is_ready
    if asked is not None:
        asked.jobs[id(store), base] = job
    return job


def _in_the_way(store: Store, base: str, former: Record) -> StoreError:
    found = _unfinished(store, base, former)
    return StoreError(f"{found}; or expected overwrite", path=found.place)


def check_begun(store: Store, base: str, work: str) -> bool:
    """Whether a part is to be made of a job that another call has begun.

    Raises
        StoreError: it is, and no job is under way at the place.
    """
    part = current_part()
    if part is None or not part.is_begun:
        return False
    former = read_record(store, base)
    if former is None or not former.is_ready:
        raise StoreError(
            f"{WORKS[work].words} is not under way: it has ended, or was not begun", path=place(store, base)
        )
    return True


def _render(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()


def _disclosed(content: Any, replace: Callable[[str], str]) -> Any:
    """The words without passwords in web addresses, and with queries replaced, which may be signatures."""
    text = PASSWORD.sub(r"\1...@", json.dumps(content))
    return json.loads(QUERY.sub(lambda found: found[1] + replace(found[2]), text))


def begin_new(
    store: Store,
    base: str,
    zarr_format: int,
    work: str,
    plan: Any,
    *,
    overwrite: bool = False,
    resume: bool = False,
    may_hold_others: bool = False,
) -> Job:
    """As `begin`, for work that makes a new node: what is there is an error, or with `overwrite` removed.

    may_hold_others  whether files that belong to no node may be there

    Raises
        StoreError, MetadataError: as `begin`.
        StoreError: something is there already.
        MetadataError: a node above cannot hold the new one.
    """
    check_begun(store, base, work)
    store.check_writable(join_key(base, RECORD))
    check_above(store, base, zarr_format)
    words, is_bare = WORKS[work].words, next(iter(store.list(base)), None) is None
    is_empty = is_bare
    if not is_empty and read_record(store, base) is None:
        is_node = read_node(store, base) is not None or is_unfinished(store, base)
        if not is_node and not may_hold_others:
            raise StoreError(
                f"{words} cannot begin: there is something that is no array and no group; expected nothing",
                path=place(store, base),
            )
        if is_node and not overwrite:
            raise StoreError(
                f"{words} cannot begin: an array or group is there already; "
                "pass overwrite=True to replace it",
                path=place(store, base),
            )
        is_empty = not is_node
    replace = overwrite and not resume
    job = begin(
        store,
        base,
        work,
        plan,
        name=name_job(plan),
        resume=resume,
        replace=replace and not is_bare,
        is_ready=is_empty,
        is_empty=is_bare,
    )
    if not job.is_resumed and not is_empty:
        job.clear(lambda: _clear(store, base))
    return job


def _clear(store: Store, base: str) -> None:
    """Remove everything at and below a place but the job's record; documents first."""
    forget_consolidated(store, base, None)
    keys = [key for key in store.list(base) if key.rpartition("/")[2] in (*METADATA_NAMES, *KEYS[1])]
    for key in sorted(keys, key=lambda key: (key.count("/"), key)):
        store.delete(key)
    for name in store.list_children(base):
        if name != JOB:
            store.delete_prefix(join_key(base, name))
            store.delete(join_key(base, name))


def name_job(plan: Any) -> str:
    """A name for a job, which is the same for the same plan."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def _check_same(store: Store, base: str, former: Record, work: str, plan: Any) -> None:
    what = WORKS.get(former.work, UNKNOWN).words
    if former.work != work:
        raise MetadataError(
            f"{what} was interrupted here; expected {WORKS[work].words}, or overwrite",
            path=place(store, base),
        )
    if former.plan == plan:
        return
    then, now = (value if isinstance(value, dict) else {} for value in (former.plan, plan))
    differing = [name for name in {**then, **now} if then.get(name) != now.get(name)] or ["all"]
    found = ", ".join(f"{name} {_short(then.get(name))}, now {_short(now.get(name))}" for name in differing)
    raise MetadataError(
        f"{what} with other arguments was interrupted here: {found}; expected the same, or overwrite",
        path=place(store, base),
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def read_record(store: Store, base: str) -> Record | None:
    """The record at a place; None where there is none.

    Raises
        StoreError: the store failed.
    """
    data = store.get(join_key(base, RECORD), ByteRange(0, RECORD_SIZE + 1))
    if data is None:
        return None
    content: Any = None
    if len(data) <= RECORD_SIZE:
        with suppress(ValueError, RecursionError):
            content = json.loads(bytes(data))
    work = content.get("work") if isinstance(content, dict) else None
    if not isinstance(work, str) or work not in WORKS:
        return Record("", None, "")
    name = content.get("name")
    name = name if isinstance(name, str) and NAME.fullmatch(name) else ""
    return Record(work, content.get("plan"), name, content.get("asked"), content.get("is_ready") is True)


def _unfinished(store: Store, base: str, record: Record) -> Unfinished:
    work = WORKS.get(record.work, UNKNOWN)
    asked = record.asked if isinstance(record.asked, dict) else {}
    resumed = f", {work.again}=True" if work.again else ""
    again = _command(asked.get("command"), work) or _call(asked) or f"{work.function}(...{resumed})"
    return Unfinished(base, place(store, base), record.work, work.words, again)


def _command(words: Any, work: Work) -> str | None:
    """A command line for a shell that resumes the work; None where it is not zstore's, or not printable."""
    if not isinstance(words, list) or not all(isinstance(word, str) and word.isprintable() for word in words):
        return None
    is_whole = words[1:2] != ["run-units"]
    more = [f"--{work.again}"] if is_whole and work.again and f"--{work.again}" not in words else []
    text = shlex.join([*words, *more])
    return text if words[:1] == ["zstore"] and len(text) <= SHOWN_LENGTH else None


def _call(asked: Mapping[str, Any]) -> str | None:
    """A call in Python that resumes the work, with "..." for arguments that JSON could not represent."""
    work, arguments = WORKS.get(str(asked.get("call"))), asked.get("arguments")
    if work is None or not isinstance(arguments, dict) or not all(name.isidentifier() for name in arguments):
        return None
    if work.again is not None:
        arguments = {**arguments, work.again: True}
    shown = (f"{name}={'...' if value == {} else repr(value)}" for name, value in arguments.items())
    text = f"{work.function}({', '.join(shown)})"
    return text if len(text) <= SHOWN_LENGTH else None


def find_unfinished(store: Store, path: str) -> list[Unfinished]:
    """The unfinished work at or below a node, or at a place where there is no node yet.

    Raises
        StoreError: the store failed.
    """
    try:
        model = read_node(store, path)
    except Exception:
        # Other functions report what is wrong with the documents.
        model = None
    if isinstance(model, ArrayModel):
        return _read_records(store, _with_record(store, [path]))
    found, waiting = list[str](), [path]
    while waiting:
        at = waiting.pop()
        try:
            members = [(join_key(at, name), documents) for name, documents in list_nodes(store, at)]
        except StoreError:
            # Where lists are not possible, consolidated metadata names the nodes.
            below = [join_key(path, name) for name in getattr(model, "consolidated", None) or ()]
            return _read_records(store, _with_record(store, [path, *below]))
        others = [place for place, documents in members if node_kind(documents) is None]
        waiting += [place for place, documents in members if node_kind(documents) and _is_group(documents)]
        # Arrays may have a record of their own.
        arrays = [place for place, documents in members if node_kind(documents)]
        found += _with_record(store, [place for place in arrays if place not in waiting])
        if join_key(at, JOB) in others:
            # What is no node there belongs to the work.
            found.append(at)
        else:
            found += _below(store, others, OTHERS_DEPTH)
    return _read_records(store, found)


def _below(store: Store, places: Sequence[str], depth: int) -> list[str]:
    """Places with records at or below places that are no nodes, down to `depth`."""
    found = _with_record(store, places)
    for at in [at for at in places if depth and at not in found]:
        names = store.list_children(at)
        if len(names) <= OTHERS_COUNT:
            found += _below(store, [join_key(at, name) for name in names], depth - 1)
    return found


def _with_record(store: Store, places: Sequence[str]) -> list[str]:
    """Those of the places that have a record."""
    requests = [(join_key(at, RECORD), ByteRange(0, 1)) for at in places]
    return [at for at, value in zip(places, store.get_many(requests), strict=True) if value is not None]


def _is_group(documents: Any) -> bool:
    try:
        return isinstance(parse_node(documents, ""), GroupModel)
    except Exception:
        # Other functions report what is wrong with the documents.
        return False


def _read_records(store: Store, places: Sequence[str]) -> list[Unfinished]:
    records = ((at, read_record(store, at)) for at in sorted(set(places)))
    return [_unfinished(store, at, record) for at, record in records if record is not None]
