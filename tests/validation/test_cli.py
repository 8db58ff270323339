"""`zstore validate` and `zstore fix`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import zstore
from zstore.storage.local import LocalStore

from .stores import Documents, right

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
from zstore.cli.root import zstore as command  # noqa: E402


def run(*words: object, code: int = 0) -> str:
    """The output of `zstore WORDS`, which must give that exit code."""
    result = testing.CliRunner().invoke(command, [str(word) for word in words])
    if result.exit_code != code:
        raise AssertionError(f"exit code {result.exit_code}: {result.output}") from result.exception
    return result.output


@pytest.fixture
def place(tmp_path: Path) -> Path:
    store = right(3)
    for key in store.list():
        path = tmp_path / "a.zarr" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(store.get(key)))
    return tmp_path / "a.zarr"


def spoil(place: Path) -> None:
    Documents(LocalStore.from_path(str(place))).matrix("0", scaleDenominator=35.28)


def test_exit_codes(place: Path) -> None:
    run("validate", place)
    run("validate", place, "--profile", "geozarr-draft", "--strict", code=1)
    run("validate", place, "--profile", "geozarr-draft")
    run("validate", place, "--profile", "nothing", code=2)
    run("validate", place, "--class", "core,nothing", code=2)
    run("validate", place / "nothing", code=1)
    spoil(place)
    run("validate", place, code=1)
    run("validate", place, "--class", "core,crs")


def test_forms(place: Path, tmp_path: Path) -> None:
    spoil(place)
    assert "error GZ-45" in run("validate", place, code=1)
    found = json.loads(run("validate", place, "--deep", "--json", "--junit", tmp_path / "j.xml", code=1))
    assert found["deep"] is True and found["findings"][0]["rule"] == "GZ-45"
    assert ElementTree.parse(tmp_path / "j.xml").getroot().tag == "testsuites"
    run("validate", place, "--junit", tmp_path / "no" / "j.xml", code=1)


def test_fix_shows_then_writes_then_takes_back(place: Path) -> None:
    spoil(place)
    before = (place / "zarr.json").read_bytes()
    shown = run("fix", place, code=1)
    plan = zstore.plan_fix(place)
    assert (
        str(plan) in shown
        and str(plan).startswith("fixed GZ-44 /")
        and str(plan.before) in run("validate", place, code=1)
    )
    assert "scaleDenominator" not in repr(plan) and "OME" not in repr(plan.before)
    assert '-            "scaleDenominator": 35.28,' in shown
    assert "+++ b/zarr.json" in shown and "pass --write" in shown
    assert (place / "zarr.json").read_bytes() == before
    assert "+++" not in run("fix", place, "-q", "--dry-run", code=1)
    run("fix", place, "--write", "--dry-run", code=2)
    written = run("fix", place, "--write")
    assert "1 errors and 0 warnings before, 0 errors and 0 warnings after" in written
    run("validate", place)
    assert "0 keys change" in run("fix", place, "--write")
    run("fix", place)
    (backup,) = place.parent.glob("a.zarr.backup-*")
    run("fix", place, "--restore", backup, "--write", code=2)
    assert "1 keys as they were" in run("fix", place, "--restore", backup)
    assert (place / "zarr.json").read_bytes() == before
    run("fix", place, "--restore", place, code=1)


def test_fix_fails_while_errors_are_left(place: Path) -> None:
    spoil(place)
    Documents(LocalStore.from_path(str(place))).set("0/b02", valid_min=float("nan"))
    written = run("fix", place, "--write", code=1)
    assert "fixed GZ-44 /" in written and "left GZ-21 /0/b02: " in written
    run("fix", place, "--write", code=1)
    run("validate", place, code=1)


def test_fix_takes_a_fill_value(place: Path) -> None:
    documents = Documents(LocalStore.from_path(str(place)))
    documents.edit("0/b02", lambda d: d.update(fill_value=None))
    documents.set("0/b02", _FillValue=None)
    documents.set("1/b02", _FillValue=None)
    assert "left ZS-08 /0/b02" in run("fix", place)
    assert "fixed ZS-08 /0/b02: fill_value is 65535" in run("fix", place, "--fill-value", "65535")
    assert "left ZS-08 /0/b02" in run("fix", place, "--fill-value", "nan")
    run("fix", place, "--fill-value", "none", code=2)


def test_fix_takes_a_place_for_the_backup(place: Path, tmp_path: Path) -> None:
    spoil(place)
    run("fix", place, "--write", "--backup", tmp_path / "kept")
    assert (tmp_path / "kept" / "manifest.json").exists()
