"""Jobs: work in units that any executor runs, recorded at its target so that it can be resumed."""

from __future__ import annotations

from zstore.jobs.how import NOT_BY_KEYS, READS_ONLY, How, HowWords, long_call
from zstore.jobs.journal import Journal
from zstore.jobs.plan import Estimate, Plan, Progress, Unit
from zstore.jobs.record import Job, begin, name_job
from zstore.jobs.runner import Executor, Runner, counter
from zstore.jobs.source import Source
from zstore.jobs.target import describe_source
from zstore.jobs.versions import Sources

__all__ = [
    "NOT_BY_KEYS",
    "READS_ONLY",
    "Estimate",
    "Executor",
    "How",
    "HowWords",
    "Job",
    "Journal",
    "Plan",
    "Progress",
    "Runner",
    "Source",
    "Sources",
    "Unit",
    "begin",
    "counter",
    "describe_source",
    "long_call",
    "name_job",
]
