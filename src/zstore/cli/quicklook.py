"""`zstore quicklook`: a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zstore.cli.options import FILE, WORDS, storage_options


@click.command()
@click.argument("path")
@storage_options
@click.option("-o", "--output", required=True, **FILE, help="The PNG file.")
@click.option(
    "--size", type=click.IntRange(min=1), default=1024, show_default=True, help="Most pixels a side."
)
@click.option("--bands", **WORDS, help="One array, or three for red, green and blue.")
@click.option("--level", type=click.IntRange(min=0), help="Level to show; the one that fits by default.")
def quicklook(path: str, output: Path, size: int, bands: list[str] | None, level: int | None) -> None:
    """Make a picture of PATH: stretched, north up."""
    from zstore.pyramid.quicklook import quicklook as make

    write_png(output, make(path, size=size, bands=bands, level=level))


def write_png(output: Path, image: Any) -> None:
    """Write a picture, and say so."""
    from zstore.pyramid.quicklook import encode_png

    try:
        output.write_bytes(encode_png(image))
    except OSError as error:
        raise click.FileError(str(output), error.strerror) from error
    click.echo(f"{output}: {image.shape[1]} × {image.shape[0]}")
