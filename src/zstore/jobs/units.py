"""Long jobs in parts: begun once, made by independent calls, and ended by one of them.

    zstore.plan_units("plan.json", zstore.copy, "era.zarr", "s3://bucket/era.zarr")
    zstore.run_units("plan.json", 3, 100)     # by whatever runs programs: parts 1 to 100, in any order
    zstore.finish_units("plan.json")

A plan is a file of JSON: which function, and with which arguments. What each call makes is kept beside the
target, where the job is under way until it is finished.
"""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from zstore.engine.documents import place
from zstore.errors import MetadataError, NotFoundError, StoreError, UnknownExtensionError, UnsupportedError
from zstore.extensions.registry import jobs
from zstore.jobs.chunks import SourceStore
from zstore.jobs.how import WORDS, How
from zstore.jobs.plan import MOST_PARTS, Estimate, JobPart, Progress, UnitsLeft, as_part
from zstore.jobs.record import asked_as
from zstore.jobs.runner import Executor
from zstore.model.document import parse_json, render_json
from zstore.nodes.node import StoredNode
from zstore.storage.base import Store
from zstore.storage.kinds import local_path
from zstore.storage.local import LocalStore

MEMBER, VERSION = "zstore_plan", 1
# What says how a call goes about it, not what is made.
OF_CALLS = ("executor", "progress", "resume", "dry_run")
PLACES = ("source", "sources", "target", "out", "scratch", "manifest")
TUPLE = "()"


class Job:
    """A long call as a value, not made yet: its function, sources, target and other arguments.

        job = Job("era.zarr", "mean.zarr", "reduce", How(memory=1 << 30), method="mean", axis="time")
        job.estimate().read_size
        job.run()

    sources  of the call: its first argument
    target   its argument `target` (of a reduction, `out`)
    what     the function, or its name among the jobs that `zstore plugins` lists
    options  all other arguments of the function

    Raises
        UnknownExtensionError: there is no job of that name.
        TypeError: the function has no such arguments.
    """

    def __init__(
        self,
        sources: Any,
        target: Any,
        what: str | Callable[..., Any],
        how: How | None = None,
        **options: Any,
    ) -> None:
        function = jobs.resolve(what) if isinstance(what, str) else what
        first, *others = inspect.signature(function).parameters
        goal = "target" if "target" in others else "out"
        words = {} if how is None else {name: getattr(how, name) for name in WORDS}
        given = {name: value for name, value in words.items() if value != WORDS[name]}
        self._hold(function, (), {first: sources, goal: target, **options, **given})

    def _hold(self, function: Callable[..., Any], args: Sequence[Any], arguments: Mapping[str, Any]) -> None:
        self.function = function
        bound = inspect.signature(function).bind(*args, **arguments)
        self.arguments: dict[str, Any] = bound.arguments

    @classmethod
    def of(cls, function: Callable[..., Any], *args: Any, **arguments: Any) -> Job:
        """The job of a call with these arguments."""
        job = cls.__new__(cls)
        job._hold(function, args, arguments)
        return job

    def estimate(self) -> Estimate:
        """The estimate of the call; nothing is written."""
        estimate: Estimate = self._call(dry_run=True)
        return estimate

    def run(self) -> Any:
        """Make the call; returns its result."""
        return self._call()

    def resume(self) -> Any:
        """Resume the same interrupted call, or begin it; returns its result."""
        return self._call(resume=True)

    def units(self) -> int:
        """The number of units."""
        return self.estimate().unit_count

    def plan(self, file: str | os.PathLike[str]) -> int:
        """As `plan_units`, for this job."""
        return _plan(self, file)

    def _call(self, **words: bool) -> Any:
        return self.function(**{**self.arguments, **words})


def _name_of(function: Callable[..., Any]) -> str | None:
    """The name under which a function is offered as a job; None without one."""
    target = f"{function.__module__}:{getattr(function, '__qualname__', '')}"
    names = (line.name for line in jobs.listings() if line.target == target)
    return next((name for name in names if jobs.resolve(name) is function), None)


def plan_units(file: str | os.PathLike[str], function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Begin a job without making its units, and write the plan for those who make them; returns their number.

    The function is one of the jobs that `zstore plugins` lists: `zstore.copy`, `convert`, `reduce`,
    `build_pyramid`, `build_tile_pyramid`, of `zstore.geo.rasters` `raster_to_zarr`, `rasters_to_zarr` (whose
    coarser levels are made by who ends the job) and `netcdf_to_zarr`, and those of plugins; the arguments are
    its own. All is checked, and what is in the way
    removed, as the function does it; the job is under way at its target from then on. A job of no units is
    done, and has no plan: 0. Of a job of several arrays or passes, the units of the first are counted.

    The plan is JSON that everybody may read: storage options are not in it, and are given to each call. It
    says what is read by versions, files by their size and time, which must be the same for all parts.

    Raises
        UnsupportedError: another function, nothing to store, files into a group that is there, or an argument
            without words in JSON.
        StoreError: there is such a file, or it cannot be written.
        Whatever the function raises before it makes anything.
    """
    return Job.of(function, *args, **kwargs).plan(file)


def _plan(job: Job, file: str | os.PathLike[str]) -> int:
    function, bound = job.function, dict(job.arguments)
    offered = _name_of(function)
    if offered is None:
        raise UnsupportedError(
            f"{function!r} cannot be made in parts; expected one of {', '.join(jobs.names())}"
        )
    where = local_path(file).absolute()
    if where.exists():
        raise StoreError("there is such a file already; expected none", path=os.fspath(file))
    if bound.get("dry_run"):
        raise UnsupportedError(f"{function.__name__} would store nothing; expected a target, and no dry_run")
    options = sorted(name for name, value in bound.items() if name.endswith("_options") and value)
    said = {
        name: _say(value, name)
        for name, value in bound.items()
        if name not in OF_CALLS and not name.endswith("_options")
    }
    # The job is begun with what its parts will be called with, as JSON has it.
    # A target stays a node: functions that would put nodes into a group refuse to do so in parts.
    stays = {"target"} if isinstance(bound.get("target"), StoredNode) else set[str]()
    bound |= {name: _mean(value) for name, value in said.items() if name not in stays}
    store, part = LocalStore(where.parent), JobPart(is_begun=False)
    store.check_writable(where.name)
    try:
        with as_part(part), asked_as(["zstore", "run-units", str(where), "--finish"]):
            function(**bound)
    except UnitsLeft:
        name, count = part.first or ("", 0)
        plan = {
            MEMBER: VERSION,
            "function": offered,
            "arguments": said,
            "options": options,
            "first": {"name": name, "unit_count": count},
            "versions": part.versions,
        }
        store.put(where.name, render_json(plan))
        return count
    return 0


def run_units(
    plan: str | os.PathLike[str],
    part: int,
    part_count: int,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> int:
    """Make one of `parts` parts of a planned job; returns the number of units left, 0 when all are done.

    Parts are numbered from 1. They can be made in any order, at the same time, and again: what a part has
    made is not made again. Of a job in several passes, whose next one needs all of the one before, a part
    makes what it can: as long as units are left when all parts were made, they are made once more.

    progress  called with the part's units that are done, and all it has
    options   `storage_options` and `target_options`, where the plan was given some

    Raises
        NotFoundError, MetadataError: there is no plan, or the file is none.
        StoreError: no such job is under way, or it would be divided otherwise here.
        Whatever the function raises.
    """
    if not 1 <= part <= part_count <= MOST_PARTS:
        raise MetadataError(
            f"part {part} of {part_count}; expected a number from 1 to {MOST_PARTS} parts at most"
        )
    function, arguments, first = _read(plan, options)
    if executor is not None:
        arguments["executor"] = executor
    try:
        with as_part(JobPart(part, part_count, first=first, progress=progress)):
            function(**arguments)
    except UnitsLeft as left:
        return left.count
    raise StoreError("the job has ended already", path=os.fspath(plan))


def finish_units(plan: str | os.PathLike[str], *, part_count: int | None = None, **options: Any) -> Any:
    """End a job whose parts are all made: documents are written last; returns its function's result.

    part_count  into how many parts it was divided, to name those that are missing
    options     as for `run_units`

    Raises
        StoreError: units are missing; or as `run_units`.
    """
    function, arguments, first = _read(plan, options)
    try:
        with as_part(JobPart(first=first)):
            return function(**arguments)
    except UnitsLeft as left:
        said, first_left = f"{left.count} units are not made yet", "K/N"
        if part_count is not None:
            numbers = left.parts(part_count)
            first_left = f"{numbers[0] if numbers else 'K'}/{part_count}"
            shown = ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")
            said = f"of {part_count} parts, {shown} are not whole: {said}"
        command = shlex.join(["zstore", "run-units", os.fspath(plan), "--part", first_left])
        again = (
            f"`{command}` for each part that is left, and for all of them once more where a pass comes next"
        )
        raise StoreError(f"{said}; expected all of them: {again}", path=os.fspath(plan)) from None


def _read(
    file: str | os.PathLike[str], options: Mapping[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any], tuple[str, int]]:
    """(the function, its arguments, its first plan) of a plan's file, after a check of the file."""
    path = os.fspath(file)
    try:
        data = Path(file).read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError("there is no plan", path=path) from error
    except OSError as error:
        raise StoreError(f"cannot read the plan: {error.strerror}", path=path) from error
    function = None
    try:
        said = parse_json(data, path=path)
    except MetadataError as error:
        reason = "expected the file that --plan or zstore.plan_units wrote"
        raise MetadataError(f"no plan of a job: {error.message}; {reason}", path=path) from error
    with suppress(UnknownExtensionError):
        function = jobs.resolve(str(said.get("function")))
    arguments, first, given = said.get("arguments"), said.get("first"), said.get("options")
    if said.get(MEMBER) != VERSION or function is None or not isinstance(arguments, dict):
        raise MetadataError(
            f"no plan of a job; expected {MEMBER!r} {VERSION}, arguments, and one of "
            f"{', '.join(jobs.names())}",
            path=path,
        )
    name, count = (first.get("name"), first.get("unit_count")) if isinstance(first, dict) else (None, None)
    if not isinstance(name, str) or type(count) is not int:
        raise MetadataError(f"the plan's first units are {first!r}; expected a name and a number", path=path)
    parameters = inspect.signature(function).parameters
    known = {name for name in parameters if name not in OF_CALLS}
    named = {name for name in known if name.endswith("_options")}
    if not isinstance(given, list) or not all(isinstance(name, str) and name in named for name in given):
        raise MetadataError(f"the plan's options are {given!r}; expected some of {sorted(named)}", path=path)
    if wrong := sorted({*arguments} - (known - named)):
        raise MetadataError(f"the plan has the argument {wrong[0]!r}, which is none of a plan", path=path)
    needed = (name for name in known if parameters[name].default is inspect.Parameter.empty)
    if missing := sorted({*needed} - {*arguments}):
        raise MetadataError(f"the plan has no argument {missing[0]!r}", path=path)
    if wrong := sorted({*options} - named):
        raise TypeError(f"{wrong[0]!r} is no storage option of {function.__name__}; expected {sorted(named)}")
    if missing := sorted(name for name in given if name not in options):
        raise MetadataError(f"the job was begun with {missing[0]}; expected them here, too", path=path)
    meant = {name: _mean(value) for name, value in arguments.items()}
    return function, {**meant, **options, "resume": True}, (name, count)


def _say(value: Any, name: str) -> Any:
    """An argument in JSON.

    Raises
        UnsupportedError: it has no words, or only in this process.
    """
    if isinstance(value, StoredNode):
        value = _place(value.store, value.path, name)
    elif isinstance(value, Store):
        value = _place(value, "", name)
    elif isinstance(value, np.dtype):
        value = value.str
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and name in PLACES and not _is_address(value):
        return os.path.abspath(value)  # noqa: PTH100 - what is no path stays what it is
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return {TUPLE: [_say(item, name) for item in value]}
    if isinstance(value, list):
        return [_say(item, name) for item in value]
    if isinstance(value, Mapping) and TUPLE not in value and all(isinstance(key, str) for key in value):
        return {key: _say(item, name) for key, item in value.items()}
    more = "; save the view, and name its file" if hasattr(value, "save") else ""
    raise UnsupportedError(f"argument {name} cannot be written down in a plan: {value!r:.100}{more}")


def _is_address(value: str) -> bool:
    """Whether this is an address instead of a path: a URL, a chain of them, or GDAL's name of a dataset."""
    return any(mark in value for mark in ("::", "://", "|")) or (":" in value and not Path(value).exists())


def _place(store: Store, path: str, name: str) -> str:
    if store.in_memory:
        raise UnsupportedError(f"argument {name} is in the memory of this process: {store.url}")
    if isinstance(store, SourceStore) and not store.has_address:
        raise UnsupportedError(f"argument {name} is a part that no address opens: {store.url}")
    return place(store, path)


def _mean(said: Any) -> Any:
    """The argument from its JSON."""
    if isinstance(said, dict):
        if [*said] == [TUPLE] and isinstance(said[TUPLE], list):
            return tuple(map(_mean, said[TUPLE]))
        return {key: _mean(item) for key, item in said.items()}
    return [_mean(item) for item in said] if isinstance(said, list) else said
