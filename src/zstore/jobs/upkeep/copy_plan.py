"""The plan of a copy: what is done with each key of the source and of the target."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from zstore.base.once import once
from zstore.engine.documents import METADATA_NAMES, ancestors, place
from zstore.engine.marks import UNFINISHED
from zstore.errors import NotFoundError, StoreError
from zstore.jobs.record import JOB
from zstore.jobs.upkeep.manifest import Manifest, list_keys, parse_entry, parse_name, render_name
from zstore.jobs.upkeep.spool import Spool, align, name_of
from zstore.model import v1, v2, v3
from zstore.storage.base import Entry, Store, join_key
from zstore.storage.locking import SHAPE_LOCK

# A key named like a document of v1 may be something else; to copy it last does no harm.
DOCUMENTS = METADATA_NAMES | {v1.ARRAY_KEY, v1.ATTRIBUTES_KEY}
# The documents that make a node, which come last among those of one path.
MAKING = (v2.ARRAY_KEY, v2.GROUP_KEY, v3.KEY, v1.ARRAY_KEY)

COPY, COMPARE, KEEP = b"copy", b"compare", b"keep"


@dataclass
class Copied:
    """What `copy` did, or with `dry_run` would do.

    key_count       how many keys were copied
    size            the bytes of their values
    kept_count      how many keys of the target were kept as they were
    compared_count  with `dry_run`: how many keys have the same size, and are copied if they differ
    deleted_count   how many keys were removed from the target
    root            the root hash of the manifest, where one was made
    """

    key_count: int = 0
    size: int = 0
    kept_count: int = 0
    compared_count: int = 0
    deleted_count: int = 0
    root: str | None = None


class Place(NamedTuple):
    store: Store
    base: str

    def key(self, below: str) -> str:
        return join_key(self.base, below)

    def get(self, below: str) -> bytes | None:
        value = self.store.get(self.key(below))
        return None if value is None else bytes(value)


class Step(NamedTuple):
    """What is done with one key; a line of a spool has these fields, divided by NUL.

    A line of `list_keys` is a step, too: the key is copied, and the target does not have it.
    """

    name: bytes
    size: bytes
    version: bytes
    action: bytes = COPY
    there: bytes = b""
    digest: bytes = b""

    @property
    def entry(self) -> Entry:
        """The entry of the source, as it was listed."""
        return Entry(parse_name(self.name), int(self.size), parse_name(self.version) or None)

    @property
    def source(self) -> bytes:
        """The name, size and version of the key in the source."""
        return b"\0".join(self[:3])


@dataclass
class CopyPlan:
    """All steps of a copy, and what they come to.

    needed_size  bytes by which the target grows: deletions come first
    """

    steps: Spool = field(default_factory=Spool)
    documents: list[Step] = field(default_factory=list)
    deletions: Spool = field(default_factory=Spool)
    total_size: int = 0
    needed_size: int = 0
    counts: Copied = field(default_factory=Copied)


class Planner:
    """Lists source and target, and plans what is done with each key.

    listed             the keys of the source, as they were
    doubtful           texts of keys that `list_keys` has to ask about; None: it asks about all keys
    leaves_documents   whether the patterns leave out a document
    """

    def __init__(
        self,
        here: Place,
        there: Place,
        accept: Callable[[str], bool],
        doubtful: Sequence[str] | None,
        if_exists: str,
        *,
        delete: bool,
        is_resumed: bool,
    ) -> None:
        self.here = here
        self.there = there
        self.accept = accept
        self.doubtful = None if doubtful is None else [UNFINISHED, SHAPE_LOCK, JOB, *DOCUMENTS, *doubtful]
        self.if_exists = if_exists
        self.delete = delete
        self.is_resumed = is_resumed
        self.listed = Spool()
        self.leaves_documents = False
        self._documents = set[str]()

    def plan(self, known: Manifest | None) -> CopyPlan:
        """The plan for all keys of the source and of the target; `known` is the manifest of the last copy.

        Raises
            NotFoundError, StoreError: what `copy` raises before it begins.
        """
        self.listed, size = list_keys(*self.here, self.is_copied, self.doubtful)
        if not len(self.listed):
            raise NotFoundError("there is nothing to copy", path=place(*self.here))
        # Counts as if all keys were copied; each key that is not is subtracted when it is found.
        plan = CopyPlan(total_size=size, needed_size=size, counts=Copied(len(self.listed), size))
        there, _ = list_keys(*self.there, self._is_in_the_way, self.doubtful)
        if len(there):
            blocks = self.listed.blocks() if known is None else _stamped(self.listed, known)
            for mine, others in align(blocks, there.blocks()):
                self._plan_block(plan, mine, others, is_stamped=known is not None)
        else:
            for text in self.listed.texts():
                self._plan_new(plan, text)
        plan.documents.sort(key=lambda step: rank(step.entry.key))
        return plan

    def is_copied(self, key: str) -> bool:
        name = key.rpartition("/")[2]
        if not self.accept(key):
            self.leaves_documents |= name in METADATA_NAMES
            return False
        if name in (UNFINISHED, SHAPE_LOCK) or _is_job(key):
            raise StoreError(
                "there is unfinished work in what is to be copied; expected it to be ended, or left out by "
                f"exclude='*{JOB}/*' where the rest does not depend on it",
                path=self.here.store.url,
                key=self.here.key(key),
            )
        if name in DOCUMENTS:
            self._documents.add(key)
        return True

    def _is_in_the_way(self, key: str) -> bool:
        if _is_job(key) and not key.startswith(f"{JOB}/"):
            raise StoreError(
                "there is unfinished work in the target; expected it to be ended",
                path=self.there.store.url,
                key=self.there.key(key),
            )
        return not _is_job(key) and self.accept(key)

    @once
    def _document_names(self) -> Sequence[bytes]:
        """The documents that are copied, in order."""
        return sorted(map(render_name, self._documents))

    @once
    def _arrays(self) -> set[str]:
        """The paths of the arrays that are copied."""
        made = (key for key in self._documents if key.rpartition("/")[2] in MAKING)
        return {key.rpartition("/")[0] for key in made if is_array(key, partial(self.here.get, key))}

    def _plan_other(self, plan: CopyPlan, entry: Entry) -> None:
        """Plan what is done with a key that only the target has."""
        is_ours = self.is_resumed and self.if_exists == "error"
        above = next((path for path in ancestors(entry.key) if path in self._arrays), None)
        if self.delete or (is_ours and above is not None):
            plan.deletions.add(render_name(entry.key))
            plan.needed_size -= entry.size
            plan.counts.deleted_count += 1
        elif above is not None:
            raise StoreError(
                f"the target has a key that the array {self.here.key(above)!r} has not, and that could show"
                " as data of the copy; expected an empty place, or delete=True",
                path=self.there.store.url,
                key=self.there.key(entry.key),
            )

    def _plan_new(self, plan: CopyPlan, text: bytes) -> None:
        """What becomes of keys that only the source has, by their lines, each with its end."""
        at = 0
        for name in self._documents_between(name_of(text), text[text.rfind(b"\n", 0, -1) + 1 :]):
            begin = 0 if text.startswith(name + b"\0") else text.index(b"\n%s\0" % name) + 1
            end = text.index(b"\n", begin)
            plan.steps.add_text(text[at:begin])
            plan.documents.append(Step(*text[begin:end].split(b"\0")))
            at = end + 1
        plan.steps.add_text(text[at:])

    def _plan_block(
        self, plan: CopyPlan, mine: Sequence[bytes], others: Sequence[bytes], *, is_stamped: bool
    ) -> None:
        """What becomes of a stretch of names, by the lines of the source and those of the target."""
        ours, theirs = ({line.partition(b"\0")[0]: line for line in lines} for lines in (mine, others))
        documents = {*self._documents_between(name_of(mine[0]), mine[-1])} if mine else set[bytes]()
        steps, sizes = list[bytes](), dict[bytes, list[int]]({COPY: [], COMPARE: [], KEEP: []})
        for name, line in ours.items():
            # A manifest's hash is of use where the key is there, too.
            step = b"\0".join(line.split(b"\0")[:3]) if is_stamped else line
            if name in theirs:
                _, own, version, *digest = line.split(b"\0")
                size = theirs[name].split(b"\0", 2)[1]
                action = self._act(name, is_same_size=size == own, is_known=bool(digest))
                sizes[action].append(int(size if action == COPY else own))
                step = b"\0".join((name, own, version, action, size, *(digest if action == KEEP else ())))
            if name in documents:
                document = Step(*step.split(b"\0"))
                self._check_kept(document)
                plan.documents.append(document)
            else:
                steps.append(step)
        plan.steps.add_text(b"".join([step + b"\n" for step in steps]))
        for name in sorted(theirs.keys() - ours.keys()):
            self._plan_other(plan, parse_entry(theirs[name]))
        replaced, compared, kept = (sum(sizes[action]) for action in (COPY, COMPARE, KEEP))
        plan.needed_size -= replaced + compared + kept
        plan.total_size -= kept
        counts = plan.counts
        counts.size -= compared + kept
        counts.key_count -= len(sizes[COMPARE]) + len(sizes[KEEP])
        counts.compared_count += len(sizes[COMPARE])
        counts.kept_count += len(sizes[KEEP])

    def _act(self, name: bytes, *, is_same_size: bool, is_known: bool) -> bytes:
        """What is done with a key that both have; `is_known`: a manifest has its hash."""
        if self.if_exists == "skip":
            return KEEP
        if self.if_exists == "changed" and is_same_size:
            return KEEP if is_known else COMPARE
        if self.if_exists == "error" and not self.is_resumed:
            raise StoreError(
                "the key is there already; expected nothing, or if_exists='skip', 'overwrite' or 'changed'",
                path=self.there.store.url,
                key=self.there.key(parse_name(name)),
            )
        return COPY

    def _documents_between(self, first: bytes, last: bytes) -> Sequence[bytes]:
        """The documents among the keys from a name to a line."""
        # A name stands before its line, and behind the lines of all names before it.
        names = self._document_names
        return names[bisect_left(names, first) : bisect_left(names, last)]

    def _check_kept(self, step: Step) -> None:
        """Refuse to keep a document that would describe the copied chunks wrongly."""
        key = step.entry.key
        if step.action != KEEP or self.if_exists != "skip":
            return
        here, there = self.here.get(key), self.there.get(key)
        if here != there and (is_array(key, lambda: here) or is_array(key, lambda: there)):
            raise StoreError(
                "the array that is there has another document; expected the same, or if_exists='changed'",
                path=self.there.store.url,
                key=self.there.key(key),
            )


def _is_job(key: str) -> bool:
    return JOB in key and JOB in key.split("/")


def _stamped(listed: Spool, known: Manifest) -> Iterator[list[bytes]]:
    """The lines of the source, with the hash that a manifest has of the very same version, where it has."""
    for mine, said in align(listed.blocks(), known.blocks()):
        stamped = dict[bytes, bytes]()
        for line in said:
            name, digest, size, version = line.split(b"\0")
            if version:
                stamped[b"\0".join((name, size, version))] = digest
        if mine:
            yield [b"%s\0%s" % (line, stamped[line]) if line in stamped else line for line in mine]


def rank(key: str) -> tuple[int, str, bool, str]:
    """A sort key for documents: the deepest first, and the document that makes a node last of its path."""
    above, _, name = key.rpartition("/")
    return -key.count("/"), above, name in MAKING, name


def is_array(key: str, get: Callable[[], bytes | None]) -> bool:
    """Whether a document makes an array; one that cannot be parsed does not."""
    name = key.rpartition("/")[2]
    if name == v3.KEY:
        return _parsed(get()).get("node_type") == "array"
    return name == v2.ARRAY_KEY or (name == v1.ARRAY_KEY and "compression" in _parsed(get()))


def is_consolidated(key: str, data: bytes | None) -> bool:
    """Whether a document is, or has, consolidated metadata."""
    return key.endswith(v2.CONSOLIDATED_KEY) or "consolidated_metadata" in _parsed(data)


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
