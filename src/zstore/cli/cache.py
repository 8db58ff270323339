"""`zstore cache`: look at a cache of remote values on the local disk, and clear it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from zstore.base.sizes import format_size
from zstore.cli.options import json_option, say
from zstore.storage.cached import clear_disk_cache, disk_cache_info


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--clear", is_flag=True, help="Remove all cached values; processes that use the cache go on.")
@json_option
def cache(directory: Path, clear: bool, as_json: bool) -> None:
    """Show how much of remote stores is cached in DIRECTORY, by zstore.CachedStore.

    \b
    zstore cache ~/.cache/zstore
    zstore cache ~/.cache/zstore --clear
    """
    if clear:
        clear_disk_cache(directory)
    info = disk_cache_info(directory)
    used = "" if info.used is None else f", last used {datetime.fromtimestamp(info.used):%Y-%m-%d %H:%M}"
    noun = "store" if info.store_count == 1 else "stores"
    counts = f"{info.range_count:,} ranges of {info.value_count:,} values, {info.store_count} {noun}"
    sizes = f"{format_size(info.stored_size)} of values, {format_size(info.file_size)} on the disk"
    text = f"{directory}: {sizes}; {counts}{used}"
    say(as_json, {"directory": str(directory), **info._asdict()}, text)
