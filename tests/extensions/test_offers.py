"""Every offer of zstore's own: a contract test, a line in docs/formats.md, a test beside what others made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from zstore.extensions import builtin
from zstore.extensions.registry import BUILT_IN_PACKAGE, REGISTRIES, Listing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "formats.md"

# The kind of offer that each contract in zstore.testing is about, and that each part of the page is about.
CONTRACTS = {
    "CodecContract": "codec",
    "NativeCodecContract": "codec",
    "ArrayCodecContract": "codec",
    "SerializerContract": "codec",
    "StoreContract": "store",
    "DataTypeContract": "data type",
    "ConventionContract": "convention",
    "ResamplerContract": "resampler",
    "CommandContract": "command",
    "JobContract": "job",
}
# Commands and jobs tell themselves what they do.
PARTS = {
    "Codecs": "codec",
    "Data types": "data type",
    "Stores": "store",
    "Conventions": "convention",
    "Resampling": "resampler",
}


def words_of(tree: ast.AST) -> set[str]:
    """Names and texts in a piece of a test; a table of `builtin` stands for the names in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Name | ast.Attribute):
            word = node.id if isinstance(node, ast.Name) else node.attr
            table = getattr(builtin, word, ()) if word.isupper() else ()
            found |= {word, *(entry if isinstance(entry, str) else entry[0] for entry in table)}
    return found


def contract_words(source: str) -> dict[str, set[str]]:
    """By kind, the words of the classes of a test module that inherit a contract of it."""
    found: dict[str, set[str]] = {}
    kinds = dict(CONTRACTS)
    for node in ast.parse(source).body:
        bases = [base.id for base in getattr(node, "bases", ()) if isinstance(base, ast.Name)]
        for kind in {kinds[base] for base in bases if base in kinds}:
            kinds[node.name] = kind  # type: ignore[attr-defined]
            found.setdefault(kind, set()).update(words_of(node))
    return found


@cache
def find_contracts(folder: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {kind: set() for kind in REGISTRIES}
    for file in folder.glob("tests/**/test_*.py"):
        for kind, words in contract_words(file.read_text()).items():
            found[kind] |= words
    return found


def find_rows(page: str) -> dict[str, list[str]]:
    """By kind, the rows of the tables in its part of the page."""
    parts = re.split(r"(?m)^## (.+)\n", page)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {
        kind: [r for r in texts.get(part, "").splitlines() if r[:1] == "|"] for part, kind in PARTS.items()
    }


def peers_in(row: str, words: set[str]) -> bool:
    """Whether a test that the row names mentions one of the words."""
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row):
        text = (ROOT / path).read_text()
        mentioned = any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in words)
        if f"def {name}(" in text and (mentioned or words & words_of(ast.parse(text))):
            return True
    return False


def gaps(lines: Iterable[Listing], page: str) -> list[str]:
    """What each offer lacks."""
    contracts, rows, found = find_contracts(ROOT), find_rows(page), []
    for line in lines:
        target = line.target.rpartition(":")[2]
        # Tests call a codec of numcodecs' by its v2 id.
        words = {line.name, target, line.name.removeprefix("numcodecs.")}
        if not contracts[line.kind] & {line.name, target}:
            found.append(f"{line.kind} {line.name!r} has no contract test")
        if line.kind not in PARTS.values():
            continue
        named = [
            row
            for row in rows[line.kind]
            if any(fnmatchcase(line.name, token) for token in re.findall(r"`([^`]+)`", row))
        ]
        if not named:
            found.append(f"{line.kind} {line.name!r} has no line in docs/formats.md")
        elif not any(peers_in(row, words) for row in named):
            found.append(
                f"{line.kind} {line.name!r} has no test in its line of docs/formats.md that mentions it"
            )
    return found


LINES = [line for registry in REGISTRIES.values() for line in registry.listings()]
# Of the plugins in this repository, those that are not lossless have no contract that could be kept.
LOSSY = {"numcodecs.imagecodecs_avif"}
# Of HDF5's and TIFF's: delta works on arrays, and the others take what lies in such files, not any bytes:
# lzf what it can shrink, packints items of few bits, szip whole blocks. Tests hold them to those libraries.
OF_FILES = {f"numcodecs.imagecodecs_{name}" for name in ["delta", "lzf", "packints", "szip"]}
# zstore-arrow offers no names: it is imported by who uses it.
OFFERING = sorted(
    path.parent
    for path in ROOT.glob("plugins/zstore-*/pyproject.toml")
    if "[project.entry-points" in path.read_text()
)
# Stores that show another format, and have the keys of its nodes and chunks alone.
OF_FORMATS = {"n5"}


def test_every_offer_has_a_contract_a_line_and_a_vector() -> None:
    own = [line for line in LINES if line.package == BUILT_IN_PACKAGE]
    assert len(own) > 100
    assert gaps(own, PAGE.read_text()) == [f"store {name!r} has no contract test" for name in OF_FORMATS]


@pytest.mark.parametrize("folder", OFFERING, ids=lambda folder: folder.name)
def test_every_offer_of_our_plugins_has_a_contract_and_is_in_its_readme(folder: Path) -> None:
    lines = [line for line in LINES if line.package == folder.name]
    if not lines:
        pytest.skip(f"{folder.name} is not installed, so it has no entry point")
    contracts, readme = find_contracts(folder), (folder / "README.md").read_text()
    for line in lines:
        # Their tests know a codec by its name in imagecodecs; a package of stores has one class for all.
        words = {line.target.rpartition(":")[2], line.name.rpartition("_")[2]}
        known = contracts[line.kind] if line.kind == "store" else contracts[line.kind] & words
        assert known or line.name in LOSSY | OF_FILES, f"{line.name} has no contract test"
        assert line.name in readme or line.name.rpartition(".")[2] in readme, line.name


PLANTED = [
    ("codec", "acme.planted", "zstore.codecs.planted:Planted"),
    ("data type", "acme.planted", "zstore.model.types.planted:Planted"),
    ("store", "planted", "zstore.storage.planted:PlantedStore"),
    ("convention", "planted", "zstore.geo.conventions.planted:Planted"),
    ("resampler", "planted", "zstore.geo.resampling.methods:Planted"),
]


@pytest.mark.parametrize(("kind", "name", "target"), PLANTED)
def test_an_offer_that_nothing_shows_is_found_out(kind: str, name: str, target: str) -> None:
    line = Listing(kind, name, (), target, BUILT_IN_PACKAGE, "")
    page = PAGE.read_text()
    contract, row = gaps([line], page)
    assert contract == f"{kind} {name!r} has no contract test"
    assert row == f"{kind} {name!r} has no line in docs/formats.md"
    (part,) = [part for part, of in PARTS.items() if of == kind]
    # A line alone does not do, nor one with a test that is about something else, or that is not there.
    for cell in (
        "",
        "`tests/codecs/test_reshape.py::test_shapes`",
        "`tests/extensions/test_offers.py::test_nothing`",
    ):
        longer = page.replace(f"## {part}\n", f"## {part}\n| `{name}` | {cell} |\n")
        assert gaps([line], longer)[1].endswith("has no test in its line of docs/formats.md that mentions it")


def test_a_contract_counts_for_what_its_class_is_about() -> None:
    source = """
class TestOne(SerializerContract):
    def make(self):
        return one.Planted()
class TestTwo(TestOne):
    names = ("two", *builtin.RESAMPLERS)
class Other(Contract):
    name = "other"
"""
    (words,) = contract_words(source).values()
    assert {"Planted", "two", "average"} <= words
    assert "other" not in words


def test_a_command_without_a_contract_is_found_out() -> None:
    line = Listing("command", "planted", (), "zstore.cli.planted:planted", BUILT_IN_PACKAGE, "")
    assert gaps([line], PAGE.read_text()) == ["command 'planted' has no contract test"]
