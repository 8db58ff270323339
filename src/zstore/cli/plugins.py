"""`zstore plugins`: what is offered."""

from __future__ import annotations

import click
from rich.table import Table

from zstore.cli.options import show_table

__all__ = ["plugins"]


@click.command()
def plugins() -> None:
    """List everything that zstore and its plugins offer, and what could not be loaded."""
    from zstore.extensions.registry import list_offers

    table = Table("kind", "name", "aliases", "package", "version", "state", "detail")
    for line in list_offers():
        table.add_row(
            line.kind, line.name, ", ".join(line.aliases), line.package, line.version, line.state, line.detail
        )
    show_table(table)
