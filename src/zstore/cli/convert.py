"""`zstore convert`: rasters, NetCDF and HDF5 files to Zarr, Zarr to another Zarr, and back to rasters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from zstore import convert as convert_zarr
from zstore import (
    convert_metadata,
    netcdf_to_zarr,
    raster_to_zarr,
    rasters_to_zarr,
    zarr_to_netcdf,
    zarr_to_raster,
)
from zstore.base.sizes import format_size
from zstore.cli.options import (
    SELECTING,
    WORDS,
    above_option,
    asked,
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
    selected,
    selection_options,
    storage_options,
)
from zstore.storage.kinds import (
    GEOTIFF,
    NETCDF,
    PICTURE,
    REFERENCES,
    TILES,
    VIEW,
    ZIP,
    FileKind,
    is_netcdf,
    kind_by_name,
    kind_of_file,
)
from zstore.storage.url import current_storage_options, find_file, find_pattern

# The commands that make files of other kinds, or Zarrs of them, and what they call source and target.
ITEMS = FileKind("a list of STAC items")
OTHERS = {
    ITEMS: ("cube", "items", "target"),
    PICTURE: ("quicklook", "path", "output"),
    TILES: ("export", "store", "target"),
    REFERENCES: ("virtualize", "sources", "target"),
}
# Where the first bytes of a file in JSON say that it is of STAC.
SNIFFED_SIZE = 4096
ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray", "meta")
# The function of each kind of conversion, whose arguments say which options go with it, and its name.
KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "stack": (rasters_to_zarr, "several rasters"),
    "raster": (zarr_to_raster, "a GeoTIFF made of a Zarr"),
    "file": (zarr_to_netcdf, "a NetCDF file made of a Zarr"),
    "netcdf": (
        netcdf_to_zarr,
        "a NetCDF or HDF5 file, which is converted as it is (`zstore pyramid` makes levels of the Zarr)",
    ),
    "zarr": (convert_zarr, "a Zarr made of a Zarr"),
    "scene": (raster_to_zarr, "a Zarr made of a raster"),
    "documents": (convert_metadata, "--metadata-only"),
}
# The arguments that options give which have other names; what can go on can be planned.
ARGUMENTS = {
    "metadata_only": (),
    "codec": ("compressors", "compress"),
    "pyramid": ("levels",),
    "bands": ("bands", "arrays"),
    "cog": ("driver",),
    "plan": ("resume",),
    **dict.fromkeys(SELECTING, ()),
}
# The kinds that read a part; files that become a Zarr are read as Zarrs are, if a part of them is wanted.
OF_PARTS = ("raster", "file", "zarr")


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="SOURCE... [TARGET]")
@storage_options
@cutting_options
@click.option(
    "--metadata-only", is_flag=True, help="Zarr to Zarr: write other documents over the same chunks."
)
@click.option("--remove-old", is_flag=True, help="With --metadata-only: remove the documents there were.")
@click.option("--check", is_flag=True, help="Zarr to Zarr: compare all values afterwards.")
@click.option("--checksum", is_flag=True, help="Zarr to Zarr: store a CRC-32C with every chunk.")
@click.option(
    "--scratch", metavar="PLACE", help="Zarr to Zarr: a directory or URL for what is kept in between."
)
@click.option(
    "--stack",
    type=click.Choice(["time", "bands", "mosaic"]),
    help="Several rasters: one behind the other in time, band beside band, or side by side.",
)
@click.option(
    "--times",
    help="With --stack time: a pattern of the names as S2_%Y%m%d_*, a tag, or a date for each, by commas.",
)
@click.option("--pyramid", is_flag=True, help="Make levels until the coarsest fits one chunk.")
@click.option("--method", default="average", help="How coarser levels are made.")
@click.option("--bands", **WORDS, help="Bands of the raster by number, or arrays of a Zarr or file by name.")
@click.option(
    "--packing",
    **one_of("attributes", "codecs"),
    help="How scaled bands are packed: as CF's attributes say, or by codecs, which Zarr v3 has.",
)
@click.option("--level", type=click.IntRange(min=0), default=0, help="Level to write as a raster.")
@selection_options
@above_option
@click.option("--cog", is_flag=True, help="Write the raster as a cloud-optimised GeoTIFF.")
@plan_option
@how_options(convert_zarr, raster_to_zarr, rasters_to_zarr, netcdf_to_zarr, zarr_to_raster, zarr_to_netcdf)
@click.pass_context
def convert(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Make a Zarr of rasters, a NetCDF or HDF5 file or a Zarr, or what TARGET's ending names.

    .tif is a GeoTIFF, .nc NetCDF-4, .png a picture, .pmtiles and .mbtiles are tiles, .json and .parquet
    references.

    Several NetCDF files or Zarrs are joined along the dimension that differs, several rasters by --stack; a
    pattern in quotes, as "*.nc", is one source in every command. Of a Zarr, --chunks and --shards are for
    the last dimensions; --format 1, 2 or 3 (the default). With --metadata-only there is no TARGET.

    \b
    zstore convert maps.zarr series.zarr --chunks 8760,32,32 --memory 4G --dry-run
    zstore convert old.zarr s3://bucket/new.zarr --shards 4096 --codec zstd:5 --resume
    zstore convert old.zarr --metadata-only
    zstore convert scene.tif scene.zarr --pyramid
    zstore convert cube.zarr june.tif --select time=2020-06,level=700 --bands t2m
    zstore convert cube.zarr cube.nc --codec zlib:5
    zstore convert era5_*.nc era5.zarr --chunks time=240,y=auto
    zstore convert items.json cube.zarr --bands B04
    zstore convert S2_*.tif series.zarr --stack time --times S2_%Y%m%d_* --dry-run
    """
    source, *more = paths
    is_part = any(options[name] for name in SELECTING)
    if options["metadata_only"]:
        _check(ctx, "documents", is_part=is_part)
        if more:
            raise click.UsageError("--metadata-only changes SOURCE itself; expected no TARGET")
        zarr_format: Any = options["zarr_format"] or 3
        with asked():
            made = convert_metadata(source, zarr_format=zarr_format, remove_old=options["remove_old"])
        _say_node(options, source, made)
        return
    if not more:
        raise click.UsageError("Missing argument 'TARGET'.")
    if options["remove_old"]:
        raise click.UsageError("--remove-old goes with --metadata-only")
    target, is_stack = more[-1], options["stack"] is not None or len(more) > 1
    other = kind_by_name(target)
    if len(more) == 1 and _is_of_items(source):
        other = ITEMS
    if other in OTHERS and (other is ITEMS or not Path(target).is_dir()):
        _hand_over(ctx, other, list(paths[:-1]), target)
        return
    if options["times"] is not None and not is_stack:
        raise click.UsageError("--times goes with --stack time")
    sources: Any = list(paths[:-1]) if is_stack else source
    kind = "stack" if is_stack else _kind(source, target)
    if is_stack and Path(target).is_file() and kind_by_name(target) is kind_by_name(source):
        raise click.UsageError(
            f"{target!r} is a file as the others are; expected a TARGET behind all sources"
        )
    if is_stack and options["stack"] is None and not any(map(_is_raster, sources)):
        # What has coordinates needs no word for how it is joined.
        is_stack, kind = False, _kind_of_target(target) or "zarr"
    if (is_part and kind == "scene") or (kind == "netcdf" and (is_part or options["bands"])):
        kind = "zarr"
    _check(ctx, kind, is_part=is_part)
    function, what = KINDS[kind]
    if kind != "zarr":
        if options["zarr_format"] == 1:
            raise click.UsageError(f"--format 1 does not go with {what}")
        for name in ("chunks", "shards"):
            is_long = isinstance(options[name], tuple) and len(options[name]) > 2
            if is_long or (isinstance(options[name], dict) and kind != "netcdf"):
                raise click.BadParameter("expected one length or two, Y,X", param_hint=f"--{name}")
    if is_stack:
        _check_stack(paths[:-1], target, options)
    is_file = kind in ("raster", "file")
    label, unit = ("writing" if is_file else "converting"), "chunks" if kind == "zarr" else "cells"
    if kind in OF_PARTS:
        sources = selected(sources, options, None if kind == "raster" else options.pop("bands"))
    if kind == "raster":
        sources = opened(sources, above=options.pop("above", False))
    said = _said(options, function)
    made = run_job(said, function, sources, target, label=label, unit=unit, target=target)
    if is_file:
        size = made.stat().st_size
        say(options["as_json"], {"path": target, "size": size}, f"{made}: {format_size(size)}")
    else:
        _say_node(options, target, made)


def _hand_over(context: click.Context, kind: FileKind, sources: list[str], target: str) -> None:
    """Run the command that makes files of another kind, with the options that are said and that it has."""
    word, of_source, of_target = OTHERS[kind]
    above = context.parent
    assert above is not None
    assert isinstance(above.command, click.Group)
    command = above.command.get_command(above, word)
    assert command is not None
    parameters = {parameter.name: parameter for parameter in command.params}
    if len(sources) > 1 and parameters[of_source].nargs == 1:
        raise click.UsageError(f"there are {len(sources)} sources; expected one for {kind.noun}")
    said = dict[str, Any]()
    for option in context.command.params:
        name = option.name or ""
        is_said = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_said and isinstance(option, click.Option) and option.expose_value:
            if name not in parameters:
                more = f"`zstore {word} --help` lists what does"
                raise click.UsageError(f"{option.opts[-1]} does not go with {kind.noun}; {more}")
            said[name] = context.params[name]
    source: Any = sources[0] if parameters[of_source].nargs == 1 else tuple(sources)
    output = parameters[of_target].type_cast_value(context, target)
    context.invoke(command, **{of_source: source, of_target: output, **said})


def _check(context: click.Context, kind: str, *, is_part: bool = False) -> None:
    if is_part and kind not in OF_PARTS:
        raise click.UsageError(f"--select and --bbox do not go with {KINDS[kind][1]}")
    whole = dict.fromkeys(["bands"], ()) if kind in ("zarr", "file") else {}
    inherited = {"above": ()} if kind == "raster" else {}
    check_options(context, *KINDS[kind], {**ARGUMENTS, **whole, **inherited})


def _kind(source: str, target: str) -> str:
    """The kind of the conversion of one source, by names and content."""
    if is_netcdf(source):
        return _kind_of_target(target) or "netcdf"
    # GDAL has settings of its own for buckets; with ours, a raster is read as what it opens as.
    is_ours = _is_zarr(source) or (":/" in source and bool(current_storage_options()))
    return _kind_of_target(target) or ("zarr" if is_ours else "scene")


def _kind_of_target(target: str) -> str | None:
    """The kind of conversion that makes files of the target's ending; None of a Zarr."""
    kinds = {GEOTIFF: "raster", NETCDF: "file"}
    kind = kind_by_name(target)
    return None if kind is None else kinds.get(kind)


def _is_raster(source: str) -> bool:
    return not (is_netcdf(source) or _is_zarr(source))


def _say_node(options: dict[str, Any], path: str, node: Any) -> None:
    text = str(node.tree()) if hasattr(node, "tree") else f"{node.name} {node.shape} {node.dtype}"
    say(options["as_json"], {"path": path, "nodes": list_tree(node)}, text)


def _check_stack(sources: tuple[str, ...], target: str, options: dict[str, Any]) -> None:
    if options["stack"] is None:
        for source in sources:
            if not Path(source).exists() and "://" not in source and ":" not in source:
                raise click.UsageError(f"there is no {source!r}; expected files, Zarrs or rasters")
        others = [source for source in sources if not _is_raster(source)]
        if others:
            raise click.UsageError(
                f"there are rasters, and {others[0]!r} is none; expected sources of one kind"
            )
        raise click.UsageError(f"there are {len(sources)} rasters; expected --stack time, bands or mosaic")
    other = kind_by_name(target)
    if other in (GEOTIFF, NETCDF):
        raise click.UsageError(f"--stack makes a Zarr; {target!r} would be {other.noun}")
    for source in sources:
        if not _is_raster(source):
            raise click.UsageError(f"--stack is for rasters; {source!r} is none")


def _said(options: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """The values of the options by the names of a function's arguments."""
    said = {name: value for name, value in options.items() if value is not None}
    codec, bands, times = options["codec"], options.get("bands"), options["times"]
    if codec is not None:
        said |= {"compressors": codec_of(codec), "compress": None if codec == "none" else codec}
    if options["cog"]:
        said["driver"] = "COG"
    if options["pyramid"] and options["levels"] is None:
        said["levels"] = None
    if times is not None and "," in times and "%" not in times:
        said["times"] = times.split(",")
    if function is zarr_to_raster:
        said["arrays"] = bands
    elif bands is not None:
        if not all(band.isdecimal() for band in bands):
            wrong = f"{','.join(bands)!r}; expected numbers of bands, like 3,2,1"
            raise click.BadParameter(wrong, param_hint="--bands")
        said["bands"] = [int(band) for band in bands]
    if function is convert_zarr:
        # One length is for the last two dimensions, as it is of rasters.
        both = {name: said[name] for name in ("chunks", "shards") if isinstance(said.get(name), int)}
        said |= {name: (length, length) for name, length in both.items()}
    return said


def _is_of_items(source: str) -> bool:
    """Whether a file in JSON lists STAC items."""
    path = Path(source)
    if not path.is_file() or kind_by_name(source) is not REFERENCES:
        return False
    with path.open("rb") as file:
        start = file.read(SNIFFED_SIZE)
    return b'"stac_version"' in start or b'"FeatureCollection"' in start


def _is_zarr(source: str) -> bool:
    """Whether there is a Zarr at a path or URL, or a node inside a file, rather than a raster."""
    path = Path(source)
    if path.is_dir():
        is_zarr = any((path / mark).exists() for mark in ZARR_MARKS) or any(path.glob("*/meta"))
        return is_zarr or find_file(source) is not None
    if path.is_file():
        # A list of rasters in JSON goes by GDAL's word for it, as STACIT:items.json.
        return kind_of_file(path) in (ZIP, REFERENCES, VIEW)
    kind = kind_by_name(source)
    is_far = "://" in source and not (kind is not None and kind.scheme == "raster")
    return kind is ZIP or is_far or find_file(source) is not None or find_pattern(source) is not None
