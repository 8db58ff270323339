"""Threads that do everything at once; `make mix` has them do it for longer, on whichever Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from .mix import run


@pytest.mark.parametrize(
    ("thread_count", "calls"), [(8, 72), pytest.param(64, 4_000, marks=pytest.mark.slow)]
)
def test_whatever_threads_do_at_once_each_gets_its_own(thread_count: int, calls: int, tmp_path: Path) -> None:
    """Every kind of call that takes longer is made."""
    assert run(tmp_path, thread_count, calls, rarely=2) == []
