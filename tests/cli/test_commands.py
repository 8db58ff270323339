"""The words of the command line: zstore's own by the contract of all, and those that plugins add."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
from zstore.cli import root  # noqa: E402
from zstore.cli.options import SIZE  # noqa: E402
from zstore.errors import StoreError  # noqa: E402
from zstore.extensions import builtin, registry  # noqa: E402
from zstore.extensions.extras import OFFERED_BY  # noqa: E402
from zstore.extensions.offers import Offer  # noqa: E402
from zstore.extensions.plugins import Plugin  # noqa: E402
from zstore.extensions.registry import Registry  # noqa: E402
from zstore.storage.cached import CachedStore  # noqa: E402
from zstore.testing.commands import CommandContract  # noqa: E402

from ..engine.test_remote import FarStore  # noqa: E402


@pytest.mark.parametrize("word", [offer.name for offer in builtin.COMMANDS])
class TestOwn(CommandContract):
    """In this process, but for the list of all: `python -m zstore` is one way for all words."""

    @staticmethod
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = testing.CliRunner().invoke(root.zstore, words, prog_name="zstore")
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    @pytest.fixture(autouse=True)
    def _named(self, word: str) -> None:
        self.name = word


def plugin(name: str, *offers: Offer, state: str = "ok", error: Exception | None = None) -> Plugin:
    listed = tuple(("command", offer) for offer in offers)
    return Plugin(name, name, f"{name}-package", "1", state, listed, error)  # type: ignore[arg-type]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch):
    """Gives a function that types words where such plugins are installed."""

    def with_plugins(*plugins: Plugin):
        monkeypatch.setattr(root, "commands", Registry("command", builtin.COMMANDS, load=lambda: [*plugins]))
        return lambda *words: testing.CliRunner().invoke(root.zstore, words)

    return with_plugins


def test_a_plugin_adds_a_word(typed) -> None:
    type_words = typed(plugin("acme", Offer("weigh", "zstore.cli.tree:tree")))
    assert "weigh" in type_words("--help").output
    assert "Usage: zstore weigh" in type_words("weigh", "--help").output


def test_a_word_of_our_own_stays_ours(typed) -> None:
    type_words = typed(plugin("acme", Offer("info", "zstore.cli.tree:tree")))
    assert "Usage: zstore info" in type_words("info", "--help").output
    assert root.commands.resolve("info").name == "info"


def test_a_word_that_cannot_be_used_is_listed_and_says_why(typed) -> None:
    type_words = typed(
        plugin("acme", Offer("weigh", "no_such_module:weigh"), Offer("twice", "zstore.cli.tree:tree")),
        plugin("other", Offer("twice", "zstore.cli.tree:tree")),
    )
    listed = type_words("--help")
    assert listed.exit_code == 0
    assert "cannot be used" in listed.output and "verify" in listed.output
    done = type_words("weigh", "a.zarr", "--size", "3")
    assert done.exit_code == 1
    assert "no_such_module" in done.output and "acme-package" in done.output
    assert "more than one plugin" in type_words("twice").output


def test_an_unknown_word_names_the_plugins_that_are_broken(typed) -> None:
    done = typed(plugin("acme", state="broken", error=ValueError("boom")))("weigh")
    assert done.exit_code == 2
    assert "No such command 'weigh'" in done.output and "acme-package 1) could not be loaded" in done.output


@pytest.mark.parametrize(("word", "package"), OFFERED_BY["command"].items())
def test_a_word_of_another_package_of_ours_names_it(typed, word: str, package: str) -> None:
    done = typed()(word, "a.zarr")
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert f"No such command '{word}': expected the package {package}, which is not installed" in said


def test_an_error_speaks_of_options(typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("expected the storage option key, or anon=True for what is public")

    monkeypatch.setattr("zstore.cli.tree.tree.callback", fail)
    said = " ".join(typed()("tree", "a.zarr").output.split())
    assert "expected --storage-option key, or --storage-option anon=true for what is public" in said


def loaded_by(*words: str) -> set[str]:
    """The modules that a line loads."""
    code = f"import sys; from zstore.cli.root import zstore; zstore({words!r}, standalone_mode=False); "
    code += "print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stderr.split())


def test_our_own_words_load_no_plugin() -> None:
    assert "pluggy" not in loaded_by("info", "--help")


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_list_of_words_is_shown_without_their_modules(word: str) -> None:
    loaded = loaded_by(word)
    assert {name for name in loaded if name.startswith("zstore.cli.")} == {"zstore.cli.root"}
    assert not loaded & {"numpy", "rich", "zstore_serve.commands", "zstore_tune.command"}


def test_words_are_completed_with_their_lines() -> None:
    context = root.zstore.make_context("zstore", [], resilient_parsing=True)
    items = {item.value: item.help for item in root.zstore.shell_complete(context, "co")}
    assert [*items] == ["consolidate", "convert", "copy"]
    assert items["copy"].startswith("Copy a store byte for byte")


def test_the_registry_is_what_the_command_line_asks() -> None:
    assert root.commands is registry.commands


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ("512M", 512 << 20),
        ("1.5G", 3 << 29),
        ("1.5GiB", 3 << 29),
        ("2gb", 2 << 30),
        ("0.5 k", 512),
        ("77B", 77),
    ],
)
def test_sizes_are_said_in_decimals_too(said: str, size: int) -> None:
    assert SIZE["type"](said) == size


def test_a_cache_is_shown_and_cleared(tmp_path) -> None:
    far = FarStore()
    far.put("a", bytes(range(200)))
    CachedStore(far, tmp_path).get("a")

    def run(*words: str) -> testing.Result:
        return testing.CliRunner().invoke(root.zstore, ["cache", *words])

    said = json.loads(run(str(tmp_path), "--json").stdout)
    assert (said["value_count"], said["stored_size"]) == (1, 200 + 256)
    assert "1 ranges of 1 values, 1 store, last used 2" in run(str(tmp_path)).stdout
    assert "0 ranges of 0 values" in run(str(tmp_path), "--clear").stdout
    told = run(str(tmp_path / "none"))
    assert told.exit_code == 1
    assert "no cache of zstore's there" in told.stderr
