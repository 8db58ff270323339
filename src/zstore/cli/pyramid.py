"""`zstore pyramid`: build or update the coarser levels of a pyramid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import zstore as library
from zstore.cli.options import (
    CUT,
    FILE,
    above_option,
    check_options,
    codec_of,
    cutting_options,
    how_options,
    list_tree,
    one_of,
    opened,
    plan_option,
    run_job,
    say,
    storage_options,
)
from zstore.cli.quicklook import check_png, write_png

# The arguments of `build_pyramid` and `update_pyramid` that options give which have other names.
ARGUMENTS = {
    "methods": ("method",),
    "codec": ("compressors",),
    "tms": (),
    "preview": (),
    "plan": (),
    "above": (),
}


def _region_of(value: str) -> Any:
    """A region by dimension, such as "y=0:512,time=7", or the word "grown"."""
    if value == "grown":
        return value
    region: dict[str, Any] = {}
    for part in value.split(","):
        name, _, span = part.partition("=")
        begin, colon, end = span.partition(":")
        if not name.strip() or not all(not n or n.lstrip("-").isdecimal() for n in (begin, end)) or not span:
            raise click.BadParameter(f"{part!r} is no part of a region, like y=0:512 or time=7")
        first, last = (int(n) if n else None for n in (begin, end))
        region[name.strip()] = slice(first, last) if colon else first
    return region


def _factors_of(value: str) -> Any:
    """One factor, several for the last dimensions, or by name, as "z=2,y=2,x=2"."""
    try:
        return CUT["type"](value)
    except click.BadParameter:
        said = f"{value!r} is no factor, like 2 or 1,2,2 or z=2,y=2,x=2"
        raise click.BadParameter(said) from None


@click.command()
@click.argument("source")
@click.argument("target", required=False)
@storage_options
@cutting_options
@click.option(
    "--method", "methods", multiple=True, help="average, nearest, mode, ... for all, or NAME=METHOD."
)
@click.option("--nodata", type=float, help="The value that means nothing is there.")
@click.option("--mask", default="auto", help="The array whose cells are 0 where nothing is there, or none.")
@click.option(
    "--factors",
    type=_factors_of,
    metavar="N or Y,X or Z,Y,X or NAME=N,...",
    default="2",
    help="Cells of a level to one of the next.",
)
@click.option(
    "--derive",
    **one_of("auto", "base", "cascade"),
    help="Make each level of the finest (base), or of the one before (cascade).",
)
@click.option(
    "--grid",
    **one_of("aligned", "gdal"),
    help="Cells that cover whole cells, or GDAL's, which cover the same extent.",
)
@click.option(
    "--update",
    "region",
    type=_region_of,
    metavar="REGION",
    help="Bring SOURCE, a pyramid, up to date after a change: y=0:512,time=7, or 'grown'; or TARGET, "
    "a pyramid of SOURCE.",
)
@click.option(
    "--tms",
    default="native",
    metavar="NAME",
    help="The tile matrix set to lay levels on, like WebMercatorQuad; native: the data's own grid.",
)
@click.option("--min-zoom", metavar="ID", help="With --tms: the coarsest tile matrix.")
@click.option("--max-zoom", metavar="ID", help="With --tms: the finest tile matrix.")
@click.option(
    "--sampling",
    **one_of("auto", "nearest", "bilinear", "cubic", "average", "mode"),
    help="With --tms: how the finest level is sampled.",
)
@click.option("--preview", **FILE, help="A PNG file for all levels side by side.")
@above_option
@plan_option
@how_options(library.build_pyramid, library.build_tile_pyramid, library.update_pyramid)
@click.pass_context
def pyramid(
    ctx: click.Context, /, source: str, target: str | None, preview: Path | None, **options: Any
) -> None:
    """Make coarser levels of SOURCE: beside its finest level, or with it in TARGET."""
    as_json = options["as_json"]
    for word in ("plan", "dry_run"):
        if preview is not None and options[word]:
            raise click.UsageError(f"--{word.replace('_', '-')} does not go with --preview")
    if preview is not None:
        check_png(preview, "--preview")
    if options["tms"] == "native" and (options["min_zoom"] or options["max_zoom"]):
        raise click.UsageError("--min-zoom and --max-zoom take --tms; expected --levels, or --tms")
    if options["tms"] != "native":
        _check_tiles(target, options)
        function: Any = library.build_tile_pyramid
    elif options["region"] is None:
        function = library.build_pyramid
        check_options(ctx, function, "a pyramid on the data's own grid", ARGUMENTS)
    else:
        function = library.update_pyramid
        check_options(ctx, function, "--update", {**ARGUMENTS, "plan": ("plan",)})
    said, place = _said(source, target, options), source if target is None else target
    group = run_job(said, function, label="making levels", target=place)
    document: dict[str, Any] = {"path": place, "nodes": list_tree(group)}
    text = str(group.tree())
    if preview is not None:
        image = library.preview(group)
        write_png(preview, image)
        document["preview"] = str(preview)
        text += f"\n{preview}: {image.shape[1]} × {image.shape[0]}"
    say(as_json, document, text)


def _said(source: str, target: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The values of the options by the names of the arguments of all kinds of pyramids."""
    said = {name: value for name, value in options.items() if value is not None}
    methods = {name: method for name, _, method in (m.rpartition("=") for m in options["methods"])}
    if methods:
        said["method"] = methods
    if options["codec"] is not None:
        said["compressors"] = codec_of(options["codec"])
    if options["region"] is not None:
        said["region"] = None if options["region"] == "grown" else options["region"]
        made_of = {} if target is None else {"source": opened(source, above=options["above"])}
        return {**said, "pyramid": source if target is None else target, **made_of}
    if options["mask"] == "none":
        said["mask"] = None
    said |= {
        "source": opened(source, above=options["above"]),
        "target": target,
        "copy_base": None if target is None else True,
    }
    if options["tms"] == "native":
        return said
    length, shard = options["chunks"], options["shards"]
    per_shard = None if shard is None or length is None else shard // length
    return {**said, "tile_matrix_set": options["tms"], "tile_length": length, "tiles_per_shard": per_shard}


def _check_tiles(target: str | None, options: dict[str, Any]) -> None:
    """Refuse options that do not go with --tms."""
    if target is None or options["region"] is not None:
        raise click.UsageError("--tms takes a target, and no --update")
    if options["grid"] != "aligned" or options["factors"] != 2:
        raise click.UsageError("--tms takes neither --grid nor --factors: the tile matrix set has both")
    if options["levels"] is not None:
        raise click.UsageError("--tms takes --min-zoom and --max-zoom in place of --levels")
    length, shard = options["chunks"], options["shards"]
    if any(isinstance(given, tuple) for given in (length, shard)):
        raise click.UsageError("--tms takes one length for --chunks and one for --shards")
    if shard is not None and (length is None or shard % length):
        raise click.UsageError("--tms takes --shards that are a multiple of --chunks, and both of them")
