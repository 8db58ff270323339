"""`zstore manifest`: hash every value of a store."""

from __future__ import annotations

import sys
from typing import Any

import click

from zstore import manifest as make
from zstore.cli.options import FILE, how_options, run_job, say, storage_options
from zstore.errors import printable


@click.command()
@click.argument("path")
@storage_options
@click.option("-o", "--output", **FILE, help="Write it to this file.")
@how_options(make)
def manifest(path: str, output: Any, **options: Any) -> None:
    """Hash every key of PATH with SHA-256, and all together; nothing is decoded.

    Without --output the manifest is printed. `sha256sum -c` reads it in the directory, and
    `zstore verify PATH --manifest FILE` compares any store with it.

    \b
    zstore manifest scene.zarr -o scene.sha256
    zstore manifest s3://bucket/scene.zarr -o scene.sha256 --json
    """
    made = run_job(options, make, path, file=output, label="hashing", unit="bytes", target=path)
    as_json = options["as_json"]
    if output is None and not as_json:
        # Whatever a name holds is written as it is, but to a terminal.
        for line in made.lines():
            shown = printable(line.decode(errors="replace").rstrip("\n"))
            click.echo(f"{shown}\n" if sys.stdout.isatty() else line, nl=False)
        return
    document = {"path": path, "key_count": len(made), "root": made.root}
    say(as_json, document, f"{output}: {len(made)} keys, root {made.root}")
