"""`zstore stac`: write the STAC item of a store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from zstore import stac_item
from zstore.cli.options import FILE, above_option, json_option, say, storage_options
from zstore.nodes.open import open_ahead


@click.command()
@click.argument("path")
@click.argument("target", required=False, **FILE)
@storage_options
@click.option("--id", help="Of the item; else that of the store's own item, or the store's name.")
@click.option(
    "--datetime", metavar="DATE", help="When data without a time are of: 2020-05-01, or with a time."
)
@click.option("--href", metavar="ADDRESS", help="Where readers find PATH, if not there.")
@above_option
@json_option
def stac(
    path: str,
    target: Path | None,
    id: str | None,
    datetime: str | None,
    href: str | None,
    above: bool,
    as_json: bool,
) -> None:
    """Print the STAC item of the raster or pyramid at PATH, or write TARGET.json.

    \b
    zstore stac scene.zarr scene.json --datetime 2020-05-01
    zstore cube *.json cube.zarr --bands b4,b5
    """
    if target is not None and target.suffix.lower() not in (".json", ".geojson"):
        raise click.BadParameter(f"{str(target)!r}; items are JSON, expected NAME.json", param_hint="TARGET")
    with open_ahead(path, above=above) as node:
        made = stac_item(node, href=href or _seen_from(path, target), id=id, datetime=datetime)
    text = json.dumps(made, indent=2, allow_nan=False)
    if target is None:
        click.echo(text)
        return
    try:
        target.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(target), error.strerror) from error
    say(as_json, {"file": str(target), "id": made["id"]}, f"{target}: the item {made['id']!r}")


def _seen_from(path: str, target: Path | None) -> str:
    """The address of a local path from the directory of the item; others stay."""
    if "://" in path or "::" in path:
        return path
    return Path(os.path.relpath(path, None if target is None else target.parent)).as_posix()
