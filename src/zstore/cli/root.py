"""The command `zstore`; its subcommands are imported when they run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from zstore import __version__
from zstore.base.limits import set_durable
from zstore.errors import ExtensionError, UnknownExtensionError, ZstoreError, going_on
from zstore.extensions.extras import package_hint
from zstore.extensions.registry import commands

# An argument of a Python function in the text of an error.
ARGUMENT = re.compile(r"\b([a-z_]+)=('[^']*'|\"[^\"]*\"|[\w.-]*\w)")
# What to type for words that other tools have.
OTHER_WORDS = {
    "rechunk": "convert SOURCE TARGET --chunks N",
    "open": "info PATH",
    "show": "info PATH",
    "list": "tree PATH",
    "ls": "tree PATH",
    "cp": "copy SOURCE TARGET",
    "check": "validate PATH` or `zstore verify PATH",
    "overviews": "pyramid SOURCE TARGET",
    "translate": "convert SOURCE TARGET",
    "warp": "mosaic SOURCE TARGET --crs CODE",
    "reproject": "mosaic SOURCE TARGET --crs CODE",
    **dict.fromkeys(("sync", "rsync", "mirror"), "copy SOURCE TARGET --if-exists changed"),
    **dict.fromkeys(("stats", "mean", "sum"), "reduce PATH --method mean"),
    **dict.fromkeys(("du", "size"), "info PATH --sizes"),
    **dict.fromkeys(("rm", "delete", "remove"), "`rm -r PATH`, or in Python `del group[NAME]`"),
    **dict.fromkeys(("mv", "move", "rename"), "`mv`, or `zstore copy SOURCE TARGET` and `rm -r SOURCE`"),
}
MOSAIC = "`zstore mosaic SOURCE TARGET --crs CODE`"
# The options of zstore for those that other tools have; where the command has none of them, what to type.
OTHER_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("--compressor", "--compressors", "--compression", "--compress", "--co"), ("--codec",)),
    **dict.fromkeys(("--chunk", "--chunksize", "--chunk-size", "--blocksize"), ("--chunks",)),
    **dict.fromkeys(("--variable", "--variables", "--var", "--vars", "--arrays", "--band"), ("--bands",)),
    **dict.fromkeys(("--sel", "--time", "--date", "--dates", "--where"), ("--select",)),
    **dict.fromkeys(("--extent", "--bounds", "--projwin", "--te", "--clip"), ("--bbox",)),
    **dict.fromkeys(("--threads", "--workers", "--jobs"), ("--processes",)),
    **dict.fromkeys(("--force", "--replace"), ("--overwrite",)),
    **dict.fromkeys(("--apply", "--in-place", "--save"), ("--write",)),
    **dict.fromkeys(("--dim", "--dims", "--dimension", "--over"), ("--axis",)),
    "--zarr-format": ("--format",),
    "--tree": ("`zstore tree PATH`",),
    **dict.fromkeys(("--t_srs", "--a_srs", "--s_srs", "--srs", "--epsg", "--dst-crs"), ("--crs", MOSAIC)),
    **dict.fromkeys(("--resampling", "--resample", "--r", "--interpolation"), ("--method", "--sampling")),
    **dict.fromkeys(("--depth", "--max-depth", "--levels"), ("--level",)),
    **dict.fromkeys(("--tr", "--res"), ("--resolution", MOSAIC)),
    **dict.fromkeys(("--of", "--to"), ("the ending of TARGET, as in NAME.tif, NAME.nc or NAME.zarr",)),
    **dict.fromkeys(("--stats", "--mean"), ("`zstore reduce PATH --method mean`",)),
}
QUOTES = "'\""
# The command line, in the `meta` of every context of it.
LINE = "zstore.line"


class _Commands(click.Group):
    """The subcommands; their errors are one line on stderr and exit code 1.

    is_interrupted  whether Ctrl-C ended one
    """

    is_interrupted = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        return commands.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            command: click.Command = commands.resolve(cmd_name)
        except UnknownExtensionError as error:
            # The commands of a plugin that cannot be loaded are not known; this may be one.
            if "plugin " in error.message:
                raise click.UsageError(f"No such command {cmd_name!r}: {error.message}", ctx) from None
            if hint := package_hint("command", cmd_name):
                raise click.UsageError(f"No such command {cmd_name!r}: {hint}.", ctx) from None
            return None
        except ExtensionError as error:
            return _broken_command(cmd_name, error)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*self._lines(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        lines = [(word, line) for word, line in self._lines(ctx) if word.startswith(incomplete)]
        items = [CompletionItem(word, help=line) for word, line in lines]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def _lines(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Each word with a line about it; only commands that are offered without a summary are imported."""
        for word, summary in commands.summaries().items():
            command = None if summary else self.get_command(ctx, word)
            if command is None or not command.hidden:
                yield word, summary if command is None else command.get_short_help_str(1000)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            if args[0] in OTHER_WORDS:
                meant = OTHER_WORDS[args[0]]
                meant = meant if meant.startswith("`") else f"`zstore {meant}`"
                ctx.fail(f"No such command {args[0]!r}; type {meant}.")
            near = ["--help"] if args[0] == "help" else get_close_matches(args[0], commands.names(), 1)
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def _with_flags(self, ctx: click.Context, text: str) -> str:
        """The text of an error with the options of the command in place of the arguments in Python."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        flags = {p.name: p.opts[-1] for p in command.params if isinstance(p, click.Option)} if command else {}

        def flag(match: re.Match[str]) -> str:
            name, value = match.groups()
            if name not in flags:
                return match[0]
            return flags[name] if value == "True" else f"{flags[name]} {value.strip(QUOTES)}"

        # A call in Python, by which work goes on that one has begun, stays as it is.
        pieces = re.split(r"(\bzstore\.[\w.]+\(.*?\)(?=;|$))", text)
        pieces[::2] = [ARGUMENT.sub(flag, piece) for piece in pieces[::2]]
        text = re.sub(r"\bthe right storage option ", "the right --storage-option ", "".join(pieces))
        text = re.sub(r"\bthe storage options? ", "--storage-option ", text)
        text = re.sub(r"(--storage-option )?\banon=True\b", "--storage-option anon=true", text)
        return text.replace("or overwrite ", "or --overwrite ") if "overwrite" in flags else text

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        line = tuple(args)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[LINE] = line
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _notices()
            try:
                with going_on():
                    return super().invoke(ctx)
            except ZstoreError as error:
                if ctx.params["traceback"]:
                    raise
                _fail(ctx, self._with_flags(ctx, str(error)))
            except click.NoSuchOption as error:
                meant = _meant_option(error, ctx.meta[LINE])
                if meant:
                    text = f"No such option {error.option_name!r}{meant}"
                    raise click.UsageError(text, error.ctx) from None
                raise
            except click.UsageError as error:
                if error.message.startswith("Got unexpected extra argument"):
                    text = f'{error.message}; a pattern in quotes, as "*.nc", is one source'
                    raise click.UsageError(text, error.ctx) from None
                option = error.param if isinstance(error, click.BadParameter) else None
                if option and isinstance(option.type, click.IntRange) and error.message.endswith(" range."):
                    text = f"{error.message[: -len(' range.')]}; expected {_say_range(option.type)}"
                    raise click.BadParameter(text, error.ctx, option) from None
                raise
            except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
                # click handles these.
                raise
            except KeyboardInterrupt:
                self.is_interrupted = True
                raise
            except Exception as error:
                if ctx.params["traceback"]:
                    raise
                if isinstance(error, MemoryError):
                    _fail(ctx, ": ".join(filter(None, ("memory ran out", str(error)))))
                what = f"{type(error).__name__}: {error}"
                _fail(ctx, f"{what} (zstore did not foresee this; --traceback shows where)")


def _meant_option(error: click.NoSuchOption, line: tuple[str, ...]) -> str:
    """The end of an error message: the option to type in place of another tool's; "" if it is not known."""
    name = error.option_name
    # GDAL's have one dash.
    short = [word for word in line if word.startswith(name) and len(word) > 2 and not word.startswith("--")]
    meant = OTHER_OPTIONS.get(f"-{short[0]}" if short else name, ())
    known = {one for each in (error.ctx.command.params if error.ctx else ()) for one in each.opts}
    for option in meant:
        if option in known:
            return f". Did you mean {option!r}?"
        if not option.startswith("--"):
            return f"; type {option}."
    return ""


def _say_range(kind: click.IntRange) -> str:
    """The numbers that an option takes, in words."""
    if kind.max is None:
        return f"a whole number, {kind.min or 0} or more"
    return f"a whole number from {kind.min} to {kind.max}"


def _broken_command(name: str, reason: ExtensionError) -> click.Command:
    """A command that raises the reason why it cannot be loaded, so that all others can be listed and used."""

    def fail() -> None:
        raise reason

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return click.Command(name, anything, fail, help=f"(cannot be used) {reason.message}")


def _fail(ctx: click.Context, text: str) -> None:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {' '.join(text.split())}", err=True)
    ctx.exit(1)


def _notices() -> Callable[..., None]:
    """A function that prints warnings on stderr, each text once."""
    shown = set[str]()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            click.echo(f"{click.style('notice:', fg='yellow')} {text}", err=True)

    return show


def _show_version(ctx: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        click.echo(f"zstore, version {__version__} (kernels, GDAL and packages: zstore doctor)")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version of zstore; `zstore doctor` has those of kernels, GDAL and packages.",
)
@click.option("--traceback", is_flag=True, help="Show where in the program an error comes from.")
@click.option(
    "--conventions",
    metavar="NAMES",
    help="Ask these conventions in this order, names separated by commas; ... stands for all others.",
)
@click.option("--durable", is_flag=True, help="Have the disk confirm every change, to survive a power cut.")
@click.pass_context
def zstore(context: click.Context, traceback: bool, conventions: str | None, durable: bool) -> None:
    """Look at, convert and make Zarr arrays and the rasters and pyramids in them."""
    if durable:
        set_durable(True)
        context.call_on_close(lambda: set_durable(None))
    if conventions is not None:
        use = import_module("zstore").use_conventions
        context.with_resource(use(*(name.strip() for name in conventions.split(","))))
