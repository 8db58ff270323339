"""`zstore consolidate`: gather all metadata of a hierarchy in one document."""

from __future__ import annotations

import click

import zstore as library
from zstore.cli.options import json_option, say, storage_options
from zstore.errors import ZstoreError, leave_out


@click.command()
@click.argument("path")
@storage_options
@json_option
def consolidate(path: str, as_json: bool) -> None:
    """Gather the metadata of everything below the group at PATH into the group's own."""
    unreadable = dict[str, ZstoreError]()
    count = len(library.consolidate(path).members(None, unreadable=unreadable)) + len(unreadable)
    for below, error in unreadable.items():
        leave_out(below, error)
    say(as_json, {"path": path, "nodes": count}, f"{path}: {count} nodes")
