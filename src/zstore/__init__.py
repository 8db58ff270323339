"""Fast, safe chunked arrays in the Zarr formats, with the geospatial meaning laid over them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zstore.base import former
from zstore.errors import missing_name
from zstore.nodes import above

if TYPE_CHECKING:
    from collections.abc import Callable

    from zstore import aio, errors
    from zstore.base.limits import set_durable, set_limits
    from zstore.base.tracing import trace
    from zstore.engine.schedulers import set_cache_size, set_threads
    from zstore.engine.statistics import stats
    from zstore.geo.conventions.base import use_conventions
    from zstore.geo.pictures.quicklook import preview, quicklook
    from zstore.geo.pyramid.build import build_pyramid, build_tile_pyramid, update_pyramid
    from zstore.geo.pyramid.calculate import calculate
    from zstore.geo.pyramid.coarsen import coarsen
    from zstore.geo.pyramid.cube import cube
    from zstore.geo.pyramid.selection import select
    from zstore.geo.pyramid.tiles import open_tiles, read_tile
    from zstore.geo.pyramid.warp import GeoGrid, mosaic, reproject
    from zstore.geo.pyramid.zonal import clip, zonal_statistics
    from zstore.geo.rasters import (
        netcdf_to_zarr,
        raster_to_zarr,
        rasters_to_zarr,
        zarr_to_netcdf,
        zarr_to_raster,
    )
    from zstore.geo.report.stac import stac_item
    from zstore.geo.report.summary import describe
    from zstore.geo.resampling.methods import downsample
    from zstore.geo.validation.fixing.fix import fix, plan_fix, restore_backup
    from zstore.geo.validation.run import validate
    from zstore.guests.dask import from_dask, to_dask
    from zstore.guests.torch import to_torch
    from zstore.jobs.reduction.reduce import reduce
    from zstore.jobs.units import finish_units, plan_units, run_units
    from zstore.jobs.upkeep.convert import convert, convert_metadata
    from zstore.jobs.upkeep.copy import copy
    from zstore.jobs.upkeep.manifest import manifest
    from zstore.jobs.upkeep.verify import verify
    from zstore.nodes.array import Array
    from zstore.nodes.group import Group
    from zstore.nodes.open import (
        consolidate,
        create_array,
        create_group,
        create_hierarchy,
        open,
        open_array,
        open_group,
    )
    from zstore.nodes.zarr_functions import (
        array,
        create,
        empty,
        empty_like,
        full,
        full_like,
        group,
        load,
        ones,
        ones_like,
        open_consolidated,
        save,
        tree,
        zeros,
        zeros_like,
    )
    from zstore.storage.cached import CachedStore, cache_info
    from zstore.training.batches import Batches, batches
    from zstore.views.view import View, concat, overlay, stack, unpack, view

former.install()

__version__ = "1.0.0rc1"

# By module the public names that live there, which are imported when first asked for.
_HOMES = {
    name: home
    for home, names in {
        "zstore.base.limits": "set_durable set_limits",
        "zstore.base.tracing": "trace",
        "zstore.engine.schedulers": "set_cache_size set_threads",
        "zstore.engine.statistics": "stats",
        "zstore.geo.conventions.base": "use_conventions",
        "zstore.geo.pictures.quicklook": "preview quicklook",
        "zstore.geo.pyramid.build": "build_pyramid build_tile_pyramid update_pyramid",
        "zstore.geo.pyramid.calculate": "calculate",
        "zstore.geo.pyramid.coarsen": "coarsen",
        "zstore.geo.pyramid.cube": "cube",
        "zstore.geo.pyramid.selection": "select",
        "zstore.geo.pyramid.tiles": "open_tiles read_tile",
        "zstore.geo.pyramid.warp": "GeoGrid mosaic reproject",
        "zstore.geo.pyramid.zonal": "clip zonal_statistics",
        "zstore.geo.rasters.geotiff": "zarr_to_raster",
        "zstore.geo.rasters.netcdf": "netcdf_to_zarr",
        "zstore.geo.rasters.netcdf_target": "zarr_to_netcdf",
        "zstore.geo.rasters.raster": "raster_to_zarr",
        "zstore.geo.rasters.stack": "rasters_to_zarr",
        "zstore.geo.report.stac": "stac_item",
        "zstore.geo.report.summary": "describe",
        "zstore.geo.resampling.methods": "downsample",
        "zstore.geo.validation.fixing.fix": "fix plan_fix restore_backup",
        "zstore.geo.validation.run": "validate",
        "zstore.guests.dask": "from_dask to_dask",
        "zstore.guests.torch": "to_torch",
        "zstore.jobs.reduction.reduce": "reduce",
        "zstore.jobs.units": "finish_units plan_units run_units",
        "zstore.jobs.upkeep.convert": "convert convert_metadata",
        "zstore.jobs.upkeep.copy": "copy",
        "zstore.jobs.upkeep.manifest": "manifest",
        "zstore.jobs.upkeep.verify": "verify",
        "zstore.nodes.array": "Array",
        "zstore.nodes.group": "Group",
        "zstore.nodes.open": (
            "consolidate create_array create_group create_hierarchy open open_array open_group"
        ),
        "zstore.nodes.zarr_functions": (
            "array create empty empty_like full full_like group load ones ones_like open_consolidated "
            "save tree zeros zeros_like"
        ),
        "zstore.storage.cached": "CachedStore cache_info",
        "zstore.training.batches": "Batches batches",
        "zstore.views.view": "View concat overlay stack unpack view",
    }.items()
    for name in names.split()
}

__all__ = [
    "Array",
    "Batches",
    "CachedStore",
    "GeoGrid",
    "Group",
    "View",
    "aio",
    "array",
    "batches",
    "build_pyramid",
    "build_tile_pyramid",
    "cache_info",
    "calculate",
    "clip",
    "coarsen",
    "concat",
    "consolidate",
    "convert",
    "convert_metadata",
    "copy",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "cube",
    "describe",
    "downsample",
    "empty",
    "empty_like",
    "errors",
    "finish_units",
    "fix",
    "from_dask",
    "full",
    "full_like",
    "get_include",
    "group",
    "load",
    "manifest",
    "mosaic",
    "netcdf_to_zarr",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_tiles",
    "overlay",
    "plan_fix",
    "plan_units",
    "preview",
    "quicklook",
    "raster_to_zarr",
    "rasters_to_zarr",
    "read_tile",
    "reduce",
    "reproject",
    "restore_backup",
    "run_units",
    "save",
    "select",
    "set_cache_size",
    "set_durable",
    "set_limits",
    "set_threads",
    "stac_item",
    "stack",
    "stats",
    "to_dask",
    "to_torch",
    "trace",
    "tree",
    "unpack",
    "update_pyramid",
    "use_conventions",
    "validate",
    "verify",
    "view",
    "zarr_to_netcdf",
    "zarr_to_raster",
    "zeros",
    "zeros_like",
    "zonal_statistics",
]


def get_include() -> str:
    """The directory of `zstore_codec.h`, for extensions that offer native codecs."""
    from pathlib import Path

    return str(Path(__file__).parent / "_ext" / "include")


def _load(home: str, name: str) -> Any:
    """An object of another module, imported now.

    Raises
        UnsupportedError: the module's wing was left out of this installation.
    """
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("zstore."):
            raise
        from zstore.errors import UnsupportedError

        raise UnsupportedError(
            f"{name!r} needs the module {home!r}, and this installation lacks {error.name!r}"
        ) from error


def _late(home: str, name: str) -> Callable[..., Any]:
    return lambda *given, **named: _load(home, name)(*given, **named)


# What methods of nodes use of the wings above.
above.read_tile = _late("zstore.geo.pyramid.tiles", "read_tile")
above.reduce = _late("zstore.jobs.reduction.reduce", "reduce")
above.batches = _late("zstore.training.batches", "batches")
above.group_batches = _late("zstore.training.batches", "group_batches")
above.view = _late("zstore.views.view", "view")
above.open_view = _late("zstore.views.view", "open_view")
above.circle_of_array = _late("zstore.geo.conventions.content", "circle_of_array")
above.carried_of = _late("zstore.geo.pyramid.carried", "carried_of")
above.outline = _late("zstore.geo.pyramid.outline", "outline_of")
above.render_html = _late("zstore.geo.report.notebook", "render_html")

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        if name in ("aio", "codecs", "errors", "storage", "zarr"):
            return import_module(f"zstore.{name}")
        home = _HOMES.get(name)
        if home is None:
            advice = _load("zstore.nodes.advice", "MODULE_ADVICE")
            raise missing_name("module 'zstore'", name, advice.get(name))
        value = _load(home, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
