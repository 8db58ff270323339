"""The surface for plugins, and where its names stood before."""

from __future__ import annotations

from importlib import import_module

import pytest

from zstore import plugin
from zstore.extensions import hookspecs, offers


@pytest.mark.parametrize(
    ("former", "module", "name"),
    [
        ("zstore.storage.base", "stores", "Store"),
        ("zstore.codecs.base", "codecs", "Serializer"),
        ("zstore.model.dtype", "types", "DataType"),
        ("zstore.conventions.base", "conventions", "Convention"),
        ("zstore.geo.conventions.base", "conventions", "Facts"),
    ],
)
def test_documented_names_have_their_former_places_too(former, module, name):
    surface = import_module(f"zstore.plugin.{module}")
    assert getattr(import_module(former), name) is getattr(surface, name)


def test_hooks_are_marked_by_the_same_mark_at_both_places():
    assert plugin.hookimpl is hookspecs.hookimpl
    assert plugin.Offer is offers.Offer
    with pytest.raises(AttributeError, match="no attribute 'hookspec'"):
        plugin.hookspec  # noqa: B018
