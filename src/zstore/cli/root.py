"""The command `zstore`, whose commands are imported when they run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

import zstore as library
from zstore.cli.options import hide_options
from zstore.errors import ZstoreError
from zstore.jobs.record import asked_as

# Each command is a function of its name in a module of its name.
COMMANDS = (
    "consolidate", "convert", "fix", "info", "plugins", "pyramid", "quicklook", "reduce", "tree", "validate",
    "verify",
)  # fmt: skip


class _Commands(click.Group):
    """Commands whose errors are one line on stderr and the exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"zstore.cli.{cmd_name}"), cmd_name)
        return command

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> Any:
        # What the words begin says, as long as it is unfinished, how to go on with it.
        with asked_as(["zstore", *hide_options(sys.argv[1:] if args is None else args)]):
            return super().main(args, *others, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_notice
            try:
                return super().invoke(ctx)
            except ZstoreError as error:
                if ctx.params["traceback"]:
                    raise
                _fail(ctx, str(error))
            except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
                # These are click's to deal with.
                raise
            except Exception as error:
                if ctx.params["traceback"]:
                    raise
                said = "memory ran out" if isinstance(error, MemoryError) else type(error).__name__
                _fail(ctx, f"{said}: {error} (zstore did not foresee this; --traceback shows where)")


def _fail(ctx: click.Context, text: str) -> None:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {' '.join(text.split())}", err=True)
    ctx.exit(1)


def _show_notice(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"{click.style('notice:', fg='yellow')} {' '.join(str(message).split())}", err=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(library.__version__, prog_name="zstore")
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
        library.set_durable(True)
        context.call_on_close(lambda: library.set_durable(None))
    if conventions is not None:
        use = import_module("zstore.conventions.order").use_conventions
        context.with_resource(use(*(name.strip() for name in conventions.split(","))))
