"""`zstore plugins`: what is offered, and the beginnings of an offer of one's own."""

from __future__ import annotations

import click
from rich.table import Table

from zstore.cli.options import show_table
from zstore.cli.plugins_new import new

__all__ = ["plugins"]


@click.group(invoke_without_command=True)
@click.pass_context
def plugins(ctx: click.Context) -> None:
    """List everything that zstore and its plugins offer, and what could not be loaded."""
    if ctx.invoked_subcommand is not None:
        return
    from zstore.extensions.registry import list_offers

    table = Table("kind", "name", "aliases", "package", "version", "state", "detail")
    for line in list_offers():
        table.add_row(
            line.kind, line.name, ", ".join(line.aliases), line.package, line.version, line.state, line.detail
        )
    show_table(table)


plugins.add_command(new)
