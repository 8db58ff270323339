"""`zstore manifest`: the hashes of all that a store holds."""

from __future__ import annotations

import json
from typing import Any

import click

from zstore.cli.options import FILE, show_progress, storage_options


@click.command()
@click.argument("path")
@storage_options
@click.option("-o", "--output", **FILE, help="Write it to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the count of keys and the root hash in JSON.")
def manifest(path: str, output: Any, as_json: bool) -> None:
    """Hash every key of PATH with SHA-256, and all together; nothing is decoded.

    Without --output the manifest is printed. `sha256sum -c` reads it in the directory, and
    `zstore verify PATH --manifest FILE` compares any store with it.

    \b
    zstore manifest scene.zarr -o scene.sha256
    zstore manifest s3://bucket/scene.zarr -o scene.sha256 --json
    """
    from zstore.upkeep.manifest import manifest as make

    with show_progress("hashing", unit="bytes") as progress:
        made = make(path, file=output, progress=progress)
    if as_json:
        click.echo(json.dumps({"path": path, "key_count": len(made), "root": made.root}, indent=2))
    elif output is None:
        for line in made.lines():
            click.echo(line, nl=False)
    else:
        click.echo(f"{output}: {len(made)} keys, root {made.root}")
