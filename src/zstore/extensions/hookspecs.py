"""The hooks that a plugin can implement; each is called once and returns a list of offers.

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

PROJECT = "zstore"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_codecs() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Codecs, by their name in Zarr v3 documents ("numcodecs.<id>" for an `id` of Zarr v2)."""


@hookspec
def register_data_types() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Data types, by their name in Zarr v3 documents."""


@hookspec
def register_stores() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Stores, by URL scheme; the class is opened with `from_url`."""


@hookspec
def register_commands() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Subcommands of the command `zstore`: a `click.Command`, by the word that follows "zstore"."""


@hookspec
def register_conventions() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Conventions, which interpret attributes and arrays of a hierarchy, by their name."""


@hookspec
def register_jobs() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Jobs that can be resumed: the function that makes one, by the name in its record."""


@hookspec
def register_resamplers() -> Sequence[Offer]:  # type: ignore[empty-body]
    """Resampling methods, which make a coarser level of a pyramid from a finer one, by their name."""
