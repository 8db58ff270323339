"""Files of any format that can be scanned, one or many, as one manifest."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.jobs.journal import Journal
from zstore.jobs.record import name_job
from zstore.jobs.runner import Executor, Runner, counter
from zstore.storage.base import ByteRange, Store, join_key
from zstore.storage.url import current_storage_options
from zstore_virtual.forms import FOLDERS, check_replaceable, open_beside, plain_address, write_manifest
from zstore_virtual.manifest import Manifest, Source
from zstore_virtual.places import Place, Places, folder_of, local_path, open_place
from zstore_virtual.scan.joining import join, stack
from zstore_virtual.scan.origin import find_addresses, is_remote, place_of
from zstore_virtual.scan.parts import Part, ScanPlan

__all__ = ["virtualize"]

# Beside the manifest, until it is there: what was scanned for it.
JOURNAL = ".scanned"
STEP = "files"


def virtualize(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    target: str | os.PathLike[str] | None = None,
    *,
    concat: str | None = None,
    stack_along: str | None = None,
    values: Iterable[Any] | None = None,
    drop: Iterable[str] = (),
    append_to: Manifest | None = None,
    allow: Iterable[str | os.PathLike[str]] = (),
    storage_options: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """The manifest of one file, or of many as one hierarchy; not a chunk is copied.

    sources          paths and URLs, in order; or a pattern such as "data/*.nc" or "s3://bucket/data/*.nc",
                     whose files are taken by name
    target           where to write it (.json, .parquet), in place of a manifest that is there, and of nothing
                     else. Beside it lies what was scanned until it is written: the same call, made again,
                     goes on after an interruption
    concat           the dimension along which files follow each other
    stack_along      a new dimension, of which each file is one item
    values           what the new dimension's coordinate says of each file: dates or numbers
    drop             variables to leave out, by name or path
    append_to        a manifest made before, which the files are to follow; those it has are passed over
    allow            where values of `append_to`, if it was read from a file, may lie that are compared:
                     beside the sources, and all that is in the directory of that file
    storage_options  of the sources that are URLs, and of `target`
    executor         runs the scans, one for each file: `concurrent.futures` executors, a dask client
    progress         called with (files done, files to do)

    Raises
        NotFoundError, StoreError: a file is not there or damaged, or is not what the manifest has of it; at
            `target` is something else than a manifest.
        MetadataError: no files, many files without a dimension, or files that do not fit each other.
        UnsupportedError: something that references cannot say, which is named.
    """
    if concat is not None and stack_along is not None:
        raise MetadataError(f"concat is {concat!r} and stack_along {stack_along!r}; expected one of them")
    dimension = concat or stack_along
    options = current_storage_options() if storage_options is None else storage_options
    paths = _find(sources, options)
    given = paths
    if append_to is not None:
        paths = _new_ones(paths, append_to, options)
    if dimension is None and (len(paths) > 1 or append_to is not None):
        raise MetadataError(
            f"{len(paths)} files are given and no dimension; expected one to join or stack along"
        )
    plan = ScanPlan.of(
        paths, drop=tuple(drop), dimension=dimension, is_new=stack_along is not None, options=options
    )
    store, folder = (None, "") if target is None else _beside(target, options)
    parts = _scan(plan, len(paths), store, folder, executor, progress)
    made = append_to
    if dimension is None:
        made = parts[0].manifest
    elif parts:
        if stack_along is not None:
            parts = stack(parts, stack_along, values, append_to)
        elif values is not None:
            raise MetadataError("values are given without a new dimension; expected stack_along")
        if append_to is not None:
            parts.insert(0, Part("the manifest", append_to, _allowed(append_to, given, allow), options))
        made = join(parts, dimension)
        if append_to is not None:
            made.address = append_to.address
    assert made is not None
    if target is not None:
        write_manifest(made, target, storage_options=storage_options)
    if store is not None:
        store.delete_prefix(folder)
        store.close()
    return made


def _scan(
    plan: ScanPlan,
    count: int,
    store: Store | None,
    folder: str,
    executor: Executor | None,
    progress: Callable[[int, int], None] | None,
) -> list[Part]:
    """The parts of a plan, in order; those in the journal of this very plan are not scanned again."""
    journal, parts = None, dict[int, Part]()
    tick = counter(count, progress)
    if store is not None:
        asked = [plan.addresses.hex(), plan.drop, plan.dimension, plan.is_new]
        journal = Journal(store, join_key(folder, name_job(asked)))

    def take(unit: Sequence[int], part: Part) -> None:
        parts[unit[0]] = part
        tick(1)

    with Runner(executor, journal) as runner:
        runner.run(plan, STEP, take)
    return [parts[number] for number in range(count)]


def _beside(target: str | os.PathLike[str], options: Mapping[str, Any] | None) -> tuple[Store, str]:
    """The store that a manifest is written to, and the prefix there of what was scanned for it."""
    address = plain_address(target)
    store, name = open_beside(address, storage_options=options)
    if not address.rstrip("/").endswith(FOLDERS):
        check_replaceable(store, name, address)
    return store, name + JOURNAL


def _allowed(
    manifest: Manifest, paths: Iterable[str], allow: Iterable[str | os.PathLike[str]]
) -> tuple[str, ...]:
    """The places that a manifest may lead to: everywhere if it was made here, and not read from a file."""
    if manifest.address is None:
        return ("/", *{folder_of(source.address) for source in manifest.sources if is_remote(source.address)})
    named = {folder_of(path) if is_remote(path) else path for path in map(place_of, paths)}
    return folder_of(manifest.address), *map(os.fspath, allow), *sorted(named)


def _find(sources: Any, options: Mapping[str, Any] | None) -> list[str]:
    """The paths and URLs, patterns made into what they match."""
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    paths: list[str] = []
    for source in (os.fspath(one) for one in given):
        if source.startswith("file://"):
            source = plain_address(source)
        if is_remote(source):
            paths += find_addresses(source, options)
        elif has_magic(source) and not Path(source).exists():
            found = sorted(glob(source))  # noqa: PTH207
            if not found:
                raise NotFoundError("no file matches", path=source)
            paths += found
        else:
            paths.append(source)
    if not paths:
        raise MetadataError("no files are given; expected one at least")
    return paths


def _new_ones(paths: Iterable[str], manifest: Manifest, options: Mapping[str, Any] | None) -> list[str]:
    """The files that the manifest does not have.

    Raises
        StoreError: one that it has was changed since.
    """
    manifest.chunks.items()  # those that come when they are asked for tell of sources, too
    base = None if manifest.address is None else folder_of(manifest.address)
    folders: dict[str, str] = {}

    def settle(place: str) -> str:
        folder, _, name = place.rpartition("/")
        if folder not in folders:
            folders[folder] = os.path.realpath(folder or "/").rstrip("/")
        return f"{folders[folder]}/{name}"

    held: dict[str, Source] = {}
    for source in manifest.sources:
        place = local_path(source.address, base)
        held[place_of(_full(source.address, base)) if place is None else settle(place)] = source
    new, far = [], list[tuple[str, Source]]()
    for path in paths:
        place = place_of(path) if is_remote(path) else settle(place_of(path))
        found = [(place, held[place])] if place in held else []
        if not found and (
            is_remote(place) or Path(place).is_dir()
        ):  # of a Zarr hierarchy every chunk is a file
            found += [(other, held[other]) for other in held if other.startswith(f"{place.rstrip('/')}/")]
        if is_remote(place):
            far += found
        for other, source in found if not is_remote(place) else ():
            _check_unchanged(other, source)
        if not found:
            new.append(path)
    _check_far(far, options)
    return new


def _full(address: str, base: str | None) -> str:
    return address if is_remote(address) or base is None else f"{base.rstrip('/')}/{address}"


def _check_unchanged(path: str, source: Source) -> None:
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        raise NotFoundError("a file that the manifest has is not there", path=path) from None
    if (source.size, source.modified) not in ((found.st_size, found.st_mtime_ns), (None, None)):
        raise StoreError(
            f"file has {found.st_size} bytes, changed at {found.st_mtime_ns}; expected {source.size} and "
            f"{source.modified} as when it was scanned",
            path=path,
        )


def _check_far(held: Iterable[tuple[str, Source]], options: Mapping[str, Any] | None) -> None:
    """Refuse URLs whose values are not what the manifest has of them; one request for each, many at once."""
    asked: dict[Place, list[tuple[str, str, Source]]] = defaultdict(list)
    for address, source in held:
        place, name = Places([folder_of(address)], None).find(address)
        asked[place].append((name, address, source))
    for place, those in asked.items():
        with open_place(place, options) as store:
            parts = store.get_parts([(name, ByteRange(0, 1)) for name, _, _ in those])
        for (_, address, source), part in zip(those, parts, strict=True):
            if part is None:
                raise NotFoundError("a file that the manifest has is not there", path=address)
            is_other = None not in (source.tag, part.version) and source.tag != part.version
            if source.size not in (None, part.total_size) or is_other:
                raise StoreError(
                    f"file has {part.total_size} bytes and the entity tag {part.version!r}; expected "
                    f"{source.size} and {source.tag!r} as when it was scanned",
                    path=address,
                )
