"""Jobs: work longer than a call, recorded as an intent until it ends, so that it can be resumed.

Jobs write chunks first and documents last, so that readers see no unfinished nodes. Work that changes nodes
in place (an update) can be seen unfinished; the intent (`zstore.engine.intents`) tells.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from zstore.base.waits import in_haste
from zstore.engine.documents import ancestors, check_above, node_kind, place, read_documents
from zstore.engine.intents import (
    FORMER,
    INTENT,
    JOB,
    UNKNOWN,
    Intent,
    change_intent,
    check_ended,
    describe,
    in_the_way,
    parse_intent,
    read_intent,
    take_over,
    work_of,
    writing,
)
from zstore.engine.making import clear, clear_rests
from zstore.engine.schedulers import map_threads
from zstore.errors import ChangedError, ExistsError, ExtensionError, MetadataError, StoreError
from zstore.jobs.journal import Journal
from zstore.jobs.plan import current_part, name_job, naming_full_disks
from zstore.jobs.runner import Executor, Runner, check_executor
from zstore.jobs.source import Made, Sources, is_certain
from zstore.model import v2, v3
from zstore.nodes.advice import OPTION_ADVICE, WORD_ADVICE
from zstore.storage.base import Store, join_key

# The documents that make a node of Zarr v3 or v2.
DOCUMENTS = frozenset((v3.KEY, v2.ARRAY_KEY, v2.GROUP_KEY))
# Journals lie below `JOB` by the names of jobs; so many values of one are removed by one request with the
# intent, the others before.
LAST_COUNT = 999
# The key below a job's name with the versions of the sources that it reads; so many bytes of them are in the
# record instead.
VERSIONS = "source"
VERSIONS_SIZE = 2048
PASSWORD = re.compile(r'(https?://)[^/\s"\\@]+@')
QUERY = re.compile(r'(https?://[^\s?"|\\]+\?)([^\s"|\\]+)')

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class _Asked:
    """The outermost call that requested work; within it, jobs at one path are one job.

    writers  keeps whoever writes its jobs under way until it ends
    """

    words: dict[str, Any]
    writers: ExitStack
    jobs: dict[tuple[int, str], BegunJob] = field(default_factory=dict)

    def note_end(self) -> None:
        for job in self.jobs.values():
            job.note_end()


_asked: ContextVar[_Asked | None] = ContextVar("asked", default=None)


@contextmanager
def _asked_as(words: dict[str, Any]) -> Iterator[None]:
    with ExitStack() as writers:
        asked = _Asked(words, writers)
        token = _asked.set(asked)
        try:
            try:
                yield
            finally:
                _asked.reset(token)
        except BaseException as error:
            with in_haste(error):
                asked.note_end()
            raise
        asked.note_end()


def asked_as(command: Sequence[str]) -> AbstractContextManager[None]:
    """A context in which records name this command line as the request for the work."""
    return _asked_as({"command": list(command)})


# How like a word is to one that is misspelt: "over" is no "overwrite".
ALIKE = 0.75


def _say_word(given: Iterable[str], taken: Iterable[str]) -> str:
    """The word to use in place of the first one that a call does not take; "" where none is like it."""
    known = [*taken]
    wrong = next((name for name in given if name not in known), "")
    near = [WORD_ADVICE.get(wrong), OPTION_ADVICE.get(wrong), *get_close_matches(wrong, known, 1, ALIKE)]
    return next((f"use {name}" for name in near if name in known), "")


def resumable(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with its name and arguments noted in the records of the work that it begins."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _asked.get() is not None:
            return function(*args, **kwargs)
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            said = _say_word(kwargs, signature.parameters)
            takes = f"expected {function.__name__}({', '.join(signature.parameters)})"
            raise TypeError(f"{error}; {said or takes}") from None
        check_executor(bound.get("executor"))
        # Storage options without their values: whoever may read the store can read a record.
        given = {
            name: _plain(dict.fromkeys(value, "...") if name.endswith("_options") and value else value)
            for name, value in bound.items()
        }
        goes_on = "resume" in signature.parameters
        with (
            _asked_as({"call": function.__name__, "arguments": given}),
            naming_full_disks(goes_on=goes_on),
        ):
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


class BegunJob:
    """Work under way at a path of a store, where its record stays until `end`.

    is_ready  whether there are no nodes that `clear` has to remove
    """

    is_ready = True

    def __init__(
        self,
        store: Store,
        base: str,
        name: str,
        *,
        is_resumed: bool,
        is_within: bool = False,
        writer: Any = None,
    ) -> None:
        self.store = store
        self.base = base
        self.name = name
        self.is_resumed = is_resumed
        self._is_within = is_within
        self._writer = writer
        self._sources: Sources | None = None
        self._made = set[str]()

    @property
    def _units(self) -> str:
        return join_key(self.base, JOB, self.name)

    def journal(self) -> Journal:
        """The journal of the job."""
        is_new = not (self.is_resumed or self._is_within)
        record = join_key(self.base, INTENT)
        return Journal(self.store, self._units, is_new=is_new, part=current_part(), record=record)

    def runner(self, executor: Executor | None = None, most: int | None = None) -> Runner:
        """A runner for the units of the job that are not done yet; `most` of them run at a time."""
        return Runner(executor, self.journal(), most)

    def watch(self, sources: Sources) -> None:
        """Store the versions of the sources when the job begins; compare them when it is resumed.

        Raises
            ChangedError: a source has another version.
        """
        key, part, is_noted = join_key(self._units, VERSIONS), current_part(), self._sources is sources
        self._sources = sources
        if part is not None:
            part.versions = sources.versions
        if is_noted:
            return
        known = self._begun_versions() if self.is_resumed else None
        if known is None:
            self.store.put(key, json.dumps(sources.versions).encode())
            return
        changed = next((name for name, now in sources.versions.items() if known.get(name) != now), None)
        if changed is not None:
            self._leave()
            raise ChangedError(
                "what is read was written since the job began; expected it as it was, or a job begun anew",
                path=sources.place(changed),
            )

    def _begun_versions(self) -> Mapping[str, Any] | None:
        """The versions with which the job began; none of a damaged value, None where there is no value."""
        noted = json.loads(self._held()).get(VERSIONS)
        value = None if noted is not None else self.store.get(join_key(self._units, VERSIONS))
        with suppress(ValueError):
            noted = noted if value is None else json.loads(bytes(value))
        return {} if value is not None and noted is None else noted

    def check(self) -> None:
        """Check, before documents publish stored chunks, that all of these are of one state and this job's.

        Raises
            ChangedError: a source was written meanwhile; or somebody else has ended the job, or taken the
                place over.
        """
        if self._sources is not None:
            self._sources.check_unchanged()
        self.check_held()

    def check_held(self) -> None:
        """Check that the intent at the target is still this job's.

        Raises
            ChangedError: somebody else has ended it, or taken the place over.
        """
        if not self._is_within:
            self._held()

    def _held(self) -> bytes:
        """The job's record, as it is stored.

        Raises
            ChangedError: somebody else has ended the job, or taken the place over.
        """
        return self._checked(self.store.get(join_key(self.base, INTENT)))

    def _checked(self, record: bytes | memoryview | None) -> bytes:
        own = self._own(record)
        if own is None:
            raise ChangedError(
                "somebody else has removed or replaced what was made; expected the job to be alone there",
                path=place(self.store, self.base),
            )
        return own

    def _own(self, record: bytes | memoryview | None) -> bytes | None:
        """The record if it is of this very job, or of the job that this is a part of; else None."""
        found = Intent("") if record is None else parse_intent(record)
        if record is None or not (self._is_within or found.name == self.name):
            # What is stored since the job was ended belongs to no job.
            self.store.delete_prefix(self._units)
            return None
        is_own = self._is_within or _work(found.writer) == _work(self._writer)
        return bytes(record) if is_own else None

    def _find_record(self) -> bytes | None:
        return self._own(self.store.get(join_key(self.base, INTENT)))

    def keep(self, made: Made) -> None:
        """Keep the fingerprint beside the target, if every change of target and sources shows in versions.

        A job that is a part of another keeps none.
        """
        if not self._is_within and is_certain(made.sources) and is_certain(made.target):
            made.put(self.store, self.base)

    def clear(self, act: Callable[[], object]) -> None:
        """Call `act` to remove the nodes to be replaced, and note in the record that they are gone.

        Raises
            ChangedError: somebody else has ended the job.
        """
        self.check_held()
        act()
        self._note(lambda content: {"is_ready": True})
        self.is_ready = True

    def hold(self, paths: Iterable[str]) -> None:
        """Keep makers away from new nodes at these paths below the job's group, or from that itself ("").

        Whoever makes a node lists its path, and finds the intent of the job there, at the topmost new node.

        Raises
            StoreError: somebody else makes one of them, or has just made it; the job has ended, if it is new.
            ChangedError: somebody else has ended the job.
        """
        all_new = {*paths}
        new = sorted(path for path in all_new if all_new.isdisjoint(ancestors(path)))
        try:
            if new not in ([], [""]):
                self._mark(new)
            if not self.is_resumed:
                self._check_free(new)
        except StoreError:
            if not self.is_resumed and self._find_record() is not None:
                self.end()
            raise

    def _mark(self, new: Sequence[str]) -> None:
        """Put the intents of the job at new nodes."""
        content = self._note(lambda content: {"makes": sorted({*content.get("makes", ()), *new})})
        part = _render({name: content[name] for name in ("work", "name", "asked")} | {"is_part": True})
        self._made.update(new)

        def put(path: str) -> None:
            key = join_key(path, INTENT)
            try:
                self.store.put_new(key, part)
            except ChangedError:
                if (found := self.store.get(key)) not in (None, part):
                    raise in_the_way(self.store, path, found or b"", "expected nothing there") from None

        paths = [join_key(self.base, path) for path in new]
        map_threads(put, paths, waiting_count=self.store.request_count)

    def _check_free(self, new: Sequence[str]) -> None:
        """Check that nobody made a node at these paths before the job's intents were there."""

        def check(path: str) -> None:
            # What was just seen to be empty has few names: a list is one request.
            if not DOCUMENTS.isdisjoint(self.store.list_children(path)):
                message = "somebody else has just made a node there; expected nothing"
                raise StoreError(message, path=place(self.store, path))

        paths = [join_key(self.base, path) for path in new]
        map_threads(check, paths, waiting_count=self.store.request_count)

    def _note(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Change members of the record; returns the whole record.

        Raises
            ChangedError: somebody else has ended the job.
        """

        def changed(found: bytes | memoryview | None) -> bytes:
            content: dict[str, Any] = json.loads(self._checked(found))
            return _render(content | {**change(content)})

        content: Mapping[str, Any] = json.loads(change_intent(self.store, self.base, changed))
        return content

    def _leave(self) -> None:
        """Make the next job at this path, within the same call, a separate job."""
        if (asked := _asked.get()) is not None and not self._is_within:
            asked.jobs.pop((id(self.store), self.base), None)

    def note_end(self) -> None:
        """Note in the record that this call has ended, if it leaves a job unfinished that it began.

        Of a job that it went on with, and that another call has ended meanwhile, nothing stays.
        """
        # Where that fails, the record says nothing wrong once the process has ended.
        with suppress(StoreError):
            if self.is_resumed:
                self._find_record()
            else:
                self._note(lambda content: {"writer": {**content["writer"], "has_ended": True}})

    def end(self) -> None:
        """Remove the journal and the record, or only the journal of a job that is a part of another."""
        if self._is_within:
            _release(self.store, self.base, self._made)
            self.store.delete_prefix(self._units)
            return
        self._leave()
        # Else a note of another call that goes on with the job could come after it, and stay.
        self.store.update(join_key(self.base, INTENT), self._remove)
        self.store.flush()

    def _remove(self) -> None:
        """Remove the journal with the record: in one step or request where the store can.

        A record without its journal has everything made again.
        """
        if self._find_record() is None:
            return  # whoever has taken the place over has its record and intents
        _release(self.store, self.base, self._made)
        if self.store.removes_whole:
            self.store.delete_prefix(join_key(self.base, JOB))
            return
        *journal, record = *self.store.list(self._units), join_key(self.base, INTENT)
        self.store.delete_many(journal[LAST_COUNT:])
        if not self.store.delete_many([*journal[:LAST_COUNT], record]):
            self.store.delete_prefix(self._units)
            self.store.delete(record)


def _work(writer: Any) -> Any:
    """An id for one writer's work, different from all others."""
    return writer.get("work") if isinstance(writer, Mapping) else writer


def _release(store: Store, base: str, paths: Iterable[str]) -> None:
    """Remove the intents of a job at the nodes that it was to make, unless others have taken them over."""
    keys = [join_key(base, path, INTENT) for path in paths]
    for key, data in zip(keys, store.get_many([(key, None) for key in keys]) if keys else (), strict=True):
        if data is not None and parse_intent(data).is_part:
            store.delete(key)


def forget(store: Store, base: str, work: str) -> None:
    """Remove the record of work at a path, after the work was undone.

    Raises
        StoreError: the store refused.
    """
    former = read_intent(store, base)
    if former is not None and former.work == work:
        store.delete(join_key(base, INTENT))
        store.flush()


def begin(
    store: Store,
    base: str,
    work: str,
    plan: Any,
    *,
    name: str = "",
    resume: bool = False,
    replace: bool = False,
    is_ready: bool = True,
    is_empty: bool = False,
    sources: Sources | None = None,
) -> BegunJob:
    """Record in the store that work begins, or with `resume`, resume the recorded work.

    plan      identifies the work among all of its kind, in JSON
    name      16 hexadecimal digits, the same for the same plan; "": made of the plan
    replace   replace a record that is there
    is_ready  whether there are no nodes that `BegunJob.clear` has to remove
    is_empty  whether the place was just seen to be empty, so that no record need be looked for
    sources   of the job, for `BegunJob.watch`, which then takes no request where they are few

    Raises
        ExtensionError: nobody offers work of this name.
        StoreError: other work is unfinished there, or this work, and `resume` is False; or, with `replace`,
            whoever began it is seen to be at work.
        MetadataError: `resume`, and other work is recorded there.
    """
    if work_of(work) is UNKNOWN:
        raise ExtensionError(f"no job {work!r}; expected one that a plugin offers by the hook register_jobs")
    asked = _asked.get()
    known = None if asked is None else asked.jobs.get((id(store), base))
    name = name or name_job(plan)
    if known is not None:
        return BegunJob(store, base, name, is_resumed=False, is_within=True)
    plan = _disclosed(plan, lambda query: hashlib.sha256(query.encode()).hexdigest()[:16])
    if check_begun(store, base, work):
        resume, replace = True, False
    noted: Sources | None = None
    left = None if is_empty else read_intent(store, base)
    former = None if replace else left
    if former is not None:
        if not resume:
            raise _in_the_way(store, base, former)
        _check_same(store, base, former, work, plan)
        name, is_ready, writer = former.name or name, former.is_ready, former.writer
    # Where the nodes to be replaced are not removed yet, the work begins anew.
    if former is None or not is_ready:
        if left is not None:
            check_ended(store, base, left)
        store.check_writable(join_key(base, INTENT))
        names = [] if is_empty else store.list_children(join_key(base, JOB))
        # A journal may outlive its record, where a store removes them one by one: it is of another job.
        if replace or former is not None or "record" not in names:
            for child in set(names) - {"record"}:
                store.delete_prefix(join_key(base, JOB, child))
        with ExitStack() as alone:
            writer = (alone if asked is None else asked.writers).enter_context(writing())
            content = {
                "work": work,
                "name": name,
                "plan": plan,
                "asked": None if asked is None else _disclosed(asked.words, lambda _: "..."),
                "writer": writer,
            }
            if sources is not None and len(json.dumps(sources.versions)) <= VERSIONS_SIZE:
                content[VERSIONS], noted = sources.versions, sources
        data = _render({**content, "is_ready": is_ready})
        if replace or former is not None:
            take_over(store, base, data, former)
        else:
            _put_new_record(store, base, data)
        if left is not None:
            _release(store, base, left.makes)
        if left is not None and former is None:
            store.delete(join_key(base, FORMER))
            if not _holds_node(store, base):
                clear_rests(store, base)
        store.flush()
    job = BegunJob(store, base, name, is_resumed=former is not None and is_ready, writer=writer)
    job.is_ready = is_ready
    if former is not None:
        job._made |= {*former.makes}
    job._sources = noted
    if asked is not None:
        asked.jobs[id(store), base] = job
    return job


def _put_new_record(store: Store, base: str, data: bytes) -> None:
    """Put the record of a job where none was.

    Raises
        StoreError: another call has just begun work there.
    """
    try:
        store.put_new(join_key(base, INTENT), data)
    except ChangedError as error:
        found = read_intent(store, base)
        if found is not None:
            raise _in_the_way(store, base, found) from error
        # That of a call which has come to its end.
        take_over(store, base, data)


def _in_the_way(store: Store, base: str, former: Intent) -> StoreError:
    found = describe(store, base, former)
    return StoreError(f"{found}; or expected overwrite=True", path=found.place)


def check_begun(store: Store, base: str, work: str) -> bool:
    """Whether a part is to be made of a job that another call has begun.

    Raises
        StoreError: it is, and no job is under way at the place.
    """
    part = current_part()
    if part is None or not part.is_begun:
        return False
    former = read_intent(store, base)
    if former is None or not former.is_ready:
        raise StoreError(
            f"{work_of(work).words} is not under way: it has ended, or was not begun", path=place(store, base)
        )
    return True


def _render(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()


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
    sources: Sources | None = None,
) -> BegunJob:
    """As `begin`, for work that makes a new node: a node there is an error, or removed with `overwrite`.

    may_hold_others  whether files that belong to no node may be there

    Raises
        StoreError, MetadataError: as `begin`.
        StoreError: something is there already.
        MetadataError: a node above cannot hold the new one.
    """
    check_begun(store, base, work)
    store.check_writable(join_key(base, INTENT))
    check_above(store, base, zarr_format)
    words, is_bare = work_of(work).words, next(iter(store.list(base)), None) is None
    is_empty = is_bare
    left = None if is_bare else read_intent(store, base, (INTENT, FORMER))
    if not is_bare and (left is None or not left.is_job):
        is_node = left is not None or _holds_node(store, base)
        if not is_node and not may_hold_others:
            raise StoreError(
                f"{words} cannot begin: there is something that is no array and no group; expected nothing",
                path=place(store, base),
            )
        if is_node and not overwrite:
            raise ExistsError(
                f"{words} cannot begin: an array or group is there already; "
                "pass overwrite=True to replace it",
                path=place(store, base),
            )
        is_empty = not is_node
    elif resume and not overwrite and left is not None and not left.is_ready and _holds_node(store, base):
        # Nobody can tell whether it is still the node that was to be replaced.
        raise StoreError(
            f"{words} was interrupted before it had removed the array or group there; "
            "pass overwrite=True to replace it",
            path=place(store, base),
        )
    replace = overwrite and not resume
    job = begin(
        store,
        base,
        work,
        plan,
        resume=resume,
        replace=replace and not is_bare,
        is_ready=is_empty,
        is_empty=is_bare,
        sources=sources,
    )
    if not is_empty and not job.is_resumed:
        job.clear(lambda: clear(store, base))
    elif not job._is_within:
        job.hold([""])
    return job


def _holds_node(store: Store, base: str) -> bool:
    return node_kind(read_documents(store, [base])[0]) is not None


def _check_same(store: Store, base: str, former: Intent, work: str, plan: Any) -> None:
    what = former.words()
    if former.work != work:
        raise MetadataError(
            f"{what} was interrupted here; expected {work_of(work).words}, or overwrite",
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
