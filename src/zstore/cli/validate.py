"""`zstore validate`: check metadata against the rules of the conventions."""

from __future__ import annotations

from pathlib import Path

import click

from zstore.cli.options import FILE, WORDS, above_option, json_option, storage_options
from zstore.extensions.builtin import CLASSES, PROFILES


@click.command()
@click.argument("path")
@storage_options
@click.option(
    "--profile",
    type=click.Choice((*PROFILES, "auto")),
    help="Rules of one document, as severe as it has them.",
)
@click.option("--class", "classes", **WORDS, help=f"Only these requirements classes: {', '.join(CLASSES)}.")
@click.option("--deep", is_flag=True, help="Look at values too: recompute samples of levels, list chunks.")
@click.option("--strict", is_flag=True, help="Warnings fail as errors do.")
@above_option
@json_option
@click.option("--junit", **FILE, help="Write JUnit's XML to a file.")
@click.option("--all", "show_all", is_flag=True, help="Show every finding of a rule, not the first ten.")
def validate(
    path: str,
    profile: str | None,
    classes: list[str] | None,
    deep: bool,
    strict: bool,
    above: bool,
    as_json: bool,
    junit: Path | None,
    show_all: bool,
) -> None:
    """Report the errors of PATH: where, the expected value, and the fix; an error fails."""
    from zstore import validate as check
    from zstore.nodes.open import find_outermost

    for name in classes or ():
        if name not in CLASSES:
            raise click.BadParameter(f"{name!r}; expected of {', '.join(CLASSES)}", param_hint="--class")
    store, inner = find_outermost(path) if above else (path, None)
    verdict = check(store, profile, classes, deep, path=inner)
    if junit is not None:
        try:
            junit.write_text(verdict.as_junit(strict=strict), encoding="utf-8")
        except OSError as error:
            raise click.FileError(str(junit), error.strerror) from error
    text = verdict.as_json() if as_json else verdict.as_text(most=None if show_all else 10)
    click.echo(text, nl=False)
    if not verdict.is_valid(strict=strict):
        raise SystemExit(1)
