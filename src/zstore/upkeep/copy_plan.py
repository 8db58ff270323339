"""What a copy is to do with each key of the source and of the target, before it does any of it."""

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
from zstore.model import v1, v2, v3
from zstore.storage.base import Entry, Store, join_key
from zstore.storage.locking import SHAPE_LOCK
from zstore.upkeep.manifest import Manifest, list_keys, parse_entry, parse_name, render_name
from zstore.upkeep.spool import Spool, align, match

# Values of v1's names may be anything; where they come last, nothing is lost.
DOCUMENTS = METADATA_NAMES | {v1.ARRAY_KEY, v1.ATTRIBUTES_KEY}
# Within a directory, what makes a node comes last.
MAKING = (v2.ARRAY_KEY, v2.GROUP_KEY, v3.KEY, v1.ARRAY_KEY)
# The same as `render_name` gives them.
DOCUMENT_NAMES = frozenset(name.encode() for name in DOCUMENTS)

COPY, COMPARE, KEEP = b"copy", b"compare", b"keep"


@dataclass
class Copied:
    """What `copy` did, or with `dry_run` would do.

    key_count       keys that were copied
    size            their bytes
    kept_count      keys that were left as they are, because they were there
    compared_count  with `dry_run`: keys of the same size, which are copied if they differ
    deleted_count   keys that were removed from the target
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
    """What becomes of one key: the line it is kept as, divided by NUL.

    As a line of `list_keys` says it, a key is copied to where none is.
    """

    name: bytes
    size: bytes
    version: bytes
    action: bytes = COPY
    there: bytes = b""
    digest: bytes = b""

    @property
    def entry(self) -> Entry:
        """The key of the source, as it was listed."""
        return Entry(parse_name(self.name), int(self.size), self.version.decode() or None)

    @property
    def source(self) -> bytes:
        """What tells it from another key, and from another version of it."""
        return b"\0".join(self[:3])


@dataclass
class CopyPlan:
    """All that is to be done, before any of it is."""

    steps: Spool = field(default_factory=Spool)
    documents: list[Step] = field(default_factory=list)
    deletions: Spool = field(default_factory=Spool)
    total_size: int = 0
    needed_size: int = 0
    counts: Copied = field(default_factory=Copied)


class Planner:
    """Lists both places, and says what becomes of each key.

    listed             the keys of the source, as they were
    asked              which keys are copied: what `list_keys` takes for it
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
        """What becomes of each key of the source, and of the target.

        Raises
            NotFoundError, StoreError: as `copy`, of what stands against it.
        """
        self.listed, size = list_keys(*self.here, self.is_copied, self.doubtful)
        if not len(self.listed):
            raise NotFoundError("there is nothing to copy", path=place(*self.here))
        # Everything is copied to where nothing is, but for what is found otherwise.
        plan = CopyPlan(total_size=size, needed_size=size, counts=Copied(len(self.listed), size))
        there, _ = list_keys(*self.there, self._is_in_the_way, self.doubtful)
        documents = sorted(map(render_name, self._documents))
        blocks = self.listed.blocks() if known is None else _stamped(self.listed, known)
        for mine, others in align(blocks, there.blocks()):
            if known is None and not others and not _has_between(documents, mine):
                plan.steps.extend(mine)
                continue
            for ours, theirs in match([mine], [others]):
                if ours is None:
                    self._plan_other(plan, parse_entry(theirs or b""))
                else:
                    self._plan_key(
                        plan, ours.split(b"\0"), None if theirs is None else theirs.split(b"\0")[1]
                    )
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
    def _arrays(self) -> set[str]:
        """The paths of the arrays that are copied."""
        made = (key for key in self._documents if key.rpartition("/")[2] in MAKING)
        return {key.rpartition("/")[0] for key in made if is_array(key, partial(self.here.get, key))}

    def _plan_other(self, plan: CopyPlan, entry: Entry) -> None:
        """What becomes of a key that only the target has."""
        is_ours = self.is_resumed and self.if_exists == "error"
        above = next((path for path in ancestors(entry.key) if path in self._arrays), None)
        if self.delete or (is_ours and above is not None):
            plan.deletions.add(render_name(entry.key))
            plan.counts.deleted_count += 1
        elif above is not None:
            raise StoreError(
                f"the target has a key that the array {self.here.key(above)!r} has not, and that could show"
                " as data of the copy; expected an empty place, or delete=True",
                path=self.there.store.url,
                key=self.there.key(entry.key),
            )

    def _plan_key(self, plan: CopyPlan, line: Sequence[bytes], size: bytes | None) -> None:
        """What becomes of a key of the source; `size` is that of the target's value of the same key."""
        name, own, version, *known = line
        digest = b"".join(known)
        action = COPY
        if size is not None and not self.is_resumed and self.if_exists == "error":
            raise StoreError(
                "the key is there already; expected nothing, or if_exists='skip', 'overwrite' or 'changed'",
                path=self.there.store.url,
                key=self.there.key(parse_name(name)),
            )
        if size is not None and self.if_exists == "skip":
            action = KEEP
        elif size == own and self.if_exists == "changed":
            action = KEEP if digest else COMPARE
        step = name, own, version, action, size or b"", digest if action == KEEP else b""
        counts = plan.counts
        if action == COPY:
            plan.needed_size -= int(size or 0)
        else:
            counts.kept_count += action == KEEP
            counts.compared_count += action == COMPARE
            counts.key_count -= 1
            counts.size -= int(own)
            plan.needed_size -= int(own)
            plan.total_size -= int(own) if action == KEEP else 0
        if name.rpartition(b"/")[2] in DOCUMENT_NAMES:
            document = Step(*step)
            self._check_kept(document)
            plan.documents.append(document)
        else:
            plan.steps.add(b"\0".join(step))

    def _check_kept(self, step: Step) -> None:
        """Refuse to put chunks under another array's document."""
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


def _has_between(names: Sequence[bytes], lines: Sequence[bytes]) -> bool:
    """Whether one of the names, which are in order, may be that of one of the lines, which are, too."""
    # A name stands before its line, and behind the lines of all names before it.
    return bisect_left(names, lines[0].partition(b"\0")[0]) < bisect_left(names, lines[-1])


def _stamped(listed: Spool, known: Manifest) -> Iterator[list[bytes]]:
    """The lines of the source, with the hash that a manifest has of the very same version, where it has."""
    for pair in align(listed.blocks(), known.blocks()):
        lines = []
        for line, said in match(*([each] for each in pair)):
            if line is not None:
                _, digest, *stamp = (said or b"\0\0\0").split(b"\0")
                is_same = stamp[1] != b"" and line.split(b"\0")[1:] == stamp
                lines.append(line + b"\0" + digest if is_same else line)
        if lines:
            yield lines


def rank(key: str) -> tuple[int, str, bool, str]:
    """Where a document stands among those that are put: the deepest first, what makes a node last."""
    above, _, name = key.rpartition("/")
    return -key.count("/"), above, name in MAKING, name


def is_array(key: str, get: Callable[[], bytes | None]) -> bool:
    """Whether a document makes an array; one that cannot be read makes none."""
    name = key.rpartition("/")[2]
    if name == v3.KEY:
        return _parsed(get()).get("node_type") == "array"
    return name == v2.ARRAY_KEY or (name == v1.ARRAY_KEY and "compression" in _parsed(get()))


def is_consolidated(key: str, data: bytes | None) -> bool:
    """Whether a document tells of other nodes."""
    return key.endswith(v2.CONSOLIDATED_KEY) or "consolidated_metadata" in _parsed(data)


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
