"""One new file, made by a job beside its place: it appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from zstore.errors import StoreError
from zstore.geo.rasters.files import held_at_once
from zstore.jobs.how import How
from zstore.jobs.plan import Estimate
from zstore.jobs.runner import Runner, counter
from zstore.jobs.source import Source
from zstore.storage.kinds import FileKind, check_target, local_path
from zstore.storage.local import confirm_directory, confirm_files


def check_new_file(target: str | os.PathLike[str], kind: FileKind, how: How) -> Path:
    """The path of a file that can be made.

    Raises
        StoreError: a file is there (unless `overwrite`), it is a URL, there is no directory for it, or it has
            another ending than its kind's.
    """
    path = local_path(target)
    check_target(path.name, kind)
    if path.exists() and not how.overwrite:
        raise StoreError("a file is there already; expected none, or overwrite", path=str(path))
    if not path.parent.is_dir():
        raise StoreError("no directory to write a file to", path=str(path.parent))
    return path


def make_file(
    target: Path,
    how: How,
    make: Callable[[Path, Runner, Callable[[int], None]], Path],
    sources: Iterable[Source],
    *,
    unit_size: int,
    cell_count: int,
    estimate: Callable[[int], Estimate],
) -> Path:
    """Make a file, which then takes its place with what GDAL has written beside it; returns that place.

    make        makes the file in a directory, by a runner, telling of cells as they are written; returns it
    unit_size   the most bytes of memory for a unit
    cell_count  of all cells that are told of
    estimate    of the work, by the number of units at a time

    Raises
        ChangedError: a source was written to meanwhile; no file appears.
        StoreError: there can be no directory beside the file.
    """
    most = how.at_once(unit_size)
    how.stop_if_dry(lambda: estimate(held_at_once(how, unit_size)))
    watched = [source.watched() for source in sources]
    try:
        scratch = tempfile.TemporaryDirectory(dir=target.parent, prefix=".zstore-")
    except OSError as error:
        raise StoreError(f"file cannot be written: {error.strerror}", path=str(target)) from error
    with scratch as path:
        with Runner(how.executor, None, most) as runner:
            made = make(Path(path), runner, counter(cell_count, how.progress))
        for one in watched:
            one.check_unchanged()
        beside, placed = (file.with_name(f"{file.name}.aux.xml") for file in (made, target))
        if beside.exists():
            beside.replace(placed)
        else:
            placed.unlink(missing_ok=True)
        made.replace(target)
    if how.durable:
        for file in (target, placed):
            if file.exists():
                confirm_files(str(file))
        confirm_directory(str(target.parent))
    return target
