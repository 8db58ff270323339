"""One machine for all jobs: a `Task` has the steps of one job alone, and `carry_out` the common ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from zstore.base.once import once
from zstore.engine.documents import Model, check_own, parse_node, publish_nodes, render_node
from zstore.engine.intents import Intent, read_intent
from zstore.errors import ChangedError, ExistsError, NotFoundError
from zstore.jobs.chunks import Location
from zstore.jobs.how import How
from zstore.jobs.plan import Estimate, Plan, Unit, current_part
from zstore.jobs.record import BegunJob, begin, begin_new
from zstore.jobs.runner import counter
from zstore.jobs.source import Made, Sources, Versions
from zstore.jobs.target import check_outside
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import render_json
from zstore.nodes.array import Array
from zstore.nodes.node import Access

R = TypeVar("R")


class Task(ABC, Generic[R]):
    """A job to be carried out: its sources, its units, its documents and its result.

    `carry_out` does what all jobs share: with `resume` it leaves a finished target of the same call as it is,
    or brings it up to date; it ends a dry run, looks for room, records the job, makes the units, compares the
    sources with what they were, writes the documents, keeps a fingerprint and removes the record.

    `work`, `describe`, `sources` and `result` are the author's, and either a `plan` or `make`.

    work             the name of the job: one that a plugin offers by `register_jobs`, or zstore's own
    there            the location of the target, where the job's record is until it ends; its store is durable
                     if the words ask for that
    how              the words of the call
    plan             the units, where `make` is not the author's
    zarr_format      of the new node at `there`; None: the job makes no node there, and files may be there
    file_names       of the files that a job without a node makes at `there`: one that is there is refused,
                     unless it is to be replaced
    may_hold_others  whether files that belong to no node may be where the new node goes
    source_files     the paths of files that are read, which no `overwrite` removes
    """

    work: str
    plan: Plan[Any]
    zarr_format: ZarrFormat | None = None
    file_names: Iterable[str] = ()
    may_hold_others = False
    source_files: Iterable[str] = ()
    _is_published = False

    def __init__(self, there: Location, how: How) -> None:
        self.there = there._replace(store=how.opened(there.store))
        self.how = how

    @abstractmethod
    def describe(self) -> Any:
        """The sources and arguments in JSON; a job that differs in them is not resumed.

        An argument that is new in a version is in it only where it is not its default, so that what an
        earlier version began is resumed.
        """

    @abstractmethod
    def sources(self) -> Sources:
        """The sources, with the versions that they must still have at the end and when the job is resumed."""

    @abstractmethod
    def result(self) -> R:
        """The result of the call, once everything is made."""

    def call(self) -> Any:
        """The part of `describe` that stays the same when the sources change."""
        return self.describe()

    def estimate(self) -> Estimate:
        """The estimate of the job."""
        return Estimate(unit_count=self.unit_count(), memory_size=self.how.memory)

    def check_room(self) -> None:
        """Refuse a target without room for the result."""

    def begin(self, sources: Sources) -> BegunJob:
        """Record that the job begins, or goes on; refuse a target that exists."""
        said, how = self.describe(), self.how
        if self.zarr_format is None:
            self._check_files()
            replaces = how.overwrite and not how.resume
            return begin(*self.there, self.work, said, resume=how.resume, replace=replaces, sources=sources)
        if how.overwrite:
            check_outside(self.source_files, *self.there, self.work)
        return begin_new(
            *self.there,
            self.zarr_format,
            self.work,
            said,
            overwrite=how.overwrite,
            resume=how.resume,
            may_hold_others=self.may_hold_others,
            sources=sources,
        )

    def _check_files(self) -> None:
        if self.how.overwrite or self.how.resume:
            return
        for key in map(self.there.key, self.file_names):
            if self.there.store.size(key) is not None:
                raise ExistsError(
                    f"{self.work} cannot begin: {key!r} is there already; pass overwrite=True to replace it",
                    path=self.there.url(),
                )

    def has_ended(self, job: BegunJob) -> bool:
        """Whether a resumed job was interrupted when all was published, so that only its record is left."""
        return False

    def make(self, job: BegunJob) -> None:
        """Make the units, and `take` the result of each."""
        tick = counter(self.unit_count() if self.how.progress else 0, self.how.progress)

        def take(unit: Unit, result: Any) -> None:
            self.take(unit, result)
            tick(1)

        with job.runner(self.how.executor, self.how.at_once(self.unit_size())) as runner:
            runner.run(self.plan, self.work, take)

    def unit_count(self) -> int:
        """The number of units of the plan."""
        return sum(1 for _ in self.plan.units())

    def unit_size(self) -> int:
        """The most bytes in memory for one unit."""
        return 1

    def take(self, unit: Unit, result: Any) -> None:
        """Take the result of a unit, in the caller's thread and in any order."""

    def models(self) -> dict[str, Model]:
        """The nodes that the job makes, by their paths below the target."""
        return {}

    def publish(self) -> None:
        """Write the documents, when all else is made and the sources are as they were."""
        publish_nodes(*self.there, self.models())

    def published(self, access: Access) -> Array | None:
        """The array at the target, if this call has written its document, which is not read again."""
        model = self.models().get("") if self._is_published else None
        if not isinstance(model, ArrayModel):
            return None
        documents = {name: render_json(document) for name, document in render_node(model).items()}
        made = parse_node(documents, self.there.url())
        assert isinstance(made, ArrayModel), "what is rendered of an array is one"
        return Array(*self.there, made, access)

    def versions(self) -> Versions | None:
        """The versions of all that was made, for a fingerprint; none while nothing of it is there.

        By default those of the nodes. None: no fingerprint is kept.
        """
        nodes = self.models()
        return self.there.versions(nodes) if nodes else None

    def fingerprint(self, sources: Sources, versions: Versions) -> Made:
        """The fingerprint of the finished target."""
        return Made.of(self.call(), sources, versions)

    def is_current(self, made: Made, sources: Sources) -> bool:
        """Whether nothing is to be done to a finished target with this fingerprint."""
        return made.is_current(sources)

    def refreshed(self, made: Made, sources: Sources) -> Task[R]:
        """The task that brings a finished target up to date with sources that have changed.

        Raises
            ChangedError: the job cannot make parts of its target again.
        """
        made.check_current(sources)
        return self

    @once
    def former(self) -> Intent | None:
        """The record of unfinished work at the target, where the call could go on with it or replace it."""
        how = self.how
        return read_intent(*self.there) if how.resume or how.overwrite or how.dry_run else None

    @property
    def keeps(self) -> bool:
        """Whether the call compares with a fingerprint and keeps one: with `resume`, of a whole job."""
        return self.how.resume and current_part() is None

    @once
    def left(self) -> Made | None:
        """The fingerprint that the same call has left, if the target is to be compared with it."""
        made = Made.read(*self.there, self.call()) if self.keeps else None
        return None if made is None or (self.former is not None and not self.former.is_ready) else made

    def carry_out(self) -> R:
        """Carry out the job, as far as it is not done; returns its result.

        Raises
            ChangedError: a source was written to meanwhile, or since the target was made; or the target was.
            StoreError, MetadataError: as `begin`.
            Whatever the author's methods raise.
        """
        made = self.left
        if made is None:
            return self._carry_out(None)
        sources, former = self.sources(), self.former
        if former is None:
            if not (versions := self.versions()):
                return self._carry_out(sources)  # what was made is gone
            made.check_target(versions, *self.there)
        if not self.is_current(made, sources):
            return self.refreshed(made, sources)._carry_out(sources)
        self.how.stop_if_dry(lambda: Estimate(unit_count=0))
        if former is not None:  # it was interrupted when all was made
            begin(*self.there, self.work, former.plan, name=former.name, resume=True).end()
        return self.result()

    def _carry_out(self, sources: Sources | None) -> R:
        self.how.stop_if_dry(self.estimate)
        self.check_room()
        sources = self.sources() if sources is None else sources
        job = self.begin(sources)
        if job.is_resumed and self.has_ended(job):
            job.end()
            return self.result()
        job.watch(sources)
        if job.is_resumed:
            check_own(*self.there, self.models())
        self.make(job)
        job.check()
        self.publish()
        self._is_published = True
        if self.keeps and (versions := self.versions()) is not None:
            job.keep(self.fingerprint(sources, versions))
        job.end()
        try:
            return self.result()
        except NotFoundError as error:
            message = "all was made, and another call has replaced or removed it since; call again"
            raise ChangedError(message, path=self.there.url()) from error
