"""`zstore plugins new`: what it writes is a plugin that zstore finds and uses; it keeps the contracts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path
from string import Template

import house
import pytest

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
from zstore.cli.plugins import KINDS, NATIVE_PARTS, PARTS  # noqa: E402
from zstore.cli.root import zstore as command  # noqa: E402

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugins.md"
PYTEST = ["pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]

# What is done with each kind of plugin by its name alone, in an empty directory.
PROOFS = {
    "store": """
        zstore.create_array("$name://here", "a", data=cells, chunks=(10, 10))
        group = zstore.open("$name://here", "", mode="r")
        assert type(group.store).__module__ == "zstore_$module.store"
        assert np.array_equal(group["a"][...], cells)
    """,
    "codec": """
        stated = {"name": "$name", "configuration": {"level": 9}}
        zstore.create_array("a.zarr", data=cells, chunks=(10, 10), compressors=[stated])
        array = zstore.open("a.zarr", mode="r")
        assert array.model.codecs[-1].name == "$name"
        assert np.array_equal(array[...], cells)
        assert sum(file.stat().st_size for file in Path("a.zarr").rglob("c/*/*")) < cells.nbytes
    """,
    "native-codec": """
        from zstore_$module import native_codec

        made = native_codec.$class_name
        made.encode = made.decode = None  # only the compiled batch is left
        stated = {"name": "$name", "configuration": {"mask": 255}}
        zstore.create_array("a.zarr", data=cells, chunks=(10, 10), shards=(40, 20), compressors=[stated])
        assert np.array_equal(zstore.open("a.zarr", mode="r")[5:33, 7:], cells[5:33, 7:])
    """,
    "data-type": """
        zstore.create_array("a.zarr", data=cells, dtype="$name", chunks=(10, 10))
        array = zstore.open("a.zarr", mode="r")
        assert json.loads(Path("a.zarr/zarr.json").read_text())["data_type"] == "$name"
        assert np.array_equal(array[...], cells)
    """,
    "resampler": """
        assert np.array_equal(zstore.downsample(cells, (2, 2), method="$name"), cells[1::2, 1::2])
        source = zstore.create_group("scene.zarr")
        source.create_array("v", data=cells, chunks=(10, 10), dimension_names=("y", "x"))
        made = zstore.build_pyramid(source, "pyramid.zarr", levels=2, method="$name")
        assert np.array_equal(made["1/v"][...], cells[1::2, 1::2])
        words = ["pyramid", "scene.zarr", "typed.zarr", "--levels", "1", "--method", "$name"]
        type_words(*words)
        assert np.array_equal(zstore.open("typed.zarr", "1/v", mode="r")[...], cells[1::2, 1::2])
    """,
    "job": """
        from zstore_$module.job import $job as call

        zstore.create_array("a.zarr", data=cells, chunks=(20, 30))
        try:
            call("a.zarr", "out", progress=lambda done, total: done and 1 / 0)
        except ZeroDivisionError:
            pass
        said = type_words("info", "out", code=None)
        assert "unfinished" in said and "$name" in said, said
        assert call("a.zarr", "out", resume=True) == {"0.0": 1169, "0.1": 1199, "1.0": 2369, "1.1": 2399}
        assert "0.1" in json.loads(Path("out/largest.json").read_text())
    """,
    "command": """
        zstore.create_array("a.zarr", data=cells)
        words = [sys.executable, "-m", "zstore", "$name", "a.zarr"]
        assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "2400 items\\n"
    """,
    "convention": """
        from zstore.geo.conventions.read import read_geo

        source = zstore.create_group("scene.zarr", attributes={"$name:epsg": 32632})
        source.create_array("v", data=cells, chunks=(10, 10), dimension_names=("y", "x"))
        for name, size in (("y", 40), ("x", 60)):
            centres = 5e6 - 10.0 * np.arange(size) if name == "y" else 3e5 + 10.0 * np.arange(size)
            source.create_array(name, data=centres, dimension_names=(name,))
        zstore.build_pyramid(source, "pyramid.zarr", levels=2)
        for place in ("scene.zarr", "pyramid.zarr", "pyramid.zarr/1", "pyramid.zarr/2"):
            geo, _ = read_geo(zstore.open_group(place, mode="r"))
            assert geo.crs is not None, f"no CRS in {place}"
            assert geo.crs.code == "EPSG:32632", geo.crs
            assert "EPSG:32632" in type_words("info", place)
    """,
}
HEAD = """
import json, subprocess, sys
from pathlib import Path

import numpy as np
import zstore

cells = np.arange(2400, dtype="uint16").reshape(40, 60)

def type_words(*words, code=0):
    from click.testing import CliRunner
    from zstore.cli.root import zstore as command

    done = CliRunner().invoke(command, words)
    assert code is None or done.exit_code == code, done.output
    return done.output
"""


def proof(kind: str, name: str) -> str:
    capital = "".join(part.capitalize() for part in name.split("-"))
    module = name.replace("-", "_")
    words = {"name": name, "module": module, "class_name": f"{capital}Codec", "job": module}
    return HEAD + re.sub("(?m)^ {8}", "", Template(PROOFS[kind]).substitute(words))


def run(*words: object, code: int = 0):
    result = testing.CliRunner().invoke(command, ["plugins", "new", *map(str, words)])
    assert result.exit_code == code, result.output
    return result


def register(folder: Path, modules: str = "src") -> None:
    """What installing it would write, without the time that takes."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    metadata = folder / modules / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(header)
    points = [f"{name} = {module}" for name, module in project["entry-points"]["zstore"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[zstore]", *points, ""]))


def compile_kernel(folder: Path) -> None:
    """What setup.py does, without the time that setuptools takes."""
    (source,) = folder.rglob("native.c")
    target = source.with_name(f"native{sysconfig.get_config_var('EXT_SUFFIX')}")
    words = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{sysconfig.get_path('include')}"]
    subprocess.run(["cc", *words, str(source), "-o", str(target)], check=True)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a package of each kind, and the environment variable that lets Python find them."""
    place = tmp_path_factory.mktemp("written")
    for kind in KINDS:
        said = run(f"a-{kind}", "--kind", kind, "--into", place).output
        files = {path for path in (place / f"zstore-a-{kind}").rglob("*") if path.is_file()}
        native = len(NATIVE_PARTS) + 1 if kind == "native-codec" else 0
        assert len(files) == len(PARTS) + native and all(str(path) in said for path in files)
        assert not any("$" in path.read_text() for path in files if path.suffix != ".md")
    assert {entry.name for entry in place.iterdir()} == {f"zstore-a-{kind}" for kind in KINDS}
    return place


@pytest.fixture(scope="module")
def registered(written: Path) -> Callable[..., str]:
    """Gives a function that runs Python where the packages are as good as installed."""
    pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folders = sorted(written.glob("zstore-a-*"))
    for folder in folders:
        register(folder)
    compile_kernel(written / "zstore-a-native-codec")
    path = [*(str(folder / "src") for folder in folders), str(ROOT / "src"), *sys.path]

    def python(place: Path, *words: str) -> str:
        return run_in(place, [sys.executable, *words], PYTHONPATH=os.pathsep.join(path))

    return python


def run_in(place: Path, words: list[str], **variables: str) -> str:
    done = subprocess.run(
        words, cwd=place, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_written_passes_its_tests(registered: Callable[..., str], written: Path) -> None:
    said = registered(written, "-m", *PYTEST, f"--basetemp={written.parent / 'temporary'}")
    assert "passed" in said and "skipped" not in said and "failed" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_used(registered: Callable[..., str], tmp_path: Path, kind: str) -> None:
    registered(tmp_path, "-W", "error", "-c", proof(kind, f"a-{kind}"))


@pytest.mark.parametrize("tool", [["format", "--check"], ["check", "--extend-select", "I,B,UP"]], ids=str)
def test_what_is_written_is_formatted(written: Path, tool: list[str]) -> None:
    pytest.importorskip("ruff", reason="the style is checked by ruff (extra 'lint')")
    for folder in written.iterdir():
        run_in(folder, [sys.executable, "-m", "ruff", *tool, "--isolated", "--line-length", "110"])


# The package that the page makes step by step.


@pytest.fixture(scope="module")
def walk_through(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the blocks of the page that begin with the name of a file, as those files."""
    place = tmp_path_factory.mktemp("acme")
    for block in re.findall(r"^```\w+\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        named = re.match(r"# ([\w/]+\.\w+)", block)
        if named:
            file = place / named[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(block)
    return place


def test_the_walk_through_is_a_plugin(walk_through: Path, tmp_path: Path) -> None:
    assert house.internals(walk_through / "acme_zstore") == []
    folder = shutil.copytree(walk_through, tmp_path / "acme")
    register(folder, ".")
    path = os.pathsep.join([str(folder), str(ROOT / "src"), *sys.path])
    words = [*PYTEST, f"--basetemp={tmp_path / 'temporary'}", "test_acme.py"]
    said = run_in(folder, [sys.executable, "-m", *words], PYTHONPATH=path)
    assert "skipped" not in said


def test_refusals(tmp_path: Path) -> None:
    assert "expected small letters" in run("Acme", "--kind", "store", "--into", tmp_path, code=2).output
    assert "expected small letters" in run("../a", "--kind", "store", "--into", tmp_path, code=2).output
    assert "a word of Python's" in run("class", "--kind", "job", "--into", tmp_path, code=2).output
    assert "cannot write the folder" in run("a" * 300, "--kind", "job", "--into", tmp_path, code=1).output
    assert not [*tmp_path.iterdir()]
    assert "of zstore already" in run("zstd", "--kind", "codec", "--into", tmp_path, code=2).output
    assert "of zstore already" in run("zstd", "--kind", "native-codec", "--into", tmp_path, code=2).output
    assert "of zstore already" in run("median", "--kind", "resampler", "--into", tmp_path, code=2).output
    assert "--kind" in run("acme", code=2).output
    (tmp_path / "zstore-acme").mkdir()
    assert "is there already" in run("acme", "--kind", "store", "--into", tmp_path, code=2).output
    assert [*(tmp_path / "zstore-acme").iterdir()] == []


def test_templates_are_package_data() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "cli/templates/*.in" in stated["zstore"]


# As a stranger does it: a wheel of zstore in an environment that has nothing else, and the words of the page.


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], str]:
    """Gives a function that types a line in a directory, where nothing but zstore is installed."""
    place = tmp_path_factory.mktemp("stranger")
    wheel = os.environ.get("ZSTORE_WHEEL")
    if wheel is None:
        run_in(ROOT, [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(place), "."])
        wheel = str(next(place.glob("zstore-*.whl")))
    venv.create(place / "venv", with_pip=True)
    binaries = os.pathsep.join([str(place / "venv" / "bin"), os.environ["PATH"]])

    def type_line(directory: Path, line: str) -> str:
        return run_in(directory, ["sh", "-c", line], PATH=binaries, PYTHONPATH="", COLUMNS="200")

    type_line(place, f"pip install --quiet 'zstore[cli] @ {Path(wheel).resolve().as_uri()}'")
    return type_line


@pytest.mark.install
@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_makes_installs_and_uses_one(
    stranger: Callable[[Path, str], str], tmp_path: Path, kind: str
) -> None:
    block = re.search(r"^```console\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    lines = [line.removeprefix("$ ") for line in block[1].splitlines()]
    assert [line.split()[0] for line in lines] == ["zstore", "pip", "pytest"]
    try:
        for line in lines:
            said = stranger(tmp_path, line.replace("--kind codec", f"--kind {kind}"))
        assert "passed" in said and "skipped" not in said and "failed" not in said
        # And as those do who only use it: not from its folder.
        stranger(tmp_path, "pip install --quiet ./zstore-acme && mv zstore-acme gone")
        (line,) = [
            line for line in stranger(tmp_path, "zstore plugins").splitlines() if "zstore-acme" in line
        ]
        assert re.search(rf"{KINDS[kind]} .*\bacme\b.*\bok\b", line)
        (tmp_path / "proof.py").write_text(proof(kind, "acme"))
        assert "disabled" in stranger(tmp_path, "ZSTORE_DISABLE_PLUGINS=acme zstore plugins | grep acme")
        stranger(tmp_path, "python -W error proof.py")
    finally:
        stranger(tmp_path, "pip uninstall --quiet --yes zstore-acme")


@pytest.mark.install
def test_a_stranger_installs_the_walk_through(
    stranger: Callable[[Path, str], str], walk_through: Path, tmp_path: Path
) -> None:
    shutil.copytree(walk_through, tmp_path / "acme")
    try:
        # Its tests alone, away from its folder: what they import is what is installed.
        stranger(tmp_path, "mv acme/test_acme.py . && pip install --quiet './acme[test]' && mv acme gone")
        said = stranger(tmp_path, " ".join([*PYTEST, "test_acme.py"]))
        assert "passed" in said and "skipped" not in said and "failed" not in said
        listed = [
            line.split() for line in stranger(tmp_path, "zstore plugins").splitlines() if "acme" in line
        ]
        assert len(listed) == 9 and all("ok" in line for line in listed)
    finally:
        stranger(tmp_path, "pip uninstall --quiet --yes acme-zstore")
