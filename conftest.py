"""A test that is left out for a reason that the table of docs/correctness.md does not have has failed.

`make test` asks for that (`--known-skips`); in environments with other packages, other tests are left out.
The garbage collector waits until all tests are collected, and lets them be; else it walks through them often.
Of a test that passes, one report is made known, not three: each goes from process to process.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

TABLE = Path(__file__).parent / "docs" / "correctness.md"


def known_reasons(text: str) -> list[str]:
    """What the rows of the table "Left out" begin with: parts of the reasons that tests give."""
    section = text.partition("## Left out")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    with suppress(ValueError):  # other people's suites, run from here, come upon this file twice
        parser.addoption(
            "--known-skips", action="store_true", help="a skip for a reason that no table has fails"
        )


def check(report: Any, config: pytest.Config) -> None:
    if not report.skipped or hasattr(report, "wasxfail") or not config.getoption("--known-skips"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(known in reason for known in known_reasons(TABLE.read_text())):
        report.outcome = "failed"
        report.longrepr = f"{reason}; expected a reason that the table of docs/correctness.md has"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    check(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    check(report, collector.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
