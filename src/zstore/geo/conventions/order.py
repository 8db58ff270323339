"""The choice and the order of conventions: what an earlier one states counts before later ones.

By default zstore's own come first, then those of plugins by name. Another order is chosen for one call
(`read_geo(..., conventions=...)`), for a stretch of a program (`use_conventions`), or for a process (the
environment variable ZSTORE_CONVENTIONS, names separated by commas). "..." among the names stands for all that
are not named: "acme,..." asks `acme` first.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from zstore.errors import ExtensionError
from zstore.extensions.builtin import CONVENTIONS
from zstore.extensions.registry import conventions as registry
from zstore.geo.conventions.base import Convention, Finding

VARIABLE = "ZSTORE_CONVENTIONS"
REST = "..."
# As they are offered: coordinates and the grid mapping, GDAL's attributes, then those of pyramids.
OWN = tuple(offer.name for offer in CONVENTIONS)

_chosen: ContextVar[tuple[str, ...] | None] = ContextVar("zstore_conventions", default=None)


class ReadingWarning(UserWarning):
    """Something wrong in documents that were read for another purpose than to be checked."""


def order_conventions(names: Sequence[str] | None = None) -> list[str]:
    """The names of the conventions to ask, in order; `names` are taken before what is chosen elsewhere."""
    stated = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    chosen = names if names is not None else _chosen.get() or stated or [REST]
    known = [*OWN, *(name for name in registry.names() if name not in OWN)] if REST in chosen else []
    rest = [name for name in known if name not in chosen]
    return [name for word in chosen for name in (rest if word == REST else [word])]


def load_conventions(names: Sequence[str] | None = None) -> list[Convention]:
    """The conventions of these names, built in or a plugin's; None: those chosen elsewhere, or all.

    Raises
        UnknownExtensionError: nobody offers one of the names.
        ExtensionError: one that is named cannot be imported. Others are left out.
    Warns
        ReadingWarning: a plugin's convention that nobody named cannot be imported.
    """
    loaded: list[Convention] = []
    for name in order_conventions(names):
        try:
            loaded.append(registry.resolve(name)())
        except ExtensionError as error:
            if name in OWN or name in (names or ()):
                raise
            warnings.warn(ReadingWarning(f"convention {name!r} is not asked: {error}"), stacklevel=3)
    return loaded


@contextmanager
def use_conventions(*names: str) -> Iterator[None]:
    """Ask these conventions in this order in everything that reads within the `with` block.

    Raises
        UnknownExtensionError: nobody offers one of the names.
    """
    load_conventions(names)
    token = _chosen.set(names)
    try:
        yield
    finally:
        _chosen.reset(token)


def warn_of(findings: Sequence[Finding], *, stacklevel: int = 2) -> None:
    """Warn of findings that came up while something was read for another purpose.

    Warns
        ReadingWarning: once for each finding that is more than a note.
    """
    for finding in findings:
        if finding.severity != "note":
            text = f"{finding.severity} {finding.rule} at {finding.path or '/'}: {finding.message}"
            warnings.warn(ReadingWarning(text), stacklevel=stacklevel + 1)
