"""Everyday calls go through few files of the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from journeys import MAKING, journeys, walk

MOST = {"read": 3, "write": 6, "open": 14, "create": 18, "pyramid": 55, "validate and fix": 42}


def test_everyday_calls_go_through_few_files(tmp_path: Path) -> None:
    calls = journeys(tmp_path)
    files = {}
    for name in MOST:
        calls[name](0)
        files[name] = walk(lambda name=name: calls[name](1))
    assert {name: len(gone) for name, gone in files.items() if len(gone) > MOST[name]} == {}
    assert files["create"][MAKING] <= 3
