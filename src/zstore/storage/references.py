"""The files that references (kerchunk's) may open: their documents could name any file or address."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from zstore.errors import StoreError


def guard_references(filesystem: Any, options: Mapping[str, Any], targets: Any) -> None:
    """Restrict a filesystem of references to files beside their document and to those in `allow`.

    targets   addresses that may be read, with everything below them: one or several
    options   the filesystem's, which also allow the address in `target` and the protocols in
              `remote_protocol` and of `fs`
    """
    while filesystem is not None:
        protocol = filesystem.protocol
        if "reference" in ((protocol,) if isinstance(protocol, str) else protocol):
            own = options.get("reference", options)
            check = _check(own, targets)
            filesystem.fss = {name: _Guarded(fs, check) for name, fs in filesystem.fss.items()}
        filesystem = getattr(filesystem, "fs", None)


class _Guarded:
    """A filesystem whose methods check the addresses of their calls."""

    def __init__(self, filesystem: Any, check: Callable[[str], None]) -> None:
        self._filesystem, self._check = filesystem, check

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._filesystem, name)
        if not callable(found):
            return found

        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            for address in [path] if isinstance(path, str) else path:
                self._check(address)
            return found(path, *arguments, **options)

        return call


def _check(options: Mapping[str, Any], targets: Any) -> Callable[[str], None]:
    named = [targets] if isinstance(targets, str | os.PathLike) else [*(targets or ())]
    named += [options["target"]] if options.get("target") else []
    places = {absolute_address(os.fspath(target)).rstrip("/") for target in named}
    document = options.get("fo")
    if isinstance(document, str):
        # Parquet references are a directory, which counts as the document.
        is_folder = document.endswith(("/", ".parq", ".parquet"))
        places.add(absolute_address(document.rstrip("/")).rpartition("/")[0])
        places |= {absolute_address(document).rstrip("/")} if is_folder else set()
    protocols = _protocols(options)

    def check(address: str) -> None:
        full = absolute_address(address)
        if not is_below(full, places) and full.partition("://")[0] not in protocols:
            raise StoreError(
                f"a reference leads to {address!r}, out of the place of the references; expected the storage "
                "option 'targets' (addresses that may be read, with all below them) or 'remote_protocol'"
            )

    return check


def _protocols(options: Mapping[str, Any]) -> set[str]:
    """The protocols that the caller allows."""
    given, filesystems = options.get("remote_protocol"), options.get("fs")
    names = {given} if given else set()
    if isinstance(filesystems, Mapping):
        names |= {str(name) for name in filesystems if name is not None}
    elif filesystems is not None:
        protocol = filesystems.protocol
        names |= {protocol} if isinstance(protocol, str) else set(protocol)
    alike = ({"http", "https"}, {"file", "local"})
    return names.union(*(group for group in alike if names & group))


def is_below(address: str, places: Collection[str]) -> bool:
    """Whether an absolute address is one of some places, or below one."""
    return ".." not in address.split("/") and any(
        address == place or address.startswith(f"{place}/") for place in places if place
    )


def absolute_address(target: str) -> str:
    """An address with its protocol; of a local path, the absolute one."""
    protocol, mark, path = target.partition("://")
    if not mark or protocol in ("file", "local"):
        return f"file://{os.path.abspath(path if mark else target)}"  # noqa: PTH100
    return target
