"""Jobs: work in units that any executor runs, recorded at its target so that it can be resumed."""

from __future__ import annotations

from zstore.jobs.chunks import (
    Location,
    SourceStore,
    StoredArray,
    as_array,
    is_shown,
    source_of,
)
from zstore.jobs.how import NOT_BY_KEYS, READS_ONLY, How, HowWords, long_call, refused
from zstore.jobs.plan import Estimate, Plan, Unit, as_part, current_part, expect_size, name_job
from zstore.jobs.record import BegunJob, asked_as, begin, check_begun, forget
from zstore.jobs.runner import Runner, counter, units_at_once
from zstore.jobs.source import Lost, Made, Marks, ModelSource, Source, Sources, Versions, all_but_lost
from zstore.jobs.task import Task

__all__ = [
    "NOT_BY_KEYS",
    "READS_ONLY",
    "BegunJob",
    "Estimate",
    "How",
    "HowWords",
    "Location",
    "Lost",
    "Made",
    "Marks",
    "ModelSource",
    "Plan",
    "Runner",
    "Source",
    "SourceStore",
    "Sources",
    "StoredArray",
    "Task",
    "Unit",
    "Versions",
    "all_but_lost",
    "as_array",
    "as_part",
    "asked_as",
    "begin",
    "check_begun",
    "counter",
    "current_part",
    "expect_size",
    "forget",
    "is_shown",
    "long_call",
    "name_job",
    "refused",
    "source_of",
    "units_at_once",
]
