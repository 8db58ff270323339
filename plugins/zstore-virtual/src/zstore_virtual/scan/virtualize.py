"""Files of any format that can be scanned, one or many, as one manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore_virtual.forms import plain_address
from zstore_virtual.manifest import Manifest, Source
from zstore_virtual.places import folder_of, local_path
from zstore_virtual.scan.draft import place_of
from zstore_virtual.scan.files import scan_file
from zstore_virtual.scan.joining import Part, join, stack

__all__ = ["virtualize"]


def virtualize(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    concat: str | None = None,
    stack_along: str | None = None,
    values: Iterable[Any] | None = None,
    drop: Iterable[str] = (),
    append_to: Manifest | None = None,
    allow: Iterable[str | os.PathLike[str]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """The manifest of one file, or of many as one hierarchy; not a chunk is copied.

    sources      paths, in order; or a pattern such as "data/*.nc", whose files are taken by name
    concat       the dimension along which files follow each other
    stack_along  a new dimension, of which each file is one item
    values       what the new dimension's coordinate says of each file: dates or numbers
    drop         variables to leave out, by name or path
    append_to    a manifest made before, which the files are to follow; those it has already are passed over
    allow        where values of `append_to`, if it was read from a file, may lie that are compared: beside
                 the sources, and all that is in the directory of that file
    progress     called with (files done, files to do)

    Raises
        NotFoundError, StoreError: a file is not there or damaged, or is not what the manifest has of it.
        MetadataError: no files, many files without a dimension, or files that do not fit each other.
        UnsupportedError: something that references cannot say, which is named.
    """
    if concat is not None and stack_along is not None:
        raise MetadataError(f"concat is {concat!r} and stack_along {stack_along!r}; expected one of them")
    dimension = concat or stack_along
    paths = _find(sources)
    given = paths
    if append_to is not None:
        paths = _new_ones(paths, append_to)
    if dimension is None and (len(paths) > 1 or append_to is not None):
        raise MetadataError(
            f"{len(paths)} files are given and no dimension; expected one to join or stack along"
        )
    left_out = tuple(drop)
    parts = []
    for number, path in enumerate(paths):
        parts.append(Part(path, scan_file(path, drop=left_out)))
        if progress is not None:
            progress(number + 1, len(paths))
    if append_to is not None and not parts:
        return append_to
    if dimension is None:
        return parts[0].manifest
    if stack_along is not None:
        parts = stack(parts, stack_along, values, append_to)
    elif values is not None:
        raise MetadataError("values are given without a new dimension; expected stack_along")
    if append_to is not None:
        parts.insert(0, Part("the manifest", append_to, _allowed(append_to, given, allow)))
    made = join(parts, dimension)
    if append_to is not None:
        made.address = append_to.address
    return made


def _allowed(
    manifest: Manifest, paths: Iterable[str], allow: Iterable[str | os.PathLike[str]]
) -> tuple[str, ...]:
    """The places that a manifest may lead to: everywhere if it was made here, and not read from a file."""
    if manifest.address is None:
        return ("/",)
    return folder_of(manifest.address), *map(os.fspath, allow), *map(place_of, paths)


def _find(sources: Any) -> list[str]:
    """The paths, patterns made into what they match."""
    given = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    paths: list[str] = []
    for source in (os.fspath(one) for one in given):
        if source.startswith("file://"):
            source = plain_address(source)
        if has_magic(source) and not Path(source).exists():
            found = sorted(glob(source))  # noqa: PTH207
            if not found:
                raise NotFoundError("no file matches", path=source)
            paths += found
        else:
            paths.append(source)
    if not paths:
        raise MetadataError("no files are given; expected one at least")
    return paths


def _new_ones(paths: Iterable[str], manifest: Manifest) -> list[str]:
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
        if place is not None:
            held[settle(place)] = source
    new = []
    for path in paths:
        place = settle(place_of(path))
        found = [(place, held[place])] if place in held else []
        if Path(place).is_dir():  # of a Zarr hierarchy every chunk is a file
            found += [(other, held[other]) for other in held if other.startswith(f"{place}/")]
        for other, source in found:
            _check_unchanged(other, source)
        if not found:
            new.append(path)
    return new


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
