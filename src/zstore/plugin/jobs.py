"""Jobs: work in units that any executor runs, recorded at its target so that it can be resumed."""

from __future__ import annotations

from zstore.jobs.journal import Journal
from zstore.jobs.plan import Progress, Unit
from zstore.jobs.record import begin, name_job
from zstore.jobs.runner import Executor, Runner, counter
from zstore.jobs.target import describe_source

__all__ = [
    "Executor",
    "Journal",
    "Progress",
    "Runner",
    "Unit",
    "begin",
    "counter",
    "describe_source",
    "name_job",
]
