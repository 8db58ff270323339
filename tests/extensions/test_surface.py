"""The surface for plugins, and where its names stood before."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import house
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


ROOT = Path(__file__).parents[2]
# Names by which jobs serve the wings above them: begun work, its versions and its size.
OF_WINGS = {
    *("Made", "Marks", "ModelSource", "as_part", "asked_as", "check_begun"),
    *("current_part", "expect_size", "forget"),
    # Views, of which geo makes those on other grids of the Earth.
    *("ACROSS", "Addresses", "Carried", "MadeBy", "MadeSource", "View", "concat", "origin_of", "overlay"),
    *("stack", "unpack", "view"),
    # What a job leaves out because it cannot be read.
    "Lost",
    # Views on other grids of the Earth and sums over zones, which datasets of xarray have as methods.
    *("clip", "reproject", "zonal_statistics"),
    # Pictures, which the command draws.
    "draw_picture",
}


def used(source: str) -> set[tuple[str, str]]:
    """(module, name) of what a source imports of the surface."""
    return {
        (node.module or "", alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zstore.plugin")
        for alias in node.names
    }


def unused(sources: list[str]) -> set[str]:
    """The names of the surface that none of the sources imports; modules are no names."""
    surface = house.surface()
    offered = {
        (module, name)
        for module, names in surface.items()
        if module.startswith("zstore.plugin")
        for name in names
        if f"zstore.plugin.{name}" not in surface
    }
    return {name for _, name in offered.difference(*map(used, sources))}


def test_every_name_is_used_by_a_plugin_the_walk_through_a_template_or_a_contract() -> None:
    files = [*ROOT.glob("plugins/*/src/**/*.py"), *(ROOT / "src/zstore/testing").glob("*.py")]
    sources = [file.read_text() for file in files]
    page = (ROOT / "docs/plugins.md").read_text()
    sources += re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    templates = (ROOT / "src/zstore/cli/templates").glob("*.py.in")
    sources += [re.sub(r"\$(\w+)", r"x_\1", file.read_text()) for file in templates]
    assert len(sources) > 100
    left = unused(sources)
    assert left == OF_WINGS, f"{left ^ OF_WINGS}: no surface, see docs/design/0023-plugin-surface.md"


def test_a_name_that_nobody_uses_is_told() -> None:
    assert {"Store", "Plan", "Convention"} <= unused([])
    assert "Store" not in unused(["from zstore.plugin.stores import Store"])
