"""docs/formats.md: every row names tests, and each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "formats.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    """The rows of the tables, without their heads."""
    lines = PAGE.read_text().splitlines()
    rules = {place for place, line in enumerate(lines) if line.startswith("|---")}
    return [
        line
        for place, line in enumerate(lines)
        if line.startswith("|") and place not in rules and place + 1 not in rules
    ]


def defined_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_"
    }


def test_every_row_names_a_test():
    assert len(rows()) > 25
    assert [row for row in rows() if not NAMED.search(row)] == []


def test_every_named_test_exists():
    named = NAMED.findall(PAGE.read_text())
    assert [f"{path}::{name}" for path, name in named if name not in defined_in(path)] == []
