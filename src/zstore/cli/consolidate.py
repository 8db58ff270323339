"""`zstore consolidate`: gather all metadata in one document."""

from __future__ import annotations

import click

import zstore as library
from zstore.cli.options import storage_options


@click.command()
@click.argument("path")
@storage_options
def consolidate(path: str) -> None:
    """Gather the metadata of everything below the group at PATH into the group's own."""
    count = len(library.consolidate(path).members(None))
    click.echo(f"{path}: {count} nodes")
