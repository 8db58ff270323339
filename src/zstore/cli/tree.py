"""`zstore tree`: the nodes below a path."""

from __future__ import annotations

import click

from zstore.cli.options import storage_options
from zstore.nodes.group import Group
from zstore.nodes.open import open as open_node


@click.command()
@click.argument("path")
@storage_options
@click.option("--level", type=click.IntRange(min=0), help="How deep to go.")
def tree(path: str, level: int | None) -> None:
    """Draw what is at PATH and below it."""
    node = open_node(path, mode="r")
    click.echo(str(node.tree(level)) if isinstance(node, Group) else repr(node))
