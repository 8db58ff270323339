"""Makes one manifest of one file or of many, of any format that can be scanned."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Unpack

from zstore.errors import MetadataError, NotFoundError, StoreError, ZstoreError, leave_out
from zstore.plugin.jobs import (
    BegunJob,
    Estimate,
    How,
    HowWords,
    Runner,
    begin,
    counter,
    long_call,
    name_job,
)
from zstore.plugin.stores import REFERENCES, ByteRange, Store, check_target, current_storage_options
from zstore_virtual.forms import FOLDERS, check_replaceable, open_beside, plain_address, write_manifest
from zstore_virtual.manifest import Manifest, Source
from zstore_virtual.places import Place, Places, folder_of, local_path, open_place
from zstore_virtual.scan.joining import join, stack
from zstore_virtual.scan.origin import find_addresses, is_remote, place_of
from zstore_virtual.scan.parts import ScannedFile, ScanPlan, places_of

__all__ = ["virtualize"]

# The journal of what was scanned lies beside the manifest, under its name and this, until that is written.
JOURNAL = ".scanned"
STEP = "files"
WORK = "virtualize"


@long_call(
    memory="it holds the headers of a file, however large those are",
    resume="it always goes on with what an interrupted call has scanned",
    overwrite="a manifest at the target is always replaced, and anything else never",
    if_exists="it writes one manifest",
)
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
    **words: Unpack[HowWords],
) -> Manifest:
    """The manifest of one file, or of many as one hierarchy; chunks stay in their files.

    A member of a Zarr hierarchy that cannot be read is left out, of all that are joined. Files that cannot be
    read are an error that names all of them: the same call, made again, does not scan the others anew.

    sources          paths and URLs, in order, or patterns such as "data/*.nc" and "s3://bucket/data/*.nc",
                     whose files are taken in order of their names
    target           where to write the manifest (.json, .parquet); a manifest there is replaced, anything
                     else is an error. What was scanned is kept beside it until it is written, so that the
                     same call, made again, goes on after an interruption
    concat           the dimension along which files follow each other
    stack_along      a new dimension, along which each file is one item
    values           the new dimension's coordinate: a date or a number for each file
    drop             variables to leave out, by name or path
    append_to        a manifest of earlier files, which these follow; files that it has are skipped
    allow            places from which values of `append_to` may be read to compare them, where it was read
                     from a file; its own directory and the places of `sources` are allowed in any case
    storage_options  for sources and a target that are URLs

    Raises
        NotFoundError, StoreError: a file is not there, damaged, or not what the manifest says of it; or there
            is something else than a manifest at `target`.
        MetadataError: no files, many files without a dimension, or files that do not fit each other.
        UnsupportedError: something that references cannot express, which is named.
    """
    how = How(**words)
    if concat is not None and stack_along is not None:
        raise MetadataError(f"concat is {concat!r} and stack_along {stack_along!r}; expected one of them")
    if target is not None:
        check_target(os.fspath(target), REFERENCES)
    dimension = concat or stack_along
    options = current_storage_options() if storage_options is None else storage_options
    given = _find(sources, options)
    paths = given if append_to is None else _new_files(given, append_to, options)
    if dimension is None and (len(paths) > 1 or append_to is not None):
        raise MetadataError(
            f"{len(paths)} files are given and no dimension; expected one to join or stack along"
        )
    plan = ScanPlan.of(
        paths, drop=tuple(drop), dimension=dimension, is_new=stack_along is not None, options=options
    )
    how.stop_if_dry(lambda: Estimate(unit_count=len(paths), write_size=None))
    store, folder = (None, "") if target is None else _open_journal(target, options)
    job = None if store is None else _begin(plan, store, folder)
    try:
        parts = _scan(plan, len(paths), job, how)
    except ZstoreError:
        if dimension is None and store is not None and job is not None:
            _end(job, store, folder)
        raise
    broken = _broken(parts)
    if broken is not None:
        if store is not None and job is not None and all("" in part.unreadable for part in parts):
            _end(job, store, folder)  # a later call has nothing to take up
        raise broken
    lost = {path for part in parts for path in part.unreadable}
    if dimension is not None and lost:
        parts = [part.without(lost) for part in parts]
    manifest = append_to
    if dimension is None:
        manifest = parts[0].manifest
    elif parts:
        if stack_along is not None:
            parts = stack(parts, stack_along, values, append_to)
        elif values is not None:
            raise MetadataError("values are given without a new dimension; expected stack_along")
        if append_to is not None:
            parts.insert(
                0, ScannedFile("the manifest", append_to, _allowed(append_to, given, allow), options)
            )
        manifest = join(parts, dimension)
        if append_to is not None:
            manifest.address = append_to.address
    assert manifest is not None
    if target is not None:
        write_manifest(manifest, target, storage_options=storage_options, durable=how.durable)
    if store is not None and job is not None:
        _end(job, store, folder)
    return manifest


def _end(job: BegunJob, store: Store, folder: str) -> None:
    """Remove the journal."""
    job.end()
    store.delete_prefix(folder)
    store.close()


def _begin(plan: ScanPlan, store: Store, folder: str) -> BegunJob:
    """The job at the prefix of the journal, which tells of it until the manifest is written.

    What an interrupted call has scanned of the same plan is taken up; of another plan, it is removed.
    """
    name = name_job([plan.addresses.hex(), plan.drop, plan.dimension, plan.is_new])
    try:
        return begin(store, folder, WORK, {"files": name}, name=name, resume=True)
    except MetadataError:
        return begin(store, folder, WORK, {"files": name}, name=name, replace=True)


def _scan(plan: ScanPlan, count: int, job: BegunJob | None, how: How) -> list[ScannedFile]:
    """The parts of a plan, in order; those that the journal has of the same plan are not scanned again."""
    parts = dict[int, ScannedFile]()
    tick = counter(count, how.progress)

    def take(unit: Sequence[int], part: ScannedFile) -> None:
        parts[unit[0]] = part
        for path, error in part.unreadable.items():
            if path:
                leave_out(path, error)
        tick(1)

    journal = None if job is None else job.journal()
    with Runner(how.executor, journal) as runner:
        runner.run(plan, STEP, take)
    found = [parts[number] for number in range(count)]
    if journal is not None and any("" in part.unreadable for part in found):
        journal.write()
    return found


def _broken(parts: Sequence[ScannedFile]) -> ZstoreError | None:
    """The error of the first file that cannot be read, with the names of all others; None without one."""
    broken = {part.name: part.unreadable[""] for part in parts if "" in part.unreadable}
    if not broken:
        return None
    name, *others = broken
    if others:
        broken[name].message += f"; nor can these be read: {', '.join(others)}"
    return broken[name]


def _open_journal(target: str | os.PathLike[str], options: Mapping[str, Any] | None) -> tuple[Store, str]:
    """The store that the manifest will be written to, and the prefix of its journal there."""
    address = plain_address(target)
    store, name = open_beside(address, storage_options=options)
    if not address.rstrip("/").endswith(FOLDERS):
        check_replaceable(store, name, address)
    return store, name + JOURNAL


def _allowed(
    manifest: Manifest, paths: Iterable[str], allow: Iterable[str | os.PathLike[str]]
) -> tuple[str, ...]:
    """The places that values of a manifest may be read from: any where it was made in memory."""
    if manifest.address is None:
        return places_of(manifest)
    named = {folder_of(path) if is_remote(path) else path for path in map(place_of, paths)}
    return folder_of(manifest.address), *map(os.fspath, allow), *sorted(named)


def _find(sources: Any, options: Mapping[str, Any] | None) -> list[str]:
    """The paths and URLs, with those that match in place of a pattern."""
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


def _new_files(paths: Iterable[str], manifest: Manifest, options: Mapping[str, Any] | None) -> list[str]:
    """The files that a manifest does not have.

    Raises
        StoreError: a file that it has was changed since.
    """
    manifest.load()
    base = None if manifest.address is None else folder_of(manifest.address)
    folders: dict[str, str] = {}

    def resolve(place: str) -> str:
        folder, _, name = place.rpartition("/")
        if folder not in folders:
            folders[folder] = os.path.realpath(folder or "/").rstrip("/")
        return f"{folders[folder]}/{name}"

    known: dict[str, Source] = {}
    for source in manifest.sources:
        place = local_path(source.address, base)
        known[place_of(_full(source.address, base)) if place is None else resolve(place)] = source
    new, remote = [], list[tuple[str, Source]]()
    for path in paths:
        place = place_of(path) if is_remote(path) else resolve(place_of(path))
        found = [(place, known[place])] if place in known else []
        if not found and (is_remote(place) or Path(place).is_dir()):
            # A Zarr hierarchy: each of its chunks is a source.
            top = f"{place.rstrip('/')}/"
            found = [(other, source) for other, source in known.items() if other.startswith(top)]
        if not found:
            new.append(path)
        elif is_remote(place):
            remote += found
        else:
            for other, source in found:
                _check_unchanged(other, source)
    _check_remote(remote, options)
    return new


def _full(address: str, base: str | None) -> str:
    """The URL of a source of a manifest in `base`."""
    return address if is_remote(address) or base is None else f"{base.rstrip('/')}/{address}"


def _check_unchanged(path: str, source: Source) -> None:
    """Raise StoreError where a local file is not what the manifest says of it."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        raise NotFoundError("a file that the manifest has is not there", path=path) from None
    if (source.size, source.modified) not in ((found.st_size, found.st_mtime_ns), (None, None)):
        raise StoreError(
            f"file has {found.st_size} bytes and was modified at {found.st_mtime_ns} ns; expected "
            f"{source.size} and {source.modified} as when it was scanned",
            path=path,
        )


def _check_remote(known: Iterable[tuple[str, Source]], options: Mapping[str, Any] | None) -> None:
    """Raise StoreError where a remote file is not what the manifest says of it.

    There is one request for each file, many at once.
    """
    by_place: dict[Place, list[tuple[str, str, Source]]] = defaultdict(list)
    for address, source in known:
        place, name = Places([folder_of(address)], None).find(address)
        by_place[place].append((name, address, source))
    for place, files in by_place.items():
        with open_place(place, options) as store:
            parts = store.get_parts([(name, ByteRange(0, 1)) for name, _, _ in files])
        for (_, address, source), part in zip(files, parts, strict=True):
            if part is None:
                raise NotFoundError("a file that the manifest has is not there", path=address)
            has_other_tag = None not in (source.tag, part.version) and source.tag != part.version
            if source.size not in (None, part.total_size) or has_other_tag:
                raise StoreError(
                    f"file has {part.total_size} bytes and the entity tag {part.version!r}; expected "
                    f"{source.size} and {source.tag!r} as when it was scanned",
                    path=address,
                )
