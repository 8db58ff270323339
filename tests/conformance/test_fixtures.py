"""Stores that other implementations wrote, read to their known values; and stores made to hurt."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from zstore.errors import ZstoreError

from . import adapter

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
MANIFEST = FIXTURES / "manifest.json"
if not MANIFEST.exists():
    pytest.skip(f"no fixtures at {FIXTURES}", allow_module_level=True)

ENTRIES: list[dict[str, Any]] = json.loads(MANIFEST.read_text())["entries"]
ARRAYS = [entry for entry in ENTRIES if entry["kind"] == "array"]
VECTORS: list[dict[str, Any]] = json.loads((FIXTURES / "codecs" / "codecs.json").read_text())["entries"]


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    """The fixtures' own runner, which knows how to compare."""
    spec = importlib.util.spec_from_file_location("run_fixtures", FIXTURES / "run_fixtures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The runner leaves the files of expected objects open.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*expected:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("entry", ARRAYS, ids=[entry["name"] for entry in ARRAYS])
def test_arrays(runner, entry):
    assert entry["expect"] in ("ok", "error_or_ok", "error", "error_or_any")
    try:
        runner.do_array(adapter, str(FIXTURES), entry)
    except ZstoreError as error:
        if entry["expect"] == "ok":
            raise
        assert error.path, "where it is was not said"
        pytest.xfail(f"may be refused, and is: {error}")


# The runner leaves it to the garbage collector to close what it opened.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_codecs_decode_what_numcodecs_encoded(runner, vector):
    runner.do_codec(adapter, str(FIXTURES), vector)


@pytest.mark.parametrize("kind", ["hostile", "metadata", "group", "geo", "multiscale", "raster"])
def test_other_kinds_each_case_in_a_process_of_its_own(tmp_path, kind):
    report = tmp_path / f"{kind}.json"
    command = [
        sys.executable,
        str(FIXTURES / "run_fixtures.py"),
        "--adapter",
        adapter.__file__,
        "--kind",
        kind,
    ]
    subprocess.run([*command, "--json", str(report)], capture_output=True, env=environment(), check=False)
    results = json.loads(report.read_text())["results"]
    assert len(results) >= 4
    assert [(case["name"], case["detail"]) for case in results if case["status"] != "passed"] == []


def environment() -> dict[str, str]:
    import os

    source = str(Path(__file__).resolve().parents[2] / "src")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
