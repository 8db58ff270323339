"""The hooks a plugin may implement. Each returns a list of offers, and is called once.

from zstore.extensions.hookspecs import hookimpl
from zstore.extensions.offers import Offer

@hookimpl
def register_codecs():
    return [Offer("acme.delta2", "acme_zstore.delta2:Delta2")]
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from zstore.extensions.offers import Offer

__all__ = [
    "PROJECT",
    "hookimpl",
    "register_codecs",
    "register_commands",
    "register_conventions",
    "register_data_types",
    "register_resamplers",
    "register_stores",
]

PROJECT = "zstore"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_codecs() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Codecs, by the name a Zarr v3 document gives them ("numcodecs.<id>" for a v2 `id`)."""


@hookspec
def register_data_types() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Data types, by the name a Zarr v3 document gives them."""


@hookspec
def register_stores() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Stores, by URL scheme; the class is opened with `from_url`."""


@hookspec
def register_commands() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Words of the command line: a `click.Command` by the word that follows "zstore"."""


@hookspec
def register_conventions() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Conventions: what attributes and arrays of a hierarchy mean."""


@hookspec
def register_resamplers() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Ways to make a coarser level of a pyramid from a finer one."""
