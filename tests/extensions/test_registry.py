"""Names become classes: built-in, from plugins, in conflict, broken, disabled; with planted distributions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import SimpleNamespace

import pytest

from zstore.errors import ExtensionConflictError, ExtensionError, UnknownExtensionError
from zstore.extensions import builtin
from zstore.extensions.builtin import PrefixOffer
from zstore.extensions.extras import OFFERED_BY
from zstore.extensions.hookspecs import hookimpl
from zstore.extensions.offers import Offer
from zstore.extensions.plugins import KINDS, Plugin, disabled_names, load_plugins
from zstore.extensions.registry import Registry, codecs, list_offers, resamplers, stores

ROOT = Path(__file__).parents[2]
# The table of a package that offers names; zstore-arrow is imported by who uses it.
OFFERS = "[project.entry-points"

GOOD = """
from zstore.extensions.hookspecs import hookimpl
from zstore.extensions.offers import Offer
@hookimpl
def register_codecs():
    return [Offer({name!r}, "fractions:Fraction", ("other-{name}",))]
"""

Plant = Callable[..., None]
Load = Callable[..., list[Plugin]]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def plant(site: Path, request: pytest.FixtureRequest) -> Plant:
    """Gives a function that installs a distribution with one module and one entry point."""

    def install(package: str, source: str, *, version: str = "1.2") -> None:
        module = f"{package.replace('-', '_')}_module"
        (site / f"{module}.py").write_text(source)
        info = site / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[zstore]\n{package}-point = {module}\n")
        request.addfinalizer(lambda: sys.modules.pop(module, None))

    return install


@pytest.fixture
def load(site: Path) -> Load:
    def planted(disable: str = "") -> list[Plugin]:
        found: list[Distribution] = [*distributions(path=[str(site)])]
        points = [point for one in found for point in one.entry_points]
        return load_plugins(points, disabled_names(disable))

    return planted


def registry(loaded: list[Plugin]) -> Registry:
    return Registry("codec", [Offer("own", "decimal:Decimal", ("alias",))], load=lambda: loaded)


def test_a_built_in_name_needs_no_plugins() -> None:
    def refuse() -> list[Plugin]:
        raise AssertionError("plugins were loaded")

    from decimal import Decimal

    own = Registry("codec", [Offer("own", "decimal:Decimal", ("alias",))], load=refuse)
    assert own.resolve("own") is own.resolve("alias") is Decimal


def test_importing_the_registry_imports_neither_pluggy_nor_metadata() -> None:
    code = (
        "import sys, zstore.extensions.registry as r\n"
        "r.stores.resolve('memory'), r.stores.resolve('file')\n"
        "assert not {'pluggy', 'importlib.metadata', 'fsspec'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plugin_is_found_by_name_and_alias(plant: Plant, load: Load) -> None:
    from fractions import Fraction

    plant("good", GOOD.format(name="acme"))
    names = registry(load())
    assert names.resolve("acme") is names.resolve("other-acme") is Fraction
    assert names.names() == ["acme", "own"]
    line = names.listings()[1]
    assert line == ("codec", "acme", ("other-acme",), "fractions:Fraction", "good", "1.2", "ok", "", "")
    assert names.load(line) == line


def test_a_broken_plugin_stops_nothing_and_is_named(plant: Plant, load: Load) -> None:
    plant("bad", "import a_module_that_is_not_there")
    plant("good", GOOD.format(name="acme"))
    loaded = load()
    assert [(plugin.package, plugin.state) for plugin in loaded] == [("bad", "broken"), ("good", "ok")]
    names = registry(loaded)
    assert names.resolve("acme")
    with pytest.raises(UnknownExtensionError, match="did you mean 'acme'") as caught:
        names.resolve("acmee")
    message = str(caught.value)
    assert "'acmee'" in message
    assert "plugin 'bad-point' (bad 1.2) could not be loaded" in message
    assert "a_module_that_is_not_there" in message


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("@hookimpl\ndef register_codec():\n    return []", "register_codec"),
        (
            "def register_codecs():\n    return []",
            "register_codecs is not marked as a hook; expected @hookimpl",
        ),
        ("@hookimpl\ndef register_codecs(extra):\n    return []", "extra"),
        ("@hookimpl\ndef register_codecs():\n    return 1 / 0", "ZeroDivisionError"),
        ("@hookimpl\ndef register_codecs():\n    return {'x': 'y:Z'}", "expected a list of Offer"),
        ("@hookimpl\ndef register_codecs():\n    return Offer('x', 'y:Z')", "expected a list of Offer"),
        ("@hookimpl\ndef register_codecs():\n    return ['x']", "expected Offer"),
        ("@hookimpl\ndef register_codecs():\n    return [Offer('x', 'y.Z')]", "expected Offer"),
        ("@hookimpl\ndef register_codecs():\n    return [Offer('x', 'y:Z', 'alias')]", "expected Offer"),
        ("raise RuntimeError('no licence')", "no licence"),
    ],
)
def test_a_plugin_with_a_fault_is_broken_as_a_whole(
    plant: Plant, load: Load, source: str, reason: str
) -> None:
    head = "from zstore.extensions.hookspecs import hookimpl\nfrom zstore.extensions.offers import Offer\n"
    plant("bad", head + "@hookimpl\ndef register_stores():\n    return [Offer('s', 'a:B')]\n" + source)
    plant("good", GOOD.format(name="acme"))
    bad, good = load()
    assert (bad.state, bad.offers, good.state) == ("broken", (), "ok")
    assert isinstance(bad.error, ExtensionError)
    assert reason in str(bad.error)


def test_a_plugin_that_asks_while_it_is_loaded_is_broken(plant: Plant, site: Path) -> None:
    plant("bad", "from zstore.extensions.registry import codecs\ncodecs.resolve('nothing')")
    code = (
        "from zstore.extensions.registry import list_offers\n"
        "(line,) = [line for line in list_offers() if line.package == 'bad']\n"
        "assert (line.kind, line.state) == ('plugin', 'broken'), line\n"
        "assert 'while plugins were being loaded' in line.detail, line"
    )
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


def test_two_plugins_with_one_name_conflict_when_it_is_asked_for(plant: Plant, load: Load) -> None:
    plant("one", GOOD.format(name="acme"))
    plant("two", GOOD.format(name="acme").replace("other-acme", "second"))
    plant("three", GOOD.format(name="third"))
    names = registry(load())
    assert names.resolve("third")
    assert names.resolve("second")
    with pytest.raises(ExtensionConflictError, match=r"one 1\.2 .*two 1\.2"):
        names.resolve("acme")
    states = {(line.package, line.name): line.state for line in names.listings()}
    assert states[("one", "acme")] == states[("two", "acme")] == "conflict"
    assert states[("three", "third")] == "ok"
    assert names.names() == ["own", "third"]


@pytest.mark.parametrize("name", ["own", "alias"])
def test_a_built_in_name_stays_with_the_built_in(plant: Plant, load: Load, name: str) -> None:
    from decimal import Decimal

    plant("taker", GOOD.format(name=name))
    names = registry(load())
    assert names.resolve(name) is Decimal
    (line,) = [line for line in names.listings() if line.package == "taker"]
    assert line.state == "conflict"
    assert f"{name!r} is built in" in line.detail
    assert names.names() == ["own"]


@pytest.mark.parametrize("disable", ["*", "bad-package", "Bad_Package", " bad_package-point , x"])
def test_a_disabled_plugin_is_not_imported(plant: Plant, load: Load, disable: str) -> None:
    plant("bad-package", "raise AssertionError('it was imported')")
    (plugin,) = load(disable)
    assert (plugin.state, plugin.error) == ("disabled", None)
    with pytest.raises(UnknownExtensionError, match=r"plugin 'bad-package-point' .* is disabled"):
        registry([plugin]).resolve("x")


def test_a_target_that_cannot_be_imported_is_an_error() -> None:
    names = Registry("codec", [Offer("a", "not_there:A"), Offer("b", "decimal:Nothing")], load=list)
    with pytest.raises(ExtensionError, match="codec 'a' could not be imported from 'not_there:A'"):
        names.resolve("a")
    with pytest.raises(ExtensionError, match="Nothing"):
        names.resolve("b")


@pytest.mark.parametrize(
    ("target", "source", "state", "detail"),
    [
        ("acme_codec:Acme", "class Acme: pass", "ok", ""),
        ("acme_codec:Acmee", "class Acme: pass", "broken", "has no attribute 'Acmee'"),
        ("acme_codec:Acme", "1 / 0", "broken", "ZeroDivisionError: division by zero"),
        ("acme_codec.inner:Acme", "", "broken", "'acme_codec' is not a package"),
        ("acme_codec:Acme", "import not_there.inner", "missing", "needs 'not_there', which is not installed"),
    ],
)
def test_a_listing_says_whether_the_class_loads(
    site: Path, monkeypatch: pytest.MonkeyPatch, target: str, source: str, state: str, detail: str
) -> None:
    monkeypatch.delitem(sys.modules, "acme_codec", raising=False)
    (site / "acme_codec.py").write_text(source)
    names = Registry(
        "codec", [], load=lambda: [Plugin("p", "p", "acme", "1", "ok", (("codec", Offer("a", target)),))]
    )
    (line,) = names.listings()
    assert line.state == "ok"
    line = names.load(line)
    assert line.state == state
    assert detail in line.detail


def make_adapter(rest: str) -> type:
    if rest == "unknown":
        raise UnknownExtensionError(f"no such codec {rest!r}")
    return type(rest, (), {})


def test_a_prefix_makes_classes_and_asks_plugins_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "adapters", SimpleNamespace(adapter=make_adapter))
    mine = Plugin("p", "p", "acme", "1", "ok", (("codec", Offer("n.unknown", "decimal:Decimal")),))
    prefix = PrefixOffer("n.", "adapters:adapter")
    names = Registry("codec", [Offer("n.own", "decimal:Context")], [prefix], lambda: [mine])
    assert names.resolve("n.delta").__name__ == "delta"
    assert names.resolve("n.delta") is names.resolve("n.delta")
    assert names.resolve("n.own").__name__ == "Context"
    assert names.resolve("n.unknown").__name__ == "Decimal"
    with pytest.raises(UnknownExtensionError, match=r"no such codec 'unknown'.*offered: .*n\.\*"):
        Registry("codec", [], [prefix], list).resolve("n.unknown")
    with pytest.raises(UnknownExtensionError):
        names.resolve("n.")


def test_many_threads_get_one_class(plant: Plant, load: Load) -> None:
    plant("good", GOOD.format(name="acme"))
    names, found = registry(load()), []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait()
        found.append(names.resolve("acme"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_the_built_in_tables_hold_each_name_once() -> None:
    tables = (builtin.CODECS, builtin.DATA_TYPES, builtin.STORES, builtin.CONVENTIONS, builtin.RESAMPLERS)
    tables += (builtin.COMMANDS,)
    for table in tables:
        names = [name for offer in table for name in (offer.name, *offer.aliases)]
        assert len(names) == len(set(names))


def test_everything_is_listed_and_what_is_built_in_loads() -> None:
    lines = list_offers()
    own = [line for line in lines if line.package == "zstore"]
    assert [line for line in own if line.state != "ok" and line.state != "missing"] == []
    assert {line.kind for line in lines} >= set(KINDS) - {"data type"}
    assert {"zstd", "numcodecs.*"} <= {line.name for line in lines if line.kind == "codec"}
    assert "s3" in stores.names()
    assert "average" in resamplers.names()
    assert "blosc" in codecs.names()


def test_hooks_are_marked_for_zstore() -> None:
    assert hookimpl.project_name == "zstore"


def test_a_name_of_another_package_of_ours_names_it() -> None:
    for kind in ("codec", "store"):
        registry = Registry(kind, (), load=list)
        for name, package in OFFERED_BY[kind].items():
            with pytest.raises(UnknownExtensionError, match=f"expected the package {package}, which is not"):
                registry.resolve(name)
    beside = {
        path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml") if OFFERS in path.read_text()
    }
    assert {package for names in OFFERED_BY.values() for package in names.values()} == beside


def test_every_extra_that_is_named_is_one() -> None:
    named = re.compile(r"""\boptional\(f?"[^"]*(?:\{[^}]*\}[^"]*)*", "([\w-]+)"(?:.*?owner="([\w-]+)")?""")
    found = [
        (owner or "zstore", extra)
        for folder in (ROOT / "src", *ROOT.glob("plugins/*/src"))
        for path in folder.rglob("*.py")
        for extra, owner in named.findall(path.read_text())
    ]
    assert len(found) >= 12
    for owner, extra in found:
        project = ROOT if owner == "zstore" else ROOT / "plugins" / owner
        asked = tomllib.loads((project / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert extra in asked, (owner, extra)
