"""`zstore tree`: draw the nodes below a path."""

from __future__ import annotations

import click

from zstore.cli.options import json_option, list_tree, say, storage_options
from zstore.nodes.group import Group
from zstore.nodes.open import open_ahead


@click.command()
@click.argument("path")
@storage_options
@click.option("--level", type=click.IntRange(min=0), help="How deep to go.")
@json_option
def tree(path: str, level: int | None, as_json: bool) -> None:
    """Draw the nodes at and below PATH."""
    with open_ahead(path) as node:
        nodes = list_tree(node, level) if as_json else []
        text = str(node.tree(level)) if isinstance(node, Group) else repr(node)
    say(as_json, {"path": path, "nodes": nodes}, text)
