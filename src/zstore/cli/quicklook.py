"""`zstore quicklook`: make a picture of a raster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zstore.cli.options import (
    FILE,
    WORDS,
    above_option,
    json_option,
    opened,
    say,
    selected,
    selection_options,
    storage_options,
)


@click.command()
@click.argument("path")
@click.argument("target", required=False, **FILE)
@storage_options
@click.option("-o", "--output", **FILE, help="The PNG file, if TARGET is none.")
@click.option("--size", type=click.IntRange(min=1), default=1024, help="Most pixels a side.")
@click.option("--bands", **WORDS, help="One array, or three for red, green and blue.")
@click.option("--level", type=click.IntRange(min=0), help="Level to show; the one that fits by default.")
@click.option("--colours", help="Colour map, or grey; what suits the values' meaning by default.")
@click.option("--limits", type=(float, float), help="Values at the two ends; percentiles by default.")
@selection_options
@above_option
@json_option
def quicklook(
    path: str,
    target: Path | None,
    output: Path | None,
    size: int,
    bands: list[str] | None,
    level: int | None,
    colours: str | None,
    limits: tuple[float, float] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Make a picture of PATH, north up, in colours that suit its values: TARGET, a PNG file."""
    from zstore.geo.pictures.quicklook import draw_picture

    if target is not None and output is not None:
        raise click.UsageError(
            f"TARGET is {str(target)!r}, and --output {str(output)!r}; expected one of them"
        )
    output = target or output
    if output is None:
        raise click.UsageError("Missing argument 'TARGET'; expected NAME.png")
    check_png(output, "--output" if target is None else "TARGET")
    part = opened(selected(path, options), above=options.pop("above", False))
    picture = draw_picture(part, size=size, bands=bands, level=level, colours=colours, limits=limits)
    write_png(output, picture.image)
    rows, columns = picture.image.shape[:2]
    about = {
        "file": output,
        "columns": columns,
        "rows": rows,
        "bands": picture.bands,
        "items": picture.items,
        "colours": picture.colours,
        "limits": picture.limits,
        "units": picture.units,
    }
    say(as_json, about, f"{output}: {columns} × {rows}; {picture.caption}{_legend(picture)}")


def _legend(picture: Any) -> str:
    """The colour map with the values at its two ends; "" of three bands, and of categories."""
    if picture.colours is None:
        return ""
    ((low, high),) = picture.limits
    return f"; {picture.colours} from {low:.4g} to {high:.4g} {picture.units or ''}".rstrip()


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
    from zstore.geo.pictures.png import encode_png

    try:
        output.write_bytes(encode_png(image))
    except OSError as error:
        raise click.FileError(str(output), error.strerror) from error
