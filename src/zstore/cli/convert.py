"""`zstore convert`: rasters, NetCDF and HDF5 files to Zarr, Zarr to another Zarr, and back to rasters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from zstore.base.sizes import format_size
from zstore.cli.options import (
    SIZE,
    WORDS,
    check_plan,
    codec_of,
    cutting_options,
    json_option,
    list_tree,
    one_of,
    plan_option,
    run_job,
    say,
    show_progress,
    storage_options,
)
from zstore.jobs.plan import Estimate
from zstore.storage.url import REFERENCES

RASTER_SUFFIXES = (".tif", ".tiff")
ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray", "meta")
# Options that say what rasters mean, and how they are written, which a Zarr made of a Zarr has no use for.
MEANT_OPTIONS = ("levels", "profile", "packing")
RASTER_OPTIONS = (*MEANT_OPTIONS, "pyramid", "method", "bands", "level", "cog")
# Options of a Zarr made of a Zarr.
ZARR_OPTIONS = ("check", "memory", "scratch")
# Options of whatever makes a Zarr, which say how it goes about it.
JOB_OPTIONS = ("dry_run", "plan", "resume")

NETCDF = "a NetCDF or HDF5 file, which is converted as it is (`zstore pyramid` makes levels of the Zarr)"

# What a conversion says: for programs, and for people.
Said = tuple[dict[str, Any], str]
Make = Callable[[Any, str, dict[str, Any]], Said]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="SOURCE... [TARGET]")
@storage_options
@cutting_options
@click.option(
    "--metadata-only", is_flag=True, help="Zarr to Zarr: write other documents over the same chunks."
)
@click.option("--remove-old", is_flag=True, help="With --metadata-only: remove the documents there were.")
@click.option("--resume", is_flag=True, help="Go on with what was interrupted.")
@click.option("--check", is_flag=True, help="Zarr to Zarr: compare all values afterwards.")
@click.option("--memory", **SIZE, help="Zarr to Zarr: how much to hold at once, like 512M.")
@click.option(
    "--scratch", metavar="PLACE", help="Zarr to Zarr: a directory or URL for what is kept in between."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@plan_option
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
@click.option("--bands", **WORDS, help="Bands of the raster by number, or arrays of the Zarr by name.")
@click.option(
    "--packing",
    **one_of("attributes", "codecs"),
    help="How scaled bands are packed: as CF's attributes say, or by codecs, which Zarr v3 has.",
)
@click.option("--level", type=click.IntRange(min=0), default=0, help="Level to write as a raster.")
@click.option("--cog", is_flag=True, help="Write the raster as a cloud-optimised GeoTIFF.")
@json_option
@click.pass_context
def convert(ctx: click.Context, /, paths: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Make a Zarr of rasters, a NetCDF or HDF5 file or a Zarr, or a GeoTIFF where TARGET ends in .tif.

    Several rasters become one Zarr by --stack. Of a Zarr, --chunks and --shards are for the last
    dimensions; --format 1, 2 or 3 (the default). With --metadata-only there is no TARGET.

    \b
    zstore convert maps.zarr series.zarr --chunks 8760,32,32 --memory 4G --dry-run
    zstore convert old.zarr s3://bucket/new.zarr --shards 4096 --codec zstd:5 --resume
    zstore convert old.zarr --metadata-only
    zstore convert scene.tif scene.zarr --pyramid
    zstore convert S2_*.tif series.zarr --stack time --times S2_%Y%m%d_* --dry-run
    """
    given = {
        name for name in options if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    check_plan(options)
    say(as_json, *_convert(paths, given, {**options, "as_json": as_json}))


def _convert(paths: tuple[str, ...], given: set[str], options: dict[str, Any]) -> Said:
    from zstore.jobs.upkeep.convert import convert_metadata

    source, *more = paths
    if options["metadata_only"]:
        _refuse(given - {"metadata_only", "remove_old", "zarr_format"}, "--metadata-only")
        if more:
            raise click.UsageError("--metadata-only changes SOURCE itself; expected no TARGET")
        zarr_format: Any = options["zarr_format"] or 3
        made = convert_metadata(source, zarr_format=zarr_format, remove_old=options["remove_old"])
        return _made(source, made)
    if not more:
        raise click.UsageError("Missing argument 'TARGET'.")
    if options["remove_old"]:
        raise click.UsageError("--remove-old goes with --metadata-only")
    target, is_stack = more[-1], options["stack"] is not None or len(more) > 1
    if options["times"] is not None and not is_stack:
        raise click.UsageError("--times goes with --stack time")
    make, what, refused = _kind(source, target, is_stack=is_stack)
    _refuse(given.intersection(refused), what)
    if make is not _to_other_zarr:
        if options["zarr_format"] == 1:
            raise click.UsageError(f"--format 1 does not go with {what}")
        for name in ("chunks", "shards"):
            if isinstance(options[name], tuple) and len(options[name]) > 2:
                raise click.BadParameter("expected one length or two, Y,X", param_hint=f"--{name}")
    return make(paths[:-1] if is_stack else source, target, options)


def _kind(source: str, target: str, *, is_stack: bool) -> tuple[Make, str, Iterable[str]]:
    """(what makes it, what it is called, the options that do not go with it) of a conversion."""
    from zstore.geo.rasters import is_netcdf

    if is_stack:
        return _to_stack, "several rasters", (*ZARR_OPTIONS, "level", "cog")
    if target.lower().endswith(RASTER_SUFFIXES):
        return _to_raster, "a GeoTIFF made of a Zarr", (*ZARR_OPTIONS, *JOB_OPTIONS)
    if is_netcdf(source):
        return _from_netcdf, NETCDF, (*ZARR_OPTIONS, *MEANT_OPTIONS, "pyramid", "bands")
    if _is_zarr(source):
        return _to_other_zarr, "a Zarr made of a Zarr", RASTER_OPTIONS
    return _to_zarr, "a Zarr made of a raster", ZARR_OPTIONS


def _made(path: str, node: Any) -> Said:
    is_group = hasattr(node, "tree")
    text = str(node.tree()) if is_group else f"{node.name} {node.shape} {node.dtype}"
    return {"path": path, "nodes": list_tree(node)}, text


def _to_raster(source: str, target: str, options: dict[str, Any]) -> Said:
    from zstore.geo.rasters import zarr_to_raster

    with show_progress("writing") as progress:
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
    size = path.stat().st_size
    return {"path": target, "size": size}, f"{path}: {format_size(size)}"


def _from_netcdf(source: str, target: str, options: dict[str, Any]) -> Said:
    from zstore.geo.rasters import netcdf_to_zarr

    cut = {
        "zarr_format": options["zarr_format"] or 3,
        "chunks": options["chunks"] or "auto",
        "shards": options["shards"],
        "compressors": codec_of(options["codec"]),
    }
    return _write(netcdf_to_zarr, source, target, options, **cut, overwrite=options["overwrite"])


def _to_zarr(source: str, target: str, options: dict[str, Any]) -> Said:
    from zstore.geo.rasters import raster_to_zarr

    bands, given = _raster_options(options)
    return _write(raster_to_zarr, source, target, options, bands=bands, **given)


def _to_stack(sources: Any, target: str, options: dict[str, Any]) -> Said:
    from zstore.geo.rasters import is_netcdf, rasters_to_zarr

    stack, times = options["stack"], options["times"]
    if stack is None:
        raise click.UsageError(
            f"there are {len(sources)} sources; expected one, or --stack time, bands or mosaic for rasters"
        )
    if target.lower().endswith(RASTER_SUFFIXES):
        raise click.UsageError(f"--stack makes a Zarr; {target!r} would be a GeoTIFF")
    for source in sources:
        if is_netcdf(source) or _is_zarr(source):
            raise click.UsageError(f"--stack is for rasters; {source!r} is none")
    words: Any = times.split(",") if times is not None and "," in times and "%" not in times else times
    bands, given = _raster_options(options)
    said = {"stack": stack, "times": words, "bands": bands}
    return _write(rasters_to_zarr, list(sources), target, options, **said, **given)


def _write(
    function: Any, source: Any, target: str, options: dict[str, Any], unit: str = "cells", **given: Any
) -> Said:
    with show_progress("converting", unit) as progress:
        going = {name: options[name] for name in ("resume", "plan", "as_json", "dry_run")}
        made = run_job(function, source, target, progress=progress, **going, **given)
    if isinstance(made, Estimate):
        return _estimated(target, made)
    return _made(target, made)


def _estimated(target: str, found: Estimate) -> Said:
    """The estimate of a job of files, with the versions of those that it reads."""
    files = [file for version in found.about["sources"].values() for file in version]
    size = sum(size for _, size, _ in files)
    text = f"{len(files)} files of {format_size(size)}\n{_planned(target, found, 'written')}"
    if not found.about.get("levels_counted", True):
        text += "\n  coarser levels are not counted"
    return {"path": target, **found.as_json()}, text


def _raster_options(options: dict[str, Any]) -> tuple[list[int] | None, dict[str, Any]]:
    """The bands, and what else the options say, as `raster_to_zarr` takes it."""
    bands, levels = options["bands"], options["levels"]
    if bands is not None and not all(band.isdecimal() for band in bands):
        raise click.BadParameter(
            f"{','.join(bands)!r}; expected numbers of bands, like 3,2,1", param_hint="--bands"
        )
    return None if bands is None else [int(band) for band in bands], {
        "zarr_format": options["zarr_format"] or 3,
        "chunks": options["chunks"] or 256,
        "shards": options["shards"],
        "compressors": codec_of(options["codec"]),
        "levels": levels if levels is not None else None if options["pyramid"] else 0,
        "method": options["method"],
        "overwrite": options["overwrite"],
        "profile": options["profile"],
        "packing": options["packing"],
    }


def _is_zarr(source: str) -> bool:
    """Whether there is a Zarr at a path or URL, rather than a raster."""
    place = Path(source)
    if place.is_dir():
        return any((place / mark).exists() for mark in ZARR_MARKS) or any(place.glob("*/meta"))
    if source.lower().endswith(RASTER_SUFFIXES):
        return False
    if place.is_file():
        # A list of rasters in JSON goes by GDAL's word for it, as STACIT:items.json.
        return source.lower().endswith((".zip", *REFERENCES))
    return source.lower().endswith(".zip") or "://" in source


def _refuse(names: set[str], what: str) -> None:
    for name in sorted(names):
        option = {"zarr_format": "format"}.get(name, name.replace("_", "-"))
        raise click.UsageError(f"--{option} does not go with {what}")


def _to_other_zarr(source: str, target: str, options: dict[str, Any]) -> Said:
    from zstore.jobs.upkeep.convert import convert as convert_zarr
    from zstore.jobs.upkeep.convert import estimate_conversion

    cut: dict[str, Any] = {
        name: (lengths, lengths) if isinstance(lengths, int) else lengths
        for name in ("chunks", "shards")
        if (lengths := options[name]) is not None
    }
    if options["codec"] is not None:
        cut["compressors"] = codec_of(options["codec"])
    cut |= {name: options[name] for name in ("memory", "scratch")}
    cut["zarr_format"] = options["zarr_format"] or 3
    if options["dry_run"]:
        found = estimate_conversion(source, target, **cut)
        said = {"path": target, "arrays": {name: one.as_json() for name, one in found.items()}}
        return said, "\n".join(_planned(name or source, one) for name, one in found.items())
    cut |= {name: options[name] for name in ("check", "overwrite")}
    return _write(convert_zarr, source, target, options, "chunks", **cut)


def _planned(name: str, found: Any, what: str = "read and written") -> str:
    if found.memory_size is None:
        return f"{name}: {found.request_count // 2} chunks are copied as they are"
    return "\n".join(
        (
            f"{name}: {found.unit_count} units, {found.request_count} chunks {what}",
            f"  decodes {format_size(found.read_size)}",
            f"  writes  {format_size(found.write_size)} before they are encoded",
            f"  holds   {format_size(found.memory_size)} at once",
            f"  keeps   {format_size(found.scratch_size)} in between",
        )
    )
