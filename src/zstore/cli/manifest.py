"""`zstore manifest`: hash every value of a store."""

from __future__ import annotations

from typing import Any

import click

from zstore import manifest as make
from zstore.cli.options import FILE, going, how_options, say, say_estimate, storage_options
from zstore.plugin.jobs import Estimate


@click.command()
@click.argument("path")
@storage_options
@click.option("-o", "--output", **FILE, help="Write it to this file.")
@how_options(make)
def manifest(path: str, output: Any, as_json: bool, **options: Any) -> None:
    """Hash every key of PATH with SHA-256, and all together; nothing is decoded.

    Without --output the manifest is printed. `sha256sum -c` reads it in the directory, and
    `zstore verify PATH --manifest FILE` compares any store with it.

    \b
    zstore manifest scene.zarr -o scene.sha256
    zstore manifest s3://bucket/scene.zarr -o scene.sha256 --json
    """
    with going(options, "hashing", "bytes") as words:
        made = make(path, file=output, **words)
    if isinstance(made, Estimate):
        say_estimate(as_json, path, made)
        return
    if output is None and not as_json:
        for line in made.lines():
            click.echo(line, nl=False)
        return
    document = {"path": path, "key_count": len(made), "root": made.root}
    say(as_json, document, f"{output}: {len(made)} keys, root {made.root}")
