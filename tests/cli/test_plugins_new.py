"""`zstore plugins new`: what it writes is a plugin that zstore finds and that keeps the contracts."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path

import pytest

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
from zstore.cli.plugins_new import KINDS, PARTS  # noqa: E402
from zstore.cli.root import zstore as command  # noqa: E402

ROOT = Path(__file__).parents[2]


def run(*words: object, code: int = 0):
    result = testing.CliRunner().invoke(command, ["plugins", "new", *map(str, words)])
    assert result.exit_code == code, result.output
    return result


def register(folder: Path) -> None:
    """What installing it would write, without the time that takes."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    metadata = folder / "src" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(header)
    points = [f"{name} = {module}" for name, module in project["entry-points"]["zstore"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[zstore]", *points, ""]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_passes_its_tests(tmp_path: Path, kind: str) -> None:
    if kind == "convention":
        pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    said = run("acme-two", "--kind", kind, "--into", tmp_path).output
    folder = tmp_path / "zstore-acme-two"
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert len(files) == len(PARTS) and all(str(path) in said for path in files)
    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name]
    assert not any("$" in path.read_text() for path in files if path.suffix != ".md")
    register(folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "tests"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(ROOT / "src"), *sys.path]),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


def test_what_is_written_is_formatted(tmp_path: Path) -> None:
    pytest.importorskip("ruff", reason="the style is checked by ruff (extra 'lint')")
    for kind in KINDS:
        run(f"a-{kind}", "--kind", kind, "--into", tmp_path)
    for kind, tool in product(KINDS, (["format", "--check"], ["check", "--extend-select", "I,B,UP"])):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *tool, "--isolated", "--line-length", "110"],
            cwd=tmp_path / f"zstore-a-{kind}",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_refusals(tmp_path: Path) -> None:
    assert "expected small letters" in run("Acme", "--kind", "store", "--into", tmp_path, code=2).output
    assert "expected small letters" in run("../a", "--kind", "store", "--into", tmp_path, code=2).output
    assert "of zstore already" in run("zstd", "--kind", "codec", "--into", tmp_path, code=2).output
    assert "--kind" in run("acme", code=2).output
    (tmp_path / "zstore-acme").mkdir()
    assert "is there already" in run("acme", "--kind", "store", "--into", tmp_path, code=2).output
    assert [*(tmp_path / "zstore-acme").iterdir()] == []


def test_templates_are_package_data() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "cli/templates/*.in" in stated["zstore"]
