"""Fast, safe chunked arrays in the Zarr formats, with the geospatial meaning laid over them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zstore.base.misses import missing_name
from zstore.nodes import above

if TYPE_CHECKING:
    from zstore import aio, errors
    from zstore.base.limits import set_limits
    from zstore.base.settings import set_durable
    from zstore.engine.pool import set_cache_size, set_threads
    from zstore.integrations.dask import from_dask, to_dask
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
    from zstore.pyramid.build import build_pyramid, build_tile_pyramid
    from zstore.pyramid.tiles import open_tiles, read_tile
    from zstore.pyramid.update import update_pyramid
    from zstore.reduction.reduce import reduce
    from zstore.resampling.methods import downsample
    from zstore.storage.cached import CachedStore
    from zstore.units import finish_units, plan_units, run_units
    from zstore.upkeep.convert import convert, convert_metadata
    from zstore.upkeep.copy import copy
    from zstore.upkeep.manifest import manifest
    from zstore.upkeep.verify import verify
    from zstore.validation.run import validate

__version__ = "0.1.0"

# Where each public name lives; imported when first asked for.
_HOMES = {
    "Array": "zstore.nodes.array",
    "CachedStore": "zstore.storage.cached",
    "Group": "zstore.nodes.group",
    "build_pyramid": "zstore.pyramid.build",
    "build_tile_pyramid": "zstore.pyramid.build",
    "consolidate": "zstore.nodes.open",
    "convert": "zstore.upkeep.convert",
    "convert_metadata": "zstore.upkeep.convert",
    "copy": "zstore.upkeep.copy",
    "create_array": "zstore.nodes.open",
    "create_group": "zstore.nodes.open",
    "create_hierarchy": "zstore.nodes.open",
    "downsample": "zstore.resampling.methods",
    "finish_units": "zstore.units",
    "from_dask": "zstore.integrations.dask",
    "manifest": "zstore.upkeep.manifest",
    "open": "zstore.nodes.open",
    "open_array": "zstore.nodes.open",
    "open_group": "zstore.nodes.open",
    "open_tiles": "zstore.pyramid.tiles",
    "plan_units": "zstore.units",
    "read_tile": "zstore.pyramid.tiles",
    "reduce": "zstore.reduction.reduce",
    "run_units": "zstore.units",
    "set_cache_size": "zstore.engine.pool",
    "set_limits": "zstore.base.limits",
    "set_durable": "zstore.base.settings",
    "set_threads": "zstore.engine.pool",
    "to_dask": "zstore.integrations.dask",
    "update_pyramid": "zstore.pyramid.update",
    "validate": "zstore.validation.run",
    "verify": "zstore.upkeep.verify",
    **dict.fromkeys(
        [
            "array",
            "create",
            "empty",
            "empty_like",
            "full",
            "full_like",
            "group",
            "load",
            "ones",
            "ones_like",
            "open_consolidated",
            "save",
            "tree",
            "zeros",
            "zeros_like",
        ],
        "zstore.nodes.zarr_functions",
    ),
}

__all__ = [
    "Array",
    "CachedStore",
    "Group",
    "aio",
    "array",
    "build_pyramid",
    "build_tile_pyramid",
    "consolidate",
    "convert",
    "convert_metadata",
    "copy",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "downsample",
    "empty",
    "empty_like",
    "errors",
    "finish_units",
    "from_dask",
    "full",
    "full_like",
    "get_include",
    "group",
    "load",
    "manifest",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_tiles",
    "plan_units",
    "read_tile",
    "reduce",
    "run_units",
    "save",
    "set_cache_size",
    "set_durable",
    "set_limits",
    "set_threads",
    "to_dask",
    "tree",
    "update_pyramid",
    "validate",
    "verify",
    "zeros",
    "zeros_like",
]


def get_include() -> str:
    """The directory of `zstore_codec.h`, for extensions that offer native codecs."""
    from pathlib import Path

    return str(Path(__file__).parent / "_ext" / "include")


def _read_tile(*given: Any, **named: Any) -> Any:
    from zstore.pyramid.tiles import read_tile

    return read_tile(*given, **named)


def _reduce(*given: Any, **named: Any) -> Any:
    from zstore.reduction.reduce import reduce

    return reduce(*given, **named)


def _render_html(node: Any) -> str:
    from zstore.report.notebook import render_html

    return render_html(node)


# What nodes show of what is built on them.
above.read_tile, above.reduce, above.render_html = _read_tile, _reduce, _render_html

if not TYPE_CHECKING:  # type checkers are to find names that are not there

    def __getattr__(name: str) -> Any:
        if name in ("aio", "codecs", "errors", "storage"):
            return import_module(f"zstore.{name}")
        home = _HOMES.get(name)
        if home is None:
            advice = import_module("zstore.nodes.advice").MODULE_ADVICE
            raise missing_name("module 'zstore'", name, advice.get(name))
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
