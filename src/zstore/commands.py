"""What `zstore` does on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

import zstore as library
from zstore.array import Array
from zstore.errors import ZstoreError
from zstore.group import Group
from zstore.opening import open as open_node
from zstore.report import Report, describe_codecs, format_size, make_report, stored_size

__all__ = ["zstore"]

RASTER_SUFFIXES = (".tif", ".tiff")
ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")
PIPED_WIDTH = 200


class _Commands(click.Group):
    """Commands whose errors are one line on stderr and the exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_notice
            try:
                return super().invoke(ctx)
            except ZstoreError as error:
                if ctx.params["traceback"]:
                    raise
                line = " ".join(str(error).split())
                click.echo(f"{click.style('error:', fg='red', bold=True)} {line}", err=True)
                ctx.exit(1)


def _show_notice(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"{click.style('notice:', fg='yellow')} {' '.join(str(message).split())}", err=True)


def _lengths_of(value: Any) -> Any:
    """One length, or two as "rows,columns"."""
    if not isinstance(value, str):
        return value
    parts = value.split(",")
    if len(parts) > 2 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{value!r} is neither a length nor two, like 256 or 256,512")
    numbers = tuple(int(part) for part in parts)
    return numbers[0] if len(numbers) == 1 else numbers


def _words_of(value: Any) -> Any:
    """Words separated by commas."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


LENGTHS: dict[str, Any] = {"type": _lengths_of, "metavar": "N or Y,X"}
WORDS: dict[str, Any] = {"type": _words_of, "metavar": "A,B,..."}


def _cutting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of everything that writes arrays."""
    options = [
        click.option("--format", "zarr_format", type=click.Choice(["2", "3"]), help="Zarr format."),
        click.option("--chunks", **LENGTHS, help="Chunk lengths (inside shards: of inner chunks)."),
        click.option("--shards", **LENGTHS, help="Shard lengths; v3 only."),
        click.option("--codec", help="zstd, gzip, blosc, lz4, ... or none."),
        click.option("--levels", type=click.IntRange(min=0), help="How many coarser levels to make."),
        click.option("--overwrite", is_flag=True, help="Replace what is there."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _codec(name: str | None) -> Any:
    return "auto" if name is None else None if name == "none" else name


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while work goes on; nothing where nobody looks."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print(table: Table) -> None:
    console = Console(markup=False)
    if not console.is_terminal:
        console = Console(markup=False, width=PIPED_WIDTH)
    console.print(table)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(library.__version__, prog_name="zstore")
@click.option("--traceback", is_flag=True, help="Show where in the program an error comes from.")
def zstore(traceback: bool) -> None:
    """Look at, convert and make Zarr arrays and the rasters and pyramids in them."""


@zstore.command()
@click.argument("source")
@click.argument("target")
@_cutting
@click.option("--pyramid", is_flag=True, help="Make levels until the coarsest fits one chunk.")
@click.option("--method", default="average", show_default=True, help="How coarser levels are made.")
@click.option("--bands", **WORDS, help="Bands of the raster by number, or arrays of the Zarr by name.")
@click.option("--level", type=click.IntRange(min=0), default=0, help="Level to write as a raster.")
@click.option("--cog", is_flag=True, help="Write the raster as a cloud-optimised GeoTIFF.")
def convert(source: str, target: str, **options: Any) -> None:
    """Make a Zarr of a raster, or a GeoTIFF of a Zarr where TARGET ends in .tif."""
    if target.lower().endswith(RASTER_SUFFIXES):
        _to_raster(source, target, **options)
    elif any((Path(source) / mark).exists() for mark in ZARR_MARKS):
        raise click.UsageError(
            "SOURCE is a Zarr: TARGET must end in .tif (`zstore pyramid` makes a Zarr of it)"
        )
    else:
        _to_zarr(source, target, **options)


def _to_raster(source: str, target: str, **options: Any) -> None:
    from zstore.integrations.raster import zarr_to_raster

    with _progress("writing") as progress:
        path = zarr_to_raster(
            source,
            target,
            level=options["level"],
            driver="COG" if options["cog"] else "GTiff",
            arrays=options["bands"],
            compress={None: "deflate", "none": None}.get(options["codec"], options["codec"]),
            overwrite=options["overwrite"],
            progress=progress,
        )
    click.echo(f"{path}: {format_size(path.stat().st_size)}")


def _to_zarr(source: str, target: str, **options: Any) -> None:
    from zstore.integrations.raster import raster_to_zarr

    bands = options["bands"]
    if bands is not None and not all(band.isdecimal() for band in bands):
        raise click.BadParameter(
            f"{','.join(bands)!r}; expected numbers of bands, like 3,2,1", param_hint="--bands"
        )
    levels = options["levels"]
    with _progress("converting") as progress:
        group = raster_to_zarr(
            source,
            target,
            zarr_format=int(options["zarr_format"] or 3),
            chunks=options["chunks"] or 256,
            shards=options["shards"],
            compressors=_codec(options["codec"]),
            bands=None if bands is None else [int(band) for band in bands],
            levels=levels if levels is not None else None if options["pyramid"] else 0,
            method=options["method"],
            overwrite=options["overwrite"],
            progress=progress,
        )
    click.echo(str(group.tree()))


@zstore.command()
@click.argument("source")
@click.argument("target", required=False)
@_cutting
@click.option(
    "--method", "methods", multiple=True, help="average, nearest, mode, ... for all, or NAME=METHOD."
)
@click.option("--nodata", type=float, help="The value that means nothing is there.")
@click.option(
    "--factors", **LENGTHS, default="2", show_default=True, help="Cells of a level to one of the next."
)
@click.option("--derive", type=click.Choice(["cascade", "base"]), default="cascade", show_default=True)
@click.option("--grid", type=click.Choice(["aligned", "gdal"]), default="aligned", show_default=True)
def pyramid(source: str, target: str | None, **options: Any) -> None:
    """Make coarser levels of SOURCE: beside its finest level, or with it in TARGET."""
    chosen = {name: method for name, _, method in (m.rpartition("=") for m in options["methods"])}
    with _progress("making levels") as progress:
        group = library.build_pyramid(
            source,
            target,
            levels=options["levels"],
            method=chosen or "average",
            nodata="auto" if options["nodata"] is None else options["nodata"],
            factors=options["factors"],
            chunks=options["chunks"],
            shards=options["shards"] or "auto",
            compressors=_codec(options["codec"]),
            zarr_format=None if options["zarr_format"] is None else int(options["zarr_format"]),
            derive=options["derive"],
            grid=options["grid"],
            copy_base=None if target is None else True,
            overwrite=options["overwrite"],
            progress=progress,
        )
    click.echo(str(group.tree()))


@zstore.command()
@click.argument("path")
@click.option("--sizes/--no-sizes", default=None, help="Add up what is stored; by default for local files.")
def info(path: str, sizes: bool | None) -> None:
    """Say what PATH is: shape, type, codecs, sizes, CRS, extent, cells, levels, nodata."""
    node = open_node(path, mode="r")
    report = make_report(node)
    place = Table(show_header=False, box=None, pad_edge=False)
    place.add_column(style="bold")
    place.add_column(overflow="fold")
    for name, value in _facts(node, report):
        place.add_row(name, value)
    _print(place)
    if report.geo is not None and report.geo.levels:
        _print(_level_table(report))
    _print(_array_table(report, node.store.local_path() is not None if sizes is None else sizes))
    for finding in report.findings:
        if finding.severity != "note":
            click.echo(f"{finding.severity}: {finding.rule}: {finding.message} ({finding.path or '/'})")


def _facts(node: Array | Group, report: Report) -> Iterator[tuple[str, str]]:
    kind = "array" if isinstance(node, Array) else "group"
    yield "what", f"{kind}, Zarr v{node.zarr_format}"
    yield "where", "/".join(filter(None, (node.store.url, node.path)))
    geo = report.geo
    if geo is None:
        return
    yield "CRS", "none" if geo.crs is None else geo.crs.code or geo.crs.wkt.partition(",")[0]
    if geo.bounds is not None and geo.cell_size is not None:
        yield "extent", " ".join(f"{number:.12g}" for number in geo.bounds) + "  (xmin ymin xmax ymax)"
        height, width = geo.cell_size
        yield (
            "cell size",
            f"{width:.12g} × {height:.12g}" + (" (rotated)" if geo.affine and geo.affine.is_rotated else ""),
        )
    yield "grid", f"{geo.shape[0]} rows × {geo.shape[1]} columns ({', '.join(geo.dimensions)})"
    if geo.resampling is not None:
        yield "resampling", geo.resampling


def _level_table(report: Report) -> Table:
    table = Table("level", "rows", "columns", "cell size", "factors", title="levels", title_justify="left")
    for level in report.geo.levels if report.geo is not None else ():
        cell = "" if level.affine is None else " × ".join(f"{n:.12g}" for n in reversed(level.affine.cell))
        factors = " × ".join(f"{factor:g}" for factor in level.factors)
        table.add_row(level.path, str(level.shape[0]), str(level.shape[1]), cell, factors)
    return table


def _array_table(report: Report, with_sizes: bool) -> Table:
    table = Table(
        "array", "shape", "type", "chunks", "shards", "codecs", "nodata", title="arrays", title_justify="left"
    )
    if with_sizes:
        table.add_column("stored", justify="right")
        table.add_column("of", justify="right")
    variables = report.geo.variables if report.geo is not None else {}
    for path, array in report.arrays.items():
        variable = variables.get(array.basename)
        nodata = "" if variable is None or variable.nodata is None else f"{variable.nodata:.12g}"
        shapes = [
            _lengths(array.shape),
            str(array.dtype),
            _lengths(array.chunks),
            _lengths(array.shards or ()),
        ]
        sizes = [format_size(stored_size(array)), format_size(array.nbytes)] if with_sizes else []
        table.add_row(path, *shapes, describe_codecs(array), nodata, *sizes)
    return table


def _lengths(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


@zstore.command()
@click.argument("path")
@click.option("--level", type=click.IntRange(min=0), help="How deep to go.")
def tree(path: str, level: int | None) -> None:
    """Draw what is at PATH and below it."""
    node = open_node(path, mode="r")
    click.echo(str(node.tree(level)) if isinstance(node, Group) else repr(node))


@zstore.command()
@click.argument("path")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The PNG file."
)
@click.option(
    "--size", type=click.IntRange(min=1), default=1024, show_default=True, help="Most pixels a side."
)
@click.option("--bands", **WORDS, help="One array, or three for red, green and blue.")
@click.option("--level", type=click.IntRange(min=0), help="Level to show; the one that fits by default.")
def quicklook(path: str, output: Path, size: int, bands: list[str] | None, level: int | None) -> None:
    """Make a picture of PATH: stretched, north up."""
    from zstore.quicklook import encode_png
    from zstore.quicklook import quicklook as make

    image = make(path, size=size, bands=bands, level=level)
    try:
        output.write_bytes(encode_png(image))
    except OSError as error:
        raise click.FileError(str(output), error.strerror) from error
    click.echo(f"{output}: {image.shape[1]} × {image.shape[0]}")


@zstore.command()
@click.argument("path")
def consolidate(path: str) -> None:
    """Gather the metadata of everything below the group at PATH into the group's own."""
    count = len(library.consolidate(path).members(None))
    click.echo(f"{path}: {count} nodes")


@zstore.command()
def plugins() -> None:
    """List everything that zstore and its plugins offer, and what could not be loaded."""
    from zstore.extensions.registry import list_offers

    table = Table("kind", "name", "aliases", "package", "version", "state", "detail")
    for line in list_offers():
        table.add_row(
            line.kind, line.name, ", ".join(line.aliases), line.package, line.version, line.state, line.detail
        )
    _print(table)
