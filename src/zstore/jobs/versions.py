"""Versions of jobs' sources: one contract for sources that change while a job is under way, or later."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zstore.errors import ChangedError

# By the names of the sources, a text that changes whenever the source does; "" where nobody can tell.
Versions = Mapping[str, str]


class Sources:
    """The sources of a job by name, with their versions at its start.

    find   gives the versions as they are now
    place  gives the address of a source, by its name, for errors
    """

    def __init__(
        self, find: Callable[[], Versions], place: Callable[[str], str], versions: Versions | None = None
    ) -> None:
        self._find = find
        self.place = place
        self.versions = find() if versions is None else versions

    def check_unchanged(self) -> None:
        """Compare with the present versions.

        Raises
            ChangedError: a source was written, is new or is gone.
        """
        now = self._find()
        for name in {**self.versions, **now}:
            if self.versions.get(name) != now.get(name):
                raise ChangedError(
                    "the source changed while it was read; expected nobody to write to it",
                    path=self.place(name),
                )
