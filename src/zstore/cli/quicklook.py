"""`zstore quicklook`: make a picture of a raster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zstore.cli.options import FILE, WORDS, json_option, say, storage_options


@click.command()
@click.argument("path")
@storage_options
@click.option("-o", "--output", required=True, **FILE, help="The PNG file.")
@click.option("--size", type=click.IntRange(min=1), default=1024, help="Most pixels a side.")
@click.option("--bands", **WORDS, help="One array, or three for red, green and blue.")
@click.option("--level", type=click.IntRange(min=0), help="Level to show; the one that fits by default.")
@json_option
def quicklook(
    path: str, output: Path, size: int, bands: list[str] | None, level: int | None, as_json: bool
) -> None:
    """Make a picture of PATH: stretched, north up."""
    from zstore import quicklook as make

    check_png(output, "--output")
    image = make(path, size=size, bands=bands, level=level)
    write_png(output, image)
    rows, columns = image.shape[:2]
    say(as_json, {"file": output, "columns": columns, "rows": rows}, f"{output}: {columns} × {rows}")


def check_png(output: Path, option: str) -> None:
    """Refuse a file name that does not end in ".png".

    Raises
        click.BadParameter: it does not.
    """
    if output.suffix.lower() != ".png":
        raise click.BadParameter(f"{str(output)!r}; pictures are PNG, expected NAME.png", param_hint=option)


def write_png(output: Path, image: Any) -> None:
    """Write a picture as PNG.

    Raises
        click.FileError: the file cannot be written.
    """
    from zstore.plugin.pyramids import encode_png

    try:
        output.write_bytes(encode_png(image))
    except OSError as error:
        raise click.FileError(str(output), error.strerror) from error
