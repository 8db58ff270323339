"""Opens repositories, and sessions for reading one of their versions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from zstore.errors import NotFoundError, StoreError, UnsupportedError
from zstore_icechunk.places import (
    OWN,
    Place,
    Version,
    library,
    message_of,
    no_repository,
    say_names,
    translate_errors,
)
from zstore_icechunk.virtual import authorized

__all__ = ["Opener"]


class Opener:
    """Opens the repository at a place, with storage options; stores keep it to open theirs again.

    secrets  values of options that messages must not show
    """

    def __init__(self, place: Place, options: Mapping[str, Any]) -> None:
        self.place = place
        self.options = dict(options)
        self.secrets = place.secrets(self.bucket_options)
        self.repository: Any = None

    @property
    def bucket_options(self) -> dict[str, Any]:
        """The storage options that are not about a repository."""
        return {name: value for name, value in self.options.items() if name not in OWN}

    def open(self, *, create: bool = False) -> Any:
        """Open icechunk's repository; with `create`, make it if there is none.

        Raises
            NotFoundError: there is none.
            StoreError: it cannot be reached, or options are wrong.
            UnsupportedError: the installed icechunk is older than the repository's format.
        """
        icechunk, directory = library(), self.place.directory
        if directory is not None and not os.path.isdir(directory) and not create:  # noqa: PTH112
            # icechunk would make the directory.
            no_repository(self.place)
        with translate_errors("open", self.place.url, self.secrets):
            storage = self.place.storage(self.bucket_options)
            allow = self.options.get("allow")
            config = icechunk.Repository.fetch_config(storage) if allow else None
            access = authorized(config, allow, self.options.get("remote_options"))
            try:
                self.repository = icechunk.Repository.open(
                    storage, **({"authorize_virtual_chunk_access": access} if access else {})
                )
            except icechunk.IcechunkError:
                if icechunk.Repository.exists(storage):
                    raise
                if directory is not None and os.path.isfile(os.path.join(directory, "repo")):  # noqa: PTH113, PTH118
                    raise UnsupportedError(
                        "the repository is in the format of icechunk 2, and icechunk "
                        f"{icechunk.__version__} is installed; expected icechunk>=2",
                        path=self.place.url,
                    ) from None
                if not create:
                    no_repository(self.place)
                if directory is not None and os.path.isdir(directory) and os.listdir(directory):  # noqa: PTH112, PTH208
                    raise StoreError(
                        "the directory holds something else; expected a new or an empty one",
                        path=self.place.url,
                    ) from None
                self.repository = icechunk.Repository.create(storage)
        return self.repository

    def session(self, version: Version) -> tuple[Any, str]:
        """icechunk's session for reading a version, and the URL pipeline of that version.

        Raises
            NotFoundError: there is no such repository, branch, tag or snapshot, or no state at that time.
        """
        repository = self.open()
        shown = f"{self.place.url}|icechunk:{version.text}"
        with translate_errors("open", shown, self.secrets):
            try:
                if version.snapshot is not None:
                    session = repository.readonly_session(snapshot_id=version.snapshot)
                elif version.tag is not None:
                    session = repository.readonly_session(tag=version.tag)
                elif version.as_of is None:
                    session = repository.readonly_session(version.branch)
                else:
                    session = _session_at_time(repository, version, shown)
            except library().IcechunkError as error:
                self.check(version, shown)
                text = message_of(error, self.secrets)
                if version.snapshot is None or "not found" not in text:
                    raise
                raise NotFoundError(f"no snapshot {version.snapshot!r}: {text}", path=shown) from None
        if version.as_of is not None:
            shown = f"{self.place.url}|icechunk:@{session.snapshot_id}"
        return session, shown

    def check(self, version: Version, url: str) -> None:
        """Raise NotFoundError where there is no such branch or tag."""
        kind, name = ("tag", version.tag) if version.tag is not None else ("branch", version.branch)
        if name is not None:
            names = self.repository.list_tags() if kind == "tag" else self.repository.list_branches()
            if name not in names:
                raise NotFoundError(f"no {kind} {name!r}; {say_names(kind, name, names)}", path=url) from None


def _session_at_time(repository: Any, version: Version, url: str) -> Any:
    """The session of the state that a branch had at a time."""
    first = None
    for info in repository.ancestry(branch=version.branch):
        first = info.written_at
        if first <= version.as_of:
            return repository.readonly_session(version.branch, as_of=version.as_of)
    raise NotFoundError(
        f"the branch {version.branch!r} is younger than {version.as_of}: it begins at {first}", path=url
    )
