"""`zstore plugins new`: the beginnings of a plugin package, which keeps zstore's contracts as it is made."""

from __future__ import annotations

import re
import tempfile
from importlib.resources import files
from pathlib import Path
from string import Template

import click

__all__ = ["KINDS", "new", "write_package"]

KINDS = ("store", "codec", "convention")
# Where each template goes; "$module" is the name as Python writes it.
PARTS = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "hooks.py": "src/zstore_$module/__init__.py",
    "$kind.py": "src/zstore_$module/$kind.py",
    "test_$kind.py": "tests/test_$module.py",
}


def write_package(name: str, kind: str, parent: Path) -> Path:
    """The folder "zstore-NAME" below `parent`, with a package that offers NAME.

    Raises
        FileExistsError: there is such a folder.
    """
    folder = parent / f"zstore-{name}"
    if folder.exists():
        raise FileExistsError(f"{str(folder)!r} is there already")
    capital = "".join(part.capitalize() for part in name.split("-"))
    words = {
        "name": name,
        "module": name.replace("-", "_"),
        "kind": kind,
        "class_name": capital if kind == "convention" else f"{capital}{kind.capitalize()}",
        "rule": name.upper(),
    }
    templates = files("zstore.cli") / "templates"
    with tempfile.TemporaryDirectory(dir=parent, prefix=".zstore-") as scratch:
        made = Path(scratch) / folder.name
        for part, place in PARTS.items():
            target = made / Template(place).substitute(words)
            target.parent.mkdir(parents=True, exist_ok=True)
            source = templates / f"{Template(part).substitute(words)}.in"
            target.write_text(Template(source.read_text("utf-8")).substitute(words), "utf-8")
        made.rename(folder)
    return folder


@click.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="What the plugin offers.")
@click.option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Directory to write the folder to; here by default.",
)
def new(name: str, kind: str, into: Path) -> None:
    """Write the folder zstore-NAME: a package that offers NAME, with a contract test that passes."""
    from zstore.extensions.registry import list_offers

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise click.BadParameter(
            f"{name!r}; expected small letters and digits, as in 'acme' or 'acme-2'", param_hint="NAME"
        )
    taken = [line for line in list_offers() if line.kind == kind and name in (line.name, *line.aliases)]
    if taken:
        raise click.BadParameter(f"{name!r} is a {kind} of {taken[0].package} already", param_hint="NAME")
    try:
        folder = write_package(name, kind, into)
    except FileExistsError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        click.echo(str(file))
    click.echo(f'next: cd {folder} && pip install -e ".[test]" && pytest')
