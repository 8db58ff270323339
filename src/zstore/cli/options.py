"""The options and output that commands share."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from difflib import get_close_matches
from functools import partial, reduce, wraps
from math import isfinite
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from zstore.base.sizes import format_size
from zstore.cli.root import LINE
from zstore.errors import StoreError, ZstoreError, clean
from zstore.extensions.builtin import PROFILES
from zstore.storage.kinds import local_path

if TYPE_CHECKING:
    from zstore.engine.intents import Unfinished
    from zstore.jobs.plan import Estimate
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

PIPED_WIDTH = 200
# The codecs that the help of --codec names.
CODECS = ("zstd", "gzip", "blosc", "lz4", "zlib")
SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# A decimal number has a unit: there is no part of a byte.
WORDED_SIZE = re.compile(r"([0-9]+)(?:B?|(\.[0-9]+)? ?([KMGT])(?:I?B)?)", re.IGNORECASE)


# Lengths by the names of dimensions: a number, or one of the words.
LENGTH = re.compile(r"-1|[1-9]\d*|auto")
WHOLE = {"all": "-1"}


def _cut_of(value: str) -> Any:
    """One length, several for the last dimensions, as "time,rows,columns", or by name: "time=240,y=auto"."""
    if "=" in value:
        lengths = {name: WHOLE.get(said, said) for name, said in _values_of(value).items()}
        wrong = [f"{name}={said}" for name, said in lengths.items() if not LENGTH.fullmatch(str(said))]
        if wrong:
            raise click.BadParameter(f"{wrong[0]!r} is no length, like time=240, y=auto or x=all")
        return {name: said if said == "auto" else int(said) for name, said in lengths.items()}
    parts = value.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{value!r} are no lengths, like 256 or 256,512 or 1,256,512")
    numbers = tuple(map(int, parts))
    return numbers[0] if len(numbers) == 1 else numbers


def _bytes_of(value: str) -> int:
    """The number of bytes of a size like 512M, 1.5G or 2GiB."""
    match = WORDED_SIZE.fullmatch(value.strip())
    whole, fraction, unit = ("0", None, None) if match is None else match.groups()
    size = int(Decimal(whole + (fraction or "")) * SIZES[(unit or "").upper()])
    if size == 0:
        raise click.BadParameter(f"{value!r} is no size, like 512M, 1.5G or 2GiB")
    return size


def number_of(value: str) -> int | float:
    """The number in a text: an integer of any length, else a float."""
    try:
        return int(value) if value.lstrip("+-").isdecimal() else float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no number") from None


def resolution_of(value: str) -> Any:
    """One length of cells, or two, as "height,width"."""
    try:
        lengths = tuple(map(float, value.split(",")))
    except ValueError:
        lengths = ()
    if len(lengths) not in (1, 2) or not all(isfinite(n) and n > 0 for n in lengths):
        raise click.BadParameter(f"{value!r} is no length of cells and not two, like 10 or 0.001,0.002")
    return lengths[0] if len(lengths) == 1 else lengths


def grid_options(noun: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds the options of commands that bring rasters, each a `noun`, to one grid."""
    options = [
        click.option(
            "--crs",
            metavar="CODE",
            help=f"The CRS of TARGET, like EPSG:3035; without it, that of most {noun}s.",
        ),
        click.option(
            "--resolution",
            type=resolution_of,
            metavar="N or Y,X",
            help=f"Length of cells in the CRS's unit; without it, that of most {noun}s, or about as long.",
        ),
        click.option("--like", metavar="RASTER", help="A raster whose grid TARGET gets, cell for cell."),
        click.option("--resampling", default="nearest", help="nearest, bilinear, cubic, average or mode."),
        click.option(
            "--nodata", **NUMBER, help=f"What cells without data have, of {noun}s that do not say it."
        ),
        click.option(
            "--first", is_flag=True, help=f"Of valid cells the first {noun}'s count, and not the last's."
        ),
    ]
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def _words_of(value: str) -> list[str]:
    """Words separated by commas."""
    return [word.strip() for word in value.split(",")]


def _numbers_of(value: str) -> list[int]:
    """Whole numbers separated by commas."""
    words = _words_of(value)
    if not all(word.isdecimal() for word in words):
        raise click.BadParameter(f"{value!r} is no list of whole numbers, like 3,8,9")
    return [*map(int, words)]


def _values_of(value: str) -> dict[str, str]:
    """Values by the names of dimensions: "time=2020-06,level=700"."""
    pairs = [pair.partition("=") for pair in _words_of(value)]
    names = [name.strip() for name, _, _ in pairs]
    if not all(name and said.strip() for name, (_, _, said) in zip(names, pairs, strict=True)):
        raise click.BadParameter(f"{value!r} is no selection, like time=2020-06,level=700")
    if len(set(names)) < len(names):
        raise click.BadParameter(f"{value!r} has a dimension twice; expected one value of each")
    return {name: said.strip() for name, (_, _, said) in zip(names, pairs, strict=True)}


def _box_of(value: str) -> tuple[float, ...]:
    """Four numbers separated by commas."""
    try:
        numbers = tuple(map(float, value.split(",")))
    except ValueError:
        numbers = ()
    if len(numbers) != 4:
        raise click.BadParameter(f"{value!r} is no box, like 500000,5190000,510000,5200000")
    return numbers


def _dtype_of(value: str) -> str:
    """The name of a data type of numpy."""
    import numpy as np

    try:
        np.dtype(value)
    except TypeError:
        names = [np.dtype(code).name for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"]]
        near = get_close_matches(value, names, 1)
        meant = f"did you mean {near[0]!r}?" if near else "expected one like float32"
        raise click.BadParameter(f"{value!r} is no data type; {meant}") from None
    return value


CUT: dict[str, Any] = {"type": _cut_of, "metavar": "N or Y,X or T,Y,X or NAME=N,..."}
SIZE: dict[str, Any] = {"type": _bytes_of, "metavar": "SIZE"}
DTYPE: dict[str, Any] = {"type": _dtype_of, "metavar": "NAME"}
NUMBER: dict[str, Any] = {"type": number_of, "metavar": "N"}
WORDS: dict[str, Any] = {"type": _words_of, "metavar": "A,B,..."}
NUMBERS: dict[str, Any] = {"type": _numbers_of, "metavar": "N,M,..."}
VALUES: dict[str, Any] = {"type": _values_of, "metavar": "NAME=VALUE,..."}
BOX: dict[str, Any] = {"type": _box_of, "metavar": "XMIN,YMIN,XMAX,YMAX"}


class _LocalPath(click.Path):
    """A path on a disk."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            local_path(value)
        except StoreError as error:
            self.fail(f"{value!r}; {error.message}", param, ctx)
        return super().convert(value, param, ctx)


FILE: dict[str, Any] = {"type": _LocalPath(dir_okay=False, path_type=Path)}
PLACE: dict[str, Any] = {"type": _LocalPath(path_type=Path)}


def one_of(*words: str) -> dict[str, Any]:
    """The arguments of an option that takes one of these words, the first by default."""
    return {"type": click.Choice(words), "default": words[0]}


def _format_of(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else int(value)


def cutting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that write arrays."""
    options = [
        click.option(
            "--format",
            "zarr_format",
            type=click.Choice(["1", "2", "3"]),
            callback=_format_of,
            help="Zarr format.",
        ),
        click.option("--chunks", **CUT, help="Chunk lengths (inside shards: of inner chunks)."),
        click.option("--shards", **CUT, help="Shard lengths; v3 only."),
        click.option(
            "--codec",
            metavar="NAME[:LEVEL]",
            help=f"{', '.join(CODECS)} or any other that `zstore plugins` lists, such as zstd:9; or none.",
        ),
        click.option("--levels", type=click.IntRange(min=0), help="How many coarser levels to make."),
        click.option(
            "--profile",
            type=click.Choice(("default", *PROFILES)),
            help="Write for one reader or one text, not for all readers together.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _use_options(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> None:
    if not values:
        return
    from zstore.storage.url import use_storage_options

    options = dict[str, Any]()
    for value in values:
        name, mark, text = value.partition("=")
        if not mark or not name.strip():
            raise click.BadParameter("expected NAME=VALUE, as in region=eu-central-1 or anon=true")
        name = name.strip()
        options[name] = [*options.get(name, ()), text] if name == "allow" else text
    context.with_resource(use_storage_options(options))


# The option of every command that opens a store.
storage_options = click.option(
    "--storage-option",
    metavar="NAME=VALUE",
    multiple=True,
    expose_value=False,
    callback=_use_options,
    help="How to reach a bucket or web server: anon=true, region=..., endpoint_url=..., profile=...; "
    "allow=DIRECTORY: where links in a directory, and references, may lead.",
)
# The option of every command that can print JSON.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
# The option of commands that say what a node means.
above_option = click.option(
    "--above", is_flag=True, help="Read the groups above PATH, too: what PATH inherits from them counts."
)
# The option of long jobs to be made in parts, by `zstore run-units`.
plan_option = click.option(
    "--plan", **FILE, help="Begin only; write a plan for `zstore run-units` to this file."
)


# The options of commands that read a part of what is there.
SELECTING = ("select", "bbox")


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a part of a source by the values of its coordinates."""
    values = "Dates, numbers or names along dimensions, or ranges: time=2020-06/2020-08,level=700."
    box = click.option("--bbox", **BOX, help="A part of the grid, in the units of its CRS.")
    return click.option("--select", **VALUES, help=values)(box(command))


def opened(source: Any, *, above: bool) -> Any:
    """The address; with `above`, the node at it, in the outermost group above."""
    if not above:
        return source
    from zstore import open as open_node

    return open_node(source, mode="r", above=True)


def selected(source: str | list[str], options: dict[str, Any], arrays: Sequence[str] | None = None) -> Any:
    """The part of a source that the options select, or the source itself; those options are removed.

    arrays  the names of the arrays that are wanted
    """
    words = {name: options.pop(name, None) for name in SELECTING}
    if arrays is None and not any(words.values()):
        return source
    if options.get("plan") is not None:
        said = (
            "--plan does not go with a part of SOURCE, which has no address; expected --processes, or a copy"
        )
        raise click.UsageError(f"{said} of the part, made by `zstore convert`")
    from zstore import select

    source = opened(source, above=options.pop("above", False))
    return select(source, words["select"], bbox=words["bbox"], arrays=arrays)


# The options for the words of `How`, and the parameters that they give.
HOW_OPTIONS: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "memory": (["--memory"], {**SIZE, "help": "About how much to hold at once, like 512M."}),
    "executor": (
        ["--processes"],
        {"type": click.IntRange(min=1), "metavar": "N", "help": "Work in N other processes."},
    ),
    "durable": (["--durable"], {"is_flag": True, "help": "The target survives a power cut after the end."}),
    "progress": (["-q", "--quiet"], {"is_flag": True, "help": "Show no progress."}),
    "resume": (["--resume"], {"is_flag": True, "help": "Go on with what was interrupted, or begin it."}),
    "overwrite": (["--overwrite"], {"is_flag": True, "help": "Replace what is there."}),
    "dry_run": (["--dry-run"], {"is_flag": True, "help": "Say what it would take, and do nothing."}),
    "if_exists": (
        ["--if-exists"],
        {
            **one_of("error", "skip", "overwrite", "changed"),
            "help": "What becomes of keys that TARGET has; changed: overwrite those that differ.",
        },
    ),
}


def word_option(word: str) -> Callable[[Any], Any]:
    """A decorator that adds the option for one word of `How`."""
    names, details = HOW_OPTIONS[word]
    return click.option(*names, **details)


def how_options(*calls: Callable[..., Any]) -> Callable[[Any], Any]:
    """A decorator that adds the options for the words that one of these long calls takes, and --json.

    Options for words that none of them takes are not shown, and refused with the reason, unless the command
    has options of its own by these names, below this decorator.
    """
    from zstore.jobs.how import refused

    def decorate(command: Any) -> Any:
        own = {name for option in getattr(command, "__click_params__", ()) for name in option.opts}
        command = json_option(command)
        for word, (names, details) in reversed(HOW_OPTIONS.items()):
            if own.intersection(names):
                continue
            reasons = [refused(call).get(word) for call in calls]
            if None in reasons:
                command = click.option(*names, **details)(command)
            else:
                reason = f"{names[-1]} does not go with {calls[0].__name__}: {reasons[0]}"
                hidden = {"hidden": True, "expose_value": False, "callback": partial(_refuse, reason)}
                command = click.option(*names, **{**details, "default": None, **hidden})(command)
        return command

    return decorate


def _refuse(reason: str, context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError(reason)


def arguments_of(function: Callable[..., Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are arguments of the function, by name, without the words of `How`."""
    taken = inspect.signature(function).parameters.keys() - HOW_OPTIONS.keys()
    return {name: value for name, value in said.items() if name in taken}


def check_options(
    context: click.Context, function: Callable[..., Any], what: str, arguments: Mapping[str, Sequence[str]]
) -> None:
    """Refuse options on the command line that have no effect on the called function.

    what       the kind of work, for the error
    arguments  the function's arguments that an option gives, where those have other names than its own;
               an option that gives none is of the command itself
    """
    shown = inspect.signature(function).parameters
    taken = dict(arguments, quiet=(), as_json=(), storage_option=(), processes=("executor",))
    for parameter in context.command.params:
        name = parameter.name or ""
        names = taken.get(name, (name,))
        is_said = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_said and isinstance(parameter, click.Option) and names and shown.keys().isdisjoint(names):
            reason = getattr(function, "__refused__", {}).get(names[0])
            more = "" if reason is None else f": {reason}"
            raise click.UsageError(f"{parameter.opts[-1]} does not go with {what}{more}")


@contextmanager
def asked() -> Iterator[None]:
    """A context in which jobs record the command line, which tells later how to resume them."""
    from zstore.jobs.record import asked_as

    context = click.get_current_context(silent=True)
    line = None if context is None else context.meta.get(LINE)
    with nullcontext() if line is None else asked_as(["zstore", *hide_options(line)]):
        yield


@contextmanager
def going(options: dict[str, Any], label: str, unit: str = "cells") -> Iterator[dict[str, Any]]:
    """A context that yields the words of `How`, and removes them from a command's `options`."""
    words = {word: options.pop(word) for word in HOW_OPTIONS if word in options}
    quiet, count = options.pop("quiet", False), options.pop("processes", None)
    with show_progress(label, unit, quiet=quiet) as progress:
        if count is None:
            yield {**words, "progress": progress}
            return
        # Forked processes would inherit locks that this one's threads hold.
        with ProcessPoolExecutor(count, get_context("spawn"), _end_with_parent) as executor:
            yield {**words, "progress": progress, "executor": executor}


def _end_with_parent() -> None:
    """End this process of a pool when the process that began it has ended, killed or not; else it stays."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def say_estimate(as_json: bool, name: str, estimate: Estimate) -> None:
    """Print an estimate, array by array."""
    about, lines = estimate.about, list[str]()
    if "sources" in about:
        files = [file for version in about["sources"].values() for file in version]
        lines.append(f"{len(files)} files of {format_size(sum(size for _, size, _ in files))}")
    if "dtype" in about:
        lines.append(f"result  {about['shape']} {about['dtype']}")
    for path, one in (estimate.parts or {name: estimate}).items():
        if estimate.parts and one.memory_size is None:
            lines.append(f"{path or name}: {(one.request_count or 0) // 2} chunks are copied as they are")
            continue
        requests = "" if one.request_count is None else f", {one.request_count} requests"
        lines.append(f"{path or name}: {one.unit_count} units{requests}")
        sizes = {
            "reads": (one.read_size, "decoded"),
            "writes": (one.write_size, "before they are encoded"),
            "holds": (one.memory_size, "at once"),
            "keeps": (one.scratch_size or None, "in between"),
        }
        lines += [f"  {verb:<7} {format_size(n)} {how}" for verb, (n, how) in sizes.items() if n is not None]
    if not about.get("levels_counted", True):
        lines.append("  coarser levels are not counted")
    say(as_json, {"path": name, "is_dry_run": True, **estimate.as_json()}, "\n".join(lines))


def hide_options(words: Iterable[str]) -> Iterator[str]:
    """A command line without the values of its storage options, which may be secret."""
    is_next = False
    for word in words:
        start, mark, rest = word.partition("=")
        if is_next and mark:
            yield f"{start}=..."
        elif start == "--storage-option" and mark:
            yield f"{start}={rest.partition('=')[0]}=..."
        else:
            yield word
        is_next = word == "--storage-option"


def codec_of(name: str | None) -> Any:
    """The value of --codec in the form for `compressors`."""
    return {None: "auto", "none": None}.get(name, name)


def run_job(
    options: Mapping[str, Any],
    function: Callable[..., Any],
    *args: Any,
    label: str,
    unit: str = "cells",
    target: str | None = None,
    **arguments: Any,
) -> Any:
    """The result of a long call, whose arguments and words are the options of a command.

    With --plan the job is only begun, and the command ends. With --dry-run it ends too, after the estimate
    was printed, unless there is no name (`target`) to print it for.
    """
    from zstore.jobs.how import refused
    from zstore.jobs.plan import Estimate

    plan, as_json = options.get("plan"), options.get("as_json", False)
    how = {name: value for name, value in options.items() if name not in refused(function)}
    values = {**arguments_of(function, options), **arguments}
    for name in ("dry_run", "processes"):
        if plan is not None and options.get(name):
            raise click.UsageError(f"--plan does not go with --{name.replace('_', '-')}")
    with going(how, label, unit) as words:
        if plan is None:
            made = function(*args, **values, **words)
        else:
            from zstore import plan_units

            count = plan_units(plan, function, *args, **values, **words)
    if plan is not None:
        command = shlex.join(["zstore", "run-units", str(plan), "--part", "1/N"])
        text = f"{plan}: {count} units; make them by `{command}`, then `--finish`"
        document = {"plan": str(plan) if count else None, "unit_count": count, "is_finished": not count}
        say(as_json, document, text if count else "there is nothing to do in parts: all is done")
        raise click.exceptions.Exit(0)
    if target is not None and isinstance(made, Estimate):
        say_estimate(as_json, target, made)
        raise click.exceptions.Exit(0)
    return made


def say(as_json: bool, document: Mapping[str, Any], text: str) -> None:
    """Print the outcome of a command: the document as JSON, or the text."""
    if as_json:
        from zstore.model.document import plain

        text = json.dumps(plain(document), indent=2, allow_nan=False)
    click.echo(text)


def list_tree(node: Array | Group, level: int | None = None) -> list[dict[str, Any]]:
    """The node and the nodes down to `level` levels below it, for JSON, with errors of unreadable ones."""
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group

    unreadable: dict[str, ZstoreError] = {}
    depth = None if level is None else level - 1
    members: Sequence[tuple[str, Array | Group]] = ()
    if isinstance(node, Group) and level != 0:
        members = node.members(depth, unreadable=unreadable)
    nodes: list[dict[str, Any]] = []
    for path, member in (("", node), *members):
        if isinstance(member, Array):
            nodes.append({"path": path, "kind": "array", "shape": member.shape, "dtype": str(member.dtype)})
        else:
            nodes.append({"path": path, "kind": "group"})
    return [*nodes, *({"path": path, "error": error.message} for path, error in unreadable.items())]


class _RateColumn(ProgressColumn):
    """The column of a progress bar with the rate in cells, chunks or bytes per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f"{speed:.0f} {self._unit}/s"
        if speed is not None and self._unit == "cells":
            rate = f"{speed / 1e6:.1f} Mcells/s"
        if speed is not None and self._unit == "bytes":
            rate = f"{speed / 1e6:.1f} MB/s"
        return Text(rate, style="progress.data.speed")


@contextmanager
def show_progress(
    label: str, unit: str = "cells", *, quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """A context with a progress bar on stderr, if that is a terminal; yields a function that updates it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        _RateColumn(unit),
        TimeRemainingColumn(),
    )
    is_hidden = quiet or not console.is_terminal
    with asked(), Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_table(table: Table) -> None:
    """Print a table, fitted to the width of the terminal if the output is one."""
    console = Console(markup=False)
    if not console.is_terminal:
        console = Console(markup=False, width=PIPED_WIDTH)
    console.print(table)


def show_unfinished(unfinished: Iterable[Unfinished]) -> None:
    """Print the place and kind of all unfinished work, and how to resume it."""
    for work in unfinished:
        click.echo(f"{click.style('unfinished', fg='red')} /{clean(work.path)}: {work.what}")
        click.echo(f"  go on with: {work.again}")
        if work.undo:
            click.echo(f"  or put back what was there with: {work.undo}")


def view_command(work: str, label: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A decorator that makes a command of a function that returns a view, which is stored at TARGET.

    The function has the arguments and options below this decorator. The command has those of `convert` too,
    by which the view is stored; then the path, shape and data type of the new array are printed.

    work   the kind of work, for errors
    label  of the progress bar
    """
    from zstore import Array, convert

    def decorate(function: Callable[..., Any]) -> click.Command:
        below: list[click.Parameter] = function.__click_params__  # type: ignore[attr-defined]
        own = [one for one in below if isinstance(one, click.Option)]
        names = [one.name or "" for one in below]
        arguments = {**{one.name or "": () for one in own}, "codec": ("compressors",)}

        @click.pass_context
        @wraps(function)
        def command(context: click.Context, /, target: str, **options: Any) -> None:
            check_options(context, convert, work, arguments)
            with asked():
                shown = function(**{name: options[name] for name in names})
            stored = {name: value for name, value in options.items() if value is not None}
            if options["codec"] is not None:
                stored["compressors"] = codec_of(options["codec"])
            made = run_job(stored, convert, shown, target, label=label, target=target)
            is_alone = isinstance(made, Array)
            path, array = (target, made) if is_alone else (f"{target}/{shown.name}", made[shown.name])
            document = {"path": path, "shape": array.shape, "dtype": str(array.dtype)}
            say(options["as_json"], document, f"{path} {array.shape} {array.dtype}")

        # From the last one up, as decorators add them.
        command.__click_params__ = []  # type: ignore[attr-defined]
        how_options(convert)(command).__click_params__.extend(own)
        click.argument("target")(storage_options(cutting_options(command)))
        command.__click_params__.extend(one for one in below if one not in own)  # type: ignore[attr-defined]
        return click.command()(command)

    return decorate
