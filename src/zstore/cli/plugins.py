"""`zstore plugins`: list what zstore and plugins offer, and write a new plugin package."""

from __future__ import annotations

import re
import shutil
import tempfile
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

import click
from rich.table import Table

import zstore as library
from zstore.cli.options import json_option, say, show_table
from zstore.extensions.plugins import KINDS as HOOKS
from zstore.extensions.registry import REGISTRIES, list_offers

# The values of --kind, and the kind of offer of each.
KINDS = {
    "store": "store",
    "codec": "codec",
    "native-codec": "codec",
    "data-type": "data type",
    "resampler": "resampler",
    "convention": "convention",
    "job": "job",
    "command": "command",
}
# The files of a new package by the names of their templates; "$module" is the name of the plugin in Python.
PARTS = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "hooks.py": "src/zstore_$module/__init__.py",
    "$part.py": "src/zstore_$module/$part.py",
    "test_$part.py": "tests/test_$module.py",
}
NATIVE_PARTS = {"setup.py": "setup.py", "native.c": "src/zstore_$module/native.c"}
HEADER = "zstore_codec.h"


def write_package(name: str, kind: str, parent: Path) -> Path:
    """Write the folder "zstore-NAME" below `parent`, with a package that offers NAME; returns its path.

    Raises
        FileExistsError: the folder exists.
    """
    folder = parent / f"zstore-{name}"
    if folder.exists():
        raise FileExistsError(f"{str(folder)!r} is there already")
    is_native = kind == "native-codec"
    capital = "".join(part.capitalize() for part in name.split("-"))
    last = KINDS[kind].rpartition(" ")[2]
    class_names = {"convention": capital, **dict.fromkeys(("command", "job"), name.replace("-", "_"))}
    words = {
        "name": name,
        "module": name.replace("-", "_"),
        "part": kind.replace("-", "_"),
        "what": kind.replace("-", " "),
        "hook": HOOKS[KINDS[kind]],
        "requires": {"convention": "zstore[geo]", "command": "zstore[cli]"}.get(kind, "zstore"),
        "needs": "Its functions are in C: to install it from this folder takes a C compiler."
        if is_native
        else "",
        "class_name": class_names.get(kind, f"{capital}{last.capitalize()}"),
        "rule": name.upper(),
    }
    templates = files("zstore.cli") / "templates"
    with tempfile.TemporaryDirectory(dir=parent, prefix=".zstore-") as scratch:
        made = Path(scratch) / folder.name
        for template, path in (PARTS | NATIVE_PARTS if is_native else PARTS).items():
            target = made / Template(path).substitute(words)
            target.parent.mkdir(parents=True, exist_ok=True)
            source = templates / f"{Template(template).substitute(words)}.in"
            target.write_text(Template(source.read_text("utf-8")).substitute(words).rstrip() + "\n", "utf-8")
        if is_native:
            # A copy, so that only a compiler is needed; it stays valid, as fields are only appended to the
            # ABI.
            shutil.copy(Path(library.get_include()) / HEADER, made / "src" / f"zstore_{words['module']}")
        made.rename(folder)
    return folder


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> None:
    """List everything that zstore and its plugins offer, and the offers that cannot be loaded."""
    if ctx.invoked_subcommand is not None:
        return
    if as_json:
        say(True, {"offers": [line._asdict() for line in list_offers()]}, "")
        return
    table = Table("kind", "name", "aliases", "package", "version", "state", "detail")
    for line in list_offers():
        table.add_row(
            line.kind, line.name, ", ".join(line.aliases), line.package, line.version, line.state, line.detail
        )
    show_table(table)


@plugins.command()
@click.argument("name")
@click.option("--kind", type=click.Choice([*KINDS]), required=True, help="What the plugin offers.")
@click.option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Directory to write the folder to; here by default.",
)
def new(name: str, kind: str, into: Path) -> None:
    """Write the folder zstore-NAME: a package that offers NAME, with a contract test that passes."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise click.BadParameter(
            f"{name!r}; expected small letters and digits, as in 'acme' or 'acme-2'", param_hint="NAME"
        )
    if iskeyword(name):
        raise click.BadParameter(f"{name!r} is a word of Python's; expected another", param_hint="NAME")
    lines = REGISTRIES[KINDS[kind]].listings()
    taken = [line for line in lines if name in (line.name, *line.aliases)]
    if taken:
        raise click.BadParameter(
            f"{name!r} is a {KINDS[kind]} of {taken[0].package} already", param_hint="NAME"
        )
    try:
        folder = write_package(name, kind, into)
    except FileExistsError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    except OSError as error:
        raise click.ClickException(f"cannot write the folder: {error}") from None
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        click.echo(str(file))
    shown = folder if folder.is_absolute() else f"./{folder}"
    click.echo(f'next: pip install -e "{shown}[test]" && pytest {shown}')
